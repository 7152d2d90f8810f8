//! What every service stands on: the store, the clock, the settings, and small tools.

pub(crate) mod admission;
pub(crate) mod counters;
pub(crate) mod pieces;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use icecore_domain::time::{Clock, Millis};
use icecore_domain::tokens::TokenCounter;
use icecore_store::{Packs, Store};
use tokio::sync::{Notify, watch};

use self::admission::Admission;
use self::counters::Counting;
use crate::settings::{DreamSettings, MemorySettings};

/// The store, and what stays the same under whichever lease it is written to.
#[derive(Clone)]
pub struct Base {
    pub(crate) store: Store,
    pub(crate) parts: Arc<Parts>,
}

/// What all services read.
pub struct Parts {
    pub(crate) packs: Packs,
    /// Where the bodies of archives are kept.
    pub(crate) archives: Packs,
    pub(crate) counter: Arc<dyn TokenCounter>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: MemorySettings,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) wake: Notify,
    /// Rises whenever something may have changed.
    pub(crate) news: watch::Sender<u64>,
    pub(crate) counters: Counting,
    pub(crate) admission: Option<Arc<dyn Admission>>,
}

impl Deref for Base {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

/// Lets a service use everything of the one below it.
macro_rules! over {
    ($service:ty, $field:ident: $below:ty) => {
        impl std::ops::Deref for $service {
            type Target = $below;

            fn deref(&self) -> &$below {
                &self.$field
            }
        }

        impl std::ops::DerefMut for $service {
            fn deref_mut(&mut self) -> &mut $below {
                &mut self.$field
            }
        }
    };
}
pub(crate) use over;

impl Base {
    /// The counter that all counts are made with.
    pub fn counter(&self) -> &dyn TokenCounter {
        self.counter.as_ref()
    }

    /// What bounds dreams.
    pub fn dream_settings(&self) -> &DreamSettings {
        &self.settings.dreams
    }

    /// The present moment, as the memory sees it.
    pub fn now(&self) -> Millis {
        self.clock.now()
    }
}

/// Batches larger than this are prepared off the async threads.
pub const INLINE_BYTES: usize = 16 << 10;

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    fn now(&self) -> Millis {
        Millis(jiff::Timestamp::now().as_millisecond())
    }
}

/// What a model is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Summaries of chunks.
    Summary,
    /// Handoffs.
    Handoff,
    /// Dreams.
    Dream,
    /// Consolidation of entries.
    Consolidation,
    /// A person's own conversation.
    Exchange,
}

impl Purpose {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Purpose::Summary => "summary",
            Purpose::Handoff => "handoff",
            Purpose::Dream => "dream",
            Purpose::Consolidation => "consolidation",
            Purpose::Exchange => "exchange",
        }
    }
}
