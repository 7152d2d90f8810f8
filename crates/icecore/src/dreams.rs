//! Dreams: memories distilled within a budget, the archives that they write, and their index.

pub(crate) mod archives;
pub(crate) mod distiller;
pub(crate) mod dreaming;
pub(crate) mod memory_index;
pub(crate) mod redream;

pub use self::archives::ArchiveReport;
pub use self::dreaming::{
    DREAM_WORKFLOW, Dream, DreamPhase, DreamPreview, DreamProgress, DreamRequest,
};
pub use self::memory_index::IndexFile;
pub use icecore_domain::dream::{self as dream, Archive, Checksum, Distillate};
pub use icecore_store::{
    ArchiveRecord, DreamFigures, DreamQuery, DreamRecord, DreamState, DreamTrigger,
};

use std::sync::Arc;

use self::archives::ArchiveCache;
use self::distiller::DistilledCache;
use crate::models::Distiller;
use crate::sessions::Sessions;

/// Distils memories, and keeps what came of it.
#[derive(Clone)]
pub struct Dreams {
    pub(crate) sessions: Sessions,
    pub(crate) opened_archives: Arc<ArchiveCache>,
    pub(crate) distiller: Option<Arc<dyn Distiller>>,
    pub(crate) distilled: Arc<DistilledCache>,
    /// How the index of a tenant's memories is kept; `None` where it is not.
    pub(crate) index_file: Option<IndexFile>,
}

crate::base::over!(Dreams, sessions: Sessions);
