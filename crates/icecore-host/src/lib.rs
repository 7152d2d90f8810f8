//! What a host adds to memory: API keys, outcomes of requests, limits per tenant, runs,
//! schedules, commitments, workspace files, and the rules of the OpenWOP protocol.
//!
//! [`Host`] has a handle for each. Knows neither HTTP nor SQL.

pub mod agents;
pub mod bounds;
pub mod capabilities;
pub mod commitments;
mod error;
mod host;
pub mod keys;
pub mod outcomes;
pub mod runs;
pub mod schedules;
pub mod settings;
mod upkeep;
pub mod workspace;

pub use agents::AgentsError;
pub use host::Host;
pub use settings::HostSettings;
