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
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_never_shows_a_secret() {
    let (_dir, host) = fresh().await;
    let registered = ["saxifrage", "7042", "kestrel"].join("-");
    let tenant = icecore::Tenant::new("default").unwrap();
    let value = zeroize::Zeroizing::new(registered.clone());
    host.memory.add_secret(&tenant, "db", value, false).await.unwrap();
    for secret in [format!("ghp_{}", "a1B2".repeat(9)), registered, host.key.clone()] {
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

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_request_gets_the_envelope_too() {
    let (_dir, host) = fresh().await;
    let check = async |bytes: &[u8], expected: &str| {
        let answer = host.raw(bytes).await;
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        assert_eq!(answer.code(), expected, "{shown}");
        assert!(answer.header("x-request-id").is_some(), "{shown}");
        assert_eq!(answer.header("connection"), Some("close"), "{shown}");
    };
    check(b"nonsense\r\n\r\n", "400 validation_error").await;
    check(b"GET /healthz HTTP/9.9\r\n\r\n", "400 validation_error").await;
    check(b"GET /\0 HTTP/1.1\r\n\r\n", "400 validation_error").await;
    check(b"GET / HTTP/1.1\r\nbad header: x\r\n\r\n", "400 validation_error").await;
    check(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400 validation_error").await;
    let length = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n";
    check(length, "400 validation_error").await;
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101));
    check(many.as_bytes(), "431 headers_too_large").await;
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(200_000));
    check(long.as_bytes(), "431 headers_too_large").await;
    // An answer of ours on the same connection is left as it is.
    let mut two = host.request("GET", "/healthz", &[("Connection", "keep-alive")], b"");
    two.extend(b"nonsense\r\n\r\n");
    let (address, expected) = (host.address, [r#"{"status":"ok"}"#, "validation_error"]);
    let text = apart(move || {
        use std::io::{Read, Write};
        let mut stream = connect(address);
        stream.write_all(&two).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    })
    .await;
    assert!(expected.iter().all(|part| text.matches(part).count() == 1), "{text}");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_come_in_many_ways() {
    use std::io::{Read, Write};
    let (_dir, host) = fresh().await;
    let path = format!("{API}/context");
    let body = r#"{"budget":10}"#;
    let chunked = [("Content-Length", ""), ("Transfer-Encoding", "chunked")];
    let pieces: String = body.chars().map(|c| format!("1\r\n{c}\r\n")).collect();
    let whole = format!("{pieces}0\r\n\r\n");
    let request = host.request("POST", &path, &chunked, whole.as_bytes());
    assert_eq!(host.raw(&request).await.status, 200);
    // Broken off, or no chunk at all.
    for broken in ["zz\r\n", "5\r\nab"] {
        let request = host.request("POST", &path, &chunked, broken.as_bytes());
        let address = host.address;
        let answer = apart(move || {
            let mut stream = connect(address);
            stream.write_all(&request).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            read_answer(stream)
        });
        assert_eq!(answer.await.code(), "400 validation_error", "{broken}");
    }
    // Two lengths: no second request hides in the first.
    let hidden = "GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let both = [("Transfer-Encoding", "chunked"), ("Content-Length", "4"), ("Connection", "")];
    let smuggled = format!("{whole}{hidden}");
    let request = host.request("POST", &path, &both, smuggled.as_bytes());
    let differing = [("Content-Length", "13\r\nContent-Length: 14"), ("Connection", "close")];
    let answer = host.raw(&host.request("POST", &path, &differing, body.as_bytes())).await;
    assert_eq!(answer.code(), "400 validation_error");
    let address = host.address;
    let text = apart(move || {
        let mut stream = connect(address);
        stream.write_all(&request).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    });
    let text = text.await;
    assert!(text.starts_with("HTTP/1.1 200") || text.starts_with("HTTP/1.1 400"), "{text}");
    // Pipelined requests are answered in their order.
    let mut three = Vec::new();
    for path in ["/healthz", "/nothing", "/readyz"] {
        let last = if path == "/readyz" { "close" } else { "keep-alive" };
        three.extend(host.request("GET", path, &[("Connection", last)], b""));
    }
    let text = apart(move || {
        let mut stream = connect(address);
        stream.write_all(&three).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    });
    let text = text.await;
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    assert!(at(r#""ok""#) < at("not_found") && at("not_found") < at(r#""ready""#));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_not_asked_for_before_it_is_wanted() {
    let (_dir, host) = fresh().await;
    let path = format!("{API}/sessions/s/turns");
    let check = async |headers: &[(&str, &str)], expected: &str| {
        let mut all = vec![("Expect", "100-continue")];
        all.extend(headers);
        // `read_answer` would find the `100 Continue` first.
        let answer = host.raw(&host.request("POST", &path, &all, b"")).await;
        assert_eq!(answer.code(), expected);
    };
    check(&[("Authorization", ""), ("Content-Length", "8000000")], "401 unauthenticated").await;
    check(&[("Content-Length", "9000000")], "413 body_too_large").await;
    check(&[("Content-Length", "9"), ("Content-Type", "text/plain")], "415 unsupported_media_type")
        .await;
    let reader = host.key_of("default", icecore_server::Role::Reader).await;
    let reader = format!("Bearer {reader}");
    check(&[("Content-Length", "9"), ("Authorization", &reader)], "403 forbidden").await;
    // A stranger who sends it all the same still hears why not.
    let strange = host.request("POST", &path, &[("Authorization", "")], &vec![b' '; 8 << 20]);
    assert_eq!(host.raw(&strange).await.code(), "401 unauthenticated");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_ways_to_ask_are_named() {
    let (_dir, host) = fresh().await;
    let nothing = host.get("/nothing").await;
    assert_eq!(nothing.code(), "404 not_found");
    let wrong = host.call("DELETE", "/sessions", &[], None).await;
    assert_eq!(wrong.code(), "405 method_not_allowed");
    assert_eq!(wrong.header("allow"), Some("GET,HEAD"));
    for path in ["/sessions/%ff/turns", "/sessions/%zz/turns", "/stats?memoryRef=%ff"] {
        let answer = host.get(path).await;
        assert!((400..500).contains(&answer.status), "{path}: {answer:?}");
        answer.code();
    }
    for path in ["/sessions/..%2f..%2fetc/turns", "/../../etc/passwd", "/sessions/%00/turns"] {
        let answer = host.get(path).await;
        assert!((400..500).contains(&answer.status), "{path}: {answer:?}");
    }
    // A browser's question before a request from elsewhere, and from here.
    let asks = ("Access-Control-Request-Method", "POST");
    let far =
        host.call("OPTIONS", "/forget", &[("Origin", "http://evil.example"), asks], None).await;
    assert_eq!(far.code(), "403 forbidden_origin");
    let near = host.call("OPTIONS", "/forget", &[asks], None).await;
    assert_eq!(near.code(), "405 method_not_allowed");
    let cross = host.call("GET", "/stats", &[("Sec-Fetch-Site", "cross-site")], None).await;
    assert_eq!(cross.code(), "403 forbidden_origin");
    for answer in [far, near, cross] {
        assert!(!answer.head.to_lowercase().contains("access-control"), "{}", answer.head);
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_during_a_write_leaves_nothing_half_done() {
    use std::io::Write;
    let (_dir, host) = fresh().await;
    let turns: Vec<_> =
        (0..200).map(|n| json!({"role":"user","content":format!("turn {n}")})).collect();
    let body = json!({ "turns": turns }).to_string();
    for n in 0..20 {
        let path = format!("{API}/sessions/s{n}/turns");
        let request = host.request("POST", &path, &[], body.as_bytes());
        let cut = request.len() - n * request.len() / 40;
        let address = host.address;
        apart(move || connect(address).write_all(&request[..cut]).unwrap()).await;
    }
    // What was sent whole is there; whatever is there is whole.
    let mut whole = false;
    for _ in 0..400 {
        let sessions = host.get("/sessions").await.json();
        for session in sessions["sessions"].as_array().unwrap() {
            assert_eq!(session["turns"], 200, "{session}");
            whole |= session["session"] == "s0";
        }
        if whole {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(whole);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_an_id() {
    let (_dir, host) = fresh().await;
    let given = [("X-Request-Id", "run-17.step-3")];
    let answer = host.call("GET", "/stats", &given, None).await;
    assert_eq!(answer.header("x-request-id"), Some("run-17.step-3"));
    let answer = host.call("GET", "/nothing", &given, None).await;
    assert_eq!(answer.header("x-request-id"), Some("run-17.step-3"));
    let made = host.get("/stats").await.header("x-request-id").unwrap().to_owned();
    assert_eq!(made.len(), 16);
    // A secret, of any kind or of the tenant, is no id.
    let registered = ["saxifrage", "7042", "kestrel"].join("-");
    let tenant = icecore::Tenant::new("default").unwrap();
    let value = zeroize::Zeroizing::new(registered.clone());
    host.memory.add_secret(&tenant, "db", value, false).await.unwrap();
    for secret in [format!("ghp_{}", "a1B2".repeat(9)), registered] {
        let answer = host.call("GET", "/stats", &[("X-Request-Id", &secret)], None).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-request-id").unwrap().len(), 16, "{answer:?}");
    }
    host.stop().await;
}
