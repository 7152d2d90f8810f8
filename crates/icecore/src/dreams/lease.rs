//! Who may dream in a memory: one at a time, across all hosts.

use std::time::Duration;

use icecore_domain::ids::Scope;
use icecore_domain::time::Millis;
use icecore_store::{Lease, Packs};
use tokio::task::JoinHandle;

use crate::error::{MemoryError, Result};
use crate::memory::Memory;

/// A dream waits so long for another one to end.
const WAIT: Duration = Duration::from_secs(3);

/// And looks this often whether it has.
const POLL: Duration = Duration::from_millis(50);

/// A lease that is renewed until it is dropped.
pub(super) struct HeldLease {
    pub(super) holder: String,
    renewing: JoinHandle<()>,
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

impl Memory {
    /// Takes the lease of a memory, and renews it while it is held.
    pub(super) async fn hold_dream(&self, scope: &Scope) -> Result<HeldLease> {
        let holder = Packs::new_name();
        let mut waited = Duration::ZERO;
        while !self.lease(scope, &holder).await? {
            if waited >= WAIT {
                return Err(self.under_way(scope));
            }
            tokio::time::sleep(POLL).await;
            waited += POLL;
        }
        let (memory, of, name) = (self.clone(), scope.clone(), holder.clone());
        let renewing = tokio::spawn(async move { memory.renew(&of, &name).await });
        Ok(HeldLease { holder, renewing })
    }

    /// Another dream has the lease.
    pub(super) fn under_way(&self, scope: &Scope) -> MemoryError {
        let (memory, until) = (scope.memory().to_owned(), self.lease_end().to_rfc3339());
        MemoryError::DreamUnderWay { memory, until }
    }

    /// Gives a lease back; where that fails it ends by itself.
    pub(super) async fn let_go_of_dream(&self, scope: &Scope, lease: HeldLease) {
        lease.renewing.abort();
        if let Err(error) = self.inner.store.release_dream(scope, &lease.holder).await {
            tracing::warn!(%scope, %error, "the lease of a dream ends by itself");
        }
    }

    pub(super) async fn lease(&self, scope: &Scope, holder: &str) -> Result<bool> {
        let lease = Lease { holder: holder.to_owned(), until: self.lease_end() };
        Ok(self.inner.store.lease_dream(scope, lease, self.now()).await?)
    }

    fn lease_end(&self) -> Millis {
        let seconds = self.inner.settings.dreams.lease_seconds.max(1);
        let millis = i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX);
        Millis(self.now().0.saturating_add(millis))
    }

    async fn renew(&self, scope: &Scope, holder: &str) {
        let seconds = self.inner.settings.dreams.lease_seconds.max(1);
        loop {
            tokio::time::sleep(Duration::from_millis(seconds.saturating_mul(1_000) / 3)).await;
            if let Err(error) = self.lease(scope, holder).await {
                tracing::warn!(%scope, %error, "the lease of a dream could not be renewed");
            }
        }
    }
}
