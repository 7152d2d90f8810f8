//! `icecore serve`: the host.

use crate::app::App;
use crate::args::ServeArgs;
use crate::failure::{Failure, Outcome, Status};

/// Serves until it is told to stop.
pub async fn run(_args: ServeArgs, _app: &App) -> Outcome<Status> {
    Err(Failure::Broken("the server is not linked yet".to_owned()))
}
