//! The context for a prompt.

use axum::extract::State;
use axum::response::Response;
use icecore::ContextRequest;
use utoipa::ToSchema;

use crate::app::{App, Shared};
use crate::auth::Reader;
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::{Attempt, replay};
use crate::params::{InMemory, Params};
use crate::wire;

const OPERATION: &str = "POST /context";

/// What a context is asked for.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct ContextBody {
    /// Which memory; `default` where none is named.
    memory_ref: Option<String>,
    /// What the prompt is about.
    #[schema(example = "When do we leave?")]
    query: Option<String>,
    /// The session that goes on.
    session: Option<String>,
    /// A branch of the session; needs `session`.
    branch: Option<String>,
    /// The most tokens of the text, counted as o200k_base.
    #[schema(example = 500)]
    budget: u32,
    /// `messages` adds the items as messages of a chat.
    format: Option<ContextFormat>,
}

/// How a context comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ToSchema)]
#[schema(rename_all = "lowercase")]
enum ContextFormat {
    Text,
    Messages,
}

impl ContextBody {
    fn read(fields: &Fields<'_>, params: &Params, app: &App) -> Result<Self, ApiError> {
        let format = match fields.text("format")?.as_deref() {
            None => None,
            Some("text") => Some(ContextFormat::Text),
            Some("messages") => Some(ContextFormat::Messages),
            Some(_) => {
                return Err(ApiError::invalid("field `format` must be `text` or `messages`"));
            }
        };
        let body = Self {
            memory_ref: fields.memory(params.memory()?)?,
            query: fields.text("query")?,
            session: fields.text("session")?,
            branch: fields.text("branch")?,
            budget: fields.bounded("budget", app.limits.context_tokens, "context_tokens")?,
            format,
        };
        match body.branch.is_some() && body.session.is_none() {
            true => Err(ApiError::invalid("field `branch` needs a `session`")),
            false => Ok(body),
        }
    }
}

/// Builds a context within a budget. Though posted, it only reads.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/context",
    operation_id = "buildContext",
    tag = "recall",
    params(InMemory),
    request_body(
        content = ContextBody,
        example = json!({"query": "When do we leave?", "session": "trip", "budget": 500})
    ),
    responses((status = 200, description = "The context", body = wire::ContextAnswer))
)]
pub(crate) async fn build(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    let body = ContextBody::read(&Fields::parse(&posted.bytes)?, &params, &app)?;
    let scope = caller.scope(&app, body.memory_ref.as_deref()).await?;
    let as_messages = body.format == Some(ContextFormat::Messages);
    let request = ContextRequest {
        session: body.session,
        branch: body.branch,
        query: body.query,
        budget: body.budget,
    };

    let attempt = Attempt::begin(&app, &caller, OPERATION, &posted).await?;
    if let Some(attempt) = &attempt
        && let Some(body) = app.answers.find(&app, attempt).await?
    {
        return Ok(replay(200, body));
    }
    let context = app.memory.context(&scope, request).await?;
    let body = wire::text(&wire::ContextAnswer::of(&context, as_messages));
    if let Some(attempt) = attempt {
        app.answers.keep(attempt, &body);
    }
    Ok(wire::ok(body))
}
