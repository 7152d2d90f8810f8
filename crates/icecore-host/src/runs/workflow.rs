//! Workflows: what a run does, node by node.
//!
//! A definition is a file; one that names what this host cannot do is refused when it
//! is read, and not when it is run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use icecore::dreams::DREAM_WORKFLOW;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Characters of the id of a workflow or node.
const MAX_ID_CHARS: usize = 64;

/// Nodes of a workflow.
const MAX_NODES: usize = 256;

/// The longest that a run may take.
const MAX_TIMEOUT: Duration = Duration::from_secs(3_600);

/// The fixtures of the conformance suite, by the ids that it knows.
const FIXTURES: &[&str] = &[
    include_str!("../../workflows/conformance-agent-memory-cross-tenant.json"),
    include_str!("../../workflows/conformance-agent-memory-injection-budget.json"),
    include_str!("../../workflows/conformance-agent-memory-redaction.json"),
    include_str!("../../workflows/conformance-agent-memory-roundtrip.json"),
    include_str!("../../workflows/conformance-agent-memory-ttl.json"),
    include_str!("../../workflows/conformance-identity.json"),
    include_str!("../../workflows/conformance-noop.json"),
];

/// The workflows that are always here.
const BUILT_IN: &[&str] = &[include_str!("../../workflows/icecore-dream.json")];

/// A workflow that can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Workflow {
    /// Its id.
    pub(crate) id: String,
    /// Its nodes, in the order in which they are run; at least one.
    pub(crate) nodes: Vec<Node>,
    /// Variables that it says it sets.
    pub(crate) variables: BTreeSet<String>,
    /// How long a run of it may take.
    pub(crate) timeout: Duration,
}

/// One thing that a workflow does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its id.
    pub(crate) id: String,
    /// The name of what it does.
    pub(crate) type_id: &'static str,
    /// What it does.
    pub(crate) behaviour: Behaviour,
    /// Which agent does it.
    pub(crate) agent: Option<String>,
    /// In which memory.
    pub(crate) memory_ref: String,
}

/// What a node does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// `core.noop`: nothing.
    Nothing,
    /// `core.identity`: its inputs become variables.
    PassOn,
    /// `core.identity` with a memory action.
    Memory(MemoryAction),
    /// `icecore.dream`: distils a memory, with which the run ends.
    Dream,
}

/// What a node does with memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MemoryAction {
    /// Puts an entry and finds it.
    WriteThenRead,
    /// Puts an entry that holds a secret and finds it without.
    RedactionProbe {
        /// The secret's name.
        secret: String,
    },
    /// Puts an entry that stays and one that expires, and lists what is left then.
    TtlProbe,
    /// Looks for its own entry, and for another tenant's.
    CrossTenantProbe {
        /// Where the other tenant has one.
        probe_ref: String,
    },
    /// Lists entries within a budget, by time and by what answers a query.
    InjectionBudget {
        /// The name of a secret that one of them holds.
        secret: String,
        /// The budget, in the host's unit.
        token_budget: u64,
        /// The query.
        query: String,
    },
}

/// Why a definition cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WorkflowError {
    /// Not the JSON of a workflow.
    #[error("this is no workflow: {0}")]
    Shape(String),
    /// An id that cannot be one.
    #[error(
        "the id of a workflow or node has 1 to {MAX_ID_CHARS} ASCII letters, digits, `-`, `_` and `.`"
    )]
    Id,
    /// No node, or too many.
    #[error("a workflow has 1 to {MAX_NODES} nodes")]
    Nodes,
    /// Two nodes of the same id.
    #[error("two nodes are called `{node}`")]
    Twice {
        /// Their id.
        node: String,
    },
    /// A node of a type that is not known.
    #[error("node `{node}` has a type that this host does not know")]
    Type {
        /// Its id.
        node: String,
    },
    /// A memory action that is not known.
    #[error("node `{node}` has a memory action that this host does not know")]
    Action {
        /// Its id.
        node: String,
    },
    /// Something is wrong with what a node is told.
    #[error("node `{node}`: {reason}")]
    Config {
        /// Its id.
        node: String,
        /// What.
        reason: String,
    },
    /// An edge from or to nowhere.
    #[error("edge {} names a node that is not there", index + 1)]
    Edge {
        /// Its place.
        index: usize,
    },
    /// Nodes that wait for each other.
    #[error("the edges form a cycle")]
    Cycle,
    /// A time that is none.
    #[error("`settings.timeout` is 1 to {} milliseconds", MAX_TIMEOUT.as_millis())]
    Timeout,
}

