//! Entries that stand for others.

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::time::Millis;
use icecore_domain::workspace::Workspace;

use super::state::State;
use crate::store::*;

pub(super) fn derive(
    state: &mut State,
    key: &IdentityKey,
    scope: &Scope,
    derivation: Derivation,
) -> Result<Option<Derived>> {
    todo!()
}

pub(super) fn sources(
    state: &State,
    scope: &Scope,
    id: &str,
    now: Millis,
) -> Result<Vec<EntryRecord>> {
    todo!()
}

pub(super) fn crowded(
    state: &State,
    count: u64,
    quiet_since: Millis,
    now: Millis,
    limit: usize,
) -> Result<Vec<Scope>> {
    todo!()
}
