//! `icecore view`: a session as a person or a model sees it.

use icecore::StoredTurn;
use icecore_server::wire;

use super::compact::print_handoff;
use crate::app::App;
use crate::args::{Eyes, ViewArgs};
use crate::draw::{count, number};
use crate::failure::{Outcome, Status};
use crate::printer::Tone;
use crate::turns;

/// Shows a branch, ancestors first.
pub async fn run(args: ViewArgs, app: &App) -> Outcome<Status> {
    match args.view {
        Eyes::Display => display(&args, app).await,
        Eyes::Api => api(&args, app).await,
    }
}

async fn display(args: &ViewArgs, app: &App) -> Outcome<Status> {
    let view = app.memory.view(&app.scope, &args.session, args.branch.as_deref()).await?;
    if app.printer.is_json() {
        app.printer.line(&wire::view(&view))?;
        return Ok(Status::Done);
    }
    print(&view.messages, app)?;
    foot(&count(view.messages.len() as u64, "turn"), view.tokens, app);
    Ok(Status::Done)
}

async fn api(args: &ViewArgs, app: &App) -> Outcome<Status> {
    let view = app.memory.api_view(&app.scope, &args.session, args.branch.as_deref()).await?;
    let printer = &app.printer;
    if printer.is_json() {
        printer.line(&wire::api_view(&view))?;
        return Ok(Status::Done);
    }
    print(&view.system, app)?;
    // One that had no room for a word is no message.
    let handoff = view.handoff.as_ref().filter(|handoff| !handoff.text.is_empty());
    if let Some(handoff) = handoff {
        let about = format!("{}  {} tokens", handoff.at.to_minute(), number(handoff.tokens));
        let head = format!("handoff {}", handoff.number);
        let about = printer.paint(Tone::Dim, &about);
        printer.line(&format!("{}  {about}", printer.paint(Tone::Title, &head)))?;
        print_handoff(&handoff.text, printer)?;
        printer.line("")?;
    }
    print(&view.turns, app)?;
    let turns = count((view.system.len() + view.turns.len()) as u64, "turn");
    let shown = match handoff {
        Some(_) => format!("a handoff and {turns}"),
        None => turns,
    };
    foot(&shown, view.tokens, app);
    Ok(Status::Done)
}

fn print(shown: &[StoredTurn], app: &App) -> Outcome<()> {
    for turn in shown {
        for line in turns::lines(turn, &app.printer) {
            app.printer.line(&line)?;
        }
    }
    Ok(())
}

fn foot(shown: &str, tokens: u64, app: &App) {
    let foot = format!("{shown}, {} tokens", number(tokens));
    app.printer.talk(&app.printer.paint_talk(Tone::Dim, &foot));
}
