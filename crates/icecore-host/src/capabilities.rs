//! What the host can do: one value, from which come both what it advertises and what
//! an agent that it lists has to do without.
//!
//! Worked out from what is configured and from what the store and the models can do
//! now. What is switched off is not in it, and so neither advertised nor met.

use icecore::dreams::DREAM_WORKFLOW;
use icecore::settings::BudgetCounter;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// A side of memory that an agent may ask for (RFC 0080 §A).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dimension {
    /// To list and get entries.
    Read,
    /// To put and delete them.
    Write,
    /// To find them by meaning or by filter.
    Search,
    /// To find them in later runs.
    LongTermDurability,
    /// To have many of them pressed into few.
    Compaction,
    /// To be told which run wrote what.
    Attribution,
    /// To read, when a run is repeated, what it read the first time.
    ReplaySnapshot,
    /// To let entries expire, and to forget.
    Retention,
}

impl Dimension {
    /// Every dimension, in the order of the protocol.
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Write,
        Self::Search,
        Self::LongTermDurability,
        Self::Compaction,
        Self::Attribution,
        Self::ReplaySnapshot,
        Self::Retention,
    ];

    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Search => "search",
            Self::LongTermDurability => "long-term-durability",
            Self::Compaction => "compaction",
            Self::Attribution => "attribution",
            Self::ReplaySnapshot => "replay-snapshot",
            Self::Retention => "retention",
        }
    }

    /// The dimension that a capability such as `memory.search.semantic` is of.
    pub fn of_capability(capability: &str) -> Option<Self> {
        let mut parts = plain(capability).split('.');
        match (parts.next()?, parts.next()?) {
            ("memory", "supported") => Some(Self::Read),
            ("memory", "writable") => Some(Self::Write),
            ("memory", "ttlSupported") => Some(Self::Retention),
            ("memory", "distillation") => Some(Self::Compaction),
            ("memory", name) => Self::ALL.into_iter().find(|dimension| dimension.as_str() == name),
            ("agents", "memoryBackends") => Some(Self::LongTermDurability),
            _ => None,
        }
    }
}

/// What is configured and works now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Means {
    /// Whether anybody may write through the host's doors.
    pub writable: bool,
    /// Whether a model makes vectors of texts.
    pub semantic: bool,
    /// Bytes of an entry.
    pub entry_bytes: usize,
    /// What a budget of entries is counted in.
    pub budget_counter: BudgetCounter,
    /// What bounds compaction, where it is switched on.
    pub compaction: Option<CompactionMeans>,
    /// What bounds dreams.
    pub distillation: DistillationMeans,
    /// How far ahead the first instant of a schedule may be, where there may be any.
    pub schedule_horizon: Option<String>,
    /// What bounds workspaces, where there are any.
    pub workspace: Option<WorkspaceMeans>,
    /// The workflows that can be run.
    pub workflows: Vec<String>,
    /// Whether these are the fixtures of the conformance suite.
    pub conformance: bool,
    /// How long a run that ended can be repeated; 0 where none can.
    pub run_retention_seconds: u64,
    /// Whether there may be commitments.
    pub commitments: bool,
    /// How many agents are installed.
    pub agents: usize,
}

/// What bounds one compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionMeans {
    /// Entries that it reads.
    pub input_entries: usize,
    /// Bytes of the entry that it writes.
    pub output_bytes: usize,
}

/// What bounds dreams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DistillationMeans {
    /// Tokens that one may read and write together.
    pub max_token_budget: u64,
    /// How long archives are kept that a newer one supersedes; 0 is for ever.
    pub archive_retention_days: u32,
    /// Whether they come by themselves, on a schedule.
    pub scheduled: bool,
}

/// What bounds a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspaceMeans {
    /// Bytes of a file.
    pub file_bytes: usize,
    /// Files of one workspace.
    pub files: u64,
    /// Versions of a file that are kept.
    pub versions: u64,
}

/// What the host can do, and so what it says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    families: Families,
    fixtures: Vec<String>,
    /// The families once more, for looking up paths in them.
    looked_up: Value,
}

/// What the host can do, by family; one that it cannot is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Families {
    /// Entries.
    pub memory: MemoryFamily,
    /// What agents can build on.
    pub agents: AgentsFamily,
    /// Files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceFamily>,
    /// Work that comes by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<SchedulingFamily>,
    /// Secrets that are registered to be hidden.
    pub secrets: SecretsFamily,
    /// Repeating runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayFamily>,
}

