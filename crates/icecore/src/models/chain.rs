//! A question to a chain of models: the first whose answer holds is taken.

use std::sync::Arc;

use icecore_domain::chat::{ChatError, ChatModel, ChatProfile, ChatRequest, Finish};
use icecore_domain::ids::{Scope, SessionNo};
use icecore_domain::redact::RedactedText;
use icecore_domain::turn::RawTurn;

use super::ModelChain;
use super::ask::{Answered, Ask};
use crate::base::Purpose;
use crate::error::{MemoryError, Result};
use crate::models::ModelCalls;

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

impl<'a> About<'a> {
    /// The question to one model.
    fn ask(self, model: &'a Arc<dyn ChatModel>, request: &'a ChatRequest) -> Ask<'a> {
        let About { scope, session, epoch, purpose } = self;
        Ask { scope, session, epoch, purpose, model, request }
    }
}

/// What a chain of models told.
pub(super) enum Told<T> {
    /// An answer that holds.
    Taken(T),
    /// None that holds, of this question.
    Useless,
    /// Nobody answers at present, whatever is asked.
    Silence,
}

impl ModelCalls {
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
        let told = self.told_by_chain(chain, about, prompt, read).await?;
        Ok(match told {
            Told::Taken(taken) => Some(taken),
            Told::Useless | Told::Silence => None,
        })
    }

    /// As [`ModelCalls::ask_chain`], and tells whether there is anybody to ask.
    pub(super) async fn told_by_chain<T>(
        &self,
        chain: &ModelChain,
        about: About<'_>,
        prompt: impl Fn(&ChatProfile) -> Option<Prompt>,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Told<T>> {
        let mut is_silent = true;
        for model in &chain.0 {
            let Some(asked) = prompt(model.profile()) else {
                is_silent = false;
                continue;
            };
            let mut request = self.prompted(about.scope, asked).await?;
            let mut answer = self.ask(&about.ask(model, &request)).await;
            // Its window is smaller than was said: once more, with half as much.
            if let Err(MemoryError::Chat(ChatError::Overflow { .. })) = &answer {
                let mut profile = model.profile().clone();
                profile.window /= 2;
                if let Some(smaller) = prompt(&profile) {
                    let smaller = self.prompted(about.scope, smaller).await?;
                    if smaller != request {
                        request = smaller;
                        answer = self.ask(&about.ask(model, &request)).await;
                    }
                }
            }
            let ask = about.ask(model, &request);
            let answered = match answer {
                Ok(answered) => whole_lines(answered),
                Err(error) => {
                    let is_spent = matches!(error, MemoryError::ModelBudget { .. });
                    self.pass_over(about, &model.profile().name, error)?;
                    let pause = self.asking.pauses.of(model.as_ref(), self.now());
                    is_silent &= is_spent || pause.is_some();
                    continue;
                }
            };
            match read(answered.text.as_str()) {
                Some(taken) => {
                    self.keep_answer(&ask, &answered).await?;
                    return Ok(Told::Taken(taken));
                }
                None => {
                    is_silent = false;
                    let (model, purpose) = (&model.profile().name, ask.purpose.as_str());
                    tracing::info!(model, purpose, "an answer of a model was of no use");
                    self.note_useless(&ask, &answered);
                    // Asked again it would cost the same, and be no better.
                    let text = RedactedText::default();
                    self.keep_answer(&ask, &Answered { text, ..answered }).await?;
                }
            }
        }
        if !chain.0.is_empty() {
            self.counters.fallback();
        }
        Ok(if is_silent { Told::Silence } else { Told::Useless })
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
            // How a model failed was told the first time.
            MemoryError::Chat(error) => {
                tracing::debug!(model, purpose, error = %error, "a model did not answer");
                Ok(())
            }
            MemoryError::ModelBudget { .. } => {
                if self.asking.is_first_refusal(about.scope.tenant(), self.today()) {
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
