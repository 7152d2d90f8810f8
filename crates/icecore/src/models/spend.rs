//! What models cost: what is under way, what was spent and not yet written down, and
//! whether there is room for more today.
//!
//! What may be spent is a tenant's. Questions that are under way in this process count
//! with the most that they can take, so that a limit is not overshot by asking a lot at
//! once; another process is seen once it has written down what it spent.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use icecore_domain::chat::Usage;
use icecore_domain::ids::{Scope, Tenant};
use icecore_store::Spending;

use super::ask::Ask;
use crate::base::Purpose;
use crate::error::{MemoryError, Result};
use crate::models::ModelCalls;

/// A provider's count is believed if it is no more than so many times ours, and no less
/// than that part of it.
const PLAUSIBLE_TIMES: u64 = 4;

/// Tokens that a provider may add of its own.
const PLAUSIBLE_EXTRA_TOKENS: u64 = 1_000;

const DAY_MILLIS: i64 = 24 * 3600 * 1000;

/// What is under way and what is not written down yet.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Held while the store's account is read or added to, so that nothing is missed
    /// between the two.
    gate: tokio::sync::Mutex<()>,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    under_way: BTreeMap<Tenant, Room>,
    unwritten: BTreeMap<(Scope, i64, String, String), Spending>,
}

/// Tokens and money.
#[derive(Debug, Clone, Copy, Default)]
struct Room {
    tokens: u64,
    cost: u64,
}

impl Room {
    fn add(&mut self, other: Room) {
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.cost = self.cost.saturating_add(other.cost);
    }
}

impl Ledger {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was spent and saved and is not written down yet, of a tenant or a memory.
    pub(super) fn unwritten(&self, tenant: &Tenant, memory: Option<&str>) -> Vec<Spending> {
        let pages = self.pages();
        let is_meant = |scope: &Scope| {
            scope.tenant() == tenant && memory.is_none_or(|memory| memory == scope.memory())
        };
        let meant = pages.unwritten.iter().filter(|((scope, ..), _)| is_meant(scope));
        meant.map(|(_, spent)| spent.clone()).collect()
    }
}

impl Pages {
    fn note(&mut self, scope: &Scope, spent: Spending) {
        let key = (scope.clone(), spent.day, spent.purpose.clone(), spent.model.clone());
        match self.unwritten.get_mut(&key) {
            Some(known) => known.add(&spent),
            None => {
                self.unwritten.insert(key, spent);
            }
        }
    }

    fn release(&mut self, tenant: &Tenant, room: Room) {
        if let Some(held) = self.under_way.get_mut(tenant) {
            held.tokens = held.tokens.saturating_sub(room.tokens);
            held.cost = held.cost.saturating_sub(room.cost);
        }
    }

    /// What a tenant has under way, and has spent on a day without its being written.
    fn unseen(&self, tenant: &Tenant, day: i64) -> Room {
        let mut room = self.under_way.get(tenant).copied().unwrap_or_default();
        let spent = self
            .unwritten
            .iter()
            .filter(|((scope, ..), spent)| scope.tenant() == tenant && spent.day == day);
        spent.for_each(|(_, spent)| room.add(room_of(spent)));
        room
    }
}

fn room_of(spent: &Spending) -> Room {
    Room { tokens: spent.input.saturating_add(spent.output), cost: spent.cost }
}

/// A question that was sent. If it is dropped before it ended, what it may have taken is
/// noted all the same.
pub(super) struct UnderWay<'a> {
    memory: &'a ModelCalls,
    ask: &'a Ask<'a>,
    counted: u64,
    room: Room,
    /// What was written so far.
    heard: Mutex<String>,
    has_ended: bool,
}

impl UnderWay<'_> {
    /// Takes a piece of the answer.
    pub(super) fn hear(&self, piece: &str) {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).push_str(piece);
    }

    /// Notes what it took.
    pub(super) fn end(mut self, usage: Usage, is_failed: bool) {
        self.note(usage, is_failed);
    }

    fn note(&mut self, usage: Usage, is_failed: bool) {
        self.has_ended = true;
        let cost = self.ask.model.profile().prices.cost(usage);
        let spent = self.memory.spending(self.ask, |spent| {
            spent.calls = 1;
            spent.failed = u64::from(is_failed);
            spent.input = usage.input;
            spent.cached_input = usage.cached_input.min(usage.input);
            spent.output = usage.output;
            spent.cost = cost;
        });
        self.memory.counters.asked(self.ask.purpose, &spent);
        let scope = self.ask.scope;
        let mut pages = self.memory.asking.ledger.pages();
        pages.release(scope.tenant(), self.room);
        pages.note(scope, spent);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            let heard =
                std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner));
            let output = u64::from(self.memory.counter.count(&heard));
            let usage = Usage { input: self.counted, cached_input: 0, output };
            self.note(usage, true);
        }
    }
}

impl ModelCalls {
    /// Today, in days since 1970 in UTC.
    pub(crate) fn today(&self) -> i64 {
        self.now().0.div_euclid(DAY_MILLIS)
    }

