//! Runs of workflows: made, read, followed, called off and repeated.
//!
//! A run names the entries that it wrote and found, and never quotes them. They are
//! looked up whenever it is read, so that what was forgotten is gone from it too.

use std::time::Duration;

use icecore::json::JsonText;
use icecore::{
    Claim, EntryRecord, EntryRef, MemoryError, Millis, NewForkRequest, NewRunRequest, Principal,
    RunEventRecord, RunRecord, RunStatus, RunStepRequest, RunValue,
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::dreams;
use crate::host::Host;
use crate::plan::event;

/// Characters of a run's id.
pub const MAX_RUN_ID_CHARS: usize = 64;

/// Events that are answered at once.
pub const MAX_RUN_EVENTS: usize = 1_000;

/// Who waits for events looks this often without being told: another process may
/// work on the run.
const POLL: Duration = Duration::from_millis(500);

/// The longest that anybody waits for events.
const MAX_WAIT: Duration = Duration::from_secs(24 * 3_600);

/// A run that was let go is named for so many times its retention, so that who asks
/// learns that it was there.
const NAMED_RETENTIONS: u64 = 10;

/// It is named this long at least: for as long as the outcome of a request that names
/// it is kept.
const NAMED_SECONDS: u64 = 24 * 3_600;

/// A run that changes while it is called off is looked at again so often.
const CANCEL_TRIES: usize = 64;

/// A run to make.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// Its id, minted by whoever asks: up to [`MAX_RUN_ID_CHARS`] ASCII letters,
    /// digits, `-`, `_` and `.`.
    pub id: String,
    /// Of which workflow.
    pub workflow_id: String,
    /// What it is given: an object.
    pub inputs: JsonText,
    /// Its options: an object, of which `distillation.tokenBudget` is read.
    pub configurable: Option<JsonText>,
    /// Who asked for it, by an opaque id.
    pub principal_id: String,
    /// The caller's idempotency key.
    pub claim: Option<Claim>,
}

/// A run that repeats another.
#[derive(Debug, Clone)]
pub struct ForkRequest {
    /// Its id, as in [`RunRequest`].
    pub id: String,
    /// Which run it repeats.
    pub source: String,
    /// From which event on.
    pub from_seq: u64,
    /// The caller's idempotency key.
    pub claim: Option<Claim>,
}

/// Whose run it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOwner {
    /// The tenant.
    pub tenant: String,
    /// Which of its workspaces.
    pub workspace: String,
    /// Who asked for it, by an opaque id.
    pub principal: String,
}

/// A run as it is read now.
#[derive(Debug, Clone, PartialEq)]
pub struct RunView {
    /// As it is kept; the files that it began with are there.
    pub record: RunRecord,
    /// Whose it is.
    pub owner: RunOwner,
    /// What it leaves behind, with entries as they are now.
    pub variables: Map<String, Value>,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEvent {
    /// `RUN:SEQUENCE`, the same whenever it is read.
    pub event_id: String,
    /// Of which run.
    pub run_id: String,
    /// For example `node.completed`.
    pub kind: String,
    /// A JSON object that quotes nothing.
    pub payload: Value,
    /// When it happened.
    pub timestamp: Millis,
    /// Its number in the run, from 0.
    pub sequence: u64,
    /// At which node.
    pub node_id: Option<String>,
    /// The event that it repeats.
    pub causation_id: Option<String>,
}

/// Events of a run, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunEvents {
    /// The events.
    pub events: Vec<RunEvent>,
    /// Whether none comes after them.
    pub is_complete: bool,
}

