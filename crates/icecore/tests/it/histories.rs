//! Clients that know of no session: their histories find it.

use std::sync::Arc;

use icecore::{
    ClientMessage, Compacted, Content, FittedHistory, FollowRequest, Followed, Following,
    ForgetRequest, HANDOFF_MARK, HandoffSettings, HistoryFit, Memory, MemoryBuilder, MemoryError,
    MemorySettings, Principal, ProviderCount, RawTurn, Scope, SessionWindow, Store, Tenant,
    json::JsonText,
};
use icecore_store::testing::CountingStore;
use icecore_store::{MemoryStore, Packs};

use crate::support::{Bench, me};

/// A message as a proxy makes one of a client's.
pub(crate) fn message(turn: RawTurn) -> ClientMessage {
    let calls = turn.tool_calls.as_ref().map_or("", |calls| calls.as_str());
    let answered = turn.tool_call_id.as_deref().unwrap_or_default();
    let words = turn.content.text().into_owned();
    ClientMessage {
        recognised_by: format!("{}\n{calls}\n{answered}\n{words}", turn.role).into_bytes(),
        is_reply: turn.role == "assistant",
        turn,
    }
}

pub(crate) fn user(content: &str) -> ClientMessage {
    message(RawTurn::new("user", content))
}

pub(crate) fn reply(content: &str) -> ClientMessage {
    message(RawTurn::new("assistant", content))
}

/// A request by somebody who may be forgotten.
fn by(name: &str, content: &str) -> ClientMessage {
    message(RawTurn { name: Some(name.to_owned()), ..RawTurn::new("user", content) })
}

