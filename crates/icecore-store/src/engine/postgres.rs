//! The engine of several machines: PostgreSQL.
//!
//! Any host may serve any memory. What a transaction sees is walled in twice: by its
//! statements, and by the database (`walls.rs`). Each runs on one connection from one
//! thread, begins with its first statement's round trip, and is run again after what
//! passes: a conflict, a lost connection, a server that starts anew (`transaction.rs`).

mod address;
mod clock;
mod connection;
mod dialect;
mod hints;
mod migrate;
mod pool;
mod replicas;

#[cfg(test)]
mod tests;
mod text;
mod tls;
mod transaction;
mod value;
mod walls;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use icecore_domain::ids::Tenant;
use icecore_domain::time::Millis;
use tokio::sync::OwnedSemaphorePermit;

use crate::bounds::HeldBounds;
use crate::engine::keyring::Keyring;
use crate::engine::notes::KEY_CHECK;
use crate::engine::postgres_options::PostgresOptions;
use crate::engine::rotation::Rotated;
use crate::engine::rotation::{Alone, Rotation, settle_next};
use crate::engine::sqlite::open::FILE_NAME;
use crate::engine::tx::{Context, Isolation, Tx};
use crate::engine::{self, Connection, params};
use crate::error::Result;
use crate::error::StoreError;
pub use crate::error::postgres::PgError;
use crate::files::write_error;
use crate::keys::{MASTER_KEY_FILE, MASTER_KEY_VARIABLE, MasterKey};
use crate::timings::{Clocked, StoreTimings};
use address::Address;
use clock::DatabaseClock;
pub(crate) use connection::PgConnection;
pub use hints::Hint;
use hints::Hints;
pub(crate) use migrate::check_row_security;
use pool::Pool;
use replicas::Replicas;
use transaction::Transactions;
pub(crate) use value::PgRow;

/// Makes the tables of a database, for tests.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn prepare(url: &str) -> Result<()> {
    let options = PostgresOptions::default();
    migrate::migrate(&Pool::new(Address::parse(url, &options)?, options)?)
}

/// A database, and our connections to it.
pub(crate) struct Postgres {
    database: Arc<Database>,
}

struct Database {
    context: Context,
    transactions: Transactions,
    replicas: Replicas,
    clock: DatabaseClock,
    hints: Arc<Hints>,
    reads: Clocked,
    writes: Clocked,
    waits: Clocked,
    commits: Clocked,
    panics: AtomicU64,
}

impl Postgres {
    pub(crate) fn connect(url: &str, options: PostgresOptions, master_key: &str) -> Result<Self> {
        let master = MasterKey::from_environment(master_key)?;
        Self::connect_with(url, options, master, MASTER_KEY_VARIABLE.to_owned(), None)
    }

    pub(crate) fn connect_from(url: &str, options: PostgresOptions, dir: &Path) -> Result<Self> {
        let file = dir.join(MASTER_KEY_FILE);
        let is_new = MasterKey::read(&file)?.is_none();
        let master = MasterKey::load(dir, None, true)?;
        let origin = format!("`{}`", file.display());
        match Self::connect_with(url, options, master, origin, Some(dir)) {
            Err(StoreError::WrongMasterKey { .. }) if is_new => {
                std::fs::remove_file(&file).map_err(|error| write_error("remove", &file, error))?;
                let server = Address::parse(url, &options)?.shown;
                Err(StoreError::MasterKeyNeeded { server })
            }
            connected => connected,
        }
    }

    pub(crate) fn rotate_master_key(
        url: &str,
        options: PostgresOptions,
        dir: &Path,
        environment: Option<&str>,
        new: Option<&str>,
    ) -> Result<Rotated> {
        let rotation = Rotation::plan(dir, environment.is_some(), new)?;
        let path = dir.join(MASTER_KEY_FILE);
        if rotation.dir().is_some_and(holds_sqlite) {
            return Err(StoreError::SharedMasterKey { path });
        }
        let address = Address::parse(url, &options)?;
        let server = PathBuf::from(&address.shown);
        if !migrate::is_there(&Pool::new(address, options)?)? {
            return Err(StoreError::NotAStore { path: server });
        }
        let store = match environment {
            Some(key) => Self::connect(url, options, key)?,
            None => Self::connect_from(url, options, dir)?,
        };
        let database = store.database;
        let present =
            database.read(&Isolation::Global, "master_key", &|tx| tx.keys().master(tx))?;
        let rotated = rotation.run(&*database, &present)?;
        // What the old key opens lies in the table's file until it is written anew.
        if let Err(error) = migrate::rewrite_one(&database.transactions.pool, "tenants") {
            tracing::warn!(%error, "the database's files may still hold keys that the old one opens");
        }
        Ok(rotated)
    }

    fn connect_with(
        url: &str,
        options: PostgresOptions,
        master: MasterKey,
        origin: String,
        dir: Option<&Path>,
    ) -> Result<Self> {
        let address = Address::parse(url, &options)?;
        let server = address.shown.clone();
        let check = master.check_value();
        let pool = Pool::new(address, options)?;
        migrate::migrate(&pool)?;
        let hints = Arc::new(Hints::new(&pool));
        let context = Context {
            path: PathBuf::from(server),
            keys: Keyring::new(dir.map(Path::to_owned), origin.clone(), master),
            classify,
            bounds: HeldBounds::default(),
        };
        let database = Database {
            context,
            replicas: Replicas::of(&pool)?,
            transactions: Transactions::new(pool),
            clock: DatabaseClock::new(),
            hints,
            reads: Clocked::default(),
            writes: Clocked::default(),
            waits: Clocked::default(),
            commits: Clocked::default(),
            panics: AtomicU64::new(0),
        };
        database.record_key(&check, origin)?;
        if let Some(dir) = dir.filter(|dir| !holds_sqlite(dir))
            && let Err(error) = settle_next(&database, dir)
        {
            tracing::warn!(%error, "the next master key's file was left as it is");
        }
        Ok(Self { database: Arc::new(database) })
    }

