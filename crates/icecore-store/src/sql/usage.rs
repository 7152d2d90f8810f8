//! What tenants keep, counted with every change to it, and what they used on a day.

use super::engine::{self, Connection, OptionalExtension, params};
use icecore_domain::ids::Tenant;

use super::{Shared, rows};
use crate::bounds::{Change, goes_on, refuse_beyond};
use crate::store::*;

/// Turns of tenant `n` that are kept.
pub(super) const KEPT_TURNS: &str =
    "(SELECT count(*) FROM turns t WHERE t.tenant = n.tenant AND t.flags & 12 = 0)";

/// Bytes of tenant `n` that are kept.
pub(super) const KEPT_BYTES: &str =
    "(SELECT coalesce(sum(length(b.body)), 0) FROM bodies b WHERE b.tenant = n.tenant)
     + (SELECT coalesce(sum(length(x.text)), 0) FROM texts x WHERE x.tenant = n.tenant)
     + (SELECT coalesce(sum(p.bytes), 0) FROM packs p WHERE p.tenant = n.tenant)
     + (SELECT coalesce(sum(length(e.content) + octet_length(e.tags)), 0) FROM entries e
        WHERE e.tenant = n.tenant)
     + (SELECT coalesce(sum(length(f.content)), 0) FROM files f WHERE f.tenant = n.tenant)";

/// Counts a change, whatever the bounds are.
pub(super) fn change(c: &Connection, tenant: i64, change: Change) -> engine::Result<()> {
    match change == Change::default() {
        true => Ok(()),
        false => count_change(c, tenant, change).map(|_| ()),
    }
}

/// Counts what a client gives, and refuses it beyond a bound.
pub(super) fn keep(
    c: &Connection,
    s: &Shared,
    (tenant, no): (&Tenant, i64),
    change: Change,
) -> Result<()> {
    let after = count_change(c, no, change).map_err(|e| s.failed(e))?;
    refuse_beyond(s.bounds.of(tenant), tenant, change, after)
}

fn count_change(c: &Connection, tenant: i64, change: Change) -> engine::Result<Change> {
    c.prepare_cached(
        "UPDATE tenants SET kept_turns = kept_turns + ?2, kept_bytes = kept_bytes + ?3
         WHERE tenant = ?1 RETURNING kept_turns, kept_bytes",
    )?
    .query_row([tenant, change.turns, change.bytes], |row| {
        Ok(Change { turns: row.get(0)?, bytes: row.get(1)? })
    })
}

/// Moves the tenant's counter on together with what turns add, and answers where it
/// stands.
pub(super) fn keep_turns(
    c: &Connection,
    s: &Shared,
    (tenant, no): (&Tenant, i64),
    change: Change,
) -> Result<i64> {
    let (position, after) = c
        .prepare_cached(
            "UPDATE tenants SET position = position + ?2, kept_turns = kept_turns + ?2,
                                kept_bytes = kept_bytes + ?3
             WHERE tenant = ?1 RETURNING position, kept_turns, kept_bytes",
        )
        .and_then(|mut q| {
            q.query_row([no, change.turns, change.bytes], |row| {
                Ok((row.get(0)?, Change { turns: row.get(1)?, bytes: row.get(2)? }))
            })
        })
        .map_err(|e| s.failed(e))?;
    refuse_beyond(s.bounds.of(tenant), tenant, change, after)?;
    Ok(position)
}

/// The sum of a column that rows going away answer.
pub(super) fn freed(c: &Connection, sql: &str, values: impl engine::Params) -> engine::Result<i64> {
    let mut query = c.prepare_cached(sql)?;
    let gone = query.query_map(values, |row| row.get::<_, i64>(0))?;
    gone.sum()
}

pub(super) fn usage(c: &Connection, s: &Shared, tenant: &Tenant, day: i64) -> Result<Usage> {
    let found = c.prepare_cached(
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
    found.map(Option::unwrap_or_default).map_err(|e| s.failed(e))
}

pub(super) fn count(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    day: i64,
    more: DayUse,
) -> Result<DayUse> {
    let (no, _) = rows::ensure_tenant(c, s, tenant)?;
    count_day(c, no, day, more).map_err(|e| s.failed(e))
}

/// Adds to what a tenant used on a day, and answers the sum.
pub(super) fn count_day(
    c: &Connection,
    tenant: i64,
    day: i64,
    more: DayUse,
) -> engine::Result<DayUse> {
    let goes_on = "used_day = ?2 OR used_day = ?2 + 1";
    c.prepare_cached(&format!(
        "UPDATE tenants SET
             used_requests = CASE WHEN {goes_on} THEN used_requests + ?3 ELSE ?3 END,
             used_tokens = CASE WHEN {goes_on} THEN used_tokens + ?4 ELSE ?4 END,
             used_day = CASE WHEN {goes_on} THEN used_day ELSE ?2 END
         WHERE tenant = ?1 RETURNING used_requests, used_tokens"
    ))?
    .query_row([tenant, day, rows::number(more.requests), rows::number(more.tokens)], |row| {
        Ok(DayUse { requests: row.get(0)?, tokens: row.get(1)? })
    })
}

pub(super) fn recount(c: &Connection, s: &Shared) -> Result<u64> {
    let recount = format!(
        "UPDATE tenants AS n SET kept_turns = {KEPT_TURNS}, kept_bytes = {KEPT_BYTES}
         WHERE n.kept_turns != {KEPT_TURNS} OR n.kept_bytes != {KEPT_BYTES}"
    );
    c.execute(&recount, params![]).map(|changed| changed as u64).map_err(|e| s.failed(e))
}

pub(super) fn all(c: &Connection, s: &Shared, day: i64) -> Result<AllUsage> {
    c.prepare_cached(
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
    .map_err(|e| s.failed(e))
}

/// Tenants whose counters are not what their tables say.
pub(super) fn check(c: &Connection, s: &Shared) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for (what, column, kept) in
        [("turns", "kept_turns", KEPT_TURNS), ("bytes", "kept_bytes", KEPT_BYTES)]
    {
        let wrong: Vec<String> = c
            .prepare(&format!("SELECT n.name FROM tenants n WHERE n.{column} != {kept} ORDER BY 1"))
            .and_then(|mut q| q.query_map([], |row| row.get(0))?.collect())
            .map_err(|e| s.failed(e))?;
        findings.extend(wrong.into_iter().map(|tenant| {
            format!("a tenant's count of {what} is wrong: {tenant}; `icecore check --repair` counts anew")
        }));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqliteStore;
    use crate::contract::fixtures::*;
    use crate::sql::Wall;

    #[tokio::test]
    async fn counters_that_are_wrong_are_found_and_set_right() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path(), None).unwrap();
        add(&store, "s", &say_many(3)).await;
        let before = store.tenant_usage(&tenant("acme"), 0).await.unwrap();
        let damage = "UPDATE tenants SET kept_turns = kept_turns - 1, kept_bytes = 7";
        let damaged = store.write(Wall::Everyone, move |c, s| {
            c.execute(damage, params![]).map_err(|e| s.failed(e))
        });
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
