//! Handoffs, what providers counted and what models answered, as plain records.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Branch, Ordinal, Position, Scope, SessionNo, Tenant, TurnId};
use icecore_domain::redact::RedactedText;

use super::secrets;
use super::state::{SessionState, State, TenantState};
use crate::handoffs::{
    COMPACTED, EDITED, Forks, Mark, PERSON, compacted, edited, handoff_id, losing, made_of, path,
};
use crate::store::*;
use crate::told::{Again, add};

/// An answer of a model, and the session that it is about.
#[derive(Clone)]
pub(super) struct KnownAnswer {
    session: Option<SessionNo>,
    text: RedactedText,
}

/// Where money goes: the place of the memory, the day, the purpose, the model.
pub(super) type SpendingKey = (usize, i64, String, String);

fn forks(session: &SessionState) -> Forks {
    session.branches.iter().map(|(branch, state)| (*branch, state.record.fork)).collect()
}

fn in_force<'a>(
    tenant: &'a TenantState,
    session: SessionNo,
    path: &[(Branch, Ordinal)],
) -> Option<&'a HandoffRecord> {
    path.iter().rev().find_map(|(branch, last)| {
        let of = tenant
            .handoffs
            .iter()
            .filter(|one| (one.session, one.branch) == (session, *branch) && one.through <= *last);
        of.max_by_key(|one| (one.through, one.position))
    })
}

pub(super) fn put(
    state: &mut State,
    key: &IdentityKey,
    scope: &Scope,
    new: NewHandoff,
) -> Result<KeptHandoff> {
    secrets::refuse_changed(state, scope.tenant(), new.secrets_seen)?;
    let epoch = state.scope(scope).map_or(0, |known| known.epoch);
    let found = state.session(scope, new.session).zip(state.tenant(scope.tenant()));
    let Some((session, tenant)) = found else { return Ok(KeptHandoff::Changed) };
    let branch = session.branches.get(&new.branch).map(|branch| &branch.record);
    // Of a session that is empty all handoffs are gone with its last turn.
    let has_turns = session.turns.iter().any(|turn| turn.row.state != TurnState::Erased);
    let is_same = branch.is_some_and(|branch| {
        has_turns && branch.head_seq == new.seen_head && new.through.0 <= branch.tail.length
    });
    let mut befores = [Ordinal(u64::MAX), new.through]
        .into_iter()
        .map(|end| in_force(tenant, new.session, &path(&forks(session), new.branch, end)));
    let seen = new.seen_previous.as_ref();
    let previous = befores.find(|before| before.map(|record| &record.id) == seen);
    let Some(previous) = previous.filter(|_| is_same && epoch == new.epoch) else {
        return Ok(KeptHandoff::Changed);
    };
    let position = Position(tenant.position.0 + 1);
    let record = HandoffRecord {
        id: handoff_id(key, position),
        number: previous.map_or(0, |record| record.number) + 1,
        session: new.session,
        branch: new.branch,
        through: new.through,
        kept: new.kept,
        text: new.text,
        tokens: new.tokens,
        tokens_before: new.tokens_before,
        tokens_after: new.tokens_after,
        made_by: new.made_by,
        trigger: new.trigger,
        previous: new.seen_previous,
        version: 1,
        at: new.now,
        position,
    };
    let tenant = state.ensure_scope(scope);
    tenant.record(Some(scope.memory()), COMPACTED, compacted(scope, &record), record.at);
    tenant.handoffs.push(record.clone());
    Ok(KeptHandoff::Done(Box::new(record)))
}

pub(super) fn on_path(
    state: &State,
    scope: &Scope,
    session: SessionNo,
    path: &[(Branch, Ordinal)],
) -> Option<HandoffRecord> {
    state.session(scope, session)?;
    in_force(state.tenant(scope.tenant())?, session, path).cloned()
}

pub(super) fn of_session(state: &State, scope: &Scope, session: SessionNo) -> Vec<HandoffRecord> {
    let found = state.session(scope, session).and(state.tenant(scope.tenant()));
    let handoffs = found.into_iter().flat_map(|tenant| &tenant.handoffs);
    handoffs.filter(|one| one.session == session).cloned().collect()
}

pub(super) fn edit(state: &mut State, scope: &Scope, edit: HandoffEdit) -> Result<KeptHandoff> {
    secrets::refuse_changed(state, scope.tenant(), edit.secrets_seen)?;
    let found = state.session(scope, edit.session).zip(state.tenant(scope.tenant()));
    let known = found.and_then(|(session, tenant)| {
        let path = path(&forks(session), edit.branch, Ordinal(u64::MAX));
        in_force(tenant, edit.session, &path)
    });
    let is_seen = |one: &&HandoffRecord| one.id == edit.id && one.version == edit.seen_version;
    if known.filter(is_seen).is_none() {
        return Ok(KeptHandoff::Changed);
    }
    let Some(tenant) = state.tenant_mut(scope.tenant()) else { return Ok(KeptHandoff::Changed) };
    let Some(record) = tenant.handoffs.iter_mut().find(|one| one.id == edit.id) else {
        return Ok(KeptHandoff::Changed);
    };
    (record.text, record.tokens, record.tokens_after) = (edit.text, edit.tokens, edit.tokens_after);
    PERSON.clone_into(&mut record.made_by);
    record.version += 1;
    let record = record.clone();
    tenant.usage.retain(|_, usage| usage.handoff.as_ref() != Some(&record.id));
    tenant.record(Some(scope.memory()), EDITED, edited(scope, &record), edit.now);
    Ok(KeptHandoff::Done(Box::new(record)))
}

