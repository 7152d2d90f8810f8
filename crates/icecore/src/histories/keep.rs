//! Keeping what a client sent, and what it was answered.

use icecore_domain::identity::Link;
use icecore_domain::ids::{Scope, TurnId};
use icecore_domain::turn::RawTurn;
use icecore_store::{Appended, Outcome, TurnPlace, TurnState, ViewUsage};

use super::{ClientMessage, Followed, ProviderCount};
use crate::error::{MemoryError, Result};
use crate::memory::Memory;

impl Memory {
    pub(super) async fn kept_history(
        &self,
        scope: &Scope,
        followed: &mut Followed,
        messages: &[ClientMessage],
    ) -> Result<()> {
        followed.check(messages)?;
        let known = followed.known;
        let new = messages[known..].iter().zip(&followed.links[known..]);
        let turns: Vec<(RawTurn, Link)> =
            new.map(|(message, link)| (kept(message.turn.clone()), *link)).collect();
        if turns.is_empty() {
            return Ok(());
        }
        let after = followed.last_link();
        let appended = self.append_linked(scope, &followed.session, after, &turns).await;
        let appended = appended.map_err(|error| match error {
            MemoryError::Turn { index, source } => {
                MemoryError::Turn { index: index + known, source }
            }
            error => error,
        })?;
        (followed.place, followed.path) = (last_place(&appended), None);
        followed.known = messages.len();
        self.keep_recall(scope, followed).await;
        Ok(())
    }

    pub(super) async fn kept_reply(
        &self,
        scope: &Scope,
        followed: &Followed,
        reply: ClientMessage,
        count: Option<ProviderCount>,
    ) -> Result<()> {
        let key = self.identity_key(scope.tenant()).await?;
        let last = followed.links.last().copied().unwrap_or_else(|| key.first_link());
        let link = key.next_link(last, &reply.recognised_by);
        let turn = [(kept(reply.turn), link)];
        // A history that is not kept has no turn that an answer could follow.
        let is_kept = followed.known == followed.links.len();
        let after = if is_kept { followed.last_link() } else { Some(last) };
        let appended = self.append_linked(scope, &followed.session, after, &turn).await?;
        if let (Some(count), Some(place)) = (count, last_place(&appended)) {
            let model = self.model_name(scope, &count.model).await?;
            let count = ProviderCount { model, ..count };
            self.keep_count(scope, followed, place, count).await;
        }
        Ok(())
    }

    /// A model's name as it is kept: a client may write anything there.
    pub(super) async fn model_name(&self, scope: &Scope, model: &str) -> Result<String> {
        let redactor = self.redactor(scope.tenant()).await?.redactor;
        Ok(redactor.name(model).into_string())
    }

    /// Keeps what a provider counted for the request that a reply answers.
    async fn keep_count(
        &self,
        scope: &Scope,
        followed: &Followed,
        reply: TurnPlace,
        count: ProviderCount,
    ) {
        let usage = ViewUsage {
            session: reply.id.session,
            // The next request goes on from the reply, which may be a branch's first turn.
            branch: reply.branch,
            model: count.model,
            through: followed.place.map_or(reply.id.seq, |place| place.id.seq),
            handoff: followed.handoff.clone(),
            tokens: count.tokens,
            counted: count.counted,
        };
        // The answer is kept. A count that is not costs an estimate.
        if let Err(error) = self.inner.store.put_usage(scope, usage).await {
            tracing::warn!(%scope, %error, "what a provider counted could not be kept");
        }
    }
}

impl Followed {
    /// The link of the last message that the session holds.
    fn last_link(&self) -> Option<Link> {
        self.place.and_then(|_| self.links.get(self.known.checked_sub(1)?)).copied()
    }

    /// An error if these are not the messages that were followed.
    pub(super) fn check(&self, messages: &[ClientMessage]) -> Result<()> {
        match messages.len() == self.links.len() {
            true => Ok(()),
            false => Err(MemoryError::Internal("another history was followed".to_owned())),
        }
    }
}

/// A turn as it is kept: it is known by its link, and follows the message before it.
fn kept(turn: RawTurn) -> RawTurn {
    RawTurn { id: None, parent_ids: None, ..turn }
}

/// Where the last turn of an append is.
fn last_place(appended: &Appended) -> Option<TurnPlace> {
    let last = appended.turns.last()?;
    Some(TurnPlace {
        id: TurnId { session: appended.session, seq: last.seq },
        branch: last.branch,
        ordinal: last.ordinal,
        state: match last.outcome {
            Outcome::Forgotten => TurnState::Erased,
            Outcome::Added | Outcome::Known => TurnState::Present,
        },
    })
}
