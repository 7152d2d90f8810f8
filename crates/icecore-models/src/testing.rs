//! A model server that does what a test tells it, over real HTTP on a free port.
//!
//! It speaks both protocols, counts tokens as a real server would, has a window and refuses
//! messages that real servers refuse for their roles, order, pairing or parts. Until
//! a [`Behaviour`] is pushed it answers every request that fits.
//!
//! ```no_run
//! # async fn example() {
//! use icecore_models::testing::{Behaviour, Upstream, UpstreamConfig};
//!
//! let upstream = Upstream::start(UpstreamConfig { window: 4_096, ..Default::default() }).await;
//! upstream.push(Behaviour::Busy { retry_after: Some("1".to_owned()) });
//! let base_url = upstream.url();
//! # }
//! ```

mod answer;
mod connection;
mod counting;
mod refusals;
pub(crate) mod shape;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use icecore_domain::chat::{Protocol, Usage};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

use crate::chat::ChatClientConfig;

/// A function of a request that gives the answer's text.
pub type AnswerBy = Arc<dyn Fn(&UpstreamRequest) -> String + Send + Sync>;

/// A function of a request that gives what the server does with it.
pub type BehaviourBy = Arc<dyn Fn(&UpstreamRequest) -> Behaviour + Send + Sync>;

/// What the server is.
#[derive(Clone)]
pub struct UpstreamConfig {
    pub protocol: Protocol,
    /// Tokens of request and answer together that it takes.
    pub window: u64,
    /// The words in which it refuses what does not fit.
    pub overflow: OverflowForm,
    /// Whether the tokens that the answer may have count against the window, as with
    /// OpenAI, Anthropic and vLLM.
    pub counts_answer: bool,
    /// What it counts for a token of ours, in percent: other tokenizers count more.
    pub count_percent: u64,
    /// The models that it knows; none means any.
    pub models: Vec<String>,
    pub key: Option<String>,
    /// Characters of a piece of a stream.
    pub piece_chars: usize,
    /// The default answer.
    pub answer: AnswerBy,
    /// The default behaviour; overrides `answer`.
    pub otherwise: Option<BehaviourBy>,
    /// What it says of itself beside `/v1/models`.
    pub kind: ServerKind,
    /// Whether it knows `max_tokens` only as `max_completion_tokens`.
    pub is_newer: bool,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            protocol: Protocol::OpenAi,
            window: 128_000,
            overflow: OverflowForm::Own,
            counts_answer: true,
            count_percent: 100,
            models: Vec::new(),
            key: None,
            piece_chars: 7,
            answer: Arc::new(|_| "Understood. I will go on.".to_owned()),
            otherwise: None,
            kind: ServerKind::Plain,
            is_newer: false,
        }
    }
}

impl fmt::Debug for UpstreamConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("UpstreamConfig");
        shown.field("protocol", &self.protocol).field("window", &self.window);
        shown.finish_non_exhaustive()
    }
}

/// Whose words a refusal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are named after whom they imitate")]
pub enum OverflowForm {
    /// Those of the protocol's inventor.
    Own,
    OpenAi,
    Anthropic,
    Gemini,
    LlamaCpp,
    Ollama,
    Vllm,
    OpenRouter,
    /// Words of nobody in particular, without numbers.
    Generic,
}

impl OverflowForm {
    /// All that are somebody's.
    pub const ALL: [OverflowForm; 8] = [
        OverflowForm::OpenAi,
        OverflowForm::Anthropic,
        OverflowForm::Gemini,
        OverflowForm::LlamaCpp,
        OverflowForm::Ollama,
        OverflowForm::Vllm,
        OverflowForm::OpenRouter,
        OverflowForm::Generic,
    ];
}

/// Which server it is beside the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerKind {
    /// None in particular.
    Plain,
    /// llama.cpp's, with `/props`.
    LlamaCpp,
    /// Ollama, with `/api/ps` and `/api/show`.
    Ollama,
}

