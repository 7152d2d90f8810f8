//! Commitments, as they cross the store's contract.

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Position, Scope};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;

use crate::store::{Claim, NewEntry};
use crate::told::Again;

/// An intention to keep until its condition holds.
#[derive(Debug, Clone)]
pub struct NewCommitment {
    /// The intention: a new entry, or one that is there.
    pub intention: Intention,
    /// When it fires.
    pub condition: Condition,
    /// Now.
    pub now: Millis,
    /// The version of the tenant's secrets with which its text was redacted.
    pub secrets_seen: u64,
    /// So many may be pending in a memory.
    pub most_pending: u64,
    /// And so many in all memories of a tenant.
    pub most_pending_tenant: u64,
    /// The caller's key, whose outcome is kept in the same step.
    pub claim: Option<Claim<CommitmentRecord>>,
}

/// Where an intention is written.
#[derive(Debug, Clone)]
pub enum Intention {
    /// In an entry that is put in the same step. Its claim is not looked at.
    New(NewEntry),
    /// In an entry in force, by id.
    Entry(String),
}

/// When a commitment fires. It fires once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// At a moment.
    Time(Millis),
    /// When an entry is put, later, of which all that is asked for holds.
    Predicate {
        /// It has this tag.
        tag: Option<RedactedText>,
        /// It says all these words.
        mentions: Option<RedactedText>,
    },
}

impl Condition {
    /// The word for its kind.
    pub fn as_str(&self) -> &'static str {
        match self {
            Condition::Time(_) => "time",
            Condition::Predicate { .. } => "predicate",
        }
    }
}

/// How a commitment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitmentState {
    /// It waits.
    Pending,
    /// It fired.
    Fired,
    /// It was called off.
    Cancelled,
    /// Its intention was not there any more when it would have fired.
    Void,
}

impl CommitmentState {
    /// All of them.
    pub const ALL: [CommitmentState; 4] = [
        CommitmentState::Pending,
        CommitmentState::Fired,
        CommitmentState::Cancelled,
        CommitmentState::Void,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            CommitmentState::Pending => "pending",
            CommitmentState::Fired => "fired",
            CommitmentState::Cancelled => "cancelled",
            CommitmentState::Void => "void",
        }
    }
}

/// A commitment as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitmentRecord {
    /// Its id, which nothing else in the tenant has.
    pub id: String,
    /// Of which memory.
    pub scope: Scope,
    /// The entry that is the intention.
    pub entry: String,
    /// When it fires. A predicate that is settled tells nothing of what it was.
    pub condition: Condition,
    /// How it stands.
    pub state: CommitmentState,
    /// When it was made.
    pub created_at: Millis,
    /// When it fired, was called off or found void.
    pub settled_at: Option<Millis>,
    /// Where in the log it was made. Entries that begin later may fulfil it.
    pub made: Position,
}

/// Which commitments of a tenant are listed, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommitmentQuery {
    /// Those of this memory.
    pub memory: Option<String>,
    /// Those that stand so.
    pub state: Option<CommitmentState>,
    /// Those made before this one, by its id; none, if there is no such.
    pub before: Option<String>,
    /// So many at most.
    pub limit: usize,
}

impl CommitmentQuery {
    /// The newest of a tenant.
    pub fn newest(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }
}

/// What a memory's commitments wait for, and which entries are to be compared with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// Those that are pending and wait for an entry, as they were made.
    pub waiting: Vec<CommitmentRecord>,
    /// Entries that began after this,
    pub after: Position,
    /// and no later than this. What is made from now on is made later.
    pub through: Position,
}

/// What came of comparing entries with what a memory's commitments wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// No entry up to here fulfils any other than these.
    pub through: Position,
    /// What is fulfilled.
    pub fulfilled: Vec<Fulfilled>,
    /// Now.
    pub now: Millis,
}

/// A commitment that an entry fulfils.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fulfilled {
    /// The commitment's id.
    pub commitment: String,
    /// The entry's.
    pub because: String,
}

/// What came of firing one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fired {
    /// The commitment's id.
    pub commitment: String,
    /// The payload of `commitment.fired`.
    pub payload: String,
    /// Where in the log.
    pub position: Position,
}

/// The id of a commitment. As with an entry's, it tells nothing, and follows from where
/// the commitment was made.
pub(crate) fn commitment_id(key: &IdentityKey, made: Position) -> String {
    let hash = key.hash_name("commitment", &made.to_string());
    format!("c-{}", hex::encode(&hash[..10]))
}

/// What is kept of a condition once it is settled: its words are of no use any more.
pub(crate) fn settled(condition: &Condition) -> Condition {
    match condition {
        Condition::Time(at) => Condition::Time(*at),
        Condition::Predicate { .. } => Condition::Predicate { tag: None, mentions: None },
    }
}

/// The payload of `commitment.made`.
pub(crate) fn made(record: &CommitmentRecord) -> String {
    let payload = serde_json::json!({
        "memoryRef": record.scope.memory(),
        "commitmentId": record.id,
        "memoryId": record.entry,
        "condition": record.condition.as_str(),
    });
    payload.to_string()
}

/// The payload of `commitment.fired`.
pub(crate) fn fired(record: &CommitmentRecord, because: Option<&str>) -> String {
    let mut payload = serde_json::json!({
        "commitmentId": record.id,
        "memoryRef": record.scope.memory(),
        "condition": record.condition.as_str(),
        "memoryId": record.entry,
    });
    if let Some(entry) = because {
        payload["triggerId"] = entry.into();
    }
    payload.to_string()
}

/// The payload of `commitment.cancelled`.
pub(crate) fn cancelled(record: &CommitmentRecord) -> String {
    let payload = serde_json::json!({
        "memoryRef": record.scope.memory(),
        "commitmentId": record.id,
        "memoryId": record.entry,
    });
    payload.to_string()
}

/// The tag and the words that a commitment waits for without what a redactor would
/// hide; none if they are so already.
pub(crate) fn rewritten(
    again: &Again<'_>,
    condition: &Condition,
) -> Option<(Option<RedactedText>, Option<RedactedText>)> {
    let Condition::Predicate { tag, mentions } = condition else { return None };
    let clean = |text: &Option<RedactedText>| {
        let text = text.as_ref()?;
        Some(again.text(text.as_str()).map_or_else(|| text.clone(), |(clean, _)| clean))
    };
    let (new_tag, new_mentions) = (clean(tag), clean(mentions));
    ((&new_tag, &new_mentions) != (tag, mentions)).then_some((new_tag, new_mentions))
}