/// The workflows that are always here, by id.
pub(crate) fn built_in() -> BTreeMap<String, Workflow> {
    read(BUILT_IN)
}

/// The fixtures of the conformance suite, by id.
pub(crate) fn fixtures() -> BTreeMap<String, Workflow> {
    read(FIXTURES)
}

fn read(definitions: &[&str]) -> BTreeMap<String, Workflow> {
    let mut known = BTreeMap::new();
    for definition in definitions {
        match Workflow::parse(definition) {
            Ok(workflow) => drop(known.insert(workflow.id.clone(), workflow)),
            Err(error) => tracing::error!(error = %error, "a workflow of ours cannot be run"),
        }
    }
    known
}

impl Workflow {
    /// Reads a definition.
    pub(crate) fn parse(text: &str) -> Result<Self, WorkflowError> {
        let file: WorkflowFile = serde_json::from_str(text).map_err(shape)?;
        check_id(&file.id)?;
        if !(1..=MAX_NODES).contains(&file.nodes.len()) {
            return Err(WorkflowError::Nodes);
        }
        let timeout = Duration::from_millis(file.settings.timeout);
        if timeout.is_zero() || timeout > MAX_TIMEOUT {
            return Err(WorkflowError::Timeout);
        }
        let default_ref = format!("runs/{}", file.id);
        let mut nodes = Vec::with_capacity(file.nodes.len());
        for node in &file.nodes {
            nodes.push(Node::new(node, &default_ref)?);
        }
        let nodes = in_order(nodes, &file.edges)?;
        let variables = file.variables.into_iter().map(|variable| variable.name).collect();
        Ok(Self { id: file.id, nodes, variables, timeout })
    }

    /// The memory that summaries of its runs go to: the first agent's, where it has one.
    pub(crate) fn memory_ref(&self) -> String {
        let agent = self.nodes.iter().find(|node| node.agent.is_some());
        agent.map_or_else(|| format!("runs/{}", self.id), |node| node.memory_ref.clone())
    }
}

impl Node {
    fn new(file: &NodeFile, default_ref: &str) -> Result<Self, WorkflowError> {
        check_id(&file.id)?;
        let (type_id, behaviour) = match file.type_id.as_str() {
            "core.noop" => ("core.noop", Behaviour::Nothing),
            "core.identity" => ("core.identity", behaviour(file)?),
            DREAM_WORKFLOW => (DREAM_WORKFLOW, Behaviour::Dream),
            _ => return Err(WorkflowError::Type { node: file.id.clone() }),
        };
        let memory_ref = file.agent.as_ref().map_or(default_ref, |agent| &agent.memory_ref);
        check_ref(&file.id, memory_ref)?;
        let agent = file.agent.as_ref().map(|agent| agent.agent_id.clone());
        let (id, memory_ref) = (file.id.clone(), memory_ref.to_owned());
        Ok(Self { id, type_id, behaviour, agent, memory_ref })
    }
}

fn behaviour(file: &NodeFile) -> Result<Behaviour, WorkflowError> {
    let mut config = file.config.clone();
    let action = match config.remove("memoryAction") {
        None => {
            let _: NoConfig = config_of(file, config)?;
            return Ok(Behaviour::PassOn);
        }
        Some(action) => action,
    };
    let action = match action.as_str() {
        Some("write-then-read") => {
            let _: NoConfig = config_of(file, config)?;
            MemoryAction::WriteThenRead
        }
        Some("ttl-probe") => {
            let _: NoConfig = config_of(file, config)?;
            MemoryAction::TtlProbe
        }
        Some("redaction-probe") => {
            let SecretConfig { byok_secret_id } = config_of(file, config)?;
            MemoryAction::RedactionProbe { secret: byok_secret_id }
        }
        Some("cross-tenant-probe") => {
            let ProbeConfig { probe_memory_ref } = config_of(file, config)?;
            check_ref(&file.id, &probe_memory_ref)?;
            MemoryAction::CrossTenantProbe { probe_ref: probe_memory_ref }
        }
        Some("injection-budget") => {
            let BudgetConfig { byok_secret_id, token_budget, query } = config_of(file, config)?;
            if token_budget == 0 {
                let reason = "`tokenBudget` must be at least 1".to_owned();
                return Err(WorkflowError::Config { node: file.id.clone(), reason });
            }
            MemoryAction::InjectionBudget { secret: byok_secret_id, token_budget, query }
        }
        _ => return Err(WorkflowError::Action { node: file.id.clone() }),
    };
    Ok(Behaviour::Memory(action))
}

