//! Commitments: intentions that are kept until their moment comes or their condition
//! holds, and then fire once.
//!
//! The intention is an entry like any other, so that it is redacted, found, expires and
//! is forgotten like any other. What fires tells ids and never what was intended.

use std::collections::BTreeSet;

use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::redact::Redactor;
use icecore_domain::time::Millis;
use icecore_store::{
    Claim, CommitmentRecord, Condition, EntryRecord, Fired, Intention, NewCommitment, NewEntry,
    StoreError,
};

use crate::entries::{NewEntryRequest, checked, hide};
use crate::error::{MemoryError, Result};
use crate::memory::{Memory, TRIES};
use crate::secrets::TenantRedactor;

/// The tag of an entry that is an intention. Such entries are not compacted.
pub const COMMITMENT_TAG: &str = "commitment";

/// Characters of the words that a commitment waits for.
pub const MAX_MENTIONS_CHARS: usize = 256;

/// Pending commitments of a memory, unless the caller says otherwise.
pub const MAX_PENDING_COMMITMENTS: u64 = 1_000;

/// Commitments that are listed at most.
pub const MAX_COMMITMENTS: usize = 500;

/// Commitments looked at in one round.
const A_ROUND: usize = 64;

/// Entries that a waiting commitment is compared with in one step.
const ENTRIES_A_STEP: usize = 256;

/// A commitment to make.
#[derive(Debug, Clone)]
pub struct CommitmentRequest {
    /// What is intended.
    pub intention: IntentionRequest,
    /// When it fires.
    pub condition: ConditionRequest,
    /// The caller's idempotency key.
    pub claim: Option<Claim<CommitmentRecord>>,
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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
}

impl Memory {
    /// Makes a commitment; once this resolves it survives a crash.
    pub async fn commit(
        &self,
        scope: &Scope,
        request: CommitmentRequest,
    ) -> Result<CommitmentRecord> {
        refuse_empty(&request)?;
        for _ in 0..TRIES {
            match self.commit_once(scope, &request).await {
                // A secret was registered meanwhile: the text may hold it.
                Err(MemoryError::Store(StoreError::SecretsChanged)) => {}
                done => return done,
            }
        }
        Err(StoreError::SecretsChanged.into())
    }

    async fn commit_once(
        &self,
        scope: &Scope,
        request: &CommitmentRequest,
    ) -> Result<CommitmentRecord> {
        let now = self.now();
        if matches!(request.condition, ConditionRequest::Time(at) if at <= now) {
            return Err(CommitmentError::Past.into());
        }
        let TenantRedactor { redactor, version } = self.redactor(scope.tenant()).await?;
        let intention = match &request.intention {
            IntentionRequest::Entry(id) => Intention::Entry(redactor.name(id).into_string()),
            IntentionRequest::Text(text) => {
                Intention::New(self.intended(&redactor, version, text, now)?)
            }
        };
        let commitment = NewCommitment {
            intention,
            condition: clean(&redactor, &request.condition),
            now,
            secrets_seen: version,
            most_pending: MAX_PENDING_COMMITMENTS,
            claim: request.claim.clone(),
        };
        let made = self.inner.store.put_commitment(scope, commitment).await?;
        self.inner.wake.notify_one();
        Ok(made)
    }

    fn intended(
        &self,
        redactor: &Redactor,
        secrets_seen: u64,
        text: &str,
        now: Millis,
    ) -> Result<NewEntry> {
        let request = NewEntryRequest {
            content: text.to_owned(),
            tags: vec![COMMITMENT_TAG.to_owned()],
            ..NewEntryRequest::default()
        };
        let tags = checked(&request, self.entry_settings())?;
        let (content, tags, hidden) = hide(redactor, text, &tags);
        let (id, expires_at, claim) = (None, None, None);
        Ok(NewEntry { id, content, tags, expires_at, now, secrets_seen, hidden, claim })
    }

    /// A commitment of a tenant by id.
    pub async fn commitment(&self, tenant: &Tenant, id: &str) -> Result<Option<CommitmentRecord>> {
        let mut found = self.inner.store.commitment(tenant, id).await?;
        self.veil_commitments(tenant, found.iter_mut()).await?;
        Ok(found)
    }

    /// Commitments of a tenant (and memory), newest first.
    pub async fn commitments(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        limit: usize,
    ) -> Result<Vec<CommitmentRecord>> {
        let most = limit.min(MAX_COMMITMENTS);
        let mut found = self.inner.store.commitments(tenant, memory, most).await?;
        self.veil_commitments(tenant, found.iter_mut()).await?;
        Ok(found)
    }

    async fn veil_commitments(
        &self,
        tenant: &Tenant,
        found: impl Iterator<Item = &mut CommitmentRecord>,
    ) -> Result<()> {
        let Some(veil) = self.veil_of(tenant).await? else { return Ok(()) };
        for one in found {
            if let Condition::Predicate { tag, mentions } = &mut one.condition {
                for text in [tag, mentions].into_iter().flatten() {
                    *text = veil.text(text);
                }
            }
        }
        Ok(())
    }

