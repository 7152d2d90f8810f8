//! The pack: one immutable object with the bodies of a closed macro.
//!
//! Its bytes are specified in `docs/format-pack.md`: a plain header, frames of
//! members' texts, an index of the members, and a trailer that says where the
//! index is. Frames are compressed, and frames and index are encrypted one by
//! one under the pack's own key, with the header authenticated by each.

mod index;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use hmac::{Hmac, Mac};
use icecore_domain::chunk::ChunkId;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::error::StoreError;
use crate::keys::random_bytes;
use index::{FrameEntry, Index, MemberEntry};

/// The version that [`build`] writes.
pub const PACK_VERSION: u8 = 1;

/// A frame's text is at most this long. Nothing we write comes near; a pack that
/// says otherwise is refused before memory is taken for it.
pub const MAX_FRAME_BYTES: usize = 256 << 20;

/// A frame ends with the member that makes its text this long: enough to
/// compress well, little enough to open one micro quickly.
const FRAME_BYTES: usize = 64 << 10;

/// On 100 short turns level 12 gains 0.6% more at less than half the speed, and
/// level 15 gains 1.8% at a fifth.
const ZSTD_LEVEL: i32 = 8;

const MAGIC: &[u8; 7] = b"ICEPACK";
const END_MAGIC: &[u8; 4] = b"ICEP";
const HEADER_BYTES: usize = 36;
const TRAILER_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
const SALT_BYTES: usize = 16;
const KEY_CHECK_BYTES: usize = 4;

const SALT_LABEL: &[u8] = b"icecore pack v1 salt";
const KEY_CHECK_LABEL: &[u8] = b"icecore pack v1 key check";

/// A pack's own key. Destroying it destroys the pack. Wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct PackKey([u8; 32]);

impl std::fmt::Debug for PackKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PackKey(…)")
    }
}

/// One micro's body in a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackMember {
    pub id: ChunkId,
    pub format: TextFormat,
    pub text: String,
}

impl PackKey {
    pub fn random() -> Self {
        Self(random_bytes())
    }

    /// From what [`PackKey::as_bytes`] gave.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn keyed<const N: usize>(
        &self,
        label: &[u8],
        write: impl FnOnce(&mut Hmac<Sha256>),
    ) -> [u8; N] {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.0)
            .expect("HMAC takes keys of any length");
        mac.update(label);
        write(&mut mac);
        let hash: [u8; 32] = mac.finalize().into_bytes().into();
        *hash.first_chunk().expect("no more than a hash is asked for")
    }
}

/// The hash that tells what a pack holds, whatever compresses and encrypts it.
pub fn identity(members: &[PackMember]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for PackMember { id, format, text } in members {
        // The length keeps a text from passing for the next member's heading.
        hash.update(format!("{id} {} {}\n", format_word(*format), text.len()));
        hash.update(text);
    }
    hash.finalize().into()
}

fn format_word(format: TextFormat) -> &'static str {
    match format {
        TextFormat::Ctf => "ctf",
        TextFormat::Jsonl => "jsonl",
    }
}

/// The bytes of a pack of `members`. Equal members and keys give equal bytes.
///
/// # Panics
///
/// If a member's text is longer than [`MAX_FRAME_BYTES`], or there are so many
/// that 65,535 frames do not hold them.
pub fn build(members: &[PackMember], key: &PackKey) -> Vec<u8> {
    let frames: Vec<_> = group(members).into_iter().map(Frame::compress).collect();
    let index = Index {
        identity: identity(members),
        frames: frames.iter().map(Frame::entry).collect(),
        members: members.iter().map(MemberEntry::of).collect(),
    }
    .encode();
    let header = Header::new(&frames, &index, members.len(), key);
    let sealer = Sealer::new(&header, key);

    let mut pack = header.bytes.to_vec();
    for (number, frame) in frames.iter().enumerate() {
        pack.extend(sealer.seal(number, &[], &frame.compressed));
    }
    let trailer = trailer(index.len() + TAG_BYTES);
    pack.extend(sealer.seal(frames.len(), &trailer, &index));
    pack.extend(trailer);
    pack
}

/// Members in runs of about [`FRAME_BYTES`].
fn group(members: &[PackMember]) -> Vec<&[PackMember]> {
    let mut bytes = 0;
    members
        .chunk_by(|member, _| {
            bytes += member.text.len();
            let fits = bytes < FRAME_BYTES;
            if !fits {
                bytes = 0;
            }
            fits
        })
        .collect()
}

/// Some members' texts, compressed.
struct Frame {
    members: usize,
    compressed: Vec<u8>,
}

impl Frame {
    fn compress(members: &[PackMember]) -> Self {
        let text: String = members.iter().map(|member| member.text.as_str()).collect();
        assert!(text.len() <= MAX_FRAME_BYTES, "a micro of {} bytes", text.len());
        let compressed = zstd::bulk::compress(text.as_bytes(), ZSTD_LEVEL)
            .expect("compressing into memory does not fail");
        Self { members: members.len(), compressed }
    }

    fn entry(&self) -> FrameEntry {
        FrameEntry { members: self.members, sealed_bytes: self.compressed.len() + TAG_BYTES }
    }
}

