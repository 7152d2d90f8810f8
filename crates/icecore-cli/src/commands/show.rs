//! `icecore show`: what an id names.

use icecore::StoredTurn;
use icecore::dreams::Checksum;
use icecore::formats::ctf;
use icecore::knowledge::EntryRecord;
use icecore::layers::{ChunkInfo, Found};
use icecore_server::wire;

use crate::app::App;
use crate::args::ShowArgs;
use crate::commands::archive;
use crate::draw::{count, number, wrap};
use crate::failure::{Failure, Outcome, Status};
use crate::json;
use crate::printer::Tone;
use crate::turns;

/// Shows a turn, a chunk with its turns, an entry, or an archive.
pub async fn run(args: ShowArgs, app: &App) -> Outcome<Status> {
    let printer = &app.printer;
    if let Some(checksum) = Checksum::parse(&args.id) {
        return archive::print(checksum, app).await;
    }
    match app.memory.find(&app.scope, &args.id).await? {
        Found::Chunk(_, turns) if args.ctf => printer.raw(&as_ctf(&turns))?,
        Found::Turn(turn) if args.ctf => printer.raw(&as_ctf(&[*turn]))?,
        Found::Entry(_) if args.ctf => {
            return Err(Failure::refused("an entry has no turns", "leave --ctf out"));
        }
        Found::Turn(turn) if printer.is_json() => printer.line(&wire::turn(&turn))?,
        Found::Chunk(chunk, turns) if printer.is_json() => {
            printer.line(&json::expanded(&chunk, &turns))?;
        }
        Found::Entry(entry) if printer.is_json() => {
            printer.json(&json::entry(&entry, app.scope.memory()))?;
        }
        Found::Turn(turn) => {
            print_turn(&turn, app)?;
        }
        Found::Chunk(chunk, turns) => print_chunk(&chunk, &turns, app)?,
        Found::Entry(entry) => print_entry(&entry, app)?,
    }
    Ok(Status::Done)
}

/// Turns as Compact Turn Format.
pub fn as_ctf(turns: &[StoredTurn]) -> String {
    let fields: Vec<_> =
        turns.iter().filter_map(|turn| Some(turn.turn.as_ref()?.fields().clone())).collect();
    ctf::encode(&fields)
}

fn print_turn(turn: &StoredTurn, app: &App) -> Outcome<()> {
    for line in turns::lines(turn, &app.printer) {
        app.printer.line(&line)?;
    }
    let place = format!(
        "  session {}, turn {} of branch {}, {}",
        turn.session, turn.ordinal, turn.branch, turn.tier
    );
    app.printer.line(&app.printer.paint(Tone::Dim, &place))
}

fn print_chunk(chunk: &ChunkInfo, turns: &[StoredTurn], app: &App) -> Outcome<()> {
    let printer = &app.printer;
    printer.line(&format!(
        "{}  {}, {}, {} tokens, session {}",
        printer.paint(Tone::Title, &chunk.id.to_string()),
        chunk.tier,
        count(chunk.turns, "turn"),
        number(chunk.tokens),
        chunk.session,
    ))?;
    if let Some(parent) = chunk.parent {
        printer.line(&format!("parent    {parent}"))?;
    }
    if !chunk.children.is_empty() {
        let ids: Vec<String> = chunk.children.iter().map(ToString::to_string).collect();
        print_indented("children  ", &ids.join(" "), app)?;
    }
    if let Some(summary) = &chunk.summary {
        print_indented("summary   ", &summary.text, app)?;
        print_indented("themes    ", &summary.themes.join(", "), app)?;
        for fact in &summary.key_facts {
            print_indented("fact      ", fact, app)?;
        }
    }
    for turn in turns {
        printer.line("")?;
        for line in turns::lines(turn, printer) {
            printer.line(&line)?;
        }
    }
    Ok(())
}

fn print_indented(label: &str, text: &str, app: &App) -> Outcome<()> {
    if text.is_empty() {
        return Ok(());
    }
    for (at, line) in wrap(text, app.printer.width() - label.len()).into_iter().enumerate() {
        let before = if at == 0 { label.to_owned() } else { " ".repeat(label.len()) };
        app.printer.line(&format!("{before}{line}"))?;
    }
    Ok(())
}

fn print_entry(entry: &EntryRecord, app: &App) -> Outcome<()> {
    let printer = &app.printer;
    printer.line(&format!(
        "{}  entry of {}",
        printer.paint(Tone::Title, &entry.id),
        entry.created_at.to_minute()
    ))?;
    let tags: Vec<&str> = entry.tags.iter().map(|tag| tag.as_str()).collect();
    print_indented("tags      ", &tags.join(", "), app)?;
    print_indented("          ", entry.content.as_str(), app)
}
