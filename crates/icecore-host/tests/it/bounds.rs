//! Bounds of tenants over several hosts of one store.

use std::path::Path;
use std::sync::Arc;

use icecore::knowledge::NewEntryRequest;
use icecore::store::StoreError;
use icecore::{Clock, Memory, MemoryError, Millis, Principal, RawTurn, Tenant};
use icecore_host::Host;
use icecore_host::bounds::Bounds;
use icecore_host::settings::{BoundSettings, TenantBounds};

const HOSTS: usize = 3;

/// A day in which nothing happens but what a test does.
struct Noon;

impl Clock for Noon {
    fn now(&self) -> Millis {
        Millis(1_700_000_000_000)
    }
}

fn acme() -> Tenant {
    Tenant::new("acme").unwrap()
}

async fn hosts(dir: &Path, everyone: TenantBounds) -> Vec<Host> {
    let mut hosts = Vec::new();
    for _ in 0..HOSTS {
        let bounds = Bounds::new(BoundSettings { everyone, ..BoundSettings::default() });
        let builder = Memory::builder().clock(Arc::new(Noon)).embedder(None);
        let memory = builder.admission(Arc::new(bounds)).open(dir).await.unwrap();
        hosts.push(Host::from(memory));
    }
    hosts
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_together_keep_no_more_turns_than_they_may() {
    const MOST: u64 = 50;
    let dir = tempfile::tempdir().unwrap();
    let bounds = TenantBounds { turns: MOST, ..TenantBounds::default() };
    let mut tasks = tokio::task::JoinSet::new();
    for (number, host) in hosts(dir.path(), bounds).await.into_iter().enumerate() {
        tasks.spawn(async move {
            let memory = format!("memory-{number}");
            let scope =
                host.memory.scope(&Principal::local_operator(acme()), &memory).await.unwrap();
            let mut added = 0;
            loop {
                let turns = vec![RawTurn::new("user", format!("turn {added}"))];
                match host.memory.remember(&scope, "s", turns).await {
                    Ok(_) => added += 1,
                    Err(MemoryError::Store(StoreError::BoundReached { most, used, .. })) => {
                        assert_eq!((most, used), (MOST, MOST));
                        return added;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        });
    }
    let added: u64 = tasks.join_all().await.into_iter().sum();
    assert_eq!(added, MOST);
    let again = Host::from(Memory::open(dir.path()).await.unwrap());
    assert_eq!(again.bounds.usage(&acme()).await.unwrap().used.turns, MOST);
    assert!(again.memory.check(false, |_, _| {}).await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_together_exceed_a_day_by_a_step_each_at_most() {
    const MOST: u64 = 1_000;
    // A hundredth of the bound.
    const STEP: u64 = 10;
    let dir = tempfile::tempdir().unwrap();
    let bounds = TenantBounds { requests_a_day: MOST, ..TenantBounds::default() };
    let hosts = hosts(dir.path(), bounds).await;
    let (mut admitted, mut refused) = (0, [false; HOSTS]);
    while refused != [true; HOSTS] {
        for (host, refused) in hosts.iter().zip(&mut refused) {
            match host.bounds.admit_request(&acme()).await {
                Ok(()) => admitted += 1,
                Err(MemoryError::DayBoundReached { most: MOST, .. }) => *refused = true,
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(admitted >= MOST && admitted <= MOST + STEP * HOSTS as u64, "{admitted}");
    for host in &hosts {
        host.bounds.write().await;
    }
    // What was written is what was let in, and is known after a restart.
    let again = Memory::builder().clock(Arc::new(Noon)).open(dir.path()).await.unwrap();
    assert_eq!(Host::from(again).bounds.usage(&acme()).await.unwrap().used.day.requests, admitted);
}

#[tokio::test]
async fn tokens_that_were_not_taken_in_do_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let bounds = TenantBounds { tokens_a_day: 1_000, bytes: 400, ..TenantBounds::default() };
    let host = hosts(dir.path(), bounds).await.remove(0);
    let scope = host.memory.scope(&Principal::local_operator(acme()), "notes").await.unwrap();
    let tokens = async || host.bounds.usage(&acme()).await.unwrap().used.day.tokens;
    let mut turn = RawTurn::new("user", "one two three");
    turn.id = Some("a".to_owned());
    // The second time it is known.
    for _ in 0..2 {
        host.memory.remember(&scope, "s", vec![turn.clone()]).await.unwrap();
    }
    assert_eq!(tokens().await, 3);
    let long = NewEntryRequest { content: "word ".repeat(100), ..NewEntryRequest::default() };
    let refused = host.memory.put_entry(&scope, long).await;
    assert!(matches!(refused, Err(MemoryError::Store(StoreError::BoundReached { .. }))));
    assert_eq!(tokens().await, 3);
    let short = NewEntryRequest { content: "four five".to_owned(), ..NewEntryRequest::default() };
    host.memory.put_entry(&scope, short).await.unwrap();
    assert_eq!(tokens().await, 5);
    assert_eq!(host.bounds.refusals().bytes, 1);
}
