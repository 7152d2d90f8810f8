//! An upload in parts. What is not finished is given up, also where its future is dropped:
//! a server keeps parts, and asks money for them, until somebody says so.

use std::sync::Arc;

use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as Location;
use object_store::{Error, MultipartId};

use super::patience::Patience;

/// An upload that was begun.
pub(super) struct Upload {
    s3: Arc<AmazonS3>,
    location: Location,
    id: MultipartId,
    is_open: bool,
}

impl Upload {
    pub(super) fn new(s3: Arc<AmazonS3>, location: Location, id: MultipartId) -> Self {
        Self { s3, location, id, is_open: true }
    }

    pub(super) async fn put_part(&self, number: usize, part: Bytes) -> Result<PartId, Error> {
        self.s3.put_part(&self.location, &self.id, number, part.into()).await
    }

    /// Puts the parts together, if nothing lies there.
    pub(super) async fn complete(&self, parts: Vec<PartId>) -> Result<(), Error> {
        self.s3.complete_multipart(&self.location, &self.id, parts).await.map(drop)
    }

    /// There is nothing to give up any more.
    pub(super) fn finish(mut self) {
        self.is_open = false;
    }

    /// Gives it up. What cannot be is found by the sweep for leftovers.
    pub(super) async fn abort(mut self, patience: &Patience) {
        self.is_open = false;
        let (s3, location, id) = (&self.s3, &self.location, &self.id);
        let once = Patience { retry: std::time::Duration::ZERO, ..*patience };
        if let Err(error) = once.persist(|| s3.abort_multipart(location, id)).await {
            tracing::debug!(%error, "an upload could not be given up and is left to the sweep");
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.is_open {
            let (s3, location, id) = (Arc::clone(&self.s3), self.location.clone(), self.id.clone());
            runtime.spawn(async move { s3.abort_multipart(&location, &id).await });
        }
    }
}
