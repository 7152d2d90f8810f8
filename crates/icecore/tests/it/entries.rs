//! Long-term entries: put, listed, found, expired, deleted, purged.

use icecore::ids::Position;
use icecore::knowledge::{EntryError, EntryQuery, EntryRank, EntryRecord, NewEntryRequest};
use icecore::layers::Found;
use icecore::recall::{DocKind, Mode};
use icecore::settings::EntrySettings;
use icecore::store::StoreError;
use icecore::{
    ForgetRequest, Memory, MemoryError, MemorySettings, Millis, Principal, Scope, SearchRequest,
    Tenant,
};
use icecore_store::{Derivation, DerivationKind, DerivedEntry, Replaced, Successor};
use zeroize::Zeroizing;

use crate::support::{Bench, START, me, numbered};

fn saying(content: &str) -> NewEntryRequest {
    NewEntryRequest { content: content.to_owned(), ..NewEntryRequest::default() }
}

fn tagged(content: &str, tags: &[&str]) -> NewEntryRequest {
    let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
    NewEntryRequest { tags, ..saying(content) }
}

fn until(content: &str, expires_at: i64) -> NewEntryRequest {
    NewEntryRequest { expires_at: Some(Millis(expires_at)), ..saying(content) }
}

async fn put(bench: &Bench, request: NewEntryRequest) -> EntryRecord {
    bench.memory.put_entry(&bench.scope, request).await.unwrap()
}

async fn listed_in(memory: &Memory, scope: &Scope, query: &EntryQuery) -> Vec<String> {
    let found = memory.entries(scope, query).await.unwrap().entries;
    found.into_iter().map(|entry| entry.content.into_string()).collect()
}

async fn listed(bench: &Bench, query: EntryQuery) -> Vec<String> {
    listed_in(&bench.memory, &bench.scope, &query).await
}

async fn found(bench: &Bench, query: &str) -> Vec<String> {
    let found = bench.memory.search(&bench.scope, &SearchRequest::new(query)).await.unwrap();
    found.hits.into_iter().map(|hit| hit.text).collect()
}

/// Whether any file of the memory holds these words.
fn is_in_files(dir: &std::path::Path, words: &str) -> bool {
    std::fs::read_dir(dir).unwrap().any(|file| {
        let path = file.unwrap().path();
        match path.is_dir() {
            true => is_in_files(&path, words),
            false => {
                let bytes = std::fs::read(&path).unwrap();
                bytes.windows(words.len()).any(|part| part == words.as_bytes())
            }
        }
    })
}

#[tokio::test]
async fn an_entry_comes_back_as_it_was_put() {
    let bench = Bench::new().await;
    let entry = put(&bench, tagged("The ferry leaves at nine.", &["travel", "", "travel"])).await;
    assert_eq!(entry.created_at, Millis(START));
    assert_eq!(entry.tags.iter().map(|tag| tag.as_str()).collect::<Vec<_>>(), ["travel"]);
    let bench = bench.reopen().await;
    let again = bench.memory.entry(&bench.scope, &entry.id, None).await.unwrap();
    assert_eq!(again, entry);
    let shown = bench.memory.find(&bench.scope, &entry.id).await.unwrap();
    assert!(matches!(shown, Found::Entry(found) if found == entry));
    assert_eq!(found(&bench, "When does the ferry leave?").await, ["The ferry leaves at nine."]);
    let empty = put(&bench, saying("")).await;
    assert_ne!(empty.id, entry.id);
    assert_eq!(listed(&bench, EntryQuery::default()).await, ["", "The ferry leaves at nine."]);
    bench.check().await;
}

