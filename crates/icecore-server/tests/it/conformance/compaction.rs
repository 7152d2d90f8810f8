//! Compaction (RFC 0012) and consolidation (RFC 0068).

use serde_json::json;

use super::shape::{COMPACTED, fits};
use super::suite::{Suite, each, is_marked, list, text};
use crate::client::API;

/// In the style of the suite.
fn reference(name: &str) -> String {
    format!("mem_tenant:default_agent:check-{name}_longTerm")
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_compaction_event_emitted() {
    let suite = Suite::begin().await;
    let said = ["Oats are on order.", "Rye is sold out.", "Barley came today."];
    let done = suite.compacted(&reference("event"), &said).await;
    assert_eq!(done["type"], "memory.compacted");
    fits(&COMPACTED, &done["payload"]);
    suite.end().await;
}

/// Also `compaction-output-is-tagged`: ours has such a tag, and not only a well-formed
/// one if any.
#[tokio::test(flavor = "multi_thread")]
async fn memory_compaction_provenance_tag() {
    let suite = Suite::begin().await;
    let memory = reference("tag");
    let done = suite.compacted(&memory, &["The north gate sticks.", "The south gate not."]).await;
    let output = suite.entry(&memory, text(&done["payload"], "outputId")).await;
    assert_eq!(output.status, 200, "{output:?}");
    let tags = output.json()["tags"].as_array().unwrap().clone();
    let named: Vec<&str> = tags
        .iter()
        .filter_map(|tag| tag.as_str().unwrap().strip_prefix("compacted-from:"))
        .collect();
    assert!(!named.is_empty(), "{tags:?}");
    for id in named {
        let is_one = !id.is_empty() && !id.starts_with(':') && !id.contains(char::is_whitespace);
        assert!(is_one, "{id}");
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_compaction_sr1_carry_forward() {
    let suite = Suite::begin().await;
    let (key, marker) = ("[BYOK:hk_live_canary_42]", "<REDACTED:db-prod-creds>");
    let said = [
        format!("They signed in with {key}"),
        format!("Rotated {marker} at noon."),
        "Someone asked for the price list.".to_owned(),
    ];
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    let done = suite.compacted(&reference("sr1"), &said).await;
    assert_eq!(done["type"], "memory.compacted");
    let content = text(&done, "outputContent");
    assert!(!content.contains(key) && !content.contains(marker), "{content}");
    assert!(is_marked(content), "{content}");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_names_its_sources() {
    let suite = Suite::begin().await;
    let memory = reference("sources");
    let said = ["Plums are ripe.", "Figs are not.", "Pears fell."];
    let done = suite.compacted(&memory, &said).await;
    let payload = &done["payload"];
    assert_eq!((text(payload, "memoryRef"), &payload["sourceCount"]), (&*memory, &json!(3)));
    let mut sources: Vec<String> = serde_json::from_value(payload["sourceIds"].clone()).unwrap();
    sources.sort_unstable();
    assert_eq!(sources, ["planted-0", "planted-1", "planted-2"]);
    let stored = suite.entry(&memory, text(payload, "outputId")).await.json();
    assert_eq!(stored["content"], done["outputContent"]);
    assert_eq!(payload["byteSize"], text(&stored, "content").len());
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_of_one_entry_is_204() {
    let suite = Suite::begin().await;
    let compact = "/v1/test/memory/compact";
    assert_eq!(suite.post(compact, json!({})).await.code(), "400 validation_error");
    let memory = reference("single");
    suite.plant(&memory, &["Alone."]).await;
    let alone = suite.post(compact, json!({ "memoryRef": memory })).await;
    assert_eq!((alone.status, alone.text.as_str()), (204, ""));
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_observable() {
    let suite = Suite::begin().await;
    let memory = reference("observed");
    let done = suite.compacted(&memory, &["Rain.", "More rain."]).await;
    // The log tells what the seam told, and the content to nobody.
    assert_eq!(suite.told("memory.compacted", &memory).await, [done["payload"].clone()]);
    let log = json!(suite.log(&suite.host.key, None).await).to_string();
    assert!(!log.contains("More rain") && !log.contains("outputContent"), "{log}");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_consolidation_idempotent() {
    let suite = Suite::begin().await;
    let seam = "/v1/host/sample/memory/consolidate";
    let memory = "mem://conformance/consolidation";
    let body = json!({"memoryRef": memory, "includeSecretCanary": true});
    let first = suite.post(seam, body).await.json();
    let counts = |event: &serde_json::Value| {
        (event["inputCount"].as_u64().unwrap(), event["outputCount"].as_u64().unwrap())
    };
    let (before, after) = counts(&first["event"]);
    // There was something to do: a corpus is planted where there is none.
    assert!(0 < after && after < before, "{first}");
    assert_eq!(first["secretLeaked"], false);
    let again = suite.post(seam, json!({ "memoryRef": memory })).await.json();
    assert_eq!(counts(&again["event"]), (after, after));
    assert!(!suite.told("agent.memory.consolidated", memory).await.is_empty());
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consolidation_merges_duplicates() {
    let suite = Suite::begin().await;
    let memory = "mem://check/consolidation";
    let twin = "The annual report is due on the first of June.";
    for content in [twin, twin, twin, "The printer is on the second floor."] {
        suite.put(memory, content).await;
    }
    let consolidate = async || {
        // By the host's own route, which the seam shares its engine with.
        let done = suite.post(&format!("{API}/consolidate"), json!({ "memoryRef": memory })).await;
        assert_eq!(done.status, 200, "{done:?}");
        let done = done.json();
        (done["inputCount"].as_u64().unwrap(), done["outputCount"].as_u64().unwrap())
    };
    assert_eq!(consolidate().await, (4, 2));
    assert_eq!(consolidate().await, (2, 2));
    let left = list(&suite.entries(memory).await.json(), "entries");
    assert_eq!(each(&left, "content").len(), 2);
    let seam = "/v1/host/sample/memory/consolidate";
    let again = suite.post(seam, json!({ "memoryRef": memory })).await.json();
    assert_eq!(
        (&again["event"]["inputCount"], &again["event"]["outputCount"]),
        (&json!(2), &json!(2))
    );
    suite.end().await;
}
