//! Dreaming anew what was lost with something that was forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use icecore_domain::ids::{Scope, Tenant};
use icecore_store::{ArchiveRecord, DreamDue, DreamTrigger};
use tokio::time::Instant;

use crate::dreams::Dreams;
use crate::dreams::dreaming::DreamRequest;
use crate::error::{MemoryError, Result};

/// Memories, and tenants, that are looked at in one round.
const A_ROUND: usize = 1_024;

/// Dreams of one memory in one round: what is left is for the next.
const DREAMS_A_ROUND: usize = 8;

/// Who asks for such a dream.
const PRINCIPAL: &str = "icecore";

/// What failed waits this long before it is tried again, and each time twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(10);

/// But no longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// What could not be done, and waits.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    memories: BTreeMap<Scope, Wait>,
    indexes: BTreeMap<Tenant, Wait>,
}

#[derive(Debug)]
struct Wait {
    /// What was lost then; where more is, it is tried at once.
    epoch: u64,
    failures: u32,
    until: Instant,
}

fn waits<K: Ord>(waits: &BTreeMap<K, Wait>, key: &K, epoch: u64, now: Instant) -> bool {
    waits.get(key).is_some_and(|wait| wait.epoch == epoch && now < wait.until)
}

fn failed<K: Ord>(waits: &mut BTreeMap<K, Wait>, key: K, epoch: u64, now: Instant) {
    let failures = waits.get(&key).map_or(0, |wait| wait.failures).saturating_add(1);
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1).min(16));
    let until = now + FIRST_WAIT.saturating_mul(doubled).min(LONGEST_WAIT);
    waits.insert(key, Wait { epoch, failures, until });
}

impl Dreams {
    /// Dreams anew in memories whose dreams were lost, of one tenant or of all, and
    /// writes lost indexes again. Answers how many memories were distilled; what fails
    /// stays due, keeps nothing else, and is left alone for a while by whoever gives the
    /// same `waiting` again.
    pub(crate) async fn redream(
        &self,
        tenant: Option<&Tenant>,
        waiting: &mut Waits,
    ) -> Result<u64> {
        let (store, now) = (&self.store, Instant::now());
        let is_meant = |other: &Tenant| tenant.is_none_or(|tenant| tenant == other);
        let mut lost = store.lost_dreams(A_ROUND + waiting.memories.len()).await?;
        waiting.memories.retain(|scope, _| lost.iter().any(|due| due.scope == *scope));
        lost.retain(|due| {
            is_meant(due.scope.tenant()) && !waits(&waiting.memories, &due.scope, due.epoch, now)
        });
        // Their keys are gone already, where nobody had the time to delete their bodies.
        let tenants: BTreeSet<Tenant> = lost.iter().map(|due| due.scope.tenant().clone()).collect();
        for tenant in &tenants {
            if let Err(error) = self.delete_lost_bodies(tenant).await {
                tracing::warn!(tenant = tenant.as_str(), %error,
                    "bodies of lost archives could not be deleted, will try again");
            }
        }
        let mut done = 0;
        for due in lost {
            match self.dream_anew(&due).await {
                Ok(is_done) => done += u64::from(is_done),
                Err(error) => {
                    tracing::warn!(scope = %due.scope, error = %error,
                        "a memory could not be distilled anew, will try again");
                    failed(&mut waiting.memories, due.scope, due.epoch, now);
                }
            }
        }
        let mut indexes = store.lost_indexes(A_ROUND + waiting.indexes.len()).await?;
        waiting.indexes.retain(|tenant, _| indexes.contains(tenant));
        indexes.retain(|tenant| is_meant(tenant) && !waits(&waiting.indexes, tenant, 0, now));
        for tenant in indexes {
            match self.write_index_anew(&tenant).await {
                Ok(()) => self.write_markdown(&tenant).await,
                Err(error) => {
                    tracing::warn!(tenant = tenant.as_str(), %error,
                        "a lost index could not be written again, will try again");
                    failed(&mut waiting.indexes, tenant, 0, now);
                }
            }
        }
        Ok(done)
    }

    /// Whether there is anything for [`Dreams::redream`] to do.
    pub(crate) async fn has_lost_dreams(&self) -> Result<bool> {
        let store = &self.store;
        Ok(!store.lost_dreams(1).await?.is_empty() || !store.lost_indexes(1).await?.is_empty())
    }

    /// As [`Dreams::redream`], for one tenant, whatever waits.
    pub(crate) async fn redream_now(&self, tenant: &Tenant) -> Result<u64> {
        self.redream(Some(tenant), &mut Waits::default()).await
    }

    /// Dreams anew in one memory, until all is read that the lost dreams had read, or
    /// enough for one round: the rest stays noted. False where there is nothing to dream
    /// of any more.
    async fn dream_anew(&self, due: &DreamDue) -> Result<bool> {
        let store = &self.store;
        let mut is_done = false;
        for _ in 0..DREAMS_A_ROUND {
            match self.dream_once(due).await? {
                Anew::Goes => is_done = true,
                Anew::Through => {
                    store.settle_lost_dreams(due).await?;
                    return Ok(true);
                }
                // Nothing is left, or too much for any budget: the next dream that is
                // asked for goes on from there.
                Anew::Ends => {
                    store.settle_lost_dreams(due).await?;
                    return Ok(is_done);
                }
            }
        }
        Ok(is_done)
    }

    async fn dream_once(&self, due: &DreamDue) -> Result<Anew> {
        // All is due again that several dreams had read, so that the budget of one may
        // cover too little: then as much as any may.
        for budget in [Some(due.budget), None] {
            let request = DreamRequest {
                trigger: DreamTrigger::Anew,
                principal: PRINCIPAL.to_owned(),
                ..DreamRequest::manual(budget)
            };
            match self.dream(&due.scope, request, |_| {}).await {
                Ok(dream) => {
                    let figures = dream.record.figures;
                    let goes_on = !dream.unchanged && figures.remaining > 0;
                    return Ok(match goes_on && figures.source_count > 0 {
                        true => Anew::Goes,
                        false => Anew::Through,
                    });
                }
                Err(MemoryError::TokenBudgetExceeded { .. }) => {}
                Err(MemoryError::NothingToDream { .. }) => return Ok(Anew::Ends),
                Err(error) => return Err(error),
            }
        }
        Ok(Anew::Ends)
    }

    /// The names of a tenant's archives that have a key.
    pub(crate) async fn archive_keys(&self, tenant: &Tenant) -> Result<BTreeSet<String>> {
        let archives = self.store.archives(Some(tenant)).await?.into_iter();
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
        let archives = self.store.archives(Some(tenant)).await?;
        Ok(archives.iter().filter(|archive| was_erased(archive)).count() as u64)
    }
}

/// How one dream anew went.
enum Anew {
    /// More is due.
    Goes,
    /// Nothing is due any more.
    Through,
    /// There is nothing to dream of, or no budget does.
    Ends,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_waits_twice_as_long_each_time_until_more_is_lost() {
        let (mut waiting, now) = (BTreeMap::new(), Instant::now());
        for seconds in [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600] {
            failed(&mut waiting, "m", 4, now);
            let until = now + Duration::from_secs(seconds);
            assert!(waits(&waiting, &"m", 4, until - Duration::from_millis(1)));
            assert!(!waits(&waiting, &"m", 4, until));
        }
        assert!(!waits(&waiting, &"m", 5, now), "more was lost");
        assert!(!waits(&waiting, &"n", 4, now));
    }
}
