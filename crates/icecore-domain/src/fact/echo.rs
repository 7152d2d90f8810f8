//! What recall itself put into a prompt, which must not be learned again.
//!
//! A host may paste a window into a turn. It is known by its form: lines with a
//! date alone, each followed by lines after a speaker's name, or by our tags
//! around it. And a turn may repeat a fact word by word as it is kept.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::Fact;
use crate::text::normalise;

/// A host that pastes a context puts this before it.
pub const CONTEXT_OPEN: &str = "<icecore-context>";
/// And this after it.
pub const CONTEXT_CLOSE: &str = "</icecore-context>";

/// Texts of facts that are known.
#[derive(Debug, Clone, Default)]
pub struct KnownTexts(BTreeSet<String>);

impl KnownTexts {
    /// Adds the text of a fact.
    pub fn insert(&mut self, text: &str) {
        self.0.insert(normalise(text));
    }

    /// Whether `text` says one of them word by word.
    pub fn holds(&self, text: &str) -> bool {
        self.0.contains(&normalise(text))
    }

    /// Whether a fact only repeats one that is known: in the words of its
    /// sentence, not merely in what it says, for a person may say a thing twice.
    pub fn is_echo(&self, fact: &Fact) -> bool {
        self.holds(&fact.quote)
    }
}

impl<'a> FromIterator<&'a str> for KnownTexts {
    fn from_iter<T: IntoIterator<Item = &'a str>>(texts: T) -> Self {
        let mut known = KnownTexts::default();
        texts.into_iter().for_each(|text| known.insert(text));
        known
    }
}

/// `text` without the context in it: blanks stand in its place, so that what is
/// left keeps its offsets.
pub(super) fn without_context(text: &str) -> Cow<'_, str> {
    if !text.contains(CONTEXT_OPEN) && !text.lines().any(is_date_line) {
        return Cow::Borrowed(text);
    }
    let mut own = String::with_capacity(text.len());
    let mut state = Reading::Own;
    for line in text.split_inclusive('\n') {
        let begins_tagged = line.contains(CONTEXT_OPEN);
        state = match state {
            _ if begins_tagged => Reading::Tagged,
            Reading::Own | Reading::Gap if is_date_line(line) => Reading::Window,
            Reading::Window if line.trim().is_empty() => Reading::Gap,
            Reading::Gap if line.trim().is_empty() => Reading::Gap,
            Reading::Gap if is_speaker_line(line) => Reading::Window,
            Reading::Gap => Reading::Own,
            state => state,
        };
        match state {
            Reading::Own => own.push_str(line),
            _ => own.extend(line.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' })),
        }
        if state == Reading::Tagged && line.contains(CONTEXT_CLOSE) {
            state = Reading::Own;
        }
    }
    Cow::Owned(own)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Somebody's own words.
    Own,
    /// Between our tags.
    Tagged,
    /// After a line with a date.
    Window,
    /// After an empty line there: a turn in a window may hold some.
    Gap,
}

/// `[2024-05-01]`.
fn is_date_line(line: &str) -> bool {
    let inner = line.trim().strip_prefix('[').and_then(|line| line.strip_suffix(']'));
    inner.is_some_and(|date| {
        date.len() == 10
            && date.bytes().zip(b"0000-00-00").all(|(byte, shape)| match shape {
                b'0' => byte.is_ascii_digit(),
                _ => byte == b'-',
            })
    })
}

/// `Ana: …`.
fn is_speaker_line(line: &str) -> bool {
    const MAX_LABEL_CHARS: usize = 60;
    line.split_once(": ").is_some_and(|(label, _)| {
        label.chars().count() <= MAX_LABEL_CHARS && !label.contains(['.', '!', '?', ','])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_tagged_contexts_are_blanked() {
        let check = |text: &str, expected: &[&str]| {
            let own = without_context(text);
            assert_eq!(own.len(), text.len());
            let lines: Vec<&str> = own.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
            assert_eq!(lines, expected, "{text:?}");
        };
        check("I live here.", &["I live here."]);
        check("[2024-05-01]\nAna: I live here.\nBo: é\n\nI asked you.", &["I asked you."]);
        check("[2024-05-01]\nAna: one\n\nBo: two\n[2024-05-02]\nAna: three\n", &[]);
        check(
            "Before.\n<icecore-context>\nI am\n\nAna\n</icecore-context>\nAfter.",
            &["Before.", "After."],
        );
        check("<icecore-context> never closed\nI live here.", &[]);
        check("[2024-05-01] is a date", &["[2024-05-01] is a date"]);
    }

    #[test]
    fn known_texts_are_found_whatever_their_case() {
        let known: KnownTexts = ["Ana lives in Lisbon."].into_iter().collect();
        assert!(known.holds("ana lives in lisbon"));
        assert!(!known.holds("Ana lives in Porto"));
    }
}
