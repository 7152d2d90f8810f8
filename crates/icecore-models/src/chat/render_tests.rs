use icecore_domain::chat::ChatRequest;
use icecore_domain::json::JsonText;
use icecore_domain::redact::Redactor;
use icecore_domain::turn::{Content, RawTurn};

use super::openai::AnswerTokens;
use super::{anthropic, openai};

fn json(text: &str) -> JsonText {
    JsonText::parse(text).unwrap()
}

fn turn(role: &str, content: Content) -> RawTurn {
    RawTurn { role: role.to_owned(), content, ..RawTurn::default() }
}

fn said(role: &str, text: &str) -> RawTurn {
    turn(role, Content::Text(text.to_owned()))
}

fn parts(role: &str, text: &str) -> RawTurn {
    turn(role, Content::Parts(json(text)))
}

fn request(turns: &[RawTurn]) -> ChatRequest {
    let redactor = Redactor::standard();
    let tools = redactor.redacted_json(&json(r#"[{"name":"ls"}]"#));
    let messages = turns.iter().map(|turn| redactor.turn(turn.clone())).collect();
    ChatRequest { messages, tools: Some(tools), max_tokens: 64 }
}

/// A conversation with all that may be in one, in both providers' forms.
fn conversation() -> Vec<RawTurn> {
    vec![
        said("system", "Be brief."),
        said("developer", "Use tabs."),
        RawTurn { name: Some("ada".to_owned()), ..said("user", "List \"it\".\n") },
        RawTurn {
            tool_calls: Some(json(
                r#"[{"id":"c1","type":"function","function":{"name":"ls","arguments":"{\"p\": 1.50}"}}]"#,
            )),
            ..turn("assistant", Content::Null)
        },
        RawTurn { tool_call_id: Some("c1".to_owned()), ..said("tool", "a b") },
        RawTurn {
            tool_calls: Some(json(r#"[{"id":"c2","name":"cat","arguments":{"p":"a"}}]"#)),
            ..said("assistant", "Now:")
        },
        RawTurn { tool_call_id: Some("c2".to_owned()), ..said("tool", "") },
        said("assistant", "Done."),
        RawTurn { name: Some("not a name".to_owned()), ..said("user", "Look") },
        parts(
            "user",
            r#"[{"type":"text","text":"here"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]"#,
        ),
        parts(
            "assistant",
            r#"[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"I see."},{"type":"tool_use","id":"c3","name":"ls","input":{"q":2.0}}]"#,
        ),
        parts(
            "user",
            r#"[{"type":"tool_result","tool_use_id":"c3","content":[{"type":"text","text":"x"}]},{"type":"text","text":"And?"}]"#,
        ),
        said("assistant", ""),
        said("system", "A reminder."),
    ]
}

#[test]
fn openai_is_written_as_it_wants_it() {
    let body = openai::body("m", &request(&conversation()), AnswerTokens::Max);
    serde_json::from_str::<serde_json::Value>(&body).unwrap();
    assert_eq!(
        body.replace("},{\"role\"", "},\n{\"role\""),
        r#"{"model":"m","tools":[{"name":"ls"}],"messages":[{"role":"system","content":"Be brief."},
{"role":"system","content":"Use tabs."},
{"role":"user","content":"List \"it\".\n","name":"ada"},
{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"ls","arguments":"{\"p\": 1.50}"}}]},
{"role":"tool","content":"a b","tool_call_id":"c1"},
{"role":"assistant","content":"Now:","tool_calls":[{"id":"c2","type":"function","function":{"name":"cat","arguments":"{\"p\":\"a\"}"}}]},
{"role":"tool","content":"","tool_call_id":"c2"},
{"role":"assistant","content":"Done."},
{"role":"user","content":"Look"},
{"role":"user","content":[{"type":"text","text":"here"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},
{"role":"assistant","content":[{"type":"text","text":"I see."}],"tool_calls":[{"id":"c3","type":"function","function":{"name":"ls","arguments":"{\"q\":2.0}"}}]},
{"role":"tool","content":"x","tool_call_id":"c3"},
{"role":"user","content":[{"type":"text","text":"And?"}]},
{"role":"assistant","content":""},
{"role":"system","content":"A reminder."}],"max_tokens":64,"stream":true,"stream_options":{"include_usage":true}}"#
    );
}

#[test]
fn anthropic_is_written_as_it_wants_it() {
    let body = anthropic::body("m", &request(&conversation()), true);
    serde_json::from_str::<serde_json::Value>(&body).unwrap();
    assert_eq!(
        body.replace("},{\"role\"", "},\n{\"role\""),
        r#"{"model":"m","tools":[{"name":"ls"}],"system":[{"type":"text","text":"Be brief."},{"type":"text","text":"Use tabs.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"List \"it\".\n"}]},
{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"ls","input":{"p": 1.50}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"a b"}]},
{"role":"assistant","content":[{"type":"text","text":"Now:"},{"type":"tool_use","id":"c2","name":"cat","input":{"p":"a"}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"c2","content":""}]},
{"role":"assistant","content":[{"type":"text","text":"Done."}]},
{"role":"user","content":[{"type":"text","text":"Look"},{"type":"text","text":"here"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]},
{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"I see."},{"type":"tool_use","id":"c3","name":"ls","input":{"q":2.0}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"c3","content":[{"type":"text","text":"x"}]},{"type":"text","text":"And?"},{"type":"text","text":"A reminder.","cache_control":{"type":"ephemeral"}}]}],"max_tokens":64,"stream":true}"#
    );
}

