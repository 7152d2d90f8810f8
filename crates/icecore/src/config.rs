//! The settings file: TOML in, settings out, and a clear word on every mistake.
//!
//! ```toml
//! [memory]
//! hot_chunks = 4
//!
//! [serve]
//! listen = "127.0.0.1:7433"
//! ```
//!
//! Every key stands in one table here with how it is read and shown. So the file,
//! `config show` and the error for a misspelt key cannot disagree.

mod bounds;
mod model_tables;
mod proxy;

use std::collections::BTreeSet;

use icecore_domain::cut::PolicyError;
use icecore_domain::redact::pii_kinds;
use icecore_index::IndexSettings;
use icecore_store::{ObjectSettings, PostgresOptions};
use toml::Value;

use crate::bounds::BoundSettings;
use crate::compaction::MAX_COMPACTED_ENTRIES;
use crate::settings::{
    BudgetCounter, ColdFormat, EmbeddingProvider, EmbeddingSettings, MemorySettings,
    RedactionSettings, WarmFormat,
};
use crate::workspace::WorkspaceSettings;

pub use model_tables::{LOCAL_MODEL, ModelChoices, SummarizationStrategy};
pub use proxy::{ProxySettings, UpstreamSettings};

/// What a settings file says; what it leaves out has its default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileConfig {
    /// `[memory]`.
    pub memory: MemorySettings,
    /// `[memory]`, what begins with `embedding_`.
    pub embedding: EmbeddingSettings,
    /// `[index]`.
    pub index: IndexSettings,
    /// `[postgres]`.
    pub postgres: PostgresOptions,
    /// `[redaction]`.
    pub redaction: RedactionSettings,
    /// `[workspace]`.
    pub workspace: WorkspaceSettings,
    /// `[serve]`.
    pub serve: ServeSettings,
    /// `[openwop]`.
    pub openwop: OpenwopSettings,
    /// `[telemetry]`.
    pub telemetry: TelemetrySettings,
    /// `[proxy]` and its tables.
    pub proxy: ProxySettings,
    /// `[models]`, its tables, and what names them elsewhere.
    pub models: ModelChoices,
    /// `[chat]`.
    pub chat: ChatSettings,
    /// `[objects]`.
    pub objects: ObjectSettings,
    /// `[bounds]` and its tables.
    pub bounds: BoundSettings,
    given: BTreeSet<String>,
}

/// How the host listens and what it bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeSettings {
    /// `listen`: address and port, or `unix:PATH`.
    pub listen: String,
    /// `allowed_hosts`: names under which the host may be called, beside its own.
    pub allowed_hosts: Vec<String>,
    /// `body_bytes`: the largest request body.
    pub body_bytes: usize,
    /// `page`: the most items a list answers with.
    pub page: usize,
    /// `page_default`: items of a list when no `limit` is given.
    pub page_default: usize,
    /// `page_bytes`: content of a page of turns; one turn at least.
    pub page_bytes: usize,
    /// `turns_per_request`: turns that one request may add.
    pub turns_per_request: usize,
    /// `context_tokens`: the largest budget of a context.
    pub context_tokens: u32,
    /// `idempotency_key_bytes`: length of an `Idempotency-Key`.
    pub idempotency_key_bytes: usize,
    /// `concurrent_requests`: how many are worked on at once.
    pub concurrent_requests: usize,
    /// `queue_seconds`: how long a request waits for its turn.
    pub queue_seconds: u64,
    /// `buffered_bytes`: memory for large bodies in all.
    pub buffered_bytes: usize,
    /// `answer_bytes`: the largest view or expanded chunk.
    pub answer_bytes: usize,
    /// `answers_bytes`: memory for answers that are being read.
    pub answers_bytes: usize,
    /// `tenant_percent`: one tenant's share of places, memory and streams.
    pub tenant_percent: u32,
    /// `connections`: open connections; for one more, the most idle goes.
    pub connections: usize,
    /// `rate_per_second`: requests of one key; 0 is no limit.
    pub rate_per_second: u32,
    /// `rate_burst`: requests of one key at once.
    pub rate_burst: u32,
    /// `rate_denied_per_second`: requests of one host without a good key; 0 is no limit.
    pub rate_denied_per_second: u32,
    /// `rate_denied_burst`: the same, at once.
    pub rate_denied_burst: u32,
    /// `idempotency_wait_seconds`: how long a request waits for another under its key.
    pub idempotency_wait_seconds: u64,
    /// `event_streams`: followers of the event log at once.
    pub event_streams: usize,
    /// `request_seconds`: time to work on a request.
    pub request_seconds: u64,
    /// `idle_seconds`: how long a connection without a request stays open.
    pub idle_seconds: u64,
    /// `header_seconds`: time to send a request's head.
    pub header_seconds: u64,
    /// `header_bytes`: the largest head of a request.
    pub header_bytes: usize,
    /// `body_seconds`: time to send a request's body.
    pub body_seconds: u64,
    /// `write_seconds`: time to take an answer.
    pub write_seconds: u64,
    /// `shutdown_seconds`: time that accepted requests have to finish at the end.
    pub shutdown_seconds: u64,
    /// `ready_pending`: branches with derived work beyond which the host is not ready.
    pub ready_pending: u64,
}

impl Default for ServeSettings {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7433".to_owned(),
            allowed_hosts: Vec::new(),
            body_bytes: 8 << 20,
            page: 500,
            page_default: 100,
            page_bytes: 32 << 20,
            turns_per_request: 10_000,
            context_tokens: 1_000_000,
            idempotency_key_bytes: 255,
            concurrent_requests: 256,
            queue_seconds: 10,
            buffered_bytes: 256 << 20,
            answer_bytes: 64 << 20,
            answers_bytes: 256 << 20,
            tenant_percent: 50,
            connections: 4_096,
            rate_per_second: 20_000,
            rate_burst: 40_000,
            rate_denied_per_second: 100,
            rate_denied_burst: 200,
            idempotency_wait_seconds: 10,
            event_streams: 64,
            request_seconds: 60,
            idle_seconds: 60,
            header_seconds: 20,
            header_bytes: 64 << 10,
            body_seconds: 30,
            write_seconds: 60,
            shutdown_seconds: 30,
            ready_pending: 10_000,
        }
    }
}

/// How the host behaves towards OpenWOP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenwopSettings {
    /// `read_only`: nobody writes through the host's doors.
    pub read_only: bool,
    /// `run_retention_seconds`: how long a run that ended can be read and repeated.
    pub run_retention_seconds: u64,
    /// `run_input_bytes`: bytes of a run's inputs, as JSON.
    pub run_input_bytes: usize,
    /// `runs_unfinished`: runs of one tenant that have not ended.
    pub runs_unfinished: u64,
    /// `agents`: the directory of agent manifests; empty for none.
    pub agents: String,
}

impl Default for OpenwopSettings {
    fn default() -> Self {
        Self {
            read_only: false,
            run_retention_seconds: 604_800,
            run_input_bytes: 65_536,
            runs_unfinished: 1_000,
            agents: String::new(),
        }
    }
}

/// Where the host sends its traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// `otlp_endpoint`: a collector that speaks OTLP over HTTP, up to and without
    /// `/v1/traces`; empty sends nothing.
    pub otlp_endpoint: String,
    /// `otlp_headers_env`: the environment variable that holds headers for it.
    pub otlp_headers_env: String,
    /// `service_name`: what the host is called there.
    pub service_name: String,
    /// `sample_percent`: how many of a hundred requests are sent.
    pub sample_percent: u32,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self {
            otlp_endpoint: String::new(),
            otlp_headers_env: String::new(),
            service_name: "icecore".to_owned(),
            sample_percent: 100,
        }
    }
}

/// How people chat at a terminal. The model is among [`ModelChoices`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatSettings {
    /// `recall_tokens`: tokens of memory that are sent along with a request; 0 is none.
    pub recall_tokens: u32,
}

