//! Erasing entries: those that end, expire or are forgotten, and what was made of them.

use std::collections::BTreeSet;

use icecore_domain::ids::Scope;
use icecore_domain::time::Millis;

use super::dreams;
use crate::bounds::Change;
use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{Owned, params};
use crate::entries::{commitments, derivation};
use crate::erase::Selector;
use crate::error::Result;
use crate::log::hidden;
use crate::store::Store;
use crate::turns::{recalled, rows};
use crate::{answers, engine, entries, log, scopes, usage};

/// Deletes commitments of a memory that a selector names themselves, whatever becomes of
/// their intentions: what they wait for is about somebody too.
pub(crate) fn forget_named(tx: &Tx<'_>, no: ScopeNo, selector: &Selector) -> Result<()> {
    let (chosen, value) = match selector {
        Selector::Session(_) | Selector::Entry(_) => return Ok(()),
        Selector::Subject { tag, .. } => ("tag = ?3", Owned::from(tag.as_str().to_owned())),
        Selector::Before(at) => ("created_at < ?3", Owned::from(at.0)),
    };
    tx.prepare_cached(&format!(
        "DELETE FROM commitments INDEXED BY commitments_by_entry
         WHERE tenant = ?1 AND scope = ?2 AND {chosen}"
    ))?
    .execute(params![no.tenant, no.scope, value])?;
    Ok(())
}

pub(crate) fn end(tx: &Tx<'_>, scope: &Scope, id: &str, now: Millis) -> Result<bool> {
    if entries::get(tx, scope, id, None, now)?.is_none() {
        return Ok(false);
    }
    let no = scopes::ensure_scope(tx, scope)?;
    let ending = derivation::ending_with(tx, no, id, now)?;
    let end = || -> Result<_> {
        let restored = entries::end_all(tx, scope, no, &ending, now)?;
        recalled::lose(tx, no)?;
        if restored > 0 {
            // As of an earlier position it would be seen beside what stood for it then.
            entries::keep_from(tx, no, 0)?;
            // An index may have been made without it. Kept answers stay: nothing is erased.
            tx.execute(
                "UPDATE scopes SET epoch = epoch + 1 WHERE tenant = ?1 AND scope = ?2",
                [no.tenant, no.scope],
            )?;
        }
        dreams::by_entries(tx, no, ending.iter().map(String::as_str))
    };
    let touched = end()?;
    dreams::lose(tx, (scope, no), &touched, dreams::Going::Deleted, now)?;
    Ok(true)
}

/// An entry that goes.
struct Going {
    id: String,
    began: i64,
    /// Where it was deleted, if it was.
    deleted: Option<i64>,
}

fn purgeable(
    tx: &Tx<'_>,
    no: ScopeNo,
    now: Millis,
    ended_by: Millis,
    limit: usize,
) -> Result<Vec<Going>> {
    let mine = "tenant = ?1 AND scope = ?2";
    let columns = "began, id, CASE WHEN ended_at IS NULL THEN NULL ELSE ended END";
    tx.prepare_cached(&format!(
        "SELECT {columns} FROM entries INDEXED BY entries_expiring
           WHERE {mine} AND expires_at <= ?3
         UNION SELECT {columns} FROM entries INDEXED BY entries_ended
           WHERE {mine} AND ended_at <= ?4
         ORDER BY 1 LIMIT ?5"
    ))?
    .query_map([no.tenant, no.scope, now.0, ended_by.0, engine::number(limit as u64)], |row| {
        Ok(Going { began: row.get(0)?, id: row.get(1)?, deleted: row.get(2)? })
    })?
    .collect()
}

/// Deletes an entry, with what was counted of it. What it stood for is in force, or
/// is what its own successor stands for.
fn delete(tx: &Tx<'_>, no: ScopeNo, going: &Going) -> Result<()> {
    hidden::forget_hidden(tx, "SELECT ?2", [no.tenant, going.began])?;
    derivation::forget(tx, no, &going.id)?;
    answers::forget(tx, no, None)?;
    let bytes = usage::freed(
        tx,
        "DELETE FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3
         RETURNING length(content) + octet_length(tags)",
        params![no.tenant, no.scope, going.id],
    )?;
    usage::change(tx, no.tenant, Change::bytes(-bytes))
}

