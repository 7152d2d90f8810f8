//! Limits per tenant: what it may store, and what it may use in a day.
//!
//! What is stored is bounded by the store, inside the transaction that adds to it. What is
//! used in a day is counted here, by each host for itself, and written in steps: a daily
//! limit holds over all hosts but for one step a host. A day is one of UTC.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use icecore::extend::{Admission, Reserving};
use icecore::store::{KeptBound, StoreError};
use icecore::{Clock, MemoryError, Millis, SystemClock, Tenant};
pub use icecore_store::{AllUsage, DayUse, Usage};
use icecore_store::{KeptBounds, Store, day_of, end_of_day};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::settings::{BoundSettings, TenantBounds};

type Result<T> = std::result::Result<T, MemoryError>;

/// Tenants whose counts are written side by side.
const WRITTEN_AT_ONCE: usize = 64;

/// What a tenant stores and used today, beside what it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantUsage {
    /// What it stores and used.
    pub used: Usage,
    /// What it may.
    pub bounds: TenantBounds,
    /// When the day ends.
    pub day_ends: Millis,
}

/// How often something was refused at a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BoundRefusals {
    /// At `bounds.turns`.
    pub turns: u64,
    /// At `bounds.bytes`.
    pub bytes: u64,
    /// At `bounds.requests_a_day`.
    pub requests: u64,
    /// At `bounds.tokens_a_day`.
    pub tokens: u64,
}

/// Limits of all tenants of a store, and what they used today.
///
/// A memory that is opened with them asks them before it takes in text. Clones share
/// their counts.
#[derive(Clone, Default)]
pub struct Bounds {
    settings: BoundSettings,
    /// Known once a memory is opened.
    place: Arc<OnceLock<Place>>,
    /// Only tenants that use something.
    meters: Arc<Mutex<BTreeMap<Tenant, Meter>>>,
    refusals: Arc<Mutex<BoundRefusals>>,
}

struct Place {
    store: Store,
    clock: Arc<dyn Clock>,
}

impl Bounds {
    /// Limits to open a memory with.
    pub fn new(settings: BoundSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Counts a request of a tenant, or refuses it if the tenant has used up the day's.
    pub async fn admit_request(&self, tenant: &Tenant) -> Result<()> {
        self.take(tenant, DayUse { requests: 1, tokens: 0 }, |meter| meter.pending.requests += 1)
            .await
    }

    /// What a tenant stores and used today, with what this host has not written yet.
    pub async fn usage(&self, tenant: &Tenant) -> Result<TenantUsage> {
        let (bounds, day) = (self.settings.of(tenant), day_of(self.now()));
        let Some(Place { store, .. }) = self.place.get() else {
            return Ok(TenantUsage { bounds, ..TenantUsage::default() });
        };
        let mut used = store.tenant_usage(tenant, day).await?;
        let meter = self.meters().get(tenant).copied();
        if let Some(meter) = meter.filter(|meter| meter.day == day) {
            used.day.add(meter.pending);
        }
        Ok(TenantUsage { used, bounds, day_ends: end_of_day(day) })
    }

    /// What all tenants store and used today, as far as it is written.
    pub async fn all_usage(&self) -> Result<AllUsage> {
        match self.place.get() {
            Some(place) => Ok(place.store.all_usage(day_of(self.now())).await?),
            None => Ok(AllUsage::default()),
        }
    }

    /// How often something was refused.
    pub fn refusals(&self) -> BoundRefusals {
        *self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The limits.
    pub fn settings(&self) -> &BoundSettings {
        &self.settings
    }

    /// Writes everything that is counted here and not written. A host does so from time to
    /// time and at its end; a program that ends without it loses the last steps.
    pub async fn write(&self) {
        let pending: Vec<Tenant> = {
            let mut meters = self.meters();
            meters.retain(|_, meter| !meter.is_idle() || std::mem::take(&mut meter.is_fresh));
            let pending = meters.iter().filter(|(_, meter)| !meter.pending.is_empty());
            pending.map(|(tenant, _)| tenant.clone()).collect()
        };
        let mut writing = JoinSet::new();
        for tenant in pending {
            if writing.len() >= WRITTEN_AT_ONCE {
                writing.join_next().await;
            }
            let bounds = self.clone();
            writing.spawn(async move { bounds.write_of(&tenant).await });
        }
        writing.join_all().await;
    }

    /// Writes what is counted from time to time, until the end.
    pub(crate) async fn write_until(&self, mut closed: watch::Receiver<bool>) {
        let pause = Duration::from_secs(self.settings.step_seconds.max(1));
        loop {
            let is_closed = tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => true,
                () = tokio::time::sleep(pause) => false,
            };
            self.write().await;
            if is_closed {
                return;
            }
        }
    }

    async fn take(
        &self,
        tenant: &Tenant,
        more: DayUse,
        take: impl FnOnce(&mut Meter),
    ) -> Result<()> {
        let Some(Place { store, .. }) = self.place.get() else { return Ok(()) };
        let (bounds, now) = (self.settings.of(tenant), self.now());
        let day = day_of(now);
        if is_daily(&bounds) && self.with(tenant, day, |meter| meter.stored.is_none()) {
            let stored = store.tenant_usage(tenant, day).await?.day;
            self.with(tenant, day, |meter| meter.stored.get_or_insert(stored).requests);
        }
        let pending = self.with(tenant, day, |meter| {
            refuse_beyond(tenant, &bounds, now, meter.used(), more)?;
            take(meter);
            Ok(meter.pending)
        });
        let pending = pending.inspect_err(|error| self.refused(error))?;
        if is_step(&self.settings, &bounds, pending) {
            self.write_of(tenant).await;
        }
        Ok(())
    }

    /// Writes what is counted for a tenant. What cannot be written stays counted here.
    async fn write_of(&self, tenant: &Tenant) {
        let Some(Place { store, .. }) = self.place.get() else { return };
        let day = day_of(self.now());
        let Some(more) = self.with(tenant, day, Meter::begin_writing) else { return };
        let written = store.count_use(tenant, day, more).await;
        let answered = written.inspect_err(|error| {
            tracing::warn!(%error, "what a tenant used could not be written, will try again");
        });
        let answered = answered.ok();
        self.with(tenant, day_of(self.now()), |meter| meter.end_writing(day, answered));
    }

    fn now(&self) -> Millis {
        self.place.get().map_or_else(|| SystemClock.now(), |place| place.clock.now())
    }

    fn meters(&self) -> MutexGuard<'_, BTreeMap<Tenant, Meter>> {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with what is counted for a tenant.
    fn with<T>(&self, tenant: &Tenant, day: i64, act: impl FnOnce(&mut Meter) -> T) -> T {
        let mut meters = self.meters();
        let meter = meters.entry(tenant.clone()).or_default();
        meter.begin_day(day);
        act(meter)
    }
}

impl Admission for Bounds {
    fn opened(&self, store: &Store, clock: &Arc<dyn Clock>) {
        let own = self.settings.tenants.iter();
        let own = own.map(|(tenant, bounds)| (tenant.clone(), kept(bounds)));
        store.set_bounds(icecore_store::Bounds {
            everyone: kept(&self.settings.everyone),
            tenants: own.collect(),
        });
        self.place.get_or_init(|| Place { store: store.clone(), clock: Arc::clone(clock) });
    }

