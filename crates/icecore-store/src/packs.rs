//! Packs and archives as objects: local files now, any object store by URL later.
//!
//! Packs lie side by side in one directory: a subdirectory would cost a block of
//! its own, which for a few hundred packs is more than a tenth of their size.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path as Location;
use object_store::{ObjectStore, ObjectStoreExt, PutMode};

use crate::error::StoreError;
use crate::files::{Refusal, make_dir, refusal, sync_dir, write_error};
use crate::keys::random_bytes;

/// What the name of a pack's file ends with.
const SUFFIX: &str = ".icepack";

/// What the name of an archive's file ends with.
const ARCHIVE_SUFFIX: &str = ".icearchive";

/// An object that lies there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackObject {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Seconds since 1970 when it was written.
    pub modified_secs: i64,
}

/// Where packs, or the bodies of archives, are kept.
#[derive(Debug, Clone)]
pub struct Packs {
    objects: Arc<dyn ObjectStore>,
    /// The directory, where they are files.
    dir: Option<PathBuf>,
    /// What their names end with.
    suffix: &'static str,
}

impl Packs {
    /// Packs as files below `dir`, which is made if it is missing.
    pub fn local(dir: &Path) -> Result<Self, StoreError> {
        make_dir(dir)?;
        let objects = LocalFileSystem::new_with_prefix(dir)
            .map_err(|source| translate("open the directory of", "", Some(dir), source))?
            // A pack that was put must be there after a crash: the rows that
            // held its turns are deleted next.
            .with_fsync(true);
        Ok(Self { objects: Arc::new(objects), dir: Some(dir.to_owned()), suffix: SUFFIX })
    }

    /// Packs in memory, for tests.
    pub fn in_memory() -> Self {
        Self::over(Arc::new(InMemory::new()))
    }

