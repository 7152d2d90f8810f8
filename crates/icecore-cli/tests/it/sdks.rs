//! The official packages of OpenAI and Anthropic, pointed at the proxy by their base URL
//! alone: a long conversation with tools through a small window.
//!
//! `scripts/sdk-conversation` holds it and keeps its own full history. The model is a
//! scripted one that refuses what does not fit, and what real servers refuse: a call
//! without its result, a result without its call, an empty text. So a conversation that
//! ends well has kept every pair. Where the packages are missing the suite says so and
//! does nothing; where `ICECORE_SDK_PYTHON` names an interpreter that has them, as
//! `.ci/run` does, it must work. `ICECORE_LONG=1` makes it three times as long.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use icecore::models::Protocol;
use icecore_models::testing::{Behaviour, Upstream, UpstreamConfig, UpstreamRequest};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::runtime::Runtime;

use crate::proxying::Proxy;
use crate::run::{Place, files};

/// Tokens of request and answer together.
const WINDOW: u64 = 8_192;

/// Of the tokens between two compactions, what begins as the request before did.
const PREFIX_PERCENT: u64 = 90;

/// As `scripts/sdk-conversation` says it.
const RULE: &str = "Always give heights in metres, and never name a price.";

/// The client's own key for the provider.
const KEY: &str = "key-of-the-client-4711";

/// A package and what it is pointed at.
pub struct Package {
    pub name: &'static str,
    pub protocol: Protocol,
    /// Behind the proxy's address.
    pub base: &'static str,
}

pub const OPENAI: Package =
    Package { name: "openai", protocol: Protocol::OpenAi, base: "/openai/v1" };
pub const ANTHROPIC: Package =
    Package { name: "anthropic", protocol: Protocol::Anthropic, base: "/anthropic" };

/// What the driver says that it did.
#[derive(Deserialize)]
struct Counted {
    requests: usize,
    turns: usize,
    calls: usize,
}

/// The interpreter that has the packages; none where they are not installed.
#[expect(clippy::print_stderr, reason = "says that it is skipped, and why")]
pub fn python(package: &Package) -> Option<String> {
    let named = std::env::var("ICECORE_SDK_PYTHON").ok().filter(|name| !name.is_empty());
    let python = named.clone().unwrap_or_else(|| "python3".to_owned());
    let has = Command::new(&python).args(["-c", &format!("import {}", package.name)]).output();
    if has.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    assert!(named.is_none(), "{named:?} does not have the package {}", package.name);
    eprintln!("skipped: the Python package {} is not installed", package.name);
    None
}

/// A conversation by a package in which a person asks so often.
pub fn converse(
    python: &str,
    package: &Package,
    base_url: &str,
    place: &Place,
    asked: usize,
    more: &[&str],
) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/sdk-conversation");
    let file = |name: &str| place.dir.path().join(name).display().to_string();
    Command::new(python)
        .arg(script)
        .args(["--package", package.name, "--base-url", base_url, "--key", KEY])
        .args(["--asked", &asked.to_string(), "--sent", &file("sent.json")])
        .args(more)
        .output()
        .unwrap()
}

/// A model that looks things up before it answers: one thing, some at once, or one after
/// the other.
fn guide(request: &UpstreamRequest) -> Behaviour {
    let asked = request.messages().iter().rev().find_map(number_of);
    let Some(number) = asked else { return Behaviour::Fail(500) };
    let rounds = rounds_of(request, number);
    let call = |place: usize, name: &str, arguments: String| {
        (format!("call_{number}_{rounds}_{place}"), name.to_owned(), arguments)
    };
    let lookup =
        |place: usize, stage: usize| call(place, "lookup", format!("{{\"stage\":{stage}}}"));
    match (number % 3, number % 6, number % 12, rounds) {
        (_, 0, _, 0) => Behaviour::CallTools(vec![
            lookup(0, number),
            lookup(1, number + 1),
            call(2, "weather", "{\"day\":\"Friday, 6 June\"}".to_owned()),
        ]),
        (0, _, _, 0) => Behaviour::SayAndCall("I look.".to_owned(), vec![lookup(0, number)]),
        (_, _, 0, 1) => Behaviour::CallTools(vec![lookup(0, number + 2)]),
        _ => {
            let more = " It goes up through larches, then over scree.".repeat(1 + number % 7);
            Behaviour::Answer(format!("Stage {number} ends at {} m.{more}", 1_500 + number))
        }
    }
}

