//! Reading a fact back from the sentence that was made of it.

use super::render::PRESENT;
use super::{Fact, extract};
use crate::text::Said;
use crate::time::Millis;

/// A subject has at most so many words.
const MAX_SUBJECT_WORDS: usize = 3;

/// The fact whose text `text` is, as in `Ann lives in Oslo.`; none where what is found
/// would be told in other words.
pub(crate) fn read_back(text: &str, at: Millis) -> Option<Fact> {
    (1..=MAX_SUBJECT_WORDS).find_map(|words| {
        let (end, _) = text.match_indices(' ').nth(words - 1)?;
        let (subject, rest) = (&text[..end], text[end..].trim_start());
        let (subject, told) = match subject.strip_suffix("'s") {
            Some(owner) => (owner, format!("My {rest}")),
            None => (subject, format!("I {}", first_person(rest))),
        };
        let name = (subject != "The user").then_some(subject);
        let said = Said { role: "user", name, text: &told, at };
        extract(&said, None).into_iter().find(|fact| fact.text == text)
    })
}

/// A sentence about somebody, in the first person.
fn first_person(rest: &str) -> String {
    let (verb, after) = rest.split_once(' ').unwrap_or((rest, ""));
    let own = PRESENT.iter().find(|(_, third)| *third == verb).map_or(verb, |(own, _)| *own);
    format!("{own} {after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_read_back() {
        let at = Millis(1_683_417_600_000);
        for (name, text) in [
            (Some("Ana"), "I live in Lisbon."),
            (Some("Mary Ann"), "I work at Initech."),
            (None, "I prefer tabs over spaces."),
            (Some("Bo"), "My dog is called Rex."),
        ] {
            let said = Said { role: "user", name, text, at };
            for fact in extract(&said, None) {
                let read = read_back(&fact.text, at);
                let key = |fact: &Fact| {
                    (fact.subject.clone(), fact.attribute.clone(), fact.value.clone())
                };
                assert_eq!(read.as_ref().map(key), Some(key(&fact)), "{}", fact.text);
            }
        }
    }

    #[test]
    fn what_is_no_fact_is_none() {
        for text in ["", "Ann", "It rains in Oslo today.", "  ", "a b c d e"] {
            assert_eq!(read_back(text, Millis(0)), None, "{text}");
        }
    }
}
