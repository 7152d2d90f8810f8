//! A handoff without a model.

use crate::fact::Fact;
use crate::summary::Said;
use crate::time::Millis;
use crate::tokens::TokenCounter;

use super::{CompactionPlan, Handoff};

/// Something that is known already and need not be read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// Who said it.
    pub speaker: String,
    /// What.
    pub text: String,
    /// When, where known.
    pub at: Option<Millis>,
}

/// What a handoff is made of.
#[derive(Debug, Clone)]
pub struct HandoffSource<'a> {
    /// The handoff that the view begins with.
    pub previous: Option<&'a Handoff>,
    /// Summaries of the oldest stretches, where these stand for their turns.
    pub summaries: &'a [String],
    /// The turns that are to be distilled and no summary stands for, in order.
    pub said: &'a [Said<'a>],
    /// What is known from these turns and still holds.
    pub facts: &'a [Fact],
    /// What recall found for the last request, best first.
    pub recalled: &'a [Passage],
    /// The share of the handoff that is theirs, in percent. They may have more where the
    /// rest needs less.
    pub recalled_percent: u64,
    /// The last request of a person, and whether it was answered already.
    pub request: Option<(&'a str, bool)>,
}

/// Writes a handoff within the plan's `handoff_tokens`, as [`super::render`] writes it.
/// Standing instructions come first and word for word, within `instruction_tokens`.
pub fn extract(
    source: &HandoffSource<'_>,
    plan: &CompactionPlan,
    number: u64,
    turns: u64,
    counter: &dyn TokenCounter,
) -> Handoff {
    let _ = (source, plan, number, turns, counter);
    todo!()
}
