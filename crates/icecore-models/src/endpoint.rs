//! Embedding by a server that speaks OpenAI's `POST /embeddings`.
//!
//! Whatever the server does ends in vectors of the declared length or in an
//! [`EmbedError`] within the timeout. The key is in no error and no `Debug`.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use icecore_domain::embed::{EmbedError, Embedder, ModelId, Vector};
use icecore_domain::retry::Backoff;
use icecore_http::BlockingClient;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::endpoint_wire::{self as wire, Reply};

/// Where a server is and how to treat it.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    /// Up to and without `/embeddings`, such as `http://127.0.0.1:8080/v1`.
    pub base_url: String,
    /// The model, as the server calls it.
    pub model: String,
    /// Sent as a bearer token.
    pub api_key: Option<ApiKey>,
    /// Length of its vectors; one text is embedded to learn it when not given.
    pub dims: Option<usize>,
    /// The longest that one batch may take, retries included.
    pub timeout: Duration,
    /// Texts in one request.
    pub batch_texts: usize,
    /// Characters of a text that are sent: servers refuse a text beyond their
    /// model's window, and with it the batch.
    pub text_chars: usize,
    /// Waited before the second try; before each further one four times as
    /// long. A server may ask for more.
    pub retry_pause: Duration,
}

impl EndpointConfig {
    /// A server and a model, all else at its default.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            model: model.into(),
            api_key: None,
            dims: None,
            timeout: Duration::from_secs(30),
            batch_texts: 64,
            text_chars: 8_000,
            retry_pause: Duration::from_millis(200),
        }
    }
}

/// A key that shows itself to nobody but the server.
#[derive(Clone)]
pub struct ApiKey(Zeroizing<String>);

impl ApiKey {
    /// Takes a key, from the environment or wherever the caller found it.
    pub fn new(key: impl Into<String>) -> Self {
        Self(Zeroizing::new(key.into()))
    }

    /// Whether a header can bear it.
    pub fn is_printable(&self) -> bool {
        self.0.bytes().all(|byte| byte.is_ascii_graphic())
    }

    /// As the value of a header, after a word such as `Bearer `.
    pub fn after(&self, word: &str) -> Zeroizing<String> {
        Zeroizing::new(format!("{word}{}", self.0.as_str()))
    }

