//! Objects on another machine: written once, read whole, checked, and copied to this disk.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::client::HttpError;
use object_store::multipart::MultipartStore;
use object_store::path::Path as Location;
use object_store::{Error, MultipartId, ObjectStore, ObjectStoreExt, PutMode};

use super::cache::Cache;
use super::s3::Bucket;
use super::{PackObject, as_pack, has_checksum, off_thread};
use crate::error::StoreError;

/// A body with another checksum is fetched this often before it is called damaged: on the
/// way it may have been cut short, and not by the server.
const FETCHES: usize = 3;

/// Objects below one prefix of a bucket.
#[derive(Debug, Clone)]
pub(super) struct Remote {
    pub(super) bucket: Bucket,
    /// As a person knows it.
    pub(super) place: String,
    /// What every name begins with.
    pub(super) base: Location,
    /// What is larger is uploaded in parts.
    pub(super) multipart_bytes: u64,
    pub(super) part_bytes: usize,
    pub(super) cache: Option<Arc<Cache>>,
}

impl Remote {
    /// Writes an object that must not be there yet, unless with these very bytes.
    pub(super) async fn put(&self, file: &File<'_>, bytes: Bytes) -> Result<(), StoreError> {
        let is_large = bytes.len() as u64 > self.multipart_bytes;
        let put = match is_large {
            true => self.put_in_parts(file, bytes.clone()).await,
            false => self.put_whole(file, bytes.clone()).await,
        };
        let error = match put {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        // An earlier try may have done it though its answer was lost. Then the object is there;
        // of an upload that is ended, servers say whatever they like.
        let is_there = matches!(error, Error::AlreadyExists { .. } | Error::Precondition { .. });
        match (is_large || is_there) && self.fetch(file).await.is_ok_and(|found| found == bytes) {
            true => Ok(()),
            false => Err(self.failed("write", file, error)),
        }
    }

    async fn put_whole(&self, file: &File<'_>, bytes: Bytes) -> Result<(), Error> {
        let mode = PutMode::Create.into();
        self.bucket.s3.put_opts(&self.location(file), bytes.into(), mode).await.map(drop)
    }

    /// Uploads in a task of its own, which ends the upload or gives it up even if nobody waits
    /// any more: a server keeps parts, and charges for them, until it is told to drop them.
    async fn put_in_parts(&self, file: &File<'_>, bytes: Bytes) -> Result<(), Error> {
        let (s3, location) = (Arc::clone(&self.bucket.s3), self.location(file));
        let part_bytes = self.part_bytes;
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

    /// Reads an object, from this disk where it has a copy.
    pub(super) async fn get(
        &self,
        file: &File<'_>,
        sha256: &[u8; 32],
    ) -> Result<Bytes, StoreError> {
        let Some(cache) = &self.cache else { return self.get_lying(file, sha256).await };
        let (cached, name, sum) = (Arc::clone(cache), file.full(), *sha256);
        if let Some(bytes) = off_thread(move || Ok(cached.get(&name, &sum))).await? {
            return Ok(bytes.into());
        }
        let bytes = self.get_lying(file, sha256).await?;
        let (cache, name, copy) = (Arc::clone(cache), file.full(), bytes.clone());
        off_thread(move || {
            cache.put(&name, &copy);
            Ok(())
        })
        .await?;
        Ok(bytes)
    }

    /// Reads an object from where it lies.
    pub(super) async fn get_lying(
        &self,
        file: &File<'_>,
        sha256: &[u8; 32],
    ) -> Result<Bytes, StoreError> {
        for _ in 0..FETCHES {
            let (bytes, sum) = (self.fetch(file).await?, *sha256);
            let looked_at = bytes.clone();
            if off_thread(move || Ok(has_checksum(&looked_at, &sum))).await? {
                return Ok(bytes);
            }
        }
        Err(super::damaged(file.name))
    }

    async fn fetch(&self, file: &File<'_>) -> Result<Bytes, StoreError> {
        let location = self.location(file);
        let read = async { self.bucket.s3.get(&location).await?.bytes().await };
        read.await.map_err(|error| self.failed("read", file, error))
    }

    /// Deletes an object and its copy; one that is not there is no error.
    pub(super) async fn delete(&self, file: &File<'_>) -> Result<(), StoreError> {
        if let Some(cache) = &self.cache {
            let (cache, name) = (Arc::clone(cache), file.full());
            off_thread(move || cache.remove(&name)).await?;
        }
        let location = self.location(file);
        match self.bucket.s3.delete(&location).await {
            Ok(()) => Ok(()),
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(self.failed("delete", file, error)),
        }
    }

    /// All objects with a suffix.
    pub(super) async fn list(&self, suffix: &str) -> Result<Vec<PackObject>, StoreError> {
        let listed = self.bucket.s3.list_with_delimiter(Some(&self.base)).await;
        let listed = listed.map_err(|error| self.failed("list", &File::all(suffix), error))?;
        Ok(listed.objects.into_iter().filter_map(|object| as_pack(object, suffix)).collect())
    }

    /// Gives up uploads that nobody goes on with, and lets go of copies of objects that
    /// are not there any more. Answers how many uploads.
    pub(super) async fn remove_leftovers(
        &self,
        suffix: &'static str,
        min_age: Duration,
    ) -> Result<u64, StoreError> {
        if let Some(cache) = &self.cache {
            let objects = self.list(suffix).await?.into_iter();
            let files: BTreeSet<String> = objects.map(|o| format!("{}{suffix}", o.name)).collect();
            let cache = Arc::clone(cache);
            off_thread(move || cache.retain(suffix, &files)).await?;
        }
        let failed = |error| self.failed("clean up after", &File::all(suffix), error);
        let unfinished = self.bucket.unfinished(&self.base).await;
        let mut removed = 0;
        for upload in unfinished.map_err(failed)? {
            let Some(location) = self.of_key(&upload.key, suffix) else { continue };
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

    /// Where an object of ours lies that a key names.
    fn of_key(&self, key: &str, suffix: &str) -> Option<Location> {
        let location = Location::parse(key).ok()?;
        let is_ours = location.prefix_match(&self.base)?.count() == 1 && key.ends_with(suffix);
        is_ours.then_some(location)
    }

    fn location(&self, file: &File<'_>) -> Location {
        self.base.clone().join(file.full())
    }

    /// What a failure means to the person who runs the machine.
    fn failed(&self, action: &'static str, file: &File<'_>, source: Error) -> StoreError {
        let (name, place) = (file.name.to_owned(), self.place.clone());
        let is_unanswered = is_unanswered(&source);
        match &source {
            error if is_no_bucket(error) => StoreError::NoBucket { place, source: source.into() },
            Error::NotFound { .. } if action == "read" => StoreError::PackMissing { name },
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

/// What an object is called, and what its file's name ends with.
pub(super) struct File<'a> {
    pub(super) name: &'a str,
    pub(super) suffix: &'a str,
}

impl<'a> File<'a> {
    fn all(suffix: &'a str) -> Self {
        Self { name: "*", suffix }
    }

    fn full(&self) -> String {
        format!("{}{}", self.name, self.suffix)
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

/// Whether no answer came, or not the whole of one.
fn is_unanswered(error: &Error) -> bool {
    let mut causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.any(|cause| cause.is::<HttpError>())
}

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. }) && !is_no_bucket(error)
}

/// The server's word for it is all there is.
fn is_no_bucket(error: &Error) -> bool {
    error.to_string().contains("NoSuchBucket")
}
