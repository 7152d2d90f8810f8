//! The client of a server that speaks S3.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use icecore_domain::time::Millis;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use object_store::path::Path as Location;
use object_store::signer::{SignedUrlOptions, Signer};
use object_store::{BackoffConfig, ClientOptions, Error, HeaderValue, RetryConfig};
use reqwest::Method;
use serde::Deserialize;

use crate::error::StoreError;
use crate::objects::{ObjectKeys, ObjectSettings};

/// The first pause before a request is tried again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long a signature that is used at once is good for.
const SIGNED: Duration = Duration::from_secs(300);

/// Uploads that are listed at once, as S3 has it.
const UPLOADS_A_PAGE: usize = 1_000;

/// A bucket.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    pub(super) s3: Arc<AmazonS3>,
    http: reqwest::Client,
}

/// An upload in parts that was begun and neither ended nor given up.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Unfinished {
    /// What the object was to be called.
    pub(super) key: String,
    /// What the upload is called.
    pub(super) upload_id: String,
    initiated: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listing {
    #[serde(default)]
    upload: Vec<Unfinished>,
    #[serde(default)]
    is_truncated: bool,
    #[serde(default)]
    next_key_marker: String,
    #[serde(default)]
    next_upload_id_marker: String,
}

impl Bucket {
    /// A client of the bucket; nothing is asked yet.
    pub(super) fn connect(
        settings: &ObjectSettings,
        keys: &ObjectKeys,
        bucket: &str,
    ) -> Result<Self, StoreError> {
        let refused = |reason: String| StoreError::ObjectsUrl { url: settings.url.clone(), reason };
        let http = client(settings).map_err(refused)?;
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(&settings.region)
            .with_access_key_id(&keys.id)
            .with_secret_access_key(keys.secret.as_str())
            .with_allow_http(settings.allow_http)
            .with_virtual_hosted_style_request(!settings.path_style)
            // Not every server has what deletes many at once, and we delete one.
            .with_disable_bulk_delete(true)
            .with_disable_tagging(true)
            .with_retry(retry(settings))
            .with_http_connector(Line(http.clone()));
        if let Some(token) = &keys.token {
            builder = builder.with_token(token.as_str());
        }
        if !settings.endpoint.is_empty() {
            builder = builder.with_endpoint(endpoint(settings, bucket));
        }
        let s3 = builder.build().map_err(|error| refused(error.to_string()))?;
        Ok(Self { s3: Arc::new(s3), http })
    }

    /// All unfinished uploads of objects below `base`, or none where the server cannot
    /// list them.
    pub(super) async fn unfinished(&self, base: &Location) -> Result<Vec<Unfinished>, Error> {
        let mut found = Vec::new();
        let (mut key, mut id) = (String::new(), String::new());
        loop {
            let Some(page) = self.uploads_after(base, &key, &id).await? else { break };
            found.extend(page.upload);
            let is_last = !page.is_truncated || page.next_key_marker == key;
            (key, id) = (page.next_key_marker, page.next_upload_id_marker);
            if is_last {
                break;
            }
        }
        Ok(found)
    }

    async fn uploads_after(
        &self,
        base: &Location,
        key: &str,
        id: &str,
    ) -> Result<Option<Listing>, Error> {
        let mut query = vec![
            ("uploads", String::new()),
            ("prefix", format!("{base}/")),
            ("max-uploads", UPLOADS_A_PAGE.to_string()),
        ];
        if !key.is_empty() {
            query.push(("key-marker", key.to_owned()));
            query.push(("upload-id-marker", id.to_owned()));
        }
        let options = SignedUrlOptions::default().with_query(query);
        let url =
            self.s3.signed_url_opts(Method::GET, &Location::default(), SIGNED, &options).await?;
        let answer = async { self.http.get(url).send().await?.error_for_status()?.bytes().await };
        match answer.await {
            Ok(page) => quick_xml::de::from_reader(page.as_ref())
                .map(Some)
                .map_err(|error| Error::Generic { store: "S3", source: Box::new(error) }),
            Err(error) if error.status().is_some_and(is_unknown) => {
                tracing::debug!("the object storage does not list unfinished uploads");
                Ok(None)
            }
            // Its address is signed and must not be told.
            Err(error) => {
                let source = HttpError::new(HttpErrorKind::Unknown, error.without_url());
                Err(Error::Generic { store: "S3", source: Box::new(source) })
            }
        }
    }
}

/// Whether a server says that it does not know what it was asked for.
fn is_unknown(status: reqwest::StatusCode) -> bool {
    [400, 404, 405, 501].contains(&status.as_u16())
}

