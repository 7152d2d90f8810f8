//! Erasing entries: those that end, expire or are forgotten, and what was made of them.

use std::collections::BTreeSet;

use icecore_domain::ids::Scope;
use icecore_domain::time::Millis;

use super::Selector;
use super::dreams::{self, Going};
use crate::bounds::Change;
use crate::engine::prelude::*;
use crate::entries::{commitments, derivation};
use crate::log::hidden;
use crate::store::Store;
use crate::turns::{recalled, rows};
use crate::{answers, entries, log, usage};

impl Store {
    /// Ends an entry that [`Store::entry`] returns now and logs `memory.deleted`: from
    /// there on no reader sees it, while reads as of an earlier position still do. What it
    /// stands for ends with it, unless it overtook that, and so does every entry that was
    /// made of any of these, each with its record. What those stood for besides is in
    /// force again, or is what their own successor stands for, where another stood for
    /// them. Where anything is in force again, the scope's epoch rises and no position
    /// before the last of these records can be read as of any more
    /// ([`StoreError::SnapshotGone`](crate::StoreError::SnapshotGone)): both would be seen
    /// there. Returns false and changes nothing if there is no such entry.
    pub async fn end_entry(&self, scope: &Scope, id: &str, now: Millis) -> Result<bool> {
        let id = id.to_owned();
        self.write(scope, "end_entry", move |tx| {
            let scope = tx.scope()?;
            if entries::get(tx, scope, &id, None, now)?.is_none() {
                return Ok(false);
            }
            let no = tx.ensure_scope()?;
            let ending = derivation::ending_with(tx, no, &id, now)?;
            let restored = entries::end_all(tx, scope, no, &ending, now)?;
            recalled::lose(tx, no)?;
            if restored > 0 {
                // As of an earlier position it would be seen beside what stood for it then.
                entries::keep_from(tx, no, 0)?;
                // An index may have been made without it. Kept answers stay: nothing is
                // erased.
                rows::bump_epoch(tx, no)?;
            }
            let touched = dreams::by_entries(tx, no, ending.iter().map(String::as_str))?;
            dreams::lose(tx, (scope, no), &touched, Going::Deleted, now)?;
            Ok(true)
        })
        .await
    }

    /// Deletes entries of a memory that expired by `now`, or ended by `ended_by`, with the
    /// counts of what was hidden in them; logs how many as `memory.expired` and returns
    /// that. The scope's epoch rises if there were any. What such an entry stood for is in
    /// force for good, or is what its own successor stands for, where it had one. Pending
    /// commitments whose intention it was are void. Kept answers stay: none quotes an
    /// entry.
    pub async fn purge_entries(
        &self,
        scope: &Scope,
        now: Millis,
        ended_by: Millis,
        limit: usize,
    ) -> Result<u64> {
        self.write(scope, "purge_entries", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(0) };
            let due = purgeable(tx, no, now, ended_by, limit)?;
            if due.is_empty() {
                return Ok(0);
            }
            for doomed in &due {
                delete(tx, no, doomed)?;
                commitments::void(tx, no, &doomed.id, now)?;
            }
            // No read as of any position saw what another stood for when it expired.
            let last_end = due.iter().filter_map(|doomed| doomed.deleted).max().unwrap_or(0);
            tx.change(
                "UPDATE scopes SET epoch = epoch + 1, entries_from = max(entries_from, ?3)
                 WHERE tenant = ?1 AND scope = ?2",
                [no.tenant, no.scope, last_end],
            )?;
            recalled::lose(tx, no)?;
            let payload =
                serde_json::json!({ "memoryRef": tx.scope()?.memory(), "entries": due.len() });
            log::record(
                tx,
                no.tenant,
                Some(no.scope),
                "memory.expired",
                &payload.to_string(),
                now,
            )?;
            let touched = dreams::by_entries(tx, no, due.iter().map(|doomed| doomed.id.as_str()))?;
            dreams::lose(tx, (tx.scope()?, no), &touched, Going::Deleted, now)?;
            Ok(due.len() as u64)
        })
        .await
    }

    /// Erases entries by id, tag or age; returns how many. An entry named by its id takes
    /// with it what it stands for now, unless it overtook that, and what it was made of,
    /// or ended with it for saying the same, that has ended or expired since. Any erased
    /// entry takes with it the entries that were made of it, whether they still stand for
    /// it or not; and what these stood for besides is in force again, or is what their own
    /// successor stands for. The scope's epoch rises if there were any, and no position up
    /// to now can be read as of any more: it is
    /// [`StoreError::SnapshotGone`](crate::StoreError::SnapshotGone). Commitments go with
    /// their intentions; so do those that wait for the tag, or are as old, by themselves.
    /// They are not counted.
    pub async fn erase_entries(
        &self,
        scope: &Scope,
        selector: &Selector,
        dry_run: bool,
        now: Millis,
    ) -> Result<u64> {
        let selector = selector.clone();
        self.write(scope, "erase_entries", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(0) };
            let going = erasable(tx, no, &selector, now)?;
            if dry_run {
                return Ok(going.len() as u64);
            }
            forget_named(tx, no, &selector)?;
            if !going.is_empty() {
                going.iter().try_for_each(|doomed| delete(tx, no, doomed))?;
                commitments::forget_erased(tx, no)?;
                rows::raise_epoch(tx, no)?;
                // A read as of now or earlier would show less than there was.
                entries::keep_from(tx, no, 1)?;
            }
            let touched =
                dreams::by_entries(tx, no, going.iter().map(|doomed| doomed.id.as_str()))?;
            dreams::lose(tx, (tx.scope()?, no), &touched, Going::Erased, now)?;
            Ok(going.len() as u64)
        })
        .await
    }
}

