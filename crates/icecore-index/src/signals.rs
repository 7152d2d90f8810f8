//! The signals of candidates, from postings, columns and rows.

use icecore_domain::embed::Vector;

use crate::document::{Doc, Role, Source};
use crate::error::IndexError;
use crate::matches::{Matches, saturate};
use crate::plan::Plan;
use crate::signs::Signs;
use crate::snapshot::Snapshot;
use crate::weights::{Mode, SIGNALS, Signal};

/// How far a window reaches.
pub(crate) const WINDOW: i32 = 3;

/// What a word of a neighbour counts for a turn: the turn before is what it
/// answers, the turn after often repeats it.
const WINDOW_DECAY: [(i32, f32); 7] =
    [(0, 1.0), (-1, 0.9), (1, 0.7), (-2, 0.7), (2, 0.5), (-3, 0.5), (3, 0.35)];

/// What the direction of a neighbour adds to that of a turn.
const THREAD_DECAY: [(i32, f32); 5] = [(0, 1.0), (-1, 0.8), (1, 0.6), (-2, 0.4), (2, 0.3)];

/// What a word that a neighbour holds counts for coverage.
const COVERAGE_DECAY: [(i32, f32); 5] = [(0, 1.0), (-1, 0.8), (1, 0.6), (-2, 0.6), (2, 0.4)];

/// A long text holds many words by chance: coverage falls with this power of its
/// passages, each of about so many terms.
const PASSAGE_POWER: f32 = -0.4;
const PASSAGE_TERMS: f32 = 30.0;

/// Terms, counts and directions of documents and their neighbours.
pub(crate) struct Table<'a> {
    snapshot: &'a Snapshot,
    plan: &'a Plan,
    matches: &'a Matches,
    /// For each document, its slot and one; 0 where it has none.
    slots: Vec<u32>,
    /// For each slot and term, how often the document holds it.
    counts: Vec<f32>,
    /// For each slot, the cosine of its best passage.
    cosines: Vec<Option<f32>>,
    /// For each slot, its mean direction.
    directions: Vec<f32>,
    probe: Option<Vec<f32>>,
    mean_length: f32,
}

/// Slots of a document and its neighbours, from [`WINDOW`] before to as many
/// after, with their lengths.
type Around = [Option<(usize, f32)>; 2 * WINDOW as usize + 1];

/// Room to compute in, used again for each document.
#[derive(Default)]
pub(crate) struct Scratch {
    terms: Vec<f32>,
    direction: Vec<f32>,
}

impl Scratch {
    fn terms(&mut self, width: usize) -> &mut [f32] {
        self.terms.clear();
        self.terms.resize(width, 0.0);
        &mut self.terms
    }

    fn direction(&mut self, dims: usize) -> &mut [f32] {
        self.direction.clear();
        self.direction.resize(dims, 0.0);
        &mut self.direction
    }
}

/// Signals before they are brought to scale.
pub(crate) struct Raw {
    pub(crate) doc: Doc,
    pub(crate) signals: [f32; SIGNALS],
}

impl<'a> Table<'a> {
    pub(crate) fn new(
        snapshot: &'a Snapshot,
        plan: &'a Plan,
        matches: &'a Matches,
        vector: Option<&Vector>,
        near: &[Doc],
    ) -> Result<Self, IndexError> {
        let mut slots = vec![0; snapshot.doc_count() as usize];
        for (slot, doc) in near.iter().enumerate() {
            slots[*doc as usize] = slot as u32 + 1;
        }
        let mut table = Self {
            snapshot,
            plan,
            matches,
            counts: vec![0.0; near.len() * matches.terms.len()],
            cosines: vec![None; near.len()],
            directions: Vec::new(),
            probe: vector.map(unit),
            mean_length: snapshot.average_length() as f32,
            slots,
        };
        table.count();
        if let Some(vector) = vector {
            table.turn_to(vector, near)?;
        }
        Ok(table)
    }

    fn width(&self) -> usize {
        self.matches.terms.len()
    }

    /// Fills in counts.
    fn count(&mut self) {
        let width = self.width();
        let (counts, slots) = (&mut self.counts, &self.slots);
        self.matches.each(|doc, term, count| {
            if let Some(slot) = (slots[doc as usize] as usize).checked_sub(1) {
                counts[slot * width + term] = count;
            }
        });
    }

    /// Fills in cosines and directions.
    fn turn_to(&mut self, vector: &Vector, near: &[Doc]) -> Result<(), IndexError> {
        let dims = vector.components().len();
        self.directions = vec![0.0; near.len() * dims];
        for (slot, doc) in near.iter().enumerate() {
            let direction = &mut self.directions[slot * dims..(slot + 1) * dims];
            let count = self.snapshot.add_directions(*doc, direction)?;
            if count > 1 {
                direction.iter_mut().for_each(|component| *component /= count as f32);
            }
            self.cosines[slot] = match count {
                1 => self.probe.as_ref().map(|probe| dot(probe, direction)),
                _ => self.snapshot.similarity(vector, *doc)?,
            };
        }
        Ok(())
    }

