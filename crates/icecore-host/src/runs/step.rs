//! One step of a run, from what a node wants to what is stored: secrets are hidden, and all
//! of it is written or nothing.

use icecore::extend::{self, INLINE_BYTES, off_thread, write_redacted};
use icecore::formats::json::JsonText;
use icecore::knowledge::NewEntryRequest;
use icecore::privacy::Redactor;
use icecore::{MemoryError, Scope, Tenant};
use icecore_domain::redact::RedactedJson;
use icecore_store::{
    EntryRef, NewRunEvent, RunError, RunRecord, RunStatus, RunStep, RunValue, RunVariable, RunWrite,
};

use super::Runs;

type Result<T> = std::result::Result<T, MemoryError>;

/// What a run does next, before redaction.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) run: String,
    /// How many events it has so far.
    pub(crate) seen: u64,
    /// Entries that it puts; each becomes an event before `events`.
    pub(crate) puts: Vec<Put>,
    pub(crate) events: Vec<NewRunEvent>,
    /// Variables that it sets.
    pub(crate) variables: Vec<(String, NewValue)>,
    /// Its status afterwards.
    pub(crate) status: RunStatus,
    pub(crate) error: Option<RunError>,
}

/// An entry that a node of a run puts.
#[derive(Debug, Clone)]
pub(crate) struct Put {
    pub(crate) scope: Scope,
    pub(crate) id: String,
    pub(crate) entry: NewEntryRequest,
    pub(crate) node: String,
    pub(crate) agent: Option<String>,
}

/// A variable's value, before redaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NewValue {
    Json(JsonText),
    Entry(EntryRef),
    Entries(Vec<EntryRef>),
    /// What an entry says.
    Content(EntryRef),
}

impl Step {
    /// A run goes on, with these events.
    pub(crate) fn of(run: &RunRecord, events: Vec<NewRunEvent>) -> Self {
        Self {
            run: run.id.clone(),
            seen: run.events,
            puts: Vec::new(),
            events,
            variables: Vec::new(),
            status: RunStatus::Running,
            error: None,
        }
    }
}

impl Runs {
    /// Writes a step. Returns `None` and writes nothing if the run has another number of
    /// events than was seen, has ended or does not exist.
    pub(crate) async fn write(&self, tenant: &Tenant, step: &Step) -> Result<Option<RunRecord>> {
        let mut written = write_redacted(|| self.write_once(tenant, step)).await?;
        if written.is_some() && !step.puts.is_empty() {
            extend::wake(&self.memory);
        }
        self.hide(tenant, written.iter_mut()).await?;
        Ok(written)
    }

    async fn write_once(&self, tenant: &Tenant, step: &Step) -> Result<Option<RunRecord>> {
        let (memory, now) = (&self.memory, self.memory.now());
        let known = memory.redactor(tenant).await?;
        let redactor = &known.redactor;
        let name = |name: &String| redactor.name(name).into_string();
        let (mut writes, mut admitted) = (Vec::new(), Vec::new());
        for put in &step.puts {
            let mut entry = extend::redacted_entry(memory, &known, &put.entry, now).await?;
            entry.id = Some(name(&put.id));
            admitted.push(extend::admit_text(memory, tenant, entry.content.as_str()).await?);
            let (node, agent) = (name(&put.node), put.agent.as_ref().map(name));
            writes.push(RunWrite { scope: put.scope.clone(), entry, node, agent });
        }
        let mut variables = Vec::with_capacity(step.variables.len());
        for (name, value) in &step.variables {
            let name = redactor.text(name).into_string();
            variables.push(RunVariable { name, value: redacted_value(redactor, value).await? });
        }
        let error = step.error.as_ref().map(|error| RunError {
            code: redactor.text(&error.code).into_string(),
            message: redactor.text(&error.message).into_string(),
        });
        let step = RunStep {
            run: name(&step.run),
            seen: step.seen,
            writes,
            events: step.events.iter().map(|event| redacted_event(redactor, event)).collect(),
            variables,
            status: step.status,
            error,
            now,
            secrets_seen: known.version,
        };
        let written = extend::store(memory).step_run(tenant, step).await;
        let written = extend::written(memory, written)?;
        if written.is_some() {
            admitted.into_iter().for_each(extend::Admitted::store_all);
        }
        Ok(written)
    }
}

/// JSON without what is secret.
pub(crate) async fn redacted(redactor: &Redactor, json: &JsonText) -> Result<RedactedJson> {
    if json.as_str().len() <= INLINE_BYTES {
        return Ok(redactor.redacted_json(json));
    }
    let (redactor, json) = (redactor.clone(), json.clone());
    off_thread(move || redactor.redacted_json(&json)).await
}

async fn redacted_value(redactor: &Redactor, value: &NewValue) -> Result<RunValue> {
    let named = |entry: &EntryRef| EntryRef {
        memory_ref: redactor.name(&entry.memory_ref).into_string(),
        memory_id: redactor.name(&entry.memory_id).into_string(),
    };
    Ok(match value {
        NewValue::Json(json) => RunValue::Json(redacted(redactor, json).await?),
        NewValue::Entry(entry) => RunValue::Entry(named(entry)),
        NewValue::Entries(entries) => RunValue::Entries(entries.iter().map(named).collect()),
        NewValue::Content(entry) => RunValue::Content(named(entry)),
    })
}

/// An event as it is stored. It has nothing to hide, since events quote nothing.
fn redacted_event(redactor: &Redactor, event: &NewRunEvent) -> NewRunEvent {
    let payload = match JsonText::parse(&event.payload) {
        Ok(json) => redactor.json(&json).as_str().to_owned(),
        Err(_) => redactor.text(&event.payload).into_string(),
    };
    let node = event.node.as_ref().map(|node| redactor.name(node).into_string());
    NewRunEvent { kind: event.kind, node, payload }
}
