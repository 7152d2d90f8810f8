//! Schedules: dreams, consolidations and commitments that come by themselves, each
//! instant of them once, however many hosts there are.
//!
//! A host claims what is due in one step of the store, gives signs while it works, and
//! records what came of it. Whoever finds a tick without signs takes it over.

mod runner;

use std::sync::Arc;

use icecore::ingest::Claim;
use icecore::{Memory, MemoryError, Millis, Scope, Tenant, extend};
pub use icecore_domain::schedule::{CatchUp, Field as CronField, ScheduleError};
use icecore_domain::schedule::{CronLine, Plan, Standing, Timing, Upcoming, Zone, plan, upcoming};
use icecore_store::{Claimed, NewSchedule, Packs, Store, TickClaim};
pub use icecore_store::{
    NextTick, ScheduleRecord, ScheduleTask, ScheduleTiming, TickOutcome, TickRecord,
};

use crate::commitments::Commitments;
use crate::error::wraps_memory;
use crate::settings::ScheduleSettings;

use runner::{Job, PURGED_A_STEP, Shared};

type Result<T> = std::result::Result<T, SchedulingError>;

/// The most that an instant may be put off.
pub const MAX_JITTER_MILLIS: u64 = 24 * 3_600_000;

const DAY_MILLIS: i64 = 24 * 3_600_000;

/// A schedule to make.
#[derive(Debug, Clone)]
pub struct ScheduleRequest {
    /// What it does.
    pub task: ScheduleTask,
    /// When.
    pub timing: TimingRequest,
    /// Tokens that a dream may use.
    pub budget: Option<u64>,
    /// What is done about missed instants.
    pub catch_up: CatchUp,
    /// An instant fires up to so much later.
    pub jitter_millis: u64,
    /// The caller's idempotency key.
    pub claim: Option<Claim>,
}

impl ScheduleRequest {
    /// Dreams by a cron line in UTC.
    pub fn cron(line: &str) -> Self {
        Self {
            task: ScheduleTask::Dream,
            timing: TimingRequest::Cron { line: line.to_owned(), timezone: None },
            budget: None,
            catch_up: CatchUp::Once,
            jitter_millis: 0,
            claim: None,
        }
    }
}

/// When a schedule is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimingRequest {
    /// By a cron line.
    Cron {
        /// The line.
        line: String,
        /// The IANA name of its time zone; UTC without.
        timezone: Option<String>,
    },
    /// Once, so many milliseconds from now.
    DelayMillis(u64),
}

/// A schedule that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchedulingError {
    /// A line or a time zone that is none.
    #[error(transparent)]
    Timing(#[from] ScheduleError),
    /// Too far ahead.
    #[error(
        "the schedule would first be due at {at}, and that may be no further ahead than {horizon} (`schedules.horizon_days`)"
    )]
    Horizon {
        /// When it would be due.
        at: String,
        /// How far ahead it may be, as an ISO 8601 duration.
        horizon: String,
    },
    /// No delay at all.
    #[error("`delayMs` is at least 1")]
    NoDelay,
    /// No tokens at all.
    #[error("`budget` is at least 1 token; leave it out for the most that is allowed")]
    NoBudget,
    /// A budget for what uses none.
    #[error("`budget` is for dreams, and this schedule's task is `{task}`")]
    BudgetForNone {
        /// The task.
        task: &'static str,
    },
    /// Too much jitter.
    #[error("`jitterMs` is at most {MAX_JITTER_MILLIS}")]
    Jitter,
    /// The memory failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

wraps_memory!(SchedulingError);

/// The instants of a schedule as it is kept.
fn timing_of(kept: &ScheduleTiming) -> std::result::Result<Timing, ScheduleError> {
    Ok(match kept {
        ScheduleTiming::Cron { line, timezone } => {
            Timing::Cron(CronLine::parse(line, Zone::named(timezone)?)?)
        }
        ScheduleTiming::Once(at) => Timing::Once(*at),
    })
}

fn next_of(next: Upcoming) -> NextTick {
    NextTick { at: next.at, fires_at: next.fires_at }
}

/// The schedules of all tenants. Clones share everything.
#[derive(Clone)]
pub struct Schedules {
    memory: Memory,
    settings: Arc<ScheduleSettings>,
    commitments: Commitments,
    shared: Arc<Shared>,
}

impl Schedules {
    pub(crate) fn new(
        memory: Memory,
        settings: ScheduleSettings,
        commitments: Commitments,
    ) -> Self {
        let shared = Arc::new(Shared::new(settings.running));
        Self { memory, settings: Arc::new(settings), commitments, shared }
    }

    fn store(&self) -> &Store {
        extend::store(&self.memory)
    }

    /// Limits of schedules.
    pub fn settings(&self) -> &ScheduleSettings {
        &self.settings
    }