    pub(crate) fn clock(&self) -> Option<Millis> {
        self.database.clock.now()
    }

    pub(crate) fn listen(&self, notify: impl Fn(Hint) + Send + Sync + 'static) {
        hints::listen(&self.database.hints, notify);
    }

    pub(crate) fn number_of(&self, tenant: &Tenant) -> Option<i64> {
        self.database.transactions.number_of(tenant)
    }
}

impl Postgres {
    pub(crate) fn context(&self) -> &Context {
        &self.database.context
    }

    /// Runs `act` in a transaction of its own, on a blocking thread.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        of: Isolation,
        op: &'static str,
        act: impl Fn(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let begun = Instant::now();
        let slot = self.database.transactions.pool.slot().await?;
        self.database.waits.add(begun.elapsed());
        let database = Arc::clone(&self.database);
        let answer = blocking(op, slot, move || database.write(&of, &act)).await;
        self.database.writes.add(begun.elapsed());
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
        let slot = self.database.transactions.pool.slot().await?;
        let database = Arc::clone(&self.database);
        let answer = blocking(op, slot, move || database.read(&of, op, &act)).await;
        self.database.reads.add(begun.elapsed());
        self.note_panic(answer)
    }

    fn note_panic<T>(&self, answer: Result<T>) -> Result<T> {
        if matches!(answer, Err(StoreError::Panicked { .. })) {
            self.database.panics.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    /// Writes the tables anew. What the server keeps beside them, for its own recovery and
    /// for replicas, goes when it has no more use for it.
    pub(crate) async fn scrub(&self) -> Result<()> {
        let slot = self.database.transactions.pool.slot().await?;
        let database = Arc::clone(&self.database);
        blocking("scrub", slot, move || migrate::rewrite(&database.transactions.pool)).await
    }

    pub(crate) fn timings(&self) -> StoreTimings {
        let database = &self.database;
        let commits = database.commits.read();
        StoreTimings {
            reads: database.reads.read(),
            writes: database.writes.read(),
            waits: database.waits.read(),
            commits,
            committed_writes: commits.count(),
            queue_depth: database.transactions.pool.waiting(),
            panics: database.panics.load(Ordering::Relaxed),
        }
    }
}

/// Off the async threads, which a connection must not hold up.
///
/// A panic leaves the connection it used closed, and is an error of this operation alone.
async fn blocking<T: Send + 'static>(
    op: &'static str,
    slot: OwnedSemaphorePermit,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let task = tokio::task::spawn_blocking(move || {
        let _slot = slot;
        work()
    });
    task.await.unwrap_or_else(|error| match error.is_panic() {
        true => Err(StoreError::Panicked { op }),
        false => Err(StoreError::Closed),
    })
}

impl Database {
    fn write<T>(&self, of: &Isolation, act: &impl Fn(&Tx<'_>) -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let answer = self.transactions.write(of, &self.context, act)?;
        self.commits.add(begun.elapsed());
        let tenant = of.tenant().and_then(|tenant| self.transactions.number_of(tenant));
        self.hints.changed(tenant);
        Ok(answer)
    }

    fn read<T>(
        &self,
        of: &Isolation,
        op: &'static str,
        act: &impl Fn(&Tx<'_>) -> Result<T>,
    ) -> Result<T> {
        if self.clock.is_stale() {
            self.measure_clock()?;
        }
        let primary = &self.transactions.pool;
        match self.replicas.read(op, primary, (of, &self.context), act) {
            Some(answer) => answer,
            None => self.transactions.read(of, &self.context, act),
        }
    }

    fn measure_clock(&self) -> Result<()> {
        self.transactions.read(&Isolation::Global, &self.context, &|tx| match &**tx {
            Connection::Postgres(c) => Ok(self.clock.measure(c).map_err(engine::Error::from)?),
            Connection::Sqlite(_) => Ok(()),
        })
    }

    /// The first key that is recorded is the one of the store, on all hosts.
    fn record_key(&self, check: &[u8], origin: String) -> Result<()> {
        let recorded = hex::encode(check);
        let known = self.transactions.write(&Isolation::Global, &self.context, &|tx| {
            tx.run(
                "INSERT INTO notes (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                params![KEY_CHECK, recorded],
            )?;
            tx.run("DELETE FROM commits WHERE at < now() - interval '30 days'", [])?;
            tx.keys().master(tx).map(drop)
        });
        match known {
            Ok(()) => self.measure_clock(),
            Err(StoreError::MasterKeyReplaced { .. }) => Err(StoreError::WrongMasterKey { origin }),
            Err(error) => Err(error),
        }
    }
}

impl Alone for Database {
    fn alone<T>(&self, act: &impl Fn(&Tx<'_>) -> Result<T>) -> Result<T> {
        self.write(&Isolation::MasterKey, act)
    }
}

/// Whether a directory has a store of its own, to which its key files belong.
fn holds_sqlite(dir: &Path) -> bool {
    dir.join(FILE_NAME).exists()
}

/// What an error of a statement means to a person.
fn classify(error: engine::Error, _: &Path) -> StoreError {
    match error {
        engine::Error::Postgres(error) => error.into_store(),
        other => StoreError::Database(other),
    }
}
