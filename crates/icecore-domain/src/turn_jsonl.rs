//! Turn JSONL: one object a line, every field kept.
//!
//! ```json
//! {"session":"trip","role":"user","name":"Ana","content":"hello","timestamp":"2024-05-01T10:00:00Z"}
//! ```

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::json::{JsonText, brief, quote, syntax_reason};
pub use crate::turn::KNOWN_FIELDS;
use crate::turn::{Content, RawTurn, Timestamp, TurnError};

/// A line: the turn, and the session it names, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnLine {
    /// `session`, where the line has one.
    pub session: Option<String>,
    pub turn: RawTurn,
}

/// Why a line is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    #[error("not a JSON object: {0}")]
    NotAnObject(String),
    #[error("field `{0}` stands there twice")]
    Repeated(String),
    #[error("field `{0}` is missing")]
    Missing(&'static str),
    #[error("field `{field}` must be {expected}")]
    Field { field: &'static str, expected: &'static str },
    #[error(transparent)]
    Timestamp(#[from] crate::time::TimestampError),
    #[error("field `{field}`: {source}")]
    Json { field: String, source: crate::json::JsonError },
    #[error(transparent)]
    Turn(#[from] TurnError),
}

/// Reads one line from outside.
pub fn parse_line(line: &str) -> Result<TurnLine, LineError> {
    let line = parse_stored(line)?;
    line.turn.check()?;
    Ok(line)
}

/// Reads a line of our own, without the limits on what may come in: a marker
/// may be longer than the secret that it hides.
pub fn parse_stored(line: &str) -> Result<TurnLine, LineError> {
    let fields = object_fields(line)?;
    let mut turn = RawTurn::default();
    let mut session = None;
    let mut has_content = false;
    let mut has_role = false;
    for (key, raw) in fields {
        let raw = raw.get();
        // An explicit null is kept like an unknown field, so that it comes back.
        if raw == "null" && !matches!(key.as_str(), "role" | "content") {
            turn.extra.push((key, json_field("null", raw)?));
            continue;
        }
        match key.as_str() {
            "role" => (turn.role, has_role) = (text_field("role", raw)?, true),
            "content" => (turn.content, has_content) = (content_field(raw)?, true),
            "session" => session = Some(text_field("session", raw)?),
            "id" => turn.id = Some(text_field("id", raw)?),
            "name" => turn.name = Some(text_field("name", raw)?),
            "timestamp" => turn.timestamp = Some(Timestamp::parse(text_field("timestamp", raw)?)?),
            "model" => turn.model = Some(text_field("model", raw)?),
            "parentIds" => turn.parent_ids = Some(list_field("parentIds", raw)?),
            "tags" => turn.tags = Some(list_field("tags", raw)?),
            "confidence" => turn.confidence = Some(confidence_field(raw)?),
            "toolCalls" => turn.tool_calls = Some(json_field("toolCalls", raw)?),
            "toolCallId" => turn.tool_call_id = Some(text_field("toolCallId", raw)?),
            _ => {
                let value = json_field(&key, raw)?;
                turn.extra.push((key, value));
            }
        }
    }
    if !has_role {
        return Err(LineError::Missing("role"));
    }
    if !has_content {
        return Err(LineError::Missing("content"));
    }
    Ok(TurnLine { session, turn })
}

/// The fields of a turn as JSON members, in a fixed order, unknown ones last.
/// `session` and anything a caller adds come through `before`.
pub fn write_fields(before: &[(&str, String)], turn: &RawTurn) -> String {
    let mut out = String::from("{");
    let mut put = |key: &str, value: &str| {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&quote(key));
        out.push(':');
        out.push_str(value);
    };
    for (key, value) in before {
        put(key, value);
    }
    let mut put_text = |key: &str, value: &Option<String>| {
        if let Some(text) = value {
            put(key, &quote(text));
        }
    };
    put_text("id", &turn.id);
    put_text("role", &Some(turn.role.clone()));
    put_text("name", &turn.name);
    put(
        "content",
        &match &turn.content {
            Content::Text(text) => quote(text),
            Content::Null => "null".to_owned(),
            Content::Parts(json) => json.as_str().to_owned(),
        },
    );
    if let Some(timestamp) = &turn.timestamp {
        put("timestamp", &quote(timestamp.as_str()));
    }
    for (key, text) in [("model", &turn.model), ("toolCallId", &turn.tool_call_id)] {
        if let Some(text) = text {
            put(key, &quote(text));
        }
    }
    for (key, list) in [("parentIds", &turn.parent_ids), ("tags", &turn.tags)] {
        if let Some(list) = list {
            put(key, &serde_json::Value::from(list.clone()).to_string());
        }
    }
    for (key, json) in [("confidence", &turn.confidence), ("toolCalls", &turn.tool_calls)] {
        if let Some(json) = json {
            put(key, json.as_str());
        }
    }
    for (key, json) in &turn.extra {
        put(key, json.as_str());
    }
    out.push('}');
    out
}

/// What a line is.
const EXPECTED: &str = "an object with `role` and `content`";

fn object_fields(line: &str) -> Result<Vec<(String, Box<RawValue>)>, LineError> {
    struct Fields(Vec<(String, Box<RawValue>)>);
    impl<'de> serde::Deserialize<'de> for Fields {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = Fields;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str(EXPECTED)
                }
                fn visit_map<A: serde::de::MapAccess<'de>>(
                    self,
                    mut map: A,
                ) -> Result<Fields, A::Error> {
                    let mut fields = Vec::new();
                    while let Some(field) = map.next_entry()? {
                        fields.push(field);
                    }
                    Ok(Fields(fields))
                }
            }
            deserializer.deserialize_map(Visitor)
        }
    }
    let Fields(fields) =
        serde_json::from_str(line).map_err(|error| LineError::NotAnObject(reason(line, &error)))?;
    let mut seen = BTreeMap::new();
    for (key, _) in &fields {
        if seen.insert(key.clone(), ()).is_some() {
            return Err(LineError::Repeated(brief(key)));
        }
    }
    Ok(fields)
}

