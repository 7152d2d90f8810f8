//! The route table.

use axum::Router;
use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware;
use axum::response::Response;
use axum::routing::{delete, get, post};

use crate::app::Shared;
use crate::auth::Reader;
use crate::error::ApiError;
use crate::{
    agents, archives, body, commitments, consolidation, context, discovery, docs, dreams, entries,
    events, facts, forget, guard, handoffs, health, history, key_routes, metrics, openapi, proxy,
    runs, schedules, seams, search, turns, workspace,
};

/// Where the host's own routes live.
pub(crate) const PREFIX: &str = "/v1/host/icecore";

/// The routes that need no key. `/metrics` is open on loopback alone.
const OPEN: [&str; 7] =
    ["/", "/healthz", "/readyz", "/metrics", "/v1/openapi.json", "/docs", "/.well-known/openwop"];

/// All routes. Whoever reads needs a key of any role; whoever writes, one of a
/// writer or an admin; the keys themselves are an admin's: the handlers'
/// signatures say which.
pub(crate) fn router(app: Shared) -> Router {
    let host = Router::new()
        .route("/sessions", get(history::sessions))
        .route("/sessions/{session}/turns", get(turns::list).post(turns::add))
        .route("/sessions/{session}/view", get(history::view))
        .route("/sessions/{session}/compact", post(handoffs::compact))
        .route("/sessions/{session}/handoff", get(handoffs::get).put(handoffs::put))
        .route("/context", post(context::build))
        .route("/search", post(search::search))
        .route("/entries", get(entries::list).post(entries::add))
        .route("/entries/{id}", get(entries::get).delete(entries::remove))
        .route("/chunks", get(history::chunks))
        .route("/chunks/{id}", get(history::chunk))
        .route("/chunks/{id}/expand", get(history::expand))
        .route("/facts", get(facts::list).post(facts::add))
        .route("/facts/{id}/confirm", post(facts::confirm))
        .route("/facts/{id}/reject", post(facts::reject))
        .route("/entries/{id}/sources", get(entries::sources))
        .route("/consolidate", post(consolidation::consolidate))
        .route("/commitments", get(commitments::list).post(commitments::add))
        .route("/commitments/{id}", get(commitments::get).delete(commitments::cancel))
        .route("/events", get(events::events))
        .route("/dreams", get(dreams::list).post(dreams::dream))
        .route("/dreams/{id}", get(dreams::get))
        .route("/dreams/{id}/undo", post(dreams::undo))
        .route("/archives", get(archives::list))
        .route("/archives/{checksum}", get(archives::get))
        .route("/schedules", get(schedules::list).post(schedules::add))
        .route("/schedules/{id}", get(schedules::get).delete(schedules::remove))
        .route("/schedules/{id}/pause", post(schedules::pause))
        .route("/schedules/{id}/resume", post(schedules::resume))
        .route("/stats", get(history::stats))
        .route("/forget", post(forget::forget))
        .route("/keys", get(key_routes::list).post(key_routes::create))
        .route("/keys/{id}", delete(key_routes::revoke))
        .route("/keys/{id}/rotate", post(key_routes::rotate));
    let all = Router::new()
        .nest(PREFIX, host)
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/openapi.json", get(openapi::document))
        .route("/.well-known/openwop", get(discovery::document))
        .route("/v1/agents", get(agents::list))
        .route("/v1/agents/{id}", get(agents::get))
        .route("/v1/host/workspace/files", get(workspace::list))
        .route(
            "/v1/host/workspace/files/{*path}",
            get(workspace::read).put(workspace::put).delete(workspace::delete),
        )
        .route("/v1/runs", post(runs::create))
        .route("/v1/runs/{id}", get(runs::read).post(runs::fork))
        .route("/v1/runs/{id}/cancel", post(runs::cancel))
        .route("/v1/runs/{id}/events", get(runs::events))
        .route("/v1/runs/{id}/events/poll", get(runs::poll))
        .route("/openai/v1/chat/completions", post(proxy::chat_completions))
        .route("/openai/v1/models", get(proxy::models))
        .route("/anthropic/v1/messages", post(proxy::messages))
        .route("/anthropic/v1/messages/count_tokens", post(proxy::count_tokens))
        .route("/docs", get(docs::page))
        .route("/", get(docs::welcome));
    let all = match app.host.settings().conformance {
        true => all.merge(seams::router()),
        false => all,
    };
    let all = all
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .with_state(app);
    Router::new().fallback_service(all).layer(middleware::map_response(hide_methods))
}

/// The router names a route's methods to whoever asked for another, key or not, and
/// does so outside of its own layers.
async fn hide_methods(mut response: Response) -> Response {
    if response.status() != StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().remove(header::ALLOW);
    }
    response
}

/// Proof that the caller may know which routes there are: it has a key, or asks for
/// what is open to all. Nobody else learns what exists by trying.
struct MayKnow;

impl FromRequestParts<Shared> for MayKnow {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let route = parts.extensions.get::<MatchedPath>();
        if !route.is_some_and(|route| OPEN.contains(&route.as_str())) {
            Reader::from_request_parts(parts, app).await?;
        }
        Ok(MayKnow)
    }
}

/// A body that is not JSON is refused as such wherever it is sent.
async fn no_route(_: MayKnow, headers: HeaderMap) -> ApiError {
    let unknown = || ApiError::new(StatusCode::NOT_FOUND, "not_found", "there is no such route");
    body::check_type(&headers).err().unwrap_or_else(unknown)
}

async fn wrong_method(_: MayKnow) -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "this route has other methods; see the header `Allow`",
    )
}
