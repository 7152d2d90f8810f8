//! Schedules: that an instant has one tick, whoever asks, and what ends it.

use icecore_domain::ids::Tenant;
use icecore_domain::schedule::CatchUp;
use icecore_domain::time::Millis;

use super::fixtures::*;
use crate::error::StoreError;
use crate::store::Store;
use crate::*;

const MINUTE: i64 = 60_000;

fn acme() -> Tenant {
    tenant("acme")
}

/// The instant of the nth minute after now.
fn minute(n: i64) -> Millis {
    Millis(NOW.0 + n * MINUTE)
}

fn tick(n: i64) -> NextTick {
    NextTick { at: minute(n), fires_at: minute(n) }
}

pub(crate) fn new_schedule(id: &str) -> NewSchedule {
    NewSchedule {
        id: id.to_owned(),
        task: ScheduleTask::Dream,
        timing: ScheduleTiming::Cron { line: "* * * * *".to_owned(), timezone: "UTC".to_owned() },
        budget: Some(4_000),
        catch_up: CatchUp::Once,
        jitter_millis: 0,
        next: tick(1),
        now: NOW,
        most: 9,
        claim: None,
    }
}

async fn put(store: &Store, schedule: NewSchedule) -> ScheduleRecord {
    store.put_schedule(&scope(), schedule).await.unwrap()
}

/// Claims the nth minute for `holder`, with the minutes before it that are due.
fn claim(seen: i64, n: i64, holder: &str) -> TickClaim {
    TickClaim {
        seen_through: minute(seen),
        missed: (seen + 1..n).map(minute).collect(),
        counted: 0,
        run: Some(minute(n)),
        handled_through: minute(n),
        next: Some(tick(n + 1)),
        holder: holder.to_owned(),
        now: minute(n),
    }
}

async fn run(store: &Store, id: &str, claim: TickClaim) -> TickRecord {
    match store.claim_ticks(&acme(), id, claim).await.unwrap() {
        Claimed::Run(tick) => tick,
        other => panic!("{other:?}"),
    }
}

fn ended(holder: &str, outcome: TickOutcome) -> TickEnd {
    TickEnd {
        holder: holder.to_owned(),
        outcome,
        run: None,
        error: None,
        failures: Some(0),
        not_before: None,
        now: minute(1),
    }
}

async fn end(store: &Store, id: &str, n: i64, end: TickEnd) -> bool {
    store.end_tick(&acme(), id, minute(n), end).await.unwrap()
}

/// The ticks of a schedule, oldest first, by minute.
async fn ticks(store: &Store, id: &str) -> String {
    let mut found = store.ticks(&acme(), id, 99).await.unwrap();
    found.reverse();
    let word = |tick: &TickRecord| {
        let outcome = tick.outcome.map_or("runs", TickOutcome::as_str);
        format!("{} {outcome}", (tick.at.0 - NOW.0) / MINUTE)
    };
    found.iter().map(word).collect::<Vec<_>>().join(", ")
}

async fn due(store: &Store, now: Millis, limit: usize) -> String {
    let found = store.due_schedules(now, limit).await.unwrap();
    found.iter().map(|one| one.id.as_str()).collect::<Vec<_>>().join(" ")
}

async fn listed(store: &Store, memory: Option<&str>) -> String {
    let found = store.schedules(&acme(), memory).await.unwrap();
    found.iter().map(|one| one.id.as_str()).collect::<Vec<_>>().join(" ")
}

