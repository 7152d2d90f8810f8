//! Handoffs, what providers counted, what models answered and what it cost.

use icecore_domain::ids::{Branch, Ordinal, Position, Seq, SessionNo, Tenant, TurnId};
use icecore_domain::redact::RedactedText;

use super::fixtures::*;
use crate::error::StoreError;
use crate::log::id_at;
use crate::store::Store;
use crate::*;

fn acme() -> Tenant {
    tenant("acme")
}

const FORK: Branch = Branch(1);

/// The whole path to the end of a branch.
pub(crate) async fn path_of(
    store: &Store,
    session: SessionNo,
    branch: Branch,
) -> Vec<(Branch, Ordinal)> {
    let known = store.session_by_number(&scope(), session).await.unwrap().unwrap();
    let mut path = vec![(branch, Ordinal(u64::MAX >> 1))];
    while let Some(fork) = known.branches[path.last().unwrap().0.0 as usize].fork {
        path.push(fork);
    }
    path.reverse();
    path
}

/// A handoff as it would be kept now, through an ordinal of a branch.
pub(crate) async fn new_handoff(
    store: &Store,
    session: SessionNo,
    branch: Branch,
    through: u64,
) -> NewHandoff {
    let record = store.branch(&scope(), session, branch).await.unwrap().unwrap();
    let path = path_of(store, session, branch).await;
    let previous = store.handoff(&scope(), session, &path).await.unwrap();
    NewHandoff {
        session,
        branch,
        seen_head: record.head_seq,
        seen_previous: previous.map(|previous| previous.id),
        epoch: store.scope_head(&scope()).await.unwrap().epoch,
        through: Ordinal(through),
        kept: vec![Seq(1)],
        text: text(&format!("through {through}")),
        tokens: 3,
        tokens_before: 100,
        tokens_after: 40,
        made_by: "heuristic".to_owned(),
        trigger: HandoffTrigger::Window,
        secrets_seen: store.secrets_version(&acme()).await.unwrap(),
        now: NOW,
    }
}

fn done(kept: KeptHandoff) -> HandoffRecord {
    match kept {
        KeptHandoff::Done(record) => *record,
        KeptHandoff::Changed => panic!("it is as it was read"),
    }
}

async fn keep(store: &Store, session: SessionNo, branch: Branch, through: u64) -> String {
    let new = new_handoff(store, session, branch, through).await;
    done(store.put_handoff(&scope(), new).await.unwrap()).id
}

/// Six turns on the main branch, and two on one that forks at the fourth.
async fn forked(store: &Store) -> SessionNo {
    let named: Vec<Say> = (1..=6).map(|n| say(&format!("line {n}")).id(&format!("t{n}"))).collect();
    let session = add(store, "chat", &named).await;
    add(store, "chat", &[say("other 1").id("o1").after(&["t4"]), say("other 2").after(&["o1"])])
        .await;
    session
}

/// What handoffs of a session say, oldest first.
async fn said(store: &Store, session: SessionNo) -> String {
    let found = store.handoffs(&scope(), session).await.unwrap();
    let show = |one: &HandoffRecord| format!("{} {}.{}", one.number, one.branch, one.through);
    found.iter().map(show).collect::<Vec<_>>().join(", ")
}

/// The handoff in force at the end of a branch.
async fn in_force(store: &Store, session: SessionNo, branch: Branch) -> Option<u64> {
    let path = path_of(store, session, branch).await;
    let found = store.handoff(&scope(), session, &path).await.unwrap();
    found.map(|found| found.through.0)
}

pub(super) async fn a_handoff_is_kept_and_in_force(store: &Store) {
    let session = add(store, "chat", &say_many(6)).await;
    assert_eq!(in_force(store, session, Branch::MAIN).await, None);
    let first = keep(store, session, Branch::MAIN, 2).await;
    let new = new_handoff(store, session, Branch::MAIN, 5).await;
    let kept = done(store.put_handoff(&scope(), new.clone()).await.unwrap());
    let should_be = HandoffRecord {
        id: kept.id.clone(),
        number: 2,
        session,
        branch: Branch::MAIN,
        through: Ordinal(5),
        kept: new.kept,
        text: text("through 5"),
        tokens: 3,
        tokens_before: 100,
        tokens_after: 40,
        made_by: "heuristic".to_owned(),
        trigger: HandoffTrigger::Window,
        previous: Some(first.clone()),
        version: 1,
        at: NOW,
        position: Position(8),
    };
    assert_eq!(kept, should_be);
    let all = store.handoffs(&scope(), session).await.unwrap();
    assert_eq!(all.iter().map(|one| &one.id).collect::<Vec<_>>(), [&first, &kept.id]);
    let path = path_of(store, session, Branch::MAIN).await;
    assert_eq!(store.handoff(&scope(), session, &path).await.unwrap(), Some(kept));
    for other in [scope_of("acme", "diary"), scope_of("rival", "notes")] {
        assert_eq!(store.handoff(&other, session, &path).await.unwrap(), None);
        assert!(store.handoffs(&other, session).await.unwrap().is_empty());
        let new = new_handoff(store, session, Branch::MAIN, 6).await;
        let kept = store.put_handoff(&other, new).await.unwrap();
        assert_eq!(kept, KeptHandoff::Changed, "it is not of that memory");
    }
    clean(store).await;
}

