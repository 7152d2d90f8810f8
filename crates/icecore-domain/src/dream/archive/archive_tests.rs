use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

fn line(section: Section, text: &str, sources: &[u32]) -> Line {
    Line { section, text: text.to_owned(), at: None, before: None, sources: sources.to_vec() }
}

/// What the sample in `testdata/` holds.
fn sample() -> Archive {
    let dated = |line: Line, at: &str| Line { at: Millis::parse_rfc3339(at).ok(), ..line };
    let source = |kind, text: &str| ArchiveSource { kind, hash: Checksum::of(text.as_bytes()).0 };
    let home = line(Section::Now, "Ana lives in Lisbon.", &[0, 3]);
    Archive {
        budget: 8000,
        output: 2000,
        distiller: "extractive-1".to_owned(),
        tokenizer: "o200k_base".to_owned(),
        sources: vec![
            source(SourceKind::Archive, "an earlier archive"),
            source(SourceKind::Entry, "an entry"),
            source(SourceKind::Macro, "a macro"),
            source(SourceKind::Turn, "a turn"),
        ],
        distillate: Distillate {
            lines: vec![
                Line {
                    before: Some("Ana lives in Porto.".to_owned()),
                    ..dated(home, "2024-05-01T10:00:00.250Z")
                },
                line(
                    Section::Decisions,
                    "The café is called \"Três\"; no \u{1f980} on the menu.",
                    &[1],
                ),
                line(Section::Preferences, "Answer in Portuguese.\nAlways.", &[2]),
                dated(line(Section::Timeline, "Ana moved.", &[2, 3]), "2024-04-30T00:00:00Z"),
            ],
        },
    }
}

fn sample_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/dream/v1.json")
}

#[test]
fn the_sample_is_reproduced() {
    let bytes = std::fs::read(sample_path()).unwrap();
    assert_eq!(String::from_utf8(sample().to_bytes()).unwrap(), String::from_utf8_lossy(&bytes));
    assert_eq!(Archive::parse(&bytes), Ok(sample()));
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/format-archive.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(&Checksum::of(&bytes).to_string()), "the page names its address");
}

#[test]
fn keys_are_sorted_and_empty_sections_left_out() {
    let bytes = Archive { sources: vec![], distillate: Distillate::default(), ..sample() };
    assert_eq!(
        String::from_utf8(bytes.to_bytes()).unwrap(),
        r#"{"budget":8000,"distillate":{},"distiller":"extractive-1","format":"icecore-archive/1","output":2000,"sources":[],"tokenizer":"o200k_base"}"#
    );
}

#[test]
fn the_times_it_tells_of_are_the_first_and_the_last() {
    let (first, last) = sample().between().unwrap();
    assert_eq!((first.to_date(), last.to_date()), ("2024-04-30".into(), "2024-05-01".into()));
    assert_eq!(Archive { distillate: Distillate::default(), ..sample() }.between(), None);
}

#[test]
fn what_is_not_canonical_is_refused() {
    let text = String::from_utf8(sample().to_bytes()).unwrap();
    let refused = |changed: &str, reason: &str| {
        assert_ne!(changed, text);
        let error = Archive::parse(changed.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("this is no archive: ") && error.contains(reason), "{error}");
    };
    refused(&format!("{text}\n"), "canonical");
    refused(&text.replacen(":8000", ": 8000", 1), "canonical");
    refused(&text.replacen(":8000", ":8000.0", 1), "");
    refused(&text.replacen(":8000", ":8e3", 1), "");
    refused(&text.replacen(":8000", ":9007199254740992", 1), "budget");
    refused(&text.replacen("icecore-archive/1", "icecore-archive/2", 1), "format");
    refused(&text.replacen("\"entry\"", "\"diary\"", 1), "kind `diary`");
    refused(&text.replacen("[2,3]", "[2,4]", 1), "not there");
    refused(&text.replacen("[2,3]", "[3,2]", 1), "canonical");
    refused(&text.replacen("[2,3]", "[2,2]", 1), "canonical");
    refused(&text.replacen("[2,3]", "[]", 1), "no source");
    refused(&text.replacen("\"decisions\"", "\"rumours\"", 1), "rumours");
    refused(&text.replacen("00:00:00Z", "00:00:00.0Z", 1), "canonical");
    refused(&text.replacen("{\"budget\"", "{\"at\":1,\"budget\"", 1), "");
    refused(&text.replacen("\"decisions\":", "\"threads\":[],\"decisions\":", 1), "canonical");
    refused("", "");
    refused("[]", "");
    refused(&"[".repeat(100_000), "");
}

#[test]
fn every_flipped_bit_is_another_archive_or_none() {
    let bytes = sample().to_bytes();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            // What is read is what the bytes say, and nothing else has those bytes.
            if let Ok(archive) = Archive::parse(&changed) {
                assert_eq!(archive.to_bytes(), changed);
                assert_ne!(archive, sample());
            }
        }
        assert!(Archive::parse(&bytes[..at]).is_err());
    }
}

fn any_archive() -> impl Strategy<Value = Archive> {
    let source = (0..6_usize, any::<[u8; 32]>())
        .prop_map(|(kind, hash)| ArchiveSource { kind: SourceKind::ALL[kind], hash });
    let line = (
        0..6_usize,
        any::<String>(),
        proptest::option::of(-62_135_596_800_000_i64..253_402_207_200_000),
        proptest::option::of(any::<String>()),
        proptest::collection::btree_set(0..8_u32, 1..4),
    );
    let line = line.prop_map(|(section, text, at, before, sources)| Line {
        section: Section::ALL[section],
        text,
        at: at.map(Millis),
        before,
        sources: sources.into_iter().collect(),
    });
    (
        (0..=MAX_NUMBER, 0..=MAX_NUMBER),
        any::<String>(),
        proptest::collection::vec(source, 8..12),
        proptest::collection::vec(line, 0..12),
    )
        .prop_map(|((budget, output), name, sources, mut lines)| {
            lines.sort_by_key(|line| line.section);
            Archive {
                budget,
                output: output.min(budget),
                distiller: name.clone(),
                tokenizer: name,
                sources,
                distillate: Distillate { lines },
            }
        })
}

proptest! {
    #[test]
    fn archives_come_back(archive in any_archive()) {
        prop_assert_eq!(Archive::parse(&archive.to_bytes()), Ok(archive));
    }

    #[test]
    fn whatever_is_read_is_canonical(bytes in any::<Vec<u8>>(), at in any::<prop::sample::Index>()) {
        let mut hostile = sample().to_bytes();
        let at = at.index(hostile.len());
        hostile.splice(at..at, bytes);
        if let Ok(archive) = Archive::parse(&hostile) {
            prop_assert_eq!(archive.to_bytes(), hostile);
        }
    }
}
