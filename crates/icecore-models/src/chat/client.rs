//! Asking a model: once, and again while there is hope and time.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use icecore_domain::chat::{
    Answering, ChatError, ChatModel, ChatProfile, ChatReply, ChatRequest, Finish, Prices, Protocol,
    Usage,
};
use icecore_domain::retry::Backoff;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, Response};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::catalogue::known_window;
use super::draft::{Draft, End, Trouble};
use super::openai::AnswerTokens;
use super::overflow::Overflow;
use super::refusal::{self, Refusal};
use super::sse::{Event, EventReader};
use super::{anthropic, openai};
use crate::endpoint::ApiKey;

/// A server that asks for a longer pause is not tried again; the caller gets the error.
pub const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Where a model is and how to treat it.
#[derive(Debug, Clone)]
pub struct ChatClientConfig {
    pub name: String,
    pub protocol: Protocol,
    /// Up to and with the version path, such as `http://127.0.0.1:8080/v1`.
    pub base_url: String,
    pub model: String,
    /// Sent as a bearer token, or as `x-api-key` to Anthropic.
    pub api_key: Option<ApiKey>,
    /// Tokens of request and answer together; without, what is known of the model.
    pub window: Option<u64>,
    /// Tokens of it that are reserved for the answer.
    pub reserve: u64,
    pub prices: Prices,
    /// Whether its server keeps the beginning of a request at hand.
    pub caches_prefix: bool,
    /// The longest that an answer may take, retries included.
    pub timeout: Duration,
    /// The longest to wait for a connection, for the first piece of an answer, and
    /// between two pieces.
    pub idle: Duration,
    /// How often it is asked again.
    pub retries: u32,
    /// Waited before the first retry; before each further one twice as long. A server
    /// may ask for more.
    pub retry_pause: Duration,
}

impl ChatClientConfig {
    /// A model at a server, all else at its default.
    pub fn new(protocol: Protocol, base_url: impl Into<String>, model: impl Into<String>) -> Self {
        let model = model.into();
        Self {
            name: model.clone(),
            protocol,
            base_url: base_url.into(),
            model,
            api_key: None,
            window: None,
            reserve: 1_024,
            prices: Prices::default(),
            caches_prefix: false,
            timeout: Duration::from_secs(300),
            idle: Duration::from_secs(120),
            retries: 3,
            retry_pause: Duration::from_millis(500),
        }
    }
}

/// Tokens of request and answer that a model is given of which nothing is known.
pub const UNKNOWN_WINDOW: u64 = 8_192;

/// A stream may have at most this many bytes (64 MiB): every piece comes in a wrapping of
/// some hundred bytes.
const MAX_STREAM_BYTES: usize = 64 << 20;

/// Of a refusal, this many bytes are read (64 KiB).
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// The longest to wait for a connection alone.
const CONNECT: Duration = Duration::from_secs(10);

/// Why a model cannot be used, before it is asked anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatClientError {
    #[error("the address `{url}` of model `{name}` is not http:// or https:// with a host")]
    Address { name: String, url: String },
    /// A name or password in the address would show in messages.
    #[error("the address of model `{name}` holds credentials; give the key apart")]
    Credentials { name: String },
    #[error("the key of model `{name}` has characters that no header may have")]
    Key { name: String },
    #[error("`{setting}` of model `{name}` must not be zero")]
    Zero { name: String, setting: &'static str },
    #[error(
        "the reserve of {reserve} tokens of model `{name}` leaves nothing of its window of {window}"
    )]
    Reserve { name: String, reserve: u64, window: u64 },
    #[error("cannot set up connections for model `{name}`: {reason}")]
    Setup { name: String, reason: String },
}

/// A model behind HTTP.
pub struct ChatClient {
    profile: ChatProfile,
    config: ChatClientConfig,
    url: String,
    headers: HeaderMap,
    client: Client,
    /// The server wants the answer's tokens under their newer name.
    is_newer: AtomicBool,
}

impl fmt::Debug for ChatClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatClient").field("config", &self.config).finish_non_exhaustive()
    }
}

