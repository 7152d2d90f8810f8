//! Turns and sessions.

use icecore_domain::chunk::Level;
use icecore_domain::cut::CutPolicy;
use icecore_domain::ids::{Branch, Ordinal, Position, Seq, SessionNo, TurnId};
use icecore_domain::time::Millis;

use super::fixtures::*;
use crate::store::Store;
use crate::*;

pub(super) async fn a_session_begins_with_its_first_turn(store: &Store) {
    let trip = session_name("trip");
    assert_eq!(store.session(&scope(), &trip).await.unwrap(), None);
    let nothing = try_add(store, "trip", &[]).await.unwrap();
    assert_eq!((nothing.session, nothing.position), (SessionNo(0), Position(0)));
    assert_eq!(store.session(&scope(), &trip).await.unwrap(), None);

    let appended = try_add(store, "trip", &[say("one").tokens(3), say("two")]).await.unwrap();
    let session = store.session(&scope(), &trip).await.unwrap().unwrap();
    assert_eq!(session.no, appended.session);
    assert_eq!(session.name, Some(trip));
    assert_eq!((session.turns, session.tokens, session.last_seq), (2, 13, Seq(2)));
    assert_eq!((session.updated_at, session.current), (NOW, Branch::MAIN));
    assert_eq!(session.branches.len(), 1);
    assert_eq!(session.branches[0].fork, None);
    assert_eq!(try_add(store, "trip", &[]).await.unwrap().session, appended.session);
    clean(store).await;
}

pub(super) async fn seq_is_dense_and_rows_keep_what_was_given(store: &Store) {
    add(store, "other", &say_many(2)).await;
    let session = add(store, "s", &[say("a").id("x").by("Ana").at(5), say("b")]).await;
    add(store, "other", &say_many(1)).await;
    add(store, "s", &[say("c").tokens(0)]).await;
    let rows = rows(store, session).await;
    let places: Vec<_> = rows.iter().map(|r| (r.id.seq.0, r.position.0, r.ordinal.0)).collect();
    assert_eq!(places, [(1, 3, 1), (2, 4, 2), (3, 6, 3)]);
    assert_eq!(rows.iter().map(content).collect::<Vec<_>>(), ["a", "b", "c"]);
    let given = say("a").id("x").by("Ana").turn();
    assert_eq!(rows[0].body.as_ref(), Some(&given.turn));
    assert_eq!((rows[0].identity, rows[0].at, rows[0].tokens), (given.identity, Millis(5), 10));
    assert_eq!((rows[0].has_client_id, rows[1].has_client_id), (true, false));
    assert!(rows.iter().all(|row| row.state == TurnState::Present && !row.session_given));
    assert_eq!(store.head(scope().tenant()).await.unwrap(), Position(6));
    clean(store).await;
}

pub(super) async fn a_failed_append_leaves_nothing(store: &Store) {
    let failing = [say("a").id("a"), say("b").after(&["a"]), say("c").after(&["nobody"])];
    assert_eq!(refused(try_add(store, "s", &failing).await), "no parent 2 nobody");
    assert_eq!(store.session(&scope(), &session_name("s")).await.unwrap(), None);
    assert_eq!(store.head(scope().tenant()).await.unwrap(), Position(0));
    assert!(memories(store, scope().tenant()).await.is_empty());

    let session = add(store, "s", &say_many(3)).await;
    let before = store.session_by_number(&scope(), session).await.unwrap();
    assert!(try_add(store, "s", &failing).await.is_err());
    assert_eq!(store.session_by_number(&scope(), session).await.unwrap(), before);
    assert_eq!(ranges(store, session).await, "1-2 /  / ");
    assert_eq!(add(store, "t", &say_many(1)).await, SessionNo(2));
    clean(store).await;
}

pub(super) async fn a_known_id_with_the_same_body_is_known(store: &Store) {
    let turns = [say("a").id("1"), say("b").id("2"), say("a").id("1")];
    let first = try_add(store, "s", &turns).await.unwrap();
    assert_eq!(shown(&first), "Added 1 main, Added 2 main, Known 1 main");
    let again = try_add(store, "s", &[say("b").id("2"), say("c").id("3")]).await.unwrap();
    assert_eq!(shown(&again), "Known 2 main, Added 3 main");
    let none = try_add(store, "s", &turns).await.unwrap();
    assert_eq!(shown(&none), "Known 1 main, Known 2 main, Known 1 main");
    assert_eq!(none.position, again.position);
    // An id belongs to its session.
    let other = try_add(store, "t", &[say("other").id("1")]).await.unwrap();
    assert_eq!(shown(&other), "Added 1 main");
    clean(store).await;
}

