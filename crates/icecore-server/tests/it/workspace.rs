//! Workspace files over the wire.

use icecore::Memory;
use icecore_host::HostSettings;
use icecore_host::settings::WorkspaceSettings;
use icecore_server::Role;
use serde_json::{Value, json};

use crate::client::{Answer, Host, fresh};

const FILES: &str = "/v1/host/workspace/files";

async fn put(host: &Host, path: &str, content: &str, headers: &[(&str, &str)]) -> Answer {
    let body = json!({ "content": content }).to_string();
    host.ask("PUT", &format!("{FILES}/{path}"), headers, &body).await
}

async fn get(host: &Host, path: &str, headers: &[(&str, &str)]) -> Answer {
    host.ask("GET", &format!("{FILES}/{path}"), headers, "").await
}

async fn delete(host: &Host, path: &str, headers: &[(&str, &str)]) -> Answer {
    host.ask("DELETE", &format!("{FILES}/{path}"), headers, "").await
}

async fn paths(host: &Host, query: &str) -> Vec<String> {
    let listed = host.ask("GET", &format!("{FILES}{query}"), &[], "").await.json();
    let rows = listed["files"].as_array().unwrap().iter();
    rows.map(|row| row["path"].as_str().unwrap().to_owned()).collect()
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_comes_back_as_it_was_put() {
    let (_dir, host) = fresh().await;
    let body = json!({"content": "{\"a\": \"ü\u{0}\"}", "contentType": "application/json"});
    let path = format!("{FILES}/behavior%2FCRUD.md");
    let made = host.ask("PUT", &path, &[], &body.to_string()).await;
    assert_eq!(made.status, 200);
    let file = made.json();
    assert_eq!(keys(&file), ["content", "contentType", "etag", "path", "updatedAt", "version"]);
    assert_eq!((&file["content"], &file["version"]), (&body["content"], &json!(1)));
    assert_eq!(file["path"], "behavior/CRUD.md");
    assert_eq!(file["contentType"], "application/json");
    assert!(file["updatedAt"].as_str().unwrap().ends_with('Z'));
    assert_eq!(made.header("etag"), file["etag"].as_str());
    // Plain slashes lead to the same file.
    for path in ["behavior/CRUD.md", "behavior%2fCRUD.md", "behavior/CRUD.md?version=1"] {
        let read = get(&host, path, &[]).await;
        assert_eq!((read.status, read.json()), (200, file.clone()), "{path}");
        assert_eq!(read.header("etag"), file["etag"].as_str());
    }
    let listed = host.ask("GET", &format!("{FILES}?prefix=behavior%2FCR"), &[], "").await.json();
    let row = &listed["files"][0];
    assert_eq!(keys(row), ["contentType", "etag", "path", "updatedAt", "version"]);
    assert_eq!(row["etag"], file["etag"]);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_kept_and_a_deleted_file_is_gone() {
    let (_dir, host) = fresh().await;
    for (at, content) in ["old", "new"].into_iter().enumerate() {
        assert_eq!(put(&host, "a.md", content, &[]).await.json()["version"], at as u64 + 1);
    }
    assert_eq!(get(&host, "a.md?version=1", &[]).await.json()["content"], "old");
    assert_eq!(get(&host, "a.md?version=2", &[]).await.json()["content"], "new");
    for version in ["3", "0", "9007199254740991"] {
        let missing = get(&host, &format!("a.md?version={version}"), &[]).await;
        assert_eq!(missing.code(), "404 not_found");
    }
    for version in ["x", "-1", "1.0", "", "1&version=2"] {
        let wrong = get(&host, &format!("a.md?version={version}"), &[]).await;
        assert_eq!(wrong.code(), "400 validation_error", "{version}");
    }
    put(&host, "b/c.md", "x", &[]).await;
    assert_eq!(paths(&host, "").await, ["a.md", "b/c.md"]);
    assert_eq!(paths(&host, "?prefix=b/").await, ["b/c.md"]);
    assert_eq!(paths(&host, "?prefix=%25").await, [""; 0]);
    let gone = delete(&host, "a.md", &[]).await;
    assert_eq!((gone.status, gone.text.as_str()), (204, ""));
    for path in ["a.md", "a.md?version=1", "a.md?version=3"] {
        assert_eq!(get(&host, path, &[]).await.code(), "404 not_found", "{path}");
    }
    assert_eq!(delete(&host, "a.md", &[]).await.code(), "404 not_found");
    assert_eq!(paths(&host, "").await, ["b/c.md"]);
    assert_eq!(put(&host, "a.md", "anew", &[]).await.json()["version"], 1);
    let events = host.get("/events").await.json();
    let told: Vec<&Value> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["type"] == "workspace.updated")
        .map(|event| &event["payload"])
        .collect();
    let payload = |path: &str, version: u64| json!({"path": path, "version": version});
    let expected =
        [payload("a.md", 1), payload("a.md", 2), payload("b/c.md", 1), payload("a.md", 3)];
    assert_eq!(told[..4], expected.iter().collect::<Vec<_>>());
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_writer_is_told_so() {
    let (_dir, host) = fresh().await;
    let conflict = |answer: Answer, current: u64| {
        assert_eq!(answer.code(), "409 workspace_conflict");
        assert_eq!(answer.json()["details"], json!({ "currentVersion": current }));
    };
    for tag in ["\"nobody\"", "*"] {
        conflict(put(&host, "a.md", "ghost", &[("If-Match", tag)]).await, 0);
    }
    assert_eq!(get(&host, "a.md", &[]).await.status, 404);
    let first = put(&host, "a.md", "one", &[("If-None-Match", "*")]).await.json();
    conflict(put(&host, "a.md", "twice", &[("If-None-Match", "*")]).await, 1);
    let etag = first["etag"].as_str().unwrap();
    let bare = etag.trim_matches('"');
    for tag in ["\"nobody\"", bare, &format!("W/{etag}")] {
        conflict(put(&host, "a.md", "lost", &[("If-Match", tag)]).await, 1);
    }
    let both = format!("\"x\", {etag}");
    let second = put(&host, "a.md", "two", &[("If-Match", &both)]).await;
    assert_eq!((second.status, &second.json()["version"]), (200, &json!(2)));
    conflict(put(&host, "a.md", "late", &[("If-Match", etag)]).await, 2);
    conflict(delete(&host, "a.md", &[("If-Match", etag)]).await, 2);
    assert_eq!(put(&host, "a.md", "three", &[("If-Match", "*")]).await.json()["version"], 3);
    let read = get(&host, "a.md", &[]).await;
    let etag = read.header("etag").unwrap();
    let same = get(&host, "a.md", &[("If-None-Match", etag)]).await;
    assert_eq!((same.status, same.header("etag")), (304, Some(etag)));
    assert_eq!(get(&host, "a.md", &[("If-None-Match", "\"x\"")]).await.status, 200);
    assert_eq!(delete(&host, "a.md", &[("If-Match", etag)]).await.status, 204);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_writers_with_one_tag_one_wins() {
    let (_dir, host) = fresh().await;
    let mut etag = put(&host, "a.md", "start", &[]).await.header("etag").unwrap().to_owned();
    for round in 2..6 {
        let headers = [("If-Match", etag.as_str())];
        let write = |who: &'static str| put(&host, "a.md", who, &headers);
        let (a, b, c) = tokio::join!(write("a"), write("b"), write("c"));
        let mut won: Vec<Answer> =
            [a, b, c].into_iter().filter(|answer| answer.status == 200).collect();
        assert_eq!((won.len(), &won[0].json()["version"]), (1, &json!(round)));
        etag = won.remove(0).header("etag").unwrap().to_owned();
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_write_is_one_version() {
    let (dir, host) = fresh().await;
    let key = [("Idempotency-Key", "k1")];
    let first = put(&host, "a.md", "text", &key).await;
    let again = put(&host, "a.md", "text", &key).await;
    let is_replay = |again: &Answer| {
        assert_eq!((again.status, again.json()), (200, first.json()));
        assert_eq!(again.header("openwop-idempotent-replay"), Some("true"));
        assert_eq!(again.header("etag"), first.header("etag"));
    };
    is_replay(&again);
    assert_eq!(put(&host, "a.md", "other", &key).await.code(), "409 idempotency_key_mismatch");
    // The path is part of the request, and so is what must be there.
    assert_eq!(put(&host, "b.md", "text", &key).await.code(), "409 idempotency_key_mismatch");
    for condition in ["If-Match", "If-None-Match"] {
        let headers = [key[0], (condition, "*")];
        let other = put(&host, "a.md", "text", &headers).await;
        assert_eq!(other.code(), "409 idempotency_key_mismatch", "{condition}");
    }
    // Neither a restart nor an erasure makes it another version.
    host.stop().await;
    let host = Host::start(dir.path()).await;
    is_replay(&put(&host, "a.md", "text", &key).await);
    host.post("/sessions/s/turns", r#"{"turns":[{"role":"user","content":"a"}]}"#).await;
    assert_eq!(host.post("/forget", r#"{"session":"s"}"#).await.status, 200);
    is_replay(&put(&host, "a.md", "text", &key).await);
    assert_eq!(get(&host, "a.md", &[]).await.json()["version"], 1);
    host.stop().await;
}

/// Files below a folder that hold a text.
fn holding(dir: &std::path::Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for path in std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(holding(&path, text));
        } else if let Ok(bytes) = std::fs::read(&path)
            && bytes.windows(text.len()).any(|window| window == text.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_file_leaves_the_disk() {
    if crate::place::is_on_a_server() {
        eprintln!("skipped: the files of a PostgreSQL are its own");
        return;
    }
    let (dir, host) = fresh().await;
    let text = ["snow", "leopard", "77"].concat();
    put(&host, "kept.md", "other", &[]).await;
    for (path, times) in [("small.md", 1), ("large.md", 2_000)] {
        put(&host, path, &text.repeat(times), &[("Idempotency-Key", path)]).await;
    }
    assert!(!holding(dir.path(), &text).is_empty());
    for path in ["small.md", "large.md"] {
        assert_eq!(delete(&host, path, &[]).await.status, 204);
    }
    // In the background, while the host goes on.
    let is_gone = async {
        while !holding(dir.path(), &text).is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(30), is_gone).await;
    assert!(waited.is_ok(), "{:?}", holding(dir.path(), &text));
    assert_eq!(get(&host, "kept.md", &[]).await.json()["content"], "other");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_do_not_lead_out() {
    let (_dir, host) = fresh().await;
    put(&host, "a.md", "text", &[]).await;
    let long = "a".repeat(257);
    for path in [
        "..%2Fescape.md",
        "a%2F..%2Fescape.md",
        "..",
        "%2Fetc%2Fpasswd",
        ".hidden",
        "nul%00.md",
        "sp%20ace.md",
        "a%5C..%5Cescape.md",
        "%252e%252e%2Fescape.md",
        "../escape.md",
        "%2e%2e/escape.md",
        "a/../../escape.md",
        "..%5cescape.md",
        "a//b.md",
        "a/",
        "%FF.md",
        long.as_str(),
    ] {
        let refused = put(&host, path, "out", &[]).await;
        assert_eq!(refused.code(), "400 validation_error", "{path}");
        assert!(!refused.text.contains("escape"), "{}", refused.text);
        assert_eq!(get(&host, path, &[]).await.code(), "400 validation_error", "{path}");
        assert_eq!(delete(&host, path, &[]).await.code(), "400 validation_error", "{path}");
    }
    assert_eq!(paths(&host, "").await, ["a.md"]);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_bodies_are_refused() {
    let (_dir, host) = fresh().await;
    let path = format!("{FILES}/a.md");
    for body in [
        "",
        "{\"open\": ",
        "[]",
        "\"text\"",
        "{}",
        r#"{"content":7}"#,
        r#"{"content":null}"#,
        r#"{"content":"x","contentType":7}"#,
        r#"{"content":"x","contentType":"no type"}"#,
        r#"{"content":"x","version":3}"#,
        r#"{"content":"\ud800"}"#,
    ] {
        let refused = host.ask("PUT", &path, &[], body).await;
        assert_eq!(refused.code(), "400 validation_error", "{body}");
    }
    let bytes = host.request("PUT", &path, &[], b"\xff\xfe");
    assert_eq!(host.raw(&bytes).await.code(), "400 validation_error");
    let headers = [("Content-Type", "text/plain")];
    let typed = host.ask("PUT", &path, &headers, r#"{"content":"x"}"#).await;
    assert_eq!(typed.code(), "415 unsupported_media_type");
    let patched = host.ask("PATCH", &path, &[], "").await;
    assert_eq!(patched.code(), "405 method_not_allowed");
    assert_eq!(paths(&host, "").await, [""; 0]);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_named() {
    let (_dir, host) = fresh().await;
    let most = 1 << 20;
    assert_eq!(put(&host, "a.md", &"x".repeat(most), &[]).await.status, 200);
    let large = put(&host, "big.md", &"x".repeat(most + 1), &[]).await;
    assert_eq!(large.code(), "413 workspace_too_large");
    let details = json!({"limit": "workspace.file_bytes", "limitBytes": most, "bytes": most + 1});
    assert_eq!(large.json()["details"], details);
    assert_eq!(get(&host, "big.md", &[]).await.code(), "404 not_found");
    host.stop().await;

    let dir = tempfile::tempdir().unwrap();
    let limits = WorkspaceSettings { files: 1, ..WorkspaceSettings::default() };
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let settings = HostSettings { workspace: limits, ..HostSettings::default() };
    let host = Host::behaving(memory, dir.path(), settings).await;
    assert_eq!(put(&host, "a.md", "x", &[]).await.status, 200);
    let crowded = put(&host, "b.md", "x", &[]).await;
    assert_eq!(crowded.code(), "413 workspace_too_large");
    assert_eq!(crowded.json()["details"], json!({"limit": "workspace.files", "most": 1}));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_read_and_tenants_are_apart() {
    let (_dir, host) = fresh().await;
    put(&host, "mine.md", "for the owner alone", &[]).await;
    let bearer = async |tenant: &str, role| format!("Bearer {}", host.key_of(tenant, role).await);
    let reader = bearer("default", Role::Reader).await;
    let reader = [("Authorization", reader.as_str())];
    assert_eq!(get(&host, "mine.md", &reader).await.status, 200);
    assert_eq!(host.ask("GET", FILES, &reader, "").await.status, 200);
    assert_eq!(put(&host, "mine.md", "no", &reader).await.code(), "403 forbidden");
    assert_eq!(delete(&host, "mine.md", &reader).await.code(), "403 forbidden");
    let other = bearer("other", Role::Admin).await;
    let other = [("Authorization", other.as_str())];
    let hidden = get(&host, "mine.md", &other).await;
    assert_eq!(hidden.code(), "404 not_found");
    assert!(!hidden.text.contains("alone"));
    assert_eq!(host.ask("GET", FILES, &other, "").await.json(), json!({"files": []}));
    assert_eq!(delete(&host, "mine.md", &other).await.code(), "404 not_found");
    let tagged = [other[0], ("If-Match", "*")];
    let conflict = put(&host, "mine.md", "x", &tagged).await;
    assert_eq!(conflict.json()["details"], json!({"currentVersion": 0}));
    assert_eq!(put(&host, "mine.md", "theirs", &other).await.json()["version"], 1);
    assert_eq!(get(&host, "mine.md", &[]).await.json()["content"], "for the owner alone");
    let nobody = [("Authorization", "")];
    assert_eq!(put(&host, "mine.md", "x", &nobody).await.code(), "401 unauthenticated");
    assert_eq!(get(&host, "mine.md", &nobody).await.code(), "401 unauthenticated");
    host.stop().await;
}
