//! An archive: a distillate with what it was made of, as canonical JSON (RFC 8785),
//! addressed by the SHA-256 of its bytes. `docs/format-archive.md` describes it.

use std::fmt;

use super::{Distillate, Source, SourceKind};

/// The address of an archive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checksum(pub [u8; 32]);

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Checksum {
    /// That of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// Reads 64 hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| (pair[at] as char).to_digit(16);
            *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
        }
        Some(Self(bytes))
    }
}

/// A source as an archive names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveSource {
    /// What it is.
    pub kind: SourceKind,
    /// [`Source::hash`], or the checksum of an earlier archive.
    pub hash: [u8; 32],
}

/// An archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archive {
    /// The budget that it was made under.
    pub budget: u64,
    /// What made it, for example [`super::EXTRACTIVE`].
    pub distiller: String,
    /// What counted its tokens, for example `o200k_base`.
    pub tokenizer: String,
    /// What it was made of, in the order of [`in_order`].
    pub sources: Vec<ArchiveSource>,
    /// What it says.
    pub distillate: Distillate,
}

/// Why bytes are no archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is no archive: {0}")]
pub struct ArchiveError(pub String);

impl Archive {
    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        todo!()
    }

    /// Reads it back; bytes that [`Archive::to_bytes`] would not give are refused.
    pub fn parse(bytes: &[u8]) -> Result<Self, ArchiveError> {
        let _ = bytes;
        todo!()
    }
}

/// Puts sources into the order of an archive's list, which does not depend on the order
/// in which they came: earlier archives, then entries by hash, then what was said by
/// session and `seq`.
pub fn in_order(sources: &mut [Source]) {
    sources.sort_by_cached_key(|source| {
        let of_session = !matches!(source.kind, SourceKind::Archive | SourceKind::Entry);
        let rank = match source.kind {
            SourceKind::Archive => 0,
            SourceKind::Entry => 1,
            _ => 2,
        };
        let place = of_session.then(|| (source.session.clone(), source.seq));
        (rank, place, source.hash())
    });
}
