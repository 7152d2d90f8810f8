//! `icecore forget`: erasure with a receipt.

use icecore::{ForgetRequest, Millis, Receipt};
use icecore_server::wire;

use crate::app::App;
use crate::args::{ForgetArgs, ForgetWhat};
use crate::draw::{count, number};
use crate::failure::{Failure, Outcome, Status};
use crate::printer::{Printer, Tone};

/// Erases, then derives anew what stood on it.
pub async fn run(args: ForgetArgs, app: &App) -> Outcome<Status> {
    let request = request(args.what)?;
    // A person or a time concerns every memory of the tenant, a session or an
    // entry is in one.
    let memory = match request {
        ForgetRequest::Session(_) | ForgetRequest::Entry(_) => Some(app.scope.memory()),
        ForgetRequest::Subject(_) | ForgetRequest::Before(_) => app.named_memory(),
    };
    let receipt = app.memory.forget(&app.principal, memory, &request, args.dry_run).await?;
    if !args.dry_run {
        app.settle().await?;
    }
    if app.printer.is_json() {
        app.printer.line(&wire::text(&wire::Receipt::from(&receipt)))?;
        return Ok(Status::Done);
    }
    for line in receipt_lines(&receipt, &app.printer) {
        app.printer.line(&line)?;
    }
    if receipt.erased.turns + receipt.erased.entries + receipt.erased.facts == 0 {
        app.printer.talk("Nothing here matched.");
    }
    if !args.dry_run {
        app.printer.talk("Backups and exports are out of reach: erase them there too.");
    }
    Ok(Status::Done)
}

fn request(what: ForgetWhat) -> Outcome<ForgetRequest> {
    match what {
        ForgetWhat { session: Some(session), .. } => Ok(ForgetRequest::Session(session)),
        ForgetWhat { subject: Some(subject), .. } => Ok(ForgetRequest::Subject(subject)),
        ForgetWhat { entry: Some(entry), .. } => Ok(ForgetRequest::Entry(entry)),
        ForgetWhat { before, .. } => {
            Ok(ForgetRequest::Before(instant(&before.unwrap_or_default())?))
        }
    }
}

/// An RFC 3339 time, or a date, which means its beginning in UTC.
pub fn instant(text: &str) -> Outcome<Millis> {
    let full = match text.len() {
        10 => format!("{text}T00:00:00Z"),
        _ => text.to_owned(),
    };
    Millis::parse_rfc3339(&full).map_err(|error| {
        Failure::refused(error.to_string(), "write a time like 2024-05-01T10:00:00Z or 2024-05-01")
    })
}

/// The receipt as a person reads it.
pub fn receipt_lines(receipt: &Receipt, printer: &Printer) -> Vec<String> {
    let erased = receipt.erased;
    let verb = if receipt.dry_run { "Would erase" } else { "Erased" };
    // Where workflows are not run there are none, and a line is short.
    let runs = match erased.runs {
        0 => String::new(),
        runs => format!(", {}", count(runs, "run")),
    };
    let mut lines = vec![
        format!(
            "{verb} {}, {}, {}{runs}; {} and {} rewritten or deleted",
            count(erased.turns, "turn"),
            count(erased.entries, "entry"),
            count(erased.facts, "fact"),
            count(erased.chunks, "chunk"),
            match erased.packs {
                1 => "1 pack".to_owned(),
                packs => format!("{} packs", number(packs)),
            },
        ),
        printer.paint(Tone::Dim, &format!("receipt  {}", receipt.id)),
        printer.paint(Tone::Dim, &format!("sha256   {}", receipt.sha256)),
    ];
    // On a line of its own: most memories have no dreams.
    if erased.archives > 0 {
        let archives = count(erased.archives, "archive");
        let anew = match receipt.distilled_anew {
            0 => String::new(),
            memories => format!("; distilled {} anew", count(memories, "memory")),
        };
        lines.insert(1, format!("{verb} {archives} of dreams that had read it{anew}"));
    }
    if erased.handoffs > 0 {
        let handoffs = count(erased.handoffs, "handoff");
        lines.insert(1, format!("{verb} {handoffs} that had covered it"));
    }
    lines
}