pub(super) async fn handoffs_have_ids_of_their_own(store: &Store) {
    let session = add(store, "chat", &say_many(2)).await;
    let new = new_handoff(store, session, Branch::MAIN, 1).await;
    let kept = done(store.put_handoff(&scope(), new).await.unwrap());
    assert_eq!(kept.id.len(), 22, "{}", kept.id);
    assert!(kept.id.starts_with("h-") && kept.id[2..].bytes().all(|b| b.is_ascii_hexdigit()));
    let key = store.identity_key(&acme()).await.unwrap();
    assert_ne!(kept.id[2..], id_at(&key, "entry", kept.position)[2..]);
}

pub(super) async fn a_handoff_compares_before_it_is_kept(store: &Store) {
    let session = forked(store).await;
    let changed = async |new: NewHandoff| {
        let before = store.head(&acme()).await.unwrap();
        let kept = store.put_handoff(&scope(), new).await.unwrap();
        assert_eq!(store.head(&acme()).await.unwrap() != before, kept != KeptHandoff::Changed);
        kept == KeptHandoff::Changed
    };
    let fresh = async |branch| new_handoff(store, session, branch, 2).await;
    assert!(changed(NewHandoff { through: Ordinal(7), ..fresh(Branch::MAIN).await }).await);
    assert!(changed(NewHandoff { session: SessionNo(9), ..fresh(Branch::MAIN).await }).await);
    assert!(changed(NewHandoff { branch: Branch(2), ..fresh(Branch::MAIN).await }).await);
    assert!(changed(NewHandoff { seen_head: Seq(5), ..fresh(Branch::MAIN).await }).await);
    let stale = (fresh(Branch::MAIN).await, fresh(FORK).await);
    add(store, "chat", &[say("more").after(&["t6"])]).await;
    assert!(changed(stale.0).await, "a turn came");
    let (one, two) = (fresh(Branch::MAIN).await, fresh(Branch::MAIN).await);
    assert!(!changed(one).await);
    assert!(changed(two).await, "another was kept");
    assert!(changed(stale.1).await, "the fork has it too");
    let stale = fresh(FORK).await;
    erase(store, session, &[1]).await;
    assert_eq!(said(store, session).await, "");
    assert!(changed(stale).await, "a turn was erased that it tells of");
    let stale = NewHandoff { seen_previous: None, ..fresh(FORK).await };
    let epoch = stale.epoch;
    erase(store, session, &[3]).await;
    assert!(changed(stale.clone()).await, "one was erased, and the head is the same");
    assert!(!changed(NewHandoff { epoch: epoch + 1, ..stale }).await);
    clean(store).await;
}

pub(super) async fn a_fork_has_what_was_kept_before_it(store: &Store) {
    let session = forked(store).await;
    keep(store, session, Branch::MAIN, 5).await;
    assert_eq!(in_force(store, session, FORK).await, None, "it forks before that");
    keep(store, session, FORK, 1).await;
    assert_eq!(in_force(store, session, Branch::MAIN).await, Some(5));
    assert_eq!(said(store, session).await, "1 main.5, 1 fork-1.1");
    let other = forked_again(store).await;
    keep(store, other, Branch::MAIN, 2).await;
    keep(store, other, Branch::MAIN, 4).await;
    keep(store, other, Branch::MAIN, 5).await;
    assert_eq!(in_force(store, other, FORK).await, Some(4));
    let early = [(Branch::MAIN, Ordinal(3))];
    let found = store.handoff(&scope(), other, &early).await.unwrap().unwrap();
    assert_eq!(found.through, Ordinal(2));
    assert_eq!(store.handoff(&scope(), other, &[]).await.unwrap(), None);
    keep(store, other, FORK, 0).await;
    assert_eq!(in_force(store, other, FORK).await, Some(0), "its own comes first");
    assert_eq!(said(store, other).await, "1 main.2, 2 main.4, 3 main.5, 3 fork-1.0");
    clean(store).await;
}

