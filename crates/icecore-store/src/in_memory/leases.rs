//! Leases and their numbers.

use icecore_domain::time::Millis;

use super::state::State;
use crate::dreams::MAX_LEASE_MILLIS;
use crate::error::StoreError;
use crate::store::*;

pub(super) struct KnownLease {
    holder: Option<String>,
    token: u64,
    until: Millis,
}

pub(super) fn take(
    state: &mut State,
    name: &str,
    holder: &str,
    until: Millis,
    now: Millis,
) -> Option<Fence> {
    let most = Millis(now.0.saturating_add(MAX_LEASE_MILLIS));
    let none = KnownLease { holder: None, token: 0, until: Millis(0) };
    let known = state.leases.entry(name.to_owned()).or_insert(none);
    let is_ours = known.holder.as_deref() == Some(holder);
    let is_taken = known.holder.is_some() && known.until > now && known.until <= most;
    if is_taken && !is_ours {
        return None;
    }
    if !is_ours {
        known.token += 1;
    }
    (known.holder, known.until) = (Some(holder.to_owned()), until);
    Some(Fence { name: name.to_owned(), token: known.token })
}

pub(super) fn release(state: &mut State, fence: &Fence) {
    let Some(known) = state.leases.get_mut(&fence.name) else { return };
    if known.token == fence.token {
        *known = KnownLease { holder: None, token: known.token + 1, until: Millis(0) };
    }
}

/// What is written under a lease that another holds by now is refused.
pub(super) fn refuse_lost(state: &State, fence: &Fence) -> Result<()> {
    match state.leases.get(&fence.name) {
        Some(known) if known.token == fence.token => Ok(()),
        _ => Err(StoreError::LeaseLost { name: fence.name.clone() }),
    }
}
