//! Redacts text that comes in parts.
//!
//! A secret may be split anywhere, so text is held back while it may still
//! become one: from the last word on, from a keyword whose pattern can still
//! match, from the beginning of a registered secret. What is released is what
//! the whole text, redacted at once, would begin with.

use std::ops::Range;
use std::sync::Arc;

use regex_automata::Anchored;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::util::{start, syntax};

use super::engine::{Attempt, Engine, is_token_byte};
use super::{Hidden, RedactedText, Redactor, decode, marker};

/// Text that nothing can be said about for so long is hidden: no turn is longer.
pub const MAX_HELD_BYTES: usize = 1 << 20;

/// Less than this is looked at with each part; more is let grow by half first,
/// for looking at it each time would take the square of its length.
const OFTEN_BYTES: usize = 1024;

/// What [`MAX_HELD_BYTES`] hides is called.
const UNDECIDED: &str = "undecided";

/// Redacts one text that comes in parts.
///
/// ```
/// use icecore_domain::redact::{Redactor, RedactedStream};
/// let mut stream = RedactedStream::new(Redactor::standard());
/// let mut shown = stream.push("my password is hun").into_string();
/// shown += stream.push("ter22, says he").as_str();
/// shown += stream.finish().as_str();
/// assert_eq!(shown, "my password is [REDACTED:password-prose], says he");
/// ```
pub struct RedactedStream {
    redactor: Redactor,
    held: String,
    /// Nothing is released before so much is held: trying at each byte of a long
    /// hold would read it as many times.
    try_at: usize,
    /// Whether the word that comes to its end was hidden for its length.
    is_overlong: bool,
    prospects: Prospects,
    hidden: Hidden,
}

impl RedactedStream {
    /// Begins a text.
    pub fn new(redactor: Redactor) -> Self {
        let prospects = Prospects::new(Arc::clone(&redactor.engine));
        Self {
            redactor,
            held: String::new(),
            try_at: 0,
            is_overlong: false,
            prospects,
            hidden: Hidden::new(),
        }
    }

    /// Takes the next part and answers what can be shown by now.
    pub fn push(&mut self, part: &str) -> RedactedText {
        let part = self.after_overlong(part);
        self.held.push_str(part);
        if self.held.len() < self.try_at {
            return RedactedText(String::new());
        }
        let end = self.decided();
        let rest = self.held.split_off(end);
        let decided = std::mem::replace(&mut self.held, rest);
        if self.held.len() > MAX_HELD_BYTES {
            self.held = marker::of(UNDECIDED);
            self.is_overlong = true;
            add(&mut self.hidden, [(UNDECIDED.to_owned(), 1)]);
        }
        let more = if self.held.len() < OFTEN_BYTES { 0 } else { self.held.len() / 2 };
        self.try_at = (self.held.len() + more).min(MAX_HELD_BYTES + 1);
        let (shown, hidden) = self.redactor.text_counted(&decided);
        add(&mut self.hidden, hidden);
        shown
    }

    /// `part` without the rest of a word that was too long to be held.
    fn after_overlong<'a>(&mut self, part: &'a str) -> &'a str {
        let blank = part.find(|c: char| c.is_ascii_whitespace());
        match blank.filter(|_| self.is_overlong) {
            Some(at) => {
                self.is_overlong = false;
                &part[at..]
            }
            None if self.is_overlong => "",
            None => part,
        }
    }

    /// Ends the text and answers the rest of it.
    pub fn finish(self) -> RedactedText {
        self.finish_counted().0
    }

    /// As [`finish`](Self::finish), and how many secrets were hidden in all.
    pub fn finish_counted(mut self) -> (RedactedText, Hidden) {
        let (shown, hidden) = self.redactor.text_counted(&self.held);
        add(&mut self.hidden, hidden);
        (shown, self.hidden)
    }

    /// How much of what is held nothing that comes can change.
    fn decided(&mut self) -> usize {
        let text = self.held.as_str();
        let (mut open, failed) = self.prospects.open(text);
        if let Some(registered) = &self.redactor.registered {
            open.push(registered.begins_in(text.as_bytes())..usize::MAX);
            registered.find(text.as_bytes(), &mut |range, _| open.push(range));
        }
        open.extend(marker::open(text));
        decode::spans(text, &mut |range| open.push(range));
        let open = joined(open);
        let mut end = word_start(text, text.len());
        // Beside what is hidden, a text ends that went on before: there a pattern
        // may match that did not. What the last word ends in is not known yet, so it
        // may come to be hidden too.
        let may_end = |span: &Range<usize>| overlaps(&open, span) || end < span.end;
        let beside: Vec<_> = failed.into_iter().filter(may_end).collect();
        let open = joined(open.into_iter().chain(beside).collect());
        loop {
            end = word_start(text, end);
            // Of spans that do not overlap, only the last to begin can hold it.
            let begun = open.partition_point(|span| span.start < end);
            match open[..begun].last().filter(|span| end < span.end) {
                Some(span) => end = span.start,
                None => return end,
            }
        }
    }
}

