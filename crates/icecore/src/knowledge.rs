//! Long-term entries: written, listed, compacted, consolidated.

pub(crate) mod compaction;
pub(crate) mod consolidation;
pub(crate) mod entries;
pub(crate) mod find;

pub use self::compaction::{Compaction, CompactionRequest, MAX_COMPACTED_ENTRIES, MAX_TOLD_IDS};
pub use self::consolidation::{
    CONSOLIDATION_WINDOW, Consolidation, ConsolidationTrigger, MAX_CONSOLIDATED_ENTRIES,
};
pub use self::entries::{
    EntryError, EntryList, EntryQuery, EntryRank, MAX_ENTRIES, MAX_ENTRY_QUERY_CHARS,
    NewEntryRequest,
};
pub use crate::facts::learn::{FactInfo, FactQuery, FactSource, MAX_FACT_CHARS};
pub use icecore_domain::fact::{FactKind, FactStatus};
pub use icecore_store::EntryRecord;

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
