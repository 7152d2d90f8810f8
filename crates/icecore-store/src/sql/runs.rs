//! Runs of workflows and their events.

use super::engine::{self, Connection, OptionalExtension, Row, params};
use icecore_domain::ids::{Position, Tenant};
use icecore_domain::time::Millis;
use icecore_domain::workspace::Workspace;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Shared, entries, log, rows, secrets, workspace};
use crate::error::StoreError;
use crate::runs::{
    NO_INPUTS, Renamed, forked, refuse_foreign, repeated, set_variables, stored_json, stored_path,
    written,
};
use crate::store::*;
use crate::told::Again;

pub(super) fn create(
    c: &Connection,
    s: &Shared,
    workspace: &Workspace,
    run: NewRun,
) -> Result<RunRecord> {
    create_as(c, s, workspace, run, RunStatus::Pending)
}

/// Makes a run that stands so from the beginning.
pub(super) fn create_as(
    c: &Connection,
    s: &Shared,
    workspace: &Workspace,
    run: NewRun,
    status: RunStatus,
) -> Result<RunRecord> {
    secrets::refuse_changed(c, s, workspace.tenant(), run.secrets_seen)?;
    let (tenant, _) = rows::ensure_tenant(c, s, workspace.tenant())?;
    if let Some(claim) = &run.claim {
        log::refuse_taken(c, s, tenant, claim, run.now)?;
    }
    refuse_known(c, s, tenant, &run.id)?;
    if !status.is_terminal() {
        refuse_crowd(c, s, tenant, run.most_unfinished)?;
    }
    let files = workspace::list(c, s, workspace, "")?;
    let record = RunRecord {
        id: run.id,
        workspace: workspace.name().to_owned(),
        principal: run.principal,
        workflow: run.workflow,
        status,
        position: log::head(c, s, workspace.tenant())?,
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
    insert(c, tenant, &record)
        .and_then(|()| add_events(c, tenant, &record.id, 0, &run.events, run.now))
        .map_err(|e| s.failed(e))?;
    if let Some(claim) = run.claim {
        log::put_outcome_of(c, s, tenant, &claim.outcome(&record), run.now)?;
    }
    Ok(record)
}

fn refuse_known(c: &Connection, s: &Shared, tenant: i64, id: &str) -> Result<()> {
    let is_known = c
        .prepare_cached("SELECT 1 FROM workflow_runs WHERE tenant = ?1 AND run = ?2")
        .and_then(|mut q| q.exists(params![tenant, id]))
        .map_err(|e| s.failed(e))?;
    if is_known { Err(StoreError::RunExists { id: id.to_owned() }) } else { Ok(()) }
}

/// Refuses one unfinished run more than there may be.
fn refuse_crowd(c: &Connection, s: &Shared, tenant: i64, most: u64) -> Result<()> {
    let count: i64 = c
        .prepare_cached(
            "SELECT count(*) FROM workflow_runs INDEXED BY workflow_runs_open
             WHERE tenant = ?1 AND ended_at IS NULL",
        )
        .and_then(|mut q| q.query_row([tenant], |row| row.get(0)))
        .map_err(|e| s.failed(e))?;
    if count as u64 >= most { Err(StoreError::TooManyRuns { most }) } else { Ok(()) }
}

fn insert(c: &Connection, tenant: i64, run: &RunRecord) -> engine::Result<()> {
    c.prepare_cached(
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
        rows::number(run.position.0),
        run.created_at.0,
        run.ended_at.map(|at| at.0),
        rows::number(run.events),
        run.fork.as_ref().map(|fork| &fork.run),
        run.fork.as_ref().map(|fork| rows::number(fork.from_seq)),
        write_error(run),
        run.inputs.json().as_str(),
        write_files(run),
        write_variables(run),
    ])?;
    Ok(())
}

fn add_events(
    c: &Connection,
    tenant: i64,
    run: &str,
    first: u64,
    events: &[NewRunEvent],
    now: Millis,
) -> engine::Result<()> {
    for (sequence, event) in (first..).zip(events) {
        let event = RunEventRecord {
            sequence,
            at: now,
            kind: event.kind.to_owned(),
            node: event.node.clone(),
            cause: None,
            payload: event.payload.clone(),
        };
        add_event(c, tenant, run, &event)?;
    }
    Ok(())
}

fn add_event(c: &Connection, tenant: i64, run: &str, event: &RunEventRecord) -> engine::Result<()> {
    c.prepare_cached(
        "INSERT INTO run_events (tenant, run, sequence, at, kind, node, cause, payload)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        tenant,
        run,
        rows::number(event.sequence),
        event.at.0,
        event.kind,
        event.node,
        event.cause,
        event.payload,
    ])?;
    Ok(())
}