pub(super) async fn a_known_id_with_another_body_is_a_conflict(store: &Store) {
    let session = add(store, "s", &[say("a").id("1")]).await;
    let changed = [say("new"), say("changed").id("1")];
    assert_eq!(refused(try_add(store, "s", &changed).await), "conflict 1 1");
    let within = [say("x").id("2"), say("y").id("2")];
    assert_eq!(refused(try_add(store, "s", &within).await), "conflict 1 2");
    assert_eq!(rows(store, session).await.len(), 1);
    clean(store).await;
}

pub(super) async fn the_nth_occurrence_of_a_body_is_known(store: &Store) {
    let ok = |nth| say("ok").nth(nth);
    add(store, "s", &[ok(1), say("b").nth(1), ok(2)]).await;
    let again = try_add(store, "s", &[ok(1), say("b").nth(1), ok(2), ok(3)]).await.unwrap();
    assert_eq!(shown(&again), "Known 1 main, Known 2 main, Known 3 main, Added 4 main");
    // With an id it is another turn.
    let with_id = try_add(store, "s", &[say("ok").id("ok")]).await.unwrap();
    assert_eq!(shown(&with_id), "Added 5 main");
}

pub(super) async fn repeated_content_is_kept(store: &Store) {
    let session = add(store, "s", &[say("ok"), say("ok"), say("ok")]).await;
    add(store, "s", &[say("ok")]).await;
    let rows = rows(store, session).await;
    assert_eq!(rows.iter().map(content).collect::<Vec<_>>(), ["ok"; 4]);
    assert!(rows.iter().all(|row| row.identity == rows[0].identity));
    clean(store).await;
}

pub(super) async fn a_head_is_continued_and_any_other_parent_forks(store: &Store) {
    let main = [say("a").id("a"), say("b").id("b").after(&["a"]), say("c").id("c").after(&["b"])];
    assert_eq!(
        shown(&try_add(store, "s", &main).await.unwrap()),
        "Added 1 main, Added 2 main, Added 3 main"
    );
    let fork = [say("d").id("d").after(&["b"]), say("e").id("e").after(&["d", "c"]), say("f")];
    let appended = try_add(store, "s", &fork).await.unwrap();
    assert_eq!(shown(&appended), "Added 4 fork-1, Added 5 fork-1, Added 6 fork-1");
    let back = try_add(store, "s", &[say("g").after(&["c"]), say("h")]).await.unwrap();
    assert_eq!(shown(&back), "Added 7 main, Added 8 main");
    let twice = try_add(store, "s", &[say("i").after(&["d"])]).await.unwrap();
    assert_eq!(shown(&twice), "Added 9 fork-2");
    let session = store.session_by_number(&scope(), twice.session).await.unwrap().unwrap();
    let forks: Vec<_> = session.branches.iter().map(|branch| branch.fork).collect();
    let at = |branch, ordinal| Some((Branch(branch), Ordinal(ordinal)));
    assert_eq!(forks, [None, at(0, 2), at(1, 1)]);
    assert_eq!(session.current, Branch(2));
    let heads: Vec<_> = session.branches.iter().map(|b| (b.head_seq.0, b.tail.length)).collect();
    assert_eq!(heads, [(8, 5), (6, 3), (9, 1)]);
    clean(store).await;
}

pub(super) async fn an_explicit_empty_list_of_parents_begins_a_tree(store: &Store) {
    let first = try_add(store, "s", &[say("a").after(&[]), say("b")]).await.unwrap();
    assert_eq!(shown(&first), "Added 1 main, Added 2 main");
    let root = try_add(store, "s", &[say("c").after(&[]), say("d")]).await.unwrap();
    assert_eq!(shown(&root), "Added 3 fork-1, Added 4 fork-1");
    let session = store.session_by_number(&scope(), root.session).await.unwrap().unwrap();
    assert_eq!(session.branches[1].fork, None);
    clean(store).await;
}

