//! Layered memory for AI agents.
//!
//! Give it every turn; ask what answers a question, or for a context that fits a
//! token budget. What was said
//! is kept whole, pressed layer by layer, and can be read back.
//!
//! ```
//! use icecore::{ContextRequest, Memory, Principal, RawTurn, SearchRequest, Tenant};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let memory = Memory::in_memory();
//! let scope = memory.scope(&Principal::local_operator(Tenant::new("me")?), "notes").await?;
//! memory.remember(&scope, "trip", vec![RawTurn::new("user", "We leave on 4 May.")]).await?;
//! let found = memory.search(&scope, &SearchRequest::new("When do we leave?")).await?;
//! let context = memory.context(&scope, ContextRequest::of_session("trip", 200)).await?;
//! assert_eq!(found.hits[0].text, "We leave on 4 May.");
//! assert!(context.text.contains("4 May") && context.tokens <= 200);
//! # Ok(())
//! # }
//! ```
//!
//! Knows how memory behaves, and no SQL and no wire format.

mod admission;
mod archives;
mod bodies;
mod check;
mod compaction;
mod consolidation;
mod context;
mod counters;
mod distiller;
mod dreams;
mod entries;
mod error;
#[doc(hidden)]
pub mod extend;
mod forget;
mod handoffs;
mod histories;
mod history;
mod import;
mod indexing;
mod learn;
mod leases;
mod memory;
mod memory_index;
mod models;
mod moving;
mod opening;
mod pieces;
mod recollection;
mod redream;
mod rescan;
mod search;
mod secrets;
mod settings;
mod veil;
mod worker;

pub use archives::ArchiveReport;
pub use check::{CheckReport, PackReport};
pub use compaction::{Compaction, CompactionRequest, MAX_COMPACTED_ENTRIES, MAX_TOLD_IDS};
pub use consolidation::{
    CONSOLIDATION_WINDOW, Consolidation, ConsolidationTrigger, MAX_CONSOLIDATED_ENTRIES,
};
pub use context::{Context, ContextRequest};
pub use counters::{Counters, ModelCounts};
pub use distiller::{Distiller, DistillerError};
pub use dreams::{
    DREAM_WORKFLOW, Dream, DreamPhase, DreamPreview, DreamProgress, DreamRequest, DreamSettings,
};
pub use entries::{
    EntryError, EntryList, EntryQuery, EntryRank, MAX_ENTRIES, MAX_ENTRY_QUERY_CHARS,
    NewEntryRequest,
};
pub use error::MemoryError;
pub use forget::{Erased, ForgetRequest, Receipt};
pub use handoffs::{
    ApiView, CompactRequest, Compacted, ExchangeRequest, Exchanged, FitRequest, Fitted,
    HandoffInfo, HandoffSettings, Reminder,
};
pub use histories::{
    ClientMessage, FittedHistory, FollowRequest, Followed, HistoryFit, ProviderCount,
};
pub use history::{ChunkInfo, Found, SessionInfo, Stats, StoredTurn, View, ViewMessage};
pub use icecore_domain::chat::{
    Answering, ChatError, ChatModel, ChatProfile, ChatReply, ChatRequest, Finish, Prices, Protocol,
    Usage,
};
pub use icecore_domain::chunk::{ChunkId, Level, Tier};
pub use icecore_domain::dream::{self as dream, Archive, Checksum, Distillate};
pub use icecore_domain::embed::{EmbedError, Embedder, ModelId, Vector};
pub use icecore_domain::fact::{FactKind, FactStatus};
pub use icecore_domain::follow::Following;
pub use icecore_domain::handoff::{
    Effort, ExceedsWindow, HANDOFF_MARK, PINNED_TAG, RECALL_MARK, SessionWindow,
};
pub use icecore_domain::ids::{
    Branch, MAX_NAME_BYTES, NameError, Ordinal, Position, Principal, Scope, Seq, SessionName,
    Tenant, TurnId,
};
pub use icecore_domain::redact::{
    Hidden, Kind, MAX_SECRET_BYTES, Proof, RedactedStream, RedactedText, RedactedTurn, Redactor,
    SecretError, UnknownPii,
};
pub use icecore_domain::time::{Clock, Millis};
pub use icecore_domain::tokens::TokenCounter;
pub use icecore_domain::turn::{Content, MAX_CONTENT_BYTES, RawTurn, Timestamp, TurnError};
pub use icecore_domain::window::{WindowItem, WindowKind};
pub use icecore_domain::{ctf, json, turn_jsonl};
pub use icecore_index::{DocKind, IndexSettings, Mode, Signal};
pub use icecore_store::{
    Appended, AppendedTurn, ArchiveRecord, BodyPlace, Claim, DreamFigures, DreamQuery, DreamRecord,
    DreamState, DreamTrigger, EntryRecord, EventRecord, HandoffTrigger, KeptBound, LogKind,
    ObjectKeys, ObjectPlace, ObjectSettings, Outcome, PostgresOptions, Rotated, SecretRecord,
    Spending, Store, StoreError, StoreStats, StoreTimings, TIME_BOUNDS_SECONDS, Times, TurnState,
};
pub use icecore_store::{Backup, BackupOf, BackupReport, Doing, MigrationReport, Moved, Restored};
pub use import::{ImportPlan, ImportReport, Progress, Repeat};
pub use learn::{FactInfo, FactQuery, FactSource, MAX_FACT_CHARS};
pub use leases::WorkerSettings;
pub use memory::{Append, Memory, MemoryBuilder, Remembered, SystemClock, TurnInput};
pub use memory_index::IndexFile;
pub use models::{
    BreakEven, FAILURES_IN_A_ROW, LONGEST_PAUSE_SECONDS, MAX_JUDGED_PAIRS, MODEL_PAUSE_SECONDS,
    ModelChain, ModelStats, Models, Purpose, SUMMARIES_AT_ONCE, SpendLimits, spending,
};
pub use moving::{migrate, open_backup};
pub use rescan::Rescanned;
pub use search::{DEFAULT_HITS, Hit, Hits, MAX_HITS, SearchRequest, matched_words};
pub use secrets::{AddedSecret, LogRedactor, TenantRedactor};
pub use settings::{
    BudgetCounter, ColdFormat, CompactionSettings, CutSettings, EntrySettings, MemorySettings,
    PiiKinds, RedactionSettings, WarmFormat, reserve_conflict,
};
pub use worker::{Settled, TENANTS_AT_ONCE};
