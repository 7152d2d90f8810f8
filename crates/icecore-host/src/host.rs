//! The host: a memory, and how it behaves towards the protocol.

use std::sync::Arc;

use icecore::Memory;

use crate::agents::{Agents, AgentsError};
use crate::engine::Runs;
use crate::settings::HostSettings;

/// What all routes of the protocol are answered by.
///
/// Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Host {
    pub(crate) memory: Memory,
    pub(crate) settings: HostSettings,
    pub(crate) agents: Arc<Agents>,
    pub(crate) runs: Arc<Runs>,
}

impl Host {
    /// A host over a memory, without agents; [`Host::open`] has those that the
    /// settings name.
    pub fn new(memory: Memory, settings: HostSettings) -> Self {
        let runs = Arc::new(Runs::new(&settings, memory.now()));
        Self { memory, settings, agents: Arc::default(), runs }
    }

    /// A host over a memory, with the agents of its settings.
    pub fn open(memory: Memory, settings: HostSettings) -> Result<Self, AgentsError> {
        let mut agents = match &settings.agents {
            Some(dir) => Agents::load(dir)?,
            None => Agents::default(),
        };
        if settings.conformance {
            agents = agents.with_fixtures()?;
        }
        Ok(Self { agents: Arc::new(agents), ..Self::new(memory, settings) })
    }

    /// The memory that it serves.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The agents that are installed.
    pub fn agents(&self) -> &Agents {
        &self.agents
    }

    /// How it behaves.
    pub fn settings(&self) -> &HostSettings {
        &self.settings
    }
}

impl From<Memory> for Host {
    /// A host with the default settings.
    fn from(memory: Memory) -> Self {
        Self::new(memory, HostSettings::default())
    }
}
