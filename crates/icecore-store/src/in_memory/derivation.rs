//! Entries that stand for others.

use std::collections::BTreeSet;

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Position, Scope};
use icecore_domain::time::Millis;

use super::secrets;
use super::state::{EntryState, State, TenantState};
use crate::store::*;

pub(super) fn derive(
    state: &mut State,
    key: &IdentityKey,
    scope: &Scope,
    derivation: Derivation,
) -> Result<Option<Derived>> {
    secrets::refuse_changed(state, scope.tenant(), derivation.secrets_seen)?;
    if !is_still_there(state, scope, &derivation) {
        return Ok(None);
    }
    let Derivation { outputs, replaced, kind, payload, now, .. } = derivation;
    let expires = |id: &str| {
        let mut found = state.entries(scope).filter(|entry| entry.record.id == id);
        found.find_map(|entry| entry.record.expires_at)
    };
    let expiries: Vec<Option<Millis>> = outputs
        .iter()
        .enumerate()
        .map(|(place, output)| {
            let mine = replaced.iter().filter(|one| one.by == Successor::Output(place));
            let quoted = mine.filter(|one| !one.is_overtaken);
            quoted.filter_map(|one| expires(&one.id)).chain(output.expires_at).min()
        })
        .collect();
    let kept: Vec<Option<Millis>> = replaced
        .iter()
        .map(|one| match &one.by {
            Successor::Kept(id) => expires(id),
            Successor::Output(_) => None,
        })
        .collect();

    let tenant = state.ensure_scope(scope);
    let mut written = Vec::new();
    for (output, expires_at) in outputs.into_iter().zip(expiries) {
        let DerivedEntry { content, tags, hidden, .. } = output;
        let id = entry_id(key, Position(tenant.position.0 + 1));
        let payload = serde_json::json!({ "memoryRef": scope.memory(), "memoryId": id });
        let payload = payload_with(payload, &hidden);
        let began = tenant.record(Some(scope.memory()), "memory.written", payload, now);
        tenant.add_hidden(scope.memory(), began, hidden);
        let (created_at, derived, successor) = (now, true, None);
        let record =
            EntryRecord { id, content, tags, created_at, expires_at, began, derived, successor };
        tenant.entries.push(EntryState::new(scope.memory(), record.clone()));
        written.push(record);
    }
    let ids: Vec<String> = written.iter().map(|entry| entry.id.clone()).collect();
    let payload = payload(&ids).to_string();
    let position = tenant.record(Some(scope.memory()), kind.as_str(), payload.clone(), now);
    for (one, kept_until) in replaced.into_iter().zip(kept) {
        let mut mine = tenant.entries.iter_mut().filter(|entry| entry.memory == scope.memory());
        let Some(entry) = mine.find(|entry| entry.record.id == one.id) else { continue };
        let (ended, by, until) = match one.by {
            Successor::Kept(id) => (position, id, kept_until),
            Successor::Output(place) => {
                let by = &written[place];
                if !one.is_overtaken {
                    tenant.quotes.insert((entry.record.began, by.began));
                }
                (by.began, by.id.clone(), by.expires_at)
            }
        };
        entry.record.successor = Some(by);
        (entry.ended, entry.superseded_until) = (Some(ended), until);
        entry.is_overtaken = one.is_overtaken;
    }
    Ok(Some(Derived { outputs: written, payload, position }))
}

fn is_still_there(state: &State, scope: &Scope, derivation: &Derivation) -> bool {
    let is_in_force = |id: &str| {
        let mut entries = state.entries(scope);
        entries.any(|entry| entry.record.id == id && entry.in_force_now(derivation.now))
    };
    let count = |id: &str| derivation.replaced.iter().filter(|one| one.id == id).count();
    derivation.replaced.iter().all(|one| {
        let is_successor_there = match &one.by {
            Successor::Output(place) => *place < derivation.outputs.len(),
            Successor::Kept(id) => count(id) == 0 && is_in_force(id),
        };
        count(&one.id) == 1 && is_in_force(&one.id) && is_successor_there
    })
}

pub(super) fn sources(
    state: &State,
    scope: &Scope,
    id: &str,
    now: Millis,
) -> Result<Vec<EntryRecord>> {
    let is_source = |entry: &&EntryState| {
        let is_named = entry.record.successor.as_deref() == Some(id);
        is_named && entry.is_superseded(now) && entry.lives(now)
    };
    let mut found: Vec<EntryRecord> =
        state.entries(scope).filter(is_source).map(|entry| entry.record.clone()).collect();
    found.sort_by_key(|entry| (entry.created_at, entry.began));
    Ok(found)
}

