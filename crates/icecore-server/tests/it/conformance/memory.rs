//! Entries: the adapter as runs see it (RFC 0004), the budget of a list (RFC 0113),
//! and what the host's own routes give.

use icecore::{Clock, Millis};
use serde_json::{Value, json};

use super::shape::{ENTRY, Kind, fits};
use super::suite::{Suite, each, is_marked, list, moment, percent, text};
use crate::client::API;

#[tokio::test(flavor = "multi_thread")]
async fn agent_memory_round_trip() {
    let suite = Suite::begin().await;
    let variables = suite.variables("conformance-agent-memory-roundtrip").await;
    fits(&ENTRY, &variables["memoryReadback"]);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_memory_redaction_contract() {
    let suite = Suite::begin().await;
    let variables = suite.variables("conformance-agent-memory-redaction").await;
    let content = text(&variables["memoryReadback"], "content");
    assert!(is_marked(content), "{content}");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_memory_ttl_expiry() {
    let suite = Suite::begin().await;
    let variables = suite.variables("conformance-agent-memory-ttl").await;
    let listed = list(&variables, "memoryList");
    let now = suite.host.memory.now();
    for entry in listed.iter().filter(|entry| entry.get("expiresAt").is_some()) {
        assert!(moment(text(entry, "expiresAt")) > now, "{entry}");
    }
    let ids = each(&listed, "id");
    let (fresh, expired) = (text(&variables, "freshId"), text(&variables, "expiredId"));
    assert!(!fresh.is_empty() && !expired.is_empty());
    assert!(ids.contains(&fresh) && !ids.contains(&expired), "{variables}");
    suite.end().await;
}

/// A run that fails would do for the public scenario; ours completes
/// (`cross-tenant-fixture-completes`).
#[tokio::test(flavor = "multi_thread")]
async fn agent_memory_cross_tenant_isolation() {
    let suite = Suite::begin().await;
    let variables = suite.variables("conformance-agent-memory-cross-tenant").await;
    let own = list(&variables, "ownerProbe");
    assert!(each(&own, "id").contains(&text(&variables, "ownerEntryId")), "{variables}");
    assert_eq!(variables["crossTenantProbe"], json!([]));
    suite.end().await;
}

const BUDGETED: &str = "conformance-agent-memory-injection-budget";

#[tokio::test(flavor = "multi_thread")]
async fn memory_injection_budget_bounded() {
    let suite = Suite::begin().await;
    let seen = suite.variables(BUDGETED).await;
    let (budget, total) = (seen["tokenBudget"].as_u64(), seen["budgetedTokenTotal"].as_u64());
    assert!(budget.is_some() && total.is_some() && total <= budget, "{seen}");
    assert_eq!(seen["overBudgetEntryOmitted"], true);
    let budgeted = list(&seen, "budgetedEntries");
    assert!(!each(&budgeted, "id").contains(&text(&seen, "overBudgetEntryId")), "{seen}");
    assert!(is_marked(text(&seen, "redactedContentSample")), "{seen}");
    assert_eq!(seen["crossTenantBudgetedProbe"], json!([]));
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_injection_budget_relevance() {
    let suite = Suite::begin().await;
    let modes = suite.document().await["memory"]["search"]["modes"].clone();
    assert!(modes.as_array().unwrap().contains(&json!("semantic")), "{modes}");
    let seen = suite.variables(BUDGETED).await;
    for order in ["recencyOrder", "relevanceOrder"] {
        fits(&Kind::Each(&Kind::Text), &seen[order]);
    }
    assert_ne!(seen["recencyOrder"], seen["relevanceOrder"]);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_round_trip() {
    let suite = Suite::begin().await;
    assert_eq!(suite.entries("check/entry").await.json(), json!({"entries": []}));
    let tags = json!(["source:check", "travel"]);
    let entry = json!({"content": "The ferry leaves at nine.", "tags": tags});
    let entry = suite.put_as("check/entry", entry).await;
    fits(&ENTRY, &entry);
    let id = text(&entry, "id");
    assert_eq!(suite.entry("check/entry", id).await.json(), entry);
    assert_eq!(suite.entries("check/entry").await.json(), json!({ "entries": [entry] }));
    let path = format!("{API}/entries/{}?memoryRef=check%2Fentry", percent(id));
    assert_eq!(suite.host.ask("DELETE", &path, &[], "").await.status, 200);
    assert_eq!(suite.entry("check/entry", id).await.code(), "404 not_found");
    assert_eq!(suite.entries("check/entry").await.json(), json!({"entries": []}));
    suite.end().await;
}

/// To the millisecond, and no other with it.
#[tokio::test(flavor = "multi_thread")]
async fn entries_ttl() {
    let (clock, suite) = Suite::timed().await;
    let now = clock.now();
    let until = |millis: i64| Millis(now.0 + millis).to_rfc3339();
    let short = json!({"content": "gone in a moment", "expiresAt": until(1_500)});
    let short = suite.put_as("check/ttl", short).await;
    let long = json!({"content": "here for an hour", "expiresAt": until(3_600_000)});
    let long = suite.put_as("check/ttl", long).await;
    let (id, memory) = (text(&short, "id"), "check/ttl");
    clock.advance(1_499);
    assert_eq!(suite.entry(memory, id).await.json()["expiresAt"], until(1_500));
    assert_eq!(suite.entries(memory).await.json(), json!({ "entries": [long, short] }));
    clock.advance(1);
    assert_eq!(suite.entries(memory).await.json(), json!({ "entries": [long] }));
    assert_eq!(suite.entry(memory, id).await.code(), "404 not_found");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_token_budget() {
    let suite = Suite::begin().await;
    let counter = &suite.document().await["memory"]["injectionBudget"]["tokenCounter"];
    assert_eq!(counter, "chars", "what is counted here is what is advertised");
    for (letter, size) in [("a", 40), ("b", 500), ("c", 40)] {
        suite.put("check/budget", &letter.repeat(size)).await;
    }
    let path = format!("{API}/entries?memoryRef=check%2Fbudget&tokenBudget=100");
    let listed = list(&suite.get(&path).await.json(), "entries");
    // Newest first, whole, and what is larger than all of it left out.
    assert_eq!(each(&listed, "content"), ["c".repeat(40), "a".repeat(40)]);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_refs_give_nothing() {
    let suite = Suite::begin().await;
    let long = "r".repeat(10_000);
    let odd = ["\u{202e}\u{7}", "a\r\nb", "nul\0byte"];
    let paths = ["../../etc/passwd", "..", "a/../../b", "/etc/passwd"];
    for name in odd.into_iter().chain(paths).chain([long.as_str()]) {
        let mut answers = vec![
            suite.get(&format!("/v1/memory/{}?limit=50", percent(name))).await,
            suite.entries(name).await,
            suite.entry(name, "any").await,
            suite.entry("check/none", name).await,
        ];
        let search = json!({"memoryRef": name, "query": "root", "limit": 5});
        answers.push(suite.post(&format!("{API}/search"), search).await);
        for answer in answers {
            assert!(answer.status < 500, "{name:?}: {answer:?}");
            assert!(!answer.text.contains("root:"), "{name:?}: {answer:?}");
            if answer.status >= 400 {
                answer.code();
                continue;
            }
            for rows in ["entries", "hits"] {
                let found = answer.json()[rows].clone();
                assert!(found.is_null() || found == json!([]), "{name:?}: {answer:?}");
            }
        }
    }
    suite.end().await;
}

/// Who forgets, forgets among their own.
#[tokio::test(flavor = "multi_thread")]
async fn forget_stays_in_the_tenant() {
    let suite = Suite::begin().await;
    assert_eq!(suite.document().await["memory"]["retention"]["forget"], true);
    let said = "Quillon collects brass sextants from Valparaiso";
    let turns = json!({"turns": [{"role": "user", "name": "Quillon", "content": said}]});
    let path = format!("{API}/sessions/check-forget/turns");
    for key in [&suite.host.key, &suite.other] {
        assert_eq!(suite.by(key, "POST", &path, turns.clone()).await.status, 201);
    }
    let search = json!({"query": "brass sextants", "limit": 20});
    assert!(suite.finds(&search, "Quillon").await);
    let receipt = suite.post(&format!("{API}/forget"), json!({"subject": "Quillon"})).await;
    assert_eq!(receipt.status, 200, "{receipt:?}");
    let gone = suite.get(&path).await;
    assert!(!gone.text.contains("sextants"), "{gone:?}");
    let found = suite.post(&format!("{API}/search"), search).await;
    assert!(!found.text.contains("Quillon"), "{found:?}");
    let kept = suite.by(&suite.other, "GET", &path, Value::Null).await;
    assert!(kept.text.contains("sextants"), "{kept:?}");
    suite.end().await;
}
