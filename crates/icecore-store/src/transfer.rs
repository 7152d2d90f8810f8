//! Moving rows and objects as they are: backups, and from one store to another.
//!
//! What is moved was redacted when it was written, and is not looked at again. Keys stay
//! sealed; the master key is never written anywhere by this.

mod backup;
mod file;
mod insert;
mod migrate;
mod page;
mod restore;
mod row;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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

/// Note that a store has while it is moved here from elsewhere, and what begins like it.
pub const MOVING: &str = "moving";

/// What is backed up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackupOf {
    /// One memory, and of its tenant what it cannot do without: its key and its counter.
    Memory(Scope),
    /// One tenant with all that is its own.
    Tenant(Tenant),
    /// Every tenant.
    Everything,
}

impl BackupOf {
    fn isolation(&self) -> Isolation {
        match self {
            BackupOf::Memory(scope) => Isolation::Scope(scope.clone()),
            BackupOf::Tenant(tenant) => Isolation::Tenant(tenant.clone()),
            BackupOf::Everything => Isolation::Global,
        }
    }
}

/// Where the objects of a store lie.
#[derive(Debug, Clone)]
pub struct Objects {
    /// Packs.
    pub packs: Packs,
    /// The bodies of archives.
    pub archives: Packs,
}

impl Objects {
    fn of(&self, is_archive: bool) -> &Packs {
        if is_archive { &self.archives } else { &self.packs }
    }

    /// Reads an object where it lies, which must be what its row says.
    async fn get(&self, object: &file::Object) -> Result<Bytes> {
        let mut sha256 = [0; 32];
        let is_hash = hex::decode_to_slice(&object.sha256, &mut sha256).is_ok();
        match is_hash {
            true => self.of(object.is_archive).get_lying(&object.name, &sha256).await,
            false => Err(damaged_object(object)),
        }
    }

    /// Writes an object, unless the very same is there.
    async fn put(&self, object: &file::Object, bytes: Bytes) -> Result<()> {
        match self.get(object).await {
            Ok(_) => Ok(()),
            Err(StoreError::PackMissing { .. }) => {
                self.of(object.is_archive).put(&object.name, bytes).await?;
                self.get(object).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }
}

fn damaged_object(object: &file::Object) -> StoreError {
    StoreError::PackDamaged {
        name: object.name.clone(),
        reason: "its row has no checksum".to_owned(),
    }
}

/// The object that a row of `packs` or `archives` names, if it names one.
fn object_of(table: &Table, row: &[Owned]) -> Option<file::Object> {
    let is_archive = match table.name {
        "packs" => false,
        "archives" => true,
        _ => return None,
    };
    let value = |column: &str| table.at(column).map(|at| &row[at]);
    // Without its key nobody reads it, and it is gone.
    if matches!(value("sealed_key"), Some(Owned::Null(_))) {
        return None;
    }
    let bytes = value(if is_archive { "stored_bytes" } else { "bytes" });
    match (value("name"), bytes, value("sha256")) {
        (Some(Owned::Text(name)), Some(Owned::Integer(bytes)), Some(Owned::Blob(sha256))) => {
            let (name, bytes, sha256) = (name.clone(), *bytes as u64, hex::encode(sha256));
            Some(file::Object { is_archive, name, bytes, sha256 })
        }
        _ => None,
    }
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// What is being done.
    pub doing: Doing,
    /// How much of it is done: rows, or objects, or bytes where a file is looked at.
    pub done: u64,
    /// How much there is.
    pub total: u64,
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// The file is looked at.
    Verifying,
    /// Rows are written.
    Rows,
    /// Objects are written.
    Objects,
}

/// Is told how far it is, and answers whether to go on.
pub type Tell = Arc<dyn Fn(Moved) -> bool + Send + Sync>;

/// Tells how far it is; an error if that is far enough.
fn told(tell: &Tell, moved: Moved) -> Result<()> {
    if tell(moved) { Ok(()) } else { Err(StoreError::Interrupted) }
}

/// What a backup holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupReport {
    /// When it was taken.
    pub created_at: Millis,
    /// The memory, where it is of one alone.
    pub memory: Option<String>,
    /// Its tenants, each with the position that the backup is consistent at.
    pub tenants: Vec<(String, Position)>,
    /// Rows by table.
    pub rows: BTreeMap<String, u64>,
    /// Packs and archives.
    pub objects: u64,
    /// Bytes of these.
    pub object_bytes: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

impl BackupReport {
    /// Rows of a table.
    pub fn rows_of(&self, table: &str) -> u64 {
        self.rows.get(table).copied().unwrap_or_default()
    }

    /// Rows of all tables.
    pub fn row_count(&self) -> u64 {
        self.rows.values().sum()
    }
}

/// What is wrong with a file, for a person.
fn flawed(path: &Path, flaw: file::Flaw) -> StoreError {
    let path = PathBuf::from(path);
    match flaw {
        file::Flaw::Io(source) => StoreError::Io { action: "read", path, source },
        file::Flaw::Version(reason) => StoreError::BackupVersion { path, reason },
        file::Flaw::Bad(reason) => StoreError::BadBackup { path, reason },
    }
}

/// Work with files, off the async threads.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // Only while the runtime shuts down.
        Err(_) => Err(StoreError::Closed),
    }
}
