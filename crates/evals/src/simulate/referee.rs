//! Watches the store itself: who holds what, and who writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use icecore::{Millis, Scope};
use icecore_store::testing::Seen;

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

    pub fn see(&self, seen: Seen<'_>) {
        let broken = judge(&mut self.known(), seen);
        if let Some(broken) = broken {
            self.story.break_promise(format_args!("{broken}"));
        }
    }
}

/// What promise is broken by what happened.
fn judge(known: &mut Known, seen: Seen<'_>) -> Option<String> {
    match seen {
        Seen::Wrote { fence: Some(fence), method } => {
            let now = known.leases.get(&fence.name).copied();
            // Leases themselves are no effect of one.
            let is_effect = !matches!(method, "lease" | "release" | "tidy" | "scrub");
            (is_effect && now != Some(fence.token)).then(|| {
                format!(
                    "{method} was done under lease {} of `{}`, which is at {now:?}",
                    fence.token, fence.name
                )
            })
        }
        Seen::Wrote { fence: None, .. } => None,
        Seen::Leased(fence) => {
            let before = known.leases.insert(fence.name.clone(), fence.token);
            (before > Some(fence.token))
                .then(|| format!("lease `{}` fell from {before:?} to {}", fence.name, fence.token))
        }
        Seen::Released(fence) => {
            let last = known.leases.entry(fence.name.clone()).or_default();
            if *last == fence.token {
                *last += 1;
            }
            None
        }
        Seen::DreamLeased { scope, holder } => {
            known.dreamers.insert(scope.clone(), holder.to_owned());
            None
        }
        Seen::DreamKept { scope, holder } => {
            let is_holder = known.dreamers.get(scope).is_some_and(|now| now == holder);
            let is_first = known.dreamt.insert(holder.to_owned());
            match (is_holder, is_first) {
                (true, true) => None,
                (false, _) => {
                    Some(format!("a dream of {scope} was kept that another may dream of"))
                }
                (_, false) => Some(format!("two dreams of {scope} were kept under one lease")),
            }
        }
        Seen::TickClaimed { schedule, at, holder } => {
            let tick = (schedule.to_owned(), at);
            let before = known.ticks.insert(tick, Some(holder.to_owned()));
            before.map(|_| format!("the instant {at} of {schedule} was claimed twice"))
        }
        Seen::TickTakenOver { schedule, at, holder } => {
            let tick = (schedule.to_owned(), at);
            let before = known.ticks.insert(tick, Some(holder.to_owned()));
            matches!(before, Some(None))
                .then(|| format!("the instant {at} of {schedule} was taken over after its end"))
        }
        Seen::TickEnded { schedule, at, holder } => {
            let tick = (schedule.to_owned(), at);
            let before = known.ticks.insert(tick, None).flatten();
            (before.as_deref() != Some(holder))
                .then(|| format!("the instant {at} of {schedule} was ended by one whose it is not"))
        }
    }
}
