//! `icecore dream`: what is due, distilled under a budget.

use icecore::MemoryError;
use icecore::dreams::dream::INDEX_PATH;
use icecore::dreams::{Dream, DreamRecord, DreamRequest};
use icecore_server::wire;

use crate::app::App;
use crate::args::{DreamAction, DreamArgs, DreamHow};
use crate::draw::{bytes, count, harmless, number, wrap};
use crate::failure::{Outcome, Status};
use crate::printer::{Printer, Tone};
use crate::progress::Bar;

/// Dreams, shows what a dream would come to, or takes one back.
pub async fn run(args: DreamArgs, app: &App) -> Outcome<Status> {
    match args.action {
        Some(DreamAction::Undo { run }) => undo(&run, app).await,
        None if args.how.dry_run => preview(&args.how, app).await,
        None => dream(&args.how, app).await,
    }
}

fn request(how: &DreamHow) -> Outcome<DreamRequest> {
    let budget = match how.budget {
        None => None,
        Some(budget) => match u64::try_from(budget) {
            Ok(budget) if budget > 0 => Some(budget),
            _ => return Err(MemoryError::NoBudget { budget }.into()),
        },
    };
    Ok(DreamRequest::manual(budget))
}

async fn dream(how: &DreamHow, app: &App) -> Outcome<Status> {
    let request = request(how)?;
    let bar = Bar::new(&app.printer, "looking");
    let tell = |progress: icecore::dreams::DreamProgress| {
        bar.doing(progress.phase.as_str());
        bar.at(progress.tokens, progress.budget);
    };
    let done = app.memory.dream(&app.scope, request, tell).await?;
    drop(bar);
    if app.printer.is_json() {
        app.printer.line(&wire::text(&wire::DreamRow::from(&done)))?;
    } else {
        for line in lines(&done, &app.printer) {
            app.printer.line(&line)?;
        }
    }
    let record = &done.record;
    app.printer.talk(&format!(
        "`icecore archive show {}` reads it, `icecore dream undo {}` takes it back.",
        &record.archive.to_string()[..12],
        record.run
    ));
    app.settle().await?;
    Ok(Status::Done)
}

/// A dream as a person reads it.
pub fn lines(done: &Dream, printer: &Printer) -> Vec<String> {
    let record = &done.record;
    let head = match done.unchanged {
        true => format!("Nothing is due: the dream of {} stands.", record.created_at.to_minute()),
        false => told(record),
    };
    let figures = record.figures;
    let mut lines = vec![head];
    let mut fact = |name: &str, value: &str| {
        lines.push(format!("  {} {value}", printer.paint(Tone::Dim, &format!("{name:<8}"))));
    };
    fact(
        "tokens",
        &format!(
            "{} read, {} written, {} allowed",
            number(figures.input_tokens),
            number(figures.output_tokens),
            number(figures.budget)
        ),
    );
    fact(
        "stands",
        &format!(
            "{} for {} of {}",
            count(figures.lines, "line"),
            count(figures.source_count, "source"),
            bytes(figures.bytes_before)
        ),
    );
    fact("entry", &record.output);
    fact("archive", &record.archive.to_string());
    if record.index_updated {
        fact("index", INDEX_PATH);
    }
    fact("run", &record.run);
    lines
}

fn told(record: &DreamRecord) -> String {
    let figures = record.figures;
    let left = match figures.remaining {
        0 => "nothing is left".to_owned(),
        left => format!("{} still due: dream again", count(left, "source")),
    };
    format!(
        "Distilled {} of memory {} into {}; {left}.",
        count(figures.source_count, "source"),
        harmless(record.scope.memory()),
        count(figures.lines, "line"),
    )
}

async fn preview(how: &DreamHow, app: &App) -> Outcome<Status> {
    let printer = &app.printer;
    let preview = app.memory.preview_dream(&app.scope, request(how)?).await?;
    let shown = wire::Previewed::of(app.scope.memory(), &preview);
    if printer.is_json() {
        printer.line(&wire::text(&shown))?;
        return Ok(Status::Done);
    }
    print_distillate(&preview.archive.distillate.text(), printer)?;
    let (added, removed) = shown.difference();
    if preview.before.is_some() {
        printer.line("")?;
        let since = match added.is_empty() && removed.is_empty() {
            true => "The last dream says the same.",
            false => "Against the last dream:",
        };
        printer.line(&printer.paint(Tone::Title, since))?;
        for (sign, tone, lines) in [("+", Tone::Good, added), ("-", Tone::Bad, removed)] {
            for line in lines {
                printer.line(&printer.paint(tone, &format!("{sign} {}", harmless(line))))?;
            }
        }
    }
    printer.talk(&format!(
        "Would read {} and write {} of {} tokens: {}, {} left; at least {} are needed. Nothing was written.",
        number(preview.input_tokens),
        number(preview.output_tokens),
        number(preview.budget),
        count(preview.source_count, "source"),
        number(preview.remaining),
        number(preview.minimum),
    ));
    Ok(Status::Done)
}

/// A distillate as a person reads it.
pub fn print_distillate(text: &str, printer: &Printer) -> Outcome<()> {
    for line in harmless(text).lines() {
        match line.strip_prefix("- ") {
            Some(said) => {
                for (at, piece) in wrap(said, printer.width() - 2).into_iter().enumerate() {
                    printer.line(&format!("{}{piece}", if at == 0 { "- " } else { "  " }))?;
                }
            }
            None => printer.line(&printer.paint(Tone::Title, line))?,
        }
    }
    Ok(())
}

async fn undo(run: &str, app: &App) -> Outcome<Status> {
    let undone = app.memory.undo_dream(app.scope.tenant(), run).await?;
    app.settle().await?;
    if app.printer.is_json() {
        app.printer.line(&wire::text(&wire::DreamRow::from(&undone)))?;
        return Ok(Status::Done);
    }
    app.printer.line(&format!(
        "Undone: what dream {} of memory {} stood for is in force again, and due.",
        undone.number,
        harmless(undone.scope.memory())
    ))?;
    Ok(Status::Done)
}
