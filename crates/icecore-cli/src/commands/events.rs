//! `icecore events`: what happened, without what was said.

use std::time::Duration;

use icecore::ids::Position;
use icecore::maintenance::EventRecord;
use icecore_server::wire;

use crate::app::App;
use crate::args::EventsArgs;
use crate::draw::{clip, right};
use crate::failure::{Outcome, Status};
use crate::printer::Tone;

/// Events read at once.
const PAGE: usize = 500;

/// Another process may write, so a follower looks this often.
const POLL: Duration = Duration::from_millis(500);

/// Prints events in order, and with `--follow` those to come.
pub async fn run(args: EventsArgs, app: &App) -> Outcome<Status> {
    let mut after = Position(args.after);
    let interrupt = tokio::signal::ctrl_c();
    tokio::pin!(interrupt);
    loop {
        let page = app.memory.events(app.scope.tenant(), app.named_memory(), after, PAGE).await?;
        for event in &page {
            print(event, app)?;
            after = event.position;
        }
        if page.len() == PAGE {
            continue;
        }
        if !args.follow {
            return Ok(Status::Done);
        }
        tokio::select! {
            _ = &mut interrupt => return Ok(Status::Done),
            () = tokio::time::sleep(POLL) => {}
        }
    }
}

fn print(event: &EventRecord, app: &App) -> Outcome<()> {
    let printer = &app.printer;
    if printer.is_json() {
        return printer.line(&wire::text(&wire::Event::from(event)));
    }
    let payload = clip(&event.payload, printer.width().saturating_sub(52).max(24));
    printer.line(&format!(
        "{}  {}  {:<18} {}",
        printer.paint(Tone::Dim, &right(&event.position.to_string(), 6)),
        event.at.to_minute(),
        event.kind,
        printer.paint(Tone::Dim, &payload)
    ))
}
