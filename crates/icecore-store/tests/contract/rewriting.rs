//! Rewriting: what is put anew, what stays, and what it is compared with.

use icecore_domain::chunk::Level;
use icecore_domain::fact::Verdict;
use icecore_domain::ids::{Branch, Ordinal, Position, Seq, SessionNo, TurnId};
use icecore_domain::redact::Hidden;
use icecore_domain::time::Millis;

use super::fixtures::*;
use crate::store::Store;
use crate::*;

fn counts(counts: &[(&str, u64)]) -> Hidden {
    counts.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
}

pub(super) async fn a_rewritten_turn_keeps_its_place(store: &Store) {
    let turns =
        [say("a").id("a").by("Ana").at(5).hiding("db", 2), say("b").id("b").by("Ana"), say("c")];
    let session = add(store, "s", &turns).await;
    let before = rows(store, session).await;
    rewrite(store, session, &[1, 3, 99]).await;
    let after = rows(store, session).await;
    for (is, was) in after.iter().zip(&before) {
        let changes = is.id.seq != Seq(2);
        let (body, tokens) = match changes {
            true => (is.body.clone(), 3),
            false => (was.body.clone(), 10),
        };
        assert_eq!(*is, TurnRow { body, tokens, ..was.clone() });
        assert_eq!(content(is) == REWRITTEN, changes);
    }
    assert_eq!(after[0].body.as_ref().unwrap().fields().name.as_deref(), Some("Ana"));
    // It is still known by its id and body, and found by its speaker.
    let known = try_add(store, "s", &turns[..2]).await.unwrap();
    assert_eq!(shown(&known), "Known 1 main, Known 2 main");
    let hash = key().hash_name("name", "Ana");
    let ana = Selector::Subject { hash, tag: text("subject:Ana") };
    let found = store.select(scope().tenant(), None, &ana).await.unwrap();
    assert_eq!(found[0].turns.len(), 2);
    // What is hidden now is added to what was.
    assert_eq!(stats(store).await.hidden, counts(&[("db", 4)]));
    let events = store.events(scope().tenant(), None, Position(0), 9).await.unwrap();
    assert!(events[0].payload.contains(r#""redacted":{"db":3}"#), "{}", events[0].payload);
    assert_eq!(events.len(), 3);
    clean(store).await;
}

pub(super) async fn counts_follow_a_rewrite(store: &Store) {
    let session = add(store, "s", &say_many(9)).await;
    rewrite(store, session, &[2, 3, 9]).await;
    let record = store.session_by_number(&scope(), session).await.unwrap().unwrap();
    assert_eq!((record.turns, record.tokens, record.last_seq), (9, 69, Seq(9)));
    let counted = async |level| {
        let chunks = chunks(store, session, level).await;
        chunks.iter().map(|c| (c.turns, c.tokens, c.revision)).collect::<Vec<_>>()
    };
    assert_eq!(counted(Level::Micro).await, [(2, 13, 1), (2, 13, 1), (2, 20, 0), (2, 20, 0)]);
    assert_eq!(counted(Level::Mini).await, [(4, 26, 2), (4, 40, 0)]);
    assert_eq!(counted(Level::Macro).await, [(8, 66, 2)]);
    assert_eq!(branch(store, session).await.tail.micro_tokens, 3);
    add(store, "s", &say_many(1)).await;
    assert_eq!(counted(Level::Micro).await[4], (2, 13, 0));
    // Text may also become longer.
    let mut longer = rewriting(store, &scope(), session, Branch::MAIN, &[1]).await;
    longer.turns[0].tokens = 25;
    assert!(store.rewrite(&scope(), longer).await.unwrap());
    assert_eq!(counted(Level::Macro).await, [(8, 81, 3)]);
    clean(store).await;
}

pub(super) async fn warm_text_and_packs_are_put_anew(store: &Store) {
    let session = add(store, "s", &say_many(13)).await;
    warm(store, session, 12).await;
    cool(store, session, ColdBody::Pack(new_pack("p"))).await;
    let before = store.packs(None).await.unwrap().remove(0);
    let head = store.head(scope().tenant()).await.unwrap();
    rewrite(store, session, &[2, 9, 12, 13]).await;
    assert_eq!(
        places(store, session).await,
        "1-2 pack p*, 3-4 pack p*, 5-6 pack p*, 7-8 pack p*, \
         9-10 text \"9 [REDACTED:db]\\n10 line 10\\n\", 11-12 text \"11 line 11\\n12 [REDACTED:db]\\n\""
    );
    let packs = store.packs(None).await.unwrap();
    let (pack, given) = (&packs[0], new_pack("p*"));
    assert_eq!((packs.len(), pack.id, pack.created_at), (1, before.id, before.created_at));
    assert_eq!((&pack.name, pack.key.as_bytes()), (&given.name, given.key.as_bytes()));
    assert_eq!(rows(store, session).await.iter().filter(|row| row.body.is_some()).count(), 1);
    assert_eq!(store.head(scope().tenant()).await.unwrap(), head, "nothing is logged by itself");
    assert_eq!(stats(store).await.tier_tokens, [3, 26, 73]);
    clean(store).await;
}

pub(super) async fn what_was_made_of_a_rewritten_turn_goes(store: &Store) {
    let session = add(store, "s", &say_many(16)).await;
    let other = add(store, "t", &say_many(2)).await;
    summarize(store, session).await;
    summarize(store, other).await;
    let id = |session: SessionNo, seq| TurnId { session, seq: Seq(seq) };
    let drawn = |session, seq| drawn_fact(fact("Ana", "a"), id(session, seq));
    let facts = vec![drawn(session, 6), drawn(session, 16), drawn(other, 1)];
    let batch =
        FactBatch { seen_through: Position(0), through: Position(18), facts, secrets_seen: 1 };
    assert!(store.put_facts(&scope(), batch).await.unwrap());
    let verdict = NewVerdict {
        fact: fact("Ana", "a"),
        verdict: Verdict::Confirmed,
        source: Some(id(session, 6)),
        now: NOW,
        secrets_seen: 1,
        hidden: Hidden::new(),
    };
    store.put_verdict(&scope(), verdict).await.unwrap();
    let operations = ["POST /turns", "POST /context"];
    let bodies = [OutcomeBody::Ids, OutcomeBody::Text].map(|body| body("{}".to_owned()));
    for (operation, body) in operations.into_iter().zip(bodies) {
        let (operation, key) = (operation.to_owned(), "k".to_owned());
        let outcome =
            NewOutcome { claim: Claim { operation, key, request: [1; 32], code: 200 }, body };
        store.put_outcome(scope().tenant(), outcome, NOW).await.unwrap();
    }
    for due in unsettled(store).await {
        let seen = store.branch(&due.scope, due.session, due.branch).await.unwrap().unwrap();
        store.settle(&due.scope, due.session, due.branch, seen.version).await.unwrap();
    }
    let late = summing(store, session, Level::Micro).await;
    rewrite(store, session, &[6]).await;
    let through = branch(store, session).await.summarized_through;
    assert_eq!(through, [Ordinal(4), Ordinal(4), Ordinal(0)]);
    assert_eq!(stats(store).await.summaries, [8, 3, 1]);
    // A worker that was overtaken puts nothing.
    store.put_summaries(&scope(), late).await.unwrap();
    assert_eq!(branch(store, session).await.summarized_through, through);
    assert_eq!(store.facts(&scope()).await.unwrap(), []);
    assert_eq!(store.facts_through(&scope()).await.unwrap(), Position(0));
    assert_eq!(store.verdicts(&scope()).await.unwrap().len(), 1);
    let head = store.scope_head(&scope()).await.unwrap();
    assert_eq!((head.epoch, head.facts), (1, 3), "numbers are not given again");
    assert_eq!(store.unsettled_count(None, None).await.unwrap(), 1);
    let kept = async |operation| {
        store.outcome(scope().tenant(), operation, "k", NOW).await.unwrap().is_some()
    };
    assert_eq!([kept(operations[0]).await, kept(operations[1]).await], [true, false]);
    clean(store).await;
}

pub(super) async fn a_rewrite_compares_before_it_writes(store: &Store) {
    let session = add(store, "s", &say_many(9)).await;
    let seen = async |seqs: &[u64]| rewriting(store, &scope(), session, Branch::MAIN, seqs).await;
    let refused = async |change: Rewrite| {
        let now = async || (rows(store, session).await, places(store, session).await);
        let before = (now().await, branch(store, session).await, stats(store).await);
        assert!(!store.rewrite(&scope(), change).await.unwrap());
        assert_eq!((now().await, branch(store, session).await, stats(store).await), before);
        clean(store).await;
    };
    // A body that is in its row is not given, or one that is not there is.
    let mut without = seen(&[1]).await;
    without.turns[0].body = None;
    refused(without).await;
    let given = seen(&[1]).await;
    // Rows became text; text was revised by an erasure, or put anew; an open turn's
    // micro was cut; text went to a pack; a pack was rewritten.
    let hot = seen(&[1]).await;
    warm(store, session, 2).await;
    refused(hot).await;
    let mut both = seen(&[1]).await;
    both.turns.clone_from(&given.turns);
    refused(both).await;
    let unrevised = seen(&[1]).await;
    erase(store, session, &[2]).await;
    refused(unrevised).await;
    let unrevised = seen(&[1]).await;
    rewrite(store, session, &[1]).await;
    refused(unrevised).await;
    let open = seen(&[9]).await;
    add(store, "s", &say_many(1)).await;
    refused(open).await;
    warm(store, session, 10).await;
    let text = seen(&[3]).await;
    cool(store, session, ColdBody::Pack(new_pack("p"))).await;
    refused(text).await;
    let packed = seen(&[5]).await;
    let mut unnamed = packed.clone();
    unnamed.packs.clear();
    refused(unnamed).await;
    erase(store, session, &[7]).await;
    refused(packed).await;
    // Nowhere.
    let mut nowhere = seen(&[5]).await;
    nowhere.branch = Branch(3);
    refused(nowhere).await;
    let elsewhere = seen(&[5]).await;
    assert!(!store.rewrite(&scope_of("rival", "notes"), elsewhere).await.unwrap());
    // What was erased meanwhile is passed over; so is what is let go.
    let mut erased = seen(&[5]).await;
    erased.turns.push(RewrittenTurn { seq: Seq(7), ..erased.turns[0].clone() });
    assert!(store.rewrite(&scope(), erased).await.unwrap());
    assert_eq!(rows(store, session).await[6].tokens, 0);
    clean(store).await;
}

// What was told

fn entry(id: &str, content: &str, tag: &str) -> NewEntry {
    NewEntry {
        id: Some(id.to_owned()),
        content: text(content),
        tags: vec![text(tag)],
        expires_at: None,
        now: NOW,
        secrets_seen: 1,
        hidden: Hidden::new(),
        claim: None,
    }
}

fn verdict(subject: &str, value: &str) -> NewVerdict {
    NewVerdict {
        fact: fact(subject, value),
        verdict: Verdict::Added,
        source: None,
        now: NOW,
        secrets_seen: 1,
        hidden: Hidden::new(),
    }
}

const FIRST: &str = "q8Zk2Lm9Xw";
const SECOND: &str = "Pv4tRb7Ncs";

async fn retell(store: &Store) -> RewriteCounts {
    let redactor = redactor_of(&[FIRST, SECOND]);
    let told = store.rewrite_stored_text(&tenant("acme"), redactor.clone(), NOW).await.unwrap();
    let again = store.rewrite_stored_text(&tenant("acme"), redactor, NOW).await.unwrap();
    assert_eq!(again, RewriteCounts::default(), "there is nothing left to hide");
    clean(store).await;
    told
}

pub(super) async fn what_was_told_is_redacted_again(store: &Store) {
    let old = scope_of("acme", &format!("of {FIRST}"));
    store.append(&old, batch(&format!("s {FIRST}"), &say_many(2))).await.unwrap();
    store.append(&old, batch("other", &say_many(1))).await.unwrap();
    let short = NewEntry {
        expires_at: Some(Millis(1)),
        ..entry("short", &format!("{FIRST} {SECOND} {FIRST}"), "plan")
    };
    store.put_entry(&old, short).await.unwrap();
    store.put_entry(&old, entry("tagged", "content", &format!("key:{SECOND}"))).await.unwrap();
    store.put_entry(&old, entry("plain", "content", "plan")).await.unwrap();
    store.put_verdict(&old, verdict("Ana", FIRST)).await.unwrap();
    store.log(&old, LogKind::Forgotten, format!(r#"{{"session":"{SECOND}"}}"#), NOW).await.unwrap();
    let ids = |body: &str| OutcomeBody::Ids(body.to_owned());
    for (operation, key, body) in [
        ("POST /turns", "plain", ids(&format!(r#"{{"session":"{FIRST}", "n":1}}"#))),
        ("POST /turns", SECOND, ids(r#"{"n": 2}"#)),
        ("POST /turns", "clean", ids(r#"{"n": 3}"#)),
        ("POST /context", "read", OutcomeBody::Text(FIRST.to_owned())),
    ] {
        let (operation, key) = (operation.to_owned(), key.to_owned());
        let outcome =
            NewOutcome { claim: Claim { operation, key, request: [1; 32], code: 201 }, body };
        store.put_outcome(&tenant("acme"), outcome, NOW).await.unwrap();
    }
    let head = store.head(&tenant("acme")).await.unwrap();

    let told = retell(store).await;
    let tagged = |text: &str| redactor_of(&[FIRST]).name(text).into_string();
    let new = scope_of("acme", &tagged(&format!("of {FIRST}")));
    let expected = RewriteCounts {
        sessions: 1,
        memories: vec![format!("of {FIRST}")],
        entries: 2,
        verdicts: 1,
        files: 0,
        runs: 0,
        commitments: 0,
        handoffs: 0,
        // Three entries, one verdict, one erasure.
        events: 5,
        keys: 0,
        outcomes: 2,
        derived: 0,
        hidden: told.hidden.clone(),
        touched: vec![new.clone()],
    };
    assert_eq!(told, expected);
    assert_eq!(store.head(&tenant("acme")).await.unwrap(), head);
    assert_eq!(memories(store, &tenant("acme")).await, [new.memory()]);
    let name = session_name(&tagged(&format!("s {FIRST}")));
    let found = store.session(&new, &name).await.unwrap().unwrap();
    assert_eq!((found.no, found.turns), (SessionNo(1), 2));
    assert_eq!(store.turns_after(&new, Position(0), 9).await.unwrap().len(), 3);
    let entries = store.entries_after(&new, Position(0), Millis(0), 9).await.unwrap();
    let shown: Vec<_> = entries.iter().map(|e| format!("{} {}", e.content, e.tags[0])).collect();
    assert_eq!(
        shown,
        [
            "[REDACTED:v1] [REDACTED:v2] [REDACTED:v1] plan",
            "content key:[REDACTED:v2]",
            "content plan"
        ]
    );
    let verdicts = store.verdicts(&new).await.unwrap();
    assert_eq!(verdicts[0].fact, fact("Ana", "[REDACTED:v1]"));
    let by_id = Selector::Entry(verdicts[0].fact.key().to_string());
    assert_eq!(store.erase_facts(&new, &by_id, &[], true, NOW).await.unwrap(), 1);
    let all = store.events(&tenant("acme"), None, Position(0), 99).await.unwrap();
    assert!(all.iter().all(|e| !e.payload.contains(FIRST) && !e.payload.contains(SECOND)));
    let of_memory = store.events(&tenant("acme"), Some(new.memory()), Position(0), 99).await;
    assert_eq!(of_memory.unwrap(), all);
    let id = verdicts[0].fact.key().to_string();
    assert!(all[6].payload.contains(&id), "it tells no hash of what was hidden");
    let outcome = async |operation: &str, key: &str| {
        let found = store.outcome(&tenant("acme"), operation, key, NOW).await.unwrap();
        found.map(|found| (found.request, found.code, found.body))
    };
    let kept = |body: &str| Some(([1; 32], 201, body.to_owned()));
    let first = outcome("POST /turns", "plain").await;
    assert_eq!(first, kept(r#"{"session":"[REDACTED:v1]", "n":1}"#));
    assert_eq!(outcome("POST /turns", "[REDACTED:v2]").await, kept(r#"{"n": 2}"#));
    assert_eq!(outcome("POST /turns", SECOND).await, None);
    assert_eq!(outcome("POST /turns", "clean").await, kept(r#"{"n": 3}"#));
    assert_eq!(outcome("POST /context", "read").await, None, "it may quote");
    assert_eq!(store.scope_head(&new).await.unwrap().epoch, 1);
    // Counted with what is there: two names, two entries, the text of a fact.
    assert_eq!(told.hidden, counts(&[("v1", 5), ("v2", 2)]));
    let stats = store.stats(&tenant("acme"), None, NOW).await.unwrap();
    assert_eq!(stats.hidden, counts(&[("v1", 3), ("v2", 2)]));
}

pub(super) async fn names_that_become_the_same_are_numbered(store: &Store) {
    let taken = redactor_of(&[FIRST]).name(FIRST).into_string();
    let second = format!("{taken}#2");
    for name in [FIRST, &taken, "other"] {
        add(store, name, &say_many(1)).await;
        store.append(&scope_of("acme", name), batch("s", &say_many(1))).await.unwrap();
        store.put_entry(&scope_of("acme", name), entry(name, "x", "y")).await.unwrap();
    }
    let told = retell(store).await;
    assert_eq!((told.sessions, told.memories), (1, vec![FIRST.to_owned()]));
    let sessions = store.sessions(&scope(), None, 9).await.unwrap();
    let names: Vec<_> = sessions.iter().map(|s| s.name.as_ref().unwrap().as_str()).collect();
    assert_eq!(names, [second.as_str(), &taken, "other"]);
    assert_eq!(memories(store, &tenant("acme")).await, [taken.as_str(), &second, "notes", "other"]);
    let renamed = scope_of("acme", &second);
    assert_eq!(store.sessions(&renamed, None, 9).await.unwrap().len(), 1);
    let events = store.events(&tenant("acme"), Some(&second), Position(0), 9).await;
    let events = events.unwrap();
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|e| e.payload.contains(&format!(r#""memoryRef":"{second}""#))));
    let epoch = async |name: &str| store.scope_head(&scope_of("acme", name)).await.unwrap().epoch;
    assert_eq!([epoch(&second).await, epoch("notes").await, epoch("other").await], [1, 1, 0]);
}

pub(super) async fn the_last_of_verdicts_that_become_the_same_stands(store: &Store) {
    let both = redactor_of(&[FIRST]);
    let clean_value = both.text(FIRST).into_string();
    for (at, value) in [FIRST, &clean_value, "x"].into_iter().enumerate() {
        let hidden = counts(&[(&format!("of-{at}"), 1)]);
        store.put_verdict(&scope(), NewVerdict { hidden, ..verdict("Ana", value) }).await.unwrap();
    }
    let mut ben = verdict("Ben", &clean_value);
    store.put_verdict(&scope(), ben.clone()).await.unwrap();
    ben.fact = fact("Ben", FIRST);
    ben.verdict = Verdict::Rejected;
    store.put_verdict(&scope(), ben).await.unwrap();
    let told = retell(store).await;
    assert_eq!((told.verdicts, told.events), (2, 2));
    let found = store.verdicts(&scope()).await.unwrap();
    let shown: Vec<_> = found
        .iter()
        .map(|v| format!("{} {} {}", v.position, v.verdict.as_str(), v.fact.text))
        .collect();
    assert_eq!(
        shown,
        ["2 added Ana is [REDACTED:v1]", "3 added Ana is x", "5 rejected Ben is [REDACTED:v1]"]
    );
    let hidden = stats(store).await.hidden;
    assert_eq!(hidden, counts(&[("of-1", 1), ("of-2", 1), ("v1", 1)]));
}

pub(super) async fn derived_text_with_a_secret_goes(store: &Store) {
    let diary = scope_of("acme", "diary");
    let session = add(store, "s", &say_many(4)).await;
    let other = store.append(&diary, batch("d", &say_many(4))).await.unwrap().session;
    summarize(store, session).await;
    let drawn = drawn_fact(fact("Ana", FIRST), TurnId { session: other, seq: Seq(1) });
    let batch = FactBatch {
        seen_through: Position(0),
        through: Position(8),
        facts: vec![drawn],
        secrets_seen: 1,
    };
    assert!(store.put_facts(&diary, batch).await.unwrap());
    let told = retell(store).await;
    assert_eq!((told.derived, told.touched), (1, vec![diary.clone()]));
    assert_eq!(store.facts(&diary).await.unwrap(), []);
    assert_eq!(store.facts_through(&diary).await.unwrap(), Position(0));
    assert_eq!(store.scope_head(&diary).await.unwrap().epoch, 1);
    assert_eq!(stats(store).await.summaries, [2, 1, 0], "there was nothing to hide");
    let mut batch = summing(store, session, Level::Macro).await;
    let micro = chunks(store, session, Level::Micro).await.remove(0);
    (batch.level, batch.seen_through, batch.through) = (Level::Micro, Ordinal(4), Ordinal(4));
    batch.summaries = vec![(micro.id, micro.revision, summary(&format!("says {FIRST}")))];
    store.put_summaries(&scope(), batch).await.unwrap();
    let told = retell(store).await;
    assert_eq!((told.derived, told.touched), (3, vec![scope()]));
    assert_eq!(stats(store).await.summaries, [0; 3]);
    assert_eq!(branch(store, session).await.summarized_through, [Ordinal(0); 3]);
}

pub(super) async fn what_holds_no_secret_is_left_alone(store: &Store) {
    let redactor = redactor_of(&[FIRST]);
    let nobody = store.rewrite_stored_text(&tenant("acme"), redactor.clone(), NOW).await.unwrap();
    assert_eq!(nobody, RewriteCounts::default());
    assert!(store.tenants().await.unwrap().is_empty());
    let rival = scope_of("rival", FIRST);
    store.append(&rival, batch(FIRST, &say_many(1))).await.unwrap();
    add(store, "s", &say_many(2)).await;
    store.put_entry(&scope(), entry("e", "content", "tag")).await.unwrap();
    store.put_secret(&tenant("acme"), secret("db", FIRST), false, NOW).await.unwrap();
    let events = store.events(&tenant("acme"), None, Position(0), 9).await.unwrap();
    assert_eq!(retell(store).await, RewriteCounts::default());
    assert_eq!(store.events(&tenant("acme"), None, Position(0), 9).await.unwrap(), events);
    assert_eq!(store.scope_head(&scope()).await.unwrap().epoch, 0);
    assert!(store.session(&rival, &session_name(FIRST)).await.unwrap().is_some());
}