pub(crate) fn purge(
    tx: &Tx<'_>,
    scope: &Scope,
    now: Millis,
    ended_by: Millis,
    limit: usize,
) -> Result<u64> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(0) };
    let due = purgeable(tx, no, now, ended_by, limit)?;
    if due.is_empty() {
        return Ok(0);
    }
    let purge = || -> Result<_> {
        for going in &due {
            delete(tx, no, going)?;
            commitments::void(tx, no, &going.id, now)?;
        }
        // What another stood for when it expired was read by nobody as of any position.
        let last_end = due.iter().filter_map(|going| going.deleted).max().unwrap_or(0);
        tx.execute(
            "UPDATE scopes SET epoch = epoch + 1, entries_from = max(entries_from, ?3)
             WHERE tenant = ?1 AND scope = ?2",
            [no.tenant, no.scope, last_end],
        )?;
        recalled::lose(tx, no)?;
        let payload = serde_json::json!({ "memoryRef": scope.memory(), "entries": due.len() });
        let payload = payload.to_string();
        log::record(tx, no.tenant, Some(no.scope), "memory.expired", &payload, now)?;
        dreams::by_entries(tx, no, due.iter().map(|going| going.id.as_str()))
    };
    let touched = purge()?;
    dreams::lose(tx, (scope, no), &touched, dreams::Going::Deleted, now)?;
    Ok(due.len() as u64)
}

pub(crate) fn erase(
    tx: &Tx<'_>,
    scope: &Scope,
    selector: &Selector,
    dry_run: bool,
    now: Millis,
) -> Result<u64> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(0) };
    let going = erasable(tx, no, selector, now)?;
    if dry_run {
        return Ok(going.len() as u64);
    }
    let erase = || -> Result<_> {
        forget_named(tx, no, selector)?;
        if !going.is_empty() {
            going.iter().try_for_each(|going| delete(tx, no, going))?;
            commitments::forget_erased(tx, no)?;
            rows::raise_epoch(tx, no)?;
            // Whoever read as of now or earlier would be shown less than there was.
            entries::keep_from(tx, no, 1)?;
        }
        dreams::by_entries(tx, no, going.iter().map(|going| going.id.as_str()))
    };
    let touched = erase()?;
    dreams::lose(tx, (scope, no), &touched, dreams::Going::Erased, now)?;
    Ok(going.len() as u64)
}

/// The ids of the entries that a selector names, and of those that go with them.
pub(crate) fn erasable_ids(
    tx: &Tx<'_>,
    no: ScopeNo,
    selector: &Selector,
    now: Millis,
) -> Result<Vec<String>> {
    let going = erasable(tx, no, selector, now)?;
    Ok(going.into_iter().map(|going| going.id).collect())
}

/// The entries that a selector names, and those that go with them.
fn erasable(tx: &Tx<'_>, no: ScopeNo, selector: &Selector, now: Millis) -> Result<Vec<Going>> {
    let (chosen, value) = match selector {
        Selector::Session(_) => return Ok(Vec::new()),
        Selector::Entry(id) => ("id = ?3", Owned::from(id.clone())),
        Selector::Subject { tag, .. } => (
            "EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?3)",
            Owned::from(tag.as_str().to_owned()),
        ),
        Selector::Before(at) => ("created_at < ?3", Owned::from(at.0)),
    };
    let named: Vec<String> = tx
        .prepare_cached(&format!(
            "SELECT id FROM entries WHERE tenant = ?1 AND scope = ?2 AND {chosen}"
        ))?
        .query_map(params![no.tenant, no.scope, value], |row| row.get(0))?
        .collect::<Result<_>>()?;
    let is_one = matches!(selector, Selector::Entry(_));
    placed(tx, no, derivation::erased_with(tx, no, named, now, is_one)?)
}

