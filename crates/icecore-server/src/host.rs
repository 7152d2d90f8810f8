//! Who may be speaking through somebody's browser.
//!
//! A page that rebinds its name to this machine sends its own name as `Host`; a
//! page from elsewhere sends its own `Origin`, or says `Sec-Fetch-Site: cross-site`.
//! None of them gets further, and nothing is ever allowed to other origins (CORS).
//!
//! On loopback we answer to its names and to `allowed_hosts`. At another address we
//! answer to `allowed_hosts`, to bare addresses (a name is what gets rebound) and to
//! the names of loopback; without such a list, to any name, for it is a proxy's task
//! then. A socket in the file system is out of every browser's reach, so any `Host`
//! is good there.

use std::net::{IpAddr, SocketAddr};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, StatusCode, Version, header};

use crate::error::ApiError;

/// The names we answer to.
#[derive(Debug, Clone)]
pub(crate) struct Hosts {
    reach: Reach,
    allowed: Vec<String>,
}

/// Who can reach us at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Loopback,
    Network,
    File,
}

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

impl Hosts {
    pub(crate) fn at(address: SocketAddr, allowed: Vec<String>) -> Self {
        let reach = if address.ip().is_loopback() { Reach::Loopback } else { Reach::Network };
        Self { reach, allowed }
    }

    pub(crate) fn in_file() -> Self {
        Self { reach: Reach::File, allowed: Vec::new() }
    }

    /// Whether only this machine can reach us.
    pub(crate) fn are_near(&self) -> bool {
        self.reach != Reach::Network
    }

    fn knows(&self, host: &str) -> bool {
        let name = name(host);
        let listed = || self.allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(name));
        match self.reach {
            Reach::File => true,
            Reach::Loopback => is_loopback(name) || listed(),
            Reach::Network if self.allowed.is_empty() => true,
            Reach::Network => name.parse::<IpAddr>().is_ok() || is_loopback(name) || listed(),
        }
    }

    /// Refuses requests for other hosts and from other origins.
    pub(crate) fn check(&self, request: &Request) -> Result<(), ApiError> {
        let headers = request.headers();
        let header = the_host(headers, request.version())?;
        let target = request.uri().authority().map(|authority| authority.as_str());
        // A target that names a host is for that one, whatever the header says; who
        // reads the header alone must not be misled either.
        let host = target.or(header);
        let named = || target.into_iter().chain(header);
        if named().any(|host| host.contains('@')) {
            return Err(ApiError::invalid("a host is a name and a port, without `@`"));
        }
        if named().any(|host| !self.knows(host)) {
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "forbidden_host",
                match self.reach {
                    Reach::Loopback => {
                        "this host listens on loopback and answers only to localhost, 127.0.0.1, [::1] and `allowed_hosts`"
                    }
                    Reach::Network | Reach::File => {
                        "this host answers only to addresses and to `allowed_hosts`"
                    }
                },
            ));
        }
        let elsewhere = || {
            ApiError::new(
                StatusCode::FORBIDDEN,
                "forbidden_origin",
                "pages of other origins may not use this host",
            )
        };
        if text(headers, &FETCH_SITE).is_some_and(|site| site.eq_ignore_ascii_case("cross-site")) {
            return Err(elsewhere());
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let from = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        match (from, host) {
            (Some((_, from)), Some(host)) if from.eq_ignore_ascii_case(host) => Ok(()),
            _ => Err(elsewhere()),
        }
    }
}

/// The one header `Host`. Of two, who reads them would choose differently; HTTP/1.1
/// does not go without.
fn the_host(headers: &HeaderMap, version: Version) -> Result<Option<&str>, ApiError> {
    match headers.get_all(header::HOST).iter().count() {
        0 if version == Version::HTTP_11 => Err(ApiError::invalid("the header `Host` is missing")),
        0 | 1 => Ok(text(headers, &header::HOST)),
        _ => Err(ApiError::invalid("send one header `Host`")),
    }
}

