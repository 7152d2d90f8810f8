//! Sentences as clauses, and clauses as plain words.
//!
//! People chain what they state and what they ask: "I prefer tabs, can you help
//! me?" So each clause is read by itself, and what it hangs on is kept in mind.

use std::ops::Range;

use crate::text::dates::When;
use crate::text::{Token, fold, for_each_word, is_question, written_out};

/// A clause that states something.
#[derive(Debug, Clone)]
pub(super) struct Clause {
    /// Its tokens, without conjunctions and fillers in front.
    pub tokens: Range<usize>,
    /// Where its statement begins, after a time that stands in front.
    pub head: usize,
}

/// Whether a form could begin in `sentence`: somebody speaks of themselves, or
/// one of the few forms that do without stands there. Cheap, because it turns
/// most sentences away.
pub(super) fn may_state(sentence: &str) -> bool {
    let mut folded = String::new();
    let mut states = false;
    // "call me", "let us", "the deadline": both words must be there.
    let mut pairs = [[false; 2]; 3];
    for_each_word(sentence, |word| {
        let contracted = word.text.contains(['\'', '’']);
        if states || !contracted && word.text.len() > "deadline".len() {
            return;
        }
        fold(word.text, &mut folded);
        let (first, second) = written_out(&folded);
        match first {
            "i" | "we" | "my" | "our" => states = true,
            "call" => pairs[0][0] = true,
            "me" => pairs[0][1] = true,
            "let" => pairs[1][0] = true,
            "us" => pairs[1][1] = true,
            "the" => pairs[2][0] = true,
            "deadline" => pairs[2][1] = true,
            _ => {}
        }
        pairs[1][1] |= second == "us";
    });
    states || pairs.contains(&[true; 2])
}

/// The clauses of `sentence` that state something.
pub(super) fn clauses(sentence: &str, tokens: &[Token], whens: &[When]) -> Vec<Clause> {
    let asks = is_question(sentence);
    let parts = split(sentence, tokens, whens);
    let opens_asking = parts.first().is_some_and(|part| is_asking(head_word(tokens, part)));
    if asks && (opens_asking || parts.len() == 1) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut supposed = false;
    for (number, part) in parts.iter().enumerate() {
        let last_of_question = asks && number + 1 == parts.len();
        let starts_supposing = supposes(tokens, part);
        let asking = is_asking(head_word(tokens, part));
        if !supposed && !starts_supposing && !last_of_question && !asking {
            found.extend(clause(tokens, part, whens));
        }
        supposed = starts_supposing;
    }
    found
}

fn clause(tokens: &[Token], part: &Range<usize>, whens: &[When]) -> Option<Clause> {
    let start = skip_openers(tokens, part);
    let mut head = start;
    // "Last week I moved": the time belongs to the clause, the form begins after.
    while head < part.end && (is_in_time(&tokens[head], whens) || leads_time(tokens, head, whens)) {
        head += 1;
    }
    let head = if head < part.end { head } else { start };
    (start < part.end).then_some(Clause { tokens: start..part.end, head })
}

fn is_in_time(token: &Token, whens: &[When]) -> bool {
    whens.iter().any(|when| when.span.start <= token.start && token.end <= when.span.end)
}

/// "in", "on", "since the" before a time.
fn leads_time(tokens: &[Token], at: usize, whens: &[When]) -> bool {
    let leads = |word: &str| {
        ["in", "on", "since", "the", "over", "by", "back", "during", "earlier", "later"]
            .contains(&word)
    };
    let mut after = at;
    while tokens.get(after).is_some_and(|token| leads(&token.word)) && after < at + 3 {
        after += 1;
    }
    after > at && tokens.get(after).is_some_and(|token| is_in_time(token, whens))
}

/// Cuts where a clause with a subject or a question of its own begins.
fn split(sentence: &str, tokens: &[Token], whens: &[When]) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = 0;
    for at in 1..tokens.len() {
        if tokens[at].start == tokens[at - 1].start {
            continue;
        }
        let gap = &sentence[tokens[at - 1].end..tokens[at].start];
        let paused =
            gap.contains([',', ';', '—', '–', '(', ')', '…', '.', '!', '?']) || gap.contains(" - ");
        if !(paused && starts_clause(tokens, at)
            || joins_clause(tokens, at)
            || gap.contains([';', '!', '?']))
        {
            continue;
        }
        let here = skip_openers(tokens, &(start..at));
        let only_time =
            (here..at).all(|n| is_in_time(&tokens[n], whens) || leads_time(tokens, n, whens));
        if !only_time || here == at {
            parts.push(start..at);
            start = at;
        }
    }
    parts.push(start..tokens.len());
    parts.retain(|part| !part.is_empty());
    parts
}

