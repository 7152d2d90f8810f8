//! A bucket on another machine, and copies of its objects on this disk.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::client::HttpError;
use object_store::multipart::MultipartStore;
use object_store::path::Path as Location;
use object_store::{Error, MultipartId, ObjectStore};

use super::cache::Cache;
use super::s3::Bucket;
use super::{CACHE_DIR, is_missing, is_no_bucket, off_thread};
use crate::error::StoreError;
use crate::objects::{ObjectKeys, ObjectSettings};

#[derive(Debug)]
pub(super) struct Remote {
    bucket: Bucket,
    /// As a person knows it.
    place: String,
    /// What is larger is uploaded in parts.
    multipart_bytes: u64,
    part_bytes: usize,
    cache: Option<Arc<Cache>>,
}

impl Remote {
    /// A client of the bucket; nothing is asked yet.
    pub(super) fn connect(
        settings: &ObjectSettings,
        keys: Option<&ObjectKeys>,
        data_dir: &Path,
        bucket: &str,
    ) -> Result<Self, StoreError> {
        let place = settings.url.clone();
        let keys = keys.ok_or_else(|| StoreError::NoObjectKeys { place: place.clone() })?;
        let cache = match settings.cache_bytes {
            0 => None,
            most => Some(Cache::open(&data_dir.join(CACHE_DIR), most)?.into()),
        };
        Ok(Self {
            bucket: Bucket::connect(settings, keys, bucket)?,
            place,
            multipart_bytes: settings.multipart_bytes,
            part_bytes: settings.part_bytes.max(1) as usize,
            cache,
        })
    }

    pub(super) fn objects(&self) -> Arc<dyn ObjectStore> {
        self.bucket.s3.clone()
    }

    pub(super) fn is_large(&self, bytes: &Bytes) -> bool {
        bytes.len() as u64 > self.multipart_bytes
    }

    /// Uploads in a task of its own, which ends the upload or gives it up even if nobody waits
    /// any more: a server keeps parts, and charges for them, until it is told to drop them.
    pub(super) async fn put_in_parts(&self, location: Location, bytes: Bytes) -> Result<(), Error> {
        let (s3, part_bytes) = (Arc::clone(&self.bucket.s3), self.part_bytes);
        let upload = tokio::spawn(async move {
            let id = s3.create_multipart(&location).await?;
            let sent = send_parts(&s3, &location, &id, &bytes, part_bytes).await;
            if sent.is_err()
                && let Err(error) = s3.abort_multipart(&location, &id).await
            {
                tracing::debug!(%error, "an upload could not be given up and is left to the sweep");
            }
            sent
        });
        upload.await.unwrap_or_else(|source| Err(Error::JoinError { source }))
    }

    /// The copy of an object on this disk, if there is one with that checksum.
    pub(super) async fn copy(
        &self,
        file: &str,
        sha256: &[u8; 32],
    ) -> Result<Option<Bytes>, StoreError> {
        let (file, sum) = (file.to_owned(), *sha256);
        let copy = self.cached(move |cache| Ok(cache.get(&file, &sum))).await?;
        Ok(copy.flatten().map(Bytes::from))
    }

    pub(super) async fn keep_copy(&self, file: &str, bytes: &Bytes) -> Result<(), StoreError> {
        let (file, bytes) = (file.to_owned(), bytes.clone());
        let put = move |cache: &Cache| {
            cache.put(&file, &bytes);
            Ok(())
        };
        self.cached(put).await.map(drop)
    }

    pub(super) async fn remove_copy(&self, file: &str) -> Result<(), StoreError> {
        let file = file.to_owned();
        self.cached(move |cache| cache.remove(&file)).await.map(drop)
    }

    /// Works with the copies, where any are kept.
    async fn cached<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Cache) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<Option<T>, StoreError> {
        let Some(cache) = self.cache.clone() else { return Ok(None) };
        off_thread(move || work(&cache).map(Some)).await
    }

    /// Gives up old uploads that nobody goes on with, and deletes copies with that suffix of
    /// objects that are not among `files`. Answers how many uploads.
    pub(super) async fn remove_leftovers(
        &self,
        base: &Location,
        suffix: &'static str,
        files: BTreeSet<String>,
        min_age: Duration,
    ) -> Result<u64, StoreError> {
        self.cached(move |cache| cache.retain(suffix, &files)).await?;
        let failed = |error| self.failed("clean up after", "*", error);
        let mut removed = 0;
        for upload in self.bucket.unfinished(base).await.map_err(failed)? {
            let Some(location) = location_of(&upload.key, base, suffix) else { continue };
            if !upload.is_older_than(min_age) {
                continue;
            }
            match self.bucket.s3.abort_multipart(&location, &upload.upload_id).await {
                Ok(()) => removed += 1,
                // Ended meanwhile.
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(removed)
    }

    /// What a failure means to the person who runs the machine.
    pub(super) fn failed(&self, action: &'static str, name: &str, source: Error) -> StoreError {
        let (name, place) = (name.to_owned(), self.place.clone());
        let is_unanswered = is_unanswered(&source);
        match &source {
            error if is_no_bucket(error) => StoreError::NoBucket { place, source: source.into() },
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                StoreError::ObjectsForbidden { action, name, place, source: source.into() }
            }
            Error::AlreadyExists { .. } | Error::Precondition { .. } => {
                StoreError::Objects { action, name, source }
            }
            _ if is_unanswered => {
                StoreError::ObjectsGone { action, name, place, source: source.into() }
            }
            _ => StoreError::ObjectsFailing { action, name, place, source: source.into() },
        }
    }
}

async fn send_parts(
    s3: &AmazonS3,
    location: &Location,
    id: &MultipartId,
    bytes: &Bytes,
    part_bytes: usize,
) -> Result<(), Error> {
    let mut parts = Vec::new();
    for (number, start) in (0..bytes.len()).step_by(part_bytes).enumerate() {
        let part = bytes.slice(start..bytes.len().min(start + part_bytes));
        parts.push(s3.put_part(location, id, number, part.into()).await?);
    }
    s3.complete_multipart(location, id, parts).await.map(drop)
}

/// Where the object of a key lies, if it is one with that suffix directly below `base`.
fn location_of(key: &str, base: &Location, suffix: &str) -> Option<Location> {
    let location = Location::parse(key).ok()?;
    let is_ours = location.prefix_match(base)?.count() == 1 && key.ends_with(suffix);
    is_ours.then_some(location)
}

/// Whether no answer came, or not the whole of one.
fn is_unanswered(error: &Error) -> bool {
    let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.any(|cause| cause.is::<HttpError>())
}
