//! What a commit says of itself: it travels in the text index's own commit, so
//! that words, columns and vectors change in one step.
//!
//! ```text
//! 1a2b3c4d {"format":1,"epoch":1,"position":2000,"summaries":20,"facts":3,"generation":2,
//!  "docs":2023,"columns":{"bytes":30345,"crc":1234},"rows_file":0,
//!  "rows":{"name":"static","hash":"…","dims":256,"docs":2023,"count":2019,"crc":5678}}
//! ```
//!
//! It is led by the checksum of the rest.

use icecore_domain::embed::ModelId;
use icecore_domain::ids::Position;
use serde::{Deserialize, Serialize};

use crate::watermark::Watermark;

/// Counts up whenever older files mean something else, which includes what
/// [`crate::analysis`] makes of a text.
pub(crate) const FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Payload {
    pub format: u32,
    pub epoch: u64,
    pub position: u64,
    pub summaries: u64,
    pub facts: u64,
    pub generation: u64,
    pub docs: usize,
    pub columns: Prefix,
    /// Which file of vectors is meant, by number; it changes when they begin anew.
    pub rows_file: u32,
    pub rows: Option<RowsPayload>,
}

/// How much of a file is trusted, and the checksum of that much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Prefix {
    pub bytes: u64,
    pub crc: u32,
}

impl Prefix {
    /// The prefix with `more` after it.
    pub fn then(self, more: &[u8]) -> Prefix {
        let mut hasher = crc32fast::Hasher::new_with_initial_len(self.crc, self.bytes);
        hasher.update(more);
        Prefix { bytes: self.bytes + more.len() as u64, crc: hasher.finalize() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RowsPayload {
    name: String,
    hash: String,
    dims: usize,
    /// Documents below this have their vectors.
    pub docs: usize,
    pub count: usize,
    pub crc: u32,
}

impl Payload {
    pub fn watermark(&self) -> Watermark {
        Watermark {
            epoch: self.epoch,
            position: Position(self.position),
            summaries: self.summaries,
            facts: self.facts,
        }
    }

    /// Reads what a commit said; `Err` says why it is of no use.
    pub fn parse(text: &str) -> Result<Payload, String> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let (crc, text) = text.split_once(' ').ok_or("the commit says nothing")?;
        if crc != checksum(text) {
            return Err("the commit's checksum is wrong".to_owned());
        }
        let version: Version = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if version.format != FORMAT {
            return Err(format!("format {} is not {FORMAT}", version.format));
        }
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// What [`parse`](Self::parse) reads.
    pub fn to_text(&self) -> String {
        let json = serde_json::to_string(self).unwrap_or_default();
        format!("{} {json}", checksum(&json))
    }
}

fn checksum(text: &str) -> String {
    format!("{:08x}", crc32fast::hash(text.as_bytes()))
}

impl RowsPayload {
    pub fn new(model: &ModelId, docs: usize, count: usize, crc: u32) -> Self {
        let ModelId { name, hash, dims } = model;
        Self { name: name.clone(), hash: hex::encode(hash), dims: *dims, docs, count, crc }
    }

    pub fn model(&self) -> Option<ModelId> {
        let mut hash = [0; 32];
        hex::decode_to_slice(&self.hash, &mut hash).ok()?;
        (self.dims > 0).then(|| ModelId { name: self.name.clone(), hash, dims: self.dims })
    }

    /// The trusted part of the file, given the bytes of one row.
    pub fn prefix(&self, stride: usize) -> Prefix {
        Prefix { bytes: (self.count * stride) as u64, crc: self.crc }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_reads_back_and_others_are_refused() {
        let model = ModelId { name: "m \"ö\"".to_owned(), hash: [7; 32], dims: 3 };
        let rows = RowsPayload::new(&model, 4, 5, 6);
        assert_eq!(rows.model(), Some(model));
        let payload = Payload {
            format: FORMAT,
            epoch: u64::MAX,
            position: 2,
            summaries: 3,
            facts: 4,
            generation: 5,
            docs: 6,
            columns: Prefix::default().then(b"abc").then(b"").then(b"def"),
            rows_file: 7,
            rows: Some(rows),
        };
        assert_eq!(payload.columns, Prefix::default().then(b"abcdef"));
        assert_eq!(Payload::parse(&payload.to_text()), Ok(payload.clone()));
        let future = Payload { format: FORMAT + 1, ..payload.clone() }.to_text();
        assert_eq!(Payload::parse(&future), Err("format 2 is not 1".to_owned()));
        let changed = payload.to_text().replace("\"docs\":6", "\"docs\":7");
        assert!(Payload::parse(&changed).is_err());
        assert!(Payload::parse("").is_err());
    }
}
