//! Runs of workflows: made, read, followed, cancelled, repeated.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use icecore::formats::json::JsonText;
use icecore::store::StoreError;
use icecore::{MemoryError, Millis, Tenant};
use icecore_host::Host;
use icecore_host::outcomes::StoredOutcome;
use icecore_host::runs::RunRecord;
use icecore_host::runs::{ForkRequest, RunEventRecord, RunEvents, RunRequest, RunView, RunsError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::app::Shared;
use crate::auth::{Caller, Reader, Writer};
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::events::{Followed, News, follow, last_event, piece, wants_stream};
use crate::idempotency::{Attempt, replay};
use crate::params::{Params, Segment};
use crate::serve::closed;
use crate::wire;
use crate::work::Work;

const CREATE: &str = "POST /v1/runs";
const FORK: &str = "POST /v1/runs/fork";

/// The longest that a poll waits for news.
const MAX_POLL_SECONDS: u64 = 30;

/// What ends the path of a fork.
const FORK_SUFFIX: &str = ":fork";

/// A run to make. What a host of memory has no use for is read and left alone: the
/// tenant comes from the key, and nobody is called back.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `create` reads")]
pub(crate) struct RunBody {
    /// Which workflow.
    workflow_id: String,
    /// What it is given; at most `run_input_bytes`. Secrets in it are hidden.
    #[schema(value_type = Option<Object>)]
    inputs: Option<Map<String, Value>>,
    /// A hint that changes nothing: the tenant comes from the key.
    tenant_id: Option<String>,
    /// Left alone.
    scope_id: Option<String>,
    /// Left alone: nobody is called back.
    callback_url: Option<String>,
    /// `distillation.tokenBudget`, from 1 on, bounds a dream; the rest is left alone.
    #[schema(value_type = Option<Object>)]
    configurable: Option<Map<String, Value>>,
    /// Left alone.
    tags: Option<Vec<String>>,
    /// Left alone.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Map<String, Value>>,
}

/// A run to repeat.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `fork` reads")]
pub(crate) struct ForkBody {
    /// `replay`: what was recorded is told again. There is no other mode here.
    mode: String,
    /// From which event on; 0 where none is named.
    #[schema(minimum = 0)]
    from_seq: Option<u64>,
    /// Refused: a replay takes no other options.
    #[schema(value_type = Option<Object>)]
    run_options_overlay: Option<Map<String, Value>>,
}

/// That a run was made.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunCreated {
    run_id: String,
    status: String,
    events_url: String,
    status_url: String,
}

/// That a run repeats another.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunForked {
    run_id: String,
    source_run_id: String,
    from_seq: u64,
    mode: String,
    status: String,
    events_url: String,
    status_url: String,
}

/// A run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Run)]
pub(crate) struct RunAnswer {
    run_id: String,
    workflow_id: String,
    /// `pending`, `running`, `completed`, `failed` or `cancelled`.
    status: String,
    /// Whose it is.
    owner: RunOwner,
    /// What it leaves behind. Entries that are gone by now are null, or left out of a
    /// list: a run quotes nothing that was forgotten.
    #[schema(value_type = Object)]
    variables: Map<String, Value>,
    /// The files that it began with.
    workspace: Vec<RunFileRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<RunFailure>,
    #[schema(format = DateTime)]
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    ended_at: Option<String>,
    /// The run that it repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_run_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_seq: Option<u64>,
    events_url: String,
}

/// Whose a run is, by ids that tell nothing else.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunOwner {
    tenant: String,
    workspace: String,
    /// The id of the key that asked for it.
    principal: String,
}

/// A file that a run began with.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunFile)]
pub(crate) struct RunFileRow {
    path: String,
    version: u64,
}

/// Why a run failed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RunError)]
pub(crate) struct RunFailure {
    code: String,
    message: String,
}

/// Something that happened in a run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RunEvent)]
pub(crate) struct RunEventRow {
    event_id: String,
    run_id: String,
    r#type: String,
    /// Ids and counts, never content.
    #[schema(value_type = Object)]
    payload: Value,
    #[schema(format = DateTime)]
    timestamp: String,
    /// From 0.
    sequence: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    node_id: Option<String>,
    /// The event that this one repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    causation_id: Option<String>,
}

/// Events of a run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RunEvents)]
pub(crate) struct RunEventsAnswer {
    events: Vec<RunEventRow>,
    /// Whether the run has ended and these are its last.
    is_complete: bool,
}

