//! Schedules, and a tick for each of their instants.

use super::engine::Owned as Value;
use super::engine::{self, Connection, OptionalExtension, Row, params, params_from_iter};
use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::schedule::{CatchUp, REWIND_MILLIS};
use icecore_domain::time::Millis;

use super::rows::ScopeNo;
use super::{Shared, log, rows};
use crate::error::StoreError;
use crate::schedules::kept_from_running;
use crate::store::*;

pub(super) fn put(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    schedule: NewSchedule,
) -> Result<ScheduleRecord> {
    let (now, most) = (schedule.now, schedule.most);
    let failed = |e| s.failed(e);
    let tenant = rows::tenant_no(c, s, scope.tenant())?;
    if let (Some(claim), Some(tenant)) = (&schedule.claim, tenant) {
        log::refuse_taken(c, s, tenant, claim, now)?;
    }
    let there: i64 = c
        .prepare_cached("SELECT count(*) FROM schedules WHERE tenant = ?1 AND fires_at IS NOT NULL")
        .and_then(|mut q| q.query_row([tenant], |row| row.get(0)))
        .map_err(failed)?;
    if there as u64 >= most {
        return Err(StoreError::TooManySchedules { most });
    }
    let no = rows::ensure_scope(c, s, scope)?;
    let record = schedule.record(scope);
    insert(c, no, &record).map_err(failed)?;
    // Of those that are over, the last are kept, and those at work.
    c.prepare_cached(
        "DELETE FROM schedules WHERE tenant = ?1 AND fires_at IS NULL AND id NOT IN
           (SELECT id FROM schedules WHERE tenant = ?1 AND fires_at IS NULL
            ORDER BY handled_through DESC, id DESC LIMIT ?2)
         AND NOT EXISTS (SELECT 1 FROM ticks i WHERE i.tenant = schedules.tenant
                           AND i.schedule = schedules.id AND i.outcome IS NULL)",
    )
    .and_then(|mut q| q.execute(params![no.tenant, rows::number(most)]))
    .map_err(failed)?;
    if let Some(claim) = schedule.claim {
        log::put_outcome_of(c, s, no.tenant, &claim.outcome(&record), now)?;
    }
    Ok(record)
}

fn insert(c: &Connection, no: ScopeNo, record: &ScheduleRecord) -> engine::Result<()> {
    let (cron, timezone, once_at) = match &record.timing {
        ScheduleTiming::Cron { line, timezone } => (Some(line), timezone.as_str(), None),
        ScheduleTiming::Once(at) => (None, "UTC", Some(at.0)),
    };
    c.prepare_cached(
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
        record.budget.map(rows::number),
        record.catch_up.as_str(),
        rows::number(record.jitter_millis),
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
    c: &Connection,
    s: &Shared,
    which: &str,
    values: impl IntoIterator<Item = Value>,
) -> Result<Vec<ScheduleRecord>> {
    let mut query = c
        .prepare_cached(&format!("SELECT {COLUMNS} FROM schedules k {which}"))
        .map_err(|e| s.failed(e))?;
    let mut rows = query.query(params_from_iter(values)).map_err(|e| s.failed(e))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(|e| s.failed(e))? {
        match read(c, s, &row) {
            Some(record) => found.push(record),
            None => tracing::warn!("a damaged schedule is passed over"),
        }
    }
    Ok(found)
}

fn read(c: &Connection, s: &Shared, row: &Row<'_>) -> Option<ScheduleRecord> {
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
        scope: rows::scope_of(c, s, row.get(0).ok()?, row.get(1).ok()?).ok()?,
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

pub(super) fn get(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
) -> Result<Option<ScheduleRecord>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(None) };
    let key = [Value::from(no), Value::from(id.to_owned())];
    Ok(find(c, s, "WHERE k.tenant = ?1 AND k.id = ?2", key)?.pop())
}

pub(super) fn list(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    memory: Option<String>,
) -> Result<Vec<ScheduleRecord>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(Vec::new()) };
    let which = "WHERE k.tenant = ?1 AND (?2 IS NULL OR k.scope =
           (SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2))
         ORDER BY k.created_at, k.id";
    find(c, s, which, [Value::from(no), Value::from(memory)])
}

pub(super) fn due(
    c: &Connection,
    s: &Shared,
    now: Millis,
    limit: usize,
) -> Result<Vec<ScheduleRecord>> {
    let which = "WHERE k.paused = 0 AND k.fires_at IS NOT NULL
           AND (k.fires_at <= ?1 OR k.handled_through > ?2)
         ORDER BY row_number() OVER (PARTITION BY k.tenant ORDER BY k.fires_at, k.id),
           k.fires_at, k.tenant LIMIT ?3";
    let ahead = now.0.saturating_add(REWIND_MILLIS);
    find(c, s, which, [now.0, ahead, rows::number(limit as u64)].map(Value::from))
}

