//! Packs and archives as objects: files here, or objects on another machine, by URL.
//!
//! An object is written once, under a name that nobody else takes, and read whole, with the
//! checksum that the reader expects. Packs lie side by side in one directory: subdirectories
//! of a few hundred packs would cost more than a tenth of their size.

#[cfg(feature = "s3")]
mod cache;
mod local;
#[cfg(feature = "s3")]
mod remote;
#[cfg(feature = "s3")]
mod s3;
#[cfg(test)]
#[cfg(feature = "s3")]
mod s3_tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path as Location;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode};
use sha2::{Digest, Sha256};

#[cfg(feature = "s3")]
use self::remote::Remote;
use crate::error::{Result, StoreError};
use crate::files::sync_dir;
use crate::keys::random_bytes;
use crate::objects::{ObjectKeys, ObjectPlace, ObjectSettings};

/// A body with another checksum is fetched this often before it is called damaged: it may have
/// been cut short on the way.
const FETCHES: usize = 3;

const SUFFIX: &str = ".icepack";
const ARCHIVE_SUFFIX: &str = ".icearchive";

/// The file that says whose objects these are.
const OWNER: &str = "owner";
const OWNER_SUFFIX: &str = ".icestore";

/// Where packs and archives lie, below what holds both.
const PACKS_DIR: &str = "packs";
const ARCHIVES_DIR: &str = "archives";

/// Where copies of objects from elsewhere lie in the data directory.
#[cfg(feature = "s3")]
const CACHE_DIR: &str = "object-cache";

/// An object that lies there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackObject {
    pub name: String,
    pub bytes: u64,
    /// Seconds since 1970 when it was written.
    pub modified_secs: i64,
}

/// Where packs, or the bodies of archives, are kept.
#[derive(Debug, Clone)]
pub struct Packs {
    objects: Arc<dyn ObjectStore>,
    place: Place,
    /// The prefix of every object.
    base: Location,
    /// The place as a person knows it, where another store could be pointed at it too.
    shared: Option<String>,
    suffix: &'static str,
}

#[derive(Debug, Clone)]
enum Place {
    Memory,
    Directory(PathBuf),
    #[cfg(feature = "s3")]
    Bucket(Arc<Remote>),
}

impl Packs {
    /// The packs and the archives of a store, at the place that the settings name. Files
    /// beside the store, and copies, lie in `data_dir`. No server is asked yet.
    pub fn at(
        settings: &ObjectSettings,
        keys: Option<&ObjectKeys>,
        data_dir: &Path,
    ) -> Result<(Self, Self)> {
        let url = settings.url.clone();
        let refused = |reason| StoreError::ObjectsUrl { url, reason };
        match settings.place().map_err(refused)? {
            ObjectPlace::Beside => Self::below(data_dir, None),
            ObjectPlace::Directory(dir) => Self::below(&dir, Some(settings.url.clone())),
            ObjectPlace::Bucket { bucket, prefix } => {
                Self::in_bucket(settings, keys, data_dir, &bucket, &prefix)
            }
        }
    }

    fn below(dir: &Path, shared: Option<String>) -> Result<(Self, Self)> {
        let packs = Self { shared: shared.clone(), ..Self::local(&dir.join(PACKS_DIR))? };
        let archives = Self { shared, ..Self::local(&dir.join(ARCHIVES_DIR))? };
        Ok((packs, archives.archives()))
    }

    #[cfg(feature = "s3")]
    fn in_bucket(
        settings: &ObjectSettings,
        keys: Option<&ObjectKeys>,
        data_dir: &Path,
        bucket: &str,
        prefix: &[String],
    ) -> Result<(Self, Self)> {
        let remote = Arc::new(Remote::connect(settings, keys, data_dir, bucket)?);
        let prefix: Location = prefix.iter().map(String::as_str).collect();
        let below = |dir: &str, suffix| Self {
            objects: remote.objects(),
            place: Place::Bucket(Arc::clone(&remote)),
            base: prefix.clone().join(dir),
            shared: Some(settings.url.clone()),
            suffix,
        };
        Ok((below(PACKS_DIR, SUFFIX), below(ARCHIVES_DIR, ARCHIVE_SUFFIX)))
    }

