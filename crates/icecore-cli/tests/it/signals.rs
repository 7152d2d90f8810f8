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

/// How often an index is killed while it is made; `ICECORE_KILLS=100` for long.
fn kills() -> u64 {
    std::env::var("ICECORE_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(6)
}

/// What a few queries find, with scores.
fn findings(place: &Place) -> Vec<serde_json::Value> {
    ["glacier number 17", "turn 1234", "which moraine is it about?", "number 3 and its moraine"]
        .map(|query| place.json(&["search", query, "--limit", "20"])["hits"].clone())
        .to_vec()
}

#[test]
fn an_index_that_is_killed_again_and_again_finds_what_a_fresh_one_finds() {
    let settings = "[advanced.index]\ntail_docs = 100\n";
    let begin = || {
        let place = Place::new();
        let file = place.file("c.jsonl", conversation(1_500));
        let config = place.file("icecore.toml", settings);
        (place, file, config)
    };
    let (fresh, file, config) = begin();
    fresh.ok(&["import", &file, "--config", &config]);
    fresh.ok(&["reindex", "--config", &config]);
    let expected = findings(&fresh);
    assert!(expected.iter().all(|hits| hits.as_array().is_some_and(|hits| !hits.is_empty())));

    let (place, file, config) = begin();
    place.ok(&["import", &file, "--config", &config]);
    for round in 0..kills() {
        let mut child = place.command(&["reindex", "-q", "--config", &config]).spawn().unwrap();
        // Moments spread over the time that it takes.
        std::thread::sleep(Duration::from_millis(round * 7_919 % 700));
        // It may have ended by itself.
        let _ = child.kill();
        child.wait().unwrap();
        // Known turns are not added again, and what is due is done.
        place.ok(&["import", &file, "--config", &config]);
        assert_eq!(findings(&place), expected, "after kill {round}");
    }
    place.check();
}
