//! Redacting stored runs again, once more secrets are known.

use std::collections::BTreeMap;

use icecore_domain::redact::RedactedJson;
use icecore_domain::time::Millis;
use icecore_domain::workspace::FilePath;
use serde_json::Value as Json;

use super::{EntryRef, RunFile, RunStatus, RunValue, retention, rows};
use crate::engine::tx::Tx;
use crate::engine::{column, params};
use crate::error::Result;
use crate::host::is_damaged;
use crate::reredact::Reredactor;

/// New names of memories and files whose old names contained a secret.
#[derive(Default)]
pub(crate) struct Renamed {
    pub(crate) memories: BTreeMap<String, String>,
    /// By workspace and old path.
    pub(crate) files: BTreeMap<(String, String), FilePath>,
}

/// Redacts the runs of a tenant and their events; answers how many runs changed.
pub(crate) fn rewrite(
    tx: &Tx<'_>,
    tenant: i64,
    again: &Reredactor<'_>,
    renamed: &Renamed,
    now: Millis,
) -> Result<u64> {
    let rewriter = Rewriter { tx, tenant, again, renamed };
    let ids: Vec<String> =
        tx.all("SELECT run FROM workflow_runs WHERE tenant = ?1", [tenant], column)?;
    let mut changed = 0;
    for id in ids {
        let is_changed = match rewriter.run(&id) {
            // It may contain a secret that cannot be found, and must not keep the other
            // runs from being redacted.
            Err(error) if is_damaged(&error) => {
                tracing::warn!(error = %error, "a damaged run is emptied");
                rewriter.empty(&id, now)?;
                true
            }
            done => done?,
        };
        changed += u64::from(is_changed);
    }
    Ok(changed)
}

struct Rewriter<'a> {
    tx: &'a Tx<'a>,
    tenant: i64,
    again: &'a Reredactor<'a>,
    renamed: &'a Renamed,
}

impl Rewriter<'_> {
    /// Redacts a run and its events; answers whether anything changed.
    fn run(&self, id: &str) -> Result<bool> {
        let Some(run) = rows::read(self.tx, self.tenant, id)? else { return Ok(false) };
        let mut clean = run.clone();
        self.text(&mut clean.workflow);
        if let Some(error) = &mut clean.error {
            self.text(&mut error.message);
        }
        self.json(&mut clean.inputs);
        for variable in &mut clean.variables {
            self.text(&mut variable.name);
            match &mut variable.value {
                RunValue::Json(value) => self.json(value),
                RunValue::Entry(entry) | RunValue::Content(entry) => self.memory(entry),
                RunValue::Entries(entries) => entries.iter_mut().for_each(|it| self.memory(it)),
            }
        }
        clean.files = run.files.iter().filter_map(|file| self.file(&run.workspace, file)).collect();
        clean.files.sort_by(|a, b| a.path.cmp(&b.path));
        let is_changed = clean != run;
        if is_changed {
            rows::update(self.tx, self.tenant, &clean)?;
        }
        Ok(self.events(id)? || is_changed)
    }

    fn text(&self, text: &mut String) {
        if let Some((clean, _)) = self.again.text(text) {
            *text = clean.into_string();
        }
    }

    fn json(&self, value: &mut RedactedJson) {
        let clean = self.again.json(value.json().as_str());
        if let Some(clean) = clean.and_then(|clean| rows::stored_json(&clean)) {
            *value = clean;
        }
    }

    fn memory(&self, entry: &mut EntryRef) {
        match self.renamed.memories.get(&entry.memory_ref) {
            Some(new) => entry.memory_ref.clone_from(new),
            None => self.text(&mut entry.memory_ref),
        }
    }

    /// The file under its new path. A deleted file has no new path, and is left out if the
    /// old one contains a secret.
    fn file(&self, workspace: &str, file: &RunFile) -> Option<RunFile> {
        let RunFile { path, version } = file.clone();
        match self.renamed.files.get(&(workspace.to_owned(), path.as_str().to_owned())) {
            Some(path) => Some(RunFile { path: path.clone(), version }),
            None => self.again.text(path.as_str()).is_none().then_some(RunFile { path, version }),
        }
    }

    /// Redacts the nodes and payloads of a run's events; answers whether any changed.
    fn events(&self, run: &str) -> Result<bool> {
        let mut is_changed = false;
        for event in rows::events(self.tx, self.tenant, run, None, usize::MAX)? {
            let payload: Json = serde_json::from_str(&event.payload).unwrap_or_default();
            let memory = payload["memoryRef"].as_str();
            let memory = memory.and_then(|name| self.renamed.memories.get(name));
            let memory = memory.map(String::as_str);
            let payload = self.again.payload(&event.payload, &BTreeMap::new(), memory);
            let node = event.node.as_deref().and_then(|node| self.again.text(node));
            if payload.is_none() && node.is_none() {
                continue;
            }
            let node = node.map(|(node, _)| node.into_string());
            self.tx.run(
                "UPDATE run_events SET node = coalesce(?4, node), payload = coalesce(?5, payload)
                 WHERE tenant = ?1 AND run = ?2 AND sequence = ?3",
                params![self.tenant, run, event.sequence, node, payload],
            )?;
            is_changed = true;
        }
        Ok(is_changed)
    }

    /// Deletes the content of a run whose row cannot be read, and ends the run.
    fn empty(&self, run: &str, now: Millis) -> Result<()> {
        retention::delete_content(self.tx, self.tenant, run, now)?;
        let mut workflow = self.tx.one(
            "SELECT workflow FROM workflow_runs WHERE tenant = ?1 AND run = ?2",
            params![self.tenant, run],
            |row| row.get_lossy(0),
        )?;
        self.text(&mut workflow);
        self.tx.run(
            "UPDATE workflow_runs SET workflow = ?3, status = ?4, ended_at = coalesce(ended_at, ?5)
             WHERE tenant = ?1 AND run = ?2",
            params![self.tenant, run, workflow, RunStatus::Failed.as_str(), now],
        )?;
        Ok(())
    }
}
