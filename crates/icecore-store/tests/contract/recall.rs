//! What recall reads by: a scope in order, hits by id, facts and verdicts.

use icecore_domain::chunk::Level;
use icecore_domain::fact::Verdict;
use icecore_domain::ids::{Branch, Ordinal, Position, Scope, Seq, SessionNo, TurnId};
use icecore_domain::redact::Hidden;
use icecore_domain::time::Millis;

use super::fixtures::*;
use crate::error::StoreError;
use crate::store::Store;
use crate::*;

fn id(session: SessionNo, seq: u64) -> TurnId {
    TurnId { session, seq: Seq(seq) }
}

/// Ids of turns, as `1.1 1.2`.
fn ids(rows: &[TurnRow]) -> String {
    let show = |row: &TurnRow| format!("{}.{}", row.id.session, row.id.seq);
    rows.iter().map(show).collect::<Vec<_>>().join(" ")
}

async fn head(store: &Store) -> ScopeHead {
    store.scope_head(&scope()).await.unwrap()
}

// In order

pub(super) async fn a_scope_has_a_head(store: &Store) {
    assert_eq!(head(store).await, ScopeHead::default());
    assert!(store.tenants().await.unwrap().is_empty(), "asking makes nothing");
    let session = add(store, "s", &say_many(4)).await;
    store.append(&scope_of("acme", "diary"), batch("d", &say_many(3))).await.unwrap();
    let turns = ScopeHead { position: Position(4), ..ScopeHead::default() };
    assert_eq!(head(store).await, turns);
    add(store, "t", &say_many(2)).await;
    assert_eq!(head(store).await.position, Position(9));
    let began = put_entry(store, "e").await.began;
    assert_eq!(head(store).await.position, began);
    // What is erased keeps its place if it is a turn, and not if it is an entry.
    erase(store, session, &[4]).await;
    assert_eq!((head(store).await.position, head(store).await.epoch), (began, 1));
    let entry = Selector::Entry("e".to_owned());
    assert_eq!(store.erase_entries(&scope(), &entry, false, NOW).await.unwrap(), 1);
    assert_eq!((head(store).await.position, head(store).await.epoch), (Position(9), 2));
    summarize(store, session).await;
    assert_eq!(head(store).await.summaries, 3);
    clean(store).await;
}

pub(super) async fn turns_of_a_scope_come_in_order(store: &Store) {
    let first = add(store, "s", &say_many(5)).await;
    store.append(&scope_of("acme", "diary"), batch("d", &say_many(3))).await.unwrap();
    add(store, "t", &say_many(2)).await;
    add(store, "s", &say_many(2)).await;
    let after =
        async |after, limit| store.turns_after(&scope(), Position(after), limit).await.unwrap();
    assert_eq!(ids(&after(0, 99).await), "1.1 1.2 1.3 1.4 1.5 3.1 3.2 1.6 1.7");
    assert_eq!(ids(&after(3, 99).await), "1.4 1.5 3.1 3.2 1.6 1.7");
    assert_eq!(ids(&after(6, 3).await), "3.1 3.2 1.6");
    assert_eq!(ids(&after(11, 99).await), "1.7");
    assert_eq!(after(12, 99).await, []);
    assert_eq!(after(u64::MAX, 99).await, []);
    assert_eq!(store.turns_after(&scope_of("rival", "notes"), Position(0), 9).await.unwrap(), []);
    // Tombstones too; rows are as they are read by session.
    erase(store, first, &[2]).await;
    warm(store, first, 4).await;
    let all = after(0, 99).await;
    assert_eq!(all[1].state, TurnState::Erased);
    assert_eq!(all[..5], rows(store, first).await[..5]);
    assert!(all[3].body.is_none() && all[4].body.is_some());
}

pub(super) async fn turns_are_read_by_id(store: &Store) {
    let session = add(store, "s", &say_many(5)).await;
    let diary = scope_of("acme", "diary");
    let other = store.append(&diary, batch("d", &say_many(3))).await.unwrap().session;
    erase(store, session, &[2]).await;
    let asked = [
        id(session, 4),
        id(other, 1),
        id(session, 2),
        id(session, 9),
        id(SessionNo(99), 1),
        id(session, 1),
        id(session, u64::MAX),
    ];
    let found = store.turns_at(&scope(), &asked).await.unwrap();
    assert_eq!(ids(&found), "1.4 1.2 1.1");
    let all = rows(store, session).await;
    assert_eq!(found, [all[3].clone(), all[1].clone(), all[0].clone()]);
    assert_eq!(ids(&store.turns_at(&diary, &asked).await.unwrap()), "2.1");
    assert_eq!(store.turns_at(&scope_of("rival", "diary"), &asked).await.unwrap(), []);
}

