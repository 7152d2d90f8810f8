//! A conversation in the form that both protocols are written from: messages by speaker,
//! and with every tool call its result.
//!
//! Servers refuse a call that no result follows at once, and a result without its call.
//! What people say while a tool runs comes between them, a call may be given up, and a
//! result may outlive its call.

use std::borrow::Cow;
use std::collections::BTreeSet;

use icecore_domain::handoff::is_model;
use icecore_domain::redact::RedactedTurn;
use icecore_domain::turn::{Content, RawTurn};
use serde_json::Value;

use super::draft::Call;
use super::parts::{self, Part};

/// The result of a call without one.
const NO_RESULT: &str = "(No result of this call is known.)";

/// Precedes a result without a call, which is sent as text.
const STRAY: &str = "(A tool's result; its call is not here.)";

/// The name of a call without one.
const NO_NAME: &str = "unknown";

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    System,
    User,
    /// Also whoever is nobody that we know, as in a handoff.
    Model,
}

impl Speaker {
    fn of(role: &str) -> Self {
        match role {
            "system" | "developer" => Speaker::System,
            role if is_model(role) => Speaker::Model,
            _ => Speaker::User,
        }
    }
}

/// One message, with its tool calls.
pub(super) struct ChatMessage<'a> {
    pub(super) speaker: Speaker,
    pub(super) name: Option<&'a str>,
    pub(super) pieces: Vec<Piece<'a>>,
    pub(super) calls: Vec<CallWithResult<'a>>,
}

/// A piece of a message.
pub(super) enum Piece<'a> {
    Text(Cow<'a, str>),
    /// Neither a call nor a result.
    Part(Part<'a>),
}

/// A tool call and its result.
pub(super) struct CallWithResult<'a> {
    /// Its id is no other's, and is not empty.
    pub(super) call: Call,
    /// As it came, if it has OpenAI's form.
    pub(super) raw: Option<&'a str>,
    pub(super) result: CallResult<'a>,
}

/// The result of a tool call.
pub(super) struct CallResult<'a> {
    pub(super) content: ResultContent<'a>,
    pub(super) is_error: bool,
}

/// The content of a result.
pub(super) enum ResultContent<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

impl ResultContent<'_> {
    /// What a person would read of it.
    pub(super) fn words(&self) -> Cow<'_, str> {
        match self {
            ResultContent::Text(text) => Cow::Borrowed(text),
            ResultContent::Parts(parts) => {
                let words = parts.iter().map(Part::words).filter(|words| !words.is_empty());
                Cow::Owned(words.collect::<Vec<_>>().join("\n"))
            }
        }
    }
}

/// A result before its call is found.
struct LooseResult<'a> {
    /// The call's id as it was given; empty if it was not.
    id: String,
    outcome: CallResult<'a>,
}

/// A call without a result so far.
struct OpenCall {
    message: usize,
    call: usize,
    /// As it was given.
    id: String,
}

/// The messages of a conversation. A longer conversation begins with the messages of a
/// shorter one, except for results that came late.
pub(super) fn messages(turns: &[RedactedTurn]) -> Vec<ChatMessage<'_>> {
    let mut messages: Vec<ChatMessage<'_>> = Vec::new();
    let mut open: Vec<OpenCall> = Vec::new();
    let mut ids = BTreeSet::new();
    for turn in turns.iter().map(RedactedTurn::fields) {
        let (mut message, results) = read(turn);
        for (call, asked) in message.calls.iter_mut().enumerate() {
            open.push(OpenCall { message: messages.len(), call, id: asked.call.id.clone() });
            name_call(asked, &mut ids);
        }
        let has_results = !results.is_empty();
        messages.push(message);
        let mut strays = Vec::new();
        for one in results {
            match answered(&open, &one.id).map(|at| open.remove(at)) {
                Some(open) => messages[open.message].calls[open.call].result = one.outcome,
                None => strays.extend(stray(&one.outcome.content)),
            }
        }
        if let Some(message) = messages.last_mut() {
            message.pieces.splice(0..0, strays);
        }
        if has_results
            && messages
                .last()
                .is_some_and(|message| message.pieces.is_empty() && message.calls.is_empty())
        {
            messages.pop();
        }
    }
    messages
}

/// The open call that a result answers. One without an id answers the next call without
/// one, or else the next of the last calls.
fn answered(open: &[OpenCall], id: &str) -> Option<usize> {
    if !id.is_empty() {
        let message = open.iter().rfind(|call| call.id == id)?.message;
        return open.iter().position(|call| call.id == id && call.message == message);
    }
    let last = open.last()?.message;
    let nameless = open.iter().position(|call| call.id.is_empty());
    nameless.or_else(|| open.iter().position(|call| call.message == last))
}

fn stray<'a>(content: &ResultContent<'_>) -> Option<Piece<'a>> {
    let words = content.words();
    (!words.trim().is_empty()).then(|| Piece::Text(Cow::Owned(format!("{STRAY}\n{words}"))))
}

