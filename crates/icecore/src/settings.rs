//! How a memory behaves.

use icecore_domain::cut::CutPolicy;
use icecore_domain::redact::{Redactor, UnknownPii, pii_kinds};
use icecore_settings::{MOST, Range, SettingError, Value, choice, one_of, settings, toml};

/// Entries that one compaction looks at, whatever it is asked for.
pub const MAX_COMPACTED_ENTRIES: usize = 10_000;

choice! {
    /// The form of warm bodies.
    pub enum WarmFormat {
        /// Compact Turn Format.
        Ctf = "ctf",
        /// Turn JSONL.
        Json = "json",
    }
}

choice! {
    /// What stays at hand of a cold chunk.
    pub enum ColdFormat {
        /// The summary; the body goes into a pack.
        SummaryOnly = "summary_only",
        /// The body too, as text in the store.
        Ctf = "ctf",
    }
}

choice! {
    /// The unit in which the budget of a list of entries is counted.
    pub enum BudgetCounter {
        /// Unicode characters.
        Chars = "chars",
        /// Tokens of o200k_base, or of the counter that the memory was given.
        O200kBase = "o200k_base",
    }
}

settings! {
    /// The settings that parts of the engine read.
    #[derive(PartialEq, Eq)]
    pub struct MemorySettings {
        /// Turns are cut into micros, minis and macros. A macro is a whole number of minis; new
        /// sizes begin at the next macro.
        cuts: CutSettings => at "memory.";
        /// Closed micros that stay hot.
        hot_chunks: u32 = 2, 0..=1_000_000;
        /// Beyond this many tokens closed micros leave the hot tier.
        hot_max_tokens: u64 = 50_000, 0..=MOST => advanced;
        /// The form of warm bodies: ctf (Compact Turn Format) or json.
        warm_format: WarmFormat => advanced;
        /// Cold bodies: summary_only (in packs) or ctf (in the store).
        cold_format: ColdFormat => advanced;
        /// Summarizes closed chunks.
        auto_summarize: bool = true;
        /// Keeps key facts with summaries.
        auto_extract_facts: bool = true => advanced;
        /// Makes vectors; without them search is by words alone.
        auto_embed: bool = true;
        /// Summarizes a chunk only when it leaves the hot tier.
        defer_summarization: bool = true => advanced;
        /// Keeps the bodies of cold turns.
        archive_cold_content: bool = true => advanced;
        /// How long the bodies of cold turns are kept; 0: for ever.
        cold_retention_days: u32 = 0, 0..=1_000_000;
        /// Long-term entries.
        entries: EntrySettings => at "memory.entry_";
        /// A memory of many entries is compacted while it is quiet: its oldest become one.
        compaction: CompactionSettings => at "memory.compact_";
        /// Distillation of a memory within a budget of tokens.
        dreams: DreamSettings => at "dreams.";
        /// What a model sees of a session is compacted when the next request would not fit.
        handoffs: HandoffSettings => at "sessions.";
        /// How hosts over one store share background work.
        worker: WorkerSettings => at "worker.";
    }

    /// Where turns are cut into chunks.
    #[derive(PartialEq, Eq)]
    pub struct CutSettings {
        /// Turns in a micro.
        micro_turns: u32 = 10, 1..=10_000 => key "memory.micro_chunk_size";
        /// Turns in a mini.
        mini_turns: u32 = 25, 1..=100_000 => key "memory.mini_chunk_interval";
        /// Turns in a macro.
        macro_turns: u32 = 100, 1..=100_000 => key "memory.macro_chunk_interval";
        /// A micro ends before it would pass this many tokens.
        micro_max_tokens: u32 = 8_000, 1..=4_294_967_295 => advanced;
    }
}

impl CutSettings {
    pub(crate) fn policy(&self) -> CutPolicy {
        CutPolicy {
            micro_turns: self.micro_turns,
            mini_turns: self.mini_turns,
            macro_turns: self.macro_turns,
            micro_max_tokens: self.micro_max_tokens,
        }
    }
}

settings! {
    /// Limits on long-term entries.
    #[derive(PartialEq, Eq)]
    pub struct EntrySettings {
        /// The largest content of an entry, as UTF-8.
        bytes: usize = 65_536, 1..=1 << 20;
        /// Tags that an entry may have.
        tags: usize = 64, 0..=10_000 => advanced;
        /// Characters of a tag.
        tag_chars: usize = 256, 1..=10_000 => advanced;
        /// What a list's `tokenBudget` counts: chars or o200k_base.
        budget_counter: BudgetCounter => advanced;
        /// How long a deleted entry can be read as of a moment before. After at most twice that it
        /// is gone from the store.
        snapshot_seconds: u64 = 3_600, 0..=31_536_000 => advanced;
    }

    /// When entries are compacted, and how.
    #[derive(PartialEq, Eq)]
    pub struct CompactionSettings {
        /// A memory of this many entries is compacted; 0: never.
        entries: u64 = 1_000, 0..=10_000_000;
        /// A memory is compacted after this long without a new entry.
        idle_seconds: u64 = 600, 0..=31_536_000 => advanced;
        /// The newest entries, which compaction leaves as they are.
        keep_entries: usize = 100, 0..=10_000_000 => advanced;
        /// Entries that compaction merges into one.
        input_entries: usize = 1_000, 2..=MAX_COMPACTED_ENTRIES as u64 => advanced;
        /// Bytes of the merged entry, as UTF-8; at most `memory.entry_bytes`.
        output_bytes: usize = 65_536, 1..=1 << 20 => advanced;
    }

    /// What is hidden besides credentials and registered secrets, and how.
    #[derive(PartialEq, Eq)]
    pub struct RedactionSettings {
        /// Markers carry a short keyed tag that tells two secrets of a kind apart:
        /// `[REDACTED:github-token:1f3a9c]`.
        tags: bool = false;
        /// Kinds of personal data to hide, or `all`.
        pii: PiiKinds;
    }
}

