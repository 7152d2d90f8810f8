//! `icecore reindex`: drops and rebuilds all that is derived.

use serde_json::json;

use crate::app::App;
use crate::draw::count;
use crate::failure::{Outcome, Status};
use crate::progress::Bar;

/// Rebuilds one memory.
pub async fn run(app: &App) -> Outcome<Status> {
    let model = match app.memory.model() {
        Some(model) => format!("vectors of {}", model.name),
        None => "no vectors".to_owned(),
    };
    app.printer.talk(&format!("Rebuilding summaries, words and {model}"));
    let bar = Bar::spinner(&app.printer, "rebuilding");
    let settled = app.memory.reindex(&app.scope, |done, left| bar.at(done, done + left)).await?;
    drop(bar);
    if app.printer.is_json() {
        app.printer.json(&json!({
            "branches": settled.branches,
            "summaries": settled.summaries,
            "warmed": settled.warmed,
            "cooled": settled.cooled,
        }))?;
        return Ok(Status::Done);
    }
    app.printer.line(&format!(
        "Rebuilt {} and the index of memory {}",
        count(settled.summaries, "summary"),
        app.scope.memory()
    ))?;
    Ok(Status::Done)
}
