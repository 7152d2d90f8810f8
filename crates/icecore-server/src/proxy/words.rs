//! What a refused caller is told, in the words of its provider.
//!
//! ```json
//! {"error":{"message":"…","type":"invalid_request_error","param":null,"code":"body_too_large"}}
//! {"type":"error","error":{"type":"request_too_large","message":"…","code":"body_too_large"}}
//! ```

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt;
use icecore::models::Protocol;
use icecore::sessions::ExceedsWindow;
use serde_json::{Value, json};

use super::relay::FromUpstream;
use crate::wire;

/// A refusal of ours in the provider's form. What came from the provider stays.
pub(crate) async fn in_their_words(protocol: Protocol, response: Response) -> Response {
    let status = response.status();
    let is_ours = response.extensions().get::<FromUpstream>().is_none();
    if !is_ours || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // Our own bodies are at hand, and so cannot fail to be read.
    let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let told: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let told = body_of(protocol, status, &told).to_string();
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(told.len()));
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, Body::from(told))
}

/// The provider's form of our envelope.
fn body_of(protocol: Protocol, status: StatusCode, told: &Value) -> Value {
    let message = told["message"].as_str().unwrap_or("the request was refused");
    let code = told["error"].as_str().unwrap_or("refused");
    let mut error = json!({ "type": kind(protocol, status), "message": message, "code": code });
    if protocol == Protocol::OpenAi {
        error["param"] = Value::Null;
    }
    if let Some(details) = told.get("details") {
        error["details"] = details.clone();
    }
    envelope(protocol, error)
}

fn envelope(protocol: Protocol, error: Value) -> Value {
    match protocol {
        Protocol::OpenAi => json!({ "error": error }),
        Protocol::Anthropic => json!({ "type": "error", "error": error }),
    }
}

/// The providers' own words for kinds of errors.
fn kind(protocol: Protocol, status: StatusCode) -> &'static str {
    match (protocol, status.as_u16()) {
        (_, 401) => "authentication_error",
        (_, 403) => "permission_error",
        (_, 429) => "rate_limit_error",
        (Protocol::OpenAi, 400..=499) => "invalid_request_error",
        (Protocol::OpenAi, _) => "server_error",
        (Protocol::Anthropic, 404) => "not_found_error",
        (Protocol::Anthropic, 413) => "request_too_large",
        (Protocol::Anthropic, 400..=499) => "invalid_request_error",
        (Protocol::Anthropic, 504) => "timeout_error",
        (Protocol::Anthropic, _) => "api_error",
    }
}

/// What a person can do about a request whose floor no window holds.
const HINT: &str = "nothing was sent, and what is new is kept; shorten the system prompt, the \
                    tools, the last request or max_tokens, or declare a larger window";

/// The answer to a request that cannot be made to fit: as the provider would say it.
pub(crate) fn exceeds(protocol: Protocol, told: &ExceedsWindow) -> Response {
    let (floor, window, reserve) = (told.floor, told.window, told.reserve);
    let error = match protocol {
        Protocol::OpenAi => json!({
            "message": format!(
                "This model's maximum context length is {window} tokens. However, what must stay of your messages has {floor} tokens, and {reserve} are reserved for the answer ({HINT})."
            ),
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }),
        Protocol::Anthropic => json!({
            "type": "invalid_request_error",
            "message": format!(
                "prompt is too long: {} tokens > {window} maximum ({floor} that must stay and {reserve} reserved for the answer; {HINT})",
                floor.saturating_add(reserve)
            ),
        }),
    };
    let mut response = wire::json(StatusCode::BAD_REQUEST, envelope(protocol, error).to_string());
    response.extensions_mut().insert(FromUpstream);
    response
}

/// An error within a stream that has begun.
pub(crate) fn event(protocol: Protocol, code: &str, message: &str) -> String {
    let told = json!({ "error": code, "message": message });
    let body = body_of(protocol, StatusCode::GATEWAY_TIMEOUT, &told);
    match protocol {
        Protocol::OpenAi => format!("data: {body}\n\n"),
        Protocol::Anthropic => format!("event: error\ndata: {body}\n\n"),
    }
}
