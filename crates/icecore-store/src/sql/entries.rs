//! Long-term entries, with the positions between which they are in force.

use std::collections::BTreeSet;

use super::engine::Owned;
use super::engine::{self, Connection, OptionalExtension, Params, Row, Value, params};
use icecore_domain::ids::{Position, Scope};
use icecore_domain::redact::{Hidden, RedactedText};
use icecore_domain::time::Millis;

use super::rows::ScopeNo;
use super::{
    Shared, answers, commitments, derivation, dream_loss, erase, log, recalled, rows, secrets,
    usage,
};
use crate::bounds::{Change, entry_bytes};
use crate::error::StoreError;
use crate::store::*;

pub(super) fn put(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    entry: NewEntry,
) -> Result<EntryRecord> {
    secrets::refuse_changed(c, s, scope.tenant(), entry.secrets_seen)?;
    let no = rows::ensure_scope(c, s, scope)?;
    if let Some(claim) = &entry.claim {
        log::refuse_taken(c, s, no.tenant, claim, entry.now)?;
    }
    let id = match &entry.id {
        Some(id) => id.clone(),
        None => next_id(c, s, scope)?,
    };
    let is_there: bool = c
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3)",
        )
        .and_then(|mut q| q.query_row(params![no.tenant, no.scope, id], |row| row.get(0)))
        .map_err(|e| s.failed(e))?;
    if is_there {
        return Err(StoreError::EntryExists { id });
    }
    let NewEntry { content, tags, expires_at, now, hidden, claim, .. } = entry;
    let mut record = EntryRecord {
        id,
        content,
        tags,
        created_at: now,
        expires_at,
        began: Position(0),
        derived: false,
        successor: None,
    };
    record.began = insert(c, scope, no, &record, &hidden).map_err(|e| s.failed(e))?;
    let change = Change::bytes(entry_bytes(&record.content, &record.tags));
    usage::keep(c, s, (scope.tenant(), no.tenant), change)?;
    if let Some(claim) = claim {
        log::put_outcome_of(c, s, no.tenant, &claim.outcome(&record), now)?;
    }
    Ok(record)
}

/// The id of an entry that is put next.
pub(super) fn next_id(c: &Connection, s: &Shared, scope: &Scope) -> Result<String> {
    let began = log::next(c, s, scope.tenant())?;
    let (_, key) = rows::ensure_tenant(c, s, scope.tenant())?;
    Ok(entry_id(&key.identity_key(), began))
}

/// Writes an entry and its record; answers where it began.
pub(super) fn insert(
    c: &Connection,
    scope: &Scope,
    no: ScopeNo,
    entry: &EntryRecord,
    hidden: &Hidden,
) -> engine::Result<Position> {
    let (id, now) = (&entry.id, entry.created_at);
    let payload = serde_json::json!({ "memoryRef": scope.memory(), "memoryId": id });
    let payload = payload_with(payload, hidden);
    let began = log::record(c, no.tenant, Some(no.scope), "memory.written", &payload, now)?;
    let tags: Vec<&str> = entry.tags.iter().map(RedactedText::as_str).collect();
    c.prepare_cached(
        "INSERT INTO entries (tenant, scope, id, content, tags, created_at, expires_at, began, derived)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        no.tenant,
        no.scope,
        id,
        entry.content.as_str().as_bytes(),
        serde_json::json!(tags).to_string(),
        now.0,
        entry.expires_at.map(|at| at.0),
        began.0 as i64,
        entry.derived,
    ])?;
    secrets::put_hidden(c, no, began.0 as i64, hidden)?;
    Ok(began)
}

/// An entry's columns at moment `?3`. One that is in force again has no successor.
pub(super) const COLUMNS: &str = "id, content, tags, created_at, expires_at, began, derived,
    CASE WHEN superseded_until <= ?3 THEN NULL ELSE successor END";

/// An entry's columns where all that are read are in force.
const OF_SHOWN: &str = "id, content, tags, created_at, expires_at, began, derived, NULL";

/// What holds of an entry that has not expired at moment `?3`.
pub(super) const LIVES: &str = "(expires_at IS NULL OR expires_at > ?3)";

/// What holds of an entry that another stands for at moment `?3`.
pub(super) const SUPERSEDED: &str =
    "(successor IS NOT NULL AND (superseded_until IS NULL OR superseded_until > ?3))";

/// What holds of an entry that is in force at moment `?3`, as of position `?4` or,
/// where that is null, now; those that `?5` names may have begun later.
const IN_FORCE: &str = "(expires_at IS NULL OR expires_at > ?3)
    AND (ended IS NULL OR superseded_until <= ?3 OR ended > ?4)
    AND (?4 IS NULL OR began <= ?4 OR id IN (SELECT value FROM json_each(?5)))";

