//! Every route that takes something, given secrets: none comes back, none stays.

use std::collections::BTreeSet;
use std::path::Path;

use icecore::{Redactor, Tenant};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::client::{API, Answer, Host, in_conformance};

/// A value that no pattern knows.
const REGISTERED: &str = "kumquat4711zebraParade";

/// The routes that take a body, each with a case in [`bodies`].
const WRITES: &[&str] = &[
    "/sessions/{session}/turns",
    "/sessions/{session}/compact",
    "/context",
    "/search",
    "/entries",
    "/facts",
    "/facts/{id}/confirm",
    "/facts/{id}/reject",
    "/commitments",
    "/consolidate",
    "/dreams",
    "/dreams/{id}/undo",
    "/schedules",
    "/schedules/{id}/pause",
    "/schedules/{id}/resume",
    "/forget",
    "/keys",
    "/keys/{id}/rotate",
    "/v1/runs",
    "/v1/runs/{id}",
    "/v1/runs/{id}/cancel",
];

/// The routes that take what is put, each with a case in [`bodies`].
const PUTS: &[&str] = &["/sessions/{session}/handoff", "/v1/host/workspace/files/{*path}"];

/// The routes that take something away.
const DELETES: &[&str] = &[
    "/commitments/{id}",
    "/entries/{id}",
    "/keys/{id}",
    "/schedules/{id}",
    "/v1/host/workspace/files/{*path}",
];

/// The routes that only read; they are asked for what is secret too.
const READS: &[&str] = &[
    "/sessions",
    "/sessions/{session}/turns",
    "/sessions/{session}/view",
    "/sessions/{session}/handoff",
    "/chunks",
    "/chunks/{id}",
    "/chunks/{id}/expand",
    "/entries",
    "/entries/{id}",
    "/entries/{id}/sources",
    "/facts",
    "/commitments",
    "/commitments/{id}",
    "/events",
    "/dreams",
    "/dreams/{id}",
    "/archives",
    "/archives/{checksum}",
    "/schedules",
    "/schedules/{id}",
    "/stats",
    "/keys",
    "/v1/agents",
    "/v1/agents/{id}",
    "/v1/host/workspace/files",
    "/v1/host/workspace/files/{*path}",
    "/v1/runs/{id}",
    "/v1/runs/{id}/events",
    "/v1/runs/{id}/events/poll",
];

/// The routes that take nothing and need no key.
pub(crate) const OPEN: &[&str] =
    &["/", "/healthz", "/readyz", "/metrics", "/v1/openapi.json", "/docs", "/.well-known/openwop"];

fn token() -> String {
    let kind = Redactor::kinds().iter().find(|kind| kind.id == "github-token").unwrap();
    kind.sample(4711)
}

/// Both secrets, fit for a path.
fn secret() -> String {
    format!("{}.{REGISTERED}", token())
}

/// What the route table says, by method.
pub(crate) fn routes(method: &str) -> BTreeSet<String> {
    let source = include_str!("../../src/routes.rs").replace(char::is_whitespace, "");
    let routes = source.split(".route(\"").skip(1).filter_map(|rest| rest.split_once('"'));
    let of_method = |(path, handlers): (&str, &str)| {
        let handlers = handlers.split(".route(").next().unwrap_or_default();
        let takes =
            handlers.contains(&format!(",{method}(")) || handlers.contains(&format!(".{method}("));
        takes.then(|| path.to_owned())
    };
    routes.filter_map(of_method).collect()
}

