//! Commitments as they fire: every tenant in turn, once, whatever goes wrong meanwhile.

use std::sync::Arc;

use icecore::ids::Position;
use icecore::knowledge::NewEntryRequest;
use icecore::{Clock, ForgetRequest, Memory, MemoryBuilder, Millis, Principal, Scope, Tenant};
use icecore_host::commitments::{
    CommitmentQuery, CommitmentRecord, CommitmentRequest, CommitmentState, ConditionRequest,
    IntentionRequest,
};
use icecore_host::settings::CommitmentSettings;
use icecore_host::{Host, HostSettings};
use icecore_store::hooks::Failing;
use icecore_store::testing::Counting;
use icecore_store::{Packs, Store};

use crate::bench::{Bench, HandClock, START, me};

const DAY: i64 = 24 * 3_600 * 1_000;

fn when(tag: Option<&str>, mentions: Option<&str>) -> ConditionRequest {
    let [tag, mentions] = [tag, mentions].map(|text| text.map(str::to_owned));
    ConditionRequest::Predicate { tag, mentions }
}

fn intend(condition: ConditionRequest) -> CommitmentRequest {
    let intention = IntentionRequest::Text("call".to_owned());
    CommitmentRequest { intention, condition, claim: None }
}

async fn commit(host: &Host, scope: &Scope, condition: ConditionRequest) -> CommitmentRecord {
    host.commitments.add(scope, intend(condition)).await.unwrap()
}

async fn put(host: &Host, scope: &Scope, content: &str, tag: &str) -> String {
    let (content, tags) = (content.to_owned(), vec![tag.to_owned()]);
    let request = NewEntryRequest { content, tags, ..NewEntryRequest::default() };
    host.memory.put_entry(scope, request).await.unwrap().id
}

async fn state(host: &Host, one: &CommitmentRecord) -> CommitmentState {
    let found = host.commitments.get(one.scope.tenant(), &one.id).await.unwrap();
    found.unwrap().state
}

/// What the log tells of commitments that fired, in order.
async fn told(host: &Host, tenant: &Tenant) -> Vec<serde_json::Value> {
    let found = host.memory.events(tenant, None, Position(0), 100_000).await.unwrap();
    let fired = found.into_iter().filter(|event| event.kind == "commitment.fired");
    fired.map(|event| serde_json::from_str(&event.payload).unwrap()).collect()
}

async fn scope(host: &Host, tenant: &str, name: &str) -> Scope {
    let principal = Principal::local_operator(Tenant::new(tenant).unwrap());
    host.memory.scope(&principal, name).await.unwrap()
}

/// A store in memory, and what is made over it or around it.
struct Ground {
    inner: Store,
    clock: Arc<HandClock>,
}

impl Ground {
    fn new() -> Self {
        let clock = Arc::new(HandClock::default());
        clock.move_to(Millis(START));
        Self { inner: Store::in_memory([1; 32]), clock }
    }

    fn over(&self, store: Store) -> Host {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        Host::from(MemoryBuilder::default().clock(clock).over(store, Packs::in_memory(), None))
    }

    fn host(&self) -> Host {
        self.over(self.inner.clone())
    }
}

#[tokio::test]
async fn a_busy_tenant_does_not_keep_another_waiting() {
    let ground = Ground::new();
    let host = ground.host();
    let mut busy = Vec::new();
    for name in ["a", "b", "c"] {
        let place = scope(&host, "busy", name).await;
        busy.push(commit(&host, &place, when(Some("done"), None)).await);
    }
    let theirs = scope(&host, "other", "a").await;
    let other = commit(&host, &theirs, when(None, Some("rain"))).await;
    for one in &busy {
        for number in 0..150 {
            put(&host, &one.scope, &format!("entry {number}"), "doing").await;
        }
        put(&host, &one.scope, "that was it", "done").await;
    }
    put(&host, &theirs, "Rain at last.", "weather").await;
    assert_eq!(host.commitments.fire_due().await.unwrap(), 1);
    assert_eq!(state(&host, &other).await, CommitmentState::Fired);
    // A call looks at one page of one of its memories: three of three.
    for call in 2..=9 {
        // While it goes on writing.
        put(&host, &busy[0].scope, "more", "doing").await;
        host.commitments.fire_due().await.unwrap();
        let soon = commit(&host, &theirs, when(Some("soon"), None)).await;
        put(&host, &theirs, "x", "soon").await;
        host.commitments.fire_due().await.unwrap();
        assert_eq!(state(&host, &soon).await, CommitmentState::Fired, "{call}");
    }
    for one in &busy {
        assert_eq!(state(&host, one).await, CommitmentState::Fired);
    }
}