/// Gives a call an id that no other has, by nothing but what came before it.
fn name_call(asked: &mut CallWithResult<'_>, ids: &mut BTreeSet<String>) {
    let given = match asked.call.id.as_str() {
        "" => format!("call-{}", ids.len() + 1),
        given => given.to_owned(),
    };
    let again = (2_u64..).map(|count| format!("{given}-{count}"));
    let mut names = std::iter::once(given.clone()).chain(again);
    let id = names.find(|name| !ids.contains(name)).unwrap_or(given);
    if asked.call.id != id || asked.raw.is_some_and(|raw| !parts::is_openai_call(raw)) {
        asked.raw = None;
    }
    if asked.call.name.is_empty() {
        NO_NAME.clone_into(&mut asked.call.name);
    }
    ids.insert(id.clone());
    asked.call.id = id;
}

/// A turn as a message, and the results in it.
fn read(turn: &RawTurn) -> (ChatMessage<'_>, Vec<LooseResult<'_>>) {
    let speaker = Speaker::of(&turn.role);
    let mut message =
        ChatMessage { speaker, name: turn.name.as_deref(), pieces: Vec::new(), calls: Vec::new() };
    let mut results = Vec::new();
    for call in raw_calls(turn) {
        message.add_call(call, Some(call));
    }
    match &turn.content {
        Content::Null => {}
        Content::Text(text) if text.is_empty() => {}
        Content::Text(text) => message.pieces.push(Piece::Text(Cow::Borrowed(text))),
        Content::Parts(json) => {
            for part in parts::parts(json.as_str()) {
                if part.is_call() {
                    message.add_call(part.raw, None);
                } else if part.is_result() {
                    results.push(result_in(&part, turn));
                } else {
                    message.pieces.push(Piece::Part(part));
                }
            }
        }
    }
    let is_tools = matches!(turn.role.as_str(), "tool" | "function");
    let is_result = is_tools || turn.tool_call_id.is_some() && speaker == Speaker::User;
    if is_result && results.is_empty() {
        results.push(all_of(turn, std::mem::take(&mut message.pieces)));
    }
    (message, results)
}

/// The calls beside the content, in whichever form they are.
fn raw_calls(turn: &RawTurn) -> Vec<&str> {
    let listed = turn.tool_calls.as_ref().map(|calls| parts::listed(calls.as_str()));
    // The older form has one call, and no id.
    let older = turn.extra.iter().filter(|(name, _)| name == "function_call");
    let older = older.map(|(_, call)| call.as_str());
    let calls = listed.into_iter().flatten().chain(older);
    calls.filter(|call| call.starts_with('{')).collect()
}

impl<'a> ChatMessage<'a> {
    /// Only a model calls tools: of anybody else it is words. Some clients send a call
    /// both beside the content and in it.
    fn add_call(&mut self, json: &str, raw: Option<&'a str>) {
        let call = parts::call_of(json);
        if self.speaker != Speaker::Model {
            let words = format!("{} {}", call.name, call.arguments);
            self.pieces.push(Piece::Text(Cow::Owned(words.trim().to_owned())));
            return;
        }
        let is_same = |asked: &CallWithResult<'_>| !call.id.is_empty() && asked.call.id == call.id;
        if raw.is_some() || !self.calls.iter().any(is_same) {
            let content = ResultContent::Text(Cow::Borrowed(NO_RESULT));
            self.calls.push(CallWithResult {
                call,
                raw,
                result: CallResult { content, is_error: false },
            });
        }
    }
}

fn result_in<'a>(part: &Part<'a>, turn: &RawTurn) -> LooseResult<'a> {
    let mut id = part.answers();
    if id.is_empty() {
        id = turn.tool_call_id.clone().unwrap_or_default();
    }
    let content = part.content().unwrap_or("\"\"");
    let content = match serde_json::from_str(content) {
        Ok(Value::String(text)) => ResultContent::Text(Cow::Owned(text)),
        Ok(Value::Array(_)) => ResultContent::Parts(parts::parts(content)),
        Ok(Value::Null) => ResultContent::Text(Cow::Borrowed("")),
        _ => ResultContent::Text(Cow::Borrowed(content)),
    };
    let is_error = part.value.get("is_error") == Some(&Value::Bool(true));
    LooseResult { id, outcome: CallResult { content, is_error } }
}

/// A turn that is a result as a whole.
fn all_of<'a>(turn: &'a RawTurn, pieces: Vec<Piece<'a>>) -> LooseResult<'a> {
    let content = match &turn.content {
        Content::Text(text) => ResultContent::Text(Cow::Borrowed(text)),
        Content::Null => ResultContent::Text(Cow::Borrowed("")),
        Content::Parts(_) => ResultContent::Parts(
            pieces
                .into_iter()
                .filter_map(|piece| match piece {
                    Piece::Part(part) => Some(part),
                    Piece::Text(_) => None,
                })
                .collect(),
        ),
    };
    let id = turn.tool_call_id.clone().unwrap_or_default();
    LooseResult { id, outcome: CallResult { content, is_error: false } }
}
