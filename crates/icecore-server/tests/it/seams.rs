//! The seams of the conformance suite: who may use them, what they refuse, and that
//! they drive the engine and nothing else.

use std::collections::BTreeSet;
use std::path::Path;

use icecore::Tenant;
use icecore_host::HostSettings;
use icecore_server::Role;
use serde_json::{Value, json};

use crate::client::{Answer, Host, behaving, fresh, in_conformance};

const SEED: &str = "/v1/test/memory/seed";
const COMPACT: &str = "/v1/test/memory/compact";
const CONSOLIDATE: &str = "/v1/host/sample/memory/consolidate";
const DISTIL: &str = "/v1/host/sample/memory/distill";
const FIRE: &str = "/v1/host/sample/commitment/fire";
const TICK: &str = "/v1/host/sample/scheduling/tick";
const FILES: &str = "/v1/host/sample/workspace/op";
const OWNED: &str = "/v1/host/sample/identity/owned-run";
const CROSS: &str = "/v1/host/sample/identity/cross-workspace-read";

const SEAMS: [(&str, &str); 9] = [
    ("POST", TICK),
    ("POST", SEED),
    ("POST", COMPACT),
    ("POST", CONSOLIDATE),
    ("POST", DISTIL),
    ("POST", FIRE),
    ("POST", FILES),
    ("GET", OWNED),
    ("POST", CROSS),
];

async fn post(host: &Host, path: &str, body: &Value) -> Answer {
    host.ask("POST", path, &[], &body.to_string()).await
}

async fn seed(host: &Host, memory: &str, entries: &Value) -> Answer {
    post(host, SEED, &json!({ "memoryRef": memory, "entries": entries })).await
}

async fn listed(host: &Host, memory: &str) -> Vec<Value> {
    let memory = memory.replace('/', "%2F").replace(':', "%3A");
    let found = host.get(&format!("/entries?memoryRef={memory}&limit=0")).await.json();
    found["entries"].as_array().unwrap().clone()
}

fn ids(entries: &[Value]) -> BTreeSet<&str> {
    entries.iter().map(|entry| entry["id"].as_str().unwrap()).collect()
}

/// What looks like a key of some service.
fn token() -> String {
    format!("sk-{}", "z9y8x7w6v5".repeat(4))
}

