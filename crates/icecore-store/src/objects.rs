//! Where objects lie, by URL, and how that place is reached.
//!
//! ```text
//!                            beside the store, as files
//! file:///srv/objects        files elsewhere
//! s3://bucket/prefix         S3, or whatever speaks as it does
//! ```

use std::fmt;
use std::path::PathBuf;

use icecore_settings::{SettingError, settings};
use zeroize::Zeroizing;

settings! {
    /// Where packs and archives are stored, and limits on reaching that place.
    #[derive(PartialEq, Eq)]
    pub struct ObjectSettings {
        /// `s3://BUCKET/PREFIX` or `file:///DIRECTORY`; empty: files beside the store.
        url: String => env "ICECORE_OBJECTS";
        /// The server that speaks S3, such as `https://s3.example:9000`; empty: Amazon's of the
        /// region.
        endpoint: String => env "AWS_ENDPOINT_URL_S3" "AWS_ENDPOINT_URL";
        /// The region that requests are signed for.
        region: String = "us-east-1".to_owned() => env "AWS_REGION" "AWS_DEFAULT_REGION";
        /// Allows an endpoint without TLS.
        allow_http: bool = false;
        /// The bucket is in the path; `false`: in the host's name.
        path_style: bool = true;
        /// Disk space for copies of objects from elsewhere; 0: no copies.
        cache_bytes: u64 = 1 << 30;
        /// The longest that connecting may take.
        connect_seconds: u64 = 5, 1..=3_600 => advanced;
        /// The longest that one request and its answer may take.
        request_seconds: u64 = 30, 1..=3_600 => advanced;
        /// How long a failed request is retried; 0: not at all.
        retry_seconds: u64 = 20, 0..=3_600 => advanced;
        /// Larger objects are uploaded in parts. S3 takes parts of 5 MiB to 5 GiB.
        multipart_bytes: u64 = 16 << 20, 5 << 20..=5 << 30 => advanced;
        /// The size of a part.
        part_bytes: u64 = 8 << 20, 5 << 20..=5 << 30 => advanced;
    }
}

/// Who we are to the server.
#[derive(Clone)]
pub struct ObjectKeys {
    pub id: String,
    pub secret: Zeroizing<String>,
    /// What comes with a key for a short time.
    pub token: Option<Zeroizing<String>>,
}

/// Without what is secret.
impl fmt::Debug for ObjectKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectKeys").field("id", &self.id).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectPlace {
    /// Files in the store's own directory.
    Beside,
    /// Files in a directory of their own.
    Directory(PathBuf),
    /// A bucket, and where in it.
    Bucket {
        bucket: String,
        /// The segments that every name begins with.
        prefix: Vec<String>,
    },
}

impl ObjectSettings {
    /// The place, or what is wrong with how it is said.
    pub fn place(&self) -> Result<ObjectPlace, String> {
        let place = read_place(&self.url)?;
        if matches!(place, ObjectPlace::Bucket { .. }) {
            self.check_endpoint()?;
        }
        Ok(place)
    }

    /// Refuses a place that cannot be one.
    pub fn check(&self) -> Result<(), SettingError> {
        self.place().map(drop).map_err(|reason| {
            SettingError::conflict(
                format!("`objects.url` is no place for objects: {reason}"),
                "`url = \"s3://BUCKET/PREFIX\"`, `url = \"file:///DIRECTORY\"`, or leave it out",
            )
        })
    }

    fn check_endpoint(&self) -> Result<(), String> {
        if self.endpoint.is_empty() {
            return Ok(());
        }
        let address = url::Url::parse(&self.endpoint).ok().filter(is_bare);
        match address.as_ref().map(|address| address.scheme()) {
            Some("https") => Ok(()),
            Some("http") if self.allow_http => Ok(()),
            Some("http") => Err(format!(
                "its endpoint `{}` has no TLS, and `objects.allow_http` is not set",
                self.endpoint
            )),
            _ => {
                Err("its endpoint is not http:// or https:// with a host, and without credentials"
                    .to_owned())
            }
        }
    }
}

/// Whether an address says where, and neither who nor what.
fn is_bare(address: &url::Url) -> bool {
    let is_anonymous = address.username().is_empty() && address.password().is_none();
    is_anonymous && address.has_host() && address.query().is_none() && address.fragment().is_none()
}

