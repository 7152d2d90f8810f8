//! Intentions that wait for their condition.

use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::time::Millis;
use icecore_domain::workspace::Workspace;
use rusqlite::Connection;

use super::Shared;
use crate::store::*;

pub(super) fn put(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    commitment: NewCommitment,
) -> Result<CommitmentRecord> {
    todo!()
}

pub(super) fn get(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
) -> Result<Option<CommitmentRecord>> {
    todo!()
}

pub(super) fn list(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    memory: Option<&str>,
    limit: usize,
) -> Result<Vec<CommitmentRecord>> {
    todo!()
}

pub(super) fn due(
    c: &Connection,
    s: &Shared,
    now: Millis,
    limit: usize,
) -> Result<Vec<CommitmentRecord>> {
    todo!()
}

pub(super) fn waiting(c: &Connection, s: &Shared, limit: usize) -> Result<Vec<CommitmentRecord>> {
    todo!()
}

pub(super) fn look_through(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
    through: Position,
) -> Result<()> {
    todo!()
}

pub(super) fn fire(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
    because: Option<&str>,
    now: Millis,
) -> Result<Option<Fired>> {
    todo!()
}

pub(super) fn cancel(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
    now: Millis,
) -> Result<bool> {
    todo!()
}
