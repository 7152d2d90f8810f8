//! Schedules, and a tick for each of their instants.

use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::schedule::{CatchUp, REWIND_MILLIS};
use icecore_domain::time::Millis;

use serde_json::{Value as Json, json};

use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{OptionalExtension, Owned as Value, Row, params, params_from_iter};
use crate::error::{Result, StoreError};
use crate::outcomes::{self, Claim, Effect};
use crate::store::Store;
use crate::{engine, scopes};

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
    pub claim: Option<Claim>,
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

impl Effect for ScheduleRecord {
    fn ids(&self) -> Json {
        let next = self.next.unwrap_or(NextTick { at: self.created_at, fires_at: self.created_at });
        let cron = match &self.timing {
            ScheduleTiming::Cron { line, timezone } => Some([line, timezone]),
            ScheduleTiming::Once(_) => None,
        };
        json!({
            "id": self.id,
            "created": self.created_at.0,
            "at": next.at.0,
            "fires": next.fires_at.0,
            "cron": cron,
        })
    }
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

pub(crate) fn put(tx: &Tx<'_>, scope: &Scope, schedule: NewSchedule) -> Result<ScheduleRecord> {
    let (now, most) = (schedule.now, schedule.most);
    let failed = StoreError::from;
    let tenant = scopes::tenant_no(tx, scope.tenant())?;
    if let Some(tenant) = tenant {
        outcomes::refuse_taken(tx, tenant, schedule.claim.as_ref(), now)?;
    }
    let there: i64 = tx
        .prepare_cached("SELECT count(*) FROM schedules WHERE tenant = ?1 AND fires_at IS NOT NULL")
        .and_then(|mut q| q.query_row([tenant], |row| row.get(0)))
        .map_err(failed)?;
    if there as u64 >= most {
        return Err(StoreError::TooManySchedules { most });
    }
    let no = scopes::ensure_scope(tx, scope)?;
    let record = schedule.record(scope);
    insert(tx, no, &record).map_err(failed)?;
    // Of those that are over, the last are kept, and those at work.
    tx.prepare_cached(
        "DELETE FROM schedules WHERE tenant = ?1 AND fires_at IS NULL AND id NOT IN
           (SELECT id FROM schedules WHERE tenant = ?1 AND fires_at IS NULL
            ORDER BY handled_through DESC, id DESC LIMIT ?2)
         AND NOT EXISTS (SELECT 1 FROM ticks i WHERE i.tenant = schedules.tenant
                           AND i.schedule = schedules.id AND i.outcome IS NULL)",
    )
    .and_then(|mut q| q.execute(params![no.tenant, engine::number(most)]))
    .map_err(failed)?;
    outcomes::put_claimed(tx, no.tenant, schedule.claim.as_ref(), &record, now)?;
    Ok(record)
}

fn insert(tx: &Tx<'_>, no: ScopeNo, record: &ScheduleRecord) -> Result<()> {
    let (cron, timezone, once_at) = match &record.timing {
        ScheduleTiming::Cron { line, timezone } => (Some(line), timezone.as_str(), None),
        ScheduleTiming::Once(at) => (None, "UTC", Some(at.0)),
    };
    tx.prepare_cached(
        "INSERT INTO schedules (tenant, scope, id, task, cron, timezone, once_at, budget,
                                catch_up, jitter, created_at, handled_through, next_at, fires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?
    .execute(params![
        no.tenant,
        no.scope,
        record.id,
        record.task.as_str(),
        cron,
        timezone,
        once_at,
        record.budget.map(engine::number),
        record.catch_up.as_str(),
        engine::number(record.jitter_millis),
        record.created_at.0,
        record.handled_through.0,
        record.next.map(|next| next.at.0),
        record.next.map(|next| next.fires_at.0),
    ])?;
    Ok(())
}

// Reading

const COLUMNS: &str = "k.tenant, k.scope, k.id, k.task, k.cron, k.timezone, k.once_at, k.budget,
    k.catch_up, k.jitter, k.created_at, k.paused, k.handled_through, k.next_at, k.fires_at,
    k.failures, k.not_before, k.missed";

/// Schedules as `k`, by what comes after the table's name. One that is damaged is passed
/// over, and keeps no other from being read.
fn find(
    tx: &Tx<'_>,
    which: &str,
    values: impl IntoIterator<Item = Value>,
) -> Result<Vec<ScheduleRecord>> {
    let mut query = tx.prepare_cached(&format!("SELECT {COLUMNS} FROM schedules k {which}"))?;
    let mut rows = query.query(params_from_iter(values))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        match read(tx, &row) {
            Some(record) => found.push(record),
            None => tracing::warn!("a damaged schedule is passed over"),
        }
    }
    Ok(found)
}

fn read(tx: &Tx<'_>, row: &Row<'_>) -> Option<ScheduleRecord> {
    let text = |column| row.get::<_, String>(column).ok();
    let time = |column| row.get::<_, Option<i64>>(column).ok().map(|at| at.map(Millis));
    let number = |column| row.get::<_, i64>(column).ok().map(|number| number.max(0) as u64);
    let timing = match (row.get::<_, Option<String>>(4).ok()?, time(6)?) {
        (Some(line), None) => ScheduleTiming::Cron { line, timezone: text(5)? },
        (None, Some(at)) => ScheduleTiming::Once(at),
        _ => return None,
    };
    let next = match (time(13)?, time(14)?) {
        (Some(at), Some(fires_at)) => Some(NextTick { at, fires_at }),
        _ => None,
    };
    Some(ScheduleRecord {
        scope: scopes::scope_of(tx, row.get(0).ok()?, row.get(1).ok()?).ok()?,
        id: text(2)?,
        task: ScheduleTask::named(&text(3)?)?,
        timing,
        budget: row.get::<_, Option<i64>>(7).ok()?.map(|budget| budget.max(0) as u64),
        catch_up: CatchUp::named(&text(8)?)?,
        jitter_millis: number(9)?,
        created_at: time(10)??,
        paused: number(11)? != 0,
        handled_through: time(12)??,
        next,
        failures: number(15)?,
        not_before: time(16)?,
        missed: number(17)?,
    })
}

pub(crate) fn get(tx: &Tx<'_>, tenant: &Tenant, id: &str) -> Result<Option<ScheduleRecord>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(None) };
    let key = [Value::from(no), Value::from(id.to_owned())];
    Ok(find(tx, "WHERE k.tenant = ?1 AND k.id = ?2", key)?.pop())
}

pub(crate) fn list(
    tx: &Tx<'_>,
    tenant: &Tenant,
    memory: Option<String>,
) -> Result<Vec<ScheduleRecord>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(Vec::new()) };
    let which = "WHERE k.tenant = ?1 AND (?2 IS NULL OR k.scope =
           (SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2))
         ORDER BY k.created_at, k.id";
    find(tx, which, [Value::from(no), Value::from(memory)])
}

