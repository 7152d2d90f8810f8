//! The event log: a page of it, or a stream that follows it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use icecore::ids::Position;
use icecore::maintenance::EventRecord;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::app::{App, Shared};
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
        let log = Log { app: Arc::clone(&app), caller: caller.clone(), memory, after };
        return follow(&app, &caller, log);
    }
    let events = app.memory.events(caller.tenant(), memory.as_deref(), after, limit).await?;
    Ok(wire::ok(wire::text(&wire::Events::of(&events))))
}

pub(crate) fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = accepted.flat_map(|value| value.split(','));
    kinds.any(|kind| kind.split(';').next().unwrap_or_default().trim() == "text/event-stream")
}

/// Where a reader that lost its connection left off.
pub(crate) fn last_event(headers: &HeaderMap) -> Result<Option<Position>, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let digits = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.to_str().ok().filter(digits).and_then(|text| text.parse().ok());
    match number.filter(|number| *number <= MAX_NUMBER) {
        Some(number) => Ok(Some(Position(number))),
        None => Err(ApiError::invalid("the header `Last-Event-ID` must be the `seq` of an event")),
    }
}

/// What a reader can follow.
pub(crate) trait Followed: Send + 'static {
    /// What is new since the last look.
    fn next(&mut self) -> impl Future<Output = Result<News, ApiError>> + Send;
}

/// What came since the last look.
#[derive(Default)]
pub(crate) struct News {
    /// Each as it is sent.
    pub(crate) pieces: Vec<String>,
    /// Whether nothing more can come.
    pub(crate) is_last: bool,
}

/// A place in a tenant's log.
struct Log {
    app: Shared,
    caller: Caller,
    memory: Option<String>,
    after: Position,
}

impl Followed for Log {
    async fn next(&mut self) -> Result<News, ApiError> {
        let limit = self.app.limits.page_default;
        let memory = self.memory.as_deref();
        let tenant = self.caller.tenant();
        // Read before the events, so that none up to it can come later.
        let head = self.app.memory.head(tenant).await?;
        if head <= self.after {
            return Ok(News::default());
        }
        let events = self.app.memory.events(tenant, memory, self.after, limit).await?;
        let last = events.last().map_or(self.after, |last| last.position);
        self.after = read_through(last, head, events.len() == limit);
        Ok(News { pieces: events.iter().map(piece_of).collect(), is_last: false })
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
fn take_streams(app: &App, caller: &Caller) -> Result<Stream, ApiError> {
    let limits = &app.limits;
    let share = app.shares.of(caller.tenant());
    let take = |of: &Arc<Semaphore>, most: usize, names: &str| {
        Arc::clone(of).try_acquire_owned().map_err(|_| {
            ApiError::later("overloaded", format!("{most} streams are open ({names})"))
        })
    };
    let own = "of one tenant: `tenant_percent` of `event_streams`";
    let own = take(&share.streams, limits.tenant_streams(), own)?;
    let one = take(&app.streams, limits.event_streams, "`event_streams`")?;
    Ok(Stream { _share: share, _permits: [own, one] })
}

/// A stream of what comes, until nothing more can.
pub(crate) fn follow(
    app: &Shared,
    caller: &Caller,
    followed: impl Followed,
) -> Result<Response, ApiError> {
    let permits = take_streams(app, caller)?;
    let (sender, receiver) = mpsc::channel(WAITING);
    let closing = app.closing.clone();
    let (app, caller) = (Arc::clone(app), caller.clone());
    tokio::spawn(async move {
        let _permits = permits;
        tokio::select! {
            () = send_all(&app, &caller, followed, sender) => {}
            () = closed(closing) => {}
        }
    });
    let mut response = Body::from_stream(Pieces(receiver)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Sends what there is and comes, until that is all, the reader is gone, its key has
/// ended or reading fails; a reader that comes back says where it was.
async fn send_all(
    app: &App,
    caller: &Caller,
    mut followed: impl Followed,
    sender: mpsc::Sender<String>,
) {
    let (mut quiet, mut news) = (0, app.memory.news());
    // Lets the reader know at once that it is connected.
    if sender.send(": connected\n\n".to_owned()).await.is_err() {
        return;
    }
    while caller.is_still_valid(app).await {
        let Ok(News { mut pieces, is_last }) = followed.next().await else { return };
        if pieces.is_empty() && quiet >= QUIET_LOOKS {
            pieces.push(": still here\n\n".to_owned());
        }
        quiet = if pieces.is_empty() { quiet + 1 } else { 0 };
        for piece in pieces {
            app.metrics.sent(piece.len());
            if sender.send(piece).await.is_err() {
                return;
            }
        }
        if is_last {
            return;
        }
        if quiet > 0 {
            tokio::select! {
                () = tokio::time::sleep(POLL) => {}
                Ok(()) = news.changed() => {}
                () = sender.closed() => return,
            }
        }
    }
}

fn piece_of(event: &EventRecord) -> String {
    piece(event.position.0, &event.kind, &wire::text(&wire::Event::from(event)))
}

/// An event as a stream sends it.
pub(crate) fn piece(id: u64, kind: &str, data: &str) -> String {
    format!("id: {id}\nevent: {kind}\ndata: {data}\n\n")
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
