//! What none but one of all hosts does at a time, and how this host comes to do it.
//!
//! A lease is taken once and kept: while it is young it is used as it is, at a third of its
//! time it is renewed, and what nobody needs any more ends by itself. Whoever works under
//! one writes through a store that compares its number, so that a host which was stopped
//! for longer than its lease changes nothing when it goes on.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use icecore_domain::ids::Tenant;
use icecore_domain::time::Millis;
use icecore_store::{Fence, Packs, StoreError};
use tokio::time::Instant;

use crate::error::{MemoryError, Result};
use crate::maintenance::Upkeep;

/// Lease of whoever lets go of what is past its time.
pub(crate) const SWEEPING: &str = "sweep";

/// Lease of whoever compacts crowded memories.
pub(crate) const COMPACTION: &str = "compaction";

/// Lease of whoever dreams anew what was lost.
pub(crate) const REDREAMING: &str = "redream";

/// Leases of whoever settles branches begin with this.
const SETTLING: &str = "settle/";

/// Lease of whoever settles a tenant's branches.
pub(crate) fn settling(tenant: &Tenant) -> String {
    format!("{SETTLING}{}", tenant.as_str())
}

/// The leases that this host holds, as far as it knows.
#[derive(Debug)]
pub(crate) struct Leases {
    /// A name that no other host has.
    holder: String,
    held: Mutex<BTreeMap<String, Held>>,
}

#[derive(Debug, Clone)]
struct Held {
    fence: Fence,
    renewed: Instant,
}

impl Default for Leases {
    fn default() -> Self {
        Self { holder: Packs::new_name(), held: Mutex::default() }
    }
}

impl Leases {
    fn held(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, name: &str) -> Option<Held> {
        self.held().get(name).cloned()
    }

    /// Keeps what the store answered to whoever asked for a lease, and drops the leases that
    /// have ended by themselves.
    fn keep(&self, name: &str, taken: Option<&Fence>, length: Duration) {
        let mut held = self.held();
        held.retain(|_, held| held.renewed.elapsed() < length);
        match taken {
            Some(fence) => {
                held.insert(
                    name.to_owned(),
                    Held { fence: fence.clone(), renewed: Instant::now() },
                );
            }
            None => {
                held.remove(name);
            }
        }
    }

    fn forget(&self, lost: &Fence) {
        let mut held = self.held();
        if held.get(&lost.name).is_some_and(|known| known.fence == *lost) {
            held.remove(&lost.name);
        }
    }

    /// How many tenants this host settles, and those whose leases have not ended by
    /// themselves.
    fn settling_count(&self, lease: Duration) -> usize {
        let held = self.held();
        let of_tenants = held.range(SETTLING.to_owned()..);
        let of_tenants = of_tenants.take_while(|(name, _)| name.starts_with(SETTLING));
        of_tenants.filter(|(_, held)| held.renewed.elapsed() < lease).count()
    }
}

impl Upkeep {
    /// Does something that none but one host does at a time, with this memory as it is for
    /// whoever holds the lease, which is renewed meanwhile. Nothing is answered where
    /// another host holds it, or has taken it over: then what was not done is theirs to do.
    pub(crate) async fn on_duty<T, W>(
        &self,
        name: &str,
        work: impl FnOnce(Upkeep) -> W,
    ) -> Result<Option<T>>
    where
        W: Future<Output = Result<T>>,
    {
        match self.take_lease(name).await? {
            Some(fence) => self.while_held(fence, work).await,
            None => Ok(None),
        }
    }

    /// As [`Upkeep::on_duty`], with a lease that was just taken.
    pub(crate) async fn while_held<T, W>(
        &self,
        fence: Fence,
        work: impl FnOnce(Upkeep) -> W,
    ) -> Result<Option<T>>
    where
        W: Future<Output = Result<T>>,
    {
        let done = tokio::select! {
            biased;
            done = work(self.fenced(fence.clone())) => done,
            () = self.until_taken_over(&fence) => return Ok(None),
        };
        match done {
            Err(MemoryError::Store(StoreError::LeaseLost { name })) if name == fence.name => {
                self.leases.forget(&fence);
                Ok(None)
            }
            done => done.map(Some),
        }
    }

