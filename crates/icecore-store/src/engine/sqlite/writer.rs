//! The one writing thread of a process, and its grouped commits.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection as File, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::BUSY_SECONDS;
use super::open::classify_file;
use crate::engine::Connection;
use crate::engine::tx::Context;
use crate::error::{Result, StoreError};
use crate::timings::{Clocked, StoreTimings};

/// Writes that may wait before a caller is made to.
const QUEUE_LENGTH: usize = 1024;

/// Writes that share one commit at most.
const GROUP_LENGTH: usize = 256;

/// How long a scrub waits for those who still read the write-ahead log.
const SCRUB_SECONDS: u64 = 10;

/// How long it sleeps between looks; nothing is locked meanwhile.
const SCRUB_PAUSE: Duration = Duration::from_millis(20);

enum Job {
    Write(Write, Instant),
    Alone(Alone, oneshot::Sender<Result<bool>>),
}

/// Work that cannot be part of a transaction; answers whether all of it is done.
type Alone = fn(&File, &Path) -> Result<bool>;

/// A write that waits for its turn: runs inside the group's transaction, or is told why there
/// is none.
type Write = Box<dyn FnOnce(Result<&Connection>) -> Answer + Send>;

/// Answers the caller of a write, once it is known whether the commit failed.
type Answer = Box<dyn FnOnce(Option<StoreError>) + Send>;

fn waiting<T: Send + 'static>(
    act: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    sender: oneshot::Sender<Result<T>>,
) -> Write {
    Box::new(move |connection| {
        let result = connection.and_then(|connection| in_savepoint(connection, act));
        // The caller may have gone; what was committed stays.
        Box::new(move |failure| _ = sender.send(failure.map_or(result, Err)))
    })
}

#[derive(Default)]
struct Counted {
    writes: Clocked,
    waits: Clocked,
    commits: Clocked,
    committed_writes: AtomicU64,
}

/// Handle of the writing thread; the thread ends, its queue done, with it.
pub(super) struct Writer {
    counted: Arc<Counted>,
    queue: Option<mpsc::Sender<Job>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(connection: Connection, context: Arc<Context>) -> Self {
        let (queue, jobs) = mpsc::channel(QUEUE_LENGTH);
        let counted = Arc::new(Counted::default());
        let counts = Arc::clone(&counted);
        let thread = std::thread::Builder::new()
            .name("icecore-writer".to_owned())
            .spawn(move || work(&connection, &context.path, jobs, &counts))
            .ok();
        Self { counted, queue: Some(queue), thread }
    }

    pub(super) fn timings(&self) -> StoreTimings {
        let waiting =
            self.queue.as_ref().map_or(0, |queue| queue.max_capacity() - queue.capacity());
        StoreTimings {
            writes: self.counted.writes.read(),
            waits: self.counted.waits.read(),
            commits: self.counted.commits.read(),
            committed_writes: self.counted.committed_writes.load(Ordering::Relaxed),
            queue_depth: waiting as u64,
            ..StoreTimings::default()
        }
    }

