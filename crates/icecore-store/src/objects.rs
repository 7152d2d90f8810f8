//! Where objects lie, by URL, and how that place is reached.
//!
//! ```text
//!                            beside the store, as files
//! file:///srv/objects        files elsewhere
//! s3://bucket/prefix         S3, or whatever speaks as it does
//! ```

use std::fmt;
use std::path::PathBuf;

use zeroize::Zeroizing;

/// Where packs and archives lie and what bounds getting there. The names are those of
/// the `[objects]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectSettings {
    /// `url`: the place; empty is files beside the store.
    pub url: String,
    /// `endpoint`: the server that speaks S3; empty is Amazon's of the region.
    pub endpoint: String,
    /// `region`: what requests are signed for.
    pub region: String,
    /// `allow_http`: whether the endpoint may be reached without TLS.
    pub allow_http: bool,
    /// `path_style`: the bucket is in the path; otherwise it is in the host's name.
    pub path_style: bool,
    /// `cache_bytes`: bytes of objects from elsewhere that are kept on this disk; 0 is none.
    pub cache_bytes: u64,
    /// `connect_seconds`: time to reach the server.
    pub connect_seconds: u64,
    /// `request_seconds`: time for one request and its answer.
    pub request_seconds: u64,
    /// `retry_seconds`: how long what fails is tried again; 0 tries once.
    pub retry_seconds: u64,
    /// `multipart_bytes`: an object of more than this is uploaded in parts.
    pub multipart_bytes: u64,
    /// `part_bytes`: bytes of a part.
    pub part_bytes: u64,
}

impl Default for ObjectSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            endpoint: String::new(),
            region: "us-east-1".to_owned(),
            allow_http: false,
            path_style: true,
            cache_bytes: 1 << 30,
            connect_seconds: 5,
            request_seconds: 30,
            retry_seconds: 20,
            multipart_bytes: 16 << 20,
            part_bytes: 8 << 20,
        }
    }
}

/// Who we are to the server.
#[derive(Clone)]
pub struct ObjectKeys {
    /// The name of the key.
    pub id: String,
    /// The key.
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

/// A place for objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObjectPlace {
    /// Files in the store's own directory.
    Beside,
    /// Files in a directory of their own.
    Directory(PathBuf),
    /// A bucket, and where in it.
    Bucket {
        /// Its name.
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