pub(super) async fn bodies_are_found_one_by_one(store: &Store) {
    let session = add(store, "s", &say_many(21)).await;
    warm(store, session, 18).await;
    cool(store, session, ColdBody::Pack(new_pack("p"))).await;
    cool(store, session, ColdBody::Pack(new_pack("q"))).await;
    erase(store, session, &[3, 4]).await;
    let all = all_bodies(store, session).await;
    let at = async |ordinals: &[u64]| {
        let place = |at: &u64| (session, Branch::MAIN, Ordinal(*at));
        let places: Vec<_> = ordinals.iter().map(place).collect();
        store.bodies_at(&scope(), &places).await.unwrap()
    };
    // Packs, one of them rewritten; nothing left; text; rows; open; nowhere.
    let found = at(&[20, 16, 1, 2, 19, 4, 18, 21, 99, 0, 5]).await;
    let firsts: Vec<u64> = found.iter().map(|body| body.id.first.0).collect();
    assert_eq!(firsts, [1, 3, 5, 15, 17, 19]);
    for body in &found {
        let same = all.iter().find(|other| other.id == body.id).unwrap();
        assert_eq!(format!("{body:?}"), format!("{same:?}"));
    }
    // All of its turns, those that were not erased, none.
    let present = |first: u64| {
        let body = all.iter().find(|body| body.id.first.0 == first).unwrap();
        body.present.iter().map(|ordinal| ordinal.0).collect::<Vec<_>>()
    };
    assert_eq!(present(1), [1, 2]);
    assert!(present(3).is_empty());
    assert_eq!(present(19), [19, 20]);
    assert!(at(&[]).await.is_empty());
    // By the ids of turns, with their rows: only of those that lack their bodies.
    let asked = [20, 16, 1, 2, 5, 99].map(|seq| id(session, seq));
    let (turns, bodies) = whole_turns(store, &scope(), &asked).await;
    assert_eq!(turns, store.turns_at(&scope(), &asked).await.unwrap());
    let firsts: Vec<u64> = bodies.iter().map(|body| body.id.first.0).collect();
    assert_eq!(firsts, [1, 5, 15]);
    assert_eq!(format!("{bodies:?}"), format!("{:?}", at(&[16, 1, 5]).await));
    let (turns, bodies) = whole_turns(store, &scope(), &[]).await;
    assert!(turns.is_empty() && bodies.is_empty());
    let elsewhere = store.bodies_at(&scope(), &[(session, Branch(3), Ordinal(1))]).await.unwrap();
    assert!(elsewhere.is_empty());
    let diary = scope_of("acme", "diary");
    add_to(store, "diary").await;
    let place = (session, Branch::MAIN, Ordinal(1));
    assert!(store.bodies_at(&diary, &[place]).await.unwrap().is_empty());
    let (turns, bodies) = whole_turns(store, &diary, &asked).await;
    assert!(turns.is_empty() && bodies.is_empty());
    assert!(store.sessions_at(&diary, &[session]).await.unwrap().is_empty());
    let named = store.sessions_at(&scope(), &[SessionNo(99), session]).await.unwrap();
    assert_eq!(named, [store.session_by_number(&scope(), session).await.unwrap().unwrap()]);
}

/// Turns, and the bodies of those that lack theirs, of one moment.
async fn whole_turns(store: &Store, of: &Scope, ids: &[TurnId]) -> (Vec<TurnRow>, Vec<MicroBody>) {
    let ids = ids.to_vec();
    let read = store.read(of, "whole_turns", move |tx| {
        let turns = tx.turns_at(&ids)?;
        let lacking = turns.iter().filter(|turn| turn.lacks_body());
        let bodies = tx.bodies_at(&lacking.map(TurnRow::place).collect::<Vec<_>>())?;
        Ok((turns, bodies))
    });
    read.await.unwrap()
}

async fn add_to(store: &Store, memory: &str) -> SessionNo {
    let scope = scope_of("acme", memory);
    store.append(&scope, batch("d", &say_many(4))).await.unwrap().session
}

