//! Dreams: memories distilled within a budget, the archives that they write, and their index.

pub(crate) mod archives;
pub(crate) mod distiller;
pub(crate) mod dreaming;
pub(crate) mod memory_index;
pub(crate) mod redream;

use std::sync::Arc;

use self::archives::ArchiveCache;
use self::distiller::DistilledCache;
use self::memory_index::IndexFile;
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
