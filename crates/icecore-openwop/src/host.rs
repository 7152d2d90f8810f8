//! The host: a memory, and how it behaves towards the protocol.

use icecore::Memory;

use crate::settings::HostSettings;

/// What all routes of the protocol are answered by.
///
/// Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Host {
    pub(crate) memory: Memory,
    pub(crate) settings: HostSettings,
}

impl Host {
    /// A host over a memory.
    pub fn new(memory: Memory, settings: HostSettings) -> Self {
        Self { memory, settings }
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
