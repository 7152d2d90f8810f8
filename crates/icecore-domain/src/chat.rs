//! A model that talks: what it is asked, what it answers, how it fails.
//!
//! Only redacted text can be asked about: a request is made of turns that a
//! [`Redactor`](crate::redact::Redactor) has seen.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::json::JsonText;
use crate::redact::{RedactedJson, RedactedTurn};

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// `POST …/chat/completions`, as OpenAI and most others have it.
    OpenAi,
    /// `POST …/messages`, as Anthropic has it.
    Anthropic,
}

crate::words!(Protocol { OpenAi = "openai", Anthropic = "anthropic" });

/// What tokens cost: millionths of the currency for a million tokens, so that one dollar
/// for a million tokens is 1,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prices {
    /// Of what is read.
    pub input: u64,
    /// Of what is read and was cached.
    pub cached_input: u64,
    /// Of what is written.
    pub output: u64,
}

impl Prices {
    /// What a use costs, in millionths of the currency, rounded up.
    pub fn cost(&self, usage: Usage) -> u64 {
        let cached = usage.cached_input.min(usage.input);
        let sum = u128::from(self.input) * u128::from(usage.input - cached)
            + u128::from(self.cached_input) * u128::from(cached)
            + u128::from(self.output) * u128::from(usage.output);
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// A model as its settings describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatProfile {
    pub name: String,
    pub model: String,
    pub protocol: Protocol,
    /// Hash of all that decides its answers: server, protocol, model, options.
    pub identity: [u8; 32],
    /// Tokens that a request and its answer may have together.
    pub window: u64,
    /// Tokens of it that are reserved for the answer.
    pub reserve: u64,
    pub prices: Prices,
    /// Whether its server keeps the beginning of a request at hand for the next that
    /// begins alike.
    pub caches_prefix: bool,
}

/// What a model is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatRequest {
    /// In order; leading ones of the role `system` are the system prompt.
    pub messages: Vec<RedactedTurn>,
    /// Tools it may call, as its protocol has them.
    pub tools: Option<RedactedJson>,
    /// Tokens that the answer may have.
    pub max_tokens: u64,
}

/// Tokens as the provider counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens read, those from a cache among them.
    pub input: u64,
    /// Tokens read from a cache.
    pub cached_input: u64,
    pub output: u64,
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    Stop,
    /// It had no more tokens to write with.
    Length,
    /// It wants tools called.
    ToolCalls,
    /// The provider withheld it.
    Filtered,
}

/// What a model answered. Not yet redacted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatReply {
    pub text: String,
    /// Tools it wants called, in the form of a turn's `toolCalls`.
    pub tool_calls: Option<JsonText>,
    pub finish: Finish,
    /// What it took, if the provider said.
    pub usage: Option<Usage>,
}

/// Why a model did not answer. No key and no text of a prompt is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The request does not fit the model's window. The provider may say by how much.
    #[error("the request does not fit the window of `{model}`{}", limit_clause(*limit))]
    Overflow {
        model: String,
        /// The window, if the provider named it.
        limit: Option<u64>,
        /// What the request had by its count, if it said.
        requested: Option<u64>,
        /// What of an answer had come before.
        partial: String,
    },
    #[error("`{model}` refused the key: {reason}")]
    Denied { model: String, reason: String },
    #[error("`{model}` is not known to its server: {reason}")]
    UnknownModel { model: String, reason: String },
    #[error("`{model}` has no room for more requests{}", wait_clause(*retry_after))]
    Busy {
        model: String,
        /// When it may be asked again.
        retry_after: Option<Duration>,
    },
    #[error("`{model}` does not answer: {reason}")]
    Unavailable { model: String, reason: String },
    #[error("the answer of `{model}` broke off: {reason}")]
    CutOff { model: String, reason: String, partial: String },
    #[error("`{model}` gave a wrong answer: {reason}")]
    Malformed { model: String, reason: String },
    #[error("`{model}` refused the request: {reason}")]
    Refused { model: String, reason: String },
}

fn limit_clause(limit: Option<u64>) -> String {
    limit.map_or_else(String::new, |limit| format!(" of {limit} tokens"))
}

fn wait_clause(wait: Option<Duration>) -> String {
    wait.map_or_else(String::new, |wait| format!(" for {} s", wait.as_secs()))
}

/// An answer on its way. Dropping it ends the request.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<ChatReply, ChatError>> + Send + 'a>>;

/// A model that talks.
pub trait ChatModel: Send + Sync + fmt::Debug {
    /// What is known of it.
    fn profile(&self) -> &ChatProfile;

    /// Answers; `tell` hears pieces of the text as they come.
    fn answer<'a>(
        &'a self,
        request: &'a ChatRequest,
        tell: &'a (dyn Fn(&str) + Send + Sync),
    ) -> Answering<'a>;
}
