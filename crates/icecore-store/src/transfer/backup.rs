//! Taking a backup: rows over one snapshot, then the objects that they name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use icecore_domain::ids::Position;
use icecore_domain::time::Millis;

use super::file::{BLOCK_BYTES, Header, HeaderTenant, Object, Writer};
use super::page::{OneMemory, Whose};
use super::{
    BackupOf, BackupReport, Doing, Moved, Objects, Tell, object_of, off_thread, row, told,
};
use crate::engine::tx::Tx;
use crate::engine::{OptionalExtension, params};
use crate::error::{Result, StoreError};
use crate::files::{sync_dir, write_error};
use crate::keys::{MasterKey, Temporary};
use crate::store::Store;
use crate::tables::{Owner, SCHEMA, TABLES, Table};

/// Snapshots that are taken while others delete the objects of each.
const SNAPSHOTS: usize = 5;

/// How the notes of tenants begin.
const RESCANNED: &str = "rescanned ";

/// Writes a backup to `path`, which must not be there yet; it appears whole or not at
/// all. It holds what the store holds at one position, whoever writes meanwhile.
pub async fn back_up(
    store: &Store,
    objects: &Objects,
    of: &BackupOf,
    path: &Path,
    now: Millis,
    tell: &Tell,
) -> Result<BackupReport> {
    if path.symlink_metadata().is_ok() {
        return Err(StoreError::BackupExists { path: path.to_owned() });
    }
    let mut missing = BTreeSet::new();
    for _ in 0..SNAPSHOTS {
        let begun = Begun::take(store, of, path, now, tell).await?;
        match begun.add_objects(objects, tell).await {
            Ok(filled) => return filled.finish(path).await,
            // It may have been erased or rewritten since the snapshot; but one that the
            // next snapshot names again is not there.
            Err(StoreError::PackMissing { name }) if missing.insert(name.clone()) => {
                tracing::info!(name, "an object went while a backup was taken; taking it anew");
            }
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::StillChanging { times: SNAPSHOTS as u64 })
}

/// A backup that has its rows.
struct Begun {
    temporary: Temporary,
    writer: Writer<BufWriter<File>>,
    header: Header,
    objects: BTreeSet<Object>,
    master: MasterKey,
}

impl Begun {
    async fn take(
        store: &Store,
        of: &BackupOf,
        path: &Path,
        now: Millis,
        tell: &Tell,
    ) -> Result<Self> {
        let temporary = Temporary::beside(path);
        let (of_rows, beside, tell) = (of.clone(), temporary.0.clone(), tell.clone());
        let (writer, header, objects, master) = store
            .read(of.isolation(), "transfer", move |tx| {
                let header = header(tx, &of_rows, now)?;
                let whose = whose(tx, &of_rows, &header)?;
                let rows = RowsOut::begin(&beside, &header)?;
                let (writer, objects) = rows.all(tx, &whose, &tell)?;
                Ok((writer, header, objects, tx.keys().master(tx)?))
            })
            .await?;
        Ok(Self { temporary, writer, header, objects, master })
    }

    async fn add_objects(mut self, objects: &Objects, tell: &Tell) -> Result<Self> {
        let total = self.objects.len() as u64;
        for (done, object) in (1..).zip(std::mem::take(&mut self.objects)) {
            let bytes = objects.get(&object).await?;
            self = off_thread(move || {
                let written = self.writer.object(&object, &bytes);
                written.map_err(|source| write_error("write", &self.temporary.0, source))?;
                Ok(self)
            })
            .await?;
            told(tell, Moved { doing: Doing::Objects, done, total })?;
        }
        Ok(self)
    }

    async fn finish(self, path: &Path) -> Result<BackupReport> {
        let path = path.to_owned();
        off_thread(move || {
            let Self { temporary, writer, header, master, .. } = self;
            let failed = |source| write_error("write", &temporary.0, source);
            let (out, end, bytes) = writer.finish(&master).map_err(failed)?;
            let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
            file.sync_all().map_err(failed)?;
            publish(&temporary, &path)?;
            Ok(report(header, end.rows, end.objects, end.object_bytes, bytes))
        })
        .await
    }
}

/// What a header and an end say, for a person.
pub(super) fn report(
    header: Header,
    rows: BTreeMap<String, u64>,
    objects: u64,
    object_bytes: u64,
    bytes: u64,
) -> BackupReport {
    let position = |tenant: HeaderTenant| (tenant.name, Position(tenant.position as u64));
    BackupReport {
        created_at: Millis(header.created_at),
        memory: header.memory,
        tenants: header.tenants.into_iter().map(position).collect(),
        rows,
        objects,
        object_bytes,
        bytes,
    }
}

/// Gives the whole file its name, unless one of that name has come meanwhile.
fn publish(temporary: &Temporary, path: &Path) -> Result<()> {
    let failed = |source| write_error("write", path, source);
    match std::fs::hard_link(&temporary.0, path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(StoreError::BackupExists { path: path.to_owned() });
        }
        // Where files have one name only.
        Err(_) => std::fs::rename(&temporary.0, path).map_err(failed)?,
    }
    sync_dir(path.parent().unwrap_or(Path::new(".")))
}

