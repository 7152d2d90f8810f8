//! The proxy and the memory behind it: long histories that fit, and what is kept of them.

use std::sync::Arc;
use std::time::Duration;

use icecore::Memory;
use icecore::models::Protocol;
use icecore_models::testing::{Behaviour, Upstream, UpstreamConfig};
use icecore_server::{Limits, ServerOptions};
use serde_json::{Value, json};

use crate::client::{Answer, Host};
use crate::proxy::{
    BOTH, Bench, Canned, assistant, body_of, given, host_of, route, session_of, stream, to, turns,
    user,
};

/// A system prompt, tools and messages, as a client of the protocol sends them.
fn long_body(protocol: Protocol, messages: &[Value]) -> String {
    let system = "You are a careful guide. Never leave the marked path.";
    let mut body = json!({"model": "scripted", "max_tokens": 200, "stream": true});
    match protocol {
        Protocol::OpenAi => {
            let lead = json!({"role": "system", "content": system, "x-odd": 1});
            let all: Vec<Value> = std::iter::once(lead).chain(messages.iter().cloned()).collect();
            body["messages"] = json!(all);
            body["tools"] = json!([{"type": "function", "function": {"name": "ls", "parameters": {"z": 1, "a": 2}}}]);
        }
        Protocol::Anthropic => {
            body["system"] = json!([{"type": "text", "text": system}]);
            body["messages"] = json!(messages);
            body["tools"] = json!([{"name": "ls", "input_schema": {"z": 1, "a": 2}}]);
        }
    }
    body.to_string()
}