#[tokio::test]
async fn an_entry_lives_to_its_last_millisecond() {
    let bench = Bench::new().await;
    let end = START + 1_500;
    let short = put(&bench, until("gone in a moment", end)).await;
    put(&bench, saying("here for good")).await;
    assert_eq!(short.expires_at, Some(Millis(end)));
    let seen = async |moment: &str| {
        let is_listed = listed(&bench, EntryQuery::default()).await.len() == 2;
        let past = EntryQuery { at: Some(short.began), ..EntryQuery::default() };
        let was_listed = listed(&bench, past).await.len() == 1;
        let is_read = bench.memory.entry(&bench.scope, &short.id, None).await.is_ok();
        let is_found = found(&bench, "gone in a moment").await.contains(&"gone in a moment".into());
        let count = bench.memory.stats(bench.scope.tenant(), None).await.unwrap().store.entries;
        let all = [is_listed, was_listed, is_read, is_found, count == 2];
        assert!(all.iter().all(|one| *one == is_listed), "{moment}: {all:?}");
        is_listed
    };
    assert!(seen("at first").await);
    bench.clock.move_to(end - 1);
    assert!(seen("before").await);
    bench.clock.move_to(end);
    assert!(!seen("at its end").await);
    assert!(!bench.memory.delete_entry(&bench.scope, &short.id).await.unwrap());
}

#[tokio::test]
async fn what_cannot_be_an_entry_is_refused() {
    let entries = EntrySettings { bytes: 10, tags: 2, tag_chars: 3, ..EntrySettings::default() };
    let bench = Bench::with(MemorySettings { entries, ..MemorySettings::default() }).await;
    let refused = async |request| match bench.memory.put_entry(&bench.scope, request).await {
        Err(MemoryError::Entry(error)) => error,
        other => panic!("{other:?}"),
    };
    put(&bench, tagged("ééééé", &["abc", "äöü", "abc"])).await;
    let large = refused(saying("éééééx")).await;
    assert_eq!(large, EntryError::ContentTooLarge { bytes: 11, most: 10 });
    assert!(large.to_string().contains("`entry_bytes`"));
    let many = refused(tagged("", &["a", "b", "c"])).await;
    assert_eq!(many, EntryError::TooManyTags { count: 3, most: 2 });
    let long = refused(tagged("", &["", "abcd"])).await;
    assert_eq!(long, EntryError::TagTooLong { index: 1, chars: 4, most: 3 });
    assert_eq!(refused(until("", START)).await, EntryError::Expired);
    assert_eq!(refused(until("", START - 1)).await, EntryError::Expired);
    put(&bench, until("", START + 1)).await;

    let asked = async |query| match bench.memory.entries(&bench.scope, &query).await {
        Err(MemoryError::Entry(error)) => error,
        other => panic!("{other:?}"),
    };
    let usual = EntryQuery::default;
    let tag = |tag: &str| EntryQuery { tag: Some(tag.to_owned()), ..usual() };
    assert_eq!(asked(tag("")).await, EntryError::BadTag { most: 3 });
    assert_eq!(asked(tag("abcd")).await, EntryError::BadTag { most: 3 });
    assert_eq!(asked(EntryQuery { token_budget: Some(0), ..usual() }).await, EntryError::NoBudget);
    for query in [None, Some(String::new()), Some("x".repeat(4_097))] {
        let query = EntryQuery { rank: EntryRank::Relevance, query, ..usual() };
        assert_eq!(asked(query).await, EntryError::BadQuery);
    }
    // What is not asked for is ignored.
    listed(&bench, EntryQuery { query: Some("x".repeat(5_000)), ..usual() }).await;
}

#[tokio::test]
async fn a_list_is_narrowed_by_tag_limit_and_budget() {
    let bench = Bench::new().await;
    for (n, size) in [40, 500, 40, 70].into_iter().enumerate() {
        bench.clock.move_to(START + n as i64);
        let tag = if n % 2 == 0 { "even" } else { "odd" };
        put(&bench, tagged(&n.to_string().repeat(size), &[tag])).await;
    }
    let first = |query| async {
        let found = listed(&bench, query).await;
        found.iter().map(|content| content[..1].to_owned()).collect::<String>()
    };
    let usual = EntryQuery::default;
    let tag = |tag: &str| Some(tag.to_owned());
    assert_eq!(first(usual()).await, "3210");
    assert_eq!(first(EntryQuery { limit: 2, ..usual() }).await, "32");
    assert_eq!(first(EntryQuery { limit: 9_999, ..usual() }).await, "3210");
    assert_eq!(first(EntryQuery { tag: tag("even"), ..usual() }).await, "20");
    assert_eq!(first(EntryQuery { tag: tag("eve"), ..usual() }).await, "");
    let budget = |size| EntryQuery { token_budget: Some(size), ..usual() };
    assert_eq!(first(budget(150)).await, "320");
    assert_eq!(first(budget(110)).await, "32");
    assert_eq!(first(budget(109)).await, "3");
    assert_eq!(first(budget(69)).await, "2");
    assert_eq!(first(budget(39)).await, "");
    assert_eq!(first(budget(650)).await, "3210");
    assert_eq!(first(EntryQuery { limit: 1, ..budget(69) }).await, "2");
    assert_eq!(first(EntryQuery { tag: tag("even"), ..budget(80) }).await, "20");
    assert_eq!(bench.memory.entry_budget_counter().as_str(), "chars");
}