pub(super) fn crowded(
    state: &State,
    count: u64,
    quiet_since: Millis,
    now: Millis,
    limit: usize,
) -> Result<Vec<Scope>> {
    let mut scopes = Vec::new();
    for tenant in &state.tenants {
        for scope in &tenant.scopes {
            let mine = tenant.entries.iter().filter(|entry| entry.memory == scope.memory);
            let shown: Vec<&EntryState> = mine.filter(|entry| entry.in_force_now(now)).collect();
            let is_quiet = shown.iter().all(|entry| entry.record.created_at <= quiet_since);
            if is_quiet && shown.len() as u64 >= count {
                scopes.push(tenant.scope(&scope.memory));
            }
        }
    }
    scopes.truncate(limit);
    Ok(scopes)
}

// What goes along

/// What goes with entries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Going {
    /// What they stand for unless that was overtaken, and what was made of any of
    /// these; only what is there.
    ByDeletion,
    /// The same, whether it is still there or not.
    ByErasure,
    /// What was made of them, whether it is still there or not.
    Quoting,
}

/// These entries, and what goes with them.
pub(super) fn going_with(
    tenant: &TenantState,
    memory: &str,
    first: &[Position],
    now: Millis,
    how: Going,
) -> BTreeSet<Position> {
    let is_there = |entry: &EntryState| how != Going::ByDeletion || entry.is_kept(now);
    let mine = || tenant.entries.iter().filter(|entry| entry.memory == memory);
    let mut going: BTreeSet<Position> = first.iter().copied().collect();
    loop {
        let ids: Vec<&str> = mine()
            .filter(|entry| going.contains(&entry.record.began))
            .map(|entry| entry.record.id.as_str())
            .collect();
        let is_said_by = |entry: &&EntryState| {
            let is_now = entry.is_superseded(now) && !entry.is_overtaken && is_there(entry);
            is_now && entry.record.successor.as_deref().is_some_and(|by| ids.contains(&by))
        };
        let before = going.len();
        let more: Vec<Position> =
            mine().filter(is_said_by).map(|entry| entry.record.began).collect();
        going.extend(more.into_iter().filter(|_| how != Going::Quoting));
        if going.len() == before {
            break;
        }
    }
    loop {
        let is_made_of = |entry: &&EntryState| {
            let made = entry.record.began;
            is_there(entry) && going.iter().any(|source| tenant.quotes.contains(&(*source, made)))
        };
        let more: Vec<Position> =
            mine().filter(is_made_of).map(|entry| entry.record.began).collect();
        let before = going.len();
        going.extend(more);
        if going.len() == before {
            return going;
        }
    }
}

/// What an entry stood for is in force again; answers how many that are.
pub(super) fn restore(tenant: &mut TenantState, memory: &str, id: &str) -> usize {
    let mine = tenant.entries.iter_mut().filter(|entry| entry.memory == memory);
    let stood_for = mine.filter(|entry| entry.record.successor.as_deref() == Some(id));
    stood_for.map(EntryState::restore).count()
}

/// Deletes entries by where they began, with what was counted of them.
pub(super) fn delete(tenant: &mut TenantState, memory: &str, going: &BTreeSet<Position>) {
    for began in going {
        let gone = tenant.entries.iter().position(|entry| entry.record.began == *began);
        let Some(gone) = gone.map(|at| tenant.entries.remove(at)) else { continue };
        restore(tenant, memory, &gone.record.id);
        // What was made of it was made of what it was made of.
        let quotes = tenant.quotes.clone();
        for (source, _) in quotes.iter().filter(|(_, output)| output == began) {
            for (_, output) in quotes.iter().filter(|(source, _)| source == began) {
                tenant.quotes.insert((*source, *output));
            }
        }
        tenant.quotes.retain(|(source, output)| source != began && output != began);
    }
    tenant.prune_hidden();
}

pub(super) fn oldest_places(
    state: &State,
    scope: &Scope,
    after: Option<EntryPlace>,
    now: Millis,
    limit: usize,
) -> Result<Vec<EntryPlace>> {
    let shown = state.entries(scope).filter(|entry| entry.in_force_now(now));
    let places = shown.map(|entry| entry.record.place());
    let mut found: Vec<EntryPlace> = places.filter(|place| Some(*place) > after).collect();
    found.sort();
    found.truncate(limit);
    Ok(found)
}
