//! Erasure: what goes, what stays, and what it is compared with.

use icecore_domain::chunk::Level;
use icecore_domain::ids::{Branch, Ordinal, Seq};
use icecore_domain::time::Millis;

use super::fixtures::*;
use crate::store::Store;
use crate::*;

pub(super) fn subject(name: &str) -> Selector {
    let hash = key().hash_name("name", name);
    Selector::Subject { hash, tag: text(&format!("subject:{name}")) }
}

async fn selected(store: &Store, memory: Option<&str>, selector: &Selector) -> String {
    let found = store.select(scope().tenant(), memory, selector).await.unwrap();
    let show = |s: &Selected| {
        let turns: Vec<_> = s.turns.iter().map(|(seq, at)| format!("{seq}@{at}")).collect();
        let whole = if s.whole_session { " whole" } else { "" };
        format!("{} {} {} {}{whole}", s.scope.memory(), s.session, s.branch, turns.join(" "))
    };
    found.iter().map(show).collect::<Vec<_>>().join(", ")
}

pub(super) async fn selectors_name_turns(store: &Store) {
    let turns = [say("a").id("a").by("Ana").at(10), say("b").by("Ben").at(20)];
    let session = add(store, "s", &turns).await;
    add(store, "s", &[say("c").by("Ana").at(5).after(&["a"])]).await;
    let diary = scope_of("acme", "diary");
    store.append(&diary, batch("s", &[say("d").by("Ana").at(30)])).await.unwrap();
    let whole = Selector::Session(session_name("s"));
    assert_eq!(
        selected(store, Some("notes"), &whole).await,
        "notes 1 main 1@1 2@2 whole, notes 1 fork-1 3@1 whole"
    );
    assert_eq!(
        selected(store, None, &subject("Ana")).await,
        "notes 1 main 1@1, notes 1 fork-1 3@1, diary 2 main 1@1"
    );
    assert_eq!(selected(store, None, &subject("Eve")).await, "");
    assert_eq!(
        selected(store, None, &Selector::Before(Millis(20))).await,
        "notes 1 main 1@1, notes 1 fork-1 3@1"
    );
    assert_eq!(selected(store, None, &Selector::Entry("x".to_owned())).await, "");
    erase(store, session, &[1]).await;
    assert_eq!(selected(store, Some("notes"), &subject("Ana")).await, "notes 1 fork-1 3@1");
    assert_eq!(store.select(&tenant("rival"), None, &whole).await.unwrap(), []);
}

pub(super) async fn a_tombstone_keeps_its_place(store: &Store) {
    let session = add(store, "s", &[say("a").id("a").at(5), say("b"), say("c")]).await;
    let before = rows(store, session).await;
    erase(store, session, &[1]).await;
    let after = rows(store, session).await;
    assert_eq!(after[1..], before[1..]);
    let (was, is) = (&before[0], &after[0]);
    assert_eq!((is.id, is.position, is.identity), (was.id, was.position, was.identity));
    assert_eq!((is.branch, is.ordinal, is.has_client_id), (was.branch, was.ordinal, true));
    assert_eq!((is.state, is.tokens, is.at, &is.body), (TurnState::Erased, 0, Millis(0), &None));
    let record = store.session_by_number(&scope(), session).await.unwrap().unwrap();
    assert_eq!((record.turns, record.tokens, record.last_seq), (2, 20, Seq(3)));
    let next = try_add(store, "s", &[say("d")]).await.unwrap();
    assert_eq!(shown(&next), "Added 4 main");
    clean(store).await;
}

