//! Branches that are unsettled: changed since the worker last brought their layers up to date.

use icecore_domain::ids::{Branch, Scope, SessionNo, Tenant};

use crate::engine::prelude::*;
use crate::scopes;
use crate::store::Store;
use crate::turns::rows;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueBranch {
    pub scope: Scope,
    pub session: SessionNo,
    pub branch: Branch,
}

record! {
    DueBranch { scope, session, branch }
}

impl Store {
    /// Branches that an append, an erasure or dropped summaries changed since they were
    /// last settled: those of the first tenant that has any and is not among `tenants`.
    /// What the worker itself moves is no such change.
    pub async fn unsettled_beside(
        &self,
        tenants: &[Tenant],
        limit: usize,
    ) -> Result<Vec<DueBranch>> {
        let tenants = tenants.to_vec();
        self.read(Isolation::Global, "unsettled_beside", move |tx| {
            let passed =
                tenants.iter().filter_map(|tenant| scopes::tenant_no(tx, tenant).transpose());
            let passed = passed.collect::<Result<Vec<i64>>>()?;
            // From tenant to tenant, however many branches each has.
            let next = "SELECT b.tenant FROM branches b INDEXED BY branches_unsettled
                 WHERE b.unsettled = 1 AND b.tenant > ?1 ORDER BY b.tenant LIMIT 1";
            let mut after = i64::MIN;
            while let Some(tenant) = tx.first(next, [after], column)? {
                if !passed.contains(&tenant) {
                    return unsettled(tx, tenant, limit);
                }
                after = tenant;
            }
            Ok(Vec::new())
        })
        .await
    }

    /// How many branches are unsettled: of one memory, one tenant, or all.
    pub async fn unsettled_count(
        &self,
        tenant: Option<&Tenant>,
        memory: Option<&str>,
    ) -> Result<u64> {
        let memory = memory.map(str::to_owned);
        self.read(tenant, "unsettled_count", move |tx| {
            tx.one(
                "SELECT count(*) FROM branches b INDEXED BY branches_unsettled
                 JOIN sessions o ON o.tenant = b.tenant AND o.session = b.session
                 JOIN scopes p ON p.tenant = o.tenant AND p.scope = o.scope
                 JOIN tenants t ON t.tenant = b.tenant
                 WHERE b.unsettled = 1 AND (?1 IS NULL OR t.name = ?1)
                   AND (?2 IS NULL OR p.memory = ?2)",
                params![tx.of().tenant().map(Tenant::as_str), memory],
                column,
            )
        })
        .await
    }

    /// Marks a branch settled, unless its version is no longer `seen`.
    pub async fn settle(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: Branch,
        seen: u64,
    ) -> Result<()> {
        self.write(scope, "settle", move |tx| {
            let Some(no) = rows::owned(tx, session)? else { return Ok(()) };
            tx.change(
                "UPDATE branches SET unsettled = 0
                 WHERE tenant = ?1 AND session = ?2 AND branch = ?3 AND version = ?4",
                params![no.tenant, session, branch, seen],
            )
        })
        .await
    }

    /// Marks every branch unsettled, so that changed settings take effect.
    pub async fn unsettle_all(&self) -> Result<()> {
        self.write(Isolation::Global, "unsettle_all", |tx| {
            tx.change("UPDATE branches SET unsettled = 1", [])
        })
        .await
    }
}

fn unsettled(tx: &Tx<'_>, tenant: i64, limit: usize) -> Result<Vec<DueBranch>> {
    tx.all(
        "SELECT t.name, p.memory, b.session, b.branch
         FROM branches b INDEXED BY branches_unsettled
         JOIN sessions o ON o.tenant = b.tenant AND o.session = b.session
         JOIN scopes p ON p.tenant = o.tenant AND p.scope = o.scope
         JOIN tenants t ON t.tenant = b.tenant
         WHERE b.unsettled = 1 AND b.tenant = ?1 ORDER BY b.session, b.branch LIMIT ?2",
        params![tenant, limit],
        tuple,
    )
}
