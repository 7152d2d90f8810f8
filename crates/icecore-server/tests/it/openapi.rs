//! The document against the host: the same routes, fields that are read, answers
//! that fit.

use std::collections::BTreeSet;
use std::io::Write;

use serde_json::{Value, json};

use crate::client::{API, Answer, Host, apart, connect, fresh, read_stream, with_providers};
use crate::schema::misfits;

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// A workspace file that is there.
const FILE: &str = "plan.md";

/// What a path may name.
#[derive(Default)]
struct Ids {
    chunk: String,
    fact: String,
    entry: String,
    entry_kept: String,
    commitment: String,
    run: String,
    run_to_cancel: String,
    key: String,
    key_to_rotate: String,
    agent: String,
    dream: String,
    archive: String,
    schedule: String,
    schedule_kept: String,
}

/// An operation of the document.
struct Operation {
    method: String,
    path: String,
    is: Value,
}

impl Operation {
    /// What a JSON body may hold, if it takes one.
    fn body(&self) -> Option<&Value> {
        self.is.pointer("/requestBody/content/application~1json")
    }

    /// The path with something in each of its places.
    fn filled(&self, ids: &Ids) -> String {
        let known = [
            ("/chunks/", &ids.chunk),
            ("/sources", &ids.entry_kept),
            ("/entries/", &ids.entry),
            ("/commitments/", &ids.commitment),
            ("/cancel", &ids.run_to_cancel),
            ("/runs/", &ids.run),
            ("/rotate", &ids.key_to_rotate),
            ("/keys/", &ids.key),
            ("/dreams/", &ids.dream),
            ("/pause", &ids.schedule_kept),
            ("/resume", &ids.schedule_kept),
            ("/schedules/", &ids.schedule),
            ("/archives/", &ids.archive),
            ("/facts/", &ids.fact),
            ("/agents/", &ids.agent),
        ];
        let id = known.iter().find(|(part, _)| self.path.contains(part)).map(|(_, id)| id.as_str());
        let path = self.path.replace("{session}", "trip").replace("{path}", FILE);
        let path = path.replace("{checksum}", "{id}");
        path.replace("{id}", id.filter(|id| !id.is_empty()).unwrap_or("none"))
    }
}

async fn get(host: &Host, path: &str, headers: &[(&str, &str)]) -> Answer {
    host.raw(&host.request("GET", path, headers, b"")).await
}

async fn document(host: &Host) -> Value {
    get(host, "/v1/openapi.json", &[("Authorization", "")]).await.json()
}

fn operations(document: &Value) -> Vec<Operation> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in METHODS {
            if let Some(is) = item.get(method) {
                let (method, path) = (method.to_owned(), path.clone());
                found.push(Operation { method, path, is: is.clone() });
            }
        }
    }
    found
}

