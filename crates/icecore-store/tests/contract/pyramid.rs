//! Chunks, bodies, moves down, summaries.

use icecore_domain::chunk::Level;
use icecore_domain::ids::{Branch, Ordinal, Position};
use icecore_domain::time::Millis;

use super::fixtures::*;
use crate::store::Store;
use crate::*;

pub(super) async fn chunks_are_read_by_range_and_end(store: &Store) {
    let session = add(store, "s", &say_many(9)).await;
    let check = async |change: fn(&mut ChunkQuery), expected: &str| {
        let mut query = ChunkQuery::all(session, Branch::MAIN, Level::Micro, 10);
        change(&mut query);
        let found = store.chunks(&scope(), &query).await.unwrap();
        let shown: Vec<_> = found.iter().map(|c| format!("{}-{}", c.id.first, c.id.last)).collect();
        assert_eq!(shown.join(" "), expected);
    };
    check(|_| {}, "1-2 3-4 5-6 7-8").await;
    check(|q| q.from = Ordinal(2), "3-4 5-6 7-8").await;
    check(|q| q.through = Ordinal(7), "1-2 3-4 5-6").await;
    check(|q| (q.from, q.through) = (Ordinal(3), Ordinal(6)), "3-4 5-6").await;
    check(|q| q.limit = 2, "1-2 3-4").await;
    check(|q| (q.limit, q.newest) = (2, true), "5-6 7-8").await;
    check(|q| q.level = Level::Macro, "1-8").await;
    check(|q| q.branch = Branch(1), "").await;
}

pub(super) async fn a_hot_body_is_in_its_rows(store: &Store) {
    let session = add(store, "s", &say_many(7)).await;
    assert_eq!(places(store, session).await, "1-2 rows, 3-4 rows, 5-6 rows");
    let overlapping = async |first, last| {
        let (first, last) = (Ordinal(first), Ordinal(last));
        let found = store.bodies(&scope(), session, Branch::MAIN, first, last).await.unwrap();
        found.iter().map(|body| body.id.first.0).collect::<Vec<_>>()
    };
    assert_eq!(overlapping(2, 3).await, [1, 3]);
    assert_eq!(overlapping(4, 4).await, [3]);
    assert_eq!(overlapping(6, 99).await, [5]);
    assert_eq!(overlapping(7, 99).await, [0; 0]);
}

pub(super) async fn warm_demotion_moves_bodies_to_text(store: &Store) {
    let session = add(store, "s", &say_many(7)).await;
    warm(store, session, 4).await;
    assert_eq!(
        places(store, session).await,
        "1-2 text \"1 line 1\\n2 line 2\\n\", 3-4 text \"3 line 3\\n4 line 4\\n\", 5-6 rows"
    );
    let rows = rows(store, session).await;
    let hot: Vec<_> = rows.iter().filter(|r| r.body.is_some()).map(|r| r.id.seq.0).collect();
    assert_eq!(hot, [5, 6, 7]);
    assert!(rows.iter().all(|row| row.state == TurnState::Present));
    assert_eq!(branch(store, session).await.warm_through, Ordinal(4));
    warm(store, session, 6).await;
    assert_eq!(branch(store, session).await.warm_through, Ordinal(6));
    clean(store).await;
}

pub(super) async fn warm_demotion_compares_before_it_moves(store: &Store) {
    let session = add(store, "s", &say_many(8)).await;
    let demotion =
        async |through| warming(store, &scope(), session, Branch::MAIN, through).await.unwrap();
    let refused = async |demotion: WarmDemotion| {
        let before = branch(store, session).await;
        assert!(!store.demote_to_warm(&scope(), demotion).await.unwrap());
        assert_eq!(branch(store, session).await, before);
        clean(store).await;
    };
    // Nothing to move; a gap; an erased turn; a watermark that moved.
    refused(demotion(1).await).await;
    let mut gap = demotion(4).await;
    gap.micros.remove(0);
    refused(gap).await;
    let seen = demotion(4).await;
    erase(store, session, &[3]).await;
    refused(seen).await;
    let seen = demotion(4).await;
    warm(store, session, 2).await;
    refused(seen).await;
}

