//! Answers in the words of either protocol.

use icecore_domain::chat::{Protocol, Usage};
use serde_json::{Value, json};

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Stop,
    Length,
    Tools,
    Filtered,
    WindowFull,
    /// In another word.
    Word(&'static str),
}

impl End {
    fn word(self, protocol: Protocol) -> &'static str {
        match (self, protocol) {
            (End::Stop, Protocol::OpenAi) => "stop",
            (End::Stop, Protocol::Anthropic) => "end_turn",
            (End::Length, Protocol::OpenAi) => "length",
            (End::Length, Protocol::Anthropic) => "max_tokens",
            (End::Tools, Protocol::OpenAi) => "tool_calls",
            (End::Tools, Protocol::Anthropic) => "tool_use",
            (End::Filtered, Protocol::OpenAi) => "content_filter",
            (End::Filtered, Protocol::Anthropic) => "refusal",
            (End::Word(word), _) => word,
            (End::WindowFull, _) => "model_context_window_exceeded",
        }
    }
}

/// An answer before it is spelled.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) pieces: Vec<String>,
    pub(super) calls: Vec<(String, String, String)>,
    pub(super) end: End,
    pub(super) usage: Option<Usage>,
}

fn event(protocol: Protocol, data: &Value) -> String {
    match protocol {
        Protocol::OpenAi => format!("data: {data}\n\n"),
        Protocol::Anthropic => {
            let name = data.get("type").and_then(Value::as_str).unwrap_or("message");
            format!("event: {name}\ndata: {data}\n\n")
        }
    }
}

/// An error within a stream.
pub(super) fn error_event(protocol: Protocol, body: &Value) -> String {
    // A list around an error is a form for whole bodies.
    let body = body.get(0).unwrap_or(body);
    match protocol {
        Protocol::OpenAi => event(protocol, body),
        Protocol::Anthropic => format!("event: error\ndata: {body}\n\n"),
    }
}

impl Answer {
    /// Whether Anthropic's form has a block of text: one of nothing would be refused when
    /// it comes back, so an answer of calls alone has none.
    fn has_text_block(&self) -> bool {
        !self.pieces.is_empty() || self.calls.is_empty()
    }
}

