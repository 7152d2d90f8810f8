//! Summaries without a model: extractive, deterministic, within a token budget.
//!
//! Turns are cut into sentences ([`crate::text`]), sentences are weighed
//! ([`weigh`]: what is central, rare, dated, named, decided), and the best that
//! do not repeat each other are put in the order they were said, each line after
//! the name of who said it ([`pick`]). Themes and facts come from the same
//! sentences.
//!
//! Maps are sorted lists, logarithms come from `libm`, and ties go to what was
//! said first, so that equal turns give equal bytes on every machine.

mod choose;
mod facts;
pub mod model;
mod pick;
mod themes;
pub(crate) mod weigh;

#[cfg(test)]
mod summary_tests;

use std::borrow::Cow;

pub use choose::{Chosen, choose_sentences};
pub use facts::MAX_KEY_FACTS;
pub use themes::MAX_THEMES;

use crate::chunk::Level;
use crate::redact::{NotClean, Redactor};
use crate::text::{
    Said, SentenceKind, Voice, dump, sentences, speaker_of, split_speaker, voice_of,
};
use crate::tokens::TokenCounter;
use themes::Themes;
use weigh::Candidate;

/// The algorithm's identity: it goes up whenever equal turns would give another
/// summary.
pub const HEURISTIC_VERSION: u32 = 1;

/// The most tokens of a micro's summary.
pub const MICRO_SUMMARY_TOKENS: u32 = 60;
/// The most tokens of a mini's summary.
pub const MINI_SUMMARY_TOKENS: u32 = 90;
/// The most tokens of a macro's summary.
pub const MACRO_SUMMARY_TOKENS: u32 = 160;
/// Below this a summary says nothing.
const MIN_SUMMARY_TOKENS: u32 = 20;

/// The summary of one chunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    pub text: String,
    pub themes: Vec<String>,
    /// Sentences worth keeping by themselves.
    pub key_facts: Vec<String>,
}

/// A summary that has been through a [`Redactor`] again: its source was clean,
/// but what was put together from it must be looked at once more.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedactedSummary(Summary);

impl RedactedSummary {
    pub fn parts(&self) -> &Summary {
        &self.0
    }

    /// The store's door; see [`RedactedText::read_back`](crate::redact::RedactedText::read_back).
    pub fn read_back(summary: Summary) -> Self {
        Self(summary)
    }
}

impl Redactor {
    /// Hides what is secret in derived text, part by part, and looks again.
    pub fn summary(&self, summary: Summary) -> Result<RedactedSummary, NotClean> {
        let text = |text: String| self.derived(&text);
        let list = |list: Vec<String>| list.into_iter().map(text).collect::<Result<_, _>>();
        Ok(RedactedSummary(Summary {
            text: text(summary.text)?,
            themes: list(summary.themes)?,
            key_facts: list(summary.key_facts)?,
        }))
    }
}

/// The budget for the summary of a chunk whose turns have `chunk_tokens`: a share
/// of them, so that all levels together stay near a seventh of the turns, within
/// the limits of the level.
pub fn summary_budget(level: Level, chunk_tokens: u64) -> u32 {
    let (part, most) = match level {
        Level::Micro => (10, MICRO_SUMMARY_TOKENS),
        Level::Mini => (25, MINI_SUMMARY_TOKENS),
        Level::Macro => (40, MACRO_SUMMARY_TOKENS),
    };
    u32::try_from(chunk_tokens / part).unwrap_or(most).clamp(MIN_SUMMARY_TOKENS, most)
}

