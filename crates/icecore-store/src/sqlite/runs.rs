//! Runs of workflows and their events.

use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::time::Millis;
use icecore_domain::workspace::Workspace;
use rusqlite::Connection;

use super::Shared;
use crate::store::*;

pub(super) fn create(
    c: &Connection,
    s: &Shared,
    workspace: &Workspace,
    run: NewRun,
) -> Result<RunRecord> {
    todo!()
}

pub(super) fn fork(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    fork: NewFork,
) -> Result<Option<RunRecord>> {
    todo!()
}

pub(super) fn get(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
) -> Result<Option<RunRecord>> {
    todo!()
}

pub(super) fn step(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    step: RunStep,
) -> Result<Option<RunRecord>> {
    todo!()
}

pub(super) fn events(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<RunEventRecord>> {
    todo!()
}

pub(super) fn unfinished(
    c: &Connection,
    s: &Shared,
    limit: usize,
) -> Result<Vec<(Tenant, String)>> {
    todo!()
}

pub(super) fn expire(
    c: &Connection,
    s: &Shared,
    ended_by: Millis,
    now: Millis,
    limit: usize,
) -> Result<u64> {
    todo!()
}
