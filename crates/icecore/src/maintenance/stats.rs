//! Figures of what is stored.

use icecore_domain::ids::Tenant;
use icecore_store::StoreStats;

use crate::error::{Result, off_thread};
use crate::maintenance::Upkeep;
use crate::models::ModelStats;

/// What is there, and what is still due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// Counts.
    pub store: StoreStats,
    /// Branches with derived work to do; 0 is settled.
    pub pending: u64,
    /// Bytes of the data directory.
    pub disk_bytes: u64,
    /// The counter of all token counts.
    pub tokenizer: &'static str,
    /// What models cost and saved.
    pub models: ModelStats,
}

impl Upkeep {
    /// What is there, of one memory or of a tenant.
    pub async fn stats(&self, tenant: &Tenant, memory: Option<&str>) -> Result<Stats> {
        let inner = self.clone();
        let disk_bytes =
            off_thread(move || inner.data_dir.as_deref().map_or(0, directory_bytes)).await?;
        Ok(Stats {
            store: self.store.stats(tenant, memory, self.now()).await?,
            pending: self.store.unsettled_count(Some(tenant), memory).await?,
            disk_bytes,
            tokenizer: self.counter.name(),
            models: self.model_stats(tenant, memory).await?,
        })
    }
}

/// Bytes of all files below `dir`.
fn directory_bytes(dir: &std::path::Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => directory_bytes(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}
