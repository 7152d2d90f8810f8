//! Cutting text into sentences.
//!
//! Lines end sentences, as in lists; code and data are named, not quoted. Only a
//! bounded part of a turn is read, so that no turn costs more than a long letter.

use std::borrow::Cow;

use crate::tokens::TokenCounter;

/// Of a longer turn only the head and the tail are read.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// The tail, where conclusions stand.
const MAX_TAIL_BYTES: usize = 8 << 10;
/// Sentences taken from one turn.
const MAX_SENTENCES_A_TURN: usize = 48;
/// A sentence is cut where it would be longer.
pub(super) const MAX_SENTENCE_BYTES: usize = 320;

/// What a sentence was cut from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SentenceKind {
    /// Running text or an item of a list.
    Prose,
    /// A heading, or a line that announces what follows.
    Heading,
    /// What follows in a sentence too long to be kept whole.
    Fragment,
    /// Code, data, logs: the text is our word for it.
    Dump,
}

/// A sentence of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sentence<'a> {
    pub kind: SentenceKind,
    /// As written, without the marks of lists.
    pub text: Cow<'a, str>,
}

/// The sentences of `text`, first to last.
pub(crate) fn sentences(text: &str) -> Vec<Sentence<'_>> {
    let mut found = Found::default();
    if text.len() <= MAX_HEAD_BYTES + MAX_TAIL_BYTES {
        found.read(text, MAX_SENTENCES_A_TURN);
    } else {
        let head = boundary_before(text, MAX_HEAD_BYTES);
        let tail = boundary_before(text, text.len() - MAX_TAIL_BYTES);
        found.read(&text[..head], MAX_SENTENCES_A_TURN * 2 / 3);
        found.read(&text[tail..], MAX_SENTENCES_A_TURN);
    }
    found.sentences
}

/// The last place between characters that is not after `at`.
fn boundary_before(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// One line in place of a whole text of code or data.
pub(crate) fn dump(what: &str, line_count: usize) -> Sentence<'static> {
    let lines = if line_count == 1 { "line" } else { "lines" };
    let text = format!("[{what}, {line_count} {lines}]");
    Sentence { kind: SentenceKind::Dump, text: Cow::Owned(text) }
}

#[derive(Default)]
struct Found<'a> {
    sentences: Vec<Sentence<'a>>,
    data_lines: usize,
}

impl<'a> Found<'a> {
    /// Adds the sentences of `text` until there are `limit`.
    fn read(&mut self, text: &'a str, limit: usize) {
        let mut fence: Option<(&str, usize)> = None;
        for line in text.split(['\n', '\r', '\u{2028}', '\u{2029}']) {
            if self.sentences.len() >= limit {
                break;
            }
            let line = line.trim();
            let mark = ["```", "~~~"].iter().find_map(|mark| line.strip_prefix(mark));
            match (mark, &mut fence) {
                (Some(rest), None) => fence = Some((rest, 0)),
                (Some(_), Some((language, lines))) => {
                    let code = code(language, *lines);
                    self.sentences.push(code);
                    fence = None;
                }
                (None, Some((_, lines))) => *lines += 1,
                (None, None) => self.line(line, limit),
            }
        }
        if let Some((language, lines)) = fence {
            self.sentences.push(code(language, lines));
        }
        self.end_data();
    }

    fn line(&mut self, line: &'a str, limit: usize) {
        if is_data(line) {
            self.data_lines += 1;
            return;
        }
        let heading = line.starts_with('#') || line.ends_with([':', '：']);
        let line = strip_marks(line);
        if !line.contains(char::is_alphanumeric) {
            return;
        }
        self.end_data();
        let kind = if heading { SentenceKind::Heading } else { SentenceKind::Prose };
        split_line(line, |text, whole| {
            let kind = if whole { kind } else { SentenceKind::Fragment };
            if self.sentences.len() < limit && text.contains(char::is_alphanumeric) {
                self.sentences.push(Sentence { kind, text: Cow::Borrowed(text) });
            }
        });
    }

    fn end_data(&mut self) {
        if self.data_lines > 0 {
            self.sentences.push(dump("data", self.data_lines));
            self.data_lines = 0;
        }
    }
}

fn code(language: &str, line_count: usize) -> Sentence<'static> {
    let language: String =
        language.trim().chars().take_while(|c| c.is_ascii_alphanumeric()).take(12).collect();
    let what = if language.is_empty() { "code".to_owned() } else { format!("{language} code") };
    dump(&what, line_count)
}

/// Whether a line reads like JSON, a log, a path or a table rather than speech.
fn is_data(line: &str) -> bool {
    let head = &line.as_bytes()[..line.len().min(240)];
    let symbols = head.iter().filter(|byte| is_symbol(**byte)).count();
    symbols >= 3 && symbols * 9 >= head.len()
}

