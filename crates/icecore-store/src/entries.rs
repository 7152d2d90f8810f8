//! Long-term entries, with the positions between which they are in force.

pub(crate) mod commitments;
pub(crate) mod derivation;

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Position, Scope};
use icecore_domain::redact::{Hidden, RedactedText};
use icecore_domain::time::Millis;

use crate::bounds::{Change, entry_bytes};
use serde_json::{Value as Json, json};

use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{OptionalExtension, Params as _, Row, Value, params};
use crate::error::{Result, StoreError};
use crate::log::{hidden, payload_with};
use crate::outcomes::{self, Claim, Effect};
use crate::store::Store;
use crate::{engine, log, scopes, secrets, usage};

/// An entry to put.
#[derive(Debug, Clone)]
pub struct NewEntry {
    /// Its id, where the caller chose one.
    pub id: Option<String>,
    /// What it says.
    pub content: RedactedText,
    /// Its tags.
    pub tags: Vec<RedactedText>,
    /// When it ends by itself.
    pub expires_at: Option<Millis>,
    /// Now.
    pub now: Millis,
    /// The version of the tenant's secrets with which its text was redacted.
    pub secrets_seen: u64,
    /// What was hidden in it.
    pub hidden: Hidden,
    /// The caller's key, whose outcome is kept in the same step.
    pub claim: Option<Claim>,
}

/// The id of an entry whose caller chose none. It tells neither the tenant nor how
/// much there is, and follows from where the entry began.
pub(crate) fn entry_id(key: &IdentityKey, began: Position) -> String {
    let hash = key.hash_name("entry", &began.to_string());
    format!("e-{}", hex::encode(&hash[..10]))
}

/// Which entries to read. Those that have expired are never among them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntryFilter {
    /// Only what was in force at this position: had begun and not ended, or had an
    /// entry stand for it that has expired.
    pub at: Option<Position>,
    /// Only what has this tag.
    pub tag: Option<RedactedText>,
    /// Ids of entries that are seen although they began after `at`.
    pub own: Vec<String>,
}

/// An entry as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRecord {
    /// Its id.
    pub id: String,
    /// What it says.
    pub content: RedactedText,
    /// Its tags.
    pub tags: Vec<RedactedText>,
    /// When it was put.
    pub created_at: Millis,
    /// When it ends by itself.
    pub expires_at: Option<Millis>,
    /// Where it began.
    pub began: Position,
    /// Whether it was made of others.
    pub derived: bool,
    /// The entry that stands for it; then it is not in force.
    pub successor: Option<String>,
}

impl Effect for EntryRecord {
    fn ids(&self) -> Json {
        let expires = self.expires_at.map(|at| at.0);
        json!({ "id": self.id, "createdAt": self.created_at.0, "expiresAt": expires })
    }
}

pub(crate) fn put(tx: &Tx<'_>, scope: &Scope, entry: NewEntry) -> Result<EntryRecord> {
    secrets::refuse_changed(tx, scope.tenant(), entry.secrets_seen)?;
    let no = scopes::ensure_scope(tx, scope)?;
    outcomes::refuse_taken(tx, no.tenant, entry.claim.as_ref(), entry.now)?;
    let id = match &entry.id {
        Some(id) => id.clone(),
        None => next_id(tx, scope)?,
    };
    let is_there: bool = tx
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3)",
        )
        .and_then(|mut q| q.query_row(params![no.tenant, no.scope, id], |row| row.get(0)))?;
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
    record.began = insert(tx, scope, no, &record, &hidden)?;
    let change = Change::bytes(entry_bytes(&record.content, &record.tags));
    usage::keep(tx, (scope.tenant(), no.tenant), change)?;
    outcomes::put_claimed(tx, no.tenant, claim.as_ref(), &record, now)?;
    Ok(record)
}

/// The id of an entry that is put next.
pub(crate) fn next_id(tx: &Tx<'_>, scope: &Scope) -> Result<String> {
    let began = log::next(tx, scope.tenant())?;
    let (_, key) = scopes::ensure_tenant(tx, scope.tenant())?;
    Ok(entry_id(&key.identity_key(), began))
}

