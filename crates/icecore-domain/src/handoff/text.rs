//! The handoff as a document.

use crate::tokens::TokenCounter;

/// How the text of a handoff begins. No person writes this, and what quotes it is
/// changed, so that nothing else is taken for a handoff.
pub const HANDOFF_MARK: &str = "[icecore handoff";

/// What a line of a handoff is about, in the order in which they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandoffSection {
    /// What the person wants in the end.
    Goal,
    /// What has been done and how things stand.
    State,
    /// What was decided.
    Decisions,
    /// Constraints and standing instructions, word for word.
    Instructions,
    /// People and things.
    People,
    /// Files and other artefacts.
    Files,
    /// What is still to do.
    Tasks,
    /// Facts word for word: numbers, names, dates.
    Facts,
    /// What was said, word for word, that bears on the request that follows.
    Recalled,
}

/// A line of a handoff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffLine {
    /// Where it stands.
    pub section: HandoffSection,
    /// What it says; one line.
    pub text: String,
}

/// A handoff.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Handoff {
    /// By section, in order.
    pub lines: Vec<HandoffLine>,
}

/// The text of a handoff, with its mark: the `number`th of its branch, for so many turns.
pub fn render(handoff: &Handoff, number: u64, turns: u64) -> String {
    let _ = (handoff, number, turns);
    todo!()
}

/// Reads a text as [`render`] writes it, perhaps changed by a person. Lines before the
/// first heading that is known stand under [`HandoffSection::State`].
pub fn parse(text: &str) -> Handoff {
    let _ = text;
    todo!()
}

/// What stands in a window that could keep nothing: that all can be found by recall.
/// At most so many tokens.
pub fn fresh_window(number: u64, turns: u64, tokens: u64, counter: &dyn TokenCounter) -> String {
    let _ = (number, turns, tokens, counter);
    todo!()
}
