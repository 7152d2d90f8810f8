//! Requests to a model over HTTP, with a session as its memory.

use std::sync::{Arc, Mutex};

use icecore::formats::json::JsonText;
use icecore::models::{ChatError, ChatModel, Protocol, Usage};
use icecore::sessions::{
    CompactRequest, ExchangeRequest, Exchanged, HANDOFF_MARK, HandoffTrigger, RECALL_MARK,
};
use icecore::{MemoryError, RawTurn};
use icecore_models::ChatClient;
use icecore_models::testing::{Behaviour, OverflowForm, Upstream, UpstreamConfig};

use crate::handoffs::{conversation, work};
use crate::support::{Bench, text};

fn client(upstream: &Upstream) -> Arc<dyn ChatModel> {
    Arc::new(ChatClient::new(upstream.client_config()).unwrap())
}

fn asking(model: &Arc<dyn ChatModel>, content: &str) -> ExchangeRequest {
    ExchangeRequest {
        session: "s".to_owned(),
        branch: None,
        turns: vec![RawTurn::new("user", content)],
        tools: None,
        reminder: None,
        model: Arc::clone(model),
    }
}

async fn exchange(
    bench: &Bench,
    model: &Arc<dyn ChatModel>,
    content: &str,
) -> Result<Exchanged, MemoryError> {
    bench.memory.exchange(&bench.scope, &asking(model, content), &|_| ()).await
}

async fn texts(bench: &Bench) -> Vec<String> {
    let view = bench.memory.view(&bench.scope, "s", None).await.unwrap();
    view.messages.iter().map(text).collect()
}

#[tokio::test]
async fn an_answer_is_told_as_it_comes_and_remembered() {
    for protocol in [Protocol::OpenAi, Protocol::Anthropic] {
        let bench = Bench::new().await;
        let upstream =
            Upstream::start(UpstreamConfig { protocol, ..UpstreamConfig::default() }).await;
        let model = client(&upstream);
        upstream.push(Behaviour::Answer("The probe reported 439 metres.".to_owned()));
        let told = Mutex::new(String::new());
        let tell = |piece: &str| told.lock().unwrap().push_str(piece);
        let request = asking(&model, "What did the probe report?");
        let done = bench.memory.exchange(&bench.scope, &request, &tell).await.unwrap();
        assert_eq!(done.reply.text, "The probe reported 439 metres.");
        assert_eq!(*told.lock().unwrap(), done.reply.text);
        assert_eq!(done.compactions, []);
        let view = bench.memory.view(&bench.scope, "s", None).await.unwrap();
        let answer = view.messages[1].turn.as_ref().unwrap().fields();
        assert_eq!(
            (answer.role.as_str(), answer.model.as_deref()),
            ("assistant", Some("scripted"))
        );
        let session = icecore::extend::store(&bench.memory)
            .sessions(&bench.scope, None, 1)
            .await
            .unwrap()
            .remove(0);
        let name = &model.profile().name;
        let usage = icecore::extend::store(&bench.memory)
            .usage(&bench.scope, session.no, session.current, name);
        let usage = usage.await.unwrap().unwrap();
        assert_eq!((usage.through.0, usage.handoff), (1, None));
        assert!(usage.tokens > 0 && usage.counted > 0);
        // It goes on where it was.
        exchange(&bench, &model, "And then?").await.unwrap();
        assert_eq!(upstream.requests()[1].messages().len(), 3);
        assert_eq!(session.branches.len(), 1);
        assert_eq!(texts(&bench).await.len(), 4);
    }
}

