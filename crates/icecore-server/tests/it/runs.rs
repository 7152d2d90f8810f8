//! Runs at the door: what is refused and how, what is followed, and what a run that is
//! called off, forgotten, expired or cut short leaves behind.
//!
//! The fixture that waits for an entry to expire goes by the memory's clock. Where that
//! is moved by hand, such a run lives until it is moved.

use std::collections::BTreeSet;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use icecore::formats::json::JsonText;
use icecore::{Clock, Memory, Principal, Tenant};
use icecore_host::HostSettings;
use icecore_host::runs::RunRequest;
use icecore_server::{Limits, Role};
use serde_json::{Value, json};

use crate::client::{Answer, HandClock, Host, apart, connect, in_conformance, read_head};

const RUNS: &str = "/v1/runs";
const NOOP: &str = "conformance-noop";
const ROUNDTRIP: &str = "conformance-agent-memory-roundtrip";
const ROUNDTRIP_REF: &str = "conformance/agent-memory-roundtrip";
const WAITING: &str = "conformance-agent-memory-ttl";
const WAITING_REF: &str = "conformance/agent-memory-ttl";

/// What the waiting fixture waits for is past by then.
const LONG_ENOUGH: i64 = 1_000;

fn settings() -> HostSettings {
    HostSettings { conformance: true, ..HostSettings::default() }
}

async fn serve(dir: &Path, clock: &Arc<HandClock>, settings: HostSettings, limits: Limits) -> Host {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
    let memory = crate::place::open(Memory::builder().clock(clock), dir).await;
    let served = icecore_host::Host::open(memory, settings).unwrap();
    Host::serving("127.0.0.1:0", served, dir, limits).await
}

/// A host whose time moves by hand.
async fn timed() -> (tempfile::TempDir, Host, Arc<HandClock>) {
    timed_as(settings(), Limits::default()).await
}

async fn timed_as(
    settings: HostSettings,
    limits: Limits,
) -> (tempfile::TempDir, Host, Arc<HandClock>) {
    let (dir, clock) = (tempfile::tempdir().unwrap(), HandClock::new());
    let host = serve(dir.path(), &clock, settings, limits).await;
    (dir, host, clock)
}

async fn get(host: &Host, path: &str) -> Answer {
    host.ask("GET", &format!("{RUNS}{path}"), &[], "").await
}

async fn post(host: &Host, path: &str, body: &str) -> Answer {
    host.ask("POST", &format!("{RUNS}{path}"), &[], body).await
}

async fn create(host: &Host, workflow: &str) -> String {
    let made = post(host, "", &json!({ "workflowId": workflow }).to_string()).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["runId"].as_str().unwrap().to_owned()
}

async fn fork(host: &Host, id: &str, body: &str) -> Answer {
    post(host, &format!("/{id}:fork"), body).await
}

