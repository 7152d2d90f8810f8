//! The samples of `docs/format-ctf.md`, and those of every version kept in
//! `testdata/ctf`.

use std::path::PathBuf;

use super::*;
use crate::turn_jsonl::{parse_line, write_fields};

fn in_repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: PathBuf) -> String {
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The fenced blocks of the specification, each with the word after its fence.
fn fenced_blocks() -> Vec<(String, String)> {
    let page = read(in_repository("docs/format-ctf.md"));
    let mut blocks = Vec::new();
    let mut lines = page.split_inclusive('\n');
    while let Some(line) = lines.next() {
        if let Some(word) = line.strip_prefix("```") {
            let body: String = lines.by_ref().take_while(|line| *line != "```\n").collect();
            blocks.push((word.trim_end().to_owned(), body));
        }
    }
    blocks
}

fn turns_of_jsonl(jsonl: &str) -> Vec<RawTurn> {
    jsonl.lines().map(|line| parse_line(line).unwrap().turn).collect()
}

fn jsonl_of_turns(turns: &[RawTurn]) -> String {
    turns.iter().map(|turn| write_fields(&[], turn) + "\n").collect()
}

/// One line a summary, so that a sample's meaning can be kept beside it.
fn jsonl_of_summaries(rows: &[SummaryRow]) -> String {
    let line = |row: &SummaryRow| {
        let SummaryRow { chunk_id, first, last, summary, themes } = row;
        let members = serde_json::json!({
            "chunkId": chunk_id, "first": first, "last": last, "summary": summary, "themes": themes,
        });
        format!("{members}\n")
    };
    rows.iter().map(line).collect()
}

/// What a sample means, as JSONL.
fn meaning(text: &str) -> Result<String, CtfError> {
    let is_summaries = text.lines().next().unwrap_or_default().contains("summaries");
    if is_summaries {
        Ok(jsonl_of_summaries(&decode_summaries(text)?))
    } else {
        Ok(jsonl_of_turns(&decode(text)?))
    }
}

#[test]
fn samples_of_the_specification_mean_what_it_says() {
    let blocks = fenced_blocks();
    let mut checked = 0;
    for pair in blocks.windows(2) {
        let [(kind, text), (next, expected)] = pair else { continue };
        match (kind.as_str(), next.as_str()) {
            ("ctf", "jsonl") => assert_eq!(meaning(text).unwrap(), *expected, "{text}"),
            ("ctf", "error") => {
                assert_eq!(meaning(text).unwrap_err().to_string(), expected.trim_end(), "{text}");
            }
            ("ctf", other) => panic!("a ctf sample is followed by `{other}`: {text}"),
            _ => continue,
        }
        checked += 1;
    }
    assert!(checked >= 6, "only {checked} samples were found");
}

#[test]
fn version_2_samples_are_what_we_write() {
    for (kind, text) in fenced_blocks() {
        if kind != "ctf" || !text.starts_with("#CTF v2") {
            continue;
        }
        if let Ok(turns) = decode(&text) {
            assert_eq!(encode(&turns), text);
        }
        if let Ok(rows) = decode_summaries(&text) {
            assert_eq!(encode_summaries(&rows), text);
        }
    }
}

/// These files are never edited: a text written once stays readable.
#[test]
fn every_version_ever_written_is_read() {
    let mut versions = Vec::new();
    for entry in std::fs::read_dir(in_repository("testdata/ctf")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "ctf") {
            continue;
        }
        let expected = read(path.with_extension("jsonl"));
        let found = meaning(&read(path.clone())).unwrap();
        assert_eq!(found, expected, "{}", path.display());
        versions.push(path.file_name().unwrap().to_string_lossy()[..3].to_owned());
    }
    for version in ["v1-", "v2-"] {
        assert!(versions.iter().filter(|found| *found == version).count() >= 2, "{version}");
    }
}

#[test]
fn the_kept_turns_are_whole() {
    let path = in_repository("testdata/ctf/v2-every-field.jsonl");
    let turns = turns_of_jsonl(&read(path.clone()));
    assert_eq!(decode(&read(path.with_extension("ctf"))).unwrap(), turns);
}