/// The route table, as `get /path`.
fn routes() -> BTreeSet<String> {
    let source = include_str!("../../src/routes.rs");
    let nested = source.find(".nest(PREFIX").unwrap();
    let mut found = BTreeSet::new();
    for (at, _) in source.match_indices(".route(") {
        let rest = source[at + 7..].trim_start().trim_start_matches('"');
        let (path, rest) = rest.split_once('"').unwrap();
        let handlers = rest.split(".route(").next().unwrap();
        let handlers = handlers.split([';', '}']).next().unwrap();
        let prefix = if at < nested { API } else { "" };
        for method in METHODS {
            let starts =
                [format!(" {method}("), format!(".{method}("), format!("routing::{method}(")];
            if starts.iter().any(|start| handlers.contains(start.as_str())) {
                // The document has no sign for a place of many segments.
                let path = path.replace("{*", "{");
                // The router knows no ending of a segment.
                let is_fork = format!("{method} {path}") == "post /v1/runs/{id}";
                let path = if is_fork { format!("{path}:fork") } else { path };
                found.insert(format!("{method} {prefix}{path}"));
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_has_every_route_and_no_other() {
    let (_dir, host) = fresh().await;
    let document = document(&host).await;
    let described: BTreeSet<String> =
        operations(&document).iter().map(|one| format!("{} {}", one.method, one.path)).collect();
    assert_eq!(described, routes());
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_is_open_and_can_be_kept() {
    let (_dir, host) = fresh().await;
    let first = get(&host, "/v1/openapi.json", &[("Authorization", "")]).await;
    assert_eq!((first.status, first.header("content-type")), (200, Some("application/json")));
    let etag = first.header("etag").unwrap();
    let again = get(&host, "/v1/openapi.json", &[("If-None-Match", etag)]).await;
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    let other = get(&host, "/v1/openapi.json", &[("If-None-Match", "\"other\"")]).await;
    assert_eq!((other.status, other.text), (200, first.text));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_open_and_closed_to_others() {
    let (_dir, host) = fresh().await;
    let page = get(&host, "/docs", &[("Authorization", "")]).await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert_eq!(page.header("x-frame-options"), Some("DENY"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{policy}");
    let welcome = get(&host, "/", &[("Authorization", "")]).await.json();
    assert_eq!(
        (&welcome["docs"], &welcome["openapi"]),
        (&json!("/docs"), &json!("/v1/openapi.json"))
    );
    host.stop().await;
}

/// The schema behind a reference or an optional one.
fn target<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let branches = schema["oneOf"].as_array().into_iter().flatten();
    let to = branches.chain([schema]).find_map(|branch| branch["$ref"].as_str());
    to.map_or(schema, |to| document.pointer(&to[1..]).unwrap())
}

/// A body whose field `name` has a type that it must not have.
fn spoiled(body: &Value, name: &str) -> Value {
    let mut body = body.clone();
    body[name] = json!({"not": "this"});
    body
}

async fn refuses(host: &Host, operation: &Operation, body: &Value, name: &str) {
    let path = operation.filled(&Ids::default());
    let method = operation.method.to_uppercase();
    let sent = host.request(&method, &path, &[], body.to_string().as_bytes());
    let answer = host.raw(&sent).await;
    assert_eq!(answer.code(), "400 validation_error", "{method} {path} {body}");
    assert!(answer.text.contains(&format!("`{name}`")), "{path} {name}: {}", answer.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_field_of_a_body_is_read() {
    let (_dir, host) = fresh().await;
    let document = document(&host).await;
    for operation in operations(&document) {
        let Some(media) = operation.body() else { continue };
        let example = media.get("example").cloned().unwrap_or(json!({}));
        let schema = target(&document, &media["schema"]);
        // The providers' own bodies are theirs to describe.
        if operation.is["tags"] == json!(["proxy"]) {
            assert_eq!(schema["type"], "object");
            continue;
        }
        for (name, property) in schema["properties"].as_object().unwrap() {
            // Any object will do, and so no object is wrong.
            if property["type"].to_string().contains("object") {
                continue;
            }
            refuses(&host, &operation, &spoiled(&example, name), name).await;
            if name != "turns" {
                continue;
            }
            let turn = target(&document, &property["items"]);
            for (name, property) in turn["properties"].as_object().unwrap() {
                // What may be anything cannot be wrong.
                if property.get("type").is_some() || property.get("oneOf").is_some() {
                    let turns = [spoiled(&example["turns"][0], name)];
                    refuses(&host, &operation, &json!({"turns": turns}), name).await;
                }
            }
        }
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_parameter_is_read() {
    let (_dir, host) = fresh().await;
    let document = document(&host).await;
    for operation in operations(&document) {
        let parameters = operation.is["parameters"].as_array().into_iter().flatten();
        for name in parameters.filter(|one| one["in"] == "query").map(|one| &one["name"]) {
            let name = name.as_str().unwrap();
            // Only who reads it sees that it is there twice.
            let path = format!("{}?{name}=a&{name}=b", operation.filled(&Ids::default()));
            let example = operation.body().and_then(|media| media.get("example"));
            let body = example.map(Value::to_string).unwrap_or_default();
            let method = operation.method.to_uppercase();
            let answer = host.raw(&host.request(&method, &path, &[], body.as_bytes())).await;
            assert_eq!(answer.code(), "400 validation_error", "{method} {path}");
            assert!(answer.text.contains(&format!("`{name}` is given twice")), "{}", answer.text);
        }
    }
    host.stop().await;
}

/// Turns enough for chunks, one that a fact can be learned from, and one of all else.
async fn fill(host: &Host) -> Ids {
    let mut turns: Vec<Value> = (0..60)
        .map(
            |n| json!({"role": "user", "content": format!("Point {n} is about glaciers."), "n": n}),
        )
        .collect();
    turns.push(json!({"role": "user", "name": "Ana", "content": "I live in Lisbon.", "seq": 1}));
    turns.push(json!({"role": "tool", "content": null, "tags": ["a"], "confidence": 0.5}));
    let body = json!({ "turns": turns }).to_string();
    assert_eq!(host.post("/sessions/trip/turns", &body).await.status, 201);
    host.settled().await;
    let file = format!("/v1/host/workspace/files/{FILE}");
    assert_eq!(host.ask("PUT", &file, &[], r#"{"content":"x"}"#).await.status, 200);
    // In a memory of its own, so that it is in force when it is taken back.
    let asleep = r#"{"memoryRef":"asleep","content":"The ferry leaves at nine."}"#;
    assert_eq!(host.post("/entries", asleep).await.status, 201);
    let dream = host.post("/dreams", r#"{"memoryRef":"asleep"}"#).await;
    assert_eq!(dream.status, 201, "{dream:?}");
    let dream = dream.json();
    let told = |name: &str| dream[name].as_str().unwrap().to_owned();
    let id = |value: &Value| value["id"].as_str().unwrap().to_owned();
    let made = async |path: &str, body: &str| id(&host.post(path, body).await.json());
    Ids {
        dream: told("runId"),
        archive: told("archiveChecksum"),
        schedule: made("/schedules", r#"{"cron":"0 0 * * *"}"#).await,
        schedule_kept: made("/schedules", r#"{"delayMs":80000000}"#).await,
        chunk: id(&host.get("/chunks").await.json()["chunks"][0]),
        fact: id(&host.get("/facts").await.json()["facts"][0]),
        commitment: made("/commitments", r#"{"intention":"x","at":"2999-01-01T00:00:00Z"}"#).await,
        run: ended_run(host).await,
        run_to_cancel: String::new(),
        entry_kept: made("/entries", r#"{"content":"y"}"#).await,
        entry: made("/entries", r#"{"content":"x","expiresAt":"2999-01-01T00:00:00Z"}"#).await,
        key: made("/keys", r#"{"role":"reader"}"#).await,
        key_to_rotate: made("/keys", r#"{"role":"reader"}"#).await,
        agent: get(host, "/v1/agents", &[]).await.json()["agents"][0]["agentId"]
            .as_str()
            .unwrap()
            .to_owned(),
    }
}

async fn new_run(host: &Host, workflow: &str) -> String {
    let body = json!({ "workflowId": workflow }).to_string();
    let made = host.ask("POST", "/v1/runs", &[], &body).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["runId"].as_str().unwrap().to_owned()
}

async fn ended_run(host: &Host) -> String {
    let run = new_run(host, "conformance-noop").await;
    loop {
        let polled = format!("/v1/runs/{run}/events/poll?lastSequence=900&timeout=5");
        if host.ask("GET", &polled, &[], "").await.json()["isComplete"] == true {
            return run;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_work_and_answers_fit_their_schemas() {
    let (_dir, host, _providers) = with_providers().await;
    let document = document(&host).await;
    let mut ids = fill(&host).await;
    let mut seen = 0;
    for operation in operations(&document) {
        if operation.path.ends_with("/cancel") {
            // It waits for an entry to lapse, and so can be stopped.
            ids.run_to_cancel = new_run(&host, "conformance-agent-memory-ttl").await;
        }
        let path = operation.filled(&ids);
        assert!(!path.contains('{'), "{path} has a place that is not filled");
        let body = match operation.body() {
            Some(media) if operation.is["requestBody"]["required"] == true => {
                media.get("example").unwrap_or_else(|| panic!("{path} has no example")).to_string()
            }
            _ => String::new(),
        };
        let body = match operation.is["operationId"] == "correctHandoff" {
            // The one that is there; the session has been compacted by now.
            true => {
                let found = host.get("/sessions/trip/handoff").await.json();
                body.replace("h-0123456789abcdef0123", found["compactionId"].as_str().unwrap())
            }
            false => body,
        };
        let method = operation.method.to_uppercase();
        let sent = host.request(&method, &path, &[], body.as_bytes());
        let answer = match operation.is["tags"] == json!(["proxy"]) {
            // A provider's answer comes in pieces.
            true => {
                let address = host.address;
                apart(move || {
                    let mut stream = connect(address);
                    stream.write_all(&sent).unwrap();
                    read_stream(stream).0
                })
                .await
            }
            false => host.raw(&sent).await,
        };
        assert!((200..300).contains(&answer.status), "{method} {path}: {answer:?}");
        let described = &operation.is["responses"][answer.status.to_string()];
        if answer.status == 204 {
            assert!(described.is_object() && described.get("content").is_none(), "{described}");
            continue;
        }
        let kind = answer.header("content-type").unwrap().split(';').next().unwrap();
        let media = &described["content"][kind];
        assert!(media.is_object(), "{method} {path}: {kind} is not described: {described}");
        if kind == "application/json" {
            let found = misfits(&document, &media["schema"], &answer.json());
            assert!(found.is_empty(), "{method} {path}: {found:#?}");
            seen += 1;
        }
    }
    assert!(seen > 28, "{seen}");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_fit_their_schema() {
    let (_dir, host) = fresh().await;
    let document = document(&host).await;
    let schema = json!({"$ref": "#/components/schemas/Error"});
    let refusals = [
        host.get("/sessions/none/turns").await,
        host.get("/sessions?limit=0").await,
        host.call("GET", "/stats", &[("Authorization", "")], None).await,
        host.call("POST", "/search", &[("Content-Type", "text/plain")], Some("x")).await,
    ];
    for (answer, status) in refusals.iter().zip([404, 400, 401, 415]) {
        assert_eq!(answer.status, status);
        assert_eq!(misfits(&document, &schema, &answer.json()), Vec::<String>::new());
    }
    host.stop().await;
}
