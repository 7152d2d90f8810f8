//! Entries that stand for others.
//!
//! Two things are kept of them. What an entry stands for is said by the columns of
//! what is replaced, and ends with it. What an entry was made of is said by
//! `entry_quotes` for as long as both are there: forgetting a source must find every
//! copy of its words, also in an entry that ended and is still kept for who reads
//! the past.

use std::collections::BTreeSet;
use std::sync::Arc;

use icecore_domain::ids::{Position, Scope};
use icecore_domain::redact::{Hidden, RedactedText};
use icecore_domain::time::Millis;

use super::{COLUMNS, LIVES, SUPERSEDED};
use crate::bounds::{Change, entry_bytes};
use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{OptionalExtension, params};
use crate::entries::EntryRecord;
use crate::error::Result;
use crate::store::Store;
use crate::{engine, entries, log, scopes, secrets, usage};

/// Makes the payload of a record from the ids of what was written.
pub type MakePayload = Arc<dyn Fn(&[String]) -> serde_json::Value + Send + Sync>;

/// Entries to write in place of others, in one step.
#[derive(Clone)]
pub struct Derivation {
    /// What is written, in order.
    pub outputs: Vec<DerivedEntry>,
    /// What is in force no more.
    pub replaced: Vec<Replaced>,
    /// What the one record of the log is called.
    pub kind: DerivationKind,
    /// Makes the record's payload from the ids of the outputs. It holds no content.
    pub payload: MakePayload,
    /// Now.
    pub now: Millis,
    /// The version of the tenant's secrets with which the outputs were redacted.
    pub secrets_seen: u64,
}

impl std::fmt::Debug for Derivation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Derivation")
            .field("kind", &self.kind)
            .field("replaced", &self.replaced)
            .finish_non_exhaustive()
    }
}

/// An entry that is made of others.
#[derive(Debug, Clone)]
pub struct DerivedEntry {
    /// Its id, where its maker chose one that nothing else in the tenant has.
    pub id: Option<String>,
    /// What it says.
    pub content: RedactedText,
    /// Its tags.
    pub tags: Vec<RedactedText>,
    /// When it ends by itself. It quotes nothing that expires sooner.
    pub expires_at: Option<Millis>,
    /// What was hidden in it.
    pub hidden: Hidden,
}

/// An entry that another stands for from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// Its id.
    pub id: String,
    /// What stands for it.
    pub by: Successor,
    /// Whether that says something else. If it goes, an entry that was overtaken is in
    /// force again; any other goes with it, for then its words are gone too.
    pub is_overtaken: bool,
}

/// What stands for an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Successor {
    /// An output of the same derivation, by its place.
    Output(usize),
    /// An entry that is there and stays as it is.
    Kept(String),
}

/// Why entries were derived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DerivationKind {
    /// Many were pressed into one.
    Compacted,
    /// What said the same, or was overtaken, was put together.
    Consolidated,
}

impl DerivationKind {
    /// The event's kind.
    pub fn as_str(self) -> &'static str {
        match self {
            DerivationKind::Compacted => "memory.compacted",
            DerivationKind::Consolidated => "agent.memory.consolidated",
        }
    }
}

/// What came of a derivation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// The entries that were written, in order.
    pub outputs: Vec<EntryRecord>,
    /// The payload of the record.
    pub payload: String,
    /// Where in the log.
    pub position: Position,
}

/// Where an entry is among those of its memory, which are ordered so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryPlace {
    /// When it was put.
    pub created_at: Millis,
    /// Where it began.
    pub began: Position,
}

impl EntryRecord {
    /// Where it is among those of its memory.
    pub fn place(&self) -> EntryPlace {
        EntryPlace { created_at: self.created_at, began: self.began }
    }
}

pub(crate) fn derive(
    tx: &Tx<'_>,
    scope: &Scope,
    derivation: Derivation,
) -> Result<Option<Derived>> {
    secrets::refuse_changed(tx, scope.tenant(), derivation.secrets_seen)?;
    let named = scopes::scope_no(tx, scope)?;
    let Some(expiries) = still_there(tx, named, &derivation)? else { return Ok(None) };
    write(tx, scope, derivation, expiries).map(Some)
}

