//! Commitments: intentions that are kept until their moment comes or their condition
//! holds, and then fire once.
//!
//! The intention is an entry like any other, so that it is redacted, found, expires and
//! is forgotten like any other. What fires tells ids and never what was intended.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use icecore::extend::{self, off_thread, write_redacted};
use icecore::ingest::Claim;
use icecore::knowledge::{EntryRecord, NewEntryRequest};
use icecore::privacy::Redactor;
use icecore::{Memory, MemoryError, Millis, Scope, Tenant};
pub use icecore_domain::entries::COMMITMENT_TAG;
pub use icecore_store::{CommitmentQuery, CommitmentRecord, CommitmentState, Condition};
use icecore_store::{Fulfilled, Intention, Look, NewCommitment, Store};
use tokio::sync::watch;

use crate::error::wraps_memory;
use crate::settings::CommitmentSettings;
use crate::upkeep::Every;

type Result<T> = std::result::Result<T, CommitmentError>;

/// Lease of the host that fires commitments.
const LEASE: &str = "commitments";

/// Characters of the words that a commitment waits for.
pub const MAX_MENTIONS_CHARS: usize = 256;

/// Commitments that fire by their moment in one round.
const DUE_A_ROUND: usize = 256;

/// Tenants whose turn it is in one round, with one memory each.
const TENANTS_A_ROUND: usize = 64;

/// Entries of that memory that are compared with what is waited for.
const ENTRIES_A_LOOK: usize = 64;

/// Times that one memory is looked at in a row, where it alone is asked for.
const LOOKS: usize = 64;

/// A memory that could not be looked at is passed over for so long.
const STUCK_MILLIS: i64 = 5_000;

/// Settled commitments that are deleted in one step.
const PURGED_A_STEP: usize = 500;

/// How often commitments are looked for that ended long ago.
const PURGES: Duration = Duration::from_secs(60);

/// How often it is looked whether a commitment can fire.
const POLL: Duration = Duration::from_secs(1);

/// Between rounds, while there is something to do.
const BREATH: Duration = Duration::from_millis(20);

/// Whose turn it is.
#[derive(Debug, Default)]
struct Order {
    /// The tenant that had the last one of a round that was full.
    last: Option<Tenant>,
    /// Memories that could not be looked at, and when to try again.
    stuck: BTreeMap<Scope, Millis>,
}

/// What a round did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Round {
    /// Commitments that fired.
    fired: u64,
    /// Whether there was nothing to do.
    is_idle: bool,
}

/// A commitment to make.
#[derive(Debug, Clone)]
pub struct CommitmentRequest {
    /// What is intended.
    pub intention: IntentionRequest,
    /// When it fires.
    pub condition: ConditionRequest,
    /// The caller's idempotency key.
    pub claim: Option<Claim>,
}

/// What is intended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IntentionRequest {
    /// This, which becomes an entry.
    Text(String),
    /// What an entry in force says, by its id.
    Entry(String),
}

/// When a commitment fires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConditionRequest {
    /// At a moment.
    Time(Millis),
    /// Once an entry is put that has this tag and says these words; at least one of
    /// the two is asked for.
    Predicate {
        /// The tag.
        tag: Option<String>,
        /// The words, in any order and case.
        mentions: Option<String>,
    },
}

/// A commitment that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitmentError {
    /// Nothing is intended.
    #[error("field `intention` is empty")]
    Empty,
    /// Its moment is past.
    #[error("field `at` is not in the future")]
    Past,
    /// It waits for nothing.
    #[error(
        "field `when` needs a `tag`, or `mentions` with a word of at most {MAX_MENTIONS_CHARS} characters in all"
    )]
    Condition,
    /// No entry has such a tag.
    #[error("field `when.tag` has 1 to {MAX_MENTIONS_CHARS} characters")]
    Tag,
    /// The memory failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

wraps_memory!(CommitmentError);

/// The commitments of all tenants. Clones share everything.
#[derive(Clone)]
pub struct Commitments {
    memory: Memory,
    settings: CommitmentSettings,
    order: Arc<Mutex<Order>>,
}

impl Commitments {
    pub(crate) fn new(memory: Memory, settings: CommitmentSettings) -> Self {
        Self { memory, settings, order: Arc::default() }
    }

    fn store(&self) -> &Store {
        extend::store(&self.memory)
    }

    /// Limits of commitments.
    pub fn settings(&self) -> &CommitmentSettings {
        &self.settings
    }

    /// Makes a commitment; once this resolves it survives a crash.
    pub async fn add(&self, scope: &Scope, request: CommitmentRequest) -> Result<CommitmentRecord> {
        refuse_empty(&request)?;
        write_redacted(|| self.add_once(scope, &request)).await
    }

