//! Anthropic's `messages`.

use icecore_domain::chat::{ChatRequest, Finish};
use icecore_domain::json::quote;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::draft::{Draft, End, Trouble, json_value};
use super::messages::{CallWithResult, ChatMessage, Piece, ResultContent, Speaker, messages};
use super::parts::{self, Part};

/// The path beside the base.
pub(super) const PATH: &str = "/messages";

/// The version that is spoken, as a header.
pub(super) const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// Parts that a user may show, or a tool; they pass as they are.
const SHOWN_PARTS: [&str; 3] = ["image", "document", "search_result"];

/// Parts in which a model tells of tools that the provider ran itself, by how their
/// names end.
const PROVIDERS_PARTS: [&str; 3] = ["server_tool_use", "mcp_tool_use", "_tool_result"];

/// Members that a text may have.
const TEXT_MEMBERS: [&str; 4] = ["type", "text", "citations", "cache_control"];

/// The longest id of a call, and the longest name, in characters.
const MAX_ID_CHARS: usize = 64;

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
    let all = messages(&request.messages);
    let system_count = all.iter().take_while(|message| message.speaker == Speaker::System).count();
    let (system, rest) = all.split_at(system_count);
    let mut system: Vec<String> = system.iter().flat_map(blocks).collect();
    let mut messages = turns_of(rest);
    let tools = request.tools.as_ref().map(|tools| tools.json().as_str());
    let tools = tools.filter(|tools| *tools != "[]");
    if caches_prefix {
        mark_for_cache(tools.unwrap_or_default(), &mut system, &mut messages);
    }

    let mut body = format!("{{\"model\":{}", quote(model));
    if let Some(tools) = tools {
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

/// Messages that take turns, user first. The results of a model's calls begin the message
/// behind it.
fn turns_of(given: &[ChatMessage<'_>]) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    for message in given {
        let role = if message.speaker == Speaker::Model { "assistant" } else { "user" };
        let calls = message.calls.iter().map(tool_use);
        add(&mut messages, role, blocks(message).into_iter().chain(calls).collect());
        add(&mut messages, "user", message.calls.iter().map(tool_result).collect());
    }
    // No message of a model's may end in a thought, or be nothing else.
    for message in &mut messages {
        while message.blocks.last().is_some_and(|block| is_thought(block)) {
            message.blocks.pop();
        }
    }
    messages.retain(|message| !message.blocks.is_empty());
    if messages.first().is_none_or(|first| first.role == "assistant") {
        messages.insert(0, Message { role: "user", blocks: vec![text_block(OPENING)] });
    }
    messages
}

fn add(messages: &mut Vec<Message>, role: &'static str, blocks: Vec<String>) {
    if blocks.is_empty() {
        return;
    }
    match messages.last_mut().filter(|last| last.role == role) {
        Some(last) => last.blocks.extend(blocks),
        None => messages.push(Message { role, blocks }),
    }
}

fn blocks(message: &ChatMessage<'_>) -> Vec<String> {
    message.pieces.iter().filter_map(|piece| block(piece, message.speaker)).collect()
}

/// A piece in this protocol's words. Blank texts are left out: the protocol refuses them,
/// with the whole request.
fn block(piece: &Piece<'_>, speaker: Speaker) -> Option<String> {
    let part = match piece {
        Piece::Text(text) => return said_block(text),
        Piece::Part(part) => part,
    };
    let kind = part.kind();
    if part.is_thought() {
        let is_sealed = !part.text_of("signature").is_empty() || !part.text_of("data").is_empty();
        let passes = speaker == Speaker::Model && is_sealed && kind != "reasoning";
        return passes.then(|| part.raw.to_owned());
    }
    if speaker == Speaker::Model && PROVIDERS_PARTS.iter().any(|end| kind.ends_with(end)) {
        return Some(part.raw.to_owned());
    }
    shown(part, speaker == Speaker::User)
}

/// A part that is text, or can be shown; whatever else, as words.
fn shown(part: &Part<'_>, may_show: bool) -> Option<String> {
    let is_plain = || {
        let members = part.value.as_object();
        members
            .is_some_and(|members| members.keys().all(|key| TEXT_MEMBERS.contains(&key.as_str())))
    };
    match part.kind() {
        "text" if part.text_of("text").trim().is_empty() => None,
        "text" if is_plain() => Some(part.raw.to_owned()),
        "image_url" | "input_image" if may_show => image(part),
        kind if may_show && SHOWN_PARTS.contains(&kind) && part.value.get("source").is_some() => {
            Some(part.raw.to_owned())
        }
        _ => said_block(&part.words()),
    }
}

fn said_block(text: &str) -> Option<String> {
    (!text.trim().is_empty()).then(|| text_block(text))
}

fn text_block(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{}}}", quote(text))
}

