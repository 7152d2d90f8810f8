//! The engine of one machine: SQLite beside a directory of packs.
//!
//! One thread writes, in groups: whatever is waiting when a commit ends goes
//! into the next one, each in its own savepoint. Readers have connections of
//! their own. Several processes may share the file; state is read again inside
//! every transaction.

pub(crate) mod open;
mod rotate;
#[cfg(test)]
mod scrub_tests;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::StoreError;
use crate::sql::engine::Connection;
use crate::sql::rotation::Rotation;
use crate::sql::{Engine, Shared, Size, SqlStore, Wall};
use crate::store::{Result, Rotated};
use crate::timings::{Clocked, StoreTimings};
use writer::Writer;

/// How many migrations there are.
#[cfg(test)]
pub(crate) fn schema() -> i64 {
    open::known_schema()
}

/// How long a write waits for another process before it gives up.
pub const BUSY_SECONDS: u64 = 30;

/// Reads at once; more wait in line. Each has a connection that stays open, and with
/// it its prepared statements: to open another for a read takes longer than to wait.
const READERS: usize = 8;

/// The store on one machine.
pub type SqliteStore = SqlStore<Sqlite>;

/// A file, its writer and its readers.
pub struct Sqlite {
    readers: Arc<Readers>,
    writer: Writer,
}

/// What readers need.
struct Readers {
    shared: Arc<Shared>,
    /// Those that nobody reads with.
    idle: Mutex<Vec<Connection>>,
    places: Arc<Semaphore>,
    reads: Clocked,
}

impl SqlStore<Sqlite> {
    /// Opens the store in `dir`, making it if it is not there.
    pub fn open(dir: &Path, master_key: Option<&str>) -> Result<Self> {
        let opened = open::open(dir, master_key)?;
        let shared = Arc::new(opened.shared);
        let writer = Writer::start(opened.connection, Arc::clone(&shared));
        let readers = Arc::new(Readers {
            shared,
            idle: Mutex::default(),
            places: Arc::new(Semaphore::new(READERS)),
            reads: Clocked::default(),
        });
        Ok(Self::over(Sqlite { readers, writer }))
    }

    /// Seals every tenant's key of the store in `dir` with a new master key: `new`
    /// (64 hex digits), or else a random one. `environment` is the present key as
    /// [`SqliteStore::open`] takes it.
    ///
    /// The new key is written to the key file, but for one that is given while the
    /// present one comes from the environment: that stays out of files. Whenever
    /// this ends, the key that fits is in a file of the directory or in the hands of
    /// the one who gave it. Processes that have the store open go on; those whose
    /// key came from the environment only with tenants that they have met. What was
    /// sealed with the old key is gone from all files after [`crate::Store::scrub`].
    pub fn rotate_master_key(
        dir: &Path,
        environment: Option<&str>,
        new: Option<&str>,
    ) -> Result<Rotated> {
        let rotation = Rotation::plan(dir, environment.is_some(), new)?;
        let opened = open::open_existing(dir, environment)?;
        rotation.run(&opened, &opened.master)
    }

    /// Commits that this process has made: how well writes are grouped.
    pub fn commits(&self) -> u64 {
        self.engine().writer.commits()
    }
}

impl Engine for Sqlite {
    fn shared(&self) -> &Shared {
        &self.readers.shared
    }

    /// On the writing thread.
    async fn write<T: Send + 'static>(
        &self,
        _: Wall,
        act: impl Fn(&Connection, &Shared) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = Arc::clone(&self.readers.shared);
        self.writer.run(move |connection| act(connection, &shared)).await
    }

    /// On a reader, off the async threads; but a few rows by their keys take
    /// microseconds, and to change threads for them would take longer.
    async fn read<T: Send + 'static>(
        &self,
        _: Wall,
        size: Size,
        act: impl Fn(&Connection, &Shared) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let begun = Instant::now();
        let place = self.readers.place().await?;
        let answer = match size {
            Size::Few => self.readers.lend(act),
            Size::Many => {
                let readers = Arc::clone(&self.readers);
                let task = tokio::task::spawn_blocking(move || {
                    let _place = place;
                    readers.lend(act)
                });
                task.await.map_err(|_| StoreError::Closed)?
            }
        };
        self.readers.reads.add(begun.elapsed());
        answer
    }

    async fn tidy(&self) -> Result<bool> {
        self.writer.tidy().await
    }

    async fn scrub(&self) -> Result<()> {
        self.writer.scrub().await
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.read(Wall::Everyone, Size::Many, open::check_file).await
    }

    fn timings(&self) -> StoreTimings {
        StoreTimings { reads: self.readers.reads.read(), ..self.writer.timings() }
    }
}

impl Readers {
    async fn place(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.places).acquire_owned().await.map_err(|_| StoreError::Closed)
    }

    /// Runs `act` on a reader, inside a snapshot.
    fn lend<T>(&self, act: impl Fn(&Connection, &Shared) -> Result<T>) -> Result<T> {
        let kept = self.idle.lock().ok().and_then(|mut idle| idle.pop());
        let connection = match kept {
            Some(connection) => connection,
            None => open::reader(&self.shared.path)?,
        };
        let result = {
            let snapshot = open::snapshot(&connection, &self.shared.path)?;
            let result = act(&connection, &self.shared);
            drop(snapshot);
            result
        };
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(connection);
        }
        result
    }
}
