//! Long-term entries, with the positions between which they are in force.

use icecore_domain::ids::{Position, Scope};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Shared, erase, log, rows, secrets};
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
    let is_there: bool = c
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3)",
        )
        .and_then(|mut q| q.query_row(params![no.tenant, no.scope, entry.id], |row| row.get(0)))
        .map_err(|e| s.failed(e))?;
    if is_there {
        return Err(StoreError::EntryExists { id: entry.id });
    }
    let put = || {
        let payload = serde_json::json!({ "memoryRef": scope.memory(), "memoryId": entry.id });
        let began = log::record(
            c,
            no.tenant,
            Some(no.scope),
            "memory.written",
            &payload_with(payload, &entry.hidden),
            entry.now,
        )?;
        let tags: Vec<&str> = entry.tags.iter().map(RedactedText::as_str).collect();
        c.execute(
            "INSERT INTO entries (tenant, scope, id, content, tags, created_at, expires_at, began)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                no.tenant,
                no.scope,
                entry.id,
                entry.content.as_str().as_bytes(),
                serde_json::json!(tags).to_string(),
                entry.now.0,
                entry.expires_at.map(|at| at.0),
                began.0 as i64,
            ],
        )?;
        secrets::put_hidden(c, no, began.0 as i64, &entry.hidden)?;
        Ok(began)
    };
    let began = put().map_err(|e: rusqlite::Error| s.failed(e))?;
    let NewEntry { id, content, tags, expires_at, now, .. } = entry;
    Ok(EntryRecord { id, content, tags, created_at: now, expires_at, began })
}

const COLUMNS: &str = "id, content, tags, created_at, expires_at, began";

pub(super) fn get(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    id: &str,
    now: Millis,
) -> Result<Option<EntryRecord>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(None) };
    c.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3
           AND ended IS NULL AND (expires_at IS NULL OR expires_at > ?4)"
    ))
    .and_then(|mut q| q.query_row(params![no.tenant, no.scope, id, now.0], read).optional())
    .map_err(|e| s.failed(e))
}

pub(super) fn list(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    at: Option<Position>,
    now: Millis,
    limit: usize,
) -> Result<Vec<EntryRecord>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let at = at.map(|position| rows::number(position.0));
    c.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM entries WHERE tenant = ?1 AND scope = ?2
           AND (expires_at IS NULL OR expires_at > ?3)
           AND CASE WHEN ?4 IS NULL THEN ended IS NULL
                    ELSE began <= ?4 AND (ended IS NULL OR ended > ?4) END
         ORDER BY began LIMIT ?5"
    ))
    .and_then(|mut q| {
        let limit = rows::number(limit as u64);
        q.query_map(params![no.tenant, no.scope, now.0, at, limit], read)?.collect()
    })
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
         WHERE tenant = ?1 AND scope = ?2 AND began > ?3
           AND ended IS NULL AND (expires_at IS NULL OR expires_at > ?4)
         ORDER BY began LIMIT ?5"
    ))
    .and_then(|mut q| {
        let (after, limit) = (rows::number(after.0), rows::number(limit as u64));
        q.query_map([no.tenant, no.scope, after, now.0, limit], read)?.collect()
    })
    .map_err(|e| s.failed(e))
}

pub(super) fn at(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    began: &[Position],
    now: Millis,
) -> Result<Vec<EntryRecord>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let read_all = || {
        let mut query = c.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM entries INDEXED BY entries_by_began
             WHERE tenant = ?1 AND scope = ?2 AND began = ?3
               AND ended IS NULL AND (expires_at IS NULL OR expires_at > ?4)"
        ))?;
        let mut found = Vec::with_capacity(began.len());
        for began in began {
            let key = [no.tenant, no.scope, rows::number(began.0), now.0];
            found.extend(query.query_row(key, read).optional()?);
        }
        Ok(found)
    };
    read_all().map_err(|e| s.failed(e))
}

#[expect(clippy::disallowed_methods, reason = "entries come from our own rows")]
fn read(row: &Row<'_>) -> rusqlite::Result<EntryRecord> {
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
    })
}

pub(super) fn erase(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    selector: &Selector,
    dry_run: bool,
) -> Result<u64> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(0) };
    let (chosen, value) = match selector {
        Selector::Session(_) => return Ok(0),
        Selector::Entry(id) => ("id = ?3", Value::from(id.clone())),
        Selector::Subject { tag, .. } => (
            "EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?3)",
            Value::from(tag.as_str().to_owned()),
        ),
        Selector::Before(at) => ("created_at < ?3", Value::from(at.0)),
    };
    let wanted = format!("FROM entries WHERE tenant = ?1 AND scope = ?2 AND {chosen}");
    let erase = || {
        if dry_run {
            let count = format!("SELECT count(*) {wanted}");
            return c.query_row(&count, params![no.tenant, no.scope, value], |row| {
                row.get::<_, i64>(0)
            });
        }
        secrets::forget_hidden(
            c,
            &format!("SELECT began {wanted}"),
            params![no.tenant, no.scope, value],
        )?;
        let gone = c.execute(&format!("DELETE {wanted}"), params![no.tenant, no.scope, value])?;
        if gone > 0 {
            erase::raise_epoch(c, no)?;
        }
        Ok(gone as i64)
    };
    erase().map(|count| count as u64).map_err(|e| s.failed(e))
}
