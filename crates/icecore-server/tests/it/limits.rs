//! Each limit, and the error that names it.

use icecore::Memory;
use icecore_host::HostSettings;
use icecore_server::Limits;
use serde_json::json;

use crate::client::{Answer, HandClock, Host, apart, connect, fresh};

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
async fn a_tenant_has_so_many_unfinished_runs() {
    let dir = tempfile::tempdir().unwrap();
    let clock = HandClock::new();
    let memory = crate::place::open(Memory::builder().clock(clock.clone()), dir.path()).await;
    let settings =
        HostSettings { conformance: true, runs_unfinished: 1, ..HostSettings::default() };
    let host = Host::behaving(memory, dir.path(), settings).await;
    // It waits for a clock that stands.
    let body = r#"{"workflowId":"conformance-agent-memory-ttl"}"#;
    let make = async || host.ask("POST", "/v1/runs", &[("Idempotency-Key", "k2")], body).await;
    let first = host.ask("POST", "/v1/runs", &[("Idempotency-Key", "k1")], body).await;
    assert_eq!(first.status, 201);
    let refused = make().await;
    assert_eq!(refused.code(), "429 too_many_runs");
    assert_eq!(refused.header("retry-after"), Some("1"));
    let details =
        json!({"limit": "runs_unfinished", "most": 1, "retryAfterMs": 1_000, "scope": "tenant"});
    assert_eq!(refused.json()["details"], details);
    // That it was refused is not remembered.
    let id = first.json()["runId"].as_str().unwrap().to_owned();
    assert_eq!(host.ask("POST", &format!("/v1/runs/{id}/cancel"), &[], "").await.status, 200);
    assert_eq!(make().await.status, 201);
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
async fn a_page_of_large_turns_ends_early() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { page_bytes: 250_000, answer_bytes: 450_000, ..Limits::default() };
    let host = Host::with(dir.path(), limits).await;
    for content in ["a", "b", "c", "d", "e"] {
        let added = host.post("/sessions/s/turns", &turn(&content.repeat(100_000))).await;
        assert_eq!(added.status, 201);
    }
    host.post("/sessions/s/turns", &turn(&"f".repeat(300_000))).await;
    let mut pages = Vec::new();
    let mut after = 0;
    loop {
        let page = host.get(&format!("/sessions/s/turns?limit=500&after={after}")).await.json();
        let turns = page["turns"].as_array().unwrap().clone();
        let Some(last) = turns.last() else { break };
        after = last["seq"].as_u64().unwrap();
        pages.push(turns.len());
    }
    // Two fit; one that fits nowhere comes alone.
    assert_eq!(pages, [2, 2, 1, 1]);
    // Half a view would be wrong.
    let refused = host.get("/sessions/s/view").await;
    assert_eq!(refused.code(), "413 answer_too_large");
    let details = json!({"limit": "answer_bytes", "limitBytes": 450_000});
    assert_eq!(refused.json()["details"], details);
    assert!(refused.text.contains("/turns"), "{}", refused.text);
    assert_eq!(host.post("/sessions/t/turns", &turn("small")).await.status, 201);
    assert_eq!(host.get("/sessions/t/view").await.status, 200);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads_share_a_bounded_memory() {
    use std::io::Write;
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { answers_bytes: 64 << 20, queue_seconds: 1, ..Limits::default() };
    let host = Host::with(dir.path(), limits).await;
    let other = host.key_of("other", icecore_server::Role::Writer).await;
    let large = turn(&"x".repeat(1 << 20));
    for _ in 0..30 {
        assert_eq!(host.post("/sessions/s/turns", &large).await.status, 201);
        assert_eq!(host.by(&other, "POST", "/sessions/s/turns", &large).await.status, 201);
    }
    // Each answer has 30 MiB: more than the buffers between us hold, and nearly the share.
    let ask = host.request("GET", "/v1/host/icecore/sessions/s/view", &[], b"");
    let address = host.address;
    let mut first = apart(move || {
        let mut stream = connect(address);
        stream.write_all(&ask).unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(&mut stream, &mut byte).unwrap();
        stream
    })
    .await;
    let second = host.get("/sessions/s/view").await;
    assert_eq!(second.code(), "503 overloaded");
    assert!(second.text.contains("answers_bytes"), "{}", second.text);
    // Small answers need none of it, and other tenants have their own.
    assert_eq!(host.get("/stats").await.status, 200);
    assert_eq!(host.by(&other, "GET", "/sessions/s/view", "").await.status, 200);
    // Once it is read, or its reader is gone, there is room again.
    let read = apart(move || {
        let mut rest = Vec::new();
        std::io::Read::read_to_end(&mut first, &mut rest).map(|_| rest.len())
    });
    assert!(read.await.unwrap() > 30 << 20);
    assert_eq!(host.get("/sessions/s/view").await.status, 200);
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
async fn so_many_may_follow_the_events() {
    use std::io::{BufReader, Write};
    let dir = tempfile::tempdir().unwrap();
    let host = Host::with(dir.path(), Limits { event_streams: 1, ..Limits::default() }).await;
    let stream = [("Accept", "text/event-stream")];
    let request = host.request("GET", "/v1/host/icecore/events", &stream, b"");
    let address = host.address;
    let reader = apart(move || {
        let mut stream = connect(address);
        stream.write_all(&request).unwrap();
        let mut reader = BufReader::new(stream);
        crate::client::read_head(&mut reader);
        reader
    })
    .await;
    let second = host.call("GET", "/events", &stream, None).await;
    assert_eq!(second.code(), "503 overloaded");
    assert!(second.text.contains("event_streams"));
    drop(reader);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_follows_in_its_share_and_who_left_is_noticed() {
    use std::io::{BufReader, Write};
    let dir = tempfile::tempdir().unwrap();
    let host = Host::with(dir.path(), Limits { event_streams: 2, ..Limits::default() }).await;
    let other = format!("Bearer {}", host.key_of("other", icecore_server::Role::Reader).await);
    let stream = [("Accept", "text/event-stream")];
    let follow = async |headers: &[(&str, &str)]| {
        let request = host.request("GET", "/v1/host/icecore/events", headers, b"");
        let address = host.address;
        apart(move || {
            let mut stream = connect(address);
            stream.write_all(&request).unwrap();
            let mut reader = BufReader::new(stream);
            (crate::client::read_head(&mut reader).contains(" 200 "), reader)
        })
        .await
    };
    let first = follow(&stream).await;
    assert!(first.0);
    let refused = host.call("GET", "/events", &stream, None).await;
    assert_eq!(refused.code(), "503 overloaded");
    assert!(refused.text.contains("tenant_percent"), "{}", refused.text);
    // Another tenant has a share of its own.
    assert!(follow(&[stream[0], ("Authorization", &other)]).await.0);
    drop(first);
    for _ in 0..40 {
        if follow(&stream).await.0 {
            return host.stop().await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    panic!("the closed stream was never noticed");
}

/// Whether the host closes a connection on which only this is sent.
async fn is_closed(limits: Limits, sent: &'static [u8]) -> bool {
    use std::io::{Read, Write};
    let dir = tempfile::tempdir().unwrap();
    let host = Host::with(dir.path(), limits).await;
    let address = host.address;
    let rest = apart(move || {
        let mut stream = connect(address);
        stream.write_all(sent).unwrap();
        let mut rest = Vec::new();
        // A reset is an end as well.
        let end = stream.read_to_end(&mut rest);
        let timed_out = end.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
        !timed_out && rest.is_empty()
    });
    let closed = rest.await;
    host.stop().await;
    closed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_and_an_idle_connection_have_their_time() {
    let head = Limits { header_seconds: 1, idle_seconds: 600, ..Limits::default() };
    assert!(is_closed(head, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n").await);
    let idle = Limits { header_seconds: 600, idle_seconds: 1, ..Limits::default() };
    assert!(is_closed(idle, b"").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_is_at_most_so_many_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::with(dir.path(), Limits { header_bytes: 16 << 10, ..Limits::default() }).await;
    let check = async |bytes: usize, expected: u16| {
        let filler = "x".repeat(bytes);
        let request = host.request("GET", "/healthz", &[("X-Filler", &filler)], b"");
        let answer = host.raw(&request).await;
        assert_eq!(answer.status, expected, "{bytes}");
        answer
    };
    check(8 << 10, 200).await;
    let refused = check(64 << 10, 431).await;
    assert_eq!(refused.code(), "431 headers_too_large");
    let details = json!({"limit":"header_bytes","limitBytes":16 << 10});
    assert_eq!(refused.json()["details"], details);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_asks_so_often() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { rate_per_second: 1, rate_burst: 3, ..Limits::default() };
    let host = Host::with(dir.path(), limits).await;
    let other = format!("Bearer {}", host.key_of("other", icecore_server::Role::Reader).await);
    let mut answers = Vec::new();
    for _ in 0..20 {
        answers.push(host.get("/stats").await);
    }
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
    assert!((10..=17).contains(&refused.len()), "{}", refused.len());
    for refused in refused {
        assert_eq!(refused.code(), "429 rate_limited");
        let details = refused.json()["details"].clone();
        assert_eq!(
            (&details["scope"], &details["limit"]),
            (&json!("key"), &json!("rate_per_second"))
        );
        assert!((1..=1_000).contains(&details["retryAfterMs"].as_u64().unwrap()), "{details}");
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    // Another key has its own, and the health check none.
    let auth = [("Authorization", other.as_str())];
    assert_eq!(host.call("GET", "/stats", &auth, None).await.status, 200);
    let health = host.request("GET", "/healthz", &[], b"");
    for _ in 0..10 {
        assert_eq!(host.raw(&health).await.status, 200);
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_role_does_not_allow_counts_too() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { rate_per_second: 1, rate_burst: 3, ..Limits::default() };
    let host = Host::with(dir.path(), limits).await;
    let reader = host.key_of("default", icecore_server::Role::Reader).await;
    let mut codes = Vec::new();
    for _ in 0..20 {
        codes.push(host.by(&reader, "POST", "/forget", "{}").await.code());
    }
    assert_eq!(codes[0], "403 forbidden");
    assert!(codes.contains(&"429 rate_limited".to_owned()), "{codes:?}");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guessing_is_slow_and_shuts_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { rate_denied_per_second: 1, rate_denied_burst: 2, ..Limits::default() };
    let host = Host::with(dir.path(), limits).await;
    let mut codes = Vec::new();
    for n in 0..20 {
        let guess = format!("Bearer ice_{n}");
        let answer = host.call("GET", "/stats", &[("Authorization", &guess)], None).await;
        if answer.status == 429 {
            assert_eq!(answer.json()["details"]["scope"], "host");
            assert!(answer.header("retry-after").is_some());
        }
        codes.push(answer.code());
        assert_eq!(host.get("/stats").await.status, 200);
    }
    assert_eq!(codes[..2], ["401 unauthenticated", "401 unauthenticated"]);
    assert!(codes.contains(&"429 rate_limited".to_owned()), "{codes:?}");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_stop_everything_stop_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limits = Limits { concurrent_requests: 0, ..Limits::default() };
    let options = icecore_server::ServerOptions { limits, ..Default::default() };
    let error = icecore_server::serve(memory, listener, options, async {}).await.unwrap_err();
    let expected = "the limit `concurrent_requests` is 0, and must be from 1 to 65536";
    assert_eq!(error.to_string(), expected);
}
