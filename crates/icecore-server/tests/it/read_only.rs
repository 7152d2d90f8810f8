//! A host on which nobody writes: every route of the document, by an admin.

use icecore::{Memory, Principal, RawTurn, Tenant};
use icecore_host::HostSettings;
use serde_json::{Value, json};

use crate::auth::READING_POSTS;
use crate::client::{API, Host};

const NO_KEY: (&str, &str) = ("Authorization", "");

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// A host that only reads, over a memory that has something to read.
async fn host() -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().unwrap();
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let tenant = Principal::local_operator(Tenant::new("default").unwrap());
    let scope = memory.scope(&tenant, "default").await.unwrap();
    let said = vec![RawTurn::new("user", "The ferry leaves at nine.")];
    memory.remember(&scope, "s", said).await.unwrap();
    let settings = HostSettings { read_only: true, conformance: true, ..HostSettings::default() };
    let host = Host::behaving(memory, dir.path(), settings).await;
    host.settled().await;
    (dir, host)
}

/// Each operation that takes a key: method, path, a body that would do.
fn operations(document: &Value) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in METHODS {
            let Some(operation) = item.get(method) else { continue };
            if operation["security"] == json!([{}]) {
                continue;
            }
            let body = operation.pointer("/requestBody/content/application~1json/example");
            let body = body.map(Value::to_string).unwrap_or_default();
            found.push((method.to_uppercase(), path.clone(), body));
        }
    }
    found
}

/// Whether a route changes what is remembered. Keys are not memory.
fn writes(method: &str, path: &str) -> bool {
    let own = path.strip_prefix(API).unwrap_or(path);
    method != "GET" && !READING_POSTS.contains(&own) && !own.starts_with("/keys")
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_writes_is_refused_and_whoever_reads_is_answered() {
    let (_dir, host) = host().await;
    let document = host.ask("GET", "/v1/openapi.json", &[], "").await.json();
    let (mut refused, mut answered) = (0, 0);
    for (method, path, body) in operations(&document) {
        let target = path.replace("{session}", "s").replace("{id}", "none");
        let target = target.replace("{checksum}", "none");
        let target = target.replace("{path}", "a.md");
        let answer = host.ask(&method, &target, &[], &body).await;
        if path.starts_with("/v1/host/workspace/") {
            // It is not advertised, for nobody could write.
            assert_eq!(answer.code(), "501 capability_not_provided", "{method} {path}");
            assert!(answer.text.contains("`openwop.read_only`"), "{path}: {answer:?}");
            let stranger = host.ask(&method, &target, &[NO_KEY], &body).await;
            assert_eq!(stranger.status, 401, "{method} {path}: {stranger:?}");
            continue;
        }
        match writes(&method, &path) {
            true => {
                assert_eq!(answer.code(), "403 forbidden", "{method} {path}");
                assert!(answer.text.contains("`openwop.read_only`"), "{path}: {answer:?}");
                refused += 1;
            }
            // No provider is set up here.
            false if path.starts_with("/openai/") => {
                assert_eq!(answer.code(), "503 upstream_not_configured", "{method} {path}");
            }
            false => {
                let is_fine = answer.status < 300 || answer.status == 404;
                assert!(is_fine, "{method} {path}: {answer:?}");
                answered += 1;
            }
        }
    }
    assert!(refused > 8 && answered > 15, "{refused} and {answered}");
    assert_eq!(host.get("/entries").await.json()["entries"], json!([]));
    let found = host.post("/search", r#"{"query":"ferry"}"#).await;
    assert!(found.text.contains("leaves at nine"), "{found:?}");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_would_write_are_degraded() {
    let (_dir, host) = host().await;
    let listed = host.ask("GET", "/v1/agents", &[], "").await.json();
    let told = |n: usize| {
        let agent = &listed["agents"][n];
        json!([agent["degraded"], agent["memoryDegraded"], agent["degradedMemoryDimensions"]])
    };
    assert_eq!(told(0), json!([["memory.write"], true, ["write"]]));
    let lacks = json!(["memory.replay-snapshot", "multiAgent.executionModel"]);
    assert_eq!(told(1), json!([lacks, true, ["write", "replay-snapshot"]]));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_can_still_be_made_and_revoked() {
    let (_dir, host) = host().await;
    let made = host.post("/keys", r#"{"role":"writer"}"#).await;
    assert_eq!(made.status, 201, "{made:?}");
    let (made, id) = (made.json(), made.json()["id"].as_str().unwrap().to_owned());
    let refused = host.by(made["key"].as_str().unwrap(), "POST", "/forget", "{}").await;
    assert_eq!(refused.code(), "403 forbidden");
    assert!(refused.text.contains("`openwop.read_only`"), "{refused:?}");
    let revoked = host.call("DELETE", &format!("/keys/{id}"), &[], None).await;
    assert!((200..300).contains(&revoked.status), "{revoked:?}");
    host.stop().await;
}