    /// A server's words without it: some repeat the key that they refuse.
    pub fn hidden_in(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(self.0.as_str(), "…") }
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// Why a server cannot be used, before it is asked anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    #[error("the embeddings address `{base_url}` is not http:// or https:// with a host")]
    Address { base_url: String },
    /// A name or password in the address would show in messages.
    #[error("the embeddings address holds credentials; give the key apart")]
    Credentials,
    #[error("the key for {base_url} has characters that no header may have")]
    Key { base_url: String },
    #[error("`{setting}` must not be zero")]
    Zero { setting: &'static str },
    #[error("cannot set up connections to the embeddings server: {0}")]
    Setup(String),
    /// It was asked for the length of its vectors, and that failed.
    #[error("cannot learn the dimensions of the embedding model")]
    Probe(#[source] EmbedError),
}

/// A model behind an OpenAI-compatible endpoint.
#[derive(Debug)]
pub struct EndpointEmbedder {
    config: EndpointConfig,
    url: String,
    client: BlockingClient,
    id: ModelId,
}

/// How often a busy server is asked.
const TRIES: u32 = 4;

/// No server is waited for longer between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl EndpointEmbedder {
    /// Prepares to ask a server. It is asked for one vector when its dimensions
    /// are not declared; otherwise it need not be up yet.
    pub fn connect(config: EndpointConfig) -> Result<Self, EndpointError> {
        check(&config)?;
        let base = config.base_url.trim_end_matches('/').to_owned();
        let client = BlockingClient::new(&base).map_err(EndpointError::Setup)?;
        let id = ModelId { name: config.model.clone(), hash: [0; 32], dims: 0 };
        let mut new = Self { url: format!("{base}/embeddings"), client, id, config };
        new.id.dims = match new.config.dims {
            Some(dims) => dims,
            None => new.probe().map_err(EndpointError::Probe)?,
        };
        new.id.hash = identity(&base, &new.id);
        Ok(new)
    }

    fn probe(&self) -> Result<usize, EmbedError> {
        let rows = self.request(&["dimensions"])?;
        match rows.first().map_or(0, Vec::len) {
            0 => Err(self.wrong("a vector without components")),
            dims => Ok(dims),
        }
    }

    /// Asks for one batch, again and again while there is hope and time.
    fn request(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let deadline = Instant::now() + self.config.timeout;
        let body = wire::request(&self.config.model, texts);
        let pause = self.config.retry_pause;
        let mut backoff = Backoff { tries: TRIES - 1, pause, factor: 4, longest: LONGEST_PAUSE };
        loop {
            let (reason, asked) = match self.send(&body, deadline) {
                Reply::Rows(rows) => return self.in_order(rows, texts.len()),
                Reply::Wrong(reason) => return Err(self.wrong(&reason)),
                Reply::Unavailable(reason) => return Err(self.unavailable(&reason)),
                Reply::Busy { reason, wait } => (reason, wait),
            };
            let left = deadline.saturating_duration_since(Instant::now());
            match backoff.next(asked, left) {
                Some(pause) => thread::sleep(pause),
                None => return Err(self.unavailable(&reason)),
            }
        }
    }

    fn send(&self, body: &[u8], deadline: Instant) -> Reply {
        let left = deadline.saturating_duration_since(Instant::now());
        let make = |client: &reqwest::Client| {
            let request = client.post(&self.url).header("content-type", "application/json");
            let request = request.body(body.to_vec());
            match &self.config.api_key {
                Some(key) => request.header("authorization", key.after("Bearer ").as_str()),
                None => request,
            }
        };
        wire::read_reply(self.client.call(make, left, wire::MAX_ANSWER_BYTES))
    }

    /// The rows by the index that each of them bears.
    fn in_order(&self, rows: Vec<wire::Row>, count: usize) -> Result<Vec<Vec<f32>>, EmbedError> {
        if rows.len() != count {
            return Err(self.wrong(&format!("{} vectors for {count} texts", rows.len())));
        }
        let mut placed = vec![None; count];
        for (at, row) in rows.into_iter().enumerate() {
            let place = placed.get_mut(row.index.unwrap_or(at)).filter(|place| place.is_none());
            *place.ok_or_else(|| self.wrong("indexes that fit no text"))? = Some(row.embedding);
        }
        Ok(placed.into_iter().flatten().collect())
    }

    fn vector(&self, row: &[f32]) -> Result<Vector, EmbedError> {
        if row.len() != self.id.dims {
            let reason = format!("{} dimensions instead of {}", row.len(), self.id.dims);
            return Err(self.wrong(&reason));
        }
        if row.iter().all(|component| *component == 0.0) {
            return Ok(self.nowhere());
        }
        Vector::from_floats(row).ok_or_else(|| self.wrong("a component that is no number"))
    }

    fn nowhere(&self) -> Vector {
        Vector::new(vec![0; self.id.dims])
    }

    fn unavailable(&self, reason: &str) -> EmbedError {
        EmbedError::Unavailable { model: self.id.name.clone(), reason: self.without_key(reason) }
    }

    fn wrong(&self, reason: &str) -> EmbedError {
        EmbedError::Wrong { model: self.id.name.clone(), reason: self.without_key(reason) }
    }

    fn without_key(&self, reason: &str) -> String {
        self.config.api_key.as_ref().map_or_else(|| reason.to_owned(), |key| key.hidden_in(reason))
    }
}

impl Embedder for EndpointEmbedder {
    fn model(&self) -> &ModelId {
        &self.id
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vector>, EmbedError> {
        // Servers refuse an empty text, and it has no meaning to ask for.
        let asked: Vec<(usize, &str)> = (0..texts.len())
            .map(|at| (at, first_chars(texts[at], self.config.text_chars)))
            .filter(|(_, text)| !text.trim().is_empty())
            .collect();
        let mut vectors = vec![self.nowhere(); texts.len()];
        for batch in asked.chunks(self.config.batch_texts) {
            let batch_texts: Vec<&str> = batch.iter().map(|(_, text)| *text).collect();
            let rows = self.request(&batch_texts)?;
            for ((at, _), row) in batch.iter().zip(&rows) {
                vectors[*at] = self.vector(row)?;
            }
        }
        Ok(vectors)
    }

    fn is_remote(&self) -> bool {
        true
    }
}

fn check(config: &EndpointConfig) -> Result<(), EndpointError> {
    let sizes = [
        ("batch_texts", config.batch_texts == 0),
        ("text_chars", config.text_chars == 0),
        ("timeout", config.timeout.is_zero()),
        ("dims", config.dims == Some(0)),
    ];
    if let Some((setting, _)) = sizes.iter().find(|(_, zero)| *zero) {
        return Err(EndpointError::Zero { setting });
    }
    let authority = icecore_http::authority(&config.base_url)
        .ok_or_else(|| EndpointError::Address { base_url: config.base_url.clone() })?;
    if authority.contains('@') {
        return Err(EndpointError::Credentials);
    }
    if !config.api_key.as_ref().is_none_or(ApiKey::is_printable) {
        return Err(EndpointError::Key { base_url: config.base_url.clone() });
    }
    Ok(())
}

/// A model is known by where it runs as well: two servers may call two models
/// by one name.
fn identity(base_url: &str, id: &ModelId) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in ["icecore endpoint 1", base_url, &id.name, &id.dims.to_string()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

fn first_chars(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;
