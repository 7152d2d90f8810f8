//! A clause as a sentence that can stand alone.

use super::forms::is_past;
use crate::text::{Token, is_adverb};

/// Verbs of our forms in the present, as they are said of somebody else.
pub(super) const PRESENT: &[(&str, &str)] = &[
    ("am", "is"),
    ("have", "has"),
    ("do", "does"),
    ("live", "lives"),
    ("reside", "resides"),
    ("come", "comes"),
    ("go", "goes"),
    ("work", "works"),
    ("prefer", "prefers"),
    ("like", "likes"),
    ("love", "loves"),
    ("enjoy", "enjoys"),
    ("adore", "adores"),
    ("hate", "hates"),
    ("dislike", "dislikes"),
    ("detest", "detests"),
    ("speak", "speaks"),
    ("play", "plays"),
    ("own", "owns"),
    ("study", "studies"),
    ("major", "majors"),
    ("volunteer", "volunteers"),
    ("teach", "teaches"),
    ("coach", "coaches"),
    ("collect", "collects"),
    ("tutor", "tutors"),
    ("mentor", "mentors"),
    ("plan", "plans"),
    ("intend", "intends"),
    ("need", "needs"),
];

/// Verbs that are the same for all.
const SAME: &[&str] = &["will", "would", "can", "must", "was", "could"];

/// `quote` in the third person about `subject`, or the quote after the subject's name.
///
/// `head` is the index of the clause's subject among its tokens, whose offsets
/// count from the front of `quote`.
pub(super) fn stand_alone(subject: &str, quote: &str, tokens: &[Token], head: usize) -> String {
    let who = if subject == "user" { "The user" } else { subject };
    match in_third_person(who, quote, tokens, head) {
        Some(text) => end(text),
        None => end(format!("{who}: {quote}")),
    }
}

fn end(mut text: String) -> String {
    if !text.ends_with(['.', '!', '?', '…', '。']) {
        text.push('.');
    }
    text
}

/// The quote with the speaker in the third person, where that is safe.
fn in_third_person(who: &str, quote: &str, tokens: &[Token], head: usize) -> Option<String> {
    let mut text = quote.get(..tokens.get(head)?.start)?.to_owned();
    let opening = !text.is_empty();
    let mut copied = tokens[head].start;
    let mut verb_at = None;
    let mut skip = false;
    for (at, token) in tokens.iter().enumerate().skip(head) {
        if skip {
            skip = false;
            continue;
        }
        let next = tokens.get(at + 1);
        let contracted = next.filter(|next| next.start == token.start);
        let replacement = match token.word.as_str() {
            "i" if at == head => {
                let verb = verb_index(tokens, at + 1)?;
                verb_at = Some(verb);
                let name = if opening && who == "The user" { "the user" } else { who };
                match contracted {
                    Some(next) => {
                        skip = true;
                        format!("{name} {}", third(&next.word)?)
                    }
                    None => name.to_owned(),
                }
            }
            "my" if at == head => format!("{who}'s"),
            _ if Some(at) == verb_at => match contracted {
                Some(next) => {
                    skip = true;
                    format!("{} {}", third(&token.word)?, next.word)
                }
                None => third(&token.word)?,
            },
            "my" => "their".to_owned(),
            "myself" => "themselves".to_owned(),
            "me" => "them".to_owned(),
            "i" | "we" | "you" | "your" | "our" | "us" | "mine" => return None,
            _ => continue,
        };
        text.push_str(quote.get(copied..token.start)?);
        text.push_str(&replacement);
        copied = token.end;
    }
    text.push_str(quote.get(copied..)?);
    Some(text)
}

fn verb_index(tokens: &[Token], from: usize) -> Option<usize> {
    (from..tokens.len().min(from + 3)).find(|at| !is_adverb(&tokens[*at].word))
}

/// A verb as said of somebody else, if we know it.
fn third(verb: &str) -> Option<String> {
    let known =
        PRESENT.iter().find(|(first, _)| *first == verb).map(|(_, third)| (*third).to_owned());
    let same = || (SAME.contains(&verb) || is_past(verb)).then(|| verb.to_owned());
    known
        .or_else(same)
        .or_else(|| (verb.len() > 4 && verb.ends_with("ed")).then(|| verb.to_owned()))
}