pub(super) async fn a_schedule_is_kept_and_removed(store: &Store) {
    assert_eq!(store.schedule(&acme(), "a").await.unwrap(), None);
    let made = put(store, new_schedule("a")).await;
    let expected = ScheduleRecord {
        id: "a".to_owned(),
        scope: scope(),
        task: ScheduleTask::Dream,
        timing: new_schedule("a").timing,
        budget: Some(4_000),
        catch_up: CatchUp::Once,
        jitter_millis: 0,
        created_at: NOW,
        paused: false,
        handled_through: NOW,
        next: Some(tick(1)),
        failures: 0,
        not_before: None,
        missed: 0,
    };
    assert_eq!(made, expected);
    assert_eq!(store.schedule(&acme(), "a").await.unwrap(), Some(expected));
    let once = NewSchedule {
        task: ScheduleTask::Consolidate,
        timing: ScheduleTiming::Once(minute(7)),
        budget: None,
        catch_up: CatchUp::Skip,
        jitter_millis: 500,
        next: NextTick { at: minute(7), fires_at: Millis(minute(7).0 + 3) },
        ..new_schedule("b")
    };
    let made = put(store, once).await;
    assert_eq!(store.schedule(&acme(), "b").await.unwrap(), Some(made));
    assert_eq!(store.schedule(&tenant("rival"), "a").await.unwrap(), None);
    assert!(!store.remove_schedule(&tenant("rival"), "a").await.unwrap());
    run(store, "a", claim(0, 1, "h")).await;
    assert!(store.remove_schedule(&acme(), "a").await.unwrap());
    assert!(!store.remove_schedule(&acme(), "a").await.unwrap());
    assert_eq!(store.ticks(&acme(), "a", 9).await.unwrap(), []);
    assert!(!end(store, "a", 1, ended("h", TickOutcome::Ran)).await);
    assert_eq!(store.take_over_tick("x", minute(99), minute(99)).await.unwrap(), None);
    clean(store).await;
}

pub(super) async fn schedules_are_listed_oldest_first(store: &Store) {
    for (id, memory, at) in [("b", "notes", 1), ("a", "diary", 2), ("c", "notes", 2)] {
        let new = NewSchedule { now: minute(at), ..new_schedule(id) };
        store.put_schedule(&scope_of("acme", memory), new).await.unwrap();
    }
    store.put_schedule(&scope_of("rival", "notes"), new_schedule("r")).await.unwrap();
    assert_eq!(listed(store, None).await, "b a c");
    assert_eq!(listed(store, Some("notes")).await, "b c");
    assert_eq!(listed(store, Some("no such")).await, "");
    clean(store).await;
}

pub(super) async fn a_tenant_has_so_many_schedules(store: &Store) {
    let new = |id: &str| NewSchedule { most: 2, ..new_schedule(id) };
    let none = NewSchedule { most: 0, ..new_schedule("x") };
    let error = store.put_schedule(&scope(), none).await.unwrap_err();
    assert!(matches!(error, StoreError::TooManySchedules { most: 0 }));
    put(store, new("a")).await;
    put(store, new("b")).await;
    let error = store.put_schedule(&scope_of("acme", "diary"), new("c")).await.unwrap_err();
    assert!(matches!(error, StoreError::TooManySchedules { most: 2 }));
    store.put_schedule(&scope_of("rival", "notes"), new("c")).await.unwrap();
    // One that is over leaves its place, and as many of them are kept.
    for (n, id) in [(1, "a"), (2, "d"), (3, "e"), (4, "f")] {
        let seen = store.schedule(&acme(), id).await.unwrap().unwrap().handled_through;
        let over =
            TickClaim { seen_through: seen, next: None, missed: Vec::new(), ..claim(0, n, "h") };
        run(store, id, over).await;
        // The second of them stays at work.
        if id != "d" {
            assert!(end(store, id, n, ended("h", TickOutcome::Ran)).await);
        }
        let next = ["", "d", "e", "f", "g"][n as usize];
        put(store, new(next)).await;
    }
    assert_eq!(listed(store, None).await, "b d e f g");
    assert!(end(store, "d", 2, ended("h", TickOutcome::Ran)).await);
    assert!(store.remove_schedule(&acme(), "b").await.unwrap());
    put(store, new("h")).await;
    assert_eq!(listed(store, None).await, "e f g h");
    clean(store).await;
}

