//! Whether the host lives, and whether it can be given work.

use axum::extract::State;
use axum::response::Response;
use icecore::StoreError;

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
    // Nobody has shown a key here, so the details go to the log.
    let unready = |error: StoreError| {
        tracing::error!(cause = %error, "the store does not answer");
        ApiError::later("store_unavailable", "the store does not answer; the log says why")
    };
    let pending = app.memory.store().unsettled_count(None, None).await.map_err(unready)?;
    if pending > app.limits.ready_pending {
        return Err(ApiError::later(
            "behind",
            "derived work is due for more branches than `ready_pending` allows",
        ));
    }
    Ok(wire::ok(wire::text(&wire::Health { status: "ready" })))
}
