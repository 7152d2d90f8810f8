//! What is to be done about a schedule at a moment.

use sha2::{Digest, Sha256};

use super::Timing;
use crate::time::Millis;

/// Missed instants that are recorded one by one, the newest; older ones are counted.
pub const MAX_MISSED_ROWS: usize = 1_000;

/// So many are counted at most; a count that is this is that or more.
pub const MAX_COUNTED: u64 = 100_000;

/// A clock that is behind what was handled by more than this was wrong before. Then the
/// schedule goes on from the clock, past the instants that have a record.
pub const REWIND_MILLIS: i64 = 3_600_000;

/// What is done about instants that were missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CatchUp {
    /// The last of them runs, once for all.
    #[default]
    Once,
    /// None runs, unless it is hardly late, or the only one there is.
    Skip,
}

crate::words!(CatchUp { Once = "once", Skip = "skip" });

impl CatchUp {
    /// By its word.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }
}

/// How a schedule stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing<'a> {
    pub id: &'a str,
    /// Every instant up to here was handled.
    pub handled_through: Millis,
    /// What is done about missed instants.
    pub catch_up: CatchUp,
    /// An instant fires up to so much later.
    pub jitter_millis: u64,
    /// Later than this is missed, where none is caught up with.
    pub late_millis: u64,
}

/// An instant to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upcoming {
    /// The instant, by which its tick is known.
    pub at: Millis,
    /// When it fires, with its jitter.
    pub fires_at: Millis,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Instants to record as missed, oldest first.
    pub missed: Vec<Millis>,
    /// Older ones that were missed too and are only counted.
    pub counted: u64,
    pub run: Option<Millis>,
    /// Every instant up to here is handled then.
    pub handled_through: Millis,
    /// What comes next; nothing, if nothing does.
    pub next: Option<Upcoming>,
}

/// What comes after a moment.
pub fn upcoming(timing: &Timing, id: &str, jitter_millis: u64, after: Millis) -> Option<Upcoming> {
    let at = timing.next_after(after)?;
    // An instant has fired before the next one comes.
    let room = timing.next_after(at).map_or(i64::MAX, |next| next.0 - at.0 - 1);
    let most = jitter_millis.min(room.max(0) as u64);
    let fires_at = Millis(at.0.saturating_add(jitter(id, at, most) as i64));
    Some(Upcoming { at, fires_at })
}

/// From 0 to `most`, the same whenever and wherever it is asked for.
fn jitter(id: &str, at: Millis, most: u64) -> u64 {
    if most == 0 {
        return 0;
    }
    let mut hash = Sha256::new();
    hash.update((id.len() as u64).to_be_bytes());
    hash.update(id.as_bytes());
    hash.update(at.0.to_be_bytes());
    let bytes: [u8; 32] = hash.finalize().into();
    let number = u64::from_be_bytes([
        bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
    ]);
    match most.checked_add(1) {
        Some(size) => number % size,
        None => number,
    }
}

/// What is to be done about a schedule now; nothing, if nothing is due.
pub fn plan(timing: &Timing, standing: &Standing<'_>, now: Millis) -> Option<Plan> {
    let Standing { id, handled_through, catch_up, jitter_millis, late_millis } = *standing;
    let next_of = |after| upcoming(timing, id, jitter_millis, after);
    if handled_through.0.saturating_sub(now.0) > REWIND_MILLIS {
        let next = next_of(now);
        let (missed, counted, run) = (Vec::new(), 0, None);
        return Some(Plan { missed, counted, run, handled_through: now, next });
    }
    if next_of(handled_through).is_none_or(|next| next.fires_at > now) {
        return None;
    }
    let (mut missed, began) = newest(timing, handled_through, now);
    // The last has its jitter still to wait for; all before it have not.
    let is_waiting = |at: &Millis| next_of(Millis(at.0 - 1)).is_some_and(|it| it.fires_at > now);
    if missed.last().is_some_and(is_waiting) {
        missed.pop();
    }
    let last = *missed.last()?;
    let is_late = now.0.saturating_sub(last.0) > late_millis.saturating_add(jitter_millis) as i64;
    let run = match (catch_up, timing) {
        (CatchUp::Skip, Timing::Cron(_)) if is_late => None,
        // A single moment has no next one to wait for.
        _ => missed.pop(),
    };
    let counted = count(timing, handled_through, began) + shorten(&mut missed);
    Some(Plan {
        missed,
        counted: counted.min(MAX_COUNTED),
        run,
        handled_through: last,
        next: next_of(last),
    })
}

/// The instants up to `now` that come after `began`, which is answered too: all after
/// `handled`, or more than are recorded one by one.
fn newest(timing: &Timing, handled: Millis, now: Millis) -> (Vec<Millis>, Millis) {
    // Instants are whole seconds, so that this holds no more than there is room for.
    let mut window = MAX_MISSED_ROWS as i64 * 1_000;
    loop {
        let began = Millis(now.0.saturating_sub(window).max(handled.0));
        let mut found = Vec::new();
        let mut at = began;
        while let Some(next) = timing.next_after(at).filter(|next| *next <= now) {
            found.push(next);
            at = next;
        }
        if began == handled || found.len() > MAX_MISSED_ROWS + 1 {
            return (found, began);
        }
        window = window.saturating_mul(2);
    }
}

/// How many instants there are after `from` and up to `through`, counted no further than
/// it matters.
fn count(timing: &Timing, from: Millis, through: Millis) -> u64 {
    let mut counted = 0;
    let mut at = from;
    while counted < MAX_COUNTED {
        let Some(next) = timing.next_after(at).filter(|next| *next <= through) else { break };
        counted += 1;
        at = next;
    }
    counted
}

/// Leaves the newest that are recorded, and answers how many went.
fn shorten(missed: &mut Vec<Millis>) -> u64 {
    let extra = missed.len().saturating_sub(MAX_MISSED_ROWS);
    missed.drain(..extra);
    extra as u64
}

#[cfg(test)]
#[path = "planner_tests.rs"]
mod tests;
