//! The memory: a builder that opens it, and the services that it gives.

pub(crate) mod opening;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use icecore_domain::embed::Embedder;
use icecore_domain::redact::Redactor;
use icecore_domain::time::Clock;
use icecore_domain::tokens::TokenCounter;
use icecore_index::{Index, IndexSettings};
use icecore_store::{ObjectKeys, ObjectSettings, Packs, Store};
use lru::LruCache;
use tokio::sync::{Notify, Semaphore, watch};

#[cfg(feature = "postgres")]
use self::opening::Shared;
use self::opening::clock_or_own;
use crate::base::admission::Admission;
use crate::base::counters::Counting;
use crate::base::{Base, Parts};
use crate::context::Contexts;
use crate::dreams::Dreams;
use crate::dreams::memory_index::IndexFile;
use crate::error::Result;
use crate::facts::Facts;
use crate::ingest::Ingest;
use crate::knowledge::Knowledge;
use crate::layers::Layers;
use crate::maintenance::Upkeep;
use crate::models::{Asking, Distiller, ModelCalls, Models};
use crate::privacy::Privacy;
use crate::privacy::secrets::{LogRedactor, Redactors, TENANTS_AT_HAND};
use crate::recall::Recall;
use crate::recall::indexing::Indexing;
use crate::sessions::Sessions;
use crate::settings::MemorySettings;

/// A memory of any number of tenants, over one store.
///
/// It gives the operations of every service: [`Privacy`] hides secrets, [`Ingest`] takes
/// turns in, [`Layers`] reads them back, [`Recall`] finds them, [`Knowledge`] and [`Facts`]
/// say what is known, [`Sessions`] what a model is sent, [`Dreams`] distil, [`Contexts`]
/// answer within a budget, [`Upkeep`] keeps it whole.
///
/// Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct Memory {
    pub(crate) upkeep: Upkeep,
}

crate::base::over!(Memory, upkeep: Upkeep);

/// What a memory is made of. Every part has a default but the counter, which
/// comes with the feature `models`.
pub struct MemoryBuilder {
    settings: MemorySettings,
    index_file: Option<IndexFile>,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    counter: Option<Arc<dyn TokenCounter>>,
    pub(crate) master_key: Option<String>,
    #[cfg(feature = "postgres")]
    pub(crate) shared: Option<Shared>,
    embedder: Option<Arc<dyn Embedder>>,
    distiller: Option<Arc<dyn Distiller>>,
    models: Models,
    index: IndexSettings,
    redactor: Redactor,
    logs: LogRedactor,
    pub(crate) archives: Option<Packs>,
    pub(crate) may_be_half_moved: bool,
    pub(crate) objects: ObjectSettings,
    pub(crate) object_keys: Option<ObjectKeys>,
    admission: Option<Arc<dyn Admission>>,
}

impl Default for MemoryBuilder {
    fn default() -> Self {
        Self {
            settings: MemorySettings::default(),
            index_file: Some(IndexFile::default()),
            clock: None,
            #[cfg(feature = "models")]
            counter: Some(Arc::new(icecore_models::O200k::default())),
            #[cfg(not(feature = "models"))]
            counter: None,
            master_key: None,
            #[cfg(feature = "postgres")]
            shared: None,
            #[cfg(feature = "models")]
            embedder: Some(icecore_models::StaticEmbedder::bundled()),
            #[cfg(not(feature = "models"))]
            embedder: None,
            distiller: None,
            models: Models::default(),
            index: IndexSettings::default(),
            redactor: Redactor::standard(),
            logs: LogRedactor::default(),
            archives: None,
            may_be_half_moved: false,
            objects: ObjectSettings::default(),
            object_keys: None,
            admission: None,
        }
    }
}

impl MemoryBuilder {
    /// How the memory behaves.
    pub fn settings(mut self, settings: MemorySettings) -> Self {
        self.settings = settings;
        self
    }

    /// How dreams keep the index of a tenant's memories; `None` keeps none.
    pub fn index_file(mut self, index_file: Option<IndexFile>) -> Self {
        self.index_file = index_file;
        self
    }

    /// What decides whether a tenant may take in more; everything is admitted by default.
    pub fn admission(mut self, admission: Arc<dyn Admission>) -> Self {
        self.admission = Some(admission);
        self
    }