fn header(tx: &Tx<'_>, of: &BackupOf, now: Millis) -> Result<Header> {
    let mut tenants: Vec<HeaderTenant> = tx
        .prepare("SELECT name, tenant, position FROM tenants ORDER BY name")
        .and_then(|mut q| {
            q.query_map([], |row| {
                Ok(HeaderTenant { name: row.get(0)?, number: row.get(1)?, position: row.get(2)? })
            })?
            .collect()
        })?;
    let named = match of {
        BackupOf::Memory(scope) => Some(scope.tenant()),
        BackupOf::Tenant(tenant) => Some(tenant),
        BackupOf::Everything => None,
    };
    if let Some(named) = named {
        tenants.retain(|tenant| tenant.name == named.as_str());
        if tenants.is_empty() {
            return Err(StoreError::NothingThere { what: format!("tenant `{named}`") });
        }
    }
    let memory = match of {
        BackupOf::Memory(scope) => Some(scope.memory().to_owned()),
        _ => None,
    };
    let is_mine = |name: &str| match tenant_of_note(name) {
        // One memory says nothing of what else its tenant has.
        Some(tenant) => memory.is_none() && tenants.iter().any(|mine| mine.name == tenant),
        None => true,
    };
    let mut notes = notes(tx)?;
    notes.retain(|name, _| is_mine(name));
    let columns = |table: &Table| table.columns.iter().map(|c| c.name.to_owned()).collect();
    Ok(Header {
        schema: SCHEMA,
        created_at: now.0,
        everything: *of == BackupOf::Everything,
        memory,
        key_check: hex::encode(tx.keys().master(tx)?.check_value()),
        tenants,
        notes,
        tables: TABLES.iter().map(|table| (table.name.to_owned(), columns(table))).collect(),
    })
}

/// The notes that go along with what is moved.
pub(super) fn notes(tx: &Tx<'_>) -> Result<BTreeMap<String, String>> {
    let found: Vec<(String, String)> = tx
        .prepare("SELECT name, value FROM notes")
        .and_then(|mut q| q.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())?;
    let moves = |name: &str| is_of_derived(name) || tenant_of_note(name).is_some();
    Ok(found.into_iter().filter(|(name, _)| moves(name)).collect())
}

/// Whether a note says how the store was derived.
pub(super) fn is_of_derived(name: &str) -> bool {
    ["settled-with", "embedded-with"].contains(&name)
}

/// The tenant that a note is about.
pub(super) fn tenant_of_note(name: &str) -> Option<&str> {
    name.strip_prefix(RESCANNED)
}

