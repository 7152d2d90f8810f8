//! One message of a conversation, as its client gave it.

use std::borrow::Cow;

use crate::json::JsonText;
use crate::time::Millis;

/// A turn's content may have at most this many bytes (1 MiB).
pub const MAX_CONTENT_BYTES: usize = 1 << 20;

/// All other fields of a turn together may have at most this many bytes (1 MiB).
pub const MAX_FIELDS_BYTES: usize = 1 << 20;

/// The fields that have a meaning of their own. A field we do not know never
/// has one of these names, or it would be read back as something else.
pub const KNOWN_FIELDS: [&str; 12] = [
    "session", "id", "role", "name", "content", "timestamp", "model", "toolCallId", "parentIds",
    "tags", "confidence", "toolCalls",
];

/// A turn before anything was hidden in it. Only a
/// [`Redactor`](crate::redact::Redactor) turns it into something storable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawTurn {
    /// The client's own id; the same id in the same session is the same turn.
    pub id: Option<String>,
    /// `user`, `assistant`, `system`, `tool`, or another word.
    pub role: String,
    pub content: Content,
    pub name: Option<String>,
    /// When, as the client spelled it.
    pub timestamp: Option<Timestamp>,
    pub model: Option<String>,
    /// The turns that this one follows; the first decides the branch.
    pub parent_ids: Option<Vec<String>>,
    pub tags: Option<Vec<String>>,
    /// A number from 0 to 1.
    pub confidence: Option<JsonText>,
    /// The calls that an assistant asked for.
    pub tool_calls: Option<JsonText>,
    /// The call that a tool's turn answers.
    pub tool_call_id: Option<String>,
    /// Every field we do not know, in the order it came.
    pub extra: Vec<(String, JsonText)>,
}

/// What a turn says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Plain text, also empty.
    Text(String),
    /// An explicit null, as with a message that only calls tools.
    Null,
    /// A provider's array of parts, in its own spelling.
    Parts(JsonText),
}

impl Default for Content {
    fn default() -> Self {
        Content::Text(String::new())
    }
}

impl Content {
    /// Its size in bytes as stored.
    pub fn byte_count(&self) -> usize {
        match self {
            Content::Text(text) => text.len(),
            Content::Null => 0,
            Content::Parts(json) => json.as_str().len(),
        }
    }

    /// The searchable text: text parts one under the other, media as a word.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Content::Text(text) => Cow::Borrowed(text),
            Content::Null => Cow::Borrowed(""),
            Content::Parts(json) => {
                let mut lines = Vec::new();
                collect_text(&json.to_value(), &mut lines);
                Cow::Owned(lines.join("\n"))
            }
        }
    }
}

/// Walks provider parts (OpenAI, Anthropic, Gemini all nest text under one of a
/// few names) and keeps what a person would read.
pub(crate) fn collect_text(value: &serde_json::Value, lines: &mut Vec<String>) {
    use serde_json::Value;
    match value {
        Value::String(text) => lines.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| collect_text(item, lines)),
        Value::Object(part) => {
            let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
            let named = ["text", "thinking", "content", "output", "refusal", "transcript"];
            let before = lines.len();
            for key in named {
                if let Some(inner) = part.get(key) {
                    collect_text(inner, lines);
                }
            }
            if lines.len() > before {
                return;
            }
            if ["image", "audio", "video", "file", "document"].iter().any(|m| kind.contains(m)) {
                lines.push(format!("[{kind}]"));
            } else if let Some(name) = part.get("name").and_then(Value::as_str) {
                let input = part.get("input").or_else(|| part.get("arguments"));
                let input = input.map(Value::to_string).unwrap_or_default();
                lines.push(format!("{name} {input}").trim_end().to_owned());
            }
        }
        _ => {}
    }
}

/// An RFC 3339 timestamp with the spelling it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timestamp {
    text: String,
    at: Millis,
}

impl Timestamp {
    /// Parses `text` and keeps its spelling.
    pub fn parse(text: impl Into<String>) -> Result<Self, crate::time::TimestampError> {
        let text = text.into();
        let at = Millis::parse_rfc3339(&text)?;
        Ok(Self { text, at })
    }

    /// As it was spelled.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The instant it names.
    pub fn at(&self) -> Millis {
        self.at
    }
}

/// Why a turn cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    #[error(
        "content has {bytes} bytes, and a turn's content is at most {MAX_CONTENT_BYTES} (1 MiB)"
    )]
    ContentTooLarge { bytes: usize },
    /// The other fields are over [`MAX_FIELDS_BYTES`].
    #[error(
        "fields beside content have {bytes} bytes, at most {MAX_FIELDS_BYTES} (1 MiB) are kept"
    )]
    FieldsTooLarge { bytes: usize },
    #[error("`role` is missing or empty; use user, assistant, system, tool or another word")]
    NoRole,
    #[error("an unknown field has the name of another field")]
    FieldName,
    #[error("`id` {0}")]
    Id(crate::ids::NameError),
}

