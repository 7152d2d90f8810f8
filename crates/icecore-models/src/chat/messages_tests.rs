//! That no server refuses a conversation for its shape, whatever clients have put in it.

use icecore_domain::chat::{ChatRequest, Protocol};
use icecore_domain::json::JsonText;
use icecore_domain::redact::{RedactedTurn, Redactor};
use icecore_domain::turn::{Content, RawTurn};
use serde_json::{Value, json};

use super::openai::AnswerTokens;
use super::{anthropic, openai};
use crate::testing::shape;

const BOTH: [Protocol; 2] = [Protocol::OpenAi, Protocol::Anthropic];

fn turn(turn: &Value) -> RedactedTurn {
    let json = |key: &str| {
        let value = turn.get(key).filter(|value| !value.is_null());
        value.map(|value| JsonText::parse(&value.to_string()).unwrap())
    };
    let text = |key: &str| turn.get(key).and_then(Value::as_str).map(str::to_owned);
    let content = match &turn["content"] {
        Value::String(text) => Content::Text(text.clone()),
        Value::Null => Content::Null,
        _ => Content::Parts(json("content").unwrap()),
    };
    Redactor::standard().turn(RawTurn {
        role: text("role").unwrap(),
        content,
        name: text("name"),
        tool_calls: json("toolCalls"),
        tool_call_id: text("toolCallId"),
        extra: json("function_call")
            .map(|call| ("function_call".to_owned(), call))
            .into_iter()
            .collect(),
        ..RawTurn::default()
    })
}

fn body(protocol: Protocol, messages: &[RedactedTurn]) -> Value {
    let request = ChatRequest { messages: messages.to_vec(), tools: None, max_tokens: 64 };
    let body = match protocol {
        Protocol::OpenAi => openai::body("m", &request, AnswerTokens::Max),
        Protocol::Anthropic => anthropic::body("m", &request, true),
    };
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// The messages of turns, which no server may refuse.
fn messages(protocol: Protocol, turns: &[Value]) -> Value {
    let turns: Vec<RedactedTurn> = turns.iter().map(turn).collect();
    let body = body(protocol, &turns);
    assert_eq!(shape::wrong(protocol, &body), None, "{body}");
    body["messages"].clone()
}

fn said(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn calling(id: &str) -> Value {
    let call = json!({"id": id, "type": "function", "function": {"name": "ls", "arguments": "{}"}});
    json!({"role": "assistant", "content": null, "toolCalls": [call]})
}

fn result(id: &str, text: &str) -> Value {
    json!({"role": "tool", "content": text, "toolCallId": id})
}

/// Turns as clients have been seen, or could be feared, to send them.
fn odd_turns() -> Vec<Value> {
    let used = |id: &str| json!({"type": "tool_use", "id": id, "name": "ls", "input": {"p": 1}});
    vec![
        said("user", "Also this."),
        said("user", " "),
        said("assistant", "Done."),
        said("assistant", ""),
        said("model", "By another name."),
        said("system", "A reminder."),
        said("function", "42"),
        said("tool", ""),
        calling("c1"),
        calling("a call/1:ü"),
        result("c1", "here"),
        result("a call/1:ü", "there"),
        json!({"role": "assistant", "content": "So:", "toolCalls": [{"name": "ls", "arguments": {"p": 2}}, {"id": 7}]}),
        json!({"role": "assistant", "content": null, "toolCalls": []}),
        json!({"role": "assistant", "content": null, "toolCalls": {"id": "c1", "name": "ls", "input": ""}}),
        json!({"role": "assistant", "content": null, "function_call": {"name": "ls", "arguments": "{}"}}),
        json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, used("c1"), used("c2")]}),
        json!({"role": "assistant", "content": [{"type": "reasoning", "summary": []}, {"type": "output_text", "text": "x", "annotations": []}, {"type": "function_call", "id": "fc", "call_id": "c2", "name": "ls", "arguments": "no json"}]}),
        json!({"role": "assistant", "content": [used("c1")], "toolCalls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": {"p": 1}}}]}),
        json!({"role": "assistant", "content": [{"type": "thinking", "thinking": "unsealed"}]}),
        json!({"role": "user", "content": [{"type": "text", "text": "And?"}, {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "x"}, {"type": "input_audio"}]}]}),
        json!({"role": "user", "content": [{"type": "function_call_output", "call_id": "c2", "output": "y"}]}),
        json!({"role": "user", "content": [{"type": "input_text", "text": "Hi"}, {"type": "image_url", "image_url": "data:image/png;base64,AAAA"}, {"type": "image"}, {"type": "file"}]}),
        json!({"role": "user", "content": {"type": "text", "text": "alone"}}),
        json!({"role": "user", "content": []}),
        json!({"role": "user", "content": [used("c3"), 7, null, "plain"]}),
        json!({"role": "tool", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}], "toolCallId": "c1"}),
        json!({"role": "system", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}], "toolCalls": [{"id": "c1"}]}),
    ]
}