    fn reserve<'a>(&'a self, tenant: &'a Tenant, tokens: u64) -> Reserving<'a> {
        let more = DayUse { requests: 0, tokens };
        Box::pin(self.take(tenant, more, move |meter| {
            meter.reserved = meter.reserved.saturating_add(tokens);
        }))
    }

    fn release(&self, tenant: &Tenant, reserved: u64, stored: u64) {
        let more = DayUse { requests: 0, tokens: stored };
        self.with(tenant, day_of(self.now()), |meter| {
            meter.pending.add(more);
            meter.reserved = meter.reserved.saturating_sub(reserved);
        });
    }

    fn refused(&self, error: &MemoryError) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            MemoryError::DayBoundReached { unit: REQUESTS, .. } => refusals.requests += 1,
            MemoryError::DayBoundReached { .. } => refusals.tokens += 1,
            MemoryError::Store(StoreError::BoundReached { bound, .. }) => match bound {
                KeptBound::Turns => refusals.turns += 1,
                KeptBound::Bytes => refusals.bytes += 1,
            },
            _ => {}
        }
    }
}

const REQUESTS: &str = "requests";

fn kept(bounds: &TenantBounds) -> KeptBounds {
    KeptBounds { turns: bound(bounds.turns), bytes: bound(bounds.bytes) }
}

/// 0 is no limit.
fn bound(most: u64) -> Option<u64> {
    (most > 0).then_some(most)
}

fn is_daily(bounds: &TenantBounds) -> bool {
    bounds.requests_a_day > 0 || bounds.tokens_a_day > 0
}

/// Whether so much is written at once. A limit that is small has smaller steps: a
/// hundredth of it.
fn is_step(settings: &BoundSettings, bounds: &TenantBounds, pending: DayUse) -> bool {
    let step = |most: u64, step: u64| if most == 0 { u64::MAX } else { step.min(most / 100) };
    pending.requests > 0 && pending.requests >= step(bounds.requests_a_day, settings.step_requests)
        || pending.tokens > 0 && pending.tokens >= step(bounds.tokens_a_day, settings.step_tokens)
}

/// What a tenant used today, as far as this host knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Meter {
    day: i64,
    /// What the store said last; nothing until it was asked.
    stored: Option<DayUse>,
    /// What is being written to it.
    writing: DayUse,
    /// What is counted here and not written.
    pending: DayUse,
    /// Tokens of what is being taken in.
    reserved: u64,
    /// Whether it was asked since what is pending was last written.
    is_fresh: bool,
}

impl Meter {
    /// What is not written yet when a day begins counts for that: it is a step at most. A
    /// clock that went back over midnight goes on with the day; one that was far off not.
    fn begin_day(&mut self, day: i64) {
        if day > self.day || day + 1 < self.day {
            *self =
                Meter { day, pending: self.pending, reserved: self.reserved, ..Self::default() };
        }
        self.is_fresh = true;
    }

