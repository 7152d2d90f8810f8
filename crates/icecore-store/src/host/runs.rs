//! Runs of workflows and their events.

use std::collections::BTreeMap;

use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::json::JsonText;
use icecore_domain::redact::{RedactedJson, RedactedText};
use icecore_domain::time::Millis;
use icecore_domain::workspace::{FilePath, Workspace};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

use crate::engine::tx::{Isolation, Tx};
use crate::engine::{OptionalExtension, Row, params};
use crate::entries::NewEntry;
use crate::error::{Result, StoreError};
use crate::host::workspace;
use crate::outcomes::{self, Claim, Effect};
use crate::reredact::Reredactor;
use crate::store::Store;
use crate::{engine, entries, log, scopes, secrets};

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStatus {
    /// It was made and has not begun.
    Pending,
    /// Its nodes are being worked on.
    Running,
    /// It did all it had to.
    Completed,
    /// It could not go on.
    Failed,
    /// It was told to stop.
    Cancelled,
}

impl RunStatus {
    const ALL: [RunStatus; 5] = [
        RunStatus::Pending,
        RunStatus::Running,
        RunStatus::Completed,
        RunStatus::Failed,
        RunStatus::Cancelled,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            RunStatus::Pending => "pending",
            RunStatus::Running => "running",
            RunStatus::Completed => "completed",
            RunStatus::Failed => "failed",
            RunStatus::Cancelled => "cancelled",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<RunStatus> {
        RunStatus::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether nothing more happens.
    pub fn is_terminal(self) -> bool {
        matches!(self, RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled)
    }
}

/// A run to make.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its id, which nothing else in the tenant has.
    pub id: String,
    /// Of which workflow.
    pub workflow: String,
    /// Who asked for it, by an opaque id.
    pub principal: String,
    /// What it was given.
    pub inputs: RedactedJson,
    /// What happens first.
    pub events: Vec<NewRunEvent>,
    /// How many runs of the tenant, with this one, may be unfinished.
    pub most_unfinished: u64,
    /// Now.
    pub now: Millis,
    /// The version of the tenant's secrets with which the inputs were redacted.
    pub secrets_seen: u64,
    /// The caller's key, whose outcome is kept in the same step.
    pub claim: Option<Claim>,
}

/// A run that repeats another.
#[derive(Debug, Clone)]
pub struct NewFork {
    /// Its id.
    pub id: String,
    /// Which run it repeats.
    pub source: String,
    /// From which event on; what comes before is repeated too.
    pub from_seq: u64,
    /// Now.
    pub now: Millis,
    /// The caller's key, whose outcome is kept in the same step.
    pub claim: Option<Claim>,
}

/// Something that happens in a run. It holds no content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRunEvent {
    /// For example `node.completed`.
    pub kind: &'static str,
    /// At which node.
    pub node: Option<String>,
    /// Content-free JSON object.
    pub payload: String,
}

/// What a run does next, all of it or nothing.
#[derive(Debug, Clone)]
pub struct RunStep {
    /// Which run.
    pub run: String,
    /// How many events it has so far.
    pub seen: u64,
    /// What it writes. Each is told as `memory.written`, before `events`.
    pub writes: Vec<RunWrite>,
    /// What happens besides.
    pub events: Vec<NewRunEvent>,
    /// Variables that it sets; a name that is there is set anew.
    pub variables: Vec<RunVariable>,
    /// How it stands afterwards.
    pub status: RunStatus,
    /// Why it failed.
    pub error: Option<RunError>,
    /// Now.
    pub now: Millis,
    /// The version of the tenant's secrets with which the variables were redacted.
    pub secrets_seen: u64,
}

/// An entry that a node of a run puts.
#[derive(Debug, Clone)]
pub struct RunWrite {
    /// Into which memory, of the run's tenant.
    pub scope: Scope,
    /// What. Its claim is not looked at.
    pub entry: NewEntry,
    /// By which node.
    pub node: String,
    /// For which agent.
    pub agent: Option<String>,
}

/// A value that a run leaves behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunVariable {
    /// Its name.
    pub name: String,
    /// What it is.
    pub value: RunValue,
}

/// What a variable holds. Entries are named and never quoted: what is forgotten is
/// not to be found in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunValue {
    /// A value of its own.
    Json(RedactedJson),
    /// An entry.
    Entry(EntryRef),
    /// Entries, in order.
    Entries(Vec<EntryRef>),
    /// What an entry says.
    Content(EntryRef),
}

/// An entry by its memory and its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryRef {
    /// Its memory's name.
    pub memory_ref: String,
    /// Its id.
    pub memory_id: String,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    /// For programs.
    pub code: String,
    /// For people. It quotes nothing.
    pub message: String,
}

/// A file that a run began with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFile {
    /// Where.
    pub path: FilePath,
    /// Which version.
    pub version: u64,
}

/// Which run another repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkOf {
    /// Its id.
    pub run: String,
    /// From which event on.
    pub from_seq: u64,
}