fn call(id: &str) -> ClientMessage {
    let calls = format!(r#"[{{"id":"{id}","function":{{"name":"ls","arguments":"{{}}"}}}}]"#);
    message(RawTurn {
        content: Content::Null,
        tool_calls: Some(JsonText::parse(&calls).unwrap()),
        ..RawTurn::new("assistant", "")
    })
}

fn result(id: &str, content: &str) -> ClientMessage {
    message(RawTurn { tool_call_id: Some(id.to_owned()), ..RawTurn::new("tool", content) })
}

/// A history as words: a person's, a reply, a person's …
fn history(words: &[&str]) -> Vec<ClientMessage> {
    let one = |(at, words): (usize, &&str)| if at % 2 == 0 { user(words) } else { reply(words) };
    words.iter().enumerate().map(one).collect()
}

fn asking<'a>(messages: &'a [ClientMessage], new_session: &'a str) -> FollowRequest<'a> {
    FollowRequest { messages, session: None, is_retry: false, new_session }
}

/// A client's request as a proxy serves it, up to the answer.
async fn sent(
    memory: &Memory,
    scope: &Scope,
    request: &FollowRequest<'_>,
) -> (Followed, FittedHistory) {
    let mut followed = memory.follow(scope, request).await.unwrap();
    let fit = HistoryFit::default();
    let fitted = memory.fit_history(scope, &mut followed, request.messages, &fit).await.unwrap();
    memory.keep_history(scope, &mut followed, request.messages).await.unwrap();
    assert_eq!(followed.known, request.messages.len());
    (followed, fitted)
}

/// The same with its answer. Answers where it was kept.
async fn answered(
    memory: &Memory,
    scope: &Scope,
    request: &FollowRequest<'_>,
    words: &str,
) -> (String, Following) {
    let (followed, _) = sent(memory, scope, request).await;
    memory.keep_reply(scope, &followed, reply(words), None).await.unwrap();
    (followed.session, followed.following)
}

async fn told(bench: &Bench, words: &[&str], new: &str, answer: &str) -> (String, Following) {
    let messages = history(words);
    answered(&bench.memory, &bench.scope, &asking(&messages, new), answer).await
}

/// What a branch says, as people see it.
async fn view(bench: &Bench, session: &str, branch: &str) -> Vec<String> {
    let view = bench.memory.view(&bench.scope, session, Some(branch)).await.unwrap();
    view.messages.iter().map(crate::support::text).collect()
}

async fn names(bench: &Bench) -> Vec<String> {
    let sessions = bench.memory.sessions(&bench.scope).await.unwrap();
    sessions.into_iter().map(|one| one.session).collect()
}

fn is(session: &str, following: Following) -> (String, Following) {
    (session.to_owned(), following)
}

#[tokio::test]
async fn a_history_goes_on_with_its_session() {
    let bench = Bench::new().await;
    assert_eq!(told(&bench, &["hi"], "a", "Hello!").await, is("a", Following::Begins));
    let next = told(&bench, &["hi", "Hello!", "Who are you?"], "b", "Icecore.").await;
    assert_eq!(next, is("a", Following::Continues));
    let bench = bench.reopen().await;
    let words = ["hi", "Hello!", "Who are you?", "Icecore.", "Good."];
    assert_eq!(told(&bench, &words, "c", "Yes.").await, is("a", Following::Continues));
    assert_eq!(names(&bench).await, ["a"]);
    let mut all = words.to_vec();
    all.push("Yes.");
    assert_eq!(view(&bench, "a", "main").await, all);
    bench.check().await;
}

#[tokio::test]
async fn what_was_edited_forks_where_it_differs() {
    let bench = Bench::new().await;
    told(&bench, &["hi"], "a", "Hello!").await;
    told(&bench, &["hi", "Hello!", "one"], "x", "First.").await;
    told(&bench, &["hi", "Hello!", "one", "First.", "two"], "x", "Second.").await;
    let edited = told(&bench, &["hi", "Hello!", "uno"], "x", "Primo.").await;
    assert_eq!(edited, is("a", Following::Forks));
    assert_eq!(view(&bench, "a", "fork-1").await, ["hi", "Hello!", "uno", "Primo."]);
    // Both go on.
    let words = ["hi", "Hello!", "uno", "Primo.", "due"];
    assert_eq!(told(&bench, &words, "x", "Secondo.").await, is("a", Following::Continues));
    let words = ["hi", "Hello!", "one", "First.", "two", "Second.", "three"];
    assert_eq!(told(&bench, &words, "x", "Third.").await, is("a", Following::Continues));
    assert_eq!(view(&bench, "a", "main").await.len(), 8);
    assert_eq!(view(&bench, "a", "fork-1").await.len(), 6);
    // What differs before the first reply shares nothing that says who it is.
    let words = ["hey", "Hello!", "one"];
    assert_eq!(told(&bench, &words, "b", "First.").await, is("b", Following::Begins));
    assert_eq!(names(&bench).await, ["a", "b"]);
    bench.check().await;
}

#[tokio::test]
async fn two_who_both_say_hello_are_two() {
    let bench = Bench::new().await;
    assert_eq!(told(&bench, &["hello"], "a", "Hi, A.").await.0, "a");
    assert_eq!(told(&bench, &["hello"], "b", "Hi, B.").await.0, "b");
    assert_eq!(told(&bench, &["hello", "Hi, A.", "one"], "x", "1").await.0, "a");
    assert_eq!(told(&bench, &["hello", "Hi, B.", "two"], "x", "2").await.0, "b");
    assert_eq!(view(&bench, "a", "main").await, ["hello", "Hi, A.", "one", "1"]);
    assert_eq!(view(&bench, "b", "main").await, ["hello", "Hi, B.", "two", "2"]);
    // With the same answer nobody can tell them apart: each begins where they part.
    let bench = Bench::new().await;
    for name in ["a", "b"] {
        assert_eq!(told(&bench, &["hello"], name, "Hi.").await.0, name);
    }
    let first = told(&bench, &["hello", "Hi.", "one"], "c", "1").await;
    assert_eq!(first, is("c", Following::Begins));
    let second = told(&bench, &["hello", "Hi.", "two"], "d", "2").await;
    assert_eq!(second, is("d", Following::Begins));
    let words = ["hello", "Hi.", "one", "1", "more"];
    assert_eq!(told(&bench, &words, "x", "3").await, is("c", Following::Continues));
    let words = ["hello", "Hi.", "two", "2", "more"];
    assert_eq!(told(&bench, &words, "x", "4").await, is("d", Following::Continues));
    assert_eq!(view(&bench, "c", "main").await, ["hello", "Hi.", "one", "1", "more", "3"]);
    assert_eq!(view(&bench, "d", "main").await, ["hello", "Hi.", "two", "2", "more", "4"]);
}

#[tokio::test]
async fn a_session_that_is_named_decides() {
    let bench = Bench::new().await;
    told(&bench, &["hi"], "a", "Hello!").await;
    let named = async |words: &[&str], session: &str, answer: &str| {
        let messages = history(words);
        let request = FollowRequest { session: Some(session), ..asking(&messages, "not this one") };
        answered(&bench.memory, &bench.scope, &request, answer).await
    };
    // A new one is made, whatever else matches.
    let words = ["hi", "Hello!", "one"];
    assert_eq!(named(&words, "mine", "1").await, is("mine", Following::Begins));
    assert_eq!(view(&bench, "mine", "main").await, ["hi", "Hello!", "one", "1"]);
    let words = ["hi", "Hello!", "one", "1", "two"];
    assert_eq!(named(&words, "mine", "2").await, is("mine", Following::Continues));
    // Even what has no reply in it is known there.
    assert_eq!(named(&["hi", "Hey."], "mine", "3").await, is("mine", Following::Forks));
    assert_eq!(view(&bench, "mine", "fork-1").await, ["hi", "Hey.", "3"]);
    // What contradicts it all is a tree of its own.
    assert_eq!(named(&["Something else"], "mine", "4").await, is("mine", Following::Begins));
    assert_eq!(view(&bench, "mine", "fork-2").await, ["Something else", "4"]);
    let words = ["Something else", "4", "five"];
    assert_eq!(named(&words, "mine", "5").await, is("mine", Following::Continues));
    assert_eq!(view(&bench, "mine", "main").await.len(), 6);
    // So is a session that came without us.
    bench.add("old", vec![RawTurn::new("user", "hi"), RawTurn::new("assistant", "Hello!")]).await;
    let words = ["hi", "Hello!", "one"];
    assert_eq!(named(&words, "old", "1").await, is("old", Following::Begins));
    assert_eq!(view(&bench, "old", "fork-1").await, ["hi", "Hello!", "one", "1"]);
    bench.check().await;
}

#[tokio::test]
async fn the_same_request_once_more_adds_nothing() {
    let bench = Bench::new().await;
    told(&bench, &["hi"], "a", "Hello!").await;
    let words = ["hi", "Hello!", "one"];
    told(&bench, &words, "x", "1").await;
    // Its answer was kept. The same one again changes nothing, another is a branch.
    assert_eq!(told(&bench, &words, "x", "1").await, is("a", Following::Forks));
    assert_eq!(view(&bench, "a", "main").await, ["hi", "Hello!", "one", "1"]);
    assert_eq!(bench.turns("a").await.len(), 4);
    assert_eq!(told(&bench, &words, "x", "eins").await, is("a", Following::Forks));
    assert_eq!(view(&bench, "a", "fork-1").await, ["hi", "Hello!", "one", "eins"]);
    let next = told(&bench, &["hi", "Hello!", "one", "eins", "two"], "x", "2").await;
    assert_eq!(next, is("a", Following::Continues));
    assert_eq!(view(&bench, "a", "fork-1").await.len(), 6);
    // Its answer was not kept.
    let messages = history(&["hi", "Hello!", "uno"]);
    let (first, _) = sent(&bench.memory, &bench.scope, &asking(&messages, "x")).await;
    let (again, _) = sent(&bench.memory, &bench.scope, &asking(&messages, "x")).await;
    assert_eq!((first.following, again.following), (Following::Forks, Following::Continues));
    bench.memory.keep_reply(&bench.scope, &again, reply("primo"), None).await.unwrap();
    assert_eq!(view(&bench, "a", "fork-2").await, ["hi", "Hello!", "uno", "primo"]);
    assert_eq!(names(&bench).await, ["a"]);
    bench.check().await;
}

#[tokio::test]
async fn a_first_request_that_is_sent_again_may_go_on() {
    let bench = Bench::new().await;
    let messages = history(&["hi"]);
    let retry = FollowRequest { is_retry: true, ..asking(&messages, "new") };
    for name in ["a", "b"] {
        sent(&bench.memory, &bench.scope, &asking(&messages, name)).await;
    }
    // The newest that holds just that.
    let (followed, _) = sent(&bench.memory, &bench.scope, &retry).await;
    assert_eq!((followed.session.as_str(), followed.following), ("b", Following::Continues));
    bench.memory.keep_reply(&bench.scope, &followed, reply("Hello!"), None).await.unwrap();
    let (followed, _) = sent(&bench.memory, &bench.scope, &retry).await;
    assert_eq!(followed.session, "a");
    bench.memory.keep_reply(&bench.scope, &followed, reply("Hey!"), None).await.unwrap();
    // All have their answers.
    let (followed, _) = sent(&bench.memory, &bench.scope, &retry).await;
    assert_eq!((followed.session.as_str(), followed.following), ("new", Following::Begins));
    // Nobody says so: nobody knows.
    let (followed, _) = sent(&bench.memory, &bench.scope, &asking(&messages, "other")).await;
    assert_eq!((followed.session.as_str(), followed.following), ("other", Following::Begins));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_at_one_head_lose_nothing() {
    let bench = Bench::new().await;
    told(&bench, &["hi"], "a", "Hello!").await;
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let (memory, scope) = (bench.memory.clone(), bench.scope.clone());
            tokio::spawn(async move {
                // Half of them say the same.
                let words = format!("request {}", n % 4);
                let messages = history(&["hi", "Hello!", &words]);
                let name = format!("other {n}");
                let request = asking(&messages, &name);
                answered(&memory, &scope, &request, &format!("answer {n}")).await
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap().0, "a");
    }
    let mut seen: Vec<String> = bench.texts("a").await;
    seen.sort();
    let requests = (0..4).map(|n| format!("request {n}"));
    let mut expected: Vec<String> = (0..8).map(|n| format!("answer {n}")).chain(requests).collect();
    expected.extend(["hi".to_owned(), "Hello!".to_owned()]);
    expected.sort();
    assert_eq!(seen, expected);
    // Each answer stands behind its request.
    let info = bench.memory.sessions(&bench.scope).await.unwrap().remove(0);
    let mut paths = Vec::new();
    for branch in &info.branches {
        let path = view(&bench, "a", &branch.to_string()).await;
        assert_eq!(path[..2], ["hi", "Hello!"]);
        let (request, answer) = (path[2].clone(), path[3].clone());
        let number = |text: &str| text.rsplit(' ').next().unwrap().parse::<u32>().unwrap();
        assert_eq!(number(&answer) % 4, number(&request), "{path:?}");
        paths.push(answer);
    }
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), 8);
    bench.check().await;
}