impl RawTurn {
    /// A turn with a role and plain text, everything else absent.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        let content = Content::Text(content.into());
        Self { role: role.into(), content, ..Self::default() }
    }

    /// Checks the limits that hold for every turn, whatever door it came through.
    pub fn check(&self) -> Result<(), TurnError> {
        if self.role.is_empty() {
            return Err(TurnError::NoRole);
        }
        if let Some(id) = &self.id {
            crate::ids::check_name("turn", id).map_err(TurnError::Id)?;
        }
        let bytes = self.content.byte_count();
        if bytes > MAX_CONTENT_BYTES {
            return Err(TurnError::ContentTooLarge { bytes });
        }
        let bytes = self.fields_byte_count();
        if bytes > MAX_FIELDS_BYTES {
            return Err(TurnError::FieldsTooLarge { bytes });
        }
        self.check_extra()
    }

    /// Every unknown field must have a name of its own, or it would be read back
    /// as something else. A known name may stand there with an explicit null.
    fn check_extra(&self) -> Result<(), TurnError> {
        let given = [
            ("id", self.id.is_some()),
            ("name", self.name.is_some()),
            ("timestamp", self.timestamp.is_some()),
            ("model", self.model.is_some()),
            ("parentIds", self.parent_ids.is_some()),
            ("tags", self.tags.is_some()),
            ("confidence", self.confidence.is_some()),
            ("toolCalls", self.tool_calls.is_some()),
            ("toolCallId", self.tool_call_id.is_some()),
            ("role", true),
            ("content", true),
        ];
        let mut seen = std::collections::BTreeSet::new();
        for (name, value) in &self.extra {
            let is_known = KNOWN_FIELDS.contains(&name.as_str());
            let is_given = given.iter().any(|(known, is_given)| known == name && *is_given);
            if !seen.insert(name) || is_given || is_known && value.as_str() != "null" {
                return Err(TurnError::FieldName);
            }
        }
        Ok(())
    }

    /// The size of all its fields.
    pub fn byte_count(&self) -> usize {
        self.content.byte_count() + self.fields_byte_count()
    }

    fn fields_byte_count(&self) -> usize {
        let text = |field: &Option<String>| field.as_ref().map_or(0, String::len);
        let list =
            |field: &Option<Vec<String>>| field.iter().flatten().map(String::len).sum::<usize>();
        let json = |field: &Option<JsonText>| field.as_ref().map_or(0, |json| json.as_str().len());
        self.role.len()
            + text(&self.id)
            + text(&self.name)
            + text(&self.model)
            + text(&self.tool_call_id)
            + list(&self.parent_ids)
            + list(&self.tags)
            + json(&self.confidence)
            + json(&self.tool_calls)
            + self.extra.iter().map(|(key, json)| key.len() + json.as_str().len()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(json: &str) -> Content {
        Content::Parts(JsonText::parse(json).unwrap())
    }

    #[test]
    fn text_of_parts_is_what_a_person_would_read() {
        let check = |json: &str, expected: &str| assert_eq!(parts(json).text(), expected);
        check(r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#, "a\nb");
        check(r#"[{"type":"image_url","image_url":{"url":"data:x"}}]"#, "[image_url]");
        check(r#"[{"type":"tool_result","content":[{"type":"text","text":"42"}]}]"#, "42");
        check(r#"[{"type":"tool_use","name":"ls","input":{"p":1}}]"#, r#"ls {"p":1}"#);
        check(r#"["plain", {"type":"thinking","thinking":"hm"}]"#, "plain\nhm");
        check("[]", "");
    }

    #[test]
    fn limits_are_exact() {
        let mut turn = RawTurn::new("user", "x".repeat(MAX_CONTENT_BYTES));
        assert_eq!(turn.check(), Ok(()));
        turn.content = Content::Text("x".repeat(MAX_CONTENT_BYTES + 1));
        assert_eq!(turn.check(), Err(TurnError::ContentTooLarge { bytes: MAX_CONTENT_BYTES + 1 }));
        let mut turn = RawTurn::new("user", "");
        turn.tags = Some(vec!["x".repeat(MAX_FIELDS_BYTES)]);
        assert!(matches!(turn.check(), Err(TurnError::FieldsTooLarge { .. })));
        assert_eq!(RawTurn::new("", "hi").check(), Err(TurnError::NoRole));
        let extra = |names: &[(&str, &str)]| {
            let field =
                |(name, json): &(&str, &str)| ((*name).to_owned(), JsonText::parse(json).unwrap());
            let turn = RawTurn::new("user", "hi");
            RawTurn { extra: names.iter().map(field).collect(), ..turn }.check()
        };
        assert_eq!(extra(&[("x", "1"), ("name", "null")]), Ok(()));
        assert_eq!(extra(&[("x", "1"), ("x", "2")]), Err(TurnError::FieldName));
        assert_eq!(extra(&[("name", "1")]), Err(TurnError::FieldName));
        assert_eq!(extra(&[("role", "null")]), Err(TurnError::FieldName));
    }
}
