//! What a tenant may keep and use, and what it does.
//!
//! What is kept is bounded by the store, inside the transaction that adds to it. What is
//! used on a day is counted here, by each host for itself, and written in steps: a bound of
//! a day holds over all hosts but for one step a host. A day is one of UTC.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use icecore_domain::ids::Tenant;
use icecore_domain::time::Millis;
use icecore_settings::{MOST, settings};
use icecore_store::{AllUsage, Bounds, DayUse, KeptBounds, Usage, day_of, end_of_day};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::error::{MemoryError, Result};
use crate::memory::{INLINE_BYTES, Inner, Memory};

settings! {
    /// What tenants may keep and use.
    #[derive(PartialEq, Eq)]
    pub struct BoundSettings {
        /// At `turns` and `bytes` nothing more is stored until something is forgotten; reading,
        /// `forget` and `export` go on. A day is one of UTC. See docs/bounds.md for what counts.
        everyone: TenantBounds => at "bounds.";
        /// A tenant may have bounds of its own. What its table leaves out is as above.
        tenants: BTreeMap<Tenant, TenantBounds> => tables "bounds.tenants" of everyone;
        /// Requests of a tenant that a host counts before it writes them down. Each host counts a
        /// day's use by itself, so a bound of a day is exceeded by at most one step for each other
        /// host. A step is never more than a hundredth of the bound.
        step_requests: u64 = 100, 1..=1_000_000 => advanced;
        /// The same for tokens.
        step_tokens: u64 = 10_000, 1..=1_000_000_000 => advanced;
        /// After this long a host writes in any case.
        step_seconds: u64 = 10, 1..=3_600 => advanced;
    }

    /// What a tenant may keep and use; 0 is without a bound.
    #[derive(PartialEq, Eq, Copy)]
    pub struct TenantBounds {
        /// Turns that are kept; 0: no limit.
        turns: u64 = 0, 0..=MOST;
        /// Bytes of turns, entries and files as they are stored; 0: no limit.
        bytes: u64 = 0, 0..=MOST;
        /// Requests over HTTP; 0: no limit.
        requests_a_day: u64 = 0, 0..=MOST;
        /// Tokens of stored turns, entries and files, and those that models read and wrote;
        /// 0: no limit.
        tokens_a_day: u64 = 0, 0..=MOST;
    }
}

impl TenantBounds {
    fn kept(&self) -> KeptBounds {
        let bound = |most: u64| (most > 0).then_some(most);
        KeptBounds { turns: bound(self.turns), bytes: bound(self.bytes) }
    }

    fn of_day(&self, bound: DayBound) -> Option<u64> {
        let most = match bound {
            DayBound::Requests => self.requests_a_day,
            DayBound::Tokens => self.tokens_a_day,
        };
        (most > 0).then_some(most)
    }

    fn is_daily(&self) -> bool {
        self.requests_a_day > 0 || self.tokens_a_day > 0
    }
}

impl BoundSettings {
    /// What one tenant may keep and use.
    pub fn of(&self, tenant: &Tenant) -> TenantBounds {
        self.tenants.get(tenant).copied().unwrap_or(self.everyone)
    }

    /// What the store bounds.
    pub(crate) fn kept(&self) -> Bounds {
        let own = self.tenants.iter().map(|(tenant, bounds)| (tenant.clone(), bounds.kept()));
        Bounds { everyone: self.everyone.kept(), tenants: own.collect() }
    }

    /// Whether so much is written at once. A bound that is small has steps that are
    /// smaller: a hundredth of it.
    fn is_step(&self, bounds: &TenantBounds, pending: DayUse) -> bool {
        let step = |most: u64, step: u64| if most == 0 { u64::MAX } else { step.min(most / 100) };
        pending.requests > 0 && pending.requests >= step(bounds.requests_a_day, self.step_requests)
            || pending.tokens > 0 && pending.tokens >= step(bounds.tokens_a_day, self.step_tokens)
    }
}

/// Something that is bounded for a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DayBound {
    /// [`TenantBounds::requests_a_day`].
    Requests,
    /// [`TenantBounds::tokens_a_day`].
    Tokens,
}