fn read_place(url: &str) -> Result<ObjectPlace, String> {
    if url.is_empty() {
        return Ok(ObjectPlace::Beside);
    }
    let refused = || "it is neither file:///DIRECTORY nor s3://BUCKET/PREFIX".to_owned();
    let address = url::Url::parse(url).map_err(|_| refused())?;
    match address.scheme() {
        "file" => match address.to_file_path() {
            Ok(dir) if !address.has_host() => Ok(ObjectPlace::Directory(dir)),
            _ => Err("a directory is named by its whole path: file:///srv/objects".to_owned()),
        },
        "s3" if is_bare(&address) => Ok(ObjectPlace::Bucket {
            bucket: address.host_str().unwrap_or_default().to_owned(),
            prefix: prefix_of(&address)?,
        }),
        "s3" => Err("a bucket is named without credentials: s3://BUCKET/PREFIX".to_owned()),
        _ => Err(refused()),
    }
}

fn prefix_of(address: &url::Url) -> Result<Vec<String>, String> {
    let path = address.path();
    // What would be spelt in another way on the wire could be mistaken for another place.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    match path.chars().all(is_plain) {
        true => Ok(path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()),
        false => Err("its prefix has other than letters, digits, `-`, `_` and `.`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, expected: &str) {
        let settings = ObjectSettings { url: url.to_owned(), ..ObjectSettings::default() };
        let found = match settings.place() {
            Ok(ObjectPlace::Beside) => "beside".to_owned(),
            Ok(ObjectPlace::Directory(dir)) => format!("in {}", dir.display()),
            Ok(ObjectPlace::Bucket { bucket, prefix }) => format!("{bucket}: {}", prefix.join(" ")),
            Err(reason) => reason,
        };
        assert_eq!(found, expected, "{url}");
    }

    #[test]
    fn places_are_told_by_their_urls() {
        check("", "beside");
        check("file:///srv/my%20objects", "in /srv/my objects");
        check("s3://bucket", "bucket: ");
        check("s3://bucket/a/b/", "bucket: a b");
        let neither = "it is neither file:///DIRECTORY nor s3://BUCKET/PREFIX";
        check("/srv/objects", neither);
        check("gs://bucket", neither);
        check("file:srv", "in /srv");
        check("file://host/srv", "a directory is named by its whole path: file:///srv/objects");
        check("s3://", "a bucket is named without credentials: s3://BUCKET/PREFIX");
        check("s3://id:key@bucket", "a bucket is named without credentials: s3://BUCKET/PREFIX");
        check("s3://bucket?x=1", "a bucket is named without credentials: s3://BUCKET/PREFIX");
        check("s3://b/a%2Fb", "its prefix has other than letters, digits, `-`, `_` and `.`");
    }

    #[test]
    fn an_endpoint_without_tls_must_be_allowed() {
        let of = |endpoint: &str, allow_http| ObjectSettings {
            url: "s3://b".to_owned(),
            endpoint: endpoint.to_owned(),
            allow_http,
            ..ObjectSettings::default()
        };
        assert!(of("https://s3.example:9000", false).place().is_ok());
        assert!(of("http://127.0.0.1:9000", true).place().is_ok());
        let refused = of("http://127.0.0.1:9000", false).place().unwrap_err();
        assert!(refused.ends_with("`objects.allow_http` is not set"), "{refused}");
        for wrong in ["s3.example", "ftp://s3.example", "https://id:key@s3.example"] {
            let refused = of(wrong, true).place().unwrap_err();
            assert!(!refused.contains("key@"), "{refused}");
        }
        // It says nothing where there is no bucket.
        assert!(ObjectSettings { url: String::new(), ..of("nonsense", false) }.place().is_ok());
    }

    #[test]
    fn no_key_is_shown() {
        let secret = "a-key-of-tests";
        let key = || Zeroizing::new(secret.to_owned());
        let keys = ObjectKeys { id: "me".to_owned(), secret: key(), token: Some(key()) };
        let shown = format!("{keys:?}");
        assert!(shown.contains("me") && !shown.contains(secret), "{shown}");
    }
}