/// Kinds of personal data, or `all`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PiiKinds(Vec<String>);

impl Value for PiiKinds {
    fn expected(&self, _: Option<&Range>) -> String {
        let kinds = pii_kinds().iter().map(|kind| kind.id);
        let kinds: Vec<&str> = std::iter::once("all").chain(kinds).collect();
        format!("a list of {}", one_of(&kinds))
    }

    fn read(&mut self, given: &toml::Value, range: Option<&Range>) -> bool {
        let mut kinds = Vec::new();
        let is_kind = |id: &String| id == "all" || pii_kinds().iter().any(|kind| kind.id == *id);
        let is_read = kinds.read(given, range) && kinds.iter().all(is_kind);
        if is_read {
            self.0 = kinds;
        }
        is_read
    }

    fn show(&self) -> toml::Value {
        self.0.show()
    }
}

impl RedactionSettings {
    /// The redactor that they ask for.
    pub fn redactor(&self) -> Result<Redactor, UnknownPii> {
        Redactor::standard().with_tags(self.tags).with_pii(&self.pii.0)
    }
}

impl MemorySettings {
    /// Refuses values that do not go together.
    pub fn check(&self) -> Result<(), SettingError> {
        let wrong = |error: icecore_domain::cut::PolicyError| {
            SettingError::conflict(error.to_string(), "10, 25 and 100 are sizes that nest")
        };
        self.cuts.policy().check().map_err(wrong)?;
        if self.cold_format == ColdFormat::Ctf && self.cold_retention_days > 0 {
            return Err(SettingError::conflict(
                "`memory.cold_retention_days` lets go of packs, and \
                 `advanced.memory.cold_format = \"ctf\"` makes none",
                "use `cold_format = \"summary_only\"`, or keep cold bodies for ever",
            ));
        }
        let HandoffSettings { window, reserve, .. } = self.handoffs;
        if reserve >= window {
            return Err(reserve_conflict("sessions.reserve", reserve, window));
        }
        Ok(())
    }

    /// Tells whether branches settled under other settings must be looked at again. Limits on
    /// entries and dreams have no effect on branches.
    pub(crate) fn fingerprint(&self) -> String {
        let Self { cuts, hot_chunks, hot_max_tokens, warm_format, cold_format, .. } = self;
        let Self { auto_summarize, auto_extract_facts, auto_embed, .. } = self;
        let Self { defer_summarization, archive_cold_content, cold_retention_days, .. } = self;
        let tiers = (cuts, hot_chunks, hot_max_tokens, warm_format, cold_format);
        let derived = (auto_summarize, auto_extract_facts, auto_embed, defer_summarization);
        format!("{tiers:?} {derived:?} {archive_cold_content} {cold_retention_days}")
    }
}

/// A reserve that leaves nothing of a window.
pub fn reserve_conflict(key: &str, reserve: u64, window: u64) -> SettingError {
    SettingError::conflict(
        format!("`{key}` ({reserve}) leaves nothing of the window of {window} tokens"),
        "give a smaller reserve, or the window that the model has",
    )
}

settings! {
    /// Limits on dreams.
    #[derive(PartialEq, Eq)]
    pub struct DreamSettings {
        /// Tokens that a dream may read and write together.
        max_token_budget: u64 = 64_000, 1..=100_000_000;
        /// Tokens that a dream may write.
        output_tokens: u64 = 8_000, 1..=1_000_000 => advanced;
        /// The share of new material that a dream must cover.
        min_coverage_percent: u8 = 10, 0..=100;
        /// How long superseded archives are kept; 0: for ever.
        archive_retention_days: u32 = 90, 0..=36_500;
        /// A dreamer that was silent for this long is dead.
        lease_seconds: u64 = 30, 1..=3_600 => advanced;
        /// Writes a readable MEMORY-INDEX.md beside the index.
        index_markdown: bool = false;
        /// The share of a context that distilled memory may take.
        context_percent: u8 = 15, 0..=100 => advanced;
        /// The longest that a model may take to answer.
        model_seconds: u64 = 60, 1..=86_400 => advanced;
    }
}

settings! {
    /// Limits on sessions.
    #[derive(PartialEq, Eq)]
    pub struct HandoffSettings {
        /// Tokens of a request and its answer, where the model's own are not given.
        window: u64 = 128_000, 1..=1_000_000_000;
        /// Tokens of the window that are kept free for the answer.
        reserve: u64 = 8_192, 1..=1_000_000_000;
        /// Tokens of the largest handoff.
        handoff_tokens: u64 = 8_000, 1..=1_000_000;
        /// The share of the window for instructions that were detected.
        instructions_percent: u64 = 10, 0..=100 => advanced;
        /// The share of a handoff for what bears on the last request.
        recall_percent: u64 = 40, 0..=100 => advanced;
    }
}

settings! {
    /// How hosts share the work.
    #[derive(PartialEq, Eq)]
    pub struct WorkerSettings {
        /// A host that was silent for this long is dead, and others do its work.
        lease_seconds: u64 = 10, 1..=3_600 => advanced;
    }
}
