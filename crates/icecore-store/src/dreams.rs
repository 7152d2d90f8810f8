//! Dreams and their archives, as they cross the store's contract.

use icecore_domain::dream::{Checksum, INDEX_PATH};
use icecore_domain::ids::{Branch, Ordinal, Position, Scope, SessionNo};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;
use icecore_domain::workspace::{FilePath, Workspace};

use crate::derivation::{DerivedEntry, MakePayload};
use crate::pack::PackKey;
use crate::runs::{NewRun, RunStep};
use crate::store::EntryRecord;
use crate::workspace::NewFile;

/// No lease is for longer than this, in milliseconds: one that seems to be was taken by
/// a clock that was wrong, and is nobody's.
pub const MAX_LEASE_MILLIS: i64 = 3_600_000;

/// Who may dream in a memory, until when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Whoever took it, by a name that nobody else has.
    pub holder: String,
    /// Afterwards anybody may take it.
    pub until: Millis,
}

/// What a branch has that no dream has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undreamt {
    /// Of which session.
    pub session: SessionNo,
    /// Which branch.
    pub branch: Branch,
    /// Its own turns up to here have been read; 0 if none.
    pub after: Ordinal,
    /// Its last turn.
    pub through: Ordinal,
}

/// Turns of a branch that a dream read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DreamSpan {
    /// Of which session.
    pub session: SessionNo,
    /// Of which branch.
    pub branch: Branch,
    /// Those after this.
    pub after: Ordinal,
    /// Up to this.
    pub through: Ordinal,
}

/// How much a dream read and wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DreamFigures {
    /// Tokens that it might use.
    pub budget: u64,
    /// The smallest budget that would not have been refused.
    pub minimum: u64,
    /// Tokens of what it read.
    pub input_tokens: u64,
    /// Tokens of what it wrote.
    pub output_tokens: u64,
    /// Sources that it read.
    pub source_count: u64,
    /// Sources that stayed due.
    pub remaining: u64,
    /// Bytes of the sources that it stands for, as they are stored.
    pub bytes_before: u64,
    /// Bytes of what stands for them.
    pub bytes_after: u64,
    /// Lines of the distillate.
    pub lines: u64,
}

/// Who asked for a dream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DreamTrigger {
    /// Somebody, at a door.
    Manual,
    /// A schedule.
    Scheduled,
    /// The host, because something that an earlier one had read was forgotten.
    Anew,
}

impl DreamTrigger {
    const ALL: [DreamTrigger; 3] =
        [DreamTrigger::Manual, DreamTrigger::Scheduled, DreamTrigger::Anew];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            DreamTrigger::Manual => "manual",
            DreamTrigger::Scheduled => "scheduled",
            DreamTrigger::Anew => "anew",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        DreamTrigger::ALL.into_iter().find(|trigger| trigger.as_str() == word)
    }
}

/// An archive whose body has been written.
#[derive(Debug, Clone)]
pub struct NewArchive {
    /// Its address: the SHA-256 of its plaintext.
    pub checksum: Checksum,
    /// The random name of its body.
    pub name: String,
    /// The body's own key.
    pub key: PackKey,
    /// Bytes of the plaintext.
    pub bytes: u64,
    /// Bytes of the body as it lies there.
    pub stored_bytes: u64,
    /// SHA-256 of the body as it lies there.
    pub sha256: [u8; 32],
}

/// The run that a dream is.
#[derive(Debug, Clone)]
pub enum DreamRun {
    /// It is made with its dream, and has ended: all its events are given.
    New(NewRun),
    /// It was made before, and ends with its dream.
    Step(RunStep),
}

impl DreamRun {
    /// The run's id.
    pub fn id(&self) -> &str {
        match self {
            DreamRun::New(run) => &run.id,
            DreamRun::Step(step) => &step.run,
        }
    }
}

/// A dream to keep, all of it or nothing.
#[derive(Clone)]
pub struct NewDream {
    /// Who dreamt it; must still hold the memory's lease.
    pub holder: String,
    /// The run of the dream in force that it was read on top of, if any.
    pub previous: Option<String>,
    /// The scope's epoch when it was read.
    pub epoch: u64,
    /// The run that it is.
    pub run: DreamRun,
    /// Who asked for it.
    pub trigger: DreamTrigger,
    /// What made the distillate.
    pub distiller: String,
    /// The distillate, or its head, as an entry.
    pub output: DerivedEntry,
    /// The entries that it stands for from now on, the previous dream's among them.
    pub entries: Vec<String>,
    /// The turns that it read.
    pub spans: Vec<DreamSpan>,
    /// Its archive.
    pub archive: NewArchive,
    /// How much it read and wrote.
    pub figures: DreamFigures,
    /// The section of the index that tells of it, as JSON without content beyond topics.
    pub section: RedactedText,
    /// Which source is which id, as JSON, in the order of the archive's list.
    pub source_ids: RedactedText,
    /// The index file as it is then, where one is kept.
    pub index: Option<(Workspace, NewFile)>,
    /// Makes the payload of `memory.compacted` from the id of the output. It holds no
    /// content.
    pub payload: MakePayload,
    /// Now.
    pub now: Millis,
    /// The version of the tenant's secrets with which everything was redacted.
    pub secrets_seen: u64,
}

