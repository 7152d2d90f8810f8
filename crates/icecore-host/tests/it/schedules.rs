//! Schedules: every instant once, whoever is there, and what came of each.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use icecore::dreams::DreamTrigger;
use icecore::knowledge::NewEntryRequest;
use icecore::store::StoreError;
use icecore::{Clock, Memory, MemoryError, Millis};
use icecore_host::Host;
use icecore_host::commitments::{
    CommitmentRequest, CommitmentState, ConditionRequest, IntentionRequest,
};
use icecore_host::schedules::{
    CatchUp, NextTick, ScheduleRecord, ScheduleRequest, ScheduleTask, SchedulingError, TickOutcome,
    TickRecord, TimingRequest,
};
use icecore_host::settings::ScheduleSettings;
use icecore_store::hooks::{Call, Failing, Hook};
use icecore_store::{Claimed, Packs, Store, TickClaim};

use crate::bench::{Bench, HandClock, START, me};

const SECOND: i64 = 1_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

fn consolidating(line: &str) -> ScheduleRequest {
    ScheduleRequest { task: ScheduleTask::Consolidate, ..ScheduleRequest::cron(line) }
}

async fn put(bench: &Bench, content: &str) {
    bench.put(content).await;
}

async fn add(bench: &Bench, request: ScheduleRequest) -> ScheduleRecord {
    bench.host.schedules.add(&bench.scope, request).await.unwrap()
}

async fn refused(bench: &Bench, request: ScheduleRequest) -> String {
    bench.host.schedules.add(&bench.scope, request).await.unwrap_err().to_string()
}

/// Moves the clock and does what is due; answers how many ticks ran.
async fn fire_at(bench: &Bench, after: i64) -> u64 {
    bench.clock.move_to(Millis(START + after));
    bench.host.schedules.fire_due().await.unwrap()
}

async fn ticks(bench: &Bench, id: &str) -> Vec<TickRecord> {
    let mut found = bench.host.schedules.ticks(me().tenant(), id, 9_999).await.unwrap();
    found.reverse();
    found
}

/// The ticks of a schedule, oldest first, by `unit` since the start.
async fn shown(bench: &Bench, id: &str, unit: i64) -> String {
    let word = |tick: &TickRecord| {
        let outcome = tick.outcome.map_or("running", TickOutcome::as_str);
        format!("{} {outcome}", (tick.at.0 - START) / unit)
    };
    ticks(bench, id).await.iter().map(word).collect::<Vec<_>>().join(", ")
}

