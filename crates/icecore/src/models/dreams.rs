//! Dreams by models: each of the chain as a [`Distiller`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use icecore_domain::chat::ChatModel;
use icecore_domain::dream::DistilPrompt;
use icecore_domain::ids::Scope;

use super::FREE_PART;
use super::ask::Ask;
use super::chain::{Prompt, whole_lines};
use super::distiller::{Distiller, DistillerError};
use crate::base::Purpose;
use crate::error::Result;
use crate::models::ModelCalls;

impl ModelCalls {
    /// The models that dreams of a memory ask, in order, but for those that are left
    /// alone at present.
    pub(crate) fn dream_models(&self, scope: &Scope, epoch: u64) -> Vec<Arc<dyn Distiller>> {
        let models = &self.models.dreams.0;
        let up = models
            .iter()
            .filter(|model| self.asking.pauses.of(model.as_ref(), self.now()).is_none());
        let dreamer = |model: &Arc<dyn ChatModel>| -> Arc<dyn Distiller> {
            let (memory, scope, model) = (self.clone(), scope.clone(), Arc::clone(model));
            Arc::new(Dreamer { memory, scope, epoch, model })
        };
        up.map(dreamer).collect()
    }
}

/// A model that distils for one memory.
struct Dreamer {
    memory: ModelCalls,
    scope: Scope,
    epoch: u64,
    model: Arc<dyn ChatModel>,
}

impl Dreamer {
    async fn answer(&self, prompt: &DistilPrompt) -> Result<String> {
        let prompt = Prompt {
            instructions: prompt.instructions.clone(),
            data: prompt.sources.clone(),
            max_tokens: prompt.max_tokens,
        };
        let request = self.memory.prompted(&self.scope, prompt).await?;
        let ask = Ask {
            scope: &self.scope,
            session: None,
            epoch: self.epoch,
            purpose: Purpose::Dream,
            model: &self.model,
            request: &request,
        };
        let answered = whole_lines(self.memory.ask(&ask).await?);
        // Whatever of it holds, it is what the model has to say: a dream that is dreamt
        // again comes to the same.
        match answered.text.as_str().trim().is_empty() {
            true => self.memory.note_useless(&ask, &answered),
            false => self.memory.keep_answer(&ask, &answered).await?,
        }
        Ok(answered.text.into_string())
    }
}

impl Distiller for Dreamer {
    fn name(&self) -> &str {
        &self.model.profile().name
    }

    fn identity(&self) -> String {
        let profile = self.model.profile();
        format!("{} {}", profile.name, hex::encode(profile.identity))
    }

    fn window_tokens(&self) -> u64 {
        let window = self.model.profile().window;
        window - window / FREE_PART
    }

    fn reply<'a>(
        &'a self,
        prompt: &'a DistilPrompt,
    ) -> Pin<Box<dyn Future<Output = std::result::Result<String, DistillerError>> + Send + 'a>>
    {
        Box::pin(async move {
            let answer = self.answer(prompt).await;
            answer.map_err(|error| {
                self.memory.counters.fallback();
                DistillerError(error.to_string())
            })
        })
    }
}
