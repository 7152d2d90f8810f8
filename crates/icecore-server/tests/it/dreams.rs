//! Dreams over HTTP: asked for, previewed, read, taken back, and as runs.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::client::{API, Answer, Host, fresh};

const FACTS: [&str; 3] = [
    "Mirela's train to Brasov leaves on the fourteenth of March.",
    "The spare key of the greenhouse is kept by Odalys.",
    "Never deploy on Fridays: the rota says Bertrand is away.",
];

async fn plant(host: &Host, memory: &str, contents: &[&str]) {
    for content in contents {
        let body = json!({ "memoryRef": memory, "content": content }).to_string();
        assert_eq!(host.post("/entries", &body).await.status, 201);
    }
}

async fn dream(host: &Host, body: Value) -> Answer {
    host.post("/dreams", &body.to_string()).await
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no text `{name}` in {value}"))
}

/// All that a refusal or a preview must leave as it was.
async fn observable(host: &Host) -> Vec<String> {
    let mut all = Vec::new();
    for path in ["/entries?memoryRef=m", "/dreams", "/archives", "/events?limit=500"] {
        all.push(host.get(path).await.text);
    }
    all.push(host.ask("GET", "/v1/host/workspace/files", &[], "").await.text);
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dream_is_kept_and_its_archive_has_its_address() {
    let (_dir, host) = fresh().await;
    plant(&host, "m", &FACTS).await;
    let made = dream(&host, json!({"memoryRef": "m", "budget": 8000})).await;
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    assert_eq!((&made["memoryRef"], &made["tokenBudget"]), (&json!("m"), &json!(8000)));
    assert_eq!((&made["sourceCount"], &made["remaining"]), (&json!(3), &json!(0)));
    assert_eq!((&made["unchanged"], &made["indexUpdated"]), (&json!(false), &json!(true)));
    let number = |name: &str| made[name].as_u64().unwrap();
    assert_eq!(number("tokensUsed"), number("inputTokens") + number("outputTokens"));
    assert!((1..=8000).contains(&number("tokensUsed")), "{made}");

    let output = host.get(&format!("/entries/{}?memoryRef=m", text(&made, "outputId"))).await;
    for word in ["Brasov", "Odalys", "Bertrand"] {
        assert!(output.text.contains(word), "{output:?}");
    }

    let checksum = text(&made, "archiveChecksum");
    let archive = host.get(&format!("/archives/{checksum}")).await;
    assert_eq!((archive.status, archive.header("content-type")), (200, Some("application/json")));
    assert_eq!(hex::encode(Sha256::digest(archive.text.as_bytes())), checksum);
    let etag = archive.header("etag").unwrap().to_owned();
    assert_eq!(etag, format!("\"{checksum}\""));
    assert_eq!(archive.header("cache-control"), Some("private, no-cache"));
    let path = format!("{API}/archives/{checksum}?memoryRef=m");
    let kept = host.ask("GET", &path, &[("If-None-Match", &etag)], "").await;
    assert_eq!((kept.status, kept.text.as_str()), (304, ""));
    let listed = host.get("/archives?memoryRef=m").await.json();
    assert_eq!(listed["archives"].as_array().unwrap().len(), 1);
    let row = &listed["archives"][0];
    assert_eq!((&row["checksum"], &row["runId"]), (&json!(checksum), &made["runId"]));
    assert_eq!(row["bytes"], archive.text.len());

    // Once more: nothing is due.
    let again = dream(&host, json!({"memoryRef": "m", "budget": 8000})).await;
    assert_eq!((again.status, &again.json()["unchanged"]), (200, &json!(true)));
    assert_eq!(again.json()["runId"], made["runId"]);
    let read = host.get(&format!("/dreams/{}", text(&made, "runId"))).await.json();
    assert_eq!((&read["state"], &read["trigger"]), (&json!("in-force"), &json!("manual")));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_or_previewed_leaves_no_trace() {
    let (_dir, host) = fresh().await;
    let empty = dream(&host, json!({"memoryRef": "m"})).await;
    assert_eq!(empty.code(), "422 nothing_to_distill");
    plant(&host, "m", &FACTS).await;
    host.settled().await;
    let before = observable(&host).await;
    let small = dream(&host, json!({"memoryRef": "m", "budget": 1})).await;
    assert_eq!(small.code(), "422 token_budget_exceeded");
    assert!(!small.text.contains("archiveChecksum"));
    let details = small.json()["details"].clone();
    assert_eq!(details["budget"], 1);
    let least = details["minimumRequired"].as_u64().unwrap();
    assert!(least > 1);
    let short = dream(&host, json!({"memoryRef": "m", "budget": least - 1})).await;
    assert_eq!(short.code(), "422 token_budget_exceeded");
    for budget in [json!(0), json!(-1), json!(1.5), json!("8000"), json!([])] {
        let wrong = dream(&host, json!({"memoryRef": "m", "budget": budget})).await;
        assert_eq!(wrong.code(), "400 validation_error", "{budget}");
    }

    let body = json!({"memoryRef": "m", "budget": 8000, "dryRun": true}).to_string();
    let key = [("Idempotency-Key", "preview-1")];
    let shown = host.call("POST", "/dreams", &key, Some(&body)).await;
    assert_eq!(shown.status, 200, "{shown:?}");
    let again = host.call("POST", "/dreams", &key, Some(&body)).await;
    assert_eq!(again.header("openwop-idempotent-replay"), Some("true"));
    assert_eq!(again.text, shown.text);
    let shown = shown.json();
    assert_eq!((shown.get("runId"), shown.get("outputId")), (None, None));
    assert!(text(&shown, "text").contains("Odalys"), "{shown}");
    let lines: usize = shown["sections"]
        .as_array()
        .unwrap()
        .iter()
        .map(|section| section["lines"].as_array().unwrap().len())
        .sum();
    assert_eq!(shown["added"].as_array().unwrap().len(), lines);
    assert_eq!(shown["removed"], json!([]));
    assert_eq!(observable(&host).await, before);

    let made = dream(&host, json!({"memoryRef": "m", "budget": 8000})).await.json();
    assert_eq!(made["archiveChecksum"], shown["archiveChecksum"], "it was shown as it became");
    let least_again = dream(&host, json!({"memoryRef": "m", "budget": 1})).await;
    assert_eq!(least_again.code(), "422 token_budget_exceeded", "the budget is looked at first");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dream_can_be_taken_back() {
    let (_dir, host) = fresh().await;
    plant(&host, "m", &FACTS).await;
    let first = dream(&host, json!({"memoryRef": "m"})).await.json();
    plant(&host, "m", &["The kiln is serviced every April."]).await;
    let second = dream(&host, json!({"memoryRef": "m"})).await.json();
    let listed = host.get("/dreams").await.json();
    let runs: Vec<&str> =
        listed["dreams"].as_array().unwrap().iter().map(|row| text(row, "runId")).collect();
    assert_eq!(runs, [text(&second, "runId"), text(&first, "runId")]);
    let page = host.get("/dreams?limit=1").await.json();
    assert_eq!(page["dreams"][0]["runId"], second["runId"]);
    let rest = host.get(&format!("/dreams?memoryRef=m&before={}", runs[0])).await.json();
    assert_eq!(rest["dreams"].as_array().unwrap().len(), 1);
    assert_eq!(host.get("/dreams?memoryRef=other").await.json(), json!({"dreams": []}));

    let undo = async |run: &str| host.post(&format!("/dreams/{run}/undo"), "{}").await;
    assert_eq!(undo(runs[1]).await.code(), "409 dream_not_undone");
    assert_eq!(undo("nobody").await.code(), "404 not_found");
    let undone = undo(runs[0]).await;
    assert_eq!((undone.status, &undone.json()["state"]), (200, &json!("undone")));
    assert_eq!(undo(runs[0]).await.code(), "409 dream_not_undone");
    let gone = host.get(&format!("/archives/{}", text(&second, "archiveChecksum"))).await;
    assert_eq!(gone.code(), "410 archive_gone");
    let back = host.get(&format!("/dreams/{}", runs[1])).await.json();
    assert_eq!(back["state"], "in-force");
    // What it had read is due again, and comes to the same.
    let third = dream(&host, json!({"memoryRef": "m"})).await.json();
    assert_eq!(third["archiveChecksum"], second["archiveChecksum"]);
    assert_eq!(host.get("/dreams/nobody").await.code(), "404 not_found");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_gets_the_same_dream_once() {
    let (_dir, host) = fresh().await;
    plant(&host, "m", &FACTS).await;
    let key = [("Idempotency-Key", "night-1")];
    let ask = async |body: &str| host.call("POST", "/dreams", &key, Some(body)).await;
    let body = r#"{"memoryRef":"m","budget":8000}"#;
    let first = ask(body).await;
    assert_eq!(first.status, 201, "{first:?}");
    let again = ask(body).await;
    assert_eq!((again.status, &again.text), (201, &first.text));
    assert_eq!(again.header("openwop-idempotent-replay"), Some("true"));
    let other = ask(r#"{"memoryRef":"m","budget":9000}"#).await;
    assert_eq!(other.code(), "409 idempotency_key_mismatch");
    assert_eq!(host.get("/dreams").await.json()["dreams"].as_array().unwrap().len(), 1);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_forgotten_leaves_a_tombstone() {
    let (_dir, host) = fresh().await;
    plant(&host, "m", &FACTS).await;
    let secret =
        json!({"memoryRef": "m", "content": "Odile keeps bees.", "tags": ["subject:Odile"]});
    assert_eq!(host.post("/entries", &secret.to_string()).await.status, 201);
    let made = dream(&host, json!({"memoryRef": "m"})).await.json();
    let checksum = text(&made, "archiveChecksum").to_owned();
    let dry = host.post("/forget", r#"{"subject":"Odile","dryRun":true}"#).await.json();
    assert_eq!((&dry["erased"]["archives"], &dry["distilledAnew"]), (&json!(1), &json!(0)));
    assert_eq!(host.get(&format!("/archives/{checksum}")).await.status, 200);
    let receipt = host.post("/forget", r#"{"subject":"Odile"}"#).await.json();
    assert_eq!(receipt["erased"], dry["erased"], "{receipt}");
    assert_eq!(receipt["distilledAnew"], 1, "{receipt}");
    assert!(text(&receipt, "statement").ends_with(", 1 archives, 0 handoffs"), "{receipt}");
    let gone = host.get(&format!("/archives/{checksum}")).await;
    assert_eq!(gone.code(), "410 archive_gone");
    assert!(!host.get("/archives").await.text.contains(&checksum));
    let anew = host.get("/dreams?limit=1").await.json()["dreams"][0].clone();
    assert_eq!((&anew["state"], &anew["trigger"]), (&json!("in-force"), &json!("anew")));
    let left = host.get(&format!("/archives/{}", text(&anew, "archiveChecksum"))).await;
    assert!(left.text.contains("Bertrand") && !left.text.contains("Odile"), "{left:?}");
    host.stop().await;
}

async fn ended(host: &Host, run: &str) -> Value {
    for _ in 0..500 {
        let read = host.ask("GET", &format!("/v1/runs/{run}"), &[], "").await;
        assert_eq!(read.status, 200, "{read:?}");
        let read = read.json();
        if ["completed", "failed", "cancelled"].contains(&text(&read, "status")) {
            return read;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("run {run} never ended");
}

async fn events_of(host: &Host, run: &str) -> Vec<Value> {
    let events = host.ask("GET", &format!("/v1/runs/{run}/events"), &[], "").await.json();
    events["events"].as_array().unwrap().clone()
}

async fn start(host: &Host, body: Value) -> String {
    let made = host.ask("POST", "/v1/runs", &[], &body.to_string()).await;
    assert_eq!(made.status, 201, "{made:?}");
    text(&made.json(), "runId").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dream_is_a_run() {
    let (_dir, host) = fresh().await;
    plant(&host, "m", &FACTS).await;
    let asked = json!({"workflowId": "icecore.dream", "inputs": {"memoryRef": "m"},
        "configurable": {"distillation.tokenBudget": 8000}});
    let run = start(&host, asked.clone()).await;
    let read = ended(&host, &run).await;
    assert_eq!(
        (&read["status"], &read["workflowId"]),
        (&json!("completed"), &json!("icecore.dream"))
    );
    let kept = host.get(&format!("/dreams/{run}")).await.json();
    assert_eq!((&kept["state"], &kept["tokenBudget"]), (&json!("in-force"), &json!(8000)));
    let events = events_of(&host, &run).await;
    let kinds: Vec<&str> = events.iter().map(|event| text(event, "type")).collect();
    assert_eq!(kinds.first(), Some(&"run.started"), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"run.completed"), "{kinds:?}");
    assert!(kinds.contains(&"memory.compacted"), "{kinds:?}");
    assert!(!json!(events).to_string().contains("Odalys"), "no content");

    // To repeat it is to tell it again, and to dream of nothing.
    let before = host.get("/dreams").await.text;
    let path = format!("/v1/runs/{run}:fork");
    let fork = host.ask("POST", &path, &[], r#"{"mode":"replay"}"#).await;
    assert_eq!(fork.status, 201, "{fork:?}");
    let fork = text(&fork.json(), "runId").to_owned();
    let told: Vec<Value> =
        events_of(&host, &fork).await.iter().map(|event| event["payload"].clone()).collect();
    let first: Vec<Value> = events.iter().map(|event| event["payload"].clone()).collect();
    assert_eq!(told, first);
    assert_eq!(host.get("/dreams").await.text, before);

    // Nothing is due: the run completes, and the dream before it stands.
    let idle = ended(&host, &start(&host, asked).await).await;
    assert_eq!(idle["status"], "completed", "{idle}");
    assert_eq!(idle["variables"]["dream"]["runId"], run.as_str());
    assert_eq!(idle["variables"]["dream"]["unchanged"], true);
    assert_eq!(host.get("/dreams").await.text, before);

    // And what a person asked for is a run as well.
    plant(&host, "m", &["The kiln is serviced every April."]).await;
    let manual = dream(&host, json!({"memoryRef": "m"})).await.json();
    let read = ended(&host, text(&manual, "runId")).await;
    assert_eq!(
        (&read["status"], &read["workflowId"]),
        (&json!("completed"), &json!("icecore.dream"))
    );
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dream_that_cannot_be_fails_as_a_run() {
    let (_dir, host) = fresh().await;
    let of = |memory: &str, budget: Value| {
        json!({"workflowId": "icecore.dream", "inputs": {"memoryRef": memory},
            "configurable": {"distillation.tokenBudget": budget}})
    };
    let failed = ended(&host, &start(&host, of("empty", json!(8000))).await).await;
    assert_eq!(failed["error"]["code"], "nothing_to_distill", "{failed}");
    plant(&host, "m", &FACTS).await;
    let run = start(&host, of("m", json!(1))).await;
    let failed = ended(&host, &run).await;
    assert_eq!(
        (&failed["status"], &failed["error"]["code"]),
        (&json!("failed"), &json!("token_budget_exceeded"))
    );
    assert_eq!(host.get("/dreams").await.json(), json!({"dreams": []}));
    for budget in [json!(0), json!(-1), json!(1.5), json!("8000")] {
        let refused = host.ask("POST", "/v1/runs", &[], &of("m", budget.clone()).to_string()).await;
        assert_eq!(refused.code(), "400 validation_error", "{budget}");
    }
    let clamped = ended(&host, &start(&host, of("m", json!(10_000_000))).await).await;
    assert_eq!(clamped["status"], "completed", "{clamped}");
    let kept = host.get("/dreams").await.json()["dreams"][0].clone();
    assert_eq!(kept["tokenBudget"], 64_000);
    host.stop().await;
}