    /// Calls off a commitment that is pending; false if there is none.
    pub async fn cancel_commitment(&self, tenant: &Tenant, id: &str) -> Result<bool> {
        Ok(self.inner.store.cancel_commitment(tenant, id, self.now()).await?)
    }

    /// Fires what is due: by its moment, or because an entry was put that fulfils it.
    /// Answers how many fired.
    pub async fn fire_commitments(&self) -> Result<u64> {
        let mut fired = 0;
        loop {
            let due = self.inner.store.due_commitments(self.now(), A_ROUND).await?;
            if due.is_empty() {
                break;
            }
            for one in &due {
                fired += u64::from(self.fire(one, None).await?.is_some());
            }
        }
        loop {
            let waiting = self.inner.store.waiting_commitments(A_ROUND).await?;
            if waiting.is_empty() {
                return Ok(fired);
            }
            for one in &waiting {
                fired += u64::from(self.look_for(one).await?.is_some());
            }
        }
    }

    /// Compares a waiting commitment with the next entries of its memory, and fires it
    /// if one fulfils it.
    async fn look_for(&self, one: &CommitmentRecord) -> Result<Option<Fired>> {
        let (store, tenant) = (&self.inner.store, one.scope.tenant());
        let head = store.head(tenant).await?;
        let next = store.entries_after(&one.scope, one.through, self.now(), ENTRIES_A_STEP).await?;
        match next.iter().find(|entry| fulfils(one, entry)) {
            Some(entry) => self.fire(one, Some(&entry.id)).await,
            None => {
                let is_all = next.len() < ENTRIES_A_STEP;
                let last = next.last().map_or(one.through, |entry| entry.began);
                // What is put from now on comes after the head that was read before.
                let through = if is_all { last.max(head) } else { last };
                store.look_through(tenant, &one.id, through).await?;
                Ok(None)
            }
        }
    }

    async fn fire(&self, one: &CommitmentRecord, because: Option<&str>) -> Result<Option<Fired>> {
        let tenant = one.scope.tenant();
        let fired = self.inner.store.fire_commitment(tenant, &one.id, because, self.now()).await?;
        if fired.is_some() {
            let (commitment, condition) = (one.id.as_str(), one.condition.as_str());
            tracing::info!(target: "openwop.commitment.fired", commitment, condition, "a commitment fired");
        }
        Ok(fired)
    }
}

fn refuse_empty(request: &CommitmentRequest) -> Result<()> {
    if matches!(&request.intention, IntentionRequest::Text(text) if text.trim().is_empty()) {
        return Err(CommitmentError::Empty.into());
    }
    let ConditionRequest::Predicate { tag, mentions } = &request.condition else { return Ok(()) };
    let is_tag = tag.as_ref().is_some_and(|tag| !tag.trim().is_empty());
    let is_said = mentions.as_ref().is_some_and(|said| !words(said).is_empty());
    let is_short = mentions.as_ref().is_none_or(|said| said.chars().count() <= MAX_MENTIONS_CHARS);
    let is_tag_short =
        tag.as_ref().is_none_or(|tag| (1..=MAX_MENTIONS_CHARS).contains(&tag.chars().count()));
    match (is_tag || is_said) && is_short && is_tag_short && (mentions.is_none() || is_said) {
        true => Ok(()),
        false => Err(CommitmentError::Condition.into()),
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
fn words(text: &str) -> BTreeSet<String> {
    let split = text.split(|letter: char| !letter.is_alphanumeric());
    split.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// Whether an entry is what a commitment waits for. Its own intention is not, nor is
/// another's, nor what was merely made of other entries.
fn fulfils(one: &CommitmentRecord, entry: &EntryRecord) -> bool {
    let Condition::Predicate { tag, mentions } = &one.condition else { return false };
    let is_intention = entry.tags.iter().any(|tag| tag.as_str() == COMMITMENT_TAG);
    if is_intention || entry.derived || entry.id == one.entry {
        return false;
    }
    let has_tag = tag.as_ref().is_none_or(|tag| entry.tags.contains(tag));
    let says = |said: &str| words(said).is_subset(&words(entry.content.as_str()));
    has_tag && mentions.as_ref().is_none_or(|said| says(said.as_str()))
}

#[cfg(test)]
mod tests {
    use icecore_domain::ids::{Position, Principal};
    use icecore_store::CommitmentState;

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
            through: Position(1),
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
                let found = match refuse_empty(&request) {
                    Err(MemoryError::Commitment(error)) => Some(error),
                    _ => None,
                };
                assert_eq!(found, expected, "{request:?}");
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
            when(Some(""), None),
            when(None, Some(" .,!")),
            when(Some("t"), Some("")),
            when(None, Some(&long)),
            when(Some(&long), None),
        ] {
            check("call", bad, Some(CommitmentError::Condition));
        }
    }
}
