//! Finding the session of a history.

use icecore_domain::follow::{Candidate, Decision, Following, decide};
use icecore_domain::identity::Link;
use icecore_domain::ids::{Scope, SessionName, SessionNo};
use icecore_store::{LinkedTurn, MOST_LINKED, SessionRecord, TurnState};

use super::path::HistoryPath;
use super::{ClientMessage, FollowRequest, Followed};
use crate::error::{MemoryError, Result, off_thread};
use crate::sessions::Sessions;

/// Links that are looked up at once: few at first, for most histories are known but for
/// the last message or two.
const FIRST_LOOKUP: usize = 4;

/// Never more than these.
const MOST_LOOKUP: usize = 64;

/// Histories of more bytes are hashed off the async threads.
const INLINE_HASHED: usize = 256 << 10;

/// The longest beginning of a history that is stored.
struct Longest {
    /// How many messages it has.
    known: usize,
    /// The turns that it ends at.
    turns: Vec<LinkedTurn>,
    /// Whether there may be more of these.
    is_more: bool,
}

impl Sessions {
    pub(super) async fn followed(
        &self,
        scope: &Scope,
        request: &FollowRequest<'_>,
    ) -> Result<Followed> {
        let links = self.links_of(scope, request.messages).await?;
        match request.session {
            Some(name) => self.followed_as(scope, name, links).await,
            None => self.followed_by_links(scope, request, links).await,
        }
    }

    /// The links of messages.
    async fn links_of(&self, scope: &Scope, messages: &[ClientMessage]) -> Result<Vec<Link>> {
        let key = self.identity_key(scope.tenant()).await?;
        let chain = move |all: &mut dyn Iterator<Item = &[u8]>| {
            let mut link = key.first_link();
            let mut next = |bytes: &[u8]| {
                link = key.next_link(link, bytes);
                link
            };
            all.map(&mut next).collect::<Vec<Link>>()
        };
        let bytes: usize = messages.iter().map(|message| message.recognised_by.len()).sum();
        if bytes <= INLINE_HASHED {
            return Ok(chain(&mut messages.iter().map(|one| one.recognised_by.as_slice())));
        }
        let owned: Vec<Vec<u8>> = messages.iter().map(|one| one.recognised_by.clone()).collect();
        off_thread(move || chain(&mut owned.iter().map(Vec::as_slice))).await
    }

    /// In the session that the client names, whatever is known of others.
    async fn followed_as(&self, scope: &Scope, name: &str, links: Vec<Link>) -> Result<Followed> {
        let shown = self.redactor(scope.tenant()).await?.redactor.name(name).into_string();
        let record = match self.session_record(scope, name).await {
            Ok(record) => record,
            Err(MemoryError::NoSession { .. }) => return Ok(Followed::begins(&shown, links, 0)),
            Err(error) => return Err(error),
        };
        let found = self.longest(scope, &links, 1, |_| true, Some(record.no)).await?;
        let Some(Longest { known, turns, .. }) = found else {
            return Ok(Followed::begins(&shown, links, 0));
        };
        let following = match turns[0].is_head {
            true => Following::Continues,
            false => Following::Forks,
        };
        Ok(Followed::at(shown, following, links, known, &turns[0], &record))
    }

    async fn followed_by_links(
        &self,
        scope: &Scope,
        request: &FollowRequest<'_>,
        links: Vec<Link>,
    ) -> Result<Followed> {
        let begins = request.new_session;
        let first_reply = request.messages.iter().position(|message| message.is_reply);
        let Some(first_reply) = first_reply else {
            return match request.is_retry {
                true => self.followed_unanswered(scope, begins, links).await,
                false => Ok(Followed::begins(begins, links, 0)),
            };
        };
        // Others may begin with the same greeting or examples: what a client made up says
        // nothing of whose history it is.
        let is_answered = |turn: &LinkedTurn| turn.is_answered;
        let found = self.longest(scope, &links, first_reply + 1, is_answered, None).await?;
        let Some(Longest { known, turns, is_more }) = found else {
            return Ok(Followed::begins(begins, links, 0));
        };
        match decide(&self.candidates(scope, &turns).await?, is_more) {
            Decision::Begins => Ok(Followed::begins(begins, links, 0)),
            Decision::BeginsBehind => Ok(Followed::begins(begins, links, known)),
            Decision::Follows(session, following) => {
                let turn = turns.iter().find(|turn| turn.place.id.session == session);
                let record = self.store.session_by_number(scope, session).await?;
                let named = |record: SessionRecord| Some((record.name.clone()?, record));
                match turn.zip(record.and_then(named)) {
                    Some((turn, (name, record))) => {
                        let name = self.shown_name_of(scope, &name).await?;
                        Ok(Followed::at(name, following, links, known, turn, &record))
                    }
                    // It was forgotten a moment ago.
                    None => Ok(Followed::begins(begins, links, known)),
                }
            }
        }
    }