/// Long-term entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemoryFamily {
    /// Whether entries can be listed and read.
    pub supported: bool,
    /// Whether they can be put and deleted.
    pub writable: bool,
    /// Bytes of an entry.
    pub max_entry_size_bytes: usize,
    /// Whether `expiresAt` is honoured.
    pub ttl_supported: bool,
    /// Finding them.
    pub search: SearchBlock,
    /// Losing them.
    pub retention: RetentionBlock,
    /// Pressing many into few, unless it is switched off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<CompactionBlock>,
    /// Distilling what is due under a budget of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distillation: Option<DistillationBlock>,
    /// Saying which run wrote what.
    pub attribution: AttributionBlock,
    /// Listing as many as fit.
    pub injection_budget: InjectionBudgetBlock,
}

/// How entries are found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SearchBlock {
    /// Whether they can be.
    pub supported: bool,
    /// `semantic` needs a model that makes vectors.
    pub modes: Vec<&'static str>,
}

/// How entries go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct RetentionBlock {
    /// By themselves, at a time.
    pub ttl: bool,
    /// All that are about a subject, when told.
    pub forget: bool,
}

/// How entries are compacted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompactionBlock {
    /// Whether they are.
    pub supported: bool,
    /// Who begins it.
    pub trigger: &'static str,
    /// Entries that one compaction reads.
    pub max_input_entries: usize,
    /// Bytes of what it writes.
    pub max_output_bytes: usize,
}

/// How memories are distilled (RFC 0062).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DistillationBlock {
    /// Whether they are.
    pub supported: bool,
    /// Tokens that one run may read and write together.
    pub max_token_budget: u64,
    /// Whether it is done by itself, on a schedule.
    pub scheduled: bool,
    /// Whether `MEMORY-INDEX.json` is written.
    pub index_emitted: bool,
    /// What counts the tokens.
    pub tokenizer_name: &'static str,
    /// How long archives are kept that a newer one supersedes, as an ISO 8601 duration;
    /// left out where that is for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archive_retention: Option<String>,
}

/// What is told of writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttributionBlock {
    /// Whether anything is.
    pub supported: bool,
    /// Whether runs have an event for each.
    pub emits_write_events: bool,
}

/// How lists of entries are bounded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InjectionBudgetBlock {
    /// Whether they are.
    pub supported: bool,
    /// What a budget of entries is counted in.
    pub token_counter: &'static str,
}

/// What agents can build on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentsFamily {
    /// `long-term`: what one run wrote, later runs read.
    pub memory_backends: Vec<&'static str>,
    /// Merging entries that say the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_consolidation: Option<ConsolidationBlock>,
    /// Intentions that are kept until their condition holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commitments: Option<CommitmentsBlock>,
    /// The inventory of agents, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest_runtime: Option<ManifestRuntimeBlock>,
}

/// How entries are merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ConsolidationBlock {
    /// Whether they are.
    pub supported: bool,
    /// When.
    pub schedule: &'static str,
}

/// What can bring an intention back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommitmentsBlock {
    /// Whether anything can.
    pub supported: bool,
    /// What.
    pub fire_conditions: Vec<&'static str>,
}

/// The inventory of agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestRuntimeBlock {
    /// Whether there is one.
    pub supported: bool,
    /// For whom agents are installed.
    pub install_scope: &'static str,
}

/// Workspace files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceFamily {
    /// Whether there are any.
    pub supported: bool,
    /// Whether earlier versions can be read.
    pub versioned: bool,
    /// Bytes of a file.
    pub max_file_bytes: usize,
    /// Files of one workspace.
    pub max_files: u64,
    /// Versions of a file that are kept.
    pub max_versions: u64,
}

/// Work that comes by itself (RFC 0052).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingFamily {
    /// Whether any does.
    pub supported: bool,
    /// By a cron line.
    pub cron: bool,
    /// Once, after a delay.
    pub delayed: bool,
    /// By a calendar.
    pub calendar: bool,
    /// How far ahead the first instant may be, as an ISO 8601 duration.
    pub max_future_horizon: String,
}

