//! The event log: a page of it, or a stream that follows it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use icecore::{EventRecord, Position};
use tokio::sync::mpsc;

use crate::app::Shared;
use crate::auth::{Caller, Reader};
use crate::error::ApiError;
use crate::params::{InTenant, MAX_NUMBER, PageBySeq, Params};
use crate::serve::closed;
use crate::wire;

/// How often a follower looks for news. Other processes write to the same log,
/// so there is nobody to wake us.
const POLL: Duration = Duration::from_millis(200);

/// After this many quiet looks (15 s) a comment tells that the stream lives.
const QUIET_LOOKS: u32 = 75;

/// Events that wait for a slow reader.
const WAITING: usize = 64;

/// Events after a position, in order, without content.
///
/// With `Accept: text/event-stream` the log is followed: each event comes as it
/// is written, and `Last-Event-ID` goes on where a lost connection left off.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/events",
    operation_id = "listEvents",
    tag = "operations",
    params(
        InTenant,
        PageBySeq,
        ("Last-Event-ID" = Option<u64>, Header, description = "Streams alone: the `seq` of the last event that was seen."),
    ),
    responses((
        status = 200,
        description = "A page of events, or a stream of them",
        content((wire::Events = "application/json"), (String = "text/event-stream")),
    ))
)]
pub(crate) async fn events(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let memory = caller.filter(&app, params.memory()?).await?;
    let after = Position(params.number("after")?.unwrap_or_default());
    let limit = params.page(&app)?;
    let last = last_event(&headers)?;
    if wants_stream(&headers) {
        let after = last.unwrap_or(after);
        let log = Log { app, caller, memory, after };
        return follow(log);
    }
    let events = app.memory.events(caller.tenant(), memory.as_deref(), after, limit).await?;
    Ok(wire::ok(wire::text(&wire::Events::of(&events))))
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = accepted.flat_map(|value| value.split(','));
    kinds.any(|kind| kind.split(';').next().unwrap_or_default().trim() == "text/event-stream")
}

/// Where a reader that lost its connection left off.
fn last_event(headers: &HeaderMap) -> Result<Option<Position>, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.to_str().ok().filter(digits).and_then(|text| text.parse().ok());
    match number.filter(|number| *number <= MAX_NUMBER) {
        Some(number) => Ok(Some(Position(number))),
        None => Err(ApiError::invalid("the header `Last-Event-ID` must be the `seq` of an event")),
    }
}

/// A place in a tenant's log.
struct Log {
    app: Shared,
    caller: Caller,
    memory: Option<String>,
    after: Position,
}

impl Log {
    async fn next(&mut self) -> Result<Vec<EventRecord>, ApiError> {
        let limit = self.app.limits.page_default;
        let memory = self.memory.as_deref();
        let tenant = self.caller.tenant();
        let events = self.app.memory.events(tenant, memory, self.after, limit).await?;
        if let Some(last) = events.last() {
            self.after = last.position;
        }
        Ok(events)
    }
}

fn follow(log: Log) -> Result<Response, ApiError> {
    let permit = Arc::clone(&log.app.streams).try_acquire_owned().map_err(|_| {
        let most = log.app.limits.event_streams;
        ApiError::later("overloaded", format!("{most} streams are open (`event_streams`)"))
    })?;
    let (sender, receiver) = mpsc::channel(WAITING);
    let closing = log.app.closing.clone();
    tokio::spawn(async move {
        let _permit = permit;
        tokio::select! {
            () = send_all(log, sender) => {}
            () = closed(closing) => {}
        }
    });
    let mut response = Body::from_stream(Pieces(receiver)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Sends what the log has and gets, until the reader is gone, its key has ended or
/// reading fails; a reader that comes back says where it was.
async fn send_all(mut log: Log, sender: mpsc::Sender<String>) {
    let mut quiet = 0;
    // Lets the reader know at once that it is connected.
    if sender.send(": connected\n\n".to_owned()).await.is_err() {
        return;
    }
    while log.caller.is_still_valid(&log.app).await {
        let Ok(events) = log.next().await else { return };
        let pieces = match events.is_empty() {
            false => events.iter().map(piece).collect(),
            true if quiet >= QUIET_LOOKS => vec![": still here\n\n".to_owned()],
            true => Vec::new(),
        };
        if pieces.is_empty() {
            quiet += 1;
            tokio::select! {
                () = tokio::time::sleep(POLL) => {}
                () = sender.closed() => return,
            }
            continue;
        }
        quiet = 0;
        for piece in pieces {
            log.app.metrics.sent(piece.len());
            if sender.send(piece).await.is_err() {
                return;
            }
        }
    }
}

fn piece(event: &EventRecord) -> String {
    let data = wire::text(&wire::Event::from(event));
    format!("id: {}\nevent: {}\ndata: {data}\n\n", event.position, event.kind)
}

/// The pieces of a stream, as the response's body.
struct Pieces(mpsc::Receiver<String>);

impl futures_core::Stream for Pieces {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(piece.into())))
    }
}