    fn over(objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects, dir: None, suffix: SUFFIX }
    }

    /// The bodies of archives at the same place: none of them is a pack, and no pack is
    /// one of them.
    pub fn archives(&self) -> Self {
        Self { suffix: ARCHIVE_SUFFIX, ..self.clone() }
    }

    /// A new random name.
    pub fn new_name() -> String {
        hex::encode(random_bytes::<16>())
    }

    /// Writes an object that must not be there yet; durable when it resolves.
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<(), StoreError> {
        self.objects
            .put_opts(&self.location(name), bytes.into(), PutMode::Create.into())
            .await
            .map(drop)
            .map_err(|source| self.failed("write", name, source))
    }

    /// Reads an object whole.
    pub async fn get(&self, name: &str) -> Result<Bytes, StoreError> {
        let read = async { self.objects.get(&self.location(name)).await?.bytes().await };
        read.await.map_err(|source| match source {
            object_store::Error::NotFound { .. } => StoreError::PackMissing { name: name.into() },
            source => StoreError::Objects { action: "read", name: name.into(), source },
        })
    }

    /// Deletes an object; one that is not there is no error. Durable when it
    /// resolves.
    pub async fn delete(&self, name: &str) -> Result<(), StoreError> {
        match self.objects.delete(&self.location(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => self.sync().await,
            Err(source) => Err(self.failed("delete", name, source)),
        }
    }

    /// All objects, by name.
    pub async fn list(&self) -> Result<Vec<PackObject>, StoreError> {
        let listed = self
            .objects
            .list_with_delimiter(None)
            .await
            .map_err(|source| self.failed("list", "*", source))?;
        let named = |object| as_pack(object, self.suffix);
        let mut found: Vec<_> = listed.objects.into_iter().filter_map(named).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Removes what writers that were killed left half-written at least
    /// `min_age` ago, and says how many files that were.
    ///
    /// No list shows these files, and they are of no use: an object appears
    /// under its name only when it is whole.
    pub async fn remove_leftovers(&self, min_age: Duration) -> Result<u64, StoreError> {
        match self.dir.clone() {
            Some(dir) => {
                let suffix = self.suffix;
                off_thread(move || remove_leftovers(&dir, suffix, min_age)).await
            }
            None => Ok(0),
        }
    }

    async fn sync(&self) -> Result<(), StoreError> {
        match self.dir.clone() {
            Some(dir) => off_thread(move || sync_dir(&dir)).await,
            None => Ok(()),
        }
    }

    /// One segment, whatever the name holds, so that no name leads elsewhere.
    fn location(&self, name: &str) -> Location {
        Location::from_iter([format!("{name}{}", self.suffix)])
    }

    fn failed(&self, action: &'static str, name: &str, source: object_store::Error) -> StoreError {
        translate(action, name, self.dir.as_deref(), source)
    }
}

fn as_pack(object: object_store::ObjectMeta, suffix: &str) -> Option<PackObject> {
    Some(PackObject {
        name: object.location.filename()?.strip_suffix(suffix)?.to_owned(),
        bytes: object.size,
        modified_secs: object.last_modified.timestamp(),
    })
}

/// Finds the disk's own reason below the object store's words.
fn translate(
    action: &'static str,
    name: &str,
    dir: Option<&Path>,
    source: object_store::Error,
) -> StoreError {
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

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // Only while the runtime shuts down.
        Err(_) => Err(StoreError::Closed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(objects: &[PackObject]) -> Vec<&str> {
        objects.iter().map(|object| object.name.as_str()).collect()
    }

    async fn keeps_objects(packs: Packs) {
        let (a, b) = ("a".repeat(32), "b".repeat(32));
        assert!(packs.list().await.unwrap().is_empty());
        packs.put(&b, Bytes::from_static(b"two")).await.unwrap();
        packs.put(&a, Bytes::from_static(b"")).await.unwrap();
        assert_eq!(packs.get(&b).await.unwrap(), "two");
        assert_eq!(packs.get(&a).await.unwrap(), "");

        let listed = packs.list().await.unwrap();
        assert_eq!(names(&listed), [&a, &b]);
        assert_eq!(listed[1].bytes, 3);
        assert!(listed[1].modified_secs > 1_600_000_000);

        let again = packs.put(&b, Bytes::from_static(b"other")).await.unwrap_err();
        assert!(matches!(again, StoreError::Objects { action: "write", .. }));
        assert_eq!(packs.get(&b).await.unwrap(), "two", "what is there stays");

        packs.delete(&b).await.unwrap();
        packs.delete(&b).await.unwrap();
        let gone = packs.get(&b).await.unwrap_err();
        assert!(matches!(gone, StoreError::PackMissing { name } if name == b));
        assert_eq!(names(&packs.list().await.unwrap()), [&a]);
    }

    #[tokio::test]
    async fn objects_are_kept_in_memory() {
        keeps_objects(Packs::in_memory()).await;
    }

    #[tokio::test]
    async fn objects_are_kept_in_files() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("new/packs");
        keeps_objects(Packs::local(&dir).unwrap()).await;
        let again = Packs::local(&dir).unwrap();
        assert_eq!(again.list().await.unwrap().len(), 1);
        assert_eq!(dir.read_dir().unwrap().count(), 1, "nothing else is left there");
    }

    #[tokio::test]
    async fn archives_are_no_packs() {
        let root = tempfile::tempdir().unwrap();
        keeps_objects(Packs::local(root.path()).unwrap().archives()).await;
        for packs in [Packs::local(root.path()).unwrap(), Packs::in_memory()] {
            let archives = packs.archives();
            packs.put("one", Bytes::from_static(b"pack")).await.unwrap();
            archives.put("one", Bytes::from_static(b"archive")).await.unwrap();
            assert_eq!(packs.get("one").await.unwrap(), "pack");
            assert_eq!(archives.get("one").await.unwrap(), "archive");
            assert_eq!(names(&packs.list().await.unwrap()), ["one"]);
            packs.delete("one").await.unwrap();
            assert!(packs.list().await.unwrap().is_empty());
            assert_eq!(archives.get("one").await.unwrap(), "archive");
        }
        std::fs::write(root.path().join("half.icearchive#1"), "torn").unwrap();
        let packs = Packs::local(root.path()).unwrap();
        assert_eq!(packs.remove_leftovers(Duration::ZERO).await.unwrap(), 0);
        assert_eq!(packs.archives().remove_leftovers(Duration::ZERO).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_name_leads_nowhere_else() {
        let root = tempfile::tempdir().unwrap();
        let packs = Packs::local(&root.path().join("packs")).unwrap();
        packs.put("../out", Bytes::from_static(b"x")).await.unwrap();
        assert_eq!(packs.get("../out").await.unwrap(), "x");
        assert_eq!(root.path().read_dir().unwrap().count(), 1);
    }

    #[tokio::test]
    async fn foreign_files_are_not_packs() {
        let dir = tempfile::tempdir().unwrap();
        let packs = Packs::local(dir.path()).unwrap();
        std::fs::write(dir.path().join("notes.txt"), "mine").unwrap();
        assert!(packs.list().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn half_written_files_are_removed_when_they_are_old() {
        let dir = tempfile::tempdir().unwrap();
        let packs = Packs::local(dir.path()).unwrap();
        packs.put("whole", Bytes::from_static(b"x")).await.unwrap();
        for name in ["half.icepack#1", "mine#1"] {
            std::fs::write(dir.path().join(name), "torn").unwrap();
        }
        assert_eq!(names(&packs.list().await.unwrap()), ["whole"]);
        assert_eq!(packs.remove_leftovers(Duration::from_secs(3600)).await.unwrap(), 0);
        assert_eq!(packs.remove_leftovers(Duration::ZERO).await.unwrap(), 1);
        assert!(dir.path().join("mine#1").exists());
        assert_eq!(packs.get("whole").await.unwrap(), "x");
    }

    #[tokio::test]
    async fn a_directory_that_vanished_is_told() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("packs");
        let packs = Packs::local(&dir).unwrap();
        std::fs::remove_dir(&dir).unwrap();
        assert!(matches!(packs.get("x").await, Err(StoreError::PackMissing { .. })));
    }

    #[test]
    fn the_disks_reason_is_found() {
        let told = |number: i32| {
            let source = Box::new(std::io::Error::from_raw_os_error(number));
            let error = object_store::Error::Generic { store: "local", source };
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

    #[test]
    fn names_are_random() {
        let (a, b) = (Packs::new_name(), Packs::new_name());
        assert_ne!(a, b);
        assert!(a.len() == 32 && a.bytes().all(|b| b.is_ascii_hexdigit()));
    }
}
