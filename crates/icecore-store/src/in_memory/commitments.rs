//! Intentions that wait for their condition.

use std::collections::BTreeMap;

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::time::Millis;

use super::state::{EntryState, State, TenantState};
use super::{entries, secrets};
use crate::commitments::{cancelled, commitment_id, fired, made, rewritten, settled};
use crate::error::StoreError;
use crate::store::*;
use crate::told::Again;

fn is_pending(record: &CommitmentRecord) -> bool {
    record.state == CommitmentState::Pending
}

/// All of all tenants, in the order in which the tenants came and they were made.
fn all(state: &State) -> impl Iterator<Item = (usize, &CommitmentRecord)> {
    let tenants = state.tenants.iter().enumerate();
    tenants.flat_map(|(at, tenant)| tenant.commitments.iter().map(move |record| (at, record)))
}

fn find_mut<'a>(
    state: &'a mut State,
    tenant: &Tenant,
    id: &str,
) -> Option<&'a mut CommitmentRecord> {
    let kept = &mut state.tenant_mut(tenant)?.commitments;
    kept.iter_mut().find(|record| record.id == id)
}

pub(super) fn put(
    state: &mut State,
    key: &IdentityKey,
    scope: &Scope,
    commitment: NewCommitment,
) -> Result<CommitmentRecord> {
    let NewCommitment {
        intention,
        condition,
        now,
        secrets_seen,
        most_pending,
        most_pending_tenant,
        claim,
    } = commitment;
    secrets::refuse_changed(state, scope.tenant(), secrets_seen)?;
    state.refuse_taken(scope.tenant(), claim.as_ref(), now)?;
    let pending = || all(state).map(|(_, record)| record).filter(|record| is_pending(record));
    if pending().filter(|record| record.scope == *scope).count() as u64 >= most_pending {
        return Err(StoreError::TooManyCommitments { most: most_pending });
    }
    let of_tenant = pending().filter(|record| record.scope.tenant() == scope.tenant());
    if of_tenant.count() as u64 >= most_pending_tenant {
        return Err(StoreError::TooManyTenantCommitments { most: most_pending_tenant });
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
        made: position,
    };
    tenant.record(Some(scope.memory()), "commitment.made", made(&record), now);
    tenant.commitments.push(record.clone());
    if let Some(claim) = claim {
        tenant.put_outcome(claim.outcome(&record), now);
    }
    Ok(record)
}

pub(super) fn get(state: &State, tenant: &Tenant, id: &str) -> Result<Option<CommitmentRecord>> {
    let kept = state.tenant(tenant).into_iter().flat_map(|tenant| &tenant.commitments);
    Ok(kept.into_iter().find(|record| record.id == id).cloned())
}

pub(super) fn list(
    state: &State,
    tenant: &Tenant,
    query: &CommitmentQuery,
) -> Result<Vec<CommitmentRecord>> {
    let CommitmentQuery { memory, state: wanted, before, limit } = query;
    let kept = || state.tenant(tenant).into_iter().flat_map(|tenant| &tenant.commitments);
    let end = match before {
        None => Position(u64::MAX),
        Some(id) => kept().find(|one| one.id == *id).map_or(Position(0), |one| one.made),
    };
    let is_it = |one: &&CommitmentRecord| {
        memory.as_ref().is_none_or(|memory| one.scope.memory() == memory)
            && wanted.is_none_or(|wanted| one.state == wanted)
            && one.made < end
    };
    let mut found: Vec<&CommitmentRecord> = kept().filter(is_it).collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.made));
    Ok(found.into_iter().take(*limit).cloned().collect())
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
    found.sort_by(|(a, _, one), (b, _, other)| (a, &one.id).cmp(&(b, &other.id)));
    let mut turns: BTreeMap<usize, u64> = BTreeMap::new();
    let in_turn = |(moment, at, record)| {
        let turn = turns.entry(at).or_default();
        *turn += 1;
        ((*turn, moment, at), record)
    };
    let mut found: Vec<((u64, Millis, usize), &CommitmentRecord)> =
        found.into_iter().map(in_turn).collect();
    found.sort_by_key(|(turn, _)| *turn);
    Ok(found.into_iter().take(limit).map(|(_, record)| record.clone()).collect())
}

/// Pending ones of a tenant that wait for an entry, as they were made.
fn predicates(tenant: &TenantState) -> impl Iterator<Item = &CommitmentRecord> {
    let mut found: Vec<&CommitmentRecord> = tenant.commitments.iter().collect();
    found.retain(|one| is_pending(one) && matches!(one.condition, Condition::Predicate { .. }));
    found.sort_by_key(|one| one.made);
    found.into_iter()
}