/// A run as kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    /// Its id.
    pub id: String,
    /// In which of the tenant's workspaces.
    pub workspace: String,
    /// Who asked for it, by an opaque id.
    pub principal: String,
    /// Of which workflow.
    pub workflow: String,
    /// How it stands.
    pub status: RunStatus,
    /// Where the log stood when it began: it sees memory as it was there.
    pub position: Position,
    /// When it was made.
    pub created_at: Millis,
    /// When it ended; of a run that repeats another, when that one did.
    pub ended_at: Option<Millis>,
    /// When its events, inputs and variables were let go.
    pub expired_at: Option<Millis>,
    /// How many events it has, or had.
    pub events: u64,
    /// Which run it repeats, if any.
    pub fork: Option<ForkOf>,
    /// Why it failed.
    pub error: Option<RunError>,
    /// What it was given.
    pub inputs: RedactedJson,
    /// The files it began with, by path.
    pub files: Vec<RunFile>,
    /// What it leaves behind, in the order in which it was set first.
    pub variables: Vec<RunVariable>,
}

impl Effect for RunRecord {
    fn ids(&self) -> Json {
        let source = self.fork.as_ref();
        json!({
            "runId": self.id,
            "status": self.status.as_str(),
            "sourceRunId": source.map(|fork| &fork.run),
            "fromSeq": source.map(|fork| fork.from_seq),
        })
    }
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEventRecord {
    /// Its number in the run, from 0.
    pub sequence: u64,
    /// When it happened; in a run that repeats another, when it did there.
    pub at: Millis,
    /// For example `node.completed`.
    pub kind: String,
    /// At which node.
    pub node: Option<String>,
    /// The event that it repeats, as `RUN:SEQUENCE`.
    pub cause: Option<String>,
    /// Content-free JSON object.
    pub payload: String,
}

/// What a run of which nothing is kept was given.
pub(crate) const NO_INPUTS: &str = "{}";

/// A value as it lies in a store, if that is what was written.
#[expect(clippy::disallowed_methods, reason = "runs come from our own rows")]
pub(crate) fn stored_json(text: &str) -> Option<RedactedJson> {
    JsonText::parse(text).ok().map(RedactedJson::read_back)
}

/// A path as it lies in a store, if that is what was written.
#[expect(clippy::disallowed_methods, reason = "runs come from our own rows")]
pub(crate) fn stored_path(path: &str) -> Option<FilePath> {
    FilePath::new(RedactedText::read_back(path.to_owned())).ok()
}

/// How a run tells of an entry that it put.
pub(crate) fn written(write: &RunWrite, id: &str) -> NewRunEvent {
    let mut payload = serde_json::json!({
        "memoryRef": write.scope.memory(),
        "memoryId": id,
        "nodeId": write.node,
    });
    if let Some(agent) = &write.agent {
        payload["agentId"] = agent.as_str().into();
    }
    let node = Some(write.node.clone());
    NewRunEvent { kind: "memory.written", node, payload: payload.to_string() }
}

/// Refuses a step that would write into a memory of another tenant.
pub(crate) fn refuse_foreign(tenant: &Tenant, step: &RunStep) -> Result<()> {
    match step.writes.iter().all(|write| write.scope.tenant() == tenant) {
        true => Ok(()),
        false => Err(StoreError::OtherTenant),
    }
}

/// Sets variables, each where it was set first.
pub(crate) fn set_variables(known: &mut Vec<RunVariable>, new: Vec<RunVariable>) {
    for variable in new {
        match known.iter_mut().find(|known| known.name == variable.name) {
            Some(known) => known.value = variable.value,
            None => known.push(variable),
        }
    }
}

/// An event that repeats one of another run.
pub(crate) fn repeated(run: &str, event: RunEventRecord) -> RunEventRecord {
    RunEventRecord { cause: Some(format!("{run}:{}", event.sequence)), ..event }
}

/// The run that repeats another, which has ended. It is the same owner's, and past its
/// retention when that one is: else whoever repeats it would keep it for ever.
pub(crate) fn forked(source: RunRecord, fork: &NewFork) -> RunRecord {
    RunRecord {
        id: fork.id.clone(),
        created_at: fork.now,
        fork: Some(ForkOf { run: source.id.clone(), from_seq: fork.from_seq }),
        ..source
    }
}

// Rewriting

/// Names that were changed because they told a secret, old to new.
#[derive(Default)]
pub(crate) struct Renamed {
    /// Of memories.
    pub(crate) memories: BTreeMap<String, String>,
    /// Of files, each by its workspace and path.
    pub(crate) files: BTreeMap<(String, String), FilePath>,
}

impl Renamed {
    fn memory(&self, again: &Reredactor<'_>, name: &mut String) {
        let hidden = || again.text(name).map(|(clean, _)| clean.into_string());
        if let Some(new) = self.memories.get(name.as_str()).cloned().or_else(hidden) {
            *name = new;
        }
    }

    /// A run with nothing in it that a redactor would hide; none if it is so already.
    pub(crate) fn run(&self, again: &Reredactor<'_>, run: &RunRecord) -> Option<RunRecord> {
        let mut clean = run.clone();
        let text = |text: &mut String| {
            if let Some((hidden, _)) = again.text(text) {
                *text = hidden.into_string();
            }
        };
        text(&mut clean.workflow);
        if let Some(error) = &mut clean.error {
            text(&mut error.message);
        }
        json(again, &mut clean.inputs);
        for variable in &mut clean.variables {
            text(&mut variable.name);
            self.value(again, &mut variable.value);
        }
        clean.files =
            clean.files.into_iter().filter_map(|file| self.file(again, run, file)).collect();
        clean.files.sort_by(|a, b| a.path.cmp(&b.path));
        (clean != *run).then_some(clean)
    }

