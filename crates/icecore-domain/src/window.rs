//! The context for one prompt within a token budget.
//!
//! Packing counts the exact text that it returns with the named tokenizer, so a
//! window cannot exceed its budget. The newest turns have their share of it,
//! what is relevant comes next, and what is left out stands in by its summaries.
//! What is too large is cut, never skipped. The text is in time order, with
//! dates.

use std::collections::BTreeSet;

use crate::time::Millis;
use crate::tokens::TokenCounter;

/// What an item of a window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WindowKind {
    /// A turn, verbatim or cut.
    Turn,
    /// A summary of a chunk.
    Summary,
    Fact,
    /// A line of what a dream came to.
    Distillate,
}

crate::words!(WindowKind {
    Turn = "turn", Summary = "summary", Fact = "fact", Distillate = "distillate",
});

/// Something that may go into a window.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub kind: WindowKind,
    /// The turn's, chunk's or fact's id.
    pub id: String,
    /// `hot`, `warm` or `cold`.
    pub tier: &'static str,
    pub role: Option<String>,
    /// Who speaks, or what a summary is of.
    pub label: String,
    pub text: String,
    /// Where in the text the part begins that matters most, in bytes: what is
    /// kept if it must be cut.
    pub focus: usize,
    /// Tokens of the text as far as they are known; 0 where they are not.
    pub known_tokens: u32,
    /// Its time, or the time of the first turn that it covers.
    pub at: Millis,
    pub group: u64,
    /// The first and last `seq` that it covers.
    pub span: (u64, u64),
    /// Ids of the turns it comes from, or the range of them.
    pub sources: Vec<String>,
    /// Worth beside others of its kind; equal worth goes to the newer.
    pub score: f64,
    pub reason: String,
}

/// An item that is in the window.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowItem {
    pub kind: WindowKind,
    /// The turn's, chunk's or fact's id.
    pub id: String,
    /// `hot`, `warm` or `cold`.
    pub tier: &'static str,
    pub role: Option<String>,
    /// Tokens of its own lines.
    pub tokens: u32,
    /// Worth beside others of its kind.
    pub score: f64,
    pub reason: String,
    pub text: String,
    /// Ids of the turns it comes from.
    pub sources: Vec<String>,
}

/// A context.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Window {
    pub text: String,
    /// Its tokens; at most the budget.
    pub tokens: u32,
    /// What it is made of, in order.
    pub items: Vec<WindowItem>,
}

/// A turn is cut to fit only if at least this many tokens of it remain.
const SMALLEST_CUT_TOKENS: u32 = 8;

/// After so many summaries that did not fit even when cut, no more are tried:
/// counting them costs more than the last tokens are worth.
const MAX_MISSES: usize = 3;

/// After so many relevant items that did not fit, the window counts as full.
const MAX_RELEVANT_MISSES: usize = 24;

/// Ends a text that was cut.
const ELLIPSIS: &str = "…";

/// A distilled line has seldom fewer tokens.
const SMALLEST_LINE_TOKENS: u32 = 6;

/// Ends the reason of an item that was cut.
const CUT: &str = ", cut to fit";

impl Candidate {
    /// Whether both stand for some turn.
    fn overlaps(&self, other: &Candidate) -> bool {
        self.group == other.group && self.span.0 <= other.span.1 && other.span.0 <= self.span.1
    }
}

/// What a window may be made of.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// The newest turns of a conversation, newest first.
    pub recent: Vec<Candidate>,
    /// How much of the budget they may take before anything else, in percent.
    pub recent_percent: u8,
    /// What is relevant, in the order of its worth.
    pub relevant: Vec<Candidate>,
    /// Summaries, which may overlap each other and the rest.
    pub summaries: Vec<Candidate>,
    /// Lines of what a dream came to, in the order of their worth.
    pub distilled: Distilled,
}

/// Lines of what a dream came to, on their way into a window.
#[derive(Debug, Clone, Default)]
pub struct Distilled {
    /// In the order of their worth.
    pub lines: Vec<Candidate>,
    /// How much of the budget they may take, in percent.
    pub percent: u8,
    /// Whether they come before what is relevant, as at the start of a session, or
    /// only get what turns and summaries leave.
    pub is_first: bool,
}