#[tokio::test]
async fn many_tenants_have_their_turns() {
    let ground = Ground::new();
    let host = ground.host();
    let mut all = Vec::new();
    for number in 0..150 {
        let place = scope(&host, &format!("t{number}"), "a").await;
        all.push(commit(&host, &place, when(Some("go"), None)).await);
        put(&host, &place, "x", "go").await;
    }
    let mut counts = Vec::new();
    for _ in 0..4 {
        counts.push(host.commitments.fire_due().await.unwrap());
    }
    assert_eq!(counts, [64, 64, 22, 0]);
    for one in &all {
        assert_eq!(state(&host, one).await, CommitmentState::Fired);
    }
}

#[tokio::test]
async fn however_many_wait_a_page_is_one_write() {
    let ground = Ground::new();
    let host = ground.host();
    let place = scope(&host, "me", "m").await;
    let intention = put(&host, &place, "what is intended", "t").await;
    for number in 0..1_000 {
        let intention = IntentionRequest::Entry(intention.clone());
        let condition = when(None, Some(&format!("word{number}")));
        let request = CommitmentRequest { intention, condition, claim: None };
        host.commitments.add(&place, request).await.unwrap();
    }
    for number in 0..200 {
        put(&host, &place, &format!("nothing of note {number}"), "t").await;
    }
    let mut last = String::new();
    for number in [7, 8] {
        last = put(&host, &place, &format!("It says Word{number} and word8."), "t").await;
    }
    let (writing, reading) = (Failing::instead_of(u64::MAX), Counting::new());
    let engine = ground.over(ground.inner.hooked(writing.clone()).hooked(reading.clone()));
    let mut fired = 0;
    for _ in 0..10 {
        fired += engine.commitments.fire_due().await.unwrap();
    }
    assert_eq!((fired, writing.writes()), (2, 4), "202 entries are four pages");
    let reads = reading.take_reads();
    let calls = |method: &str| reads.get(method).map_or(0, |count| count.calls);
    assert_eq!((calls("watch"), calls("entries_after")), (4, 4));
    let because: Vec<_> =
        told(&host, place.tenant()).await.iter().map(|one| one["triggerId"].clone()).collect();
    assert_eq!(because.len(), 2);
    assert_eq!(because[0], because[1], "the first that says it, which says both");
    assert_ne!(because[0], last.as_str());
}

#[tokio::test]
async fn of_several_engines_one_fires() {
    let bench = Bench::new().await;
    let other = Memory::builder().clock(Arc::clone(&bench.clock) as Arc<dyn Clock>);
    let other = Host::from(other.open(bench.dir.path()).await.unwrap());
    let mut all = Vec::new();
    for turn in 0..5 {
        for number in 0..4 {
            let tag = format!("t{turn}-{number}");
            all.push(commit(&bench.host, &bench.scope, when(Some(&tag), None)).await);
            let at = ConditionRequest::Time(Millis(START + turn + 1));
            all.push(commit(&bench.host, &bench.scope, at).await);
            put(&bench.host, &bench.scope, "x", &tag).await;
        }
        bench.clock.move_to(Millis(START + turn + 1));
        let hosts = [&bench.host, &other, &bench.host, &other];
        let [a, b, c, d] = hosts.map(|host| host.commitments.fire_due());
        let (a, b, c, d) = tokio::join!(a, b, c, d);
        let fired: u64 = [a, b, c, d].into_iter().map(Result::unwrap).sum();
        assert_eq!(fired, 8);
    }
    assert_eq!(told(&bench.host, bench.scope.tenant()).await.len(), all.len());
    bench.check().await;
}

