//! Schedules, and a tick for each of their instants.

use icecore_domain::ids::Scope;
use icecore_domain::schedule::{CatchUp, REWIND_MILLIS};
use icecore_domain::time::Millis;

use crate::store::Claim;

/// What a schedule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScheduleTask {
    /// A dream of its memory.
    #[default]
    Dream,
    /// A consolidation of its memory.
    Consolidate,
    /// The commitments that are due.
    Commitments,
}

impl ScheduleTask {
    /// All of them.
    pub const ALL: [ScheduleTask; 3] =
        [ScheduleTask::Dream, ScheduleTask::Consolidate, ScheduleTask::Commitments];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            ScheduleTask::Dream => "dream",
            ScheduleTask::Consolidate => "consolidate",
            ScheduleTask::Commitments => "commitments",
        }
    }

    /// By its word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }
}

/// When a schedule is due, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleTiming {
    /// A cron line in a time zone.
    Cron {
        /// The line.
        line: String,
        /// The zone's name.
        timezone: String,
    },
    /// At one moment.
    Once(Millis),
}

/// An instant to come, and when it fires, with its jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextTick {
    /// The instant.
    pub at: Millis,
    /// When it fires.
    pub fires_at: Millis,
}

/// A schedule to keep.
#[derive(Debug, Clone)]
pub struct NewSchedule {
    /// Its id, which nothing else in the tenant has.
    pub id: String,
    /// What it does.
    pub task: ScheduleTask,
    /// When.
    pub timing: ScheduleTiming,
    /// Tokens that a dream may use.
    pub budget: Option<u64>,
    /// What is done about missed instants.
    pub catch_up: CatchUp,
    /// An instant fires up to so much later.
    pub jitter_millis: u64,
    /// What comes first.
    pub next: NextTick,
    /// Now.
    pub now: Millis,
    /// So many may a tenant have.
    pub most: u64,
    /// The caller's idempotency key.
    pub claim: Option<Claim<ScheduleRecord>>,
}

/// A schedule as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleRecord {
    /// Its id.
    pub id: String,
    /// Of which memory.
    pub scope: Scope,
    /// What it does.
    pub task: ScheduleTask,
    /// When.
    pub timing: ScheduleTiming,
    /// Tokens that a dream may use.
    pub budget: Option<u64>,
    /// What is done about missed instants.
    pub catch_up: CatchUp,
    /// An instant fires up to so much later.
    pub jitter_millis: u64,
    /// When it was made.
    pub created_at: Millis,
    /// Whether it rests.
    pub paused: bool,
    /// Every instant up to here was handled.
    pub handled_through: Millis,
    /// What comes next; nothing, if nothing does.
    pub next: Option<NextTick>,
    /// Failures since it last worked.
    pub failures: u64,
    /// Nothing runs before this.
    pub not_before: Option<Millis>,
    /// Instants that it missed and that have no tick.
    pub missed: u64,
}

/// What came of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TickOutcome {
    /// It ran.
    Ran,
    /// It ran, and there was nothing to do.
    Unchanged,
    /// The one before still ran.
    Overlapped,
    /// Nobody was there at its time.
    Missed,
    /// It ran, and did not work.
    Failed,
    /// The memory was in use until it was too late.
    Busy,
    /// The tenant's tokens of the day were used.
    OverBudget,
    /// It came too soon after a failure.
    BackedOff,
    /// The schedule was paused before its turn came.
    Paused,
}

impl TickOutcome {
    /// All of them.
    pub const ALL: [TickOutcome; 9] = [
        TickOutcome::Ran,
        TickOutcome::Unchanged,
        TickOutcome::Overlapped,
        TickOutcome::Missed,
        TickOutcome::Failed,
        TickOutcome::Busy,
        TickOutcome::OverBudget,
        TickOutcome::BackedOff,
        TickOutcome::Paused,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            TickOutcome::Ran => "ran",
            TickOutcome::Unchanged => "unchanged",
            TickOutcome::Overlapped => "overlapped",
            TickOutcome::Missed => "missed",
            TickOutcome::Failed => "failed",
            TickOutcome::Busy => "busy",
            TickOutcome::OverBudget => "over-budget",
            TickOutcome::BackedOff => "backed-off",
            TickOutcome::Paused => "paused",
        }
    }

    /// By its word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }
}