impl Default for ChatSettings {
    fn default() -> Self {
        Self { recall_tokens: 800 }
    }
}

/// A settings file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not TOML.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// A table or key that does not exist.
    #[error("there is no setting `{name}`")]
    Unknown {
        /// As it was written.
        name: String,
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// A value of the wrong type or out of range.
    #[error("`{key}` must be {expected}, not {found}")]
    Value {
        /// Which setting.
        key: String,
        /// What it must be.
        expected: String,
        /// What stands there.
        found: String,
    },
    /// Sizes that do not nest.
    #[error(transparent)]
    Sizes(#[from] PolicyError),
    /// Retention of what is never packed.
    #[error(
        "`memory.cold_retention_days` lets go of packs, and `memory.cold_format = \"ctf\"` makes none"
    )]
    RetentionWithoutPacks,
    /// An endpoint without an address.
    #[error("`memory.embedding_provider = \"endpoint\"` needs `memory.embedding_url`")]
    NoEndpoint,
    /// A model without an address.
    #[error("`[models.{name}]` needs `url`")]
    NoUrl {
        /// The model.
        name: String,
    },
    /// A key that is in two places.
    #[error("`[models.{name}]` has both `key_env` and `key_secret`")]
    TwoKeys {
        /// The model.
        name: String,
    },
    /// Nothing of a window is left for a request.
    #[error("`{key}` ({reserve}) leaves nothing of the window of {window} tokens")]
    Reserve {
        /// Which setting.
        key: String,
        /// Its value.
        reserve: u64,
        /// The window.
        window: u64,
    },
    /// A name that no table has.
    #[error("`{key}` names the model `{name}`, and there is no `[models.{name}]`")]
    NoSuchModel {
        /// Which setting.
        key: String,
        /// What it names.
        name: String,
        /// The tables there are.
        known: Vec<String>,
    },
    /// Summaries by a model, and none or too many to choose from.
    #[error("`memory.summarization_strategy = \"llm\"` needs a model, and {}", models_told(*count))]
    NoSummaryModel {
        /// The tables there are.
        count: usize,
    },
    /// Summaries on this machine, by a model that is elsewhere.
    #[error(
        "`memory.summarization_strategy = \"local\"`, but `memory.summarization_model = \"{name}\"` is not on this machine: `models.{name}.url` is `{url}`"
    )]
    NotLocal {
        /// The model.
        name: String,
        /// Where it is.
        url: String,
    },
    /// A provider that is nowhere.
    #[error("`{key}` must be http:// or https:// with a host and without credentials")]
    UpstreamUrl {
        /// Which setting.
        key: String,
    },
    /// A provider's key that is in two places.
    #[error("both `{key}_key_env` and `{key}_key_secret` are set")]
    TwoUpstreamKeys {
        /// Which settings, up to where they differ.
        key: String,
    },
    /// Objects that are to lie where they cannot.
    #[error("`objects.url` is no place for objects: {reason}")]
    Objects {
        /// What is wrong.
        reason: String,
    },
    /// Where a model server is looked for, and none can be.
    #[error(
        "`models.local_urls` has an address that is not http:// or https:// with a host and without credentials"
    )]
    LocalUrl {
        /// The address.
        url: String,
    },
}

fn models_told(count: usize) -> String {
    match count {
        0 => "none is declared".to_owned(),
        count => format!("it is not said which of {count}"),
    }
}

impl ConfigError {
    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            ConfigError::Unknown { nearest: Some(nearest), .. } => {
                Some(format!("did you mean `{nearest}`?"))
            }
            ConfigError::Unknown { .. } | ConfigError::Value { .. } => {
                Some("`icecore config example` shows every setting".to_owned())
            }
            ConfigError::RetentionWithoutPacks => Some(
                "use `cold_format = \"summary_only\"`, or keep cold bodies for ever".to_owned(),
            ),
            ConfigError::NoEndpoint => Some(
                "give the server's address, up to and without `/embeddings`: \
                 `embedding_url = \"http://127.0.0.1:8080/v1\"`"
                    .to_owned(),
            ),
            ConfigError::NoUrl { .. } => Some(
                "give the server's address, up to and with the version path: \
                 `url = \"http://127.0.0.1:8080/v1\"`"
                    .to_owned(),
            ),
            ConfigError::TwoKeys { .. } | ConfigError::TwoUpstreamKeys { .. } => {
                Some("leave one of them out".to_owned())
            }
            ConfigError::UpstreamUrl { .. } => Some(
                "give the provider's address up to and with the version path, such as \
                 \"https://api.openai.com/v1\""
                    .to_owned(),
            ),
            ConfigError::Reserve { .. } => {
                Some("give a smaller reserve, or the window that the model has".to_owned())
            }
            ConfigError::NoSuchModel { name, known, .. } => {
                Some(match nearest(name, known.iter().map(String::as_str)) {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None => format!("declare it: `[models.{name}]` with its `url`"),
                })
            }
            ConfigError::NoSummaryModel { count: 0 } => Some(
                "declare one: `[models.NAME]` with its `url`; `icecore config example` shows it"
                    .to_owned(),
            ),
            ConfigError::NoSummaryModel { .. } => {
                Some("name it with `memory.summarization_model`".to_owned())
            }
            ConfigError::NotLocal { .. } => Some(
                "leave `summarization_model` out, name a model at 127.0.0.1, or say \
                 `summarization_strategy = \"llm\"`"
                    .to_owned(),
            ),
            ConfigError::Objects { .. } => Some(
                "`url = \"s3://BUCKET/PREFIX\"`, `url = \"file:///DIRECTORY\"`, or leave it out"
                    .to_owned(),
            ),
            ConfigError::LocalUrl { .. } => Some(
                "give addresses without the version path: \
                 `local_urls = [\"http://127.0.0.1:11434\"]`"
                    .to_owned(),
            ),
            ConfigError::Syntax(_) | ConfigError::Sizes(_) => None,
        }
    }
}

/// One setting, as shown to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// `table.key`.
    pub key: String,
    /// The value as TOML.
    pub value: String,
    /// Whether the file gave it.
    pub given: bool,
}

impl FileConfig {
    /// Reads a settings file.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let document: toml::Table =
            text.parse().map_err(|error: toml::de::Error| ConfigError::Syntax(one_line(&error)))?;
        let (mut config, mut bound_tables) = (Self::default(), None);
        for (table, value) in &document {
            if !SETTINGS.iter().any(|setting| setting.table == table) {
                return Err(unknown(table, SETTINGS.iter().map(|setting| setting.table)));
            }
            let Value::Table(keys) = value else {
                return Err(wrong(table, "a table", value));
            };
            for (key, value) in keys {
                match value {
                    Value::Table(tables) if table == "proxy" && key == "tenants" => {
                        let given = proxy::read_tenants(&mut config, tables)?;
                        config.given.extend(given);
                    }
                    Value::Table(tables) if table == "bounds" && key == "tenants" => {
                        bound_tables = Some(tables.clone());
                    }
                    Value::Table(keys) if table == "models" => {
                        let given = model_tables::read(&mut config, key, keys)?;
                        config.given.extend(given);
                    }
                    value => config.set(table, key, value)?,
                }
            }
        }
        // What a table leaves out is as for everyone, which may stand after it.
        if let Some(tables) = bound_tables {
            let given = bounds::read_tenants(&mut config, &tables)?;
            config.given.extend(given);
        }
        model_tables::check(&config)?;
        proxy::check(&config.proxy)?;
        config.objects.place().map_err(|reason| ConfigError::Objects { reason })?;
        config.memory.cuts.check()?;
        let MemorySettings { cold_format, cold_retention_days, .. } = &config.memory;
        if *cold_format == ColdFormat::Ctf && *cold_retention_days > 0 {
            return Err(ConfigError::RetentionWithoutPacks);
        }
        let EmbeddingSettings { provider, url, .. } = &config.embedding;
        if *provider == EmbeddingProvider::Endpoint && url.is_empty() {
            return Err(ConfigError::NoEndpoint);
        }
        Ok(config)
    }

    fn set(&mut self, table: &str, key: &str, value: &Value) -> Result<(), ConfigError> {
        let name = format!("{table}.{key}");
        let mine = || SETTINGS.iter().filter(|setting| setting.table == table);
        let Some(setting) = mine().find(|setting| setting.key == key) else {
            let names: Vec<String> = SETTINGS
                .iter()
                .map(|setting| format!("{}.{}", setting.table, setting.key))
                .collect();
            return Err(unknown(&name, names.iter().map(String::as_str)));
        };
        setting.kind.set(self, &name, value)?;
        self.given.insert(name);
        Ok(())
    }

    /// Whether the file gave a setting, such as `sessions.window`.
    pub fn is_given(&self, key: &str) -> bool {
        self.given.contains(key)
    }

    /// Every setting with its value, in the order of the example file.
    pub fn settings(&self) -> Vec<Shown> {
        let shown = |setting: &Setting| {
            let key = format!("{}.{}", setting.table, setting.key);
            Shown { value: setting.kind.show(self), given: self.given.contains(&key), key }
        };
        let tables = self.models.tables.iter().flat_map(model_tables::shown);
        let tables = tables.chain(proxy::shown(&self.proxy)).chain(bounds::shown(&self.bounds));
        let tables = tables.map(|mut shown| {
            shown.given = self.given.contains(&shown.key);
            shown
        });
        SETTINGS.iter().map(shown).chain(tables).collect()
    }
}