/// Writes an entry and its record; answers where it began.
pub(crate) fn insert(
    tx: &Tx<'_>,
    scope: &Scope,
    no: ScopeNo,
    entry: &EntryRecord,
    hidden: &Hidden,
) -> Result<Position> {
    let (id, now) = (&entry.id, entry.created_at);
    let payload = serde_json::json!({ "memoryRef": scope.memory(), "memoryId": id });
    let payload = payload_with(payload, hidden);
    let began = log::record(tx, no.tenant, Some(no.scope), "memory.written", &payload, now)?;
    let tags: Vec<&str> = entry.tags.iter().map(RedactedText::as_str).collect();
    tx.prepare_cached(
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
    hidden::put_hidden(tx, no, began.0 as i64, hidden)?;
    Ok(began)
}

/// An entry's columns at moment `?3`. One that is in force again has no successor.
pub(crate) const COLUMNS: &str = "id, content, tags, created_at, expires_at, began, derived,
    CASE WHEN superseded_until <= ?3 THEN NULL ELSE successor END";

/// An entry's columns where all that are read are in force.
const OF_SHOWN: &str = "id, content, tags, created_at, expires_at, began, derived, NULL";

/// What holds of an entry that has not expired at moment `?3`.
pub(crate) const LIVES: &str = "(expires_at IS NULL OR expires_at > ?3)";

/// What holds of an entry that another stands for at moment `?3`.
pub(crate) const SUPERSEDED: &str =
    "(successor IS NOT NULL AND (superseded_until IS NULL OR superseded_until > ?3))";

/// What holds of an entry that is in force at moment `?3`, as of position `?4` or,
/// where that is null, now; those that `?5` names may have begun later.
const IN_FORCE: &str = "(expires_at IS NULL OR expires_at > ?3)
    AND (ended IS NULL OR superseded_until <= ?3 OR ended > ?4)
    AND (?4 IS NULL OR began <= ?4 OR id IN (SELECT value FROM json_each(?5)))";

pub(crate) fn get(
    tx: &Tx<'_>,
    scope: &Scope,
    id: &str,
    at: Option<Position>,
    now: Millis,
) -> Result<Option<EntryRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(None) };
    let at = as_of(tx, no, at)?;
    let (columns, is_shown) = match at {
        Some(_) => (OF_SHOWN, IN_FORCE.to_owned()),
        // Who is asked for what stands for another may ask for that other.
        None => (COLUMNS, format!("{LIVES} AND (ended IS NULL OR successor IS NOT NULL)")),
    };
    tx.prepare_cached(&format!(
        "SELECT {columns} FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?6 AND {is_shown}"
    ))
    .and_then(|mut q| {
        q.query_row(params![no.tenant, no.scope, now.0, at, None::<&str>, id], read).optional()
    })
}

/// The ids of a filter's own entries, as JSON.
fn own(filter: &EntryFilter) -> String {
    serde_json::json!(filter.own).to_string()
}

/// A position as of which entries are read, if all that was in force there is
/// still kept.
fn as_of(tx: &Tx<'_>, no: ScopeNo, at: Option<Position>) -> Result<Option<i64>> {
    let Some(at) = at else { return Ok(None) };
    let oldest: i64 = tx
        .prepare_cached("SELECT entries_from FROM scopes WHERE tenant = ?1 AND scope = ?2")
        .and_then(|mut q| q.query_row([no.tenant, no.scope], |row| row.get(0)))?;
    match engine::number(at.0) {
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
    tx: &Tx<'_>,
    no: ScopeNo,
    (columns, filter): (&str, &EntryFilter),
    now: Millis,
    limit: usize,
    mut each: impl FnMut(&Row<'_>) -> Result<()>,
) -> Result<()> {
    let at = as_of(tx, no, filter.at)?;
    let tag = filter.tag.as_ref().map(RedactedText::as_str);
    let sql = match at {
        Some(_) => shown_then(columns),
        None => shown_now(columns),
    };
    let mut read_all = || -> Result<_> {
        let mut query = tx.prepare_cached(&sql)?;
        let limit = engine::number(limit as u64);
        let values = params![no.tenant, no.scope, now.0, at, own(filter), tag, limit];
        let mut found = query.query(values)?;
        while let Some(row) = found.next()? {
            each(&row)?;
        }
        Ok(())
    };
    read_all()
}

pub(crate) fn list(
    tx: &Tx<'_>,
    scope: &Scope,
    filter: &EntryFilter,
    now: Millis,
    limit: usize,
) -> Result<Vec<EntryRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    newest(tx, no, (OF_SHOWN, filter), now, limit, |row| {
        found.push(read(row)?);
        Ok(())
    })?;
    Ok(found)
}

pub(crate) fn places(
    tx: &Tx<'_>,
    scope: &Scope,
    filter: &EntryFilter,
    now: Millis,
) -> Result<Vec<Position>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    newest(tx, no, ("began", filter), now, usize::MAX, |row| {
        found.push(Position(row.get::<_, i64>(0)? as u64));
        Ok(())
    })?;
    Ok(found)
}

