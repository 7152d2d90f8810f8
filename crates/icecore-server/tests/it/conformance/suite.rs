//! A host for conformance runs, the keys to it, and the small moves that many tests
//! share.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use icecore::privacy::Redactor;
use icecore::{Clock, Memory, Millis};
use icecore_host::HostSettings;
use icecore_server::Role;
use serde_json::{Value, json};

use super::shape::{Kind, fits};
use crate::client::{API, Answer, HandClock, Host, apart, connect, in_conformance};

pub(crate) const DISCOVERY: &str = "/.well-known/openwop";
pub(crate) const FILES: &str = "/v1/host/workspace/files";
pub(crate) const NOOP: &str = "conformance-noop";
pub(crate) const NO_RUN: &str = "00000000-0000-4000-8000-000000000000";

/// A word that stands in every dummy secret, so that a part of one is found too.
pub(crate) const MARK: &str = "tatzelwurm-is-no-secret";

/// How often, and how many times, something is looked for that takes a moment.
const LOOK: (Duration, usize) = (Duration::from_millis(20), 500);

pub(crate) struct Suite {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) host: Host,
    /// A writer's key of another tenant.
    pub(crate) other: String,
    /// A key of the same tenant that reads and no more.
    pub(crate) reader: String,
}

impl Suite {
    pub(crate) async fn begin() -> Self {
        let (dir, host) = in_conformance().await;
        Self::over(dir, host).await
    }

    /// One whose time moves by hand.
    pub(crate) async fn timed() -> (Arc<HandClock>, Self) {
        let (dir, clock) = (tempfile::tempdir().unwrap(), HandClock::new());
        let shared: Arc<dyn Clock> = Arc::clone(&clock) as Arc<dyn Clock>;
        let memory = crate::place::open(Memory::builder().clock(shared), dir.path()).await;
        let settings = HostSettings { conformance: true, ..HostSettings::default() };
        let host = Host::behaving(memory, dir.path(), settings).await;
        (clock, Self::over(dir, host).await)
    }

    async fn over(dir: tempfile::TempDir, host: Host) -> Self {
        let other = host.key_of("other", Role::Writer).await;
        let reader = host.key_of("default", Role::Reader).await;
        Self { dir, host, other, reader }
    }

    pub(crate) async fn end(self) {
        self.host.stop().await;
        drop(self.dir);
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.host.ask("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.host.ask("POST", path, &[], &body.to_string()).await
    }

    /// With another key; an empty one is none.
    pub(crate) async fn by(&self, key: &str, method: &str, path: &str, body: Value) -> Answer {
        let bearer = if key.is_empty() { String::new() } else { format!("Bearer {key}") };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.host.ask(method, path, &[("Authorization", &bearer)], &body).await
    }

    pub(crate) async fn document(&self) -> Value {
        self.by("", "GET", DISCOVERY, Value::Null).await.json()
    }

    // Runs

    /// Makes a run and follows it to its end.
    pub(crate) async fn run(&self, workflow: &str, more: Value) -> Value {
        let mut body = json!({ "workflowId": workflow });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let created = self.post("/v1/runs", body).await;
        assert_eq!(created.status, 201, "{created:?}");
        self.ended(text(&created.json(), "runId")).await
    }

    /// A run that ended.
    pub(crate) async fn ended(&self, id: &str) -> Value {
        for _ in 0..LOOK.1 {
            let run = self.get(&format!("/v1/runs/{id}")).await.json();
            if ["completed", "failed", "cancelled"].contains(&text(&run, "status")) {
                return run;
            }
            tokio::time::sleep(LOOK.0).await;
        }
        panic!("run {id} never ended");
    }

    /// What a run that completes leaves behind.
    pub(crate) async fn variables(&self, workflow: &str) -> Value {
        let run = self.run(workflow, json!({})).await;
        assert_eq!(run["status"], "completed", "{run}");
        run["variables"].clone()
    }

    pub(crate) async fn events(&self, run: &str) -> Vec<Value> {
        list(&self.get(&format!("/v1/runs/{run}/events")).await.json(), "events")
    }

    /// The events of a run that tell of writes.
    pub(crate) async fn writes(&self, run: &str) -> Vec<Value> {
        let events = self.events(run).await;
        events.into_iter().filter(|event| event["type"] == "memory.written").collect()
    }

    /// The events of a run as a stream, to its end.
    pub(crate) async fn stream(&self, run: &str, headers: &[(&str, &str)]) -> (String, String) {
        let headers = [&[("Accept", "text/event-stream")], headers].concat();
        let request = self.host.request("GET", &format!("/v1/runs/{run}/events"), &headers, b"");
        let address = self.host.address;
        let all = apart(move || {
            let mut stream = connect(address);
            stream.write_all(&request).unwrap();
            let mut all = String::new();
            stream.read_to_string(&mut all).unwrap();
            all
        })
        .await;
        let (head, body) = all.split_once("\r\n\r\n").unwrap();
        let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
        let body = if is_chunked { unchunked(body) } else { body.to_owned() };
        (head.to_owned(), body)
    }

    // Entries

    pub(crate) async fn put(&self, memory: &str, content: &str) -> Value {
        self.put_as(memory, json!({ "content": content })).await
    }

    pub(crate) async fn put_as(&self, memory: &str, mut entry: Value) -> Value {
        entry["memoryRef"] = json!(memory);
        let answer = self.post(&format!("{API}/entries"), entry).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()
    }

    pub(crate) async fn entry(&self, memory: &str, id: &str) -> Answer {
        self.get(&format!("{API}/entries/{}?memoryRef={}", percent(id), percent(memory))).await
    }

    pub(crate) async fn entries(&self, memory: &str) -> Answer {
        self.get(&format!("{API}/entries?memoryRef={}", percent(memory))).await
    }

    /// Plants entries and compacts them, through the seams.
    pub(crate) async fn compacted(&self, memory: &str, contents: &[&str]) -> Value {
        self.plant(memory, contents).await;
        let answer = self.post("/v1/test/memory/compact", json!({ "memoryRef": memory })).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    pub(crate) async fn plant(&self, memory: &str, contents: &[&str]) {
        let entries: Vec<Value> = contents
            .iter()
            .enumerate()
            .map(|(n, content)| json!({"id": format!("planted-{n}"), "content": content}))
            .collect();
        let body = json!({ "memoryRef": memory, "entries": entries });
        let planted = self.post("/v1/test/memory/seed", body).await;
        assert_eq!(planted.status, 201, "{planted:?}");
    }

    // Files

    pub(crate) async fn file(&self, method: &str, path: &str, content: &str) -> Answer {
        let body = if method == "PUT" { json!({ "content": content }) } else { Value::Null };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.host.ask(method, &format!("{FILES}/{}", percent(path)), &[], &body).await
    }

    // The log

    /// All that a key's tenant is told of a memory, or of all of them.
    pub(crate) async fn log(&self, key: &str, memory: Option<&str>) -> Vec<Value> {
        let scope = memory.map(|name| format!("&memoryRef={}", percent(name))).unwrap_or_default();
        let (mut after, mut all) = (0, Vec::new());
        loop {
            let path = format!("{API}/events?after={after}{scope}");
            let page = list(&self.by(key, "GET", &path, Value::Null).await.json(), "events");
            let Some(last) = page.last() else { return all };
            after = last["seq"].as_u64().unwrap();
            all.extend(page);
        }
    }

    /// What the log has of one kind, of a memory of ours.
    pub(crate) async fn told(&self, kind: &str, memory: &str) -> Vec<Value> {
        let log = self.log(&self.host.key, Some(memory)).await;
        let of_kind = log.into_iter().filter(|event| event["type"] == kind);
        of_kind.map(|event| event["payload"].clone()).collect()
    }

    /// Whether a search finds it, sooner or later.
    pub(crate) async fn finds(&self, body: &Value, word: &str) -> bool {
        for _ in 0..LOOK.1 {
            if self.post(&format!("{API}/search"), body.clone()).await.text.contains(word) {
                return true;
            }
            tokio::time::sleep(LOOK.0).await;
        }
        false
    }
}

/// The body of an answer that came in pieces.
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        whole.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
    whole
}

pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no text `{name}` in {value}"))
}

