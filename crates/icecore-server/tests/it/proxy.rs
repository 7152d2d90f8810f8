//! The proxy: bytes through and back, unchanged, in both protocols.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use icecore::models::Protocol;
use icecore::{Memory, Principal, Tenant};
use icecore_models::ApiKey;
use icecore_models::testing::{Behaviour, Upstream, UpstreamConfig};
use icecore_server::{
    Alone, ProxyOptions, Role, ServerOptions, TenantUpstreams, UpstreamKey, UpstreamOptions,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{Answer, Host, apart, connect, read_stream};

pub(crate) const OPENAI: &str = "/openai/v1/chat/completions";
pub(crate) const ANTHROPIC: &str = "/anthropic/v1/messages";

pub(crate) const BOTH: [Protocol; 2] = [Protocol::OpenAi, Protocol::Anthropic];

/// The route of a protocol.
pub(crate) fn route(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::OpenAi => OPENAI,
        Protocol::Anthropic => ANTHROPIC,
    }
}

/// A host with a scripted provider behind it.
pub(crate) struct Bench {
    pub(crate) _dir: tempfile::TempDir,
    pub(crate) host: Host,
    pub(crate) upstream: Upstream,
    pub(crate) protocol: Protocol,
}

/// The key that providers are shown.
pub(crate) const UPSTREAM_KEY: &str = "up-key-0123456789abcdef";

/// Everything goes to one address.
pub(crate) fn to(url: &str, key: UpstreamKey) -> ProxyOptions {
    let url = Some(url.to_owned());
    let provider = UpstreamOptions { url, key, ..UpstreamOptions::default() };
    let upstreams = TenantUpstreams { openai: provider.clone(), anthropic: provider };
    ProxyOptions { upstreams, ..ProxyOptions::default() }
}

pub(crate) fn given() -> UpstreamKey {
    UpstreamKey::Given(ApiKey::new(UPSTREAM_KEY))
}

/// A host over a memory, with these options.
pub(crate) async fn host_of(memory: Memory, dir: &std::path::Path, proxy: ProxyOptions) -> Host {
    let options = ServerOptions { proxy, ..ServerOptions::default() };
    Host::optioned("127.0.0.1:0", memory.into(), dir, options).await
}

impl Bench {
    pub(crate) async fn new(protocol: Protocol) -> Self {
        Self::with(UpstreamConfig { protocol, ..UpstreamConfig::default() }, |_| ()).await
    }

