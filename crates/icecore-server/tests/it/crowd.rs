//! Many clients, and slow ones.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

use icecore_server::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{API, Host, apart, connect, fresh, read_answer, read_head};

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_at_once_are_all_answered() {
    let (_dir, host) = fresh().await;
    let turn = br#"{"turns":[{"role":"user","content":"one of many"}]}"#;
    let write = host.request("POST", &format!("{API}/sessions/s/turns"), &[], turn);
    let read = host.request("POST", &format!("{API}/context"), &[], br#"{"budget":10}"#);
    // All are connected before any speaks.
    let mut streams = Vec::new();
    for _ in 0..1_000 {
        streams.push(tokio::net::TcpStream::connect(host.address).await.unwrap());
    }
    let tasks: Vec<_> = streams
        .into_iter()
        .enumerate()
        .map(|(n, mut stream)| {
            let request = if n % 20 == 0 { write.clone() } else { read.clone() };
            tokio::spawn(async move {
                stream.write_all(&request).await.unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.unwrap();
                answer
            })
        })
        .collect();
    for task in tasks {
        let answer = task.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    }
    assert_eq!(host.get("/stats").await.json()["turns"], 50);
    host.stop().await;
}

/// Sends a head and waits until the host asks for the body.
async fn asked_for_body(host: &Host, path: &str, length: usize) -> TcpStream {
    let length = length.to_string();
    let headers = [("Content-Length", length.as_str()), ("Expect", "100-continue")];
    let head = host.request("POST", &format!("{API}{path}"), &headers, b"");
    let address = host.address;
    apart(move || {
        let mut stream = connect(address);
        stream.write_all(&head).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        assert!(read_head(&mut reader).contains("100 Continue"));
        stream
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_senders_hold_no_place() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { concurrent_requests: 1, body_seconds: 2, ..Limits::default() };
    let host = Host::with(dir.path(), limits).await;
    let mut slow = Vec::new();
    for _ in 0..8 {
        slow.push(asked_for_body(&host, "/context", 100).await);
    }
    assert_eq!(host.get("/stats").await.status, 200);
    assert_eq!(host.post("/context", r#"{"budget":10}"#).await.status, 200);
    for stream in slow {
        let late = apart(move || read_answer(stream)).await;
        assert_eq!(late.code(), "408 body_timeout");
        assert!(late.text.contains("body_seconds"));
    }
    assert_eq!(host.get("/stats").await.status, 200);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_share_a_bounded_memory() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        body_bytes: 128 << 10,
        buffered_bytes: 128 << 10,
        queue_seconds: 1,
        ..Limits::default()
    };
    let host = Host::with(dir.path(), limits).await;
    let large = format!(r#"{{"budget":10,"query":"{}"}}"#, "x".repeat(80 << 10));
    let mut first = asked_for_body(&host, "/context", large.len()).await;
    let second = host.post("/context", &large).await;
    assert_eq!(second.code(), "503 overloaded");
    assert!(second.text.contains("buffered_bytes"), "{}", second.text);
    assert_eq!(second.header("retry-after"), Some("1"));
    // Small ones need none of it.
    assert_eq!(host.post("/context", r#"{"budget":10}"#).await.status, 200);
    first.write_all(large.as_bytes()).unwrap();
    assert_eq!(apart(move || read_answer(first)).await.status, 200);
    assert_eq!(host.post("/context", &large).await.status, 200);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_tenant_that_takes_all_it_can_stalls_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits {
        body_bytes: 128 << 10,
        buffered_bytes: 256 << 10,
        concurrent_requests: 4,
        queue_seconds: 2,
        ..Limits::default()
    };
    let host = Host::with(dir.path(), limits).await;
    let other = host.key_of("other", icecore_server::Role::Reader).await;
    // Each announces the most that a body may have, and sends none of it.
    let length = (128 << 10).to_string();
    let headers = [("Content-Length", length.as_str())];
    let head = host.request("POST", &format!("{API}/context"), &headers, b"");
    let address = host.address;
    let greedy = apart(move || {
        let open = || {
            let mut stream = connect(address);
            stream.write_all(&head).unwrap();
            stream
        };
        std::iter::repeat_with(open).take(24).collect::<Vec<_>>()
    })
    .await;
    let large = format!(r#"{{"budget":10,"query":"{}"}}"#, "x".repeat(100 << 10));
    for _ in 0..3 {
        assert_eq!(host.by(&other, "GET", "/stats", "").await.status, 200);
        assert_eq!(host.by(&other, "POST", "/context", &large).await.status, 200);
    }
    // Its own small requests go through as well, large ones do not.
    assert_eq!(host.get("/stats").await.status, 200);
    let refused = host.post("/context", &large).await;
    assert_eq!(refused.code(), "503 overloaded");
    assert!(refused.text.contains("tenant_percent"), "{}", refused.text);
    drop(greedy);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_idle_connection_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::with(dir.path(), Limits { connections: 3, ..Limits::default() }).await;
    let address = host.address;
    let keep = host.request("GET", "/healthz", &[("Connection", "keep-alive")], b"");
    let opened = |sent: Vec<u8>| {
        apart(move || {
            let mut stream = connect(address);
            stream.write_all(&sent).unwrap();
            stream
        })
    };
    // One does nothing, one sends half a head, one half a body.
    let silent = opened(Vec::new()).await;
    let half = opened(b"GET /healthz HTTP/1.1\r\n".to_vec()).await;
    let mut body = asked_for_body(&host, "/context", 13).await;
    for stream in [silent, half] {
        assert_eq!(host.raw(&host.request("GET", "/healthz", &[], b"")).await.status, 200);
        // The place of the one before is free again, so fill it.
        let mut filler = opened(keep.clone()).await;
        let also = filler.try_clone().unwrap();
        assert_eq!(apart(move || read_answer(also)).await.status, 200);
        let mut stream = stream;
        let end = apart(move || stream.read(&mut [0; 1]).map_or(0, |read| read)).await;
        assert_eq!(end, 0, "it is closed");
        // One that is needed again works again.
        filler.write_all(&keep).unwrap();
        assert_eq!(apart(move || read_answer(filler)).await.status, 200);
    }
    body.write_all(br#"{"budget":10}"#).unwrap();
    assert_eq!(apart(move || read_answer(body)).await.status, 200);
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_read_is_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::with(dir.path(), Limits { write_seconds: 1, ..Limits::default() }).await;
    let headers = [("Connection", "keep-alive")];
    let ask = host.request("GET", "/v1/openapi.json", &headers, b"");
    let one = host.raw(&host.request("GET", "/v1/openapi.json", &[], b"")).await.text.len();
    // More than the buffers between us hold.
    let count = (64 << 20) / one;
    let address = host.address;
    let is_gone = apart(move || {
        let mut stream = connect(address);
        let sent = stream.write_all(&ask.repeat(count));
        // Once the host is gone, a word to it comes back.
        let mut gone = sent.is_err();
        for _ in 0..200 {
            gone = gone || stream.write_all(b"\r\n").is_err();
            if gone {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        gone
    });
    assert!(is_gone.await);
    assert_eq!(host.get("/stats").await.status, 200);
    host.stop().await;
}