/// Nodes after those that lead to them; where either may come first, as they are
/// written down.
fn in_order(nodes: Vec<Node>, edges: &[EdgeFile]) -> Result<Vec<Node>, WorkflowError> {
    let mut places = BTreeMap::new();
    for (place, node) in nodes.iter().enumerate() {
        if places.insert(node.id.clone(), place).is_some() {
            return Err(WorkflowError::Twice { node: node.id.clone() });
        }
    }
    let mut before: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); nodes.len()];
    for (index, edge) in edges.iter().enumerate() {
        let place = |id: &str| places.get(id).copied().ok_or(WorkflowError::Edge { index });
        before[place(&edge.target)?].insert(place(&edge.source)?);
    }
    let mut left: BTreeMap<usize, Node> = nodes.into_iter().enumerate().collect();
    let mut ordered = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let is_free =
            |place: &&usize| before[**place].iter().all(|first| !left.contains_key(first));
        let next = left.keys().find(is_free).copied().ok_or(WorkflowError::Cycle)?;
        ordered.extend(left.remove(&next));
    }
    Ok(ordered)
}

fn check_id(id: &str) -> Result<(), WorkflowError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match (1..=MAX_ID_CHARS).contains(&id.len()) && id.bytes().all(is_allowed) {
        true => Ok(()),
        false => Err(WorkflowError::Id),
    }
}

fn check_ref(node: &str, memory_ref: &str) -> Result<(), WorkflowError> {
    match (1..=icecore::ids::MAX_NAME_BYTES).contains(&memory_ref.len()) {
        true => Ok(()),
        false => {
            let reason = format!("a memory's name has 1 to {} bytes", icecore::ids::MAX_NAME_BYTES);
            Err(WorkflowError::Config { node: node.to_owned(), reason })
        }
    }
}

fn config_of<T: DeserializeOwned>(
    file: &NodeFile,
    config: Map<String, Value>,
) -> Result<T, WorkflowError> {
    serde_json::from_value(Value::Object(config))
        .map_err(|error| WorkflowError::Config { node: file.id.clone(), reason: error.to_string() })
}

fn shape(error: serde_json::Error) -> WorkflowError {
    WorkflowError::Shape(error.to_string())
}

// The file

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "names, triggers and metadata are for those who read the file")]
struct WorkflowFile {
    id: String,
    name: String,
    version: String,
    nodes: Vec<NodeFile>,
    edges: Vec<EdgeFile>,
    triggers: Vec<Value>,
    variables: Vec<VariableFile>,
    metadata: Map<String, Value>,
    settings: SettingsFile,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "names and positions are for those who draw it")]
