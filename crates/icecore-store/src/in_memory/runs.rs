//! Runs of workflows and their events.

use std::collections::BTreeSet;

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Position, Tenant};
use icecore_domain::time::Millis;
use icecore_domain::workspace::Workspace;

use super::state::{State, TenantState};
use super::{entries, secrets, workspace};
use crate::error::StoreError;
use crate::runs::{
    NO_INPUTS, Renamed, forked, refuse_foreign, repeated, set_variables, stored_json, written,
};
use crate::store::*;
use crate::told::Again;

#[derive(Clone)]
pub(super) struct RunState {
    record: RunRecord,
    events: Vec<RunEventRecord>,
}

impl RunState {
    fn add(&mut self, events: Vec<NewRunEvent>, now: Millis) {
        for NewRunEvent { kind, node, payload } in events {
            let sequence = self.events.len() as u64;
            let kind = kind.to_owned();
            let event = RunEventRecord { sequence, at: now, kind, node, cause: None, payload };
            self.events.push(event);
        }
        self.record.events = self.events.len() as u64;
    }

    /// What names it stays.
    fn let_go(&mut self, now: Millis) {
        self.events.clear();
        let record = &mut self.record;
        record.inputs = stored_json(NO_INPUTS).expect("it is JSON");
        record.files.clear();
        record.variables.clear();
        record.error = None;
        record.expired_at = Some(now);
    }
}

fn find<'a>(state: &'a State, tenant: &Tenant, id: &str) -> Option<&'a RunState> {
    state.tenant(tenant)?.runs.iter().find(|run| run.record.id == id)
}

fn refuse_known(state: &State, tenant: &Tenant, id: &str) -> Result<()> {
    match find(state, tenant, id) {
        Some(_) => Err(StoreError::RunExists { id: id.to_owned() }),
        None => Ok(()),
    }
}

fn refuse_crowd(state: &State, tenant: &Tenant, most: u64) -> Result<()> {
    let runs = state.tenant(tenant).into_iter().flat_map(|tenant| &tenant.runs);
    match runs.filter(|run| run.record.ended_at.is_none()).count() as u64 >= most {
        true => Err(StoreError::TooManyRuns { most }),
        false => Ok(()),
    }
}

pub(super) fn create(state: &mut State, workspace: &Workspace, run: NewRun) -> Result<RunRecord> {
    create_as(state, workspace, run, RunStatus::Pending)
}

/// Makes a run that stands so from the beginning.
pub(super) fn create_as(
    state: &mut State,
    workspace: &Workspace,
    run: NewRun,
    status: RunStatus,
) -> Result<RunRecord> {
    let tenant = workspace.tenant();
    secrets::refuse_changed(state, tenant, run.secrets_seen)?;
    state.refuse_taken(tenant, run.claim.as_ref(), run.now)?;
    refuse_known(state, tenant, &run.id)?;
    if !status.is_terminal() {
        refuse_crowd(state, tenant, run.most_unfinished)?;
    }
    let files = workspace::list(state, workspace, "").into_iter();
    let record = RunRecord {
        id: run.id,
        workspace: workspace.name().to_owned(),
        principal: run.principal,
        workflow: run.workflow,
        status,
        position: state.tenant(tenant).map_or(Position(0), |tenant| tenant.position),
        created_at: run.now,
        ended_at: status.is_terminal().then_some(run.now),
        expired_at: None,
        events: 0,
        fork: None,
        error: None,
        inputs: run.inputs,
        files: files.map(|head| RunFile { path: head.path, version: head.version }).collect(),
        variables: Vec::new(),
    };
    let mut new = RunState { record, events: Vec::new() };
    new.add(run.events, run.now);
    let record = new.record.clone();
    let tenant = state.ensure_tenant(tenant);
    tenant.runs.push(new);
    if let Some(claim) = run.claim {
        tenant.put_outcome(claim.outcome(&record), run.now);
    }
    Ok(record)
}

pub(super) fn fork(state: &mut State, tenant: &Tenant, fork: NewFork) -> Result<Option<RunRecord>> {
    state.refuse_taken(tenant, fork.claim.as_ref(), fork.now)?;
    let has_ended =
        |run: &&RunState| run.record.status.is_terminal() && run.record.expired_at.is_none();
    let Some(source) = find(state, tenant, &fork.source).filter(has_ended) else {
        return Ok(None);
    };
    refuse_known(state, tenant, &fork.id)?;
    let record = forked(source.record.clone(), &fork);
    let copy = |event: &RunEventRecord| repeated(&fork.source, event.clone());
    let events = source.events.iter().map(copy).collect();
    let tenant = state.ensure_tenant(tenant);
    tenant.runs.push(RunState { record: record.clone(), events });
    if let Some(claim) = fork.claim {
        tenant.put_outcome(claim.outcome(&record), fork.now);
    }
    Ok(Some(record))
}

pub(super) fn get(state: &State, tenant: &Tenant, id: &str) -> Result<Option<RunRecord>> {
    Ok(find(state, tenant, id).map(|run| run.record.clone()))
}

pub(super) fn step(
    state: &mut State,
    key: &IdentityKey,
    tenant: &Tenant,
    step: RunStep,
) -> Result<Option<RunRecord>> {
    refuse_foreign(tenant, &step)?;
    let as_seen = |run: &RunRecord| run.events == step.seen && !run.status.is_terminal();
    if !find(state, tenant, &step.run).is_some_and(|run| as_seen(&run.record)) {
        return Ok(None);
    }
    secrets::refuse_changed(state, tenant, step.secrets_seen)?;
    refuse_writes(state, tenant, &step.writes)?;
    let mut events = Vec::new();
    for write in step.writes {
        let entry = NewEntry { claim: None, ..write.entry.clone() };
        let put = entries::put(state, key, &write.scope, entry)?;
        events.push(written(&write, &put.id));
    }
    events.extend(step.events);
    let mut runs = state.ensure_tenant(tenant).runs.iter_mut();
    let Some(run) = runs.find(|run| run.record.id == step.run) else { return Ok(None) };
    run.add(events, step.now);
    let record = &mut run.record;
    record.status = step.status;
    if step.error.is_some() {
        record.error = step.error;
    }
    record.ended_at = step.status.is_terminal().then_some(step.now);
    set_variables(&mut record.variables, step.variables);
    Ok(Some(record.clone()))
}

