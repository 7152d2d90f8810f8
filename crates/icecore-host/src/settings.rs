//! The settings of a host: `[openwop]`, `[schedules]`, `[workspace]`, `[bounds]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use icecore::Tenant;
use icecore_settings::{MOST, settings};

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
        /// Intentions that come due.
        commitments: CommitmentSettings => at "openwop.commitments_";
        /// Work that comes by itself; see docs/schedules.md.
        schedules: ScheduleSettings => at "schedules.";
        /// Files that agents share beside the memory.
        workspace: WorkspaceSettings => at "workspace.";
    }
}

settings! {
    /// Limits on commitments.
    #[derive(PartialEq, Eq)]
    pub struct CommitmentSettings {
        /// Pending commitments of a memory.
        pending: u64 = 1_000, 0..=10_000 => advanced;
        /// Pending commitments of all memories of a tenant.
        pending_tenant: u64 = 10_000, 0..=1_000_000 => advanced;
        /// How long a commitment that fired, was cancelled or is void can be read.
        retention_seconds: u64 = 30 * 24 * 3_600, 0..=3_153_600_000 => advanced;
    }
}

settings! {
    /// Limits on schedules.
    #[derive(PartialEq, Eq)]
    pub struct ScheduleSettings {
        /// Schedules of a tenant that are still to come.
        per_tenant: u64 = 100, 0..=10_000;
        /// How far ahead the first time may be.
        horizon_days: u32 = 90, 1..=3_650;
        /// A memory written to so recently is in use, and its dream waits.
        idle_seconds: u64 = 5, 0..=86_400 => advanced;
        /// How long a dream waits for that.
        wait_seconds: u64 = 3_600, 0..=604_800 => advanced;
        /// A later time is missed, unless the schedule catches up.
        late_seconds: u64 = 60, 0..=604_800 => advanced;
        /// A host that was silent for this long is dead.
        lease_seconds: u64 = 30, 1..=3_600 => advanced;
        /// Ticks that a host works on at once.
        running: usize = 4, 1..=1_024 => advanced;
        /// Tokens of a tenant's dreams from midnight UTC, beyond which scheduled ones wait;
        /// 0: no limit.
        tokens_a_day: u64 = 0, 0..=MOST;
        /// How long ticks can be read.
        retention_days: u32 = 30, 1..=36_500;
        /// Ticks of a schedule that can be read, the newest.
        ticks_kept: u64 = 100_000, 1..=10_000_000 => advanced;
    }
}

impl ScheduleSettings {
    /// How far ahead the first instant may be, as an ISO 8601 duration.
    pub fn horizon(&self) -> String {
        format!("P{}D", self.horizon_days)
    }
}

settings! {
    /// Limits on workspace files.
    #[derive(PartialEq, Eq, Copy)]
    pub struct WorkspaceSettings {
        /// Offers workspace files at all.
        enabled: bool = true;
        /// The largest content of a file.
        file_bytes: usize = 1 << 20, 1..=1 << 28;
        /// Files of one workspace.
        files: u64 = 256, 1..=100_000;
        /// Versions of a file that are kept, the last among them.
        versions: u64 = 20, 1..=100_000 => advanced;
    }
}

settings! {
    /// What tenants may keep and use.
    #[derive(PartialEq, Eq)]
    pub struct BoundSettings {
        /// At `turns` and `bytes` nothing more is stored until something is forgotten; reading,
        /// `forget` and `export` go on. A day is one of UTC. See docs/bounds.md for what counts.
        everyone: TenantBounds => at "bounds.";
        /// A tenant may have bounds of its own. What its table leaves out is as above.
        tenants: BTreeMap<Tenant, TenantBounds> => tables "bounds.tenants" of everyone;
        /// Requests of a tenant that a host counts before it writes them down. Each host counts a
        /// day's use by itself, so a bound of a day is exceeded by at most one step for each other
        /// host. A step is never more than a hundredth of the bound.
        step_requests: u64 = 100, 1..=1_000_000 => advanced;
        /// The same for tokens.
        step_tokens: u64 = 10_000, 1..=1_000_000_000 => advanced;
        /// After this long a host writes in any case.
        step_seconds: u64 = 10, 1..=3_600 => advanced;
    }

    /// What a tenant may keep and use; 0 is without a bound.
    #[derive(PartialEq, Eq, Copy)]
    pub struct TenantBounds {
        /// Turns that are kept; 0: no limit.
        turns: u64 = 0, 0..=MOST;
        /// Bytes of turns, entries and files as they are stored; 0: no limit.
        bytes: u64 = 0, 0..=MOST;
        /// Requests over HTTP; 0: no limit.
        requests_a_day: u64 = 0, 0..=MOST;
        /// Tokens of stored turns, entries and files, and those that models read and wrote;
        /// 0: no limit.
        tokens_a_day: u64 = 0, 0..=MOST;
    }
}

impl BoundSettings {
    /// What one tenant may keep and use.
    pub fn of(&self, tenant: &Tenant) -> TenantBounds {
        self.tenants.get(tenant).copied().unwrap_or(self.everyone)
    }
}
