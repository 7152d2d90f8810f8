//! Sentences that stand for many texts, within a number of bytes.
//!
//! They are weighed as those of a summary are ([`weigh`]), a window at a time, so
//! that thousands of texts cost no more than their number. Of two that say nearly
//! the same the weightier is taken, and a text that has had its say waits for the
//! others.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::weigh::{Candidate, MAX_CANDIDATES, Weighed, weigh};
use crate::text::{MARKER, SentenceKind, Voice, cuts_marker, dump, one_line, sentences};

/// Sentences nearer than this are not both taken: their shared terms, squared, to
/// the product of their counts, in hundredths.
const NEAR_HUNDREDTHS: usize = 49;

/// What a sentence with a marker weighs more: that there was a secret is worth
/// knowing.
const MARKER_BONUS: f64 = 0.1;

/// How much each weightier sentence of its text takes from the worth of another.
const NEXT_COST: f64 = 0.5;

/// A sentence that was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    pub text: usize,
    /// The sentence, on one line.
    pub sentence: String,
}

/// Chooses sentences of `texts`, in their order, that together have at most
/// `max_bytes`, where `cost` says how many a sentence takes and is told whether it is
/// the first of its text.
pub fn choose_sentences(
    texts: &[&str],
    max_bytes: usize,
    cost: impl Fn(&str, bool) -> usize,
) -> Vec<Chosen> {
    let mut candidates = Vec::new();
    for (turn, text) in texts.iter().enumerate() {
        read_text(turn, text, &mut candidates);
    }
    let weighed: Vec<Weighed<'_>> = windows(candidates).into_iter().flat_map(weigh).collect();
    let mut left = max_bytes;
    let mut has_spoken = vec![false; texts.len()];
    let mut taken = Taken::default();
    let mut chosen: Vec<(usize, Chosen)> = Vec::new();
    for at in by_worth(&weighed, texts.len()) {
        let Weighed { candidate, terms, .. } = &weighed[at];
        let sentence = one_line(&candidate.sentence);
        let bytes = cost(&sentence, !has_spoken[candidate.turn]);
        if bytes > left || taken.holds(terms, &sentence) {
            continue;
        }
        left -= bytes;
        has_spoken[candidate.turn] = true;
        taken.add(terms, &sentence);
        chosen.push((at, Chosen { text: candidate.turn, sentence }));
    }
    chosen.sort_by_key(|(at, _)| *at);
    chosen.into_iter().map(|(_, one)| one).collect()
}

/// Adds the sentences of a text; where it has none, our word for it. What cuts a
/// marker in two is left out.
fn read_text<'a>(turn: usize, text: &'a str, candidates: &mut Vec<Candidate<'a>>) {
    let text = text.trim();
    let mut found = sentences(text);
    found.retain(|sentence| !cuts_marker(text, &sentence.text));
    if found.is_empty() && text.contains(char::is_alphanumeric) {
        found.push(dump("text", text.lines().count()));
    }
    for (index, sentence) in found.into_iter().enumerate() {
        candidates.push(Candidate {
            turn,
            index,
            speaker: Cow::Borrowed(""),
            voice: Voice::Person,
            kind: sentence.kind,
            sentence: sentence.text,
        });
    }
}

/// The candidates in lists that can be weighed, in order.
fn windows(candidates: Vec<Candidate<'_>>) -> Vec<Vec<Candidate<'_>>> {
    let mut windows: Vec<Vec<Candidate<'_>>> = Vec::new();
    for candidate in candidates {
        match windows.last_mut().filter(|window| window.len() < MAX_CANDIDATES) {
            Some(window) => window.push(candidate),
            None => windows.push(vec![candidate]),
        }
    }
    windows
}

/// The places of the candidates, those of most worth first.
fn by_worth(weighed: &[Weighed<'_>], texts: usize) -> Vec<usize> {
    let weight = |one: &Weighed<'_>| {
        let has_marker =
            one.candidate.kind != SentenceKind::Dump && one.candidate.sentence.contains(MARKER);
        one.weight + if has_marker { MARKER_BONUS } else { 0.0 }
    };
    let mut order: Vec<(f64, usize)> =
        weighed.iter().enumerate().map(|(at, one)| (weight(one), at)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut spoken = vec![0_u32; texts];
    for (worth, at) in &mut order {
        let before = &mut spoken[weighed[*at].candidate.turn];
        *worth /= 1.0 + NEXT_COST * f64::from(*before);
        *before += 1;
    }
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    order.into_iter().map(|(_, at)| at).collect()
}

/// What was taken, by its terms.
#[derive(Default)]
struct Taken {
    sizes: Vec<usize>,
    /// Scratch: how many terms the sentence in question shares with each.
    shared: Vec<usize>,
    by_term: BTreeMap<u64, Vec<usize>>,
    without_terms: Vec<String>,
}

impl Taken {
    fn add(&mut self, terms: &[u64], sentence: &str) {
        if terms.is_empty() {
            self.without_terms.push(sentence.to_owned());
            return;
        }
        for term in terms {
            self.by_term.entry(*term).or_default().push(self.sizes.len());
        }
        self.sizes.push(terms.len());
    }

    /// Whether something near to it was taken.
    fn holds(&mut self, terms: &[u64], sentence: &str) -> bool {
        if terms.is_empty() {
            return self.without_terms.iter().any(|other| other == sentence);
        }
        self.shared.clear();
        self.shared.resize(self.sizes.len(), 0);
        let others = terms.iter().filter_map(|term| self.by_term.get(term)).flatten();
        others.into_iter().any(|other| {
            let count = &mut self.shared[*other];
            *count += 1;
            *count * *count * 100 > NEAR_HUNDREDTHS * terms.len() * self.sizes[*other]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(texts: &[&str], max_bytes: usize) -> Vec<(usize, String)> {
        let chosen = choose_sentences(texts, max_bytes, |sentence, _| sentence.len());
        chosen.into_iter().map(|one| (one.text, one.sentence)).collect()
    }

    #[test]
    fn what_was_decided_goes_before_what_was_chatted() {
        let texts = [
            "Thanks a lot! Sounds good.",
            "We decided to use Postgres 16 for the ledger. Nice weather today.",
        ];
        let decided = (1, "We decided to use Postgres 16 for the ledger.".to_owned());
        assert_eq!(chosen(&texts, 50), [decided]);
        assert_eq!(chosen(&texts, 0), []);
    }

    #[test]
    fn every_text_speaks_before_one_speaks_twice() {
        let texts = [
            "The kiln in Delft runs on gas. The kiln in Gouda has two doors.",
            "Ana bought a loom.",
        ];
        let found = chosen(&texts, 60);
        assert!(found.iter().any(|(text, _)| *text == 1), "{found:?}");
    }

    #[test]
    fn nothing_is_said_twice() {
        let texts = ["The ferry to Kvalsund leaves at nine."; 5];
        assert_eq!(chosen(&texts, 1_000).len(), 1);
    }

    #[test]
    fn markers_are_whole_or_absent() {
        for fill in 240..340 {
            let text = format!("{}[REDACTED:github-token] is the key", "x".repeat(fill));
            for (_, sentence) in chosen(&[&text], 10_000) {
                let is_whole = sentence.contains("[REDACTED:github-token]");
                assert!(is_whole || !sentence.contains("REDACTED"), "{fill}: {sentence}");
                assert!(is_whole || !sentence.contains("token"), "{fill}: {sentence}");
            }
        }
    }
}
