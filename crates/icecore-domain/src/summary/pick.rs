//! Picking sentences that tell much and repeat little, within a budget.

use super::weigh::Weighed;
use crate::text::{cut_text, ends_plainly, one_line, shared_count};
use crate::tokens::TokenCounter;

/// How much repeating what is picked already takes from a weight.
const REPEAT_COST: f64 = 0.8;
/// Sentences nearer than this are not both picked.
const MAX_NEARNESS: f64 = 0.7;
/// What weighs less (greetings, thanks, a word for code) stands only alone.
const MIN_WEIGHT: f64 = 0.1;
/// Sentences in a summary.
const MAX_PICKS: usize = 32;
/// Sentences tried that turn out too long.
const MAX_MISSES: usize = 4;
/// The text of the summary.
pub(super) fn pick(weighed: Vec<Weighed<'_>>, budget: u32, counter: &dyn TokenCounter) -> String {
    if budget == 0 || weighed.is_empty() {
        return String::new();
    }
    let mut picked: Vec<usize> = Vec::new();
    let mut text = String::new();
    let mut misses = 0;
    let mut open: Vec<(usize, f64)> = (0..weighed.len()).map(|at| (at, 0.0)).collect();
    let mut first_choice = None;
    while picked.len() < MAX_PICKS && misses < MAX_MISSES {
        let Some(slot) = best(&open, &weighed) else { break };
        let (at, _) = open.swap_remove(slot);
        if !text.is_empty() && weighed[at].weight < MIN_WEIGHT {
            continue;
        }
        first_choice.get_or_insert(at);
        let place = picked.partition_point(|other| *other < at);
        picked.insert(place, at);
        let longer = compose(&picked, &weighed);
        if counter.count(&longer) <= budget {
            text = longer;
            note_nearness(&mut open, &weighed, at);
        } else {
            picked.remove(place);
            misses += 1;
        }
    }
    match first_choice {
        Some(at) if text.is_empty() => cut(&weighed[at], budget, counter),
        _ => text,
    }
}

/// The open sentence with most weight after what repeats; the first of equals.
fn best(open: &[(usize, f64)], weighed: &[Weighed<'_>]) -> Option<usize> {
    let value = |(at, nearness): (usize, f64)| weighed[at].weight * (1.0 - REPEAT_COST * nearness);
    let mut best: Option<(usize, f64, usize)> = None;
    for (slot, entry) in open.iter().enumerate() {
        if entry.1 > MAX_NEARNESS {
            continue;
        }
        let value = value(*entry);
        if best.is_none_or(|(_, most, at)| value > most || (value == most && entry.0 < at)) {
            best = Some((slot, value, entry.0));
        }
    }
    best.map(|(slot, _, _)| slot)
}

/// Keeps, for each open sentence, how near the nearest picked one is.
fn note_nearness(open: &mut [(usize, f64)], weighed: &[Weighed<'_>], picked: usize) {
    let picked = &weighed[picked].terms;
    for (at, nearness) in open {
        let terms = &weighed[*at].terms;
        let size = (terms.len() * picked.len()) as f64;
        if size > 0.0 {
            let near = shared_count(terms, picked) as f64 / size.sqrt();
            *nearness = nearness.max(near);
        }
    }
}

/// The picked sentences, in order, a line for each change of speaker.
fn compose(picked: &[usize], weighed: &[Weighed<'_>]) -> String {
    let mut text = String::new();
    let mut last: Option<&str> = None;
    for &at in picked {
        let candidate = &weighed[at].candidate;
        let speaker = candidate.speaker.as_ref();
        if last == Some(speaker) {
            text.push_str(if ends_plainly(&text) { " " } else { ". " });
        } else {
            if last.is_some() {
                text.push('\n');
            }
            if !speaker.is_empty() {
                text.push_str(speaker);
                text.push_str(": ");
            }
        }
        text.push_str(&one_line(&candidate.sentence));
        last = Some(speaker);
    }
    text
}

/// A sentence that is too long, cut; without its speaker where no word of it would be
/// left beside, and from its first word on where none would be left even so. Whoever reads
/// the summary again finds nothing in a line without words.
fn cut(weighed: &Weighed<'_>, budget: u32, counter: &dyn TokenCounter) -> String {
    let sentence = one_line(&weighed.candidate.sentence);
    let speaker = match weighed.candidate.speaker.as_ref() {
        "" => String::new(),
        speaker => format!("{speaker}: "),
    };
    let fitted = |text: &str| {
        if counter.count(text) <= budget {
            text.to_owned()
        } else {
            cut_text(text, budget, counter)
        }
    };
    let says = |text: &str| text.contains(char::is_alphanumeric);
    let told = fitted(&format!("{speaker}{sentence}"));
    if told.strip_prefix(&speaker).is_some_and(says) {
        return told;
    }
    let alone = fitted(&sentence);
    if says(&alone) {
        alone
    } else {
        fitted(sentence.trim_start_matches(|c: char| !c.is_alphanumeric()))
    }
}