pub(super) async fn a_parent_may_be_named_by_our_id(store: &Store) {
    let session = add(store, "s", &say_many(3)).await;
    let ours = |seq| TurnId { session, seq: Seq(seq) }.to_string();
    let head = try_add(store, "s", &[say("x").after(&[&ours(3)])]).await.unwrap();
    assert_eq!(shown(&head), "Added 4 main");
    let fork = try_add(store, "s", &[say("y").after(&[&ours(1)])]).await.unwrap();
    assert_eq!(shown(&fork), "Added 5 fork-1");
    let foreign = TurnId { session: SessionNo(session.0 + 1), seq: Seq(1) }.to_string();
    let result = try_add(store, "s", &[say("z").after(&[&foreign])]).await;
    assert_eq!(refused(result), format!("no parent 0 {foreign}"));
}

pub(super) async fn parents_must_exist_and_come_first(store: &Store) {
    let check = async |turns: &[Say], expected: &str| {
        assert_eq!(refused(try_add(store, "s", turns).await), expected);
    };
    check(&[say("a").id("a").after(&["gone"])], "no parent 0 gone").await;
    check(&[say("x"), say("a").id("a").after(&["b"]), say("b").id("b")], "parent later 1 b").await;
    check(&[say("a").id("a").after(&["a"])], "cycle 0 a").await;
    check(&[say("a").id("a").after(&["b"]), say("b").id("b").after(&["a"])], "cycle 0 a").await;
    // A second parent must exist like the first.
    check(&[say("a").id("a"), say("b").after(&["a", "gone"])], "no parent 1 gone").await;
    assert_eq!(store.session(&scope(), &session_name("s")).await.unwrap(), None);
}

pub(super) async fn cuts_come_with_the_append(store: &Store) {
    let session = add(store, "s", &say_many(3)).await;
    assert_eq!(ranges(store, session).await, "1-2 /  / ");
    add(store, "s", &say_many(6)).await;
    assert_eq!(ranges(store, session).await, "1-2 3-4 5-6 7-8 / 1-4 5-8 / 1-8");
    let mini = &chunks(store, session, Level::Mini).await[1];
    assert_eq!((mini.first_seq, mini.last_seq, mini.turns, mini.tokens), (Seq(5), Seq(8), 4, 40));
    assert_eq!((mini.revision, &mini.summary), (0, &None));
    let branch = branch(store, session).await;
    assert_eq!((branch.tail.length, branch.tail.micro_first, branch.tail.micro_tokens), (9, 9, 10));
    assert_eq!(branch.version, 2);
    clean(store).await;
}

pub(super) async fn micros_are_bound_by_tokens(store: &Store) {
    let sizes = [60, 50, 500, 10, 10, 10];
    let turns: Vec<Say> = sizes.iter().map(|tokens| say("x").tokens(*tokens)).collect();
    let session = add(store, "s", &turns).await;
    assert_eq!(ranges(store, session).await, "1-1 2-2 3-3 4-4 5-6 / 1-4 / ");
    let micros = chunks(store, session, Level::Micro).await;
    let tokens: Vec<_> = micros.iter().map(|c| (c.tokens, c.first_seq.0, c.last_seq.0)).collect();
    assert_eq!(tokens, [(60, 1, 1), (50, 2, 2), (500, 3, 3), (10, 4, 4), (20, 5, 6)]);
    clean(store).await;
}

pub(super) async fn branches_have_cuts_of_their_own(store: &Store) {
    let session = add(store, "s", &[say("a").id("a"), say("b").id("b"), say("c").id("c")]).await;
    let fork =
        [say("f1").id("f1").after(&["a"]), say("c2").after(&["c"]), say("f2").after(&["f1"])];
    add(store, "s", &fork).await;
    assert_eq!(ranges(store, session).await, "1-2 3-4 / 1-4 / ");
    let main = &chunks(store, session, Level::Micro).await[1];
    assert_eq!((main.first_seq, main.last_seq), (Seq(3), Seq(5)));
    let query = ChunkQuery::all(session, Branch(1), Level::Micro, 9);
    let own = store.chunks(&scope(), &query).await.unwrap();
    assert_eq!(own.len(), 1);
    assert_eq!((own[0].first_seq, own[0].last_seq, own[0].turns), (Seq(4), Seq(6), 2));
    clean(store).await;
}

pub(super) async fn new_sizes_begin_at_the_next_macro(store: &Store) {
    let session = add(store, "s", &say_many(5)).await;
    let policy = CutPolicy { micro_turns: 3, mini_turns: 3, macro_turns: 3, micro_max_tokens: 100 };
    let more = AppendBatch { policy, ..batch("s", &say_many(6)) };
    store.append(&scope(), more).await.unwrap();
    assert_eq!(ranges(store, session).await, "1-2 3-4 5-6 7-8 9-11 / 1-4 5-8 9-11 / 1-8 9-11");
    assert_eq!(branch(store, session).await.tail.policy, policy);
    clean(store).await;
}