/// Summarizes the turns of a micro within `budget_tokens`.
///
/// One line for each run of sentences by one speaker, as in `Ann: I moved.`
pub fn summarize_turns(
    turns: &[Said<'_>],
    budget_tokens: u32,
    counter: &dyn TokenCounter,
) -> Summary {
    let mut candidates = Vec::new();
    for (turn, said) in turns.iter().enumerate() {
        read_turn(turn, said, &mut candidates);
    }
    let facts = candidates
        .iter()
        .filter_map(|c| facts::fact(&c.speaker, c.voice, c.kind, &c.sentence))
        .collect();
    Summary {
        themes: themes_of(&candidates),
        key_facts: facts::choose(facts),
        text: pick::pick(weigh::weigh(candidates), budget_tokens, counter),
    }
}

/// Summarizes a mini or macro from its children's summaries within `budget_tokens`.
///
/// Their sentences and facts are what is chosen from; themes and facts merge.
pub fn summarize_children(
    children: &[&Summary],
    budget_tokens: u32,
    counter: &dyn TokenCounter,
) -> Summary {
    let mut candidates = Vec::new();
    for (turn, child) in children.iter().enumerate() {
        let lines = child.text.lines().chain(child.key_facts.iter().map(String::as_str));
        lines.for_each(|line| read_line(turn, line, &mut candidates));
    }
    let child_themes: Vec<&[String]> = children.iter().map(|c| c.themes.as_slice()).collect();
    let mut themes = themes::merge(&child_themes);
    if themes.is_empty() {
        themes = themes_of(&candidates);
    }
    Summary {
        themes,
        key_facts: facts::merge(children.iter().flat_map(|child| &child.key_facts)),
        text: pick::pick(weigh::weigh(candidates), budget_tokens, counter),
    }
}

/// Adds the sentences of a turn.
fn read_turn<'a>(turn: usize, said: &Said<'a>, candidates: &mut Vec<Candidate<'a>>) {
    let speaker = speaker_of(said);
    let voice = voice_of(said);
    let text = said.text.trim();
    let mut found = if voice == Voice::Machine && text.contains('\n') {
        vec![dump("output", text.lines().count())]
    } else {
        sentences(text)
    };
    if found.is_empty() && text.contains(char::is_alphanumeric) {
        found.push(dump("text", text.lines().count()));
    }
    for (index, sentence) in found.into_iter().enumerate() {
        candidates.push(Candidate {
            turn,
            index,
            speaker: speaker.clone(),
            voice,
            kind: sentence.kind,
            sentence: sentence.text,
        });
    }
}

/// Adds the sentences of a line of a child's summary.
fn read_line<'a>(turn: usize, line: &'a str, candidates: &mut Vec<Candidate<'a>>) {
    let (speaker, said) = split_speaker(line);
    let voice = match speaker {
        "assistant" => Voice::Model,
        "tool" | "system" => Voice::Machine,
        _ => Voice::Person,
    };
    for sentence in sentences(said) {
        let kind = if is_dump(&sentence.text) { SentenceKind::Dump } else { sentence.kind };
        // A fact that the summary holds already would only cost a comparison.
        let mut of_child = candidates.iter().rev().take_while(|c| c.turn == turn);
        if of_child.any(|c| c.sentence == sentence.text) {
            continue;
        }
        let index = candidates.len();
        let speaker = Cow::Borrowed(speaker);
        candidates.push(Candidate { turn, index, speaker, voice, kind, sentence: sentence.text });
    }
}

/// Whether a sentence is our own word for code or data.
fn is_dump(sentence: &str) -> bool {
    sentence.starts_with('[') && (sentence.ends_with(" lines]") || sentence.ends_with(" line]"))
}

/// Keyphrases of lines that nobody said.
pub(crate) fn themes_of_lines(lines: &[&str]) -> Vec<String> {
    let mut themes = Themes::default();
    lines.iter().for_each(|line| themes.read(line));
    themes.name()
}

fn themes_of(candidates: &[Candidate<'_>]) -> Vec<String> {
    let mut themes = Themes::default();
    let mut known: Vec<&str> = Vec::new();
    for candidate in candidates {
        if !known.contains(&candidate.speaker.as_ref()) && known.len() < 16 {
            known.push(&candidate.speaker);
            themes.ignore(&candidate.speaker);
        }
    }
    let spoken = |c: &&Candidate<'_>| c.kind != SentenceKind::Dump && c.voice != Voice::Machine;
    candidates.iter().filter(spoken).for_each(|candidate| themes.read(&candidate.sentence));
    themes.name()
}
