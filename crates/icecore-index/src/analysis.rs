//! Text as terms, by one function for documents and queries.
//!
//! Words are those of Unicode's rules, in lower case and without accents;
//! English endings are taken off words of ASCII letters. Scripts written without
//! blanks become overlapping pairs of characters. Changing what this module
//! answers changes what an index on disk means: count `payload::FORMAT` up.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_segmentation::UnicodeSegmentation;

use crate::lemma::{base_form, is_stopword};

/// A term has at most this many characters of the word it stands for: beyond it
/// are keys, addresses and nonsense, which their beginning tells apart.
pub const MAX_TERM_CHARS: usize = 48;

/// A word of a text and what it is looked up by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// What it is looked up by.
    pub term: String,
    /// Which bytes of the text it is.
    pub range: Range<usize>,
}

/// What `text` is looked up by, in order, with repetitions, without the words
/// that say nothing.
pub fn terms(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    each_word(text, |word, _| {
        if !is_stopword(&word) {
            found.push(stemmed(word));
        }
    });
    found
}

/// The same terms as [`terms`] gives, with their places in `text`.
pub fn words(text: &str) -> Vec<Word> {
    let mut found = Vec::new();
    each_word(text, |word, range| {
        if !is_stopword(&word) {
            found.push(Word { term: stemmed(word), range });
        }
    });
    found
}

/// A text of at most this many words is one passage; a longer one is cut into
/// passages of about two thirds of it.
const PASSAGE_WORDS: usize = 90;
const PASSAGE_AIM: usize = 60;

/// A text has at most so many passages; those of a very long one are longer.
const MAX_PASSAGES: usize = 64;

/// Cuts a text into passages that have one meaning each: sentences gathered to
/// about sixty words.
pub fn passages(text: &str) -> Vec<&str> {
    if text.split_whitespace().nth(PASSAGE_WORDS).is_none() {
        return vec![text];
    }
    let aim = PASSAGE_AIM.max(text.split_whitespace().count() / (MAX_PASSAGES - 1));
    let mut found = Vec::new();
    let (mut start, mut words) = (0, 0);
    for (end, count) in sentence_ends(text) {
        words += count;
        if words >= aim && found.len() + 1 < MAX_PASSAGES {
            found.push(&text[start..end]);
            (start, words) = (end, 0);
        }
    }
    if !text[start..].trim().is_empty() {
        found.push(&text[start..]);
    }
    found
}

/// Where sentences or lines end, and how many words each has.
pub(crate) fn sentence_ends(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        let mut words = 0;
        let mut in_word = false;
        while at < bytes.len() {
            let byte = bytes[at];
            let is_space = byte.is_ascii_whitespace();
            words += usize::from(!is_space && !in_word);
            in_word = !is_space;
            at += 1;
            let next_is_space = bytes.get(at).is_none_or(u8::is_ascii_whitespace);
            if byte == b'\n' || (matches!(byte, b'.' | b'!' | b'?' | b':') && next_is_space) {
                return Some((at, words));
            }
        }
        None
    })
}

/// The words of a name: as [`terms`], but with their endings.
pub fn names(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    each_word(text, |word, _| found.push(word.into_owned()));
    found
}

/// Calls `emit` with each word, folded but not stemmed.
fn each_word<'a>(text: &'a str, mut emit: impl FnMut(Cow<'a, str>, Range<usize>)) {
    if text.is_ascii() {
        for (start, word) in ascii_words(text) {
            each_part(start, word, &mut emit);
        }
        return;
    }
    let mut run = Run::default();
    for (start, word) in text.unicode_word_indices() {
        if word.chars().next().is_some_and(is_unspaced) {
            run.extend(text, start, word, &mut emit);
            continue;
        }
        run.finish(text, &mut emit);
        each_part(start, word, &mut emit);
    }
    run.finish(text, &mut emit);
}

fn each_part<'a>(start: usize, word: &'a str, emit: &mut impl FnMut(Cow<'a, str>, Range<usize>)) {
    for (offset, part) in parts(word) {
        let range = start + offset..start + offset + part.len();
        let folded = fold(part);
        if !folded.is_empty() {
            emit(folded, range);
        }
    }
}

