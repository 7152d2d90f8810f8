//! What sources say, sentence by sentence.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::super::{Part, Source, SourceFact, SourceKind};
use super::{Distillate, Line, Section};
use crate::fact::{FactKind, read_back};
use crate::summary::weigh::{self, weigh_alone};
use crate::text::{
    Cue, Said, SentenceKind, Voice, cuts_marker, dates, for_each_cue, is_instruction, is_question,
    one_line, own_terms, says_something, sentences, shared_count, speaker_of, split_speaker,
    voice_of, whole_markers, without_markers,
};
use crate::time::Millis;

/// Of what is no sentence so many characters stand for it.
const MAX_HEAD_CHARS: usize = 160;
/// What a decision is announced with.
const LABELS: [&str; 4] = ["decided", "decision", "agreed", "settled"];
/// A plan without a date is open for so long.
const PLAN_DAYS: i64 = 30;
const DAY_MS: i64 = 86_400_000;

/// Something that may become a line, or a part of one.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub section: Section,
    /// Who said it; empty for what nobody said.
    pub speaker: String,
    /// What; dates in it are absolute.
    pub text: String,
    pub at: Option<Millis>,
    pub before: Option<String>,
    /// Places in the archive's list, sorted.
    pub sources: Vec<u32>,
    /// Where it stands: source, part, sentence.
    pub place: (u32, u32, u32),
    pub rank: Rank,
    pub form: Form,
    /// The terms by which it is chosen, sorted.
    pub terms: Vec<u64>,
    /// What it weighs beside them, and the factor for all.
    pub bonus: f64,
    pub factor: f64,
}

/// What is first in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Phatic,
    Plain,
    /// Standing instructions and what a person confirmed.
    First,
}

/// What it was before it could become a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// A sentence: it may share a line with others of its part.
    Sentence,
    /// A line of the last dream.
    Carried(Option<Key>),
    Fact {
        key: Option<Key>,
        confirmed: bool,
    },
}

/// Which property of whom, and what it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub subject: String,
    pub attribute: String,
    pub value: String,
}

impl Candidate {
    /// The line that it would be alone.
    pub fn line_text(&self) -> String {
        if self.speaker.is_empty() {
            self.text.clone()
        } else {
            format!("{}: {}", self.speaker, self.text)
        }
    }

    pub fn key(&self) -> Option<&Key> {
        match &self.form {
            Form::Carried(key) | Form::Fact { key, .. } => key.as_ref(),
            Form::Sentence => None,
        }
    }

    /// Adds the places of what says the same.
    pub fn add_sources(&mut self, others: &[u32]) {
        self.sources.extend(others);
        self.sources.sort_unstable();
        self.sources.dedup();
    }
}

/// Reads what is carried, the facts and the sentences of all sources.
pub(super) fn read(sources: &[Source], carried: Option<&Distillate>) -> Vec<Candidate> {
    let reader = Reader { newest: newest(sources), open: open_parts(sources) };
    let mut found = Vec::new();
    for (place, source) in (0_u32..).zip(sources) {
        match carried.filter(|_| source.kind == SourceKind::Archive) {
            Some(carried) => {
                let lines = (0_u32..).zip(&carried.lines);
                found.extend(lines.map(|(at, line)| carried_line(place, at, line)));
            }
            None => reader.source(place, source, &mut found),
        }
    }
    weigh_all(&mut found);
    without_chatter(found)
}

/// What only keeps talk going goes where its source has more to say.
fn without_chatter(mut found: Vec<Candidate>) -> Vec<Candidate> {
    let telling: BTreeSet<u32> =
        found.iter().filter(|one| one.rank > Rank::Phatic).map(|one| one.place.0).collect();
    let stays = |one: &Candidate| one.rank > Rank::Phatic || !telling.contains(&one.place.0);
    found.retain(stays);
    found
}

