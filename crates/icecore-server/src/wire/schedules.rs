//! Schedules and their ticks.

use icecore::Millis;
use icecore_host::schedules::{ScheduleRecord, ScheduleTiming, TickOutcome, TickRecord};
use serde::Serialize;
use utoipa::ToSchema;

/// Schedules, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Schedules {
    schedules: Vec<ScheduleRow>,
}

impl Schedules {
    /// These, each with its last tick.
    pub fn of(found: &[(ScheduleRecord, Option<TickRecord>)]) -> Self {
        let row = |(schedule, tick): &(ScheduleRecord, Option<TickRecord>)| {
            ScheduleRow::of(schedule, tick.as_ref())
        };
        Self { schedules: found.iter().map(row).collect() }
    }
}

/// A schedule.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Schedule)]
pub struct ScheduleRow {
    /// Given by the host, unique in the tenant.
    id: String,
    memory_ref: String,
    /// `dream`, `consolidate` or `commitments`.
    task: &'static str,
    /// The cron line.
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    /// The time zone of the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
    /// The one moment of a delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    once_at: Option<String>,
    /// Tokens that a dream may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<u64>,
    /// What is done about missed instants: `once` or `skip`.
    catch_up: &'static str,
    /// An instant fires up to so much later.
    jitter_ms: u64,
    /// `active`, `paused`, or `done` when nothing comes any more.
    state: &'static str,
    /// When it fires next, with its jitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    next_fire_at: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    /// Failures since it last worked.
    failures: u64,
    /// Nothing runs before this, after failures.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    not_before: Option<String>,
    /// Instants that were missed and have no tick of their own.
    missed: u64,
    /// The last instant that was handled.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_tick: Option<TickRow>,
}

impl ScheduleRow {
    /// A schedule with its last tick.
    pub fn of(schedule: &ScheduleRecord, last: Option<&TickRecord>) -> Self {
        let (cron, timezone, once_at) = match &schedule.timing {
            ScheduleTiming::Cron { line, timezone } => {
                (Some(line.clone()), Some(timezone.clone()), None)
            }
            ScheduleTiming::Once(at) => (None, None, Some(at.to_rfc3339())),
        };
        let next = schedule.next.filter(|_| !schedule.paused);
        Self {
            id: schedule.id.clone(),
            memory_ref: schedule.scope.memory().to_owned(),
            task: schedule.task.as_str(),
            cron,
            timezone,
            once_at,
            budget: schedule.budget,
            catch_up: schedule.catch_up.as_str(),
            jitter_ms: schedule.jitter_millis,
            state: state_of(schedule),
            next_fire_at: next.map(|next| next.fires_at.to_rfc3339()),
            created_at: schedule.created_at.to_rfc3339(),
            failures: schedule.failures,
            not_before: schedule.not_before.map(Millis::to_rfc3339),
            missed: schedule.missed,
            last_tick: last.map(TickRow::from),
        }
    }
}

/// The word for how a schedule stands.
pub fn state_of(schedule: &ScheduleRecord) -> &'static str {
    match (schedule.next, schedule.paused) {
        (None, _) => "done",
        (_, true) => "paused",
        (_, false) => "active",
    }
}

/// A schedule with what comes and what was.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleDetail {
    #[serde(flatten)]
    schedule: ScheduleRow,
    /// The next instants, without jitter.
    #[schema(value_type = Vec<String>)]
    next: Vec<String>,
    /// The last ticks, newest first.
    ticks: Vec<TickRow>,
}

impl ScheduleDetail {
    /// A schedule with its next instants and its last ticks.
    pub fn of(schedule: &ScheduleRecord, next: &[Millis], ticks: &[TickRecord]) -> Self {
        Self {
            schedule: ScheduleRow::of(schedule, ticks.first()),
            next: next.iter().map(|at| at.to_rfc3339()).collect(),
            ticks: ticks.iter().map(TickRow::from).collect(),
        }
    }
}

/// An instant of a schedule, and what came of it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Tick)]
pub struct TickRow {
    /// The instant, without jitter.
    #[schema(format = DateTime)]
    at: String,
    /// `running`, `ran`, `unchanged`, `overlapped`, `missed`, `failed`, `busy`,
    /// `over-budget`, `backed-off` or `paused`.
    outcome: &'static str,
    /// The run that it made.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    /// The code of what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// How often it was begun.
    attempts: u64,
    #[schema(format = DateTime)]
    started_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    ended_at: Option<String>,
}

impl From<&TickRecord> for TickRow {
    fn from(tick: &TickRecord) -> Self {
        Self {
            at: tick.at.to_rfc3339(),
            outcome: tick.outcome.map_or("running", TickOutcome::as_str),
            run_id: tick.run.clone(),
            error: tick.error.clone(),
            attempts: tick.attempts,
            started_at: tick.started_at.to_rfc3339(),
            ended_at: tick.ended_at.map(Millis::to_rfc3339),
        }
    }
}

/// That a schedule is gone.
#[derive(Debug, Serialize, ToSchema)]
pub struct ScheduleRemoved {
    /// Its id.
    pub id: String,
    /// That it is.
    pub removed: bool,
}
