//! Runs: what is answered, told, repeated and refused.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::shape::{Kind, RUN_EVENT, fits};
use super::suite::{NO_RUN, NOOP, Suite, refused, text};

#[tokio::test(flavor = "multi_thread")]
async fn runs_unknown_id_404() {
    let suite = Suite::begin().await;
    for id in [NO_RUN, "no-such-run"] {
        for tail in ["", "/events", "/events/poll"] {
            let answer = suite.get(&format!("/v1/runs/{id}{tail}")).await;
            assert_eq!(answer.code(), "404 not_found", "{id}{tail}");
        }
        let fork = json!({"mode": "replay", "fromSeq": 0});
        let answer = suite.post(&format!("/v1/runs/{id}:fork"), fork).await;
        assert_eq!(answer.code(), "404 not_found", "{id}");
    }
    let long = "r".repeat(4_000);
    for id in ["..%2F..%2Fetc", "%00", &long] {
        refused(&suite.get(&format!("/v1/runs/{id}")).await, &[400, 404]);
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_answer_shape() {
    let suite = Suite::begin().await;
    let body = json!({"workflowId": NOOP, "inputs": {}, "tenantId": "someone-else"});
    let created = suite.post("/v1/runs", body).await;
    assert_eq!(created.status, 201);
    let created = created.json();
    let shape = Kind::Open(&[
        ("runId", Kind::Word),
        ("status", Kind::Word),
        ("eventsUrl", Kind::Text),
        ("statusUrl", Kind::Text),
    ]);
    fits(&shape, &created);
    let run = suite.ended(text(&created, "runId")).await;
    assert_eq!((text(&run, "status"), text(&run, "workflowId")), ("completed", NOOP));
    // The tenant is the key's, whatever the body says.
    assert_eq!(run["owner"]["tenant"], "default");
    for url in ["eventsUrl", "statusUrl"] {
        assert_eq!(suite.get(text(&created, url)).await.status, 200, "{url}");
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_events_shape() {
    let suite = Suite::begin().await;
    let run = suite.run(NOOP, json!({})).await;
    let id = text(&run, "runId");
    let events = suite.events(id).await;
    assert!(events.len() >= 3, "{events:?}");
    for (sequence, event) in events.iter().enumerate() {
        fits(&RUN_EVENT, event);
        assert!(text(event, "eventId").len() <= 128);
        assert_eq!((text(event, "runId"), &event["sequence"]), (id, &json!(sequence)));
    }
    assert_eq!(events[0]["type"], "run.started");
    assert_eq!(events.last().unwrap()["type"], "run.completed");
    let path = format!("/v1/runs/{id}/events/poll?lastSequence=0&timeout=1");
    let polled = suite.get(&path).await.json();
    assert_eq!(polled, json!({"events": events[1..], "isComplete": true}));
    suite.end().await;
}

/// The values of a stream's lines of one kind.
fn lines<'a>(stream: &'a str, name: &str) -> Vec<&'a str> {
    let named = stream.lines().filter_map(|line| line.split_once(": "));
    named.filter(|(field, _)| *field == name).map(|(_, value)| value).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_events_as_sse() {
    let suite = Suite::begin().await;
    let run = suite.run(NOOP, json!({})).await;
    let id = text(&run, "runId");
    let (head, stream) = suite.stream(id, &[]).await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
    let ids = lines(&stream, "id");
    let told: Vec<Value> =
        lines(&stream, "data").iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told, suite.events(id).await);
    assert_eq!((ids.len(), lines(&stream, "event").last()), (told.len(), Some(&"run.completed")));
    let (_, rest) = suite.stream(id, &[("Last-Event-ID", ids[0])]).await;
    assert_eq!(lines(&rest, "id"), ids[1..]);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_fork_rules() {
    let suite = Suite::begin().await;
    let run = suite.run(NOOP, json!({})).await;
    let path = format!("/v1/runs/{}:fork", text(&run, "runId"));
    let fork = suite.post(&path, json!({"mode": "replay"})).await;
    assert_eq!(fork.status, 201, "{fork:?}");
    let fork = fork.json();
    assert_eq!((&fork["sourceRunId"], &fork["fromSeq"]), (&run["runId"], &json!(0)));
    assert_eq!(fork["mode"], "replay");
    let ended = suite.ended(text(&fork, "runId")).await;
    assert_eq!(ended["owner"]["tenant"], run["owner"]["tenant"]);
    let beyond = suite.post(&path, json!({"mode": "replay", "fromSeq": 1_000_000})).await;
    assert_eq!(beyond.code(), "422 invalid_from_seq");
    let overlay = json!({"mode": "replay", "runOptionsOverlay": {"inputs": {}}});
    for body in [overlay, json!({"mode": "sideways"}), json!({"mode": "branch"})] {
        refused(&suite.post(&path, body).await, &[400, 422]);
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_idempotency() {
    let suite = Suite::begin().await;
    let post = async |key: &str, inputs: Value| {
        let bearer = format!("Bearer {key}");
        let headers = [("Idempotency-Key", "check-once"), ("Authorization", bearer.as_str())];
        let body = json!({"workflowId": NOOP, "inputs": inputs}).to_string();
        suite.host.ask("POST", "/v1/runs", &headers, &body).await
    };
    let replay = "openwop-idempotent-replay";
    let first = post(&suite.host.key, json!({"n": 1})).await;
    assert_eq!((first.status, first.header(replay)), (201, None));
    let again = post(&suite.host.key, json!({"n": 1})).await;
    assert_eq!((again.status, again.header(replay)), (201, Some("true")));
    assert_eq!(again.json(), first.json());
    let changed = post(&suite.host.key, json!({"n": 2})).await;
    assert_eq!(changed.code(), "409 idempotency_key_mismatch");
    let foreign = post(&suite.other, json!({"n": 1})).await;
    assert_eq!((foreign.status, foreign.header(replay)), (201, None));
    let ids: BTreeSet<String> =
        [first, foreign].iter().map(|answer| text(&answer.json(), "runId").to_owned()).collect();
    assert_eq!(ids.len(), 2);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_not_visible_to_other_tenant() {
    let suite = Suite::begin().await;
    let run = suite.run(NOOP, json!({})).await;
    let path = format!("/v1/runs/{}", text(&run, "runId"));
    for tail in ["", "/events", "/events/poll"] {
        let answer = suite.by(&suite.other, "GET", &format!("{path}{tail}"), Value::Null).await;
        assert_eq!(answer.code(), "404 not_found", "{tail}");
    }
    for (tail, body) in [(":fork", json!({"mode": "replay"})), ("/cancel", json!({}))] {
        let answer = suite.by(&suite.other, "POST", &format!("{path}{tail}"), body).await;
        assert_eq!(answer.code(), "404 not_found", "{tail}");
    }
    suite.end().await;
}