pub(super) fn get(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    id: &str,
    at: Option<Position>,
    now: Millis,
) -> Result<Option<EntryRecord>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(None) };
    let at = as_of(c, s, no, at)?;
    let (columns, is_shown) = match at {
        Some(_) => (OF_SHOWN, IN_FORCE.to_owned()),
        // Who is asked for what stands for another may ask for that other.
        None => (COLUMNS, format!("{LIVES} AND (ended IS NULL OR successor IS NOT NULL)")),
    };
    c.prepare_cached(&format!(
        "SELECT {columns} FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?6 AND {is_shown}"
    ))
    .and_then(|mut q| {
        q.query_row(params![no.tenant, no.scope, now.0, at, None::<&str>, id], read).optional()
    })
    .map_err(|e| s.failed(e))
}

/// The ids of a filter's own entries, as JSON.
fn own(filter: &EntryFilter) -> String {
    serde_json::json!(filter.own).to_string()
}

/// A position as of which entries are read, if all that was in force there is
/// still kept.
fn as_of(c: &Connection, s: &Shared, no: ScopeNo, at: Option<Position>) -> Result<Option<i64>> {
    let Some(at) = at else { return Ok(None) };
    let oldest: i64 = c
        .prepare_cached("SELECT entries_from FROM scopes WHERE tenant = ?1 AND scope = ?2")
        .and_then(|mut q| q.query_row([no.tenant, no.scope], |row| row.get(0)))
        .map_err(|e| s.failed(e))?;
    match rows::number(at.0) {
        at if at >= oldest => Ok(Some(at)),
        _ => Err(StoreError::SnapshotGone { oldest: Position(oldest as u64) }),
    }
}

/// What holds of an entry that has tag `?6`, if one is asked for.
const HAS_TAG: &str = "(?6 IS NULL OR EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?6))";

/// What reads entries in force as of a position, newest first, `?7` of them.
fn shown_then(columns: &str) -> String {
    format!(
        "SELECT {columns} FROM entries INDEXED BY entries_by_time
         WHERE tenant = ?1 AND scope = ?2 AND {IN_FORCE} AND {HAS_TAG}
         ORDER BY created_at DESC, began DESC LIMIT ?7"
    )
}

/// What reads entries in force now, newest first, `?7` of them: those that never
/// ended, merged with those that are in force again.
fn shown_now(columns: &str) -> String {
    let of = |index: &str, condition: &str| {
        format!(
            "SELECT {columns}, created_at AS put_at, began AS place
             FROM entries INDEXED BY {index}
             WHERE tenant = ?1 AND scope = ?2 AND {condition} AND {LIVES} AND {HAS_TAG}"
        )
    };
    let (stayed, back) =
        (of("entries_shown", "ended IS NULL"), of("entries_back", "superseded_until <= ?3"));
    format!("{stayed} UNION ALL {back} ORDER BY put_at DESC, place DESC LIMIT ?7")
}

/// Entries that a filter keeps, newest first.
fn newest(
    c: &Connection,
    s: &Shared,
    no: ScopeNo,
    (columns, filter): (&str, &EntryFilter),
    now: Millis,
    limit: usize,
    mut each: impl FnMut(&Row<'_>) -> engine::Result<()>,
) -> Result<()> {
    let at = as_of(c, s, no, filter.at)?;
    let tag = filter.tag.as_ref().map(RedactedText::as_str);
    let sql = match at {
        Some(_) => shown_then(columns),
        None => shown_now(columns),
    };
    let mut read_all = || {
        let mut query = c.prepare_cached(&sql)?;
        let limit = rows::number(limit as u64);
        let values = params![no.tenant, no.scope, now.0, at, own(filter), tag, limit];
        let mut found = query.query(values)?;
        while let Some(row) = found.next()? {
            each(&row)?;
        }
        Ok(())
    };
    read_all().map_err(|e| s.failed(e))
}

pub(super) fn list(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    filter: &EntryFilter,
    now: Millis,
    limit: usize,
) -> Result<Vec<EntryRecord>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    newest(c, s, no, (OF_SHOWN, filter), now, limit, |row| {
        found.push(read(row)?);
        Ok(())
    })?;
    Ok(found)
}

pub(super) fn places(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    filter: &EntryFilter,
    now: Millis,
) -> Result<Vec<Position>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    newest(c, s, no, ("began", filter), now, usize::MAX, |row| {
        found.push(Position(row.get::<_, i64>(0)? as u64));
        Ok(())
    })?;
    Ok(found)
}