pub(super) async fn chunks_are_read_by_key(store: &Store) {
    let session = add(store, "s", &say_many(9)).await;
    let other = add_to(store, "diary").await;
    summarize(store, session).await;
    let key = |session, level, first| (session, Branch::MAIN, level, Ordinal(first));
    let asked = [
        key(session, Level::Mini, 5),
        key(session, Level::Micro, 2),
        key(other, Level::Micro, 1),
        key(session, Level::Macro, 1),
        (session, Branch(1), Level::Micro, Ordinal(1)),
        key(session, Level::Micro, 3),
    ];
    let found = store.chunks_at(&scope(), &asked).await.unwrap();
    let minis = chunks(store, session, Level::Mini).await;
    let macros = chunks(store, session, Level::Macro).await;
    let micros = chunks(store, session, Level::Micro).await;
    assert_eq!(found, [minis[1].clone(), macros[0].clone(), micros[1].clone()]);
    assert_eq!(store.chunks_at(&scope_of("rival", "notes"), &asked).await.unwrap(), []);
}

pub(super) async fn summaries_have_numbers(store: &Store) {
    let session = add(store, "s", &say_many(9)).await;
    summarize(store, session).await;
    let after = async |after, limit| {
        let found = store.summaries_after(&scope(), after, limit).await.unwrap();
        let show = |(number, chunk): &(u64, ChunkRecord)| {
            assert!(chunk.summary.is_some());
            format!("{number}:{}", &chunk.id.to_string())
        };
        found.iter().map(show).collect::<Vec<_>>()
    };
    let all = after(0, 99).await;
    assert_eq!(all.len(), 7);
    assert!(all[0].starts_with("1:") && all[6].starts_with("7:"));
    assert_eq!(after(2, 2).await, all[2..4]);
    // One written again comes again, with the next number.
    erase(store, session, &[1]).await;
    assert_eq!(after(0, 99).await.len(), 4);
    summarize(store, session).await;
    assert_eq!(head(store).await.summaries, 14);
    assert_eq!(after(7, 99).await.len(), 7, "the watermarks were set back to the beginning");
    assert_eq!(after(0, 99).await.len(), 7);
    let whole = store.summaries_after(&scope(), 13, 9).await.unwrap().remove(0);
    assert_eq!(whole.1, chunks(store, session, Level::Macro).await[0]);
    // Each scope counts for itself, and never back.
    let other = add_to(store, "diary").await;
    let diary = scope_of("acme", "diary");
    let batch = summing_of(store, &diary, other, Branch::MAIN, Level::Micro).await;
    store.put_summaries(&diary, batch).await.unwrap();
    assert_eq!(store.scope_head(&diary).await.unwrap().summaries, 2);
    store.drop_derived(&scope()).await.unwrap();
    assert_eq!((after(0, 99).await.len(), head(store).await.summaries), (0, 14));
    clean(store).await;
}

pub(super) async fn entries_come_in_order(store: &Store) {
    add(store, "s", &say_many(2)).await;
    let mut began = Vec::new();
    for name in ["c", "a", "b"] {
        began.push(put_entry(store, name).await.began);
    }
    let short = NewEntry { expires_at: Some(NOW), ..new_entry("short") };
    began.push(store.put_entry(&scope(), short).await.unwrap().began);
    let names = |found: Vec<EntryRecord>| {
        found.into_iter().map(|entry| entry.id).collect::<Vec<_>>().join(" ")
    };
    let after = async |after, now, limit| {
        names(store.entries_after(&scope(), after, now, limit).await.unwrap())
    };
    let early = Millis(NOW.0 - 1);
    assert_eq!(after(Position(0), early, 99).await, "c a b short");
    assert_eq!(after(Position(0), NOW, 99).await, "c a b");
    assert_eq!(after(began[0], NOW, 1).await, "a");
    assert_eq!(after(began[2], NOW, 9).await, "");
    let asked = [began[2], Position(1), began[3], began[0]];
    let all = EntryFilter::default();
    let at = async |now| names(store.entries_at(&scope(), &asked, &all, now).await.unwrap());
    assert_eq!((at(NOW).await, at(early).await), ("b c".to_owned(), "b short c".to_owned()));
    let diary = scope_of("acme", "diary");
    assert_eq!(store.entries_at(&diary, &asked, &all, early).await.unwrap(), []);
    assert_eq!(store.entries_after(&diary, Position(0), early, 9).await.unwrap(), []);
    // An index must notice what goes.
    let entry = Selector::Entry("a".to_owned());
    store.erase_entries(&scope(), &entry, true, NOW).await.unwrap();
    assert_eq!(head(store).await.epoch, 0);
    store.erase_entries(&scope(), &entry, false, NOW).await.unwrap();
    assert_eq!(head(store).await.epoch, 1);
}

