//! Models that talk, in the service of the memory: which is asked for what, what of
//! it is spent, and what need not be asked again.
//!
//! Whatever is sent has been redacted, and so is whatever comes back. An answer that was
//! of use is kept under the hash of what was asked and of the model's identity.

use std::sync::Arc;

use icecore_domain::chat::{ChatModel, ChatReply, ChatRequest, Prices, Protocol};
use icecore_domain::ids::{Scope, SessionNo};
use icecore_domain::redact::RedactedText;

use crate::error::Result;
use crate::memory::Memory;

/// What a model is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Summaries of chunks.
    Summary,
    /// Handoffs.
    Handoff,
    /// Dreams.
    Dream,
    /// Consolidation of entries.
    Consolidation,
    /// A person's own conversation.
    Exchange,
}

impl Purpose {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Purpose::Summary => "summary",
            Purpose::Handoff => "handoff",
            Purpose::Dream => "dream",
            Purpose::Consolidation => "consolidation",
            Purpose::Exchange => "exchange",
        }
    }
}

/// Models in the order in which they are asked. Behind the last stands what needs none.
#[derive(Debug, Clone, Default)]
pub struct ModelChain(pub Vec<Arc<dyn ChatModel>>);

/// Which models are asked for what.
#[derive(Debug, Clone, Default)]
pub struct Models {
    /// For summaries of chunks.
    pub summaries: ModelChain,
    /// For handoffs.
    pub handoffs: ModelChain,
    /// For dreams.
    pub dreams: ModelChain,
    /// For consolidation.
    pub consolidation: ModelChain,
    /// What may be spent.
    pub limits: SpendLimits,
}

/// What a tenant may spend on models; 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpendLimits {
    /// `tokens_a_day`: tokens read and written.
    pub tokens_a_day: u64,
    /// `money_a_day`: millionths of the currency.
    pub cost_a_day: u64,
}

/// A `[models.NAME]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSettings {
    /// NAME.
    pub name: String,
    /// `protocol`: `openai` or `anthropic`.
    pub protocol: Protocol,
    /// `url`: up to and with the version path, such as `http://127.0.0.1:8080/v1`.
    pub url: String,
    /// `model`: what the server calls it; NAME if it is left out.
    pub model: String,
    /// `key_env`: the environment variable that holds the key.
    pub key_env: String,
    /// `key_secret`: the registered secret that is the key.
    pub key_secret: String,
    /// `window`: tokens of request and answer; 0 takes that of `[sessions]` or a known one.
    pub window: u64,
    /// `reserve`: tokens kept free for the answer; 0 takes that of `[sessions]`.
    pub reserve: u64,
    /// `input_price`, `cached_input_price`, `output_price`.
    pub prices: Prices,
    /// `timeout_seconds`: the longest that an answer may take.
    pub timeout_seconds: u64,
    /// `idle_seconds`: the longest between two pieces of an answer.
    pub idle_seconds: u64,
    /// `retries`: how often it is asked again.
    pub retries: u32,
    /// `caches_prefix`.
    pub caches_prefix: bool,
}

/// What is at hand while models are asked.
#[derive(Debug, Default)]
pub(crate) struct Asking {}

/// A question for one model.
pub(crate) struct Ask<'a> {
    /// Whose texts it is about.
    pub(crate) scope: &'a Scope,
    /// The one session that it is about, if it is one.
    pub(crate) session: Option<SessionNo>,
    /// What for.
    pub(crate) purpose: Purpose,
    /// Whom.
    pub(crate) model: &'a Arc<dyn ChatModel>,
    /// What.
    pub(crate) request: &'a ChatRequest,
}

/// An answer, redacted.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    /// What it says.
    pub(crate) text: RedactedText,
    /// All of the reply, but for its text.
    pub(crate) reply: ChatReply,
    /// What it is kept under.
    pub(crate) key: [u8; 32],
    /// Whether it was at hand and cost nothing.
    pub(crate) is_known: bool,
    /// The version of the tenant's secrets that it was redacted with.
    pub(crate) secrets_seen: u64,
}

impl Memory {
    /// Asks a model, unless its answer is kept, or what may be spent is. What is spent is
    /// noted, whatever comes of it.
    pub(crate) async fn ask(&self, ask: &Ask<'_>) -> Result<Answered> {
        let _ = ask;
        todo!()
    }

    /// Keeps an answer that was of use, so that a rebuild pays nothing.
    pub(crate) async fn keep_answer(&self, ask: &Ask<'_>, answered: &Answered) -> Result<()> {
        let _ = (ask, answered);
        todo!()
    }
}