/// All entries that are kept, in force or not, by where they began.
pub(super) fn kept(c: &Connection, s: &Shared, no: ScopeNo) -> Result<Vec<EntryRecord>> {
    c.prepare_cached(&format!(
        "SELECT {OF_SHOWN} FROM entries WHERE tenant = ?1 AND scope = ?2 ORDER BY began"
    ))
    .and_then(|mut q| q.query_map([no.tenant, no.scope], read)?.collect())
    .map_err(|e| s.failed(e))
}

pub(super) fn after(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    after: Position,
    now: Millis,
    limit: usize,
) -> Result<Vec<EntryRecord>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    c.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM entries INDEXED BY entries_by_began
         WHERE tenant = ?1 AND scope = ?2 AND began > ?4
           AND (ended IS NULL OR successor IS NOT NULL) AND {LIVES}
         ORDER BY began LIMIT ?5"
    ))
    .and_then(|mut q| {
        let (after, limit) = (rows::number(after.0), rows::number(limit as u64));
        q.query_map([no.tenant, no.scope, now.0, after, limit], read)?.collect()
    })
    .map_err(|e| s.failed(e))
}

pub(super) fn at(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    began: &[Position],
    filter: &EntryFilter,
    now: Millis,
) -> Result<Vec<EntryRecord>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let at = as_of(c, s, no, filter.at)?;
    let (own, tag) = (own(filter), filter.tag.as_ref().map(RedactedText::as_str));
    let read_all = || {
        let mut query = c.prepare_cached(&format!(
            "SELECT {OF_SHOWN} FROM entries INDEXED BY entries_by_began
             WHERE tenant = ?1 AND scope = ?2 AND began = ?7 AND {IN_FORCE} AND {HAS_TAG}"
        ))?;
        let began: Vec<i64> = began.iter().map(|began| rows::number(began.0)).collect();
        let mine = params![no.tenant, no.scope, now.0, at, own, tag];
        let key = |began| mine.values().into_iter().chain([Value::Integer(began)]).collect();
        let keys: Vec<Vec<_>> = began.into_iter().map(key).collect();
        Ok(query.query_each(&keys, read)?.into_iter().flatten().collect())
    };
    read_all().map_err(|e| s.failed(e))
}

#[expect(clippy::disallowed_methods, reason = "entries come from our own rows")]
pub(super) fn read(row: &Row<'_>) -> engine::Result<EntryRecord> {
    let content: Vec<u8> = row.get(1)?;
    let tags: String = row.get(2)?;
    let tags: Vec<String> = serde_json::from_str(&tags).unwrap_or_default();
    Ok(EntryRecord {
        id: row.get(0)?,
        content: RedactedText::read_back(String::from_utf8_lossy(&content).into_owned()),
        tags: tags.into_iter().map(RedactedText::read_back).collect(),
        created_at: Millis(row.get(3)?),
        expires_at: row.get::<_, Option<i64>>(4)?.map(Millis),
        began: Position(row.get::<_, i64>(5)? as u64),
        derived: row.get::<_, i64>(6)? != 0,
        successor: row.get(7)?,
    })
}

pub(super) fn end(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    id: &str,
    now: Millis,
) -> Result<bool> {
    if get(c, s, scope, id, None, now)?.is_none() {
        return Ok(false);
    }
    let no = rows::ensure_scope(c, s, scope)?;
    let ending = derivation::ending_with(c, no, id, now).map_err(|e| s.failed(e))?;
    let end = || {
        let restored = end_all(c, scope, no, &ending, now)?;
        recalled::lose(c, no)?;
        if restored > 0 {
            // As of an earlier position it would be seen beside what stood for it then.
            keep_from(c, no, 0)?;
            // An index may have been made without it. Kept answers stay: nothing is erased.
            c.execute(
                "UPDATE scopes SET epoch = epoch + 1 WHERE tenant = ?1 AND scope = ?2",
                [no.tenant, no.scope],
            )?;
        }
        dream_loss::by_entries(c, no, ending.iter().map(String::as_str))
    };
    let touched = end().map_err(|e: engine::Error| s.failed(e))?;
    dream_loss::lose(c, s, (scope, no), &touched, dream_loss::Going::Deleted, now)?;
    Ok(true)
}

/// Ends entries, each with its record; answers how many others are in force again.
pub(super) fn end_all(
    c: &Connection,
    scope: &Scope,
    no: ScopeNo,
    ending: &[String],
    now: Millis,
) -> engine::Result<usize> {
    for id in ending {
        end_one(c, scope, no, id, now)?;
    }
    let mut restored = 0;
    for id in ending {
        restored += derivation::let_go(c, no, id, now)?;
    }
    Ok(restored)
}

