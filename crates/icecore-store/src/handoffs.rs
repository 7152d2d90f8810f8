//! Handoffs and what models answered, as they cross the store's contract.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Branch, Ordinal, Position, Scope, Seq, SessionNo};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;

/// Why a session was compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoffTrigger {
    /// A person or a program asked for it.
    Hand,
    /// The next request would not have fit.
    Window,
    /// A provider said that it did not fit.
    Overflow,
}

impl HandoffTrigger {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hand, Self::Window, Self::Overflow];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hand => "hand",
            Self::Window => "window",
            Self::Overflow => "overflow",
        }
    }

    /// The trigger of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == word)
    }
}

/// A handoff to keep: a mark in the history of a branch.
#[derive(Debug, Clone)]
pub struct NewHandoff {
    /// Of which session.
    pub session: SessionNo,
    /// Of which branch.
    pub branch: Branch,
    /// The branch's head as it was read: its last turn's `seq`.
    pub seen_head: Seq,
    /// The handoff in force on the branch's path as it was read, by id.
    pub seen_previous: Option<String>,
    /// The memory's epoch as it was before anything was read: no turn that it tells of
    /// was erased since.
    pub epoch: u64,
    /// Nothing of the branch up to here, and nothing of what it forked from, is in the
    /// API view any more, but for the system prompt and what is `kept`.
    pub through: Ordinal,
    /// Turns up to there that stay, by their `seq`, in order.
    pub kept: Vec<Seq>,
    /// Its text.
    pub text: RedactedText,
    /// Tokens of its text.
    pub tokens: u64,
    /// Tokens of the API view before.
    pub tokens_before: u64,
    /// Tokens of the API view after.
    pub tokens_after: u64,
    /// What wrote it: `heuristic`, `fresh` or `model:NAME`.
    pub made_by: String,
    /// Why.
    pub trigger: HandoffTrigger,
    /// The version of the tenant's secrets that it was redacted with.
    pub secrets_seen: u64,
    /// When.
    pub now: Millis,
}

/// A handoff as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffRecord {
    /// Its id, which tells neither the tenant nor how much there is.
    pub id: String,
    /// The how manyth on its branch's path, from 1.
    pub number: u64,
    /// Of which session.
    pub session: SessionNo,
    /// Of which branch.
    pub branch: Branch,
    /// See [`NewHandoff::through`].
    pub through: Ordinal,
    /// See [`NewHandoff::kept`].
    pub kept: Vec<Seq>,
    /// Its text.
    pub text: RedactedText,
    /// Tokens of its text.
    pub tokens: u64,
    /// Tokens of the API view before.
    pub tokens_before: u64,
    /// Tokens of the API view after.
    pub tokens_after: u64,
    /// What wrote it; `person` once one changed it.
    pub made_by: String,
    /// Why.
    pub trigger: HandoffTrigger,
    /// The one before on the path.
    pub previous: Option<String>,
    /// Its version: 1, and one more with each change by a person.
    pub version: u64,
    /// When it was made.
    pub at: Millis,
    /// Where it stands in the tenant's log.
    pub position: Position,
}

/// What came of keeping one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeptHandoff {
    /// It is in force.
    Done(Box<HandoffRecord>),
    /// The head, the handoff before or the epoch is another by now; nothing was done.
    Changed,
}

/// A person's correction.
#[derive(Debug, Clone)]
pub struct HandoffEdit {
    /// The session.
    pub session: SessionNo,
    /// The branch that the person saw it on.
    pub branch: Branch,
    /// Which handoff.
    pub id: String,
    /// The version that the person saw.
    pub seen_version: u64,
    /// What it says now.
    pub text: RedactedText,
    /// Tokens of it.
    pub tokens: u64,
    /// Tokens of the API view with it.
    pub tokens_after: u64,
    /// The version of the tenant's secrets that it was redacted with.
    pub secrets_seen: u64,
    /// When.
    pub now: Millis,
}

/// What a provider counted for the API view of a branch up to a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewUsage {
    /// Of which session.
    pub session: SessionNo,
    /// Of which branch.
    pub branch: Branch,
    /// Counted by which model, as its settings or its server call it.
    pub model: String,
    /// The last turn that was counted, by its `seq`.
    pub through: Seq,
    /// The handoff that the view began with.
    pub handoff: Option<String>,
    /// Tokens of all that, as the provider counts.
    pub tokens: u64,
    /// The same, as we count.
    pub counted: u64,
}

/// An answer of a model to keep.
#[derive(Debug, Clone)]
pub struct NewAnswer {
    /// Keyed hash of what was asked and of the model's identity.
    pub key: [u8; 32],
    /// The session whose turns were asked about; none if it was about several, or about
    /// entries. Goes when any of that goes.
    pub session: Option<SessionNo>,
    /// The memory's epoch as it was before anything was read that it was asked about.
    pub epoch: u64,
    /// What it answered.
    pub text: RedactedText,
    /// The version of the tenant's secrets that it was redacted with.
    pub secrets_seen: u64,
    /// When.
    pub now: Millis,
}