    /// The lease, if this host holds it or can take it.
    pub(crate) async fn take_lease(&self, name: &str) -> Result<Option<Fence>> {
        match self.leases.of(name) {
            Some(held) if held.renewed.elapsed() < self.lease_length() / 3 => Ok(Some(held.fence)),
            _ => self.ask_for_lease(name).await,
        }
    }

    /// As [`Upkeep::take_lease`], to settle a tenant's branches. A host that has more than
    /// `most` tenants gives this one back when it would have to renew it, so that another
    /// that has fewer may take it.
    pub(crate) async fn take_tenant(&self, tenant: &Tenant, most: usize) -> Result<Option<Fence>> {
        let (leases, length) = (&self.leases, self.lease_length());
        let name = settling(tenant);
        let has_many = || leases.settling_count(length) > most;
        match leases.of(&name) {
            Some(held) if held.renewed.elapsed() >= length / 3 && has_many() => {
                self.give_back(&held.fence).await;
                Ok(None)
            }
            _ => self.take_lease(&name).await,
        }
    }

    /// Gives back all that this host holds; where that fails they end by themselves.
    pub(crate) async fn give_back_all(&self) {
        let length = self.lease_length();
        let held: Vec<Fence> = {
            let held = self.leases.held();
            let young = held.values().filter(|held| held.renewed.elapsed() < length);
            young.map(|held| held.fence.clone()).collect()
        };
        for fence in &held {
            self.give_back(fence).await;
        }
    }

    async fn give_back(&self, fence: &Fence) {
        self.leases.forget(fence);
        if let Err(error) = self.store.release(fence).await {
            tracing::warn!(lease = fence.name, %error, "a lease ends by itself");
        }
    }

    async fn ask_for_lease(&self, name: &str) -> Result<Option<Fence>> {
        let (leases, now) = (&self.leases, self.now());
        let millis = i64::try_from(self.lease_length().as_millis()).unwrap_or(i64::MAX);
        let until = Millis(now.0.saturating_add(millis));
        let taken = self.store.lease(name, &leases.holder, until, now).await?;
        leases.keep(name, taken.as_ref(), self.lease_length());
        Ok(taken)
    }

    /// Renews a lease until it is another's.
    async fn until_taken_over(&self, fence: &Fence) {
        let third = self.lease_length() / 3;
        let renewed = self.leases.of(&fence.name).map(|held| held.renewed);
        let mut next = renewed.unwrap_or_else(Instant::now) + third;
        loop {
            tokio::time::sleep_until(next).await;
            next = Instant::now() + third;
            match self.ask_for_lease(&fence.name).await {
                Ok(Some(again)) if again == *fence => {}
                Ok(_) => {
                    tracing::info!(lease = fence.name, "another host has taken over");
                    return;
                }
                // The next sign may still come in time.
                Err(error) => {
                    tracing::warn!(lease = fence.name, %error, "a lease could not be renewed");
                }
            }
        }
    }

    fn lease_length(&self) -> Duration {
        Duration::from_secs(self.settings.worker.lease_seconds.clamp(1, 3_600))
    }
}

#[cfg(test)]
mod tests {
    use icecore_store::Store;
    use icecore_store::hooks::Failing;

    use super::*;
    use crate::memory::{Memory, MemoryBuilder};
    use crate::settings::{MemorySettings, WorkerSettings};

    fn over(store: Store) -> Memory {
        let worker = WorkerSettings { lease_seconds: 9 };
        let settings = MemorySettings { worker, ..MemorySettings::default() };
        MemoryBuilder::default().settings(settings).over(store, Packs::in_memory(), None)
    }

