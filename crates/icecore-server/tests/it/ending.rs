//! Ending: what was accepted is finished, nothing new is taken.

use std::io::Write;
use std::time::Duration;

use crate::client::{API, Host, apart, connect, fresh, read_answer};

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_request_is_finished() {
    let (dir, mut host) = fresh().await;
    let body = br#"{"turns":[{"role":"user","content":"the last word"}]}"#;
    let request = host.request("POST", &format!("{API}/sessions/s/turns"), &[], body);
    let (head, tail) = request.split_at(request.len() - 10);
    let address = host.address;
    let mut stream = apart(move || connect(address)).await;
    stream.write_all(head).unwrap();
    // Once the health check answers on a later connection, ours was accepted;
    // give its head the time to be read.
    host.get("/stats").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    host.begin_to_stop();
    tokio::time::sleep(Duration::from_millis(200)).await;
    stream.write_all(tail).unwrap();
    let answer = apart(move || read_answer(stream)).await;
    assert_eq!(answer.status, 201);
    host.ended().await;
    assert!(std::net::TcpStream::connect(address).is_err());
    let host = Host::start(dir.path()).await;
    let turns = host.get("/sessions/s/turns").await.json();
    assert_eq!(turns["turns"][0]["content"], "the last word");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_does_not_hold_up_the_end() {
    let (_dir, host) = fresh().await;
    let address = host.address;
    let idle = apart(move || connect(address)).await;
    let request = host.request("GET", "/healthz", &[("Connection", "keep-alive")], b"");
    let mut kept = apart(move || connect(address)).await;
    kept.write_all(&request).unwrap();
    let also = kept.try_clone().unwrap();
    assert_eq!(apart(move || read_answer(also)).await.status, 200);
    host.stop().await;
    drop((idle, kept));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stops_does_not_hold_up_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let limits = icecore_server::Limits {
        body_seconds: 600,
        shutdown_seconds: 600,
        ..icecore_server::Limits::default()
    };
    let host = Host::with(dir.path(), limits).await;
    let headers = [("Content-Length", "100")];
    let head = host.request("POST", &format!("{API}/context"), &headers, b"{");
    let address = host.address;
    let mut stalled = apart(move || connect(address)).await;
    stalled.write_all(&head).unwrap();
    host.get("/stats").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    // It waits 20 s at most.
    host.stop().await;
    drop(stalled);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_is_still_heard() {
    let (_dir, host) = fresh().await;
    let body = br#"{"turns":[{"role":"user","content":"heard"}]}"#;
    let request = host.request("POST", &format!("{API}/sessions/s/turns"), &[], body);
    let address = host.address;
    apart(move || connect(address).write_all(&request).unwrap()).await;
    for _ in 0..200 {
        if host.get("/sessions/s/turns").await.status == 200 {
            return host.stop().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the turn never came");
}
