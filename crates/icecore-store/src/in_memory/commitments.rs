//! Intentions that wait for their condition.

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::time::Millis;
use icecore_domain::workspace::Workspace;

use super::state::State;
use crate::store::*;

pub(super) fn put(
    state: &mut State,
    key: &IdentityKey,
    scope: &Scope,
    commitment: NewCommitment,
) -> Result<CommitmentRecord> {
    todo!()
}

pub(super) fn get(state: &State, tenant: &Tenant, id: &str) -> Result<Option<CommitmentRecord>> {
    todo!()
}

pub(super) fn list(
    state: &State,
    tenant: &Tenant,
    memory: Option<&str>,
    limit: usize,
) -> Result<Vec<CommitmentRecord>> {
    todo!()
}

pub(super) fn due(state: &State, now: Millis, limit: usize) -> Result<Vec<CommitmentRecord>> {
    todo!()
}

pub(super) fn waiting(state: &State, limit: usize) -> Result<Vec<CommitmentRecord>> {
    todo!()
}

pub(super) fn look_through(
    state: &mut State,
    tenant: &Tenant,
    id: &str,
    through: Position,
) -> Result<()> {
    todo!()
}

pub(super) fn fire(
    state: &mut State,
    tenant: &Tenant,
    id: &str,
    because: Option<&str>,
    now: Millis,
) -> Result<Option<Fired>> {
    todo!()
}

pub(super) fn cancel(state: &mut State, tenant: &Tenant, id: &str, now: Millis) -> Result<bool> {
    todo!()
}