impl Unfinished {
    /// Whether it was begun at least `min_age` ago. What is from the future is young.
    pub(super) fn is_older_than(&self, min_age: Duration) -> bool {
        let begun = Millis::parse_rfc3339(&self.initiated).ok();
        let begun = begun.and_then(|at| u64::try_from(at.0).ok()).map(Duration::from_millis);
        let age = begun.map(|since| (SystemTime::UNIX_EPOCH + since).elapsed());
        matches!(age, Some(Ok(age)) if age >= min_age)
    }
}

/// Where the bucket is asked for.
fn endpoint(settings: &ObjectSettings, bucket: &str) -> String {
    let given = settings.endpoint.trim_end_matches('/');
    match given.split_once("://") {
        Some((scheme, host)) if !settings.path_style => format!("{scheme}://{bucket}.{host}"),
        _ => given.to_owned(),
    }
}

fn client(settings: &ObjectSettings) -> Result<reqwest::Client, String> {
    let builder = icecore_http::builder(&settings.endpoint)?
        .http1_only()
        .https_only(!settings.allow_http)
        .connect_timeout(Duration::from_secs(settings.connect_seconds))
        .timeout(Duration::from_secs(settings.request_seconds));
    icecore_http::build(builder)
}

/// The client tries again what no answer came to, and what a server says is busy or broken.
fn retry(settings: &ObjectSettings) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { init_backoff: FIRST_PAUSE, max_backoff: LONGEST_PAUSE, base: 2.0 },
        // Time is the bound.
        max_retries: 1_000,
        retry_timeout: Duration::from_secs(settings.retry_seconds),
    }
}

/// The line to the server.
#[derive(Debug, Clone)]
struct Line(reqwest::Client);

impl HttpConnector for Line {
    fn connect(&self, _: &ClientOptions) -> Result<HttpClient, Error> {
        Ok(HttpClient::new(self.clone()))
    }
}

/// The client would not repeat a request that may have been carried out, nor one whose answer
/// was cut short. All of ours can be repeated, so each of these is reported as not sent.
#[async_trait]
impl HttpService for Line {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if ends_upload(&request) {
            request.headers_mut().insert("if-none-match", HeaderValue::from_static("*"));
        }
        let not_sent = |error| HttpError::new(HttpErrorKind::Request, error);
        let (head, body) = self.0.call(request).await.map_err(not_sent)?.into_parts();
        let body = body.bytes().await.map_err(not_sent)?;
        Ok(HttpResponse::from_parts(head, body.into()))
    }
}

/// Whether a request puts the parts of an upload together. As everything of ours is
/// written once, that too must find nothing there.
fn ends_upload(request: &HttpRequest) -> bool {
    let query = request.uri().query().unwrap_or_default();
    *request.method() == Method::POST && query.split('&').any(|part| part.starts_with("uploadId="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_uploads_is_read() {
        let page: Listing = quick_xml::de::from_str(
            "<?xml version=\"1.0\"?><ListMultipartUploadsResult><Bucket>b</Bucket>\
             <IsTruncated>true</IsTruncated><NextKeyMarker>p/k</NextKeyMarker>\
             <NextUploadIdMarker>2</NextUploadIdMarker>\
             <Upload><Key>p/j</Key><UploadId>1</UploadId><StorageClass>STANDARD</StorageClass>\
             <Initiated>2010-11-10T20:48:33.000Z</Initiated></Upload>\
             <CommonPrefixes><Prefix>x</Prefix></CommonPrefixes>\
             <Upload><Key>p/k</Key><UploadId>2</UploadId>\
             <Initiated>3010-11-10T20:48:33Z</Initiated></Upload>\
             </ListMultipartUploadsResult>",
        )
        .unwrap();
        assert!(page.is_truncated);
        assert_eq!((page.next_key_marker, page.next_upload_id_marker), ("p/k".into(), "2".into()));
        let ages: Vec<bool> =
            page.upload.iter().map(|upload| upload.is_older_than(Duration::ZERO)).collect();
        assert_eq!(ages, [true, false]);
        assert_eq!((&*page.upload[1].key, &*page.upload[1].upload_id), ("p/k", "2"));
        let empty: Listing = quick_xml::de::from_str("<ListMultipartUploadsResult/>").unwrap();
        assert!(empty.upload.is_empty() && !empty.is_truncated);
    }

    #[test]
    fn the_bucket_is_in_the_path_or_in_the_hosts_name() {
        let of = |endpoint: &str, path_style| ObjectSettings {
            endpoint: endpoint.to_owned(),
            path_style,
            ..ObjectSettings::default()
        };
        assert_eq!(endpoint(&of("https://h:9/", true), "b"), "https://h:9");
        assert_eq!(endpoint(&of("https://h:9/", false), "b"), "https://b.h:9");
    }
}
