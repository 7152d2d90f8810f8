//! How an OpenWOP memory host behaves: runs of workflows that use memory, the agents
//! that are installed, commitments, and what the host says of itself.
//!
//! Knows the protocol's rules, and neither HTTP nor SQL.

mod host;
mod settings;

pub use host::Host;
pub use settings::HostSettings;
