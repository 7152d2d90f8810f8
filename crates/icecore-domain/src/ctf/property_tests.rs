//! Any turns in, the same turns out; any damage is noticed.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::json::JsonText;
use crate::turn::{Content, MAX_CONTENT_BYTES, Timestamp};

/// Texts made of what could go wrong.
fn any_text() -> impl Strategy<Value = String> {
    let awkward = prop::sample::select(vec![
        "", "-", "\t", "\n", "\r", "\r\n", "\\", "\\t", "\\e", "\\0", "\\N", "\\J[]", "\\,", ",",
        "^", "=", " ", "␉", "␊", "\0", "\u{1}", "\u{b}", "\u{c}", "\u{1f}", "\u{7f}", "\u{85}",
        "\u{2028}", "\u{feff}", "#CTF v2", "é", "漢字", "👍🏽", "\"", "null", "2024-01-01T00:00:00Z",
    ]);
    let piece = prop_oneof![3 => awkward.prop_map(str::to_owned), 1 => ".{0,6}", 1 => "\\PC{0,8}"];
    vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

/// JSON in many spellings: blanks of all kinds, escapes, digits as written.
fn any_json() -> impl Strategy<Value = JsonText> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["null", "true", "0.50", "-1e+3", "{}", "[ ]", r#""\ud800""#])
            .prop_map(str::to_owned),
        any_text().prop_map(|text| crate::json::quote(&text)),
    ];
    let blank = || prop::sample::select(vec!["", "", " ", "\t", "\n", "\r\n"]);
    let nested = leaf.prop_recursive(3, 8, 3, move |inner| {
        let array = (vec(inner.clone(), 0..3), blank()).prop_map(|(items, blank)| {
            format!("[{blank}{}{blank}]", items.join(&format!("{blank},")))
        });
        let object = (vec((any_text(), inner), 0..3), blank()).prop_map(|(members, blank)| {
            let member = |(key, value): (String, String)| {
                format!("{}{blank}:{blank}{value}", crate::json::quote(&key))
            };
            let members: Vec<String> = members.into_iter().map(member).collect();
            format!("{{{blank}{}{blank}}}", members.join(","))
        });
        prop_oneof![array, object]
    });
    nested.prop_map(|text| JsonText::parse(&text).unwrap())
}

fn any_timestamp() -> impl Strategy<Value = Timestamp> {
    let year = prop_oneof![Just(2023), 1..9998_i32];
    let time = (0..24, 0..60, prop_oneof![9 => 0..60, 1 => Just(60)]);
    let between = prop::sample::select(vec!["T", "T", "T", "t", " "]);
    let fraction = prop_oneof![3 => Just(String::new()), 1 => "\\.[0-9]{1,9}", 1 => "\\.[0-9]{3}"];
    let offset = prop::sample::select(vec!["Z", "Z", "Z", "z", "+00:00", "-00:00", "+05:30"]);
    (year, 1..13, 1..29, time, between, fraction, offset).prop_filter_map(
        "a timestamp we take",
        |(year, month, day, (hour, minute, second), between, fraction, offset)| {
            Timestamp::parse(format!(
                "{year:04}-{month:02}-{day:02}{between}{hour:02}:{minute:02}:{second:02}{fraction}{offset}"
            ))
            .ok()
        },
    )
}

/// Timestamps as in a real session: one form, small differences, some equal.
fn close_timestamp() -> impl Strategy<Value = Timestamp> {
    prop_oneof![0..5_i64, 0..200_000_i64].prop_map(|minutes| {
        let at = crate::time::Millis(1_683_554_160_000 + minutes * 60_000);
        Timestamp::parse(at.to_rfc3339()).unwrap()
    })
}

fn any_content() -> impl Strategy<Value = Content> {
    prop_oneof![
        6 => any_text().prop_map(Content::Text),
        1 => Just(Content::Null),
        2 => any_json().prop_map(Content::Parts),
    ]
}

