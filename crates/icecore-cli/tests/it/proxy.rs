//! The proxy alone, as the command line starts and ends it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use icecore_models::testing::{Upstream, UpstreamConfig};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::run::{Place, files};
use crate::signals::signal;

/// The key of the client, which is nobody else's business.
const KEY: &str = "client-key-77d1f0c3e5";

struct Running {
    child: Child,
    address: String,
    first: Value,
}

/// Starts it in front of `upstream`, with all that can be logged written to a file.
fn start(place: &Place, upstream: &str, more: &[&str]) -> Running {
    let log = std::fs::File::create(place.dir.path().join("log")).unwrap();
    let args = ["proxy", "--upstream", upstream, "--listen", "127.0.0.1:0", "--json"];
    let mut command = place.command(&[&args, more].concat());
    let command = command.env("ICECORE_LOG", "trace").stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let first: Value = serde_json::from_str(&line).unwrap();
    let address = first["listening"].as_str().unwrap().trim_start_matches("http://").to_owned();
    Running { child, address, first }
}

impl Running {
    fn chat(&self, messages: &Value) -> String {
        let body =
            json!({"model": "scripted", "max_tokens": 100, "messages": messages}).to_string();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let (address, length) = (&self.address, body.len());
        let request = format!(
            "POST /openai/v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {KEY}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn end(mut self) {
        signal(&self.child, "TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

fn upstream(runtime: &Runtime, config: UpstreamConfig) -> Upstream {
    runtime.block_on(Upstream::start(config))
}

#[test]
fn it_hands_chats_on_keeps_them_and_ends_well() {
    let runtime = Runtime::new().unwrap();
    let config = UpstreamConfig { key: Some(KEY.to_owned()), ..UpstreamConfig::default() };
    let upstream = upstream(&runtime, config);
    let place = Place::new();
    let running = start(&place, &upstream.url(), &[]);
    let urls = &running.first["baseUrls"];
    assert_eq!(urls["openai"], format!("http://{}/openai/v1", running.address));
    assert_eq!(urls["anthropic"], format!("http://{}/anthropic", running.address));
    let first = running.chat(&json!([{"role": "user", "content": "The hut is at 2,310 metres."}]));
    assert!(first.starts_with("HTTP/1.1 200"), "{first}");
    let history = json!([
        {"role": "user", "content": "The hut is at 2,310 metres."},
        {"role": "assistant", "content": "Understood. I will go on."},
        {"role": "user", "content": "And the pass?"},
    ]);
    let second = running.chat(&history);
    assert!(second.contains("x-icecore-following: continues"), "{second}");
    // The command line sees what went through, beside the running proxy.
    let sessions = place.json(&["sessions"]);
    assert_eq!(sessions["sessions"][0]["turns"], 4, "{sessions}");
    let found = place.json(&["search", "how high is the hut"]);
    assert!(found.to_string().contains("2,310"), "{found}");
    running.end();
    place.check();
    for file in files(place.dir.path()) {
        let bytes = std::fs::read(&file).unwrap();
        let is_there = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
        assert!(!is_there, "{} holds the client's key", file.display());
    }
}

#[test]
fn another_tenant_and_memory_and_a_small_window_can_be_named() {
    let runtime = Runtime::new().unwrap();
    let upstream =
        upstream(&runtime, UpstreamConfig { window: 1_500, ..UpstreamConfig::default() });
    let place = Place::new();
    let named = ["--tenant", "acme", "--memory", "hikes"];
    let more = [&named[..], &["--window", "1500", "--reserve", "100"]].concat();
    let running = start(&place, &upstream.url(), &more);
    let mut messages = Vec::new();
    let mut compactions = 0;
    for n in 0..12 {
        let words = format!("Point {n} is about the glacier and how it moved. ").repeat(12);
        messages.push(json!({"role": "user", "content": words}));
        let answer = running.chat(&json!(messages));
        assert!(answer.starts_with("HTTP/1.1 200"), "{n}: {answer}");
        compactions += answer.matches("x-icecore-compaction: ").count();
        messages.push(json!({"role": "assistant", "content": "Understood. I will go on."}));
    }
    assert!(compactions > 0);
    running.end();
    let sessions = place.json(&[&["sessions"], &named[..]].concat());
    assert_eq!(sessions["sessions"][0]["turns"], 24, "{sessions}");
    assert_eq!(place.json(&["sessions"])["sessions"], json!([]));
}

#[test]
fn what_it_cannot_do_is_refused_with_a_hint() {
    let place = Place::new();
    let proxy = |upstream: &str, more: &[&str]| {
        place.shown(&[&["proxy", "--upstream", upstream], more].concat())
    };
    insta::assert_snapshot!(proxy("http://127.0.0.1:1/v1", &["--listen", "0.0.0.0:0"]), @r"
    exit 1
    --- stderr
    error: a proxy that asks for no key listens on loopback only, and 0.0.0.0:0 is not
    hint: use `icecore serve`, which asks for keys, to be reached from other machines
    ");
    insta::assert_snapshot!(proxy("api.openai.com/v1", &[]), @r"
    exit 1
    --- stderr
    error: --upstream must begin with http:// or https://
    hint: give the provider's address up to and with the version path, like https://api.openai.com/v1
    ");
    insta::assert_snapshot!(proxy("http://127.0.0.1:1/v1", &["--window", "100", "--reserve", "100"]), @r"
    exit 1
    --- stderr
    error: --reserve 100 leaves nothing of a window of 100 tokens
    hint: give a smaller reserve, or the window that the model has
    ");
    assert_eq!(place.output(&["proxy"]).status.code(), Some(2));
    assert_eq!(
        place.output(&["proxy", "--upstream", "http://h/v1", "--window", "0"]).status.code(),
        Some(2)
    );
}

#[test]
fn a_key_that_is_named_and_not_set_keeps_a_host_from_starting() {
    let place = Place::new();
    let file = place.file(
        "config.toml",
        "[proxy]\nopenai_url = \"http://127.0.0.1:1/v1\"\nopenai_key_env = \"NOT_SET_HERE\"\n",
    );
    insta::assert_snapshot!(place.shown(&["serve", "--config", &file]), @r"
    exit 1
    --- stderr
    error: the environment variable `NOT_SET_HERE` is not set
    hint: the settings under `[proxy]` say that it holds a provider's key
    ");
}