    /// Makes a schedule; once this resolves it survives a crash.
    pub async fn add(&self, scope: &Scope, request: ScheduleRequest) -> Result<ScheduleRecord> {
        let (now, settings) = (self.memory.now(), &self.settings);
        let timing = checked(&request, now)?;
        let id = format!("s-{}", &Packs::new_name()[..20]);
        let first = upcoming(&timing, &id, request.jitter_millis, now);
        let horizon = now.0.saturating_add(i64::from(settings.horizon_days) * DAY_MILLIS);
        let Some(first) = first.filter(|first| first.at.0 <= horizon) else {
            let at = first.map_or_else(|| "no time".to_owned(), |first| first.at.to_rfc3339());
            return Err(SchedulingError::Horizon { at, horizon: settings.horizon() });
        };
        let timing = match &timing {
            Timing::Cron(line) => ScheduleTiming::Cron {
                line: line.text().to_owned(),
                timezone: line.zone().name().to_owned(),
            },
            Timing::Once(at) => ScheduleTiming::Once(*at),
        };
        let schedule = NewSchedule {
            id,
            task: request.task,
            timing,
            budget: request.budget,
            catch_up: request.catch_up,
            jitter_millis: request.jitter_millis,
            next: next_of(first),
            now,
            most: settings.per_tenant,
            claim: request.claim,
        };
        let made = self.store().put_schedule(scope, schedule).await?;
        self.shared.wake.notify_one();
        Ok(made)
    }

    /// A schedule of a tenant by id.
    pub async fn get(&self, tenant: &Tenant, id: &str) -> Result<Option<ScheduleRecord>> {
        Ok(self.store().schedule(tenant, id).await?)
    }

    /// Schedules of a tenant, or of one memory of it, oldest first.
    pub async fn list(&self, tenant: &Tenant, memory: Option<&str>) -> Result<Vec<ScheduleRecord>> {
        Ok(self.store().schedules(tenant, memory).await?)
    }

    /// Removes a schedule and all that is known of it; false if there is none. A tick
    /// that runs stops.
    pub async fn remove(&self, tenant: &Tenant, id: &str) -> Result<bool> {
        Ok(self.store().remove_schedule(tenant, id).await?)
    }

    /// Lets a schedule rest. Instants that come meanwhile are not ticks.
    pub async fn pause(&self, tenant: &Tenant, id: &str) -> Result<Option<ScheduleRecord>> {
        Ok(self.store().pause_schedule(tenant, id).await?)
    }

    /// Lets a schedule go on with the first instant from now. A delay whose moment came
    /// meanwhile fires at once.
    pub async fn resume(&self, tenant: &Tenant, id: &str) -> Result<Option<ScheduleRecord>> {
        let Some(found) = self.store().schedule(tenant, id).await? else { return Ok(None) };
        let (through, next) = match timing_of(&found.timing) {
            Ok(timing @ Timing::Cron(_)) => {
                let now = self.memory.now();
                (now, upcoming(&timing, id, found.jitter_millis, now).map(next_of))
            }
            _ => (found.handled_through, found.next),
        };
        let on = self.store().resume_schedule(tenant, id, through, next).await?;
        self.shared.wake.notify_one();
        Ok(on)
    }

    /// The next instants of a schedule, so many at most; none while it rests.
    pub async fn next_ticks(
        &self,
        tenant: &Tenant,
        id: &str,
        count: usize,
    ) -> Result<Option<Vec<Millis>>> {
        let Some(found) = self.store().schedule(tenant, id).await? else { return Ok(None) };
        let Some(next) = found.next.filter(|_| !found.paused) else { return Ok(Some(Vec::new())) };
        let timing = timing_of(&found.timing).map_err(SchedulingError::from)?;
        Ok(Some(timing.next(Millis(next.at.0 - 1), count)))
    }

    /// Ticks of a schedule, newest first.
    pub async fn ticks(&self, tenant: &Tenant, id: &str, limit: usize) -> Result<Vec<TickRecord>> {
        Ok(self.store().ticks(tenant, id, limit).await?)
    }

