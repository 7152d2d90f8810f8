//! Compaction of entries: what stands for them, for how long, and what is left of
//! them when something goes wrong.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use icecore::ids::Position;
use icecore::knowledge::{
    Compaction, CompactionRequest, ConsolidationTrigger, EntryQuery, EntryRecord, NewEntryRequest,
};
use icecore::maintenance::EventRecord;
use icecore::settings::{CompactionSettings, EntrySettings};
use icecore::{
    Clock, ForgetRequest, Memory, MemoryBuilder, MemoryError, MemorySettings, Millis, Principal,
    Scope, SearchRequest, Tenant,
};
use icecore_store::hooks::Failing;
use icecore_store::testing::Counting;
use icecore_store::{Packs, Store};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use zeroize::Zeroizing;

use crate::redaction::spoil;
use crate::support::{Bench, HandClock, START, me};

const AMPLE: CompactionRequest =
    CompactionRequest { max_input_entries: 1_000, max_output_bytes: 65_536 };

fn saying(content: &str) -> NewEntryRequest {
    NewEntryRequest { content: content.to_owned(), ..NewEntryRequest::default() }
}

async fn put(bench: &Bench, content: &str) -> EntryRecord {
    bench.memory.put_entry(&bench.scope, saying(content)).await.unwrap()
}

async fn put_all(bench: &Bench, contents: &[&str]) -> Vec<String> {
    let mut ids = Vec::new();
    for (n, content) in contents.iter().enumerate() {
        bench.clock.move_to(START + n as i64);
        ids.push(put(bench, content).await.id);
    }
    ids
}

async fn compact(bench: &Bench, request: CompactionRequest) -> Option<Compaction> {
    bench.memory.compact_entries(&bench.scope, request).await.unwrap()
}

async fn listed_in(memory: &Memory, scope: &Scope) -> Vec<String> {
    let found = memory.entries(scope, &EntryQuery::default()).await.unwrap().entries;
    found.into_iter().map(|entry| entry.content.into_string()).collect()
}

async fn listed(bench: &Bench) -> Vec<String> {
    listed_in(&bench.memory, &bench.scope).await
}

async fn events(bench: &Bench, kind: &str) -> Vec<Value> {
    let found = bench.memory.events(bench.scope.tenant(), None, Position(0), 10_000).await;
    let found = found.unwrap().into_iter().filter(|event| event.kind == kind);
    found.map(|event| serde_json::from_str(&event.payload).unwrap()).collect()
}

#[tokio::test]
async fn one_entry_stands_for_all() {
    let bench = Bench::new().await;
    let ids = put_all(&bench, &["Plums are ripe.", "Figs are not.", "Pears fell."]).await;
    let made = compact(&bench, AMPLE).await.unwrap();
    let text = "2026-01-01: Plums are ripe.\n2026-01-01: Figs are not.\n2026-01-01: Pears fell.";
    assert_eq!(made.entry.content.as_str(), text);
    assert_eq!(made.source_ids, ids);
    let payload = json!({
        "memoryRef": "m",
        "outputId": made.entry.id,
        "sourceCount": 3,
        "trigger": "host-managed",
        "byteSize": text.len(),
        "sourceIds": ids,
    });
    assert_eq!(serde_json::from_str::<Value>(&made.payload).unwrap(), payload);
    assert_eq!(events(&bench, "memory.compacted").await, [payload]);

    let bench = bench.reopen().await;
    let read = bench.memory.entry(&bench.scope, &made.entry.id, None).await.unwrap();
    assert_eq!(read, made.entry);
    assert_eq!(listed(&bench).await, [text]);
    let sources = bench.memory.entry_sources(&bench.scope, &made.entry.id).await.unwrap();
    assert_eq!(sources.iter().map(|entry| entry.id.clone()).collect::<Vec<_>>(), ids);
    let found = bench.memory.search(&bench.scope, &SearchRequest::new("figs")).await.unwrap();
    assert_eq!(found.hits.len(), 1, "{:?}", found.hits);
    bench.check().await;
}

