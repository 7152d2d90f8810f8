//! Finding what was said: the index, and searching it.

pub(crate) mod indexing;
pub(crate) mod search;

pub use self::search::{DEFAULT_HITS, Hit, Hits, MAX_HITS, SearchRequest, matched_words};
pub use icecore_index::{DocKind, IndexSettings, Mode, Signal};

use std::sync::Arc;

use icecore_domain::embed::{Embedder, ModelId};
use tokio::sync::Semaphore;

use self::indexing::Indexing;
use crate::facts::Facts;

/// Keeps indexes and searches them.
#[derive(Clone)]
pub struct Recall {
    pub(crate) facts: Facts,
    pub(crate) indexing: Arc<Indexing>,
    /// Permits to rank and pack: as many as there are cores.
    pub(crate) ranking: Arc<Semaphore>,
    pub(crate) embedder: Option<Arc<dyn Embedder>>,
}

crate::base::over!(Recall, facts: Facts);

impl Recall {
    /// The model that vectors are made with, if there is one at hand.
    pub fn model(&self) -> Option<&ModelId> {
        self.embedder.as_ref().map(|embedder| embedder.model())
    }
}
