//! detect-secrets on the same texts, in an environment made for it.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use icecore_domain::testing::corpus::Case;
use serde::Deserialize;
use serde_json::json;

use super::found::Found;
use crate::Result;
use crate::peers::{bounded, environment, install};

const PACKAGE: &str = "detect-secrets";
const SCRIPT: &str = include_str!("../../peers/detect_secrets_peer.py");

/// What it found, asked in two ways.
pub struct Peer {
    pub version: String,
    /// As for strings: also words without quotes.
    pub string: Way,
    /// As for files.
    pub file: Way,
}

pub struct Way {
    pub found: Found,
    pub seconds: f64,
}

#[derive(Deserialize)]
struct Answered {
    version: String,
    string: Answer,
    file: Answer,
}

#[derive(Deserialize)]
struct Answer {
    /// The texts in which it found something.
    found: Vec<usize>,
    seconds: f64,
}

pub fn ask(folder: &Path, patience: u64, cases: &[Case]) -> Result<Peer> {
    let python = environment(folder, patience)?;
    let mut check = Command::new(&python);
    check.args(["-c", "import detect_secrets"]);
    if bounded(check, patience).is_err() {
        install(&python, PACKAGE, patience)?;
    }
    let temporary = tempfile::tempdir()?;
    let path = temporary.path().join("cases.jsonl");
    let mut file = BufWriter::new(std::fs::File::create(&path)?);
    for case in cases {
        writeln!(file, "{}", json!({ "text": case.text }))?;
    }
    file.flush()?;
    let mut command = Command::new(&python);
    command.args(["-c", SCRIPT]).arg(&path);
    let output = bounded(command, patience)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let answered: Answered = serde_json::from_str(text.trim())?;
    let way = |answer: &Answer| Way { found: counted(cases, answer), seconds: answer.seconds };
    let (string, file) = (way(&answered.string), way(&answered.file));
    Ok(Peer { version: answered.version, string, file })
}

fn counted(cases: &[Case], answer: &Answer) -> Found {
    let mut found = Found::default();
    for (at, case) in cases.iter().enumerate() {
        found.add(case, answer.found.binary_search(&at).is_ok());
    }
    found
}
