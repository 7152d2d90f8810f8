//! Long-term entries, with the log positions between which they are in force.

pub(crate) mod commitments;
pub(crate) mod derivation;

use icecore_domain::ids::{Position, Scope};
use icecore_domain::redact::{Hidden, RedactedText};
use icecore_domain::time::Millis;
use serde_json::{Value as Json, json};

use crate::bounds::{Change, entry_bytes, tags_json};
use crate::engine::prelude::*;
use crate::log::{hidden, payload_with};
use crate::outcomes::{self, Claim, Effect};
use crate::store::Store;
use crate::{log, scopes, secrets, usage};

#[derive(Debug, Clone)]
pub struct NewEntry {
    /// The store chooses one where the caller does not.
    pub id: Option<String>,
    pub content: RedactedText,
    pub tags: Vec<RedactedText>,
    pub expires_at: Option<Millis>,
    pub now: Millis,
    pub secrets_seen: u64,
    pub hidden: Hidden,
    pub claim: Option<Claim>,
}

/// Which entries to read. Expired ones never match.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntryFilter {
    /// Only entries in force at this position: begun and not ended, or superseded by an
    /// entry that has expired since.
    pub at: Option<Position>,
    pub tag: Option<RedactedText>,
    /// Ids of entries that match although they began after `at`.
    pub own: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRecord {
    pub id: String,
    pub content: RedactedText,
    pub tags: Vec<RedactedText>,
    pub created_at: Millis,
    pub expires_at: Option<Millis>,
    /// The position of its `memory.written` in the log.
    pub began: Position,
    pub derived: bool,
    /// The entry that supersedes it; while there is one, this entry is not in force.
    pub successor: Option<String>,
}

impl Effect for EntryRecord {
    fn ids(&self) -> Json {
        let expires = self.expires_at.map(|at| at.0);
        json!({ "id": self.id, "createdAt": self.created_at.0, "expiresAt": expires })
    }
}

impl Store {
    /// Inserts an entry and logs `memory.written`. An id that the memory already has, in
    /// force or not, is [`StoreError::EntryExists`]. The claim is stored in the same
    /// transaction; a taken one is [`StoreError::ClaimTaken`]. As with an append, it may
    /// be [`StoreError::SecretsChanged`].
    pub async fn put_entry(&self, scope: &Scope, entry: NewEntry) -> Result<EntryRecord> {
        self.write(scope, "put_entry", move |tx| put(tx, tx.scope()?, entry.clone())).await
    }

    /// An entry by id, if it was in force as of `at` and has not expired. Without `at`,
    /// a superseded entry is returned too and names its successor. As with
    /// [`Store::entries`], it may be [`StoreError::SnapshotGone`].
    pub async fn entry(
        &self,
        scope: &Scope,
        id: &str,
        at: Option<Position>,
        now: Millis,
    ) -> Result<Option<EntryRecord>> {
        let id = id.to_owned();
        self.read(scope, "entry", move |tx| get(tx, tx.scope()?, &id, at, now)).await
    }

    /// Entries that match a filter, of one moment and newest first: by time, then by
    /// where they began. A position before which entries have been purged is
    /// [`StoreError::SnapshotGone`].
    pub async fn entries(
        &self,
        scope: &Scope,
        filter: &EntryFilter,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryRecord>> {
        let filter = filter.clone();
        self.read(scope, "entries", move |tx| newest(tx, OF_SHOWN, &filter, now, limit)).await
    }

    /// Where all entries began that [`Store::entries`] returns, in its order.
    pub async fn entry_places(
        &self,
        scope: &Scope,
        filter: &EntryFilter,
        now: Millis,
    ) -> Result<Vec<Position>> {
        let filter = filter.clone();
        self.read(scope, "entry_places", move |tx| newest(tx, "began", &filter, now, usize::MAX))
            .await
    }

    /// Entries in force or superseded, for those may be in force again, that began after
    /// a position, in that order.
    pub async fn entries_after(
        &self,
        scope: &Scope,
        after: Position,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryRecord>> {
        self.read(scope, "entries_after", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            let sql = format!(
                "SELECT {COLUMNS} FROM entries INDEXED BY entries_by_began
                 WHERE tenant = ?1 AND scope = ?2 AND began > ?4
                   AND (ended IS NULL OR successor IS NOT NULL) AND {LIVES}
                 ORDER BY began LIMIT ?5"
            );
            tx.all(&sql, params![no.tenant, no.scope, now, after, limit], tuple)
        })
        .await
    }

    /// The entries that began at these positions and match a filter, in the order of the
    /// positions.
    pub async fn entries_at(
        &self,
        scope: &Scope,
        began: &[Position],
        filter: &EntryFilter,
        now: Millis,
    ) -> Result<Vec<EntryRecord>> {
        let (began, filter) = (began.to_vec(), filter.clone());
        self.read(scope, "entries_at", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            refuse_gone(tx, no, filter.at)?;
            let sql = format!(
                "SELECT {OF_SHOWN} FROM entries INDEXED BY entries_by_began
                 WHERE tenant = ?1 AND scope = ?2 AND began = ?7 AND {LIVES} AND {IN_FORCE}
                   AND {HAS_TAG}"
            );
            let own = json!(filter.own).to_string();
            let shared = params![no.tenant, no.scope, now, filter.at, own, filter.tag];
            let key = |began: &Position| [&shared.values()[..], &[Value::from(*began)]].concat();
            tx.all_of(&sql, began.iter().map(key), tuple)
        })
        .await
    }

