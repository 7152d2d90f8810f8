//! Long-term entries over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use icecore::settings::EntrySettings;
use icecore::{Clock, Memory, MemorySettings, Millis};
use icecore_server::Role;
use serde_json::{Value, json};

use crate::client::{Answer, Host, fresh};

/// A clock that stands still until it is moved.
struct HandClock(AtomicI64);

impl Clock for HandClock {
    fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::SeqCst))
    }
}

/// 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600_000;

async fn timed() -> (tempfile::TempDir, Host, Arc<HandClock>) {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(HandClock(AtomicI64::new(START)));
    let shared: Arc<dyn Clock> = Arc::clone(&clock) as Arc<dyn Clock>;
    let memory = crate::place::open(Memory::builder().clock(shared), dir.path()).await;
    let host = Host::over(memory, dir.path()).await;
    (dir, host, clock)
}

async fn put(host: &Host, body: Value) -> Value {
    let answer = host.post("/entries", &body.to_string()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()
}

async fn contents(host: &Host, query: &str) -> Vec<String> {
    let answer = host.get(&format!("/entries?{query}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let entries = answer.json()["entries"].as_array().unwrap().clone();
    entries.iter().map(|entry| entry["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_is_put_read_listed_and_deleted() {
    let (_dir, host, _clock) = timed().await;
    let reference = "mem://check/a b";
    let query = "memoryRef=mem%3A%2F%2Fcheck%2Fa%20b";
    let entry = put(
        &host,
        json!({"memoryRef": reference, "content": "The ferry.", "tags": ["travel", ""]}),
    )
    .await;
    let id = entry["id"].as_str().unwrap();
    let expected = json!({
        "id": id, "memoryRef": reference, "content": "The ferry.", "tags": ["travel"],
        "createdAt": "2026-01-01T00:00:00Z",
    });
    assert_eq!(entry, expected);
    let path = format!("/entries/{id}?{query}");
    assert_eq!(host.get(&path).await.json(), entry);
    assert_eq!(host.get(&format!("/entries?{query}")).await.json(), json!({"entries":[entry]}));
    assert_eq!(host.get(&format!("/entries/{id}")).await.code(), "404 not_found");
    let found =
        host.post("/search", &json!({"memoryRef": reference, "query": "ferry"}).to_string()).await;
    assert_eq!(found.json()["hits"][0]["id"], id, "at once");

    let events = host.get("/events").await.json()["events"].as_array().unwrap().clone();
    let at = events.last().unwrap()["seq"].clone();
    let gone = host.call("DELETE", &path, &[], None).await;
    assert_eq!(gone.json(), json!({"id": id, "memoryRef": reference, "removed": true}));
    assert_eq!(host.get(&path).await.code(), "404 not_found");
    assert_eq!(host.call("DELETE", &path, &[], None).await.code(), "404 not_found");
    assert_eq!(contents(&host, query).await, [""; 0]);
    let found =
        host.post("/search", &json!({"memoryRef": reference, "query": "ferry"}).to_string()).await;
    assert_eq!(found.json()["hits"], json!([]));
    assert_eq!(contents(&host, &format!("{query}&at={at}")).await, ["The ferry."]);
    assert_eq!(host.get(&format!("{path}&at={at}")).await.status, 200);
    assert_eq!(host.get("/stats").await.json()["entries"], 0);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_have_options_and_refuse_others() {
    let (_dir, host, clock) = timed().await;
    for n in 0..3 {
        clock.0.store(START + n, Ordering::SeqCst);
        let tag = if n % 2 == 1 { "odd" } else { "even" };
        put(&host, json!({"content": format!("note number {n}"), "tags": [tag]})).await;
    }
    let all = ["note number 2", "note number 1", "note number 0"];
    assert_eq!(contents(&host, "").await, all);
    assert_eq!(contents(&host, "limit=0").await, all);
    assert_eq!(contents(&host, "limit=100000").await, all);
    assert_eq!(contents(&host, "limit=1").await, all[..1]);
    assert_eq!(contents(&host, "tag=odd").await, all[1..2]);
    assert_eq!(contents(&host, "tokenBudget=26").await, all[..2]);
    assert_eq!(contents(&host, "tokenBudget=26&limit=1").await, all[..1]);
    assert_eq!(contents(&host, "rank=recency&query=").await, all);
    assert_eq!(contents(&host, "rank=relevance&query=number%200").await[0], all[2]);
    let long = "x".repeat(257);
    for bad in [
        "limit=-1",
        "limit=x",
        "limit=",
        "tokenBudget=0",
        "tokenBudget=-1",
        "tokenBudget=1.5",
        "rank=luck",
        "rank=",
        "rank=relevance",
        "rank=relevance&query=",
        "tag=",
        "at=-1",
        "at=x",
        "at=4711",
        "tag=a&tag=b",
        &format!("tag={long}"),
    ] {
        let refused = host.get(&format!("/entries?{bad}")).await;
        assert_eq!(refused.code(), "400 validation_error", "{bad}");
        let name = bad.split('=').next().unwrap();
        assert!(refused.text.contains(&format!("`{name}")), "{bad}: {}", refused.text);
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_at_most_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let limits = icecore_server::Limits { page: 3, page_default: 2, ..Default::default() };
    let host = Host::with(dir.path(), limits).await;
    for n in 0..5 {
        put(&host, json!({"content": n.to_string()})).await;
    }
    assert_eq!(contents(&host, "").await.len(), 2);
    assert_eq!(contents(&host, "limit=0").await.len(), 3);
    assert_eq!(contents(&host, "limit=5").await.len(), 3);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_expires_to_the_millisecond() {
    let (_dir, host, clock) = timed().await;
    let expires = "2026-01-01T00:00:01.500Z";
    let entry = put(&host, json!({"content": "short", "expiresAt": expires})).await;
    assert_eq!(entry["expiresAt"], "2026-01-01T00:00:01.5Z");
    // Another way to write the same moment.
    let same =
        put(&host, json!({"content": "too", "expiresAt": "2026-01-01T02:00:01.5+02:00"})).await;
    assert_eq!(same["expiresAt"], entry["expiresAt"]);
    let path = format!("/entries/{}", entry["id"].as_str().unwrap());
    clock.0.store(START + 1_499, Ordering::SeqCst);
    assert_eq!(host.get(&path).await.json(), entry);
    clock.0.store(START + 1_500, Ordering::SeqCst);
    assert_eq!(host.get(&path).await.code(), "404 not_found");
    assert_eq!(contents(&host, "").await, [""; 0]);
    assert_eq!(host.call("DELETE", &path, &[], None).await.code(), "404 not_found");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_kept_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let entries = EntrySettings { bytes: 9, tags: 2, tag_chars: 3, ..EntrySettings::default() };
    let settings = MemorySettings { entries, ..MemorySettings::default() };
    let memory = crate::place::open(Memory::builder().settings(settings), dir.path()).await;
    let host = Host::over(memory, dir.path()).await;
    let check = async |body: Value, named: &str, details: Value| {
        let refused = host.post("/entries", &body.to_string()).await;
        assert_eq!(refused.code(), "400 validation_error", "{body}");
        assert!(refused.text.contains(named), "{body}: {}", refused.text);
        assert_eq!(refused.json()["details"], details, "{body}");
    };
    let none = Value::Null;
    let bytes = json!({"limit": "entry_bytes", "limitBytes": 9, "bytes": 10});
    check(json!({"content": "ééééé"}), "`entry_bytes`", bytes).await;
    let tags = json!({"limit": "entry_tags", "most": 2});
    check(json!({"content": "", "tags": ["a", "b", "c"]}), "`entry_tags`", tags).await;
    let chars = json!({"limit": "entry_tag_chars", "most": 3});
    check(json!({"content": "", "tags": ["abcd"]}), "`entry_tag_chars`", chars).await;
    let past = json!({"content": "", "expiresAt": "2020-01-01T00:00:00Z"});
    check(past, "`expiresAt`", none.clone()).await;
    check(json!({"content": "", "expiresAt": "soon"}), "`expiresAt`", none.clone()).await;
    check(json!({}), "`content`", none.clone()).await;
    check(json!({"content": null}), "`content`", none.clone()).await;
    check(json!({"content": 7}), "`content`", none.clone()).await;
    check(json!({"content": "x", "tags": "no"}), "`tags`", none.clone()).await;
    check(json!({"content": "x", "tags": [7]}), "`tags`", none.clone()).await;
    check(json!({"content": "x", "memoryRef": 7}), "`memoryRef`", none.clone()).await;
    for name in ["..", "a/../b", "/etc/passwd", "", "nul\0byte", &"r".repeat(10_000)] {
        check(json!({"content": "x", "memoryRef": name}), "`memoryRef`", none.clone()).await;
    }
    assert_eq!(contents(&host, "").await, [""; 0]);
    assert!(!host.get("/events").await.text.contains("memory."));
    host.stop().await;
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_a_malformed_reference_finds_nothing() {
    let (_dir, host) = fresh().await;
    put(&host, json!({"content": "root of the matter"})).await;
    let turns = r#"{"turns":[{"role":"user","content":"root"}]}"#;
    assert_eq!(host.post("/sessions/s/turns", turns).await.status, 201);
    let long = "r".repeat(5_000);
    for name in
        ["../../etc/passwd", "..", "a/../../b", "/etc/passwd", "nul\0byte", "a\r\nb", "", &long]
    {
        let asked = percent(name);
        for (path, key) in [
            ("/entries", "entries"),
            ("/sessions", "sessions"),
            ("/chunks", "chunks"),
            ("/facts", "facts"),
            ("/events", "events"),
            ("/archives", "archives"),
        ] {
            let answer = host.get(&format!("{path}?memoryRef={asked}")).await;
            assert_eq!((answer.status, &answer.json()[key]), (200, &json!([])), "{path} {name}");
        }
        for path in ["/entries/any", "/chunks/any", "/sessions/s/turns", "/sessions/s/view"] {
            let answer = host.get(&format!("{path}?memoryRef={asked}")).await;
            assert_eq!(answer.code(), "404 not_found", "{path} {name}");
        }
        if !name.is_empty() && name.len() < 100 {
            assert_eq!(host.get(&format!("/entries/{asked}")).await.code(), "404 not_found");
        }
        let stats = host.get(&format!("/stats?memoryRef={asked}")).await.json();
        assert_eq!((&stats["turns"], &stats["entries"]), (&json!(0), &json!(0)));
        let search = json!({"memoryRef": name, "query": "root"}).to_string();
        assert_eq!(host.post("/search", &search).await.json()["hits"], json!([]));
        let context = json!({"memoryRef": name, "query": "root", "budget": 99}).to_string();
        assert_eq!(host.post("/context", &context).await.json()["text"], "");
        // Who writes is told.
        let write = json!({"memoryRef": name, "turns": [{"role": "user", "content": "x"}]});
        let refused = host.post("/sessions/s/turns", &write.to_string()).await;
        assert_eq!(refused.code(), "400 validation_error", "{name}");
        assert!(refused.text.contains("`memoryRef`"), "{}", refused.text);
        let path = format!("/entries/any?memoryRef={asked}");
        let refused = host.call("DELETE", &path, &[], None).await;
        assert_eq!(refused.code(), "400 validation_error", "{name}");
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_do_not_see_each_other() {
    let (_dir, host) = fresh().await;
    let (other, reader) =
        (host.key_of("rival", Role::Writer).await, host.key_of("default", Role::Reader).await);
    let entry =
        put(&host, json!({"memoryRef": "shared", "content": "of the default tenant"})).await;
    let path = format!("/entries/{}?memoryRef=shared", entry["id"].as_str().unwrap());
    let call = async |key: &str, method: &str, path: &str, body: Option<&str>| -> Answer {
        let bearer = format!("Bearer {key}");
        host.call(method, path, &[("Authorization", &bearer)], body).await
    };
    for hint in ["", "&tenant=default", "&tenantId=default"] {
        let list = call(&other, "GET", &format!("/entries?memoryRef=shared{hint}"), None).await;
        assert_eq!(list.json(), json!({"entries": []}));
        let foreign = call(&other, "GET", &format!("{path}{hint}"), None).await;
        assert_eq!(foreign.code(), "404 not_found");
        let foreign = call(&other, "DELETE", &format!("{path}{hint}"), None).await;
        assert_eq!(foreign.code(), "404 not_found");
    }
    let search = r#"{"memoryRef":"shared","query":"default tenant"}"#;
    assert_eq!(call(&other, "POST", "/search", Some(search)).await.json()["hits"], json!([]));
    let theirs = r#"{"memoryRef":"shared","content":"of the rival"}"#;
    assert_eq!(call(&other, "POST", "/entries", Some(theirs)).await.status, 201);
    assert_eq!(contents(&host, "memoryRef=shared").await, ["of the default tenant"]);
    // A reader of the same tenant reads, and no more.
    assert_eq!(call(&reader, "GET", &path, None).await.json(), entry);
    assert_eq!(call(&reader, "DELETE", &path, None).await.code(), "403 forbidden");
    assert_eq!(call(&reader, "POST", "/entries", Some(theirs)).await.code(), "403 forbidden");
    assert_eq!(host.get(&path).await.status, 200);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_puts_one_entry() {
    let (dir, host) = fresh().await;
    let token =
        icecore::privacy::Redactor::kinds().iter().find(|kind| kind.id == "github-token").unwrap();
    let token = token.sample(11);
    let body = json!({"content": format!("ptarmigan {token}"), "tags": ["a", token],
        "expiresAt": "2999-01-01T00:00:00.250Z"})
    .to_string();
    let headers = [("Idempotency-Key", "once")];
    let first = host.call("POST", "/entries", &headers, Some(&body)).await;
    assert_eq!(first.status, 201, "{first:?}");
    assert!(first.text.contains("ptarmigan [REDACTED:"), "{first:?}");
    let again = host.call("POST", "/entries", &headers, Some(&body)).await;
    assert_eq!((again.status, &again.text), (201, &first.text));
    assert_eq!(again.header("openwop-Idempotent-Replay"), Some("true"));
    let other = host.call("POST", "/entries", &headers, Some(r#"{"content":"x"}"#)).await;
    assert_eq!(other.code(), "409 idempotency_key_mismatch");
    assert_eq!(contents(&host, "").await.len(), 1);
    // Also after a restart, and after it was forgotten.
    let id = first.json()["id"].as_str().unwrap().to_owned();
    host.stop().await;
    let host = Host::start(dir.path()).await;
    assert_eq!(host.post("/forget", &json!({"entry": id}).to_string()).await.status, 200);
    let again = host.call("POST", "/entries", &headers, Some(&body)).await;
    assert_eq!((again.status, &again.text), (201, &first.text));
    assert_eq!(contents(&host, "").await, [""; 0]);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_not_named() {
    let (_dir, host) = fresh().await;
    put(&host, json!({"content": "x"})).await;
    for path in ["/entries/kumquat", "/chunks/kumquat", "/sessions/kumquat/turns"] {
        let missing = host.get(&format!("{path}?memoryRef=kumquat")).await;
        assert_eq!(missing.code(), "404 not_found", "{path}");
        assert!(!missing.text.contains("kumquat"), "{}", missing.text);
    }
    let missing = host.call("DELETE", "/entries/kumquat", &[], None).await;
    assert_eq!(missing.code(), "404 not_found");
    assert!(!missing.text.contains("kumquat"), "{}", missing.text);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_past_of_what_was_forgotten_is_gone() {
    let (_dir, host, _clock) = timed().await;
    let gone = put(&host, json!({"content": "The ferry."})).await["id"].clone();
    put(&host, json!({"content": "The train."})).await;
    let events = host.get("/events").await.json();
    let at = events["events"].as_array().unwrap().last().unwrap()["seq"].as_u64().unwrap();
    assert_eq!(contents(&host, &format!("at={at}")).await.len(), 2);
    let forgotten = host.post("/forget", &json!({ "entry": gone }).to_string()).await;
    assert_eq!(forgotten.status, 200, "{forgotten:?}");
    let refused = host.get(&format!("/entries?at={at}")).await;
    assert_eq!(refused.status, 410, "{refused:?}");
    assert_eq!(contents(&host, &format!("at={}", at + 1)).await, ["The train."]);
    assert_eq!(contents(&host, "rank=relevance&query=train").await, ["The train."]);
    let ahead = host.get(&format!("/entries?at={}", at + 2)).await;
    assert_eq!(ahead.code(), "400 validation_error");
    host.stop().await;
}

/// What a search under a key finds, and whether that was answered before.
async fn search(host: &Host, key: &str) -> (bool, bool) {
    let headers = [("Idempotency-Key", key)];
    let body = json!({"query": "ferry"}).to_string();
    let answer = host.call("POST", "/search", &headers, Some(&body)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    (answer.text.contains("The ferry."), answer.header("openwop-idempotent-replay").is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_expired_is_not_found_by_an_earlier_answer() {
    let (_dir, host, clock) = timed().await;
    put(&host, json!({"content": "The ferry.", "expiresAt": "2026-01-01T00:01:00Z"})).await;
    assert_eq!(search(&host, "k").await, (true, false));
    clock.0.store(START + 59_999, Ordering::SeqCst);
    assert_eq!(search(&host, "k").await, (true, true));
    clock.0.store(START + 60_000, Ordering::SeqCst);
    assert_eq!(search(&host, "k").await, (false, false));
    assert_eq!(search(&host, "k").await, (false, true));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_process_took_away_is_not_found_by_an_earlier_answer() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path()).await;
    let other = Host::start(dir.path()).await;
    let turns = json!({"turns": [{"role": "user", "content": "The ferry."}]}).to_string();
    host.post("/sessions/s/turns", &turns).await;
    assert_eq!(search(&host, "k").await, (true, false));
    assert_eq!(search(&host, "k").await, (true, true));
    assert_eq!(other.post("/forget", r#"{"session":"s"}"#).await.status, 200);
    assert_eq!(search(&host, "k").await, (false, false));

    let id = put(&host, json!({"content": "The ferry."})).await["id"].as_str().unwrap().to_owned();
    assert_eq!(search(&host, "k2").await, (true, false));
    assert_eq!(search(&host, "k2").await, (true, true));
    let deleted = other.call("DELETE", &format!("/entries/{id}"), &[], None).await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    assert_eq!(search(&host, "k2").await, (false, false));
    host.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_consolidation_the_first_are_named_and_all_are_counted() {
    let (_dir, host, _clock) = timed().await;
    for _ in 0..130 {
        put(&host, json!({"content": "Plums are ripe."})).await;
    }
    let done = host.post("/consolidate", "{}").await;
    assert_eq!(done.status, 200, "{done:?}");
    let done = done.json();
    assert_eq!(done["mergedIds"].as_array().unwrap().len(), 100);
    let counts = ["inputCount", "outputCount", "mergedCount", "writtenCount", "complete"];
    let told = counts.map(|name| done[name].clone());
    assert_eq!(json!(told), json!([130, 1, 129, 0, true]));
    let again = host.post("/consolidate", "{}").await.json();
    assert_eq!(json!(counts.map(|name| again[name].clone())), json!([1, 1, 0, 0, true]));
    host.stop().await;
}
