//! The host: a memory, and what a host adds to it.

use std::any::Any;
use std::sync::Arc;

use icecore::extend::{self, Admission as _};
use icecore::layers::Settled;
use icecore::{Memory, MemoryError, Tenant};
use tokio::sync::watch;

use crate::agents::{AgentEntry, Agents, AgentsError};
use crate::bounds::Bounds;
use crate::capabilities::{
    Capabilities, CompactionMeans, DistillationMeans, Means, WorkspaceMeans,
};
use crate::commitments::{CommitmentError, Commitments};
use crate::keys::Keys;
use crate::outcomes::Outcomes;
use crate::runs::Runs;
use crate::schedules::Schedules;
use crate::settings::HostSettings;
use crate::workspace::Files;

/// A memory that is served to others, with one handle for each noun of a host.
///
/// Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Host {
    /// The memory that it serves.
    pub memory: Memory,
    /// API keys.
    pub keys: Keys,
    /// Outcomes of requests.
    pub outcomes: Outcomes,
    /// Limits per tenant.
    pub bounds: Bounds,
    /// Workspace files.
    pub files: Files,
    /// Commitments.
    pub commitments: Commitments,
    /// Schedules.
    pub schedules: Schedules,
    /// Runs of workflows.
    pub runs: Runs,
    agents: Arc<Agents>,
    settings: Arc<HostSettings>,
}

impl Host {
    /// A host over a memory, without agents; [`Host::open`] has those that the
    /// settings name. Its limits are those that the memory was opened with.
    pub fn new(memory: Memory, settings: HostSettings) -> Self {
        let settings = Arc::new(settings);
        let commitments = Commitments::new(memory.clone(), settings.commitments.clone());
        Self {
            keys: Keys::new(memory.clone()),
            outcomes: Outcomes::new(memory.clone()),
            bounds: bounds_of(&memory),
            files: Files::new(memory.clone(), settings.workspace),
            schedules: Schedules::new(
                memory.clone(),
                settings.schedules.clone(),
                commitments.clone(),
            ),
            commitments,
            runs: Runs::new(memory.clone(), Arc::clone(&settings)),
            agents: Arc::default(),
            memory,
            settings,
        }
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

    /// The agents that are installed.
    pub fn agents(&self) -> &Agents {
        &self.agents
    }

    /// Its settings.
    pub fn settings(&self) -> &HostSettings {
        &self.settings
    }

    /// Does a host's own work until `stop` resolves: runs, schedules, commitments, and what
    /// is past its time. The memory's upkeep is apart. A host that is read-only only lets
    /// go of what is past its time.
    pub async fn run_until(&self, stop: impl Future<Output = ()>) {
        let (closing, closed) = watch::channel(false);
        let writes = !self.settings.read_only;
        let stopping = async {
            stop.await;
            closing.send_replace(true);
        };
        let schedules = async {
            if writes {
                self.schedules.run_until(closed.clone()).await;
            }
        };
        let mut ended = closed.clone();
        let ended = async move {
            let _ = ended.wait_for(|closed| *closed).await;
        };
        tokio::join!(
            stopping,
            self.runs.run_until(ended),
            self.commitments.run_until(closed.clone(), writes),
            schedules,
            self.bounds.write_until(closed.clone()),
        );
    }

    /// Brings the memory up to date, as [`Memory::settle`] does, and writes and removes
    /// what is the host's.
    pub async fn settle(&self, tell: impl FnMut(u64, u64)) -> Result<Settled, MemoryError> {
        let settled = self.memory.settle(tell).await?;
        match self.commitments.purge().await {
            Ok(_) => {}
            Err(CommitmentError::Memory(error)) => return Err(error),
            Err(error) => return Err(MemoryError::Internal(error.to_string())),
        }
        self.bounds.write().await;
        Ok(settled)
    }

    /// What this host can do now, behind a door through which bodies of
    /// `body_bytes` come.
    pub fn capabilities(&self, body_bytes: usize) -> Capabilities {
        Capabilities::of(&self.means(body_bytes))
    }

    fn means(&self, body_bytes: usize) -> Means {
        let (entries, workspace) = (self.memory.entry_settings(), self.files.settings());
        let compaction = self.memory.compaction_settings();
        let HostSettings { commitments, schedules, .. } = &*self.settings;
        let dreams = self.memory.dream_settings();
        let is_scheduled = !self.settings.read_only && schedules.per_tenant > 0;
        Means {
            writable: !self.settings.read_only,
            semantic: self.memory.model().is_some(),
            entry_bytes: entries.bytes,
            budget_counter: self.memory.entry_budget_counter(),
            compaction: (compaction.entries > 0).then(|| CompactionMeans {
                input_entries: compaction.input_entries,
                // What it writes is an entry.
                output_bytes: compaction.output_bytes.min(entries.bytes),
            }),
            distillation: DistillationMeans {
                max_token_budget: dreams.max_token_budget,
                archive_retention_days: dreams.archive_retention_days,
                scheduled: is_scheduled,
            },
            schedule_horizon: is_scheduled.then(|| schedules.horizon()),
            workspace: workspace.enabled.then(|| WorkspaceMeans {
                // A larger one could not arrive.
                file_bytes: workspace.file_bytes.min(body_bytes),
                files: workspace.files,
                versions: workspace.versions,
            }),
            workflows: self.runs.workflows().map(str::to_owned).collect(),
            conformance: self.settings.conformance,
            run_retention_seconds: self.settings.run_retention_seconds,
            commitments: commitments.pending > 0 && commitments.pending_tenant > 0,
            agents: self.agents.count(),
        }
    }

    /// Every agent, as a caller of that tenant may see it.
    pub async fn inventory(
        &self,
        tenant: &Tenant,
        able: &Capabilities,
    ) -> Result<Vec<AgentEntry>, MemoryError> {
        let redactor = self.memory.redactor(tenant).await?.redactor;
        Ok(self.agents.inventory(able, &redactor))
    }

    /// One agent, as a caller of that tenant may see it.
    pub async fn agent(
        &self,
        id: &str,
        tenant: &Tenant,
        able: &Capabilities,
    ) -> Result<Option<AgentEntry>, MemoryError> {
        let redactor = self.memory.redactor(tenant).await?.redactor;
        Ok(self.agents.find(id, able, &redactor))
    }
}

/// The limits that a memory was opened with. One that was opened without has none, and only
/// its requests are counted.
fn bounds_of(memory: &Memory) -> Bounds {
    let opened_with = extend::admission(memory).map(|it| it as Arc<dyn Any + Send + Sync>);
    if let Some(Ok(bounds)) = opened_with.map(|it| it.downcast::<Bounds>()) {
        return Bounds::clone(&bounds);
    }
    let none = Bounds::default();
    none.opened(extend::store(memory), extend::clock(memory));
    none
}

impl From<Memory> for Host {
    /// A host with the default settings.
    fn from(memory: Memory) -> Self {
        Self::new(memory, HostSettings::default())
    }
}
