//! The database's time, which is the same for all hosts.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use icecore_domain::time::Millis;

use super::connection::PgConnection;
use crate::error::postgres::PgError;

/// How long a measurement holds.
const FRESH: Duration = Duration::from_secs(60);

/// Questions of which the one that was answered fastest counts.
const QUESTIONS: usize = 3;

const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// Tells the database's time from this machine's monotonic clock.
#[derive(Debug)]
pub(super) struct DatabaseClock {
    measured: Mutex<Option<Measured>>,
    /// The latest time that was told.
    last: AtomicI64,
}

/// At that instant the database had that time.
#[derive(Debug, Clone, Copy)]
struct Measured {
    at: Instant,
    millis: i64,
}

impl DatabaseClock {
    pub(super) fn new() -> Self {
        Self { measured: Mutex::new(None), last: AtomicI64::new(i64::MIN) }
    }

    /// The database's time, which never goes back, or `None` before it was asked.
    pub(super) fn now(&self) -> Option<Millis> {
        let measured = (*self.measured.lock().unwrap_or_else(PoisonError::into_inner))?;
        let passed = i64::try_from(measured.at.elapsed().as_millis()).unwrap_or(i64::MAX);
        let now = measured.millis.saturating_add(passed);
        Some(Millis(self.last.fetch_max(now, Ordering::Relaxed).max(now)))
    }

    /// Whether it is time to ask again.
    pub(super) fn is_stale(&self) -> bool {
        let measured = *self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        measured.is_none_or(|measured| measured.at.elapsed() > FRESH)
    }

    /// Asks the database. Its answer is taken to be of the middle of the round trip.
    pub(super) fn measure(&self, connection: &PgConnection) -> Result<(), PgError> {
        let mut best: Option<(Duration, Measured)> = None;
        for _ in 0..QUESTIONS {
            let asked = Instant::now();
            let rows = connection.query(NOW, &[])?;
            let took = asked.elapsed();
            let Some(millis) = rows.first().and_then(|row| row.try_get(0).ok()) else { continue };
            if best.is_none_or(|(fastest, _)| took < fastest) {
                best = Some((took, Measured { at: asked + took / 2, millis }));
            }
        }
        if let Some((_, measured)) = best {
            *self.measured.lock().unwrap_or_else(PoisonError::into_inner) = Some(measured);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_and_never_back() {
        let clock = DatabaseClock::new();
        assert_eq!(clock.now(), None);
        assert!(clock.is_stale());
        let set = |millis| {
            *clock.measured.lock().unwrap() = Some(Measured { at: Instant::now(), millis });
        };
        set(1_000_000);
        let first = clock.now().unwrap();
        assert!(first.0 >= 1_000_000 && !clock.is_stale());
        set(500_000);
        assert!(clock.now().unwrap() >= first);
        set(2_000_000);
        assert!(clock.now().unwrap().0 >= 2_000_000);
    }
}
