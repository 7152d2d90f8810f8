//! Erasure, with a receipt.

use axum::extract::State;
use axum::response::Response;
use icecore::ForgetRequest;

use crate::app::Shared;
use crate::auth::Writer;
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::{Attempt, replay};
use crate::params::Params;
use crate::wire;

const OPERATION: &str = "POST /forget";

const FIELDS: [&str; 6] = ["session", "subject", "before", "entry", "dryRun", "memoryRef"];

/// Forgets a session, a subject, what is before a time, or an entry. By subject
/// or time the whole tenant is meant unless a memory is named.
pub(crate) async fn forget(
    State(app): State<Shared>,
    Writer(caller): Writer,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    // Elsewhere an unknown field is ignored. Here a slip in `dryRun` would erase.
    fields.only(&FIELDS)?;
    let request = what(&fields)?;
    let dry_run = fields.flag("dryRun")?;
    let memory = fields.memory(params.memory()?)?;
    let memory = match request {
        ForgetRequest::Session(_) | ForgetRequest::Entry(_) => {
            Some(caller.scope(&app, memory.as_deref()).await?.memory().to_owned())
        }
        ForgetRequest::Subject(_) | ForgetRequest::Before(_) => {
            caller.filter(&app, memory.as_deref()).await?
        }
    };

    let attempt = Attempt::begin(&app, &caller, OPERATION, &posted).await;
    if let Some(attempt) = &attempt
        && let Some(outcome) = attempt.earlier(&app).await?
    {
        return Ok(replay(outcome.status, outcome.body));
    }
    // Before and after: a context built meanwhile may still hold what goes.
    app.answers.forget(caller.tenant());
    let memory = memory.as_deref();
    let receipt = app.memory.forget(caller.principal(), memory, &request, dry_run).await?;
    app.answers.forget(caller.tenant());
    let body = wire::receipt(&receipt);
    if let Some(attempt) = attempt {
        attempt.keep(&app, &body).await?;
    }
    Ok(wire::ok(body))
}

/// Exactly one thing to forget.
fn what(fields: &Fields<'_>) -> Result<ForgetRequest, ApiError> {
    let given = (
        fields.text("session")?,
        fields.text("subject")?,
        fields.time("before")?,
        fields.text("entry")?,
    );
    match given {
        (Some(session), None, None, None) => Ok(ForgetRequest::Session(session)),
        (None, Some(subject), None, None) if subject.is_empty() => {
            Err(ApiError::invalid("field `subject` is empty"))
        }
        (None, Some(subject), None, None) => Ok(ForgetRequest::Subject(subject)),
        (None, None, Some(before), None) => Ok(ForgetRequest::Before(before)),
        (None, None, None, Some(entry)) => Ok(ForgetRequest::Entry(entry)),
        _ => {
            Err(ApiError::invalid("give exactly one of `session`, `subject`, `before` and `entry`"))
        }
    }
}
