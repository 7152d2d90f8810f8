//! Workflow runs: their inputs, status, events and variables.
//!
//! A run names memory entries and never quotes them, so that nothing erased from a memory
//! is left in a run.

mod retention;
mod rewriting;
mod rows;

use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::redact::RedactedJson;
use icecore_domain::time::Millis;
use icecore_domain::workspace::{FilePath, Workspace};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::engine::tx::{Isolation, Tx};
use crate::engine::{column, params, tuple};
use crate::entries::NewEntry;
use crate::error::{Result, StoreError};
use crate::host::workspace;
use crate::outcomes::{self, Claim, Effect};
use crate::store::Store;
use crate::words::words;
use crate::{entries, log, scopes, secrets};

pub(crate) use rewriting::{Renamed, rewrite};
pub(crate) use rows::check;

words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RunStatus {
        Pending = "pending",
        Running = "running",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

impl RunStatus {
    pub fn is_terminal(self) -> bool {
        matches!(self, RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled)
    }
}

#[derive(Debug, Clone)]
pub struct NewRun {
    /// Unique within the tenant.
    pub id: String,
    pub workflow: String,
    pub principal: String,
    pub inputs: RedactedJson,
    pub events: Vec<NewRunEvent>,
    /// How many runs of the tenant may be unfinished, this one included.
    pub most_unfinished: u64,
    pub now: Millis,
    /// The version of the tenant's secrets with which the inputs were redacted.
    pub secrets_seen: u64,
    pub claim: Option<Claim>,
}

/// A run that repeats another.
#[derive(Debug, Clone)]
pub struct NewFork {
    pub id: String,
    pub source: String,
    /// The first event that the caller asked for; those before it are repeated too.
    pub from_seq: u64,
    pub now: Millis,
    pub claim: Option<Claim>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRunEvent {
    pub kind: &'static str,
    pub node: Option<String>,
    /// Content-free JSON object.
    pub payload: String,
}

/// The next step of a run, applied as a whole or not at all.
#[derive(Debug, Clone)]
pub struct RunStep {
    pub run: String,
    /// How many events the run has so far.
    pub seen: u64,
    /// Each becomes an event `memory.written`, before `events`.
    pub writes: Vec<RunWrite>,
    pub events: Vec<NewRunEvent>,
    pub variables: Vec<RunVariable>,
    pub status: RunStatus,
    pub error: Option<RunError>,
    pub now: Millis,
    /// The version of the tenant's secrets with which the variables were redacted.
    pub secrets_seen: u64,
}

/// An entry that a node of a run writes.
#[derive(Debug, Clone)]
pub struct RunWrite {
    /// A memory of the run's tenant.
    pub scope: Scope,
    /// Its claim is ignored.
    pub entry: NewEntry,
    pub node: String,
    pub agent: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunVariable {
    pub name: String,
    pub value: RunValue,
}

/// The value of a variable. It names entries and never quotes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RunValue {
    #[serde(with = "rows::spelled")]
    Json(RedactedJson),
    Entry(EntryRef),
    Entries(Vec<EntryRef>),
    /// The content of an entry, to be read from it.
    Content(EntryRef),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryRef {
    pub memory_ref: String,
    pub memory_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunError {
    pub code: String,
    /// For people. It quotes nothing.
    pub message: String,
}

/// A file of the workspace as it was when the run was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFile {
    pub path: FilePath,
    pub version: u64,
}

/// The run that a fork repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkOf {
    pub run: String,
    pub from_seq: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    pub id: String,
    pub workspace: String,
    pub principal: String,
    pub workflow: String,
    pub status: RunStatus,
    /// The head of the log when it was created: it sees memory as of this position.
    pub position: Position,
    pub created_at: Millis,
    /// When it ended; for a fork, when its source ended.
    pub ended_at: Option<Millis>,
    /// When its events, inputs, files, variables and error were deleted.
    pub expired_at: Option<Millis>,
    /// How many events it has, or had before it expired.
    pub events: u64,
    pub fork: Option<ForkOf>,
    pub error: Option<RunError>,
    pub inputs: RedactedJson,
    pub files: Vec<RunFile>,
    /// In the order in which each was first set.
    pub variables: Vec<RunVariable>,
}

impl Effect for RunRecord {
    fn ids(&self) -> Json {
        let fork = self.fork.as_ref();
        json!({
            "runId": self.id,
            "status": self.status.as_str(),
            "sourceRunId": fork.map(|fork| &fork.run),
            "fromSeq": fork.map(|fork| fork.from_seq),
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEventRecord {
    /// Its number in the run, from 0.
    pub sequence: u64,
    /// When it happened; in a fork, when it happened in the source.
    pub at: Millis,
    pub kind: String,
    pub node: Option<String>,
    /// The event that it repeats, as `RUN:SEQUENCE`.
    pub cause: Option<String>,
    /// Content-free JSON object.
    pub payload: String,
}

impl Store {
    /// Creates a run with its first events, at the log's head, with the files of its workspace.
    /// May fail with [`StoreError::RunExists`], [`StoreError::TooManyRuns`],
    /// [`StoreError::ClaimTaken`] or, as an append, [`StoreError::SecretsChanged`].
    pub async fn create_run(&self, workspace: &Workspace, run: NewRun) -> Result<RunRecord> {
        let place = workspace.clone();
        self.write(workspace.tenant(), "create_run", move |tx| {
            create_as(tx, &place, run.clone(), RunStatus::Pending)
        })
        .await
    }

    /// Creates a run that repeats an ended run of the same tenant, with its events and its end.
    /// Does nothing and returns `None` if that run does not exist, has not ended or has expired.
    /// Claims and ids as with [`Store::create_run`].
    pub async fn fork_run(&self, tenant: &Tenant, fork: NewFork) -> Result<Option<RunRecord>> {
        self.write(tenant, "fork_run", move |tx| self::fork(tx, &fork)).await
    }

    /// A run by id, also after it expired. Erasures of what it names do not change it.
    pub async fn run(&self, tenant: &Tenant, id: &str) -> Result<Option<RunRecord>> {
        let id = id.to_owned();
        self.read(tenant, "run", move |tx| {
            let Some(tenant) = tx.tenant_no()? else { return Ok(None) };
            rows::read(tx, tenant, &id)
        })
        .await
    }

    /// Applies the next step of a run. Does nothing and returns `None` if the run has another
    /// number of events than `seen`, has ended or does not exist. May fail with
    /// [`StoreError::EntryExists`], [`StoreError::OtherTenant`] (a write into another tenant's
    /// memory) or, as an append, [`StoreError::SecretsChanged`].
    pub async fn step_run(&self, tenant: &Tenant, step: RunStep) -> Result<Option<RunRecord>> {
        self.write(tenant, "step_run", move |tx| self::step(tx, tx.tenant()?, step.clone())).await
    }

    /// Events of a run in order, from the first or after a number.
    pub async fn run_events(
        &self,
        tenant: &Tenant,
        id: &str,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RunEventRecord>> {
        let id = id.to_owned();
        self.read(tenant, "run_events", move |tx| {
            let Some(tenant) = tx.tenant_no()? else { return Ok(Vec::new()) };
            rows::events(tx, tenant, &id, after, limit)
        })
        .await
    }

    /// Unfinished runs of all tenants: the oldest of each tenant, then the next of each, so
    /// that no tenant waits for all runs of another.
    pub async fn unfinished_runs(&self, limit: usize) -> Result<Vec<(Tenant, String)>> {
        self.read(Isolation::Global, "unfinished_runs", move |tx| {
            tx.all(
                "SELECT t.name, r.run
                 FROM (SELECT tenant, run, created_at, row_number() OVER
                           (PARTITION BY tenant ORDER BY created_at, run) AS turn
                       FROM workflow_runs INDEXED BY workflow_runs_open
                       WHERE ended_at IS NULL) r
                 JOIN tenants t ON t.tenant = r.tenant
                 ORDER BY r.turn, r.created_at, r.tenant LIMIT ?1",
                [limit],
                |row| {
                    let (name, run) = tuple::<(String, String)>(row)?;
                    match Tenant::new(name) {
                        Ok(tenant) => Ok((tenant, run)),
                        Err(_) => Err(tx.damaged("a stored name of a tenant is not valid")),
                    }
                },
            )
        })
        .await
    }
}

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
    let is_over = status.is_terminal();
    let unfinished = "SELECT count(*) FROM workflow_runs INDEXED BY workflow_runs_open
                      WHERE tenant = ?1 AND ended_at IS NULL";
    if !is_over && tx.one(unfinished, [tenant], column::<u64>)? >= run.most_unfinished {
        return Err(StoreError::TooManyRuns { most: run.most_unfinished });
    }
    let files = workspace::list(tx, tenant, workspace.name(), "")?.into_iter();
    let record = RunRecord {
        id: run.id,
        workspace: workspace.name().to_owned(),
        principal: run.principal,
        workflow: run.workflow,
        status,
        position: log::head(tx, workspace.tenant())?,
        created_at: run.now,
        ended_at: is_over.then_some(run.now),
        expired_at: None,
        events: run.events.len() as u64,
        fork: None,
        error: None,
        inputs: run.inputs,
        files: files.map(|head| RunFile { path: head.path, version: head.version }).collect(),
        variables: Vec::new(),
    };
    rows::insert(tx, tenant, &record)?;
    rows::add_events(tx, tenant, &record.id, 0, &run.events, run.now)?;
    outcomes::put_claimed(tx, tenant, run.claim.as_ref(), &record, run.now)?;
    Ok(record)
}

fn refuse_known(tx: &Tx<'_>, tenant: i64, id: &str) -> Result<()> {
    let known = "SELECT 1 FROM workflow_runs WHERE tenant = ?1 AND run = ?2";
    if tx.finds(known, params![tenant, id])? {
        Err(StoreError::RunExists { id: id.to_owned() })
    } else {
        Ok(())
    }
}

fn fork(tx: &Tx<'_>, fork: &NewFork) -> Result<Option<RunRecord>> {
    let Some(tenant) = tx.tenant_no()? else { return Ok(None) };
    outcomes::refuse_taken(tx, tenant, fork.claim.as_ref(), fork.now)?;
    let can_be_forked = |run: &RunRecord| run.status.is_terminal() && run.expired_at.is_none();
    let source = rows::read(tx, tenant, &fork.source)?.filter(can_be_forked);
    let Some(source) = source else { return Ok(None) };
    refuse_known(tx, tenant, &fork.id)?;
    // A fork keeps its source's end, and so expires with it: otherwise forks of forks
    // would keep the inputs forever.
    let record = RunRecord {
        id: fork.id.clone(),
        created_at: fork.now,
        fork: Some(ForkOf { run: source.id, from_seq: fork.from_seq }),
        ..source
    };
    rows::insert(tx, tenant, &record)?;
    rows::copy_events(tx, tenant, &fork.source, &fork.id)?;
    outcomes::put_claimed(tx, tenant, fork.claim.as_ref(), &record, fork.now)?;
    Ok(Some(record))
}

/// As [`Store::step_run`]; `tenant` is the transaction's own.
pub(crate) fn step(tx: &Tx<'_>, tenant: &Tenant, step: RunStep) -> Result<Option<RunRecord>> {
    if step.writes.iter().any(|write| write.scope.tenant() != tenant) {
        return Err(StoreError::OtherTenant);
    }
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(None) };
    let is_as_seen = |run: &RunRecord| run.events == step.seen && !run.status.is_terminal();
    let Some(mut run) = rows::read(tx, no, &step.run)?.filter(is_as_seen) else { return Ok(None) };
    secrets::refuse_changed(tx, tenant, step.secrets_seen)?;
    let mut events = Vec::with_capacity(step.writes.len() + step.events.len());
    for write in step.writes {
        events.push(put_entry(tx, write)?);
    }
    events.extend(step.events);
    rows::add_events(tx, no, &run.id, run.events, &events, step.now)?;
    run.events += events.len() as u64;
    run.status = step.status;
    run.error = step.error.or(run.error);
    run.ended_at = step.status.is_terminal().then_some(step.now);
    for variable in step.variables {
        match run.variables.iter_mut().find(|known| known.name == variable.name) {
            Some(known) => known.value = variable.value,
            None => run.variables.push(variable),
        }
    }
    rows::update(tx, no, &run)?;
    Ok(Some(run))
}

/// Puts the entry of a step and answers the event that names it.
fn put_entry(tx: &Tx<'_>, write: RunWrite) -> Result<NewRunEvent> {
    let RunWrite { scope, entry, node, agent } = write;
    let put = entries::put(tx, &scope, NewEntry { claim: None, ..entry })?;
    let mut payload = json!({ "memoryRef": scope.memory(), "memoryId": put.id, "nodeId": node });
    if let Some(agent) = agent {
        payload["agentId"] = agent.into();
    }
    Ok(NewRunEvent { kind: "memory.written", node: Some(node), payload: payload.to_string() })
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
