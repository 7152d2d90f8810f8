//! Commitments at the door: what is refused, what fires, how often, and what is told.

use std::sync::Arc;

use icecore::{Clock, Memory};
use icecore_server::Role;
use serde_json::{Value, json};

use crate::client::{Answer, HandClock, Host, fresh};

/// A moment that no test reaches.
const NEVER: &str = "2999-01-01T00:00:00Z";

async fn timed() -> (tempfile::TempDir, Host, Arc<HandClock>) {
    let (dir, clock) = (tempfile::tempdir().unwrap(), HandClock::new());
    let memory = timed_memory(dir.path(), &clock).await;
    let host = Host::over(memory, dir.path()).await;
    (dir, host, clock)
}

async fn timed_memory(dir: &std::path::Path, clock: &Arc<HandClock>) -> Memory {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
    crate::place::open(Memory::builder().clock(clock), dir).await
}

/// The moment so many milliseconds from now.
fn after(clock: &HandClock, millis: i64) -> String {
    icecore::Millis(clock.now().0 + millis).to_rfc3339()
}

async fn commit(host: &Host, body: Value) -> Answer {
    host.post("/commitments", &body.to_string()).await
}

async fn committed(host: &Host, body: Value) -> String {
    let made = commit(host, body).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.json()["state"], "pending");
    made.json()["id"].as_str().unwrap().to_owned()
}

async fn get(host: &Host, id: &str) -> Answer {
    host.get(&format!("/commitments/{id}")).await
}

async fn state(host: &Host, id: &str) -> String {
    get(host, id).await.json()["state"].as_str().unwrap().to_owned()
}

async fn put(host: &Host, content: &str, tags: &[&str]) -> String {
    let body = json!({ "content": content, "tags": tags }).to_string();
    let made = host.post("/entries", &body).await;
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["id"].as_str().unwrap().to_owned()
}

/// What the log says of commitments that fired.
async fn fired(host: &Host) -> Vec<Value> {
    let told = host.get("/events?limit=500").await.json();
    let told = told["events"].as_array().unwrap().iter();
    told.filter(|event| event["type"] == "commitment.fired").cloned().collect()
}

