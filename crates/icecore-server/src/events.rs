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
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::app::Shared;
use crate::auth::{Caller, Reader};
use crate::error::ApiError;
use crate::params::{InTenant, MAX_NUMBER, PageBySeq, Params};
use crate::serve::closed;
use crate::share::Share;
use crate::wire;

/// How often a follower looks for news. Other processes write to the same log,
/// so there is nobody to wake us.
const POLL: Duration = Duration::from_millis(200);

/// After this many quiet looks (1 s) a comment tells that the stream lives. It is also
/// how we learn that its reader does not: to what is written the system answers that
/// nobody is there, and the next write fails.
const QUIET_LOOKS: u32 = 5;

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
        // Read before the events, so that none up to it can come later.
        let head = self.app.memory.store().head(tenant).await?;
        if head <= self.after {
            return Ok(Vec::new());
        }
        let events = self.app.memory.events(tenant, memory, self.after, limit).await?;
        let last = events.last().map_or(self.after, |last| last.position);
        self.after = read_through(last, head, events.len() == limit);
        Ok(events)
    }
}

/// How far the log was read. Unless a page was full, that is to its head: what is not
/// for this reader need not be looked at again.
fn read_through(last: Position, head: Position, is_full: bool) -> Position {
    if is_full { last } else { last.max(head) }
}

/// What a follower holds.
struct Stream {
    _share: Arc<Share>,
    _permits: [OwnedSemaphorePermit; 2],
}

/// A stream of the tenant's share, and of all.
fn take_streams(log: &Log) -> Result<Stream, ApiError> {
    let limits = &log.app.limits;
    let share = log.app.shares.of(log.caller.tenant());
    let take = |of: &Arc<Semaphore>, most: usize, names: &str| {
        Arc::clone(of).try_acquire_owned().map_err(|_| {
            ApiError::later("overloaded", format!("{most} streams are open ({names})"))
        })
    };
    let own = "of one tenant: `tenant_percent` of `event_streams`";
    let own = take(&share.streams, limits.tenant_streams(), own)?;
    let one = take(&log.app.streams, limits.event_streams, "`event_streams`")?;
    Ok(Stream { _share: share, _permits: [own, one] })
}

fn follow(log: Log) -> Result<Response, ApiError> {
    let permits = take_streams(&log)?;
    let (sender, receiver) = mpsc::channel(WAITING);
    let closing = log.app.closing.clone();
    tokio::spawn(async move {
        let _permits = permits;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_others_is_read_once() {
        let check = |last, head, is_full, expected| {
            assert_eq!(read_through(Position(last), Position(head), is_full), Position(expected));
        };
        check(3, 900, false, 900);
        check(3, 900, true, 3);
        // One more came between the two looks.
        check(901, 900, false, 901);
    }
}
