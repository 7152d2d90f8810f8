//! Objects on another machine: written once, read whole, checked, and copied to this disk.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::multipart::MultipartStore;
use object_store::path::Path as Location;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode};

use super::cache::Cache;
use super::patience::{Patience, is_lost};
use super::s3::Bucket;
use super::upload::Upload;
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
    pub(super) patience: Patience,
    /// What is larger is uploaded in parts.
    pub(super) multipart_bytes: u64,
    pub(super) part_bytes: usize,
    pub(super) cache: Option<Arc<Cache>>,
}

/// What lies where something is to be put.
enum Lies {
    Nothing,
    Same,
    Other,
}

impl Remote {
    /// Writes an object that must not be there yet.
    pub(super) async fn put(&self, file: &File<'_>, bytes: Bytes) -> Result<(), StoreError> {
        match bytes.len() as u64 > self.multipart_bytes {
            true => self.put_in_parts(file, &bytes).await,
            false => self.put_whole(file, &bytes).await,
        }
    }

    async fn put_whole(&self, file: &File<'_>, bytes: &Bytes) -> Result<(), StoreError> {
        let location = self.location(file);
        let mut tries = self.patience.begin();
        loop {
            let put =
                self.bucket.s3.put_opts(&location, bytes.clone().into(), PutMode::Create.into());
            let error = match tries.within(put).await {
                Ok(_) => return Ok(()),
                Err(error) => error,
            };
            let is_there = matches!(error, Error::AlreadyExists { .. });
            // It may have been us: the answer to an earlier try was lost.
            let lies = match is_there {
                true => self.what_lies(file, bytes).await?,
                false => Lies::Nothing,
            };
            // Nothing is there after all: two writers stood in each other's way.
            let may_help = is_lost(&error) || is_there;
            match lies {
                Lies::Same => return Ok(()),
                Lies::Nothing if may_help && tries.go_on().await => {}
                _ => return Err(self.told("write", file, error)),
            }
        }
    }

    async fn put_in_parts(&self, file: &File<'_>, bytes: &Bytes) -> Result<(), StoreError> {
        let (s3, location) = (&self.bucket.s3, self.location(file));
        let begun = self.patience.persist(|| s3.create_multipart(&location)).await;
        let id = begun.map_err(|error| self.told("write", file, error))?;
        let upload = Upload::new(Arc::clone(s3), location, id);
        let error = match self.send_parts(&upload, bytes).await {
            Ok(()) => {
                upload.finish();
                return Ok(());
            }
            Err(error) => error,
        };
        let is_done = matches!(self.what_lies(file, bytes).await, Ok(Lies::Same));
        upload.abort(&self.patience).await;
        // The upload was complete and the answer lost.
        if is_done { Ok(()) } else { Err(self.told("write", file, error)) }
    }

    async fn send_parts(&self, upload: &Upload, bytes: &Bytes) -> Result<(), Error> {
        let mut parts = Vec::new();
        for (number, start) in (0..bytes.len()).step_by(self.part_bytes).enumerate() {
            let part = bytes.slice(start..bytes.len().min(start + self.part_bytes));
            parts.push(self.patience.persist(|| upload.put_part(number, part.clone())).await?);
        }
        self.patience.persist(|| upload.complete(parts.clone())).await
    }

    /// Whether what lies there has the size and the bytes of what is to be put.
    async fn what_lies(&self, file: &File<'_>, bytes: &Bytes) -> Result<Lies, StoreError> {
        match self.fetch(file).await {
            Ok(found) if found == *bytes => Ok(Lies::Same),
            Ok(_) => Ok(Lies::Other),
            Err(StoreError::PackMissing { .. }) => Ok(Lies::Nothing),
            Err(error) => Err(error),
        }
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
        let read = || async { self.bucket.s3.get(&location).await?.bytes().await };
        self.patience.persist(read).await.map_err(|error| self.told("read", file, error))
    }

    /// Deletes an object and its copy; one that is not there is no error.
    pub(super) async fn delete(&self, file: &File<'_>) -> Result<(), StoreError> {
        if let Some(cache) = &self.cache {
            let (cache, name) = (Arc::clone(cache), file.full());
            off_thread(move || cache.remove(&name)).await?;
        }
        let location = self.location(file);
        match self.patience.persist(|| self.bucket.s3.delete(&location)).await {
            Ok(()) => Ok(()),
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(self.told("delete", file, error)),
        }
    }

    /// All objects with a suffix.
    pub(super) async fn list(&self, suffix: &str) -> Result<Vec<PackObject>, StoreError> {
        let list = || self.bucket.s3.list_with_delimiter(Some(&self.base));
        let listed = self.patience.persist(list).await;
        let listed = listed.map_err(|error| self.told("list", &File::all(suffix), error))?;
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
        let failed = |error| self.told("clean up after", &File::all(suffix), error);
        let unfinished = self.patience.persist(|| self.bucket.unfinished(&self.base)).await;
        let mut removed = 0;
        for upload in unfinished.map_err(failed)? {
            let Some(location) = self.of_key(&upload.key, suffix) else { continue };
            if !upload.is_older_than(min_age) {
                continue;
            }
            let abort = || self.bucket.s3.abort_multipart(&location, &upload.upload_id);
            match self.patience.persist(abort).await {
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

    /// Says what a failure means to who runs the machine.
    fn told(&self, action: &'static str, file: &File<'_>, source: Error) -> StoreError {
        let (name, place) = (file.name.to_owned(), self.place.clone());
        let is_lost = is_lost(&source);
        match &source {
            error if is_no_bucket(error) => StoreError::NoBucket { place, source: source.into() },
            Error::NotFound { .. } if action == "read" => StoreError::PackMissing { name },
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                StoreError::ObjectsForbidden { action, name, place, source: source.into() }
            }
            Error::AlreadyExists { .. } | Error::Precondition { .. } => {
                StoreError::Objects { action, name, source }
            }
            _ if is_lost => StoreError::ObjectsGone { action, name, place, source: source.into() },
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

fn is_missing(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. }) && !is_no_bucket(error)
}

/// The server's word for it is all there is.
fn is_no_bucket(error: &Error) -> bool {
    error.to_string().contains("NoSuchBucket")
}
