//! Each limit, and the error that names it.

use icecore_server::Limits;
use serde_json::json;

use crate::client::{Answer, Host, apart, connect, fresh, read_answer};

fn turn(content: &str) -> String {
    json!({"turns":[{"role":"user","content":content}]}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_is_at_most_a_mebibyte() {
    let (_dir, host) = fresh().await;
    let most = 1 << 20;
    assert_eq!(host.post("/sessions/s/turns", &turn(&"x".repeat(most))).await.status, 201);
    let refused = host.post("/sessions/s/turns", &turn(&"x".repeat(most + 1))).await;
    assert_eq!(refused.code(), "413 turn_too_large");
    let details = json!({"limitBytes": most, "bytes": most + 1, "index": 0});
    assert_eq!(refused.json()["details"], details);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_at_most_eight_mebibytes() {
    let (_dir, host) = fresh().await;
    let check = |answer: Answer| {
        assert_eq!(answer.code(), "413 body_too_large");
        assert_eq!(answer.json()["details"], json!({"limit":"body_bytes","limitBytes":8 << 20}));
    };
    check(host.post("/sessions/s/turns", &" ".repeat((8 << 20) + 1)).await);
    // Without a length, too.
    let size = 9 << 20;
    let headers = [("Content-Length", ""), ("Transfer-Encoding", "chunked")];
    let path = "/v1/host/icecore/sessions/s/turns";
    let mut request = host.request("POST", path, &headers, b"");
    request.extend(format!("{size:x}\r\n{}\r\n0\r\n\r\n", " ".repeat(size)).into_bytes());
    check(host.raw(&request).await);
    // At the limit it is read, and found to be no object.
    let whole = host.post("/sessions/s/turns", &" ".repeat(8 << 20)).await;
    assert_eq!(whole.code(), "400 validation_error");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_at_most_five_hundred() {
    let (_dir, host) = fresh().await;
    let turns: Vec<_> = (0..501).map(|_| json!({"role":"user","content":"ok"})).collect();
    let body = json!({ "turns": turns }).to_string();
    assert_eq!(host.post("/sessions/s/turns", &body).await.json()["lastSeq"], 501);
    let count =
        async |path: &str, key: &str| host.get(path).await.json()[key].as_array().unwrap().len();
    assert_eq!(count("/sessions/s/turns", "turns").await, 100);
    assert_eq!(count("/sessions/s/turns?limit=500", "turns").await, 500);
    assert_eq!(count("/sessions/s/turns?limit=500&after=500", "turns").await, 1);
    assert_eq!(count("/events?limit=500", "events").await, 500);
    for path in ["/sessions/s/turns", "/events", "/sessions", "/chunks"] {
        for limit in ["501", "0", "-1", "x", "1e2", ""] {
            let refused = host.get(&format!("{path}?limit={limit}")).await;
            assert_eq!(refused.code(), "400 validation_error", "{path} {limit}");
            assert!(refused.text.contains("`limit`"), "{}", refused.text);
        }
    }
    let twice = host.get("/events?limit=1&limit=2").await;
    assert_eq!(twice.code(), "400 validation_error");
    let huge = host.get("/sessions/s/turns?after=18446744073709551615").await;
    assert_eq!(huge.code(), "400 validation_error");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_adds_so_many_turns() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { turns_per_request: 2, ..Limits::default() };
    let host = Host::with(dir.path(), limits).await;
    let one = r#"{"role":"user","content":""}"#;
    let body = |count: usize| format!(r#"{{"turns":[{}]}}"#, vec![one; count].join(","));
    assert_eq!(host.post("/sessions/s/turns", &body(2)).await.status, 201);
    assert_eq!(host.post("/sessions/s/turns", &body(3)).await.code(), "413 too_many_turns");
    assert_eq!(host.post("/sessions/s/turns", &body(0)).await.code(), "400 validation_error");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_senders_and_crowds_are_turned_away() {
    use std::io::Write;
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { concurrent_requests: 1, request_seconds: 2, ..Limits::default() };
    let host = Host::with(dir.path(), limits).await;
    let headers = [("Content-Length", "100")];
    let slow = host.request("POST", "/v1/host/icecore/context", &headers, b"{");
    let address = host.address;
    let mut stream = apart(move || connect(address)).await;
    stream.write_all(&slow).unwrap();
    // The one place is taken as soon as the request's head has been read.
    let crowded = loop {
        let answer = host.get("/stats").await;
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!(crowded.code(), "503 overloaded");
    assert_eq!(crowded.header("retry-after"), Some("1"));
    let health = host.request("GET", "/healthz", &[], b"");
    assert_eq!(host.raw(&health).await.status, 200);
    let late = apart(move || read_answer(stream)).await;
    assert_eq!(late.code(), "503 request_timeout");
    assert_eq!(host.get("/stats").await.status, 200);
    host.stop().await;
}