#[tokio::test]
async fn the_output_names_its_run_and_what_all_were_tagged_with() {
    let bench = Bench::new().await;
    for (content, tags) in [("a", ["north", "old"]), ("b", ["new", "north"])] {
        let tags = tags.map(str::to_owned).to_vec();
        let request = NewEntryRequest { tags, ..saying(content) };
        bench.memory.put_entry(&bench.scope, request).await.unwrap();
    }
    let first = compact(&bench, AMPLE).await.unwrap().entry;
    put(&bench, "c").await;
    let second = compact(&bench, AMPLE).await.unwrap().entry;
    let tags = |entry: &EntryRecord| {
        entry.tags.iter().map(|tag| tag.as_str().to_owned()).collect::<Vec<_>>()
    };
    let run = |entry: &EntryRecord| {
        let tag = tags(entry).remove(0);
        let name = tag.strip_prefix("compacted-from:").unwrap().to_owned();
        assert!(name.len() == 16 && name.bytes().all(|b| b.is_ascii_hexdigit()), "{tag}");
        name
    };
    assert_ne!(run(&first), run(&second));
    assert_eq!(tags(&first)[1..], ["north"]);
    assert_eq!(tags(&second).len(), 1);
    assert_eq!(second.content.as_str(), "2026-01-01: a\n2026-01-01: b\n2026-01-01: c");
}

#[tokio::test]
async fn of_fewer_than_two_nothing_is_made() {
    let bench = Bench::new().await;
    assert_eq!(compact(&bench, AMPLE).await, None);
    put(&bench, "Alone.").await;
    let tags = vec!["commitment".to_owned()];
    let intention = NewEntryRequest { tags, ..saying("call Ana") };
    bench.memory.put_entry(&bench.scope, intention).await.unwrap();
    assert_eq!(compact(&bench, AMPLE).await, None);
    put(&bench, "Not alone.").await;
    compact(&bench, AMPLE).await.unwrap();
    // What stands for others is not compacted alone.
    assert_eq!(compact(&bench, AMPLE).await, None);
    assert_eq!(listed(&bench).await.len(), 2);
    assert_eq!(events(&bench, "memory.compacted").await.len(), 1);
}

#[tokio::test]
async fn markers_are_carried_forward_in_our_form() {
    let bench = Bench::new().await;
    let (byok, old) = ("[BYOK:hk_live_canary_42]", "<REDACTED:db-prod-creds>");
    put_all(
        &bench,
        &[
            &format!("They signed in with {byok}"),
            &format!("Rotated {old} at noon."),
            "Someone asked for the price list.",
        ],
    )
    .await;
    let text = compact(&bench, AMPLE).await.unwrap().entry.content.into_string();
    assert!(!text.contains(byok) && !text.contains(old), "{text}");
    assert_eq!(text.matches("[REDACTED:").count(), 2, "{text}");
}

#[tokio::test]
async fn a_secret_registered_since_is_hidden_in_the_output() {
    let bench = Bench::new().await;
    let secret = "kumquat4711zebraParade";
    put_all(&bench, &[&format!("The vault opens with {secret}."), "Figs are not ripe."]).await;
    let value = Zeroizing::new(secret.to_owned());
    bench.memory.add_secret(me().tenant(), "vault", value, false).await.unwrap();
    let made = compact(&bench, AMPLE).await.unwrap();
    assert!(made.entry.content.as_str().contains("opens with [REDACTED:vault]."), "{made:?}");
    assert!(!made.payload.contains(secret));
    // As it is stored, whoever reads it.
    let now = bench.memory.now();
    let stored =
        icecore::extend::store(&bench.memory).entry(&bench.scope, &made.entry.id, None, now).await;
    assert!(!stored.unwrap().unwrap().content.as_str().contains(secret));
    let sources = bench.memory.entry_sources(&bench.scope, &made.entry.id).await.unwrap();
    assert!(sources.iter().all(|entry| !entry.content.as_str().contains(secret)));
}

