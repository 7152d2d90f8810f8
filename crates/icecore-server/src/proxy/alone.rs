//! The routes of a proxy without a host around it: no key of ours, and whatever we do not
//! know of the providers' routes passes untouched.

use axum::extract::State;
use axum::http::StatusCode;
use axum::middleware;
use axum::response::Response;
use axum::routing::{any, get, post};
use axum::{Router, http::Uri};

use super::converse::Asking;
use super::routes;
use crate::app::Shared;
use crate::error::ApiError;
use crate::{guard, health, metrics};

/// All routes.
pub(crate) fn router(app: Shared) -> Router {
    Router::new()
        .route("/openai/v1/chat/completions", post(routes::chat_completions).fallback(pass))
        .route("/anthropic/v1/messages", post(routes::messages).fallback(pass))
        .route("/openai/v1/{*rest}", any(pass))
        .route("/anthropic/v1/{*rest}", any(pass))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::metrics))
        .fallback(elsewhere)
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

async fn pass(State(_): State<Shared>, asking: Asking) -> Result<Response, ApiError> {
    asking.pass().await
}

async fn elsewhere(_: Uri) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "not_found",
        "the proxy has /openai/v1/… and /anthropic/v1/…; give a client one of them as its base URL",
    )
}
