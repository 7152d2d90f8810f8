//! Schedules, and a tick for each of their instants.

use std::collections::BTreeMap;

use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::schedule::REWIND_MILLIS;
use icecore_domain::time::Millis;

use super::state::{State, TenantState};
use crate::error::StoreError;
use crate::schedules::{is_dead, kept_from_running};
use crate::store::*;

#[derive(Clone)]
pub(super) struct ScheduleState {
    record: ScheduleRecord,
    ticks: BTreeMap<Millis, TickRecord>,
}

impl ScheduleState {
    fn is_running(&self) -> bool {
        self.ticks.values().any(|tick| tick.outcome.is_none())
    }
}

fn find<'a>(state: &'a State, tenant: &Tenant, id: &str) -> Option<&'a ScheduleState> {
    state.tenant(tenant)?.schedules.iter().find(|one| one.record.id == id)
}

fn find_mut<'a>(state: &'a mut State, tenant: &Tenant, id: &str) -> Option<&'a mut ScheduleState> {
    state.tenant_mut(tenant)?.schedules.iter_mut().find(|one| one.record.id == id)
}

pub(super) fn put(
    state: &mut State,
    scope: &Scope,
    schedule: NewSchedule,
) -> Result<ScheduleRecord> {
    state.refuse_taken(scope.tenant(), schedule.claim.as_ref(), schedule.now)?;
    let most = schedule.most;
    let kept = state.tenant(scope.tenant()).into_iter().flat_map(|tenant| &tenant.schedules);
    if kept.filter(|one| one.record.next.is_some()).count() as u64 >= most {
        return Err(StoreError::TooManySchedules { most });
    }
    let tenant = state.ensure_scope(scope);
    let record = schedule.record(scope);
    tenant.schedules.push(ScheduleState { record: record.clone(), ticks: BTreeMap::new() });
    let mut over: Vec<(Millis, String)> = tenant
        .schedules
        .iter()
        .filter(|one| one.record.next.is_none())
        .map(|one| (one.record.handled_through, one.record.id.clone()))
        .collect();
    over.sort();
    over.truncate(over.len().saturating_sub(most as usize));
    let is_over = |one: &ScheduleState| over.iter().any(|(_, id)| *id == one.record.id);
    tenant.schedules.retain(|one| one.is_running() || !is_over(one));
    if let Some(claim) = schedule.claim {
        tenant.put_outcome(claim.outcome(&record), schedule.now);
    }
    Ok(record)
}

pub(super) fn get(state: &State, tenant: &Tenant, id: &str) -> Option<ScheduleRecord> {
    find(state, tenant, id).map(|one| one.record.clone())
}

pub(super) fn list(state: &State, tenant: &Tenant, memory: Option<&str>) -> Vec<ScheduleRecord> {
    let kept = state.tenant(tenant).into_iter().flat_map(|tenant| &tenant.schedules);
    let mut found: Vec<ScheduleRecord> = kept
        .filter(|one| memory.is_none_or(|memory| one.record.scope.memory() == memory))
        .map(|one| one.record.clone())
        .collect();
    found.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    found
}

pub(super) fn remove(state: &mut State, tenant: &Tenant, id: &str) -> bool {
    let Some(tenant) = state.tenant_mut(tenant) else { return false };
    let before = tenant.schedules.len();
    tenant.schedules.retain(|one| one.record.id != id);
    tenant.schedules.len() < before
}

pub(super) fn pause(state: &mut State, tenant: &Tenant, id: &str) -> Option<ScheduleRecord> {
    let one = find_mut(state, tenant, id)?;
    one.record.paused = true;
    Some(one.record.clone())
}

pub(super) fn resume(
    state: &mut State,
    tenant: &Tenant,
    id: &str,
    handled_through: Millis,
    next: Option<NextTick>,
) -> Option<ScheduleRecord> {
    let record = &mut find_mut(state, tenant, id)?.record;
    if record.paused {
        let (paused, failures, not_before) = (false, 0, None);
        let before = record.clone();
        *record = ScheduleRecord { paused, failures, not_before, handled_through, next, ..before };
    }
    Some(record.clone())
}

pub(super) fn due(state: &State, now: Millis, limit: usize) -> Vec<ScheduleRecord> {
    let mut found = Vec::new();
    for (at, tenant) in state.tenants.iter().enumerate() {
        let is_due = |record: &&ScheduleRecord| {
            let is_ahead = record.handled_through.0 > now.0.saturating_add(REWIND_MILLIS);
            !record.paused && record.next.is_some_and(|next| next.fires_at <= now || is_ahead)
        };
        let mut mine: Vec<&ScheduleRecord> =
            tenant.schedules.iter().map(|one| &one.record).filter(is_due).collect();
        let fires = |record: &ScheduleRecord| record.next.map(|next| next.fires_at);
        mine.sort_by(|a, b| (fires(a), &a.id).cmp(&(fires(b), &b.id)));
        let turns = mine.into_iter().enumerate();
        found.extend(turns.map(|(turn, record)| ((turn, fires(record), at), record)));
    }
    found.sort_by_key(|(turn, _)| *turn);
    found.into_iter().take(limit).map(|(_, record)| record.clone()).collect()
}

