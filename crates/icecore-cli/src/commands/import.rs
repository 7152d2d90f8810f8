//! `icecore import`: conversations in.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use icecore::ingest::{ImportPlan, ImportReport, Progress, Repeat};

use crate::app::App;
use crate::args::ImportArgs;
use crate::draw::{count, number};
use crate::failure::{Failure, Outcome, Status};
use crate::json;
use crate::progress::Bar;

/// Imports each file, then derives what is due.
pub async fn run(args: ImportArgs, app: &App) -> Outcome<Status> {
    let plan = ImportPlan { session: args.session, insist: args.insist, repeat: Repeat::Recognise };
    let interrupted = watch_interrupt();
    let mut total = ImportReport::default();
    for path in &args.paths {
        let report = import_file(path, &plan, app, &interrupted).await?;
        total.lines += report.lines;
        total.added += report.added;
        total.known += report.known;
        total.forgotten += report.forgotten;
        if report.stopped {
            return Err(stopped(&total));
        }
        let name = format!("`{}`", path.display());
        refuse_if_forgotten(&name, &report, "pass --insist to add it again")?;
    }
    app.printer.talk(&told(&total, args.paths.len() as u64));
    if app.printer.is_json() {
        app.printer.json(&json::imported(&total))?;
    }
    app.settle().await?;
    Ok(Status::Done)
}

async fn import_file(
    path: &Path,
    plan: &ImportPlan,
    app: &App,
    interrupted: &AtomicBool,
) -> Outcome<ImportReport> {
    let bar = Bar::new(&app.printer, "checking");
    let tell = |progress| {
        match progress {
            Progress::Checked(lines) => bar.at(lines, lines),
            Progress::Stored(done, lines) => {
                bar.doing("importing");
                bar.at(done, lines);
            }
        }
        !interrupted.load(Ordering::Relaxed)
    };
    Ok(app.memory.import(&app.scope, path, plan, tell).await?)
}

/// Turns that were forgotten on request stay so; that must not look like success.
pub fn refuse_if_forgotten(what: &str, report: &ImportReport, hint: &str) -> Outcome<()> {
    match report.forgotten > 0 && report.added == 0 && report.known == 0 {
        true => {
            Err(Failure::refused(format!("{what} was forgotten on request, and stays so"), hint))
        }
        false => Ok(()),
    }
}

/// A flag that Ctrl-C sets, so that the batch in hand is finished first.
pub fn watch_interrupt() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&flag);
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            seen.store(true, Ordering::Relaxed);
        }
    });
    flag
}

fn stopped(report: &ImportReport) -> Failure {
    Failure::refused(
        format!(
            "interrupted: {} stored, all of them whole",
            count(report.added + report.known, "turn")
        ),
        "run it again to go on; what is there is not added twice",
    )
}

fn told(report: &ImportReport, files: u64) -> String {
    let mut text = format!(
        "Imported {} of {} from {}",
        count(report.added, "new turn"),
        number(report.lines),
        count(files, "file")
    );
    if report.known > 0 {
        text.push_str(&format!("; {} there already", number(report.known)));
    }
    if report.forgotten > 0 {
        text.push_str(&format!(
            "; {} forgotten on request and left out (--insist adds them again)",
            number(report.forgotten)
        ));
    }
    text
}
