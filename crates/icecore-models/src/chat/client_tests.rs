use std::sync::{Arc, Mutex};
use std::time::Duration;

use icecore_domain::chat::{
    ChatError, ChatModel as _, ChatReply, ChatRequest, Finish, Protocol, Usage,
};
use icecore_domain::redact::Redactor;
use icecore_domain::turn::{Content, RawTurn};

use super::{ChatClient, ChatClientConfig, ChatClientError, discover_local};
use crate::endpoint::ApiKey;
use crate::testing::{Behaviour, BehaviourBy, OverflowForm, ServerKind, Upstream, UpstreamConfig};

const BOTH: [Protocol; 2] = [Protocol::OpenAi, Protocol::Anthropic];
const KEY: &str = "a-key-for-tests";

fn turn(role: &str, text: &str) -> RawTurn {
    RawTurn { role: role.to_owned(), content: Content::Text(text.to_owned()), ..RawTurn::default() }
}

fn request(turns: &[RawTurn], max_tokens: u64) -> ChatRequest {
    let redactor = Redactor::standard();
    let messages = turns.iter().map(|turn| redactor.turn(turn.clone())).collect();
    ChatRequest { messages, tools: None, max_tokens }
}

fn hello() -> ChatRequest {
    request(&[turn("system", "Be brief."), turn("user", "Hello?")], 100)
}

async fn start(protocol: Protocol) -> Upstream {
    Upstream::start(UpstreamConfig { protocol, ..UpstreamConfig::default() }).await
}

/// What came of asking, and the pieces that were heard.
async fn asked(
    config: ChatClientConfig,
    request: &ChatRequest,
) -> (Result<ChatReply, ChatError>, Vec<String>) {
    let client = ChatClient::new(config).unwrap();
    let pieces = Mutex::new(Vec::new());
    let tell = |piece: &str| pieces.lock().unwrap().push(piece.to_owned());
    let reply = client.answer(request, &tell).await;
    (reply, pieces.into_inner().unwrap())
}

async fn error_of(upstream: &Upstream) -> ChatError {
    asked(upstream.client_config(), &hello()).await.0.unwrap_err()
}

#[tokio::test]
async fn an_answer_comes_in_pieces_and_with_its_counts() {
    for protocol in BOTH {
        let upstream = start(protocol).await;
        upstream.push(Behaviour::Answer("Grüße, and well met — 你好.".to_owned()));
        let (reply, pieces) = asked(upstream.client_config(), &hello()).await;
        let reply = reply.unwrap();
        assert_eq!(reply.text, "Grüße, and well met — 你好.");
        assert_eq!(reply.finish, Finish::Stop);
        assert!(pieces.len() > 2, "{pieces:?}");
        assert_eq!(pieces.concat(), reply.text);
        let seen = upstream.requests();
        let usage = reply.usage.unwrap();
        assert_eq!((usage.input, usage.cached_input), (seen[0].tokens, 0));
        assert!(usage.output > 0);

        // What was read before is told, and is a part of what was read.
        let more = request(
            &[
                turn("system", "Be brief."),
                turn("user", "Hello?"),
                turn("assistant", "Yes."),
                turn("user", "Go on."),
            ],
            100,
        );
        let again = asked(upstream.client_config(), &more).await.0.unwrap();
        let usage = again.usage.unwrap();
        assert_eq!(usage.cached_input, seen[0].tokens);
        assert_eq!(usage.input, upstream.requests()[1].tokens);
    }
}

