//! `icecore check`: is everything whole?

use icecore::maintenance::CheckReport;

use crate::app::App;
use crate::args::CheckArgs;
use crate::draw::{count, number};
use crate::failure::{Outcome, Status};
use crate::json;
use crate::printer::{Printer, Tone};
use crate::progress::Bar;

/// Verifies the store, every body and every pack.
pub async fn run(args: CheckArgs, app: &App) -> Outcome<Status> {
    let bar = Bar::spinner(&app.printer, "checking");
    let report = app.memory.check(args.repair, |done, total| bar.at(done, total)).await?;
    drop(bar);
    if app.printer.is_json() {
        app.printer.json(&json::check(&report))?;
    } else {
        for line in lines(&report, &app.printer) {
            app.printer.line(&line)?;
        }
        if !report.is_ok() {
            app.printer
                .hint("what is named is damaged, the rest is whole; restore it from a backup");
        }
    }
    Ok(if report.is_ok() { Status::Done } else { Status::Refused })
}

/// The report as a person reads it.
pub fn lines(report: &CheckReport, printer: &Printer) -> Vec<String> {
    let bad = |problem: &String| format!("{} {problem}", printer.paint(Tone::Bad, "damaged:"));
    let mut lines: Vec<String> = report.problems.iter().map(bad).collect();
    if report.is_ok() {
        // Who never dreamt has none, and a line is short.
        let archives = match report.archives {
            0 => String::new(),
            archives => format!(", {}", count(archives, "archive")),
        };
        lines.push(format!(
            "{} {}, {}, {}{archives} and {} are whole",
            printer.paint(Tone::Good, "ok:"),
            count(report.turns, "turn"),
            count(report.texts, "text"),
            count(report.packs, "pack"),
            match report.indexes {
                1 => "1 index".to_owned(),
                indexes => format!("{} indexes", number(indexes)),
            }
        ));
    }
    for (orphans, removed, what) in [
        (report.orphans, report.removed, "pack"),
        (report.orphan_archives, report.removed_archives, "archive body"),
    ] {
        let left = orphans - removed;
        if left > 0 {
            lines.push(format!(
                "note: {} that nothing points to, left by a crash and harmless; `icecore check --repair` removes them",
                count(left, what)
            ));
        }
        if removed > 0 {
            lines.push(format!("removed {} that nothing points to", count(removed, what)));
        }
    }
    lines
}
