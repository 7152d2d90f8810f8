//! From one store to another, whichever engines they have.
//!
//! Rows are read over one snapshot of the source, tenant by tenant and table by table in
//! the order of the key, and written in batches, each a transaction of its own. Where it
//! went on is seen from what the target has, so that it may end at any instruction and
//! goes on when it is run again. Then every table of every tenant is read back, counted
//! and hashed, and copied anew if the source has changed since it was begun. Only what was
//! compared is handed over: until then the target has a note, and nobody else opens it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use icecore_domain::ids::Position;
use icecore_domain::time::Millis;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::file::Object;
use super::insert::Inserter;
use super::page::Whose;
use super::row::Values;
use super::{Doing, MOVING, Moved, Objects, Tell, backup, object_of, restore, row, told};
use crate::engine::tx::{Isolation, Tx};
use crate::engine::{OptionalExtension, Owned, notes, params};
use crate::error::{Result, StoreError};
use crate::keys::{TenantKey, random_bytes};
use crate::store::Store;
use crate::tables::{Owner, TABLES, Table};

/// Snapshots that are taken of a source that is written to meanwhile.
const ROUNDS: u64 = 3;

/// How long the source's transaction lies still at most.
const QUIET: Duration = Duration::from_secs(10);

/// A store, and where its objects lie.
#[derive(Clone)]
pub struct Moving {
    /// The store.
    pub store: Store,
    /// Its objects.
    pub objects: Objects,
}

/// What was moved.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MigrationReport {
    /// The tenants, each with the position at which it was read.
    pub tenants: Vec<(String, Position)>,
    /// Rows by table.
    pub rows: BTreeMap<String, u64>,
    /// Packs and archives.
    pub objects: u64,
    /// Bytes of these.
    pub object_bytes: u64,
    /// Whether an earlier run had begun it.
    pub was_resumed: bool,
    /// Snapshots that it took.
    pub rounds: u64,
}

impl MigrationReport {
    /// Rows of a table.
    pub fn rows_of(&self, table: &str) -> u64 {
        self.rows.get(table).copied().unwrap_or_default()
    }

    /// Rows of all tables.
    pub fn row_count(&self) -> u64 {
        self.rows.values().sum()
    }
}

/// What a target says of itself while it is filled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// What it is filled from, as a person knows it.
    from: String,
    /// The run that fills it; another that takes it over writes its own.
    by: String,
    at: i64,
}

/// What a store is filled from, if that was begun and not ended.
pub fn half_moved_from(note: &str) -> String {
    let note: Option<Note> = serde_json::from_str(note).ok();
    note.map_or_else(|| "another store".to_owned(), |note| note.from)
}

/// Copies all of `from` to `to`, which must be empty or filled from there before. `name`
/// is what a person calls the source. The source is only read.
pub async fn migrate(
    from: &Moving,
    to: &Moving,
    name: &str,
    now: Millis,
    tell: &Tell,
) -> Result<MigrationReport> {
    let by = hex::encode(random_bytes::<8>());
    let note = Note { from: name.to_owned(), by, at: now.0 };
    let target =
        Target { to: to.store.clone(), note: serde_json::to_string(&note).unwrap_or_default() };
    let was_resumed = target.begin(&note).await?;
    for round in 1..=ROUNDS {
        let (source, copied) = (from.clone(), Arc::new(target.clone()));
        let (telling, handle) = (tell.clone(), tokio::runtime::Handle::current());
        let copied = source
            .store
            .read(Isolation::Global, "transfer", move |tx| {
                Copying { tx, to: &copied, handle: &handle, tell: &telling }.all()
            })
            .await?;
        let objects = copy_objects(from, to, &copied.objects, tell).await;
        let is_whole = match objects {
            Ok(()) => true,
            // Erased or rewritten since the snapshot.
            Err(StoreError::PackMissing { .. }) if round < ROUNDS => false,
            Err(error) => return Err(error),
        };
        if is_whole
            && source.store.read(Isolation::Global, "transfer", marks).await? == copied.marks
        {
            target.finish(copied.notes.clone()).await?;
            return Ok(copied.report(was_resumed, round));
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
    let total = objects.len() as u64;
    for (done, object) in (1..).zip(objects) {
        // What an earlier run has put is not read again from the source.
        match to.objects.get(object).await {
            Ok(_) => {}
            Err(StoreError::PackMissing { .. }) => {
                let bytes = from.objects.get(object).await?;
                to.objects.put(object, bytes).await?;
            }
            Err(error) => return Err(error),
        }
        told(tell, Moved { doing: Doing::Objects, done, total })?;
    }
    Ok(())
}

/// By what it is noticed that somebody wrote: the position of each tenant, and how often
/// something of it was erased.
type Marks = Vec<(String, i64, i64)>;

fn marks(tx: &Tx<'_>) -> Result<Marks> {
    tx.prepare(
        "SELECT t.name, t.position, (SELECT coalesce(sum(e.epoch), 0) FROM scopes e
                                     WHERE e.tenant = t.tenant)
         FROM tenants t ORDER BY t.name",
    )
    .and_then(|mut q| q.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect())
}

/// What one snapshot came to.
struct Copied {
    marks: Marks,
    notes: BTreeMap<String, String>,
    rows: BTreeMap<String, u64>,
    objects: BTreeSet<Object>,
}

impl Copied {
    fn report(self, was_resumed: bool, rounds: u64) -> MigrationReport {
        let tenants = self.marks.into_iter();
        MigrationReport {
            tenants: tenants.map(|(name, at, _)| (name, Position(at as u64))).collect(),
            rows: self.rows,
            objects: self.objects.len() as u64,
            object_bytes: self.objects.iter().map(|object| object.bytes).sum(),
            was_resumed,
            rounds,
        }
    }
}

/// Rows of a table, in short.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sum {
    count: u64,
    sha256: [u8; 32],
}