#[tokio::test]
async fn a_request_is_reminded_of_what_was_said_elsewhere() {
    let bench = Bench::new().await;
    let said = |content: &str| vec![RawTurn::new("user", content)];
    let memory = &bench.memory;
    memory
        .remember(&bench.scope, "trip", said("The ferry to Naxos leaves at 7:40."))
        .await
        .unwrap();
    memory.remember(&bench.scope, "s", said("The ferry is blue, is it not?")).await.unwrap();
    let upstream = Upstream::start(UpstreamConfig::default()).await;
    let model = client(&upstream);
    let question = "When does the ferry to Naxos leave?";
    let reminder = memory.reminder(&bench.scope, "s", question, 800).await.unwrap().unwrap();
    assert_eq!(reminder.turns() + reminder.facts(), reminder.text().lines().count() - 2);
    assert!(
        reminder.text().contains("2026-01-01 user in trip: The ferry to Naxos leaves at 7:40.")
    );
    // What is sent anyway needs no reminder.
    assert!(!reminder.text().contains("blue"), "{:?}", reminder.text());
    let request = ExchangeRequest { reminder: Some(reminder), ..asking(&model, question) };
    memory.exchange(&bench.scope, &request, &|_| ()).await.unwrap();
    let sent = upstream.requests().pop().unwrap();
    let sent: Vec<&str> = sent.messages().iter().filter_map(|m| m["content"].as_str()).collect();
    assert_eq!(sent.len(), 3, "{sent:?}");
    assert!(sent[1].starts_with(RECALL_MARK) && sent[2] == question, "{sent:?}");
    // It is no turn, and nothing is learned of it.
    assert_eq!(texts(&bench).await.len(), 3);
    assert!(!texts(&bench).await.concat().contains("Naxos leaves"));

    let none = memory.reminder(&bench.scope, "s", "Qwertz?", 800).await.unwrap();
    let off = memory.reminder(&bench.scope, "s", question, 0).await.unwrap();
    assert_eq!((none, off), (None, None));
    let few = memory.reminder(&bench.scope, "new", question, 70).await.unwrap();
    assert!(few.is_none_or(|few| few.tokens() <= 70));
}

#[tokio::test]
async fn what_a_handoff_took_out_of_a_view_is_reminded_of() {
    let bench = Bench::new().await;
    let mut turns = vec![RawTurn::new("user", "The spare key hangs behind the barometer.")];
    turns.extend(conversation(40));
    bench.memory.remember(&bench.scope, "s", turns).await.unwrap();
    let question = "Where does the spare key hang?";
    let before = bench.memory.reminder(&bench.scope, "s", question, 800).await.unwrap();
    let has_key = |text: &str| text.contains("behind the barometer");
    assert!(!before.is_some_and(|reminder| has_key(reminder.text())));
    let compact = CompactRequest { session: "s".to_owned(), ..CompactRequest::default() };
    bench.memory.compact_session(&bench.scope, &compact).await.unwrap();
    let after = bench.memory.reminder(&bench.scope, "s", question, 800).await.unwrap().unwrap();
    assert!(has_key(after.text()), "{:?}", after.text());
    // What stands on a branch that was left was taken back.
    let id = |id: &str| Some(id.to_owned());
    let mut left = RawTurn { id: id("left"), ..RawTurn::new("user", "The spare key is lost.") };
    bench.memory.remember(&bench.scope, "s", vec![left.clone()]).await.unwrap();
    left = RawTurn { id: id("new"), ..RawTurn::new("user", "The spare key is copied.") };
    left.parent_ids = Some(vec!["turn-1.3".to_owned()]);
    bench.memory.remember(&bench.scope, "s", vec![left]).await.unwrap();
    let other = bench.memory.reminder(&bench.scope, "s", question, 800).await.unwrap();
    let is_lost = |text: &str| text.contains("lost");
    assert!(!other.is_some_and(|reminder| is_lost(reminder.text())));
}

#[tokio::test]
async fn a_reminder_never_keeps_a_request_from_being_sent() {
    let bench = Bench::new().await;
    let elsewhere = format!("The ferry log: {}", "ferry wind wave harbour ".repeat(60));
    let turns = vec![RawTurn::new("user", elsewhere)];
    bench.memory.remember(&bench.scope, "log", turns).await.unwrap();
    let question = format!("What does the ferry log say? {}", "Please tell. ".repeat(90));
    let config = UpstreamConfig { window: 512, counts_answer: false, ..UpstreamConfig::default() };
    let upstream = Upstream::start(config).await;
    let model = client(&upstream);
    let reminder = bench.memory.reminder(&bench.scope, "s", &question, 800).await.unwrap();
    assert!(reminder.as_ref().is_some_and(|reminder| reminder.tokens() > 150));
    let request = ExchangeRequest { reminder: reminder.clone(), ..asking(&model, &question) };
    bench.memory.exchange(&bench.scope, &request, &|_| ()).await.unwrap();
    assert_eq!(upstream.requests()[0].messages().len(), 1);
    // A provider that refuses with it is asked without.
    let config = UpstreamConfig { window: 4_000, ..UpstreamConfig::default() };
    let upstream = Upstream::start(config).await;
    upstream.push(Behaviour::Overflow);
    let model = client(&upstream);
    let session = "other".to_owned();
    let request = ExchangeRequest { session, reminder, ..asking(&model, &question) };
    bench.memory.exchange(&bench.scope, &request, &|_| ()).await.unwrap();
    let counts: Vec<usize> = upstream.requests().iter().map(|r| r.messages().len()).collect();
    assert_eq!(counts, [2, 1]);
}