pub(crate) fn list(value: &Value, name: &str) -> Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("no list `{name}` in {value}")).clone()
}

/// A member of each in a list.
pub(crate) fn each<'a>(rows: &'a [Value], name: &str) -> Vec<&'a str> {
    rows.iter().map(|row| text(row, name)).collect()
}

pub(crate) fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

pub(crate) fn is_marked(text: &str) -> bool {
    let after = text.split_once("[REDACTED:").map(|(_, rest)| rest);
    after.and_then(|rest| rest.split_once(']')).is_some_and(|(id, _)| !id.is_empty())
}

/// Neither in the body nor in a header.
pub(crate) fn lacks(answer: &Answer, needles: &[&str]) {
    for needle in needles {
        let is_shown = answer.text.contains(needle) || answer.head.contains(needle);
        assert!(!is_shown, "it shows {needle}: {answer:?}");
    }
}

/// An error in the one envelope, with such a status.
pub(crate) fn refused(answer: &Answer, statuses: &[u16]) {
    assert!(statuses.contains(&answer.status), "{answer:?}");
    answer.code();
    let envelope = Kind::Closed(&[
        ("error", Kind::Word),
        ("message", Kind::Word),
        ("details?", Kind::Open(&[("correlationId?", Kind::Word)])),
    ]);
    fits(&envelope, &answer.json());
    let code = answer.json()["error"].as_str().unwrap().to_owned();
    assert!(code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{code}");
}

pub(crate) fn moment(text: &str) -> Millis {
    Millis::parse_rfc3339(text).unwrap_or_else(|_| panic!("no moment: {text}"))
}

/// What looks like a signed token and is none.
pub(crate) fn dummy_jwt() -> String {
    let part = |json: &str| URL_SAFE_NO_PAD.encode(json);
    [part(r#"{"alg":"none"}"#), part(r#"{"dummy":1}"#), format!("{MARK}-sig")].join(".")
}

/// What looks like the name of a credential and is none.
pub(crate) fn dummy_credential() -> String {
    ["cred", MARK, "opaque"].join("_")
}

/// A key of a provider's shape with the mark in it.
pub(crate) fn dummy_key(provider: &str) -> String {
    ["sk", provider, MARK, "aB3dE5fG7hJ9kL"]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}

/// A token that the redactor knows by its shape.
pub(crate) fn token(seed: u64) -> String {
    Redactor::kinds().iter().find(|kind| kind.id == "github-token").unwrap().sample(seed)
}