async fn forked_again(store: &Store) -> SessionNo {
    let named: Vec<Say> = (1..=6).map(|n| say(&format!("line {n}")).id(&format!("t{n}"))).collect();
    let session = add(store, "again", &named).await;
    add(store, "again", &[say("other 1").after(&["t4"])]).await;
    session
}

pub(super) async fn handoffs_are_redacted_with_the_secrets_of_now(store: &Store) {
    let session = add(store, "chat", &say_many(3)).await;
    let id = keep(store, session, Branch::MAIN, 1).await;
    let stale = new_handoff(store, session, Branch::MAIN, 2).await;
    store.put_secret(&acme(), secret("db", "q8Zk2Lm9Xw"), false, NOW).await.unwrap();
    let before = store.head(&acme()).await.unwrap();
    let put = store.put_handoff(&scope(), stale.clone()).await;
    assert!(matches!(put, Err(StoreError::SecretsChanged)));
    let edit = edit(session, &id, 1, stale.secrets_seen);
    let put = store.edit_handoff(&scope(), edit).await;
    assert!(matches!(put, Err(StoreError::SecretsChanged)));
    let answer = NewAnswer { secrets_seen: stale.secrets_seen, ..new_answer(store, 1, None).await };
    let put = store.put_answer(&scope(), answer).await;
    assert!(matches!(put, Err(StoreError::SecretsChanged)));
    assert_eq!(store.head(&acme()).await.unwrap(), before);
    assert_eq!(said(store, session).await, "1 main.1");
    assert_eq!(store.answer(&scope(), &[1; 32]).await.unwrap(), None);
}

fn edit(session: SessionNo, id: &str, seen_version: u64, secrets_seen: u64) -> HandoffEdit {
    HandoffEdit {
        session,
        branch: Branch::MAIN,
        id: id.to_owned(),
        seen_version,
        text: text("what a person says"),
        tokens: 5,
        tokens_after: 42,
        secrets_seen,
        now: NOW,
    }
}

pub(super) async fn a_person_corrects_a_handoff(store: &Store) {
    let session = add(store, "chat", &say_many(3)).await;
    let id = keep(store, session, Branch::MAIN, 1).await;
    note(store, session, Some(&id)).await;
    let before = store.handoffs(&scope(), session).await.unwrap().remove(0);
    let edited = done(store.edit_handoff(&scope(), edit(session, &id, 1, 1)).await.unwrap());
    let should_be = HandoffRecord {
        text: text("what a person says"),
        tokens: 5,
        tokens_after: 42,
        made_by: "person".to_owned(),
        version: 2,
        ..before
    };
    assert_eq!(edited, should_be);
    assert_eq!(store.handoffs(&scope(), session).await.unwrap(), [should_be]);
    assert_eq!(counted(store, session).await, None, "it was of what it said before");
    for (id, version) in [(id.as_str(), 1), (id.as_str(), 3), ("h-none", 1)] {
        let again = store.edit_handoff(&scope(), edit(session, id, version, 1)).await.unwrap();
        assert_eq!(again, KeptHandoff::Changed);
    }
    let other = scope_of("acme", "diary");
    store.append(&other, batch("d", &say_many(1))).await.unwrap();
    let again = store.edit_handoff(&other, edit(session, &id, 2, 1)).await.unwrap();
    assert_eq!(again, KeptHandoff::Changed, "it is not of that memory");
    // Once another is in force it is history.
    keep(store, session, Branch::MAIN, 2).await;
    let late = store.edit_handoff(&scope(), edit(session, &id, 2, 1)).await.unwrap();
    assert_eq!(late, KeptHandoff::Changed, "another is in force");
    let strange = HandoffEdit { branch: FORK, ..edit(session, &id, 2, 1) };
    let strange = store.edit_handoff(&scope(), strange).await.unwrap();
    assert_eq!(strange, KeptHandoff::Changed, "there is no such branch");
    clean(store).await;
}

