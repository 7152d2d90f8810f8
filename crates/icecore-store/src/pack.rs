//! The pack: one immutable object with the bodies of a closed macro.

use icecore_domain::chunk::ChunkId;

use crate::error::StoreError;
use crate::store::TextFormat;

/// A pack's own key. Destroying it destroys the pack. Wiped when dropped.
#[derive(Clone)]
pub struct PackKey([u8; 32]);

impl std::fmt::Debug for PackKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PackKey(…)")
    }
}

/// One micro's body in a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackMember {
    /// Which micro.
    pub id: ChunkId,
    /// How to read the text.
    pub format: TextFormat,
    /// The text.
    pub text: String,
}

impl PackKey {
    /// A new random key.
    pub fn random() -> Self {
        unimplemented!()
    }
    /// From what [`PackKey::as_bytes`] gave.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
    /// The secret bytes, to be sealed.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// The bytes of a pack of `members`.
pub fn build(members: &[PackMember], key: &PackKey) -> Vec<u8> {
    let _ = (members, key);
    unimplemented!()
}

/// Reads a pack's members.
pub struct PackReader {}

impl PackReader {
    /// Checks the header and opens the index. `name` is for errors.
    pub fn open(name: &str, bytes: &[u8], key: &PackKey) -> Result<Self, StoreError> {
        let _ = (name, bytes, key);
        unimplemented!()
    }
    /// The micros it holds, in order.
    pub fn ids(&self) -> Vec<ChunkId> {
        unimplemented!()
    }
    /// One member.
    pub fn member(&self, id: ChunkId) -> Result<PackMember, StoreError> {
        let _ = id;
        unimplemented!()
    }
    /// All members.
    pub fn members(&self) -> Result<Vec<PackMember>, StoreError> {
        unimplemented!()
    }
}
