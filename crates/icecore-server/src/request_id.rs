//! The word by which a request is found in the log.
//!
//! A caller may choose it (`X-Request-Id`), unless it looks like something that must
//! not stand in a log.

use std::sync::{Arc, OnceLock};

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use icecore::Tenant;
use icecore::privacy::Redactor;

use crate::app::App;
use crate::keys::KEY_PREFIX;
use crate::proxy::API_KEY;

/// Where it comes from and goes to.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const MOST_CHARS: usize = 128;

tokio::task_local! {
    /// The id of the request that this task works on.
    pub(crate) static CURRENT: RequestId;
}

/// A request's id. The caller's word counts once its secrets were looked for.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    given: Option<String>,
    shown: OnceLock<String>,
}

impl RequestId {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
        let given = given.filter(|given| {
            let is_word = given.bytes().all(|byte| byte.is_ascii_graphic());
            is_word
                && (1..=MOST_CHARS).contains(&given.len())
                && !repeats_key(headers, given)
                && is_open(&Redactor::standard(), given)
        });
        Self(Arc::new(Inner { given: given.map(str::to_owned), shown: OnceLock::new() }))
    }

    pub(crate) fn is_given(&self) -> bool {
        self.0.given.is_some()
    }

    /// The tenant is known, and with it what else is secret.
    pub(crate) async fn settle(&self, app: &App, tenant: &Tenant) {
        let Some(given) = &self.0.given else { return };
        let known = app.memory.redactor(tenant).await;
        if !known.is_ok_and(|known| is_open(&known.redactor, given)) {
            let _ = self.0.shown.set(made());
        }
        tracing::Span::current().record("request_id", self.shown());
    }

    /// The id, from now on the same.
    pub(crate) fn shown(&self) -> &str {
        self.0.shown.get_or_init(|| self.0.given.clone().unwrap_or_else(made))
    }

    pub(crate) fn header(&self) -> HeaderValue {
        // Only visible characters got in.
        HeaderValue::from_str(self.shown()).unwrap_or(HeaderValue::from_static("unknown"))
    }
}

impl Default for RequestId {
    fn default() -> Self {
        Self::of(&HeaderMap::new())
    }
}

/// Whether a caller sent its own key as an id, with or without the key's prefix.
/// Of whatever kind it is: the key of somebody else's host is a secret too.
fn repeats_key(headers: &HeaderMap, given: &str) -> bool {
    let bearer = headers.get_all(header::AUTHORIZATION).iter();
    let values = bearer.chain(headers.get_all(API_KEY));
    let mut words = values.filter_map(|value| value.to_str().ok()).flat_map(|value| {
        let (_, rest) = value.split_once(' ').unwrap_or(("", value));
        rest.split_ascii_whitespace()
    });
    words.any(|key| given.contains(key.strip_prefix(KEY_PREFIX).unwrap_or(key)))
}

fn is_open(redactor: &Redactor, text: &str) -> bool {
    redactor.text(text).into_string() == text
}

/// The id of the request at hand, or a new one where there is none.
pub(crate) fn current() -> String {
    CURRENT.try_with(|id| id.shown().to_owned()).unwrap_or_else(|_| made())
}

/// A new id.
pub(crate) fn made() -> String {
    let mut bytes = [0; 8];
    // Without randomness the id is of little use, and nothing depends on it.
    let _ = getrandom::fill(&mut bytes);
    hex::encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_word_is_kept_unless_it_tells() {
        let shown = |given: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(given.as_bytes()).unwrap());
            RequestId::of(&headers).shown().to_owned()
        };
        let keeps = |given: &str| assert_eq!(shown(given), given);
        keeps("a");
        keeps("0190f1c4-7a51-7c1e-9d43-2f1a7c9be001");
        keeps("run-17/step.3:retry~2");
        keeps(&"x".repeat(128));
        let replaces = |given: &str| {
            let shown = shown(given);
            assert!(shown.len() == 16 && shown != given, "{given}: {shown}");
        };
        replaces("");
        replaces("two words");
        replaces("b\u{fc}cher");
        replaces(&"x".repeat(129));
        replaces(&format!("ghp_{}", "a1B2".repeat(9)));
        let key = format!("{KEY_PREFIX}{}", "0a1b2c3d4e5f6789".repeat(4));
        replaces(&key);
        replaces(&key[..40]);
        replaces(&format!("run-{key}-7"));
    }

    #[test]
    fn a_callers_key_is_no_id() {
        let keeps = |authorization: &str, given: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_str(given).unwrap());
            let authorization = HeaderValue::from_str(authorization).unwrap();
            headers.insert(header::AUTHORIZATION, authorization);
            RequestId::of(&headers).shown() == given
        };
        assert!(keeps("Bearer plain-old-word", "run-17"));
        assert!(!keeps("Bearer plain-old-word", "plain-old-word"));
        assert!(!keeps("Bearer plain-old-word", "run-plain-old-word-17"));
        assert!(!keeps("bearer  plain-old-word ", "plain-old-word"));
        assert!(!keeps("plain-old-word", "plain-old-word"));
        let digits = "9a1b2c3d4e5f6780".repeat(4);
        assert!(keeps("Bearer other", &digits));
        assert!(!keeps(&format!("Bearer {KEY_PREFIX}{digits}"), &digits));
    }
}
