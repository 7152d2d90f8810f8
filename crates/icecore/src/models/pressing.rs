//! Entries pressed by models.

use std::sync::Arc;

use icecore_domain::entries::compact::model::{PressPrompt, Pressing};

use super::chain::{About, Prompt};
use crate::error::{Result, off_thread};
use crate::models::ModelCalls;

impl ModelCalls {
    /// What models make of what is to be pressed; nothing if none is asked or none
    /// answers. A part that none answers is pressed without.
    pub(crate) async fn pressed_by_models(
        &self,
        about: About<'_>,
        pressing: Pressing,
    ) -> Result<Option<String>> {
        let chain = &self.models.consolidation;
        let windows = chain.0.iter().map(|model| model.profile().window);
        let Some(window) = windows.min() else { return Ok(None) };
        let counter = Arc::clone(&self.counter);
        let parts = off_thread(move || pressing.parts(window, counter.as_ref())).await?;
        let mut texts = Vec::new();
        let mut is_of_model = false;
        for part in parts.unwrap_or_default() {
            let prompt = |_: &icecore_domain::chat::ChatProfile| {
                let PressPrompt { instructions, notes, max_tokens } = part.prompt();
                let max_tokens = max_tokens.min(window / 4);
                Some(Prompt { instructions, data: notes, max_tokens })
            };
            let pressed =
                self.ask_chain(chain, about, prompt, |reply| part.read_reply(reply)).await?;
            is_of_model |= pressed.is_some();
            texts.push(match pressed {
                Some(text) => text,
                None => off_thread(move || part.extracted()).await?,
            });
        }
        texts.retain(|text| !text.is_empty());
        Ok(is_of_model.then(|| texts.join("\n")))
    }
}
