//! The store: two functions, [`Store::read`] and [`Store::write`], over one of two engines.
//!
//! Every operation is a closure over a [`Tx`]. Its folder holds its records, its contract
//! and its SQL; what all operations share (the engine, fences, errors, test hooks) is here.

#[cfg(debug_assertions)]
pub mod hooks;
pub(crate) mod leases;
mod open;

use std::sync::Arc;

#[cfg(feature = "postgres")]
use crate::engine::postgres::Postgres;
use crate::engine::sqlite::Sqlite;
use crate::engine::tx::{Context, Isolation, Tx};
use crate::engine::{ToSql, params};
use crate::error::Result;
use crate::store::leases::Fence;
use crate::timings::StoreTimings;

/// The durable home of memories, in SQLite or PostgreSQL.
///
/// A clone is another handle of the same store. Of both engines holds:
///
/// - Once a write resolves it survives a crash. A write that fails, at whatever
///   instruction, left nothing behind.
/// - Positions of a tenant are given in the order in which they become visible:
///   a reader that has seen one is never shown a smaller new one.
/// - Nothing of one tenant is visible through a scope of another.
#[derive(Clone)]
pub struct Store {
    pub(crate) engine: Engine,
    /// The lease under which it writes.
    fence: Option<Fence>,
    #[cfg(debug_assertions)]
    hooks: hooks::Hooks,
}

/// The database behind a store.
#[derive(Clone)]
pub(crate) enum Engine {
    Sqlite(Arc<Sqlite>),
    #[cfg(feature = "postgres")]
    Postgres(Arc<Postgres>),
}

impl Store {
    pub(crate) fn over(engine: Engine) -> Self {
        Self {
            engine,
            fence: None,
            #[cfg(debug_assertions)]
            hooks: hooks::Hooks::default(),
        }
    }

    /// Runs `f` in one read transaction: everything that it reads is of one moment.
    pub async fn read<T: Send + 'static>(
        &self,
        of: impl Into<Isolation>,
        op: &'static str,
        f: impl Fn(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let of = of.into();
        #[cfg(debug_assertions)]
        let of = self.hooks.before_read(op, of).await?;
        let answer = match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.read(of.clone(), op, f).await,
            #[cfg(feature = "postgres")]
            Engine::Postgres(postgres) => postgres.read(of.clone(), op, f).await,
        };
        #[cfg(debug_assertions)]
        let answer = self.hooks.after_read(op, &of, answer?).await;
        #[cfg(not(debug_assertions))]
        drop(of);
        answer
    }

    /// Runs `f` in one write transaction, which is durable when this resolves. It may run
    /// more than once and only the last run counts, so it must have no side effects.
    ///
    /// Under a lease it fails with [`StoreError::LeaseLost`] once another holds that.
    pub async fn write<T: Send + 'static>(
        &self,
        of: impl Into<Isolation>,
        op: &'static str,
        f: impl Fn(&Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.write_with(of, op, (), move |tx, ()| f(tx)).await
    }

    /// As [`Store::write`], with arguments that test hooks see and may change.
    pub(crate) async fn write_with<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        of: impl Into<Isolation>,
        op: &'static str,
        args: A,
        f: impl Fn(&Tx<'_>, &A) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (of, fence) = (of.into(), self.fence.clone());
        #[cfg(debug_assertions)]
        let (args, fence) = self.hooks.before_write(op, &of, args, fence).await?;
        let args = Arc::new(args);
        let given = Arc::clone(&args);
        let act = move |tx: &Tx<'_>| {
            if let Some(fence) = &fence {
                leases::refuse_lost(tx, fence)?;
            }
            f(tx, &given)
        };
        let answer = match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.write(of.clone(), op, act).await,
            #[cfg(feature = "postgres")]
            Engine::Postgres(postgres) => postgres.write(of.clone(), op, act).await,
        };
        #[cfg(debug_assertions)]
        let answer = self.hooks.after_write(op, &of, &*args, self.fence.as_ref(), answer?).await;
        answer
    }

    /// Runs one statement on rows of all tenants, with a bound and with how many rows at most.
    /// Returns how many it changed.
    pub(crate) async fn sweep(
        &self,
        op: &'static str,
        sql: &'static str,
        bound: impl ToSql + Send + 'static,
        limit: usize,
    ) -> Result<u64> {
        let sweep = move |tx: &Tx<'_>| Ok(tx.run(sql, params![bound, limit])? as u64);
        self.write(Isolation::Global, op, sweep).await
    }

    /// This store for the holder of a lease: every write checks the lease's number in its
    /// own transaction, and fails with [`StoreError::LeaseLost`] and no effect once another
    /// holds it. A lease that has run out is lost only when another takes it. Leases
    /// themselves, [`Store::tidy`] and [`Store::scrub`] are not fenced.
    pub fn fenced(&self, fence: Fence) -> Store {
        Self { fence: Some(fence), ..self.clone() }
    }

    /// This store without the lease under which it writes.
    pub(crate) fn unfenced(&self) -> Store {
        Self { fence: None, ..self.clone() }
    }

    /// This store with a hook around every call, outside of those that it has.
    #[cfg(debug_assertions)]
    pub fn hooked(&self, hook: Arc<dyn hooks::Hook>) -> Store {
        Self { hooks: self.hooks.with(hook), ..self.clone() }
    }

    pub(crate) fn context(&self) -> &Context {
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.context(),
            #[cfg(feature = "postgres")]
            Engine::Postgres(postgres) => postgres.context(),
        }
    }

    /// Gives space back, and empties side files if no reader uses them; returns whether it did.
    pub async fn tidy(&self) -> Result<bool> {
        #[cfg(debug_assertions)]
        self.hooks.before_write("tidy", &Isolation::Global, (), None).await?;
        let answer = match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.tidy().await,
            // The server does it by itself.
            #[cfg(feature = "postgres")]
            Engine::Postgres(_) => Ok(true),
        };
        #[cfg(debug_assertions)]
        let answer = self.hooks.after_write("tidy", &Isolation::Global, &(), None, answer?).await;
        answer
    }

    /// Removes what was deleted from every file. Waits for readers, then fails with
    /// [`StoreError::StillRead`].
    ///
    /// Writes wait while it runs, as long as the store is large. SQLite copies the database
    /// into memory: a temporary file might leave elsewhere what is to be erased here.
    pub async fn scrub(&self) -> Result<()> {
        #[cfg(debug_assertions)]
        self.hooks.before_write("scrub", &Isolation::Global, (), None).await?;
        let answer = match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.scrub().await,
            #[cfg(feature = "postgres")]
            Engine::Postgres(postgres) => postgres.scrub().await,
        };
        #[cfg(debug_assertions)]
        let answer = self.hooks.after_write("scrub", &Isolation::Global, &(), None, answer?).await;
        answer
    }

    /// How long its work took so far, in this process.
    pub fn timings(&self) -> StoreTimings {
        match &self.engine {
            Engine::Sqlite(sqlite) => sqlite.timings(),
            #[cfg(feature = "postgres")]
            Engine::Postgres(postgres) => postgres.timings(),
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("at", &self.context().path).finish_non_exhaustive()
    }
}
