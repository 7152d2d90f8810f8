//! Consolidation of a memory's entries, when somebody asks for it.

use axum::extract::State;
use axum::response::Response;
use icecore::{Consolidation, ConsolidationTrigger};
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
    /// Entries that others stand for now. They can still be read by their ids.
    merged_ids: Vec<String>,
    /// Entries that were written.
    output_ids: Vec<String>,
}

/// Puts together entries that say the same, and lets newer ones take the place of those
/// that they overtook. A second time changes nothing.
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
        return Ok(replay(outcome.status, outcome.body));
    }
    let done = app.memory.consolidate(&scope, ConsolidationTrigger::OnDemand).await?;
    let body = json!(answer(scope.memory(), done)).to_string();
    if let Some(attempt) = attempt {
        // To do it again does no harm: it would find nothing to do.
        attempt.keep(&app, &body).await?;
    }
    Ok(wire::ok(body))
}

fn answer(memory: &str, done: Consolidation) -> ConsolidationAnswer {
    ConsolidationAnswer {
        memory_ref: memory.to_owned(),
        input_count: done.input_count,
        output_count: done.output_count,
        merged_ids: done.merged_ids,
        output_ids: done.outputs.into_iter().map(|entry| entry.id).collect(),
    }
}
