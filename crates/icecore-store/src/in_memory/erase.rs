//! Erasure.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::ids::{Branch, Ordinal, Position, Scope, Seq, Tenant};
use icecore_domain::time::Millis;

use super::derivation::Going;
use super::pyramid::unrevised;
use super::state::{BranchState, PackState, SessionState, State, StoredTurn, TenantState};
use super::{commitments, derivation, dreams, facts, handoffs};
use crate::store::*;

pub(super) fn select(
    state: &State,
    tenant: &Tenant,
    memory: Option<&str>,
    selector: &Selector,
    session_hash: [u8; 16],
) -> Vec<Selected> {
    let Some(tenant) = state.tenant(tenant) else { return Vec::new() };
    let mut selected = Vec::new();
    // By scope, then session.
    for scope in &tenant.scopes {
        let memory = memory.is_none_or(|memory| memory == scope.memory);
        let sessions = tenant.sessions_of(Some(&scope.memory)).filter(|_| memory);
        for session in sessions {
            let scope = tenant.scope(&scope.memory);
            selected.extend(select_in(scope, session, selector, session_hash));
        }
    }
    selected
}

fn select_in(
    scope: Scope,
    session: &SessionState,
    selector: &Selector,
    session_hash: [u8; 16],
) -> Vec<Selected> {
    let is_session = |session: &SessionState| session.name_hash == session_hash;
    let whole_session = matches!(selector, Selector::Session(_)) && is_session(session);
    let chosen = |turn: &StoredTurn| match selector {
        Selector::Session(_) => whole_session,
        Selector::Subject { hash, .. } => turn.speaker.as_ref() == Some(hash),
        Selector::Before(at) => turn.row.at < *at,
        Selector::Entry(_) => false,
    };
    let mut by_branch: BTreeMap<_, Vec<(Seq, Ordinal)>> = BTreeMap::new();
    for turn in &session.turns {
        if turn.row.state != TurnState::Erased && chosen(turn) {
            let place = (turn.row.id.seq, turn.row.ordinal);
            by_branch.entry(turn.row.branch).or_default().push(place);
        }
    }
    if whole_session && session.name.is_some() && by_branch.is_empty() {
        by_branch.insert(session.current, Vec::new());
    }
    let select = |(branch, turns)| {
        let (scope, session) = (scope.clone(), session.no);
        Selected { scope, session, branch, turns, whole_session }
    };
    by_branch.into_iter().map(select).collect()
}

pub(super) fn erase(state: &mut State, scope: &Scope, erasure: Erasure) -> bool {
    let Some(session) = state.session_mut(scope, erasure.session) else { return false };
    if !still_as_read(session, &erasure.seen()) {
        return false;
    }
    let Some(branch) = session.branches.get_mut(&erasure.branch) else { return false };
    for (id, _, new) in &erasure.packs {
        let old = branch.packs.remove(&id.first);
        if let Some(pack) = new.clone() {
            // Its turns are as old as they were: retention goes on counting.
            let (last, created_at) = (id.last, old.map_or(erasure.now, |old| old.created_at));
            branch.packs.insert(id.first, PackState { last, pack, created_at });
        }
    }
    swap_texts(branch, &erasure.micros);
    let (mut gone, mut places) = (Vec::new(), Vec::new());
    for turn in &mut session.turns {
        let row = &mut turn.row;
        if row.branch == erasure.branch
            && row.state != TurnState::Erased
            && erasure.seqs.contains(&row.id.seq)
        {
            (row.state, row.body) = (TurnState::Erased, None);
            (row.tokens, row.at) = (0, Millis(0));
            turn.speaker = None;
            gone.push(row.id);
            places.push((row.id.session, row.branch, row.ordinal));
            revise(branch, row.ordinal);
        }
    }
    recount(session, erasure.branch);
    let any_left = session.turns.iter().any(|turn| turn.row.state != TurnState::Erased);
    if erasure.forget_name && !any_left {
        session.name = None;
    }
    let mut first_verdict = None;
    if let Some(scope) = state.scope_mut(scope) {
        let quotes = |verdict: &&VerdictRecord| verdict.source.is_some_and(|id| gone.contains(&id));
        first_verdict = scope.verdicts.iter().find(quotes).map(|verdict| verdict.position);
        facts::erase_if(scope, |_, _, _, source| source.is_some_and(|id| gone.contains(&id)));
    }
    let tenant = state.ensure_scope(scope);
    tenant.prune_hidden();
    tenant.raise_epoch(scope.memory());
    handoffs::lose(tenant, erasure.session, &places);
    handoffs::forget_answers(tenant, scope.memory(), Some(erasure.session));
    let mut touched = dreams::by_turns(tenant, scope.memory(), &places);
    touched.extend(dreams::after(tenant, scope.memory(), first_verdict));
    dreams::lose(tenant, scope.memory(), &touched, dreams::Going::Erased, erasure.now);
    true
}

