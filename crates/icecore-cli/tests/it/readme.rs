//! What the README shows works as it is pasted.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

const README: &str = include_str!("../../../../README.md");

/// The shell block that begins with this line.
fn block(first: &str) -> &'static str {
    let blocks = README.split("```bash\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let mut blocks = blocks.map(|(block, _)| block);
    blocks.find(|block| block.starts_with(first)).expect("the README has the block")
}

#[test]
fn the_first_conversation_works_as_pasted() {
    let has_curl = Command::new("curl").arg("--version").output().is_ok();
    assert!(has_curl, "this test pastes the README's `curl` lines: install curl");
    // Only the port differs: another host may have the usual one.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = block("export ICECORE_DATA=")
        .replace("icecore serve &", &format!("icecore serve --listen 127.0.0.1:{port} &"))
        .replace(":7433/", &format!(":{port}/"));
    let bin = Path::new(env!("CARGO_BIN_EXE_icecore")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let scratch = tempfile::tempdir().unwrap();
    let out = Command::new("bash")
        .args(["-e", "-m", "-c", &script])
        .env("PATH", path)
        .env("TMPDIR", scratch.path())
        .output()
        .unwrap();
    let (said, told) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{said}\n{told}");
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
