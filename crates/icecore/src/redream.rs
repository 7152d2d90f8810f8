//! Dreaming anew what was lost with something that was forgotten.

use std::collections::BTreeSet;

use icecore_domain::ids::Tenant;
use icecore_store::{ArchiveRecord, DreamDue, DreamTrigger};

use crate::dreams::DreamRequest;
use crate::error::{MemoryError, Result};
use crate::memory::Memory;

/// Memories, and tenants, that are looked at in one round.
const A_ROUND: usize = 1_024;

/// Who asks for such a dream.
const PRINCIPAL: &str = "icecore";

impl Memory {
    /// Dreams anew in memories whose dreams were lost, of one tenant or of all, and
    /// writes lost indexes again. Answers how many memories were distilled; what fails
    /// stays due.
    pub(crate) async fn redream(&self, tenant: Option<&Tenant>) -> Result<u64> {
        let is_meant = |other: &Tenant| tenant.is_none_or(|tenant| tenant == other);
        let mut lost = self.inner.store.lost_dreams(A_ROUND).await?;
        lost.retain(|due| is_meant(due.scope.tenant()));
        // Their keys are gone already, where nobody had the time to delete their bodies.
        let tenants: BTreeSet<Tenant> = lost.iter().map(|due| due.scope.tenant().clone()).collect();
        for tenant in &tenants {
            self.delete_lost_bodies(tenant).await?;
            self.drop_markdown(tenant).await?;
        }
        let mut done = 0;
        for due in lost {
            match self.dream_anew(&due).await {
                Ok(is_done) => done += u64::from(is_done),
                Err(error) => {
                    tracing::warn!(scope = %due.scope, error = %error,
                        "a memory could not be distilled anew, will try again");
                }
            }
        }
        let mut indexes = self.inner.store.lost_indexes(A_ROUND).await?;
        indexes.retain(is_meant);
        for tenant in indexes {
            self.write_index_anew(&tenant).await?;
            self.write_markdown(&tenant).await;
        }
        Ok(done)
    }

    /// Dreams anew in one memory; false where there is nothing to dream of any more.
    async fn dream_anew(&self, due: &DreamDue) -> Result<bool> {
        let store = &self.inner.store;
        // All is due again that several dreams had read, so that the budget of one may
        // cover too little: then as much as any may.
        for budget in [Some(due.budget), None] {
            let request = DreamRequest {
                trigger: DreamTrigger::Anew,
                principal: PRINCIPAL.to_owned(),
                ..DreamRequest::manual(budget)
            };
            match self.dream(&due.scope, request, |_| {}).await {
                Ok(_) => {
                    store.settle_lost_dreams(due).await?;
                    return Ok(true);
                }
                Err(MemoryError::TokenBudgetExceeded { .. }) => {}
                Err(MemoryError::NothingToDream { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        // Nothing is left, or too much for any budget: the next dream that is asked for
        // goes on from there.
        store.settle_lost_dreams(due).await?;
        Ok(false)
    }

    /// The names of a tenant's archives that have a key.
    pub(crate) async fn archive_keys(&self, tenant: &Tenant) -> Result<BTreeSet<String>> {
        let archives = self.inner.store.archives(Some(tenant)).await?.into_iter();
        Ok(archives.filter(|archive| archive.key.is_some()).map(|archive| archive.name).collect())
    }

    /// How many archives that had a key were erased since.
    pub(crate) async fn archives_erased(
        &self,
        tenant: &Tenant,
        had_keys: &BTreeSet<String>,
    ) -> Result<u64> {
        if had_keys.is_empty() {
            return Ok(0);
        }
        let was_erased = |archive: &ArchiveRecord| {
            archive.erased_at.is_some() && had_keys.contains(&archive.name)
        };
        let archives = self.inner.store.archives(Some(tenant)).await?;
        Ok(archives.iter().filter(|archive| was_erased(archive)).count() as u64)
    }
}