pub(super) async fn cold_demotion_moves_bodies_to_a_pack(store: &Store) {
    let session = add(store, "s", &say_many(11)).await;
    warm(store, session, 10).await;
    let id = cool(store, session, ColdBody::Pack(new_pack("p"))).await;
    assert_eq!(
        places(store, session).await,
        "1-2 pack p, 3-4 pack p, 5-6 pack p, 7-8 pack p, 9-10 text \"9 line 9\\n10 line 10\\n\""
    );
    assert_eq!(branch(store, session).await.cold_through, Ordinal(8));
    let packs = store.packs(Some(scope().tenant())).await.unwrap();
    assert_eq!(packs.len(), 1);
    let (pack, given) = (&packs[0], new_pack("p"));
    assert_eq!((&pack.scope, pack.id, &pack.name), (&scope(), id, &given.name));
    assert_eq!((pack.bytes, pack.sha256, pack.created_at), (given.bytes, given.sha256, NOW));
    assert_eq!(pack.key.as_bytes(), given.key.as_bytes());
    assert!(store.packs(Some(&tenant("rival"))).await.unwrap().is_empty());
    clean(store).await;
}

pub(super) async fn cold_demotion_compares_before_it_moves(store: &Store) {
    let session = add(store, "s", &say_many(17)).await;
    let demotion = async || {
        let pack = ColdBody::Pack(new_pack("p"));
        cooling(store, &scope(), session, Branch::MAIN, pack).await.unwrap()
    };
    let refused = async |demotion: ColdDemotion| {
        let before = branch(store, session).await;
        assert!(!store.demote_to_cold(&scope(), demotion).await.unwrap());
        assert_eq!(branch(store, session).await, before);
        assert!(store.packs(None).await.unwrap().is_empty());
    };
    // Still hot; out of order; an erased turn.
    warm(store, session, 6).await;
    refused(demotion().await).await;
    warm(store, session, 16).await;
    let mut second = demotion().await;
    (second.id.first, second.id.last) = (Ordinal(9), Ordinal(16));
    refused(second).await;
    let seen = demotion().await;
    erase(store, session, &[3]).await;
    refused(seen).await;
    // A watermark that moved.
    let seen = demotion().await;
    cool(store, session, ColdBody::StaysText).await;
    refused(seen).await;
    clean(store).await;
}

pub(super) async fn cold_text_may_stay(store: &Store) {
    let session = add(store, "s", &say_many(8)).await;
    warm(store, session, 8).await;
    let before = places(store, session).await;
    cool(store, session, ColdBody::StaysText).await;
    assert_eq!(places(store, session).await, before);
    assert_eq!(stats(store).await.tier_turns, [0, 0, 8]);
    assert_eq!(stats(store).await.tier_bytes[1], 0);
    clean(store).await;
}

pub(super) async fn a_dropped_body_is_expired(store: &Store) {
    let session = add(store, "s", &say_many(9)).await;
    warm(store, session, 8).await;
    erase(store, session, &[1]).await;
    cool(store, session, ColdBody::Dropped).await;
    assert_eq!(places(store, session).await, "1-2 gone, 3-4 gone, 5-6 gone, 7-8 gone");
    let states: Vec<_> = rows(store, session).await.iter().map(|row| row.state).collect();
    assert_eq!(states[0], TurnState::Erased);
    assert_eq!(states[1..8], [TurnState::Expired; 7]);
    assert_eq!(states[8], TurnState::Present);
    let events = store.events(scope().tenant(), None, Position(9), 9).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].kind, "memory.expired");
    // An expired turn is still known, and can still be erased.
    let known = try_add(store, "s", &[say("line 2").nth(1)]).await.unwrap();
    assert_eq!(shown(&known), "Known 2 main");
    erase(store, session, &[2]).await;
    assert_eq!(rows(store, session).await[1].state, TurnState::Erased);
    clean(store).await;
}

