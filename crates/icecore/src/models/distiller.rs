//! What a program gives to distil with, instead of models of ours.

use std::pin::Pin;

use icecore_domain::dream::DistilPrompt;

/// A model that distils.
pub trait Distiller: Send + Sync {
    /// Names it in archives. Another name means other replies.
    fn name(&self) -> &str;

    /// All that decides its replies, where that is more than its name.
    fn identity(&self) -> String {
        self.name().to_owned()
    }

    /// Tokens that a prompt and its reply may have together.
    fn window_tokens(&self) -> u64 {
        16_000
    }

    /// The provider's own count of a text's tokens, where it has one. A dream stays
    /// within its budget as the memory counts, and within a tenth of it as this does.
    fn count(&self, text: &str) -> Option<u64> {
        let _ = text;
        None
    }

    /// Answers a prompt.
    fn reply<'a>(
        &'a self,
        prompt: &'a DistilPrompt,
    ) -> Pin<Box<dyn Future<Output = Result<String, DistillerError>> + Send + 'a>>;
}

/// Why a model did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model did not answer: {0}")]
pub struct DistillerError(pub String);