/// Secrets that are registered to be hidden.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SecretsFamily {
    /// Whether there can be any.
    pub supported: bool,
    /// Whose they are.
    pub scopes: Vec<&'static str>,
    /// Who looks after them.
    pub resolution: &'static str,
}

/// Repeating runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayFamily {
    /// Whether runs can be repeated.
    pub supported: bool,
    /// How.
    pub modes: Vec<&'static str>,
    /// For how long.
    pub retention: ReplayWindow,
    /// What a repeated run does instead of acting again.
    pub side_effect_suppression: &'static str,
}

/// How long runs can be repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayWindow {
    /// From their end on.
    pub window_seconds: u64,
}

impl Capabilities {
    /// What can be done with such means.
    pub fn of(means: &Means) -> Self {
        let families = Families {
            memory: memory(means),
            agents: agents(means),
            workspace: workspace(means),
            scheduling: scheduling(means),
            secrets: SecretsFamily {
                supported: true,
                scopes: vec!["tenant"],
                resolution: "host-managed",
            },
            replay: replay(means),
        };
        let fixtures = match means.conformance && can_run(means) {
            // Dreams are no fixture.
            true => means.workflows.iter().filter(|id| *id != DREAM_WORKFLOW).cloned().collect(),
            false => Vec::new(),
        };
        // Strings, numbers and lists of them always become JSON.
        let looked_up = serde_json::to_value(&families).unwrap_or_default();
        Self { families, fixtures, looked_up }
    }

    /// What is advertised, by family.
    pub fn families(&self) -> &Families {
        &self.families
    }

    /// The fixture workflows of the conformance suite that can be run.
    pub fn fixtures(&self) -> &[String] {
        &self.fixtures
    }

    /// Whether the host does what a dimension of memory promises.
    pub fn met(&self, dimension: Dimension) -> bool {
        let Families { memory, agents, .. } = &self.families;
        let is_durable = agents.memory_backends.contains(&LONG_TERM);
        match dimension {
            Dimension::Read => memory.supported,
            Dimension::Write => memory.supported && memory.writable,
            Dimension::Search => memory.search.supported,
            Dimension::LongTermDurability => is_durable,
            Dimension::Compaction => memory.compaction.as_ref().is_some_and(|it| it.supported),
            Dimension::Attribution => memory.attribution.supported,
            // Promised with the second version of the execution model. While none is
            // claimed, this is not met, whatever runs may do.
            Dimension::ReplaySnapshot => {
                let version = self.looked_up.pointer("/multiAgent/executionModel/version");
                is_durable && version.and_then(Value::as_u64) >= Some(2)
            }
            Dimension::Retention => memory.retention.ttl || memory.retention.forget,
        }
    }

    /// Whether the host has a capability, named by where it is advertised:
    /// `workspace`, `memory.search`, `memory.search.semantic`, `memory.write`.
    ///
    /// A dimension of memory is had if it is [met](Capabilities::met). Otherwise the
    /// path must lead somewhere, to what is neither `false` nor empty nor a block
    /// whose `supported` is; its last part may also be a word of a list on the way.
    pub fn has(&self, capability: &str) -> bool {
        let path = plain(capability);
        let named = path.strip_prefix("memory.");
        let is_dimension = |dimension: &Dimension| Some(dimension.as_str()) == named;
        match Dimension::ALL.into_iter().find(is_dimension) {
            Some(dimension) => self.met(dimension),
            None => leads_somewhere(&self.looked_up, path),
        }
    }
}

const LONG_TERM: &str = "long-term";

/// RFCs also write `capabilities.memory.search`.
fn plain(capability: &str) -> &str {
    capability.strip_prefix("capabilities.").unwrap_or(capability)
}

/// A run writes its own log, and what it was asked to.
fn can_run(means: &Means) -> bool {
    means.writable && !means.workflows.is_empty()
}

