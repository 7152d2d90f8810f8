//! The event log, by page and by stream.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::client::{API, Host, apart, connect, fresh, read_head};

async fn add(host: &Host, memory: &str, content: &str) {
    let body = json!({"memoryRef":memory,"turns":[{"role":"user","content":content}]}).to_string();
    assert_eq!(host.post("/sessions/s/turns", &body).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_events() {
    let (_dir, host) = fresh().await;
    add(&host, "one", "a private thing").await;
    add(&host, "two", "another").await;
    host.post("/forget", r#"{"session":"s","memoryRef":"one"}"#).await;
    let all = host.get("/events").await;
    assert!(!all.text.contains("private"));
    let all = all.json();
    let events = all["events"].as_array().unwrap();
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.is_sorted() && seqs.len() >= 2, "{all}");
    for event in events {
        assert!(event.as_object().unwrap().keys().eq(["seq", "type", "timestamp", "payload"]));
        assert!(event["payload"].is_object());
    }
    let after = host.get(&format!("/events?after={}", seqs[0])).await.json();
    assert_eq!(after["events"].as_array().unwrap(), &events[1..]);
    let two = host.get("/events?memoryRef=two").await.json();
    let two = two["events"].as_array().unwrap().clone();
    assert!(!two.is_empty() && two.iter().all(|event| event["payload"]["memoryRef"] == "two"));
    host.stop().await;
}

/// The next event of a stream: its id, its name, its data.
fn next_event(reader: &mut BufReader<TcpStream>) -> (u64, String, Value) {
    let (mut id, mut name) = (0, String::new());
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream ended");
        match line.trim_end().split_once(": ") {
            Some(("id", text)) => id = text.parse().unwrap(),
            Some(("event", text)) => name = text.to_owned(),
            Some(("data", text)) => return (id, name, serde_json::from_str(text).unwrap()),
            _ => {}
        }
    }
}

async fn follow(host: &Host, headers: &[(&str, &str)]) -> BufReader<TcpStream> {
    let mut all = vec![("Accept", "text/event-stream")];
    all.extend(headers);
    let request = host.request("GET", &format!("{API}/events"), &all, b"");
    let address = host.address;
    apart(move || {
        let mut stream = connect(address);
        stream.write_all(&request).unwrap();
        let mut reader = BufReader::new(stream);
        let head = read_head(&mut reader);
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
        reader
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_follows_and_takes_up_where_it_broke_off() {
    let (_dir, mut host) = fresh().await;
    add(&host, "m", "one").await;
    let mut reader = follow(&host, &[]).await;
    let (mut reader, first) = apart(move || {
        let first = next_event(&mut reader);
        (reader, first)
    })
    .await;
    assert_eq!(first.1, "turn.appended");
    assert_eq!(first.2["seq"], first.0);
    add(&host, "m", "two").await;
    let second = apart(move || next_event(&mut reader)).await;
    assert!(second.0 > first.0);
    let last = first.0.to_string();
    let mut reader = follow(&host, &[("Last-Event-ID", &last)]).await;
    let (mut reader, again) = apart(move || {
        let again = next_event(&mut reader);
        (reader, again)
    })
    .await;
    assert_eq!(again, second);
    let bad = host.call(
        "GET",
        "/events",
        &[("Accept", "text/event-stream"), ("Last-Event-ID", "x")],
        None,
    );
    assert_eq!(bad.await.code(), "400 validation_error");
    // A follower does not hold up the end.
    host.begin_to_stop();
    let rest = apart(move || {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut reader, &mut rest).map(|_| rest)
    })
    .await;
    assert!(rest.is_ok());
    host.ended().await;
}
