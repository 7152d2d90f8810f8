//! Copying a whole store into another, on any two engines.
//!
//! Rows are read over one snapshot of the source, by tenant, table and key, and written in
//! batches, each a transaction. A run that was cut off goes on after the last row that the
//! target has of each table. Then every table of a tenant is read back and compared. All of it
//! is repeated if the source has changed. Until the end a note keeps others from the target.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use icecore_domain::ids::Position;
use icecore_domain::time::Millis;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::runtime::Handle;

use super::file::Object;
use super::page::{Whose, holds_content, insert};
use super::row::Values;
use super::{Doing, MOVING, Objects, Progress, Tell, backup, object_of, row};
use crate::engine::tx::{Isolation, Tx};
use crate::engine::{Owned, column, notes, params, tuple};
use crate::error::{Result, StoreError};
use crate::keys::{TenantKey, random_bytes};
use crate::store::Store;
use crate::tables::{Column, Owner, TABLES, Table};

/// How many snapshots are taken of a source that is written to meanwhile.
const ROUNDS: u64 = 3;

/// How long the source's transaction is idle at most.
const QUIET: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct Moving {
    pub store: Store,
    pub objects: Objects,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MigrationReport {
    /// The tenants, each with the position at which it was read.
    pub tenants: Vec<(String, Position)>,
    pub rows: BTreeMap<String, u64>,
    pub objects: u64,
    pub object_bytes: u64,
    pub was_resumed: bool,
    /// How many snapshots it took.
    pub rounds: u64,
}

impl MigrationReport {
    pub fn rows_of(&self, table: &str) -> u64 {
        self.rows.get(table).copied().unwrap_or_default()
    }

    pub fn row_count(&self) -> u64 {
        self.rows.values().sum()
    }
}

/// The note of a target that is being filled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// What a person calls the source.
    from: String,
    /// The run that fills it; a run that takes over writes its own.
    by: String,
    at: i64,
}

/// The source of an unfinished migration, by the target's note.
pub fn half_moved_from(note: &str) -> String {
    serde_json::from_str(note).map_or_else(|_| "another store".to_owned(), |note: Note| note.from)
}

/// Copies all of `from` to `to`, which must be empty or half filled from there. `name` is what
/// a person calls the source. The source is only read.
pub async fn migrate(
    from: &Moving,
    to: &Moving,
    name: &str,
    now: Millis,
    tell: &Tell,
) -> Result<MigrationReport> {
    let by = hex::encode(random_bytes::<8>());
    let note = Note { from: name.to_owned(), by, at: now.0 };
    let note = serde_json::to_string(&note).unwrap_or_default();
    let target = Target { store: to.store.clone(), note };
    let was_resumed = target.begin(name).await?;
    for round in 1..=ROUNDS {
        let (target_of_rows, telling, handle) = (target.clone(), tell.clone(), Handle::current());
        let copied = from
            .store
            .read(Isolation::Global, "transfer", move |tx| {
                Copying::begin(tx, &target_of_rows, &handle, &telling)?.all()
            })
            .await?;
        let is_whole = match copy_objects(from, to, &copied.objects, tell).await {
            Ok(()) => true,
            // Erased or rewritten since the snapshot.
            Err(StoreError::PackMissing { .. }) if round < ROUNDS => false,
            Err(error) => return Err(error),
        };
        if is_whole && from.store.read(Isolation::Global, "transfer", marks).await? == copied.marks
        {
            target.finish(copied.notes.clone()).await?;
            let tenants = copied.marks.into_iter();
            return Ok(MigrationReport {
                tenants: tenants.map(|(name, at, _)| (name, Position(at as u64))).collect(),
                rows: copied.rows,
                objects: copied.objects.len() as u64,
                object_bytes: copied.objects.iter().map(|object| object.bytes).sum(),
                was_resumed,
                rounds: round,
            });
        }
        tracing::info!(round, "the source has changed meanwhile; catching up");
    }
    Err(StoreError::StillChanging { times: ROUNDS })
}

