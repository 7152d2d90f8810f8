//! `icecore chat`: a conversation at a terminal.

use std::io::IsTerminal;

use crate::app::App;
use crate::args::ChatArgs;
use crate::chat::{self, Desk, Hands, Model};
use crate::failure::{Failure, Outcome, Status};
use crate::models;

/// Talks to a model, or at least to the memory.
pub async fn run(args: ChatArgs, app: &App) -> Outcome<Status> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Failure::refused(
            "the chat needs a terminal to draw on and to read from",
            "run it in one; `icecore add`, `icecore search` and `icecore context` work in pipes",
        ));
    }
    let model = models::chatting(&app.settings, args.model.as_deref()).await?;
    let profile = model.as_ref().map(|model| model.profile());
    let window = app.memory.session_window().window;
    let shown = profile.map(|profile| Model {
        name: profile.name.clone(),
        window: if profile.window > 0 { profile.window } else { window },
    });
    let is_priced =
        profile.is_some_and(|profile| profile.prices != icecore::models::Prices::default());
    let cost_before = match is_priced {
        true => Some(chat::spent(&app.memory, &app.scope).await?),
        false => None,
    };
    let hands = Hands {
        memory: app.memory.clone(),
        principal: app.principal.clone(),
        scope: app.scope.clone(),
        is_named: app.named_memory().is_some(),
        model,
        recall_tokens: app.settings.file.chat.recall_tokens,
        cost_before,
    };
    let printer = &app.printer;
    let state = chat::conversation(&args.session, shown, window, printer.is_ascii());
    chat::talk(state, Desk::new(hands), printer.is_colored()).await?;
    Ok(Status::Done)
}