/// Packs a window. Nothing is told twice: an item that stands for a turn that is
/// there already is passed over. Of summaries that overlap, the better scored is
/// taken, then the one that stands for more, then the newer.
pub fn pack(offer: Offer, budget: u32, counter: &dyn TokenCounter) -> Window {
    let mut packing =
        Packing { counter, budget, spent: 0, chosen: Vec::new(), days: BTreeSet::new() };
    // What turns would fill is held back for distilled lines, which then need not say
    // again what a turn says.
    let kept = packing.reserved_for(&offer.distilled);
    packing.budget = budget - kept;
    let share = u64::from(packing.budget) * u64::from(offer.recent_percent.min(100)) / 100;
    let rest = packing.take_recent(offer.recent, share as u32);
    packing.take_relevant(&offer.relevant);
    packing.budget = budget;
    if kept > 0 {
        packing.take_distilled(&offer.distilled);
        packing.take_relevant(&offer.relevant);
    }
    packing.take_summaries(offer.summaries);
    // What is left over goes to further turns that nothing stands for.
    for turn in rest {
        if packing.is_full() {
            break;
        }
        if !packing.covers(&turn) && !packing.take_whole(&turn, budget) {
            packing.take_cut(&turn, budget);
            break;
        }
    }
    if !offer.distilled.is_first {
        packing.take_distilled(&offer.distilled);
    }
    packing.finish()
}

fn by_worth(mut summaries: Vec<Candidate>) -> Vec<Candidate> {
    let length = |item: &Candidate| item.span.1 - item.span.0;
    summaries.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then(length(b).cmp(&length(a)))
            .then((b.group, b.span).cmp(&(a.group, a.span)))
    });
    summaries
}

struct Packing<'a> {
    counter: &'a dyn TokenCounter,
    budget: u32,
    /// An estimate of what is chosen: items counted by themselves, and each
    /// day's date once.
    spent: u32,
    /// What is chosen, with the tokens of its own lines.
    chosen: Vec<(Candidate, u32)>,
    days: BTreeSet<String>,
}

