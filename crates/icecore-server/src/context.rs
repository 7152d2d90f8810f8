//! The context for a prompt.

use axum::extract::State;
use axum::response::Response;
use icecore::ContextRequest;

use crate::app::Shared;
use crate::auth::Reader;
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::{Attempt, replay};
use crate::params::Params;
use crate::wire;

const OPERATION: &str = "POST /context";

/// Builds a context. Though posted, it only reads.
pub(crate) async fn build(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let memory = fields.memory(params.memory()?)?;
    let scope = caller.scope(&app, memory.as_deref()).await?;
    let as_messages = match fields.text("format")?.as_deref() {
        None | Some("text") => false,
        Some("messages") => true,
        Some(_) => return Err(ApiError::invalid("field `format` must be `text` or `messages`")),
    };
    let request = ContextRequest {
        session: fields.text("session")?,
        branch: fields.text("branch")?,
        query: fields.text("query")?,
        budget: fields.bounded("budget", app.limits.context_tokens, "context_tokens")?,
    };
    if request.branch.is_some() && request.session.is_none() {
        return Err(ApiError::invalid("field `branch` needs a `session`"));
    }

    let attempt = Attempt::begin(&app, &caller, OPERATION, &posted).await;
    if let Some(attempt) = &attempt
        && let Some(body) = app.answers.find(attempt)?
    {
        return Ok(replay(200, body));
    }
    let context = app.memory.context(&scope, request).await?;
    let body = wire::context(&context, as_messages);
    if let Some(attempt) = attempt {
        app.answers.keep(attempt, &body);
    }
    Ok(wire::ok(body))
}
