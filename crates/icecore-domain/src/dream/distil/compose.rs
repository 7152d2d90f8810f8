//! Lines of what was chosen, as many as fit.

use super::choose::Ranked;
use super::read::{Candidate, Form};
use super::{Distillate, Line, Section};
use crate::text::{
    cut_text, ends_plainly, one_line, says_something, whole_markers, without_markers,
};
use crate::tokens::TokenCounter;

/// Candidates that are tried where little room is left.
const MAX_TRIES: usize = 16;
/// With less room no further line is tried.
const MIN_ROOM: u64 = 6;

/// The distillate of as many of `order`, first to last, as fit into `limit` tokens.
pub(super) fn compose(
    candidates: &[Candidate],
    order: &[Ranked],
    limit: u64,
    counter: &dyn TokenCounter,
) -> Distillate {
    let size = |distillate: &Distillate| u64::from(counter.count(&distillate.text()));
    let of = |chosen: &[usize]| lines(candidates, chosen);
    let all: Vec<usize> = order.iter().map(|ranked| ranked.at).collect();
    let fits = |count: usize| size(&of(&all[..count])) <= limit;
    // Between what surely fits and what surely does not.
    let (mut low, mut high) = (0, surely_too_many(order, limit));
    if high > order.len() {
        high = order.len() + 1;
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if fits(middle) { low = middle } else { high = middle }
    }
    while low > 0 && !fits(low) {
        low -= 1;
    }
    let mut chosen = all[..low].to_vec();
    let mut best = of(&chosen);
    let mut used = size(&best);
    let mut tries = 0;
    for ranked in &order[low..] {
        if tries == MAX_TRIES || used + MIN_ROOM > limit {
            break;
        }
        if used + u64::from(ranked.tokens) > limit {
            continue;
        }
        chosen.push(ranked.at);
        let longer = of(&chosen);
        let longer_size = size(&longer);
        if longer_size <= limit {
            (best, used) = (longer, longer_size);
        } else {
            chosen.pop();
            tries += 1;
        }
    }
    match order.first() {
        Some(first) if best.lines.is_empty() => cut(&candidates[first.at], limit, counter),
        _ => best,
    }
}

/// A number of candidates whose texts alone are too long.
fn surely_too_many(order: &[Ranked], limit: u64) -> usize {
    let generous = limit.saturating_add(limit / 4).saturating_add(64);
    let mut sum = 0_u64;
    let too_many = order.iter().position(|ranked| {
        sum += u64::from(ranked.tokens);
        sum > generous
    });
    too_many.map_or(order.len() + 1, |at| at + 1)
}

/// The lines of some candidates: sentences of one part share a line.
fn lines(candidates: &[Candidate], chosen: &[usize]) -> Distillate {
    let mut chosen: Vec<&Candidate> = chosen.iter().map(|at| &candidates[*at]).collect();
    chosen.sort_by_key(|one| (one.section, one.at, one.place, one.form != Form::Sentence));
    let mut lines: Vec<Line> = Vec::new();
    let mut last: Option<&Candidate> = None;
    for one in chosen {
        let shares = |last: &Candidate| {
            last.form == Form::Sentence
                && one.form == Form::Sentence
                && (last.section, last.at) == (one.section, one.at)
                && (last.place.0, last.place.1) == (one.place.0, one.place.1)
        };
        match lines.last_mut() {
            Some(line) if last.is_some_and(shares) => {
                line.text.push_str(if ends_plainly(&line.text) { " " } else { ". " });
                line.text.push_str(&one.text);
                line.sources.extend(&one.sources);
                line.sources.sort_unstable();
                line.sources.dedup();
            }
            _ => lines.push(Line {
                section: one.section,
                text: one.line_text(),
                at: one.at,
                before: one.before.clone(),
                sources: one.sources.clone(),
            }),
        }
        last = Some(one);
    }
    Distillate { lines }
}

/// One line of a candidate that is too long, cut; without its markers where they leave no
/// room for a word.
fn cut(one: &Candidate, limit: u64, counter: &dyn TokenCounter) -> Distillate {
    let whole = one.line_text();
    let plain = one_line(&without_markers(&whole));
    let line = [whole, plain].into_iter().find_map(|text| cut_line(one, &text, limit, counter));
    Distillate { lines: line.into_iter().collect() }
}

/// As much of a text as fits, among what is true now, which needs no day.
fn cut_line(one: &Candidate, text: &str, limit: u64, counter: &dyn TokenCounter) -> Option<Line> {
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    for room in (1..=limit).rev() {
        let mut text = cut_text(text, room, counter);
        let whole = whole_markers(text.trim_end_matches('…'));
        if whole.len() + '…'.len_utf8() < text.len() {
            text = format!("{whole}…");
        }
        if !says_something(&text) {
            return None;
        }
        let sources = one.sources.clone();
        let line = Line { section: Section::Now, text, at: one.at, before: None, sources };
        let alone = Distillate { lines: vec![line] };
        if counter.count(&alone.text()) <= limit {
            return alone.lines.into_iter().next();
        }
    }
    None
}