async fn forked(host: &Host, id: &str) -> String {
    let made = fork(host, id, r#"{"mode":"replay"}"#).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["runId"].as_str().unwrap().to_owned()
}

/// Waits for a run to end, by asking for what is not there before it has.
async fn ended(host: &Host, id: &str) -> Value {
    loop {
        let polled = get(host, &format!("/{id}/events/poll?lastSequence=900&timeout=10")).await;
        if polled.json()["isComplete"] == true {
            return get(host, &format!("/{id}")).await.json();
        }
    }
}

async fn run(host: &Host, workflow: &str) -> String {
    let id = create(host, workflow).await;
    assert_eq!(ended(host, &id).await["status"], "completed");
    id
}

async fn events(host: &Host, id: &str) -> Vec<Value> {
    let told = get(host, &format!("/{id}/events")).await;
    assert_eq!(told.header("content-type"), Some("application/json"));
    told.json()["events"].as_array().unwrap().clone()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// What is said to have been written: in which memory, and under which id.
fn written(events: &[Value]) -> BTreeSet<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let told = events.iter().filter(|event| event["type"] == "memory.written");
    told.map(|event| (text(&event["payload"]["memoryRef"]), text(&event["payload"]["memoryId"])))
        .collect()
}

fn encoded(memory: &str) -> String {
    memory.replace('/', "%2F")
}

async fn entry(host: &Host, memory: &str, id: &str) -> Answer {
    host.get(&format!("/entries/{id}?memoryRef={}", encoded(memory))).await
}

/// A run that has written what it waits for to expire.
async fn waiting(host: &Host) -> String {
    let id = create(host, WAITING).await;
    while written(&events(host, &id).await).len() < 2 {
        get(host, &format!("/{id}/events/poll?lastSequence=900&timeout=1")).await;
    }
    id
}

/// What looks like a key of some service.
fn token() -> String {
    format!("sk-{}", "a1b2c3d4e5".repeat(4))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_that_is_not_there_is_not_repeated() {
    let (_dir, host) = in_conformance().await;
    let long = "n".repeat(4_000);
    let (secret, near) = (token(), format!("{NOOP} "));
    for id in ["nope-nope", "../../etc/passwd", "a\u{0}b", &long, &secret, &near, "ünï"] {
        let refused = post(&host, "", &json!({ "workflowId": id }).to_string()).await;
        assert_eq!(refused.code(), "404 not_found", "{id}");
        assert!(!refused.text.contains(id), "{refused:?}");
        assert!(!refused.text.contains("nope") && !refused.text.contains("etc"), "{refused:?}");
    }
    assert_eq!(post(&host, "", r#"{"workflowId":""}"#).await.code(), "404 not_found");
    // Without the suite there is no fixture.
    let (_dir, plain) = crate::client::fresh().await;
    let refused = post(&plain, "", &json!({ "workflowId": NOOP }).to_string()).await;
    assert_eq!(refused.code(), "404 not_found");
    plain.stop().await;
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_is_given_is_checked() {
    let limited = HostSettings { run_input_bytes: 100, ..settings() };
    let (_dir, host, _) = timed_as(limited, Limits::default()).await;
    for body in ["", "{", "[]", "\"x\"", "7", "null", "{}", "{\"workflowId\":null}"] {
        assert_eq!(post(&host, "", body).await.code(), "400 validation_error", "{body}");
    }
    let twice = r#"{"workflowId":"a","workflowId":"b"}"#;
    assert_eq!(post(&host, "", twice).await.code(), "400 validation_error");
    let wrong = [
        ("workflowId", vec![json!(7), json!(["x"]), json!({}), json!(true)]),
        ("inputs", vec![json!("x"), json!([1]), json!(7), json!(false)]),
        ("tenantId", vec![json!(7), json!({})]),
        ("scopeId", vec![json!([]), json!(1.5)]),
        ("callbackUrl", vec![json!({}), json!(7)]),
        ("configurable", vec![json!("x"), json!([])]),
        ("metadata", vec![json!("x"), json!([])]),
        ("tags", vec![json!("x"), json!([1]), json!({})]),
    ];
    for (field, values) in wrong {
        for value in values {
            let mut body = json!({ "workflowId": NOOP });
            body[field] = value;
            let refused = post(&host, "", &body.to_string()).await;
            assert_eq!(refused.code(), "400 validation_error", "{body}");
            let message = refused.json()["message"].as_str().unwrap().to_owned();
            assert!(message.contains(&format!("`{field}`")), "{message}");
        }
    }
    for depth in [200, 100_000] {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        let body = format!(r#"{{"workflowId":"{NOOP}","inputs":{{"a":{open}{close}}}}}"#);
        assert_eq!(post(&host, "", &body).await.code(), "400 validation_error", "{depth}");
    }
    let sized = |bytes: usize| {
        let inputs = format!(r#"{{"a":"{}"}}"#, "x".repeat(bytes - 8));
        assert_eq!(inputs.len(), bytes);
        format!(r#"{{"workflowId":"{NOOP}","inputs":{inputs}}}"#)
    };
    assert_eq!(post(&host, "", &sized(100)).await.status, 201);
    let refused = post(&host, "", &sized(101)).await;
    assert_eq!(refused.code(), "413 inputs_too_large");
    let refused = refused.json();
    assert_eq!(refused["details"], json!({"limit": "run_input_bytes", "limitBytes": 100}));
    assert!(refused["message"].as_str().unwrap().contains("run_input_bytes"));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_belongs_to_the_keys_tenant_whatever_it_hints() {
    let (_dir, host) = in_conformance().await;
    let body = json!({"workflowId": NOOP, "tenantId": "mem-attr-emit", "scopeId": "x",
        "callbackUrl": "http://127.0.0.1:1/", "configurable": {}, "tags": [], "metadata": {}});
    let made = post(&host, "", &body.to_string()).await;
    assert_eq!(made.status, 201);
    let made = made.json();
    let id = made["runId"].as_str().unwrap();
    assert_eq!(made["eventsUrl"], format!("{RUNS}/{id}/events"));
    assert_eq!(made["statusUrl"], format!("{RUNS}/{id}"));
    let found = ended(&host, id).await;
    assert_eq!(found["owner"]["tenant"], "default");
    assert_eq!(found["status"], "completed");
    let reader = host.key_of("default", Role::Reader).await;
    let bearer = format!("Bearer {reader}");
    let headers = [("Authorization", bearer.as_str())];
    assert_eq!(host.ask("GET", &format!("{RUNS}/{id}"), &headers, "").await.status, 200);
    for path in [RUNS.to_owned(), format!("{RUNS}/{id}:fork"), format!("{RUNS}/{id}/cancel")] {
        let refused = host.ask("POST", &path, &headers, &body.to_string()).await;
        assert_eq!(refused.code(), "403 forbidden", "{path}");
    }
    host.stop().await;
}

/// Every way to reach a run, with a body where one is needed.
fn ways(id: &str) -> Vec<(&'static str, String, &'static str)> {
    vec![
        ("GET", format!("{RUNS}/{id}"), ""),
        ("GET", format!("{RUNS}/{id}/events"), ""),
        ("GET", format!("{RUNS}/{id}/events/poll"), ""),
        ("GET", format!("{RUNS}/{id}/events/poll?timeout=30"), ""),
        ("POST", format!("{RUNS}/{id}/cancel"), "{}"),
        ("POST", format!("{RUNS}/{id}:fork"), r#"{"mode":"replay"}"#),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_ids_belong_to_no_run() {
    let (_dir, host) = in_conformance().await;
    let long = "r".repeat(4_000);
    let id = run(&host, NOOP).await;
    let upper = id.to_uppercase();
    let spaced = format!("{id}%20");
    for hostile in
        ["..%2F..%2Fetc%2Fpasswd", "%00", "a%00b", &long, ".", "..", "%2e%2e", "run%0d%0aX: y"]
            .into_iter()
            .chain([upper.as_str(), &spaced, "*", "%25", "run-%F0%9F%98%80", "a%3Ab"])
    {
        for (method, path, body) in ways(hostile) {
            // A space in a request line is not ours to judge.
            let path = path.replace(' ', "%20");
            let refused = host.ask(method, &path, &[], body).await;
            assert_eq!(refused.code(), "404 not_found", "{method} {path}");
            assert!(!refused.text.contains("passwd") && !refused.text.contains("rrrr"));
        }
        let headers = [("Accept", "text/event-stream")];
        let path = format!("{RUNS}/{}/events", hostile.replace(' ', "%20"));
        assert_eq!(host.ask("GET", &path, &headers, "").await.code(), "404 not_found");
    }
    for (method, path, body) in ways("%ff%fe") {
        assert_eq!(host.ask(method, &path, &[], body).await.code(), "400 validation_error");
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_colon_of_a_fork_may_be_spelled_either_way() {
    let (_dir, host) = in_conformance().await;
    let id = run(&host, NOOP).await;
    let body = r#"{"mode":"replay"}"#;
    for spelled in [":fork", "%3Afork", "%3afork", ":%66ork"] {
        let made = post(&host, &format!("/{id}{spelled}"), body).await;
        assert_eq!(made.status, 201, "{spelled}: {made:?}");
        let made = made.json();
        assert_eq!((&made["sourceRunId"], &made["fromSeq"]), (&json!(id), &json!(0)));
        assert_eq!(made["mode"], "replay");
    }
    let tails = ["", ":", ":FORK", ":forks", ":fork:fork", ":fork%20", "%253Afork", ":fork/x"];
    let paths = tails.map(|tail| format!("/{id}{tail}"));
    for path in paths.iter().map(String::as_str).chain(["/:fork", "/%3Afork", "/x:fork:fork"]) {
        assert_eq!(post(&host, path, body).await.code(), "404 not_found", "{path}");
    }
    // What is read is no fork.
    assert_eq!(get(&host, &format!("/{id}:fork")).await.code(), "404 not_found");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_is_asked_for_in_one_way() {
    let (_dir, host, clock) = timed().await;
    let id = run(&host, NOOP).await;
    let all = events(&host, &id).await.len();
    for body in [
        "",
        "[]",
        "{}",
        r#"{"mode":null}"#,
        r#"{"mode":"branch"}"#,
        r#"{"mode":"REPLAY"}"#,
        r#"{"mode":7}"#,
        r#"{"fromSeq":0}"#,
        r#"{"mode":"replay","fromSeq":"0"}"#,
        r#"{"mode":"replay","fromSeq":-1}"#,
        r#"{"mode":"replay","fromSeq":1e3}"#,
        r#"{"mode":"replay","fromSeq":0.5}"#,
        r#"{"mode":"replay","fromSeq":9007199254740992}"#,
        r#"{"mode":"replay","fromSeq":99999999999999999999999}"#,
        r#"{"mode":"replay","fromSeq":[]}"#,
        r#"{"mode":"replay","runOptionsOverlay":{}}"#,
        r#"{"mode":"replay","runOptionsOverlay":{"a":1}}"#,
        r#"{"mode":"replay","runOptionsOverlay":"x"}"#,
        r#"{"mode":"replay","fromseq":1}"#,
    ] {
        assert_eq!(fork(&host, &id, body).await.code(), "400 validation_error", "{body}");
    }
    let beyond = |seq: u64| json!({"mode": "replay", "fromSeq": seq}).to_string();
    for seq in [all as u64 + 1, 9_007_199_254_740_991] {
        let refused = fork(&host, &id, &beyond(seq)).await;
        assert_eq!(refused.code(), "422 invalid_from_seq");
        assert_eq!(refused.json()["details"], json!({"fromSeq": seq, "maxFromSeq": all}));
    }
    // From its end there is nothing to repeat, and that is no mistake.
    for body in [beyond(all as u64), r#"{"mode":"replay","fromSeq":null}"#.to_owned()] {
        assert_eq!(fork(&host, &id, &body).await.status, 201, "{body}");
    }
    assert_eq!(fork(&host, "run-none", &beyond(999)).await.code(), "404 not_found");
    // One that has not ended is told first what is wrong with the request.
    let live = waiting(&host).await;
    assert_eq!(fork(&host, &live, &beyond(999)).await.code(), "422 invalid_from_seq");
    assert_eq!(fork(&host, &live, &beyond(0)).await.code(), "409 run_already_active");
    clock.advance(LONG_ENOUGH);
    assert_eq!(ended(&host, &live).await["status"], "completed");
    assert_eq!(fork(&host, &live, &beyond(0)).await.status, 201);
    host.stop().await;
}

/// What a fork repeats of an event: all but whose it is.
fn repeated(event: &Value) -> Value {
    let kept = ["type", "payload", "timestamp", "nodeId"];
    kept.map(|name| event[name].clone()).into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_of_a_fork_tells_the_same() {
    let (_dir, host) = in_conformance().await;
    let source = run(&host, ROUNDTRIP).await;
    let before = events(&host, &source).await;
    let path = format!("/entries?memoryRef={}&limit=0", encoded(ROUNDTRIP_REF));
    let entries = host.get(&path).await.text;
    let first = forked(&host, &source).await;
    let second = forked(&host, &first).await;
    for (id, of) in [(&first, &source), (&second, &first)] {
        let found = ended(&host, id).await;
        assert_eq!(found["status"], "completed");
        assert_eq!(found["sourceRunId"], json!(of));
        let told = events(&host, id).await;
        let expected: Vec<Value> = before.iter().map(repeated).collect();
        assert_eq!(told.iter().map(repeated).collect::<Vec<_>>(), expected);
        assert!(told.iter().all(|event| event["runId"] == json!(id)));
        assert!(!written(&told).is_empty() && written(&told) == written(&before));
    }
    assert_eq!(host.get(&path).await.text, entries, "a fork writes nothing");
    // A part of it: from there on, and no more.
    let body = json!({"mode": "replay", "fromSeq": 3}).to_string();
    let part = fork(&host, &second, &body).await.json();
    let part = part["runId"].as_str().unwrap();
    ended(&host, part).await;
    assert!(written(&events(&host, part).await).is_subset(&written(&before)));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_one_run_and_one_fork() {
    let (_dir, host) = in_conformance().await;
    let host = Arc::new(host);
    let body = json!({ "workflowId": NOOP }).to_string();
    let mut made = BTreeSet::new();
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (host, body) = (Arc::clone(&host), body.clone());
        asking.spawn(
            async move { host.ask("POST", RUNS, &[("Idempotency-Key", "one")], &body).await },
        );
    }
    let mut first_hand = 0;
    while let Some(answer) = asking.join_next().await {
        let answer = answer.unwrap();
        assert_eq!(answer.status, 201);
        first_hand += usize::from(answer.header("openwop-idempotent-replay").is_none());
        made.insert(answer.json()["runId"].as_str().unwrap().to_owned());
    }
    assert_eq!((made.len(), first_hand), (1, 1));
    let source = made.pop_first().unwrap();
    ended(&host, &source).await;
    let other = json!({ "workflowId": ROUNDTRIP }).to_string();
    let refused = host.ask("POST", RUNS, &[("Idempotency-Key", "one")], &other).await;
    assert_eq!(refused.code(), "409 idempotency_key_mismatch");

    let again = run(&host, NOOP).await;
    let forking = async |run: &str, body: &str| {
        let path = format!("{RUNS}/{run}:fork");
        host.ask("POST", &path, &[("Idempotency-Key", "one")], body).await
    };
    let body = r#"{"mode":"replay"}"#;
    // Another operation has keys of its own.
    let first = forking(&source, body).await;
    assert_eq!(first.status, 201);
    let second = forking(&source, body).await;
    assert_eq!(second.text, first.text);
    assert_eq!(second.header("openwop-idempotent-replay"), Some("true"));
    for (run, body) in [(&source, r#"{"mode":"replay","fromSeq":1}"#), (&again, body)] {
        assert_eq!(forking(run, body).await.code(), "409 idempotency_key_mismatch");
    }
    // A refusal is not kept.
    let refused = host.ask("POST", RUNS, &[("Idempotency-Key", "two")], "{}").await;
    assert_eq!(refused.status, 400);
    assert_eq!(host.ask("POST", RUNS, &[("Idempotency-Key", "two")], &other).await.status, 201);
    let host = Arc::into_inner(host).unwrap();
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_called_off_ends_there() {
    let (_dir, host, clock) = timed().await;
    let id = waiting(&host).await;
    let before = events(&host, &id).await;
    let cancelled = post(&host, &format!("/{id}/cancel"), "").await;
    assert_eq!(cancelled.status, 200);
    assert_eq!(cancelled.json()["status"], "cancelled");
    let all = events(&host, &id).await;
    assert_eq!(all[..before.len()], before[..]);
    assert_eq!(kinds(&all[before.len()..]), ["run.cancelled"]);
    for body in ["", "{}"] {
        let again = post(&host, &format!("/{id}/cancel"), body).await;
        assert_eq!(again.code(), "409 run_ended");
    }
    assert_eq!(post(&host, "/run-none/cancel", "{}").await.code(), "404 not_found");
    clock.advance(LONG_ENOUGH);
    // The engine has gone on with another one by now.
    run(&host, NOOP).await;
    assert_eq!(events(&host, &id).await, all);
    let found = get(&host, &format!("/{id}")).await.json();
    assert_eq!(found["status"], "cancelled");
    assert!(found["endedAt"].is_string() && found.get("error").is_none());
    // It can be repeated as it was.
    let fork = forked(&host, &id).await;
    assert_eq!(ended(&host, &fork).await["status"], "cancelled");
    assert_eq!(kinds(&events(&host, &fork).await), kinds(&all));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_called_off_while_it_writes_is_whole() {
    let (_dir, host) = in_conformance().await;
    let host = Arc::new(host);
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..4_usize {
        let host = Arc::clone(&host);
        callers.spawn(async move {
            let mut ends = Vec::new();
            for turn in 0..12 {
                let id = create(&host, ROUNDTRIP).await;
                for _ in 0..(turn + caller) % 6 {
                    get(&host, &format!("/{id}")).await;
                }
                let cancelled = post(&host, &format!("/{id}/cancel"), "{}").await;
                assert!([200, 409].contains(&cancelled.status), "{cancelled:?}");
                ends.push((id, cancelled.status));
            }
            ends
        });
    }
    let mut seen = BTreeSet::new();
    while let Some(ends) = callers.join_next().await {
        for (id, status) in ends.unwrap() {
            let found = ended(&host, &id).await;
            let expected = if status == 200 { "cancelled" } else { "completed" };
            assert_eq!(found["status"], expected);
            let all = events(&host, &id).await;
            let kinds = kinds(&all);
            let is_last = |kind: &&str| ["run.cancelled", "run.completed"].contains(kind);
            assert_eq!(kinds.iter().position(is_last), Some(kinds.len() - 1));
            for (memory, entry_id) in written(&all) {
                assert_eq!(entry(&host, &memory, &entry_id).await.status, 200, "{kinds:?}");
            }
            seen.insert((id, written(&all)));
        }
    }
    // What was written without being told would be among these.
    let path = format!("/entries?memoryRef={}&limit=0", encoded(ROUNDTRIP_REF));
    let listed = host.get(&path).await.json();
    let listed = listed["entries"].as_array().unwrap();
    let found: BTreeSet<&str> = listed.iter().map(|entry| entry["id"].as_str().unwrap()).collect();
    let told = seen.iter().flat_map(|(_, written)| written);
    let told: BTreeSet<&str> = told.map(|(_, id)| id.as_str()).collect();
    assert_eq!(found, told);
    let host = Arc::into_inner(host).unwrap();
    host.stop().await;
}

/// Opens a stream of a run's events.
async fn follow(host: &Host, id: &str, last: &str) -> BufReader<TcpStream> {
    let headers = [("Accept", "text/event-stream"), ("Last-Event-ID", last)];
    let request = host.request("GET", &format!("{RUNS}/{id}/events"), &headers, b"");
    let address = host.address;
    apart(move || {
        let mut stream = connect(address);
        stream.write_all(&request).unwrap();
        let mut reader = BufReader::new(stream);
        let head = read_head(&mut reader);
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
        reader
    })
    .await
}

/// All that a stream tells until it closes: ids, names and data.
async fn to_the_end(mut reader: BufReader<TcpStream>) -> Vec<(u64, String, Value)> {
    let text = apart(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    })
    .await;
    let (mut told, mut id, mut name) = (Vec::new(), 0, String::new());
    for line in text.lines() {
        match line.split_once(": ") {
            Some(("id", text)) => id = text.parse().unwrap(),
            Some(("event", text)) => name = text.to_owned(),
            Some(("data", text)) => {
                told.push((id, name.clone(), serde_json::from_str(text).unwrap()));
            }
            _ => {}
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_follows_a_run_to_its_end_and_closes() {
    let (_dir, host, clock) = timed().await;
    let id = waiting(&host).await;
    let live = follow(&host, &id, "").await;
    let later = follow(&host, &id, "1").await;
    let ahead = follow(&host, &id, "900").await;
    clock.advance(LONG_ENOUGH);
    let all = events(&host, &id).await.len();
    let told = to_the_end(live).await;
    let found = events(&host, &id).await;
    assert!(found.len() > all || kinds(&found).last() == Some(&"run.completed"));
    let expected: Vec<(u64, String, Value)> = found
        .iter()
        .map(|event| {
            let kind = event["type"].as_str().unwrap().to_owned();
            (event["sequence"].as_u64().unwrap(), kind, event.clone())
        })
        .collect();
    assert_eq!(told, expected);
    assert_eq!(to_the_end(later).await, expected[2..]);
    assert_eq!(to_the_end(ahead).await, []);
    // Of one that has ended: the rest, or nothing, and at once.
    assert_eq!(to_the_end(follow(&host, &id, "").await).await, expected);
    assert_eq!(to_the_end(follow(&host, &id, "2").await).await, expected[3..]);
    let last = (expected.len() - 1).to_string();
    assert_eq!(to_the_end(follow(&host, &id, &last).await).await, []);
    assert_eq!(to_the_end(follow(&host, &id, "9007199254740991").await).await, []);
    let path = format!("{RUNS}/{id}/events");
    for garbage in ["x", "-1", "1.5", "0x1", "9007199254740992", "1, 2", "99999999999999999999"] {
        let headers = [("Accept", "text/event-stream"), ("Last-Event-ID", garbage)];
        let refused = host.ask("GET", &path, &headers, "").await;
        assert_eq!(refused.code(), "400 validation_error", "{garbage}");
    }
    // JSON is what is answered unless a stream is asked for.
    for accept in ["", "*/*", "application/json", "text/html"] {
        let answer = host.ask("GET", &path, &[("Accept", accept)], "").await;
        assert_eq!(answer.header("content-type"), Some("application/json"), "{accept}");
        let answer = answer.json();
        assert_eq!(answer["isComplete"], true);
        assert_eq!(answer["events"], json!(found));
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_waits_for_news_and_holds_no_place() {
    let limits = Limits { concurrent_requests: 1, ..Limits::default() };
    let (_dir, host, _) = timed_as(settings(), limits).await;
    let host = Arc::new(host);
    let id = waiting(&host).await;
    let all = events(&host, &id).await;
    let poll = async |query: &str| get(&host, &format!("/{id}/events/poll{query}")).await;
    for query in ["?timeout=31", "?timeout=x", "?timeout=-1", "?timeout=1.5", "?timeout="]
        .into_iter()
        .chain(["?lastSequence=x", "?lastSequence=-1", "?lastSequence=9007199254740992"])
        .chain(["?timeout=1&timeout=2", "?lastSequence=0&lastSequence=1"])
    {
        assert_eq!(poll(query).await.code(), "400 validation_error", "{query}");
    }
    // Exclusive; without it, all. What is there is not waited for.
    for (query, from) in [("", 0), ("?timeout=30", 0), ("?lastSequence=0&timeout=30", 1)] {
        let found = poll(query).await.json();
        assert_eq!(found["events"], json!(all[from..]), "{query}");
        assert_eq!(found["isComplete"], false);
    }
    let last = all.len() - 1;
    let none = poll(&format!("?lastSequence={last}&timeout=0")).await.json();
    assert_eq!(none, json!({"events": [], "isComplete": false}));
    let waits = {
        let (host, id) = (Arc::clone(&host), id.clone());
        tokio::spawn(async move {
            get(&host, &format!("/{id}/events/poll?lastSequence={last}&timeout=30")).await
        })
    };
    // The only place is free for whoever asks meanwhile. Should the poll come later
    // than these, it finds the news without having waited.
    for _ in 0..10 {
        assert_eq!(get(&host, &format!("/{id}")).await.status, 200);
    }
    assert_eq!(post(&host, &format!("/{id}/cancel"), "{}").await.status, 200);
    let found = tokio::time::timeout(Duration::from_secs(15), waits).await.unwrap().unwrap();
    let found = found.json();
    assert_eq!(kinds(found["events"].as_array().unwrap()), ["run.cancelled"]);
    assert_eq!(found["isComplete"], true);
    for after in [last + 1, 900] {
        let done = poll(&format!("?lastSequence={after}&timeout=30")).await.json();
        assert_eq!(done, json!({"events": [], "isComplete": true}));
    }
    let host = Arc::into_inner(host).unwrap();
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_past_its_retention_is_gone_and_remembered_as_that() {
    let brief = HostSettings { run_retention_seconds: 60, ..settings() };
    let (_dir, host, clock) = timed_as(brief.clone(), Limits::default()).await;
    let id = run(&host, ROUNDTRIP).await;
    let told = events(&host, &id).await;
    run(&host, NOOP).await;
    clock.advance(59_999);
    assert_eq!(get(&host, &format!("/{id}")).await.status, 200);
    clock.advance(1);
    let sweeper = icecore_host::Host::new(host.memory.clone(), brief);
    for is_let_go in [false, true] {
        if is_let_go {
            // Of the one that nobody asked for: the first answer lets go of the other.
            assert_eq!(sweeper.runs.expire().await.unwrap(), 1);
        }
        let details = json!({"sourceRunId": id, "reason": "retention_expired",
            "retentionBoundary": host.memory.now().to_string()});
        for (method, path, body) in ways(&id) {
            let gone = host.ask(method, &path, &[], body).await;
            assert_eq!(gone.code(), "410 run_expired", "{method} {path}");
            let mut expected = details.clone();
            if path.ends_with(":fork") {
                expected["fromSeq"] = json!(0);
            }
            assert_eq!(gone.json()["details"], expected, "{method} {path}");
        }
        let stream = [("Accept", "text/event-stream")];
        let gone = host.ask("GET", &format!("{RUNS}/{id}/events"), &stream, "").await;
        assert_eq!(gone.code(), "410 run_expired");
        let beyond = json!({"mode": "replay", "fromSeq": told.len() + 1}).to_string();
        assert_eq!(fork(&host, &id, &beyond).await.code(), "422 invalid_from_seq");
        let stranger = format!("Bearer {}", host.key_of("stranger", Role::Writer).await);
        let path = format!("{RUNS}/{id}");
        let missing = host.ask("GET", &path, &[("Authorization", &stranger)], "").await;
        assert_eq!(missing.code(), "404 not_found");
    }
    assert_eq!(sweeper.runs.expire().await.unwrap(), 0);
    // What it wrote was written to stay.
    for (memory, entry_id) in written(&told) {
        assert_eq!(entry(&host, &memory, &entry_id).await.status, 200);
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_their_owners_on_every_route() {
    let (_dir, host, _) = timed().await;
    let id = run(&host, NOOP).await;
    let live = waiting(&host).await;
    let stranger = format!("Bearer {}", host.key_of("stranger", Role::Admin).await);
    let headers = [("Authorization", stranger.as_str())];
    for (method, path, body) in ways(&id).into_iter().chain(ways(&live)) {
        let refused = host.ask(method, &path, &headers, body).await;
        assert_eq!(refused.code(), "404 not_found", "{method} {path}");
        assert!(!refused.text.contains(&id) && !refused.text.contains(&live));
    }
    // No key of this host works elsewhere than in the default workspace.
    let served = icecore_host::Host::new(host.memory.clone(), settings());
    let tenant = Tenant::new("default").unwrap();
    let next_door = host.memory.shown_name(&tenant, "next-door");
    let next_door = Principal::key_holder(tenant).at_work_in(next_door).unwrap();
    let request = RunRequest {
        id: "run-next-door".to_owned(),
        workflow_id: WAITING.to_owned(),
        inputs: JsonText::empty_object(),
        configurable: None,
        principal_id: "key-1".to_owned(),
        claim: None,
    };
    served.runs.create(&next_door, request).await.unwrap();
    for (method, path, body) in ways("run-next-door") {
        let refused = host.ask(method, &path, &[], body).await;
        assert_eq!(refused.code(), "403 run_forbidden", "{method} {path}");
        assert!(!refused.text.contains("next-door"));
    }
    let stream = [("Accept", "text/event-stream")];
    let refused = host.ask("GET", &format!("{RUNS}/run-next-door/events"), &stream, "").await;
    assert_eq!(refused.code(), "403 run_forbidden");
    // Nothing was called off by any of this.
    for id in [&live, &"run-next-door".to_owned()] {
        let tenant = Tenant::new("default").unwrap();
        let found = icecore::extend::store(&host.memory).run(&tenant, id).await.unwrap().unwrap();
        assert!(!found.status.is_terminal());
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_go_on_after_a_restart_and_events_stay_as_they_were() {
    let (dir, host, clock) = timed().await;
    let done = run(&host, ROUNDTRIP).await;
    let fork = forked(&host, &done).await;
    ended(&host, &fork).await;
    let left = waiting(&host).await;
    let mut before = Vec::new();
    for id in [&done, &fork] {
        before.push(get(&host, &format!("/{id}")).await.text);
        before.push(get(&host, &format!("/{id}/events")).await.text);
    }
    let unfinished = events(&host, &left).await;
    host.stop().await;

    let host = serve(dir.path(), &clock, settings(), Limits::default()).await;
    let mut after = Vec::new();
    for id in [&done, &fork] {
        after.push(get(&host, &format!("/{id}")).await.text);
        after.push(get(&host, &format!("/{id}/events")).await.text);
    }
    assert_eq!(after, before);
    assert_eq!(events(&host, &left).await, unfinished);
    clock.advance(LONG_ENOUGH);
    let found = ended(&host, &left).await;
    assert_eq!(found["status"], "completed");
    let all = events(&host, &left).await;
    assert_eq!(all[..unfinished.len()], unfinished[..]);
    assert_eq!(kinds(&all).last(), Some(&"run.completed"));
    assert_eq!(written(&all).len(), 3, "two of its own, and what sums it up");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_wait_do_not_hold_up_the_end() {
    let limits = Limits { shutdown_seconds: 600, ..Limits::default() };
    let (dir, mut host, clock) = timed_as(settings(), limits).await;
    let id = waiting(&host).await;
    let mut left = Vec::new();
    // More than are worked on at once.
    for _ in 0..10 {
        left.push(create(&host, WAITING).await);
    }
    let stream = follow(&host, &id, "").await;
    let path = format!("{RUNS}/{id}/events/poll?lastSequence=900&timeout=30");
    let request = host.request("GET", &path, &[], b"");
    let address = host.address;
    let mut polling = apart(move || {
        let mut stream = connect(address);
        stream.write_all(&request).unwrap();
        stream
    })
    .await;
    // Once a later request is answered, this one was accepted.
    get(&host, &format!("/{id}")).await;
    host.begin_to_stop();
    // It waits 20 s at most.
    host.ended().await;
    let mut answer = String::new();
    polling.read_to_string(&mut answer).unwrap();
    assert!(answer.is_empty() || answer.ends_with(r#"{"events":[],"isComplete":false}"#));
    let told = to_the_end(stream).await;
    assert!(told.iter().all(|(_, kind, _)| kind != "run.completed"), "{told:?}");

    let host = serve(dir.path(), &clock, settings(), Limits::default()).await;
    clock.advance(LONG_ENOUGH);
    for id in left.iter().chain([&id]) {
        // Those that had not begun wait in their turn.
        while get(&host, &format!("/{id}")).await.json()["status"] != "completed" {
            clock.advance(200);
            get(&host, &format!("/{id}/events/poll?lastSequence=900&timeout=1")).await;
        }
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_put_meanwhile_is_not_in_a_runs_list() {
    let (_dir, host, clock) = timed().await;
    let put = async |content: &str| {
        let body = json!({ "memoryRef": WAITING_REF, "content": content }).to_string();
        let made = host.post("/entries", &body).await;
        made.json()["id"].as_str().unwrap().to_owned()
    };
    let before = put("The ferry leaves at nine.").await;
    let id = waiting(&host).await;
    let meanwhile = put("The ferry leaves at ten.").await;
    clock.advance(LONG_ENOUGH);
    let found = ended(&host, &id).await;
    let listed = found["variables"]["memoryList"].as_array().unwrap();
    let ids: Vec<&Value> = listed.iter().map(|entry| &entry["id"]).collect();
    assert!(ids.contains(&&json!(before)), "{found}");
    assert!(ids.contains(&&found["variables"]["freshId"]), "its own are there");
    assert!(!ids.contains(&&json!(meanwhile)), "{found}");
    assert!(!ids.contains(&&found["variables"]["expiredId"]));
    assert_eq!(entry(&host, WAITING_REF, &meanwhile).await.status, 200);
    // A later run sees it.
    let later = waiting(&host).await;
    clock.advance(LONG_ENOUGH);
    let found = ended(&host, &later).await;
    let listed = found["variables"]["memoryList"].to_string();
    assert!(listed.contains(&meanwhile) && listed.contains(&before));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_wrote_is_told_by_every_workflow() {
    let (_dir, host) = in_conformance().await;
    let document = host.ask("GET", "/.well-known/openwop", &[], "").await.json();
    assert_eq!(document["memory"]["attribution"]["emitsWriteEvents"], true);
    let fixtures = document["fixtures"].as_array().unwrap();
    assert!(fixtures.len() >= 7);
    for workflow in fixtures {
        let id = run(&host, workflow.as_str().unwrap()).await;
        let all = events(&host, &id).await;
        let told = written(&all);
        assert!(!told.is_empty(), "{workflow}");
        assert_eq!(kinds(&all).last(), Some(&"run.completed"), "{workflow}");
        let mut found = 0;
        for (memory, entry_id) in &told {
            found += usize::from(entry(&host, memory, entry_id).await.status == 200);
        }
        // Only what was written to expire is not there.
        let expired = usize::from(workflow == WAITING);
        assert_eq!(found, told.len() - expired, "{workflow}");
        for event in all.iter().filter(|event| event["type"] == "memory.written") {
            let payload = event["payload"].as_object().unwrap();
            assert!(!payload.contains_key("content"), "{event}");
            assert_eq!(event["runId"], json!(id));
        }
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forgotten_is_gone_from_runs_and_forks() {
    let (_dir, host) = in_conformance().await;
    let source = run(&host, ROUNDTRIP).await;
    let fork = forked(&host, &source).await;
    ended(&host, &fork).await;
    let before = [events(&host, &source).await, events(&host, &fork).await];
    let found = get(&host, &format!("/{source}")).await.json();
    let read = &found["variables"]["memoryReadback"];
    let (id, content) = (read["id"].as_str().unwrap(), read["content"].as_str().unwrap());
    let body = json!({"entry": id, "memoryRef": ROUNDTRIP_REF}).to_string();
    assert_eq!(host.post("/forget", &body).await.status, 200);
    let later = forked(&host, &source).await;
    ended(&host, &later).await;
    for run in [&source, &fork, &later] {
        let answer = get(&host, &format!("/{run}")).await;
        assert_eq!(answer.json()["variables"]["memoryReadback"], Value::Null);
        assert!(!answer.text.contains(content), "{answer:?}");
        let told = get(&host, &format!("/{run}/events")).await;
        assert!(told.text.contains(id) && !told.text.contains(content), "{told:?}");
    }
    assert_eq!([events(&host, &source).await, events(&host, &fork).await], before);
    assert_eq!(entry(&host, ROUNDTRIP_REF, id).await.code(), "404 not_found");
    host.stop().await;
}
