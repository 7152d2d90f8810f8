//! Merges candidates that say the same, with the sources of both.

use std::collections::BTreeMap;

use super::read::{Candidate, Form};
use crate::text::{
    TermCounts, WordClass, class_of, compared_words, fold, for_each_word, is_question,
    shared_count, stem, term, turning_words, without_markers,
};

/// Those that share so many tenths of their terms say the same.
const SAME_TENTHS: usize = 8;
/// With fewer terms only the same words do, but for a fact and what it was drawn from.
const MIN_TERMS: usize = 5;
/// Compared with at most so many that have a rare term in common, the latest.
const MAX_COMPARED: usize = 32;

/// What a candidate is compared by.
struct Seen {
    /// Numbers of its terms, the rarest first.
    by_rarity: Vec<u32>,
    terms: Vec<u32>,
    /// Those that are names or numbers, sorted.
    sharp: Vec<u32>,
    turns: Vec<String>,
    asks: bool,
}

/// Puts together what says the same or nearly the same.
pub(super) fn merge(candidates: Vec<Candidate>) -> Vec<Candidate> {
    near(exact(candidates))
}

/// One of those with the same words stays.
fn exact(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let mut firsts: BTreeMap<(String, Vec<String>), usize> = BTreeMap::new();
    let mut left: Vec<Candidate> = Vec::new();
    for one in candidates {
        let key = (one.speaker.to_lowercase(), compared_words(&one.text));
        match firsts.get(&key) {
            Some(at) => join(&mut left[*at], one),
            None => {
                firsts.insert(key, left.len());
                left.push(one);
            }
        }
    }
    left
}

/// Takes `other` into `one`, or the other way round: what is first in line stays, then
/// what is a line already, then a fact, then the newest, then what stood first.
fn join(one: &mut Candidate, mut other: Candidate) {
    let order = |one: &Candidate| {
        let form = match one.form {
            Form::Sentence => 0,
            Form::Fact { .. } => 1,
            Form::Carried(_) => 2,
        };
        (one.rank, form, one.at)
    };
    if order(&other) > order(one) {
        std::mem::swap(one, &mut other);
    }
    one.add_sources(&other.sources);
    one.at = one.at.max(other.at);
    one.before = one.before.take().or(other.before);
}

/// One of those with nearly the same terms stays.
fn near(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let seen = seen(&candidates);
    let mut by_rare: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let mut left: Vec<(Candidate, usize)> = Vec::new();
    for (at, one) in candidates.into_iter().enumerate() {
        let terms = &seen[at].by_rarity;
        let needed = (terms.len() * SAME_TENTHS).div_ceil(10);
        let rare = &terms[..(terms.len() + 1 - needed).min(terms.len())];
        let mut others: Vec<usize> = Vec::new();
        for term in rare {
            let holders = by_rare.get(term).map(Vec::as_slice).unwrap_or_default();
            others.extend(holders.iter().rev().take(MAX_COMPARED));
        }
        others.sort_unstable();
        others.dedup();
        let same = others.into_iter().find(|other| {
            let (kept, number) = &left[*other];
            is_same((kept, &seen[*number]), (&one, &seen[at]))
        });
        match same {
            Some(other) => join(&mut left[other].0, one),
            None => {
                for term in rare {
                    by_rare.entry(*term).or_default().push(left.len());
                }
                left.push((one, at));
            }
        }
    }
    left.into_iter().map(|(one, _)| one).collect()
}

fn is_same((a, seen_a): (&Candidate, &Seen), (b, seen_b): (&Candidate, &Seen)) -> bool {
    let (terms_a, terms_b) = (&seen_a.terms, &seen_b.terms);
    let shared = shared_count(terms_a, terms_b);
    let together = terms_a.len() + terms_b.len() - shared;
    let is_drawn = || {
        let is_said = |one: &Candidate| one.form == Form::Sentence;
        is_said(a) != is_said(b) && a.sources.iter().any(|source| b.sources.contains(source))
    };
    let differs = |terms: &[u32], sharp: &[u32], others: &[u32]| {
        let own = |term: &u32| others.binary_search(term).is_err();
        terms.iter().filter(|term| own(term)).any(|term| sharp.binary_search(term).is_ok())
    };
    shared > 0
        && shared * 10 >= SAME_TENTHS * together
        && (terms_a.len().min(terms_b.len()) >= MIN_TERMS || is_drawn())
        && seen_a.asks == seen_b.asks
        && seen_a.turns == seen_b.turns
        && !differs(terms_a, &seen_a.sharp, terms_b)
        && !differs(terms_b, &seen_b.sharp, terms_a)
}

/// What each candidate is compared by.
fn seen(candidates: &[Candidate]) -> Vec<Seen> {
    let read: Vec<(Vec<u64>, Vec<u64>)> = candidates.iter().map(terms).collect();
    let counts = TermCounts::of(read.iter().flat_map(|(terms, _)| terms));
    let numbers =
        |terms: &[u64]| -> Vec<u32> { terms.iter().map(|term| counts.number(term)).collect() };
    candidates
        .iter()
        .zip(read)
        .map(|(one, (terms, sharp))| {
            let mut rarest = terms.clone();
            rarest.sort_by_key(|term| (counts.count(*term), *term));
            let (by_rarity, terms) = (numbers(&rarest), numbers(&terms));
            let asks = is_question(&one.text);
            Seen { by_rarity, terms, sharp: numbers(&sharp), turns: turning_words(&one.text), asks }
        })
        .collect()
}

/// The terms of the line that it would be, and those that are names or numbers, sorted.
fn terms(one: &Candidate) -> (Vec<u64>, Vec<u64>) {
    let line = one.line_text();
    let (mut terms, mut sharp) = (Vec::new(), Vec::new());
    let mut folded = String::new();
    for_each_word(&without_markers(&line), |word| {
        fold(word.text, &mut folded);
        if matches!(class_of(&folded), WordClass::Content | WordClass::Dull) {
            let term = term(stem(&folded));
            terms.push(term);
            let is_sharp = |c: char| c.is_uppercase() || c.is_numeric();
            if word.text.contains(is_sharp) {
                sharp.push(term);
            }
        }
    });
    for list in [&mut terms, &mut sharp] {
        list.sort_unstable();
        list.dedup();
    }
    (terms, sharp)
}
