//! What tenants store, counted in the row of each tenant with every change to it, and what
//! they used on a day.

use icecore_domain::ids::Tenant;

use crate::bounds::{AllUsage, Bounds, Change, DayUse, Usage, goes_on, refuse_beyond};
use crate::engine::prelude::*;
use crate::store::Store;

pub(crate) const KEPT_TURNS: &str =
    "(SELECT count(*) FROM turns t WHERE t.tenant = n.tenant AND t.flags & 12 = 0)";

pub(crate) const KEPT_BYTES: &str =
    "(SELECT coalesce(sum(length(b.body)), 0) FROM bodies b WHERE b.tenant = n.tenant)
     + (SELECT coalesce(sum(length(x.text)), 0) FROM texts x WHERE x.tenant = n.tenant)
     + (SELECT coalesce(sum(p.bytes), 0) FROM packs p WHERE p.tenant = n.tenant)
     + (SELECT coalesce(sum(length(e.content) + octet_length(e.tags)), 0) FROM entries e
        WHERE e.tenant = n.tenant)
     + (SELECT coalesce(sum(length(f.content)), 0) FROM files f WHERE f.tenant = n.tenant)";

/// The counters of a row of `tenants` belong to day `?1`. See [`goes_on`].
const OF_DAY: &str = "(used_day = ?1 OR used_day = ?1 + 1)";

impl Store {
    /// Sets what each tenant may store from now on, for writes through this handle; a store
    /// is opened without bounds. A write of a client's turns, entries, files or intentions
    /// that would go beyond is [`StoreError::BoundReached`]. Derived data counts but is
    /// never refused, and neither is a deletion.
    ///
    /// [`StoreError::BoundReached`]: crate::StoreError::BoundReached
    pub fn set_bounds(&self, bounds: Bounds) {
        self.context().bounds.set(bounds);
    }

    /// What a tenant stores, and what it used on a day: in days since 1970, in UTC.
    pub async fn tenant_usage(&self, tenant: &Tenant, day: i64) -> Result<Usage> {
        self.read(tenant, "tenant_usage", move |tx| {
            let sql = "SELECT kept_turns, kept_bytes, used_requests, used_tokens, used_day
                 FROM tenants WHERE name = ?1";
            let found = tx.first(sql, [tx.tenant()?.as_str()], |row| {
                let (usage, used_day): (Usage, i64) = tuple(row)?;
                let is_of_day = goes_on(used_day, day);
                Ok(if is_of_day { usage } else { Usage { day: DayUse::default(), ..usage } })
            })?;
            Ok(found.unwrap_or_default())
        })
        .await
    }

    /// The sum of [`Store::tenant_usage`] over all tenants.
    pub async fn all_usage(&self, day: i64) -> Result<AllUsage> {
        self.read(Isolation::Global, "all_usage", move |tx| {
            let sql = format!(
                "SELECT CAST(sum(kept_turns) AS BIGINT), CAST(sum(kept_bytes) AS BIGINT),
                        CAST(sum(used_requests) FILTER (WHERE {OF_DAY}) AS BIGINT),
                        CAST(sum(used_tokens) FILTER (WHERE {OF_DAY}) AS BIGINT),
                        count(*)
                 FROM tenants"
            );
            tx.one(&sql, [day], tuple)
        })
        .await
    }

    /// Adds to what a tenant used on a day, and returns the sum. [`Store::spend`] adds the
    /// tokens of models itself.
    pub async fn count_use(&self, tenant: &Tenant, day: i64, more: DayUse) -> Result<DayUse> {
        self.write(tenant, "count_use", move |tx| count_day(tx, tx.ensure_tenant()?.0, day, more))
            .await
    }

    /// Counts anew what every tenant stores; returns for how many the counters were wrong.
    pub async fn recount_usage(&self) -> Result<u64> {
        self.write(Isolation::Global, "recount_usage", |tx| {
            let sql = format!(
                "UPDATE tenants AS n SET kept_turns = {KEPT_TURNS}, kept_bytes = {KEPT_BYTES}
                 WHERE n.kept_turns != {KEPT_TURNS} OR n.kept_bytes != {KEPT_BYTES}"
            );
            Ok(tx.run(&sql, [])? as u64)
        })
        .await
    }
}

