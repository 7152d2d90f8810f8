//! Hosts over one store, their clocks, and what befalls them.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use icecore::settings::{
    CompactionSettings, CutSettings, DreamSettings, EntrySettings, WorkerSettings,
};
use icecore::{Clock, Memory, MemorySettings, Millis, Principal, Tenant};
use icecore_domain::tokens::CharCounter;
use icecore_host::settings::{HostSettings, ScheduleSettings};
use icecore_store::{Packs, Store};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::dice::Dice;
use super::ledger::Ledger;
use super::line::{Health, Line, Weather};
use super::plant::{Bug, Planted};
use super::referee::Referee;
use super::story::Story;

/// The moment at which every history begins.
const BEGINNING: i64 = 1_700_000_000_000;

/// The one memory of each tenant.
pub const MEMORY: &str = "notes";

/// How a world is made, all of it from a seed.
#[derive(Debug, Clone)]
pub struct Plan {
    pub hosts: usize,
    pub tenants: usize,
    pub clients: usize,
    pub weather: Weather,
    /// How far each host's clock is off, in milliseconds.
    pub skews: Vec<i64>,
    /// Whether hosts are killed, stopped and cut off.
    pub has_mishaps: bool,
    /// Whether all clocks jump together, as the one of a store does that moves.
    pub has_jumps: bool,
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "plan");
        let hosts = dice.within(2..4) as usize;
        let rough = *dice.pick(&[0, 1, 3]);
        let weather = Weather {
            lost: rough * 8_000,
            unanswered: rough * 8_000,
            slow: *dice.pick(&[50_000, 300_000]),
            stuck: rough * 1_000,
            deadly: *dice.pick(&[0, 0, 500, 2_000]),
            untimely: *dice.pick(&[0, 30_000]),
        };
        let skews = (0..hosts).map(|_| dice.within(0..6_000) as i64 - 3_000).collect();
        Self {
            hosts,
            tenants: dice.within(1..3) as usize,
            clients: dice.within(2..5) as usize,
            weather,
            skews,
            has_mishaps: dice.chance(700_000),
            has_jumps: dice.chance(300_000),
        }
    }
}

/// A host, while it lives.
pub struct Host {
    pub memory: Memory,
    pub line: Arc<Line>,
}

/// Everything there is.
pub struct World {
    pub seed: u64,
    pub plan: Plan,
    pub story: Arc<Story>,
    pub referee: Arc<Referee>,
    pub ledger: Ledger,
    pub store: Store,
    packs: Packs,
    begun: Instant,
    jump: Arc<AtomicI64>,
    bug: Option<Bug>,
    hosts: Mutex<Vec<Option<Arc<Host>>>>,
    is_calm: AtomicBool,
}

/// A host's clock.
struct HostClock {
    begun: Instant,
    skew: i64,
    jump: Arc<AtomicI64>,
}

impl Clock for HostClock {
    fn now(&self) -> Millis {
        let passed = i64::try_from(self.begun.elapsed().as_millis()).unwrap_or(i64::MAX);
        Millis(BEGINNING + passed + self.skew + self.jump.load(Ordering::Relaxed))
    }
}

impl World {
    pub fn new(seed: u64, bug: Option<Bug>, is_read: bool) -> Arc<Self> {
        let (plan, story) = (Plan::new(seed), Arc::new(Story::new(is_read)));
        story.tell(format_args!("{plan:?}"));
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        Arc::new(Self {
            seed,
            hosts: Mutex::new(vec![None; plan.hosts]),
            plan,
            referee: Arc::new(Referee::new(Arc::clone(&story))),
            ledger: Ledger::new(Arc::clone(&story)),
            story,
            store: Store::in_memory(key),
            packs: Packs::in_memory(),
            begun: Instant::now(),
            jump: Arc::default(),
            bug,
            is_calm: AtomicBool::new(false),
        })
    }

    fn hosts(&self) -> MutexGuard<'_, Vec<Option<Arc<Host>>>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who asks for a tenant's memory.
    pub fn principal(&self, tenant: usize) -> Principal {
        Principal::local_operator(self.tenant(tenant))
    }

    pub fn tenant(&self, tenant: usize) -> Tenant {
        #[expect(clippy::expect_used, reason = "it is a name like any other")]
        Tenant::new(format!("tenant-{tenant}")).expect("a name")
    }

    /// One of the hosts that live.
    pub fn some_host(&self, dice: &mut Dice) -> Option<Arc<Host>> {
        let hosts = self.hosts();
        let living: Vec<&Arc<Host>> = hosts.iter().flatten().collect();
        (!living.is_empty()).then(|| Arc::clone(*dice.pick(&living)))
    }

    /// A memory over the store itself, for which nothing goes wrong.
    pub fn bystander(&self) -> Memory {
        let clock = HostClock { begun: self.begun, skew: 0, jump: Arc::clone(&self.jump) };
        builder(clock).over(self.store.clone(), self.packs.clone(), None)
    }

