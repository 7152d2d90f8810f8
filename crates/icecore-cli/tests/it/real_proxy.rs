//! A small real model behind the proxy: real streams, and a real window that is really
//! full. What the model says is of no use, and none of it is looked at.

use std::process::Command;

use serde_json::{Value, json};

use crate::proxying::Proxy;
use crate::real_model::Server;
use crate::run::Place;
use crate::sdks::{self, ANTHROPIC, OPENAI};

/// The lines of a request by hand.
fn curl(url: &str, body: &Value) -> String {
    let out = Command::new("curl")
        .args(["-sSN", "--fail-with-body", "-D", "-", "-H", "Content-Type: application/json"])
        .args(["-H", "anthropic-version: 2023-06-01", "-d", &body.to_string(), url])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}\n{}", String::from_utf8_lossy(&out.stderr));
    said
}

fn header<'a>(said: &'a str, name: &str) -> Option<&'a str> {
    let lines = said.lines().take_while(|line| !line.is_empty());
    let mut pairs = lines.filter_map(|line| line.split_once(": "));
    pairs.find(|(one, _)| one.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

#[test]
fn the_package_of_openai_talks_with_a_real_model() {
    let Some(python) = sdks::python(&OPENAI) else { return };
    let Some(server) = Server::start(768) else { return };
    let place = Place::new();
    let proxy = Proxy::start(&place, &server.url, &["--window", "768"]);
    let more = ["--no-tools", "--model", &server.model, "--max-tokens", "16"];
    let out = sdks::converse(&python, &OPENAI, &proxy.url(OPENAI.base), &place, 7, &more);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let counted: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(counted["letters"].as_u64() > Some(0), "{counted}");
    proxy.stop();
    let sessions = place.json(&["sessions"]);
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 1, "{sessions}");
    // All but the system prompt.
    assert_eq!(sessions["sessions"][0]["turns"], counted["turns"].as_u64().unwrap() - 1);
    place.check();
}

#[test]
fn a_real_stream_comes_through_and_a_real_overflow_does_not() {
    let Some(server) = Server::start(512) else { return };
    let place = Place::new();
    // What is declared is more than there is, so the server finds out.
    let proxy = Proxy::start(&place, &server.url, &["--window", "4096"]);
    let protocols =
        [(OPENAI, "/openai/v1/chat/completions"), (ANTHROPIC, "/anthropic/v1/messages")];
    for (package, path) in protocols {
        let first = format!("Name a river, {}.", package.name);
        let mut messages = vec![json!({"role": "user", "content": first})];
        let ask = |messages: &[Value]| {
            let body = json!({"model": server.model, "max_tokens": 8, "stream": true,
                "messages": messages});
            curl(&proxy.url(path), &body)
        };
        let said = ask(&messages);
        let session = header(&said, "x-icecore-session").unwrap().to_owned();
        let pieces = said.lines().filter(|line| line.starts_with("data: ")).count();
        assert!(pieces > 2, "{}: {said}", package.name);
        let exported = place.ok(&["export", "--session", &session]);
        let reply: Value = serde_json::from_str(exported.lines().nth(1).unwrap()).unwrap();
        messages.push(json!({"role": "assistant", "content": reply["content"]}));

        // More than the window: the client sees one ordinary answer.
        for n in 0..40 {
            let role = ["user", "assistant"][n % 2];
            let text = format!("Stage {n}: hut {} lies above glacier number {}.", n * 3, n * 7);
            messages.push(json!({"role": role, "content": text}));
        }
        messages.push(json!({"role": "user", "content": "Which hut is at stage 21?"}));
        let said = ask(&messages);
        assert_eq!(header(&said, "x-icecore-session"), Some(session.as_str()), "{said}");
        assert!(header(&said, "x-icecore-compaction").is_some(), "{said}");
        assert!(!said.contains("exceed"), "{said}");
        let exported = place.ok(&["export", "--session", &session]);
        assert_eq!(exported.lines().count(), messages.len() + 1);
    }
    proxy.stop();
    place.check();
}
