//! The compacting proxy: OpenAI's and Anthropic's own routes, with memory behind them.
//!
//! A client sends its whole history, as it would to the provider. What is new of it is
//! kept; upstream gets the client's own bytes, with a handoff in place of what no longer
//! fits; the answer streams back unchanged while a copy is read along and kept. What is not
//! understood passes untouched, and a header says so.
//!
//! One request, top to bottom: `routes.rs` takes it, `asked.rs` finds the messages in its
//! body, `message.rs` makes turns of them, `converse.rs` matches, fits and sends them,
//! `upstream.rs` speaks to the provider, `relay.rs` brings the answer back.

mod alone;
mod answer;
mod asked;
mod converse;
mod counts;
mod headers;
mod media;
mod message;
mod options;
mod recognise;
mod relay;
mod routes;
mod upstream;
mod words;

use std::sync::Arc;

use icecore::Principal;
use icecore::models::Protocol;
use tokio::sync::{Semaphore, watch};

use crate::limits::Limits;

use counts::Counts;

pub(crate) use alone::router as alone_router;
pub(crate) use headers::API_KEY;
pub use options::{Alone, ProxyOptions, TenantUpstreams, UpstreamKey, UpstreamOptions};
pub(crate) use relay::FromUpstream;
pub(crate) use routes::{
    __path_chat_completions, __path_count_tokens, __path_messages, __path_models, AnthropicError,
    OpenAiError, chat_completions, count_tokens, messages, models,
};
use upstream::Clients;
pub(crate) use words::in_their_words;

/// What all requests of the proxy share.
pub(crate) struct Proxy {
    pub(crate) options: ProxyOptions,
    /// On whose behalf it works where nobody shows a key of ours.
    pub(crate) alone: Option<Alone>,
    clients: Clients,
    counts: Counts,
    /// A permit for each request that is with a provider.
    pub(crate) streams: Arc<Semaphore>,
    /// Becomes true when no answer may go on.
    cut: watch::Sender<bool>,
}

impl Proxy {
    pub(crate) fn new(options: ProxyOptions, alone: Option<Alone>, limits: &Limits) -> Self {
        Self {
            clients: Clients::default(),
            counts: Counts::default(),
            streams: Arc::new(Semaphore::new(limits.proxy_streams)),
            cut: watch::Sender::new(false),
            options,
            alone,
        }
    }

    /// Ends the answers that still run. What came of each is kept.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Resolves when no answer may go on.
    pub(crate) async fn is_cut(&self) {
        let _ = self.cut.subscribe().wait_for(|cut| *cut).await;
    }

    fn principal(&self) -> Option<&Principal> {
        self.alone.as_ref().map(|alone| &alone.principal)
    }
}

/// Where the routes of each protocol begin.
const PREFIXES: [(&str, Protocol); 2] =
    [("/openai/", Protocol::OpenAi), ("/anthropic/", Protocol::Anthropic)];

/// The protocol of a path, if it is one of the proxy's.
pub(crate) fn protocol_of(path: &str) -> Option<Protocol> {
    PREFIXES.iter().find(|(prefix, _)| path.starts_with(prefix)).map(|(_, protocol)| *protocol)
}
