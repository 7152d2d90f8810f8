//! Summaries by models.
//!
//! Every chunk has a summary that was made without one. Where models are set up they are
//! asked for a better one, some chunks at a time; what they do not answer usably stays
//! as it was made. A change of the model changes nothing that is there: what was
//! summarized stays so until it is derived anew (`reindex`), and then answers that are
//! kept cost nothing.

use std::sync::Arc;

use icecore_domain::chat::ChatProfile;
use icecore_domain::chunk::ChunkId;
use icecore_domain::redact::Redactor;
use icecore_domain::summary::model::SummaryTask;
use icecore_domain::summary::{RedactedSummary, Summary};
use tokio::task::JoinSet;

use super::FREE_PART;
use super::chain::{About, Prompt};
use crate::error::{MemoryError, Result, not_redacted};
use crate::models::ModelCalls;

/// Chunks that models are asked about at once, of one branch.
pub const SUMMARIES_AT_ONCE: usize = 4;

/// A summary as it was made: of which chunk, of which revision of it.
pub(crate) type Made = (ChunkId, u32, RedactedSummary);

impl ModelCalls {
    /// Whether models are asked for summaries.
    pub(crate) fn has_summary_models(&self) -> bool {
        !self.models.summaries.0.is_empty()
    }

    /// The summaries, each by a model if one has a better one. `tasks` are in the same
    /// order.
    pub(crate) async fn by_models(
        &self,
        about: About<'_>,
        redactor: &Redactor,
        mut made: Vec<Made>,
        tasks: Vec<SummaryTask>,
    ) -> Result<Vec<Made>> {
        let mut tasks = tasks.into_iter().enumerate();
        let mut asked: JoinSet<Result<(usize, Option<Summary>)>> = JoinSet::new();
        loop {
            while asked.len() < SUMMARIES_AT_ONCE
                && let Some((place, task)) = tasks.next()
            {
                let (memory, scope) = (self.clone(), about.scope.clone());
                let (session, epoch, purpose) = (about.session, about.epoch, about.purpose);
                let plain = made[place].2.parts().clone();
                asked.spawn(async move {
                    let about = About { scope: &scope, session, epoch, purpose };
                    Ok((place, memory.by_model(about, task, plain).await?))
                });
            }
            let Some(done) = asked.join_next().await else { return Ok(made) };
            let (place, better) = done.map_err(|e| MemoryError::Internal(e.to_string()))??;
            if let Some(better) = better {
                made[place].2 = redactor.summary(better).map_err(not_redacted)?;
            }
        }
    }

    async fn by_model(
        &self,
        about: About<'_>,
        task: SummaryTask,
        plain: Summary,
    ) -> Result<Option<Summary>> {
        let counter = Arc::clone(&self.counter);
        let prompt = |window: u64| {
            let prompt = task.prompt(window, counter.as_ref())?;
            let (instructions, data) = (prompt.instructions, prompt.said);
            Some(Prompt { instructions, data, max_tokens: prompt.max_tokens })
        };
        let read = |reply: &str| task.read_reply(reply, &plain, counter.as_ref());
        let chain = &self.models.summaries;
        let within = |profile: &ChatProfile| prompt(profile.window - profile.window / FREE_PART);
        self.ask_chain(chain, about, within, read).await
    }
}