pub(super) async fn packs_are_listed_oldest_first_and_expire(store: &Store) {
    for (name, at) in [("young", 300), ("old", 100), ("middle", 200)] {
        let session = add(store, name, &say_many(8)).await;
        warm(store, session, 8).await;
        let pack = ColdBody::Pack(new_pack(name));
        let mut demotion = cooling(store, &scope(), session, Branch::MAIN, pack).await.unwrap();
        demotion.now = Millis(at);
        assert!(store.demote_to_cold(&scope(), demotion).await.unwrap());
    }
    let older = async |before, limit| {
        let packs = store.packs_older_than(Millis(before), limit).await.unwrap();
        packs.into_iter().map(|pack| pack.name).collect::<Vec<_>>()
    };
    assert_eq!(older(999, 9).await, ["old", "middle", "young"]);
    assert_eq!(older(300, 9).await, ["old", "middle"]);
    assert_eq!(older(300, 1).await, ["old"]);

    let head = store.head(scope().tenant()).await.unwrap();
    let pack = store.packs_older_than(Millis(150), 1).await.unwrap().remove(0);
    store.expire_pack(&pack, NOW).await.unwrap();
    // Once is enough.
    store.expire_pack(&pack, NOW).await.unwrap();
    assert_eq!(older(999, 9).await, ["middle", "young"]);
    let states = rows(store, pack.id.session).await;
    assert!(states.iter().all(|row| row.state == TurnState::Expired));
    assert!(places(store, pack.id.session).await.starts_with("1-2 gone, "));
    let events = store.events(scope().tenant(), Some("notes"), head, 9).await.unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].kind.as_str(), events[0].at), ("memory.expired", NOW));
    assert_eq!(stats(store).await.expired, 8);
    clean(store).await;
}

pub(super) async fn summaries_are_put_with_their_watermark(store: &Store) {
    let session = add(store, "s", &say_many(9)).await;
    summarize(store, session).await;
    let through = branch(store, session).await.summarized_through;
    assert_eq!(through, [Ordinal(8), Ordinal(8), Ordinal(8)]);
    for level in Level::ALL {
        for chunk in chunks(store, session, level).await {
            assert_eq!(chunk.summary, Some(summary(&format!("of {}", chunk.id))));
        }
    }
    let stats = stats(store).await;
    assert_eq!((stats.chunks, stats.summaries), ([4, 2, 1], [4, 2, 1]));
    assert!(stats.summary_bytes > 0);
    clean(store).await;
}

pub(super) async fn summaries_of_what_changed_are_not_put(store: &Store) {
    let session = add(store, "s", &say_many(4)).await;
    let none = async || {
        let chunks = chunks(store, session, Level::Micro).await;
        assert!(chunks.iter().all(|chunk| chunk.summary.is_none()));
        let through = branch(store, session).await.summarized_through;
        assert_eq!(through, [Ordinal(0); 3], "what was not put is still due");
    };
    // A chunk was revised, though the watermark stands where it stood.
    let seen = summing(store, session, Level::Micro).await;
    erase(store, session, &[1]).await;
    store.put_summaries(&scope(), seen).await.unwrap();
    none().await;
    // The watermark is not where the caller saw it.
    let mut seen = summing(store, session, Level::Micro).await;
    seen.seen_through = Ordinal(2);
    store.put_summaries(&scope(), seen).await.unwrap();
    none().await;
}

pub(super) async fn derived_text_can_be_dropped(store: &Store) {
    let session = add(store, "s", &say_many(9)).await;
    summarize(store, session).await;
    let seen = branch(store, session).await.version;
    store.settle(&scope(), session, Branch::MAIN, seen).await.unwrap();
    assert_eq!(store.drop_derived(&scope_of("acme", "diary")).await.unwrap(), 0);
    assert_eq!(store.drop_derived(&scope()).await.unwrap(), 7);
    assert_eq!(branch(store, session).await.summarized_through, [Ordinal(0); 3]);
    assert_eq!(stats(store).await.summaries, [0; 3]);
    assert_eq!(store.unsettled_count(None, None).await.unwrap(), 1);
    summarize(store, session).await;
    assert_eq!(stats(store).await.summaries, [4, 2, 1]);
}