const TICK: &str = "schedule, at, outcome, run, error, holder, heartbeat, attempts, started_at,
    ended_at, missed";

fn read_tick(row: &Row<'_>) -> engine::Result<TickRecord> {
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

pub(super) fn ticks(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
    limit: usize,
) -> Result<Vec<TickRecord>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(Vec::new()) };
    c.prepare_cached(&format!(
        "SELECT {TICK} FROM ticks WHERE tenant = ?1 AND schedule = ?2 ORDER BY at DESC LIMIT ?3"
    ))
    .and_then(|mut q| {
        q.query_map(params![no, id, rows::number(limit as u64)], read_tick)?.collect()
    })
    .map_err(|e| s.failed(e))
}

// Changing

pub(super) fn remove(c: &Connection, s: &Shared, tenant: &Tenant, id: &str) -> Result<bool> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(false) };
    c.prepare_cached("DELETE FROM schedules WHERE tenant = ?1 AND id = ?2")
        .and_then(|mut q| q.execute(params![no, id]))
        .map(|count| count > 0)
        .map_err(|e| s.failed(e))
}

pub(super) fn pause(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
) -> Result<Option<ScheduleRecord>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(None) };
    c.prepare_cached("UPDATE schedules SET paused = 1 WHERE tenant = ?1 AND id = ?2")
        .and_then(|mut q| q.execute(params![no, id]))
        .map_err(|e| s.failed(e))?;
    get(c, s, tenant, id)
}

pub(super) fn resume(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
    handled_through: Millis,
    next: Option<NextTick>,
) -> Result<Option<ScheduleRecord>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(None) };
    c.prepare_cached(
        "UPDATE schedules SET paused = 0, failures = 0, not_before = NULL, handled_through = ?3,
           next_at = ?4, fires_at = ?5
         WHERE tenant = ?1 AND id = ?2 AND paused = 1",
    )
    .and_then(|mut q| {
        let fires_at = next.map(|next| next.fires_at.0);
        q.execute(params![no, id, handled_through.0, next.map(|next| next.at.0), fires_at])
    })
    .map_err(|e| s.failed(e))?;
    get(c, s, tenant, id)
}

pub(super) fn claim(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
    claim: &TickClaim,
) -> Result<Claimed> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(Claimed::Stale) };
    let Some(record) = get(c, s, tenant, id)? else { return Ok(Claimed::Stale) };
    if record.paused || record.next.is_none() || record.handled_through != claim.seen_through {
        return Ok(Claimed::Stale);
    }
    let failed = |e| s.failed(e);
    let is_running = c
        .prepare_cached(
            "SELECT 1 FROM ticks WHERE tenant = ?1 AND schedule = ?2 AND outcome IS NULL",
        )
        .and_then(|mut q| q.exists(params![no, id]))
        .map_err(failed)?;
    for at in &claim.missed {
        let tick = TickRecord::recorded(id, *at, TickOutcome::Missed, claim.now);
        insert_tick(c, no, &tick).map_err(failed)?;
    }
    let mut claimed = Claimed::Recorded;
    if let Some(at) = claim.run {
        let tick = match kept_from_running(&record, is_running, claim.now) {
            Some(outcome) => TickRecord::recorded(id, at, outcome, claim.now),
            None => TickRecord::running(id, at, &claim.holder, claim.now),
        };
        let tick = TickRecord { missed: claim.counted, ..tick };
        if insert_tick(c, no, &tick).map_err(failed)? && tick.outcome.is_none() {
            claimed = Claimed::Run(tick);
        }
    }
    c.prepare_cached(
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
            rows::number(claim.counted),
        ])
    })
    .map_err(failed)?;
    Ok(claimed)
}

/// Whether there was none of that instant.
fn insert_tick(c: &Connection, tenant: i64, tick: &TickRecord) -> engine::Result<bool> {
    let count = c
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
            rows::number(tick.attempts),
            tick.started_at.0,
            tick.ended_at.map(|at| at.0),
            rows::number(tick.missed),
        ])?;
    Ok(count > 0)
}

pub(super) fn beat(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
    at: Millis,
    holder: &str,
    now: Millis,
) -> Result<bool> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(false) };
    c.prepare_cached(
        "UPDATE ticks SET heartbeat = ?5
         WHERE tenant = ?1 AND schedule = ?2 AND at = ?3 AND holder = ?4 AND outcome IS NULL",
    )
    .and_then(|mut q| q.execute(params![no, id, at.0, holder, now.0]))
    .map(|count| count > 0)
    .map_err(|e| s.failed(e))
}

