//! Files as runs and other owners see them (RFC 0059). The rest is in
//! `../workspace.rs`.

use serde_json::{Value, json};

use super::shape::{FILE, fits};
use super::suite::{FILES, NOOP, Suite, each, lacks, list, percent, text};
use crate::client::Answer;

#[tokio::test(flavor = "multi_thread")]
async fn workspace_behavior_crud() {
    let suite = Suite::begin().await;
    let made = suite.file("PUT", "check/crud.md", "the first text").await;
    assert_eq!((made.status, &made.json()["version"]), (200, &json!(1)));
    fits(&FILE, &made.json());
    assert!(made.json()["etag"].is_string(), "{made:?}");
    let read = suite.file("GET", "check/crud.md", "").await.json();
    assert_eq!(read["content"], "the first text");
    let rows = list(&suite.get(FILES).await.json(), "files");
    let row = rows.iter().find(|row| row["path"] == "check/crud.md").unwrap();
    assert_eq!(row.get("content"), None);
    let gone = suite.file("DELETE", "check/crud.md", "").await;
    assert!((200..300).contains(&gone.status), "{gone:?}");
    assert_eq!(suite.file("GET", "check/crud.md", "").await.code(), "404 not_found");
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workspace_if_match_rules() {
    let suite = Suite::begin().await;
    let put = async |content: &str, etag: &str| {
        let body = json!({ "content": content }).to_string();
        suite.host.ask("PUT", &format!("{FILES}/match.md"), &[("If-Match", etag)], &body).await
    };
    let conflict = |answer: Answer, current: &Value| {
        assert_eq!(answer.code(), "409 workspace_conflict");
        assert_eq!(&answer.json()["details"]["currentVersion"], current);
    };
    conflict(put("ghost", "\"nobody\"").await, &json!(0));
    assert_eq!(suite.file("GET", "match.md", "").await.code(), "404 not_found");
    let first = suite.file("PUT", "match.md", "one").await.json();
    conflict(put("lost", "\"nobody\"").await, &first["version"]);
    let second = put("two", text(&first, "etag")).await.json();
    assert_eq!((&first["version"], &second["version"]), (&json!(1), &json!(2)));
    assert_ne!(second["etag"], first["etag"]);
    conflict(put("late", text(&first, "etag")).await, &second["version"]);
    assert_eq!(suite.file("GET", "match.md", "").await.json(), second);
    assert_eq!(second["content"], "two");
    suite.end().await;
}

/// The files that a run shows, like `a.md 1`.
async fn seen(suite: &Suite, run: &str) -> Vec<String> {
    let run = suite.get(&format!("/v1/runs/{run}")).await.json();
    let rows = list(&run, "workspace");
    rows.iter().map(|row| format!("{} {}", text(row, "path"), row["version"])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn workspace_behavior_run_snapshot() {
    let suite = Suite::begin().await;
    suite.file("PUT", "check/snapshot.md", "seen by the run").await;
    let created = suite.post("/v1/runs", json!({ "workflowId": NOOP })).await;
    assert_eq!(created.status, 201);
    // At once, whether it has ended or not.
    let files = seen(&suite, text(&created.json(), "runId")).await;
    assert_eq!(files, ["check/snapshot.md 1"]);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workspace_run_snapshot_is_fixed() {
    let suite = Suite::begin().await;
    suite.file("PUT", "check/fixed.md", "as the run began").await;
    let run = suite.run(NOOP, json!({})).await;
    suite.file("PUT", "check/fixed.md", "as the run had ended").await;
    suite.file("PUT", "check/later.md", "unknown to the run").await;
    assert_eq!(seen(&suite, text(&run, "runId")).await, ["check/fixed.md 1"]);
    suite.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workspace_cross_tenant_isolation() {
    let suite = Suite::begin().await;
    let words = "for owner A alone";
    let operate = async |tenant: &str, workspace: &str, op: &str, content: Option<&str>| {
        let mut body = json!({"tenant": tenant, "workspace": workspace, "op": op});
        if op != "list" {
            body["path"] = json!("isolated.md");
        }
        if let Some(content) = content {
            body["content"] = json!(content);
        }
        suite.post("/v1/host/sample/workspace/op", body).await
    };
    assert_eq!(operate("a", "ws-a", "put", Some(words)).await.status, 200);
    for (tenant, workspace) in [("a", "ws-b"), ("b", "ws-a")] {
        let hidden = operate(tenant, workspace, "get", None).await;
        assert_eq!(hidden.code(), "404 not_found");
        lacks(&hidden, &[words]);
        let listed = operate(tenant, workspace, "list", None).await;
        assert_eq!(listed.json(), json!({"files": []}));
        let deleted = operate(tenant, workspace, "delete", None).await;
        assert_eq!(deleted.code(), "404 not_found");
    }
    assert_eq!(operate("a", "ws-a", "get", None).await.json()["content"], words);
    // The owners of the seam are not those who have keys.
    assert_eq!(each(&list(&suite.get(FILES).await.json(), "files"), "path"), [""; 0]);
    suite.end().await;
}

/// An encoded slash and a plain one lead to the same file.
#[tokio::test(flavor = "multi_thread")]
async fn workspace_file_shape() {
    let suite = Suite::begin().await;
    let body = json!({"content": "{}", "contentType": "application/json"}).to_string();
    let path = format!("{FILES}/{}", percent("check/shape.json"));
    let put = suite.host.ask("PUT", &path, &[], &body).await.json();
    fits(&FILE, &put);
    assert_eq!(put["contentType"], "application/json");
    assert_eq!(suite.get(&path).await.json(), put);
    assert_eq!(suite.get(&format!("{FILES}/check/shape.json")).await.json(), put);
    let listed = suite.get(&format!("{FILES}?prefix=check%2Fshape")).await.json();
    let mut row = put.clone();
    row.as_object_mut().unwrap().remove("content");
    assert_eq!(listed, json!({ "files": [row] }));
    suite.file("DELETE", "check/shape.json", "").await;
    assert_eq!(suite.get(FILES).await.json(), json!({"files": []}));
    suite.end().await;
}