#[tokio::test]
async fn interrupted_at_any_write_each_fires_once() {
    for is_lost_answer in [false, true] {
        for nth in 1.. {
            let ground = Ground::new();
            let host = ground.host();
            let mut all = Vec::new();
            for (tenant, name) in [("a", "m"), ("a", "n"), ("b", "m")] {
                let place = scope(&host, tenant, name).await;
                for _ in 0..2 {
                    all.push(commit(&host, &place, when(Some("go"), None)).await);
                    let at = ConditionRequest::Time(Millis(START + 1));
                    all.push(commit(&host, &place, at).await);
                }
                put(&host, &place, "x", "go").await;
            }
            ground.clock.move_to(Millis(START + 1));
            let failing = Failing::at(nth, is_lost_answer);
            let engine = ground.over(ground.inner.hooked(failing));
            let first = engine.commitments.fire_due().await;
            if first.is_err() {
                // What failed keeps nothing else: one write did not happen, or was not told.
                let fired = told(&host, all[0].scope.tenant()).await.len()
                    + told(&host, all[11].scope.tenant()).await.len();
                assert!(fired >= 8, "write {nth}: {fired}");
            }
            // The next process does the rest.
            let next = ground.host();
            for _ in 0..3 {
                next.commitments.fire_due().await.unwrap();
            }
            for one in &all {
                assert_eq!(state(&host, one).await, CommitmentState::Fired, "write {nth}");
                let fired = told(&host, one.scope.tenant()).await;
                let mine = fired.iter().filter(|event| event["commitmentId"] == one.id.as_str());
                assert_eq!(mine.count(), 1, "write {nth}");
            }
            if first.is_ok() {
                assert_eq!(nth, 9, "six by their moment, and a look for each tenant");
                break;
            }
        }
    }
}

#[tokio::test]
async fn what_fails_is_tried_again_and_keeps_nobody() {
    let ground = Ground::new();
    let host = ground.host();
    let mut all = Vec::new();
    for (tenant, name) in [("a", "m"), ("a", "n"), ("b", "m")] {
        let place = scope(&host, tenant, name).await;
        all.push(commit(&host, &place, when(Some("go"), None)).await);
        put(&host, &place, "x", "go").await;
    }
    let engine = ground.over(ground.inner.hooked(Failing::instead_of(1)));
    engine.commitments.fire_due().await.unwrap_err();
    assert_eq!(state(&host, &all[2]).await, CommitmentState::Fired);
    // The memory that failed rests, and the tenant's other one has its turn.
    assert_eq!(engine.commitments.fire_due().await.unwrap(), 1);
    assert_eq!(state(&host, &all[1]).await, CommitmentState::Fired);
    assert_eq!(engine.commitments.fire_due().await.unwrap(), 0);
    ground.clock.move_to(Millis(START + 5_000));
    assert_eq!(engine.commitments.fire_due().await.unwrap(), 1);
    assert_eq!(state(&host, &all[0]).await, CommitmentState::Fired);
}

#[tokio::test]
async fn what_is_made_later_waits_for_what_is_put_later() {
    let bench = Bench::new().await;
    let (host, place) = (&bench.host, &bench.scope);
    let first = commit(host, place, when(None, Some("rain"))).await;
    put(host, place, "no such thing", "t").await;
    assert_eq!(host.commitments.fire_due().await.unwrap(), 0);
    put(host, place, "sun and rain", "t").await;
    let second = commit(host, place, when(None, Some("rain"))).await;
    assert_eq!(host.commitments.fire_due().await.unwrap(), 1);
    assert_eq!(state(host, &first).await, CommitmentState::Fired);
    assert_eq!(state(host, &second).await, CommitmentState::Pending);
    let bench = bench.reopen().await;
    let because = put(&bench.host, &bench.scope, "rain again", "t").await;
    assert_eq!(bench.host.commitments.fire_due().await.unwrap(), 1);
    let told = told(&bench.host, bench.scope.tenant()).await;
    assert_eq!(told[1]["triggerId"], because.as_str());
    bench.check().await;
}

