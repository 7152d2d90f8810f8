//! Facts drawn from turns, what people think of them, and where a scope stands.

use icecore_domain::fact::{FactKey, RedactedFact, Verdict, normalise};
use icecore_domain::ids::{Position, Scope, TurnId};
use icecore_domain::time::Millis;

use super::dreams::{self, Touched};
use super::secrets;
use super::state::{ScopeState, State, TenantState};
use crate::error::StoreError;
use crate::store::*;

pub(super) fn scope_head(state: &State, scope: &Scope) -> ScopeHead {
    let Some(known) = state.scope(scope) else { return ScopeHead::default() };
    let turns = state.sessions_in(scope).flat_map(|session| &session.turns);
    let turns = turns.map(|turn| turn.row.position);
    let entries = state.entries(scope).map(|entry| entry.record.began);
    ScopeHead {
        position: turns.chain(entries).max().unwrap_or_default(),
        summaries: known.summaries,
        facts: known.last_fact,
        verdicts: known.verdicts.last().map(|verdict| verdict.position).unwrap_or_default(),
        epoch: known.epoch,
    }
}

pub(super) fn put(state: &mut State, scope: &Scope, batch: FactBatch) -> bool {
    let are_there = batch.facts.iter().all(|new| is_there(state, scope, new.source));
    let Some(scope) = state.scope_mut(scope) else { return false };
    if scope.facts_through != batch.seen_through || !are_there {
        return false;
    }
    scope.facts_through = batch.through;
    for NewFact { fact, source, at, recorded_at } in batch.facts {
        scope.last_fact += 1;
        let number = scope.last_fact;
        scope.facts.push(FactRecord { number, fact, source, at, recorded_at });
    }
    true
}

fn is_there(state: &State, scope: &Scope, id: TurnId) -> bool {
    state.turn(scope, id).is_some_and(|row| row.state == TurnState::Present)
}

pub(super) fn put_verdict(state: &mut State, scope: &Scope, new: NewVerdict) -> Result<Position> {
    secrets::refuse_changed(state, scope.tenant(), new.secrets_seen)?;
    let NewVerdict { fact, verdict, source, now, hidden, .. } = new;
    if let Some(source) = source {
        let quoted = state.turn(scope, source).filter(|row| row.state != TurnState::Erased);
        if quoted.is_none() {
            return Err(StoreError::SourceGone { turn: source });
        }
    }
    let key = fact.key();
    let payload = serde_json::json!({ "memoryRef": scope.memory(), "factId": key.to_string() });
    let kind = format!("fact.{}", verdict.as_str());
    let tenant = state.ensure_scope(scope);
    let payload = payload_with(payload, &hidden);
    let position = tenant.record(Some(scope.memory()), &kind, payload, now);
    tenant.add_hidden(scope.memory(), position, hidden);
    if let Some(scope) = state.scope_mut(scope) {
        scope.verdicts.retain(|known| known.fact.key() != key);
        scope.verdicts.push(VerdictRecord { fact, verdict, source, at: now, position });
    }
    let tenant = state.ensure_scope(scope);
    tenant.prune_hidden();
    if verdict == Verdict::Rejected {
        tenant.lose_recalled(Some(scope.memory()));
    }
    Ok(position)
}

pub(super) fn erase(
    state: &mut State,
    scope: &Scope,
    selector: &Selector,
    quoting: &[TurnId],
    dry_run: bool,
    now: Millis,
) -> u64 {
    let (Some(tenant), Some(known)) = (state.tenant(scope.tenant()), state.scope(scope)) else {
        return 0;
    };
    let touched = touched(tenant, known, selector, quoting);
    let Some(known) = state.scope_mut(scope) else { return 0 };
    let goes = goes(selector, quoting);
    if dry_run {
        let facts = known.facts.iter();
        let facts = facts.filter(|f| goes(&f.fact, f.fact.key(), f.at, Some(f.source))).count();
        let verdicts = known.verdicts.iter();
        let verdicts = verdicts.filter(|v| goes(&v.fact, v.fact.key(), v.at, v.source)).count();
        return (facts + verdicts) as u64;
    }
    let count = erase_if(known, goes);
    let tenant = state.ensure_scope(scope);
    if count > 0 {
        tenant.prune_hidden();
        tenant.raise_epoch(scope.memory());
        super::handoffs::forget_answers(tenant, scope.memory(), None);
    }
    dreams::lose(tenant, scope.memory(), &touched, dreams::Going::Erased, now);
    count
}

/// The dreams that read the turns of the facts that go, or were kept after the verdicts.
pub(super) fn touched(
    tenant: &TenantState,
    known: &ScopeState,
    selector: &Selector,
    quoting: &[TurnId],
) -> Touched {
    let goes = goes(selector, quoting);
    let mut verdicts = known.verdicts.iter();
    let first = verdicts.find(|v| goes(&v.fact, v.fact.key(), v.at, v.source));
    let mut touched = dreams::after(tenant, &known.memory, first.map(|first| first.position));
    let facts = known.facts.iter();
    let facts = facts.filter(|f| goes(&f.fact, f.fact.key(), f.at, Some(f.source)));
    let sources: Vec<TurnId> = facts.map(|fact| fact.source).collect();
    let turns = tenant.sessions.iter().flat_map(|session| &session.turns).map(|turn| &turn.row);
    let quoted = turns.filter(|row| sources.contains(&row.id));
    let places: Vec<_> = quoted.map(|row| (row.id.session, row.branch, row.ordinal)).collect();
    touched.extend(dreams::by_turns(tenant, &known.memory, &places));
    touched
}

/// Whether a fact or verdict goes, by what it says, its time and source.
fn goes(
    selector: &Selector,
    quoting: &[TurnId],
) -> impl Fn(&RedactedFact, FactKey, Millis, Option<TurnId>) -> bool {
    let subject = selector.subject();
    move |fact: &RedactedFact, key: FactKey, at: Millis, source: Option<TurnId>| {
        let is_named = match selector {
            Selector::Session(_) => false,
            Selector::Subject { .. } => subject == Some(normalise(fact.subject.as_str())),
            Selector::Before(before) => at < *before,
            Selector::Entry(id) => *id == key.to_string(),
        };
        is_named || source.is_some_and(|source| quoting.contains(&source))
    }
}

/// Lets go of facts and verdicts by what they say, their time and source.
pub(super) fn erase_if(
    scope: &mut ScopeState,
    goes: impl Fn(&RedactedFact, FactKey, Millis, Option<TurnId>) -> bool,
) -> u64 {
    let before = scope.facts.len() + scope.verdicts.len();
    scope.facts.retain(|f| !goes(&f.fact, f.fact.key(), f.at, Some(f.source)));
    scope.verdicts.retain(|v| !goes(&v.fact, v.fact.key(), v.at, v.source));
    (before - scope.facts.len() - scope.verdicts.len()) as u64
}