pub(super) async fn chunks_count_what_is_left(store: &Store) {
    let session = add(store, "s", &say_many(9)).await;
    erase(store, session, &[3, 4, 5]).await;
    let counts = async |level| {
        let chunks = chunks(store, session, level).await;
        chunks.iter().map(|c| (c.turns, c.tokens, c.revision > 0)).collect::<Vec<_>>()
    };
    assert_eq!(
        counts(Level::Micro).await,
        [(2, 20, false), (0, 0, true), (1, 10, true), (2, 20, false)]
    );
    assert_eq!(counts(Level::Mini).await, [(2, 20, true), (3, 30, true)]);
    assert_eq!(counts(Level::Macro).await, [(5, 50, true)]);
    assert_eq!(ranges(store, session).await, "1-2 3-4 5-6 7-8 / 1-4 5-8 / 1-8");
    // Their times are those of the turns that are there.
    let timed: Vec<Say> = (1..=4).map(|n| say("x").at(n * 10)).collect();
    let other = add(store, "timed", &timed).await;
    erase(store, other, &[1]).await;
    let mini = chunks(store, other, Level::Mini).await.remove(0);
    assert_eq!((mini.first_at, mini.last_at), (Millis(20), Millis(40)));
    erase(store, other, &[2, 3, 4]).await;
    let mini = chunks(store, other, Level::Mini).await.remove(0);
    assert_eq!((mini.first_at, mini.last_at), (Millis(0), Millis(0)));
    // What goes down with nothing left has no text.
    warm(store, session, 8).await;
    assert!(places(store, session).await.contains("3-4 gone, 5-6 text"));
    cool(store, session, ColdBody::Pack(new_pack("p"))).await;
    assert_eq!(places(store, session).await, "1-2 pack p, 3-4 gone, 5-6 pack p, 7-8 pack p");
    clean(store).await;
}

pub(super) async fn an_open_tail_forgets_too(store: &Store) {
    let session = add(store, "s", &say_many(7)).await;
    erase(store, session, &[3, 7]).await;
    assert_eq!(branch(store, session).await.tail.micro_tokens, 0);
    assert_eq!(stats(store).await.open_turns, 0);
    clean(store).await;
    // Chunks that close later count what is left.
    add(store, "s", &say_many(1)).await;
    let macros = chunks(store, session, Level::Macro).await;
    assert_eq!((macros[0].turns, macros[0].tokens), (6, 60));
    let minis = chunks(store, session, Level::Mini).await;
    assert_eq!((minis[1].turns, minis[1].tokens), (3, 30));
    let micros = chunks(store, session, Level::Micro).await;
    assert_eq!((micros[3].turns, micros[3].tokens), (1, 10));
    clean(store).await;
}

pub(super) async fn warm_text_is_replaced(store: &Store) {
    let session = add(store, "s", &say_many(5)).await;
    warm(store, session, 4).await;
    erase(store, session, &[1, 3, 4]).await;
    assert_eq!(places(store, session).await, "1-2 text \"2 line 2\\n\", 3-4 gone");
    clean(store).await;
}

pub(super) async fn packs_are_rewritten(store: &Store) {
    let session = add(store, "s", &say_many(9)).await;
    warm(store, session, 8).await;
    cool(store, session, ColdBody::Pack(new_pack("p"))).await;
    erase(store, session, &[1, 2, 7]).await;
    assert_eq!(places(store, session).await, "1-2 gone, 3-4 pack p+, 5-6 pack p+, 7-8 pack p+");
    erase(store, session, &[3, 4, 5, 6, 8]).await;
    assert_eq!(places(store, session).await, "1-2 gone, 3-4 gone, 5-6 gone, 7-8 gone");
    assert!(store.packs(None).await.unwrap().is_empty());
    clean(store).await;
}

pub(super) async fn summaries_of_the_erased_go(store: &Store) {
    let session = add(store, "s", &say_many(16)).await;
    summarize(store, session).await;
    erase(store, session, &[6]).await;
    let through = branch(store, session).await.summarized_through;
    assert_eq!(through, [Ordinal(4), Ordinal(4), Ordinal(0)]);
    for (level, gone) in [(Level::Micro, 5), (Level::Mini, 5), (Level::Macro, 1)] {
        for chunk in chunks(store, session, level).await {
            assert_eq!(chunk.summary.is_none(), chunk.id.first == Ordinal(gone), "{}", chunk.id);
        }
    }
    summarize(store, session).await;
    assert_eq!(stats(store).await.summaries, [8, 4, 2]);
}

