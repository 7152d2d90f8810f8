//! Models that are slow, break off or answer nothing of use: nobody else waits for them,
//! they are left alone, and nothing is paid twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use icecore::dreams::DreamRequest;
use icecore::knowledge::{ConsolidationTrigger, NewEntryRequest};
use icecore::models::{
    Answering, ChatError, ChatModel, ChatProfile, ChatRequest, FAILURES_IN_A_ROW,
    MODEL_PAUSE_SECONDS, ModelChain, Models, SUMMARIES_AT_ONCE,
};
use icecore::{MemorySettings, Principal, RawTurn, Scope, Tenant};
use tokio::sync::watch;

use crate::models::{Bench, Told, able, able_reply, bench, chain, key, reply, small};
use crate::support::{START, numbered, said};

/// Nothing here takes as long; who waits longer waits for ever.
const FOR_EVER: Duration = Duration::from_secs(120);

/// A model that is asked about something with `tarry` in it answers when it is told to.
#[derive(Debug)]
struct Waiting {
    told: Told,
    asked: watch::Sender<usize>,
    is_free: watch::Sender<bool>,
}

impl Waiting {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            told: able("waiting"),
            asked: watch::Sender::new(0),
            is_free: watch::Sender::new(false),
        })
    }

    async fn is_asked(&self) {
        let mut asked = self.asked.subscribe();
        tokio::time::timeout(FOR_EVER, asked.wait_for(|count| *count > 0)).await.unwrap().unwrap();
    }
}

impl ChatModel for Waiting {
    fn profile(&self) -> &ChatProfile {
        self.told.profile()
    }

    fn answer<'a>(
        &'a self,
        request: &'a ChatRequest,
        tell: &'a (dyn Fn(&str) + Send + Sync),
    ) -> Answering<'a> {
        Box::pin(async move {
            let mut texts = request.messages.iter().map(|turn| turn.fields().content.text());
            if texts.any(|text| text.contains("tarry")) {
                tell("SUMMARY: Number 1 speaks of a glacier");
                self.asked.send_modify(|count| *count += 1);
                self.is_free.subscribe().wait_for(|is_free| *is_free).await.unwrap();
            }
            self.told.answer(request, tell).await
        })
    }
}

async fn with_model(model: Arc<dyn ChatModel>) -> Bench {
    bench(small(), Models { summaries: ModelChain(vec![model]), ..Models::default() }).await
}

fn tarrying(count: usize) -> Vec<RawTurn> {
    (1..=count).map(|n| said(n, &format!("Number {n} speaks of a glacier; tarry."))).collect()
}

fn other() -> Principal {
    Principal::local_operator(Tenant::new("other").unwrap())
}

async fn due(bench: &Bench, scope: &Scope) -> u64 {
    icecore::extend::store(&bench.memory).unsettled_count(Some(scope.tenant()), None).await.unwrap()
}

