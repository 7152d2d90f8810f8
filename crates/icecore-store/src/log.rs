//! The log: records, events from it, and what is kept for callers' retries.

pub(crate) mod hidden;
pub(crate) mod ranges;

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::ids::{Branch, Position, Scope, Seq, SessionNo, Tenant, TurnId};
use icecore_domain::redact::Hidden;
use icecore_domain::time::Millis;

use crate::engine::tx::{Isolation, Tx};
use crate::engine::{OptionalExtension, Row, params};
use crate::error::Result;
use crate::log::ranges::Reach;
use crate::store::Store;
use crate::{engine, scopes};

/// What a caller may write into the log by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    /// An erasure is done.
    Forgotten,
    /// What was stored has been redacted again.
    Rescanned,
    /// A key was shown that may not do what was asked.
    Denied,
    /// A backup was restored.
    Restored,
}

impl LogKind {
    /// The event's kind.
    pub fn as_str(self) -> &'static str {
        match self {
            LogKind::Forgotten => "memory.forgotten",
            LogKind::Rescanned => "memory.rescanned",
            LogKind::Denied => "auth.denied",
            LogKind::Restored => "memory.restored",
        }
    }
}

/// An event's payload, with what was hidden if anything was.
pub(crate) fn payload_with(mut payload: serde_json::Value, hidden: &Hidden) -> String {
    if !hidden.is_empty() {
        payload["redacted"] = serde_json::json!(hidden);
    }
    payload.to_string()
}

/// What became of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is new.
    Added,
    /// It was there.
    Known,
    /// It was there, was erased, and stays so.
    Forgotten,
}

/// A record of the log as an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// Its number.
    pub position: Position,
    /// When it was written.
    pub at: Millis,
    /// For example `turn.appended`.
    pub kind: String,
    /// Content-free JSON object.
    pub payload: String,
}

/// What has gone of a tenant; only good to be compared. See [`Store::erasures`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Erasures {
    /// The sum of the epochs of its memories.
    pub epoch: u64,
    /// Records of the log that tell of something deleted or let go.
    pub ended: u64,
    /// Entries that have expired and are not purged.
    pub expired: u64,
}

/// Adds a record at the tenant's next position.
pub(crate) fn record(
    tx: &Tx<'_>,
    tenant: i64,
    scope: Option<i64>,
    kind: &str,
    payload: &str,
    now: Millis,
) -> Result<Position> {
    let position: i64 = tx
        .prepare_cached(
            "UPDATE tenants SET position = position + 1 WHERE tenant = ?1 RETURNING position",
        )?
        .query_row([tenant], |row| row.get(0))?;
    tx.prepare_cached(
        "INSERT INTO log (tenant, position, scope, at, kind, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![tenant, position, scope, now.0, kind, payload])?;
    Ok(Position(position as u64))
}

pub(crate) fn put(
    tx: &Tx<'_>,
    scope: &Scope,
    kind: LogKind,
    payload: &str,
    now: Millis,
) -> Result<Position> {
    let no = scopes::ensure_scope(tx, scope)?;
    record(tx, no.tenant, Some(no.scope), kind.as_str(), payload, now)
}

pub(crate) fn put_of_tenant(
    tx: &Tx<'_>,
    tenant: &Tenant,
    kind: LogKind,
    payload: &str,
    now: Millis,
) -> Result<Position> {
    let (no, _) = scopes::ensure_tenant(tx, tenant)?;
    record(tx, no, None, kind.as_str(), payload, now)
}

/// The position that the next record of a tenant gets, which nobody else takes before
/// this transaction ends.
pub(crate) fn next(tx: &Tx<'_>, tenant: &Tenant) -> Result<Position> {
    tx.prepare_cached(
        "UPDATE tenants SET position = position WHERE name = ?1 RETURNING position + 1",
    )
    .and_then(|mut q| q.query_row([tenant.as_str()], |row| row.get::<_, i64>(0)).optional())
    .map(|found| Position(found.unwrap_or(1) as u64))
}

pub(crate) fn head(tx: &Tx<'_>, tenant: &Tenant) -> Result<Position> {
    tx.prepare_cached("SELECT position FROM tenants WHERE name = ?1")
        .and_then(|mut q| q.query_row([tenant.as_str()], |row| row.get::<_, i64>(0)).optional())
        .map(|found| Position(found.unwrap_or(0) as u64))
}

pub(crate) fn erasures(
    tx: &Tx<'_>,
    tenant: &Tenant,
    after: Position,
    now: Millis,
) -> Result<Erasures> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(Erasures::default()) };
    let [deleted, expired] = ENDING;
    tx.prepare_cached(
        "SELECT (SELECT coalesce(sum(epoch), 0) FROM scopes WHERE tenant = ?1),
                (SELECT count(*) FROM log WHERE tenant = ?1 AND position > ?2 AND kind IN (?3, ?4)),
                (SELECT count(*) FROM entries INDEXED BY entries_expiring
                 WHERE expires_at <= ?5 AND tenant = ?1)",
    )
    .and_then(|mut q| {
        q.query_row(params![no, engine::number(after.0), deleted, expired, now.0], |row| {
            let number = |column| row.get::<_, i64>(column).map(|number| number as u64);
            Ok(Erasures { epoch: number(0)?, ended: number(1)?, expired: number(2)? })
        })
    })
}