pub(super) fn fork(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    fork: NewFork,
) -> Result<Option<RunRecord>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(None) };
    if let Some(claim) = &fork.claim {
        log::refuse_taken(c, s, no, claim, fork.now)?;
    }
    let source = read(c, s, no, &fork.source)?;
    let has_ended = |run: &RunRecord| run.status.is_terminal() && run.expired_at.is_none();
    let Some(source) = source.filter(has_ended) else { return Ok(None) };
    refuse_known(c, s, no, &fork.id)?;
    let record = forked(source, &fork);
    let copy = || {
        insert(c, no, &record)?;
        for event in read_events(c, no, &fork.source, -1, i64::MAX)? {
            add_event(c, no, &record.id, &repeated(&fork.source, event))?;
        }
        Ok(())
    };
    copy().map_err(|e: engine::Error| s.failed(e))?;
    if let Some(claim) = fork.claim {
        log::put_outcome_of(c, s, no, &claim.outcome(&record), fork.now)?;
    }
    Ok(Some(record))
}

pub(super) fn get(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
) -> Result<Option<RunRecord>> {
    match rows::tenant_no(c, s, tenant)? {
        Some(tenant) => read(c, s, tenant, id),
        None => Ok(None),
    }
}

pub(super) fn step(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    step: RunStep,
) -> Result<Option<RunRecord>> {
    refuse_foreign(tenant, &step)?;
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(None) };
    let as_seen = |run: &RunRecord| run.events == step.seen && !run.status.is_terminal();
    let Some(mut run) = read(c, s, no, &step.run)?.filter(as_seen) else { return Ok(None) };
    secrets::refuse_changed(c, s, tenant, step.secrets_seen)?;
    let mut events = Vec::with_capacity(step.writes.len() + step.events.len());
    for write in step.writes {
        let entry = NewEntry { claim: None, ..write.entry.clone() };
        let put = entries::put(c, s, &write.scope, entry)?;
        events.push(written(&write, &put.id));
    }
    events.extend(step.events);
    add_events(c, no, &run.id, run.events, &events, step.now).map_err(|e| s.failed(e))?;
    run.events += events.len() as u64;
    run.status = step.status;
    run.error = step.error.or(run.error);
    run.ended_at = step.status.is_terminal().then_some(step.now);
    set_variables(&mut run.variables, step.variables);
    c.prepare_cached(
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
            rows::number(run.events),
            write_error(&run),
            write_variables(&run),
        ])
    })
    .map_err(|e| s.failed(e))?;
    Ok(Some(run))
}

pub(super) fn events(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    id: &str,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<RunEventRecord>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(Vec::new()) };
    let after = after.map_or(-1, rows::number);
    read_events(c, no, id, after, rows::number(limit as u64)).map_err(|e| s.failed(e))
}