/// Waits for the worker to let one fire.
async fn until_settled(host: &Host, id: &str) -> String {
    loop {
        match state(host, id).await.as_str() {
            "pending" => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            settled => return settled.to_owned(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_committed_to_is_named() {
    let (_dir, host, clock) = timed().await;
    let (past, now) = (after(&clock, -1), after(&clock, 0));
    let when = |when: Value| json!({"intention": "call", "when": when});
    let at = |at: Value| json!({"intention": "call", "at": at});
    let long = "x".repeat(300);
    let wrong = [
        json!({}),
        json!({"intention": "call"}),
        json!({"at": NEVER}),
        json!({"intention": "call", "memoryId": "e", "at": NEVER}),
        json!({"intention": "call", "at": NEVER, "when": {"tag": "t"}}),
        json!({"intention": "", "at": NEVER}),
        json!({"intention": " \n", "at": NEVER}),
        json!({"intention": 7, "at": NEVER}),
        json!({"intention": ["x"], "at": NEVER}),
        json!({"memoryId": 7, "at": NEVER}),
        json!({"memoryRef": 7, "intention": "call", "at": NEVER}),
        json!({"memoryRef": "../x", "intention": "call", "at": NEVER}),
        json!({"intention": "x".repeat(65_537), "at": NEVER}),
        at(json!(past)),
        at(json!(now)),
        at(json!("tomorrow")),
        at(json!(7)),
        at(json!("")),
        when(json!({})),
        when(json!({"tag": ""})),
        when(json!({"tag": " "})),
        when(json!({"tag": null, "mentions": null})),
        when(json!({"mentions": " ?! "})),
        when(json!({"tag": "t", "mentions": ""})),
        when(json!({"tag": "t", "until": "x"})),
        when(json!({"tags": "t"})),
        when(json!({"tag": 7})),
        when(json!({"mentions": ["x"]})),
        when(json!({ "tag": long })),
        when(json!({ "mentions": long })),
        when(json!("t")),
        when(json!(["t"])),
    ];
    for body in wrong {
        let refused = commit(&host, body.clone()).await;
        assert_eq!(refused.code(), "400 validation_error", "{body}");
    }
    for body in ["", "[]", "{", r#"{"intention":"a","intention":"b","at":"2999-01-01T00:00:00Z"}"#]
    {
        assert_eq!(host.post("/commitments", body).await.code(), "400 validation_error", "{body}");
    }
    assert_eq!(host.get("/commitments").await.json(), json!({"commitments": []}));
    assert_eq!(host.get("/entries").await.json(), json!({"entries": []}), "and no intention");
    for id in ["none", "..%2F", "%00", &"c".repeat(4_000)] {
        assert_eq!(get(&host, id).await.code(), "404 not_found");
        let cancelled = host.call("DELETE", &format!("/commitments/{id}"), &[], None).await;
        assert_eq!(cancelled.code(), "404 not_found");
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_is_not_in_force_is_no_intention() {
    let (_dir, host, clock) = timed().await;
    let deleted = put(&host, "water the ferns", &[]).await;
    host.call("DELETE", &format!("/entries/{deleted}"), &[], None).await;
    let body = json!({"content": "brief", "expiresAt": after(&clock, 10)}).to_string();
    let expired = host.post("/entries", &body).await.json()["id"].as_str().unwrap().to_owned();
    clock.advance(10);
    let forgotten = put(&host, "call Ana", &[]).await;
    let body = json!({ "entry": forgotten }).to_string();
    assert_eq!(host.post("/forget", &body).await.status, 200);
    let elsewhere = r#"{"memoryRef":"elsewhere","content":"x"}"#;
    let elsewhere =
        host.post("/entries", elsewhere).await.json()["id"].as_str().unwrap().to_owned();
    let stranger = host.key_of("stranger", Role::Writer).await;
    let theirs = host.by(&stranger, "POST", "/entries", r#"{"content":"x"}"#).await.json();
    let theirs = theirs["id"].as_str().unwrap().to_owned();
    let secret = format!("sk-{}", "q1w2e3r4t5".repeat(4));
    let long = "i".repeat(4_000);
    for id in [&deleted, &expired, &forgotten, &elsewhere, &theirs, "none-such", "../x", &secret]
        .into_iter()
        .chain([long.as_str(), "", "n\u{0}"])
    {
        let refused = commit(&host, json!({"memoryId": id, "at": NEVER})).await;
        assert_eq!(refused.code(), "404 not_found", "{id}");
        assert!(id.is_empty() || !refused.text.contains(id), "{refused:?}");
    }
    assert_eq!(host.get("/commitments").await.json(), json!({"commitments": []}));
    let id = put(&host, "an intention in force", &[]).await;
    let made = commit(&host, json!({"memoryId": id, "at": NEVER})).await;
    assert_eq!((made.status, &made.json()["memoryId"]), (201, &json!(id)));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moment_fires_once_with_the_worker_and_tells_ids_alone() {
    let (_dir, host, clock) = timed().await;
    let id =
        committed(&host, json!({"intention": "water the ferns", "at": after(&clock, 1_000)})).await;
    let other = committed(&host, json!({"intention": "water the moss", "at": NEVER})).await;
    let entry = get(&host, &id).await.json()["memoryId"].as_str().unwrap().to_owned();
    let intended = host.get(&format!("/entries/{entry}")).await.json();
    assert_eq!(intended["content"], "water the ferns");
    assert_eq!(intended["tags"], json!(["commitment"]));
    clock.advance(999);
    assert_eq!(host.served.commitments.fire_due().await.unwrap(), 0);
    assert_eq!(state(&host, &id).await, "pending");
    clock.advance(1);
    // The worker and others at once.
    let firing: Vec<_> = (0..4)
        .map(|_| {
            let commitments = host.served.commitments.clone();
            tokio::spawn(async move { commitments.fire_due().await.unwrap() })
        })
        .collect();
    for one in firing {
        assert!(one.await.unwrap() <= 1);
    }
    assert_eq!(until_settled(&host, &id).await, "fired");
    assert_eq!(host.served.commitments.fire_due().await.unwrap(), 0);
    let told = fired(&host).await;
    assert_eq!(told.len(), 1, "{told:?}");
    let payload = &told[0]["payload"];
    assert_eq!((&payload["commitmentId"], &payload["memoryRef"]), (&json!(id), &json!("default")));
    assert!(!host.get("/events").await.text.contains("ferns"));
    let found = get(&host, &id).await.json();
    assert!(found["settledAt"].is_string() && found["condition"] == "time");
    assert_eq!(state(&host, &other).await, "pending");
    // What fired is called off no more.
    let late = host.call("DELETE", &format!("/commitments/{id}"), &[], None).await;
    assert_eq!(late.code(), "404 not_found");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_over_one_directory_fire_once() {
    let (dir, host, clock) = timed().await;
    let second = Host::over(timed_memory(dir.path(), &clock).await, dir.path()).await;
    let mut made = Vec::new();
    for turn in 0..6 {
        let at = after(&clock, 100 + turn);
        let when = json!({"tag": format!("t-{turn}")});
        made.push(committed(&host, json!({"intention": format!("a {turn}"), "at": at})).await);
        made.push(
            committed(&second, json!({"intention": format!("b {turn}"), "when": when})).await,
        );
    }
    clock.advance(1_000);
    for turn in 0..6 {
        let door = if turn % 2 == 0 { &host } else { &second };
        put(door, "done", &[&format!("t-{turn}")]).await;
    }
    let (one, two) = (&host.served.commitments, &second.served.commitments);
    let (one, two) = tokio::join!(one.fire_due(), two.fire_due());
    one.unwrap();
    two.unwrap();
    for id in &made {
        assert_eq!(until_settled(&second, id).await, "fired");
    }
    let told = fired(&host).await;
    let mut ids: Vec<&str> =
        told.iter().map(|event| event["payload"]["commitmentId"].as_str().unwrap()).collect();
    ids.sort_unstable();
    made.sort_unstable();
    assert_eq!(ids, made);
    second.stop().await;
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_predicate_holds_by_tag_and_by_words() {
    let (_dir, host) = fresh().await;
    put(&host, "the report of June is here", &["report"]).await;
    let tagged =
        committed(&host, json!({"intention": "thank Ana", "when": {"tag": "report"}})).await;
    let said = json!({"intention": "file it", "when": {"mentions": "June REPORT"}});
    let said = committed(&host, said).await;
    let both = json!({"intention": "ask Ben", "when": {"tag": "late", "mentions": "report"}});
    let both = committed(&host, both).await;
    // What was there before does not count, nor does another memory or tenant.
    let elsewhere = r#"{"memoryRef":"m","content":"June report","tags":["report","late"]}"#;
    assert_eq!(host.post("/entries", elsewhere).await.status, 201);
    let stranger = host.key_of("stranger", Role::Writer).await;
    let theirs = r#"{"content":"June report","tags":["report","late"]}"#;
    assert_eq!(host.by(&stranger, "POST", "/entries", theirs).await.status, 201);
    put(&host, "a report", &["reports"]).await;
    host.served.commitments.fire_due().await.unwrap();
    for id in [&tagged, &said, &both] {
        assert_eq!(state(&host, id).await, "pending");
    }
    put(&host, "something else", &["report"]).await;
    assert_eq!(until_settled(&host, &tagged).await, "fired");
    put(&host, "A REPORT, and of June!", &[]).await;
    assert_eq!(until_settled(&host, &said).await, "fired");
    assert_eq!(state(&host, &both).await, "pending");
    put(&host, "the report again", &["late"]).await;
    assert_eq!(until_settled(&host, &both).await, "fired");
    put(&host, "the report of June again", &["late", "report"]).await;
    host.served.commitments.fire_due().await.unwrap();
    let told = fired(&host).await;
    assert_eq!(told.len(), 3);
    for event in &told {
        let text = event.to_string();
        for word in ["Ana", "Ben", "file it", "June", "again", "something"] {
            assert!(!text.contains(word), "{text}");
        }
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_called_off_deleted_or_forgotten_does_not_fire() {
    let (_dir, host, clock) = timed().await;
    let soon = || json!(after(&clock, 1_000));
    let cancelled = committed(&host, json!({"intention": "cancelled", "at": soon()})).await;
    let deleted = committed(&host, json!({"intention": "deleted", "at": soon()})).await;
    let forgotten = committed(&host, json!({"intention": "forgotten", "at": soon()})).await;
    let waiting = committed(&host, json!({"intention": "waits", "when": {"tag": "go"}})).await;
    let path = format!("/commitments/{cancelled}");
    let reader = host.key_of("default", Role::Reader).await;
    let stranger = host.key_of("stranger", Role::Admin).await;
    assert_eq!(host.by(&reader, "DELETE", &path, "").await.code(), "403 forbidden");
    assert_eq!(host.by(&stranger, "DELETE", &path, "").await.code(), "404 not_found");
    assert_eq!(host.by(&stranger, "GET", &path, "").await.code(), "404 not_found");
    let theirs = host.by(&stranger, "GET", "/commitments", "").await.json();
    assert_eq!(theirs, json!({"commitments": []}));
    let done = host.call("DELETE", &path, &[], None).await;
    assert_eq!(done.json(), json!({"id": cancelled, "cancelled": true}));
    assert_eq!(host.call("DELETE", &path, &[], None).await.code(), "404 not_found");
    assert_eq!(state(&host, &cancelled).await, "cancelled");
    let intention =
        async |id: &str| get(&host, id).await.json()["memoryId"].as_str().unwrap().to_owned();
    let kept = intention(&cancelled).await;
    assert_eq!(host.get(&format!("/entries/{kept}")).await.status, 200);

    let entry = intention(&deleted).await;
    assert_eq!(host.call("DELETE", &format!("/entries/{entry}"), &[], None).await.status, 200);
    for id in [&forgotten, &waiting] {
        let body = json!({ "entry": intention(id).await }).to_string();
        assert_eq!(host.post("/forget", &body).await.status, 200);
        assert_eq!(get(&host, id).await.code(), "404 not_found");
        let late = host.call("DELETE", &format!("/commitments/{id}"), &[], None).await;
        assert_eq!(late.code(), "404 not_found");
    }
    clock.advance(1_000);
    put(&host, "now", &["go"]).await;
    host.served.commitments.fire_due().await.unwrap();
    assert_eq!(until_settled(&host, &deleted).await, "void");
    assert_eq!(state(&host, &cancelled).await, "cancelled");
    for id in [&forgotten, &waiting] {
        assert_eq!(get(&host, id).await.code(), "404 not_found");
    }
    assert_eq!(fired(&host).await, Vec::<Value>::new());
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intention_that_another_stands_for_still_fires() {
    let (_dir, host, clock) = timed().await;
    let at = after(&clock, 1_000);
    let mut made = Vec::new();
    for content in ["Call the harbour office.", "call the harbour office"] {
        let entry = put(&host, content, &[]).await;
        made.push(committed(&host, json!({ "memoryId": entry, "at": at })).await);
    }
    let merged = host.post("/consolidate", "{}").await.json();
    assert_eq!(merged["mergedIds"].as_array().unwrap().len(), 1, "{merged}");
    let body = json!({"content": "brief", "expiresAt": after(&clock, 999)}).to_string();
    let brief = host.post("/entries", &body).await.json()["id"].as_str().unwrap().to_owned();
    let brief = committed(&host, json!({ "memoryId": brief, "at": at })).await;
    clock.advance(1_000);
    host.served.commitments.fire_due().await.unwrap();
    for id in &made {
        assert_eq!(until_settled(&host, id).await, "fired");
    }
    assert_eq!(until_settled(&host, &brief).await, "void", "it expired before its moment");
    assert_eq!(fired(&host).await.len(), 2);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_commits_once() {
    let (_dir, host, clock) = timed().await;
    let body = json!({"intention": "call Ana", "at": after(&clock, 1_000)}).to_string();
    let headers = [("Idempotency-Key", "k")];
    let first = host.call("POST", "/commitments", &headers, Some(&body)).await;
    assert_eq!(first.status, 201);
    let again = host.call("POST", "/commitments", &headers, Some(&body)).await;
    assert_eq!((again.status, &again.text), (201, &first.text));
    assert_eq!(again.header("openwop-idempotent-replay"), Some("true"));
    let other = json!({"intention": "call Ben", "at": NEVER}).to_string();
    let refused = host.call("POST", "/commitments", &headers, Some(&other)).await;
    assert_eq!(refused.code(), "409 idempotency_key_mismatch");
    let made = host.get("/commitments").await.json();
    assert_eq!(made["commitments"].as_array().unwrap().len(), 1);
    assert_eq!(host.get("/entries").await.json()["entries"].as_array().unwrap().len(), 1);
    // Another tenant's key of the same name is another key.
    let stranger = format!("Bearer {}", host.key_of("stranger", Role::Writer).await);
    let theirs = [("Idempotency-Key", "k"), ("Authorization", stranger.as_str())];
    let theirs = host.call("POST", "/commitments", &theirs, Some(&other)).await;
    assert_eq!(theirs.status, 201);
    assert!(theirs.header("openwop-idempotent-replay").is_none());
    // Later it is told as it stands then, and not fired again.
    clock.advance(1_000);
    let id = first.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(until_settled(&host, &id).await, "fired");
    let late = host.call("POST", "/commitments", &headers, Some(&body)).await;
    assert_eq!((late.status, &late.json()["state"]), (201, &json!("fired")));
    assert_eq!(fired(&host).await.len(), 1);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_many_are_pending_and_no_more() {
    let (_dir, host) = fresh().await;
    let entry = put(&host, "the one intention of them all", &[]).await;
    let tenant = icecore::Tenant::new("default").unwrap();
    let me = icecore::Principal::key_holder(tenant);
    let scope = host.memory.scope(&me, "default").await.unwrap();
    let never = icecore::Millis::parse_rfc3339(NEVER).unwrap();
    let most = icecore_host::settings::CommitmentSettings::default().pending;
    for _ in 0..most {
        let request = icecore_host::commitments::CommitmentRequest {
            intention: icecore_host::commitments::IntentionRequest::Entry(entry.clone()),
            condition: icecore_host::commitments::ConditionRequest::Time(never),
            claim: None,
        };
        host.served.commitments.add(&scope, request).await.unwrap();
    }
    let body = json!({"memoryId": entry, "at": NEVER});
    let refused = commit(&host, body.clone()).await;
    assert_eq!(refused.code(), "409 too_many_commitments");
    assert_eq!(refused.json()["details"]["most"], most);
    let text = json!({"intention": "one more", "at": NEVER});
    assert_eq!(commit(&host, text).await.code(), "409 too_many_commitments");
    assert_eq!(host.get("/entries").await.json()["entries"].as_array().unwrap().len(), 1);
    // Another memory has room, and so has this one once one is called off.
    let elsewhere = json!({"memoryRef": "m", "intention": "x", "at": NEVER});
    committed(&host, elsewhere).await;
    let listed = host.get("/commitments?memoryRef=default&limit=1").await.json();
    let id = listed["commitments"][0]["id"].as_str().unwrap();
    let path = format!("/commitments/{id}");
    assert_eq!(host.call("DELETE", &path, &[], None).await.status, 200);
    committed(&host, body).await;
    host.stop().await;
}
