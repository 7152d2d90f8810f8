//! `icecore export`: turn JSONL out.

use icecore::formats::json::quote;
use icecore::formats::turn_jsonl::write_fields;
use icecore::{Seq, StoredTurn};

use crate::app::App;
use crate::args::ExportArgs;
use crate::draw::count;
use crate::failure::{Outcome, Status};
use crate::json;

/// Turns read and written at once.
const PAGE: usize = 500;

/// A session of this name need not stand in every line.
const DEFAULT_SESSION: &str = "default";

/// Writes every turn, page by page.
pub async fn run(args: ExportArgs, app: &App) -> Outcome<Status> {
    let sessions = match args.session {
        Some(session) => vec![session],
        None => {
            let all = app.memory.sessions(&app.scope).await?.into_iter();
            all.filter(|session| session.turns > 0).map(|session| session.session).collect()
        }
    };
    let mut expired = 0;
    for session in sessions {
        let mut after = Seq(0);
        loop {
            let page = app.memory.turns(&app.scope, &session, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            let (there, gone): (Vec<_>, Vec<_>) = page.iter().partition(|turn| turn.turn.is_some());
            expired += gone.len() as u64;
            let lines: String = there.iter().map(|turn| line(turn, args.all) + "\n").collect();
            app.printer.raw(&lines)?;
        }
    }
    if expired > 0 {
        app.printer.warn(&format!("{} left out: let go by retention", count(expired, "turn")));
    }
    Ok(Status::Done)
}

/// A turn as its line was given, or with everything that was given by default.
pub fn line(turn: &StoredTurn, all: bool) -> String {
    if all {
        return json::full_line(turn);
    }
    let named = turn.session_given || turn.session != DEFAULT_SESSION;
    let before: Vec<(&str, String)> =
        named.then(|| ("session", quote(&turn.session))).into_iter().collect();
    turn.turn.as_ref().map(|stored| write_fields(&before, stored.fields())).unwrap_or_default()
}
