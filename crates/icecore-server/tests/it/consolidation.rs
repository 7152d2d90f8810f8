//! Entries that others stand for, and who may have them put together.

use icecore_server::Role;
use serde_json::{Value, json};

use crate::client::{Answer, Host, fresh};

async fn put(host: &Host, content: &str) -> String {
    let made = host.post("/entries", &json!({ "content": content }).to_string()).await;
    assert_eq!(made.status, 201);
    made.json()["id"].as_str().unwrap().to_owned()
}

async fn consolidate(host: &Host, headers: &[(&str, &str)], body: &str) -> Answer {
    host.call("POST", "/consolidate", headers, Some(body)).await
}

async fn listed(host: &Host) -> Vec<String> {
    let found = host.get("/entries").await.json();
    let entries = found["entries"].as_array().unwrap().iter();
    entries.map(|entry| entry["id"].as_str().unwrap().to_owned()).collect()
}

/// A memory in which two entries say the same, and what stands for them after it was
/// consolidated: who gave way, and to whom.
async fn consolidated(host: &Host) -> (String, String) {
    put(host, "The quarterly review is on the last Friday of March.").await;
    put(host, "the quarterly review is on the last friday of march").await;
    put(host, "Deliveries are left at the back door.").await;
    let done = consolidate(host, &[], "{}").await;
    assert_eq!(done.status, 200, "{done:?}");
    let merged = done.json()["mergedIds"].as_array().unwrap().clone();
    let gone = merged[0].as_str().unwrap().to_owned();
    let found = host.get(&format!("/entries/{gone}")).await.json();
    (gone, found["supersededBy"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_gave_way_is_read_by_its_id_and_listed_no_more() {
    let (_dir, host) = fresh().await;
    let (gone, stays) = consolidated(&host).await;
    let ids = listed(&host).await;
    assert!(!ids.contains(&gone) && ids.contains(&stays), "{ids:?}");
    let found = host.get(&format!("/entries/{gone}")).await;
    assert_eq!(found.status, 200);
    assert!(found.json()["content"].as_str().unwrap().to_lowercase().contains("quarterly"));
    let stands = host.get(&format!("/entries/{stays}")).await.json();
    assert!(stands.get("supersededBy").is_none(), "{stands}");
    let sources = host.get(&format!("/entries/{stays}/sources")).await.json();
    let sources = sources["entries"].as_array().unwrap();
    assert!(sources.iter().any(|entry| entry["id"] == gone.as_str()));
    assert!(sources.iter().all(|entry| entry["supersededBy"] == stays.as_str()));
    // What stands for nothing has no sources; what is not there has none to show.
    let none = host.get(&format!("/entries/{gone}/sources")).await;
    assert_eq!((none.status, none.json()), (200, json!({"entries": []})));
    for missing in ["none", "..%2F", "%00", &"x".repeat(4_000)] {
        let missing = host.get(&format!("/entries/{missing}/sources")).await;
        assert_eq!(missing.code(), "404 not_found");
    }
    let elsewhere = host.get(&format!("/entries/{stays}/sources?memoryRef=other")).await;
    assert_eq!(elsewhere.code(), "404 not_found");
    let stranger = host.key_of("stranger", Role::Writer).await;
    for path in [format!("/entries/{stays}/sources"), format!("/entries/{gone}")] {
        assert_eq!(host.by(&stranger, "GET", &path, "").await.code(), "404 not_found");
    }
    // Deleted are they together: what said the same does not come back by itself.
    let removed = host.call("DELETE", &format!("/entries/{stays}"), &[], None).await;
    assert_eq!(removed.status, 200);
    for id in [&stays, &gone] {
        assert_eq!(host.get(&format!("/entries/{id}")).await.code(), "404 not_found");
        assert!(!listed(&host).await.contains(id));
    }
    assert_eq!(listed(&host).await.len(), 1);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_time_changes_nothing() {
    let (_dir, host) = fresh().await;
    consolidated(&host).await;
    let before = host.get("/entries").await.text;
    let log = |events: Answer| -> Vec<Value> {
        let events = events.json()["events"].as_array().unwrap().clone();
        events.into_iter().filter(|event| event["type"] == "agent.memory.consolidated").collect()
    };
    let told = log(host.get("/events").await);
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["payload"]["trigger"], "on-demand");
    assert!(!told[0].to_string().contains("quarterly"));
    let again = consolidate(&host, &[], "{}").await.json();
    assert_eq!(again["inputCount"], again["outputCount"]);
    assert_eq!((&again["mergedIds"], &again["outputIds"]), (&json!([]), &json!([])));
    assert_eq!(host.get("/entries").await.text, before);
    assert_eq!(log(host.get("/events").await), told, "nothing is told of nothing");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_consolidates_once() {
    let (_dir, host) = fresh().await;
    for content in ["The printer stands upstairs.", "the printer stands upstairs"] {
        put(&host, content).await;
    }
    let headers = [("Idempotency-Key", "k")];
    let first = consolidate(&host, &headers, "{}").await;
    assert_eq!(first.status, 200);
    assert_eq!(first.json()["mergedIds"].as_array().unwrap().len(), 1);
    put(&host, "THE PRINTER STANDS UPSTAIRS!").await;
    let again = consolidate(&host, &headers, "{}").await;
    assert_eq!(again.text, first.text);
    assert_eq!(again.header("openwop-idempotent-replay"), Some("true"));
    let other = consolidate(&host, &headers, r#"{"memoryRef":"m"}"#).await;
    assert_eq!(other.code(), "409 idempotency_key_mismatch");
    let fresh = consolidate(&host, &[], "{}").await.json();
    assert_eq!(fresh["mergedIds"].as_array().unwrap().len(), 1, "{fresh}");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_only_reads_consolidates_nothing() {
    let (_dir, host) = fresh().await;
    for content in ["Ines calls in the morning.", "ines calls in the morning"] {
        put(&host, content).await;
    }
    let before = host.get("/entries").await.text;
    let reader = host.key_of("default", Role::Reader).await;
    let refused = host.by(&reader, "POST", "/consolidate", "{}").await;
    assert_eq!(refused.code(), "403 forbidden");
    let stranger = host.key_of("stranger", Role::Writer).await;
    let theirs = host.by(&stranger, "POST", "/consolidate", "{}").await.json();
    assert_eq!(theirs["inputCount"], 0);
    for body in
        ["", "[]", "{", r#"{"memoryRef":7}"#, r#"{"memoryRef":"../x"}"#, r#"{"memoryRef":""}"#]
    {
        assert_eq!(consolidate(&host, &[], body).await.code(), "400 validation_error", "{body}");
    }
    let two = host.call("POST", "/consolidate?memoryRef=a", &[], Some(r#"{"memoryRef":"b"}"#));
    assert_eq!(two.await.code(), "400 validation_error");
    assert_eq!(host.get("/entries").await.text, before);
    host.stop().await;
}
