//! What is learned when a provider refuses a request, and what is done about it.

use std::sync::{Arc, Mutex};

use icecore::models::{
    Answering, ChatModel, ChatProfile, ChatReply, ChatRequest, Finish, ModelChain, Models, Prices,
    Protocol, Usage,
};
use icecore::sessions::{Effort, ExchangeRequest, Exchanged, FitRequest, SessionWindow};
use icecore::{MemoryBuilder, MemoryError, Principal, RawTurn, Tenant};
use icecore_models::ChatClient;
use icecore_models::testing::{Behaviour, OverflowForm, Upstream, UpstreamConfig};
use icecore_store::{Packs, Store};

use crate::handoffs::{compact, conversation, messages, work};
use crate::support::{Bench, said};

/// A client of a server whose window is declared to be this.
fn declared(upstream: &Upstream, window: u64, reserve: u64) -> Arc<dyn ChatModel> {
    let mut config = upstream.client_config();
    (config.window, config.reserve) = (Some(window), reserve);
    Arc::new(ChatClient::new(config).unwrap())
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

#[tokio::test]
async fn the_room_for_an_answer_shrinks_before_a_request_is_given_up() {
    for overflow in OverflowForm::ALL.into_iter().chain([OverflowForm::Generic]) {
        // A short request, and one that is most of the window.
        for words in [4, 24] {
            let bench = Bench::new().await;
            let config = UpstreamConfig { window: 4_096, overflow, ..UpstreamConfig::default() };
            let upstream = Upstream::start(config).await;
            let model = declared(&upstream, 128_000, 8_192);
            let asked = (0..words).map(work).collect::<Vec<_>>().join(" ");
            let done = exchange(&bench, &model, &asked).await;
            let done = done.unwrap_or_else(|error| panic!("{overflow:?} {words}: {error}"));
            assert_eq!(done.compactions, [], "{overflow:?} {words}");
            let sent = upstream.requests();
            assert_eq!(sent.len(), 2, "{overflow:?} {words}");
            assert!(sent[1].text().ends_with(&asked));
            assert!(sent[1].max_tokens() >= 1_000, "{overflow:?} {words}");
            // And it goes on.
            let done = exchange(&bench, &model, "And then?").await.unwrap();
            assert_eq!(done.compactions, [], "{overflow:?} {words}");
        }
    }
}

#[tokio::test]
async fn a_window_is_learned_for_others_only_if_it_is_named() {
    for (overflow, sent) in [(OverflowForm::Vllm, 1), (OverflowForm::Generic, 2)] {
        let bench = Bench::new().await;
        let config = UpstreamConfig { window: 4_096, overflow, ..UpstreamConfig::default() };
        let upstream = Upstream::start(config).await;
        let model = declared(&upstream, 128_000, 8_192);
        exchange(&bench, &model, "Where are the batteries?").await.unwrap();
        upstream.forget_requests();
        let request =
            ExchangeRequest { session: "t".to_owned(), ..asking(&model, "Which camp is it?") };
        bench.memory.exchange(&bench.scope, &request, &|_| ()).await.unwrap();
        assert_eq!(upstream.request_count(), sent, "{overflow:?}");
    }
}

#[tokio::test]
async fn what_a_template_adds_is_not_multiplied() {
    let bench = Bench::new().await;
    let upstream = Upstream::start(UpstreamConfig::default()).await;
    let model = declared(&upstream, 128_000, 8_192);
    let usage = Usage { input: 36, cached_input: 0, output: 1 };
    upstream.push(Behaviour::LieAboutUsage("Yes.".to_owned(), usage));
    exchange(&bench, &model, "Are you there?").await.unwrap();
    let long = (0..850).map(work).collect::<Vec<_>>().join(" ");
    let done = exchange(&bench, &model, &long).await.unwrap();
    assert_eq!(done.compactions, []);
    assert!(upstream.requests().pop().unwrap().tokens > 40_000);
}

#[tokio::test]
async fn an_estimate_alone_refuses_nothing() {
    let bench = Bench::new().await;
    let upstream = Upstream::start(UpstreamConfig::default()).await;
    let model = declared(&upstream, 128_000, 8_192);
    bench.add("s", conversation(60)).await;
    // More than three times what we count.
    let usage = Usage { input: 12_000, cached_input: 0, output: 1 };
    upstream.push(Behaviour::LieAboutUsage("Yes.".to_owned(), usage));
    exchange(&bench, &model, "Is it so?").await.unwrap();
    let long = (0..850).map(work).collect::<Vec<_>>().join(" ");
    let done = exchange(&bench, &model, &long).await.unwrap();
    assert!(done.compactions.len() <= 2);
    let sent = upstream.requests().pop().unwrap();
    assert!(sent.tokens > 40_000 && sent.text().ends_with(&long));
}

#[tokio::test]
async fn the_second_compaction_after_refusals_leaves_a_fresh_window() {
    let bench = Bench::new().await;
    let upstream = Upstream::start(UpstreamConfig::default()).await;
    let model = declared(&upstream, 128_000, 500);
    bench.add("s", conversation(60)).await;
    let answer = Behaviour::Answer("On sledge 2.".to_owned());
    upstream.push_all([Behaviour::Overflow, Behaviour::Overflow, answer]);
    let done = exchange(&bench, &model, "Where are the batteries?").await.unwrap();
    let efforts: Vec<Effort> = done.compactions.iter().map(|one| one.effort).collect();
    assert_eq!(efforts, [Effort::First, Effort::Fresh]);
    assert_eq!(upstream.request_count(), 3);
}

#[tokio::test]
async fn who_asks_again_for_a_request_says_how_often() {
    let bench = Bench::new().await;
    bench.add("s", conversation(60)).await;
    bench.add("s", vec![RawTurn::new("user", "Which sledge has the batteries?")]).await;
    let fit = |attempts: usize| FitRequest {
        session: "s".to_owned(),
        window: Some(SessionWindow { window: 100_000, reserve: 8_000 }),
        overflowed: Some(0),
        attempts,
        ..FitRequest::default()
    };
    let efforts = async |attempts: usize| {
        let fitted = bench.memory.fit(&bench.scope, &fit(attempts)).await?;
        Ok(fitted.compactions.iter().map(|one| one.effort).collect::<Vec<_>>())
    };
    assert_eq!(efforts(0).await.unwrap(), [Effort::First]);
    assert_eq!(efforts(1).await.unwrap(), [Effort::Fresh]);
    let last: Result<Vec<Effort>, MemoryError> = efforts(2).await;
    assert!(matches!(last, Err(MemoryError::RequestExceedsWindow(_))), "{last:?}");
    // Without a refusal it is as it was.
    let calm = FitRequest { overflowed: None, ..fit(2) };
    let calm = bench.memory.fit(&bench.scope, &calm).await.unwrap();
    assert_eq!(calm.window, SessionWindow { window: 100_000, reserve: 8_000 });
}

#[tokio::test]
async fn a_turn_for_a_branch_says_what_it_follows() {
    let bench = Bench::new().await;
    let upstream = Upstream::start(UpstreamConfig::default()).await;
    let model = declared(&upstream, 128_000, 500);
    bench.add("s", conversation(4)).await;
    let mut request = asking(&model, "On the main branch, please.");
    request.branch = Some("main".to_owned());
    bench.memory.exchange(&bench.scope, &request, &|_| ()).await.unwrap();
    let view = bench.memory.view(&bench.scope, "s", Some("main")).await.unwrap();
    let asked = view.messages[view.messages.len() - 2].turn.as_ref().unwrap().fields();
    // Whichever branch is appended to meanwhile, this one goes on.
    assert_eq!(asked.parent_ids.as_ref().map(Vec::len), Some(1));
    assert_eq!(bench.memory.sessions(&bench.scope).await.unwrap()[0].branches.len(), 1);
}

#[tokio::test]
async fn a_handoff_of_another_branch_is_corrected_there() {
    let bench = Bench::new().await;
    let (memory, scope) = (&bench.memory, &bench.scope);
    bench.add("s", conversation(60)).await;
    let made = memory.compact_session(scope, &compact("s")).await.unwrap().handoff;
    bench.add("s", (0..4).map(|n| said(500 + n, &work(n))).collect()).await;
    let fork = RawTurn { parent_ids: Some(vec!["n501".into()]), ..RawTurn::new("user", "Else?") };
    bench.add("s", vec![fork]).await;
    let fork = memory.handoff(scope, "s", Some("fork-1")).await.unwrap();
    assert_eq!(fork.id, made.id);
    let main = messages(&memory.api_view(scope, "s", Some("main")).await.unwrap());
    let words = "## Facts\n- The drill is rented.";
    let edit = async |branch: &str| {
        memory.edit_handoff(scope, "s", Some(branch), &made.id, made.version, words).await
    };
    let failed = edit("fork-1").await;
    assert!(
        matches!(&failed, Err(MemoryError::HandoffElsewhere { branch, .. }) if branch == "main"),
        "{failed:?}"
    );
    assert_eq!(messages(&memory.api_view(scope, "s", Some("main")).await.unwrap()), main);
    let huge = "a ".repeat(4_000_000);
    let failed = memory.edit_handoff(scope, "s", Some("main"), &made.id, 1, &huge).await;
    assert!(matches!(failed, Err(MemoryError::HandoffTooLong { tokens, most }) if tokens > most));
    assert!(edit("main").await.unwrap().handoff.text.contains("The drill is rented."));
}

/// A model that answers and distils, and keeps the beginnings of what it is sent.
struct Own {
    profile: ChatProfile,
    requests: Mutex<Vec<ChatRequest>>,
}

impl std::fmt::Debug for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.profile.name)
    }
}

