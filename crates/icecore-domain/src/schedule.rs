//! When something is done by itself: cron lines in a time zone, and delays.
//!
//! An instant is what a schedule names, without jitter, and is what a tick is known by.
//! Which instants there are follows from the line and the zone alone, wherever one
//! begins to look, so that any number of hosts agree on them. The zones are those that
//! the program brings along.

mod cron_line;
mod planner;
mod zone;

pub use cron_line::{CronLine, Field, MAX_LINE_CHARS, ScheduleError};
pub use planner::{
    CatchUp, MAX_COUNTED, MAX_MISSED_ROWS, Plan, REWIND_MILLIS, Standing, Upcoming, plan, upcoming,
};
pub use zone::Zone;

use crate::time::Millis;

/// The instants of a schedule.
#[derive(Debug, Clone)]
pub enum Timing {
    /// All that a line names.
    Cron(CronLine),
    Once(Millis),
}

impl Timing {
    /// The first instant after a moment; none if there is no more.
    pub fn next_after(&self, at: Millis) -> Option<Millis> {
        match self {
            Timing::Cron(line) => line.next_after(at),
            Timing::Once(instant) => (*instant > at).then_some(*instant),
        }
    }

    /// The next instants after a moment, so many at most.
    pub fn next(&self, after: Millis, count: usize) -> Vec<Millis> {
        let mut found = Vec::new();
        let mut at = after;
        while found.len() < count {
            let Some(next) = self.next_after(at) else { break };
            found.push(next);
            at = next;
        }
        found
    }
}