    fn value(&self, again: &Reredactor<'_>, value: &mut RunValue) {
        match value {
            RunValue::Json(value) => json(again, value),
            RunValue::Entry(entry) | RunValue::Content(entry) => {
                self.memory(again, &mut entry.memory_ref);
            }
            RunValue::Entries(entries) => {
                entries.iter_mut().for_each(|entry| self.memory(again, &mut entry.memory_ref));
            }
        }
    }

    /// One that has gone has no name of now, and is left out if its own tells.
    fn file(&self, again: &Reredactor<'_>, run: &RunRecord, file: RunFile) -> Option<RunFile> {
        let key = (run.workspace.clone(), file.path.as_str().to_owned());
        match self.files.get(&key) {
            Some(path) => Some(RunFile { path: path.clone(), ..file }),
            None => again.text(file.path.as_str()).is_none().then_some(file),
        }
    }

    /// The same for the node and the payload of an event.
    pub(crate) fn event(
        &self,
        again: &Reredactor<'_>,
        event: &RunEventRecord,
    ) -> Option<RunEventRecord> {
        let payload: serde_json::Value = serde_json::from_str(&event.payload).unwrap_or_default();
        let memory = payload["memoryRef"].as_str().and_then(|name| self.memories.get(name));
        let payload = again.payload(&event.payload, &BTreeMap::new(), memory.map(String::as_str));
        let node = event.node.as_deref().and_then(|node| again.text(node));
        if payload.is_none() && node.is_none() {
            return None;
        }
        Some(RunEventRecord {
            node: node.map(|(node, _)| node.into_string()).or_else(|| event.node.clone()),
            payload: payload.unwrap_or_else(|| event.payload.clone()),
            ..event.clone()
        })
    }
}

fn json(again: &Reredactor<'_>, value: &mut RedactedJson) {
    let clean = again.json(value.json().as_str()).and_then(|clean| stored_json(&clean));
    if let Some(clean) = clean {
        *value = clean;
    }
}

pub(crate) fn create(tx: &Tx<'_>, workspace: &Workspace, run: NewRun) -> Result<RunRecord> {
    create_as(tx, workspace, run, RunStatus::Pending)
}

/// Makes a run that stands so from the beginning.
pub(crate) fn create_as(
    tx: &Tx<'_>,
    workspace: &Workspace,
    run: NewRun,
    status: RunStatus,
) -> Result<RunRecord> {
    secrets::refuse_changed(tx, workspace.tenant(), run.secrets_seen)?;
    let (tenant, _) = scopes::ensure_tenant(tx, workspace.tenant())?;
    outcomes::refuse_taken(tx, tenant, run.claim.as_ref(), run.now)?;
    refuse_known(tx, tenant, &run.id)?;
    if !status.is_terminal() {
        refuse_crowd(tx, tenant, run.most_unfinished)?;
    }
    let files = workspace::list(tx, workspace, "")?;
    let record = RunRecord {
        id: run.id,
        workspace: workspace.name().to_owned(),
        principal: run.principal,
        workflow: run.workflow,
        status,
        position: log::head(tx, workspace.tenant())?,
        created_at: run.now,
        ended_at: status.is_terminal().then_some(run.now),
        expired_at: None,
        events: run.events.len() as u64,
        fork: None,
        error: None,
        inputs: run.inputs,
        files: files
            .into_iter()
            .map(|head| RunFile { path: head.path, version: head.version })
            .collect(),
        variables: Vec::new(),
    };
    insert(tx, tenant, &record)
        .and_then(|()| add_events(tx, tenant, &record.id, 0, &run.events, run.now))?;
    outcomes::put_claimed(tx, tenant, run.claim.as_ref(), &record, run.now)?;
    Ok(record)
}

fn refuse_known(tx: &Tx<'_>, tenant: i64, id: &str) -> Result<()> {
    let is_known = tx
        .prepare_cached("SELECT 1 FROM workflow_runs WHERE tenant = ?1 AND run = ?2")
        .and_then(|mut q| q.exists(params![tenant, id]))?;
    if is_known { Err(StoreError::RunExists { id: id.to_owned() }) } else { Ok(()) }
}

/// Refuses one unfinished run more than there may be.
fn refuse_crowd(tx: &Tx<'_>, tenant: i64, most: u64) -> Result<()> {
    let count: i64 = tx
        .prepare_cached(
            "SELECT count(*) FROM workflow_runs INDEXED BY workflow_runs_open
             WHERE tenant = ?1 AND ended_at IS NULL",
        )
        .and_then(|mut q| q.query_row([tenant], |row| row.get(0)))?;
    if count as u64 >= most { Err(StoreError::TooManyRuns { most }) } else { Ok(()) }
}

fn insert(tx: &Tx<'_>, tenant: i64, run: &RunRecord) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO workflow_runs (tenant, run, workspace, principal, workflow, status, position,
                                    created_at, ended_at, events, source, from_seq, error, inputs,
                                    files, variables)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
    )?
    .execute(params![
        tenant,
        run.id,
        run.workspace,
        run.principal,
        run.workflow,
        run.status.as_str(),
        engine::number(run.position.0),
        run.created_at.0,
        run.ended_at.map(|at| at.0),
        engine::number(run.events),
        run.fork.as_ref().map(|fork| &fork.run),
        run.fork.as_ref().map(|fork| engine::number(fork.from_seq)),
        write_error(run),
        run.inputs.json().as_str(),
        write_files(run),
        write_variables(run),
    ])?;
    Ok(())
}

