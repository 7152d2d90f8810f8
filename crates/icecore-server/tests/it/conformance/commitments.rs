//! Commitments (RFC 0068).

use serde_json::json;

use super::shape::{Kind, fits};
use super::suite::{Suite, text};

const FIRED: Kind = Kind::Open(&[
    ("commitmentId", Kind::Word),
    ("memoryRef", Kind::Word),
    ("condition", Kind::Among(&["time", "predicate"])),
]);

/// What fires says so once, and not what it intended.
async fn fires(memory: &str, condition: &str) {
    let suite = Suite::begin().await;
    let body = json!({"memoryRef": memory, "condition": condition, "includeIntentionCanary": true});
    let answer = suite.post("/v1/host/sample/commitment/fire", body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer = answer.json();
    fits(&FIRED, &answer["event"]);
    assert_eq!((text(&answer["event"], "condition"), &answer["fireCount"]), (condition, &json!(1)));
    let canary = text(&answer, "intentionCanary");
    assert!(!canary.is_empty() && !answer["event"].to_string().contains(canary));
    let told = suite.told("commitment.fired", memory).await;
    assert_eq!(told, [answer["event"].clone()]);
    let log = json!(suite.log(&suite.host.key, None).await).to_string();
    assert!(!log.contains(canary), "{log}");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commitment_fired() {
    fires("mem://conformance/commitments", "predicate").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commitment_event_shape() {
    let suite = Suite::begin().await;
    let conditions = suite.document().await["agents"]["commitments"]["fireConditions"].clone();
    assert_eq!(conditions, json!(["time", "predicate"]));
    suite.end().await;
    for condition in ["time", "predicate"] {
        fires("mem://check/commit", condition).await;
    }
}