#[test]
fn no_order_of_turns_is_refused() {
    let turns: Vec<RedactedTurn> = odd_turns().iter().map(turn).collect();
    let opening = turn(&said("user", "Begin."));
    for first in &turns {
        for second in &turns {
            for third in &turns {
                let asked = [opening.clone(), first.clone(), second.clone(), third.clone()];
                for protocol in BOTH {
                    let body = body(protocol, &asked);
                    let wrong = shape::wrong(protocol, &body);
                    assert_eq!(wrong, None, "{asked:?} is {body}");
                }
            }
        }
    }
}

#[test]
fn results_stand_directly_behind_their_calls() {
    let turns = [said("user", "Go."), calling("c1"), said("user", "Also X."), result("c1", "a b")];
    let call =
        json!({"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}});
    assert_eq!(
        messages(Protocol::OpenAi, &turns),
        json!([
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "content": "a b", "tool_call_id": "c1"},
            {"role": "user", "content": "Also X."},
        ])
    );
    let last = json!({"type": "text", "text": "Also X.", "cache_control": {"type": "ephemeral"}});
    assert_eq!(
        messages(Protocol::Anthropic, &turns),
        json!([
            {"role": "user", "content": [{"type": "text", "text": "Go."}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "ls", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": "a b"}, last]},
        ])
    );
}

#[test]
fn a_call_without_a_result_gets_one_and_a_result_without_a_call_is_told() {
    for protocol in BOTH {
        let given_up = [said("user", "Go."), calling("c1"), said("user", "Never mind.")];
        let shown = messages(protocol, &given_up).to_string();
        assert!(shown.contains("(No result of this call is known.)"), "{shown}");
        let at_the_end = messages(protocol, &given_up[..2]).to_string();
        assert!(at_the_end.contains("(No result of this call is known.)"), "{at_the_end}");

        let stray = [said("user", "Go."), result("c9", "a b"), said("assistant", "So be it.")];
        let shown = messages(protocol, &stray).to_string();
        assert!(shown.contains("its call is not here.)\\na b"), "{shown}");
        assert!(!shown.contains("c9"), "{shown}");
    }
}

#[test]
fn ids_that_come_again_or_not_at_all_still_pair() {
    let nameless = json!({"role": "assistant", "content": null, "toolCalls": [{"name": "cat"}]});
    let turns = [
        said("user", "Go."),
        calling("0"),
        result("0", "first"),
        calling("0"),
        result("0", "second"),
        nameless,
        said("tool", "third"),
    ];
    let openai = messages(Protocol::OpenAi, &turns);
    let results: Vec<(&str, &str)> = openai
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| {
            (message["tool_call_id"].as_str().unwrap(), message["content"].as_str().unwrap())
        })
        .collect();
    assert_eq!(results, [("0", "first"), ("0-2", "second"), ("call-3", "third")]);
    messages(Protocol::Anthropic, &turns);
}

#[test]
fn whoever_is_nobody_we_know_is_a_model() {
    for role in ["model", "bot", "ai", "Assistant"] {
        for protocol in BOTH {
            let shown = messages(protocol, &[said("user", "Hi"), said(role, "Hello.")]);
            assert_eq!(shown[1]["role"], "assistant", "{role}");
        }
    }
}

#[test]
fn what_real_servers_refuse_is_refused() {
    let wrong = |protocol, messages: Value| {
        shape::wrong(protocol, &json!({"messages": messages})).is_some()
    };
    let hi = || said("user", "Hi");
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let asked = || json!({"role": "assistant", "content": null, "tool_calls": [call.clone()]});
    let told = || json!({"role": "tool", "content": "x", "tool_call_id": "c"});
    assert!(!wrong(Protocol::OpenAi, json!([hi(), asked(), told(), hi()])));
    for messages in [
        json!([]),
        json!([hi(), asked()]),
        json!([hi(), asked(), hi(), told()]),
        json!([hi(), told()]),
        json!([said("model", "x")]),
        json!([{"role": "user", "content": []}]),
        json!([{"role": "user", "content": null}]),
        json!([{"role": "assistant", "content": null, "tool_calls": []}]),
        json!([{"role": "tool", "content": "x"}]),
        json!([{"role": "user", "content": {"type": "text", "text": "x"}}]),
    ] {
        assert!(wrong(Protocol::OpenAi, messages.clone()), "{messages}");
    }
    let used = || json!({"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]});
    let result = json!({"type": "tool_result", "tool_use_id": "c", "content": "x"});
    let text = json!({"type": "text", "text": "x"});
    let results = || json!({"role": "user", "content": [result.clone(), text.clone()]});
    assert!(!wrong(Protocol::Anthropic, json!([hi(), used(), results()])));
    for messages in [
        json!([]),
        json!([said("assistant", "x")]),
        json!([hi(), used()]),
        json!([hi(), used(), hi()]),
        json!([hi(), results()]),
        json!([hi(), used(), {"role": "user", "content": [text, result]}]),
        json!([said("user", " ")]),
        json!([{"role": "user", "content": [{"type": "text", "text": ""}]}]),
        json!([{"role": "user", "content": [{"type": "input_text", "text": "x"}]}]),
        json!([hi(), {"role": "assistant", "content": [{"type": "tool_use", "id": "a b", "name": "f", "input": {}}]}]),
    ] {
        assert!(wrong(Protocol::Anthropic, messages.clone()), "{messages}");
    }
}
