//! Models behind HTTP: a server of ours that can fail in every way.

use std::sync::Arc;
use std::time::Duration;

use icecore::layers::Level;
use icecore::models::{ChatModel, ModelChain, Models, Prices};
use icecore_models::testing::{Behaviour, Upstream, UpstreamConfig, UpstreamRequest};
use icecore_models::{ChatClient, ChatClientConfig};

use crate::models::{Bench, able_reply, bench, key, small};
use crate::support::numbered;

async fn upstream() -> Upstream {
    let answer = Arc::new(|request: &UpstreamRequest| able_reply("wired", &request.text()));
    Upstream::start(UpstreamConfig { answer, ..UpstreamConfig::default() }).await
}

fn client(upstream: &Upstream) -> Arc<dyn ChatModel> {
    let config = ChatClientConfig {
        prices: Prices { input: 1_000_000, cached_input: 1_000_000, output: 1_000_000 },
        timeout: Duration::from_secs(20),
        idle: Duration::from_secs(1),
        retries: 0,
        ..upstream.client_config()
    };
    Arc::new(ChatClient::new(config).unwrap())
}

async fn wired(upstream: &Upstream) -> Bench {
    let summaries = ModelChain(vec![client(upstream)]);
    bench(small(), Models { summaries, ..Models::default() }).await
}

async fn talk(bench: &Bench, session: &str) {
    bench.memory.remember(&bench.scope, session, numbered(16)).await.unwrap();
    bench.settle().await;
}

async fn summaries(bench: &Bench) -> Vec<String> {
    let chunks = bench.memory.chunks(&bench.scope, None).await.unwrap();
    assert!(chunks.iter().any(|chunk| chunk.id.level == Level::Macro));
    chunks.into_iter().map(|chunk| chunk.summary.unwrap().text).collect()
}

#[tokio::test]
async fn a_rebuild_sends_no_request() {
    let upstream = upstream().await;
    let bench = wired(&upstream).await;
    talk(&bench, "s").await;
    let before = summaries(&bench).await;
    assert!(before.iter().all(|text| text.contains("wired says")), "{before:?}");
    assert_eq!(upstream.request_count(), before.len());
    bench.memory.reindex(&bench.scope, |_, _| {}).await.unwrap();
    assert_eq!(summaries(&bench).await, before);
    assert_eq!(upstream.request_count(), before.len());
    let spent: Vec<_> = bench.spent().await.into_values().collect();
    assert_eq!((spent[0].calls, spent[0].reused), (14, 14));
    assert!(spent[0].cost >= spent[0].input + spent[0].output);
}

#[tokio::test]
async fn whatever_the_server_does_all_is_settled() {
    let without = {
        let bench = bench(small(), Models::default()).await;
        talk(&bench, "s").await;
        summaries(&bench).await
    };
    let ways: Vec<(&str, Behaviour)> = vec![
        ("overflow", Behaviour::Overflow),
        ("overflow later", Behaviour::OverflowAfter("SUMMARY: Number".to_owned())),
        ("filtered", Behaviour::Filtered),
        ("garbage", Behaviour::Answer("I would rather not.".to_owned())),
        ("cut", Behaviour::Length("SUMMARY: Number 1 speaks of".to_owned())),
    ];
    for (name, way) in ways {
        let upstream = upstream().await;
        upstream.push_all(std::iter::repeat_n(way, 64));
        let bench = wired(&upstream).await;
        talk(&bench, "s").await;
        assert_eq!(summaries(&bench).await, without, "{name}");
        assert!(bench.memory.counters().model_fallbacks > 0, "{name}");
    }
}

#[tokio::test]
async fn a_server_that_has_gone_stalls_nothing() {
    let upstream = upstream().await;
    let model = client(&upstream);
    drop(upstream);
    let models = Models { summaries: ModelChain(vec![model]), ..Models::default() };
    let bench = bench(small(), models).await;
    talk(&bench, "s").await;
    talk(&bench, "t").await;
    let name = bench.spent().await.keys().next().unwrap().1.clone();
    let spent = bench.spent().await[&key("summary", &name)].clone();
    assert!(spent.calls as usize <= icecore::models::SUMMARIES_AT_ONCE, "{spent:?}");
    assert_eq!((spent.failed, spent.input), (spent.calls, 0));
}
