//! The page to read and try the routes.
//!
//! One file with its style and script inside, named by their hashes: nothing is
//! loaded from elsewhere, and nothing else may run in it.

use std::sync::LazyLock;

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};

use crate::wire;

const PAGE: &str = include_str!("../assets/docs.html");

const STYLE: &str = include_str!("../assets/docs.css");

const SCRIPT: &str = include_str!("../assets/docs.js");

/// The page, whole.
static WHOLE: LazyLock<String> =
    LazyLock::new(|| PAGE.replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", SCRIPT));

/// What the page may do: run its own script, look as it does, and ask this host.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        hash(SCRIPT),
        hash(STYLE)
    )
});

/// A page to read and try the routes. Needs no key; what it sends does.
#[utoipa::path(
    get,
    path = "/docs",
    operation_id = "getDocs",
    tag = "documents",
    security(()),
    responses((status = 200, description = "The page", body = String, content_type = "text/html"))
)]
pub(crate) async fn page() -> Response {
    let mut response = WHOLE.as_str().into_response();
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // The policy is plain ASCII, so the other arm is never taken.
    let policy =
        HeaderValue::from_str(&POLICY).unwrap_or(HeaderValue::from_static("default-src 'none'"));
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}

const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    (header::CACHE_CONTROL, "no-cache"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Where to look next.
#[utoipa::path(
    get,
    path = "/",
    operation_id = "getWelcome",
    tag = "documents",
    security(()),
    responses((status = 200, description = "Who this is", body = wire::Welcome))
)]
pub(crate) async fn welcome() -> Response {
    wire::ok(wire::text(&wire::Welcome {
        name: "icecore",
        version: env!("CARGO_PKG_VERSION"),
        docs: "/docs",
        openapi: "/v1/openapi.json",
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_stands_alone() {
        assert!(WHOLE.contains(SCRIPT) && WHOLE.contains(STYLE));
        for outside in ["http://", "https://", "@import", "url(", "localStorage", "sessionStorage"]
        {
            assert!(!WHOLE.contains(outside), "{outside}");
        }
        // Inline handlers and styles would not run under the policy.
        for inline in [" style=\"", " onclick=", "innerHTML", "eval("] {
            assert!(!WHOLE.contains(inline), "{inline}");
        }
        // A closing tag in either would end it early.
        assert!(!SCRIPT.contains("</") && !STYLE.contains("</"));
    }
}
