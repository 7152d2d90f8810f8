//! Byte-level pair encoding, as GPT-2 and RoBERTa cut text.

use std::collections::HashMap;

use regex::Regex;
use serde::Deserialize;

use super::LocalModelError;

/// Letters, digits and other signs apart, each with the space before it. The
/// original also looks ahead, see [`Bpe::next_run`].
const RUNS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";

/// A run of more bytes is cut: joining pairs takes time by its square.
const MAX_RUN_BYTES: usize = 4096;

/// A vocabulary of bytes and joined pairs.
pub(super) struct Bpe {
    runs: Regex,
    bytes: Vec<u32>,
    /// How early a pair is joined, and what becomes of it.
    pairs: HashMap<(u32, u32), (u32, u32)>,
    numbers: HashMap<String, u32>,
}

#[derive(Deserialize)]
struct Tokenizer {
    model: Model,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: String,
    vocab: HashMap<String, u32>,
    merges: Vec<Merge>,
}

/// Older files have one string, newer ones two.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Joined(String),
    Apart([String; 2]),
}

impl Bpe {
    /// Reads `tokenizer.json`, whose numbers must be below `rows`.
    pub(super) fn read(json: &[u8], rows: usize) -> Result<Self, LocalModelError> {
        let Tokenizer { model } =
            serde_json::from_slice(json).map_err(|error| wrong(&error.to_string()))?;
        if model.kind != "BPE" {
            return Err(wrong("it is not of byte pairs"));
        }
        if model.vocab.values().any(|number| *number as usize >= rows) {
            return Err(wrong("it has more pieces than there are rows"));
        }
        let number = |piece: &str| {
            model.vocab.get(piece).copied().ok_or_else(|| wrong(&format!("it has no `{piece}`")))
        };
        let bytes = (0..=255)
            .map(|byte| number(&shown(byte).to_string()))
            .collect::<Result<Vec<u32>, _>>()?;
        let mut pairs = HashMap::with_capacity(model.merges.len());
        for (rank, merge) in (0..).zip(&model.merges) {
            let (left, right) = match merge {
                Merge::Joined(pair) => pair.split_once(' ').ok_or_else(|| wrong("half a pair"))?,
                Merge::Apart([left, right]) => (left.as_str(), right.as_str()),
            };
            let joined = number(&format!("{left}{right}"))?;
            pairs.entry((number(left)?, number(right)?)).or_insert((rank, joined));
        }
        let runs = Regex::new(RUNS).map_err(|error| wrong(&error.to_string()))?;
        Ok(Self { runs, bytes, pairs, numbers: model.vocab })
    }

    /// The number of a piece that frames texts.
    pub(super) fn special(&self, piece: &str) -> Result<u32, LocalModelError> {
        self.numbers.get(piece).copied().ok_or_else(|| wrong(&format!("it has no `{piece}`")))
    }

    /// Finds the pieces of `text`, at most `limit`.
    pub(super) fn pieces(&self, text: &str, limit: usize, found: &mut Vec<u32>) {
        found.clear();
        let mut rest = text;
        while !rest.is_empty() && found.len() < limit {
            let run = self.next_run(rest);
            self.join(run, found);
            rest = &rest[run.len()..];
        }
        found.truncate(limit);
    }

    /// The run that `rest` begins with. Of several spaces before a word the
    /// last is left to the word.
    fn next_run<'a>(&self, rest: &'a str) -> &'a str {
        let run = self.runs.find(rest).map_or(rest, |found| &rest[..found.end()]);
        let run = &run[..run.floor_char_boundary(MAX_RUN_BYTES)];
        let last = run.char_indices().next_back().map_or(0, |(at, _)| at);
        let is_space = run.chars().next_back().is_some_and(char::is_whitespace);
        if is_space && last > 0 && run.len() < rest.len() { &run[..last] } else { run }
    }

    /// Joins the pairs of a run, earliest first.
    fn join(&self, run: &str, found: &mut Vec<u32>) {
        let start = found.len();
        found.extend(run.bytes().map(|byte| self.bytes[usize::from(byte)]));
        loop {
            let tail = &found[start..];
            let known = tail.windows(2).zip(start..).filter_map(|(pair, at)| {
                self.pairs.get(&(pair[0], pair[1])).map(|(rank, joined)| (*rank, at, *joined))
            });
            let Some((_, at, joined)) = known.min() else {
                return;
            };
            found[at] = joined;
            found.remove(at + 1);
        }
    }
}

/// The printable character that stands for a byte in such vocabularies: itself,
/// or one from U+0100 on, in order.
fn shown(byte: u8) -> char {
    let stands_for_itself = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if stands_for_itself(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|byte| !stands_for_itself(*byte)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or('?')
}

fn wrong(reason: &str) -> LocalModelError {
    LocalModelError::Vocabulary { reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All bytes, and a few pairs.
    fn bpe() -> Bpe {
        let merges = [["h", "e"], ["l", "l"], ["he", "ll"], ["Ġ", "hell"]];
        let mut pieces: Vec<String> = (0..=255).map(|byte| shown(byte).to_string()).collect();
        pieces.extend(merges.iter().map(|pair| pair.concat()));
        let vocab: HashMap<&str, usize> = pieces.iter().map(String::as_str).zip(0..).collect();
        let model = serde_json::json!({"type": "BPE", "vocab": vocab, "merges": merges});
        Bpe::read(serde_json::json!({"model": model}).to_string().as_bytes(), 300).unwrap()
    }

    fn pieces(text: &str) -> Vec<u32> {
        let mut found = Vec::new();
        bpe().pieces(text, 10, &mut found);
        found
    }

    #[test]
    fn pairs_are_joined_earliest_first() {
        assert_eq!(pieces("hell"), [258]);
        assert_eq!(pieces("hello hell"), [258, 111, 259]);
        assert_eq!(pieces("  hell"), [32, 259]);
        assert_eq!(pieces("é"), [0xC3, 0xA9]);
        assert_eq!(pieces(""), [0_u32; 0]);
    }

    #[test]
    fn the_limit_holds_and_long_runs_end() {
        assert_eq!(pieces(&"a".repeat(100_000)).len(), 10);
        assert_eq!(pieces(&" ".repeat(100_000)).len(), 10);
    }

    #[test]
    fn what_is_no_such_vocabulary_is_refused() {
        assert!(Bpe::read(b"{}", 300).is_err());
        let other = br#"{"model":{"type":"Unigram","vocab":{},"merges":[]}}"#;
        assert!(Bpe::read(other, 300).is_err());
        let empty = br#"{"model":{"type":"BPE","vocab":{},"merges":[]}}"#;
        assert!(Bpe::read(empty, 300).err().unwrap().to_string().contains("it has no"));
    }
}
