//! Several hosts over one store, in a time that passes by itself.

use std::sync::Arc;
use std::time::Duration;

use icecore::{Clock, Memory, MemorySettings, Millis, Principal, RawTurn, Tenant};
use icecore_store::{Packs, Store};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The runtime's time as a clock.
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Millis {
        Millis(1_700_000_000_000 + self.0.elapsed().as_millis() as i64)
    }
}

struct Hosts {
    store: Store,
    clock: Arc<PausedClock>,
}

impl Hosts {
    fn new() -> Self {
        let clock = Arc::new(PausedClock(Instant::now()));
        Self { store: Store::in_memory([1; 32]), clock }
    }

    fn host(&self) -> Memory {
        let settings = MemorySettings { auto_embed: false, ..MemorySettings::default() };
        Memory::builder().settings(settings).clock(self.clock.clone()).over(
            self.store.clone(),
            Packs::in_memory(),
            None,
        )
    }

    async fn unsettled(&self, tenant: &str) -> u64 {
        self.store.unsettled_count(Some(&Tenant::new(tenant).unwrap()), None).await.unwrap()
    }

    /// How long it takes until all of a tenant is settled.
    async fn settled(&self, tenant: &str) -> Duration {
        let begun = Instant::now();
        while self.unsettled(tenant).await > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(begun.elapsed() < Duration::from_secs(600), "{tenant} is left alone");
        }
        begun.elapsed()
    }
}

async fn say(memory: &Memory, tenant: &str, what: &str) {
    let me = Principal::local_operator(Tenant::new(tenant).unwrap());
    let scope = memory.scope(&me, "m").await.unwrap();
    memory.remember(&scope, "s", vec![RawTurn::new("user", what)]).await.unwrap();
}

fn works(memory: &Memory, stop: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    let memory = memory.clone();
    tokio::spawn(async move { memory.work_until(stop).await })
}

#[tokio::test(start_paused = true)]
async fn a_dead_hosts_tenants_are_taken_over_after_its_lease() {
    let hosts = Hosts::new();
    let (first, second) = (hosts.host(), hosts.host());
    let working = works(&first, std::future::pending());
    say(&first, "acme", "The ferry leaves at nine.").await;
    hosts.settled("acme").await;
    working.abort();
    say(&second, "acme", "The ferry leaves at ten.").await;
    say(&second, "rival", "The bus leaves at ten.").await;
    let _working = works(&second, std::future::pending());
    // What nobody had is settled at once.
    assert!(hosts.settled("rival").await < Duration::from_secs(2));
    assert_eq!(hosts.unsettled("acme").await, 1);
    let taken = hosts.settled("acme").await;
    assert!(taken > Duration::from_secs(5) && taken < Duration::from_secs(15), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_stops_leaves_its_tenants_to_others() {
    let hosts = Hosts::new();
    let (first, second) = (hosts.host(), hosts.host());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = works(&first, async { drop(stopped.await) });
    say(&first, "acme", "The ferry leaves at nine.").await;
    hosts.settled("acme").await;
    stop.send(()).unwrap();
    working.await.unwrap();
    say(&second, "acme", "The ferry leaves at ten.").await;
    let _working = works(&second, std::future::pending());
    assert!(hosts.settled("acme").await < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn no_tenant_is_left_alone_however_many_hosts_there_are() {
    let hosts = Hosts::new();
    let all: Vec<Memory> = (0..3).map(|_| hosts.host()).collect();
    let _working: Vec<_> = all.iter().map(|host| works(host, std::future::pending())).collect();
    for round in 0..3 {
        for number in 0..30 {
            say(&all[number % 3], &format!("tenant-{number}"), &format!("Word {round}.")).await;
        }
        for number in 0..30 {
            assert!(hosts.settled(&format!("tenant-{number}")).await < Duration::from_secs(15));
        }
    }
    assert!(hosts.store.check().await.unwrap().is_empty());
}