pub(super) async fn a_schedule_keeps_its_claim(store: &Store) {
    let claim = Claim {
        operation: "POST /schedules".to_owned(),
        key: "k".to_owned(),
        request: [7; 32],
        code: 201,
    };
    let new = |id| NewSchedule { claim: Some(claim.clone()), ..new_schedule(id) };
    put(store, new("a")).await;
    let kept = store.outcome(&acme(), "POST /schedules", "k", NOW).await.unwrap().unwrap();
    let ids: serde_json::Value = serde_json::from_str(&kept.body).unwrap();
    assert_eq!((kept.code, &ids["id"]), (201, &serde_json::json!("a")));
    let error = store.put_schedule(&scope(), new("b")).await.unwrap_err();
    assert!(matches!(error, StoreError::ClaimTaken));
    assert_eq!(listed(store, None).await, "a");
    clean(store).await;
}

pub(super) async fn schedules_are_due_by_their_moment(store: &Store) {
    for (id, n) in [("a", 2), ("b", 1), ("c", 3)] {
        put(store, NewSchedule { next: tick(n), ..new_schedule(id) }).await;
    }
    let theirs = NewSchedule { next: tick(2), ..new_schedule("r") };
    store.put_schedule(&scope_of("rival", "notes"), theirs).await.unwrap();
    assert_eq!(due(store, NOW, 9).await, "");
    assert_eq!(due(store, minute(1), 9).await, "b");
    assert_eq!(due(store, minute(3), 9).await, "b r a c", "every tenant has its turn");
    assert_eq!(due(store, minute(3), 2).await, "b r");
    // The jitter counts, and so does a clock that was far ahead.
    let later = NextTick { at: minute(1), fires_at: minute(5) };
    put(store, NewSchedule { next: later, ..new_schedule("j") }).await;
    let ahead = NewSchedule { now: minute(100_000), next: tick(100_001), ..new_schedule("w") };
    put(store, ahead).await;
    assert_eq!(due(store, minute(1), 9).await, "b w");
    assert_eq!(due(store, minute(99_999), 1).await, "b");
    clean(store).await;
}

pub(super) async fn a_tick_is_claimed_once(store: &Store) {
    put(store, new_schedule("a")).await;
    let tick = run(store, "a", claim(0, 3, "h")).await;
    let expected = TickRecord {
        schedule: "a".to_owned(),
        at: minute(3),
        outcome: None,
        run: None,
        error: None,
        holder: Some("h".to_owned()),
        heartbeat: Some(minute(3)),
        attempts: 1,
        started_at: minute(3),
        ended_at: None,
        missed: 0,
    };
    assert_eq!(tick, expected);
    assert_eq!(store.ticks(&acme(), "a", 1).await.unwrap(), [expected]);
    let again = store.claim_ticks(&acme(), "a", claim(0, 3, "x")).await.unwrap();
    assert_eq!(again, Claimed::Stale);
    assert_eq!(ticks(store, "a").await, "1 missed, 2 missed, 3 runs");
    let record = store.schedule(&acme(), "a").await.unwrap().unwrap();
    assert_eq!((record.handled_through, record.next), (minute(3), Some(self::tick(4))));
    let unknown = store.claim_ticks(&acme(), "no such", claim(0, 3, "x")).await.unwrap();
    assert_eq!(unknown, Claimed::Stale);
    let theirs = store.claim_ticks(&tenant("rival"), "a", claim(3, 4, "x")).await.unwrap();
    assert_eq!(theirs, Claimed::Stale);
    let skipped = TickClaim { run: None, counted: 7, ..claim(3, 5, "h") };
    let skipped = store.claim_ticks(&acme(), "a", skipped).await.unwrap();
    assert_eq!(skipped, Claimed::Recorded);
    assert_eq!(store.schedule(&acme(), "a").await.unwrap().unwrap().missed, 7);
    assert_eq!(ticks(store, "a").await, "1 missed, 2 missed, 3 runs, 4 missed");
    clean(store).await;
}

