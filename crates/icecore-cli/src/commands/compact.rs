//! `icecore compact`: a session goes on in less room.

use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use icecore::MemoryError;
use icecore::sessions::{CompactRequest, Compacted, HandoffInfo, SessionWindow};
use icecore_server::wire::CompactedRow;

use crate::app::App;
use crate::args::CompactArgs;
use crate::draw::{harmless, number, wrap};
use crate::failure::{Failure, Outcome, Status};
use crate::printer::{Printer, Tone};

/// Compacts a session, or lets a person correct its handoff.
pub async fn run(args: CompactArgs, app: &App) -> Outcome<Status> {
    let done = match args.edit {
        true => edited(&args, app).await?,
        false => Some(compacted(&args, app).await?),
    };
    let Some(done) = done else {
        app.printer.talk("The handoff was left as it is.");
        return Ok(Status::Done);
    };
    for notice in &done.notices {
        app.printer.warn(notice);
    }
    if app.printer.is_json() {
        app.printer.line(&CompactedRow::from(&done).to_json())?;
    } else {
        print_handoff(&done.handoff.text, &app.printer)?;
        app.printer.line("")?;
        app.printer.line(&told(&done))?;
    }
    let hint = "`icecore view --view api` shows what a model is sent now, `icecore compact --edit` corrects it.";
    app.printer.talk(&app.printer.paint_talk(Tone::Dim, hint));
    app.settle().await?;
    Ok(Status::Done)
}

async fn compacted(args: &CompactArgs, app: &App) -> Outcome<Compacted> {
    let usual = app.memory.session_window();
    let window = SessionWindow {
        window: args.window.unwrap_or(usual.window),
        reserve: args.reserve.unwrap_or(usual.reserve),
    };
    let request = CompactRequest {
        session: args.session.clone(),
        branch: args.branch.clone(),
        window: Some(window),
        ..CompactRequest::default()
    };
    Ok(app.memory.compact_session(&app.scope, &request).await?)
}

/// What a person made of the handoff; nothing if they left it as it is.
async fn edited(args: &CompactArgs, app: &App) -> Outcome<Option<Compacted>> {
    let branch = args.branch.as_deref();
    let handoff = match app.memory.handoff(&app.scope, &args.session, branch).await {
        Err(MemoryError::NoHandoff { .. }) => compacted(args, app).await?.handoff,
        handoff => handoff?,
    };
    let text = match &args.from {
        Some(path) => read(path)?,
        None => in_editor(&handoff)?,
    };
    if text.trim().is_empty() {
        return Err(Failure::refused(
            "the correction is empty",
            "nothing was changed; a handoff has to say something",
        ));
    }
    if text.trim_end() == handoff.text.trim_end() {
        return Ok(None);
    }
    let (id, version) = (handoff.id.as_str(), handoff.version);
    let memory = &app.memory;
    let done = memory.edit_handoff(&app.scope, &args.session, branch, id, version, &text).await?;
    Ok(Some(done))
}

fn read(path: &Path) -> Outcome<String> {
    let mut text = String::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().read_to_string(&mut text).map(|_| ()),
        false => std::fs::read_to_string(path).map(|found| text = found),
    };
    read.map_err(|error| {
        Failure::refused(
            format!("cannot read `{}`: {error}", path.display()),
            "name a file of UTF-8 text, or - for standard input",
        )
    })?;
    Ok(text)
}

/// What a person's editor leaves of it.
fn in_editor(handoff: &HandoffInfo) -> Outcome<String> {
    let named = |name: &str| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).ok_or_else(|| {
        Failure::refused(
            "there is no editor: neither VISUAL nor EDITOR is set",
            "set one of them, or give the text with `--from FILE`",
        )
    })?;
    let file = tempfile::Builder::new()
        .prefix("icecore-handoff-")
        .suffix(".md")
        .tempfile()
        .and_then(|file| std::fs::write(file.path(), handoff.text.as_str()).map(|()| file))
        .map_err(|error| Failure::Broken(format!("cannot write a file to edit: {error}")))?;
    // The variable may hold flags as well, such as `code --wait`.
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or_default();
    let ended = Command::new(program).args(words).arg(file.path()).status();
    match ended {
        Ok(status) if status.success() => read(file.path()),
        Ok(status) => Err(Failure::refused(
            format!("the editor `{program}` ended with {status}"),
            "nothing was changed",
        )),
        Err(error) => Err(Failure::refused(
            format!("cannot start the editor `{program}`: {error}"),
            "set VISUAL or EDITOR to one that is installed, or give the text with `--from FILE`",
        )),
    }
}

/// A handoff as a person reads it.
pub fn print_handoff(text: &str, printer: &Printer) -> Outcome<()> {
    for line in harmless(text).lines() {
        match line.strip_prefix("- ") {
            Some(said) => {
                for (at, piece) in wrap(said, printer.width() - 2).into_iter().enumerate() {
                    printer.line(&format!("{}{piece}", if at == 0 { "- " } else { "  " }))?;
                }
            }
            None if line.starts_with('[') => {
                for piece in wrap(line, printer.width()) {
                    printer.line(&printer.paint(Tone::Dim, &piece))?;
                }
            }
            None => printer.line(&printer.paint(Tone::Title, line))?,
        }
    }
    Ok(())
}

fn told(done: &Compacted) -> String {
    format!(
        "Handoff {} by {}: a model is sent {} tokens instead of {}.",
        done.handoff.number,
        done.handoff.made_by,
        number(done.tokens_after),
        number(done.tokens_before)
    )
}