    /// Memories of any tenant that have entries to purge: expired, or ended at or before
    /// `ended_by`.
    pub async fn due_entries(
        &self,
        now: Millis,
        ended_by: Millis,
        limit: usize,
    ) -> Result<Vec<Scope>> {
        self.read(Isolation::Global, "due_entries", move |tx| {
            let sql = "SELECT tenant, scope FROM entries INDEXED BY entries_expiring
                 WHERE expires_at <= ?1
                 UNION SELECT tenant, scope FROM entries INDEXED BY entries_ended
                 WHERE ended_at <= ?2
                 ORDER BY 1, 2 LIMIT ?3";
            scopes::find_scopes(tx, sql, params![now, ended_by, limit])
        })
        .await
    }
}

pub(crate) fn put(tx: &Tx<'_>, scope: &Scope, entry: NewEntry) -> Result<EntryRecord> {
    secrets::refuse_changed(tx, scope.tenant(), entry.secrets_seen)?;
    let no = scopes::ensure_scope(tx, scope)?;
    outcomes::refuse_taken(tx, no.tenant, entry.claim.as_ref(), entry.now)?;
    let NewEntry { id, content, tags, expires_at, now, hidden, claim, .. } = entry;
    let id = id.map_or_else(|| new_id(tx, scope), Ok)?;
    let same_id = "SELECT 1 FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3";
    if tx.finds(same_id, params![no.tenant, no.scope, id])? {
        return Err(StoreError::EntryExists { id });
    }
    let change = Change::bytes(entry_bytes(&content, &tags));
    let record = EntryRecord {
        id,
        content,
        tags,
        created_at: now,
        expires_at,
        began: Position(0),
        derived: false,
        successor: None,
    };
    let record = insert(tx, scope, no, record, &hidden)?;
    usage::keep(tx, (scope.tenant(), no.tenant), change)?;
    outcomes::put_claimed(tx, no.tenant, claim.as_ref(), &record, now)?;
    Ok(record)
}

/// The id of the next entry, whose caller chooses none.
pub(crate) fn new_id(tx: &Tx<'_>, scope: &Scope) -> Result<String> {
    Ok(log::new_id(tx, scope.tenant(), "entry")?.0)
}

/// Inserts an entry and logs `memory.written`, where it begins.
pub(crate) fn insert(
    tx: &Tx<'_>,
    scope: &Scope,
    no: ScopeNo,
    mut entry: EntryRecord,
    hidden: &Hidden,
) -> Result<EntryRecord> {
    let payload = json!({ "memoryRef": scope.memory(), "memoryId": entry.id });
    let payload = payload_with(payload, hidden);
    let now = entry.created_at;
    entry.began = log::record(tx, no.tenant, Some(no.scope), "memory.written", &payload, now)?;
    let row = fields! {
        tenant: no.tenant,
        scope: no.scope,
        id: entry.id,
        content: entry.content.as_str().as_bytes(),
        tags: tags_json(&entry.tags),
        created_at: now,
        expires_at: entry.expires_at,
        began: entry.began,
        derived: entry.derived,
    };
    tx.insert("entries", row)?;
    hidden::put_hidden(tx, no, entry.began, hidden)?;
    Ok(entry)
}

/// Ends entries and logs each; returns how many superseded ones are in force again.
pub(crate) fn end_all(
    tx: &Tx<'_>,
    scope: &Scope,
    no: ScopeNo,
    ending: &[String],
    now: Millis,
) -> Result<usize> {
    // An entry whose successor lives was not in force from there on: that stays its end.
    let end = format!(
        "UPDATE entries SET ended = CASE WHEN {SUPERSEDED} THEN ended ELSE ?4 END, ended_at = ?3
         WHERE tenant = ?1 AND scope = ?2 AND id = ?5"
    );
    for id in ending {
        let payload = json!({ "memoryRef": scope.memory(), "memoryId": id }).to_string();
        let ended = log::record(tx, no.tenant, Some(no.scope), "memory.deleted", &payload, now)?;
        tx.change(&end, params![no.tenant, no.scope, now, ended, id])?;
    }
    ending.iter().map(|id| derivation::let_go(tx, no, id, now)).sum()
}

