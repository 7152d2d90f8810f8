//! What real servers refuse in the shape of a request, whatever it says.

use std::collections::BTreeSet;

use icecore_domain::chat::Protocol;
use serde_json::Value;

/// What is wrong with a request, if anything is.
pub(crate) fn wrong(protocol: Protocol, json: &Value) -> Option<String> {
    match protocol {
        Protocol::OpenAi => openai(json),
        Protocol::Anthropic => anthropic(json),
    }
    .err()
}

type Checked = Result<(), String>;

fn ensure(holds: bool, wrong: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(wrong()) }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn is_plain(text: &str, chars: usize) -> bool {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    (1..=chars).contains(&text.len()) && text.chars().all(is_plain)
}

fn openai(json: &Value) -> Checked {
    let messages = list(json, "messages");
    ensure(!messages.is_empty(), || "'messages' is too short".to_owned())?;
    // Ids of calls that the next messages must answer.
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let wrong = |what: &str| format!("Invalid 'messages[{at}]': {what}");
        let role = text(message, "role");
        if role == "tool" {
            let id = text(message, "tool_call_id");
            let answered = open.iter().position(|one| *one == id);
            let answered = answered.ok_or_else(|| {
                wrong("'tool' must be a response to a preceding message with 'tool_calls'")
            })?;
            open.remove(answered);
        } else {
            ensure(open.is_empty(), || {
                wrong("'tool_calls' must be followed by tool messages for each 'tool_call_id'")
            })?;
            ensure(message.get("tool_call_id").is_none(), || wrong("unknown 'tool_call_id'"))?;
        }
        let parts: &[&str] = match role {
            "system" | "developer" | "tool" => &["text"],
            "user" => &["text", "image_url", "input_audio", "file"],
            "assistant" => &["text", "refusal"],
            _ => return Err(wrong("unknown role")),
        };
        openai_content(message, parts).map_err(|what| wrong(&what))?;
        if let Some(name) = message.get("name") {
            let is_name = name.as_str().is_some_and(|name| is_plain(name, 64));
            ensure(is_name, || wrong("'name' has other characters"))?;
        }
        if let Some(calls) = message.get("tool_calls") {
            let is_list = calls.as_array().is_some_and(|calls| !calls.is_empty());
            ensure(is_list && role == "assistant", || wrong("'tool_calls' is no list of calls"))?;
            for call in list(message, "tool_calls") {
                openai_call(call).map_err(|what| wrong(&what))?;
                open.push(text(call, "id"));
            }
        }
    }
    ensure(open.is_empty(), || "tool_call_ids did not have response messages".to_owned())
}

fn openai_content(message: &Value, kinds: &[&str]) -> Checked {
    match message.get("content") {
        Some(Value::String(_)) => Ok(()),
        Some(Value::Array(parts)) if !parts.is_empty() => {
            for part in parts {
                let kind = text(part, "type");
                let has_its_own = match kind {
                    "image_url" => part.pointer("/image_url/url").is_some_and(Value::is_string),
                    "text" | "refusal" => part.get(kind).is_some_and(Value::is_string),
                    kind => part.get(kind).is_some(),
                };
                ensure(kinds.contains(&kind) && has_its_own, || format!("part '{kind}'"))?;
            }
            Ok(())
        }
        Some(Value::Null) | None if message.get("tool_calls").is_some() => Ok(()),
        _ => Err("expected a string or a list of parts as 'content'".to_owned()),
    }
}

fn openai_call(call: &Value) -> Checked {
    let arguments = call.pointer("/function/arguments").and_then(Value::as_str);
    let name = call.pointer("/function/name").and_then(Value::as_str);
    ensure(text(call, "type") == "function", || "the type of a call".to_owned())?;
    ensure(!text(call, "id").is_empty(), || "a call without an id".to_owned())?;
    ensure(name.is_some_and(|name| !name.is_empty()), || "a call without a name".to_owned())?;
    ensure(arguments.is_some(), || "arguments that are no string".to_owned())
}

fn anthropic(json: &Value) -> Checked {
    let messages = list(json, "messages");
    ensure(!messages.is_empty(), || "messages: at least one message is required".to_owned())?;
    let first = messages.first().map(|first| text(first, "role"));
    ensure(first == Some("user"), || "first message must use the \"user\" role".to_owned())?;
    for block in list(json, "system") {
        ensure(text(block, "type") == "text", || "system: text is expected".to_owned())?;
        anthropic_block(block, "user")?;
    }
    let mut ids = BTreeSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let wrong = |what: &str| format!("messages.{at}: {what}");
        let role = text(message, "role");
        ensure(["user", "assistant"].contains(&role), || wrong("unknown role"))?;
        let blocks = list(message, "content");
        let is_text = !text(message, "content").trim().is_empty();
        ensure(is_text || !blocks.is_empty(), || wrong("all messages must have content"))?;
        let results = blocks.iter().filter(|block| text(block, "type") == "tool_result").count();
        let mut answers: Vec<&str> = Vec::new();
        for (number, block) in blocks.iter().enumerate() {
            anthropic_block(block, role).map_err(|what| wrong(&what))?;
            if text(block, "type") == "tool_result" {
                ensure(number < results, || wrong("`tool_result` blocks must come first"))?;
                answers.push(text(block, "tool_use_id"));
            }
        }
        open.sort_unstable();
        answers.sort_unstable();
        ensure(open == answers, || {
            wrong("`tool_use` and `tool_result` blocks of two messages do not belong together")
        })?;
        let uses = blocks.iter().filter(|block| text(block, "type") == "tool_use");
        open = uses.map(|block| text(block, "id")).collect();
        ensure(open.iter().all(|id| ids.insert(*id)), || wrong("`tool_use` ids must be unique"))?;
        let last = blocks.last().map(|block| text(block, "type")).unwrap_or_default();
        ensure(!last.ends_with("thinking"), || wrong("the final block cannot be `thinking`"))?;
    }
    ensure(open.is_empty(), || "`tool_use` ids were found without `tool_result`".to_owned())?;
    let marks = json.to_string().matches("\"cache_control\":").count();
    ensure(marks <= 4, || format!("a maximum of 4 blocks with cache_control, found {marks}"))
}

fn anthropic_block(block: &Value, role: &str) -> Checked {
    let kind = text(block, "type");
    let is_user = role == "user";
    let (may_say, is_whole) = match kind {
        "text" => (true, !text(block, "text").trim().is_empty()),
        "image" | "document" | "search_result" => (is_user, block.get("source").is_some()),
        "tool_result" => (is_user, is_plain(text(block, "tool_use_id"), 64)),
        "tool_use" => {
            let is_named = is_plain(text(block, "id"), 64) && is_plain(text(block, "name"), 128);
            (!is_user, is_named && block.get("input").is_some_and(Value::is_object))
        }
        "thinking" => (!is_user, !text(block, "signature").is_empty()),
        "redacted_thinking" => (!is_user, !text(block, "data").is_empty()),
        "server_tool_use" | "mcp_tool_use" => (!is_user, true),
        kind if kind.ends_with("_tool_result") => (!is_user, true),
        _ => (false, false),
    };
    let is_marked_thought = kind.ends_with("thinking") && block.get("cache_control").is_some();
    ensure(may_say && is_whole && !is_marked_thought, || format!("block `{kind}` of `{role}`"))?;
    for inner in list(block, "content").iter().filter(|_| kind == "tool_result") {
        let is_shown =
            ["text", "image", "document", "search_result"].contains(&text(inner, "type"));
        ensure(is_shown, || "block within `tool_result`".to_owned())?;
        anthropic_block(inner, "user")?;
    }
    Ok(())
}
