//! How a memory behaves, by name. The names are those of the `[memory]` table.

use icecore_domain::cut::CutPolicy;
use icecore_domain::redact::{Redactor, UnknownPii};

use crate::commitments::CommitmentSettings;
use crate::dreams::DreamSettings;
use crate::handoffs::HandoffSettings;
use crate::leases::WorkerSettings;
use crate::schedules::ScheduleSettings;

/// The form of warm bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarmFormat {
    /// Compact Turn Format.
    Ctf,
    /// Turn JSONL.
    Json,
}

/// What is kept at hand of a cold chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColdFormat {
    /// The summary; the body goes into a pack.
    SummaryOnly,
    /// The body too, as text in the store.
    Ctf,
}

/// The settings that parts of the engine read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemorySettings {
    /// `micro_chunk_size`, `mini_chunk_interval`, `macro_chunk_interval`, `micro_max_tokens`.
    pub cuts: CutPolicy,
    /// `hot_chunks`: closed micros that stay hot.
    pub hot_chunks: u32,
    /// `hot_max_tokens`: closed micros leave the hot tier beyond this many tokens.
    pub hot_max_tokens: u64,
    /// `warm_format`.
    pub warm_format: WarmFormat,
    /// `cold_format`.
    pub cold_format: ColdFormat,
    /// `auto_summarize`: make summaries of closed chunks.
    pub auto_summarize: bool,
    /// `auto_extract_facts`: keep key facts with them.
    pub auto_extract_facts: bool,
    /// `auto_embed`: make vectors.
    pub auto_embed: bool,
    /// `defer_summarization`: only once a chunk leaves the hot tier.
    pub defer_summarization: bool,
    /// `archive_cold_content`: keep cold bodies at all.
    pub archive_cold_content: bool,
    /// `cold_retention_days`: 0 keeps cold bodies for ever.
    pub cold_retention_days: u32,
    /// What begins with `entry_`.
    pub entries: EntrySettings,
    /// What begins with `compact_`.
    pub compaction: CompactionSettings,
    /// What begins with `commitments_`, in the `[openwop]` table.
    pub commitments: CommitmentSettings,
    /// The `[dreams]` table.
    pub dreams: DreamSettings,
    /// The `[schedules]` table.
    pub schedules: ScheduleSettings,
    /// The `[sessions]` table.
    pub handoffs: HandoffSettings,
    /// The `[worker]` table.
    pub worker: WorkerSettings,
}

/// What bounds long-term entries. The names are those of the `[memory]` table,
/// which puts `entry_` before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntrySettings {
    /// `entry_bytes`: bytes of an entry's content, as UTF-8, when it is put.
    pub bytes: usize,
    /// `entry_tags`: tags of an entry.
    pub tags: usize,
    /// `entry_tag_chars`: characters of a tag.
    pub tag_chars: usize,
    /// `entry_budget_counter`.
    pub budget_counter: BudgetCounter,
    /// `entry_snapshot_seconds`: how long an entry that was deleted can still be
    /// read as of a moment before, and what has expired is kept unseen. After at
    /// most twice that it is gone from the store.
    pub snapshot_seconds: u64,
}

/// When entries are compacted by themselves, and how. The names are those of the
/// `[memory]` table, which puts `compact_` before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionSettings {
    /// `compact_entries`: a memory of so many entries is compacted; 0: never.
    pub entries: u64,
    /// `compact_idle_seconds`: once nothing was put into it for so long.
    pub idle_seconds: u64,
    /// `compact_keep_entries`: the newest, which stay as they are.
    pub keep_entries: usize,
    /// `compact_input_entries`: how many become one.
    pub input_entries: usize,
    /// `compact_output_bytes`: bytes of that one, as UTF-8; no more than `entry_bytes`.
    pub output_bytes: usize,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self {
            entries: 1_000,
            idle_seconds: 600,
            keep_entries: 100,
            input_entries: 1_000,
            output_bytes: 65_536,
        }
    }
}

/// What the budget of a list of entries is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetCounter {
    /// Unicode characters.
    Chars,
    /// Tokens of o200k_base, or of whatever counter the memory was given.
    O200kBase,
}

