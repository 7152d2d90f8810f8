//! When something that failed is tried again.

use std::time::Duration;

/// The tries that are left, and the pauses between them.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    /// How often it may be tried again.
    pub tries: u32,
    /// The next pause, by which it gets longer each time.
    pub pause: Duration,
    pub factor: u32,
    /// A server that asks for a longer pause is not tried again.
    pub longest: Duration,
}

impl Backoff {
    /// The pause before the next try, or nothing if there is none: all tries are used,
    /// the server asks for a pause that is too long, or the pause would outlast the time
    /// that is left.
    pub fn next(&mut self, asked: Option<Duration>, left: Duration) -> Option<Duration> {
        let pause = asked.map_or(self.pause, |asked| asked.max(self.pause));
        if self.tries == 0 || pause >= left || pause > self.longest.max(self.pause) {
            return None;
        }
        self.tries -= 1;
        self.pause = self.pause.saturating_mul(self.factor);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn backoff() -> Backoff {
        Backoff { tries: 3, pause: SECOND, factor: 2, longest: SECOND * 3 }
    }

    #[test]
    fn pauses_grow_until_the_tries_are_used() {
        let mut backoff = backoff();
        let pauses: Vec<Option<Duration>> =
            (0..4).map(|_| backoff.next(None, SECOND * 60)).collect();
        assert_eq!(pauses, [Some(SECOND), Some(SECOND * 2), Some(SECOND * 4), None]);
    }

    #[test]
    fn a_server_may_ask_for_a_longer_pause_within_limits() {
        assert_eq!(backoff().next(Some(SECOND * 2), SECOND * 60), Some(SECOND * 2));
        assert_eq!(backoff().next(Some(Duration::ZERO), SECOND * 60), Some(SECOND));
        assert_eq!(backoff().next(Some(SECOND * 4), SECOND * 60), None);
        assert_eq!(backoff().next(None, SECOND), None);
    }
}