#[tokio::test]
async fn nothing_is_quoted_past_its_end() {
    let bench = Bench::new().await;
    let end = START + 1_000;
    for (content, expires_at) in
        [("for good", None), ("for a while", Some(end)), ("longer", Some(end + 1_000))]
    {
        let expires_at = expires_at.map(Millis);
        let request = NewEntryRequest { expires_at, ..saying(content) };
        bench.memory.put_entry(&bench.scope, request).await.unwrap();
    }
    let made = compact(&bench, AMPLE).await.unwrap();
    assert_eq!(made.entry.expires_at, Some(Millis(end)));
    bench.clock.move_to(end - 1);
    assert_eq!(listed(&bench).await, [made.entry.content.as_str()]);
    // What does not end yet is back at that very moment.
    bench.clock.move_to(end);
    let mut back = listed(&bench).await;
    back.sort();
    assert_eq!(back, ["for good", "longer"]);
    bench.check().await;
}

#[tokio::test]
async fn outputs_keep_to_every_limit() {
    let entries = EntrySettings { bytes: 300, ..EntrySettings::default() };
    for max_output_bytes in [1, 40, 299, 300, 301, 1 << 20] {
        let settings = MemorySettings { entries: entries.clone(), ..MemorySettings::default() };
        let bench = Bench::with(settings).await;
        for n in 0..30 {
            put(&bench, &format!("We decided that ship {n} calls at port {}.", n * 7)).await;
        }
        let request = CompactionRequest { max_input_entries: 20, max_output_bytes };
        let made = compact(&bench, request).await.unwrap();
        let bytes = made.entry.content.as_str().len();
        assert!(bytes <= max_output_bytes.min(300), "{bytes} of {max_output_bytes}");
        assert!(bytes > 0 || max_output_bytes < 4, "{max_output_bytes}");
        assert_eq!(made.source_ids.len(), 20);
        assert_eq!(listed(&bench).await.len(), 11);
    }
}

#[tokio::test]
async fn thousands_become_few_once_they_are_left_alone() {
    let compaction = CompactionSettings {
        entries: 1_000,
        keep_entries: 100,
        input_entries: 900,
        ..CompactionSettings::default()
    };
    let settings = MemorySettings { compaction, ..MemorySettings::default() };
    let bench = Bench::with(settings).await;
    let other = bench.memory.scope(&me(), "other").await.unwrap();
    for n in 0..2_500 {
        bench.clock.move_to(START + n);
        put(&bench, &format!("Ship {n} of the northern line calls at Kvalsund.")).await;
        if n % 100 == 0 {
            bench.memory.put_entry(&other, saying(&format!("few {n}"))).await.unwrap();
        }
    }
    let idle = bench.memory.compaction_settings().idle_seconds as i64 * 1_000;
    bench.clock.move_to(START + 2_499 + idle - 1);
    assert_eq!(bench.memory.compact_due().await.unwrap(), 0, "not yet");
    bench.clock.move_to(START + 2_499 + idle);
    assert_eq!(bench.memory.compact_due().await.unwrap(), 2);
    assert_eq!(bench.memory.compact_due().await.unwrap(), 0);

    let left = bench.memory.entries(&bench.scope, &EntryQuery::default()).await.unwrap().entries;
    let outputs: Vec<&EntryRecord> = left.iter().filter(|entry| entry.derived).collect();
    assert_eq!(outputs.len(), 2);
    // Those that came last are as they were.
    assert_eq!(left.iter().filter(|entry| !entry.derived).count(), 498);
    let newest = left.iter().find(|entry| !entry.derived).unwrap();
    assert_eq!(newest.content.as_str(), "Ship 2499 of the northern line calls at Kvalsund.");
    for event in events(&bench, "memory.compacted").await {
        assert_eq!(event["sourceCount"], 900);
        assert_eq!(event.get("sourceIds"), None, "too many to be named");
    }
    assert_eq!(listed_in(&bench.memory, &other).await.len(), 25);
    bench.check().await;
}

