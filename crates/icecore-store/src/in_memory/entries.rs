//! Long-term entries as plain records.

use std::collections::BTreeSet;

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Position, Scope};
use icecore_domain::time::Millis;

use super::derivation::Going;
use super::state::{EntryState, State, TenantState};
use super::{commitments, derivation, dreams, secrets};
use crate::bounds::{Change, entry_bytes};
use crate::error::StoreError;
use crate::store::*;

pub(super) fn put(
    state: &mut State,
    key: &IdentityKey,
    scope: &Scope,
    entry: NewEntry,
) -> Result<EntryRecord> {
    secrets::refuse_changed(state, scope.tenant(), entry.secrets_seen)?;
    let tenant = state.tenant(scope.tenant());
    let is_taken = |claim: &Claim<EntryRecord>| {
        tenant.is_some_and(|t| t.outcome(&claim.operation, &claim.key, entry.now).is_some())
    };
    if entry.claim.as_ref().is_some_and(is_taken) {
        return Err(StoreError::ClaimTaken);
    }
    let began = Position(tenant.map_or(0, |tenant| tenant.position.0) + 1);
    let NewEntry { id, content, tags, expires_at, now, hidden, claim, .. } = entry;
    let id = id.unwrap_or_else(|| entry_id(key, began));
    if state.entries(scope).any(|known| known.record.id == id) {
        return Err(StoreError::EntryExists { id });
    }
    state.refuse_beyond(scope.tenant(), || Change::bytes(entry_bytes(&content, &tags)))?;
    let payload = serde_json::json!({ "memoryRef": scope.memory(), "memoryId": id });
    let tenant = state.ensure_scope(scope);
    let payload = payload_with(payload, &hidden);
    let began = tenant.record(Some(scope.memory()), "memory.written", payload, now);
    tenant.add_hidden(scope.memory(), began, hidden);
    let record = EntryRecord {
        id,
        content,
        tags,
        created_at: now,
        expires_at,
        began,
        derived: false,
        successor: None,
    };
    tenant.entries.push(EntryState::new(scope.memory(), record.clone()));
    if let Some(claim) = claim {
        tenant.put_outcome(claim.outcome(&record), now);
    }
    Ok(record)
}

/// Refuses to read as of a position whose entries are not all kept.
pub(super) fn refuse_purged(state: &State, scope: &Scope, at: Option<Position>) -> Result<()> {
    let oldest = state.scope(scope).map_or(Position(0), |scope| scope.entries_from);
    match at {
        Some(at) if at < oldest => Err(StoreError::SnapshotGone { oldest }),
        _ => Ok(()),
    }
}

pub(super) fn newest(
    state: &State,
    scope: &Scope,
    filter: &EntryFilter,
    now: Millis,
) -> Result<Vec<EntryRecord>> {
    refuse_purged(state, scope, filter.at)?;
    let has_tag = |entry: &EntryState| match &filter.tag {
        Some(tag) => entry.record.tags.contains(tag),
        None => true,
    };
    let found = state.entries(scope).filter(|entry| entry.in_force(filter, now) && has_tag(entry));
    let mut found: Vec<EntryRecord> = found.map(EntryState::in_force_record).collect();
    found.sort_by_key(|entry| std::cmp::Reverse((entry.created_at, entry.began)));
    Ok(found)
}

pub(super) fn end(state: &mut State, scope: &Scope, id: &str, now: Millis) -> bool {
    let is_it = |entry: &&EntryState| entry.is_kept(now) && entry.record.id == id;
    let Some(first) = state.entries(scope).find(is_it).map(|entry| entry.record.began) else {
        return false;
    };
    let tenant = state.ensure_scope(scope);
    let mut ending =
        derivation::going_with(tenant, scope.memory(), &[first], now, Going::ByDeletion);
    derivation::quote_said(tenant, scope.memory(), first, now);
    ending.insert(first);
    let touched = dreams::by_entries(tenant, scope.memory(), &dreams::ids_of(tenant, &ending));
    let restored = end_all(tenant, scope, first, ending, now);
    if restored > 0 {
        // As of an earlier position it would be seen beside what stood for it then.
        tenant.keep_entries_from(scope.memory(), tenant.position);
        // An index may have been made without it. Kept answers stay: nothing is erased.
        let mut scopes = tenant.scopes.iter_mut();
        if let Some(known) = scopes.find(|known| known.memory == scope.memory()) {
            known.epoch += 1;
        }
    }
    tenant.lose_recalled(Some(scope.memory()));
    dreams::lose(tenant, scope.memory(), &touched, dreams::Going::Deleted, now);
    true
}

