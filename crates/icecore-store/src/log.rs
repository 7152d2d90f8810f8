//! The log: records, the events that are read from it, and what has been erased.

pub(crate) mod hidden;
pub(crate) mod ranges;

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Branch, Position, SessionNo, Tenant, TurnId};
use icecore_domain::redact::Hidden;
use icecore_domain::time::Millis;
use serde_json::{Value as Json, json};

use crate::engine::prelude::*;
use crate::log::ranges::LogOf;
use crate::scopes;
use crate::store::Store;

/// Kinds of records that callers write themselves, by [`Store::log`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogKind {
    Forgotten,
    Rescanned,
    /// A key lacked the right to do what was asked.
    Denied,
    Restored,
}

impl LogKind {
    pub fn as_str(self) -> &'static str {
        match self {
            LogKind::Forgotten => "memory.forgotten",
            LogKind::Rescanned => "memory.rescanned",
            LogKind::Denied => "auth.denied",
            LogKind::Restored => "memory.restored",
        }
    }
}

/// What an append did with a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Added,
    Known,
    /// It was erased before, and stays erased.
    Forgotten,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    pub position: Position,
    pub at: Millis,
    /// For example `turn.appended`.
    pub kind: String,
    /// A JSON object without content.
    pub payload: String,
}

/// A fingerprint of a tenant's erasures, only good for comparing. See [`Store::erasures`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Erasures {
    pub epoch: u64,
    /// Records of the log about deleted or expired entries.
    pub ended: u64,
    /// Entries that have expired and are not purged.
    pub expired: u64,
}

pub(crate) const COMPACTED: &str = "session.compacted";

pub(crate) const EDITED: &str = "session.handoff_edited";

/// Kinds of records whose payload holds a session's number in the store, and its name
/// where it is read: the name must go when the session is forgotten.
pub(crate) const OF_SESSIONS: [&str; 2] = [COMPACTED, EDITED];

/// Kinds of records about something that is no longer shown.
pub(crate) const ENDING: [&str; 2] = ["memory.deleted", "memory.expired"];

