//! One transaction, as the code of an operation sees it.

use std::cell::Cell;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use icecore_domain::ids::{Scope, Tenant};

use crate::bounds::HeldBounds;
use crate::engine;
use crate::engine::keyring::Keyring;
use crate::engine::{Connection, OptionalExtension, Params, Row, ToSql, Value};
use crate::error::{Result, StoreError};

/// Which rows a transaction may see and change, and which other writers it waits for.
///
/// PostgreSQL enforces it with row-level security and advisory locks. SQLite has one
/// writer at a time, so there it only names what the statements are about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Isolation {
    /// One memory, and what it shares with the others of its tenant.
    Scope(Scope),
    /// One tenant.
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
    /// Turns an engine's error into ours.
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

    /// Whose rows it is about.
    pub(crate) fn of(&self) -> &Isolation {
        self.of
    }

    pub(crate) fn keys(&self) -> &Keyring {
        &self.context.keys
    }

    pub(crate) fn bounds(&self) -> &HeldBounds {
        &self.context.bounds
    }

    /// Every row that a statement finds, as what `read` makes of it.
    pub(crate) fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut statement = self.prepare_cached(sql)?;
        let rows = statement.query_map(params, read)?;
        Ok(rows.collect::<Result<_>>()?)
    }

    /// The first row that a statement finds, if any.
    pub(crate) fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        Ok(self.prepare_cached(sql)?.query_row(params, read).optional()?)
    }

    /// The first row that a statement finds, which is there.
    pub(crate) fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        Ok(self.prepare_cached(sql)?.query_row(params, read)?)
    }

    /// Whether a statement finds a row.
    pub(crate) fn finds(&self, sql: &str, params: impl Params) -> Result<bool> {
        Ok(self.prepare_cached(sql)?.exists(params)?)
    }

    /// Runs a statement that changes rows; answers how many.
    pub(crate) fn run(&self, sql: &str, params: impl Params) -> Result<usize> {
        Ok(self.prepare_cached(sql)?.execute(params)?)
    }

    /// As [`Tx::run`], whatever the number.
    pub(crate) fn change(&self, sql: &str, params: impl Params) -> Result<()> {
        self.run(sql, params).map(drop)
    }

    /// Adds a row to a table.
    pub(crate) fn insert(&self, table: &str, row: &[(&str, &dyn ToSql)]) -> Result<()> {
        self.change(&insert_sql(table, row), row)
    }

    /// Adds a row to a table, or replaces the values of the one that has this key, which
    /// are the first columns.
    pub(crate) fn upsert(&self, table: &str, key: usize, row: &[(&str, &dyn ToSql)]) -> Result<()> {
        let names: Vec<&str> = row.iter().map(|(name, _)| *name).collect();
        let (key, rest) = names.split_at(key);
        let rest: Vec<String> =
            rest.iter().map(|name| format!("{name} = excluded.{name}")).collect();
        let sql = format!(
            "{} ON CONFLICT ({}) DO UPDATE SET {}",
            insert_sql(table, row),
            key.join(", "),
            rest.join(", ")
        );
        self.change(&sql, row)
    }

    /// As [`Tx::all`], once for each of several keys, in their order.
    pub(crate) fn each<'v, T>(
        &self,
        sql: &str,
        keys: impl IntoIterator<Item = Vec<Value<'v>>>,
        read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<Vec<T>>> {
        let keys: Vec<_> = keys.into_iter().collect();
        Ok(self.prepare_cached(sql)?.query_each(&keys, read)?)
    }

    /// As [`Tx::each`], all that is found one after the other.
    pub(crate) fn all_of<'v, T>(
        &self,
        sql: &str,
        keys: impl IntoIterator<Item = Vec<Value<'v>>>,
        read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        Ok(self.each(sql, keys, read)?.into_iter().flatten().collect())
    }

    /// As [`Tx::run`], once for each of several rows.
    pub(crate) fn run_each(&self, sql: &str, rows: &[Vec<Value<'_>>]) -> Result<()> {
        Ok(self.prepare_cached(sql)?.execute_each(rows)?)
    }

    /// What is stored is not what was written.
    pub(crate) fn damaged(&self, reason: &str) -> StoreError {
        StoreError::Damaged { path: self.context.path.clone(), reason: reason.to_owned() }
    }
}

fn insert_sql(table: &str, row: &[(&str, &dyn ToSql)]) -> String {
    let names: Vec<&str> = row.iter().map(|(name, _)| *name).collect();
    let places: Vec<String> = (1..=row.len()).map(|at| format!("?{at}")).collect();
    format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), places.join(", "))
}

impl Deref for Tx<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}
