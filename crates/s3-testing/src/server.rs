//! The server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::dto::*;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{S3, S3Request, S3Response, S3Result};
use s3s_fs::FileSystem;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// The bucket that is there.
pub const BUCKET: &str = "bucket";
/// The region that requests are signed for.
pub const REGION: &str = "us-east-1";
/// The name of the key that may do everything.
pub const KEY_ID: &str = "test-key-id";
/// That key.
pub const SECRET: &str = "what-only-tests-know";

/// A server on a free port of the loopback. Gone when it is dropped or stopped; what was
/// put stays in its directory.
pub struct S3Server {
    address: SocketAddr,
    objects: Objects,
    serving: Option<tokio::task::JoinHandle<()>>,
}

impl S3Server {
    /// Serves the objects in `dir`, with one bucket.
    pub async fn start(dir: &Path) -> Self {
        std::fs::create_dir_all(dir.join(BUCKET)).expect("a directory for the bucket");
        let objects = Objects {
            files: Arc::new(FileSystem::new(dir).expect("a directory for the server")),
            uploads: Arc::default(),
            changed: Arc::default(),
            writing: Arc::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let serving = Some(tokio::spawn(serve(listener, service(objects.clone()))));
        Self { address, objects, serving }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it: every connection is cut and none is taken any more.
    pub async fn stop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            serving.await.ok();
        }
    }

    /// Serves again, at the same address.
    pub async fn start_again(&mut self) {
        self.stop().await;
        let listener = TcpListener::bind(self.address).await.expect("its port again");
        self.serving = Some(tokio::spawn(serve(listener, service(self.objects.clone()))));
    }

    /// Uploads in parts that were neither ended nor given up, by what they were to be.
    pub fn unfinished(&self) -> Vec<String> {
        self.objects.uploads().values().map(|upload| upload.key.clone()).collect()
    }

    /// Waits until there are so many.
    pub async fn until_unfinished(&self, count: usize) {
        loop {
            let changed = self.objects.changed.notified();
            if self.unfinished().len() == count {
                return;
            }
            changed.await;
        }
    }

    /// Lets all unfinished uploads have begun long ago.
    pub fn age_uploads(&self) {
        for upload in self.objects.uploads().values_mut() {
            upload.begun = SystemTime::UNIX_EPOCH;
        }
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

fn service(objects: Objects) -> S3Service {
    let mut builder = S3ServiceBuilder::new(objects);
    builder.set_auth(SimpleAuth::from_single(KEY_ID, SECRET));
    builder.build()
}

async fn serve(listener: TcpListener, service: S3Service) {
    // Aborted with this task.
    let mut open = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let service = service.clone();
        open.spawn(async move {
            let http = Builder::new(TokioExecutor::new());
            http.serve_connection(TokioIo::new(socket), service).await.ok();
        });
        while open.try_join_next().is_some() {}
    }
}

/// An upload under way.
struct Upload {
    key: String,
    begun: SystemTime,
}

#[derive(Clone)]
struct Objects {
    files: Arc<FileSystem>,
    uploads: Arc<Mutex<BTreeMap<String, Upload>>>,
    /// Told when the uploads change.
    changed: Arc<Notify>,
    /// Looking whether something is there and writing it is one step.
    writing: Arc<tokio::sync::Mutex<()>>,
}

impl Objects {
    fn uploads(&self) -> MutexGuard<'_, BTreeMap<String, Upload>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, id: &str) {
        self.uploads().remove(id);
        self.changed.notify_waiters();
    }
}

#[async_trait::async_trait]
impl S3 for Objects {
    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let _writing = self.writing.lock().await;
        self.files.put_object(request).await
    }

    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        self.files.get_object(request).await
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        self.files.head_object(request).await
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        self.files.delete_object(request).await
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        self.files.list_objects_v2(request).await
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let key = request.input.key.clone();
        let answer = self.files.create_multipart_upload(request).await?;
        if let Some(id) = &answer.output.upload_id {
            #[expect(clippy::disallowed_methods, reason = "a server has a clock of its own")]
            let begun = SystemTime::now();
            self.uploads().insert(id.clone(), Upload { key, begun });
            self.changed.notify_waiters();
        }
        Ok(answer)
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        self.files.upload_part(request).await
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let _writing = self.writing.lock().await;
        let id = request.input.upload_id.clone();
        let answer = self.files.complete_multipart_upload(request).await?;
        self.ended(&id);
        Ok(answer)
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let id = request.input.upload_id.clone();
        let answer = self.files.abort_multipart_upload(request).await?;
        self.ended(&id);
        Ok(answer)
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        let input = request.input;
        let prefix = input.prefix.clone().unwrap_or_default();
        let uploads = self.uploads();
        let listed = uploads.iter().filter(|(_, upload)| upload.key.starts_with(&prefix));
        let listed = listed.map(|(id, upload)| MultipartUpload {
            key: Some(upload.key.clone()),
            upload_id: Some(id.clone()),
            initiated: Some(upload.begun.into()),
            ..MultipartUpload::default()
        });
        Ok(S3Response::new(ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            prefix: input.prefix,
            is_truncated: Some(false),
            uploads: Some(listed.collect()),
            ..ListMultipartUploadsOutput::default()
        }))
    }
}
