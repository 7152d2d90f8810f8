//! Commitments (RFC 0068).

use icecore::{Clock, Millis};
use serde_json::{Value, json};

use super::shape::{Kind, fits};
use super::suite::{Suite, text};
use crate::client::API;

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

/// Who forgets what was intended is not reminded of it.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_forgotten_does_not_fire() {
    let (clock, suite) = Suite::timed().await;
    let (memory, path) = ("check/forgotten", format!("{API}/commitments"));
    let at = Millis(clock.now().0 + 60_000).to_rfc3339();
    for condition in [json!({ "at": at }), json!({"when": {"tag": "rain"}})] {
        let mut body = json!({"memoryRef": memory, "intention": "bring the quince in"});
        body.as_object_mut().unwrap().extend(condition.as_object().unwrap().clone());
        let made = suite.post(&path, body).await;
        assert_eq!(made.status, 201, "{made:?}");
        let body = json!({"memoryRef": memory, "entry": made.json()["memoryId"]});
        let forgotten = suite.post(&format!("{API}/forget"), body).await;
        assert_eq!(forgotten.status, 200, "{forgotten:?}");
    }
    clock.advance(60_000);
    suite.put_as(memory, json!({"content": "It rains.", "tags": ["rain"]})).await;
    assert_eq!(suite.host.served.commitments.fire_due().await.unwrap(), 0);
    assert_eq!(suite.told("commitment.fired", memory).await, Vec::<Value>::new());
    let listed = suite.get(&format!("{path}?memoryRef=check%2Fforgotten")).await;
    assert!(!listed.text.contains("pending") && !listed.text.contains("quince"), "{listed:?}");
    suite.end().await;
}
