//! What the discovery document looks like. What stands in it is in `../discovery.rs`.

use serde_json::{Value, json};

use super::shape::{DOCUMENT, fits};
use super::suite::Suite;

/// The families of the contract.
const FAMILIES: [&str; 7] =
    ["secrets", "replay", "memory", "agents", "workspace", "scheduling", "multiAgent"];

#[tokio::test(flavor = "multi_thread")]
async fn discovery_openapi() {
    let suite = Suite::begin().await;
    let document = suite.by("", "GET", "/v1/openapi.json", Value::Null).await;
    assert_eq!(document.status, 200);
    let version = document.json()["openapi"].as_str().unwrap().to_owned();
    assert!(version.starts_with("3.1"), "{version}");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_closed_shapes() {
    let suite = Suite::begin().await;
    let document = suite.document().await;
    fits(&DOCUMENT, &document);
    assert_ne!(document["secrets"]["scopes"], json!([]));
    assert!(document["supportedTransports"].as_array().unwrap().contains(&json!("rest")));
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_mirror_agrees() {
    let suite = Suite::begin().await;
    let document = suite.document().await;
    for family in FAMILIES {
        assert_eq!(document.get(family), document["capabilities"].get(family), "{family}");
    }
    let mirrored = document["capabilities"].as_object().unwrap();
    assert!(mirrored.keys().all(|family| FAMILIES.contains(&family.as_str())), "{mirrored:?}");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_memory_profile() {
    let suite = Suite::begin().await;
    let document = suite.document().await;
    assert!(document["protocolVersion"].as_str().unwrap().starts_with("1."));
    assert_eq!(document["memory"]["supported"], true);
    assert_ne!(document["memory"]["writable"], false);
    assert_eq!(document["agents"]["memoryBackends"], json!(["long-term"]));
    suite.end().await;
}

/// A claim that we do not keep stands nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_claimed_is_not_advertised() {
    let suite = Suite::begin().await;
    let document = suite.document().await;
    for name in ["multiAgent", "discovery", "production"] {
        assert_eq!(document.get(name), None, "{name}");
        assert_eq!(document["capabilities"].get(name), None, "{name}");
    }
    assert_eq!(document["replay"]["modes"], json!(["replay"]));
    let listed = suite.get("/v1/memory/conformance%2Fany?limit=50").await;
    assert_eq!(listed.code(), "404 not_found");
    suite.end().await;
}
