//! Entries that stand for others.

use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::time::Millis;
use icecore_domain::workspace::Workspace;
use rusqlite::Connection;

use super::Shared;
use crate::store::*;

pub(super) fn derive(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    derivation: Derivation,
) -> Result<Option<Derived>> {
    todo!()
}

pub(super) fn sources(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    id: &str,
    now: Millis,
) -> Result<Vec<EntryRecord>> {
    todo!()
}

pub(super) fn crowded(
    c: &Connection,
    s: &Shared,
    count: u64,
    quiet_since: Millis,
    now: Millis,
    limit: usize,
) -> Result<Vec<Scope>> {
    todo!()
}