impl RunAnswer {
    pub(crate) fn of(tenant: &Tenant, view: RunView) -> Self {
        let RunView { record, variables } = view;
        let fork = record.fork;
        Self {
            workflow_id: record.workflow,
            status: record.status.as_str().to_owned(),
            owner: RunOwner {
                tenant: tenant.as_str().to_owned(),
                workspace: record.workspace,
                principal: record.principal,
            },
            variables,
            workspace: record
                .files
                .into_iter()
                .map(|file| RunFileRow { path: file.path.to_string(), version: file.version })
                .collect(),
            error: record
                .error
                .map(|error| RunFailure { code: error.code, message: error.message }),
            created_at: record.created_at.to_rfc3339(),
            ended_at: record.ended_at.map(Millis::to_rfc3339),
            source_run_id: fork.as_ref().map(|fork| fork.run.clone()),
            from_seq: fork.map(|fork| fork.from_seq),
            events_url: events_url(&record.id),
            run_id: record.id,
        }
    }
}

impl RunEventRow {
    fn of(run: &str, event: RunEventRecord) -> Self {
        Self {
            // The same whenever it is read.
            event_id: format!("{run}:{}", event.sequence),
            run_id: run.to_owned(),
            r#type: event.kind,
            payload: serde_json::from_str(&event.payload).unwrap_or_else(|_| json!({})),
            timestamp: event.at.to_rfc3339(),
            sequence: event.sequence,
            node_id: event.node,
            causation_id: event.cause,
        }
    }
}

fn events_url(id: &str) -> String {
    format!("/v1/runs/{id}/events")
}

/// What a stored outcome remembers of a run that was made.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MadeRun {
    run_id: String,
    status: String,
    source_run_id: Option<String>,
    from_seq: Option<u64>,
}

impl From<&RunRecord> for MadeRun {
    fn from(record: &RunRecord) -> Self {
        let source = record.fork.as_ref();
        Self {
            run_id: record.id.clone(),
            status: record.status.as_str().to_owned(),
            source_run_id: source.map(|fork| fork.run.clone()),
            from_seq: source.map(|fork| fork.from_seq),
        }
    }
}

impl MadeRun {
    fn into_json(self) -> String {
        let Self { run_id, status, source_run_id, from_seq } = self;
        let (events_url, status_url) = (events_url(&run_id), format!("/v1/runs/{run_id}"));
        match source_run_id {
            None => json!(RunCreated { run_id, status, events_url, status_url }).to_string(),
            Some(source_run_id) => json!(RunForked {
                run_id,
                source_run_id,
                from_seq: from_seq.unwrap_or_default(),
                mode: "replay".to_owned(),
                status,
                events_url,
                status_url,
            })
            .to_string(),
        }
    }
}

/// A new run's id: nobody can guess it, and it tells nothing.
pub(crate) fn new_id() -> Result<String, ApiError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| ApiError::internal(&error))?;
    Ok(format!("run-{}", hex::encode(bytes)))
}

/// What a run is given that is given nothing.
pub(crate) fn no_inputs() -> JsonText {
    JsonText::empty_object()
}

fn replayed(outcome: StoredOutcome) -> Result<Response, ApiError> {
    let made: MadeRun = serde_json::from_str(&outcome.body)
        .map_err(|_| ApiError::internal(&"a stored outcome cannot be read"))?;
    Ok(replay(outcome.code, made.into_json()))
}

