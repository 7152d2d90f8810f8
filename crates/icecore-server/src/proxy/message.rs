//! From a provider's message to a turn.
//!
//! Every field is kept: those that turns have under their own names, the others beside
//! them. Pictures and files become placeholders. By what a message is recognised when it
//! comes again is in `recognise.rs`.

use icecore::RawTurn;
use icecore::formats::json::{JsonText, TextPlace};
use icecore::formats::turn_jsonl;
use icecore::ingest::Content;
use icecore::models::Protocol;
use icecore::sessions::ClientMessage;
use serde_json::Value;

use super::asked::NotUnderstood;
use super::{media, recognise};
use crate::body::Members;

const SHAPE: NotUnderstood = NotUnderstood("unknown-shape");

/// Roles by protocol.
const OPENAI_ROLES: [&str; 6] = ["user", "assistant", "tool", "function", "system", "developer"];
const ANTHROPIC_ROLES: [&str; 2] = ["user", "assistant"];

/// Who says a system prompt.
const SYSTEM_ROLES: [&str; 2] = ["system", "developer"];

/// Who answers.
pub(crate) const REPLY_ROLE: &str = "assistant";

/// Whether a message is a system prompt.
pub(crate) fn is_system(protocol: Protocol, raw: &str) -> Result<bool, NotUnderstood> {
    let Members(members) = serde_json::from_str(raw).map_err(|_| SHAPE)?;
    let role = members.iter().find(|(key, _)| key == "role").map(|(_, role)| role.get());
    let is_system = |role| SYSTEM_ROLES.iter().any(|one| role == format!("\"{one}\""));
    Ok(protocol == Protocol::OpenAi && role.is_some_and(is_system))
}

/// Reads one message of a history.
pub(crate) fn read(protocol: Protocol, raw: &str) -> Result<ClientMessage, NotUnderstood> {
    let value: Value = serde_json::from_str(raw).map_err(|_| SHAPE)?;
    let turn = turn(raw, &value)?;
    let roles: &[&str] = match protocol {
        Protocol::OpenAi => &OPENAI_ROLES,
        Protocol::Anthropic => &ANTHROPIC_ROLES,
    };
    if !roles.contains(&turn.role.as_str()) {
        return Err(NotUnderstood("unknown-role"));
    }
    let is_reply = turn.role == REPLY_ROLE;
    Ok(ClientMessage { recognised_by: recognise::form(&value), is_reply, turn })
}

fn turn(raw: &str, message: &Value) -> Result<RawTurn, NotUnderstood> {
    let Members(members) = serde_json::from_str(raw).map_err(|_| SHAPE)?;
    let mut turn = RawTurn { content: Content::Null, ..RawTurn::default() };
    for (key, value) in members {
        let value = value.get();
        match key.as_str() {
            "role" => turn.role = text(value)?,
            "content" => turn.content = content(value, &message["content"])?,
            "name" if value != "null" => turn.name = Some(text(value)?),
            "tool_call_id" if value != "null" => turn.tool_call_id = Some(text(value)?),
            "tool_calls" if value.starts_with('[') => turn.tool_calls = Some(json(value)?),
            "tool_calls" if value != "null" => return Err(SHAPE),
            _ => turn.extra.push((free_name(&turn, key), json(value)?)),
        }
    }
    Ok(turn)
}

/// A field's name, unless a turn has one of that name that means something else.
fn free_name(turn: &RawTurn, name: String) -> String {
    let mut name = match turn_jsonl::KNOWN_FIELDS.contains(&name.as_str()) {
        true => format!("client_{name}"),
        false => name,
    };
    while turn.extra.iter().any(|(taken, _)| *taken == name) {
        name.push('_');
    }
    name
}

fn text(raw: &str) -> Result<String, NotUnderstood> {
    serde_json::from_str(raw).map_err(|_| SHAPE)
}

