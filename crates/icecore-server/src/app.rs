//! What all requests share.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use icecore::Memory;
use tokio::sync::{Semaphore, watch};

use crate::auth::KeyRing;
use crate::idempotency::{Answers, Gates};
use crate::limits::Limits;
use crate::openapi::Served;

/// The state behind every route.
pub(crate) struct App {
    pub(crate) memory: Memory,
    pub(crate) limits: Limits,
    /// Whether only this machine can reach us.
    pub(crate) on_loopback: bool,
    pub(crate) keys: KeyRing,
    pub(crate) gates: Gates,
    pub(crate) answers: Answers,
    /// A permit for each request that may be worked on.
    pub(crate) requests: Arc<Semaphore>,
    /// A permit for each follower of the event log.
    pub(crate) streams: Arc<Semaphore>,
    /// What describes the routes, once somebody asked.
    pub(crate) document: OnceLock<Served>,
    /// Becomes true when the door closes.
    pub(crate) closing: watch::Receiver<bool>,
}

/// As handlers receive it.
pub(crate) type Shared = Arc<App>;

impl App {
    pub(crate) fn new(
        memory: Memory,
        limits: Limits,
        address: SocketAddr,
        closing: watch::Receiver<bool>,
    ) -> Shared {
        Arc::new(Self {
            memory,
            on_loopback: address.ip().is_loopback(),
            keys: KeyRing::default(),
            gates: Gates::default(),
            answers: Answers::default(),
            requests: Arc::new(Semaphore::new(limits.concurrent_requests)),
            streams: Arc::new(Semaphore::new(limits.event_streams)),
            document: OnceLock::new(),
            closing,
            limits,
        })
    }
}
