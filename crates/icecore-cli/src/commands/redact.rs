//! `icecore redact`: hides secrets in a text, or again in what is stored.

use std::io::Read;

use icecore::maintenance::Rescanned;
use icecore::privacy::{Hidden, RedactedStream};
use serde_json::json;

use crate::app::App;
use crate::args::RedactArgs;
use crate::draw::{count, number, table};
use crate::failure::{Failure, Outcome, Status};
use crate::json;
use crate::printer::{Printer, Tone};
use crate::progress::Bar;

/// A filter, unless what is stored is meant.
pub async fn run(args: RedactArgs, app: &App) -> Outcome<Status> {
    match args.rescan {
        true => rescan(args.dry_run, app).await,
        false => filter(app).await,
    }
}

/// Rewrites what holds a secret, then derives anew what stood on it.
async fn rescan(dry_run: bool, app: &App) -> Outcome<Status> {
    let bar = Bar::new(&app.printer, "rescanning");
    let done = app.memory.rescan(&app.principal, dry_run, |at, of| bar.at(at, of)).await?;
    drop(bar);
    if !dry_run {
        app.settle().await?;
    }
    if app.printer.is_json() {
        app.printer.json(&json::rescanned(&done))?;
        return Ok(Status::Done);
    }
    for line in rescan_lines(&done, &app.printer) {
        app.printer.line(&line)?;
    }
    if dry_run {
        app.printer.talk("Nothing was changed: this was a dry run");
    } else if !done.hidden.is_empty() {
        app.printer.talk(
            "Backups and exports are out of reach: replace them, and change what was exposed.",
        );
    }
    Ok(Status::Done)
}

/// What a rescan did, as a person reads it.
fn rescan_lines(done: &Rescanned, printer: &Printer) -> Vec<String> {
    let beside = match done.dry_run {
        // They are few, and rewritten in one step.
        true => "; names, entries, facts, files, runs and the log are looked at when it runs",
        false => ", and at names, entries, facts, files, runs and the log",
    };
    let looked_at = format!("Looked at {}{beside}", count(done.looked_at, "turn"));
    let counts = [
        ("turns", done.turns),
        ("packs", done.packs),
        ("names", done.names),
        ("entries", done.entries),
        ("facts", done.facts),
        ("files", done.files),
        ("runs", done.runs),
        ("commitments", done.commitments),
        ("handoffs", done.handoffs),
        ("events", done.events),
    ];
    let counts: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    if done.hidden.is_empty() && counts.is_empty() {
        return vec![looked_at, "Nothing is left to hide".to_owned()];
    }
    let mut lines = vec![looked_at, String::new()];
    let head = ["hidden", "times"].map(str::to_owned).to_vec();
    let kinds = most_first(&done.hidden).into_iter();
    let kinds = kinds.map(|(kind, count)| vec![kind.to_owned(), number(count)]);
    lines.extend(drawn(std::iter::once(head).chain(kinds).collect(), printer));
    lines.push(String::new());
    let verb = if done.dry_run { "to rewrite" } else { "rewritten" };
    let head = vec![verb.to_owned(), String::new()];
    let counts = counts.into_iter().map(|(what, count)| vec![what.to_owned(), number(count)]);
    lines.extend(drawn(std::iter::once(head).chain(counts).collect(), printer));
    lines
}

fn drawn(rows: Vec<Vec<String>>, printer: &Printer) -> Vec<String> {
    let mut lines = table(&rows, &[1]);
    if let Some(head) = lines.first_mut() {
        *head = printer.paint(Tone::Dim, head);
    }
    lines.iter().map(|line| format!("  {line}")).collect()
}

/// Bytes that are read at a time.
const PART_BYTES: usize = 64 << 10;