fn add_events(
    tx: &Tx<'_>,
    tenant: i64,
    run: &str,
    first: u64,
    events: &[NewRunEvent],
    now: Millis,
) -> Result<()> {
    for (sequence, event) in (first..).zip(events) {
        let event = RunEventRecord {
            sequence,
            at: now,
            kind: event.kind.to_owned(),
            node: event.node.clone(),
            cause: None,
            payload: event.payload.clone(),
        };
        add_event(tx, tenant, run, &event)?;
    }
    Ok(())
}

fn add_event(tx: &Tx<'_>, tenant: i64, run: &str, event: &RunEventRecord) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO run_events (tenant, run, sequence, at, kind, node, cause, payload)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        tenant,
        run,
        engine::number(event.sequence),
        event.at.0,
        event.kind,
        event.node,
        event.cause,
        event.payload,
    ])?;
    Ok(())
}

pub(crate) fn fork(tx: &Tx<'_>, tenant: &Tenant, fork: NewFork) -> Result<Option<RunRecord>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(None) };
    outcomes::refuse_taken(tx, no, fork.claim.as_ref(), fork.now)?;
    let source = read(tx, no, &fork.source)?;
    let has_ended = |run: &RunRecord| run.status.is_terminal() && run.expired_at.is_none();
    let Some(source) = source.filter(has_ended) else { return Ok(None) };
    refuse_known(tx, no, &fork.id)?;
    let record = forked(source, &fork);
    let copy = || -> Result<_> {
        insert(tx, no, &record)?;
        for event in read_events(tx, no, &fork.source, -1, i64::MAX)? {
            add_event(tx, no, &record.id, &repeated(&fork.source, event))?;
        }
        Ok(())
    };
    copy()?;
    outcomes::put_claimed(tx, no, fork.claim.as_ref(), &record, fork.now)?;
    Ok(Some(record))
}

pub(crate) fn get(tx: &Tx<'_>, tenant: &Tenant, id: &str) -> Result<Option<RunRecord>> {
    match scopes::tenant_no(tx, tenant)? {
        Some(tenant) => read(tx, tenant, id),
        None => Ok(None),
    }
}

pub(crate) fn step(tx: &Tx<'_>, tenant: &Tenant, step: RunStep) -> Result<Option<RunRecord>> {
    refuse_foreign(tenant, &step)?;
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(None) };
    let as_seen = |run: &RunRecord| run.events == step.seen && !run.status.is_terminal();
    let Some(mut run) = read(tx, no, &step.run)?.filter(as_seen) else { return Ok(None) };
    secrets::refuse_changed(tx, tenant, step.secrets_seen)?;
    let mut events = Vec::with_capacity(step.writes.len() + step.events.len());
    for write in step.writes {
        let entry = NewEntry { claim: None, ..write.entry.clone() };
        let put = entries::put(tx, &write.scope, entry)?;
        events.push(written(&write, &put.id));
    }
    events.extend(step.events);
    add_events(tx, no, &run.id, run.events, &events, step.now)?;
    run.events += events.len() as u64;
    run.status = step.status;
    run.error = step.error.or(run.error);
    run.ended_at = step.status.is_terminal().then_some(step.now);
    set_variables(&mut run.variables, step.variables);
    tx.prepare_cached(
        "UPDATE workflow_runs SET status = ?3, ended_at = ?4, events = ?5, error = ?6,
                                  variables = ?7
         WHERE tenant = ?1 AND run = ?2",
    )
    .and_then(|mut q| {
        q.execute(params![
            no,
            run.id,
            run.status.as_str(),
            run.ended_at.map(|at| at.0),
            engine::number(run.events),
            write_error(&run),
            write_variables(&run),
        ])
    })?;
    Ok(Some(run))
}

pub(crate) fn events(
    tx: &Tx<'_>,
    tenant: &Tenant,
    id: &str,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<RunEventRecord>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(Vec::new()) };
    let after = after.map_or(-1, engine::number);
    read_events(tx, no, id, after, engine::number(limit as u64))
}

fn read_events(
    tx: &Tx<'_>,
    tenant: i64,
    run: &str,
    after: i64,
    limit: i64,
) -> Result<Vec<RunEventRecord>> {
    tx.prepare_cached(
        "SELECT sequence, at, kind, node, cause, payload FROM run_events
         WHERE tenant = ?1 AND run = ?2 AND sequence > ?3 ORDER BY sequence LIMIT ?4",
    )?
    .query_map(params![tenant, run, after, limit], |row| {
        Ok(RunEventRecord {
            sequence: row.get::<_, i64>(0)? as u64,
            at: Millis(row.get(1)?),
            kind: row.get(2)?,
            node: row.get(3)?,
            cause: row.get(4)?,
            payload: row.get(5)?,
        })
    })?
    .collect()
}

