//! Conversations in and out.

use insta::assert_snapshot;

use crate::run::{Place, conversation};

#[test]
fn a_second_import_adds_nothing() {
    let place = Place::new();
    let file = place.file("c.jsonl", conversation(120));
    assert_snapshot!(place.shown(&["import", &file]), @r"
    exit 0
    --- stderr
    Imported 120 new turns of 120 from 1 file
    ");
    assert_snapshot!(place.shown(&["import", &file, "--json"]), @r#"
    exit 0
    --- stdout
    {"lines":120,"added":0,"known":120,"forgotten":0}
    --- stderr
    Imported 0 new turns of 120 from 1 file; 120 there already
    "#);
    place.check();
}

#[test]
fn repeated_turns_stay_repeated() {
    let place = Place::new();
    let ok = "{\"role\":\"user\",\"content\":\"ok\"}\n";
    let file = place.file("c.jsonl", ok.repeat(2));
    place.ok(&["import", &file]);
    let more = place.file("d.jsonl", ok.repeat(3));
    let report = place.json(&["import", &more]);
    assert_eq!((&report["added"], &report["known"]), (&1.into(), &2.into()));
}

#[test]
fn export_of_an_import_is_what_went_in() {
    let lines = concat!(
        r#"{"role":"user","content":"plain"}"#,
        "\n",
        r#"{"role":"user","content":""}"#,
        "\n",
        r#"{"role":"assistant","content":null,"toolCalls":[{"id":"c1","x":1.50}]}"#,
        "\n",
        r#"{"role":"tool","content":[{"type":"text","text":"tab\tand\u0000nul"}],"toolCallId":"c1"}"#,
        "\n",
        r#"{"session":"other","id":"a","role":"odd role","name":"Ana","content":"x","timestamp":"2024-05-01T10:00:00+02:00","model":"m","tags":["t"],"confidence":0.50,"unknown":{"deep":[1,2.0]}}"#,
        "\n",
        r#"{"session":"other","id":"b","role":"user","content":"fork","parentIds":["a"]}"#,
        "\n",
        r#"{"session":"other","id":"c","role":"user","content":"second child","parentIds":["a"]}"#,
        "\n",
        r#"{"session":"default","role":"user","content":"named though it is the default"}"#,
        "\n",
    );
    let place = Place::new();
    let file = place.file("c.jsonl", lines);
    place.ok(&["import", &file]);
    let exported = place.ok(&["export"]);
    let set = |text: &str| -> Vec<serde_json::Value> {
        let mut lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.sort_by_key(ToString::to_string);
        lines
    };
    assert_eq!(set(&exported), set(lines));

    // And the export, imported elsewhere, gives the same again, to the byte.
    let elsewhere = Place::new();
    let file = elsewhere.file("c.jsonl", &exported);
    elsewhere.ok(&["import", &file]);
    assert_eq!(elsewhere.ok(&["export"]), exported);
    assert_eq!(elsewhere.json(&["import", &file])["added"], 0);

    let all = place.ok(&["export", "--all", "--session", "other"]);
    let first: serde_json::Value = serde_json::from_str(all.lines().next().unwrap()).unwrap();
    assert_eq!((&first["seq"], &first["branch"]), (&1.into(), &"main".into()));
    assert!(first["timestamp"].is_string());
}

#[test]
fn fields_with_our_names_are_neither_lost_nor_doubled() {
    let place = Place::new();
    let line = r#"{"id":null,"role":"user","content":"x","seq":"mine","tier":7,"timestamp":null}"#;
    let file = place.file("c.jsonl", line);
    place.ok(&["import", &file]);
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(value(&place.ok(&["export"])), value(line));
    let shown = place.ok(&["show", "turn-1.1", "--json"]);
    assert_eq!((shown.matches("\"id\":").count(), shown.matches("\"timestamp\":").count()), (1, 1));
    let shown = value(&shown);
    assert_eq!((&shown["seq"], &shown["tier"]), (&1.into(), &"hot".into()));
    assert_eq!(
        (&shown["clientFields"]["seq"], &shown["clientFields"]["tier"]),
        (&"mine".into(), &7.into())
    );
    assert_eq!(value(&place.ok(&["export", "--all"]))["seq"], "mine");
}

#[test]
fn export_is_the_same_from_every_tier() {
    let place = Place::new();
    let text = conversation(257);
    let file = place.file("c.jsonl", &text);
    place.ok(&["import", &file]);
    let value = |text: &str| -> Vec<serde_json::Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    assert_eq!(value(&place.ok(&["export"])), value(&text));
    place.ok(&["reindex"]);
    assert_eq!(value(&place.ok(&["export"])), value(&text));
}

#[test]
fn two_processes_import_at_once() {
    let place = Place::new();
    let (one, two) = (conversation(900), conversation(1100));
    let files = [place.file("1.jsonl", &one), place.file("2.jsonl", &two)];
    let children: Vec<_> = files
        .iter()
        .zip(["one", "two"])
        .map(|(file, session)| {
            place
                .command(&["import", file, "--session", session])
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", place.describe(&output));
    }
    assert_eq!(place.ok(&["export", "--session", "one"]).lines().count(), 900);
    assert_eq!(place.ok(&["export", "--session", "two"]).lines().count(), 1100);
    assert_eq!(place.json(&["stats"])["pending"], 0);
    place.check();
}
