//! Summaries without a model: extractive, deterministic, within a token budget.
//!
//! Turns are cut into sentences ([`sentence`]), sentences are weighed
//! ([`weigh`]: what is central, rare, dated, named, decided), and the best that
//! do not repeat each other are put in the order they were said, each line after
//! the name of who said it ([`pick`]). Themes and facts come from the same
//! sentences.
//!
//! Maps are sorted lists, logarithms come from `libm`, and ties go to what was
//! said first, so that equal turns give equal bytes on every machine.

pub(crate) mod choose;
pub(crate) mod cues;
pub(crate) mod facts;
pub mod model;
pub(crate) mod pick;
pub(crate) mod sentence;
mod themes;
pub(crate) mod weigh;
pub(crate) mod words;

#[cfg(test)]
mod summary_tests;

use std::borrow::Cow;

pub use choose::{Chosen, choose_sentences};
pub use facts::MAX_KEY_FACTS;
pub use themes::MAX_THEMES;

use crate::chunk::Level;
use crate::time::Millis;
use crate::tokens::TokenCounter;
use facts::Voice;
use sentence::Kind;
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

/// A speaker's name is cut here.
const MAX_SPEAKER_CHARS: usize = 40;

/// Text that stands for one chunk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// A few sentences.
    pub text: String,
    /// Keyphrases.
    pub themes: Vec<String>,
    /// Sentences worth keeping by themselves.
    pub key_facts: Vec<String>,
}

/// What a summarizer reads of a turn.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// `user`, `assistant`, …
    pub role: &'a str,
    /// Who spoke, where known.
    pub name: Option<&'a str>,
    /// The searchable text.
    pub text: &'a str,
    /// When.
    pub at: Millis,
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
    let mut sentences = if voice == Voice::Machine && text.contains('\n') {
        vec![sentence::dump("output", text.lines().count())]
    } else {
        sentence::sentences(text)
    };
    if sentences.is_empty() && text.contains(char::is_alphanumeric) {
        sentences.push(sentence::dump("text", text.lines().count()));
    }
    for (index, sentence) in sentences.into_iter().enumerate() {
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
    for sentence in sentence::sentences(said) {
        let kind = if is_dump(&sentence.text) { Kind::Dump } else { sentence.kind };
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

/// Splits `Ann: I moved.`; a line without a speaker has an empty one.
pub(crate) fn split_speaker(line: &str) -> (&str, &str) {
    match line.split_once(": ") {
        Some((speaker, said))
            if speaker.chars().count() <= MAX_SPEAKER_CHARS
                && !speaker.contains(['.', '!', '?', ',', '。', '[']) =>
        {
            (speaker, said)
        }
        _ => ("", line),
    }
}

/// The name, else the role, in a form that [`split_speaker`] finds again.
pub(crate) fn speaker_of<'a>(said: &Said<'a>) -> Cow<'a, str> {
    let given = said.name.filter(|name| !name.trim().is_empty()).unwrap_or(said.role);
    let plain = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '_' | '-' | '\'');
    if given.len() <= MAX_SPEAKER_CHARS && given.trim() == given && given.chars().all(plain) {
        return Cow::Borrowed(given);
    }
    let marks = [':', '.', '!', '?', ',', '。', '['];
    let cleaned: String = sentence::one_line(given)
        .chars()
        .map(|c| if marks.contains(&c) { ' ' } else { c })
        .take(MAX_SPEAKER_CHARS)
        .collect();
    Cow::Owned(sentence::one_line(&cleaned))
}

pub(crate) fn voice_of(said: &Said<'_>) -> Voice {
    match said.role {
        "tool" | "function" | "system" | "developer" => Voice::Machine,
        "assistant" | "model" if said.name.is_none() => Voice::Model,
        _ => Voice::Person,
    }
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
    let spoken = |c: &&Candidate<'_>| c.kind != Kind::Dump && c.voice != Voice::Machine;
    candidates.iter().filter(spoken).for_each(|candidate| themes.read(&candidate.sentence));
    themes.name()
}