#[tokio::test]
async fn forgetting_reaches_what_is_waited_for() {
    let bench = Bench::new().await;
    let (host, place) = (&bench.host, &bench.scope);
    let (about, word) = ("subject:Quillfeather", "Marmalade");
    let named = commit(host, place, when(Some(about), Some(word))).await;
    let other = commit(host, place, when(Some("subject:Bo"), None)).await;
    let settled = commit(host, place, when(Some(about), Some(word))).await;
    host.commitments.cancel(place.tenant(), &settled.id).await.unwrap();
    let request = ForgetRequest::Subject("Quillfeather".to_owned());
    host.memory.forget(&me(), None, &request, true).await.unwrap();
    assert_eq!(state(host, &named).await, CommitmentState::Pending);
    host.memory.forget(&me(), None, &request, false).await.unwrap();
    let get =
        async |one: &CommitmentRecord| host.commitments.get(place.tenant(), &one.id).await.unwrap();
    assert_eq!(get(&named).await, None);
    assert_eq!(state(host, &other).await, CommitmentState::Pending);
    assert_eq!(state(host, &settled).await, CommitmentState::Cancelled);
    bench.check().await;

    bench.clock.move_to(Millis(START + 10));
    let later = commit(host, place, when(Some("t"), None)).await;
    let request = ForgetRequest::Before(Millis(START + 5));
    host.memory.forget(&me(), None, &request, false).await.unwrap();
    for gone in [&other, &settled] {
        assert_eq!(get(gone).await, None);
    }
    assert_eq!(state(host, &later).await, CommitmentState::Pending);
    let bench = bench.reopen().await;
    for file in std::fs::read_dir(bench.dir.path()).unwrap() {
        let path = file.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else { continue };
        for word in ["Quillfeather", word] {
            let is_there = bytes.windows(word.len()).any(|part| part == word.as_bytes());
            assert!(!is_there, "{word} in {}", path.display());
        }
    }
}

#[tokio::test]
async fn so_many_wait_and_so_long_they_are_kept() {
    let commitments =
        CommitmentSettings { pending: 2, pending_tenant: 3, retention_seconds: 10 * 24 * 3_600 };
    let bench = Bench::with_commitments(commitments).await;
    let (host, place) = (&bench.host, &bench.scope);
    let at = |day: i64| ConditionRequest::Time(Millis(START + day * DAY));
    let first = commit(host, place, at(1)).await;
    let second = commit(host, place, at(99)).await;
    let refused = host.commitments.add(place, intend(at(1))).await.unwrap_err().to_string();
    assert!(refused.contains("at most 2") && refused.contains("`commitments_pending`"));
    let elsewhere = scope(host, "me", "elsewhere").await;
    commit(host, &elsewhere, at(99)).await;
    let refused = host.commitments.add(&elsewhere, intend(at(1))).await.unwrap_err().to_string();
    assert!(refused.contains("`commitments_pending_tenant`"), "{refused}");

    bench.clock.move_to(Millis(START + DAY));
    assert_eq!(host.commitments.fire_due().await.unwrap(), 1);
    commit(host, &elsewhere, at(99)).await;
    bench.clock.move_to(Millis(START + 11 * DAY - 1));
    bench.settle().await;
    assert_eq!(state(host, &first).await, CommitmentState::Fired);
    bench.clock.move_to(Millis(START + 11 * DAY));
    bench.settle().await;
    assert_eq!(host.commitments.get(place.tenant(), &first.id).await.unwrap(), None);
    assert_eq!(state(host, &second).await, CommitmentState::Pending);
    let left = host.commitments.list(place.tenant(), &CommitmentQuery::newest(9)).await.unwrap();
    assert_eq!(left.len(), 3);
    bench.check().await;
}

#[tokio::test]
async fn the_worker_fires_while_it_works() {
    let bench = Bench::new().await;
    let (host, place) = (&bench.host, &bench.scope);
    let one = commit(host, place, when(Some("go"), None)).await;
    put(host, place, "x", "go").await;
    let fired = async {
        while state(host, &one).await != CommitmentState::Fired {
            tokio::task::yield_now().await;
        }
    };
    host.run_until(fired).await;
    assert_eq!(told(host, place.tenant()).await.len(), 1);
}

#[tokio::test]
async fn where_nobody_writes_nothing_fires() {
    let commitments = CommitmentSettings { retention_seconds: 1, ..CommitmentSettings::default() };
    let settings = HostSettings { read_only: true, commitments, ..HostSettings::default() };
    let bench = Bench::with(settings).await;
    let (host, place) = (&bench.host, &bench.scope);
    let due = commit(host, place, ConditionRequest::Time(Millis(START + 10))).await;
    let settled = commit(host, place, ConditionRequest::Time(Millis(START + 10))).await;
    host.commitments.cancel(place.tenant(), &settled.id).await.unwrap();
    bench.clock.move_to(Millis(START + DAY));
    // What is past its time goes, which shows that it is at work.
    let purged = async {
        while host.commitments.get(place.tenant(), &settled.id).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    };
    let patience = std::time::Duration::from_secs(60);
    tokio::time::timeout(patience, host.run_until(purged)).await.expect("nothing was purged");
    assert_eq!(state(host, &due).await, CommitmentState::Pending);
    assert_eq!(told(host, place.tenant()).await, [serde_json::Value::Null; 0]);
}
