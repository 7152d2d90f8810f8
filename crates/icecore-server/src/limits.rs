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
    /// `page_bytes`: content of a page of turns; one turn at least. Default 32 MiB:
    /// a caller that takes a short page for the last one shall rarely be wrong.
    pub page_bytes: usize,
    /// `turns_per_request`: turns that one request may add. Default 10,000.
    pub turns_per_request: usize,
    /// `context_tokens`: the largest budget of a context. Default 1,000,000.
    pub context_tokens: u32,
    /// `idempotency_key_bytes`: length of an `Idempotency-Key`. Default 255.
    pub idempotency_key_bytes: usize,
    /// `concurrent_requests`: requests worked on at once; more wait in line.
    /// Default 256.
    pub concurrent_requests: usize,
    /// `queue_seconds`: how long a request waits in line, for a place or for memory,
    /// before it is answered 503. Default 10.
    pub queue_seconds: u64,
    /// `buffered_bytes`: memory for large bodies in all. Default 256 MiB.
    pub buffered_bytes: usize,
    /// `answer_bytes`: the largest view or expanded chunk. Default 64 MiB.
    pub answer_bytes: usize,
    /// `answers_bytes`: memory for answers that are being read. Default 256 MiB.
    pub answers_bytes: usize,
    /// `tenant_percent`: the part of `concurrent_requests`, of
    /// `buffered_bytes` and of the like that one tenant may hold. Default 50.
    pub tenant_percent: u32,
    /// `connections`: open connections. For one more, one that waits for its client is
    /// closed: without a request first, of the peer with the most, the longest idle.
    /// Default 4,096.
    pub connections: usize,
    /// `rate_per_second`: requests of one key, on average; 0 is no limit.
    /// Default 20,000.
    pub rate_per_second: u32,
    /// `rate_burst`: requests of one key at once. Default 40,000.
    pub rate_burst: u32,
    /// `rate_denied_per_second`: requests of one host without a good key, on
    /// average; 0 is no limit. Default 100.
    pub rate_denied_per_second: u32,
    /// `rate_denied_burst`: the same, at once. Default 200.
    pub rate_denied_burst: u32,
    /// `idempotency_wait_seconds`: how long a request waits for another under the
    /// same `Idempotency-Key`. Default 10.
    pub idempotency_wait_seconds: u64,
    /// `event_streams`: followers of the event log at once. Default 64.
    pub event_streams: usize,
    /// `request_seconds`: time to work on a request. Default 60.
    pub request_seconds: u64,
    /// `idle_seconds`: how long a connection without a request stays open.
    /// Default 60.
    pub idle_seconds: u64,
    /// `header_seconds`: time to send a request's head once it has begun.
    /// Default 20.
    pub header_seconds: u64,
    /// `header_bytes`: size of a request's head. Default 64 KiB.
    pub header_bytes: usize,
    /// `body_seconds`: time to send a request's body. Default 30.
    pub body_seconds: u64,
    /// `write_seconds`: time to take an answer, or the next piece of a stream.
    /// Default 60.
    pub write_seconds: u64,
    /// `shutdown_seconds`: time that accepted requests have to finish once the
    /// door closes. Default 30.
    pub shutdown_seconds: u64,
    /// `proxy.body_bytes`: size of a body that goes on to a provider. Default 32 MiB.
    pub proxy_body_bytes: usize,
    /// `proxy.streams`: requests that are with their providers at once. Default 512.
    pub proxy_streams: usize,
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
            page_bytes: 32 << 20,
            turns_per_request: 10_000,
            context_tokens: 1_000_000,
            idempotency_key_bytes: 255,
            concurrent_requests: 256,
            queue_seconds: 10,
            buffered_bytes: 256 << 20,
            answer_bytes: 64 << 20,
            answers_bytes: 256 << 20,
            tenant_percent: 50,
            connections: 4_096,
            rate_per_second: 20_000,
            rate_burst: 40_000,
            rate_denied_per_second: 100,
            rate_denied_burst: 200,
            idempotency_wait_seconds: 10,
            event_streams: 64,
            request_seconds: 60,
            idle_seconds: 60,
            header_seconds: 20,
            header_bytes: 64 << 10,
            body_seconds: 30,
            write_seconds: 60,
            shutdown_seconds: 30,
            proxy_body_bytes: 32 << 20,
            proxy_streams: 512,
            ready_pending: 10_000,
        }
    }
}

/// No count of places may be above this.
const MOST_PLACES: usize = 1 << 16;

