//! What happened, in order: a hash of all of it, and the lines for whoever reads them.

use std::fmt::{Arguments, Write};
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// Violations that are kept of one history.
const KEPT: usize = 8;

/// A history as it is told.
pub struct Story {
    begun: Instant,
    told: Mutex<Told>,
}

struct Told {
    hash: DefaultHasher,
    lines: Option<Vec<String>>,
    count: u64,
    broken: Vec<String>,
}

impl Story {
    /// Begins one, with lines to read or without.
    pub fn new(is_read: bool) -> Self {
        let told = Told {
            hash: DefaultHasher::new(),
            lines: is_read.then(Vec::new),
            count: 0,
            broken: Vec::new(),
        };
        Self { begun: Instant::now(), told: Mutex::new(told) }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since it began.
    pub fn millis(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Tells the next thing.
    pub fn tell(&self, what: Arguments<'_>) {
        let millis = self.millis();
        let mut told = self.told();
        told.count += 1;
        told.hash.write_u64(millis);
        // A hasher takes whatever it is given.
        let _ = Hashing(&mut told.hash).write_fmt(what);
        if let Some(lines) = &mut told.lines {
            lines.push(format!("{:>6}.{:03}  {what}", millis / 1000, millis % 1000));
        }
    }

    /// Tells that a promise was broken.
    pub fn break_promise(&self, what: Arguments<'_>) {
        self.tell(format_args!("BROKEN: {what}"));
        let line = what.to_string();
        let mut told = self.told();
        if told.broken.len() < KEPT && !told.broken.contains(&line) {
            told.broken.push(line);
        }
    }

    /// How much was told.
    pub fn count(&self) -> u64 {
        self.told().count
    }

    /// Whether a promise was broken.
    pub fn is_broken(&self) -> bool {
        !self.told().broken.is_empty()
    }

    /// Its hash, how much was told, what was broken, and the lines.
    pub fn end(&self) -> (u64, u64, Vec<String>, Vec<String>) {
        let mut told = self.told();
        let lines = told.lines.take().unwrap_or_default();
        (told.hash.finish(), told.count, std::mem::take(&mut told.broken), lines)
    }
}

struct Hashing<'a>(&'a mut DefaultHasher);

impl Write for Hashing<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
