//! Files and directories that survive a crash, and what their errors mean.

use std::fs::{DirBuilder, File};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::error::{Result, StoreError};

/// Makes `dir` and what is missing above it, for the owner alone, durably.
pub(crate) fn make_dir(dir: &Path) -> Result<()> {
    // The directories whose list of entries will have changed.
    let mut touched: Vec<&Path> = dir.ancestors().take_while(|above| !above.exists()).collect();
    if touched.is_empty() {
        return Ok(());
    }
    touched.extend(dir.ancestors().nth(touched.len()));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| write_error("create the directory", dir, source))?;
    touched.into_iter().try_for_each(sync_dir)
}

/// Makes the entries of `dir` durable: a new file's name, or that one is gone.
pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    // A relative path's last ancestor is the empty one.
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir)
        .and_then(|open| open.sync_all())
        .map_err(|source| write_error("sync the directory", dir, source))
}

/// Gives a whole file its name unless that is taken, durably: unlike a rename, a link replaces
/// nothing. Whoever made the link may not have synced it yet, so that is done in any case.
pub(crate) fn link_new(file: &Path, path: &Path) -> Result<()> {
    match std::fs::hard_link(file, path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(write_error("create", path, error))
        }
        _ => sync_dir(path.parent().unwrap_or(path)),
    }
}

/// What a failed write means for the person at the machine.
pub(crate) fn write_error(action: &'static str, path: &Path, source: Error) -> StoreError {
    match refusal(source.kind()) {
        Some(Refusal::Full) => StoreError::DiskFull,
        Some(Refusal::Forbidden) => StoreError::ReadOnly { path: path.into() },
        None => StoreError::Io { action, path: path.into(), source },
    }
}

/// Why a disk takes no bytes from us.
pub(crate) enum Refusal {
    Full,
    /// It is read-only, or somebody else's.
    Forbidden,
}

pub(crate) fn refusal(kind: ErrorKind) -> Option<Refusal> {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some(Refusal::Full),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Some(Refusal::Forbidden),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_new_directory_is_for_the_owner_alone() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b/c");
        make_dir(&deep).unwrap();
        make_dir(&deep).unwrap();
        for dir in [root.path().join("a"), deep] {
            assert_eq!(dir.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn full_and_forbidden_disks_are_told_apart() {
        let path = Path::new("x");
        let error = |number| write_error("write", path, Error::from_raw_os_error(number));
        let (enospc, edquot, erofs, eacces, eio) = (28, 122, 30, 13, 5);
        assert!(matches!(error(enospc), StoreError::DiskFull));
        assert!(matches!(error(edquot), StoreError::DiskFull));
        assert!(matches!(error(erofs), StoreError::ReadOnly { .. }));
        assert!(matches!(error(eacces), StoreError::ReadOnly { .. }));
        assert!(matches!(error(eio), StoreError::Io { .. }));
    }
}