impl Store {
    /// Adds a record to the log of a memory, or of a tenant and none of its memories.
    pub async fn log(
        &self,
        of: impl Into<Isolation>,
        kind: LogKind,
        payload: String,
        now: Millis,
    ) -> Result<Position> {
        self.write(of, "log", move |tx| {
            let (tenant, scope) = match tx.of() {
                Isolation::Scope(_) => {
                    let no = tx.ensure_scope()?;
                    (no.tenant, Some(no.scope))
                }
                _ => (tx.ensure_tenant()?.0, None),
            };
            record(tx, tenant, scope, kind.as_str(), &payload, now)
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
        let memory = memory.map(str::to_owned);
        self.read(tenant, "events", move |tx| {
            let Some(tenant) = tx.tenant_no()? else { return Ok(Vec::new()) };
            let mut log = LogOf { tenant, scope: None };
            if let Some(memory) = &memory {
                let sql = "SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2";
                let Some(scope) = tx.first(sql, params![tenant, memory], column)? else {
                    return Ok(Vec::new());
                };
                log.scope = Some(scope);
            }
            let mut events = log_events(tx, log, after, limit)?;
            name_sessions(tx, tenant, &mut events)?;
            events.extend(turn_events(tx, log, after, limit)?);
            events.sort_by_key(|event| event.position);
            events.truncate(limit);
            Ok(events)
        })
        .await
    }

    pub async fn head(&self, tenant: &Tenant) -> Result<Position> {
        self.read(tenant, "head", |tx| head(tx, tx.tenant()?)).await
    }

    /// Tells whether anything of a tenant was erased. A cached answer may be shown again
    /// while this returns what it returned before, for the same `after`: the head before
    /// the answer was read. It changes with every erasure, rewriting and purge, with every
    /// entry that is deleted or expires, and with every body that retention deletes; not
    /// with what is added.
    pub async fn erasures(
        &self,
        tenant: &Tenant,
        after: Position,
        now: Millis,
    ) -> Result<Erasures> {
        self.read(tenant, "erasures", move |tx| {
            let Some(no) = tx.tenant_no()? else { return Ok(Erasures::default()) };
            let [deleted, expired] = ENDING;
            tx.one(
                "SELECT (SELECT coalesce(sum(epoch), 0) FROM scopes WHERE tenant = ?1),
                (SELECT count(*) FROM log WHERE tenant = ?1 AND position > ?2 AND kind IN (?3, ?4)),
                (SELECT count(*) FROM entries INDEXED BY entries_expiring
                 WHERE expires_at <= ?5 AND tenant = ?1)",
                params![no, after, deleted, expired, now],
                tuple,
            )
        })
        .await
    }
}

pub(crate) fn record(
    tx: &Tx<'_>,
    tenant: i64,
    scope: Option<i64>,
    kind: &str,
    payload: &str,
    now: Millis,
) -> Result<Position> {
    let position = tx.one(
        "UPDATE tenants SET position = position + 1 WHERE tenant = ?1 RETURNING position",
        [tenant],
        column,
    )?;
    tx.insert("log", fields! { tenant, position, scope, at: now, kind, payload })?;
    Ok(position)
}

/// The position that the next record of a tenant gets. No other transaction takes it
/// before this one ends.
pub(crate) fn next(tx: &Tx<'_>, tenant: &Tenant) -> Result<Position> {
    let sql = "UPDATE tenants SET position = position WHERE name = ?1 RETURNING position + 1";
    Ok(tx.first(sql, [tenant.as_str()], column)?.unwrap_or(Position(1)))
}

/// An id for what begins at the tenant's next position, and that position. Keyed, so that
/// it reveals neither the tenant nor how many there are; the first letter says what it is.
pub(crate) fn new_id(tx: &Tx<'_>, tenant: &Tenant, kind: &str) -> Result<(String, Position)> {
    let position = next(tx, tenant)?;
    let (_, key) = scopes::ensure_tenant(tx, tenant)?;
    Ok((id_at(&key.identity_key(), kind, position), position))
}

pub(crate) fn id_at(key: &IdentityKey, kind: &str, position: Position) -> String {
    let hash = key.hash_name(kind, &position.to_string());
    format!("{}-{}", &kind[..1], hex::encode(&hash[..10]))
}

pub(crate) fn head(tx: &Tx<'_>, tenant: &Tenant) -> Result<Position> {
    let sql = "SELECT position FROM tenants WHERE name = ?1";
    Ok(tx.first(sql, [tenant.as_str()], column)?.unwrap_or_default())
}

/// The payload of an event, with the counts of what redaction hid, if it hid anything.
pub(crate) fn payload_with(mut payload: Json, hidden: &Hidden) -> String {
    if !hidden.is_empty() {
        payload["redacted"] = json!(hidden);
    }
    payload.to_string()
}

fn log_events(tx: &Tx<'_>, log: LogOf, after: Position, limit: usize) -> Result<Vec<EventRecord>> {
    let sql = if log.scope.is_some() { OF_MEMORY } else { OF_TENANT };
    let values = [log.tenant, number(after.0), number(limit as u64)].into_iter().chain(log.scope);
    tx.all(sql, params_from_iter(values), tuple)
}

record! {
    Erasures { epoch, ended, expired }
    EventRecord { position, at, kind, payload }
}

const OF_TENANT: &str = "SELECT position, at, kind, payload FROM log
     WHERE tenant = ?1 AND position > ?2 ORDER BY position LIMIT ?3";

/// One memory's part of the log. The index is named because the planner cannot know that
/// a memory may have few records of a long log.
const OF_MEMORY: &str = "SELECT position, at, kind, payload FROM log INDEXED BY log_by_scope
     WHERE tenant = ?1 AND position > ?2 AND scope = ?4 ORDER BY position LIMIT ?3";

/// Replaces the numbers of sessions in payloads by the names that they have now.
fn name_sessions(tx: &Tx<'_>, tenant: i64, events: &mut [EventRecord]) -> Result<()> {
    let is_of_session = |event: &&mut EventRecord| OF_SESSIONS.contains(&event.kind.as_str());
    let of_sessions: Vec<(SessionNo, &mut EventRecord)> = events
        .iter_mut()
        .filter(is_of_session)
        .filter_map(|event| Some((session_of(&event.payload)?, event)))
        .collect();
    let keys = of_sessions.iter().map(|(session, _)| values![tenant, *session]);
    let sql = "SELECT name FROM sessions WHERE tenant = ?1 AND session = ?2";
    let names = tx.each(sql, keys, column::<Option<String>>)?;
    for ((_, event), name) in of_sessions.into_iter().zip(names) {
        event.payload = named(&event.payload, name.into_iter().flatten().next().as_deref());
    }
    Ok(())
}

/// The session whose number a payload holds.
pub(crate) fn session_of(payload: &str) -> Option<SessionNo> {
    let value: Json = serde_json::from_str(payload).ok()?;
    value["session"].as_u64().map(SessionNo)
}

/// A payload with the name that its session has now, if it has one.
pub(crate) fn named(payload: &str, name: Option<&str>) -> String {
    let Ok(mut value) = serde_json::from_str::<Json>(payload) else {
        return payload.to_owned();
    };
    value["session"] = name.into();
    value.to_string()
}

/// `turn.appended`, which the log does not hold: the turns themselves say it.
fn turn_events(tx: &Tx<'_>, log: LogOf, after: Position, limit: usize) -> Result<Vec<EventRecord>> {
    let ranges = log.turns_after(tx, number(after.0), limit)?;
    let found = tx.each(
        "SELECT t.position, t.session, t.seq, t.branch, o.name, s.memory,
                (SELECT json_group_object(h.kind, h.count) FROM hidden h
                 WHERE h.tenant = t.tenant AND h.position = t.position)
         FROM turns t
         JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session
         JOIN scopes s ON s.tenant = o.tenant AND s.scope = o.scope
         WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq >= ?3 AND t.seq < ?4
         ORDER BY t.seq",
        ranges.iter().map(|range| range.key(log.tenant)),
        read_turn_event,
    )?;
    let dated = ranges.iter().zip(found).flat_map(|(range, events)| {
        events.into_iter().map(|event| EventRecord { at: range.appended_at, ..event })
    });
    Ok(dated.collect())
}

/// An event without its time.
fn read_turn_event(row: &Row<'_>) -> Result<EventRecord> {
    let mut columns = Columns::of(row);
    let (position, id, branch): (_, TurnId, Branch) = columns.get()?;
    let (session, memory): (Option<String>, String) = columns.get()?;
    let payload = json!({
        "memoryRef": memory,
        "session": session,
        "seq": id.seq.0,
        "branch": branch.to_string(),
        "turnId": id.to_string(),
    });
    let payload = payload_with(payload, &hidden::read_hidden(row, 6)?);
    Ok(EventRecord { position, at: Millis(0), kind: "turn.appended".to_owned(), payload })
}

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
