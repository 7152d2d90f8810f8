//! The way back: an answer goes to its client as it comes, and a copy is read along.
//!
//! The last of an answer waits until the reply is kept: a client that has seen the end may
//! go on at once, and its next request must find what it goes on with.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use icecore::formats::json::JsonText;
use icecore::models::Protocol;
use icecore::sessions::{ClientMessage, Followed, ProviderCount};
use icecore::{Memory, Scope};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use tracing::Instrument;

use super::answer::{self, Read, Reading};
use super::upstream::Begun;
use super::{headers, message, upstream, words};
use crate::app::Shared;
use crate::share::Share;

/// An answer in the provider's words already: it is handed on as it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FromUpstream;

/// Pieces that wait for a slow client.
const WAITING: usize = 4;

/// Once all is said, what is about the answer, such as its usage, has this long to come
/// before the reply is kept without it.
const LAST_WORD: Duration = Duration::from_secs(1);

/// What waits for the reply to be kept is at most this much (256 KiB).
const MOST_HELD_BYTES: usize = 256 << 10;

/// What a client is told of an answer that cannot be read along.
const ENCODED: &str = "reply-not-kept (encoded)";

/// What a reply that is not whole is tagged with, and the field that says why.
pub(crate) const PARTIAL_TAG: &str = "partial";
pub(crate) const INTERRUPTED: &str = "interrupted";

/// A request's part of what few can have.
pub(crate) struct Stream {
    pub(crate) _share: Arc<Share>,
    pub(crate) _permits: [OwnedSemaphorePermit; 2],
}

/// Keeps the reply.
pub(crate) struct Keeper {
    pub(crate) memory: Memory,
    pub(crate) scope: Scope,
    pub(crate) followed: Followed,
    /// As the request named it.
    pub(crate) model: Option<String>,
    /// Tokens of the request as we counted.
    pub(crate) counted: u64,
}

/// An answer on its way back.
pub(crate) struct Relay {
    pub(crate) app: Shared,
    pub(crate) protocol: Protocol,
    pub(crate) begun: Begun,
    /// None where nothing is kept of it.
    pub(crate) keeper: Option<Keeper>,
    pub(crate) stream: Stream,
}

impl Relay {
    /// The response, whose body comes from a task of its own.
    pub(crate) fn respond(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.begun.status;
        *response.headers_mut() = self.begun.headers.clone();
        let is_encoded = headers::is_encoded(&self.begun.headers);
        if is_encoded && self.begun.status.is_success() && self.keeper.is_some() {
            response.headers_mut().insert(headers::WARNING, headers::told(ENCODED));
        }
        response.extensions_mut().insert(FromUpstream);
        let (sender, receiver) = mpsc::channel(WAITING);
        let is_whole = Arc::new(AtomicBool::new(false));
        let is_answer = self.begun.status.is_success() && !is_encoded;
        let Relay { app, protocol, begun, keeper, stream } = self;
        let most = app.proxy.options.kept_answer_bytes;
        let reading = Reading::new(protocol, begun.is_stream, most);
        let keeping = keeper.filter(|_| is_answer).map(|keeper| (keeper, reading));
        let passing = Passing {
            begins_by: begun.begins_by,
            idle: app.proxy.options.idle_time(),
            is_stream: begun.is_stream,
            _open: app.metrics.proxies(),
            pieces: begun.pieces.into_iter(),
            rest: begun.rest,
            held: Vec::new(),
            held_bytes: 0,
            said: None,
            is_whole: Arc::clone(&is_whole),
            keeping,
            protocol,
            sender,
            app,
            _stream: stream,
        };
        tokio::spawn(passing.run().in_current_span());
        *response.body_mut() = Body::from_stream(Pieces { receiver, is_whole });
        response
    }
}

type Piece = Result<Bytes, std::io::Error>;

