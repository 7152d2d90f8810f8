//! What tenants keep, counted with every change to it, and what they used on a day.

use icecore_domain::ids::Tenant;

use crate::bounds::{AllUsage, Bounds, Change, DayUse, Usage, goes_on, refuse_beyond};
use crate::engine::tx::{Isolation, Tx};
use crate::engine::{OptionalExtension, params};
use crate::error::Result;
use crate::store::Store;
use crate::{engine, scopes};

/// Turns of tenant `n` that are kept.
pub(crate) const KEPT_TURNS: &str =
    "(SELECT count(*) FROM turns t WHERE t.tenant = n.tenant AND t.flags & 12 = 0)";

/// Bytes of tenant `n` that are kept.
pub(crate) const KEPT_BYTES: &str =
    "(SELECT coalesce(sum(length(b.body)), 0) FROM bodies b WHERE b.tenant = n.tenant)
     + (SELECT coalesce(sum(length(x.text)), 0) FROM texts x WHERE x.tenant = n.tenant)
     + (SELECT coalesce(sum(p.bytes), 0) FROM packs p WHERE p.tenant = n.tenant)
     + (SELECT coalesce(sum(length(e.content) + octet_length(e.tags)), 0) FROM entries e
        WHERE e.tenant = n.tenant)
     + (SELECT coalesce(sum(length(f.content)), 0) FROM files f WHERE f.tenant = n.tenant)";

/// Counts a change, whatever the bounds are.
pub(crate) fn change(tx: &Tx<'_>, tenant: i64, change: Change) -> Result<()> {
    match change == Change::default() {
        true => Ok(()),
        false => count_change(tx, tenant, change).map(|_| ()),
    }
}

/// Counts what a client gives, and refuses it beyond a bound.
pub(crate) fn keep(tx: &Tx<'_>, (tenant, no): (&Tenant, i64), change: Change) -> Result<()> {
    let after = count_change(tx, no, change)?;
    refuse_beyond(tx.bounds().of(tenant), tenant, change, after)
}

fn count_change(tx: &Tx<'_>, tenant: i64, change: Change) -> Result<Change> {
    tx.prepare_cached(
        "UPDATE tenants SET kept_turns = kept_turns + ?2, kept_bytes = kept_bytes + ?3
         WHERE tenant = ?1 RETURNING kept_turns, kept_bytes",
    )?
    .query_row([tenant, change.turns, change.bytes], |row| {
        Ok(Change { turns: row.get(0)?, bytes: row.get(1)? })
    })
}

/// Moves the tenant's counter on together with what turns add, and answers where it
/// stands.
pub(crate) fn keep_turns(tx: &Tx<'_>, (tenant, no): (&Tenant, i64), change: Change) -> Result<i64> {
    let (position, after) = tx
        .prepare_cached(
            "UPDATE tenants SET position = position + ?2, kept_turns = kept_turns + ?2,
                                kept_bytes = kept_bytes + ?3
             WHERE tenant = ?1 RETURNING position, kept_turns, kept_bytes",
        )
        .and_then(|mut q| {
            q.query_row([no, change.turns, change.bytes], |row| {
                Ok((row.get(0)?, Change { turns: row.get(1)?, bytes: row.get(2)? }))
            })
        })?;
    refuse_beyond(tx.bounds().of(tenant), tenant, change, after)?;
    Ok(position)
}

/// The sum of a column that rows going away answer.
pub(crate) fn freed(tx: &Tx<'_>, sql: &str, values: impl engine::Params) -> Result<i64> {
    let mut query = tx.prepare_cached(sql)?;
    let gone = query.query_map(values, |row| row.get::<_, i64>(0))?;
    gone.sum()
}

pub(crate) fn usage(tx: &Tx<'_>, tenant: &Tenant, day: i64) -> Result<Usage> {
    let found = tx.prepare_cached(
        "SELECT kept_turns, kept_bytes, used_day, used_requests, used_tokens FROM tenants
         WHERE name = ?1",
    );
    let found = found.and_then(|mut q| {
        q.query_row([tenant.as_str()], |row| {
            let number = |column: usize| row.get::<_, i64>(column).map(|n| n.max(0) as u64);
            let used = DayUse { requests: number(3)?, tokens: number(4)? };
            let is_of_the_day = goes_on(row.get(2)?, day);
            let day = if is_of_the_day { used } else { DayUse::default() };
            Ok(Usage { turns: number(0)?, bytes: number(1)?, day })
        })
        .optional()
    });
    found.map(Option::unwrap_or_default)
}

pub(crate) fn count(tx: &Tx<'_>, tenant: &Tenant, day: i64, more: DayUse) -> Result<DayUse> {
    let (no, _) = scopes::ensure_tenant(tx, tenant)?;
    count_day(tx, no, day, more)
}