fn end_one(
    c: &Connection,
    scope: &Scope,
    no: ScopeNo,
    id: &str,
    now: Millis,
) -> engine::Result<()> {
    let payload = serde_json::json!({ "memoryRef": scope.memory(), "memoryId": id }).to_string();
    let ended = log::record(c, no.tenant, Some(no.scope), "memory.deleted", &payload, now)?;
    // What another stood for was not in force from there on, and stays so.
    c.prepare_cached(&format!(
        "UPDATE entries SET ended = CASE WHEN {SUPERSEDED} THEN ended ELSE ?4 END, ended_at = ?3
         WHERE tenant = ?1 AND scope = ?2 AND id = ?5"
    ))?
    .execute(params![no.tenant, no.scope, now.0, ended.0 as i64, id])?;
    Ok(())
}

// What is due to go

pub(super) fn due(
    c: &Connection,
    s: &Shared,
    now: Millis,
    ended_by: Millis,
    limit: usize,
) -> Result<Vec<Scope>> {
    let found: Vec<(i64, i64)> = c
        .prepare_cached(
            "SELECT tenant, scope FROM entries INDEXED BY entries_expiring WHERE expires_at <= ?1
             UNION SELECT tenant, scope FROM entries INDEXED BY entries_ended WHERE ended_at <= ?2
             ORDER BY 1, 2 LIMIT ?3",
        )
        .and_then(|mut q| {
            let limit = rows::number(limit as u64);
            q.query_map([now.0, ended_by.0, limit], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })
        .map_err(|e| s.failed(e))?;
    found.into_iter().map(|(tenant, scope)| rows::scope_of(c, s, tenant, scope)).collect()
}

/// An entry that goes.
struct Going {
    id: String,
    began: i64,
    /// Where it was deleted, if it was.
    deleted: Option<i64>,
}

fn purgeable(
    c: &Connection,
    no: ScopeNo,
    now: Millis,
    ended_by: Millis,
    limit: usize,
) -> engine::Result<Vec<Going>> {
    let mine = "tenant = ?1 AND scope = ?2";
    let columns = "began, id, CASE WHEN ended_at IS NULL THEN NULL ELSE ended END";
    c.prepare_cached(&format!(
        "SELECT {columns} FROM entries INDEXED BY entries_expiring
           WHERE {mine} AND expires_at <= ?3
         UNION SELECT {columns} FROM entries INDEXED BY entries_ended
           WHERE {mine} AND ended_at <= ?4
         ORDER BY 1 LIMIT ?5"
    ))?
    .query_map([no.tenant, no.scope, now.0, ended_by.0, rows::number(limit as u64)], |row| {
        Ok(Going { began: row.get(0)?, id: row.get(1)?, deleted: row.get(2)? })
    })?
    .collect()
}

/// Deletes an entry, with what was counted of it. What it stood for is in force, or
/// is what its own successor stands for.
fn delete(c: &Connection, no: ScopeNo, going: &Going) -> engine::Result<()> {
    secrets::forget_hidden(c, "SELECT ?2", [no.tenant, going.began])?;
    derivation::forget(c, no, &going.id)?;
    answers::forget(c, no, None)?;
    let bytes = usage::freed(
        c,
        "DELETE FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3
         RETURNING length(content) + octet_length(tags)",
        params![no.tenant, no.scope, going.id],
    )?;
    usage::change(c, no.tenant, Change::bytes(-bytes))
}

pub(super) fn purge(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    now: Millis,
    ended_by: Millis,
    limit: usize,
) -> Result<u64> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(0) };
    let due = purgeable(c, no, now, ended_by, limit).map_err(|e| s.failed(e))?;
    if due.is_empty() {
        return Ok(0);
    }
    let purge = || {
        for going in &due {
            delete(c, no, going)?;
            commitments::void(c, no, &going.id, now)?;
        }
        // What another stood for when it expired was read by nobody as of any position.
        let last_end = due.iter().filter_map(|going| going.deleted).max().unwrap_or(0);
        c.execute(
            "UPDATE scopes SET epoch = epoch + 1, entries_from = max(entries_from, ?3)
             WHERE tenant = ?1 AND scope = ?2",
            [no.tenant, no.scope, last_end],
        )?;
        recalled::lose(c, no)?;
        let payload = serde_json::json!({ "memoryRef": scope.memory(), "entries": due.len() });
        let payload = payload.to_string();
        log::record(c, no.tenant, Some(no.scope), "memory.expired", &payload, now)?;
        dream_loss::by_entries(c, no, due.iter().map(|going| going.id.as_str()))
    };
    let touched = purge().map_err(|e: engine::Error| s.failed(e))?;
    dream_loss::lose(c, s, (scope, no), &touched, dream_loss::Going::Deleted, now)?;
    Ok(due.len() as u64)
}

