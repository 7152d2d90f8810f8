//! `icecore archive`: the packs that cold bodies lie in.

use icecore::PackReport;
use serde_json::json;

use crate::app::App;
use crate::args::{ArchiveAction, ArchiveArgs};
use crate::draw::{bytes, count, table};
use crate::failure::{Failure, Outcome, Status};
use crate::json;
use crate::printer::Tone;
use crate::progress::Bar;

/// Lists or verifies.
pub async fn run(args: ArchiveArgs, app: &App) -> Outcome<Status> {
    match args.action {
        ArchiveAction::List => list(app).await,
        ArchiveAction::Verify { id } => verify(id.as_deref(), app).await,
    }
}

async fn list(app: &App) -> Outcome<Status> {
    let mut packs = app.memory.packs(Some(app.scope.tenant())).await?;
    packs.retain(|report| is_mine(report, app));
    if app.printer.is_json() {
        let packs: Vec<_> = packs.iter().map(json::pack).collect();
        app.printer.json(&json!({ "archives": [], "packs": packs }))?;
        return Ok(Status::Done);
    }
    if packs.is_empty() {
        app.printer
            .talk("No packs yet: a macro is packed once all its turns have left the hot tier.");
        return Ok(Status::Done);
    }
    let head = ["pack", "holds", "bytes", "written", "memory"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = [head].into_iter().chain(packs.iter().map(row)).collect();
    for (at, line) in table(&rows, &[2]).iter().enumerate() {
        let line = if at == 0 { app.printer.paint(Tone::Dim, line) } else { line.clone() };
        app.printer.line(&line)?;
    }
    Ok(Status::Done)
}

async fn verify(id: Option<&str>, app: &App) -> Outcome<Status> {
    let bar = Bar::new(&app.printer, "verifying");
    let mut packs = app
        .memory
        .verify_packs(Some(app.scope.tenant()), |done, total| bar.at(done, total))
        .await?;
    drop(bar);
    packs.retain(|report| is_mine(report, app) && id.is_none_or(|id| is_named(report, id)));
    if let Some(id) = id.filter(|_| packs.is_empty()) {
        return Err(Failure::refused(
            format!("there is no pack `{id}`"),
            "`icecore archive list` shows them",
        ));
    }
    let problems: Vec<&String> =
        packs.iter().filter_map(|report| report.problem.as_ref()).collect();
    if app.printer.is_json() {
        let list: Vec<_> = packs.iter().map(json::pack).collect();
        app.printer.json(
            &json!({ "ok": problems.is_empty(), "archives": [], "packs": list, "problems": problems }),
        )?;
    } else {
        tell(packs.len() as u64, &problems, app)?;
    }
    Ok(if problems.is_empty() { Status::Done } else { Status::Refused })
}

fn tell(packs: u64, problems: &[&String], app: &App) -> Outcome<()> {
    let printer = &app.printer;
    if problems.is_empty() {
        return printer.line(&format!(
            "{} {} read, re-hashed and decoded",
            printer.paint(Tone::Good, "ok:"),
            count(packs, "pack")
        ));
    }
    for problem in problems {
        printer.line(&format!("{} {problem}", printer.paint(Tone::Bad, "damaged:")))?;
    }
    printer.hint("restore the file from a backup; the other packs are whole");
    Ok(())
}

fn is_mine(report: &PackReport, app: &App) -> bool {
    app.named_memory().is_none_or(|memory| report.pack.scope.memory() == memory)
}

fn is_named(report: &PackReport, id: &str) -> bool {
    report.pack.name == id || report.pack.id.to_string() == id
}

fn row(report: &PackReport) -> Vec<String> {
    let pack = &report.pack;
    vec![
        pack.name.clone(),
        pack.id.to_string(),
        bytes(pack.bytes),
        pack.created_at.to_minute(),
        pack.scope.memory().to_owned(),
    ]
}
