//! Work that comes round again and again.

use std::time::Duration;

use tokio::time::Instant;

/// Says when it is time again for something; the first time at once.
pub(crate) struct Every {
    pause: Duration,
    last: Option<Instant>,
}

impl Every {
    pub(crate) fn new(pause: Duration) -> Self {
        Self { pause, last: None }
    }

    pub(crate) fn is_due(&mut self) -> bool {
        let is_due = self.last.is_none_or(|last| last.elapsed() >= self.pause);
        if is_due {
            self.last = Some(Instant::now());
        }
        is_due
    }
}