pub(crate) fn unfinished(tx: &Tx<'_>, limit: usize) -> Result<Vec<(Tenant, String)>> {
    let found: Vec<(String, String)> = tx
        .prepare_cached(
            "SELECT t.name, r.run
             FROM (SELECT tenant, run, created_at,
                          row_number() OVER (PARTITION BY tenant ORDER BY created_at, run) AS turn
                   FROM workflow_runs INDEXED BY workflow_runs_open
                   WHERE ended_at IS NULL) r
             JOIN tenants t ON t.tenant = r.tenant
             ORDER BY r.turn, r.created_at, r.tenant LIMIT ?1",
        )
        .and_then(|mut q| {
            q.query_map([engine::number(limit as u64)], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })?;
    let named = |(tenant, run)| match Tenant::new(tenant) {
        Ok(tenant) => Ok((tenant, run)),
        Err(_) => Err(tx.damaged("a stored name of a tenant is not valid")),
    };
    found.into_iter().map(named).collect()
}

pub(crate) fn expire(tx: &Tx<'_>, ended_by: Millis, now: Millis, limit: usize) -> Result<u64> {
    let expire = || -> Result<_> {
        let due: Vec<(i64, String)> = tx
            .prepare_cached(
                "SELECT tenant, run FROM workflow_runs INDEXED BY workflow_runs_ended
                 WHERE ended_at IS NOT NULL AND expired_at IS NULL AND ended_at <= ?1
                 ORDER BY ended_at, tenant, run LIMIT ?2",
            )?
            .query_map([ended_by.0, engine::number(limit as u64)], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<Result<_>>()?;
        for (tenant, run) in &due {
            let_go(tx, *tenant, run, now)?;
        }
        Ok(due.len() as u64)
    };
    expire()
}

/// Of a run, what names it stays.
fn let_go(tx: &Tx<'_>, tenant: i64, run: &str, now: Millis) -> Result<()> {
    tx.prepare_cached("DELETE FROM run_events WHERE tenant = ?1 AND run = ?2")?
        .execute(params![tenant, run])?;
    tx.prepare_cached(
        "UPDATE workflow_runs SET inputs = ?3, files = '[]', variables = '[]', error = NULL,
                                  expired_at = ?4
         WHERE tenant = ?1 AND run = ?2",
    )?
    .execute(params![tenant, run, NO_INPUTS, now.0])?;
    Ok(())
}

pub(crate) fn erase(
    tx: &Tx<'_>,
    tenant: &Tenant,
    before: Millis,
    now: Millis,
    dry_run: bool,
) -> Result<u64> {
    let Some(tenant) = scopes::tenant_no(tx, tenant)? else { return Ok(0) };
    let erase = || -> Result<_> {
        // What repeats a run was given what that one was, however late it was made.
        let found: Vec<String> = tx
            .prepare_cached(
                "WITH RECURSIVE early (run) AS (
                     SELECT run FROM workflow_runs WHERE tenant = ?1 AND created_at < ?2
                     UNION
                     SELECT r.run FROM early e
                     JOIN workflow_runs r INDEXED BY workflow_runs_by_source
                       ON r.tenant = ?1 AND r.source = e.run
                 )
                 SELECT r.run FROM early e JOIN workflow_runs r ON r.tenant = ?1 AND r.run = e.run
                 WHERE r.ended_at IS NOT NULL AND r.expired_at IS NULL",
            )?
            .query_map(params![tenant, before.0], |row| row.get(0))?
            .collect::<Result<_>>()?;
        for run in found.iter().filter(|_| !dry_run) {
            let_go(tx, tenant, run, now)?;
        }
        Ok(found.len() as u64)
    };
    erase()
}

pub(crate) fn purge(tx: &Tx<'_>, expired_by: Millis, limit: usize) -> Result<u64> {
    tx.prepare_cached(
        "DELETE FROM workflow_runs WHERE (tenant, run) IN (
             SELECT tenant, run FROM workflow_runs INDEXED BY workflow_runs_expired
             WHERE expired_at IS NOT NULL AND expired_at <= ?1
             ORDER BY expired_at, tenant, run LIMIT ?2)",
    )
    .and_then(|mut q| q.execute([expired_by.0, engine::number(limit as u64)]))
    .map(|purged| purged as u64)
}

// Rows

const COLUMNS: &str = "run, workspace, principal, workflow, status, position, created_at, ended_at,
    expired_at, events, source, from_seq, error, inputs, files, variables";

fn read(tx: &Tx<'_>, tenant: i64, id: &str) -> Result<Option<RunRecord>> {
    tx.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM workflow_runs WHERE tenant = ?1 AND run = ?2"
    ))
    .and_then(|mut q| q.query_row(params![tenant, id], read_row).optional())?
    .map(|run| whole(tx, run))
    .transpose()
}

