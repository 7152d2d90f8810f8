//! What a tenant keeps, what it may keep, and what it used on a day.
//!
//! A bound on what is kept is compared inside the transaction that adds to it, so that
//! many hosts together stay within it. What is used on a day is counted by the hosts, which
//! add it here in steps.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use icecore_domain::ids::Tenant;
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;

use crate::error::{KeptBound, Result, StoreError};

const DAY_MILLIS: i64 = 24 * 3600 * 1000;

/// What a tenant may keep in all; without a number it is without a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeptBounds {
    /// Turns that are there. Those that were erased or let go do not count.
    pub turns: Option<u64>,
    /// Bytes of [`Usage::bytes`].
    pub bytes: Option<u64>,
}

/// What every tenant may keep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Those who have no bounds of their own.
    pub everyone: KeptBounds,
    /// Those who have.
    pub tenants: BTreeMap<Tenant, KeptBounds>,
}

impl Bounds {
    /// What one tenant may keep.
    pub fn of(&self, tenant: &Tenant) -> KeptBounds {
        self.tenants.get(tenant).copied().unwrap_or(self.everyone)
    }
}

/// Bounds that a store holds. They can be given anew while it is at work.
#[derive(Debug, Default)]
pub(crate) struct HeldBounds(RwLock<Bounds>);

impl HeldBounds {
    pub(crate) fn set(&self, bounds: Bounds) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = bounds;
    }

    pub(crate) fn of(&self, tenant: &Tenant) -> KeptBounds {
        self.0.read().unwrap_or_else(PoisonError::into_inner).of(tenant)
    }
}

/// What a tenant keeps, and what it used on a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Turns that were neither erased nor let go.
    pub turns: u64,
    /// Bytes of their bodies as they lie in whatever tier, of entries with their tags, and
    /// of the versions of files that are kept. Nothing that is derived is among them.
    pub bytes: u64,
    /// What it used on the day that was asked for.
    pub day: DayUse,
}

/// What all tenants keep and used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllUsage {
    /// How many they are.
    pub tenants: u64,
    /// The sum.
    pub sum: Usage,
}

/// What was used on a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DayUse {
    /// Requests.
    pub requests: u64,
    /// Tokens that were taken in or went through models.
    pub tokens: u64,
}

impl DayUse {
    /// Whether there is nothing to count.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what was used besides.
    pub fn add(&mut self, more: DayUse) {
        self.requests = self.requests.saturating_add(more.requests);
        self.tokens = self.tokens.saturating_add(more.tokens);
    }
}

/// The day of a moment, in UTC, in days since 1970.
pub fn day_of(at: Millis) -> i64 {
    at.0.div_euclid(DAY_MILLIS)
}

/// When a day ends.
pub fn end_of_day(day: i64) -> Millis {
    Millis(day.saturating_add(1).saturating_mul(DAY_MILLIS))
}

/// Whether what was counted on `counted` goes on on `day`. A host whose clock is behind
/// counts with those who are a day on; a day farther off is some clock's mistake.
pub(crate) fn goes_on(counted: i64, day: i64) -> bool {
    counted == day || counted == day.saturating_add(1)
}

/// Bytes of an entry that count.
pub(crate) fn entry_bytes(content: &RedactedText, tags: &[RedactedText]) -> i64 {
    let tags: Vec<&str> = tags.iter().map(RedactedText::as_str).collect();
    (content.as_str().len() + serde_json::json!(tags).to_string().len()) as i64
}

/// What a write adds to what its tenant keeps; less than nothing is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Change {
    pub(crate) turns: i64,
    pub(crate) bytes: i64,
}

impl Change {
    pub(crate) fn bytes(bytes: i64) -> Self {
        Self { turns: 0, bytes }
    }

    pub(crate) fn add(&mut self, other: Change) {
        self.turns += other.turns;
        self.bytes += other.bytes;
    }
}

/// Refuses a change that goes beyond a bound; `after` is what is kept with it. What takes
/// away is never refused, also far beyond a bound that was lowered.
pub(crate) fn refuse_beyond(
    bounds: KeptBounds,
    tenant: &Tenant,
    change: Change,
    after: Change,
) -> Result<()> {
    let each = [
        (KeptBound::Turns, bounds.turns, change.turns, after.turns),
        (KeptBound::Bytes, bounds.bytes, change.bytes, after.bytes),
    ];
    for (bound, most, more, after) in each {
        let Some(most) = most else { continue };
        if more > 0 && after.max(0) as u64 > most {
            return Err(StoreError::BoundReached {
                tenant: tenant.clone(),
                bound,
                most,
                used: (after - more).max(0) as u64,
                more: more as u64,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bounds: (u64, u64), change: (i64, i64), after: (i64, i64), expected: &str) {
        let bounds = KeptBounds { turns: Some(bounds.0), bytes: Some(bounds.1) };
        let [change, after] = [change, after].map(|(turns, bytes)| Change { turns, bytes });
        let tenant = Tenant::new("acme".to_owned()).unwrap();
        let found = refuse_beyond(bounds, &tenant, change, after);
        assert_eq!(found.err().map(|error| error.to_string()).unwrap_or_default(), expected);
    }

    #[test]
    fn only_what_adds_is_refused() {
        check((3, 99), (1, 9), (3, 99), "");
        check(
            (3, 99),
            (1, 9),
            (4, 90),
            "tenant `acme` keeps 3 of 3 turns (`bounds.turns`), and this adds 1",
        );
        check(
            (3, 99),
            (1, 9),
            (3, 100),
            "tenant `acme` keeps 91 of 99 bytes (`bounds.bytes`), and this adds 9",
        );
        // A bound was lowered, and something is taken away or merely moved.
        check((3, 99), (-1, -9), (50, 1_000), "");
        check((3, 99), (0, 0), (50, 1_000), "");
    }

    #[test]
    fn a_clock_that_is_a_little_behind_counts_with_the_others() {
        assert_eq!(day_of(Millis(DAY_MILLIS - 1)), 0);
        assert_eq!(day_of(Millis(-1)), -1);
        assert_eq!(end_of_day(day_of(Millis(5))), Millis(DAY_MILLIS));
        assert!(goes_on(7, 7) && goes_on(8, 7));
        assert!(!goes_on(6, 7) && !goes_on(9, 7));
    }
}
