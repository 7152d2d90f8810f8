//! Facts: what is known, and what people say of it.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use icecore::Scope;
use icecore::knowledge::{FactInfo, FactKind, FactQuery, FactStatus};
use icecore_host::outcomes::{OutcomeBody, StoredOutcome};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::app::{App, Shared};
use crate::auth::{Reader, Writer};
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::{Attempt, replay};
use crate::params::{InMemory, PageByName, Params, Segment};
use crate::wire;

/// Which facts are listed.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes what `list` reads")]
struct FactParams {
    /// Only those of this status.
    status: Option<String>,
    /// Only those of this kind.
    kind: Option<String>,
    /// Only those about this.
    subject: Option<String>,
    /// Only those that hold these words.
    query: Option<String>,
    /// Also what was rejected or superseded.
    all: Option<bool>,
}

/// Something that a person tells.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
struct FactBody {
    /// Which memory; `default` where none is named.
    memory_ref: Option<String>,
    /// What is so.
    #[schema(example = "Ana lives in Lisbon.")]
    text: String,
    /// What kind of fact; worked out from the text where none is given.
    #[schema(value_type = Option<String>)]
    kind: Option<FactKind>,
    /// Whom or what it is about; worked out from the text where none is given.
    subject: Option<String>,
}

impl FactBody {
    fn read(fields: &Fields<'_>, params: &Params) -> Result<Self, ApiError> {
        let missing = || ApiError::invalid("field `text` is missing");
        Ok(Self {
            memory_ref: fields.memory(params.memory()?)?,
            text: fields.text("text")?.ok_or_else(missing)?,
            kind: fields.text("kind")?.as_deref().map(kind).transpose()?,
            subject: fields.text("subject")?,
        })
    }
}

/// What goes with a verdict. It needs no body, but one may name the memory.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
struct VerdictBody {
    /// Which memory; `default` where none is named.
    memory_ref: Option<String>,
}

impl VerdictBody {
    fn read(posted: &Posted, params: &Params) -> Result<Self, ApiError> {
        let memory_ref = match posted.bytes.is_empty() {
            true => params.memory()?.map(str::to_owned),
            false => Fields::parse(&posted.bytes)?.memory(params.memory()?)?,
        };
        Ok(Self { memory_ref })
    }
}

/// The facts that hold, or those of a `status`; with `all=true` also what was
/// rejected or superseded. Paged as sessions are.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/facts",
    operation_id = "listFacts",
    tag = "facts",
    params(InMemory, FactParams, PageByName),
    responses((status = 200, description = "The facts", body = wire::Facts))
)]
pub(crate) async fn list(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    let all = match params.text("all")? {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(ApiError::invalid("parameter `all` must be `true` or `false`")),
    };
    let query = FactQuery {
        status: params.text("status")?.map(status).transpose()?,
        kind: params.text("kind")?.map(kind).transpose()?,
        subject: params.text("subject")?.map(str::to_owned),
        query: params.text("query")?.map(str::to_owned),
        all,
        after: params.text("after")?.map(str::to_owned),
        limit: params.limit(&app)?,
    };
    let facts = app.memory.facts(&scope, &query).await?;
    Ok(wire::ok(wire::text(&wire::Facts::of(&facts))))
}

/// Adds what a person tells.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/facts",
    operation_id = "addFacts",
    tag = "facts",
    params(InMemory),
    request_body(content = FactBody, example = json!({"text": "Ana lives in Lisbon."})),
    responses((status = 201, description = "The facts that say it", body = wire::Facts))
)]
pub(crate) async fn add(
    State(app): State<Shared>,
    Writer(caller): Writer,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    let told = FactBody::read(&Fields::parse(&posted.bytes)?, &params)?;
    let scope = caller.scope(&app, told.memory_ref.as_deref()).await?;

    let attempt = Attempt::begin(&app, &caller, "POST /facts", &posted).await?;
    if let Some(attempt) = &attempt
        && let Some(outcome) = attempt.earlier(&app).await?
    {
        return replay_facts(&app, &scope, outcome).await;
    }
    let facts = app.memory.learn(&scope, &told.text, told.kind, told.subject.as_deref()).await?;
    if let Some(attempt) = attempt {
        attempt.keep(&app, StatusCode::CREATED, OutcomeBody::Ids(ids(&facts))).await?;
    }
    Ok(wire::json(StatusCode::CREATED, wire::text(&wire::Facts::of(&facts))))
}

