//! The `o200k_base` vocabulary, whole, inside the binary.
//!
//! Text is split into pieces by the pattern of the vocabulary, and the bytes of a piece
//! are merged pair by pair, the pair of lowest rank first, until no pair is a token. The
//! vocabulary and its table are used where they lie in the program; only the pattern is
//! compiled, when the first text is counted.

mod table;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::LazyLock;

use icecore_domain::tokens::TokenCounter;
use regex::Regex;

/// Counts as OpenAI's `o200k_base` does, special tokens as ordinary text.
#[derive(Debug, Default)]
pub struct O200k(());

static TOKENS: &[u8] = include_bytes!("../models/o200k.tokens");
static TABLE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/o200k.table"));

/// No token of the vocabulary is longer.
const MAX_TOKEN_BYTES: usize = 128;

/// Pieces up to here are merged by looking at all their pairs again and again, longer ones
/// by a queue.
const SHORT_BYTES: usize = 64;

const NO_TOKEN: u32 = u32::MAX;

/// The pieces of a text, but that of a run of blanks before a word the last blank belongs
/// to the word.
static PIECES: LazyLock<Regex> = LazyLock::new(|| {
    let lower = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]";
    let upper = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]";
    let lead = r"[^\r\n\p{L}\p{N}]?";
    let end = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
    let pattern = format!(
        r"{lead}{upper}*{lower}+{end}|{lead}{upper}+{lower}*{end}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+"
    );
    Regex::new(&pattern).expect("the pattern is well formed")
});

impl TokenCounter for O200k {
    fn name(&self) -> &'static str {
        "o200k_base"
    }

    fn count(&self, text: &str) -> u32 {
        let mut count = 0_u32;
        for_each_piece(text, |piece| {
            for_each_token(piece, |_| count = count.saturating_add(1));
            true
        });
        count
    }

    fn prefix<'a>(&self, text: &'a str, limit: u32) -> &'a str {
        // No prefix within the limit is longer than this, however long the text.
        let longest = (limit as usize).saturating_mul(MAX_TOKEN_BYTES);
        let text = &text[..text.floor_char_boundary(longest)];
        if self.count(text) <= limit {
            return text;
        }
        // A cut inside a token may need more tokens than the whole did, so step
        // back until it fits.
        let mut end = text.floor_char_boundary(bytes_of(text, limit));
        while self.count(&text[..end]) > limit {
            end = text.floor_char_boundary(end - 1);
        }
        &text[..end]
    }
}

/// The bytes of the first `limit` tokens of `text`.
fn bytes_of(text: &str, limit: u32) -> usize {
    let (mut count, mut bytes) = (0, 0);
    for_each_piece(text, |piece| {
        for_each_token(piece, |length| {
            if count < limit {
                count += 1;
                bytes += length;
            }
        });
        count < limit
    });
    bytes
}

/// Calls `each` with the pieces of a text, in order, while it answers `true`.
fn for_each_piece<'a>(text: &'a str, mut each: impl FnMut(&'a [u8]) -> bool) {
    let mut start = 0;
    while let Some(found) = PIECES.find_at(text, start) {
        let mut end = found.end();
        // A run of blanks in front of a word leaves it the last one.
        if end < text.len()
            && let Some(last) = found.as_str().chars().next_back()
            && last.is_whitespace()
            && !matches!(last, '\r' | '\n')
            && end - last.len_utf8() > found.start()
        {
            end -= last.len_utf8();
        }
        if !each(&text.as_bytes()[found.start()..end]) {
            break;
        }
        start = end;
    }
}

/// Calls `each` with the lengths of the tokens of a piece, in order.
fn for_each_token(piece: &[u8], mut each: impl FnMut(usize)) {
    if piece.len() <= MAX_TOKEN_BYTES && table::find(TABLE, TOKENS, piece).is_some() {
        each(piece.len());
    } else if piece.len() <= SHORT_BYTES {
        merge_short(piece, each);
    } else {
        merge_long(piece, each);
    }
}

/// The rank of the token with these bytes.
fn rank(bytes: &[u8]) -> u32 {
    let fits = bytes.len() <= MAX_TOKEN_BYTES;
    fits.then(|| table::find(TABLE, TOKENS, bytes)).flatten().unwrap_or(NO_TOKEN)
}

fn merge_short(piece: &[u8], mut each: impl FnMut(usize)) {
    // Where each part begins, with the rank of the pair of it and the next; last the end.
    let mut parts = [(0_u8, NO_TOKEN); SHORT_BYTES + 1];
    let mut count = piece.len();
    for (at, part) in parts.iter_mut().enumerate().take(count + 1) {
        let pair = piece.get(at..at + 2).map_or(NO_TOKEN, rank);
        *part = (at as u8, pair);
    }
    loop {
        let pairs = &parts[..count - 1];
        let Some((at, (_, best))) = pairs.iter().enumerate().min_by_key(|(_, part)| part.1) else {
            break;
        };
        if *best == NO_TOKEN {
            break;
        }
        parts.copy_within(at + 2..=count, at + 1);
        count -= 1;
        let pair_from = |at: usize| {
            if at + 2 <= count {
                rank(&piece[usize::from(parts[at].0)..usize::from(parts[at + 2].0)])
            } else {
                NO_TOKEN
            }
        };
        let (here, before) = (pair_from(at), at.checked_sub(1).map(pair_from));
        parts[at].1 = here;
        if let Some(before) = before {
            parts[at - 1].1 = before;
        }
    }
    parts[..=count].windows(2).for_each(|pair| each(usize::from(pair[1].0 - pair[0].0)));
}