fn is_symbol(byte: u8) -> bool {
    matches!(byte, b'{' | b'}' | b'[' | b']' | b'<' | b'>' | b'=' | b';' | b'|' | b'\\' | b'/')
        || matches!(byte, b'@' | b'$' | b'%' | b'^' | b'&' | b'+')
}

/// Takes the marks of headings, quotes and lists off the front.
fn strip_marks(line: &str) -> &str {
    let line = line.trim_start_matches(['#', '>', '*', '-', '•', '+', '|', ' ', '\t']);
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let rest = &line[digits..];
    match rest.strip_prefix(['.', ')']) {
        Some(item) if (1..=3).contains(&digits) && item.starts_with(' ') => item.trim_start(),
        _ => line,
    }
}

/// Calls `each` with the sentences of one line, and whether they begin as such.
fn split_line<'a>(line: &'a str, mut each: impl FnMut(&'a str, bool)) {
    let mut start = 0;
    let mut last_space = 0;
    let mut last_comma = 0;
    let mut whole = true;
    let mut chars = line.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let mut end = at + c.len_utf8();
        match c {
            ' ' => last_space = end,
            ',' | ';' | '，' | '、' | '—' => last_comma = end,
            _ => {}
        }
        if is_stop(c) {
            let run = |c: &char| is_stop(*c) || is_closer(*c);
            while let Some((at, c)) = chars.next_if(|(_, c)| run(c)) {
                end = at + c.len_utf8();
            }
            if ends_here(&line[start..at], c, &line[end..]) {
                each(line[start..end].trim(), whole);
                start = end;
                whole = true;
                continue;
            }
        }
        if end - start > MAX_SENTENCE_BYTES {
            let late = |at: &usize| *at > start + MAX_SENTENCE_BYTES / 2;
            let cut = [last_comma, last_space].into_iter().find(late).unwrap_or(end);
            let open_end = [' ', ',', ';', '，', '、', '—'];
            each(line[start..cut].trim().trim_end_matches(open_end), whole);
            start = cut;
            whole = false;
        }
    }
    if start < line.len() {
        each(line[start..].trim(), whole);
    }
}

fn is_stop(c: char) -> bool {
    matches!(c, '.' | '!' | '?' | '…') || is_full_stop_alone(c)
}

/// Stops that end a sentence whatever follows.
fn is_full_stop_alone(c: char) -> bool {
    matches!(c, '。' | '！' | '？' | '｡' | '؟' | '۔' | '।' | '॥' | '።' | '။')
}

fn is_closer(c: char) -> bool {
    matches!(c, '"' | '\'' | ')' | ']' | '”' | '’' | '»' | '」' | '』' | '）' | '*')
}

/// Whether the stop `c` between `before` and `rest` ends a sentence.
fn ends_here(before: &str, c: char, rest: &str) -> bool {
    if is_full_stop_alone(c) || rest.is_empty() {
        return true;
    }
    let mut following = rest.chars();
    if !following.next().is_some_and(char::is_whitespace) {
        return false;
    }
    let next = following.find(|c| !c.is_whitespace());
    if next.is_some_and(char::is_lowercase) {
        return false;
    }
    c != '.' || !is_abbreviated(before, next)
}

/// Whether `before` ends in a word that a full stop shortens.
fn is_abbreviated(before: &str, next: Option<char>) -> bool {
    const SHORT: [&str; 22] = [
        "mr", "mrs", "ms", "dr", "prof", "st", "vs", "etc", "e.g", "i.e", "fig", "approx", "jr",
        "sr", "inc", "z.b", "bzw", "ca", "nr", "bspw", "mme", "sra",
    ];
    let word = before.rsplit([' ', '(', '"', '\'']).next().unwrap_or_default();
    let mut letters = word.chars();
    match (letters.next(), letters.next()) {
        (Some(initial), None) => initial.is_uppercase() && initial != 'I',
        _ if word.eq_ignore_ascii_case("no") => next.is_some_and(|c| c.is_ascii_digit()),
        _ => SHORT.iter().any(|short| word.eq_ignore_ascii_case(short)),
    }
}

/// `text` on one line: runs of spaces and controls become one space, and marks
/// that only matter on a screen go.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    let mut gap = false;
    for c in text.replace("**", "").chars() {
        if c.is_whitespace() || c.is_control() {
            gap = true;
        } else if !is_invisible(c) {
            if gap && !line.is_empty() {
                line.push(' ');
            }
            gap = false;
            line.push(c);
        }
    }
    line
}

/// Byte order marks and direction overrides, which would reach past the sentence.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{feff}' | '\u{200b}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a sentence asks.
pub(crate) fn is_question(sentence: &str) -> bool {
    let end = sentence.trim_end_matches(['"', '\'', ')', '”', '’', '」', '）', '*', ' ']);
    end.ends_with(['?', '？', '؟']) || end.ends_with("?!")
}

