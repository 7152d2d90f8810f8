//! Putting bodies anew.

use icecore_domain::ids::{Position, Scope};

use super::erase::{recount, revise, still_as_read, swap_texts};
use super::state::{PackState, SessionState, State};
use super::{dreams, handoffs};
use crate::store::*;

pub(super) fn rewrite(state: &mut State, scope: &Scope, rewrite: &Rewrite) -> bool {
    let Some(session) = state.session_mut(scope, rewrite.session) else { return false };
    if !still_as_read(session, &rewrite.seen()) || !bodies_fit(session, rewrite) {
        return false;
    }
    let Some(branch) = session.branches.get_mut(&rewrite.branch) else { return false };
    for (id, _, pack) in &rewrite.packs {
        // Its turns are as old as they were: retention goes on counting.
        let created_at = branch.packs.get(&id.first).map_or(rewrite.now, |old| old.created_at);
        let (last, pack) = (id.last, pack.clone());
        branch.packs.insert(id.first, PackState { last, pack, created_at });
    }
    swap_texts(branch, &rewrite.micros);
    let (mut hidden, mut places) = (Vec::new(), Vec::new());
    for row in session.turns.iter_mut().map(|turn| &mut turn.row) {
        let Some(turn) = of(rewrite, row) else { continue };
        row.tokens = turn.tokens;
        row.body.clone_from(&turn.body);
        hidden.push((row.position, turn.hidden.clone()));
        places.push((row.id.session, row.branch, row.ordinal));
        revise(branch, row.ordinal);
    }
    recount(session, rewrite.branch);
    if let Some(scope) = state.scope_mut(scope) {
        scope.facts.clear();
        scope.facts_through = Position(0);
    }
    let tenant = state.ensure_scope(scope);
    for (position, hidden) in hidden {
        tenant.add_hidden(scope.memory(), position, hidden);
    }
    tenant.raise_epoch(scope.memory());
    handoffs::lose(tenant, rewrite.session, &places);
    tenant.answers.clear();
    let touched = dreams::by_turns(tenant, scope.memory(), &places);
    dreams::lose(tenant, scope.memory(), &touched, dreams::Going::Erased, rewrite.now);
    true
}

/// What becomes of a turn that can be put anew.
fn of<'a>(rewrite: &'a Rewrite, row: &TurnRow) -> Option<&'a RewrittenTurn> {
    let is_there = row.branch == rewrite.branch && row.state == TurnState::Present;
    rewrite.turns.iter().find(|turn| is_there && turn.seq == row.id.seq)
}

/// Whether those turns have bodies in their rows for which one is given.
fn bodies_fit(session: &SessionState, rewrite: &Rewrite) -> bool {
    let mut rows = session.turns.iter().map(|turn| &turn.row);
    rows.all(|row| of(rewrite, row).is_none_or(|turn| turn.body.is_some() == row.body.is_some()))
}
