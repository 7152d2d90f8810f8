//! From signals to a rank.
//!
//! Words and vectors name candidates; what a conversation offers (neighbours,
//! windows, who spoke, when, question and answer) is computed for those alone,
//! from postings, columns and rows, without a text being read. Signals are
//! brought to one scale and added with the weights of [`weights`].

use std::collections::BTreeSet;

use icecore_domain::embed::Vector;

use crate::document::{Doc, Source};
use crate::error::IndexError;
use crate::matches::Matches;
use crate::plan::Plan;
use crate::signals::{Raw, Scratch, Table, WINDOW, place, score};
use crate::signs::Signs;
use crate::snapshot::Snapshot;
use crate::weights::{SIGNALS, Signal};

/// Documents taken by words before anything else is looked at.
const BY_WORDS: usize = 100;

/// And by vectors.
const BY_MEANING: usize = 100;

/// Standing instructions and preferences looked at, the surest and newest.
const STANDING: usize = 128;

/// Turns this far before and after a match are candidates themselves.
const REACH: usize = 2;

/// By words, by meaning, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Both, and what a conversation offers.
    #[default]
    Hybrid,
    /// Words alone.
    Lexical,
    /// Vectors alone.
    Semantic,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 3] = [Mode::Hybrid, Mode::Lexical, Mode::Semantic];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Hybrid => "hybrid",
            Mode::Lexical => "lexical",
            Mode::Semantic => "semantic",
        }
    }

    /// The mode of that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == word)
    }
}

/// What is wanted of a ranking.
pub struct Wanted<'a> {
    /// At most so many.
    pub limit: usize,
    /// By what.
    pub mode: Mode,
    /// Which documents may be among them.
    pub keep: &'a dyn Fn(Doc) -> bool,
}

/// A document and what speaks for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    /// Its number.
    pub doc: Doc,
    /// What it is.
    pub source: Source,
    /// The sum of its weighted signals.
    pub score: f32,
    /// The signals themselves.
    pub signals: [f32; SIGNALS],
    /// How many of its content terms there are.
    pub length: u32,
    /// Words of the query that it holds itself.
    pub matched: Vec<String>,
    pub(crate) mode: Mode,
}

impl Ranked {
    /// One of its signals.
    pub fn signal(&self, signal: Signal) -> f32 {
        self.signals[signal as usize]
    }

    /// Takes account of what only the text tells: words that are neighbours in
    /// the query and in it.
    pub fn read(&mut self, plan: &Plan, text: &str) {
        // A pair takes two words, and which it holds is known.
        if self.matched.len() > 1 {
            self.signals[Signal::Pairs as usize] = plan.pairs_in(text);
            self.score = score(&self.signals, self.mode);
        }
    }

    /// Why it is here, in a line.
    pub fn reason(&self) -> String {
        let has = |signal: Signal| self.signal(signal) > 0.0;
        let mut reasons = Vec::new();
        if has(Signal::Instruction) && self.signal(Signal::Instruction) > 0.1 {
            reasons.push("a standing instruction".to_owned());
        }
        if has(Signal::Preference) && self.signal(Signal::Preference) > 0.1 {
            reasons.push("a preference".to_owned());
        }
        match self.matched.as_slice() {
            [] => {}
            words => reasons.push(format!("shares {}", quoted(words))),
        }
        if self.signal(Signal::Semantic) > 0.5 {
            reasons.push("near in meaning".to_owned());
        }
        if has(Signal::Speaker) {
            reasons.push("said by whom the query names".to_owned());
        }
        if has(Signal::Date) {
            reasons.push("of the time the query names".to_owned());
        }
        if self.matched.is_empty() && self.signal(Signal::Window) > 0.2 {
            reasons.push("beside turns that match".to_owned());
        }
        if reasons.is_empty() {
            reasons.push("beside what matches".to_owned());
        }
        reasons.join("; ")
    }
}