fn new_entry(id: &str) -> NewEntry {
    let (content, tags) = (text("content"), Vec::new());
    let (id, hidden) = (Some(id.to_owned()), Hidden::new());
    let (expires_at, claim) = (None, None);
    NewEntry { id, content, tags, expires_at, now: NOW, secrets_seen: 1, hidden, claim }
}

async fn put_entry(store: &Store, id: &str) -> EntryRecord {
    store.put_entry(&scope(), new_entry(id)).await.unwrap()
}

// Facts

fn fact_batch(seen: u64, through: u64, facts: Vec<NewFact>) -> FactBatch {
    FactBatch { seen_through: Position(seen), through: Position(through), facts, secrets_seen: 1 }
}

async fn put_facts(store: &Store, seen: u64, through: u64, facts: Vec<NewFact>) -> bool {
    store.put_facts(&scope(), fact_batch(seen, through, facts)).await.unwrap()
}

/// Facts as `1:Ana lives in Lisbon`.
fn told(facts: &[FactRecord]) -> String {
    let show = |fact: &FactRecord| format!("{}:{}", fact.number, fact.fact.text.as_str());
    facts.iter().map(show).collect::<Vec<_>>().join(", ")
}

async fn all_facts(store: &Store) -> String {
    told(&store.facts(&scope()).await.unwrap())
}

pub(super) async fn facts_are_put_with_their_watermark(store: &Store) {
    assert!(!put_facts(store, 0, 0, Vec::new()).await, "there is no such scope");
    assert!(store.tenants().await.unwrap().is_empty());
    let session = add(store, "s", &say_many(4)).await;
    assert_eq!(store.facts_through(&scope()).await.unwrap(), Position(0));
    let drawn = |value, seq| drawn_fact(fact("Ana", value), id(session, seq));
    assert!(put_facts(store, 0, 2, vec![drawn("Lisbon", 1), drawn("Porto", 2)]).await);
    assert!(put_facts(store, 2, 3, Vec::new()).await);
    assert!(put_facts(store, 3, 4, vec![drawn("lisbon!", 4)]).await);
    assert_eq!(store.facts_through(&scope()).await.unwrap(), Position(4));
    let all = store.facts(&scope()).await.unwrap();
    let new = drawn("Porto", 2);
    let (number, at, recorded_at) = (2, new.at, new.recorded_at);
    let porto = FactRecord { number, fact: new.fact, source: new.source, at, recorded_at };
    assert_eq!((all.len(), &all[1]), (3, &porto));
    assert_eq!(store.facts_after(&scope(), 1, 1).await.unwrap(), all[1..2]);
    assert_eq!(store.facts_after(&scope(), 3, 9).await.unwrap(), []);
    let at = store.facts_at(&scope(), &[3, 9, 1]).await.unwrap();
    assert_eq!(at, [all[2].clone(), all[0].clone()]);
    let diary = scope_of("acme", "diary");
    assert_eq!(store.facts(&diary).await.unwrap(), []);
    assert_eq!(store.facts_at(&diary, &[1]).await.unwrap(), []);
    assert_eq!(store.facts_through(&diary).await.unwrap(), Position(0));
    assert_eq!((head(store).await.facts, stats(store).await.facts), (3, 3));
    clean(store).await;
}

pub(super) async fn facts_of_what_changed_are_not_put(store: &Store) {
    let session = add(store, "s", &say_many(17)).await;
    let other = add_to(store, "diary").await;
    let drawn = |from| vec![drawn_fact(fact("Ana", "Lisbon"), from)];
    erase(store, session, &[2]).await;
    warm(store, session, 16).await;
    cool(store, session, ColdBody::Dropped).await;
    // The watermark is elsewhere; erased; expired; another scope's; nowhere.
    let good = drawn(id(session, 12));
    assert!(!put_facts(store, 1, 5, good.clone()).await);
    for source in [id(session, 2), id(session, 3), id(other, 1), id(session, 99)] {
        let facts = [good.clone(), drawn(source)].concat();
        assert!(!put_facts(store, 0, 5, facts).await, "{source}");
    }
    assert_eq!(store.facts_through(&scope()).await.unwrap(), Position(0));
    assert_eq!((all_facts(store).await.as_str(), head(store).await.facts), ("", 0));
    assert!(put_facts(store, 0, 5, good).await);
}