#[tokio::test]
async fn the_same_words_of_others_are_others() {
    let bench = Bench::new().await;
    told(&bench, &["hi"], "a", "Hello!").await;
    let rival = Principal::local_operator(Tenant::new("rival").unwrap());
    let rivals = bench.memory.scope(&rival, "m").await.unwrap();
    let diary = bench.memory.scope(&me(), "diary").await.unwrap();
    let messages = history(&["hi", "Hello!", "one"]);
    for other in [&rivals, &diary] {
        let found = bench.memory.follow(other, &asking(&messages, "own")).await.unwrap();
        assert_eq!((found.session.as_str(), found.following), ("own", Following::Begins));
        let named = FollowRequest { session: Some("a"), ..asking(&messages, "own") };
        let found = bench.memory.follow(other, &named).await.unwrap();
        assert_eq!((found.following, found.known), (Following::Begins, 0));
    }
}

#[tokio::test]
async fn what_was_forgotten_stays_so_when_it_is_sent_again() {
    let bench = Bench::new().await;
    let mut messages = vec![by("Eve", "My code is 4711.")];
    let request = asking(&messages, "a");
    answered(&bench.memory, &bench.scope, &request, "Noted.").await;
    bench
        .memory
        .forget(&me(), None, &ForgetRequest::Subject("Eve".to_owned()), false)
        .await
        .unwrap();
    messages.extend([reply("Noted."), user("What is my code?")]);
    let (followed, fitted) = sent(&bench.memory, &bench.scope, &asking(&messages, "b")).await;
    assert_eq!((followed.session.as_str(), followed.following), ("a", Following::Continues));
    // The client's own bytes go on.
    assert_eq!(fitted.shown, [0, 1, 2]);
    bench.memory.keep_reply(&bench.scope, &followed, reply("4711."), None).await.unwrap();
    assert_eq!(bench.texts("a").await, ["Noted.", "What is my code?", "4711."]);
    bench.check().await;
}