struct Setting {
    table: &'static str,
    key: &'static str,
    kind: Kind,
}

/// How a setting is read and where it goes.
enum Kind {
    Number(fn(&mut FileConfig) -> NumberSlot<'_>, u64, u64),
    Flag(fn(&mut FileConfig) -> &mut bool),
    Text(fn(&mut FileConfig) -> &mut String),
    Words(fn(&mut FileConfig) -> &mut Vec<String>),
    Warm,
    Cold,
    Provider,
    Budget,
    Pii,
    Summaries,
    /// A decimal number, kept as millionths.
    Money(fn(&mut FileConfig) -> &mut u64),
}

enum NumberSlot<'a> {
    U8(&'a mut u8),
    U32(&'a mut u32),
    U64(&'a mut u64),
    Usize(&'a mut usize),
}

const MOST: u64 = i64::MAX as u64;

const fn memory(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "memory", key, kind }
}

const fn postgres(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "postgres", key, kind }
}

const fn index(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "index", key, kind }
}

const fn redaction(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "redaction", key, kind }
}

const fn workspace(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "workspace", key, kind }
}

const fn dreams(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "dreams", key, kind }
}

const fn sessions(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "sessions", key, kind }
}

const fn models(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "models", key, kind }
}

const fn chat(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "chat", key, kind }
}

const fn objects(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "objects", key, kind }
}

const fn serve(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "serve", key, kind }
}

const fn proxying(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "proxy", key, kind }
}

const fn openwop(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "openwop", key, kind }
}

const fn schedules(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "schedules", key, kind }
}

const fn worker(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "worker", key, kind }
}

const fn telemetry(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "telemetry", key, kind }
}

const fn bounding(key: &'static str, kind: Kind) -> Setting {
    Setting { table: "bounds", key, kind }
}

const fn number(slot: fn(&mut FileConfig) -> NumberSlot<'_>, least: u64, most: u64) -> Kind {
    Kind::Number(slot, least, most)
}

