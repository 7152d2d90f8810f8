//! Summaries without a model: extractive, deterministic, within a token budget.

use crate::time::Millis;
use crate::tokens::TokenCounter;

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

/// Summarizes the turns of a micro within `budget_tokens`.
pub fn summarize_turns(
    _turns: &[Said<'_>],
    _budget_tokens: u32,
    _counter: &dyn TokenCounter,
) -> Summary {
    Summary::default()
}

/// Summarizes a mini or macro from its children's summaries within `budget_tokens`.
pub fn summarize_children(
    _children: &[&Summary],
    _budget_tokens: u32,
    _counter: &dyn TokenCounter,
) -> Summary {
    Summary::default()
}
