//! Whether the host lives, and whether it can be given work.

use axum::extract::State;
use axum::response::Response;
use icecore::StoreError;

use crate::app::Shared;
use crate::error::ApiError;
use crate::wire;

/// The route that answers whatever else happens.
pub(crate) const HEALTH: &str = "/healthz";

pub(crate) async fn healthz() -> Response {
    wire::ok(r#"{"status":"ok"}"#.to_owned())
}

/// Ready means: open, the store answers, and derived work is not hopelessly behind.
pub(crate) async fn readyz(State(app): State<Shared>) -> Result<Response, ApiError> {
    if *app.closing.borrow() {
        return Err(ApiError::later("shutting_down", "the host is shutting down"));
    }
    let unready = |error: StoreError| ApiError::later("store_unavailable", error.to_string());
    let pending = app.memory.store().unsettled_count(None, None).await.map_err(unready)?;
    let most = app.limits.ready_pending;
    if pending > most {
        return Err(ApiError::later(
            "behind",
            format!(
                "derived work is due for {pending} branches, more than {most} (`ready_pending`)"
            ),
        ));
    }
    Ok(wire::ok(format!(r#"{{"status":"ready","pending":{pending}}}"#)))
}