#[tokio::test]
async fn what_is_switched_off_does_nothing() {
    let compaction =
        CompactionSettings { entries: 0, idle_seconds: 0, ..CompactionSettings::default() };
    let bench = Bench::with(MemorySettings { compaction, ..MemorySettings::default() }).await;
    put_all(&bench, &["a", "b", "c"]).await;
    assert_eq!(bench.memory.compact_due().await.unwrap(), 0);
    assert_eq!(listed(&bench).await.len(), 3);
    // By hand it goes on.
    assert!(compact(&bench, AMPLE).await.is_some());
}

#[tokio::test]
async fn the_worker_compacts() {
    let compaction = CompactionSettings {
        entries: 3,
        idle_seconds: 0,
        keep_entries: 1,
        ..CompactionSettings::default()
    };
    let bench = Bench::with(MemorySettings { compaction, ..MemorySettings::default() }).await;
    put_all(&bench, &["a", "b", "c"]).await;
    let compacted = async {
        while listed(&bench).await.len() > 2 {
            tokio::task::yield_now().await;
        }
    };
    let patience = std::time::Duration::from_secs(60);
    let working = bench.memory.work_until(compacted);
    tokio::time::timeout(patience, working).await.expect("nothing was compacted");
    let mut left = listed(&bench).await;
    left.sort();
    assert_eq!(left, ["2026-01-01: a\n2026-01-01: b", "c"]);
}

/// A memory over a store that counts what is read.
async fn counted(compaction: CompactionSettings) -> (Memory, Scope, Arc<Counting>, Arc<HandClock>) {
    let counting = Counting::new();
    let store = Store::in_memory([1; 32]).hooked(counting.clone());
    let clock = Arc::new(HandClock::default());
    clock.move_to(START);
    let memory = MemoryBuilder::default()
        .settings(MemorySettings { compaction, ..MemorySettings::default() })
        .clock(Arc::clone(&clock) as Arc<dyn Clock>)
        .over(store, Packs::in_memory(), None);
    let scope = memory.scope(&me(), "m").await.unwrap();
    (memory, scope, counting, clock)
}

const SMALL: CompactionSettings = CompactionSettings {
    entries: 100,
    idle_seconds: 0,
    keep_entries: 10,
    input_entries: 90,
    output_bytes: 65_536,
};

#[tokio::test]
async fn what_a_compaction_reads_does_not_grow_with_the_memory() {
    for count in [500, 3_000] {
        let (memory, scope, store, _) = counted(SMALL).await;
        for n in 0..count {
            memory.put_entry(&scope, saying(&format!("Ship {n} calls."))).await.unwrap();
        }
        store.take_reads();
        let written = memory.compact_due().await.unwrap();
        assert!(written >= count / 90 - 1, "{written} of {count}");
        let reads = store.take_reads();
        let rows = |method| reads.get(method).map_or(0, |count| count.rows);
        // Whether it is crowded, the oldest, and those behind them.
        assert!(rows("oldest_places") <= (written + 1) * (100 + 510), "{reads:?}");
        assert!(rows("entries_at") <= written * 500, "{reads:?}");
        assert_eq!(rows("entry_places") + rows("entries"), 0, "{reads:?}");
    }
}

#[tokio::test]
async fn memories_take_turns() {
    let (memory, scope, _, _) = counted(SMALL).await;
    let other = memory.scope(&me(), "other").await.unwrap();
    for n in 0..300 {
        for scope in [&scope, &other] {
            memory.put_entry(scope, saying(&format!("Ship {n} calls."))).await.unwrap();
        }
    }
    assert_eq!(memory.compact_due().await.unwrap(), 6);
    let told = memory.events(scope.tenant(), None, Position(0), 10_000).await.unwrap();
    let told = told.into_iter().filter(|event| event.kind == "memory.compacted");
    let payload = |event: EventRecord| serde_json::from_str::<Value>(&event.payload).unwrap();
    let turns: Vec<Value> = told.map(|event| payload(event)["memoryRef"].clone()).collect();
    assert_eq!(turns, ["m", "other", "m", "other", "m", "other"]);
}

