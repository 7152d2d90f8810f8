//! `icecore sessions`: what conversations are there.

use icecore::layers::SessionInfo;
use icecore_server::wire;

use crate::app::App;
use crate::draw::{clip, number, table};
use crate::failure::{Outcome, Status};
use crate::printer::Tone;

/// Lists the sessions of a memory.
pub async fn run(app: &App) -> Outcome<Status> {
    let mut sessions = app.memory.sessions(&app.scope).await?;
    // A forgotten session keeps its number and nothing else.
    sessions.retain(|session| session.turns > 0);
    if app.printer.is_json() {
        app.printer.line(&wire::text(&wire::Sessions::of(&sessions)))?;
        return Ok(Status::Done);
    }
    if sessions.is_empty() {
        app.printer.talk("No sessions yet. `icecore add` and `icecore import` begin them.");
        return Ok(Status::Done);
    }
    let head =
        ["session", "turns", "tokens", "branches", "last change"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> =
        [head].into_iter().chain(sessions.iter().map(|session| row(session, app))).collect();
    for (at, line) in table(&rows, &[1, 2, 3]).iter().enumerate() {
        let line = if at == 0 { app.printer.paint(Tone::Dim, line) } else { line.clone() };
        app.printer.line(&line)?;
    }
    Ok(Status::Done)
}

fn row(session: &SessionInfo, app: &App) -> Vec<String> {
    vec![
        clip(&session.session, app.printer.width().saturating_sub(50).max(16)),
        number(session.turns),
        number(session.tokens),
        number(session.branches.len() as u64),
        session.updated_at.to_minute(),
    ]
}
