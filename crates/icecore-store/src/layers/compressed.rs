//! Texts as they lie in columns: compressed, where that saves at least a tenth.

use std::cell::RefCell;

use icecore_domain::chunk::ChunkId;

use crate::engine::{Result, StoreError};

const COMPRESSION_LEVEL: i32 = 6;

/// No text in the store unpacks to more than this.
const MAX_TEXT_BYTES: usize = 256 << 20;

thread_local! {
    // Making a context costs more than using it on a few hundred bytes.
    static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> =
        RefCell::new(zstd::bulk::Compressor::new(COMPRESSION_LEVEL).ok());
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> =
        RefCell::new(zstd::bulk::Decompressor::new().ok());
}

/// The bytes to store, and whether they are compressed.
pub(super) fn compress(text: &str) -> (Vec<u8>, bool) {
    let text = text.as_bytes();
    let packed = COMPRESSOR.with_borrow_mut(|c| c.as_mut().and_then(|c| c.compress(text).ok()));
    match packed {
        Some(packed) if packed.len() * 10 <= text.len() * 9 => (packed, true),
        _ => (text.to_vec(), false),
    }
}

/// The text of a chunk from what [`compress`] returned.
pub(super) fn decompress(id: &ChunkId, bytes: Vec<u8>, is_compressed: bool) -> Result<String> {
    let bytes = if is_compressed { unpack(&bytes) } else { Ok(bytes) };
    bytes
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned()))
        .map_err(|reason| damaged(id, reason))
}

pub(super) fn damaged(id: &ChunkId, reason: impl ToString) -> StoreError {
    StoreError::BodyDamaged { chunk: id.to_string(), reason: reason.to_string() }
}

fn unpack(bytes: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let size = zstd::zstd_safe::get_frame_content_size(bytes).ok().flatten();
    let size = size.ok_or("it does not say how large it is")?;
    if size > MAX_TEXT_BYTES as u64 {
        return Err("it unpacks to more than 256 MiB".to_owned());
    }
    DECOMPRESSOR.with_borrow_mut(|d| match d {
        Some(d) => d.decompress(bytes, size as usize).map_err(|error| error.to_string()),
        None => Err("there is no memory to unpack it".to_owned()),
    })
}
