//! Consolidation of entries: what is left, that a second pass changes nothing, and
//! what becomes of it when something ends or goes wrong.

use icecore::ids::Position;
use icecore::knowledge::{Consolidation, ConsolidationTrigger, EntryQuery, NewEntryRequest};
use icecore::{
    ForgetRequest, Memory, MemoryBuilder, MemoryError, Millis, Principal, Scope, Tenant,
};
use icecore_store::hooks::Failing;
use icecore_store::{Packs, Store};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::support::{Bench, START, me};

const TWIN: &str = "The annual report is due on the first of June.";

fn saying(content: &str) -> NewEntryRequest {
    NewEntryRequest { content: content.to_owned(), ..NewEntryRequest::default() }
}

async fn put_all(bench: &Bench, contents: &[&str]) -> Vec<String> {
    let mut ids = Vec::new();
    for (n, content) in contents.iter().enumerate() {
        bench.clock.move_to(START + n as i64);
        let put = bench.memory.put_entry(&bench.scope, saying(content)).await.unwrap();
        ids.push(put.id);
    }
    ids
}

async fn consolidate(bench: &Bench) -> Consolidation {
    bench.memory.consolidate(&bench.scope, ConsolidationTrigger::OnDemand).await.unwrap()
}

async fn listed_in(memory: &Memory, scope: &Scope) -> Vec<String> {
    let found = memory.entries(scope, &EntryQuery::default()).await.unwrap().entries;
    found.into_iter().map(|entry| entry.content.into_string()).collect()
}

async fn listed(bench: &Bench) -> Vec<String> {
    listed_in(&bench.memory, &bench.scope).await
}

async fn events(bench: &Bench) -> Vec<Value> {
    let found = bench.memory.events(bench.scope.tenant(), None, Position(0), 10_000).await.unwrap();
    let found = found.into_iter().filter(|event| event.kind == "agent.memory.consolidated");
    found.map(|event| serde_json::from_str(&event.payload).unwrap()).collect()
}

#[tokio::test]
async fn what_was_said_thrice_is_said_once() {
    let bench = Bench::new().await;
    let ids = put_all(&bench, &[TWIN, TWIN, TWIN, "The printer is on the second floor."]).await;
    let done = consolidate(&bench).await;
    assert_eq!((done.input_count, done.output_count), (4, 2));
    assert_eq!(done.merged_ids, ids[..2]);
    let payload = json!({
        "memoryRef": "m",
        "inputCount": 4,
        "outputCount": 2,
        "mergedCount": 2,
        "mergedIds": ids[..2],
        "trigger": "on-demand",
    });
    assert_eq!(serde_json::from_str::<Value>(&done.payload).unwrap(), payload);
    assert_eq!(events(&bench).await, [payload]);
    assert_eq!(listed(&bench).await, ["The printer is on the second floor.", TWIN]);

    let bench = bench.reopen().await;
    let again = consolidate(&bench).await;
    assert_eq!((again.input_count, again.output_count, again.position), (2, 2, None));
    assert_eq!(again.merged_ids, [""; 0]);
    assert_eq!(events(&bench).await.len(), 1, "only what changed something is told");
    let sources = bench.memory.entry_sources(&bench.scope, &ids[2]).await.unwrap();
    assert_eq!(sources.len(), 2);
    bench.check().await;
}

#[tokio::test]
async fn entries_merge_and_give_way() {
    let bench = Bench::new().await;
    put_all(
        &bench,
        &[
            "Ana plans the harbour works in Porto with great care. She is kind.",
            "Ana plans the harbour works in Porto with great care! He is kind.",
            "I live in Porto.",
            "I live in Lisbon.",
        ],
    )
    .await;
    let done = consolidate(&bench).await;
    assert_eq!((done.input_count, done.output_count, done.outputs.len()), (4, 2, 1));
    let mut left = listed(&bench).await;
    left.sort();
    let both = "Ana plans the harbour works in Porto with great care. She is kind. He is kind.";
    assert_eq!(left, [both, "I live in Lisbon."]);
    assert!(consolidate(&bench).await.position.is_none());
    bench.check().await;
}

#[tokio::test]
async fn nothing_at_all_is_nothing_to_do() {
    let bench = Bench::new().await;
    let done = consolidate(&bench).await;
    assert_eq!((done.input_count, done.output_count, done.position), (0, 0, None));
    assert_eq!(events(&bench).await, [Value::Null; 0]);
}

#[tokio::test]
async fn what_gave_way_is_back_when_what_stands_for_it_ends() {
    let bench = Bench::new().await;
    let end = START + 1_000;
    put_all(&bench, &["I live in Porto."]).await;
    let request = NewEntryRequest { expires_at: Some(Millis(end)), ..saying("I live in Lisbon.") };
    bench.clock.move_to(START + 1);
    bench.memory.put_entry(&bench.scope, request).await.unwrap();
    assert_eq!(consolidate(&bench).await.output_count, 1);
    assert_eq!(listed(&bench).await, ["I live in Lisbon."]);
    bench.clock.move_to(end);
    assert_eq!(listed(&bench).await, ["I live in Porto."]);
    bench.check().await;
}

