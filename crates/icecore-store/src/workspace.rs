//! Files of a workspace, as they cross the store's contract.

use icecore_domain::ids::Position;
use icecore_domain::redact::{Hidden, RedactedText};
use icecore_domain::time::Millis;
use icecore_domain::workspace::FilePath;
use sha2::{Digest, Sha256};

use crate::store::Claim;

/// What must be there for a file to be written or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Whatever is.
    Anything,
    /// Some version.
    Present,
    /// Nothing.
    Absent,
    /// The version that was written at this position, as the last.
    At(Position),
    /// What was read when so many times dreams of the tenant had been lost, and nothing
    /// lost since: the version at this position, or none.
    Unlost {
        /// The last version's position.
        last: Option<Position>,
        /// [`Store::dream_losses`](crate::Store::dream_losses), read before all else.
        losses: u64,
    },
}

impl Expect {
    /// Whether this holds of the last version's position, so many losses of dreams later.
    pub(crate) fn holds(self, last: Option<Position>, lost: u64) -> bool {
        match self {
            Expect::Anything => true,
            Expect::Present => last.is_some(),
            Expect::Absent => last.is_none(),
            Expect::At(position) => last == Some(position),
            Expect::Unlost { last: read, losses } => last == read && lost == losses,
        }
    }
}

/// A file to write.
#[derive(Debug, Clone)]
pub struct NewFile {
    /// Where.
    pub path: FilePath,
    /// What it holds.
    pub content: RedactedText,
    /// Of which media type.
    pub content_type: RedactedText,
    /// What must be there.
    pub expect: Expect,
    /// So many versions are kept, this one among them; at least 1.
    pub versions_kept: u64,
    /// So many files a workspace may have.
    pub most_files: u64,
    /// Now.
    pub now: Millis,
    /// The version of the tenant's secrets with which its text was redacted.
    pub secrets_seen: u64,
    /// What was hidden in it.
    pub hidden: Hidden,
    /// The caller's key, whose outcome is kept in the same step.
    pub claim: Option<Claim<FileRecord>>,
}

/// A version of a file, without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHead {
    /// Where.
    pub path: FilePath,
    /// Which version: 1 for the first, also after the path's file was deleted.
    pub version: u64,
    /// Of which media type.
    pub content_type: RedactedText,
    /// SHA-256 of the content.
    pub digest: [u8; 32],
    /// Where in the log it was written. No two versions share one.
    pub position: Position,
    /// When it was written.
    pub updated_at: Millis,
}

/// A version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRecord {
    /// All but its content.
    pub head: FileHead,
    /// What it holds.
    pub content: RedactedText,
}

/// SHA-256 of a file's content.
pub(crate) fn digest(content: &str) -> [u8; 32] {
    Sha256::digest(content.as_bytes()).into()
}

/// The payload of `workspace.updated`, which holds nothing else.
pub(crate) fn updated(path: &str, version: u64) -> String {
    serde_json::json!({ "path": path, "version": version }).to_string()
}

/// What a path becomes that turns out to hold a secret: the first such name that
/// is not `taken`.
pub(crate) fn renamed(mut is_taken: impl FnMut(&str) -> bool) -> String {
    let mut number = 1_u64;
    loop {
        let name = format!("redacted-{number}");
        if !is_taken(&name) {
            return name;
        }
        number += 1;
    }
}
