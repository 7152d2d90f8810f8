//! What models answered, and what that cost.

use std::collections::BTreeMap;

use super::engine::{self, Connection, OptionalExtension, Row, params};
use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::redact::RedactedText;

use super::rows::{self, ScopeNo};
use super::{Shared, pyramid, secrets, usage};
use crate::store::*;
use crate::told::Again;

pub(super) fn put(c: &Connection, s: &Shared, scope: &Scope, answer: &NewAnswer) -> Result<()> {
    secrets::refuse_changed(c, s, scope.tenant(), answer.secrets_seen)?;
    if rows::scope_head(c, s, scope)?.epoch != answer.epoch {
        return Ok(());
    }
    let no = match answer.session {
        Some(session) => pyramid::owned(c, s, scope, session)?,
        None => Some(rows::ensure_scope(c, s, scope)?),
    };
    let Some(no) = no else { return Ok(()) };
    c.prepare_cached(
        "INSERT INTO answers (tenant, scope, key, session, text, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (tenant, scope, key) DO UPDATE
           SET session = excluded.session, text = excluded.text, created_at = excluded.created_at",
    )
    .and_then(|mut q| {
        q.execute(params![
            no.tenant,
            no.scope,
            answer.key.as_slice(),
            answer.session.map(|session| rows::number(session.0)),
            answer.text.as_str(),
            answer.now.0,
        ])
    })
    .map(|_| ())
    .map_err(|e| s.failed(e))
}

#[expect(clippy::disallowed_methods, reason = "answers come from our own rows")]
pub(super) fn get(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    key: &[u8; 32],
) -> Result<Option<RedactedText>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(None) };
    c.prepare_cached("SELECT text FROM answers WHERE tenant = ?1 AND scope = ?2 AND key = ?3")
        .and_then(|mut q| {
            let key = params![no.tenant, no.scope, key.as_slice()];
            q.query_row(key, |row| row.get(0).map(RedactedText::read_back)).optional()
        })
        .map_err(|e| s.failed(e))
}

/// Deletes the answers of a memory that are about no session alone, and those about one.
pub(super) fn forget(c: &Connection, no: ScopeNo, session: Option<i64>) -> engine::Result<()> {
    c.prepare_cached(
        "DELETE FROM answers WHERE tenant = ?1 AND scope = ?2 AND (session IS NULL OR session = ?3)",
    )?
    .execute(params![no.tenant, no.scope, session])?;
    Ok(())
}

/// Deletes all answers of a tenant.
pub(super) fn forget_all(c: &Connection, tenant: i64) -> engine::Result<()> {
    c.execute("DELETE FROM answers WHERE tenant = ?1", [tenant])?;
    Ok(())
}

/// Whether any answer of a tenant has something to hide.
pub(super) fn hides(c: &Connection, tenant: i64, again: &Again<'_>) -> engine::Result<bool> {
    let mut query = c.prepare("SELECT text FROM answers WHERE tenant = ?1")?;
    let mut found = query.query([tenant])?;
    while let Some(row) = found.next()? {
        // One that cannot be read may hold anything, and can be asked for again.
        if row.get_ref(0)?.as_str().map_or(true, |text| again.text(text).is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

// What it cost

const COUNTS: &str = "calls, failed, reused, input, cached_input, output, cost, saved";

fn read(row: &Row<'_>) -> engine::Result<Spending> {
    let number = |column: usize| row.get::<_, i64>(column).map(|number| number as u64);
    Ok(Spending {
        day: row.get(0)?,
        purpose: row.get(1)?,
        model: row.get(2)?,
        calls: number(3)?,
        failed: number(4)?,
        reused: number(5)?,
        input: number(6)?,
        cached_input: number(7)?,
        output: number(8)?,
        cost: number(9)?,
        saved: number(10)?,
    })
}

pub(super) fn spend(c: &Connection, s: &Shared, scope: &Scope, spent: &[Spending]) -> Result<()> {
    if spent.is_empty() {
        return Ok(());
    }
    let no = rows::ensure_scope(c, s, scope)?;
    let spend = |one: &Spending| {
        spend_one(c, no, one)?;
        let more = DayUse { requests: 0, tokens: one.input.saturating_add(one.output) };
        match more.is_empty() {
            true => Ok(()),
            false => usage::count_day(c, no.tenant, one.day, more).map(|_| ()),
        }
    };
    spent.iter().try_for_each(spend).map_err(|e| s.failed(e))
}

fn spend_one(c: &Connection, no: ScopeNo, spent: &Spending) -> engine::Result<()> {
    let known = c
        .prepare_cached(&format!(
            "SELECT day, purpose, model, {COUNTS} FROM spending
             WHERE tenant = ?1 AND scope = ?2 AND day = ?3 AND purpose = ?4 AND model = ?5"
        ))?
        .query_row(params![no.tenant, no.scope, spent.day, spent.purpose, spent.model], read)
        .optional()?;
    let mut sum = known.unwrap_or_default();
    sum.add(spent);
    c.prepare_cached(&format!(
        "INSERT INTO spending (tenant, scope, day, purpose, model, {COUNTS})
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
         ON CONFLICT (tenant, scope, day, purpose, model) DO UPDATE
           SET calls = excluded.calls, failed = excluded.failed, reused = excluded.reused,
             input = excluded.input, cached_input = excluded.cached_input,
             output = excluded.output, cost = excluded.cost, saved = excluded.saved"
    ))?
    .execute(params![
        no.tenant,
        no.scope,
        spent.day,
        spent.purpose,
        spent.model,
        rows::number(sum.calls),
        rows::number(sum.failed),
        rows::number(sum.reused),
        rows::number(sum.input),
        rows::number(sum.cached_input),
        rows::number(sum.output),
        rows::number(sum.cost),
        rows::number(sum.saved),
    ])?;
    Ok(())
}

pub(super) fn spent(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    memory: Option<&str>,
    since_day: i64,
) -> Result<Vec<Spending>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(Vec::new()) };
    let found: Vec<Spending> = c
        .prepare_cached(&format!(
            "SELECT day, purpose, model, {COUNTS} FROM spending WHERE tenant = ?1 AND day >= ?2
               AND (?3 IS NULL OR scope = (SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?3))"
        ))
        .and_then(|mut q| q.query_map(params![no, since_day, memory], read)?.collect())
        .map_err(|e| s.failed(e))?;
    let mut sums: BTreeMap<(i64, String, String), Spending> = BTreeMap::new();
    for one in found {
        let key = (one.day, one.purpose.clone(), one.model.clone());
        match sums.get_mut(&key) {
            Some(sum) => sum.add(&one),
            None => drop(sums.insert(key, one)),
        }
    }
    Ok(sums.into_values().collect())
}