impl BudgetCounter {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            BudgetCounter::Chars => "chars",
            BudgetCounter::O200kBase => "o200k_base",
        }
    }
}

impl Default for EntrySettings {
    fn default() -> Self {
        Self {
            bytes: 65_536,
            tags: 64,
            tag_chars: 256,
            budget_counter: BudgetCounter::Chars,
            snapshot_seconds: 3_600,
        }
    }
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self {
            cuts: CutPolicy::default(),
            hot_chunks: 2,
            hot_max_tokens: 50_000,
            warm_format: WarmFormat::Ctf,
            cold_format: ColdFormat::SummaryOnly,
            auto_summarize: true,
            auto_extract_facts: true,
            auto_embed: true,
            defer_summarization: true,
            archive_cold_content: true,
            cold_retention_days: 0,
            entries: EntrySettings::default(),
            compaction: CompactionSettings::default(),
            commitments: CommitmentSettings::default(),
            dreams: DreamSettings::default(),
            schedules: ScheduleSettings::default(),
            handoffs: HandoffSettings::default(),
            worker: WorkerSettings::default(),
        }
    }
}

/// Where vectors come from. The names are those of the `[memory]` table, which
/// puts `embedding_` before them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingSettings {
    /// `embedding_provider`.
    pub provider: EmbeddingProvider,
    /// `embedding_model`: one inside the program, one that is installed, or what
    /// the endpoint calls its own.
    pub model: String,
    /// `embedding_threads`: threads of an installed model; 0 takes all cores.
    pub threads: usize,
    /// `embedding_url`: the endpoint, up to and without `/embeddings`.
    pub url: String,
    /// `embedding_key_env`: the environment variable that holds its key; empty
    /// sends none.
    pub key_env: String,
    /// `embedding_dims`: length of its vectors; 0 asks it at the start.
    pub dims: usize,
    /// `embedding_timeout_seconds`: the longest that one batch may take.
    pub timeout_seconds: u64,
    /// `embedding_batch_texts`: texts in one request.
    pub batch_texts: usize,
    /// `embedding_text_chars`: characters of a text that are sent.
    pub text_chars: usize,
}

/// Who makes vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmbeddingProvider {
    /// This process.
    Local,
    /// A server that speaks OpenAI's `POST /embeddings`.
    Endpoint,
}

impl Default for EmbeddingSettings {
    fn default() -> Self {
        Self {
            provider: EmbeddingProvider::Local,
            model: "icecore-static-1".to_owned(),
            threads: 0,
            url: String::new(),
            key_env: String::new(),
            dims: 0,
            timeout_seconds: 30,
            batch_texts: 64,
            text_chars: 8_000,
        }
    }
}

/// What is hidden besides credentials and registered secrets, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedactionSettings {
    /// `tags`: markers carry a short keyed tag that tells two secrets of a kind
    /// apart.
    pub tags: bool,
    /// `pii`: kinds of personal data to hide, or `all`.
    pub pii: Vec<String>,
}

impl RedactionSettings {
    /// The redactor that they ask for.
    pub fn redactor(&self) -> Result<Redactor, UnknownPii> {
        Redactor::standard().with_tags(self.tags).with_pii(&self.pii)
    }
}

impl MemorySettings {
    /// Tells whether branches settled under other settings must be looked at again.
    pub(crate) fn fingerprint(&self) -> String {
        // Branches do not depend on what bounds entries, commitments, dreams and
        // schedules, nor on when entries are compacted and who settles them.
        let entries = EntrySettings::default();
        let compaction = CompactionSettings::default();
        let commitments = CommitmentSettings::default();
        let (dreams, schedules) = (DreamSettings::default(), ScheduleSettings::default());
        let (handoffs, worker) = (HandoffSettings::default(), WorkerSettings::default());
        let settled_with = Self {
            entries,
            compaction,
            commitments,
            dreams,
            schedules,
            handoffs,
            worker,
            ..self.clone()
        };
        format!("{settled_with:?}")
    }
}