    async fn add_once(
        &self,
        scope: &Scope,
        request: &CommitmentRequest,
    ) -> Result<CommitmentRecord> {
        let now = self.memory.now();
        if matches!(request.condition, ConditionRequest::Time(at) if at <= now) {
            return Err(CommitmentError::Past);
        }
        let known = self.memory.redactor(scope.tenant()).await?;
        let intention = match &request.intention {
            IntentionRequest::Entry(id) => Intention::Entry(known.redactor.name(id).into_string()),
            IntentionRequest::Text(text) => {
                let entry = NewEntryRequest {
                    content: text.clone(),
                    tags: vec![COMMITMENT_TAG.to_owned()],
                    ..NewEntryRequest::default()
                };
                Intention::New(extend::redacted_entry(&self.memory, &known, &entry, now).await?)
            }
        };
        let intended = match &intention {
            Intention::New(entry) => entry.content.as_str(),
            Intention::Entry(_) => "",
        };
        let admitted = extend::admit_text(&self.memory, scope.tenant(), intended).await?;
        let commitment = NewCommitment {
            condition: clean(&known.redactor, &request.condition),
            intention,
            now,
            secrets_seen: known.version,
            most_pending: self.settings.pending,
            most_pending_tenant: self.settings.pending_tenant,
            claim: request.claim.clone(),
        };
        let made = self.store().put_commitment(scope, commitment).await;
        let made = extend::written(&self.memory, made)?;
        admitted.store_all();
        extend::wake(&self.memory);
        Ok(made)
    }

    /// A commitment of a tenant by id.
    pub async fn get(&self, tenant: &Tenant, id: &str) -> Result<Option<CommitmentRecord>> {
        let mut found = self.store().commitment(tenant, id).await?;
        self.hide(tenant, found.iter_mut()).await?;
        Ok(found)
    }

    /// Commitments of a tenant, newest first, as many as are asked for at most.
    pub async fn list(
        &self,
        tenant: &Tenant,
        query: &CommitmentQuery,
    ) -> Result<Vec<CommitmentRecord>> {
        let mut found = self.store().commitments(tenant, query).await?;
        self.hide(tenant, found.iter_mut()).await?;
        Ok(found)
    }

    async fn hide(
        &self,
        tenant: &Tenant,
        found: impl Iterator<Item = &mut CommitmentRecord>,
    ) -> Result<()> {
        let Some(redactor) = extend::read_redactor(&self.memory, tenant).await? else {
            return Ok(());
        };
        for one in found {
            if let Condition::Predicate { tag, mentions } = &mut one.condition {
                for text in [tag, mentions].into_iter().flatten() {
                    *text = redactor.text(text.as_str());
                }
            }
        }
        Ok(())
    }

    /// Calls off a commitment that is pending; false if there is none.
    pub async fn cancel(&self, tenant: &Tenant, id: &str) -> Result<bool> {
        Ok(self.store().cancel_commitment(tenant, id, self.memory.now()).await?)
    }

    /// Fires what is due: by its moment, or because an entry was put that fulfils it.
    /// Answers how many fired. There is a bound to what one call does, and every tenant
    /// has its turn; what is left is the next call's.
    pub async fn fire_due(&self) -> Result<u64> {
        Ok(self.fire_round().await?.fired)
    }

    /// Whether there is anything for a round to do.
    async fn has_due(&self) -> Result<bool> {
        let (store, now) = (self.store(), self.memory.now());
        if !store.due_commitments(now, 1).await?.is_empty() {
            return Ok(true);
        }
        let (is_half_way, except) = {
            let order = self.order();
            let stuck = order.stuck.iter().filter(|(_, until)| **until > now);
            (order.last.is_some(), stuck.map(|(scope, _)| scope.clone()).collect::<Vec<_>>())
        };
        Ok(is_half_way || !store.waiting_memories(None, &except, 1).await?.is_empty())
    }