    #[cfg(not(feature = "s3"))]
    fn in_bucket(
        settings: &ObjectSettings,
        _: Option<&ObjectKeys>,
        _: &Path,
        _: &str,
        _: &[String],
    ) -> Result<(Self, Self)> {
        let reason = "this build has no client for S3 (the feature `s3`)".to_owned();
        Err(StoreError::ObjectsUrl { url: settings.url.clone(), reason })
    }

    /// Packs as files below `dir`, which is made if it is missing.
    pub fn local(dir: &Path) -> Result<Self> {
        Ok(Self::of(local::open(dir)?, Place::Directory(dir.to_owned())))
    }

    /// Packs in memory, for tests.
    pub fn in_memory() -> Self {
        Self::of(Arc::new(InMemory::new()), Place::Memory)
    }

    fn of(objects: Arc<dyn ObjectStore>, place: Place) -> Self {
        Self { objects, place, base: Location::default(), shared: None, suffix: SUFFIX }
    }

    /// The bodies of archives at the same place.
    pub fn archives(&self) -> Self {
        Self { suffix: ARCHIVE_SUFFIX, ..self.clone() }
    }

    pub fn new_name() -> String {
        hex::encode(random_bytes::<16>())
    }

    /// Writes an object that must not be there yet; durable when it resolves. One that
    /// is there with these very bytes was put by us, and its answer was lost.
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        let location = self.location(name);
        let (put, in_parts) = match &self.place {
            #[cfg(feature = "s3")]
            Place::Bucket(remote) if remote.is_large(&bytes) => {
                (remote.put_in_parts(location, bytes.clone()).await, true)
            }
            _ => {
                let (body, mode) = (bytes.clone().into(), PutMode::Create.into());
                (self.objects.put_opts(&location, body, mode).await.map(drop), false)
            }
        };
        let Err(error) = put else { return Ok(()) };
        // An earlier try may have done it though its answer was lost. Then the object is there;
        // of an upload that is ended, servers say whatever they like.
        let is_there = matches!(error, Error::AlreadyExists { .. } | Error::Precondition { .. });
        match (in_parts || is_there) && self.fetch(name).await.is_ok_and(|found| found == bytes) {
            true => Ok(()),
            false => Err(self.failed("write", name, error)),
        }
    }

    /// Reads an object with that checksum, from a copy on this disk if there is one.
    pub async fn get(&self, name: &str, sha256: &[u8; 32]) -> Result<Bytes> {
        #[cfg(feature = "s3")]
        if let Place::Bucket(remote) = &self.place {
            if let Some(copy) = remote.copy(&self.file(name), sha256).await? {
                return Ok(copy);
            }
            let bytes = self.get_lying(name, sha256).await?;
            remote.keep_copy(&self.file(name), &bytes).await?;
            return Ok(bytes);
        }
        self.get_lying(name, sha256).await
    }

    /// As [`Packs::get`], from where the object lies and never from a copy.
    pub async fn get_lying(&self, name: &str, sha256: &[u8; 32]) -> Result<Bytes> {
        for _ in 0..FETCHES {
            let (bytes, sum) = (self.fetch(name).await?, *sha256);
            let looked_at = bytes.clone();
            if off_thread(move || Ok(has_checksum(&looked_at, &sum))).await? {
                return Ok(bytes);
            }
        }
        let reason = "its bytes are not those that were written".to_owned();
        Err(StoreError::PackDamaged { name: name.to_owned(), reason })
    }

    async fn fetch(&self, name: &str) -> Result<Bytes> {
        let location = self.location(name);
        let read = async { self.objects.get(&location).await?.bytes().await };
        read.await.map_err(|error| self.failed("read", name, error))
    }

    /// Deletes an object, and its copy on this disk; one that is not there is no error.
    /// Durable when it resolves.
    pub async fn delete(&self, name: &str) -> Result<()> {
        #[cfg(feature = "s3")]
        if let Place::Bucket(remote) = &self.place {
            remote.remove_copy(&self.file(name)).await?;
        }
        match self.objects.delete(&self.location(name)).await {
            Ok(()) => {}
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(self.failed("delete", name, error)),
        }
        match &self.place {
            Place::Directory(dir) => {
                let dir = dir.clone();
                off_thread(move || sync_dir(&dir)).await
            }
            _ => Ok(()),
        }
    }

    /// All objects, by name.
    pub async fn list(&self) -> Result<Vec<PackObject>> {
        let listed = self.objects.list_with_delimiter(Some(&self.base)).await;
        let listed = listed.map_err(|error| self.failed("list", "*", error))?.objects.into_iter();
        let mut found: Vec<_> = listed.filter_map(|object| as_pack(object, self.suffix)).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Whether another store could be pointed at this place too.
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Makes the place that of the store `owner`, if it is nobody's yet. Only then may unknown
    /// objects be removed: they could be another store's.
    pub async fn claim(&self, owner: &str) -> Result<()> {
        let Some(place) = &self.shared else { return Ok(()) };
        let claims = Self { suffix: OWNER_SUFFIX, ..self.clone() };
        let bytes = Bytes::copy_from_slice(owner.as_bytes());
        match claims.put(OWNER, bytes).await {
            Err(StoreError::Objects { source: Error::AlreadyExists { .. }, .. }) => {
                Err(StoreError::ForeignObjects { place: place.clone() })
            }
            claimed => claimed,
        }
    }

    /// Removes what killed writers left half-written at least `min_age` ago, and copies of
    /// objects that are gone. Returns how many files, or uploads.
    pub async fn remove_leftovers(&self, min_age: Duration) -> Result<u64> {
        let suffix = self.suffix;
        match &self.place {
            Place::Memory => Ok(0),
            Place::Directory(dir) => {
                let dir = dir.clone();
                off_thread(move || local::remove_leftovers(&dir, suffix, min_age)).await
            }
            #[cfg(feature = "s3")]
            Place::Bucket(remote) => {
                let objects = self.list().await?;
                let files = objects.iter().map(|object| self.file(&object.name)).collect();
                remote.remove_leftovers(&self.base, suffix, files, min_age).await
            }
        }
    }

    fn file(&self, name: &str) -> String {
        format!("{name}{}", self.suffix)
    }

    /// One segment below the prefix, whatever the name holds, so that no name leads elsewhere.
    fn location(&self, name: &str) -> Location {
        self.base.clone().join(self.file(name))
    }

    fn failed(&self, action: &'static str, name: &str, source: Error) -> StoreError {
        match &self.place {
            _ if action == "read" && is_missing(&source) => {
                StoreError::PackMissing { name: name.to_owned() }
            }
            Place::Memory => StoreError::Objects { action, name: name.to_owned(), source },
            Place::Directory(dir) => local::failed(action, name, dir, source),
            #[cfg(feature = "s3")]
            Place::Bucket(remote) => remote.failed(action, name, source),
        }
    }
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. }) && !is_no_bucket(error)
}

