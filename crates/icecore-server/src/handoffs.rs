//! Sessions compacted, and their handoffs read and corrected.

use axum::extract::State;
use axum::response::Response;
use icecore::MemoryError;
use icecore::sessions::{CompactRequest, SessionWindow};
use tracing::Instrument;
use utoipa::ToSchema;

use crate::app::{App, Shared};
use crate::auth::{Reader, Writer};
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::{Attempt, replay};
use crate::params::{InMemory, Params, Segment};
use crate::wire;

const COMPACT: &str = "POST /sessions/compact";
const EDIT: &str = "PUT /sessions/handoff";

/// What to compact, and for which window.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `compact` reads")]
pub(crate) struct CompactBody {
    /// The memory; `default` where none is named.
    memory_ref: Option<String>,
    /// A branch of the session; the one that was last added to, where none is named.
    branch: Option<String>,
    /// Tokens that a request and its answer may have together; `sessions.window` where
    /// none are named.
    #[schema(minimum = 1, example = 32000)]
    window: Option<u64>,
    /// Tokens of it that are kept free for the answer; `sessions.reserve` where none
    /// are named.
    #[schema(minimum = 1, example = 4000)]
    reserve: Option<u64>,
}

/// Puts a handoff in place of what a model has been sent of a session so far.
///
/// The system prompt, pinned turns, the last request of a person and open tool calls stay
/// as they are. What a person sees does not change. Where nothing came since the last
/// handoff, that one stands.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/sessions/{session}/compact",
    operation_id = "compactSession",
    tag = "sessions",
    params(("session" = String, Path, description = "The session.", example = "trip")),
    request_body(content = CompactBody, example = json!({"memoryRef": "default"})),
    responses(
        (status = 200, description = "The session is compacted", body = wire::CompactedRow),
        (status = 409, description = "The session changed meanwhile, each time that it was tried", body = crate::openapi::ErrorBody),
        (status = 422, description = "What must stay does not fit the window, or there is nothing to compact", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn compact(
    State(app): State<Shared>,
    Writer(caller): Writer,
    Segment(session): Segment,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let memory = fields.memory(params.memory()?)?;
    let window = window(&app, fields.positive("window")?, fields.positive("reserve")?);
    let branch = fields.text("branch")?;
    let scope = caller.scope(&app, memory.as_deref()).await?;
    let attempt = Attempt::begin(&app, &caller, COMPACT, &posted).await?;
    // The answer holds content, so that no copy of it is stored. To compact again does no
    // harm: without new turns the handoff stands.
    if let Some(attempt) = &attempt
        && let Some(body) = app.answers.find(&app, attempt).await?
    {
        return Ok(replay(200, body));
    }
    let request = CompactRequest { session, branch, window, ..CompactRequest::default() };
    // By itself: one that was begun ends also where nobody waits for it any more.
    let memory = app.memory.clone();
    let compacting = async move { memory.compact_session(&scope, &request).await };
    let done = tokio::spawn(compacting.in_current_span()).await;
    let done = done.map_err(|error| MemoryError::Internal(error.to_string()))??;
    let body = wire::CompactedRow::from(&done).to_json();
    if let Some(attempt) = attempt {
        app.answers.keep(attempt, &body);
    }
    Ok(wire::ok(body))
}

/// The window that is asked for; what is not named is the settings'.
fn window(app: &App, window: Option<u64>, reserve: Option<u64>) -> Option<SessionWindow> {
    if window.is_none() && reserve.is_none() {
        return None;
    }
    let usual = app.memory.session_window();
    Some(SessionWindow {
        window: window.unwrap_or(usual.window),
        reserve: reserve.unwrap_or(usual.reserve),
    })
}

/// Which branch.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes what `get` reads")]
struct BranchParam {
    /// A branch of the session; the one that was last added to, where none is named.
    branch: Option<String>,
}

/// The handoff that a model is sent of a session.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/sessions/{session}/handoff",
    operation_id = "getHandoff",
    tag = "sessions",
    params(("session" = String, Path, description = "The session.", example = "trip"), InMemory, BranchParam),
    responses((status = 200, description = "The handoff", body = wire::HandoffRow))
)]
pub(crate) async fn get(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(session): Segment,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    let handoff = app.memory.handoff(&scope, &session, params.text("branch")?).await?;
    Ok(wire::ok(wire::text(&wire::HandoffRow::from(&handoff))))
}

/// A person's correction of a handoff.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `put` reads")]
pub(crate) struct HandoffBody {
    /// The memory; `default` where none is named.
    memory_ref: Option<String>,
    /// A branch of the session; the one that was last added to, where none is named.
    branch: Option<String>,
    /// What it is to say.
    #[schema(min_length = 1)]
    handoff: String,
    /// The handoff that was read, by its `compactionId`. If another one is in force by
    /// now, nothing is changed.
    #[schema(min_length = 1)]
    compaction_id: String,
    /// The version that was read. If it is another by now, nothing is changed.
    #[schema(minimum = 1)]
    version: u64,
}

/// Puts a person's words in place of a handoff's.
#[utoipa::path(
    put,
    path = "/v1/host/icecore/sessions/{session}/handoff",
    operation_id = "correctHandoff",
    tag = "sessions",
    params(("session" = String, Path, description = "The session.", example = "trip")),
    request_body(content = HandoffBody, example = json!({"compactionId": "h-0123456789abcdef0123", "version": 1, "handoff": "Goal\n- Reach Lisbon by 4 May."})),
    responses(
        (status = 200, description = "It says so now", body = wire::CompactedRow),
        (status = 409, description = "It is of another version by now", body = crate::openapi::ErrorBody),
        (status = 422, description = "It is longer than there is room for", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn put(
    State(app): State<Shared>,
    Writer(caller): Writer,
    Segment(session): Segment,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let memory = fields.memory(params.memory()?)?;
    let branch = fields.text("branch")?;
    let text = fields.text("handoff")?.filter(|text| !text.trim().is_empty());
    let text = text.ok_or_else(|| ApiError::invalid("field `handoff` must say something"))?;
    let id = fields.text("compactionId")?;
    let id = id.ok_or_else(|| ApiError::invalid("field `compactionId` is missing"))?;
    let version = fields.positive("version")?;
    let version = version.ok_or_else(|| ApiError::invalid("field `version` is missing"))?;
    let scope = caller.scope(&app, memory.as_deref()).await?;
    let attempt = Attempt::begin(&app, &caller, EDIT, &posted).await?;
    if let Some(attempt) = &attempt
        && let Some(body) = app.answers.find(&app, attempt).await?
    {
        return Ok(replay(200, body));
    }
    let (memory, branch) = (&app.memory, branch.as_deref());
    let done = memory.edit_handoff(&scope, &session, branch, &id, version, &text).await?;
    let body = wire::CompactedRow::from(&done).to_json();
    if let Some(attempt) = attempt {
        app.answers.keep(attempt, &body);
    }
    Ok(wire::ok(body))
}