pub(crate) fn due(tx: &Tx<'_>, now: Millis, limit: usize) -> Result<Vec<ScheduleRecord>> {
    let which = "WHERE k.paused = 0 AND k.fires_at IS NOT NULL
           AND (k.fires_at <= ?1 OR k.handled_through > ?2)
         ORDER BY row_number() OVER (PARTITION BY k.tenant ORDER BY k.fires_at, k.id),
           k.fires_at, k.tenant LIMIT ?3";
    let ahead = now.0.saturating_add(REWIND_MILLIS);
    find(tx, which, [now.0, ahead, engine::number(limit as u64)].map(Value::from))
}

const TICK: &str = "schedule, at, outcome, run, error, holder, heartbeat, attempts, started_at,
    ended_at, missed";

fn read_tick(row: &Row<'_>) -> Result<TickRecord> {
    let time = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(Millis));
    let outcome: Option<String> = row.get(2)?;
    Ok(TickRecord {
        schedule: row.get(0)?,
        at: Millis(row.get(1)?),
        // A word that nobody knows is of a later version, and is no tick that runs.
        outcome: outcome.map(|word| TickOutcome::named(&word).unwrap_or(TickOutcome::Failed)),
        run: row.get(3)?,
        error: row.get(4)?,
        holder: row.get(5)?,
        heartbeat: time(6)?,
        attempts: row.get::<_, i64>(7)?.max(0) as u64,
        started_at: Millis(row.get(8)?),
        ended_at: time(9)?,
        missed: row.get::<_, i64>(10)?.max(0) as u64,
    })
}

