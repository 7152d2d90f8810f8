//! Intentions that wait for their condition.

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::time::Millis;

use super::state::{EntryState, State, TenantState};
use super::{entries, secrets};
use crate::commitments::{cancelled, commitment_id, fired, made, rewritten};
use crate::error::StoreError;
use crate::store::*;
use crate::told::Again;

/// A commitment, and where it was made.
pub(super) struct CommitmentKept {
    record: CommitmentRecord,
    position: Position,
}

fn is_pending(record: &CommitmentRecord) -> bool {
    record.state == CommitmentState::Pending
}

/// All of all tenants, in the order in which the tenants came and they were made.
fn all(state: &State) -> impl Iterator<Item = (usize, &CommitmentRecord)> {
    let tenants = state.tenants.iter().enumerate();
    tenants.flat_map(|(at, tenant)| tenant.commitments.iter().map(move |kept| (at, &kept.record)))
}

fn find_mut<'a>(
    state: &'a mut State,
    tenant: &Tenant,
    id: &str,
) -> Option<&'a mut CommitmentRecord> {
    let kept = &mut state.tenant_mut(tenant)?.commitments;
    kept.iter_mut().map(|kept| &mut kept.record).find(|record| record.id == id)
}

pub(super) fn put(
    state: &mut State,
    key: &IdentityKey,
    scope: &Scope,
    commitment: NewCommitment,
) -> Result<CommitmentRecord> {
    let NewCommitment { intention, condition, now, secrets_seen, most_pending, claim } = commitment;
    secrets::refuse_changed(state, scope.tenant(), secrets_seen)?;
    state.refuse_taken(scope.tenant(), claim.as_ref(), now)?;
    let mine = all(state).filter(|(_, record)| record.scope == *scope && is_pending(record));
    if mine.count() as u64 >= most_pending {
        return Err(StoreError::TooManyCommitments { most: most_pending });
    }
    let entry = match intention {
        Intention::New(entry) => {
            entries::put(state, key, scope, NewEntry { claim: None, ..entry })?.id
        }
        Intention::Entry(id) => {
            let is_it = |entry: &EntryState| entry.record.id == id && entry.in_force_now(now);
            match state.entries(scope).any(is_it) {
                true => id,
                false => return Err(StoreError::NoIntention { id }),
            }
        }
    };
    let tenant = state.ensure_scope(scope);
    let position = Position(tenant.position.0 + 1);
    let record = CommitmentRecord {
        id: commitment_id(key, position),
        scope: scope.clone(),
        entry,
        condition,
        state: CommitmentState::Pending,
        created_at: now,
        settled_at: None,
        through: position,
    };
    tenant.record(Some(scope.memory()), "commitment.made", made(&record), now);
    tenant.commitments.push(CommitmentKept { record: record.clone(), position });
    if let Some(claim) = claim {
        tenant.put_outcome(claim.outcome(&record), now);
    }
    Ok(record)
}

pub(super) fn get(state: &State, tenant: &Tenant, id: &str) -> Result<Option<CommitmentRecord>> {
    let kept = state.tenant(tenant).into_iter().flat_map(|tenant| &tenant.commitments);
    Ok(kept.map(|kept| &kept.record).find(|record| record.id == id).cloned())
}

pub(super) fn list(
    state: &State,
    tenant: &Tenant,
    memory: Option<&str>,
    limit: usize,
) -> Result<Vec<CommitmentRecord>> {
    let kept = state.tenant(tenant).into_iter().flat_map(|tenant| &tenant.commitments);
    let in_memory =
        |kept: &&CommitmentKept| memory.is_none_or(|memory| kept.record.scope.memory() == memory);
    let mut found: Vec<&CommitmentKept> = kept.filter(in_memory).collect();
    found.sort_by_key(|kept| std::cmp::Reverse(kept.position));
    Ok(found.into_iter().take(limit).map(|kept| kept.record.clone()).collect())
}