fn whole(tx: &Tx<'_>, run: Option<RunRecord>) -> Result<RunRecord> {
    run.ok_or_else(|| tx.damaged("the row of a run is not valid"))
}

/// None where a row is not what was written.
fn read_row(row: &Row<'_>) -> Result<Option<RunRecord>> {
    let (status, inputs): (String, String) = (row.get(4)?, row.get(13)?);
    let (error, files, variables): (Option<String>, String, String) =
        (row.get(12)?, row.get(14)?, row.get(15)?);
    let error: Option<RunError> = match error.map(|error| serde_json::from_str(&error)) {
        Some(Err(_)) => return Ok(None),
        read => read.and_then(std::result::Result::ok),
    };
    let (Some(status), Some(inputs), Some(files), Some(variables)) = (
        RunStatus::parse(&status),
        stored_json(&inputs),
        read_files(&files),
        read_variables(&variables),
    ) else {
        return Ok(None);
    };
    let (source, from_seq): (Option<String>, Option<i64>) = (row.get(10)?, row.get(11)?);
    let millis = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(Millis));
    Ok(Some(RunRecord {
        id: row.get(0)?,
        workspace: row.get(1)?,
        principal: row.get(2)?,
        workflow: row.get(3)?,
        status,
        position: Position(row.get::<_, i64>(5)? as u64),
        created_at: Millis(row.get(6)?),
        ended_at: millis(7)?,
        expired_at: millis(8)?,
        events: row.get::<_, i64>(9)? as u64,
        fork: source.zip(from_seq).map(|(run, from_seq)| ForkOf { run, from_seq: from_seq as u64 }),
        error,
        inputs,
        files,
        variables,
    }))
}

fn write_error(run: &RunRecord) -> Option<String> {
    run.error.as_ref().map(|error| serde_json::json!(error).to_string())
}

fn write_files(run: &RunRecord) -> String {
    let files = run.files.iter().map(|file| (file.path.as_str(), file.version));
    serde_json::json!(files.collect::<Vec<_>>()).to_string()
}

fn read_files(text: &str) -> Option<Vec<RunFile>> {
    let files: Vec<(String, u64)> = serde_json::from_str(text).ok()?;
    let file =
        |(path, version): (String, u64)| stored_path(&path).map(|path| RunFile { path, version });
    files.into_iter().map(file).collect()
}

/// A variable's value as its column has it. JSON keeps its spelling.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Stored {
    Json(Box<RawValue>),
    Entry(EntryRef),
    Entries(Vec<EntryRef>),
    Content(EntryRef),
}

fn write_variables(run: &RunRecord) -> String {
    let kept = |variable: &RunVariable| {
        let value = match &variable.value {
            RunValue::Json(json) => {
                Stored::Json(RawValue::from_string(json.json().as_str().to_owned()).ok()?)
            }
            RunValue::Entry(entry) => Stored::Entry(entry.clone()),
            RunValue::Entries(entries) => Stored::Entries(entries.clone()),
            RunValue::Content(entry) => Stored::Content(entry.clone()),
        };
        Some((variable.name.clone(), value))
    };
    let kept: Vec<(String, Stored)> = run.variables.iter().filter_map(kept).collect();
    serde_json::to_string(&kept).unwrap_or_else(|_| "[]".to_owned())
}

fn read_variables(text: &str) -> Option<Vec<RunVariable>> {
    let kept: Vec<(String, Stored)> = serde_json::from_str(text).ok()?;
    let variable = |(name, value)| {
        let value = match value {
            Stored::Json(json) => RunValue::Json(stored_json(json.get())?),
            Stored::Entry(entry) => RunValue::Entry(entry),
            Stored::Entries(entries) => RunValue::Entries(entries),
            Stored::Content(entry) => RunValue::Content(entry),
        };
        Some(RunVariable { name, value })
    };
    kept.into_iter().map(variable).collect()
}

// Rewriting

/// Puts the runs of a tenant through a redactor, with their events; answers how many
/// are other than they were.
pub(crate) fn rewrite(
    tx: &Tx<'_>,
    tenant: i64,
    again: &Reredactor<'_>,
    renamed: &Renamed,
    now: Millis,
) -> Result<u64> {
    let ids: Vec<String> = tx
        .prepare("SELECT run FROM workflow_runs WHERE tenant = ?1")
        .and_then(|mut q| q.query_map([tenant], |row| row.get(0))?.collect())?;
    let mut changed = 0;
    for id in ids {
        let is_changed = match rewrite_one(tx, tenant, &id, again, renamed) {
            // Nobody can say what is in it, and it must not keep the rest from being hidden.
            Err(error) if is_unreadable(&error) => {
                tracing::warn!(error = %error, "a damaged run is emptied");
                give_up(tx, tenant, &id, again, now)?;
                true
            }
            done => done?,
        };
        changed += u64::from(is_changed);
    }
    Ok(changed)
}

fn rewrite_one(
    tx: &Tx<'_>,
    tenant: i64,
    id: &str,
    again: &Reredactor<'_>,
    renamed: &Renamed,
) -> Result<bool> {
    let Some(run) = read(tx, tenant, id)? else { return Ok(false) };
    let clean = renamed.run(again, &run);
    if let Some(clean) = &clean {
        rewrite_row(tx, tenant, clean)?;
    }
    let events = rewrite_events(tx, tenant, id, again, renamed)?;
    Ok(events || clean.is_some())
}

