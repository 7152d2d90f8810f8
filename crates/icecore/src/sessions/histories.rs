//! A client's own history, matched to a session.
//!
//! A client of the proxy knows of no session: it sends its whole history with every
//! request. Each message is known by a keyed hash of its words and of all before it, so
//! that a history finds the session it goes on with, forks one that it shares a beginning
//! with, or begins one. The leading system prompt is no message of a history: it may
//! change from day to day.
//!
//! The session's path and the history are the same, message for message: the nth message
//! is the nth turn along the path.

mod counts;
mod fit;
mod follow;
mod keep;
mod path;
mod recall;

use icecore_domain::follow::Following;
use icecore_domain::handoff::SessionWindow;
use icecore_domain::identity::Link;
use icecore_domain::ids::Scope;
use icecore_domain::redact::RedactedText;
use icecore_domain::turn::RawTurn;
use icecore_store::TurnPlace;

use crate::error::Result;
use crate::sessions::Sessions;
use crate::sessions::handoffs::Compacted;

pub(crate) use counts::MessageCounts;
use path::HistoryPath;
use recall::NewRecall;

/// One message of a client's history.
#[derive(Debug, Clone)]
pub struct ClientMessage {
    /// What it is recognised by when it comes again: role, words, calls and results in
    /// one spelling, without what clients add, change or drop. Never stored; only keyed
    /// hashes of it are.
    pub recognised_by: Vec<u8>,
    /// Whether a model said it.
    pub is_reply: bool,
    /// As it is kept.
    pub turn: RawTurn,
}

/// Whose history it is.
#[derive(Debug, Clone, Copy)]
pub struct FollowRequest<'a> {
    /// The history without its leading system prompt.
    pub messages: &'a [ClientMessage],
    /// The session that the client names; it decides.
    pub session: Option<&'a str>,
    /// Whether the client says that it sends the same once more. Then a history without a
    /// reply may go on with a session that has none yet.
    pub is_retry: bool,
    /// The name of a session that begins.
    pub new_session: &'a str,
}

/// A history's place.
#[derive(Debug, Clone)]
pub struct Followed {
    /// The session.
    pub session: String,
    /// How it was found.
    pub following: Following,
    /// How many of the messages are known, from the first on: those that the session
    /// holds, and those before them that were forgotten with a session that is no more.
    pub known: usize,
    /// The link of each message.
    links: Vec<Link>,
    /// Where the last message is that the session holds, which is the last known one.
    place: Option<TurnPlace>,
    /// The path there, where it is known already.
    path: Option<HistoryPath>,
    /// The handoff that the request began with, once that is known.
    handoff: Option<String>,
    /// What memory puts before the last message, until that is kept.
    recall: Option<NewRecall>,
}

/// What a request with a history needs.
#[derive(Debug, Clone, Default)]
pub struct HistoryFit {
    /// The window; without one, the settings'.
    pub window: Option<SessionWindow>,
    /// Tokens of the request beside the messages: system prompt and tools.
    pub beside_tokens: u64,
    /// The model that is asked, by whose counts it is judged.
    pub model: Option<String>,
    /// Set when the provider said that it did not fit: what it named as its window, or 0.
    pub overflowed: Option<u64>,
    /// Compactions that were made for this same request before; at most two.
    pub attempts: usize,
    /// Tokens of memory that may be put before the last request; 0 is none.
    pub recall_tokens: u32,
}

/// What of a history is sent.
#[derive(Debug, Clone)]
pub struct FittedHistory {
    /// What stands for all that is not sent; it comes first. There is none while all are
    /// sent, and where there was no room for a word of it.
    pub handoff: Option<RedactedText>,
    /// Places of the messages that are sent, in order, byte for byte as they came.
    pub shown: Vec<usize>,
    /// What memory adds: right before the message at that place. The same for the same
    /// message until the next compaction.
    pub recalled: Vec<(usize, RedactedText)>,
    /// Tokens of the request as we count.
    pub counted: u64,
    /// Tokens of the request by the best count there is.
    pub request_tokens: u64,
    /// What was done so that it fits.
    pub compactions: Vec<Compacted>,
    /// The window that it fits.
    pub window: SessionWindow,
}

/// What a provider counted for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderCount {
    /// The model, as [`HistoryFit::model`] named it.
    pub model: String,
    /// Tokens of the request as the provider counted.
    pub tokens: u64,
    /// The same as we did: [`FittedHistory::counted`].
    pub counted: u64,
}

impl Sessions {
    /// Finds the session of a history. Reads only.
    pub async fn follow(&self, scope: &Scope, request: &FollowRequest<'_>) -> Result<Followed> {
        self.followed(scope, request).await
    }

    /// What of a history is sent so that it fits. If something must be compacted for that,
    /// the messages are kept first; else nothing is written, and `known` stays.
    pub async fn fit_history(
        &self,
        scope: &Scope,
        followed: &mut Followed,
        messages: &[ClientMessage],
        fit: &HistoryFit,
    ) -> Result<FittedHistory> {
        self.fitted_history(scope, followed, messages, fit).await
    }

    /// Keeps the messages that are not known yet. Once this resolves they survive a
    /// crash; to do it again changes nothing. What was forgotten stays so.
    pub async fn keep_history(
        &self,
        scope: &Scope,
        followed: &mut Followed,
        messages: &[ClientMessage],
    ) -> Result<()> {
        self.kept_history(scope, followed, messages).await
    }

    /// Keeps the answer to a history that is kept. The same answer to the same history is
    /// kept once; another one begins a branch.
    pub async fn keep_reply(
        &self,
        scope: &Scope,
        followed: &Followed,
        reply: ClientMessage,
        count: Option<ProviderCount>,
    ) -> Result<()> {
        self.kept_reply(scope, followed, reply, count).await
    }
}