/// What was spent, or saved, for a purpose by a model on a day.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spending {
    /// The day, in days since 1970 in UTC.
    pub day: i64,
    /// For what: `summary`, `handoff`, `dream`, `consolidation`, `exchange`; `context` for
    /// what summaries saved.
    pub purpose: String,
    /// By which model; empty for `context`.
    pub model: String,
    /// Requests that were sent.
    pub calls: u64,
    /// Of these, how many brought no usable answer.
    pub failed: u64,
    /// Answers that were at hand and cost nothing.
    pub reused: u64,
    /// Tokens read.
    pub input: u64,
    /// Of these, from a cache.
    pub cached_input: u64,
    /// Tokens written.
    pub output: u64,
    /// Millionths of the currency.
    pub cost: u64,
    /// Tokens that contexts and views did not have to hold, thanks to it.
    pub saved: u64,
}

impl Spending {
    /// Adds what another counted. Counts stay at the largest number that a store has.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.calls, other.calls),
            (&mut self.failed, other.failed),
            (&mut self.reused, other.reused),
            (&mut self.input, other.input),
            (&mut self.cached_input, other.cached_input),
            (&mut self.output, other.output),
            (&mut self.cost, other.cost),
            (&mut self.saved, other.saved),
        ];
        for (sum, more) in pairs {
            *sum = sum.saturating_add(more).min(i64::MAX as u64);
        }
    }
}

/// The kinds of records whose payload has a session's number in the store, and its name
/// where it is read.
pub(crate) const OF_SESSIONS: [&str; 2] = [COMPACTED, EDITED];

/// A handoff was kept.
pub(crate) const COMPACTED: &str = "session.compacted";

/// A person changed one.
pub(crate) const EDITED: &str = "session.handoff_edited";

/// What wrote a handoff that a person changed.
pub(crate) const PERSON: &str = "person";

/// The id of a handoff. It tells neither the tenant nor how much there is, and follows
/// from where it stands in the log.
pub(crate) fn handoff_id(key: &IdentityKey, position: Position) -> String {
    let hash = key.hash_name("handoff", &position.to_string());
    format!("h-{}", hex::encode(&hash[..10]))
}

/// What the log keeps of a handoff: ids and counts.
pub(crate) fn compacted(scope: &Scope, record: &HandoffRecord) -> String {
    serde_json::json!({
        "memoryRef": scope.memory(),
        "session": record.session.0,
        "branch": record.branch.to_string(),
        "compactionId": record.id,
        "number": record.number,
        "tokensBefore": record.tokens_before,
        "tokensAfter": record.tokens_after,
        "trigger": record.trigger.as_str(),
        "madeBy": record.made_by,
    })
    .to_string()
}

/// What the log keeps of a change of one.
pub(crate) fn edited(scope: &Scope, record: &HandoffRecord) -> String {
    serde_json::json!({
        "memoryRef": scope.memory(),
        "session": record.session.0,
        "branch": record.branch.to_string(),
        "compactionId": record.id,
        "version": record.version,
    })
    .to_string()
}

/// The session whose number a payload has.
pub(crate) fn session_of(payload: &str) -> Option<SessionNo> {
    let value: serde_json::Value = serde_json::from_str(payload).ok()?;
    value["session"].as_u64().map(SessionNo)
}

/// A payload with the name that its session has now, if it has one.
pub(crate) fn named(payload: &str, name: Option<&str>) -> String {
    let Ok(mut value) = serde_json::from_str::<serde_json::Value>(payload) else {
        return payload.to_owned();
    };
    value["session"] = name.into();
    value.to_string()
}

/// Where the branches of a session forked from others.
pub(crate) type Forks = BTreeMap<Branch, Option<(Branch, Ordinal)>>;

/// The path to an ordinal of a branch: branches root first, each with the last ordinal
/// of it that is on the path.
pub(crate) fn path(forks: &Forks, branch: Branch, last: Ordinal) -> Vec<(Branch, Ordinal)> {
    let mut path = vec![(branch, last)];
    let fork = |branch: Branch| forks.get(&branch).copied().flatten();
    while let Some((parent, at)) = path.last().and_then(|(branch, _)| fork(*branch)) {
        // A fork has a larger number than what it forks from.
        if path.last().is_some_and(|(branch, _)| parent >= *branch) {
            break;
        }
        path.push((parent, at));
    }
    path.reverse();
    path
}

/// Which turns a handoff covers, and what it was made of.
#[derive(Debug, Clone)]
pub(crate) struct Mark {
    pub(crate) id: String,
    pub(crate) branch: Branch,
    pub(crate) through: Ordinal,
    pub(crate) previous: Option<String>,
}

/// The handoffs of a session, given oldest first, that go when turns do, of which the
/// first of each branch is given: those that cover one, and those that were made of
/// these.
pub(crate) fn losing(
    forks: &Forks,
    marks: &[Mark],
    gone: &BTreeMap<Branch, Ordinal>,
) -> BTreeSet<String> {
    let mut lost = BTreeSet::new();
    for mark in marks {
        let path = path(forks, mark.branch, mark.through);
        let covers = |(branch, last): &(Branch, Ordinal)| {
            gone.get(branch).is_some_and(|first| first <= last)
        };
        let is_made_of_lost = mark.previous.as_ref().is_some_and(|one| lost.contains(one));
        if is_made_of_lost || path.iter().any(covers) {
            lost.insert(mark.id.clone());
        }
    }
    lost
}

/// The handoffs of a session, given oldest first, that were made of some of them.
pub(crate) fn made_of(marks: &[Mark], of: &BTreeSet<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for mark in marks {
        let is_made = |one: &String| of.contains(one) || found.contains(one);
        if mark.previous.as_ref().is_some_and(is_made) {
            found.insert(mark.id.clone());
        }
    }
    found
}