/// Nothing in any file says this.
fn scan(dir: &Path, unsaid: &str) {
    for file in std::fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            scan(&path, unsaid);
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let found = bytes.windows(unsaid.len()).any(|window| window == unsaid.as_bytes());
        assert!(!found, "{}", path.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn seams_are_there_for_conformance_and_for_writers_alone() {
    let (_dir, host) = in_conformance().await;
    let (_plain_dir, plain) = fresh().await;
    let reader = format!("Bearer {}", host.key_of("default", Role::Reader).await);
    for (method, path) in SEAMS {
        for method in [method, "GET", "POST", "DELETE"] {
            let nobody = [("Authorization", "")];
            for host in [&host, &plain] {
                let refused = host.ask(method, path, &nobody, "{}").await;
                assert_eq!(refused.code(), "401 unauthenticated", "{method} {path}");
                let stranger = [("Authorization", "Bearer nonsense")];
                let refused = host.ask(method, path, &stranger, "{}").await;
                assert_eq!(refused.code(), "401 unauthenticated", "{method} {path}");
            }
            let absent = plain.ask(method, path, &[], "{}").await;
            assert_eq!(absent.code(), "404 not_found", "{method} {path}");
        }
        let refused = host.ask(method, path, &[("Authorization", &reader)], "{}").await;
        assert_eq!(refused.code(), "403 forbidden", "{method} {path}");
        let other = if method == "GET" { "POST" } else { "GET" };
        let refused = host.ask(other, path, &[], "{}").await;
        assert_eq!(refused.code(), "405 method_not_allowed", "{other} {path}");
    }
    plain.stop().await;
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_seam_and_no_fixture_writes_for_another_tenant() {
    let (_dir, host) = in_conformance().await;
    let writer = format!("Bearer {}", host.key_of("acme", Role::Writer).await);
    let ask = async |method: &str, path: &str, body: Value| {
        let answer = host.ask(method, path, &[("Authorization", &writer)], &body.to_string()).await;
        assert!(answer.status < 300 || path == CROSS, "{method} {path}: {answer:?}");
        answer
    };
    let entries = json!([{"id": "a", "content": "one"}, {"id": "b", "content": "two"}]);
    ask("POST", SEED, json!({"memoryRef": "m", "entries": entries, "tenant": "rival"})).await;
    ask("POST", COMPACT, json!({"memoryRef": "m", "tenant": "rival"})).await;
    ask("POST", CONSOLIDATE, json!({"memoryRef": "m", "tenant": "rival"})).await;
    ask("POST", DISTIL, json!({"memoryRef": "conformance-distill", "tenant": "rival"})).await;
    ask("POST", FIRE, json!({"memoryRef": "m", "condition": "predicate"})).await;
    ask("POST", TICK, json!({"scenario": "single-tick"})).await;
    let file = json!({"op": "put", "tenant": "rival", "workspace": "w", "path": "a.md",
        "content": "x"});
    ask("POST", FILES, file).await;
    ask("GET", OWNED, json!({})).await;
    ask("POST", CROSS, json!({})).await;
    let document = host.ask("GET", "/.well-known/openwop", &[], "").await.json();
    let fixtures = document["fixtures"].as_array().unwrap();
    assert_eq!(fixtures.len(), 7);
    for workflow in fixtures {
        let run = json!({"workflowId": workflow, "tenantId": "rival"});
        let made = ask("POST", "/v1/runs", run).await.json();
        let events = format!("/v1/runs/{}/events/poll?timeout=5", made["runId"].as_str().unwrap());
        let mut last = String::new();
        loop {
            let found = ask("GET", &format!("{events}{last}"), json!({})).await.json();
            if found["isComplete"] == true {
                break;
            }
            if let Some(event) = found["events"].as_array().unwrap().last() {
                last = format!("&lastSequence={}", event["sequence"]);
            }
        }
    }
    let mut tenants = icecore::extend::store(&host.memory).tenants().await.unwrap();
    tenants.sort();
    // The one who asked, and the one of the host's own key.
    assert_eq!(tenants, [Tenant::new("acme").unwrap(), Tenant::new("default").unwrap()]);
    let own =
        icecore::extend::store(&host.memory).head(&Tenant::new("default").unwrap()).await.unwrap();
    let keys = host.get("/events").await.json();
    let kinds = |event: &Value| event["type"].as_str().unwrap().to_owned();
    let kinds: BTreeSet<String> = keys["events"].as_array().unwrap().iter().map(kinds).collect();
    assert!(own.0 > 0 && kinds.iter().all(|kind| kind.starts_with("key.")), "{kinds:?}");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_host_has_no_use_for_them() {
    let settings = HostSettings { conformance: true, read_only: true, ..HostSettings::default() };
    let (_dir, host) = behaving(settings).await;
    let before = host.get("/events").await.text;
    for (method, path) in SEAMS {
        let body = json!({"memoryRef": "m", "entries": [{"id": "a", "content": "b"}], "op": "put",
            "tenant": "t", "workspace": "w", "path": "a.md", "content": "x"});
        let refused = host.ask(method, path, &[], &body.to_string()).await;
        assert_eq!(refused.code(), "403 forbidden", "{method} {path}");
    }
    assert_eq!(host.get("/events").await.text, before);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_malformed_is_named() {
    let (_dir, host) = in_conformance().await;
    for (method, path) in SEAMS.into_iter().filter(|(_, path)| ![OWNED, CROSS].contains(path)) {
        for body in ["", "{", "[]", "7", "\"x\"", "{}", "{\"memoryRef\":7,\"tenant\":[]}"] {
            let refused = host.ask(method, path, &[], body).await;
            assert_eq!(refused.code(), "400 validation_error", "{path} {body}");
        }
    }
    let entry = || json!({"id": "a", "content": "b"});
    let with = |field: &str, value: Value| {
        let mut entry = entry();
        entry[field] = value;
        json!([{"id": "kept-out", "content": "x"}, entry])
    };
    let wrong = [
        json!("x"),
        json!({}),
        json!([7]),
        json!(["x"]),
        json!([null]),
        json!([[]]),
        with("id", json!(7)),
        with("id", Value::Null),
        json!([{"id": "", "content": "x"}]),
        json!([{"id": "n\u{0}", "content": "x"}]),
        json!([{"id": "x".repeat(4_000), "content": "x"}]),
        with("content", json!(7)),
        with("content", Value::Null),
        with("tags", json!("x")),
        with("tags", json!([1])),
        with("expiresAt", json!("soon")),
        with("expiresAt", json!(7)),
    ];
    for entries in wrong {
        let refused = seed(&host, "m", &entries).await;
        assert_eq!(refused.code(), "400 validation_error", "{entries}");
    }
    for memory in ["", "../m", "/m", "a/../../b", "n\u{0}", &"x".repeat(4_000)] {
        let refused = seed(&host, memory, &json!([entry()])).await;
        assert_eq!(refused.code(), "400 validation_error", "{memory}");
    }
    for (path, body) in [
        (COMPACT, json!({"memoryRef": "m", "maxInputEntries": 0})),
        (COMPACT, json!({"memoryRef": "m", "maxInputEntries": "2"})),
        (COMPACT, json!({"memoryRef": "m", "maxInputEntries": 1_001})),
        (COMPACT, json!({"memoryRef": "m", "maxOutputBytes": 0})),
        (COMPACT, json!({"memoryRef": "m", "maxOutputBytes": -1})),
        (COMPACT, json!({"memoryRef": "m", "maxOutputBytes": 65_537})),
        (CONSOLIDATE, json!({"memoryRef": "m", "includeSecretCanary": "yes"})),
        (DISTIL, json!({"memoryRef": "m", "tokenBudget": 0})),
        (DISTIL, json!({"memoryRef": "m", "tokenBudget": "8000"})),
        (DISTIL, json!({"memoryRef": "m", "sources": [7]})),
        (DISTIL, json!({"memoryRef": "m", "indexEmitted": "yes"})),
        (DISTIL, json!({"memoryRef": "m", "includeSecretCanary": 1})),
        (FIRE, json!({"memoryRef": "m", "condition": "never"})),
        (FIRE, json!({"memoryRef": "m", "condition": 7})),
        (FIRE, json!({"memoryRef": "m", "includeIntentionCanary": 1})),
    ] {
        assert_eq!(post(&host, path, &body).await.code(), "400 validation_error", "{path} {body}");
    }
    assert!(host.get("/events").await.text.find("memory.").is_none(), "nothing was written");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn planted_ids_are_kept_and_taken_once() {
    let (dir, host) = in_conformance().await;
    let entries = json!([
        {"id": "e-1", "content": "one", "tags": ["t"]},
        {"id": "e/2 ü..", "content": "two", "expiresAt": "2999-01-01T00:00:00Z"},
    ]);
    let planted = seed(&host, "m", &entries).await;
    assert_eq!((planted.status, planted.json()), (201, json!({"plantedIds": ["e-1", "e/2 ü.."]})));
    let found = listed(&host, "m").await;
    assert_eq!(ids(&found), BTreeSet::from(["e-1", "e/2 ü.."]));
    // A taken id is not told back, and nothing after it is put.
    let more = json!([{"id": "e-1", "content": "other"}, {"id": "e-9", "content": "nine"}]);
    let refused = seed(&host, "m", &more).await;
    assert_eq!(refused.code(), "409 entry_exists");
    assert!(!refused.text.contains("e-1"));
    // Another memory has ids of its own.
    assert_eq!(seed(&host, "another", &more).await.status, 201);
    assert_eq!(listed(&host, "m").await, found);
    // And so has another tenant.
    let bearer = format!("Bearer {}", host.key_of("other", Role::Writer).await);
    let headers = [("Authorization", bearer.as_str())];
    let body = json!({"memoryRef": "m", "entries": [{"id": "e-1", "content": "theirs"}]});
    assert_eq!(host.ask("POST", SEED, &headers, &body.to_string()).await.status, 201);
    assert_eq!(listed(&host, "m").await, found);
    // A secret in an id is hidden like any other.
    let secret = token();
    let planted = seed(&host, "m", &json!([{"id": secret, "content": secret}])).await;
    assert_eq!(planted.status, 201);
    assert!(!planted.text.contains(&secret), "{planted:?}");
    assert!(!host.get("/entries?memoryRef=m").await.text.contains(&secret));
    host.stop().await;
    scan(dir.path(), &secret);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_are_planted_at_once_and_no_more() {
    let (_dir, host) = in_conformance().await;
    let many = |count: usize| -> Value {
        (0..count).map(|n| json!({"id": format!("e-{n}"), "content": ""})).collect()
    };
    assert_eq!(seed(&host, "m", &many(1_001)).await.code(), "400 validation_error");
    assert!(listed(&host, "m").await.is_empty(), "all of it or nothing");
    assert_eq!(seed(&host, "m", &json!([])).await.json()["plantedIds"], json!([]));
    let planted = seed(&host, "m", &many(1_000)).await;
    assert_eq!(planted.json()["plantedIds"].as_array().unwrap().len(), 1_000);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_writes_one_entry_within_its_limits() {
    let (_dir, host) = in_conformance().await;
    for memory in ["empty", "single"] {
        let none = post(&host, COMPACT, &json!({ "memoryRef": memory })).await;
        assert_eq!((none.status, none.text.as_str()), (204, ""));
        seed(&host, "single", &json!([{"id": "alone", "content": "Ana sails."}])).await;
    }
    let sentence = "The lighthouse keeper writes down every ship that passes in the night.";
    let entries: Value = (0..6)
        .map(|n| json!({"id": format!("s-{n}"), "content": format!("{n}: {sentence}")}))
        .collect();
    seed(&host, "ships", &entries).await;
    let body = json!({"memoryRef": "ships", "maxInputEntries": 4, "maxOutputBytes": 200});
    let done = post(&host, COMPACT, &body).await;
    assert_eq!(done.status, 200, "{done:?}");
    let done = done.json();
    assert_eq!(done["type"], "memory.compacted");
    let (payload, content) = (&done["payload"], done["outputContent"].as_str().unwrap());
    assert!(content.len() <= 200);
    assert_eq!(payload["byteSize"], content.len());
    assert_eq!((&payload["sourceCount"], &payload["memoryRef"]), (&json!(4), &json!("ships")));
    let output = payload["outputId"].as_str().unwrap();
    let found = listed(&host, "ships").await;
    let entry = found.iter().find(|entry| entry["id"] == output).unwrap();
    assert_eq!(entry["content"], content);
    assert_eq!(entry["derived"], true);
    assert_eq!(found.len(), 3);
    let sources = host.get(&format!("/entries/{output}/sources?memoryRef=ships")).await.json();
    let sources = sources["entries"].as_array().unwrap().clone();
    assert_eq!(
        json!(ids(&sources)),
        payload["sourceIds"]
            .as_array()
            .map(|ids| {
                let mut ids: Vec<&str> = ids.iter().map(|id| id.as_str().unwrap()).collect();
                ids.sort_unstable();
                json!(ids)
            })
            .unwrap()
    );
    assert!(sources.iter().all(|source| source["supersededBy"] == output));
    // The log says it too, without a word of what was said.
    let log = host.get("/events?memoryRef=ships").await;
    let told = log.json();
    let told = told["events"].as_array().unwrap().iter();
    let told: Vec<&Value> = told.filter(|event| event["type"] == "memory.compacted").collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["payload"]["outputId"], output);
    assert!(!log.text.contains("lighthouse"));
    // With room for nothing, nothing is lost either.
    let before = listed(&host, "ships").await;
    let tiny = post(&host, COMPACT, &json!({"memoryRef": "ships", "maxOutputBytes": 1})).await;
    match tiny.status {
        200 => assert!(tiny.json()["outputContent"].as_str().unwrap().len() <= 1),
        204 => assert_eq!(listed(&host, "ships").await, before),
        _ => panic!("{tiny:?}"),
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_consolidation_changes_nothing() {
    let (_dir, host) = in_conformance().await;
    let memory = "mem://conformance/consolidation";
    let body = json!({"memoryRef": memory, "includeSecretCanary": true});
    let first = post(&host, CONSOLIDATE, &body).await.json();
    let count = |done: &Value, name: &str| done["event"][name].as_u64().unwrap();
    assert!(count(&first, "outputCount") < count(&first, "inputCount"), "{first}");
    assert_eq!(first["secretLeaked"], false);
    assert!(!first["event"]["mergedIds"].as_array().unwrap().is_empty());
    let after = listed(&host, memory).await;
    assert_eq!(after.len() as u64, count(&first, "outputCount"));
    let body = json!({ "memoryRef": memory });
    for _ in 0..2 {
        let again = post(&host, CONSOLIDATE, &body).await.json();
        assert_eq!(count(&again, "inputCount"), count(&again, "outputCount"));
        assert_eq!(count(&again, "inputCount"), count(&first, "outputCount"));
        assert!(again.get("secretLeaked").is_none());
        assert_eq!(listed(&host, memory).await, after);
    }
    // A memory that is not the suite's is not filled.
    let other = post(&host, CONSOLIDATE, &json!({"memoryRef": "mine"})).await.json();
    assert_eq!((count(&other, "inputCount"), count(&other, "outputCount")), (0, 0));
    assert!(listed(&host, "mine").await.is_empty());
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fires_at_once_are_each_their_own() {
    let (_dir, host) = in_conformance().await;
    let host = std::sync::Arc::new(host);
    let mut asking = tokio::task::JoinSet::new();
    for turn in 0..6 {
        let host = std::sync::Arc::clone(&host);
        asking.spawn(async move {
            let condition = if turn % 2 == 0 { "predicate" } else { "time" };
            let body = json!({"memoryRef": "mem://conformance/commitments",
                "condition": condition, "includeIntentionCanary": true});
            post(&host, FIRE, &body).await
        });
    }
    let mut fired = BTreeSet::new();
    while let Some(answer) = asking.join_next().await {
        let answer = answer.unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        let told = answer.json();
        assert_eq!(told["fireCount"], 1, "{told}");
        let canary = told["intentionCanary"].as_str().unwrap();
        assert!(!told["event"].to_string().contains(canary), "{told}");
        assert_eq!(told["event"]["memoryRef"], "mem://conformance/commitments");
        fired.insert(told["event"]["commitmentId"].as_str().unwrap().to_owned());
        let plain = host.get("/events?limit=500").await.text;
        assert!(!plain.contains(canary));
    }
    assert_eq!(fired.len(), 6);
    let quiet = post(&host, FIRE, &json!({"memoryRef": "m"})).await.json();
    assert!(quiet.get("intentionCanary").is_none() && quiet["fireCount"] == 1, "{quiet}");
    std::sync::Arc::into_inner(host).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suites_files_are_no_tenants_files() {
    let (dir, host) = in_conformance().await;
    let put = host.ask("PUT", "/v1/host/workspace/files/own.md", &[], r#"{"content":"mine"}"#);
    assert_eq!(put.await.status, 200);
    let call = async |op: &str, tenant: &str, workspace: &str, path: &str| {
        let body = json!({"op": op, "tenant": tenant, "workspace": workspace, "path": path,
            "content": "planted"});
        post(&host, FILES, &body).await
    };
    for tenant in ["default", " default", "../default", "default ", "DEFAULT", "x"] {
        for workspace in ["default", "ws-a"] {
            let missing = call("get", tenant, workspace, "own.md").await;
            assert_eq!(missing.code(), "404 not_found", "{tenant} {workspace}");
            let none = call("list", tenant, workspace, "").await;
            assert_eq!((none.status, none.json()), (200, json!({"files": []})));
            assert_eq!(call("put", tenant, workspace, "own.md").await.status, 200);
            assert_eq!(call("get", tenant, workspace, "own.md").await.json()["content"], "planted");
            assert_eq!(call("delete", tenant, workspace, "own.md").await.status, 204);
        }
    }
    for (tenant, workspace) in [("", "n\u{0}"), ("a\u{0}b", "w"), ("t", ""), ("t", "w\n")]
        .into_iter()
        .chain([("t".repeat(4_000).as_str(), "w"), ("t", "w".repeat(4_000).as_str())])
    {
        let refused = call("put", tenant, workspace, "a.md").await;
        assert_eq!(refused.code(), "400 validation_error", "{tenant} {workspace}");
    }
    let long = "p".repeat(300);
    for path in
        ["", "..", "../own.md", "/own.md", "a/../b", "a\u{0}b", "%2e%2e/own.md", &long, ".a"]
    {
        for op in ["put", "get", "delete"] {
            let refused = call(op, "t", "w", path).await;
            assert!([400, 404].contains(&refused.status), "{op} {path}: {refused:?}");
            assert!(op != "put" || refused.status == 400, "{path}");
        }
    }
    for op in ["", "move", "PUT"] {
        assert_eq!(call(op, "t", "w", "a.md").await.code(), "400 validation_error");
    }
    // A tenant of that name is another's: it finds nothing of what the suite puts.
    for name in ["real", "conformance sample real"] {
        let reader = format!("Bearer {}", host.key_of(name, Role::Reader).await);
        assert_eq!(call("put", name, "default", "own.md").await.status, 200);
        let headers = [("Authorization", reader.as_str())];
        let own = host.ask("GET", "/v1/host/workspace/files", &headers, "").await;
        assert_eq!((own.status, own.json()), (200, json!({"files": []})), "{name}");
    }
    // Names are stored, and so hide what is secret in them.
    let secret = token();
    for (tenant, workspace) in [(secret.as_str(), "w"), ("t", secret.as_str())] {
        let made = call("put", tenant, workspace, "a.md").await;
        assert_eq!(made.status, 200, "{made:?}");
    }
    let registered = "plum-harbour-veranda";
    let value = zeroize::Zeroizing::new(registered.to_owned());
    let tenant = Tenant::new("default").unwrap();
    host.memory.add_secret(&tenant, "words", value, false).await.unwrap();
    assert_eq!(call("put", registered, registered, "a.md").await.status, 200);
    let own = host.ask("GET", "/v1/host/workspace/files/own.md", &[], "").await.json();
    assert_eq!((&own["content"], &own["version"]), (&json!("mine"), &json!(1)));
    host.stop().await;
    scan(dir.path(), &secret);
    scan(dir.path(), registered);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_works_elsewhere_is_refused() {
    let (_dir, host) = in_conformance().await;
    let owned = host.ask("GET", OWNED, &[], "").await;
    assert_eq!(owned.status, 200);
    assert_eq!(owned.json()["owner"]["tenant"], "default");
    let id = owned.json()["runId"].as_str().unwrap().to_owned();
    assert_eq!(host.ask("GET", &format!("/v1/runs/{id}"), &[], "").await.status, 200);
    for body in ["", "{}", "not json"] {
        let refused = host.ask("POST", CROSS, &[], body).await;
        assert_eq!(refused.code(), "403 run_forbidden");
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_distils_the_same_sources_twice_gets_the_same_archive() {
    let (_dir, host) = in_conformance().await;
    for memory in ["conformance-distill", "m"] {
        let call = |budget: u64| json!({"memoryRef": memory, "tokenBudget": budget, "sources": ["s1", "s2", "s3"]});
        let first = post(&host, DISTIL, &call(8_000)).await.json();
        assert!(first["archiveChecksum"].is_string(), "{first}");
        let before = (listed(&host, memory).await, host.get("/archives").await.text);
        let refused = post(&host, DISTIL, &call(1)).await;
        assert_eq!(refused.code(), "422 token_budget_exceeded");
        let small = json!({"memoryRef": memory, "tokenBudget": 1});
        assert_eq!(post(&host, DISTIL, &small).await.code(), "422 token_budget_exceeded");
        // No dream was undone for it.
        assert_eq!((listed(&host, memory).await, host.get("/archives").await.text), before);
        let other = json!({"memoryRef": memory, "tokenBudget": 8_000, "sources": ["s4"]});
        let other = post(&host, DISTIL, &other).await.json();
        assert_ne!(other["archiveChecksum"], first["archiveChecksum"], "{other}");
        let plain = json!({"memoryRef": memory, "tokenBudget": 8_000});
        assert_eq!(post(&host, DISTIL, &plain).await.status, 200);
        let again = post(&host, DISTIL, &call(8_000)).await.json();
        assert_eq!(again["archiveChecksum"], first["archiveChecksum"], "{again}");
    }
    host.stop().await;
}
