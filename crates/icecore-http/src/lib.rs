//! The HTTP client, set up the same way for every server that Icecore talks to.
//!
//! It trusts the certificates that this machine trusts, follows no redirect, which would
//! take a key or a signature elsewhere, sends no request twice by itself, and asks no
//! proxy for a server on this machine.

mod blocking;

use std::sync::Arc;
use std::time::Duration;

pub use blocking::{Answer, BlockingClient, CallError};

/// A client for the server at `base_url`.
pub fn client(base_url: &str, connect_timeout: Duration) -> Result<reqwest::Client, String> {
    build(builder(base_url)?.connect_timeout(connect_timeout))
}

/// The same, for those who set more.
pub fn builder(base_url: &str) -> Result<reqwest::ClientBuilder, String> {
    let mut roots = rustls::RootCertStore::empty();
    if !base_url.starts_with("http:") {
        // Certificates that cannot be read are left out: without any root every server is
        // refused, which is safe and says so.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let builder = reqwest::Client::builder()
        .user_agent(concat!("icecore/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .tls_backend_preconfigured(tls);
    let is_local = authority(base_url).is_some_and(is_loopback);
    Ok(if is_local { builder.no_proxy() } else { builder })
}

/// Builds a client; the error does not name the address, which may hold a password.
pub fn build(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, String> {
    builder.build().map_err(|error| error.without_url().to_string())
}

/// Host and port of an `http://` or `https://` address.
pub fn authority(base_url: &str) -> Option<&str> {
    let rest = base_url.strip_prefix("https://").or_else(|| base_url.strip_prefix("http://"))?;
    if base_url.contains(|char: char| char.is_whitespace() || char.is_control()) {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    (!authority.is_empty() && !authority.starts_with(':')).then_some(authority)
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    host == "localhost" || host == "[::1]" || host.starts_with("127.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_other_text() {
        assert_eq!(authority("http://localhost:8080/v1"), Some("localhost:8080"));
        assert_eq!(authority("https://api.example.com"), Some("api.example.com"));
        for wrong in ["", "localhost:8080", "ftp://x", "http://", "http://:80", "http://a b/"] {
            assert_eq!(authority(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn this_machine_is_known_by_its_names() {
        for here in ["localhost", "localhost:80", "127.0.0.1:80", "127.1.2.3", "[::1]:80", "[::1]"]
        {
            assert!(is_loopback(here), "{here}");
        }
        assert!(!is_loopback("example.com:80"));
    }

    #[test]
    fn a_client_for_a_distant_server_can_be_made() {
        client("https://embeddings.example.com/v1", Duration::from_secs(1)).unwrap();
    }
}
