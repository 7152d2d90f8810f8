//! Ctrl-C and sudden death.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::run::{Place, conversation};

pub fn signal(child: &Child, name: &str) {
    let status = std::process::Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Waits until the import has stored something.
fn wait_for_turns(place: &Place) {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        let stats = place.output(&["stats", "--json"]);
        let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap_or_default();
        if stats["turns"].as_u64() > Some(0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("nothing was imported");
}

#[test]
fn an_interrupted_import_is_whole_and_goes_on() {
    let place = Place::new();
    let file = place.file("c.jsonl", conversation(12_000));
    place.ok(&["stats"]);
    let child = place
        .command(&["import", &file])
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_turns(&place);
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    let shown = place.describe(&output);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(
        shown.contains("error: interrupted: ") && shown.contains("hint: run it again"),
        "{shown}"
    );
    place.check();
    let stored = place.json(&["stats"])["turns"].as_u64().unwrap();
    assert!(stored > 0 && stored < 12_000, "{stored}");
    let report = place.json(&["import", &file]);
    assert_eq!(report["known"], stored);
    assert_eq!(place.json(&["stats"])["turns"], 12_000);
}

#[test]
fn a_killed_import_is_whole_and_goes_on() {
    let place = Place::new();
    let file = place.file("c.jsonl", conversation(8_000));
    place.ok(&["stats"]);
    let mut child = place.command(&["import", &file, "-q"]).spawn().unwrap();
    wait_for_turns(&place);
    signal(&child, "KILL");
    child.wait().unwrap();
    place.check();
    place.ok(&["import", &file]);
    assert_eq!(place.json(&["stats"])["turns"], 8_000);
    assert_eq!(place.json(&["stats"])["pending"], 0);
    place.check();
}