#[tokio::test]
async fn a_forgotten_session_that_is_sent_again_stays_forgotten() {
    let bench = Bench::new().await;
    told(&bench, &["hi"], "a", "Hello!").await;
    told(&bench, &["hi", "Hello!", "My code is 4711."], "x", "Noted.").await;
    let asked = ForgetRequest::Session("a".to_owned());
    bench.memory.forget(&me(), None, &asked, false).await.unwrap();
    let words = ["hi", "Hello!", "My code is 4711.", "Noted.", "What is it?"];
    assert_eq!(told(&bench, &words, "b", "A code.").await, is("b", Following::Begins));
    assert_eq!(bench.texts("b").await, ["What is it?", "A code."]);
    let bench = bench.reopen().await;
    let mut words = words.to_vec();
    words.extend(["A code.", "Go on."]);
    let messages = history(&words);
    let (followed, fitted) = sent(&bench.memory, &bench.scope, &asking(&messages, "c")).await;
    assert_eq!((followed.session.as_str(), followed.following), ("b", Following::Continues));
    assert_eq!(fitted.shown, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(bench.texts("b").await, ["What is it?", "A code.", "Go on."]);
    assert_eq!(names(&bench).await, ["b"]);
    // By name it comes back without what it had.
    let named = FollowRequest { session: Some("a"), ..asking(&messages[..5], "c") };
    let (followed, _) = sent(&bench.memory, &bench.scope, &named).await;
    assert_eq!(followed.session, "a");
    assert_eq!(bench.texts("a").await, ["What is it?"]);
    bench.check().await;
}
