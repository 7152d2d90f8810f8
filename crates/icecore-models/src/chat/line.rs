//! A conversation as both protocols can be written from it: who speaks, what is said, and
//! with every call its result.
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

/// Stands for the result of a call that has none.
const NO_RESULT: &str = "(No result of this call is known.)";

/// Stands before a result whose call is not there, which is then said as words.
const STRAY: &str = "(A tool's result; its call is not here.)";

/// Stands for the name of a call that has none.
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

/// What somebody says, and the tools called for with it.
pub(super) struct Line<'a> {
    pub(super) speaker: Speaker,
    pub(super) name: Option<&'a str>,
    pub(super) said: Vec<Piece<'a>>,
    pub(super) calls: Vec<Asked<'a>>,
}

/// A piece of what is said.
pub(super) enum Piece<'a> {
    Text(Cow<'a, str>),
    /// Neither a call nor a result.
    Part(Part<'a>),
}

/// A call and what came of it.
pub(super) struct Asked<'a> {
    /// Its id is no other's, and is not empty.
    pub(super) call: Call,
    /// As it came, if it has OpenAI's form.
    pub(super) raw: Option<&'a str>,
    pub(super) result: Outcome<'a>,
}

/// What came of a call.
pub(super) struct Outcome<'a> {
    pub(super) held: Held<'a>,
    pub(super) is_error: bool,
}

/// What a result holds.
pub(super) enum Held<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

impl Held<'_> {
    /// What a person would read of it.
    pub(super) fn words(&self) -> Cow<'_, str> {
        match self {
            Held::Text(text) => Cow::Borrowed(text),
            Held::Parts(parts) => {
                let words = parts.iter().map(Part::words).filter(|words| !words.is_empty());
                Cow::Owned(words.collect::<Vec<_>>().join("\n"))
            }
        }
    }
}

/// A result on its way to its call.
struct Brought<'a> {
    /// The call's id as it was given; empty if it was not.
    id: String,
    outcome: Outcome<'a>,
}

/// A call that no result has answered yet.
struct Open {
    line: usize,
    call: usize,
    /// As it was given.
    id: String,
}

/// The lines of a conversation. A longer conversation has the lines of a shorter one,
/// but for results that came late.
pub(super) fn lines(turns: &[RedactedTurn]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    let mut ids = BTreeSet::new();
    for turn in turns.iter().map(RedactedTurn::fields) {
        let (mut line, brought) = read(turn);
        for (call, asked) in line.calls.iter_mut().enumerate() {
            open.push(Open { line: lines.len(), call, id: asked.call.id.clone() });
            name_call(asked, &mut ids);
        }
        let brings = !brought.is_empty();
        lines.push(line);
        let mut strays = Vec::new();
        for one in brought {
            match answered(&open, &one.id).map(|at| open.remove(at)) {
                Some(open) => lines[open.line].calls[open.call].result = one.outcome,
                None => strays.extend(stray(&one.outcome.held)),
            }
        }
        if let Some(line) = lines.last_mut() {
            line.said.splice(0..0, strays);
        }
        if brings && lines.last().is_some_and(|line| line.said.is_empty() && line.calls.is_empty())
        {
            lines.pop();
        }
    }
    lines
}

/// The open call that a result answers. One without an id answers the next call without
/// one, or else the next of the last calls.
fn answered(open: &[Open], id: &str) -> Option<usize> {
    if !id.is_empty() {
        let line = open.iter().rfind(|call| call.id == id)?.line;
        return open.iter().position(|call| call.id == id && call.line == line);
    }
    let last = open.last()?.line;
    let nameless = open.iter().position(|call| call.id.is_empty());
    nameless.or_else(|| open.iter().position(|call| call.line == last))
}

fn stray<'a>(held: &Held<'_>) -> Option<Piece<'a>> {
    let words = held.words();
    (!words.trim().is_empty()).then(|| Piece::Text(Cow::Owned(format!("{STRAY}\n{words}"))))
}

/// Gives a call an id that no other has, by nothing but what came before it.
fn name_call(asked: &mut Asked<'_>, ids: &mut BTreeSet<String>) {
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

/// A turn as a line, and the results that it brings.
fn read(turn: &RawTurn) -> (Line<'_>, Vec<Brought<'_>>) {
    let speaker = Speaker::of(&turn.role);
    let mut line =
        Line { speaker, name: turn.name.as_deref(), said: Vec::new(), calls: Vec::new() };
    let mut brought = Vec::new();
    for call in raw_calls(turn) {
        line.add_call(call, Some(call));
    }
    match &turn.content {
        Content::Null => {}
        Content::Text(text) if text.is_empty() => {}
        Content::Text(text) => line.said.push(Piece::Text(Cow::Borrowed(text))),
        Content::Parts(json) => {
            for part in parts::parts(json.as_str()) {
                if part.is_call() {
                    line.add_call(part.raw, None);
                } else if part.is_result() {
                    brought.push(brought_by(&part, turn));
                } else {
                    line.said.push(Piece::Part(part));
                }
            }
        }
    }
    let is_tools = matches!(turn.role.as_str(), "tool" | "function");
    let is_result = is_tools || turn.tool_call_id.is_some() && speaker == Speaker::User;
    if is_result && brought.is_empty() {
        brought.push(all_of(turn, std::mem::take(&mut line.said)));
    }
    (line, brought)
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

impl<'a> Line<'a> {
    /// Only a model calls tools: of anybody else it is words. Some clients tell a call
    /// beside the content and in it.
    fn add_call(&mut self, told: &str, raw: Option<&'a str>) {
        let call = parts::call_of(told);
        if self.speaker != Speaker::Model {
            let words = format!("{} {}", call.name, call.arguments);
            self.said.push(Piece::Text(Cow::Owned(words.trim().to_owned())));
            return;
        }
        let is_same = |asked: &Asked<'_>| !call.id.is_empty() && asked.call.id == call.id;
        if raw.is_some() || !self.calls.iter().any(is_same) {
            let held = Held::Text(Cow::Borrowed(NO_RESULT));
            self.calls.push(Asked { call, raw, result: Outcome { held, is_error: false } });
        }
    }
}

fn brought_by<'a>(part: &Part<'a>, turn: &RawTurn) -> Brought<'a> {
    let mut id = part.answers();
    if id.is_empty() {
        id = turn.tool_call_id.clone().unwrap_or_default();
    }
    let held = part.held().unwrap_or("\"\"");
    let held = match serde_json::from_str(held) {
        Ok(Value::String(text)) => Held::Text(Cow::Owned(text)),
        Ok(Value::Array(_)) => Held::Parts(parts::parts(held)),
        Ok(Value::Null) => Held::Text(Cow::Borrowed("")),
        _ => Held::Text(Cow::Borrowed(held)),
    };
    let is_error = part.value.get("is_error") == Some(&Value::Bool(true));
    Brought { id, outcome: Outcome { held, is_error } }
}

/// A turn that is a result as a whole.
fn all_of<'a>(turn: &'a RawTurn, said: Vec<Piece<'a>>) -> Brought<'a> {
    let held = match &turn.content {
        Content::Text(text) => Held::Text(Cow::Borrowed(text)),
        Content::Null => Held::Text(Cow::Borrowed("")),
        Content::Parts(_) => Held::Parts(
            said.into_iter()
                .filter_map(|piece| match piece {
                    Piece::Part(part) => Some(part),
                    Piece::Text(_) => None,
                })
                .collect(),
        ),
    };
    let id = turn.tool_call_id.clone().unwrap_or_default();
    Brought { id, outcome: Outcome { held, is_error: false } }
}
