//! Reading what is there: sessions, views, chunks, counts.

use axum::extract::State;
use axum::response::Response;

use crate::app::{App, Shared};
use crate::auth::Reader;
use crate::error::ApiError;
use crate::params::{InMemory, InTenant, PageByName, Params, Segment};
use crate::wire;
use crate::work::beside;

/// Sessions in the order they began.
///
/// All of them, or a page with `limit`, which goes on with `after` the last name.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/sessions",
    operation_id = "listSessions",
    tag = "sessions",
    params(InMemory, PageByName),
    responses((status = 200, description = "The sessions", body = wire::Sessions))
)]
pub(crate) async fn sessions(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    let sessions = app.memory.sessions(&scope).await?;
    let sessions = page(&app, &params, sessions, |session| session.session.clone())?;
    Ok(wire::ok(wire::text(&wire::Sessions::of(&sessions))))
}

/// Items after the one that `after` names, at most `limit` of them.
fn page<T>(
    app: &App,
    params: &Params,
    items: Vec<T>,
    name: impl Fn(&T) -> String,
) -> Result<Vec<T>, ApiError> {
    let from = match params.text("after")? {
        None => 0,
        Some(after) => {
            let at = items.iter().position(|item| name(item) == after);
            at.ok_or_else(|| ApiError::invalid("parameter `after` names nothing in this list"))? + 1
        }
    };
    let limit = params.limit(app)?.unwrap_or(usize::MAX);
    Ok(items.into_iter().skip(from).take(limit).collect())
}

/// Whose view of a session.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes what `view` reads")]
struct ViewParams {
    /// What a person sees, or what a model is sent.
    view: Option<String>,
    /// A branch of the session; the one that was last added to, where none is named.
    branch: Option<String>,
}

/// What a person sees of a session, or what a model is sent.
///
/// The two are the same until a session is compacted; then a model is sent a handoff, what
/// that left standing, and what came after. A view that is larger than
/// `answer_bytes` is refused; read its turns page by page.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/sessions/{session}/view",
    operation_id = "viewSession",
    tag = "sessions",
    params(("session" = String, Path, description = "The session.", example = "trip"), InMemory, ViewParams),
    responses((status = 200, description = "The view", body = wire::Viewed))
)]
pub(crate) async fn view(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(session): Segment,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    let (branch, bytes) = (params.text("branch")?, app.limits.answer_bytes);
    let body = match params.text("view")? {
        None | Some("display") => {
            let view = app.memory.view_within(&scope, &session, branch, bytes).await?;
            beside(wire::turn_bytes(&view.messages), move || wire::view(&view)).await?
        }
        Some("api") => {
            let view = app.memory.api_view_within(&scope, &session, branch, bytes).await?;
            beside(wire::api_view_bytes(&view), move || wire::api_view(&view)).await?
        }
        Some(_) => {
            return Err(ApiError::invalid("parameter `view` must be `display` or `api`"));
        }
    };
    Ok(wire::ok(body))
}

/// Which chunks are listed.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes what `chunks` reads")]
struct ChunkParams {
    /// Only those of this session.
    session: Option<String>,
}

/// Chunks of a session or of all; paged as sessions are.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/chunks",
    operation_id = "listChunks",
    tag = "chunks",
    params(InMemory, ChunkParams, PageByName),
    responses((status = 200, description = "The chunks", body = wire::Chunks))
)]
pub(crate) async fn chunks(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    let chunks = app.memory.chunks(&scope, params.text("session")?).await?;
    let chunks = page(&app, &params, chunks, |chunk| chunk.id.to_string())?;
    Ok(wire::ok(wire::text(&wire::Chunks::of(&chunks))))
}

/// One chunk.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/chunks/{id}",
    operation_id = "getChunk",
    tag = "chunks",
    params(("id" = String, Path, description = "The chunk."), InMemory),
    responses((status = 200, description = "The chunk", body = wire::Chunk))
)]
pub(crate) async fn chunk(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(id): Segment,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    let chunk = app.memory.chunk(&scope, &id).await?;
    Ok(wire::ok(wire::text(&wire::Chunk::from(&chunk))))
}

/// Exactly the turns of a chunk.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/chunks/{id}/expand",
    operation_id = "expandChunk",
    tag = "chunks",
    params(("id" = String, Path, description = "The chunk."), InMemory),
    responses((status = 200, description = "The turns", body = wire::Turns))
)]
pub(crate) async fn expand(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(id): Segment,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    let turns = app.memory.expand_within(&scope, &id, app.limits.answer_bytes).await?;
    let body = beside(wire::turn_bytes(&turns), move || wire::turns(&turns)).await?;
    Ok(wire::ok(body))
}

/// What is there and what is still due, of the tenant or of one memory.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/stats",
    operation_id = "getStats",
    tag = "operations",
    params(InTenant),
    responses((status = 200, description = "The counts", body = wire::Stats))
)]
pub(crate) async fn stats(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
) -> Result<Response, ApiError> {
    let memory = caller.filter(&app, params.memory()?).await?;
    let stats = app.memory.stats(caller.tenant(), memory.as_deref()).await?;
    let usage = app.host.bounds.usage(caller.tenant()).await?;
    Ok(wire::ok(wire::text(&wire::Stats::of(memory.as_deref(), &stats, &usage))))
}
