//! How much each sentence is worth to a reader.

use std::borrow::Cow;

use crate::text::{
    Cue, SentenceKind, TermCounts, Voice, Word, WordClass, class_of, dates, fold, for_each_cue,
    for_each_word, is_question, leans_on_before, stem, term,
};

/// Sentences compared with each other; of more, the weightiest by themselves.
pub(super) const MAX_CANDIDATES: usize = 256;

/// A sentence that may go into a summary.
#[derive(Debug, Clone)]
pub(crate) struct Candidate<'a> {
    /// Which turn or child it is from.
    pub turn: usize,
    /// Which sentence of the turn it is.
    pub index: usize,
    pub speaker: Cow<'a, str>,
    /// Whether a person did.
    pub voice: Voice,
    pub kind: SentenceKind,
    pub sentence: Cow<'a, str>,
}

/// A candidate with what it weighs.
#[derive(Debug, Clone)]
pub(super) struct Weighed<'a> {
    pub candidate: Candidate<'a>,
    /// Its terms, each once, sorted.
    pub terms: Vec<u64>,
    /// From 0; more is better.
    pub weight: f64,
}

/// What a sentence has in it.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    filler_words: u32,
    own_words: u32,
    numbers: u32,
    names: u32,
    first_person: bool,
    second_person: bool,
    cue: f64,
}