fn content(raw: &str, value: &Value) -> Result<Content, NotUnderstood> {
    match value {
        Value::String(text) => Ok(Content::Text(text.clone())),
        Value::Null => Ok(Content::Null),
        Value::Array(parts) => {
            let is_part = |part: &Value| part.get("type").is_some_and(Value::is_string);
            match parts.iter().all(is_part) {
                true => Ok(Content::Parts(json(raw)?)),
                false => Err(SHAPE),
            }
        }
        _ => Err(SHAPE),
    }
}

/// A value in its own spelling, but for the bytes of files.
fn json(raw: &str) -> Result<JsonText, NotUnderstood> {
    let json = JsonText::parse(raw).map_err(|_| SHAPE)?;
    if !media::may_be_in(raw) {
        return Ok(json);
    }
    Ok(json.map_text(|place, text| match place {
        TextPlace::Key => None,
        TextPlace::Under(key) => media::placeholder(Some(key), text),
        TextPlace::Alone => media::placeholder(None, text),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn_of(protocol: Protocol, raw: &str) -> String {
        let message = read(protocol, raw).unwrap();
        assert_eq!(message.turn.check(), Ok(()), "{raw}");
        turn_jsonl::write_fields(&[], &message.turn)
    }

    #[test]
    fn every_field_is_kept() {
        let check = |raw: &str, expected: &str| {
            assert_eq!(turn_of(Protocol::OpenAi, raw), expected);
        };
        check(
            r#"{"role":"user","content":"hi","name":"Ana","mood":1.50}"#,
            r#"{"role":"user","name":"Ana","content":"hi","mood":1.50}"#,
        );
        check(
            r#"{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"ls","arguments":"{\"p\": 1}"}}]}"#,
            r#"{"role":"assistant","content":null,"toolCalls":[{"id":"c1","type":"function","function":{"name":"ls","arguments":"{\"p\": 1}"}}],"refusal":null}"#,
        );
        check(
            r#"{"role":"assistant","tool_calls":null}"#,
            r#"{"role":"assistant","content":null,"tool_calls":null}"#,
        );
        check(
            r#"{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"42"}]}"#,
            r#"{"role":"tool","content":[{"type":"text","text":"42"}],"toolCallId":"c1"}"#,
        );
        check(
            r#"{"id":"msg_1","role":"assistant","content":"a","model":"m","tags":7}"#,
            r#"{"role":"assistant","content":"a","client_id":"msg_1","client_model":"m","client_tags":7}"#,
        );
    }

    #[test]
    fn files_become_placeholders() {
        let data = "QUJD".repeat(100);
        let image = format!(
            r#"{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}]}}"#
        );
        let kept = turn_of(Protocol::OpenAi, &image);
        assert!(kept.contains("[image/png, 300 bytes, sha256:") && !kept.contains(&data), "{kept}");
        let image = format!(
            r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t","content":[{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{data}"}}}}]}}]}}"#
        );
        let kept = turn_of(Protocol::Anthropic, &image);
        assert!(kept.contains("[media, 300 bytes, sha256:") && !kept.contains(&data), "{kept}");
    }

    #[test]
    fn other_shapes_are_not_guessed_at() {
        let check = |protocol, raw: &str, reason: &str| {
            assert_eq!(read(protocol, raw).unwrap_err().0, reason, "{raw}");
        };
        check(Protocol::Anthropic, r#"{"role":"tool","content":"x"}"#, "unknown-role");
        check(Protocol::OpenAi, r#"{"content":"x"}"#, "unknown-role");
        for wrong in [
            r#"{"role":7,"content":"x"}"#,
            r#"{"role":"user","content":["x"]}"#,
            r#"{"role":"user","content":[{"text":"x"}]}"#,
            r#"{"role":"user","content":{"text":"x"}}"#,
            r#"{"role":"user","content":"\ud800"}"#,
            r#"{"role":"assistant","tool_calls":"x"}"#,
            r#"{"role":"user","content":"x","name":7}"#,
        ] {
            check(Protocol::OpenAi, wrong, "unknown-shape");
        }
        let deep = format!(
            r#"{{"role":"user","content":"x","y":{}{}}}"#,
            "[".repeat(128),
            "]".repeat(128)
        );
        check(Protocol::OpenAi, &deep, "unknown-shape");
    }
}
