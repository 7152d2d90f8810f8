//! What looks like a secret does not come back (NFR-7).

use icecore::Tenant;
use serde_json::json;
use zeroize::Zeroizing;

use super::suite::{
    FILES, MARK, NOOP, Suite, dummy_credential, dummy_jwt, dummy_key, is_marked, lacks, text, token,
};
use crate::client::{API, Answer};

/// A caller with such a key hears nothing of it.
async fn is_not_echoed(key: &str) {
    let suite = Suite::begin().await;
    let answer = suite.by(key, "POST", "/v1/runs", json!({ "workflowId": NOOP })).await;
    assert_eq!(answer.code(), "401 unauthenticated");
    lacks(&answer, &[key, MARK]);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redaction_bearer_jwt_not_echoed() {
    is_not_echoed(&dummy_jwt()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redaction_bearer_credential_not_echoed() {
    is_not_echoed(&dummy_credential()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redaction_bearer_marker_not_echoed() {
    is_not_echoed(MARK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redaction_credential_ref_not_in_events() {
    let suite = Suite::begin().await;
    let credential = json!({"ai": {"credentialRef": dummy_credential()}});
    let run = suite.run(NOOP, json!({ "configurable": credential })).await;
    let path = format!("/v1/runs/{}/events/poll?lastSequence=0&timeout=5", text(&run, "runId"));
    let page = suite.get(&path).await;
    assert_eq!(page.json()["isComplete"], true);
    lacks(&page, &[MARK]);
    suite.end().await;
}

/// All that a run which was given this tells of itself.
async fn polled(suite: &Suite, inputs: serde_json::Value) -> Answer {
    let run = suite.run(NOOP, json!({ "inputs": inputs })).await;
    assert_eq!(run["status"], "completed");
    let page = suite.get(&format!("/v1/runs/{}/events/poll", text(&run, "runId"))).await;
    assert_eq!((page.status, &page.json()["isComplete"]), (200, &json!(true)));
    page
}

#[tokio::test(flavor = "multi_thread")]
async fn redaction_adversarial_input_key_not_in_events() {
    let suite = Suite::begin().await;
    let key = dummy_key("");
    let page = polled(&suite, json!({ "userSuppliedField": key })).await;
    lacks(&page, &[&key, MARK]);
    suite.end().await;
}

/// Neither the whole key nor a part of it (`runs-hide-part-of-a-key`).
#[tokio::test(flavor = "multi_thread")]
async fn redaction_adversarial_embedded_key_not_in_events() {
    let suite = Suite::begin().await;
    let key = dummy_key("ant");
    let page = polled(&suite, json!({"descriptiveText": format!("note {key} in here")})).await;
    lacks(&page, &[&key, MARK]);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redaction_adversarial_unknown_workflow_not_echoed() {
    let suite = Suite::begin().await;
    let workflow = format!("nonexistent-{}", dummy_jwt());
    let answer = suite.post("/v1/runs", json!({"workflowId": workflow, "inputs": {}})).await;
    assert_eq!(answer.code(), "404 not_found");
    lacks(&answer, &[&dummy_jwt(), MARK]);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_redacted() {
    let suite = Suite::begin().await;
    let key = token(61);
    let content = format!("the key is {key}, keep it");
    let tags = json!([format!("token:{key}"), "plain"]);
    let entry = suite.put_as("check/redact", json!({ "content": content, "tags": tags })).await;
    let stored = suite.entry("check/redact", text(&entry, "id")).await;
    assert_eq!(stored.status, 200);
    lacks(&stored, &[&key]);
    assert!(is_marked(text(&stored.json(), "content")), "{stored:?}");
    assert!(stored.json()["tags"].as_array().unwrap().contains(&json!("plain")), "{stored:?}");
    lacks(&suite.entries("check/redact").await, &[&key]);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workspace_redacted() {
    let suite = Suite::begin().await;
    let key = token(62);
    let put = suite.file("PUT", "check/secret.md", &format!("export API_KEY={key}\n")).await;
    assert_eq!(put.status, 200);
    lacks(&put, &[&key]);
    let stored = suite.file("GET", "check/secret.md", "").await;
    lacks(&stored, &[&key]);
    assert!(is_marked(text(&stored.json(), "content")), "{stored:?}");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registered_secret_redacted() {
    let suite = Suite::begin().await;
    // Plain words, which no shape gives away.
    let (value, marker) = ("nine brass lanterns at noon", "[REDACTED:check-secret]");
    let (tenant, sealed) = (Tenant::new("default").unwrap(), Zeroizing::new(value.to_owned()));
    suite.host.memory.add_secret(&tenant, "check-secret", sealed, false).await.unwrap();

    let entry =
        json!({"content": format!("They said: {value}."), "tags": [format!("said {value}")]});
    let entry = suite.put_as("check/registered", entry).await;
    let shown = suite.entry("check/registered", text(&entry, "id")).await;
    lacks(&shown, &[value]);
    assert!(shown.text.contains(marker), "{shown:?}");

    let turns = json!({"turns": [{"role": "user", "content": format!("it is {value}")}]});
    let path = format!("{API}/sessions/check-secret/turns");
    assert_eq!(suite.post(&path, turns).await.status, 201);
    lacks(&suite.get(&path).await, &[value]);

    let file = json!({"content": format!("note: {value}")}).to_string();
    let file = suite.host.ask("PUT", &format!("{FILES}/registered.md"), &[], &file).await;
    assert_eq!(file.status, 200);
    lacks(&file, &[value]);
    assert!(file.text.contains(marker), "{file:?}");
    suite.end().await;
}
