//! A question to a chain of models: the first whose answer holds is taken.

use icecore_domain::chat::{ChatProfile, ChatRequest, Finish};
use icecore_domain::ids::{Scope, SessionNo};
use icecore_domain::turn::RawTurn;

use super::ask::{Answered, Ask};
use super::{ModelChain, Purpose};
use crate::error::{MemoryError, Result};
use crate::memory::Memory;

/// A question before it is redacted.
pub(crate) struct Prompt {
    /// What to do.
    pub(crate) instructions: String,
    /// What about. Data, not instructions.
    pub(crate) data: String,
    /// Tokens that the answer may have.
    pub(crate) max_tokens: u64,
}

/// What a chain is asked about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    /// Whose texts.
    pub(crate) scope: &'a Scope,
    /// The one session, if it is one.
    pub(crate) session: Option<SessionNo>,
    /// The memory's epoch as it was before anything was read of them.
    pub(crate) epoch: u64,
    /// What for.
    pub(crate) purpose: Purpose,
}

impl Memory {
    /// Asks the models of a chain in order until `read` takes an answer, which is kept
    /// then. `prompt` makes the question for a model, or nothing if it is not worth
    /// asking that one. Nothing comes back if none has an answer that holds: then it is
    /// done without.
    pub(crate) async fn ask_chain<T>(
        &self,
        chain: &ModelChain,
        about: About<'_>,
        prompt: impl Fn(&ChatProfile) -> Option<Prompt>,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        for model in &chain.0 {
            let Some(prompt) = prompt(model.profile()) else { continue };
            let request = self.prompted(about.scope, prompt).await?;
            let About { scope, session, epoch, purpose } = about;
            let ask = Ask { scope, session, epoch, purpose, model, request: &request };
            let answered = match self.ask(&ask).await {
                Ok(answered) => whole_lines(answered),
                Err(error) => {
                    self.pass_over(about, &model.profile().name, error)?;
                    continue;
                }
            };
            match read(answered.text.as_str()) {
                Some(taken) => {
                    self.keep_answer(&ask, &answered).await?;
                    return Ok(Some(taken));
                }
                None => {
                    let (model, purpose) = (&model.profile().name, purpose.as_str());
                    tracing::info!(model, purpose, "an answer of a model was of no use");
                    self.note_useless(&ask, &answered);
                }
            }
        }
        if !chain.0.is_empty() {
            self.inner.counters.fallback();
        }
        Ok(None)
    }

    /// A question with what is secret in it hidden.
    pub(crate) async fn prompted(&self, scope: &Scope, prompt: Prompt) -> Result<ChatRequest> {
        let redactor = self.deriving_redactor(scope).await?.redactor;
        let Prompt { instructions, data, max_tokens } = prompt;
        let messages = crate::error::off_thread(move || {
            let messages = [RawTurn::new("system", instructions), RawTurn::new("user", data)];
            messages.map(|turn| redactor.turn(turn)).to_vec()
        })
        .await?;
        Ok(ChatRequest { messages, tools: None, max_tokens })
    }

    /// Goes on without a model's answer; an error of our own is one.
    pub(crate) fn pass_over(
        &self,
        about: About<'_>,
        model: &str,
        error: MemoryError,
    ) -> Result<()> {
        let purpose = about.purpose.as_str();
        match error {
            // A model that is left alone was told of when that began.
            MemoryError::Chat(error) => {
                tracing::debug!(model, purpose, error = %error, "a model did not answer");
                Ok(())
            }
            MemoryError::ModelBudget { .. } => {
                if self.inner.asking.is_first_refusal(about.scope.tenant(), self.today()) {
                    tracing::warn!(
                        tenant = about.scope.tenant().as_str(),
                        error = %error,
                        "what models were wanted for is done without them"
                    );
                }
                Ok(())
            }
            error => Err(error),
        }
    }
}

/// An answer that ran out of tokens ends with its last whole line.
pub(super) fn whole_lines(answered: Answered) -> Answered {
    if answered.reply.finish != Finish::Length {
        return answered;
    }
    Answered { text: answered.text.without_last_line(), ..answered }
}
