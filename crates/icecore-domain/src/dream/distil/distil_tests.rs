use proptest::prelude::*;

use super::super::archive::in_order;
use super::super::{Part, Source, SourceFact, SourceKind};
use super::*;
use crate::fact;
use crate::text::Said;
use crate::tokens::CharCounter;

fn at(text: &str) -> Option<Millis> {
    Some(Millis::parse_rfc3339(text).unwrap())
}

fn entry(text: &str) -> Source {
    let part = Part { role: String::new(), name: None, text: text.to_owned(), at: None };
    Source {
        kind: SourceKind::Entry,
        session: String::new(),
        seq: 0,
        parts: vec![part],
        facts: Vec::new(),
    }
}

fn facts_of(part: &Part) -> Vec<SourceFact> {
    let said = Said {
        role: &part.role,
        name: part.name.as_deref(),
        text: &part.text,
        at: part.at.unwrap_or(Millis(0)),
    };
    let source_fact = |fact: fact::Fact| SourceFact {
        kind: fact.kind,
        subject: fact.subject,
        attribute: fact.attribute,
        value: fact.value,
        text: fact.text,
        at: part.at,
        confirmed: false,
    };
    fact::extract(&said, None).into_iter().map(source_fact).collect()
}

fn turn(session: &str, seq: u64, name: &str, time: &str, text: &str) -> Source {
    let part = Part {
        role: "user".to_owned(),
        name: (!name.is_empty()).then(|| name.to_owned()),
        text: text.to_owned(),
        at: (!time.is_empty()).then(|| at(time)).flatten(),
    };
    let facts = facts_of(&part);
    Source { kind: SourceKind::Turn, session: session.to_owned(), seq, parts: vec![part], facts }
}

fn distilled(mut sources: Vec<Source>, tokens: u64) -> String {
    in_order(&mut sources);
    distil(&sources, None, tokens, &CharCounter).text()
}

fn conversation() -> Vec<Source> {
    vec![
        turn(
            "a",
            0,
            "Ann",
            "2023-05-07T10:00:00Z",
            "Hey Bo! I live in Oslo. I went to the glass museum yesterday with my sister Kari.",
        ),
        turn(
            "a",
            1,
            "Bo",
            "2023-05-07T10:01:00Z",
            "Nice! From now on, always answer me in Norwegian.",
        ),
        turn(
            "a",
            2,
            "Ann",
            "2023-05-07T10:02:00Z",
            "We decided to use Postgres 16 for the ledger. Thanks!",
        ),
        turn(
            "b",
            0,
            "Bo",
            "2023-09-01T09:00:00Z",
            "I prefer tea over coffee. We decided to use Postgres 16 for the ledger!",
        ),
        turn(
            "b",
            1,
            "Ann",
            "2023-09-01T09:01:00Z",
            "I live in Bergen now. The kiln broke last week, so the vases are late.",
        ),
        turn("b", 2, "Bo", "2023-09-01T09:02:00Z", "Who is going to repair the kiln?"),
        entry("The backup runs at 02:00 from the cellar host."),
    ]
}

#[test]
fn a_conversation_is_distilled_into_its_sections() {
    let text = distilled(conversation(), 4_000);
    let expected = "\
## What is true now
- The backup runs at 02:00 from the cellar host.
- Ann lives in Bergen now. (before: Ann lives in Oslo.)

## Decisions
2023-05-07
- Ann: We decided to use Postgres 16 for the ledger.
2023-09-01
- Bo: We decided to use Postgres 16 for the ledger.

## Preferences and instructions
- Bo asks: From now on, always answer me in Norwegian.
- Bo prefers tea over coffee.

## Open threads
2023-09-01
- Bo: Who is going to repair the kiln?

## Timeline
2023-05-07
- Ann went to the glass museum yesterday with their sister Kari (2023-05-06).
2023-09-01
- Ann: The kiln broke last week, so the vases are late. (2023-08-21 to 2023-08-27)";
    assert_eq!(text, expected, "\n{text}");
}

