//! Merging the facts found in many turns, and deciding which hold.

use std::collections::{BTreeMap, BTreeSet};

use super::{FactKey, RedactedFact, Verdict};
use crate::ids::TurnId;
use crate::redact::RedactedText;
use crate::text::{normalise, own_terms, shared_count, turning_words};
use crate::time::Millis;

/// Values that share this many tenths of their words say the same.
const SAME_TENTHS: usize = 8;

/// A fact as one turn gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFact {
    /// The fact, with its quote.
    pub fact: RedactedFact,
    /// The turn that it was read in.
    pub source: TurnId,
}

/// What a person thinks of a fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    pub key: FactKey,
    /// The verdict; of several on one fact the last in time holds.
    pub verdict: Verdict,
    /// The fact as it was when it was judged, for when no turn gives it any more.
    pub fact: Option<RedactedFact>,
    pub at: Millis,
}

/// What a fact is worth now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FactStatus {
    /// Found, not judged.
    Auto,
    /// Stated or confirmed by a person.
    Confirmed,
    /// A person disagrees.
    Rejected,
    /// A newer value has taken its place.
    Superseded,
}

crate::words!(FactStatus {
    Auto = "auto", Confirmed = "confirmed", Rejected = "rejected", Superseded = "superseded",
});

/// A fact with its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFact {
    pub key: FactKey,
    /// The fact. Its `valid_from` is when it began to hold for the last time.
    pub fact: RedactedFact,
    pub status: FactStatus,
    /// What a person said of it, also where it was superseded since.
    pub verdict: Option<Verdict>,
    /// When a newer value took its place.
    pub valid_to: Option<Millis>,
    pub superseded_by: Option<FactKey>,
    /// The turns that say so, with their words, oldest first.
    pub sources: Vec<(TurnId, RedactedText)>,
}

/// What is known from what was found, given what people said of it.
///
/// Near-duplicates become one fact with several sources. A rejected fact stays
/// in the list as rejected, so that it can be shown, and takes part in nothing
/// else. Of the others with the same subject and the same property, the newest
/// holds; a person's word counts as of when it was given, so that it outweighs
/// what was found before, and gives way to what is said later. The result is in
/// the order in which the facts began to hold, whatever the order of `found`.
pub fn resolve(mut found: Vec<FoundFact>, verdicts: &[Judged]) -> Vec<KnownFact> {
    found.sort_by_key(order_of);
    let latest = latest_verdicts(verdicts);
    let mut groups: BTreeMap<(String, String), Group> = BTreeMap::new();
    let told = verdicts.iter().filter(|judged| latest.get(&judged.key) == Some(judged));
    for judged in told {
        if let Some(fact) = &judged.fact {
            let group = groups.entry(group_of(fact)).or_default();
            group.push(Merged::by_person(fact.clone(), judged.key));
        }
    }
    for one in found {
        let group = groups.entry(group_of(&one.fact)).or_default();
        let key = one.fact.key();
        match group.position(key, one.fact.value.as_str()) {
            Some(at) => group.add(at, one, key),
            None => group.push(Merged::from_turn(one, key)),
        }
    }
    let mut known: Vec<KnownFact> = groups
        .into_iter()
        .flat_map(|((_, attribute), group)| settle(group.merged, &latest, !attribute.is_empty()))
        .collect();
    known.sort_by_key(|known| (known.fact.valid_from, known.key));
    known
}

fn order_of(found: &FoundFact) -> (Millis, TurnId, FactKey) {
    (found.fact.valid_from, found.source, found.fact.key())
}

fn group_of(fact: &RedactedFact) -> (String, String) {
    (normalise(fact.subject.as_str()), normalise(fact.attribute.as_str()))
}

fn latest_verdicts(verdicts: &[Judged]) -> BTreeMap<FactKey, &Judged> {
    let mut latest: BTreeMap<FactKey, &Judged> = BTreeMap::new();
    for judged in verdicts {
        let slot = latest.entry(judged.key).or_insert(judged);
        if judged.at >= slot.at {
            *slot = judged;
        }
    }
    latest
}

/// The facts of one subject and property, found by what they share: somebody who
/// talks for years states thousands of things side by side.
#[derive(Default)]
struct Group {
    merged: Vec<Merged>,
    by_key: BTreeMap<FactKey, usize>,
    by_term: BTreeMap<u64, Vec<usize>>,
}

impl Group {
    fn push(&mut self, merged: Merged) {
        let at = self.merged.len();
        for key in &merged.keys {
            self.by_key.entry(*key).or_insert(at);
        }
        for term in &merged.terms {
            self.by_term.entry(*term).or_default().push(at);
        }
        self.merged.push(merged);
    }

    fn add(&mut self, at: usize, one: FoundFact, key: FactKey) {
        let first = self.by_key.entry(key).or_insert(at);
        *first = at.min(*first);
        self.merged[at].add(one, key);
    }

