//! What else there is to tell, as a dream would.

use super::{Draft, HandoffSource};
use crate::dream::distil::Distiller;
use crate::dream::{Distillate, Line, Part, Section, Source, SourceFact, SourceKind};
use crate::fact::{FactKind, normalise};
use crate::handoff::{Handoff, HandoffLine, HandoffSection};
use crate::summary::Said;
use crate::time::Millis;

/// Turns that are read as one source.
const SOURCE_TURNS: usize = 10;
/// With less room nothing more is looked for.
const LEAST_TOKENS: u64 = 12;
/// How often what repeated what is told makes room for more.
const TRIES: usize = 3;
/// The name under which all is read: one session.
const SESSION: &str = "session";

/// Adds as much as fits.
pub(super) fn add(source: &HandoffSource<'_>, draft: &mut Draft<'_>) {
    if draft.left() < LEAST_TOKENS {
        return;
    }
    let carried = source.previous.map(carried);
    let sources = sources(source);
    let told: Vec<String> = draft.lines.iter().map(|line| normalise(&line.text)).collect();
    let told = format!(" {} ", told.join(" | "));
    let distiller = Distiller::new(&sources, carried.as_ref(), draft.counter)
        .without_first()
        .without(|text| told.contains(&format!(" {} ", normalise(text))));
    // Whether days differ decides whether they are told.
    let mut asked = 0;
    let base = draft.lines.len();
    let used = draft.used;
    for _ in 0..TRIES {
        let left = draft.left();
        if left < LEAST_TOKENS {
            return;
        }
        asked += left;
        draft.lines.truncate(base);
        draft.used = used;
        let distillate = distiller.within(asked, draft.counter);
        let lines = lines(&distillate, source.said);
        draft.told = draft.lines.iter().map(|line| normalise(&line.text)).collect();
        draft.sections = draft.lines.iter().map(|line| line.section).collect();
        draft.add(lines, u64::MAX);
        if distillate.lines.is_empty() {
            return;
        }
    }
}

/// What of the handoff before is read as a dream's: all that is not told elsewhere.
fn carried(previous: &Handoff) -> Distillate {
    let line = |line: &HandoffLine| {
        let section = match line.section {
            HandoffSection::State => Section::Timeline,
            HandoffSection::Decisions => Section::Decisions,
            HandoffSection::People => Section::People,
            HandoffSection::Facts => Section::Now,
            _ => return None,
        };
        if line.text.starts_with(super::ANSWERED) {
            return None;
        }
        let (at, text) = dated(&line.text);
        let (before, sources) = (None, Vec::new());
        Some(Line { section, text: text.to_owned(), at, before, sources })
    };
    Distillate { lines: previous.lines.iter().filter_map(line).collect() }
}

/// A line's own day, where it begins with one.
fn dated(text: &str) -> (Option<Millis>, &str) {
    let day = text.split_once(' ').filter(|(day, _)| day.len() == 10);
    let at = day.and_then(|(day, _)| Millis::parse_rfc3339(&format!("{day}T00:00:00Z")).ok());
    match (at, day) {
        (Some(at), Some((_, rest))) => (Some(at), rest),
        _ => (None, text),
    }
}

fn sources(source: &HandoffSource<'_>) -> Vec<Source> {
    let of = |kind: SourceKind, parts: Vec<Part>, facts: Vec<SourceFact>| Source {
        kind,
        session: SESSION.to_owned(),
        seq: 0,
        parts,
        facts,
    };
    let summary =
        |text: &str| Part { role: String::new(), name: None, text: text.to_owned(), at: None };
    let mut sources = Vec::new();
    if let Some(previous) = source.previous {
        sources.push(of(SourceKind::Archive, Vec::new(), Vec::new()));
        // What was recalled for another request is worth no more than what was said.
        let recalled: Vec<&str> = previous.of(HandoffSection::Recalled).collect();
        if !recalled.is_empty() {
            sources.push(of(SourceKind::Macro, vec![summary(&recalled.join("\n"))], Vec::new()));
        }
    }
    for text in source.summaries {
        sources.push(of(SourceKind::Macro, vec![summary(text)], Vec::new()));
    }
    let facts: Vec<SourceFact> = source
        .facts
        .iter()
        .filter(|fact| !matches!(fact.kind, FactKind::Instruction | FactKind::Constraint))
        .map(|fact| SourceFact {
            kind: fact.kind,
            subject: fact.subject.clone(),
            attribute: fact.attribute.clone(),
            value: fact.value.clone(),
            text: fact.text.clone(),
            at: Some(fact.valid_from),
            confirmed: false,
        })
        .collect();
    if !facts.is_empty() {
        sources.push(of(SourceKind::Entry, Vec::new(), facts));
    }
    let part = |said: &Said<'_>| Part {
        role: said.role.to_owned(),
        name: said.name.map(str::to_owned),
        text: said.text.to_owned(),
        at: Some(said.at),
    };
    for turns in source.said.chunks(SOURCE_TURNS) {
        sources.push(of(SourceKind::Micro, turns.iter().map(part).collect(), Vec::new()));
    }
    sources
}

/// The lines of a distillate under our headings. What happened is told with its day where
/// the turns are of several: at the first line of each.
fn lines(distillate: &Distillate, said: &[Said<'_>]) -> Vec<HandoffLine> {
    let mut days = said.iter().map(|said| said.at.to_date());
    let first = days.next();
    let tells_days = days.any(|day| Some(day) != first);
    let mut today = None;
    let mut told = Vec::new();
    for line in &distillate.lines {
        let section = match line.section {
            Section::Now | Section::Preferences => HandoffSection::Facts,
            Section::Decisions => HandoffSection::Decisions,
            Section::People => HandoffSection::People,
            Section::Threads => HandoffSection::Tasks,
            Section::Timeline => HandoffSection::State,
        };
        let day = line.at.filter(|_| tells_days).map(|at| (section, at.to_date()));
        let is_dated =
            matches!(line.section, Section::Decisions | Section::Threads | Section::Timeline)
                && day != today;
        let text = match &day {
            Some((_, day)) if is_dated => format!("{day} {}", line.text),
            _ => line.text.clone(),
        };
        if is_dated {
            today = day;
        }
        let text = match &line.before {
            Some(before) => format!("{text} (before: {before})"),
            None => text,
        };
        told.push(HandoffLine::new(section, &text));
    }
    told
}
