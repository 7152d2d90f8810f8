//! How long a store's work takes, counted without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper ends of the classes of [`Times`], in seconds; one more class has no end.
pub const TIME_BOUNDS_SECONDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 10.0];

const CLASSES: usize = TIME_BOUNDS_SECONDS.len() + 1;

/// How the work of a store went since it was opened, by this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreTimings {
    /// Reads, from the question to the answer.
    pub reads: Times,
    /// Writes, from the question until they are durable or refused.
    pub writes: Times,
    /// What writes waited before the writer took them.
    pub waits: Times,
    /// Transactions of the writer, their sync included.
    pub commits: Times,
    /// Writes that went into those transactions.
    pub committed_writes: u64,
    pub queue_depth: u64,
    pub panics: u64,
}

/// A count of times by how long they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// How many are at most as long as the bound of that place and longer than the
    /// one before.
    pub classes: [u64; CLASSES],
    /// All of them together, in nanoseconds.
    pub nanos: u64,
}

impl Times {
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }
}

/// [`Times`] that any thread adds to.
#[derive(Debug, Default)]
pub(crate) struct Clocked {
    classes: [AtomicU64; CLASSES],
    nanos: AtomicU64,
}

impl Clocked {
    pub(crate) fn add(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let class = TIME_BOUNDS_SECONDS.iter().position(|bound| seconds <= *bound);
        self.classes[class.unwrap_or(CLASSES - 1)].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Times {
        Times {
            classes: std::array::from_fn(|class| self.classes[class].load(Ordering::Relaxed)),
            nanos: self.nanos.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_counted_by_their_length() {
        let clocked = Clocked::default();
        for micros in [0, 100, 101, 10_000_000, 11_000_000] {
            clocked.add(Duration::from_micros(micros));
        }
        let times = clocked.read();
        assert_eq!((times.classes[0], times.classes[1]), (2, 1));
        assert_eq!((times.classes[CLASSES - 2], times.classes[CLASSES - 1]), (1, 1));
        assert_eq!((times.count(), times.nanos), (5, 21_000_201_000));
    }
}