fn image(part: &Part<'_>) -> Option<String> {
    let text = |path: &str| part.value.pointer(path).and_then(Value::as_str);
    let url = text("/image_url/url").or_else(|| text("/image_url")).unwrap_or_default();
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    let source = match data {
        Some((kind, data)) => format!(
            "{{\"type\":\"base64\",\"media_type\":{},\"data\":{}}}",
            quote(kind),
            quote(data)
        ),
        None if url.starts_with("http") => format!("{{\"type\":\"url\",\"url\":{}}}", quote(url)),
        None => return said_block(&part.words()),
    };
    Some(format!("{{\"type\":\"image\",\"source\":{source}}}"))
}

fn tool_result(asked: &CallWithResult<'_>) -> String {
    let content = match &asked.result.content {
        ResultContent::Text(text) => quote(text),
        ResultContent::Parts(parts) => {
            let blocks: Vec<String> = parts.iter().filter_map(|part| shown(part, true)).collect();
            if blocks.is_empty() { "\"\"".to_owned() } else { format!("[{}]", blocks.join(",")) }
        }
    };
    let error = if asked.result.is_error { ",\"is_error\":true" } else { "" };
    format!(
        "{{\"type\":\"tool_result\",\"tool_use_id\":{},\"content\":{content}{error}}}",
        quote(&plain(&asked.call.id))
    )
}

fn tool_use(asked: &CallWithResult<'_>) -> String {
    let call = &asked.call;
    let input = match serde_json::from_str::<Value>(&call.arguments) {
        Ok(Value::Object(_)) => call.arguments.clone(),
        _ => format!("{{\"arguments\":{}}}", quote(&call.arguments)),
    };
    format!(
        "{{\"type\":\"tool_use\",\"id\":{},\"name\":{},\"input\":{input}}}",
        quote(&plain(&call.id)),
        quote(&plain(&call.name))
    )
}

/// An id or a name in the characters that the protocol takes. What has others gets a hash
/// of itself, so that two stay two.
fn plain(text: &str) -> String {
    let is_plain = |char: &char| char.is_ascii_alphanumeric() || *char == '_' || *char == '-';
    if text.len() <= MAX_ID_CHARS && text.chars().all(|char| is_plain(&char)) {
        return text.to_owned();
    }
    let hash = Sha256::digest(text.as_bytes());
    let hash: String = hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let kept: String = text.chars().filter(is_plain).take(MAX_ID_CHARS - 1 - hash.len()).collect();
    format!("{kept}_{hash}")
}

fn is_thought(block: &str) -> bool {
    parts::parts(block).iter().any(Part::is_thought)
}

/// Marks the end of the system prompt, which never changes, and the end of all, which the
/// next request finds again.
fn mark_for_cache(tools: &str, system: &mut [String], messages: &mut [Message]) {
    let is_marked = |block: &str| block.contains("\"cache_control\"");
    let all = system.iter().chain(messages.iter().flat_map(|one| &one.blocks));
    let marks =
        tools.matches("\"cache_control\"").count() + all.filter(|one| is_marked(one)).count();
    let ends = [messages.last_mut().and_then(|one| one.blocks.last_mut()), system.last_mut()];
    for block in ends.into_iter().flatten().take(MAX_CACHE_MARKS.saturating_sub(marks)) {
        if !is_marked(block) && !is_thought(block) && block.pop() == Some('}') {
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
        // vLLM calls an error by its `object`, and names its kind by the `type`.
        _ if text("/object") == "error" => return Err(Trouble::Error(data.to_owned())),
        "message_start" => note_usage(draft, event.pointer("/message/usage")),
        "content_block_start" if text("/content_block/type") == "tool_use" => {
            let call = draft.call(number);
            text("/content_block/id").clone_into(&mut call.id);
            text("/content_block/name").clone_into(&mut call.name);
        }
        "content_block_start" => return Ok(append_text(draft, text("/content_block/text"))),
        "content_block_delta" => match text("/delta/type") {
            "text_delta" => return Ok(append_text(draft, text("/delta/text"))),
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
                text.push_str(&append_text(draft, piece));
            }
            Some("tool_use") => {
                *draft.call(number as u64) = parts::call_of(&block.to_string());
            }
            _ => {}
        }
    }
    note_usage(draft, value.get("usage"));
    draft.end = value.get("stop_reason").and_then(Value::as_str).map(end);
    draft.is_over = true;
    Ok(text)
}

fn append_text(draft: &mut Draft, text: &str) -> String {
    draft.text.push_str(text);
    text.to_owned()
}

fn end(reason: &str) -> End {
    match reason {
        "end_turn" | "stop_sequence" | "" => End::Finish(Finish::Stop),
        "max_tokens" => End::Finish(Finish::Length),
        "tool_use" => End::Finish(Finish::ToolCalls),
        "refusal" => End::Finish(Finish::Filtered),
        "model_context_window_exceeded" => End::WindowFull,
        // `pause_turn` among them: there is more to come, and nobody asks for it here.
        _ => End::broken(reason),
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
