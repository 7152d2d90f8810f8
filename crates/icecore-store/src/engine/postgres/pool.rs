//! The connections of a host.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::address::Address;
use super::connection::{PgConnection, random_number};
use super::tls::Tls;
use crate::engine::postgres_options::PostgresOptions;
use crate::error::postgres::PgError;
use crate::error::{Result, StoreError};

/// A connection that was unused for longer is asked whether it still works.
const HEALTHY: Duration = Duration::from_secs(60);

/// No connection is used for longer: what it is called in `commits` is kept for a month.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// Connections that are open, and how to open more.
pub(super) struct Pool {
    pub(super) address: Address,
    pub(super) options: PostgresOptions,
    pub(super) tls: Tls,
    /// Whether nothing can be written here.
    is_replica: bool,
    places: Arc<Semaphore>,
    waiting: AtomicU64,
    /// The last was used last.
    idle: Mutex<Vec<Idle>>,
}

struct Idle {
    connection: PgConnection,
    since: Instant,
}

impl Pool {
    pub(super) fn new(address: Address, options: PostgresOptions) -> Result<Self> {
        let tls = Tls::new(&address.trust)?;
        let places = Arc::new(Semaphore::new(options.connections.max(1) as usize));
        Ok(Self {
            address,
            options,
            tls,
            is_replica: false,
            places,
            waiting: AtomicU64::new(0),
            idle: Mutex::default(),
        })
    }

    pub(super) fn of_replica(address: Address, options: PostgresOptions) -> Result<Self> {
        Ok(Self { is_replica: true, ..Self::new(address, options)? })
    }

    /// The right to take a connection. Whoever waits too long is told so.
    pub(super) async fn slot(&self) -> Result<OwnedSemaphorePermit> {
        let seconds = self.options.wait_seconds;
        let _waiting = Waiting::in_line(&self.waiting);
        let asked = Arc::clone(&self.places).acquire_owned();
        match tokio::time::timeout(Duration::from_secs(seconds), asked).await {
            Ok(place) => place.map_err(|_| StoreError::Closed),
            Err(_) => {
                Err(StoreError::NoConnection { connections: self.options.connections, seconds })
            }
        }
    }

    /// How many wait for a connection.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// A connection, for one who has a place.
    pub(super) fn take(&self) -> std::result::Result<PgConnection, PgError> {
        while let Some(idle) = self.pop() {
            let Idle { connection, since } = idle;
            if connection.age() > LIFETIME {
                continue;
            }
            if since.elapsed() < HEALTHY || connection.batch("SELECT 1").is_ok() {
                connection.take_failure();
                return Ok(connection);
            }
        }
        let number = (!self.is_replica).then(random_number);
        PgConnection::open(&self.address, &self.tls, &self.options, number)
    }

    /// Takes a connection back. If it is broken the others probably are, too: to find out
    /// one by one would cost each of the next requests a try.
    pub(super) fn give_back(&self, connection: PgConnection) {
        let mut idle = self.idle();
        if connection.is_broken() {
            idle.clear();
            return;
        }
        idle.push(Idle { connection, since: Instant::now() });
        // Those in front have waited longest.
        let spare = idle.len().saturating_sub(self.options.idle_connections as usize);
        let limit = Duration::from_secs(self.options.idle_seconds);
        let tired = idle[..spare].iter().take_while(|idle| idle.since.elapsed() > limit).count();
        idle.drain(..tired);
    }

    /// Takes an unused connection out.
    #[cfg(test)]
    pub(super) fn pop_for_test(&self) -> Option<PgConnection> {
        self.pop().map(|idle| idle.connection)
    }

    /// Connections that nobody uses.
    #[cfg(test)]
    pub(super) fn idle_for_test(&self) -> usize {
        self.idle().len()
    }

    fn pop(&self) -> Option<Idle> {
        self.idle().pop()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits, also if it stops waiting.
struct Waiting<'a>(&'a AtomicU64);

impl<'a> Waiting<'a> {
    fn in_line(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
