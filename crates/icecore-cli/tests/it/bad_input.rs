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
    assert_snapshot!(refused(format!("{good}{{\"role\":\"user\"\n")), @r"
    exit 1
    --- stderr
    error: [DIR]/c.jsonl:4: not a JSON object: EOF while parsing an object at column 14
    hint: nothing of this file was imported; mend the line and run it again
    ");
    assert_snapshot!(refused(format!("{good}{{\"role\":\"user\"}}\n")), @r"
    exit 1
    --- stderr
    error: [DIR]/c.jsonl:4: field `content` is missing
    hint: nothing of this file was imported; mend the line and run it again
    ");
    assert_snapshot!(refused(format!("{good}[1]\n")), @r"
    exit 1
    --- stderr
    error: [DIR]/c.jsonl:4: not a JSON object: invalid type: sequence, expected an object with `role` and `content` at column 0
    hint: nothing of this file was imported; mend the line and run it again
    ");
}

#[test]
fn invalid_utf8() {
    let mut bytes = conversation(2).into_bytes();
    bytes.extend(b"{\"role\":\"user\",\"content\":\"caf\xe9\"}\n");
    assert_snapshot!(refused(bytes), @r"
    exit 1
    --- stderr
    error: [DIR]/c.jsonl:3: not valid UTF-8 at byte 30
    hint: nothing of this file was imported; mend the line and run it again
    ");
}

#[test]
fn a_turn_of_two_mebibytes() {
    let line = format!("{{\"role\":\"user\",\"content\":\"{}\"}}\n", "x".repeat(2 << 20));
    assert_snapshot!(refused(format!("{}{line}", conversation(1))), @r"
    exit 1
    --- stderr
    error: [DIR]/c.jsonl:2: content has 2097152 bytes, and a turn's content is at most 1048576 (1 MiB)
    hint: nothing of this file was imported; mend the line and run it again
    ");
    let place = Place::new();
    let output = place.output_with_input(&["add"], line.as_bytes());
    assert_snapshot!(place.describe(&output), @r"
    exit 1
    --- stderr
    error: standard input:1: content has 2097152 bytes, and a turn's content is at most 1048576 (1 MiB)
    hint: nothing of this file was imported; mend the line and run it again
    ");
}

#[test]
fn parents_that_are_missing_or_form_a_cycle() {
    let turn = |id: &str, parent: &str| {
        format!(
            "{{\"id\":\"{id}\",\"role\":\"user\",\"content\":\"x\",\"parentIds\":[\"{parent}\"]}}\n"
        )
    };
    assert_snapshot!(refused(turn("a", "nobody")), @r"
    exit 1
    --- stderr
    error: [DIR]/c.jsonl:1: parent `nobody` does not exist in session `default`
    hint: nothing of this file was imported; mend the line and run it again
    ");
    assert_snapshot!(refused(turn("a", "a")), @r"
    exit 1
    --- stderr
    error: [DIR]/c.jsonl:1: turn `a` is its own parent: a cycle
    hint: nothing of this file was imported; mend the line and run it again
    ");
    assert_snapshot!(refused(turn("a", "b") + &turn("b", "a")), @r"
    exit 1
    --- stderr
    error: [DIR]/c.jsonl:1: parent `b` comes after its child, or their parents form a cycle; put parents first
    hint: nothing of this file was imported; mend the line and run it again
    ");
}

#[test]
fn timestamps_out_of_range() {
    let line =
        |time: &str| format!("{{\"role\":\"user\",\"content\":\"x\",\"timestamp\":\"{time}\"}}\n");
    assert_snapshot!(refused(line("2024-02-30T10:00:00Z")), @r"
    exit 1
    --- stderr
    error: [DIR]/c.jsonl:1: timestamp `2024-02-30T10:00:00Z` is not RFC 3339 within the years 0000 to 9999 (no such date, time or offset)
    hint: nothing of this file was imported; mend the line and run it again
    ");
    assert_snapshot!(refused(line("99999-01-01T00:00:00Z")), @r"
    exit 1
    --- stderr
    error: [DIR]/c.jsonl:1: timestamp `99999-01-01T00:00:00Z` is not RFC 3339 within the years 0000 to 9999 (expected a form like 2024-05-01T10:00:00Z)
    hint: nothing of this file was imported; mend the line and run it again
    ");
}

#[test]
fn another_body_under_the_same_id() {
    let line = |text: &str| format!("{{\"id\":\"a\",\"role\":\"user\",\"content\":\"{text}\"}}\n");
    assert_snapshot!(refused(line("one") + &line("two")), @r"
    exit 1
    --- stderr
    error: [DIR]/c.jsonl:2: turn `a` stands in session `default` with another body
    hint: nothing of this file was imported; mend the line and run it again
    ");
    let place = Place::new();
    place.output_with_input(&["add"], line("one").as_bytes());
    let output = place.output_with_input(&["add"], line("two").as_bytes());
    assert_snapshot!(place.describe(&output), @r"
    exit 1
    --- stderr
    error: standard input:1: turn `a` stands in session `default` with another body
    hint: nothing of this file was imported; mend the line and run it again
    ");
}

#[test]
fn files_that_are_not_there_or_no_files() {
    let place = Place::new();
    assert_snapshot!(place.shown(&["import", "/nowhere/at/all.jsonl"]), @r"
    exit 1
    --- stderr
    error: cannot read `/nowhere/at/all.jsonl`: No such file or directory (os error 2)
    hint: name files of turn JSONL, plain or as .gz or .zst, that this user can read
    ");
    let dir = place.dir.path().display().to_string();
    assert_snapshot!(place.shown(&["import", &dir]), @r"
    exit 1
    --- stderr
    error: cannot read `[DIR]`: it is a directory; name the files in it
    hint: name files of turn JSONL, plain or as .gz or .zst, that this user can read
    ");
    let file = place.file("c.jsonl.gz", "not gzip");
    assert_eq!(place.output(&["import", &file]).status.code(), Some(1));
}

#[test]
fn names_that_cannot_be_used() {
    let place = Place::new();
    assert_snapshot!(place.shown(&["add", "--session", "", "x"]), @r"
    exit 1
    --- stderr
    error: a session needs a name, and the one given is empty
    hint: a name has 1 to 512 bytes and no control characters; that of a memory is no path
    ");
    assert_snapshot!(place.shown(&["add", "--tenant", "a\nb", "x"]), @r"
    exit 1
    --- stderr
    error: the name of a tenant may not hold control characters
    hint: a name has 1 to 512 bytes and no control characters; that of a memory is no path
    ");
}