fn add(sum: &mut Hidden, more: impl IntoIterator<Item = (String, u64)>) {
    for (name, count) in more {
        *sum.entry(name).or_default() += count;
    }
}

/// Whether a span overlaps or touches one of these, which are in order and apart.
fn overlaps(spans: &[Range<usize>], span: &Range<usize>) -> bool {
    let begun = spans.partition_point(|other| other.start <= span.end);
    spans[..begun].last().is_some_and(|other| span.start <= other.end)
}

/// Spans in order, those that overlap as one.
fn joined(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.sort_by_key(|span| span.start);
    let mut apart: Vec<Range<usize>> = Vec::new();
    for span in spans {
        match apart.last_mut() {
            Some(last) if span.start < last.end => last.end = last.end.max(span.end),
            _ => apart.push(span),
        }
    }
    apart
}

/// The end of the last blank at or before `end`: where a word may begin.
fn word_start(text: &str, end: usize) -> usize {
    text.as_bytes()[..end].iter().rposition(u8::is_ascii_whitespace).map_or(0, |at| at + 1)
}

/// Which keywords may still become secrets.
struct Prospects {
    engine: Arc<Engine>,
    automata: Vec<Option<(DFA, Cache)>>,
}

impl Prospects {
    fn new(engine: Arc<Engine>) -> Self {
        Self { engine, automata: Vec::new() }
    }

    /// The spans that patterns read from the keywords of `text` on, without an end
    /// where what comes may go on with them; and those of patterns that failed.
    fn open(&mut self, text: &str) -> (Vec<Range<usize>>, Vec<Range<usize>>) {
        let mut attempts = Vec::new();
        self.engine.hits(text, &mut |attempt| attempts.push(attempt));
        let (mut spans, mut failed) = (Vec::new(), Vec::new());
        for attempt in attempts {
            match self.span(text.as_bytes(), attempt) {
                (span, true) => spans.push(span),
                (span, false) => failed.push(span),
            }
        }
        // A keyword of several words may itself be cut short.
        spans.push(self.engine.begins_in(text)..usize::MAX);
        (spans, failed)
    }

    /// What the pattern read, and whether it matched or still may.
    fn span(&mut self, text: &[u8], attempt: Attempt) -> (Range<usize>, bool) {
        let rule = self.engine.kind(attempt.kind);
        let start = attempt.at.saturating_sub(rule.lead);
        let reach = attempt.at.saturating_add(rule.reach);
        let read = match rule.lead {
            0 => self.read(attempt.kind, &text[start..reach.min(text.len())]),
            _ => None,
        };
        let span = match read {
            Some((length, false)) => return (start..start + length, false),
            Some((length, true)) => start..start + length,
            // Longer than the reach, it goes on as far as its characters do.
            None if reach <= text.len() => {
                let more = text[reach..].iter().take_while(|byte| is_token_byte(**byte)).count();
                let end = reach + more;
                start..if end == text.len() { usize::MAX } else { end }
            }
            None => start..usize::MAX,
        };
        (span, true)
    }

    /// After how many bytes of `window` the pattern can match no more, and whether
    /// it matched.
    fn read(&mut self, kind: usize, window: &[u8]) -> Option<(usize, bool)> {
        self.automata.resize_with(self.automata.len().max(kind + 1), || None);
        if self.automata[kind].is_none() {
            self.automata[kind] = automaton(&self.engine.anchored(kind));
        }
        let (dfa, cache) = self.automata[kind].as_mut()?;
        let mut state =
            dfa.start_state(cache, &start::Config::new().anchored(Anchored::Yes)).ok()?;
        let mut has_matched = false;
        for (at, byte) in window.iter().enumerate() {
            state = dfa.next_state(cache, state, *byte).ok()?;
            has_matched |= state.is_match();
            if state.is_dead() {
                return Some((at + 1, has_matched));
            }
            if state.is_quit() {
                return None;
            }
        }
        None
    }
}

