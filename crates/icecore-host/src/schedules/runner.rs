//! Working on a tick: waiting for its turn, giving signs, recording what came of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use icecore::dreams::{DreamRequest, DreamTrigger};
use icecore::knowledge::ConsolidationTrigger;
use icecore::{MemoryError, Millis, Scope, Tenant};
use icecore_store::{
    EntryFilter, MAX_BACKOFF_MILLIS, Packs, ScheduleRecord, ScheduleTask, ScheduleTiming,
    TakenOver, TickEnd, TickOutcome, TickRecord,
};
use tokio::sync::{Notify, OwnedMutexGuard, Semaphore, watch};
use tokio::task::JoinSet;

use super::{ClaimedDue, DAY_MILLIS, Result, Schedules};
use crate::commitments::CommitmentError;
use crate::upkeep::Every;

/// Schedules that are looked at in one round, and ticks that a host holds at once.
pub(super) const DUE_A_ROUND: usize = 256;

/// Ticks that are deleted in one step.
pub(super) const PURGED_A_STEP: usize = 500;

/// A tick that was begun so often and never came to an end is given up.
const MAX_ATTEMPTS: u64 = 5;

/// After the first failure nothing runs for so long; then twice as long.
const BACKOFF_MILLIS: i64 = 60_000;

/// How often it is looked whether a memory is still in use.
const GATE: Duration = Duration::from_secs(2);

/// Ticks that a host claims ahead, for each place that it has to work on them.
const AHEAD: usize = 4;

/// Without a wake schedules are looked at this often: another process may have made one.
const POLL_MILLIS: i64 = 1_000;

/// What is due and could not be claimed is asked for again no sooner.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

/// How often ticks are looked for that ended long ago.
const PURGES: Duration = Duration::from_secs(60);

/// How often ticks of a schedule are looked for that are too many.
const TRIMS: Duration = Duration::from_secs(3_600);

/// The newest entries of a memory that tell whether it is in use.
const ENTRIES_LOOKED_AT: usize = 8;

/// What the ticks of a host share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Something may be due earlier than was thought.
    pub(super) wake: Notify,
    /// Places to work on ticks at.
    places: Semaphore,
    /// Ticks that wait for a memory or a tenant, rather than for a place.
    waiting: AtomicUsize,
    /// Tenants with a limit of tokens whose scheduled dream is under way.
    dreaming: Mutex<BTreeMap<Tenant, Weak<tokio::sync::Mutex<()>>>>,
}

/// A tick that waits, until this is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Shared {
    pub(super) fn new(running: usize) -> Self {
        Self {
            wake: Notify::new(),
            places: Semaphore::new(running.max(1)),
            waiting: AtomicUsize::default(),
            dreaming: Mutex::default(),
        }
    }

    fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.waiting)
    }

    /// What whoever dreams for a tenant holds.
    fn dreamer_of(&self, tenant: &Tenant) -> Arc<tokio::sync::Mutex<()>> {
        let mut known = self.dreaming.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, held| held.strong_count() > 0);
        if let Some(held) = known.get(tenant).and_then(Weak::upgrade) {
            return held;
        }
        let fresh = Arc::default();
        known.insert(tenant.clone(), Arc::downgrade(&fresh));
        fresh
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

type MemoryResult<T> = std::result::Result<T, MemoryError>;

/// A tick to work on.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) schedule: ScheduleRecord,
    pub(super) tick: TickRecord,
    pub(super) holder: String,
}

/// What came of a tick.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Done {
    outcome: TickOutcome,
    run: Option<String>,
    error: Option<&'static str>,
}

impl Done {
    fn as_is(outcome: TickOutcome) -> Self {
        Self { outcome, run: None, error: None }
    }

    fn failed(code: &'static str) -> Self {
        Self { outcome: TickOutcome::Failed, run: None, error: Some(code) }
    }
}

/// How working on a tick ends.
enum Ending {
    Done(Done),
    /// It is given up for whoever takes it over: the last sign that it leaves.
    Later(Millis),
}

