//! Handoffs by models that answer well, badly or not at all.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use icecore::models::{
    Answering, ChatError, ChatModel, ChatProfile, ChatReply, ChatRequest, Finish, ModelChain,
    Models, Prices, Protocol, SpendLimits,
};
use icecore::privacy::RedactedTurn;
use icecore::sessions::{ApiView, Compacted, HANDOFF_MARK};
use icecore::settings::HandoffSettings;
use icecore::{Memory, MemoryBuilder, MemorySettings, Principal, RawTurn, Scope, Tenant};
use icecore_store::{Packs, Store};
use zeroize::Zeroizing;

use crate::handoffs::{compact, conversation, messages, work};
use crate::support::said;

type Answer = Result<ChatReply, ChatError>;

/// A model with answers at hand, one for each request; the last for all that follow.
struct Script {
    profile: ChatProfile,
    answers: Mutex<VecDeque<Answer>>,
    requests: Mutex<Vec<ChatRequest>>,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.profile.name)
    }
}

impl Script {
    fn new(name: &str, answers: impl IntoIterator<Item = Answer>) -> Self {
        let mut identity = [7; 32];
        identity[..name.len()].copy_from_slice(name.as_bytes());
        let profile = ChatProfile {
            name: name.to_owned(),
            model: format!("{name}-1"),
            protocol: Protocol::OpenAi,
            identity,
            window: 32_000,
            reserve: 1_000,
            prices: Prices::default(),
            caches_prefix: false,
        };
        let answers = Mutex::new(answers.into_iter().collect());
        Self { profile, answers, requests: Mutex::default() }
    }

    fn requests(&self) -> Vec<ChatRequest> {
        self.requests.lock().unwrap().clone()
    }
}

impl ChatModel for Script {
    fn profile(&self) -> &ChatProfile {
        &self.profile
    }

    fn answer<'a>(
        &'a self,
        request: &'a ChatRequest,
        _: &'a (dyn Fn(&str) + Send + Sync),
    ) -> Answering<'a> {
        self.requests.lock().unwrap().push(request.clone());
        let mut answers = self.answers.lock().unwrap();
        let answer = match answers.len() {
            1 => answers[0].clone(),
            _ => answers.pop_front().unwrap(),
        };
        Box::pin(async move { answer })
    }
}

fn reply(text: &str, finish: Finish) -> Answer {
    Ok(ChatReply { text: text.to_owned(), tool_calls: None, finish, usage: None })
}

const GOOD: &str = "## Goal\n- Drill the holes on the eastern flank before the storm.\n\
    ## State\n- The probe at glacier 3 reported 920 metres of ice.\n\
    ## People and things\n- The crew of sledge 2 waits at camp 4.\n";

async fn with(models: Vec<Arc<Script>>) -> (Memory, Scope) {
    with_settings(models, MemorySettings::default()).await
}

async fn with_settings(models: Vec<Arc<Script>>, settings: MemorySettings) -> (Memory, Scope) {
    let chain = models.into_iter().map(|model| model as Arc<dyn ChatModel>).collect();
    let models = Models { handoffs: ModelChain(chain), ..Models::default() };
    let memory = MemoryBuilder::default().settings(settings).models(models).over(
        Store::in_memory([1; 32]),
        Packs::in_memory(),
        None,
    );
    let me = Principal::local_operator(Tenant::new("t").unwrap());
    let scope = memory.scope(&me, "m").await.unwrap();
    (memory, scope)
}

/// Compacts a session with a standing rule, and looks at what must hold of it.
async fn compacted(memory: &Memory, scope: &Scope) -> (Compacted, ApiView) {
    let mut turns = conversation(60);
    turns.push(said(901, "Which sledge has the spare batteries?"));
    memory.remember(scope, "s", turns).await.unwrap();
    let done = memory.compact_session(scope, &compact("s")).await.unwrap();
    let view = memory.api_view(scope, "s", None).await.unwrap();
    assert_eq!(done.tokens_after, view.tokens);
    assert!(done.tokens_after * 2 <= done.tokens_before);
    assert!(done.handoff.text.starts_with(HANDOFF_MARK));
    assert!(done.handoff.text.contains("always answer in Dutch and never push to main"));
    assert_eq!(messages(&view).last().unwrap(), "Which sledge has the spare batteries?");
    (done, view)
}