impl ChatModel for Own {
    fn profile(&self) -> &ChatProfile {
        &self.profile
    }

    fn answer<'a>(
        &'a self,
        request: &'a ChatRequest,
        _: &'a (dyn Fn(&str) + Send + Sync),
    ) -> Answering<'a> {
        self.requests.lock().unwrap().push(request.clone());
        let text = "## Goal\n- Drill the holes on the eastern flank before the storm.\n\
            ## State\n- The probe at glacier 3 reported 920 metres of ice.\n";
        let reply = ChatReply {
            text: text.to_owned(),
            tool_calls: None,
            finish: Finish::Stop,
            usage: None,
        };
        Box::pin(async move { Ok(reply) })
    }
}

#[tokio::test]
async fn a_window_that_is_nearly_full_is_distilled_from_what_is_at_hand() {
    let window = 8_000;
    let own = Arc::new(Own {
        profile: ChatProfile {
            name: "own".to_owned(),
            model: "own-1".to_owned(),
            protocol: Protocol::OpenAi,
            identity: [7; 32],
            window,
            reserve: 2_000,
            prices: Prices::default(),
            caches_prefix: true,
        },
        requests: Mutex::default(),
    });
    let model: Arc<dyn ChatModel> = Arc::clone(&own) as Arc<dyn ChatModel>;
    let models = Models { handoffs: ModelChain(vec![Arc::clone(&model)]), ..Models::default() };
    let store = Store::in_memory([1; 32]);
    let memory = MemoryBuilder::default().models(models).over(store, Packs::in_memory(), None);
    let me = Principal::local_operator(Tenant::new("t").unwrap());
    let scope = memory.scope(&me, "m").await.unwrap();
    memory.remember(&scope, "s", conversation(20)).await.unwrap();
    for n in 0..200 {
        let done = memory.exchange(&scope, &asking(&model, &work(n)), &|_| ()).await.unwrap();
        let requests = std::mem::take(&mut *own.requests.lock().unwrap());
        let Some(made) = done.compactions.first() else { continue };
        assert_eq!(made.handoff.made_by, "model:own", "{:?}", made.notices);
        let (first, count) = (&requests[0], requests[0].messages.len());
        assert!(count > 20, "{count}: the view as it is, and an instruction");
        let tokens = |turn: &icecore::privacy::RedactedTurn| {
            u64::from(memory.counter().count(&turn.fields().content.text())) + 4
        };
        let sent: u64 = first.messages.iter().map(tokens).sum();
        assert!(sent > window - 2_000 && sent + first.max_tokens <= window);
        return;
    }
    panic!("it was never compacted");
}