impl Packing<'_> {
    /// Whether no item worth having could still fit.
    fn is_full(&self) -> bool {
        self.budget - self.spent.min(self.budget) < SMALLEST_CUT_TOKENS
    }

    /// Whether something chosen covers a turn that `item` covers.
    fn covers(&self, item: &Candidate) -> bool {
        self.chosen.iter().any(|(chosen, _)| chosen.overlaps(item))
    }

    /// Takes the newest turns within their share and gives back the others. The
    /// newest of all is cut rather than left out.
    fn take_recent(&mut self, turns: Vec<Candidate>, share: u32) -> Vec<Candidate> {
        let mut taken = 0;
        for turn in &turns {
            let cuts = taken == 0 && share > 0;
            if !self.take_whole(turn, share) {
                taken += usize::from(cuts && self.take_cut(turn, share));
                break;
            }
            taken += 1;
        }
        turns.into_iter().skip(taken).collect()
    }

    /// Takes what is relevant in its order. What does not fit is passed over for
    /// what does; at last the best of that gets the room that is left.
    fn take_relevant(&mut self, items: &[Candidate]) {
        let mut passed = None;
        let mut misses = 0;
        for item in items {
            if self.is_full() || misses == MAX_RELEVANT_MISSES {
                break;
            }
            if !self.covers(item) && !self.take_whole(item, self.budget) {
                passed = passed.or(Some(item));
                misses += 1;
            }
        }
        if let Some(item) = passed {
            self.take_cut(item, self.budget);
        }
    }

    /// Tokens that are held back for distilled lines: no more than these have.
    fn reserved_for(&self, distilled: &Distilled) -> u32 {
        if !distilled.is_first {
            return 0;
        }
        let (share, mut kept) = (self.share_of(distilled), 0_u32);
        for item in &distilled.lines {
            if kept >= share {
                break;
            }
            let tokens = self.counter.count(&line(item)) + self.date_tokens(item);
            kept = kept.saturating_add(tokens);
        }
        kept.min(share)
    }

    fn share_of(&self, distilled: &Distilled) -> u32 {
        let share = u64::from(self.budget) * u64::from(distilled.percent.min(100)) / 100;
        share as u32
    }

    /// Takes distilled lines within their share, whole or not at all. One that only
    /// repeats what is there is passed over.
    fn take_distilled(&mut self, distilled: &Distilled) {
        let limit = self.spent.saturating_add(self.share_of(distilled)).min(self.budget);
        let mut misses = 0;
        for line in &distilled.lines {
            if misses == MAX_MISSES || limit.saturating_sub(self.spent) < SMALLEST_LINE_TOKENS {
                break;
            }
            let said = line.text.trim_end_matches(['.', '!', '?']);
            let is_told = self.chosen.iter().any(|(chosen, _)| chosen.text.contains(said));
            if !is_told && !self.take_whole(line, limit) {
                misses += 1;
            }
        }
    }

    fn take_summaries(&mut self, summaries: Vec<Candidate>) {
        let (mut misses, budget) = (0, self.budget);
        for summary in by_worth(summaries) {
            if self.is_full() || misses == MAX_MISSES {
                break;
            }
            if !self.covers(&summary)
                && !self.take_whole(&summary, budget)
                && !self.take_cut(&summary, budget)
            {
                misses += 1;
            }
        }
    }

    fn take_whole(&mut self, item: &Candidate, limit: u32) -> bool {
        // A long text whose tokens are known need not be counted to be refused.
        if self.spent.saturating_add(item.known_tokens) > limit {
            return false;
        }
        let (tokens, date) = (self.counter.count(&line(item)), self.date_tokens(item));
        if self.spent.saturating_add(tokens).saturating_add(date) > limit {
            return false;
        }
        self.spent += tokens + date;
        self.days.insert(item.at.to_date());
        self.chosen.push((item.clone(), tokens));
        true
    }

    /// Takes as much of an item as still fits, if that is worth it.
    fn take_cut(&mut self, item: &Candidate, limit: u32) -> bool {
        let empty = Candidate { text: ELLIPSIS.to_owned(), ..item.clone() };
        let around = self.counter.count(&line(&empty)) + self.date_tokens(item);
        let room = limit.saturating_sub(self.spent).saturating_sub(around);
        if room < SMALLEST_CUT_TOKENS {
            return false;
        }
        // Joined to what stands around it a text may cost a token or more than
        // it does alone, so shorten it until it fits.
        let mut room = room;
        while room >= SMALLEST_CUT_TOKENS {
            if self.take_whole(&self.cut(item, room), limit) {
                return true;
            }
            room -= 1 + room / 16;
        }
        false
    }

    /// The item with at most so many tokens of its text.
    fn cut(&self, item: &Candidate, tokens: u32) -> Candidate {
        let focus = if item.text.is_char_boundary(item.focus) { item.focus } else { 0 };
        let before = if focus > 0 { ELLIPSIS } else { "" };
        let head = self.counter.prefix(&item.text[focus..], tokens).trim_end();
        let reason = if item.reason.ends_with(CUT) {
            item.reason.clone()
        } else {
            format!("{}{CUT}", item.reason)
        };
        Candidate {
            text: format!("{before}{}{ELLIPSIS}", head.trim_end_matches(ELLIPSIS)),
            focus: 0,
            known_tokens: 0,
            reason,
            ..item.clone()
        }
    }

    /// Tokens of the line with the item's date, unless that stands there already.
    fn date_tokens(&self, item: &Candidate) -> u32 {
        if self.days.contains(&item.at.to_date()) {
            0
        } else {
            self.counter.count(&date_line(item.at))
        }
    }

    /// Puts the items in order and counts the whole. Tokens of parts do not add
    /// up exactly, so the count of the text itself decides; while it is over, the
    /// least worthy item goes, and the last one left is cut.
    fn finish(mut self) -> Window {
        loop {
            let mut ordered: Vec<&(Candidate, u32)> = self.chosen.iter().collect();
            ordered.sort_by_cached_key(|(item, _)| (item.at.to_date(), item.group, item.span));
            let text = render(&ordered);
            let tokens = self.counter.count(&text);
            if tokens <= self.budget {
                let items =
                    ordered.iter().map(|(item, tokens)| window_item(item, *tokens)).collect();
                return Window { text, tokens, items };
            }
            match self.chosen.as_slice() {
                [(last, counted)] if *counted > SMALLEST_CUT_TOKENS => {
                    let over = tokens - self.budget;
                    let shorter = self.cut(last, counted.saturating_sub(over + 1 + counted / 16));
                    let counted = self.counter.count(&line(&shorter)).min(counted - 1);
                    self.chosen = vec![(shorter, counted)];
                }
                _ => {
                    self.chosen.pop();
                }
            }
        }
    }
}

fn window_item(item: &Candidate, tokens: u32) -> WindowItem {
    WindowItem {
        kind: item.kind,
        id: item.id.clone(),
        tier: item.tier,
        role: item.role.clone(),
        tokens,
        score: item.score,
        reason: item.reason.clone(),
        text: line(item),
        sources: item.sources.clone(),
    }
}

