//! A turn as a message of a request.

use std::borrow::Cow;

use serde_json::Value;

use crate::redact::RedactedTurn;
use crate::tokens::TokenCounter;
use crate::turn::{Content, RawTurn, collect_text};

use super::is_marked;

/// What a message costs in a request beside its text: role, separators.
pub const MESSAGE_TOKENS: u64 = 4;

/// What an image counts, whatever its bytes: about what providers take for one of full
/// size. A sound, a film or a file counts at least as much.
pub const MEDIA_TOKENS: u64 = 1_600;

/// A document counts a token for so many of its bytes: a page of text has some thousands
/// of bytes, and providers take hundreds of tokens for it.
const DOCUMENT_BYTES_A_TOKEN: u64 = 16;

/// A sound or a film counts a token for so many of its bytes: a second of it has some
/// thousands, and providers take ten to thirty tokens for it.
const SOUND_BYTES_A_TOKEN: u64 = 400;

/// The role of what tools say.
const TOOL: &str = "tool";

/// Stands for the id of a call that has none, so that the next result without one
/// answers it.
const NO_ID: &str = "";

/// A turn of an API view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub turn: RedactedTurn,
    /// Its tokens, as [`message_tokens`] counts.
    pub tokens: u64,
}

impl Message {
    /// A turn, counted.
    pub fn new(turn: RedactedTurn, counter: &dyn TokenCounter) -> Self {
        let tokens = message_tokens(turn.fields(), counter);
        Self { turn, tokens }
    }

    /// Ids of the tool calls that it makes: of `toolCalls`, or of `tool_use` parts. A
    /// call without an id has an empty one.
    pub fn calls(&self) -> Vec<String> {
        Links::of(self.turn.fields()).calls
    }

    /// Ids of the tool calls that it answers: `toolCallId`, or `tool_result` parts. A
    /// result without an id has an empty one.
    pub fn answers(&self) -> Vec<String> {
        Links::of(self.turn.fields()).answers
    }

    /// Whether a person wrote it; see [`is_request`].
    pub fn is_request(&self) -> bool {
        is_request(self.turn.fields())
    }

    /// Whether a model answers in words: something is said, and nothing called for.
    pub(super) fn is_words(&self, links: &Links) -> bool {
        let turn = self.turn.fields();
        is_model(&turn.role) && !links.has_open_call() && !turn.content.text().trim().is_empty()
    }
}

/// Whether a person wrote a turn: the role `user`, something in it, and not only results
/// of tools or a handoff that was given back to us.
pub fn is_request(turn: &RawTurn) -> bool {
    if turn.role != "user" || turn.tool_call_id.is_some() {
        return false;
    }
    match &turn.content {
        Content::Text(text) => !text.trim_start().is_empty() && !is_marked(text),
        Content::Null => false,
        Content::Parts(json) => match json.to_value() {
            Value::Array(parts) => parts.iter().any(is_said),
            part => is_said(&part),
        },
    }
}

/// Whether a turn holds a result of a tool, whatever else is in it. A provider wants it
/// right behind the call.
pub fn holds_result(turn: &RawTurn) -> bool {
    !Links::of(turn).answers.is_empty()
}

/// Whether what has this role was said by a model: by nobody else whom we know.
pub fn is_model(role: &str) -> bool {
    !matches!(role, "user" | "tool" | "function" | "system" | "developer")
}

/// Whether a part of a message is a person's: text or media, but no result.
fn is_said(part: &Value) -> bool {
    match part {
        Value::String(text) => !text.trim().is_empty(),
        Value::Object(fields) => {
            let text = fields.get("text").and_then(Value::as_str);
            let is_blank = text.is_some_and(|text| text.trim_start().is_empty() || is_marked(text));
            !is_result(part) && !is_blank && !fields.is_empty()
        }
        _ => false,
    }
}

/// Whether a part of a message is what a tool gave back.
fn is_result(part: &Value) -> bool {
    is_result_kind(&kind_of(part)) || part.get("functionResponse").is_some()
}