/// Why a line is no object. Where it is another value, only that value's type
/// is named.
fn reason(line: &str, error: &serde_json::Error) -> String {
    if !error.is_data() {
        return syntax_reason(error);
    }
    let kind = match line.trim_start().as_bytes().first() {
        Some(b'[') => "sequence",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    };
    format!(
        "invalid type: {kind}, expected {EXPECTED} at line {} column {}",
        error.line(),
        error.column()
    )
}

fn text_field(field: &'static str, raw: &str) -> Result<String, LineError> {
    serde_json::from_str(raw)
        .map_err(|_| LineError::Field { field, expected: "a string of valid Unicode" })
}

fn list_field(field: &'static str, raw: &str) -> Result<Vec<String>, LineError> {
    serde_json::from_str(raw)
        .map_err(|_| LineError::Field { field, expected: "an array of strings" })
}

fn json_field(field: &str, raw: &str) -> Result<JsonText, LineError> {
    JsonText::parse(raw).map_err(|source| LineError::Json { field: brief(field), source })
}

fn content_field(raw: &str) -> Result<Content, LineError> {
    match raw.as_bytes().first() {
        Some(b'"') => Ok(Content::Text(text_field("content", raw)?)),
        Some(b'[') => Ok(Content::Parts(json_field("content", raw)?)),
        Some(b'n') => Ok(Content::Null),
        _ => Err(LineError::Field {
            field: "content",
            expected: "a string, null or an array of parts",
        }),
    }
}