pub(crate) fn ticks(
    tx: &Tx<'_>,
    tenant: &Tenant,
    id: &str,
    limit: usize,
) -> Result<Vec<TickRecord>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(Vec::new()) };
    tx.prepare_cached(&format!(
        "SELECT {TICK} FROM ticks WHERE tenant = ?1 AND schedule = ?2 ORDER BY at DESC LIMIT ?3"
    ))
    .and_then(|mut q| {
        q.query_map(params![no, id, engine::number(limit as u64)], read_tick)?.collect()
    })
}

// Changing

pub(crate) fn remove(tx: &Tx<'_>, tenant: &Tenant, id: &str) -> Result<bool> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(false) };
    tx.prepare_cached("DELETE FROM schedules WHERE tenant = ?1 AND id = ?2")
        .and_then(|mut q| q.execute(params![no, id]))
        .map(|count| count > 0)
}

pub(crate) fn pause(tx: &Tx<'_>, tenant: &Tenant, id: &str) -> Result<Option<ScheduleRecord>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(None) };
    tx.prepare_cached("UPDATE schedules SET paused = 1 WHERE tenant = ?1 AND id = ?2")
        .and_then(|mut q| q.execute(params![no, id]))?;
    get(tx, tenant, id)
}

pub(crate) fn resume(
    tx: &Tx<'_>,
    tenant: &Tenant,
    id: &str,
    handled_through: Millis,
    next: Option<NextTick>,
) -> Result<Option<ScheduleRecord>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(None) };
    tx.prepare_cached(
        "UPDATE schedules SET paused = 0, failures = 0, not_before = NULL, handled_through = ?3,
           next_at = ?4, fires_at = ?5
         WHERE tenant = ?1 AND id = ?2 AND paused = 1",
    )
    .and_then(|mut q| {
        let fires_at = next.map(|next| next.fires_at.0);
        q.execute(params![no, id, handled_through.0, next.map(|next| next.at.0), fires_at])
    })?;
    get(tx, tenant, id)
}

pub(crate) fn claim(tx: &Tx<'_>, tenant: &Tenant, id: &str, claim: &TickClaim) -> Result<Claimed> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(Claimed::Stale) };
    let Some(record) = get(tx, tenant, id)? else { return Ok(Claimed::Stale) };
    if record.paused || record.next.is_none() || record.handled_through != claim.seen_through {
        return Ok(Claimed::Stale);
    }
    let failed = StoreError::from;
    let is_running = tx
        .prepare_cached(
            "SELECT 1 FROM ticks WHERE tenant = ?1 AND schedule = ?2 AND outcome IS NULL",
        )
        .and_then(|mut q| q.exists(params![no, id]))
        .map_err(failed)?;
    for at in &claim.missed {
        let tick = TickRecord::recorded(id, *at, TickOutcome::Missed, claim.now);
        insert_tick(tx, no, &tick).map_err(failed)?;
    }
    let mut claimed = Claimed::Recorded;
    if let Some(at) = claim.run {
        let tick = match kept_from_running(&record, is_running, claim.now) {
            Some(outcome) => TickRecord::recorded(id, at, outcome, claim.now),
            None => TickRecord::running(id, at, &claim.holder, claim.now),
        };
        let tick = TickRecord { missed: claim.counted, ..tick };
        if insert_tick(tx, no, &tick).map_err(failed)? && tick.outcome.is_none() {
            claimed = Claimed::Run(tick);
        }
    }
    tx.prepare_cached(
        "UPDATE schedules SET handled_through = ?3, next_at = ?4, fires_at = ?5,
           missed = missed + ?6 WHERE tenant = ?1 AND id = ?2",
    )
    .and_then(|mut q| {
        let next = claim.next;
        q.execute(params![
            no,
            id,
            claim.handled_through.0,
            next.map(|next| next.at.0),
            next.map(|next| next.fires_at.0),
            engine::number(claim.counted),
        ])
    })
    .map_err(failed)?;
    Ok(claimed)
}

/// Whether there was none of that instant.
fn insert_tick(tx: &Tx<'_>, tenant: i64, tick: &TickRecord) -> Result<bool> {
    let count = tx
        .prepare_cached(
            "INSERT INTO ticks (tenant, schedule, at, outcome, holder, heartbeat, attempts,
                                started_at, ended_at, missed)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            tenant,
            tick.schedule,
            tick.at.0,
            tick.outcome.map(TickOutcome::as_str),
            tick.holder,
            tick.heartbeat.map(|at| at.0),
            engine::number(tick.attempts),
            tick.started_at.0,
            tick.ended_at.map(|at| at.0),
            engine::number(tick.missed),
        ])?;
    Ok(count > 0)
}

