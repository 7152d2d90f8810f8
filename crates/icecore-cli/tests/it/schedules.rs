//! Schedules from the command line, and two hosts on one store.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::run::Place;
use crate::serve::{Host, SERVE, started};
use crate::signals::signal;

#[test]
fn schedules_are_made_listed_paused_and_removed() {
    let place = Place::new();
    let made = place.json(&["schedule", "add", "30 3 * * *", "--timezone", "Europe/Berlin"]);
    let id = made["id"].as_str().unwrap();
    assert_eq!((&made["cron"], &made["timezone"]), (&"30 3 * * *".into(), &"Europe/Berlin".into()));
    assert_eq!(place.json(&["schedule", "next", id])["next"].as_array().unwrap().len(), 10);
    assert_eq!(place.ok(&["schedule", "next", id]).lines().count(), 10);
    let listed = place.ok(&["schedule", "list"]);
    assert!(listed.contains(id) && listed.contains("30 3 * * * Europe/Berlin"), "{listed}");
    assert_eq!(place.json(&["schedule", "pause", id])["state"], "paused");
    assert_eq!(place.json(&["schedule", "next", id])["next"], Value::Array(Vec::new()));
    assert_eq!(place.json(&["schedule", "resume", id])["state"], "active");
    let once = place.json(&["schedule", "add", "--delay", "90000", "--task", "consolidate"]);
    assert_eq!((&once["task"], once.get("cron")), (&"consolidate".into(), None));
    let all = place.json(&["schedule", "list"]);
    assert_eq!(all["schedules"].as_array().unwrap().len(), 2);
    assert_eq!(place.json(&["schedule", "remove", id])["removed"], true);
    assert!(place.shown(&["schedule", "remove", id]).starts_with("exit 1\n"));
    place.check();
}

#[test]
fn a_bad_line_is_marked() {
    let place = Place::new();
    let shown = place.shown(&["schedule", "add", "5  99 * * *"]);
    let expected = "exit 1\n--- stderr\n\
        error: the hour field of the cron line is `99`: allowed are 0-23, `*`, lists `1,2`, ranges `1-5`, steps `*/5`\n\
        \x20 5  99 * * *\n\
        \x20    ^^\n";
    assert_eq!(shown, expected);
    for (args, said) in [
        (&["schedule", "add", "0 0 30 2 *"][..], "day of month"),
        (&["schedule", "add", "* * * *"], "has 4"),
        (&["schedule", "add", "@daily", "--timezone", "Europe/Berln"], "`Europe/Berlin`"),
        (&["schedule", "add", "--delay", "9000000000"], "P90D"),
        (&["schedule", "add", "--delay", "0"], "at least 1"),
        (&["schedule", "add", "@daily", "--budget", "0"], "at least 1 token"),
    ] {
        let shown = place.shown(args);
        assert!(shown.starts_with("exit 1\n") && shown.contains(said), "{args:?}: {shown}");
    }
}

#[test]
fn a_schedule_needs_a_time_and_known_options() {
    let place = Place::new();
    for (args, said) in [
        (&["schedule", "add"][..], "<CRON>"),
        (&["schedule", "add", "--task", "consolidate"], "<CRON>"),
        (&["schedule", "add", "--dely", "5"], "--dely"),
        (&["schedule", "add", "@daily", "--delay", "5"], "--delay"),
    ] {
        let shown = place.shown(args);
        assert!(shown.starts_with("exit 2\n") && shown.contains(said), "{args:?}: {shown}");
    }
    assert_eq!(place.json(&["schedule", "list"])["schedules"], Value::Array(Vec::new()));
}

fn body(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn ticks(host: &Host, id: &str) -> Vec<Value> {
    let found = body(&host.get(&format!("/v1/host/icecore/schedules/{id}?limit=500")));
    let mut ticks = found["ticks"].as_array().unwrap().clone();
    ticks.reverse();
    ticks
}

fn seconds(ticks: &[Value]) -> Vec<i64> {
    let at = |tick: &Value| icecore::Millis::parse_rfc3339(tick["at"].as_str().unwrap()).unwrap();
    ticks.iter().map(|tick| at(tick).0 / 1_000).collect()
}

/// Five seconds of a one-second line; sixty with `ICECORE_LONG=1`.
#[test]
fn two_hosts_on_one_store_record_every_tick_once() {
    let long = std::env::var("ICECORE_LONG").is_ok_and(|value| value == "1");
    let span = Duration::from_secs(if long { 60 } else { 5 });
    let place = Place::new();
    let start = || started(place.command(&SERVE).stderr(std::process::Stdio::null()));
    let (mut one, mut two) = (start(), start());
    let entry = r#"{"content":"The ferry leaves at nine from the north pier."}"#;
    one.ask("POST", "/v1/host/icecore/entries", entry);
    let made = body(&one.ask(
        "POST",
        "/v1/host/icecore/schedules",
        r#"{"cron":"* * * * * *","budget":4000}"#,
    ));
    let id = made["id"].as_str().unwrap();
    let begun = Instant::now();
    while begun.elapsed() < span {
        std::thread::sleep(Duration::from_millis(200));
    }
    // One of them dies in the middle of things; the other goes on.
    one.child.kill().unwrap();
    one.child.wait().unwrap();
    let so_far = ticks(&two, id).len();
    while ticks(&two, id).len() < so_far + 2 {
        std::thread::sleep(Duration::from_millis(100));
    }
    let all = ticks(&two, id);
    let seconds = seconds(&all);
    let expected: Vec<i64> = (seconds[0]..).take(seconds.len()).collect();
    assert_eq!(seconds, expected, "each once, and none left out");
    assert!(seconds.len() as u64 >= span.as_secs());
    let known = ["running", "ran", "unchanged", "overlapped", "missed"];
    for tick in &all {
        assert!(known.contains(&tick["outcome"].as_str().unwrap()), "{tick}");
    }
    assert!(all.iter().filter(|tick| tick["outcome"] == "running").count() <= 1);
    signal(&two.child, "TERM");
    two.child.wait().unwrap();
    place.check();
}
