//! Entries that are made of others and replace them.
//!
//! Columns of a replaced entry name its successor, and end with it. `entry_quotes` names what
//! an entry was made of for as long as both have rows: erasing a source must find every copy
//! of its words, also in an ended entry that readers of the past still see.

use std::collections::BTreeSet;
use std::sync::Arc;

use icecore_domain::ids::{Position, Scope};
use icecore_domain::redact::{Hidden, RedactedText};
use icecore_domain::time::Millis;

use super::{COLUMNS, IN_FORCE_NOW, LIVES, SUPERSEDED};
use crate::bounds::{Change, entry_bytes};
use crate::engine::prelude::*;
use crate::entries::EntryRecord;
use crate::store::Store;
use crate::{entries, log, scopes, secrets, usage};

/// Makes the payload of a record from the ids of the entries that were written.
pub type MakePayload = Arc<dyn Fn(&[String]) -> serde_json::Value + Send + Sync>;

/// Entries to write in place of others, in one step.
#[derive(Clone)]
pub struct Derivation {
    pub outputs: Vec<DerivedEntry>,
    pub replaced: Vec<Replaced>,
    pub kind: DerivationKind,
    /// Makes the payload of the derivation's one event, which holds no content.
    pub payload: MakePayload,
    pub now: Millis,
    pub secrets_seen: u64,
}

