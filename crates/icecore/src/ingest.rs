//! Taking turns in: hiding their secrets, counting them, appending them to sessions.

pub(crate) mod import;
pub(crate) mod sessions;

pub use self::import::{ImportPlan, ImportReport, Progress, Repeat};
pub use icecore_domain::turn::{Content, MAX_CONTENT_BYTES, RawTurn, Timestamp, TurnError};
pub use icecore_store::{Appended, AppendedTurn, Claim, Outcome};

use std::sync::Mutex;

use icecore_domain::identity::{IdentityKey, Link};
use icecore_domain::ids::{Scope, Seq, TurnId};
use icecore_domain::redact::{Hidden, Redactor};
use icecore_domain::time::Millis;
use icecore_store::{AppendBatch, NewTurn, ParentRef};

use crate::base::INLINE_BYTES;
use crate::error::{MemoryError, Result, off_thread};
use crate::models::ModelCalls;
use crate::privacy::secrets::{TenantRedactor, write_redacted};

/// Redacts turns and appends them.
#[derive(Clone)]
pub struct Ingest {
    pub(crate) calls: ModelCalls,
}

crate::base::over!(Ingest, calls: ModelCalls);

impl Ingest {
    /// Takes in turns: hides their secrets, then appends them to a session.
    /// Once this resolves they survive a crash.
    pub async fn remember(
        &self,
        scope: &Scope,
        session: &str,
        turns: Vec<RawTurn>,
    ) -> Result<Remembered> {
        let turns = turns.into_iter().map(TurnInput::from).collect();
        self.append(
            scope,
            Append { session: session.to_owned(), turns, insist: false, claim: None },
        )
        .await
    }

    /// As [`Ingest::remember`], with every choice in the caller's hand.
    #[tracing::instrument(skip_all, fields(turns = append.turns.len()))]
    pub async fn append(&self, scope: &Scope, append: Append) -> Result<Remembered> {
        if append.turns.is_empty() {
            return Err(MemoryError::NoTurns);
        }
        let (session, turns) = (append.session.as_str(), append.turns.as_slice());
        let batch = |turns| Batch {
            turns,
            after: None,
            insist: append.insist,
            claim: append.claim.clone(),
            links: &[],
        };
        let (appended, ids) = self.append_batch(scope, session, || batch(turns.to_vec())).await?;
        Ok(Remembered::new(&appended, &ids))
    }

    /// Appends messages of a client's history, each with its link, behind the one that has
    /// the link `after`, or as a tree of their own.
    pub(crate) async fn append_linked(
        &self,
        scope: &Scope,
        session: &str,
        after: Option<Link>,
        links: &[LinkedMessage],
    ) -> Result<Appended> {
        let turns = || links.iter().map(|one| TurnInput::from(one.turn.clone())).collect();
        let batch = || Batch { turns: turns(), after, insist: false, claim: None, links };
        Ok(self.append_batch(scope, session, batch).await?.0)
    }

    /// Redacts and appends; answers what became of it, and the ids that clients gave.
    async fn append_batch<'a>(
        &self,
        scope: &Scope,
        session: &str,
        batch: impl Fn() -> Batch<'a>,
    ) -> Result<(Appended, Vec<Option<String>>)> {
        // The store refuses what was redacted with old secrets, so that whether there are
        // newer ones need not be asked before.
        let at_hand = Mutex::new(self.redactor_at_hand(scope.tenant()));
        write_redacted(|| async {
            let at_hand = at_hand.lock().ok().and_then(|mut at_hand| at_hand.take());
            let redactor = match at_hand {
                Some(redactor) => redactor,
                None => self.redactor(scope.tenant()).await?,
            };
            self.append_once(scope, session, batch(), redactor).await
        })
        .await
    }

    async fn append_once(
        &self,
        scope: &Scope,
        session: &str,
        batch: Batch<'_>,
        redactor: TenantRedactor,
    ) -> Result<(Appended, Vec<Option<String>>)> {
        let now = self.now();
        let Batch { turns, after, insist, claim, links } = batch;
        let key = self.identity_key(scope.tenant()).await?;
        let session = self.session_to_append(scope, &redactor.redactor, session).await?;
        let secrets_seen = redactor.version;
        let mut turns = self.prepare(key, redactor, turns, now).await?;
        turns.iter_mut().zip(links).for_each(|(new, one)| {
            (new.link, new.is_answer, new.is_hollow) =
                (Some(one.link), one.is_answer, one.is_hollow);
        });
        let ids = turns.iter().map(|turn| turn.turn.fields().id.clone()).collect();
        let weights: Vec<(u32, Hidden)> =
            turns.iter().map(|turn| (turn.tokens, turn.hidden.clone())).collect();
        let policy = self.settings.cuts.policy();
        let batch = AppendBatch { session, turns, after, insist, policy, now, claim, secrets_seen };
        let admitted = self.admit(scope.tenant(), tokens_of(&weights)).await?;
        let appended = self.written(self.store.append(scope, batch).await)?;
        // Only a hint. The worker works out what is due from the store itself, so
        // a wake lost in a crash costs a delay and no chunk.
        self.wake.notify_one();
        admitted.store(self.count_added(&appended, &weights));
        Ok((appended, ids))
    }

    /// Counts the turns that are new, each with its tokens and what was hidden; answers
    /// their tokens.
    fn count_added(&self, appended: &Appended, weights: &[(u32, Hidden)]) -> u64 {
        let all = appended.turns.iter().zip(weights);
        let mut added = 0;
        for (_, (tokens, hidden)) in all.filter(|(turn, _)| turn.outcome == Outcome::Added) {
            self.counters.turns(1, u64::from(*tokens));
            self.counters.hidden(hidden);
            added += u64::from(*tokens);
        }
        added
    }

    /// Does all that needs no lock: checks, hashes, redacts and counts.
    async fn prepare(
        &self,
        key: IdentityKey,
        redactor: TenantRedactor,
        turns: Vec<TurnInput>,
        now: Millis,
    ) -> Result<Vec<NewTurn>> {
        let bytes: usize = turns.iter().map(|input| input.turn.byte_count()).sum();
        if bytes <= INLINE_BYTES {
            return prepare_all(self, &key, &redactor.redactor, turns, now);
        }
        let inner = self.clone();
        off_thread(move || prepare_all(&inner, &key, &redactor.redactor, turns, now)).await?
    }
}

