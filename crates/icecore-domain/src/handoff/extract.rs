//! A handoff without a model.
//!
//! What is worth most comes first: standing instructions, the goal, how things stand,
//! open tasks, files, what recall found. What room is left goes to what a dream would
//! make of the rest.

#[cfg(test)]
mod extract_tests;
mod files;
mod instructions;
mod rest;
mod tasks;

use std::collections::BTreeSet;

use super::text::{answered_line, passage_line};
use super::{CompactionPlan, Handoff, HandoffLine, HandoffSection, render};
use crate::fact::Fact;
use crate::text::{
    Said, Voice, cut_text, normalise, one_line, own_terms, says_something, speaker_of, voice_of,
    whole_markers,
};
use crate::time::Millis;
use crate::tokens::TokenCounter;

/// Shares of a handoff, in percent, beside those that its plan and its source give.
const GOAL_PERCENT: u64 = 10;
const STATE_PERCENT: u64 = 15;
const TASKS_PERCENT: u64 = 8;
const FILES_PERCENT: u64 = 8;

/// Tokens of a request that stands for a goal.
const GOAL_TOKENS: u32 = 48;
/// Lines of the goal.
const MAX_GOALS: usize = 3;
/// Of these, the newest requests before the last.
const MAX_REQUESTS: usize = 2;
/// A request with fewer words that carry it is no goal.
const GOAL_TERMS: usize = 3;

/// The most tokens of an answer in a handoff.
const ANSWER_TOKENS: u32 = 120;
/// Tokens of what a model said last.
const LAST_TOKENS: u32 = 60;

/// Something that is known already and need not be read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    pub speaker: String,
    pub text: String,
    pub at: Option<Millis>,
}

/// What a handoff is made of.
#[derive(Debug, Clone)]
pub struct HandoffSource<'a> {
    /// The handoff that the view begins with.
    pub previous: Option<&'a Handoff>,
    /// Summaries of the oldest stretches, where these stand for their turns.
    pub summaries: &'a [String],
    /// The turns that are to be distilled and no summary stands for, in order.
    pub said: &'a [Said<'a>],
    /// What is known from these turns and still holds.
    pub facts: &'a [Fact],
    /// What recall found for the last request, best first.
    pub recalled: &'a [Passage],
    /// The share of the handoff that is theirs, in percent. They may have more where the
    /// rest needs less.
    pub recalled_percent: u64,
    /// How the last request of a person was answered, if it was and the answer is no
    /// message any more; empty where that is not known.
    pub answered: Option<&'a str>,
}

/// Writes a handoff within the plan's `handoff_tokens`, as [`super::render`] writes it:
/// one without lines where that has no room for any.
/// Standing instructions come first and word for word, within `instruction_tokens`.
pub fn extract(
    source: &HandoffSource<'_>,
    plan: &CompactionPlan,
    number: u64,
    turns: u64,
    counter: &dyn TokenCounter,
) -> Handoff {
    let mut draft = Draft::new(number, turns, plan.handoff_tokens, counter);
    if draft.left() == 0 {
        return Handoff::default();
    }
    let share = |percent: u64| plan.handoff_tokens.saturating_mul(percent) / 100;
    if let Some(answer) = source.answered
        && !draft.add_answered(answer)
    {
        // Whoever reads this must know it: the least text that there is has room for it.
        return Handoff::default();
    }
    draft.add_newest(instructions::instructions(source), plan.instruction_tokens);
    draft.add(goals(source, counter), share(GOAL_PERCENT).max(u64::from(GOAL_TOKENS)));
    draft.add(states(source, counter), share(STATE_PERCENT));
    draft.add(tasks::tasks(source), share(TASKS_PERCENT));
    draft.add(files::files(source), share(FILES_PERCENT));
    let recalled = || source.recalled.iter().map(passage);
    draft.add(recalled(), share(source.recalled_percent.min(100)));
    rest::add(source, &mut draft);
    draft.add(recalled(), u64::MAX);
    if draft.lines.is_empty() {
        draft.add_cut(recalled().next());
    }
    draft.finish()
}

