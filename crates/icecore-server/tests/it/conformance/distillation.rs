//! Distillation (RFC 0062): the seam, and beyond it.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::shape::{COMPACTED, DISTILLED, FILE, fits};
use super::suite::{MARK, Suite, dummy_key, lacks, percent, refused, text, token};
use crate::client::{API, Answer};

const SEAM: &str = "/v1/host/sample/memory/distill";

/// The memory that the suite never seeds.
const CORPUS: &str = "conformance-distill";

const INDEX: &str = "MEMORY-INDEX.json";

/// Words that occur nowhere else.
const WORDS: [&str; 3] = ["alderqu", "birchqu", "cedarqu"];

async fn distil(suite: &Suite, memory: &str, more: Value) -> Answer {
    let mut body = json!({ "memoryRef": memory });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    suite.post(SEAM, body).await
}

fn facts() -> Vec<String> {
    let [one, two, three] = WORDS;
    vec![
        format!("Mirela's train to {one} leaves on the fourteenth of March."),
        format!("The spare key of the greenhouse is kept by {two}."),
        format!("Never deploy on Fridays: the rota says {three} is away."),
    ]
}

/// A memory with three entries, distilled.
async fn dreamt(suite: &Suite, memory: &str) -> Value {
    for fact in facts() {
        suite.put(memory, &fact).await;
    }
    let done = distil(suite, memory, json!({"tokenBudget": 8000, "indexEmitted": true})).await;
    assert_eq!(done.status, 200, "{done:?}");
    done.json()
}