/// Unicode's words of an ASCII text, several times as fast.
fn ascii_words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let bytes = text.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    // A mark between two letters or two digits does not part them.
    let joins = move |at: usize| {
        let (Some(before), Some(after)) = (bytes.get(at - 1), bytes.get(at + 1)) else {
            return false;
        };
        let letters = before.is_ascii_alphabetic() && after.is_ascii_alphabetic();
        let digits = before.is_ascii_digit() && after.is_ascii_digit();
        match bytes[at] {
            b'\'' | b'.' => letters || digits,
            b':' => letters,
            b',' | b';' => digits,
            _ => false,
        }
    };
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            at += bytes[at..].iter().position(|byte| is_word(*byte))?;
            let start = at;
            while at < bytes.len() && (is_word(bytes[at]) || joins(at)) {
                at += 1;
            }
            let word = &text[start..at];
            // Underscores alone are no word.
            if word.bytes().any(|byte| byte != b'_') {
                return Some((start, word));
            }
        }
    })
}

/// Adjacent characters of a script without blanks, not yet emitted: the last
/// one, and whether it has been part of a pair.
#[derive(Default)]
struct Run {
    last: Option<Range<usize>>,
    paired: bool,
}

impl Run {
    fn extend<'a>(
        &mut self,
        text: &'a str,
        start: usize,
        word: &str,
        emit: &mut impl FnMut(Cow<'a, str>, Range<usize>),
    ) {
        for (offset, c) in word.char_indices() {
            let here = start + offset..start + offset + c.len_utf8();
            match self.last.take() {
                Some(before) if before.end == here.start => {
                    let pair = before.start..here.end;
                    emit(Cow::Borrowed(&text[pair.clone()]), pair);
                    self.paired = true;
                }
                before => {
                    self.last = before;
                    self.finish(text, emit);
                }
            }
            self.last = Some(here);
        }
    }

    /// A character that stands alone is a word by itself.
    fn finish<'a>(&mut self, text: &'a str, emit: &mut impl FnMut(Cow<'a, str>, Range<usize>)) {
        if let Some(last) = self.last.take()
            && !self.paired
        {
            emit(Cow::Borrowed(&text[last.clone()]), last);
        }
        self.paired = false;
    }
}

/// Scripts whose words are not told apart by blanks, or that glue particles to
/// them: pairs of characters find more than whole runs.
fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c),
        0x0E00..=0x0EFF            // Thai, Lao
        | 0x1000..=0x109F          // Myanmar
        | 0x1780..=0x17FF          // Khmer
        | 0x3040..=0x30FF          // Hiragana, Katakana
        | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF // Han
        | 0xAC00..=0xD7AF          // Hangul
        | 0x20000..=0x3FFFF)
}

/// Unicode keeps `done.Next` and `snake_case` whole, since a point may belong to
/// a number or an address. Here only numbers keep their points.
fn parts(word: &str) -> impl Iterator<Item = (usize, &str)> {
    let whole = !word.contains(['.', ':', '_', '·', '‿', '＿', '．', '：'])
        || word.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ',');
    let inside = move |c: char| whole || c.is_alphanumeric() || is_combining_mark(c) || is_quote(c);
    let mut rest = 0;
    std::iter::from_fn(move || {
        let start = rest + word[rest..].find(inside)?;
        let end = word[start..].find(|c| !inside(c)).map_or(word.len(), |length| start + length);
        rest = end;
        Some((start, &word[start..end]))
    })
}

fn is_quote(c: char) -> bool {
    matches!(c, '\'' | '’' | '‘')
}

/// Lower case, without accents, of bounded length.
fn fold(word: &str) -> Cow<'_, str> {
    let word = first_chars(word, MAX_TERM_CHARS);
    if word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
        return Cow::Borrowed(word);
    }
    if word.is_ascii() {
        return Cow::Owned(word.to_ascii_lowercase());
    }
    let plain = word.nfkd().filter(|c| !is_combining_mark(*c) && !c.is_whitespace());
    let lower = plain.flat_map(char::to_lowercase).filter(|c| !is_combining_mark(*c));
    Cow::Owned(lower.map(|c| if is_quote(c) { '\'' } else { c }).take(MAX_TERM_CHARS).collect())
}

