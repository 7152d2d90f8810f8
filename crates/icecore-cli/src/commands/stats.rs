//! `icecore stats`: the layers, drawn.

use icecore_server::wire;

use crate::app::App;
use crate::failure::{Outcome, Status};
use crate::picture::layers;

/// Draws what is there: of the memory that was named, or of the tenant.
pub async fn run(app: &App) -> Outcome<Status> {
    let stats = app.memory.stats(app.scope.tenant(), app.named_memory()).await?;
    if app.printer.is_json() {
        app.printer.line(&wire::text(&wire::Stats::of(app.named_memory(), &stats)))?;
        return Ok(Status::Done);
    }
    let whose = match app.named_memory() {
        Some(memory) => format!("memory {memory}"),
        None => format!("tenant {}", app.scope.tenant()),
    };
    for line in layers::picture(&stats, &whose, &app.settings.file.memory, &app.printer) {
        app.printer.line(&line)?;
    }
    Ok(Status::Done)
}