/// Weighs the candidates; they stay in order.
pub(super) fn weigh(candidates: Vec<Candidate<'_>>) -> Vec<Weighed<'_>> {
    let speakers = speaker_terms(&candidates);
    let mut read: Vec<(Weighed<'_>, f64)> = candidates
        .into_iter()
        .map(|candidate| {
            let (terms, marks) = read(&candidate, &speakers);
            let (bonus, factor) = judge(&candidate, marks);
            (Weighed { candidate, terms, weight: bonus }, factor)
        })
        .collect();
    keep_best(&mut read);
    add_terms(&mut read);
    read.into_iter().map(|(weighed, _)| weighed).collect()
}

/// What a sentence is worth by itself, without those around it.
pub(crate) struct Alone {
    /// Its terms, each once, sorted; without those of `speakers`.
    pub terms: Vec<u64>,
    /// What it weighs beside its terms.
    pub bonus: f64,
    /// The factor for all that it weighs.
    pub factor: f64,
}

/// Weighs one sentence alone; `speakers` are the terms of [`speaker_terms`].
pub(crate) fn weigh_alone(candidate: &Candidate<'_>, speakers: &[u64]) -> Alone {
    let (terms, marks) = read(candidate, speakers);
    let (bonus, factor) = judge(candidate, marks);
    Alone { terms, bonus, factor }
}

/// The names of those who speak: calling each other by name says nothing.
pub(crate) fn speaker_terms(candidates: &[Candidate<'_>]) -> Vec<u64> {
    let mut terms = Vec::new();
    let mut folded = String::new();
    let mut last = "";
    for candidate in candidates {
        if candidate.speaker != last {
            for_each_word(&candidate.speaker, |word| {
                fold(word.text, &mut folded);
                terms.push(term(stem(&folded)));
            });
            last = &candidate.speaker;
        }
    }
    terms.sort_unstable();
    terms.dedup();
    terms
}

/// The terms and marks of a sentence.
fn read(candidate: &Candidate<'_>, speakers: &[u64]) -> (Vec<u64>, Marks) {
    let mut marks = Marks::default();
    let mut terms = Vec::new();
    if candidate.kind == SentenceKind::Dump {
        return (terms, marks);
    }
    let mut folded = String::new();
    let mut is_first = true;
    for_each_word(&candidate.sentence, |word| {
        fold(word.text, &mut folded);
        let stem = term(stem(&folded));
        match class_of(&folded) {
            WordClass::Stop => note_person(&folded, &mut marks),
            WordClass::Filler => marks.filler_words += 1,
            WordClass::Content | WordClass::Dull if speakers.binary_search(&stem).is_err() => {
                terms.push(stem);
                note_form(word, is_first, &mut marks);
            }
            _ => {}
        }
        is_first = false;
    });
    terms.sort_unstable();
    terms.dedup();
    marks.own_words = terms.len().try_into().unwrap_or(u32::MAX);
    marks.cue = cue_value(&candidate.sentence);
    (terms, marks)
}

fn note_person(folded: &str, marks: &mut Marks) {
    match folded {
        "i" | "i'm" | "i've" | "i'll" | "i'd" | "my" | "we" | "we're" | "we've" | "we'll"
        | "our" | "ich" | "wir" | "mein" | "je" | "nous" | "mon" | "yo" | "mi" => {
            marks.first_person = true;
        }
        "you" | "you're" | "you've" | "you'll" | "your" => marks.second_person = true,
        _ => {}
    }
}

/// Numbers, and names by their capital inside a sentence.
fn note_form(word: Word<'_>, is_first: bool, marks: &mut Marks) {
    if word.text.bytes().any(|byte| byte.is_ascii_digit()) {
        marks.numbers += 1;
    } else if !is_first && word.text.starts_with(char::is_uppercase) {
        marks.names += 1;
    }
}

/// What the phrases of a sentence announce, together at most 1.
fn cue_value(sentence: &str) -> f64 {
    let mut value: f64 = if dates::has_year(sentence) { 0.3 } else { 0.0 };
    for_each_cue(sentence, |found| {
        value += match found.cue {
            Cue::Decision | Cue::Instruction => 0.7,
            Cue::Identity | Cue::Constraint | Cue::Preference => 0.5,
            Cue::Plan | Cue::Event => 0.35,
            Cue::Time => 0.35,
            Cue::Aim => 0.2,
            Cue::Reaction => -0.2,
        };
    });
    value.clamp(0.0, 1.0)
}

/// What a sentence weighs by itself, and the factor for all that it weighs.
fn judge(candidate: &Candidate<'_>, marks: Marks) -> (f64, f64) {
    let mut bonus = 0.45 * marks.cue
        + 0.10 * f64::from(marks.names.min(2))
        + 0.10 * f64::from(marks.numbers.min(2))
        + 0.10 / (1.0 + candidate.index as f64);
    if marks.first_person {
        bonus += 0.15;
    }
    let mut factor = match (candidate.kind, candidate.voice) {
        (SentenceKind::Dump, _) => 0.1,
        (_, Voice::Machine) => 0.3,
        (SentenceKind::Heading, _) => 0.4,
        (SentenceKind::Fragment, _) => 0.5,
        (_, Voice::Model) => 0.7,
        (_, Voice::Person) => 1.0,
    };
    if is_question(&candidate.sentence) {
        factor *= 0.5;
    }
    if candidate.sentence.starts_with('[') {
        factor *= 0.7;
    }
    if leans_on_before(&candidate.sentence) {
        factor *= 0.85;
    }
    if marks.second_person && !marks.first_person {
        factor *= 0.7;
    }
    if marks.filler_words >= marks.own_words.max(1) {
        factor *= 0.3;
    } else if marks.filler_words * 3 >= marks.own_words {
        factor *= 0.75;
    }
    factor *= match marks.own_words {
        0 => 0.1,
        1 => 0.3,
        2 => 0.6,
        _ => 1.0,
    };
    (bonus, factor)
}

/// Bounds what is compared, whatever came in.
fn keep_best(read: &mut Vec<(Weighed<'_>, f64)>) {
    if read.len() <= MAX_CANDIDATES {
        return;
    }
    let own = |(weighed, factor): &(Weighed<'_>, f64)| {
        factor * (weighed.weight + 0.05 * weighed.terms.len().min(12) as f64)
    };
    let mut order: Vec<(f64, usize)> =
        read.iter().enumerate().map(|(at, entry)| (own(entry), at)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut kept: Vec<usize> = order[..MAX_CANDIDATES].iter().map(|entry| entry.1).collect();
    kept.sort_unstable();
    let mut at = 0;
    read.retain(|_| {
        at += 1;
        kept.binary_search(&(at - 1)).is_ok()
    });
}

/// Adds how central and how rare the terms of each sentence are.
fn add_terms(read: &mut [(Weighed<'_>, f64)]) {
    // In how many sentences each term stands.
    let counts = TermCounts::of(read.iter().flat_map(|entry| &entry.0.terms));
    let total = read.len() as f64;
    let rarity = |count: u32| libm::log2(1.0 + total / f64::from(count));
    let most = rarity(1).max(1.0);
    for (weighed, factor) in read {
        let (mut rare, mut central) = (0.0, 0.0);
        for &term in &weighed.terms {
            let count = counts.count(term);
            rare += rarity(count) / most;
            // A term that occurs once is not central.
            central += f64::from(count - 1) * rarity(count) / most;
        }
        // Long sentences have more of everything, and cost more: the root is
        // between the sum and the mean.
        let size = (weighed.terms.len() as f64 + 3.0).sqrt();
        let terms = 0.30 * rare / size + 0.12 * (central / size).min(3.0);
        weighed.weight = (weighed.weight + terms) * *factor;
    }
}