/// An answer that is being handed on.
struct Passing {
    app: Shared,
    protocol: Protocol,
    is_stream: bool,
    pieces: std::vec::IntoIter<Bytes>,
    rest: Option<reqwest::Response>,
    keeping: Option<(Keeper, Reading)>,
    /// What waits for the reply to be kept.
    held: Vec<Bytes>,
    held_bytes: usize,
    /// When all was said, and nothing since.
    said: Option<Instant>,
    /// Until when its first piece may come, where none has.
    begins_by: Option<Instant>,
    idle: Duration,
    /// Its client has all of it: that it ends is no break.
    is_whole: Arc<AtomicBool>,
    _open: crate::metrics::Held,
    _stream: Stream,
    /// Dropped last: once a client has seen the end, nothing of its answer is left.
    sender: mpsc::Sender<Bytes>,
}

/// What became of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handed {
    /// It goes to the client, or waits to.
    On,
    /// Nobody takes it any more.
    Left,
    /// The host ends, and the client is not as quick.
    Cut,
}

impl Handed {
    /// Why an answer ends with it, if it does.
    fn end(self) -> Option<&'static str> {
        match self {
            Handed::On => None,
            Handed::Left => Some(answer::CLIENT),
            Handed::Cut => Some(answer::SHUTDOWN),
        }
    }
}

/// What comes next.
enum Next {
    Piece(Bytes),
    End,
    /// Nothing more about what is said already.
    Quiet,
    /// It broke off: for this reason, and so the client is told.
    Broken(&'static str, Option<String>),
}

impl Passing {
    async fn run(mut self) {
        loop {
            match self.next().await {
                Next::Piece(piece) => {
                    if let Some(reason) = self.hand_on(piece).await.end() {
                        return self.give_up(reason).await;
                    }
                }
                Next::Quiet => {
                    self.keep(None).await;
                    if self.release().await != Handed::On {
                        return;
                    }
                }
                Next::End => {
                    self.keep(None).await;
                    if self.release().await == Handed::On {
                        self.is_whole.store(true, Ordering::Release);
                    }
                    return;
                }
                Next::Broken(reason, told) => {
                    self.keep(Some(reason)).await;
                    if self.release().await == Handed::On
                        && let Some(told) = told.filter(|_| self.is_stream)
                    {
                        self.send(told.into()).await;
                    }
                    return;
                }
            }
        }
    }

    async fn next(&mut self) -> Next {
        if let Some(piece) = self.pieces.next() {
            return Next::Piece(piece);
        }
        let Some(rest) = &mut self.rest else { return Next::End };
        let (idle, is_said) = (Instant::now() + self.idle, self.said.is_some());
        let until = match (self.said, self.begins_by) {
            (Some(said), _) => idle.min(said + LAST_WORD),
            (None, begins_by) => begins_by.unwrap_or(idle),
        };
        let app = Arc::clone(&self.app);
        tokio::select! {
            came = tokio::time::timeout_at(until, rest.chunk()) => match came {
                Ok(Ok(Some(piece))) => Next::Piece(piece),
                Ok(Ok(None)) => Next::End,
                Ok(Err(error)) => {
                    let error = error.without_url();
                    tracing::warn!(%error, "an answer broke off");
                    Next::Broken(answer::UPSTREAM, None)
                }
                Err(_) if is_said => Next::Quiet,
                Err(_) if self.begins_by.is_some() => {
                    let message = upstream::not_begun(self.app.proxy.options.first_byte_time());
                    let told = words::event(self.protocol, "upstream_timeout", &message);
                    Next::Broken(answer::UPSTREAM, Some(told))
                }
                Err(_) => {
                    let seconds = self.idle.as_secs();
                    let message = format!(
                        "the provider sent nothing more for {seconds} s (`proxy.idle_seconds`)"
                    );
                    let told = words::event(self.protocol, "upstream_timeout", &message);
                    Next::Broken(answer::UPSTREAM, Some(told))
                }
            },
            () = self.sender.closed() => Next::Broken(answer::CLIENT, None),
            () = app.proxy.is_cut() => {
                let message = "the host ends; ask again";
                let told = words::event(self.protocol, "shutting_down", message);
                Next::Broken(answer::SHUTDOWN, Some(told))
            }
        }
    }