pub(super) async fn an_instant_has_one_tick(store: &Store) {
    put(store, new_schedule("a")).await;
    run(store, "a", claim(0, 2, "h")).await;
    end(store, "a", 2, ended("h", TickOutcome::Ran)).await;
    // The clock went back, and the schedule with it.
    let back = TickClaim {
        run: None,
        missed: Vec::new(),
        handled_through: minute(0),
        next: Some(tick(1)),
        ..claim(2, 2, "h")
    };
    assert_eq!(store.claim_ticks(&acme(), "a", back).await.unwrap(), Claimed::Recorded);
    let again = store.claim_ticks(&acme(), "a", claim(0, 1, "h")).await.unwrap();
    assert_eq!(again, Claimed::Recorded);
    let again = store.claim_ticks(&acme(), "a", claim(1, 2, "h")).await.unwrap();
    assert_eq!(again, Claimed::Recorded);
    assert_eq!(ticks(store, "a").await, "1 missed, 2 ran");
    run(store, "a", claim(2, 3, "h")).await;
    clean(store).await;
}

pub(super) async fn hosts_that_claim_at_once_share_the_instants(store: &Store) {
    put(store, new_schedule("a")).await;
    let acme = acme();
    for n in 1..=20 {
        let by = |holder| store.claim_ticks(&acme, "a", claim(n - 1, n, holder));
        let (a, b, c) = tokio::join!(by("x"), by("y"), by("z"));
        let ran: Vec<TickRecord> = [a, b, c]
            .into_iter()
            .filter_map(|claimed| match claimed.unwrap() {
                Claimed::Run(tick) => Some(tick),
                _ => None,
            })
            .collect();
        assert_eq!(ran.len(), 1, "minute {n}");
        let holder = ran[0].holder.clone().unwrap();
        assert!(end(store, "a", n, ended(&holder, TickOutcome::Ran)).await);
    }
    assert_eq!(store.ticks(&acme, "a", 99).await.unwrap().len(), 20);
    clean(store).await;
}

pub(super) async fn a_tick_that_runs_is_not_overlapped(store: &Store) {
    put(store, new_schedule("a")).await;
    put(store, new_schedule("b")).await;
    run(store, "a", claim(0, 1, "h")).await;
    let next = store.claim_ticks(&acme(), "a", claim(1, 2, "x")).await.unwrap();
    assert_eq!(next, Claimed::Recorded);
    run(store, "b", claim(0, 2, "x")).await;
    assert!(end(store, "a", 1, ended("h", TickOutcome::Unchanged)).await);
    run(store, "a", claim(2, 3, "x")).await;
    assert_eq!(ticks(store, "a").await, "1 unchanged, 2 overlapped, 3 runs");
    clean(store).await;
}

pub(super) async fn a_failure_holds_up_what_comes_next(store: &Store) {
    put(store, new_schedule("a")).await;
    run(store, "a", claim(0, 1, "h")).await;
    let failed = TickEnd {
        error: Some("internal_error".to_owned()),
        run: Some("r".to_owned()),
        failures: Some(3),
        not_before: Some(minute(4)),
        ..ended("h", TickOutcome::Failed)
    };
    assert!(end(store, "a", 1, failed).await);
    let tick = store.ticks(&acme(), "a", 1).await.unwrap().remove(0);
    assert_eq!((tick.error.as_deref(), tick.run.as_deref()), (Some("internal_error"), Some("r")));
    assert_eq!((tick.heartbeat, tick.ended_at), (None, Some(minute(1))));
    let record = store.schedule(&acme(), "a").await.unwrap().unwrap();
    assert_eq!((record.failures, record.not_before), (3, Some(minute(4))));
    for n in [2, 3] {
        let claimed = store.claim_ticks(&acme(), "a", claim(n - 1, n, "h")).await.unwrap();
        assert_eq!(claimed, Claimed::Recorded);
    }
    run(store, "a", claim(3, 4, "h")).await;
    // What is merely in the way changes nothing about failures.
    let busy = TickEnd { failures: None, ..ended("h", TickOutcome::Busy) };
    assert!(end(store, "a", 4, busy).await);
    assert_eq!(store.schedule(&acme(), "a").await.unwrap().unwrap().failures, 3);
    run(store, "a", claim(4, 5, "h")).await;
    assert!(end(store, "a", 5, ended("h", TickOutcome::Ran)).await);
    let record = store.schedule(&acme(), "a").await.unwrap().unwrap();
    assert_eq!((record.failures, record.not_before), (0, None));
    // A wait that only a wrong clock can have written is none.
    run(store, "a", claim(5, 6, "h")).await;
    let wrong = TickEnd { not_before: Some(minute(99_999)), ..ended("h", TickOutcome::Failed) };
    assert!(end(store, "a", 6, wrong).await);
    run(store, "a", claim(6, 7, "h")).await;
    let all = "1 failed, 2 backed-off, 3 backed-off, 4 busy, 5 ran, 6 failed, 7 runs";
    assert_eq!(ticks(store, "a").await, all);
    clean(store).await;
}

