//! Links: clients' histories as paths of turns.

use icecore_domain::fact::Verdict;
use icecore_domain::identity::Link;
use icecore_domain::ids::{SessionNo, TurnId};
use icecore_domain::redact::Hidden;

use super::fixtures::*;
use crate::error::StoreError;
use crate::store::Store;
use crate::*;

/// The links of a history, message by message.
pub(crate) fn chain(messages: &[&str]) -> Vec<Link> {
    let mut link = key().first_link();
    let next = |message: &&str| {
        link = key().next_link(link, message.as_bytes());
        link
    };
    messages.iter().map(next).collect()
}

/// An append of a history of which the first so many messages are known.
pub(crate) fn following(session: &str, messages: &[&str], known: usize) -> AppendBatch {
    let links = chain(messages);
    let turns: Vec<Say> = messages[known..].iter().map(|message| say(message)).collect();
    let mut batch = batch(session, &turns);
    batch.turns.iter_mut().zip(&links[known..]).for_each(|(turn, link)| turn.link = Some(*link));
    batch.after = known.checked_sub(1).map(|last| links[last]);
    batch
}

async fn follow(store: &Store, session: &str, messages: &[&str], known: usize) -> Appended {
    store.append(&scope(), following(session, messages, known)).await.unwrap()
}

/// The turns with a history's last link, as `1.2 main 2 head`.
async fn found(store: &Store, messages: &[&str], session: Option<u64>) -> String {
    let links = &chain(messages)[messages.len() - 1..];
    let found = store.linked(&scope(), links, session.map(SessionNo)).await.unwrap();
    let show = |turn: &LinkedTurn| {
        assert_eq!(turn.link, links[0]);
        let TurnPlace { id, branch, ordinal, state } = turn.place;
        let head = if turn.is_head { " head" } else { "" };
        let state = if state == TurnState::Present { String::new() } else { format!(" {state:?}") };
        format!("{}.{} {branch} {ordinal}{head}{state}", id.session, id.seq)
    };
    found.iter().map(show).collect::<Vec<_>>().join(", ")
}

pub(super) async fn a_turn_with_a_link_is_there_once(store: &Store) {
    assert_eq!(shown(&follow(store, "s", &["a", "b"], 0).await), "Added 1 main, Added 2 main");
    let again = follow(store, "s", &["a", "b", "c"], 0).await;
    assert_eq!(shown(&again), "Known 1 main, Known 2 main, Added 3 main");
    assert_eq!(again.turns.iter().map(|turn| turn.ordinal.0).collect::<Vec<_>>(), [1, 2, 3]);
    // The same words after others are another turn.
    let repeated = follow(store, "s", &["a", "b", "c", "a"], 3).await;
    assert_eq!(shown(&repeated), "Added 4 main");
    // Neither an id nor an occurrence decides.
    let mut batch = following("s", &["a", "b", "c", "a", "d"], 4);
    batch.turns[0].turn = say("x").id("same").turn().turn;
    store.append(&scope(), batch).await.unwrap();
    let mut batch = following("s", &["a", "b", "c", "a", "d", "e"], 5);
    batch.turns[0].turn = say("y").id("same").turn().turn;
    assert_eq!(shown(&store.append(&scope(), batch).await.unwrap()), "Added 6 main");
    clean(store).await;
}

pub(super) async fn turns_with_links_are_one_path(store: &Store) {
    follow(store, "s", &["a", "b", "c"], 0).await;
    // It follows what it says it follows, whatever branch is the current one.
    assert_eq!(shown(&follow(store, "s", &["a", "x"], 1).await), "Added 4 fork-1");
    assert_eq!(shown(&follow(store, "s", &["a", "b", "c", "d"], 3).await), "Added 5 main");
    let forked = follow(store, "s", &["a", "b", "y", "z"], 0).await;
    assert_eq!(shown(&forked), "Known 1 main, Known 2 main, Added 6 fork-2, Added 7 fork-2");
    // Without anything before it, a tree of its own.
    assert_eq!(shown(&follow(store, "s", &["other"], 0).await), "Added 8 fork-3");
    let record = store.session(&scope(), &session_name("s")).await.unwrap().unwrap();
    let forks: Vec<_> = record.branches.iter().map(|branch| branch.fork).collect();
    assert_eq!(forks[0], None);
    assert_eq!(forks[1].map(|(branch, at)| (branch.0, at.0)), Some((0, 1)));
    assert_eq!(forks[2].map(|(branch, at)| (branch.0, at.0)), Some((0, 2)));
    assert_eq!(forks[3], None);
    // A turn without a link goes on with the current branch as ever.
    assert_eq!(shown(&try_add(store, "s", &[say("plain")]).await.unwrap()), "Added 9 fork-3");
    clean(store).await;
}

