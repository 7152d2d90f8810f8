//! `icecore add`: one turn, or turn JSONL from standard input.

use std::io::Read;

use icecore::RawTurn;
use icecore::ingest::{ImportPlan, ImportReport, Repeat};
use icecore_server::wire;

use crate::app::App;
use crate::args::AddArgs;
use crate::commands::import::refuse_if_forgotten;
use crate::draw::count;
use crate::failure::{Failure, Outcome, Status};
use crate::json;

/// Adds, then derives what is due.
pub async fn run(args: AddArgs, app: &App) -> Outcome<Status> {
    match args.text {
        Some(_) => add_one(args, app).await?,
        None => add_lines(&args.session, app).await?,
    }
    app.settle().await?;
    Ok(Status::Done)
}

async fn add_one(args: AddArgs, app: &App) -> Outcome<()> {
    let mut turn = RawTurn::new(args.role, args.text.unwrap_or_default());
    turn.name = args.name;
    let remembered = app.memory.remember(&app.scope, &args.session, vec![turn]).await?;
    if app.printer.is_json() {
        return app.printer.line(&wire::Added::from(remembered).to_json());
    }
    let id = remembered.turn_ids.join(", ");
    app.printer.line(&format!("Added {id} to session {}", shown_session(app, &args.session)))
}

async fn add_lines(session: &str, app: &App) -> Outcome<()> {
    let mut text = Vec::new();
    std::io::stdin()
        .lock()
        .read_to_end(&mut text)
        .map_err(|error| Failure::Broken(format!("cannot read standard input: {error}")))?;
    let plan = ImportPlan { session: session.to_owned(), insist: false, repeat: Repeat::Add };
    let report =
        app.memory.import_text(&app.scope, "standard input", text, &plan, |_| true).await?;
    if report.lines == 0 {
        return Err(Failure::refused(
            "no turns were given",
            "give a TEXT, or turn JSONL on standard input",
        ));
    }
    refuse_if_forgotten("what was given", &report, "import it from a file with --insist")?;
    if app.printer.is_json() {
        return app.printer.json(&added(&report));
    }
    app.printer.line(&format!(
        "Added {}{}",
        count(report.added, "turn"),
        match report.known {
            0 => String::new(),
            known => format!("; {} there already", count(known, "turn")),
        }
    ))
}

/// As the route that takes turns answers, and how many were new.
fn added(report: &ImportReport) -> serde_json::Value {
    let mut value = json::imported(report);
    value["turnIds"] = report.turn_ids.clone().into();
    value["firstSeq"] = report.seqs.map(|(first, _)| first.0).into();
    value["lastSeq"] = report.seqs.map(|(_, last)| last.0).into();
    value
}

/// A session's name as it is stored: without secrets.
fn shown_session(app: &App, session: &str) -> String {
    app.memory.shown_name(app.principal.tenant(), session).into_string()
}
