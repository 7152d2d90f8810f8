//! Sessions compacted over HTTP: two views, handoffs, corrections.

use serde_json::{Value, json};

use crate::client::Host;

/// A host with a session of many turns, a pinned one and a system prompt among them.
async fn host() -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path()).await;
    let mut turns = vec![json!({"role": "system", "content": "You are a guide."})];
    turns.push(
        json!({"role": "user", "content": "Never suggest the north face.", "tags": ["pinned"]}),
    );
    for n in 0..60 {
        let role = ["user", "assistant"][n % 2];
        turns.push(json!({"role": role, "content": format!("Point {n}: the hut of day {n} is at {} metres, with {} beds and a stove.", 900 + n * 13, n % 9 + 4)}));
    }
    turns.push(json!({"role": "user", "content": "Which hut comes first?"}));
    let added = host.post("/sessions/trip/turns", &json!({ "turns": turns }).to_string()).await;
    assert_eq!(added.status, 201, "{added:?}");
    (dir, host)
}

/// A view without the tiers, which move by themselves.
async fn view(host: &Host, which: &str) -> Value {
    let answer = host.get(&format!("/sessions/trip/view?view={which}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let mut view = answer.json();
    for message in view["messages"].as_array_mut().unwrap() {
        message.as_object_mut().unwrap().remove("tier");
    }
    view
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_shortens_one_view_and_not_the_other() {
    let (_dir, host) = host().await;
    let display = view(&host, "display").await;
    assert_eq!(view(&host, "api").await["tokens"], display["tokens"]);
    let done = host.post("/sessions/trip/compact", "{}").await;
    assert_eq!(done.status, 200, "{done:?}");
    let done = done.json();
    let api = view(&host, "api").await;
    assert_eq!(view(&host, "display").await, display);
    assert_eq!((&done["tokensBefore"], &done["tokensAfter"]), (&display["tokens"], &api["tokens"]));
    assert!(done["tokensAfter"].as_u64().unwrap() * 2 < done["tokensBefore"].as_u64().unwrap());
    let said: Vec<&Value> =
        api["messages"].as_array().unwrap().iter().map(|message| &message["content"]).collect();
    assert_eq!(said[0], "You are a guide.");
    assert_eq!(said[1], &done["handoff"]);
    assert_eq!(
        said[2..],
        [&json!("Never suggest the north face."), &json!("Which hut comes first?")]
    );

    let again = host.post("/sessions/trip/compact", "{}").await;
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(again.json()["compactionId"], done["compactionId"], "nothing came since");
    let events = host.get("/events?limit=200").await.json();
    let kinds = events["events"].as_array().unwrap().iter();
    let told: Vec<&Value> = kinds.filter(|event| event["type"] == "session.compacted").collect();
    assert_eq!(told.len(), 1, "{events}");
    assert!(!told[0].to_string().contains("hut"), "an event holds no content: {}", told[0]);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handoff_is_read_and_corrected_by_its_version() {
    let (_dir, host) = host().await;
    let none = host.get("/sessions/trip/handoff").await;
    assert_eq!(none.code(), "404 not_found");
    let done = host.post("/sessions/trip/compact", "{}").await.json();
    let read = host.get("/sessions/trip/handoff").await.json();
    assert_eq!((&read["handoff"], &read["version"]), (&done["handoff"], &json!(1)));
    let id = read["compactionId"].clone();
    let text = format!("{}\n- The stove of day 3 is broken.", read["handoff"].as_str().unwrap());
    let body = json!({ "handoff": text, "compactionId": id, "version": 1 }).to_string();
    let put = host.call("PUT", "/sessions/trip/handoff", &[], Some(&body)).await;
    assert_eq!(put.status, 200, "{put:?}");
    assert_eq!((&put.json()["version"], &put.json()["madeBy"]), (&json!(2), &json!("person")));
    assert!(view(&host, "api").await.to_string().contains("The stove of day 3 is broken."));
    let late = host.call("PUT", "/sessions/trip/handoff", &[], Some(&body)).await;
    assert_eq!(late.code(), "409 session_changed");
    let long =
        json!({ "handoff": "much ".repeat(200_000), "compactionId": id, "version": 2 }).to_string();
    let long = host.call("PUT", "/sessions/trip/handoff", &[], Some(&long)).await;
    assert_eq!(long.code(), "422 handoff_too_long");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_compacted_is_refused_and_nothing_changes() {
    let (_dir, host) = host().await;
    let before = view(&host, "api").await;
    for (body, code) in [
        (r#"{"window":0}"#, "400 validation_error"),
        (r#"{"window":"wide"}"#, "400 validation_error"),
        (r#"{"window":100,"reserve":100}"#, "400 validation_error"),
        (r#"{"window":30,"reserve":10}"#, "422 request_exceeds_window"),
        (r#"{"branch":"fork-9"}"#, "404 not_found"),
    ] {
        assert_eq!(host.post("/sessions/trip/compact", body).await.code(), code, "{body}");
    }
    assert_eq!(host.post("/sessions/nowhere/compact", "{}").await.code(), "404 not_found");
    for body in [
        r#"{"compactionId":"h-1","version":1}"#,
        r#"{"compactionId":"h-1","handoff":"x"}"#,
        r#"{"handoff":"x","version":1}"#,
        r#"{"compactionId":"h-1","handoff":" ","version":1}"#,
    ] {
        let put = host.call("PUT", "/sessions/trip/handoff", &[], Some(body)).await;
        assert_eq!(put.code(), "400 validation_error", "{body}");
    }
    assert_eq!(view(&host, "api").await, before);
    host.stop().await;
}