struct Doomed {
    id: String,
    began: i64,
    /// Where it was deleted, if it was.
    deleted: Option<i64>,
}

record! {
    Doomed { began, id, deleted }
}

fn purgeable(
    tx: &Tx<'_>,
    no: ScopeNo,
    now: Millis,
    ended_by: Millis,
    limit: usize,
) -> Result<Vec<Doomed>> {
    let mine = "tenant = ?1 AND scope = ?2";
    let columns = "began, id, CASE WHEN ended_at IS NULL THEN NULL ELSE ended END";
    tx.all(
        &format!(
            "SELECT {columns} FROM entries INDEXED BY entries_expiring
               WHERE {mine} AND expires_at <= ?3
             UNION SELECT {columns} FROM entries INDEXED BY entries_ended
               WHERE {mine} AND ended_at <= ?4
             ORDER BY 1 LIMIT ?5"
        ),
        params![no.tenant, no.scope, now, ended_by, limit],
        tuple,
    )
}

/// Deletes an entry, with the counts of what was hidden in it. What it stood for is in
/// force, or is what its own successor stands for.
fn delete(tx: &Tx<'_>, no: ScopeNo, doomed: &Doomed) -> Result<()> {
    hidden::forget_hidden(tx, "SELECT ?2", [no.tenant, doomed.began])?;
    derivation::forget(tx, no, &doomed.id)?;
    answers::forget(tx, no, None)?;
    let bytes = usage::freed(
        tx,
        "DELETE FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3
         RETURNING length(content) + octet_length(tags)",
        params![no.tenant, no.scope, doomed.id],
    )?;
    usage::change(tx, no.tenant, Change::bytes(-bytes))
}

/// Deletes commitments that a selector names themselves, whatever becomes of their
/// intentions: what they wait for is about somebody too.
fn forget_named(tx: &Tx<'_>, no: ScopeNo, selector: &Selector) -> Result<()> {
    let (condition, value) = match selector {
        Selector::Session(_) | Selector::Entry(_) => return Ok(()),
        Selector::Subject { tag, .. } => ("tag = ?3", Owned::from(tag.as_str().to_owned())),
        Selector::Before(at) => ("created_at < ?3", Owned::from(at.0)),
    };
    tx.change(
        &format!(
            "DELETE FROM commitments INDEXED BY commitments_by_entry
             WHERE tenant = ?1 AND scope = ?2 AND {condition}"
        ),
        params![no.tenant, no.scope, value],
    )
}

/// The ids of the entries that a selector names, and of those that go with them.
pub(super) fn erasable_ids(
    tx: &Tx<'_>,
    no: ScopeNo,
    selector: &Selector,
    now: Millis,
) -> Result<Vec<String>> {
    Ok(erasable(tx, no, selector, now)?.into_iter().map(|doomed| doomed.id).collect())
}

/// The entries that a selector names, and those that go with them.
fn erasable(tx: &Tx<'_>, no: ScopeNo, selector: &Selector, now: Millis) -> Result<Vec<Doomed>> {
    let (condition, value) = match selector {
        Selector::Session(_) => return Ok(Vec::new()),
        Selector::Entry(id) => ("id = ?3", Owned::from(id.clone())),
        Selector::Subject { tag, .. } => (
            "EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?3)",
            Owned::from(tag.as_str().to_owned()),
        ),
        Selector::Before(at) => ("created_at < ?3", Owned::from(at.0)),
    };
    let sql = format!("SELECT id FROM entries WHERE tenant = ?1 AND scope = ?2 AND {condition}");
    let named = tx.all(&sql, params![no.tenant, no.scope, value], column)?;
    let is_one = matches!(selector, Selector::Entry(_));
    placed(tx, no, derivation::erased_with(tx, no, named, now, is_one)?)
}

/// Deletes the entries that were made of some whose words have changed, and lets what they
/// stood for be in force again; returns which.
pub(crate) fn drop_quoting(
    tx: &Tx<'_>,
    no: ScopeNo,
    changed: &[String],
) -> Result<BTreeSet<String>> {
    let dropped = derivation::quoting(tx, no, changed)?;
    for doomed in placed(tx, no, dropped.clone())? {
        delete(tx, no, &doomed)?;
    }
    if !dropped.is_empty() {
        commitments::forget_erased(tx, no)?;
        entries::keep_from(tx, no, 1)?;
    }
    Ok(dropped)
}

/// Deletes entries and those that were made of them, and lets what they stood for be in
/// force again; returns how many.
pub(super) fn drop_with_quoting(tx: &Tx<'_>, no: ScopeNo, ids: Vec<String>) -> Result<u64> {
    let mut dropped = derivation::quoting(tx, no, &ids)?;
    dropped.extend(ids);
    let dropped = placed(tx, no, dropped)?;
    dropped.iter().try_for_each(|doomed| delete(tx, no, doomed))?;
    Ok(dropped.len() as u64)
}

fn placed(tx: &Tx<'_>, no: ScopeNo, ids: BTreeSet<String>) -> Result<Vec<Doomed>> {
    let place = |id: String| {
        let began = tx.one(
            "SELECT began FROM entries WHERE tenant = ?1 AND scope = ?2 AND id = ?3",
            params![no.tenant, no.scope, id],
            column,
        )?;
        Ok(Doomed { id, began, deleted: None })
    };
    ids.into_iter().map(place).collect()
}