pub(super) async fn a_path_goes_on_from_what_is_there(store: &Store) {
    let refused_new = store.append(&scope(), following("new", &["a", "b"], 1)).await;
    assert_eq!(refused(refused_new), "no parent 0 the message before");
    assert_eq!(store.session(&scope(), &session_name("new")).await.unwrap(), None);
    follow(store, "s", &["a"], 0).await;
    let unknown = store.append(&scope(), following("s", &["a", "b", "c"], 2)).await;
    assert_eq!(refused(unknown), "no parent 0 the message before");
    // Another session's is none of this one.
    follow(store, "t", &["a", "b"], 0).await;
    let others = store.append(&scope(), following("s", &["a", "b", "c"], 2)).await;
    assert_eq!(refused(others), "no parent 0 the message before");
    clean(store).await;
}

pub(super) async fn turns_are_found_by_their_links(store: &Store) {
    for session in ["s", "t"] {
        follow(store, session, &["a", "b"], 0).await;
    }
    follow(store, "t", &["a", "b", "c"], 2).await;
    assert_eq!(found(store, &["a", "b"], None).await, "2.2 main 2, 1.2 main 2 head");
    assert_eq!(found(store, &["a", "b"], Some(1)).await, "1.2 main 2 head");
    assert_eq!(found(store, &["a", "b", "c"], None).await, "2.3 main 3 head");
    assert_eq!(found(store, &["b"], None).await, "");
    // In the order asked.
    let (mut asked, history) = (chain(&["a", "b", "c"]), chain(&["a", "b", "c"]));
    asked.reverse();
    let turns = store.linked(&scope(), &asked, Some(SessionNo(2))).await.unwrap();
    let links: Vec<Link> = turns.iter().map(|turn| turn.link).collect();
    assert_eq!(links, [history[2], history[1], history[0]]);
}

/// An append of the answer to a history that is kept.
pub(crate) fn answering(session: &str, messages: &[&str]) -> AppendBatch {
    let mut batch = following(session, messages, messages.len() - 1);
    batch.turns.iter_mut().for_each(|turn| turn.is_answer = true);
    batch
}

/// For each session that has a history's last link, whether it is answered there.
async fn answered(store: &Store, messages: &[&str]) -> Vec<bool> {
    let links = &chain(messages)[messages.len() - 1..];
    let found = store.linked(&scope(), links, None).await.unwrap();
    found.iter().map(|turn| turn.is_answered).collect()
}

pub(super) async fn an_answer_is_told_from_what_a_client_made_up(store: &Store) {
    follow(store, "s", &["greeting", "a"], 0).await;
    assert_eq!(answered(store, &["greeting", "a"]).await, [false]);
    store.append(&scope(), answering("s", &["greeting", "a", "b"])).await.unwrap();
    follow(store, "s", &["greeting", "a", "b", "c", "d"], 0).await;
    follow(store, "s", &["greeting", "a", "other"], 2).await;
    // It and all behind it, and nothing beside or before.
    assert_eq!(answered(store, &["greeting", "a"]).await, [false]);
    assert_eq!(answered(store, &["greeting", "a", "b"]).await, [true]);
    assert_eq!(answered(store, &["greeting", "a", "b", "c", "d"]).await, [true]);
    assert_eq!(answered(store, &["greeting", "a", "other"]).await, [false]);
    // The same history in another session is answered as well, and what goes on from it.
    follow(store, "t", &["greeting", "a", "b", "x"], 0).await;
    assert_eq!(answered(store, &["greeting", "a"]).await, [false, false]);
    assert_eq!(answered(store, &["greeting", "a", "b"]).await, [true, true]);
    assert_eq!(answered(store, &["greeting", "a", "b", "x"]).await, [true]);
    // What a client had sent before it went through us is an answer from then on.
    follow(store, "u", &["e", "f"], 0).await;
    assert_eq!(answered(store, &["e", "f"]).await, [false]);
    let again = store.append(&scope(), answering("u", &["e", "f"])).await.unwrap();
    assert_eq!(shown(&again), "Known 2 main");
    assert_eq!(answered(store, &["e", "f"]).await, [true]);
    // Not of another memory.
    let diary = scope_of("acme", "diary");
    store.append(&diary, following("s", &["greeting", "a", "b"], 0)).await.unwrap();
    let found = store.linked(&diary, &chain(&["greeting", "a", "b"]), None).await.unwrap();
    assert!(found.iter().all(|turn| !turn.is_answered));
    clean(store).await;
}

