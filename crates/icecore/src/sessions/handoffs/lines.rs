//! Puts a handoff together from lines, within its room.

use icecore_domain::handoff::{Handoff, HandoffLine, HandoffSection, render};
use icecore_domain::redact::{RedactedText, Redactor};
use icecore_domain::text::normalise;
use icecore_domain::tokens::TokenCounter;

use crate::error::Result;
use crate::knowledge::compaction::looked_at;

/// What goes first where there is too little room, and what last.
const LEAST_FIRST: [HandoffSection; 9] = [
    HandoffSection::People,
    HandoffSection::Files,
    HandoffSection::Recalled,
    HandoffSection::Facts,
    HandoffSection::State,
    HandoffSection::Tasks,
    HandoffSection::Decisions,
    HandoffSection::Goal,
    HandoffSection::Instructions,
];

/// How a line ends that a person wrote into a handoff. It stays through later ones.
const CORRECTED: &str = " (a person's correction)";

/// Marks the lines of a correction that the handoff before it did not have. Of what is
/// recalled for one request alone, what a person adds is a fact.
pub(super) fn corrected(before: &Handoff, mut after: Handoff) -> Handoff {
    for line in &mut after.lines {
        let said = normalise(plain(&line.text));
        let is_known = before.lines.iter().any(|known| normalise(plain(&known.text)) == said);
        if !is_known && !line.is_answered() {
            line.text = format!("{}{CORRECTED}", plain(&line.text));
            if line.section == HandoffSection::Recalled {
                line.section = HandoffSection::Facts;
            }
        }
    }
    after.lines.sort_by_key(|line| line.section);
    after
}

/// Whether a person wrote it.
pub(super) fn is_corrected(line: &HandoffLine) -> bool {
    line.text.ends_with(CORRECTED)
}

fn plain(text: &str) -> &str {
    text.strip_suffix(CORRECTED).unwrap_or(text)
}

/// Which handoff it is, for how many turns, and what room it has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) number: u64,
    pub(super) turns: u64,
    pub(super) tokens: u64,
}

/// Lines of a handoff: a person's before all others.
#[derive(Debug, Clone, Default)]
pub(super) struct Lines {
    first: Vec<HandoffLine>,
    rest: Vec<HandoffLine>,
}

impl Lines {
    /// `rest` without what `first` says already.
    pub(super) fn new(first: Vec<HandoffLine>, rest: Vec<HandoffLine>) -> Self {
        let mut lines = Self { first, rest: Vec::new() };
        lines.add(rest);
        lines
    }

    /// Adds lines that are not there.
    pub(super) fn add(&mut self, more: Vec<HandoffLine>) {
        for mut line in more {
            let said = normalise(plain(&line.text));
            let is_same = |other: &HandoffLine| normalise(plain(&other.text)) == said;
            if !self.first.iter().chain(&self.rest).any(is_same) {
                // Nothing that was said passes for a person's correction.
                line.text.truncate(plain(&line.text).len());
                self.rest.push(line);
            }
        }
    }

    /// All of them, by section; within one the person's first.
    pub(super) fn into_lines(self) -> Vec<HandoffLine> {
        let mut lines = self.first;
        lines.extend(self.rest);
        lines.sort_by_key(|line| line.section);
        lines
    }

    /// Drops what matters least, until lines of so many tokens are gone.
    fn drop_tokens(&mut self, excess: u64, counter: &dyn TokenCounter) {
        let mut left = excess;
        while left > 0 {
            let Some(line) = self.pop() else { return };
            left = left.saturating_sub(u64::from(counter.count(&line.text)).max(1));
        }
    }

    /// The line that matters least. That the request was answered goes last of all, or it
    /// would be answered again.
    fn pop(&mut self) -> Option<HandoffLine> {
        let place = |section: HandoffSection| {
            self.rest.iter().rposition(|line| line.section == section && !line.is_answered())
        };
        match LEAST_FIRST.into_iter().find_map(place) {
            Some(at) => Some(self.rest.remove(at)),
            None => self.first.pop().or_else(|| self.rest.pop()),
        }
    }

    /// The text, its secrets hidden, with as many lines as there is room for; none if
    /// there is room for no line.
    pub(super) fn written(
        mut self,
        frame: Frame,
        redactor: &Redactor,
        counter: &dyn TokenCounter,
    ) -> Result<Option<(RedactedText, u64)>> {
        while !self.first.is_empty() || !self.rest.is_empty() {
            let text =
                render(&Handoff { lines: self.clone().into_lines() }, frame.number, frame.turns);
            // Hiding a secret may make it longer.
            let (text, _) = looked_at(&text, |text| redactor.derived_text(text))?;
            let tokens = u64::from(counter.count(text.as_str()));
            if tokens <= frame.tokens {
                return Ok(Some((text, tokens)));
            }
            self.drop_tokens(tokens - frame.tokens, counter);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use icecore_domain::handoff::parse;

    use super::*;

    #[test]
    fn that_a_request_was_answered_goes_last() {
        let text = "## Goal\n- Find the keys.\n## State\n- All is calm.\n\
            - The request that follows was answered already: in Oslo.\n\
            ## Constraints and standing instructions\n- Never push to main.";
        let person = parse("## Goal\n- What Ann wrote.").lines;
        let mut lines = Lines::new(person, parse(text).lines);
        let mut gone = Vec::new();
        while let Some(line) = lines.pop() {
            gone.push(line.text);
        }
        let answered = "The request that follows was answered already: in Oslo.";
        let expected =
            ["All is calm.", "Find the keys.", "Never push to main.", "What Ann wrote.", answered];
        assert_eq!(gone, expected);
    }
}