pub(super) async fn a_branch_corrects_what_is_in_force_on_it(store: &Store) {
    let session = forked(store).await;
    let id = keep(store, session, Branch::MAIN, 2).await;
    let own = keep(store, session, FORK, 1).await;
    let on = |branch: Branch, id: &str| HandoffEdit { branch, ..edit(session, id, 1, 1) };
    for (branch, id) in [(FORK, &id), (Branch::MAIN, &own)] {
        let other = store.edit_handoff(&scope(), on(branch, id)).await.unwrap();
        assert_eq!(other, KeptHandoff::Changed, "{branch:?}");
    }
    for (branch, id) in [(FORK, &own), (Branch::MAIN, &id)] {
        done(store.edit_handoff(&scope(), on(branch, id)).await.unwrap());
    }
    clean(store).await;
}

pub(super) async fn handoffs_are_logged_without_words(store: &Store) {
    let session = add(store, "chat", &say_many(3)).await;
    let id = keep(store, session, Branch::MAIN, 2).await;
    store.edit_handoff(&scope(), edit(session, &id, 1, 1)).await.unwrap();
    let told = async || {
        let events = store.events(&acme(), Some("notes"), Position(3), 9).await.unwrap();
        let read = |event: EventRecord| {
            let payload: serde_json::Value = serde_json::from_str(&event.payload).unwrap();
            (event.kind, payload)
        };
        events.into_iter().map(read).collect::<Vec<_>>()
    };
    let payload = |name: Option<&str>| {
        let compacted = serde_json::json!({
            "memoryRef": "notes", "session": name, "branch": "main", "compactionId": id,
            "number": 1, "tokensBefore": 100, "tokensAfter": 40, "trigger": "window",
            "madeBy": "heuristic",
        });
        let edited = serde_json::json!({
            "memoryRef": "notes", "session": name, "branch": "main", "compactionId": id,
            "version": 2,
        });
        [("session.compacted".to_owned(), compacted), ("session.handoff_edited".to_owned(), edited)]
    };
    assert_eq!(told().await, payload(Some("chat")));
    let mut erasure = erasing(store, &scope(), session, Branch::MAIN, &[1, 2, 3]).await;
    erasure.forget_name = true;
    assert!(store.erase(&scope(), erasure).await.unwrap());
    assert_eq!(told().await, payload(None), "a forgotten session has no name");
}

pub(super) async fn a_forgotten_turn_takes_handoffs_along(store: &Store) {
    let session = forked(store).await;
    for through in [2, 3, 4] {
        keep(store, session, Branch::MAIN, through).await;
    }
    keep(store, session, FORK, 1).await;
    keep(store, session, Branch::MAIN, 6).await;
    let turn = |seq| TurnId { session, seq: Seq(seq) };
    let count = async |seqs: &[u64]| {
        let turns: Vec<TurnId> = seqs.iter().map(|seq| turn(*seq)).collect();
        store.handoffs_lost_with(&scope(), &turns).await.unwrap()
    };
    // The seventh and eighth are on the fork, the ninth is not there.
    for (seqs, lost) in [
        (&[][..], 0),
        (&[9], 0),
        (&[8], 0),
        (&[7], 1),
        (&[5], 1),
        (&[4], 3),
        (&[3], 4),
        (&[6, 2], 5),
        (&[1, 2, 3, 4, 5, 6, 7, 8], 5),
    ] {
        assert_eq!(count(seqs).await, lost, "{seqs:?}");
    }
    let other = scope_of("acme", "diary");
    assert_eq!(store.handoffs_lost_with(&other, &[turn(1)]).await.unwrap(), 0);
    erase(store, session, &[5]).await;
    assert_eq!(said(store, session).await, "1 main.2, 2 main.3, 3 main.4, 4 fork-1.1");
    assert_eq!(in_force(store, session, Branch::MAIN).await, Some(4));
    assert_eq!(count(&[5]).await, 0, "it is erased already");
    let erasure = erasing(store, &scope(), session, FORK, &[8]).await;
    assert!(store.erase(&scope(), erasure).await.unwrap());
    assert_eq!(said(store, session).await, "1 main.2, 2 main.3, 3 main.4, 4 fork-1.1");
    clean(store).await;
    erase(store, session, &[3]).await;
    assert_eq!(said(store, session).await, "1 main.2");
    let next = new_handoff(store, session, FORK, 1).await;
    assert_eq!(done(store.put_handoff(&scope(), next).await.unwrap()).number, 2);
    clean(store).await;
}