/// Puts the texts of micros in the place of those they have.
pub(super) fn swap_texts(branch: &mut BranchState, micros: &[(ChunkId, u32, Option<TextBody>)]) {
    for (id, _, text) in micros {
        branch.texts.remove(&id.first);
        if let Some(text) = text.clone() {
            branch.texts.insert(id.first, text);
        }
    }
}

/// Marks the chunks that hold a turn as changed.
pub(super) fn revise(branch: &mut BranchState, turn: Ordinal) {
    let holds = |id: &ChunkId| (id.first..=id.last).contains(&turn);
    for chunk in branch.chunks.iter_mut().filter(|chunk| holds(&chunk.id)) {
        chunk.revision += 1;
        chunk.summary = None;
        let watermark = &mut branch.record.summarized_through[chunk.id.level as usize];
        *watermark = (*watermark).min(Ordinal(chunk.id.first.0 - 1));
    }
}

/// Counts the open tail of a branch that has changed.
pub(super) fn recount(session: &mut SessionState, branch: Branch) {
    let Some(state) = session.branches.get_mut(&branch) else { return };
    state.record.version += 1;
    state.unsettled = true;
    let open = Ordinal(state.record.tail.micro_first);
    let rows = session.turns.iter().map(|turn| &turn.row);
    let open = rows.filter(|row| row.branch == branch && row.ordinal >= open);
    state.record.tail.micro_tokens = open.map(|row| u64::from(row.tokens)).sum();
}

/// Bodies are where they were and as they were when the caller read them.
pub(super) fn still_as_read(session: &SessionState, seen: &Seen<'_>) -> bool {
    let Some(branch) = session.branches.get(&seen.branch) else { return false };
    if !unrevised(branch, seen.micros.iter().map(|(id, revision, _)| (id, *revision))) {
        return false;
    }
    let texts_fit = seen.micros.iter().all(|(id, _, text)| {
        let may_go = text.is_some() || seen.covers(id.first, id.last);
        match branch.texts.contains_key(&id.first) {
            true => may_go,
            false => text.is_none(),
        }
    });
    let packs_fit = seen
        .packs
        .iter()
        .all(|(id, old)| branch.packs.get(&id.first).is_some_and(|known| known.pack.name == *old));
    let no_pack_is_missed = seen.micros.iter().all(|(id, _, _)| {
        let holding = branch.packs.iter().filter(|(f, p)| **f <= id.first && id.last <= p.last);
        let mut names = holding.map(|(_, pack)| &pack.pack.name);
        names.all(|name| seen.packs.iter().any(|(_, old)| old == name))
    });
    texts_fit && packs_fit && no_pack_is_missed && every_micro_is_named(session, seen)
}

/// A micro that was cut after the caller looked may be text by now.
fn every_micro_is_named(session: &SessionState, seen: &Seen<'_>) -> bool {
    let rows = session.turns.iter().map(|turn| &turn.row);
    let mut going = rows.filter(|row| {
        row.branch == seen.branch
            && row.state != TurnState::Erased
            && seen.seqs.contains(&row.id.seq)
    });
    going.all(|row| {
        let mut micros = session.chunks(seen.branch, Level::Micro);
        let micro = micros.find(|c| (c.id.first..=c.id.last).contains(&row.ordinal));
        micro.is_none_or(|micro| seen.micros.iter().any(|(id, _, _)| *id == micro.id))
    })
}

pub(super) fn erase_entries(
    state: &mut State,
    scope: &Scope,
    selector: &Selector,
    dry_run: bool,
    now: Millis,
) -> u64 {
    let Some(tenant) = state.tenant_mut(scope.tenant()) else { return 0 };
    let going = erasable(tenant, scope.memory(), selector, now);
    let count = going.len();
    if dry_run {
        return count as u64;
    }
    let touched = dreams::by_entries(tenant, scope.memory(), &dreams::ids_of(tenant, &going));
    commitments::forget_named(tenant, scope.memory(), selector);
    derivation::delete(tenant, scope.memory(), &going);
    if count > 0 {
        commitments::forget_erased(tenant, scope.memory());
        tenant.raise_epoch(scope.memory());
        let next = Position(tenant.position.0 + 1);
        tenant.keep_entries_from(scope.memory(), next);
    }
    dreams::lose(tenant, scope.memory(), &touched, dreams::Going::Erased, now);
    count as u64
}

/// The entries that a selector names, and those that go with them.
pub(super) fn erasable(
    tenant: &TenantState,
    memory: &str,
    selector: &Selector,
    now: Millis,
) -> BTreeSet<Position> {
    let chosen = |entry: &EntryRecord| match selector {
        Selector::Session(_) => false,
        Selector::Entry(id) => entry.id == *id,
        Selector::Subject { tag, .. } => entry.tags.contains(tag),
        Selector::Before(at) => entry.created_at < *at,
    };
    let mine = tenant.entries.iter().filter(|entry| entry.memory == memory);
    let named: Vec<Position> =
        mine.filter(|e| chosen(&e.record)).map(|entry| entry.record.began).collect();
    let how = match selector {
        Selector::Entry(_) => Going::ByErasure,
        _ => Going::Quoting,
    };
    derivation::going_with(tenant, memory, &named, now, how)
}