    /// The first that says the same as a value.
    fn position(&self, key: FactKey, value: &str) -> Option<usize> {
        let terms = own_terms(value);
        let sharing = terms.iter().filter_map(|term| self.by_term.get(term)).flatten().copied();
        let near = sharing
            .collect::<BTreeSet<usize>>()
            .into_iter()
            .find(|at| self.merged[*at].is_near(&terms, value));
        let same = self.by_key.get(&key).copied();
        [same, near].into_iter().flatten().min()
    }
}

/// Facts that say the same.
struct Merged {
    fact: RedactedFact,
    keys: Vec<FactKey>,
    terms: Vec<u64>,
    /// When it was said, oldest first.
    said: Vec<Millis>,
    sources: Vec<(TurnId, RedactedText)>,
}

impl Merged {
    fn by_person(fact: RedactedFact, key: FactKey) -> Self {
        let terms = own_terms(fact.value.as_str());
        Merged { said: vec![fact.valid_from], fact, keys: vec![key], terms, sources: Vec::new() }
    }

    fn from_turn(one: FoundFact, key: FactKey) -> Self {
        let mut merged = Merged::by_person(one.fact.clone(), key);
        merged.sources.push((one.source, one.fact.quote));
        merged
    }

    /// Whether a value says nearly the same.
    fn is_near(&self, terms: &[u64], value: &str) -> bool {
        let shared = shared_count(&self.terms, terms);
        let together = self.terms.len() + terms.len() - shared;
        shared > 0
            && shared * 10 >= SAME_TENTHS * together
            && turning_words(self.fact.value.as_str()) == turning_words(value)
    }

    fn add(&mut self, one: FoundFact, key: FactKey) {
        if !self.keys.contains(&key) {
            self.keys.push(key);
        }
        self.said.push(one.fact.valid_from);
        let source = (one.source, one.fact.quote);
        if !self.sources.contains(&source) {
            self.sources.push(source);
        }
    }
}

/// The facts of one subject and property, each with its status.
fn settle(
    group: Vec<Merged>,
    latest: &BTreeMap<FactKey, &Judged>,
    replaces: bool,
) -> Vec<KnownFact> {
    let mut known: Vec<(Millis, KnownFact)> = Vec::new();
    let judged_of = |merged: &Merged| {
        merged
            .keys
            .iter()
            .filter_map(|key| latest.get(key))
            .max_by_key(|judged| (judged.at, judged.key))
    };
    let starts: Vec<Vec<Millis>> = group
        .iter()
        .map(|merged| {
            let rejected = judged_of(merged).is_some_and(|j| j.verdict == Verdict::Rejected);
            if rejected { Vec::new() } else { merged.said.clone() }
        })
        .collect();
    for (at, merged) in group.iter().enumerate() {
        let judged = judged_of(merged).copied();
        let verdict = judged.map(|judged| judged.verdict);
        let mut fact = merged.fact.clone();
        if replaces && verdict != Some(Verdict::Rejected) {
            fact.valid_from = last_run(at, &starts);
        }
        let status = match verdict {
            None => FactStatus::Auto,
            Some(Verdict::Rejected) => FactStatus::Rejected,
            Some(Verdict::Added | Verdict::Confirmed) => FactStatus::Confirmed,
        };
        let newest = merged.said.iter().copied().max().unwrap_or(fact.valid_from);
        let weight = match judged.filter(|_| status == FactStatus::Confirmed) {
            Some(judged) => newest.max(judged.at),
            None => newest,
        };
        let key = judged.map_or(merged.keys[0], |judged| judged.key);
        let sources = merged.sources.clone();
        let one =
            KnownFact { key, fact, status, verdict, valid_to: None, superseded_by: None, sources };
        known.push((weight, one));
    }
    if replaces {
        supersede(&mut known);
    }
    known.into_iter().map(|(_, fact)| fact).collect()
}

/// When value `at` began to hold for the last time: its first mention after the
/// last one of another value that came before.
fn last_run(at: usize, said: &[Vec<Millis>]) -> Millis {
    let newest = said[at].iter().copied().max().unwrap_or_default();
    let others = said.iter().enumerate().filter(|(n, _)| *n != at).flat_map(|(_, times)| times);
    let broken = others.copied().filter(|time| *time < newest).max();
    let run = said[at].iter().copied().filter(|time| broken.is_none_or(|broken| *time > broken));
    run.min().unwrap_or(newest)
}

/// The one with the most weight holds; each other ends where the next begins.
fn supersede(known: &mut [(Millis, KnownFact)]) {
    let mut order: Vec<usize> =
        (0..known.len()).filter(|at| known[*at].1.status != FactStatus::Rejected).collect();
    order.sort_by_key(|at| (known[*at].0, known[*at].1.fact.valid_from, known[*at].1.key));
    for pair in order.windows(2) {
        let (next_key, next_from) = (known[pair[1]].1.key, known[pair[1]].1.fact.valid_from);
        let older = &mut known[pair[0]].1;
        older.status = FactStatus::Superseded;
        // A value that a person's word displaced ends at once, never before it began.
        older.valid_to = Some(next_from.max(older.fact.valid_from));
        older.superseded_by = Some(next_key);
    }
}

#[cfg(test)]
mod resolve_tests;