    #[inline(always)]
    fn slot(&self, doc: Doc) -> Option<usize> {
        (self.slots[doc as usize] as usize).checked_sub(1)
    }

    fn around(&self, doc: Doc, place: Option<(&[Doc], usize)>) -> Around {
        let mut around = Around::default();
        let with_length = |doc: Doc| Some((self.slot(doc)?, self.snapshot.length(doc) as f32));
        match place {
            None => around[WINDOW as usize] = with_length(doc),
            Some((turns, place)) => {
                for (at, entry) in around.iter_mut().enumerate() {
                    let other = (place + at).checked_sub(WINDOW as usize);
                    *entry = other.and_then(|other| with_length(*turns.get(other)?));
                }
            }
        }
        around
    }

    /// The signals of a document, those of words and vectors not yet to scale.
    #[inline(always)]
    pub(crate) fn raw(&self, doc: Doc, scratch: &mut Scratch) -> Raw {
        let (snapshot, plan) = (self.snapshot, self.plan);
        let signs = Signs(snapshot.signs(doc));
        let role = snapshot.role(doc);
        let cosine = self.cosine(doc);
        let yes = |condition: bool| if condition { 1.0 } else { 0.0 };
        let speaker = snapshot.speaker(doc);
        let is_first = speaker.is_some() && speaker == plan.speakers.first().copied();
        let place = place(snapshot, doc);
        let around = self.around(doc, place);
        let mut signals = [0.0; SIGNALS];
        let mut set = |signal: Signal, value: f32| signals[signal as usize] = value;
        set(Signal::Lexical, self.lexical(doc));
        set(Signal::Semantic, cosine);
        set(Signal::Window, self.window(&around, scratch));
        set(Signal::Coverage, self.coverage(&around, scratch));
        set(Signal::Thread, self.thread(&around, scratch));
        set(Signal::Speaker, yes(is_first));
        set(Signal::Own, yes(plan.cues.first_person && role == Role::User));
        if !plan.dates.is_empty() {
            set(Signal::Date, plan.dates.fit(snapshot.at(doc)));
        }
        set(Signal::When, yes(plan.cues.when && signs.names_time()));
        set(Signal::Instruction, signs.instruction() * cosine);
        set(Signal::Preference, yes(plan.cues.request) * signs.preference() * cosine);
        set(Signal::Question, yes(!plan.cues.first_person && signs.is_question()));
        set(Signal::Opening, place.map_or(0.0, |(_, at)| 1.0 / (1.0 + at as f32)));
        Raw { doc, signals }
    }

    fn lexical(&self, doc: Doc) -> f32 {
        self.slot(doc).map_or(0.0, |slot| self.own(slot, self.snapshot.length(doc)))
    }

    /// BM25 of the document by itself.
    fn own(&self, slot: usize, length: u32) -> f32 {
        let row = slot * self.width();
        let worth = |term: usize| {
            let count = self.counts[row + term];
            self.matches.idf[term] * saturate(count, length as f32, self.mean_length)
        };
        (0..self.width()).map(worth).sum()
    }

    fn cosine(&self, doc: Doc) -> f32 {
        self.slot(doc).and_then(|slot| self.cosines[slot]).unwrap_or(0.0).max(0.0)
    }

    /// Each word of the query where, around the document, it counts most.
    #[inline(always)]
    fn window(&self, around: &Around, scratch: &mut Scratch) -> f32 {
        let best = scratch.terms(self.width());
        for (offset, decay) in WINDOW_DECAY {
            let Some((slot, length)) = at(around, offset) else { continue };
            for (term, best) in best.iter_mut().enumerate() {
                let count = self.counts[slot * self.width() + term];
                if count > 0.0 {
                    *best = best.max(decay * saturate(count, length, self.mean_length));
                }
            }
        }
        self.weighed(best)
    }

    #[inline(always)]
    fn coverage(&self, around: &Around, scratch: &mut Scratch) -> f32 {
        let best = scratch.terms(self.width());
        for (offset, decay) in COVERAGE_DECAY {
            let Some((slot, length)) = at(around, offset) else { continue };
            let share = decay * libm::powf((length / PASSAGE_TERMS).max(1.0), PASSAGE_POWER);
            for (term, best) in best.iter_mut().enumerate() {
                if self.counts[slot * self.width() + term] > 0.0 {
                    *best = best.max(share);
                }
            }
        }
        self.weighed(best)
    }