/// What the server does with the next request.
#[derive(Clone)]
pub enum Behaviour {
    /// Answers this, if the request fits, as far as its tokens reach.
    Answer(String),
    /// Answers what the function says.
    AnswerBy(AnswerBy),
    /// Wants tools called: id, name, arguments.
    CallTools(Vec<(String, String, String)>),
    /// Says this first, and then wants tools called.
    SayAndCall(String, Vec<(String, String, String)>),
    /// Answers in one piece, though a stream was asked for.
    Whole(String),
    /// Says that the request does not fit, whatever it has.
    Overflow,
    /// Says so after this much of an answer.
    OverflowAfter(String),
    /// Ends the answer there because the window is full, in the protocol's own way.
    WindowFull(String),
    /// Ends for lack of tokens.
    Length(String),
    /// Ends after this much, for a reason that is this word.
    EndWith(String, &'static str),
    /// Withholds the answer.
    Filtered,
    /// Says nothing until the client gives up.
    Stall,
    /// Says nothing more after this much.
    StallAfter(String),
    /// Breaks the connection after this much.
    CutOff(String),
    /// Ends the stream in order, but before the answer's end.
    EndEarly(String),
    /// Closes the connection instead of answering.
    HangUp,
    /// 429, with a `Retry-After`.
    Busy {
        retry_after: Option<String>,
    },
    /// This status, with words of its own.
    Fail(u16),
    /// A stream with an event that is no JSON, after this much.
    MalformedStream(String),
    /// A body that is no JSON.
    MalformedJson,
    /// An answer of nothing.
    Empty,
    /// This answer, and wrong counts with it.
    LieAboutUsage(String, Usage),
    /// This answer and no counts.
    WithoutUsage(String),
    /// This answer, with a pause before each piece.
    Slow(String, Duration),
    /// A stream under a content type that is another's.
    WrongType(String, &'static str),
    /// A page for people.
    Html,
    /// A model that it does not know.
    UnknownModel,
    /// A key that it does not take.
    Denied,
    Redirect(String),
    /// An error in the midst of a stream, after this much.
    ErrorAfter(String),
    /// Goes on and on.
    Endless,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct UpstreamRequest {
    /// `POST` or `GET`.
    pub method: String,
    pub path: String,
    /// Names in small letters, and values.
    pub headers: Vec<(String, String)>,
    /// The body, byte for byte.
    pub body: Vec<u8>,
    /// The body as a tree; null if it is none.
    pub json: Value,
    /// What the server counts for it.
    pub tokens: u64,
    /// What of it the server had seen before: messages that the last request began with.
    pub cached_tokens: u64,
}

impl UpstreamRequest {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    pub fn messages(&self) -> &[Value] {
        self.json.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// All texts of all messages, one under the other.
    pub fn text(&self) -> String {
        self.messages().iter().map(counting::text_of).collect::<Vec<_>>().join("\n")
    }

    /// Tokens that the answer may have.
    pub fn max_tokens(&self) -> u64 {
        self.named_max_tokens().unwrap_or(u64::MAX)
    }

    /// Those that the request asks for; who names none takes what is left.
    pub(crate) fn named_max_tokens(&self) -> Option<u64> {
        let named = ["max_tokens", "max_completion_tokens"];
        named.iter().find_map(|key| self.json.get(key)?.as_u64())
    }
}

/// A running server. It ends when this is dropped.
pub struct Upstream {
    address: String,
    shared: Arc<Shared>,
    task: AbortHandle,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What all connections share.
struct Shared {
    config: UpstreamConfig,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    script: VecDeque<Behaviour>,
    requests: Vec<UpstreamRequest>,
    /// Messages of the last request that was answered, and their tokens.
    seen: Vec<(String, u64)>,
    given_up: u64,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Upstream {
    /// Starts a server in the runtime of the test.
    ///
    /// # Panics
    ///
    /// If this machine has no free port.
    pub async fn start(config: UpstreamConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let shared = Arc::new(Shared { config, state: Mutex::default() });
        let accepting = shared.clone();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(connection::serve(stream, accepting.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { address, shared, task: task.abort_handle() }
    }

    /// Its address up to and with the version path.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub fn root(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Says what to do with the next request that nothing was said about yet.
    pub fn push(&self, behaviour: Behaviour) {
        self.shared.state().script.push_back(behaviour);
    }

    /// Says what to do with the next requests.
    pub fn push_all(&self, behaviours: impl IntoIterator<Item = Behaviour>) {
        self.shared.state().script.extend(behaviours);
    }

    /// Behaviours that no request has asked for yet.
    pub fn pending(&self) -> usize {
        self.shared.state().script.len()
    }

    /// Requests for answers that came so far.
    pub fn requests(&self) -> Vec<UpstreamRequest> {
        self.shared.state().requests.clone()
    }

    /// How many there were.
    pub fn request_count(&self) -> usize {
        self.shared.state().requests.len()
    }

    /// Forgets the requests that came so far.
    pub fn forget_requests(&self) {
        self.shared.state().requests.clear();
    }

    /// How many clients went away before their answer was over.
    pub fn given_up(&self) -> u64 {
        self.shared.state().given_up
    }

    /// The settings of a client for it: its window declared, a tenth of it reserved, and
    /// no long waits.
    pub fn client_config(&self) -> ChatClientConfig {
        let config = &self.shared.config;
        let model = config.models.first().map_or("scripted", String::as_str);
        let mut client = ChatClientConfig::new(config.protocol, self.url(), model);
        client.window = Some(config.window);
        client.reserve = (config.window / 10).max(1);
        client.timeout = Duration::from_secs(30);
        client.idle = Duration::from_secs(10);
        client.retry_pause = Duration::from_millis(5);
        client
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}
