//! Ticks: one for each instant of a schedule that was handled or is running.

use icecore_domain::ids::Tenant;
use icecore_domain::schedule::REWIND_MILLIS;
use icecore_domain::time::Millis;

use super::{NextTick, ScheduleRecord, get, next_columns};
use crate::engine::tx::{Isolation, Tx};
use crate::engine::{Row, params};
use crate::error::Result;
use crate::store::Store;
use crate::words::words;

/// No schedule waits longer than this after a failure. A later `not_before` was written
/// under a wrong clock.
pub const MAX_BACKOFF_MILLIS: i64 = 3_600_000;

words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TickOutcome {
        Ran = "ran",
        /// It ran, and there was nothing to do.
        Unchanged = "unchanged",
        /// The previous tick still ran.
        Overlapped = "overlapped",
        /// No host ran at its time.
        Missed = "missed",
        Failed = "failed",
        /// The memory was in use until it was too late.
        Busy = "busy",
        /// The tenant had used its tokens of the day.
        OverBudget = "over-budget",
        /// It came too soon after a failure.
        BackedOff = "backed-off",
        /// The schedule was paused before the tick began.
        Paused = "paused",
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TickRecord {
    pub schedule: String,
    /// The instant, without jitter.
    pub at: Millis,
    /// `None` while it runs.
    pub outcome: Option<TickOutcome>,
    pub run: Option<String>,
    pub error: Option<String>,
    /// The host that runs it, or ran it last.
    pub holder: Option<String>,
    /// The last heartbeat, while it runs.
    pub heartbeat: Option<Millis>,
    pub attempts: u64,
    /// When it was first begun, or recorded.
    pub started_at: Millis,
    pub ended_at: Option<Millis>,
    /// How many instants before it were missed and have no tick.
    pub missed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TickClaim {
    /// The schedule's `handled_through` when this was planned.
    pub seen_through: Millis,
    pub missed: Vec<Millis>,
    /// How many more were missed, to be counted only.
    pub counted: u64,
    pub run: Option<Millis>,
    /// The schedule's `handled_through` afterwards.
    pub handled_through: Millis,
    pub next: Option<NextTick>,
    pub holder: String,
    pub now: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// Nothing was done: another host was faster, or the schedule was paused or removed.
    Stale,
    /// All is recorded, and the caller runs this tick.
    Run(TickRecord),
    /// All is recorded, and there is nothing to run.
    Recorded,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TickEnd {
    pub holder: String,
    pub outcome: TickOutcome,
    pub run: Option<String>,
    pub error: Option<String>,
    /// The schedule's failures since the last success, with this one; `None`: as before.
    pub failures: Option<u64>,
    /// Nothing runs before this.
    pub not_before: Option<Millis>,
    pub now: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOver {
    pub schedule: ScheduleRecord,
    pub tick: TickRecord,
}

impl Store {
    /// Records which instants were missed, which one runs and which comes next, if the
    /// schedule is as it was seen. An instant that has a tick keeps it. The tick to run is
    /// [`TickOutcome::Overlapped`] while another runs, and [`TickOutcome::BackedOff`] too soon
    /// after a failure.
    pub async fn claim_ticks(&self, of: &Tenant, id: &str, claim: TickClaim) -> Result<Claimed> {
        let args = (id.to_owned(), claim);
        self.write_with(of, "claim_ticks", args, |tx, (id, claim)| self::claim(tx, id, claim)).await
    }

    /// Renews the heartbeat of a running tick; false if the holder lost it. Moment 0 gives it up.
    pub async fn beat_tick(
        &self,
        tenant: &Tenant,
        id: &str,
        at: Millis,
        holder: &str,
        now: Millis,
    ) -> Result<bool> {
        let (id, holder) = (id.to_owned(), holder.to_owned());
        self.write(tenant, "beat_tick", move |tx| {
            let beaten = tx.run(
                "UPDATE ticks SET heartbeat = ?5 WHERE tenant = ?1 AND schedule = ?2 AND at = ?3
                   AND holder = ?4 AND outcome IS NULL",
                params![tx.tenant_no()?, id, at, holder, now],
            )?;
            Ok(beaten > 0)
        })
        .await
    }

    /// Ends a running tick; false if the holder lost it.
    pub async fn end_tick(&self, of: &Tenant, id: &str, at: Millis, end: TickEnd) -> Result<bool> {
        self.write_with(of, "end_tick", (id.to_owned(), at, end), |tx, (id, at, end)| {
            let no = tx.tenant_no()?;
            let TickEnd { holder, outcome, run, error, failures, not_before, now } = end;
            let ended = tx.run(
                "UPDATE ticks SET outcome = ?5, run = ?6, error = ?7, ended_at = ?8,
                                  heartbeat = NULL
                 WHERE tenant = ?1 AND schedule = ?2 AND at = ?3 AND holder = ?4
                   AND outcome IS NULL",
                params![no, id, at, holder, outcome.as_str(), run, error, now],
            )?;
            if ended > 0 && failures.is_some() {
                let count = "UPDATE schedules SET failures = ?3, not_before = ?4
                             WHERE tenant = ?1 AND id = ?2";
                tx.run(count, params![no, id, failures, not_before])?;
            }
            Ok(ended > 0)
        })
        .await
    }

    /// Takes over a tick of any tenant whose holder sent no heartbeat after `dead_since`,
    /// the longest dead first. Ticks of a paused schedule wait until it is resumed.
    pub async fn take_over_tick(
        &self,
        holder: &str,
        dead_since: Millis,
        now: Millis,
    ) -> Result<Option<TakenOver>> {
        let holder = holder.to_owned();
        self.write(Isolation::Global, "take_over_tick", move |tx| {
            // A heartbeat far in the future was written under a wrong clock.
            let ahead = now.0.saturating_add(REWIND_MILLIS);
            let sql = format!(
                "UPDATE ticks SET holder = ?1, heartbeat = ?2, attempts = attempts + 1
                 WHERE (tenant, schedule, at) IN
                   (SELECT tenant, schedule, at FROM ticks i INDEXED BY ticks_running
                    WHERE outcome IS NULL AND (heartbeat <= ?3 OR heartbeat > ?4)
                      AND NOT EXISTS (SELECT 1 FROM schedules k WHERE k.tenant = i.tenant
                                        AND k.id = i.schedule AND k.paused = 1)
                    ORDER BY heartbeat, schedule LIMIT 1)
                 RETURNING {COLUMNS}, tenant"
            );
            let read = |row: &Row<'_>| Ok((read(row)?, row.get::<_, i64>(11)?));
            let taken = tx.first(&sql, params![holder, now, dead_since, ahead], read)?;
            let Some((tick, tenant)) = taken else { return Ok(None) };
            let schedule = get(tx, Some(tenant), &tick.schedule)?;
            Ok(schedule.map(|schedule| TakenOver { schedule, tick }))
        })
        .await
    }

    /// Ticks of a schedule, newest first.
    pub async fn ticks(&self, tenant: &Tenant, id: &str, limit: usize) -> Result<Vec<TickRecord>> {
        let id = id.to_owned();
        self.read(tenant, "ticks", move |tx| {
            let sql = format!(
                "SELECT {COLUMNS} FROM ticks WHERE tenant = ?1 AND schedule = ?2
                 ORDER BY at DESC LIMIT ?3"
            );
            tx.all(&sql, params![tx.tenant_no()?, id, limit], read)
        })
        .await
    }

    /// Deletes ticks of all tenants that ended at or before a moment, and schedules with
    /// neither an instant nor a tick left; answers how many.
    pub async fn purge_ticks(&self, ended_by: Millis, limit: usize) -> Result<u64> {
        self.write(Isolation::Global, "purge_ticks", move |tx| {
            let ticks = tx.run(
                "DELETE FROM ticks WHERE (tenant, schedule, at) IN
                   (SELECT tenant, schedule, at FROM ticks INDEXED BY ticks_ended
                    WHERE ended_at <= ?1 ORDER BY ended_at LIMIT ?2)",
                params![ended_by, limit],
            )?;
            let schedules = tx.run(
                "DELETE FROM schedules WHERE fires_at IS NULL AND handled_through <= ?1
                   AND NOT EXISTS (SELECT 1 FROM ticks i WHERE i.tenant = schedules.tenant
                                     AND i.schedule = schedules.id)",
                [ended_by],
            )?;
            Ok((ticks + schedules) as u64)
        })
        .await
    }

    /// Deletes the oldest ended ticks of all schedules with more than `most`, at most
    /// `limit` in all; answers how many.
    pub async fn trim_ticks(&self, most: u64, limit: usize) -> Result<u64> {
        let trim = "DELETE FROM ticks WHERE (tenant, schedule, at) IN
               (SELECT i.tenant, i.schedule, i.at FROM schedules k CROSS JOIN ticks i
                  ON i.tenant = k.tenant AND i.schedule = k.id AND i.at <=
                    (SELECT n.at FROM ticks n WHERE n.tenant = k.tenant AND n.schedule = k.id
                     ORDER BY n.at DESC LIMIT 1 OFFSET ?1)
                WHERE i.ended_at IS NOT NULL ORDER BY k.tenant, k.id, i.at LIMIT ?2)";
        self.sweep("trim_ticks", trim, most, limit).await
    }
}

fn claim(tx: &Tx<'_>, id: &str, claim: &TickClaim) -> Result<Claimed> {
    let (no, now) = (tx.tenant_no()?, claim.now);
    let Some(schedule) = get(tx, no, id)? else { return Ok(Claimed::Stale) };
    let is_as_seen = schedule.handled_through == claim.seen_through;
    if schedule.paused || schedule.next.is_none() || !is_as_seen {
        return Ok(Claimed::Stale);
    }
    let running = "SELECT 1 FROM ticks WHERE tenant = ?1 AND schedule = ?2 AND outcome IS NULL";
    let is_running = tx.finds(running, params![no, id])?;
    let recorded = |at, outcome| TickRecord {
        schedule: id.to_owned(),
        at,
        outcome: Some(outcome),
        started_at: now,
        ended_at: Some(now),
        ..TickRecord::default()
    };
    for at in &claim.missed {
        insert(tx, no, &recorded(*at, TickOutcome::Missed))?;
    }
    let mut claimed = Claimed::Recorded;
    if let Some(at) = claim.run {
        let waits = |until: Millis| until > now && until.0 - now.0 <= MAX_BACKOFF_MILLIS;
        let tick = if is_running {
            recorded(at, TickOutcome::Overlapped)
        } else if schedule.not_before.is_some_and(waits) {
            recorded(at, TickOutcome::BackedOff)
        } else {
            TickRecord {
                outcome: None,
                holder: Some(claim.holder.clone()),
                heartbeat: Some(now),
                attempts: 1,
                ended_at: None,
                ..recorded(at, TickOutcome::Ran)
            }
        };
        let tick = TickRecord { missed: claim.counted, ..tick };
        if insert(tx, no, &tick)? && tick.outcome.is_none() {
            claimed = Claimed::Run(tick);
        }
    }
    let (next_at, fires_at) = next_columns(claim.next);
    tx.run(
        "UPDATE schedules SET handled_through = ?3, next_at = ?4, fires_at = ?5,
           missed = missed + ?6 WHERE tenant = ?1 AND id = ?2",
        params![no, id, claim.handled_through, next_at, fires_at, claim.counted],
    )?;
    Ok(claimed)
}

/// Inserts a tick unless its instant has one; answers whether it did.
fn insert(tx: &Tx<'_>, tenant: Option<i64>, tick: &TickRecord) -> Result<bool> {
    let TickRecord { schedule, at, holder, heartbeat, attempts, .. } = tick;
    let TickRecord { started_at, ended_at, missed, .. } = tick;
    let outcome = tick.outcome.map(TickOutcome::as_str);
    let inserted = tx.run(
        "INSERT INTO ticks (tenant, schedule, at, outcome, holder, heartbeat, attempts, started_at,
                            ended_at, missed)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING",
        params![
            tenant, schedule, at, outcome, holder, heartbeat, attempts, started_at, ended_at,
            missed,
        ],
    )?;
    Ok(inserted > 0)
}

const COLUMNS: &str = "schedule, at, outcome, run, error, holder, heartbeat, attempts, started_at,
    ended_at, missed";

fn read(row: &Row<'_>) -> Result<TickRecord> {
    let outcome: Option<String> = row.get(2)?;
    Ok(TickRecord {
        schedule: row.get(0)?,
        at: row.get(1)?,
        // An unknown word was written by a later version, and its tick does not run.
        outcome: outcome.map(|word| TickOutcome::named(&word).unwrap_or(TickOutcome::Failed)),
        run: row.get(3)?,
        error: row.get(4)?,
        holder: row.get(5)?,
        heartbeat: row.get(6)?,
        attempts: row.get(7)?,
        started_at: row.get(8)?,
        ended_at: row.get(9)?,
        missed: row.get(10)?,
    })
}