/// What came of one try.
struct Failed {
    error: ChatError,
    /// Whether it may be tried again, and how long the server asks to wait.
    again: Option<Option<Duration>>,
}

impl ChatClient {
    /// Prepares to ask a model. It need not be up yet.
    pub fn new(config: ChatClientConfig) -> Result<Self, ChatClientError> {
        let name = config.name.clone();
        let base = config.base_url.trim_end_matches('/').to_owned();
        let window =
            config.window.or_else(|| known_window(&config.model)).unwrap_or(UNKNOWN_WINDOW);
        check(&config, window)?;
        let path = match config.protocol {
            Protocol::OpenAi => openai::PATH,
            Protocol::Anthropic => anthropic::PATH,
        };
        let profile = ChatProfile {
            name: name.clone(),
            model: config.model.clone(),
            protocol: config.protocol,
            identity: identity(&base, &config),
            window,
            reserve: config.reserve,
            prices: config.prices,
            caches_prefix: config.caches_prefix,
        };
        let headers =
            headers(&config).ok_or_else(|| ChatClientError::Key { name: name.clone() })?;
        let client = icecore_http::client(&base, config.idle.min(CONNECT))
            .map_err(|reason| ChatClientError::Setup { name, reason })?;
        let url = format!("{base}{path}");
        let is_newer = AtomicBool::new(url.starts_with("https://api.openai.com/"));
        Ok(Self { profile, url, headers, client, config, is_newer })
    }

    fn body(&self, request: &ChatRequest) -> String {
        let model = &self.config.model;
        match self.config.protocol {
            Protocol::OpenAi => {
                let is_newer = self.is_newer.load(Ordering::Relaxed);
                let tokens = if is_newer { AnswerTokens::MaxCompletion } else { AnswerTokens::Max };
                openai::body(model, request, tokens)
            }
            Protocol::Anthropic => anthropic::body(model, request, self.config.caches_prefix),
        }
    }