fn first_chars(word: &str, count: usize) -> &str {
    word.char_indices().nth(count).map_or(word, |(end, _)| &word[..end])
}

thread_local! {
    /// Stems of words that came by lately: a few thousand words are most of what
    /// people say, and stemming one costs ten times as much as finding it here.
    static STEMS: RefCell<HashMap<Box<str>, Box<str>>> = RefCell::default();
}

/// Words whose stems are remembered by a thread.
const MAX_STEMS: usize = 16_384;

fn stemmed(word: Cow<'_, str>) -> String {
    let has_ending = word.len() > 2 && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'\'');
    if !has_ending {
        return word.into_owned();
    }
    STEMS.with_borrow_mut(|stems| {
        if let Some(stem) = stems.get(word.as_ref()) {
            return stem.to_string();
        }
        if stems.len() == MAX_STEMS {
            stems.clear();
        }
        let stem = stem(&word);
        stems.insert(word.into(), stem.as_str().into());
        stem
    })
}

fn stem(word: &str) -> String {
    match Stemmer::create(Algorithm::English).stem(base_form(word)) {
        // A word of nothing but endings stays what it is.
        stem if stem.is_empty() => word.to_owned(),
        stem => stem.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, expected: &[&str]) {
        assert_eq!(terms(text), expected, "{text:?}");
    }

    #[test]
    fn words_lose_case_accents_and_endings() {
        check("The Dogs were running", &["dog", "run"]);
        check("She went home, his children ran", &["go", "home", "child", "run"]);
        check("Café, naïve Ångström", &["cafe", "naiv", "angstrom"]);
        check("Ana's dog; Ana’s", &["ana", "dog", "ana"]);
        check(
            "ok.thanks snake_case 3.14 v1.2",
            &["ok", "thank", "snake", "case", "3.14", "v1", "2"],
        );
        check("ＦＵＬＬ width", &["full", "width"]);
        check("Привет мир", &["привет", "мир"]);
    }

    #[test]
    fn scripts_without_blanks_become_pairs() {
        check("東京都に", &["東京", "京都", "都に"]);
        check("猫 が", &["猫", "が"]);
        check("abc東京def", &["abc", "東京", "def"]);
        check("한국어 말", &["한국", "국어", "말"]);
    }

    #[test]
    fn what_holds_no_word_has_no_terms() {
        for text in ["", "  ", "?!", "🙂🙂", "\u{0}\u{7}", "\u{301}\u{301}", "((\"+-:*"] {
            check(text, &[]);
        }
    }

    #[test]
    fn long_words_are_cut() {
        let found = terms(&"x".repeat(1 << 20));
        assert_eq!(found, ["x".repeat(MAX_TERM_CHARS)]);
        assert_eq!(terms(&"b ".repeat(1 << 19)).len(), 1 << 19);
        assert!(terms(&"e\u{301}".repeat(1 << 19)).concat().chars().count() <= MAX_TERM_CHARS);
    }

    #[test]
    fn names_keep_their_endings() {
        assert_eq!(names("José Reyes"), ["jose", "reyes"]);
    }

    proptest! {
        #[test]
        fn ascii_words_are_those_of_unicode(text in "[ -~\n\t]{0,60}|[a-c1-3_'.,;: ]{0,30}") {
            let quick: Vec<_> = ascii_words(&text).collect();
            prop_assert_eq!(quick, text.unicode_word_indices().collect::<Vec<_>>());
        }

        #[test]
        fn any_text_has_bounded_terms_without_blanks(text in "\\PC{0,80}|[a-z' .東가é\u{301}]{0,60}") {
            let found = words(&text);
            prop_assert_eq!(terms(&text), found.iter().map(|w| w.term.clone()).collect::<Vec<_>>());
            for word in found {
                prop_assert!(!word.term.is_empty() && !word.term.contains(char::is_whitespace));
                prop_assert!(word.term.chars().count() <= MAX_TERM_CHARS);
                prop_assert!(text.get(word.range).is_some());
            }
        }
    }
}