#[test]
fn every_route_has_a_redaction_case() {
    let all = |routes: &[&str]| routes.iter().map(|&path| path.to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(routes("post"), all(WRITES), "add a body for what takes one");
    let own: BTreeSet<String> =
        routes("get").into_iter().filter(|path| !OPEN.contains(&path.as_str())).collect();
    assert_eq!(own, all(READS));
    assert_eq!((routes("put"), routes("delete")), (all(PUTS), all(DELETES)));
    for method in ["patch", "any"] {
        assert_eq!(routes(method), BTreeSet::new(), "`{method}` writes: walk it here too");
    }
}

/// What to send to a route: secrets in everything that it takes, right and wrong.
fn bodies(route: &str) -> Vec<Value> {
    let secret = secret();
    let turn = json!({"role": secret, "content": secret, "name": secret, "id": secret, "tags": [secret],
        "toolCalls": [{"arguments": secret}], secret.clone(): {secret.clone(): secret}});
    let mut bodies = match route {
        "/sessions/{session}/turns" => vec![
            json!({"turns": [turn], "memoryRef": secret}),
            json!({"turns": [turn, {"role": "user", "content": secret, "timestamp": secret}]}),
            json!({"turns": [{"role": "user", "content": "x", "parentIds": [secret]}]}),
        ],
        "/sessions/{session}/compact" => {
            vec![json!({"branch": secret}), json!({"window": secret, "reserve": secret}), json!({})]
        }
        "/sessions/{session}/handoff" => vec![
            json!({"handoff": secret, "compactionId": secret, "version": 1}),
            json!({"handoff": secret, "version": secret, "branch": secret}),
        ],
        "/context" => vec![
            json!({"query": secret, "session": secret, "branch": secret, "budget": 100}),
            json!({"query": secret, "budget": 100}),
        ],
        "/search" => {
            vec![json!({"query": secret}), json!({"query": "x", "session": secret, "mode": secret})]
        }
        "/entries" => vec![
            json!({"content": format!("the key is {secret}"), "tags": [secret, "plain"]}),
            json!({"content": secret, "memoryRef": secret}),
            json!({"content": "x", "expiresAt": secret}),
            json!({"content": "x", "tags": secret}),
            json!({"content": secret.repeat(2_000)}),
            json!({"content": "x", "tags": [secret.repeat(9)]}),
        ],
        "/facts" => vec![
            json!({"text": format!("The code is {secret}"), "subject": secret}),
            json!({"kind": secret, "text": "x"}),
        ],
        "/commitments" => vec![
            json!({"intention": secret, "at": "2999-01-01T00:00:00Z"}),
            json!({"intention": secret, "when": {"tag": secret, "mentions": secret}}),
            json!({"memoryId": secret, "when": {"mentions": secret}}),
            json!({"intention": "x", "at": secret}),
            json!({"intention": "x", "when": {secret.clone(): secret}}),
        ],
        "/consolidate" => vec![json!({}), json!({"memoryRef": secret})],
        "/dreams" => vec![
            json!({"budget": 8000}),
            json!({"budget": 8000, "dryRun": true}),
            json!({"memoryRef": secret, "budget": 8000}),
            json!({"budget": secret}),
            json!({"dryRun": secret}),
        ],
        "/dreams/{id}/undo" => vec![json!({})],
        "/schedules" => vec![
            json!({"cron": "0 0 * * *", "memoryRef": secret}),
            json!({"cron": secret}),
            json!({"cron": format!("{secret} * * * *")}),
            json!({"cron": format!("@{secret}")}),
            json!({"cron": "0 0 * * *", "timezone": secret}),
            json!({"cron": "0 0 * * *", "task": secret}),
            json!({"cron": "0 0 * * *", "catchUp": secret}),
            json!({"delayMs": secret}),
            json!({"delayMs": 9_000_000, "budget": secret}),
        ],
        "/schedules/{id}/pause" | "/schedules/{id}/resume" => vec![json!({})],
        "/v1/runs" => vec![
            json!({"workflowId": "icecore.dream", "inputs": {"memoryRef": secret}}),
            json!({"workflowId": "icecore.dream", "configurable": {"distillation.tokenBudget": secret}}),
            json!({"workflowId": "conformance-noop", "inputs": {secret.clone(): secret}}),
            json!({"workflowId": "conformance-identity", "inputs": {"plain": secret, secret.clone(): [secret]}}),
            json!({"workflowId": secret, "inputs": {}}),
            json!({"workflowId": "conformance-noop", "tenantId": secret, "tags": [secret],
                "configurable": {"ai": {"credentialRef": secret}}, "metadata": {"a": secret}}),
        ],
        "/v1/runs/{id}" => vec![
            json!({"mode": "replay", "fromSeq": 0}),
            json!({"mode": secret}),
            json!({"mode": "replay", "fromSeq": secret}),
            json!({"mode": "replay", "runOptionsOverlay": {"a": secret}}),
        ],
        "/v1/runs/{id}/cancel" => vec![json!({})],
        "/forget" => vec![
            json!({"subject": secret}),
            json!({"session": secret}),
            json!({"entry": secret}),
            json!({"before": secret}),
        ],
        "/keys" => vec![
            json!({"role": "reader", "name": secret}),
            json!({"role": secret, "name": secret, "expiresAt": secret}),
        ],
        "/keys/{id}/rotate" => vec![json!({}), json!({"overlapSeconds": secret})],
        "/facts/{id}/confirm" | "/facts/{id}/reject" => vec![json!({})],
        "/v1/host/workspace/files/{*path}" => {
            vec![json!({"content": secret, "contentType": secret}), json!({"content": secret})]
        }
        _ => panic!("`{route}` takes a body and has no redaction case"),
    };
    bodies.push(json!({ secret.clone(): secret, "memoryRef": 7 }));
    bodies.push(json!(secret));
    bodies
}

/// Our own routes are nested.
pub(crate) fn absolute(path: String) -> String {
    match path.starts_with("/v1/") {
        true => path,
        false => format!("{API}{path}"),
    }
}

fn hides(answer: &Answer, asked: &str) {
    let all = format!("{} {}", answer.head, answer.text);
    assert!(!all.contains(&token()) && !all.contains(REGISTERED), "{asked}: {all}");
}

async fn host() -> (tempfile::TempDir, Host) {
    let (dir, host) = in_conformance().await;
    let (tenant, value) = (Tenant::new("default").unwrap(), Zeroizing::new(REGISTERED.to_owned()));
    host.memory.add_secret(&tenant, "fruit", value, false).await.unwrap();
    (dir, host)
}

/// Nothing of the secrets is in any file.
fn scan(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            scan(&path);
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(&token()) && !text.contains(REGISTERED), "{}", path.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_lets_a_secret_through() {
    let (dir, host) = host().await;
    let filled = |route: &str| {
        let route = route.replace("{session}", &secret()).replace("{id}", &secret());
        let route = route.replace("{checksum}", &secret());
        route.replace("{*path}", &secret())
    };
    for route in WRITES {
        for body in bodies(route) {
            let key = secret();
            let headers = [("Idempotency-Key", key.as_str())];
            for headers in [&headers[..], &[], &headers[..]] {
                let path = format!("{}?memoryRef={}", filled(route), secret());
                let sent = body.to_string();
                for path in [path.clone(), filled(route)] {
                    hides(&host.call("POST", &path, headers, Some(&sent)).await, &path);
                }
            }
        }
    }
    let tag = secret();
    let conditions: [&[(&str, &str)]; 4] =
        [&[], &[("If-Match", &tag)], &[("If-None-Match", &tag)], &[("Idempotency-Key", &tag)]];
    for route in PUTS {
        for (body, headers) in bodies(route).iter().flat_map(|b| conditions.map(|c| (b, c))) {
            for path in [filled(route), route.replace("{*path}", "notes/plain.md")] {
                hides(&host.ask("PUT", &path, headers, &body.to_string()).await, &path);
                hides(&host.ask("GET", &path, headers, "").await, &path);
            }
        }
    }
    for route in READS {
        for query in
            ["", "?memoryRef=S", "?session=S", "?after=S", "?limit=S", "?view=S", "?branch=S"]
                .into_iter()
                .chain(["?tag=S", "?rank=S", "?rank=relevance&query=S", "?tokenBudget=S", "?at=S"])
                .chain(["?prefix=S", "?version=S"])
        {
            let path = absolute(filled(route) + &query.replace('S', &secret()));
            hides(&host.ask("GET", &path, &[], "").await, &path);
        }
    }
    for route in DELETES {
        for query in ["", "?memoryRef=S"] {
            let path = absolute(filled(route) + &query.replace('S', &secret()));
            hides(&host.ask("DELETE", &path, &[], "").await, &path);
        }
    }
    hides(&host.get(&format!("/{}", secret())).await, "an unknown route");
    host.settled().await;
    host.stop().await;
    scan(dir.path());
}