#[test]
fn little_room_keeps_instructions_first() {
    let text = distilled(conversation(), 60);
    assert_eq!(text, "- Bo asks: From now on, always answer me in Norwegian.");
    let mut sources = conversation();
    sources[6].facts.push(SourceFact {
        kind: fact::FactKind::Identity,
        subject: "Bo".to_owned(),
        attribute: "boat".to_owned(),
        value: "Vega".to_owned(),
        text: "Bo's boat is  called Vega".to_owned(),
        at: None,
        confirmed: true,
    });
    let text = distilled(sources, 160);
    assert!(text.contains("Bo's boat is called Vega"), "{text}");
    assert!(text.contains("always answer me in Norwegian"), "{text}");
}

#[test]
fn the_same_said_again_is_one_line_with_all_sources() {
    let mut sources = vec![
        turn(
            "a",
            0,
            "Ann",
            "2023-05-07T10:00:00Z",
            "The red kiln in the cellar of the old mill broke down.",
        ),
        turn(
            "b",
            0,
            "Ann",
            "2023-05-09T10:00:00Z",
            "the red kiln in the cellar of the old mill broke down!",
        ),
        turn(
            "c",
            0,
            "Ann",
            "2023-05-10T10:00:00Z",
            "So the red kiln in the cellar of the old mill broke down again.",
        ),
        turn(
            "d",
            0,
            "Ann",
            "2023-05-11T10:00:00Z",
            "The red kiln in the cellar of the old mill never broke down.",
        ),
        turn(
            "e",
            0,
            "Ann",
            "2023-05-12T10:00:00Z",
            "The red kiln in the cellar of the new mill in Oslo broke down.",
        ),
    ];
    in_order(&mut sources);
    let distillate = distil(&sources, None, 4_000, &CharCounter);
    let told: Vec<(&str, &[u32])> =
        distillate.lines.iter().map(|line| (line.text.as_str(), line.sources.as_slice())).collect();
    let expected: [(&str, &[u32]); 3] = [
        ("Ann: So the red kiln in the cellar of the old mill broke down again.", &[0, 1, 2]),
        ("Ann: The red kiln in the cellar of the old mill never broke down.", &[3]),
        ("Ann: The red kiln in the cellar of the new mill in Oslo broke down.", &[4]),
    ];
    assert_eq!(told, expected);
}

#[test]
fn where_time_does_not_decide_both_stay() {
    let sources = vec![
        turn("a", 0, "Ann", "", "I live in Oslo."),
        turn("a", 1, "Ann", "2023-05-07T10:00:00Z", "I live in Bergen."),
    ];
    let text = distilled(sources, 4_000);
    assert!(text.contains("Ann lives in Oslo.") && text.contains("Ann lives in Bergen."), "{text}");
    assert!(!text.contains("before:"), "{text}");
}

#[test]
fn what_is_confirmed_is_not_overtaken_by_what_is_not() {
    let mut sources = vec![
        turn("a", 0, "Ann", "2023-05-07T10:00:00Z", "I live in Oslo."),
        turn("b", 0, "Ann", "2023-06-07T10:00:00Z", "I live in Bergen."),
    ];
    sources[0].facts[0].confirmed = true;
    let text = distilled(sources, 4_000);
    assert!(text.contains("- Ann lives in Oslo.\n- Ann lives in Bergen."), "{text}");
}

fn carried(mut sources: Vec<Source>, before: &Distillate, tokens: u64) -> Distillate {
    let mut archive = entry(&before.text());
    archive.kind = SourceKind::Archive;
    sources.push(archive);
    in_order(&mut sources);
    distil(&sources, Some(before), tokens, &CharCounter)
}

#[test]
fn what_is_carried_is_merged_with_what_is_new() {
    let mut sources = conversation();
    in_order(&mut sources);
    let first = distil(&sources, None, 4_000, &CharCounter);
    let new = vec![
        turn("c", 0, "Ann", "2024-01-05T10:00:00Z", "I live in Lisbon now."),
        turn("c", 1, "Bo", "2024-01-05T10:01:00Z", "I prefer tea over coffee."),
    ];
    let second = carried(new, &first, 4_000);
    let expected = first.text().replace(
        "Ann lives in Bergen now. (before: Ann lives in Oslo.)",
        "Ann lives in Lisbon now. (before: Ann lives in Bergen now.)",
    );
    assert_eq!(second.text(), expected);
    let of = |text: &str| {
        let line = second.lines.iter().find(|line| line.text.contains(text));
        line.map(|line| line.sources.clone())
    };
    assert_eq!(of("Lisbon"), Some(vec![0, 1]));
    assert_eq!(of("tea over coffee"), Some(vec![0, 2]));
    assert_eq!(of("Norwegian"), Some(vec![0]));
    let nothing_new = carried(Vec::new(), &first, 4_000);
    assert_eq!(nothing_new.text(), first.text());
    let small = carried(Vec::new(), &first, 120);
    assert!(small.text().contains("Norwegian") && small.text().len() <= 120, "{}", small.text());
}