/// The newest own time of all.
fn newest(sources: &[Source]) -> Option<Millis> {
    let parts = sources.iter().flat_map(|source| &source.parts).filter_map(|part| part.at);
    let facts = sources.iter().flat_map(|source| &source.facts).filter_map(|fact| fact.at);
    parts.chain(facts).max()
}

/// The last part of each session, by source: what it asks nobody has answered.
fn open_parts(sources: &[Source]) -> Vec<bool> {
    let last_of = |at: usize| {
        let session = sources[at].session.as_str();
        let next = sources.get(at + 1).map(|source| source.session.as_str());
        !session.is_empty() && next != Some(session)
    };
    (0..sources.len()).map(last_of).collect()
}

fn carried_line(place: u32, at: u32, line: &Line) -> Candidate {
    let (speaker, text) = split_speaker(&line.text);
    let key = read_back(&line.text, line.at.unwrap_or(Millis(0))).and_then(|fact| {
        let (subject, attribute) = (fact.subject, fact.attribute);
        (!attribute.is_empty()).then_some(Key { subject, attribute, value: fact.value })
    });
    let is_first = line.section == Section::Preferences && is_instruction(text);
    Candidate {
        section: line.section,
        speaker: speaker.to_owned(),
        text: text.to_owned(),
        at: line.at,
        before: line.before.clone(),
        sources: vec![place],
        place: (place, at, 0),
        rank: if is_first { Rank::First } else { Rank::Plain },
        form: Form::Carried(key),
        terms: Vec::new(),
        bonus: 0.0,
        factor: 1.0,
    }
}

/// Whether it says of itself that it is a decision, as in `Decided: we go`.
fn is_labelled_decision(text: &str) -> bool {
    let label = text.split_once(':').map(|(label, _)| label.trim().to_lowercase());
    label.is_some_and(|label| LABELS.contains(&label.as_str()))
}

/// A fact by its section, and the terms of the sentence that it was drawn from.
struct Drawn {
    section: Section,
    terms: Vec<u64>,
}

/// The first section among those of the facts that a sentence states completely.
fn section_drawn(drawn: &[Drawn], speaker: &str, sentence: &str) -> Option<Section> {
    if drawn.is_empty() {
        return None;
    }
    let terms = own_terms(&format!("{speaker}: {sentence}"));
    let is_told = |fact: &&Drawn| shared_count(&fact.terms, &terms) == fact.terms.len();
    drawn.iter().filter(is_told).map(|fact| fact.section).min()
}

struct Reader {
    newest: Option<Millis>,
    open: Vec<bool>,
}

impl Reader {
    fn source(&self, place: u32, source: &Source, found: &mut Vec<Candidate>) {
        for (at, fact) in (0_u32..).zip(&source.facts) {
            if !says_something(&fact.text) {
                continue;
            }
            let key = (!fact.attribute.is_empty()).then(|| Key {
                subject: fact.subject.clone(),
                attribute: fact.attribute.clone(),
                value: fact.value.clone(),
            });
            let is_first = fact.confirmed || fact.kind == FactKind::Instruction;
            found.push(Candidate {
                section: self.section_of_fact(fact.kind, key.is_some(), &fact.text, fact.at),
                speaker: String::new(),
                text: one_line(&fact.text),
                at: fact.at,
                before: None,
                sources: vec![place],
                place: (place, 0, at),
                rank: if is_first { Rank::First } else { Rank::Plain },
                form: Form::Fact { key, confirmed: fact.confirmed },
                terms: Vec::new(),
                bonus: 0.0,
                factor: 1.0,
            });
        }
        let drawn = self.drawn(source);
        for (at, part) in (0_u32..).zip(&source.parts) {
            let is_last = at as usize + 1 == source.parts.len();
            let is_open = is_last && self.open.get(place as usize) == Some(&true);
            match source.kind {
                SourceKind::Micro | SourceKind::Mini | SourceKind::Macro
                    if part.role.is_empty() && part.name.is_none() =>
                {
                    // A summary: a line for each run of sentences by one speaker.
                    for (line, text) in (0_u32..).zip(part.text.lines()) {
                        let (speaker, said) = split_speaker(text);
                        let part = Part { text: said.to_owned(), ..part.clone() };
                        let spot = (place, at.saturating_mul(1_000).saturating_add(line));
                        self.part(spot, (&part, &drawn), speaker, false, found);
                    }
                }
                _ => self.part((place, at), (part, &drawn), &speaker(part), is_open, found),
            }
        }
    }

