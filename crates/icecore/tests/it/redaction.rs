//! Secrets: whatever door they come by, they are nowhere afterwards.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use icecore::dreams::DreamRequest;
use icecore::formats::json::JsonText;
use icecore::ingest::{Content, ImportPlan, Repeat};
use icecore::knowledge::{
    CompactionRequest, ConsolidationTrigger, EntryQuery, FactQuery, NewEntryRequest,
};
use icecore::privacy::Redactor;
use icecore::recall::Mode;
use icecore::sessions::{
    CompactRequest, ExchangeRequest, FitRequest, FollowRequest, HistoryFit, ProviderCount,
    SessionWindow,
};
use icecore::{
    Append, ContextRequest, ForgetRequest, Memory, MemoryError, RawTurn, SearchRequest, Seq,
    TurnInput,
};
use icecore_domain::testing::corpus;
use icecore_models::ChatClient;
use icecore_models::testing::{Behaviour, Upstream, UpstreamConfig};
use icecore_store::StoreError;
use zeroize::Zeroizing;

use crate::scan::Findings;
use crate::support::{Bench, START, me, numbered, put_file, said, text};

/// A value that no pattern knows.
const REGISTERED: &str = "kumquat4711zebraParade";

/// Public methods of `Memory` that write nothing that a caller gave.
#[rustfmt::skip]
// What copies rows as they are, and what only counts, is among the reads.
const READS: &[&str] = &[
    "back_up", "keyed_hash", "news", "restore",
    "api_view", "api_view_within", "archive", "archives", "budget_size", "builder", "check", "chunk", "chunks", "compaction_settings", "context", "counter", "counters", "dream_record", "dream_settings", "dreams", "entries", "entry",
    "entry_budget_counter", "entry_settings", "entry_sources", "events", "expand", "expand_within", "facts",
    "find", "follow", "handoff", "in_memory", "model", "now", "open", "packs", "preview_dream", "redactor",
    "reminder", "search", "secret", "secrets",
    "session_window", "sessions", "shown", "shown_entry", "shown_name", "stats", "turns",
    "turns_within", "verify_archives", "verify_packs", "view", "view_within",
    "head", "pending", "probe", "scrub",
    "store_timings",
];

/// Those that do. Each has a case in [`write`].
#[rustfmt::skip]
const WRITES: &[&str] = &[
    "add_secret", "append", "compact_due", "compact_entries", "compact_session",
    "confirm", "consolidate", "delete_entry", "dream", "edit_handoff", "exchange",
    "fit", "fit_history", "forget", "import", "import_text",
    "keep_history", "keep_reply", "keep_until", "learn", "put_entry", "reindex", "reject",
    "remember", "remove_secret", "rescan", "scope", "settle",
    "undo_dream", "work_until", "write_spending",
   
];

/// A credential that a pattern knows.
fn token() -> String {
    let kind = Redactor::kinds().iter().find(|kind| kind.id == "github-token").unwrap();
    kind.sample(4711)
}

/// Both, as they might be written down.
fn secrets() -> String {
    format!("{} and {REGISTERED}", token())
}

/// A turn that holds secrets in every field.
fn telling() -> RawTurn {
    let secret = secrets();
    let json = || JsonText::parse(&serde_json::json!({ &secret: [&secret] }).to_string()).unwrap();
    let mut turn = RawTurn::new(&secret, &secret);
    turn.id = Some(secret.clone());
    turn.name = Some(secret.clone());
    turn.model = Some(secret.clone());
    turn.tags = Some(vec![secret.clone()]);
    turn.tool_calls = Some(json());
    turn.tool_call_id = Some(secret.clone());
    turn.extra = vec![(secret.clone(), json()), ("x".to_owned(), json())];
    turn
}

async fn bench() -> Bench {
    let bench = Bench::new().await;
    add_secret(&bench, "fruit", REGISTERED).await;
    bench
}

async fn add_secret(bench: &Bench, name: &str, value: &str) {
    let value = Zeroizing::new(value.to_owned());
    bench.memory.add_secret(me().tenant(), name, value, false).await.unwrap();
}

/// Nothing of the secrets is anywhere, and what an error says holds none either.
async fn check(bench: &Bench, name: &str) {
    let found = Findings::of(bench.dir.path(), &bench.memory).await;
    assert!(found.count("the table") > 0);
    assert_eq!(found.leaks(&[secrets()]), Vec::<String>::new(), "after `{name}`");
    bench.check().await;
}