/// All entries that are kept, in force or not, by where they began.
pub(crate) fn kept(tx: &Tx<'_>, no: ScopeNo) -> Result<Vec<EntryRecord>> {
    tx.prepare_cached(&format!(
        "SELECT {OF_SHOWN} FROM entries WHERE tenant = ?1 AND scope = ?2 ORDER BY began"
    ))
    .and_then(|mut q| q.query_map([no.tenant, no.scope], read)?.collect())
}

pub(crate) fn after(
    tx: &Tx<'_>,
    scope: &Scope,
    after: Position,
    now: Millis,
    limit: usize,
) -> Result<Vec<EntryRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    tx.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM entries INDEXED BY entries_by_began
         WHERE tenant = ?1 AND scope = ?2 AND began > ?4
           AND (ended IS NULL OR successor IS NOT NULL) AND {LIVES}
         ORDER BY began LIMIT ?5"
    ))
    .and_then(|mut q| {
        let (after, limit) = (engine::number(after.0), engine::number(limit as u64));
        q.query_map([no.tenant, no.scope, now.0, after, limit], read)?.collect()
    })
}

pub(crate) fn at(
    tx: &Tx<'_>,
    scope: &Scope,
    began: &[Position],
    filter: &EntryFilter,
    now: Millis,
) -> Result<Vec<EntryRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let at = as_of(tx, no, filter.at)?;
    let (own, tag) = (own(filter), filter.tag.as_ref().map(RedactedText::as_str));
    let read_all = || -> Result<_> {
        let mut query = tx.prepare_cached(&format!(
            "SELECT {OF_SHOWN} FROM entries INDEXED BY entries_by_began
             WHERE tenant = ?1 AND scope = ?2 AND began = ?7 AND {IN_FORCE} AND {HAS_TAG}"
        ))?;
        let began: Vec<i64> = began.iter().map(|began| engine::number(began.0)).collect();
        let mine = params![no.tenant, no.scope, now.0, at, own, tag];
        let key = |began| mine.values().into_iter().chain([Value::Integer(began)]).collect();
        let keys: Vec<Vec<_>> = began.into_iter().map(key).collect();
        Ok(query.query_each(&keys, read)?.into_iter().flatten().collect())
    };
    read_all()
}