/// The plain beginning of a pack.
struct Header {
    bytes: [u8; HEADER_BYTES],
    frames: usize,
    members: usize,
    key_check: [u8; KEY_CHECK_BYTES],
    salt: [u8; SALT_BYTES],
}

impl Header {
    fn new(frames: &[Frame], index: &[u8], members: usize, key: &PackKey) -> Self {
        let frame_count = u16::try_from(frames.len()).expect("at most 65,535 frames");
        let member_count = u32::try_from(members).expect("at most 2^32 members");
        // Depends on all that will be encrypted, so that even a key used twice
        // never meets the same nonce with another text.
        let salt = key.keyed(SALT_LABEL, |mac| {
            frames.iter().for_each(|frame| mac.update(&frame.compressed));
            mac.update(index);
        });
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(MAGIC);
        bytes.push(PACK_VERSION);
        bytes.extend([0; 2]);
        bytes.extend(frame_count.to_le_bytes());
        bytes.extend(member_count.to_le_bytes());
        bytes.extend(salt);
        let key_check = key_check(&bytes, key);
        bytes.extend(key_check);
        let bytes = bytes.try_into().expect("the fields are as long as the header");
        Self { bytes, frames: frames.len(), members, key_check, salt }
    }

    fn parse(pack: &[u8]) -> Result<Self, String> {
        let magic = &pack[..MAGIC.len().min(pack.len())];
        if !MAGIC.starts_with(magic) {
            return Err("it does not begin with the mark of a pack".into());
        }
        let Some((&bytes, _)) = pack.split_first_chunk::<HEADER_BYTES>() else {
            return Err(format!("it has {} bytes, less than the header of a pack", pack.len()));
        };
        let mut fields = Fields(&bytes[MAGIC.len()..]);
        let [version] = fields.take();
        if version != PACK_VERSION {
            return Err(format!("it has version {version}, and this program knows {PACK_VERSION}"));
        }
        let flags = u16::from_le_bytes(fields.take());
        if flags != 0 {
            return Err(format!("it has flags {flags:#06x}, which this program does not know"));
        }
        let frames = u16::from_le_bytes(fields.take()) as usize;
        let members = u32::from_le_bytes(fields.take()) as usize;
        let (salt, key_check) = (fields.take(), fields.take());
        Ok(Self { bytes, frames, members, key_check, salt })
    }

    /// Tells another key from a changed byte, mostly.
    fn check_key(&self, key: &PackKey) -> Result<(), String> {
        let ours: [u8; KEY_CHECK_BYTES] =
            key_check(&self.bytes[..HEADER_BYTES - KEY_CHECK_BYTES], key);
        match ours.ct_eq(&self.key_check).into() {
            true => Ok(()),
            false => Err("its header does not fit the key: one of them is wrong".into()),
        }
    }
}

fn key_check(header: &[u8], key: &PackKey) -> [u8; KEY_CHECK_BYTES] {
    key.keyed(KEY_CHECK_LABEL, |mac| mac.update(header))
}

/// Fixed fields, taken from the front of bytes that are known to be long enough.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("the header holds its fields");
        self.0 = rest;
        *field
    }
}

fn trailer(index_bytes: usize) -> [u8; TRAILER_BYTES] {
    let length = u32::try_from(index_bytes).expect("an index is far below 4 GiB");
    let mut trailer = [0; TRAILER_BYTES];
    trailer[..4].copy_from_slice(&length.to_le_bytes());
    trailer[4..].copy_from_slice(END_MAGIC);
    trailer
}

/// Encrypts and opens the parts of one pack; each part has its number.
struct Sealer<'a> {
    cipher: XChaCha20Poly1305,
    header: &'a Header,
}

impl<'a> Sealer<'a> {
    fn new(header: &'a Header, key: &PackKey) -> Self {
        Self { cipher: XChaCha20Poly1305::new((&key.0).into()), header }
    }

    fn seal(&self, number: usize, also: &[u8], plain: &[u8]) -> Vec<u8> {
        self.cipher
            .encrypt(&self.nonce(number).into(), Payload { msg: plain, aad: &self.bound(also) })
            .expect("a frame is within the cipher's limit")
    }

    fn open(&self, number: usize, also: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        self.cipher
            .decrypt(&self.nonce(number).into(), Payload { msg: sealed, aad: &self.bound(also) })
            .ok()
    }

    fn nonce(&self, number: usize) -> [u8; SALT_BYTES + 8] {
        let mut nonce = [0; SALT_BYTES + 8];
        nonce[..SALT_BYTES].copy_from_slice(&self.header.salt);
        nonce[SALT_BYTES..].copy_from_slice(&(number as u64).to_le_bytes());
        nonce
    }

    fn bound(&self, also: &[u8]) -> Vec<u8> {
        [&self.header.bytes, also].concat()
    }
}

/// Reads a pack's members.
pub struct PackReader {
    name: String,
    bytes: Bytes,
    key: PackKey,
    header: Header,
    index: Index,
}

impl std::fmt::Debug for PackReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackReader({}, {} members)", self.name, self.index.members.len())
    }
}