    /// Takes room for a question, if the tenant's limits leave it.
    pub(super) async fn begin_spending<'a>(
        &'a self,
        ask: &'a Ask<'a>,
        counted: u64,
    ) -> Result<UnderWay<'a>> {
        let most = Usage { input: counted, cached_input: 0, output: ask.request.max_tokens };
        let cost = ask.model.profile().prices.cost(most);
        let room = Room { tokens: counted.saturating_add(ask.request.max_tokens), cost };
        let limits = self.models.limits;
        let tenant = ask.scope.tenant();
        let ledger = &self.asking.ledger;
        let is_limited = limits.tokens_a_day > 0 || limits.cost_a_day > 0;
        let _gate = match is_limited {
            true => Some(ledger.gate.lock().await),
            false => None,
        };
        let mut spent = Room::default();
        if is_limited {
            let today = self.today();
            let written = self.store.spending(tenant, None, today).await?;
            let written = written.iter().filter(|spent| spent.day == today);
            written.for_each(|one| spent.add(room_of(one)));
            spent.add(ledger.pages().unseen(tenant, today));
        }
        spent.add(room);
        if limits.tokens_a_day > 0 && spent.tokens > limits.tokens_a_day {
            return Err(MemoryError::ModelBudget { limit: limits.tokens_a_day, unit: "tokens" });
        }
        if limits.cost_a_day > 0 && spent.cost > limits.cost_a_day {
            let unit = "millionths of the currency";
            return Err(MemoryError::ModelBudget { limit: limits.cost_a_day, unit });
        }
        ledger.pages().under_way.entry(tenant.clone()).or_default().add(room);
        Ok(UnderWay { memory: self, ask, counted, room, heard: Mutex::default(), has_ended: false })
    }

    /// Adds to an account without writing it down yet.
    pub(super) fn note_spending(&self, scope: &Scope, purpose: Purpose, spent: Spending) {
        self.counters.asked(purpose, &spent);
        self.asking.ledger.pages().note(scope, spent);
    }

    /// Counts tokens that a context or a view did not have to hold, thanks to what stands
    /// for them. Nothing is written yet.
    pub(crate) fn note_saved(&self, scope: &Scope, tokens: u64) {
        if tokens == 0 {
            return;
        }
        self.counters.saved(tokens);
        let spent = Spending {
            day: self.today(),
            purpose: SAVED.to_owned(),
            saved: tokens,
            ..Spending::default()
        };
        self.asking.ledger.pages().note(scope, spent);
    }

    /// Writes down what was spent and saved since the last time. What cannot be written
    /// now is kept for the next time.
    pub async fn write_spending(&self) {
        if self.asking.ledger.pages().unwritten.is_empty() {
            return;
        }
        let memory = self.clone();
        // Whoever waits may leave: what was taken off must still be written.
        let writing = tokio::spawn(async move { memory.write_spending_now().await });
        if let Err(error) = writing.await {
            tracing::warn!(error = %error, "what models cost could not be written down");
        }
    }

    async fn write_spending_now(&self) {
        let ledger = &self.asking.ledger;
        let _gate = ledger.gate.lock().await;
        let unwritten = std::mem::take(&mut ledger.pages().unwritten);
        let mut by_scope: BTreeMap<Scope, Vec<Spending>> = BTreeMap::new();
        for ((scope, ..), spent) in unwritten {
            by_scope.entry(scope).or_default().push(spent);
        }
        for (scope, spent) in by_scope {
            if let Err(error) = self.store.add_spending(&scope, spent.clone()).await {
                tracing::warn!(error = %error, "what models cost could not be written down, will try again");
                let mut pages = ledger.pages();
                spent.into_iter().for_each(|spent| pages.note(&scope, spent));
            }
        }
    }
}

/// What tokens saved are noted under.
pub(crate) const SAVED: &str = "context";

/// Whether a provider's count can be, by ours.
pub(super) fn plausible(told: Usage, ours: Usage, max_tokens: u64) -> bool {
    let most = |tokens: u64| tokens * PLAUSIBLE_TIMES + PLAUSIBLE_EXTRA_TOKENS;
    let least = |tokens: u64| tokens / PLAUSIBLE_TIMES;
    // What a model thought is counted and not shown.
    let written = most(ours.output.max(max_tokens));
    (least(ours.input)..=most(ours.input)).contains(&told.input)
        && told.input > 0
        && told.cached_input <= told.input
        && (least(ours.output)..=written).contains(&told.output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, cached_input: u64, output: u64) -> Usage {
        Usage { input, cached_input, output }
    }

    #[test]
    fn a_count_that_cannot_be_is_not_believed() {
        let ours = usage(10_000, 0, 400);
        for believed in [
            usage(10_000, 0, 400),
            usage(2_500, 2_500, 100),
            usage(41_000, 0, 400),
            usage(9_000, 0, 5_000),
        ] {
            assert!(plausible(believed, ours, 1_000), "{believed:?}");
        }
        for wrong in [
            usage(0, 0, 0),
            usage(2_499, 0, 400),
            usage(41_001, 0, 400),
            usage(10_000, 10_001, 400),
            usage(10_000, 0, 99),
            usage(10_000, 0, 5_001),
            usage(u64::MAX, u64::MAX, u64::MAX),
        ] {
            assert!(!plausible(wrong, ours, 1_000), "{wrong:?}");
        }
        assert!(!plausible(usage(0, 0, 0), usage(0, 0, 0), 0));
    }
}
