//! Who owns a run, and who is kept from it.

use axum::extract::State;
use axum::response::Response;
use icecore_host::runs::RunRequest;
use serde_json::json;

use crate::app::{App, Shared};
use crate::auth::{Caller, Writer};
use crate::error::ApiError;
use crate::runs::{RunAnswer, new_id, no_inputs};
use crate::wire;

/// The workflow whose run is looked at.
const WORKFLOW: &str = "conformance-noop";

/// A workspace of the caller's tenant in which it does not work.
const ELSEWHERE: &str = "conformance elsewhere";

async fn run_of(app: &App, caller: &Caller) -> Result<String, ApiError> {
    let request = RunRequest {
        id: new_id()?,
        workflow_id: WORKFLOW.to_owned(),
        inputs: no_inputs(),
        configurable: None,
        principal_id: caller.key_id().to_owned(),
        claim: None,
    };
    Ok(app.host.runs.create(caller.principal(), request).await?.id)
}

/// A run of the caller's own.
pub(super) async fn owned_run(
    State(app): State<Shared>,
    Writer(caller): Writer,
) -> Result<Response, ApiError> {
    let id = run_of(&app, &caller).await?;
    let view = app.host.runs.get(caller.principal(), &id).await?;
    Ok(wire::ok(json!(RunAnswer::of(caller.tenant(), view)).to_string()))
}

/// Reads such a run as somebody who works elsewhere in the same tenant; the refusal is
/// the answer.
pub(super) async fn cross_read(
    State(app): State<Shared>,
    Writer(caller): Writer,
) -> Result<Response, ApiError> {
    let id = run_of(&app, &caller).await?;
    let elsewhere = app.memory.shown_name(caller.tenant(), ELSEWHERE);
    let other = caller
        .principal()
        .clone()
        .at_work_in(elsewhere)
        .map_err(|_| ApiError::internal(&"a workspace of the seams cannot be called so"))?;
    let view = app.host.runs.get(&other, &id).await?;
    Ok(wire::ok(json!(RunAnswer::of(caller.tenant(), view)).to_string()))
}
