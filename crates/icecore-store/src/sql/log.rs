//! The log: records, events from it, and what is kept for callers' retries.

use std::collections::{BTreeMap, BTreeSet};

use super::engine::{self, Connection, OptionalExtension, Row, params};
use icecore_domain::ids::{Branch, Position, Scope, Seq, SessionNo, Tenant, TurnId};
use icecore_domain::time::Millis;

use super::stretches::Reach;
use super::{Shared, rows, secrets};
use crate::error::StoreError;
use crate::handoffs::{OF_SESSIONS, named, session_of};
use crate::store::*;

/// Adds a record at the tenant's next position.
pub(super) fn record(
    c: &Connection,
    tenant: i64,
    scope: Option<i64>,
    kind: &str,
    payload: &str,
    now: Millis,
) -> engine::Result<Position> {
    let position: i64 = c
        .prepare_cached(
            "UPDATE tenants SET position = position + 1 WHERE tenant = ?1 RETURNING position",
        )?
        .query_row([tenant], |row| row.get(0))?;
    c.prepare_cached(
        "INSERT INTO log (tenant, position, scope, at, kind, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![tenant, position, scope, now.0, kind, payload])?;
    Ok(Position(position as u64))
}

pub(super) fn put(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    kind: LogKind,
    payload: &str,
    now: Millis,
) -> Result<Position> {
    let no = rows::ensure_scope(c, s, scope)?;
    record(c, no.tenant, Some(no.scope), kind.as_str(), payload, now).map_err(|e| s.failed(e))
}

pub(super) fn put_of_tenant(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    kind: LogKind,
    payload: &str,
    now: Millis,
) -> Result<Position> {
    let (no, _) = rows::ensure_tenant(c, s, tenant)?;
    record(c, no, None, kind.as_str(), payload, now).map_err(|e| s.failed(e))
}

/// The position that the next record of a tenant gets, which nobody else takes before
/// this transaction ends.
pub(super) fn next(c: &Connection, s: &Shared, tenant: &Tenant) -> Result<Position> {
    c.prepare_cached(
        "UPDATE tenants SET position = position WHERE name = ?1 RETURNING position + 1",
    )
    .and_then(|mut q| q.query_row([tenant.as_str()], |row| row.get::<_, i64>(0)).optional())
    .map(|found| Position(found.unwrap_or(1) as u64))
    .map_err(|e| s.failed(e))
}

pub(super) fn head(c: &Connection, s: &Shared, tenant: &Tenant) -> Result<Position> {
    c.prepare_cached("SELECT position FROM tenants WHERE name = ?1")
        .and_then(|mut q| q.query_row([tenant.as_str()], |row| row.get::<_, i64>(0)).optional())
        .map(|found| Position(found.unwrap_or(0) as u64))
        .map_err(|e| s.failed(e))
}

pub(super) fn erasures(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    after: Position,
    now: Millis,
) -> Result<Erasures> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(Erasures::default()) };
    let [deleted, expired] = ENDING;
    c.prepare_cached(
        "SELECT (SELECT coalesce(sum(epoch), 0) FROM scopes WHERE tenant = ?1),
                (SELECT count(*) FROM log WHERE tenant = ?1 AND position > ?2 AND kind IN (?3, ?4)),
                (SELECT count(*) FROM entries INDEXED BY entries_expiring
                 WHERE expires_at <= ?5 AND tenant = ?1)",
    )
    .and_then(|mut q| {
        q.query_row(params![no, rows::number(after.0), deleted, expired, now.0], |row| {
            let number = |column| row.get::<_, i64>(column).map(|number| number as u64);
            Ok(Erasures { epoch: number(0)?, ended: number(1)?, expired: number(2)? })
        })
    })
    .map_err(|e| s.failed(e))
}

pub(super) fn events(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    memory: Option<&str>,
    after: Position,
    limit: usize,
) -> Result<Vec<EventRecord>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(Vec::new()) };
    let after = rows::number(after.0);
    let read = || {
        let mut events = log_events(c, no, memory, after, limit)?;
        name_sessions(c, no, &mut events)?;
        events.extend(turn_events(c, no, memory, after, limit)?);
        Ok(events)
    };
    let mut events: Vec<EventRecord> = read().map_err(|e| s.failed(e))?;
    events.sort_by_key(|event| event.position);
    events.truncate(limit);
    Ok(events)
}