    /// Does what is due of all schedules, of every tenant, one after the other. Answers
    /// how many ticks it worked on.
    pub async fn fire_due(&self) -> Result<u64> {
        let mut count = 0;
        for job in self.left_behind(runner::DUE_A_ROUND).await? {
            self.work_on(job, std::future::pending()).await?;
            count += 1;
        }
        let now = self.memory.now();
        // One claim at a time: what is claimed gives signs only while it is worked on.
        for schedule in self.store().due_schedules(now, runner::DUE_A_ROUND).await? {
            if let Ok(Some(job)) = self.claim_or_tell(schedule, now).await {
                self.work_on(job, std::future::pending()).await?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Does what is due of one schedule, as if it were `now`. Answers how many ticks it
    /// worked on.
    pub async fn fire(&self, tenant: &Tenant, id: &str, now: Millis) -> Result<u64> {
        let Some(found) = self.store().schedule(tenant, id).await? else { return Ok(0) };
        let Some(job) = self.claim_one(found, now).await? else { return Ok(0) };
        self.work_on(job, std::future::pending()).await?;
        Ok(1)
    }

    /// Claims what is due now, so many at most. One schedule that fails keeps no other
    /// from its turn.
    async fn claim_due(&self, limit: usize) -> Result<ClaimedDue> {
        let now = self.memory.now();
        let mut claimed = ClaimedDue::default();
        for schedule in self.store().due_schedules(now, limit).await? {
            match self.claim_or_tell(schedule, now).await {
                Ok(job) => claimed.jobs.extend(job),
                Err(_) => claimed.has_failed = true,
            }
            claimed.looked_at += 1;
        }
        Ok(claimed)
    }

    /// As [`Schedules::claim_one`], and an error is logged.
    async fn claim_or_tell(&self, schedule: ScheduleRecord, now: Millis) -> Result<Option<Job>> {
        let id = schedule.id.clone();
        self.claim_one(schedule, now).await.inspect_err(|error| {
            tracing::warn!(schedule = id, error = %error, "a schedule could not be looked after, will try again");
        })
    }

    /// Records what is due of a schedule, and answers what is to be worked on.
    async fn claim_one(&self, schedule: ScheduleRecord, now: Millis) -> Result<Option<Job>> {
        let tenant = schedule.scope.tenant().clone();
        let timing = match timing_of(&schedule.timing) {
            Ok(timing) => timing,
            Err(error) => {
                // It was good once: the time zones of another version may know it.
                tracing::warn!(schedule = schedule.id, error = %error, "a schedule cannot be read any more and is paused");
                self.store().pause_schedule(&tenant, &schedule.id).await?;
                return Ok(None);
            }
        };
        let standing = Standing {
            id: &schedule.id,
            handled_through: schedule.handled_through,
            catch_up: schedule.catch_up,
            jitter_millis: schedule.jitter_millis,
            late_millis: self.settings.late_seconds.saturating_mul(1_000),
        };
        let due = plan(&timing, &standing, now).or_else(|| corrected(&timing, &schedule, now));
        let Some(due) = due else { return Ok(None) };
        let holder = Packs::new_name();
        let claim = TickClaim {
            seen_through: schedule.handled_through,
            missed: due.missed,
            counted: due.counted,
            run: due.run,
            handled_through: due.handled_through,
            next: due.next.map(next_of),
            holder: holder.clone(),
            // Signs are of the clock, whatever the moment that was asked for.
            now: self.memory.now(),
        };
        match self.store().claim_ticks(&tenant, &schedule.id, claim).await? {
            Claimed::Run(tick) => Ok(Some(Job { schedule, tick, holder })),
            Claimed::Stale | Claimed::Recorded => Ok(None),
        }
    }

    /// Deletes ticks that ended longer ago than they are kept.
    async fn purge_ticks(&self) -> Result<()> {
        let kept = i64::from(self.settings.retention_days) * DAY_MILLIS;
        let ended_by = Millis(self.memory.now().0.saturating_sub(kept));
        let store = self.store();
        while store.purge_ticks(ended_by, PURGED_A_STEP).await? >= PURGED_A_STEP as u64 {}
        Ok(())
    }

    /// Deletes the oldest ticks of schedules that have more than are kept.
    async fn trim_ticks(&self) -> Result<()> {
        let (store, most) = (self.store(), self.settings.ticks_kept);
        while store.trim_ticks(most, PURGED_A_STEP).await? >= PURGED_A_STEP as u64 {}
        Ok(())
    }
}

/// What one round claimed.
#[derive(Debug, Default)]
struct ClaimedDue {
    jobs: Vec<Job>,
    /// Schedules that were due, whatever came of them.
    looked_at: usize,
    has_failed: bool,
}

/// What to note of a schedule that was thought to be due and is not: other time zones
/// than those of now said when.
fn corrected(timing: &Timing, schedule: &ScheduleRecord, now: Millis) -> Option<Plan> {
    let next = upcoming(timing, &schedule.id, schedule.jitter_millis, schedule.handled_through);
    let is_wrong = schedule.next.is_some_and(|kept| kept.fires_at <= now)
        && schedule.next != next.map(next_of);
    is_wrong.then(|| Plan {
        missed: Vec::new(),
        counted: 0,
        run: None,
        handled_through: schedule.handled_through,
        next,
    })
}

/// The instants that are asked for, once all else of the request is in order.
fn checked(request: &ScheduleRequest, now: Millis) -> Result<Timing> {
    if request.budget == Some(0) {
        return Err(SchedulingError::NoBudget);
    }
    if request.budget.is_some() && request.task != ScheduleTask::Dream {
        return Err(SchedulingError::BudgetForNone { task: request.task.as_str() });
    }
    if request.jitter_millis > MAX_JITTER_MILLIS {
        return Err(SchedulingError::Jitter);
    }
    match &request.timing {
        TimingRequest::Cron { line, timezone } => {
            let zone = timezone.as_deref().map_or_else(|| Ok(Zone::utc()), Zone::named)?;
            Ok(Timing::Cron(CronLine::parse(line, zone)?))
        }
        TimingRequest::DelayMillis(0) => Err(SchedulingError::NoDelay),
        TimingRequest::DelayMillis(delay) => {
            let delay = i64::try_from(*delay).unwrap_or(i64::MAX);
            Ok(Timing::Once(Millis(now.0.saturating_add(delay))))
        }
    }
}