/// Why something was not done with a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunsError {
    /// A workflow that is not here. Its id is not repeated: it may hold anything.
    #[error("there is no such workflow on this host")]
    UnknownWorkflow,
    /// An id that a run cannot have.
    #[error("a run's id has 1 to {MAX_RUN_ID_CHARS} ASCII letters, digits, `-`, `_` and `.`")]
    BadId,
    /// Inputs that are no object.
    #[error("field `inputs` must be an object")]
    BadInputs,
    /// An option or an input that its workflow cannot use.
    #[error("{reason}")]
    BadOption {
        /// What is wrong. It quotes nothing.
        reason: String,
    },
    /// More than a run may be given.
    #[error("field `inputs` has {bytes} bytes as JSON, and may have {most} (`run_input_bytes`)")]
    InputsTooLarge {
        /// What it has.
        bytes: usize,
        /// What it may have.
        most: usize,
    },
    /// Nobody's run, or another tenant's.
    #[error("there is no such run")]
    NotFound,
    /// A run of another of the tenant's workspaces.
    #[error("this run belongs to another workspace")]
    Forbidden,
    /// A run past its retention, or one that was forgotten.
    #[error(
        "what the run held is gone: it ended longer ago than runs are kept (`run_retention_seconds`), or was forgotten"
    )]
    Expired {
        /// Which run.
        run: String,
        /// From where it was to be repeated, if it was.
        from_seq: Option<u64>,
    },
    /// A run that has ended cannot be called off.
    #[error("the run has ended: it is {}", status.as_str())]
    Ended {
        /// How it ended.
        status: RunStatus,
    },
    /// A run that went on faster than it could be called off.
    #[error("the run went on whenever it was to be called off; try again")]
    Changing,
    /// A run that has not ended cannot be repeated.
    #[error("the run has not ended yet; repeat it then")]
    Active,
    /// An event to begin with that there is not.
    #[error("field `fromSeq` is {from_seq}, and this run can be repeated from 0 to {max}")]
    InvalidFromSeq {
        /// What was asked for.
        from_seq: u64,
        /// The most.
        max: u64,
    },
    /// Nothing is written through this host.
    #[error("this host is read-only (`read_only`), and a run writes")]
    ReadOnly,
    /// The memory failed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

type Result<T> = std::result::Result<T, RunsError>;

impl Host {
    /// The workflows that can be run here, by id.
    pub fn workflows(&self) -> Vec<&str> {
        self.runs.workflows.keys().map(String::as_str).collect()
    }

    /// Makes a run. It sees memory, and the files of the principal's workspace, as they
    /// are now, and is worked on by [`Host::work_until`].
    pub async fn create_run(
        &self,
        principal: &Principal,
        request: RunRequest,
    ) -> Result<RunRecord> {
        self.refuse_read_only()?;
        if !self.runs.workflows.contains_key(&request.workflow_id) {
            return Err(RunsError::UnknownWorkflow);
        }
        check_id(&request.id)?;
        let (bytes, most) = (request.inputs.as_str().len(), self.settings.run_input_bytes);
        if bytes > most {
            return Err(RunsError::InputsTooLarge { bytes, most });
        }
        if !request.inputs.as_str().starts_with('{') {
            return Err(RunsError::BadInputs);
        }
        let inputs = dreams::inputs(&request)?;
        let RunRequest { id, workflow_id, principal_id, claim, .. } = request;
        let run = NewRunRequest {
            id,
            workflow: workflow_id,
            principal: principal_id,
            inputs,
            most_unfinished: self.settings.runs_unfinished,
            claim,
        };
        let made = self.memory.create_run(principal, run).await?;
        // Only a hint: what is to be done stands in the store.
        self.runs.wake.notify_one();
        Ok(made)
    }

    /// A run with what it leaves behind. Entries that are gone are null, and left out
    /// of lists.
    pub async fn run(&self, principal: &Principal, id: &str) -> Result<RunView> {
        let record = self.own_run(principal, id).await?;
        self.refuse_expired(&record, None)?;
        let mut variables = Map::new();
        for variable in &record.variables {
            let value = self.value(principal, &variable.value).await?;
            variables.insert(variable.name.clone(), value);
        }
        let owner = owner_of(principal, &record);
        Ok(RunView { record, owner, variables })
    }

