//! How an OpenWOP memory host behaves: runs of workflows that use memory, the agents
//! that are installed, commitments, and what the host says of itself.
//!
//! Knows the protocol's rules, and neither HTTP nor SQL.

mod agents;
mod capabilities;
mod host;
mod settings;

pub use agents::{AgentEntry, Agents, AgentsError, MAX_MANIFEST_BYTES, MAX_MANIFESTS, MemoryShape};
pub use capabilities::{
    AgentsFamily, AttributionBlock, Capabilities, CommitmentsBlock, CompactionBlock,
    CompactionMeans, ConsolidationBlock, Dimension, Families, InjectionBudgetBlock,
    ManifestRuntimeBlock, Means, MemoryFamily, ReplayFamily, ReplayWindow, RetentionBlock,
    SearchBlock, SecretsFamily, WorkspaceFamily, WorkspaceMeans,
};
pub use host::Host;
pub use settings::HostSettings;
