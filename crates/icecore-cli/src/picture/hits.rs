//! Hits of a search: how good, when, who, what, and why.

use icecore::Hit;
use icecore::recall::{DocKind, matched_words};

use crate::draw::{clip, harmless, wrap};
use crate::printer::{Printer, Tone};

/// Columns of the bar that says how good a hit is.
const BAR: usize = 10;

/// Lines shown of a hit's text.
const TEXT_LINES: usize = 4;

/// Characters before the first match that are shown of a long text.
const LEAD: usize = 60;

/// Every hit, with a blank line between two. For stdout.
pub fn lines(query: &str, hits: &[Hit], explain: bool, printer: &Printer) -> Vec<String> {
    let best = hits.first().map_or(0.0, |hit| hit.score);
    let mut lines = Vec::new();
    for (at, hit) in hits.iter().enumerate() {
        if at > 0 {
            lines.push(String::new());
        }
        lines.push(head(at + 1, hit, best, printer));
        lines.extend(text(query, &hit.text, printer).into_iter().map(|line| format!("    {line}")));
        let why = clip(&format!("{}: {}", hit.id, hit.reason), printer.width().saturating_sub(4));
        lines.push(format!("    {}", printer.paint(Tone::Dim, &why)));
        if explain {
            lines.extend(signals(hit, printer));
        }
    }
    lines
}

fn head(rank: usize, hit: &Hit, best: f32, printer: &Printer) -> String {
    let (who, place) = whence(hit);
    let about = clip(
        &format!("{}  {place}", hit.at.to_minute()),
        printer.width().saturating_sub(BAR + 24).max(16),
    );
    format!(
        "{rank:>3} {} {:>5.2}  {}  {}",
        bar(hit.score, best, printer),
        hit.score,
        printer.paint(Tone::Title, &clip(who, 20)),
        printer.paint(Tone::Dim, &about)
    )
}

/// Who said what was found, and where it stands.
pub fn whence(hit: &Hit) -> (&str, String) {
    let who = match (&hit.name, &hit.role, hit.kind) {
        (Some(name), _, _) => name.as_str(),
        (None, Some(role), _) => role.as_str(),
        (None, None, kind) => kind.as_str(),
    };
    let place = match (&hit.session, hit.seq, hit.kind) {
        (Some(session), Some(seq), DocKind::Turn) => format!("{session}, turn {}", seq.0),
        (Some(session), _, _) => session.clone(),
        (None, _, kind) => kind.as_str().to_owned(),
    };
    (who, place)
}

/// How good a hit is beside the best.
fn bar(score: f32, best: f32, printer: &Printer) -> String {
    let share = if best > 0.0 { (score / best).clamp(0.0, 1.0) } else { 0.0 };
    let full = ((share * BAR as f32).round() as usize).max(1);
    let (on, off) = if printer.is_ascii() { ("#", ".") } else { ("█", "░") };
    let drawn = printer.paint(Tone::Warm, &on.repeat(full));
    format!("{drawn}{}", printer.paint(Tone::Dim, &off.repeat(BAR - full)))
}

/// The text from a little before its first match, with the matches painted.
pub fn text(query: &str, text: &str, printer: &Printer) -> Vec<String> {
    let text = harmless(text).replace(['\n', '\t'], " ");
    let text = from_first_match(query, text.trim());
    let mut lines = wrap(&text, printer.width().saturating_sub(4));
    if lines.len() > TEXT_LINES {
        lines.truncate(TEXT_LINES);
        if let Some(last) = lines.last_mut() {
            *last = format!("{} …", clip(last, printer.width().saturating_sub(6)));
        }
    }
    // Painted last: colour has no width.
    lines.iter().map(|line| painted(query, line, printer)).collect()
}

fn from_first_match(query: &str, text: &str) -> String {
    let first = matched_words(query, text).first().map_or(0, |range| range.start);
    let before = &text[..first];
    // What fits on the lines that are shown needs no cut.
    if before.chars().count() <= LEAD * TEXT_LINES / 2 {
        return text.to_owned();
    }
    let skip = before.char_indices().rev().nth(LEAD).map_or(0, |(at, _)| at);
    let start = text[skip..first].find(' ').map_or(skip, |blank| skip + blank + 1);
    format!("… {}", &text[start..])
}

/// A line with the words that the query has painted.
pub fn painted(query: &str, line: &str, printer: &Printer) -> String {
    let mut out = String::with_capacity(line.len());
    let mut from = 0;
    for range in matched_words(query, line) {
        // Pairs of characters overlap in scripts without blanks.
        if range.end <= from {
            continue;
        }
        let start = range.start.max(from);
        out.push_str(&line[from..start]);
        out.push_str(&printer.paint(Tone::Mark, &line[start..range.end]));
        from = range.end;
    }
    out.push_str(&line[from..]);
    out
}

/// What speaks for a hit, strongest first.
fn signals(hit: &Hit, printer: &Printer) -> Vec<String> {
    let mut signals = hit.signals.clone();
    signals.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    let parts: Vec<String> =
        signals.iter().map(|(name, value)| format!("{name} {value:+.2}")).collect();
    let lines = wrap(&parts.join(", "), printer.width().saturating_sub(6));
    lines.iter().map(|line| printer.paint(Tone::Dim, &format!("      {line}"))).collect()
}