pub(super) async fn a_turn_without_its_words_is_told_from_others(store: &Store) {
    let mut batch = following("s", &["a", "b"], 0);
    batch.turns[0].is_hollow = true;
    store.append(&scope(), batch).await.unwrap();
    // To send it again fills it with nothing.
    assert_eq!(shown(&follow(store, "s", &["a", "b"], 0).await), "Known 1 main, Known 2 main");
    let found = store.linked(&scope(), &chain(&["a", "b"]), None).await.unwrap();
    assert_eq!(found.iter().map(|turn| turn.is_hollow).collect::<Vec<_>>(), [true, false]);
    clean(store).await;
}

pub(super) async fn so_many_turns_of_a_link_are_answered(store: &Store) {
    for n in 0..=MOST_LINKED {
        follow(store, &format!("s{n}"), &["hello"], 0).await;
    }
    let turns = store.linked(&scope(), &chain(&["hello"]), None).await.unwrap();
    assert_eq!(turns.len(), MOST_LINKED);
    assert_eq!(turns[0].place.id.session, SessionNo(MOST_LINKED as u64 + 1));
    assert_eq!(found(store, &["hello"], Some(1)).await, "1.1 main 1 head");
}

pub(super) async fn links_outlast_what_was_forgotten(store: &Store) {
    let session = follow(store, "s", &["a", "b", "c"], 0).await.session;
    erase(store, session, &[2]).await;
    assert_eq!(found(store, &["a", "b"], None).await, "1.2 main 2 Erased");
    let again = follow(store, "s", &["a", "b", "c", "d"], 0).await;
    assert_eq!(shown(&again), "Known 1 main, Forgotten 2 main, Known 3 main, Added 4 main");
    // Not even who insists brings it back: its place is taken.
    let insisted = AppendBatch { insist: true, ..following("s", &["a", "b"], 0) };
    let insisted = store.append(&scope(), insisted).await.unwrap();
    assert_eq!(shown(&insisted), "Known 1 main, Forgotten 2 main");
    // Of a session that was forgotten whole, too.
    erase(store, session, &[1, 3, 4]).await;
    assert_eq!(found(store, &["a"], None).await, "1.1 main 1 Erased");
    let again = follow(store, "s", &["a", "b", "c", "d", "e"], 4).await;
    assert_eq!(shown(&again), "Added 5 main");
    clean(store).await;
}

pub(super) async fn links_are_of_one_memory_and_tenant(store: &Store) {
    follow(store, "s", &["a", "b"], 0).await;
    let links = chain(&["a", "b"]);
    for other in [scope_of("acme", "diary"), scope_of("rival", "notes")] {
        assert_eq!(store.linked(&other, &links, None).await.unwrap(), []);
        assert_eq!(store.linked(&other, &links, Some(SessionNo(1))).await.unwrap(), []);
        let appended = store.append(&other, following("s", &["a", "b"], 0)).await.unwrap();
        assert_eq!(shown(&appended), "Added 1 main, Added 2 main");
        let found = store.linked(&other, &links, None).await.unwrap();
        assert!(found.iter().all(|turn| turn.place.id.session == appended.session));
        assert_eq!(found.len(), 2);
    }
    assert_eq!(found(store, &["a", "b"], None).await, "1.2 main 2 head");
    clean(store).await;
}

pub(super) async fn places_are_told_without_bodies(store: &Store) {
    let session = follow(store, "s", &["a", "b"], 0).await.session;
    follow(store, "s", &["a", "c"], 1).await;
    erase(store, session, &[2]).await;
    let id = |seq| TurnId { session, seq: icecore_domain::ids::Seq(seq) };
    let told = store.places(&scope(), &[id(3), id(9), id(2)]).await.unwrap();
    let show = |place: &TurnPlace| {
        format!("{} {} {} {:?}", place.id.seq, place.branch, place.ordinal, place.state)
    };
    let told: Vec<String> = told.iter().map(show).collect();
    assert_eq!(told, ["3 fork-1 1 Present", "2 main 2 Erased"]);
    let other = scope_of("acme", "diary");
    assert_eq!(store.places(&other, &[id(1)]).await.unwrap(), []);
}

pub(super) async fn two_at_one_head_do_not_overwrite_each_other(store: &Store) {
    follow(store, "s", &["a", "b"], 0).await;
    let scope = scope();
    let first = store.append(&scope, following("s", &["a", "b", "c"], 2));
    let second = store.append(&scope, following("s", &["a", "b", "d"], 2));
    let third = store.append(&scope, following("s", &["a", "b", "c"], 2));
    let (first, second, third) = tokio::join!(first, second, third);
    let mut branches = Vec::new();
    let mut added = 0;
    for appended in [first.unwrap(), second.unwrap(), third.unwrap()] {
        added += usize::from(appended.turns[0].outcome == Outcome::Added);
        branches.push(appended.turns[0].branch);
    }
    assert_eq!(added, 2);
    assert_eq!(branches[0], branches[2]);
    assert_ne!(branches[0], branches[1]);
    clean(store).await;
}