async fn copy_objects(
    from: &Moving,
    to: &Moving,
    objects: &BTreeSet<Object>,
    tell: &Tell,
) -> Result<()> {
    let mut progress = Progress::of(tell, Doing::Objects, objects.len() as u64);
    for object in objects {
        // What an earlier run has put is not read again from the source.
        if !to.objects.has(object).await? {
            to.objects.put(object, from.objects.get(object).await?).await?;
        }
        progress.add(1)?;
    }
    Ok(())
}

/// Of each tenant its name, its position, and how often something of it was erased: differs
/// after every write.
type Marks = Vec<(String, i64, i64)>;

fn marks(tx: &Tx<'_>) -> Result<Marks> {
    let marks = "SELECT t.name, t.position, (SELECT coalesce(sum(e.epoch), 0) FROM scopes e
                                             WHERE e.tenant = t.tenant)
                 FROM tenants t ORDER BY t.name";
    tx.all(marks, [], tuple)
}

struct Copied {
    marks: Marks,
    notes: BTreeMap<String, String>,
    rows: BTreeMap<String, u64>,
    objects: BTreeSet<Object>,
}

/// The number of rows of each table, and their hash.
type Sums = BTreeMap<&'static str, (u64, [u8; 32])>;

/// One hash for all tables of a tenant.
fn overall(sums: &Sums) -> String {
    let mut hash = Sha256::new();
    for (table, (count, sha256)) in sums {
        hash.update(table.as_bytes());
        hash.update(count.to_le_bytes());
        hash.update(sha256);
    }
    hex::encode(hash.finalize())
}

/// The tables of a tenant, in the order in which they are written.
fn tables() -> impl DoubleEndedIterator<Item = &'static Table> {
    TABLES.iter().filter(|table| table.owner != Owner::Everyone)
}

/// Counts and hashes the rows that a tenant has in a table, and shows each page of them.
fn sum(
    tx: &Tx<'_>,
    whose: &Whose,
    table: &Table,
    mut visit: impl FnMut(Vec<Values>) -> Result<()>,
) -> Result<(u64, [u8; 32])> {
    let (mut count, mut hash, mut bytes) = (0_u64, Sha256::new(), Vec::new());
    whose.each_page(tx, table, |page| {
        count += page.len() as u64;
        for row in &page {
            bytes.clear();
            if table.name == "tenants" {
                // The target seals the key anew; keys are compared by what they are.
                let mut row = row.clone();
                table.set(&mut row, "sealed_key", Owned::Integer(0));
                row::encode(&row, &mut bytes);
            } else {
                row::encode(row, &mut bytes);
            }
            hash.update(&bytes);
        }
        visit(page)
    })?;
    Ok((count, hash.finalize().into()))
}

// The source

/// One snapshot of the source on its way into the target.
struct Copying<'a> {
    tx: &'a Tx<'a>,
    target: &'a Target,
    handle: &'a Handle,
    progress: Progress,
    objects: BTreeSet<Object>,
}

impl<'a> Copying<'a> {
    fn begin(tx: &'a Tx<'a>, target: &'a Target, handle: &'a Handle, tell: &Tell) -> Result<Self> {
        let mut total = 0;
        for whose in tenants(tx)? {
            for table in tables() {
                total += whose.count(tx, table)?;
            }
        }
        let progress = Progress::of(tell, Doing::Rows, total);
        Ok(Self { tx, target, handle, progress, objects: BTreeSet::new() })
    }

    fn all(mut self) -> Result<Copied> {
        let tx = self.tx;
        let tenants_here = tenants(tx)?;
        let names: BTreeSet<_> = tenants_here.iter().map(|whose| whose.name.clone()).collect();
        // An earlier run may have copied tenants that the source no longer has.
        self.write(move |tx| {
            let gone = tenants(tx)?.into_iter().filter(|whose| !names.contains(&whose.name));
            gone.into_iter().try_for_each(|whose| remove(tx, &whose))
        })?;
        let nobody = Whose::tenant(0, String::new());
        for table in TABLES.iter().filter(|table| table.owner == Owner::Everyone) {
            nobody.each_page(tx, table, |page| self.put(table, page))?;
        }
        let mut rows = BTreeMap::<String, u64>::new();
        for whose in &tenants_here {
            for (table, (count, _)) in self.tenant(whose)? {
                *rows.entry(table.to_owned()).or_default() += count;
            }
        }
        let (marks, notes) = (marks(tx)?, backup::notes(tx)?);
        Ok(Copied { marks, notes, rows, objects: self.objects })
    }