/// Writes a derivation of what is still there.
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
        let DerivedEntry { id, content, tags, hidden, .. } = output;
        let id = match id {
            Some(id) => id,
            None => entries::next_id(tx, scope)?,
        };
        let mut record = EntryRecord {
            id,
            content,
            tags,
            created_at: now,
            expires_at,
            began: Position(0),
            derived: true,
            successor: None,
        };
        record.began = entries::insert(tx, scope, no, &record, &hidden)?;
        let change = Change::bytes(entry_bytes(&record.content, &record.tags));
        usage::change(tx, no.tenant, change)?;
        written.push(record);
    }
    let ids: Vec<String> = written.iter().map(|entry| entry.id.clone()).collect();
    let payload = payload(&ids).to_string();
    let replace = || -> Result<_> {
        let kind = kind.as_str();
        let position = log::record(tx, no.tenant, Some(no.scope), kind, &payload, now)?;
        for (one, kept_until) in replaced.iter().zip(expiries.kept) {
            match &one.by {
                // At every position one of the two is in force.
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
            reckon_below(tx, no, &one.id)?;
        }
        Ok(position)
    };
    let position = replace()?;
    Ok(Derived { outputs: written, payload, position })
}

/// When what stands for others expires.
pub(crate) struct Expiries {
    /// The outputs, by their place.
    outputs: Vec<Option<Millis>>,
    /// What each replaced entry is kept for, by the place of that entry.
    kept: Vec<Option<Millis>>,
}

/// Nothing, if anything that is named is not in force.
pub(crate) fn still_there(
    tx: &Tx<'_>,
    no: Option<ScopeNo>,
    derivation: &Derivation,
) -> Result<Option<Expiries>> {
    let mut outputs: Vec<_> = derivation.outputs.iter().map(|output| output.expires_at).collect();
    let mut kept = Vec::with_capacity(derivation.replaced.len());
    let replaced: BTreeSet<&str> = derivation.replaced.iter().map(|one| one.id.as_str()).collect();
    if replaced.len() < derivation.replaced.len() {
        return Ok(None);
    }
    let expiry = |id: &str| match no {
        Some(no) => expiry_in_force(tx, no, id, derivation.now),
        None => Ok(None),
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
            Successor::Kept(id) if replaced.contains(id.as_str()) => return Ok(None),
            Successor::Kept(id) => match expiry(id)? {
                Some(until) => kept.push(until),
                None => return Ok(None),
            },
        }
    }
    Ok(Some(Expiries { outputs, kept }))
}

/// When an entry in force expires, if it does; nothing for one that is not in force.
fn expiry_in_force(
    tx: &Tx<'_>,
    no: ScopeNo,
    id: &str,
    now: Millis,
) -> Result<Option<Option<Millis>>> {
    tx.prepare_cached(&format!(
        "SELECT expires_at FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?4 AND {LIVES}
           AND (ended IS NULL OR superseded_until <= ?3)"
    ))?
    .query_row(params![no.tenant, no.scope, now.0, id], |row| {
        Ok(row.get::<_, Option<i64>>(0)?.map(Millis))
    })
    .optional()
}

fn supersede(
    tx: &Tx<'_>,
    no: ScopeNo,
    one: &Replaced,
    from: Position,
    (by, until): (&str, Option<Millis>),
) -> Result<()> {
    let until = until.map(|at| at.0);
    tx.prepare_cached(
        "UPDATE entries SET ended = ?4, successor = ?5, superseded_until = ?6, overtaken = ?7
         WHERE tenant = ?1 AND scope = ?2 AND id = ?3",
    )?
    .execute(params![
        no.tenant,
        no.scope,
        one.id,
        from.0 as i64,
        by,
        until,
        one.is_overtaken
    ])?;
    Ok(())
}

fn quote(tx: &Tx<'_>, no: ScopeNo, source: &str, output: &str) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO entry_quotes (tenant, scope, source, output)
         VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
    )?
    .execute(params![no.tenant, no.scope, source, output])?;
    Ok(())
}

