//! Memory that bears on a new request, put right before it.
//!
//! What was put there stays, byte for byte, as long as the message is sent: what a
//! provider has cached of a request must not change behind its back. It goes when
//! anything of the memory is forgotten, for it may tell of that.

use std::collections::BTreeSet;

use icecore_domain::handoff::{Passage, holds_result, is_request, render_recall};
use icecore_domain::ids::{Scope, TurnId};
use icecore_domain::redact::RedactedText;
use icecore_index::{DocKind, Mode};
use icecore_store::NewRecalled;

use super::path::HistoryPath;
use super::{ClientMessage, Followed};
use crate::error::Result;
use crate::knowledge::compaction::looked_at;
use crate::layers::own_words;
use crate::recall::search::{Hit, SearchRequest, matched_words};
use crate::sessions::Sessions;
use crate::sessions::handoffs::asked;

/// Things that are found for a request at most.
const FOUND: usize = 24;

/// A passage has at most so many tokens.
const PASSAGE_TOKENS: u32 = 160;

/// What memory puts before a message.
#[derive(Debug, Clone)]
pub(super) struct Recall {
    /// The message's place.
    pub(super) at: usize,
    pub(super) text: RedactedText,
    pub(super) tokens: u64,
}

/// One that is not kept yet, and with what it was made.
#[derive(Debug, Clone)]
pub(super) struct NewRecall {
    pub(super) recall: Recall,
    epoch: u64,
    secrets_seen: u64,
}

impl Sessions {
    /// What memory put before messages at these places, which the session holds.
    pub(super) async fn recalled_before(
        &self,
        scope: &Scope,
        followed: &Followed,
        messages: &[ClientMessage],
        places: impl Iterator<Item = usize>,
    ) -> Result<Vec<Recall>> {
        let Some(place) = followed.place else { return Ok(Vec::new()) };
        let is_asked = |at: &usize| *at < followed.known && messages[*at].turn.role == "user";
        let places: Vec<usize> = places.filter(is_asked).collect();
        let links: Vec<_> = places.iter().map(|at| followed.links[*at]).collect();
        let found = self.store.recalled(scope, place.id.session, &links).await?;
        let veil = match found.is_empty() {
            true => None,
            false => self.veil(scope).await?,
        };
        let recall = |(link, text): (_, RedactedText)| {
            let at = places.iter().copied().find(|at| followed.links[*at] == link)?;
            let text = veil.as_ref().map_or(text.clone(), |veil| veil.text(&text));
            let tokens = u64::from(self.counter.count(&text));
            Some(Recall { at, text, tokens })
        };
        Ok(found.into_iter().filter_map(recall).collect())
    }

    /// What memory puts before the last message, if that is a new request of a person. A
    /// request goes on without where nothing can be looked up.
    pub(super) async fn recall_for(
        &self,
        scope: &Scope,
        followed: &Followed,
        messages: &[ClientMessage],
        sent: &Sent<'_>,
        tokens: u32,
    ) -> Option<NewRecall> {
        let at = messages.len().checked_sub(1).filter(|at| *at >= followed.known)?;
        // Nothing may come between a call and its result, even if a person says more there.
        if !is_request(&messages[at].turn) || holds_result(&messages[at].turn) {
            return None;
        }
        if let Some(made) = followed.recall.as_ref().filter(|made| made.recall.at == at) {
            return Some(made.clone());
        }
        let made = self.recalled_for(scope, followed, messages, sent, at, tokens).await;
        made.unwrap_or_else(|error| {
            tracing::warn!(%scope, %error, "a request goes on without what memory recalls");
            None
        })
    }