/// The public methods of `Memory`, from the source.
/// What a memory consists of; each gives the methods of those before it.
const SERVICES: &[&str] = &[
    "Base", "Privacy", "ModelCalls", "Ingest", "Layers", "Facts", "Recall", "Knowledge",
    "Sessions", "Dreams", "Contexts", "Upkeep", "Memory",
];

fn public_methods() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut paths = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().path()));
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        let mut is_memory = false;
        for line in source.lines() {
            if line.starts_with("impl") {
                let service = line.strip_prefix("impl ").and_then(|rest| rest.strip_suffix(" {"));
                is_memory = service.is_some_and(|service| SERVICES.contains(&service));
            }
            let method =
                line.strip_prefix("    pub async fn ").or(line.strip_prefix("    pub fn "));
            if let Some(method) = method.filter(|_| is_memory) {
                names.insert(method.split(['(', '<']).next().unwrap().to_owned());
            }
        }
    }
    names
}

#[test]
fn every_public_method_is_a_read_or_has_a_redaction_case() {
    let known: BTreeSet<String> = READS.iter().chain(WRITES).map(|&name| name.to_owned()).collect();
    assert_eq!(public_methods(), known, "add a case to `write` for what writes");
}

#[tokio::test]
async fn no_write_lets_a_secret_through() {
    for name in WRITES {
        let bench = bench().await;
        write(&bench, name).await;
        bench.settle().await;
        check(&bench, name).await;
    }
}

#[tokio::test]
async fn a_new_master_key_lets_no_secret_through() {
    let bench = bench().await;
    // What is given is a key. One that is none is refused without being told.
    let given = Some(Zeroizing::new(secrets()));
    let rotate = async |new| Memory::builder().rotate_master_key(bench.dir.path(), new).await;
    hides(rotate(given).await.map(drop));
    rotate(None).await.unwrap();
    bench.memory.remember(&bench.scope, &secrets(), vec![telling()]).await.unwrap();
    bench.settle().await;
    check(&bench, "rotate_master_key").await;
}