pub(crate) fn events(
    tx: &Tx<'_>,
    tenant: &Tenant,
    memory: Option<&str>,
    after: Position,
    limit: usize,
) -> Result<Vec<EventRecord>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(Vec::new()) };
    let after = engine::number(after.0);
    let read = || -> Result<_> {
        let mut events = log_events(tx, no, memory, after, limit)?;
        name_sessions(tx, no, &mut events)?;
        events.extend(turn_events(tx, no, memory, after, limit)?);
        Ok(events)
    };
    let mut events: Vec<EventRecord> = read()?;
    events.sort_by_key(|event| event.position);
    events.truncate(limit);
    Ok(events)
}

fn log_events(
    tx: &Tx<'_>,
    tenant: i64,
    memory: Option<&str>,
    after: i64,
    limit: usize,
) -> Result<Vec<EventRecord>> {
    let read = |row: &Row<'_>| -> Result<_> {
        Ok(EventRecord {
            position: Position(row.get::<_, i64>(0)? as u64),
            at: Millis(row.get(1)?),
            kind: row.get(2)?,
            payload: row.get(3)?,
        })
    };
    let limit = engine::number(limit as u64);
    match memory {
        None => tx
            .prepare_cached(
                "SELECT position, at, kind, payload FROM log
                 WHERE tenant = ?1 AND position > ?2 ORDER BY position LIMIT ?3",
            )?
            .query_map(params![tenant, after, limit], read)?
            .collect(),
        Some(memory) => tx
            .prepare_cached(OF_MEMORY)?
            .query_map(params![tenant, after, limit, memory], read)?
            .collect(),
    }
}

/// Puts names of sessions in the place of numbers: a name goes when its session is
/// forgotten.
fn name_sessions(tx: &Tx<'_>, tenant: i64, events: &mut [EventRecord]) -> Result<()> {
    let session_of = |event: &EventRecord| {
        let is_of_session = OF_SESSIONS.contains(&event.kind.as_str());
        session_of(&event.payload).filter(|_| is_of_session).map(|session| session.0)
    };
    let sessions: BTreeSet<u64> = events.iter().filter_map(session_of).collect();
    let key = |session: &u64| engine::integers(vec![tenant, engine::number(*session)]);
    let keys: Vec<_> = sessions.iter().map(key).collect();
    let found: Vec<Vec<Option<String>>> = tx
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
    tx: &Tx<'_>,
    tenant: i64,
    memory: Option<&str>,
    after: i64,
    limit: usize,
) -> Result<Vec<EventRecord>> {
    let scope = match memory {
        None => None,
        Some(memory) => {
            let sql = "SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2";
            let found: Option<i64> = tx
                .prepare_cached(sql)?
                .query_row(params![tenant, memory], |row| row.get(0))
                .optional()?;
            match found {
                Some(scope) => Some(scope),
                None => return Ok(Vec::new()),
            }
        }
    };
    let stretches = Reach { tenant, scope }.after(tx, after, limit)?;
    let keys: Vec<_> = stretches.iter().map(|stretch| stretch.key(tenant)).collect();
    let found = tx
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

fn read_turn_event(row: &Row<'_>) -> Result<EventRecord> {
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
        payload: payload_with(payload, &hidden::read_hidden(row, 6)?),
    })
}

