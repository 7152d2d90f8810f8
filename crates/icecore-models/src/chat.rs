//! Models that talk, behind HTTP: OpenAI's `chat/completions` and Anthropic's `messages`.
//!
//! Whatever a server does ends in a reply or in a [`ChatError`] within the timeouts. The
//! key is in no error and no `Debug`.

use std::time::Duration;

use icecore_domain::chat::{Answering, ChatModel, ChatProfile, ChatRequest, Prices, Protocol};

use crate::endpoint::ApiKey;

/// Where a model is and how to treat it.
#[derive(Debug, Clone)]
pub struct ChatClientConfig {
    /// What the settings call it.
    pub name: String,
    /// How it is spoken to.
    pub protocol: Protocol,
    /// Up to and with the version path, such as `http://127.0.0.1:8080/v1`.
    pub base_url: String,
    /// What the server calls it.
    pub model: String,
    /// Sent as a bearer token, or as `x-api-key` to Anthropic.
    pub api_key: Option<ApiKey>,
    /// Tokens of request and answer together; without, what is known of the model.
    pub window: Option<u64>,
    /// Tokens of it that are kept free for the answer.
    pub reserve: u64,
    /// What it costs.
    pub prices: Prices,
    /// Whether its server keeps the beginning of a request at hand.
    pub caches_prefix: bool,
    /// The longest that an answer may take, retries included.
    pub timeout: Duration,
    /// The longest to wait for a connection, and between two pieces of an answer.
    pub idle: Duration,
    /// How often it is asked again.
    pub retries: u32,
    /// Waited before the first retry; before each further one twice as long. A server
    /// may ask for more.
    pub retry_pause: Duration,
}

/// Why a model cannot be used, before it is asked anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatClientError {
    /// The address is none.
    #[error("the address `{url}` of model `{name}` is not http:// or https:// with a host")]
    Address {
        /// The model.
        name: String,
        /// What was given.
        url: String,
    },
}

/// A model behind HTTP.
#[derive(Debug)]
pub struct ChatClient {
    profile: ChatProfile,
}

impl ChatClient {
    /// Prepares to ask a model. It need not be up yet.
    pub fn new(config: ChatClientConfig) -> Result<Self, ChatClientError> {
        let _ = config;
        todo!()
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
        let _ = (request, tell);
        todo!()
    }
}

/// What a provider says of a request that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overflow {
    /// The window, if it is named.
    pub limit: Option<u64>,
    /// What the request had, if it is said.
    pub requested: Option<u64>,
}

/// Whether an answer of this status and body says that the request did not fit.
pub fn overflow_of(status: u16, body: &str) -> Option<Overflow> {
    let _ = (status, body);
    todo!()
}

/// A model server on this machine, looked for at these addresses: the first that
/// answers, with the models it has and, where it says, its window.
pub async fn discover_local(addresses: &[String]) -> Option<ChatClientConfig> {
    let _ = addresses;
    todo!()
}