/// Uses a method with secrets in everything that it takes.
async fn write(bench: &Bench, name: &str) {
    let (memory, scope, secret) = (&bench.memory, &bench.scope, secrets());
    let line =
        serde_json::json!({"session": secret, "role": "user", "content": secret, "name": secret});
    let plan = ImportPlan { session: secret.clone(), insist: false, repeat: Repeat::Add };
    match name {
        "append" => {
            let turns =
                vec![TurnInput::from(telling()), TurnInput::from(RawTurn::new("user", "b"))];
            let append = Append { session: secret, turns, insist: true, claim: None };
            memory.append(scope, append).await.unwrap();
        }
        "remember" => drop(memory.remember(scope, &secret, vec![telling()]).await.unwrap()),
        "import" => {
            let outside = tempfile::tempdir().unwrap();
            let file = outside.path().join("turns.jsonl");
            std::fs::write(&file, line.to_string()).unwrap();
            memory.import(scope, &file, &plan, |_| true).await.unwrap();
        }
        "import_text" => {
            let bad = format!(r#"{{"role":"user","content":"x","timestamp":"{secret}"}}"#);
            for text in [line.to_string(), bad] {
                let told = memory.import_text(scope, "stdin", text.into(), &plan, |_| true).await;
                hides(told.map(drop));
            }
        }
        "learn" | "confirm" | "reject" => {
            let told = format!("The code is {secret}");
            let facts = memory.learn(scope, &told, None, Some(&secret)).await.unwrap();
            match name {
                "confirm" => drop(memory.confirm(scope, &facts[0].id).await.unwrap()),
                "reject" => drop(memory.reject(scope, &facts[0].id).await.unwrap()),
                _ => {}
            }
        }
        "dream" | "undo_dream" => {
            memory.remember(scope, &secret, vec![telling()]).await.unwrap();
            let told = format!("The key of the build server is {secret}, keep it.");
            let entry = NewEntryRequest { content: told, ..NewEntryRequest::default() };
            memory.put_entry(scope, entry).await.unwrap();
            let request = DreamRequest {
                principal: secret.clone(),
                run: Some("dream-1".to_owned()),
                ..DreamRequest::manual(None)
            };
            let dream = memory.dream(scope, request, |_| {}).await.unwrap();
            let bytes = memory.archive(me().tenant(), None, dream.record.archive).await.unwrap();
            let text = String::from_utf8(bytes).unwrap();
            assert!(!text.contains(REGISTERED) && !text.contains(&token()), "{text}");
            if name == "undo_dream" {
                memory.undo_dream(me().tenant(), &dream.record.run).await.unwrap();
            }
        }
        "compact_session" | "edit_handoff" | "fit" => {
            let mut turns = crate::handoffs::conversation(60);
            turns.insert(30, telling());
            turns[20].content = Content::Text(format!("From now on always use {secret}."));
            turns.push(RawTurn::new("user", format!("What did I say of {secret}?")));
            memory.remember(scope, &secret, turns).await.unwrap();
            let view = match name {
                "fit" => {
                    let window = Some(SessionWindow { window: 2_000, reserve: 200 });
                    let fit = FitRequest { session: secret.clone(), window, ..Default::default() };
                    memory.fit(scope, &fit).await.unwrap().view
                }
                _ => {
                    let request = CompactRequest { session: secret.clone(), ..Default::default() };
                    let made = memory.compact_session(scope, &request).await.unwrap().handoff;
                    if name == "edit_handoff" {
                        let edited =
                            memory.edit_handoff(scope, &secret, None, &made.id, 1, &secret);
                        edited.await.unwrap();
                        let edited = memory.edit_handoff(scope, &secret, None, &secret, 1, &secret);
                        hides(edited.await.map(drop));
                    }
                    memory.api_view(scope, &secret, None).await.unwrap()
                }
            };
            let told = view.handoff.unwrap().text;
            assert!(!told.contains(REGISTERED) && !told.contains(&token()), "{told}");
        }
        "fit_history" | "keep_history" | "keep_reply" => {
            let told = format!("The harvest depends on {secret}.");
            memory.remember(scope, "told", vec![RawTurn::new("user", told)]).await.unwrap();
            let mut messages = vec![crate::histories::user(&format!("What of {secret}?"))];
            for said in crate::handoffs::conversation(40).into_iter().chain([telling()]) {
                messages.push(crate::histories::message(said));
            }
            messages.push(crate::histories::user(&format!(
                "What does the harvest of {secret} depend on?"
            )));
            let request = FollowRequest {
                messages: &messages,
                session: Some(&secret),
                is_retry: false,
                new_session: &secret,
            };
            let mut followed = memory.follow(scope, &request).await.unwrap();
            let mut fit = HistoryFit {
                model: Some(secret.clone()),
                recall_tokens: 200,
                ..HistoryFit::default()
            };
            if name == "fit_history" {
                fit.window = Some(SessionWindow { window: 2_000, reserve: 200 });
            }
            let fitted = memory.fit_history(scope, &mut followed, &messages, &fit).await.unwrap();
            memory.keep_history(scope, &mut followed, &messages).await.unwrap();
            let told = format!("{followed:?} {:?} {:?}", fitted.handoff, fitted.recalled);
            assert!(!told.contains(REGISTERED) && !told.contains(&token()), "{told}");
            assert!(fitted.handoff.is_some() || !fitted.recalled.is_empty());
            let count = ProviderCount { model: secret.clone(), tokens: 9, counted: 9 };
            let answer = crate::histories::message(telling());
            memory.keep_reply(scope, &followed, answer, Some(count)).await.unwrap();
        }
        "exchange" => {
            let upstream = Upstream::start(UpstreamConfig::default()).await;
            let call = (secret.clone(), secret.clone(), serde_json::json!([secret]).to_string());
            upstream.push_all([
                Behaviour::Answer(secret.clone()),
                Behaviour::CallTools(vec![call]),
                Behaviour::Denied,
            ]);
            let tools = serde_json::json!([{"type": "function", "function": {"name": secret}}]);
            let request = ExchangeRequest {
                session: secret.clone(),
                branch: None,
                turns: vec![RawTurn::new("user", &secret)],
                tools: Some(JsonText::parse(&tools.to_string()).unwrap()),
                reminder: None,
                model: Arc::new(ChatClient::new(upstream.client_config()).unwrap()),
            };
            for _ in 0..3 {
                let told = Mutex::new(String::new());
                let tell = |piece: &str| told.lock().unwrap().push_str(piece);
                let done = memory.exchange(scope, &request, &tell).await;
                let told = format!("{} {done:?}", told.lock().unwrap());
                assert!(!told.contains(REGISTERED) && !told.contains(&token()), "{told}");
                hides(done.map(drop));
            }
            for sent in upstream.requests() {
                let sent = String::from_utf8(sent.body).unwrap();
                assert!(!sent.contains(REGISTERED) && !sent.contains(&token()), "{sent}");
            }
        }
        "put_entry" | "delete_entry" => {
            let told = format!("the key is {secret}, keep it");
            let tags = vec![secret.clone(), format!("token:{secret}"), "plain".to_owned()];
            let request = NewEntryRequest { content: told, tags, ..NewEntryRequest::default() };
            let put = memory.put_entry(scope, request.clone()).await.unwrap();
            assert_eq!(
                memory.shown_entry(scope, &request),
                (put.content.clone(), put.tags.clone())
            );
            assert!(put.content.as_str().contains("[REDACTED:fruit]"), "{put:?}");
            assert!(put.tags.iter().any(|tag| tag.as_str() == "plain"), "{put:?}");
            let query = EntryQuery { tag: Some(secret.clone()), ..EntryQuery::default() };
            let found = memory.entries(scope, &query).await.unwrap().entries;
            assert_eq!(found.len(), 1, "it is found by the tag that it was given");
            let large = "x".repeat(70_000) + &secret;
            let large = NewEntryRequest { content: large, ..NewEntryRequest::default() };
            hides(memory.put_entry(scope, large).await.map(drop));
            hides(memory.entry(scope, &secret, None).await.map(drop));
            hides(memory.entry_sources(scope, &secret).await.map(drop));
            if name == "delete_entry" {
                assert!(!memory.delete_entry(scope, &secret).await.unwrap());
                assert!(memory.delete_entry(scope, &put.id).await.unwrap());
            }
        }
        "compact_due" | "compact_entries" | "consolidate" => put_together(bench, name).await,
        "forget" => {
            memory.remember(scope, "s", vec![telling()]).await.unwrap();
            for request in [
                ForgetRequest::Subject(secret.clone()),
                ForgetRequest::Session(secret.clone()),
                ForgetRequest::Entry(secret.clone()),
            ] {
                hides(memory.forget(&me(), Some(&secret), &request, false).await.map(drop));
                hides(memory.forget(&me(), None, &request, false).await.map(drop));
            }
        }
        "settle" | "reindex" | "work_until" | "keep_until" | "write_spending" => {
            let turn = |n| said(n, &format!("I live at {secret}. Remember: {secret} is the key."));
            memory.remember(scope, "s", (1..130).map(turn).collect()).await.unwrap();
            match name {
                "reindex" => drop(memory.reindex(scope, |_, _| {}).await.unwrap()),
                "write_spending" => memory.write_spending().await,
                "work_until" | "keep_until" => {
                    let stop = tokio::time::sleep(std::time::Duration::from_millis(50));
                    match name {
                        "work_until" => memory.work_until(stop).await,
                        _ => memory.keep_until(stop).await,
                    }
                }
                _ => bench.settle().await,
            }
        }
        "rescan" => {
            memory
                .remember(scope, "s", vec![RawTurn::new("user", "was Pomegranate-77-later")])
                .await
                .unwrap();
            add_secret(bench, "later", "Pomegranate-77-later").await;
            memory.rescan(&me(), false, |_, _| {}).await.unwrap();
            assert_eq!(bench.texts("s").await, ["was [REDACTED:later]"]);
        }
        "add_secret" => {
            let again =
                memory.add_secret(me().tenant(), "fruit", Zeroizing::new(token()), false).await;
            hides(again.map(drop));
            let telling =
                memory.add_secret(me().tenant(), REGISTERED, Zeroizing::new(token()), false).await;
            hides(telling.map(drop));
            add_secret(bench, "token", &token()).await;
        }
        "remove_secret" => {
            hides(memory.remove_secret(me().tenant(), &secret).await);
            hides(memory.remove_secret(me().tenant(), REGISTERED).await);
            add_secret(bench, "token", &token()).await;
            memory.remove_secret(me().tenant(), "token").await.unwrap();
        }
        "scope" => {
            let scope = memory.scope(&me(), &secret).await.unwrap();
            memory.remember(&scope, &secret, vec![telling()]).await.unwrap();
        }
        _ => panic!("`{name}` writes and has no redaction case"),
    }
}

/// Entries with secrets, put together.
async fn put_together(bench: &Bench, name: &str) {
    let (memory, scope, secret) = (&bench.memory, &bench.scope, secrets());
    let count = if name == "compact_due" { 1_000 } else { 40 };
    for n in 0..count {
        let place = if n % 2 == 0 { "vault" } else { "safe in the cellar" };
        let content = format!("the key {secret} opens the old {place} of the house quite well");
        let request = NewEntryRequest { content, ..NewEntryRequest::default() };
        memory.put_entry(scope, request).await.unwrap();
    }
    match name {
        "compact_due" => {
            bench.clock.move_to(START + 3_600_000);
            assert_eq!(memory.compact_due().await.unwrap(), 1);
        }
        "compact_entries" => {
            let request = CompactionRequest { max_input_entries: 40, max_output_bytes: 4_096 };
            let made = memory.compact_entries(scope, request).await.unwrap().unwrap();
            assert!(made.entry.content.as_str().contains("[REDACTED:fruit]"), "{made:?}");
            hides(memory.entry_sources(scope, &secret).await.map(drop));
        }
        _ => {
            let made = memory.consolidate(scope, ConsolidationTrigger::OnDemand).await.unwrap();
            assert!(made.position.is_some(), "{made:?}");
        }
    }
}

/// An error may come of it, but tells no secret.
fn hides(done: Result<(), MemoryError>) {
    if let Err(error) = done {
        let told = format!("{error} {error:?} {:?}", error.hint());
        assert!(!told.contains(&token()) && !told.contains(REGISTERED), "{told}");
    }
}

#[tokio::test]
async fn the_corpus_leaves_no_secret_in_the_data_directory() {
    let bench = bench().await;
    let redactor = Redactor::standard();
    let (mut secrets, mut missed) = (vec![REGISTERED.to_owned()], 0);
    let mut turns = Vec::new();
    // A few of each kind, no two beside each other in the same setting.
    for (n, case) in corpus::positives(11, 1).step_by(11).enumerate() {
        if !case.is_right(redactor.text(&case.text).as_str()) {
            missed += 1;
            continue;
        }
        secrets.extend(case.secret.clone().map(|secret| case.text[secret].to_owned()));
        let mut turn = said(n + 1, &case.text);
        match n % 8 {
            1 => turn.tags = Some(vec![case.text]),
            2 => turn.tool_calls = Some(JsonText::string(&case.text)),
            3 => turn.extra = vec![("x".to_owned(), JsonText::string(&case.text))],
            5 => turn.content = Content::Parts(JsonText::string(&case.text)),
            4 => turn.content = Content::Text(format!("{} {REGISTERED}", case.text)),
            _ => {}
        }
        turns.push(turn);
    }
    let count = turns.len();
    assert!(count > 1500 && missed * 100 <= count, "{count} turns, {missed} missed");
    for (n, batch) in turns.chunks(300).enumerate() {
        bench.add(if n % 2 == 0 { "a" } else { "b" }, batch.to_vec()).await;
    }
    bench.settle().await;
    bench
        .memory
        .learn(&bench.scope, &format!("The key is {REGISTERED}."), None, None)
        .await
        .unwrap();
    bench.memory.forget(&me(), None, &ForgetRequest::Subject("Firn".into()), false).await.unwrap();
    bench.settle().await;
    let found = Findings::of(bench.dir.path(), &bench.memory).await;
    assert!(found.count("the pack") > 10 && found.count("the index's words") > 0);
    assert_eq!(found.leaks(&secrets), Vec::<String>::new());
    let hidden = bench.memory.stats(me().tenant(), None).await.unwrap().store.hidden;
    assert!(hidden.len() > 300 && hidden["fruit"] > 10, "{hidden:?}");
    bench.check().await;
}

/// A life before a secret is known: hot, warm and cold turns hold it.
async fn careless(bench: &Bench) {
    let mut turns = numbered(330);
    for n in (0..330).step_by(7) {
        turns[n].content =
            Content::Text(format!("Mira has the key {REGISTERED}. I live in Porto {n}."));
        turns[n].tags = Some(vec![format!("of {REGISTERED}")]);
    }
    bench.add("s", turns).await;
    bench.add(&format!("named {REGISTERED}"), numbered(3)).await;
    let other = bench.memory.scope(&me(), &format!("memory {REGISTERED}")).await.unwrap();
    bench.memory.remember(&other, "t", vec![RawTurn::new("user", REGISTERED)]).await.unwrap();
    bench
        .memory
        .learn(&bench.scope, &format!("The code is {REGISTERED}"), None, None)
        .await
        .unwrap();
    for content in [format!("the code {REGISTERED}"), "no code".to_owned()] {
        put_file(&bench.memory, &me(), "a.md", &content).await;
    }
    bench.settle().await;
}

#[tokio::test]
async fn a_rescan_hides_what_was_stored_before_and_keeps_everything_else() {
    let bench = Bench::new().await;
    careless(&bench).await;
    let before = bench.turns("s").await;
    assert!(text(&before[7]).contains(REGISTERED));
    add_secret(&bench, "fruit", REGISTERED).await;

    // Nobody sees it from now on, though it is still stored.
    assert_eq!(
        text(&bench.turns("s").await[7]),
        text(&before[7]).replace(REGISTERED, "[REDACTED:fruit]")
    );
    let chunks = bench.memory.chunks(&bench.scope, None).await.unwrap();
    assert!(!format!("{chunks:?}").contains(REGISTERED));
    for query in [None, Some("Who has the key?".to_owned())] {
        let request = ContextRequest { query, ..ContextRequest::of_session("s", 900) };
        let context = bench.memory.context(&bench.scope, request).await.unwrap();
        assert!(context.text.contains("[REDACTED:fruit]") && !context.text.contains(REGISTERED));
        assert_eq!(context.tokens, bench.memory.counter().count(&context.text));
    }
    let found =
        bench.memory.search(&bench.scope, &SearchRequest::new("the key of Mira")).await.unwrap();
    assert!(!found.hits.is_empty() && !format!("{found:?}").contains(REGISTERED));
    let facts = bench.memory.facts(&bench.scope, &FactQuery::default()).await.unwrap();
    assert!(!facts.is_empty() && !format!("{facts:?}").contains(REGISTERED), "{facts:?}");
    let stored = Findings::of(bench.dir.path(), &bench.memory).await.leaks(&[secrets()]);
    assert!(stored.iter().any(|place| place.starts_with("the pack")), "{stored:?}");

    let dry = bench.memory.rescan(&me(), true, |_, _| {}).await.unwrap();
    assert_eq!((dry.turns, dry.dry_run), (49, true));
    let unchanged = Findings::of(bench.dir.path(), &bench.memory).await.leaks(&[secrets()]);
    assert_eq!(unchanged, stored, "a dry run changes nothing");

    let mut told = Vec::new();
    let done = bench.memory.rescan(&me(), false, |at, of| told.push((at, of))).await.unwrap();
    assert_eq!((done.turns, done.looked_at), (49, 334));
    assert_eq!(told.last(), Some(&(334, 334)));
    // 48 turns with a text and a tag, one text, two names, a fact and a file.
    assert_eq!((done.hidden["fruit"], done.files), (2 * 48 + 1 + 2 + 1 + 1, 1), "{done:?}");
    assert!(done.packs >= 3 && done.names == 2 && done.facts == 1, "{done:?}");

    let after = bench.turns("s").await;
    assert_eq!(after.len(), before.len());
    for (old, new) in before.iter().zip(&after) {
        assert_eq!(
            (&old.id, old.seq, old.position, old.ordinal, old.at),
            (&new.id, new.seq, new.position, new.ordinal, new.at)
        );
        assert_eq!(text(new), text(old).replace(REGISTERED, "[REDACTED:fruit]"));
    }
    bench.settle().await;
    check(&bench, "rescan").await;
    // The identity is that of what was said: a client's resent turns are known.
    let mut turns = numbered(330);
    turns[7].content = Content::Text(format!("Mira has the key {REGISTERED}. I live in Porto 7."));
    turns[7].tags = Some(vec![format!("of {REGISTERED}")]);
    let known = bench.memory.remember(&bench.scope, "s", turns[7..9].to_vec()).await.unwrap();
    assert_eq!((known.known, known.added), (2, 0));
    let request = SearchRequest { mode: Mode::Lexical, ..SearchRequest::new("kumquat4711zebra") };
    assert!(bench.memory.search(&bench.scope, &request).await.unwrap().hits.is_empty());
    let found =
        bench.memory.search(&bench.scope, &SearchRequest::new("Mira has the key")).await.unwrap();
    assert!(found.hits[0].text.contains("[REDACTED:fruit]"), "{:?}", found.hits[0]);
    let events =
        bench.memory.events(me().tenant(), None, icecore::ids::Position(0), 2000).await.unwrap();
    let rescanned: Vec<_> =
        events.iter().filter(|event| event.kind == "memory.rescanned").collect();
    assert_eq!(rescanned.len(), 2, "one for each memory that changed");

    let again = bench.memory.rescan(&me(), false, |_, _| {}).await.unwrap();
    assert_eq!((again.turns, again.names, again.facts, again.hidden.len()), (0, 0, 0, 0));
    let bench = bench.reopen().await;
    assert_eq!(bench.turns("s").await.len(), 330);
    bench.check().await;
}

#[tokio::test]
async fn turns_that_come_while_a_secret_is_added_are_redacted_with_it() {
    let bench = Bench::new().await;
    bench.add("s", vec![said(0, REGISTERED)]).await;
    let writing = async {
        for n in 1..40 {
            bench.add("s", vec![said(n, &format!("{n} {REGISTERED}"))]).await;
        }
    };
    let adding = async {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        add_secret(&bench, "fruit", REGISTERED).await;
        bench.texts("s").await.len()
    };
    let ((), known) = tokio::join!(writing, adding);
    let texts = bench.texts("s").await;
    assert!(texts[known..].iter().all(|text| !text.contains(REGISTERED)), "{texts:?}");
}

/// Spoils the sealed value of every secret, as a damaged disk would.
pub(crate) fn spoil(bench: &Bench) {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
    let database = bench.dir.path().join("icecore.db");
    let connection = rusqlite::Connection::open_with_flags(database, flags).unwrap();
    let spoiled = connection.execute("UPDATE secrets SET sealed = zeroblob(64)", []).unwrap();
    assert_eq!(spoiled, 1);
}

#[tokio::test]
async fn without_its_secrets_nothing_is_written_or_derived() {
    let bench = bench().await;
    bench.add("s", numbered(60)).await;
    spoil(&bench);
    let bench = bench.reopen().await;
    let settled = bench.memory.settle(|_, _| {}).await.unwrap();
    assert_eq!((settled.failed, settled.summaries), (1, 0));
    let refused = bench.memory.remember(&bench.scope, "s", numbered(1)).await.unwrap_err();
    assert!(
        matches!(refused, MemoryError::Store(StoreError::SecretUnreadable { .. })),
        "{refused}"
    );
    let failed = bench.memory.rescan(&me(), false, |_, _| {}).await.unwrap_err();
    assert!(!failed.to_string().contains(REGISTERED));
    let store = icecore::extend::store(&bench.memory);
    assert_eq!(store.summaries_after(&bench.scope, 0, 10).await.unwrap(), []);
    let session = store.sessions(&bench.scope, None, 1).await.unwrap()[0].no;
    let all = icecore_store::TurnQuery::all(session, 100);
    let kept = store.turns(&bench.scope, &all).await.unwrap();
    assert_eq!(kept.len(), 60, "what was stored is there");
    // Once the secret is given up, everything goes on.
    bench.memory.remove_secret(me().tenant(), "fruit").await.unwrap();
    bench.settle().await;
    assert!(bench.chunks("s", icecore::layers::Level::Micro).await[0].summary.is_some());
    assert_eq!(bench.memory.turns(&bench.scope, "s", Seq(0), 100).await.unwrap().len(), 60);
}

#[tokio::test]
async fn names_that_hold_different_secrets_stay_apart() {
    let bench = Bench::new().await;
    add_secret(&bench, "one", "alphaSecret1").await;
    bench
        .memory
        .add_secret(me().tenant(), "one", "betaSecret22".to_owned().into(), true)
        .await
        .unwrap();
    for value in ["alphaSecret1", "betaSecret22"] {
        let scope = bench.memory.scope(&me(), value).await.unwrap();
        bench.memory.remember(&scope, value, vec![RawTurn::new("user", "hi")]).await.unwrap();
        let turns = bench.memory.turns(&scope, value, Seq(0), 10).await.unwrap();
        assert_eq!(turns.len(), 1, "each has its own");
    }
    let mut turns = vec![RawTurn::new("user", "a"), RawTurn::new("user", "b")];
    turns[0].id = Some("alphaSecret1".to_owned());
    turns[1].id = Some("betaSecret22".to_owned());
    let both = serde_json::json!({"alphaSecret1": 1, "betaSecret22": 2}).to_string();
    turns[1].tool_calls = Some(JsonText::parse(&both).unwrap());
    bench.add("s", turns).await;
    let stored = bench.turns("s").await;
    assert_ne!(stored[0].id, stored[1].id);
    let calls = stored[1].turn.as_ref().unwrap().fields().tool_calls.as_ref().unwrap().to_value();
    assert_eq!(calls.as_object().unwrap().len(), 2);
}

#[tokio::test]
async fn names_that_turn_out_secret_are_not_shown_before_a_rescan() {
    let bench = Bench::new().await;
    let scope = bench.memory.scope(&me(), "notes alphaSecret1").await.unwrap();
    let turns = vec![RawTurn::new("user", "the harvest festival begins on Friday")];
    bench.memory.remember(&scope, "room alphaSecret1", turns).await.unwrap();
    bench.settle().await;
    add_secret(&bench, "one", "alphaSecret1").await;
    let sessions = bench.memory.sessions(&scope).await.unwrap();
    let name = &sessions[0].session;
    assert!(name.starts_with("room [REDACTED:one"), "{name}");
    // What is shown leads to it, as its old name does.
    for name in [name.as_str(), "room alphaSecret1"] {
        assert_eq!(bench.memory.turns(&scope, name, Seq(0), 9).await.unwrap().len(), 1, "{name}");
    }
    let found = bench.memory.search(&scope, &SearchRequest::new("harvest festival")).await.unwrap();
    assert!(!found.hits.is_empty());
    let events =
        bench.memory.events(me().tenant(), None, icecore::ids::Position(0), 99).await.unwrap();
    assert!(events.iter().any(|event| event.payload.contains("[REDACTED:one")), "{events:?}");
    for shown in [format!("{sessions:?}"), format!("{found:?}"), format!("{events:?}")] {
        assert!(!shown.contains("alphaSecret1"), "{shown}");
    }
}

#[tokio::test]
async fn a_session_whose_name_turns_out_secret_stays_one_session() {
    let bench = Bench::new().await;
    for value in ["alphaSecret1", "betaSecret22"] {
        bench.add(&format!("room {value}"), numbered(2)).await;
    }
    add_secret(&bench, "one", "alphaSecret1").await;
    let beta = Zeroizing::new("betaSecret22".to_owned());
    bench.memory.add_secret(me().tenant(), "one", beta, true).await.unwrap();
    // Before the rescan and after it, the same name leads to the same session.
    for is_rescanned in [false, true] {
        let again = bench.memory.remember(&bench.scope, "room betaSecret22", numbered(2)).await;
        assert_eq!(again.unwrap().known, 2, "rescanned: {is_rescanned}");
        assert_eq!(bench.memory.sessions(&bench.scope).await.unwrap().len(), 2);
        bench.memory.rescan(&me(), false, |_, _| {}).await.unwrap();
    }
    let request = ForgetRequest::Session("room betaSecret22".to_owned());
    let receipt = bench.memory.forget(&me(), None, &request, false).await.unwrap();
    assert_eq!(receipt.erased.turns, 2);
    assert_eq!(bench.turns("room alphaSecret1").await.len(), 2);
    bench.check().await;
}

#[tokio::test]
async fn a_fact_is_judged_as_it_is_stored() {
    let bench = Bench::new().await;
    let told = format!("The vault code is {REGISTERED} for everyone");
    let fact = bench.memory.learn(&bench.scope, &told, None, None).await.unwrap().remove(0);
    add_secret(&bench, "fruit", REGISTERED).await;
    let found = bench.memory.search(&bench.scope, &SearchRequest::new("vault code")).await.unwrap();
    assert_eq!(found.hits[0].text, "The vault code is [REDACTED:fruit] for everyone");
    let judged = bench.memory.reject(&bench.scope, &fact.id).await.unwrap();
    assert_eq!(judged.id, fact.id);
    let left = bench.memory.facts(&bench.scope, &FactQuery::default()).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

/// A quadratic redactor would need an hour for each of these.
#[tokio::test]
async fn hostile_fields_are_read_in_time() {
    let bench = bench().await;
    let key = "password ".repeat(5_000);
    let list = format!("[{}1]", "1,".repeat(20_000));
    let mut turn = RawTurn::new("user", "hi");
    turn.extra = vec![(key.clone(), JsonText::parse(&list).unwrap())];
    let calls = format!(r#"{{"{key}":{list},"password":{list}}}"#);
    turn.tool_calls = Some(JsonText::parse(&calls).unwrap());
    bench.add("s", vec![turn]).await;
    assert_eq!(bench.turns("s").await.len(), 1);
}