/// Ends entries, each with its record, one of them first; answers how many others are in
/// force again.
pub(super) fn end_all(
    tenant: &mut TenantState,
    scope: &Scope,
    first: Position,
    mut ending: BTreeSet<Position>,
    now: Millis,
) -> usize {
    ending.remove(&first);
    let ending = std::iter::once(first).chain(ending);
    let ended: Vec<Position> =
        ending.filter_map(|began| end_one(tenant, scope, began, now)).collect();
    let mut restored = 0;
    for began in ended {
        let at = tenant.entries.iter().position(|entry| entry.record.began == began);
        let Some(at) = at else { continue };
        let gone = tenant.entries[at].clone();
        tenant.entries[at].stand_alone();
        restored += derivation::let_go(tenant, scope.memory(), &gone, Some(now));
    }
    restored
}

fn end_one(
    tenant: &mut TenantState,
    scope: &Scope,
    began: Position,
    now: Millis,
) -> Option<Position> {
    let at = tenant.entries.iter().position(|entry| entry.record.began == began)?;
    let id = tenant.entries[at].record.id.clone();
    let payload = serde_json::json!({ "memoryRef": scope.memory(), "memoryId": id }).to_string();
    let position = tenant.record(Some(scope.memory()), "memory.deleted", payload, now);
    let entry = &mut tenant.entries[at];
    // What another stood for was not in force from there on, and stays so.
    let ended = entry.ended.filter(|_| entry.is_superseded(now));
    (entry.ended, entry.deleted_at) = (Some(ended.unwrap_or(position)), Some(now));
    Some(began)
}

fn is_due(entry: &EntryState, now: Millis, ended_by: Millis) -> bool {
    !entry.lives(now) || entry.deleted_at.is_some_and(|at| at <= ended_by)
}

pub(super) fn due(state: &State, now: Millis, ended_by: Millis, limit: usize) -> Vec<Scope> {
    let mut scopes = Vec::new();
    for tenant in &state.tenants {
        for scope in &tenant.scopes {
            let mut mine = tenant.entries.iter().filter(|entry| entry.memory == scope.memory);
            if mine.any(|entry| is_due(entry, now, ended_by)) {
                scopes.push(tenant.scope(&scope.memory));
            }
        }
    }
    scopes.truncate(limit);
    scopes
}

pub(super) fn purge(
    state: &mut State,
    scope: &Scope,
    now: Millis,
    ended_by: Millis,
    limit: usize,
) -> u64 {
    let due: Vec<(Position, Option<Position>)> = state
        .entries(scope)
        .filter(|entry| is_due(entry, now, ended_by))
        .map(|entry| (entry.record.began, entry.ended.filter(|_| entry.deleted_at.is_some())))
        .take(limit)
        .collect();
    if due.is_empty() {
        return 0;
    }
    let count = due.len() as u64;
    let tenant = state.ensure_scope(scope);
    let going: BTreeSet<Position> = due.iter().map(|(began, _)| *began).collect();
    let touched = dreams::by_entries(tenant, scope.memory(), &dreams::ids_of(tenant, &going));
    derivation::delete(tenant, scope.memory(), &going);
    commitments::void_purged(tenant, scope.memory(), now);
    let last_end = due.iter().filter_map(|(_, ended)| *ended).max().unwrap_or_default();
    for known in tenant.scopes.iter_mut().filter(|known| known.memory == scope.memory()) {
        known.epoch += 1;
        known.entries_from = known.entries_from.max(last_end);
    }
    let payload = serde_json::json!({ "memoryRef": scope.memory(), "entries": count });
    tenant.record(Some(scope.memory()), "memory.expired", payload.to_string(), now);
    dreams::lose(tenant, scope.memory(), &touched, dreams::Going::Deleted, now);
    count
}