fn read_events(
    c: &Connection,
    tenant: i64,
    run: &str,
    after: i64,
    limit: i64,
) -> engine::Result<Vec<RunEventRecord>> {
    c.prepare_cached(
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

pub(super) fn unfinished(
    c: &Connection,
    s: &Shared,
    limit: usize,
) -> Result<Vec<(Tenant, String)>> {
    let found: Vec<(String, String)> = c
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
            q.query_map([rows::number(limit as u64)], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })
        .map_err(|e| s.failed(e))?;
    let named = |(tenant, run)| match Tenant::new(tenant) {
        Ok(tenant) => Ok((tenant, run)),
        Err(_) => Err(rows::damaged(s, "a stored name of a tenant is not valid")),
    };
    found.into_iter().map(named).collect()
}

pub(super) fn expire(
    c: &Connection,
    s: &Shared,
    ended_by: Millis,
    now: Millis,
    limit: usize,
) -> Result<u64> {
    let expire = || {
        let due: Vec<(i64, String)> = c
            .prepare_cached(
                "SELECT tenant, run FROM workflow_runs INDEXED BY workflow_runs_ended
                 WHERE ended_at IS NOT NULL AND expired_at IS NULL AND ended_at <= ?1
                 ORDER BY ended_at, tenant, run LIMIT ?2",
            )?
            .query_map([ended_by.0, rows::number(limit as u64)], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<engine::Result<_>>()?;
        for (tenant, run) in &due {
            let_go(c, *tenant, run, now)?;
        }
        Ok(due.len() as u64)
    };
    expire().map_err(|e: engine::Error| s.failed(e))
}

/// Of a run, what names it stays.
fn let_go(c: &Connection, tenant: i64, run: &str, now: Millis) -> engine::Result<()> {
    c.prepare_cached("DELETE FROM run_events WHERE tenant = ?1 AND run = ?2")?
        .execute(params![tenant, run])?;
    c.prepare_cached(
        "UPDATE workflow_runs SET inputs = ?3, files = '[]', variables = '[]', error = NULL,
                                  expired_at = ?4
         WHERE tenant = ?1 AND run = ?2",
    )?
    .execute(params![tenant, run, NO_INPUTS, now.0])?;
    Ok(())
}

pub(super) fn erase(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    before: Millis,
    now: Millis,
    dry_run: bool,
) -> Result<u64> {
    let Some(tenant) = rows::tenant_no(c, s, tenant)? else { return Ok(0) };
    let erase = || {
        // What repeats a run was given what that one was, however late it was made.
        let found: Vec<String> = c
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
            .collect::<engine::Result<_>>()?;
        for run in found.iter().filter(|_| !dry_run) {
            let_go(c, tenant, run, now)?;
        }
        Ok(found.len() as u64)
    };
    erase().map_err(|e: engine::Error| s.failed(e))
}

pub(super) fn purge(c: &Connection, s: &Shared, expired_by: Millis, limit: usize) -> Result<u64> {
    c.prepare_cached(
        "DELETE FROM workflow_runs WHERE (tenant, run) IN (
             SELECT tenant, run FROM workflow_runs INDEXED BY workflow_runs_expired
             WHERE expired_at IS NOT NULL AND expired_at <= ?1
             ORDER BY expired_at, tenant, run LIMIT ?2)",
    )
    .and_then(|mut q| q.execute([expired_by.0, rows::number(limit as u64)]))
    .map(|purged| purged as u64)
    .map_err(|e| s.failed(e))
}

// Rows

const COLUMNS: &str = "run, workspace, principal, workflow, status, position, created_at, ended_at,
    expired_at, events, source, from_seq, error, inputs, files, variables";

fn read(c: &Connection, s: &Shared, tenant: i64, id: &str) -> Result<Option<RunRecord>> {
    c.prepare_cached(&format!("SELECT {COLUMNS} FROM workflow_runs WHERE tenant = ?1 AND run = ?2"))
        .and_then(|mut q| q.query_row(params![tenant, id], read_row).optional())
        .map_err(|e| s.failed(e))?
        .map(|run| whole(s, run))
        .transpose()
}

fn whole(s: &Shared, run: Option<RunRecord>) -> Result<RunRecord> {
    run.ok_or_else(|| rows::damaged(s, "the row of a run is not valid"))
}

/// None where a row is not what was written.
fn read_row(row: &Row<'_>) -> engine::Result<Option<RunRecord>> {
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
enum Kept {
    Json(Box<RawValue>),
    Entry(EntryRef),
    Entries(Vec<EntryRef>),
    Content(EntryRef),
}

fn write_variables(run: &RunRecord) -> String {
    let kept = |variable: &RunVariable| {
        let value = match &variable.value {
            RunValue::Json(json) => {
                Kept::Json(RawValue::from_string(json.json().as_str().to_owned()).ok()?)
            }
            RunValue::Entry(entry) => Kept::Entry(entry.clone()),
            RunValue::Entries(entries) => Kept::Entries(entries.clone()),
            RunValue::Content(entry) => Kept::Content(entry.clone()),
        };
        Some((variable.name.clone(), value))
    };
    let kept: Vec<(String, Kept)> = run.variables.iter().filter_map(kept).collect();
    serde_json::to_string(&kept).unwrap_or_else(|_| "[]".to_owned())
}

fn read_variables(text: &str) -> Option<Vec<RunVariable>> {
    let kept: Vec<(String, Kept)> = serde_json::from_str(text).ok()?;
    let variable = |(name, value)| {
        let value = match value {
            Kept::Json(json) => RunValue::Json(stored_json(json.get())?),
            Kept::Entry(entry) => RunValue::Entry(entry),
            Kept::Entries(entries) => RunValue::Entries(entries),
            Kept::Content(entry) => RunValue::Content(entry),
        };
        Some(RunVariable { name, value })
    };
    kept.into_iter().map(variable).collect()
}

// Rewriting

/// Puts the runs of a tenant through a redactor, with their events; answers how many
/// are other than they were.
pub(super) fn rewrite(
    c: &Connection,
    s: &Shared,
    tenant: i64,
    again: &Again<'_>,
    renamed: &Renamed,
    now: Millis,
) -> Result<u64> {
    let ids: Vec<String> = c
        .prepare("SELECT run FROM workflow_runs WHERE tenant = ?1")
        .and_then(|mut q| q.query_map([tenant], |row| row.get(0))?.collect())
        .map_err(|e| s.failed(e))?;
    let mut changed = 0;
    for id in ids {
        let is_changed = match rewrite_one(c, s, tenant, &id, again, renamed) {
            // Nobody can say what is in it, and it must not keep the rest from being hidden.
            Err(error) if is_unreadable(&error) => {
                tracing::warn!(error = %error, "a damaged run is emptied");
                give_up(c, tenant, &id, again, now).map_err(|e| s.failed(e))?;
                true
            }
            done => done?,
        };
        changed += u64::from(is_changed);
    }
    Ok(changed)
}

fn rewrite_one(
    c: &Connection,
    s: &Shared,
    tenant: i64,
    id: &str,
    again: &Again<'_>,
    renamed: &Renamed,
) -> Result<bool> {
    let Some(run) = read(c, s, tenant, id)? else { return Ok(false) };
    let clean = renamed.run(again, &run);
    if let Some(clean) = &clean {
        rewrite_row(c, tenant, clean).map_err(|e| s.failed(e))?;
    }
    let events = rewrite_events(c, tenant, id, again, renamed).map_err(|e| s.failed(e))?;
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
fn give_up(
    c: &Connection,
    tenant: i64,
    run: &str,
    again: &Again<'_>,
    now: Millis,
) -> engine::Result<()> {
    let_go(c, tenant, run, now)?;
    let workflow = c
        .prepare_cached("SELECT workflow FROM workflow_runs WHERE tenant = ?1 AND run = ?2")?
        .query_row(params![tenant, run], |row| row.get_lossy(0))?;
    let workflow = again.text(&workflow).map_or(workflow, |(clean, _)| clean.into_string());
    c.prepare_cached(
        "UPDATE workflow_runs SET workflow = ?3, status = ?4, ended_at = coalesce(ended_at, ?5)
         WHERE tenant = ?1 AND run = ?2",
    )?
    .execute(params![tenant, run, workflow, RunStatus::Failed.as_str(), now.0])?;
    Ok(())
}

fn rewrite_row(c: &Connection, tenant: i64, run: &RunRecord) -> engine::Result<()> {
    c.prepare_cached(
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
    c: &Connection,
    tenant: i64,
    run: &str,
    again: &Again<'_>,
    renamed: &Renamed,
) -> engine::Result<bool> {
    let mut changed = false;
    for event in read_events(c, tenant, run, -1, i64::MAX)? {
        let Some(clean) = renamed.event(again, &event) else { continue };
        c.prepare_cached(
            "UPDATE run_events SET node = ?4, payload = ?5
             WHERE tenant = ?1 AND run = ?2 AND sequence = ?3",
        )?
        .execute(params![
            tenant,
            run,
            rows::number(clean.sequence),
            clean.node,
            clean.payload
        ])?;
        changed = true;
    }
    Ok(changed)
}

// Looking after them

/// Runs whose rows are not what was written.
pub(super) fn check(c: &Connection, s: &Shared) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    let look = |findings: &mut Vec<String>| {
        let mut query = c.prepare(&format!("SELECT {COLUMNS} FROM workflow_runs"))?;
        let mut found = query.query([])?;
        while let Some(row) = found.next()? {
            if read_row(&row)?.is_none() {
                findings.push(format!("a run is damaged: {}", row.get::<_, String>(0)?));
            }
        }
        Ok(())
    };
    look(&mut findings).map_err(|e: engine::Error| s.failed(e))?;
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use crate::sql::Wall;
    use icecore_domain::ids::Principal;

    use crate::SqliteStore;
    use crate::contract::commitments::new_commitment;
    use crate::contract::fixtures::*;
    use crate::contract::runs::{new_run, next, write};
    use crate::store::*;

    async fn change(store: &SqliteStore, sql: &'static str) {
        store
            .write(Wall::Everyone, move |c, s| c.execute_batch(sql).map_err(|e| s.failed(e)))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn what_is_wrong_with_runs_and_commitments_is_found() {
        let check = async |sql: &'static str, finding: &str| {
            let dir = tempfile::tempdir().unwrap();
            let store = SqliteStore::open(dir.path(), None).unwrap();
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