/// Adds to what a tenant used on a day, and answers the sum.
pub(crate) fn count_day(tx: &Tx<'_>, tenant: i64, day: i64, more: DayUse) -> Result<DayUse> {
    let goes_on = "used_day = ?2 OR used_day = ?2 + 1";
    tx.prepare_cached(&format!(
        "UPDATE tenants SET
             used_requests = CASE WHEN {goes_on} THEN used_requests + ?3 ELSE ?3 END,
             used_tokens = CASE WHEN {goes_on} THEN used_tokens + ?4 ELSE ?4 END,
             used_day = CASE WHEN {goes_on} THEN used_day ELSE ?2 END
         WHERE tenant = ?1 RETURNING used_requests, used_tokens"
    ))?
    .query_row([tenant, day, engine::number(more.requests), engine::number(more.tokens)], |row| {
        Ok(DayUse { requests: row.get(0)?, tokens: row.get(1)? })
    })
}

pub(crate) fn recount(tx: &Tx<'_>) -> Result<u64> {
    let recount = format!(
        "UPDATE tenants AS n SET kept_turns = {KEPT_TURNS}, kept_bytes = {KEPT_BYTES}
         WHERE n.kept_turns != {KEPT_TURNS} OR n.kept_bytes != {KEPT_BYTES}"
    );
    tx.execute(&recount, params![]).map(|changed| changed as u64)
}

pub(crate) fn all(tx: &Tx<'_>, day: i64) -> Result<AllUsage> {
    tx.prepare_cached(
        "SELECT count(*), CAST(sum(kept_turns) AS BIGINT), CAST(sum(kept_bytes) AS BIGINT),
                CAST(sum(used_requests) FILTER (WHERE used_day = ?1 OR used_day = ?1 + 1) AS BIGINT),
                CAST(sum(used_tokens) FILTER (WHERE used_day = ?1 OR used_day = ?1 + 1) AS BIGINT)
         FROM tenants",
    )
    .and_then(|mut q| {
        q.query_row([day], |row| {
            let number = |column: usize| {
                row.get::<_, Option<i64>>(column).map(|n| n.unwrap_or(0).max(0) as u64)
            };
            let day = DayUse { requests: number(3)?, tokens: number(4)? };
            let sum = Usage { turns: number(1)?, bytes: number(2)?, day };
            Ok(AllUsage { tenants: number(0)?, sum })
        })
    })
}

/// Tenants whose counters are not what their tables say.
pub(crate) fn check(tx: &Tx<'_>) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for (what, column, kept) in
        [("turns", "kept_turns", KEPT_TURNS), ("bytes", "kept_bytes", KEPT_BYTES)]
    {
        let wrong: Vec<String> = tx
            .prepare(&format!("SELECT n.name FROM tenants n WHERE n.{column} != {kept} ORDER BY 1"))
            .and_then(|mut q| q.query_map([], |row| row.get(0))?.collect())?;
        findings.extend(wrong.into_iter().map(|tenant| {
            format!("a tenant's count of {what} is wrong: {tenant}; `icecore check --repair` counts anew")
        }));
    }
    Ok(findings)
}

impl Store {
    /// What each tenant may keep from now on, as far as this handle adds to it; a store
    /// is opened without bounds. A write that a client asked for and that would go beyond
    /// is [`StoreError::BoundReached`]: turns, entries, files and intentions. What we
    /// derive ourselves counts and is not refused, and what takes away never is.
    pub fn set_bounds(&self, bounds: Bounds) {
        self.context().bounds.set(bounds);
    }

    /// What a tenant keeps, and what it used on a day: in days since 1970, in UTC.
    pub async fn tenant_usage(&self, tenant: &Tenant, day: i64) -> Result<Usage> {
        let tenant = tenant.clone();
        self.read(Isolation::from(&tenant), "tenant_usage", move |tx| usage(tx, &tenant, day)).await
    }

    /// The same of all tenants together.
    pub async fn all_usage(&self, day: i64) -> Result<AllUsage> {
        self.read(Isolation::Global, "all_usage", move |tx| all(tx, day)).await
    }

    /// Adds to what a tenant used on a day, and answers the sum. [`Store::spend`] adds
    /// the tokens of models by itself.
    pub async fn count_use(&self, tenant: &Tenant, day: i64, more: DayUse) -> Result<DayUse> {
        let tenant = tenant.clone();
        self.write(Isolation::from(&tenant), "count_use", move |tx| count(tx, &tenant, day, more))
            .await
    }

    /// Counts anew what every tenant keeps, and answers for how many it was wrong.
    pub async fn recount_usage(&self) -> Result<u64> {
        self.write(Isolation::Global, "recount_usage", recount).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::contract::fixtures::*;
    use crate::engine::tx::Isolation;

    #[tokio::test]
    async fn counters_that_are_wrong_are_found_and_set_right() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), None).unwrap();
        add(&store, "s", &say_many(3)).await;
        let before = store.tenant_usage(&tenant("acme"), 0).await.unwrap();
        let damage = "UPDATE tenants SET kept_turns = kept_turns - 1, kept_bytes = 7";
        let damaged =
            store.write(Isolation::Global, "test", move |tx| tx.execute(damage, params![]));
        assert_eq!(damaged.await.unwrap(), 1);
        let again = "acme; `icecore check --repair` counts anew";
        let findings =
            ["turns", "bytes"].map(|what| format!("a tenant's count of {what} is wrong: {again}"));
        assert_eq!(store.check().await.unwrap(), findings);
        assert_eq!(store.recount_usage().await.unwrap(), 1);
        assert_eq!(store.tenant_usage(&tenant("acme"), 0).await.unwrap(), before);
        clean(&store).await;
    }
}
