//! Runs of workflows: made, read, followed, cancelled and repeated.
//!
//! A run names the entries that it wrote and found, and never quotes them. They are
//! looked up whenever it is read, so that what was forgotten is gone from it too.
//! `engine` works on runs until they end.

mod dream;
mod engine;
mod fixtures;
mod plan;
mod step;
mod workflow;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use icecore::extend::{self, in_pieces, write_redacted};
use icecore::formats::json::JsonText;
use icecore::ingest::Claim;
use icecore::knowledge::EntryRecord;
use icecore::privacy::Redactor;
use icecore::{Memory, MemoryError, Millis, Principal, Tenant};
pub use icecore_store::{
    EntryRef, ForkOf, RunError, RunEventRecord, RunFile, RunRecord, RunStatus, RunValue,
    RunVariable,
};
use icecore_store::{NewFork, NewRun, Store};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;

use crate::error::wraps_memory;
use crate::settings::HostSettings;

pub use engine::Stepped;
use plan::event;
use step::{Step, redacted};
use workflow::Workflow;

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

/// A run as it is read now.
#[derive(Debug, Clone, PartialEq)]
pub struct RunView {
    /// As it is stored; the files that it began with are there.
    pub record: RunRecord,
    /// What it leaves behind, with entries as they are now.
    pub variables: Map<String, Value>,
}

