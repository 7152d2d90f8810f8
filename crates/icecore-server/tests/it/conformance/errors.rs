//! Every refusal has one shape, says why, and repeats nothing.

use serde_json::{Value, json};

use super::suite::{
    DISCOVERY, FILES, MARK, NO_RUN, NOOP, Suite, dummy_credential, dummy_jwt, lacks, refused,
};
use crate::client::API;

/// Some routes that need a key, of each family.
fn guarded() -> Vec<(&'static str, String)> {
    let mut routes = vec![
        ("POST", "/v1/runs".to_owned()),
        ("GET", format!("/v1/runs/{NO_RUN}")),
        ("GET", format!("/v1/runs/{NO_RUN}/events")),
        ("GET", FILES.to_owned()),
        ("PUT", format!("{FILES}/stranger.md")),
        ("DELETE", format!("{FILES}/stranger.md")),
        ("GET", "/v1/agents".to_owned()),
    ];
    for (method, path) in [
        ("GET", "/entries"),
        ("POST", "/entries"),
        ("POST", "/search"),
        ("POST", "/context"),
        ("GET", "/archives"),
        ("GET", "/events"),
        ("POST", "/dreams"),
        ("POST", "/forget"),
        ("GET", "/stats"),
        ("GET", "/schedules"),
        ("POST", "/sessions/s/turns"),
    ] {
        routes.push((method, format!("{API}{path}")));
    }
    routes
}

