//! Facts: what turns state, drawn once and looked up by all.

pub(crate) mod learn;

use std::sync::Arc;

use self::learn::LearnedCache;
use crate::layers::Layers;

/// Facts of memories.
#[derive(Clone)]
pub struct Facts {
    pub(crate) layers: Layers,
    pub(crate) learned: Arc<LearnedCache>,
}

crate::base::over!(Facts, layers: Layers);
