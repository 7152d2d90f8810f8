//! Long-term entries as plain records.

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Position, Scope};
use icecore_domain::time::Millis;

use super::secrets;
use super::state::{EntryState, State};
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
    let memory = scope.memory().to_owned();
    tenant.entries.push(EntryState { memory, record: record.clone(), ended: None });
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
    let has_tag = |entry: &EntryRecord| match &filter.tag {
        Some(tag) => entry.tags.contains(tag),
        None => true,
    };
    let found = state.entries(scope).filter(|entry| entry.in_force(filter.at, now));
    let mut found: Vec<EntryRecord> =
        found.map(|entry| &entry.record).filter(|entry| has_tag(entry)).cloned().collect();
    found.sort_by_key(|entry| std::cmp::Reverse((entry.created_at, entry.began)));
    Ok(found)
}

pub(super) fn end(state: &mut State, scope: &Scope, id: &str, now: Millis) -> bool {
    let is_it = |entry: &EntryState| entry.in_force(None, now) && entry.record.id == id;
    if !state.entries(scope).any(is_it) {
        return false;
    }
    let tenant = state.ensure_scope(scope);
    let payload = serde_json::json!({ "memoryRef": scope.memory(), "memoryId": id }).to_string();
    let position = tenant.record(Some(scope.memory()), "memory.deleted", payload, now);
    let mine = tenant.entries.iter_mut().filter(|entry| entry.memory == scope.memory());
    for entry in mine.filter(|entry| is_it(entry)) {
        entry.ended = Some((position, now));
    }
    true
}

fn is_due(entry: &EntryState, now: Millis, ended_by: Millis) -> bool {
    entry.record.expires_at.is_some_and(|at| at <= now)
        || entry.ended.is_some_and(|(_, at)| at <= ended_by)
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
        .map(|entry| (entry.record.began, entry.ended.map(|(position, _)| position)))
        .take(limit)
        .collect();
    if due.is_empty() {
        return 0;
    }
    let count = due.len() as u64;
    let tenant = state.ensure_scope(scope);
    tenant.entries.retain(|entry| !due.iter().any(|(began, _)| *began == entry.record.began));
    tenant.prune_hidden();
    let last_end = due.iter().filter_map(|(_, ended)| *ended).max().unwrap_or_default();
    for known in tenant.scopes.iter_mut().filter(|known| known.memory == scope.memory()) {
        known.epoch += 1;
        known.entries_from = known.entries_from.max(last_end);
    }
    let payload = serde_json::json!({ "memoryRef": scope.memory(), "entries": count });
    tenant.record(Some(scope.memory()), "memory.expired", payload.to_string(), now);
    count
}