    /// Hands a piece on, or holds it where it may be the last.
    async fn hand_on(&mut self, piece: Bytes) -> Handed {
        self.begins_by = None;
        let Some((_, reading)) = &mut self.keeping else { return self.send(piece).await };
        reading.take(&piece);
        let (is_all_said, is_over) = (reading.is_all_said(), reading.is_over());
        self.held_bytes += piece.len();
        if !self.is_stream {
            // Only the last piece of an answer in one waits, and any may be the last.
            let earlier = self.held.pop();
            self.held.push(piece);
            return match earlier {
                Some(earlier) => self.send(earlier).await,
                None => Handed::On,
            };
        }
        if !is_all_said {
            // Another choice may begin where one has ended: that was not the last then.
            return match self.release().await {
                Handed::On => self.send(piece).await,
                gone => gone,
            };
        }
        self.said.get_or_insert_with(Instant::now);
        self.held.push(piece);
        if is_over || self.held_bytes > MOST_HELD_BYTES {
            self.keep(None).await;
            return self.release().await;
        }
        Handed::On
    }

    async fn send(&self, piece: Bytes) -> Handed {
        self.app.metrics.sent(piece.len());
        tokio::select! {
            // A client that keeps up is told how it ends.
            biased;
            sent = self.sender.send(piece) => match sent {
                Ok(()) => Handed::On,
                Err(_) => Handed::Left,
            },
            () = self.app.proxy.is_cut() => Handed::Cut,
        }
    }

    /// Sends what was held.
    async fn release(&mut self) -> Handed {
        (self.said, self.held_bytes) = (None, 0);
        for piece in std::mem::take(&mut self.held) {
            let handed = self.send(piece).await;
            if handed != Handed::On {
                return handed;
            }
        }
        Handed::On
    }

    /// Nobody listens any more, or nobody may.
    async fn give_up(mut self, reason: &'static str) {
        // Dropped first: a provider stops when its client is gone.
        self.rest = None;
        self.keep(Some(reason)).await;
    }

    /// Keeps the reply, once.
    async fn keep(&mut self, broken: Option<&'static str>) {
        let Some((keeper, reading)) = self.keeping.take() else { return };
        let read = reading.finish(broken);
        let outcome = match read.interrupted {
            None => "answered",
            Some(_) => "interrupted",
        };
        self.app.metrics.proxied(self.protocol, outcome);
        keeper.keep(self.protocol, read).await;
    }
}

impl Keeper {
    async fn keep(self, protocol: Protocol, read: Read) {
        let Self { memory, scope, followed, model, counted } = self;
        if read.message.is_none() && read.interrupted == Some(answer::SIZE) {
            tracing::warn!("an answer was larger than `proxy.kept_answer_bytes` and is not kept");
        }
        let Some(reply) = read.message.as_ref().and_then(|said| reply(protocol, said, &read))
        else {
            return;
        };
        let count = model.zip(read.input_tokens).map(|(model, tokens)| ProviderCount {
            model,
            tokens,
            counted,
        });
        if let Err(error) = memory.keep_reply(&scope, &followed, reply, count).await {
            tracing::warn!(%error, "a reply was not kept");
        }
    }
}

/// The reply as it is kept.
fn reply(protocol: Protocol, said: &Value, read: &Read) -> Option<ClientMessage> {
    let mut reply = message::read(protocol, &said.to_string()).ok()?;
    reply.turn.model.clone_from(&read.model);
    if let Some(reason) = read.interrupted {
        reply.turn.tags = Some(vec![PARTIAL_TAG.to_owned()]);
        reply.turn.extra.push((INTERRUPTED.to_owned(), JsonText::string(reason)));
    }
    match reply.turn.check() {
        Ok(()) => Some(reply),
        Err(error) => {
            tracing::warn!(%error, "a reply was not kept");
            None
        }
    }
}

/// The pieces of an answer, as the response's body. However its sender ends, an answer
/// that is not whole ends in an error, so that no client takes it for one that is.
struct Pieces {
    receiver: mpsc::Receiver<Bytes>,
    is_whole: Arc<AtomicBool>,
}

impl futures_core::Stream for Pieces {
    type Item = Piece;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        self.receiver.poll_recv(cx).map(|piece| match piece {
            Some(piece) => Some(Ok(piece)),
            None if self.is_whole.swap(true, Ordering::AcqRel) => None,
            None => Some(Err(std::io::Error::other("the answer broke off"))),
        })
    }
}