pub(super) async fn a_handoff_goes_with_the_one_before(store: &Store) {
    let session = add(store, "chat", &say_many(6)).await;
    keep(store, session, Branch::MAIN, 5).await;
    // It reaches less far, and tells what the one before told.
    keep(store, session, Branch::MAIN, 2).await;
    let turn = TurnId { session, seq: Seq(4) };
    assert_eq!(store.handoffs_lost_with(&scope(), &[turn]).await.unwrap(), 2);
    erase(store, session, &[4]).await;
    assert_eq!(said(store, session).await, "");
}

pub(super) async fn a_handoff_further_back_leaves_those_behind_it(store: &Store) {
    let session = add(store, "chat", &say_many(6)).await;
    let far = keep(store, session, Branch::MAIN, 5).await;
    // Whoever goes on from the third turn saw none.
    let mut new = new_handoff(store, session, Branch::MAIN, 3).await;
    assert_eq!(new.seen_previous, Some(far.clone()));
    new.seen_previous = None;
    let near = done(store.put_handoff(&scope(), new.clone()).await.unwrap());
    assert_eq!((near.number, &near.previous), (1, &None));
    let on = async |last: u64| {
        let path = [(Branch::MAIN, Ordinal(last))];
        store.handoff(&scope(), session, &path).await.unwrap().map(|found| found.id)
    };
    assert_eq!(on(6).await, Some(far));
    assert_eq!(on(4).await, Some(near.id));
    assert_eq!(on(2).await, None);
    // There is one now.
    let again = store.put_handoff(&scope(), new).await.unwrap();
    assert_eq!(again, KeptHandoff::Changed);
    clean(store).await;
}

pub(super) async fn nothing_of_a_forgotten_session_is_left(store: &Store) {
    let session = add(store, "chat", &say_many(3)).await;
    let other = add(store, "other", &say_many(2)).await;
    erase(store, session, &[1]).await;
    // It covers what was erased before.
    keep(store, session, Branch::MAIN, 1).await;
    keep(store, other, Branch::MAIN, 1).await;
    note(store, session, None).await;
    note(store, other, None).await;
    for (key, session) in [(1, Some(session)), (2, Some(other)), (3, None)] {
        let answer = new_answer(store, key, session).await;
        store.put_answer(&scope(), answer).await.unwrap();
    }
    let turns = [2, 3].map(|seq| TurnId { session, seq: Seq(seq) });
    assert_eq!(store.handoffs_lost_with(&scope(), &turns).await.unwrap(), 1);
    assert_eq!(store.handoffs_lost_with(&scope(), &turns[..1]).await.unwrap(), 0);
    erase(store, session, &[2, 3]).await;
    assert_eq!(
        (said(store, session).await, said(store, other).await.as_str()),
        (String::new(), "1 main.1")
    );
    assert_eq!((counted(store, session).await, counted(store, other).await), (None, Some(9)));
    assert_eq!(answers(store).await, "2");
    clean(store).await;
}

pub(super) async fn a_rewritten_turn_takes_handoffs_along(store: &Store) {
    let session = add(store, "chat", &say_many(4)).await;
    keep(store, session, Branch::MAIN, 1).await;
    keep(store, session, Branch::MAIN, 3).await;
    note(store, session, None).await;
    let other = add(store, "other", &say_many(1)).await;
    let answer = new_answer(store, 1, Some(other)).await;
    store.put_answer(&scope(), answer).await.unwrap();
    rewrite(store, session, &[2]).await;
    assert_eq!(said(store, session).await, "1 main.1");
    assert_eq!(counted(store, session).await, None);
    assert_eq!(answers(store).await, "", "all of the tenant");
    clean(store).await;
}