pub(super) async fn facts_go_with_their_source(store: &Store) {
    let session = add(store, "s", &say_many(4)).await;
    let drawn = |value, seq| drawn_fact(fact("Ana", value), id(session, seq));
    put_facts(store, 0, 4, vec![drawn("a", 1), drawn("b", 2), drawn("c", 2), drawn("d", 3)]).await;
    let quoting =
        |value, seq| verdict(fact("Ana", value), Verdict::Confirmed, Some(id(session, seq)));
    store.put_verdict(&scope(), quoting("b", 2)).await.unwrap();
    store.put_verdict(&scope(), quoting("d", 3)).await.unwrap();
    let told = verdict(fact("Ana", "e"), Verdict::Added, None);
    store.put_verdict(&scope(), told).await.unwrap();
    erase(store, session, &[2]).await;
    assert_eq!(all_facts(store).await, "1:Ana is a, 4:Ana is d");
    assert_eq!(thought(store).await, "confirmed Ana is d, added Ana is e");
    assert_eq!(store.facts_through(&scope()).await.unwrap(), Position(4));
    assert_eq!((stats(store).await.facts, stats(store).await.verdicts), (2, 2));
    // Numbers are not given again.
    put_facts(store, 4, 4, vec![drawn("f", 4)]).await;
    assert_eq!(all_facts(store).await, "1:Ana is a, 4:Ana is d, 5:Ana is f");
    clean(store).await;
}

pub(super) async fn dropped_facts_are_drawn_anew(store: &Store) {
    let session = add(store, "s", &say_many(2)).await;
    let drawn = drawn_fact(fact("Ana", "a"), id(session, 1));
    put_facts(store, 0, 2, vec![drawn.clone()]).await;
    let added = verdict(fact("Ana", "e"), Verdict::Added, None);
    store.put_verdict(&scope(), added).await.unwrap();
    assert_eq!(store.drop_derived(&scope()).await.unwrap(), 1);
    assert_eq!(all_facts(store).await, "");
    assert_eq!(store.facts_through(&scope()).await.unwrap(), Position(0));
    assert_eq!(head(store).await.epoch, 1);
    assert_eq!(store.drop_derived(&scope()).await.unwrap(), 0);
    assert_eq!(head(store).await.epoch, 1);
    assert_eq!(thought(store).await, "added Ana is e");
    put_facts(store, 0, 2, vec![drawn]).await;
    assert_eq!(all_facts(store).await, "2:Ana is a");
}

// Verdicts

fn verdict(
    fact: icecore_domain::fact::RedactedFact,
    verdict: Verdict,
    source: Option<TurnId>,
) -> NewVerdict {
    NewVerdict { fact, verdict, source, now: NOW, secrets_seen: 1, hidden: Hidden::new() }
}

/// Verdicts as `added Ana is a`.
async fn thought(store: &Store) -> String {
    let show = |v: &VerdictRecord| format!("{} {}", v.verdict.as_str(), v.fact.text.as_str());
    let found = store.verdicts(&scope()).await.unwrap();
    found.iter().map(show).collect::<Vec<_>>().join(", ")
}

pub(super) async fn the_last_verdict_stands(store: &Store) {
    let put = async |value, verdict_given| {
        let new = verdict(fact("Ana", value), verdict_given, None);
        store.put_verdict(&scope(), new).await.unwrap()
    };
    assert_eq!(put("a", Verdict::Added).await, Position(1));
    put("b", Verdict::Confirmed).await;
    assert_eq!(thought(store).await, "added Ana is a, confirmed Ana is b");
    let last = put("A.", Verdict::Rejected).await;
    assert_eq!(thought(store).await, "confirmed Ana is b, rejected Ana is A.");
    assert_eq!((last, head(store).await.verdicts), (Position(3), Position(3)));
    assert_eq!(head(store).await.position, Position(0), "it is neither turn nor entry");
    let found = store.verdicts(&scope()).await.unwrap().remove(1);
    let record = VerdictRecord {
        fact: fact("Ana", "A."),
        verdict: Verdict::Rejected,
        source: None,
        at: NOW,
        position: last,
    };
    assert_eq!(found, record);
    let events = store.events(scope().tenant(), Some("notes"), Position(0), 9).await.unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["fact.added", "fact.confirmed", "fact.rejected"]);
    let key = fact("Ana", "a").key();
    let payload: serde_json::Value = serde_json::from_str(&events[0].payload).unwrap();
    let expected = serde_json::json!({ "memoryRef": "notes", "factId": key.to_string() });
    assert_eq!(payload, expected);
    assert_eq!(store.verdicts(&scope_of("acme", "diary")).await.unwrap(), []);
    assert_eq!(stats(store).await.verdicts, 2);
}

