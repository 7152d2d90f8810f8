//! How much room a compaction has, and what it leaves standing.

use std::collections::BTreeSet;

use super::{MESSAGE_TOKENS, Message, floor_after, request_tokens};

/// What a model's window holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionWindow {
    /// Tokens of request and answer together.
    pub window: u64,
    /// Tokens of it that are reserved for the answer.
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
    pub messages: &'a [Message],
    /// How many of them, the first, are the system prompt.
    pub system: usize,
    /// Tokens of the handoff that it begins with, 0 without.
    pub handoff_tokens: u64,
    /// Tokens of a request beside the messages: tools, and a system prompt that is in no turn.
    pub beside_tokens: u64,
    pub window: SessionWindow,
    /// How much more tokens the provider counts than we do, in thousandths: 1,000 is as many.
    pub provider_permille: u64,
    pub most_handoff_tokens: u64,
    /// The share of the window for instructions that were detected, in percent.
    pub instructions_percent: u64,
    pub effort: Effort,
}

/// What a compaction does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionPlan {
    /// Places of the system prompt.
    pub system: Vec<usize>,
    /// Places of what stays after the handoff; the first is the request that asked for
    /// all this, unless something pinned is older. Beside the floor this may be what
    /// stands behind the last request, the answer to it, or results that no model has seen,
    /// where there is room.
    pub kept: Vec<usize>,
    /// Places of the messages that the handoff replaces.
    pub distilled: Vec<usize>,
    /// Where the last request of a person stands; among `kept`.
    pub request: Option<usize>,
    /// Where it was answered in words, if it was; among `kept` or `distilled`.
    pub answer: Option<usize>,
    /// Tokens of the floor, as a request.
    pub floor_tokens: u64,
    /// The view may have so many tokens afterwards, as a request.
    pub target_tokens: u64,
    /// The text of the handoff's message may have so many tokens. With 0, or fewer than
    /// any text has, the handoff has no text and the view no message for it: it is
    /// exactly what is kept.
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
    pub window: u64,
    pub reserve: u64,
}

/// A view is not pressed so far that less than this is left for its handoff, where half
/// of the window leaves room for it.
pub const LEAST_HANDOFF_TOKENS: u64 = 64;

/// What points to recall in a window that could keep nothing else has at most so many.
pub const FRESH_TOKENS: u64 = 96;

/// Of a handoff, so many hundredths may be instructions that were detected.
pub const INSTRUCTIONS_PERCENT: u64 = 30;

/// A small handoff may have so many tokens of them all the same.
pub const LEAST_INSTRUCTION_TOKENS: u64 = 256;

/// Of what is left above the floor, so many hundredths may be kept as messages.
const KEPT_PERCENT: u64 = 50;

/// Plans a compaction. After it the view has at most max(half of the trigger, floor and
/// a tenth), and at most half of what it has now where that is less and leaves
/// [`LEAST_HANDOFF_TOKENS`].
pub fn plan(request: &PlanRequest<'_>) -> Result<CompactionPlan, ExceedsWindow> {
    let measure = Measure::new(request);
    let floor = floor_after(request.messages, request.system);
    let mut kept = floor.kept;
    let floor_tokens = measure.of(floor.system.iter().chain(&kept));
    let SessionWindow { window, reserve } = request.window;
    if floor_tokens.saturating_add(reserve) > window {
        return Err(ExceedsWindow { floor: floor_tokens, window, reserve });
    }
    let target_tokens = target(request, &measure, floor_tokens);
    if request.effort == Effort::First {
        let most = floor_tokens
            + target_tokens.saturating_sub(floor_tokens).saturating_mul(KEPT_PERCENT) / 100;
        for more in [&floor.asked, floor.answer.as_slice(), &floor.unread] {
            let mut longer: Vec<usize> = kept.iter().chain(more).copied().collect();
            longer.sort_unstable();
            longer.dedup();
            if measure.of(floor.system.iter().chain(&longer)) <= most {
                kept = longer;
            }
        }
    }
    let room =
        measure.own(target_tokens).saturating_sub(measure.plain(floor.system.iter().chain(&kept)));
    let handoff_tokens = room.saturating_sub(MESSAGE_TOKENS).min(request.most_handoff_tokens);
    let instructions = u128::from(window) * u128::from(request.instructions_percent) / 100;
    let stays: BTreeSet<usize> = floor.system.iter().chain(&kept).copied().collect();
    Ok(CompactionPlan {
        distilled: (0..request.messages.len()).filter(|at| !stays.contains(at)).collect(),
        system: floor.system,
        kept,
        request: floor.request,
        answer: floor.answer,
        floor_tokens,
        target_tokens,
        handoff_tokens,
        instruction_tokens: u64::try_from(instructions).unwrap_or(u64::MAX),
    }
    .within(handoff_tokens))
}

