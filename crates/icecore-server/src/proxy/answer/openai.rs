//! A reply in OpenAI's protocol: the first of its choices.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Draft, number, text};

/// Choices beyond these are not told apart; providers give no more.
const MOST_CHOICES: usize = 128;

/// What came so far.
#[derive(Debug, Default)]
pub(super) struct Reply {
    content: String,
    refusal: String,
    reasoning: String,
    calls: BTreeMap<u64, Call>,
    /// A call in the form from before there were several.
    function: Option<Call>,
    /// Something was said that we do not know.
    is_strange: bool,
    /// The message of an answer in one piece.
    whole: Option<Value>,
    finish: Option<String>,
    /// Further choices that have begun and not ended.
    others: BTreeSet<u64>,
    model: Option<String>,
    input_tokens: Option<u64>,
    is_begun: bool,
}

/// What we know of a delta.
const KNOWN: [&str; 6] =
    ["role", "content", "refusal", "reasoning_content", "tool_calls", "function_call"];

#[derive(Debug, Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Call {
    /// Adds what there is of name and arguments; how much that is.
    fn add(&mut self, function: &Value) -> usize {
        let mut bytes = 0;
        for (to, path) in [(&mut self.name, "/name"), (&mut self.arguments, "/arguments")] {
            let piece = text(function, path).unwrap_or_default();
            bytes += piece.len();
            to.push_str(piece);
        }
        bytes
    }

    fn is_over(&self) -> bool {
        serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok()
    }

    fn function(&self) -> Value {
        json!({"name": self.name, "arguments": self.arguments})
    }
}

impl Reply {
    fn about(&mut self, data: &Value) {
        if let Some(model) = text(data, "/model") {
            self.model = Some(model.to_owned());
        }
        if let Some(tokens) = number(data, "/usage/prompt_tokens") {
            self.input_tokens = Some(tokens);
        }
    }

    fn other(&mut self, index: u64, choice: &Value) {
        let is_over = text(choice, "/finish_reason").is_some();
        if is_over {
            self.others.remove(&index);
        } else if self.others.len() < MOST_CHOICES {
            self.others.insert(index);
        }
    }

    fn delta(&mut self, delta: &Value) -> usize {
        let mut bytes = 0;
        let mut add = |to: &mut String, key: &str| {
            let piece = text(delta, key).unwrap_or_default();
            bytes += piece.len();
            to.push_str(piece);
        };
        add(&mut self.content, "/content");
        add(&mut self.refusal, "/refusal");
        add(&mut self.reasoning, "/reasoning_content");
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            bytes += self.call(call);
        }
        if delta["function_call"].is_object() {
            bytes += self.function.get_or_insert_default().add(&delta["function_call"]);
        }
        let fields = delta.as_object().into_iter().flatten();
        let strange = |key: &str, said: &Value| !KNOWN.contains(&key) && !said.is_null();
        self.is_strange |= fields.into_iter().any(|(key, said)| strange(key, said));
        bytes
    }

    fn call(&mut self, delta: &Value) -> usize {
        // Some servers number nothing and send each call whole.
        let next = self.calls.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        let call = self.calls.entry(number(delta, "/index").unwrap_or(next)).or_default();
        let id = text(delta, "/id").filter(|id| !id.is_empty());
        if let Some(id) = id {
            id.clone_into(&mut call.id);
        }
        64 + call.add(&delta["function"])
    }
}

impl Draft for Reply {
    fn event(&mut self, event: &Value) -> usize {
        self.about(event);
        let choices = event["choices"].as_array().into_iter().flatten();
        let mut bytes = 0;
        for choice in choices {
            let index = number(choice, "/index").unwrap_or(0);
            if index > 0 {
                self.other(index, choice);
                continue;
            }
            self.is_begun = true;
            bytes += self.delta(&choice["delta"]);
            if let Some(finish) = text(choice, "/finish_reason") {
                self.finish = Some(finish.to_owned());
            }
        }
        bytes
    }

    fn whole(&mut self, answer: &Value) {
        self.about(answer);
        self.whole = answer.pointer("/choices/0/message").filter(|one| one.is_object()).cloned();
    }

    fn is_said(&self) -> bool {
        self.finish.is_some()
    }

    fn others_speak(&self) -> bool {
        !self.others.is_empty()
    }

    fn message(&mut self, is_whole: bool) -> Option<Value> {
        if let Some(whole) = self.whole.take() {
            return Some(whole);
        }
        let is_useful = |call: &&Call| is_whole || call.is_over();
        let calls: Vec<Value> = self
            .calls
            .values()
            .filter(is_useful)
            .map(|call| json!({"id": call.id, "type": "function", "function": call.function()}))
            .collect();
        let function = self.function.as_ref().filter(is_useful).map(Call::function);
        let has_words = !self.content.is_empty();
        let has_more = !(calls.is_empty() && self.refusal.is_empty()) || function.is_some();
        let is_silent = !has_words && !has_more;
        if !self.is_begun || is_silent && (self.is_strange || !is_whole) {
            return None;
        }
        let content = if has_more && !has_words { Value::Null } else { json!(self.content) };
        let mut message = json!({"role": "assistant", "content": content});
        let fields = [("refusal", &self.refusal), ("reasoning_content", &self.reasoning)];
        for (key, said) in fields.into_iter().filter(|(_, said)| !said.is_empty()) {
            message[key] = json!(said);
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        if let Some(function) = function {
            message["function_call"] = function;
        }
        Some(message)
    }

    fn model(&self) -> Option<String> {
        self.model.clone()
    }

    fn input_tokens(&self) -> Option<u64> {
        self.input_tokens
    }
}