fn word(tokens: &[Token], at: usize) -> &str {
    tokens.get(at).map_or("", |token| token.word.as_str())
}

fn is_subject(word: &str) -> bool {
    [
        "i", "we", "my", "our", "he", "she", "it", "they", "you", "your", "this", "that", "there",
        "it's", "that's", "he's", "she's", "there's", "his", "her", "their",
    ]
    .contains(&word)
}

fn is_asking(word: &str) -> bool {
    [
        "can", "could", "would", "will", "how", "what", "do", "does", "did", "is", "are", "was",
        "were", "should", "any", "which", "where", "who", "why", "what's", "whose", "have", "has",
        "am", "how's", "may", "when's", "where's", "who's",
    ]
    .contains(&word)
}

fn is_supposing(word: &str) -> bool {
    [
        "if", "whether", "unless", "suppose", "supposing", "imagine", "wish", "maybe", "perhaps",
        "pretend", "say", "lest", "hypothetically",
    ]
    .contains(&word)
}

fn starts_clause(tokens: &[Token], at: usize) -> bool {
    let (this, next) = (word(tokens, at), word(tokens, at + 1));
    let opens = |word: &str| is_subject(word) || is_asking(word) || is_supposing(word);
    let links = [
        "and", "but", "so", "because", "since", "as", "while", "though", "although", "or", "plus",
        "then", "given", "considering", "when", "until", "where",
    ]
    .contains(&this);
    opens(this)
        || matches!(this, "please" | "considering" | "hoping" | "especially" | "thanks" | "who")
        || links && (opens(next) || matches!(next, "please" | "that" | "if" | "also" | "now"))
        || matches!(this, "but" | "so" | "because" | "although" | "though" | "which")
}

/// "… and I …": a clause without a pause before it.
fn joins_clause(tokens: &[Token], at: usize) -> bool {
    let link =
        ["and", "but", "so", "because", "since", "though", "although"].contains(&word(tokens, at));
    link && ["i", "we", "my", "our", "he", "she", "it", "they", "it's"]
        .contains(&word(tokens, at + 1))
        || matches!(word(tokens, at), "but" | "because" | "although")
            && word(tokens, at + 1) != "not"
}

/// The first token that is no conjunction, interjection or filler.
fn skip_openers(tokens: &[Token], part: &Range<usize>) -> usize {
    let is_opener = |word: &str| {
        [
            "and", "but", "so", "because", "since", "as", "yeah", "yes", "yep", "oh", "well",
            "also", "actually", "plus", "considering", "given", "hey", "hi", "wow", "honestly",
            "personally", "ok", "okay", "hmm", "sure", "though", "although", "while", "anyway",
            "btw", "fyi", "no", "right", "cool", "awesome", "great", "nice", "hello", "then",
            "thanks", "aw", "haha", "true", "definitely", "absolutely", "totally", "luckily",
            "unfortunately", "fortunately", "sadly", "recently", "lately", "currently",
            "thankfully",
        ]
        .contains(&word)
    };
    let mut at = part.start;
    while at < part.end && is_opener(&tokens[at].word) {
        let that =
            word(tokens, at + 1) == "that" && matches!(word(tokens, at), "considering" | "given");
        at += 1 + usize::from(that);
    }
    at.min(part.end)
}

fn head_word<'a>(tokens: &'a [Token], part: &Range<usize>) -> &'a str {
    let head = skip_openers(tokens, part);
    if head < part.end { word(tokens, head) } else { "" }
}

/// Whether a clause only supposes: "if I lived", "I wish", "when I was".
fn supposes(tokens: &[Token], part: &Range<usize>) -> bool {
    let head = skip_openers(tokens, part);
    let first = tokens[head..part.end].iter().take(3);
    first.clone().any(|token| is_supposing(&token.word))
        || tokens.get(head).is_some_and(|token| token.word == "when")
}