/// What a body has before its messages end.
fn head(body: &str) -> &str {
    let end = body.rfind("],\"max_tokens\"").unwrap();
    body[..end].trim_end_matches([']', '}'])
}

#[test]
fn a_longer_conversation_begins_with_the_bytes_of_a_shorter_one() {
    let turns = conversation();
    // The system prompt does not grow, and a call without its result gets another one.
    let is_open = |count: &usize| [4, 6, 11].contains(count);
    for count in (3..turns.len()).filter(|count| !is_open(count)) {
        for longer in count + 1..=turns.len() {
            let (short, long) = (request(&turns[..count]), request(&turns[..longer]));
            let openai = |request: &ChatRequest| openai::body("m", request, AnswerTokens::Max);
            let anthropic = |request: &ChatRequest| anthropic::body("m", request, false);
            assert!(openai(&long).starts_with(head(&openai(&short))), "{count} of {longer}");
            assert!(anthropic(&long).starts_with(head(&anthropic(&short))), "{count} of {longer}");
        }
    }
}

#[test]
fn only_the_mark_for_the_cache_moves() {
    let turns = conversation();
    let mark = ",\"cache_control\":{\"type\":\"ephemeral\"}";
    for count in 3..=turns.len() {
        let body = anthropic::body("m", &request(&turns[..count]), true);
        assert_eq!(body.matches(mark).count(), 2, "{count}");
        let plain = anthropic::body("m", &request(&turns[..count]), false);
        assert_eq!(body.replace(mark, ""), plain);
    }
}

#[test]
fn the_mark_is_kept_from_thoughts_and_not_from_talk_of_them() {
    let body = anthropic::body("m", &request(&[said("user", "He said \"thinking\"")]), true);
    assert!(body.contains("thinking\\\"\",\"cache_control\""), "{body}");
    let thought = r#"[{"type":"thinking","thinking":"hm","signature":"s"}]"#;
    let turns = [said("user", "Hi"), parts("assistant", thought)];
    let body = anthropic::body("m", &request(&turns), true);
    assert!(body.contains(r#"[{"type":"text","text":"Hi","cache_control":"#), "{body}");
    assert!(!body.contains("hm"), "no message is a thought alone: {body}");
}

#[test]
fn anthropic_gets_a_user_first_and_no_blank_text() {
    let turns = [said("assistant", "Hello."), said("user", "  "), parts("user", "[]")];
    let body = anthropic::body("m", &request(&turns), false);
    assert!(body.contains(
        r#""messages":[{"role":"user","content":[{"type":"text","text":"(The conversation begins.)"}]},{"role":"assistant","content":[{"type":"text","text":"Hello."}]}],"#
    ), "{body}");
}

#[test]
fn odd_contents_do_no_harm() {
    for content in
        ["{}", "[1,null,\"a\",[]]", "\"text\"", "7", r#"[{"type":7}]"#, "{\"text\":\"a\"}"]
    {
        for role in ["user", "assistant", "tool", "", "function"] {
            let mut odd = parts(role, content);
            odd.tool_calls = Some(json(content));
            odd.tool_call_id = Some("\"".to_owned());
            let request = request(&[odd]);
            for body in [
                openai::body("m", &request, AnswerTokens::MaxCompletion),
                anthropic::body("m", &request, true),
            ] {
                serde_json::from_str::<serde_json::Value>(&body).unwrap();
            }
        }
    }
}