#[derive(Debug, Clone)]
pub struct DerivedEntry {
    /// Chosen by the caller, unique in the tenant; without one it gets one of ours.
    pub id: Option<String>,
    pub content: RedactedText,
    pub tags: Vec<RedactedText>,
    /// It is stored with an earlier time if one of its sources expires sooner.
    pub expires_at: Option<Millis>,
    pub hidden: Hidden,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    pub id: String,
    pub by: Successor,
    /// Whether the successor says something else. Deleting a successor puts entries that it
    /// overtook in force again, and deletes the others, whose words it repeats.
    pub is_overtaken: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Successor {
    /// An output of the same derivation, by its index.
    Output(usize),
    /// An existing entry, by id, which stays as it is.
    Kept(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DerivationKind {
    /// Many entries were compressed into one.
    Compacted,
    /// Entries that say the same, or were overtaken, were put together.
    Consolidated,
}

impl DerivationKind {
    pub fn as_str(self) -> &'static str {
        match self {
            DerivationKind::Compacted => "memory.compacted",
            DerivationKind::Consolidated => "agent.memory.consolidated",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    pub outputs: Vec<EntryRecord>,
    pub payload: String,
    pub position: Position,
}

/// The sort key of a memory's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryPlace {
    pub created_at: Millis,
    pub began: Position,
}

record! {
    EntryPlace { created_at, began }
}

impl EntryRecord {
    pub fn place(&self) -> EntryPlace {
        EntryPlace { created_at: self.created_at, began: self.began }
    }
}

impl Store {
    /// Writes entries in place of others, all in one step, and logs `memory.written` for
    /// each, then one event for the derivation. An output without an id gets one of ours.
    /// It quotes the entries that it replaces, except those that it overtakes, and expires
    /// no later than any that it quotes. A replaced entry is out of force and names its
    /// successor until that expires; then it is in force again, unless the successor was
    /// itself replaced, and for as long as that holds. Returns `None`, having done
    /// nothing, if an entry that is replaced or kept is no longer in force, or is named
    /// twice as replaced, or as both. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    ///
    /// [`StoreError::SecretsChanged`]: crate::StoreError::SecretsChanged
    pub async fn derive_entries(
        &self,
        scope: &Scope,
        derivation: Derivation,
    ) -> Result<Option<Derived>> {
        self.write(scope, "derive_entries", move |tx| {
            let scope = tx.scope()?;
            secrets::refuse_changed(tx, scope.tenant(), derivation.secrets_seen)?;
            match still_there(tx, tx.scope_no()?, &derivation)? {
                Some(expiries) => Ok(Some(write(tx, scope, derivation.clone(), expiries)?)),
                None => Ok(None),
            }
        })
        .await
    }

    /// The entries that this one replaces now, oldest first; not those that one of these
    /// replaces in turn.
    pub async fn sources_of(
        &self,
        scope: &Scope,
        id: &str,
        now: Millis,
    ) -> Result<Vec<EntryRecord>> {
        let id = id.to_owned();
        self.read(scope, "sources_of", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            let sql = format!(
                "SELECT {COLUMNS} FROM entries INDEXED BY entries_by_successor
                 WHERE tenant = ?1 AND scope = ?2 AND successor = ?4 AND {SUPERSEDED} AND {LIVES}
                 ORDER BY created_at, began"
            );
            tx.all(&sql, params![no.tenant, no.scope, now, id], tuple)
        })
        .await
    }

    /// Memories, of any tenant, with at least `count` entries in force, none of which was
    /// put after `quiet_since`.
    pub async fn crowded_memories(
        &self,
        count: u64,
        quiet_since: Millis,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<Scope>> {
        self.read(Isolation::Global, "crowded_memories", move |tx| {
            scopes::find_scopes(tx, &crowded_sql(), params![count, quiet_since, now, limit])
        })
        .await
    }

    /// The places of the first `limit` entries in force now, oldest first, after a place.
    pub async fn oldest_places(
        &self,
        scope: &Scope,
        after: Option<EntryPlace>,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryPlace>> {
        self.read(scope, "oldest_places", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            oldest(tx, no, "ended IS NULL OR successor IS NOT NULL", after, now, limit)
        })
        .await
    }
}

/// Selects the places of the first `?6` entries in force that meet a condition, oldest
/// first, after the time `?4` and position `?5`.
pub(crate) fn oldest_sql(condition: &str) -> String {
    let places = entries::in_force_now(
        "created_at AS put_at, began AS place",
        &format!("(created_at, began) > (?4, ?5) AND ({condition})"),
    );
    format!("{places} ORDER BY put_at, place LIMIT ?6")
}

pub(crate) fn oldest(
    tx: &Tx<'_>,
    no: ScopeNo,
    condition: &str,
    after: Option<EntryPlace>,
    now: Millis,
    limit: usize,
) -> Result<Vec<EntryPlace>> {
    let (time, began) = after.map_or((i64::MIN, -1), |at| (at.created_at.0, number(at.began.0)));
    let values = params![no.tenant, no.scope, now, time, began, limit];
    tx.all(&oldest_sql(condition), values, tuple)
}

/// Selects `?4` memories with `?1` entries in force at moment `?3`, none put after `?2`. It runs
/// often, so it reads indexes alone and counts no further than `?1`.
fn crowded_sql() -> String {
    let [stayed, back] = IN_FORCE_NOW.map(|(index, condition)| {
        format!(
            "SELECT 1 FROM entries INDEXED BY {index} WHERE entries.tenant = p.tenant
               AND entries.scope = p.scope AND {condition} AND {LIVES}"
        )
    });
    format!(
        "SELECT p.tenant, p.scope FROM scopes p
         WHERE NOT EXISTS ({stayed} AND created_at > ?2)
           AND NOT EXISTS ({back} AND created_at > ?2)
           AND ?1 <= (SELECT count(*) FROM ({stayed} LIMIT ?1) e)
             + (SELECT count(*) FROM ({back} LIMIT ?1) e)
         ORDER BY p.tenant, p.scope LIMIT ?4"
    )
}

pub(crate) struct Expiries {
    outputs: Vec<Option<Millis>>,
    /// Of the successor of each replaced entry, where that is an existing one.
    kept: Vec<Option<Millis>>,
}

/// `None` if an entry that the derivation names is not in force.
pub(crate) fn still_there(
    tx: &Tx<'_>,
    no: Option<ScopeNo>,
    derivation: &Derivation,
) -> Result<Option<Expiries>> {
    let mut outputs: Vec<_> = derivation.outputs.iter().map(|output| output.expires_at).collect();
    let mut kept = Vec::with_capacity(derivation.replaced.len());
    let replaced: BTreeSet<&String> = derivation.replaced.iter().map(|one| &one.id).collect();
    if replaced.len() < derivation.replaced.len() {
        return Ok(None);
    }
    let in_force = format!(
        "SELECT expires_at FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?4 AND {LIVES}
           AND (ended IS NULL OR superseded_until <= ?3)"
    );
    // When an entry expires, if it ever does; the outer `None` is one that is not in force.
    let expiry = |id: &str| -> Result<Option<Option<Millis>>> {
        let Some(no) = no else { return Ok(None) };
        tx.first(&in_force, params![no.tenant, no.scope, derivation.now, id], column)
    };
    for one in &derivation.replaced {
        let Some(mine) = expiry(&one.id)? else { return Ok(None) };
        match &one.by {
            Successor::Output(index) => {
                let Some(output) = outputs.get_mut(*index) else { return Ok(None) };
                let quoted = mine.filter(|_| !one.is_overtaken);
                *output = [*output, quoted].into_iter().flatten().min();
                kept.push(None);
            }
            Successor::Kept(id) if replaced.contains(id) => return Ok(None),
            Successor::Kept(id) => match expiry(id)? {
                Some(until) => kept.push(until),
                None => return Ok(None),
            },
        }
    }
    Ok(Some(Expiries { outputs, kept }))
}

/// Writes a derivation whose entries are [`still_there`].
pub(crate) fn write(
    tx: &Tx<'_>,
    scope: &Scope,
    derivation: Derivation,
    expiries: Expiries,
) -> Result<Derived> {
    let no = scopes::ensure_scope(tx, scope)?;
    let Derivation { outputs, replaced, kind, payload, now, .. } = derivation;
    let mut written = Vec::with_capacity(outputs.len());
    for (output, expires_at) in outputs.into_iter().zip(expiries.outputs) {
        let record = EntryRecord {
            id: output.id.map_or_else(|| entries::new_id(tx, scope), Ok)?,
            content: output.content,
            tags: output.tags,
            created_at: now,
            expires_at,
            began: Position(0),
            derived: true,
            successor: None,
        };
        let change = Change::bytes(entry_bytes(&record.content, &record.tags));
        written.push(entries::insert(tx, scope, no, record, &output.hidden)?);
        usage::change(tx, no.tenant, change)?;
    }
    let ids: Vec<String> = written.iter().map(|entry| entry.id.clone()).collect();
    let payload = payload(&ids).to_string();
    let position = log::record(tx, no.tenant, Some(no.scope), kind.as_str(), &payload, now)?;
    for (one, kept_until) in replaced.iter().zip(expiries.kept) {
        match &one.by {
            // At every position either the source or its output is in force.
            Successor::Output(index) => {
                let by = &written[*index];
                supersede(tx, no, one, by.began, (&by.id, by.expires_at))?;
                if !one.is_overtaken {
                    quote(tx, no, &one.id, &by.id)?;
                }
            }
            Successor::Kept(id) => supersede(tx, no, one, position, (id, kept_until))?,
        }
    }
    for one in &replaced {
        update_expiry_below(tx, no, &one.id)?;
    }
    Ok(Derived { outputs: written, payload, position })
}

fn supersede(
    tx: &Tx<'_>,
    no: ScopeNo,
    one: &Replaced,
    from: Position,
    (by, until): (&str, Option<Millis>),
) -> Result<()> {
    tx.change(
        "UPDATE entries SET ended = ?4, successor = ?5, superseded_until = ?6, overtaken = ?7
         WHERE tenant = ?1 AND scope = ?2 AND id = ?3",
        params![no.tenant, no.scope, one.id, from, by, until, one.is_overtaken],
    )
}

fn quote(tx: &Tx<'_>, no: ScopeNo, source: &str, output: &str) -> Result<()> {
    tx.change(
        "INSERT INTO entry_quotes (tenant, scope, source, output)
         VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        params![no.tenant, no.scope, source, output],
    )
}

/// The entries that end with one in force: itself, those that it replaced and did not
/// overtake, and those that were made of any of these. It comes first, the others by where
/// they began. Notes what quoted each replaced entry, so that erasing it later finds that too.
pub(crate) fn ending_with(tx: &Tx<'_>, no: ScopeNo, id: &str, now: Millis) -> Result<Vec<String>> {
    // Also by way of an entry that has expired and is not purged.
    let said = reachable([id.to_owned()], |id| ids(tx, SAID_BY, no, now, id))?;
    let mut ending = BTreeSet::from([id.to_owned()]);
    for other in said.iter().filter(|other| *other != id) {
        if let Some(successor) = successor(tx, no, other)? {
            quote(tx, no, other, &successor.id)?;
        }
        let living = format!(
            "SELECT id FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?4 AND {LIVES}"
        );
        ending.extend(ids(tx, &living, no, now, other)?);
    }
    with_what_quotes(tx, no, id, ending, now)
}

/// An entry, others that end with it, and existing entries that were made of any of these.
/// It comes first, the others by where they began.
pub(crate) fn with_what_quotes(
    tx: &Tx<'_>,
    no: ScopeNo,
    id: &str,
    mut ending: BTreeSet<String>,
    now: Millis,
) -> Result<Vec<String>> {
    ending.insert(id.to_owned());
    let quoting = format!("{QUOTING} AND e.ended_at IS NULL AND {LIVES}");
    let mut ending = reachable(ending, |id| ids(tx, &quoting, no, now, id))?;
    ending.remove(id);
    let began = "SELECT began FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3";
    let mut others: Vec<(Position, String)> = ending
        .into_iter()
        .map(|other| Ok((tx.one(began, params![no.tenant, no.scope, other], column)?, other)))
        .collect::<Result<_>>()?;
    others.sort();
    let others = others.into_iter().map(|(_, other)| other);
    Ok(std::iter::once(id.to_owned()).chain(others).collect())
}

/// The entries that are erased with some: these, and what was made of them, ended or not. With
/// `down` also those that they replace now and did not overtake, and those that they were made
/// of and that have ended or expired.
pub(crate) fn erased_with(
    tx: &Tx<'_>,
    no: ScopeNo,
    named: Vec<String>,
    now: Millis,
    down: bool,
) -> Result<BTreeSet<String>> {
    let mut erased: BTreeSet<String> = named.into_iter().collect();
    if down {
        // An entry that is in force again stays: it has words of its own.
        erased = reachable(erased, |id| {
            let mut below = ids(tx, SAID_BY, no, now, id)?;
            below.extend(ids(tx, QUOTED_AND_OVER, no, now, id)?);
            Ok(below)
        })?;
    }
    reachable(erased, |id| ids(tx, QUOTING, no, None, id))
}

/// The entries that were made of some, or of what was made of them, ended or not.
pub(crate) fn quoting(tx: &Tx<'_>, no: ScopeNo, sources: &[String]) -> Result<BTreeSet<String>> {
    let mut quoting = BTreeSet::new();
    for source in sources {
        quoting.extend(ids(tx, QUOTING, no, None, source)?);
    }
    reachable(quoting, |id| ids(tx, QUOTING, no, None, id))
}

/// Selects the entries that were made of `?4`.
const QUOTING: &str = "SELECT e.id FROM entry_quotes q
    JOIN entries e ON e.tenant = q.tenant AND e.scope = q.scope AND e.id = q.output
    WHERE q.tenant = ?1 AND q.scope = ?2 AND q.source = ?4";

/// Selects the entries that `?4` was made of and that have ended or expired at moment `?3`.
const QUOTED_AND_OVER: &str = "SELECT e.id FROM entry_quotes q
    JOIN entries e ON e.tenant = q.tenant AND e.scope = q.scope AND e.id = q.source
    WHERE q.tenant = ?1 AND q.scope = ?2 AND q.output = ?4
      AND (e.ended_at IS NOT NULL OR e.expires_at <= ?3)";

/// Selects the entries that `?4` replaces at moment `?3` and whose words it has.
const SAID_BY: &str = "SELECT id FROM entries INDEXED BY entries_by_successor
    WHERE tenant = ?1 AND scope = ?2 AND successor = ?4 AND overtaken = 0
      AND (superseded_until IS NULL OR superseded_until > ?3)";

fn ids(
    tx: &Tx<'_>,
    sql: &str,
    no: ScopeNo,
    now: impl Into<Option<Millis>>,
    id: &str,
) -> Result<Vec<String>> {
    tx.all(sql, params![no.tenant, no.scope, now.into(), id], column)
}

/// These entries, and all that `next` reaches from them step by step.
fn reachable(
    from: impl IntoIterator<Item = String>,
    next: impl Fn(&str) -> Result<Vec<String>>,
) -> Result<BTreeSet<String>> {
    let mut known: BTreeSet<String> = from.into_iter().collect();
    let mut open: Vec<String> = known.iter().cloned().collect();
    while let Some(id) = open.pop() {
        for reached in next(&id)? {
            if known.insert(reached.clone()) {
                open.push(reached);
            }
        }
    }
    Ok(known)
}

/// The entry that replaces another, or replaced it until it expired.
struct SuccessorOf {
    id: String,
    until: Option<Millis>,
    is_overtaken: bool,
}

record! {
    SuccessorOf { id, until, is_overtaken }
}

fn successor(tx: &Tx<'_>, no: ScopeNo, id: &str) -> Result<Option<SuccessorOf>> {
    tx.first(
        "SELECT successor, superseded_until, overtaken FROM entries
         WHERE tenant = ?1 AND scope = ?2 AND id = ?3 AND successor IS NOT NULL",
        params![no.tenant, no.scope, id],
        tuple,
    )
}

/// Gives the entries that one replaced to its heir, or puts them in force again if there is
/// none; returns how many are in force again.
fn hand_over(tx: &Tx<'_>, no: ScopeNo, id: &str, heir: Option<&SuccessorOf>) -> Result<usize> {
    let moved: Vec<String> = match heir {
        // An entry is overtaken if any of its successors, one after the other, overtook.
        Some(heir) => tx.all(
            "UPDATE entries SET successor = ?4, superseded_until = ?5, overtaken = max(overtaken, ?6)
             WHERE tenant = ?1 AND scope = ?2 AND successor = ?3 RETURNING id",
            params![no.tenant, no.scope, id, heir.id, heir.until, heir.is_overtaken],
            column,
        )?,
        None => {
            let freed: Vec<(String, Option<Millis>)> = tx.all(
                "UPDATE entries SET ended = CASE WHEN ended_at IS NULL THEN NULL ELSE ended END,
                     successor = NULL, superseded_until = NULL, overtaken = 0
                 WHERE tenant = ?1 AND scope = ?2 AND successor = ?3 RETURNING id, ended_at",
                params![no.tenant, no.scope, id],
                tuple,
            )?;
            let back = freed.into_iter().filter(|(_, ended_at)| ended_at.is_none());
            back.map(|(id, _)| id).collect()
        }
    };
    for id in &moved {
        update_expiry_below(tx, no, id)?;
    }
    Ok(if heir.is_some() { 0 } else { moved.len() })
}

/// Recomputes until when the entries below one are out of force: while that one lives, and
/// then while another replaces it.
fn update_expiry_below(tx: &Tx<'_>, no: ScopeNo, id: &str) -> Result<()> {
    let mut open = vec![id.to_owned()];
    while let Some(id) = open.pop() {
        let expires_at: Option<Millis> = tx.one(
            "SELECT expires_at FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3",
            params![no.tenant, no.scope, id],
            column,
        )?;
        // An entry that never expires hides those below for good, whatever replaces it.
        let Some(expires_at) = expires_at else { continue };
        let until = match successor(tx, no, &id)? {
            Some(successor) => successor.until.map(|until| until.max(expires_at)),
            None => Some(expires_at),
        };
        open.extend(tx.all(
            "UPDATE entries SET superseded_until = ?4 WHERE tenant = ?1 AND scope = ?2
               AND successor = ?3 AND superseded_until IS NOT ?4 RETURNING id",
            params![no.tenant, no.scope, id, until],
            column::<String>,
        )?);
    }
    Ok(())
}

/// Severs an entry that has ended from those that it replaced and from its successor; returns
/// how many are in force again.
pub(crate) fn let_go(tx: &Tx<'_>, no: ScopeNo, id: &str, now: Millis) -> Result<usize> {
    let heir = successor(tx, no, id)?.filter(|one| one.until.is_none_or(|until| until > now));
    let back = hand_over(tx, no, id, heir.as_ref())?;
    tx.change(
        "UPDATE entries SET successor = NULL, superseded_until = NULL, overtaken = 0
         WHERE tenant = ?1 AND scope = ?2 AND id = ?3",
        params![no.tenant, no.scope, id],
    )?;
    Ok(back)
}

/// Severs an entry whose row is about to be deleted from all others.
pub(crate) fn forget(tx: &Tx<'_>, no: ScopeNo, id: &str) -> Result<()> {
    hand_over(tx, no, id, successor(tx, no, id)?.as_ref())?;
    // What was made of it was made of its sources.
    for sql in [
        "INSERT INTO entry_quotes (tenant, scope, source, output)
         SELECT ?1, ?2, s.source, o.output FROM entry_quotes s, entry_quotes o
         WHERE s.tenant = ?1 AND s.scope = ?2 AND s.output = ?3
           AND o.tenant = ?1 AND o.scope = ?2 AND o.source = ?3
         ON CONFLICT DO NOTHING",
        "DELETE FROM entry_quotes WHERE tenant = ?1 AND scope = ?2 AND source = ?3",
        "DELETE FROM entry_quotes WHERE tenant = ?1 AND scope = ?2 AND output = ?3",
    ] {
        tx.change(sql, params![no.tenant, no.scope, id])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::engine::tx::Isolation;

    #[tokio::test]
    async fn to_count_entries_none_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), None).unwrap();
        let steps = store.read(Isolation::Global, "test", |tx| tx.plan(&crowded_sql()));
        let steps = steps.await.unwrap();
        let reads: Vec<&String> = steps.iter().filter(|step| step.contains(" entries ")).collect();
        assert_eq!(reads.len(), 4, "{steps:?}");
        for step in reads {
            assert!(step.starts_with("SEARCH entries USING COVERING INDEX"), "{step}");
        }
    }
}