#[tokio::test]
async fn a_model_writes_the_handoff_and_the_rules_stay_word_for_word() {
    let model = Arc::new(Script::new("good", [reply(GOOD, Finish::Stop)]));
    let (memory, scope) = with(vec![Arc::clone(&model)]).await;
    let (done, _) = compacted(&memory, &scope).await;
    assert_eq!((done.handoff.made_by.as_str(), done.notices), ("model:good", vec![]));
    for line in ["Drill the holes on the eastern flank", "The crew of sledge 2 waits at camp 4."] {
        assert!(done.handoff.text.contains(line), "{}", done.handoff.text);
    }
    let requests = model.requests();
    assert_eq!(requests.len(), 1);
    let sent: Vec<&str> = requests[0].messages.iter().map(role).collect();
    assert_eq!(sent, ["system", "user"]);
    assert!(requests[0].max_tokens > 0 && requests[0].tools.is_none());
    let transcript = requests[0].messages[1].fields().content.text();
    assert!(transcript.starts_with('<') && transcript.contains("Step 40"));
}

fn role(turn: &RedactedTurn) -> &str {
    &turn.fields().role
}

#[tokio::test]
async fn a_bad_answer_is_asked_for_once_more_and_then_done_without() {
    let long = GOOD.repeat(400);
    let foreign = "Natürlich! Hier ist die Zusammenfassung, die Sie sich gewünscht haben.";
    let groundless = "## Goal\n- Buy 77123 turbines from Zorblax Industries in Ulaanbaatar.\n\
        ## State\n- Quibbleton paid 55512 crowns on 3 March 1911.\n";
    for (name, bad) in [
        ("empty", reply("", Finish::Stop)),
        ("blank", reply(" \n\n ", Finish::Stop)),
        ("cut", reply(GOOD, Finish::Length)),
        ("withheld", reply("", Finish::Filtered)),
        ("long", reply(&long, Finish::Stop)),
        ("foreign", reply(foreign, Finish::Stop)),
        ("groundless", reply(groundless, Finish::Stop)),
        (
            "broken",
            Err(ChatError::CutOff {
                model: "m".into(),
                reason: "the connection broke".into(),
                partial: "## Goal".into(),
            }),
        ),
        (
            "small",
            Err(ChatError::Overflow {
                model: "m".into(),
                limit: Some(2_000),
                requested: None,
                partial: String::new(),
            }),
        ),
    ] {
        let model = Arc::new(Script::new("bad", [bad.clone()]));
        let (memory, scope) = with(vec![Arc::clone(&model)]).await;
        let (done, _) = compacted(&memory, &scope).await;
        assert_eq!(done.handoff.made_by, "heuristic", "{name}");
        assert_eq!(done.notices.len(), 2, "{name}: {:?}", done.notices);
        assert!(done.notices.iter().all(|notice| notice.contains("`bad`")), "{name}");
        for strange in ["77123", "Zorblax", "Zusammenfassung"] {
            assert!(!done.handoff.text.contains(strange), "{name}");
        }
        let requests = model.requests();
        assert_eq!(requests.len(), 2, "{name}");
        assert!(requests[1].max_tokens <= requests[0].max_tokens / 2 + 1, "{name}");

        // The second time it does better.
        let model = Arc::new(Script::new("bad", [bad, reply(GOOD, Finish::Stop)]));
        let (memory, scope) = with(vec![Arc::clone(&model)]).await;
        let (done, _) = compacted(&memory, &scope).await;
        assert_eq!((done.handoff.made_by.as_str(), done.notices.len()), ("model:bad", 1), "{name}");
    }
}

#[tokio::test]
async fn the_chain_goes_down_to_what_needs_no_model() {
    let down = || {
        let (model, reason) = ("m".to_owned(), "connection refused".to_owned());
        Arc::new(Script::new("down", [Err(ChatError::Unavailable { model, reason })]))
    };
    let good = || Arc::new(Script::new("good", [reply(GOOD, Finish::Stop)]));
    let (first, second) = (down(), good());
    let (memory, scope) = with(vec![Arc::clone(&first), second]).await;
    let (done, _) = compacted(&memory, &scope).await;
    assert_eq!((done.handoff.made_by.as_str(), done.notices.len()), ("model:good", 1));
    // It would not do better if it were asked for less.
    assert_eq!(first.requests().len(), 1);
    let (memory, scope) = with(vec![down(), down()]).await;
    let (done, _) = compacted(&memory, &scope).await;
    assert_eq!(done.handoff.made_by, "heuristic");

    let model = good();
    let chain = ModelChain(vec![Arc::clone(&model) as Arc<dyn ChatModel>]);
    let limits = SpendLimits { tokens_a_day: 10, cost_a_day: 0 };
    let models = Models { handoffs: chain, limits, ..Models::default() };
    let store = Store::in_memory([1; 32]);
    let memory = MemoryBuilder::default().models(models).over(store, Packs::in_memory(), None);
    let (done, _) = compacted(&memory, &scope).await;
    assert_eq!((done.handoff.made_by.as_str(), model.requests().len()), ("heuristic", 0));
    assert!(done.notices[0].contains("10 tokens"), "{:?}", done.notices);
}

