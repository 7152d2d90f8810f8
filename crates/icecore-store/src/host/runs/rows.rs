//! How runs and their events lie in tables.

use icecore_domain::json::JsonText;
use icecore_domain::redact::RedactedJson;
use icecore_domain::time::Millis;
use serde_json::value::RawValue;

use super::{
    ForkOf, NewRunEvent, RunEventRecord, RunFile, RunRecord, RunStatus, RunValue, RunVariable,
};
use crate::engine::tx::Tx;
use crate::engine::{Row, fields, number, params, record, tuple};
use crate::error::Result;
use crate::host::unless_damaged;
use crate::host::workspace::stored_path;

record! { RunEventRecord { sequence, at, kind, node, cause, payload } }

const COLUMNS: &str = "run, workspace, principal, workflow, status, position, created_at, ended_at,
    expired_at, events, source, from_seq, error, inputs, files, variables";

pub(super) fn insert(tx: &Tx<'_>, tenant: i64, run: &RunRecord) -> Result<()> {
    let RunRecord { id, workspace, principal, workflow, position, .. } = run;
    let RunRecord { created_at, ended_at, events, fork, inputs, .. } = run;
    let (source, from_seq) = fork.as_ref().map(|fork| (&fork.run, fork.from_seq)).unzip();
    tx.insert(
        "workflow_runs",
        fields! {
            tenant, run: id, workspace, principal, workflow, status: run.status.as_str(), position,
            created_at, ended_at, events, source, from_seq, error: write_error(run),
            inputs: inputs.json().as_str(), files: write_files(run),
            variables: write_variables(run),
        },
    )
}

/// Writes all that may change of a run before it expires.
pub(super) fn update(tx: &Tx<'_>, tenant: i64, run: &RunRecord) -> Result<()> {
    let RunRecord { id, workflow, ended_at, events, .. } = run;
    let (status, inputs) = (run.status.as_str(), run.inputs.json().as_str());
    let (error, files, variables) = (write_error(run), write_files(run), write_variables(run));
    tx.run(
        "UPDATE workflow_runs SET workflow = ?3, status = ?4, ended_at = ?5, events = ?6,
                                  error = ?7, inputs = ?8, files = ?9, variables = ?10
         WHERE tenant = ?1 AND run = ?2",
        params![tenant, id, workflow, status, ended_at, events, error, inputs, files, variables],
    )?;
    Ok(())
}

pub(super) fn read(tx: &Tx<'_>, tenant: i64, id: &str) -> Result<Option<RunRecord>> {
    let sql = format!("SELECT {COLUMNS} FROM workflow_runs WHERE tenant = ?1 AND run = ?2");
    tx.first(&sql, params![tenant, id], |row| read_row(tx, row))
}

fn read_row(tx: &Tx<'_>, row: &Row<'_>) -> Result<RunRecord> {
    let damaged = || tx.damaged("the row of a run is not valid");
    let text = |column| row.get::<_, String>(column);
    let (source, from_seq): (Option<String>, Option<u64>) = (row.get(10)?, row.get(11)?);
    let error = row.get::<_, Option<String>>(12)?.map(|error| serde_json::from_str(&error));
    Ok(RunRecord {
        id: row.get(0)?,
        workspace: row.get(1)?,
        principal: row.get(2)?,
        workflow: row.get(3)?,
        status: RunStatus::named(&text(4)?).ok_or_else(damaged)?,
        position: row.get(5)?,
        created_at: row.get(6)?,
        ended_at: row.get(7)?,
        expired_at: row.get(8)?,
        events: row.get(9)?,
        fork: source.zip(from_seq).map(|(run, from_seq)| ForkOf { run, from_seq }),
        error: error.transpose().map_err(|_| damaged())?,
        inputs: stored_json(&text(13)?).ok_or_else(damaged)?,
        files: read_files(&text(14)?).ok_or_else(damaged)?,
        variables: read_variables(&text(15)?).ok_or_else(damaged)?,
    })
}

