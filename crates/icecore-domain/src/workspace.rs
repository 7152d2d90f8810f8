//! Workspace files: whose they are, and what their paths may be.

use std::fmt;

use crate::ids::{DEFAULT_WORKSPACE, Principal, Scope, Tenant};
use crate::redact::RedactedText;

/// A path is at most this long.
pub const MAX_PATH_BYTES: usize = 256;

/// A content type is at most this long.
pub const MAX_CONTENT_TYPE_BYTES: usize = 127;

/// The content type of a file whose writer names none.
pub const DEFAULT_CONTENT_TYPE: &str = "text/markdown";

/// A tenant's set of files. Comes only from a [`Principal`], or from a [`Scope`], which
/// comes from one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workspace {
    tenant: Tenant,
    name: String,
}

impl Workspace {
    /// The workspace of a credential that names none.
    pub const DEFAULT: &str = DEFAULT_WORKSPACE;

    /// Whose files.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Which of the tenant's workspaces.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Principal {
    /// The workspace that this principal works in. A key has a tenant and no more for
    /// now, so that its holder works in the tenant's default one.
    pub fn workspace(&self) -> Workspace {
        Workspace { tenant: self.tenant().clone(), name: self.workspace_name().to_owned() }
    }
}

impl Scope {
    /// The default workspace of the scope's tenant, where the index of its memories is.
    pub fn workspace(&self) -> Workspace {
        Workspace { tenant: self.tenant().clone(), name: Workspace::DEFAULT.to_owned() }
    }
}

/// Why a path cannot be one. The path is not repeated: it may hold anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    #[error("a file needs a path, and the one given is empty")]
    Empty,
    #[error("a file's path is at most {MAX_PATH_BYTES} bytes, this one has {bytes}")]
    TooLong { bytes: usize },
    /// A first character that is neither a letter nor a digit.
    #[error("a file's path begins with an ASCII letter or digit")]
    Start,
    #[error("a file's path has only ASCII letters, digits, `.`, `_`, `-` and `/`")]
    Character,
    /// A segment that is empty, `.` or `..`.
    #[error("a file's path has no segment that is empty, `.` or `..`")]
    Segment,
}

/// Checks the rules that every path obeys. What passes has one spelling, stays
/// below the workspace and is the same in a URL.
pub fn check_path(path: &str) -> Result<(), PathError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    match path.as_bytes().first() {
        None => return Err(PathError::Empty),
        Some(_) if path.len() > MAX_PATH_BYTES => {
            return Err(PathError::TooLong { bytes: path.len() });
        }
        Some(first) if !first.is_ascii_alphanumeric() => return Err(PathError::Start),
        Some(_) if !path.bytes().all(is_allowed) => return Err(PathError::Character),
        Some(_) => {}
    }
    if path.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        Err(PathError::Segment)
    } else {
        Ok(())
    }
}

/// Whether this is a media type, parameters included.
pub fn is_content_type(text: &str) -> bool {
    let essence = text.split(';').next().unwrap_or_default().trim_end();
    let is_token = |part: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte);
        !part.is_empty() && part.bytes().all(is_allowed)
    };
    let is_visible = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    text.len() <= MAX_CONTENT_TYPE_BYTES
        && text.bytes().all(is_visible)
        && essence.split_once('/').is_some_and(|(kind, sub)| is_token(kind) && is_token(sub))
}

/// The path of a file in its workspace. It has been through the redactor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(String);

impl FilePath {
    /// A path that keeps the rules of [`check_path`].
    pub fn new(path: RedactedText) -> Result<Self, PathError> {
        check_path(path.as_str())?;
        Ok(Self(path.into_string()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_keep_their_rules() {
        for path in ["a", "9", "README.md", "a/b/c.d", "a..b/c", "behavior/CRUD.md", "a-_.b"] {
            assert_eq!(check_path(path), Ok(()), "{path}");
        }
        assert_eq!(check_path(&"a".repeat(MAX_PATH_BYTES)), Ok(()));
        let check = |path: &str, expected| assert_eq!(check_path(path), Err(expected), "{path}");
        check("", PathError::Empty);
        check(&"a".repeat(257), PathError::TooLong { bytes: 257 });
        for path in ["/etc/passwd", ".hidden", "..", "../x", "-a", "%2e%2e/x", "ü", "\0"] {
            check(path, PathError::Start);
        }
        for path in ["a b", "a\\..\\b", "a\0.md", "a%2fb", "aü", "a\n", "a:b", "a?b"] {
            check(path, PathError::Character);
        }
        for path in ["a/../b", "a/..", "a//b", "a/", "a/./b", "a/."] {
            check(path, PathError::Segment);
        }
    }

    #[test]
    fn content_types_are_media_types() {
        let yes = ["text/markdown", "application/json", "text/plain; charset=utf-8", "a/b+c"];
        yes.iter().for_each(|text| assert!(is_content_type(text), "{text}"));
        let long = format!("text/{}", "x".repeat(MAX_CONTENT_TYPE_BYTES));
        let no = ["", "text", "/", "text/", "/x", "te xt/x", "text/pl\nain", "text/x;\0", &long];
        no.iter().for_each(|text| assert!(!is_content_type(text), "{text}"));
    }

    proptest! {
        /// What is accepted cannot lead out of a directory or be read in two ways.
        #[test]
        fn an_accepted_path_stays_below(path in "[a-c./%\\\\ -]{0,12}") {
            if check_path(&path).is_ok() {
                let parts = std::path::Path::new(&path).components();
                let only_names = |part| matches!(part, std::path::Component::Normal(_));
                let rebuilt: std::path::PathBuf = parts.clone().collect();
                prop_assert!(parts.into_iter().all(only_names));
                prop_assert_eq!(rebuilt.to_str(), Some(path.as_str()));
            }
        }
    }
}