#[tokio::test]
async fn entries_are_ranked_by_what_they_answer() {
    let bench = Bench::new().await;
    bench.talk("s", 12).await;
    for (n, (content, tag)) in [
        ("The lighthouse keeper of Kvalsund collects sextants.", "north"),
        ("Bread rises better in a warm kitchen.", "home"),
        ("A keeper of bees wears a veil.", "home"),
        ("The train to Porto was late again.", "south"),
    ]
    .into_iter()
    .enumerate()
    {
        bench.clock.move_to(START + n as i64);
        put(&bench, tagged(content, &[tag])).await;
    }
    let asked = |query: &str| EntryQuery {
        rank: EntryRank::Relevance,
        query: Some(query.to_owned()),
        ..EntryQuery::default()
    };
    let lighthouse = asked("lighthouse keeper Kvalsund");
    let ranked = listed(&bench, lighthouse.clone()).await;
    assert_eq!(ranked.len(), 4, "{ranked:?}");
    assert!(ranked[0].starts_with("The lighthouse"), "{ranked:?}");
    let recent = listed(&bench, EntryQuery::default()).await;
    assert!(recent[3].starts_with("The lighthouse"), "{recent:?}");
    let home = EntryQuery { tag: Some("home".to_owned()), ..lighthouse.clone() };
    let ranked = listed(&bench, home).await;
    assert_eq!(ranked.len(), 2, "{ranked:?}");
    assert!(ranked[0].starts_with("A keeper"), "{ranked:?}");
    let one = listed(&bench, EntryQuery { limit: 1, ..lighthouse.clone() }).await;
    assert!(one.len() == 1 && one[0].starts_with("The lighthouse"), "{one:?}");
    let budget = EntryQuery { token_budget: Some(60), ..lighthouse };
    assert!(listed(&bench, budget).await[0].starts_with("The lighthouse"));
    // What nothing answers is the newest.
    assert_eq!(listed(&bench, asked("zzz qqq")).await.len(), 4);
}

#[tokio::test]
async fn without_vectors_entries_are_ranked_by_words_and_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::builder().embedder(None).open(dir.path()).await.unwrap();
    let scope = memory.scope(&me(), "m").await.unwrap();
    for content in ["The ferry leaves at nine.", "Bread rises."] {
        memory.put_entry(&scope, saying(content)).await.unwrap();
    }
    let query = EntryQuery {
        rank: EntryRank::Relevance,
        query: Some("ferry".to_owned()),
        ..EntryQuery::default()
    };
    let found = memory.entries(&scope, &query).await.unwrap();
    assert_eq!(found.entries[0].content.as_str(), "The ferry leaves at nine.");
    assert!(found.notices[0].contains("words alone"), "{:?}", found.notices);
}

