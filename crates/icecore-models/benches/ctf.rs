//! Tokens and speed of CTF 2 beside compact JSON, CTF 1 and TOON.
//!
//! ```console
//! $ ICECORE_EVAL_DATA=path/to/data cargo bench -p icecore-models --bench ctf
//! ```

#![expect(clippy::print_stdout, reason = "a bench's figures are its output")]
#![expect(clippy::unwrap_used, reason = "a bench stops at bad data")]

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use icecore_domain::ctf;
use icecore_domain::json::quote;
use icecore_domain::tokens::TokenCounter;
use icecore_domain::turn::{RawTurn, Timestamp};
use icecore_models::O200k;

const WINDOW_TURNS: usize = 100;
const FILE: &str = "locomo-dev.jsonl.gz";

fn main() {
    let Some(data) = std::env::var_os("ICECORE_EVAL_DATA") else {
        println!("set ICECORE_EVAL_DATA to the folder with {FILE} to measure CTF");
        return;
    };
    let conversations = read_conversations(&Path::new(&data).join(FILE));
    let windows: Vec<&[RawTurn]> =
        conversations.iter().flat_map(|turns| turns.chunks(WINDOW_TURNS)).collect();
    let counter = O200k::default();
    print_tokens("role, name, content, timestamp", &windows, &counter);
    let with_ids: Vec<Vec<RawTurn>> = windows.iter().map(|turns| add_uuids(turns)).collect();
    let with_ids: Vec<&[RawTurn]> = with_ids.iter().map(Vec::as_slice).collect();
    print_tokens("the same with UUID ids", &with_ids, &counter);
    print_speed("100-turn windows", &windows);
    let whole: Vec<&[RawTurn]> = conversations.iter().map(Vec::as_slice).collect();
    print_speed("whole conversations", &whole);
    print_speed("windows with UUID ids", &with_ids);
}

/// Every turn of each conversation in order, with the four fields.
fn read_conversations(path: &Path) -> Vec<Vec<RawTurn>> {
    let mut text = String::new();
    let file = std::fs::File::open(path).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text.lines().map(|line| read_turns(&serde_json::from_str(line).unwrap())).collect()
}

fn read_turns(conversation: &serde_json::Value) -> Vec<RawTurn> {
    let sessions = conversation["sessions"].as_array().unwrap();
    let turns = sessions.iter().flat_map(|session| session["turns"].as_array().unwrap());
    let read = |turn: &serde_json::Value| {
        let field = |name: &str| turn[name].as_str().unwrap().to_owned();
        let mut read = RawTurn::new(field("role"), field("content"));
        read.name = Some(field("name"));
        read.timestamp = Some(Timestamp::parse(field("timestamp")).unwrap());
        read
    };
    turns.map(read).collect()
}

/// Ids that look random and are the same on every run.
fn add_uuids(turns: &[RawTurn]) -> Vec<RawTurn> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut turns = turns.to_vec();
    for turn in &mut turns {
        let (high, low) = (next(), next());
        let hex = format!("{high:016x}{low:016x}");
        let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..]);
        turn.id = Some(format!("{a}-{b}-4{c}-a{d}-{e}"));
    }
    turns
}

