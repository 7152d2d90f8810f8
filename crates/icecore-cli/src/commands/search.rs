//! `icecore search`: what answers a query, best first.

use icecore::SearchRequest;
use icecore::recall::{DocKind, Mode};
use icecore_server::wire;

use crate::app::App;
use crate::args::{How, SearchArgs, What};
use crate::commands::forget::instant;
use crate::failure::{Outcome, Status};
use crate::picture::hits;

/// Prints ranked hits, each with why.
pub async fn run(args: SearchArgs, app: &App) -> Outcome<Status> {
    let time = |text: &Option<String>| text.as_deref().map(instant).transpose();
    let request = SearchRequest {
        limit: args.limit,
        mode: mode(args.mode),
        kinds: args.kind.iter().copied().map(kind).collect(),
        after: time(&args.after)?,
        before: time(&args.before)?,
        session: args.session,
        role: args.role,
        query: args.query,
    };
    let found = app.memory.search(&app.scope, &request).await?;
    if app.printer.is_json() {
        app.printer.line(&wire::text(&wire::Hits::from(&found)))?;
    } else {
        for line in hits::lines(&request.query, &found.hits, args.explain, &app.printer) {
            app.printer.line(&line)?;
        }
        if found.hits.is_empty() {
            app.printer.talk("Nothing here matched.");
        }
    }
    app.notices(&found.notices);
    Ok(Status::Done)
}

fn mode(how: How) -> Mode {
    match how {
        How::Hybrid => Mode::Hybrid,
        How::Lexical => Mode::Lexical,
        How::Semantic => Mode::Semantic,
    }
}

fn kind(what: What) -> DocKind {
    match what {
        What::Turn => DocKind::Turn,
        What::Summary => DocKind::Summary,
        What::Entry => DocKind::Entry,
        What::Fact => DocKind::Fact,
    }
}