/// Puts what stands in any handoff word for word into one that a model wrote, within so
/// many tokens: that the request was answered and the standing instructions come first,
/// then the model's lines by what they are worth, then passages; what does not fit goes.
pub fn with_instructions(
    handoff: &Handoff,
    extracted: &Handoff,
    (number, turns): (u64, u64),
    tokens: u64,
    counter: &dyn TokenCounter,
) -> Handoff {
    let mut draft = Draft::new(number, turns, tokens, counter);
    let of = |handoff: &Handoff, section: HandoffSection| -> Vec<HandoffLine> {
        handoff.of(section).map(|text| HandoffLine::new(section, text)).collect()
    };
    draft.add(extracted.lines.iter().filter(|line| line.is_answered()).cloned(), u64::MAX);
    draft.add_newest(of(extracted, HandoffSection::Instructions), u64::MAX);
    for section in BY_WORTH {
        draft.add(of(handoff, section), u64::MAX);
    }
    draft.add(of(extracted, HandoffSection::Recalled), u64::MAX);
    draft.finish()
}

/// Sections by what they are worth.
const BY_WORTH: [HandoffSection; 9] = [
    HandoffSection::Goal,
    HandoffSection::State,
    HandoffSection::Tasks,
    HandoffSection::Instructions,
    HandoffSection::Decisions,
    HandoffSection::Files,
    HandoffSection::Facts,
    HandoffSection::Recalled,
    HandoffSection::People,
];

/// Lines in the order of their worth, and what they cost.
struct Draft<'a> {
    number: u64,
    turns: u64,
    tokens: u64,
    counter: &'a dyn TokenCounter,
    lines: Vec<HandoffLine>,
    told: BTreeSet<String>,
    sections: BTreeSet<HandoffSection>,
    used: u64,
}

impl<'a> Draft<'a> {
    fn new(number: u64, turns: u64, tokens: u64, counter: &'a dyn TokenCounter) -> Self {
        let head = render(&Handoff::default(), number, turns);
        let used = u64::from(counter.count(&head));
        let (lines, told, sections) = Default::default();
        Self { number, turns, tokens, counter, lines, told, sections, used }
    }

    /// Tokens that are left.
    fn left(&self) -> u64 {
        self.tokens.saturating_sub(self.used)
    }

    /// Adds lines while they fit, at most so many tokens of them. One that does not fit
    /// is passed over.
    fn add(&mut self, lines: impl IntoIterator<Item = HandoffLine>, most: u64) {
        let end = self.used.saturating_add(most).min(self.tokens);
        for line in lines {
            if self.used >= end {
                break;
            }
            let cost = self.cost(&line);
            if self.used.saturating_add(cost) <= end {
                self.push(line, cost);
            }
        }
    }

    /// Adds lines that stand in the order of time, at most so many tokens of them. Where
    /// not all have room, the newest are taken.
    fn add_newest(&mut self, lines: Vec<HandoffLine>, most: u64) {
        let end = self.used.saturating_add(most).min(self.tokens);
        let mut used = self.used;
        let mut seen = BTreeSet::new();
        let mut chosen = Vec::new();
        for line in lines.into_iter().rev() {
            if !says_something(&line.text) || !seen.insert(normalise(&line.text)) {
                continue;
            }
            let cost = if chosen.is_empty() { self.cost(&line) } else { self.line_cost(&line) };
            if used.saturating_add(cost) <= end {
                used += cost;
                chosen.push(line);
            }
        }
        self.add(chosen.into_iter().rev(), most);
    }

    /// Says that the request that follows was answered, and how as far as there is room.
    fn add_answered(&mut self, answer: &str) -> bool {
        let around = self.cost(&answered_line("x"));
        let room = self.left().saturating_sub(around).min(u64::from(ANSWER_TOKENS));
        let answer = cut(answer, u32::try_from(room).unwrap_or(ANSWER_TOKENS), self.counter);
        for answer in [answer.as_str(), ""] {
            let line = answered_line(answer);
            let cost = self.cost(&line);
            if cost <= self.left() {
                self.push(line, cost);
                return true;
            }
        }
        false
    }

    fn push(&mut self, line: HandoffLine, cost: u64) {
        if !says_something(&line.text) || !self.told.insert(normalise(&line.text)) {
            return;
        }
        self.used += cost;
        self.sections.insert(line.section);
        self.lines.push(line);
    }

    /// Adds as much of a line as fits.
    fn add_cut(&mut self, line: Option<HandoffLine>) {
        let Some(line) = line else { return };
        let around = self.cost(&HandoffLine { text: String::new(), ..line.clone() });
        let room = self.left().saturating_sub(around);
        let text = cut(&line.text, u32::try_from(room).unwrap_or(u32::MAX), self.counter);
        self.add([HandoffLine { text, ..line }], u64::MAX);
    }

