//! What a message is recognised by when it comes again.
//!
//! Clients send a reply back in their own spelling: a string for one part of text, without
//! thoughts, ids and marks, arguments in another order. So a message has one form, in
//! which all of these are the same: who speaks, the words, the calls and results, and the
//! hashes of files. Nothing stores it; only keyed hashes of it are.

use serde_json::Value;

use super::media;

/// Fields of parts that clients and providers add, change or drop.
const VOLATILE: [&str; 4] = ["cache_control", "citations", "signature", "annotations"];

/// The one form of a message.
pub(crate) fn form(message: &Value) -> Vec<u8> {
    let mut said = Said::default();
    said.content(message.get("content"));
    if let Some(refusal) = text(message, "refusal") {
        said.field("refusal", refusal.trim_end());
    }
    for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
        said.function(text(call, "id"), call.get("function").unwrap_or(call));
    }
    if let Some(call) = message.get("function_call").filter(|call| call.is_object()) {
        said.function(None, call);
    }
    let mut form = Form::default();
    form.put("role", text(message, "role").unwrap_or_default().as_bytes());
    for key in ["name", "tool_call_id"] {
        if let Some(value) = text(message, key) {
            form.put(key, value.as_bytes());
        }
    }
    form.put("text", said.words.trim_end().as_bytes());
    form.0.extend(said.rest.0);
    form.0
}

/// Names and values, each with its length, so that no two messages run together.
#[derive(Debug, Default)]
struct Form(Vec<u8>);

impl Form {
    fn put(&mut self, name: &str, value: &[u8]) {
        for part in [name.as_bytes(), value] {
            self.0.extend((part.len() as u64).to_be_bytes());
            self.0.extend(part);
        }
    }
}

/// What a message says.
#[derive(Debug, Default)]
struct Said {
    words: String,
    /// Calls, results and files, in order.
    rest: Form,
}

impl Said {
    fn field(&mut self, name: &str, value: &str) {
        self.rest.put(name, value.as_bytes());
    }

    fn content(&mut self, content: Option<&Value>) {
        match content {
            Some(Value::String(text)) => self.words.push_str(text),
            Some(Value::Array(parts)) => parts.iter().for_each(|part| self.part(part)),
            _ => {}
        }
    }

    fn part(&mut self, part: &Value) {
        let kind = text(part, "type").unwrap_or_default();
        match kind {
            "text" | "input_text" | "output_text" => {
                self.words.push_str(text(part, "text").unwrap_or_default());
            }
            "refusal" => {
                self.field("refusal", text(part, "refusal").unwrap_or_default().trim_end())
            }
            "thinking" | "redacted_thinking" | "reasoning" => {}
            "tool_use" => {
                let input = part.get("input").cloned().unwrap_or_default();
                self.call(text(part, "id"), text(part, "name"), &plain(&input));
            }
            "tool_result" => {
                let mut result = Said::default();
                result.content(part.get("content"));
                self.field("result", text(part, "tool_use_id").unwrap_or_default());
                self.field("says", result.words.trim_end());
                self.rest.0.extend(result.rest.0);
            }
            // A call or result on the provider's side has an id that tells it from others.
            kind => match text(part, "id").or_else(|| text(part, "tool_use_id")) {
                Some(id) => {
                    self.field("part", kind);
                    self.field("id", id);
                }
                None => self.field("part", &plain(part)),
            },
        }
    }

    /// A call as OpenAI has it: its arguments are JSON in a string, if they are.
    fn function(&mut self, id: Option<&str>, function: &Value) {
        let arguments = text(function, "arguments").unwrap_or_default();
        let arguments = match serde_json::from_str::<Value>(arguments) {
            Ok(value) => plain(&value),
            Err(_) => arguments.trim().to_owned(),
        };
        self.call(id, text(function, "name"), &arguments);
    }