/// How often it has looked for a request already. The last calls tell: what came before
/// them may be in the handoff.
fn rounds_of(request: &UpstreamRequest, number: usize) -> usize {
    let calls = format!("\"call_{number}_");
    let mut messages = request.messages().iter().rev().map(Value::to_string);
    let last = messages.find_map(|text| {
        let id = text.split_once(&calls)?.1;
        id.split('_').next()?.parse::<usize>().ok()
    });
    last.map_or(0, |last| last + 1)
}

/// The number of a person's request.
fn number_of(message: &Value) -> Option<usize> {
    let said = match &message["content"] {
        Value::String(text) => text.as_str(),
        parts => parts[0]["text"].as_str()?,
    };
    let number = said.strip_prefix("Request ").filter(|_| message["role"] == "user")?;
    number.split(':').next()?.parse().ok()
}

/// A line for each message.
fn outline(request: &UpstreamRequest) -> String {
    let line = |message: &Value| message.to_string().chars().take(160).collect::<String>() + "\n";
    request.messages().iter().map(line).collect()
}

/// A request, in the bytes that it came in.
#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
    #[serde(borrow)]
    tools: &'a RawValue,
    #[serde(borrow)]
    system: Option<&'a RawValue>,
}

impl<'a> Body<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        serde_json::from_slice(bytes).unwrap()
    }

    fn messages(&self) -> Vec<&'a str> {
        self.messages.iter().map(|message| message.get()).collect()
    }
}

/// The conversation, and then everything that must be true of it.
fn holds(package: &Package) {
    let Some(python) = python(package) else { return };
    let is_long = std::env::var("ICECORE_LONG").is_ok_and(|long| long == "1");
    let asked = if is_long { 900 } else { 300 };
    let runtime = Runtime::new().unwrap();
    let upstream = runtime.block_on(Upstream::start(UpstreamConfig {
        protocol: package.protocol,
        window: WINDOW,
        key: Some(KEY.to_owned()),
        otherwise: Some(Arc::new(guide)),
        ..UpstreamConfig::default()
    }));
    let place = Place::new();
    let window = WINDOW.to_string();
    let proxy = Proxy::start(&place, &upstream.url(), &["--window", &window]);
    let url = proxy.url(package.base);
    let out = converse(&python, package, &url, &place, asked, &[]);
    let told = || {
        let last = upstream.requests().last().map(outline).unwrap_or_default();
        format!("{}\nThe last request:\n{last}", String::from_utf8_lossy(&out.stderr))
    };
    assert!(out.status.success(), "{}", told());
    let counted: Counted = serde_json::from_slice(&out.stdout).unwrap();
    assert!(counted.turns > 2 * asked && counted.calls > asked / 2, "{} calls", counted.calls);
    proxy.stop();

    let requests = upstream.requests();
    assert_eq!(requests.len(), counted.requests, "each was sent once");
    let sent = std::fs::read(place.dir.path().join("sent.json")).unwrap();
    everything_goes_as_it_came(&requests, &sent);
    nothing_that_counts_is_lost(&requests);
    the_prefix_stays(&requests);
    every_turn_is_kept(&place, &sent, &counted);
    the_key_is_nowhere(&place);
    place.check();
}

/// System prompt and tools are the client's bytes, and so is every message but the
/// handoff, which comes first.
fn everything_goes_as_it_came(requests: &[UpstreamRequest], sent: &[u8]) {
    let client = Body::of(sent);
    let messages = client.messages();
    let is_system = |message: &str| message.contains("\"role\":\"system\"");
    let leading = usize::from(is_system(messages[0]));
    for (number, request) in requests.iter().enumerate() {
        let body = Body::of(&request.body);
        assert_eq!(body.tools.get(), client.tools.get(), "request {number}");
        let system = |body: &Body<'_>| body.system.map(|system| system.get().to_owned());
        assert_eq!(system(&body), system(&client), "request {number}");
        let shown = body.messages();
        assert_eq!(shown[..leading], messages[..leading], "request {number}");
        let handoffs = usize::from(shown[leading].contains("[icecore handoff"));
        // In the client's order: each is found behind the one before.
        let mut from = leading;
        for message in &shown[leading + handoffs..] {
            let at = messages[from..].iter().position(|one| one == message);
            let at =
                at.unwrap_or_else(|| panic!("request {number}: {message} is not the client's"));
            from += at + 1;
        }
    }
}

