//! Hides secrets in what a refused caller is told.
//!
//! Refusals name what was sent: a session, an id, a field. Any of that may be a
//! secret, of the table's kinds or of the caller's tenant. So whatever is not a
//! success passes here, whoever made it.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use http_body_util::BodyExt;
use icecore::Tenant;
use icecore::privacy::Redactor;
use serde_json::Value;

use crate::app::App;
use crate::proxy::FromUpstream;
use crate::request_id::RequestId;

/// Who is calling, once that is known: set where the key is found, read where the
/// answer leaves.
#[derive(Debug, Clone, Default)]
pub(crate) struct CalledBy {
    tenant: Arc<OnceLock<Tenant>>,
    pub(crate) id: RequestId,
}

impl CalledBy {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self { tenant: Arc::default(), id: RequestId::of(headers) }
    }

    pub(crate) fn is(&self, tenant: &Tenant) {
        // A request has one key.
        let _ = self.tenant.set(tenant.clone());
    }
}

/// What stands in place of text that cannot be looked through.
const UNTOLD: &str = "the host cannot read the secrets of this tenant, and so says no more";

/// The answer, without secrets if it is a refusal.
pub(crate) async fn clean(app: &App, by: &CalledBy, response: Response) -> Response {
    let status = response.status();
    let is_theirs = response.extensions().get::<FromUpstream>().is_some();
    if is_theirs || !status.is_client_error() && !status.is_server_error() {
        return response;
    }
    let redactor = match by.tenant.get() {
        None => Some(Redactor::standard()),
        Some(tenant) => app.memory.redactor(tenant).await.ok().map(|known| known.redactor),
    };
    let (mut parts, body) = response.into_parts();
    // Our own bodies are at hand, and so cannot fail to be read.
    let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let hide = |text: &str| match &redactor {
        Some(redactor) => redactor.text(text).into_string(),
        None => UNTOLD.to_owned(),
    };
    let clean = match serde_json::from_str::<Value>(&text) {
        Ok(mut told) => {
            told.as_object_mut().into_iter().flatten().for_each(|(key, value)| {
                // Codes are ours.
                if key != "error" {
                    each_text(value, &hide);
                }
            });
            if status.is_server_error() && told.is_object() {
                told["details"]["correlationId"] = by.id.shown().into();
            }
            told.to_string()
        }
        Err(_) if text.is_empty() => String::new(),
        Err(_) => hide(&text),
    };
    if parts.headers.contains_key(header::CONTENT_LENGTH) {
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(clean.len()));
    }
    Response::from_parts(parts, Body::from(clean))
}

fn each_text(value: &mut Value, hide: &impl Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = hide(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, hide)),
        Value::Object(members) => members.values_mut().for_each(|value| each_text(value, hide)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use icecore::Memory;
    use serde_json::json;
    use zeroize::Zeroizing;

    use super::*;
    use crate::limits::Limits;

    async fn cleaned(by: &CalledBy, status: StatusCode, body: Value) -> Value {
        let (_close, closing) = tokio::sync::watch::channel(false);
        let memory = Memory::in_memory();
        let tenant = Tenant::new("t").unwrap();
        let value = Zeroizing::new("q8Zk2Lm9Xw4R".to_owned());
        memory.add_secret(&tenant, "db", value, false).await.unwrap();
        let app = App::new(memory, Limits::default(), ([127, 0, 0, 1], 0).into(), closing);
        let response = crate::wire::json(status, body.to_string());
        let response = clean(&app, by, response).await;
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn refusals_lose_their_secrets_and_successes_stay() {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let body = json!({
            "error": "not_found",
            "message": format!("no session `{token}` or `q8Zk2Lm9Xw4R`"),
            "details": { "ids": ["q8Zk2Lm9Xw4R", 7], "index": 3 },
        });
        let by = CalledBy::default();
        let found = cleaned(&by, StatusCode::NOT_FOUND, body.clone()).await;
        assert_eq!(found["message"], "no session `[REDACTED:github-token]` or `q8Zk2Lm9Xw4R`");
        by.is(&Tenant::new("t").unwrap());
        let found = cleaned(&by, StatusCode::NOT_FOUND, body.clone()).await;
        let expected = json!({
            "error": "not_found",
            "message": "no session `[REDACTED:github-token]` or `[REDACTED:db]`",
            "details": { "ids": ["[REDACTED:db]", 7], "index": 3 },
        });
        assert_eq!(found, expected);
        assert_eq!(cleaned(&by, StatusCode::OK, body.clone()).await, body);
    }
}
