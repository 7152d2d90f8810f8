//! The routes, as the providers have them.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::Method;
use axum::response::Response;
use icecore::models::Protocol;
use serde_json::Value;
use utoipa::ToSchema;

use super::converse::Asking;
use super::protocol_of;
use crate::app::Shared;
use crate::auth::{Reader, Writer};
use crate::body::{self, Bound};
use crate::error::ApiError;
use crate::line::Line;
use crate::refusal::CalledBy;
use crate::work::Work;

/// An error as OpenAI has it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `words.rs` writes")]
pub(crate) struct OpenAiError {
    /// `message`, `type`, `param` and `code`, and `details` where there are any.
    #[schema(value_type = Object)]
    error: Value,
}

/// An error as Anthropic has it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes what `words.rs` writes")]
pub(crate) struct AnthropicError {
    /// `error`.
    r#type: String,
    /// `type`, `message` and `code`, and `details` where there are any.
    #[schema(value_type = Object)]
    error: Value,
}

impl FromRequest<Shared> for Asking {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Shared) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let principal = match app.proxy.principal() {
            Some(principal) => {
                if let Some(by) = parts.extensions.get::<CalledBy>() {
                    by.is(principal.tenant());
                }
                principal.clone()
            }
            None if parts.method == Method::GET => {
                let Reader(caller) = Reader::from_request_parts(&mut parts, app).await?;
                caller.principal().clone()
            }
            None => {
                let Writer(caller) = Writer::from_request_parts(&mut parts, app).await?;
                caller.principal().clone()
            }
        };
        let work = parts.extensions.get::<Work>().cloned().unwrap_or_else(|| Work::new(app));
        let line = parts.extensions.get::<Arc<Line>>();
        let (most, name) = app.limits.proxy_body();
        let bound = Bound { most, name };
        let bytes = body::taken(&work, app, line, &parts.headers, bound, body).await?;
        let (protocol, rest) = address(&parts.uri)
            .ok_or_else(|| ApiError::missing("there is no such route of the proxy"))?;
        Ok(Self {
            app: Arc::clone(app),
            work,
            principal,
            protocol,
            rest,
            method: parts.method,
            headers: parts.headers,
            body: bytes,
        })
    }
}

/// The protocol of an address, and what stands behind its version path.
fn address(uri: &axum::http::Uri) -> Option<(Protocol, String)> {
    let protocol = protocol_of(uri.path())?;
    let prefix = format!("/{}/v1", protocol.as_str());
    let rest = uri.path().strip_prefix(&prefix)?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    Some((protocol, format!("{rest}{query}")))
}

/// A chat, as with OpenAI: the whole history in, the answer out, and never too long.
///
/// The body goes on to the provider as it is, with a handoff in place of messages that no
/// longer fit. The answer comes back unchanged, streamed where it was asked for so.
#[utoipa::path(
    post,
    path = "/openai/v1/chat/completions",
    operation_id = "chatCompletions",
    tag = "proxy",
    params(
        ("X-Icecore-Session" = Option<String>, Header, description = "The session; without it, the one whose history it is."),
        ("X-Icecore-Memory" = Option<String>, Header, description = "The memory; `default` where none is named."),
    ),
    request_body(content = Object, description = "As OpenAI has it", example = json!({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Hello"}]})),
    responses((status = 200, description = "The provider's answer", content((Object = "application/json"), (String = "text/event-stream")))),
)]
pub(crate) async fn chat_completions(
    State(_): State<Shared>,
    asking: Asking,
) -> Result<Response, ApiError> {
    asking.converse().await
}

/// The models of the provider.
#[utoipa::path(
    get,
    path = "/openai/v1/models",
    operation_id = "listModels",
    tag = "proxy",
    responses((status = 200, description = "The provider's answer", body = Object)),
)]
pub(crate) async fn models(State(_): State<Shared>, asking: Asking) -> Result<Response, ApiError> {
    asking.pass().await
}

/// A message, as with Anthropic: the whole history in, the answer out, and never too long.
///
/// The body goes on to the provider as it is, with a handoff in place of messages that no
/// longer fit. The answer comes back unchanged, streamed where it was asked for so. The key
/// may also be shown as `x-api-key`.
#[utoipa::path(
    post,
    path = "/anthropic/v1/messages",
    operation_id = "createMessage",
    tag = "proxy",
    params(
        ("X-Icecore-Session" = Option<String>, Header, description = "The session; without it, the one whose history it is."),
        ("X-Icecore-Memory" = Option<String>, Header, description = "The memory; `default` where none is named."),
    ),
    request_body(content = Object, description = "As Anthropic has it", example = json!({"model": "claude-sonnet-4-5", "max_tokens": 1024, "messages": [{"role": "user", "content": "Hello"}]})),
    responses((status = 200, description = "The provider's answer", content((Object = "application/json"), (String = "text/event-stream")))),
)]
pub(crate) async fn messages(
    State(_): State<Shared>,
    asking: Asking,
) -> Result<Response, ApiError> {
    asking.converse().await
}

/// Tokens of a message, as the provider counts them.
#[utoipa::path(
    post,
    path = "/anthropic/v1/messages/count_tokens",
    operation_id = "countTokens",
    tag = "proxy",
    request_body(content = Object, description = "As Anthropic has it", example = json!({"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "Hello"}]})),
    responses((status = 200, description = "The provider's answer", body = Object)),
)]
pub(crate) async fn count_tokens(
    State(_): State<Shared>,
    asking: Asking,
) -> Result<Response, ApiError> {
    asking.pass().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_the_version_goes_on() {
        let check = |uri: &str, expected: Option<(Protocol, &str)>| {
            let found = address(&uri.parse().unwrap());
            let found = found.as_ref().map(|(protocol, rest)| (*protocol, rest.as_str()));
            assert_eq!(found, expected, "{uri}");
        };
        let openai = Protocol::OpenAi;
        check("/openai/v1/chat/completions", Some((openai, "/chat/completions")));
        check("/openai/v1/files?limit=2", Some((openai, "/files?limit=2")));
        check(
            "/anthropic/v1/messages?beta=true",
            Some((Protocol::Anthropic, "/messages?beta=true")),
        );
        check("/openai/v2/x", None);
        check("/other/v1/x", None);
    }
}