/// Events of a run, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunEvents {
    /// The events.
    pub events: Vec<RunEventRecord>,
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
        "the run is not kept any more: it ended longer ago than runs are kept (`run_retention_seconds`), or was forgotten"
    )]
    Expired {
        /// Which run.
        run: String,
        /// From when on it could not be read.
        boundary: Millis,
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

wraps_memory!(RunsError);

type Result<T> = std::result::Result<T, RunsError>;

/// The runs of all tenants. Clones share everything.
#[derive(Clone)]
pub struct Runs {
    memory: Memory,
    settings: Arc<HostSettings>,
    shared: Arc<Shared>,
}

struct Shared {
    /// The workflows of this host, by id.
    workflows: BTreeMap<String, Workflow>,
    /// There may be something to do.
    wake: Notify,
    /// In which run something happened.
    news: broadcast::Sender<RunKey>,
    /// Since when this host looks after runs.
    since: Millis,
}

/// A run of any tenant.
type RunKey = (Tenant, String);

/// News that are kept for slow listeners.
const NEWS: usize = 1_024;

impl Runs {
    pub(crate) fn new(memory: Memory, settings: Arc<HostSettings>) -> Self {
        let mut workflows = workflow::built_in();
        if settings.conformance {
            workflows.extend(workflow::fixtures());
        }
        let (news, _) = broadcast::channel(NEWS);
        let shared = Shared { workflows, wake: Notify::new(), news, since: memory.now() };
        Self { memory, settings, shared: Arc::new(shared) }
    }

    fn store(&self) -> &Store {
        extend::store(&self.memory)
    }

    /// The workflows that can be run here, by id.
    pub fn workflows(&self) -> impl Iterator<Item = &str> {
        self.shared.workflows.keys().map(String::as_str)
    }

    /// Makes a run. It sees memory, and the files of the principal's workspace, as they
    /// are now. The secrets in its inputs are hidden.
    pub async fn create(&self, principal: &Principal, request: RunRequest) -> Result<RunRecord> {
        self.refuse_read_only()?;
        if !self.shared.workflows.contains_key(&request.workflow_id) {
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
        let inputs = dream::inputs(&request)?;
        let made = write_redacted(|| self.create_once(principal, &request, &inputs)).await?;
        // Only a hint: what is to be done stands in the store.
        self.shared.wake.notify_one();
        Ok(made)
    }

    async fn create_once(
        &self,
        principal: &Principal,
        request: &RunRequest,
        inputs: &JsonText,
    ) -> std::result::Result<RunRecord, MemoryError> {
        let known = self.memory.redactor(principal.tenant()).await?;
        let name = |name: &str| known.redactor.name(name).into_string();
        let run = NewRun {
            id: name(&request.id),
            workflow: name(&request.workflow_id),
            principal: name(&request.principal_id),
            inputs: redacted(&known.redactor, inputs).await?,
            events: Vec::new(),
            most_unfinished: self.settings.runs_unfinished,
            now: self.memory.now(),
            secrets_seen: known.version,
            claim: request.claim.clone(),
        };
        Ok(self.store().create_run(&principal.workspace(), run).await?)
    }

    /// A run with what it leaves behind. Entries that are gone are null, and left out
    /// of lists.
    pub async fn get(&self, principal: &Principal, id: &str) -> Result<RunView> {
        let record = self.kept(principal, id).await?;
        let mut variables = Map::new();
        for variable in &record.variables {
            let value = self.value(principal, &variable.value).await?;
            variables.insert(variable.name.clone(), value);
        }
        Ok(RunView { record, variables })
    }

    /// Events of a run after a number, in order; from the first without one. At most
    /// [`MAX_RUN_EVENTS`] are answered; 0 asks for as many.
    pub async fn events(
        &self,
        principal: &Principal,
        id: &str,
        after: Option<u64>,
        limit: usize,
    ) -> Result<RunEvents> {
        // First its status, then its events: what is complete then stays so.
        let record = self.kept(principal, id).await?;
        let limit = match limit {
            0 => MAX_RUN_EVENTS,
            limit => limit.min(MAX_RUN_EVENTS),
        };
        let events = self.events_after(principal.tenant(), &record.id, after, limit).await?;
        let last = events.last().map(|event| event.sequence).or(after);
        let next = last.map_or(0, |sequence| sequence.saturating_add(1));
        let is_complete = record.status.is_terminal() && next >= record.events;
        Ok(RunEvents { events, is_complete })
    }

    /// As [`Runs::events`], but waits for an event if there is none yet, at most for
    /// `timeout`. The future may be dropped at any time.
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
        let mut news = self.shared.news.subscribe();
        loop {
            let found = self.events(principal, id, after, limit).await?;
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

    /// Cancels a run. What it has written stays; it writes nothing more.
    pub async fn cancel(&self, principal: &Principal, id: &str) -> Result<RunRecord> {
        for _ in 0..CANCEL_TRIES {
            let record = self.kept(principal, id).await?;
            if record.status.is_terminal() {
                return Err(RunsError::Ended { status: record.status });
            }
            let step = Step::of(&record, vec![event("run.cancelled", None, json!({}))]);
            let step = Step { status: RunStatus::Cancelled, ..step };
            // Nothing is answered where the run went on meanwhile.
            if let Some(cancelled) = self.write(principal.tenant(), &step).await? {
                self.tell(principal.tenant(), id);
                return Ok(cancelled);
            }
        }
        Err(RunsError::Changing)
    }

    /// Makes a run that repeats one which has ended: what happened there, with the same
    /// ids and times. It has the same owner and is kept for as long as that one; it
    /// reads no memory and writes none.
    pub async fn fork(&self, principal: &Principal, request: ForkRequest) -> Result<RunRecord> {
        self.refuse_read_only()?;
        let from_seq = request.from_seq;
        let record = self.own(principal, &request.source).await?;
        if from_seq > record.events {
            return Err(RunsError::InvalidFromSeq { from_seq, max: record.events });
        }
        self.refuse_expired(principal.tenant(), &record, Some(from_seq)).await?;
        if !record.status.is_terminal() {
            return Err(RunsError::Active);
        }
        check_id(&request.id)?;
        let tenant = principal.tenant();
        let redactor = self.memory.redactor(tenant).await?.redactor;
        let name = |name: &str| redactor.name(name).into_string();
        let fork = NewFork {
            id: name(&request.id),
            source: name(&request.source),
            from_seq,
            now: self.memory.now(),
            claim: request.claim,
        };
        let mut made = self.store().fork_run(tenant, fork).await?;
        self.hide(tenant, made.iter_mut()).await?;
        // It had ended: if it cannot be repeated any more, it went meanwhile.
        made.ok_or_else(|| self.expired(&record, Some(from_seq)))
    }

    fn refuse_read_only(&self) -> Result<()> {
        if self.settings.read_only { Err(RunsError::ReadOnly) } else { Ok(()) }
    }

    /// A run of the principal's own workspace that has not expired.
    async fn kept(&self, principal: &Principal, id: &str) -> Result<RunRecord> {
        let record = self.own(principal, id).await?;
        self.refuse_expired(principal.tenant(), &record, None).await?;
        Ok(record)
    }

    /// A run of the principal's own workspace.
    async fn own(&self, principal: &Principal, id: &str) -> Result<RunRecord> {
        check_id(id).map_err(|_| RunsError::NotFound)?;
        let found = self.find(principal.tenant(), id).await?.ok_or(RunsError::NotFound)?;
        match found.workspace == principal.workspace().name() {
            true => Ok(found),
            false => Err(RunsError::Forbidden),
        }
    }

    /// A run of the tenant, in whichever workspace, also one past its retention.
    async fn find(
        &self,
        tenant: &Tenant,
        id: &str,
    ) -> std::result::Result<Option<RunRecord>, MemoryError> {
        let id = self.memory.redactor(tenant).await?.redactor.name(id);
        let mut found = self.store().run(tenant, id.as_str()).await?;
        self.hide(tenant, found.iter_mut()).await?;
        Ok(found)
    }

    async fn events_after(
        &self,
        tenant: &Tenant,
        id: &str,
        after: Option<u64>,
        limit: usize,
    ) -> std::result::Result<Vec<RunEventRecord>, MemoryError> {
        let mut events = self.store().run_events(tenant, id, after, limit).await?;
        if let Some(redactor) = extend::read_redactor(&self.memory, tenant).await? {
            let size = |event: &RunEventRecord| event.payload.len();
            in_pieces(&mut events, size, move |event| {
                event.payload = match JsonText::parse(&event.payload) {
                    Ok(json) => redactor.json(&json).as_str().to_owned(),
                    Err(_) => redactor.text(&event.payload).into_string(),
                };
                Ok(())
            })
            .await?;
        }
        Ok(events)
    }

    /// Refuses a run past its retention. The first refusal lets go of it, so that no later
    /// start with a longer retention brings it back.
    async fn refuse_expired(
        &self,
        tenant: &Tenant,
        record: &RunRecord,
        from_seq: Option<u64>,
    ) -> Result<()> {
        let is_past = record.ended_at.is_some_and(|at| at <= self.kept_since());
        if record.expired_at.is_none() && !is_past {
            return Ok(());
        }
        if record.expired_at.is_none() {
            self.store().expire_run(tenant, &record.id, self.memory.now()).await?;
        }
        Err(self.expired(record, from_seq))
    }

    fn expired(&self, record: &RunRecord, from_seq: Option<u64>) -> RunsError {
        let now = self.memory.now();
        let retention = i64::try_from(self.settings.run_retention_seconds).unwrap_or(i64::MAX);
        let kept_until = |ended: Millis| ended.0.saturating_add(retention.saturating_mul(1_000));
        let boundary = record.ended_at.map_or(now.0, kept_until);
        let boundary = Millis(boundary.min(record.expired_at.unwrap_or(now).0));
        RunsError::Expired { run: record.id.clone(), boundary, from_seq }
    }

    /// Runs that ended then or before are past their retention.
    fn kept_since(&self) -> Millis {
        self.seconds_ago(self.settings.run_retention_seconds)
    }

    /// Runs that expired then or before are not named any more.
    fn named_since(&self) -> Millis {
        let kept = self.settings.run_retention_seconds.saturating_mul(NAMED_RETENTIONS);
        self.seconds_ago(kept.max(NAMED_SECONDS))
    }

    fn seconds_ago(&self, seconds: u64) -> Millis {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        Millis(self.memory.now().0.saturating_sub(seconds.saturating_mul(1_000)))
    }

    /// Tells followers of a run that something happened in it.
    fn tell(&self, tenant: &Tenant, run: &str) {
        // Nobody may be listening.
        let _ = self.shared.news.send((tenant.clone(), run.to_owned()));
    }

    /// Hides what is secret in runs that were read.
    async fn hide(
        &self,
        tenant: &Tenant,
        runs: impl Iterator<Item = &mut RunRecord>,
    ) -> std::result::Result<(), MemoryError> {
        let Some(redactor) = extend::read_redactor(&self.memory, tenant).await? else {
            return Ok(());
        };
        in_pieces(runs, bytes_of, move |run| {
            hide_in(&redactor, run);
            Ok(())
        })
        .await
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

fn hide_in(redactor: &Redactor, run: &mut RunRecord) {
    run.inputs = redactor.redacted_json(run.inputs.json());
    // As in a list of files, one whose path holds a secret is not named.
    run.files.retain(|file| redactor.text(file.path.as_str()).as_str() == file.path.as_str());
    for variable in &mut run.variables {
        variable.name = redactor.text(&variable.name).into_string();
        if let RunValue::Json(json) = &mut variable.value {
            *json = redactor.redacted_json(json.json());
        }
    }
}

fn bytes_of(run: &RunRecord) -> usize {
    let bytes = |variable: &RunVariable| match &variable.value {
        RunValue::Json(json) => json.json().as_str().len(),
        _ => 0,
    };
    let files: usize = run.files.iter().map(|file| file.path.as_str().len()).sum();
    run.inputs.json().as_str().len() + files + run.variables.iter().map(bytes).sum::<usize>()
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
