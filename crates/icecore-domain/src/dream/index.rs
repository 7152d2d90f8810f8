//! `MEMORY-INDEX.json`: where the distilled memory of a tenant is, a section for each
//! of its memories. It holds no content beyond topics.

use super::{Checksum, Distillate};
use crate::time::Millis;

/// Where it is, in the workspace of the tenant.
pub const INDEX_PATH: &str = "MEMORY-INDEX.json";

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryIndex {
    /// By the name of the memory.
    pub memories: Vec<MemorySection>,
}

/// What is said of one memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemorySection {
    /// Its name.
    pub memory: String,
    /// The entry that holds the newest distillate, or its head.
    pub output: String,
    /// Its archives in force, newest first: the first answers.
    pub archives: Vec<IndexedArchive>,
    /// What the first of them is about.
    pub topics: Vec<Topic>,
}

/// An archive as the index names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedArchive {
    /// Its address.
    pub checksum: Checksum,
    /// How many sources it was made of.
    pub sources: u64,
    /// How many lines it has.
    pub lines: u64,
    /// How many tokens its distillate has.
    pub tokens: u64,
    /// The own times of what it tells of, the first and the last.
    pub between: Option<(Millis, Millis)>,
}

/// A keyphrase, and the lines of the archive it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// The phrase.
    pub name: String,
    /// The places of the lines.
    pub lines: Vec<u32>,
}

impl MemoryIndex {
    /// Reads the file; one that is not ours counts as empty.
    pub fn parse(text: &str) -> Self {
        let _ = text;
        todo!()
    }

    /// Puts a section in the place of the memory's, or takes it out.
    pub fn set(&mut self, memory: &str, section: Option<MemorySection>) {
        let _ = (memory, section);
        todo!()
    }

    /// The file, in at most so many bytes: topics go first, then older archives, then
    /// whole sections.
    pub fn to_text(&self, max_bytes: usize) -> String {
        let _ = max_bytes;
        todo!()
    }
}

/// What a distillate is about.
pub fn topics(distillate: &Distillate) -> Vec<Topic> {
    let _ = distillate;
    todo!()
}
