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
        let DerivedEntry { id, content, tags, hidden, .. } = output;
        let id = id.unwrap_or_else(|| entry_id(key, Position(tenant.position.0 + 1)));
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
    reckon(tenant, scope.memory());
    Ok(Some(Derived { outputs: written, payload, position }))
}

pub(super) fn is_still_there(state: &State, scope: &Scope, derivation: &Derivation) -> bool {
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
    /// The same, whether it is still there or not, and what they were made of that is
    /// there no more.
    ByErasure,
    /// What was made of them, whether it is still there or not.
    Quoting,
    /// What was made of them; only what is there.
    Undoing,
}

/// These entries, and what goes with them.
pub(super) fn going_with(
    tenant: &TenantState,
    memory: &str,
    first: &[Position],
    now: Millis,
    how: Going,
) -> BTreeSet<Position> {
    let is_kept_alone = matches!(how, Going::ByDeletion | Going::Undoing);
    let goes_up_alone = matches!(how, Going::Quoting | Going::Undoing);
    let is_there = |entry: &EntryState| !is_kept_alone || entry.is_kept(now);
    let mine = || tenant.entries.iter().filter(|entry| entry.memory == memory);
    let mut going: BTreeSet<Position> = first.iter().copied().collect();
    loop {
        let ids: Vec<&str> = mine()
            .filter(|entry| going.contains(&entry.record.began))
            .map(|entry| entry.record.id.as_str())
            .collect();
        let is_said_by = |entry: &&EntryState| {
            let is_now = entry.is_superseded(now) && !entry.is_overtaken;
            let is_said = entry.record.successor.as_deref().is_some_and(|by| ids.contains(&by));
            let quoted = |made: &Position| tenant.quotes.contains(&(entry.record.began, *made));
            let is_over = how == Going::ByErasure && !entry.is_kept(now);
            is_now && is_said || is_over && going.iter().any(quoted)
        };
        let before = going.len();
        let more: Vec<Position> =
            mine().filter(is_said_by).map(|entry| entry.record.began).collect();
        going.extend(more.into_iter().filter(|_| !goes_up_alone));
        if going.len() == before {
            break;
        }
    }
    // What has expired led to others, and does not end.
    going.retain(|began| {
        let is_it = |entry: &&EntryState| entry.record.began == *began;
        first.contains(began) || mine().find(is_it).is_some_and(is_there)
    });
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

/// What says the same as others that end with it has their words.
pub(super) fn quote_said(tenant: &mut TenantState, memory: &str, first: Position, now: Millis) {
    let mine = || tenant.entries.iter().filter(|entry| entry.memory == memory);
    let place = |id: &str| {
        let found = mine().find(|entry| entry.record.id == id);
        found.map(|entry| entry.record.began)
    };
    let mut said = BTreeSet::from([first]);
    let mut quotes = BTreeSet::new();
    loop {
        let before = said.len();
        for entry in mine().filter(|entry| entry.is_superseded(now) && !entry.is_overtaken) {
            let by = entry.record.successor.as_deref().and_then(place);
            if let Some(by) = by.filter(|by| said.contains(by)) {
                said.insert(entry.record.began);
                quotes.insert((entry.record.began, by));
            }
        }
        if said.len() == before {
            break;
        }
    }
    tenant.quotes.extend(quotes);
}

/// Says anew until when entries are not in force: while their successor lives, and
/// then while another stands for that.
fn reckon(tenant: &mut TenantState, memory: &str) {
    loop {
        let mine = || tenant.entries.iter().filter(|entry| entry.memory == memory);
        let until = |entry: &EntryState| {
            let successor = entry.record.successor.as_ref()?;
            let by = mine().find(|by| by.record.id == *successor)?;
            let then = match by.record.successor {
                Some(_) => by.superseded_until,
                None => by.record.expires_at,
            };
            // None is for good.
            Some(by.record.expires_at.and_then(|expires_at| Some(then?.max(expires_at))))
        };
        let changed: Vec<(Position, Option<Millis>)> = mine()
            .filter_map(|entry| {
                let until = until(entry).filter(|until| *until != entry.superseded_until)?;
                Some((entry.record.began, until))
            })
            .collect();
        if changed.is_empty() {
            return;
        }
        for (began, until) in changed {
            for entry in tenant.entries.iter_mut().filter(|entry| entry.record.began == began) {
                entry.superseded_until = until;
            }
        }
    }
}

/// What an entry stood for is its successor's, or in force again if there is none at
/// that moment; answers how many are in force again.
pub(super) fn let_go(
    tenant: &mut TenantState,
    memory: &str,
    gone: &EntryState,
    now: Option<Millis>,
) -> usize {
    let has_heir = match now {
        Some(now) => gone.is_superseded(now),
        None => gone.record.successor.is_some(),
    };
    let mine = tenant.entries.iter_mut().filter(|entry| entry.memory == memory);
    let id = Some(&gone.record.id);
    let mut restored = 0;
    for entry in mine.filter(|entry| entry.record.successor.as_ref() == id) {
        if has_heir {
            entry.record.successor.clone_from(&gone.record.successor);
            entry.superseded_until = gone.superseded_until;
            entry.is_overtaken |= gone.is_overtaken;
        } else if entry.deleted_at.is_some() {
            entry.stand_alone();
        } else {
            entry.restore();
            restored += 1;
        }
    }
    reckon(tenant, memory);
    restored
}

/// Deletes entries by where they began, with what was counted of them.
pub(super) fn delete(tenant: &mut TenantState, memory: &str, going: &BTreeSet<Position>) {
    for began in going {
        let gone = tenant.entries.iter().position(|entry| entry.record.began == *began);
        let Some(gone) = gone.map(|at| tenant.entries.remove(at)) else { continue };
        let_go(tenant, memory, &gone, None);
        super::handoffs::forget_answers(tenant, memory, None);
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