pub(crate) fn beat(
    tx: &Tx<'_>,
    tenant: &Tenant,
    id: &str,
    at: Millis,
    holder: &str,
    now: Millis,
) -> Result<bool> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(false) };
    tx.prepare_cached(
        "UPDATE ticks SET heartbeat = ?5
         WHERE tenant = ?1 AND schedule = ?2 AND at = ?3 AND holder = ?4 AND outcome IS NULL",
    )
    .and_then(|mut q| q.execute(params![no, id, at.0, holder, now.0]))
    .map(|count| count > 0)
}

pub(crate) fn end(
    tx: &Tx<'_>,
    tenant: &Tenant,
    id: &str,
    at: Millis,
    end: &TickEnd,
) -> Result<bool> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(false) };
    let count = tx
        .prepare_cached(
            "UPDATE ticks SET outcome = ?5, run = ?6, error = ?7, ended_at = ?8, heartbeat = NULL
             WHERE tenant = ?1 AND schedule = ?2 AND at = ?3 AND holder = ?4 AND outcome IS NULL",
        )
        .and_then(|mut q| {
            let TickEnd { holder, outcome, run, error, now, .. } = end;
            q.execute(params![no, id, at.0, holder, outcome.as_str(), run, error, now.0])
        })?;
    if count == 0 {
        return Ok(false);
    }
    if let Some(failures) = end.failures {
        tx.prepare_cached(
            "UPDATE schedules SET failures = ?3, not_before = ?4 WHERE tenant = ?1 AND id = ?2",
        )
        .and_then(|mut q| {
            q.execute(params![no, id, engine::number(failures), end.not_before.map(|at| at.0)])
        })?;
    }
    Ok(true)
}

