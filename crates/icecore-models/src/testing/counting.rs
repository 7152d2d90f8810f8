//! What the server counts for a request.

use std::sync::LazyLock;

use icecore_domain::chat::Protocol;
use icecore_domain::tokens::TokenCounter as _;
use serde_json::Value;

use super::UpstreamConfig;
use crate::O200k;

static COUNTER: LazyLock<O200k> = LazyLock::new(O200k::default);

/// Beside its words a message has so many, for its role and its ends.
const MESSAGE_TOKENS: u64 = 4;

/// Every message (the system prompt and the tools among them) with its tokens.
pub(super) fn counted(config: &UpstreamConfig, json: &Value) -> Vec<(String, u64)> {
    let mut counted = Vec::new();
    if let Some(tools) = json.get("tools") {
        counted.push((tools.to_string(), tokens(&tools.to_string())));
    }
    if let Some(system) = json.get("system").filter(|_| config.protocol == Protocol::Anthropic) {
        counted.push((system.to_string(), tokens(&text_of(system)) + MESSAGE_TOKENS));
    }
    for message in json.get("messages").and_then(Value::as_array).into_iter().flatten() {
        let mut count = tokens(&text_of(message)) + MESSAGE_TOKENS;
        if let Some(calls) = message.get("tool_calls") {
            count += tokens(&calls.to_string());
        }
        counted.push((without_cache_marks(message).to_string(), count));
    }
    for (_, count) in &mut counted {
        *count = (*count * config.count_percent).div_ceil(100);
    }
    counted
}

/// Tokens of a text.
pub(super) fn tokens(text: &str) -> u64 {
    u64::from(COUNTER.count(text))
}

/// The beginning of a text that has so many tokens.
pub(super) fn first_tokens(text: &str, count: u64) -> &str {
    COUNTER.prefix(text, u32::try_from(count).unwrap_or(u32::MAX))
}

/// What a model reads of a message: its texts, and the calls in it.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text_of).collect::<Vec<_>>().join("\n"),
        Value::Object(fields) => {
            if let Some(input) = fields.get("input") {
                let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
                return format!("{name} {input}");
            }
            let read = ["text", "thinking", "content"].iter().find_map(|key| fields.get(*key));
            read.map(text_of).unwrap_or_default()
        }
        _ => String::new(),
    }
}

/// The mark says where a cache ends, and is no part of what is cached.
fn without_cache_marks(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(without_cache_marks).collect(),
        Value::Object(fields) => fields
            .iter()
            .filter(|(key, _)| *key != "cache_control")
            .map(|(key, value)| (key.clone(), without_cache_marks(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}