#[tokio::test]
async fn what_gave_way_is_back_when_what_overtook_it_is_taken_back() {
    for is_forgotten in [false, true] {
        let bench = Bench::new().await;
        let ids = put_all(&bench, &["I live in Porto.", "I live in Lisbon.", TWIN, TWIN]).await;
        assert_eq!(consolidate(&bench).await.output_count, 2);
        let mistaken = [&ids[1], &ids[3]];
        for id in mistaken {
            let request = ForgetRequest::Entry(id.clone());
            match is_forgotten {
                false => assert!(bench.memory.delete_entry(&bench.scope, id).await.unwrap()),
                true => drop(bench.memory.forget(&me(), None, &request, false).await.unwrap()),
            }
        }
        assert_eq!(listed(&bench).await, ["I live in Porto."], "{is_forgotten}");
        bench.check().await;
    }
}

#[tokio::test]
async fn to_forget_what_stays_forgets_what_said_the_same() {
    let bench = Bench::new().await;
    let ids = put_all(&bench, &[TWIN, TWIN, "Figs are not."]).await;
    consolidate(&bench).await;
    let request = ForgetRequest::Entry(ids[1].clone());
    bench.memory.forget(&me(), None, &request, false).await.unwrap();
    assert_eq!(listed(&bench).await, ["Figs are not."]);
    assert!(bench.memory.entry(&bench.scope, &ids[0], None).await.is_err());
    bench.check().await;
}

#[tokio::test]
async fn a_secret_registered_since_is_hidden_in_what_is_merged() {
    let bench = Bench::new().await;
    let secret = "kumquat4711zebraParade";
    let told = |end: &str| format!("Ana opens the old vault of the house with {secret}. {end}");
    put_all(&bench, &[&told("She is kind."), &told("He is kind.")]).await;
    let value = Zeroizing::new(secret.to_owned());
    bench.memory.add_secret(me().tenant(), "vault", value, false).await.unwrap();
    let done = consolidate(&bench).await;
    let [output] = &done.outputs[..] else { panic!("{done:?}") };
    assert!(output.content.as_str().contains("[REDACTED:vault]"), "{output:?}");
    assert!(!output.content.as_str().contains(secret));
}

#[tokio::test]
async fn writers_and_deleters_lose_nothing() {
    let bench = Bench::new().await;
    let said = |n: usize| format!("Ship {} calls at Kvalsund in the spring.", n % 10);
    let put = async |n| bench.memory.put_entry(&bench.scope, saying(&said(n))).await.unwrap().id;
    let mut ids = Vec::new();
    for n in 0..40 {
        ids.push(put(n).await);
    }
    let writing = async {
        for n in 0..40 {
            put(n).await;
            tokio::task::yield_now().await;
        }
    };
    let deleting = async {
        // All that speak of ship 3 so far, and so all that stand for one of them.
        for id in ids.iter().skip(3).step_by(10) {
            bench.memory.delete_entry(&bench.scope, id).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let consolidating = async {
        for _ in 0..6 {
            let done = bench.memory.consolidate(&bench.scope, ConsolidationTrigger::OnDemand).await;
            assert!(matches!(done, Ok(_) | Err(MemoryError::EntriesChanged)), "{done:?}");
        }
    };
    tokio::join!(writing, deleting, consolidating);
    consolidate(&bench).await;
    let mut left = listed(&bench).await;
    left.sort();
    left.retain(|content| *content != said(3));
    let expected: Vec<String> = (0..10).filter(|n| *n != 3).map(said).collect();
    assert_eq!(left, expected, "each is said, and once");
    bench.check().await;
}

#[tokio::test]
async fn another_tenants_memory_of_the_same_name_stays_as_it_is() {
    let bench = Bench::new().await;
    let stranger = Principal::local_operator(Tenant::new("stranger").unwrap());
    let theirs = bench.memory.scope(&stranger, "m").await.unwrap();
    for scope in [&bench.scope, &theirs] {
        for _ in 0..2 {
            bench.memory.put_entry(scope, saying(TWIN)).await.unwrap();
        }
    }
    assert_eq!(consolidate(&bench).await.output_count, 1);
    assert_eq!(listed_in(&bench.memory, &theirs).await, [TWIN, TWIN]);
}

#[tokio::test]
async fn interrupted_at_any_write_all_is_old_or_new() {
    for is_lost_answer in [false, true] {
        for nth in 1.. {
            let inner: Store = Store::in_memory([1; 32]);
            let over = |store| MemoryBuilder::default().over(store, Packs::in_memory(), None);
            let memory = over(inner.clone());
            let scope = memory.scope(&me(), "m").await.unwrap();
            for content in [TWIN, TWIN, "Figs are not."] {
                memory.put_entry(&scope, saying(content)).await.unwrap();
            }
            let failing = inner.hooked(Failing::at(nth, is_lost_answer));
            let trigger = ConsolidationTrigger::Scheduled;
            let done = over(failing).consolidate(&scope, trigger).await;
            let left = listed_in(&memory, &scope).await.len();
            assert!(left == 2 || left == 3, "write {nth}: {left}");
            if done.is_ok() {
                assert!(left == 2 && nth > 1);
                break;
            }
            let again = memory.consolidate(&scope, trigger).await.unwrap();
            assert_eq!(again.position.is_none(), left == 2, "write {nth}");
            assert_eq!(again.output_count, 2);
        }
    }
}
