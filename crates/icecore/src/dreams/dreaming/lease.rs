//! Who may dream in a memory: one at a time, across all hosts.

use std::time::Duration;

use icecore_domain::ids::Scope;
use icecore_domain::time::Millis;
use icecore_store::{Lease, Packs};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::dreams::Dreams;
use crate::error::{MemoryError, Result};

/// A dream waits so long for another one to end.
const WAIT: Duration = Duration::from_secs(3);

/// And looks this often whether it has.
const POLL: Duration = Duration::from_millis(50);

/// A lease that is renewed until it is dropped, and then given back.
pub(super) struct HeldLease {
    pub(super) holder: String,
    memory: Dreams,
    scope: Scope,
    renewing: JoinHandle<()>,
    is_held: bool,
}

impl HeldLease {
    /// Gives it back; where that fails it ends by itself.
    pub(super) async fn let_go(mut self) {
        // First, or it would be taken again.
        self.renewing.abort();
        drop((&mut self.renewing).await);
        self.memory.release(&self.scope, &self.holder).await;
        self.is_held = false;
    }
}

impl Drop for HeldLease {
    /// Whoever dreamt gave up half way: nobody must wait until the lease ends.
    fn drop(&mut self) {
        self.renewing.abort();
        if let (true, Ok(runtime)) = (self.is_held, Handle::try_current()) {
            let (memory, scope) = (self.memory.clone(), self.scope.clone());
            let holder = self.holder.clone();
            runtime.spawn(async move { memory.release(&scope, &holder).await });
        }
    }
}

impl Dreams {
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
        let (memory, scope) = (self.clone(), scope.clone());
        Ok(HeldLease { holder, memory, scope, renewing, is_held: true })
    }

    /// Another dream has the lease.
    pub(super) fn under_way(&self, scope: &Scope) -> MemoryError {
        MemoryError::DreamUnderWay { memory: scope.memory().to_owned() }
    }

    async fn release(&self, scope: &Scope, holder: &str) {
        if let Err(error) = self.store.release_dream(scope, holder).await {
            tracing::warn!(%scope, %error, "the lease of a dream ends by itself");
        }
    }

    pub(super) async fn lease(&self, scope: &Scope, holder: &str) -> Result<bool> {
        let lease = Lease { holder: holder.to_owned(), until: self.lease_end() };
        Ok(self.store.lease_dream(scope, lease, self.now()).await?)
    }

    fn lease_end(&self) -> Millis {
        let seconds = self.settings.dreams.lease_seconds.clamp(1, 3_600);
        let millis = i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX);
        Millis(self.now().0.saturating_add(millis))
    }

    async fn renew(&self, scope: &Scope, holder: &str) {
        let seconds = self.settings.dreams.lease_seconds.clamp(1, 3_600);
        loop {
            tokio::time::sleep(Duration::from_millis(seconds.saturating_mul(1_000) / 3)).await;
            if let Err(error) = self.lease(scope, holder).await {
                tracing::warn!(%scope, %error, "the lease of a dream could not be renewed");
            }
        }
    }
}
