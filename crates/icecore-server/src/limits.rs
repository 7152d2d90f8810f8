//! Limits on the work of requests.

use std::time::Duration;

use icecore_settings::{MOST, SettingError, settings};

settings! {
    /// The limits of the server. An error that comes from one names it.
    ///
    /// The limit on a turn's content, 1 MiB, is the memory's own:
    /// [`MAX_CONTENT_BYTES`](icecore::ingest::MAX_CONTENT_BYTES). So are those on entries:
    /// [`EntrySettings`](icecore::settings::EntrySettings).
    #[derive(PartialEq, Eq)]
    pub struct Limits {
        /// The largest request body.
        body_bytes: usize = 8 << 20, 1..=1 << 30;
        /// The most items of a page of a list.
        page: usize = 500, 1..=10_000;
        /// Items of a page when no `limit` is given; at most `serve.page`.
        page_default: usize = 100, 1..=10_000 => advanced;
        /// Content of a page of turns; one turn at least. It is large since a caller may take a
        /// short page for the last one.
        page_bytes: usize = 32 << 20, 1..=1 << 40 => advanced;
        /// Turns that one request may add.
        turns_per_request: usize = 10_000, 1..=1_000_000 => advanced;
        /// The largest budget of a context.
        context_tokens: u32 = 1_000_000, 1..=4_294_967_295 => advanced;
        /// The length of an `Idempotency-Key`.
        idempotency_key_bytes: usize = 255 => none;
        /// Requests worked on at once; more wait in a queue.
        concurrent_requests: usize = 256, 1..=65_536;
        /// The longest that a request waits in the queue before it is answered 503.
        queue_seconds: u64 = 10, 1..=3_600 => advanced;
        /// RAM for large request bodies in all; at least `serve.body_bytes`.
        buffered_bytes: usize = 256 << 20, 1..=1 << 40 => advanced;
        /// The largest view or expanded chunk.
        answer_bytes: usize = 64 << 20, 1..=1 << 40 => advanced;
        /// RAM for answers that clients are reading.
        answers_bytes: usize = 256 << 20, 1..=1 << 40 => advanced;
        /// One tenant's share of `concurrent_requests`, of RAM and of streams.
        tenant_percent: u32 = 50, 1..=100;
        /// Open connections. For one more, one that waits for its client is closed: without a
        /// request first, of the peer with the most, the longest idle.
        connections: usize = 4_096, 1..=65_536;
        /// Requests of one key, on average; 0: no limit.
        rate_per_second: u32 = 20_000, 0..=1_000_000;
        /// Requests of one key at once.
        rate_burst: u32 = 40_000, 1..=10_000_000;
        /// Requests of one client address without a valid key, on average; 0: no limit.
        rate_denied_per_second: u32 = 100, 0..=1_000_000 => advanced;
        /// The same, at once.
        rate_denied_burst: u32 = 200, 1..=10_000_000 => advanced;
        /// The longest that a request waits for another under the same `Idempotency-Key`.
        idempotency_wait_seconds: u64 = 10, 0..=3_600 => advanced;
        /// Followers of the event log at once.
        event_streams: usize = 64, 1..=65_536;
        /// The longest that work on a request may take.
        request_seconds: u64 = 60, 1..=86_400;
        /// How long a connection without a request stays open.
        idle_seconds: u64 = 60, 1..=86_400 => advanced;
        /// The longest that sending a request's head may take.
        header_seconds: u64 = 20, 1..=86_400 => advanced;
        /// The largest head of a request.
        header_bytes: usize = 64 << 10, 8 << 10..=256 << 10 => advanced;
        /// The longest that sending a request's body may take.
        body_seconds: u64 = 30, 1..=86_400 => advanced;
        /// The longest that reading an answer, or the next piece of a stream, may take.
        write_seconds: u64 = 60, 1..=86_400 => advanced;
        /// How long accepted requests have to finish when the server stops.
        shutdown_seconds: u64 = 30, 0..=86_400;
        /// The largest body that goes on to a provider.
        proxy_body_bytes: usize = 32 << 20, 1..=1 << 30 => key "proxy.body_bytes";
        /// Requests that are with their providers at once.
        proxy_streams: usize = 512, 1..=65_536 => key "proxy.streams";
        /// Beyond this many branches with unfinished background work the host is not ready.
        ready_pending: u64 = 10_000, 0..=MOST => advanced;
    }
}

impl Limits {
    /// Refuses limits under which nothing would work.
    pub fn check(&self) -> Result<(), SettingError> {
        icecore_settings::check(&mut self.clone())?;
        let Self { page, page_default, body_bytes, buffered_bytes, .. } = self;
        if page_default > page {
            return Err(SettingError::conflict(
                format!("`page_default` ({page_default}) is more than `page` ({page})"),
                "lower `page_default` under `[advanced.serve]`, or raise `page`",
            ));
        }
        if buffered_bytes < body_bytes {
            return Err(SettingError::conflict(
                format!(
                    "`buffered_bytes` ({buffered_bytes}) is less than `body_bytes` ({body_bytes})"
                ),
                "raise `buffered_bytes` under `[advanced.serve]`, or lower `body_bytes`",
            ));
        }
        Ok(())
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
        assert_eq!(icecore::ingest::MAX_CONTENT_BYTES, 1024 * 1024);
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
            let refused = limits.check().unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
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
