//! Keeping what a client sent, and what it was answered.

use std::collections::BTreeSet;

use icecore_domain::identity::Link;
use icecore_domain::ids::{MAX_NAME_BYTES, Scope, TurnId};
use icecore_domain::turn::RawTurn;
use icecore_store::{Appended, LinkedTurn, Outcome, TurnPlace, TurnState, ViewUsage};

use super::{ClientMessage, Followed, ProviderCount};
use crate::error::{MemoryError, Result};
use crate::ingest::LinkedMessage;
use crate::sessions::Sessions;

/// The tag of a turn that stands for a message that was forgotten.
const FORGOTTEN_TAG: &str = "forgotten";

impl Sessions {
    pub(super) async fn kept_history(
        &self,
        scope: &Scope,
        followed: &mut Followed,
        messages: &[ClientMessage],
    ) -> Result<()> {
        followed.check(messages)?;
        let known = followed.known;
        let new = messages[known..].iter().zip(&followed.links[known..]);
        let forgotten = self.forgotten(scope, &followed.links, messages, known).await?;
        let linked = |(message, link): (&ClientMessage, &Link)| {
            let (turn, is_hollow) = match forgotten.contains(link) {
                true => (hollow(&message.turn), true),
                false => (kept(message.turn.clone()), false),
            };
            LinkedMessage { turn, link: *link, is_answer: false, is_hollow }
        };
        let turns: Vec<LinkedMessage> = new.map(linked).collect();
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

    /// Which of the messages that are new here are history that was sent before and has
    /// been forgotten wherever it was: those up to the last reply. What comes behind that
    /// are new words, and may be the same as others'.
    async fn forgotten(
        &self,
        scope: &Scope,
        links: &[Link],
        messages: &[ClientMessage],
        known: usize,
    ) -> Result<BTreeSet<Link>> {
        let end = messages.iter().rposition(|message| message.is_reply).map_or(0, |at| at + 1);
        if end <= known {
            return Ok(BTreeSet::new());
        }
        let found = self.store.linked(scope, &links[known..end], None).await?;
        let is_gone = |turn: &LinkedTurn| turn.is_hollow || turn.place.state == TurnState::Erased;
        let (gone, there): (Vec<_>, Vec<_>) = found.into_iter().partition(is_gone);
        let there: BTreeSet<Link> = there.iter().map(|turn| turn.link).collect();
        Ok(gone.iter().map(|turn| turn.link).filter(|link| !there.contains(link)).collect())
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
        let turn = kept(reply.turn);
        let turn = [LinkedMessage { turn, link, is_answer: true, is_hollow: false }];
        // A history that is not kept has no turn that an answer could follow.
        let is_kept = followed.known == followed.links.len();
        let after = if is_kept { followed.last_link() } else { Some(last) };
        let appended = self.append_linked(scope, &followed.session, after, &turn).await?;
        if let (Some(count), Some(place)) = (count, last_place(&appended))
            && let Some(model) = self.model_name(scope, &count.model).await?
        {
            let count = ProviderCount { model, ..count };
            self.keep_count(scope, followed, place, count).await;
        }
        Ok(())
    }

    /// A model's name as it is kept: a client may write anything there. One that is too
    /// long is none.
    pub(super) async fn model_name(&self, scope: &Scope, model: &str) -> Result<Option<String>> {
        if model.len() > MAX_NAME_BYTES {
            return Ok(None);
        }
        let redactor = self.redactor(scope.tenant()).await?.redactor;
        Ok(Some(redactor.name(model).into_string()))
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
        if let Err(error) = self.store.put_usage(scope, usage).await {
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

/// What stands for a message that was forgotten, so that the path has as many turns as the
/// history has messages.
fn hollow(turn: &RawTurn) -> RawTurn {
    RawTurn { tags: Some(vec![FORGOTTEN_TAG.to_owned()]), ..RawTurn::new(&turn.role, "") }
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