    /// Runs `act` in a transaction and answers once that is durable.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, answer) = oneshot::channel();
        let begun = Instant::now();
        self.send(Job::Write(waiting(act, sender), begun)).await?;
        let answer = answer.await.map_err(|_| StoreError::Closed)?;
        self.counted.writes.add(begun.elapsed());
        answer
    }

    /// Gives freed pages back and empties the write-ahead log if it can; answers
    /// whether it could.
    pub(super) async fn tidy(&self) -> Result<bool> {
        self.alone(tidy).await
    }

    pub(super) async fn scrub(&self) -> Result<()> {
        self.alone(scrub).await.map(|_| ())
    }

    async fn alone(&self, work: Alone) -> Result<bool> {
        let (sender, answer) = oneshot::channel();
        self.send(Job::Alone(work, sender)).await?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    async fn send(&self, job: Job) -> Result<()> {
        let queue = self.queue.as_ref().ok_or(StoreError::Closed)?;
        queue.send(job).await.map_err(|_| StoreError::Closed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(connection: &Connection, path: &Path, mut jobs: mpsc::Receiver<Job>, counted: &Counted) {
    let Some(file) = connection.file() else { return };
    let mut next = jobs.blocking_recv();
    while let Some(job) = next.take() {
        match job {
            Job::Alone(work, sender) => {
                let _ = sender.send(work(file, path));
            }
            Job::Write(first, asked) => {
                counted.waits.add(asked.elapsed());
                let (group, other) = gather(first, &mut jobs, &counted.waits);
                counted.committed_writes.fetch_add(group.len() as u64, Ordering::Relaxed);
                let begun = Instant::now();
                commit_group(connection, file, path, group);
                counted.commits.add(begun.elapsed());
                next = other;
            }
        }
        if next.is_none() {
            next = jobs.blocking_recv();
        }
    }
}

/// The first write and all that wait behind it, up to the next other job.
fn gather(
    first: Write,
    jobs: &mut mpsc::Receiver<Job>,
    waits: &Clocked,
) -> (Vec<Write>, Option<Job>) {
    let mut group = vec![first];
    while group.len() < GROUP_LENGTH {
        match jobs.try_recv() {
            Ok(Job::Write(write, asked)) => {
                waits.add(asked.elapsed());
                group.push(write);
            }
            Ok(other) => return (group, Some(other)),
            Err(_) => break,
        }
    }
    (group, None)
}

/// All of a group in one transaction, one sync; each answers only after it.
fn commit_group(connection: &Connection, file: &File, path: &Path, group: Vec<Write>) {
    if let Err(error) = file.execute_batch("BEGIN IMMEDIATE") {
        let error = Shared(classify_file(error, path));
        return group.into_iter().for_each(|write| write(Err(error.copy()))(None));
    }
    let mut answers: Vec<Answer> = Vec::with_capacity(group.len());
    for write in group {
        // Without the transaction a write would be committed by itself, and
        // then be reported as failed with the others.
        match file.is_autocommit() {
            true => write(Err(StoreError::DiskFull))(None),
            false => answers.push(write(Ok(connection))),
        }
    }
    // On a full disk SQLite may have rolled everything back by itself.
    let committed = match file.is_autocommit() {
        true => Err(StoreError::DiskFull),
        false => file.execute_batch("COMMIT").map_err(|error| classify_file(error, path)),
    };
    match committed {
        Ok(()) => answers.into_iter().for_each(|answer| answer(None)),
        Err(error) => {
            if !file.is_autocommit() {
                let _ = file.execute_batch("ROLLBACK");
            }
            let error = Shared(error);
            answers.into_iter().for_each(|answer| answer(Some(error.copy())));
        }
    }
}

/// Runs `act` in a write transaction of its own, which ends with it.
pub(super) fn commit_alone<T>(
    connection: &Connection,
    path: &Path,
    act: impl FnOnce(&Connection) -> Result<T>,
) -> Result<T> {
    let Some(file) = connection.file() else { return Err(StoreError::Closed) };
    let failed = |error| classify_file(error, path);
    let transaction = Transaction::new_unchecked(file, TransactionBehavior::Immediate);
    let transaction = transaction.map_err(failed)?;
    let answer = act(connection)?;
    transaction.commit().map_err(failed)?;
    Ok(answer)
}

/// One failure that several callers must hear of.
struct Shared(StoreError);

impl Shared {
    fn copy(&self) -> StoreError {
        match &self.0 {
            StoreError::Busy { seconds } => StoreError::Busy { seconds: *seconds },
            StoreError::DiskFull => StoreError::DiskFull,
            StoreError::ReadOnly { path } => StoreError::ReadOnly { path: path.clone() },
            StoreError::Damaged { path, reason } => {
                StoreError::Damaged { path: path.clone(), reason: reason.clone() }
            }
            other => StoreError::Commit(other.to_string()),
        }
    }
}

fn in_savepoint<T>(on: &Connection, act: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
    let Some(file) = on.file() else { return Err(StoreError::Closed) };
    run_cached(file, "SAVEPOINT one")?;
    let result = act(on);
    // If SQLite has rolled all back already there is no savepoint to end.
    if !file.is_autocommit()
        && let Err(error) = end_savepoint(file, result.is_ok())
    {
        // Whatever this write left must not be committed with the others, so
        // none of them is.
        let _ = file.execute_batch("ROLLBACK");
        return Err(error);
    }
    result
}

fn end_savepoint(file: &File, keep: bool) -> Result<()> {
    if !keep {
        run_cached(file, "ROLLBACK TO one")?;
    }
    run_cached(file, "RELEASE one")
}

/// A statement that every write needs, prepared once.
fn run_cached(file: &File, sql: &str) -> Result<()> {
    let run = || file.prepare_cached(sql)?.execute([]);
    run().map(|_| ()).map_err(|error| StoreError::Database(error.into()))
}

fn tidy(file: &File, path: &Path) -> Result<bool> {
    let tidy = || {
        // Each step frees one page, so all rows must be drawn.
        let mut vacuum = file.prepare("PRAGMA incremental_vacuum")?;
        let mut rows = vacuum.query([])?;
        while rows.next()?.is_some() {}
        drop(rows);
        // Waits for nobody and makes nobody wait. What a reader holds back is
        // left for the next time.
        let (is_busy, logged, moved) = checkpoint(file, "PASSIVE")?;
        Ok(!is_busy && logged == moved && truncate_log(file)?)
    };
    tidy().map_err(|error| classify_file(error, path))
}

/// Freed cells are zeroed, but where a page was rebuilt a stale copy of a cell
/// may lie between those that are live. Only a file written anew has none.
fn scrub(file: &File, path: &Path) -> Result<bool> {
    let failed = |error| classify_file(error, path);
    file.execute_batch("VACUUM").map_err(failed)?;
    let end = Instant::now() + Duration::from_secs(SCRUB_SECONDS);
    while !truncate_log(file).map_err(failed)? {
        if Instant::now() >= end {
            return Err(StoreError::StillRead { seconds: SCRUB_SECONDS });
        }
        std::thread::sleep(SCRUB_PAUSE);
    }
    Ok(true)
}

/// Moves the write-ahead log into the file: whether somebody was in the way, how many pages
/// the log has, and how many of them were moved.
fn checkpoint(file: &File, mode: &str) -> rusqlite::Result<(bool, i64, i64)> {
    file.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })
}

/// Empties the write-ahead log, unless somebody is using it: while it waited,
/// nobody could write.
fn truncate_log(file: &File) -> rusqlite::Result<bool> {
    file.busy_timeout(Duration::ZERO)?;
    let truncated = checkpoint(file, "TRUNCATE");
    file.busy_timeout(Duration::from_secs(BUSY_SECONDS))?;
    Ok(!truncated?.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::column;

    /// Nothing is left of a group of which each of these is a write.
    fn check_group(writes: &[&'static str]) {
        let connection = Connection::Sqlite(File::open_in_memory().unwrap());
        connection.execute_batch("CREATE TABLE t (n INTEGER)").unwrap();
        let mut answers = Vec::new();
        let write = |sql: &&'static str| {
            let sql = *sql;
            let (sender, answer) = oneshot::channel();
            answers.push(answer);
            waiting(move |c: &Connection| c.execute_batch(sql), sender)
        };
        let group = writes.iter().map(write).collect();
        let file = connection.file().unwrap();
        commit_group(&connection, file, Path::new("t"), group);
        for mut answer in answers {
            assert!(matches!(answer.try_recv(), Ok(Err(_))));
        }
        let count: i64 = connection.one("SELECT count(*) FROM t", [], column).unwrap();
        assert_eq!(count, 0);
    }

    const INSERT: &str = "INSERT INTO t VALUES (1)";

    #[test]
    fn a_write_that_cannot_be_undone_takes_its_group_along() {
        // The second fails, and there is no savepoint to go back to.
        let broken = "INSERT INTO t VALUES (2); RELEASE one; SELECT nothing;";
        check_group(&[INSERT, broken, INSERT]);
    }

    #[test]
    fn a_group_that_was_rolled_back_leaves_nothing() {
        // The second stands for a full disk, on which SQLite rolls all back.
        check_group(&[INSERT, "ROLLBACK", INSERT, INSERT]);
    }
}