    /// A history without a reply, sent once more: the newest session that holds just that.
    async fn followed_unanswered(
        &self,
        scope: &Scope,
        begins: &str,
        links: Vec<Link>,
    ) -> Result<Followed> {
        let found = self.longest(scope, &links, links.len().max(1), |_| true, None).await?;
        let Some(Longest { known, turns, .. }) = found else {
            return Ok(Followed::begins(begins, links, 0));
        };
        let heads: Vec<&LinkedTurn> = turns.iter().filter(|turn| turn.is_head).collect();
        let numbers: Vec<SessionNo> = heads.iter().map(|turn| turn.place.id.session).collect();
        let records = self.store.sessions_at(scope, &numbers).await?;
        let is_all = |record: &&SessionRecord| record.last_seq.0 == known as u64;
        let only = records.iter().find(|record| is_all(record) && record.name.is_some());
        let Some(record) = only else { return Ok(Followed::begins(begins, links, 0)) };
        let turn = heads.iter().find(|turn| turn.place.id.session == record.no);
        match turn.zip(record.name.as_ref()) {
            Some((turn, name)) => {
                let name = self.shown_name_of(scope, name).await?;
                Ok(Followed::at(name, Following::Continues, links, known, turn, record))
            }
            None => Ok(Followed::begins(begins, links, 0)),
        }
    }

    /// A stored name as it may be shown; it names the same session.
    async fn shown_name_of(&self, scope: &Scope, name: &SessionName) -> Result<String> {
        let redactor = self.redactor(scope.tenant()).await?.redactor;
        Ok(redactor.name(name.as_str()).into_string())
    }

    /// The longest beginning of at least so many messages that is stored, and the turns
    /// that it ends at, of those that count.
    async fn longest(
        &self,
        scope: &Scope,
        links: &[Link],
        least: usize,
        counts: impl Fn(&LinkedTurn) -> bool,
        session: Option<SessionNo>,
    ) -> Result<Option<Longest>> {
        let (mut end, mut size) = (links.len(), FIRST_LOOKUP);
        while end >= least.max(1) {
            let from = end.saturating_sub(size).max(least.max(1) - 1);
            let asked: Vec<Link> = links[from..end].iter().rev().copied().collect();
            let mut turns = self.store.linked(scope, &asked, session).await?;
            if let Some(link) = turns.iter().find(|turn| counts(turn)).map(|turn| turn.link) {
                turns.retain(|turn| turn.link == link);
                let is_more = turns.len() >= MOST_LINKED;
                turns.retain(&counts);
                let shorter = asked.iter().position(|one| *one == link).unwrap_or(0);
                return Ok(Some(Longest { known: end - shorter, turns, is_more }));
            }
            (end, size) = (from, (size * 4).min(MOST_LOOKUP));
        }
        Ok(None)
    }

    /// The sessions of turns, with whether anything is left of them.
    async fn candidates(&self, scope: &Scope, turns: &[LinkedTurn]) -> Result<Vec<Candidate>> {
        // What has a turn that is there is there.
        let is_erased = |turn: &&LinkedTurn| turn.place.state == TurnState::Erased;
        let erased = turns.iter().filter(is_erased).map(|turn| turn.place.id.session);
        let erased: Vec<SessionNo> = erased.collect();
        let records = match erased.is_empty() {
            true => Vec::new(),
            false => self.store.sessions_at(scope, &erased).await?,
        };
        let is_nameless =
            |no: SessionNo| records.iter().any(|record| record.no == no && record.name.is_none());
        let candidate = |turn: &LinkedTurn| Candidate {
            session: turn.place.id.session,
            is_head: turn.is_head,
            is_forgotten: is_nameless(turn.place.id.session),
        };
        Ok(turns.iter().map(candidate).collect())
    }
}

impl Followed {
    fn at(
        session: String,
        following: Following,
        links: Vec<Link>,
        known: usize,
        turn: &LinkedTurn,
        record: &SessionRecord,
    ) -> Self {
        let path = Some(HistoryPath::to(record, &turn.place, known));
        let place = Some(turn.place);
        Self { session, following, known, links, place, path, handoff: None, recall: None }
    }

    /// A session that begins behind so many messages that were forgotten.
    fn begins(session: &str, links: Vec<Link>, known: usize) -> Self {
        let (session, following) = (session.to_owned(), Following::Begins);
        let (place, path) = (None, None);
        Self { session, following, known, links, place, path, handoff: None, recall: None }
    }
}