pub(super) fn erase(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    selector: &Selector,
    dry_run: bool,
    now: Millis,
) -> Result<u64> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(0) };
    let going = erasable(c, no, selector, now).map_err(|e| s.failed(e))?;
    if dry_run {
        return Ok(going.len() as u64);
    }
    let erase = || {
        commitments::forget_named(c, no, selector)?;
        if !going.is_empty() {
            going.iter().try_for_each(|going| delete(c, no, going))?;
            commitments::forget_erased(c, no)?;
            erase::raise_epoch(c, no)?;
            // Whoever read as of now or earlier would be shown less than there was.
            keep_from(c, no, 1)?;
        }
        dream_loss::by_entries(c, no, going.iter().map(|going| going.id.as_str()))
    };
    let touched = erase().map_err(|e: engine::Error| s.failed(e))?;
    dream_loss::lose(c, s, (scope, no), &touched, dream_loss::Going::Erased, now)?;
    Ok(going.len() as u64)
}

/// Lets nobody read as of a position before the last of the log, and so many more.
pub(super) fn keep_from(c: &Connection, no: ScopeNo, more: i64) -> engine::Result<()> {
    c.execute(
        "UPDATE scopes SET entries_from = max(entries_from,
             (SELECT position + ?3 FROM tenants WHERE tenant = ?1))
         WHERE tenant = ?1 AND scope = ?2",
        [no.tenant, no.scope, more],
    )?;
    Ok(())
}

/// The ids of the entries that a selector names, and of those that go with them.
pub(super) fn erasable_ids(
    c: &Connection,
    no: ScopeNo,
    selector: &Selector,
    now: Millis,
) -> engine::Result<Vec<String>> {
    let going = erasable(c, no, selector, now)?;
    Ok(going.into_iter().map(|going| going.id).collect())
}

/// The entries that a selector names, and those that go with them.
fn erasable(
    c: &Connection,
    no: ScopeNo,
    selector: &Selector,
    now: Millis,
) -> engine::Result<Vec<Going>> {
    let (chosen, value) = match selector {
        Selector::Session(_) => return Ok(Vec::new()),
        Selector::Entry(id) => ("id = ?3", Owned::from(id.clone())),
        Selector::Subject { tag, .. } => (
            "EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?3)",
            Owned::from(tag.as_str().to_owned()),
        ),
        Selector::Before(at) => ("created_at < ?3", Owned::from(at.0)),
    };
    let named: Vec<String> = c
        .prepare_cached(&format!(
            "SELECT id FROM entries WHERE tenant = ?1 AND scope = ?2 AND {chosen}"
        ))?
        .query_map(params![no.tenant, no.scope, value], |row| row.get(0))?
        .collect::<engine::Result<_>>()?;
    let is_one = matches!(selector, Selector::Entry(_));
    placed(c, no, derivation::erased_with(c, no, named, now, is_one)?)
}

/// Drops the entries that were made of some, whose words are others now, and lets
/// what they stood for be in force again; answers which.
pub(super) fn drop_quoting(
    c: &Connection,
    no: ScopeNo,
    changed: &[String],
) -> engine::Result<BTreeSet<String>> {
    let dropped = derivation::quoting(c, no, changed)?;
    for going in placed(c, no, dropped.clone())? {
        delete(c, no, &going)?;
    }
    if !dropped.is_empty() {
        commitments::forget_erased(c, no)?;
        keep_from(c, no, 1)?;
    }
    Ok(dropped)
}

/// Drops entries and those that were made of them, and lets what they stood for be in
/// force again; answers how many.
pub(super) fn drop_with_quoting(
    c: &Connection,
    no: ScopeNo,
    ids: Vec<String>,
) -> engine::Result<u64> {
    let mut dropped = derivation::quoting(c, no, &ids)?;
    dropped.extend(ids);
    let dropped = placed(c, no, dropped)?;
    dropped.iter().try_for_each(|going| delete(c, no, going))?;
    Ok(dropped.len() as u64)
}

fn placed(c: &Connection, no: ScopeNo, ids: BTreeSet<String>) -> engine::Result<Vec<Going>> {
    let began = |id: String| {
        let began = c
            .prepare_cached(
                "SELECT began FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3",
            )?
            .query_row(params![no.tenant, no.scope, id], |row| row.get(0))?;
        Ok(Going { id, began, deleted: None })
    };
    ids.into_iter().map(began).collect()
}