async fn record(bench: &Bench, id: &str) -> ScheduleRecord {
    bench.host.schedules.get(me().tenant(), id).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_memory_dreams_by_itself() {
    let bench = Bench::new().await;
    put(&bench, "The ferry leaves at nine from the north pier.").await;
    let made = add(&bench, ScheduleRequest::cron("0 * * * *")).await;
    assert_eq!(made.next.map(|next| next.at), Some(Millis(START + HOUR)));
    assert_eq!(fire_at(&bench, HOUR - 1).await, 0);
    assert_eq!(fire_at(&bench, HOUR).await, 1);
    assert_eq!(fire_at(&bench, HOUR).await, 0, "once");
    let tick = ticks(&bench, &made.id).await.remove(0);
    assert_eq!((tick.at, tick.outcome), (Millis(START + HOUR), Some(TickOutcome::Ran)));
    let run = tick.run.unwrap();
    let dream = bench.memory.dream_record(me().tenant(), &run).await.unwrap().unwrap();
    assert_eq!((dream.trigger, dream.scope), (DreamTrigger::Scheduled, bench.scope.clone()));
    bench.host.runs.get(&me(), &run).await.unwrap();
    assert_eq!(fire_at(&bench, 2 * HOUR).await, 1);
    assert_eq!(shown(&bench, &made.id, HOUR).await, "1 ran, 2 unchanged");
    // A memory with nothing in it has nothing to dream of.
    let empty = bench.memory.scope(&me(), "empty").await.unwrap();
    let other = bench.host.schedules.add(&empty, ScheduleRequest::cron("@hourly")).await.unwrap();
    fire_at(&bench, 3 * HOUR).await;
    assert_eq!(shown(&bench, &other.id, HOUR).await, "3 unchanged");
    bench.check().await;
}

#[tokio::test]
async fn other_tasks_ride_the_same_runner() {
    let bench = Bench::new().await;
    for _ in 0..2 {
        put(&bench, "The ferry leaves at nine from the north pier.").await;
    }
    let condition = ConditionRequest::Time(Millis(START + HOUR));
    let intention = IntentionRequest::Text("call Ana".to_owned());
    let request = CommitmentRequest { intention, condition, claim: None };
    let call = bench.host.commitments.add(&bench.scope, request).await.unwrap();
    let merge = add(&bench, consolidating("0 * * * *")).await;
    let task = ScheduleTask::Commitments;
    let fire = add(&bench, ScheduleRequest { task, ..ScheduleRequest::cron("0 * * * *") }).await;
    assert_eq!(fire_at(&bench, HOUR).await, 2);
    assert_eq!(fire_at(&bench, 2 * HOUR).await, 2);
    for id in [&merge.id, &fire.id] {
        assert_eq!(shown(&bench, id, HOUR).await, "1 ran, 2 unchanged");
    }
    let call = bench.host.commitments.get(me().tenant(), &call.id).await.unwrap().unwrap();
    assert_eq!(call.state, CommitmentState::Fired);
}

#[tokio::test]
async fn a_schedule_fires_commitments_of_its_own_memory() {
    let bench = Bench::new().await;
    let rival = icecore::Principal::local_operator(icecore::Tenant::new("rival").unwrap());
    let diary = bench.memory.scope(&me(), "diary").await.unwrap();
    let theirs = bench.memory.scope(&rival, "m").await.unwrap();
    let commit = async |scope: &icecore::Scope, condition| {
        let intention = IntentionRequest::Text("call Ana".to_owned());
        let request = CommitmentRequest { intention, condition, claim: None };
        bench.host.commitments.add(scope, request).await.unwrap()
    };
    let due = || ConditionRequest::Time(Millis(START + MINUTE));
    let (mine, other, foreign) = (
        commit(&bench.scope, due()).await,
        commit(&diary, due()).await,
        commit(&theirs, due()).await,
    );
    let mentions = Some("ferry".to_owned());
    let said = commit(&bench.scope, ConditionRequest::Predicate { tag: None, mentions }).await;
    put(&bench, "The ferry leaves at nine from the north pier.").await;
    let task = ScheduleTask::Commitments;
    let made = add(&bench, ScheduleRequest { task, ..ScheduleRequest::cron("0 * * * *") }).await;
    assert_eq!(fire_at(&bench, HOUR).await, 1);
    assert_eq!(fire_at(&bench, 2 * HOUR).await, 1);
    assert_eq!(shown(&bench, &made.id, HOUR).await, "1 ran, 2 unchanged");
    use CommitmentState::{Fired, Pending};
    for (one, scope, state) in [
        (mine, &bench.scope, Fired),
        (said, &bench.scope, Fired),
        (other, &diary, Pending),
        (foreign, &theirs, Pending),
    ] {
        let found = bench.host.commitments.get(scope.tenant(), &one.id).await.unwrap().unwrap();
        assert_eq!(found.state, state, "{scope:?}");
    }
}

#[tokio::test]
async fn downtime_is_caught_up_with_once_or_skipped() {
    let bench = Bench::new().await;
    let once = add(&bench, consolidating("0 * * * *")).await;
    let skip = ScheduleRequest { catch_up: CatchUp::Skip, ..consolidating("0 * * * *") };
    let skip = add(&bench, skip).await;
    let bench = bench.reopen().await;
    assert_eq!(fire_at(&bench, 4 * HOUR + 30 * MINUTE).await, 1);
    assert_eq!(shown(&bench, &once.id, HOUR).await, "1 missed, 2 missed, 3 missed, 4 unchanged");
    assert_eq!(shown(&bench, &skip.id, HOUR).await, "1 missed, 2 missed, 3 missed, 4 missed");
    assert_eq!(fire_at(&bench, 5 * HOUR).await, 2);
    // Far more than is recorded one by one.
    let many = add(&bench, consolidating("* * * * * *")).await;
    assert_eq!(fire_at(&bench, 6 * HOUR).await, 3);
    assert_eq!(ticks(&bench, &many.id).await.len(), 1_001);
    let kept = record(&bench, &many.id).await;
    assert_eq!((kept.missed, kept.handled_through), (2_599, Millis(START + 6 * HOUR)));
    bench.check().await;
}

#[tokio::test]
async fn a_clock_that_jumps_repeats_nothing() {
    let bench = Bench::new().await;
    let made = add(&bench, consolidating("0 * * * *")).await;
    assert_eq!(fire_at(&bench, HOUR).await, 1);
    // A little back, and on again.
    assert_eq!(fire_at(&bench, HOUR - 10 * MINUTE).await, 0);
    assert_eq!(fire_at(&bench, HOUR).await, 0);
    // Far ahead: one, and no backlog.
    assert_eq!(fire_at(&bench, 400 * DAY).await, 1);
    assert_eq!(fire_at(&bench, 400 * DAY + HOUR).await, 1);
    // Back again: it goes on from there, and not only in a year.
    assert_eq!(fire_at(&bench, 90 * MINUTE).await, 0);
    assert_eq!(record(&bench, &made.id).await.next.unwrap().at, Millis(START + 2 * HOUR));
    assert_eq!(fire_at(&bench, 2 * HOUR).await, 1);
    assert_eq!(fire_at(&bench, 3 * HOUR).await, 1);
    // What ran far ahead does not run again when that day comes.
    assert_eq!(fire_at(&bench, 400 * DAY).await, 0);
    let all = ticks(&bench, &made.id).await;
    let ran = all.iter().filter(|tick| tick.attempts > 0).map(|tick| (tick.at.0 - START) / HOUR);
    assert_eq!(ran.collect::<Vec<_>>(), [1, 2, 3, 9_600, 9_601]);
    bench.check().await;
}

#[tokio::test]
async fn a_paused_schedule_has_no_ticks() {
    let bench = Bench::new().await;
    let (tenant, made) = (me().tenant().clone(), add(&bench, consolidating("0 * * * *")).await);
    let paused = bench.host.schedules.pause(&tenant, &made.id).await.unwrap().unwrap();
    assert!(paused.paused);
    assert_eq!(
        bench.host.schedules.next_ticks(&tenant, &made.id, 10).await.unwrap(),
        Some(Vec::new())
    );
    assert_eq!(fire_at(&bench, 5 * HOUR).await, 0);
    bench.host.schedules.resume(&tenant, &made.id).await.unwrap().unwrap();
    assert_eq!(fire_at(&bench, 5 * HOUR + MINUTE).await, 0);
    assert_eq!(fire_at(&bench, 6 * HOUR).await, 1);
    assert_eq!(shown(&bench, &made.id, HOUR).await, "6 unchanged");
    let next = bench.host.schedules.next_ticks(&tenant, &made.id, 10).await.unwrap().unwrap();
    assert_eq!(next, (7..17).map(|n| Millis(START + n * HOUR)).collect::<Vec<_>>());
    assert!(bench.host.schedules.remove(&tenant, &made.id).await.unwrap());
    assert_eq!(bench.host.schedules.next_ticks(&tenant, &made.id, 10).await.unwrap(), None);
    assert_eq!(fire_at(&bench, 9 * HOUR).await, 0);
}

#[tokio::test]
async fn a_delay_comes_once() {
    let bench = Bench::new().await;
    let delay = |millis| ScheduleRequest {
        timing: TimingRequest::DelayMillis(millis),
        ..consolidating("")
    };
    let made = add(&bench, delay(90_000)).await;
    assert_eq!(fire_at(&bench, 89_999).await, 0);
    assert_eq!(fire_at(&bench, HOUR).await, 1);
    assert_eq!(fire_at(&bench, 2 * HOUR).await, 0);
    let over = record(&bench, &made.id).await;
    assert_eq!((over.next, ticks(&bench, &made.id).await.len()), (None, 1));
    assert!(refused(&bench, delay(0)).await.contains("at least 1"));
    assert!(refused(&bench, delay(91 * DAY as u64)).await.contains("P90D"));
    assert!(refused(&bench, delay(u64::MAX)).await.contains("P90D"));
    // One that rested past its moment still comes.
    let late = add(&bench, delay(1_000)).await;
    bench.host.schedules.pause(me().tenant(), &late.id).await.unwrap();
    assert_eq!(fire_at(&bench, 3 * HOUR).await, 0);
    bench.host.schedules.resume(me().tenant(), &late.id).await.unwrap();
    assert_eq!(fire_at(&bench, 3 * HOUR).await, 1);
    // Also where nothing is caught up with.
    let skip = add(&bench, ScheduleRequest { catch_up: CatchUp::Skip, ..delay(1_000) }).await;
    assert_eq!(fire_at(&bench, 9 * HOUR).await, 1);
    assert_eq!(ticks(&bench, &skip.id).await[0].outcome, Some(TickOutcome::Unchanged));
}

fn over(store: Store, clock: &Arc<HandClock>) -> Host {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
    Host::from(Memory::builder().clock(clock).over(store, Packs::in_memory(), None))
}

#[tokio::test]
async fn a_delay_that_fails_is_tried_again() {
    let mut tried_again = 0;
    for nth in 1.. {
        let inner: Store = Store::in_memory([7; 32]);
        let clock = Arc::new(HandClock::default());
        clock.move_to(Millis(START));
        let host = over(inner.clone(), &clock);
        let scope = host.memory.scope(&me(), "m").await.unwrap();
        for _ in 0..2 {
            let content = "The ferry leaves at nine from the north pier.".to_owned();
            let request = NewEntryRequest { content, ..NewEntryRequest::default() };
            host.memory.put_entry(&scope, request).await.unwrap();
        }
        let timing = TimingRequest::DelayMillis(1_000);
        let request = ScheduleRequest { timing, ..consolidating("") };
        let made = host.schedules.add(&scope, request).await.unwrap();
        clock.move_to(Millis(START + MINUTE));
        let failing = Failing::instead_of(nth);
        let through = over(inner.hooked(failing.clone()), &clock);
        let _ = through.schedules.fire_due().await;
        let tick = async || host.schedules.ticks(me().tenant(), &made.id, 9).await.unwrap().pop();
        if tick().await.is_some_and(|tick| tick.outcome.is_none()) {
            // Its failure is waited out.
            clock.move_to(Millis(START + MINUTE + 29 * SECOND));
            assert_eq!(host.schedules.fire_due().await.unwrap(), 0, "write {nth}");
            tried_again += 1;
        }
        clock.move_to(Millis(START + 2 * MINUTE));
        host.schedules.fire_due().await.unwrap();
        let ended = tick().await.unwrap();
        use TickOutcome::{Ran, Unchanged};
        assert!(matches!(ended.outcome, Some(Ran | Unchanged)), "write {nth}: {ended:?}");
        if failing.writes() < nth {
            break;
        }
    }
    assert!(tried_again > 1, "{tried_again}");
}

#[tokio::test]
async fn a_delay_that_cannot_work_ends() {
    let bench = Bench::new().await;
    put(&bench, &"The ferry leaves at nine from the north pier. ".repeat(20)).await;
    let timing = || TimingRequest::DelayMillis(60_000);
    let tight = ScheduleRequest { timing: timing(), budget: Some(1), ..ScheduleRequest::cron("") };
    let made = add(&bench, tight).await;
    assert_eq!(fire_at(&bench, HOUR).await, 1);
    let tick = ticks(&bench, &made.id).await.remove(0);
    assert_eq!(tick.error.as_deref(), Some("token_budget_exceeded"));
    // One that fails again and again has as many tries as one whose hosts die.
    let made = add(&bench, ScheduleRequest { timing: timing(), ..consolidating("") }).await;
    let at = made.next.unwrap().at;
    bench.clock.move_to(at);
    let (store, tenant) = (icecore::extend::store(&bench.memory), me().tenant().clone());
    let claim = TickClaim {
        seen_through: made.handled_through,
        missed: Vec::new(),
        counted: 0,
        run: Some(at),
        handled_through: at,
        next: None,
        holder: "dead".to_owned(),
        now: at,
    };
    store.claim_ticks(&tenant, &made.id, claim).await.unwrap();
    for n in 1..=5 {
        let now = Millis(at.0 + n * MINUTE);
        store.take_over_tick("dead", now, now).await.unwrap().unwrap();
    }
    assert_eq!(fire_at(&bench, 2 * HOUR).await, 1);
    assert_eq!(ticks(&bench, &made.id).await[0].error.as_deref(), Some("abandoned"));
}

/// A disk that is full while it is said to be.
#[derive(Default)]
struct FullDisk {
    is_full: AtomicBool,
    refused: AtomicU64,
}

#[async_trait]
impl Hook for FullDisk {
    async fn before(&self, call: Call<'_>, _: &mut (dyn Any + Send)) -> Result<(), StoreError> {
        if !call.writes || !self.is_full.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::SeqCst);
        Err(StoreError::DiskFull)
    }
}