    fn part(
        &self,
        (place, at): (u32, u32),
        (part, drawn): (&Part, &[Drawn]),
        speaker: &str,
        is_open: bool,
        found: &mut Vec<Candidate>,
    ) {
        let text = part.text.trim();
        let said = said(part);
        let voice = voice_of(&said);
        let mut kept = sentences(text);
        kept.retain(|sentence| {
            sentence.kind != SentenceKind::Dump
                && says_something(&sentence.text)
                && !cuts_marker(text, &sentence.text)
        });
        let is_output = voice == Voice::Machine && text.contains('\n');
        let mut texts: Vec<(SentenceKind, Cow<'_, str>)> =
            kept.into_iter().map(|sentence| (sentence.kind, sentence.text)).collect();
        if (is_output || texts.is_empty()) && says_something(text) {
            texts = vec![(SentenceKind::Dump, Cow::Owned(head(text)))];
        }
        for (index, (kind, sentence)) in (0_u32..).zip(texts) {
            let plain = one_line(&sentence);
            if !says_something(&plain) {
                continue;
            }
            let is_first = voice == Voice::Person && is_instruction(&plain);
            let section = if is_first {
                Section::Preferences
            } else {
                section_drawn(drawn, speaker, &plain)
                    .unwrap_or_else(|| self.section_of_sentence(&plain, voice, part.at, is_open))
            };
            found.push(Candidate {
                section,
                speaker: speaker.to_owned(),
                text: dated(plain, part.at, section),
                at: part.at,
                before: None,
                sources: vec![place],
                place: (place, at, index),
                rank: if is_first { Rank::First } else { Rank::Plain },
                form: Form::Sentence,
                terms: Vec::new(),
                bonus: 0.0,
                factor: factor_of(kind, voice),
            });
        }
    }

    /// The facts of a source, by what a sentence has to say for them.
    fn drawn(&self, source: &Source) -> Vec<Drawn> {
        let drawn = |fact: &SourceFact| Drawn {
            section: self.section_of_fact(
                fact.kind,
                !fact.attribute.is_empty(),
                &fact.text,
                fact.at,
            ),
            terms: own_terms(&fact.text),
        };
        source.facts.iter().map(drawn).filter(|drawn| drawn.terms.len() > 1).collect()
    }

    fn section_of_fact(
        &self,
        kind: FactKind,
        is_single: bool,
        text: &str,
        at: Option<Millis>,
    ) -> Section {
        match kind {
            FactKind::Identity if is_single => Section::Now,
            FactKind::Identity => Section::People,
            FactKind::Constraint => Section::Now,
            FactKind::Preference | FactKind::Instruction => Section::Preferences,
            FactKind::Decision => Section::Decisions,
            FactKind::Plan if self.is_ahead(text, at) => Section::Threads,
            FactKind::Plan | FactKind::Event if at.is_some() => Section::Timeline,
            FactKind::Plan | FactKind::Event => Section::Now,
        }
    }

    /// Whether a plan is still ahead of the newest that was said.
    fn is_ahead(&self, text: &str, at: Option<Millis>) -> bool {
        let (Some(at), Some(newest)) = (at, self.newest) else { return true };
        match dates::resolve(text, at).into_iter().map(|when| when.to).max() {
            Some(end) => end > newest,
            None => newest.0 - at.0 <= PLAN_DAYS * DAY_MS,
        }
    }

    fn section_of_sentence(
        &self,
        sentence: &str,
        voice: Voice,
        at: Option<Millis>,
        is_open: bool,
    ) -> Section {
        if is_question(sentence) {
            let is_thread = is_open || at.is_none();
            return if is_thread { Section::Threads } else { Section::Timeline };
        }
        let other = if at.is_some() { Section::Timeline } else { Section::Now };
        if voice == Voice::Machine {
            return other;
        }
        if is_labelled_decision(sentence) {
            return Section::Decisions;
        }
        let mut section = None;
        for_each_cue(sentence, |found| {
            let named = match found.cue {
                Cue::Decision => Some(Section::Decisions),
                Cue::Preference if voice == Voice::Person => Some(Section::Preferences),
                Cue::Identity if voice == Voice::Person => Some(Section::People),
                Cue::Plan if voice == Voice::Person && self.is_ahead(sentence, at) => {
                    at.map(|_| Section::Threads)
                }
                _ => None,
            };
            section = [section, named].into_iter().flatten().min();
        });
        section.unwrap_or(other)
    }
}

/// The beginning of what is no sentence, without half a marker.
fn head(text: &str) -> String {
    let line = one_line(text);
    let Some((end, _)) = line.char_indices().nth(MAX_HEAD_CHARS) else { return line };
    let head = whole_markers(&line[..end]);
    let head = head.rfind(' ').filter(|at| at * 2 > head.len()).map_or(head, |at| &head[..at]);
    format!("{}…", head.trim_end())
}

/// The sentence with the day that it means beside what means another on another day.
fn dated(sentence: String, at: Option<Millis>, section: Section) -> String {
    let Some(at) = at else { return sentence };
    let today = at.to_date();
    let tells_day = matches!(section, Section::Decisions | Section::Threads | Section::Timeline);
    let mut whens = dates::resolve(&sentence, at);
    whens.retain(|when| when.relative && !(tells_day && when.label() == today));
    match whens.as_slice() {
        [] => sentence,
        [when] => format!("{sentence} ({})", when.label()),
        whens => {
            let mut dated = sentence;
            for when in whens.iter().rev() {
                dated.insert_str(when.span.end, &format!(" ({})", when.label()));
            }
            dated
        }
    }
}

fn said(part: &Part) -> Said<'_> {
    let at = part.at.unwrap_or(Millis(0));
    Said { role: &part.role, name: part.name.as_deref(), text: &part.text, at }
}

