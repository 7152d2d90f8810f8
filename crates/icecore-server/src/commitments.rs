//! Commitments: made, listed, called off. They fire by themselves.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use icecore::store::StoreError;
use icecore::{MemoryError, Millis};
use icecore_host::commitments::{
    CommitmentError, CommitmentQuery, CommitmentRecord, CommitmentRequest, CommitmentState,
    Condition, ConditionRequest, IntentionRequest,
};
use icecore_host::outcomes::StoredOutcome;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::app::{App, Shared};
use crate::auth::{Caller, Reader, Writer};
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::{Attempt, replay};
use crate::params::{InTenant, Params, Segment};
use crate::wire;

const OPERATION: &str = "POST /commitments";

/// A commitment to make: `intention` or `memoryId`, and `at` or `when`.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `request` reads")]
pub(crate) struct CommitmentBody {
    /// Which memory; `default` where none is named.
    memory_ref: Option<String>,
    /// What is intended. It becomes an entry with the tag `commitment`.
    intention: Option<String>,
    /// An entry in force that says what is intended.
    memory_id: Option<String>,
    /// The moment at which it fires, in the future.
    #[schema(format = DateTime)]
    at: Option<String>,
    /// The entry that it waits for.
    when: Option<WhenBody>,
}

/// What must hold of an entry that is put later; all of it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CommitmentWhen)]
pub(crate) struct WhenBody {
    /// It has this tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    /// It says all these words, in any order and case.
    #[serde(skip_serializing_if = "Option::is_none")]
    mentions: Option<String>,
}

/// A commitment.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommitmentAnswer {
    /// Given by the host, unique in the tenant.
    id: String,
    memory_ref: String,
    /// The entry that is the intention.
    memory_id: String,
    /// `time` or `predicate`.
    condition: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<WhenBody>,
    /// `pending`, `fired`, `cancelled`, or `void` when its intention was not there any
    /// more as it would have fired.
    state: &'static str,
    #[schema(format = DateTime)]
    created_at: String,
    /// When it fired, was called off or found void.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    settled_at: Option<String>,
}

/// Commitments, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CommitmentsAnswer {
    commitments: Vec<CommitmentAnswer>,
}

/// That a commitment was called off.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CommitmentCancelled {
    id: String,
    cancelled: bool,
}

/// What is kept of an answer for retries.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    id: String,
}

fn answer(one: CommitmentRecord) -> CommitmentAnswer {
    let condition = one.condition.as_str();
    let (at, when) = match one.condition {
        Condition::Time(at) => (Some(at.to_rfc3339()), None),
        Condition::Predicate { tag, mentions } => {
            let [tag, mentions] = [tag, mentions].map(|text| text.map(|text| text.into_string()));
            (None, Some(WhenBody { tag, mentions }))
        }
    };
    CommitmentAnswer {
        id: one.id,
        memory_ref: one.scope.memory().to_owned(),
        memory_id: one.entry,
        condition,
        at,
        when,
        state: one.state.as_str(),
        created_at: one.created_at.to_rfc3339(),
        settled_at: one.settled_at.map(Millis::to_rfc3339),
    }
}

