//! Whether the host lives, and whether it can be given work.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use serde_json::json;

use crate::app::Shared;
use crate::error::ApiError;
use crate::wire;

/// The route that answers whatever else happens.
pub(crate) const HEALTH: &str = "/healthz";

/// Whether the host lives.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "isAlive",
    tag = "operations",
    security(()),
    responses((status = 200, description = "It does", body = wire::Health))
)]
pub(crate) async fn healthz() -> Response {
    wire::ok(wire::text(&wire::Health { status: "ok" }))
}

/// Whether the host can be given work: it is open, the store answers, and derived
/// work is not hopelessly behind.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "isReady",
    tag = "operations",
    security(()),
    responses((status = 200, description = "It can", body = wire::Health))
)]
pub(crate) async fn readyz(State(app): State<Shared>) -> Result<Response, ApiError> {
    if *app.closing.borrow() {
        return Err(ApiError::later("shutting_down", "the host is shutting down"));
    }
    let pending = pending(&app).await?;
    let most = app.limits.ready_pending;
    if pending > most {
        let message = format!(
            "derived work is due for {pending} branches, more than {most} (`ready_pending`)"
        );
        let details = json!({ "limit": "ready_pending", "most": most, "pending": pending });
        return Err(ApiError::later("behind", message).with(details));
    }
    Ok(wire::ok(wire::text(&wire::Health { status: "ready" })))
}

/// A store that takes longer than this to write a note is of no use to a caller, who is told so
/// within five seconds.
const STORE_PATIENCE: Duration = Duration::from_secs(4);

/// Branches with derived work, if the store takes writes and answers.
async fn pending(app: &Shared) -> Result<u64, ApiError> {
    // Nobody has shown a key here, so the details go to the log.
    let unready = |cause: &dyn std::fmt::Display| {
        tracing::error!(%cause, "the store does not answer");
        ApiError::later("store_unavailable", "the store does not answer; the log says why")
    };
    let asked = app.memory.probe();
    match tokio::time::timeout(STORE_PATIENCE, asked).await {
        Ok(Ok(pending)) => Ok(pending),
        Ok(Err(error)) => Err(unready(&error)),
        Err(_) => Err(unready(&format!("no answer within {} s", STORE_PATIENCE.as_secs()))),
    }
}