/// All that a refusal must leave as it was.
async fn observable(suite: &Suite, memory: &str) -> Vec<String> {
    let kinds =
        ["memory.compacted", "memory.written", "workspace.updated", "agent.memory.consolidated"];
    let log = suite.log(&suite.host.key, None).await;
    let told = log.into_iter().filter(|event| kinds.contains(&text(event, "type")));
    vec![
        suite.entries(memory).await.text,
        suite.get(&format!("{API}/archives")).await.text,
        suite.get(&format!("{API}/dreams")).await.text,
        suite.file("GET", INDEX, "").await.text,
        json!(told.collect::<Vec<_>>()).to_string(),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn distillation_token_budget() {
    let suite = Suite::begin().await;
    let done = distil(&suite, CORPUS, json!({"tokenBudget": 8000})).await;
    assert_eq!(done.status, 200, "{done:?}");
    let figures = &done.json()["event"]["distillation"];
    fits(&DISTILLED, figures);
    assert_eq!(figures["tokenBudget"], 8000);
    assert!(figures["tokensUsed"].as_u64().unwrap() <= 8000, "{figures}");
    let small = distil(&suite, CORPUS, json!({"tokenBudget": 1})).await;
    assert_eq!(small.code(), "422 token_budget_exceeded");
    lacks(&small, &["archiveChecksum"]);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distillation_stable_archive() {
    let suite = Suite::begin().await;
    let asked = json!({"tokenBudget": 8000, "sources": ["s1", {"content": "s2"}, "s3"]});
    let first = distil(&suite, CORPUS, asked.clone()).await.json();
    assert_eq!(text(&first, "archiveChecksum").len(), 64);
    let again = distil(&suite, CORPUS, asked).await.json();
    assert_eq!(again["archiveChecksum"], first["archiveChecksum"]);
    // Whatever else was distilled there meanwhile.
    distil(&suite, CORPUS, json!({"tokenBudget": 8000})).await;
    let shuffled = json!({"tokenBudget": 8000, "sources": ["s3", "s1", "s2"]});
    let later = distil(&suite, CORPUS, shuffled).await.json();
    assert_eq!(later["archiveChecksum"], first["archiveChecksum"]);
    for wrong in [json!([7]), json!([{}]), json!("s1"), json!([null])] {
        let answer = distil(&suite, CORPUS, json!({ "sources": wrong })).await;
        assert_eq!(answer.code(), "400 validation_error", "{wrong}");
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distillation_index_roundtrip() {
    let suite = Suite::begin().await;
    let done = distil(&suite, CORPUS, json!({"tokenBudget": 8000, "indexEmitted": true})).await;
    let done = done.json();
    assert_eq!(done["indexUpdated"], true, "{done}");
    assert!(text(&done["indexFile"], "content").contains(CORPUS), "{done}");
    let without = json!({"tokenBudget": 8000, "indexEmitted": false, "sources": ["x y z"]});
    let without = distil(&suite, CORPUS, without).await.json();
    assert_eq!((&without["indexUpdated"], without.get("indexFile")), (&json!(false), None));
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distillation_secret_carryforward() {
    let suite = Suite::begin().await;
    let canary = ["sk-canary", "rfc0062-do-not-leak-qrs456"].join("-");
    let source = format!("the deploy note says {canary} and nothing else");
    let asked =
        json!({"tokenBudget": 8000, "includeSecretCanary": true, "sources": [{"content": source}]});
    let done = distil(&suite, CORPUS, asked).await;
    assert_eq!(done.status, 200, "{done:?}");
    lacks(&done, &[&canary]);
    assert_eq!(done.json()["secretLeaked"], false);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distillation_reads_entries() {
    let suite = Suite::begin().await;
    let done = dreamt(&suite, "check/alder").await;
    assert_eq!(done["event"]["sourceCount"], 3);
    let output = suite.entry("check/alder", text(&done["event"], "outputId")).await;
    for word in WORDS {
        assert!(output.text.contains(word), "{output:?}");
    }
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distillation_checksum_follows_entries() {
    let suite = Suite::begin().await;
    let first = dreamt(&suite, "check/first").await;
    let same = dreamt(&suite, "check/same").await;
    assert_eq!(first["archiveChecksum"], same["archiveChecksum"], "of the same entries");
    suite.put("check/other", "Nothing of the kind.").await;
    let other = dreamt(&suite, "check/other").await;
    assert_ne!(first["archiveChecksum"], other["archiveChecksum"]);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distillation_archive_retrievable() {
    let suite = Suite::begin().await;
    let done = dreamt(&suite, "check/alder").await;
    let checksum = text(&done, "archiveChecksum");
    let scope = format!("?memoryRef={}", percent("check/alder"));
    let path = format!("{API}/archives/{checksum}{scope}");
    let archive = suite.get(&path).await;
    assert_eq!(archive.status, 200, "{archive:?}");
    assert_eq!(hex::encode(Sha256::digest(archive.text.as_bytes())), checksum);
    for word in WORDS {
        assert!(archive.text.contains(word), "{archive:?}");
    }
    assert_eq!(suite.get(&path).await.text, archive.text);
    assert!(suite.get(&format!("{API}/archives{scope}")).await.text.contains(checksum));
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distillation_index_retrievable() {
    let suite = Suite::begin().await;
    let memory = "check/index";
    suite.put(memory, &format!("The pump house code is {}.", token(7))).await;
    let done = dreamt(&suite, memory).await;
    let file = suite.file("GET", INDEX, "").await;
    assert_eq!(file.status, 200, "{file:?}");
    lacks(&file, &[&token(7)]);
    fits(&FILE, &file.json());
    let index: Value = serde_json::from_str(text(&file.json(), "content")).unwrap();
    assert!(index.is_object(), "{index}");
    assert!(file.text.contains(text(&done, "archiveChecksum")), "{file:?}");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distillation_events_observable() {
    let suite = Suite::begin().await;
    let done = dreamt(&suite, "check/alder").await;
    let told = suite.told("memory.compacted", "check/alder").await;
    let told = told.last().unwrap();
    fits(&COMPACTED, told);
    fits(&DISTILLED, &told["distillation"]);
    assert_eq!(told["outputId"], done["event"]["outputId"]);
    assert_eq!(told["trigger"], "host-managed");
    let log = suite.log(&suite.host.key, None).await;
    let is_index =
        |event: &&Value| event["type"] == "workspace.updated" && event["payload"]["path"] == INDEX;
    let moved: Vec<&Value> = log.iter().filter(is_index).collect();
    assert_eq!(moved.len(), 1, "{log:?}");
    let keys: Vec<&String> = moved[0]["payload"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["path", "version"]);
    let all = json!(log).to_string();
    assert!(WORDS.iter().all(|word| !all.contains(word)), "{all}");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distillation_failure_is_atomic() {
    let suite = Suite::begin().await;
    let memory = "check/atomic";
    for fact in facts() {
        suite.put(memory, &fact).await;
    }
    let before = observable(&suite, memory).await;
    let small = distil(&suite, memory, json!({"tokenBudget": 1, "indexEmitted": true})).await;
    assert_eq!(small.code(), "422 token_budget_exceeded");
    let details = small.json()["details"].clone();
    let least = details["minimumRequired"].as_u64().unwrap();
    assert_eq!((&details["budget"], least > 1), (&json!(1), true));
    let short = distil(&suite, memory, json!({"tokenBudget": least - 1})).await;
    assert_eq!(short.code(), "422 token_budget_exceeded");
    lacks(&short, &["archiveChecksum"]);
    assert_eq!(observable(&suite, memory).await, before);
    let enough = distil(&suite, memory, json!({ "tokenBudget": least })).await;
    assert_eq!(enough.status, 200, "{enough:?}");
    let used = enough.json()["event"]["distillation"]["tokensUsed"].as_u64().unwrap();
    assert!(used <= least, "{used} of {least}");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distillation_budget_is_capped() {
    let suite = Suite::begin().await;
    let most = suite.document().await["memory"]["distillation"]["maxTokenBudget"].as_u64().unwrap();
    // After another of the same memory, as the suite asks.
    distil(&suite, CORPUS, json!({"tokenBudget": 8000})).await;
    let done = distil(&suite, CORPUS, json!({"tokenBudget": most * 2})).await;
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(done.json()["event"]["distillation"]["tokenBudget"], most);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distillation_redacts_its_sources() {
    let suite = Suite::begin().await;
    let key = dummy_key("proj");
    let sources = json!([format!("use {key} for staging"), {"content": key}]);
    let done = distil(&suite, CORPUS, json!({"tokenBudget": 8000, "sources": sources})).await;
    assert_eq!(done.status, 200, "{done:?}");
    lacks(&done, &[&key, MARK]);
    let checksum = text(&done.json(), "archiveChecksum").to_owned();
    let archive = suite.get(&format!("{API}/archives/{checksum}")).await;
    assert_eq!(archive.status, 200, "{archive:?}");
    lacks(&archive, &[&key, MARK]);
    lacks(&suite.entries(CORPUS).await, &[&key, MARK]);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dreams_own_route() {
    let suite = Suite::begin().await;
    let memory = "check/dream";
    for fact in facts() {
        suite.put(memory, &fact).await;
    }
    let before = observable(&suite, memory).await;
    let path = format!("{API}/dreams");
    let small = suite.post(&path, json!({"memoryRef": memory, "budget": 1})).await;
    assert_eq!(small.code(), "422 token_budget_exceeded");
    let dry = json!({"memoryRef": memory, "budget": 8000, "dryRun": true});
    assert_eq!(suite.post(&path, dry).await.status, 200);
    assert_eq!(observable(&suite, memory).await, before);
    let made = suite.post(&path, json!({"memoryRef": memory, "budget": 8000})).await;
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    assert_eq!((&made["tokenBudget"], &made["sourceCount"]), (&json!(8000), &json!(3)));
    for name in ["runId", "outputId", "archiveChecksum"] {
        assert!(!text(&made, name).is_empty(), "{made}");
    }
    let output = suite.entry(memory, text(&made, "outputId")).await;
    assert!(WORDS.iter().all(|word| output.text.contains(word)), "{output:?}");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_archives() {
    let suite = Suite::begin().await;
    let memory = "check/tenant";
    let done = dreamt(&suite, memory).await;
    let checksum = text(&done, "archiveChecksum");
    for scope in [String::new(), format!("?memoryRef={}", percent(memory))] {
        let path = format!("{API}/archives/{checksum}{scope}");
        assert_eq!(suite.get(&path).await.status, 200);
        let other = suite.by(&suite.other, "GET", &path, Value::Null).await;
        assert_eq!(other.code(), "404 not_found", "{scope}");
        let list =
            suite.by(&suite.other, "GET", &format!("{API}/archives{scope}"), Value::Null).await;
        assert_eq!(list.json(), json!({"archives": []}), "{scope}");
    }
    let file = format!("/v1/host/workspace/files/{INDEX}");
    let index = suite.by(&suite.other, "GET", &file, Value::Null).await;
    assert_eq!(index.code(), "404 not_found");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_422_flat() {
    let suite = Suite::begin().await;
    let small = distil(&suite, CORPUS, json!({"tokenBudget": 1})).await;
    refused(&small, &[422]);
    assert_eq!(small.code(), "422 token_budget_exceeded");
    let details = small.json()["details"].clone();
    assert_eq!(details["budget"], 1);
    assert!(details["minimumRequired"].as_u64().unwrap() > 1, "{details}");
    suite.end().await;
}
