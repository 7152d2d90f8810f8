//! Copying rows and objects as they are: into a backup, out of one, and from store to store.
//!
//! Rows are read a page at a time and handed on to a file or to the tables of another store;
//! the objects that they name follow. What is copied was redacted when it was written, and is
//! not looked at again. Tenants' keys stay sealed; the master key is never written.

mod backup;
mod file;
mod migrate;
mod page;
mod restore;
mod row;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::time::Millis;

use super::engine::Owned;
use super::tables::Table;
use crate::engine::tx::Isolation;
use crate::error::Result;
use crate::error::StoreError;
use crate::packs::Packs;
pub use backup::back_up;
pub use migrate::{MigrationReport, Moving, half_moved_from, migrate};
pub use restore::{Backup, Restored, restore};

/// Name of the note that marks a store whose migration has not finished; the notes of its
/// finished tenants begin with it.
pub const MOVING: &str = "moving";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackupOf {
    /// One memory, and the key and the counters of its tenant.
    Memory(Scope),
    Tenant(Tenant),
    Everything,
}

impl BackupOf {
    fn isolation(&self) -> Isolation {
        match self {
            BackupOf::Memory(scope) => scope.into(),
            BackupOf::Tenant(tenant) => tenant.into(),
            BackupOf::Everything => Isolation::Global,
        }
    }
}

/// Where the objects of a store lie.
#[derive(Debug, Clone)]
pub struct Objects {
    pub packs: Packs,
    /// The bodies of archives.
    pub archives: Packs,
}

impl Objects {
    fn of(&self, is_archive: bool) -> &Packs {
        if is_archive { &self.archives } else { &self.packs }
    }

    /// Reads an object, sealed as it lies. Fails unless it has the checksum of its row.
    async fn get(&self, object: &file::Object) -> Result<Bytes> {
        let mut sha256 = [0; 32];
        hex::decode_to_slice(&object.sha256, &mut sha256).map_err(|_| StoreError::PackDamaged {
            name: object.name.clone(),
            reason: "its row has no checksum".to_owned(),
        })?;
        self.of(object.is_archive).get_lying(&object.name, &sha256).await
    }

    async fn has(&self, object: &file::Object) -> Result<bool> {
        match self.get(object).await {
            Ok(_) => Ok(true),
            Err(StoreError::PackMissing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes an object, unless it is there already, and reads it back.
    async fn put(&self, object: &file::Object, bytes: Bytes) -> Result<()> {
        if !self.has(object).await? {
            self.of(object.is_archive).put(&object.name, bytes).await?;
            self.get(object).await?;
        }
        Ok(())
    }
}

/// The object that a row of `packs` or `archives` names, if any.
fn object_of(table: &Table, row: &[Owned]) -> Option<file::Object> {
    let (is_archive, size) = match table.name {
        "packs" => (false, "bytes"),
        "archives" => (true, "stored_bytes"),
        _ => return None,
    };
    let value = |column| table.value(row, column);
    // The body of an erased archive is gone with its key.
    if matches!(value("sealed_key"), Some(Owned::Null(_))) {
        return None;
    }
    match (value("name"), value(size), value("sha256")) {
        (Some(Owned::Text(name)), Some(Owned::Integer(bytes)), Some(Owned::Blob(sha256))) => {
            let (name, bytes, sha256) = (name.clone(), *bytes as u64, hex::encode(sha256));
            Some(file::Object { is_archive, name, bytes, sha256 })
        }
        _ => None,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    pub doing: Doing,
    /// Of `total`, in rows or objects, or in bytes while a file is verified.
    pub done: u64,
    pub total: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Reading through the file of a backup.
    Verifying,
    Rows,
    Objects,
}

/// Called with how far a copy is. Returns whether to go on.
pub type Tell = Arc<dyn Fn(Moved) -> bool + Send + Sync>;

/// How far one part of a copy is.
struct Progress {
    tell: Tell,
    moved: Moved,
}

impl Progress {
    fn of(tell: &Tell, doing: Doing, total: u64) -> Self {
        Self { tell: Arc::clone(tell), moved: Moved { doing, done: 0, total } }
    }

    /// Reports `more` as done; an error if the caller wants to stop.
    fn add(&mut self, more: u64) -> Result<()> {
        self.moved.done += more;
        if (self.tell)(self.moved) { Ok(()) } else { Err(StoreError::Interrupted) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupReport {
    pub created_at: Millis,
    /// The memory, if the backup is of one alone.
    pub memory: Option<String>,
    /// Its tenants, each with the position at which the backup is consistent.
    pub tenants: Vec<(String, Position)>,
    pub rows: BTreeMap<String, u64>,
    pub objects: u64,
    pub object_bytes: u64,
    pub bytes: u64,
}

impl BackupReport {
    pub fn rows_of(&self, table: &str) -> u64 {
        self.rows.get(table).copied().unwrap_or_default()
    }

    pub fn row_count(&self) -> u64 {
        self.rows.values().sum()
    }
}
