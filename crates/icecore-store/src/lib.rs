//! Where a memory's ground state lives: durable tables, and packs of cold bodies.
//!
//! [`Store`] is two functions, read and write, over SQLite or PostgreSQL. Each noun (turns,
//! layers, entries, facts, …) is one module: its records, its operations, its SQL. What an
//! operation promises stands at its method of [`Store`].

#![allow(missing_docs, reason = "the names of plain fields and variants say what they are")]

mod answers;
mod bounds;
mod check;
#[cfg(test)]
#[path = "../tests/contract/mod.rs"]
mod contract;
mod dreams;
mod engine;
mod entries;
#[cfg(test)]
mod entries_tests;
mod erase;
mod error;
mod facts;
mod files;
mod handoffs;
#[cfg(test)]
#[path = "../tests/contract/histories.rs"]
mod histories_tests;
mod host;
mod keys;
mod layers;
mod log;
mod objects;
mod outcomes;
mod pack;
mod packs;
mod reredact;
mod rescan;
mod scopes;
mod secrets;
mod store;
mod tables;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod timings;
mod transfer;
mod turns;
mod usage;
mod words;
#[cfg(test)]
mod workspace_tests;

pub use answers::{NewAnswer, Spending};
pub use bounds::{AllUsage, Bounds, DayUse, KeptBounds, Usage, day_of, end_of_day};
pub use check::StoreStats;
pub use dreams::seal::{MAX_ARCHIVE_BYTES, open_archive, seal_archive};
pub use dreams::{
    ArchiveRecord, DreamDue, DreamFigures, DreamQuery, DreamRecord, DreamRun, DreamSpan,
    DreamState, DreamTrigger, Kept, KeptDream, Lease, NewArchive, NewDream, Undreamt,
};
#[cfg(feature = "postgres")]
pub use engine::postgres::{Hint, PgError};
pub use engine::postgres_options::PostgresOptions;
pub use engine::rotation::Rotated;
pub use engine::sqlite::BUSY_SECONDS;
pub use engine::tx::{Isolation, Tx};
pub use entries::commitments::{
    CommitmentQuery, CommitmentRecord, CommitmentState, Condition, Fired, Fulfilled, Intention,
    Look, NewCommitment, Watch,
};
pub use entries::derivation::{
    Derivation, DerivationKind, Derived, DerivedEntry, EntryPlace, MakePayload, Replaced, Successor,
};
pub use entries::{EntryFilter, EntryRecord, NewEntry};
pub use erase::{Erasure, Rewrite, RewrittenTurn, Selected, Selector};
pub use error::{DatabaseError, KeptBound, Result, StoreError};
pub use facts::{FactBatch, FactRecord, NewFact, NewVerdict, VerdictRecord};
pub use handoffs::{
    HandoffEdit, HandoffRecord, HandoffTrigger, KeptHandoff, NewHandoff, ViewUsage,
};
pub use host::api_keys::{
    ApiKeyRecord, KeyActor, KeyRevocation, KeyRotation, KeyState, RotatedKey,
};
pub use host::runs::{
    EntryRef, ForkOf, NewFork, NewRun, NewRunEvent, RunError, RunEventRecord, RunFile, RunRecord,
    RunStatus, RunStep, RunValue, RunVariable, RunWrite,
};
pub use host::schedules::ticks::{
    Claimed, MAX_BACKOFF_MILLIS, TakenOver, TickClaim, TickEnd, TickOutcome, TickRecord,
};
pub use host::schedules::{NewSchedule, NextTick, ScheduleRecord, ScheduleTask, ScheduleTiming};
pub use host::workspace::{Expect, FileHead, FileRecord, NewFile};
pub use keys::{MASTER_KEY_FILE, MASTER_KEY_NEXT_FILE, MASTER_KEY_VARIABLE, MasterKey, TenantKey};
pub use layers::{
    BodyPlace, ChunkQuery, ChunkRecord, ColdBody, ColdDemotion, DueBranch, MicroBody, NewPack,
    PackCursor, PackRecord, SummaryBatch, TextBody, WarmDemotion,
};
pub use log::{Erasures, EventRecord, LogKind, Outcome};
pub use objects::{ObjectKeys, ObjectPlace, ObjectSettings};
pub use outcomes::{Claim, NewOutcome, OUTCOME_KEPT_MILLIS, OutcomeBody, StoredOutcome};
pub use pack::{
    MAX_FRAME_BYTES, PACK_VERSION, PackKey, PackMember, PackReader, TextFormat,
    build as build_pack, identity as pack_identity,
};
pub use packs::{PackObject, Packs};
pub use reredact::RewriteCounts;
pub use secrets::{SecretRecord, TenantSecrets};
pub use store::Store;
#[cfg(debug_assertions)]
pub use store::hooks;
pub use store::leases::Fence;
pub use timings::{StoreTimings, TIME_BOUNDS_SECONDS, Times};
pub use transfer::{
    Backup, BackupOf, BackupReport, Doing, MOVING, MigrationReport, Moved, Moving, Objects,
    Restored, Tell, back_up, half_moved_from, migrate, restore,
};
pub use turns::{
    AppendBatch, Appended, AppendedTurn, BranchRecord, LinkedTurn, MOST_LINKED, NewRecalled,
    NewTurn, ParentRef, ScopeHead, SessionRecord, TurnPlace, TurnQuery, TurnRow, TurnState,
};
