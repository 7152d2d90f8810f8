//! Anthropic's `messages`.

use icecore_domain::chat::{ChatRequest, Finish};
use icecore_domain::json::quote;
use icecore_domain::redact::RedactedTurn;
use icecore_domain::turn::{Content, RawTurn};
use serde_json::Value;

use super::draft::{Call, Draft, End, Trouble, json_value};
use super::parts::{self, Part};

/// The path beside the base.
pub(super) const PATH: &str = "/messages";

/// The version that is spoken, as a header.
pub(super) const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// Parts of OpenAI's that mean nothing here.
const FOREIGN_PARTS: [&str; 3] = ["input_audio", "file", "refusal"];

/// Stands before a conversation that begins with an assistant: the protocol wants a user
/// first.
const OPENING: &str = "(The conversation begins.)";

/// A request may have so many marks for the cache.
const MAX_CACHE_MARKS: usize = 4;

/// One message: its role, and its parts as JSON.
struct Message {
    role: &'static str,
    blocks: Vec<String>,
}

/// The body of a request. Messages come last but for what differs between requests, so
/// that a longer conversation begins with the bytes of a shorter one; only the mark for
/// the cache moves.
pub(super) fn body(model: &str, request: &ChatRequest, caches_prefix: bool) -> String {
    let is_system = |turn: &&RedactedTurn| is_system(turn.fields());
    let system_count = request.messages.iter().take_while(is_system).count();
    let (system, rest) = request.messages.split_at(system_count);
    let mut system: Vec<String> =
        system.iter().flat_map(|turn| blocks_of(&turn.fields().content)).collect();
    let mut messages = messages(rest);
    if caches_prefix {
        mark_for_cache(&mut system, &mut messages);
    }

    let mut body = format!("{{\"model\":{}", quote(model));
    if let Some(tools) = request.tools.as_ref().map(|tools| tools.json().as_str())
        && tools != "[]"
    {
        body.push_str(&format!(",\"tools\":{tools}"));
    }
    if !system.is_empty() {
        body.push_str(&format!(",\"system\":[{}]", system.join(",")));
    }
    let messages: Vec<String> = messages
        .iter()
        .map(|one| format!("{{\"role\":\"{}\",\"content\":[{}]}}", one.role, one.blocks.join(",")))
        .collect();
    body.push_str(&format!(
        ",\"messages\":[{}],\"max_tokens\":{},\"stream\":true}}",
        messages.join(","),
        request.max_tokens
    ));
    body
}

fn is_system(turn: &RawTurn) -> bool {
    ["system", "developer"].contains(&turn.role.as_str())
}

/// Messages that take turns, user first.
fn messages(turns: &[RedactedTurn]) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for turn in turns.iter().map(RedactedTurn::fields) {
        let role = if turn.role == "assistant" { "assistant" } else { "user" };
        let blocks = blocks(turn);
        if blocks.is_empty() {
            continue;
        }
        if messages.is_empty() && role == "assistant" {
            messages.push(Message { role: "user", blocks: vec![text_block(OPENING)] });
        }
        match messages.last_mut().filter(|last| last.role == role) {
            Some(last) => last.blocks.extend(blocks),
            None => messages.push(Message { role, blocks }),
        }
    }
    messages
}

fn blocks(turn: &RawTurn) -> Vec<String> {
    if let Some(id) = turn.tool_call_id.as_deref().filter(|_| turn.role == "tool") {
        return vec![tool_result(id, &turn.content)];
    }
    let mut blocks = blocks_of(&turn.content);
    blocks.extend(parts::calls(turn).iter().map(tool_use));
    blocks
}

/// Blank texts are left out: the protocol refuses them, with the whole request.
fn blocks_of(content: &Content) -> Vec<String> {
    match content {
        Content::Null => Vec::new(),
        Content::Text(text) if text.trim().is_empty() => Vec::new(),
        Content::Text(text) => vec![text_block(text)],
        Content::Parts(json) => parts::parts(json).iter().filter_map(block).collect(),
    }
}

fn block(part: &Part<'_>) -> Option<String> {
    match part.kind() {
        "text" if part.text_of("text").trim().is_empty() => None,
        "image_url" => Some(image(part)),
        kind if !kind.is_empty() && !FOREIGN_PARTS.contains(&kind) => Some(part.raw.to_owned()),
        _ => {
            let words = part.words();
            (!words.trim().is_empty()).then(|| text_block(&words))
        }
    }
}

fn text_block(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{}}}", quote(text))
}

fn image(part: &Part<'_>) -> String {
    let url = part.value.pointer("/image_url/url").and_then(Value::as_str).unwrap_or_default();
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let source = match data {
        Some((kind, data)) => format!(
            "{{\"type\":\"base64\",\"media_type\":{},\"data\":{}}}",
            quote(kind),
            quote(data)
        ),
        None if url.starts_with("http") => format!("{{\"type\":\"url\",\"url\":{}}}", quote(url)),
        None => return text_block(&part.words()),
    };
    format!("{{\"type\":\"image\",\"source\":{source}}}")
}

