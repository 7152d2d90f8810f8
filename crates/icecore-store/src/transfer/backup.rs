//! Taking a backup: rows over one snapshot, then the objects that they name.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;

use icecore_domain::ids::Position;
use icecore_domain::time::Millis;

use super::file::{End, Header, HeaderTenant, Object, Writer};
use super::page::{OneMemory, Whose};
use super::{BackupOf, BackupReport, Doing, Objects, Progress, Tell, object_of};
use crate::engine::tuple;
use crate::engine::tx::Tx;
use crate::error::{Result, StoreError};
use crate::files::{sync_dir, write_error};
use crate::keys::Temporary;
use crate::packs::off_thread;
use crate::store::Store;
use crate::tables::{Owner, SCHEMA, TABLES, Table};

/// How many snapshots are taken while others delete the objects that each names.
const SNAPSHOTS: usize = 5;

const RESCANNED: &str = "rescanned ";

/// Writes a backup to `path`, which must not exist; the file appears whole or not at all. It
/// holds what the store holds at one position, whoever writes meanwhile.
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
        let temporary = Temporary::beside(path);
        let (of_rows, beside, telling) = (of.clone(), temporary.0.clone(), tell.clone());
        let (writer, header, named, master) = store
            .read(of.isolation(), "transfer", move |tx| {
                let header = header(tx, &of_rows, now)?;
                let mut writer = Writer::create(&beside, &header)?;
                let named = write_rows(tx, &whose(tx, &header)?, &mut writer, &telling)?;
                Ok((writer, header, named, tx.keys().master(tx)?))
            })
            .await?;
        match add_objects(writer, named, objects, tell).await {
            Ok(writer) => {
                let path = path.to_owned();
                return off_thread(move || {
                    let (end, bytes) = writer.finish(&master)?;
                    publish(&temporary, &path)?;
                    Ok(report(header, end, bytes))
                })
                .await;
            }
            // It may have been erased or rewritten since the snapshot. If the next snapshot
            // names it again, it is lost.
            Err(StoreError::PackMissing { name }) if missing.insert(name.clone()) => {
                tracing::info!(name, "an object went while a backup was taken; taking it anew");
            }
            Err(error) => return Err(error),
        }
    }
    Err(StoreError::StillChanging { times: SNAPSHOTS as u64 })
}

async fn add_objects(
    mut writer: Writer,
    named: BTreeSet<Object>,
    objects: &Objects,
    tell: &Tell,
) -> Result<Writer> {
    let mut progress = Progress::of(tell, Doing::Objects, named.len() as u64);
    for object in named {
        let bytes = objects.get(&object).await?;
        writer = off_thread(move || {
            writer.object(&object, &bytes)?;
            Ok(writer)
        })
        .await?;
        progress.add(1)?;
    }
    Ok(writer)
}

pub(super) fn report(header: Header, end: End, bytes: u64) -> BackupReport {
    let position = |tenant: HeaderTenant| (tenant.name, Position(tenant.position as u64));
    BackupReport {
        created_at: Millis(header.created_at),
        memory: header.memory,
        tenants: header.tenants.into_iter().map(position).collect(),
        rows: end.rows,
        objects: end.objects,
        object_bytes: end.object_bytes,
        bytes,
    }
}

/// Gives the whole file its name, unless a file of that name has come meanwhile.
fn publish(temporary: &Temporary, path: &Path) -> Result<()> {
    match std::fs::hard_link(&temporary.0, path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(StoreError::BackupExists { path: path.to_owned() });
        }
        // The file system has no hard links.
        Err(_) => std::fs::rename(&temporary.0, path)
            .map_err(|source| write_error("write", path, source))?,
    }
    sync_dir(path.parent().unwrap_or(Path::new(".")))
}

pub(super) fn header(tx: &Tx<'_>, of: &BackupOf, now: Millis) -> Result<Header> {
    let listed = "SELECT name, tenant, position FROM tenants ORDER BY name";
    let mut tenants = tx.all(listed, [], |row| {
        Ok(HeaderTenant { name: row.get(0)?, number: row.get(1)?, position: row.get(2)? })
    })?;
    let (only, memory) = match of {
        BackupOf::Memory(scope) => (Some(scope.tenant()), Some(scope.memory().to_owned())),
        BackupOf::Tenant(tenant) => (Some(tenant), None),
        BackupOf::Everything => (None, None),
    };
    if let Some(only) = only {
        tenants.retain(|tenant| tenant.name == only.as_str());
        if tenants.is_empty() {
            return Err(StoreError::NothingThere { what: format!("tenant `{only}`") });
        }
    }
    let mut notes = notes(tx)?;
    notes.retain(|name, _| match tenant_of_note(name) {
        // The note is about all of the tenant, not about one memory.
        Some(tenant) => memory.is_none() && tenants.iter().any(|mine| mine.name == tenant),
        None => true,
    });
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

/// The notes that are copied: how the store was derived, and what was rescanned.
pub(super) fn notes(tx: &Tx<'_>) -> Result<BTreeMap<String, String>> {
    let mut found: Vec<(String, String)> = tx.all("SELECT name, value FROM notes", [], tuple)?;
    found.retain(|(name, _)| is_of_derived(name) || tenant_of_note(name).is_some());
    Ok(found.into_iter().collect())
}

/// Whether a note says how the store was derived.
pub(super) fn is_of_derived(name: &str) -> bool {
    ["settled-with", "embedded-with"].contains(&name)
}

fn tenant_of_note(name: &str) -> Option<&str> {
    name.strip_prefix(RESCANNED)
}

/// The note of the version of its secrets with which all of a tenant was rescanned.
pub(super) fn note_of_tenant(tenant: &str) -> String {
    format!("{RESCANNED}{tenant}")
}

fn whose(tx: &Tx<'_>, header: &Header) -> Result<Vec<Whose>> {
    let one = |tenant: &HeaderTenant| {
        let memory = header.memory.as_deref();
        let memory = memory.map(|memory| OneMemory::find(tx, tenant.number, memory));
        Ok(Whose { tenant: tenant.number, name: tenant.name.clone(), memory: memory.transpose()? })
    };
    header.tenants.iter().map(one).collect()
}

/// Writes all rows. Returns the objects that they name.
fn write_rows(
    tx: &Tx<'_>,
    whose: &[Whose],
    writer: &mut Writer,
    tell: &Tell,
) -> Result<BTreeSet<Object>> {
    // Rows that are everybody's come once.
    let readers = |table: &Table| match table.owner {
        Owner::Everyone => whose.iter().take(1),
        _ => whose.iter().take(whose.len()),
    };
    let mut total = 0;
    for table in TABLES.iter() {
        for whose in readers(table) {
            total += whose.count(tx, table)?;
        }
    }
    let mut progress = Progress::of(tell, Doing::Rows, total);
    let mut objects = BTreeSet::new();
    for table in TABLES.iter() {
        for whose in readers(table) {
            whose.each_page(tx, table, |page| {
                for row in &page {
                    writer.row(table, row)?;
                    objects.extend(object_of(table, row));
                }
                progress.add(page.len() as u64)
            })?;
        }
        writer.end_rows(table)?;
    }
    Ok(objects)
}