/// The note of the secrets with which all that a tenant has was looked through.
pub(super) fn note_of_tenant(tenant: &str) -> String {
    format!("{RESCANNED}{tenant}")
}

fn whose(tx: &Tx<'_>, of: &BackupOf, header: &Header) -> Result<Vec<Whose>> {
    let mut whose = Vec::new();
    for tenant in &header.tenants {
        let memory = match of {
            BackupOf::Memory(scope) => Some(one_memory(tx, tenant.number, scope.memory())?),
            _ => None,
        };
        whose.push(Whose { tenant: tenant.number, name: tenant.name.clone(), memory });
    }
    Ok(whose)
}

fn one_memory(tx: &Tx<'_>, tenant: i64, memory: &str) -> Result<OneMemory> {
    let scope: Option<i64> = tx
        .prepare("SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2")
        .and_then(|mut q| q.query_row(params![tenant, memory], |row| row.get(0)).optional())?;
    let nothing = || StoreError::NothingThere { what: format!("memory `{memory}`") };
    let scope = scope.ok_or_else(nothing)?;
    let sessions = tx
        .prepare("SELECT session FROM sessions WHERE tenant = ?1 AND scope = ?2 ORDER BY session")
        .and_then(|mut q| q.query_map([tenant, scope], |row| row.get(0))?.collect())?;
    Ok(OneMemory { scope, sessions })
}

/// Rows on their way into a file.
struct RowsOut {
    path: PathBuf,
    writer: Writer<BufWriter<File>>,
    objects: BTreeSet<Object>,
    /// Encoded rows of one table that wait for more.
    waiting: Vec<u8>,
    count: u32,
    done: u64,
}

impl RowsOut {
    /// What an earlier run left in the file is gone.
    fn begin(path: &Path, header: &Header) -> Result<Self> {
        let failed = |source| write_error("create", path, source);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let file = options.open(path).map_err(failed)?;
        let writer = Writer::begin(BufWriter::with_capacity(1 << 18, file), header);
        Ok(Self {
            path: path.to_owned(),
            writer: writer.map_err(failed)?,
            objects: BTreeSet::new(),
            waiting: Vec::new(),
            count: 0,
            done: 0,
        })
    }

    fn all(
        mut self,
        tx: &Tx<'_>,
        whose: &[Whose],
        tell: &Tell,
    ) -> Result<(Writer<BufWriter<File>>, BTreeSet<Object>)> {
        let total = count(tx, whose)?;
        for table in TABLES.iter() {
            // What is everybody's is there once.
            let readers = if table.owner == Owner::Everyone { 1 } else { whose.len() };
            for whose in whose.iter().take(readers) {
                whose.each_page(tx, table, &mut |page| {
                    for values in &page {
                        self.add(table, values)?;
                    }
                    told(tell, Moved { doing: Doing::Rows, done: self.done, total })
                })?;
            }
            self.flush(table)?;
        }
        Ok((self.writer, self.objects))
    }

    fn add(&mut self, table: &Table, values: &[crate::engine::Owned]) -> Result<()> {
        row::encode(values, &mut self.waiting);
        self.count += 1;
        self.done += 1;
        self.objects.extend(object_of(table, values));
        match self.waiting.len() >= BLOCK_BYTES {
            true => self.flush(table),
            false => Ok(()),
        }
    }

    fn flush(&mut self, table: &Table) -> Result<()> {
        if self.count > 0 {
            self.writer
                .rows(table.name, self.count, &self.waiting)
                .map_err(|source| write_error("write", &self.path, source))?;
            self.waiting.clear();
            self.count = 0;
        }
        Ok(())
    }
}

/// Rows of all tables.
fn count(tx: &Tx<'_>, whose: &[Whose]) -> Result<u64> {
    let mut total = 0;
    for table in TABLES.iter().filter(|table| table.owner != Owner::Everyone) {
        for whose in whose {
            total += whose.count(tx, table)?;
        }
    }
    Ok(total)
}