fn render(items: &[&(Candidate, u32)]) -> String {
    let mut text = String::new();
    let mut day = String::new();
    for (item, _) in items {
        let date = item.at.to_date();
        if date != day {
            text.push_str(&date_line(item.at));
            day = date;
        }
        text.push_str(&line(item));
    }
    text
}

fn date_line(at: Millis) -> String {
    format!("[{}]\n", at.to_date())
}

fn line(item: &Candidate) -> String {
    format!("{}: {}\n", item.label, item.text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tokens::CharCounter;

    fn turn(number: u64, text: &str) -> Candidate {
        Candidate {
            kind: WindowKind::Turn,
            id: format!("t{number}"),
            tier: "hot",
            role: Some("user".to_owned()),
            label: "Ana".to_owned(),
            text: text.to_owned(),
            focus: 0,
            known_tokens: 0,
            at: Millis(number as i64 * 3_600_000),
            group: 0,
            span: (number, number),
            sources: vec![format!("t{number}")],
            score: 0.0,
            reason: "recent".to_owned(),
        }
    }

    fn summary(first: u64, last: u64, text: &str) -> Candidate {
        Candidate {
            kind: WindowKind::Summary,
            id: format!("{first}-{last}"),
            role: None,
            label: format!("Summary of {first} to {last}"),
            span: (first, last),
            ..turn(first, text)
        }
    }

    fn window(turns: &[Candidate], summaries: &[Candidate], budget: u32) -> Window {
        let recent = turns.iter().rev().cloned().collect();
        let recent_percent = if summaries.is_empty() { 100 } else { 75 };
        let summaries = summaries.to_vec();
        pack(Offer { recent, recent_percent, summaries, ..Offer::default() }, budget, &CharCounter)
    }

    #[test]
    fn newest_turns_then_summaries_of_the_rest_in_time_order() {
        let turns: Vec<_> =
            (1..=30).map(|n| turn(n, &format!("this is turn number {n}"))).collect();
        let window = window(
            &turns,
            &[summary(1, 10, "Talk about ice."), summary(11, 20, "Talk about firn.")],
            420,
        );
        let ids: Vec<&str> = window.items.iter().map(|item| item.id.as_str()).collect();
        assert_eq!(
            ids,
            ["1-10", "11-20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30"]
                .map(|id| { if id.contains('-') { id.to_owned() } else { format!("t{id}") } })
        );
        assert_eq!(window.text.lines().next(), Some("[1970-01-01]"));
        assert!(window.tokens <= 420 && window.tokens == CharCounter.count(&window.text));
    }

    #[test]
    fn finer_summaries_fill_the_gap_between_a_coarse_one_and_the_turns() {
        let turns: Vec<_> = (1..=12).map(|n| turn(n, &"x".repeat(30))).collect();
        let summaries =
            [summary(1, 8, "coarse"), summary(9, 12, "over the border"), summary(9, 9, "fine")];
        let window = window(&turns, &summaries, 200);
        let ids: Vec<&str> = window.items.iter().map(|item| item.id.as_str()).collect();
        assert_eq!(ids, ["1-8", "9-9", "t10", "t11", "t12"]);
    }

    #[test]
    fn a_turn_larger_than_the_budget_is_cut_and_not_skipped() {
        let window = window(&[turn(1, "small"), turn(2, &"x".repeat(1000))], &[], 100);
        assert_eq!(window.items.len(), 1);
        assert!(
            window.text.contains("xxxxxxxx") && window.text.ends_with("…\n"),
            "{}",
            window.text
        );
        assert!(window.tokens > 80 && window.tokens <= 100, "{}", window.tokens);
    }

    #[test]
    fn nothing_fits_in_nothing() {
        assert_eq!(window(&[turn(1, "hello")], &[], 0), Window::default());
        assert_eq!(window(&[], &[], 100), Window::default());
    }

    #[test]
    fn a_budget_larger_than_the_memory_holds_it_all_verbatim() {
        let turns: Vec<_> = (1..=9).map(|n| turn(n, &format!("line {n}\nof text"))).collect();
        let window = window(&turns, &[], 100_000);
        assert_eq!(window.items.len(), 9);
        for turn in &turns {
            assert!(window.text.contains(&turn.text));
        }
    }

    #[test]
    fn relevant_turns_come_before_summaries_and_stand_in_time_order() {
        let old: Vec<_> = (1..=4).map(|n| turn(n, &format!("said {n}"))).collect();
        let offer = Offer {
            recent: vec![turn(90, "newest"), turn(89, "before it")],
            recent_percent: 20,
            relevant: vec![old[2].clone(), old[0].clone()],
            summaries: vec![summary(1, 4, "of the beginning"), summary(50, 60, "the middle")],
            ..Offer::default()
        };
        let window = pack(offer, 90, &CharCounter);
        let ids: Vec<&str> = window.items.iter().map(|item| item.id.as_str()).collect();
        assert_eq!(ids, ["t1", "t3", "50-60"], "{}", window.text);
    }

    #[test]
    fn a_relevant_turn_that_is_too_long_is_cut_around_what_matters() {
        let long = format!("{} the key is under the mat {}", "x".repeat(400), "y".repeat(400));
        let relevant = vec![Candidate { focus: 401, ..turn(1, &long) }, turn(2, "short")];
        let window = pack(Offer { relevant, ..Offer::default() }, 90, &CharCounter);
        assert!(window.text.contains("…the key is under the mat"), "{}", window.text);
        assert!(window.text.contains("short"));
    }

    fn distilled(number: u64, text: &str) -> Candidate {
        Candidate {
            kind: WindowKind::Distillate,
            id: format!("d{number}"),
            role: None,
            label: "Known".to_owned(),
            group: u64::MAX,
            ..turn(number, text)
        }
    }

    #[test]
    fn distilled_lines_have_their_share_at_the_start_and_what_is_left_later() {
        let turns: Vec<_> = (1..=30).rev().map(|n| turn(n, &"x".repeat(30))).collect();
        let lines: Vec<_> = (1..=30).map(|n| distilled(n, &format!("fact {n:02}"))).collect();
        let of = |is_first: bool, turns: &[Candidate]| {
            let offer = Offer {
                recent: turns.to_vec(),
                recent_percent: 100,
                distilled: Distilled { lines: lines.clone(), percent: 20, is_first },
                ..Offer::default()
            };
            let window = pack(offer, 500, &CharCounter);
            let (known, said): (Vec<_>, Vec<_>) =
                window.items.iter().partition(|item| item.kind == WindowKind::Distillate);
            let tokens: u32 = known.iter().map(|item| item.tokens).sum();
            assert!(window.tokens <= 500 && tokens <= 100, "{}", window.text);
            (known.len(), said.len())
        };
        // A date takes 13 characters, a turn 36, a line 15. Turns 30 to 24 are of one day.
        // Within 400: 10 turns and 2 dates, 386. Within 100 more: 6 lines, 476. What is
        // left is for a turn that is cut.
        assert_eq!(of(true, &turns), (6, 11));
        // Within 500: 13 turns and 2 dates, 494.
        assert_eq!(of(false, &turns), (0, 13));
        // The lines are of the other day: 13 + 5 * 15 of the 100.
        assert_eq!(of(false, &turns[..2]), (5, 2));
        assert_eq!(of(true, &[]), (5, 0));
    }

    #[test]
    fn a_distilled_line_does_not_repeat_a_turn() {
        let offer = Offer {
            recent: vec![turn(1, "Hello. The key is under the mat. Bye.")],
            recent_percent: 100,
            distilled: Distilled {
                lines: vec![distilled(1, "The key is under the mat."), distilled(2, "New.")],
                percent: 50,
                is_first: true,
            },
            ..Offer::default()
        };
        let window = pack(offer, 300, &CharCounter);
        let ids: Vec<&str> = window.items.iter().map(|item| item.id.as_str()).collect();
        assert_eq!(ids, ["t1", "d2"]);
    }

    proptest! {
        #[test]
        fn a_window_never_exceeds_its_budget(
            texts in prop::collection::vec(".{0,80}", 0..40),
            budget in 0_u32..2000,
        ) {
            let turns: Vec<_> = texts.iter().enumerate().map(|(n, text)| turn(n as u64 + 1, text)).collect();
            let summaries = [summary(1, 10, "one"), summary(11, 20, "two"), summary(1, 20, "both")];
            let window = window(&turns, &summaries, budget);
            prop_assert!(window.tokens <= budget);
            prop_assert_eq!(window.tokens, CharCounter.count(&window.text));
            let mut ids: Vec<_> = window.items.iter().map(|item| &item.id).collect();
            ids.sort();
            ids.dedup();
            prop_assert_eq!(ids.len(), window.items.len());
        }
    }
}
