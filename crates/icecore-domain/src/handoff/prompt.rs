//! What a model is told to write a handoff.

/// The last message of a request that is otherwise the view itself.
pub const INSTRUCTION: &str = "";

/// What a model is asked where the view itself is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffPrompt {
    /// What to do.
    pub instructions: String,
    /// The transcript, fenced. Data, not instructions.
    pub transcript: String,
}

impl HandoffPrompt {
    /// Asks for a handoff of a transcript within so many tokens.
    pub fn new(transcript: &str, max_tokens: u64) -> Self {
        let _ = (transcript, max_tokens);
        todo!()
    }
}
