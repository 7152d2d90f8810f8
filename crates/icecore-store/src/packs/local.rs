//! Objects as files of one directory, or in memory for tests.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path as Location;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode};

use super::{PackObject, as_pack, off_thread};
use crate::error::StoreError;
use crate::files::{Refusal, make_dir, refusal, sync_dir, write_error};

/// Where they are kept.
#[derive(Debug, Clone)]
pub(super) struct Local {
    objects: Arc<dyn ObjectStore>,
    /// The directory, where they are files.
    dir: Option<PathBuf>,
}

impl Local {
    /// Files below `dir`, which is made if it is missing.
    pub(super) fn open(dir: &Path) -> Result<Self, StoreError> {
        make_dir(dir)?;
        let objects = LocalFileSystem::new_with_prefix(dir)
            .map_err(|source| translate("open the directory of", "", Some(dir), source))?
            // A pack that was put must be there after a crash: the rows that
            // held its turns are deleted next.
            .with_fsync(true);
        Ok(Self { objects: Arc::new(objects), dir: Some(dir.to_owned()) })
    }

    pub(super) fn in_memory() -> Self {
        Self { objects: Arc::new(InMemory::new()), dir: None }
    }

    /// Writes an object that must not be there yet, unless with these very bytes.
    pub(super) async fn put(
        &self,
        name: &str,
        suffix: &str,
        bytes: Bytes,
    ) -> Result<(), StoreError> {
        let location = location(name, suffix);
        let put = self.objects.put_opts(&location, bytes.clone().into(), PutMode::Create.into());
        let source = match put.await {
            Ok(_) => return Ok(()),
            Err(source) => source,
        };
        let is_there = matches!(source, Error::AlreadyExists { .. });
        match is_there && self.get(name, suffix).await.is_ok_and(|found| found == bytes) {
            true => Ok(()),
            false => Err(self.failed("write", name, source)),
        }
    }

    pub(super) async fn get(&self, name: &str, suffix: &str) -> Result<Bytes, StoreError> {
        let read = async { self.objects.get(&location(name, suffix)).await?.bytes().await };
        read.await.map_err(|source| match source {
            Error::NotFound { .. } => StoreError::PackMissing { name: name.into() },
            source => StoreError::Objects { action: "read", name: name.into(), source },
        })
    }

    pub(super) async fn delete(&self, name: &str, suffix: &str) -> Result<(), StoreError> {
        match self.objects.delete(&location(name, suffix)).await {
            Ok(()) | Err(Error::NotFound { .. }) => self.sync().await,
            Err(source) => Err(self.failed("delete", name, source)),
        }
    }

    pub(super) async fn list(&self, suffix: &str) -> Result<Vec<PackObject>, StoreError> {
        let listed = self.objects.list_with_delimiter(None).await;
        let listed = listed.map_err(|source| self.failed("list", "*", source))?;
        Ok(listed.objects.into_iter().filter_map(|object| as_pack(object, suffix)).collect())
    }

    pub(super) async fn remove_leftovers(
        &self,
        suffix: &'static str,
        min_age: Duration,
    ) -> Result<u64, StoreError> {
        match self.dir.clone() {
            Some(dir) => off_thread(move || remove_leftovers(&dir, suffix, min_age)).await,
            None => Ok(0),
        }
    }

    async fn sync(&self) -> Result<(), StoreError> {
        match self.dir.clone() {
            Some(dir) => off_thread(move || sync_dir(&dir)).await,
            None => Ok(()),
        }
    }

    fn failed(&self, action: &'static str, name: &str, source: Error) -> StoreError {
        translate(action, name, self.dir.as_deref(), source)
    }
}

/// One segment, whatever the name holds, so that no name leads elsewhere.
fn location(name: &str, suffix: &str) -> Location {
    Location::from_iter([format!("{name}{suffix}")])
}

/// Finds the disk's own reason below the object store's words.
fn translate(action: &'static str, name: &str, dir: Option<&Path>, source: Error) -> StoreError {
    let causes = std::iter::successors(source.source(), |&cause| cause.source());
    let kind = causes
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .find_map(|error| refusal(error.kind()));
    match (kind, dir) {
        (Some(Refusal::Full), _) => StoreError::DiskFull,
        (Some(Refusal::Forbidden), Some(dir)) => StoreError::ReadOnly { path: dir.into() },
        _ => StoreError::Objects { action, name: name.into(), source },
    }
}

/// The object store writes `<file>#<number>` and links it to its name when whole.
fn is_leftover(file_name: &str, suffix: &str) -> bool {
    file_name.rsplit_once('#').is_some_and(|(name, number)| {
        name.ends_with(suffix) && number.bytes().all(|b| b.is_ascii_digit())
    })
}

fn remove_leftovers(dir: &Path, suffix: &str, min_age: Duration) -> Result<u64, StoreError> {
    let failed = |source| write_error("clean the directory", dir, source);
    let mut removed = 0;
    for entry in dir.read_dir().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_name().to_str().is_some_and(|name| is_leftover(name, suffix)) {
            continue;
        }
        // Gone, or from the future: somebody is at work on it.
        let age = entry.metadata().and_then(|data| data.modified()).map(|time| time.elapsed());
        if matches!(age, Ok(Ok(age)) if age >= min_age) {
            std::fs::remove_file(entry.path()).map_err(failed)?;
            removed += 1;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disks_reason_is_found() {
        let told = |number: i32| {
            let source = Box::new(std::io::Error::from_raw_os_error(number));
            let error = Error::Generic { store: "local", source };
            translate("write", "n", Some(Path::new("packs")), error)
        };
        assert!(matches!(told(28), StoreError::DiskFull));
        assert!(matches!(told(30), StoreError::ReadOnly { .. }));
        assert!(matches!(told(5), StoreError::Objects { .. }));
    }

    #[tokio::test]
    async fn a_full_disk_is_told() {
        // A device that takes no byte, in place of the directory's file system.
        let full = Path::new("/dev/full");
        let Err(source) = std::fs::write(full, b"x") else { return };
        assert!(matches!(write_error("write", full, source), StoreError::DiskFull));
    }
}