/// Hashes rows as they go by.
#[derive(Default)]
struct Summing {
    count: u64,
    hash: Sha256,
    buffer: Vec<u8>,
}

impl Summing {
    fn add(&mut self, table: &Table, values: &Values) {
        self.buffer.clear();
        match table.at("sealed_key").filter(|_| table.name == "tenants") {
            // It is sealed anew, and compared by what it is.
            Some(at) => {
                let mut values = values.clone();
                values[at] = Owned::Integer(0);
                row::encode(&values, &mut self.buffer);
            }
            None => row::encode(values, &mut self.buffer),
        }
        self.hash.update(&self.buffer);
        self.count += 1;
    }

    fn finish(self) -> Sum {
        Sum { count: self.count, sha256: self.hash.finalize().into() }
    }
}

/// One number for the rows of all tables of a tenant.
fn overall(sums: &BTreeMap<&'static str, Sum>) -> String {
    let mut hash = Sha256::new();
    for (table, sum) in sums {
        hash.update(table.as_bytes());
        hash.update(sum.count.to_le_bytes());
        hash.update(sum.sha256);
    }
    hex::encode(hash.finalize())
}

/// The tables of a tenant, in the order in which they are written.
fn tables() -> impl DoubleEndedIterator<Item = &'static Table> {
    TABLES.iter().filter(|table| table.owner != Owner::Everyone)
}

/// The rows of a tenant, as sums by table.
fn sums(tx: &Tx<'_>, whose: &Whose) -> Result<BTreeMap<&'static str, Sum>> {
    let mut found = BTreeMap::new();
    for table in tables() {
        let mut summing = Summing::default();
        whose.each_page(tx, table, &mut |page| {
            page.iter().for_each(|values| summing.add(table, values));
            Ok(())
        })?;
        found.insert(table.name, summing.finish());
    }
    Ok(found)
}

// The source

/// One snapshot of the source on its way.
struct Copying<'a> {
    tx: &'a Tx<'a>,
    to: &'a Arc<Target>,
    handle: &'a tokio::runtime::Handle,
    tell: &'a Tell,
}

/// How far it is.
struct Pace {
    done: u64,
    total: u64,
}

