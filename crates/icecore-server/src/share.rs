//! What one tenant may hold of what all tenants share.
//!
//! Places, memory and streams are few. A tenant gets `tenant_percent` of each, so
//! that one that takes all it can get leaves something to the others. Who waits for
//! its tenant's share holds nothing that another tenant could use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use icecore::Tenant;
use tokio::sync::Semaphore;

use crate::limits::Limits;
use crate::work::pieces;

/// The share of one tenant: a permit for each thing that it may still take.
pub(crate) struct Share {
    pub(crate) requests: Arc<Semaphore>,
    pub(crate) bodies: Arc<Semaphore>,
    pub(crate) answers: Arc<Semaphore>,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) proxies: Arc<Semaphore>,
}

/// The shares of all tenants that hold something.
pub(crate) struct Shares {
    limits: Limits,
    of: Mutex<BTreeMap<Tenant, Arc<Share>>>,
}

/// Beyond so many, shares that nobody uses are dropped.
const KEPT: usize = 1_024;

impl Shares {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { limits: limits.clone(), of: Mutex::default() }
    }

    /// The share of this tenant. It counts as long as somebody has it.
    pub(crate) fn of(&self, tenant: &Tenant) -> Arc<Share> {
        let mut shares = self.of.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(share) = shares.get(tenant) {
            return Arc::clone(share);
        }
        if shares.len() >= KEPT {
            shares.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let share = Arc::new(Share::new(&self.limits));
        shares.insert(tenant.clone(), Arc::clone(&share));
        share
    }
}

impl Share {
    fn new(limits: &Limits) -> Self {
        let permits = |count: usize| Arc::new(Semaphore::new(count));
        Self {
            requests: permits(limits.tenant_requests()),
            streams: permits(limits.tenant_streams()),
            proxies: permits(limits.tenant_proxies()),
            answers: permits(pieces(limits.tenant_answers()) as usize),
            bodies: permits(pieces(limits.tenant_buffered()) as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_one_tenants_and_lasts_while_it_is_used() {
        let shares = Shares::new(&Limits { concurrent_requests: 4, ..Limits::default() });
        let tenant = |name: &str| Tenant::new(name).unwrap();
        let held = shares.of(&tenant("a"));
        let _place = held.requests.try_acquire_many(2).unwrap();
        assert_eq!(shares.of(&tenant("a")).requests.available_permits(), 0);
        for n in 0..2 * KEPT {
            assert_eq!(shares.of(&tenant(&format!("t{n}"))).requests.available_permits(), 2);
        }
        assert_eq!(shares.of(&tenant("a")).requests.available_permits(), 0);
        assert!(shares.of.lock().unwrap().len() <= KEPT + 1);
    }
}