fn any_turn() -> impl Strategy<Value = RawTurn> {
    let role = prop_oneof![Just("user".to_owned()), Just("assistant".to_owned()), any_text()];
    let id =
        prop_oneof![prop::sample::select(vec!["a", "b", "^"]).prop_map(str::to_owned), any_text()];
    let timestamp = prop_oneof![2 => close_timestamp(), 1 => any_timestamp()];
    let speaker = (role, option::of(any_text()), option::of(any_text()));
    let said = (option::of(id.clone()), any_content(), option::of(timestamp));
    let links =
        (option::of(vec(id, 0..3)), option::of(vec(any_text(), 0..3)), option::of(any_text()));
    let values =
        (option::of(any_json()), option::of(any_json()), vec((any_text(), any_json()), 0..3));
    (speaker, said, links, values).prop_map(
        |(
            (role, name, model),
            (id, content, timestamp),
            (parent_ids, tags, tool_call_id),
            (confidence, tool_calls, extra),
        )| RawTurn {
            id,
            role,
            content,
            name,
            timestamp,
            model,
            parent_ids,
            tags,
            confidence,
            tool_calls,
            tool_call_id,
            extra,
        },
    )
}

/// Turns as most sessions have them, so that steps and codes repeat.
fn plain_turn() -> impl Strategy<Value = RawTurn> {
    let role = prop::sample::select(vec!["user", "assistant"]);
    (role, any_text(), option::weighted(0.9, close_timestamp()))
        .prop_map(|(role, content, timestamp)| RawTurn { timestamp, ..RawTurn::new(role, content) })
}

