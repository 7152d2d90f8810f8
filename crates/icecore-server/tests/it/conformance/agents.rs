//! The inventory's shape (RFC 0070, 0072, 0074, 0080, 0092). What it says of whom is
//! in `../agents.rs`.

use serde_json::{Value, json};

use super::shape::{INVENTORY, fits};
use super::suite::{Suite, each, list, percent, text};

async fn inventory(suite: &Suite) -> Vec<Value> {
    let agents = list(&suite.get("/v1/agents").await.json(), "agents");
    assert!(!agents.is_empty());
    agents
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_manifest_runtime() {
    let suite = Suite::begin().await;
    let block = suite.document().await["agents"]["manifestRuntime"].clone();
    assert_eq!(block, json!({"supported": true, "installScope": "host"}));
    let agents = inventory(&suite).await;
    // Agents are listed here and run elsewhere: there is no seam that says otherwise.
    let path = format!("/v1/host/sample/agents/{}/dispatch", percent(text(&agents[0], "agentId")));
    assert_eq!(suite.post(&path, json!({"task": {}})).await.code(), "404 not_found");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_degraded_projection() {
    let suite = Suite::begin().await;
    let (mut whole, mut lacking) = (0, 0);
    for agent in inventory(&suite).await {
        let dimensions = agent.get("degradedMemoryDimensions");
        match agent.get("memoryDegraded") {
            Some(Value::Bool(true)) => {
                lacking += 1;
                assert!(dimensions.is_some_and(|list| !list.as_array().unwrap().is_empty()));
            }
            _ => {
                whole += 1;
                assert_eq!(dimensions, None, "{agent}");
            }
        }
    }
    // One of each, so that neither half is vacuous.
    assert!(whole > 0 && lacking > 0, "{whole} and {lacking}");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_capability_degraded_projection() {
    let suite = Suite::begin().await;
    let agents = inventory(&suite).await;
    let degraded: Vec<&Value> = agents.iter().filter_map(|agent| agent.get("degraded")).collect();
    assert!(!degraded.is_empty());
    for keys in degraded {
        assert!(!keys.as_array().unwrap().is_empty(), "{keys}");
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_inventory_shape() {
    let suite = Suite::begin().await;
    let answer = suite.get("/v1/agents").await.json();
    fits(&INVENTORY, &answer);
    let agents = list(&answer, "agents");
    assert_eq!(answer["total"], agents.len());
    assert!(each(&agents, "agentId").is_sorted());
    for agent in &agents {
        let one = suite.get(&format!("/v1/agents/{}", percent(text(agent, "agentId")))).await;
        assert_eq!(&one.json(), agent);
    }
    suite.end().await;
}
