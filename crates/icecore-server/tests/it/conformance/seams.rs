//! The seams are for those who run the suite, and for nobody else.

use serde_json::{Value, json};

use super::shape::{DOCUMENT, fits};
use super::suite::{MARK, NOOP, Suite, dummy_credential, lacks};
use crate::client::fresh;

/// Each seam that we serve or that the suite asks for.
fn seams() -> Vec<(&'static str, Value)> {
    vec![
        ("/v1/test/memory/seed", json!({"memoryRef": "check/seam", "entries": []})),
        ("/v1/test/memory/compact", json!({"memoryRef": "check/seam"})),
        ("/v1/host/sample/memory/distill", json!({"memoryRef": "conformance-distill"})),
        ("/v1/host/sample/memory/consolidate", json!({"memoryRef": "check/seam"})),
        ("/v1/host/sample/commitment/fire", json!({"memoryRef": "check/seam"})),
        ("/v1/host/sample/scheduling/tick", json!({"scenario": "single-tick"})),
        (
            "/v1/host/sample/workspace/op",
            json!({"tenant": "check-a", "workspace": "ws-a", "op": "list"}),
        ),
        ("/v1/host/sample/identity/owned-run", json!({})),
        ("/v1/host/sample/identity/cross-workspace-read", json!({})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn test_seam_unauthenticated() {
    let suite = Suite::begin().await;
    for name in
        ["test/mock-ai/program", "governance/approval-gate", "packs/install-gate", "subrun/attest"]
    {
        let path = format!("/v1/host/sample/{name}");
        let answer = suite.by("", "GET", &path, Value::Null).await;
        assert_eq!(answer.code(), "401 unauthenticated", "{name}");
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seams_need_a_key() {
    let suite = Suite::begin().await;
    for (path, body) in seams() {
        for key in ["", &dummy_credential()] {
            for method in ["POST", "GET"] {
                let answer = suite.by(key, method, path, body.clone()).await;
                assert_eq!(answer.code(), "401 unauthenticated", "{method} {path}");
                lacks(&answer, &[MARK]);
            }
        }
        // Who may only read is kept out too, where there is a seam at all.
        let reader = suite.by(&suite.reader, "POST", path, body).await;
        let code = reader.code();
        let is_kept_out = ["403 forbidden", "404 not_found", "405 method_not_allowed"];
        assert!(is_kept_out.contains(&code.as_str()), "{path}: {code}");
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seams_absent_without_conformance() {
    let (_dir, host) = fresh().await;
    for (path, body) in seams() {
        for (method, body) in [("POST", body.to_string()), ("GET", String::new())] {
            let answer = host.ask(method, path, &[], &body).await;
            assert_eq!(answer.code(), "404 not_found", "{method} {path}");
        }
    }
    let document = host.ask("GET", "/.well-known/openwop", &[], "").await.json();
    fits(&DOCUMENT, &document);
    assert_eq!(document.get("fixtures"), None);
    let body = json!({ "workflowId": NOOP }).to_string();
    assert_eq!(host.ask("POST", "/v1/runs", &[], &body).await.code(), "404 not_found");
    host.stop().await;
}
