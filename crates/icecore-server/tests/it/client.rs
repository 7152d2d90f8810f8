//! A small HTTP client and a host to talk to.
//!
//! Written by hand rather than taken from a crate: half of these tests send what
//! no well-behaved client can be made to send.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use icecore::models::Protocol;
use icecore::{Clock, Memory, Millis, Tenant};
use icecore_host::HostSettings;
use icecore_models::testing::{AnswerBy, Upstream, UpstreamConfig};
use icecore_server::{
    Alone, Limits, ProxyOptions, Role, ServerOptions, TenantUpstreams, UpstreamOptions, create_key,
    ensure_admin_key, serve, serve_proxy,
};
use serde_json::Value;
use tokio::sync::oneshot;

pub(crate) const API: &str = "/v1/host/icecore";

/// A running host.
pub(crate) struct Host {
    pub(crate) address: SocketAddr,
    pub(crate) key: String,
    pub(crate) memory: Memory,
    /// What is served.
    pub(crate) served: icecore_host::Host,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
}

/// A clock that moves by hand.
pub(crate) struct HandClock(AtomicI64);

impl HandClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(1_700_000_000_000)))
    }

    pub(crate) fn advance(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Millis {
        Millis(self.0.load(Ordering::SeqCst))
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn code(&self) -> String {
        let json = self.json();
        assert_eq!(self.header("content-type"), Some("application/json"));
        if let Some(error) = json["error"].as_object() {
            // In a provider's words.
            assert!(!error["message"].as_str().unwrap_or_default().is_empty(), "{self:?}");
            assert!(error["type"].is_string(), "{self:?}");
            return format!("{} {}", self.status, error["code"].as_str().unwrap());
        }
        assert!(!json["message"].as_str().unwrap_or_default().is_empty(), "{self:?}");
        let known = ["error", "message", "details"];
        assert!(json.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())));
        format!("{} {}", self.status, json["error"].as_str().unwrap())
    }
}

/// Runs what blocks away from the threads that serve.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

impl Host {
    pub(crate) async fn start(dir: &Path) -> Host {
        Host::with(dir, Limits::default()).await
    }

    pub(crate) async fn with(dir: &Path, limits: Limits) -> Host {
        Host::of(crate::place::open(Memory::builder(), dir).await, dir, limits).await
    }

    pub(crate) async fn over(memory: Memory, dir: &Path) -> Host {
        Host::of(memory, dir, Limits::default()).await
    }

    async fn of(memory: Memory, dir: &Path, limits: Limits) -> Host {
        Host::on("127.0.0.1:0", memory, dir, limits).await
    }

    /// As the others, and listening there.
    pub(crate) async fn on(listen: &str, memory: Memory, dir: &Path, limits: Limits) -> Host {
        Host::serving(listen, memory.into(), dir, limits).await
    }

    /// As the others, with other settings of the protocol.
    pub(crate) async fn behaving(memory: Memory, dir: &Path, settings: HostSettings) -> Host {
        let served = icecore_host::Host::open(memory, settings).unwrap();
        Host::serving("127.0.0.1:0", served, dir, Limits::default()).await
    }

    /// As the others, over a host of the protocol.
    pub(crate) async fn serving(
        listen: &str,
        served: icecore_host::Host,
        dir: &Path,
        limits: Limits,
    ) -> Host {
        let options = ServerOptions { limits, ..ServerOptions::default() };
        Host::optioned(listen, served, dir, options).await
    }