/// What a stream begins with.
pub(super) fn beginning(protocol: Protocol, answer: &Answer) -> String {
    match protocol {
        Protocol::OpenAi => event(
            protocol,
            &json!({"id": "c-1", "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]}),
        ),
        Protocol::Anthropic => {
            let mut message =
                json!({"id": "m-1", "type": "message", "role": "assistant", "content": []});
            if let Some(usage) = answer.usage {
                message["usage"] = anthropic_usage(Usage { output: 1, ..usage });
            }
            let mut text = event(protocol, &json!({"type": "message_start", "message": message}));
            if answer.has_text_block() {
                text.push_str(&event(
                    protocol,
                    &json!({"type": "content_block_start", "index": 0,
                    "content_block": {"type": "text", "text": ""}}),
                ));
            }
            text.push_str(&event(protocol, &json!({"type": "ping"})));
            text
        }
    }
}

/// One piece of text.
pub(super) fn piece(protocol: Protocol, text: &str) -> String {
    match protocol {
        Protocol::OpenAi => event(
            protocol,
            &json!({"id": "c-1", "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]}),
        ),
        Protocol::Anthropic => event(
            protocol,
            &json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": text}}),
        ),
    }
}

/// What comes after the text.
pub(super) fn ending(protocol: Protocol, answer: &Answer) -> String {
    let mut text = String::new();
    let mut add = |data: Value| text.push_str(&event(protocol, &data));
    let word = answer.end.word(protocol);
    match protocol {
        Protocol::OpenAi => {
            for (at, (id, name, arguments)) in answer.calls.iter().enumerate() {
                let (first, second) = halves(arguments);
                let delta = |call: Value| json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": null}]});
                add(delta(json!({"index": at, "id": id, "type": "function",
                    "function": {"name": name, "arguments": first}})));
                add(delta(json!({"index": at, "function": {"arguments": second}})));
            }
            add(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": word}]}));
            if let Some(usage) = answer.usage {
                add(json!({"choices": [], "usage": openai_usage(usage)}));
            }
            text.push_str("data: [DONE]\n\n");
        }
        Protocol::Anthropic => {
            let before = usize::from(answer.has_text_block());
            if answer.has_text_block() {
                add(json!({"type": "content_block_stop", "index": 0}));
            }
            for (at, (id, name, arguments)) in answer.calls.iter().enumerate() {
                let (at, (first, second)) = (at + before, halves(arguments));
                add(json!({"type": "content_block_start", "index": at,
                    "content_block": {"type": "tool_use", "id": id, "name": name, "input": {}}}));
                for half in [first, second] {
                    add(json!({"type": "content_block_delta", "index": at,
                        "delta": {"type": "input_json_delta", "partial_json": half}}));
                }
                add(json!({"type": "content_block_stop", "index": at}));
            }
            let mut delta = json!({"type": "message_delta", "delta": {"stop_reason": word}});
            if let Some(usage) = answer.usage {
                delta["usage"] = json!({"output_tokens": usage.output});
            }
            add(delta);
            add(json!({"type": "message_stop"}));
        }
    }
    text
}

/// The answer in one piece.
pub(super) fn whole(protocol: Protocol, answer: &Answer) -> Value {
    let (text, word) = (answer.pieces.concat(), answer.end.word(protocol));
    match protocol {
        Protocol::OpenAi => {
            let mut message = json!({"role": "assistant", "content": text});
            if !answer.calls.is_empty() {
                let call = |(id, name, arguments): &(String, String, String)| {
                    json!({"id": id, "type": "function",
                        "function": {"name": name, "arguments": arguments}})
                };
                message["tool_calls"] = answer.calls.iter().map(call).collect();
                if text.is_empty() {
                    message["content"] = Value::Null;
                }
            }
            let mut body = json!({"id": "c-1", "object": "chat.completion", "choices": [
                {"index": 0, "message": message, "finish_reason": word}]});
            if let Some(usage) = answer.usage {
                body["usage"] = openai_usage(usage);
            }
            body
        }
        Protocol::Anthropic => {
            let mut content = Vec::new();
            if answer.has_text_block() {
                content.push(json!({"type": "text", "text": text}));
            }
            for (id, name, arguments) in &answer.calls {
                let input: Value = serde_json::from_str(arguments).unwrap_or_default();
                content.push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
            }
            let mut body = json!({"id": "m-1", "type": "message", "role": "assistant",
                "content": content, "stop_reason": word});
            if let Some(usage) = answer.usage {
                body["usage"] = anthropic_usage(usage);
            }
            body
        }
    }
}

fn openai_usage(usage: Usage) -> Value {
    json!({"prompt_tokens": usage.input, "completion_tokens": usage.output,
        "total_tokens": usage.input.saturating_add(usage.output),
        "prompt_tokens_details": {"cached_tokens": usage.cached_input}})
}

fn anthropic_usage(usage: Usage) -> Value {
    json!({"input_tokens": usage.input.saturating_sub(usage.cached_input),
        "cache_read_input_tokens": usage.cached_input, "cache_creation_input_tokens": 0,
        "output_tokens": usage.output})
}

fn halves(text: &str) -> (&str, &str) {
    text.split_at(text.floor_char_boundary(text.len() / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calling(pieces: &[&str]) -> Answer {
        let call = |id: &str| (id.to_owned(), "read".to_owned(), r#"{"n":1}"#.to_owned());
        Answer {
            pieces: pieces.iter().map(|&piece| piece.to_owned()).collect(),
            calls: vec![call("c1"), call("c2")],
            end: End::Tools,
            usage: None,
        }
    }

    #[test]
    fn a_whole_answer_has_its_calls() {
        let openai = whole(Protocol::OpenAi, &calling(&["I ", "look."]));
        let message = &openai["choices"][0]["message"];
        assert_eq!(message["content"], "I look.");
        assert_eq!(message["tool_calls"][1]["function"]["arguments"], r#"{"n":1}"#);
        let silent = whole(Protocol::OpenAi, &calling(&[]));
        assert_eq!(silent["choices"][0]["message"]["content"], Value::Null);

        let anthropic = whole(Protocol::Anthropic, &calling(&["I look."]));
        assert_eq!(anthropic["content"][0]["text"], "I look.");
        assert_eq!(anthropic["content"][2]["input"], json!({"n": 1}));
        let silent = whole(Protocol::Anthropic, &calling(&[]));
        assert_eq!(silent["content"][0]["id"], "c1");
    }

    #[test]
    fn a_stream_of_calls_alone_has_no_block_of_text() {
        let streamed = |answer: &Answer| {
            beginning(Protocol::Anthropic, answer) + &ending(Protocol::Anthropic, answer)
        };
        let silent = streamed(&calling(&[]));
        assert!(!silent.contains(r#""type":"text""#), "{silent}");
        let places = |text: &str, at: usize| text.matches(&format!(r#""index":{at}"#)).count();
        assert_eq!([0, 1, 2].map(|at| places(&silent, at)), [4, 4, 0]);
        let said = streamed(&calling(&["I look."]));
        assert_eq!([0, 1, 2].map(|at| places(&said, at)), [2, 4, 4]);
    }
}
