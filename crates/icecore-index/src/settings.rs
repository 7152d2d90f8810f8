//! What bounds the work and the memory of an index.

/// What bounds the work and the memory of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexSettings {
    /// Fewer documents than this are not committed: a small scope has no files.
    pub tail_docs: usize,
    /// More documents than this should not be left uncommitted.
    pub tail_most: usize,
    /// How many scopes are open at a time.
    pub open_scopes: usize,
    /// Beyond so many bytes of memory fewer are: those that nobody uses are closed.
    pub open_bytes: usize,
    /// Bytes on disk, beyond which scopes that nobody uses lose their files.
    pub cache_bytes: u64,
    /// Up to this many vectors are compared exactly. Signs are faster from 10,000
    /// on; 20,000 exact comparisons take half a millisecond and miss nothing.
    pub exact_rows: usize,
    /// Up to this many vectors are in memory, 256 bytes each; of more, only their
    /// signs.
    pub memory_rows: usize,
    /// Above that, how many of them are compared exactly after a look at signs.
    pub rescore: usize,
    /// Memory of the text index's writer, in bytes.
    pub writer_bytes: usize,
}

impl Default for IndexSettings {
    fn default() -> Self {
        Self {
            tail_docs: 1_000,
            tail_most: 20_000,
            open_scopes: 64,
            open_bytes: 512 << 20,
            cache_bytes: 16 << 30,
            exact_rows: 20_000,
            memory_rows: 200_000,
            rescore: 400,
            writer_bytes: 50_000_000,
        }
    }
}
