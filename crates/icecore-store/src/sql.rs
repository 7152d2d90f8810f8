//! The store in SQL: the same tables and statements for every engine.
//!
//! Each operation is a function over a [`engine::Connection`] inside a transaction.
//! The engine decides what a transaction is, who may see what in it, and whether it
//! is run again.

mod answers;
mod api_keys;
mod append;
mod archives;
mod commitments;
mod derivation;
mod dream_loss;
mod dreams;
pub(crate) mod engine;
mod entries;
mod erase;
mod facts;
mod handoffs;
mod health;
mod keyring;
mod leases;
mod links;
mod log;
mod moving;
pub(crate) mod pyramid;
mod recalled;
mod rewrite;
pub(crate) mod rotation;
mod rows;
mod runs;
mod schedules;
mod secrets;
mod store;
mod stretches;
mod tables;
mod told;
mod usage;
mod workspace;

use std::future::Future;
use std::path::PathBuf;

use icecore_domain::ids::{Scope, Tenant};

use crate::bounds::HeldBounds;
use crate::error::StoreError;
use crate::store::Result;
use crate::timings::StoreTimings;
use engine::Connection;
pub(crate) use keyring::Keyring;
pub use moving::{
    Backup, BackupOf, BackupReport, Doing, MOVING, MigrationReport, Moved, Moving, Objects,
    Restored, Tables, Tell, back_up, half_moved_from, migrate, restore,
};
#[cfg(all(test, feature = "postgres"))]
pub(crate) use rows::ensure_tenant;
pub use store::SqlStore;

/// Note under which the master key's check value is kept.
pub(crate) const KEY_CHECK: &str = "master-key-check";

/// What every operation needs beside its connection.
pub struct Shared {
    /// The file, or what stands for the database in errors.
    pub(crate) path: PathBuf,
    pub(crate) keys: Keyring,
    /// What an error of the engine means to a person.
    pub(crate) classify: fn(engine::Error, &std::path::Path) -> StoreError,
    /// What tenants may keep.
    pub(crate) bounds: HeldBounds,
}

impl Shared {
    fn failed(&self, error: engine::Error) -> StoreError {
        (self.classify)(error, &self.path)
    }
}

/// Whose rows an operation is about: an engine shows it no others, and lets no two
/// writes at the same rows in at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wall {
    /// One memory's, and what it shares with the others of its tenant.
    Scope(Scope),
    /// One tenant's.
    Tenant(Tenant),
    /// One lease, which is nobody's. Whoever waits for it keeps no others waiting.
    Lease(String),
    /// Everybody's: what sweeps, and what is looked up before the tenant is known.
    Everyone,
    /// Everybody's, while nobody else seals a tenant's key.
    MasterKey,
}

impl Wall {
    fn scope(scope: &Scope) -> Self {
        Wall::Scope(scope.clone())
    }

    fn tenant(tenant: &Tenant) -> Self {
        Wall::Tenant(tenant.clone())
    }

    /// One tenant's where one is named.
    fn around(tenant: Option<&Tenant>) -> Self {
        tenant.map_or(Wall::Everyone, Wall::tenant)
    }
}

/// How much an operation reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// A few rows by their keys.
    Few,
    /// More.
    Many,
}

/// What keeps tables and runs transactions.
///
/// Writes of one tenant become visible in the order of their positions, and those at the
/// rows of one memory happen one after the other. An act may run more than once, and
/// only its last run counts.
pub trait Engine: Send + Sync + 'static {
    /// What operations need.
    fn shared(&self) -> &Shared;

    /// Runs `act` in a transaction that is durable when this resolves.
    fn write<T: Send + 'static>(
        &self,
        wall: Wall,
        act: impl Fn(&Connection, &Shared) -> Result<T> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send;

    /// Runs `act` over one snapshot.
    fn read<T: Send + 'static>(
        &self,
        wall: Wall,
        size: Size,
        act: impl Fn(&Connection, &Shared) -> Result<T> + Send + 'static,
    ) -> impl Future<Output = Result<T>> + Send;

    /// See [`crate::Store::tidy`].
    fn tidy(&self) -> impl Future<Output = Result<bool>> + Send;

    /// See [`crate::Store::scrub`].
    fn scrub(&self) -> impl Future<Output = Result<()>> + Send;

    /// What the engine says of the soundness of its own files.
    fn check(&self) -> impl Future<Output = Result<Vec<String>>> + Send;

    /// See [`crate::Store::timings`].
    fn timings(&self) -> StoreTimings;
}
