//! What a tenant stores, what it may store, and what it used on a day.
//!
//! A bound is compared inside the transaction that adds to what is stored, so that many
//! hosts together stay within it. Hosts count what is used on a day themselves, and add it
//! here in steps.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use icecore_domain::ids::Tenant;
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;

use crate::error::{KeptBound, Result, StoreError};

const DAY_MILLIS: i64 = 24 * 3600 * 1000;

/// What a tenant may store at a time; `None` is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeptBounds {
    /// Erased and expired turns do not count.
    pub turns: Option<u64>,
    /// As counted in [`Usage::bytes`].
    pub bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bounds {
    /// For tenants that are not in `tenants`.
    pub everyone: KeptBounds,
    pub tenants: BTreeMap<Tenant, KeptBounds>,
}

impl Bounds {
    pub fn of(&self, tenant: &Tenant) -> KeptBounds {
        self.tenants.get(tenant).copied().unwrap_or(self.everyone)
    }
}

/// The bounds of an open store, which can be replaced while it is in use.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub turns: u64,
    /// Bytes of their bodies as stored in whatever tier, of entries with their tags, and of
    /// all stored versions of files. Derived data does not count.
    pub bytes: u64,
    pub day: DayUse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AllUsage {
    pub tenants: u64,
    pub sum: Usage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DayUse {
    pub requests: u64,
    /// Tokens that were ingested or went through models.
    pub tokens: u64,
}

impl DayUse {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn add(&mut self, more: DayUse) {
        self.requests = self.requests.saturating_add(more.requests);
        self.tokens = self.tokens.saturating_add(more.tokens);
    }
}

/// The day of a moment, in UTC, in days since 1970.
pub fn day_of(at: Millis) -> i64 {
    at.0.div_euclid(DAY_MILLIS)
}

pub fn end_of_day(day: i64) -> Millis {
    Millis(day.saturating_add(1).saturating_mul(DAY_MILLIS))
}

/// Whether counters of day `counted` are added to on `day`. A host whose clock is behind
/// counts with those that are one day ahead; a day farther off is some clock's mistake.
pub(crate) fn goes_on(counted: i64, day: i64) -> bool {
    counted == day || counted == day.saturating_add(1)
}

pub(crate) fn entry_bytes(content: &RedactedText, tags: &[RedactedText]) -> i64 {
    (content.as_str().len() + tags_json(tags).len()) as i64
}

pub(crate) fn tags_json(tags: &[RedactedText]) -> String {
    let tags: Vec<&str> = tags.iter().map(RedactedText::as_str).collect();
    serde_json::json!(tags).to_string()
}

/// How much a write adds to what its tenant stores; negative where it deletes.
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

/// Refuses a change that goes beyond a bound; `after` is what is stored with it. A deletion
/// is never refused, however far beyond a lowered bound the tenant is.
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
