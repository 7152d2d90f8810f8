//! Long-term entries: written, listed, compacted, consolidated.

pub(crate) mod compaction;
pub(crate) mod consolidation;
pub(crate) mod entries;
pub(crate) mod find;

use std::sync::Arc;

use self::compaction::Resting;
use self::consolidation::Consolidating;
use crate::recall::Recall;

/// Entries of memories, and what stands for several of them.
#[derive(Clone)]
pub struct Knowledge {
    pub(crate) recall: Recall,
    pub(crate) resting: Arc<Resting>,
    pub(crate) consolidating: Arc<Consolidating>,
}

crate::base::over!(Knowledge, recall: Recall);
