//! A host over a memory in a temporary directory, its clock moved by hand.

use std::path::Path;
use std::sync::Arc;

use icecore::knowledge::NewEntryRequest;
use icecore::{Clock, Memory, Millis, Scope};
use icecore_host::settings::{CommitmentSettings, ScheduleSettings};
use icecore_host::{Host, HostSettings};

pub(crate) use crate::support::{HandClock, START, me};

pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) memory: Memory,
    pub(crate) host: Host,
    pub(crate) scope: Scope,
    pub(crate) clock: Arc<HandClock>,
    settings: HostSettings,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(HostSettings::default()).await
    }

    pub(crate) async fn with(settings: HostSettings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(HandClock::default());
        clock.move_to(Millis(START));
        let memory = open(dir.path(), &clock).await;
        let host = Host::new(memory.clone(), settings.clone());
        let scope = memory.scope(&me(), "m").await.unwrap();
        Self { dir, memory, host, scope, clock, settings }
    }

    pub(crate) async fn with_schedules(schedules: ScheduleSettings) -> Self {
        Self::with(HostSettings { schedules, ..HostSettings::default() }).await
    }

    pub(crate) async fn with_commitments(commitments: CommitmentSettings) -> Self {
        Self::with(HostSettings { commitments, ..HostSettings::default() }).await
    }

    /// Closes the memory and opens it again, as a restart would.
    pub(crate) async fn reopen(self) -> Self {
        let Bench { dir, memory, host, scope, clock, settings } = self;
        drop((memory, host));
        let memory = open(dir.path(), &clock).await;
        let host = Host::new(memory.clone(), settings.clone());
        Self { dir, memory, host, scope, clock, settings }
    }

    pub(crate) async fn put(&self, content: &str) {
        let request = NewEntryRequest { content: content.to_owned(), ..Default::default() };
        self.memory.put_entry(&self.scope, request).await.unwrap();
    }

    pub(crate) async fn settle(&self) {
        self.host.settle(|_, _| {}).await.unwrap();
    }

    /// Everything that can be verified is whole.
    pub(crate) async fn check(&self) {
        let report = self.memory.check(false, |_, _| {}).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
    }
}

async fn open(dir: &Path, clock: &Arc<HandClock>) -> Memory {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    Memory::builder().clock(clock).open(dir).await.unwrap()
}
