//! What every request passes before its route: the host check, the limits on
//! concurrency and time, a net under panics, and one line of log without content.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument;

use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::health::HEALTH;
use crate::host;

pub(crate) async fn guard(State(app): State<Shared>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let method = request.method().clone();
    // The template, not the path: a session's name is the user's own.
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let route = route.unwrap_or_else(|| "unknown".to_owned());
    let span = tracing::info_span!("request", %method, route);
    let answer = match host::check(app.on_loopback, &request) {
        Ok(()) => run(&app, request, next).instrument(span).await,
        Err(error) => Err(error),
    };
    let response = answer.unwrap_or_else(IntoResponse::into_response);
    let (status, ms) = (response.status().as_u16(), began.elapsed().as_millis() as u64);
    tracing::info!(%method, route, status, ms, "answered");
    response
}

/// Runs a request to its end, even if its caller goes away meanwhile: what was
/// accepted is finished, and a panic ends in an answer.
async fn run(app: &Arc<App>, request: Request, next: Next) -> Result<Response, ApiError> {
    if request.uri().path() == HEALTH {
        return Ok(next.run(request).await);
    }
    let permit = Arc::clone(&app.requests).try_acquire_owned().map_err(|_| {
        let most = app.limits.concurrent_requests;
        ApiError::later(
            "overloaded",
            format!("the host works on {most} requests at once (`concurrent_requests`)"),
        )
    })?;
    let time = app.limits.request_time();
    let work = async move {
        let _permit = permit;
        tokio::time::timeout(time, next.run(request)).await
    };
    match tokio::spawn(work.in_current_span()).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(_)) => Err(ApiError::later(
            "request_timeout",
            format!("the request took longer than {} s (`request_seconds`)", time.as_secs()),
        )),
        // What a panic says may hold content, so it is not repeated here.
        Err(_) => Err(ApiError::internal(&"a handler panicked")),
    }
}
