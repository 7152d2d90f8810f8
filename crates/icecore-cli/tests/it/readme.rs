//! What the README shows works as it is pasted.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use icecore_models::testing::{Upstream, UpstreamConfig};
use tokio::runtime::Runtime;

const README: &str = include_str!("../../../../README.md");

/// The shell block that begins with this line.
fn block(first: &str) -> &'static str {
    let blocks = README.split("```bash\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let mut blocks = blocks.map(|(block, _)| block);
    blocks.find(|block| block.starts_with(first)).expect("the README has the block")
}

/// A port that nobody has: another host may have the usual one.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What a script says, and what is told beside it.
fn pasted(script: &str, env: &[(&str, &str)]) -> (String, String) {
    let has_curl = Command::new("curl").arg("--version").output().is_ok();
    assert!(has_curl, "this test pastes the README's `curl` lines: install curl");
    let bin = Path::new(env!("CARGO_BIN_EXE_icecore")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let scratch = tempfile::tempdir().unwrap();
    let out = Command::new("bash")
        .args(["-e", "-m", "-c", script])
        .env("PATH", path)
        .env("TMPDIR", scratch.path())
        .envs(env.iter().copied())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, told) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success(), "{said}\n{told}");
    (said, told)
}

#[test]
fn the_first_conversation_works_as_pasted() {
    // Only the port differs.
    let port = free_port();
    let script = block("export ICECORE_DATA=$")
        .replace("icecore serve &", &format!("icecore serve --listen 127.0.0.1:{port} &"))
        .replace(":7433/", &format!(":{port}/"));
    let (said, told) = pasted(&script, &[]);
    let answers: Vec<serde_json::Value> =
        said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(answers.len(), 6, "{said}\n{told}");
    let error = answers.iter().find(|answer| answer.get("error").is_some());
    assert!(error.is_none(), "{error:?}");
    assert_eq!(answers[0]["turnIds"].as_array().unwrap().len(), 2);
    assert!(answers[1]["id"].is_string());
    assert!(answers[2]["hits"][0]["text"].as_str().unwrap().contains("closed until June"));
    assert!(answers[3]["text"].as_str().unwrap().contains("Ana"), "{}", answers[3]);
    assert_eq!(answers[4]["entries"].as_array().unwrap().len(), 1);
    assert!(answers[5]["erased"]["turns"].as_u64().unwrap() >= 1);
}

#[test]
fn in_front_of_a_model_it_works_as_pasted() {
    let runtime = Runtime::new().unwrap();
    let upstream = runtime.block_on(Upstream::start(UpstreamConfig::default()));
    let port = free_port();
    let script = block("export ICECORE_DATA=\"")
        .replace("icecore proxy ", &format!("icecore proxy --listen 127.0.0.1:{port} "))
        .replace(":7434/", &format!(":{port}/"));
    let (said, told) = pasted(&script, &[("UPSTREAM", &upstream.url())]);
    let first: serde_json::Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!(first["choices"][0]["message"]["content"], "Understood. I will go on.", "{told}");
    assert!(said.contains("data: [DONE]"), "{said}");
    assert!(said.contains("We leave on 4 May."), "it is found: {said}");
    assert_eq!(upstream.request_count(), 2);
    let key = upstream.requests()[0].header("authorization").map(str::to_owned);
    assert_eq!(key.as_deref(), Some("Bearer none"));
}

#[cfg(feature = "postgres")]
#[test]
fn on_two_hosts_it_works_as_pasted() {
    let Some(database) = icecore_store::testing::postgres::fresh_database() else { return };
    let (a, b) = (free_port(), free_port());
    let script = block("export ICECORE_STORE=")
        .replace(":7435", &format!(":{a}"))
        .replace(":7436", &format!(":{b}"));
    let (said, told) = pasted(&script, &[("ICECORE_STORE", database.url())]);
    let answers: Vec<serde_json::Value> =
        said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(answers.len(), 2, "{said}\n{told}");
    assert_eq!(answers[0]["turnIds"].as_array().unwrap().len(), 1);
    let found = answers[1]["hits"][0]["text"].as_str().unwrap();
    assert!(found.contains("4 May"), "the other host finds it: {found}");
    assert!(said.contains("1 turn in 1 session"), "{said}");
}