#[test]
fn markers_alone_are_no_line() {
    let secrets = ["[REDACTED:github-token]", "[REDACTED:aws-key] [REDACTED:jwt]", " \n", "…", ""];
    let sources = || secrets.iter().map(|text| entry(text)).collect::<Vec<_>>();
    assert_eq!(distilled(sources(), 4_000), "");
    let mut told = sources();
    told.push(entry("The deploy key is [REDACTED:github-token], kept by Bo."));
    let line = "- The deploy key is [REDACTED:github-token], kept by Bo.";
    assert_eq!(distilled(told.clone(), 4_000), line);
    for tokens in 0..70 {
        let text = distilled(told.clone(), tokens);
        assert!(!text.contains('[') || text.contains("[REDACTED:github-token]"), "{text}");
    }
}

#[test]
fn nothing_comes_of_nothing() {
    assert_eq!(distilled(Vec::new(), 4_000), "");
    assert_eq!(distilled(conversation(), 0), "");
}

#[test]
fn duplicates_alone_are_one_line() {
    let sources = vec![entry("The ferry to Kvalsund leaves at nine."); 500];
    assert_eq!(distilled(sources, 4_000), "- The ferry to Kvalsund leaves at nine.");
}

#[test]
fn one_gigantic_part_without_an_end_is_read_in_bounds() {
    for text in ["word ".repeat(200_000), "x".repeat(1_000_000), "字".repeat(300_000)] {
        for tokens in [5, 50, 500, 50_000] {
            let found = distilled(vec![entry(&text)], tokens);
            assert!(!found.is_empty() && found.chars().count() as u64 <= tokens, "{tokens}");
        }
    }
}

#[test]
fn code_is_told_by_its_beginning() {
    let text = distilled(vec![entry("```rust\nfn main() { run(); }\n```")], 4_000);
    assert_eq!(text, "- ```rust fn main() { run(); } ```");
}

#[test]
fn summaries_of_chunks_are_read_with_their_speakers() {
    let text = "Ann: I sold the loom to Kari. It was old.\nBo: The kiln is at the mill.";
    let mut source = entry(text);
    (source.kind, source.session) = (SourceKind::Mini, "a".to_owned());
    let expected = "## What is true now\n- Ann: I sold the loom to Kari. It was old.\n- Bo: The kiln is at the mill.";
    assert_eq!(distilled(vec![source], 4_000), expected);
}

/// Words, some of which come often, so that sentences meet.
fn sentence() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "Ann", "Bo", "kiln", "Oslo", "I", "live", "in", "decided", "we", "prefer", "tea", "always",
        "never", "yesterday", "the", "12", "mill", "thanks", "?", "[REDACTED:jwt]", "你好",
        "answer",
    ]);
    let end = prop::sample::select(vec![".", "!", "?", "", "\n"]);
    (prop::collection::vec(word, 1..9), end).prop_map(|(words, end)| words.join(" ") + end)
}

fn any_source() -> impl Strategy<Value = Source> {
    let text = prop::collection::vec(sentence(), 1..4).prop_map(|all| all.join(" "));
    let names = prop::sample::select(vec!["", "Ann", "Bo"]);
    let days = prop::option::of(1_u32..28);
    (text, names, days, 0_u64..50, any::<bool>()).prop_map(|(text, name, day, seq, is_entry)| {
        if is_entry {
            return entry(&text);
        }
        let time = day.map(|day| format!("2023-05-{day:02}T10:00:00Z")).unwrap_or_default();
        turn(if seq % 2 == 0 { "a" } else { "b" }, seq, name, &time, &text)
    })
}