static SETTINGS: [Setting; 170] = {
    use NumberSlot::{U8, U32, U64, Usize};
    [
        memory("micro_chunk_size", number(|c| U32(&mut c.memory.cuts.micro_turns), 1, 10_000)),
        memory("mini_chunk_interval", number(|c| U32(&mut c.memory.cuts.mini_turns), 1, 100_000)),
        memory("macro_chunk_interval", number(|c| U32(&mut c.memory.cuts.macro_turns), 1, 100_000)),
        memory(
            "micro_max_tokens",
            number(|c| U32(&mut c.memory.cuts.micro_max_tokens), 1, u32::MAX as u64),
        ),
        memory("hot_chunks", number(|c| U32(&mut c.memory.hot_chunks), 0, 1_000_000)),
        memory("hot_max_tokens", number(|c| U64(&mut c.memory.hot_max_tokens), 0, MOST)),
        memory("warm_format", Kind::Warm),
        memory("cold_format", Kind::Cold),
        memory("auto_summarize", Kind::Flag(|c| &mut c.memory.auto_summarize)),
        memory("auto_extract_facts", Kind::Flag(|c| &mut c.memory.auto_extract_facts)),
        memory("auto_embed", Kind::Flag(|c| &mut c.memory.auto_embed)),
        memory("summarization_strategy", Kind::Summaries),
        memory("summarization_model", Kind::Text(|c| &mut c.models.summary_model)),
        memory("consolidation_model", Kind::Text(|c| &mut c.models.consolidation_model)),
        memory("defer_summarization", Kind::Flag(|c| &mut c.memory.defer_summarization)),
        memory("embedding_provider", Kind::Provider),
        memory("embedding_model", Kind::Text(|c| &mut c.embedding.model)),
        memory("embedding_threads", number(|c| Usize(&mut c.embedding.threads), 0, 1_024)),
        memory("embedding_url", Kind::Text(|c| &mut c.embedding.url)),
        memory("embedding_key_env", Kind::Text(|c| &mut c.embedding.key_env)),
        memory("embedding_dims", number(|c| Usize(&mut c.embedding.dims), 0, 65_536)),
        memory(
            "embedding_timeout_seconds",
            number(|c| U64(&mut c.embedding.timeout_seconds), 1, 3_600),
        ),
        memory("embedding_batch_texts", number(|c| Usize(&mut c.embedding.batch_texts), 1, 10_000)),
        memory(
            "embedding_text_chars",
            number(|c| Usize(&mut c.embedding.text_chars), 1, 1_000_000),
        ),
        memory("archive_cold_content", Kind::Flag(|c| &mut c.memory.archive_cold_content)),
        memory(
            "cold_retention_days",
            number(|c| U32(&mut c.memory.cold_retention_days), 0, 1_000_000),
        ),
        memory("entry_bytes", number(|c| Usize(&mut c.memory.entries.bytes), 1, 1 << 20)),
        memory("entry_tags", number(|c| Usize(&mut c.memory.entries.tags), 0, 10_000)),
        memory("entry_tag_chars", number(|c| Usize(&mut c.memory.entries.tag_chars), 1, 10_000)),
        memory("entry_budget_counter", Kind::Budget),
        memory(
            "entry_snapshot_seconds",
            number(|c| U64(&mut c.memory.entries.snapshot_seconds), 0, 31_536_000),
        ),
        memory("compact_entries", number(|c| U64(&mut c.memory.compaction.entries), 0, 10_000_000)),
        memory(
            "compact_idle_seconds",
            number(|c| U64(&mut c.memory.compaction.idle_seconds), 0, 31_536_000),
        ),
        memory(
            "compact_keep_entries",
            number(|c| Usize(&mut c.memory.compaction.keep_entries), 0, 10_000_000),
        ),
        memory(
            "compact_input_entries",
            number(
                |c| Usize(&mut c.memory.compaction.input_entries),
                2,
                MAX_COMPACTED_ENTRIES as u64,
            ),
        ),
        memory(
            "compact_output_bytes",
            number(|c| Usize(&mut c.memory.compaction.output_bytes), 1, 1 << 20),
        ),
        index("tail_docs", number(|c| Usize(&mut c.index.tail_docs), 1, 1_000_000)),
        index("tail_most", number(|c| Usize(&mut c.index.tail_most), 1, 10_000_000)),
        index("open_scopes", number(|c| Usize(&mut c.index.open_scopes), 1, 100_000)),
        index("open_bytes", number(|c| Usize(&mut c.index.open_bytes), 1 << 20, MOST)),
        index("cache_bytes", number(|c| U64(&mut c.index.cache_bytes), 0, MOST)),
        index("exact_rows", number(|c| Usize(&mut c.index.exact_rows), 0, 100_000_000)),
        index("memory_rows", number(|c| Usize(&mut c.index.memory_rows), 0, 100_000_000)),
        index("rescore", number(|c| Usize(&mut c.index.rescore), 1, 1_000_000)),
        index(
            "writer_bytes",
            number(|c| Usize(&mut c.index.writer_bytes), 15_000_000, 4_000_000_000),
        ),
        redaction("tags", Kind::Flag(|c| &mut c.redaction.tags)),
        redaction("pii", Kind::Pii),
        workspace("enabled", Kind::Flag(|c| &mut c.workspace.enabled)),
        workspace("file_bytes", number(|c| Usize(&mut c.workspace.file_bytes), 1, 1 << 28)),
        postgres("connections", number(|c| U32(&mut c.postgres.connections), 1, 1_000)),
        postgres("idle_connections", number(|c| U32(&mut c.postgres.idle_connections), 0, 1_000)),
        postgres("idle_seconds", number(|c| U64(&mut c.postgres.idle_seconds), 1, 86_400)),
        postgres("wait_seconds", number(|c| U64(&mut c.postgres.wait_seconds), 1, 3_600)),
        postgres("connect_seconds", number(|c| U64(&mut c.postgres.connect_seconds), 1, 3_600)),
        postgres(
            "statement_seconds",
            number(|c| U64(&mut c.postgres.statement_seconds), 1, 86_400),
        ),
        postgres("lock_seconds", number(|c| U64(&mut c.postgres.lock_seconds), 1, 3_600)),
        postgres(
            "transaction_seconds",
            number(|c| U64(&mut c.postgres.transaction_seconds), 1, 86_400),
        ),
        postgres("retry_seconds", number(|c| U64(&mut c.postgres.retry_seconds), 0, 3_600)),
        postgres("keepalive_seconds", number(|c| U64(&mut c.postgres.keepalive_seconds), 1, 3_600)),
        workspace("files", number(|c| U64(&mut c.workspace.files), 1, 100_000)),
        workspace("versions", number(|c| U64(&mut c.workspace.versions), 1, 100_000)),
        dreams(
            "max_token_budget",
            number(|c| U64(&mut c.memory.dreams.max_token_budget), 1, 100_000_000),
        ),
        dreams("output_tokens", number(|c| U64(&mut c.memory.dreams.output_tokens), 1, 1_000_000)),
        dreams(
            "min_coverage_percent",
            number(|c| U8(&mut c.memory.dreams.min_coverage_percent), 0, 100),
        ),
        dreams(
            "archive_retention_days",
            number(|c| U32(&mut c.memory.dreams.archive_retention_days), 0, 36_500),
        ),
        dreams("lease_seconds", number(|c| U64(&mut c.memory.dreams.lease_seconds), 1, 3_600)),
        dreams("index_markdown", Kind::Flag(|c| &mut c.memory.dreams.index_markdown)),
        dreams("context_percent", number(|c| U8(&mut c.memory.dreams.context_percent), 0, 100)),
        dreams("model", Kind::Text(|c| &mut c.models.dream_model)),
        dreams("model_seconds", number(|c| U64(&mut c.memory.dreams.model_seconds), 1, 86_400)),
        sessions("window", number(|c| U64(&mut c.memory.handoffs.window), 1, 1_000_000_000)),
        sessions("reserve", number(|c| U64(&mut c.memory.handoffs.reserve), 1, 1_000_000_000)),
        sessions("distiller_model", Kind::Text(|c| &mut c.models.handoff_model)),
        sessions(
            "handoff_tokens",
            number(|c| U64(&mut c.memory.handoffs.handoff_tokens), 1, 1_000_000),
        ),
        sessions(
            "instructions_percent",
            number(|c| U64(&mut c.memory.handoffs.instructions_percent), 0, 100),
        ),
        sessions("recall_percent", number(|c| U64(&mut c.memory.handoffs.recall_percent), 0, 100)),
        models("tokens_a_day", number(|c| U64(&mut c.models.limits.tokens_a_day), 0, MOST)),
        models("money_a_day", Kind::Money(|c| &mut c.models.limits.cost_a_day)),
        models("local_urls", Kind::Words(|c| &mut c.models.local_urls)),
        bounding("turns", number(|c| U64(&mut c.bounds.everyone.turns), 0, MOST)),
        bounding("bytes", number(|c| U64(&mut c.bounds.everyone.bytes), 0, MOST)),
        bounding("requests_a_day", number(|c| U64(&mut c.bounds.everyone.requests_a_day), 0, MOST)),
        bounding("tokens_a_day", number(|c| U64(&mut c.bounds.everyone.tokens_a_day), 0, MOST)),
        bounding("step_requests", number(|c| U64(&mut c.bounds.step_requests), 1, 1_000_000)),
        bounding("step_tokens", number(|c| U64(&mut c.bounds.step_tokens), 1, 1_000_000_000)),
        bounding("step_seconds", number(|c| U64(&mut c.bounds.step_seconds), 1, 3_600)),
        chat("model", Kind::Text(|c| &mut c.models.chat_model)),
        chat("recall_tokens", number(|c| U32(&mut c.chat.recall_tokens), 0, 100_000)),
        schedules("per_tenant", number(|c| U64(&mut c.memory.schedules.per_tenant), 0, 10_000)),
        schedules("horizon_days", number(|c| U32(&mut c.memory.schedules.horizon_days), 1, 3_650)),
        schedules("idle_seconds", number(|c| U64(&mut c.memory.schedules.idle_seconds), 0, 86_400)),
        schedules(
            "wait_seconds",
            number(|c| U64(&mut c.memory.schedules.wait_seconds), 0, 604_800),
        ),
        schedules(
            "late_seconds",
            number(|c| U64(&mut c.memory.schedules.late_seconds), 0, 604_800),
        ),
        schedules(
            "lease_seconds",
            number(|c| U64(&mut c.memory.schedules.lease_seconds), 1, 3_600),
        ),
        schedules("running", number(|c| Usize(&mut c.memory.schedules.running), 1, 1_024)),
        schedules("tokens_a_day", number(|c| U64(&mut c.memory.schedules.tokens_a_day), 0, MOST)),
        schedules(
            "retention_days",
            number(|c| U32(&mut c.memory.schedules.retention_days), 1, 36_500),
        ),
        schedules("ticks_kept", number(|c| U64(&mut c.memory.schedules.ticks_kept), 1, 10_000_000)),
        worker("lease_seconds", number(|c| U64(&mut c.memory.worker.lease_seconds), 1, 3_600)),
        objects("url", Kind::Text(|c| &mut c.objects.url)),
        objects("endpoint", Kind::Text(|c| &mut c.objects.endpoint)),
        objects("region", Kind::Text(|c| &mut c.objects.region)),
        objects("allow_http", Kind::Flag(|c| &mut c.objects.allow_http)),
        objects("path_style", Kind::Flag(|c| &mut c.objects.path_style)),
        objects("cache_bytes", number(|c| U64(&mut c.objects.cache_bytes), 0, MOST)),
        objects("connect_seconds", number(|c| U64(&mut c.objects.connect_seconds), 1, 3_600)),
        objects("request_seconds", number(|c| U64(&mut c.objects.request_seconds), 1, 3_600)),
        objects("retry_seconds", number(|c| U64(&mut c.objects.retry_seconds), 0, 3_600)),
        // Servers take no smaller part, and none larger than five gibibytes.
        objects(
            "multipart_bytes",
            number(|c| U64(&mut c.objects.multipart_bytes), 5 << 20, 5 << 30),
        ),
        objects("part_bytes", number(|c| U64(&mut c.objects.part_bytes), 5 << 20, 5 << 30)),
        serve("listen", Kind::Text(|c| &mut c.serve.listen)),
        serve("allowed_hosts", Kind::Words(|c| &mut c.serve.allowed_hosts)),
        serve("body_bytes", number(|c| Usize(&mut c.serve.body_bytes), 1 << 10, 1 << 30)),
        serve("page", number(|c| Usize(&mut c.serve.page), 1, 10_000)),
        serve("page_default", number(|c| Usize(&mut c.serve.page_default), 1, 10_000)),
        serve("page_bytes", number(|c| Usize(&mut c.serve.page_bytes), 1 << 10, 1 << 40)),
        serve("turns_per_request", number(|c| Usize(&mut c.serve.turns_per_request), 1, 1_000_000)),
        serve("context_tokens", number(|c| U32(&mut c.serve.context_tokens), 1, u32::MAX as u64)),
        serve(
            "idempotency_key_bytes",
            number(|c| Usize(&mut c.serve.idempotency_key_bytes), 1, 4_096),
        ),
        serve(
            "concurrent_requests",
            number(|c| Usize(&mut c.serve.concurrent_requests), 1, 100_000),
        ),
        serve("queue_seconds", number(|c| U64(&mut c.serve.queue_seconds), 1, 3_600)),
        serve("buffered_bytes", number(|c| Usize(&mut c.serve.buffered_bytes), 1 << 10, 1 << 40)),
        serve("answer_bytes", number(|c| Usize(&mut c.serve.answer_bytes), 1 << 10, 1 << 40)),
        serve("answers_bytes", number(|c| Usize(&mut c.serve.answers_bytes), 1 << 10, 1 << 40)),
        serve("tenant_percent", number(|c| U32(&mut c.serve.tenant_percent), 1, 100)),
        serve("connections", number(|c| Usize(&mut c.serve.connections), 1, 65_536)),
        serve("rate_per_second", number(|c| U32(&mut c.serve.rate_per_second), 0, 1_000_000)),
        serve("rate_burst", number(|c| U32(&mut c.serve.rate_burst), 1, 10_000_000)),
        serve(
            "rate_denied_per_second",
            number(|c| U32(&mut c.serve.rate_denied_per_second), 0, 1_000_000),
        ),
        serve("rate_denied_burst", number(|c| U32(&mut c.serve.rate_denied_burst), 1, 10_000_000)),
        serve(
            "idempotency_wait_seconds",
            number(|c| U64(&mut c.serve.idempotency_wait_seconds), 0, 3_600),
        ),
        serve("event_streams", number(|c| Usize(&mut c.serve.event_streams), 0, 100_000)),
        serve("request_seconds", number(|c| U64(&mut c.serve.request_seconds), 1, 86_400)),
        serve("idle_seconds", number(|c| U64(&mut c.serve.idle_seconds), 1, 86_400)),
        serve("header_seconds", number(|c| U64(&mut c.serve.header_seconds), 1, 86_400)),
        serve("header_bytes", number(|c| Usize(&mut c.serve.header_bytes), 1 << 10, 256 << 10)),
        serve("body_seconds", number(|c| U64(&mut c.serve.body_seconds), 1, 86_400)),
        serve("write_seconds", number(|c| U64(&mut c.serve.write_seconds), 1, 86_400)),
        serve("shutdown_seconds", number(|c| U64(&mut c.serve.shutdown_seconds), 0, 86_400)),
        serve("ready_pending", number(|c| U64(&mut c.serve.ready_pending), 0, MOST)),
        proxying("openai_url", Kind::Text(|c| &mut c.proxy.upstreams.openai_url)),
        proxying("openai_key_env", Kind::Text(|c| &mut c.proxy.upstreams.openai_key_env)),
        proxying("openai_key_secret", Kind::Text(|c| &mut c.proxy.upstreams.openai_key_secret)),
        proxying("anthropic_url", Kind::Text(|c| &mut c.proxy.upstreams.anthropic_url)),
        proxying("anthropic_key_env", Kind::Text(|c| &mut c.proxy.upstreams.anthropic_key_env)),
        proxying(
            "anthropic_key_secret",
            Kind::Text(|c| &mut c.proxy.upstreams.anthropic_key_secret),
        ),
        proxying("window", number(|c| U64(&mut c.proxy.window), 0, 1_000_000_000)),
        proxying("reserve", number(|c| U64(&mut c.proxy.reserve), 0, 1_000_000_000)),
        proxying("recall_tokens", number(|c| U32(&mut c.proxy.recall_tokens), 0, 1_000_000)),
        proxying("fail_open", Kind::Flag(|c| &mut c.proxy.fail_open)),
        proxying("redact_upstream", Kind::Flag(|c| &mut c.proxy.redact_upstream)),
        proxying("body_bytes", number(|c| Usize(&mut c.proxy.body_bytes), 1 << 10, 1 << 30)),
        proxying(
            "kept_answer_bytes",
            number(|c| Usize(&mut c.proxy.kept_answer_bytes), 1 << 10, 1 << 20),
        ),
        proxying("streams", number(|c| Usize(&mut c.proxy.streams), 1, 65_536)),
        proxying("compaction_seconds", number(|c| U64(&mut c.proxy.compaction_seconds), 1, 86_400)),
        proxying("connect_seconds", number(|c| U64(&mut c.proxy.connect_seconds), 1, 3_600)),
        proxying("first_byte_seconds", number(|c| U64(&mut c.proxy.first_byte_seconds), 1, 86_400)),
        proxying("idle_seconds", number(|c| U64(&mut c.proxy.idle_seconds), 1, 86_400)),
        openwop("read_only", Kind::Flag(|c| &mut c.openwop.read_only)),
        openwop(
            "run_retention_seconds",
            number(|c| U64(&mut c.openwop.run_retention_seconds), 0, 3_153_600_000),
        ),
        openwop("run_input_bytes", number(|c| Usize(&mut c.openwop.run_input_bytes), 2, 1 << 24)),
        openwop("runs_unfinished", number(|c| U64(&mut c.openwop.runs_unfinished), 1, 1_000_000)),
        openwop(
            "commitments_pending",
            number(|c| U64(&mut c.memory.commitments.pending), 0, 10_000),
        ),
        openwop(
            "commitments_pending_tenant",
            number(|c| U64(&mut c.memory.commitments.pending_tenant), 0, 1_000_000),
        ),
        openwop(
            "commitments_retention_seconds",
            number(|c| U64(&mut c.memory.commitments.retention_seconds), 0, 3_153_600_000),
        ),
        openwop("agents", Kind::Text(|c| &mut c.openwop.agents)),
        telemetry("otlp_endpoint", Kind::Text(|c| &mut c.telemetry.otlp_endpoint)),
        telemetry("otlp_headers_env", Kind::Text(|c| &mut c.telemetry.otlp_headers_env)),
        telemetry("service_name", Kind::Text(|c| &mut c.telemetry.service_name)),
        telemetry("sample_percent", number(|c| U32(&mut c.telemetry.sample_percent), 0, 100)),
    ]
};