    /// A round of what [`Commitments::fire_due`] does. What fails keeps nothing else
    /// from being done; the first such error is answered.
    async fn fire_round(&self) -> Result<Round> {
        let (store, now) = (self.store(), self.memory.now());
        let (mut fired, mut failed) = (0, None);
        let due = store.due_commitments(now, DUE_A_ROUND).await?;
        for one in &due {
            match store.fire_commitment(one.scope.tenant(), &one.id, None, now).await {
                Ok(Some(_)) => {
                    told(&one.id, &one.condition);
                    fired += 1;
                }
                Ok(None) => {}
                Err(error) => failed = failed.or(Some(error.into())),
            }
        }
        let (after, except) = {
            let mut order = self.order();
            order.stuck.retain(|_, until| *until > now);
            (order.last.take(), order.stuck.keys().cloned().collect::<Vec<_>>())
        };
        let waiting = store.waiting_memories(after.as_ref(), &except, TENANTS_A_ROUND).await?;
        for scope in &waiting {
            match self.look(scope).await {
                Ok(count) => fired += count,
                Err(error) => {
                    let until = Millis(now.0.saturating_add(STUCK_MILLIS));
                    self.order().stuck.insert(scope.clone(), until);
                    failed = failed.or(Some(error));
                }
            }
        }
        if waiting.len() == TENANTS_A_ROUND {
            self.order().last = waiting.last().map(|scope| scope.tenant().clone());
        }
        let is_idle = due.is_empty() && waiting.is_empty() && after.is_none();
        failed.map_or(Ok(Round { fired, is_idle }), Err)
    }

