//! The route table.

use axum::Router;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::{get, post};

use crate::app::Shared;
use crate::error::ApiError;
use crate::{context, docs, events, facts, forget, guard, health, history, openapi, search, turns};

/// Where the host's own routes live.
const PREFIX: &str = "/v1/host/icecore";

/// All routes. Whoever reads needs a key of any role; whoever writes, one of a
/// writer or an admin: the handlers' signatures say which.
pub(crate) fn router(app: Shared) -> Router {
    let host = Router::new()
        .route("/sessions", get(history::sessions))
        .route("/sessions/{session}/turns", get(turns::list).post(turns::add))
        .route("/sessions/{session}/view", get(history::view))
        .route("/context", post(context::build))
        .route("/search", post(search::search))
        .route("/chunks", get(history::chunks))
        .route("/chunks/{id}", get(history::chunk))
        .route("/chunks/{id}/expand", get(history::expand))
        .route("/facts", get(facts::list).post(facts::add))
        .route("/facts/{id}/confirm", post(facts::confirm))
        .route("/facts/{id}/reject", post(facts::reject))
        .route("/events", get(events::events))
        .route("/archives", get(history::archives))
        .route("/stats", get(history::stats))
        .route("/forget", post(forget::forget));
    Router::new()
        .nest(PREFIX, host)
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/v1/openapi.json", get(openapi::document))
        .route("/docs", get(docs::page))
        .route("/", get(docs::welcome))
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

async fn no_route() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", "there is no such route")
}

async fn wrong_method() -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "this route has other methods; see the header `Allow`",
    )
}