impl Copying<'_> {
    fn all(&self) -> Result<Copied> {
        let tx = self.tx;
        let marks = marks(tx)?;
        let whose = tenants(tx)?;
        let mut pace = Pace { done: 0, total: 0 };
        for whose in &whose {
            for table in tables() {
                pace.total += whose.count(tx, table)?;
            }
        }
        let names = whose.iter().map(|whose| whose.name.clone()).collect();
        self.wait(Target::keep_only(Arc::clone(self.to), names))?;
        self.policies()?;
        let mut copied = Copied {
            marks,
            notes: backup::notes(tx)?,
            rows: BTreeMap::new(),
            objects: BTreeSet::new(),
        };
        for whose in &whose {
            for (table, sum) in self.tenant(whose, &mut pace, &mut copied.objects)? {
                *copied.rows.entry(table.to_owned()).or_default() += sum.count;
            }
        }
        Ok(copied)
    }

    /// Waits for the target, between two statements of ours. Servers end transactions in
    /// which nothing happens, so now and then something does.
    fn wait<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let waited = async { tokio::time::timeout(QUIET, work.as_mut()).await };
            match self.handle.block_on(waited) {
                Ok(answer) => return answer,
                Err(_) => {
                    let look = self.tx.prepare_cached("SELECT 1").and_then(|mut q| q.exists([]));
                    look?;
                }
            }
        }
    }

    fn policies(&self) -> Result<()> {
        for table in TABLES.iter().filter(|table| table.owner == Owner::Everyone) {
            let nobody = Whose { tenant: 0, name: String::new(), memory: None };
            nobody.each_page(self.tx, table, &mut |page| {
                self.wait(Target::put(Arc::clone(self.to), table, page))
            })?;
        }
        Ok(())
    }

    /// Copies a tenant, or goes on with it, until the target has what the source has.
    fn tenant(
        &self,
        whose: &Whose,
        pace: &mut Pace,
        objects: &mut BTreeSet<Object>,
    ) -> Result<BTreeMap<&'static str, Sum>> {
        let begun_at = pace.done;
        let key = self.key(whose)?;
        let state = self.wait(Target::state(Arc::clone(self.to), whose.clone()))?;
        if let State::Done(overall_there) = &state {
            let found = self.copy(whose, &key, None, pace, objects)?;
            if overall(&found) == *overall_there {
                return Ok(found);
            }
        }
        if let State::Begun(lasts) = state {
            pace.done = begun_at;
            let found = self.copy(whose, &key, Some(lasts), pace, objects)?;
            if self.is_there(whose, &key, &found)?.is_none() {
                self.wait(Target::settle(Arc::clone(self.to), whose.clone(), overall(&found)))?;
                return Ok(found);
            }
        }
        // The source has changed since, or nothing was begun.
        pace.done = begun_at;
        self.wait(Target::remove(Arc::clone(self.to), whose.clone()))?;
        let found = self.copy(whose, &key, Some(BTreeMap::new()), pace, objects)?;
        match self.is_there(whose, &key, &found)? {
            None => {
                self.wait(Target::settle(Arc::clone(self.to), whose.clone(), overall(&found)))?;
                Ok(found)
            }
            Some(table) => Err(StoreError::NotTheSame { table, tenant: whose.name.clone() }),
        }
    }

    fn key(&self, whose: &Whose) -> Result<TenantKey> {
        tenant_key(self.tx, whose.tenant)
    }

    /// Reads every row of a tenant and, with `lasts`, writes those that come after the last
    /// that the target has of each table.
    fn copy(
        &self,
        whose: &Whose,
        key: &TenantKey,
        lasts: Option<BTreeMap<&'static str, Values>>,
        pace: &mut Pace,
        objects: &mut BTreeSet<Object>,
    ) -> Result<BTreeMap<&'static str, Sum>> {
        let mut found = BTreeMap::new();
        for table in tables() {
            let mut summing = Summing::default();
            whose.each_page(self.tx, table, &mut |mut page| {
                for values in &page {
                    summing.add(table, values);
                    objects.extend(object_of(table, values));
                }
                pace.done += page.len() as u64;
                if let Some(lasts) = &lasts {
                    if let Some(last) = lasts.get(table.name) {
                        page.retain(|values| key_of(table, values) > Key::of(last));
                    }
                    self.write(table, key, page)?;
                }
                told(self.tell, Moved { doing: Doing::Rows, done: pace.done, total: pace.total })
            })?;
            found.insert(table.name, summing.finish());
        }
        Ok(found)
    }

    fn write(&self, table: &'static Table, key: &TenantKey, page: Vec<Values>) -> Result<()> {
        if page.is_empty() {
            return Ok(());
        }
        let to = Arc::clone(self.to);
        match table.name {
            "tenants" => self.wait(Target::put_tenant(to, table, key.clone(), page)),
            _ => self.wait(Target::put(to, table, page)),
        }
    }

    /// Reads a tenant back from the target; answers a table that is not the same.
    fn is_there(
        &self,
        whose: &Whose,
        key: &TenantKey,
        expected: &BTreeMap<&'static str, Sum>,
    ) -> Result<Option<&'static str>> {
        let (found, is_key) =
            self.wait(Target::sums(Arc::clone(self.to), whose.clone(), key.clone()))?;
        let differs = expected.iter().find(|(table, sum)| found.get(*table) != Some(sum));
        let wrong_key = (!is_key).then_some("tenants");
        Ok(differs.map(|(table, _)| *table).or(wrong_key))
    }
}

