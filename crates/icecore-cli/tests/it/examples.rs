//! The examples run as they stand: only the address differs.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use icecore::models::Protocol;
use icecore_models::testing::{Behaviour, Upstream, UpstreamConfig, UpstreamRequest};
use tokio::runtime::Runtime;

use crate::proxying::Proxy;
use crate::run::Place;
use crate::sdks::{ANTHROPIC, OPENAI, Package, python};

/// Answers, and asks for the date where it has a tool for that.
fn companion(request: &UpstreamRequest) -> Behaviour {
    let last = request.messages().last().and_then(|last| last["content"].as_str());
    let has_tools = request.json.get("tools").is_some();
    match has_tools && last.is_some_and(|last| last.contains("today")) {
        true => Behaviour::CallTools(vec![("c-1".into(), "today".into(), "{}".into())]),
        false => Behaviour::Answer("We leave on 4 May.".to_owned()),
    }
}

/// What an example says through a proxy, and the turns that are kept of it.
fn run(package: &Package, example: &str, input: &str) -> (Output, Vec<serde_json::Value>) {
    let runtime = Runtime::new().unwrap();
    let upstream = runtime.block_on(Upstream::start(UpstreamConfig {
        protocol: package.protocol,
        key: Some("the-clients-own".to_owned()),
        otherwise: Some(Arc::new(companion)),
        ..UpstreamConfig::default()
    }));
    let place = Place::new();
    let proxy = Proxy::start(&place, &upstream.url(), &[]);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut command = match example.ends_with(".py") {
        true => Command::new(python(package).unwrap()),
        false => Command::new("bash"),
    };
    let said = place.file("said.txt", input);
    let out = command
        .arg(folder.join(example))
        .env("OPENAI_BASE_URL", proxy.url(OPENAI.base))
        .env("ANTHROPIC_BASE_URL", proxy.url(ANTHROPIC.base))
        .env("OPENAI_API_KEY", "the-clients-own")
        .env("ANTHROPIC_API_KEY", "the-clients-own")
        .stdin(Stdio::from(std::fs::File::open(said).unwrap()))
        .output()
        .unwrap();
    assert!(out.status.success(), "{example}: {}", String::from_utf8_lossy(&out.stderr));
    proxy.stop();
    let exported = place.ok(&["export"]);
    assert_eq!(place.json(&["sessions"])["sessions"].as_array().unwrap().len(), 1, "{exported}");
    (out, exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn the_chats_of_the_packages() {
    let chats = [(OPENAI, "openai_chat.py", 4), (ANTHROPIC, "anthropic_chat.py", 6)];
    for (package, example, turns) in chats {
        if python(&package).is_none() {
            continue;
        }
        let (out, kept) = run(&package, example, "What is today?\nWhen do we leave?\n");
        let said = String::from_utf8_lossy(&out.stdout);
        assert_eq!(said, "We leave on 4 May.\nWe leave on 4 May.\n", "{example}");
        assert_eq!(kept.len(), turns, "{example}: {kept:?}");
    }
}

#[test]
fn the_requests_by_hand() {
    let has_curl = Command::new("curl").arg("--version").output().is_ok();
    assert!(has_curl, "this test runs the examples' `curl` lines: install curl");
    for (package, example) in [(OPENAI, "openai_curl.sh"), (ANTHROPIC, "anthropic_curl.sh")] {
        let (out, kept) = run(&package, example, "");
        let heads = String::from_utf8_lossy(&out.stderr).to_lowercase();
        let sessions: Vec<&str> =
            heads.lines().filter_map(|line| line.strip_prefix("x-icecore-session: ")).collect();
        assert_eq!(sessions.len(), 2, "{heads}");
        assert_eq!(sessions[0], sessions[1], "{example}");
        let said = String::from_utf8_lossy(&out.stdout);
        let end = match package.protocol {
            Protocol::OpenAi => "data: [DONE]",
            Protocol::Anthropic => "event: message_stop",
        };
        assert!(said.contains(end), "{example} streams: {said}");
        let roles: Vec<&str> = kept.iter().filter_map(|turn| turn["role"].as_str()).collect();
        assert_eq!(roles, ["user", "assistant", "user", "assistant"], "{example}");
    }
}