#[expect(clippy::disallowed_methods, reason = "entries come from our own rows")]
pub(crate) fn read(row: &Row<'_>) -> Result<EntryRecord> {
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

/// Ends entries, each with its record; answers how many others are in force again.
pub(crate) fn end_all(
    tx: &Tx<'_>,
    scope: &Scope,
    no: ScopeNo,
    ending: &[String],
    now: Millis,
) -> Result<usize> {
    for id in ending {
        end_one(tx, scope, no, id, now)?;
    }
    let mut restored = 0;
    for id in ending {
        restored += derivation::let_go(tx, no, id, now)?;
    }
    Ok(restored)
}

fn end_one(tx: &Tx<'_>, scope: &Scope, no: ScopeNo, id: &str, now: Millis) -> Result<()> {
    let payload = serde_json::json!({ "memoryRef": scope.memory(), "memoryId": id }).to_string();
    let ended = log::record(tx, no.tenant, Some(no.scope), "memory.deleted", &payload, now)?;
    // What another stood for was not in force from there on, and stays so.
    tx.prepare_cached(&format!(
        "UPDATE entries SET ended = CASE WHEN {SUPERSEDED} THEN ended ELSE ?4 END, ended_at = ?3
         WHERE tenant = ?1 AND scope = ?2 AND id = ?5"
    ))?
    .execute(params![no.tenant, no.scope, now.0, ended.0 as i64, id])?;
    Ok(())
}

// What is due to go

pub(crate) fn due(tx: &Tx<'_>, now: Millis, ended_by: Millis, limit: usize) -> Result<Vec<Scope>> {
    let found: Vec<(i64, i64)> = tx
        .prepare_cached(
            "SELECT tenant, scope FROM entries INDEXED BY entries_expiring WHERE expires_at <= ?1
             UNION SELECT tenant, scope FROM entries INDEXED BY entries_ended WHERE ended_at <= ?2
             ORDER BY 1, 2 LIMIT ?3",
        )
        .and_then(|mut q| {
            let limit = engine::number(limit as u64);
            q.query_map([now.0, ended_by.0, limit], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        })?;
    found.into_iter().map(|(tenant, scope)| scopes::scope_of(tx, tenant, scope)).collect()
}

/// Lets nobody read as of a position before the last of the log, and so many more.
pub(crate) fn keep_from(tx: &Tx<'_>, no: ScopeNo, more: i64) -> Result<()> {
    tx.execute(
        "UPDATE scopes SET entries_from = max(entries_from,
             (SELECT position + ?3 FROM tenants WHERE tenant = ?1))
         WHERE tenant = ?1 AND scope = ?2",
        [no.tenant, no.scope, more],
    )?;
    Ok(())
}

impl Store {
    /// Puts a long-term entry and logs `memory.written`. Without an id of the
    /// caller's it gets one of ours, which nothing else in the tenant has. An id
    /// that is there already, in force or not, is [`StoreError::EntryExists`]. Its
    /// claim is kept in the same step, and one that is taken is
    /// [`StoreError::ClaimTaken`]. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    pub async fn put_entry(&self, scope: &Scope, entry: NewEntry) -> Result<EntryRecord> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "put_entry", move |tx| put(tx, &scope, entry.clone()))
            .await
    }

    /// An entry by id, unless it was not in force as of `at` (default: now), has
    /// expired or never was. Now, one that another stands for is answered as well, and
    /// names that other. As with [`Store::entries`], it may be
    /// [`StoreError::SnapshotGone`].
    pub async fn entry(
        &self,
        scope: &Scope,
        id: &str,
        at: Option<Position>,
        now: Millis,
    ) -> Result<Option<EntryRecord>> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.read(Isolation::from(&scope), "entry", move |tx| get(tx, &scope, &id, at, now)).await
    }

    /// Entries that a filter keeps, in one look, newest first: by time, then by
    /// where they began. A position before which entries have been purged is
    /// [`StoreError::SnapshotGone`].
    pub async fn entries(
        &self,
        scope: &Scope,
        filter: &EntryFilter,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryRecord>> {
        let (scope, filter) = (scope.clone(), filter.clone());
        self.read(Isolation::from(&scope), "entries", move |tx| {
            list(tx, &scope, &filter, now, limit)
        })
        .await
    }

    /// Where all entries began that [`Store::entries`] would answer, in its order.
    pub async fn entry_places(
        &self,
        scope: &Scope,
        filter: &EntryFilter,
        now: Millis,
    ) -> Result<Vec<Position>> {
        let (scope, filter) = (scope.clone(), filter.clone());
        self.read(Isolation::from(&scope), "entry_places", move |tx| {
            places(tx, &scope, &filter, now)
        })
        .await
    }

    /// Entries by where they began, after `after`: those in force, and those that
    /// others stand for, which may be in force again.
    pub async fn entries_after(
        &self,
        scope: &Scope,
        after: Position,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryRecord>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "entries_after", move |tx| {
            self::after(tx, &scope, after, now, limit)
        })
        .await
    }

    /// The entries that began at these positions and that [`Store::entries`] would
    /// answer, in the order asked.
    pub async fn entries_at(
        &self,
        scope: &Scope,
        began: &[Position],
        filter: &EntryFilter,
        now: Millis,
    ) -> Result<Vec<EntryRecord>> {
        let (scope, began, filter) = (scope.clone(), began.to_vec(), filter.clone());
        self.read(Isolation::from(&scope), "entries_at", move |tx| {
            at(tx, &scope, &began, &filter, now)
        })
        .await
    }

    /// Memories, of any tenant, with entries that have expired or that ended at or
    /// before `ended_by`.
    pub async fn due_entries(
        &self,
        now: Millis,
        ended_by: Millis,
        limit: usize,
    ) -> Result<Vec<Scope>> {
        self.read(Isolation::Global, "due_entries", move |tx| due(tx, now, ended_by, limit)).await
    }
}
