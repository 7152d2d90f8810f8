//! Every route that takes something, given secrets: none comes back, none stays.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use icecore::models::Protocol;
use icecore::privacy::Redactor;
use icecore::{Memory, Tenant};
use icecore_models::ApiKey;
use icecore_models::testing::{Upstream, UpstreamConfig};
use icecore_server::{ProxyOptions, ServerOptions, TenantUpstreams, UpstreamKey, UpstreamOptions};
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
    "/openai/v1/chat/completions",
    "/anthropic/v1/messages",
    "/anthropic/v1/messages/count_tokens",
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
    "/openai/v1/models",
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
        "/openai/v1/chat/completions"
        | "/anthropic/v1/messages"
        | "/anthropic/v1/messages/count_tokens" => {
            let call = json!({"id": secret, "type": "function",
                "function": {"name": secret, "arguments": json!({"a": secret}).to_string()}});
            let parts = json!([{"type": "text", "text": secret, secret.clone(): secret},
                {"type": "tool_use", "id": secret, "name": secret, "input": {secret.clone(): secret}},
                {"type": "image_url", "image_url": {"url": format!("https://h/{secret}")}}]);
            let said =
                json!({"role": "user", "content": secret, "name": secret, secret.clone(): secret});
            let reply = json!({"role": "assistant", "content": parts, "tool_calls": [call]});
            let result = json!({"role": "tool", "tool_call_id": secret, "content": secret});
            let plain = json!({"role": "user", "content": parts});
            vec![
                json!({"model": secret, "messages": [said, reply, result], "user": secret}),
                json!({"model": "m", "system": secret, "max_tokens": 100, "messages": [plain]}),
                json!({"messages": [{"role": secret, "content": secret}]}),
            ]
        }
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
    match ["/v1/", "/openai/", "/anthropic/"].iter().any(|own| path.starts_with(own)) {
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

/// What goes through the proxy is the client's own; what stays of it has no secret, and
/// neither has what we say of it ourselves.
#[tokio::test(flavor = "multi_thread")]
async fn no_secret_stays_of_what_goes_through_the_proxy() {
    let dir = tempfile::tempdir().unwrap();
    let answer: icecore_models::testing::AnswerBy = Arc::new(|_| format!("It is {}.", secret()));
    let of = |protocol| UpstreamConfig { protocol, answer: answer.clone(), ..Default::default() };
    let openai = Upstream::start(of(Protocol::OpenAi)).await;
    let anthropic = Upstream::start(of(Protocol::Anthropic)).await;
    let provider = |upstream: &Upstream| UpstreamOptions {
        url: Some(upstream.url()),
        key: UpstreamKey::Given(ApiKey::new(token())),
        ..UpstreamOptions::default()
    };
    let upstreams = TenantUpstreams { openai: provider(&openai), anthropic: provider(&anthropic) };
    let proxy = ProxyOptions { upstreams, ..ProxyOptions::default() };
    let options = ServerOptions { proxy, ..ServerOptions::default() };
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let host = Host::optioned("127.0.0.1:0", memory.into(), dir.path(), options).await;
    let (tenant, value) = (Tenant::new("default").unwrap(), Zeroizing::new(REGISTERED.to_owned()));
    host.memory.add_secret(&tenant, "fruit", value, false).await.unwrap();
    let name = secret();
    let headers: [&[(&str, &str)]; 3] =
        [&[], &[("X-Icecore-Session", &name)], &[("X-Icecore-Memory", &name)]];
    let mut answered = 0;
    for route in WRITES.iter().filter(|route| !route.starts_with("/v1/")) {
        if !route.starts_with("/openai/") && !route.starts_with("/anthropic/") {
            continue;
        }
        for mut body in bodies(route) {
            for is_stream in [false, true] {
                if body.is_object() {
                    body["stream"] = json!(is_stream);
                }
                for headers in headers {
                    let sent =
                        crate::proxy::stream(&host, route, headers, &body.to_string()).await.0;
                    answered += usize::from(sent.status == 200);
                }
            }
        }
    }
    assert!(answered > 6, "{answered}");
    host.settled().await;
    host.stop().await;
    scan(dir.path());
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
                    let path = absolute(path);
                    hides(&host.ask("POST", &path, headers, &sent).await, &path);
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
