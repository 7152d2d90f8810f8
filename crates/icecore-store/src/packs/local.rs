//! Objects as files of one directory.

use std::error::Error as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use object_store::local::LocalFileSystem;
use object_store::{Error, ObjectStore};

use crate::error::{Result, StoreError};
use crate::files::{Refusal, make_dir, refusal, write_error};

/// Files below `dir`, which is made if it is missing.
pub(super) fn open(dir: &Path) -> Result<Arc<dyn ObjectStore>> {
    make_dir(dir)?;
    let objects = LocalFileSystem::new_with_prefix(dir)
        .map_err(|source| failed("open the directory of", "", dir, source))?
        // A pack that was put must be there after a crash: the rows that
        // held its turns are deleted next.
        .with_fsync(true);
    Ok(Arc::new(objects))
}

/// Finds the disk's own reason below the object store's words.
pub(super) fn failed(action: &'static str, name: &str, dir: &Path, source: Error) -> StoreError {
    let causes = std::iter::successors(source.source(), |&cause| cause.source());
    let kind = causes
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .find_map(|error| refusal(error.kind()));
    match kind {
        Some(Refusal::Full) => StoreError::DiskFull,
        Some(Refusal::Forbidden) if action != "read" => StoreError::ReadOnly { path: dir.into() },
        _ => StoreError::Objects { action, name: name.into(), source },
    }
}

/// The object store writes `<file>#<number>` and links it to its name when whole.
fn is_leftover(file_name: &str, suffix: &str) -> bool {
    file_name.rsplit_once('#').is_some_and(|(name, number)| {
        name.ends_with(suffix) && number.bytes().all(|b| b.is_ascii_digit())
    })
}

pub(super) fn remove_leftovers(dir: &Path, suffix: &str, min_age: Duration) -> Result<u64> {
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
            failed("write", "n", Path::new("packs"), error)
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
