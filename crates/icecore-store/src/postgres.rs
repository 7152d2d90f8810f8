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
mod failure;
mod hints;
mod migrate;
mod pool;
#[cfg(test)]
mod tests;
mod text;
mod tls;
mod transaction;
mod value;
mod walls;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use icecore_domain::ids::Tenant;
use icecore_domain::time::Millis;
use tokio::sync::OwnedSemaphorePermit;

use crate::bounds::HeldBounds;
use crate::error::StoreError;
use crate::files::write_error;
use crate::keys::{MASTER_KEY_FILE, MASTER_KEY_VARIABLE, MasterKey};
use crate::postgres_options::PostgresOptions;
use crate::sql::engine::{self, Connection, params};
use crate::sql::rotation::{Alone, Rotation, settle_next};
use crate::sql::{Engine, KEY_CHECK, Keyring, Shared, Size, SqlStore, Wall};
use crate::sqlite::open::FILE_NAME;
use crate::store::{Result, Rotated};
use crate::timings::{Clocked, StoreTimings};
use address::Address;
use clock::DatabaseClock;
pub(crate) use connection::PgConnection;
pub use failure::PgError;
pub use hints::Hint;
use hints::Hints;
use pool::Pool;
use transaction::Transactions;
pub(crate) use value::PgRow;

/// Makes the tables of a database, for tests.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn prepare(url: &str) -> Result<()> {
    let options = PostgresOptions::default();
    migrate::migrate(&Pool::new(Address::parse(url, &options)?, options)?)
}

/// The store of several machines.
pub type PostgresStore = SqlStore<Postgres>;

/// A database, and our connections to it.
pub struct Postgres {
    database: Arc<Database>,
}

struct Database {
    shared: Shared,
    transactions: Transactions,
    clock: DatabaseClock,
    hints: Arc<Hints>,
    reads: Clocked,
    writes: Clocked,
    waits: Clocked,
    commits: Clocked,
}

impl SqlStore<Postgres> {
    /// Connects to the database at `url`, and brings its tables up to date. All hosts give
    /// the same master key, as 64 hexadecimal digits.
    ///
    /// Blocks; call it where that may be.
    pub fn connect(url: &str, options: PostgresOptions, master_key: &str) -> Result<Self> {
        let master = MasterKey::from_environment(master_key)?;
        Self::connect_with(url, options, master, MASTER_KEY_VARIABLE.to_owned(), None)
    }

    /// As [`PostgresStore::connect`], with the key in the key file of `dir`. Where there is
    /// none it is made, if nothing in the database was sealed with another one: that is
    /// for the first host, and the others get a copy of it.
    pub fn connect_from(url: &str, options: PostgresOptions, dir: &Path) -> Result<Self> {
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

    /// Seals every tenant's key of the store at `url` with a new master key: `new` (64
    /// hexadecimal digits), or else a random one. `environment` is the present key; without
    /// it that is in the key file of `dir`, as for [`PostgresStore::connect_from`].
    ///
    /// The new key is written to the key file, but for one that is given while the present
    /// one comes from the environment: that stays out of files. One transaction does it, so
    /// that one of the two keys is wholly in force whenever this ends. Hosts that run go on
    /// with the tenants that they have met, and make and open no others until they have the
    /// new key.
    ///
    /// Blocks; call it where that may be.
    pub fn rotate_master_key(
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
        let database = &store.engine().database;
        let present = database.read(&Wall::Everyone, &|c, s| s.keys.master(c, s))?;
        let rotated = rotation.run(&**database, &present)?;
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
        let shared = Shared {
            path: PathBuf::from(server),
            keys: Keyring::new(dir.map(Path::to_owned), origin.clone(), master),
            classify,
            bounds: HeldBounds::default(),
        };
        let database = Database {
            shared,
            transactions: Transactions::new(pool),
            clock: DatabaseClock::new(),
            hints,
            reads: Clocked::default(),
            writes: Clocked::default(),
            waits: Clocked::default(),
            commits: Clocked::default(),
        };
        database.record_key(&check, origin)?;
        if let Some(dir) = dir.filter(|dir| !holds_sqlite(dir))
            && let Err(error) = settle_next(&database, dir)
        {
            tracing::warn!(%error, "the next master key's file was left as it is");
        }
        Ok(Self::over(Postgres { database: Arc::new(database) }))
    }

    /// The database's time, the same for all hosts: what leases and ticks go by. It never
    /// goes back.
    pub fn clock(&self) -> Option<Millis> {
        self.engine().database.clock.now()
    }

    /// Calls `told` when another host may have changed something, until the store is
    /// dropped. Hints may be lost, and come twice; after a gap comes [`Hint::Anything`].
    ///
    /// Must be called inside a runtime.
    pub fn listen(&self, told: impl Fn(Hint) + Send + Sync + 'static) {
        let database = &self.engine().database;
        hints::listen(&database.hints, told);
    }

    /// What hints call a tenant, once this host has met it.
    pub fn number_of(&self, tenant: &Tenant) -> Option<i64> {
        self.engine().database.transactions.number_of(tenant)
    }
}

impl Engine for Postgres {
    fn shared(&self) -> &Shared {
        &self.database.shared
    }