/// What a turn says, one after the other, each under the role of who said it: what a tool
/// gave back is the tool's word, whoever's message brought it. A handoff that was given
/// back to us is nobody's.
pub fn voices(turn: &RawTurn) -> Vec<(&str, Cow<'_, str>)> {
    let is_result_turn = turn.tool_call_id.is_some();
    let own = if is_result_turn { TOOL } else { turn.role.as_str() };
    let whole = || vec![(own, turn.content.text())];
    let Content::Parts(json) = &turn.content else {
        return if is_marked(&turn.content.text()) { Vec::new() } else { whole() };
    };
    let Value::Array(parts) = json.to_value() else { return whole() };
    let mut voices: Vec<(&str, Vec<String>)> = Vec::new();
    for part in &parts {
        let role = if is_result(part) { TOOL } else { own };
        let mut lines = Vec::new();
        collect_text(part, &mut lines);
        if lines.first().is_none_or(|line| is_marked(line)) {
            continue;
        }
        match voices.last_mut() {
            Some((last, said)) if *last == role => said.append(&mut lines),
            _ => voices.push((role, lines)),
        }
    }
    voices.into_iter().map(|(role, lines)| (role, Cow::Owned(lines.join("\n")))).collect()
}

/// What a message calls for, and what calls it answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Links {
    pub(super) calls: Vec<String>,
    pub(super) answers: Vec<String>,
}

impl Links {
    pub(super) fn of(turn: &RawTurn) -> Self {
        let mut links = Self::default();
        if let Some(calls) = &turn.tool_calls {
            links.add_calls(&calls.to_value());
        }
        // The older form, one call without an id.
        let older = turn.extra.iter().find(|(name, _)| name == "function_call");
        if older.is_some_and(|(_, call)| call.as_str() != "null") {
            links.calls.push(NO_ID.to_owned());
        }
        if let Content::Parts(parts) = &turn.content {
            links.add_parts(&parts.to_value());
        }
        match &turn.tool_call_id {
            Some(id) => links.answers.push(id.clone()),
            None if matches!(turn.role.as_str(), "tool" | "function")
                && links.answers.is_empty() =>
            {
                links.answers.push(NO_ID.to_owned());
            }
            None => {}
        }
        once_each(&mut links.calls);
        once_each(&mut links.answers);
        links
    }

    /// Whether it neither calls nor answers.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.answers.is_empty()
    }

    /// Whether it calls for what it does not bring itself.
    pub(super) fn has_open_call(&self) -> bool {
        self.calls.iter().any(|call| !self.answers.contains(call))
    }

    fn add_calls(&mut self, calls: &Value) {
        match calls {
            Value::Array(calls) => calls.iter().for_each(|call| self.add_calls(call)),
            Value::Object(_) => self.calls.push(call_id(calls).unwrap_or_default()),
            _ => {}
        }
    }

    fn add_parts(&mut self, value: &Value) {
        match value {
            Value::Array(parts) => parts.iter().for_each(|part| self.add_parts(part)),
            Value::Object(fields) => {
                let kind = kind_of(value);
                let id = |names: &[&str]| {
                    names.iter().find_map(|name| fields.get(*name).and_then(id_text))
                };
                if is_result_kind(&kind) {
                    let id = id(&["tool_use_id", "call_id", "toolCallId", "tool_call_id", "id"]);
                    self.answers.push(id.unwrap_or_default());
                } else if is_call_kind(&kind) {
                    let id = id(&["call_id", "toolCallId", "tool_call_id", "id"]);
                    self.calls.push(id.unwrap_or_default());
                } else if let Some(call) = fields.get("functionCall") {
                    self.calls.push(call_id(call).unwrap_or_default());
                } else if let Some(result) = fields.get("functionResponse") {
                    self.answers.push(call_id(result).unwrap_or_default());
                }
            }
            _ => {}
        }
    }
}

fn once_each(ids: &mut Vec<String>) {
    let mut seen = std::collections::BTreeSet::new();
    ids.retain(|id| seen.insert(id.clone()));
}

/// The type of a part, spelled one way.
fn kind_of(part: &Value) -> String {
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    kind.replace('-', "_").to_ascii_lowercase()
}

fn is_call_kind(kind: &str) -> bool {
    kind.ends_with("tool_use") || matches!(kind, "tool_call" | "function_call")
}

fn is_result_kind(kind: &str) -> bool {
    kind.ends_with("tool_result") || matches!(kind, "function_call_output" | "function_response")
}

/// The id of a call, however deep, but not one of its arguments.
fn call_id(call: &Value) -> Option<String> {
    const NAMES: [&str; 4] = ["id", "call_id", "toolCallId", "tool_call_id"];
    const ARGUMENTS: [&str; 4] = ["arguments", "args", "input", "parameters"];
    let fields = call.as_object()?;
    let own = NAMES.iter().find_map(|name| fields.get(*name).and_then(id_text));
    own.or_else(|| {
        let inner = fields.iter().filter(|(name, _)| !ARGUMENTS.contains(&name.as_str()));
        inner.map(|(_, value)| value).find_map(call_id)
    })
}

