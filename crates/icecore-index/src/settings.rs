//! Limits on the work and the memory of an index.

use icecore_settings::{MOST, settings};

settings! {
    /// Limits on the work and the memory of an index.
    #[derive(PartialEq, Eq, Copy)]
    pub struct IndexSettings {
        /// A memory with fewer documents has no index files.
        tail_docs: usize = 1_000, 1..=1_000_000 => advanced;
        /// The most documents that are left uncommitted.
        tail_most: usize = 20_000 => none;
        /// Memories whose index is open at a time.
        open_scopes: usize = 64, 1..=100_000 => advanced;
        /// RAM for open indexes; beyond it those not in use are closed.
        open_bytes: usize = 512 << 20, 1 << 20..=MOST;
        /// Disk space for indexes; beyond it the index used longest ago goes first; 0: no limit.
        cache_bytes: u64 = 16 << 30;
        /// Up to this many vectors are compared exactly. Signs are faster from 10,000
        /// on; 20,000 exact comparisons take half a millisecond and miss nothing.
        exact_rows: usize = 20_000 => none;
        /// Up to this many vectors are in RAM, 256 bytes each; of more, only their signs.
        memory_rows: usize = 200_000, 0..=100_000_000 => advanced;
        /// Above `exact_rows`, how many vectors are compared exactly after a look at signs.
        rescore: usize = 400 => none;
        /// RAM of the text index's writer, in bytes.
        writer_bytes: usize = 50_000_000 => none;
    }
}