pub(super) async fn handoffs_are_redacted_again(store: &Store) {
    let session = add(store, "chat", &say_many(5)).await;
    let told = NewHandoff {
        text: text("of q8Zk2Lm9Xw"),
        ..new_handoff(store, session, Branch::MAIN, 2).await
    };
    keep(store, session, Branch::MAIN, 1).await;
    let stale = store.put_handoff(&scope(), told).await.unwrap();
    assert_eq!(stale, KeptHandoff::Changed);
    let told = NewHandoff {
        text: text("of q8Zk2Lm9Xw"),
        ..new_handoff(store, session, Branch::MAIN, 2).await
    };
    store.put_handoff(&scope(), told).await.unwrap();
    keep(store, session, Branch::MAIN, 3).await;
    keep(store, session, Branch::MAIN, 4).await;
    note(store, session, None).await;
    let answer = new_answer(store, 1, Some(session)).await;
    store.put_answer(&scope(), answer).await.unwrap();
    let epoch = store.scope_head(&scope()).await.unwrap().epoch;

    let redactor = redactor_of(&["never-said-1"]);
    let done = store.rewrite_stored_text(&acme(), redactor, NOW).await.unwrap();
    assert_eq!(done, RewriteCounts::default());
    assert_eq!((answers(store).await.as_str(), counted(store, session).await), ("1", Some(9)));

    let redactor = redactor_of(&["q8Zk2Lm9Xw"]);
    let done = store.rewrite_stored_text(&acme(), redactor.clone(), NOW).await.unwrap();
    assert_eq!((done.handoffs, done.derived, done.touched), (1, 2, vec![scope()]));
    assert_eq!(done.hidden.values().sum::<u64>(), 1);
    assert_eq!(said(store, session).await, "1 main.1, 2 main.2");
    let texts = store.handoffs(&scope(), session).await.unwrap();
    let texts: Vec<RedactedText> = texts.into_iter().map(|one| one.text).collect();
    assert_eq!(texts, [text("through 1"), redactor.text("of q8Zk2Lm9Xw")]);
    assert_eq!((answers(store).await.as_str(), counted(store, session).await), ("", None));
    assert_eq!(store.scope_head(&scope()).await.unwrap().epoch, epoch + 1);
    clean(store).await;

    let answer = NewAnswer { text: text("in q8Zk2Lm9Xw"), ..new_answer(store, 2, None).await };
    store.put_answer(&scope(), answer).await.unwrap();
    let answer = new_answer(store, 3, None).await;
    store.put_answer(&scope(), answer).await.unwrap();
    store.rewrite_stored_text(&acme(), redactor, NOW).await.unwrap();
    assert_eq!(answers(store).await, "", "one of them told");
}

// What providers counted

async fn note(store: &Store, session: SessionNo, handoff: Option<&str>) {
    let usage = ViewUsage {
        session,
        branch: Branch::MAIN,
        model: "m".to_owned(),
        through: Seq(1),
        handoff: handoff.map(str::to_owned),
        tokens: 9,
        counted: 7,
    };
    store.put_usage(&scope(), usage).await.unwrap();
}

async fn counted(store: &Store, session: SessionNo) -> Option<u64> {
    let found = store.usage(&scope(), session, Branch::MAIN, "m").await.unwrap();
    found.map(|found| found.tokens)
}

pub(super) async fn the_last_count_of_a_provider_stands(store: &Store) {
    let session = forked(store).await;
    let id = keep(store, session, Branch::MAIN, 2).await;
    let usage = ViewUsage {
        session,
        branch: Branch::MAIN,
        model: "m".to_owned(),
        through: Seq(6),
        handoff: Some(id),
        tokens: 120,
        counted: 100,
    };
    let read = async |scope: &icecore_domain::ids::Scope, branch, model: &str| {
        store.usage(scope, session, branch, model).await.unwrap()
    };
    store.put_usage(&scope(), usage.clone()).await.unwrap();
    assert_eq!(read(&scope(), Branch::MAIN, "m").await, Some(usage.clone()));
    let next = ViewUsage { tokens: 130, through: Seq(7), handoff: None, ..usage.clone() };
    store.put_usage(&scope(), next.clone()).await.unwrap();
    for other in [
        ViewUsage { handoff: Some("h-none".to_owned()), ..usage.clone() },
        ViewUsage { branch: Branch(5), ..usage.clone() },
        ViewUsage { session: SessionNo(9), ..usage.clone() },
    ] {
        store.put_usage(&scope(), other).await.unwrap();
    }
    store.put_usage(&scope_of("acme", "diary"), usage.clone()).await.unwrap();
    assert_eq!(read(&scope(), Branch::MAIN, "m").await, Some(next.clone()));
    let of_fork = ViewUsage { branch: FORK, ..usage.clone() };
    store.put_usage(&scope(), of_fork.clone()).await.unwrap();
    let of_n = ViewUsage { model: "n".to_owned(), ..usage };
    store.put_usage(&scope(), of_n.clone()).await.unwrap();
    assert_eq!(read(&scope(), FORK, "m").await, Some(of_fork));
    assert_eq!(read(&scope(), Branch::MAIN, "n").await, Some(of_n));
    assert_eq!(read(&scope(), FORK, "n").await, None);
    assert_eq!(read(&scope(), Branch(5), "m").await, None);
    assert_eq!(read(&scope_of("acme", "diary"), Branch::MAIN, "m").await, None);
    erase(store, session, &[6]).await;
    for model in ["m", "n"] {
        assert_eq!(read(&scope(), Branch::MAIN, model).await, None, "of what was there before");
    }
    // A client names the model: its name may hold what is a secret by now.
    let told = ViewUsage { model: "m-q8Zk2Lm9Xw".to_owned(), ..next.clone() };
    for usage in [next.clone(), told.clone()] {
        store.put_usage(&scope(), usage).await.unwrap();
    }
    assert_eq!(read(&scope(), Branch::MAIN, &told.model).await, Some(told.clone()));
    store.rewrite_stored_text(&acme(), redactor_of(&["q8Zk2Lm9Xw"]), NOW).await.unwrap();
    assert_eq!(read(&scope(), Branch::MAIN, &told.model).await, None);
    assert_eq!(read(&scope(), Branch::MAIN, "m").await, Some(next));
}

