//! What no well-behaved client sends.

use serde_json::json;

use crate::client::{API, apart, connect, fresh, read_answer};

#[tokio::test(flavor = "multi_thread")]
async fn bad_bodies_are_refused_with_a_reason() {
    let (_dir, host) = fresh().await;
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let deep = |field: &str| {
        format!(r#"{{"turns":[{{"role":"user","content":"x","{field}":{}}}]}}"#, nested(200_000))
    };
    let check = async |body: &str, reason: &str| {
        let answer = host.post("/sessions/s/turns", body).await;
        let shown: String = body.chars().take(60).collect();
        assert_eq!(answer.code(), "400 validation_error", "{shown}");
        assert!(answer.text.contains(reason), "{shown}: {}", answer.text);
    };
    check("", "not a JSON object").await;
    check("[]", "not a JSON object").await;
    check("{", "not a JSON object").await;
    check(r#"{"turns":[]} x"#, "not a JSON object").await;
    check("{}", "field `turns` is missing").await;
    check(r#"{"turns":{}}"#, "field `turns` must be an array").await;
    check(r#"{"turns":[1]}"#, "turns[0]: not a JSON object").await;
    check(r#"{"turns":[{"content":"x"}]}"#, "turns[0]: field `role` is missing").await;
    check(r#"{"turns":[{"role":"","content":"x"}]}"#, "turns[0]: `role`").await;
    check(r#"{"turns":[{"role":"u"}]}"#, "turns[0]: field `content` is missing").await;
    check(r#"{"turns":[{"role":"u","content":7}]}"#, "field `content` must be").await;
    check(r#"{"turns":[{"role":"u","content":"","timestamp":"soon"}]}"#, "timestamp").await;
    check(r#"{"turns":[{"role":"u","content":"","parentIds":["no"]}]}"#, "parent `no`").await;
    check(r#"{"turns":[{"role":"u","content":""}],"insist":1}"#, "field `insist`").await;
    check(r#"{"turns":[{"role":"u","content":""}],"memoryRef":1}"#, "field `memoryRef`").await;
    check(r#"{"turns":[{"role":"u","content":"\ud800"}]}"#, "field `content`").await;
    check(r#"{"turns":[{"role":"u","content":"","role":"v"}]}"#, "twice").await;
    check(&deep("extra"), "deeper than 127").await;
    check(&deep("toolCalls"), "deeper than 127").await;
    check(&nested(200_000), "not a JSON object").await;
    check(&format!(r#"{{"turns":{}}}"#, nested(200_000)), "turns[0]").await;
    assert_eq!(host.get("/sessions").await.json(), json!({"sessions":[]}));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_text() {
    let (_dir, host) = fresh().await;
    let path = format!("{API}/sessions/s/turns");
    let invalid =
        host.request("POST", &path, &[], b"{\"turns\":[{\"role\":\"u\",\"content\":\"\xff\"}]}");
    let answer = host.raw(&invalid).await;
    assert_eq!(answer.code(), "400 validation_error");
    assert!(answer.text.contains("not valid UTF-8 at byte 34"), "{}", answer.text);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strange_text_is_kept() {
    let (_dir, host) = fresh().await;
    let body = r#"{"turns":[{"role":"u","content":"\u0000\u001b[31m\u2028","x":"\ud800"},{"role":"u","content":[{"text":"\udfff"}]}]}"#;
    assert_eq!(host.post("/sessions/s/turns", body).await.status, 201);
    let found = host.get("/sessions/s/turns").await;
    assert!(found.text.contains(r#""content":"\u0000\u001b[31m"#), "{}", found.text);
    assert!(found.text.contains(r#""x":"\ud800""#), "{}", found.text);
    assert!(found.text.contains(r#"[{"text":"\udfff"}]"#), "{}", found.text);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_type_of_a_body_must_be_json() {
    let (_dir, host) = fresh().await;
    let body = r#"{"turns":[{"role":"user","content":"x"}]}"#;
    let check = async |headers: &[(&str, &str)], expected: &str| {
        let answer = host.call("POST", "/sessions/s/turns", headers, Some(body)).await;
        let found = if answer.status == 201 { "201".to_owned() } else { answer.code() };
        assert_eq!(found, expected, "{headers:?}");
    };
    check(&[("Content-Type", "application/json; charset=utf-8")], "201").await;
    check(&[("Content-Type", "Application/JSON")], "201").await;
    check(&[("Content-Type", "")], "415 unsupported_media_type").await;
    check(&[("Content-Type", "text/plain")], "415 unsupported_media_type").await;
    check(&[("Content-Type", "application/jsonx")], "415 unsupported_media_type").await;
    check(&[("Content-Encoding", "gzip")], "415 unsupported_media_type").await;
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_breaks_off_does_nothing() {
    use std::io::Write;
    let (_dir, host) = fresh().await;
    let path = format!("{API}/sessions/s/turns");
    let body = br#"{"turns":[{"role":"user","content":"x"}]}"#;
    let request = host.request("POST", &path, &[("Content-Length", "500")], body);
    let address = host.address;
    let answer = apart(move || {
        let mut stream = connect(address);
        stream.write_all(&request).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        read_answer(stream)
    })
    .await;
    assert_eq!(answer.code(), "400 validation_error");
    assert_eq!(host.get("/sessions").await.json(), json!({"sessions":[]}));
    assert_eq!(host.raw(b"nonsense\r\n\r\n").await.status, 400);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_never_shows_a_secret() {
    let (_dir, host) = fresh().await;
    let registered = ["saxifrage", "7042", "kestrel"].join("-");
    let tenant = icecore::Tenant::new("default").unwrap();
    let value = zeroize::Zeroizing::new(registered.clone());
    host.memory.add_secret(&tenant, "db", value, false).await.unwrap();
    for secret in [format!("ghp_{}", "a1B2".repeat(9)), registered] {
        let check = async |method: &str, path: &str, body: &str| {
            let answer = host.call(method, path, &[], Some(body)).await;
            assert!(answer.status >= 400, "{method} {path}: {answer:?}");
            let told = format!("{}{}", answer.head, answer.text);
            assert!(!told.contains(&secret), "{method} {path}: {told}");
            let length: usize = answer.header("content-length").unwrap().parse().unwrap();
            assert_eq!(length, answer.text.len());
            answer
        };
        for turn in [
            format!(r#"{{"role":"u","content":"","timestamp":"{secret}"}}"#),
            format!(r#"{{"role":"u","content":"","{secret}":1,"{secret}":2}}"#),
            format!(r#"{{"role":"u","content":"","parentIds":["{secret}"]}}"#),
            format!(r#"{{"role":"u","content":"","id":"{secret}","parentIds":["{secret}"]}}"#),
        ] {
            let body = format!(r#"{{"turns":[{turn}]}}"#);
            let answer = check("POST", "/sessions/s/turns", &body).await;
            assert_eq!(answer.code(), "400 validation_error");
        }
        check("POST", "/forget", &format!(r#"{{"{secret}":1}}"#)).await;
        check("POST", "/search", &format!(r#"{{"query":"q","mode":"{secret}"}}"#)).await;
        check("GET", &format!("/sessions/{secret}/view"), "").await;
        check("GET", &format!("/sessions/{secret}/turns?memoryRef={secret}"), "").await;
        check("GET", &format!("/sessions/s/view?branch={secret}&view={secret}"), "").await;
        check("GET", &format!("/chunks/{secret}"), "").await;
        check("GET", &format!("/facts?kind={secret}"), "").await;
        check("GET", &format!("/{secret}?{secret}={secret}"), "").await;
        check("POST", &format!("/facts/{secret}/confirm"), "{}").await;
        // The same id with another body: its details name the id.
        let turn = |text: &str| {
            format!(r#"{{"turns":[{{"role":"u","id":"{secret}","content":"{text}"}}]}}"#)
        };
        assert_eq!(host.post("/sessions/t/turns", &turn("one")).await.status, 201);
        let answer = check("POST", "/sessions/t/turns", &turn("two")).await;
        assert_eq!(answer.code(), "409 turn_conflict");
        assert!(answer.json()["details"]["turnId"].as_str().unwrap().starts_with("[REDACTED:"));
    }
    host.stop().await;
}