    async fn write<T: Send + 'static>(
        &self,
        wall: Wall,
        act: impl Fn(&Connection, &Shared) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let begun = Instant::now();
        let place = self.place(begun).await?;
        let database = Arc::clone(&self.database);
        let answer = blocking(place, move || database.write(&wall, &act)).await;
        self.database.writes.add(begun.elapsed());
        answer
    }

    async fn read<T: Send + 'static>(
        &self,
        wall: Wall,
        _: Size,
        act: impl Fn(&Connection, &Shared) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let begun = Instant::now();
        let place = self.database.transactions.pool.place().await?;
        let database = Arc::clone(&self.database);
        let answer = blocking(place, move || database.read(&wall, &act)).await;
        self.database.reads.add(begun.elapsed());
        answer
    }

    /// The server does it by itself.
    async fn tidy(&self) -> Result<bool> {
        Ok(true)
    }

    /// Writes the tables anew. What the server keeps beside them, for its own recovery and
    /// for replicas, goes when it has no more use for it.
    async fn scrub(&self) -> Result<()> {
        let place = self.database.transactions.pool.place().await?;
        let database = Arc::clone(&self.database);
        blocking(place, move || migrate::rewrite(&database.transactions.pool)).await
    }

    async fn check(&self) -> Result<Vec<String>> {
        self.read(Wall::Everyone, Size::Many, migrate::check_walls).await
    }

    fn timings(&self) -> StoreTimings {
        let database = &self.database;
        let commits = database.commits.read();
        StoreTimings {
            reads: database.reads.read(),
            writes: database.writes.read(),
            waits: database.waits.read(),
            commits,
            committed_writes: commits.count(),
            queue_depth: database.transactions.pool.waiting(),
        }
    }
}

impl Postgres {
    async fn place(&self, begun: Instant) -> Result<OwnedSemaphorePermit> {
        let place = self.database.transactions.pool.place().await?;
        self.database.waits.add(begun.elapsed());
        Ok(place)
    }
}

/// Off the async threads, which a connection must not hold up.
async fn blocking<T: Send + 'static>(
    place: OwnedSemaphorePermit,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let task = tokio::task::spawn_blocking(move || {
        let _place = place;
        work()
    });
    task.await.map_err(|_| StoreError::Closed)?
}

impl Database {
    fn write<T>(&self, wall: &Wall, act: &impl Fn(&Connection, &Shared) -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let answer = self.transactions.write(wall, &self.shared, act)?;
        self.commits.add(begun.elapsed());
        let tenant = walls::tenant(wall).and_then(|tenant| self.transactions.number_of(tenant));
        self.hints.changed(tenant);
        Ok(answer)
    }

    fn read<T>(&self, wall: &Wall, act: &impl Fn(&Connection, &Shared) -> Result<T>) -> Result<T> {
        if self.clock.is_stale() {
            self.measure_clock()?;
        }
        self.transactions.read(wall, &self.shared, act)
    }

    fn measure_clock(&self) -> Result<()> {
        self.transactions.read(&Wall::Everyone, &self.shared, &|c, s| match c {
            Connection::Postgres(c) => {
                self.clock.measure(c).map_err(|e| (s.classify)(e.into(), &s.path))
            }
            Connection::Sqlite(_) => Ok(()),
        })
    }

    /// The first key that is recorded is the one of the store, on all hosts.
    fn record_key(&self, check: &[u8], origin: String) -> Result<()> {
        let recorded = hex::encode(check);
        let known = self.transactions.write(&Wall::Everyone, &self.shared, &|c, s| {
            let record = || -> engine::Result<usize> {
                c.execute(
                    "INSERT INTO notes (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                    params![KEY_CHECK, recorded],
                )?;
                c.execute("DELETE FROM commits WHERE at < now() - interval '30 days'", [])
            };
            record().map_err(|error| (s.classify)(error, &s.path))?;
            s.keys.master(c, s).map(drop)
        });
        match known {
            Ok(()) => self.measure_clock(),
            Err(StoreError::MasterKeyReplaced { .. }) => Err(StoreError::WrongMasterKey { origin }),
            Err(error) => Err(error),
        }
    }
}

impl Alone for Database {
    fn alone<T>(&self, act: &impl Fn(&Connection, &Shared) -> Result<T>) -> Result<T> {
        self.write(&Wall::MasterKey, act)
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