pub(super) fn claim(state: &mut State, tenant: &Tenant, id: &str, claim: &TickClaim) -> Claimed {
    let Some(ScheduleState { record, ticks }) = find_mut(state, tenant, id) else {
        return Claimed::Stale;
    };
    if record.paused || record.next.is_none() || record.handled_through != claim.seen_through {
        return Claimed::Stale;
    }
    let is_running = ticks.values().any(|tick| tick.outcome.is_none());
    for at in &claim.missed {
        ticks
            .entry(*at)
            .or_insert_with(|| TickRecord::recorded(id, *at, TickOutcome::Missed, claim.now));
    }
    let mut claimed = Claimed::Recorded;
    if let Some(at) = claim.run
        && !ticks.contains_key(&at)
    {
        let tick = match kept_from_running(record, is_running, claim.now) {
            Some(outcome) => TickRecord::recorded(id, at, outcome, claim.now),
            None => TickRecord::running(id, at, &claim.holder, claim.now),
        };
        let tick = TickRecord { missed: claim.counted, ..tick };
        if tick.outcome.is_none() {
            claimed = Claimed::Run(tick.clone());
        }
        ticks.insert(at, tick);
    }
    record.missed = record.missed.saturating_add(claim.counted);
    record.handled_through = claim.handled_through;
    record.next = claim.next;
    claimed
}

fn held<'a>(one: &'a mut ScheduleState, at: Millis, holder: &str) -> Option<&'a mut TickRecord> {
    let tick = one.ticks.get_mut(&at)?;
    (tick.outcome.is_none() && tick.holder.as_deref() == Some(holder)).then_some(tick)
}

pub(super) fn beat(
    state: &mut State,
    tenant: &Tenant,
    id: &str,
    at: Millis,
    holder: &str,
    now: Millis,
) -> bool {
    let tick = find_mut(state, tenant, id).and_then(|one| held(one, at, holder));
    tick.map(|tick| tick.heartbeat = Some(now)).is_some()
}

pub(super) fn end(state: &mut State, tenant: &Tenant, id: &str, at: Millis, end: &TickEnd) -> bool {
    let Some(one) = find_mut(state, tenant, id) else { return false };
    let Some(tick) = held(one, at, &end.holder) else { return false };
    tick.outcome = Some(end.outcome);
    tick.run.clone_from(&end.run);
    tick.error.clone_from(&end.error);
    tick.heartbeat = None;
    tick.ended_at = Some(end.now);
    if let Some(failures) = end.failures {
        one.record.failures = failures;
        one.record.not_before = end.not_before;
    }
    true
}

pub(super) fn take_over(
    state: &mut State,
    holder: &str,
    dead_since: Millis,
    now: Millis,
) -> Option<TakenOver> {
    let all = state.tenants.iter_mut().flat_map(|tenant| &mut tenant.schedules);
    let ticks = all.filter(|one| !one.record.paused).flat_map(|one| {
        let record = &one.record;
        one.ticks.values_mut().map(move |tick| (record, tick))
    });
    let is_left = |tick: &TickRecord| {
        tick.outcome.is_none() && tick.heartbeat.is_some_and(|beat| is_dead(beat, dead_since, now))
    };
    let (record, tick) = ticks
        .filter(|(_, tick)| is_left(tick))
        .min_by(|(_, a), (_, b)| (a.heartbeat, &a.schedule).cmp(&(b.heartbeat, &b.schedule)))?;
    tick.holder = Some(holder.to_owned());
    tick.heartbeat = Some(now);
    tick.attempts += 1;
    Some(TakenOver { schedule: record.clone(), tick: tick.clone() })
}

pub(super) fn ticks(state: &State, tenant: &Tenant, id: &str, limit: usize) -> Vec<TickRecord> {
    let ticks = find(state, tenant, id).into_iter().flat_map(|one| one.ticks.values().rev());
    ticks.take(limit).cloned().collect()
}

pub(super) fn purge(state: &mut State, ended_by: Millis, limit: usize) -> u64 {
    let mut ended = Vec::new();
    for (tenant, known) in state.tenants.iter().enumerate() {
        for (number, one) in known.schedules.iter().enumerate() {
            let is_past = |tick: &&TickRecord| tick.ended_at.is_some_and(|at| at <= ended_by);
            let past = one.ticks.values().filter(is_past);
            ended.extend(past.map(|tick| (tick.ended_at, tenant, number, tick.at)));
        }
    }
    ended.sort();
    ended.truncate(limit);
    for (_, tenant, number, at) in &ended {
        state.tenants[*tenant].schedules[*number].ticks.remove(at);
    }
    let mut purged = ended.len() as u64;
    for tenant in &mut state.tenants {
        let before = tenant.schedules.len();
        let is_kept = |one: &ScheduleState| {
            let ScheduleRecord { next, handled_through, .. } = &one.record;
            next.is_some() || *handled_through > ended_by || !one.ticks.is_empty()
        };
        tenant.schedules.retain(is_kept);
        purged += (before - tenant.schedules.len()) as u64;
    }
    purged
}

pub(super) fn trim(state: &mut State, most: u64, limit: usize) -> u64 {
    let mut left = limit;
    for one in state.tenants.iter_mut().flat_map(|tenant| &mut tenant.schedules) {
        let past = one.ticks.values().rev().skip(most as usize);
        let mut past: Vec<Millis> =
            past.filter(|tick| tick.ended_at.is_some()).map(|tick| tick.at).collect();
        past.reverse();
        past.truncate(left);
        left -= past.len();
        past.iter().for_each(|at| drop(one.ticks.remove(at)));
    }
    (limit - left) as u64
}

/// The memory has another name.
pub(super) fn rename(tenant: &mut TenantState, old: &str, scope: &Scope) {
    let schedules = tenant.schedules.iter_mut().map(|one| &mut one.record.scope);
    schedules.filter(|known| known.memory() == old).for_each(|known| known.clone_from(scope));
}
