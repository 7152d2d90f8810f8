//! Bad input: a clear error with a hint, exit 1, and nothing half-imported.

use insta::assert_snapshot;

use crate::run::{Place, conversation};

/// What an import of these lines says; nothing of them may be there afterwards.
fn refused(lines: impl AsRef<[u8]>) -> String {
    let place = Place::new();
    let file = place.file("c.jsonl", lines);
    let shown = place.shown(&["import", &file]);
    assert_eq!(place.ok(&["export"]), "", "{shown}");
    place.check();
    shown
}

#[test]
fn malformed_lines() {
    let good = conversation(3);
    assert_snapshot!(refused(format!("{good}{{\"role\":\"user\"\n")), @"");
    assert_snapshot!(refused(format!("{good}{{\"role\":\"user\"}}\n")), @"");
    assert_snapshot!(refused(format!("{good}[1]\n")), @"");
}

#[test]
fn invalid_utf8() {
    let mut bytes = conversation(2).into_bytes();
    bytes.extend(b"{\"role\":\"user\",\"content\":\"caf\xe9\"}\n");
    assert_snapshot!(refused(bytes), @"");
}

#[test]
fn a_turn_of_two_mebibytes() {
    let line = format!("{{\"role\":\"user\",\"content\":\"{}\"}}\n", "x".repeat(2 << 20));
    assert_snapshot!(refused(format!("{}{line}", conversation(1))), @"");
    let place = Place::new();
    let output = place.output_with_input(&["add"], line.as_bytes());
    assert_snapshot!(place.describe(&output), @"");
}

#[test]
fn parents_that_are_missing_or_form_a_cycle() {
    let turn = |id: &str, parent: &str| {
        format!(
            "{{\"id\":\"{id}\",\"role\":\"user\",\"content\":\"x\",\"parentIds\":[\"{parent}\"]}}\n"
        )
    };
    assert_snapshot!(refused(turn("a", "nobody")), @"");
    assert_snapshot!(refused(turn("a", "a")), @"");
    assert_snapshot!(refused(turn("a", "b") + &turn("b", "a")), @"");
}

#[test]
fn timestamps_out_of_range() {
    let line =
        |time: &str| format!("{{\"role\":\"user\",\"content\":\"x\",\"timestamp\":\"{time}\"}}\n");
    assert_snapshot!(refused(line("2024-02-30T10:00:00Z")), @"");
    assert_snapshot!(refused(line("99999-01-01T00:00:00Z")), @"");
}

#[test]
fn another_body_under_the_same_id() {
    let line = |text: &str| format!("{{\"id\":\"a\",\"role\":\"user\",\"content\":\"{text}\"}}\n");
    assert_snapshot!(refused(line("one") + &line("two")), @"");
    let place = Place::new();
    place.output_with_input(&["add"], line("one").as_bytes());
    let output = place.output_with_input(&["add"], line("two").as_bytes());
    assert_snapshot!(place.describe(&output), @"");
}

#[test]
fn files_that_are_not_there_or_no_files() {
    let place = Place::new();
    assert_snapshot!(place.shown(&["import", "/nowhere/at/all.jsonl"]), @"");
    let dir = place.dir.path().display().to_string();
    assert_snapshot!(place.shown(&["import", &dir]), @"");
    let file = place.file("c.jsonl.gz", "not gzip");
    assert_eq!(place.output(&["import", &file]).status.code(), Some(1));
}

#[test]
fn names_that_cannot_be_used() {
    let place = Place::new();
    assert_snapshot!(place.shown(&["add", "--session", "", "x"]), @"");
    assert_snapshot!(place.shown(&["add", "--tenant", "a\nb", "x"]), @"");
}
