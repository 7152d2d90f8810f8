//! What all requests share.

use std::sync::{Arc, OnceLock};

use icecore::{Memory, Millis};
use icecore_host::Host;
use tokio::sync::{Semaphore, watch};

use crate::audit::{Audit, Denials};
use crate::host::Hosts;
use crate::idempotency::{Answers, Gates};
use crate::keyring::KeyRing;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::openapi::Served;
use crate::proxy::Proxy;
use crate::rates::Rates;
use crate::share::Shares;
use crate::work;

/// The state behind every route.
pub(crate) struct App {
    pub(crate) memory: Memory,
    /// What a host adds to the memory.
    pub(crate) host: Host,
    pub(crate) limits: Limits,
    /// Under which names we may be called.
    pub(crate) hosts: Hosts,
    pub(crate) rates: Rates,
    pub(crate) keys: KeyRing,
    pub(crate) audit: Audit,
    pub(crate) denials: Denials,
    pub(crate) gates: Gates,
    pub(crate) answers: Answers,
    /// A permit for each request that may be worked on.
    pub(crate) requests: Arc<Semaphore>,
    /// Permits for the memory of large bodies.
    pub(crate) bodies: Arc<Semaphore>,
    /// Permits for the memory of large answers.
    pub(crate) unread: Arc<Semaphore>,
    /// What each tenant may hold of the above and below.
    pub(crate) shares: Shares,
    /// A permit for each follower of the event log.
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) proxy: Proxy,
    pub(crate) metrics: Metrics,
    /// When this host began.
    pub(crate) begun: Millis,
    /// What describes the routes, once somebody asked.
    pub(crate) document: OnceLock<Served>,
    /// Becomes true when the door closes.
    pub(crate) closing: watch::Receiver<bool>,
}

/// As handlers receive it.
pub(crate) type Shared = Arc<App>;

impl App {
    #[cfg(test)]
    pub(crate) fn new(
        host: impl Into<Host>,
        limits: Limits,
        address: std::net::SocketAddr,
        closing: watch::Receiver<bool>,
    ) -> Shared {
        let proxy = Proxy::new(crate::proxy::ProxyOptions::default(), None, &limits);
        Self::under(host.into(), limits, Hosts::at(address, Vec::new()), proxy, closing)
    }

    /// As [`App::new`], called by other names, with a proxy.
    pub(crate) fn under(
        host: Host,
        limits: Limits,
        hosts: Hosts,
        proxy: Proxy,
        closing: watch::Receiver<bool>,
    ) -> Shared {
        let memory = host.memory.clone();
        Arc::new(Self {
            begun: memory.now(),
            metrics: Metrics::default(),
            memory,
            host,
            hosts,
            rates: Rates::new(&limits),
            keys: KeyRing::default(),
            audit: Audit::default(),
            denials: Denials::default(),
            gates: Gates::default(),
            answers: Answers::default(),
            requests: Arc::new(Semaphore::new(limits.concurrent_requests)),
            bodies: Arc::new(Semaphore::new(work::pieces(limits.buffered_bytes) as usize)),
            unread: Arc::new(Semaphore::new(work::pieces(limits.answers_bytes) as usize)),
            shares: Shares::new(&limits),
            streams: Arc::new(Semaphore::new(limits.event_streams)),
            proxy,
            document: OnceLock::new(),
            closing,
            limits,
        })
    }
}