pub(super) fn tenants(tx: &Tx<'_>) -> Result<Vec<Whose>> {
    tx.prepare("SELECT tenant, name FROM tenants ORDER BY name").and_then(|mut q| {
        q.query_map([], |row| Ok(Whose { tenant: row.get(0)?, name: row.get(1)?, memory: None }))?
            .collect()
    })
}

fn tenant_key(tx: &Tx<'_>, tenant: i64) -> Result<TenantKey> {
    let sealed: Vec<u8> = tx
        .prepare_cached("SELECT sealed_key FROM tenants WHERE tenant = ?1")
        .and_then(|mut q| q.query_row([tenant], |row| row.get(0)))?;
    let key = tx.keys().master(tx)?.open(&sealed);
    key.ok_or_else(|| tx.damaged("the sealed key of a tenant does not open"))
}

// Keys, in the order that both engines have

/// What tells a row from the others, compared as the engines compare it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a>(Vec<KeyPart<'a>>);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum KeyPart<'a> {
    Null,
    Number(i64),
    Bytes(&'a [u8]),
}

impl<'a> Key<'a> {
    fn of(values: impl IntoIterator<Item = &'a Owned>) -> Self {
        let part = |value: &'a Owned| match value {
            Owned::Null(_) => KeyPart::Null,
            Owned::Integer(number) => KeyPart::Number(*number),
            Owned::Text(text) => KeyPart::Bytes(text.as_bytes()),
            Owned::Blob(bytes) => KeyPart::Bytes(bytes),
        };
        Self(values.into_iter().map(part).collect())
    }
}

fn key_of<'a>(table: &Table, values: &'a [Owned]) -> Key<'a> {
    Key::of(table.key.iter().filter_map(|name| table.at(name)).map(|at| &values[at]))
}

// The target

/// The store that is filled, and the note that it is ours to fill.
#[derive(Clone)]
struct Target {
    to: Store,
    note: String,
}

/// What a target has of a tenant.
enum State {
    Nothing,
    /// Some of it; the last key of each table that has rows.
    Begun(BTreeMap<&'static str, Values>),
    /// All of it as it was read, which came to that.
    Done(String),
}

fn done_note(whose: &Whose) -> String {
    format!("{MOVING}/{}", whose.tenant)
}

impl Target {
    /// Makes the target ours to fill; answers whether somebody had begun.
    async fn begin(&self, note: &Note) -> Result<bool> {
        let (from, value) = (note.from.clone(), self.note.clone());
        self.to
            .write(Isolation::Global, "transfer", move |tx| {
                let known = notes::note(tx, MOVING)?;
                match &known {
                    Some(known) => {
                        let known = half_moved_from(known);
                        if known != from {
                            return Err(StoreError::OtherMigration { from: known });
                        }
                    }
                    None => make_room(tx)?,
                }
                notes::put_note(tx, MOVING, &value)?;
                Ok(known.is_some())
            })
            .await
    }

    /// Writes to the target as long as it is ours to fill.
    async fn write<T: Send + 'static>(
        &self,
        act: impl Fn(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let mine = self.note.clone();
        self.to
            .write(Isolation::Global, "transfer", move |tx| {
                match notes::note(tx, MOVING)?.as_deref() == Some(&mine) {
                    true => act(tx),
                    false => Err(StoreError::TakenOver),
                }
            })
            .await
    }

    /// Takes away tenants of an earlier run that the source has no more.
    async fn keep_only(self: Arc<Self>, names: BTreeSet<String>) -> Result<()> {
        self.write(move |tx| {
            let gone = tenants(tx)?.into_iter().filter(|whose| !names.contains(&whose.name));
            gone.into_iter().try_for_each(|whose| remove(tx, &whose))
        })
        .await
    }

    async fn put(self: Arc<Self>, table: &'static Table, page: Vec<Values>) -> Result<()> {
        self.write(move |tx| put(tx, table, &page)).await
    }

    async fn put_tenant(
        self: Arc<Self>,
        table: &'static Table,
        key: TenantKey,
        page: Vec<Values>,
    ) -> Result<()> {
        self.write(move |tx| {
            let mut page = page.clone();
            for values in &mut page {
                if let Some(at) = table.at("sealed_key") {
                    values[at] = Owned::Blob(tx.keys().seal(tx, &key)?);
                }
            }
            put(tx, table, &page)
        })
        .await
    }

