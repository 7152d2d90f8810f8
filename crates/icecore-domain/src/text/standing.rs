//! How surely a text is a standing instruction, or states a preference.
//!
//! Read off the form alone, cheaply, for every turn that is indexed.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::sentences::{SentenceKind, is_question, sentences};
use super::words::{Token, tokens};

/// How surely, from 0 (not at all) to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// That it is an instruction for all answers from now on.
    pub instruction: u8,
    /// That it says what its speaker prefers.
    pub preference: u8,
}

/// Of a longer turn only the front is read: who pastes a book gives no orders in
/// its middle.
const MAX_READ_BYTES: usize = 8 << 10;

/// Without one of these a text is neither, and is not read further.
static HINTS: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let hints = [
        "always", "never", "from now on", "whenever", "going forward", "in future",
        "in the future", "every time", "each time", "any time", "anytime", "when i ask",
        "if i ask", "by default", "remember to", "make sure", "keep in mind", "don't ever",
        "do not ever", "prefer", "rather", "favorite", "favourite", "i like", "i love", "i enjoy",
        "i hate", "i dislike", "like to", "don't like", "do not like", "don’t like", "can't stand",
        "can’t stand", "works best for me", "fan of", "i tend to", "i usually", "don’t ever",
        "i find it", "i really", "for me",
    ];
    let finder = AhoCorasick::builder().ascii_case_insensitive(true).build(hints);
    finder.expect("the table is small")
});