fn body_of(method: &str) -> Value {
    if matches!(method, "POST" | "PUT") { json!({}) } else { Value::Null }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_401_without_key() {
    let suite = Suite::begin().await;
    for (method, path) in guarded() {
        let answer = suite.by("", method, &path, body_of(method)).await;
        refused(&answer, &[401]);
        assert_eq!(answer.code(), "401 unauthenticated", "{method} {path}");
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_401_bad_key_not_echoed() {
    let suite = Suite::begin().await;
    for (method, path) in guarded() {
        let answer = suite.by(&dummy_jwt(), method, &path, body_of(method)).await;
        refused(&answer, &[401]);
        lacks(&answer, &[&dummy_jwt(), MARK]);
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_401_malformed_header() {
    let suite = Suite::begin().await;
    let credential = dummy_credential();
    let (basic, pair) = (format!("Basic {credential}"), format!("Bearer a b {MARK}"));
    for header in ["Bearer", "Bearer ", &basic, &credential, &pair] {
        let headers = [("Authorization", header)];
        let answer = suite.host.ask("GET", &format!("/v1/runs/{NO_RUN}"), &headers, "").await;
        refused(&answer, &[401]);
        lacks(&answer, &[MARK]);
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_403_reader_cannot_write() {
    let suite = Suite::begin().await;
    assert_eq!(suite.by(&suite.reader, "GET", FILES, Value::Null).await.status, 200);
    for (method, path, body) in [
        ("PUT", format!("{FILES}/reader.md"), json!({"content": "no"})),
        ("POST", format!("{API}/entries"), json!({"content": "no"})),
        ("POST", "/v1/runs".to_owned(), json!({"workflowId": NOOP})),
        ("POST", "/v1/test/memory/seed".to_owned(), json!({"memoryRef": "m", "entries": []})),
    ] {
        let answer = suite.by(&suite.reader, method, &path, body).await;
        assert_eq!(answer.code(), "403 forbidden", "{method} {path}");
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_400_wrong_types() {
    let suite = Suite::begin().await;
    let file = format!("{FILES}/types.md");
    let own = |path: &str| format!("{API}{path}");
    for (method, path, bodies) in [
        (
            "POST",
            "/v1/runs".to_owned(),
            vec![json!({}), json!({"workflowId": 7}), json!({"workflowId": null})],
        ),
        ("PUT", file, vec![json!({}), json!({"content": 7})]),
        (
            "POST",
            own("/entries"),
            vec![
                json!({}),
                json!({"content": 7}),
                json!({"content": "x", "tags": "no"}),
                json!({"content": "x", "expiresAt": "soon"}),
            ],
        ),
        ("POST", own("/search"), vec![json!({}), json!({"query": 7})]),
        (
            "POST",
            own("/context"),
            vec![json!({"budget": "many"}), json!({"budget": -1}), json!({})],
        ),
        ("POST", own("/consolidate"), vec![json!({"memoryRef": 7})]),
        ("POST", own("/commitments"), vec![json!({}), json!({"condition": 7})]),
        (
            "POST",
            own("/dreams"),
            vec![
                json!({"budget": 0}),
                json!({"budget": -1}),
                json!({"budget": 1.5}),
                json!({"budget": "8000"}),
                json!({"dryRun": 1}),
                json!({"memoryRef": 7}),
            ],
        ),
    ] {
        for body in bodies {
            let answer = suite.host.ask(method, &path, &[], &body.to_string()).await;
            assert_eq!(answer.code(), "400 validation_error", "{method} {path} {body}");
        }
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_404_flat() {
    let suite = Suite::begin().await;
    let archive = format!("/archives/{}", "0".repeat(64));
    let own = ["/entries/none", "/chunks/none", "/dreams/none", "/commitments/none", "/nowhere"];
    let own = own.into_iter().chain([archive.as_str()]).map(|path| format!("{API}{path}"));
    let rest = ["/nowhere", "/v1/nowhere", "/v1/agents/no.such.agent", "/v1/runs/none"];
    let rest = rest.into_iter().map(str::to_owned).chain([format!("{FILES}/no-such-file.md")]);
    for path in own.chain(rest) {
        let answer = suite.get(&path).await;
        refused(&answer, &[404]);
        assert_eq!(answer.code(), "404 not_found", "{path}");
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_405_flat() {
    let suite = Suite::begin().await;
    for (method, path) in [
        ("DELETE", "/v1/runs".to_owned()),
        ("PUT", DISCOVERY.to_owned()),
        ("PATCH", format!("/v1/runs/{NO_RUN}")),
        ("PATCH", format!("{FILES}/a.md")),
        ("PUT", format!("{API}/search")),
        ("PATCH", format!("{API}/entries")),
        ("DELETE", "/v1/agents".to_owned()),
    ] {
        let body = body_of(method).to_string();
        let answer = suite.host.ask(method, &path, &[], &body).await;
        assert_eq!(answer.code(), "405 method_not_allowed", "{method} {path}");
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_413_request_too_large() {
    let suite = Suite::begin().await;
    let most = suite.document().await["limits"]["maxRequestBodyBytes"].as_u64().unwrap();
    let body = json!({ "workflowId": "x".repeat(usize::try_from(most).unwrap()) });
    refused(&suite.post("/v1/runs", body).await, &[413]);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_415_flat() {
    let suite = Suite::begin().await;
    for path in ["/v1/runs".to_owned(), format!("{API}/entries"), format!("{API}/search")] {
        let headers = [("Content-Type", "text/plain")];
        let answer = suite.host.ask("POST", &path, &headers, "workflowId=none").await;
        assert_eq!(answer.code(), "415 unsupported_media_type", "{path}");
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_400_malformed_body() {
    let suite = Suite::begin().await;
    let own = ["/entries", "/search", "/context", "/dreams"].map(|path| format!("{API}{path}"));
    let all = own.into_iter().chain(["/v1/runs".to_owned()]).map(|path| ("POST", path));
    for (method, path) in all.chain([("PUT", format!("{FILES}/broken.md"))]) {
        for body in [&b"{\"open\": "[..], b"[]", b"\"text\"", b"\xff\xfe"] {
            let answer = suite.host.raw(&suite.host.request(method, &path, &[], body)).await;
            assert_eq!(answer.code(), "400 validation_error", "{method} {path} {body:?}");
        }
    }
    suite.end().await;
}