pub(super) async fn an_erasure_compares_before_it_erases(store: &Store) {
    let session = add(store, "s", &say_many(9)).await;
    let seen = async |seqs: &[u64]| erasing(store, &scope(), session, Branch::MAIN, seqs).await;
    let refused = async |erasure: Erasure| {
        let before = (rows(store, session).await, branch(store, session).await);
        assert!(!store.erase(&scope(), erasure).await.unwrap());
        assert_eq!((rows(store, session).await, branch(store, session).await), before);
        clean(store).await;
    };
    // Rows became text; text was revised; an open turn's micro was cut and
    // became text; text went to a pack; a pack was rewritten; no such branch.
    let hot = seen(&[1]).await;
    warm(store, session, 2).await;
    refused(hot).await;
    let unrevised = seen(&[1]).await;
    erase(store, session, &[2]).await;
    refused(unrevised).await;
    let open = seen(&[9]).await;
    add(store, "s", &say_many(1)).await;
    warm(store, session, 10).await;
    refused(open).await;
    let (text, emptied) = (seen(&[3]).await, seen(&[3, 4]).await);
    cool(store, session, ColdBody::Pack(new_pack("p"))).await;
    refused(text).await;
    refused(emptied).await;
    let packed = seen(&[5]).await;
    erase(store, session, &[7]).await;
    refused(packed).await;
    let mut nowhere = seen(&[5]).await;
    nowhere.branch = Branch(3);
    refused(nowhere).await;
    erase(store, session, &[5]).await;
}

pub(super) async fn a_turn_is_erased_once(store: &Store) {
    let session = add(store, "s", &say_many(5)).await;
    erase(store, session, &[1, 5]).await;
    erase(store, session, &[5, 1, 2, 2, 99]).await;
    let record = store.session_by_number(&scope(), session).await.unwrap().unwrap();
    assert_eq!((record.turns, record.tokens), (2, 20));
    assert_eq!(chunks(store, session, Level::Mini).await[0].turns, 2);
    clean(store).await;
}

pub(super) async fn the_epoch_rises(store: &Store) {
    let session = add(store, "s", &say_many(2)).await;
    assert_eq!(stats(store).await.epoch, 0);
    erase(store, session, &[1]).await;
    assert_eq!(stats(store).await.epoch, 1);
    erase(store, session, &[2]).await;
    assert_eq!(stats(store).await.epoch, 2);
    assert_eq!(store.stats(scope().tenant(), Some("diary"), NOW).await.unwrap().epoch, 0);
    assert_eq!((stats(store).await.sessions, stats(store).await.branches), (0, 0));
}

pub(super) async fn the_erased_stay_forgotten_unless_insisted(store: &Store) {
    let turns = [say("a").id("a"), say("ok").nth(1), say("ok").nth(2)];
    let session = add(store, "s", &turns).await;
    erase(store, session, &[1, 2]).await;
    let again = try_add(store, "s", &turns).await.unwrap();
    assert_eq!(shown(&again), "Forgotten 1 main, Known 3 main, Forgotten 2 main");
    let insisted = AppendBatch { insist: true, ..batch("s", &turns) };
    let insisted = store.append(&scope(), insisted).await.unwrap();
    assert_eq!(shown(&insisted), "Added 4 main, Known 3 main, Added 5 main");
    let known = try_add(store, "s", &turns).await.unwrap();
    assert_eq!(shown(&known), "Known 4 main, Known 3 main, Known 5 main");
    // An erased turn can still be forked from.
    erase(store, session, &[4]).await;
    let fork = try_add(store, "s", &[say("child").after(&["a"])]).await.unwrap();
    assert_eq!(shown(&fork), "Added 6 fork-1");
    clean(store).await;
}

