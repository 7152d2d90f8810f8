//! Working on a tick: waiting for its turn, giving signs, recording what came of it.

use std::time::Duration;

use icecore_domain::ids::Scope;
use icecore_domain::time::Millis;
use icecore_store::{
    DreamTrigger, EntryFilter, MAX_BACKOFF_MILLIS, Packs, ScheduleRecord, ScheduleTask, TakenOver,
    TickEnd, TickOutcome, TickRecord,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::DAY_MILLIS;
use crate::consolidation::ConsolidationTrigger;
use crate::dreams::DreamRequest;
use crate::error::{MemoryError, Result};
use crate::memory::Memory;

/// Schedules that are looked at in one round.
pub(super) const DUE_A_ROUND: usize = 256;

/// Ticks that are deleted in one step.
pub(super) const PURGED_A_STEP: usize = 500;

/// A tick that was begun so often and never came to an end is given up.
const MAX_ATTEMPTS: u64 = 5;

/// After the first failure nothing runs for so long; then twice as long.
const BACKOFF_MILLIS: i64 = 60_000;

/// How often it is looked whether a memory is still in use.
const GATE: Duration = Duration::from_millis(500);

/// Without a wake schedules are looked at this often: another process may have made one.
const POLL_MILLIS: i64 = 1_000;

/// How often ticks are looked for that ended long ago.
const PURGES: Duration = Duration::from_secs(60);

/// The newest entries of a memory that tell whether it is in use.
const ENTRIES_LOOKED_AT: usize = 8;

/// A tick to work on.
#[derive(Debug, Clone)]
pub(crate) struct Job {
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

/// What came of waiting for a turn.
enum Turn {
    Now,
    TooLate,
}

impl Memory {
    /// Looks after schedules until the host closes.
    pub(crate) async fn keep_schedules_until(&self, mut closed: watch::Receiver<bool>) {
        let lease = Duration::from_secs(self.schedule_settings().lease_seconds.max(1));
        let mut jobs = JoinSet::new();
        let (mut looked, mut purged) = (None, None);
        loop {
            while jobs.try_join_next().is_some() {}
            let mut found = Vec::new();
            if is_time(&mut looked, lease / 3) {
                match self.left_behind().await {
                    Ok(left) => found.extend(left),
                    Err(error) => {
                        tracing::warn!(error = %error, "ticks of dead hosts could not be looked for");
                    }
                }
            }
            if is_time(&mut purged, PURGES)
                && let Err(error) = self.purge_ticks().await
            {
                tracing::warn!(error = %error, "ticks that ended long ago could not be removed");
            }
            match self.claim_due().await {
                Ok(due) => found.extend(due),
                Err(error) => {
                    tracing::warn!(error = %error, "schedules could not be looked after, will try again");
                }
            }
            for job in found {
                let (memory, mut closed) = (self.clone(), closed.clone());
                jobs.spawn(async move {
                    let closing = async {
                        let _ = closed.wait_for(|closed| *closed).await;
                    };
                    let id = job.schedule.id.clone();
                    if let Err(error) = memory.work_on(job, closing).await {
                        tracing::warn!(schedule = id, error = %error, "what came of a tick could not be recorded");
                    }
                });
            }
            let pause = self.until_the_next().await;
            tokio::select! {
                _ = closed.wait_for(|closed| *closed) => break,
                () = self.inner.schedule_wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        // They give up what they hold.
        while jobs.join_next().await.is_some() {}
    }

    /// How long nothing is due, as far as one can know.
    async fn until_the_next(&self) -> Duration {
        let now = self.now();
        let soon = Millis(now.0.saturating_add(POLL_MILLIS));
        let millis = match self.inner.store.due_schedules(soon, 1).await {
            Ok(due) => {
                let next = due.first().and_then(|one| one.next);
                next.map_or(POLL_MILLIS, |next| next.fires_at.0.saturating_sub(now.0))
            }
            Err(_) => POLL_MILLIS,
        };
        Duration::from_millis(millis.clamp(20, POLL_MILLIS) as u64)
    }

    /// Ticks that dead hosts left, taken over.
    pub(super) async fn left_behind(&self) -> Result<Vec<Job>> {
        let lease = self.schedule_settings().lease_seconds.saturating_mul(1_000);
        let mut jobs = Vec::new();
        while jobs.len() < DUE_A_ROUND {
            let (now, holder) = (self.now(), Packs::new_name());
            let dead_since = Millis(now.0.saturating_sub(lease as i64));
            let taken = self.inner.store.take_over_tick(&holder, dead_since, now).await?;
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
        let (store, tenant) = (&self.inner.store, schedule.scope.tenant());
        let done = tokio::select! {
            done = self.done_with(&job) => done,
            () = self.until_lost(&job) => return Ok(()),
            () = closing => {
                store.beat_tick(tenant, &schedule.id, tick.at, holder, Millis(0)).await?;
                return Ok(());
            }
        };
        let now = self.now();
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
        let (store, tenant) = (&self.inner.store, schedule.scope.tenant());
        let lease = self.schedule_settings().lease_seconds.max(1);
        let pause = Duration::from_millis(lease.saturating_mul(1_000) / 3);
        loop {
            tokio::time::sleep(pause).await;
            match store.beat_tick(tenant, &schedule.id, tick.at, holder, self.now()).await {
                Ok(true) => {}
                Ok(false) => return,
                // The next sign may still come in time.
                Err(error) => tracing::warn!(error = %error, "a sign could not be given"),
            }
        }
    }

    /// Does a tick's task once its turn comes.
    async fn done_with(&self, job: &Job) -> Done {
        if job.tick.attempts > MAX_ATTEMPTS {
            return Done::failed("abandoned");
        }
        loop {
            let turn = match job.schedule.task {
                ScheduleTask::Commitments => Ok(Turn::Now),
                _ => self.turn(&job.schedule.scope, job.tick.started_at).await,
            };
            match turn {
                Ok(Turn::Now) => {}
                Ok(Turn::TooLate) => return Done::as_is(TickOutcome::Busy),
                Err(error) => return Done::failed(code(&error)),
            }
            let Ok(place) = self.inner.schedule_places.acquire().await else {
                return Done::failed("internal_error");
            };
            // Apart, so that a task that panics is a task that failed.
            let (memory, mine) = (self.clone(), job.clone());
            let mut task = JoinSet::new();
            task.spawn(async move { memory.perform(&mine).await });
            let done = task.join_next().await;
            drop(place);
            match done {
                // Somebody else dreams of it: it is in use.
                Some(Ok(Err(MemoryError::DreamUnderWay { .. }))) => {
                    if self.is_too_late(job.tick.started_at) {
                        return Done::as_is(TickOutcome::Busy);
                    }
                    tokio::time::sleep(GATE).await;
                }
                Some(Ok(Ok(done))) => return done,
                Some(Ok(Err(error))) => {
                    tracing::warn!(schedule = job.schedule.id, error = %error, "a scheduled task failed");
                    return Done::failed(code(&error));
                }
                _ => return Done::failed("internal_error"),
            }
        }
    }

    fn is_too_late(&self, started_at: Millis) -> bool {
        let wait = self.schedule_settings().wait_seconds.saturating_mul(1_000);
        self.now().0.saturating_sub(started_at.0) >= wait as i64
    }

    /// Waits until nobody writes into a memory.
    async fn turn(&self, scope: &Scope, started_at: Millis) -> Result<Turn> {
        loop {
            if !self.is_in_use(scope).await? {
                return Ok(Turn::Now);
            }
            if self.is_too_late(started_at) {
                return Ok(Turn::TooLate);
            }
            tokio::time::sleep(GATE).await;
        }
    }

    /// Whether somebody wrote into a memory just now.
    async fn is_in_use(&self, scope: &Scope) -> Result<bool> {
        let idle = self.schedule_settings().idle_seconds.saturating_mul(1_000);
        if idle == 0 {
            return Ok(false);
        }
        let (store, now) = (&self.inner.store, self.now());
        let is_recent = |at: Millis| (now.0.saturating_sub(at.0)).unsigned_abs() < idle;
        let session = store.recent_sessions(scope, 1).await?;
        if session.first().is_some_and(|session| is_recent(session.updated_at)) {
            return Ok(true);
        }
        let filter = EntryFilter::default();
        let entries = store.entries(scope, &filter, now, ENTRIES_LOOKED_AT).await?;
        Ok(entries.iter().any(|entry| !entry.derived && is_recent(entry.created_at)))
    }

    /// A tick's task.
    async fn perform(&self, job: &Job) -> Result<Done> {
        let scope = &job.schedule.scope;
        match job.schedule.task {
            ScheduleTask::Dream => self.perform_dream(job).await,
            ScheduleTask::Consolidate => {
                let done = self.consolidate(scope, ConsolidationTrigger::Scheduled).await?;
                let outcome = match done.position {
                    Some(_) => TickOutcome::Ran,
                    None => TickOutcome::Unchanged,
                };
                Ok(Done::as_is(outcome))
            }
            ScheduleTask::Commitments => match self.fire_commitments().await? {
                0 => Ok(Done::as_is(TickOutcome::Unchanged)),
                _ => Ok(Done::as_is(TickOutcome::Ran)),
            },
        }
    }

    async fn perform_dream(&self, job: &Job) -> Result<Done> {
        let Job { schedule, tick, .. } = job;
        let (scope, run) = (&schedule.scope, run_of(&schedule.id, tick.at));
        // Whoever had it before may have died right after.
        if tick.attempts > 1 && self.dream_record(scope.tenant(), &run).await?.is_some() {
            return Ok(Done { run: Some(run), ..Done::as_is(TickOutcome::Ran) });
        }
        let wanted = schedule.budget.unwrap_or(self.inner.settings.dreams.max_token_budget);
        let Some(budget) = self.left_today(scope, wanted).await? else {
            return Ok(Done::as_is(TickOutcome::OverBudget));
        };
        let request = DreamRequest {
            trigger: DreamTrigger::Scheduled,
            run: Some(run),
            principal: "schedule".to_owned(),
            ..DreamRequest::manual(Some(budget))
        };
        match self.dream(scope, request, |_| {}).await {
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
    async fn left_today(&self, scope: &Scope, wanted: u64) -> Result<Option<u64>> {
        let most = self.schedule_settings().tokens_a_day;
        if most == 0 {
            return Ok(Some(wanted));
        }
        let now = self.now();
        let midnight = Millis(now.0 - now.0.rem_euclid(DAY_MILLIS));
        let used = self.inner.store.dreamt_tokens(scope.tenant(), midnight).await?;
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

/// The code under which a failure is recorded.
fn code(error: &MemoryError) -> &'static str {
    match error {
        MemoryError::TokenBudgetExceeded { .. } => "token_budget_exceeded",
        MemoryError::CompactionRedactionFailed { .. } => "compaction_redaction_failed",
        MemoryError::EntriesChanged => "entries_changed",
        _ => "internal_error",
    }
}

fn is_time(last: &mut Option<std::time::Instant>, pause: Duration) -> bool {
    let is_time = last.is_none_or(|at| at.elapsed() >= pause);
    if is_time {
        *last = Some(std::time::Instant::now());
    }
    is_time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_after_failures_doubles_up_to_an_hour() {
        let minutes: Vec<i64> = (1..=8).map(|n| backoff(n) / 60_000).collect();
        assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff(u64::MAX), MAX_BACKOFF_MILLIS);
    }
}