/// Makes a commitment: an intention that fires once, at its moment or when an entry is
/// put that fulfils it. `commitment.fired` in the event log tells ids alone.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/commitments",
    operation_id = "addCommitment",
    tag = "commitments",
    request_body(
        content = CommitmentBody,
        example = json!({"intention": "Thank Ana for the report.", "when": {"tag": "report-received"}})
    ),
    responses(
        (status = 201, description = "The commitment as it is kept", body = CommitmentAnswer),
        (status = 409, description = "Too many are pending in this memory, or the key is in use.", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn add(
    State(app): State<Shared>,
    Writer(caller): Writer,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let memory = fields.memory(params.memory()?)?;
    let scope = caller.scope(&app, memory.as_deref()).await?;
    let mut request = request(&fields)?;

    let attempt = Attempt::begin(&app, &caller, OPERATION, &posted).await?;
    if let Some(attempt) = &attempt {
        if let Some(outcome) = attempt.earlier(&app).await? {
            return replay_made(&app, &caller, outcome).await;
        }
        request.claim = Some(attempt.claim());
    }
    match (app.host.commitments.add(&scope, request).await, attempt) {
        (Ok(made), _) => Ok(wire::json(StatusCode::CREATED, json!(answer(made)).to_string())),
        // Another process was faster under the same key.
        (
            Err(CommitmentError::Memory(MemoryError::Store(StoreError::ClaimTaken))),
            Some(attempt),
        ) => replay_made(&app, &caller, attempt.of_another(&app).await?).await,
        (Err(error), _) => Err(error.into()),
    }
}

fn request(fields: &Fields<'_>) -> Result<CommitmentRequest, ApiError> {
    let intention = match (fields.text("intention")?, fields.text("memoryId")?) {
        (Some(text), None) => IntentionRequest::Text(text),
        (None, Some(id)) => IntentionRequest::Entry(id),
        _ => return Err(ApiError::invalid("give either `intention` or `memoryId`")),
    };
    let condition = match (fields.time("at")?, fields.object("when")?) {
        (Some(at), None) => ConditionRequest::Time(at),
        (None, Some(when)) => {
            when.only(&["tag", "mentions"]).map_err(|_| {
                ApiError::invalid("field `when` has a `tag`, `mentions`, or both, and nothing else")
            })?;
            let (tag, mentions) = (when.text("tag")?, when.text("mentions")?);
            ConditionRequest::Predicate { tag, mentions }
        }
        _ => return Err(ApiError::invalid("give either `at` or `when`")),
    };
    Ok(CommitmentRequest { intention, condition, claim: None })
}

/// The commitment that was made, as it stands now.
async fn replay_made(
    app: &App,
    caller: &Caller,
    outcome: StoredOutcome,
) -> Result<Response, ApiError> {
    let kept: Kept = serde_json::from_str(&outcome.body)
        .map_err(|_| ApiError::internal(&"a kept outcome cannot be read"))?;
    let made = find(app, caller, &kept.id).await?;
    Ok(replay(outcome.code, json!(answer(made)).to_string()))
}

async fn find(app: &App, caller: &Caller, id: &str) -> Result<CommitmentRecord, ApiError> {
    let found = app.host.commitments.get(caller.tenant(), id).await?;
    found.ok_or_else(|| ApiError::missing("there is no such commitment"))
}

/// Commitments of the caller's tenant, newest first.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/commitments",
    operation_id = "listCommitments",
    tag = "commitments",
    params(
        InTenant,
        ("state" = Option<String>, Query, description = "Those that stand so: `pending`, `fired`, `cancelled` or `void`."),
        ("before" = Option<String>, Query, description = "Those made before the one of this id."),
        ("limit" = Option<u64>, Query, description = "The most items of the page."),
    ),
    responses((status = 200, description = "The commitments", body = CommitmentsAnswer))
)]
pub(crate) async fn list(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
) -> Result<Response, ApiError> {
    let memory = caller.filter(&app, params.memory()?).await?;
    let (state, limit) = (state(&params)?, params.page(&app)?);
    let before = params.text("before")?.map(str::to_owned);
    if let Some(id) = &before {
        find(&app, &caller, id).await?;
    }
    let query = CommitmentQuery { memory, state, before, limit };
    let found = app.host.commitments.list(caller.tenant(), &query).await?;
    let body = CommitmentsAnswer { commitments: found.into_iter().map(answer).collect() };
    Ok(wire::ok(json!(body).to_string()))
}

fn state(params: &Params) -> Result<Option<CommitmentState>, ApiError> {
    let Some(word) = params.text("state")? else { return Ok(None) };
    let found = CommitmentState::ALL.into_iter().find(|state| state.as_str() == word);
    let wrong = "parameter `state` must be `pending`, `fired`, `cancelled` or `void`";
    found.map(Some).ok_or_else(|| ApiError::invalid(wrong))
}

/// One commitment.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/commitments/{id}",
    operation_id = "readCommitment",
    tag = "commitments",
    params(("id" = String, Path, description = "The commitment's id.")),
    responses((status = 200, description = "The commitment", body = CommitmentAnswer))
)]
pub(crate) async fn get(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(id): Segment,
) -> Result<Response, ApiError> {
    let found = find(&app, &caller, &id).await?;
    Ok(wire::ok(json!(answer(found)).to_string()))
}

/// Calls off a commitment that is pending. Its intention stays an entry.
#[utoipa::path(
    delete,
    path = "/v1/host/icecore/commitments/{id}",
    operation_id = "cancelCommitment",
    tag = "commitments",
    params(("id" = String, Path, description = "The commitment's id.")),
    responses((status = 200, description = "It fires no more", body = CommitmentCancelled))
)]
pub(crate) async fn cancel(
    State(app): State<Shared>,
    Writer(caller): Writer,
    Segment(id): Segment,
) -> Result<Response, ApiError> {
    match app.host.commitments.cancel(caller.tenant(), &id).await? {
        true => Ok(wire::ok(json!(CommitmentCancelled { id, cancelled: true }).to_string())),
        false => Err(ApiError::missing("there is no such commitment that is pending")),
    }
}