// Losing them

fn marks(tenant: &TenantState, session: SessionNo) -> Vec<Mark> {
    let mine = tenant.handoffs.iter().filter(|one| one.session == session);
    let mark = |one: &HandoffRecord| Mark {
        id: one.id.clone(),
        branch: one.branch,
        through: one.through,
        previous: one.previous.clone(),
    };
    mine.map(mark).collect()
}

/// The first turn of each branch.
fn firsts(ordinals: impl IntoIterator<Item = (Branch, Ordinal)>) -> BTreeMap<Branch, Ordinal> {
    let mut firsts = BTreeMap::new();
    for (branch, ordinal) in ordinals {
        let first = firsts.entry(branch).or_insert(ordinal);
        *first = ordinal.min(*first);
    }
    firsts
}

/// Takes back what was made of turns of a session that went or were put anew: the
/// handoffs that cover any, all of them once no turn is left, and what providers counted.
pub(super) fn lose(
    tenant: &mut TenantState,
    session: SessionNo,
    places: &[(SessionNo, Branch, Ordinal)],
) {
    let Some(known) = tenant.sessions.iter().find(|known| known.no == session) else { return };
    let is_empty = known.turns.iter().all(|turn| turn.row.state == TurnState::Erased);
    if places.is_empty() && !is_empty {
        return;
    }
    let marks = marks(tenant, session);
    let lost = match is_empty {
        true => marks.into_iter().map(|mark| mark.id).collect(),
        false => {
            let gone = firsts(places.iter().map(|(_, branch, at)| (*branch, *at)));
            losing(&forks(known), &marks, &gone)
        }
    };
    delete(tenant, session, &lost);
}

fn delete(tenant: &mut TenantState, session: SessionNo, lost: &BTreeSet<String>) {
    tenant.handoffs.retain(|one| !lost.contains(&one.id));
    tenant.usage.retain(|(of, _, _), _| *of != session);
}

pub(super) fn lost_with(state: &State, scope: &Scope, turns: &[TurnId]) -> u64 {
    let Some(tenant) = state.tenant(scope.tenant()) else { return 0 };
    let count = |session: &SessionState| {
        let rows = session.turns.iter().map(|turn| &turn.row);
        let there = rows.filter(|row| row.state != TurnState::Erased);
        let (going, staying): (Vec<&TurnRow>, Vec<&TurnRow>) =
            there.partition(|row| turns.contains(&row.id));
        let marks = marks(tenant, session.no);
        match (going.is_empty(), staying.is_empty()) {
            (true, _) => 0,
            (false, true) => marks.len() as u64,
            (false, false) => {
                let gone = firsts(going.iter().map(|row| (row.branch, row.ordinal)));
                losing(&forks(session), &marks, &gone).len() as u64
            }
        }
    };
    state.sessions_in(scope).map(count).sum()
}

/// Puts the handoffs of a memory through a redactor, and drops those that were made of
/// one that changes.
pub(super) fn rewrite(tenant: &mut TenantState, memory: &str, again: &Again<'_>, told: &mut Told) {
    let sessions: Vec<SessionNo> = tenant.sessions_of(Some(memory)).map(|one| one.no).collect();
    for session in sessions {
        let mine = tenant.handoffs.iter().filter(|one| one.session == session);
        let changed = mine.filter(|one| again.text(one.text.as_str()).is_some());
        let changed: BTreeSet<String> = changed.map(|one| one.id.clone()).collect();
        if changed.is_empty() {
            continue;
        }
        let dropped = made_of(&marks(tenant, session), &changed);
        delete(tenant, session, &dropped);
        told.derived += dropped.len() as u64;
        for one in tenant.handoffs.iter_mut().filter(|one| changed.contains(&one.id)) {
            let Some((text, hidden)) = again.text(one.text.as_str()) else { continue };
            one.text = text;
            add(&mut told.hidden, &hidden);
            told.handoffs += 1;
        }
    }
}

pub(super) fn check(tenant: &TenantState) -> Vec<String> {
    let mut findings = Vec::new();
    for one in &tenant.handoffs {
        let branch = tenant.sessions.iter().find(|session| session.no == one.session);
        let branch = branch.and_then(|session| session.branches.get(&one.branch));
        if branch.is_none_or(|branch| one.through.0 > branch.record.tail.length) {
            findings.push(format!("a handoff reaches beyond its branch: {}", one.id));
        }
        let mut others = tenant.handoffs.iter();
        let is_there = |id: &String| others.any(|other| other.id == *id);
        if !one.previous.as_ref().is_none_or(is_there) {
            findings.push(format!("what a handoff was made of is not there: {}", one.id));
        }
    }
    findings
}