/// Whether a row could be had and is not what was written.
fn is_unreadable(error: &StoreError) -> bool {
    match error {
        StoreError::Damaged { .. } => true,
        StoreError::Database(error) => error.is_broken_row(),
        _ => false,
    }
}

/// Ends a run of which nobody can say how far it is, and empties it.
fn give_up(tx: &Tx<'_>, tenant: i64, run: &str, again: &Reredactor<'_>, now: Millis) -> Result<()> {
    let_go(tx, tenant, run, now)?;
    let workflow = tx
        .prepare_cached("SELECT workflow FROM workflow_runs WHERE tenant = ?1 AND run = ?2")?
        .query_row(params![tenant, run], |row| row.get_lossy(0))?;
    let workflow = again.text(&workflow).map_or(workflow, |(clean, _)| clean.into_string());
    tx.prepare_cached(
        "UPDATE workflow_runs SET workflow = ?3, status = ?4, ended_at = coalesce(ended_at, ?5)
         WHERE tenant = ?1 AND run = ?2",
    )?
    .execute(params![tenant, run, workflow, RunStatus::Failed.as_str(), now.0])?;
    Ok(())
}

fn rewrite_row(tx: &Tx<'_>, tenant: i64, run: &RunRecord) -> Result<()> {
    tx.prepare_cached(
        "UPDATE workflow_runs SET workflow = ?3, error = ?4, inputs = ?5, files = ?6,
                                  variables = ?7
         WHERE tenant = ?1 AND run = ?2",
    )?
    .execute(params![
        tenant,
        run.id,
        run.workflow,
        write_error(run),
        run.inputs.json().as_str(),
        write_files(run),
        write_variables(run),
    ])?;
    Ok(())
}

fn rewrite_events(
    tx: &Tx<'_>,
    tenant: i64,
    run: &str,
    again: &Reredactor<'_>,
    renamed: &Renamed,
) -> Result<bool> {
    let mut changed = false;
    for event in read_events(tx, tenant, run, -1, i64::MAX)? {
        let Some(clean) = renamed.event(again, &event) else { continue };
        tx.prepare_cached(
            "UPDATE run_events SET node = ?4, payload = ?5
             WHERE tenant = ?1 AND run = ?2 AND sequence = ?3",
        )?
        .execute(params![
            tenant,
            run,
            engine::number(clean.sequence),
            clean.node,
            clean.payload
        ])?;
        changed = true;
    }
    Ok(changed)
}

// Looking after them

/// Runs whose rows are not what was written.
pub(crate) fn check(tx: &Tx<'_>) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let look = |findings: &mut Vec<String>| -> Result<_> {
        let mut query = tx.prepare(&format!("SELECT {COLUMNS} FROM workflow_runs"))?;
        let mut found = query.query([])?;
        while let Some(row) = found.next()? {
            if read_row(&row)?.is_none() {
                findings.push(format!("a run is damaged: {}", row.get::<_, String>(0)?));
            }
        }
        Ok(())
    };
    look(&mut findings)?;
    Ok(findings)
}

