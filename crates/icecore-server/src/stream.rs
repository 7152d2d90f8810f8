//! The bytes of a connection, watched: what stalls is noticed, what the HTTP library
//! answers by itself gets our envelope, and a refused client may finish its sentence.

use std::io::{Error, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::line::Line;
use crate::request_id;
use crate::work::Hold;

/// A refused client may still send this much.
const LINGER_BYTES: usize = 64 << 20;

/// A socket and the line it belongs to.
pub(crate) struct Watched<S> {
    socket: S,
    line: Arc<Line>,
    header_bytes: usize,
    /// What is written in place of the library's own answer: its bytes, how many
    /// are out, and how many the library believes to write.
    own: Option<(Vec<u8>, usize, usize)>,
    /// How much may still be thrown away, once our side is closed.
    lingering: Option<usize>,
}

impl<S> Watched<S> {
    pub(crate) fn new(socket: S, line: Arc<Line>, header_bytes: usize) -> Self {
        Self { socket, line, header_bytes, own: None, lingering: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.line.received();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Watched<S> {
    /// Writes our answer instead of the one in `given`.
    fn write_own(
        &mut self,
        cx: &mut Context<'_>,
        given: impl FnOnce() -> Vec<u8>,
    ) -> Poll<std::io::Result<usize>> {
        if self.own.is_none() {
            let given = given();
            self.line.refused();
            self.own = Some((refusal(&given, self.header_bytes), 0, given.len()));
        }
        loop {
            let Some((bytes, out, given)) = &mut self.own else { return Poll::Pending };
            if *out == bytes.len() {
                let given = *given;
                self.own = None;
                return Poll::Ready(Ok(given));
            }
            match ready!(Pin::new(&mut self.socket).poll_write(cx, &bytes[*out..]))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                written => *out += written,
            }
        }
    }

    fn is_own(&self) -> bool {
        self.own.is_some() || self.line.is_between_requests()
    }

    fn watch<T>(&self, polled: Poll<T>) -> Poll<T> {
        match polled.is_pending() {
            true => self.line.stalled(),
            false => self.line.wrote(),
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if self.is_own() {
            return self.write_own(cx, || bytes.to_vec());
        }
        let polled = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.watch(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        if self.is_own() {
            return self.write_own(cx, || slices.iter().flat_map(|slice| slice.to_vec()).collect());
        }
        let polled = Pin::new(&mut self.socket).poll_write_vectored(cx, slices);
        self.watch(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        self.line.flushed();
        Poll::Ready(Ok(()))
    }

    /// Closes our side, and reads on for a while if the client was cut short: to
    /// close with bytes unread would take our last answer from it.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let this = &mut *self;
        let mut left = match this.lingering {
            Some(left) => left,
            None => {
                ready!(Pin::new(&mut this.socket).poll_shutdown(cx))?;
                if this.line.lingers() { LINGER_BYTES } else { 0 }
            }
        };
        let mut waste = [0; 8192];
        while left > 0 {
            let mut buffer = ReadBuf::new(&mut waste);
            let read = Pin::new(&mut this.socket).poll_read(cx, &mut buffer);
            this.lingering = Some(left);
            match ready!(read) {
                Ok(()) if !buffer.filled().is_empty() => {
                    left = left.saturating_sub(buffer.filled().len());
                }
                Ok(()) | Err(Error { .. }) => break,
            }
        }
        this.lingering = Some(0);
        Poll::Ready(Ok(()))
    }
}

/// Our envelope around what the library wanted to say. Its head is kept but for
/// the length, so that the date and the end of the connection are told as always.
fn refusal(given: &[u8], header_bytes: usize) -> Vec<u8> {
    let given = String::from_utf8_lossy(given);
    let status = given.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok());
    let body = envelope(status.unwrap_or(400), header_bytes).to_string();
    let id = request_id::made();
    tracing::info!(status, request_id = id, "refused what is no request");
    let kept = given.trim_end().lines().filter(|line| {
        !line.to_ascii_lowercase().starts_with("content-length:") && !line.is_empty()
    });
    let mut answer: String = kept.flat_map(|line| [line, "\r\n"]).collect();
    answer.push_str(&format!(
        "content-type: application/json\r\nx-request-id: {id}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    answer.into_bytes()
}

fn envelope(status: u16, header_bytes: usize) -> Value {
    match status {
        431 => json!({
            "error": "headers_too_large",
            "message": format!("a request's head is at most {header_bytes} bytes (`header_bytes`) and 100 fields"),
            "details": { "limit": "header_bytes", "limitBytes": header_bytes },
        }),
        414 => json!({
            "error": "uri_too_long",
            "message": "the request's address is too long; send long values in the body",
        }),
        _ => json!({
            "error": "validation_error",
            "message": "this is not a request of HTTP/1.1; the connection is closed",
        }),
    }
}

/// An answer's body that tells its line when it is wholly made.
///
/// It is handed on in small copies: what the HTTP library has in hand is then little,
/// and the answer, with the memory it holds, is there until nearly all is written.
pub(crate) struct Answering {
    body: axum::body::Body,
    /// What is left of the piece at hand.
    rest: Bytes,
    line: Arc<Line>,
    _hold: Option<Hold>,
}

/// The size of the copies.
const COPY: usize = 64 << 10;

impl Answering {
    pub(crate) fn new(body: axum::body::Body, line: Arc<Line>, hold: Option<Hold>) -> Self {
        line.answers();
        Self { body, rest: Bytes::new(), line, _hold: hold }
    }

    /// The next copy of the piece at hand.
    fn copy(&mut self) -> Option<Bytes> {
        let next = self.rest.split_to(self.rest.len().min(COPY));
        (!next.is_empty()).then(|| Bytes::copy_from_slice(&next))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.line.answered();
    }
}

impl Body for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(copy) = self.copy() {
            return Poll::Ready(Some(Ok(Frame::data(copy))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let large = |frame: &Frame<Bytes>| frame.data_ref().is_some_and(|data| data.len() > COPY);
        match frame {
            Some(Ok(frame)) if large(&frame) => {
                self.rest = frame.into_data().unwrap_or_default();
                Poll::Ready(self.copy().map(|copy| Ok(Frame::data(copy))))
            }
            frame => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let body = self.body.size_hint();
        let mut whole = SizeHint::new();
        whole.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            whole.set_upper(upper + rest);
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_librarys_refusals_get_our_envelope() {
        let check = |status: &str, code: &str| {
            let given = format!(
                "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\ndate: x\r\n\r\n"
            );
            let answer = String::from_utf8(refusal(given.as_bytes(), 100)).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(
                head.starts_with(&format!("HTTP/1.1 {status}\r\nconnection: close\r\ndate: x\r\n"))
            );
            assert!(head.ends_with(&format!("\r\ncontent-length: {}", body.len())), "{head}");
            let body: Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["error"], code);
        };
        check("400 Bad Request", "validation_error");
        check("414 URI Too Long", "uri_too_long");
        check("431 Request Header Fields Too Large", "headers_too_large");
    }
}
