//! What a compaction must leave as it is.

use super::Message;

/// Places of messages in a view that stay byte for byte, each in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Floor {
    /// The system prompt: turns of the role `system` or `developer` before any other.
    pub system: Vec<usize>,
    /// Pinned turns, the last request of a person, and the open group of tool calls:
    /// calls at the end that no answer in words follows, with all their results. No
    /// call without its results that are there, no result without its call.
    pub kept: Vec<usize>,
}

/// The floor of a view.
pub fn floor(messages: &[Message]) -> Floor {
    let _ = messages;
    todo!()
}