impl Kind {
    fn set(&self, config: &mut FileConfig, name: &str, value: &Value) -> Result<(), ConfigError> {
        match self {
            Kind::Number(slot, least, most) => {
                let fits = |number: &i64| {
                    u64::try_from(*number).is_ok_and(|n| (*least..=*most).contains(&n))
                };
                let Some(number) = value.as_integer().filter(fits) else {
                    return Err(wrong(name, &number_range(*least, *most), value));
                };
                slot(config).put(number as u64);
            }
            Kind::Flag(slot) => {
                *slot(config) =
                    value.as_bool().ok_or_else(|| wrong(name, "`true` or `false`", value))?;
            }
            Kind::Text(slot) => {
                *slot(config) =
                    value.as_str().ok_or_else(|| wrong(name, "a string", value))?.to_owned();
            }
            Kind::Words(slot) => {
                let words = value.as_array().map(|list| list.iter().map(|word| word.as_str()));
                let words = words.and_then(|words| words.collect::<Option<Vec<_>>>());
                let words = words.ok_or_else(|| wrong(name, "a list of strings", value))?;
                *slot(config) = words.into_iter().map(str::to_owned).collect();
            }
            Kind::Warm => {
                config.memory.warm_format = match value.as_str() {
                    Some("ctf") => WarmFormat::Ctf,
                    Some("json") => WarmFormat::Json,
                    _ => return Err(wrong(name, "\"ctf\" or \"json\"", value)),
                }
            }
            Kind::Cold => {
                config.memory.cold_format = match value.as_str() {
                    Some("summary_only") => ColdFormat::SummaryOnly,
                    Some("ctf") => ColdFormat::Ctf,
                    _ => return Err(wrong(name, "\"summary_only\" or \"ctf\"", value)),
                }
            }
            Kind::Provider => {
                config.embedding.provider = match value.as_str() {
                    Some("local") => EmbeddingProvider::Local,
                    Some("endpoint") => EmbeddingProvider::Endpoint,
                    _ => return Err(wrong(name, "\"local\" or \"endpoint\"", value)),
                }
            }
            Kind::Budget => {
                let counters = [BudgetCounter::Chars, BudgetCounter::O200kBase];
                let named = counters.into_iter().find(|one| value.as_str() == Some(one.as_str()));
                config.memory.entries.budget_counter =
                    named.ok_or_else(|| wrong(name, "\"chars\" or \"o200k_base\"", value))?;
            }
            Kind::Pii => {
                let ids = value.as_array().map(|list| list.iter().map(|id| id.as_str()));
                let ids = ids.and_then(|ids| ids.collect::<Option<Vec<_>>>());
                let ids =
                    ids.filter(|ids| ids.iter().all(|id| pii_names().any(|name| name == *id)));
                let ids = ids.ok_or_else(|| {
                    let names: Vec<String> =
                        pii_names().map(|name| format!("\"{name}\"")).collect();
                    wrong(name, &format!("a list of {}", names.join(", ")), value)
                })?;
                config.redaction.pii = ids.into_iter().map(str::to_owned).collect();
            }
            Kind::Summaries => {
                let all = SummarizationStrategy::ALL;
                let named = all.into_iter().find(|one| value.as_str() == Some(one.as_str()));
                config.models.summaries = named
                    .ok_or_else(|| wrong(name, "\"heuristic\", \"llm\" or \"local\"", value))?;
            }
            Kind::Money(slot) => *slot(config) = model_tables::money(name, value)?,
        }
        Ok(())
    }

