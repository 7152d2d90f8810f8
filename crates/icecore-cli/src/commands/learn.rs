//! `icecore learn`: what is known, and what people say of it.

use icecore::knowledge::{FactInfo, FactKind, FactQuery, FactStatus};
use icecore_server::wire;

use crate::app::App;
use crate::args::{LearnAction, LearnArgs, LearnWhich};
use crate::draw::{count, harmless, left, wrap};
use crate::failure::{Failure, Outcome, Status};
use crate::printer::{Printer, Tone};

/// Lists facts, adds one, or takes a verdict.
pub async fn run(args: LearnArgs, app: &App) -> Outcome<Status> {
    let lists = matches!(args.action, None | Some(LearnAction::List(_)));
    let facts = match args.action {
        None => list(args.which, app).await?,
        Some(LearnAction::List(which)) => list(which, app).await?,
        Some(LearnAction::Add { text, kind: given, subject }) => {
            let given = given.as_deref().map(kind).transpose()?;
            app.memory.learn(&app.scope, &text, given, subject.as_deref()).await?
        }
        Some(LearnAction::Confirm { id }) => vec![app.memory.confirm(&app.scope, &id).await?],
        Some(LearnAction::Reject { id }) => vec![app.memory.reject(&app.scope, &id).await?],
    };
    if app.printer.is_json() {
        app.printer.line(&wire::text(&wire::Facts::of(&facts)))?;
        return Ok(Status::Done);
    }
    if facts.is_empty() {
        app.printer.talk("No facts yet. They are drawn from turns; `icecore learn add` tells one.");
        return Ok(Status::Done);
    }
    for fact in &facts {
        for line in lines(fact, &app.printer) {
            app.printer.line(&line)?;
        }
    }
    if lists {
        let number = count(facts.len() as u64, "fact");
        app.printer.talk(&format!("{number}; `icecore learn reject ID` takes out what is wrong"));
    }
    Ok(Status::Done)
}

async fn list(which: LearnWhich, app: &App) -> Outcome<Vec<FactInfo>> {
    let query = FactQuery {
        kind: which.kind.as_deref().map(kind).transpose()?,
        subject: which.subject,
        query: which.query,
        all: which.all,
        ..FactQuery::default()
    };
    Ok(app.memory.facts(&app.scope, &query).await?)
}

fn kind(word: &str) -> Outcome<FactKind> {
    FactKind::parse(word).ok_or_else(|| {
        let known = FactKind::ALL.map(FactKind::as_str).join(", ");
        Failure::refused(
            format!("`{}` is no kind of fact", harmless(word)),
            format!("kinds are {known}"),
        )
    })
}

/// Kind, sentence, what supports it, id and since when.
fn lines(fact: &FactInfo, printer: &Printer) -> Vec<String> {
    const KIND: usize = 13;
    let room = printer.width() - KIND;
    let indent = " ".repeat(KIND);
    let mut lines = Vec::new();
    for (at, line) in wrap(&fact.text, room).into_iter().enumerate() {
        let label = match at {
            0 => printer.paint(Tone::Warm, &left(fact.kind.as_str(), KIND)),
            _ => indent.clone(),
        };
        lines.push(format!("{label}{}", printer.paint(Tone::Title, &line)));
    }
    for source in &fact.sources {
        let quote = format!("“{}” {}", source.quote, source.turn_id);
        let wrapped = wrap(&quote, room).into_iter();
        lines.extend(wrapped.map(|line| format!("{indent}{}", printer.paint(Tone::Dim, &line))));
    }
    let tone = match fact.status {
        FactStatus::Auto => Tone::Dim,
        FactStatus::Confirmed => Tone::Good,
        FactStatus::Rejected => Tone::Bad,
        FactStatus::Superseded => Tone::Note,
    };
    let span = match fact.valid_to {
        Some(to) => format!("{} to {}", fact.valid_from.to_date(), to.to_date()),
        None => format!("since {}", fact.valid_from.to_date()),
    };
    lines.push(format!(
        "{indent}{}  {}  {}",
        printer.paint(tone, fact.status.as_str()),
        printer.paint(Tone::Dim, &span),
        printer.paint(Tone::Dim, &fact.id),
    ));
    lines
}