fn any_summary() -> impl Strategy<Value = SummaryRow> {
    (any_text(), any::<u64>(), any::<u64>(), any_text(), vec(any_text(), 0..4)).prop_map(
        |(chunk_id, first, last, summary, themes)| SummaryRow {
            chunk_id,
            first,
            last,
            summary,
            themes,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_turns_come_back(turns in vec(any_turn(), 0..6)) {
        let text = encode(&turns);
        prop_assert_eq!(text.lines().count(), turns.len() + 1, "only line feeds end rows");
        prop_assert_eq!(decode(&text).unwrap(), turns);
    }

    #[test]
    fn plain_sessions_come_back(turns in vec(plain_turn(), 0..20)) {
        prop_assert_eq!(decode(&encode(&turns)).unwrap(), turns);
    }

    #[test]
    fn any_summaries_come_back(rows in vec(any_summary(), 0..5)) {
        prop_assert_eq!(decode_summaries(&encode_summaries(&rows)).unwrap(), rows);
    }

    #[test]
    fn damage_never_gives_other_turns(
        turns in vec(any_turn(), 0..4),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let good = encode(&turns).into_bytes();
        let at = at.index(good.len());
        let mut flipped = good.clone();
        flipped[at] ^= flip;
        let mut deleted = good.clone();
        deleted.remove(at);
        let mut doubled = good.clone();
        doubled.insert(at, good[at]);
        for damaged in [flipped, deleted, doubled, good[..at].to_vec()] {
            // What is no UTF-8 cannot even be handed to the reader.
            if let Ok(text) = String::from_utf8(damaged) {
                prop_assert!(decode(&text).is_err(), "{text:?}");
                prop_assert!(decode_summaries(&text).is_err(), "{text:?}");
            }
        }
    }

    #[test]
    fn any_text_is_read_without_panic(text in any_text(), header in 0..4_usize) {
        let header = ["", "#CTF v1 turns=1 fields=role,content\n", "#CTF v2 crc=00000000 turns=1", "#CTF v"][header];
        let text = format!("{header}{text}");
        let _ = decode(&text);
        let _ = decode_summaries(&text);
    }

    #[test]
    fn any_sealed_rows_are_read_without_panic(rows in vec("[AB +\\-0-9T:.Z\t\\\\a-z{}\\[\\]\"^,]{0,24}", 0..4)) {
        let text = sealed(&format!(
            " turns={} step=60 fields=by,parentIds,extra,content\tA=user\tB=x\n{}",
            rows.len(),
            rows.iter().map(|row| format!("A 2024-01-01T00:00:00Z\t{row}\n")).collect::<String>(),
        ));
        let _ = decode(&text);
    }
}

/// Text with a right checksum, whatever else is wrong with it.
fn sealed(covered: &str) -> String {
    header::seal(header::begin(0) + covered)
}

#[test]
fn a_mebibyte_of_content_comes_back() {
    let text = "tab\t line\n back\\ \r é ␉ ".repeat(MAX_CONTENT_BYTES / 27);
    assert!(text.len() > MAX_CONTENT_BYTES - MAX_CONTENT_BYTES / 8);
    let turns = [RawTurn::new("user", "x".repeat(MAX_CONTENT_BYTES)), RawTurn::new("user", text)];
    assert_eq!(decode(&encode(&turns)).unwrap(), turns);
}

#[test]
fn a_thousand_speakers_have_a_thousand_codes() {
    let turns: Vec<RawTurn> = (0..4_000)
        .map(|nth| RawTurn { name: Some(format!("n{nth}")), ..RawTurn::new("user", "x") })
        .collect();
    assert_eq!(decode(&encode(&turns)).unwrap(), turns);
}

#[test]
fn json_as_deep_as_we_take_comes_back() {
    let deep = JsonText::parse(&format!("{}{}", "[".repeat(127), "]".repeat(127))).unwrap();
    let turn = RawTurn { extra: vec![("deep".into(), deep)], ..RawTurn::new("user", "x") };
    assert_eq!(decode(&encode(std::slice::from_ref(&turn))).unwrap(), [turn]);
}

#[test]
fn each_fault_has_its_error() {
    let check = |covered: &str, expected: &str| {
        let error = decode(&sealed(covered)).unwrap_err().to_string();
        assert!(error.contains(expected), "{covered:?} gave {error}");
    };
    let plain = " turns=1 fields=by,content\tA=user\n";
    let timed = " turns=1 step=60 fields=by,content\tA=user\n";
    check(&format!("{plain}A\n"), "row 1 has 1 cells instead of 2");
    check(&format!("{plain}A\tb\tc\n"), "row 1 has 3 cells instead of 2");
    check(&format!("{plain}B\thi\n"), "row 1: the header declares no speaker `B`");
    check(&format!("{plain}A +1\thi\n"), "the header declares no `step`");
    check(&format!("{plain}A\t\\x\n"), "row 1: `\\x` in `content` is not an escape");
    check(&format!("{plain}A\t\\J{{\n"), "row 1: `content`: not valid JSON");
    check(&format!("{plain}A\thi"), "truncated: the header declares 1 rows, 0 are whole");
    check(&format!("{plain}A\thi\nA"), "extra rows: the header declares 1, there are 2");
    check(&format!("{timed}A\thi\n"), "no time before it");
    check(&format!("{timed}A +x\thi\n"), "not in seconds");
    check(&format!("{timed}A 2024-01-01T00:00\thi\n"), "to the minute, and no time before");
    check(&format!("{timed}A 2024-13-01T00:00:00Z\thi\n"), "not RFC 3339");
    check(" turns=0 fields=by,content\tA=user\tA=tool\n", "`A` is declared twice");
    check(" turns=0 fields=by,content\tA\n", "declares no speaker");
    check(" turns=0 fields=by,mood,content\n", "unknown field `mood`");
    check(" turns=0 fields=by,id,id,content\n", "`id` stands there twice");
    check(" turns=0 fields=content\n", "must begin with `by`");
    check(" turns=x fields=by,content\n", "`turns` must be a row count");
    check(" summaries=0 fields=chunk,turns,themes,summary\n", "`turns` must be a row count");
    check(" turns=0 fields=by,content", "the line does not end");
    check(" turns=1 fields=by,parentIds,content\tA=user\nA\t^\thi\n", "the row before has no id");
    check(" turns=1 fields=by,extra,content\tA=user\nA\t[]\thi\n", "must be an object");

    assert_eq!(decode(""), Err(CtfError::NotCtf));
    assert_eq!(decode("hello"), Err(CtfError::NotCtf));
    assert_eq!(decode("#CTF v12 x"), Err(CtfError::UnknownVersion("12".into())));
    let good = encode(&[RawTurn::new("user", "hello")]);
    assert!(matches!(decode(&good.replace("hello", "hallo")), Err(CtfError::Checksum { .. })));
    assert!(matches!(decode_summaries(&good), Err(CtfError::Header(_))));
}

#[test]
fn only_what_occurs_is_a_column() {
    let check = |turn: RawTurn, header: &str, row: &str| {
        let text = encode(&[turn]);
        let (_, covered) = text.split_at("#CTF v2 crc=00000000".len());
        assert_eq!(covered, format!(" turns=1 {header}\n{row}\n"));
    };
    let user = || RawTurn::new("user", "hi");
    check(user(), "fields=by,content\tU=user", "U\thi");
    let named = RawTurn { name: Some("Ana".into()), id: Some("7".into()), ..user() };
    check(named, "fields=by,id,content\tA=user,Ana", "A\t7\thi");
    let timed = Timestamp::parse("2024-05-01T10:00:00Z").ok();
    let timed = RawTurn { timestamp: timed, model: Some("m,1".into()), ..user() };
    check(timed, "step=0 fields=by,content\tU=user,,m\\,1", "U 2024-05-01T10:00:00Z\thi");
}
