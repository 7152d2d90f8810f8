//! The HTTP client, set up the same way for every server.

use std::sync::Arc;
#[cfg(feature = "chat")]
use std::time::Duration;

use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// A client for the server at `base_url`.
///
/// It follows no redirect, which would take the key elsewhere; it trusts what
/// this machine trusts; and it asks no proxy for a server on this machine.
pub fn agent(base_url: &str) -> Agent {
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("icecore/", env!("CARGO_PKG_VERSION")));
    if base_url.starts_with("https:") {
        config = config.tls_config(tls());
    }
    if authority(base_url).is_some_and(is_loopback) {
        config = config.proxy(None);
    }
    config.build().new_agent()
}

/// A client, as [`agent`] is one, that does not block. It asks nothing twice by itself.
#[cfg(feature = "chat")]
pub fn client(base_url: &str, connect: Duration) -> Result<reqwest::Client, String> {
    let mut roots = rustls::RootCertStore::empty();
    if base_url.starts_with("https:") {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut builder = reqwest::Client::builder()
        .user_agent(concat!("icecore/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .connect_timeout(connect)
        .tls_backend_preconfigured(tls);
    if authority(base_url).is_some_and(is_loopback) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| error.without_url().to_string())
}

/// Host and port of an address, if it is one.
pub(crate) fn authority(base_url: &str) -> Option<&str> {
    let rest = base_url.strip_prefix("https://").or_else(|| base_url.strip_prefix("http://"))?;
    if base_url.contains(|char: char| char.is_whitespace() || char.is_control()) {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    (!authority.is_empty() && !authority.starts_with(':')).then_some(authority)
}

fn is_loopback(authority: &str) -> bool {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    host == "localhost" || host == "[::1]" || host.starts_with("127.")
}

fn tls() -> TlsConfig {
    // What cannot be read is left out: without any root every server is refused,
    // which is safe and says so.
    let found = rustls_native_certs::load_native_certs().certs;
    let roots: Vec<Certificate<'static>> =
        found.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
    TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
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
        for here in ["localhost", "localhost:80", "127.0.0.1:80", "127.1.2.3", "[::1]:80"] {
            assert!(is_loopback(here), "{here}");
        }
        assert!(!is_loopback("example.com:80"));
    }

    #[test]
    fn a_client_for_a_distant_server_can_be_made() {
        let agent = agent("https://embeddings.example.com/v1");
        assert_eq!(agent.config().max_redirects(), 0);
    }
}
