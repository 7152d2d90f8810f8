//! Who may be speaking through somebody's browser.
//!
//! A page that rebinds its name to this machine sends its own name as `Host`; a
//! page from elsewhere sends its own `Origin`. Neither gets further.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};

use crate::error::ApiError;

/// Refuses requests for other hosts and from other origins.
pub(crate) fn check(on_loopback: bool, request: &Request) -> Result<(), ApiError> {
    let host = text(request.headers(), &header::HOST)
        .or_else(|| request.uri().authority().map(|authority| authority.as_str()));
    if on_loopback && host.is_some_and(|host| !is_loopback(host)) {
        return Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "forbidden_host",
            "this host listens on loopback and answers only to localhost, 127.0.0.1 and [::1]",
        ));
    }
    let Some(origin) = request.headers().get(header::ORIGIN) else { return Ok(()) };
    let from = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    match (from, host) {
        (Some((_, from)), Some(host)) if from.eq_ignore_ascii_case(host) => Ok(()),
        _ => Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "forbidden_origin",
            "pages of other origins may not use this host",
        )),
    }
}

/// A header that cannot be read is a host that we are not.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"))
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_few_names() {
        let yes =
            ["localhost", "LOCALHOST:7433", "127.0.0.1", "127.9.9.9:1", "[::1]:7433", "[::1]"];
        let no =
            ["", "example.com", "localhost.example.com", "127.0.0.1.example.com", "10.0.0.1:80"];
        yes.iter().for_each(|host| assert!(is_loopback(host), "{host}"));
        no.iter().for_each(|host| assert!(!is_loopback(host), "{host}"));
    }

    #[test]
    fn origins_must_be_our_own() {
        let check = |host: &str, origin: Option<&str>| {
            let mut request = Request::builder().header("host", host);
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            check(false, &request.body(axum::body::Body::empty()).unwrap()).is_ok()
        };
        assert!(check("memory.example:80", None));
        assert!(check("memory.example:80", Some("http://memory.example:80")));
        assert!(!check("memory.example:80", Some("http://evil.example")));
        assert!(!check("memory.example:80", Some("http://memory.example:81")));
        assert!(!check("memory.example:80", Some("null")));
    }
}
