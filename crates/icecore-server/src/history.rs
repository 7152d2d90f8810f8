//! Reading what is there: sessions, views, chunks, archives, counts.

use axum::extract::State;
use axum::response::Response;

use crate::app::{App, Shared};
use crate::auth::Reader;
use crate::error::ApiError;
use crate::params::{Params, Segment};
use crate::wire;

/// Sessions in the order they began: all of them, or a page with `limit`, which
/// goes on with `after` the last name.
pub(crate) async fn sessions(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    let sessions = app.memory.sessions(&scope).await?;
    let sessions = page(&app, &params, sessions, |session| session.session.clone())?;
    Ok(wire::ok(wire::list("sessions", sessions.iter().map(wire::session), "")))
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

/// What a person sees of a session, or what a model is sent. The two are the
/// same until a session is compacted.
pub(crate) async fn view(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(session): Segment,
    params: Params,
) -> Result<Response, ApiError> {
    if !matches!(params.text("view")?, None | Some("display" | "api")) {
        return Err(ApiError::invalid("parameter `view` must be `display` or `api`"));
    }
    let scope = caller.scope(&app, params.memory()?).await?;
    let view = app.memory.view(&scope, &session, params.text("branch")?).await?;
    let tokens = format!(r#""tokens":{}"#, view.tokens);
    Ok(wire::ok(wire::list("messages", view.messages.iter().map(wire::turn), &tokens)))
}

/// Chunks of a session or of all; paged as sessions are.
pub(crate) async fn chunks(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    let chunks = app.memory.chunks(&scope, params.text("session")?).await?;
    let chunks = page(&app, &params, chunks, |chunk| chunk.id.to_string())?;
    Ok(wire::ok(wire::list("chunks", chunks.iter().map(wire::chunk), "")))
}

pub(crate) async fn chunk(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(id): Segment,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    Ok(wire::ok(wire::chunk(&app.memory.chunk(&scope, &id).await?)))
}

/// Exactly the turns of a chunk.
pub(crate) async fn expand(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(id): Segment,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    let turns = app.memory.expand(&scope, &id).await?;
    Ok(wire::ok(wire::list("turns", turns.iter().map(wire::turn), "")))
}

/// Archives are written by dreams, so there are none yet.
pub(crate) async fn archives(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
) -> Result<Response, ApiError> {
    caller.filter(&app, params.memory()?).await?;
    Ok(wire::ok(wire::list("archives", std::iter::empty(), "")))
}

/// What is there and what is still due, of the tenant or of one memory.
pub(crate) async fn stats(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
) -> Result<Response, ApiError> {
    let memory = caller.filter(&app, params.memory()?).await?;
    let stats = app.memory.stats(caller.tenant(), memory.as_deref()).await?;
    Ok(wire::ok(wire::stats(memory.as_deref(), &stats)))
}
