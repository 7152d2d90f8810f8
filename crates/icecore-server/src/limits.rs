//! Every number that bounds the work of a request, by name.

use std::time::Duration;

/// The limits of the door. An error that comes from one names it.
///
/// The limit on a turn's content, 1 MiB, is the memory's own:
/// [`MAX_CONTENT_BYTES`](icecore::MAX_CONTENT_BYTES). So are those on entries:
/// [`EntrySettings`](icecore::EntrySettings).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// `body_bytes`: size of a request's body. Default 8 MiB.
    pub body_bytes: usize,
    /// `page`: the most items that one page of a list holds. Default 500.
    pub page: usize,
    /// `page_default`: items of a page when no `limit` is given. Default 100.
    pub page_default: usize,
    /// `turns_per_request`: turns that one request may add. Default 10,000.
    pub turns_per_request: usize,
    /// `context_tokens`: the largest budget of a context. Default 1,000,000.
    pub context_tokens: u32,
    /// `idempotency_key_bytes`: length of an `Idempotency-Key`. Default 255.
    pub idempotency_key_bytes: usize,
    /// `concurrent_requests`: requests worked on at once; more are answered 503.
    /// Default 256.
    pub concurrent_requests: usize,
    /// `connections`: open connections; more wait to be accepted. Default 1,024.
    pub connections: usize,
    /// `event_streams`: followers of the event log at once. Default 64.
    pub event_streams: usize,
    /// `request_seconds`: time to read and answer a request. Default 60.
    pub request_seconds: u64,
    /// `header_seconds`: time to send a request's head, and how long an idle
    /// connection stays open. Default 60.
    pub header_seconds: u64,
    /// `shutdown_seconds`: time that accepted requests have to finish once the
    /// door closes. Default 30.
    pub shutdown_seconds: u64,
    /// `ready_pending`: branches with derived work due beyond which the host says
    /// that it is not ready. Default 10,000.
    pub ready_pending: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 8 << 20,
            page: 500,
            page_default: 100,
            turns_per_request: 10_000,
            context_tokens: 1_000_000,
            idempotency_key_bytes: 255,
            concurrent_requests: 256,
            connections: 1_024,
            event_streams: 64,
            request_seconds: 60,
            header_seconds: 60,
            shutdown_seconds: 30,
            ready_pending: 10_000,
        }
    }
}

/// No count of places may be above this.
const MOST_PLACES: usize = 1 << 16;

impl Limits {
    /// The name of a limit under which nothing would work, with what it must be.
    pub fn check(&self) -> Result<(), String> {
        let counts = [
            ("body_bytes", self.body_bytes, usize::MAX),
            ("page", self.page, usize::MAX),
            ("page_default", self.page_default, self.page),
            ("turns_per_request", self.turns_per_request, usize::MAX),
            ("context_tokens", self.context_tokens as usize, usize::MAX),
            ("idempotency_key_bytes", self.idempotency_key_bytes, usize::MAX),
            ("concurrent_requests", self.concurrent_requests, MOST_PLACES),
            ("connections", self.connections, MOST_PLACES),
            ("event_streams", self.event_streams, MOST_PLACES),
            ("request_seconds", self.request_seconds as usize, usize::MAX),
            ("header_seconds", self.header_seconds as usize, usize::MAX),
        ];
        match counts.iter().find(|(_, value, most)| !(1..=*most).contains(value)) {
            None => Ok(()),
            Some((name, value, usize::MAX)) => {
                Err(format!("`{name}` is {value}, and must be at least 1"))
            }
            Some((name, value, most)) => {
                Err(format!("`{name}` is {value}, and must be from 1 to {most}"))
            }
        }
    }

    pub(crate) fn request_time(&self) -> Duration {
        Duration::from_secs(self.request_seconds)
    }

    pub(crate) fn header_time(&self) -> Duration {
        Duration::from_secs(self.header_seconds)
    }

    pub(crate) fn shutdown_time(&self) -> Duration {
        Duration::from_secs(self.shutdown_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_promised_limits_are_the_defaults() {
        let limits = Limits::default();
        assert_eq!(limits.body_bytes, 8 * 1024 * 1024);
        assert_eq!(limits.page, 500);
        assert_eq!(limits.concurrent_requests, 256);
        assert_eq!(limits.request_seconds, 60);
        assert_eq!(icecore::MAX_CONTENT_BYTES, 1024 * 1024);
        assert_eq!(limits.check(), Ok(()));
    }

    #[test]
    fn a_limit_that_stops_everything_is_refused() {
        let check = |limits: Limits, name: &str| {
            assert!(limits.check().unwrap_err().contains(name), "{limits:?}");
        };
        let usual = Limits::default;
        check(Limits { page: 0, ..usual() }, "`page`");
        check(Limits { page_default: 501, ..usual() }, "`page_default`");
        check(Limits { concurrent_requests: 0, ..usual() }, "`concurrent_requests`");
        check(Limits { connections: 1 << 20, ..usual() }, "`connections`");
        check(Limits { request_seconds: 0, ..usual() }, "`request_seconds`");
    }
}
