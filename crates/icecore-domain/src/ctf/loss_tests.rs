//! Version 1 lost data in fifteen ways. Version 2 keeps it, or, where version 1
//! overlooked damage, says so.

use super::*;
use crate::json::JsonText;
use crate::turn::{Content, Timestamp};
use crate::turn_jsonl::{parse_line, write_fields};

fn check_keeps(turn: RawTurn) {
    let turns = [RawTurn::new("user", "before"), turn, RawTurn::new("assistant", "after")];
    assert_eq!(decode(&encode(&turns)).unwrap(), turns);
}

fn with_model(model: &str) -> RawTurn {
    RawTurn { model: Some(model.to_owned()), ..RawTurn::new("assistant", "x") }
}

#[test]
fn ctf1_loss_01_literal_pictures_of_tab_and_newline() {
    check_keeps(RawTurn::new("user", "␉ is a tab, ␊ a newline, \t and \n too"));
}

#[test]
fn ctf1_loss_02_dash_and_empty_model_become_null() {
    check_keeps(with_model("-"));
    check_keeps(with_model(""));
    check_keeps(RawTurn { model: None, ..with_model("") });
}

#[test]
fn ctf1_loss_03_content_over_2000_characters_is_cut() {
    check_keeps(RawTurn::new("user", "0123456789".repeat(1_000)));
}

#[test]
fn ctf1_loss_04_tab_in_model_shifts_fields() {
    check_keeps(with_model("a\tb"));
}

#[test]
fn ctf1_loss_05_newline_in_model_or_timestamp_breaks_the_row() {
    check_keeps(with_model("a\nb"));
    assert!(Timestamp::parse("2024-01-01T00:00:00Z\n").is_err());
}

#[test]
fn ctf1_loss_06_trailing_blank_field_drops_the_last_row() {
    let turns = [RawTurn::new("user", "a"), RawTurn::new("user", "")];
    assert_eq!(decode(&encode(&turns)).unwrap(), turns);
    let turns = [RawTurn::new("user", " \t "), RawTurn::new("user", "\n\n")];
    assert_eq!(decode(&encode(&turns)).unwrap(), turns);
    let v1 = "#CTF v1 turns=1 fields=role,content,timestamp,model\nuser\thi\t2026-01-15T16:20:06\t";
    assert_eq!(decode(v1).unwrap().len(), 1);
}

#[test]
fn ctf1_loss_07_carriage_return_is_lost_through_a_text_file() {
    let turns = [RawTurn::new("user", "a\r\nb\rc\r")];
    let text = encode(&turns);
    assert!(!text.contains('\r'), "a text file cannot change what is not there");
    assert_eq!(decode(&text).unwrap(), turns);
}

#[test]
fn ctf1_loss_08_parents_confidence_tags_and_other_fields_are_dropped() {
    let json = |text| JsonText::parse(text).unwrap();
    check_keeps(RawTurn {
        parent_ids: Some(vec!["p1".into(), "p,2".into()]),
        tags: Some(vec![]),
        confidence: Some(json("0.50")),
        extra: vec![("source".into(), json("\"mail\"")), ("tokenCount".into(), json("17"))],
        ..RawTurn::new("user", "x")
    });
}

#[test]
fn ctf1_loss_09_zero_turns_cannot_be_read_back() {
    assert_eq!(decode(&encode(&[])).unwrap(), []);
    assert_eq!(decode_summaries(&encode_summaries(&[])).unwrap(), []);
}

#[test]
fn ctf1_loss_10_unknown_role_aborts_the_chunk() {
    check_keeps(RawTurn::new("critic", "x"));
    let v1 = "#CTF v1 turns=1 fields=role,content,timestamp,model\ncritic\thi\t\t-";
    assert_eq!(decode(v1).unwrap()[0].role, "critic");
}

#[test]
fn ctf1_loss_11_version_and_row_count_are_never_checked() {
    let text = encode(&[RawTurn::new("user", "a"), RawTurn::new("user", "b")]);
    let later = text.replacen("v2", "v3", 1);
    assert_eq!(decode(&later), Err(CtfError::UnknownVersion("3".into())));
    let cut = text.strip_suffix("U\tb\n").unwrap();
    assert_eq!(decode(cut), Err(CtfError::Truncated { declared: 2, found: 1 }));
    let longer = format!("{text}U\tc\n");
    assert_eq!(decode(&longer), Err(CtfError::ExtraRows { declared: 2, found: 3 }));
    let v1 = "#CTF v1 turns=2 fields=role,content\nuser\thi";
    assert_eq!(decode(v1), Err(CtfError::Truncated { declared: 2, found: 1 }));
}

#[test]
fn ctf1_loss_12_themes_are_not_escaped() {
    let themes = ["a|b", "c\td", "e\nf", "g,h", "", "^", "\\0"].map(str::to_owned).to_vec();
    let rows = [SummaryRow {
        chunk_id: "micro\t1".into(),
        first: 0,
        last: 9,
        summary: "-".into(),
        themes,
    }];
    assert_eq!(decode_summaries(&encode_summaries(&rows)).unwrap(), rows);
}

#[test]
fn ctf1_loss_13_malformed_rows_vanish() {
    let v1 = "#CTF v1 turns=2 fields=role,content,timestamp,model\nuser\thi\nuser\tho\t\t-";
    assert_eq!(decode(v1), Err(CtfError::Columns { row: 1, expected: 4, found: 2 }));
    let blank = "#CTF v1 turns=2 fields=role,content\n\nuser\thi";
    assert_eq!(decode(blank), Err(CtfError::Columns { row: 1, expected: 2, found: 1 }));
}

#[test]
fn ctf1_loss_14_ids_change_after_a_round_trip() {
    check_keeps(RawTurn { id: Some("turn-1".into()), ..RawTurn::new("user", "x") });
    check_keeps(RawTurn { tool_call_id: Some("call".into()), ..RawTurn::new("tool", "x") });
}

#[test]
fn ctf1_loss_15_the_hot_json_form_drops_the_same_fields() {
    let line = r#"{"id":"7","role":"user","content":[{"type":"text","text":"a"}],"parentIds":["6"],"tags":["t"],"confidence":1,"toolCalls":[],"source":"mail"}"#;
    let turn = parse_line(line).unwrap().turn;
    assert!(matches!(turn.content, Content::Parts(_)));
    assert_eq!(parse_line(&write_fields(&[], &turn)).unwrap().turn, turn);
    check_keeps(turn);
}