    fn call(&mut self, id: Option<&str>, name: Option<&str>, arguments: &str) {
        self.field("call", id.unwrap_or_default());
        self.field("named", name.unwrap_or_default());
        self.field("with", arguments);
    }
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// One spelling of a value: keys in order, whole numbers without a point, hashes for the
/// bytes of files, and nothing that is volatile.
fn plain(value: &Value) -> String {
    let mut out = String::new();
    write_plain(value, None, &mut out);
    out
}

fn write_plain(value: &Value, key: Option<&str>, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> = members
                .iter()
                .filter(|(key, value)| !VOLATILE.contains(&key.as_str()) && !value.is_null())
                .collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (key, value) in members {
                out.push_str(&icecore::formats::json::quote(key));
                out.push(':');
                write_plain(value, Some(key), out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_plain(item, key, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::String(text) => {
            let hash = media::placeholder(key, text);
            out.push_str(&icecore::formats::json::quote(hash.as_deref().unwrap_or(text)));
        }
        Value::Number(number) => {
            // Some write a whole number with a point, and some without.
            let whole = number.as_f64().filter(|number| number.fract() == 0.0);
            match whole.filter(|number| number.abs() < 9e15) {
                Some(whole) => out.push_str(&(whole as i64).to_string()),
                None => out.push_str(&number.to_string()),
            }
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn same(one: Value, other: Value) {
        assert_eq!(form(&one), form(&other), "{one} and {other}");
    }

    fn differ(one: Value, other: Value) {
        assert_ne!(form(&one), form(&other), "{one} and {other}");
    }

    #[test]
    fn spellings_of_one_message_are_the_same() {
        same(
            json!({"role": "user", "content": "hi"}),
            json!({"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}),
        );
        same(
            json!({"role": "assistant", "content": "done. \n"}),
            json!({"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "text", "text": "do", "citations": []}, {"type": "text", "text": "ne."}]}),
        );
        let call = |arguments: &str| json!([{"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}]);
        same(
            json!({"role": "assistant", "content": null, "refusal": null, "annotations": [], "audio": null,
                "function_call": null, "id": "m-1", "tool_calls": call(r#"{"b": 1.0, "a": [2]}"#)}),
            json!({"role": "assistant", "content": "", "tool_calls": call(r#"{"a":[2],"b":1}"#)}),
        );
        same(
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1, "b": 2}}]}),
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"b": 2, "a": 1}, "caller": {"type": "direct"}}]}),
        );
        same(
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "42"}]}),
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": false, "content": [{"type": "text", "text": "42\n"}]}]}),
        );
        let image = |url: String| json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]});
        let data = "QUJD".repeat(100);
        same(
            image(format!("data:image/png;base64,{data}")),
            image(format!("data:image/png;base64,{data}")),
        );
        differ(
            image(format!("data:image/png;base64,{data}")),
            image(format!("data:image/png;base64,{}", data.replace('Q', "R"))),
        );
    }

    #[test]
    fn other_messages_are_others() {
        let said = |text: &str| json!({"role": "user", "content": text});
        differ(said("hi"), said("ho"));
        differ(said("hi"), said(" hi"));
        differ(said("hi"), json!({"role": "assistant", "content": "hi"}));
        differ(said("hi"), json!({"role": "user", "content": "hi", "name": "Ana"}));
        differ(
            json!({"role": "tool", "tool_call_id": "a", "content": "x"}),
            json!({"role": "tool", "tool_call_id": "b", "content": "x"}),
        );
        let call = |id: &str, arguments: &str| json!({"role": "assistant", "tool_calls": [{"id": id, "function": {"name": "f", "arguments": arguments}}]});
        differ(call("c", "{}"), call("d", "{}"));
        differ(call("c", "{\"a\":1}"), call("c", "{\"a\":2}"));
        // No length runs over into the next.
        differ(
            json!({"role": "user", "name": "ab", "content": "c"}),
            json!({"role": "user", "name": "a", "content": "bc"}),
        );
    }
}
