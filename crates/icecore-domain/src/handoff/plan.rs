//! How much room a compaction has, and what it leaves standing.

use super::Message;

/// What a model's window holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionWindow {
    /// Tokens of request and answer together.
    pub window: u64,
    /// Tokens of it that are kept free for the answer.
    pub reserve: u64,
}

impl SessionWindow {
    /// A request of more tokens does not fit.
    pub fn trigger(&self) -> u64 {
        self.window.saturating_sub(self.reserve)
    }
}

/// How hard a compaction tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// To at most half.
    First,
    /// Half of that: the first was not enough.
    Escalated,
    /// The floor, and a pointer to recall.
    Fresh,
}

/// What is to be planned.
#[derive(Debug, Clone, Copy)]
pub struct PlanRequest<'a> {
    /// The view without its handoff.
    pub messages: &'a [Message],
    /// Tokens of the handoff that it begins with, 0 without.
    pub handoff_tokens: u64,
    /// Tokens of a request beside the messages: tools, and a system prompt that is in no turn.
    pub beside_tokens: u64,
    /// The window.
    pub window: SessionWindow,
    /// How much more tokens the provider counts than we do, in thousandths: 1,000 is as many.
    pub provider_permille: u64,
    /// The largest handoff.
    pub most_handoff_tokens: u64,
    /// The share of the window for instructions that were detected, in percent.
    pub instructions_percent: u64,
    /// How hard to try.
    pub effort: Effort,
}

/// What a compaction does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionPlan {
    /// Places of the system prompt.
    pub system: Vec<usize>,
    /// Places of what stays after the handoff; the first is the request that asked for
    /// all this, unless something pinned is older.
    pub kept: Vec<usize>,
    /// Places of what the handoff stands for.
    pub distilled: Vec<usize>,
    /// Tokens of the floor, as a request.
    pub floor_tokens: u64,
    /// The view may have so many tokens afterwards, as a request.
    pub target_tokens: u64,
    /// The handoff's message may have so many tokens.
    pub handoff_tokens: u64,
    /// Of these, so many for instructions that were detected.
    pub instruction_tokens: u64,
}

/// The floor does not fit the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "request_exceeds_window: system prompt, tools, pinned turns, the last request and open tool calls have {floor} tokens; with {reserve} kept free for the answer that is more than the window of {window}"
)]
pub struct ExceedsWindow {
    /// Tokens of the floor.
    pub floor: u64,
    /// The window.
    pub window: u64,
    /// What is kept free.
    pub reserve: u64,
}

/// Plans a compaction. After it the view has at most max(half of the trigger, floor and
/// a tenth), and at most half of what it has now where that is less.
pub fn plan(request: &PlanRequest<'_>) -> Result<CompactionPlan, ExceedsWindow> {
    let _ = request;
    todo!()
}