pub(super) async fn a_verdict_quotes_what_is_there(store: &Store) {
    let session = add(store, "s", &say_many(2)).await;
    let other = add_to(store, "diary").await;
    erase(store, session, &[2]).await;
    let position = store.head(scope().tenant()).await.unwrap();
    for source in [id(session, 2), id(other, 1), id(session, 9)] {
        let new = verdict(fact("Ana", "a"), Verdict::Confirmed, Some(source));
        let refused = store.put_verdict(&scope(), new).await;
        assert!(matches!(refused, Err(StoreError::SourceGone { turn }) if turn == source));
    }
    assert_eq!(store.head(scope().tenant()).await.unwrap(), position);
    let new = verdict(fact("Ana", "a"), Verdict::Confirmed, Some(id(session, 1)));
    store.put_verdict(&scope(), new).await.unwrap();
    assert_eq!(store.verdicts(&scope()).await.unwrap()[0].source, Some(id(session, 1)));
}

pub(super) async fn facts_and_verdicts_are_erased(store: &Store) {
    let session = add(store, "s", &say_many(4)).await;
    let about =
        |who, seq, at| NewFact { at: Millis(at), ..drawn_fact(fact(who, "a"), id(session, seq)) };
    put_facts(store, 0, 4, vec![about("Ana", 1, 5), about("Ben", 2, 15), about("Eve", 3, 25)])
        .await;
    for (who, at) in [("ANA ", 30), ("Ben", 10), ("Ida", 40)] {
        let new = NewVerdict { now: Millis(at), ..verdict(fact(who, "b"), Verdict::Added, None) };
        store.put_verdict(&scope(), new).await.unwrap();
    }
    let subject = |name: &str| Selector::Subject {
        hash: key().hash_name("name", name),
        tag: text(&format!("subject:{name}")),
    };
    let nothing = Selector::Session(session_name("s"));
    let count = async |selector: &Selector, quoting: &[TurnId]| {
        store.erase_facts(&scope(), selector, quoting, true, NOW).await.unwrap()
    };
    assert_eq!(count(&subject("ana"), &[]).await, 2);
    assert_eq!(count(&subject("an"), &[]).await, 0);
    assert_eq!(count(&subject("..."), &[]).await, 0);
    assert_eq!(count(&Selector::Before(Millis(15)), &[]).await, 2);
    assert_eq!(count(&nothing, &[]).await, 0);
    // What quotes one of the turns counts once.
    let turns = [id(session, 1), id(session, 3), id(session, 4)];
    assert_eq!(count(&nothing, &turns).await, 2);
    assert_eq!(count(&subject("Ana"), &turns).await, 3);
    let by_id = Selector::Entry(fact("Eve", "a").key().to_string());
    assert_eq!(count(&by_id, &[]).await, 1);
    assert_eq!((head(store).await.epoch, stats(store).await.facts), (0, 3));

    let erase = async |selector: &Selector, quoting: &[TurnId]| {
        store.erase_facts(&scope(), selector, quoting, false, NOW).await.unwrap()
    };
    assert_eq!(erase(&subject("Ana"), &[]).await, 2);
    assert_eq!(all_facts(store).await, "2:Ben is a, 3:Eve is a");
    assert_eq!(thought(store).await, "added Ben is b, added Ida is b");
    assert_eq!(head(store).await.epoch, 1);
    assert_eq!(erase(&subject("Ana"), &[]).await, 0);
    assert_eq!(head(store).await.epoch, 1, "nothing went");
    assert_eq!(erase(&Selector::Before(Millis(15)), &turns).await, 2);
    assert_eq!(all_facts(store).await, "2:Ben is a");
    assert_eq!(thought(store).await, "added Ida is b");
    assert_eq!(
        store
            .erase_facts(&scope_of("acme", "diary"), &subject("Ida"), &[], false, NOW)
            .await
            .unwrap(),
        0
    );
    clean(store).await;
}