/// Where a part ends that is no part any more.
const GONE: u32 = u32::MAX;

fn merge_long(piece: &[u8], mut each: impl FnMut(usize)) {
    let length = piece.len() as u32;
    // The parts as a list: where the one that begins here ends, and where the one before
    // it begins. A part that was merged into another ends at `GONE`.
    let mut ends: Vec<u32> = (1..=length).collect();
    let mut befores: Vec<u32> = (0..length).map(|at| at.saturating_sub(1)).collect();
    let pair = |start: u32, end: u32| match rank(&piece[start as usize..end as usize]) {
        NO_TOKEN => None,
        rank => Some(Reverse((rank, start, end))),
    };
    let pairs: Vec<_> = (0..length - 1).filter_map(|at| pair(at, at + 2)).collect();
    let mut queue = BinaryHeap::from(pairs);
    while let Some(Reverse((_, start, end))) = queue.pop() {
        let middle = ends[start as usize];
        // The pair is still there if its two parts are; `GONE` is beyond every end.
        if middle >= end || ends[middle as usize] != end {
            continue;
        }
        ends[start as usize] = end;
        ends[middle as usize] = GONE;
        if end < length {
            befores[end as usize] = start;
            queue.extend(pair(start, ends[end as usize]));
        }
        if start > 0 {
            queue.extend(pair(befores[start as usize], end));
        }
    }
    let mut start = 0;
    while start < length {
        let end = ends[start as usize];
        each((end - start) as usize);
        start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_as_the_vocabulary_does() {
        let counter = O200k::default();
        assert_eq!(counter.count(""), 0);
        assert_eq!(counter.count("hello world"), 2);
        assert_eq!(counter.count("<|endoftext|>"), 7);
    }

    #[test]
    fn the_vocabulary_is_whole() {
        let bpe = &bpe_openai::o200k_base().bpe;
        let mut place = 0;
        let mut longest = 0;
        for token in 0..bpe.num_tokens() as u32 {
            let length = usize::from(TOKENS[place]);
            let bytes = &TOKENS[place + 1..place + 1 + length];
            assert_eq!(bytes, bpe.token_bytes(token));
            assert_eq!(rank(bytes), place as u32);
            longest = longest.max(length);
            place += 1 + length;
        }
        assert_eq!((place, longest), (TOKENS.len(), MAX_TOKEN_BYTES));
    }

    /// Compares every token of a text with those of another implementation.
    fn compare(text: &str) {
        let other = bpe_openai::o200k_base();
        let tokens = other.encode(text);
        let expected: Vec<usize> = tokens.iter().map(|token| other.bpe.token_len(*token)).collect();
        let mut found = Vec::new();
        for_each_piece(text, |piece| {
            for_each_token(piece, |length| found.push(length));
            true
        });
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn real_text_is_split_as_by_another_implementation() {
        for text in [
            include_str!("o200k.rs"),
            include_str!("../models/icecore-static-1.md"),
            include_str!("../../../README.md"),
            include_str!("../../../Cargo.lock"),
        ] {
            compare(text);
            text.lines().for_each(compare);
        }
    }

    #[test]
    fn random_text_is_split_as_by_another_implementation() {
        const PARTS: &[&str] = &[
            " ", "  ", "\n", "\r\n", "\t", "\u{a0}", "\u{3000}", "a", "the", "THE", "McDonald",
            "'s", "'LL", "don't", "’s", "7", "1234567", "٣", "½", "é", "e\u{301}", "ß", "Ǆ", "ǅ",
            "今日は", "会議", "한국어", "ไทย", "हिन्दी", "العربية", "👍🏽", "👨‍👩‍👧", "—", "/", "//",
            "...", "?!", "{}", "_x_", "\u{0}", "\u{fffd}", "supercalifragilistic", "aaaaaaaa",
            "==========", "AbCdEfG", "x\u{200d}y",
        ];
        let mut state = 7_u64;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for _ in 0..5_000 {
            let text: String = (0..draw(14)).map(|_| PARTS[draw(PARTS.len())]).collect();
            compare(&text);
        }
        for _ in 0..5_000 {
            let letter = |draw: &mut dyn FnMut(usize) -> usize| {
                let range = [0x80, 0x800, 0x3100, 0x1_f700][draw(4)];
                char::from_u32(draw(range) as u32).unwrap_or(' ')
            };
            let text: String = (0..draw(40)).map(|_| letter(&mut draw)).collect();
            compare(&text);
        }
        for part in PARTS {
            compare(&part.repeat(100));
        }
    }

    #[test]
    fn a_long_piece_takes_no_long_time() {
        for text in ["a", "=", " ", "字", "xyz", "\n"] {
            assert!(O200k::default().count(&text.repeat(300_000)) > 0);
        }
    }

    #[test]
    fn a_prefix_fits_and_is_the_longest_by_tokens() {
        let texts = [
            "The quick brown fox jumps.",
            "今日は会議の後で資料を送ります。",
            "👍🏽👍🏽👍🏽",
            "aaaaaaaaaaaaaaaa",
        ];
        for text in texts {
            let whole = O200k::default().count(text);
            for limit in 0..=whole {
                let prefix = O200k::default().prefix(text, limit);
                assert!(text.starts_with(prefix));
                assert!(O200k::default().count(prefix) <= limit, "{text} {limit}");
            }
            assert_eq!(O200k::default().prefix(text, whole), text);
        }
    }
}
