//! How an OpenWOP memory host behaves: runs of workflows that use memory, the agents
//! that are installed, commitments, and what the host says of itself.
//!
//! Knows the protocol's rules, and neither HTTP nor SQL.

mod agents;
mod capabilities;
mod dreams;
mod engine;
mod host;
mod plan;
mod probes;
mod runs;
mod settings;
mod workflow;

pub use agents::{AgentEntry, Agents, AgentsError, MAX_MANIFEST_BYTES, MAX_MANIFESTS, MemoryShape};
pub use capabilities::{
    AgentsFamily, AttributionBlock, Capabilities, CommitmentsBlock, CompactionBlock,
    CompactionMeans, ConsolidationBlock, Dimension, DistillationBlock, DistillationMeans, Families,
    InjectionBudgetBlock, ManifestRuntimeBlock, Means, MemoryFamily, ReplayFamily, ReplayWindow,
    RetentionBlock, SearchBlock, SecretsFamily, WorkspaceFamily, WorkspaceMeans,
};
pub use engine::Stepped;
pub use host::Host;
pub use runs::{
    ForkRequest, MAX_RUN_EVENTS, MAX_RUN_ID_CHARS, RunEvent, RunEvents, RunOwner, RunRequest,
    RunView, RunsError,
};
pub use settings::HostSettings;