    fn weighed(&self, worth: &[f32]) -> f32 {
        worth.iter().zip(&self.matches.idf).map(|(worth, idf)| worth * idf).sum()
    }

    #[inline(always)]
    fn thread(&self, around: &Around, scratch: &mut Scratch) -> f32 {
        let Some(probe) = &self.probe else { return 0.0 };
        let dims = probe.len();
        let sum = scratch.direction(dims);
        for (offset, decay) in THREAD_DECAY {
            let Some((slot, _)) = at(around, offset) else { continue };
            let direction = &self.directions[slot * dims..(slot + 1) * dims];
            for at in 0..dims {
                sum[at] += decay * direction[at];
            }
        }
        let norm = dot(sum, sum).sqrt();
        if norm > 0.0 { (dot(probe, sum) / norm).max(0.0) } else { 0.0 }
    }

    /// Brings signals of words and vectors to scale: against the best turn among
    /// the candidates, or the best of all where there is no turn. A summary holds
    /// the words of ten turns, and must not make each of them look small.
    pub(crate) fn scale(&self, raws: &mut [Raw]) {
        let measured =
            [Signal::Lexical, Signal::Semantic, Signal::Window, Signal::Coverage, Signal::Thread];
        let is_turn = |raw: &&Raw| matches!(self.snapshot.source(raw.doc), Source::Turn { .. });
        for signal in measured.map(|signal| signal as usize) {
            let value = |raw: &Raw| raw.signals[signal];
            let turns = raws.iter().filter(is_turn).map(value).fold(0.0_f32, f32::max);
            let all = raws.iter().map(value).fold(0.0_f32, f32::max);
            let most = if turns > 0.0 { turns } else { all };
            if most > 0.0 {
                raws.iter_mut().for_each(|raw| raw.signals[signal] /= most);
            }
        }
    }

    /// A document with its signals and their sum.
    pub(crate) fn ranked(&self, raw: &Raw, mode: Mode) -> Ranked {
        let slot = self.slot(raw.doc);
        let holds =
            |term: &usize| slot.is_some_and(|slot| self.counts[slot * self.width() + term] > 0.0);
        let matched =
            (0..self.width()).filter(holds).map(|term| self.plan.word(&self.matches.terms[term]));
        Ranked {
            doc: raw.doc,
            source: self.snapshot.source(raw.doc),
            score: score(&raw.signals, mode),
            signals: raw.signals,
            length: self.snapshot.length(raw.doc),
            matched: matched.collect(),
            mode,
        }
    }
}

/// A document and what speaks for it.
#[derive(Debug, Clone, PartialEq)]
pub struct Ranked {
    pub doc: Doc,
    pub source: Source,
    /// The sum of its weighted signals.
    pub score: f32,
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

fn at(around: &Around, offset: i32) -> Option<(usize, f32)> {
    around[(WINDOW + offset) as usize]
}

/// The turns of a turn's branch, and which of them it is.
pub(crate) fn place(snapshot: &Snapshot, doc: Doc) -> Option<(&[Doc], usize)> {
    let source = snapshot.source(doc);
    let Source::Turn { session, branch, .. } = source else { return None };
    let turns = snapshot.turns_of(session, branch);
    let place = turns.binary_search_by(|other| snapshot.source(*other).cmp(&source)).ok()?;
    Some((turns, place))
}

/// The weighted sum of the signals that a mode goes by.
pub(crate) fn score(signals: &[f32; SIGNALS], mode: Mode) -> f32 {
    let weight = |signal: Signal| match mode {
        Mode::Hybrid => signal.weight(),
        Mode::Lexical => signal.lexical_weight(),
        Mode::Semantic => signal.semantic_weight(),
    };
    Signal::ALL.into_iter().map(|signal| weight(signal) * signals[signal as usize]).sum()
}

fn unit(vector: &Vector) -> Vec<f32> {
    let mut floats: Vec<f32> = vector.components().iter().map(|c| f32::from(*c)).collect();
    let norm = dot(&floats, &floats).sqrt();
    if norm > 0.0 {
        floats.iter_mut().for_each(|component| *component /= norm);
    }
    floats
}

/// In eight lanes, so that it can be done eight at a time, always in this order.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 8];
    let b = &b[..a.len()];
    let whole = a.len() / 8 * 8;
    let mut at = 0;
    while at < whole {
        for lane in 0..8 {
            lanes[lane] += a[at + lane] * b[at + lane];
        }
        at += 8;
    }
    let mut sum = 0.0;
    for lane in lanes {
        sum += lane;
    }
    for at in whole..a.len() {
        sum += a[at] * b[at];
    }
    sum
}