impl CompactionPlan {
    /// The same with at most so many tokens for the handoff, and of these no more than a
    /// share for instructions.
    #[must_use]
    pub fn within(mut self, tokens: u64) -> Self {
        self.handoff_tokens = self.handoff_tokens.min(tokens);
        let share = self.handoff_tokens.saturating_mul(INSTRUCTIONS_PERCENT) / 100;
        let most = share.max(LEAST_INSTRUCTION_TOKENS).min(self.handoff_tokens);
        self.instruction_tokens = self.instruction_tokens.min(most);
        self
    }
}

/// What the view may have afterwards, as a request: never less than the floor, and never
/// more than the trigger.
fn target(request: &PlanRequest<'_>, measure: &Measure<'_>, floor: u64) -> u64 {
    let trigger = request.window.trigger();
    let now = measure.now(request.handoff_tokens);
    let parts = if request.effort == Effort::First { 2 } else { 4 };
    let with_text = |tokens: u64| {
        let plain =
            measure.own_at_least(floor).saturating_add(MESSAGE_TOKENS).saturating_add(tokens);
        measure.scaled(plain)
    };
    let least = with_text(LEAST_HANDOFF_TOKENS).min(trigger / parts).min(now);
    let above = floor.saturating_add(floor / 10).min(trigger);
    let target = (trigger.min(now) / parts).max(above).max(least);
    match request.effort {
        Effort::Fresh => target.min(with_text(FRESH_TOKENS)),
        _ => target,
    }
}

/// Tokens of messages as a request, as the provider counts.
struct Measure<'a> {
    messages: &'a [Message],
    beside: u64,
    permille: u64,
}

impl<'a> Measure<'a> {
    fn new(request: &PlanRequest<'a>) -> Self {
        // A provider that counts nothing has counted nothing.
        let permille =
            if request.provider_permille == 0 { 1_000 } else { request.provider_permille };
        Self { messages: request.messages, beside: request.beside_tokens, permille }
    }

    /// As we count.
    fn plain<'b>(&self, places: impl Iterator<Item = &'b usize>) -> u64 {
        let sum = |(count, tokens): (u64, u64), at: &usize| {
            (count + 1, tokens.saturating_add(self.messages[*at].tokens))
        };
        let (count, tokens) = places.fold((0, 0), sum);
        request_tokens(count, tokens).saturating_add(self.beside)
    }

    fn of<'b>(&self, places: impl Iterator<Item = &'b usize>) -> u64 {
        self.scaled(self.plain(places))
    }

    /// The whole view, with a handoff of so many tokens.
    fn now(&self, handoff: u64) -> u64 {
        let all: Vec<usize> = (0..self.messages.len()).collect();
        let handoff = if handoff == 0 { 0 } else { request_tokens(1, handoff) };
        self.scaled(self.plain(all.iter()).saturating_add(handoff))
    }

    fn scaled(&self, tokens: u64) -> u64 {
        let scaled = (u128::from(tokens) * u128::from(self.permille)).div_ceil(1_000);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// The most of our tokens that are at most so many of the provider's.
    fn own(&self, tokens: u64) -> u64 {
        let own = u128::from(tokens) * 1_000 / u128::from(self.permille);
        u64::try_from(own).unwrap_or(u64::MAX)
    }

    /// At least so many of the provider's tokens, in ours.
    fn own_at_least(&self, tokens: u64) -> u64 {
        let own = (u128::from(tokens) * 1_000).div_ceil(u128::from(self.permille));
        u64::try_from(own).unwrap_or(u64::MAX)
    }
}