pub(super) fn end(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
    at: Millis,
    end: &TickEnd,
) -> Result<bool> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(false) };
    let count = c
        .prepare_cached(
            "UPDATE ticks SET outcome = ?5, run = ?6, error = ?7, ended_at = ?8, heartbeat = NULL
             WHERE tenant = ?1 AND schedule = ?2 AND at = ?3 AND holder = ?4 AND outcome IS NULL",
        )
        .and_then(|mut q| {
            let TickEnd { holder, outcome, run, error, now, .. } = end;
            q.execute(params![no, id, at.0, holder, outcome.as_str(), run, error, now.0])
        })
        .map_err(|e| s.failed(e))?;
    if count == 0 {
        return Ok(false);
    }
    if let Some(failures) = end.failures {
        c.prepare_cached(
            "UPDATE schedules SET failures = ?3, not_before = ?4 WHERE tenant = ?1 AND id = ?2",
        )
        .and_then(|mut q| {
            q.execute(params![no, id, rows::number(failures), end.not_before.map(|at| at.0)])
        })
        .map_err(|e| s.failed(e))?;
    }
    Ok(true)
}

pub(super) fn take_over(
    c: &Connection,
    s: &Shared,
    holder: &str,
    dead_since: Millis,
    now: Millis,
) -> Result<Option<TakenOver>> {
    let failed = |e| s.failed(e);
    let ahead = now.0.saturating_add(REWIND_MILLIS);
    let found: Option<(i64, String, i64)> = c
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
    let tick = c
        .prepare_cached(&format!(
            "UPDATE ticks SET holder = ?4, heartbeat = ?5, attempts = attempts + 1
             WHERE tenant = ?1 AND schedule = ?2 AND at = ?3 RETURNING {TICK}"
        ))
        .and_then(|mut q| q.query_row(params![tenant, id, at, holder, now.0], read_tick))
        .map_err(failed)?;
    let key = [Value::from(tenant), Value::from(id)];
    let schedule = find(c, s, "WHERE k.tenant = ?1 AND k.id = ?2", key)?.pop();
    Ok(schedule.map(|schedule| TakenOver { schedule, tick }))
}

pub(super) fn purge(c: &Connection, s: &Shared, ended_by: Millis, limit: usize) -> Result<u64> {
    let ticks = c
        .prepare_cached(
            "DELETE FROM ticks WHERE (tenant, schedule, at) IN
               (SELECT tenant, schedule, at FROM ticks INDEXED BY ticks_ended
                WHERE ended_at <= ?1 ORDER BY ended_at LIMIT ?2)",
        )
        .and_then(|mut q| q.execute(params![ended_by.0, rows::number(limit as u64)]))
        .map_err(|e| s.failed(e))?;
    let schedules = c
        .prepare_cached(
            "DELETE FROM schedules WHERE fires_at IS NULL AND handled_through <= ?1 AND NOT EXISTS
               (SELECT 1 FROM ticks i WHERE i.tenant = schedules.tenant
                  AND i.schedule = schedules.id)",
        )
        .and_then(|mut q| q.execute([ended_by.0]))
        .map_err(|e| s.failed(e))?;
    Ok((ticks + schedules) as u64)
}

pub(super) fn trim(c: &Connection, s: &Shared, most: u64, limit: usize) -> Result<u64> {
    c.prepare_cached(
        "DELETE FROM ticks WHERE (tenant, schedule, at) IN
           (SELECT i.tenant, i.schedule, i.at FROM schedules k CROSS JOIN ticks i
              ON i.tenant = k.tenant AND i.schedule = k.id AND i.at <=
                (SELECT n.at FROM ticks n WHERE n.tenant = k.tenant AND n.schedule = k.id
                 ORDER BY n.at DESC LIMIT 1 OFFSET ?1)
            WHERE i.ended_at IS NOT NULL ORDER BY k.tenant, k.id, i.at LIMIT ?2)",
    )
    .and_then(|mut q| q.execute([rows::number(most), rows::number(limit as u64)]))
    .map(|count| count as u64)
    .map_err(|e| s.failed(e))
}

#[cfg(test)]
mod tests {
    use crate::SqliteStore;
    use crate::contract::fixtures::*;
    use crate::contract::schedules::new_schedule;
    use crate::sql::Wall;
    use crate::store::*;

    async fn change(store: &SqliteStore, sql: &'static str) {
        store
            .write(Wall::Everyone, move |c, s| c.execute_batch(sql).map_err(|e| s.failed(e)))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn what_is_wrong_with_schedules_is_found_and_passed_over() {
        let check = async |sql: &'static str, finding: &str, left: usize| {
            let dir = tempfile::tempdir().unwrap();
            let store = SqliteStore::open(dir.path(), None).unwrap();
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