pub(super) async fn a_forgotten_session_has_no_name(store: &Store) {
    let session = add(store, "s", &say_many(2)).await;
    erase(store, session, &[1, 2]).await;
    // Its turns have gone already; its name can still go.
    let whole = Selector::Session(session_name("s"));
    assert_eq!(selected(store, None, &whole).await, "notes 1 main  whole");
    let mut erasure = erasing(store, &scope(), session, Branch::MAIN, &[]).await;
    erasure.forget_name = true;
    assert!(store.erase(&scope(), erasure).await.unwrap());
    assert_eq!(selected(store, None, &whole).await, "");
    assert_eq!(store.session(&scope(), &session_name("s")).await.unwrap(), None);
    assert!(store.sessions(&scope(), None, 9).await.unwrap().is_empty());
    let record = store.session_by_number(&scope(), session).await.unwrap().unwrap();
    assert_eq!((record.name, record.turns, record.last_seq), (None, 0, Seq(2)));
    // It is known again by its hash.
    let again = try_add(store, "s", &[say("line 1").nth(1)]).await.unwrap();
    assert_eq!((shown(&again).as_str(), again.session), ("Forgotten 1 main", session));
    assert!(store.sessions(&scope(), None, 9).await.unwrap().is_empty());
    let new = try_add(store, "s", &[say("new")]).await.unwrap();
    assert_eq!((shown(&new).as_str(), new.session), ("Added 3 main", session));
    assert!(store.session(&scope(), &session_name("s")).await.unwrap().is_some());
    clean(store).await;
}

pub(super) async fn a_name_stays_while_a_turn_does(store: &Store) {
    let session = add(store, "s", &[say("a").id("a"), say("b"), say("c").after(&["a"])]).await;
    let mut main = erasing(store, &scope(), session, Branch::MAIN, &[1, 2]).await;
    // One that the caller did not see.
    add(store, "s", &[say("late")]).await;
    let mut fork = erasing(store, &scope(), session, Branch(1), &[3]).await;
    (main.forget_name, fork.forget_name) = (true, true);
    let named = async || store.session(&scope(), &session_name("s")).await.unwrap().is_some();
    assert!(store.erase(&scope(), main).await.unwrap());
    assert!(named().await);
    assert!(store.erase(&scope(), fork).await.unwrap());
    assert!(named().await);
    let mut late = erasing(store, &scope(), session, Branch(1), &[4]).await;
    late.forget_name = true;
    assert!(store.erase(&scope(), late).await.unwrap());
    assert!(!named().await);
    clean(store).await;
}

pub(super) async fn a_nameless_subject_is_not_found(store: &Store) {
    let session = add(store, "s", &[say("a").by("Ana"), say("b"), say("c").by("Ana")]).await;
    erase(store, session, &[1, 3]).await;
    assert_eq!(selected(store, None, &subject("Ana")).await, "");
    add(store, "s", &[say("d").by("Ben"), say("e").by("Ana")]).await;
    assert_eq!(selected(store, None, &subject("Ana")).await, "notes 1 main 5@5");
    assert_eq!(selected(store, None, &subject("Ben")).await, "notes 1 main 4@4");
}

pub(super) async fn kept_answers_that_may_quote_go(store: &Store) {
    let session = add(store, "s", &say_many(2)).await;
    let bodies = [
        ("POST /forget", OutcomeBody::Ids("1".to_owned())),
        ("POST /context", OutcomeBody::Text("answer".to_owned())),
    ];
    for (operation, body) in bodies {
        let (operation, key) = (operation.to_owned(), "k".to_owned());
        let outcome =
            NewOutcome { claim: Claim { operation, key, request: [1; 32], code: 200 }, body };
        store.put_outcome(scope().tenant(), outcome, NOW).await.unwrap();
    }
    erase(store, session, &[1]).await;
    let kept = async |operation| {
        store.outcome(scope().tenant(), operation, "k", NOW).await.unwrap().is_some()
    };
    assert!(kept("POST /forget").await);
    assert!(!kept("POST /context").await);
}