fn id_text(id: &Value) -> Option<String> {
    match id {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        _ => None,
    }
}

/// Whether a turn is pinned.
pub fn is_pinned(turn: &RawTurn) -> bool {
    turn.tags.iter().flatten().any(|tag| tag == super::PINNED_TAG)
}

/// Tokens of a turn in a view: its text and its tool calls. Media count by rules of thumb:
/// images by their number, all else by its bytes where these are there.
pub fn message_tokens(turn: &RawTurn, counter: &dyn TokenCounter) -> u64 {
    let count = |text: &str| u64::from(counter.count(text));
    let mut tokens = count(&turn.content.text());
    if let Some(calls) = &turn.tool_calls {
        tokens += count(calls.as_str());
    }
    if let Content::Parts(parts) = &turn.content {
        let mut unread = Unread::default();
        unread.add(&parts.to_value());
        tokens += unread.media;
        tokens += unread.texts.iter().map(|text| count(text)).sum::<u64>();
    }
    tokens
}

/// What a provider reads of parts beside their text as people read it.
#[derive(Default)]
struct Unread {
    media: u64,
    texts: Vec<String>,
}

impl Unread {
    fn add(&mut self, value: &Value) {
        let fields = match value {
            Value::Array(parts) => return parts.iter().for_each(|part| self.add(part)),
            Value::Object(fields) => fields,
            _ => return,
        };
        let kind = kind_of(value);
        let is_media = ["image", "audio", "video", "file", "document"]
            .iter()
            .any(|medium| kind.contains(medium))
            || ["inlineData", "inline_data", "fileData", "file_data"]
                .iter()
                .any(|name| fields.contains_key(*name));
        // A document may be plain text, and then that is read.
        let source = fields.get("source").filter(|source| kind_of(source) == "text");
        if let Some(text) = source.and_then(|source| source.get("data")).and_then(Value::as_str) {
            self.texts.push(text.to_owned());
        } else if is_media {
            self.media += media_tokens(&kind, value);
        } else if kind == "redacted_thinking" {
            self.texts.extend(fields.get("data").and_then(Value::as_str).map(str::to_owned));
        } else {
            for call in ["functionCall", "functionResponse"] {
                self.texts.extend(fields.get(call).map(Value::to_string));
            }
        }
        for inner in ["content", "output"] {
            fields.get(inner).into_iter().for_each(|inner| self.add(inner));
        }
    }
}

/// What an image, a sound, a film or a file counts.
fn media_tokens(kind: &str, part: &Value) -> u64 {
    let (mut mime, mut data) = (String::new(), 0);
    read_media(part, &mut mime, &mut data);
    let is = |medium: &str| mime.starts_with(medium) || mime.is_empty() && kind.contains(medium);
    let bytes = data / 4 * 3;
    let by_size = match () {
        () if is("image") => 0,
        () if is("audio") || is("video") => bytes / SOUND_BYTES_A_TOKEN,
        () if mime.is_empty() && !kind.contains("file") && !kind.contains("document") => 0,
        () => bytes / DOCUMENT_BYTES_A_TOKEN,
    };
    by_size.max(MEDIA_TOKENS)
}

/// The kind of media that a part names, and how long the text is that its bytes are
/// written in; 0 where they are elsewhere.
fn read_media(value: &Value, mime: &mut String, data: &mut u64) {
    for (name, inner) in value.as_object().into_iter().flatten() {
        match inner {
            Value::String(text) => {
                let (of, bytes) = match text.strip_prefix("data:").and_then(|t| t.split_once(',')) {
                    Some((of, bytes)) => (Some(of), bytes),
                    None => (None, text.as_str()),
                };
                let names = matches!(name.as_str(), "media_type" | "mimeType" | "mime_type");
                if let Some(of) = of.or(names.then_some(text.as_str())) {
                    *mime = of.to_ascii_lowercase();
                }
                if of.is_some() || matches!(name.as_str(), "data" | "file_data") {
                    *data = (*data).max(bytes.len() as u64);
                }
            }
            Value::Object(_) => read_media(inner, mime, data),
            _ => {}
        }
    }
}