fn print_tokens(title: &str, windows: &[&[RawTurn]], counter: &O200k) {
    type Form = (&'static str, fn(&[RawTurn]) -> String);
    let forms: [Form; 5] = [
        ("compact JSON", write_json),
        ("CTF 1's form", write_ctf1),
        ("TOON", write_toon),
        ("CTF 2", ctf::encode),
        ("content alone", write_content),
    ];
    println!("\n{title}: {} windows of up to {WINDOW_TURNS} turns", windows.len());
    println!("{:<16}{:>12}{:>12}{:>10}", "form", "tokens", "bytes", "less");
    let mut json_tokens = 0;
    for (name, write) in forms {
        let texts: Vec<String> = windows.iter().map(|turns| write(turns)).collect();
        let tokens: u64 = texts.iter().map(|text| u64::from(counter.count(text))).sum();
        let bytes: usize = texts.iter().map(String::len).sum();
        if json_tokens == 0 {
            json_tokens = tokens;
        }
        let less = 100.0 * (1.0 - tokens as f64 / json_tokens as f64);
        println!("{name:<16}{tokens:>12}{bytes:>12}{less:>9.2}%");
    }
}

fn print_speed(title: &str, batches: &[&[RawTurn]]) {
    let texts: Vec<String> = batches.iter().map(|turns| ctf::encode(turns)).collect();
    for (turns, text) in batches.iter().zip(&texts) {
        assert_eq!(ctf::decode(text).unwrap(), *turns);
    }
    let bytes: usize = texts.iter().map(String::len).sum();
    let encode =
        megabytes_per_second(bytes, || batches.iter().map(|turns| ctf::encode(turns).len()).sum());
    let decode = megabytes_per_second(bytes, || {
        texts.iter().map(|text| ctf::decode(text).unwrap().len()).sum()
    });
    println!("\n{title}: encode {encode:.0} MB/s, decode {decode:.0} MB/s of CTF text");
}

/// The best of many rounds: what the code can do when nothing disturbs it.
fn megabytes_per_second(bytes: usize, mut work: impl FnMut() -> usize) -> f64 {
    let mut best = Duration::MAX;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        let start = Instant::now();
        std::hint::black_box(work());
        best = best.min(start.elapsed());
    }
    bytes as f64 / 1e6 / best.as_secs_f64()
}

/// The fields measured, in one order for all forms.
fn fields(turn: &RawTurn) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    fields.extend(turn.id.clone().map(|id| ("id", id)));
    fields.push(("role", turn.role.clone()));
    fields.extend(turn.name.clone().map(|name| ("name", name)));
    fields.push(("content", turn.content.text().into_owned()));
    fields.extend(turn.timestamp.as_ref().map(|time| ("timestamp", time.as_str().to_owned())));
    fields
}

fn write_json(turns: &[RawTurn]) -> String {
    let object = |turn: &RawTurn| {
        let members: Vec<String> =
            fields(turn).iter().map(|(key, value)| format!("\"{key}\":{}", quote(value))).collect();
        format!("{{{}}}", members.join(","))
    };
    let objects: Vec<String> = turns.iter().map(object).collect();
    format!("[{}]", objects.join(","))
}

fn write_content(turns: &[RawTurn]) -> String {
    turns.iter().map(|turn| turn.content.text().into_owned() + "\n").collect()
}

fn field_names(turns: &[RawTurn]) -> String {
    let names: Vec<&str> =
        turns.first().map(fields).unwrap_or_default().iter().map(|(name, _)| *name).collect();
    names.join(",")
}

fn write_ctf1(turns: &[RawTurn]) -> String {
    let mut out = format!("#CTF v1 turns={} fields={}", turns.len(), field_names(turns));
    for turn in turns {
        let cells: Vec<String> = fields(turn)
            .iter()
            .map(|(_, value)| value.replace('\t', "␉").replace('\n', "␊"))
            .collect();
        let _ = write!(out, "\n{}", cells.join("\t"));
    }
    out
}

/// Token-Oriented Object Notation's table form.
fn write_toon(turns: &[RawTurn]) -> String {
    let mut out = format!("[{}]{{{}}}:", turns.len(), field_names(turns));
    for turn in turns {
        let cells: Vec<String> = fields(turn).iter().map(|(_, value)| toon_cell(value)).collect();
        let _ = write!(out, "\n  {}", cells.join(","));
    }
    out
}

fn toon_cell(value: &str) -> String {
    let needs_quotes = value.is_empty()
        || value.trim() != value
        || matches!(value, "true" | "false" | "null")
        || value.parse::<f64>().is_ok()
        || value.starts_with('-')
        || value.contains([',', ':', '"', '\\', '[', ']', '{', '}', '\n', '\r', '\t']);
    if !needs_quotes {
        return value.to_owned();
    }
    let escaped = value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
        .replace('\r', "\\r")
        .replace('\t', "\\t");
    format!("\"{escaped}\"")
}