pub(crate) fn sources(
    tx: &Tx<'_>,
    scope: &Scope,
    id: &str,
    now: Millis,
) -> Result<Vec<EntryRecord>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    tx.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM entries INDEXED BY entries_by_successor
         WHERE tenant = ?1 AND scope = ?2 AND successor = ?4 AND {SUPERSEDED} AND {LIVES}
         ORDER BY created_at, began"
    ))
    .and_then(|mut q| {
        q.query_map(params![no.tenant, no.scope, now.0, id], entries::read)?.collect()
    })
}

pub(crate) fn crowded(
    tx: &Tx<'_>,
    count: u64,
    quiet_since: Millis,
    now: Millis,
    limit: usize,
) -> Result<Vec<Scope>> {
    let found: Vec<(i64, i64)> = tx.prepare_cached(&crowded_sql()).and_then(|mut q| {
        let (count, limit) = (engine::number(count), engine::number(limit as u64));
        q.query_map([count, quiet_since.0, now.0, limit], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
    })?;
    found.into_iter().map(|(tenant, scope)| scopes::scope_of(tx, tenant, scope)).collect()
}

/// What finds memories with `?1` entries in force at moment `?3`, none put after `?2`;
/// `?4` of them. It is asked again and again: no entry is read for it, and no more
/// are counted than are asked for.
fn crowded_sql() -> String {
    let of = |index: &str, condition: &str| {
        format!(
            "SELECT 1 FROM entries INDEXED BY {index} WHERE entries.tenant = p.tenant
               AND entries.scope = p.scope AND {condition} AND {LIVES}"
        )
    };
    let (stayed, back) =
        (of("entries_shown", "ended IS NULL"), of("entries_back", "superseded_until <= ?3"));
    format!(
        "SELECT p.tenant, p.scope FROM scopes p
         WHERE NOT EXISTS ({stayed} AND created_at > ?2)
           AND NOT EXISTS ({back} AND created_at > ?2)
           AND ?1 <= (SELECT count(*) FROM ({stayed} LIMIT ?1) e)
             + (SELECT count(*) FROM ({back} LIMIT ?1) e)
         ORDER BY p.tenant, p.scope LIMIT ?4"
    )
}

// What goes along

/// The entries that end with one that is shown: itself, what it stands for unless
/// that was overtaken, and what was made of any of these. It comes first, the others
/// by where they began. Who forgets one of them later finds what it said the same as.
pub(crate) fn ending_with(tx: &Tx<'_>, no: ScopeNo, id: &str, now: Millis) -> Result<Vec<String>> {
    let mut said = BTreeSet::from([id.to_owned()]);
    // Also by way of one that has expired, and is not purged.
    follow(&mut said, |id| names(tx, SAID_BY, params![no.tenant, no.scope, now.0, id]))?;
    let mut ending = BTreeSet::from([id.to_owned()]);
    for other in said.iter().filter(|other| *other != id) {
        if let Some(standing) = standing(tx, no, other)? {
            quote(tx, no, other, &standing.by)?;
        }
        let living = format!(
            "SELECT id FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?4 AND {LIVES}"
        );
        ending.extend(names(tx, &living, params![no.tenant, no.scope, now.0, other])?);
    }
    with_what_quotes(tx, no, id, ending, now)
}

/// An entry, others that end with it, and what was made of any of these and is there;
/// it comes first, the others by where they began.
pub(crate) fn with_what_quotes(
    tx: &Tx<'_>,
    no: ScopeNo,
    id: &str,
    mut ending: BTreeSet<String>,
    now: Millis,
) -> Result<Vec<String>> {
    ending.insert(id.to_owned());
    follow(&mut ending, |id| {
        let quoting = format!("{QUOTING} AND e.ended_at IS NULL AND {LIVES}");
        names(tx, &quoting, params![no.tenant, no.scope, now.0, id])
    })?;
    ending.remove(id);
    let mut others = ending
        .into_iter()
        .map(|other| Ok((began(tx, no, &other)?, other)))
        .collect::<Result<Vec<_>>>()?;
    others.sort();
    let others = others.into_iter().map(|(_, other)| other);
    Ok(std::iter::once(id.to_owned()).chain(others).collect())
}

/// The entries that are erased with some: these, what they stand for now if `down`,
/// unless that was overtaken, and what they were made of that is there no more; and
/// what was made of any of these, ended or not.
pub(crate) fn erased_with(
    tx: &Tx<'_>,
    no: ScopeNo,
    named: Vec<String>,
    now: Millis,
    down: bool,
) -> Result<BTreeSet<String>> {
    let mut erased: BTreeSet<String> = named.into_iter().collect();
    if down {
        // What is in force again belongs to nobody, and has words of its own.
        follow(&mut erased, |id| {
            let mut below = names(tx, SAID_BY, params![no.tenant, no.scope, now.0, id])?;
            below.extend(names(tx, QUOTED_AND_OVER, params![no.tenant, no.scope, now.0, id])?);
            Ok(below)
        })?;
    }
    follow(&mut erased, |id| names(tx, QUOTING, params![no.tenant, no.scope, None::<i64>, id]))?;
    Ok(erased)
}

/// The entries that were made of some, or of what was made of them, ended or not.
pub(crate) fn quoting(tx: &Tx<'_>, no: ScopeNo, sources: &[String]) -> Result<BTreeSet<String>> {
    let mut quoting = BTreeSet::new();
    let mut open = sources.to_vec();
    while let Some(id) = open.pop() {
        for output in names(tx, QUOTING, params![no.tenant, no.scope, None::<i64>, id])? {
            if quoting.insert(output.clone()) {
                open.push(output);
            }
        }
    }
    Ok(quoting)
}

const QUOTING: &str = "SELECT e.id FROM entry_quotes q
    JOIN entries e ON e.tenant = q.tenant AND e.scope = q.scope AND e.id = q.output
    WHERE q.tenant = ?1 AND q.scope = ?2 AND q.source = ?4";

/// Entries that `?4` was made of and that have ended or expired at moment `?3`.
const QUOTED_AND_OVER: &str = "SELECT e.id FROM entry_quotes q
    JOIN entries e ON e.tenant = q.tenant AND e.scope = q.scope AND e.id = q.source
    WHERE q.tenant = ?1 AND q.scope = ?2 AND q.output = ?4
      AND (e.ended_at IS NOT NULL OR e.expires_at <= ?3)";

/// Entries that `?4` stands for at moment `?3` and whose words it has.
const SAID_BY: &str = "SELECT id FROM entries INDEXED BY entries_by_successor
    WHERE tenant = ?1 AND scope = ?2 AND successor = ?4 AND overtaken = 0
      AND (superseded_until IS NULL OR superseded_until > ?3)";

fn names(tx: &Tx<'_>, sql: &str, values: impl engine::Params) -> Result<Vec<String>> {
    tx.prepare_cached(sql)?.query_map(values, |row| row.get(0))?.collect()
}

fn began(tx: &Tx<'_>, no: ScopeNo, id: &str) -> Result<i64> {
    tx.prepare_cached("SELECT began FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3")?
        .query_row(params![no.tenant, no.scope, id], |row| row.get(0))
}

/// Adds what can be reached, step by step, from what is there.
fn follow(known: &mut BTreeSet<String>, next: impl Fn(&str) -> Result<Vec<String>>) -> Result<()> {
    let mut open: Vec<String> = known.iter().cloned().collect();
    while let Some(id) = open.pop() {
        for reached in next(&id)? {
            if known.insert(reached.clone()) {
                open.push(reached);
            }
        }
    }
    Ok(())
}

/// What stands for an entry, or stood for it until it expired.
struct Standing {
    by: String,
    until: Option<i64>,
    is_overtaken: bool,
}

fn standing(tx: &Tx<'_>, no: ScopeNo, id: &str) -> Result<Option<Standing>> {
    tx.prepare_cached(
        "SELECT successor, superseded_until, overtaken FROM entries
         WHERE tenant = ?1 AND scope = ?2 AND id = ?3 AND successor IS NOT NULL",
    )?
    .query_row(params![no.tenant, no.scope, id], |row| {
        Ok(Standing { by: row.get(0)?, until: row.get(1)?, is_overtaken: row.get(2)? })
    })
    .optional()
}

/// Lets what an entry stood for be another's, or in force again if there is no other;
/// answers how many are in force again.
fn hand_over(tx: &Tx<'_>, no: ScopeNo, id: &str, heir: Option<Standing>) -> Result<usize> {
    let moved = match &heir {
        // What it says in the end, or says no more, is what the last of them says.
        Some(heir) => names(
            tx,
            "UPDATE entries SET successor = ?4, superseded_until = ?5, overtaken = max(overtaken, ?6)
             WHERE tenant = ?1 AND scope = ?2 AND successor = ?3 RETURNING id",
            params![no.tenant, no.scope, id, heir.by, heir.until, heir.is_overtaken],
        )?,
        None => {
            let there = "SELECT id FROM entries WHERE tenant = ?1 AND scope = ?2
                AND successor = ?3 AND ended_at IS NULL";
            let back = names(tx, there, params![no.tenant, no.scope, id])?;
            tx.prepare_cached(
                "UPDATE entries SET ended = CASE WHEN ended_at IS NULL THEN NULL ELSE ended END,
                     successor = NULL, superseded_until = NULL, overtaken = 0
                 WHERE tenant = ?1 AND scope = ?2 AND successor = ?3",
            )?
            .execute(params![no.tenant, no.scope, id])?;
            back
        }
    };
    for id in &moved {
        reckon_below(tx, no, id)?;
    }
    Ok(if heir.is_some() { 0 } else { moved.len() })
}

/// Says anew until when what an entry stands for is not in force: while the entry
/// lives, and then while another stands for it.
fn reckon_below(tx: &Tx<'_>, no: ScopeNo, id: &str) -> Result<()> {
    let mut open = vec![id.to_owned()];
    while let Some(id) = open.pop() {
        let expires_at: Option<i64> = tx
            .prepare_cached(
                "SELECT expires_at FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3",
            )?
            .query_row(params![no.tenant, no.scope, id], |row| row.get(0))?;
        // What never expires hides the others for good, whatever stands for it.
        let Some(expires_at) = expires_at else { continue };
        let until = match standing(tx, no, &id)? {
            Some(standing) => standing.until.map(|until| until.max(expires_at)),
            None => Some(expires_at),
        };
        open.extend(names(
            tx,
            "UPDATE entries SET superseded_until = ?4 WHERE tenant = ?1 AND scope = ?2
               AND successor = ?3 AND superseded_until IS NOT ?4 RETURNING id",
            params![no.tenant, no.scope, id, until],
        )?);
    }
    Ok(())
}

/// Lets go of what an entry that has ended stood for, and of what stood for it;
/// answers how many are in force again.
pub(crate) fn let_go(tx: &Tx<'_>, no: ScopeNo, id: &str, now: Millis) -> Result<usize> {
    let heir = standing(tx, no, id)?.filter(|one| one.until.is_none_or(|until| until > now.0));
    let back = hand_over(tx, no, id, heir)?;
    tx.prepare_cached(
        "UPDATE entries SET successor = NULL, superseded_until = NULL, overtaken = 0
         WHERE tenant = ?1 AND scope = ?2 AND id = ?3",
    )?
    .execute(params![no.tenant, no.scope, id])?;
    Ok(back)
}

/// Lets go of what is known of an entry that goes for good.
pub(crate) fn forget(tx: &Tx<'_>, no: ScopeNo, id: &str) -> Result<()> {
    let heir = standing(tx, no, id)?;
    hand_over(tx, no, id, heir)?;
    // What was made of it was made of what it was made of.
    for sql in [
        "INSERT INTO entry_quotes (tenant, scope, source, output)
         SELECT ?1, ?2, s.source, o.output FROM entry_quotes s, entry_quotes o
         WHERE s.tenant = ?1 AND s.scope = ?2 AND s.output = ?3
           AND o.tenant = ?1 AND o.scope = ?2 AND o.source = ?3
         ON CONFLICT DO NOTHING",
        "DELETE FROM entry_quotes WHERE tenant = ?1 AND scope = ?2 AND source = ?3",
        "DELETE FROM entry_quotes WHERE tenant = ?1 AND scope = ?2 AND output = ?3",
    ] {
        tx.prepare_cached(sql)?.execute(params![no.tenant, no.scope, id])?;
    }
    Ok(())
}

pub(crate) fn oldest_places(
    tx: &Tx<'_>,
    scope: &Scope,
    after: Option<EntryPlace>,
    now: Millis,
    limit: usize,
) -> Result<Vec<EntryPlace>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let of = |index: &str, condition: &str| {
        format!(
            "SELECT created_at AS put_at, began AS place FROM entries INDEXED BY {index}
             WHERE tenant = ?1 AND scope = ?2 AND {condition} AND {LIVES}
               AND (created_at, began) > (?4, ?5)"
        )
    };
    let (stayed, back) =
        (of("entries_shown", "ended IS NULL"), of("entries_back", "superseded_until <= ?3"));
    let (time, began) = match after {
        Some(place) => (place.created_at.0, engine::number(place.began.0)),
        None => (i64::MIN, i64::MIN),
    };
    tx.prepare_cached(&format!("{stayed} UNION ALL {back} ORDER BY put_at, place LIMIT ?6"))
        .and_then(|mut q| {
            let values = [no.tenant, no.scope, now.0, time, began, engine::number(limit as u64)];
            let place = |row: &engine::Row<'_>| {
                let began = Position(row.get::<_, i64>(1)? as u64);
                Ok(EntryPlace { created_at: Millis(row.get(0)?), began })
            };
            q.query_map(values, place)?.collect()
        })
}

