//! Runs of workflows and their events.

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::time::Millis;
use icecore_domain::workspace::Workspace;

use super::state::State;
use crate::store::*;

pub(super) fn create(state: &mut State, workspace: &Workspace, run: NewRun) -> Result<RunRecord> {
    todo!()
}

pub(super) fn fork(state: &mut State, tenant: &Tenant, fork: NewFork) -> Result<Option<RunRecord>> {
    todo!()
}

pub(super) fn get(state: &State, tenant: &Tenant, id: &str) -> Result<Option<RunRecord>> {
    todo!()
}

pub(super) fn step(
    state: &mut State,
    key: &IdentityKey,
    tenant: &Tenant,
    step: RunStep,
) -> Result<Option<RunRecord>> {
    todo!()
}

pub(super) fn events(
    state: &State,
    tenant: &Tenant,
    id: &str,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<RunEventRecord>> {
    todo!()
}

pub(super) fn unfinished(state: &State, limit: usize) -> Result<Vec<(Tenant, String)>> {
    todo!()
}

pub(super) fn expire(
    state: &mut State,
    ended_by: Millis,
    now: Millis,
    limit: usize,
) -> Result<u64> {
    todo!()
}