    /// Copies a tenant, or goes on with it, until the target has what the source has.
    fn tenant(&mut self, whose: &Whose) -> Result<Sums> {
        let begun_at = self.progress.moved.done;
        let note = done_note(whose);
        let done = self.read_target(move |tx| notes::note(tx, &note))?;
        let found = self.copy(whose)?;
        if done == Some(overall(&found)) || self.verify(whose, &found)?.is_none() {
            return Ok(found);
        }
        // The source has changed since an earlier run began.
        self.progress.moved.done = begun_at;
        let there = whose.clone();
        self.write(move |tx| remove(tx, &there))?;
        let found = self.copy(whose)?;
        match self.verify(whose, &found)? {
            None => Ok(found),
            Some(table) => Err(StoreError::NotTheSame { table, tenant: whose.name.clone() }),
        }
    }

    /// Reads every row of a tenant, and writes those that come after the last that the target
    /// has of each table.
    fn copy(&mut self, whose: &Whose) -> Result<Sums> {
        let (tx, mut sums) = (self.tx, Sums::new());
        for table in tables() {
            let there = whose.clone();
            let last = self.read_target(move |tx| last_key(tx, &there, table))?;
            let sum = sum(tx, whose, table, |mut page| {
                self.objects.extend(page.iter().filter_map(|row| object_of(table, row)));
                let count = page.len() as u64;
                page.retain(|row| last.as_ref().is_none_or(|last| table.key_of(row) > *last));
                self.put(table, page)?;
                self.progress.add(count)
            })?;
            sums.insert(table.name, sum);
        }
        Ok(sums)
    }

    /// Reads a tenant back from the target. Returns a table that is not the same as `found`;
    /// if all are, the target notes that the tenant is done.
    fn verify(&self, whose: &Whose, found: &Sums) -> Result<Option<&'static str>> {
        let (there, key) = (whose.clone(), tenant_key(self.tx, whose.tenant)?);
        let (copied, is_key) = self.read_target(move |tx| {
            let sum = |table: &'static Table| Ok((table.name, sum(tx, &there, table, |_| Ok(()))?));
            let sums: Sums = tables().map(sum).collect::<Result<_>>()?;
            let is_key = sums["tenants"].0 == 1 && tenant_key(tx, there.tenant)?.same_as(&key);
            Ok((sums, is_key))
        })?;
        let differs = found.iter().find(|(table, sum)| copied.get(*table) != Some(sum));
        let differs = differs.map(|(table, _)| *table).or((!is_key).then_some("tenants"));
        if differs.is_none() {
            let (note, overall) = (done_note(whose), overall(found));
            self.write(move |tx| notes::put_note(tx, &note, &overall))?;
        }
        Ok(differs)
    }

    fn put(&self, table: &'static Table, page: Vec<Values>) -> Result<()> {
        if page.is_empty() {
            return Ok(());
        }
        if table.name != "tenants" {
            return self.write(move |tx| insert(tx, table, &page).map(drop));
        }
        for row in page {
            let Some(Owned::Integer(number)) = table.value(&row, "tenant") else { continue };
            let key = tenant_key(self.tx, *number)?;
            self.write(move |tx| {
                let mut row = row.clone();
                table.set(&mut row, "sealed_key", tx.keys().seal(tx, &key)?.into());
                insert(tx, table, &[row]).map(drop)
            })?;
        }
        Ok(())
    }

    /// Writes to the target, as long as this run fills it.
    fn write(&self, act: impl Fn(&Tx<'_>) -> Result<()> + Send + 'static) -> Result<()> {
        self.wait(self.target.write(act))
    }

    fn read_target<T: Send + 'static>(
        &self,
        act: impl Fn(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.wait(self.target.store.read(Isolation::Global, "transfer", act))
    }

    /// Waits for the target, between two statements of ours. Servers end transactions that are
    /// idle for too long, so now and then it asks for nothing.
    fn wait<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let waited = async { tokio::time::timeout(QUIET, work.as_mut()).await };
            match self.handle.block_on(waited) {
                Ok(answer) => return answer,
                Err(_) => _ = self.tx.finds("SELECT 1", [])?,
            }
        }
    }
}

