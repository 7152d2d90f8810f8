//! Tenants and workspaces do not meet (CTI-1, RFC 0048).

use serde_json::{Value, json};

use super::suite::{Suite, lacks, percent, text};
use crate::client::API;

const MEMORY: &str = "check/tenant";
const SESSION: &str = "check-tenant";
const QUESTION: &str = "lighthouse keeper Kvalsund";

/// A word that nobody else has.
const TOKEN: &str = "zqferrule";

/// A host where the first tenant has planted what the other must not find; and the
/// id of its entry.
async fn planted() -> (Suite, String) {
    let suite = Suite::begin().await;
    let told = format!("The lighthouse keeper of Kvalsund keeps the word {TOKEN}");
    let entry = suite.put(MEMORY, &told).await;
    let turns = json!({"memoryRef": MEMORY, "turns": [{"role": "user", "content": told}]});
    let path = format!("{API}/sessions/{SESSION}/turns");
    assert_eq!(suite.post(&path, turns).await.status, 201);
    let id = text(&entry, "id").to_owned();
    (suite, id)
}

async fn as_other(suite: &Suite, method: &str, path: &str, body: Value) -> crate::client::Answer {
    let answer = suite.by(&suite.other, method, &format!("{API}{path}"), body).await;
    lacks(&answer, &[TOKEN]);
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_get_and_list() {
    let (suite, id) = planted().await;
    assert!(suite.entries(MEMORY).await.text.contains(TOKEN));
    let scope = format!("memoryRef={}", percent(MEMORY));
    let path = format!("/entries/{}?{scope}", percent(&id));
    for method in ["GET", "DELETE"] {
        assert_eq!(as_other(&suite, method, &path, Value::Null).await.code(), "404 not_found");
    }
    for hint in ["", "&tenant=default", "&tenantId=default"] {
        let list = as_other(&suite, "GET", &format!("/entries?{scope}{hint}"), Value::Null).await;
        assert_eq!(list.json(), json!({"entries": []}), "{hint}");
    }
    assert_eq!(suite.entry(MEMORY, &id).await.status, 200);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_search() {
    let (suite, _) = planted().await;
    let within = json!({"query": QUESTION, "memoryRef": MEMORY, "limit": 20});
    assert!(suite.finds(&within, TOKEN).await);
    for body in [within, json!({"query": QUESTION, "limit": 20})] {
        let found = as_other(&suite, "POST", "/search", body).await;
        assert_eq!(found.json()["hits"], json!([]));
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_context() {
    let (suite, _) = planted().await;
    let body = json!({"memoryRef": MEMORY, "session": SESSION, "query": QUESTION, "budget": 2000});
    let own = suite.post(&format!("{API}/context"), body.clone()).await;
    assert!(own.text.contains(TOKEN), "{own:?}");
    as_other(&suite, "POST", "/context", body).await;
    let anywhere = json!({"query": QUESTION, "budget": 2000});
    assert_eq!(as_other(&suite, "POST", "/context", anywhere).await.status, 200);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_sessions() {
    let (suite, _) = planted().await;
    let scope = format!("memoryRef={}", percent(MEMORY));
    let turns = format!("/sessions/{SESSION}/turns?{scope}");
    assert!(suite.get(&format!("{API}{turns}")).await.text.contains(TOKEN));
    for path in [
        turns,
        format!("/sessions?{scope}"),
        "/sessions".to_owned(),
        format!("/chunks?{scope}"),
        format!("/sessions/{SESSION}/view?view=display&{scope}"),
    ] {
        lacks(&as_other(&suite, "GET", &path, Value::Null).await, &[SESSION]);
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_events() {
    let (suite, id) = planted().await;
    assert!(!suite.log(&suite.host.key, Some(MEMORY)).await.is_empty());
    for memory in [None, Some(MEMORY)] {
        let log = json!(suite.log(&suite.other, memory).await).to_string();
        for needle in [TOKEN, MEMORY, SESSION, id.as_str()] {
            assert!(!log.contains(needle), "{needle}: {log}");
        }
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cross_workspace_isolation_owner() {
    let suite = Suite::begin().await;
    let run = suite.get("/v1/host/sample/identity/owned-run").await;
    assert_eq!(run.status, 200, "{run:?}");
    assert_eq!(run.json()["owner"]["tenant"], "default");
    // A real run, which its owner can read.
    let path = format!("/v1/runs/{}", text(&run.json(), "runId"));
    assert_eq!(suite.get(&path).await.status, 200);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cross_workspace_isolation_refused() {
    let suite = Suite::begin().await;
    let path = "/v1/host/sample/identity/cross-workspace-read";
    let answer = suite.post(path, json!({})).await;
    assert!(["403 run_forbidden", "404 not_found"].contains(&&*answer.code()), "{answer:?}");
    suite.end().await;
}
