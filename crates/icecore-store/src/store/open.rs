//! Opening a store, and giving it another master key.

use std::path::Path;
use std::sync::Arc;

use super::{Engine, Store};
use crate::engine::rotation::Rotated;
use crate::engine::sqlite::Sqlite;
use crate::error::Result;
#[cfg(feature = "postgres")]
use icecore_domain::ids::Tenant;
#[cfg(feature = "postgres")]
use icecore_domain::time::Millis;

#[cfg(feature = "postgres")]
use crate::engine::postgres::{Hint, Postgres};
#[cfg(feature = "postgres")]
use crate::engine::postgres_options::PostgresOptions;

impl Store {
    /// Opens the store in `dir`, making it if it is not there.
    pub fn open(dir: &Path, master_key: Option<&str>) -> Result<Self> {
        Ok(Self::over(Engine::Sqlite(Arc::new(Sqlite::open(dir, master_key)?))))
    }

    /// A store that is gone with its last handle. It works on the thread of whoever calls
    /// it, in the order of the calls, so that a simulation can repeat them.
    pub fn in_memory(master_key: [u8; 32]) -> Self {
        Self::over(Engine::Sqlite(Arc::new(Sqlite::in_memory(master_key))))
    }

    /// Seals every tenant's key of the store in `dir` with a new master key: `new`
    /// (64 hex digits), or else a random one. `environment` is the present key as
    /// [`Store::open`] takes it.
    ///
    /// The new key is written to the key file, unless both keys are given: then it stays out
    /// of files. Processes that have the store open go on; those whose key came from the
    /// environment only with tenants that they have met. What was sealed with the old key is
    /// gone from all files after [`Store::scrub`].
    pub fn rotate_master_key(
        dir: &Path,
        environment: Option<&str>,
        new: Option<&str>,
    ) -> Result<Rotated> {
        Sqlite::rotate_master_key(dir, environment, new)
    }
}

#[cfg(feature = "postgres")]
impl Store {
    /// Connects to the database at `url`, and brings its tables up to date. All hosts give
    /// the same master key, as 64 hexadecimal digits.
    ///
    /// Blocks; call it where that may be.
    pub fn connect(url: &str, options: PostgresOptions, master_key: &str) -> Result<Self> {
        Postgres::connect(url, options, master_key).map(Self::shared)
    }

    /// As [`Store::connect`], with the key in the key file of `dir`. The first host of a
    /// database makes the file, and the others get a copy of it.
    pub fn connect_from(url: &str, options: PostgresOptions, dir: &Path) -> Result<Self> {
        Postgres::connect_from(url, options, dir).map(Self::shared)
    }

    fn shared(postgres: Postgres) -> Self {
        Self::over(Engine::Postgres(Arc::new(postgres)))
    }

    /// As [`Store::rotate_master_key`], for the store at `url`; without `environment` the
    /// present key is in the key file of `dir`. One transaction does it. Running hosts go on
    /// with the tenants that they have met, and need the new key for others.
    ///
    /// Blocks; call it where that may be.
    pub fn rotate_shared_master_key(
        url: &str,
        options: PostgresOptions,
        dir: &Path,
        environment: Option<&str>,
        new: Option<&str>,
    ) -> Result<Rotated> {
        Postgres::rotate_master_key(url, options, dir, environment, new)
    }

    pub(crate) fn postgres(&self) -> Option<&Postgres> {
        match &self.engine {
            Engine::Postgres(postgres) => Some(postgres),
            Engine::Sqlite(_) => None,
        }
    }

    /// The time that all hosts of a shared store use, which never goes back; `None` until the
    /// database has answered, and for SQLite.
    pub fn clock(&self) -> Option<Millis> {
        self.postgres()?.clock()
    }

    /// Calls `notify` when another host may have changed something, until the store is
    /// dropped. Hints may be lost, and come twice; after a gap comes [`Hint::Anything`].
    ///
    /// Must be called inside a runtime.
    pub fn listen(&self, notify: impl Fn(Hint) + Send + Sync + 'static) {
        if let Some(postgres) = self.postgres() {
            postgres.listen(notify);
        }
    }

    /// What hints call a tenant, once this host has met it.
    pub fn number_of(&self, tenant: &Tenant) -> Option<i64> {
        self.postgres()?.number_of(tenant)
    }
}