fn log_events(
    c: &Connection,
    tenant: i64,
    memory: Option<&str>,
    after: i64,
    limit: usize,
) -> engine::Result<Vec<EventRecord>> {
    let read = |row: &Row<'_>| {
        Ok(EventRecord {
            position: Position(row.get::<_, i64>(0)? as u64),
            at: Millis(row.get(1)?),
            kind: row.get(2)?,
            payload: row.get(3)?,
        })
    };
    let limit = rows::number(limit as u64);
    match memory {
        None => c
            .prepare_cached(
                "SELECT position, at, kind, payload FROM log
                 WHERE tenant = ?1 AND position > ?2 ORDER BY position LIMIT ?3",
            )?
            .query_map(params![tenant, after, limit], read)?
            .collect(),
        Some(memory) => c
            .prepare_cached(OF_MEMORY)?
            .query_map(params![tenant, after, limit, memory], read)?
            .collect(),
    }
}

/// Puts names of sessions in the place of numbers: a name goes when its session is
/// forgotten.
fn name_sessions(c: &Connection, tenant: i64, events: &mut [EventRecord]) -> engine::Result<()> {
    let session_of = |event: &EventRecord| {
        let is_of_session = OF_SESSIONS.contains(&event.kind.as_str());
        session_of(&event.payload).filter(|_| is_of_session).map(|session| session.0)
    };
    let sessions: BTreeSet<u64> = events.iter().filter_map(session_of).collect();
    let key = |session: &u64| engine::integers(vec![tenant, rows::number(*session)]);
    let keys: Vec<_> = sessions.iter().map(key).collect();
    let found: Vec<Vec<Option<String>>> = c
        .prepare_cached("SELECT name FROM sessions WHERE tenant = ?1 AND session = ?2")?
        .query_each(&keys, |row| row.get(0))?;
    let names: BTreeMap<u64, Option<String>> = sessions
        .into_iter()
        .zip(found.into_iter().map(|names| names.into_iter().flatten().next()))
        .collect();
    for event in events {
        if let Some(session) = session_of(event) {
            let name = names.get(&session).and_then(Option::as_deref);
            event.payload = named(&event.payload, name);
        }
    }
    Ok(())
}

/// One memory's part of the log. The index is named, for the planner cannot know that
/// a memory may have little of a long log.
const OF_MEMORY: &str = "SELECT position, at, kind, payload FROM log INDEXED BY log_by_scope
     WHERE tenant = ?1 AND position > ?2
       AND scope = (SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?4)
     ORDER BY position LIMIT ?3";

/// `turn.appended`, read from the turns: a run gives position and time, the
/// turn's row its branch.
fn turn_events(
    c: &Connection,
    tenant: i64,
    memory: Option<&str>,
    after: i64,
    limit: usize,
) -> engine::Result<Vec<EventRecord>> {
    let scope = match memory {
        None => None,
        Some(memory) => {
            let sql = "SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2";
            let found: Option<i64> = c
                .prepare_cached(sql)?
                .query_row(params![tenant, memory], |row| row.get(0))
                .optional()?;
            match found {
                Some(scope) => Some(scope),
                None => return Ok(Vec::new()),
            }
        }
    };
    let stretches = Reach { tenant, scope }.after(c, after, limit)?;
    let keys: Vec<_> = stretches.iter().map(|stretch| stretch.key(tenant)).collect();
    let found = c
        .prepare_cached(
            "SELECT t.position, t.session, t.seq, t.branch, o.name, s.memory,
                    (SELECT json_group_object(h.kind, h.count) FROM hidden h
                     WHERE h.tenant = t.tenant AND h.position = t.position)
             FROM turns t
             JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session
             JOIN scopes s ON s.tenant = o.tenant AND s.scope = o.scope
             WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq >= ?3 AND t.seq < ?4
             ORDER BY t.seq",
        )?
        .query_each(&keys, read_turn_event)?;
    let dated = stretches.iter().zip(found).flat_map(|(stretch, events)| {
        events.into_iter().map(|event| EventRecord { at: stretch.at, ..event })
    });
    Ok(dated.collect())
}

