//! Standing instructions and constraints, word for word.

use std::borrow::Cow;

use super::HandoffSource;
use crate::fact::{FactKind, MAX_READ_CHARS, read_back};
use crate::handoff::{HandoffLine, HandoffSection};
use crate::text::{
    Said, SentenceKind, Voice, cuts_marker, is_question, normalise, order_strength, sentences,
    voice_of,
};
use crate::time::Millis;

/// How surely an order must be a standing one where people talk to each other.
const SURE_ORDER: u8 = 70;
/// The same where somebody talks to a model: `Never push to main.` is an order.
const LIKELY_ORDER: u8 = 50;

/// A longer sentence is no rule for work.
const MAX_RULE_BYTES: usize = 240;

/// Those of the handoff before first, then what is known, then what else was said: the
/// newest last. Where a newer fact says otherwise of the same, the older goes.
pub(super) fn instructions(source: &HandoffSource<'_>) -> Vec<HandoffLine> {
    let known = || {
        let kinds = [FactKind::Instruction, FactKind::Constraint];
        source.facts.iter().filter(move |fact| kinds.contains(&fact.kind))
    };
    let is_overtaken = |line: &str| {
        read_back(line, Millis(0)).is_some_and(|old| {
            !old.attribute.is_empty()
                && source.facts.iter().any(|fact| {
                    (&fact.subject, &fact.attribute) == (&old.subject, &old.attribute)
                        && normalise(&fact.value) != normalise(&old.value)
                })
        })
    };
    let carried = source.previous.into_iter().flat_map(|one| one.of(HandoffSection::Instructions));
    let mut texts: Vec<Cow<'_, str>> =
        carried.filter(|line| !is_overtaken(line)).map(Cow::Borrowed).collect();
    texts.extend(known().map(|fact| Cow::Borrowed(fact.quote.as_str())));
    texts.extend(source.said.iter().flat_map(stated));
    texts.iter().map(|text| HandoffLine::new(HandoffSection::Instructions, text)).collect()
}

/// The sentences of a turn that tell how to go on from now on.
pub(super) fn stated<'a>(said: &Said<'a>) -> Vec<Cow<'a, str>> {
    if voice_of(said) != Voice::Person || said.role == "assistant" {
        return Vec::new();
    }
    let is_among_people = said.name.is_some();
    let least = if is_among_people { SURE_ORDER } else { LIKELY_ORDER };
    let limit = said.text.char_indices().nth(MAX_READ_CHARS).map_or(said.text.len(), |(at, _)| at);
    let text = &said.text[..limit];
    let mut found = sentences(text);
    found.retain(|sentence| {
        matches!(sentence.kind, SentenceKind::Prose | SentenceKind::Fragment)
            && !cuts_marker(text, &sentence.text)
            && (order_strength(&sentence.text) >= least
                || !is_among_people && is_rule(&sentence.text))
    });
    found.into_iter().map(|sentence| sentence.text).collect()
}

/// Whether a sentence to a model is a rule for its work by its form: `Do not touch …`, `Use
/// tabs, not spaces.`, `Every commit must pass …`.
fn is_rule(sentence: &str) -> bool {
    if sentence.len() > MAX_RULE_BYTES || is_question(sentence) {
        return false;
    }
    let words = words(sentence);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_polite =
        |word: &&&str| ["please", "and", "also", "but", "so", "ok", "okay", "just"].contains(*word);
    let words = &words[words.iter().take_while(is_polite).count()..];
    if words.len() < 3 {
        return false;
    }
    let contrasts = || {
        let pairs = [["instead", "of"], ["rather", "than"]];
        words.windows(2).any(|two| pairs.iter().any(|pair| two == pair))
            || words.iter().any(|word| matches!(*word, "only" | "not" | "never" | "always"))
    };
    match words {
        ["do", "not", "worry" | "mind" | "bother" | "think" | "know" | "you" | "we" | "i", ..] => {
            false
        }
        ["do", "not", ..] | ["only" | "avoid", ..] => true,
        [
            "you" | "we",
            "may" | "must" | "should" | "can",
            "only" | "not" | "never" | "always",
            ..,
        ] => true,
        ["use" | "keep" | "write" | "stick" | "make" | "leave" | "prefer" | "run" | "name", ..] => {
            contrasts()
        }
        _ => demands(words),
    }
}

/// `The service must stay compatible`, and not `it must have rained`.
fn demands(words: &[&str]) -> bool {
    const TOLD_OF: [&str; 9] = ["i", "he", "she", "they", "it", "there", "this", "that", "what"];
    let Some(at) = words.iter().position(|word| *word == "must") else { return false };
    at > 0
        && !TOLD_OF.contains(&words[at - 1])
        && words.get(at + 1).is_some_and(|next| *next != "have")
}

/// Words in small letters, `don't` as two.
fn words(sentence: &str) -> Vec<String> {
    let plain = sentence.to_lowercase().replace('\u{2019}', "'").replace("n't", " not");
    let of = plain.split(|c: char| !c.is_alphanumeric() && c != '\'');
    of.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stated_by(role: &str, name: Option<&str>, text: &str) -> Vec<String> {
        let said = Said { role, name, text, at: Millis(0) };
        stated(&said).into_iter().map(Cow::into_owned).collect()
    }

    #[test]
    fn rules_for_work_are_known_by_their_form() {
        for text in [
            "Do not touch the migrations folder.",
            "Please don't edit generated files.",
            "Don’t rename public functions.",
            "Use tabs, not spaces.",
            "Use the standard library instead of new crates.",
            "Always run the tests before you commit.",
            "Never push to main.",
            "Only change files below src/api.",
            "Every commit must pass the linter.",
            "The responses must be JSON.",
            "You must not call the live service.",
            "Keep functions short rather than clever.",
            "Avoid unsafe code.",
        ] {
            assert_eq!(stated_by("user", None, text), [text]);
            assert_eq!(stated_by("assistant", None, text), [""; 0]);
            assert_eq!(stated_by("tool", None, text), [""; 0]);
        }
        let two = "Port the lexer. Do not touch the parser.";
        assert_eq!(stated_by("user", None, two), ["Do not touch the parser."]);
    }

    #[test]
    fn requests_and_talk_are_no_rules() {
        for text in [
            "Use the second one.",
            "Do not worry about it.",
            "Don't you think so?",
            "It must have rained.",
            "I must go to the shop.",
            "There must be a bug somewhere.",
            "Write a function that sorts names.",
            "Never mind.",
            "Must I do this?",
            "I do not see the error.",
            "Make a plan for tomorrow.",
        ] {
            assert_eq!(stated_by("user", None, text), [""; 0], "{text}");
        }
        // Among people it takes more.
        assert_eq!(stated_by("user", Some("Ann"), "Do not touch my bike today."), [""; 0]);
    }
}
