//! The client for code that waits on its thread.

use std::fmt;
use std::sync::mpsc;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, RequestBuilder};
use tokio::runtime::{Builder, Runtime};

/// A client that blocks. It may be made, called and dropped on any thread, also on one
/// that runs async code: requests run on a thread of its own.
pub struct BlockingClient {
    client: Client,
    /// Always there until it is dropped.
    runtime: Option<Runtime>,
}

/// What a server answered.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// The server did not answer in full within the time given.
    Timeout,
    /// The answer is longer than the limit.
    TooLong,
    /// No connection can be made.
    Unreachable(String),
    /// The connection broke before the answer was complete.
    Broken(String),
    /// The request cannot be sent.
    Invalid(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Timeout => f.write_str("no answer in time"),
            CallError::TooLong => f.write_str("an answer without end"),
            CallError::Unreachable(server) => write!(f, "no server answers at {server}"),
            CallError::Broken(reason) => write!(f, "the connection broke: {reason}"),
            CallError::Invalid(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for CallError {}

impl fmt::Debug for BlockingClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockingClient")
    }
}

impl BlockingClient {
    /// A client for the server at `base_url`.
    pub fn new(base_url: &str) -> Result<Self, String> {
        let client = crate::build(crate::builder(base_url)?)?;
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Ok(Self { client, runtime: Some(runtime.map_err(|error| error.to_string())?) })
    }

    /// Sends the request that `make` describes and waits for all of its answer, at most
    /// `max_bytes` of body.
    pub fn call(
        &self,
        make: impl FnOnce(&Client) -> RequestBuilder,
        timeout: Duration,
        max_bytes: usize,
    ) -> Result<Answer, CallError> {
        let request = make(&self.client);
        let (tell, told) = mpsc::sync_channel(1);
        let runtime = self.runtime.as_ref().expect("it is taken when the client is dropped");
        runtime.spawn(async move {
            let answer = tokio::time::timeout(timeout, send(request, max_bytes)).await;
            // Nobody waits any more if the calling thread has panicked.
            let _ = tell.send(answer.unwrap_or(Err(CallError::Timeout)));
        });
        told.recv().unwrap_or_else(|_| Err(CallError::Broken("the request was dropped".to_owned())))
    }
}

impl Drop for BlockingClient {
    fn drop(&mut self) {
        // Dropping a runtime where async code runs would panic.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn send(request: RequestBuilder, max_bytes: usize) -> Result<Answer, CallError> {
    let mut response = request.send().await.map_err(read_error)?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(read_error)? {
        if body.len() + chunk.len() > max_bytes {
            return Err(CallError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    let status = response.status().as_u16();
    Ok(Answer { status, headers: std::mem::take(response.headers_mut()), body })
}

fn read_error(error: reqwest::Error) -> CallError {
    let server = error.url().map(|url| url.origin().ascii_serialization()).unwrap_or_default();
    match () {
        () if error.is_timeout() => CallError::Timeout,
        () if error.is_connect() => CallError::Unreachable(server),
        () if error.is_builder() => CallError::Invalid(error.without_url().to_string()),
        () => CallError::Broken(innermost(&error)),
    }
}

/// The cause of all: the outer errors name the address, which may hold a password.
fn innermost(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => innermost(source),
        None => error.to_string(),
    }
}