impl Store {
    /// Makes a run with its first events. It begins where the log stands, with the
    /// files that its workspace has then. An id that is taken is
    /// [`StoreError::RunExists`], one unfinished run too many
    /// [`StoreError::TooManyRuns`]. Its claim is kept in the same step, and one that is
    /// taken is [`StoreError::ClaimTaken`]. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    pub async fn create_run(&self, workspace: &Workspace, run: NewRun) -> Result<RunRecord> {
        let workspace = workspace.clone();
        self.write(Isolation::from(workspace.tenant()), "create_run", move |tx| {
            create(tx, &workspace, run.clone())
        })
        .await
    }

    /// Makes a run that repeats another of the same tenant, which has ended: its
    /// events with their times and payloads, its files, inputs, variables, owner and
    /// end. Nothing is answered, and nothing done, if that run is not there, has
    /// not ended or is past its retention. Claims and ids as with
    /// [`Store::create_run`].
    pub async fn fork_run(&self, tenant: &Tenant, fork: NewFork) -> Result<Option<RunRecord>> {
        let tenant = tenant.clone();
        self.write(Isolation::from(&tenant), "fork_run", move |tx| {
            self::fork(tx, &tenant, fork.clone())
        })
        .await
    }

    /// A run by id, also one past its retention. It names entries and quotes none: what
    /// is erased elsewhere leaves it as it is.
    pub async fn run(&self, tenant: &Tenant, id: &str) -> Result<Option<RunRecord>> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.read(Isolation::from(&tenant), "run", move |tx| get(tx, &tenant, &id)).await
    }

    /// Does the next thing in a run: its writes, which are logged like all others and
    /// told in the run, its events, its variables and how it stands then. Answers
    /// nothing, having done nothing, when the run has other than the `seen` number of
    /// events, has ended or is not there. A write whose id is there already is
    /// [`StoreError::EntryExists`], one into another tenant's memory
    /// [`StoreError::OtherTenant`]. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    pub async fn step_run(&self, tenant: &Tenant, step: RunStep) -> Result<Option<RunRecord>> {
        let tenant = tenant.clone();
        self.write(Isolation::from(&tenant), "step_run", move |tx| {
            self::step(tx, &tenant, step.clone())
        })
        .await
    }

    /// Events of a run after a number, in order; from the first without one.
    pub async fn run_events(
        &self,
        tenant: &Tenant,
        id: &str,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RunEventRecord>> {
        let (tenant, id) = (tenant.clone(), id.to_owned());
        self.read(Isolation::from(&tenant), "run_events", move |tx| {
            events(tx, &tenant, &id, after, limit)
        })
        .await
    }

    /// Runs, of any tenant, that have not ended: the oldest of each tenant, then the
    /// next of each, so that none waits for all of another's.
    pub async fn unfinished_runs(&self, limit: usize) -> Result<Vec<(Tenant, String)>> {
        self.read(Isolation::Global, "unfinished_runs", move |tx| unfinished(tx, limit)).await
    }

    /// Lets go of the events, inputs, files, variables and errors of runs, of any
    /// tenant, that ended at or before a moment; answers how many. What names them
    /// stays.
    pub async fn expire_runs(&self, ended_by: Millis, now: Millis, limit: usize) -> Result<u64> {
        self.write(Isolation::Global, "expire_runs", move |tx| expire(tx, ended_by, now, limit))
            .await
    }

    /// Does the same for the ended runs of a tenant that were made before a moment, and
    /// for what repeats them; answers how many, or would where it is a dry run.
    pub async fn erase_runs(
        &self,
        tenant: &Tenant,
        before: Millis,
        now: Millis,
        dry_run: bool,
    ) -> Result<u64> {
        let tenant = tenant.clone();
        self.write(Isolation::from(&tenant), "erase_runs", move |tx| {
            erase(tx, &tenant, before, now, dry_run)
        })
        .await
    }

    /// Lets go of runs, of any tenant, whose content was let go at or before a moment,
    /// name and all; answers how many.
    pub async fn purge_runs(&self, expired_by: Millis, limit: usize) -> Result<u64> {
        self.write(Isolation::Global, "purge_runs", move |tx| purge(tx, expired_by, limit)).await
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::tx::Isolation;
    use icecore_domain::ids::Principal;

    use crate::contract::commitments::new_commitment;
    use crate::contract::fixtures::*;
    use crate::contract::runs::{new_run, next, write};
    use crate::store::Store;
    use crate::*;

    async fn change(store: &Store, sql: &'static str) {
        store.write(Isolation::Global, "test", move |tx| tx.execute_batch(sql)).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_wrong_with_runs_and_commitments_is_found() {
        let check = async |sql: &'static str, finding: &str| {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(dir.path(), None).unwrap();
            let workspace = Principal::local_operator(tenant("acme")).workspace();
            for id in ["a", "b"] {
                store.create_run(&workspace, new_run(id)).await.unwrap();
            }
            let step =
                RunStep { writes: vec![write("notes", "e")], ..next("a", 1, RunStatus::Completed) };
            store.step_run(&tenant("acme"), step).await.unwrap().unwrap();
            let intention = Intention::Entry("e".to_owned());
            let new = new_commitment(intention, Condition::Time(NOW));
            store.put_commitment(&scope(), new).await.unwrap();
            clean(&store).await;
            change(&store, sql).await;
            let findings = store.check().await.unwrap();
            assert!(findings.iter().any(|found| found.starts_with(finding)), "{findings:?}");
        };
        for sql in [
            "DELETE FROM run_events WHERE run = 'a' AND sequence = 2",
            "UPDATE workflow_runs SET events = 4 WHERE run = 'a'",
            "UPDATE workflow_runs SET expired_at = 5 WHERE run = 'a'",
        ] {
            check(sql, "a run's count of events is wrong: run a").await;
        }
        check(
            "UPDATE run_events SET sequence = 7 WHERE run = 'a' AND sequence = 1",
            "a run's events are not numbered from 0 on: run a",
        )
        .await;
        for sql in [
            "UPDATE workflow_runs SET ended_at = NULL WHERE run = 'a'",
            "UPDATE workflow_runs SET status = 'running' WHERE run = 'a'",
        ] {
            check(sql, "a run's end does not fit its status: run a").await;
        }
        for sql in [
            "UPDATE workflow_runs SET status = 'lost' WHERE run = 'b'",
            "UPDATE workflow_runs SET inputs = '{' WHERE run = 'b'",
            "UPDATE workflow_runs SET error = '{}' WHERE run = 'b'",
            "UPDATE workflow_runs SET files = '[[\"../a\",1]]' WHERE run = 'b'",
            "UPDATE workflow_runs SET variables = '[[\"v\",{\"text\":1}]]' WHERE run = 'b'",
        ] {
            check(sql, "a run is damaged: b").await;
        }
        check("UPDATE commitments SET state = 1", "a commitment's end does not fit its state: ")
            .await;
        check(
            "UPDATE commitments SET state = 1, settled_at = 1, tag = 't'",
            "a settled commitment tells what it waited for: ",
        )
        .await;
    }
}
