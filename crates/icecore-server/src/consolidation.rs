//! Consolidation of a memory's entries, when somebody asks for it.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use icecore::knowledge::{Consolidation, ConsolidationTrigger, MAX_TOLD_IDS};
use icecore_host::outcomes::OutcomeBody;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use crate::app::Shared;
use crate::auth::Writer;
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::{Attempt, replay};
use crate::params::Params;
use crate::wire;

const OPERATION: &str = "POST /consolidate";

/// Which memory to consolidate.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `consolidate` reads")]
pub(crate) struct ConsolidationBody {
    /// The memory; `default` where none is named.
    memory_ref: Option<String>,
}

/// What came of it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConsolidationAnswer {
    memory_ref: String,
    /// Entries that were looked at.
    input_count: usize,
    /// Entries in force of them and instead of them. As many as before: nothing was
    /// to be done, and nothing was.
    output_count: usize,
    /// Entries that others stand for now, the first 100 of them. They can still be read
    /// by their ids.
    merged_ids: Vec<String>,
    /// How many there are.
    merged_count: usize,
    /// Entries that were written, the first 100 of them.
    output_ids: Vec<String>,
    /// How many there are.
    written_count: usize,
    /// Whether the whole memory was gone through and nothing is left to do. If not, ask
    /// again: it goes on from there.
    complete: bool,
}

/// Puts together entries that say the same, and lets newer ones take the place of those
/// that they overtook. Once it is complete a second time changes nothing.
///
/// One request looks at no more than 200,000 entries, oldest first, those twice that it
/// looks at twice; of a larger memory the next request goes on where it stopped. Entries
/// are compared that have fewer than 10,000 others between them, and less where they
/// are long: 64 MiB are compared at once. A memory is consolidated once at a time: a
/// second request waits for the first.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/consolidate",
    operation_id = "consolidate",
    tag = "entries",
    request_body(content = ConsolidationBody, example = json!({"memoryRef": "default"})),
    responses((status = 200, description = "What was put together", body = ConsolidationAnswer))
)]
pub(crate) async fn consolidate(
    State(app): State<Shared>,
    Writer(caller): Writer,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let memory = fields.memory(params.memory()?)?;
    let scope = caller.scope(&app, memory.as_deref()).await?;
    let attempt = Attempt::begin(&app, &caller, OPERATION, &posted).await?;
    if let Some(attempt) = &attempt
        && let Some(outcome) = attempt.earlier(&app).await?
    {
        return Ok(replay(outcome.code, outcome.body));
    }
    let done = app.memory.consolidate(&scope, ConsolidationTrigger::OnDemand).await?;
    let body = json!(answer(scope.memory(), done)).to_string();
    if let Some(attempt) = attempt {
        // To do it again does no harm: it would find nothing to do.
        attempt.keep(&app, StatusCode::OK, OutcomeBody::Ids(body.clone())).await?;
    }
    Ok(wire::ok(body))
}

fn answer(memory: &str, done: Consolidation) -> ConsolidationAnswer {
    ConsolidationAnswer {
        memory_ref: memory.to_owned(),
        input_count: done.input_count,
        output_count: done.output_count,
        merged_ids: done.merged_ids,
        merged_count: done.merged_count,
        written_count: done.outputs.len(),
        output_ids: done.outputs.into_iter().map(|entry| entry.id).take(MAX_TOLD_IDS).collect(),
        complete: done.is_complete,
    }
}