/// Drops the entries that were made of some, whose words are others now, and lets
/// what they stood for be in force again; answers which.
pub(crate) fn drop_quoting(
    tx: &Tx<'_>,
    no: ScopeNo,
    changed: &[String],
) -> Result<BTreeSet<String>> {
    let dropped = derivation::quoting(tx, no, changed)?;
    for going in placed(tx, no, dropped.clone())? {
        delete(tx, no, &going)?;
    }
    if !dropped.is_empty() {
        commitments::forget_erased(tx, no)?;
        entries::keep_from(tx, no, 1)?;
    }
    Ok(dropped)
}

/// Drops entries and those that were made of them, and lets what they stood for be in
/// force again; answers how many.
pub(crate) fn drop_with_quoting(tx: &Tx<'_>, no: ScopeNo, ids: Vec<String>) -> Result<u64> {
    let mut dropped = derivation::quoting(tx, no, &ids)?;
    dropped.extend(ids);
    let dropped = placed(tx, no, dropped)?;
    dropped.iter().try_for_each(|going| delete(tx, no, going))?;
    Ok(dropped.len() as u64)
}

fn placed(tx: &Tx<'_>, no: ScopeNo, ids: BTreeSet<String>) -> Result<Vec<Going>> {
    let began = |id: String| {
        let began = tx
            .prepare_cached(
                "SELECT began FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3",
            )?
            .query_row(params![no.tenant, no.scope, id], |row| row.get(0))?;
        Ok(Going { id, began, deleted: None })
    };
    ids.into_iter().map(began).collect()
}

impl Store {
    /// Ends an entry that [`Store::entry`] answers now and logs `memory.deleted`:
    /// nobody sees it from there on, and whoever reads as of an earlier position still
    /// does. What it stands for ends with it, unless it overtook that, and so does every
    /// entry that was made of any of these, each with its record; what those stood for
    /// besides is in force again, or is what their own successor stands for, where
    /// another stood for them. Where anything is in force again, the scope's epoch rises
    /// and no position before the last of these records can be read as of any more
    /// ([`StoreError::SnapshotGone`]): both would be seen there. Answers false, having
    /// done nothing, if there is none.
    pub async fn end_entry(&self, scope: &Scope, id: &str, now: Millis) -> Result<bool> {
        let (scope, id) = (scope.clone(), id.to_owned());
        self.write(Isolation::from(&scope), "end_entry", move |tx| end(tx, &scope, &id, now)).await
    }

    /// Deletes such entries of a memory, with what was counted of them, and logs how
    /// many as `memory.expired`; answers that. The scope's epoch rises if there were
    /// any. What such an entry stood for is in force for good, or is what its own
    /// successor stands for, where it had one. Pending commitments whose
    /// intention it was are void. Kept answers stay: none quotes an entry.
    pub async fn purge_entries(
        &self,
        scope: &Scope,
        now: Millis,
        ended_by: Millis,
        limit: usize,
    ) -> Result<u64> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "purge_entries", move |tx| {
            purge(tx, &scope, now, ended_by, limit)
        })
        .await
    }

    /// Erases entries by id, tag or age; answers how many. With one by its id goes
    /// what it stands for now, unless it overtook that, and what it was made of, or
    /// ended with it for saying the same, that has ended or expired since; with any go
    /// the entries that were made of it, whether they still stand for it or not; and
    /// what these stood for besides is in force again, or is what their own successor
    /// stands for. The scope's epoch rises if there were any, and no
    /// position up to now can be read as of any more: it is
    /// [`StoreError::SnapshotGone`]. Commitments go with their intentions; so do those
    /// that wait for the tag, or are as old, by themselves. They are not counted.
    pub async fn erase_entries(
        &self,
        scope: &Scope,
        selector: &Selector,
        dry_run: bool,
        now: Millis,
    ) -> Result<u64> {
        let (scope, selector) = (scope.clone(), selector.clone());
        self.write(Isolation::from(&scope), "erase_entries", move |tx| {
            erase(tx, &scope, &selector, dry_run, now)
        })
        .await
    }
}