    /// Events of a run after a number, in order; from the first without one. At most
    /// [`MAX_RUN_EVENTS`] are answered; 0 asks for as many.
    pub async fn run_events(
        &self,
        principal: &Principal,
        id: &str,
        after: Option<u64>,
        limit: usize,
    ) -> Result<RunEvents> {
        // First how it stands, then what happened: what is complete then stays so.
        let record = self.own_run(principal, id).await?;
        self.refuse_expired(&record, None)?;
        let limit = match limit {
            0 => MAX_RUN_EVENTS,
            limit => limit.min(MAX_RUN_EVENTS),
        };
        let events = self.memory.run_events(principal, id, after, limit).await?;
        let told = events.last().map(|event| event.sequence).or(after);
        let next = told.map_or(0, |sequence| sequence.saturating_add(1));
        let is_complete = record.status.is_terminal() && next >= record.events;
        let events = events.into_iter().map(|event| RunEvent::new(id, event)).collect();
        Ok(RunEvents { events, is_complete })
    }

    /// As [`Host::run_events`], but where there is none yet it waits for one, for so
    /// long at most. Who has to end before that may drop it.
    pub async fn wait_for_events(
        &self,
        principal: &Principal,
        id: &str,
        after: Option<u64>,
        limit: usize,
        timeout: Duration,
    ) -> Result<RunEvents> {
        let deadline = Instant::now() + timeout.min(MAX_WAIT);
        // Before it is read, so that nothing happens unheard between.
        let mut news = self.runs.news.subscribe();
        loop {
            let found = self.run_events(principal, id, after, limit).await?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !found.events.is_empty() || found.is_complete || left.is_zero() {
                return Ok(found);
            }
            let poll = tokio::time::sleep(left.min(POLL));
            tokio::pin!(poll);
            loop {
                tokio::select! {
                    () = &mut poll => break,
                    told = news.recv() => match told {
                        Ok(run) if run.0 != *principal.tenant() || run.1 != id => {}
                        // It is this run, or so much happened that it may be.
                        _ => break,
                    },
                }
            }
        }
    }

    /// Calls off a run. What it has written stays; it writes nothing more.
    pub async fn cancel_run(&self, principal: &Principal, id: &str) -> Result<RunRecord> {
        for _ in 0..CANCEL_TRIES {
            let record = self.own_run(principal, id).await?;
            self.refuse_expired(&record, None)?;
            if record.status.is_terminal() {
                return Err(RunsError::Ended { status: record.status });
            }
            let step = RunStepRequest {
                run: record.id,
                seen: record.events,
                puts: Vec::new(),
                events: vec![event("run.cancelled", None, json!({}))],
                variables: Vec::new(),
                status: RunStatus::Cancelled,
                error: None,
            };
            // Nothing is answered where the run went on meanwhile.
            if let Some(cancelled) = self.memory.step_run(principal, step).await? {
                self.runs.tell(principal.tenant(), id);
                return Ok(cancelled);
            }
        }
        Err(RunsError::Changing)
    }

    /// Makes a run that repeats one which has ended: what happened there, with the same
    /// ids and times. It is the same owner's and is kept for as long as that one; it
    /// reads no memory and writes none.
    pub async fn fork_run(&self, principal: &Principal, request: ForkRequest) -> Result<RunRecord> {
        self.refuse_read_only()?;
        let ForkRequest { id, source, from_seq, claim } = request;
        let record = self.own_run(principal, &source).await?;
        if from_seq > record.events {
            return Err(RunsError::InvalidFromSeq { from_seq, max: record.events });
        }
        self.refuse_expired(&record, Some(from_seq))?;
        if !record.status.is_terminal() {
            return Err(RunsError::Active);
        }
        check_id(&id)?;
        let expired = || RunsError::Expired { run: record.id.clone(), from_seq: Some(from_seq) };
        let fork = NewForkRequest { id, source, from_seq, claim };
        // It had ended: if it cannot be repeated any more, it went meanwhile.
        self.memory.fork_run(principal, fork).await?.ok_or_else(expired)
    }

    fn refuse_read_only(&self) -> Result<()> {
        if self.settings.read_only { Err(RunsError::ReadOnly) } else { Ok(()) }
    }