/// A few words in quotes.
fn quoted(words: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<String> = words.iter().take(SHOWN).map(|word| format!("“{word}”")).collect();
    match words.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Ranks documents, best first: see [`sort`].
pub fn rank(
    snapshot: &Snapshot,
    plan: &Plan,
    vector: Option<&Vector>,
    wanted: &Wanted<'_>,
) -> Result<Vec<Ranked>, IndexError> {
    if snapshot.doc_count() == 0 || wanted.limit == 0 {
        return Ok(Vec::new());
    }
    let matches = Matches::find(snapshot, plan)?;
    let candidates = candidates(snapshot, plan, &matches, vector, wanted)?;
    let near = with_neighbours(snapshot, &candidates, WINDOW as usize);
    let table = Table::new(snapshot, plan, &matches, vector, &near)?;
    let is_wanted = |doc: &&Doc| (wanted.keep)(**doc) && !snapshot.superseded(**doc);
    let kept: Vec<Doc> = candidates.iter().filter(is_wanted).copied().collect();
    let mut scratch = Scratch::default();
    // Compiled once for each kind of processor, and so several lanes wide.
    let mut raws: Vec<Raw> = Vec::with_capacity(kept.len());
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || {
            for doc in &kept {
                raws.push(table.raw(*doc, &mut scratch));
            }
        },
    );
    table.scale(&mut raws);
    let mut ranked: Vec<Ranked> = raws.iter().map(|raw| table.ranked(raw, wanted.mode)).collect();
    sort(&mut ranked);
    ranked.truncate(wanted.limit);
    Ok(ranked)
}

/// Best first; of equal ones the later, by what they are: their numbers depend
/// on when they were fed.
pub fn sort(ranked: &mut [Ranked]) {
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score).then(b.source.cmp(&a.source)));
}

/// The documents that are worth a closer look, in order of number.
fn candidates(
    snapshot: &Snapshot,
    plan: &Plan,
    matches: &Matches,
    vector: Option<&Vector>,
    wanted: &Wanted<'_>,
) -> Result<Vec<Doc>, IndexError> {
    let mut found = BTreeSet::new();
    if wanted.mode != Mode::Semantic {
        found.extend(matches.best(snapshot, BY_WORDS.max(wanted.limit / 3)));
    }
    if let Some(vector) = vector {
        let n = BY_MEANING.max(wanted.limit / 3);
        found.extend(snapshot.nearest(vector, n, None)?.into_iter().map(|(doc, _)| doc));
    }
    let mut found: Vec<Doc> = found.into_iter().collect();
    if wanted.mode != Mode::Lexical {
        found = with_neighbours(snapshot, &found, REACH);
    }
    if wanted.mode == Mode::Hybrid && vector.is_some() {
        found.extend(standing(snapshot, plan));
        found.sort_unstable();
        found.dedup();
    }
    Ok(found)
}

/// The surest standing instructions, and preferences if help is asked for; of
/// equal ones the newest.
fn standing(snapshot: &Snapshot, plan: &Plan) -> Vec<Doc> {
    let strength = |doc: Doc| {
        let signs = Signs(snapshot.signs(doc));
        let preference = if plan.cues.request { signs.preference() } else { 0.0 };
        signs.instruction().max(preference)
    };
    let all = (0..).zip(snapshot.all_signs());
    let mut found: Vec<(f32, Doc)> = all
        .filter(|(_, signs)| Signs(**signs).is_standing())
        .map(|(doc, _)| (strength(doc), doc))
        .filter(|(strength, _)| *strength >= 0.25)
        .collect();
    found.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    found.into_iter().take(STANDING).map(|(_, doc)| doc).collect()
}

/// Documents and the turns around them, in order of number.
fn with_neighbours(snapshot: &Snapshot, docs: &[Doc], reach: usize) -> Vec<Doc> {
    let mut found: Vec<Doc> = docs.to_vec();
    for doc in docs {
        if let Some((turns, place)) = place(snapshot, *doc) {
            let end = turns.len().min(place + reach + 1);
            found.extend(&turns[place.saturating_sub(reach)..end]);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
