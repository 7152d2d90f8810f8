//! Expiry: a run first loses its content, and later is deleted.

use icecore_domain::ids::Tenant;
use icecore_domain::time::Millis;

use crate::engine::tx::{Isolation, Tx};
use crate::engine::{column, params, tuple};
use crate::error::Result;
use crate::store::Store;

impl Store {
    /// Deletes the events, inputs, files, variables and errors of runs of all tenants that
    /// ended at or before a moment; answers how many runs. Their ids, owners and times stay.
    pub async fn expire_runs(&self, ended_by: Millis, now: Millis, limit: usize) -> Result<u64> {
        self.write(Isolation::Global, "expire_runs", move |tx| {
            let ended: Vec<(i64, String)> = tx.all(
                "SELECT tenant, run FROM workflow_runs INDEXED BY workflow_runs_ended
                 WHERE ended_at IS NOT NULL AND expired_at IS NULL AND ended_at <= ?1
                 ORDER BY ended_at, tenant, run LIMIT ?2",
                params![ended_by, limit],
                tuple,
            )?;
            for (tenant, run) in &ended {
                delete_content(tx, *tenant, run, now)?;
            }
            Ok(ended.len() as u64)
        })
        .await
    }

    /// As [`Store::expire_runs`], for one run, if it has ended and not expired yet.
    pub async fn expire_run(&self, tenant: &Tenant, run: &str, now: Millis) -> Result<()> {
        let run = run.to_owned();
        self.write(tenant, "expire_run", move |tx| {
            let Some(tenant) = tx.tenant_no()? else { return Ok(()) };
            let ended = "SELECT count(*) FROM workflow_runs WHERE tenant = ?1 AND run = ?2
                         AND ended_at IS NOT NULL AND expired_at IS NULL";
            if tx.one(ended, params![tenant, run], column::<u64>)? > 0 {
                delete_content(tx, tenant, &run, now)?;
            }
            Ok(())
        })
        .await
    }

    /// As [`Store::expire_runs`], for the ended runs of a tenant that were created before a
    /// moment and for all forks of these. A dry run only counts.
    pub async fn erase_runs(
        &self,
        tenant: &Tenant,
        before: Millis,
        now: Millis,
        dry_run: bool,
    ) -> Result<u64> {
        self.write(tenant, "erase_runs", move |tx| {
            let Some(tenant) = tx.tenant_no()? else { return Ok(0) };
            // A fork has the inputs of its source, however late it was created.
            let early: Vec<String> = tx.all(
                "WITH RECURSIVE early (run) AS (
                     SELECT run FROM workflow_runs WHERE tenant = ?1 AND created_at < ?2
                     UNION
                     SELECT r.run FROM early e
                     JOIN workflow_runs r INDEXED BY workflow_runs_by_source
                       ON r.tenant = ?1 AND r.source = e.run
                 )
                 SELECT r.run FROM early e JOIN workflow_runs r ON r.tenant = ?1 AND r.run = e.run
                 WHERE r.ended_at IS NOT NULL AND r.expired_at IS NULL",
                params![tenant, before],
                column,
            )?;
            if !dry_run {
                early.iter().try_for_each(|run| delete_content(tx, tenant, run, now))?;
            }
            Ok(early.len() as u64)
        })
        .await
    }

    /// Deletes the rows of runs of all tenants that expired at or before a moment.
    pub async fn purge_runs(&self, expired_by: Millis, limit: usize) -> Result<u64> {
        let purge = "DELETE FROM workflow_runs WHERE (tenant, run) IN (
                 SELECT tenant, run FROM workflow_runs INDEXED BY workflow_runs_expired
                 WHERE expired_at IS NOT NULL AND expired_at <= ?1
                 ORDER BY expired_at, tenant, run LIMIT ?2)";
        self.sweep("purge_runs", purge, expired_by, limit).await
    }
}

pub(super) fn delete_content(tx: &Tx<'_>, tenant: i64, run: &str, now: Millis) -> Result<()> {
    tx.run("DELETE FROM run_events WHERE tenant = ?1 AND run = ?2", params![tenant, run])?;
    tx.run(
        "UPDATE workflow_runs SET inputs = '{}', files = '[]', variables = '[]', error = NULL,
                                  expired_at = ?3
         WHERE tenant = ?1 AND run = ?2",
        params![tenant, run, now],
    )?;
    Ok(())
}