impl Store {
    /// Writes entries in place of others, all in one step, and logs `memory.written`
    /// for each, then the derivation once. Each output gets an id of ours, and quotes
    /// what it stands for, unless that was overtaken: it expires no later than any that
    /// it quotes. Each entry that is replaced is in force no more and names what stands
    /// for it, until that expires: then it is in force again, unless another stands for
    /// what expired, and as long as it does. Answers nothing, having done nothing, when one that is replaced or kept
    /// is not in force any more, which holds of one that is named as replaced twice,
    /// or as both. As with an append, it may be [`StoreError::SecretsChanged`].
    pub async fn derive_entries(
        &self,
        scope: &Scope,
        derivation: Derivation,
    ) -> Result<Option<Derived>> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "derive_entries", move |tx| {
            derive(tx, &scope, derivation.clone())
        })
        .await
    }

    /// The entries that this one stands for now, oldest first; those of a derived
    /// entry that is one of them are not among them.
    pub async fn sources_of(
        &self,
        scope: &Scope,
        id: &str,
        now: Millis,
    ) -> Result<Vec<EntryRecord>> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.read(Isolation::from(&scope), "sources_of", move |tx| sources(tx, &scope, &id, now))
            .await
    }

    /// Memories, of any tenant, with at least `count` entries in force, none of which
    /// was put after `quiet_since`.
    pub async fn crowded_memories(
        &self,
        count: u64,
        quiet_since: Millis,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<Scope>> {
        self.read(Isolation::Global, "crowded_memories", move |tx| {
            crowded(tx, count, quiet_since, now, limit)
        })
        .await
    }

    /// Where the first `limit` entries in force now are in their order, oldest first,
    /// after a place in it: [`Store::entries`] read backwards, no more of it than is
    /// asked for.
    pub async fn oldest_places(
        &self,
        scope: &Scope,
        after: Option<EntryPlace>,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryPlace>> {
        let scope = scope.clone();
        self.read(Isolation::from(&scope), "oldest_places", move |tx| {
            oldest_places(tx, &scope, after, now, limit)
        })
        .await
    }
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