    fn used(&self) -> DayUse {
        let mut used = self.stored.unwrap_or_default();
        used.add(self.writing);
        used.add(self.pending);
        used.add(DayUse { requests: 0, tokens: self.reserved });
        used
    }

    fn is_idle(&self) -> bool {
        self.writing.is_empty() && self.pending.is_empty() && self.reserved == 0
    }

    /// Takes what is to be written, unless some is on its way.
    fn begin_writing(&mut self) -> Option<DayUse> {
        if !self.writing.is_empty() || self.pending.is_empty() {
            return None;
        }
        self.writing = std::mem::take(&mut self.pending);
        Some(self.writing)
    }

    fn end_writing(&mut self, day: i64, answered: Option<DayUse>) {
        let written = std::mem::take(&mut self.writing);
        match answered {
            // What was used on another day says nothing of this one.
            Some(sum) if day == self.day => self.stored = Some(sum),
            Some(_) => {}
            None => self.pending.add(written),
        }
    }
}

fn refuse_beyond(
    tenant: &Tenant,
    bounds: &TenantBounds,
    now: Millis,
    used: DayUse,
    more: DayUse,
) -> Result<()> {
    let each = [
        (REQUESTS, "bounds.requests_a_day", bounds.requests_a_day, used.requests, more.requests),
        ("tokens", "bounds.tokens_a_day", bounds.tokens_a_day, used.tokens, more.tokens),
    ];
    for (unit, setting, most, used, more) in each {
        if most > 0 && more > 0 && used.saturating_add(more) > most {
            let ends_at = end_of_day(day_of(now));
            return Err(MemoryError::DayBoundReached {
                tenant: tenant.clone(),
                unit,
                setting,
                most,
                used,
                more,
                ends_at,
                wait_millis: ends_at.0.saturating_sub(now.0).max(0) as u64,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(requests: u64, tokens: u64) -> DayUse {
        DayUse { requests, tokens }
    }

    #[test]
    fn steps_are_a_hundredth_of_a_small_bound() {
        let settings = BoundSettings::default();
        let check = |requests_a_day, tokens_a_day, pending, expected| {
            let bounds = TenantBounds { requests_a_day, tokens_a_day, ..TenantBounds::default() };
            assert_eq!(is_step(&settings, &bounds, pending), expected, "{bounds:?} {pending:?}");
        };
        check(0, 0, used(1_000_000, 1_000_000), false);
        check(50, 0, used(0, 7), false);
        check(50, 0, used(1, 0), true);
        check(1_000, 0, used(9, 0), false);
        check(1_000, 0, used(10, 0), true);
        check(1_000_000, 0, used(99, 0), false);
        check(1_000_000, 0, used(100, 0), true);
        check(0, 100_000_000, used(500, 9_999), false);
        check(0, 100_000_000, used(500, 10_000), true);
    }

    #[test]
    fn what_cannot_be_written_stays_counted() {
        let mut meter = Meter::default();
        meter.begin_day(5);
        meter.pending = used(3, 40);
        assert_eq!(meter.begin_writing(), Some(used(3, 40)));
        meter.pending.add(used(1, 0));
        assert_eq!(meter.begin_writing(), None, "one at a time");
        assert_eq!(meter.used(), used(4, 40));
        meter.end_writing(5, None);
        assert_eq!((meter.pending, meter.used()), (used(4, 40), used(4, 40)));
        meter.begin_writing();
        // Another host had counted seven.
        meter.end_writing(5, Some(used(11, 40)));
        assert_eq!((meter.pending, meter.used()), (DayUse::default(), used(11, 40)));
        assert!(meter.is_idle());
        // The next day begins with what was not written.
        meter.pending = used(1, 0);
        meter.begin_day(6);
        assert_eq!((meter.used(), meter.stored), (used(1, 0), None));
        meter.begin_writing();
        meter.end_writing(5, Some(used(99, 99)));
        assert_eq!(meter.used(), DayUse::default(), "the day before is over");
        meter.begin_day(5);
        assert_eq!(meter.day, 6);
        meter.begin_day(4);
        assert_eq!(meter.day, 4);
    }

    #[test]
    fn a_refusal_tells_the_bound_and_when_it_ends() {
        let tenant = Tenant::new("acme".to_owned()).unwrap();
        let bounds = TenantBounds { requests_a_day: 5, tokens_a_day: 100, ..Default::default() };
        let check = |has: DayUse, more: DayUse, expected: &str| {
            let found = refuse_beyond(&tenant, &bounds, Millis(5), has, more).err();
            assert_eq!(found.map(|error| error.to_string()).unwrap_or_default(), expected);
        };
        check(used(4, 500), used(1, 0), "");
        check(
            used(5, 0),
            used(1, 0),
            "tenant `acme` has used 5 of 5 requests today (`bounds.requests_a_day`), and this takes 1",
        );
        check(used(9, 90), used(0, 10), "");
        check(
            used(0, 90),
            used(0, 11),
            "tenant `acme` has used 90 of 100 tokens today (`bounds.tokens_a_day`), and this takes 11",
        );
    }
}