fn memory(means: &Means) -> MemoryFamily {
    let semantic = means.semantic.then_some("semantic");
    let compaction = |bounds: CompactionMeans| CompactionBlock {
        supported: true,
        trigger: "host-managed",
        max_input_entries: bounds.input_entries,
        max_output_bytes: bounds.output_bytes,
    };
    MemoryFamily {
        supported: true,
        writable: means.writable,
        max_entry_size_bytes: means.entry_bytes,
        ttl_supported: true,
        search: SearchBlock {
            supported: true,
            modes: semantic.into_iter().chain(["filter"]).collect(),
        },
        retention: RetentionBlock { ttl: true, forget: means.writable },
        // It writes, also where the host does it by itself.
        compaction: means.compaction.filter(|_| means.writable).map(compaction),
        distillation: means.writable.then(|| distillation(means)),
        // Writes are told in runs, where there are any, as in the log of all events.
        attribution: AttributionBlock { supported: true, emits_write_events: can_run(means) },
        injection_budget: InjectionBudgetBlock {
            supported: true,
            token_counter: means.budget_counter.as_str(),
        },
    }
}

fn distillation(means: &Means) -> DistillationBlock {
    let DistillationMeans { max_token_budget, archive_retention_days, scheduled } =
        means.distillation;
    DistillationBlock {
        supported: true,
        max_token_budget,
        scheduled,
        index_emitted: means.workspace.is_some(),
        tokenizer_name: BudgetCounter::O200kBase.as_str(),
        archive_retention: (archive_retention_days > 0)
            .then(|| format!("P{archive_retention_days}D")),
    }
}

fn agents(means: &Means) -> AgentsFamily {
    AgentsFamily {
        memory_backends: vec![LONG_TERM],
        memory_consolidation: means
            .writable
            .then_some(ConsolidationBlock { supported: true, schedule: consolidated(means) }),
        commitments: (means.writable && means.commitments).then(|| CommitmentsBlock {
            supported: true,
            fire_conditions: vec!["time", "predicate"],
        }),
        manifest_runtime: (means.agents > 0)
            .then_some(ManifestRuntimeBlock { supported: true, install_scope: "host" }),
    }
}

/// When memories are consolidated: on schedules where there may be any, and whenever
/// somebody asks for it.
fn consolidated(means: &Means) -> &'static str {
    match means.schedule_horizon {
        Some(_) => "scheduled",
        None => "on-demand",
    }
}

/// The block has no word for files that can only be read, so a host on which nobody
/// writes does not claim it.
fn workspace(means: &Means) -> Option<WorkspaceFamily> {
    let bounds = means.workspace.filter(|_| means.writable)?;
    Some(WorkspaceFamily {
        supported: true,
        versioned: bounds.versions > 1,
        max_file_bytes: bounds.file_bytes,
        max_files: bounds.files,
        max_versions: bounds.versions,
    })
}

fn scheduling(means: &Means) -> Option<SchedulingFamily> {
    // What fires writes.
    let horizon = means.schedule_horizon.clone().filter(|_| means.writable)?;
    Some(SchedulingFamily {
        supported: true,
        cron: true,
        delayed: true,
        calendar: false,
        max_future_horizon: horizon,
    })
}

fn replay(means: &Means) -> Option<ReplayFamily> {
    (can_run(means) && means.run_retention_seconds > 0).then(|| ReplayFamily {
        supported: true,
        modes: vec!["replay"],
        retention: ReplayWindow { window_seconds: means.run_retention_seconds },
        // A replay repeats what was recorded and acts on nothing, but no test can witness it.
        side_effect_suppression: "none",
    })
}

/// Whether a dotted path leads to something that holds.
fn leads_somewhere(from: &Value, path: &str) -> bool {
    let mut at = from;
    let mut parts = path.split('.').peekable();
    while let Some(part) = parts.next() {
        match at.get(part) {
            Some(next) => at = next,
            None => return parts.peek().is_none() && lists(at, part),
        }
        if at.get("supported") == Some(&Value::Bool(false)) {
            return false;
        }
    }
    match at {
        Value::Null => false,
        Value::Bool(holds) => *holds,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(_) => true,
    }
}

