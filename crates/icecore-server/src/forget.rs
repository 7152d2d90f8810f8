//! Erasure, with a receipt.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use icecore::{ForgetRequest, Millis};
use icecore_host::outcomes::OutcomeBody;
use utoipa::ToSchema;

use crate::app::Shared;
use crate::auth::Writer;
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::{Attempt, replay};
use crate::params::{InTenant, Params};
use crate::wire;

const OPERATION: &str = "POST /forget";

const FIELDS: [&str; 6] = ["session", "subject", "before", "entry", "dryRun", "memoryRef"];

/// What to forget: exactly one of `session`, `subject`, `before` and `entry`.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
struct ForgetBody {
    /// Which memory: of a session or an entry `default` where none is named, of
    /// a subject or a time all of the tenant's.
    memory_ref: Option<String>,
    /// A session by name.
    #[schema(example = "trip")]
    session: Option<String>,
    /// What a person said, by the `name` of the turns, and entries tagged
    /// `subject:NAME`.
    subject: Option<String>,
    /// Turns and entries whose own timestamp is before this; of all memories also what
    /// runs hold that were made before this and have ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    before: Option<Millis>,
    /// An entry by id.
    entry: Option<String>,
    /// Only says what would be erased.
    #[schema(value_type = Option<bool>, example = true)]
    dry_run: bool,
}

impl ForgetBody {
    fn read(fields: &Fields<'_>, params: &Params) -> Result<Self, ApiError> {
        // Elsewhere an unknown field is ignored. Here a slip in `dryRun` would erase.
        fields.only(&FIELDS)?;
        Ok(Self {
            session: fields.text("session")?,
            subject: fields.text("subject")?,
            before: fields.time("before")?,
            entry: fields.text("entry")?,
            dry_run: fields.flag("dryRun")?,
            memory_ref: fields.memory(params.memory()?)?,
        })
    }

    /// Exactly one thing to forget.
    fn what(&self) -> Result<ForgetRequest, ApiError> {
        let named = |name: &Option<String>| name.clone();
        match (named(&self.session), named(&self.subject), self.before, named(&self.entry)) {
            (Some(session), None, None, None) => Ok(ForgetRequest::Session(session)),
            (None, Some(subject), None, None) if subject.is_empty() => {
                Err(ApiError::invalid("field `subject` is empty"))
            }
            (None, Some(subject), None, None) => Ok(ForgetRequest::Subject(subject)),
            (None, None, Some(before), None) => Ok(ForgetRequest::Before(before)),
            (None, None, None, Some(entry)) => Ok(ForgetRequest::Entry(entry)),
            _ => Err(ApiError::invalid(
                "give exactly one of `session`, `subject`, `before` and `entry`",
            )),
        }
    }
}

/// Forgets a session, a subject, what is before a time, or an entry.
///
/// By subject or time the whole tenant is meant unless a memory is named.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/forget",
    operation_id = "forget",
    tag = "forgetting",
    params(InTenant),
    request_body(content = ForgetBody, example = json!({"session": "trip", "dryRun": true})),
    responses((status = 200, description = "The receipt", body = wire::Receipt))
)]
pub(crate) async fn forget(
    State(app): State<Shared>,
    Writer(caller): Writer,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    let body = ForgetBody::read(&Fields::parse(&posted.bytes)?, &params)?;
    let (request, memory) = (body.what()?, body.memory_ref.as_deref());
    let memory = match request {
        ForgetRequest::Session(_) | ForgetRequest::Entry(_) => {
            Some(caller.scope(&app, memory).await?.memory().to_owned())
        }
        ForgetRequest::Subject(_) | ForgetRequest::Before(_) => caller.filter(&app, memory).await?,
    };

    let attempt = Attempt::begin(&app, &caller, OPERATION, &posted).await?;
    if let Some(attempt) = &attempt
        && let Some(outcome) = attempt.earlier(&app).await?
    {
        return Ok(replay(outcome.code, outcome.body));
    }
    // Before and after: a context built meanwhile may still hold what goes.
    app.answers.forget(caller.tenant());
    let memory = memory.as_deref();
    let receipt = app.memory.forget(caller.principal(), memory, &request, body.dry_run).await?;
    app.answers.forget(caller.tenant());
    let body = wire::text(&wire::Receipt::from(&receipt));
    if let Some(attempt) = attempt {
        attempt.keep(&app, StatusCode::OK, OutcomeBody::Ids(body.clone())).await?;
    }
    Ok(wire::ok(body))
}