struct NodeFile {
    id: String,
    type_id: String,
    name: String,
    position: Value,
    config: Map<String, Value>,
    inputs: Map<String, Value>,
    agent: Option<AgentFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AgentFile {
    agent_id: String,
    memory_ref: String,
}

#[derive(Deserialize)]
struct EdgeFile {
    source: String,
    target: String,
}

#[derive(Deserialize)]
struct VariableFile {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFile {
    /// In milliseconds.
    timeout: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoConfig {}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SecretConfig {
    byok_secret_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProbeConfig {
    probe_memory_ref: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BudgetConfig {
    byok_secret_id: String,
    token_budget: u64,
    query: String,
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A workflow of these nodes, `ID` or `ID: TYPE` or `ID: TYPE ACTION`.
    pub(crate) fn definition(nodes: &[&str], edges: &[(&str, &str)]) -> Value {
        let node = |spec: &&str| {
            let (id, kind) = spec.split_once(": ").unwrap_or((spec, "core.noop"));
            let (kind, action) = kind.split_once(' ').unwrap_or((kind, ""));
            let config = match action {
                "" => json!({}),
                action => json!({"memoryAction": action}),
            };
            json!({"id": id, "typeId": kind, "name": id, "position": {"x": 0, "y": 0},
                "config": config, "inputs": {}})
        };
        let edge = |(source, target): &(&str, &str)| json!({"source": source, "target": target});
        json!({
            "id": "w", "name": "W", "version": "1.0.0",
            "nodes": nodes.iter().map(node).collect::<Vec<_>>(),
            "edges": edges.iter().map(edge).collect::<Vec<_>>(),
            "triggers": [], "variables": [], "metadata": {}, "settings": {"timeout": 1000},
        })
    }

    #[test]
    fn all_fixtures_can_be_run() {
        let known = fixtures();
        let ids: Vec<&str> = known.keys().map(String::as_str).collect();
        let expected = [
            "conformance-agent-memory-cross-tenant",
            "conformance-agent-memory-injection-budget",
            "conformance-agent-memory-redaction",
            "conformance-agent-memory-roundtrip",
            "conformance-agent-memory-ttl",
            "conformance-identity",
            "conformance-noop",
        ];
        assert_eq!(ids, expected);
        assert_eq!(known["conformance-noop"].memory_ref(), "runs/conformance-noop");
        let own = &known["conformance-agent-memory-roundtrip"];
        assert_eq!(own.memory_ref(), "conformance/agent-memory-roundtrip");
        let no_agent = &known["conformance-agent-memory-cross-tenant"].nodes[0];
        assert_eq!(no_agent.memory_ref, "runs/conformance-agent-memory-cross-tenant");
    }

    #[test]
    fn dreams_can_always_be_run() {
        let known = built_in();
        assert_eq!(known.keys().collect::<Vec<_>>(), [DREAM_WORKFLOW]);
        assert_eq!(known[DREAM_WORKFLOW].nodes[0].behaviour, Behaviour::Dream);
    }

    #[test]
    fn nodes_come_after_those_that_lead_to_them() {
        let check = |nodes: &[&str], edges: &[(&str, &str)], expected: &str| {
            let workflow = Workflow::parse(&definition(nodes, edges).to_string()).unwrap();
            let ids: Vec<String> = workflow.nodes.into_iter().map(|node| node.id).collect();
            assert_eq!(ids.join(" "), expected);
        };
        check(&["a", "b", "c"], &[], "a b c");
        check(&["a", "b", "c"], &[("c", "a")], "b c a");
        check(&["a", "b", "c"], &[("c", "b"), ("b", "a"), ("c", "a")], "c b a");
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let check = |definition: Value, expected: WorkflowError| {
            assert_eq!(Workflow::parse(&definition.to_string()), Err(expected));
        };
        let node = || "a".to_owned();
        check(definition(&[], &[]), WorkflowError::Nodes);
        check(definition(&["a", "a"], &[]), WorkflowError::Twice { node: node() });
        check(definition(&["a: core.shell"], &[]), WorkflowError::Type { node: node() });
        let unknown = definition(&["a: core.identity erase-all"], &[]);
        check(unknown, WorkflowError::Action { node: node() });
        check(definition(&["a/b"], &[]), WorkflowError::Id);
        check(definition(&["a"], &[("a", "b")]), WorkflowError::Edge { index: 0 });
        check(definition(&["a", "b"], &[("a", "b"), ("b", "a")]), WorkflowError::Cycle);
        check(definition(&["a"], &[("a", "a")]), WorkflowError::Cycle);
        let mut endless = definition(&["a"], &[]);
        endless["settings"]["timeout"] = json!(u64::MAX);
        check(endless, WorkflowError::Timeout);
        for wrong in ["", "[]", "{}", "{\"id\":1}"] {
            assert!(matches!(Workflow::parse(wrong), Err(WorkflowError::Shape(_))), "{wrong}");
        }
        let secretless = definition(&["a: core.identity redaction-probe"], &[]);
        let refused = Workflow::parse(&secretless.to_string());
        assert!(matches!(refused, Err(WorkflowError::Config { .. })), "{refused:?}");
    }
}
