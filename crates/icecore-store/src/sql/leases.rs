//! Leases and their numbers.

use icecore_domain::time::Millis;

use super::engine::{Connection, OptionalExtension, params};
use super::{Shared, rows};
use crate::dreams::MAX_LEASE_MILLIS;
use crate::error::StoreError;
use crate::store::*;

pub(super) fn take(
    c: &Connection,
    s: &Shared,
    name: &str,
    holder: &str,
    until: Millis,
    now: Millis,
) -> Result<Option<Fence>> {
    let most = now.0.saturating_add(MAX_LEASE_MILLIS);
    let token: Option<i64> = c
        .prepare_cached(
            "INSERT INTO leases (name, holder, token, until) VALUES (?1, ?2, 1, ?3)
             ON CONFLICT (name) DO UPDATE SET
               token = leases.token + CASE WHEN leases.holder = ?2 THEN 0 ELSE 1 END,
               holder = ?2,
               until = ?3
             WHERE leases.holder IS NULL OR leases.holder = ?2
               OR leases.until <= ?4 OR leases.until > ?5
             RETURNING token",
        )
        .and_then(|mut q| {
            q.query_row(params![name, holder, until.0, now.0, most], |row| row.get(0)).optional()
        })
        .map_err(|e| s.failed(e))?;
    Ok(token.map(|token| Fence { name: name.to_owned(), token: token.unsigned_abs() }))
}

pub(super) fn release(c: &Connection, s: &Shared, fence: &Fence) -> Result<()> {
    c.prepare_cached(
        "UPDATE leases SET holder = NULL, token = token + 1, until = 0
         WHERE name = ?1 AND token = ?2",
    )
    .and_then(|mut q| q.execute(params![fence.name, rows::number(fence.token)]))
    .map(|_| ())
    .map_err(|e| s.failed(e))
}

/// What is written under a lease that another holds by now is refused.
pub(super) fn refuse_lost(c: &Connection, s: &Shared, fence: &Fence) -> Result<()> {
    let is_held = c
        .prepare_cached("SELECT 1 FROM leases WHERE name = ?1 AND token = ?2 /* FOR SHARE */")
        .and_then(|mut q| q.exists(params![fence.name, rows::number(fence.token)]))
        .map_err(|e| s.failed(e))?;
    match is_held {
        true => Ok(()),
        false => Err(StoreError::LeaseLost { name: fence.name.clone() }),
    }
}