    /// As the others, with other options.
    pub(crate) async fn optioned(
        listen: &str,
        served: icecore_host::Host,
        dir: &Path,
        options: ServerOptions,
    ) -> Host {
        let (memory, behind) = (served.memory.clone(), served.clone());
        let key = ensure_admin_key(&memory, dir).await.unwrap();
        let key = std::fs::read_to_string(key.path).unwrap().trim().to_owned();
        let listener = tokio::net::TcpListener::bind(listen).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let until = async {
                let _ = stopped.await;
            };
            serve(served, listener, options, until).await.unwrap();
        });
        Host { address, key, memory, served: behind, stop: Some(stop), task }
    }

    /// The proxy alone, without a host around it.
    pub(crate) async fn alone(memory: Memory, alone: Alone, options: ServerOptions) -> Host {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = icecore_host::Host::from(memory.clone());
        let behind = served.clone();
        let task = tokio::spawn(async move {
            let until = async {
                let _ = stopped.await;
            };
            serve_proxy(served, alone, listener, options, until).await.unwrap();
        });
        let key = String::new();
        Host { address, key, memory, served: behind, stop: Some(stop), task }
    }

    /// As [`Host::call`], with another key.
    pub(crate) async fn by(&self, key: &str, method: &str, path: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {key}");
        self.call(method, path, &[("Authorization", &bearer)], Some(body)).await
    }

    /// A key of some tenant and role.
    pub(crate) async fn key_of(&self, tenant: &str, role: Role) -> String {
        create_key(&self.memory, &Tenant::new(tenant).unwrap(), role).await.unwrap().key
    }

    /// Asks it to stop, and does not wait.
    pub(crate) fn begin_to_stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(self) {
        tokio::time::timeout(Duration::from_secs(20), self.task).await.unwrap().unwrap();
    }

    pub(crate) async fn stop(mut self) {
        self.begin_to_stop();
        self.ended().await;
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], None).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.call("POST", path, &[], Some(body)).await
    }

    /// A request under [`API`] with the admin key and the usual headers, unless
    /// `headers` say otherwise.
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Answer {
        let path = format!("{API}{path}");
        self.raw(&self.request(method, &path, headers, body.unwrap_or_default().as_bytes())).await
    }

    /// As [`Host::call`], under a path of its own.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.raw(&self.request(method, path, headers, body.as_bytes())).await
    }

    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Vec<u8> {
        let bearer = format!("Bearer {}", self.key);
        let (host, length) = (self.address.to_string(), body.len().to_string());
        let mut all = vec![("Host", host.as_str()), ("Authorization", bearer.as_str())];
        all.push(("Connection", "close"));
        if matches!(method, "POST" | "PUT") {
            all.push(("Content-Type", "application/json"));
            all.push(("Content-Length", length.as_str()));
        }
        all.retain(|(name, _)| !headers.iter().any(|(given, _)| given == name));
        // An empty value leaves a header out.
        all.extend(headers.iter().filter(|(_, value)| !value.is_empty()));
        let mut request = format!("{method} {path} HTTP/1.1\r\n");
        for (name, value) in all {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut request = format!("{request}\r\n").into_bytes();
        request.extend_from_slice(body);
        request
    }

    /// Sends bytes as they are and reads one answer.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Answer {
        let (address, bytes) = (self.address, bytes.to_vec());
        apart(move || {
            let mut stream = connect(address);
            stream.write_all(&bytes).unwrap();
            read_answer(stream)
        })
        .await
    }

    /// Waits until nothing is due.
    pub(crate) async fn settled(&self) {
        for _ in 0..500 {
            if self.get("/stats").await.json()["pending"] == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("derived work never ended");
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

pub(crate) fn read_answer(stream: TcpStream) -> Answer {
    let mut reader = BufReader::new(stream);
    let head = read_head(&mut reader);
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap();
    let mut answer = Answer { status, head, text: String::new() };
    let length: usize = answer.header("content-length").unwrap_or("0").parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    answer.text = String::from_utf8(body).unwrap();
    answer
}

/// An answer that may come in chunks, and whether it came to its end.
pub(crate) fn read_stream(stream: TcpStream) -> (Answer, bool) {
    let mut reader = BufReader::new(stream);
    let head = read_head(&mut reader);
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap();
    let mut answer = Answer { status, head, text: String::new() };
    if answer.header("transfer-encoding") != Some("chunked") {
        let length: usize = answer.header("content-length").unwrap_or("0").parse().unwrap();
        let mut body = Vec::new();
        let _ = reader.take(length as u64).read_to_end(&mut body);
        let is_whole = body.len() == length;
        answer.text = String::from_utf8(body).unwrap();
        return (answer, is_whole);
    }
    let mut body = Vec::new();
    let is_whole = read_chunks(&mut reader, &mut body).is_some();
    answer.text = String::from_utf8(body).unwrap();
    (answer, is_whole)
}

/// Reads chunks up to the last; none if the connection ends before it.
pub(crate) fn read_chunks(reader: &mut impl BufRead, body: &mut Vec<u8>) -> Option<()> {
    while let size @ 1.. = read_chunk(reader, body)? {
        assert!(size < 1 << 30);
    }
    Some(())
}

/// Reads one chunk; its size.
pub(crate) fn read_chunk(reader: &mut impl BufRead, body: &mut Vec<u8>) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let size = usize::from_str_radix(line.trim_end(), 16).ok()?;
    let mut chunk = vec![0; size + 2];
    reader.read_exact(&mut chunk).ok()?;
    body.extend_from_slice(&chunk[..size]);
    Some(size)
}

pub(crate) fn read_head(reader: &mut impl BufRead) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "the connection ended: {head}");
    }
    head
}

/// A host over a fresh directory.
pub(crate) async fn fresh() -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::start(dir.path()).await;
    (dir, host)
}

/// The same, as for a conformance run.
pub(crate) async fn in_conformance() -> (tempfile::TempDir, Host) {
    let settings = HostSettings { conformance: true, ..HostSettings::default() };
    behaving(settings).await
}

/// A host over a fresh directory, with other settings of the protocol.
pub(crate) async fn behaving(settings: HostSettings) -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().unwrap();
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let host = Host::behaving(memory, dir.path(), settings).await;
    (dir, host)
}

/// The same, with providers behind its proxy that repeat what they were told last.
pub(crate) async fn with_providers() -> (tempfile::TempDir, Host, [Upstream; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let answer: AnswerBy = Arc::new(|request| {
        let last = request.messages().last().map(|last| last["content"].to_string());
        format!("You said {}", last.unwrap_or_default())
    });
    let of = |protocol| UpstreamConfig {
        protocol,
        answer: Arc::clone(&answer),
        counts_answer: false,
        ..UpstreamConfig::default()
    };
    let openai = Upstream::start(of(Protocol::OpenAi)).await;
    let anthropic = Upstream::start(of(Protocol::Anthropic)).await;
    let provider = |upstream: &Upstream| UpstreamOptions {
        url: Some(upstream.url()),
        ..UpstreamOptions::default()
    };
    let upstreams = TenantUpstreams { openai: provider(&openai), anthropic: provider(&anthropic) };
    let proxy = ProxyOptions { upstreams, ..ProxyOptions::default() };
    let options = ServerOptions { proxy, ..ServerOptions::default() };
    let settings = HostSettings { conformance: true, ..HostSettings::default() };
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let served = icecore_host::Host::open(memory, settings).unwrap();
    let host = Host::optioned("127.0.0.1:0", served, dir.path(), options).await;
    (dir, host, [openai, anthropic])
}