/// What stands before a history's last message in a session.
async fn before(store: &Store, messages: &[&str], session: SessionNo) -> String {
    let links = chain(messages);
    let found = store.recalled(&scope(), session, &links[links.len() - 1..]).await.unwrap();
    found.first().map(|(_, text)| text.as_str().to_owned()).unwrap_or_default()
}

async fn recall(store: &Store, messages: &[&str], session: SessionNo, said: &str) -> bool {
    let recalled = NewRecalled {
        session,
        link: chain(messages)[messages.len() - 1],
        epoch: store.scope_head(&scope()).await.unwrap().epoch,
        text: text(said),
        secrets_seen: store.secrets_version(&tenant("acme")).await.unwrap(),
    };
    store.put_recalled(&scope(), recalled).await.unwrap()
}

pub(super) async fn what_was_recalled_stands_where_it_was(store: &Store) {
    let session = follow(store, "s", &["a", "b", "c"], 0).await.session;
    assert!(recall(store, &["a"], session, "one").await);
    assert!(recall(store, &["a", "b", "c"], session, "two").await);
    // It stays as it is.
    assert!(!recall(store, &["a"], session, "other").await);
    assert_eq!(before(store, &["a"], session).await, "one");
    assert_eq!(before(store, &["a", "b"], session).await, "");
    assert_eq!(before(store, &["a", "b", "c"], session).await, "two");
    // Of no message that is not there, and of no other session or memory.
    assert!(!recall(store, &["x"], session, "three").await);
    assert!(!recall(store, &["a"], SessionNo(9), "three").await);
    let other = follow(store, "t", &["a"], 0).await.session;
    assert_eq!(before(store, &["a"], other).await, "");
    let links = chain(&["a"]);
    let diary = scope_of("acme", "diary");
    assert_eq!(store.recalled(&diary, session, &links).await.unwrap(), []);
    clean(store).await;
}

pub(super) async fn what_was_recalled_goes_with_what_it_may_tell_of(store: &Store) {
    let session = follow(store, "s", &["a", "b", "c"], 0).await.session;
    let other = follow(store, "t", &["d", "e"], 0).await.session;
    let stale = NewRecalled {
        session,
        link: chain(&["a"])[0],
        epoch: store.scope_head(&scope()).await.unwrap().epoch,
        text: text("stale"),
        secrets_seen: 1,
    };
    assert!(recall(store, &["a"], session, "one").await);
    // Whatever is erased in the memory, it may have been told of.
    erase(store, other, &[1]).await;
    assert_eq!(before(store, &["a"], session).await, "");
    assert!(!store.put_recalled(&scope(), stale).await.unwrap());
    assert!(recall(store, &["a"], session, "again").await);
    rewrite(store, session, &[2]).await;
    assert_eq!(before(store, &["a"], session).await, "");
    assert!(recall(store, &["a"], session, "once more").await);
    let redactor = redactor_of(&["none of this is there"]);
    store.rewrite_stored_text(&tenant("acme"), redactor, NOW).await.unwrap();
    assert_eq!(before(store, &["a"], session).await, "");
    // An entry that ends and a fact that is rejected may have been told of too.
    let entry = super::runs::write("notes", "e").entry;
    store.put_entry(&scope(), entry).await.unwrap();
    assert!(recall(store, &["a"], session, "of an entry").await);
    assert!(store.end_entry(&scope(), "e", NOW).await.unwrap());
    assert_eq!(before(store, &["a"], session).await, "");
    assert!(recall(store, &["a"], session, "of a fact").await);
    let verdict = |verdict| NewVerdict {
        fact: fact("Ana", "here"),
        verdict,
        source: None,
        now: NOW,
        secrets_seen: 1,
        hidden: Hidden::new(),
    };
    store.put_verdict(&scope(), verdict(Verdict::Added)).await.unwrap();
    assert_eq!(before(store, &["a"], session).await, "of a fact");
    store.put_verdict(&scope(), verdict(Verdict::Rejected)).await.unwrap();
    assert_eq!(before(store, &["a"], session).await, "");
    // With secrets of before nothing is kept.
    let stale = NewRecalled {
        session,
        link: chain(&["a"])[0],
        epoch: store.scope_head(&scope()).await.unwrap().epoch,
        text: text("stale"),
        secrets_seen: 9,
    };
    let refused = store.put_recalled(&scope(), stale).await;
    assert!(matches!(refused, Err(StoreError::SecretsChanged)));
    clean(store).await;
}
