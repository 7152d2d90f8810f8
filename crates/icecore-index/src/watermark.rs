//! How far an index has read.

use icecore_domain::ids::Position;

/// What an index reflects: all feeds of one epoch up to these cursors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watermark {
    /// Which life of the scope; an erasure begins another.
    pub epoch: u64,
    /// The log, turns and entries, up to here.
    pub position: Position,
    /// Summaries up to here.
    pub summaries: u64,
    /// Facts up to here.
    pub facts: u64,
}

impl Watermark {
    /// The beginning of an epoch.
    pub fn start(epoch: u64) -> Self {
        Self { epoch, ..Self::default() }
    }

    /// Whether no feed of `self` is behind that of `other`, in one epoch.
    pub fn covers(&self, other: &Watermark) -> bool {
        self.epoch == other.epoch
            && self.position >= other.position
            && self.summaries >= other.summaries
            && self.facts >= other.facts
    }
}
