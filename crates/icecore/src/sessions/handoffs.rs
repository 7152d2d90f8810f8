//! Two views of a session, and what makes the shorter one shorter still.
//!
//! People see every turn (`Layers::view`). A model sees the API view: the system
//! prompt, the last handoff, and what it left standing or came after. Both are read from
//! one history; the handoff is a mark in it.

mod compact;
mod distil;
mod edit;
mod exchange;
mod fit;
mod lines;
mod recall;
mod reminder;
mod sources;
mod view;

use std::sync::Arc;

use icecore_domain::chat::{ChatModel, ChatReply};
use icecore_domain::handoff::{Effort, Message, SessionWindow, unpaired};
use icecore_domain::ids::{Branch, Ordinal, Scope};
use icecore_domain::json::JsonText;
use icecore_domain::redact::{RedactedText, RedactedTurn};
use icecore_domain::time::Millis;
use icecore_domain::turn::RawTurn;
use icecore_store::HandoffTrigger;

use crate::error::Result;
use crate::layers::history::StoredTurn;
use crate::sessions::Sessions;
use edit::Correction;
use fit::{Need, Refusal, Tries};
use view::handoff_message;

pub(crate) use fit::{Counting, LearnedWindows};
pub(crate) use recall::asked;
pub use reminder::Reminder;

/// What a model sees of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiView {
    /// The system prompt.
    pub system: Vec<StoredTurn>,
    /// What stands for all that is not here. One that had no room for a word has no text
    /// and is no message.
    pub handoff: Option<HandoffInfo>,
    /// What the handoff left standing, and what came after it.
    pub turns: Vec<StoredTurn>,
    /// Tokens of all that, message by message.
    pub tokens: u64,
}

impl ApiView {
    /// The messages in order, the handoff as a user's, but marked. Results of tools whose
    /// calls are not there are left out, since no provider takes them. A call whose result
    /// is not there, and a result of none among other parts, are left as they are: the
    /// client that renders a request makes pairs of them.
    pub fn messages(&self) -> Vec<RedactedTurn> {
        let all = self.all_messages().into_iter();
        let all: Vec<Message> = all.map(|turn| Message { turn, tokens: 0 }).collect();
        let mut left_out = unpaired(&all).into_iter().peekable();
        let mut messages = Vec::with_capacity(all.len());
        for (at, message) in all.into_iter().enumerate() {
            match left_out.next_if_eq(&at) {
                Some(_) => {}
                None => messages.push(message.turn),
            }
        }
        messages
    }

    /// What a model is asked with: the messages, or, where there would be none beside the
    /// system prompt, results without their calls too, which are sent as words.
    fn sendable(&self) -> Vec<RedactedTurn> {
        let messages = self.messages();
        match messages.len() > self.system.len() {
            true => messages,
            false => self.all_messages(),
        }
    }

    fn all_messages(&self) -> Vec<RedactedTurn> {
        let body = |turn: &StoredTurn| turn.turn.clone();
        let told = self.handoff.iter().filter(|handoff| !handoff.text.is_empty());
        let told = told.map(handoff_message);
        let system = self.system.iter().filter_map(body);
        system.chain(told).chain(self.turns.iter().filter_map(body)).collect()
    }
}

/// A handoff as a person sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffInfo {
    /// Its id: the `compactionId`.
    pub id: String,
    /// The how manyth.
    pub number: u64,
    /// Its text.
    pub text: RedactedText,
    /// Tokens of it.
    pub tokens: u64,
    /// Tokens of the API view before it was made.
    pub tokens_before: u64,
    /// Tokens of the API view right after.
    pub tokens_after: u64,
    /// What wrote it.
    pub made_by: String,
    /// Why.
    pub trigger: HandoffTrigger,
    /// Changes with every correction.
    pub version: u64,
    /// When it was made.
    pub at: Millis,
}

/// What a compaction is asked for.
#[derive(Debug, Clone, Default)]
pub struct CompactRequest {
    /// The session.
    pub session: String,
    /// Its branch; without one, the one last appended to.
    pub branch: Option<String>,
    /// The window, where it is not the settings'.
    pub window: Option<SessionWindow>,
    /// Tokens of a request beside the session's messages, such as tools.
    pub beside_tokens: u64,
}

/// What came of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compacted {
    /// The handoff.
    pub handoff: HandoffInfo,
    /// Tokens of the API view before.
    pub tokens_before: u64,
    /// Tokens of it now; what [`Sessions::api_view`] counts.
    pub tokens_after: u64,
    /// How hard it had to try.
    pub effort: Effort,
    /// What a person should know, such as a model that did not answer.
    pub notices: Vec<String>,
}

/// What the next request needs.
#[derive(Debug, Clone, Default)]
pub struct FitRequest {
    /// The session.
    pub session: String,
    /// Its branch; without one, the one last appended to.
    pub branch: Option<String>,
    /// The window.
    pub window: Option<SessionWindow>,
    /// Tokens of the request beside the session's messages, such as tools.
    pub beside_tokens: u64,
    /// The model that will be asked, by whose counts it is judged.
    pub model: Option<String>,
    /// Set when the provider said that the request did not fit: what it named as its
    /// window, or 0. Then the view is compacted, whatever we count.
    pub overflowed: Option<u64>,
    /// Compactions that were made for this same request before. There are at most two:
    /// whoever asks again after a refusal gives those of the answers before, and the
    /// second leaves no more than it must.
    pub attempts: usize,
}

