//! What every request passes before its route: an id, the host check, the limits on
//! concurrency and time, a net under panics, refusals without secrets, and one line of
//! log without content.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::{Instrument, field};

use crate::app::{App, Shared};
use crate::audit::{self, Reason};
use crate::error::ApiError;
use crate::health::HEALTH;
use crate::metrics::{METRICS, UNKNOWN, known_method};
use crate::proxy::{self, FromUpstream};
use crate::refusal::{self, CalledBy};
use crate::request_id::{CURRENT, REQUEST_ID};
use crate::work::{Ending, Work};

pub(crate) async fn guard(State(app): State<Shared>, mut request: Request, next: Next) -> Response {
    let began = Instant::now();
    let by = CalledBy::of(request.headers());
    request.extensions_mut().insert(by.clone());
    let method = request.method().clone();
    // The template, not the path: a session's name is the user's own.
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = route.unwrap_or_else(|| UNKNOWN.to_owned());
    let protocol = proxy::protocol_of(request.uri().path());
    let known = known_method(&method);
    let span = tracing::info_span!(
        "request",
        method = known,
        route,
        status = field::Empty,
        request_id = field::Empty
    );
    if !by.id.is_given() {
        span.record("request_id", by.id.shown());
    }
    let answer = match app.hosts.check(&request) {
        Ok(()) => run(&app, &by, request, next).instrument(span.clone()).await,
        // What is no proper request is no denial.
        Err(error) if error.status == StatusCode::BAD_REQUEST => Err(error),
        Err(error) => {
            audit::deny_stranger(&app, Reason::Elsewhere);
            Err(error)
        }
    };
    let response = answer.unwrap_or_else(IntoResponse::into_response);
    let mut response = refusal::clean(&app, &by, response).await;
    if let Some(protocol) = protocol {
        response = proxy::in_their_words(protocol, response).await;
    }
    // A provider's own word for a request is what its support asks for.
    let is_named = response.extensions().get::<FromUpstream>().is_some()
        && response.headers().contains_key(REQUEST_ID);
    if !is_named {
        response.headers_mut().insert(REQUEST_ID, by.id.header());
    }
    app.metrics.answered(&method, &route, &response, began.elapsed());
    let (status, ms) = (response.status().as_u16(), began.elapsed().as_millis() as u64);
    span.record("status", status);
    span.record("request_id", by.id.shown());
    tracing::info!(method = known, route, status, ms, request_id = by.id.shown(), "answered");
    response
}

/// Runs a request to its end, even if its caller goes away meanwhile: what was
/// accepted is finished, and a panic ends in an answer.
async fn run(
    app: &Arc<App>,
    by: &CalledBy,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if request.uri().path() == HEALTH {
        return Ok(next.run(request).await);
    }
    let work = Work::new(app);
    let ending = Ending(work.clone());
    // Who watches a busy host must see that it is; figures cost little.
    if request.uri().path() != METRICS {
        work.begin().await?;
    }
    request.extensions_mut().insert(work.clone());
    let work = async move {
        let _ending = ending;
        tokio::select! {
            response = async { work.hold(next.run(request).await).await } => Some(response),
            () = work.overdue() => None,
        }
    };
    let work = CURRENT.scope(by.id.clone(), work);
    match tokio::spawn(work.in_current_span()).await {
        Ok(Some(response)) => Ok(response),
        Ok(None) => Err(ApiError::later(
            "request_timeout",
            format!(
                "the request took longer than {} s (`request_seconds`)",
                app.limits.request_seconds
            ),
        )),
        // What a panic says may hold content, so it is not repeated here.
        Err(_) => Err(ApiError::internal(&"a handler panicked")),
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    /// What is asked of a host with these limits whose `/metrics` is that handler.
    async fn metrics_of<H: axum::handler::Handler<T, ()>, T: 'static>(
        handler: H,
        limits: crate::limits::Limits,
    ) -> u16 {
        let (_close, closing) = tokio::sync::watch::channel(false);
        let address = ([127, 0, 0, 1], 0).into();
        let app = App::new(icecore::Memory::in_memory(), limits, address, closing);
        let router: Router = Router::new()
            .route(METRICS, get(handler))
            .layer(axum::middleware::from_fn_with_state(Arc::clone(&app), guard));
        let request = Request::builder().uri(METRICS).header("host", "localhost");
        let request = request.body(Body::empty()).unwrap();
        router.oneshot(request).await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn metrics_have_their_time_and_a_net_and_need_no_place() {
        let limits = crate::limits::Limits { concurrent_requests: 0, ..Default::default() };
        assert_eq!(metrics_of(async || "figures", limits.clone()).await, 200);
        let fall = async || -> &'static str { panic!("a figure") };
        assert_eq!(metrics_of(fall, limits.clone()).await, 500);
        let hang = async || std::future::pending::<&'static str>().await;
        let limits = crate::limits::Limits { request_seconds: 0, ..limits };
        assert_eq!(metrics_of(hang, limits).await, 503);
    }

    #[tokio::test]
    async fn a_panic_ends_in_an_answer_that_tells_nothing() {
        let (_close, closing) = tokio::sync::watch::channel(false);
        let address = ([127, 0, 0, 1], 0).into();
        let limits = crate::limits::Limits::default();
        let app = App::new(icecore::Memory::in_memory(), limits, address, closing);
        let fall = async || -> &'static str { panic!("the content of a turn") };
        let router: Router = Router::new()
            .route("/", get(fall))
            .layer(axum::middleware::from_fn_with_state(Arc::clone(&app), guard));
        let request =
            Request::builder().uri("/").header("host", "localhost").body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.status(), 500);
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"], "internal_error");
        assert_eq!(body["details"]["correlationId"].as_str().unwrap().len(), 16);
        assert!(!body.to_string().contains("content"));
        assert_eq!(app.requests.available_permits(), app.limits.concurrent_requests);
    }
}