    fn show(&self, config: &FileConfig) -> String {
        // The slots are for writing; showing works on a copy.
        let mut config = config.clone();
        match self {
            Kind::Number(slot, ..) => slot(&mut config).get().to_string(),
            Kind::Flag(slot) => slot(&mut config).to_string(),
            Kind::Text(slot) => Value::from(slot(&mut config).as_str()).to_string(),
            Kind::Words(slot) => Value::from(slot(&mut config).clone()).to_string(),
            Kind::Warm => match config.memory.warm_format {
                WarmFormat::Ctf => "\"ctf\"".to_owned(),
                WarmFormat::Json => "\"json\"".to_owned(),
            },
            Kind::Cold => match config.memory.cold_format {
                ColdFormat::SummaryOnly => "\"summary_only\"".to_owned(),
                ColdFormat::Ctf => "\"ctf\"".to_owned(),
            },
            Kind::Provider => match config.embedding.provider {
                EmbeddingProvider::Local => "\"local\"".to_owned(),
                EmbeddingProvider::Endpoint => "\"endpoint\"".to_owned(),
            },
            Kind::Budget => Value::from(config.memory.entries.budget_counter.as_str()).to_string(),
            Kind::Pii => Value::from(config.redaction.pii).to_string(),
            Kind::Summaries => Value::from(config.models.summaries.as_str()).to_string(),
            Kind::Money(slot) => model_tables::money_shown(*slot(&mut config)),
        }
    }
}

/// What `redaction.pii` may list.
fn pii_names() -> impl Iterator<Item = &'static str> {
    std::iter::once("all").chain(pii_kinds().iter().map(|kind| kind.id))
}

impl NumberSlot<'_> {
    // Ranges were checked against the narrowest slot.
    fn put(self, number: u64) {
        match self {
            NumberSlot::U8(slot) => *slot = number as u8,
            NumberSlot::U32(slot) => *slot = number as u32,
            NumberSlot::U64(slot) => *slot = number,
            NumberSlot::Usize(slot) => *slot = number as usize,
        }
    }

    fn get(self) -> u64 {
        match self {
            NumberSlot::U8(slot) => u64::from(*slot),
            NumberSlot::U32(slot) => u64::from(*slot),
            NumberSlot::U64(slot) => *slot,
            NumberSlot::Usize(slot) => *slot as u64,
        }
    }
}

fn number_range(least: u64, most: u64) -> String {
    match most {
        MOST => format!("a whole number of at least {least}"),
        _ => format!("a whole number from {least} to {most}"),
    }
}

fn wrong(key: &str, expected: &str, value: &Value) -> ConfigError {
    ConfigError::Value { key: key.to_owned(), expected: expected.to_owned(), found: shown(value) }
}

fn shown(value: &Value) -> String {
    let text = value.to_string().replace('\n', " ");
    match text.chars().count() {
        0..=60 => text,
        _ => text.chars().take(60).chain(['…']).collect(),
    }
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> ConfigError {
    ConfigError::Unknown { name: name.to_owned(), nearest: nearest(name, known).map(str::to_owned) }
}

/// What was probably meant.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let close = |other: &&str| strsim::jaro_winkler(name, other) > 0.8;
    known
        .filter(close)
        .max_by(|a, b| strsim::jaro_winkler(name, a).total_cmp(&strsim::jaro_winkler(name, b)))
}

