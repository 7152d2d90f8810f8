//! How the host behaves, by name. The names are those of the `[openwop]` table.

use std::path::PathBuf;

/// The settings of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSettings {
    /// Whether the fixtures and seams of the conformance suite are there. This is a
    /// flag of `serve`, and stands in no file.
    pub conformance: bool,
    /// `read_only`: nobody writes through the host's doors, and the host does not by
    /// itself.
    pub read_only: bool,
    /// `run_retention_seconds`: how long a run that ended can be read and repeated.
    pub run_retention_seconds: u64,
    /// `run_input_bytes`: bytes of a run's inputs, as JSON.
    pub run_input_bytes: usize,
    /// `runs_unfinished`: runs of one tenant that have not ended.
    pub runs_unfinished: u64,
    /// `agents`: the directory of agent manifests; none by default.
    pub agents: Option<PathBuf>,
}

impl Default for HostSettings {
    fn default() -> Self {
        Self {
            conformance: false,
            read_only: false,
            run_retention_seconds: 7 * 24 * 3_600,
            run_input_bytes: 65_536,
            runs_unfinished: 1_000,
            agents: None,
        }
    }
}