pub(super) fn due(state: &State, now: Millis, limit: usize) -> Result<Vec<CommitmentRecord>> {
    let mut found = Vec::new();
    for (at, record) in all(state).filter(|(_, record)| is_pending(record)) {
        if let Condition::Time(moment) = record.condition
            && moment <= now
        {
            found.push((moment, at, record));
        }
    }
    found.sort_by(|(a, a_at, one), (b, b_at, other)| (a, a_at, &one.id).cmp(&(b, b_at, &other.id)));
    Ok(found.into_iter().take(limit).map(|(_, _, record)| record.clone()).collect())
}

pub(super) fn waiting(state: &State, limit: usize) -> Result<Vec<CommitmentRecord>> {
    let is_waiting = |record: &CommitmentRecord| {
        let is_new = |entry: &EntryState| {
            entry.record.began > record.through && entry.record.id != record.entry
        };
        is_pending(record)
            && matches!(record.condition, Condition::Predicate { .. })
            && state.entries(&record.scope).any(is_new)
    };
    let found = all(state).map(|(_, record)| record).filter(|record| is_waiting(record));
    Ok(found.take(limit).cloned().collect())
}

pub(super) fn look_through(
    state: &mut State,
    tenant: &Tenant,
    id: &str,
    through: Position,
) -> Result<()> {
    if let Some(record) = find_mut(state, tenant, id).filter(|record| is_pending(record)) {
        record.through = record.through.max(through);
    }
    Ok(())
}

/// Settles a commitment that is pending, and answers it.
fn settle(
    state: &mut State,
    tenant: &Tenant,
    id: &str,
    settled: CommitmentState,
    now: Millis,
) -> Option<CommitmentRecord> {
    let record = find_mut(state, tenant, id).filter(|record| is_pending(record))?;
    (record.state, record.settled_at) = (settled, Some(now));
    Some(record.clone())
}

pub(super) fn fire(
    state: &mut State,
    tenant: &Tenant,
    id: &str,
    because: Option<&str>,
    now: Millis,
) -> Result<Option<Fired>> {
    let Some(record) = get(state, tenant, id)? else { return Ok(None) };
    // One that another stands for is there.
    let is_it = |entry: &EntryState| entry.record.id == record.entry && entry.is_kept(now);
    if !state.entries(&record.scope).any(is_it) {
        settle(state, tenant, id, CommitmentState::Void, now);
        return Ok(None);
    }
    let Some(record) = settle(state, tenant, id, CommitmentState::Fired, now) else {
        return Ok(None);
    };
    let payload = fired(&record, because);
    let known = state.ensure_tenant(tenant);
    let memory = Some(record.scope.memory());
    let position = known.record(memory, "commitment.fired", payload.clone(), now);
    Ok(Some(Fired { payload, position }))
}

pub(super) fn cancel(state: &mut State, tenant: &Tenant, id: &str, now: Millis) -> Result<bool> {
    let Some(record) = settle(state, tenant, id, CommitmentState::Cancelled, now) else {
        return Ok(false);
    };
    let known = state.ensure_tenant(tenant);
    known.record(Some(record.scope.memory()), "commitment.cancelled", cancelled(&record), now);
    Ok(true)
}

/// Deletes commitments of a memory whose intentions have gone from it.
pub(super) fn forget_erased(tenant: &mut TenantState, memory: &str) {
    let entries = &tenant.entries;
    let is_there = |id: &str| entries.iter().any(|e| e.memory == memory && e.record.id == id);
    tenant
        .commitments
        .retain(|kept| kept.record.scope.memory() != memory || is_there(&kept.record.entry));
}

/// Gives commitments of a memory its new name.
pub(super) fn rename(tenant: &mut TenantState, old: &str, new: &Scope) {
    let mine = tenant.commitments.iter_mut().map(|kept| &mut kept.record.scope);
    mine.filter(|scope| scope.memory() == old).for_each(|scope| scope.clone_from(new));
}

/// Puts what commitments wait for through a redactor; answers how many are other than
/// they were.
pub(super) fn rewrite(tenant: &mut TenantState, again: &Again<'_>) -> u64 {
    let mut changed = 0;
    for kept in &mut tenant.commitments {
        if let Some((tag, mentions)) = rewritten(again, &kept.record.condition) {
            kept.record.condition = Condition::Predicate { tag, mentions };
            changed += 1;
        }
    }
    changed
}