/// Tokens of so many messages, which have so many tokens, as a request.
pub fn request_tokens(messages: u64, tokens: u64) -> u64 {
    tokens.saturating_add(messages.saturating_mul(MESSAGE_TOKENS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handoff::HANDOFF_MARK;
    use crate::json::JsonText;
    use crate::tokens::CharCounter;

    fn json(text: &str) -> JsonText {
        JsonText::parse(text).unwrap()
    }

    fn parts(role: &str, text: &str) -> Message {
        let content = Content::Parts(json(text));
        let turn = RawTurn { content, ..RawTurn::new(role, "") };
        Message::new(RedactedTurn::read_back(turn), &CharCounter)
    }

    fn calling(calls: &str) -> Message {
        let turn = RawTurn { tool_calls: Some(json(calls)), ..RawTurn::new("assistant", "") };
        Message::new(RedactedTurn::read_back(turn), &CharCounter)
    }

    #[test]
    fn calls_are_read_in_every_form() {
        let check = |calls: &str, expected: &[&str]| {
            assert_eq!(calling(calls).calls(), expected, "{calls}");
        };
        check(r#"[{"id":"a","type":"function","function":{"name":"f"}},{"id":"b"}]"#, &["a", "b"]);
        check(r#"[{"id":"a"},{"id":"a"}]"#, &["a"]);
        check(r#"[{"id":7}]"#, &["7"]);
        check(r#"{"id":"a"}"#, &["a"]);
        check(r#"[{"function":{"name":"f","id":"a"}}]"#, &["a"]);
        check(r#"[{"name":"f","arguments":{"id":"not this"}}]"#, &[""]);
        check(r#"[{"id":null,"function":{"name":"f"}}]"#, &[""]);
        check("[]", &[]);
        check(r#"[1,"x",null,[]]"#, &[]);
        check("null", &[]);
        let message = |text: &str| parts("assistant", text);
        let used = message(r#"[{"type":"text","text":"x"},{"type":"tool_use","id":"a"}]"#);
        assert_eq!(used.calls(), ["a"]);
        let called = message(r#"[{"type":"function_call","id":"no","call_id":"a"}]"#);
        assert_eq!(called.calls(), ["a"]);
        assert_eq!(message(r#"[{"functionCall":{"name":"f","args":{}}}]"#).calls(), [""]);
        let older = RawTurn {
            extra: vec![("function_call".to_owned(), json(r#"{"name":"f"}"#))],
            ..RawTurn::new("assistant", "")
        };
        assert_eq!(Links::of(&older).calls, [""]);
    }

    #[test]
    fn results_are_read_in_every_form() {
        let result = |role: &str, id: Option<&str>| {
            let turn = RawTurn { tool_call_id: id.map(str::to_owned), ..RawTurn::new(role, "42") };
            Links::of(&turn).answers
        };
        assert_eq!(result("tool", Some("a")), ["a"]);
        assert_eq!(result("tool", None), [""]);
        assert_eq!(result("function", None), [""]);
        assert_eq!(result("user", None), [""; 0]);
        let both = r#"[{"type":"tool_result","tool_use_id":"a"},{"type":"tool_result"}]"#;
        assert_eq!(parts("user", both).answers(), ["a", ""]);
        let searched = r#"[{"type":"server_tool_use","id":"s"},
            {"type":"web_search_tool_result","tool_use_id":"s"},{"type":"text","text":"so"}]"#;
        let message = parts("assistant", searched);
        let links = Links::of(message.turn.fields());
        assert!(!links.has_open_call() && message.is_words(&links));
    }

    #[test]
    fn a_request_is_what_a_person_wrote() {
        let check = |text: &str, expected: bool| {
            assert_eq!(parts("user", text).is_request(), expected, "{text}");
        };
        check(r#"[{"type":"text","text":"hi"}]"#, true);
        check(r#"["hi"]"#, true);
        check(r#"[{"type":"image_url","image_url":{"url":"data:x"}}]"#, true);
        check(r#"[{"type":"tool_result","tool_use_id":"a","content":"42"}]"#, false);
        check(
            r#"[{"type":"tool_result","tool_use_id":"a"},{"type":"text","text":"and now?"}]"#,
            true,
        );
        check(r#"[{"type":"tool_result","tool_use_id":"a"},{"type":"text","text":" "}]"#, false);
        check("[]", false);
        check("[1,null]", false);
        let plain = |role: &str, text: &str| {
            let turn = RedactedTurn::read_back(RawTurn::new(role, text));
            Message::new(turn, &CharCounter).is_request()
        };
        assert!(plain("user", "hi"));
        assert!(!plain("user", " \n"));
        assert!(!plain("assistant", "hi"));
        assert!(!plain("user", &format!("{HANDOFF_MARK} 3] …")));
        assert!(plain("user", &format!("{HANDOFF_MARK}s confuse me, what are they?")));
    }

    #[test]
    fn what_a_tool_gave_back_is_not_the_persons_word() {
        let check = |message: &Message, expected: &[(&str, &str)]| {
            let found = voices(message.turn.fields());
            let found: Vec<(&str, &str)> =
                found.iter().map(|(role, text)| (*role, &**text)).collect();
            assert_eq!(found, expected, "{message:?}");
        };
        let result = r#"{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"Never test."}]}"#;
        let said = r#"{"type":"text","text":"and now?"}"#;
        check(&parts("user", &format!("[{result}]")), &[("tool", "Never test.")]);
        check(
            &parts("user", &format!("[{result},{result},{said}]")),
            &[("tool", "Never test.\nNever test."), ("user", "and now?")],
        );
        check(&parts("user", &format!("[{said},\"so\"]")), &[("user", "and now?\nso")]);
        check(
            &parts("assistant", &format!("[{said},{result},{said}]")),
            &[("assistant", "and now?"), ("tool", "Never test."), ("assistant", "and now?")],
        );
        let marked = format!(r#"{{"type":"text","text":"{HANDOFF_MARK} 3] obey"}}"#);
        check(&parts("user", &format!("[{marked},{said}]")), &[("user", "and now?")]);
        check(&parts("user", said), &[("user", "and now?")]);
        let turn = |turn: RawTurn| Message::new(RedactedTurn::read_back(turn), &CharCounter);
        check(&turn(RawTurn::new("user", "hi")), &[("user", "hi")]);
        check(&turn(RawTurn::new("user", format!("{HANDOFF_MARK} 3] obey"))), &[]);
        let id = Some("a".to_owned());
        let answer = RawTurn { tool_call_id: id, ..RawTurn::new("user", "Never test.") };
        check(&turn(answer), &[("tool", "Never test.")]);
    }

    #[test]
    fn documents_and_sounds_count_by_their_bytes() {
        let data = "A".repeat(400_000);
        let check = |text: String, expected: u64| {
            let text_tokens = parts("user", &text).turn.fields().content.text().len() as u64;
            assert_eq!(parts("user", &text).tokens - text_tokens, expected);
        };
        let pdf = 300_000 / DOCUMENT_BYTES_A_TOKEN;
        check(
            format!(
                r#"[{{"type":"document","source":{{"type":"base64","media_type":"application/pdf","data":"{data}"}}}}]"#
            ),
            pdf,
        );
        check(
            format!(
                r#"[{{"type":"file","file":{{"filename":"a.pdf","file_data":"data:application/pdf;base64,{data}"}}}}]"#
            ),
            pdf,
        );
        check(
            format!(r#"[{{"inlineData":{{"mimeType":"application/pdf","data":"{data}"}}}}]"#),
            pdf,
        );
        check(
            format!(r#"[{{"inlineData":{{"mimeType":"image/png","data":"{data}"}}}}]"#),
            MEDIA_TOKENS,
        );
        let long = data.repeat(3);
        check(
            format!(
                r#"[{{"type":"input_audio","input_audio":{{"format":"mp3","data":"{long}"}}}}]"#
            ),
            900_000 / SOUND_BYTES_A_TOKEN,
        );
        check(r#"[{"type":"file","file":{"file_id":"f-1"}}]"#.to_owned(), MEDIA_TOKENS);
    }

    #[test]
    fn media_count_by_number_and_texts_by_length() {
        let data = "A".repeat(100_000);
        let check = |text: String, expected: u64| assert_eq!(parts("user", &text).tokens, expected);
        check(
            format!(r#"[{{"type":"image","source":{{"type":"base64","data":"{data}"}}}}]"#),
            MEDIA_TOKENS + 7,
        );
        check(
            format!(
                r#"[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}]"#
            ),
            MEDIA_TOKENS + 11,
        );
        check(
            format!(
                r#"[{{"type":"tool_result","tool_use_id":"a","content":[{{"type":"image","source":{{"data":"{data}"}}}}]}}]"#
            ),
            MEDIA_TOKENS + 7,
        );
        check(format!(r#"[{{"inlineData":{{"data":"{data}"}}}}]"#), MEDIA_TOKENS);
        check(format!(r#"[{{"type":"text","text":"{data}"}}]"#), 100_000);
        check(r#"[{"type":"document","source":{"type":"text","data":"four"}}]"#.to_owned(), 10 + 4);
        check(r#"[{"type":"tool_use","id":"a","name":"ls","input":{"p":1}}]"#.to_owned(), 10);
        assert_eq!(calling(r#"[{"id":"a"}]"#).tokens, 12);
        let text = RawTurn::new("user", &data);
        assert_eq!(message_tokens(&text, &CharCounter), 100_000);
    }
}
