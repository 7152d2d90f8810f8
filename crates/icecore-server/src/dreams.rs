//! Dreams: asked for, previewed, read, taken back.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use icecore::dreams::{Dream, DreamQuery, DreamRecord, DreamRequest};
use icecore::{MemoryError, Scope};
use icecore_host::outcomes::OutcomeBody;
use tracing::Instrument;
use utoipa::ToSchema;

use crate::app::{App, Shared};
use crate::auth::{Caller, Reader, Writer};
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::{Attempt, replay};
use crate::params::{InTenant, Params, Segment};
use crate::wire;

const DREAM: &str = "POST /dreams";
const PREVIEW: &str = "POST /dreams (dry run)";
const UNDO: &str = "POST /dreams/undo";

/// What to distil.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `dream` reads")]
pub(crate) struct DreamBody {
    /// The memory; `default` where none is named.
    memory_ref: Option<String>,
    /// Tokens that may be read and written together; `max_token_budget` where none are
    /// named, and never more than that.
    #[schema(minimum = 1, example = 8000)]
    budget: Option<u64>,
    /// Whether only to show what would come of it.
    dry_run: Option<bool>,
}

/// Distils what is due in a memory within a budget of tokens.
///
/// What does not fit stays due: `remaining` says how much. Where nothing is due the
/// dream before it stands, and is answered with `unchanged`. With `dryRun` nothing is
/// written, and the answer is what would come of it.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/dreams",
    operation_id = "dream",
    tag = "dreams",
    request_body(content = DreamBody, example = json!({"memoryRef": "default", "budget": 8000})),
    responses(
        (status = 200, description = "Nothing was due, and this dream stands; or what would come of one", body = wire::DreamOutcome),
        (status = 201, description = "The dream is kept", body = wire::DreamRow),
        (status = 409, description = "A dream of this memory is under way", body = crate::openapi::ErrorBody),
        (status = 422, description = "The budget covers too little, `details.minimumRequired` says how much it takes; or there is nothing to distil", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn dream(
    State(app): State<Shared>,
    Writer(caller): Writer,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let memory = fields.memory(params.memory()?)?;
    let (budget, is_dry) = (fields.positive("budget")?, fields.flag("dryRun")?);
    let scope = caller.scope(&app, memory.as_deref()).await?;
    let principal = caller.key_id().to_owned();
    let request = DreamRequest { principal, ..DreamRequest::manual(budget) };
    if is_dry {
        return preview(&app, &caller, &scope, request, &posted).await;
    }
    let attempt = Attempt::begin(&app, &caller, DREAM, &posted).await?;
    if let Some(attempt) = &attempt
        && let Some(outcome) = attempt.earlier(&app).await?
    {
        return Ok(replay(outcome.code, outcome.body));
    }
    // By itself: a dream that was begun ends also where nobody waits for it any more.
    let memory = app.memory.clone();
    let dreaming = async move { memory.dream(&scope, request, |_| {}).await };
    let dreaming = tokio::spawn(dreaming.in_current_span()).await;
    let done = dreaming.map_err(|error| MemoryError::Internal(error.to_string()))??;
    let (status, body) = (status_of(&done), wire::text(&wire::DreamRow::from(&done)));
    if let Some(attempt) = attempt {
        // Who asks again before this is kept finds the same dream, unchanged.
        attempt.keep(&app, status, OutcomeBody::Text(body.clone())).await?;
    }
    Ok(wire::json(status, body))
}

fn status_of(dream: &Dream) -> StatusCode {
    match dream.unchanged {
        true => StatusCode::OK,
        false => StatusCode::CREATED,
    }
}

/// What would come of it. The answer holds content, so that no copy of it is stored.
async fn preview(
    app: &App,
    caller: &Caller,
    scope: &Scope,
    request: DreamRequest,
    posted: &Posted,
) -> Result<Response, ApiError> {
    let attempt = Attempt::begin(app, caller, PREVIEW, posted).await?;
    if let Some(attempt) = &attempt
        && let Some(body) = app.answers.find(app, attempt).await?
    {
        return Ok(replay(200, body));
    }
    let preview = app.memory.preview_dream(scope, request).await?;
    let body = wire::text(&wire::Previewed::of(scope.memory(), &preview));
    if let Some(attempt) = attempt {
        app.answers.keep(attempt, &body);
    }
    Ok(wire::ok(body))
}

/// Dreams of the caller's tenant, newest first.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/dreams",
    operation_id = "listDreams",
    tag = "dreams",
    params(
        InTenant,
        ("before" = Option<String>, Query, description = "Those kept before the one of this run."),
        ("limit" = Option<u64>, Query, description = "The most items of the page."),
    ),
    responses((status = 200, description = "The dreams", body = wire::Dreams))
)]
pub(crate) async fn list(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
) -> Result<Response, ApiError> {
    let memory = caller.filter(&app, params.memory()?).await?;
    let limit = params.page(&app)?;
    let before = match params.text("before")? {
        Some(run) => Some(find(&app, &caller, run).await?.position),
        None => None,
    };
    let query = DreamQuery { memory, before, limit, ..DreamQuery::default() };
    let found = app.memory.dreams(caller.tenant(), &query).await?;
    Ok(wire::ok(wire::text(&wire::Dreams::of(&found))))
}

async fn find(app: &App, caller: &Caller, run: &str) -> Result<DreamRecord, ApiError> {
    let found = app.memory.dream_record(caller.tenant(), run).await?;
    found.ok_or_else(|| ApiError::missing("there is no such dream"))
}

/// One dream.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/dreams/{id}",
    operation_id = "readDream",
    tag = "dreams",
    params(("id" = String, Path, description = "The dream's `runId`.")),
    responses((status = 200, description = "The dream", body = wire::DreamRow))
)]
pub(crate) async fn get(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(id): Segment,
) -> Result<Response, ApiError> {
    let found = find(&app, &caller, &id).await?;
    Ok(wire::ok(wire::text(&wire::DreamRow::from(&found))))
}

/// Takes back the dream that is in force in its memory. What it stood for is in force
/// again, and due again.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/dreams/{id}/undo",
    operation_id = "undoDream",
    tag = "dreams",
    params(("id" = String, Path, description = "The dream's `runId`.")),
    responses(
        (status = 200, description = "The dream, which is undone", body = wire::DreamRow),
        (status = 409, description = "Another dream was made on top of it, or it is in force no more", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn undo(
    State(app): State<Shared>,
    Writer(caller): Writer,
    Segment(id): Segment,
    posted: Posted,
) -> Result<Response, ApiError> {
    let attempt = Attempt::begin(&app, &caller, UNDO, &posted).await?;
    if let Some(attempt) = &attempt
        && let Some(outcome) = attempt.earlier(&app).await?
    {
        return Ok(replay(outcome.code, outcome.body));
    }
    let undone = app.memory.undo_dream(caller.tenant(), &id).await?;
    let body = wire::text(&wire::DreamRow::from(&undone));
    if let Some(attempt) = attempt {
        attempt.keep(&app, StatusCode::OK, OutcomeBody::Text(body.clone())).await?;
    }
    Ok(wire::ok(body))
}