impl DayBound {
    /// What is counted.
    pub fn as_str(self) -> &'static str {
        match self {
            DayBound::Requests => "requests",
            DayBound::Tokens => "tokens",
        }
    }

    /// The setting.
    pub fn setting(self) -> &'static str {
        match self {
            DayBound::Requests => "bounds.requests_a_day",
            DayBound::Tokens => "bounds.tokens_a_day",
        }
    }
}

/// What a tenant keeps and used today, beside what it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantUsage {
    /// What it keeps and used.
    pub used: Usage,
    /// What it may.
    pub bounds: TenantBounds,
    /// When the day ends.
    pub day_ends: Millis,
}

/// How often something was refused at a bound.
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

/// What this host counts for each tenant. Those who do nothing are not among them.
#[derive(Default)]
pub(crate) struct Metering {
    tenants: Mutex<BTreeMap<Tenant, Meter>>,
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

impl Metering {
    fn tenants(&self) -> MutexGuard<'_, BTreeMap<Tenant, Meter>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with what is counted for a tenant.
    fn with<T>(&self, tenant: &Tenant, day: i64, act: impl FnOnce(&mut Meter) -> T) -> T {
        let mut tenants = self.tenants();
        let meter = tenants.entry(tenant.clone()).or_default();
        meter.begin_day(day);
        act(meter)
    }
}

/// Tokens that are being taken in. Unless they are kept they were not.
pub(crate) struct Taking {
    inner: Arc<Inner>,
    tenant: Tenant,
    tokens: u64,
}

impl Taking {
    /// Counts so many of them for good.
    pub(crate) fn keep(self, tokens: u64) {
        let day = self.inner.today();
        let more = DayUse { requests: 0, tokens };
        self.inner.metering.with(&self.tenant, day, |meter| meter.pending.add(more));
    }

    /// Counts all of them for good.
    pub(crate) fn keep_all(self) {
        let tokens = self.tokens;
        self.keep(tokens);
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        let mut tenants = self.inner.metering.tenants();
        if let Some(meter) = tenants.get_mut(&self.tenant) {
            meter.reserved = meter.reserved.saturating_sub(self.tokens);
        }
    }
}

impl Inner {
    fn today(&self) -> i64 {
        day_of(self.clock.now())
    }
}

/// Tenants whose counts are written side by side.
const WRITTEN_AT_ONCE: usize = 64;

impl Memory {
    /// Counts a request of a tenant, or refuses it where it has had all of today's.
    pub async fn admit_request(&self, tenant: &Tenant) -> Result<()> {
        self.admit(tenant, DayUse { requests: 1, tokens: 0 }, |meter| {
            meter.pending.requests += 1;
        })
        .await
    }

    /// Takes tokens in, or refuses them where that is more than is left of today's.
    pub(crate) async fn take_tokens(&self, tenant: &Tenant, tokens: u64) -> Result<Taking> {
        self.admit(tenant, DayUse { requests: 0, tokens }, |meter| {
            meter.reserved = meter.reserved.saturating_add(tokens);
        })
        .await?;
        Ok(Taking { inner: self.inner.clone(), tenant: tenant.clone(), tokens })
    }

    /// The same of a text.
    pub(crate) async fn take_text(&self, tenant: &Tenant, text: &str) -> Result<Taking> {
        let tokens = match text.len() <= INLINE_BYTES {
            true => self.inner.counter.count(text),
            false => {
                let (inner, text) = (self.inner.clone(), text.to_owned());
                crate::error::off_thread(move || inner.counter.count(&text)).await?
            }
        };
        self.take_tokens(tenant, u64::from(tokens)).await
    }