pub(crate) fn take_over(
    tx: &Tx<'_>,
    holder: &str,
    dead_since: Millis,
    now: Millis,
) -> Result<Option<TakenOver>> {
    let failed = StoreError::from;
    let ahead = now.0.saturating_add(REWIND_MILLIS);
    let found: Option<(i64, String, i64)> = tx
        .prepare_cached(
            "SELECT tenant, schedule, at FROM ticks INDEXED BY ticks_running
             WHERE outcome IS NULL AND (heartbeat <= ?1 OR heartbeat > ?2)
               AND NOT EXISTS (SELECT 1 FROM schedules k WHERE k.tenant = ticks.tenant
                                 AND k.id = ticks.schedule AND k.paused = 1)
             ORDER BY heartbeat, schedule LIMIT 1",
        )
        .and_then(|mut q| {
            q.query_row([dead_since.0, ahead], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .optional()
        })
        .map_err(failed)?;
    let Some((tenant, id, at)) = found else { return Ok(None) };
    let tick = tx
        .prepare_cached(&format!(
            "UPDATE ticks SET holder = ?4, heartbeat = ?5, attempts = attempts + 1
             WHERE tenant = ?1 AND schedule = ?2 AND at = ?3 RETURNING {TICK}"
        ))
        .and_then(|mut q| q.query_row(params![tenant, id, at, holder, now.0], read_tick))
        .map_err(failed)?;
    let key = [Value::from(tenant), Value::from(id)];
    let schedule = find(tx, "WHERE k.tenant = ?1 AND k.id = ?2", key)?.pop();
    Ok(schedule.map(|schedule| TakenOver { schedule, tick }))
}

pub(crate) fn purge(tx: &Tx<'_>, ended_by: Millis, limit: usize) -> Result<u64> {
    let ticks = tx
        .prepare_cached(
            "DELETE FROM ticks WHERE (tenant, schedule, at) IN
               (SELECT tenant, schedule, at FROM ticks INDEXED BY ticks_ended
                WHERE ended_at <= ?1 ORDER BY ended_at LIMIT ?2)",
        )
        .and_then(|mut q| q.execute(params![ended_by.0, engine::number(limit as u64)]))?;
    let schedules = tx
        .prepare_cached(
            "DELETE FROM schedules WHERE fires_at IS NULL AND handled_through <= ?1 AND NOT EXISTS
               (SELECT 1 FROM ticks i WHERE i.tenant = schedules.tenant
                  AND i.schedule = schedules.id)",
        )
        .and_then(|mut q| q.execute([ended_by.0]))?;
    Ok((ticks + schedules) as u64)
}

pub(crate) fn trim(tx: &Tx<'_>, most: u64, limit: usize) -> Result<u64> {
    tx.prepare_cached(
        "DELETE FROM ticks WHERE (tenant, schedule, at) IN
           (SELECT i.tenant, i.schedule, i.at FROM schedules k CROSS JOIN ticks i
              ON i.tenant = k.tenant AND i.schedule = k.id AND i.at <=
                (SELECT n.at FROM ticks n WHERE n.tenant = k.tenant AND n.schedule = k.id
                 ORDER BY n.at DESC LIMIT 1 OFFSET ?1)
            WHERE i.ended_at IS NOT NULL ORDER BY k.tenant, k.id, i.at LIMIT ?2)",
    )
    .and_then(|mut q| q.execute([engine::number(most), engine::number(limit as u64)]))
    .map(|count| count as u64)
}

impl Store {
    /// Keeps a schedule. One more than a tenant may have of those that are still to
    /// come is [`StoreError::TooManySchedules`]; of those that are over as many are kept,
    /// the last. Its claim is kept in the same step, and one that is taken is
    /// [`StoreError::ClaimTaken`].
    pub async fn put_schedule(
        &self,
        scope: &Scope,
        schedule: NewSchedule,
    ) -> Result<ScheduleRecord> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "put_schedule", move |tx| {
            put(tx, &scope, schedule.clone())
        })
        .await
    }

    /// A schedule of a tenant by id.
    pub async fn schedule(&self, tenant: &Tenant, id: &str) -> Result<Option<ScheduleRecord>> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.read(Isolation::from(&tenant), "schedule", move |tx| get(tx, &tenant, &id)).await
    }

    /// Schedules of a tenant, or of one memory of it, oldest first.
    pub async fn schedules(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
    ) -> Result<Vec<ScheduleRecord>> {
        let (tenant, memory) = (tenant.clone(), memory.map(str::to_owned));
        self.read(Isolation::from(&tenant), "schedules", move |tx| {
            list(tx, &tenant, memory.clone())
        })
        .await
    }

    /// Removes a schedule and its ticks; false if there is none.
    pub async fn remove_schedule(&self, tenant: &Tenant, id: &str) -> Result<bool> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.write(Isolation::from(&tenant), "remove_schedule", move |tx| remove(tx, &tenant, &id))
            .await
    }

    /// Lets a schedule rest: it is not due until it goes on. A tick that runs runs on.
    pub async fn pause_schedule(
        &self,
        tenant: &Tenant,
        id: &str,
    ) -> Result<Option<ScheduleRecord>> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.write(Isolation::from(&tenant), "pause_schedule", move |tx| pause(tx, &tenant, &id))
            .await
    }

    /// Lets a schedule go on, as if every instant up to a moment was handled. One that
    /// does not rest stays as it is. Its failures are forgotten.
    pub async fn resume_schedule(
        &self,
        tenant: &Tenant,
        id: &str,
        handled_through: Millis,
        next: Option<NextTick>,
    ) -> Result<Option<ScheduleRecord>> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.write(Isolation::from(&tenant), "resume_schedule", move |tx| {
            resume(tx, &tenant, &id, handled_through, next)
        })
        .await
    }

    /// Schedules, of any tenant, that do not rest and fire `now` or before, or were
    /// handled by a clock that was wrong: the first of each tenant, then their second.
    pub async fn due_schedules(&self, now: Millis, limit: usize) -> Result<Vec<ScheduleRecord>> {
        self.read(Isolation::Global, "due_schedules", move |tx| due(tx, now, limit)).await
    }

    /// Records in one step what is missed and what is to run, and what comes next, if
    /// the schedule is as it was seen. An instant that has a tick already keeps it.
    /// While another tick of the schedule runs it is [`TickOutcome::Overlapped`], and
    /// too soon after a failure [`TickOutcome::BackedOff`].
    pub async fn claim_ticks(
        &self,
        tenant: &Tenant,
        id: &str,
        claim: TickClaim,
    ) -> Result<Claimed> {
        let (tenant, args) = (tenant.clone(), (id.to_owned(), claim));
        let of = Isolation::from(&tenant);
        self.write_with(of, "claim_ticks", args, move |tx, (id, claim)| {
            self::claim(tx, &tenant, id, claim)
        })
        .await
    }

    /// Gives a sign for a tick that runs; false if it is not the holder's any more. A
    /// sign at moment 0 gives it up, so that whoever comes next takes it over.
    pub async fn beat_tick(
        &self,
        tenant: &Tenant,
        id: &str,
        at: Millis,
        holder: &str,
        now: Millis,
    ) -> Result<bool> {
        let (tenant, id, holder) = (tenant.clone(), id.to_owned(), holder.to_owned());
        self.write(Isolation::from(&tenant), "beat_tick", move |tx| {
            beat(tx, &tenant, &id, at, &holder, now)
        })
        .await
    }

    /// Ends a tick that runs; false if it is not the holder's any more.
    pub async fn end_tick(
        &self,
        tenant: &Tenant,
        id: &str,
        at: Millis,
        end: TickEnd,
    ) -> Result<bool> {
        let (tenant, args) = (tenant.clone(), (id.to_owned(), at, end));
        let of = Isolation::from(&tenant);
        self.write_with(of, "end_tick", args, move |tx, (id, at, end)| {
            self::end(tx, &tenant, id, *at, end)
        })
        .await
    }

    /// Takes over a tick, of any tenant, whose holder gave no sign since a moment, the
    /// longest dead first. Those of a schedule that rests wait until it goes on.
    pub async fn take_over_tick(
        &self,
        holder: &str,
        dead_since: Millis,
        now: Millis,
    ) -> Result<Option<TakenOver>> {
        let holder = holder.to_owned();
        self.write(Isolation::Global, "take_over_tick", move |tx| {
            take_over(tx, &holder, dead_since, now)
        })
        .await
    }

    /// Ticks of a schedule, newest first.
    pub async fn ticks(&self, tenant: &Tenant, id: &str, limit: usize) -> Result<Vec<TickRecord>> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.read(Isolation::from(&tenant), "ticks", move |tx| ticks(tx, &tenant, &id, limit)).await
    }

    /// Deletes ticks, of any tenant, that ended at or before a moment, and schedules
    /// that are over and have none left; answers how many.
    pub async fn purge_ticks(&self, ended_by: Millis, limit: usize) -> Result<u64> {
        self.write(Isolation::Global, "purge_ticks", move |tx| purge(tx, ended_by, limit)).await
    }

    /// Deletes ticks that ended, of any schedule that has more than `most`: its oldest,
    /// so many in all at most; answers how many.
    pub async fn trim_ticks(&self, most: u64, limit: usize) -> Result<u64> {
        self.write(Isolation::Global, "trim_ticks", move |tx| trim(tx, most, limit)).await
    }
}

