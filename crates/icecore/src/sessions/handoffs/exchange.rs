//! A request to a model with a session as its memory.

use std::sync::{Mutex, PoisonError};

use icecore_domain::chat::{ChatError, ChatProfile, ChatReply, ChatRequest, Finish};
use icecore_domain::handoff::{Effort, MESSAGE_TOKENS, Message, SessionWindow};
use icecore_domain::ids::{Branch, Scope, Seq, TurnId};
use icecore_domain::redact::{RedactedJson, RedactedStream, RedactedTurn};
use icecore_domain::turn::{Content, RawTurn};
use icecore_store::{HandoffTrigger, ViewUsage};

use super::compact::Job;
use super::fit::{Fit, Need, Refusal, Tries};
use super::view::Reading;
use super::{ExchangeRequest, Exchanged, Reminder};
use crate::base::Purpose;
use crate::error::{MemoryError, Result, off_thread};
use crate::models::{Answered, Ask};
use crate::sessions::Sessions;

/// Of a model's window, so much is kept free for its answer at most where it does not say
/// how much.
const UNSET_RESERVE_PART: u64 = 4;

/// After so many refusals of a request it is not sent again.
const MOST_REFUSALS: usize = 2;

impl Sessions {
    /// Appends, makes the request fit, sends it, and appends what is answered.
    pub(super) async fn exchanged(
        &self,
        scope: &Scope,
        request: &ExchangeRequest,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Exchanged> {
        let profile = request.model.profile();
        let declared = match profile.window {
            0 => self.session_window(),
            window => SessionWindow { window, reserve: self.reserve_of(profile) },
        };
        let window = self.known_window(scope, Some(&profile.name), declared)?;
        let redactor = self.redactor(scope.tenant()).await?.redactor;
        let tools = request.tools.as_ref().map(|tools| redactor.redacted_json(tools));
        let count = |tools: &RedactedJson| self.counter.count(tools.json().as_str());
        let beside_tokens = tools.as_ref().map_or(0, |tools| u64::from(count(tools)));
        let mut need = Need {
            session: &request.session,
            branch: request.branch.as_deref(),
            end: None,
            window,
            beside_tokens,
            model: Some(&profile.name),
            own: Some(profile),
            tools: tools.as_ref(),
            made: 0,
        };
        let mut reminder = request.reminder.as_ref();
        need.beside_tokens = beside_tokens.saturating_add(reminder.map_or(0, Reminder::cost));
        let branch = match self.appended(scope, &need, &request.turns).await {
            Err(MemoryError::RequestExceedsWindow(_)) if reminder.take().is_some() => {
                need.beside_tokens = beside_tokens;
                self.appended(scope, &need, &request.turns).await?
            }
            branch => branch?,
        };
        let branch = branch.map(|branch| branch.to_string());
        need.branch = branch.as_deref().or(need.branch);
        let mut tries = Tries::new(window);
        let mut refusals = Vec::new();
        loop {
            let fit = match self.fitted(scope, &need, &mut tries).await {
                Ok(fit) => fit,
                Err(error) => return Err(told(error, &tries, refusals)),
            };
            let asked = ChatRequest {
                messages: reminded(fit.reading.view.sendable(), reminder),
                tools: tools.clone(),
                max_tokens: fit.window.reserve,
            };
            match self.sent(scope, request, &fit, &asked, tell).await {
                Ok(answered) => {
                    let reply = self.answered(scope, request, &fit, answered).await?;
                    return Ok(Exchanged { reply, compactions: tries.compactions });
                }
                Err(MemoryError::Chat(error @ ChatError::Overflow { .. }))
                    if refusals.len() < MOST_REFUSALS =>
                {
                    tries.refused = refusal(&error);
                    if tries.refused.is_some_and(|refused| refused.is_midway) {
                        tell("");
                    }
                    refusals.push(error);
                    // What nobody asked for is the first to go.
                    reminder = None;
                    need.beside_tokens = beside_tokens;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Tokens that are kept free for a model's answer.
    fn reserve_of(&self, profile: &ChatProfile) -> u64 {
        match profile.reserve {
            0 => self.settings.handoffs.reserve.min(profile.window / UNSET_RESERVE_PART),
            reserve => reserve,
        }
    }

    /// Appends turns to the branch, unless what must stay would not fit then. Answers the
    /// branch that they are on.
    async fn appended(
        &self,
        scope: &Scope,
        need: &Need<'_>,
        turns: &[RawTurn],
    ) -> Result<Option<Branch>> {
        if turns.is_empty() {
            return Ok(None);
        }
        let mut turns = turns.to_vec();
        let reading = self.read_branch(scope, need.session, need.branch, usize::MAX).await;
        let reading = match reading {
            Ok(reading) => Some(reading),
            Err(MemoryError::NoSession { .. }) if need.branch.is_none() => None,
            Err(error) => return Err(error),
        };
        self.check_floor(scope, need, reading.as_ref(), &turns).await?;
        // Another branch may become the current one at any time.
        if let (Some(reading), Some(_)) = (&reading, need.branch)
            && turns[0].parent_ids.is_none()
        {
            turns[0].parent_ids = Some(vec![head_id(reading)]);
        }
        let remembered = self.remember(scope, need.session, turns).await?;
        let session = self.session_record(scope, need.session).await?.no;
        let last = [TurnId { session, seq: remembered.last_seq }];
        let rows = self.store.turns_at(scope, &last).await?;
        Ok(rows.first().map(|row| row.branch))
    }

    /// An error if what must stay of a view with these turns behind it does not fit, as
    /// we count: nothing else refuses it later.
    async fn check_floor(
        &self,
        scope: &Scope,
        need: &Need<'_>,
        reading: Option<&Reading>,
        turns: &[RawTurn],
    ) -> Result<()> {
        let redactor = self.redactor(scope.tenant()).await?.redactor;
        let counter = self.counter.as_ref();
        let message = |turn: &RawTurn| Message::new(redactor.turn(turn.clone()), counter);
        let new: Vec<Message> = turns.iter().map(message).collect();
        let before = reading
            .map_or(need.beside_tokens, |reading| reading.request_tokens(need.beside_tokens));
        let tokens = new.iter().map(|message| message.tokens.saturating_add(MESSAGE_TOKENS));
        // What must stay is no more than all of it.
        if tokens.fold(before, u64::saturating_add) <= need.window.trigger() {
            return Ok(());
        }
        let mut messages = reading.map_or_else(Vec::new, Reading::messages);
        messages.extend(new);
        let (memory, window, beside_tokens) = (self.clone(), need.window, need.beside_tokens);
        off_thread(move || {
            let job = Job {
                session: "",
                branch: None,
                end: None,
                window,
                beside_tokens,
                permille: 1_000,
                effort: Effort::First,
                trigger: HandoffTrigger::Window,
                own: None,
                tools: None,
            };
            memory.plan_of(&job, 0, &messages).map(|_| ())
        })
        .await?
    }

    /// Sends a request. Nobody hears a secret, not even as it comes.
    async fn sent(
        &self,
        scope: &Scope,
        request: &ExchangeRequest,
        fit: &Fit,
        asked: &ChatRequest,
        tell: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Answered> {
        let redactor = self.redactor(scope.tenant()).await?.redactor;
        let stream = Mutex::new(RedactedStream::new(redactor));
        let telling = |piece: &str| {
            let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
            let shown = stream.push(piece);
            if !shown.as_str().is_empty() {
                tell(shown.as_str());
            }
        };
        let ask = Ask {
            scope,
            session: Some(fit.reading.session.no),
            epoch: fit.reading.epoch,
            purpose: Purpose::Exchange,
            model: &request.model,
            request: asked,
        };
        let answered = self.ask_telling(&ask, &telling).await?;
        let stream = stream.into_inner().unwrap_or_else(PoisonError::into_inner);
        let rest = stream.finish();
        if !rest.as_str().is_empty() {
            tell(rest.as_str());
        }
        Ok(answered)
    }

    /// Remembers an answer, and what the provider counted.
    async fn answered(
        &self,
        scope: &Scope,
        request: &ExchangeRequest,
        fit: &Fit,
        answered: Answered,
    ) -> Result<ChatReply> {
        let profile = request.model.profile();
        let reply = ChatReply { text: answered.text.into_string(), ..answered.reply };
        if reply.text.is_empty() && reply.tool_calls.is_none() {
            let reason = match reply.finish {
                Finish::Filtered => "the provider withheld it",
                _ => "it is empty",
            };
            let model = profile.name.clone();
            return Err(ChatError::Malformed { model, reason: reason.to_owned() }.into());
        }
        let reading = &fit.reading;
        let turn = RawTurn {
            role: "assistant".to_owned(),
            content: match reply.text.is_empty() {
                true => Content::Null,
                false => Content::Text(reply.text.clone()),
            },
            model: Some(profile.model.clone()),
            tool_calls: reply.tool_calls.clone(),
            // The answer is to what was sent, whatever came meanwhile.
            parent_ids: Some(vec![head_id(reading)]),
            ..RawTurn::default()
        };
        self.remember(scope, &request.session, vec![turn]).await?;
        if let Some(usage) = reply.usage {
            let usage = ViewUsage {
                session: reading.session.no,
                branch: reading.branch,
                model: profile.name.clone(),
                through: reading.head,
                handoff: reading.handoff.as_ref().map(|handoff| handoff.id.clone()),
                tokens: usage.input,
                counted: fit.counted,
            };
            // The answer is kept. A count that is not costs an estimate.
            if let Err(error) = self.store.put_usage(scope, usage).await {
                tracing::warn!(%scope, %error, "what a provider counted could not be kept");
            }
        }
        Ok(reply)
    }
}

/// Messages with a reminder right before the last request; without one that can be
/// reminded of something they stay as they are.
fn reminded(mut messages: Vec<RedactedTurn>, reminder: Option<&Reminder>) -> Vec<RedactedTurn> {
    let is_request = |turn: &RedactedTurn| Message { turn: turn.clone(), tokens: 0 }.is_request();
    if let (Some(reminder), Some(at)) = (reminder, messages.iter().rposition(is_request)) {
        messages.insert(at, reminder.message());
    }
    messages
}

/// Why a request cannot be made to fit: what the provider said, where only it says so.
fn told(error: MemoryError, tries: &Tries, mut refusals: Vec<ChatError>) -> MemoryError {
    match (error, refusals.pop()) {
        (MemoryError::RequestExceedsWindow(_), Some(refused)) if !tries.is_named => refused.into(),
        (error, _) => error,
    }
}

/// What a provider says of a request that does not fit, if it is that.
fn refusal(error: &ChatError) -> Option<Refusal> {
    let ChatError::Overflow { limit, requested, partial, .. } = error else { return None };
    Some(Refusal {
        limit: limit.unwrap_or(0),
        requested: *requested,
        is_midway: !partial.is_empty(),
        may_go_again: true,
    })
}

/// Our own id of a branch's last turn.
fn head_id(reading: &Reading) -> String {
    let seq: Seq = reading.head;
    TurnId { session: reading.session.no, seq }.to_string()
}
