//! What an embeddings server is sent, and what its answers mean.

use std::time::Duration;

use icecore_http::{Answer as HttpAnswer, CallError};
use reqwest::header::HeaderMap;
use serde::{Deserialize, Serialize};

/// More than any batch needs: 64 texts of 4,096 dimensions are about 6 MB.
pub(crate) const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Of a server's own words, as many as fit a line.
const MAX_MESSAGE_CHARS: usize = 200;

/// What came of a request.
pub(crate) enum Reply {
    /// Vectors, not yet looked at.
    Rows(Vec<Row>),
    /// Later it may work.
    Busy { reason: String, wait: Option<Duration> },
    /// Nobody answers, or not in time.
    Unavailable(String),
    /// It does not do what was asked.
    Wrong(String),
}

/// One vector as the server sent it.
#[derive(Deserialize)]
pub(crate) struct Row {
    pub(crate) index: Option<usize>,
    pub(crate) embedding: Vec<f32>,
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    input: &'a [&'a str],
    encoding_format: &'static str,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Row>,
}

/// The body of a request for the vectors of `texts`.
pub(crate) fn request(model: &str, texts: &[&str]) -> Vec<u8> {
    let request = Request { model, input: texts, encoding_format: "float" };
    serde_json::to_vec(&request).expect("strings are always JSON")
}

/// Says what an answer, or the lack of one, means.
pub(crate) fn read_reply(answer: Result<HttpAnswer, CallError>) -> Reply {
    let HttpAnswer { status, headers, body } = match answer {
        Ok(answer) => answer,
        // A kept connection that the server has closed meanwhile looks like this.
        Err(error @ CallError::Broken(_)) => {
            return Reply::Busy { reason: error.to_string(), wait: None };
        }
        Err(error @ CallError::TooLong) => return Reply::Wrong(error.to_string()),
        Err(error) => return Reply::Unavailable(error.to_string()),
    };
    match status {
        200..=299 => rows(&body),
        408 | 429 | 500 | 502..=504 => {
            Reply::Busy { reason: with_status(status, &body), wait: retry_after(&headers) }
        }
        _ => Reply::Wrong(with_status(status, &body)),
    }
}

fn rows(body: &[u8]) -> Reply {
    match serde_json::from_slice::<Answer>(body) {
        Ok(answer) => Reply::Rows(answer.data),
        Err(error) => match message(body) {
            Some(message) => Reply::Wrong(message),
            None => Reply::Wrong(format!("no list of vectors: {error}")),
        },
    }
}

/// The status with the server's own words, where it has any.
fn with_status(status: u16, body: &[u8]) -> String {
    match message(body) {
        Some(message) => format!("status {status}: {message}"),
        None => format!("status {status}"),
    }
}

/// Finds the words in the ways that servers are known to send them.
fn message(body: &[u8]) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    let paths = ["/error/message", "/error", "/message", "/detail"];
    let text = paths.iter().find_map(|path| answer.pointer(path)?.as_str())?;
    let line = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    Some(line.take(MAX_MESSAGE_CHARS).collect())
}

/// Only seconds: a date would need a clock.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get("retry-after")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}