    /// A run of the principal's own workspace.
    async fn own_run(&self, principal: &Principal, id: &str) -> Result<RunRecord> {
        check_id(id).map_err(|_| RunsError::NotFound)?;
        let found = self.memory.run(principal, id).await?.ok_or(RunsError::NotFound)?;
        match found.workspace == principal.workspace().name() {
            true => Ok(found),
            false => Err(RunsError::Forbidden),
        }
    }

    /// A run is past its retention from the moment on, whether or not it was let go.
    fn refuse_expired(&self, record: &RunRecord, from_seq: Option<u64>) -> Result<()> {
        let is_past = record.ended_at.is_some_and(|at| at <= self.kept_since());
        match record.expired_at.is_some() || is_past {
            true => Err(RunsError::Expired { run: record.id.clone(), from_seq }),
            false => Ok(()),
        }
    }

    /// Runs that ended then or before are past their retention.
    pub(crate) fn kept_since(&self) -> Millis {
        self.seconds_ago(self.settings.run_retention_seconds)
    }

    /// Runs that were let go then or before are not named any more.
    pub(crate) fn named_since(&self) -> Millis {
        let kept = self.settings.run_retention_seconds.saturating_mul(NAMED_RETENTIONS);
        self.seconds_ago(kept.max(NAMED_SECONDS))
    }

    fn seconds_ago(&self, seconds: u64) -> Millis {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        Millis(self.memory.now().0.saturating_sub(seconds.saturating_mul(1_000)))
    }

    /// What a variable holds, as it is now.
    async fn value(&self, principal: &Principal, value: &RunValue) -> Result<Value> {
        Ok(match value {
            RunValue::Json(json) => json.json().to_value(),
            RunValue::Entry(entry) => {
                self.entry_now(principal, entry).await?.as_ref().map(shown).into()
            }
            RunValue::Entries(entries) => {
                let mut found = Vec::with_capacity(entries.len());
                for entry in entries {
                    found.extend(self.entry_now(principal, entry).await?.as_ref().map(shown));
                }
                Value::Array(found)
            }
            RunValue::Content(entry) => {
                let entry = self.entry_now(principal, entry).await?;
                entry.map(|entry| entry.content.into_string()).into()
            }
        })
    }

    async fn entry_now(
        &self,
        principal: &Principal,
        entry: &EntryRef,
    ) -> Result<Option<EntryRecord>> {
        let scope = self.memory.scope(principal, &entry.memory_ref).await?;
        match self.memory.entry(&scope, &entry.memory_id, None).await {
            Ok(found) => Ok(Some(found)),
            Err(MemoryError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl RunEvent {
    fn new(run: &str, event: RunEventRecord) -> Self {
        let RunEventRecord { sequence, at, kind, node, cause, payload } = event;
        Self {
            event_id: format!("{run}:{sequence}"),
            run_id: run.to_owned(),
            kind,
            payload: serde_json::from_str(&payload).unwrap_or_else(|_| json!({})),
            timestamp: at,
            sequence,
            node_id: node,
            causation_id: cause,
        }
    }
}

pub(crate) fn owner_of(principal: &Principal, record: &RunRecord) -> RunOwner {
    RunOwner {
        tenant: principal.tenant().as_str().to_owned(),
        workspace: record.workspace.clone(),
        principal: record.principal.clone(),
    }
}

/// An entry as the protocol shows it.
fn shown(entry: &EntryRecord) -> Value {
    let tags: Vec<&str> = entry.tags.iter().map(|tag| tag.as_str()).collect();
    let mut shown = json!({
        "id": entry.id,
        "content": entry.content.as_str(),
        "tags": tags,
        "createdAt": entry.created_at.to_string(),
    });
    if let Some(expires_at) = entry.expires_at {
        shown["expiresAt"] = expires_at.to_string().into();
    }
    shown
}

/// What an id may be. Everything else belongs to no run.
fn check_id(id: &str) -> Result<()> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match (1..=MAX_RUN_ID_CHARS).contains(&id.len()) && id.bytes().all(is_allowed) {
        true => Ok(()),
        false => Err(RunsError::BadId),
    }
}