/// The server's word for it is all there is.
fn is_no_bucket(error: &Error) -> bool {
    error.to_string().contains("NoSuchBucket")
}

/// An object under the name that it was put by: what a path cannot hold is spelt otherwise in
/// the path.
fn as_pack(object: object_store::ObjectMeta, suffix: &str) -> Option<PackObject> {
    let file = percent_encoding::percent_decode_str(object.location.filename()?);
    Some(PackObject {
        name: file.decode_utf8().ok()?.strip_suffix(suffix)?.to_owned(),
        bytes: object.size,
        modified_secs: object.last_modified.timestamp(),
    })
}

fn has_checksum(bytes: &[u8], sha256: &[u8; 32]) -> bool {
    <[u8; 32]>::from(Sha256::digest(bytes)) == *sha256
}

/// Works with files, off the async threads.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    #[cfg(all(debug_assertions, any(test, feature = "testing")))]
    if crate::testing::is_one_thread() {
        return work();
    }
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

    pub(super) async fn get(packs: &Packs, name: &str, bytes: &'static str) -> Result<Bytes> {
        packs.get(name, &Sha256::digest(bytes).into()).await
    }

    pub(super) fn names(objects: &[PackObject]) -> Vec<&str> {
        objects.iter().map(|object| object.name.as_str()).collect()
    }

    pub(super) async fn keeps_objects(packs: Packs) {
        let (a, b) = ("a".repeat(32), "b".repeat(32));
        assert!(packs.list().await.unwrap().is_empty());
        // A name is listed as it was given, whatever a path makes of it.
        packs.put("a*/%2A é", Bytes::from_static(b"odd")).await.unwrap();
        assert_eq!(names(&packs.list().await.unwrap()), ["a*/%2A é"]);
        assert_eq!(get(&packs, "a*/%2A é", "odd").await.unwrap(), "odd");
        packs.delete("a*/%2A é").await.unwrap();
        assert!(packs.list().await.unwrap().is_empty());
        packs.put(&b, Bytes::from_static(b"two")).await.unwrap();
        packs.put(&a, Bytes::from_static(b"")).await.unwrap();
        assert_eq!(get(&packs, &b, "two").await.unwrap(), "two");
        assert_eq!(get(&packs, &a, "").await.unwrap(), "");

        let listed = packs.list().await.unwrap();
        assert_eq!(names(&listed), [&a, &b]);
        assert_eq!(listed[1].bytes, 3);
        assert!(listed[1].modified_secs > 1_600_000_000);

        let again = packs.put(&b, Bytes::from_static(b"other")).await.unwrap_err();
        assert!(matches!(again, StoreError::Objects { action: "write", .. }));
        assert_eq!(get(&packs, &b, "two").await.unwrap(), "two", "what is there stays");

        packs.delete(&b).await.unwrap();
        packs.delete(&b).await.unwrap();
        let gone = get(&packs, &b, "two").await.unwrap_err();
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
            assert_eq!(get(&packs, "one", "pack").await.unwrap(), "pack");
            assert_eq!(get(&archives, "one", "archive").await.unwrap(), "archive");
            assert_eq!(names(&packs.list().await.unwrap()), ["one"]);
            packs.delete("one").await.unwrap();
            assert!(packs.list().await.unwrap().is_empty());
            assert_eq!(get(&archives, "one", "archive").await.unwrap(), "archive");
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
        assert_eq!(get(&packs, "../out", "x").await.unwrap(), "x");
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
        assert_eq!(get(&packs, "whole", "x").await.unwrap(), "x");
    }

    #[tokio::test]
    async fn a_directory_that_vanished_is_told() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("packs");
        let packs = Packs::local(&dir).unwrap();
        std::fs::remove_dir(&dir).unwrap();
        assert!(matches!(get(&packs, "x", "").await, Err(StoreError::PackMissing { .. })));
    }

    #[tokio::test]
    async fn objects_lie_where_the_url_says() {
        let root = tempfile::tempdir().unwrap();
        let (data, there) = (root.path().join("data"), root.path().join("there"));
        let elsewhere = format!("file://{}", there.display());
        for (url, dir) in [(String::new(), &data), (elsewhere, &there)] {
            let settings = ObjectSettings { url, ..ObjectSettings::default() };
            let (packs, archives) = Packs::at(&settings, None, &data).unwrap();
            packs.put("p", Bytes::from_static(b"x")).await.unwrap();
            archives.put("a", Bytes::from_static(b"x")).await.unwrap();
            assert!(dir.join("packs/p.icepack").exists());
            assert!(dir.join("archives/a.icearchive").exists());
        }
        let settings =
            ObjectSettings { url: "gs://bucket".to_owned(), ..ObjectSettings::default() };
        let refused = Packs::at(&settings, None, &data).unwrap_err();
        assert!(matches!(&refused, StoreError::ObjectsUrl { url, .. } if url == "gs://bucket"));
    }

    #[tokio::test]
    async fn another_body_is_damage() {
        let root = tempfile::tempdir().unwrap();
        let packs = Packs::local(root.path()).unwrap();
        packs.put("x", Bytes::from_static(b"one")).await.unwrap();
        packs.put("x", Bytes::from_static(b"one")).await.expect("these very bytes");
        std::fs::write(root.path().join("x.icepack"), b"two").unwrap();
        let damaged = get(&packs, "x", "one").await.unwrap_err();
        assert!(matches!(damaged, StoreError::PackDamaged { name, .. } if name == "x"));
        assert_eq!(get(&packs, "x", "two").await.unwrap(), "two");
    }

    #[test]
    fn names_are_random() {
        let (a, b) = (Packs::new_name(), Packs::new_name());
        assert_ne!(a, b);
        assert!(a.len() == 32 && a.bytes().all(|b| b.is_ascii_hexdigit()));
    }
}
