//! OpenAI's `chat/completions`, as most servers have it.

use icecore_domain::chat::{ChatRequest, Finish, Usage};
use icecore_domain::json::quote;
use serde_json::Value;

use super::draft::{Draft, End, Trouble, json_value};
use super::messages::{self, CallWithResult, ChatMessage, Piece, Speaker};
use super::parts::Part;

/// The path beside the base.
pub(super) const PATH: &str = "/chat/completions";

/// What OpenAI's newer models call the number of tokens for an answer.
pub(super) const NEWER_NAME: &str = "max_completion_tokens";

/// What one of its servers calls the number of tokens for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerTokens {
    /// `max_tokens`, as all but OpenAI itself want it.
    Max,
    /// [`NEWER_NAME`].
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
        messages::messages(&request.messages).iter().flat_map(written).collect();
    body.push_str(",\"messages\":[");
    body.push_str(&messages.join(","));
    let named = match tokens {
        AnswerTokens::Max => "max_tokens",
        AnswerTokens::MaxCompletion => NEWER_NAME,
    };
    body.push_str(&format!(
        "],\"{named}\":{},\"stream\":true,\"stream_options\":{{\"include_usage\":true}}}}",
        request.max_tokens
    ));
    body
}

/// A message as the provider wants it, directly followed by the results of its calls.
fn written(message: &ChatMessage<'_>) -> Vec<String> {
    let role = match message.speaker {
        Speaker::System => "system",
        Speaker::User => "user",
        Speaker::Model => "assistant",
    };
    let mut fields =
        vec![format!("\"role\":\"{role}\""), format!("\"content\":{}", content(message))];
    if let Some(name) = message.name.filter(|name| is_name(name)) {
        fields.push(format!("\"name\":{}", quote(name)));
    }
    if !message.calls.is_empty() {
        let call = |asked: &CallWithResult<'_>| {
            asked.raw.map_or_else(|| asked.call.to_json(), str::to_owned)
        };
        let calls: Vec<String> = message.calls.iter().map(call).collect();
        fields.push(format!("\"tool_calls\":[{}]", calls.join(",")));
    }
    let own = format!("{{{}}}", fields.join(","));
    std::iter::once(own).chain(message.calls.iter().map(result)).collect()
}

fn result(asked: &CallWithResult<'_>) -> String {
    format!(
        "{{\"role\":\"tool\",\"content\":{},\"tool_call_id\":{}}}",
        quote(&asked.result.content.words()),
        quote(&asked.call.id)
    )
}

/// Other names are refused, with the whole request.
fn is_name(name: &str) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    (1..=64).contains(&name.len()) && name.chars().all(is_plain)
}

/// A text, or a list of parts that is not empty; null only where tools are called.
fn content(message: &ChatMessage<'_>) -> String {
    if let [Piece::Text(text)] = message.pieces.as_slice() {
        return quote(text);
    }
    let parts: Vec<String> =
        message.pieces.iter().filter_map(|piece| part_of(piece, message.speaker)).collect();
    match (parts.is_empty(), message.calls.is_empty()) {
        (false, _) => format!("[{}]", parts.join(",")),
        (true, false) => "null".to_owned(),
        (true, true) => "\"\"".to_owned(),
    }
}

/// A part in this protocol's words. Only a user may show or play something, and only a
/// model refuse; of anybody else it is text.
fn part_of(piece: &Piece<'_>, speaker: Speaker) -> Option<String> {
    let part = match piece {
        Piece::Text(text) => return spoken_text(text),
        Piece::Part(part) if part.is_thought() => return None,
        Piece::Part(part) => part,
    };
    let is_user = speaker == Speaker::User;
    match part.kind() {
        "text" if part.text_of("text").trim().is_empty() => None,
        "text" => Some(part.raw.to_owned()),
        "image_url" | "input_image" | "image" if is_user => image(part),
        "input_audio" | "file" if is_user && part.value.get(part.kind()).is_some() => {
            Some(part.raw.to_owned())
        }
        "refusal" if speaker == Speaker::Model && !part.text_of("refusal").is_empty() => {
            Some(part.raw.to_owned())
        }
        _ => spoken_text(&part.words()),
    }
}

fn spoken_text(text: &str) -> Option<String> {
    (!text.trim().is_empty()).then(|| text_part(text))
}

fn text_part(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{}}}", quote(text))
}

fn image(part: &Part<'_>) -> Option<String> {
    let text = |path: &str| part.value.pointer(path).and_then(Value::as_str);
    if part.kind() == "image_url" && text("/image_url/url").is_some() {
        return Some(part.raw.to_owned());
    }
    let url = match (text("/image_url"), text("/source/url")) {
        (Some(url), _) | (None, Some(url)) => url.to_owned(),
        (None, None) => match (text("/source/media_type"), text("/source/data")) {
            (Some(kind), Some(data)) => format!("data:{kind};base64,{data}"),
            _ => return spoken_text(&part.words()),
        },
    };
    Some(format!("{{\"type\":\"image_url\",\"image_url\":{{\"url\":{}}}}}", quote(&url)))
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

/// The words of all servers for an end in order; what else ends an answer breaks it off.
fn end(reason: &str) -> End {
    match reason.to_ascii_lowercase().as_str() {
        "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" | "complete" | "completed"
        | "end" | "" => End::Finish(Finish::Stop),
        "length" | "max_tokens" | "max_output_tokens" => End::Finish(Finish::Length),
        "tool_calls" | "tool_use" | "function_call" => End::Finish(Finish::ToolCalls),
        "content_filter" | "safety" | "refusal" | "recitation" => End::Finish(Finish::Filtered),
        "model_context_window_exceeded" | "context_length_exceeded" | "model_length" => {
            End::WindowFull
        }
        _ => End::broken(reason),
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
