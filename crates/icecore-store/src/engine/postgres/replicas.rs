//! Reads that streaming replicas serve.
//!
//! A replica serves a read if it has replayed all that was committed when the read began: the
//! primary is asked for its position in the write-ahead log, and the replica is waited for, for
//! a moment. So a reader finds its own writes, and nothing that was erased, wherever it reads.
//! In every other case the primary serves the read itself.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::PostgresOptions;
use super::connection::PgConnection;
use super::pool::Pool;
use super::transaction::Transactions;
use crate::engine::Value;
use crate::engine::tx::{Context, Isolation, Tx};
use crate::error::Result;
use crate::error::postgres::PgError;

/// The reads of searches and contexts.
const SERVED: [&str; 14] = [
    "bodies", "bodies_at", "chunks", "chunks_at", "entries", "entries_after", "entries_at",
    "facts_after", "facts_at", "sessions_at", "summaries_after", "turns_after", "turns_at",
    "whole_turns",
];

/// How long a replica is waited for, and how long between two looks at it.
const WAIT: Duration = Duration::from_millis(50);
const LOOK: Duration = Duration::from_millis(2);

/// How long a replica is left alone that was behind or did not answer.
const REST: Duration = Duration::from_secs(1);

/// How long it may take to connect to a replica while a reader waits.
const CONNECT_SECONDS: u64 = 2;

const POSITION: &str = "SELECT pg_current_wal_flush_lsn()::text";
const HAS_REACHED: &str =
    "SELECT pg_is_in_recovery() AND pg_last_wal_replay_lsn() >= ?1::text::pg_lsn";

/// The replicas that the URL names.
pub(super) struct Replicas {
    all: Vec<Replica>,
    next: AtomicUsize,
}

struct Replica {
    transactions: Transactions,
    rests_until: Mutex<Option<Instant>>,
}

impl Replicas {
    pub(super) fn of(primary: &Pool) -> Result<Self> {
        let connect_seconds = primary.options.connect_seconds.min(CONNECT_SECONDS);
        let options = PostgresOptions { connect_seconds, ..primary.options };
        let replica = |address: &super::Address| {
            let transactions = Transactions::new(Pool::of_replica(address.clone(), options)?);
            Ok(Replica { transactions, rests_until: Mutex::default() })
        };
        let all = primary.address.replicas.iter().map(replica).collect::<Result<_>>()?;
        Ok(Self { all, next: AtomicUsize::new(0) })
    }

    /// The answer of a replica, or `None` if the primary has to serve the read.
    pub(super) fn read<T>(
        &self,
        op: &'static str,
        primary: &Pool,
        (of, context): (&Isolation, &Context),
        act: &impl Fn(&Tx<'_>) -> Result<T>,
    ) -> Option<Result<T>> {
        let replica = self.choose(op)?;
        let connection = primary.take().ok()?;
        let position = position(&connection);
        connection.take_failure();
        primary.give_back(connection);
        match replica.transactions.try_read(of, context, Some(&position.ok()?), act) {
            Ok(answer) => Some(answer),
            Err((fault, error)) => {
                tracing::debug!(?fault, %error, "the primary serves a read in a replica's place");
                *replica.resting() = Some(Instant::now() + REST);
                None
            }
        }
    }

    /// One after the other, without those that rest.
    fn choose(&self, op: &str) -> Option<&Replica> {
        if self.all.is_empty() || !SERVED.contains(&op) {
            return None;
        }
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let places = (0..self.all.len()).map(|at| (first.wrapping_add(at)) % self.all.len());
        let is_up =
            |replica: &&Replica| replica.resting().is_none_or(|until| until <= Instant::now());
        places.map(|at| &self.all[at]).find(is_up)
    }
}

impl Replica {
    fn resting(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.rests_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of what the primary has made durable, and so of all that anybody was told is stored.
fn position(primary: &PgConnection) -> std::result::Result<String, PgError> {
    let rows = primary.query(POSITION, &[])?;
    rows.first().and_then(|row| row.try_get(0).ok()).ok_or_else(|| primary.fails("no position"))
}

/// Waits until a replica has replayed that position. A promoted replica never reaches it: its
/// log is another one.
pub(super) fn wait_for(replica: &PgConnection, position: &str) -> std::result::Result<(), PgError> {
    let begun = Instant::now();
    loop {
        let rows = replica.query(HAS_REACHED, &[Value::Text(position)])?;
        if rows.first().and_then(|row| row.try_get(0).ok()) == Some(true) {
            return Ok(());
        }
        if begun.elapsed() >= WAIT {
            return Err(replica.fails("the replica is behind, or was promoted"));
        }
        std::thread::sleep(LOOK);
    }
}
