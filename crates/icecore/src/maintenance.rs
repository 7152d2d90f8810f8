//! What keeps a memory whole: derived work, erasure, rescans, checks, backups.

pub(crate) mod check;
pub(crate) mod forget;
pub(crate) mod leases;
pub(crate) mod moving;
pub(crate) mod rescan;
pub(crate) mod stats;
pub(crate) mod worker;

pub use self::check::{CheckReport, PackReport};
pub use self::forget::{Erased, ForgetRequest, Receipt};
pub use self::moving::{migrate, open_backup};
pub use self::rescan::Rescanned;
pub use self::stats::Stats;
pub use self::worker::TENANTS_AT_ONCE;
pub use crate::base::counters::{Counters, ModelCounts};
pub use icecore_store::{
    Backup, BackupOf, BackupReport, Doing, EventRecord, LogKind, MigrationReport, Moved, Restored,
    Rotated,
};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use icecore_store::Fence;

use self::leases::Leases;
use crate::context::Contexts;
use crate::error::Result;

/// Does what is due, and looks after the whole.
#[derive(Clone)]
pub struct Upkeep {
    pub(crate) contexts: Contexts,
    pub(crate) leases: Arc<Leases>,
    pub(crate) has_noticed_settings: Arc<AtomicBool>,
}

crate::base::over!(Upkeep, contexts: Contexts);

/// Note under which the settings that branches were settled with are kept.
const SETTINGS_NOTE: &str = "settled-with";

/// Note under which the model that vectors were made with is kept.
const MODEL_NOTE: &str = "embedded-with";

impl Upkeep {
    /// This memory for whoever holds a lease: nothing is written once another does.
    pub(crate) fn fenced(&self, fence: Fence) -> Self {
        let mut fenced = self.clone();
        fenced.store = self.store.fenced(fence);
        fenced.sight = None;
        fenced
    }

    /// Branches that were settled under other settings are looked at again. Once
    /// a process, before it settles anything: two with different settings must
    /// not send each other round in circles.
    pub(crate) async fn notice_settings(&self) -> Result<()> {
        if self.has_noticed_settings.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mine = self.settings.fingerprint();
        if self.store.note(SETTINGS_NOTE).await?.as_deref() != Some(&mine) {
            self.store.unsettle_all().await?;
            self.store.put_note(SETTINGS_NOTE, &mine).await?;
        }
        // Without a model at hand, vectors that are there stay for one that is.
        if let Some(embedder) = &self.embedder {
            let model = embedder.model().to_string();
            if self.store.note(MODEL_NOTE).await?.as_deref() != Some(&model) {
                self.store.unsettle_all().await?;
                self.store.put_note(MODEL_NOTE, &model).await?;
            }
        }
        // Only now: a store that failed half way is asked again.
        self.has_noticed_settings.store(true, Ordering::SeqCst);
        Ok(())
    }
}
