//! Schedules: what the host does by itself, and when.

pub(crate) mod ticks;

use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::schedule::{CatchUp, REWIND_MILLIS};
use icecore_domain::time::Millis;
use serde_json::{Value as Json, json};

use crate::engine::tx::{Isolation, Tx};
use crate::engine::{Params, Row, column, fields, params};
use crate::error::{Result, StoreError};
use crate::host::unless_damaged;
use crate::outcomes::{self, Claim, Effect};
use crate::scopes;
use crate::store::Store;
use crate::words::words;

words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum ScheduleTask {
        /// A dream of its memory.
        #[default]
        Dream = "dream",
        Consolidate = "consolidate",
        /// The commitments of its memory whose time has come.
        Commitments = "commitments",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleTiming {
    Cron { line: String, timezone: String },
    Once(Millis),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextTick {
    pub at: Millis,
    /// `at` with its jitter.
    pub fires_at: Millis,
}

#[derive(Debug, Clone)]
pub struct NewSchedule {
    /// Unique within the tenant.
    pub id: String,
    pub task: ScheduleTask,
    pub timing: ScheduleTiming,
    pub budget: Option<u64>,
    pub catch_up: CatchUp,
    /// The most that an instant fires late.
    pub jitter_millis: u64,
    pub next: NextTick,
    pub now: Millis,
    pub most: u64,
    pub claim: Option<Claim>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleRecord {
    pub id: String,
    pub scope: Scope,
    pub task: ScheduleTask,
    pub timing: ScheduleTiming,
    pub budget: Option<u64>,
    pub catch_up: CatchUp,
    pub jitter_millis: u64,
    pub created_at: Millis,
    pub paused: bool,
    /// Every instant up to this one was handled.
    pub handled_through: Millis,
    /// `None` once no instant is left.
    pub next: Option<NextTick>,
    pub failures: u64,
    /// Nothing runs before this.
    pub not_before: Option<Millis>,
    /// How many missed instants have no tick.
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

impl Store {
    /// Stores a schedule. One more than a tenant may have with instants to come is
    /// [`StoreError::TooManySchedules`]; of those without, as many of the last are kept. A
    /// claim that is taken is [`StoreError::ClaimTaken`].
    pub async fn put_schedule(&self, scope: &Scope, new: NewSchedule) -> Result<ScheduleRecord> {
        self.write(scope, "put_schedule", move |tx| put(tx, new.clone())).await
    }

    pub async fn schedule(&self, tenant: &Tenant, id: &str) -> Result<Option<ScheduleRecord>> {
        let id = id.to_owned();
        self.read(tenant, "schedule", move |tx| get(tx, tx.tenant_no()?, &id)).await
    }

    /// Schedules of a tenant, or of one memory of it, oldest first.
    pub async fn schedules(
        &self,
        of: &Tenant,
        memory: Option<&str>,
    ) -> Result<Vec<ScheduleRecord>> {
        let memory = memory.map(str::to_owned);
        self.read(of, "schedules", move |tx| {
            let which = "WHERE k.tenant = ?1 AND (?2 IS NULL OR k.scope =
                   (SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2))
                 ORDER BY k.created_at, k.id";
            find(tx, which, params![tx.tenant_no()?, memory])
        })
        .await
    }

    /// Removes a schedule and its ticks; false if it does not exist.
    pub async fn remove_schedule(&self, tenant: &Tenant, id: &str) -> Result<bool> {
        let id = id.to_owned();
        self.write(tenant, "remove_schedule", move |tx| {
            let key = params![tx.tenant_no()?, id];
            Ok(tx.run("DELETE FROM schedules WHERE tenant = ?1 AND id = ?2", key)? > 0)
        })
        .await
    }

    /// Pauses a schedule: it does not fire until it is resumed. A running tick goes on.
    pub async fn pause_schedule(&self, of: &Tenant, id: &str) -> Result<Option<ScheduleRecord>> {
        let id = id.to_owned();
        self.write(of, "pause_schedule", move |tx| {
            let no = tx.tenant_no()?;
            let pause = "UPDATE schedules SET paused = 1 WHERE tenant = ?1 AND id = ?2";
            tx.run(pause, params![no, id])?;
            get(tx, no, &id)
        })
        .await
    }

    /// Resumes a paused schedule as if every instant up to `handled_through` was handled,
    /// and resets its failures. A schedule that is not paused stays as it is.
    pub async fn resume_schedule(
        &self,
        tenant: &Tenant,
        id: &str,
        handled_through: Millis,
        next: Option<NextTick>,
    ) -> Result<Option<ScheduleRecord>> {
        let id = id.to_owned();
        self.write(tenant, "resume_schedule", move |tx| {
            let no = tx.tenant_no()?;
            let (next_at, fires_at) = next_columns(next);
            tx.run(
                "UPDATE schedules SET paused = 0, failures = 0, not_before = NULL,
                   handled_through = ?3, next_at = ?4, fires_at = ?5
                 WHERE tenant = ?1 AND id = ?2 AND paused = 1",
                params![no, id, handled_through, next_at, fires_at],
            )?;
            get(tx, no, &id)
        })
        .await
    }

    /// Schedules of all tenants that are not paused and fire at or before `now`, or that a
    /// wrong clock handled far in the future: the first of each tenant, then the second.
    pub async fn due_schedules(&self, now: Millis, limit: usize) -> Result<Vec<ScheduleRecord>> {
        self.read(Isolation::Global, "due_schedules", move |tx| {
            let which = "WHERE k.paused = 0 AND k.fires_at IS NOT NULL
                   AND (k.fires_at <= ?1 OR k.handled_through > ?2)
                 ORDER BY row_number() OVER (PARTITION BY k.tenant ORDER BY k.fires_at, k.id),
                   k.fires_at, k.tenant LIMIT ?3";
            find(tx, which, params![now, now.0.saturating_add(REWIND_MILLIS), limit])
        })
        .await
    }
}

fn put(tx: &Tx<'_>, new: NewSchedule) -> Result<ScheduleRecord> {
    let NewSchedule { now, most, claim, .. } = new;
    let no = tx.ensure_scope()?;
    outcomes::refuse_taken(tx, no.tenant, claim.as_ref(), now)?;
    let coming = "SELECT count(*) FROM schedules WHERE tenant = ?1 AND fires_at IS NOT NULL";
    if tx.one(coming, [no.tenant], column::<u64>)? >= most {
        return Err(StoreError::TooManySchedules { most });
    }
    let record = ScheduleRecord {
        id: new.id,
        scope: tx.scope()?.clone(),
        task: new.task,
        timing: new.timing,
        budget: new.budget,
        catch_up: new.catch_up,
        jitter_millis: new.jitter_millis,
        created_at: now,
        paused: false,
        handled_through: now,
        next: Some(new.next),
        failures: 0,
        not_before: None,
        missed: 0,
    };
    let ScheduleRecord { id, task, budget, jitter_millis, .. } = &record;
    let (cron, timezone, once_at) = match &record.timing {
        ScheduleTiming::Cron { line, timezone } => (Some(line), timezone.as_str(), None),
        ScheduleTiming::Once(at) => (None, "UTC", Some(at)),
    };
    let (next_at, fires_at) = next_columns(record.next);
    tx.insert(
        "schedules",
        fields! {
            tenant: no.tenant, scope: no.scope, id, task: task.as_str(), cron, timezone, once_at,
            budget, catch_up: record.catch_up.as_str(), jitter: jitter_millis, created_at: now,
            handled_through: now, next_at, fires_at,
        },
    )?;
    // Of the schedules with no instant left, the last stay, and those with a running tick.
    tx.run(
        "DELETE FROM schedules WHERE tenant = ?1 AND fires_at IS NULL AND id NOT IN
           (SELECT id FROM schedules WHERE tenant = ?1 AND fires_at IS NULL
            ORDER BY handled_through DESC, id DESC LIMIT ?2)
         AND NOT EXISTS (SELECT 1 FROM ticks i WHERE i.tenant = schedules.tenant
                           AND i.schedule = schedules.id AND i.outcome IS NULL)",
        params![no.tenant, most],
    )?;
    outcomes::put_claimed(tx, no.tenant, claim.as_ref(), &record, now)?;
    Ok(record)
}

fn next_columns(next: Option<NextTick>) -> (Option<Millis>, Option<Millis>) {
    next.map(|next| (next.at, next.fires_at)).unzip()
}

/// A schedule by id; `None` also if the tenant has no rows.
fn get(tx: &Tx<'_>, tenant: Option<i64>, id: &str) -> Result<Option<ScheduleRecord>> {
    Ok(find(tx, "WHERE k.tenant = ?1 AND k.id = ?2", params![tenant, id])?.pop())
}

/// Finds schedules as `k` by the clauses after the table's name. Skips damaged ones, which
/// must not keep others from running.
fn find(tx: &Tx<'_>, which: &str, params: impl Params) -> Result<Vec<ScheduleRecord>> {
    let sql = format!(
        "SELECT k.tenant, k.scope, k.id, k.task, k.cron, k.timezone, k.once_at, k.budget,
           k.catch_up, k.jitter, k.created_at, k.paused, k.handled_through, k.next_at, k.fires_at,
           k.failures, k.not_before, k.missed FROM schedules k {which}"
    );
    let found = tx.all(&sql, params, |row| {
        let record = unless_damaged(read(tx, row))?;
        if record.is_none() {
            tracing::warn!("a damaged schedule is passed over");
        }
        Ok(record)
    })?;
    Ok(found.into_iter().flatten().collect())
}

fn read(tx: &Tx<'_>, row: &Row<'_>) -> Result<ScheduleRecord> {
    let damaged = || tx.damaged("the row of a schedule is not valid");
    let timing = match (row.get(4)?, row.get(6)?) {
        (Some(line), None) => ScheduleTiming::Cron { line, timezone: row.get(5)? },
        (None, Some(at)) => ScheduleTiming::Once(at),
        _ => return Err(damaged()),
    };
    let next: (Option<Millis>, Option<Millis>) = (row.get(13)?, row.get(14)?);
    Ok(ScheduleRecord {
        scope: scopes::scope_of(tx, row.get(0)?, row.get(1)?)?,
        id: row.get(2)?,
        task: ScheduleTask::named(&row.get::<_, String>(3)?).ok_or_else(damaged)?,
        timing,
        budget: row.get(7)?,
        catch_up: CatchUp::named(&row.get::<_, String>(8)?).ok_or_else(damaged)?,
        jitter_millis: row.get(9)?,
        created_at: row.get(10)?,
        paused: row.get(11)?,
        handled_through: row.get(12)?,
        next: next.0.zip(next.1).map(|(at, fires_at)| NextTick { at, fires_at }),
        failures: row.get(15)?,
        not_before: row.get(16)?,
        missed: row.get(17)?,
    })
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