fn confidence_field(raw: &str) -> Result<JsonText, LineError> {
    let refuse = LineError::Field { field: "confidence", expected: "a number from 0 to 1" };
    match serde_json::from_str::<f64>(raw) {
        Ok(number) if (0.0..=1.0).contains(&number) => json_field("confidence", raw),
        _ => Err(refuse),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(line: &str) {
        let read = parse_line(line).unwrap();
        let before: Vec<_> = read.session.iter().map(|name| ("session", quote(name))).collect();
        let written = write_fields(&before, &read.turn);
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let sorted = |text: &str| {
            let mut fields: Vec<_> = value(text)
                .as_object()
                .unwrap()
                .iter()
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            fields
        };
        assert_eq!(sorted(&written), sorted(line));
        assert_eq!(parse_line(&written).unwrap().turn, read.turn);
    }

    #[test]
    fn every_field_comes_back() {
        round_trip(r#"{"role":"user","content":""}"#);
        round_trip(
            r#"{"role":"tool","content":null,"toolCallId":"c1","x":{"y":[1.50]},"name":null}"#,
        );
        round_trip(
            r#"{"session":"s","id":"1","role":"odd","name":"N","content":[{"type":"text","text":"a\u0000b"}],
            "timestamp":"2024-01-01T00:00:00+01:00","model":"m","parentIds":["0"],"tags":[],
            "confidence":0.50,"toolCalls":[{"id":"c"}],"unknown":"kept\r\n\t"}"#,
        );
    }

    #[test]
    fn bad_lines_say_why() {
        let check = |line: &str, expected: &str| {
            let error = parse_line(line).unwrap_err().to_string();
            assert!(error.contains(expected), "{line} gave {error}");
        };
        check("", "not a JSON object");
        check("[1]", "not a JSON object");
        check(r#"{"role":"user","content":"a""#, "not a JSON object");
        check(r#"{"content":"a"}"#, "field `role` is missing");
        check(r#"{"role":"user"}"#, "field `content` is missing");
        check(r#"{"role":"","content":"a"}"#, "`role` is missing or empty");
        check(r#"{"role":7,"content":"a"}"#, "field `role` must be a string");
        check(r#"{"role":"user","content":7}"#, "field `content` must be");
        check(
            r#"{"role":"user","content":"\ud800"}"#,
            "field `content` must be a string of valid Unicode",
        );
        check(r#"{"role":"user","content":"a","timestamp":"2024-99-01T00:00:00Z"}"#, "timestamp");
        check(r#"{"role":"user","content":"a","confidence":1.5}"#, "from 0 to 1");
        check(r#"{"role":"user","content":"a","tags":"x"}"#, "array of strings");
        check(r#"{"role":"user","content":"a","role":"b"}"#, "stands there twice");
        check(&format!(r#"{{"role":"user","content":"{}"}}"#, "x".repeat(2 << 20)), "1 MiB");
        let deep = format!(
            r#"{{"role":"user","content":"a","x":{}{}}}"#,
            "[".repeat(200),
            "]".repeat(200)
        );
        check(&deep, "nested deeper");
    }

    #[test]
    fn a_refusal_does_not_repeat_the_line() {
        let token = format!("ghp_{}", "a1B2".repeat(9));
        let long = token.repeat(2);
        for line in [
            format!(r#""{token}""#),
            format!(r#"["{token}"]"#),
            format!(r#"{{"role":"user","content":"a","{token}"}}"#),
            format!(r#"{{"role":"user","content":"a","{long}":1,"{long}":2}}"#),
            format!(r#"{{"role":"user","content":"a","timestamp":"{long}"}}"#),
            format!(
                r#"{{"role":"user","content":"a","{long}":{}{}}}"#,
                "[".repeat(200),
                "]".repeat(200)
            ),
        ] {
            let error = parse_line(&line).unwrap_err().to_string();
            assert!(!error.contains(&token[..20]), "{error}");
        }
        let error = |line: &str| parse_line(line).unwrap_err().to_string();
        assert!(error("[1]").contains("invalid type: sequence, expected an object"));
        assert!(error("-1").contains("invalid type: number"));
    }

    #[test]
    fn known_fields_are_those_that_are_read() {
        for name in KNOWN_FIELDS {
            let line = format!(r#"{{"role":"user","content":"a","{name}":{{}}}}"#);
            let read = parse_stored(&line).map(|line| line.turn.extra);
            assert!(read.is_err() || name == "toolCalls" && read == Ok(Vec::new()), "{name}");
        }
    }
}