pub(super) async fn a_branch_is_settled_unless_it_changed(store: &Store) {
    let first = add(store, "s", &[say("a").id("a"), say("b"), say("c").after(&["a"])]).await;
    let rival = scope_of("rival", "notes");
    store.append(&rival, batch("r", &say_many(1))).await.unwrap();
    let due = unsettled(store).await;
    let mut shown: Vec<_> = due.iter().map(|d| format!("{} {}", d.scope, d.branch)).collect();
    // Which tenant comes first is the store's to say.
    shown.sort_by_key(|due| due.starts_with("rival"));
    assert_eq!(shown, ["acme/notes main", "acme/notes fork-1", "rival/notes main"]);
    assert_eq!(store.unsettled_beside(&[], 1).await.unwrap(), due[..1]);
    let acme = tenant("acme");
    let count = async |tenant, memory| store.unsettled_count(tenant, memory).await.unwrap();
    assert_eq!(count(None, None).await, 3);
    assert_eq!(count(Some(&acme), None).await, 2);
    assert_eq!(count(Some(&acme), Some("diary")).await, 0);

    let settle = async |seen| store.settle(&scope(), first, Branch::MAIN, seen).await.unwrap();
    settle(branch(store, first).await.version).await;
    assert_eq!(count(None, None).await, 2);
    // What the worker itself moves is no news; an append is.
    let seen = branch(store, first).await.version;
    warm(store, first, 2).await;
    assert_eq!(count(None, None).await, 2);
    assert!(branch(store, first).await.version > seen);
    let seen = branch(store, first).await.version;
    add(store, "s", &[say("d").id("d").after(&["a"]), say("e").after(&["a"])]).await;
    let more = count(None, None).await;
    assert_eq!(more, 4, "two more forks");
    settle(seen).await;
    assert_eq!(count(None, None).await, 4, "main was settled before and did not change");
    let seen = branch(store, first).await.version;
    erase(store, first, &[2]).await;
    settle(seen).await;
    assert_eq!(count(None, None).await, 5, "it changed since it was seen");

    for due in unsettled(store).await {
        let found = store.branch(&due.scope, due.session, due.branch).await.unwrap().unwrap();
        store.settle(&due.scope, due.session, due.branch, found.version).await.unwrap();
    }
    assert_eq!(count(None, None).await, 0);
    store.unsettle_all().await.unwrap();
    assert_eq!(count(None, None).await, 5);
}

pub(super) async fn stats_add_up(store: &Store) {
    assert_eq!(stats(store).await, StoreStats::default());
    let session = add(store, "s", &say_many(19)).await;
    store.append(&scope_of("acme", "diary"), batch("d", &say_many(5))).await.unwrap();
    warm(store, session, 12).await;
    cool(store, session, ColdBody::Pack(new_pack("p"))).await;
    erase(store, session, &[2, 11, 14, 19]).await;
    let stats = stats(store).await;
    assert_eq!((stats.sessions, stats.branches), (1, 1));
    assert_eq!((stats.turns, stats.tokens, stats.erased), (15, 150, 4));
    assert_eq!(stats.tier_turns, [5, 3, 7]);
    assert_eq!(stats.tier_tokens, [50, 30, 70]);
    assert_eq!(stats.open_turns, 0);
    assert_eq!((stats.chunks, stats.packs), ([9, 4, 2], 1));
    assert!(stats.tier_bytes.iter().all(|bytes| *bytes > 0));
    let whole = store.stats(scope().tenant(), None, NOW).await.unwrap();
    assert_eq!((whole.sessions, whole.turns, whole.tier_turns), (2, 20, [10, 3, 7]));
    assert_eq!(whole.open_turns, 1);
    assert_eq!(store.stats(&tenant("rival"), None, NOW).await.unwrap(), StoreStats::default());
    clean(store).await;
}