    async fn ask(
        &self,
        request: &ChatRequest,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<ChatReply, ChatError> {
        // Shared by all tries.
        let mut body = Bytes::from(self.body(request));
        let deadline = Instant::now() + self.config.timeout;
        let (tries, pause) = (self.config.retries, self.config.retry_pause);
        let mut backoff = Backoff { tries, pause, factor: 2, longest: LONGEST_WAIT };
        loop {
            let mut draft = Draft::default();
            let once = self.once(body.clone(), request, &mut draft, tell);
            let failed = match tokio::time::timeout_at(deadline, once).await {
                Ok(Ok(finish)) => return Ok(draft.into_reply(finish)),
                Ok(Err(failed)) => failed,
                Err(_) => return Err(self.late(self.config.timeout, &draft.text)),
            };
            if self.wants_newer(&failed.error) {
                body = Bytes::from(self.body(request));
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let again = failed.again.filter(|_| draft.text.is_empty());
            match again.and_then(|asked| backoff.next(asked, left)) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(failed.error),
            }
        }
    }

    /// Whether it was refused for the name of one number; from now on it has the other.
    fn wants_newer(&self, error: &ChatError) -> bool {
        let names = |reason: &str| reason.contains(openai::NEWER_NAME);
        self.config.protocol == Protocol::OpenAi
            && matches!(error, ChatError::Refused { reason, .. } if names(reason))
            && !self.is_newer.swap(true, Ordering::Relaxed)
    }

    /// Asks, and reads the answer into `draft`.
    async fn once(
        &self,
        body: Bytes,
        request: &ChatRequest,
        draft: &mut Draft,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Finish, Failed> {
        let sending = self.client.post(&self.url).headers(self.headers.clone());
        let sent = sending.body(body).send();
        let response = match self.in_time(sent).await {
            None => return Err(final_error(self.late(self.config.idle, ""))),
            Some(Err(error)) => return Err(self.broken(&error, draft)),
            Some(Ok(response)) => response,
        };
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        self.read(response, draft, tell).await?;
        self.finish(request, draft)
    }

    async fn in_time<T>(&self, step: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(self.config.idle, step).await.ok()
    }

    /// Reads an answer, in events or in one piece.
    async fn read(
        &self,
        mut response: Response,
        draft: &mut Draft,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(), Failed> {
        let kind = response.headers().get("content-type");
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        let mut form = Form::of_type(&kind);
        let mut head = Vec::new();
        let mut events = EventReader::default();
        let mut bytes_read = 0_usize;
        while !draft.is_over {
            let chunk = match self.in_time(response.chunk()).await {
                None => return Err(final_error(self.late(self.config.idle, &draft.text))),
                Some(Err(error)) => return Err(self.broken(&error, draft)),
                Some(Ok(None)) => break,
                Some(Ok(Some(chunk))) => chunk,
            };
            bytes_read = bytes_read.saturating_add(chunk.len());
            if bytes_read > MAX_STREAM_BYTES {
                let reason = format!("an answer of more than {MAX_STREAM_BYTES} bytes");
                return Err(self.troubled(Trouble::Malformed(reason), draft));
            }
            if form == Form::Unknown {
                head.extend_from_slice(&chunk);
                form = Form::of_beginning(&head);
                if form == Form::Events {
                    self.take_events(&mut events, &std::mem::take(&mut head), draft, tell)?;
                }
            } else if form == Form::Events {
                self.take_events(&mut events, &chunk, draft, tell)?;
            } else {
                head.extend_from_slice(&chunk);
            }
        }
        match form {
            Form::Events => {
                let last = events.finish().unwrap_or_default();
                last.map_or(Ok(()), |event| self.take_event(&event, draft, tell))
            }
            Form::Whole => self.take_whole(&head, draft, tell),
            Form::Unknown => {
                let what = if kind.is_empty() { "something" } else { kind.as_str() };
                let reason = format!("{what} instead of an answer");
                Err(self.troubled(Trouble::Malformed(reason), draft))
            }
        }
    }

    fn take_events(
        &self,
        events: &mut EventReader,
        bytes: &[u8],
        draft: &mut Draft,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(), Failed> {
        let not_text = |_| Trouble::Malformed("a stream that is no text".to_owned());
        let events = match events.take(bytes).map_err(not_text) {
            Ok(events) => events,
            Err(trouble) => return Err(self.troubled(trouble, draft)),
        };
        events.iter().try_for_each(|event| self.take_event(event, draft, tell))
    }

    fn take_event(
        &self,
        event: &Event,
        draft: &mut Draft,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(), Failed> {
        if draft.is_over {
            return Ok(());
        }
        let data = event.data.as_str();
        let taken = match self.config.protocol {
            _ if event.name == "error" => Err(Trouble::Error(data.to_owned())),
            Protocol::OpenAi => openai::take_event(draft, data),
            Protocol::Anthropic => anthropic::take_event(draft, data),
        };
        self.heard(taken, draft, tell)
    }

    fn take_whole(
        &self,
        body: &[u8],
        draft: &mut Draft,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(), Failed> {
        let body = String::from_utf8_lossy(body);
        let taken = match self.config.protocol {
            Protocol::OpenAi => openai::take_whole(draft, &body),
            Protocol::Anthropic => anthropic::take_whole(draft, &body),
        };
        self.heard(taken, draft, tell)
    }

    fn heard(
        &self,
        taken: Result<String, Trouble>,
        draft: &mut Draft,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<(), Failed> {
        let told = taken.and_then(|piece| draft.within_limit().map(|()| piece));
        match told {
            Ok(piece) if piece.is_empty() => Ok(()),
            Ok(piece) => {
                tell(&piece);
                Ok(())
            }
            Err(trouble) => Err(self.troubled(trouble, draft)),
        }
    }

    /// Whether all of an answer is there, once no more comes.
    fn finish(&self, request: &ChatRequest, draft: &mut Draft) -> Result<Finish, Failed> {
        match draft.end.clone() {
            Some(End::Broken(reason)) => Err(self.cut_off(&reason, draft)),
            Some(End::WindowFull) => Err(final_error(self.overflow(Overflow::default(), draft))),
            Some(End::Finish(Finish::Length)) if self.fills_window(request, draft) => {
                Err(final_error(self.overflow(Overflow::default(), draft)))
            }
            Some(End::Finish(finish)) => Ok(finish),
            None if draft.is_over && !draft.is_empty() => Ok(Finish::Stop),
            None => Err(self.cut_off("it ended before its end", draft)),
        }
    }

    /// Whether an answer that ran out of tokens had fewer than it was given: then it was
    /// the window that was full. llama.cpp and Ollama say it in no other way. A server
    /// may also give less than it was asked for, so of an answer that says something the
    /// counts must reach the window.
    fn fills_window(&self, request: &ChatRequest, draft: &Draft) -> bool {
        let is_short = |usage: &Usage| usage.output < request.max_tokens;
        let is_full = |usage: &Usage| {
            is_short(usage) && usage.input.saturating_add(usage.output) >= self.profile.window
        };
        match (&draft.usage, draft.is_empty()) {
            (Some(usage), true) => is_short(usage),
            (Some(usage), false) => is_full(usage),
            (None, is_empty) => is_empty,
        }
    }

    async fn refused(&self, mut response: Response) -> Failed {
        let status = response.status().as_u16();
        let wait = refusal::wait_of(response.headers());
        let mut body = Vec::new();
        while let Some(Ok(Some(chunk))) = self.in_time(response.chunk()).await {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_REFUSAL_BYTES {
                body.truncate(MAX_REFUSAL_BYTES);
                break;
            }
        }
        let body = String::from_utf8_lossy(&body);
        let refusal = refusal::of_status(status, wait, &body, &|text| self.without_key(text));
        self.failed(refusal, &mut Draft::default())
    }

    fn failed(&self, refusal: Refusal, draft: &mut Draft) -> Failed {
        let model = self.config.name.clone();
        let clean = |reason: &str| self.without_key(reason);
        match refusal {
            Refusal::Overflow(overflow) => final_error(self.overflow(overflow, draft)),
            Refusal::Denied(reason) => {
                final_error(ChatError::Denied { model, reason: clean(&reason) })
            }
            Refusal::UnknownModel(reason) => {
                final_error(ChatError::UnknownModel { model, reason: clean(&reason) })
            }
            Refusal::Refused(reason) => {
                final_error(ChatError::Refused { model, reason: clean(&reason) })
            }
            Refusal::Busy { reason, .. } | Refusal::Failing { reason, .. }
                if !draft.text.is_empty() =>
            {
                self.cut_off(&reason, draft)
            }
            Refusal::Busy { wait, .. } => {
                Failed { error: ChatError::Busy { model, retry_after: wait }, again: Some(wait) }
            }
            Refusal::Failing { reason, wait } => {
                let error = ChatError::Unavailable { model, reason: clean(&reason) };
                Failed { error, again: Some(wait) }
            }
        }
    }

    fn troubled(&self, trouble: Trouble, draft: &mut Draft) -> Failed {
        match trouble {
            Trouble::Error(data) => {
                self.failed(refusal::of_event(&data, &|text| self.without_key(text)), draft)
            }
            Trouble::Malformed(reason) => {
                let (model, reason) = (self.config.name.clone(), self.without_key(&reason));
                final_error(ChatError::Malformed { model, reason })
            }
        }
    }

    fn overflow(&self, overflow: Overflow, draft: &mut Draft) -> ChatError {
        ChatError::Overflow {
            model: self.config.name.clone(),
            limit: overflow.limit,
            requested: overflow.requested,
            partial: draft.text.clone(),
        }
    }

    /// A connection that cannot be made, or breaks.
    fn broken(&self, error: &reqwest::Error, draft: &mut Draft) -> Failed {
        if !draft.text.is_empty() {
            return self.cut_off("the connection broke", draft);
        }
        let reason = match () {
            () if error.is_timeout() => "no connection in time".to_owned(),
            () if error.is_connect() => format!("nobody is at {}", self.config.base_url),
            () => "the connection broke".to_owned(),
        };
        let model = self.config.name.clone();
        let again = (!error.is_builder() && !error.is_timeout()).then_some(None);
        Failed { error: ChatError::Unavailable { model, reason }, again }
    }

    /// Tried again only if none of its text was passed on.
    fn cut_off(&self, reason: &str, draft: &mut Draft) -> Failed {
        let error = ChatError::CutOff {
            model: self.config.name.clone(),
            reason: self.without_key(reason),
            partial: draft.text.clone(),
        };
        Failed { error, again: Some(None) }
    }

    fn late(&self, waited: Duration, partial: &str) -> ChatError {
        let model = self.config.name.clone();
        let reason = format!("nothing for {} s", waited.as_secs_f64());
        if partial.is_empty() {
            return ChatError::Unavailable { model, reason };
        }
        ChatError::CutOff { model, reason, partial: partial.to_owned() }
    }

    /// Some servers repeat the key that they refuse.
    fn without_key(&self, reason: &str) -> String {
        self.config.api_key.as_ref().map_or_else(|| reason.to_owned(), |key| key.hidden_in(reason))
    }
}

impl ChatModel for ChatClient {
    fn profile(&self) -> &ChatProfile {
        &self.profile
    }

    fn answer<'a>(
        &'a self,
        request: &'a ChatRequest,
        tell: &'a (dyn Fn(&str) + Send + Sync),
    ) -> Answering<'a> {
        Box::pin(self.ask(request, tell))
    }
}

/// How an answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Events,
    Whole,
    /// Its type does not say; its first bytes will.
    Unknown,
}

impl Form {
    fn of_type(kind: &str) -> Self {
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "text/event-stream" => Form::Events,
            "application/json" => Form::Whole,
            _ => Form::Unknown,
        }
    }

    fn of_beginning(bytes: &[u8]) -> Self {
        let bytes = bytes.trim_ascii_start();
        match bytes.first() {
            Some(b'{' | b'[') => Form::Whole,
            Some(b':') => Form::Events,
            _ if [&b"data:"[..], b"event:"].iter().any(|begin| bytes.starts_with(begin)) => {
                Form::Events
            }
            _ => Form::Unknown,
        }
    }
}

fn final_error(error: ChatError) -> Failed {
    Failed { error, again: None }
}

fn check(config: &ChatClientConfig, window: u64) -> Result<(), ChatClientError> {
    let name = || config.name.clone();
    let authority = icecore_http::authority(&config.base_url)
        .ok_or_else(|| ChatClientError::Address { name: name(), url: config.base_url.clone() })?;
    if authority.contains('@') {
        return Err(ChatClientError::Credentials { name: name() });
    }
    let numbers = [
        ("window", window == 0),
        ("reserve", config.reserve == 0),
        ("timeout", config.timeout.is_zero()),
        ("idle", config.idle.is_zero()),
    ];
    if let Some((setting, _)) = numbers.into_iter().find(|(_, zero)| *zero) {
        return Err(ChatClientError::Zero { name: name(), setting });
    }
    if config.reserve >= window {
        return Err(ChatClientError::Reserve { name: name(), reserve: config.reserve, window });
    }
    Ok(())
}

/// The key goes where the protocol has it.
fn headers(config: &ChatClientConfig) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("accept", HeaderValue::from_static("text/event-stream, application/json"));
    let (name, prefix) = match config.protocol {
        Protocol::OpenAi => ("authorization", "Bearer "),
        Protocol::Anthropic => {
            let (name, version) = anthropic::VERSION;
            headers.insert(name, HeaderValue::from_static(version));
            ("x-api-key", "")
        }
    };
    if let Some(key) = config.api_key.as_ref() {
        if !key.is_printable() {
            return None;
        }
        let mut value = HeaderValue::from_str(&key.after(prefix)).ok()?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Some(headers)
}

/// A model is known by where it runs as well: two servers may call two models by one
/// name.
fn identity(base_url: &str, config: &ChatClientConfig) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in ["icecore chat 1", config.protocol.as_str(), base_url, &config.model] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}