impl std::fmt::Debug for NewDream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewDream")
            .field("run", &self.run.id())
            .field("archive", &self.archive.checksum)
            .finish_non_exhaustive()
    }
}

/// What became of a dream that was to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// It is kept.
    Done(Box<KeptDream>),
    /// What it was read from is not so any more, or its run has gone on: nothing was
    /// done.
    Changed,
    /// Somebody else has the lease: nothing was done.
    LeaseLost,
}

/// A dream that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptDream {
    /// The dream.
    pub dream: DreamRecord,
    /// The entry that it wrote.
    pub output: EntryRecord,
    /// The payload of `memory.compacted`.
    pub payload: String,
    /// Where that is in the log.
    pub position: Position,
}

/// How a dream stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DreamState {
    /// It is the memory's newest, and answers.
    InForce,
    /// A newer one was made of it.
    Superseded,
    /// It was taken back.
    Undone,
    /// Something that it had read was forgotten, and it with that.
    Erased,
}

impl DreamState {
    const ALL: [DreamState; 4] =
        [DreamState::InForce, DreamState::Superseded, DreamState::Undone, DreamState::Erased];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            DreamState::InForce => "in-force",
            DreamState::Superseded => "superseded",
            DreamState::Undone => "undone",
            DreamState::Erased => "erased",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Self> {
        DreamState::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// A dream as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DreamRecord {
    /// The run that it is.
    pub run: String,
    /// In which memory.
    pub scope: Scope,
    /// Which of the memory's dreams it is, from 1.
    pub number: u64,
    /// How it stands.
    pub state: DreamState,
    /// The dream that it was made on top of.
    pub previous: Option<String>,
    /// Who asked for it.
    pub trigger: DreamTrigger,
    /// What made the distillate.
    pub distiller: String,
    /// The entry that it wrote.
    pub output: String,
    /// Its archive's address.
    pub archive: Checksum,
    /// How much it read and wrote.
    pub figures: DreamFigures,
    /// The section of the index that tells of it; empty once it is undone or erased.
    pub section: RedactedText,
    /// Which source is which id; empty once it is undone or erased.
    pub source_ids: RedactedText,
    /// Whether it changed the index.
    pub index_updated: bool,
    /// Where `memory.compacted` is in the log.
    pub position: Position,
    /// When it was kept.
    pub created_at: Millis,
}

/// An archive as kept.
#[derive(Debug, Clone)]
pub struct ArchiveRecord {
    /// In which memory.
    pub scope: Scope,
    /// Its address.
    pub checksum: Checksum,
    /// The run of the last dream that came to it.
    pub run: String,
    /// The name of its body.
    pub name: String,
    /// The body's key; none once it was erased or is past its retention.
    pub key: Option<PackKey>,
    /// Bytes of the plaintext.
    pub bytes: u64,
    /// Bytes of the body as it lies there.
    pub stored_bytes: u64,
    /// SHA-256 of the body as it lies there.
    pub sha256: [u8; 32],
    /// When it was written first.
    pub created_at: Millis,
    /// When its key was destroyed because something in it was forgotten.
    pub erased_at: Option<Millis>,
    /// When its key was destroyed because it was past its retention, or taken back.
    pub expired_at: Option<Millis>,
}

/// Which dreams are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DreamQuery {
    /// Of one memory; without, of the tenant.
    pub memory: Option<String>,
    /// Only those in force.
    pub in_force: bool,
    /// Only those before this one in the list.
    pub before: Option<Position>,
    /// At most so many.
    pub limit: usize,
}

/// A memory whose dreams were lost with something that was forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DreamDue {
    /// Which.
    pub scope: Scope,
    /// The largest budget of those that were lost.
    pub budget: u64,
    /// The scope's epoch, which rises when more is lost.
    pub epoch: u64,
}

/// The payload of `dream.undone`.
pub(crate) fn undone(scope: &Scope, run: &str, output: &str) -> String {
    let payload =
        serde_json::json!({ "memoryRef": scope.memory(), "runId": run, "memoryId": output });
    payload.to_string()
}

/// The payload of `dream.lost`.
pub(crate) fn lost(scope: &Scope, runs: usize) -> String {
    serde_json::json!({ "memoryRef": scope.memory(), "runs": runs }).to_string()
}

/// The files that tell of dreams, in the workspace of a tenant.
pub(crate) const INDEX_FILES: [&str; 2] = [INDEX_PATH, "MEMORY-INDEX.md"];

/// Whether a file is the one that says where the memory of a tenant is.
pub(crate) fn is_index(workspace: &Workspace, path: &FilePath) -> bool {
    workspace.name() == Workspace::DEFAULT && path.as_str() == INDEX_PATH
}