record! {
    AllUsage { sum, tenants }
    Change { turns, bytes }
    DayUse { requests, tokens }
}

impl FromColumns for Usage {
    fn from_columns(columns: &mut Columns<'_, '_>) -> Result<Self> {
        let mut count =
            || -> Result<u64> { Ok(columns.get::<Option<i64>>()?.unwrap_or(0).max(0) as u64) };
        let (turns, bytes) = (count()?, count()?);
        Ok(Usage { turns, bytes, day: DayUse { requests: count()?, tokens: count()? } })
    }
}

/// Counts a change, whatever the bounds are.
pub(crate) fn change(tx: &Tx<'_>, tenant: i64, change: Change) -> Result<()> {
    if change != Change::default() {
        count_change(tx, tenant, change, 0)?;
    }
    Ok(())
}

/// Counts a client's change, and refuses it beyond a bound.
pub(crate) fn keep(tx: &Tx<'_>, (tenant, no): (&Tenant, i64), change: Change) -> Result<()> {
    let (after, _) = count_change(tx, no, change, 0)?;
    refuse_beyond(tx.bounds().of(tenant), tenant, change, after)
}

/// As [`keep`], for new turns: also advances the tenant's position by their number, and
/// returns the new position.
pub(crate) fn keep_turns(tx: &Tx<'_>, (tenant, no): (&Tenant, i64), change: Change) -> Result<i64> {
    let (after, position) = count_change(tx, no, change, change.turns)?;
    refuse_beyond(tx.bounds().of(tenant), tenant, change, after)?;
    Ok(position)
}

fn count_change(tx: &Tx<'_>, no: i64, change: Change, positions: i64) -> Result<(Change, i64)> {
    tx.one(
        "UPDATE tenants SET kept_turns = kept_turns + ?2, kept_bytes = kept_bytes + ?3,
                            position = position + ?4
         WHERE tenant = ?1 RETURNING kept_turns, kept_bytes, position",
        [no, change.turns, change.bytes, positions],
        tuple,
    )
}

/// The sum of a column that a `DELETE … RETURNING` yields.
pub(crate) fn freed(tx: &Tx<'_>, sql: &str, values: impl Params) -> Result<i64> {
    Ok(tx.all(sql, values, column::<i64>)?.into_iter().sum())
}

/// Adds to what a tenant used on a day, and returns the sum.
pub(crate) fn count_day(tx: &Tx<'_>, tenant: i64, day: i64, more: DayUse) -> Result<DayUse> {
    let sql = format!(
        "UPDATE tenants SET
             used_requests = CASE WHEN {OF_DAY} THEN used_requests + ?3 ELSE ?3 END,
             used_tokens = CASE WHEN {OF_DAY} THEN used_tokens + ?4 ELSE ?4 END,
             used_day = CASE WHEN {OF_DAY} THEN used_day ELSE ?1 END
         WHERE tenant = ?2 RETURNING used_requests, used_tokens"
    );
    tx.one(&sql, params![day, tenant, more.requests, more.tokens], tuple)
}

/// Finds tenants whose counters differ from what the tables hold.
pub(crate) fn check(tx: &Tx<'_>) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for (what, counter, kept) in
        [("turns", "kept_turns", KEPT_TURNS), ("bytes", "kept_bytes", KEPT_BYTES)]
    {
        let sql = format!("SELECT n.name FROM tenants n WHERE n.{counter} != {kept} ORDER BY 1");
        findings.extend(tx.all(&sql, [], |row| {
            let tenant: String = row.get(0)?;
            Ok(format!(
                "a tenant's count of {what} is wrong: {tenant}; `icecore check --repair` counts anew"
            ))
        })?);
    }
    Ok(findings)
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
        let damaged = store.write(Isolation::Global, "test", move |tx| tx.run(damage, params![]));
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
