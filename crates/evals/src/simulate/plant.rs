//! Bugs that are planted, to see whether the simulator finds them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use icecore::{EventRecord, Millis, Scope};
use icecore_store::{AppendBatch, Claimed, ScopeHead, TickClaim, TickRecord};

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

    pub fn append(&self, mut batch: AppendBatch) -> AppendBatch {
        if self.is(Bug::AppendTwice) {
            let mut count = self.appends.lock().unwrap_or_else(PoisonError::into_inner);
            for turn in &mut batch.turns {
                *count += 1;
                turn.identity.lookup = turn.identity.lookup.wrapping_add(*count);
            }
        }
        batch.insist |= self.is(Bug::ForgottenComesBack);
        batch
    }

    pub fn reads_of(&self, scope: &Scope) -> Scope {
        if !self.is(Bug::WrongTenant) {
            return scope.clone();
        }
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if !scopes.contains(scope) {
            scopes.push(scope.clone());
        }
        scopes.iter().find(|other| other.tenant() != scope.tenant()).unwrap_or(scope).clone()
    }

    pub fn scope_head(&self, scope: &Scope, mut head: ScopeHead) -> ScopeHead {
        if self.is(Bug::StaleEpoch) {
            let mut heads = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
            head.epoch = *heads.entry(scope.clone()).or_insert(head.epoch);
        }
        head
    }

    pub fn events(&self, mut events: Vec<EventRecord>) -> Vec<EventRecord> {
        if self.is(Bug::SkippedEvent) && events.len() > 3 {
            events.remove(1);
        }
        events
    }

    pub fn checks_dreamers(&self) -> bool {
        !self.is(Bug::DreamUnleased)
    }

    pub fn claimed(&self, schedule: &str, claim: &TickClaim, claimed: Claimed) -> Claimed {
        match (claimed, claim.run) {
            (Claimed::Stale, Some(at)) if self.is(Bug::TickTwice) => Claimed::Run(TickRecord {
                holder: Some(claim.holder.clone()),
                ..tick(schedule, at)
            }),
            (claimed, _) => claimed,
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