/// Every request fits, and has the standing rule and the last request word for word.
fn nothing_that_counts_is_lost(requests: &[UpstreamRequest]) {
    for (number, request) in requests.iter().enumerate() {
        let tokens = request.tokens + request.max_tokens();
        assert!(tokens <= WINDOW, "request {number} has {tokens} tokens");
        let text = request.text();
        assert!(text.contains(RULE), "request {number} has lost the rule:\n{text}");
        let last = request.messages().iter().rev().find_map(number_of);
        assert!(last.is_some(), "request {number} does not say what was asked:\n{text}");
    }
    // A person's requests come one after the other, none is left out and none comes back.
    let asked: Vec<usize> = requests
        .iter()
        .filter_map(|request| request.messages().iter().rev().find_map(number_of))
        .collect();
    assert!(asked.windows(2).all(|pair| pair[1] == pair[0] || pair[1] == pair[0] + 1), "{asked:?}");
}

/// Between compactions a request begins as the one before did.
fn the_prefix_stays(requests: &[UpstreamRequest]) {
    let handoff = |request: &UpstreamRequest| {
        let text = |message: &Value| message["content"].as_str().map(str::to_owned);
        let mut texts = request.messages().iter().filter_map(text);
        texts.find(|text| text.starts_with("[icecore handoff"))
    };
    let (mut tokens, mut cached) = (0, 0);
    for pair in requests.windows(2) {
        if handoff(&pair[0]) == handoff(&pair[1]) {
            tokens += pair[1].tokens;
            cached += pair[1].cached_tokens;
        }
    }
    let percent = cached * 100 / tokens;
    assert!(percent >= PREFIX_PERCENT, "{percent}% of {tokens} tokens");
    let handoffs: BTreeSet<String> = requests.iter().filter_map(handoff).collect();
    assert!(handoffs.len() > 2, "{} compactions", handoffs.len());
}

/// Every text of a message or a turn, in order: its own, its parts', its results'.
fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(parts) => parts.iter().for_each(|part| texts(part, found)),
        Value::Object(fields) => {
            let inner = ["text", "content"].iter().filter_map(|key| fields.get(*key));
            inner.for_each(|inner| texts(inner, found));
        }
        _ => {}
    }
}

/// One session holds the client's history, message for message.
fn every_turn_is_kept(place: &Place, sent: &[u8], counted: &Counted) {
    let sessions = place.json(&["sessions"]);
    let sessions = sessions["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    let exported = place.ok(&["export"]);
    let kept: Vec<Value> =
        exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sent: Value = serde_json::from_slice(sent).unwrap();
    let messages = sent["messages"].as_array().unwrap();
    let leading = usize::from(messages[0]["role"] == "system");
    assert_eq!(kept.len(), counted.turns - leading);
    for (turn, message) in kept.iter().zip(&messages[leading..]) {
        let (mut said, mut wanted) = (Vec::new(), Vec::new());
        texts(&turn["content"], &mut said);
        texts(&message["content"], &mut wanted);
        assert_eq!(said, wanted, "{turn}\n{message}");
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        let blocks = message["content"].as_array().into_iter().flatten();
        for call in calls.chain(blocks).filter_map(|call| call["id"].as_str()) {
            assert!(turn.to_string().contains(call), "{turn} has no {call}");
        }
    }
    assert!(exported.lines().all(|line| !line.contains("iVBORw0KGgo")), "media is not kept");
}

/// The client's key goes upstream and nowhere else.
fn the_key_is_nowhere(place: &Place) {
    for file in files(&place.data()) {
        let bytes = std::fs::read(&file).unwrap();
        let has_it = bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes());
        assert!(!has_it, "{} has the client's key", file.display());
    }
}

#[test]
fn the_package_of_openai_holds_a_long_conversation_through_a_small_window() {
    holds(&OPENAI);
}

#[test]
fn the_package_of_anthropic_holds_a_long_conversation_through_a_small_window() {
    holds(&ANTHROPIC);
}

#[test]
fn without_the_proxy_the_same_conversation_does_not_fit() {
    for package in [OPENAI, ANTHROPIC] {
        let Some(python) = python(&package) else { continue };
        let runtime = Runtime::new().unwrap();
        let upstream = runtime.block_on(Upstream::start(UpstreamConfig {
            protocol: package.protocol,
            window: WINDOW,
            otherwise: Some(Arc::new(guide)),
            ..UpstreamConfig::default()
        }));
        let place = Place::new();
        // Anthropic's package brings the version path itself.
        let base_url = match package.protocol {
            Protocol::OpenAi => upstream.url(),
            Protocol::Anthropic => upstream.root(),
        };
        let out = converse(&python, &package, &base_url, &place, 300, &[]);
        let told = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{told}");
        assert!(told.contains("context length") || told.contains("exceed context limit"), "{told}");
        assert!(upstream.request_count() > 20);
    }
}
