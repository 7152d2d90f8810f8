//! The `[openwop]` table.

use std::path::PathBuf;

use icecore_settings::settings;

settings! {
    /// The settings of a host.
    #[derive(PartialEq, Eq)]
    pub struct HostSettings {
        /// Whether the fixtures and seams of the conformance suite are there: a flag of `serve`.
        conformance: bool = false => none;
        /// Refuses every write, and writes nothing in the background.
        read_only: bool = false;
        /// How long a run that ended can be read and repeated.
        run_retention_seconds: u64 = 7 * 24 * 3_600, 0..=3_153_600_000;
        /// The largest inputs of a run, as JSON.
        run_input_bytes: usize = 65_536, 2..=1 << 24 => advanced;
        /// Runs of one tenant that have not ended.
        runs_unfinished: u64 = 1_000, 1..=1_000_000 => advanced;
        /// The directory of agent manifests; empty: none.
        agents: Option<PathBuf>;
    }
}