/// Words about one thing, enough to fill a window in a while.
fn told(n: usize) -> String {
    format!(
        "Point {n}: the glacier near hut {} moved {} metres, and we wrote it down with care. ",
        n * 7 % 31,
        n + 3
    )
    .repeat(4)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_never_overflows_and_keeps_prompt_tools_and_tail() {
    for protocol in BOTH {
        let config = UpstreamConfig { protocol, window: 3_000, ..UpstreamConfig::default() };
        let bench = Bench::with(config, |options| options.proxy.window = Some(3_000)).await;
        let mut messages = Vec::new();
        let (mut compactions, mut session) = (0, None);
        for n in 0..40 {
            messages.push(user(&told(n)));
            let body = long_body(protocol, &messages);
            let answer = bench.ask(&body).await;
            assert_eq!(answer.status, 200, "{n}: {answer:?}");
            compactions += usize::from(answer.header("x-icecore-compaction").is_some());
            let named = session_of(&answer);
            assert_eq!(*session.get_or_insert(named.clone()), named, "{n}");
            let sent = bench.upstream.requests().pop().unwrap();
            let text = String::from_utf8(sent.body.clone()).unwrap();
            // All around the messages, and the last of them, byte for byte.
            let asked: Value = serde_json::from_str(&body).unwrap();
            let last = messages.last().unwrap().to_string();
            assert!(
                text.contains(&format!(",{last}]")) || text.contains(&format!("[{last}]")),
                "{n}: {text}"
            );
            assert!(text.contains(&asked["tools"].to_string()), "{n}");
            match protocol {
                Protocol::OpenAi => assert_eq!(sent.json["messages"][0], asked["messages"][0]),
                Protocol::Anthropic => assert_eq!(sent.json["system"], asked["system"]),
            }
            let array = |text: &str| {
                let (before, rest) = text.split_once("\"messages\":[").unwrap();
                (before.to_owned(), rest.rsplit_once(']').unwrap().1.to_owned())
            };
            assert_eq!(array(&text), array(&body), "{n}");
            messages.push(assistant("Understood. I will go on."));
        }
        assert!(compactions >= 2, "{compactions}");
        let kept = bench.turns(&session.unwrap()).await;
        assert_eq!(kept.len(), 80, "nothing of it is lost");
        bench.host.stop().await;
    }
}

/// A history of so many exchanges, kept exchange by exchange.
async fn converse(bench: &Bench, exchanges: usize) -> (Vec<Value>, String) {
    let mut messages = Vec::new();
    let mut session = String::new();
    for n in 0..exchanges {
        messages.push(user(&told(n)));
        let answer = bench.ask(&body_of(bench.protocol, &messages, true)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        session = session_of(&answer);
        messages.push(assistant("Understood. I will go on."));
    }
    (messages, session)
}

fn is_ordinary(answer: &Answer) -> bool {
    answer.status == 200 && answer.text.contains("\"I will\"") || answer.text.contains("Underst")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overflow_before_the_first_byte_is_one_ordinary_answer() {
    for protocol in BOTH {
        for is_stream in [false, true] {
            let bench = Bench::new(protocol).await;
            let (mut messages, session) = converse(&bench, 12).await;
            messages.push(user("and what now?"));
            bench.upstream.forget_requests();
            bench.upstream.push(Behaviour::Overflow);
            let headers = [("Idempotency-Key", "k-1")];
            let body = body_of(protocol, &messages, is_stream);
            let answer = bench.ask_with(&headers, &body).await.0;
            assert!(is_ordinary(&answer), "{answer:?}");
            assert_eq!(session_of(&answer), session);
            assert!(answer.header("x-icecore-compaction").is_some(), "{answer:?}");
            let sent = bench.upstream.requests();
            assert_eq!(sent.len(), 2);
            assert!(sent[1].body.len() < sent[0].body.len());
            // A key stands for one body.
            assert_eq!(sent[0].header("idempotency-key"), Some("k-1"));
            assert_eq!(sent[1].header("idempotency-key"), None);
            assert_eq!(sent[1].messages().last(), messages.last());
            // It still goes on in one session, with one answer.
            messages.extend([assistant("Understood. I will go on."), user("more")]);
            let next = bench.ask(&body_of(protocol, &messages, is_stream)).await;
            assert_eq!(next.header("x-icecore-following"), Some("continues"));
            assert_eq!(session_of(&next), session);
            bench.host.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overflow_in_the_first_event_is_one_ordinary_answer() {
    let error = r#"data: {"error":{"message":"This model's maximum context length is 900 tokens. However, you requested 1200 tokens","code":"context_length_exceeded"}}"#;
    let done = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Yes.\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let answers = vec![Canned::events(&format!(": wait\n\n{error}\n\n")), Canned::events(done)];
    let canned = Canned::start(answers).await;
    let dir = tempfile::tempdir().unwrap();
    let memory = crate::place::open(Memory::builder(), dir.path()).await;
    let host = host_of(memory, dir.path(), to(&canned.url, given())).await;
    let mut messages = Vec::new();
    for n in 0..10 {
        messages.extend([user(&told(n)), assistant("Noted.")]);
    }
    messages.push(user("well?"));
    let body = body_of(Protocol::OpenAi, &messages, true);
    let (answer, is_whole) = stream(&host, route(Protocol::OpenAi), &[], &body).await;
    assert!(is_whole);
    assert_eq!((answer.status, answer.text.as_str()), (200, done), "{answer:?}");
    assert!(answer.header("x-icecore-compaction").is_some());
    let kept = turns(&host, &session_of(&answer)).await;
    assert_eq!((kept.len(), &kept[21]["content"]), (22, &json!("Yes.")));
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_always_overflows_is_asked_three_times_and_heard() {
    let bench = Bench::new(Protocol::OpenAi).await;
    let (mut messages, _) = converse(&bench, 12).await;
    messages.push(user("and what now?"));
    bench.upstream.forget_requests();
    bench.upstream.push_all(vec![Behaviour::Overflow; 5]);
    let answer = bench.ask(&body_of(Protocol::OpenAi, &messages, true)).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "context_length_exceeded");
    assert!(bench.upstream.request_count() <= 3, "{}", bench.upstream.request_count());
    bench.host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overflow_after_the_first_byte_keeps_what_came_and_passes_on() {
    for protocol in BOTH {
        let bench = Bench::new(protocol).await;
        bench.upstream.push(Behaviour::OverflowAfter("So far so".to_owned()));
        let answer = bench.ask(&body_of(protocol, &[user("tell me all")], true)).await;
        assert_eq!(answer.status, 200);
        assert!(answer.text.contains("\"error\""), "{answer:?}");
        let kept = bench.turns(&session_of(&answer)).await;
        assert_eq!(kept.len(), 2, "{kept:?}");
        assert!(kept[1]["content"].to_string().contains("So far so"), "{kept:?}");
        assert_eq!(
            (&kept[1]["tags"], &kept[1]["interrupted"]),
            (&json!(["partial"]), &json!("overflow"))
        );
        bench.host.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_floor_beyond_the_window_is_refused_as_the_provider_would_and_nothing_is_lost() {
    for protocol in BOTH {
        let config = UpstreamConfig { protocol, ..UpstreamConfig::default() };
        let bench = Bench::with(config, |options| options.proxy.window = Some(600)).await;
        let (messages, session) = ([user("hello")], "s");
        let headers = [("X-Icecore-Session", session)];
        let (first, _) = bench.ask_with(&headers, &body_of(protocol, &messages, true)).await;
        assert_eq!(first.status, 200);
        let huge = told(1).repeat(40);
        let messages = [user("hello"), assistant("Understood. I will go on."), user(&huge)];
        let (answer, _) = bench.ask_with(&headers, &body_of(protocol, &messages, true)).await;
        let error = answer.json()["error"].clone();
        assert_eq!(
            (answer.status, error["type"].as_str()),
            (400, Some("invalid_request_error")),
            "{answer:?}"
        );
        let message = error["message"].as_str().unwrap();
        match protocol {
            Protocol::OpenAi => {
                assert_eq!(
                    (&error["code"], &error["param"]),
                    (&json!("context_length_exceeded"), &json!("messages"))
                );
            }
            Protocol::Anthropic => {
                assert_eq!(answer.json()["type"], "error");
                assert!(message.starts_with("prompt is too long: "), "{message}");
            }
        }
        assert!(message.contains("nothing was sent"), "{message}");
        assert_eq!(bench.upstream.request_count(), 1, "the second was not sent");
        let kept = bench.turns(session).await;
        assert_eq!((kept.len(), &kept[2]["content"]), (3, &json!(huge)));
        bench.host.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_and_two_who_begin_alike() {
    let bench = Bench::new(Protocol::OpenAi).await;
    let body = body_of(Protocol::OpenAi, &[user("hello")], false);
    bench.upstream.push(Behaviour::Fail(500));
    let (failed, _) = bench.ask_with(&[], &body).await;
    assert_eq!(failed.status, 500);
    // An official client says that it asks the same once more.
    let (again, _) = bench.ask_with(&[("x-stainless-retry-count", "1")], &body).await;
    assert_eq!(session_of(&again), session_of(&failed));
    assert_eq!(bench.turns(&session_of(&again)).await.len(), 2);
    // Two people who both begin with "hello" are two.
    let (other, _) = bench.ask_with(&[], &body).await;
    assert_ne!(session_of(&other), session_of(&again));
    assert_eq!(other.header("x-icecore-following"), Some("begins"));
    bench.host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_history_forks() {
    let answers = Arc::new(|request: &icecore_models::testing::UpstreamRequest| {
        format!("Answer to {}", request.messages().len())
    });
    let bench =
        Bench::with(UpstreamConfig { answer: answers, ..UpstreamConfig::default() }, |_| ()).await;
    let protocol = Protocol::OpenAi;
    let mut messages = vec![user("one")];
    let first = bench.ask(&body_of(protocol, &messages, true)).await;
    messages.extend([assistant("Answer to 1"), user("two")]);
    bench.ask(&body_of(protocol, &messages, true)).await;
    messages[2] = user("two, said otherwise");
    let forked = bench.ask(&body_of(protocol, &messages, true)).await;
    assert_eq!(forked.header("x-icecore-following"), Some("forks"));
    assert_eq!(session_of(&forked), session_of(&first));
    let view = bench.host.get(&format!("/sessions/{}/view", session_of(&first))).await.json();
    let said: Vec<&str> = view["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["content"].as_str().unwrap())
        .collect();
    assert_eq!(said, ["one", "Answer to 1", "two, said otherwise", "Answer to 3"]);
    bench.host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_turn_that_comes_again_stays_forgotten_and_the_request_works() {
    let bench = Bench::new(Protocol::OpenAi).await;
    let named = |text: &str| json!({"role": "user", "content": text, "name": "Ana"});
    let mut messages = vec![named("My plum cake recipe is a family matter.")];
    let first = bench.ask(&body_of(Protocol::OpenAi, &messages, true)).await;
    let session = session_of(&first);
    messages.extend([assistant("Understood. I will go on."), user("go on then")]);
    bench.ask(&body_of(Protocol::OpenAi, &messages, true)).await;
    let receipt = bench.host.post("/forget", r#"{"subject":"Ana"}"#).await.json();
    assert_eq!(receipt["erased"]["turns"], 1, "{receipt}");
    messages.extend([assistant("Understood. I will go on."), user("and now?")]);
    let again = bench.ask(&body_of(Protocol::OpenAi, &messages, true)).await;
    assert_eq!((again.status, session_of(&again)), (200, session.clone()));
    assert_eq!(again.header("x-icecore-following"), Some("continues"));
    let sent = bench.upstream.requests().pop().unwrap();
    assert!(String::from_utf8(sent.body).unwrap().contains("plum cake"), "it still goes upstream");
    let kept = json!(bench.turns(&session).await).to_string();
    assert!(!kept.contains("plum cake"), "{kept}");
    assert!(kept.contains("and now?"));
    bench.host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn most_of_a_request_is_the_beginning_of_the_last() {
    let upstream = UpstreamConfig { window: 3_000, ..UpstreamConfig::default() };
    let bench = Bench::with(upstream, |options| options.proxy.window = Some(3_000)).await;
    let (mut messages, mut previous) = (Vec::new(), Vec::new());
    let (mut shared, mut all) = (0, 0);
    for n in 0..30 {
        messages.push(user(&told(n)));
        let answer = bench.ask(&body_of(Protocol::OpenAi, &messages, true)).await;
        let sent = bench.upstream.requests().pop().unwrap();
        let now: Vec<String> = sent.messages().iter().map(Value::to_string).collect();
        let is_compacted = answer.header("x-icecore-compaction").is_some();
        if !is_compacted && n > 0 {
            let same = now.iter().zip(&previous).take_while(|(a, b)| a == b).count();
            shared += same;
            all += previous.len();
            assert_eq!(same, previous.len(), "{n}: the beginning stays");
        }
        previous = now;
        messages.push(assistant("Understood. I will go on."));
    }
    assert!(all > 0 && shared == all);
    bench.host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_session_decides() {
    let bench = Bench::new(Protocol::OpenAi).await;
    let body = body_of(Protocol::OpenAi, &[user("hello")], false);
    for _ in 0..2 {
        let (answer, _) = bench.ask_with(&[("X-Icecore-Session", "mine")], &body).await;
        assert_eq!(session_of(&answer), "mine");
    }
    let (bad, _) = bench.ask_with(&[("X-Icecore-Memory", &"x".repeat(600))], &body).await;
    assert_eq!(bad.status, 400, "{bad:?}");
    assert!(bad.json()["error"]["message"].as_str().unwrap().contains("X-Icecore-Memory"));
    bench.host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn recall_stands_right_before_the_request_and_stays_there() {
    let bench =
        Bench::with(UpstreamConfig::default(), |options| options.proxy.recall_tokens = 300).await;
    let protocol = Protocol::OpenAi;
    // Another conversation knows something.
    let known = "The spare key of the mountain hut hangs behind the blue barometer.";
    bench.ask(&body_of(protocol, &[user(known)], false)).await;
    bench.host.settled().await;
    let mut messages = vec![user("Where does the spare key of the mountain hut hang?")];
    let mut previous: Vec<Value> = Vec::new();
    for n in 0..3 {
        let answer = bench.ask(&body_of(protocol, &messages, n == 1)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let sent = bench.upstream.requests().pop().unwrap();
        let now = sent.messages().to_vec();
        assert!(now[0].to_string().contains("blue barometer"), "{n}: {now:?}");
        assert_eq!((&now[0]["role"], &now[1]), (&json!("user"), &messages[0]), "{n}");
        assert_eq!(now[..previous.len()], previous[..], "{n}: the beginning stays");
        assert_eq!(now.last(), messages.last(), "{n}");
        previous = now;
        messages.extend([assistant("Understood. I will go on."), user(&format!("and then {n}?"))]);
    }
    // What memory put there is no turn of the session.
    let kept = bench.host.get("/sessions").await.json();
    let kept: u64 =
        kept["sessions"].as_array().unwrap().iter().map(|one| one["turns"].as_u64().unwrap()).sum();
    assert_eq!(kept, 2 + 6);
    bench.host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_our_own_distiller_spends_is_told_apart() {
    let reply: icecore_models::testing::AnswerBy =
        Arc::new(|_| "## Goal\n- Cross the glacier.\n## State\n- At the hut.\n".to_owned());
    let distiller =
        Upstream::start(UpstreamConfig { answer: reply, ..UpstreamConfig::default() }).await;
    let client = icecore_models::ChatClient::new(distiller.client_config()).unwrap();
    let models = icecore::models::Models {
        handoffs: icecore::models::ModelChain(vec![Arc::new(client)]),
        ..icecore::models::Models::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let memory = crate::place::open(Memory::builder().models(models), dir.path()).await;
    let upstream = Upstream::start(UpstreamConfig::default()).await;
    let host = host_of(memory, dir.path(), to(&upstream.url(), given())).await;
    let mut messages = Vec::new();
    for n in 0..10 {
        messages.extend([user(&told(n)), assistant("Noted.")]);
    }
    messages.push(user("well?"));
    upstream.push(Behaviour::Overflow);
    let body = body_of(Protocol::OpenAi, &messages, true);
    let (answer, _) = stream(&host, route(Protocol::OpenAi), &[], &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(distiller.request_count() > 0);
    let spent = answer.header("x-icecore-distillation-tokens").unwrap();
    let input = spent.strip_prefix("input=").and_then(|rest| rest.split_once(", output="));
    let (input, output) = input.unwrap();
    assert!(input.parse::<u64>().unwrap() > 100 && output.parse::<u64>().unwrap() > 5, "{spent}");
    host.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_distiller_has_its_own_time_and_no_place() {
    for seconds in [60, 1] {
        let distiller = Upstream::start(UpstreamConfig::default()).await;
        distiller.push(match seconds {
            1 => Behaviour::Stall,
            // Longer than a request of ours may take.
            _ => Behaviour::Slow("- At the hut. ".repeat(20), Duration::from_millis(60)),
        });
        let client = icecore_models::ChatClient::new(distiller.client_config()).unwrap();
        let models = icecore::models::Models {
            handoffs: icecore::models::ModelChain(vec![Arc::new(client)]),
            ..icecore::models::Models::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let memory = crate::place::open(Memory::builder().models(models), dir.path()).await;
        let upstream = Upstream::start(UpstreamConfig::default()).await;
        let mut proxy = to(&upstream.url(), given());
        (proxy.window, proxy.compaction_seconds) = (Some(700), seconds);
        let limits = Limits { request_seconds: 1, concurrent_requests: 1, ..Limits::default() };
        let options = ServerOptions { proxy, limits, ..ServerOptions::default() };
        let host = Host::optioned("127.0.0.1:0", memory.into(), dir.path(), options).await;
        let mut messages = Vec::new();
        for n in 0..10 {
            messages.extend([user(&told(n)), assistant("Noted.")]);
        }
        messages.push(user("well?"));
        let body = body_of(Protocol::OpenAi, &messages, true);
        let headers = [("X-Icecore-Session", "slow")];
        let asked = stream(&host, route(Protocol::OpenAi), &headers, &body);
        let meanwhile = async {
            while distiller.request_count() == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            host.get("/sessions").await
        };
        let ((answer, _), meanwhile) = tokio::join!(asked, meanwhile);
        assert_eq!(meanwhile.status, 200, "{meanwhile:?}");
        let is_slow = seconds == 1;
        let expected = if is_slow { 504 } else { 200 };
        assert_eq!(answer.status, expected, "{answer:?}");
        assert_eq!(answer.header("x-icecore-compaction").is_some(), !is_slow);
        assert_eq!(upstream.request_count(), usize::from(!is_slow));
        if is_slow {
            let error = answer.json()["error"].clone();
            assert_eq!(error["code"], "compaction_timeout");
            assert!(error["message"].as_str().unwrap().contains("proxy.compaction_seconds"));
        }
        let kept = turns(&host, "slow").await;
        assert_eq!(kept.len(), if is_slow { 21 } else { 22 }, "nothing is lost");
        host.stop().await;
    }
}
