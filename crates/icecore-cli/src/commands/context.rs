//! `icecore context`: the context for a prompt, within its budget.

use icecore::{Context, ContextRequest};
use icecore_server::wire;

use crate::app::App;
use crate::args::ContextArgs;
use crate::draw::harmless;
use crate::failure::{Outcome, Status};
use crate::picture::budget;

/// Prints the text; where its tokens went goes to stderr.
pub async fn run(args: ContextArgs, app: &App) -> Outcome<Status> {
    let request = ContextRequest {
        session: args.session,
        branch: args.branch,
        query: args.query,
        budget: args.budget,
    };
    let context = app.memory.context(&app.scope, request).await?;
    print(&context, app)?;
    app.memory.write_spending().await;
    app.notices(&context.notices);
    if args.explain {
        for line in budget::explained(&context, &app.printer) {
            app.printer.talk(&line);
        }
    }
    Ok(Status::Done)
}

fn print(context: &Context, app: &App) -> Outcome<()> {
    use std::io::IsTerminal;
    match app.printer.is_json() {
        true => app.printer.line(&wire::text(&wire::ContextAnswer::of(context, false))),
        // A pipe gets it byte for byte.
        false if std::io::stdout().is_terminal() => app.printer.raw(&harmless(&context.text)),
        false => app.printer.raw(&context.text),
    }
}