#[tokio::test]
async fn what_cannot_be_compacted_is_left_alone_until_something_changes() {
    let (memory, scope, store, clock) = counted(SMALL).await;
    for n in 0..120 {
        let tags = vec!["commitment".to_owned()];
        let intention = NewEntryRequest { tags, ..saying(&format!("call Ana {n}")) };
        memory.put_entry(&scope, intention).await.unwrap();
    }
    let is_tried = async || {
        store.take_reads();
        assert_eq!(memory.compact_due().await.unwrap(), 0);
        store.take_reads().contains_key("entries_at")
    };
    let minutes = |n: i64| clock.move_to(START + n * 60_000);
    assert!(is_tried().await);
    assert!(!is_tried().await);
    minutes(11);
    assert!(!is_tried().await, "nothing has changed");
    let other = memory.scope(&me(), "other").await.unwrap();
    memory.put_entry(&other, saying("news")).await.unwrap();
    assert!(is_tried().await);
    memory.put_entry(&other, saying("more news")).await.unwrap();
    assert!(!is_tried().await, "not with every write");
    minutes(22);
    assert!(is_tried().await);
}

#[tokio::test]
async fn what_ends_soon_does_not_take_along_what_lasts() {
    let bench =
        Bench::with(MemorySettings { compaction: SMALL, ..MemorySettings::default() }).await;
    for n in 0..120 {
        let expires_at = (n == 7).then_some(Millis(START + 900_000));
        let request = NewEntryRequest { expires_at, ..saying(&format!("Ship {n} calls.")) };
        bench.memory.put_entry(&bench.scope, request).await.unwrap();
    }
    assert_eq!(bench.memory.compact_due().await.unwrap(), 1);
    let left = bench.memory.entries(&bench.scope, &EntryQuery::default()).await.unwrap().entries;
    let made: Vec<&EntryRecord> = left.iter().filter(|entry| entry.derived).collect();
    assert_eq!(made.len(), 1);
    assert_eq!(made[0].expires_at, None);
    let soon: Vec<&str> = left
        .iter()
        .filter(|entry| entry.expires_at.is_some())
        .map(|entry| entry.content.as_str())
        .collect();
    assert_eq!(soon, ["Ship 7 calls."]);
    bench.check().await;
}

#[tokio::test]
async fn what_is_found_by_a_tag_stays_so() {
    let entries = EntrySettings { tags: 2, ..EntrySettings::default() };
    let settings = MemorySettings { compaction: SMALL, entries, ..MemorySettings::default() };
    let bench = Bench::with(settings).await;
    for n in 0..210 {
        let tags: &[&str] = match n % 3 {
            0 => &["subject:Ana"],
            1 => &["subject:Bo", "owes"],
            _ => &[],
        };
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        let request = NewEntryRequest { tags, ..saying(&format!("Ship {n} calls.")) };
        bench.memory.put_entry(&bench.scope, request).await.unwrap();
    }
    assert_eq!(bench.memory.compact_due().await.unwrap(), 2);
    let found = async |tag: &str| {
        let query = EntryQuery { tag: Some(tag.to_owned()), ..EntryQuery::default() };
        let found = bench.memory.entries(&bench.scope, &query).await.unwrap().entries;
        let all: Vec<String> = found.iter().map(|entry| entry.content.to_string()).collect();
        all.join("\n")
    };
    let (anas, bos) = (found("subject:Ana").await, found("subject:Bo").await);
    for n in 0..210 {
        let ship = format!("Ship {n} calls.");
        assert_eq!(anas.contains(&ship), n % 3 == 0, "{ship}");
        assert_eq!(bos.contains(&ship), n % 3 == 1, "{ship}");
    }
    bench.check().await;
}

