//! A turn's content and calls, read so that either protocol can be written from them.

use icecore_domain::json::JsonText;
use icecore_domain::turn::{Content, RawTurn};
use serde_json::Value;
use serde_json::value::RawValue;

use super::draft::Call;

/// One part of a content, with its own spelling.
pub(super) struct Part<'a> {
    /// As it came.
    pub(super) raw: &'a str,
    /// As a tree.
    pub(super) value: Value,
}

impl Part<'_> {
    /// Its `type`.
    pub(super) fn kind(&self) -> &str {
        self.value.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    /// A member that is a text.
    pub(super) fn text_of(&self, key: &str) -> &str {
        self.value.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    /// What a person would read of it.
    pub(super) fn words(&self) -> String {
        JsonText::parse(self.raw)
            .map_or_else(|_| String::new(), |json| Content::Parts(json).text().into_owned())
    }
}

/// The parts of a provider's list; a lone part is a list of one.
pub(super) fn parts(json: &JsonText) -> Vec<Part<'_>> {
    let raws: Vec<&RawValue> = serde_json::from_str(json.as_str())
        .or_else(|_| serde_json::from_str(json.as_str()).map(|one| vec![one]))
        .unwrap_or_default();
    let part = |raw: &'_ RawValue| serde_json::from_str(raw.get()).unwrap_or(Value::Null);
    raws.into_iter().map(|raw| Part { raw: raw.get(), value: part(raw) }).collect()
}

/// The calls of a turn's `toolCalls`, in whichever form they are.
pub(super) fn calls(turn: &RawTurn) -> Vec<Call> {
    let Some(json) = &turn.tool_calls else { return Vec::new() };
    let calls = json.to_value();
    let calls = calls.as_array().map(Vec::as_slice).unwrap_or_default();
    calls.iter().filter(|call| call.is_object()).map(call_of).collect()
}

/// A call of OpenAI's form, of Anthropic's, or of the plain one with a name and arguments.
pub(super) fn call_of(call: &Value) -> Call {
    let function = call.get("function").unwrap_or(call);
    let text = |value: &Value, key: &str| {
        value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let arguments = ["arguments", "input"].iter().find_map(|key| function.get(key));
    let arguments = match arguments {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "{}".to_owned(),
        Some(other) => other.to_string(),
    };
    Call { id: text(call, "id"), name: text(function, "name"), arguments }
}

/// Whether all calls of a turn have OpenAI's form already.
pub(super) fn are_openai_calls(json: &JsonText) -> bool {
    json.to_value().as_array().is_some_and(|calls| {
        !calls.is_empty()
            && calls.iter().all(|call| call.get("type").is_some() && call.get("function").is_some())
    })
}
