//! What was overtaken: of a property with two values the newer one holds.

use std::collections::BTreeMap;

use super::read::{Candidate, Form, Rank};
use crate::text::{normalise, own_terms, shared_count};

/// A sentence with at most so many terms more than a fact says nothing else.
const MORE_TERMS: usize = 2;

/// Puts facts of the same value together, and names what was overtaken in what
/// overtook it. Where own times do not decide, both stay.
pub(super) fn settle(candidates: &mut Vec<Candidate>) {
    let mut groups: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    for (at, one) in candidates.iter().enumerate() {
        if let Some(key) = one.key() {
            let group = (normalise(&key.subject), normalise(&key.attribute));
            groups.entry(group).or_default().push(at);
        }
    }
    let mut gone = vec![false; candidates.len()];
    let mut overtaken = Vec::new();
    for group in groups.into_values() {
        let values = merge_values(candidates, &group, &mut gone);
        overtake(candidates, values, &mut gone, &mut overtaken);
    }
    drop_restated(candidates, &overtaken, &mut gone);
    let mut at = 0;
    candidates.retain(|_| {
        at += 1;
        !gone[at - 1]
    });
}

/// One of each value stays, the newest, with the sources of all.
fn merge_values(candidates: &mut [Candidate], group: &[usize], gone: &mut [bool]) -> Vec<usize> {
    let mut by_value: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for at in group {
        let value = candidates[*at].key().map(|key| normalise(&key.value)).unwrap_or_default();
        by_value.entry(value).or_default().push(*at);
    }
    let mut left = Vec::new();
    for mut same in by_value.into_values() {
        same.sort_by_key(|at| stays_by(&candidates[*at]));
        let Some(kept) = same.pop() else { continue };
        for at in same {
            gone[at] = true;
            let (sources, before) = (candidates[at].sources.clone(), candidates[at].before.clone());
            candidates[kept].add_sources(&sources);
            candidates[kept].before = candidates[kept].before.take().or(before);
        }
        left.push(kept);
    }
    left.sort_unstable();
    left
}

/// What stays of those that say the same: what is first in line, then the newest.
fn stays_by(one: &Candidate) -> impl Ord + use<> {
    let (source, part, sentence) = one.place;
    let earlier = (u32::MAX - source, u32::MAX - part, u32::MAX - sentence);
    (one.rank, one.at, earlier)
}

/// The newest value overtakes the older ones, unless a person confirmed them.
fn overtake(
    candidates: &mut [Candidate],
    mut values: Vec<usize>,
    gone: &mut [bool],
    overtaken: &mut Vec<usize>,
) {
    values.retain(|at| candidates[*at].at.is_some());
    values.sort_by_key(|at| (candidates[*at].at, std::cmp::Reverse(*at)));
    let Some(newest) = values.pop() else { return };
    let is_fresh = is_confirmed(&candidates[newest]);
    let stays = |one: &Candidate| one.at == candidates[newest].at || is_confirmed(one) && !is_fresh;
    let older: Vec<usize> = values.into_iter().filter(|at| !stays(&candidates[*at])).collect();
    for at in &older {
        gone[*at] = true;
        let sources = candidates[*at].sources.clone();
        candidates[newest].add_sources(&sources);
        candidates[newest].before = Some(candidates[*at].text.clone());
    }
    overtaken.extend(older);
}

fn is_confirmed(one: &Candidate) -> bool {
    matches!(one.form, Form::Fact { confirmed: true, .. })
}

/// Sentences that say no more than what was overtaken go with it.
fn drop_restated(candidates: &[Candidate], overtaken: &[usize], gone: &mut [bool]) {
    let mut by_source: BTreeMap<u32, Vec<Vec<u64>>> = BTreeMap::new();
    for at in overtaken {
        let one = &candidates[*at];
        by_source.entry(one.place.0).or_default().push(own_terms(&one.text));
    }
    if by_source.is_empty() {
        return;
    }
    for (at, one) in candidates.iter().enumerate() {
        let Some(facts) = by_source.get(&one.place.0) else { continue };
        if one.form != Form::Sentence || one.rank == Rank::First {
            continue;
        }
        let terms = own_terms(&one.line_text());
        gone[at] |= facts.iter().any(|fact| {
            shared_count(fact, &terms) == fact.len() && terms.len() <= fact.len() + MORE_TERMS
        });
    }
}