#[tokio::test]
async fn where_nobody_writes_the_worker_does_not_compact() {
    let compaction = CompactionSettings {
        entries: 3,
        idle_seconds: 0,
        keep_entries: 1,
        ..CompactionSettings::default()
    };
    let entries = EntrySettings { snapshot_seconds: 0, ..EntrySettings::default() };
    let settings = MemorySettings { compaction, entries, ..MemorySettings::default() };
    let bench = Bench::with(settings).await;
    put_all(&bench, &["a", "b", "c"]).await;
    let expires_at = Some(Millis(START + 10));
    let short = NewEntryRequest { expires_at, ..saying("short") };
    bench.memory.put_entry(&bench.scope, short).await.unwrap();
    bench.clock.move_to(START + 1_000);
    // What is past its time goes, which shows that it is at work.
    let purged = async {
        while events(&bench, "memory.expired").await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let patience = std::time::Duration::from_secs(60);
    let working = bench.memory.keep_until(purged);
    tokio::time::timeout(patience, working).await.expect("nothing was purged");
    let mut left = listed(&bench).await;
    left.sort();
    assert_eq!(left, ["a", "b", "c"]);
}

#[tokio::test]
async fn writers_and_deleters_lose_nothing() {
    let bench = Bench::new().await;
    let mut ids = Vec::new();
    for n in 0..60 {
        ids.push(put(&bench, &format!("early {n}.")).await.id);
    }
    let writing = async {
        let mut put_ids = Vec::new();
        for n in 0..40 {
            put_ids.push(put(&bench, &format!("late {n}.")).await.id);
            tokio::task::yield_now().await;
        }
        put_ids
    };
    let deleting = async {
        let mut deleted = Vec::new();
        for id in ids.iter().step_by(7) {
            if bench.memory.delete_entry(&bench.scope, id).await.unwrap() {
                deleted.push(id.clone());
            }
            tokio::task::yield_now().await;
        }
        deleted
    };
    let compacting = async {
        let mut made = Vec::new();
        let request = CompactionRequest { max_input_entries: 10, ..AMPLE };
        for _ in 0..12 {
            match bench.memory.compact_entries(&bench.scope, request).await {
                Ok(done) => made.extend(done),
                Err(error) => assert!(matches!(error, MemoryError::EntriesChanged), "{error}"),
            }
        }
        made
    };
    let (late, deleted, made) = tokio::join!(writing, deleting, compacting);
    assert!(!made.is_empty());
    let all: Vec<String> = ids.iter().chain(&late).cloned().collect();
    // Everything that was not deleted is in force, or something in force stands for it.
    let left = bench.memory.entries(&bench.scope, &EntryQuery::default()).await.unwrap().entries;
    let mut covered: BTreeSet<String> = BTreeSet::new();
    let mut open: Vec<String> = left.into_iter().map(|entry| entry.id).collect();
    while let Some(id) = open.pop() {
        let sources = bench.memory.entry_sources(&bench.scope, &id).await.unwrap();
        open.extend(sources.into_iter().map(|entry| entry.id));
        covered.insert(id);
    }
    for id in &all {
        assert!(covered.contains(id) || deleted.contains(id), "{id} is lost");
    }
    bench.check().await;
}

#[tokio::test]
async fn to_forget_a_source_forgets_what_quotes_it() {
    let bench = Bench::new().await;
    let ids = put_all(&bench, &["Ana owes a plum.", "Figs are not.", "Pears fell."]).await;
    let made = compact(&bench, AMPLE).await.unwrap();
    let request = ForgetRequest::Entry(ids[0].clone());
    bench.memory.forget(&me(), None, &request, false).await.unwrap();
    assert!(bench.memory.entry(&bench.scope, &made.entry.id, None).await.is_err());
    let mut back = listed(&bench).await;
    back.sort();
    assert_eq!(back, ["Figs are not.", "Pears fell."]);
    let found = bench.memory.search(&bench.scope, &SearchRequest::new("plum")).await.unwrap();
    assert!(found.hits.iter().all(|hit| !hit.text.contains("plum")), "{:?}", found.hits);
    bench.check().await;
}

#[tokio::test]
async fn another_tenants_memory_of_the_same_name_stays_as_it_is() {
    let bench = Bench::new().await;
    let stranger = Principal::local_operator(Tenant::new("stranger").unwrap());
    let theirs = bench.memory.scope(&stranger, "m").await.unwrap();
    for scope in [&bench.scope, &theirs] {
        for content in ["one", "two"] {
            bench.memory.put_entry(scope, saying(content)).await.unwrap();
        }
    }
    let made = compact(&bench, AMPLE).await.unwrap();
    assert_eq!(listed_in(&bench.memory, &theirs).await, ["two", "one"]);
    assert!(bench.memory.entry(&theirs, &made.entry.id, None).await.is_err());
    assert!(bench.memory.entry_sources(&theirs, &made.entry.id).await.is_err());
}

#[tokio::test]
async fn interrupted_at_any_write_all_is_old_or_new() {
    let contents = ["Plums are ripe.", "Figs are not.", "Pears fell."];
    for is_lost_answer in [false, true] {
        for nth in 1.. {
            let inner: Store = Store::in_memory([1; 32]);
            let clock = Arc::new(HandClock::default());
            clock.move_to(START);
            let over = |store: Store| {
                let clock = Arc::clone(&clock) as Arc<dyn Clock>;
                MemoryBuilder::default().clock(clock).over(store, Packs::in_memory(), None)
            };
            let memory = over(inner.clone());
            let scope = memory.scope(&me(), "m").await.unwrap();
            for content in contents {
                memory.put_entry(&scope, saying(content)).await.unwrap();
            }
            let before = listed_in(&memory, &scope).await;
            let failing = Failing::at(nth, is_lost_answer);
            let done = over(inner.hooked(failing)).compact_entries(&scope, AMPLE).await;
            let after = listed_in(&memory, &scope).await;
            let is_new = after.len() == 1 && contents.iter().all(|one| after[0].contains(one));
            assert!(is_new || after == before, "write {nth}: {after:?}");
            if done.is_ok() {
                assert!(is_new && nth > 1);
                break;
            }
            // The next attempt finishes, or finds that nothing is left to do.
            let again = memory.compact_entries(&scope, AMPLE).await.unwrap();
            assert_eq!(again.is_none(), is_new, "write {nth}");
        }
    }
}

#[tokio::test]
async fn without_its_secrets_nothing_is_compacted() {
    let bench = Bench::new().await;
    put_all(&bench, &["Plums are ripe.", "Figs are not."]).await;
    let value = Zeroizing::new("kumquat4711zebraParade".to_owned());
    bench.memory.add_secret(me().tenant(), "fruit", value, false).await.unwrap();
    spoil(&bench);
    let bench = bench.reopen().await;
    let failed = bench.memory.compact_entries(&bench.scope, AMPLE).await.unwrap_err();
    assert!(matches!(failed, MemoryError::CompactionRedactionFailed { .. }), "{failed}");
    assert!(failed.to_string().starts_with("compaction_redaction_failed: "), "{failed}");
    let trigger = ConsolidationTrigger::OnDemand;
    let failed = bench.memory.consolidate(&bench.scope, trigger).await.unwrap_err();
    assert!(matches!(failed, MemoryError::CompactionRedactionFailed { .. }), "{failed}");

    bench.memory.remove_secret(me().tenant(), "fruit").await.unwrap();
    assert_eq!(listed(&bench).await, ["Figs are not.", "Plums are ripe."]);
    assert_eq!(events(&bench, "memory.compacted").await, [Value::Null; 0]);
    assert!(compact(&bench, AMPLE).await.is_some());
}

/// Hears what is told of the work, as one line for each event.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

impl Subscriber for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().target().to_owned());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn it_is_told_without_content() {
    let bench = Bench::new().await;
    put_all(&bench, &["Plums are ripe.", "Figs are not."]).await;
    let listener = Listener::default();
    // With one listener alone, a test on another thread that comes to a place first
    // would decide for all that nobody listens there.
    let _another = tracing::Dispatch::new(listener.clone());
    let listening = tracing::subscriber::set_default(listener.clone());
    let made = compact(&bench, AMPLE).await.unwrap();
    drop(listening);
    let heard = listener.0.lock().unwrap().clone();
    let told: Vec<&String> =
        heard.iter().filter(|line| line.starts_with("openwop.memory.compacted ")).collect();
    let [told] = told[..] else { panic!("{heard:?}") };
    assert!(told.contains(&made.entry.id) && told.contains("source_count=2"), "{told}");
    assert!(heard.iter().all(|line| !line.contains("Plums")), "{heard:?}");
}