/// Whether a sentence begins by pointing at one before, so that it says little
/// alone.
pub(crate) fn leans_on_before(sentence: &str) -> bool {
    const POINTERS: [&str; 22] = [
        "it", "it's", "that", "that's", "this", "these", "those", "they", "they're", "he", "she",
        "he's", "she's", "here's", "here", "them", "there", "his", "her", "which", "so", "it'll",
    ];
    let first = sentence.split([' ', ',', '…']).next().unwrap_or_default();
    if first.len() > "they’re".len() {
        return false;
    }
    let same = |pointer: &&str| {
        let letters = first.chars().map(|c| if c == '’' { '\'' } else { c.to_ascii_lowercase() });
        letters.eq(pointer.chars())
    };
    POINTERS.iter().any(same)
}

/// Whether a reader sees that a sentence ends here.
pub(crate) fn ends_plainly(text: &str) -> bool {
    !text.ends_with(|c: char| c.is_alphanumeric())
}

/// What stands where a sentence was cut.
pub(crate) const ELLIPSIS: &str = "…";

/// The longest head of `text` that fits with an ellipsis.
pub(crate) fn cut_text(text: &str, budget: u32, counter: &dyn TokenCounter) -> String {
    for limit in (1..=budget).rev() {
        let head = counter.prefix(text, limit);
        // Half a word is worse than none, but for scripts without spaces.
        let words = match head.rfind(' ') {
            Some(space) if space * 2 > head.len() && head.len() < text.len() => &head[..space],
            _ => head,
        };
        let trimmed = words.trim_end_matches([' ', ',', ';', ':', '-', '—']);
        let cut = format!("{}{ELLIPSIS}", if trimmed.is_empty() { head } else { trimmed });
        if cut.len() > ELLIPSIS.len() && counter.count(&cut) <= budget {
            return cut;
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found = sentences(text);
        let texts: Vec<&str> = found.iter().map(|sentence| sentence.text.as_ref()).collect();
        assert_eq!(texts, expected, "{text:?}");
    }

    #[test]
    fn stops_end_sentences() {
        check("I came. I saw! Did I win?", &["I came.", "I saw!", "Did I win?"]);
        check("She said \"no.\" Then left.", &["She said \"no.\"", "Then left."]);
        check("Wait... what? ok", &["Wait... what? ok"]);
        check(
            "今日は晴れ。明日は？「はい。」と",
            &["今日は晴れ。", "明日は？", "「はい。」", "と"],
        );
        check("यह है। वह था।", &["यह है।", "वह था।"]);
        check("¿Qué tal? Bien.", &["¿Qué tal?", "Bien."]);
    }

    #[test]
    fn stops_inside_words_and_numbers_do_not() {
        check(
            "Dr. Who paid 3.50 at example.com today.",
            &["Dr. Who paid 3.50 at example.com today."],
        );
        check(
            "J. Doe met me, i.e. Ann. So did I. Then",
            &["J. Doe met me, i.e. Ann.", "So did I.", "Then"],
        );
        check("See No. 5. No. Never.", &["See No. 5.", "No.", "Never."]);
    }

    #[test]
    fn lines_and_lists_end_sentences() {
        check(
            "# Plan\n- buy milk\n 2. sell it\r\n\n> done",
            &["Plan", "buy milk", "sell it", "done"],
        );
    }

    #[test]
    fn code_and_data_are_named() {
        check(
            "Try:\n```rust\nfn main() {}\n\n```\nDone.",
            &["Try:", "[rust code, 2 lines]", "Done."],
        );
        check("```\nnever closed", &["[code, 1 line]"]);
        check("{\"a\": [1, 2], \"b\": {}}\n{\"c\": [3]}\nso", &["[data, 2 lines]", "so"]);
        check("[shares a photo: a dog in a park]", &["[shares a photo: a dog in a park]"]);
    }

    #[test]
    fn long_text_is_read_in_part_and_cut() {
        let text = "word ".repeat(200_000);
        let found = sentences(&text);
        assert_eq!(found.len(), MAX_SENTENCES_A_TURN);
        assert!(found.iter().all(|s| s.text.len() <= MAX_SENTENCE_BYTES + 4));
        assert_eq!(sentences(&"Hi. ".repeat(100_000)).len(), MAX_SENTENCES_A_TURN);
        assert_eq!(sentences(&"字".repeat(300_000)).len(), MAX_SENTENCES_A_TURN);
    }

    #[test]
    fn one_line_has_no_controls() {
        assert_eq!(one_line(" a\u{0}\n b\t**c**\u{202e}d\u{7f}"), "a b cd");
    }
}