pub(super) async fn sessions_are_listed_by_number(store: &Store) {
    for name in ["c", "a", "b"] {
        add(store, name, &say_many(1)).await;
    }
    let names = async |after, limit| {
        let found = store.sessions(&scope(), after, limit).await.unwrap();
        found.into_iter().map(|s| s.name.unwrap().as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(None, 10).await, ["c", "a", "b"]);
    assert_eq!(names(None, 2).await, ["c", "a"]);
    assert_eq!(names(Some(SessionNo(1)), 1).await, ["a"]);
    assert_eq!(names(Some(SessionNo(3)), 10).await, [""; 0]);
    assert_eq!(names(Some(SessionNo(u64::MAX)), 10).await, [""; 0]);
    assert_eq!(store.session_by_number(&scope(), SessionNo(9)).await.unwrap(), None);
}

pub(super) async fn recent_sessions_come_first(store: &Store) {
    for (name, at) in [("a", 10), ("b", 30), ("c", 20), ("d", 30)] {
        let batch = AppendBatch { now: Millis(at), ..batch(name, &say_many(1)) };
        store.append(&scope(), batch).await.unwrap();
    }
    let names = async |limit| {
        let found = store.recent_sessions(&scope(), limit).await.unwrap();
        found.into_iter().map(|s| s.name.unwrap().as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(9).await, ["d", "b", "c", "a"]);
    assert_eq!(names(2).await, ["d", "b"]);
    let late = AppendBatch { now: Millis(40), ..batch("a", &say_many(1)) };
    store.append(&scope(), late).await.unwrap();
    assert_eq!(names(1).await, ["a"]);
    let mut erasure = erasing(store, &scope(), SessionNo(1), Branch::MAIN, &[1, 2]).await;
    erasure.forget_name = true;
    assert!(store.erase(&scope(), erasure).await.unwrap());
    assert_eq!(names(1).await, ["d"]);
    assert!(store.recent_sessions(&scope_of("rival", "notes"), 9).await.unwrap().is_empty());
}

pub(super) async fn turns_are_read_by_range_branch_and_end(store: &Store) {
    let session = add(store, "s", &[say("1").id("1"), say("2"), say("3")]).await;
    add(store, "s", &[say("4").after(&["1"]), say("5")]).await;
    let check = async |change: fn(&mut TurnQuery), expected: &[u64]| {
        let mut query = TurnQuery::all(session, 10);
        change(&mut query);
        let found = store.turns(&scope(), &query).await.unwrap();
        assert_eq!(found.iter().map(|row| row.id.seq.0).collect::<Vec<_>>(), expected);
    };
    check(|_| {}, &[1, 2, 3, 4, 5]).await;
    check(|q| (q.after, q.through) = (Seq(1), Seq(4)), &[2, 3, 4]).await;
    check(|q| q.limit = 2, &[1, 2]).await;
    check(|q| (q.limit, q.newest) = (2, true), &[4, 5]).await;
    check(|q| q.branch = Some(Branch(1)), &[4, 5]).await;
    check(|q| (q.branch, q.newest, q.limit) = (Some(Branch::MAIN), true, 2), &[2, 3]).await;
    check(|q| q.through = Seq(u64::MAX), &[1, 2, 3, 4, 5]).await;
    check(|q| q.limit = 0, &[]).await;
    // Bytes stop it as well, after the row that reaches them.
    check(|q| q.bytes = 0, &[]).await;
    check(|q| q.bytes = 1, &[1]).await;
    check(|q| (q.bytes, q.newest) = (1, true), &[5]).await;
    check(|q| (q.bytes, q.limit) = (usize::MAX, 2), &[1, 2]).await;
}

pub(super) async fn a_snapshot_shows_what_was_there(store: &Store) {
    let first = try_add(store, "s", &say_many(2)).await.unwrap();
    add(store, "t", &say_many(1)).await;
    add(store, "s", &say_many(2)).await;
    let seen = async |as_of| {
        let query = TurnQuery { as_of: Some(as_of), ..TurnQuery::all(first.session, 10) };
        store.turns(&scope(), &query).await.unwrap().len()
    };
    assert_eq!(seen(Position(0)).await, 0);
    assert_eq!(seen(Position(1)).await, 1);
    assert_eq!(seen(first.position).await, 2);
    assert_eq!(seen(Position(3)).await, 2);
    assert_eq!(seen(Position(4)).await, 3);
    assert_eq!(seen(Position(u64::MAX)).await, 4);
}

pub(super) async fn turns_are_found_by_lookup(store: &Store) {
    let session = add(store, "s", &[say("a").id("1"), say("b").id("2")]).await;
    let found = async |id: &str| {
        let lookup = key().lookup_of_id(id);
        let found = store.turns_by_lookup(&scope(), session, lookup).await.unwrap();
        found.iter().map(content).collect::<Vec<_>>()
    };
    assert_eq!(found("2").await, ["b"]);
    assert_eq!(found("3").await, [""; 0]);
}

pub(super) async fn tenants_and_memories_are_apart(store: &Store) {
    let mine = add(store, "s", &say_many(3)).await;
    for other in [scope_of("rival", "notes"), scope_of("acme", "diary")] {
        assert_eq!(store.session(&other, &session_name("s")).await.unwrap(), None);
        let first = store.append(&other, batch("s", &say_many(9))).await.unwrap();
        assert_eq!(shown(&first).split(", ").next(), Some("Added 1 main"));
    }
    let rival = scope_of("rival", "notes");
    assert_eq!(store.head(rival.tenant()).await.unwrap(), Position(9));
    assert_eq!(store.head(scope().tenant()).await.unwrap(), Position(12));
    assert_eq!(store.sessions(&rival, None, 9).await.unwrap().len(), 1);
    assert_eq!(rows(store, mine).await.len(), 3);

    // A number of another memory opens nothing and moves nothing.
    let diary = scope_of("acme", "diary");
    let query = TurnQuery::all(mine, 9);
    assert!(store.turns(&diary, &query).await.unwrap().is_empty());
    let query = ChunkQuery::all(mine, Branch::MAIN, Level::Micro, 9);
    assert!(store.chunks(&diary, &query).await.unwrap().is_empty());
    assert_eq!(store.session_by_number(&diary, mine).await.unwrap(), None);
    let (first, last) = (Ordinal(1), Ordinal(9));
    assert!(store.bodies(&diary, mine, Branch::MAIN, first, last).await.unwrap().is_empty());
    let demotion = warming(store, &scope(), mine, Branch::MAIN, 2).await.unwrap();
    assert!(!store.demote_to_warm(&diary, demotion).await.unwrap());
    let erasure = erasing(store, &scope(), mine, Branch::MAIN, &[1]).await;
    assert!(!store.erase(&diary, erasure).await.unwrap());
    let lookup = say("line 1").turn().identity.lookup;
    assert!(store.turns_by_lookup(&diary, mine, lookup).await.unwrap().is_empty());
    assert_eq!(rows(store, mine).await.iter().filter(|row| row.body.is_some()).count(), 3);

    let tenants = store.tenants().await.unwrap();
    assert_eq!(tenants, [tenant("acme"), tenant("rival")]);
    assert_eq!(memories(store, scope().tenant()).await, ["diary", "notes"]);
    clean(store).await;
}

pub(super) async fn the_identity_key_stays(store: &Store) {
    let hash = async |name: &str| {
        store.identity_key(&tenant(name)).await.unwrap().hash_name("session", "s")
    };
    let first = hash("acme").await;
    add(store, "s", &say_many(1)).await;
    assert_eq!(hash("acme").await, first);
    assert_ne!(hash("rival").await, first);
}

pub(super) async fn concurrent_appends_are_all_there_in_order(store: &Store) {
    let writer = async |name: &str| {
        let mut positions = Vec::new();
        for _ in 0..10 {
            positions.push(try_add(store, name, &say_many(3)).await.unwrap().position);
        }
        assert!(positions.is_sorted());
        positions
    };
    let (a, b, c) = tokio::join!(writer("a"), writer("b"), writer("shared"));
    let mut given: Vec<_> = [a, b, c].concat();
    given.sort();
    given.dedup();
    assert_eq!(given.len(), 30);
    assert_eq!(store.head(scope().tenant()).await.unwrap(), Position(90));
    for name in ["a", "b", "shared"] {
        let session = store.session(&scope(), &session_name(name)).await.unwrap().unwrap();
        assert_eq!((session.turns, session.last_seq), (30, Seq(30)));
    }
    clean(store).await;
}