    /// As the other, with other settings of the provider and the proxy.
    pub(crate) async fn with(config: UpstreamConfig, set: impl FnOnce(&mut ServerOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let protocol = config.protocol;
        let upstream = Upstream::start(config).await;
        let memory = crate::place::open(Memory::builder(), dir.path()).await;
        let proxy = to(&upstream.url(), given());
        let mut options = ServerOptions { proxy, ..ServerOptions::default() };
        set(&mut options);
        let host = Host::optioned("127.0.0.1:0", memory.into(), dir.path(), options).await;
        Self { _dir: dir, host, upstream, protocol }
    }

    /// Asks with a body, and reads the answer however it comes.
    pub(crate) async fn ask(&self, body: &str) -> Answer {
        let (answer, is_whole) = self.ask_with(&[], body).await;
        assert!(is_whole, "the answer broke off: {answer:?}");
        answer
    }

    /// As the other, with more headers; and whether the answer came to its end.
    pub(crate) async fn ask_with(&self, headers: &[(&str, &str)], body: &str) -> (Answer, bool) {
        stream(&self.host, route(self.protocol), headers, body).await
    }

    /// The turns of a session.
    pub(crate) async fn turns(&self, session: &str) -> Vec<Value> {
        turns(&self.host, session).await
    }

    /// Waits until a session has so many turns.
    pub(crate) async fn wait_for(&self, session: &str, count: usize) -> Vec<Value> {
        for _ in 0..500 {
            let turns = self.turns(session).await;
            if turns.len() >= count {
                return turns;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{session} never had {count} turns: {:?}", self.turns(session).await);
    }
}

pub(crate) async fn stream(
    host: &Host,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (Answer, bool) {
    let request = host.request("POST", path, headers, body.as_bytes());
    let address = host.address;
    apart(move || {
        let mut stream = connect(address);
        stream.write_all(&request).unwrap();
        read_stream(stream)
    })
    .await
}

pub(crate) async fn turns(host: &Host, session: &str) -> Vec<Value> {
    let found = host.get(&format!("/sessions/{session}/turns?limit=500")).await;
    match found.status {
        404 => Vec::new(),
        _ => found.json()["turns"].as_array().unwrap().clone(),
    }
}

/// A body of these messages.
pub(crate) fn body_of(protocol: Protocol, messages: &[Value], is_stream: bool) -> String {
    let mut body = json!({"model": "scripted", "max_tokens": 200, "stream": is_stream});
    if is_stream && protocol == Protocol::OpenAi {
        body["stream_options"] = json!({"include_usage": true});
    }
    body["messages"] = json!(messages);
    body.to_string()
}

pub(crate) fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

pub(crate) fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// The session that an answer names.
pub(crate) fn session_of(answer: &Answer) -> String {
    answer.header("x-icecore-session").unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

/// A provider that answers with these bytes, one after the other, and keeps what it was
/// sent.
pub(crate) struct Canned {
    pub(crate) url: String,
    pub(crate) heads: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Canned {
    pub(crate) async fn start(answers: Vec<String>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        let task = tokio::spawn(async move {
            for answer in answers {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut bytes = Vec::new();
                let mut buffer = [0; 4096];
                while !is_whole(&bytes) {
                    let read = socket.read(&mut buffer).await.unwrap();
                    assert!(read > 0, "the request ended early");
                    bytes.extend_from_slice(&buffer[..read]);
                }
                seen.lock().unwrap().push(String::from_utf8_lossy(&bytes).into_owned());
                socket.write_all(answer.as_bytes()).await.unwrap();
                socket.shutdown().await.unwrap();
            }
        });
        Self { url, heads, task }
    }

    /// A stream of events.
    pub(crate) fn events(text: &str) -> String {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{text}"
        )
    }
}

impl Drop for Canned {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse::<usize>().unwrap())
}

/// What a provider answers without us.
async fn directly(upstream: &Upstream, path: &str, body: &str) -> Answer {
    let root = upstream.root();
    let address = root.trim_start_matches("http://").to_owned();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {UPSTREAM_KEY}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    apart(move || {
        let mut stream = connect(address.parse().unwrap());
        stream.write_all(request.as_bytes()).unwrap();
        read_stream(stream).0
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fits_goes_through_and_comes_back_byte_for_byte() {
    for protocol in BOTH {
        for is_stream in [false, true] {
            let bench = Bench::new(protocol).await;
            let plain =
                Upstream::start(UpstreamConfig { protocol, ..UpstreamConfig::default() }).await;
            let body = format!(
                " {{\"model\" : \"scripted\",\n\t\"stream\":{is_stream},\"max_tokens\":100,\"odd\":\"\\\"messages\\\":[]\",\
                 \"messages\" :[ {{\"content\":\"h\\u00fcllo\",\"role\":\"user\",\"x\":1.50}} ] , \"temperature\":1e0}}\n"
            );
            let (path, bare) = match protocol {
                Protocol::OpenAi => (OPENAI, "/v1/chat/completions"),
                Protocol::Anthropic => (ANTHROPIC, "/v1/messages"),
            };
            let answer = bench.ask(&body).await;
            let expected = directly(&plain, bare, &body).await;
            assert_eq!((answer.status, &answer.text), (200, &expected.text), "{path}");
            assert_eq!(answer.header("content-type"), expected.header("content-type"));
            assert_eq!(answer.header("x-icecore-following"), Some("begins"));
            assert!(answer.header("x-icecore-request-tokens").is_some());
            assert_eq!(answer.header("x-icecore-compaction"), None);
            let sent = bench.upstream.requests();
            assert_eq!(sent.len(), 1);
            assert_eq!(String::from_utf8(sent[0].body.clone()).unwrap(), body);
            assert_eq!(sent[0].path, bare);
            let kept = bench.turns(&session_of(&answer)).await;
            assert_eq!(kept.len(), 2, "{kept:?}");
            assert_eq!((&kept[0]["content"], &kept[0]["x"]), (&json!("hüllo"), &json!(1.50)));
            assert_eq!(kept[1]["role"], "assistant");
            assert!(kept[1]["content"].to_string().contains("Understood. I will go on."));
            bench.host.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_goes_on_with_its_session_as_clients_send_it_back() {
    for protocol in BOTH {
        let bench = Bench::new(protocol).await;
        let mut messages = vec![user("hello")];
        let mut session = None;
        for n in 0..5 {
            let answer = bench.ask(&body_of(protocol, &messages, n % 2 == 0)).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let named = session_of(&answer);
            let expected = if n == 0 { "begins" } else { "continues" };
            assert_eq!(answer.header("x-icecore-following"), Some(expected), "{n}");
            assert_eq!(*session.get_or_insert(named.clone()), named);
            // As a string, as parts, with marks, with blanks at its end.
            let said = "Understood. I will go on.";
            let reply = match n {
                0 => assistant(said),
                1 => json!({"role": "assistant", "content": [{"type": "text", "text": said}]}),
                2 => {
                    json!({"role": "assistant", "content": [{"type": "text", "text": said, "cache_control": {"type": "ephemeral"}}]})
                }
                _ => json!({"content": format!("{said}\n"), "role": "assistant"}),
            };
            messages.extend([reply, user(&format!("and then {n}?"))]);
        }
        let kept = bench.turns(&session.unwrap()).await;
        assert_eq!(kept.len(), 10, "{kept:?}");
        bench.host.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_calls_thoughts_and_pictures_are_kept_and_matched() {
    let stream = concat!(
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"ls\",\"arguments\":\"\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"b\",\"type\":\"function\",\"function\":{\"name\":\"cat\",\"arguments\":\"{\\\"p\\\":\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{}\"}},{\"index\":1,\"function\":{\"arguments\":\" 1}\"}}]}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
        "data: [DONE]\n\n",
    );
    let done = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Seen.\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let canned = Canned::start(vec![Canned::events(stream), Canned::events(done)]).await;
    let dir = tempfile::tempdir().unwrap();
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let host = host_of(memory, dir.path(), to(&canned.url, given())).await;
    let data = "QUJD".repeat(200);
    let picture = json!({"role": "user", "content": [{"type": "text", "text": "what is this?"},
        {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}}]});
    let body = body_of(Protocol::OpenAi, std::slice::from_ref(&picture), true);
    let (answer, is_whole) = self::stream(&host, OPENAI, &[], &body).await;
    assert!(is_whole);
    assert_eq!(answer.text, stream);
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    // Keys in another order, arguments in another spelling, fields that were null left out.
    let history = [
        picture,
        json!({"role": "assistant", "tool_calls": [call("a", "ls", "{ }"), call("b", "cat", "{\"p\":1}")]}),
        json!({"role": "tool", "tool_call_id": "a", "content": "x"}),
        json!({"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "y"}]}),
    ];
    let (again, _) =
        self::stream(&host, OPENAI, &[], &body_of(Protocol::OpenAi, &history, true)).await;
    assert_eq!(again.header("x-icecore-following"), Some("continues"), "{again:?}");
    assert_eq!(session_of(&again), session_of(&answer));
    let sent = canned.heads.lock().unwrap().clone();
    assert!(sent.iter().all(|sent| sent.contains(&data)), "the picture goes on as it came");
    let kept = turns(&host, &session_of(&answer)).await;
    assert_eq!(kept.len(), 5, "{kept:?}");
    assert!(kept[0].to_string().contains("[image/png, 600 bytes, sha256:"));
    assert!(!kept[0].to_string().contains(&data));
    assert_eq!(kept[1]["toolCalls"][1]["function"]["arguments"], "{\"p\": 1}");
    assert_eq!(kept[2]["toolCallId"], "a");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thoughts_come_back_unchanged_and_need_not_be_sent_again() {
    let events = |blocks: &[Value]| {
        let mut text = String::from(
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"c-1\",\"usage\":{\"input_tokens\":9}}}\n\n",
        );
        for (at, block) in blocks.iter().enumerate() {
            let start = json!({"type": "content_block_start", "index": at, "content_block": block});
            let stop = json!({"type": "content_block_stop", "index": at});
            text.push_str(&format!("event: content_block_start\ndata: {start}\n\nevent: content_block_stop\ndata: {stop}\n\n"));
        }
        text.push_str("event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
        Canned::events(&text)
    };
    let thought = json!({"type": "thinking", "thinking": "hm", "signature": "c2ln"});
    let said = json!({"type": "text", "text": "Forty-two."});
    let canned = Canned::start(vec![
        events(&[thought.clone(), said.clone()]),
        events(std::slice::from_ref(&said)),
        events(std::slice::from_ref(&said)),
    ])
    .await;
    let dir = tempfile::tempdir().unwrap();
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let host = host_of(memory, dir.path(), to(&canned.url, given())).await;
    let first = body_of(Protocol::Anthropic, &[user("why?")], true);
    let (answer, _) = stream(&host, ANTHROPIC, &[], &first).await;
    let session = session_of(&answer);
    assert!(answer.text.contains("c2ln"));
    let kept = turns(&host, &session).await;
    assert_eq!(kept[1]["content"], json!([thought, said]));
    assert_eq!(kept[1]["model"], "c-1");
    for reply in [json!([thought, said]), json!([said])] {
        let history = [user("why?"), json!({"role": "assistant", "content": reply}), user("sure?")];
        let (answer, _) =
            stream(&host, ANTHROPIC, &[], &body_of(Protocol::Anthropic, &history, true)).await;
        assert_eq!(session_of(&answer), session);
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_counts_of_the_provider_pass_through() {
    let bench = Bench::new(Protocol::OpenAi).await;
    let models = bench.host.ask("GET", "/openai/v1/models", &[], "").await;
    assert_eq!((models.status, models.json()["data"][0]["id"].as_str()), (200, Some("scripted")));
    let body = body_of(Protocol::Anthropic, &[user("hello")], false);
    let counted = bench.host.ask("POST", "/anthropic/v1/messages/count_tokens", &[], &body).await;
    assert_eq!((counted.status, counted.text.as_str()), (200, r#"{"input_tokens":5}"#));
    assert_eq!(bench.host.get("/sessions").await.json()["sessions"], json!([]));
    bench.host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_providers_key_is_shown_and_ours_never() {
    for protocol in BOTH {
        let key = Some(UPSTREAM_KEY.to_owned());
        let config = UpstreamConfig { protocol, key, ..UpstreamConfig::default() };
        let bench = Bench::with(config, |_| ()).await;
        let body = body_of(protocol, &[user("hello")], false);
        let bearer = format!("Bearer {}", bench.host.key);
        let ours = bench.host.key.clone();
        let ways: Vec<Vec<(&str, &str)>> = match protocol {
            Protocol::OpenAi => vec![vec![("Authorization", &bearer)]],
            Protocol::Anthropic => vec![
                vec![("Authorization", &bearer)],
                vec![("Authorization", ""), ("x-api-key", &ours)],
            ],
        };
        for mut headers in ways {
            headers.extend([("Idempotency-Key", "mine"), ("anthropic-version", "2023-06-01")]);
            headers.extend([("X-Icecore-Session", "s"), ("X-Icecore-Memory", "m")]);
            let (answer, _) = bench.ask_with(&headers, &body).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let sent = bench.upstream.requests().pop().unwrap();
            assert!(!format!("{sent:?}").contains(&ours), "{sent:?}");
            assert!(
                !sent.headers.iter().any(|(name, _)| name.starts_with("x-icecore")),
                "{sent:?}"
            );
            assert_eq!(sent.header("idempotency-key"), Some("mine"));
            assert_eq!(sent.header("anthropic-version"), Some("2023-06-01"));
            assert_eq!(sent.header("accept-encoding"), Some("identity"));
            let shown = match protocol {
                Protocol::OpenAi => format!("{:?}", sent.header("authorization")),
                Protocol::Anthropic => format!("{:?}", sent.header("x-api-key")),
            };
            assert!(shown.contains(UPSTREAM_KEY), "{shown}");
        }
        let found = bench.host.get("/sessions/s/turns?memoryRef=m").await.json();
        assert_eq!(found["turns"].as_array().unwrap().len(), 2, "{found}");
        bench.host.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_key_is_refused_in_the_providers_words() {
    for protocol in BOTH {
        let bench = Bench::new(protocol).await;
        let body = body_of(protocol, &[user("hello")], false);
        let reader = format!("Bearer {}", bench.host.key_of("default", Role::Reader).await);
        let cases: [(&str, u16, &str); 3] = [
            ("", 401, "authentication_error"),
            ("Bearer nonsense", 401, "authentication_error"),
            (&reader, 403, "permission_error"),
        ];
        for (key, status, kind) in cases {
            let (answer, _) = bench.ask_with(&[("Authorization", key)], &body).await;
            assert_eq!(
                (answer.status, answer.json()["error"]["type"].as_str()),
                (status, Some(kind)),
                "{answer:?}"
            );
            assert!(answer.json()["error"]["message"].is_string());
            if protocol == Protocol::Anthropic {
                assert_eq!(answer.json()["type"], "error");
            }
        }
        assert_eq!(bench.upstream.request_count(), 0);
        bench.host.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_provider_it_is_said_what_to_set() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path()).await;
    for protocol in BOTH {
        let (answer, _) = stream(&host, route(protocol), &[], "{}").await;
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, error["code"].as_str()), (503, Some("upstream_not_configured")));
        let setting = format!("proxy.{}_url", protocol.as_str());
        assert!(error["message"].as_str().unwrap().contains(&setting), "{error}");
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_have_providers_keys_and_sessions_of_their_own() {
    let usual = Upstream::start(UpstreamConfig {
        key: Some(UPSTREAM_KEY.to_owned()),
        ..UpstreamConfig::default()
    })
    .await;
    let own = Upstream::start(UpstreamConfig {
        key: Some("second-value-of-acme".to_owned()),
        ..UpstreamConfig::default()
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let mut options = to(&usual.url(), given());
    let provider = UpstreamOptions {
        url: Some(own.url()),
        key: UpstreamKey::Secret("llm".to_owned()),
        ..UpstreamOptions::default()
    };
    let acme = TenantUpstreams { openai: provider, ..TenantUpstreams::default() };
    options.tenants.insert("acme".to_owned(), acme);
    let host = host_of(memory.clone(), dir.path(), options).await;
    let (one, two) =
        (host.key_of("other", Role::Writer).await, host.key_of("acme", Role::Writer).await);
    let ask = async |key: &str, messages: &[Value]| {
        let bearer = format!("Bearer {key}");
        stream(
            &host,
            OPENAI,
            &[("Authorization", &bearer)],
            &body_of(Protocol::OpenAi, messages, false),
        )
        .await
        .0
    };
    let tenant = Tenant::new("acme").unwrap();
    let missing = ask(&two, &[user("hello")]).await;
    assert_eq!(
        (missing.status, missing.json()["error"]["code"].as_str()),
        (503, Some("upstream_key_missing"))
    );
    // A value that is replaced while the host runs is the one that is shown.
    for value in ["first-value-of-acme", "second-value-of-acme"] {
        memory.add_secret(&tenant, "llm", value.to_owned().into(), true).await.unwrap();
    }
    let history = [user("hello"), assistant("Understood. I will go on."), user("more")];
    let mut sessions = Vec::new();
    for key in [&one, &two] {
        let first = ask(key, &history[..1]).await;
        assert_eq!(first.status, 200, "{first:?}");
        let second = ask(key, &history).await;
        assert_eq!(session_of(&second), session_of(&first));
        sessions.push(session_of(&second));
    }
    assert_ne!(sessions[0], sessions[1]);
    assert_eq!((usual.request_count(), own.request_count()), (2, 2));
    for (key, session) in [(&one, &sessions[1]), (&two, &sessions[0])] {
        assert_eq!(
            host.by(key, "GET", &format!("/sessions/{session}/turns"), "").await.status,
            404
        );
    }
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn alone_the_clients_own_key_goes_on_and_is_kept_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let key = "client-key-5b1c7e9f".to_owned();
    let upstream =
        Upstream::start(UpstreamConfig { key: Some(key.clone()), ..UpstreamConfig::default() })
            .await;
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let principal = Principal::local_operator(Tenant::new("default").unwrap());
    let alone = Alone { principal: principal.clone(), memory: "default".to_owned() };
    let options = ServerOptions {
        proxy: to(&upstream.url(), UpstreamKey::Callers),
        ..ServerOptions::default()
    };
    let host = Host::alone(memory.clone(), alone, options).await;
    let bearer = format!("Bearer {key}");
    let body = body_of(Protocol::OpenAi, &[user("hello")], true);
    let (answer, is_whole) = stream(&host, OPENAI, &[("Authorization", &bearer)], &body).await;
    assert!(is_whole && answer.status == 200, "{answer:?}");
    // Whatever we do not know passes untouched.
    let other =
        host.ask("GET", "/openai/v1/models?limit=2", &[("Authorization", &bearer)], "").await;
    assert_eq!(other.status, 404, "the scripted provider knows no query: {other:?}");
    let models = host.ask("GET", "/openai/v1/models", &[("Authorization", &bearer)], "").await;
    assert_eq!(models.status, 200);
    let elsewhere =
        host.ask("GET", "/v1/host/icecore/sessions", &[("Authorization", &bearer)], "").await;
    assert_eq!(elsewhere.status, 404);
    assert!(elsewhere.text.contains("/openai/v1/"), "{elsewhere:?}");
    // The provider repeats a wrong key to whom it belongs, and we keep it as little.
    let wrong = format!("Bearer wrong-{key}");
    let (denied, _) = stream(&host, OPENAI, &[("Authorization", &wrong)], &body).await;
    assert_eq!(denied.status, 401);
    let scope = memory.scope(&principal, "default").await.unwrap();
    let turns = memory.turns(&scope, &session_of(&answer), icecore::Seq(0), 10).await.unwrap();
    assert_eq!(turns.len(), 2);
    host.stop().await;
    drop(memory);
    for entry in std::fs::read_dir(dir.path()).unwrap().flatten() {
        let Ok(bytes) = std::fs::read(entry.path()) else { continue };
        let is_there = bytes.windows(key.len()).any(|window| window == key.as_bytes());
        assert!(!is_there, "{:?}", entry.path());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_understood_goes_through_untouched() {
    let bench = Bench::new(Protocol::OpenAi).await;
    let cases = [
        ("not json at all", "not-json"),
        (r#"{"input":"hello"}"#, "no-messages"),
        (r#"{"messages":[{"role":"oracle","content":"x"}]}"#, "unknown-role"),
        (r#"{"messages":[{"role":"user","content":{"odd":1}}]}"#, "unknown-shape"),
    ];
    for (body, reason) in cases {
        let answer = bench.ask(body).await;
        assert_eq!(answer.header("x-icecore-passthrough"), Some(reason), "{answer:?}");
        assert_eq!(answer.header("x-icecore-session"), None);
        assert_eq!(bench.upstream.requests().pop().unwrap().body, body.as_bytes());
    }
    let large = user(&"x".repeat((1 << 20) + 1));
    let answer = bench.ask(&body_of(Protocol::OpenAi, &[large], false)).await;
    assert_eq!(answer.header("x-icecore-warning"), Some("message-too-large"), "{answer:?}");
    assert_eq!(bench.host.get("/sessions").await.json()["sessions"], json!([]));
    bench.host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_hidden_upstream_where_that_is_set() {
    let token = format!("ghp_{}", "a1B2".repeat(9));
    for is_hidden in [false, true] {
        let bench = Bench::with(UpstreamConfig::default(), |options| {
            options.proxy.redact_upstream = is_hidden;
        })
        .await;
        let answer =
            bench.ask(&body_of(Protocol::OpenAi, &[user(&format!("it is {token}"))], false)).await;
        let sent = bench.upstream.requests().pop().unwrap();
        let sent = String::from_utf8(sent.body).unwrap();
        assert_eq!(sent.contains(&token), !is_hidden, "{sent}");
        assert_eq!(sent.contains("it is [REDACTED:github-token]"), is_hidden);
        // What is kept never has it.
        let kept = bench.turns(&session_of(&answer)).await;
        assert_eq!(kept[0]["content"], "it is [REDACTED:github-token]");
        // What is not understood is looked through all the same.
        let answer = bench.ask(&format!("odd {token}")).await;
        assert_eq!(answer.header("x-icecore-passthrough"), Some("not-json"));
        let sent = bench.upstream.requests().pop().unwrap();
        assert_eq!(String::from_utf8(sent.body).unwrap().contains(&token), !is_hidden);
        bench.host.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn figures_tell_what_the_proxy_did() {
    let bench = Bench::new(Protocol::OpenAi).await;
    bench.ask(&body_of(Protocol::OpenAi, &[user("hello")], true)).await;
    bench.upstream.push(Behaviour::Fail(500));
    bench.ask(&body_of(Protocol::OpenAi, &[user("hello")], true)).await;
    let figures = bench.host.ask("GET", "/metrics", &[], "").await.text;
    for line in [
        "icecore_proxy_requests_total{protocol=\"openai\",outcome=\"answered\"} 1",
        "icecore_proxy_requests_total{protocol=\"openai\",outcome=\"refused\"} 1",
        "icecore_proxy_upstream_duration_seconds_count{protocol=\"openai\"} 2",
        "icecore_proxy_compactions_total 0",
        "icecore_proxy_streams 0",
    ] {
        assert!(figures.lines().any(|found| found == line), "{line}: {figures}");
    }
    bench.host.stop().await;
}