fn read_turn_event(row: &Row<'_>) -> engine::Result<EventRecord> {
    let session = SessionNo(row.get::<_, i64>(1)? as u64);
    let seq = Seq(row.get::<_, i64>(2)? as u64);
    let name: Option<String> = row.get(4)?;
    let memory: String = row.get(5)?;
    let payload = serde_json::json!({
        "memoryRef": memory,
        "session": name,
        "seq": seq.0,
        "branch": Branch(row.get(3)?).to_string(),
        "turnId": TurnId { session, seq }.to_string(),
    });
    Ok(EventRecord {
        position: Position(row.get::<_, i64>(0)? as u64),
        at: Millis(0),
        kind: "turn.appended".to_owned(),
        payload: payload_with(payload, &secrets::read_hidden(row, 6)?),
    })
}

// Outcomes

pub(super) fn refuse_taken<T>(
    c: &Connection,
    s: &Shared,
    tenant: i64,
    claim: &Claim<T>,
    now: Millis,
) -> Result<()> {
    let taken: Option<i64> = c
        .prepare_cached(
            "SELECT 1 FROM outcomes WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND at > ?4",
        )
        .and_then(|mut q| {
            let since = now.0 - OUTCOME_KEPT_MILLIS;
            q.query_row(params![tenant, claim.operation, claim.key, since], |row| row.get(0))
                .optional()
        })
        .map_err(|e| s.failed(e))?;
    match taken {
        Some(_) => Err(StoreError::ClaimTaken),
        None => Ok(()),
    }
}

pub(super) fn outcome(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    operation: &str,
    key: &str,
    now: Millis,
) -> Result<Option<StoredOutcome>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(None) };
    c.prepare_cached(
        "SELECT request, status, body FROM outcomes
         WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND at > ?4",
    )
    .and_then(|mut q| {
        q.query_row(params![no, operation, key, now.0 - OUTCOME_KEPT_MILLIS], |row| {
            let request: Vec<u8> = row.get(0)?;
            let body: Vec<u8> = row.get(2)?;
            Ok(StoredOutcome {
                request: request.try_into().unwrap_or_default(),
                status: row.get(1)?,
                body: String::from_utf8_lossy(&body).into_owned(),
            })
        })
        .optional()
    })
    .map_err(|e| s.failed(e))
}

pub(super) fn put_outcome(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    outcome: &NewOutcome,
    now: Millis,
) -> Result<()> {
    let (no, _) = rows::ensure_tenant(c, s, tenant)?;
    put_outcome_of(c, s, no, outcome, now)
}

pub(super) fn put_outcome_of(
    c: &Connection,
    s: &Shared,
    tenant: i64,
    outcome: &NewOutcome,
    now: Millis,
) -> Result<()> {
    let put = || {
        c.prepare_cached("DELETE FROM outcomes WHERE tenant = ?1 AND at <= ?2")?
            .execute(params![tenant, now.0 - OUTCOME_KEPT_MILLIS])?;
        c.prepare_cached(
            "INSERT INTO outcomes (tenant, operation, key, request, status, body, at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (tenant, operation, key) DO UPDATE
               SET request = excluded.request, status = excluded.status, body = excluded.body,
                 at = excluded.at",
        )?
        .execute(params![
            tenant,
            outcome.operation,
            outcome.key,
            outcome.request.as_slice(),
            outcome.status,
            outcome.body.as_bytes(),
            now.0
        ])
    };
    put().map(|_| ()).map_err(|e| s.failed(e))
}

pub(super) fn purge_outcomes(c: &Connection, s: &Shared, now: Millis) -> Result<u64> {
    c.execute("DELETE FROM outcomes WHERE at <= ?1", [now.0 - OUTCOME_KEPT_MILLIS])
        .map(|gone| gone as u64)
        .map_err(|e| s.failed(e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqliteStore;
    use crate::sql::Wall;

    #[tokio::test]
    async fn one_memorys_events_are_found_by_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path(), None).unwrap();
        let steps = store.read(Wall::Everyone, |c, s| c.plan(OF_MEMORY).map_err(|e| s.failed(e)));
        let steps = steps.await.unwrap();
        let found = "log_by_scope (tenant=? AND scope=? AND position>?)";
        assert!(steps.iter().any(|step| step.contains(found)), "{steps:?}");
        assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:?}");
    }
}
