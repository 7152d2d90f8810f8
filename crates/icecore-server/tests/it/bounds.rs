//! Bounds of tenants, as clients meet them.

use std::sync::Arc;

use icecore::Memory;
use icecore_host::HostSettings;
use icecore_host::bounds::Bounds;
use icecore_host::settings::{BoundSettings, TenantBounds};
use serde_json::{Value, json};

use crate::client::{Answer, HandClock, Host};

/// From the clock's first moment to the end of its day.
const REST_OF_DAY_SECONDS: i64 = 6_400;

async fn bounded(clock: &Arc<HandClock>, dir: &std::path::Path, everyone: TenantBounds) -> Host {
    let bounds = Bounds::new(BoundSettings { everyone, ..BoundSettings::default() });
    let builder = Memory::builder().clock(clock.clone()).admission(Arc::new(bounds));
    let memory = crate::place::open(builder, dir).await;
    Host::behaving(memory, dir, HostSettings::default()).await
}

async fn say(host: &Host, contents: &[&str]) -> Answer {
    let turn = |content: &&str| json!({"role": "user", "content": content, "id": content});
    let turns: Vec<Value> = contents.iter().map(turn).collect();
    host.post("/sessions/s/turns", &json!({ "turns": turns }).to_string()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_bound_of_turns_all_but_taking_in_goes_on() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), HandClock::new());
    let bounds = TenantBounds { turns: 2, ..TenantBounds::default() };
    let host = bounded(&clock, dir.path(), bounds).await;
    assert_eq!(say(&host, &["one", "two"]).await.status, 201);
    let refused = say(&host, &["three"]).await;
    assert_eq!(refused.code(), "403 bound_reached");
    let details =
        json!({"limit": "bounds.turns", "most": 2, "used": 2, "asked": 1, "scope": "tenant"});
    assert_eq!(refused.json()["details"], details);
    assert_eq!(refused.header("retry-after"), None);
    // A retry of what is there is no more than it was.
    assert_eq!(say(&host, &["one", "two"]).await.status, 201);
    assert_eq!(host.post("/search", r#"{"query":"two"}"#).await.json()["hits"][0]["text"], "two");
    assert_eq!(host.post("/context", r#"{"budget":100}"#).await.status, 200);
    assert_eq!(host.get("/sessions/s/turns").await.status, 200);
    let usage = host.get("/stats").await.json()["usage"].clone();
    assert_eq!(usage["turns"], json!({"used": 2, "bound": 2}));
    assert_eq!(usage["bytes"]["bound"], Value::Null);
    assert_eq!(host.post("/forget", r#"{"session":"s"}"#).await.status, 200);
    assert_eq!(say(&host, &["three"]).await.status, 201);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_bound_turns_entries_and_files() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), HandClock::new());
    let bounds = TenantBounds { bytes: 300, ..TenantBounds::default() };
    let host = bounded(&clock, dir.path(), bounds).await;
    let long = "x".repeat(301);
    let path = "/v1/host/workspace/files/notes.md";
    let file = json!({ "content": long }).to_string();
    for refused in [
        say(&host, &[&long]).await,
        host.post("/entries", &json!({ "content": long }).to_string()).await,
        host.ask("PUT", path, &[], &file).await,
    ] {
        assert_eq!(refused.code(), "403 bound_reached");
        assert_eq!(refused.json()["details"]["limit"], "bounds.bytes");
    }
    assert_eq!(host.post("/entries", r#"{"content":"short"}"#).await.status, 201);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_day_outlast_a_restart_and_begin_anew() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), HandClock::new());
    let bounds = TenantBounds { requests_a_day: 5, ..TenantBounds::default() };
    let host = bounded(&clock, dir.path(), bounds).await;
    for _ in 0..3 {
        assert_eq!(host.get("/sessions").await.status, 200);
    }
    host.stop().await;
    let host = bounded(&clock, dir.path(), bounds).await;
    let usage = host.get("/stats").await.json()["usage"].clone();
    assert_eq!(usage["requestsToday"], json!({"used": 4, "bound": 5}));
    assert_eq!(host.get("/sessions").await.status, 200);
    let refused = host.get("/sessions").await;
    assert_eq!(refused.code(), "429 bound_reached");
    let wait = REST_OF_DAY_SECONDS.to_string();
    assert_eq!(refused.header("retry-after"), Some(wait.as_str()));
    let details = refused.json()["details"].clone();
    assert_eq!((&details["used"], &details["most"]), (&json!(5), &json!(5)));
    assert_eq!(details["endsAt"], "2023-11-15T00:00:00Z");
    assert_eq!(details["limit"], "bounds.requests_a_day");
    // Who has no key, and whether the host is well, is another matter.
    assert_eq!(host.ask("GET", "/healthz", &[("Authorization", "")], "").await.status, 200);
    clock.advance(REST_OF_DAY_SECONDS * 1_000);
    assert_eq!(host.get("/sessions").await.status, 200);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_a_day_bound_what_is_taken_in() {
    let (dir, clock) = (tempfile::tempdir().unwrap(), HandClock::new());
    let bounds = TenantBounds { tokens_a_day: 10, ..TenantBounds::default() };
    let host = bounded(&clock, dir.path(), bounds).await;
    assert_eq!(say(&host, &["one two three four five six"]).await.status, 201);
    let refused = say(&host, &["seven eight nine ten eleven"]).await;
    assert_eq!(refused.code(), "429 bound_reached");
    let details = refused.json()["details"].clone();
    assert_eq!((&details["used"], &details["asked"]), (&json!(6), &json!(5)));
    // What was refused does not count, and reading goes on.
    assert_eq!(host.post("/entries", r#"{"content":"one two three four"}"#).await.status, 201);
    assert_eq!(host.post("/entries", r#"{"content":"more"}"#).await.code(), "429 bound_reached");
    assert_eq!(host.post("/search", r#"{"query":"two"}"#).await.status, 200);
    let metrics = host.ask("GET", "/metrics", &[("Authorization", "")], "").await.text;
    let has = |line: &str| assert!(metrics.lines().any(|one| one == line), "{line}: {metrics}");
    has("icecore_bound_refusals_total{bound=\"tokens_a_day\"} 2");
    has("icecore_bound_refusals_total{bound=\"turns\"} 0");
    has("icecore_kept_turns 1");
    has("icecore_tenants 1");
    clock.advance(REST_OF_DAY_SECONDS * 1_000);
    assert_eq!(host.post("/entries", r#"{"content":"more"}"#).await.status, 201);
    host.stop().await;
}