/// TOML errors draw the line they mean; here they stand in one line.
fn one_line(error: &toml::de::Error) -> String {
    error.message().replace('\n', "; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let found = match FileConfig::parse(text) {
            Ok(config) => {
                let given = config.settings().into_iter().filter(|shown| shown.given);
                given
                    .map(|shown| format!("{} = {}", shown.key, shown.value))
                    .collect::<Vec<_>>()
                    .join(", ")
            }
            Err(error) => match error.hint() {
                Some(hint) => format!("{error} ({hint})"),
                None => error.to_string(),
            },
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn every_setting_of_the_reference_is_read() {
        check("", "");
        check("[memory]\nmicro_chunk_size = 5", "memory.micro_chunk_size = 5");
        check("[memory]\nwarm_format = \"json\"", "memory.warm_format = \"json\"");
        check("[memory]\ncold_format = \"ctf\"", "memory.cold_format = \"ctf\"");
        check("[memory]\nauto_embed = true", "memory.auto_embed = true");
        check(
            "[memory]\ncold_format = \"ctf\"\ncold_retention_days = 9",
            "`memory.cold_retention_days` lets go of packs, and `memory.cold_format = \"ctf\"` makes none \
             (use `cold_format = \"summary_only\"`, or keep cold bodies for ever)",
        );
        check("[serve]\nlisten = \"[::1]:1\"", "serve.listen = \"[::1]:1\"");
        check(
            "[serve]\nallowed_hosts = [\"memory.example\"]",
            "serve.allowed_hosts = [\"memory.example\"]",
        );
        check(
            "[serve]\nallowed_hosts = \"memory.example\"",
            "`serve.allowed_hosts` must be a list of strings, not \"memory.example\" (`icecore config example` shows every setting)",
        );
        check("[serve]\nrate_per_second = 0", "serve.rate_per_second = 0");
        let config = FileConfig::parse(
            "[memory]\nhot_chunks = 7\nhot_max_tokens = 9\nmini_chunk_interval = 50\n\
             defer_summarization = false\ncold_retention_days = 3\n[serve]\npage = 20",
        )
        .unwrap();
        assert_eq!((config.memory.hot_chunks, config.memory.hot_max_tokens), (7, 9));
        assert_eq!(config.memory.cuts.mini_turns, 50);
        assert_eq!(
            (config.memory.defer_summarization, config.memory.cold_retention_days),
            (false, 3)
        );
        assert_eq!(config.serve.page, 20);
        assert_eq!(FileConfig::default().memory, MemorySettings::default());
    }

    #[test]
    fn embeddings_and_the_index_are_set_by_name() {
        let config = FileConfig::parse(
            "[memory]\nauto_embed = false\nembedding_provider = \"endpoint\"\n\
             embedding_model = \"m\"\nembedding_url = \"http://h/v1\"\n\
             embedding_key_env = \"K\"\nembedding_dims = 8\nembedding_timeout_seconds = 2\n\
             embedding_batch_texts = 3\nembedding_text_chars = 4\nembedding_threads = 5\n\
             [index]\ntail_docs = 6\ntail_most = 7\nopen_scopes = 8\nopen_bytes = 2097152\ncache_bytes = 11\nexact_rows = 9\nmemory_rows = 12\n\
             rescore = 10\nwriter_bytes = 20000000",
        )
        .unwrap();
        assert!(!config.memory.auto_embed);
        let expected = EmbeddingSettings {
            provider: EmbeddingProvider::Endpoint,
            model: "m".to_owned(),
            threads: 5,
            url: "http://h/v1".to_owned(),
            key_env: "K".to_owned(),
            dims: 8,
            timeout_seconds: 2,
            batch_texts: 3,
            text_chars: 4,
        };
        assert_eq!(config.embedding, expected);
        let expected = IndexSettings {
            tail_docs: 6,
            tail_most: 7,
            open_scopes: 8,
            open_bytes: 2 << 20,
            cache_bytes: 11,
            exact_rows: 9,
            memory_rows: 12,
            rescore: 10,
            writer_bytes: 20_000_000,
        };
        assert_eq!(config.index, expected);
        assert_eq!(FileConfig::default().index, IndexSettings::default());
        check("[memory]\nembedding_model = \"m\"", "memory.embedding_model = \"m\"");
        check("[index]\nrescore = 9", "index.rescore = 9");
    }

    #[test]
    fn entries_are_bounded_by_name() {
        let config = FileConfig::parse(
            "[memory]\nentry_bytes = 9\nentry_tags = 2\nentry_tag_chars = 3\n\
             entry_budget_counter = \"o200k_base\"\nentry_snapshot_seconds = 0",
        )
        .unwrap();
        let expected = crate::settings::EntrySettings {
            bytes: 9,
            tags: 2,
            tag_chars: 3,
            budget_counter: BudgetCounter::O200kBase,
            snapshot_seconds: 0,
        };
        assert_eq!(config.memory.entries, expected);
        check(
            "[memory]\nentry_budget_counter = \"words\"",
            "`memory.entry_budget_counter` must be \"chars\" or \"o200k_base\", not \"words\" (`icecore config example` shows every setting)",
        );
        check("[memory]\nentry_bytes = 65536", "memory.entry_bytes = 65536");
    }

    #[test]
    fn the_protocol_is_set_by_name() {
        let config = FileConfig::parse(
            "[openwop]\nread_only = true\nrun_retention_seconds = 0\nrun_input_bytes = 9\n\
             runs_unfinished = 7\nagents = \"/srv/agents\"",
        )
        .unwrap();
        let expected = OpenwopSettings {
            read_only: true,
            run_retention_seconds: 0,
            run_input_bytes: 9,
            runs_unfinished: 7,
            agents: "/srv/agents".to_owned(),
        };
        assert_eq!(config.openwop, expected);
        check("[openwop]\nagents = \"\"", "openwop.agents = \"\"");
        let config = FileConfig::parse(
            "[openwop]\ncommitments_pending = 1\ncommitments_pending_tenant = 2\n\
             commitments_retention_seconds = 3",
        )
        .unwrap();
        let expected = crate::commitments::CommitmentSettings {
            pending: 1,
            pending_tenant: 2,
            retention_seconds: 3,
        };
        assert_eq!(config.memory.commitments, expected);
        check(
            "[openwop]\nread_only = 1",
            "`openwop.read_only` must be `true` or `false`, not 1 (`icecore config example` shows every setting)",
        );
    }

    #[test]
    fn compaction_is_set_by_name() {
        let config = FileConfig::parse(
            "[memory]\ncompact_entries = 0\ncompact_idle_seconds = 1\n\
             compact_keep_entries = 2\ncompact_input_entries = 3\ncompact_output_bytes = 4",
        )
        .unwrap();
        let expected = crate::settings::CompactionSettings {
            entries: 0,
            idle_seconds: 1,
            keep_entries: 2,
            input_entries: 3,
            output_bytes: 4,
        };
        assert_eq!(config.memory.compaction, expected);
        assert!(FileConfig::parse("[memory]\ncompact_input_entries = 1").is_err());
    }

    #[test]
    fn redaction_is_set_by_name() {
        let check_text = |file: &str, text: &str, expected: &str| {
            let redactor = FileConfig::parse(file).unwrap().redaction.redactor().unwrap();
            let found = redactor.text(text).into_string();
            assert!(found.starts_with(expected), "{file}: {found}");
        };
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let address = "bo.lindqvist@glacier.dev";
        check("[redaction]\ntags = true", "redaction.tags = true");
        check_text("[redaction]\ntags = true", &token, "[REDACTED:github-token:");
        check_text("", &token, "[REDACTED:github-token]");
        check("[redaction]\npii = [\"email\"]", "redaction.pii = [\"email\"]");
        check_text("[redaction]\npii = [\"email\"]", address, "[REDACTED:email]");
        check_text("[redaction]\npii = [\"all\"]", address, "[REDACTED:email]");
        check_text("[redaction]\npii = [\"iban\"]", address, address);
        for wrong in ["\"email\"", "[\"mail\"]", "[1]"] {
            let error = FileConfig::parse(&format!("[redaction]\npii = {wrong}")).unwrap_err();
            let message = error.to_string();
            assert!(message.contains("a list of \"all\", \"email\", "), "{message}");
            assert!(message.ends_with(&format!("not {wrong}")), "{message}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        check(
            "[memory]\nhot_chunk = 1",
            "there is no setting `memory.hot_chunk` (did you mean `memory.hot_chunks`?)",
        );
        check("[memroy]\nx = 1", "there is no setting `memroy` (did you mean `memory`?)");
        check(
            "[memory]\nhot_chunks = \"two\"",
            "`memory.hot_chunks` must be a whole number from 0 to 1000000, not \"two\" (`icecore config example` shows every setting)",
        );
        check(
            "[dreams]\nlease_seconds = 3601",
            "`dreams.lease_seconds` must be a whole number from 1 to 3600, not 3601 (`icecore config example` shows every setting)",
        );
        check(
            "[memory]\nhot_chunks = -1",
            "`memory.hot_chunks` must be a whole number from 0 to 1000000, not -1 (`icecore config example` shows every setting)",
        );
        check(
            "[memory]\nwarm_format = \"xml\"",
            "`memory.warm_format` must be \"ctf\" or \"json\", not \"xml\" (`icecore config example` shows every setting)",
        );
        check(
            "memory = 3",
            "`memory` must be a table, not 3 (`icecore config example` shows every setting)",
        );
        check(
            "[memory]\nmini_chunk_interval = 30",
            "`macro_chunk_interval` (100) must be a multiple of `mini_chunk_interval` (30)",
        );
        check(
            "[memory]\nsummarization_strategy = \"model\"",
            "`memory.summarization_strategy` must be \"heuristic\", \"llm\" or \"local\", not \"model\" (`icecore config example` shows every setting)",
        );
        check(
            "[memory]\nembedding_provider = \"cloud\"",
            "`memory.embedding_provider` must be \"local\" or \"endpoint\", not \"cloud\" (`icecore config example` shows every setting)",
        );
        check(
            "[memory]\nembedding_provider = \"endpoint\"",
            "`memory.embedding_provider = \"endpoint\"` needs `memory.embedding_url` (give the server's address, up to and without `/embeddings`: `embedding_url = \"http://127.0.0.1:8080/v1\"`)",
        );
        check(
            "[index]\ntail_docs = 0",
            "`index.tail_docs` must be a whole number from 1 to 1000000, not 0 (`icecore config example` shows every setting)",
        );
        assert!(matches!(FileConfig::parse("[memory"), Err(ConfigError::Syntax(_))));
    }
    #[test]
    fn the_place_of_objects_is_set_by_name() {
        let config = FileConfig::parse(
            "[objects]\nurl = \"s3://b/p\"\nendpoint = \"http://h:9\"\nregion = \"r\"\n\
             allow_http = true\npath_style = false\ncache_bytes = 0\nconnect_seconds = 1\n\
             request_seconds = 2\nretry_seconds = 0\nmultipart_bytes = 5242880\n\
             part_bytes = 5242881",
        )
        .unwrap();
        let expected = ObjectSettings {
            url: "s3://b/p".to_owned(),
            endpoint: "http://h:9".to_owned(),
            region: "r".to_owned(),
            allow_http: true,
            path_style: false,
            cache_bytes: 0,
            connect_seconds: 1,
            request_seconds: 2,
            retry_seconds: 0,
            multipart_bytes: 5 << 20,
            part_bytes: (5 << 20) + 1,
        };
        assert_eq!(config.objects, expected);
        check("[objects]\nurl = \"file:///srv/x\"", "objects.url = \"file:///srv/x\"");
        check(
            "[objects]\nurl = \"gs://b\"",
            "`objects.url` is no place for objects: it is neither file:///DIRECTORY nor s3://BUCKET/PREFIX (`url = \"s3://BUCKET/PREFIX\"`, `url = \"file:///DIRECTORY\"`, or leave it out)",
        );
        check(
            "[objects]\npart_bytes = 1000",
            "`objects.part_bytes` must be a whole number from 5242880 to 5368709120, not 1000 (`icecore config example` shows every setting)",
        );
    }

    #[test]
    fn models_are_declared_by_name() {
        let config = FileConfig::parse(
            "[models]\ntokens_a_day = 5\nmoney_a_day = 1.5\nlocal_urls = []\n\
             [models.big]\nprotocol = \"anthropic\"\nurl = \"https://h/v1\"\nmodel = \"m-1\"\n\
             key_env = \"K\"\nwindow = 200000\nreserve = 4000\ninput_price = 3\n\
             cached_input_price = 0.3\noutput_price = 15.0\ntimeout_seconds = 9\n\
             idle_seconds = 8\nretries = 0\ncaches_prefix = true\n\
             [models.small]\nurl = \"http://127.0.0.1:1/v1\"\ninput_price = 0.25\n\
             [memory]\nsummarization_strategy = \"llm\"\nsummarization_model = \"small\"\n\
             consolidation_model = \"local\"\n[dreams]\nmodel = \"big\"\nmodel_seconds = 7\n\
             [sessions]\nwindow = 9000\nreserve = 90\ndistiller_model = \"small\"\n\
             handoff_tokens = 80\ninstructions_percent = 5\nrecall_percent = 6",
        )
        .unwrap();
        let models = &config.models;
        assert_eq!((models.limits.tokens_a_day, models.limits.cost_a_day), (5, 1_500_000));
        let big = models.table("big").unwrap();
        assert_eq!(big.protocol.as_str(), "anthropic");
        assert_eq!(
            (big.window, big.reserve, big.retries, big.caches_prefix),
            (200_000, 4_000, 0, true)
        );
        assert_eq!(
            (big.prices.input, big.prices.cached_input, big.prices.output),
            (3_000_000, 300_000, 15_000_000)
        );
        let small = models.table("small").unwrap();
        assert_eq!((small.model.as_str(), small.window, small.retries), ("small", 0, 3));
        assert_eq!((small.prices.input, small.prices.cached_input), (250_000, 250_000));
        assert_eq!(models.summary_choice(), "small");
        assert_eq!(models.dream_model, "big");
        assert_eq!(config.memory.dreams.model_seconds, 7);
        let sessions = &config.memory.handoffs;
        assert_eq!((sessions.window, sessions.reserve, sessions.handoff_tokens), (9_000, 90, 80));
        assert_eq!((sessions.instructions_percent, sessions.recall_percent), (5, 6));
        check(
            "[models]\nmoney_a_day = 0.000001\n[models.a]\nurl = \"http://h/v1\"\nretries = 1",
            "models.money_a_day = 0.000001, models.a.url = \"http://h/v1\", models.a.retries = 1",
        );
        // The one model there is need not be named.
        let one = "[models.a]\nurl = \"http://h/v1\"\n[memory]\nsummarization_strategy = \"llm\"";
        assert_eq!(FileConfig::parse(one).unwrap().models.summary_choice(), "a");
        let here = "[memory]\nsummarization_strategy = \"local\"";
        assert_eq!(FileConfig::parse(here).unwrap().models.summary_choice(), LOCAL_MODEL);
    }

    #[test]
    fn mistakes_about_models_are_named() {
        let url = "url = \"http://h/v1\"\n";
        check(
            "[models.a]",
            "`[models.a]` needs `url` (give the server's address, up to and with the version path: `url = \"http://127.0.0.1:8080/v1\"`)",
        );
        check(
            &format!("[models.a]\n{url}windo = 5"),
            "there is no setting `models.a.windo` (did you mean `models.a.window`?)",
        );
        check(
            "[models]\ntoken_a_day = 5",
            "there is no setting `models.token_a_day` (did you mean `models.tokens_a_day`?)",
        );
        check(
            &format!("[models.a]\n{url}window = 0"),
            "`models.a.window` must be a whole number from 1 to 1000000000, not 0 (`icecore config example` shows every setting)",
        );
        check(
            &format!("[models.a]\n{url}window = 100\nreserve = 100"),
            "`models.a.reserve` (100) leaves nothing of the window of 100 tokens (give a smaller reserve, or the window that the model has)",
        );
        check(
            "[sessions]\nwindow = 100",
            "`sessions.reserve` (8192) leaves nothing of the window of 100 tokens (give a smaller reserve, or the window that the model has)",
        );
        check(
            "[sessions]\nwindow = 0",
            "`sessions.window` must be a whole number from 1 to 1000000000, not 0 (`icecore config example` shows every setting)",
        );
        check(
            &format!("[models.a]\n{url}protocol = \"grpc\""),
            "`models.a.protocol` must be \"openai\" or \"anthropic\", not \"grpc\" (`icecore config example` shows every setting)",
        );
        check(
            &format!("[models.a]\n{url}key_env = \"A\"\nkey_secret = \"b\""),
            "`[models.a]` has both `key_env` and `key_secret` (leave one of them out)",
        );
        for price in ["-1", "\"1\"", "nan", "1e300"] {
            let file = format!("[models.a]\n{url}input_price = {price}");
            let error = FileConfig::parse(&file).unwrap_err().to_string();
            assert!(error.starts_with("`models.a.input_price` must be a number"), "{error}");
        }
        check(
            &format!("[models.small]\n{url}[dreams]\nmodel = \"smal\""),
            "`dreams.model` names the model `smal`, and there is no `[models.smal]` (did you mean `small`?)",
        );
        check(
            "[sessions]\ndistiller_model = \"x\"",
            "`sessions.distiller_model` names the model `x`, and there is no `[models.x]` (declare it: `[models.x]` with its `url`)",
        );
        check(
            "[memory]\nsummarization_strategy = \"llm\"",
            "`memory.summarization_strategy = \"llm\"` needs a model, and none is declared (declare one: `[models.NAME]` with its `url`; `icecore config example` shows it)",
        );
        check(
            &format!(
                "[models.a]\n{url}[models.b]\n{url}[memory]\nsummarization_strategy = \"llm\""
            ),
            "`memory.summarization_strategy = \"llm\"` needs a model, and it is not said which of 2 (name it with `memory.summarization_model`)",
        );
    }
}
