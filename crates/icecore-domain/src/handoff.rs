//! Session compaction: what a model still sees of a history that outgrew its window.
//!
//! The display view of a branch is every turn. The API view is the system prompt, the
//! last handoff, the turns that the handoff left standing, and what came after. A
//! compaction turns one API view into a shorter one: [`floor`] says what must stay byte
//! for byte, [`plan`] how much room is left for the handoff, and the handoff is written
//! by a model ([`prompt`], [`reply`]) or by [`extract`], from what is there.

mod extract;
mod floor;
#[cfg(test)]
mod handoff_tests;
mod message;
mod plan;
mod prompt;
mod reply;
mod text;
#[cfg(any(test, feature = "testing"))]
pub mod transcripts;

pub use extract::{HandoffSource, Passage, extract, with_instructions};
pub use floor::{Floor, floor, floor_after, leading_system, unpaired, unpaired_turns};
pub use message::{
    MEDIA_TOKENS, MESSAGE_TOKENS, Message, holds_result, is_model, is_pinned, is_request,
    message_tokens, request_tokens, voices,
};
pub use plan::{
    CompactionPlan, Effort, ExceedsWindow, FRESH_TOKENS, INSTRUCTIONS_PERCENT,
    LEAST_HANDOFF_TOKENS, LEAST_INSTRUCTION_TOKENS, PlanRequest, SessionWindow, plan,
};
pub use prompt::{HandoffPrompt, INSTRUCTION};
pub use reply::{BadReply, read_reply};
pub use text::{
    HANDOFF_MARK, Handoff, HandoffLine, HandoffSection, RECALL_MARK, fresh_window, is_marked,
    parse, render, render_recall,
};

/// A turn with this tag survives every compaction byte for byte.
pub const PINNED_TAG: &str = "pinned";
