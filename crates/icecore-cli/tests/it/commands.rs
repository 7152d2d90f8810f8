//! What each command prints.

use insta::assert_snapshot;

use crate::run::{Place, conversation};

#[test]
fn add_and_show_one_turn() {
    let place = Place::new();
    assert_snapshot!(place.shown(&["add", "--session", "trip", "We leave on 4 May."]), @"");
    let shown = place.ok(&["show", "turn-1.1"]);
    assert!(shown.starts_with("user  20") && shown.contains("\n  We leave on 4 May.\n"), "{shown}");
    assert!(shown.ends_with("  session trip, turn 1 of branch main, hot\n"), "{shown}");
    let turn = place.json(&["show", "turn-1.1"]);
    assert_eq!(
        (&turn["role"], &turn["seq"], &turn["tier"]),
        (&"user".into(), &1.into(), &"hot".into())
    );
}

#[test]
fn add_reads_lines_and_says_what_was_added() {
    let place = Place::new();
    let lines = b"{\"role\":\"user\",\"content\":\"ok\"}\n{\"role\":\"user\",\"content\":\"ok\",\"id\":\"x\"}\n";
    let output = place.output_with_input(&["add", "--json"], lines);
    assert_snapshot!(place.describe(&output), @"");
    // Without an id each is new; with one it is the same turn.
    let output = place.output_with_input(&["add"], lines);
    assert_snapshot!(place.describe(&output), @"");
    assert_snapshot!(place.describe(&place.output_with_input(&["add"], b"")), @"");
}

#[test]
fn flags_stand_before_and_after_the_command() {
    let place = Place::new();
    place.ok(&["--memory", "ops", "add", "one"]);
    let sessions = place.json(&["sessions", "--memory", "ops"]);
    assert_eq!(sessions["sessions"][0]["turns"], 1);
    assert_eq!(place.json(&["sessions"])["sessions"].as_array().unwrap().len(), 0);
}

#[test]
fn sessions_are_a_table() {
    let place = Place::new();
    assert_snapshot!(place.shown(&["sessions"]), @"");
    place.ok(&["add", "--session", "a trip", "hello there"]);
    place.ok(&["add", "--session", "b", "hi"]);
    let shown = place.shown(&["sessions"]);
    let without_dates: Vec<&str> =
        shown.lines().map(|line| line.split("  20").next().unwrap()).collect();
    assert_snapshot!(without_dates.join("\n"), @"");
}

#[test]
fn stats_draw_the_layers() {
    let place = Place::new();
    assert_snapshot!(place.shown(&["stats"]), @"");
    let file = place.file("c.jsonl", conversation(257));
    place.ok(&["import", &file]);
    let picture = place.ok(&["stats"]);
    let drawing: Vec<&str> = picture.lines().take(19).collect();
    assert_snapshot!(drawing.join("\n"), @"");
    let stats = place.json(&["stats"]);
    assert_eq!(stats["pending"], 0);
    assert_eq!(stats["tiers"]["cold"]["turns"], 200);
    let ascii = place.command(&["stats"]).env("LANG", "de_DE.ISO-8859-1").output().unwrap();
    assert!(ascii.stdout.is_ascii());
}

#[test]
fn context_stays_within_its_budget_and_explains_itself() {
    let place = Place::new();
    let file = place.file("c.jsonl", conversation(257));
    place.ok(&["import", &file]);
    for budget in ["0", "40", "400", "4000"] {
        let context = place.json(&["context", "--budget", budget]);
        assert!(context["tokens"].as_u64().unwrap() <= budget.parse().unwrap());
    }
    let output = place.output(&["context", "--budget", "300", "--explain"]);
    let explained = String::from_utf8(output.stderr).unwrap();
    assert!(explained.contains(" of 300 tokens, "), "{explained}");
    assert!(explained.contains("hot turns") && explained.contains("stands for older turns"));
    assert!(String::from_utf8(output.stdout).unwrap().contains("Turn 257 is about"));
}

#[test]
fn chunks_expand_and_show_as_ctf() {
    let place = Place::new();
    let file = place.file("c.jsonl", conversation(257));
    place.ok(&["import", &file]);
    let chunk = place.json(&["show", "macro-1.0.1-100"]);
    assert_eq!(chunk["tier"], "cold");
    assert_eq!(chunk["turns"].as_array().unwrap().len(), 100);
    assert_eq!(chunk["children"].as_array().unwrap().len(), 4);
    let ctf = place.ok(&["show", "micro-1.0.1-10", "--ctf"]);
    assert!(ctf.starts_with("#CTF v2"), "{ctf}");
    assert_snapshot!(place.shown(&["show", "nothing"]), @"");
}

#[test]
fn views_and_events() {
    let place = Place::new();
    place.ok(&["add", "--session", "s", "--name", "Ana", "hello\u{1b}[2J"]);
    let view = place.json(&["view", "--session", "s"]);
    assert_eq!(view["messages"][0]["content"], "hello\u{1b}[2J");
    // A terminal must not obey what was said.
    let shown = place.ok(&["view", "--session", "s", "--view", "api"]);
    assert!(shown.contains("hello␛[2J") && !shown.contains('\u{1b}'));
    assert_snapshot!(place.shown(&["view", "--session", "x"]), @"");
    let event: serde_json::Value =
        serde_json::from_str(place.ok(&["events", "--json"]).lines().next().unwrap()).unwrap();
    assert_eq!((&event["seq"], &event["type"]), (&1.into(), &"turn.appended".into()));
    assert_eq!(place.ok(&["events", "--after", "1"]), "");
}

#[test]
fn settings_come_from_somewhere() {
    let place = Place::new();
    let file = place.file("config.toml", "[memory]\nhot_chunks = 3\n");
    let shown = place
        .command(&["config", "show", "--config", &file])
        .env("ICECORE_MASTER_KEY", "ab")
        .output()
        .unwrap();
    assert_snapshot!(place.describe(&shown), @"");
    let file = place.file("bad.toml", "[memory]\nhot_chunk = 3\n");
    assert_snapshot!(place.shown(&["stats", "--config", &file]), @"");
    assert_snapshot!(place.shown(&["stats", "--config", "/nowhere.toml"]), @"");
    assert_snapshot!(place.shown(&["stats", "--store", "postgres://me@host/db"]), @"");
    assert!(place.ok(&["config", "example"]).contains("hot_chunks = 2"));
}

#[test]
fn usage_is_refused_with_2() {
    let place = Place::new();
    for args in [&["forget"][..], &["context"], &["nonsense"], &["import"], &["show"]] {
        assert_eq!(place.output(args).status.code(), Some(2), "{args:?}");
    }
    for command in ["search", "dream", "chat"] {
        assert_eq!(place.output(&[command]).status.code(), Some(2), "{command} is absent");
    }
    assert!(place.ok(&["completions", "bash"]).contains("_icecore"));
    assert!(place.ok(&["import", "--help"]).contains("Example"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    let file = place.file("c.jsonl", conversation(3000));
    place.ok(&["import", &file]);
    let mut child = place
        .command(&["export"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

#[test]
fn the_demo_runs_through() {
    let place = Place::new();
    let shown = place.ok(&["demo"]);
    assert!(shown.contains("Expanded again: 100 of 100 turns"), "{shown}");
    assert!(shown.contains("none of them reached the disk"), "{shown}");
    assert!(shown.contains("in no file of the store"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    assert_eq!(place.json(&["demo"])["ok"], true);
    assert!(!place.data().exists());
}