#[tokio::test]
async fn a_deleted_entry_is_found_by_nobody_and_hides_nothing() {
    let bench = Bench::new().await;
    put(&bench, saying("Somebody mentioned sextants once, in passing, at the harbour.")).await;
    let mut gone = Vec::new();
    for n in 0..60 {
        gone.push(put(&bench, saying(&format!("sextants sextants number {n}"))).await);
    }
    assert_eq!(found(&bench, "sextants").await.len(), 10);
    let head = gone[59].began;
    for entry in &gone {
        assert!(bench.memory.delete_entry(&bench.scope, &entry.id).await.unwrap());
        assert!(!bench.memory.delete_entry(&bench.scope, &entry.id).await.unwrap());
    }
    let hits = found(&bench, "sextants").await;
    assert!(hits.len() == 1 && hits[0].starts_with("Somebody"), "{hits:?}");
    assert_eq!(listed(&bench, EntryQuery::default()).await.len(), 1);
    let error = bench.memory.entry(&bench.scope, &gone[0].id, None).await.unwrap_err();
    assert!(matches!(error, MemoryError::NotFound { .. }));
    // Who reads as of before still sees them.
    let past = EntryQuery { at: Some(head), ..EntryQuery::default() };
    assert_eq!(listed(&bench, past.clone()).await.len(), 61);
    assert!(bench.memory.entry(&bench.scope, &gone[0].id, Some(head)).await.is_ok());
    let asked = EntryQuery {
        rank: EntryRank::Relevance,
        query: Some("harbour".to_owned()),
        ..past.clone()
    };
    let ranked = listed(&bench, asked).await;
    assert!(ranked.len() == 61 && ranked[0].starts_with("Somebody"), "{ranked:?}");
    // A forgotten one takes the past along, which would show less than there was.
    let forget = ForgetRequest::Entry(gone[0].id.clone());
    let receipt = bench.memory.forget(&me(), Some("m"), &forget, false).await.unwrap();
    assert_eq!(receipt.erased.entries, 1);
    let refused = bench.memory.entries(&bench.scope, &past).await.unwrap_err();
    assert!(matches!(refused, MemoryError::Store(StoreError::SnapshotGone { .. })), "{refused}");
    let events = bench.memory.events(me().tenant(), None, head, 99).await.unwrap();
    assert_eq!(events[0].kind, "memory.deleted");
    assert!(events[0].payload.contains(&gone[0].id), "{events:?}");
    bench.check().await;
}