/// What is kept of an answer: which facts, and nothing that they say. A crash between
/// the fact and its outcome does no harm: to tell the same again changes nothing but
/// when it was said.
fn ids(facts: &[FactInfo]) -> String {
    let ids: Vec<&str> = facts.iter().map(|fact| fact.id.as_str()).collect();
    json!({ "ids": ids }).to_string()
}

/// The facts of an earlier answer, as they are now; those forgotten since are not.
async fn replay_facts(
    app: &App,
    scope: &Scope,
    outcome: StoredOutcome,
) -> Result<Response, ApiError> {
    let kept: Value = serde_json::from_str(&outcome.body)
        .map_err(|_| ApiError::internal(&"a kept outcome cannot be read"))?;
    let query = FactQuery { all: true, ..FactQuery::default() };
    let mut facts = app.memory.facts(scope, &query).await?;
    let ids: Vec<&str> =
        kept["ids"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    facts.retain(|fact| ids.contains(&fact.id.as_str()));
    facts.sort_by_key(|fact| ids.iter().position(|id| *id == fact.id));
    Ok(replay(outcome.code, wire::text(&wire::Facts::of(&facts))))
}

/// A person agrees.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/facts/{id}/confirm",
    operation_id = "confirmFact",
    tag = "facts",
    params(("id" = String, Path, description = "The fact."), InMemory),
    request_body = Option<VerdictBody>,
    responses((status = 200, description = "The fact as it is now", body = wire::Facts))
)]
pub(crate) async fn confirm(
    app: State<Shared>,
    writer: Writer,
    id: Segment,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    judge(app, writer, id, params, posted, true).await
}

/// A person disagrees.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/facts/{id}/reject",
    operation_id = "rejectFact",
    tag = "facts",
    params(("id" = String, Path, description = "The fact."), InMemory),
    request_body = Option<VerdictBody>,
    responses((status = 200, description = "The fact as it is now", body = wire::Facts))
)]
pub(crate) async fn reject(
    app: State<Shared>,
    writer: Writer,
    id: Segment,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    judge(app, writer, id, params, posted, false).await
}

async fn judge(
    State(app): State<Shared>,
    Writer(caller): Writer,
    Segment(id): Segment,
    params: Params,
    posted: Posted,
    agrees: bool,
) -> Result<Response, ApiError> {
    let verdict = VerdictBody::read(&posted, &params)?;
    let scope = caller.scope(&app, verdict.memory_ref.as_deref()).await?;
    let operation = if agrees { "POST /facts/confirm" } else { "POST /facts/reject" };
    let attempt = Attempt::begin(&app, &caller, operation, &posted).await?;
    if let Some(attempt) = &attempt
        && let Some(outcome) = attempt.earlier(&app).await?
    {
        return replay_facts(&app, &scope, outcome).await;
    }
    let fact = match agrees {
        true => app.memory.confirm(&scope, &id).await?,
        false => app.memory.reject(&scope, &id).await?,
    };
    let facts = [fact];
    if let Some(attempt) = attempt {
        attempt.keep(&app, StatusCode::OK, OutcomeBody::Ids(ids(&facts))).await?;
    }
    Ok(wire::ok(wire::text(&wire::Facts::of(&facts))))
}

fn kind(word: &str) -> Result<FactKind, ApiError> {
    let known = FactKind::ALL.map(FactKind::as_str).join("`, `");
    FactKind::parse(word).ok_or_else(|| ApiError::invalid(format!("`kind` is one of `{known}`")))
}

fn status(word: &str) -> Result<FactStatus, ApiError> {
    let known = FactStatus::ALL.map(FactStatus::as_str).join("`, `");
    FactStatus::parse(word)
        .ok_or_else(|| ApiError::invalid(format!("`status` is one of `{known}`")))
}
