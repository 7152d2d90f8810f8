//! What a dream makes of its sources: lines that a person can read, each with its
//! sources.

mod choose;
mod compose;
#[cfg(test)]
mod distil_tests;
pub(crate) mod read;
mod same;
mod settle;

use std::collections::BTreeSet;

use crate::fact::{FactKey, read_back};
use crate::time::Millis;
use crate::tokens::TokenCounter;

use super::Source;
use crate::text::normalise;

/// The name of the distiller that needs no model. The number rises whenever equal
/// sources would give another distillate.
pub const EXTRACTIVE: &str = "extractive-1";

/// A part of a distillate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// What is true now.
    Now,
    /// What was decided.
    Decisions,
    /// Preferences and standing instructions.
    Preferences,
    /// People and projects.
    People,
    /// What is not settled.
    Threads,
    /// What happened when.
    Timeline,
}

crate::words!(Section {
    Now = "now", Decisions = "decisions", Preferences = "preferences", People = "people",
    Threads = "threads", Timeline = "timeline",
});

impl Section {
    /// Its heading, for people.
    pub fn heading(self) -> &'static str {
        match self {
            Section::Now => "What is true now",
            Section::Decisions => "Decisions",
            Section::Preferences => "Preferences and instructions",
            Section::People => "People and projects",
            Section::Threads => "Open threads",
            Section::Timeline => "Timeline",
        }
    }
}

/// Something that is worth keeping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub section: Section,
    /// What it says; dates in it are absolute.
    pub text: String,
    /// When, by the messages' own time.
    pub at: Option<Millis>,
    /// What was true before, where it was overtaken.
    pub before: Option<String>,
    /// The sources, by their places in the archive's list.
    pub sources: Vec<u32>,
}

impl Line {
    /// The day shown with it; lines about the present show none.
    fn day(&self) -> Option<String> {
        let tells =
            matches!(self.section, Section::Decisions | Section::Threads | Section::Timeline);
        self.at.filter(|_| tells).map(Millis::to_date)
    }

    fn write(&self, text: &mut String) {
        text.push_str("- ");
        text.push_str(&self.text);
        if let Some(before) = &self.before {
            text.push_str(" (before: ");
            text.push_str(before);
            text.push(')');
        }
        text.push('\n');
    }
}

/// What a dream came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Distillate {
    /// Its lines, by section and in the order in which they are read.
    pub lines: Vec<Line>,
}

impl Distillate {
    /// Without the lines that tell one of these facts, or one of these texts as
    /// [`crate::text::normalise`] has them.
    pub fn without(mut self, facts: &BTreeSet<FactKey>, texts: &BTreeSet<String>) -> Self {
        let tells = |text: &str, at: Option<Millis>| {
            let fact = read_back(text, at.unwrap_or(Millis(0)));
            let key = fact.map(|fact| FactKey::new(&fact.subject, &fact.attribute, &fact.value));
            texts.contains(&normalise(text)) || key.is_some_and(|key| facts.contains(&key))
        };
        if facts.is_empty() && texts.is_empty() {
            return self;
        }
        self.lines.retain(|line| !tells(&line.text, line.at));
        for line in &mut self.lines {
            line.before.take_if(|before| tells(before, line.at));
        }
        self
    }

    /// The text for people, by which it is counted: a heading for each section that has
    /// lines, and a line for each.
    ///
    /// Of what was settled, is open or happened, the day stands above its lines; what
    /// has none stands first. A line that is alone needs no heading.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for section in Section::ALL {
            let of_section = || self.lines.iter().filter(move |line| line.section == section);
            if of_section().next().is_none() {
                continue;
            }
            if self.lines.len() > 1 {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str("## ");
                text.push_str(section.heading());
                text.push('\n');
            }
            let undated = of_section().filter(|line| line.day().is_none());
            let dated = of_section().filter(|line| line.day().is_some());
            let mut today = None;
            for line in undated.chain(dated) {
                let day = line.day();
                if let Some(day) = day.as_ref().filter(|_| day != today) {
                    text.push_str(day);
                    text.push('\n');
                }
                today = day;
                line.write(&mut text);
            }
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// Reads the text back, as far as it tells: it names no sources, and not every time.
    pub fn read(text: &str) -> Self {
        let (mut section, mut at, mut lines) = (Section::Now, None, Vec::new());
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let is_heading =
                |section: &Section| line.strip_prefix("## ") == Some(section.heading());
            if let Some(found) = Section::ALL.into_iter().find(is_heading) {
                (section, at) = (found, None);
            } else if let Ok(day) = Millis::parse_rfc3339(&format!("{line}T00:00:00Z")) {
                at = Some(day);
            } else {
                let said = line.strip_prefix("- ").unwrap_or(line);
                let overtaken = said.strip_suffix(')').and_then(|s| s.rsplit_once(" (before: "));
                let (text, before) = overtaken.map_or((said, None), |(now, was)| (now, Some(was)));
                let (text, before) = (text.to_owned(), before.map(str::to_owned));
                lines.push(Line { section, text, at, before, sources: Vec::new() });
            }
        }
        Self { lines }
    }
}

/// Distils sources, which stand in the order of the archive's list, into at most
/// `output_tokens` tokens of text.
///
/// `carried` is what the last dream came to, if it is among the sources: the one of
/// kind archive.
pub fn distil(
    sources: &[Source],
    carried: Option<&Distillate>,
    output_tokens: u64,
    counter: &dyn TokenCounter,
) -> Distillate {
    Distiller::new(sources, carried, counter).within(output_tokens, counter)
}

/// What sources say, best first, before the budget is known.
pub(crate) struct Distiller {
    candidates: Vec<read::Candidate>,
    order: Vec<choose::Ranked>,
}

impl Distiller {
    /// Reads sources as [`distil`] does.
    pub(crate) fn new(
        sources: &[Source],
        carried: Option<&Distillate>,
        counter: &dyn TokenCounter,
    ) -> Self {
        let mut read = read::read(sources, carried);
        settle::settle(&mut read);
        let candidates = same::merge(read);
        let order = choose::order(&candidates, counter);
        Self { candidates, order }
    }

    /// Without what is so sure to be told that someone else tells it: standing
    /// instructions.
    pub(crate) fn without_first(mut self) -> Self {
        self.order.retain(|ranked| self.candidates[ranked.at].rank < read::Rank::First);
        self
    }

    /// Without candidates whose text is covered already.
    pub(crate) fn without(mut self, mut is_told: impl FnMut(&str) -> bool) -> Self {
        self.order.retain(|ranked| !is_told(&self.candidates[ranked.at].text));
        self
    }

    /// As much of what belongs to some sections as fits.
    pub(crate) fn of_sections(
        &self,
        sections: &[Section],
        output_tokens: u64,
        counter: &dyn TokenCounter,
    ) -> Distillate {
        let is_wanted =
            |ranked: &&choose::Ranked| sections.contains(&self.candidates[ranked.at].section);
        let order: Vec<choose::Ranked> = self.order.iter().filter(is_wanted).cloned().collect();
        compose::compose(&self.candidates, &order, output_tokens, counter)
    }

    /// As much of it as fits.
    pub(crate) fn within(&self, output_tokens: u64, counter: &dyn TokenCounter) -> Distillate {
        compose::compose(&self.candidates, &self.order, output_tokens, counter)
    }
}
