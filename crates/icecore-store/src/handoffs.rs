//! Handoffs and what models answered, as they cross the store's contract.

use icecore_domain::ids::{Branch, Ordinal, Position, Seq, SessionNo};
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
    /// The head or the handoff before is another by now; nothing was done.
    Changed,
}

/// A person's correction.
#[derive(Debug, Clone)]
pub struct HandoffEdit {
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