/// A turn to append, with how it is to be recognised.
#[derive(Debug, Clone)]
pub struct TurnInput {
    /// The turn.
    pub turn: RawTurn,
    /// For a turn without id: it is the nth with its body. 0: it is new.
    pub occurrence: u32,
    /// Whether its line named the session.
    pub session_given: bool,
}

impl From<RawTurn> for TurnInput {
    fn from(turn: RawTurn) -> Self {
        Self { turn, occurrence: 0, session_given: false }
    }
}

/// Turns for one session.
pub struct Append {
    /// The session's name as the client gave it.
    pub session: String,
    /// The turns.
    pub turns: Vec<TurnInput>,
    /// Adds turns even if they were forgotten.
    pub insist: bool,
    /// What else the transaction stores, so that the request can be repeated safely.
    pub claim: Option<Claim>,
}

/// Turns to append before they are redacted.
struct Batch<'a> {
    turns: Vec<TurnInput>,
    after: Option<Link>,
    insist: bool,
    claim: Option<Claim>,
    /// Of a client's history, the message of each turn.
    links: &'a [LinkedMessage],
}

/// What became of remembered turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// Their ids, the client's where it gave them, in order.
    pub turn_ids: Vec<String>,
    /// The smallest `seq` among them.
    pub first_seq: Seq,
    /// The largest `seq` among them.
    pub last_seq: Seq,
    /// How many are new.
    pub added: usize,
    /// How many were there.
    pub known: usize,
    /// How many were forgotten earlier and stay so.
    pub forgotten: usize,
}

/// A message of a client's history as it is kept.
#[derive(Debug, Clone)]
pub(crate) struct LinkedMessage {
    pub(crate) turn: RawTurn,
    pub(crate) link: Link,
    /// Whether it is an answer that went through us.
    pub(crate) is_answer: bool,
    /// Whether its words are left out, because they were forgotten.
    pub(crate) is_hollow: bool,
}

impl Remembered {
    /// What an append answered; `ids` are the clients' own.
    pub(crate) fn new(appended: &Appended, ids: &[Option<String>]) -> Self {
        let count = |wanted| appended.turns.iter().filter(|turn| turn.outcome == wanted).count();
        let seqs = || appended.turns.iter().map(|turn| turn.seq);
        let id = |(turn, id): (&AppendedTurn, &Option<String>)| {
            id.clone()
                .unwrap_or_else(|| TurnId { session: appended.session, seq: turn.seq }.to_string())
        };
        Self {
            turn_ids: appended.turns.iter().zip(ids).map(id).collect(),
            first_seq: seqs().min().unwrap_or_default(),
            last_seq: seqs().max().unwrap_or_default(),
            added: count(Outcome::Added),
            known: count(Outcome::Known),
            forgotten: count(Outcome::Forgotten),
        }
    }
}

fn tokens_of(weights: &[(u32, Hidden)]) -> u64 {
    weights.iter().map(|(tokens, _)| u64::from(*tokens)).sum()
}

fn prepare_all(
    ingest: &Ingest,
    key: &IdentityKey,
    redactor: &Redactor,
    turns: Vec<TurnInput>,
    now: Millis,
) -> Result<Vec<NewTurn>> {
    turns
        .into_iter()
        .enumerate()
        .map(|(index, input)| {
            input.turn.check().map_err(|source| MemoryError::Turn { index, source })?;
            Ok(prepare_one(ingest, key, redactor, input, now))
        })
        .collect()
}

fn prepare_one(
    ingest: &Ingest,
    key: &IdentityKey,
    redactor: &Redactor,
    input: TurnInput,
    now: Millis,
) -> NewTurn {
    let raw = input.turn;
    let identity = key.identify(&raw);
    let speaker = raw.name.as_ref().map(|name| key.hash_name("subject", name));
    let parent = |id: &String| ParentRef {
        shown: redactor.name(id).into_string(),
        lookup: key.lookup_of_id(id),
        ours: TurnId::parse(id),
    };
    let parents = raw.parent_ids.iter().flatten().map(parent).collect();
    let at = raw.timestamp.as_ref().map_or(now, |timestamp| timestamp.at());
    let (turn, hidden) = redactor.turn_counted(raw);
    let tokens = ingest.counter.count(&turn.fields().content.text());
    NewTurn {
        turn,
        hidden,
        identity,
        speaker,
        parents,
        tokens,
        at,
        occurrence: input.occurrence,
        session_given: input.session_given,
        link: None,
        is_answer: false,
        is_hollow: false,
    }
}