pub(super) fn waiting(
    state: &State,
    after: Option<&Tenant>,
    except: &[Scope],
    limit: usize,
) -> Result<Vec<Scope>> {
    let place = after.and_then(|after| state.tenants.iter().position(|one| one.name == *after));
    let tenants = state.tenants.iter().skip(place.map_or(0, |place| place + 1));
    let furthest_behind = |tenant: &TenantState| {
        let mut found: Option<(Position, &Scope)> = None;
        for known in &tenant.scopes {
            let mut mine = predicates(tenant).filter(|one| one.scope.memory() == known.memory);
            let Some(first) = mine.next() else { continue };
            let after = first.made.max(known.looked_through);
            let is_behind = state.entries(&first.scope).any(|entry| entry.record.began > after);
            let is_further = found.is_none_or(|(least, _)| after < least);
            if is_behind && is_further && !except.contains(&first.scope) {
                found = Some((after, &first.scope));
            }
        }
        found.map(|(_, scope)| scope.clone())
    };
    Ok(tenants.filter_map(furthest_behind).take(limit).collect())
}

pub(super) fn watch(state: &State, scope: &Scope) -> Result<Watch> {
    let through = state.tenant(scope.tenant()).map_or(Position(0), |tenant| tenant.position);
    let all = state.tenant(scope.tenant()).into_iter().flat_map(predicates);
    let waiting: Vec<CommitmentRecord> = all.filter(|one| one.scope == *scope).cloned().collect();
    let looked = state.scope(scope).map_or(Position(0), |known| known.looked_through);
    let after = waiting.first().map_or(through, |first| first.made.max(looked));
    Ok(Watch { waiting, after, through })
}

pub(super) fn look_through(state: &mut State, scope: &Scope, look: &Look) -> Result<Vec<Fired>> {
    let mut fired = Vec::new();
    if state.scope(scope).is_none() {
        return Ok(fired);
    }
    for Fulfilled { commitment, because } in &look.fulfilled {
        fired.extend(fire(state, scope.tenant(), commitment, Some(because), look.now)?);
    }
    if let Some(known) = state.scope_mut(scope) {
        known.looked_through = known.looked_through.max(look.through);
    }
    Ok(fired)
}

pub(super) fn purge(state: &mut State, settled_by: Millis, limit: usize) -> u64 {
    let is_due = |one: &CommitmentRecord| one.settled_at.is_some_and(|at| at <= settled_by);
    let due = all(state).filter(|(_, one)| is_due(one));
    let mut due: Vec<_> = due.map(|(at, one)| (one.settled_at, at, one.id.clone())).collect();
    due.sort();
    due.truncate(limit);
    for (_, at, id) in &due {
        state.tenants[*at].commitments.retain(|one| one.id != *id);
    }
    due.len() as u64
}

/// Voids what is pending of intentions that are not there any more.
pub(super) fn void_purged(tenant: &mut TenantState, memory: &str, now: Millis) {
    let entries = &tenant.entries;
    let is_there = |id: &str| entries.iter().any(|e| e.memory == memory && e.record.id == id);
    let mine = tenant.commitments.iter_mut().filter(|one| one.scope.memory() == memory);
    let gone = mine.filter(|one| is_pending(one) && !is_there(&one.entry));
    gone.for_each(|one| end(one, CommitmentState::Void, now));
}

fn end(record: &mut CommitmentRecord, how: CommitmentState, now: Millis) {
    (record.state, record.settled_at) = (how, Some(now));
    record.condition = settled(&record.condition);
}

/// Settles a commitment that is pending, and answers what it was.
fn settle(
    state: &mut State,
    tenant: &Tenant,
    id: &str,
    how: CommitmentState,
    now: Millis,
) -> Option<CommitmentRecord> {
    let record = find_mut(state, tenant, id).filter(|record| is_pending(record))?;
    let pending = record.clone();
    end(record, how, now);
    Some(pending)
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
    Ok(Some(Fired { commitment: record.id, payload, position }))
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
    tenant.commitments.retain(|record| record.scope.memory() != memory || is_there(&record.entry));
}

/// Deletes commitments of a memory that a selector names themselves.
pub(super) fn forget_named(tenant: &mut TenantState, memory: &str, selector: &Selector) {
    let is_named = |record: &CommitmentRecord| match (selector, &record.condition) {
        (Selector::Subject { tag, .. }, Condition::Predicate { tag: waited, .. }) => {
            waited.as_ref() == Some(tag)
        }
        (Selector::Before(at), _) => record.created_at < *at,
        _ => false,
    };
    tenant.commitments.retain(|record| record.scope.memory() != memory || !is_named(record));
}

/// Gives commitments of a memory its new name.
pub(super) fn rename(tenant: &mut TenantState, old: &str, new: &Scope) {
    let mine = tenant.commitments.iter_mut().map(|record| &mut record.scope);
    mine.filter(|scope| scope.memory() == old).for_each(|scope| scope.clone_from(new));
}

/// Puts what commitments wait for through a redactor; answers how many are other than
/// they were.
pub(super) fn rewrite(tenant: &mut TenantState, again: &Again<'_>) -> u64 {
    let mut changed = 0;
    for record in &mut tenant.commitments {
        if let Some((tag, mentions)) = rewritten(again, &record.condition) {
            record.condition = Condition::Predicate { tag, mentions };
            changed += 1;
        }
    }
    changed
}
