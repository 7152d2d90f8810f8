//! Entries that stand for others, as they cross the store's contract.

use std::sync::Arc;

use icecore_domain::ids::Position;
use icecore_domain::redact::{Hidden, RedactedText};
use icecore_domain::time::Millis;

use crate::store::EntryRecord;

/// Makes the payload of a record from the ids of what was written.
pub type MakePayload = Arc<dyn Fn(&[String]) -> serde_json::Value + Send + Sync>;

/// Entries to write in place of others, in one step.
#[derive(Clone)]
pub struct Derivation {
    /// What is written, in order.
    pub outputs: Vec<DerivedEntry>,
    /// What is in force no more.
    pub replaced: Vec<Replaced>,
    /// What the one record of the log is called.
    pub kind: DerivationKind,
    /// Makes the record's payload from the ids of the outputs. It holds no content.
    pub payload: MakePayload,
    /// Now.
    pub now: Millis,
    /// The version of the tenant's secrets with which the outputs were redacted.
    pub secrets_seen: u64,
}

impl std::fmt::Debug for Derivation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Derivation")
            .field("kind", &self.kind)
            .field("replaced", &self.replaced)
            .finish_non_exhaustive()
    }
}

/// An entry that is made of others.
#[derive(Debug, Clone)]
pub struct DerivedEntry {
    /// Its id, where its maker chose one that nothing else in the tenant has.
    pub id: Option<String>,
    /// What it says.
    pub content: RedactedText,
    /// Its tags.
    pub tags: Vec<RedactedText>,
    /// When it ends by itself. It quotes nothing that expires sooner.
    pub expires_at: Option<Millis>,
    /// What was hidden in it.
    pub hidden: Hidden,
}

/// An entry that another stands for from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// Its id.
    pub id: String,
    /// What stands for it.
    pub by: Successor,
    /// Whether that says something else. If it goes, an entry that was overtaken is in
    /// force again; any other goes with it, for then its words are gone too.
    pub is_overtaken: bool,
}

/// What stands for an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Successor {
    /// An output of the same derivation, by its place.
    Output(usize),
    /// An entry that is there and stays as it is.
    Kept(String),
}

/// Why entries were derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DerivationKind {
    /// Many were pressed into one.
    Compacted,
    /// What said the same, or was overtaken, was put together.
    Consolidated,
}

impl DerivationKind {
    /// The event's kind.
    pub fn as_str(self) -> &'static str {
        match self {
            DerivationKind::Compacted => "memory.compacted",
            DerivationKind::Consolidated => "agent.memory.consolidated",
        }
    }
}

/// What came of a derivation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// The entries that were written, in order.
    pub outputs: Vec<EntryRecord>,
    /// The payload of the record.
    pub payload: String,
    /// Where in the log.
    pub position: Position,
}

/// Where an entry is among those of its memory, which are ordered so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryPlace {
    /// When it was put.
    pub created_at: Millis,
    /// Where it began.
    pub began: Position,
}

impl EntryRecord {
    /// Where it is among those of its memory.
    pub fn place(&self) -> EntryPlace {
        EntryPlace { created_at: self.created_at, began: self.began }
    }
}