/// Text from standard input to standard output, as it comes.
async fn filter(app: &App) -> Outcome<Status> {
    let redactor = app.memory.redactor(app.principal.tenant()).await?.redactor;
    let mut stream = RedactedStream::new(redactor);
    let mut text = String::new();
    let mut input = Parts::default();
    while let Some(part) = input.next()? {
        let clean = stream.push(&part);
        match app.printer.is_json() {
            true => text.push_str(clean.as_str()),
            false => app.printer.raw(clean.as_str())?,
        }
    }
    let (rest, hidden) = stream.finish_counted();
    match app.printer.is_json() {
        true => {
            text.push_str(rest.as_str());
            app.printer.json(&json!({ "text": text, "redacted": hidden }))?;
        }
        false => app.printer.raw(rest.as_str())?,
    }
    if input.is_damaged {
        app.printer.warn("what was not UTF-8 became \u{fffd}");
    }
    app.printer.talk(&told(&hidden));
    Ok(Status::Done)
}

/// What was hidden, in one sentence.
pub fn told(hidden: &Hidden) -> String {
    match hidden.values().sum() {
        0 => "Nothing was hidden".to_owned(),
        total => format!("Hid {}: {}", count(total, "secret"), kinds(hidden)),
    }
}

/// The kinds with how many of each, most first.
pub fn kinds(hidden: &Hidden) -> String {
    let kinds = most_first(hidden).into_iter();
    let kinds = kinds.map(|(kind, count)| format!("{} {kind}", number(count)));
    kinds.collect::<Vec<_>>().join(", ")
}

fn most_first(hidden: &Hidden) -> Vec<(&str, u64)> {
    let mut kinds: Vec<_> = hidden.iter().map(|(kind, count)| (kind.as_str(), *count)).collect();
    kinds.sort_by_key(|(kind, count)| (u64::MAX - count, *kind));
    kinds
}

/// Standard input as text, in parts that break no character.
#[derive(Default)]
struct Parts {
    /// The beginning of a character that was cut.
    left: Vec<u8>,
    is_damaged: bool,
    has_ended: bool,
}

impl Parts {
    fn next(&mut self) -> Outcome<Option<String>> {
        if self.has_ended {
            return Ok(None);
        }
        let mut bytes = std::mem::take(&mut self.left);
        let from = bytes.len();
        bytes.resize(from + PART_BYTES, 0);
        let read = loop {
            match std::io::stdin().lock().read(&mut bytes[from..]) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        let read =
            read.map_err(|error| Failure::Broken(format!("cannot read standard input: {error}")))?;
        bytes.truncate(from + read);
        self.has_ended = read == 0;
        Ok(Some(self.text(bytes)))
    }

    /// `bytes` as text, without a character at the end that may go on.
    fn text(&mut self, mut bytes: Vec<u8>) -> String {
        if !self.has_ended {
            let last = bytes.utf8_chunks().last();
            let cut = last.map(|chunk| chunk.invalid()).filter(|rest| may_go_on(rest));
            let cut = cut.map_or(0, <[u8]>::len);
            self.left = bytes.split_off(bytes.len() - cut);
        }
        match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                self.is_damaged = true;
                String::from_utf8_lossy(error.as_bytes()).into_owned()
            }
        }
    }
}

/// Whether more bytes could make a character of these.
fn may_go_on(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_not_cut() {
        let whole = "aé漢🧊".as_bytes();
        for at in 0..=whole.len() {
            let mut parts = Parts::default();
            let first = parts.text(whole[..at].to_vec());
            let mut rest = std::mem::take(&mut parts.left);
            rest.extend_from_slice(&whole[at..]);
            parts.has_ended = true;
            assert_eq!(first + &parts.text(rest), "aé漢🧊");
            assert!(!parts.is_damaged);
        }
        let mut parts = Parts::default();
        assert_eq!(
            (parts.text(b"a\xffb".to_vec()).as_str(), parts.is_damaged),
            ("a\u{fffd}b", true)
        );
    }

    #[test]
    fn what_was_hidden_is_told_most_first() {
        let hidden = Hidden::from([("a".to_owned(), 1), ("b".to_owned(), 1200)]);
        assert_eq!(told(&hidden), "Hid 1,201 secrets: 1,200 b, 1 a");
        assert_eq!(told(&Hidden::new()), "Nothing was hidden");
    }
}
