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
    /// The new key is written to the key file, but for one that is given while the
    /// present one comes from the environment: that stays out of files. Whenever
    /// this ends, the key that fits is in a file of the directory or in the hands of
    /// the one who gave it. Processes that have the store open go on; those whose
    /// key came from the environment only with tenants that they have met. What was
    /// sealed with the old key is gone from all files after [`Store::scrub`].
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

    /// As [`Store::connect`], with the key in the key file of `dir`. Where there is
    /// none it is made, if nothing in the database was sealed with another one: that is
    /// for the first host, and the others get a copy of it.
    pub fn connect_from(url: &str, options: PostgresOptions, dir: &Path) -> Result<Self> {
        Postgres::connect_from(url, options, dir).map(Self::shared)
    }

    fn shared(postgres: Postgres) -> Self {
        Self::over(Engine::Postgres(Arc::new(postgres)))
    }

    /// Seals every tenant's key of the store at `url` with a new master key: `new` (64
    /// hexadecimal digits), or else a random one. `environment` is the present key; without
    /// it that is in the key file of `dir`, as for [`Store::connect_from`].
    ///
    /// The new key is written to the key file, but for one that is given while the present
    /// one comes from the environment: that stays out of files. One transaction does it, so
    /// that one of the two keys is wholly in force whenever this ends. Hosts that run go on
    /// with the tenants that they have met, and make and open no others until they have the
    /// new key.
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

    /// The time that all hosts of a shared store go by, which never goes back. None where
    /// the machine's own clock will do, or until the database has answered.
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