/// Refuses all writes if one of them cannot be done.
fn refuse_writes(state: &State, tenant: &Tenant, writes: &[RunWrite]) -> Result<()> {
    let mut new = BTreeSet::new();
    for RunWrite { scope, entry, .. } in writes {
        secrets::refuse_changed(state, tenant, entry.secrets_seen)?;
        let Some(id) = &entry.id else { continue };
        let is_there = state.entries(scope).any(|known| known.record.id == *id);
        if is_there || !new.insert((scope, id)) {
            return Err(StoreError::EntryExists { id: id.clone() });
        }
    }
    Ok(())
}

pub(super) fn events(
    state: &State,
    tenant: &Tenant,
    id: &str,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<RunEventRecord>> {
    let events = find(state, tenant, id).into_iter().flat_map(|run| &run.events);
    let is_after = |event: &&RunEventRecord| after.is_none_or(|after| event.sequence > after);
    Ok(events.filter(is_after).take(limit).cloned().collect())
}

pub(super) fn unfinished(state: &State, limit: usize) -> Result<Vec<(Tenant, String)>> {
    let mut found = Vec::new();
    for (at, tenant) in state.tenants.iter().enumerate() {
        let open = tenant.runs.iter().map(|run| &run.record).filter(|run| run.ended_at.is_none());
        let mut open: Vec<(Millis, &String)> = open.map(|run| (run.created_at, &run.id)).collect();
        open.sort();
        let turns = open.into_iter().enumerate();
        found.extend(turns.map(|(turn, (created_at, id))| (turn, created_at, at, id)));
    }
    found.sort();
    let named = |(_, _, at, id): (usize, Millis, usize, &String)| {
        (state.tenants[at].name.clone(), id.clone())
    };
    Ok(found.into_iter().take(limit).map(named).collect())
}

pub(super) fn expire(
    state: &mut State,
    ended_by: Millis,
    now: Millis,
    limit: usize,
) -> Result<u64> {
    let mut due = Vec::new();
    for (at, tenant) in state.tenants.iter_mut().enumerate() {
        for run in tenant.runs.iter_mut().filter(|run| run.record.expired_at.is_none()) {
            let ended_at = run.record.ended_at.filter(|at| *at <= ended_by);
            due.extend(ended_at.map(|ended_at| (ended_at, at, run)));
        }
    }
    due.sort_by(|(a_ended, a_at, a), (b_ended, b_at, b)| {
        (a_ended, a_at, &a.record.id).cmp(&(b_ended, b_at, &b.record.id))
    });
    due.truncate(limit);
    for (_, _, run) in &mut due {
        run.let_go(now);
    }
    Ok(due.len() as u64)
}

pub(super) fn erase(
    state: &mut State,
    tenant: &Tenant,
    before: Millis,
    now: Millis,
    dry_run: bool,
) -> Result<u64> {
    if state.tenant(tenant).is_none() {
        return Ok(0);
    }
    let runs = &mut state.ensure_tenant(tenant).runs;
    let is_early = |run: &&RunState| run.record.created_at < before;
    let mut early: BTreeSet<String> =
        runs.iter().filter(is_early).map(|run| run.record.id.clone()).collect();
    // What repeats a run was given what that one was, however late it was made.
    loop {
        let known = early.len();
        for RunState { record, .. } in runs.iter() {
            if record.fork.as_ref().is_some_and(|fork| early.contains(&fork.run)) {
                early.insert(record.id.clone());
            }
        }
        if early.len() == known {
            break;
        }
    }
    let is_due = |run: &&mut RunState| {
        let RunRecord { id, ended_at, expired_at, .. } = &run.record;
        early.contains(id) && ended_at.is_some() && expired_at.is_none()
    };
    let due: Vec<&mut RunState> = runs.iter_mut().filter(is_due).collect();
    let count = due.len() as u64;
    if !dry_run {
        due.into_iter().for_each(|run| run.let_go(now));
    }
    Ok(count)
}

pub(super) fn purge(state: &mut State, expired_by: Millis, limit: usize) -> Result<u64> {
    let mut due = Vec::new();
    for (at, tenant) in state.tenants.iter().enumerate() {
        for RunState { record, .. } in &tenant.runs {
            let expired_at = record.expired_at.filter(|at| *at <= expired_by);
            due.extend(expired_at.map(|expired_at| (expired_at, at, record.id.clone())));
        }
    }
    due.sort();
    due.truncate(limit);
    for (_, at, id) in &due {
        state.tenants[*at].runs.retain(|run| run.record.id != *id);
    }
    Ok(due.len() as u64)
}

/// Puts runs and their events through a redactor; answers how many runs are other than
/// they were.
pub(super) fn rewrite(tenant: &mut TenantState, again: &Again<'_>, renamed: &Renamed) -> u64 {
    let mut changed = 0;
    for run in &mut tenant.runs {
        let record = renamed.run(again, &run.record);
        let mut is_new = record.is_some();
        if let Some(record) = record {
            run.record = record;
        }
        for event in &mut run.events {
            if let Some(clean) = renamed.event(again, event) {
                *event = clean;
                is_new = true;
            }
        }
        changed += u64::from(is_new);
    }
    changed
}
