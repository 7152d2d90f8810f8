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

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::engine::Connection;
use crate::engine::rotation::Rotated;
use crate::engine::rotation::Rotation;
use crate::engine::tx::{Context, Isolation, Tx};
use crate::error::Result;
use crate::error::StoreError;
use crate::timings::{Clocked, StoreTimings};
pub(crate) use open::check_file;
use writer::Writer;

/// How long a write waits for another process before it gives up.
pub const BUSY_SECONDS: u64 = 30;

/// Reads at once; more wait in line. Each has a connection that stays open, and with
/// it its prepared statements: to open another for a read takes longer than to wait.
const READERS: usize = 8;

/// A database file or one in memory.
pub(crate) struct Sqlite {
    context: Arc<Context>,
    place: Place,
    counted: Counted,
}

/// Where the database is, and on which threads it is used.
enum Place {
    /// A file, with a thread that writes and connections to read.
    File { readers: Arc<Readers>, writer: Writer },
    /// Memory, used on the caller's thread.
    Memory(Mutex<Connection>),
}

#[derive(Default)]
struct Counted {
    reads: Clocked,
    /// Of a store in memory; the writing thread counts its own.
    writes: Clocked,
    panics: AtomicU64,
}

/// The name of an operation, and whose rows it is about.
type Op<'a> = (&'static str, &'a Isolation);

/// What readers need.
struct Readers {
    context: Arc<Context>,
    /// Connections that no read uses.
    idle: Mutex<Vec<Connection>>,
    slots: Arc<Semaphore>,
}

impl Sqlite {
    pub(crate) fn open(dir: &Path, master_key: Option<&str>) -> Result<Self> {
        let opened = open::open(dir, master_key)?;
        let context = Arc::new(opened.context);
        let writer = Writer::start(opened.connection, Arc::clone(&context));
        let readers = Arc::new(Readers {
            context: Arc::clone(&context),
            idle: Mutex::default(),
            slots: Arc::new(Semaphore::new(READERS)),
        });
        Ok(Self::at(context, Place::File { readers, writer }))
    }

    pub(crate) fn in_memory(master_key: [u8; 32]) -> Self {
        let opened = open::in_memory(master_key);
        let place = Place::Memory(Mutex::new(opened.connection));
        Self::at(Arc::new(opened.context), place)
    }

    fn at(context: Arc<Context>, place: Place) -> Self {
        Self { context, place, counted: Counted::default() }
    }

    pub(crate) fn rotate_master_key(
        dir: &Path,
        environment: Option<&str>,
        new: Option<&str>,
    ) -> Result<Rotated> {
        let rotation = Rotation::plan(dir, environment.is_some(), new)?;
        let opened = open::open_existing(dir, environment)?;
        rotation.run(&opened, &opened.master)
    }
}

impl Sqlite {
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Runs `act` in a transaction: on the writing thread, in one commit with others that
    /// wait, each in its own savepoint.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        of: Isolation,
        op: &'static str,
        act: impl Fn(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let context = Arc::clone(&self.context);
        let run = move |connection: &Connection| caught((op, &of), &context, connection, act);
        let answer = match &self.place {
            Place::File { writer, .. } => writer.run(run).await,
            Place::Memory(connection) => {
                let begun = Instant::now();
                let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                let answer = writer::commit_alone(&connection, &self.context.path, run);
                self.counted.writes.add(begun.elapsed());
                answer
            }
        };
        self.note_panic(answer)
    }

    /// Runs `act` over one snapshot, on a blocking thread.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        of: Isolation,
        op: &'static str,
        act: impl Fn(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let begun = Instant::now();
        let answer = match &self.place {
            Place::File { readers, .. } => {
                let (slot, readers) = (readers.slot().await?, Arc::clone(readers));
                let task = tokio::task::spawn_blocking(move || {
                    let _slot = slot;
                    readers.lend((op, &of), act)
                });
                task.await.map_err(|_| StoreError::Closed)?
            }
            Place::Memory(connection) => {
                let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
                snapshot((op, &of), &self.context, &connection, act)
            }
        };
        self.counted.reads.add(begun.elapsed());
        self.note_panic(answer)
    }

    fn note_panic<T>(&self, answer: Result<T>) -> Result<T> {
        if matches!(answer, Err(StoreError::Panicked { .. })) {
            self.counted.panics.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    pub(crate) async fn tidy(&self) -> Result<bool> {
        match &self.place {
            Place::File { writer, .. } => writer.tidy().await,
            Place::Memory(_) => Ok(true),
        }
    }

    pub(crate) async fn scrub(&self) -> Result<()> {
        match &self.place {
            Place::File { writer, .. } => writer.scrub().await,
            Place::Memory(_) => Ok(()),
        }
    }

    pub(crate) fn timings(&self) -> StoreTimings {
        let writing = match &self.place {
            Place::File { writer, .. } => writer.timings(),
            Place::Memory(_) => {
                let writes = self.counted.writes.read();
                let committed_writes = writes.count();
                StoreTimings { writes, commits: writes, committed_writes, ..Default::default() }
            }
        };
        let panics = self.counted.panics.load(Ordering::Relaxed);
        StoreTimings { reads: self.counted.reads.read(), panics, ..writing }
    }
}

impl Readers {
    async fn slot(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).acquire_owned().await.map_err(|_| StoreError::Closed)
    }

    /// Runs `act` on a reader, inside a snapshot.
    fn lend<T>(&self, op: Op<'_>, act: impl Fn(&Tx<'_>) -> Result<T>) -> Result<T> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => open::reader(&self.context.path)?,
        };
        let result = snapshot(op, &self.context, &connection, act);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        result
    }
}

/// Runs `act` inside a snapshot.
fn snapshot<T>(
    op: Op<'_>,
    context: &Context,
    connection: &Connection,
    act: impl Fn(&Tx<'_>) -> Result<T>,
) -> Result<T> {
    let snapshot = open::snapshot(connection, &context.path)?;
    let result = caught(op, context, connection, act);
    drop(snapshot);
    result
}

/// Runs `act`. A panic is an error of its operation, and of nothing else.
fn caught<T>(
    (op, of): Op<'_>,
    context: &Context,
    connection: &Connection,
    act: impl Fn(&Tx<'_>) -> Result<T>,
) -> Result<T> {
    let act = AssertUnwindSafe(|| act(&Tx::new(connection, context, of)));
    match catch_unwind(act) {
        Ok(result) => result.map_err(|error| context.classified(error)),
        Err(_) => Err(StoreError::Panicked { op }),
    }
}