impl PackReader {
    /// Checks the header and opens the index. `name` is for errors.
    pub fn open(name: &str, bytes: &[u8], key: &PackKey) -> Result<Self, StoreError> {
        let read = || {
            let header = Header::parse(bytes)?;
            let index = open_index(&header, bytes, key)?;
            Ok((header, index))
        };
        let (header, index) = read().map_err(|reason: String| damaged(name, reason))?;
        let bytes = Bytes::copy_from_slice(bytes);
        Ok(Self { name: name.to_owned(), bytes, key: key.clone(), header, index })
    }

    /// The micros it holds, in order.
    pub fn ids(&self) -> Vec<ChunkId> {
        self.index.members.iter().map(|member| member.id).collect()
    }

    /// [`identity`] of the members it was built from. [`PackReader::members`]
    /// compares; this only reads.
    pub fn identity(&self) -> [u8; 32] {
        self.index.identity
    }

    /// One member.
    pub fn member(&self, id: ChunkId) -> Result<PackMember, StoreError> {
        let Some(place) = self.index.members.iter().position(|member| member.id == id) else {
            return Err(damaged(&self.name, format!("it does not hold {id}")));
        };
        let mut first = 0;
        for (number, frame) in self.index.frames.iter().enumerate() {
            if place < first + frame.members {
                return Ok(self.frame(number)?.swap_remove(place - first));
            }
            first += frame.members;
        }
        unreachable!("each member of an index is in one of its frames")
    }

    /// All members, compared with [`PackReader::identity`].
    pub fn members(&self) -> Result<Vec<PackMember>, StoreError> {
        let mut members = Vec::with_capacity(self.index.members.len());
        for number in 0..self.index.frames.len() {
            members.append(&mut self.frame(number)?);
        }
        match identity(&members) == self.identity() {
            true => Ok(members),
            false => Err(damaged(&self.name, "its texts are not those it was made of")),
        }
    }

    fn frame(&self, number: usize) -> Result<Vec<PackMember>, StoreError> {
        self.open_frame(number).map_err(|reason| damaged(&self.name, reason))
    }

    fn open_frame(&self, number: usize) -> Result<Vec<PackMember>, String> {
        let before = &self.index.frames[..number];
        let start = HEADER_BYTES + before.iter().map(|frame| frame.sealed_bytes).sum::<usize>();
        let first = before.iter().map(|frame| frame.members).sum::<usize>();
        let frame = &self.index.frames[number];
        let members = &self.index.members[first..first + frame.members];

        let sealed = &self.bytes[start..start + frame.sealed_bytes];
        let compressed = Sealer::new(&self.header, &self.key)
            .open(number, &[], sealed)
            .ok_or_else(|| format!("frame {number} is not as it was written"))?;
        split(&decompress(number, &compressed, members)?, members)
            .ok_or_else(|| format!("a text in frame {number} is not UTF-8"))
    }
}

fn damaged(name: &str, reason: impl Into<String>) -> StoreError {
    StoreError::PackDamaged { name: name.into(), reason: reason.into() }
}

fn open_index(header: &Header, pack: &[u8], key: &PackKey) -> Result<Index, String> {
    let body = &pack[HEADER_BYTES..];
    let Some((body, trailer)) = body.split_last_chunk::<TRAILER_BYTES>() else {
        return Err("it ends after its header".into());
    };
    let [length @ .., _, _, _, _] = trailer;
    let length = u32::from_le_bytes(*length) as usize;
    if !trailer.ends_with(END_MAGIC) {
        return Err("its end is missing".into());
    }
    header.check_key(key)?;
    let Some(frames_bytes) = body.len().checked_sub(length) else {
        return Err("its index is longer than itself".into());
    };
    let plain = Sealer::new(header, key)
        .open(header.frames, trailer, &body[frames_bytes..])
        .ok_or("its index is not as it was written")?;
    let index = Index::decode(&plain, header.frames, header.members)?;
    index.check_frames(frames_bytes, TAG_BYTES, MAX_FRAME_BYTES)?;
    Ok(index)
}

/// Takes no more memory than the index says the members' texts need.
fn decompress(number: usize, frame: &[u8], members: &[MemberEntry]) -> Result<Vec<u8>, String> {
    let length = members.iter().map(|member| member.text_bytes).sum();
    match zstd::bulk::decompress(frame, length) {
        Ok(text) if text.len() == length => Ok(text),
        Ok(text) => Err(format!("frame {number} holds {} bytes instead of {length}", text.len())),
        Err(error) => Err(format!("frame {number} does not decompress: {error}")),
    }
}

fn split(mut text: &[u8], members: &[MemberEntry]) -> Option<Vec<PackMember>> {
    let mut take = |member: &MemberEntry| {
        let (own, rest) = text.split_at_checked(member.text_bytes)?;
        text = rest;
        let text = std::str::from_utf8(own).ok()?.to_owned();
        Some(PackMember { id: member.id, format: member.format, text })
    };
    members.iter().map(&mut take).collect()
}

/// The form of a body that is text in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// CTF 2.
    Ctf,
    /// Turn JSONL.
    Jsonl,
}