fn write_error(run: &RunRecord) -> Option<String> {
    run.error.as_ref().map(|error| serde_json::json!(error).to_string())
}

#[expect(clippy::disallowed_methods, reason = "runs come from our own rows")]
pub(super) fn stored_json(text: &str) -> Option<RedactedJson> {
    JsonText::parse(text).ok().map(RedactedJson::read_back)
}

fn write_files(run: &RunRecord) -> String {
    let files = run.files.iter().map(|file| (file.path.as_str(), file.version));
    serde_json::json!(files.collect::<Vec<_>>()).to_string()
}

fn read_files(text: &str) -> Option<Vec<RunFile>> {
    let files: Vec<(String, u64)> = serde_json::from_str(text).ok()?;
    let file = |(path, version)| Some(RunFile { path: stored_path(path)?, version });
    files.into_iter().map(file).collect()
}

fn write_variables(run: &RunRecord) -> String {
    let pairs = run.variables.iter().map(|variable| (&variable.name, &variable.value));
    serde_json::to_string(&pairs.collect::<Vec<_>>()).unwrap_or_else(|_| "[]".to_owned())
}

fn read_variables(text: &str) -> Option<Vec<RunVariable>> {
    let pairs: Vec<(String, RunValue)> = serde_json::from_str(text).ok()?;
    Some(pairs.into_iter().map(|(name, value)| RunVariable { name, value }).collect())
}

/// A value of JSON in the column of variables, which keeps its spelling.
pub(super) mod spelled {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de, ser};

    use super::{RawValue, RedactedJson, stored_json};

    pub(crate) fn serialize<S: Serializer>(value: &RedactedJson, to: S) -> Result<S::Ok, S::Error> {
        let raw = RawValue::from_string(value.json().as_str().to_owned());
        raw.map_err(ser::Error::custom)?.serialize(to)
    }

    pub(crate) fn deserialize<'de, D>(from: D) -> Result<RedactedJson, D::Error>
    where
        D: Deserializer<'de>,
    {
        let raw = Box::<RawValue>::deserialize(from)?;
        stored_json(raw.get()).ok_or_else(|| de::Error::custom("not JSON"))
    }
}

/// Adds events, numbered from `first` on.
pub(super) fn add_events(
    tx: &Tx<'_>,
    tenant: i64,
    run: &str,
    first: u64,
    events: &[NewRunEvent],
    at: Millis,
) -> Result<()> {
    for (sequence, event) in (first..).zip(events) {
        let NewRunEvent { kind, node, payload } = event;
        tx.insert("run_events", fields! { tenant, run, sequence, at, kind, node, payload })?;
    }
    Ok(())
}

pub(super) fn copy_events(tx: &Tx<'_>, tenant: i64, source: &str, fork: &str) -> Result<()> {
    tx.run(
        "INSERT INTO run_events (tenant, run, sequence, at, kind, node, cause, payload)
         SELECT tenant, ?3, sequence, at, kind, node, run || ':' || sequence, payload
         FROM run_events WHERE tenant = ?1 AND run = ?2",
        params![tenant, source, fork],
    )?;
    Ok(())
}

pub(super) fn events(
    tx: &Tx<'_>,
    tenant: i64,
    run: &str,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<RunEventRecord>> {
    tx.all(
        "SELECT sequence, at, kind, node, cause, payload FROM run_events
         WHERE tenant = ?1 AND run = ?2 AND sequence > ?3 ORDER BY sequence LIMIT ?4",
        params![tenant, run, after.map_or(-1, number), limit],
        tuple,
    )
}

pub(crate) fn check(tx: &Tx<'_>) -> Result<Vec<String>> {
    let findings = tx.all(&format!("SELECT {COLUMNS} FROM workflow_runs"), [], |row| {
        if unless_damaged(read_row(tx, row))?.is_some() {
            return Ok(None);
        }
        Ok(Some(format!("a run is damaged: {}", row.get::<_, String>(0)?)))
    })?;
    Ok(findings.into_iter().flatten().collect())
}
