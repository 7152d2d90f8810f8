//! CTF, the Compact Turn Format: a header that declares the schema, then one
//! row a turn, tab separated.
//!
//! ```text
//! #CTF v2 crc=be4ba255 turns=5 step=60 fields=by,content→A=user,Ana→R=assistant,Rob,gpt-4o
//! A 2024-05-01T10:00:00Z→Where do we meet?
//! R→At the station.\nPlatform 4.
//! A→Good!
//! A +15→When?
//! R 2024-05-02T08:30→Sorry, I was asleep.
//! ```
//!
//! (`→` is a tab here.) `docs/format-ctf.md` specifies the bytes. Version 2 is
//! written and read; version 1, which lost data, is read. Any turns in, the same
//! turns out: what cannot be read exactly is an error and never a skipped row.

mod escape;
mod header;
mod read;
mod stamp;
mod summaries;
mod v1;
mod write;

#[cfg(test)]
mod loss_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod sample_tests;

pub use summaries::{SummaryRow, encode_summaries};
pub use write::encode;

use crate::turn::RawTurn;

/// Decodes turns from CTF 1 or 2, by the header.
pub fn decode(text: &str) -> Result<Vec<RawTurn>, CtfError> {
    match header::version(text)? {
        header::Version::One => v1::decode_turns(text),
        header::Version::Two => read::decode_turns(text),
    }
}

/// Decodes summaries from CTF 1 or 2, by the header.
pub fn decode_summaries(text: &str) -> Result<Vec<SummaryRow>, CtfError> {
    match header::version(text)? {
        header::Version::One => v1::decode_summaries(text),
        header::Version::Two => summaries::decode(text),
    }
}

/// Why CTF text cannot be read. Rows are counted from 1, without the header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CtfError {
    #[error("not CTF: the text does not begin with `#CTF v`")]
    NotCtf,
    #[error("CTF version `{0}` is not known; this reader knows 1 and 2")]
    UnknownVersion(String),
    #[error("CTF header: {0}")]
    Header(String),
    /// Fewer rows than declared, or a last row without its end.
    #[error("CTF is truncated: the header declares {declared} rows, {found} are whole")]
    Truncated {
        /// Rows by the header.
        declared: u64,
        found: u64,
    },
    #[error("CTF has extra rows: the header declares {declared}, there are {found}")]
    ExtraRows {
        /// Rows by the header.
        declared: u64,
        found: u64,
    },
    #[error("CTF is damaged: its checksum is {found:08x} and the header says {declared:08x}")]
    Checksum { declared: u32, found: u32 },
    #[error("CTF row {row} has {found} cells instead of {expected}")]
    Columns {
        row: u64,
        /// Cells by the header.
        expected: usize,
        found: usize,
    },
    #[error("CTF row {row}: the header declares no speaker `{code}`")]
    UnknownCode { row: u64, code: String },
    #[error("CTF row {row}: `{escape}` in `{field}` is not an escape")]
    Escape {
        row: u64,
        field: &'static str,
        /// The backslash and what follows.
        escape: String,
    },
    /// A cell whose value is not one of its kind.
    #[error("CTF row {row}: `{field}`: {reason}")]
    Value { row: u64, field: &'static str, reason: String },
}