// What providers counted

pub(super) fn put_usage(state: &mut State, scope: &Scope, usage: ViewUsage) {
    let Some(session) = state.session(scope, usage.session) else { return };
    if !session.branches.contains_key(&usage.branch) {
        return;
    }
    let Some(tenant) = state.tenant_mut(scope.tenant()) else { return };
    let mut handoffs = tenant.handoffs.iter().filter(|one| one.session == usage.session);
    if !usage.handoff.as_ref().is_none_or(|id| handoffs.any(|one| one.id == *id)) {
        return;
    }
    let key = (usage.session, usage.branch, usage.model.clone());
    tenant.usage.insert(key, usage);
}

pub(super) fn usage(
    state: &State,
    scope: &Scope,
    session: SessionNo,
    branch: Branch,
    model: &str,
) -> Option<ViewUsage> {
    state.session(scope, session)?;
    state.tenant(scope.tenant())?.usage.get(&(session, branch, model.to_owned())).cloned()
}

// What models answered

/// The place of a memory among a tenant's.
fn place(tenant: &TenantState, memory: &str) -> Option<usize> {
    tenant.scopes.iter().position(|scope| scope.memory == memory)
}

pub(super) fn put_answer(state: &mut State, scope: &Scope, answer: NewAnswer) -> Result<()> {
    secrets::refuse_changed(state, scope.tenant(), answer.secrets_seen)?;
    let epoch = state.scope(scope).map_or(0, |known| known.epoch);
    let is_there = |session| state.session(scope, session).is_some();
    if epoch != answer.epoch || !answer.session.is_none_or(is_there) {
        return Ok(());
    }
    let NewAnswer { key, session, text, .. } = answer;
    let tenant = state.ensure_scope(scope);
    if let Some(at) = place(tenant, scope.memory()) {
        tenant.answers.insert((at, key), KnownAnswer { session, text });
    }
    Ok(())
}

pub(super) fn answer(state: &State, scope: &Scope, key: &[u8; 32]) -> Option<RedactedText> {
    let tenant = state.tenant(scope.tenant())?;
    let at = place(tenant, scope.memory())?;
    tenant.answers.get(&(at, *key)).map(|answer| answer.text.clone())
}

/// Deletes the answers of a memory that are about no session alone, and those about one.
pub(super) fn forget_answers(tenant: &mut TenantState, memory: &str, session: Option<SessionNo>) {
    let Some(at) = place(tenant, memory) else { return };
    let goes = |answer: &KnownAnswer| answer.session.is_none() || answer.session == session;
    tenant.answers.retain(|(of, _), answer| *of != at || !goes(answer));
}

/// Drops what models answered, if more is hidden than was when they were asked.
pub(super) fn retell_answers(tenant: &mut TenantState, again: &Again<'_>, told: &Told) {
    let hides = |answer: &KnownAnswer| again.text(answer.text.as_str()).is_some();
    if *told != Told::default() || tenant.answers.values().any(hides) {
        tenant.answers.clear();
    }
}

// What it cost

pub(super) fn spend(state: &mut State, scope: &Scope, spent: Vec<Spending>) {
    if spent.is_empty() {
        return;
    }
    let tenant = state.ensure_scope(scope);
    let Some(at) = place(tenant, scope.memory()) else { return };
    for one in spent {
        let key = (at, one.day, one.purpose.clone(), one.model.clone());
        let sum = tenant.spending.entry(key).or_insert_with(|| Spending {
            day: one.day,
            purpose: one.purpose.clone(),
            model: one.model.clone(),
            ..Spending::default()
        });
        sum.add(&one);
        let more = DayUse { requests: 0, tokens: one.input.saturating_add(one.output) };
        if !more.is_empty() {
            tenant.count_day(one.day, more);
        }
    }
}

pub(super) fn spent(
    state: &State,
    tenant: &Tenant,
    memory: Option<&str>,
    since_day: i64,
) -> Vec<Spending> {
    let Some(tenant) = state.tenant(tenant) else { return Vec::new() };
    let is_of = |at: usize| memory.is_none_or(|memory| tenant.scopes[at].memory == memory);
    let mut sums: BTreeMap<(i64, &str, &str), Spending> = BTreeMap::new();
    for ((at, ..), one) in &tenant.spending {
        if is_of(*at) && one.day >= since_day {
            let sum = sums.entry((one.day, &one.purpose, &one.model)).or_insert_with(|| Spending {
                day: one.day,
                purpose: one.purpose.clone(),
                model: one.model.clone(),
                ..Spending::default()
            });
            sum.add(one);
        }
    }
    sums.into_values().collect()
}
