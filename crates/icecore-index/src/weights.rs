//! The signals that a rank is made of, and what each is worth.
//!
//! One place for all of it. Each signal is on a scale of about 0 to 1, and its
//! weight is what a listwise fit over conversations of several kinds gave it;
//! `training/rank.py` fits them again and prints what leaving one out costs.

/// How many signals there are.
pub const SIGNALS: usize = 14;

/// What can speak for a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Signal {
    /// Its own words (BM25).
    Lexical,
    /// Its own meaning: the cosine of its nearest passage.
    Semantic,
    /// Words of it or, weaker, of its neighbours, each word where it counts most.
    Window,
    /// How many of the query's words it and, weaker, its neighbours hold at all.
    Coverage,
    /// The meaning of the turn together with its neighbours.
    Thread,
    /// Neighbouring words of the query that are neighbours in it.
    Pairs,
    /// The query names its speaker before any other.
    Speaker,
    /// Somebody asks about themselves, and it is a person who speaks.
    Own,
    /// The query names a day near it.
    Date,
    /// The query asks for a time, and the document names one.
    When,
    /// It is a standing instruction, near in meaning.
    Instruction,
    /// It is a preference, near in meaning, and help is asked for.
    Preference,
    /// It asks itself, and seldom answers.
    Question,
    /// It is among the first of its session.
    Opening,
}

icecore_domain::words!(Signal {
    Lexical = "lexical", Semantic = "semantic", Window = "window", Coverage = "coverage",
    Thread = "thread", Pairs = "pairs", Speaker = "speaker", Own = "own", Date = "date",
    When = "when", Instruction = "instruction", Preference = "preference", Question = "question",
    Opening = "opening",
});

impl Signal {
    /// What it is worth when words and vectors both count.
    pub fn weight(self) -> f32 {
        match self {
            Signal::Lexical => 0.0,
            Signal::Semantic => 0.8,
            Signal::Window => 2.1,
            Signal::Coverage => 2.1,
            Signal::Thread => 3.1,
            Signal::Pairs => 1.8,
            Signal::Speaker => 2.4,
            Signal::Own => 1.6,
            Signal::Date => 4.3,
            Signal::When => 1.9,
            Signal::Instruction => 4.1,
            Signal::Preference => 3.5,
            Signal::Question => -1.0,
            Signal::Opening => 0.5,
        }
    }

    /// What it is worth where vectors alone count.
    pub(crate) fn semantic_weight(self) -> f32 {
        match self {
            Signal::Semantic | Signal::Thread => 1.0,
            _ => 0.0,
        }
    }

    /// What it is worth where words alone count.
    pub(crate) fn lexical_weight(self) -> f32 {
        match self {
            Signal::Semantic | Signal::Thread | Signal::Instruction | Signal::Preference => 0.0,
            other => other.weight(),
        }
    }
}

/// By words, by meaning, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Both, and what a conversation offers.
    #[default]
    Hybrid,
    Lexical,
    Semantic,
}

icecore_domain::words!(Mode { Hybrid = "hybrid", Lexical = "lexical", Semantic = "semantic" });