#[tokio::test]
async fn a_model_that_knows_a_secret_does_not_tell_it() {
    const SECRET: &str = "kumquat4711zebra";
    let text = format!("{GOOD}## Facts\n- The door word is {SECRET}, says the crew.\n");
    let model = Arc::new(Script::new("leak", [reply(&text, Finish::Stop)]));
    let (memory, scope) = with(vec![Arc::clone(&model)]).await;
    let value = Zeroizing::new(SECRET.to_owned());
    memory.add_secret(scope.tenant(), "door", value, false).await.unwrap();
    let (done, view) = compacted(&memory, &scope).await;
    assert_eq!(done.handoff.made_by, "model:leak");
    assert!(!done.handoff.text.contains(SECRET) && !messages(&view).join("").contains(SECRET));
}

#[tokio::test]
async fn a_request_to_a_distiller_fits_its_window() {
    for window in [1_000, 2_000, 4_000, 8_000] {
        let mut model = Script::new("small", [reply(GOOD, Finish::Stop)]);
        model.profile.window = window;
        let model = Arc::new(model);
        let handoffs = HandoffSettings { handoff_tokens: 400, ..HandoffSettings::default() };
        let settings = MemorySettings { handoffs, ..MemorySettings::default() };
        let (memory, scope) = with_settings(vec![Arc::clone(&model)], settings).await;
        let mut turns = conversation(200);
        turns.insert(50, RawTurn::new("tool", work(9).repeat(100)));
        memory.remember(&scope, "s", turns).await.unwrap();
        memory.settle(|_, _| {}).await.unwrap();
        memory.compact_session(&scope, &compact("s")).await.unwrap();
        let requests = model.requests();
        assert!(!requests.is_empty() || window < 2_000, "{window}");
        for request in &requests {
            let count = |turn: &RedactedTurn| {
                u64::from(memory.counter().count(&turn.fields().content.text())) + 4
            };
            let tokens: u64 = request.messages.iter().map(count).sum();
            assert!(tokens + request.max_tokens <= window, "{tokens} of {window}");
            // The newest are there, whatever was left out.
            let text = request.messages[1].fields().content.text();
            assert!(text.contains("Step 200"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_server_that_has_the_view_at_hand_gets_it_as_it_is() {
    let mut model = Script::new("own", [reply(GOOD, Finish::Stop)]);
    model.profile.caches_prefix = true;
    let model = Arc::new(model);
    let (memory, scope) = with(vec![Arc::clone(&model)]).await;
    let mut turns = conversation(60);
    for turn in turns.iter_mut().filter(|turn| turn.role == "assistant") {
        turn.model = Some("own-1".to_owned());
    }
    memory.remember(&scope, "s", turns).await.unwrap();
    let before = memory.api_view(&scope, "s", None).await.unwrap().messages();
    let done = memory.compact_session(&scope, &compact("s")).await.unwrap();
    assert_eq!(done.handoff.made_by, "model:own");
    let sent = model.requests().remove(0).messages;
    assert_eq!(sent[..before.len()], before[..]);
    assert_eq!((sent.len(), role(&sent[before.len()])), (before.len() + 1, "user"));

    // Another model's server has not.
    let (memory, scope) = with(vec![Arc::clone(&model)]).await;
    memory.remember(&scope, "s", conversation(60)).await.unwrap();
    memory.compact_session(&scope, &compact("s")).await.unwrap();
    assert_eq!(model.requests()[1].messages.len(), 2);
}

#[tokio::test]
async fn an_answer_that_was_of_use_is_not_paid_for_twice() {
    let model = Arc::new(Script::new("good", [reply(GOOD, Finish::Stop)]));
    let (memory, scope) = with(vec![Arc::clone(&model)]).await;
    let (first, _) = compacted(&memory, &scope).await;
    // The same, from another session of the same turns, would be another's: ask anew.
    assert_eq!(model.requests().len(), 1);
    let again = memory.compact_session(&scope, &compact("s")).await.unwrap();
    assert_eq!((again.handoff, model.requests().len()), (first.handoff, 1));
}