    async fn admit(
        &self,
        tenant: &Tenant,
        more: DayUse,
        take: impl FnOnce(&mut Meter),
    ) -> Result<()> {
        let (bounds, now) = (self.inner.bounds.of(tenant), self.now());
        let (day, metering) = (day_of(now), &self.inner.metering);
        if bounds.is_daily() && metering.with(tenant, day, |meter| meter.stored.is_none()) {
            let stored = self.inner.store.tenant_usage(tenant, day).await?.day;
            metering.with(tenant, day, |meter| meter.stored.get_or_insert(stored).requests);
        }
        let pending = metering.with(tenant, day, |meter| {
            refuse_beyond(tenant, &bounds, now, meter.used(), more)?;
            take(meter);
            Ok(meter.pending)
        });
        let pending = pending.inspect_err(|error| self.inner.counters.refused(error))?;
        if self.inner.bounds.is_step(&bounds, pending) {
            self.write_usage_of(tenant).await;
        }
        Ok(())
    }

    /// Writes what is counted for a tenant. What cannot be written stays counted here.
    async fn write_usage_of(&self, tenant: &Tenant) {
        let (metering, day) = (&self.inner.metering, self.inner.today());
        let Some(more) = metering.with(tenant, day, Meter::begin_writing) else { return };
        let written = self.inner.store.count_use(tenant, day, more).await;
        let answered = written.inspect_err(|error| {
            tracing::warn!(%error, "what a tenant used could not be written, will try again");
        });
        let answered = answered.ok();
        metering.with(tenant, self.inner.today(), |meter| meter.end_writing(day, answered));
    }

    /// Writes all that is counted here and not written. A host does so by itself, and at
    /// its end; a program that ends without it loses the last steps.
    pub async fn write_usage(&self) {
        let due: Vec<Tenant> = {
            let mut tenants = self.inner.metering.tenants();
            tenants.retain(|_, meter| !meter.is_idle() || std::mem::take(&mut meter.is_fresh));
            let due = tenants.iter().filter(|(_, meter)| !meter.pending.is_empty());
            due.map(|(tenant, _)| tenant.clone()).collect()
        };
        let mut writing = JoinSet::new();
        for tenant in due {
            if writing.len() >= WRITTEN_AT_ONCE {
                writing.join_next().await;
            }
            let memory = self.clone();
            writing.spawn(async move { memory.write_usage_of(&tenant).await });
        }
        writing.join_all().await;
    }

    /// Writes what is counted every so often, until the end.
    pub(crate) async fn write_usage_until(&self, mut closed: watch::Receiver<bool>) {
        let pause = Duration::from_secs(self.inner.bounds.step_seconds.max(1));
        loop {
            let is_closed = tokio::select! {
                _ = closed.wait_for(|closed| *closed) => true,
                () = tokio::time::sleep(pause) => false,
            };
            self.write_usage().await;
            if is_closed {
                return;
            }
        }
    }

    /// What a tenant keeps and used today, with what this host has not written yet.
    pub async fn usage(&self, tenant: &Tenant) -> Result<TenantUsage> {
        let day = self.inner.today();
        let mut used = self.inner.store.tenant_usage(tenant, day).await?;
        let meter = self.inner.metering.tenants().get(tenant).copied();
        if let Some(meter) = meter.filter(|meter| meter.day == day) {
            used.day.add(meter.pending);
        }
        let bounds = self.inner.bounds.of(tenant);
        Ok(TenantUsage { used, bounds, day_ends: end_of_day(day) })
    }

    /// What all tenants keep and used today, as far as it is written.
    pub async fn all_usage(&self) -> Result<AllUsage> {
        Ok(self.inner.store.all_usage(self.inner.today()).await?)
    }

    /// What bounds tenants.
    pub fn bounds(&self) -> &BoundSettings {
        &self.inner.bounds
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
        (DayBound::Requests, used.requests, more.requests),
        (DayBound::Tokens, used.tokens, more.tokens),
    ];
    for (bound, used, more) in each {
        let Some(most) = bounds.of_day(bound).filter(|_| more > 0) else { continue };
        if used.saturating_add(more) > most {
            let ends_at = end_of_day(day_of(now));
            return Err(MemoryError::DayBoundReached {
                tenant: tenant.clone(),
                bound,
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
            assert_eq!(settings.is_step(&bounds, pending), expected, "{bounds:?} {pending:?}");
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