    /// As another host would, whose clock is far ahead.
    async fn steal(store: &Store, name: &str) -> Fence {
        let now = Millis(i64::MAX / 2);
        store.lease(name, "thief", Millis(now.0 + 60_000), now).await.unwrap().unwrap()
    }

    async fn note(memory: &Upkeep) -> Result<()> {
        Ok(memory.store.put_note("was here", "yes").await?)
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_taken_once_and_renewed_at_a_third() {
        let writing = Failing::instead_of(0);
        let store = Store::in_memory([1; 32]).hooked(writing.clone());
        let memory = over(store.clone());
        for seconds in [0, 1, 1] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            assert_eq!(memory.on_duty("x", async |_| Ok(7)).await.unwrap(), Some(7));
        }
        assert_eq!(writing.writes(), 1);
        tokio::time::advance(Duration::from_secs(1)).await;
        memory.on_duty("x", async |_| Ok(())).await.unwrap();
        assert_eq!(writing.writes(), 2);
        // Also while the work goes on: at 3, 6 and 9 seconds.
        let work = async |_| {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok(())
        };
        assert_eq!(memory.on_duty("x", work).await.unwrap(), Some(()));
        assert_eq!(writing.writes(), 5);
        memory.give_back_all().await;
        assert!(over(store).take_lease("x").await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn leases_that_have_ended_are_not_remembered() {
        let memory = over(Store::in_memory([1; 32]));
        for number in 0..100 {
            let tenant = Tenant::new(format!("t{number}")).unwrap();
            assert!(memory.take_tenant(&tenant, 1_000).await.unwrap().is_some());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        // As many as were taken within the time of a lease.
        assert_eq!(memory.leases.held().len(), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_host_does_another_leaves_alone() {
        let store: Store = Store::in_memory([1; 32]);
        let (one, other) = (over(store.clone()), over(store));
        assert_eq!(one.on_duty("x", async |_| Ok(1)).await.unwrap(), Some(1));
        assert_eq!(other.on_duty("x", async |_| Ok(2)).await.unwrap(), None);
        assert_eq!(other.on_duty("y", async |_| Ok(3)).await.unwrap(), Some(3));
        assert_eq!(one.on_duty("y", async |_| Ok(4)).await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn who_lost_a_lease_writes_nothing_and_asks_again() {
        let store: Store = Store::in_memory([1; 32]);
        let memory = over(store.clone());
        let robbed = async |memory: Upkeep| {
            let fence = steal(&store, "x").await;
            note(&memory).await?;
            unreachable!("{fence:?} was written under")
        };
        assert_eq!(memory.on_duty::<(), _>("x", robbed).await.unwrap(), None);
        assert_eq!(store.note("was here").await.unwrap(), None);
        // By our clock the thief's lease is one of a clock that was wrong.
        assert_eq!(
            memory.on_duty("x", async |memory| note(&memory).await).await.unwrap(),
            Some(())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn work_ends_when_another_has_taken_over() {
        let store: Store = Store::in_memory([1; 32]);
        let memory = over(store.clone());
        let begun = Instant::now();
        let endless = async |_| {
            steal(&store, "x").await;
            std::future::pending::<Result<()>>().await
        };
        assert_eq!(memory.on_duty("x", endless).await.unwrap(), None);
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_with_many_tenants_gives_some_back() {
        let store: Store = Store::in_memory([1; 32]);
        let (full, free) = (over(store.clone()), over(store));
        let tenants = ["a", "b", "c"].map(|name| Tenant::new(name).unwrap());
        for tenant in &tenants {
            assert!(full.take_tenant(tenant, 2).await.unwrap().is_some());
            assert!(free.take_tenant(tenant, 2).await.unwrap().is_none());
        }
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(full.take_tenant(&tenants[0], 2).await.unwrap().is_none());
        assert!(free.take_tenant(&tenants[0], 2).await.unwrap().is_some());
        // Now it has no more than it may.
        for tenant in &tenants[1..] {
            assert!(full.take_tenant(tenant, 2).await.unwrap().is_some());
        }
    }
}