// What models answered

async fn new_answer(store: &Store, key: u8, session: Option<SessionNo>) -> NewAnswer {
    NewAnswer {
        key: [key; 32],
        session,
        epoch: store.scope_head(&scope()).await.unwrap().epoch,
        text: text(&format!("answer {key}")),
        secrets_seen: store.secrets_version(&acme()).await.unwrap().max(1),
        now: NOW,
    }
}

/// The keys that have an answer.
async fn answers(store: &Store) -> String {
    let mut found = Vec::new();
    for key in 1..9_u8 {
        if store.answer(&scope(), &[key; 32]).await.unwrap().is_some() {
            found.push(key.to_string());
        }
    }
    found.join(" ")
}

pub(super) async fn an_answer_is_found_by_its_key(store: &Store) {
    let first = new_answer(store, 1, None).await;
    store.put_answer(&scope(), first).await.unwrap();
    assert_eq!(store.answer(&scope(), &[1; 32]).await.unwrap(), Some(text("answer 1")));
    let session = add(store, "chat", &say_many(2)).await;
    for key in [2, 3] {
        let answer = new_answer(store, key, Some(session)).await;
        store.put_answer(&scope(), answer).await.unwrap();
    }
    let again = NewAnswer { text: text("another"), ..new_answer(store, 2, None).await };
    store.put_answer(&scope(), again).await.unwrap();
    assert_eq!(store.answer(&scope(), &[2; 32]).await.unwrap(), Some(text("another")));
    let nowhere = new_answer(store, 4, Some(SessionNo(9))).await;
    store.put_answer(&scope(), nowhere).await.unwrap();
    let stale = NewAnswer { epoch: 7, ..new_answer(store, 5, None).await };
    store.put_answer(&scope(), stale).await.unwrap();
    assert_eq!(answers(store).await, "1 2 3");
    for other in [scope_of("acme", "diary"), scope_of("rival", "notes")] {
        assert_eq!(store.answer(&other, &[1; 32]).await.unwrap(), None);
    }
    store.drop_derived(&scope()).await.unwrap();
    assert_eq!(answers(store).await, "1 2 3", "what was dear stays");
    clean(store).await;
}

pub(super) async fn answers_go_with_what_they_were_made_of(store: &Store) {
    let session = add(store, "chat", &say_many(4)).await;
    let other = add(store, "other", &say_many(1)).await;
    let diary = scope_of("acme", "diary");
    let fill = async || {
        for (key, session) in [(1, Some(session)), (2, Some(other)), (3, None)] {
            let answer = new_answer(store, key, session).await;
            store.put_answer(&scope(), answer).await.unwrap();
        }
        let epoch = store.scope_head(&diary).await.unwrap().epoch;
        let elsewhere = NewAnswer { epoch, ..new_answer(store, 4, None).await };
        store.put_answer(&diary, elsewhere).await.unwrap();
    };
    let put = async |id: &str| {
        let entry = super::runs::write("notes", id).entry;
        store.put_entry(&scope(), entry).await.unwrap();
    };
    fill().await;
    let stale = new_answer(store, 5, Some(session)).await;
    erase(store, session, &[1]).await;
    assert_eq!(answers(store).await, "2");
    store.put_answer(&scope(), stale).await.unwrap();
    assert_eq!(answers(store).await, "2", "it was asked with what was erased");
    fill().await;
    put("a").await;
    put("b").await;
    let selector = Selector::Entry("a".to_owned());
    store.erase_entries(&scope(), &selector, true, NOW).await.unwrap();
    assert_eq!(answers(store).await, "1 2 3", "of a dry run");
    assert_eq!(store.erase_entries(&scope(), &selector, false, NOW).await.unwrap(), 1);
    assert_eq!(answers(store).await, "1 2");
    fill().await;
    assert!(store.end_entry(&scope(), "b", NOW).await.unwrap());
    assert_eq!(answers(store).await, "1 2 3", "it is there until it is purged");
    assert_eq!(store.purge_entries(&scope(), NOW, NOW, 9).await.unwrap(), 1);
    assert_eq!(answers(store).await, "1 2");
    fill().await;
    let verdict = NewVerdict {
        fact: fact("Ana", "here"),
        verdict: icecore_domain::fact::Verdict::Added,
        source: None,
        now: NOW,
        secrets_seen: 1,
        hidden: icecore_domain::redact::Hidden::new(),
    };
    let id = verdict.fact.key().to_string();
    store.put_verdict(&scope(), verdict).await.unwrap();
    let selector = Selector::Entry(id);
    assert_eq!(store.erase_facts(&scope(), &selector, &[], false, NOW).await.unwrap(), 1);
    assert_eq!(answers(store).await, "1 2");
    assert!(store.answer(&diary, &[4; 32]).await.unwrap().is_some(), "of another memory");
    clean(store).await;
}