    /// What a line costs, with the heading where it is the first under it.
    fn cost(&self, line: &HandoffLine) -> u64 {
        let heading = if self.sections.contains(&line.section) {
            0
        } else {
            self.counter.count(&format!("\n\n## {}", line.section.heading()))
        };
        u64::from(heading) + self.line_cost(line)
    }

    fn line_cost(&self, line: &HandoffLine) -> u64 {
        u64::from(self.counter.count(&format!("\n- {}", line.text)))
    }

    /// The handoff. Tokens of a whole may be more than those of its lines: then what is
    /// worth least goes.
    fn finish(mut self) -> Handoff {
        let of = |lines: &[HandoffLine]| {
            let mut lines = lines.to_vec();
            lines.sort_by_key(|line| line.section);
            Handoff { lines }
        };
        loop {
            let handoff = of(&self.lines);
            let text = render(&handoff, self.number, self.turns);
            let over = u64::from(self.counter.count(&text)).saturating_sub(self.tokens);
            if over == 0 || self.lines.is_empty() {
                return handoff;
            }
            let mut freed = 0;
            while freed < over {
                let Some(line) = self.lines.pop() else { break };
                freed += u64::from(self.counter.count(&line.text));
            }
        }
    }
}

fn passage(passage: &Passage) -> HandoffLine {
    HandoffLine::new(HandoffSection::Recalled, &passage_line(passage))
}

/// What the person wants: the first goal of the handoff before, else the first request,
/// and the last ones. What was wanted between these is done or given up.
fn goals(source: &HandoffSource<'_>, counter: &dyn TokenCounter) -> Vec<HandoffLine> {
    let goal = |said: &Said<'_>| {
        let text = wanted(said)?;
        Some(spoken(said, &cut(&text, GOAL_TOKENS, counter)))
    };
    let mut goals: Vec<String> = Vec::new();
    let carried = source.previous.into_iter().flat_map(|one| one.of(HandoffSection::Goal));
    goals.extend(carried.take(MAX_GOALS - MAX_REQUESTS).map(str::to_owned));
    if goals.is_empty() {
        goals.extend(source.said.iter().find_map(goal));
    }
    let mut last: Vec<String> =
        source.said.iter().rev().filter_map(goal).take(MAX_REQUESTS).collect();
    last.reverse();
    goals.extend(last);
    goals.iter().map(|text| HandoffLine::new(HandoffSection::Goal, text)).collect()
}

/// What a person asks for in a turn, without the rules that it sets.
fn wanted(said: &Said<'_>) -> Option<String> {
    if said.role != "user" {
        return None;
    }
    let mut text = head_of(said.text);
    for rule in instructions::stated(said) {
        text = text.replace(&one_line(&rule), " ");
    }
    let text = one_line(&text);
    (own_terms(&text).len() >= GOAL_TERMS).then_some(text)
}

/// How things stand: what a model said last, where that is not the answer that is told.
fn states(source: &HandoffSource<'_>, counter: &dyn TokenCounter) -> Vec<HandoffLine> {
    if source.answered.is_some() {
        return Vec::new();
    }
    let is_words = |said: &&Said<'_>| voice_of(said) != Voice::Machine && said.role != "user";
    let last = source.said.iter().rev().find(is_words).filter(|said| says_something(said.text));
    let Some(last) = last else { return Vec::new() };
    let text = spoken(last, &cut(last.text, LAST_TOKENS, counter));
    vec![HandoffLine::new(HandoffSection::State, &text)]
}

/// A sentence after the name of who said it.
fn spoken(said: &Said<'_>, text: &str) -> String {
    match speaker_of(said) {
        speaker if speaker.is_empty() || speaker == "user" => text.to_owned(),
        speaker => format!("{speaker}: {text}"),
    }
}

/// Bytes of a text that are looked at for a line of it.
const HEAD_BYTES: usize = 2_000;

fn head_of(text: &str) -> String {
    text[..text.floor_char_boundary(HEAD_BYTES)].split_whitespace().collect::<Vec<_>>().join(" ")
}

/// As much of a text as has so many tokens, on one line, without half a marker.
fn cut(text: &str, tokens: u32, counter: &dyn TokenCounter) -> String {
    let line = head_of(text);
    if line.len() + HEAD_BYTES > text.len() && counter.count(&line) <= tokens {
        return line;
    }
    let short = cut_text(&line, tokens, counter);
    let whole = whole_markers(short.trim_end_matches('…'));
    if whole.len() + '…'.len_utf8() < short.len() { format!("{whole}…") } else { short }
}