#[tokio::test]
async fn tools_are_called_and_their_results_go_on() {
    let bench = Bench::new().await;
    let upstream = Upstream::start(UpstreamConfig::default()).await;
    let model = client(&upstream);
    let call = ("call-1".to_owned(), "read".to_owned(), r#"{"path":"a.txt"}"#.to_owned());
    upstream.push(Behaviour::CallTools(vec![call]));
    let tools =
        r#"[{"type":"function","function":{"name":"read","parameters":{"type":"object"}}}]"#;
    let mut request = asking(&model, "Read a.txt.");
    request.tools = Some(JsonText::parse(tools).unwrap());
    let done = bench.memory.exchange(&bench.scope, &request, &|_| ()).await.unwrap();
    assert!(done.reply.tool_calls.unwrap().as_str().contains("call-1"));
    request.turns = vec![RawTurn {
        tool_call_id: Some("call-1".to_owned()),
        ..RawTurn::new("tool", "forty-two")
    }];
    bench.memory.exchange(&bench.scope, &request, &|_| ()).await.unwrap();
    let sent = &upstream.requests()[1];
    assert_eq!(sent.messages().len(), 3);
    assert!(sent.text().contains("forty-two"));
    assert_eq!(texts(&bench).await.len(), 4);
}

#[tokio::test]
async fn a_conversation_outlives_its_window() {
    let bench = Bench::new().await;
    let config = UpstreamConfig { window: 3_000, count_percent: 130, ..UpstreamConfig::default() };
    let upstream = Upstream::start(config).await;
    let model = client(&upstream);
    let rule = "From now on, always answer in Dutch and never push to main.";
    exchange(&bench, &model, rule).await.unwrap();
    let mut compactions = 0;
    for n in 0..60 {
        let asked = format!("{n}: {}", work(n));
        let done = exchange(&bench, &model, &asked).await.unwrap();
        assert!(done.compactions.len() <= 2);
        compactions += done.compactions.len();
        let sent = upstream.requests().pop().unwrap();
        assert!(sent.text().contains(rule) && sent.text().ends_with(&asked), "{n}");
        assert!(sent.text().matches(HANDOFF_MARK).count() <= 1);
    }
    assert!((2..30).contains(&compactions), "{compactions}");
    assert_eq!(texts(&bench).await.len(), 122);
}

#[tokio::test]
async fn a_window_that_is_smaller_than_declared_is_found_out() {
    for overflow in OverflowForm::ALL {
        let bench = Bench::new().await;
        let config = UpstreamConfig { window: 2_000, overflow, ..UpstreamConfig::default() };
        let upstream = Upstream::start(config).await;
        let mut config = upstream.client_config();
        (config.window, config.reserve) = (Some(100_000), 200);
        let model: Arc<dyn ChatModel> = Arc::new(ChatClient::new(config).unwrap());
        bench.add("s", conversation(50)).await;
        let asked = "Which sledge has the batteries?";
        let done =
            exchange(&bench, &model, asked).await.unwrap_or_else(|e| panic!("{overflow:?}: {e}"));
        assert!((1..=2).contains(&done.compactions.len()), "{overflow:?}");
        assert_eq!(done.compactions[0].handoff.trigger, HandoffTrigger::Overflow);
        let sent = upstream.requests().pop().unwrap();
        assert!(sent.text().ends_with(asked));
        // From then on it is known.
        upstream.forget_requests();
        exchange(&bench, &model, "And which camp?").await.unwrap();
        assert_eq!(upstream.request_count(), 1, "{overflow:?}");
    }
}

#[tokio::test]
async fn an_overflow_in_the_midst_of_an_answer_is_mended() {
    for cut in [
        Behaviour::OverflowAfter("The batteries are on".to_owned()),
        Behaviour::WindowFull("The batteries are on".to_owned()),
    ] {
        let bench = Bench::new().await;
        let upstream = Upstream::start(UpstreamConfig {
            protocol: Protocol::Anthropic,
            ..UpstreamConfig::default()
        })
        .await;
        let model = client(&upstream);
        bench.add("s", conversation(50)).await;
        upstream.push_all([cut, Behaviour::Answer("On sledge 2.".to_owned())]);
        let done = exchange(&bench, &model, "Where are the batteries?").await.unwrap();
        assert_eq!((done.reply.text.as_str(), done.compactions.len()), ("On sledge 2.", 1));
        let all = texts(&bench).await;
        assert_eq!(all.last().unwrap(), "On sledge 2.");
        assert!(all.iter().all(|text| !text.starts_with("The batteries are on")));
    }
}

#[tokio::test]
async fn a_provider_that_always_overflows_ends_in_an_error() {
    let bench = Bench::new().await;
    let upstream = Upstream::start(UpstreamConfig::default()).await;
    let model = client(&upstream);
    bench.add("s", conversation(50)).await;
    upstream.push_all((0..20).map(|_| Behaviour::Overflow));
    let failed = exchange(&bench, &model, "Where are the batteries?").await.unwrap_err();
    let is_told = matches!(
        failed,
        MemoryError::Chat(ChatError::Overflow { .. }) | MemoryError::RequestExceedsWindow(_)
    );
    assert!(is_told, "{failed:?}");
    assert!(upstream.request_count() <= 3, "{}", upstream.request_count());
    // Nothing is lost: the request is there, and the session goes on.
    let all = texts(&bench).await;
    assert_eq!(all.last().unwrap(), "Where are the batteries?");
    assert_eq!(all.len(), 53);
    while upstream.pending() > 0 {
        let _ = exchange(&bench, &model, "And now?").await;
    }
    exchange(&bench, &model, &work(7).repeat(20)).await.unwrap();
}

#[tokio::test]
async fn what_is_no_answer_is_not_remembered() {
    let bench = Bench::new().await;
    let upstream = Upstream::start(UpstreamConfig::default()).await;
    let model = client(&upstream);
    bench.add("s", conversation(4)).await;
    for behaviour in [
        Behaviour::CutOff("The bat".to_owned()),
        Behaviour::MalformedStream("The bat".to_owned()),
        Behaviour::MalformedJson,
        Behaviour::Empty,
        Behaviour::Filtered,
        Behaviour::UnknownModel,
        Behaviour::Denied,
    ] {
        upstream.push(behaviour.clone());
        // Some are asked for again: then it is no answer again.
        upstream.push_all((0..4).map(|_| behaviour.clone()));
        let before = texts(&bench).await.len();
        let failed = exchange(&bench, &model, "Where are the batteries?").await;
        assert!(matches!(failed, Err(MemoryError::Chat(_))), "{failed:?}");
        let all = texts(&bench).await;
        assert_eq!(
            (all.len(), all.last().unwrap().as_str()),
            (before + 1, "Where are the batteries?")
        );
        while upstream.pending() > 0 {
            let _ = exchange(&bench, &model, "Again?").await;
        }
    }
    exchange(&bench, &model, "And now?").await.unwrap();
}

#[tokio::test]
async fn counts_that_lie_are_not_believed() {
    let bench = Bench::new().await;
    let upstream = Upstream::start(UpstreamConfig::default()).await;
    let model = client(&upstream);
    bench.add("s", conversation(20)).await;
    for input in [0, 1, u64::MAX >> 2, 50_000_000] {
        let usage = Usage { input, cached_input: 0, output: 1 };
        upstream.push(Behaviour::LieAboutUsage("Yes.".to_owned(), usage));
        let done = exchange(&bench, &model, "Is it so?").await.unwrap();
        assert_eq!((done.reply.text.as_str(), done.compactions.len()), ("Yes.", 0));
    }
    let done = exchange(&bench, &model, "Is it so?").await.unwrap();
    assert_eq!(done.compactions.len(), 0);
}

#[tokio::test]
async fn a_request_that_cannot_fit_is_neither_sent_nor_written() {
    let bench = Bench::new().await;
    let upstream = Upstream::start(UpstreamConfig { window: 500, ..Default::default() }).await;
    let model = client(&upstream);
    bench.add("s", conversation(4)).await;
    let before = texts(&bench).await;
    let failed = exchange(&bench, &model, &work(1).repeat(20)).await;
    assert!(matches!(failed, Err(MemoryError::RequestExceedsWindow(_))), "{failed:?}");
    assert_eq!(texts(&bench).await, before);
    assert_eq!(upstream.request_count(), 0);
    let view = bench.memory.api_view(&bench.scope, "s", None).await.unwrap();
    assert_eq!(view.handoff, None);
}

#[tokio::test]
async fn an_answer_is_on_the_branch_that_was_asked_about() {
    let bench = Bench::new().await;
    let upstream = Upstream::start(UpstreamConfig::default()).await;
    let model = client(&upstream);
    bench.add("s", conversation(10)).await;
    let fork = RawTurn { parent_ids: Some(vec!["n4".to_owned()]), ..RawTurn::new("user", "Else?") };
    bench.add("s", vec![fork]).await;
    let mut request = asking(&model, "On the main branch, please.");
    request.branch = Some("main".to_owned());
    bench.memory.exchange(&bench.scope, &request, &|_| ()).await.unwrap();
    let branch = async |name: &str| {
        let view = bench.memory.view(&bench.scope, "s", Some(name)).await.unwrap();
        view.messages.iter().map(text).collect::<Vec<_>>()
    };
    let sessions = bench.memory.sessions(&bench.scope).await.unwrap();
    assert_eq!(sessions[0].branches.len(), 2);
    let main = branch("main").await;
    assert_eq!(
        main[main.len() - 2..],
        ["On the main branch, please.", "Understood. I will go on."]
    );
    assert_eq!(branch(&sessions[0].branches[1].to_string()).await.len(), 6);
    // Without a branch it goes on where it was last.
    exchange(&bench, &model, "And again.").await.unwrap();
    assert_eq!(branch("main").await.len(), main.len() + 2);
}

#[tokio::test]
async fn whoever_stops_waiting_leaves_a_session_that_goes_on() {
    let bench = Bench::new().await;
    let upstream = Upstream::start(UpstreamConfig { window: 2_000, ..Default::default() }).await;
    let model = client(&upstream);
    bench.add("s", conversation(60)).await;
    // As many polls as it takes, and one less each time.
    for polls in 1..40 {
        let request = asking(&model, "Which sledge has the batteries?");
        let asked = bench.memory.exchange(&bench.scope, &request, &|_| ());
        let mut asked = Box::pin(asked);
        for _ in 0..polls {
            let waited = tokio::time::timeout(std::time::Duration::from_millis(2), &mut asked);
            if waited.await.is_ok() {
                break;
            }
        }
        drop(asked);
        let view = bench.memory.api_view(&bench.scope, "s", None).await.unwrap();
        let last = view.turns.last().map(text).unwrap();
        assert!(
            ["Which sledge has the batteries?", "Understood. I will go on."]
                .contains(&last.as_str())
                || last == work(61),
            "{last}"
        );
    }
    exchange(&bench, &model, "And now?").await.unwrap();
    assert_eq!(texts(&bench).await[..62], {
        let turns = conversation(60);
        turns.iter().map(|turn| turn.content.text().into_owned()).collect::<Vec<_>>()
    });
    bench.check().await;
}

#[tokio::test]
async fn secrets_are_hidden_in_what_is_told() {
    let bench = Bench::new().await;
    let upstream = Upstream::start(UpstreamConfig { piece_chars: 3, ..Default::default() }).await;
    let model = client(&upstream);
    let secret = "kumquat4711zebra";
    let value = zeroize::Zeroizing::new(secret.to_owned());
    bench.memory.add_secret(crate::support::me().tenant(), "door", value, false).await.unwrap();
    upstream.push(Behaviour::Answer(format!("The word is {secret}, as you know.")));
    let told = Mutex::new(String::new());
    let tell = |piece: &str| told.lock().unwrap().push_str(piece);
    let request = asking(&model, &format!("I forgot {secret}."));
    let done = bench.memory.exchange(&bench.scope, &request, &tell).await.unwrap();
    let told = told.into_inner().unwrap();
    assert_eq!(told, done.reply.text);
    assert!(!told.contains("kumquat") && told.contains("[REDACTED:door]"), "{told}");
    assert!(!upstream.requests()[0].text().contains(secret));
    assert!(!texts(&bench).await.join("\n").contains(secret));
}
