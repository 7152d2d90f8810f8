//! The proxy in trouble: providers that fail, clients that leave, stores that break.

use std::any::Any;
use std::io::{BufReader, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use icecore::models::Protocol;
use icecore::store::StoreError;
use icecore::{Memory, MemoryBuilder};
use icecore_models::testing::{Behaviour, Upstream, UpstreamConfig};
use icecore_server::{Limits, ServerOptions};
use icecore_store::hooks::{Call, Hook};
use icecore_store::{Packs, Store};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::client::{Host, apart, connect, read_chunk, read_head};
use crate::proxy::{
    BOTH, Bench, Canned, OPENAI, UPSTREAM_KEY, body_of, given, host_of, route, session_of, stream,
    to, turns, user,
};

#[tokio::test(flavor = "multi_thread")]
async fn other_refusals_of_the_provider_pass_as_they_are() {
    for protocol in BOTH {
        let bench = Bench::new(protocol).await;
        let body = body_of(protocol, &[user("hello")], true);
        let cases = [
            (Behaviour::Busy { retry_after: Some("7".to_owned()) }, 429),
            (Behaviour::Fail(500), 500),
            (Behaviour::Fail(529), 529),
            (Behaviour::UnknownModel, 404),
        ];
        for (behaviour, status) in cases {
            let is_busy = status == 429;
            bench.upstream.push(behaviour);
            let answer = bench.ask(&body).await;
            assert_eq!(answer.status, status, "{answer:?}");
            assert_eq!(answer.header("retry-after"), is_busy.then_some("7"));
            let error = answer.json()["error"].clone();
            assert!(error["details"].is_null() && error["message"].is_string(), "{error}");
            assert_eq!(answer.header("x-icecore-warning"), None);
        }
        // Nothing was asked twice.
        assert_eq!(bench.upstream.request_count(), 4);
        // The provider repeats the key that it refuses, which is not the caller's to see.
        bench.upstream.push(Behaviour::Denied);
        let denied = bench.ask(&body).await;
        assert_eq!(denied.status, 401);
        assert!(denied.text.contains("Incorrect API key provided: …"), "{denied:?}");
        assert!(!format!("{denied:?}").contains(UPSTREAM_KEY));
        bench.host.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_down_or_silent_is_told_in_its_own_words() {
    for protocol in BOTH {
        let config = UpstreamConfig { protocol, ..UpstreamConfig::default() };
        let bench = Bench::with(config, |options| options.proxy.first_byte_seconds = 1).await;
        let body = body_of(protocol, &[user("hello")], true);
        let check = async |behaviour, status: u16, code: &str| {
            bench.upstream.push(behaviour);
            let answer = bench.ask(&body).await;
            let error = answer.json()["error"].clone();
            assert_eq!((answer.status, error["code"].as_str()), (status, Some(code)), "{answer:?}");
            assert!(error["message"].is_string() && error["type"].is_string());
        };
        check(Behaviour::Stall, 504, "upstream_timeout").await;
        check(Behaviour::HangUp, 502, "upstream_broken").await;
        let Bench { host, upstream, .. } = bench;
        drop(upstream);
        // Its port is closed once its task has ended.
        let mut answer = stream(&host, route(protocol), &[], &body).await.0;
        for _ in 0..100 {
            if answer.status == 502 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            answer = stream(&host, route(protocol), &[], &body).await.0;
        }
        let code = answer.json()["error"]["code"].clone();
        assert!(
            answer.status == 502 && code.as_str().is_some_and(|code| code.starts_with("upstream_")),
            "{answer:?}"
        );
        host.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_off_is_kept_and_marked() {
    for protocol in BOTH {
        let config = UpstreamConfig { protocol, ..UpstreamConfig::default() };
        let bench = Bench::with(config, |options| options.proxy.idle_seconds = 1).await;
        let begun = "Half of".to_owned();
        let cases = [
            (Behaviour::CutOff(begun.clone()), false),
            (Behaviour::StallAfter(begun.clone()), false),
            (Behaviour::EndEarly(begun.clone()), true),
            (Behaviour::ErrorAfter(begun.clone()), true),
            (Behaviour::MalformedStream(begun.clone()), true),
        ];
        for (n, (behaviour, ends_well)) in cases.into_iter().enumerate() {
            bench.upstream.push(behaviour);
            let name = format!("s{n}");
            let headers = [("X-Icecore-Session", name.as_str())];
            let (answer, is_whole) =
                bench.ask_with(&headers, &body_of(protocol, &[user("tell me")], true)).await;
            assert_eq!((answer.status, is_whole), (200, ends_well), "{n}: {answer:?}");
            assert!(answer.text.contains("Half of"), "{answer:?}");
            let kept = bench.wait_for(&name, 2).await;
            assert!(kept[1]["content"].to_string().contains("Half of"), "{kept:?}");
            assert_eq!(
                (&kept[1]["tags"], &kept[1]["interrupted"]),
                (&json!(["partial"]), &json!("upstream")),
                "{n}: {kept:?}"
            );
        }
        bench.host.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_takes_the_provider_along_and_the_reply_is_kept() {
    for protocol in BOTH {
        let bench = Bench::new(protocol).await;
        let text = "word after word ".repeat(200);
        bench.upstream.push(Behaviour::Slow(text, Duration::from_millis(20)));
        let body = body_of(protocol, &[user("tell me all of it")], true);
        let headers = [("X-Icecore-Session", "left")];
        let request = bench.host.request("POST", route(protocol), &headers, body.as_bytes());
        let address = bench.host.address;
        apart(move || {
            let mut socket = connect(address);
            socket.write_all(&request).unwrap();
            let mut reader = BufReader::new(socket);
            read_head(&mut reader);
            let mut body = Vec::new();
            for _ in 0..3 {
                read_chunk(&mut reader, &mut body).unwrap();
            }
        })
        .await;
        let kept = bench.wait_for("left", 2).await;
        assert_eq!(
            (&kept[1]["tags"], &kept[1]["interrupted"]),
            (&json!(["partial"]), &json!("client")),
            "{kept:?}"
        );
        assert!(kept[1]["content"].to_string().contains("word after"));
        for _ in 0..500 {
            if bench.upstream.given_up() == 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(bench.upstream.given_up(), 1, "the provider was left too");
        bench.host.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_answer_is_handed_on_and_held_within_bounds() {
    let bench = Bench::with(UpstreamConfig::default(), |options| {
        options.proxy.kept_answer_bytes = 4_096;
    })
    .await;
    bench.upstream.push(Behaviour::Endless);
    let body = body_of(Protocol::OpenAi, &[user("go on and on")], true);
    let headers = [("X-Icecore-Session", "endless")];
    let request = bench.host.request("POST", OPENAI, &headers, body.as_bytes());
    let address = bench.host.address;
    let read = apart(move || {
        let mut socket = connect(address);
        socket.write_all(&request).unwrap();
        let mut reader = BufReader::new(socket);
        read_head(&mut reader);
        let mut body = Vec::new();
        while body.len() < 2 << 20 {
            read_chunk(&mut reader, &mut body).unwrap();
        }
        body.len()
    })
    .await;
    assert!(read >= 2 << 20);
    let kept = bench.wait_for("endless", 2).await;
    assert_eq!(kept[1]["interrupted"], "size", "{kept:?}");
    assert!(kept[1]["content"].as_str().unwrap().len() <= 16_384);
    bench.host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_fifty_megabytes_is_refused_in_the_providers_words() {
    for protocol in BOTH {
        let bench = Bench::new(protocol).await;
        let huge = format!("{{\"messages\":[\"{}", "x".repeat(50 << 20));
        let request = bench.host.request("POST", route(protocol), &[], &huge.as_bytes()[..1000]);
        let request = String::from_utf8(request).unwrap();
        let request =
            request.replace("Content-Length: 1000", &format!("Content-Length: {}", huge.len()));
        let answer = bench.host.raw(request.as_bytes()).await;
        let error = answer.json()["error"].clone();
        assert_eq!(
            (answer.status, error["code"].as_str()),
            (413, Some("body_too_large")),
            "{answer:?}"
        );
        assert!(error["message"].as_str().unwrap().contains("proxy.body_bytes"), "{error}");
        assert_eq!(bench.upstream.request_count(), 0);
        // One that is large and allowed goes through.
        let large = body_of(protocol, &[user(&"a word ".repeat(100_000))], false);
        assert_eq!(bench.ask(&large).await.header("x-icecore-passthrough"), None);
        bench.host.stop().await;
    }
}

/// Whether writes fail.
struct Broken(Arc<AtomicBool>);

#[async_trait]
impl Hook for Broken {
    async fn before(&self, call: Call<'_>, _: &mut (dyn Any + Send)) -> Result<(), StoreError> {
        match call.writes && self.0.load(Ordering::SeqCst) {
            true => Err(StoreError::Injected(1)),
            false => Ok(()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_store_fails_requests_go_on_unless_set_otherwise() {
    for fail_open in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let is_broken = Arc::new(AtomicBool::new(false));
        let inner = Store::in_memory([1; 32]);
        let store = inner.hooked(Arc::new(Broken(Arc::clone(&is_broken))));
        let memory = MemoryBuilder::default().over(store, Packs::in_memory(), None);
        let upstream = Upstream::start(UpstreamConfig::default()).await;
        let mut proxy = to(&upstream.url(), given());
        proxy.fail_open = fail_open;
        let options = ServerOptions { proxy, ..ServerOptions::default() };
        let host = Host::optioned("127.0.0.1:0", memory.into(), dir.path(), options).await;
        let body = body_of(Protocol::OpenAi, &[user("hello")], true);
        let (well, _) = stream(&host, OPENAI, &[], &body).await;
        assert_eq!(well.header("x-icecore-warning"), None);
        is_broken.store(true, Ordering::SeqCst);
        let (answer, _) = stream(&host, OPENAI, &[], &body).await;
        match fail_open {
            true => {
                assert_eq!(answer.status, 200, "{answer:?}");
                assert!(answer.text.ends_with("data: [DONE]\n\n"), "{answer:?}");
                let warning = answer.header("x-icecore-warning");
                assert_eq!(warning, Some("store-failed (internal_error)"), "{answer:?}");
                assert_eq!(answer.header("x-icecore-session"), None);
                let sent = upstream.requests().pop().unwrap();
                assert_eq!(sent.body, body.as_bytes());
            }
            false => {
                assert!(answer.status >= 500, "{answer:?}");
                assert_eq!(answer.json()["error"]["type"], "server_error");
            }
        }
        is_broken.store(false, Ordering::SeqCst);
        host.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_few_and_one_tenants_share_of_them() {
    let bench = Bench::with(UpstreamConfig::default(), |options| {
        options.limits = Limits { proxy_streams: 2, ..Limits::default() };
    })
    .await;
    bench.upstream.push(Behaviour::Slow("one two three".repeat(10), Duration::from_millis(50)));
    let body = body_of(Protocol::OpenAi, &[user("slowly")], true);
    let request = bench.host.request("POST", OPENAI, &[], body.as_bytes());
    let address = bench.host.address;
    let slow = apart(move || {
        let mut socket = connect(address);
        socket.write_all(&request).unwrap();
        let mut reader = BufReader::new(socket);
        read_head(&mut reader);
        reader
    })
    .await;
    let refused = bench.ask(&body).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{refused:?}");
    let message = refused.json()["error"]["message"].to_string();
    assert!(message.contains("tenant_percent") && message.contains("proxy.streams"), "{message}");
    let rest = apart(move || {
        let (mut reader, mut body) = (slow, Vec::new());
        crate::client::read_chunks(&mut reader, &mut body).is_some()
    })
    .await;
    assert!(rest, "the one that runs is not disturbed");
    assert_eq!(bench.ask(&body).await.status, 200);
    bench.host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_outlasts_the_time_of_a_request_and_a_place() {
    let bench = Bench::with(UpstreamConfig::default(), |options| {
        options.limits = Limits { request_seconds: 1, concurrent_requests: 1, ..Limits::default() };
    })
    .await;
    // Longer than a second in all, and all that time the one place is free.
    bench.upstream.push(Behaviour::Slow("abcdefg".repeat(40), Duration::from_millis(50)));
    let body = body_of(Protocol::OpenAi, &[user("slowly")], true);
    let request = bench.host.request("POST", OPENAI, &[], body.as_bytes());
    let address = bench.host.address;
    let reader = apart(move || {
        let mut socket = connect(address);
        socket.write_all(&request).unwrap();
        let mut reader = BufReader::new(socket);
        read_head(&mut reader);
        reader
    })
    .await;
    assert_eq!(bench.host.get("/sessions").await.status, 200);
    let is_whole = apart(move || {
        let (mut reader, mut body) = (reader, Vec::new());
        crate::client::read_chunks(&mut reader, &mut body).is_some()
    })
    .await;
    assert!(is_whole);
    bench.host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_end_answers_may_finish_and_what_does_not_is_kept() {
    for seconds in [20, 1] {
        let dir = tempfile::tempdir().unwrap();
        let upstream = Upstream::start(UpstreamConfig::default()).await;
        let memory = crate::place::open(Memory::builder(), dir.path()).await;
        let limits = Limits { shutdown_seconds: seconds, ..Limits::default() };
        let proxy = to(&upstream.url(), given());
        let options = ServerOptions { proxy, limits, ..ServerOptions::default() };
        let mut host = Host::optioned("127.0.0.1:0", memory.into(), dir.path(), options).await;
        let pieces = if seconds == 1 { 4_000 } else { 20 };
        upstream.push(Behaviour::Slow("abcdefg".repeat(pieces), Duration::from_millis(20)));
        let body = body_of(Protocol::OpenAi, &[user("slowly")], true);
        let headers = [("X-Icecore-Session", "s")];
        let request = host.request("POST", OPENAI, &headers, body.as_bytes());
        let address = host.address;
        let reader = apart(move || {
            let mut socket = connect(address);
            socket.write_all(&request).unwrap();
            let mut reader = BufReader::new(socket);
            read_head(&mut reader);
            reader
        })
        .await;
        host.begin_to_stop();
        let is_whole = apart(move || {
            let (mut reader, mut body) = (reader, Vec::new());
            crate::client::read_chunks(&mut reader, &mut body).is_some()
        });
        let (is_whole, ()) = tokio::join!(is_whole, host.ended());
        assert_eq!(is_whole, seconds == 20);
        let host = Host::start(dir.path()).await;
        let kept = turns(&host, "s").await;
        assert_eq!(kept.len(), 2, "{kept:?}");
        let expected = if is_whole { json!(null) } else { json!("shutdown") };
        assert_eq!(kept[1]["interrupted"], expected, "{kept:?}");
        host.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_answers_pass_as_they_are() {
    let bench = Bench::new(Protocol::OpenAi).await;
    let body = body_of(Protocol::OpenAi, &[user("hello")], true);
    bench.upstream.push(Behaviour::Html);
    let page = bench.ask(&body).await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html")));
    bench.upstream.push(Behaviour::MalformedJson);
    assert_eq!(bench.ask(&body).await.text, "{\"choices\": [{\"mess");
    bench.upstream.push(Behaviour::Redirect("http://127.0.0.1:1/".to_owned()));
    let elsewhere = bench.ask(&body).await;
    assert_eq!(
        (elsewhere.status, elsewhere.header("location")),
        (302, Some("http://127.0.0.1:1/"))
    );
    bench.upstream.push(Behaviour::WithoutUsage("Yes.".to_owned()));
    let plain = bench.ask(&body).await;
    assert_eq!(bench.turns(&session_of(&plain)).await.len(), 2);
    bench.host.stop().await;
}

/// A provider that answers one request with the pieces that it is given, when it is given
/// them.
struct Given {
    url: String,
    pieces: mpsc::Sender<String>,
}

impl Given {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (pieces, mut given) = mpsc::channel::<String>(1);
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 65_536];
            assert!(socket.read(&mut buffer).await.unwrap() > 0);
            while let Some(piece) = given.recv().await {
                socket.write_all(piece.as_bytes()).await.unwrap();
            }
        });
        Self { url, pieces }
    }

    async fn send(&self, piece: &str) {
        self.pieces.send(piece.to_owned()).await.unwrap();
    }

    /// A host before it, and a client that has asked it.
    async fn asked(&self, dir: &std::path::Path) -> (Host, BufReader<std::net::TcpStream>) {
        let memory = crate::place::open(Memory::builder(), dir).await;
        let host = host_of(memory, dir, to(&self.url, given())).await;
        let body = body_of(Protocol::OpenAi, &[user("hello")], true);
        let headers = [("X-Icecore-Session", "s")];
        let request = host.request("POST", OPENAI, &headers, body.as_bytes());
        let mut socket = connect(host.address);
        socket.write_all(&request).unwrap();
        (host, BufReader::new(socket))
    }
}

const CHOICES: [&str; 2] = [
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"first\"},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"second\"}}]}\n\n",
];

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_after_the_end_of_a_reply_holds_nothing_up() {
    // Another choice goes on, or a server has no end of comments.
    for (more, awaited) in [(CHOICES[1], "second"), (": still here\n\n", "first")] {
        let dir = tempfile::tempdir().unwrap();
        let provider = Given::start().await;
        let (host, reader) = provider.asked(dir.path()).await;
        provider.send(&Canned::events(CHOICES[0])).await;
        let has_come = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&has_come);
        let read = apart(move || {
            let (mut reader, mut body) = (reader, Vec::new());
            read_head(&mut reader);
            while !String::from_utf8_lossy(&body).contains(awaited) {
                read_chunk(&mut reader, &mut body).unwrap();
            }
            seen.store(true, Ordering::SeqCst);
            crate::client::read_chunks(&mut reader, &mut body).is_some()
        });
        let send = async {
            for _ in 0..400 {
                provider.send(more).await;
                if has_come.load(Ordering::SeqCst) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(has_come.load(Ordering::SeqCst), "{awaited} was held up");
            provider.send("data: [DONE]\n\n").await;
            drop(provider);
        };
        let (is_whole, ()) = tokio::join!(read, send);
        assert!(is_whole);
        let kept = turns(&host, "s").await;
        assert_eq!((kept.len(), &kept[1]["content"]), (2, &json!("first")), "{kept:?}");
        assert_eq!(kept[1]["interrupted"], json!(null));
        host.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_learns_that_its_provider_is_at_work() {
    for first in [": wait\n\n", ""] {
        let dir = tempfile::tempdir().unwrap();
        let provider = Given::start().await;
        let (host, reader) = provider.asked(dir.path()).await;
        provider.send(&Canned::events(first)).await;
        // Nothing more comes until the client has this.
        let reader = apart(move || {
            let (mut reader, mut body) = (reader, Vec::new());
            read_head(&mut reader);
            if !first.is_empty() {
                read_chunk(&mut reader, &mut body).unwrap();
                assert_eq!(body, first.as_bytes());
            }
            reader
        })
        .await;
        provider.send(CHOICES[0]).await;
        provider.send("data: [DONE]\n\n").await;
        drop(provider);
        let is_whole = apart(move || {
            let (mut reader, mut body) = (reader, Vec::new());
            crate::client::read_chunks(&mut reader, &mut body).is_some()
        });
        assert!(is_whole.await);
        let kept = turns(&host, "s").await;
        assert_eq!((kept.len(), &kept[1]["content"]), (2, &json!("first")), "{kept:?}");
        host.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_cut_before_a_slow_client_does_not_look_whole() {
    let dir = tempfile::tempdir().unwrap();
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let padding = "x".repeat(100_000);
    let event = format!(
        "data: {{\"padding\":\"{padding}\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"on \"}}}}]}}\n\n"
    );
    // More than all that lies between provider and client can hold.
    let canned = Canned::start(vec![Canned::events(&event.repeat(400))]).await;
    let limits = Limits { shutdown_seconds: 1, ..Limits::default() };
    let proxy = to(&canned.url, given());
    let options = ServerOptions { proxy, limits, ..ServerOptions::default() };
    let mut host = Host::optioned("127.0.0.1:0", memory.into(), dir.path(), options).await;
    let body = body_of(Protocol::OpenAi, &[user("on and on")], true);
    let headers = [("X-Icecore-Session", "s")];
    let request = host.request("POST", OPENAI, &headers, body.as_bytes());
    let mut socket = connect(host.address);
    let mut reader = apart(move || {
        socket.write_all(&request).unwrap();
        let mut reader = BufReader::new(socket);
        read_head(&mut reader);
        reader
    })
    .await;
    host.begin_to_stop();
    host.ended().await;
    let is_whole =
        apart(move || crate::client::read_chunks(&mut reader, &mut Vec::new()).is_some());
    assert!(!is_whole.await);
    let host = Host::start(dir.path()).await;
    let kept = turns(&host, "s").await;
    assert_eq!((kept.len(), &kept[1]["interrupted"]), (2, &json!("shutdown")), "{kept:?}");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_told_where_an_answer_cannot_be_read_along() {
    let answer = |coding: &str| {
        let body = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"Yes."}}]}"#;
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: {coding}\r\nconnection: close\r\n\r\n{body}"
        )
    };
    let canned = Canned::start(vec![answer("odd"), answer("identity")]).await;
    let dir = tempfile::tempdir().unwrap();
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let host = host_of(memory, dir.path(), to(&canned.url, given())).await;
    let body = body_of(Protocol::OpenAi, &[user("hello")], false);
    for (session, warning) in [("odd", Some("reply-not-kept (encoded)")), ("plain", None)] {
        let headers = [("X-Icecore-Session", session)];
        let (answer, is_whole) = stream(&host, OPENAI, &headers, &body).await;
        assert!(is_whole && answer.text.contains("Yes."), "{answer:?}");
        assert_eq!(answer.header("x-icecore-warning"), warning);
        let kept = turns(&host, session).await.len();
        assert_eq!(kept, if warning.is_some() { 1 } else { 2 });
    }
    host.stop().await;
}
