//! The file of a static model: read, checked, and taken apart.
//!
//! `docs/format-model.md` specifies it:
//!
//! ```text
//! "ICEMODEL" | version u32 | header length u32 | header, JSON
//! | vocabulary, a piece a line | weights, u16 each | rows, i8 each | SHA-256
//! ```

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

const MAGIC: &[u8] = b"ICEMODEL";
const VERSION: u32 = 1;
const DIGEST_BYTES: usize = 32;
/// Magic, version and the header's length.
const PREAMBLE_BYTES: usize = 16;
/// So that sums of many pieces stay small.
const MAX_WEIGHT: u16 = 32_767;
/// A file that claims more is damaged, not large.
const MAX_DIMS: usize = 4096;

/// Why a model's file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelFileError {
    #[error("cannot read the model file {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("this is not a model file")]
    Foreign,
    #[error("the model file has format {found}, this reads {VERSION}")]
    Version { found: u32 },
    #[error("the model file is cut short: {found_bytes} of {needed_bytes} bytes")]
    Truncated {
        /// Bytes its header promises.
        needed_bytes: usize,
        found_bytes: usize,
    },
    #[error("the model file is damaged: its checksum does not match")]
    Damaged,
    /// Its header does not describe a model that this code can run.
    #[error("the model file's header is wrong: {reason}")]
    Header { reason: String },
    #[error("the model file has a weight over {MAX_WEIGHT}")]
    Weight,
}

/// A model's bytes, with the places of their parts.
pub(crate) struct ModelFile {
    bytes: Cow<'static, [u8]>,
    vocabulary: Range<usize>,
    weights: Range<usize>,
    rows: Range<usize>,
    pub(crate) header: Header,
}

/// What the header says; keys it does not know are for people.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Header {
    pub(crate) name: String,
    kind: String,
    lowercase: bool,
    pub(crate) vocab: usize,
    pub(crate) dims: usize,
    vocab_bytes: usize,
    pub(crate) max_tokens: usize,
    pub(crate) max_word_chars: usize,
}

impl ModelFile {
    /// Reads and checks the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, ModelFileError> {
        let bytes = std::fs::read(path)
            .map_err(|source| ModelFileError::Read { path: path.to_owned(), source })?;
        Self::checked(Cow::Owned(bytes))
    }

    /// Takes bytes from anywhere, and checks them to the last.
    pub(crate) fn checked(bytes: Cow<'static, [u8]>) -> Result<Self, ModelFileError> {
        let file = Self::trusted(bytes)?;
        file.verify()?;
        Ok(file)
    }

    /// Takes bytes that are known to be whole, such as those of this program:
    /// lengths are checked, the checksum is not.
    pub(crate) fn trusted(bytes: Cow<'static, [u8]>) -> Result<Self, ModelFileError> {
        let head = header_range(&bytes)?;
        let header: Header = serde_json::from_slice(&bytes[head.clone()])
            .map_err(|error| ModelFileError::Header { reason: error.to_string() })?;
        header.check()?;

        let vocabulary = head.end..end(head.end, header.vocab_bytes, 1)?;
        let weights = vocabulary.end..end(vocabulary.end, header.vocab, 2)?;
        let rows = weights.end..end(weights.end, header.vocab, header.dims)?;
        let needed_bytes = end(rows.end, DIGEST_BYTES, 1)?;
        if bytes.len() < needed_bytes {
            return Err(ModelFileError::Truncated { needed_bytes, found_bytes: bytes.len() });
        }
        if bytes.len() > needed_bytes {
            return Err(ModelFileError::Damaged);
        }
        Ok(Self { bytes, vocabulary, weights, rows, header })
    }

    /// Whether the bytes are those that were written, and may be.
    pub(crate) fn verify(&self) -> Result<(), ModelFileError> {
        let (body, digest) = self.bytes.split_at(self.rows.end);
        if Sha256::digest(body).as_slice() != digest {
            return Err(ModelFileError::Damaged);
        }
        if (0..self.header.vocab).any(|piece| self.weight(piece) > MAX_WEIGHT) {
            return Err(ModelFileError::Weight);
        }
        Ok(())
    }

    /// The checksum, which is the model's identity.
    pub(crate) fn digest(&self) -> [u8; DIGEST_BYTES] {
        let mut digest = [0; DIGEST_BYTES];
        digest.copy_from_slice(&self.bytes[self.rows.end..]);
        digest
    }

    /// One piece a line.
    pub(crate) fn vocabulary(&self) -> &[u8] {
        &self.bytes[self.vocabulary.clone()]
    }

    /// How much the piece counts. Panics on a number that is no piece.
    pub(crate) fn weight(&self, piece: usize) -> u16 {
        let weights = &self.bytes[self.weights.clone()];
        u16::from_le_bytes([weights[2 * piece], weights[2 * piece + 1]])
    }

    /// The piece's row, a byte for each signed component. Panics on a number
    /// that is no piece.
    pub(crate) fn row(&self, piece: usize) -> &[u8] {
        let rows = &self.bytes[self.rows.clone()];
        &rows[piece * self.header.dims..(piece + 1) * self.header.dims]
    }
}

impl Header {
    fn check(&self) -> Result<(), ModelFileError> {
        let wrong = |reason: &str| Err(ModelFileError::Header { reason: reason.to_owned() });
        if self.kind != "static" {
            return wrong("`kind` is not `static`");
        }
        if !self.lowercase {
            return wrong("`lowercase` is not true");
        }
        if self.dims == 0 || self.dims > MAX_DIMS {
            return wrong("`dims` is out of range");
        }
        if self.vocab == 0 || self.max_tokens == 0 || self.max_word_chars == 0 {
            return wrong("a size is zero");
        }
        if self.name.is_empty() {
            return wrong("`name` is empty");
        }
        Ok(())
    }
}

/// Where the header lies, after the magic and the version.
fn header_range(bytes: &[u8]) -> Result<Range<usize>, ModelFileError> {
    if !bytes.starts_with(MAGIC) {
        return Err(ModelFileError::Foreign);
    }
    let cut_short =
        |needed_bytes| ModelFileError::Truncated { needed_bytes, found_bytes: bytes.len() };
    let preamble = bytes.get(..PREAMBLE_BYTES).ok_or(cut_short(PREAMBLE_BYTES))?;
    let number = |at: usize| {
        u32::from_le_bytes([preamble[at], preamble[at + 1], preamble[at + 2], preamble[at + 3]])
    };
    if number(8) != VERSION {
        return Err(ModelFileError::Version { found: number(8) });
    }
    let range = PREAMBLE_BYTES..PREAMBLE_BYTES.saturating_add(number(12) as usize);
    if bytes.len() < range.end { Err(cut_short(range.end)) } else { Ok(range) }
}

/// The end of `count` things of `size` bytes from `start`.
fn end(start: usize, count: usize, size: usize) -> Result<usize, ModelFileError> {
    count
        .checked_mul(size)
        .and_then(|bytes| bytes.checked_add(start))
        .filter(|end| u32::try_from(*end).is_ok())
        .ok_or_else(|| ModelFileError::Header { reason: "a size is out of range".to_owned() })
}
