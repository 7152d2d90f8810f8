//! `icecore stats`: the layers, drawn.

use std::path::Path;

use icecore::dreams::{DreamQuery, DreamRecord};
use icecore_server::wire;

use crate::app::App;
use crate::args::StatsArgs;
use crate::draw::count;
use crate::failure::{Failure, Outcome, Status};
use crate::picture::{layers, models, plot, usage};

/// Dreams that are read at once.
const PAGE: usize = 500;

/// Draws what is there: of the memory that was named, or of the tenant.
pub async fn run(args: StatsArgs, app: &App) -> Outcome<Status> {
    if let Some(path) = &args.plot {
        draw(path, app).await?;
    }
    let stats = app.memory.stats(app.scope.tenant(), app.named_memory()).await?;
    let usage = app.host.bounds.usage(app.scope.tenant()).await?;
    if app.printer.is_json() {
        app.printer.line(&wire::text(&wire::Stats::of(app.named_memory(), &stats, &usage)))?;
        return Ok(Status::Done);
    }
    for line in layers::picture(&stats, &whose(app), &app.settings.file.memory, &app.printer) {
        app.printer.line(&line)?;
    }
    let tenant = app.scope.tenant().as_str();
    for told in
        [usage::picture(&usage, tenant, &app.printer), models::picture(&stats.models, &app.printer)]
    {
        if !told.is_empty() {
            app.printer.line("")?;
        }
        for line in told {
            app.printer.line(&line)?;
        }
    }
    Ok(Status::Done)
}

fn whose(app: &App) -> String {
    match app.named_memory() {
        Some(memory) => format!("memory {memory}"),
        None => format!("tenant {}", app.scope.tenant()),
    }
}

/// Draws the dreams into a file.
async fn draw(path: &Path, app: &App) -> Outcome<()> {
    let dreams = dreams(app).await?;
    if dreams.is_empty() {
        return Err(Failure::refused(
            "there are no dreams to plot yet",
            "`icecore dream` makes the first",
        ));
    }
    let svg = plot::dreams(&dreams, &whose(app));
    std::fs::write(path, svg).map_err(|error| {
        let message = format!("cannot write `{}`: {error}", path.display());
        Failure::refused(message, "name a file in a directory that this user can write")
    })?;
    app.printer.talk(&format!(
        "Plotted {} into {}",
        count(dreams.len() as u64, "dream"),
        path.display()
    ));
    Ok(())
}

/// All dreams, oldest first.
async fn dreams(app: &App) -> Outcome<Vec<DreamRecord>> {
    let mut query = DreamQuery {
        memory: app.named_memory().map(str::to_owned),
        limit: PAGE,
        ..DreamQuery::default()
    };
    let mut found: Vec<DreamRecord> = Vec::new();
    loop {
        let page = app.memory.dreams(app.scope.tenant(), &query).await?;
        let is_last = page.len() < PAGE;
        found.extend(page);
        if is_last {
            found.reverse();
            return Ok(found);
        }
        query.before = found.last().map(|dream| dream.position);
    }
}
