//! `icecore health`: whether a host lives, for those who watch it.

use std::time::Duration;

use icecore_http::{BlockingClient, CallError};
use serde_json::json;

use crate::args::HealthArgs;
use crate::failure::{Failure, Outcome, Status};
use crate::printer::Printer;
use crate::settings::Settings;

/// A host that takes longer is as good as gone.
const PATIENCE: Duration = Duration::from_secs(4);

/// A host that lives says so in fewer bytes.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Asks a host and tells what it says.
pub fn run(args: &HealthArgs, settings: &Settings, printer: &Printer) -> Outcome<Status> {
    let here = format!("http://{}", settings.file.server.listen);
    let base = args.url.as_deref().unwrap_or(&here).trim_end_matches('/');
    let path = if args.ready { "/readyz" } else { "/healthz" };
    let asked = BlockingClient::new(base).map_err(CallError::Invalid).and_then(|client| {
        client.call(|client| client.get(format!("{base}{path}")), PATIENCE, MAX_ANSWER_BYTES)
    });
    let (trouble, hint) = match asked {
        Ok(answer) if (200..300).contains(&answer.status) => {
            printer.talk("The host is well");
            if printer.is_json() {
                printer.json(&json!({ "ok": true }))?;
            }
            return Ok(Status::Done);
        }
        Ok(answer) => (format!("it answers {}", answer.status), "its log says why"),
        Err(error) => (error.to_string(), "is `icecore serve` running there? name it with --url"),
    };
    if printer.is_json() {
        printer.json(&json!({ "ok": false }))?;
    }
    Err(Failure::refused(format!("the host is not well: {trouble}"), hint))
}
