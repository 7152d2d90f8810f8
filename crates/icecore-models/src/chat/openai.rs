//! OpenAI's `chat/completions`, as most servers have it.

use icecore_domain::chat::{ChatRequest, Finish, Usage};
use icecore_domain::json::quote;
use icecore_domain::turn::{Content, RawTurn};
use serde_json::Value;

use super::draft::{Call, Draft, End, Trouble, json_value};
use super::parts::{self, Part};

/// The path beside the base.
pub(super) const PATH: &str = "/chat/completions";

/// Its own parts of a content, which pass as they are.
const OWN_PARTS: [&str; 5] = ["text", "image_url", "input_audio", "file", "refusal"];

/// What one of its servers calls the number of tokens for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerTokens {
    /// `max_tokens`, as all but OpenAI itself want it.
    Max,
    /// `max_completion_tokens`.
    MaxCompletion,
}

/// The body of a request. Messages come last but for what differs between requests, so
/// that a longer conversation begins with the bytes of a shorter one.
pub(super) fn body(model: &str, request: &ChatRequest, tokens: AnswerTokens) -> String {
    let mut body = format!("{{\"model\":{}", quote(model));
    if let Some(tools) = request.tools.as_ref().map(|tools| tools.json().as_str())
        && tools != "[]"
    {
        body.push_str(",\"tools\":");
        body.push_str(tools);
    }
    let messages: Vec<String> =
        request.messages.iter().flat_map(|turn| messages(turn.fields())).collect();
    body.push_str(",\"messages\":[");
    body.push_str(&messages.join(","));
    let named = match tokens {
        AnswerTokens::Max => "max_tokens",
        AnswerTokens::MaxCompletion => "max_completion_tokens",
    };
    body.push_str(&format!(
        "],\"{named}\":{},\"stream\":true,\"stream_options\":{{\"include_usage\":true}}}}",
        request.max_tokens
    ));
    body
}

/// A turn as messages: one, unless results of tools come in Anthropic's form.
fn messages(turn: &RawTurn) -> Vec<String> {
    match &turn.content {
        Content::Text(text) => vec![message(turn, Some(&quote(text)), own_calls(turn))],
        Content::Null if turn.tool_calls.is_some() => {
            vec![message(turn, Some("null"), own_calls(turn))]
        }
        Content::Null => vec![message(turn, Some("\"\""), None)],
        Content::Parts(json) => {
            let parts = parts::parts(json);
            if parts.iter().all(|part| OWN_PARTS.contains(&part.kind())) {
                vec![message(turn, Some(json.as_str()), own_calls(turn))]
            } else {
                translated(turn, &parts)
            }
        }
    }
}

/// `{"role":…,"content":…,"name":…,"tool_calls":…,"tool_call_id":…}`
fn message(turn: &RawTurn, content: Option<&str>, calls: Option<String>) -> String {
    let mut fields = vec![format!("\"role\":{}", quote(role(&turn.role)))];
    fields.extend(content.map(|content| format!("\"content\":{content}")));
    if let Some(name) = turn.name.as_deref().filter(|name| is_name(name)) {
        fields.push(format!("\"name\":{}", quote(name)));
    }
    fields.extend(calls.map(|calls| format!("\"tool_calls\":{calls}")));
    if let Some(id) = turn.tool_call_id.as_deref() {
        fields.push(format!("\"tool_call_id\":{}", quote(id)));
    }
    format!("{{{}}}", fields.join(","))
}

/// Roles that servers know; a `developer` is a system's other name, and nobody else's
/// words are obeyed as if they were the system's.
fn role(role: &str) -> &str {
    match role {
        "system" | "developer" => "system",
        "assistant" | "tool" | "function" => role,
        _ => "user",
    }
}

/// Other names are refused, with the whole request.
fn is_name(name: &str) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    (1..=64).contains(&name.len()) && name.chars().all(is_plain)
}

fn own_calls(turn: &RawTurn) -> Option<String> {
    let json = turn.tool_calls.as_ref()?;
    if parts::are_openai_calls(json) {
        return Some(json.as_str().to_owned());
    }
    calls_json(&parts::calls(turn))
}

fn calls_json(calls: &[Call]) -> Option<String> {
    let calls: Vec<String> = calls.iter().map(Call::to_json).collect();
    (!calls.is_empty()).then(|| format!("[{}]", calls.join(",")))
}