    /// Where the time comes from.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// What counts tokens.
    pub fn counter(mut self, counter: Arc<dyn TokenCounter>) -> Self {
        self.counter = Some(counter);
        self
    }

    /// The master key as 64 hex digits, instead of the file in the directory.
    pub fn master_key(mut self, key: Option<String>) -> Self {
        self.master_key = key;
        self
    }

    /// What makes vectors; `None` searches by words alone.
    pub fn embedder(mut self, embedder: Option<Arc<dyn Embedder>>) -> Self {
        self.embedder = embedder;
        self
    }

    /// The model that dreams ask; `None` dreams without one.
    pub fn distiller(mut self, distiller: Option<Arc<dyn Distiller>>) -> Self {
        self.distiller = distiller;
        self
    }

    /// The models that summaries, handoffs, dreams and consolidation ask; none by
    /// default.
    pub fn models(mut self, models: Models) -> Self {
        self.models = models;
        self
    }

    /// What bounds the index.
    pub fn index(mut self, settings: IndexSettings) -> Self {
        self.index = settings;
        self
    }

    /// What hides secrets, before a tenant's own are added.
    pub fn redactor(mut self, redactor: Redactor) -> Self {
        self.redactor = redactor;
        self
    }

    /// What hides secrets in logs, so that it learns those of tenants.
    pub fn logs(mut self, logs: LogRedactor) -> Self {
        self.logs = logs;
        self
    }

    /// Where the bodies of archives are kept; without, where the packs are.
    pub fn archives(mut self, archives: Packs) -> Self {
        self.archives = Some(archives.archives());
        self
    }

    /// A memory over any store.
    pub fn over(self, store: Store, packs: Packs, data_dir: Option<PathBuf>) -> Memory {
        let counter = self.counter.unwrap_or_else(|| Arc::new(icecore_domain::tokens::CharCounter));
        let index = Index::open(data_dir.as_ref().map(|dir| dir.join("index")), self.index);
        let auto_embed = self.settings.auto_embed;
        let clock = clock_or_own(self.clock);
        if let Some(admission) = &self.admission {
            admission.opened(&store, &clock);
        }
        let parts = Parts {
            archives: self.archives.unwrap_or_else(|| packs.archives()),
            packs,
            counter,
            clock,
            settings: self.settings,
            data_dir,
            wake: Notify::new(),
            news: watch::Sender::new(0),
            counters: Counting::default(),
            admission: self.admission,
        };
        let base = Base { store, parts: Arc::new(parts) };
        let privacy = Privacy {
            base,
            sight: None,
            redactors: Arc::new(Redactors::new(self.redactor, self.logs)),
            identity_keys: Arc::new(Mutex::new(LruCache::new(TENANTS_AT_HAND))),
        };
        let models = ModelCalls {
            privacy,
            models: Arc::new(self.models),
            asking: Arc::new(Asking::default()),
        };
        let ingest = Ingest { calls: models };
        let layers = Layers { ingest, pack_texts: Arc::default() };
        let facts = Facts { layers, learned: Arc::default() };
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let recall = Recall {
            facts,
            indexing: Arc::new(Indexing::new(index)),
            ranking: Arc::new(Semaphore::new(cores)),
            embedder: self.embedder.filter(|_| auto_embed),
        };
        let knowledge =
            Knowledge { recall, resting: Arc::default(), consolidating: Arc::default() };
        let sessions =
            Sessions { knowledge, learned_windows: Arc::default(), message_counts: Arc::default() };
        let dreams = Dreams {
            sessions,
            opened_archives: Arc::default(),
            distiller: self.distiller,
            distilled: Arc::default(),
            index_file: self.index_file,
        };
        let upkeep = Upkeep {
            contexts: Contexts { dreams },
            leases: Arc::default(),
            has_noticed_settings: Arc::new(AtomicBool::new(false)),
        };
        Memory { upkeep }
    }
}

impl Memory {
    /// Opens the memory in `dir` with everything at its default.
    pub async fn open(dir: &Path) -> Result<Memory> {
        MemoryBuilder::default().open(dir).await
    }

    /// A memory that is gone when it is dropped.
    pub fn in_memory() -> Memory {
        MemoryBuilder::default().over(Store::in_memory([0; 32]), Packs::in_memory(), None)
    }

    /// Begins a memory with parts of one's own.
    pub fn builder() -> MemoryBuilder {
        MemoryBuilder::default()
    }
}