fn tool_result(id: &str, content: &Content) -> String {
    let content = match content {
        Content::Text(text) => quote(text),
        Content::Null => "\"\"".to_owned(),
        Content::Parts(json) => {
            let parts = parts::parts(json);
            if let Some(result) = parts.iter().find(|part| part.kind() == "tool_result") {
                return result.raw.to_owned();
            }
            format!("[{}]", blocks_of(content).join(","))
        }
    };
    format!("{{\"type\":\"tool_result\",\"tool_use_id\":{},\"content\":{content}}}", quote(id))
}

fn tool_use(call: &Call) -> String {
    let input = match serde_json::from_str::<Value>(&call.arguments) {
        Ok(Value::Object(_)) => call.arguments.clone(),
        _ => format!("{{\"arguments\":{}}}", quote(&call.arguments)),
    };
    format!(
        "{{\"type\":\"tool_use\",\"id\":{},\"name\":{},\"input\":{input}}}",
        quote(&call.id),
        quote(&call.name)
    )
}

/// Marks the end of the system prompt, which never changes, and the end of all, which the
/// next request finds again.
fn mark_for_cache(system: &mut [String], messages: &mut [Message]) {
    let all = system.iter().chain(messages.iter().flat_map(|one| &one.blocks));
    let marks = all.filter(|block| block.contains("\"cache_control\"")).count();
    let ends = [messages.last_mut().and_then(|one| one.blocks.last_mut()), system.last_mut()];
    for block in ends.into_iter().flatten().take(MAX_CACHE_MARKS.saturating_sub(marks)) {
        let can_bear = !block.contains("\"cache_control\"") && !block.contains("thinking\"");
        if can_bear && block.pop() == Some('}') {
            block.push_str(",\"cache_control\":{\"type\":\"ephemeral\"}}");
        }
    }
}

/// Takes one event of a stream; gives the piece of text in it.
pub(super) fn take_event(draft: &mut Draft, data: &str) -> Result<String, Trouble> {
    let event = json_value(data)?;
    let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let number = event.get("index").and_then(Value::as_u64).unwrap_or(0);
    match text("/type") {
        "error" => return Err(Trouble::Error(data.to_owned())),
        "message_start" => note_usage(draft, event.pointer("/message/usage")),
        "content_block_start" if text("/content_block/type") == "tool_use" => {
            let call = draft.call(number);
            text("/content_block/id").clone_into(&mut call.id);
            text("/content_block/name").clone_into(&mut call.name);
        }
        "content_block_start" => return Ok(said(draft, text("/content_block/text"))),
        "content_block_delta" => match text("/delta/type") {
            "text_delta" => return Ok(said(draft, text("/delta/text"))),
            "input_json_delta" => {
                draft.call(number).arguments.push_str(text("/delta/partial_json"));
            }
            _ => {}
        },
        "message_delta" => {
            note_usage(draft, event.get("usage"));
            if let Some(reason) = event.pointer("/delta/stop_reason").and_then(Value::as_str) {
                draft.end = Some(end(reason));
            }
        }
        "message_stop" => draft.is_over = true,
        "" => {
            return match event.get("error") {
                Some(_) => Err(Trouble::Error(data.to_owned())),
                None => Err(Trouble::Malformed("an event without a type".to_owned())),
            };
        }
        _ => {}
    }
    Ok(String::new())
}

/// Takes an answer that came in one piece.
pub(super) fn take_whole(draft: &mut Draft, body: &str) -> Result<String, Trouble> {
    let value = json_value(body)?;
    if value.get("error").is_some_and(|error| !error.is_null()) {
        return Err(Trouble::Error(body.to_owned()));
    }
    let Some(blocks) = value.get("content").and_then(Value::as_array) else {
        return Err(Trouble::Malformed("an answer without content".to_owned()));
    };
    let mut text = String::new();
    for (number, block) in blocks.iter().enumerate() {
        match block.get("type").and_then(Value::as_str) {
            Some("text") => {
                let piece = block.get("text").and_then(Value::as_str).unwrap_or_default();
                text.push_str(&said(draft, piece));
            }
            Some("tool_use") => *draft.call(number as u64) = parts::call_of(block),
            _ => {}
        }
    }
    note_usage(draft, value.get("usage"));
    draft.end = value.get("stop_reason").and_then(Value::as_str).map(end);
    draft.is_over = true;
    Ok(text)
}

fn said(draft: &mut Draft, text: &str) -> String {
    draft.text.push_str(text);
    text.to_owned()
}

fn end(reason: &str) -> End {
    match reason {
        "max_tokens" => End::Finish(Finish::Length),
        "tool_use" => End::Finish(Finish::ToolCalls),
        "refusal" => End::Finish(Finish::Filtered),
        "model_context_window_exceeded" => End::WindowFull,
        _ => End::Finish(Finish::Stop),
    }
}

/// Later numbers replace earlier ones; what is read is told in three parts.
fn note_usage(draft: &mut Draft, told: Option<&Value>) {
    let Some(told) = told else { return };
    let number = |key: &str| told.get(key).and_then(Value::as_u64);
    let mut usage = draft.usage.unwrap_or_default();
    if let Some(input) = number("input_tokens") {
        let cached = number("cache_read_input_tokens").unwrap_or(0);
        let written = number("cache_creation_input_tokens").unwrap_or(0);
        usage.input = input.saturating_add(cached).saturating_add(written);
        usage.cached_input = cached;
    }
    usage.output = number("output_tokens").unwrap_or(usage.output);
    draft.usage = Some(usage);
}