/// Whether a list, or a list of a block, has a word.
fn lists(at: &Value, word: &str) -> bool {
    let has = |list: &Value| list.as_array().is_some_and(|words| words.iter().any(|w| w == word));
    has(at) || at.as_object().is_some_and(|block| block.values().any(has))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn all_on() -> Means {
        Means {
            writable: true,
            semantic: true,
            entry_bytes: 65_536,
            budget_counter: BudgetCounter::O200kBase,
            compaction: Some(CompactionMeans { input_entries: 1_000, output_bytes: 4_096 }),
            distillation: DistillationMeans {
                max_token_budget: 64_000,
                archive_retention_days: 90,
                scheduled: true,
            },
            schedule_horizon: Some("P90D".to_owned()),
            workspace: Some(WorkspaceMeans { file_bytes: 1 << 20, files: 256, versions: 20 }),
            workflows: vec!["conformance-noop".to_owned(), DREAM_WORKFLOW.to_owned()],
            conformance: true,
            run_retention_seconds: 604_800,
            commitments: true,
            agents: 2,
        }
    }

    fn unmet(means: &Means) -> Vec<&'static str> {
        let able = Capabilities::of(means);
        let all = Dimension::ALL.into_iter();
        all.filter(|dimension| !able.met(*dimension)).map(Dimension::as_str).collect()
    }

    #[test]
    fn what_is_switched_off_is_neither_advertised_nor_met() {
        assert_eq!(unmet(&all_on()), ["replay-snapshot"]);
        assert_eq!(
            unmet(&Means { writable: false, ..all_on() }),
            ["write", "compaction", "replay-snapshot"],
            "what is there can still be read, also by later runs"
        );
        let off = Means { compaction: None, ..all_on() };
        assert_eq!(unmet(&off), ["compaction", "replay-snapshot"]);
        assert_eq!(Capabilities::of(&off).looked_up.pointer("/memory/compaction"), None);
        let bounds = DistillationMeans {
            archive_retention_days: 0,
            scheduled: false,
            ..all_on().distillation
        };
        let off = Capabilities::of(&Means { distillation: bounds, workspace: None, ..all_on() });
        let distillation = &off.looked_up["memory"]["distillation"];
        let expected = json!({"supported": true, "maxTokenBudget": 64_000, "scheduled": false,
            "indexEmitted": false, "tokenizerName": "o200k_base"});
        assert_eq!(*distillation, expected);
        let off = Capabilities::of(&Means { schedule_horizon: None, ..all_on() });
        let expected = json!({"supported": true, "schedule": "on-demand"});
        assert_eq!(off.looked_up["agents"]["memoryConsolidation"], expected);
        let off = Capabilities::of(&Means { commitments: false, ..all_on() });
        assert!(!off.has("agents.commitments") && off.has("agents.memoryConsolidation"));
        let off = Capabilities::of(&Means { run_retention_seconds: 0, ..all_on() });
        assert!(!off.has("replay") && off.has("memory.attribution.emitsWriteEvents"));
    }

    #[test]
    fn the_advertisement_with_everything_on() {
        let able = Capabilities::of(&all_on());
        let expected = json!({
            "memory": {
                "supported": true,
                "writable": true,
                "maxEntrySizeBytes": 65_536,
                "ttlSupported": true,
                "search": {"supported": true, "modes": ["semantic", "filter"]},
                "retention": {"ttl": true, "forget": true},
                "compaction": {
                    "supported": true,
                    "trigger": "host-managed",
                    "maxInputEntries": 1_000,
                    "maxOutputBytes": 4_096,
                },
                "distillation": {
                    "supported": true,
                    "maxTokenBudget": 64_000,
                    "scheduled": true,
                    "indexEmitted": true,
                    "tokenizerName": "o200k_base",
                    "archiveRetention": "P90D",
                },
                "attribution": {"supported": true, "emitsWriteEvents": true},
                "injectionBudget": {"supported": true, "tokenCounter": "o200k_base"},
            },
            "agents": {
                "memoryBackends": ["long-term"],
                "memoryConsolidation": {"supported": true, "schedule": "scheduled"},
                "commitments": {"supported": true, "fireConditions": ["time", "predicate"]},
                "manifestRuntime": {"supported": true, "installScope": "host"},
            },
            "workspace": {
                "supported": true,
                "versioned": true,
                "maxFileBytes": 1_048_576,
                "maxFiles": 256,
                "maxVersions": 20,
            },
            "scheduling": {
                "supported": true,
                "cron": true,
                "delayed": true,
                "calendar": false,
                "maxFutureHorizon": "P90D",
            },
            "secrets": {"supported": true, "scopes": ["tenant"], "resolution": "host-managed"},
            "replay": {
                "supported": true,
                "modes": ["replay"],
                "retention": {"windowSeconds": 604_800},
                "sideEffectSuppression": "none",
            },
        });
        assert_eq!(json!(able.families()), expected);
        assert_eq!(able.fixtures(), ["conformance-noop"]);
    }

    #[test]
    fn the_advertisement_with_everything_off() {
        let able = Capabilities::of(&Means {
            writable: false,
            semantic: false,
            compaction: None,
            workspace: None,
            workflows: Vec::new(),
            agents: 0,
            ..all_on()
        });
        let expected = json!({
            "memory": {
                "supported": true,
                "writable": false,
                "maxEntrySizeBytes": 65_536,
                "ttlSupported": true,
                "search": {"supported": true, "modes": ["filter"]},
                "retention": {"ttl": true, "forget": false},
                "attribution": {"supported": true, "emitsWriteEvents": false},
                "injectionBudget": {"supported": true, "tokenCounter": "o200k_base"},
            },
            "agents": {"memoryBackends": ["long-term"]},
            "secrets": {"supported": true, "scopes": ["tenant"], "resolution": "host-managed"},
        });
        assert_eq!(json!(able.families()), expected);
        assert!(able.fixtures().is_empty());
    }

    #[test]
    fn runs_are_claimed_where_there_are_workflows_and_fixtures_in_conformance_alone() {
        let check = |means: Means, replays: bool, fixtures: usize| {
            let able = Capabilities::of(&means);
            assert_eq!(able.has("replay"), replays, "{means:?}");
            assert_eq!(able.has("memory.attribution.emitsWriteEvents"), replays, "{means:?}");
            assert!(able.met(Dimension::Attribution), "what is written is told in the log");
            assert_eq!(able.fixtures().len(), fixtures, "{means:?}");
        };
        check(all_on(), true, 1);
        check(Means { conformance: false, ..all_on() }, true, 0);
        check(Means { workflows: Vec::new(), ..all_on() }, false, 0);
        check(Means { writable: false, ..all_on() }, false, 0);
    }

    #[test]
    fn a_capability_is_named_by_where_it_is_advertised() {
        let able = Capabilities::of(&Means { semantic: false, ..all_on() });
        for had in [
            "memory",
            "memory.read",
            "memory.write",
            "memory.search",
            "memory.search.filter",
            "memory.search.modes",
            "memory.search.supported",
            "memory.long-term-durability",
            "memory.retention.forget",
            "memory.maxEntrySizeBytes",
            "capabilities.memory.compaction",
            "memory.distillation",
            "memory.distillation.indexEmitted",
            "agents.memoryBackends",
            "agents.memoryBackends.long-term",
            "agents.commitments.predicate",
            "workspace",
            "workspace.versioned",
            "replay",
            "replay.replay",
            "secrets.tenant",
        ] {
            assert!(able.has(had), "{had}");
        }
        for missing in [
            "", ".", "memory.", "memory.search.semantic", "memory.search.filter.fast",
            "memory.replay-snapshot", "scheduling.calendar", "multiAgent.executionModel",
            "replay.branch", "workspace.supported.not", "capabilities", "Memory", "tools.browser",
        ] {
            assert!(!able.has(missing), "{missing}");
        }
        let readers = Capabilities::of(&Means { writable: false, ..all_on() });
        for missing in [
            "memory.write", "memory.writable", "memory.compaction", "memory.distillation",
            "memory.retention.forget", "workspace",
        ] {
            assert!(!readers.has(missing), "{missing}");
        }
    }

    #[test]
    fn capabilities_of_memory_belong_to_dimensions() {
        let check = |capability, expected: Option<&str>| {
            let found = Dimension::of_capability(capability).map(Dimension::as_str);
            assert_eq!(found, expected, "{capability}");
        };
        check("memory.search", Some("search"));
        check("memory.search.semantic", Some("search"));
        check("capabilities.memory.replay-snapshot", Some("replay-snapshot"));
        check("memory.writable", Some("write"));
        check("memory.distillation.scheduled", Some("compaction"));
        check("agents.memoryBackends.long-term", Some("long-term-durability"));
        check("memory", None);
        check("memory.telepathy", None);
        check("workspace", None);
        check("multiAgent.executionModel", None);
    }

    #[test]
    fn a_block_that_is_not_supported_holds_nothing() {
        let told =
            json!({"a": {"supported": false, "b": true}, "c": 0, "d": "", "e": [], "f": null});
        for path in ["a", "a.b", "a.supported", "c", "d", "e", "f"] {
            assert!(!leads_somewhere(&told, path), "{path}");
        }
    }
}