// What it cost

pub(super) async fn spending_is_summed_up(store: &Store) {
    let spent = |day, purpose: &str, model: &str, calls| Spending {
        day,
        purpose: purpose.to_owned(),
        model: model.to_owned(),
        calls,
        failed: 1,
        reused: 2,
        input: 3,
        cached_input: 4,
        output: 5,
        cost: 6,
        saved: 7,
    };
    let twice = |day, purpose: &str, model: &str, calls| Spending {
        failed: 2,
        reused: 4,
        input: 6,
        cached_input: 8,
        output: 10,
        cost: 12,
        saved: 14,
        ..spent(day, purpose, model, calls)
    };
    assert!(store.spending(&acme(), None, 0).await.unwrap().is_empty());
    store.add_spending(&scope(), Vec::new()).await.unwrap();
    assert!(store.scopes(&acme()).await.unwrap().is_empty(), "nothing was spent");
    let first = vec![
        spent(2, "summary", "m", 1),
        spent(1, "summary", "m", 2),
        spent(2, "summary", "m", 4),
        spent(2, "handoff", "n", 8),
    ];
    store.add_spending(&scope(), first).await.unwrap();
    let elsewhere = vec![spent(2, "handoff", "n", 16), spent(2, "handoff", "m", 32)];
    store.add_spending(&scope_of("acme", "diary"), elsewhere).await.unwrap();
    store.add_spending(&scope_of("rival", "notes"), vec![spent(2, "x", "m", 1)]).await.unwrap();
    let of = async |memory, since| store.spending(&acme(), memory, since).await.unwrap();
    let notes =
        [spent(1, "summary", "m", 2), spent(2, "handoff", "n", 8), twice(2, "summary", "m", 5)];
    assert_eq!(of(Some("notes"), 0).await, notes);
    assert_eq!(of(Some("notes"), 2).await, notes[1..]);
    let all =
        [spent(2, "handoff", "m", 32), twice(2, "handoff", "n", 24), twice(2, "summary", "m", 5)];
    assert_eq!(of(None, 2).await, all);
    assert!(of(Some("none"), 0).await.is_empty());
    let huge = Spending { calls: u64::MAX, ..spent(3, "x", "m", 0) };
    store.add_spending(&scope(), vec![huge.clone(), huge]).await.unwrap();
    assert_eq!(of(None, 3).await[0].calls, i64::MAX as u64, "counts end where numbers do");
    clean(store).await;
}

/// A handoff that fails left the old, one whose answer is lost left the new.
#[cfg(test)]
pub(super) async fn keeping_is_one_step(store: Store) {
    use crate::store::hooks::Failing;
    let session = add(&store, "chat", &say_many(6)).await;
    let mut before = said(&store, session).await;
    for through in [2, 5] {
        for is_done in [false, true] {
            let failing = match is_done {
                false => store.hooked(Failing::instead_of(1)),
                true => store.hooked(Failing::after(1)),
            };
            let head = store.head(&acme()).await.unwrap();
            let new = new_handoff(&store, session, Branch::MAIN, through).await;
            assert!(failing.put_handoff(&scope(), new).await.is_err());
            assert_eq!(store.head(&acme()).await.unwrap() != head, is_done);
            let after = said(&store, session).await;
            assert_eq!(after != before, is_done);
            before = after;
            clean(&store).await;
        }
    }
    assert_eq!(before, "1 main.2, 2 main.5");
}