    async fn state(self: Arc<Self>, whose: Whose) -> Result<State> {
        self.to
            .read(Isolation::Global, "transfer", move |tx| {
                if let Some(done) = notes::note(tx, &done_note(&whose))? {
                    return Ok(State::Done(done));
                }
                let lasts = lasts(tx, &whose)?;
                Ok(if lasts.is_empty() { State::Nothing } else { State::Begun(lasts) })
            })
            .await
    }

    async fn sums(
        self: Arc<Self>,
        whose: Whose,
        key: TenantKey,
    ) -> Result<(BTreeMap<&'static str, Sum>, bool)> {
        self.to
            .read(Isolation::Global, "transfer", move |tx| {
                let sums = sums(tx, &whose)?;
                let is_key =
                    sums["tenants"].count == 1 && tenant_key(tx, whose.tenant)?.same_as(&key);
                Ok((sums, is_key))
            })
            .await
    }

    async fn remove(self: Arc<Self>, whose: Whose) -> Result<()> {
        self.write(move |tx| remove(tx, &whose)).await
    }

    /// Remembers that a tenant is there as it was read.
    async fn settle(self: Arc<Self>, whose: Whose, overall: String) -> Result<()> {
        self.write(move |tx| notes::put_note(tx, &done_note(&whose), &overall)).await
    }

    /// Hands the target over.
    async fn finish(&self, notes: BTreeMap<String, String>) -> Result<()> {
        self.write(move |tx| {
            for (name, value) in &notes {
                notes::put_note(tx, name, value)?;
            }
            let pattern = format!("{MOVING}/%");
            tx.execute(
                "DELETE FROM notes WHERE name = ?1 OR name LIKE ?2",
                params![MOVING, pattern],
            )
            .map(drop)
        })
        .await
    }
}

fn put(tx: &Tx<'_>, table: &Table, page: &[Values]) -> Result<()> {
    let columns: Vec<_> = table.columns.iter().map(|column| column.name).collect();
    Inserter::new(table, &columns).insert(tx, page).map(drop)
}

/// An empty target has nothing but names.
fn make_room(tx: &Tx<'_>) -> Result<()> {
    for table in TABLES.iter().filter(|table| restore::holds(table)) {
        let any = format!("SELECT 1 FROM {} LIMIT 1", table.name);
        let is_taken = tx.prepare(&any).and_then(|mut q| q.exists([]))?;
        if is_taken {
            return Err(StoreError::TargetNotEmpty);
        }
    }
    for table in ["scopes", "tenants", "policies"] {
        tx.execute(&format!("DELETE FROM {table}"), [])?;
    }
    Ok(())
}

/// Takes a tenant away, last what others refer to.
fn remove(tx: &Tx<'_>, whose: &Whose) -> Result<()> {
    for table in tables().rev() {
        let delete = format!("DELETE FROM {} WHERE tenant = ?1", table.name);
        let deleted = match table.owner {
            Owner::Name => tx.execute(&delete, [whose.name.as_str()]),
            _ => tx.execute(&delete, [whose.tenant]),
        };
        deleted?;
    }
    tx.execute("DELETE FROM notes WHERE name = ?1", [done_note(whose)]).map(drop)
}

/// The last key of each table in which a tenant has rows.
fn lasts(tx: &Tx<'_>, whose: &Whose) -> Result<BTreeMap<&'static str, Values>> {
    let mut lasts = BTreeMap::new();
    for table in tables() {
        let last = last(tx, table, whose)?;
        lasts.extend(last.map(|last| (table.name, last)));
    }
    Ok(lasts)
}

fn last(tx: &Tx<'_>, table: &Table, whose: &Whose) -> Result<Option<Values>> {
    let key: Vec<_> =
        table.key.iter().filter_map(|name| table.at(name)).map(|at| table.columns[at]).collect();
    let backwards: Vec<_> = table.key.iter().map(|name| format!("{name} DESC")).collect();
    let sql = format!(
        "SELECT {} FROM {} WHERE tenant = ?1 ORDER BY {} LIMIT 1",
        table.key.join(", "),
        table.name,
        backwards.join(", ")
    );
    let mut query = tx.prepare(&sql)?;
    let found = match table.owner {
        Owner::Name => query.query_row([whose.name.as_str()], |found| row::read(found, &key)),
        _ => query.query_row([whose.tenant], |found| row::read(found, &key)),
    };
    found.optional()
}
