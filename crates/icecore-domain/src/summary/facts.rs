//! Sentences worth keeping by themselves: few, short, and someone's own words.

use crate::text::{
    Cue, SentenceKind, Voice, dates, for_each_cue, is_question, leans_on_before, one_line,
    own_terms, shared_count,
};

/// The most key facts of one chunk.
pub const MAX_KEY_FACTS: usize = 10;

/// A fact is a short sentence.
pub(super) const MAX_FACT_BYTES: usize = 180;
/// With fewer words of its own a sentence says too little by itself.
const MIN_OWN_WORDS: usize = 2;
/// Facts that share this many tenths of their words are the same.
const SAME_TENTHS: usize = 6;

/// A sentence that states something, and how much it matters.
#[derive(Debug, Clone)]
pub(super) struct Fact {
    text: String,
    speaker: String,
    weight: u32,
    terms: Vec<u64>,
}

/// Reads a sentence as a fact, if it is one.
pub(super) fn fact(
    speaker: &str,
    voice: Voice,
    kind: SentenceKind,
    sentence: &str,
) -> Option<Fact> {
    if voice == Voice::Machine || kind != SentenceKind::Prose || sentence.len() > MAX_FACT_BYTES {
        return None;
    }
    if is_question(sentence) || sentence.starts_with(['[', '(']) {
        return None;
    }
    if leans_on_before(sentence) {
        return None;
    }
    let weight = statement_weight(sentence, voice)?;
    let sentence = one_line(sentence);
    let terms = own_terms(&sentence);
    if terms.len() < MIN_OWN_WORDS {
        return None;
    }
    let text = if speaker.is_empty() { sentence } else { format!("{speaker}: {sentence}") };
    Some(Fact { text, speaker: speaker.to_owned(), weight, terms })
}

/// How much what a sentence states is worth keeping; none if it states nothing.
fn statement_weight(sentence: &str, voice: Voice) -> Option<u32> {
    let mut weight = 0;
    let mut event = false;
    let mut time = dates::has_year(sentence);
    for_each_cue(sentence, |found| {
        let value = match found.cue {
            Cue::Decision => 6,
            Cue::Instruction => 6,
            Cue::Identity | Cue::Constraint if voice == Voice::Person => 5,
            Cue::Preference if voice == Voice::Person => 4,
            Cue::Plan if voice == Voice::Person => 3,
            Cue::Event => {
                event = voice == Voice::Person;
                0
            }
            Cue::Time => {
                time = true;
                0
            }
            _ => 0,
        };
        weight = weight.max(value);
    });
    if voice == Voice::Model {
        return (weight >= 6 && sentence.starts_with(['W', 'w'])).then_some(weight);
    }
    if starts_as_order(sentence) {
        weight = weight.max(6);
    }
    if time && (event || weight > 0) {
        weight += 3;
    }
    (weight > 0).then_some(weight)
}

/// "Always …", "Never …": an order, where "I always" is a habit.
fn starts_as_order(sentence: &str) -> bool {
    let first = sentence.split_whitespace().next().unwrap_or_default();
    let first = first.trim_end_matches(',');
    ["always", "never", "remember", "immer", "niemals", "toujours", "siempre", "nunca"]
        .iter()
        .any(|order| first.eq_ignore_ascii_case(order))
}

/// The facts to keep: the weightiest, none twice, in the order they were said.
pub(super) fn choose(facts: Vec<Fact>) -> Vec<String> {
    let mut order: Vec<usize> = (0..facts.len()).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(facts[at].weight), at));
    let mut chosen: Vec<usize> = Vec::new();
    for at in order {
        if chosen.len() == MAX_KEY_FACTS {
            break;
        }
        if !chosen.iter().any(|&other| is_same(&facts[at], &facts[other])) {
            chosen.push(at);
        }
    }
    chosen.sort_unstable();
    chosen.into_iter().map(|at| facts[at].text.clone()).collect()
}

/// Facts of children, read again so that the weightiest rise.
pub(super) fn merge<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<String> {
    let facts = texts.map(|text| {
        let (speaker, sentence) = super::split_speaker(text);
        let weight = statement_weight(sentence, Voice::Person).unwrap_or(1);
        let terms = own_terms(sentence);
        Fact { text: one_line(text), speaker: speaker.to_owned(), weight, terms }
    });
    choose(facts.collect())
}

/// Whether one speaker said nearly the same.
fn is_same(a: &Fact, b: &Fact) -> bool {
    let shared = shared_count(&a.terms, &b.terms);
    let together = a.terms.len() + b.terms.len() - shared;
    a.speaker == b.speaker && shared * 10 >= SAME_TENTHS * together.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sentence: &str, expected: bool) {
        let found = fact("Ann", Voice::Person, SentenceKind::Prose, sentence);
        assert_eq!(found.is_some(), expected, "{sentence}");
    }

    #[test]
    fn statements_of_identity_preference_decision_and_time_are_facts() {
        check("I moved to Berlin in 2021.", true);
        check("I prefer tabs over spaces.", true);
        check("We decided to ship the importer first.", true);
        check("The deadline for the grant is 5 May.", true);
        check("Never deploy on a Friday evening.", true);
        check("我决定明天搬到柏林。", true);
    }

    #[test]
    fn questions_reactions_and_small_talk_are_not() {
        check("Did I tell you that we decided on Berlin?", false);
        check("I love that, thanks!", false);
        check("That sounds great, Ann!", false);
        check("I can't wait!", false);
        check("The weather changed its mind.", false);
        check("It's something I decided in 2021.", false);
    }

    #[test]
    fn machines_state_no_facts_and_models_only_decisions() {
        let sentence = "I prefer tabs over spaces.";
        assert!(fact("tool", Voice::Machine, SentenceKind::Prose, sentence).is_none());
        assert!(fact("assistant", Voice::Model, SentenceKind::Prose, sentence).is_none());
        let sentence = "We decided to keep tabs over spaces.";
        assert!(fact("assistant", Voice::Model, SentenceKind::Prose, sentence).is_some());
    }

    #[test]
    fn the_same_fact_is_kept_once() {
        let texts = [
            "Ann: I moved to Berlin in 2021.".to_owned(),
            "Ann: In 2021 I moved to Berlin!".to_owned(),
            "Bo: I moved to Berlin in 2021.".to_owned(),
        ];
        assert_eq!(merge(texts.iter()), [texts[0].clone(), texts[2].clone()]);
    }
}