/// An API view that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    /// The view.
    pub view: ApiView,
    /// Tokens of the request, by the best count there is.
    pub request_tokens: u64,
    /// What was done so that it fits; at most two.
    pub compactions: Vec<Compacted>,
    /// The window that it fits. It is smaller than was asked for where the provider's
    /// turned out to be; then the answer may have no more than its reserve.
    pub window: SessionWindow,
}

/// A view that fits, with how it was counted.
pub(crate) struct FittedBranch {
    pub(crate) fitted: Fitted,
    /// Tokens of the request, as we count.
    pub(crate) counted: u64,
    /// Where the handoff stands: its branch, and the last turn that it stands for.
    pub(crate) mark: Option<(Branch, Ordinal)>,
}

/// A request to a model, with a session as its memory.
#[derive(Debug, Clone)]
pub struct ExchangeRequest {
    /// The session.
    pub session: String,
    /// Its branch.
    pub branch: Option<String>,
    /// What is appended before: a person's request, or results of tools.
    pub turns: Vec<RawTurn>,
    /// Tools the model may call.
    pub tools: Option<JsonText>,
    /// What is sent right before the last request and is no turn: see
    /// [`Sessions::reminder`]. Where it has no room, the request goes without it.
    pub reminder: Option<Reminder>,
    /// The model.
    pub model: Arc<dyn ChatModel>,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Exchanged {
    /// The answer, which is the session's last turn now.
    pub reply: ChatReply,
    /// What was done so that the request fit.
    pub compactions: Vec<Compacted>,
}

impl Sessions {
    /// The window of a request where none is named.
    pub fn session_window(&self) -> SessionWindow {
        let settings = &self.settings.handoffs;
        SessionWindow { window: settings.window, reserve: settings.reserve }
    }

    /// What a model sees of a branch.
    pub async fn api_view(
        &self,
        scope: &Scope,
        session: &str,
        branch: Option<&str>,
    ) -> Result<ApiView> {
        self.api_view_within(scope, session, branch, usize::MAX).await
    }

    /// As [`Sessions::api_view`], unless it has more than so many bytes.
    pub async fn api_view_within(
        &self,
        scope: &Scope,
        session: &str,
        branch: Option<&str>,
        bytes: usize,
    ) -> Result<ApiView> {
        Ok(self.read_branch(scope, session, branch, bytes).await?.view)
    }

    /// Compacts a session now. If nothing came since it was last done, the handoff in
    /// force is answered as it is.
    pub async fn compact_session(
        &self,
        scope: &Scope,
        request: &CompactRequest,
    ) -> Result<Compacted> {
        self.compact_by_hand(scope, request).await
    }

    /// The handoff in force on a branch.
    pub async fn handoff(
        &self,
        scope: &Scope,
        session: &str,
        branch: Option<&str>,
    ) -> Result<HandoffInfo> {
        let reading = self.read_branch(scope, session, branch, usize::MAX).await?;
        reading.view.handoff.ok_or_else(|| self.no_handoff(scope, session))
    }

    /// Puts a person's words in place of a handoff's, if it is still in force and of the
    /// version that the person saw. Its mark, and what it says of itself, are written
    /// anew.
    pub async fn edit_handoff(
        &self,
        scope: &Scope,
        session: &str,
        branch: Option<&str>,
        seen_id: &str,
        seen_version: u64,
        text: &str,
    ) -> Result<Compacted> {
        let (id, version) = (seen_id, seen_version);
        self.correct(scope, &Correction { session, branch, id, version, text }).await
    }

    /// The API view for the next request, compacted first if it would not fit.
    pub async fn fit(&self, scope: &Scope, request: &FitRequest) -> Result<Fitted> {
        Ok(self.fit_branch(scope, request, None).await?.fitted)
    }

    /// The same, with how it was counted and where the handoff stands, of a branch that may
    /// be taken to end at a turn.
    pub(crate) async fn fit_branch(
        &self,
        scope: &Scope,
        request: &FitRequest,
        end: Option<Ordinal>,
    ) -> Result<FittedBranch> {
        let declared = request.window.unwrap_or_else(|| self.session_window());
        let window = self.known_window(scope, request.model.as_deref(), declared)?;
        let need = Need {
            session: &request.session,
            branch: request.branch.as_deref(),
            end,
            window,
            beside_tokens: request.beside_tokens,
            model: request.model.as_deref(),
            own: None,
            tools: None,
            made: request.attempts,
        };
        let mut tries = Tries::new(window);
        let refusal = |limit| Refusal { limit, ..Refusal::default() };
        tries.refused = request.overflowed.map(refusal);
        let fit = self.fitted(scope, &need, &mut tries).await?;
        let handoff = fit.reading.handoff;
        Ok(FittedBranch {
            fitted: Fitted {
                view: fit.reading.view,
                request_tokens: fit.tokens,
                compactions: tries.compactions,
                window: fit.window,
            },
            counted: fit.counted,
            mark: handoff.map(|handoff| (handoff.branch, handoff.through)),
        })
    }

    /// Asks a model to go on with a session, and remembers what it answers. A request
    /// that does not fit is made to, before it is sent or after the provider says so.
    /// `tell` hears the answer as it comes; if that breaks off since the request did not
    /// fit, it hears an empty piece and then another from the beginning. What broke off is
    /// not kept.
    pub async fn exchange(
        &self,
        scope: &Scope,
        request: &ExchangeRequest,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Exchanged> {
        self.exchanged(scope, request, tell).await
    }
}