proptest! {
    #[test]
    fn the_order_of_arrival_does_not_matter(
        (sources, shuffled) in prop::collection::vec(any_source(), 0..20)
            .prop_flat_map(|sources| (Just(sources.clone()), Just(sources).prop_shuffle())),
        tokens in 0_u64..1_500,
    ) {
        prop_assert_eq!(distilled(sources, tokens), distilled(shuffled, tokens));
    }

    #[test]
    fn it_fits_and_every_line_stands_on_its_sources(
        mut sources in prop::collection::vec(any_source(), 0..20),
        tokens in 0_u64..1_500,
    ) {
        in_order(&mut sources);
        let found = distil(&sources, None, tokens, &CharCounter);
        let text = found.text();
        prop_assert!(u64::from(CharCounter.count(&text)) <= tokens);
        for line in &found.lines {
            prop_assert!(!line.sources.is_empty());
            prop_assert!(line.sources.is_sorted_by(|a, b| a < b));
            prop_assert!(line.sources.iter().all(|at| (*at as usize) < sources.len()));
            let given: String =
                line.sources.iter().map(|at| sources[*at as usize].text() + "\n").collect();
            let given = normalise(&given);
            let is_date = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit()) || word == "to";
            for told in [Some(&line.text), line.before.as_ref()].into_iter().flatten() {
                for word in normalise(told).split(' ') {
                    prop_assert!(given.contains(word) || is_date(word), "{word} of {told} in {given}");
                }
            }
        }
    }

    #[test]
    fn what_has_words_has_a_line_and_all_of_it_where_there_is_room(
        mut sources in prop::collection::vec(any_source(), 1..12),
    ) {
        in_order(&mut sources);
        let found = distil(&sources, None, 100_000, &CharCounter);
        let has_words = |source: &Source| {
            source.parts[0].text.replace("[REDACTED:jwt]", "").contains(char::is_alphanumeric)
        };
        for (at, _) in sources.iter().enumerate().filter(|(_, source)| has_words(source)) {
            let is_told = found.lines.iter().any(|line| line.sources.contains(&(at as u32)));
            prop_assert!(is_told, "{:?}", sources[at]);
        }
        if sources.iter().any(has_words) {
            let small = distil(&sources, None, 8, &CharCounter);
            prop_assert_eq!(small.lines.len(), 1);
        }
    }
}

#[test]
fn the_text_is_read_back_as_far_as_it_tells() {
    let day = Millis::parse_rfc3339("2026-01-02T00:00:00Z").unwrap();
    let line = |section, text: &str, at: Option<Millis>, before: Option<&str>| Line {
        section,
        text: text.to_owned(),
        at,
        before: before.map(str::to_owned),
        sources: Vec::new(),
    };
    let whole = Distillate {
        lines: vec![
            line(Section::Now, "Ana lives in Lisbon (by the sea).", None, Some("Porto")),
            line(Section::Decisions, "Use Rust.", None, None),
            line(Section::Decisions, "Ship it.", Some(day), None),
            line(Section::Timeline, "The ferry left.", Some(day), None),
        ],
    };
    assert_eq!(Distillate::read(&whole.text()), whole);
    let alone = Distillate { lines: whole.lines[..1].to_vec() };
    assert_eq!(Distillate::read(&alone.text()), alone);
    assert_eq!(Distillate::read(""), Distillate::default());
}

#[test]
fn a_sentence_stands_where_what_it_says_belongs() {
    let noon = "2023-05-07T12:00:00Z";
    let sources = vec![
        turn("a", 0, "Mira", noon, "The dome is flat. One more rule: always answer in kilometres."),
        turn("a", 1, "Mira", noon, "Decided: the mast stands on the north side of the hut."),
        turn("a", 2, "Mira", noon, "Thanks for the offer. I don't drink coffee."),
    ];
    let mut sources = sources;
    in_order(&mut sources);
    let distillate = distil(&sources, None, 2_000, &CharCounter);
    let section_of = |words: &str| {
        let holds = |line: &&Line| line.text.contains(words);
        distillate.lines.iter().find(holds).map(|line| line.section)
    };
    assert_eq!(section_of("in kilometres"), Some(Section::Preferences));
    assert_eq!(section_of("the mast stands"), Some(Section::Decisions));
    assert_eq!(section_of("drink coffee"), Some(Section::Now));
    assert_eq!(section_of("The dome is flat"), Some(Section::Timeline));
}