fn automaton(pattern: &str) -> Option<(DFA, Cache)> {
    let dfa = DFA::builder()
        .syntax(syntax::Config::new().unicode(false).utf8(false))
        .build(pattern)
        .ok()?;
    let cache = dfa.create_cache();
    Some((dfa, cache))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zeroize::Zeroizing;

    use super::*;
    use crate::redact::redact_tests::piece;
    use crate::redact::secret::{Secret, SecretName};

    fn redactor() -> Redactor {
        let secret = |name: &str, value: &str| {
            let value = Zeroizing::new(value.to_owned());
            Secret::new(SecretName::new(name).unwrap(), value).unwrap()
        };
        let secrets = [secret("door", "open sesame 7"), secret("db", "q8Zk2Lm9Xw4R")];
        Redactor::standard().for_tenant(&secrets, Default::default())
    }

    fn streamed(parts: &[&str]) -> String {
        let mut stream = RedactedStream::new(redactor());
        let shown: Vec<String> = parts.iter().map(|part| stream.push(part).into_string()).collect();
        shown.concat() + stream.finish().as_str()
    }

    /// The text in parts of one character, of two, and so on.
    fn check(text: &str) {
        let whole = redactor().text(text).into_string();
        let chars: Vec<String> = text.chars().map(String::from).collect();
        for size in [1, 2, 3, 7, 50] {
            let parts: Vec<String> = chars.chunks(size).map(|part| part.concat()).collect();
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            assert_eq!(streamed(&parts), whole, "in parts of {size}: {text}");
        }
    }

    #[test]
    fn a_split_secret_is_caught() {
        for kind in Redactor::kinds() {
            check(&format!("so {} it is, he said\nand went", kind.sample(5)));
        }
        check("the word is open sesame 7, he said");
        check("[BYOK:two words] and [BYOK: not closed, <REDACTED:a b> \n [REDACTED:x y]");
        check("b3BlbiBzZXNhbWUgNyBhbmQgbW9yZQ== or open%20sesame%207 or open+sesame+7 too");
    }

    #[test]
    fn ordinary_text_is_shown_at_once() {
        let mut stream = RedactedStream::new(redactor());
        let text = "We walked along the river, and my password manager was with us. ";
        assert_eq!(stream.push(text).as_str(), text);
        assert_eq!(stream.push("Then it rai").as_str(), "Then it ");
        assert_eq!(stream.push("ned. ").as_str(), "rained. ");
    }

    /// A quadratic stream would need minutes for these.
    #[test]
    fn hostile_text_comes_out_in_time() {
        for piece in ["password ", "token= ", "secret is ", "eyJ ", "api key: \n", "://a: "] {
            let text = piece.repeat((256 << 10) / piece.len());
            let parts: Vec<&str> =
                text.as_bytes().chunks(4096).map(|part| str::from_utf8(part).unwrap()).collect();
            assert_eq!(streamed(&parts), redactor().text(&text).into_string(), "{piece}");
        }
    }

    #[test]
    fn what_can_never_be_decided_is_hidden() {
        let mut stream = RedactedStream::new(redactor());
        let part = "0123456789abcdef".repeat(4096);
        let shown: Vec<String> = (0..40).map(|_| stream.push(&part).into_string()).collect();
        assert_eq!(shown.concat() + stream.push(" ok ").as_str(), "[REDACTED:undecided] ok ");
    }

    #[test]
    fn what_was_hidden_is_counted() {
        let mut stream = RedactedStream::new(redactor());
        for part in ["[REDACTED:db] q8Zk2Lm9", "Xw4R and ", "open sesame 7, then q8Zk2Lm9Xw4R"] {
            stream.push(part);
        }
        let (_, hidden) = stream.finish_counted();
        assert_eq!(hidden, Hidden::from([("db".to_owned(), 2), ("door".to_owned(), 1)]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn parts_give_what_the_whole_gives(
            pieces in prop::collection::vec(prop_oneof![4 => piece(), 2 => Just(" and so on ".to_owned()), 1 => Just("open sesame 7".to_owned())], 1..8),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let text = pieces.concat();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
            cuts.extend([0, text.len()]);
            cuts.sort();
            let parts: Vec<&str> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            prop_assert_eq!(streamed(&parts), redactor().text(&text).into_string());
        }
    }
}
