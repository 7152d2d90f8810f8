//! A host over a store, its clock moved by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use icecore::formats::json::JsonText;
use icecore::knowledge::{EntryQuery, EntryRecord, NewEntryRequest};
use icecore::{Clock, Memory, Millis, Principal, Tenant};
use icecore_host::runs::{ForkRequest, RunEventRecord, RunRecord, RunRequest, RunsError, Stepped};
use icecore_host::{Host, HostSettings};
use icecore_store::{Packs, Store};
use serde_json::Value;

pub(crate) const ROUNDTRIP: &str = "conformance-agent-memory-roundtrip";
pub(crate) const ROUNDTRIP_REF: &str = "conformance/agent-memory-roundtrip";
pub(crate) const TTL: &str = "conformance-agent-memory-ttl";
pub(crate) const TTL_REF: &str = "conformance/agent-memory-ttl";
pub(crate) const NOOP: &str = "conformance-noop";

/// 2026-01-01T00:00:00Z.
pub(crate) const START: i64 = 1_767_225_600_000;

/// A clock that stands still until it is moved.
#[derive(Default)]
pub(crate) struct HandClock(AtomicI64);

impl HandClock {
    pub(crate) fn move_to(&self, at: Millis) {
        self.0.store(at.0, Ordering::SeqCst);
    }

    pub(crate) fn advance(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::SeqCst))
    }
}

pub(crate) struct Bench {
    pub(crate) store: Store,
    pub(crate) clock: Arc<HandClock>,
    pub(crate) host: Host,
    _dir: Option<tempfile::TempDir>,
}

/// An event with its payload read.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) payload: Value,
    pub(crate) at: Millis,
    pub(crate) sequence: u64,
    pub(crate) node: Option<String>,
    pub(crate) cause: Option<String>,
}

impl From<RunEventRecord> for Event {
    fn from(event: RunEventRecord) -> Self {
        let RunEventRecord { kind, payload, at, sequence, node, cause } = event;
        Self { payload: serde_json::from_str(&payload).unwrap(), kind, at, sequence, node, cause }
    }
}

pub(crate) fn principal(tenant: &str) -> Principal {
    Principal::local_operator(Tenant::new(tenant).unwrap())
}

pub(crate) fn me() -> Principal {
    principal("me")
}

pub(crate) fn settings() -> HostSettings {
    HostSettings { conformance: true, ..HostSettings::default() }
}

pub(crate) fn request(id: &str, workflow: &str) -> RunRequest {
    RunRequest {
        id: id.to_owned(),
        workflow_id: workflow.to_owned(),
        inputs: JsonText::parse("{}").unwrap(),
        configurable: None,
        principal_id: "key-1".to_owned(),
        claim: None,
    }
}

pub(crate) fn fork(id: &str, source: &str, from_seq: u64) -> ForkRequest {
    ForkRequest { id: id.to_owned(), source: source.to_owned(), from_seq, claim: None }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::over(Store::in_memory([1; 32]))
    }

    /// One over each kind of store.
    pub(crate) fn both() -> [Self; 2] {
        let dir = tempfile::tempdir().unwrap();
        let on_disk = Self::over(Store::open(dir.path(), None).unwrap());
        [Self::new(), Self { _dir: Some(dir), ..on_disk }]
    }

    pub(crate) fn over(store: Store) -> Self {
        let clock = Arc::new(HandClock(AtomicI64::new(START)));
        let host = host_over(store.clone(), &clock, settings());
        Self { store, clock, host, _dir: None }
    }

    /// Another host over the same store, as after a restart.
    pub(crate) fn again(&self, settings: HostSettings) -> Host {
        host_over(self.store.clone(), &self.clock, settings)
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.host.memory
    }

    pub(crate) async fn create(&self, id: &str, workflow: &str) -> RunRecord {
        self.host.runs.create(&me(), request(id, workflow)).await.unwrap()
    }

    /// Makes a run and works on it until it ends.
    pub(crate) async fn run(&self, id: &str, workflow: &str) {
        self.create(id, workflow).await;
        self.finish(id).await;
    }

    pub(crate) async fn finish(&self, id: &str) {
        finish(&self.host, &self.clock, id).await.unwrap();
    }

    pub(crate) async fn step(&self, id: &str) -> Stepped {
        self.host.runs.step(me().tenant(), id).await.unwrap()
    }

    pub(crate) async fn record(&self, id: &str) -> RunRecord {
        self.host.runs.get(&me(), id).await.unwrap().record
    }

    pub(crate) async fn variables(&self, id: &str) -> serde_json::Map<String, Value> {
        self.host.runs.get(&me(), id).await.unwrap().variables
    }

    pub(crate) async fn events(&self, id: &str) -> Vec<Event> {
        let found = self.host.runs.events(&me(), id, None, 0).await.unwrap().events;
        found.into_iter().map(Event::from).collect()
    }

    /// What happened, like `node.started memory.written`.
    pub(crate) async fn kinds(&self, id: &str) -> String {
        let kinds: Vec<String> =
            self.events(id).await.into_iter().map(|event| event.kind).collect();
        kinds.join(" ")
    }

    pub(crate) async fn put(&self, memory: &str, content: &str) -> EntryRecord {
        let scope = self.memory().scope(&me(), memory).await.unwrap();
        let entry = NewEntryRequest { content: content.to_owned(), ..NewEntryRequest::default() };
        self.memory().put_entry(&scope, entry).await.unwrap()
    }

    pub(crate) async fn entries(&self, memory: &str) -> Vec<EntryRecord> {
        let scope = self.memory().scope(&me(), memory).await.unwrap();
        self.memory().entries(&scope, &EntryQuery::default()).await.unwrap().entries
    }
}

pub(crate) fn host_over(store: Store, clock: &Arc<HandClock>, settings: HostSettings) -> Host {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
    let memory = Memory::builder().clock(clock).over(store, Packs::in_memory(), None);
    Host::new(memory, settings)
}

/// Works on a run until it ends, moving the clock to where it waits for.
pub(crate) async fn finish(host: &Host, clock: &HandClock, id: &str) -> Result<(), RunsError> {
    loop {
        match host.runs.step(me().tenant(), id).await? {
            Stepped::On => {}
            Stepped::Waits(until) => clock.move_to(until),
            Stepped::Ended => return Ok(()),
            Stepped::Unknown => panic!("the workflow of {id} is not here"),
        }
    }
}
