//! Runs of workflows, as they cross the store's contract.

use std::collections::BTreeMap;

use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::json::JsonText;
use icecore_domain::redact::{RedactedJson, RedactedText};
use icecore_domain::time::Millis;
use icecore_domain::workspace::FilePath;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::store::{Claim, NewEntry, Result};
use crate::told::Again;

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
    pub claim: Option<Claim<RunRecord>>,
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
    pub claim: Option<Claim<RunRecord>>,
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
    fn memory(&self, again: &Again<'_>, name: &mut String) {
        let hidden = || again.text(name).map(|(clean, _)| clean.into_string());
        if let Some(new) = self.memories.get(name.as_str()).cloned().or_else(hidden) {
            *name = new;
        }
    }

    /// A run with nothing in it that a redactor would hide; none if it is so already.
    pub(crate) fn run(&self, again: &Again<'_>, run: &RunRecord) -> Option<RunRecord> {
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

    fn value(&self, again: &Again<'_>, value: &mut RunValue) {
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
    fn file(&self, again: &Again<'_>, run: &RunRecord, file: RunFile) -> Option<RunFile> {
        let key = (run.workspace.clone(), file.path.as_str().to_owned());
        match self.files.get(&key) {
            Some(path) => Some(RunFile { path: path.clone(), ..file }),
            None => again.text(file.path.as_str()).is_none().then_some(file),
        }
    }

    /// The same for the node and the payload of an event.
    pub(crate) fn event(
        &self,
        again: &Again<'_>,
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

fn json(again: &Again<'_>, value: &mut RedactedJson) {
    let clean = again.json(value.json().as_str()).and_then(|clean| stored_json(&clean));
    if let Some(clean) = clean {
        *value = clean;
    }
}