pub(super) async fn a_holder_gives_signs_until_it_ends(store: &Store) {
    put(store, new_schedule("a")).await;
    run(store, "a", claim(0, 1, "h")).await;
    let acme = acme();
    let beat = async |at, holder, now| {
        store.beat_tick(&acme, "a", minute(at), holder, minute(now)).await.unwrap()
    };
    assert!(beat(1, "h", 2).await);
    assert!(!beat(1, "x", 2).await);
    assert!(!beat(2, "h", 2).await);
    assert_eq!(store.ticks(&acme, "a", 1).await.unwrap()[0].heartbeat, Some(minute(2)));
    assert!(!end(store, "a", 1, ended("x", TickOutcome::Ran)).await);
    assert!(end(store, "a", 1, ended("h", TickOutcome::Ran)).await);
    assert!(!end(store, "a", 1, ended("h", TickOutcome::Failed)).await);
    assert!(!beat(1, "h", 3).await);
    assert_eq!(ticks(store, "a").await, "1 ran");
    clean(store).await;
}

pub(super) async fn a_dead_holder_is_taken_over(store: &Store) {
    for id in ["a", "b", "c"] {
        put(store, new_schedule(id)).await;
    }
    let acme = acme();
    for (id, beat) in [("a", minute(5)), ("b", minute(3)), ("c", Millis(0))] {
        run(store, id, claim(0, 1, "h")).await;
        assert!(store.beat_tick(&acme, id, minute(1), "h", beat).await.unwrap());
    }
    let take =
        async |dead, now| store.take_over_tick("x", minute(dead), minute(now)).await.unwrap();
    // One that was given up comes first.
    let taken = take(2, 6).await.unwrap();
    assert_eq!((taken.schedule.id.as_str(), taken.tick.attempts), ("c", 2));
    assert_eq!((taken.tick.holder.as_deref(), taken.tick.heartbeat), (Some("x"), Some(minute(6))));
    assert_eq!(taken.tick.started_at, minute(1));
    assert_eq!(take(2, 6).await, None);
    assert!(!store.beat_tick(&acme, "c", minute(1), "h", minute(7)).await.unwrap());
    assert!(!end(store, "c", 1, ended("h", TickOutcome::Ran)).await);
    assert!(end(store, "c", 1, ended("x", TickOutcome::Ran)).await);
    assert_eq!(take(3, 6).await.unwrap().schedule.id, "b");
    assert_eq!(take(3, 6).await, None);
    // A sign from the far future is of a clock that was wrong. What rests waits.
    assert!(store.beat_tick(&acme, "a", minute(1), "h", minute(99_999)).await.unwrap());
    store.pause_schedule(&acme, "a").await.unwrap();
    assert_eq!(take(3, 6).await, None);
    store.resume_schedule(&acme, "a", minute(1), Some(tick(2))).await.unwrap();
    assert_eq!(take(3, 6).await.unwrap().schedule.id, "a");
    clean(store).await;
}

