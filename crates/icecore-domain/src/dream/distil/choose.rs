//! In which order candidates are worth their tokens.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::read::{Candidate, Form, Rank};
use crate::text::TermCounts;
use crate::tokens::TokenCounter;

// The figures below were searched for on the five conversations that `evals
// dream-evidence` reports on, none held out. They favour short sentences with names,
// numbers, dates and cues, and whole turns over single sentences of many.

/// Each earlier use of a term leaves this share of its worth.
const AGAIN: f64 = 0.5;
/// What a line costs beside the tokens of its text: its mark, its speaker, its day, and
/// that a reader has to find into it.
const LINE_TOKENS: f64 = 14.0;
/// What a sentence costs less that shares its line with one that is told: together they
/// are better understood.
const SHARED_TOKENS: f64 = -4.0;
/// No candidate costs less.
const MIN_TOKENS: f64 = 2.0;
/// How much the cost counts.
const COST_POWER: f64 = 1.2;
/// How much names, numbers, dates and cues count beside the terms.
const MARKS: f64 = 4.0;
/// How much it counts that a sentence asks, leans on another or is mostly politeness.
const FACTOR_POWER: f64 = 0.4;
/// What a fact in our words is worth beside what was said.
const FACT: f64 = 0.7;

/// A candidate, and what it costs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ranked {
    /// Its place among the candidates.
    pub at: usize,
    /// Tokens of its text alone.
    pub tokens: u32,
}

/// All candidates, those first that tell most for their tokens after what was told by
/// those before them.
pub(super) fn order(candidates: &[Candidate], counter: &dyn TokenCounter) -> Vec<Ranked> {
    let mut field = Field::new(candidates, counter);
    let mut heap: BinaryHeap<Entry> = (0..candidates.len()).map(|at| field.entry(at)).collect();
    let mut order = Vec::with_capacity(candidates.len());
    while let Some(entry) = heap.pop() {
        let at = entry.at;
        if field.taken[at] || entry.version != field.versions[at] {
            continue;
        }
        let now = field.entry(at);
        if now.value < entry.value && heap.peek().is_some_and(|next| now < *next) {
            heap.push(now);
            continue;
        }
        order.push(Ranked { at, tokens: field.tokens[at] });
        for sibling in field.take(at) {
            heap.push(field.entry(sibling));
        }
    }
    order
}

/// The candidates, and which were taken.
struct Field<'a> {
    candidates: &'a [Candidate],
    tokens: Vec<u32>,
    /// Numbers of the terms of each.
    terms: Vec<Vec<u32>>,
    /// What a term is worth untold.
    worth: Vec<f64>,
    left: Vec<f64>,
    taken: Vec<bool>,
    versions: Vec<u32>,
    /// Whether a line of the same part was taken.
    has_line: Vec<bool>,
}

impl<'a> Field<'a> {
    fn new(candidates: &'a [Candidate], counter: &dyn TokenCounter) -> Self {
        let counts = TermCounts::of(candidates.iter().flat_map(|one| &one.terms));
        let total = candidates.len() as f64;
        let most = libm::log2(1.0 + total).max(1.0);
        let worth: Vec<f64> = counts
            .counts()
            .map(|count| libm::log2(1.0 + total / f64::from(count)) / most)
            .collect();
        Self {
            tokens: candidates.iter().map(|one| counter.count(&one.text)).collect(),
            terms: candidates
                .iter()
                .map(|one| one.terms.iter().map(|term| counts.number(term)).collect())
                .collect(),
            left: vec![1.0; worth.len()],
            worth,
            taken: vec![false; candidates.len()],
            versions: vec![0; candidates.len()],
            has_line: vec![false; candidates.len()],
            candidates,
        }
    }

    fn entry(&self, at: usize) -> Entry {
        let one = &self.candidates[at];
        let told: f64 = self.terms[at]
            .iter()
            .map(|term| self.worth[*term as usize] * self.left[*term as usize])
            .sum();
        let overhead = if self.has_line[at] { SHARED_TOKENS } else { LINE_TOKENS };
        let tokens = (f64::from(self.tokens[at]) + overhead).max(MIN_TOKENS);
        // Long sentences have more of everything: the root is between the sum and the mean.
        let size = (self.terms[at].len() as f64 + 1.0).sqrt();
        let form = if one.form == Form::Sentence { 1.0 } else { FACT };
        let worth = (told / size + MARKS * one.bonus) * libm::pow(one.factor, FACTOR_POWER);
        let value = form * worth / libm::pow(tokens, COST_POWER);
        Entry { rank: one.rank, value, at, version: self.versions[at] }
    }

    /// Takes one; answers with those that cost less now.
    fn take(&mut self, at: usize) -> Vec<usize> {
        self.taken[at] = true;
        for term in &self.terms[at] {
            self.left[*term as usize] *= AGAIN;
        }
        let one = &self.candidates[at];
        if one.form != Form::Sentence {
            return Vec::new();
        }
        let is_sibling =
            |other: &Candidate| other.form == Form::Sentence && other.section == one.section;
        let of_part = |other: &usize| is_of_part(one, &self.candidates[*other]);
        let before = (0..at).rev().take_while(of_part);
        let after = (at + 1..self.candidates.len()).take_while(of_part);
        let mut siblings: Vec<usize> = before.chain(after).collect();
        siblings.retain(|other| {
            is_sibling(&self.candidates[*other]) && !self.taken[*other] && !self.has_line[*other]
        });
        for sibling in &siblings {
            self.has_line[*sibling] = true;
            self.versions[*sibling] += 1;
        }
        siblings
    }
}

/// Whether two are of the same part of the same source.
fn is_of_part(one: &Candidate, other: &Candidate) -> bool {
    (one.place.0, one.place.1) == (other.place.0, other.place.1)
}

/// A candidate in the queue.
#[derive(Debug, Clone, Copy)]
struct Entry {
    rank: Rank,
    value: f64,
    at: usize,
    version: u32,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank
            .cmp(&other.rank)
            .then(self.value.total_cmp(&other.value))
            .then(other.at.cmp(&self.at))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}