pub(super) fn tenants(tx: &Tx<'_>) -> Result<Vec<Whose>> {
    tx.all("SELECT tenant, name FROM tenants ORDER BY name", [], |row| {
        Ok(Whose::tenant(row.get(0)?, row.get(1)?))
    })
}

fn tenant_key(tx: &Tx<'_>, tenant: i64) -> Result<TenantKey> {
    let find = "SELECT sealed_key FROM tenants WHERE tenant = ?1";
    let sealed: Vec<u8> = tx.one(find, [tenant], column)?;
    let key = tx.keys().master(tx)?.open(&sealed);
    key.ok_or_else(|| tx.damaged("the sealed key of a tenant does not open"))
}

// The target

/// The store that is filled, with the note of the run that fills it.
#[derive(Clone)]
struct Target {
    store: Store,
    note: String,
}

/// Name of the note with the hash of a tenant that was copied.
fn done_note(whose: &Whose) -> String {
    format!("{MOVING}/{}", whose.tenant)
}

impl Target {
    /// Takes the target for this run. Returns whether an earlier run had begun.
    async fn begin(&self, from: &str) -> Result<bool> {
        let (from, note) = (from.to_owned(), self.note.clone());
        self.store
            .write(Isolation::Global, "transfer", move |tx| {
                let known = notes::note(tx, MOVING)?;
                match known.as_deref().map(half_moved_from) {
                    Some(known) if known != from => {
                        return Err(StoreError::OtherMigration { from: known });
                    }
                    Some(_) => {}
                    None => make_room(tx)?,
                }
                notes::put_note(tx, MOVING, &note)?;
                Ok(known.is_some())
            })
            .await
    }

    /// Writes to the target, as long as this run fills it.
    async fn write(&self, act: impl Fn(&Tx<'_>) -> Result<()> + Send + 'static) -> Result<()> {
        let mine = self.note.clone();
        self.store
            .write(Isolation::Global, "transfer", move |tx| {
                if notes::note(tx, MOVING)?.as_deref() != Some(&mine) {
                    return Err(StoreError::TakenOver);
                }
                act(tx)
            })
            .await
    }

    async fn finish(&self, notes: BTreeMap<String, String>) -> Result<()> {
        self.write(move |tx| {
            for (name, value) in &notes {
                notes::put_note(tx, name, value)?;
            }
            let ours = "DELETE FROM notes WHERE name = ?1 OR name LIKE ?2";
            tx.run(ours, params![MOVING, format!("{MOVING}/%")])?;
            Ok(())
        })
        .await
    }
}

/// Empties a target that has nothing but names; fails if it has content.
fn make_room(tx: &Tx<'_>) -> Result<()> {
    for table in TABLES.iter().filter(|table| holds_content(table)) {
        if tx.finds(&format!("SELECT 1 FROM {} LIMIT 1", table.name), [])? {
            return Err(StoreError::TargetNotEmpty);
        }
    }
    for table in ["scopes", "tenants", "policies"] {
        tx.run(&format!("DELETE FROM {table}"), [])?;
    }
    Ok(())
}

/// Deletes a tenant, last what others refer to.
fn remove(tx: &Tx<'_>, whose: &Whose) -> Result<()> {
    for table in tables().rev() {
        let delete = format!("DELETE FROM {} WHERE tenant = ?1", table.name);
        tx.run(&delete, [whose.owner(table)])?;
    }
    tx.run("DELETE FROM notes WHERE name = ?1", [done_note(whose)])?;
    Ok(())
}

/// The last key of a tenant's rows in a table.
fn last_key(tx: &Tx<'_>, whose: &Whose, table: &Table) -> Result<Option<Values>> {
    let at = |column: &&str| table.at(column).map(|at| table.columns[at]);
    let key: Vec<Column> = table.key.iter().filter_map(at).collect();
    let sql = format!(
        "SELECT {} FROM {} WHERE tenant = ?1 ORDER BY {} DESC LIMIT 1",
        table.key.join(", "),
        table.name,
        table.key.join(" DESC, ")
    );
    tx.first(&sql, [whose.owner(table)], |found| row::read(found, &key))
}
