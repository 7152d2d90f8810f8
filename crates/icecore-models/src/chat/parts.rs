//! Parts and calls of a turn, read so that either protocol can be written from them.

use std::collections::BTreeMap;

use icecore_domain::json::JsonText;
use icecore_domain::turn::Content;
use serde_json::Value;
use serde_json::value::RawValue;

use super::draft::Call;

/// One part of a content, with its own spelling.
pub(super) struct Part<'a> {
    pub(super) raw: &'a str,
    pub(super) value: Value,
}

impl<'a> Part<'a> {
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

    /// Whether a model thought it and did not say it.
    pub(super) fn is_thought(&self) -> bool {
        matches!(self.kind(), "thinking" | "redacted_thinking" | "reasoning")
    }

    /// Whether it calls a tool of the client's. Tools that a provider runs itself have
    /// other names, and their results beside them.
    pub(super) fn is_call(&self) -> bool {
        matches!(self.kind(), "tool_use" | "tool_call" | "tool-call" | "function_call")
            || self.value.get("functionCall").is_some_and(Value::is_object)
    }

    /// Whether it is the result of such a call.
    pub(super) fn is_result(&self) -> bool {
        matches!(
            self.kind(),
            "tool_result" | "tool-result" | "function_call_output" | "function_response"
        ) || self.value.get("functionResponse").is_some_and(Value::is_object)
    }

    /// The call that it answers; empty if it does not say.
    pub(super) fn answers(&self) -> String {
        let names = ["tool_use_id", "call_id", "toolCallId", "tool_call_id", "id"];
        let inner = self.value.get("functionResponse").unwrap_or(&self.value);
        names.iter().find_map(|name| inner.get(name).and_then(id_text)).unwrap_or_default()
    }

    /// What a result holds, in its own spelling.
    pub(super) fn content(&self) -> Option<&'a str> {
        let fields = fields(self.raw);
        let inner = fields.get("functionResponse").map(|inner| self::fields(inner.get()));
        let fields = inner.unwrap_or(fields);
        let names = ["content", "output", "result", "response"];
        names.iter().find_map(|name| fields.get(*name).map(|content| content.get()))
    }
}

/// The parts of a provider's list; a lone part is a list of one.
pub(super) fn parts(json: &str) -> Vec<Part<'_>> {
    listed(json).into_iter().map(|raw| Part { raw, value: value_of(raw) }).collect()
}

/// The elements of a list in their own spelling; what is no list is its only element.
pub(super) fn listed(json: &str) -> Vec<&str> {
    let raws: Vec<&RawValue> = serde_json::from_str(json)
        .or_else(|_| serde_json::from_str(json).map(|one| vec![one]))
        .unwrap_or_default();
    raws.into_iter().map(RawValue::get).collect()
}

fn value_of(raw: &str) -> Value {
    serde_json::from_str(raw).unwrap_or(Value::Null)
}

/// The members of an object in their own spelling; none of what is no object.
fn fields(raw: &str) -> BTreeMap<String, &RawValue> {
    serde_json::from_str(raw).unwrap_or_default()
}

/// A call of OpenAI's form, of Anthropic's, of Gemini's, or of the plain one with a name
/// and arguments.
pub(super) fn call_of(raw: &str) -> Call {
    let outer = fields(raw);
    let inner = ["function", "functionCall"].iter().find_map(|name| {
        outer.get(*name).map(|inner| fields(inner.get())).filter(|inner| !inner.is_empty())
    });
    let inner = inner.as_ref().unwrap_or(&outer);
    let id_names = ["call_id", "toolCallId", "tool_call_id", "id"];
    let id = [&outer, inner].into_iter().find_map(|fields| {
        id_names.iter().find_map(|name| id_text(&value_of(fields.get(*name)?.get())))
    });
    let name =
        ["name", "toolName"].iter().find_map(|name| match value_of(inner.get(*name)?.get()) {
            Value::String(name) => Some(name),
            _ => None,
        });
    let arguments = ["arguments", "input", "args", "parameters"]
        .iter()
        .find_map(|name| inner.get(*name).map(|arguments| arguments.get()));
    let arguments = match arguments.map(|raw| (raw, value_of(raw))) {
        Some((_, Value::String(text))) if !text.trim().is_empty() => text,
        Some((_, Value::String(_) | Value::Null)) | None => "{}".to_owned(),
        Some((raw, _)) => raw.to_owned(),
    };
    Call { id: id.unwrap_or_default(), name: name.unwrap_or_default(), arguments }
}

fn id_text(id: &Value) -> Option<String> {
    match id {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

/// Whether a call has OpenAI's form already, and all that servers want of it.
pub(super) fn is_openai_call(raw: &str) -> bool {
    let value = value_of(raw);
    let text = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default();
    text("/type") == "function"
        && !text("/id").is_empty()
        && !text("/function/name").is_empty()
        && !text("/function/arguments").trim().is_empty()
}
