//! A turn as a message of a request.

use crate::redact::RedactedTurn;
use crate::tokens::TokenCounter;
use crate::turn::RawTurn;

/// What a message costs in a request beside its text: role, separators.
pub const MESSAGE_TOKENS: u64 = 4;

/// A turn of an API view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The turn.
    pub turn: RedactedTurn,
    /// Its tokens, as [`message_tokens`] counts.
    pub tokens: u64,
}

impl Message {
    /// A turn, counted.
    pub fn new(turn: RedactedTurn, counter: &dyn TokenCounter) -> Self {
        let tokens = message_tokens(turn.fields(), counter);
        Self { turn, tokens }
    }

    /// Ids of the tool calls that it makes: of `toolCalls`, or of `tool_use` parts.
    pub fn calls(&self) -> Vec<String> {
        todo!()
    }

    /// Ids of the tool calls that it answers: `toolCallId`, or `tool_result` parts.
    pub fn answers(&self) -> Vec<String> {
        todo!()
    }

    /// Whether a person wrote it: the role `user`, and not only results of tools.
    pub fn is_request(&self) -> bool {
        todo!()
    }
}

/// Whether a turn is pinned.
pub fn is_pinned(turn: &RawTurn) -> bool {
    turn.tags.iter().flatten().any(|tag| tag == super::PINNED_TAG)
}

/// Tokens of a turn in a view: its text and its tool calls. Media count by a rule of
/// thumb, and never as the bytes they are written in.
pub fn message_tokens(turn: &RawTurn, counter: &dyn TokenCounter) -> u64 {
    let _ = (turn, counter);
    todo!()
}

/// Tokens of so many messages, which have so many tokens, as a request.
pub fn request_tokens(messages: u64, tokens: u64) -> u64 {
    tokens + messages * MESSAGE_TOKENS
}
