//! The host: a memory, and how it behaves towards the protocol.

use std::sync::Arc;

use icecore::Memory;

use crate::engine::Runs;
use crate::settings::HostSettings;

/// What all routes of the protocol are answered by.
///
/// Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Host {
    pub(crate) memory: Memory,
    pub(crate) settings: HostSettings,
    pub(crate) runs: Arc<Runs>,
}

impl Host {
    /// A host over a memory.
    pub fn new(memory: Memory, settings: HostSettings) -> Self {
        let runs = Arc::new(Runs::new(&settings));
        Self { memory, settings, runs }
    }

    /// The memory that it serves.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// How it behaves.
    pub fn settings(&self) -> &HostSettings {
        &self.settings
    }
}