/// Anthropic's parts in this protocol's words: results first, for they answer what was
/// before.
fn translated(turn: &RawTurn, parts: &[Part<'_>]) -> Vec<String> {
    let mut messages = Vec::new();
    let mut words = Vec::new();
    let mut calls = parts::calls(turn);
    for part in parts {
        match part.kind() {
            "tool_result" => messages.push(format!(
                "{{\"role\":\"tool\",\"content\":{},\"tool_call_id\":{}}}",
                quote(&part.words()),
                quote(part.text_of("tool_use_id"))
            )),
            "tool_use" => calls.push(parts::call_of(&part.value)),
            "thinking" | "redacted_thinking" => {}
            "image" => words.push(image(part)),
            kind if OWN_PARTS.contains(&kind) => words.push(part.raw.to_owned()),
            _ => words.push(text_part(&part.words())),
        }
    }
    if !words.is_empty() || !calls.is_empty() || messages.is_empty() {
        let content = match words.len() {
            0 if calls.is_empty() => "\"\"".to_owned(),
            0 => "null".to_owned(),
            _ => format!("[{}]", words.join(",")),
        };
        messages.push(message(turn, Some(&content), calls_json(&calls)));
    }
    messages
}

fn text_part(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{}}}", quote(text))
}

fn image(part: &Part<'_>) -> String {
    let source = |key: &str| part.value.pointer(&format!("/source/{key}")).and_then(Value::as_str);
    let url = match (source("url"), source("media_type"), source("data")) {
        (Some(url), ..) => url.to_owned(),
        (None, Some(kind), Some(data)) => format!("data:{kind};base64,{data}"),
        _ => return text_part(&part.words()),
    };
    format!("{{\"type\":\"image_url\",\"image_url\":{{\"url\":{}}}}}", quote(&url))
}

/// Takes one event of a stream; gives the piece of text in it.
pub(super) fn take_event(draft: &mut Draft, data: &str) -> Result<String, Trouble> {
    if data.trim() == "[DONE]" {
        draft.is_over = true;
        return Ok(String::new());
    }
    take(draft, data, "delta")
}

/// Takes an answer that came in one piece.
pub(super) fn take_whole(draft: &mut Draft, body: &str) -> Result<String, Trouble> {
    let text = take(draft, body, "message")?;
    if draft.end.is_none() && draft.is_empty() {
        return Err(Trouble::Malformed("an answer without a message".to_owned()));
    }
    draft.is_over = true;
    Ok(text)
}

fn take(draft: &mut Draft, json: &str, key: &str) -> Result<String, Trouble> {
    let value = json_value(json)?;
    // vLLM calls an error by its `object`.
    let is_error = value.get("object").and_then(Value::as_str) == Some("error");
    if is_error || value.get("error").is_some_and(|error| !error.is_null()) {
        return Err(Trouble::Error(json.to_owned()));
    }
    if !value.is_object() {
        return Err(Trouble::Malformed("JSON that is no answer".to_owned()));
    }
    if let Some(usage) = value.get("usage").and_then(usage) {
        draft.usage = Some(usage);
    }
    let Some(choice) = value.pointer("/choices/0") else { return Ok(String::new()) };
    if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
        draft.end = Some(end(reason));
    }
    let Some(said) = choice.get(key).or_else(|| choice.get("message")) else {
        return Ok(String::new());
    };
    let text: String = ["content", "refusal"].iter().map(|key| words(said.get(key))).collect();
    draft.text.push_str(&text);
    let calls = said.get("tool_calls").and_then(Value::as_array);
    for (at, call) in calls.map(Vec::as_slice).unwrap_or_default().iter().enumerate() {
        take_call(draft, call, at as u64);
    }
    Ok(text)
}

/// A text, or a list of parts with texts.
fn words(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
        }
        _ => String::new(),
    }
}

fn take_call(draft: &mut Draft, piece: &Value, at: u64) {
    let number = piece.get("index").and_then(Value::as_u64).unwrap_or(at);
    let call = draft.call(number);
    let text = |path: &str| piece.pointer(path).and_then(Value::as_str).unwrap_or_default();
    if call.id.is_empty() {
        text("/id").clone_into(&mut call.id);
    }
    if call.name.is_empty() {
        text("/function/name").clone_into(&mut call.name);
    }
    match piece.pointer("/function/arguments") {
        Some(Value::String(arguments)) => call.arguments.push_str(arguments),
        Some(object @ Value::Object(_)) => call.arguments.push_str(&object.to_string()),
        _ => {}
    }
}

fn end(reason: &str) -> End {
    match reason {
        "length" | "max_tokens" => End::Finish(Finish::Length),
        "tool_calls" | "function_call" => End::Finish(Finish::ToolCalls),
        "content_filter" => End::Finish(Finish::Filtered),
        "model_context_window_exceeded" | "context_length_exceeded" => End::WindowFull,
        _ => End::Finish(Finish::Stop),
    }
}

fn usage(usage: &Value) -> Option<Usage> {
    let number = |path: &str| usage.pointer(path).and_then(Value::as_u64);
    Some(Usage {
        input: number("/prompt_tokens")?,
        cached_input: number("/prompt_tokens_details/cached_tokens")
            .or_else(|| number("/prompt_cache_hit_tokens"))
            .unwrap_or(0),
        output: number("/completion_tokens").unwrap_or(0),
    })
}