/// Refuses reads as of any position before the last of the log, plus `more`.
pub(crate) fn keep_from(tx: &Tx<'_>, no: ScopeNo, more: i64) -> Result<()> {
    tx.change(
        "UPDATE scopes SET entries_from = max(entries_from,
             (SELECT position + ?3 FROM tenants WHERE tenant = ?1))
         WHERE tenant = ?1 AND scope = ?2",
        [no.tenant, no.scope, more],
    )
}

// Reading. In every statement `?1` is the tenant, `?2` the memory and `?3` the moment.

/// An entry's columns. One that is in force again has no successor.
pub(crate) const COLUMNS: &str = "id, content, tags, created_at, expires_at, began, derived,
    CASE WHEN superseded_until <= ?3 THEN NULL ELSE successor END";

const OF_SHOWN: &str = "id, content, tags, created_at, expires_at, began, derived, NULL";

pub(crate) const LIVES: &str = "(expires_at IS NULL OR expires_at > ?3)";

/// Condition: the entry's successor has not expired.
pub(crate) const SUPERSEDED: &str =
    "(successor IS NOT NULL AND (superseded_until IS NULL OR superseded_until > ?3))";

/// Condition: the entry, unless it has expired, is in force as of position `?4`, or now
/// where that is null. Those that `?5` names may have begun later.
const IN_FORCE: &str = "(ended IS NULL OR superseded_until <= ?3 OR ended > ?4)
    AND (?4 IS NULL OR began <= ?4 OR id IN (SELECT value FROM json_each(?5)))";

/// Condition: the entry has tag `?6`, unless that is null.
const HAS_TAG: &str = "(?6 IS NULL OR EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?6))";

/// The entries in force now: those that never ended, and those whose successor has expired.
/// Each has an index of its own.
pub(crate) const IN_FORCE_NOW: [(&str, &str); 2] =
    [("entries_shown", "ended IS NULL"), ("entries_back", "superseded_until <= ?3")];

pub(crate) fn in_force_now(columns: &str, condition: &str) -> String {
    let select = |(index, is_in_force)| {
        format!(
            "SELECT {columns} FROM entries INDEXED BY {index}
             WHERE tenant = ?1 AND scope = ?2 AND {is_in_force} AND {LIVES} AND {condition}"
        )
    };
    IN_FORCE_NOW.map(select).join(" UNION ALL ")
}

pub(crate) fn get(
    tx: &Tx<'_>,
    scope: &Scope,
    id: &str,
    at: Option<Position>,
    now: Millis,
) -> Result<Option<EntryRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(None) };
    refuse_gone(tx, no, at)?;
    let (columns, is_shown) = match at {
        Some(_) => (OF_SHOWN, IN_FORCE),
        None => (COLUMNS, "(ended IS NULL OR successor IS NOT NULL)"),
    };
    let sql = format!(
        "SELECT {columns} FROM entries
         WHERE tenant = ?1 AND scope = ?2 AND id = ?6 AND {LIVES} AND {is_shown}"
    );
    tx.first(&sql, params![no.tenant, no.scope, now, at, None::<&str>, id], tuple)
}

/// Fails where entries that were in force at a position have been purged.
fn refuse_gone(tx: &Tx<'_>, no: ScopeNo, at: Option<Position>) -> Result<()> {
    let Some(at) = at else { return Ok(()) };
    let oldest = scopes::field(tx, no, "entries_from")?;
    if at < oldest { Err(StoreError::SnapshotGone { oldest }) } else { Ok(()) }
}

fn newest<T: FromColumns>(
    tx: &Tx<'_>,
    columns: &str,
    filter: &EntryFilter,
    now: Millis,
    limit: usize,
) -> Result<Vec<T>> {
    let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
    refuse_gone(tx, no, filter.at)?;
    let sql = match filter.at {
        Some(_) => format!(
            "SELECT {columns} FROM entries INDEXED BY entries_by_time
             WHERE tenant = ?1 AND scope = ?2 AND {LIVES} AND {IN_FORCE} AND {HAS_TAG}
             ORDER BY created_at DESC, began DESC LIMIT ?7"
        ),
        None => {
            let columns = format!("{columns}, created_at AS put_at, began AS place");
            let shown = in_force_now(&columns, HAS_TAG);
            format!("{shown} ORDER BY put_at DESC, place DESC LIMIT ?7")
        }
    };
    let own = json!(filter.own).to_string();
    tx.all(&sql, params![no.tenant, no.scope, now, filter.at, own, filter.tag, limit], tuple)
}

/// All entries of a memory, in force or not, by where they began.
pub(crate) fn kept(tx: &Tx<'_>, no: ScopeNo) -> Result<Vec<EntryRecord>> {
    let sql =
        format!("SELECT {OF_SHOWN} FROM entries WHERE tenant = ?1 AND scope = ?2 ORDER BY began");
    tx.all(&sql, [no.tenant, no.scope], tuple)
}

record! {
    EntryRecord { id, content, tags, created_at, expires_at, began, derived, successor }
}
