//! Leases and their numbers.

use icecore_domain::time::Millis;

use crate::engine::tx::{Isolation, Tx};
use crate::engine::{column, params};
use crate::error::{Result, StoreError};
use crate::store::Store;

/// Proof of having taken a lease, by which what is written under it is told from what a
/// former holder writes. See [`Store::fenced`].
///
/// [`Store::fenced`]: crate::Store::fenced
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    pub name: String,
    /// Rises whenever its holder changes.
    pub token: u64,
}

pub(crate) fn take(
    tx: &Tx<'_>,
    name: &str,
    holder: &str,
    until: Millis,
    now: Millis,
) -> Result<Option<Fence>> {
    let most = now.0.saturating_add(MAX_LEASE_MILLIS);
    let take = "INSERT INTO leases (name, holder, token, until) VALUES (?1, ?2, 1, ?3)
                ON CONFLICT (name) DO UPDATE SET
                  token = leases.token + CASE WHEN leases.holder = ?2 THEN 0 ELSE 1 END,
                  holder = ?2,
                  until = ?3
                WHERE leases.holder IS NULL OR leases.holder = ?2
                  OR leases.until <= ?4 OR leases.until > ?5
                RETURNING token";
    let token = tx.first(take, params![name, holder, until, now, most], column)?;
    Ok(token.map(|token| Fence { name: name.to_owned(), token }))
}

pub(crate) fn release(tx: &Tx<'_>, fence: &Fence) -> Result<()> {
    let release = "UPDATE leases SET holder = NULL, token = token + 1, until = 0
                   WHERE name = ?1 AND token = ?2";
    tx.run(release, params![fence.name, fence.token]).map(drop)
}

/// Fails if another holds the lease by now.
pub(crate) fn refuse_lost(tx: &Tx<'_>, fence: &Fence) -> Result<()> {
    let held = "SELECT 1 FROM leases WHERE name = ?1 AND token = ?2 /* FOR SHARE */";
    match tx.finds(held, params![fence.name, fence.token])? {
        true => Ok(()),
        false => Err(StoreError::LeaseLost { name: fence.name.clone() }),
    }
}

impl Store {
    /// Takes a lease until a moment, or renews it, also late; `None` while another holds it.
    /// Its number rises whenever the holder changes.
    pub async fn lease(
        &self,
        name: &str,
        by: &str,
        until: Millis,
        now: Millis,
    ) -> Result<Option<Fence>> {
        let (name, by) = (name.to_owned(), by.to_owned());
        let of = Isolation::Lease(name.clone());
        self.unfenced().write(of, "lease", move |tx| take(tx, &name, &by, until, now)).await
    }

    /// Gives a lease back, unless another holds it by now. Its number is void from then on.
    pub async fn release(&self, fence: &Fence) -> Result<()> {
        let of = Isolation::Lease(fence.name.clone());
        self.unfenced().write_with(of, "release", fence.clone(), release).await
    }
}

/// No lease is for longer than this, in milliseconds: one that seems to be was taken by
/// a clock that was wrong, and is nobody's.
pub const MAX_LEASE_MILLIS: i64 = 3_600_000;
