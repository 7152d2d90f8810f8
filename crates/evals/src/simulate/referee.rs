//! Watches the store itself: who holds what, and who writes.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use icecore::{Millis, Scope};
use icecore_store::hooks::Call;
use icecore_store::{
    Claimed, Fence, Isolation, Kept, Lease, NewDream, TakenOver, TickClaim, TickEnd,
};

use super::story::Story;

/// Hears everything that happens in the store, from all hosts, in order.
pub struct Referee {
    story: Arc<Story>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The last number of each lease; a lease that was given back is nobody's.
    leases: BTreeMap<String, u64>,
    dreamers: BTreeMap<Scope, String>,
    /// Those whose dream was kept.
    dreamt: BTreeSet<String>,
    /// Whose each tick is; nobody's once it has ended.
    ticks: BTreeMap<(String, Millis), Option<String>>,
}

impl Referee {
    pub fn new(story: Arc<Story>) -> Self {
        Self { story, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears of a call that worked, before anything else can happen.
    pub fn see(&self, call: Call<'_>, args: &dyn Any, answer: &dyn Any) {
        let mut known = self.known();
        let broken = known.written(call).or_else(|| known.changed(call, args, answer));
        drop(known);
        if let Some(broken) = broken {
            self.story.break_promise(format_args!("{broken}"));
        }
    }
}

impl Known {
    /// What promise is broken by a write under a lease.
    fn written(&self, call: Call<'_>) -> Option<String> {
        let fence = call.fence.filter(|_| call.writes)?;
        let now = self.leases.get(&fence.name).copied();
        // Leases themselves are no effect of one.
        let is_effect = !matches!(call.op, "lease" | "release" | "tidy" | "scrub");
        (is_effect && now != Some(fence.token)).then(|| {
            format!(
                "{} was done under lease {} of `{}`, which is at {now:?}",
                call.op, fence.token, fence.name
            )
        })
    }

    /// What promise is broken by how leases, dreams and ticks have changed hands.
    fn changed(&mut self, call: Call<'_>, args: &dyn Any, answer: &dyn Any) -> Option<String> {
        if let Some(Some(fence)) = answer.downcast_ref::<Option<Fence>>() {
            return self.leased(fence);
        }
        if let Some(fence) = args.downcast_ref::<Fence>() {
            let last = self.leases.entry(fence.name.clone()).or_default();
            *last += u64::from(*last == fence.token);
        }
        if let Isolation::Scope(scope) = call.of {
            let lease = args.downcast_ref::<Lease>();
            if let (Some(lease), Some(true)) = (lease, answer.downcast_ref()) {
                self.dreamers.insert(scope.clone(), lease.holder.clone());
            }
            let dream = args.downcast_ref::<NewDream>();
            if let (Some(dream), Some(Kept::Done(_))) = (dream, answer.downcast_ref()) {
                return self.dreamt(scope, &dream.holder);
            }
        }
        let claim = args.downcast_ref::<(String, TickClaim)>();
        if let (Some((schedule, claim)), Some(Claimed::Run(tick))) = (claim, answer.downcast_ref())
        {
            let instant = (schedule.clone(), tick.at);
            let before = self.ticks.insert(instant, Some(claim.holder.clone()));
            return before
                .map(|_| format!("the instant {} of {schedule} was claimed twice", tick.at));
        }
        let end = args.downcast_ref::<(String, Millis, TickEnd)>();
        if let (Some((schedule, at, end)), Some(true)) = (end, answer.downcast_ref()) {
            let before = self.ticks.insert((schedule.clone(), *at), None).flatten();
            return (before.as_ref() != Some(&end.holder)).then(|| {
                format!("the instant {at} of {schedule} was ended by one whose it is not")
            });
        }
        if let Some(Some(TakenOver { schedule, tick })) = answer.downcast_ref() {
            let instant = (schedule.id.clone(), tick.at);
            let before = self.ticks.insert(instant, tick.holder.clone());
            return matches!(before, Some(None)).then(|| {
                format!("the instant {} of {} was taken over after its end", tick.at, schedule.id)
            });
        }
        None
    }

    fn leased(&mut self, fence: &Fence) -> Option<String> {
        let before = self.leases.insert(fence.name.clone(), fence.token);
        (before > Some(fence.token))
            .then(|| format!("lease `{}` fell from {before:?} to {}", fence.name, fence.token))
    }

    fn dreamt(&mut self, scope: &Scope, holder: &str) -> Option<String> {
        let is_holder = self.dreamers.get(scope).is_some_and(|now| now == holder);
        let is_first = self.dreamt.insert(holder.to_owned());
        match (is_holder, is_first) {
            (true, true) => None,
            (false, _) => Some(format!("a dream of {scope} was kept that another may dream of")),
            (_, false) => Some(format!("two dreams of {scope} were kept under one lease")),
        }
    }
}
