//! Bugs that are planted, to see whether the simulator finds them.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use icecore::maintenance::EventRecord;
use icecore::store::StoreError;
use icecore::{Millis, Scope};
use icecore_store::hooks::Call;
use icecore_store::{
    AppendBatch, Claimed, Isolation, Lease, NewDream, ScopeHead, Store, TickClaim, TickRecord,
};

/// A bug between hosts and their store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bug {
    /// A write under a lease does not look whether it is still held.
    LostFence,
    /// A turn that comes again is not recognised.
    AppendTwice,
    /// What was forgotten is added when it comes again.
    ForgottenComesBack,
    /// A host goes by the epoch that it saw first.
    StaleEpoch,
    /// A follower is not shown one of the events.
    SkippedEvent,
    /// A reader is shown what is another tenant's.
    WrongTenant,
    /// A tick that was claimed can be claimed again.
    TickTwice,
    /// A dream is kept whoever has the lease.
    DreamUnleased,
}

/// What a bug needs to remember, one a host.
#[derive(Debug, Default)]
pub struct Planted {
    bug: Option<Bug>,
    heads: Mutex<BTreeMap<Scope, u64>>,
    appends: Mutex<i64>,
    scopes: Mutex<Vec<Scope>>,
}

impl Planted {
    pub fn new(bug: Option<Bug>) -> Self {
        Self { bug, ..Self::default() }
    }

    fn is(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub fn keeps_fences(&self) -> bool {
        !self.is(Bug::LostFence)
    }

    /// Before a call, which may have other arguments then.
    pub async fn before(
        &self,
        call: Call<'_>,
        args: &mut (dyn Any + Send),
        store: &Store,
    ) -> Result<(), StoreError> {
        if let Some(batch) = args.downcast_mut::<AppendBatch>() {
            self.append(batch);
        }
        let dream = args.downcast_ref::<NewDream>().map(|dream| (dream.holder.clone(), dream.now));
        if let (Some((holder, now)), Isolation::Scope(scope)) = (dream, call.of)
            && self.is(Bug::DreamUnleased)
        {
            let lease = Lease { holder, until: Millis(now.0 + 1) };
            store.lease_dream(scope, lease, Millis(i64::MAX / 2)).await?;
        }
        Ok(())
    }

    fn append(&self, batch: &mut AppendBatch) {
        if self.is(Bug::AppendTwice) {
            let mut count = self.appends.lock().unwrap_or_else(PoisonError::into_inner);
            for turn in &mut batch.turns {
                *count += 1;
                turn.identity.lookup = turn.identity.lookup.wrapping_add(*count);
            }
        }
        batch.insist |= self.is(Bug::ForgottenComesBack);
    }

    /// Whose entries and turns are read instead.
    pub fn reads_of(&self, of: Isolation) -> Isolation {
        let Isolation::Scope(scope) = &of else { return of };
        if !self.is(Bug::WrongTenant) {
            return of;
        }
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if !scopes.contains(scope) {
            scopes.push(scope.clone());
        }
        let other = scopes.iter().find(|other| other.tenant() != scope.tenant());
        Isolation::Scope(other.unwrap_or(scope).clone())
    }

    /// What a call is said to have answered.
    pub fn answered(&self, call: Call<'_>, args: &dyn Any, answer: &mut dyn Any) {
        if let (Isolation::Scope(scope), Some(head)) = (call.of, answer.downcast_mut::<ScopeHead>())
            && self.is(Bug::StaleEpoch)
        {
            let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
            head.epoch = *heads.entry(scope.clone()).or_insert(head.epoch);
        }
        if let Some(events) = answer.downcast_mut::<Vec<EventRecord>>()
            && self.is(Bug::SkippedEvent)
            && events.len() > 3
        {
            events.remove(1);
        }
        let claim = args.downcast_ref::<(String, TickClaim)>();
        if let (Some((schedule, claim)), Some(claimed)) = (claim, answer.downcast_mut::<Claimed>())
            && let (Claimed::Stale, Some(at)) = (&*claimed, claim.run)
            && self.is(Bug::TickTwice)
        {
            let holder = Some(claim.holder.clone());
            *claimed = Claimed::Run(TickRecord { holder, ..tick(schedule, at) });
        }
    }
}

fn tick(schedule: &str, at: Millis) -> TickRecord {
    TickRecord {
        schedule: schedule.to_owned(),
        at,
        outcome: None,
        run: None,
        error: None,
        holder: None,
        heartbeat: Some(at),
        attempts: 1,
        started_at: at,
        ended_at: None,
        missed: 0,
    }
}
