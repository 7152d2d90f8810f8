//! One transaction, as the code of an operation sees it.

use std::cell::Cell;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use icecore_domain::ids::{Scope, Tenant};

use crate::bounds::HeldBounds;
use crate::engine;
use crate::engine::Connection;
use crate::engine::keyring::Keyring;
use crate::error::StoreError;

/// Which rows a transaction may see and change, and which other writers it waits for.
///
/// PostgreSQL enforces it with row-level security and advisory locks. SQLite has one
/// writer at a time, so there it only names what the statements are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Isolation {
    /// One memory, and what it shares with the others of its tenant.
    Scope(Scope),
    Tenant(Tenant),
    /// One lease, by its name. Waiting for it blocks no other writer.
    Lease(String),
    /// All tenants: sweeps, and lookups made before the tenant is known.
    Global,
    /// All tenants, while nobody else seals a tenant's key.
    MasterKey,
}

impl Isolation {
    /// The tenant whose rows alone are visible.
    pub(crate) fn tenant(&self) -> Option<&Tenant> {
        match self {
            Isolation::Scope(scope) => Some(scope.tenant()),
            Isolation::Tenant(tenant) => Some(tenant),
            Isolation::Lease(_) | Isolation::Global | Isolation::MasterKey => None,
        }
    }
}

impl From<&Scope> for Isolation {
    fn from(scope: &Scope) -> Self {
        Isolation::Scope(scope.clone())
    }
}

impl From<&Tenant> for Isolation {
    fn from(tenant: &Tenant) -> Self {
        Isolation::Tenant(tenant.clone())
    }
}

impl From<Option<&Tenant>> for Isolation {
    fn from(tenant: Option<&Tenant>) -> Self {
        tenant.map_or(Isolation::Global, Isolation::from)
    }
}

/// What every operation needs besides its connection.
pub struct Context {
    /// The file, or the name of the database in errors.
    pub(crate) path: PathBuf,
    pub(crate) keys: Keyring,
    pub(crate) classify: fn(engine::Error, &Path) -> StoreError,
    pub(crate) bounds: HeldBounds,
}

impl Context {
    /// Says what an error of the engine means, now that it leaves the transaction.
    pub(crate) fn classified(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Database(error) => (self.classify)(error, &self.path),
            other => other,
        }
    }
}

/// A transaction: a connection to run statements on, and the keys to open what they read.
///
/// `?` turns an engine's error into a [`StoreError`].
pub struct Tx<'c> {
    connection: &'c Connection,
    context: &'c Context,
    of: &'c Isolation,
    /// The numbers of the memory that it is about, once they were looked up.
    pub(crate) numbers: Cell<Option<ScopeNo>>,
}

/// Numbers that stand for a memory in tables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScopeNo {
    pub(crate) tenant: i64,
    pub(crate) scope: i64,
}

impl<'c> Tx<'c> {
    pub(crate) fn new(connection: &'c Connection, context: &'c Context, of: &'c Isolation) -> Self {
        Self { connection, context, of, numbers: Cell::new(None) }
    }

    pub(crate) fn of(&self) -> &Isolation {
        self.of
    }

    pub(crate) fn keys(&self) -> &Keyring {
        &self.context.keys
    }

    pub(crate) fn bounds(&self) -> &HeldBounds {
        &self.context.bounds
    }

    /// What is stored is not what was written.
    pub(crate) fn damaged(&self, reason: &str) -> StoreError {
        StoreError::Damaged { path: self.context.path.clone(), reason: reason.to_owned() }
    }
}

impl Deref for Tx<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}