#[tokio::test]
async fn tools_are_called_with_all_their_arguments() {
    for protocol in BOTH {
        let upstream = start(protocol).await;
        let call = |id: &str, name: &str, arguments: &str| {
            (id.to_owned(), name.to_owned(), arguments.to_owned())
        };
        upstream.push(Behaviour::CallTools(vec![
            call("c1", "read", r#"{"path":"ä.txt"}"#),
            call("c2", "list", "{}"),
        ]));
        let reply = asked(upstream.client_config(), &hello()).await.0.unwrap();
        assert_eq!(reply.finish, Finish::ToolCalls);
        assert_eq!(
            reply.tool_calls.unwrap().as_str(),
            r#"[{"id":"c1","type":"function","function":{"name":"read","arguments":"{\"path\":\"ä.txt\"}"}},{"id":"c2","type":"function","function":{"name":"list","arguments":"{}"}}]"#
        );
    }
}

#[tokio::test]
async fn a_server_decides_by_the_request_when_it_was_not_told() {
    for protocol in BOTH {
        let otherwise: BehaviourBy = Arc::new(|request| {
            if request.text().contains("look") {
                Behaviour::SayAndCall(
                    "I look.".to_owned(),
                    vec![("c1".to_owned(), "read".to_owned(), "{}".to_owned())],
                )
            } else {
                Behaviour::Answer("Nothing to look at.".to_owned())
            }
        });
        let config = UpstreamConfig { protocol, otherwise: Some(otherwise), ..Default::default() };
        let upstream = Upstream::start(config).await;
        let ask = async |text: &str| {
            asked(upstream.client_config(), &request(&[turn("user", text)], 100)).await.0.unwrap()
        };
        assert_eq!(ask("Hello?").await.text, "Nothing to look at.");
        let looked = ask("Please look.").await;
        assert_eq!((looked.text.as_str(), looked.finish), ("I look.", Finish::ToolCalls));
        assert!(looked.tool_calls.is_some());
        upstream.push(Behaviour::Answer("As told.".to_owned()));
        assert_eq!(ask("Please look.").await.text, "As told.");
    }
}

#[tokio::test]
async fn an_answer_in_one_piece_or_under_another_type_is_read_too() {
    for protocol in BOTH {
        let upstream = start(protocol).await;
        upstream.push_all([
            Behaviour::Whole("All at once.".to_owned()),
            Behaviour::WrongType("As a stream.".to_owned(), "text/plain"),
            Behaviour::WithoutUsage("Not counted.".to_owned()),
        ]);
        let (whole, pieces) = asked(upstream.client_config(), &hello()).await;
        assert_eq!(whole.unwrap().text, "All at once.");
        assert_eq!(pieces, ["All at once."]);
        let plain = asked(upstream.client_config(), &hello()).await.0.unwrap();
        assert_eq!(plain.text, "As a stream.");
        assert_eq!(asked(upstream.client_config(), &hello()).await.0.unwrap().usage, None);
    }
}

#[tokio::test]
async fn ends_are_told_apart() {
    for protocol in BOTH {
        let upstream = start(protocol).await;
        upstream.push_all([
            Behaviour::Length("Half of".to_owned()),
            Behaviour::Filtered,
            Behaviour::Empty,
            Behaviour::LieAboutUsage(
                "x".to_owned(),
                Usage { input: 1, cached_input: 9, output: 7 },
            ),
        ]);
        let ask = async || asked(upstream.client_config(), &hello()).await.0.unwrap();
        assert_eq!(ask().await.finish, Finish::Length);
        assert_eq!(ask().await.finish, Finish::Filtered);
        let empty = ask().await;
        assert_eq!((empty.text.as_str(), empty.finish), ("", Finish::Stop));
        assert_eq!(ask().await.usage.unwrap().output, 7, "a lie is passed on; others judge it");
    }
}

#[tokio::test]
async fn an_end_that_is_not_known_breaks_the_answer_off() {
    for (protocol, word) in [
        (Protocol::OpenAi, "error"),
        (Protocol::OpenAi, "insufficient_system_resource"),
        (Protocol::OpenAi, "abort"),
        (Protocol::Anthropic, "pause_turn"),
    ] {
        let upstream = start(protocol).await;
        upstream.push(Behaviour::EndWith("Half of".to_owned(), word));
        let error = error_of(&upstream).await;
        assert!(
            matches!(&error, ChatError::CutOff { partial, reason, .. }
                if partial == "Half of" && reason.contains(word)),
            "{error}"
        );
    }
    for word in ["STOP", "eos", "end_turn"] {
        let upstream = start(Protocol::OpenAi).await;
        upstream.push(Behaviour::EndWith("All.".to_owned(), word));
        let reply = asked(upstream.client_config(), &hello()).await.0.unwrap();
        assert_eq!((reply.text.as_str(), reply.finish), ("All.", Finish::Stop));
    }
}

#[tokio::test]
async fn the_newer_name_for_tokens_is_learned_once() {
    let config = UpstreamConfig { is_newer: true, ..UpstreamConfig::default() };
    let upstream = Upstream::start(config).await;
    let client = ChatClient::new(upstream.client_config()).unwrap();
    for requests in [2, 3] {
        client.answer(&hello(), &|_| ()).await.unwrap();
        assert_eq!(upstream.request_count(), requests);
    }
    assert_eq!(upstream.requests()[2].json["max_completion_tokens"], 100);
}

#[tokio::test]
async fn the_words_of_every_server_for_a_full_window_are_known() {
    let long = request(&[turn("user", &"one two three ".repeat(600))], 50);
    for protocol in BOTH {
        for overflow in OverflowForm::ALL {
            let config = UpstreamConfig { protocol, window: 1_000, overflow, ..Default::default() };
            let upstream = Upstream::start(config).await;
            let error = asked(upstream.client_config(), &long).await.0.unwrap_err();
            let ChatError::Overflow { limit, partial, .. } = &error else {
                panic!("{overflow:?}: {error}")
            };
            assert!(limit.is_none_or(|limit| limit == 1_000), "{overflow:?}");
            assert_eq!(partial, "");
            assert_eq!(upstream.request_count(), 1, "it is not asked again");

            upstream.push(Behaviour::OverflowAfter("Some words".to_owned()));
            let error = error_of(&upstream).await;
            assert!(
                matches!(&error, ChatError::Overflow { partial, .. } if partial == "Some words"),
                "{overflow:?}: {error}"
            );
        }
    }
}

#[tokio::test]
async fn a_window_that_fills_up_under_an_answer_is_an_overflow() {
    for protocol in BOTH {
        let upstream = start(protocol).await;
        upstream.push_all([
            Behaviour::WindowFull("Words".to_owned()),
            Behaviour::Length(String::new()),
        ]);
        let full = error_of(&upstream).await;
        assert!(matches!(&full, ChatError::Overflow { partial, .. } if partial == "Words"));
        assert!(matches!(error_of(&upstream).await, ChatError::Overflow { .. }));

        // As llama.cpp does: it takes the request, and ends where the window does.
        let config = UpstreamConfig {
            protocol,
            window: 60,
            counts_answer: false,
            ..UpstreamConfig::default()
        };
        let upstream = Upstream::start(config).await;
        upstream.push_all(std::iter::repeat_n(Behaviour::Answer("one two ".repeat(90)), 2));
        let full = error_of(&upstream).await;
        assert!(
            matches!(&full, ChatError::Overflow { partial, .. } if partial.starts_with("one two")),
            "{full}"
        );
        let mut brief = hello();
        brief.max_tokens = 3;
        let reply = asked(upstream.client_config(), &brief).await.0.unwrap();
        assert_eq!(reply.finish, Finish::Length, "it had what it was given");
    }
}

#[tokio::test]
async fn what_may_pass_is_asked_again() {
    for protocol in BOTH {
        let upstream = start(protocol).await;
        upstream.push_all([
            Behaviour::Busy { retry_after: Some("0".to_owned()) },
            Behaviour::Fail(503),
            Behaviour::HangUp,
        ]);
        let reply = asked(upstream.client_config(), &hello()).await.0.unwrap();
        assert_eq!(reply.text, "Understood. I will go on.");
        let requests = upstream.requests();
        assert_eq!(requests.len(), 4);
        assert!(requests.iter().all(|request| request.body == requests[0].body));
    }
}

#[tokio::test]
async fn retries_end_with_their_number() {
    let upstream = start(Protocol::OpenAi).await;
    upstream.push_all(std::iter::repeat_n(Behaviour::Fail(500), 9));
    let error = error_of(&upstream).await;
    assert!(matches!(&error, ChatError::Unavailable { reason, .. } if reason.contains("500")));
    assert_eq!(upstream.request_count(), 4, "once, and three times again");
}

#[tokio::test]
async fn a_wait_beyond_the_timeout_is_told_and_not_waited() {
    let upstream = start(Protocol::OpenAi).await;
    upstream.push(Behaviour::Busy { retry_after: Some("3600".to_owned()) });
    let busy = ChatError::Busy {
        model: "scripted".to_owned(),
        retry_after: Some(Duration::from_secs(3600)),
    };
    assert_eq!(error_of(&upstream).await, busy);
    assert_eq!(upstream.request_count(), 1);
}

#[tokio::test]
async fn a_long_wait_is_told_and_not_waited() {
    let upstream = start(Protocol::OpenAi).await;
    let wait = super::client::LONGEST_WAIT + Duration::from_secs(1);
    upstream.push(Behaviour::Busy { retry_after: Some(wait.as_secs().to_string()) });
    let config = ChatClientConfig { timeout: wait * 10, ..upstream.client_config() };
    let busy = ChatError::Busy { model: "scripted".to_owned(), retry_after: Some(wait) };
    assert_eq!(asked(config, &hello()).await.0, Err(busy));
    assert_eq!(upstream.request_count(), 1);
}

#[tokio::test]
async fn what_was_told_is_never_told_twice() {
    for protocol in BOTH {
        let upstream = start(protocol).await;
        upstream.push_all([
            Behaviour::CutOff("Some".to_owned()),
            Behaviour::EndEarly("Some".to_owned()),
            Behaviour::ErrorAfter("Some".to_owned()),
        ]);
        for count in 1..=3 {
            let (reply, pieces) = asked(upstream.client_config(), &hello()).await;
            let error = reply.unwrap_err();
            assert!(
                matches!(&error, ChatError::CutOff { partial, .. } if partial == "Some"),
                "{error}"
            );
            assert_eq!(pieces.concat(), "Some");
            assert_eq!(upstream.request_count(), count);
        }
    }
}

#[tokio::test]
async fn nothing_told_may_be_asked_again_after_a_broken_stream() {
    for protocol in BOTH {
        let upstream = start(protocol).await;
        let broken = [Behaviour::CutOff(String::new()), Behaviour::ErrorAfter(String::new())];
        upstream.push_all(broken);
        assert!(asked(upstream.client_config(), &hello()).await.0.is_ok());
        assert_eq!(upstream.request_count(), 3);
    }
}

#[tokio::test]
async fn what_is_no_answer_is_refused() {
    for protocol in BOTH {
        let upstream = start(protocol).await;
        upstream.push_all([
            Behaviour::MalformedStream("Some".to_owned()),
            Behaviour::MalformedJson,
            Behaviour::Html,
            Behaviour::Endless,
        ]);
        for _ in 0..4 {
            let error = error_of(&upstream).await;
            assert!(matches!(error, ChatError::Malformed { .. }), "{error}");
        }
        assert_eq!(upstream.request_count(), 4);
    }
}

#[tokio::test]
async fn silence_ends_in_time() {
    for protocol in BOTH {
        let upstream = start(protocol).await;
        upstream.push_all([Behaviour::Stall, Behaviour::StallAfter("Some".to_owned())]);
        let config =
            ChatClientConfig { idle: Duration::from_millis(200), ..upstream.client_config() };
        let error = asked(config.clone(), &hello()).await.0.unwrap_err();
        assert!(matches!(error, ChatError::Unavailable { .. }), "{error}");
        let error = asked(config, &hello()).await.0.unwrap_err();
        assert!(matches!(&error, ChatError::CutOff { partial, .. } if partial == "Some"));
        assert_eq!(upstream.request_count(), 2, "silence is not asked again");
    }
}

#[tokio::test]
async fn an_answer_that_trickles_ends_with_the_whole_time() {
    let upstream = start(Protocol::OpenAi).await;
    let text = "word ".repeat(10_000);
    upstream.push(Behaviour::Slow(text, Duration::from_millis(50)));
    let config =
        ChatClientConfig { timeout: Duration::from_millis(600), ..upstream.client_config() };
    let mut hello = hello();
    hello.max_tokens = 20_000;
    let error = asked(config, &hello).await.0.unwrap_err();
    assert!(matches!(&error, ChatError::CutOff { partial, .. } if partial.starts_with("word")));
}

#[tokio::test]
async fn dropping_the_answer_ends_the_request() {
    let upstream = start(Protocol::OpenAi).await;
    upstream.push(Behaviour::StallAfter("Some".to_owned()));
    let client = ChatClient::new(upstream.client_config()).unwrap();
    let (told, heard) = tokio::sync::oneshot::channel();
    let told = Mutex::new(Some(told));
    let hello = hello();
    let tell = |_: &str| {
        told.lock().unwrap().take().map(|told| told.send(()));
    };
    tokio::select! {
        reply = client.answer(&hello, &tell) => panic!("{reply:?}"),
        _ = heard => {}
    }
    drop(client);
    while upstream.given_up() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn refusals_name_their_reason_and_never_the_key() {
    for protocol in BOTH {
        let config = UpstreamConfig {
            protocol,
            models: vec!["known".to_owned()],
            key: Some("another".to_owned()),
            ..UpstreamConfig::default()
        };
        let upstream = Upstream::start(config).await;
        let mut config = upstream.client_config();
        let error = asked(config.clone(), &hello()).await.0.unwrap_err();
        assert!(matches!(error, ChatError::Denied { .. }), "without a key: {error}");

        config.api_key = Some(ApiKey::new(KEY));
        let client = ChatClient::new(config.clone()).unwrap();
        let error = client.answer(&hello(), &|_| ()).await.unwrap_err();
        assert!(matches!(error, ChatError::Denied { .. }), "{error}");
        for shown in [format!("{error}"), format!("{error:?}"), format!("{client:?}")] {
            assert!(!shown.contains(KEY), "{shown}");
        }

        // Longer than what is told of a server's words.
        let long = "k".repeat(300);
        let config_of_long =
            ChatClientConfig { api_key: Some(ApiKey::new(&*long)), ..config.clone() };
        let error = asked(config_of_long, &hello()).await.0.unwrap_err();
        assert!(!error.to_string().contains("kkk"), "{error}");

        config.api_key = Some(ApiKey::new("another"));
        config.model = "unknown".to_owned();
        let error = asked(config.clone(), &hello()).await.0.unwrap_err();
        assert!(matches!(error, ChatError::UnknownModel { .. }), "{error}");
        config.model = "known".to_owned();
        assert!(asked(config, &hello()).await.0.is_ok());
        assert_eq!(upstream.request_count(), 5, "none of it is asked again");
    }
}

#[tokio::test]
async fn a_key_does_not_follow_to_another_server() {
    let elsewhere = start(Protocol::OpenAi).await;
    let upstream = start(Protocol::OpenAi).await;
    upstream.push(Behaviour::Redirect(format!("{}/chat/completions", elsewhere.url())));
    let error = error_of(&upstream).await;
    assert!(matches!(error, ChatError::Refused { .. }), "{error}");
    assert_eq!(elsewhere.request_count(), 0);
}

#[tokio::test]
async fn a_server_that_is_down_is_told() {
    let upstream = start(Protocol::OpenAi).await;
    let config = upstream.client_config();
    drop(upstream);
    // The port is free once the server's task has ended.
    while tokio::net::TcpStream::connect(&config.base_url[7..config.base_url.len() - 3])
        .await
        .is_ok()
    {
        tokio::task::yield_now().await;
    }
    let error = asked(config, &hello()).await.0.unwrap_err();
    assert!(matches!(&error, ChatError::Unavailable { reason, .. } if reason.contains("nobody")));
}

#[tokio::test]
async fn the_key_goes_where_the_protocol_has_it() {
    for (protocol, name, value) in [
        (Protocol::OpenAi, "authorization", "Bearer a-key-for-tests"),
        (Protocol::Anthropic, "x-api-key", KEY),
    ] {
        let upstream = start(protocol).await;
        let config =
            ChatClientConfig { api_key: Some(ApiKey::new(KEY)), ..upstream.client_config() };
        asked(config, &hello()).await.0.unwrap();
        let request = &upstream.requests()[0];
        assert_eq!(request.header(name), Some(value));
        let version = request.header("anthropic-version");
        assert_eq!(version.is_some(), protocol == Protocol::Anthropic);
    }
}

#[test]
fn what_cannot_work_is_refused_before_it_is_tried() {
    let good = ChatClientConfig::new(Protocol::OpenAi, "http://127.0.0.1:1/v1", "m");
    let refused = |change: fn(&mut ChatClientConfig)| {
        let mut config = good.clone();
        change(&mut config);
        ChatClient::new(config).unwrap_err()
    };
    let address = refused(|config| config.base_url = "127.0.0.1:1".to_owned());
    assert!(matches!(address, ChatClientError::Address { .. }));
    let named = refused(|config| config.base_url = "http://me:pass@x/v1".to_owned());
    assert!(matches!(named, ChatClientError::Credentials { .. }));
    assert!(!named.to_string().contains("pass@"));
    let key = refused(|config| config.api_key = Some(ApiKey::new("two\nlines")));
    assert!(matches!(key, ChatClientError::Key { .. }));
    let window = refused(|config| config.window = Some(0));
    assert!(matches!(window, ChatClientError::Zero { setting: "window", .. }));
    let reserve = refused(|config| config.window = Some(config.reserve));
    assert!(matches!(reserve, ChatClientError::Reserve { .. }));
    assert!(ChatClient::new(good).is_ok());
}

#[test]
fn a_declared_window_wins_over_what_is_known() {
    let window = |model: &str, declared: Option<u64>| {
        let mut config = ChatClientConfig::new(Protocol::OpenAi, "http://127.0.0.1:1/v1", model);
        config.window = declared;
        ChatClient::new(config).unwrap().profile().window
    };
    assert_eq!(window("gpt-4o", None), 128_000);
    assert_eq!(window("gpt-4o", Some(30_000)), 30_000);
    assert_eq!(window("nobody-knows", None), super::UNKNOWN_WINDOW);
}

#[test]
fn an_identity_is_of_server_protocol_and_model() {
    let identity = |protocol, url: &str, model: &str| {
        let mut config = ChatClientConfig::new(protocol, url, model);
        config.window = Some(4_096);
        ChatClient::new(config).unwrap().profile().identity
    };
    let one = identity(Protocol::OpenAi, "http://127.0.0.1:1/v1", "m");
    assert_eq!(one, identity(Protocol::OpenAi, "http://127.0.0.1:1/v1/", "m"));
    assert_ne!(one, identity(Protocol::Anthropic, "http://127.0.0.1:1/v1", "m"));
    assert_ne!(one, identity(Protocol::OpenAi, "http://127.0.0.1:2/v1", "m"));
    assert_ne!(one, identity(Protocol::OpenAi, "http://127.0.0.1:1/v1", "n"));
}

#[tokio::test]
async fn servers_on_this_machine_are_found_with_their_windows() {
    for kind in [ServerKind::LlamaCpp, ServerKind::Ollama] {
        let models = vec!["nomic-embed-text".to_owned(), "small-talker".to_owned()];
        let config = UpstreamConfig { window: 2_048, kind, models, ..UpstreamConfig::default() };
        let upstream = Upstream::start(config).await;
        let nobody = "http://127.0.0.1:1".to_owned();
        let found = discover_local(&[nobody.clone(), upstream.root()]).await.unwrap();
        assert_eq!(found.model, "small-talker");
        assert_eq!((found.window, found.reserve), (Some(2_048), 512));
        assert_eq!(found.base_url, upstream.url());
        assert!(asked(found, &hello()).await.0.is_ok());
        assert!(discover_local(&[nobody, "no address".to_owned()]).await.is_none());
    }
}