#[cfg(test)]
mod tests {

    use crate::contract::fixtures::*;
    use crate::contract::schedules::new_schedule;

    use crate::engine::tx::Isolation;
    use crate::store::Store;

    async fn change(store: &Store, sql: &'static str) {
        store.write(Isolation::Global, "test", move |tx| tx.execute_batch(sql)).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_wrong_with_schedules_is_found_and_passed_over() {
        let check = async |sql: &'static str, finding: &str, left: usize| {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(dir.path(), None).unwrap();
            for id in ["a", "b"] {
                store.put_schedule(&scope(), new_schedule(id)).await.unwrap();
            }
            change(
                &store,
                "INSERT INTO ticks (tenant, schedule, at, outcome, started_at, ended_at)
                 VALUES (1, 'a', 1, 'ran', 1, 2)",
            )
            .await;
            clean(&store).await;
            change(&store, sql).await;
            let findings = store.check().await.unwrap();
            assert!(findings.iter().any(|found| found.starts_with(finding)), "{findings:?}");
            let listed = store.schedules(&tenant("acme"), None).await.unwrap();
            assert_eq!(listed.len(), left, "{sql}");
        };
        let times = "a schedule has no time, or two: schedule a";
        check("UPDATE schedules SET once_at = 1 WHERE id = 'a'", times, 1).await;
        check("UPDATE schedules SET cron = NULL WHERE id = 'a'", times, 1).await;
        check("UPDATE schedules SET next_at = NULL WHERE id = 'a'", times, 2).await;
        let ends = "a tick's end does not fit its outcome: tick of schedule a";
        check("UPDATE ticks SET outcome = NULL", ends, 2).await;
        check("UPDATE ticks SET ended_at = NULL", ends, 2).await;
    }
}