/// Makes a run. It goes on by itself: read it, or follow its events.
///
/// `icecore.dream` is always there: it distils `inputs.memoryRef`, or the memory
/// `default`, within the option `distillation.tokenBudget`.
#[utoipa::path(
    post,
    path = "/v1/runs",
    operation_id = "createRun",
    tag = "runs",
    request_body(content = RunBody, example = json!({"workflowId": "conformance-noop"})),
    responses(
        (status = 201, description = "The run was made", body = RunCreated),
        (status = 404, description = "There is no such workflow", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn create(
    State(app): State<Shared>,
    Writer(caller): Writer,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let workflow = fields.text("workflowId")?;
    let workflow = workflow.ok_or_else(|| ApiError::invalid("field `workflowId` is missing"))?;
    let inputs = fields.json_object("inputs")?;
    for hint in ["tenantId", "scopeId", "callbackUrl"] {
        fields.text(hint)?;
    }
    let configurable = fields.json_object("configurable")?;
    fields.json_object("metadata")?;
    fields.words("tags")?;

    let attempt = Attempt::begin(&app, &caller, CREATE, &posted).await?;
    let mut request = RunRequest {
        id: new_id()?,
        workflow_id: workflow,
        principal_id: caller.key_id().to_owned(),
        inputs: inputs.unwrap_or_else(no_inputs),
        configurable,
        claim: None,
    };
    if let Some(attempt) = &attempt {
        if let Some(outcome) = attempt.earlier(&app).await? {
            return replayed(outcome);
        }
        request.claim = Some(attempt.claim());
    }
    match (app.host.runs.create(caller.principal(), request).await, attempt) {
        (Ok(run), _) => Ok(wire::json(StatusCode::CREATED, MadeRun::from(&run).into_json())),
        (Err(error), attempt) => otherwise(&app, error, attempt).await,
    }
}

/// Another process may have been faster under the same key.
async fn otherwise(
    app: &Shared,
    error: RunsError,
    attempt: Option<Attempt>,
) -> Result<Response, ApiError> {
    match (error, attempt) {
        (RunsError::Memory(MemoryError::Store(StoreError::ClaimTaken)), Some(attempt)) => {
            replayed(attempt.of_another(app).await?)
        }
        (error, _) => Err(error.into()),
    }
}

/// A run, with what it leaves behind.
#[utoipa::path(
    get,
    path = "/v1/runs/{id}",
    operation_id = "readRun",
    tag = "runs",
    params(("id" = String, Path, description = "The run's id.")),
    responses(
        (status = 200, description = "The run", body = RunAnswer),
        (status = 410, description = "The run is past its retention", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn read(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(id): Segment,
) -> Result<Response, ApiError> {
    let view = app.host.runs.get(caller.principal(), &id).await?;
    Ok(wire::ok(json!(RunAnswer::of(caller.tenant(), view)).to_string()))
}

/// Stops a run that has not ended. What it wrote stays.
#[utoipa::path(
    post,
    path = "/v1/runs/{id}/cancel",
    operation_id = "cancelRun",
    tag = "runs",
    params(("id" = String, Path, description = "The run's id.")),
    responses(
        (status = 200, description = "It does nothing more", body = RunCreated),
        (status = 409, description = "It has ended already", body = crate::openapi::ErrorBody),
        (status = 410, description = "The run is past its retention", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn cancel(
    State(app): State<Shared>,
    Writer(caller): Writer,
    Segment(id): Segment,
) -> Result<Response, ApiError> {
    let run = app.host.runs.cancel(caller.principal(), &id).await?;
    Ok(wire::ok(MadeRun::from(&run).into_json()))
}

/// Repeats a run that has ended: its recorded facts are told again, with the same ids
/// and times, and nothing is written to memory.
#[utoipa::path(
    post,
    path = "/v1/runs/{id}:fork",
    operation_id = "forkRun",
    tag = "runs",
    params(("id" = String, Path, description = "The id of the run to repeat.")),
    request_body(content = ForkBody, example = json!({"mode": "replay", "fromSeq": 0})),
    responses(
        (status = 201, description = "The run that repeats it", body = RunForked),
        (status = 409, description = "It has not ended yet", body = crate::openapi::ErrorBody),
        (status = 410, description = "The run is past its retention", body = crate::openapi::ErrorBody),
        (status = 422, description = "The run has no such event", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn fork(
    State(app): State<Shared>,
    Writer(caller): Writer,
    Segment(target): Segment,
    posted: Posted,
) -> Result<Response, ApiError> {
    // The router knows no ending of a segment.
    let Some(source) = target.strip_suffix(FORK_SUFFIX) else {
        return Err(ApiError::missing("there is no such route"));
    };
    let fields = Fields::parse(&posted.bytes)?;
    let from_seq = fork_from(&fields)?;

    let attempt = Attempt::begin(&app, &caller, FORK, &posted).await?;
    let mut request =
        ForkRequest { id: new_id()?, source: source.to_owned(), from_seq, claim: None };
    if let Some(attempt) = &attempt {
        if let Some(outcome) = attempt.earlier(&app).await? {
            return replayed(outcome);
        }
        request.claim = Some(attempt.claim());
    }
    match (app.host.runs.fork(caller.principal(), request).await, attempt) {
        (Ok(run), _) => Ok(wire::json(StatusCode::CREATED, MadeRun::from(&run).into_json())),
        (Err(error), attempt) => otherwise(&app, error, attempt).await,
    }
}

/// The event to begin at, of a request for a replay.
fn fork_from(fields: &Fields<'_>) -> Result<u64, ApiError> {
    fields.only(&["mode", "fromSeq", "runOptionsOverlay"])?;
    match fields.text("mode")?.as_deref() {
        Some("replay") => {}
        _ => return Err(ApiError::invalid("field `mode` must be `replay`")),
    }
    if fields.json_object("runOptionsOverlay")?.is_some() {
        return Err(ApiError::invalid("field `runOptionsOverlay` has no place in a replay"));
    }
    Ok(fields.whole("fromSeq")?.unwrap_or_default())
}

/// What happened in a run. With `Accept: text/event-stream` it is followed to its end,
/// and `Last-Event-ID` goes on where a lost connection left off.
#[utoipa::path(
    get,
    path = "/v1/runs/{id}/events",
    operation_id = "listRunEvents",
    tag = "runs",
    params(
        ("id" = String, Path, description = "The run's id."),
        ("Last-Event-ID" = Option<u64>, Header, description = "Streams alone: the `sequence` of the last event that was seen."),
    ),
    responses(
        (
            status = 200,
            description = "All events, or a stream of them",
            content((RunEventsAnswer = "application/json"), (String = "text/event-stream")),
        ),
        (status = 410, description = "The run is past its retention", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn events(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(id): Segment,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let last = last_event(&headers)?;
    if wants_stream(&headers) {
        // Whether there is such a run is said before the stream begins.
        app.host.runs.get(caller.principal(), &id).await?;
        let after = last.map(|position| position.0);
        let run = RunLog { host: app.host.clone(), caller: caller.clone(), id, after };
        return follow(&app, &caller, run);
    }
    let found = app.host.runs.events(caller.principal(), &id, None, 0).await?;
    Ok(wire::ok(json!(answer(&id, found)).to_string()))
}

fn answer(run: &str, found: RunEvents) -> RunEventsAnswer {
    let RunEvents { events, is_complete } = found;
    let events = events.into_iter().map(|event| RunEventRow::of(run, event)).collect();
    RunEventsAnswer { events, is_complete }
}

/// A place among the events of a run.
struct RunLog {
    host: Host,
    caller: Caller,
    id: String,
    after: Option<u64>,
}

impl Followed for RunLog {
    async fn next(&mut self) -> Result<News, ApiError> {
        let principal = self.caller.principal();
        let found = self.host.runs.events(principal, &self.id, self.after, 0).await?;
        self.after = found.events.last().map(|event| event.sequence).or(self.after);
        let is_last = found.is_complete;
        let row = |event: RunEventRecord| {
            let (sequence, kind) = (event.sequence, event.kind.clone());
            piece(sequence, &kind, &json!(RunEventRow::of(&self.id, event)).to_string())
        };
        Ok(News { pieces: found.events.into_iter().map(row).collect(), is_last })
    }
}

/// What happened in a run after an event, as soon as something did.
#[utoipa::path(
    get,
    path = "/v1/runs/{id}/events/poll",
    operation_id = "pollRunEvents",
    tag = "runs",
    params(
        ("id" = String, Path, description = "The run's id."),
        ("lastSequence" = Option<u64>, Query, description = "The last event that was seen; all where none is named."),
        ("timeout" = Option<u64>, Query, minimum = 0, maximum = 30, description = "Seconds to wait for news."),
    ),
    responses(
        (status = 200, description = "The events", body = RunEventsAnswer),
        (status = 410, description = "The run is past its retention", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn poll(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(id): Segment,
    params: Params,
    Extension(work): Extension<Work>,
) -> Result<Response, ApiError> {
    let after = params.number("lastSequence")?;
    let seconds = params.number("timeout")?.unwrap_or_default();
    if seconds > MAX_POLL_SECONDS {
        let message = format!("parameter `timeout` must be from 0 to {MAX_POLL_SECONDS}");
        return Err(ApiError::invalid(message));
    }
    let wait = Duration::from_secs(seconds);
    let news = |wait| app.host.runs.wait_for_events(caller.principal(), &id, after, 0, wait);
    let news = async {
        tokio::select! {
            found = news(wait) => found,
            // Nothing will happen here any more: what there is has to do.
            () = closed(app.closing.clone()) => news(Duration::ZERO).await,
        }
    };
    // Who waits holds no place meanwhile.
    let found = work.aside(news).await??;
    Ok(wire::ok(json!(answer(&id, found)).to_string()))
}