fn speaker(part: &Part) -> String {
    speaker_of(&said(part)).into_owned()
}

/// What a kind of sentence and of speaker is worth.
fn factor_of(kind: SentenceKind, voice: Voice) -> f64 {
    let kind = match kind {
        SentenceKind::Dump => 0.1,
        SentenceKind::Heading => 0.4,
        SentenceKind::Fragment => 0.5,
        SentenceKind::Prose => 1.0,
    };
    let voice = match voice {
        Voice::Machine => 0.3,
        Voice::Model => 0.7,
        Voice::Person => 1.0,
    };
    kind * voice
}

/// Weighs each by itself, and says which only keep talk going.
fn weigh_all(found: &mut [Candidate]) {
    let as_sentence = |one: &Candidate| weigh::Candidate {
        turn: one.place.1 as usize,
        index: one.place.2 as usize,
        speaker: Cow::Owned(one.speaker.clone()),
        voice: Voice::Person,
        kind: SentenceKind::Prose,
        sentence: Cow::Owned(without_markers(&one.text).into_owned()),
    };
    let weighed: Vec<weigh::Candidate<'static>> = found.iter().map(as_sentence).collect();
    let speakers = weigh::speaker_terms(&weighed);
    for (one, sentence) in found.iter_mut().zip(&weighed) {
        let alone = weigh_alone(sentence, &speakers);
        if one.rank == Rank::Plain && one.form == Form::Sentence && alone.terms.is_empty() {
            one.rank = Rank::Phatic;
        }
        one.terms = alone.terms;
        one.bonus = alone.bonus;
        one.factor *= alone.factor;
    }
}