/// Reads the form of `text`.
pub fn standing(text: &str) -> Standing {
    let limit = (0..=MAX_READ_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    let text = &text[..limit.unwrap_or(0)];
    let mut strength = Standing::default();
    if !HINTS.is_match(text) {
        return strength;
    }
    for sentence in sentences(text) {
        if matches!(sentence.kind, SentenceKind::Prose | SentenceKind::Fragment)
            && HINTS.is_match(&*sentence.text)
        {
            let words = tokens(&sentence.text);
            strength.instruction = strength.instruction.max(order(&sentence.text, &words));
            strength.preference = strength.preference.max(preference(&words));
        }
    }
    strength
}

/// How surely one sentence is a standing instruction.
pub(crate) fn instruction_strength(sentence: &str) -> u8 {
    if !HINTS.is_match(sentence) {
        return 0;
    }
    order(sentence, &tokens(sentence))
}

/// From this strength on a standing instruction goes before everything else.
const SURE_INSTRUCTION: u8 = 70;

/// Whether it is surely a standing order.
pub(crate) fn is_instruction(text: &str) -> bool {
    order_strength(text) >= SURE_INSTRUCTION
}

/// How surely it is a standing order, also after what leads to it, as in `one rule: always
/// ask first`.
pub(crate) fn order_strength(text: &str) -> u8 {
    let after = text.rsplit_once(": ").map_or(0, |(_, order)| standing(order).instruction);
    standing(text).instruction.max(after)
}

fn order(sentence: &str, tokens: &[Token]) -> u8 {
    let words: Vec<&str> = tokens.iter().map(|token| token.word.as_str()).collect();
    let words = strip_polite(&words);
    let scoped = is_scoped(words);
    let lasting = is_lasting(words);
    let ordered = is_order(words);
    // "I'll do so from now on" promises.
    if matches!(words, ["i" | "we" | "he" | "she" | "they", "will" | "can" | "have", ..]) {
        return 0;
    }
    let told = has(words, &["i", "want", "you", "to"])
        || has(words, &["i", "would", "like", "you", "to"])
        || has(words, &["i", "need", "you", "to"])
        || has(words, &["you", "should", "always"])
        || has(words, &["you", "should", "never"])
        || has(words, &["you", "must"]);
    let ever = words.iter().any(|word| matches!(*word, "always" | "never"));
    let please = words.contains(&"please") || tokens.first().is_some_and(|t| t.word == "please");
    // "Can you always …?" asks for good; "do you always …?" asks.
    let asks = is_question(sentence);
    if asks
        && !(lasting || ever && matches!(words, ["can" | "could" | "would" | "will", "you", ..]))
    {
        return 0;
    }
    let order_in_it = ordered || told || asks || lasting && has_order_after(words);
    match (order_in_it, scoped, lasting) {
        (true, true, _) if ever || please || told || lasting => 100,
        (true, _, true) => 90,
        (true, true, _) => 80,
        (true, _, _) if told && ever => 90,
        (true, _, _) if asks && ever => 80,
        (true, _, _) if ordered && ever && please => 80,
        (true, _, _) if ordered && ever && talks_of_answers(words) => 75,
        (true, _, _) if ordered && ever => 50,
        (_, _, true) if please || told => 70,
        (_, true, _) if (please || ever) && orders_after_scope(words) => 80,
        _ => 0,
    }
}

fn strip_polite<'a>(mut words: &'a [&'a str]) -> &'a [&'a str] {
    while let [first, rest @ ..] = words {
        let polite =
            ["please", "and", "also", "so", "ok", "okay", "hey", "hi", "but", "just", "yes"]
                .contains(first);
        if !polite {
            break;
        }
        words = rest;
    }
    words
}

fn has(words: &[&str], phrase: &[&str]) -> bool {
    words.windows(phrase.len()).any(|window| window == phrase)
}

/// Says when it applies: "when I ask", "whenever you answer".
fn is_scoped(words: &[&str]) -> bool {
    words.windows(3).any(|window| {
        let when = matches!(window[0], "when" | "whenever" | "if" | "time" | "anytime" | "once");
        let speaks = [
            "ask", "request", "mention", "say", "talk", "discuss", "want", "answer", "reply",
            "respond", "explain", "write", "give", "suggest", "provide", "show", "bring",
            "inquire", "need", "generate", "recommend", "share", "describe", "refer",
        ]
        .contains(&window[2]);
        when && matches!(window[1], "i" | "you" | "we") && speaks
    }) || words.windows(2).any(|window| {
        matches!(window[0], "when" | "whenever")
            && [
                "answering", "responding", "explaining", "replying", "writing", "discussing",
                "giving", "suggesting", "providing",
            ]
            .contains(&window[1])
    })
}

/// Says that it goes on: "from now on", "in future", "by default".
fn is_lasting(words: &[&str]) -> bool {
    const PHRASES: [&[&str]; 8] = [
        &["from", "now", "on"],
        &["from", "here", "on"],
        &["in", "all", "future"],
        &["in", "all", "your"],
        &["in", "every", "answer"],
        &["for", "all", "future"],
        &["by", "default", "please"],
        &["until", "i", "say"],
    ];
    PHRASES.iter().any(|phrase| has(words, phrase))
        || words.ends_with(&["going", "forward"]) && !has(words, &["keep", "going", "forward"])
        || matches!(
            words,
            ["going", "forward", ..]
                | ["in", "future", ..]
                | ["in", "the", "future", "please" | "always" | "never", ..]
        )
}

/// Begins as an order: "always use", "never", "make sure to", "remember to".
fn is_order(words: &[&str]) -> bool {
    match words {
        ["always" | "never", verb, ..] => {
            !is_pronoun(verb)
                && !verb.ends_with("ing")
                && !verb.ends_with("ed")
                && !["a", "an", "the", "been", "had", "have", "mind", "thought", "knew", "in"]
                    .contains(verb)
        }
        ["do", "not", "ever", ..] => true,
        ["do", "not", verb, ..] => {
            !is_pronoun(verb)
                && !matches!(*verb, "know" | "worry" | "get" | "think" | "have" | "forget")
        }
        ["make", "sure", "to" | "you" | "that", ..] => true,
        ["be", "sure", "to", ..] => true,
        ["remember" | "try", "to", ..] => true,
        ["keep", "in", "mind", ..] => true,
        [
            "use" | "include" | "format" | "answer" | "reply" | "respond" | "give" | "show"
            | "provide" | "avoid" | "ensure" | "cite" | "list" | "explain" | "add" | "write"
            | "start" | "end" | "keep" | "address" | "call" | "ask" | "confirm" | "mention"
            | "limit" | "stick",
            ..,
        ] => true,
        _ => false,
    }
}

fn is_pronoun(word: &str) -> bool {
    ["i", "we", "you", "he", "she", "they", "it", "my", "your", "that", "this"].contains(&word)
}

/// "From now on, use …" and "When I ask, always …".
fn has_order_after(words: &[&str]) -> bool {
    (1..words.len().min(14)).any(|at| !is_reported(words, at) && is_order(&words[at..]))
}

/// "I will always …", "she never …": a report, not an order.
fn is_reported(words: &[&str], at: usize) -> bool {
    const LEADS: [&str; 8] = ["will", "would", "to", "can", "should", "could", "who", "start"];
    let nearby = &words[at.saturating_sub(2)..at];
    nearby.iter().any(|word| is_pronoun(word) || LEADS.contains(word))
}

fn orders_after_scope(words: &[&str]) -> bool {
    const SCOPES: [&str; 7] = ["when", "whenever", "if", "every", "each", "any", "anytime"];
    const ORDERS: [&str; 5] = ["please", "always", "never", "make", "do"];
    let ordered = |at: usize| {
        ORDERS.contains(&words[at])
            && !is_reported(words, at)
            && is_order(strip_polite(&words[at..]))
    };
    words.first().is_some_and(|first| SCOPES.contains(first)) && (1..words.len()).any(ordered)
}

/// An order to one who answers, not to one who lives.
fn talks_of_answers(words: &[&str]) -> bool {
    words.iter().any(|word| {
        [
            "answer", "answers", "reply", "replies", "response", "responses", "explanation",
            "explanations", "code", "format", "bullet", "bullets", "cite", "citation", "citations",
            "sources", "units", "examples", "summary", "include", "reference",
        ]
        .contains(word)
    })
}

fn preference(tokens: &[Token]) -> u8 {
    let words: Vec<&str> =
        tokens.iter().map(|token| token.word.as_str()).filter(|word| !is_adverb(word)).collect();
    let mut strength = 0;
    for at in 0..words.len() {
        let before = if at > 0 { words[at - 1] } else { "" };
        // What is supposed or asked of another is no preference.
        let supposed =
            ["if", "do", "would", "you", "whether", "when", "what", "which"].contains(&before);
        let rest = |count: usize| &words[(at + count).min(words.len())..];
        let found = match &words[at..] {
            ["i" | "we", "prefer", ..] if !supposed => 95,
            ["i" | "we", "would", "prefer", ..] => 75,
            ["my", "preference" | "preferences", ..] => 75,
            ["my", "preferred", ..] => 70,
            ["i", "would", "rather", ..] => 60,
            ["works", "best", "for", "me", ..] => 60,
            ["my", "favorite" | "favourite", ..] => 55,
            ["i", "do", "not", "like" | "enjoy" | "want", ..] if !is_reaction(rest(4)) => 40,
            ["i", "can", "not", "stand", ..] => 50,
            ["i", "hate" | "dislike", ..] if !is_reaction(rest(2)) => 45,
            ["i", "like" | "love" | "enjoy", ..] if !supposed && !is_reaction(rest(2)) => 40,
            ["fan", "of", ..] if before != "not" => 35,
            ["i", "tend", "to", ..] => 30,
            ["rather", "than", ..] => 25,
            _ => 0,
        };
        strength = strength.max(found);
    }
    strength
}

/// Words that may stand between a subject and its verb without changing a form.
pub(crate) fn is_adverb(word: &str) -> bool {
    [
        "really", "also", "just", "absolutely", "always", "usually", "currently", "recently",
        "actually", "still", "definitely", "totally", "generally", "typically", "personally",
        "now", "finally", "often", "mostly", "truly", "especially", "particularly", "originally",
        "strongly", "much", "both", "very", "super", "so", "kinda", "pretty", "only", "even",
        "already", "all", "sometimes", "simply", "primarily", "mainly",
    ]
    .contains(&word)
}

/// After "I love", "I can't": talk about the talk, no statement.
pub(crate) fn is_reaction(words: &[&str]) -> bool {
    let first = words.first().copied().unwrap_or_default();
    let points = [
        "that", "it", "this", "how", "your", "you", "them", "those", "these", "him", "her", "what",
        "so", "too", "one", "is", "was", "when", "where", "if",
    ]
    .contains(&first);
    let idiom = [
        "wait", "believe", "imagine", "help", "thank", "say", "tell", "stop", "stress", "seem",
        "figure", "express", "agree", "remember", "recommend", "admit",
    ]
    .contains(&first);
    points
        || idiom
        || matches!(
            words,
            ["the", "way" | "idea" | "sound" | "look" | "vibe", ..] | ["all", "of", ..]
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        text: &str,
        instruction: std::ops::RangeInclusive<u8>,
        preference: std::ops::RangeInclusive<u8>,
    ) {
        let found = standing(text);
        assert!(instruction.contains(&found.instruction), "{text}: {found:?}");
        assert!(preference.contains(&found.preference), "{text}: {found:?}");
    }

    #[test]
    fn standing_instructions_are_known_by_their_form() {
        for text in [
            "Always add the currency when I ask about prices.",
            "Whenever I ask for a recipe, please use metric units.",
            "From now on, call me Captain.",
            "Please never use emojis in your replies.",
            "I want you to always answer in Portuguese.",
            "Going forward, keep answers under 100 words.",
            "Can you always show the sources?",
            "When I mention travel, always suggest trains.",
            "Make sure to cite a source whenever you give a number.",
            "Never use jargon when you explain physics.",
        ] {
            check(text, 70..=100, 0..=30);
        }
    }

    #[test]
    fn advice_questions_and_habits_are_weak_or_none() {
        for text in [
            "Always be yourself!",
            "I always walk to work.",
            "Do you always answer so fast?",
            "She never calls.",
            "Never mind.",
            "Always a pleasure.",
            "When I ask him, he laughs.",
            "Make sure to rest!",
            "I never said that.",
            "Can you make sure it compiles?",
            "",
            "Use the second one.",
            "It never works when I ask nicely.",
            "Got it! When discussing errors, I'll always include the codes.",
            "I will write to you from now on.",
            "What keeps you going forward with it?",
        ] {
            check(text, 0..=50, 0..=30);
        }
    }

    #[test]
    fn preferences_have_their_strengths() {
        check("I prefer trains over planes, can you plan a trip?", 0..=0, 90..=100);
        check("I really prefer quiet rooms.", 0..=0, 90..=100);
        check("I'd rather walk than drive.", 0..=0, 55..=65);
        check("My favorite tea is oolong.", 0..=0, 50..=60);
        check("I love pottery.", 0..=0, 40..=40);
        for text in [
            "Which do you prefer?", "I love that!", "I like your style.", "Do I prefer it?",
            "If I prefer tea, tell me.",
        ] {
            check(text, 0..=0, 0..=30);
        }
    }
}
