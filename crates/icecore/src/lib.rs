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

mod base;
mod context;
mod dreams;
mod error;
#[doc(hidden)]
pub mod extend;
mod facts;
mod ingest;
mod knowledge;
mod layers;
mod maintenance;
mod memory;
mod models;
mod privacy;
mod recall;
mod sessions;
mod settings;

pub use base::counters::{Counters, ModelCounts};
pub use base::{Purpose, SystemClock};
pub use context::building::{Context, ContextRequest};
pub use dreams::archives::ArchiveReport;
pub use dreams::dreaming::{
    DREAM_WORKFLOW, Dream, DreamPhase, DreamPreview, DreamProgress, DreamRequest,
};
pub use dreams::memory_index::IndexFile;
pub use error::MemoryError;
pub use facts::learn::{FactInfo, FactQuery, FactSource, MAX_FACT_CHARS};
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
pub use ingest::import::{ImportPlan, ImportReport, Progress, Repeat};
pub use ingest::{Append, Remembered, TurnInput};
pub use knowledge::compaction::{
    Compaction, CompactionRequest, MAX_COMPACTED_ENTRIES, MAX_TOLD_IDS,
};
pub use knowledge::consolidation::{
    CONSOLIDATION_WINDOW, Consolidation, ConsolidationTrigger, MAX_CONSOLIDATED_ENTRIES,
};
pub use knowledge::entries::{
    EntryError, EntryList, EntryQuery, EntryRank, MAX_ENTRIES, MAX_ENTRY_QUERY_CHARS,
    NewEntryRequest,
};
pub use layers::history::{ChunkInfo, Found, SessionInfo, StoredTurn, View, ViewMessage};
pub use layers::steps::Settled;
pub use maintenance::check::{CheckReport, PackReport};
pub use maintenance::forget::{Erased, ForgetRequest, Receipt};
pub use maintenance::moving::{migrate, open_backup};
pub use maintenance::rescan::Rescanned;
pub use maintenance::stats::Stats;
pub use maintenance::worker::TENANTS_AT_ONCE;
pub use memory::{Memory, MemoryBuilder};
pub use models::{
    BreakEven, FAILURES_IN_A_ROW, LONGEST_PAUSE_SECONDS, MAX_JUDGED_PAIRS, MODEL_PAUSE_SECONDS,
    ModelChain, ModelStats, Models, SUMMARIES_AT_ONCE, SpendLimits, spending,
};
pub use models::{Distiller, DistillerError};
pub use privacy::secrets::{AddedSecret, LogRedactor, TenantRedactor};
pub use recall::search::{DEFAULT_HITS, Hit, Hits, MAX_HITS, SearchRequest, matched_words};
pub use sessions::handoffs::{
    ApiView, CompactRequest, Compacted, ExchangeRequest, Exchanged, FitRequest, Fitted,
    HandoffInfo, Reminder,
};
pub use sessions::histories::{
    ClientMessage, FittedHistory, FollowRequest, Followed, HistoryFit, ProviderCount,
};
pub use settings::{
    BudgetCounter, ColdFormat, CompactionSettings, CutSettings, DreamSettings, EntrySettings,
    HandoffSettings, MemorySettings, PiiKinds, RedactionSettings, WarmFormat, WorkerSettings,
    reserve_conflict,
};