#[tokio::test]
async fn what_ended_long_ago_is_purged_from_every_file() {
    const HOUR: i64 = 3_600_000;
    let bench = Bench::new().await;
    bench.talk("s", 20).await;
    let ended = put(&bench, saying("obsidian ptarmigan deleted")).await;
    let expired = put(&bench, until("vermilion albatross expired", START + 1_000)).await;
    put(&bench, saying("cobalt heron stays")).await;
    found(&bench, "heron").await;
    bench.memory.delete_entry(&bench.scope, &ended.id).await.unwrap();
    bench.clock.move_to(START + HOUR);
    bench.settle().await;
    let past = EntryQuery { at: Some(expired.began), ..EntryQuery::default() };
    assert_eq!(listed(&bench, past.clone()).await, ["obsidian ptarmigan deleted"]);
    assert!(is_in_files(bench.dir.path(), "albatross"));

    // What has expired goes after an hour, what was deleted within two.
    bench.clock.move_to(START + 1_000 + HOUR);
    let done = bench.memory.settle(|_, _| {}).await.unwrap();
    assert_eq!(done.purged, 2);
    for word in ["ptarmigan", "albatross"] {
        assert!(!is_in_files(bench.dir.path(), word), "{word}");
    }
    assert_eq!(listed(&bench, EntryQuery::default()).await, ["cobalt heron stays"]);
    assert_eq!(found(&bench, "heron").await[0], "cobalt heron stays");
    let gone = bench.memory.entries(&bench.scope, &past).await.unwrap_err();
    assert!(matches!(gone, MemoryError::Store(StoreError::SnapshotGone { .. })), "{gone}");
    let head = icecore::extend::store(&bench.memory).head(me().tenant()).await.unwrap();
    let now = EntryQuery { at: Some(head), ..EntryQuery::default() };
    assert_eq!(listed(&bench, now).await, ["cobalt heron stays"]);
    let ahead = EntryQuery { at: Some(Position(head.0 + 1)), ..EntryQuery::default() };
    let ahead = bench.memory.entries(&bench.scope, &ahead).await.unwrap_err();
    assert!(matches!(ahead, MemoryError::Entry(EntryError::Ahead { .. })), "{ahead}");
    let events = bench.memory.events(me().tenant(), None, ended.began, 99).await.unwrap();
    let last = events.last().unwrap();
    assert_eq!(last.kind, "memory.expired");
    assert_eq!(last.payload, r#"{"memoryRef":"m","entries":2}"#);
    assert_eq!(bench.memory.settle(|_, _| {}).await.unwrap().purged, 0);
    bench.check().await;
}

#[tokio::test]
async fn a_deleted_entry_goes_within_twice_its_time_though_nothing_else_does() {
    const HOUR: i64 = 3_600_000;
    let bench = Bench::new().await;
    let first = put(&bench, saying("first")).await;
    let second = put(&bench, saying("second")).await;
    bench.memory.delete_entry(&bench.scope, &first.id).await.unwrap();
    let purged = async |at: i64| {
        bench.clock.move_to(START + at);
        bench.memory.settle(|_, _| {}).await.unwrap().purged
    };
    assert_eq!(purged(2 * HOUR - 1).await, 0);
    bench.memory.delete_entry(&bench.scope, &second.id).await.unwrap();
    assert_eq!(purged(2 * HOUR).await, 1);
    assert_eq!(purged(3 * HOUR).await, 0);
    assert_eq!(purged(4 * HOUR - 1).await, 1);
}

#[tokio::test]
async fn a_purge_can_be_at_once() {
    let entries = EntrySettings { snapshot_seconds: 0, ..EntrySettings::default() };
    let bench = Bench::with(MemorySettings { entries, ..MemorySettings::default() }).await;
    for n in 0..1_100 {
        put(&bench, until(&format!("number {n}"), START + 1)).await;
    }
    bench.clock.move_to(START + 1);
    assert_eq!(bench.memory.settle(|_, _| {}).await.unwrap().purged, 1_100);
    bench.check().await;
}

#[tokio::test]
async fn a_secret_that_comes_later_is_hidden_in_entries_too() {
    const SECRET: &str = "Pomegranate-77-later";
    let bench = Bench::new().await;
    let entry = put(&bench, tagged(&format!("was {SECRET}"), &[&format!("of:{SECRET}")])).await;
    let ended = put(&bench, saying(&format!("ended {SECRET}"))).await;
    bench.memory.delete_entry(&bench.scope, &ended.id).await.unwrap();
    let value = Zeroizing::new(SECRET.to_owned());
    bench.memory.add_secret(me().tenant(), "later", value, false).await.unwrap();
    let shown = bench.memory.entry(&bench.scope, &entry.id, None).await.unwrap();
    assert_eq!(shown.content.as_str(), "was [REDACTED:later]");
    assert_eq!(shown.tags[0].as_str(), "of:[REDACTED:later]");
    let past = EntryQuery { at: Some(ended.began), ..EntryQuery::default() };
    let before = listed(&bench, past.clone()).await;
    assert_eq!(before, ["ended [REDACTED:later]", "was [REDACTED:later]"]);
    let done = bench.memory.rescan(&me(), false, |_, _| {}).await.unwrap();
    assert_eq!(done.entries, 2);
    assert_eq!(listed(&bench, past).await, before);
    assert!(!is_in_files(bench.dir.path(), SECRET));
}

#[tokio::test]
async fn tenants_with_the_same_memory_do_not_meet() {
    let bench = Bench::new().await;
    let other = Principal::local_operator(Tenant::new("you").unwrap());
    for name in [
        "conformance/agent-memory-1",
        "mem_tenant:default_agent:x_longTerm",
        "mem://conformance/a",
        "conformance-distill",
    ] {
        let mine = bench.memory.scope(&me(), name).await.unwrap();
        let theirs = bench.memory.scope(&other, name).await.unwrap();
        let entry = bench.memory.put_entry(&mine, saying("kestrel of mine")).await.unwrap();
        let all = EntryQuery::default();
        assert_eq!(listed_in(&bench.memory, &mine, &all).await, ["kestrel of mine"]);
        assert_eq!(listed_in(&bench.memory, &theirs, &all).await, [""; 0]);
        assert!(bench.memory.entry(&theirs, &entry.id, None).await.is_err());
        assert!(!bench.memory.delete_entry(&theirs, &entry.id).await.unwrap());
        let asked = SearchRequest { kinds: vec![DocKind::Entry], ..SearchRequest::new("kestrel") };
        assert_eq!(bench.memory.search(&mine, &asked).await.unwrap().hits.len(), 1);
        assert_eq!(bench.memory.search(&theirs, &asked).await.unwrap().hits.len(), 0);
        bench.memory.put_entry(&theirs, saying("theirs")).await.unwrap();
        assert_eq!(listed_in(&bench.memory, &mine, &all).await, ["kestrel of mine"]);
    }
    for name in ["../../etc/passwd", "..", "/etc/passwd", "nul\0byte", "", &"r".repeat(10_000)] {
        let refused = bench.memory.scope(&me(), name).await.unwrap_err();
        assert!(matches!(refused, MemoryError::Name(_)), "{refused}");
    }
}

#[tokio::test]
async fn nowhere_is_empty() {
    let bench = Bench::new().await;
    bench.add("s", numbered(3)).await;
    put(&bench, saying("something")).await;
    let nowhere = me().nowhere();
    assert_eq!(listed_in(&bench.memory, &nowhere, &EntryQuery::default()).await, [""; 0]);
    let asked = SearchRequest::new("glacier something");
    assert_eq!(bench.memory.search(&nowhere, &asked).await.unwrap().hits, []);
    assert_eq!(bench.memory.sessions(&nowhere).await.unwrap(), []);
    bench.check().await;
}

/// What has a word in it.
async fn with_word(bench: &Bench, word: &str) -> Vec<String> {
    let request = SearchRequest { mode: Mode::Lexical, ..SearchRequest::new(word) };
    let found = bench.memory.search(&bench.scope, &request).await.unwrap();
    found.hits.into_iter().map(|hit| hit.text).collect()
}

/// Writes an entry in place of others.
async fn press(bench: &Bench, sources: &[&EntryRecord], content: &str) -> EntryRecord {
    let redactor = bench.memory.redactor(me().tenant()).await.unwrap();
    let (content, hidden) = redactor.redactor.text_counted(content);
    let replaced = |source: &&EntryRecord| Replaced {
        id: source.id.clone(),
        by: Successor::Output(0),
        is_overtaken: false,
    };
    let derivation = Derivation {
        outputs: vec![DerivedEntry {
            id: None,
            content,
            tags: Vec::new(),
            expires_at: None,
            hidden,
        }],
        replaced: sources.iter().map(replaced).collect(),
        kind: DerivationKind::Compacted,
        payload: std::sync::Arc::new(|ids| serde_json::json!({ "outputId": ids[0] })),
        now: bench.memory.now(),
        secrets_seen: redactor.version,
    };
    let derived = icecore::extend::store(&bench.memory)
        .derive_entries(&bench.scope, derivation)
        .await
        .unwrap();
    derived.unwrap().outputs.remove(0)
}

async fn three_sources(bench: &Bench) -> [EntryRecord; 3] {
    [
        put(bench, saying("the obsidian ptarmigan nests late")).await,
        put(bench, saying("a cobalt heron waits by the weir")).await,
        put(bench, saying("vermilion albatross over the bay")).await,
    ]
}

#[tokio::test]
async fn what_stands_for_others_is_found_in_their_place() {
    let bench = Bench::new().await;
    let sources = three_sources(&bench).await;
    // They are in the index before, or come to it after.
    assert_eq!(with_word(&bench, "heron").await.len(), 1);
    let birds = "Birds: ptarmigan, heron, albatross.";
    let made = press(&bench, &sources.each_ref(), birds).await;
    for word in ["ptarmigan", "heron", "albatross"] {
        assert_eq!(with_word(&bench, word).await, [birds], "{word}");
    }
    bench.memory.reindex(&bench.scope, |_, _| {}).await.unwrap();
    assert_eq!(with_word(&bench, "heron").await, [birds]);
    assert_eq!(listed(&bench, EntryQuery::default()).await, [birds]);
    let read = bench.memory.entry(&bench.scope, &sources[1].id, None).await.unwrap();
    assert_eq!(read.successor.as_ref(), Some(&made.id));
    let of_made = bench.memory.entry_sources(&bench.scope, &made.id).await.unwrap();
    assert_eq!(
        of_made.iter().map(|entry| &entry.id).collect::<Vec<_>>(),
        sources.each_ref().map(|s| &s.id)
    );
    let error = bench.memory.entry_sources(&bench.scope, "e-never").await.unwrap_err();
    assert!(matches!(error, MemoryError::NotFound { .. }));

    // Deleting one of them deletes what quotes it. The others are found again.
    assert!(bench.memory.delete_entry(&bench.scope, &sources[0].id).await.unwrap());
    assert_eq!(with_word(&bench, "ptarmigan").await, [""; 0]);
    assert_eq!(with_word(&bench, "heron").await, [sources[1].content.as_str()]);
    assert_eq!(listed(&bench, EntryQuery::default()).await.len(), 2);
    bench.check().await;
}

#[tokio::test]
async fn forgetting_a_source_forgets_what_quotes_it() {
    let bench = Bench::new().await;
    let sources = three_sources(&bench).await;
    let made = press(&bench, &[&sources[0], &sources[1]], "ptarmigan and heron").await;
    let again = press(&bench, &[&made, &sources[2]], "ptarmigan, heron and albatross").await;
    assert_eq!(with_word(&bench, "ptarmigan").await.len(), 1);
    // One that was deleted before still quotes it.
    let deleted = put(&bench, saying("the heron is grey")).await;
    let old = press(&bench, &[&deleted, &again], "ptarmigan, heron, albatross, grey").await;
    bench.memory.delete_entry(&bench.scope, &deleted.id).await.unwrap();
    assert!(bench.memory.entry(&bench.scope, &old.id, None).await.is_err());
    assert_eq!(with_word(&bench, "ptarmigan").await, ["ptarmigan, heron and albatross"]);

    let forget = ForgetRequest::Entry(sources[0].id.clone());
    let dry = bench.memory.forget(&me(), Some("m"), &forget, true).await.unwrap();
    let receipt = bench.memory.forget(&me(), Some("m"), &forget, false).await.unwrap();
    assert_eq!((dry.erased.entries, receipt.erased.entries), (4, 4));
    for entry in [&sources[0], &made, &again, &old] {
        assert!(bench.memory.entry(&bench.scope, &entry.id, None).await.is_err());
    }
    assert!(!is_in_files(bench.dir.path(), "ptarmigan"));
    assert_eq!(with_word(&bench, "heron").await, [sources[1].content.as_str()]);
    assert_eq!(with_word(&bench, "albatross").await, [sources[2].content.as_str()]);
    assert_eq!(listed(&bench, EntryQuery::default()).await.len(), 2);
    bench.check().await;
}

#[tokio::test]
async fn own_entries_are_seen_as_of_an_earlier_position() {
    let bench = Bench::new().await;
    put(&bench, saying("the first ferry leaves at nine")).await;
    let at = put(&bench, saying("bring a coat")).await.began;
    let own = put(&bench, saying("the ferry is full")).await;
    put(&bench, saying("somebody else writes of a ferry")).await;
    for (rank, own, expected) in [
        (EntryRank::Recency, vec![], vec!["bring a coat", "the first ferry leaves at nine"]),
        (
            EntryRank::Recency,
            vec![own.id.clone()],
            vec!["the ferry is full", "bring a coat", "the first ferry leaves at nine"],
        ),
        (EntryRank::Relevance, vec![], vec!["the first ferry leaves at nine", "bring a coat"]),
        (
            EntryRank::Relevance,
            vec![own.id],
            vec!["the ferry is full", "the first ferry leaves at nine", "bring a coat"],
        ),
    ] {
        let query = Some("full ferry".to_owned());
        let query = EntryQuery { rank, query, at: Some(at), own, ..EntryQuery::default() };
        assert_eq!(listed(&bench, query).await, expected, "{rank:?}");
    }
}