/// An instant of a schedule, handled or being handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TickRecord {
    /// The schedule's id.
    pub schedule: String,
    /// The instant.
    pub at: Millis,
    /// What came of it; nothing while it runs.
    pub outcome: Option<TickOutcome>,
    /// The run that it made.
    pub run: Option<String>,
    /// The code of what went wrong.
    pub error: Option<String>,
    /// Who runs it, or ran it last.
    pub holder: Option<String>,
    /// When it last gave a sign, while it runs.
    pub heartbeat: Option<Millis>,
    /// How often it was begun.
    pub attempts: u64,
    /// When it was first begun, or recorded.
    pub started_at: Millis,
    /// When it ended.
    pub ended_at: Option<Millis>,
    /// Instants before it that were missed and have no tick.
    pub missed: u64,
}

/// What one host handles of a schedule in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TickClaim {
    /// Up to where it was handled when this was planned.
    pub seen_through: Millis,
    /// Instants to record as missed.
    pub missed: Vec<Millis>,
    /// Missed ones that are only counted.
    pub counted: u64,
    /// The instant to run.
    pub run: Option<Millis>,
    /// Every instant up to here is handled then.
    pub handled_through: Millis,
    /// What comes next.
    pub next: Option<NextTick>,
    /// Who is to run it.
    pub holder: String,
    /// Now.
    pub now: Millis,
}

/// What came of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// It was not as it was planned for, and nothing was done: somebody was faster, or
    /// it was paused or removed.
    Stale,
    /// All is recorded, and this tick is the caller's to run.
    Run(TickRecord),
    /// All is recorded, and there is nothing to run.
    Recorded,
}

/// The end of a tick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TickEnd {
    /// Who ran it.
    pub holder: String,
    /// What came of it.
    pub outcome: TickOutcome,
    /// The run that it made.
    pub run: Option<String>,
    /// The code of what went wrong.
    pub error: Option<String>,
    /// Failures of the schedule since it last worked, with this one; nothing leaves
    /// them as they are.
    pub failures: Option<u64>,
    /// Nothing runs before this.
    pub not_before: Option<Millis>,
    /// Now.
    pub now: Millis,
}

/// A tick whose holder is dead, taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOver {
    /// Its schedule.
    pub schedule: ScheduleRecord,
    /// The tick.
    pub tick: TickRecord,
}

/// Nothing waits longer than this after a failure. What says otherwise was written by a
/// clock that was wrong.
pub const MAX_BACKOFF_MILLIS: i64 = 3_600_000;

/// What is recorded of the instant that is to run; nothing, if it is to run.
pub(crate) fn kept_from_running(
    schedule: &ScheduleRecord,
    is_running: bool,
    now: Millis,
) -> Option<TickOutcome> {
    let waits = |until: Millis| until > now && until.0 - now.0 <= MAX_BACKOFF_MILLIS;
    match is_running {
        true => Some(TickOutcome::Overlapped),
        false if schedule.not_before.is_some_and(waits) => Some(TickOutcome::BackedOff),
        false => None,
    }
}

/// Whether who gave a sign last at `heartbeat` is dead.
pub(crate) fn is_dead(heartbeat: Millis, dead_since: Millis, now: Millis) -> bool {
    heartbeat <= dead_since || heartbeat.0.saturating_sub(now.0) > REWIND_MILLIS
}

impl TickRecord {
    /// A tick that is recorded and not run.
    pub(crate) fn recorded(schedule: &str, at: Millis, outcome: TickOutcome, now: Millis) -> Self {
        Self {
            schedule: schedule.to_owned(),
            at,
            outcome: Some(outcome),
            run: None,
            error: None,
            holder: None,
            heartbeat: None,
            attempts: 0,
            started_at: now,
            ended_at: Some(now),
            missed: 0,
        }
    }

    /// A tick that runs.
    pub(crate) fn running(schedule: &str, at: Millis, holder: &str, now: Millis) -> Self {
        Self {
            outcome: None,
            holder: Some(holder.to_owned()),
            heartbeat: Some(now),
            attempts: 1,
            ended_at: None,
            ..Self::recorded(schedule, at, TickOutcome::Ran, now)
        }
    }
}

impl NewSchedule {
    /// The schedule as it is kept.
    pub(crate) fn record(&self, scope: &Scope) -> ScheduleRecord {
        ScheduleRecord {
            id: self.id.clone(),
            scope: scope.clone(),
            task: self.task,
            timing: self.timing.clone(),
            budget: self.budget,
            catch_up: self.catch_up,
            jitter_millis: self.jitter_millis,
            created_at: self.now,
            paused: false,
            handled_through: self.now,
            next: Some(self.next),
            failures: 0,
            not_before: None,
            missed: 0,
        }
    }
}