pub(super) async fn a_paused_schedule_is_not_due(store: &Store) {
    put(store, new_schedule("a")).await;
    assert!(store.pause_schedule(&acme(), "a").await.unwrap().unwrap().paused);
    assert_eq!(due(store, minute(9), 9).await, "");
    let claimed = store.claim_ticks(&acme(), "a", claim(0, 1, "h")).await.unwrap();
    assert_eq!(claimed, Claimed::Stale);
    assert_eq!(store.pause_schedule(&acme(), "no such").await.unwrap(), None);
    let acme = acme();
    let resume = async |n: i64| {
        let on = store.resume_schedule(&acme, "a", minute(n), Some(tick(n + 1))).await;
        on.unwrap().unwrap()
    };
    let on = resume(9).await;
    assert_eq!((on.paused, on.handled_through, on.next), (false, minute(9), Some(tick(10))));
    assert_eq!(resume(2).await, on, "it does not rest");
    assert_eq!(due(store, minute(10), 9).await, "a");
    assert_eq!(store.resume_schedule(&acme, "no such", NOW, None).await.unwrap(), None);
    clean(store).await;
}

pub(super) async fn old_ticks_are_purged(store: &Store) {
    put(store, new_schedule("a")).await;
    for n in 1..=4 {
        run(store, "a", claim(n - 1, n, "h")).await;
        let end_at = TickEnd { now: minute(n), ..ended("h", TickOutcome::Ran) };
        assert!(end(store, "a", n, end_at).await);
    }
    run(store, "a", claim(4, 5, "h")).await;
    let once = NewSchedule { next: tick(1), ..new_schedule("once") };
    put(store, once).await;
    run(store, "once", TickClaim { next: None, ..claim(0, 1, "h") }).await;
    assert_eq!(store.purge_ticks(NOW, 9).await.unwrap(), 0);
    assert_eq!(store.purge_ticks(minute(3), 2).await.unwrap(), 2);
    assert_eq!(ticks(store, "a").await, "3 ran, 4 ran, 5 runs");
    assert_eq!(store.purge_ticks(minute(3), 2).await.unwrap(), 1);
    assert!(store.schedule(&acme(), "once").await.unwrap().is_some(), "its tick runs");
    assert!(end(store, "once", 1, ended("h", TickOutcome::Ran)).await);
    assert_eq!(store.purge_ticks(minute(3), 9).await.unwrap(), 2);
    assert_eq!(store.schedule(&acme(), "once").await.unwrap(), None);
    assert_eq!(ticks(store, "a").await, "4 ran, 5 runs");
    clean(store).await;
}

pub(super) async fn a_schedule_has_so_many_ticks(store: &Store) {
    for id in ["a", "b"] {
        put(store, new_schedule(id)).await;
        run(store, id, claim(0, 5, "h")).await;
        assert!(end(store, id, 5, ended("h", TickOutcome::Ran)).await);
        run(store, id, claim(5, 6, "h")).await;
    }
    assert_eq!(store.trim_ticks(6, 9).await.unwrap(), 0);
    assert_eq!(store.trim_ticks(4, 3).await.unwrap(), 3);
    assert_eq!(ticks(store, "a").await, "3 missed, 4 missed, 5 ran, 6 runs");
    assert_eq!(ticks(store, "b").await, "2 missed, 3 missed, 4 missed, 5 ran, 6 runs");
    assert_eq!(store.trim_ticks(4, 3).await.unwrap(), 1);
    // What runs is not over.
    assert_eq!(store.trim_ticks(0, 99).await.unwrap(), 6);
    assert_eq!(ticks(store, "b").await, "6 runs");
    clean(store).await;
}

pub(super) async fn a_schedule_follows_its_memory(store: &Store) {
    const SECRET: &str = "q8Zk2Lm9Xw";
    let memory = scope_of("acme", &format!("of {SECRET}"));
    store.put_schedule(&memory, new_schedule("a")).await.unwrap();
    store.rewrite_stored_text(&acme(), redactor_of(&[SECRET]), NOW).await.unwrap();
    let now = store.scopes(&acme()).await.unwrap().remove(0);
    assert!(!now.memory().contains(SECRET));
    assert_eq!(store.schedule(&acme(), "a").await.unwrap().unwrap().scope, now);
    assert_eq!(listed(store, Some(now.memory())).await, "a");
    clean(store).await;
}