/// What the HTTP library's buffer holds.
const MOST_HEADER_BYTES: usize = 256 << 10;

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
            ("page_bytes", self.page_bytes, usize::MAX),
            ("answer_bytes", self.answer_bytes, usize::MAX),
            ("answers_bytes", self.answers_bytes, usize::MAX),
            ("tenant_percent", self.tenant_percent as usize, 100),
            ("connections", self.connections, MOST_PLACES),
            ("event_streams", self.event_streams, MOST_PLACES),
            ("request_seconds", self.request_seconds as usize, usize::MAX),
            ("queue_seconds", self.queue_seconds as usize, usize::MAX),
            ("rate_burst", self.rate_burst as usize, usize::MAX),
            ("rate_denied_burst", self.rate_denied_burst as usize, usize::MAX),
            ("idle_seconds", self.idle_seconds as usize, usize::MAX),
            ("header_seconds", self.header_seconds as usize, usize::MAX),
            ("header_bytes", self.header_bytes, MOST_HEADER_BYTES),
            ("body_seconds", self.body_seconds as usize, usize::MAX),
            ("write_seconds", self.write_seconds as usize, usize::MAX),
            ("proxy.body_bytes", self.proxy_body_bytes, usize::MAX),
            ("proxy.streams", self.proxy_streams, MOST_PLACES),
        ];
        if self.buffered_bytes < self.body_bytes {
            let (most, body) = (self.buffered_bytes, self.body_bytes);
            return Err(format!("`buffered_bytes` is {most}, less than `body_bytes` ({body})"));
        }
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

    /// A tenant's part of so many, and never less than `least`.
    fn share(&self, of: usize, least: usize) -> usize {
        let part = (of as u128 * u128::from(self.tenant_percent)).div_ceil(100);
        (part as usize).max(least)
    }

    /// Followers that one tenant may have.
    pub(crate) fn tenant_streams(&self) -> usize {
        self.share(self.event_streams, 1)
    }

    /// Requests that one tenant may have with its providers.
    pub(crate) fn tenant_proxies(&self) -> usize {
        self.share(self.proxy_streams, 1)
    }

    /// The largest body of the proxy, and the limit that says so: where less memory than
    /// that is set apart for bodies, that decides.
    pub(crate) fn proxy_body(&self) -> (usize, &'static str) {
        match self.proxy_body_bytes <= self.buffered_bytes {
            true => (self.proxy_body_bytes, "proxy.body_bytes"),
            false => (self.buffered_bytes, "buffered_bytes"),
        }
    }

    /// Bytes of answers that one tenant may leave unread.
    pub(crate) fn tenant_answers(&self) -> usize {
        self.share(self.answers_bytes, 1)
    }

    /// Places that one tenant may hold.
    pub(crate) fn tenant_requests(&self) -> usize {
        self.share(self.concurrent_requests, 1)
    }

    /// Bytes of large bodies that one tenant may hold; one body always fits.
    pub(crate) fn tenant_buffered(&self) -> usize {
        self.share(self.buffered_bytes, self.body_bytes.max(self.proxy_body().0))
    }

    pub(crate) fn request_time(&self) -> Duration {
        Duration::from_secs(self.request_seconds)
    }

    pub(crate) fn queue_time(&self) -> Duration {
        Duration::from_secs(self.queue_seconds)
    }

    pub(crate) fn body_time(&self) -> Duration {
        Duration::from_secs(self.body_seconds)
    }

    /// How long a request waits for another under the same key.
    pub(crate) fn retry_time(&self) -> Duration {
        Duration::from_secs(self.idempotency_wait_seconds)
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
        assert_eq!((limits.page_bytes, limits.answer_bytes), (32 << 20, 64 << 20));
        assert_eq!((limits.answers_bytes, limits.tenant_answers()), (256 << 20, 128 << 20));
        assert_eq!(limits.concurrent_requests, 256);
        assert_eq!(limits.request_seconds, 60);
        assert_eq!((limits.proxy_body_bytes, limits.proxy_streams), (32 << 20, 512));
        assert_eq!(limits.tenant_proxies(), 256);
        assert_eq!(icecore::MAX_CONTENT_BYTES, 1024 * 1024);
        assert_eq!(limits.check(), Ok(()));
    }

    #[test]
    fn a_tenants_share_is_a_part_that_something_fits_into() {
        let usual = Limits::default();
        assert_eq!((usual.tenant_requests(), usual.tenant_buffered()), (128, 128 << 20));
        let small = Limits { concurrent_requests: 1, buffered_bytes: 8 << 20, ..usual.clone() };
        assert_eq!((small.tenant_requests(), small.tenant_buffered()), (1, 8 << 20));
        let whole = Limits { tenant_percent: 100, ..usual };
        assert_eq!((whole.tenant_requests(), whole.tenant_buffered()), (256, 256 << 20));
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
        check(Limits { buffered_bytes: 1, ..usual() }, "`buffered_bytes`");
        check(Limits { header_bytes: 1 << 20, ..usual() }, "`header_bytes`");
        check(Limits { write_seconds: 0, ..usual() }, "`write_seconds`");
        check(Limits { tenant_percent: 101, ..usual() }, "`tenant_percent`");
        check(Limits { queue_seconds: 0, ..usual() }, "`queue_seconds`");
        check(Limits { proxy_streams: 0, ..usual() }, "`proxy.streams`");
        check(Limits { proxy_body_bytes: 0, ..usual() }, "`proxy.body_bytes`");
    }
}