/// A header that cannot be read is a host that we are not.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("unreadable"))
}

/// A host without its port.
fn name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

fn is_loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(address: &str, allowed: &[&str]) -> Hosts {
        let allowed = allowed.iter().map(|name| (*name).to_owned()).collect();
        Hosts::at(address.parse().unwrap(), allowed)
    }

    #[test]
    fn hosts_have_few_names() {
        let check = |hosts: &Hosts, yes: &[&str], no: &[&str]| {
            yes.iter().for_each(|host| assert!(hosts.knows(host), "{hosts:?} {host}"));
            no.iter().for_each(|host| assert!(!hosts.knows(host), "{hosts:?} {host}"));
        };
        let names =
            ["localhost", "LOCALHOST:7433", "127.0.0.1", "127.9.9.9:1", "[::1]:7433", "[::1]"];
        let others = ["", "example.com", "localhost.example.com", "127.0.0.1.example.com"];
        check(&hosts("127.0.0.1:1", &[]), &names, &others);
        check(&hosts("127.0.0.1:1", &[]), &[], &["10.0.0.1:80", "memory.example"]);
        let listed = ["memory.example", "Memory.Example:443"];
        check(&hosts("127.0.0.1:1", &["memory.example"]), &listed, &others);
        check(&hosts("0.0.0.0:1", &[]), &others, &[]);
        check(&hosts("0.0.0.0:1", &["memory.example"]), &listed, &others);
        let bare = ["10.0.0.1:80", "[2001:db8::1]:80", "localhost:80"];
        check(&hosts("10.0.0.1:80", &["memory.example"]), &bare, &["evil.example"]);
        check(&Hosts::in_file(), &others, &[]);
    }

    #[test]
    fn every_name_of_the_host_counts() {
        let check = |version: Version, target: &str, names: &[&str], expected: u16| {
            let mut request = Request::builder().version(version).uri(target);
            for name in names {
                request = request.header("host", *name);
            }
            let request = request.body(axum::body::Body::empty()).unwrap();
            let found = hosts("127.0.0.1:80", &[]).check(&request);
            let found = found.map_or_else(|error| error.status.as_u16(), |()| 200);
            assert_eq!(found, expected, "{version:?} {target} {names:?}");
        };
        let (old, new) = (Version::HTTP_10, Version::HTTP_11);
        check(new, "/", &["localhost"], 200);
        check(new, "/", &[], 400);
        check(old, "/", &[], 200);
        check(new, "/", &["localhost", "localhost"], 400);
        check(old, "/", &["localhost", "evil.example"], 400);
        check(new, "http://localhost:80/", &["localhost:80"], 200);
        check(new, "http://localhost/", &[], 400);
        check(new, "http://evil.example/", &["localhost"], 403);
        check(new, "http://localhost/", &["evil.example"], 403);
        check(new, "http://localhost@evil.example/", &["localhost"], 400);
        check(new, "/", &["localhost:80@evil.example"], 400);
        check(Version::HTTP_2, "http://localhost/", &[], 200);
    }

    #[test]
    fn origins_must_be_our_own() {
        let check = |host: &str, headers: &[(&str, &str)]| {
            let mut request = Request::builder().header("host", host);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let request = request.body(axum::body::Body::empty()).unwrap();
            hosts("0.0.0.0:80", &[]).check(&request).is_ok()
        };
        assert!(check("memory.example:80", &[]));
        assert!(check("memory.example:80", &[("origin", "http://memory.example:80")]));
        assert!(!check("memory.example:80", &[("origin", "http://evil.example")]));
        assert!(!check("memory.example:80", &[("origin", "http://memory.example:81")]));
        assert!(!check("memory.example:80", &[("origin", "null")]));
        assert!(check("memory.example", &[("sec-fetch-site", "same-origin")]));
        assert!(check("memory.example", &[("sec-fetch-site", "none")]));
        assert!(!check("memory.example", &[("sec-fetch-site", "cross-site")]));
    }
}