#[tokio::test]
async fn a_full_disk_is_not_asked_again_at_once() {
    let bench = Bench::new().await;
    let disk = Arc::new(FullDisk::default());
    let host = over(Store::in_memory([7; 32]).hooked(disk.clone()), &bench.clock);
    let scope = host.memory.scope(&me(), "m").await.unwrap();
    let made = host.schedules.add(&scope, consolidating("0 * * * *")).await.unwrap();
    bench.clock.move_to(Millis(START + HOUR));
    disk.is_full.store(true, Ordering::SeqCst);
    host.run_until(tokio::time::sleep(Duration::from_millis(900))).await;
    let refused = disk.refused.load(Ordering::SeqCst);
    assert!((1..20).contains(&refused), "{refused}");
    disk.is_full.store(false, Ordering::SeqCst);
    assert_eq!(host.schedules.fire_due().await.unwrap(), 1);
    assert_eq!(host.schedules.ticks(me().tenant(), &made.id, 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_cannot_be_a_schedule_is_refused() {
    let bench =
        Bench::with_schedules(ScheduleSettings { per_tenant: 2, ..Default::default() }).await;
    let bad = async |line: &str| refused(&bench, ScheduleRequest::cron(line)).await;
    assert!(bad("99 99 * * *").await.contains("the minute field"));
    assert!(bad("0 0 30 2 *").await.contains("the day of month field"));
    assert!(bad("").await.contains("has 0"));
    assert!(bad("0 0 1 7 *").await.contains("P90D"), "it is January");
    let zone = TimingRequest::Cron {
        line: "@daily".to_owned(),
        timezone: Some("Europe/Berln".to_owned()),
    };
    let zone = ScheduleRequest { timing: zone, ..ScheduleRequest::cron("") };
    assert!(refused(&bench, zone).await.contains("`Europe/Berlin`"));
    let none = ScheduleRequest { budget: Some(0), ..ScheduleRequest::cron("@daily") };
    assert!(refused(&bench, none).await.contains("at least 1 token"));
    let odd = ScheduleRequest { budget: Some(9), ..consolidating("@daily") };
    assert!(refused(&bench, odd).await.contains("for dreams"));
    let late = ScheduleRequest { jitter_millis: u64::MAX, ..consolidating("@daily") };
    let error = bench.host.schedules.add(&bench.scope, late).await.unwrap_err();
    assert!(matches!(error, SchedulingError::Jitter));
    for _ in 0..2 {
        add(&bench, consolidating("@daily")).await;
    }
    let error = bench.host.schedules.add(&bench.scope, consolidating("@daily")).await.unwrap_err();
    assert!(matches!(
        error,
        SchedulingError::Memory(MemoryError::Store(StoreError::TooManySchedules { most: 2 }))
    ));
    assert_eq!(bench.host.schedules.list(me().tenant(), None).await.unwrap().len(), 2);
}

#[tokio::test]
async fn failures_hold_it_up_and_a_success_forgets_them() {
    let bench = Bench::new().await;
    put(&bench, &"The ferry leaves at nine from the north pier. ".repeat(20)).await;
    let tight = ScheduleRequest { budget: Some(1), ..ScheduleRequest::cron("*/30 * * * * *") };
    let made = add(&bench, tight).await;
    for n in 1..=5 {
        fire_at(&bench, n * 30 * SECOND).await;
    }
    // A minute after the first failure, then two.
    let expected = "1 failed, 2 backed-off, 3 failed, 4 backed-off, 5 backed-off";
    assert_eq!(shown(&bench, &made.id, 30 * SECOND).await, expected);
    let tick = ticks(&bench, &made.id).await.remove(0);
    assert_eq!(tick.error.as_deref(), Some("token_budget_exceeded"));
    let kept = record(&bench, &made.id).await;
    assert_eq!((kept.failures, kept.not_before), (2, Some(Millis(START + 210 * SECOND))));
    // Once there is nothing in the way it works, and begins anew.
    let entries =
        bench.memory.entries(&bench.scope, &icecore::knowledge::EntryQuery::default()).await;
    for entry in entries.unwrap().entries {
        bench.memory.delete_entry(&bench.scope, &entry.id).await.unwrap();
    }
    fire_at(&bench, 7 * 30 * SECOND).await;
    let kept = record(&bench, &made.id).await;
    assert_eq!((kept.failures, kept.not_before), (0, None));
}

#[tokio::test]
async fn a_tenant_has_so_many_tokens_a_day() {
    let bench =
        Bench::with_schedules(ScheduleSettings { tokens_a_day: 400, ..Default::default() }).await;
    let made = add(&bench, ScheduleRequest::cron("0 * * * *")).await;
    for n in 1..=24 {
        put(&bench, &format!("Ferry number {n} leaves at {n} from the north pier, says Ana."))
            .await;
        fire_at(&bench, n * HOUR).await;
    }
    let all = ticks(&bench, &made.id).await;
    let of = |outcome| all.iter().filter(|tick| tick.outcome == Some(outcome)).count();
    let (ran, over) = (of(TickOutcome::Ran), of(TickOutcome::OverBudget));
    assert!(ran > 0 && over > 0 && ran + over == 24, "{}", shown(&bench, &made.id, HOUR).await);
    assert_eq!(record(&bench, &made.id).await.failures, 0);
    // The last is of the next day.
    assert_eq!(all.last().unwrap().outcome, Some(TickOutcome::Ran));
}

#[tokio::test(flavor = "multi_thread")]
async fn dreams_that_come_at_once_share_the_tokens_of_the_day() {
    let bench =
        Bench::with_schedules(ScheduleSettings { tokens_a_day: 300, ..Default::default() }).await;
    let mut made = Vec::new();
    for n in 0..8 {
        let scope = bench.memory.scope(&me(), &format!("m{n}")).await.unwrap();
        for m in 0..4 {
            let content = format!("Ferry {m} of line {n} leaves at {m} from the north pier.");
            let request = NewEntryRequest { content, ..NewEntryRequest::default() };
            bench.memory.put_entry(&scope, request).await.unwrap();
        }
        let request = ScheduleRequest::cron("0 * * * *");
        made.push(bench.host.schedules.add(&scope, request).await.unwrap().id);
    }
    bench.clock.move_to(Millis(START + HOUR));
    let ended = async || {
        let mut ended = Vec::new();
        for id in &made {
            ended.extend(ticks(&bench, id).await.into_iter().filter_map(|tick| tick.outcome));
        }
        ended
    };
    let all_ended = async {
        while ended().await.len() < made.len() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    bench.host.run_until(all_ended).await;
    let ended = ended().await;
    let of = |outcome| ended.iter().filter(|one| **one == outcome).count();
    assert!(of(TickOutcome::Ran) > 1 && of(TickOutcome::OverBudget) > 0, "{ended:?}");
    let used = icecore::extend::store(&bench.memory)
        .dreamt_tokens(me().tenant(), Millis(0))
        .await
        .unwrap();
    assert!(used > 0 && used <= 300, "{used}");
}

#[tokio::test]
async fn a_tick_that_waits_is_paused_with_its_schedule() {
    let bench = Bench::new().await;
    let cron = add(&bench, consolidating("0 * * * *")).await;
    let delay =
        ScheduleRequest { timing: TimingRequest::DelayMillis(HOUR as u64), ..consolidating("") };
    let delay = add(&bench, delay).await;
    let tenant = me().tenant().clone();
    bench.clock.move_to(Millis(START + HOUR));
    for made in [&cron, &delay] {
        put(&bench, "Somebody is at work.").await;
        let pausing = async {
            while ticks(&bench, &made.id).await.is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            bench.host.schedules.pause(&tenant, &made.id).await.unwrap();
        };
        let now = Millis(START + HOUR);
        let (fired, ()) = tokio::join!(bench.host.schedules.fire(&tenant, &made.id, now), pausing);
        assert_eq!(fired.unwrap(), 1);
    }
    assert_eq!(shown(&bench, &cron.id, HOUR).await, "1 paused");
    assert_eq!(shown(&bench, &delay.id, HOUR).await, "1 running");
    assert_eq!(fire_at(&bench, 2 * HOUR).await, 0, "they rest");
    for made in [&cron, &delay] {
        bench.host.schedules.resume(&tenant, &made.id).await.unwrap();
    }
    assert_eq!(fire_at(&bench, 2 * HOUR + MINUTE).await, 1);
    assert_eq!(shown(&bench, &delay.id, HOUR).await, "1 ran");
    assert_eq!(shown(&bench, &cron.id, HOUR).await, "1 paused");
}

#[tokio::test]
async fn a_moment_that_is_asked_for_is_no_sign_of_life() {
    let bench = Bench::new().await;
    let made = add(&bench, consolidating("0 * * * *")).await;
    put(&bench, "Somebody is at work.").await;
    let (tenant, far) = (me().tenant().clone(), Millis(START + 48 * HOUR));
    let watching = async {
        loop {
            if let Some(tick) = ticks(&bench, &made.id).await.pop()
                && tick.outcome.is_none()
            {
                break tick;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let (_, tick) = tokio::join!(
        async {
            let firing = bench.host.schedules.fire(&tenant, &made.id, far);
            tokio::time::timeout(Duration::from_secs(2), firing).await.ok()
        },
        watching
    );
    assert_eq!((tick.at, tick.heartbeat), (far, Some(Millis(START))));
    let store = icecore::extend::store(&bench.memory);
    let dead_since = Millis(START - 30 * SECOND);
    assert_eq!(store.take_over_tick("x", dead_since, Millis(START)).await.unwrap(), None);
}

#[tokio::test]
async fn a_memory_in_use_is_waited_for() {
    let schedules = ScheduleSettings { wait_seconds: 0, ..ScheduleSettings::default() };
    let bench = Bench::with_schedules(schedules).await;
    put(&bench, "The ferry leaves at nine.").await;
    let made = add(&bench, ScheduleRequest::cron("* * * * * *")).await;
    fire_at(&bench, SECOND).await;
    fire_at(&bench, 4 * SECOND).await;
    let turns = vec![icecore::RawTurn::new("user", "And from which pier?")];
    bench.memory.remember(&bench.scope, "talk", turns).await.unwrap();
    fire_at(&bench, 5 * SECOND).await;
    fire_at(&bench, 9 * SECOND).await;
    let last: Vec<_> =
        ticks(&bench, &made.id).await.into_iter().filter(|t| t.attempts > 0).collect();
    let outcomes: Vec<_> = last.iter().filter_map(|tick| tick.outcome).collect();
    use TickOutcome::{Busy, Ran};
    assert_eq!(outcomes, [Busy, Busy, Busy, Ran]);
    assert_eq!(record(&bench, &made.id).await.failures, 0);
}

/// Claims the next instant of an hourly schedule for somebody who then dies.
async fn die(bench: &Bench, made: &ScheduleRecord, hour: i64) {
    bench.clock.move_to(Millis(START + hour * HOUR));
    let at = Millis(START + (hour + 1) * HOUR);
    let claim = TickClaim {
        seen_through: made.handled_through,
        missed: Vec::new(),
        counted: 0,
        run: Some(Millis(START + hour * HOUR)),
        handled_through: Millis(START + hour * HOUR),
        next: Some(NextTick { at, fires_at: at }),
        holder: "dead".to_owned(),
        now: Millis(START + hour * HOUR),
    };
    let claimed = icecore::extend::store(&bench.memory)
        .claim_ticks(me().tenant(), &made.id, claim)
        .await
        .unwrap();
    assert!(matches!(claimed, Claimed::Run(_)));
}

#[tokio::test]
async fn a_dead_host_is_taken_over() {
    let bench = Bench::new().await;
    put(&bench, "The ferry leaves at nine from the north pier.").await;
    let made = add(&bench, ScheduleRequest::cron("0 * * * *")).await;
    die(&bench, &made, 1).await;
    assert_eq!(fire_at(&bench, HOUR + 29 * SECOND).await, 0, "it may live");
    assert_eq!(fire_at(&bench, HOUR + 30 * SECOND).await, 1);
    let tick = ticks(&bench, &made.id).await.remove(0);
    assert_eq!((tick.outcome, tick.attempts), (Some(TickOutcome::Ran), 2));
    assert!(tick.run.is_some());
    // A tick that kills whoever works on it is given up.
    let made = record(&bench, &made.id).await;
    die(&bench, &made, 2).await;
    let store = icecore::extend::store(&bench.memory);
    for n in 2..=5 {
        let now = Millis(START + 2 * HOUR + n * MINUTE);
        let taken = store.take_over_tick("dead", now, now).await.unwrap().unwrap();
        assert_eq!(taken.tick.attempts, n as u64);
    }
    assert_eq!(fire_at(&bench, 2 * HOUR + 10 * MINUTE).await, 1);
    let tick = ticks(&bench, &made.id).await.remove(1);
    assert_eq!(
        (tick.outcome, tick.error.as_deref()),
        (Some(TickOutcome::Failed), Some("abandoned"))
    );
    bench.check().await;
}

#[tokio::test]
async fn a_run_that_was_dreamt_before_its_host_died_is_not_dreamt_again() {
    let bench = Bench::new().await;
    put(&bench, "The ferry leaves at nine from the north pier.").await;
    let made = add(&bench, ScheduleRequest::cron("0 * * * *")).await;
    die(&bench, &made, 1).await;
    let run = format!("{}-{}", made.id, START + HOUR);
    let request = icecore::dreams::DreamRequest {
        run: Some(run.clone()),
        trigger: DreamTrigger::Scheduled,
        ..icecore::dreams::DreamRequest::manual(None)
    };
    bench.memory.dream(&bench.scope, request, |_| {}).await.unwrap();
    assert_eq!(fire_at(&bench, HOUR + MINUTE).await, 1);
    let tick = ticks(&bench, &made.id).await.remove(0);
    assert_eq!((tick.outcome, tick.run), (Some(TickOutcome::Ran), Some(run)));
    let query = icecore::dreams::DreamQuery { limit: 9, ..icecore::dreams::DreamQuery::default() };
    assert_eq!(bench.memory.dreams(me().tenant(), &query).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_share_the_ticks() {
    let bench = Bench::new().await;
    let made = add(&bench, consolidating("* * * * * *")).await;
    let clock: Arc<dyn Clock> = Arc::clone(&bench.clock) as Arc<dyn Clock>;
    let other = Memory::builder().clock(clock).open(bench.dir.path()).await.unwrap();
    let other = Host::from(other);
    let mut fired = 0;
    for n in 1..=30 {
        bench.clock.move_to(Millis(START + n * SECOND));
        let (a, b) = tokio::join!(bench.host.schedules.fire_due(), other.schedules.fire_due());
        fired += a.unwrap() + b.unwrap();
    }
    assert_eq!(fired, 30);
    let all = ticks(&bench, &made.id).await;
    let at: Vec<i64> = all.iter().map(|tick| (tick.at.0 - START) / SECOND).collect();
    assert_eq!(at, (1..=30).collect::<Vec<i64>>());
    assert!(all.iter().all(|tick| tick.outcome == Some(TickOutcome::Unchanged)));
}

#[tokio::test]
async fn old_ticks_go_and_schedules_stay() {
    let bench = Bench::new().await;
    let made = add(&bench, consolidating("0 0 * * *")).await;
    let delay = ScheduleRequest { timing: TimingRequest::DelayMillis(1), ..consolidating("") };
    let over = add(&bench, delay).await;
    for n in 1..=3 {
        fire_at(&bench, n * DAY).await;
    }
    bench.clock.move_to(Millis(START + 32 * DAY));
    let stop = tokio::time::sleep(Duration::from_millis(300));
    bench.host.schedules.pause(me().tenant(), &made.id).await.unwrap();
    bench.host.run_until(stop).await;
    assert_eq!(shown(&bench, &made.id, DAY).await, "3 unchanged");
    assert_eq!(bench.host.schedules.get(me().tenant(), &over.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_schedule_keeps_so_many_ticks() {
    let bench =
        Bench::with_schedules(ScheduleSettings { ticks_kept: 2, ..Default::default() }).await;
    let made = add(&bench, consolidating("0 * * * *")).await;
    for n in 1..=4 {
        fire_at(&bench, n * HOUR).await;
    }
    bench.host.run_until(tokio::time::sleep(Duration::from_millis(300))).await;
    assert_eq!(shown(&bench, &made.id, HOUR).await, "3 unchanged, 4 unchanged");
}
