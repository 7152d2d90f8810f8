//! Which run wrote what (RFC 0057).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::shape::{WRITTEN, fits};
use super::suite::{NOOP, Suite, text};

/// A run with a hint at a tenant that it is not of, and what it wrote: never nothing.
async fn some_writes(suite: &Suite, hint: &str) -> (String, Vec<Value>) {
    let run = suite.run(NOOP, json!({"tenantId": hint, "inputs": {}})).await;
    let id = text(&run, "runId").to_owned();
    let writes = suite.writes(&id).await;
    assert!(!writes.is_empty(), "{:?}", suite.events(&id).await);
    (id, writes)
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_attribution_emits_on_write() {
    let suite = Suite::begin().await;
    for event in some_writes(&suite, "mem-attr-emit").await.1 {
        assert!(!text(&event["payload"], "memoryId").is_empty(), "{event}");
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_attribution_no_content() {
    let suite = Suite::begin().await;
    for event in some_writes(&suite, "mem-attr-no-content").await.1 {
        assert_eq!(event["payload"].get("content"), None, "{event}");
        fits(&WRITTEN, &event["payload"]);
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_attribution_tenant_scoped() {
    let suite = Suite::begin().await;
    let (run, writes) = some_writes(&suite, "mem-attr-scope").await;
    for event in writes {
        assert_eq!(event["runId"], run, "{event}");
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_attribution_replay_stable() {
    let suite = Suite::begin().await;
    let (run, writes) = some_writes(&suite, "mem-attr-replay").await;
    let body = json!({"fromSeq": 0, "mode": "replay"});
    let fork = suite.post(&format!("/v1/runs/{run}:fork"), body).await;
    assert_eq!(fork.status, 201, "{fork:?}");
    let fork = text(&fork.json(), "runId").to_owned();
    suite.ended(&fork).await;
    let ids = |events: &[Value]| -> BTreeSet<String> {
        events.iter().map(|event| text(&event["payload"], "memoryId").to_owned()).collect()
    };
    assert_eq!(ids(&suite.writes(&fork).await), ids(&writes));
    suite.end().await;
}

/// What an event says was written can be read.
#[tokio::test(flavor = "multi_thread")]
async fn attribution_not_vacuous() {
    let suite = Suite::begin().await;
    let (_, writes) = some_writes(&suite, "mem-attr-real").await;
    for event in &writes {
        fits(&WRITTEN, &event["payload"]);
        let (memory, id) =
            (text(&event["payload"], "memoryRef"), text(&event["payload"], "memoryId"));
        let entry = suite.entry(memory, id).await;
        assert_eq!(entry.status, 200, "{entry:?}");
        assert!(!text(&entry.json(), "content").is_empty());
    }
    suite.end().await;
}