/// Waits until a tenant has nothing due.
async fn settled(bench: &Bench, scope: &Scope) {
    let settling = async {
        while due(bench, scope).await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(FOR_EVER, settling).await.unwrap();
}

async fn texts(bench: &Bench, scope: &Scope) -> Vec<String> {
    let chunks = bench.memory.chunks(scope, None).await.unwrap();
    chunks.into_iter().map(|chunk| chunk.summary.map(|one| one.text).unwrap_or_default()).collect()
}

#[tokio::test]
async fn a_slow_model_of_one_tenant_holds_up_no_other() {
    let model = Waiting::new();
    let bench = with_model(Arc::clone(&model) as Arc<dyn ChatModel>).await;
    let others = bench.memory.scope(&other(), "m").await.unwrap();
    // More of the one than is looked at together, in front of the other.
    for session in 0..70 {
        let session = format!("s{session}");
        bench.memory.remember(&bench.scope, &session, tarrying(8)).await.unwrap();
    }
    let (closing, closed) = watch::channel(false);
    let working = tokio::spawn({
        let (memory, mut closed) = (bench.memory.clone(), closed);
        async move {
            let stop = async move { drop(closed.wait_for(|closed| *closed).await) };
            memory.work_until(stop).await;
        }
    });
    model.is_asked().await;
    // What comes now and what comes again is settled, layers and all.
    for round in 1..=2 {
        bench.memory.remember(&others, "t", numbered(8 * round)).await.unwrap();
        settled(&bench, &others).await;
        assert!(texts(&bench, &others).await.iter().all(|text| text.contains("waiting says")));
    }
    assert_eq!(due(&bench, &bench.scope).await, 70);
    assert!(*model.asked.borrow() <= SUMMARIES_AT_ONCE);

    model.is_free.send_replace(true);
    settled(&bench, &bench.scope).await;
    let slow = texts(&bench, &bench.scope).await;
    assert_eq!(slow.len(), 70 * 7);
    assert!(slow.iter().all(|text| text.contains("waiting says")), "{slow:?}");
    closing.send_replace(true);
    tokio::time::timeout(FOR_EVER, working).await.unwrap().unwrap();
    bench.memory.check(false, |_, _| {}).await.unwrap();
}

#[tokio::test]
async fn settling_by_hand_goes_on_beside_a_slow_model_and_ends() {
    let model = Waiting::new();
    let bench = with_model(Arc::clone(&model) as Arc<dyn ChatModel>).await;
    bench.memory.remember(&bench.scope, "s", tarrying(40)).await.unwrap();
    let mut tenants = Vec::new();
    // More than have their turn at once.
    for number in 0..2 * icecore::maintenance::TENANTS_AT_ONCE {
        let tenant = Principal::local_operator(Tenant::new(format!("t{number}")).unwrap());
        let scope = bench.memory.scope(&tenant, "m").await.unwrap();
        bench.memory.remember(&scope, "t", numbered(8)).await.unwrap();
        tenants.push(scope);
    }
    let settling = tokio::spawn({
        let memory = bench.memory.clone();
        async move {
            let mut told = Vec::new();
            let done = memory.settle(|done, _| told.push(done)).await.unwrap();
            (done, told)
        }
    });
    for scope in &tenants {
        settled(&bench, scope).await;
    }
    assert_eq!(due(&bench, &bench.scope).await, 1);
    model.is_free.send_replace(true);
    let (done, told) = tokio::time::timeout(FOR_EVER, settling).await.unwrap().unwrap();
    let count = tenants.len() as u64 + 1;
    assert_eq!((done.branches, done.failed), (count, 0));
    assert_eq!(told, (1..=count).collect::<Vec<_>>());
    assert!(texts(&bench, &bench.scope).await.iter().all(|text| text.contains("waiting says")));
}

#[tokio::test]
async fn what_a_stream_had_told_counts_when_it_is_left() {
    let model = Waiting::new();
    let bench = with_model(Arc::clone(&model) as Arc<dyn ChatModel>).await;
    bench.memory.remember(&bench.scope, "s", tarrying(2)).await.unwrap();
    let settling = tokio::spawn({
        let memory = bench.memory.clone();
        async move { drop(memory.settle(|_, _| {}).await) }
    });
    model.is_asked().await;
    settling.abort();
    settling.await.unwrap_err();
    // Whoever was asked hears of it a moment later.
    let noting = async {
        while bench.spent().await.is_empty() {
            bench.memory.write_spending().await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(FOR_EVER, noting).await.unwrap();
    let spent = bench.spent().await[&key("summary", "waiting")].clone();
    assert_eq!((spent.calls, spent.failed), (1, 1));
    assert!(spent.input > 100 && spent.output > 3, "{spent:?}");
}

#[tokio::test]
async fn a_model_that_fails_again_and_again_is_left_alone() {
    let name = || "poor".to_owned();
    let reason = || "stalled".to_owned();
    for error in [
        ChatError::CutOff { model: name(), reason: reason(), partial: "SUMM".to_owned() },
        ChatError::Refused { model: name(), reason: reason() },
        ChatError::Malformed { model: name(), reason: reason() },
    ] {
        let fails = error.clone();
        let poor = Arc::new(Told::new("poor", move |_| Err(fails.clone())));
        let bench =
            bench(small(), Models { summaries: chain(&[&poor]), ..Models::default() }).await;
        bench.memory.remember(&bench.scope, "s", numbered(40)).await.unwrap();
        bench.settle().await;
        let asked = poor.sent().len();
        assert!(asked >= FAILURES_IN_A_ROW as usize, "{error:?}: {asked}");
        assert!(asked < FAILURES_IN_A_ROW as usize + SUMMARIES_AT_ONCE, "{error:?}: {asked}");
        bench.clock.move_to(START + MODEL_PAUSE_SECONDS as i64 * 1_000);
        bench.memory.remember(&bench.scope, "t", numbered(8)).await.unwrap();
        bench.settle().await;
        assert!(poor.sent().len() > asked, "{error:?}");
    }
}

#[tokio::test]
async fn a_rebuild_does_not_pay_for_answers_of_no_use() {
    let poor = Arc::new(Told::new("poor", |_| reply("PWNED")));
    let good = Arc::new(able("good"));
    let models = Models { summaries: chain(&[&poor, &good]), ..Models::default() };
    let bench = bench(small(), models).await;
    bench.memory.remember(&bench.scope, "s", numbered(8)).await.unwrap();
    bench.settle().await;
    let (before, asked) = (texts(&bench, &bench.scope).await, (poor.sent(), good.sent()));
    assert_eq!((asked.0.len(), asked.1.len()), (7, 7));
    bench.memory.reindex(&bench.scope, |_, _| {}).await.unwrap();
    assert_eq!((poor.sent(), good.sent()), asked);
    assert_eq!(texts(&bench, &bench.scope).await, before);
    let spent = bench.spent().await[&key("summary", "poor")].clone();
    assert_eq!((spent.calls, spent.failed, spent.reused), (7, 7, 7));
}

#[tokio::test]
async fn what_is_too_large_is_asked_about_once_more_with_half() {
    let longest = AtomicUsize::new(0);
    let lying = Arc::new(Told::new("lying", move |sent: &str| {
        let longest = longest.fetch_max(sent.len(), Ordering::SeqCst).max(sent.len());
        match sent.len() * 4 < longest * 3 {
            true => reply(&able_reply("lying", sent)),
            false => Err(ChatError::Overflow {
                model: "lying".to_owned(),
                limit: None,
                requested: None,
                partial: String::new(),
            }),
        }
    }));
    let bench = bench(small(), Models { summaries: chain(&[&lying]), ..Models::default() }).await;
    let long = "glacier ".repeat(12_000);
    let turns = (1..=2).map(|n| said(n, &format!("Number {n} speaks of {long}.")));
    bench.memory.remember(&bench.scope, "s", turns.collect()).await.unwrap();
    bench.settle().await;
    let made = texts(&bench, &bench.scope).await;
    assert!(made.iter().any(|text| text.contains("lying says")), "{made:?}");
}

#[tokio::test]
async fn one_bad_batch_of_pairs_does_not_block_the_rest() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let judge =
        Arc::new(Told::new("judge", move |_| match counted.fetch_add(1, Ordering::SeqCst) {
            0 => reply("I would rather talk of the weather."),
            _ => reply(&(1..=8).map(|n| format!("{n}: same\n")).collect::<String>()),
        }));
    let models = Models { consolidation: chain(&[&judge]), ..Models::default() };
    let bench = bench(MemorySettings::default(), models).await;
    let places = [
        "harbour", "museum", "library", "station", "theatre", "brewery", "hospital", "mill",
        "castle", "school",
    ];
    for (number, place) in (0..).zip(places) {
        for (half, text) in [
            format!("The {place} office {place}gate opens at nine in the morning."),
            format!("The {place} office {place}gate opens in the morning around nine now."),
        ]
        .into_iter()
        .enumerate()
        {
            bench.clock.move_to(START + number * 2 + half as i64);
            let request = NewEntryRequest { content: text, ..NewEntryRequest::default() };
            bench.memory.put_entry(&bench.scope, request).await.unwrap();
        }
    }
    let done =
        bench.memory.consolidate(&bench.scope, ConsolidationTrigger::OnDemand).await.unwrap();
    assert!(asked.load(Ordering::SeqCst) > 1);
    assert!(done.merged_count > 0, "{done:?}");
}

/// What a dream that two models answer in vain takes of them, and how often they are asked.
async fn dreamt_in_vain(budget: Option<u64>) -> (u64, usize, usize) {
    let first = Arc::new(Told::new("first", |_| reply("I am sorry.")));
    let second = Arc::new(Told::new("second", |_| reply("I am sorry too.")));
    let models = Models { dreams: chain(&[&first, &second]), ..Models::default() };
    let bench = bench(MemorySettings::default(), models).await;
    bench.memory.remember(&bench.scope, "s", numbered(60)).await.unwrap();
    let request = DreamRequest::manual(budget);
    let preview = bench.memory.preview_dream(&bench.scope, request).await.unwrap();
    assert_eq!(preview.archive.distiller, icecore::dreams::dream::EXTRACTIVE);
    let spent: u64 = bench.spent().await.values().map(|one| one.input + one.output).sum();
    (spent, first.sent().len(), second.sent().len())
}

#[tokio::test]
async fn a_dream_spends_its_budget_once_for_all_models() {
    let (ample, first, second) = dreamt_in_vain(Some(100_000)).await;
    assert_eq!((first, second), (1, 1));
    let budget = ample * 3 / 4;
    let (spent, first, second) = dreamt_in_vain(Some(budget)).await;
    assert_eq!((first, second), (1, 0));
    assert!(spent <= budget, "{spent} of {budget}");
}
