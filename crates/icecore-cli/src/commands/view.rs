//! `icecore view`: a session as a person or a model sees it.

use icecore_server::wire;

use crate::app::App;
use crate::args::{Eyes, ViewArgs};
use crate::draw::{count, number};
use crate::failure::{Outcome, Status};
use crate::printer::Tone;
use crate::turns;

/// Shows a branch, ancestors first.
pub async fn run(args: ViewArgs, app: &App) -> Outcome<Status> {
    let view = match args.view {
        // Without a compaction the model sees what a person sees.
        Eyes::Display | Eyes::Api => {
            app.memory.view(&app.scope, &args.session, args.branch.as_deref()).await?
        }
    };
    let printer = &app.printer;
    if printer.is_json() {
        printer.line(&wire::view(&view))?;
        return Ok(Status::Done);
    }
    for turn in &view.messages {
        for line in turns::lines(turn, printer) {
            printer.line(&line)?;
        }
    }
    let foot =
        format!("{}, {} tokens", count(view.messages.len() as u64, "turn"), number(view.tokens));
    printer.talk(&printer.paint_talk(Tone::Dim, &foot));
    Ok(Status::Done)
}
