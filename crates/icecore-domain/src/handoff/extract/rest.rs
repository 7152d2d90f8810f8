//! What else there is to tell, as a dream would.

use super::{Draft, HandoffSource, cut};
use crate::dream::distil::Distiller;
use crate::dream::{Distillate, Line, Part, Section, Source, SourceFact, SourceKind};
use crate::fact::FactKind;
use crate::handoff::{Handoff, HandoffLine, HandoffSection};
use crate::text::{Said, Voice, normalise, one_line, sentences, split_speaker, voice_of};
use crate::time::Millis;
use crate::tokens::TokenCounter;

/// Turns that are read as one source.
const SOURCE_TURNS: usize = 10;
/// Shares of a handoff, in percent: for what holds, for what is still open, and for what
/// happened.
const KNOWN_PERCENT: u64 = 40;
const OPEN_PERCENT: u64 = 6;
const PAST_PERCENT: u64 = 25;
/// Tokens of one line of what happened.
const PAST_LINE_TOKENS: u32 = 48;
/// What belongs to each.
const KNOWN: [Section; 4] =
    [Section::Now, Section::Preferences, Section::Decisions, Section::People];
const OPEN: [Section; 1] = [Section::Threads];
const PAST: [Section; 1] = [Section::Timeline];
/// With less room nothing more is looked for.
const LEAST_TOKENS: u64 = 12;
/// How often what repeated what is told makes room for more.
const TRIES: usize = 3;
/// A line that was cut to fewer bytes than these is not looked for.
const MIN_BEGUN: usize = 24;
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
    // What was cut is told by its beginning.
    let is_cut = |line: &&HandoffLine| line.text.ends_with('…');
    let begun: Vec<String> =
        draft.lines.iter().filter(is_cut).map(|line| normalise(&line.text)).collect();
    let begun: Vec<String> = begun.into_iter().filter(|line| line.len() >= MIN_BEGUN).collect();
    let told = format!(" {} ", told.join(" | "));
    let distiller =
        Distiller::new(&sources, carried.as_ref(), draft.counter).without_first().without(|text| {
            let text = normalise(text);
            told.contains(&format!(" {text} ")) || begun.iter().any(|line| text.starts_with(line))
        });
    let share = |percent: u64| draft.tokens.saturating_mul(percent) / 100;
    // Where nothing bears on the request, what happened has the room that is left.
    let past = if source.recalled.is_empty() { u64::MAX } else { share(PAST_PERCENT) };
    let shares: [(&[Section], u64); 3] =
        [(&KNOWN, share(KNOWN_PERCENT)), (&OPEN, share(OPEN_PERCENT)), (&PAST, past)];
    for (sections, most) in shares {
        fill(source, draft, &distiller, sections, most);
    }
}

/// Adds what belongs to some sections, at most so many tokens of it.
fn fill(
    source: &HandoffSource<'_>,
    draft: &mut Draft<'_>,
    distiller: &Distiller,
    sections: &[Section],
    most: u64,
) {
    let base = draft.lines.len();
    let used = draft.used;
    let end = used.saturating_add(most).min(draft.tokens);
    let mut asked = 0;
    for _ in 0..TRIES {
        let left = end.saturating_sub(draft.used);
        if left < LEAST_TOKENS {
            return;
        }
        asked += left;
        draft.lines.truncate(base);
        draft.used = used;
        let distillate = distiller.of_sections(sections, asked, draft.counter);
        let lines = lines(&distillate, source.said, draft.counter);
        draft.told = draft.lines.iter().map(|line| normalise(&line.text)).collect();
        draft.sections = draft.lines.iter().map(|line| line.section).collect();
        draft.add(lines, most);
        if distillate.lines.is_empty() {
            return;
        }
    }
}

/// Whether a tool or a program said a line.
fn is_machines(line: &str) -> bool {
    let (speaker, _) = split_speaker(line);
    matches!(speaker, "tool" | "function" | "system" | "developer")
}

/// A line of what happened: its first sentences, where it is long.
fn shortened(text: &str, counter: &dyn TokenCounter) -> String {
    if counter.count(text) <= PAST_LINE_TOKENS {
        return text.to_owned();
    }
    let mut short = String::new();
    for sentence in sentences(text) {
        let more = one_line(&sentence.text);
        let longer = if short.is_empty() { more } else { format!("{short} {more}") };
        if counter.count(&longer) > PAST_LINE_TOKENS {
            break;
        }
        short = longer;
    }
    if short.is_empty() { cut(text, PAST_LINE_TOKENS, counter) } else { short }
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
        let (at, text) = dated(&line.text);
        if line.is_answered() || is_machines(text) {
            return None;
        }
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
        let lines: Vec<&str> = text.lines().filter(|line| !is_machines(line)).collect();
        sources.push(of(SourceKind::Macro, vec![summary(&lines.join("\n"))], Vec::new()));
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
    // What tools print is found by recall, and files by their names.
    let is_said = |said: &&Said<'_>| voice_of(said) != Voice::Machine;
    let said: Vec<&Said<'_>> = source.said.iter().filter(is_said).collect();
    for turns in said.chunks(SOURCE_TURNS) {
        let parts = turns.iter().map(|said| part(said)).collect();
        sources.push(of(SourceKind::Micro, parts, Vec::new()));
    }
    sources
}

/// The lines of a distillate under our headings. What happened is told with its day where
/// the turns are of several: at the first line of each.
fn lines(
    distillate: &Distillate,
    said: &[Said<'_>],
    counter: &dyn TokenCounter,
) -> Vec<HandoffLine> {
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
        let text = match line.section {
            Section::Timeline => shortened(&line.text, counter),
            _ => line.text.clone(),
        };
        let text = match &day {
            Some((_, day)) if is_dated => format!("{day} {text}"),
            _ => text,
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