    /// Keeps a host alive: whenever it dies, another is started in its place.
    pub async fn keep(self: Arc<Self>, number: usize) {
        let mut dice = Dice::new(self.seed, &format!("host {number}"));
        for life in 1_u64.. {
            let (host, working) = self.start(number, life, &mut dice);
            self.hosts()[number] = Some(Arc::clone(&host));
            host.line.died().await;
            working.abort();
            self.hosts()[number] = None;
            let pause =
                if self.is_calm.load(Ordering::Relaxed) { 0 } else { dice.within(100..8_000) };
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    fn start(&self, number: usize, life: u64, dice: &mut Dice) -> (Arc<Host>, JoinHandle<()>) {
        let name = format!("host-{number}.{life}");
        self.story.tell(format_args!("{name} starts"));
        let is_calm = self.is_calm.load(Ordering::Relaxed);
        let weather = if is_calm { Weather::default() } else { self.plan.weather };
        let line = Line::new(
            name,
            weather,
            Dice::new(dice.next(), "line"),
            Arc::clone(&self.story),
            Arc::clone(&self.referee),
            Planted::new(self.bug),
            self.store.clone(),
        );
        let store = self.store.hooked(line.clone());
        let skew = self.plan.skews[number];
        let clock = HostClock { begun: self.begun, skew, jump: Arc::clone(&self.jump) };
        let memory = builder(clock).over(store, self.packs.clone(), None);
        let worker = memory.clone();
        let working = tokio::spawn(async move {
            let hosting = hosting(&worker);
            tokio::join!(worker.work_until(pending()), hosting.run_until(pending()));
        });
        (Arc::new(Host { memory, line }), working)
    }

    /// Has hosts die, stand still and be cut off, and clocks jump, for ever.
    pub async fn trouble(self: Arc<Self>) {
        let mut dice = Dice::new(self.seed, "trouble");
        loop {
            tokio::time::sleep(Duration::from_millis(dice.within(300..4_000))).await;
            if self.plan.has_jumps && dice.chance(200_000) {
                let by = dice.within(0..20_000) as i64 - 10_000;
                self.story.tell(format_args!("all clocks jump by {by} ms"));
                self.jump.fetch_add(by, Ordering::Relaxed);
            }
            if !self.plan.has_mishaps {
                continue;
            }
            let Some(host) = self.some_host(&mut dice) else { continue };
            let (health, millis) = match dice.within(0..3) {
                0 => {
                    host.line.die("of nothing in particular");
                    continue;
                }
                1 => (Health::Stopped, dice.within(200..12_000)),
                _ => (Health::CutOff, dice.within(200..12_000)),
            };
            self.story.tell(format_args!("{} is {health:?} for {millis} ms", host.line.name));
            host.line.stand_still(health, Duration::from_millis(millis));
        }
    }

    /// From now on nothing goes wrong, and whoever stands still goes on.
    pub fn calm_down(&self) {
        self.story.tell(format_args!("all is calm"));
        self.is_calm.store(true, Ordering::Relaxed);
        for host in self.hosts().iter().flatten() {
            host.line.calm();
            host.line.recover();
        }
    }

    /// Ends all hosts for good.
    pub fn close(&self) {
        self.story.tell(format_args!("all hosts are ended"));
        let hosts: Vec<Arc<Host>> = self.hosts().iter_mut().filter_map(Option::take).collect();
        for host in hosts {
            host.line.die("for good");
        }
    }
}

/// What a host adds to a memory, with short waits.
pub fn hosting(memory: &Memory) -> icecore_host::Host {
    let schedules = ScheduleSettings {
        idle_seconds: 1,
        wait_seconds: 5,
        lease_seconds: 5,
        ..ScheduleSettings::default()
    };
    let settings = HostSettings { schedules, ..HostSettings::default() };
    icecore_host::Host::new(memory.clone(), settings)
}

/// A memory with everything small, so that all of it happens in a short history.
fn builder(clock: HostClock) -> icecore::MemoryBuilder {
    let cuts =
        CutSettings { micro_turns: 3, mini_turns: 6, macro_turns: 12, micro_max_tokens: 4_000 };
    let settings = MemorySettings {
        cuts,
        hot_chunks: 1,
        auto_embed: false,
        entries: EntrySettings { snapshot_seconds: 3, ..EntrySettings::default() },
        compaction: CompactionSettings {
            entries: 6,
            idle_seconds: 2,
            keep_entries: 2,
            ..CompactionSettings::default()
        },
        dreams: DreamSettings {
            lease_seconds: 5,
            min_coverage_percent: 0,
            ..DreamSettings::default()
        },
        worker: WorkerSettings { lease_seconds: 3 },
        ..MemorySettings::default()
    };
    Memory::builder()
        .settings(settings)
        .clock(Arc::new(clock))
        .counter(Arc::new(CharCounter))
        .embedder(None)
}
