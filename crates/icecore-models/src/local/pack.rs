//! A model in one file, `.hmsemb`: header, tokenizer, tensors.
//!
//! ```text
//! "HMSEMB01" | header length u64 | header, JSON | tokenizer, JSON | tensors one after the other
//! ```
//!
//! A tensor of bytes is its int8 values, then an f32 for each group of them to
//! be multiplied by.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::LocalModelError;
use super::manifest::{Kind, Manifest, Pooling, plain_name};

const MAGIC: &[u8] = b"HMSEMB01";

/// A pack's parts, found but not yet read.
pub(super) struct Pack<'a> {
    header: Header,
    tokenizer: &'a [u8],
    tensors: BTreeMap<String, (Entry, &'a [u8])>,
}

#[derive(Deserialize)]
struct Header {
    format: u32,
    meta: Meta,
    arch: Sizes,
    tokenizer_len: usize,
    tensors: Vec<Entry>,
}

#[derive(Deserialize)]
struct Meta {
    model: String,
    pooling: String,
    #[serde(default)]
    query_prefix: String,
    #[serde(default)]
    passage_prefix: String,
    max_length: usize,
}

#[derive(Deserialize)]
struct Sizes {
    hidden: usize,
    layers: usize,
    heads: usize,
    intermediate: usize,
    vocab: usize,
    max_positions: usize,
    type_vocab: usize,
    layer_norm_eps: f32,
    position_offset: usize,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    dtype: String,
    shape: Vec<usize>,
    len: usize,
    group: usize,
}

impl<'a> Pack<'a> {
    /// Finds the parts of a pack.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, LocalModelError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| wrong("this is no .hmsemb file"))?;
        let (length, rest) =
            rest.split_first_chunk::<8>().ok_or_else(|| wrong("it is cut short"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (header, mut rest) = cut(rest, length)?;
        let mut header: Header =
            serde_json::from_slice(header).map_err(|error| wrong(&error.to_string()))?;
        let tokenizer;
        (tokenizer, rest) = cut(rest, header.tokenizer_len)?;
        let mut tensors = BTreeMap::new();
        for entry in std::mem::take(&mut header.tensors) {
            let bytes;
            (bytes, rest) = cut(rest, entry.len)?;
            tensors.insert(entry.name.clone(), (entry, bytes));
        }
        Ok(Self { header, tokenizer, tensors })
    }

    /// The tokenizer's own JSON.
    pub(super) fn tokenizer(&self) -> &'a [u8] {
        self.tokenizer
    }

    /// What the header says, as far as it can be run.
    pub(super) fn manifest(&self, name: Option<&str>) -> Result<Manifest, LocalModelError> {
        let Header { format, meta, arch, .. } = &self.header;
        let unsupported = |what: &str| LocalModelError::Unsupported { what: what.to_owned() };
        if *format != 1 {
            return Err(unsupported(&format!("format {format} of .hmsemb")));
        }
        if !meta.query_prefix.is_empty() || !meta.passage_prefix.is_empty() {
            return Err(unsupported("a prefix to every text"));
        }
        let pooling = match meta.pooling.as_str() {
            "cls" => Pooling::First,
            "mean" => Pooling::Mean,
            other => return Err(unsupported(&format!("pooling by `{other}`"))),
        };
        let own = meta.model.rsplit('/').next().unwrap_or_default();
        let manifest = Manifest {
            format: Manifest::FORMAT,
            kind: Kind::Pack,
            name: plain_name(name.unwrap_or(own)),
            dims: arch.hidden,
            inner: arch.intermediate,
            layers: arch.layers,
            heads: arch.heads,
            vocab: arch.vocab,
            positions: arch.max_positions,
            first_position: arch.position_offset,
            segments: arch.type_vocab,
            layer_norm_eps: arch.layer_norm_eps,
            max_tokens: meta
                .max_length
                .min(arch.max_positions.saturating_sub(arch.position_offset)),
            pooling,
            weights_sha256: String::new(),
            vocabulary_sha256: String::new(),
        };
        manifest.check()?;
        Ok(manifest)
    }

    /// The numbers of a tensor, which must have this shape.
    pub(super) fn get(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, LocalModelError> {
        let (entry, bytes) =
            self.tensors.get(name).ok_or_else(|| wrong(&format!("`{name}` is missing")))?;
        if entry.shape != shape {
            let found = &entry.shape;
            return Err(wrong(&format!("`{name}` has the shape {found:?} instead of {shape:?}")));
        }
        let count = shape.iter().product();
        let numbers = match entry.dtype.as_str() {
            "f32" => floats(bytes),
            "i8" if entry.group > 0 && bytes.len() >= count => stretched(bytes, count, entry.group),
            other => return Err(wrong(&format!("`{name}` is of the unknown type {other}"))),
        };
        if numbers.len() != count || numbers.iter().any(|number| !number.is_finite()) {
            return Err(wrong(&format!("`{name}` has another size, or what is no number")));
        }
        Ok(numbers)
    }
}

/// Bytes times the size of their group.
fn stretched(bytes: &[u8], count: usize, group: usize) -> Vec<f32> {
    let (values, sizes) = bytes.split_at(count);
    values
        .chunks(group)
        .zip(floats(sizes))
        .flat_map(|(values, size)| {
            values.iter().map(move |byte| f32::from(byte.cast_signed()) * size)
        })
        .collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|float| f32::from_le_bytes(*float)).collect()
}

fn cut(bytes: &[u8], length: usize) -> Result<(&[u8], &[u8]), LocalModelError> {
    bytes.split_at_checked(length).ok_or_else(|| wrong("it is cut short"))
}

fn wrong(reason: &str) -> LocalModelError {
    LocalModelError::Weights { reason: reason.to_owned() }
}

#[cfg(test)]
#[path = "pack_tests.rs"]
mod tests;