    async fn recalled_for(
        &self,
        scope: &Scope,
        followed: &Followed,
        messages: &[ClientMessage],
        sent: &Sent<'_>,
        at: usize,
        tokens: u32,
    ) -> Result<Option<NewRecall>> {
        let query = asked(&own_words(&messages[at].turn).1);
        if query.trim().is_empty() {
            return Ok(None);
        }
        let epoch = self.store.scope_head(scope).await?.epoch;
        let secrets = self.deriving_redactor(scope).await?;
        let request = SearchRequest {
            limit: FOUND,
            mode: Mode::Hybrid,
            kinds: vec![DocKind::Turn, DocKind::Entry, DocKind::Fact],
            ..SearchRequest::new(&query)
        };
        let mut hits = self.search(scope, &request).await?.hits;
        hits.retain(|hit| !matched_words(&query, &hit.text).is_empty());
        let hits = self.not_sent(scope, followed, messages, sent, hits).await?;
        let passages: Vec<Passage> = hits.iter().map(|hit| self.passage(hit)).collect();
        let counter = self.counter.as_ref();
        let text = render_recall(&passages, u64::from(tokens), counter);
        let (text, _) = looked_at(&text, |text| secrets.redactor.derived_text(text))?;
        let counted = counter.count(&text);
        if text.is_empty() || counted > tokens {
            return Ok(None);
        }
        let recall = Recall { at, text, tokens: u64::from(counted) };
        Ok(Some(NewRecall { recall, epoch, secrets_seen: secrets.version }))
    }

    /// Hits that the request does not hold already. Of its own session only what a handoff
    /// stands for: other branches are what was taken back.
    async fn not_sent(
        &self,
        scope: &Scope,
        followed: &Followed,
        messages: &[ClientMessage],
        sent: &Sent<'_>,
        hits: Vec<Hit>,
    ) -> Result<Vec<Hit>> {
        let own = |hit: &Hit| hit.session.as_deref() == Some(followed.session.as_str());
        let ids: Vec<TurnId> = match followed.place {
            Some(place) => {
                let seqs = hits.iter().filter(|hit| own(hit)).filter_map(|hit| hit.seq);
                seqs.map(|seq| TurnId { session: place.id.session, seq }).collect()
            }
            None => Vec::new(),
        };
        let places = match ids.is_empty() {
            true => Vec::new(),
            false => self.store.places(scope, &ids).await?,
        };
        let shown: BTreeSet<usize> = sent.shown.iter().copied().collect();
        let is_covered = |hit: &Hit| {
            let place = places.iter().find(|place| Some(place.id.seq) == hit.seq);
            let at = place
                .zip(sent.path)
                .and_then(|(place, path)| path.message(place.branch, place.ordinal));
            at.is_some_and(|at| !shown.contains(&at))
        };
        let said: BTreeSet<String> =
            sent.shown.iter().map(|at| own_words(&messages[*at].turn).1).collect();
        let is_new = |hit: &Hit| !said.contains(&hit.text) && (!own(hit) || is_covered(hit));
        Ok(hits.into_iter().filter(is_new).collect())
    }

    fn passage(&self, hit: &Hit) -> Passage {
        let speaker = hit.name.as_deref().or(hit.role.as_deref()).unwrap_or_default();
        let text = self.counter.prefix(&hit.text, PASSAGE_TOKENS).to_owned();
        Passage { speaker: speaker.to_owned(), text, at: Some(hit.at) }
    }

    /// Keeps what was put before a message, now that it is a turn. What is not kept is
    /// found anew, or not, the next time.
    pub(super) async fn keep_recall(&self, scope: &Scope, followed: &mut Followed) {
        let Some((place, made)) = followed.place.zip(followed.recall.take()) else { return };
        let Some(link) = followed.links.get(made.recall.at).copied() else { return };
        let recalled = NewRecalled {
            session: place.id.session,
            link,
            epoch: made.epoch,
            text: made.recall.text,
            secrets_seen: made.secrets_seen,
        };
        if let Err(error) = self.store.put_recalled(scope, recalled).await {
            tracing::warn!(%scope, %error, "what memory recalled could not be kept");
        }
    }
}

/// What is sent of a history anyhow.
pub(super) struct Sent<'a> {
    pub(super) shown: &'a [usize],
    pub(super) path: Option<&'a HistoryPath>,
}