/// Whether a tick may begin.
enum Gate {
    Open,
    /// Somebody writes into the memory.
    InUse,
    /// The schedule rests.
    Paused,
}

impl Schedules {
    /// Looks after schedules until the host closes.
    pub(crate) async fn run_until(&self, mut closed: watch::Receiver<bool>) {
        let lease = Duration::from_secs(self.settings.lease_seconds.max(1));
        let poll = Duration::from_millis(POLL_MILLIS as u64);
        let mut jobs = JoinSet::new();
        let (mut looks, mut purges) = (Every::new(lease / 3), Every::new(PURGES));
        let mut trims = Every::new(TRIMS);
        // Another host may have made a schedule.
        let mut news = self.memory.news();
        loop {
            while jobs.try_join_next().is_some() {}
            let room = self.room_beside(jobs.len());
            let mut found = Vec::new();
            if room > 0 && looks.is_due() {
                match self.left_behind(room).await {
                    Ok(left) => found.extend(left),
                    Err(error) => {
                        tracing::warn!(error = %error, "ticks of dead hosts could not be looked for");
                    }
                }
            }
            if purges.is_due()
                && let Err(error) = self.purge_ticks().await
            {
                tracing::warn!(error = %error, "ticks that ended long ago could not be removed");
            }
            if trims.is_due()
                && let Err(error) = self.trim_ticks().await
            {
                tracing::warn!(error = %error, "ticks beyond those that are kept could not be removed");
            }
            let room = room - found.len();
            // One look a poll while nothing is due.
            let idle = self.until_the_next().await;
            let claimed =
                if idle.is_some() { Ok(ClaimedDue::default()) } else { self.claim_due(room).await };
            let (is_full, has_failed) = match claimed {
                Ok(due) => {
                    found.extend(due.jobs);
                    (idle.is_none() && due.looked_at >= room, due.has_failed)
                }
                Err(error) => {
                    tracing::warn!(error = %error, "schedules could not be looked after, will try again");
                    (false, true)
                }
            };
            for job in found {
                let (schedules, mut closed) = (self.clone(), closed.clone());
                jobs.spawn(async move {
                    let closing = async {
                        let _ = closed.wait_for(|closed| *closed).await;
                    };
                    let id = job.schedule.id.clone();
                    if let Err(error) = schedules.work_on(job, closing).await {
                        tracing::warn!(schedule = id, error = %error, "what came of a tick could not be recorded");
                    }
                });
            }
            // What is due and cannot be claimed is no reason to ask again at once.
            let pause = match idle {
                Some(pause) => pause,
                None if is_full || has_failed => poll,
                None => self.until_the_next().await.unwrap_or(SHORTEST_PAUSE),
            };
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => break,
                () = self.shared.wake.notified(), if !has_failed => {}
                Ok(()) = news.changed(), if !has_failed => {}
                Some(_) = jobs.join_next(), if is_full && !has_failed => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        // They give up what they hold.
        while jobs.join_next().await.is_some() {}
    }

    /// How many more ticks a host may claim that holds so many.
    fn room_beside(&self, held: usize) -> usize {
        let waiting = self.shared.waiting.load(Ordering::Relaxed);
        let ahead = self.settings.running.max(1).saturating_mul(AHEAD);
        let room = ahead.saturating_sub(held.saturating_sub(waiting));
        room.min(DUE_A_ROUND.saturating_sub(held))
    }

    /// How long nothing is due, a poll at most. `None`: something is due now, or nobody knows.
    async fn until_the_next(&self) -> Option<Duration> {
        let now = self.memory.now();
        let soon = Millis(now.0.saturating_add(POLL_MILLIS));
        // Of all that it finds, the first fires first.
        let due = self.store().due_schedules(soon, 1).await.ok()?;
        let Some(first) = due.first() else {
            return Some(Duration::from_millis(POLL_MILLIS as u64));
        };
        let fires_at = first.next.as_ref()?.fires_at;
        // One beyond that was handled by a clock that was wrong.
        let is_coming = now < fires_at && fires_at <= soon;
        let pause = Duration::from_millis(fires_at.0.saturating_sub(now.0) as u64);
        is_coming.then(|| pause.max(SHORTEST_PAUSE))
    }

    /// Ticks that dead hosts left, taken over.
    pub(super) async fn left_behind(&self, limit: usize) -> Result<Vec<Job>> {
        let lease = self.settings.lease_seconds.saturating_mul(1_000);
        let mut jobs = Vec::new();
        while jobs.len() < limit {
            let (now, holder) = (self.memory.now(), Packs::new_name());
            let dead_since = Millis(now.0.saturating_sub(lease as i64));
            let taken = self.store().take_over_tick(&holder, dead_since, now).await?;
            let Some(TakenOver { schedule, tick }) = taken else { break };
            tracing::info!(schedule = schedule.id, at = %tick.at, attempt = tick.attempts, "a tick was taken over");
            jobs.push(Job { schedule, tick, holder });
        }
        Ok(jobs)
    }

    /// Works on a tick and records what came of it, unless it is another's meanwhile, or
    /// `closing` resolves: then it is given up, for whoever comes next.
    pub(super) async fn work_on(&self, job: Job, closing: impl Future<Output = ()>) -> Result<()> {
        let Job { schedule, tick, holder } = &job;
        let (store, tenant) = (self.store(), schedule.scope.tenant());
        let ending = tokio::select! {
            biased;
            ending = self.done_with(&job) => ending,
            () = self.until_lost(&job) => return Ok(()),
            () = closing => Ending::Later(Millis(0)),
        };
        let done = match ending {
            Ending::Done(done) => done,
            Ending::Later(sign) => {
                store.beat_tick(tenant, &schedule.id, tick.at, holder, sign).await?;
                return Ok(());
            }
        };
        let now = self.memory.now();
        let (failures, not_before) = match done.outcome {
            TickOutcome::Ran | TickOutcome::Unchanged => (Some(0), None),
            TickOutcome::Failed => {
                let failures = schedule.failures.saturating_add(1);
                (Some(failures), Some(Millis(now.0.saturating_add(backoff(failures)))))
            }
            _ => (None, None),
        };
        let Done { outcome, run, error } = done;
        tracing::info!(schedule = schedule.id, at = %tick.at, outcome = outcome.as_str(), error, "a tick ended");
        let (holder, error) = (holder.clone(), error.map(str::to_owned));
        let end = TickEnd { holder, outcome, run, error, failures, not_before, now };
        store.end_tick(tenant, &schedule.id, tick.at, end).await?;
        Ok(())
    }

    /// Gives signs until the tick is not ours any more.
    async fn until_lost(&self, job: &Job) {
        let Job { schedule, tick, holder } = job;
        let (store, tenant) = (self.store(), schedule.scope.tenant());
        let lease = self.settings.lease_seconds.max(1);
        let pause = Duration::from_millis(lease.saturating_mul(1_000) / 3);
        loop {
            tokio::time::sleep(pause).await;
            match store.beat_tick(tenant, &schedule.id, tick.at, holder, self.memory.now()).await {
                Ok(true) => {}
                Ok(false) => return,
                // The next sign may still come in time.
                Err(error) => tracing::warn!(error = %error, "a sign could not be given"),
            }
        }
    }

    /// Does a tick's task once its turn comes.
    async fn done_with(&self, job: &Job) -> Ending {
        let began = self.memory.now();
        if job.tick.attempts > MAX_ATTEMPTS {
            return Ending::Done(Done::failed("abandoned"));
        }
        loop {
            match self.turn(job, began).await {
                Ok(Gate::Open) => {}
                Ok(Gate::InUse) => return Ending::Done(Done::as_is(TickOutcome::Busy)),
                Ok(Gate::Paused) => return paused(job),
                Err(error) => return self.failed(job, &error),
            }
            let alone = self.alone(job).await;
            let Ok(place) = self.shared.places.acquire().await else {
                return Ending::Done(Done::failed("internal_error"));
            };
            // That may have taken long.
            match self.gate(job).await {
                Ok(Gate::Open) => {}
                Ok(Gate::InUse | Gate::Paused) => continue,
                Err(error) => return self.failed(job, &error),
            }
            // Apart, so that a task that panics is a task that failed.
            let (schedules, mine) = (self.clone(), job.clone());
            let mut task = JoinSet::new();
            task.spawn(async move { schedules.perform(&mine).await });
            let done = task.join_next().await;
            drop((place, alone));
            match done {
                // Somebody else dreams of it: it is in use.
                Some(Ok(Err(MemoryError::DreamUnderWay { .. }))) => {
                    if self.is_too_late(began) {
                        return Ending::Done(Done::as_is(TickOutcome::Busy));
                    }
                    self.wait_at_the_gate().await;
                }
                Some(Ok(Ok(done))) => return Ending::Done(done),
                Some(Ok(Err(error))) => return self.failed(job, &error),
                _ => {
                    return self
                        .failed(job, &MemoryError::Internal("the task panicked".to_owned()));
                }
            }
        }
    }

    /// What comes of a tick whose task failed: a delay has no next instant, and is tried
    /// again.
    fn failed(&self, job: &Job, error: &MemoryError) -> Ending {
        let Job { schedule, tick, .. } = job;
        tracing::warn!(schedule = schedule.id, error = %error, "a scheduled task failed");
        let is_final = matches!(error, MemoryError::TokenBudgetExceeded { .. })
            || matches!(schedule.timing, ScheduleTiming::Cron { .. })
            || tick.attempts >= MAX_ATTEMPTS;
        if is_final {
            return Ending::Done(Done::failed(error.code()));
        }
        // A sign from which on it counts as dead once the wait is over.
        let lease = self.settings.lease_seconds.saturating_mul(1_000) as i64;
        let again = self.memory.now().0.saturating_add(backoff(tick.attempts));
        Ending::Later(Millis(again.saturating_sub(lease)))
    }

    /// While a tenant's tokens are limited its scheduled dreams come one after the
    /// other, so that each knows what those before it used.
    async fn alone(&self, job: &Job) -> Option<OwnedMutexGuard<()>> {
        let is_limited = self.settings.tokens_a_day > 0;
        if !is_limited || job.schedule.task != ScheduleTask::Dream {
            return None;
        }
        let _waiting = self.shared.wait();
        Some(self.shared.dreamer_of(job.schedule.scope.tenant()).lock_owned().await)
    }

    fn is_too_late(&self, began: Millis) -> bool {
        let wait = self.settings.wait_seconds.saturating_mul(1_000);
        self.memory.now().0.saturating_sub(began.0) >= wait as i64
    }

    async fn wait_at_the_gate(&self) {
        let _waiting = self.shared.wait();
        tokio::time::sleep(GATE).await;
    }

    /// Waits until nobody writes into a memory; if somebody still does, it is too late.
    async fn turn(&self, job: &Job, began: Millis) -> MemoryResult<Gate> {
        loop {
            match self.gate(job).await? {
                Gate::InUse if !self.is_too_late(began) => self.wait_at_the_gate().await,
                gate => return Ok(gate),
            }
        }
    }

    /// Whether a tick may begin now.
    async fn gate(&self, job: &Job) -> MemoryResult<Gate> {
        let schedule = &job.schedule;
        let scope = &schedule.scope;
        let kept = self.store().schedule(scope.tenant(), &schedule.id).await?;
        if kept.is_some_and(|kept| kept.paused) {
            return Ok(Gate::Paused);
        }
        let waits = schedule.task != ScheduleTask::Commitments;
        match waits && self.is_in_use(scope).await? {
            true => Ok(Gate::InUse),
            false => Ok(Gate::Open),
        }
    }

    /// Whether somebody wrote into a memory just now.
    async fn is_in_use(&self, scope: &Scope) -> MemoryResult<bool> {
        let idle = self.settings.idle_seconds.saturating_mul(1_000);
        if idle == 0 {
            return Ok(false);
        }
        let (store, now) = (self.store(), self.memory.now());
        let is_recent = |at: Millis| now.0.saturating_sub(at.0).unsigned_abs() < idle;
        let session = store.recent_sessions(scope, 1).await?;
        if session.first().is_some_and(|session| is_recent(session.updated_at)) {
            return Ok(true);
        }
        let filter = EntryFilter::default();
        let entries = store.entries(scope, &filter, now, ENTRIES_LOOKED_AT).await?;
        Ok(entries.iter().any(|entry| !entry.derived && is_recent(entry.created_at)))
    }

    /// A tick's task.
    async fn perform(&self, job: &Job) -> MemoryResult<Done> {
        let scope = &job.schedule.scope;
        match job.schedule.task {
            ScheduleTask::Dream => self.perform_dream(job).await,
            ScheduleTask::Consolidate => {
                let done = self.memory.consolidate(scope, ConsolidationTrigger::Scheduled).await?;
                let outcome = match done.position {
                    Some(_) => TickOutcome::Ran,
                    None => TickOutcome::Unchanged,
                };
                Ok(Done::as_is(outcome))
            }
            ScheduleTask::Commitments => match self.fire_commitments(scope).await? {
                0 => Ok(Done::as_is(TickOutcome::Unchanged)),
                _ => Ok(Done::as_is(TickOutcome::Ran)),
            },
        }
    }

    async fn fire_commitments(&self, scope: &Scope) -> MemoryResult<u64> {
        match self.commitments.fire_of(scope).await {
            Ok(fired) => Ok(fired),
            Err(CommitmentError::Memory(error)) => Err(error),
            Err(error) => Err(MemoryError::Internal(error.to_string())),
        }
    }

    async fn perform_dream(&self, job: &Job) -> MemoryResult<Done> {
        let Job { schedule, tick, .. } = job;
        let (scope, run) = (&schedule.scope, run_of(&schedule.id, tick.at));
        // Whoever had it before may have died right after.
        if tick.attempts > 1 && self.memory.dream_record(scope.tenant(), &run).await?.is_some() {
            return Ok(Done { run: Some(run), ..Done::as_is(TickOutcome::Ran) });
        }
        let wanted = schedule.budget.unwrap_or(self.memory.dream_settings().max_token_budget);
        let Some(budget) = self.left_today(scope, wanted).await? else {
            return Ok(Done::as_is(TickOutcome::OverBudget));
        };
        let request = DreamRequest {
            trigger: DreamTrigger::Scheduled,
            run: Some(run),
            principal: "schedule".to_owned(),
            ..DreamRequest::manual(Some(budget))
        };
        match self.memory.dream(scope, request, |_| {}).await {
            Ok(dream) if dream.unchanged => Ok(Done::as_is(TickOutcome::Unchanged)),
            Ok(dream) => Ok(Done { run: Some(dream.record.run), ..Done::as_is(TickOutcome::Ran) }),
            Err(MemoryError::NothingToDream { .. }) => Ok(Done::as_is(TickOutcome::Unchanged)),
            // It would have been enough on another day.
            Err(MemoryError::TokenBudgetExceeded { minimum, .. })
                if budget < wanted && minimum <= wanted =>
            {
                Ok(Done::as_is(TickOutcome::OverBudget))
            }
            Err(error) => Err(error),
        }
    }

    /// What a dream may use of the tokens that the tenant has left today; none, if there
    /// are none.
    async fn left_today(&self, scope: &Scope, wanted: u64) -> MemoryResult<Option<u64>> {
        let most = self.settings.tokens_a_day;
        if most == 0 {
            return Ok(Some(wanted));
        }
        let now = self.memory.now();
        let midnight = Millis(now.0 - now.0.rem_euclid(DAY_MILLIS));
        let used = self.store().dreamt_tokens(scope.tenant(), midnight).await?;
        let left = most.saturating_sub(used);
        Ok((left > 0).then_some(wanted.min(left)))
    }
}

/// The run of a tick, the same whoever works on it.
fn run_of(schedule: &str, at: Millis) -> String {
    format!("{schedule}-{}", at.0)
}

/// How long nothing runs after so many failures.
fn backoff(failures: u64) -> i64 {
    let doubled = failures.saturating_sub(1).min(16) as u32;
    (BACKOFF_MILLIS << doubled).min(MAX_BACKOFF_MILLIS)
}

/// What comes of a tick that was paused before its turn: a delay comes when it goes on.
fn paused(job: &Job) -> Ending {
    match job.schedule.timing {
        ScheduleTiming::Cron { .. } => Ending::Done(Done::as_is(TickOutcome::Paused)),
        ScheduleTiming::Once(_) => Ending::Later(Millis(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commitments::Commitments;
    use crate::schedules::{ScheduleRequest, TimingRequest};
    use crate::settings::{CommitmentSettings, ScheduleSettings};
    use icecore::knowledge::NewEntryRequest;
    use icecore::{Memory, Principal};

    fn over(memory: &Memory) -> Schedules {
        let settings =
            ScheduleSettings { wait_seconds: 0, running: 2, ..ScheduleSettings::default() };
        let commitments = Commitments::new(memory.clone(), CommitmentSettings::default());
        Schedules::new(memory.clone(), settings, commitments)
    }

    #[tokio::test]
    async fn who_waited_for_a_place_looks_again_whether_it_may_begin() {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::open(dir.path()).await.unwrap();
        let schedules = over(&memory);
        let me = Principal::local_operator(Tenant::new("me").unwrap());
        let scope = memory.scope(&me, "m").await.unwrap();
        let places = schedules.shared.places.acquire_many(2).await.unwrap();
        let request = ScheduleRequest {
            task: ScheduleTask::Consolidate,
            timing: TimingRequest::DelayMillis(1),
            ..ScheduleRequest::cron("")
        };
        let made = schedules.add(&scope, request).await.unwrap();
        let at = Millis(made.next.unwrap().at.0 + 1);
        let writing = async {
            while schedules.ticks(me.tenant(), &made.id, 1).await.unwrap().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            let content = "The ferry leaves at nine.".to_owned();
            let request = NewEntryRequest { content, ..NewEntryRequest::default() };
            memory.put_entry(&scope, request).await.unwrap();
            drop(places);
        };
        let (fired, ()) = tokio::join!(schedules.fire(me.tenant(), &made.id, at), writing);
        assert_eq!(fired.unwrap(), 1);
        let tick = schedules.ticks(me.tenant(), &made.id, 1).await.unwrap().remove(0);
        assert_eq!(tick.outcome, Some(TickOutcome::Busy));
    }

    #[tokio::test]
    async fn a_host_claims_little_more_than_it_has_places_for() {
        let dir = tempfile::tempdir().unwrap();
        let schedules = over(&Memory::open(dir.path()).await.unwrap());
        let room = |held| schedules.room_beside(held);
        assert_eq!([0, 3, 8, 9].map(room), [8, 5, 0, 0]);
        // Who waits at a gate is in nobody's way, up to a bound.
        let waiting: Vec<_> = (0..300).map(|_| schedules.shared.wait()).collect();
        assert_eq!([8, 200, 250, 256, 300].map(room), [8, 8, 6, 0, 0]);
        drop(waiting);
        assert_eq!(room(8), 0);
    }

    #[test]
    fn the_wait_after_failures_doubles_up_to_an_hour() {
        let minutes: Vec<i64> = (1..=8).map(|n| backoff(n) / 60_000).collect();
        assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff(u64::MAX), MAX_BACKOFF_MILLIS);
    }
}