    /// As [`Commitments::fire_due`], for one memory alone.
    pub(crate) async fn fire_of(&self, scope: &Scope) -> Result<u64> {
        let (store, now) = (self.store(), self.memory.now());
        let mut query = CommitmentQuery {
            memory: Some(scope.memory().to_owned()),
            state: Some(CommitmentState::Pending),
            ..CommitmentQuery::newest(DUE_A_ROUND)
        };
        let mut due = Vec::new();
        loop {
            let found = store.commitments(scope.tenant(), &query).await?;
            query.before = found.last().map(|one| one.id.clone());
            let is_last = found.len() < DUE_A_ROUND;
            due.extend(found.into_iter().filter(|one| match one.condition {
                Condition::Time(at) => at <= now,
                Condition::Predicate { .. } => false,
            }));
            if is_last {
                break;
            }
        }
        let mut fired = 0;
        for one in due {
            if store.fire_commitment(scope.tenant(), &one.id, None, now).await?.is_some() {
                told(&one.id, &one.condition);
                fired += 1;
            }
        }
        for _ in 0..LOOKS {
            let watch = store.watch(scope).await?;
            if watch.waiting.is_empty() || watch.after >= watch.through {
                break;
            }
            fired += self.look(scope).await?;
        }
        Ok(fired)
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the next entries of a memory with all that its commitments wait for, and
    /// fires what they fulfil.
    async fn look(&self, scope: &Scope) -> Result<u64> {
        let (store, now) = (self.store(), self.memory.now());
        let watch = store.watch(scope).await?;
        let mut entries = store.entries_after(scope, watch.after, now, ENTRIES_A_LOOK).await?;
        let through = match entries.last() {
            Some(last) if entries.len() == ENTRIES_A_LOOK => last.began.min(watch.through),
            _ => watch.through,
        };
        // What began since then may also fulfil what was committed to since then.
        entries.retain(|entry| entry.began <= through);
        let fulfilled = off_thread(move || fulfilled(&watch.waiting, &entries)).await?;
        let fired = store.look_through(scope, &Look { through, fulfilled, now }).await?;
        for one in &fired {
            told(&one.commitment, &Condition::Predicate { tag: None, mentions: None });
        }
        Ok(fired.len() as u64)
    }

    /// Fires commitments as their time or what they wait for comes, unless nobody may write
    /// here. However much is put, there is a pause between rounds.
    pub(crate) async fn run_until(&self, mut closed: watch::Receiver<bool>, writes: bool) {
        let mut purges = Every::new(PURGES);
        loop {
            if purges.is_due()
                && let Err(error) = self.under_lease(async |host| host.purge().await).await
            {
                tracing::warn!(error = %error, "commitments that ended long ago could not be removed");
            }
            let pause = match self.fire_in_turn(writes).await {
                Ok(round) if round.is_idle => POLL,
                Ok(_) => BREATH,
                Err(error) => {
                    tracing::warn!(error = %error, "commitments could not be looked after, will try again");
                    POLL
                }
            };
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// A round, if there is anything to do and no other host does it.
    async fn fire_in_turn(&self, writes: bool) -> Result<Round> {
        let idle = Round { fired: 0, is_idle: true };
        if !writes || !self.has_due().await? {
            return Ok(idle);
        }
        Ok(self.under_lease(async |host| host.fire_round().await).await?.unwrap_or(idle))
    }

    async fn under_lease<T, W>(&self, work: impl FnOnce(Commitments) -> W) -> Result<Option<T>>
    where
        W: Future<Output = Result<T>>,
    {
        let work = |memory| {
            let done = work(Self { memory, ..self.clone() });
            async move {
                match done.await {
                    Err(CommitmentError::Memory(error)) => Err(error),
                    done => Ok(done),
                }
            }
        };
        extend::under_lease(&self.memory, LEASE, work).await?.transpose()
    }

    /// Deletes commitments that were settled longer ago than they are kept.
    pub(crate) async fn purge(&self) -> Result<u64> {
        let kept = self.settings.retention_seconds as i64;
        let settled_by = Millis(self.memory.now().0.saturating_sub(kept.saturating_mul(1_000)));
        let mut purged = 0;
        loop {
            let step = self.store().purge_commitments(settled_by, PURGED_A_STEP).await?;
            purged += step;
            if step < PURGED_A_STEP as u64 {
                return Ok(purged);
            }
        }
    }
}

/// Tells whoever watches the program that a commitment fired.
fn told(commitment: &str, condition: &Condition) {
    let condition = condition.as_str();
    tracing::info!(target: "openwop.commitment.fired", commitment, condition, "a commitment fired");
}

fn refuse_empty(request: &CommitmentRequest) -> Result<()> {
    if matches!(&request.intention, IntentionRequest::Text(text) if text.trim().is_empty()) {
        return Err(CommitmentError::Empty);
    }
    let ConditionRequest::Predicate { tag, mentions } = &request.condition else { return Ok(()) };
    if tag.as_ref().is_some_and(|tag| !(1..=MAX_MENTIONS_CHARS).contains(&tag.chars().count())) {
        return Err(CommitmentError::Tag);
    }
    let is_tag = tag.as_ref().is_some_and(|tag| !tag.trim().is_empty());
    let is_said = mentions.as_ref().is_some_and(|said| !words(said).is_empty());
    let is_short = mentions.as_ref().is_none_or(|said| said.chars().count() <= MAX_MENTIONS_CHARS);
    match (is_tag || is_said) && is_short && (mentions.is_none() || is_said) {
        true => Ok(()),
        false => Err(CommitmentError::Condition),
    }
}

fn clean(redactor: &Redactor, condition: &ConditionRequest) -> Condition {
    match condition {
        ConditionRequest::Time(at) => Condition::Time(*at),
        ConditionRequest::Predicate { tag, mentions } => Condition::Predicate {
            tag: tag.as_ref().map(|tag| redactor.text(tag)),
            mentions: mentions.as_ref().map(|said| redactor.text(said)),
        },
    }
}

/// The words of a text, in one case.
fn words(text: &str) -> HashSet<String> {
    let split = text.split(|letter: char| !letter.is_alphanumeric());
    split.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// What of `waiting` entries fulfil, each with the first that does; the entries come in
/// the order in which they began. Each is split into words once, however much waits.
fn fulfilled(waiting: &[CommitmentRecord], entries: &[EntryRecord]) -> Vec<Fulfilled> {
    let entries: Vec<(&EntryRecord, HashSet<String>)> = entries
        .iter()
        .filter(|entry| may_fulfil(entry))
        .map(|entry| (entry, words(entry.content.as_str())))
        .collect();
    let met = |one: &CommitmentRecord| {
        let Condition::Predicate { tag, mentions } = &one.condition else { return None };
        let wanted = mentions.as_ref().map(|said| words(said.as_str()));
        let fulfils = |(entry, said): &&(&EntryRecord, HashSet<String>)| {
            entry.began > one.made
                && entry.id != one.entry
                && tag.as_ref().is_none_or(|tag| entry.tags.contains(tag))
                && wanted.as_ref().is_none_or(|wanted| wanted.is_subset(said))
        };
        let (entry, _) = entries.iter().find(fulfils)?;
        Some(Fulfilled { commitment: one.id.clone(), because: entry.id.clone() })
    };
    waiting.iter().filter_map(met).collect()
}

/// Whether an entry can be what somebody waits for. An intention is not, nor is what was
/// merely made of other entries.
fn may_fulfil(entry: &EntryRecord) -> bool {
    !entry.derived && !entry.tags.iter().any(|tag| tag.as_str() == COMMITMENT_TAG)
}

#[cfg(test)]
mod tests {
    use icecore::Principal;
    use icecore::ids::Position;

    use super::*;

    fn waiting(tag: Option<&str>, mentions: Option<&str>) -> CommitmentRecord {
        let redactor = Redactor::standard();
        let me = Principal::local_operator(Tenant::new("acme").unwrap());
        let text = |text: Option<&str>| text.map(|text| redactor.text(text));
        CommitmentRecord {
            id: "c".to_owned(),
            scope: me.scope(redactor.name("notes")).unwrap(),
            entry: "intention".to_owned(),
            condition: Condition::Predicate { tag: text(tag), mentions: text(mentions) },
            state: CommitmentState::Pending,
            created_at: Millis(0),
            settled_at: None,
            made: Position(1),
        }
    }

    fn entry(id: &str, content: &str, tags: &[&str]) -> EntryRecord {
        let redactor = Redactor::standard();
        EntryRecord {
            id: id.to_owned(),
            content: redactor.text(content),
            tags: tags.iter().map(|tag| redactor.text(tag)).collect(),
            created_at: Millis(0),
            expires_at: None,
            began: Position(2),
            derived: false,
            successor: None,
        }
    }

    fn fulfils(one: &CommitmentRecord, entry: &EntryRecord) -> bool {
        !fulfilled(std::slice::from_ref(one), std::slice::from_ref(entry)).is_empty()
    }

    #[test]
    fn the_first_entry_that_fulfils_is_told() {
        let [tagged, said] = [waiting(Some("t"), None), waiting(None, Some("rain"))];
        let said = CommitmentRecord { id: "d".to_owned(), ..said };
        let later = CommitmentRecord { id: "e".to_owned(), made: Position(9), ..tagged.clone() };
        let entries = [
            entry("1", "rain", &[COMMITMENT_TAG, "t"]),
            entry("2", "sun", &[]),
            entry("3", "rain", &["t"]),
            entry("4", "rain", &["t"]),
        ];
        let found = fulfilled(&[tagged, said, later], &entries);
        let found: Vec<(&str, &str)> =
            found.iter().map(|one| (one.commitment.as_str(), one.because.as_str())).collect();
        assert_eq!(found, [("c", "3"), ("d", "3")]);
    }

    #[test]
    fn an_entry_fulfils_all_that_is_asked_for() {
        let check = |(tag, said), content, tags: &[&str], expected| {
            let (one, entry) = (waiting(tag, said), entry("e", content, tags));
            assert_eq!(fulfils(&one, &entry), expected, "{tag:?} {said:?} in {content} {tags:?}");
        };
        check((Some("paid"), None), "anything", &["paid"], true);
        check((Some("paid"), None), "paid", &["unpaid"], false);
        check((None, Some("invoice PAID")), "The Paid, and late, Invoice!", &[], true);
        check((None, Some("invoice paid")), "The invoices were paid", &[], false);
        check((Some("a"), Some("x")), "x", &["a"], true);
        check((Some("a"), Some("x")), "x", &[], false);
        check((Some("a"), Some("x")), "y", &["a"], false);
        check((Some(COMMITMENT_TAG), None), "another intention", &[COMMITMENT_TAG], false);
    }

    #[test]
    fn what_was_intended_or_derived_fulfils_nothing() {
        let one = waiting(None, Some("rain"));
        assert!(!fulfils(&one, &entry("intention", "rain", &[])));
        assert!(!fulfils(&one, &EntryRecord { derived: true, ..entry("e", "rain", &[]) }));
        assert!(fulfils(&one, &entry("e", "rain", &[])));
        let timed = CommitmentRecord { condition: Condition::Time(Millis(1)), ..one };
        assert!(!fulfils(&timed, &entry("e", "rain", &[])));
    }

    #[test]
    fn a_commitment_needs_an_intention_and_a_condition() {
        let check =
            |intention: &str, condition: ConditionRequest, expected: Option<CommitmentError>| {
                let intention = IntentionRequest::Text(intention.to_owned());
                let request = CommitmentRequest { intention, condition, claim: None };
                let told = |error: CommitmentError| error.to_string();
                let found = refuse_empty(&request).err().map(told);
                assert_eq!(found, expected.map(told), "{request:?}");
            };
        let when = |tag: Option<&str>, mentions: Option<&str>| ConditionRequest::Predicate {
            tag: tag.map(str::to_owned),
            mentions: mentions.map(str::to_owned),
        };
        let long = "x".repeat(MAX_MENTIONS_CHARS + 1);
        check("call", ConditionRequest::Time(Millis(1)), None);
        check("call", when(Some("t"), None), None);
        check("call", when(None, Some("w")), None);
        check(" ", when(Some("t"), None), Some(CommitmentError::Empty));
        for bad in [
            when(None, None),
            when(Some(" "), None),
            when(None, Some(" .,!")),
            when(Some("t"), Some("")),
            when(None, Some(&long)),
        ] {
            check("call", bad, Some(CommitmentError::Condition));
        }
        for bad in [when(Some(""), None), when(Some(""), Some("w")), when(Some(&long), Some("w"))] {
            check("call", bad, Some(CommitmentError::Tag));
        }
    }
}