impl Store {
    /// Writes the record of something finished into the log.
    pub async fn log(
        &self,
        scope: &Scope,
        kind: LogKind,
        payload: String,
        now: Millis,
    ) -> Result<Position> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "log", move |tx| put(tx, &scope, kind, &payload, now))
            .await
    }

    /// Writes a record into the log that is of a tenant and of none of its memories.
    pub async fn log_of_tenant(
        &self,
        tenant: &Tenant,
        kind: LogKind,
        payload: String,
        now: Millis,
    ) -> Result<Position> {
        let tenant = tenant.clone();
        self.write(Isolation::from(&tenant), "log_of_tenant", move |tx| {
            put_of_tenant(tx, &tenant, kind, &payload, now)
        })
        .await
    }

    /// Events of a tenant (and memory) after a position, in order.
    pub async fn events(
        &self,
        tenant: &Tenant,
        memory: Option<&str>,
        after: Position,
        limit: usize,
    ) -> Result<Vec<EventRecord>> {
        let (tenant, memory) = (tenant.clone(), memory.map(str::to_owned));
        self.read(Isolation::from(&tenant), "events", move |tx| {
            events(tx, &tenant, memory.as_deref(), after, limit)
        })
        .await
    }

    /// The tenant's last position.
    pub async fn head(&self, tenant: &Tenant) -> Result<Position> {
        let tenant = tenant.clone();
        self.read(Isolation::from(&tenant), "head", move |tx| head(tx, &tenant)).await
    }

    /// What has gone of a tenant. Whoever kept something that it read may show it
    /// again as long as this is the same, asked for with the same `after`, which is
    /// the head before it was read. It changes with every erasure, rewriting and
    /// purge, with every entry that is deleted or expires, and with every body that
    /// retention lets go; not with what is added.
    pub async fn erasures(
        &self,
        tenant: &Tenant,
        after: Position,
        now: Millis,
    ) -> Result<Erasures> {
        let tenant = tenant.clone();
        self.read(Isolation::from(&tenant), "erasures", move |tx| erasures(tx, &tenant, after, now))
            .await
    }
}

/// The kinds of records whose payload has a session's number in the store, and its name
/// where it is read.
pub(crate) const OF_SESSIONS: [&str; 2] = [COMPACTED, EDITED];

/// The session whose number a payload has.
pub(crate) fn session_of(payload: &str) -> Option<SessionNo> {
    let value: serde_json::Value = serde_json::from_str(payload).ok()?;
    value["session"].as_u64().map(SessionNo)
}

/// A payload with the name that its session has now, if it has one.
pub(crate) fn named(payload: &str, name: Option<&str>) -> String {
    let Ok(mut value) = serde_json::from_str::<serde_json::Value>(payload) else {
        return payload.to_owned();
    };
    value["session"] = name.into();
    value.to_string()
}

/// A handoff was kept.
pub(crate) const COMPACTED: &str = "session.compacted";

/// A person changed one.
pub(crate) const EDITED: &str = "session.handoff_edited";

/// Kinds of records that tell that something is not shown any more.
pub(crate) const ENDING: [&str; 2] = ["memory.deleted", "memory.expired"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::engine::tx::Isolation;

    #[tokio::test]
    async fn one_memorys_events_are_found_by_an_index() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), None).unwrap();
        let steps = store.read(Isolation::Global, "test", |tx| tx.plan(OF_MEMORY));
        let steps = steps.await.unwrap();
        let found = "log_by_scope (tenant=? AND scope=? AND position>?)";
        assert!(steps.iter().any(|step| step.contains(found)), "{steps:?}");
        assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{steps:?}");
    }
}
