//! Who says something, and whether a person does.

use std::borrow::Cow;

use super::sentences::one_line;
use crate::time::Millis;

/// A speaker's name is cut here.
const MAX_SPEAKER_CHARS: usize = 40;

/// What a summarizer reads of a turn.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// `user`, `assistant`, …
    pub role: &'a str,
    /// Who spoke, where known.
    pub name: Option<&'a str>,
    pub text: &'a str,
    pub at: Millis,
}

/// Whether a speaker talks of themselves: a model that answers does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Voice {
    Person,
    /// An assistant without a name.
    Model,
    /// A tool, a system prompt.
    Machine,
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
    let cleaned: String = one_line(given)
        .chars()
        .map(|c| if marks.contains(&c) { ' ' } else { c })
        .take(MAX_SPEAKER_CHARS)
        .collect();
    Cow::Owned(one_line(&cleaned))
}

pub(crate) fn voice_of(said: &Said<'_>) -> Voice {
    match said.role {
        "tool" | "function" | "system" | "developer" => Voice::Machine,
        "assistant" | "model" if said.name.is_none() => Voice::Model,
        _ => Voice::Person,
    }
}
