//! What of a message's head goes on, and what is between two machines alone.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// Decides the session.
pub(crate) const SESSION: HeaderName = HeaderName::from_static("x-icecore-session");
/// The memory.
pub(crate) const MEMORY: HeaderName = HeaderName::from_static("x-icecore-memory");
/// How a history goes with what is stored.
pub(crate) const FOLLOWING: HeaderName = HeaderName::from_static("x-icecore-following");
/// The compaction that was made for a request.
pub(crate) const COMPACTION: HeaderName = HeaderName::from_static("x-icecore-compaction");
/// Tokens of the request as it went on.
pub(crate) const REQUEST_TOKENS: HeaderName = HeaderName::from_static("x-icecore-request-tokens");
/// Tokens of a model that we asked for it.
pub(crate) const DISTILLATION: HeaderName =
    HeaderName::from_static("x-icecore-distillation-tokens");
/// Why a request went through untouched.
pub(crate) const PASSTHROUGH: HeaderName = HeaderName::from_static("x-icecore-passthrough");
/// What did not go as it should.
pub(crate) const WARNING: HeaderName = HeaderName::from_static("x-icecore-warning");
/// Anthropic's header for keys.
pub(crate) const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// By which a provider knows a request that it has had already.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The official clients count their retries.
pub(crate) const RETRY_COUNT: HeaderName = HeaderName::from_static("x-stainless-retry-count");

const OURS: &str = "x-icecore-";

/// Headers that are between two machines.
const HOP_BY_HOP: [&str; 9] = [
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade",
];

/// Of a request: what is said anew and where the client is.
const NOT_SENT: [&str; 9] = [
    "accept-encoding", "content-length", "cookie", "expect", "forwarded", "host", "via",
    "x-forwarded-for", "x-real-ip",
];

/// Of an answer: what would be about our own address.
const NOT_ANSWERED: [&str; 2] = ["alt-svc", "strict-transport-security"];

/// What of a request goes upstream. Its keys are left to whoever knows whose they are.
pub(crate) fn sent(headers: &HeaderMap) -> HeaderMap {
    let mut sent = between(headers, &NOT_SENT);
    sent.remove(header::AUTHORIZATION);
    sent.remove(API_KEY);
    // Without a word any encoding would do, and none of them could be read along.
    sent.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    sent
}

/// Whether an answer is in an encoding that we do not read.
pub(crate) fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(header::CONTENT_ENCODING).iter().any(|coding| coding != "identity")
}

/// What of an answer goes back.
pub(crate) fn answered(headers: &HeaderMap) -> HeaderMap {
    between(headers, &NOT_ANSWERED)
}

fn between(headers: &HeaderMap, left_out: &[&str]) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(|name| name.trim().to_ascii_lowercase()))
        .collect();
    let goes_on = |name: &&HeaderName| {
        let name = name.as_str();
        let is_between = HOP_BY_HOP.contains(&name) || named.iter().any(|one| one == name);
        let is_ours = name.starts_with(OURS) || name.starts_with("access-control-");
        !is_between && !is_ours && !left_out.contains(&name)
    };
    let mut kept = HeaderMap::with_capacity(headers.len());
    for name in headers.keys().filter(goes_on) {
        for value in headers.get_all(name) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// A header of ours with a word, a name or a number as its value. What no header can hold
/// is told as it can.
pub(crate) fn told(text: &str) -> HeaderValue {
    // Names may be of any script, and a header is bytes.
    HeaderValue::from_bytes(text.as_bytes()).unwrap_or_else(|_| {
        let plain: String = text.escape_default().take(1_024).collect();
        HeaderValue::from_str(&plain).unwrap_or(HeaderValue::from_static("unreadable"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_is_between_machines_stays_there() {
        let asked = map(&[
            ("host", "localhost"),
            ("connection", "keep-alive, X-Hop"),
            ("x-hop", "1"),
            ("accept-encoding", "gzip"),
            ("authorization", "Bearer k"),
            ("x-api-key", "k"),
            ("x-icecore-session", "s"),
            ("content-length", "3"),
            ("anthropic-beta", "a"),
            ("anthropic-beta", "b"),
            ("idempotency-key", "i"),
            ("content-type", "application/json"),
        ]);
        let found = sent(&asked);
        let expected = ["accept-encoding", "anthropic-beta", "content-type", "idempotency-key"];
        assert_eq!(names(&found), expected);
        assert_eq!(found["accept-encoding"], "identity");
        assert_eq!(found.get_all("anthropic-beta").iter().count(), 2);
        let given = map(&[
            ("content-type", "text/event-stream"),
            ("transfer-encoding", "chunked"),
            ("access-control-allow-origin", "*"),
            ("alt-svc", "h3"),
            ("request-id", "r"),
            ("retry-after", "3"),
        ]);
        assert_eq!(names(&answered(&given)), ["content-type", "request-id", "retry-after"]);
    }

    #[test]
    fn names_that_no_header_holds_are_still_told() {
        assert_eq!(told("trip"), "trip");
        assert_eq!(told("a\nb"), "a\\nb");
        assert_eq!(told("日記").as_bytes(), "日記".as_bytes());
    }
}
