//! Clients that know of no session: their histories find it.

use icecore::formats::json::JsonText;
use icecore::ingest::Content;
use icecore::sessions::{
    ClientMessage, Compacted, FittedHistory, FollowRequest, Followed, Following, HANDOFF_MARK,
    HistoryFit, ProviderCount, SessionWindow,
};
use icecore::settings::HandoffSettings;
use icecore::{
    ForgetRequest, Memory, MemoryBuilder, MemoryError, MemorySettings, Principal, RawTurn, Scope,
    Tenant,
};
use icecore_store::testing::Counting;
use icecore_store::{Packs, Store};

use crate::forgetting::on_disk;
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
async fn what_a_client_made_up_says_nothing() {
    let bench = Bench::new().await;
    let greeting = || reply("Hi, how can I help?");
    let greeted = |words: &[&str]| [vec![greeting()], history(words)].concat();
    let sent = async |messages: Vec<ClientMessage>, new: &str, answer: &str| {
        answered(&bench.memory, &bench.scope, &asking(&messages, new), answer).await
    };
    let first = sent(greeted(&["My tax?"]), "a", "Low.").await;
    assert_eq!(first, is("a", Following::Begins));
    let second = sent(greeted(&["My cat?"]), "b", "Fine.").await;
    assert_eq!(second, is("b", Following::Begins));
    // Once an answer went through us, it is known by that.
    let next = sent(greeted(&["My tax?", "Low.", "Why?"]), "x", "It is.").await;
    assert_eq!(next, is("a", Following::Continues));
    let edited = sent(greeted(&["My tax?", "Low.", "How low?"]), "x", "Very.").await;
    assert_eq!(edited, is("a", Following::Forks));
    let next = sent(greeted(&["My cat?", "Fine.", "Why?"]), "x", "It purrs.").await;
    assert_eq!(next, is("b", Following::Continues));
    // Examples are made up as well, and so is a history that was begun elsewhere.
    let examples = ["1 + 1?", "2", "2 + 2?", "4"];
    for (name, asked) in [("c", "3 + 3?"), ("d", "4 + 4?")] {
        let words = [examples.as_slice(), &[asked]].concat();
        assert_eq!(told(&bench, &words, name, "?").await, is(name, Following::Begins));
    }
    let words = [examples.as_slice(), &["3 + 3?", "?", "Well?"]].concat();
    assert_eq!(told(&bench, &words, "x", "6").await, is("c", Following::Continues));
    // By its name a session is found whatever is in it.
    let messages = greeted(&["Else?"]);
    let named = FollowRequest { session: Some("a"), ..asking(&messages, "x") };
    let found = bench.memory.follow(&bench.scope, &named).await.unwrap();
    assert_eq!((found.following, found.known), (Following::Forks, 1));
    bench.check().await;
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

#[tokio::test]
async fn what_was_forgotten_stays_so_under_another_name() {
    let bench = Bench::new().await;
    let code = || by("Eve", "My code is xylo-4711.");
    // Two that nobody can tell apart.
    for name in ["a", "b"] {
        let messages = vec![code()];
        answered(&bench.memory, &bench.scope, &asking(&messages, name), "Noted.").await;
    }
    let messages = [code(), reply("Noted."), user("What is it?")];
    let forget = ForgetRequest::Subject("Eve".to_owned());
    bench.memory.forget(&me(), None, &forget, false).await.unwrap();
    let place = answered(&bench.memory, &bench.scope, &asking(&messages, "c"), "A code.").await;
    assert_eq!(place, is("c", Following::Begins));
    assert_eq!(view(&bench, "c", "main").await, ["", "Noted.", "What is it?", "A code."]);
    let (followed, fitted) = {
        let named = FollowRequest { session: Some("d"), ..asking(&messages, "x") };
        sent(&bench.memory, &bench.scope, &named).await
    };
    assert_eq!((followed.session.as_str(), fitted.shown.as_slice()), ("d", [0, 1, 2].as_slice()));
    assert_eq!(view(&bench, "d", "main").await, ["", "Noted.", "What is it?"]);
    let turns = bench.turns("d").await;
    let hollow = turns[0].turn.as_ref().unwrap().fields();
    assert_eq!(hollow.tags, Some(vec!["forgotten".to_owned()]));
    assert_eq!((hollow.role.as_str(), &hollow.name), ("user", &None));
    // Of a session that was forgotten whole, too.
    let forget = ForgetRequest::Session("c".to_owned());
    bench.memory.forget(&me(), None, &forget, false).await.unwrap();
    let longer = [messages.to_vec(), vec![reply("A code."), user("Go on.")]].concat();
    let named = FollowRequest { session: Some("e"), ..asking(&longer, "x") };
    answered(&bench.memory, &bench.scope, &named, "I do.").await;
    // What others still hold is there, and what only the forgotten held is not.
    let said = ["", "Noted.", "What is it?", "", "Go on.", "I do."];
    assert_eq!(view(&bench, "e", "main").await, said);
    // It goes on by itself.
    let more = [longer.clone(), vec![reply("I do."), user("Good.")]].concat();
    let place = answered(&bench.memory, &bench.scope, &asking(&more, "x"), "Yes.").await;
    assert_eq!(place, is("e", Following::Continues));
    bench.check().await;
    assert_eq!(on_disk(&bench, "xylo-4711"), Vec::<std::path::PathBuf>::new());
}

// What is sent

/// A window of so many tokens, an eighth of it for the answer.
fn window(window: u64) -> SessionWindow {
    SessionWindow { window, reserve: window / 8 }
}

fn windows(tokens: u64) -> MemorySettings {
    let SessionWindow { window, reserve } = window(tokens);
    let handoffs = HandoffSettings { window, reserve, ..HandoffSettings::default() };
    MemorySettings { handoffs, ..MemorySettings::default() }
}

/// A client and all it has said and heard.
struct Client<'a> {
    memory: &'a Memory,
    scope: &'a Scope,
    messages: Vec<ClientMessage>,
    fit: HistoryFit,
    compactions: Vec<Compacted>,
    /// The last request as upstream got it.
    sent: Vec<String>,
}

impl<'a> Client<'a> {
    fn new(memory: &'a Memory, scope: &'a Scope) -> Self {
        let (messages, fit) = (Vec::new(), HistoryFit::default());
        Self { memory, scope, messages, fit, compactions: Vec::new(), sent: Vec::new() }
    }

    /// Sends one more message with all before it, and hears the answer.
    async fn say(&mut self, message: ClientMessage, answer: ClientMessage) -> FittedHistory {
        self.messages.push(message);
        let (followed, fitted) = self.request().await;
        let count = ProviderCount {
            model: "model".to_owned(),
            tokens: fitted.counted,
            counted: fitted.counted,
        };
        let kept = self.memory.keep_reply(self.scope, &followed, answer.clone(), Some(count));
        kept.await.unwrap();
        self.messages.push(answer);
        fitted
    }

    async fn request(&mut self) -> (Followed, FittedHistory) {
        let request = asking(&self.messages, "talk");
        let mut followed = self.memory.follow(self.scope, &request).await.unwrap();
        let fit = self.fit.clone();
        let fitted = self.memory.fit_history(self.scope, &mut followed, &self.messages, &fit);
        let fitted = fitted.await.unwrap();
        self.memory.keep_history(self.scope, &mut followed, &self.messages).await.unwrap();
        self.check(&fitted);
        self.compactions.extend(fitted.compactions.iter().cloned());
        self.sent = rendered(&self.messages, &fitted);
        (followed, fitted)
    }

    /// What holds of every request that is sent.
    fn check(&self, fitted: &FittedHistory) {
        let shown = &fitted.shown;
        assert!(fitted.request_tokens <= fitted.window.trigger(), "it fits");
        assert!(shown.is_sorted_by(|one, next| one < next), "each once, in order");
        assert_eq!(shown.last(), Some(&(self.messages.len() - 1)), "the last is sent");
        let is_all = shown.len() == self.messages.len();
        assert!(is_all || fitted.handoff.is_some(), "something stands for what is not sent");
        // No result without its call.
        let mut called = Vec::new();
        for turn in shown.iter().map(|at| &self.messages[*at].turn) {
            called.extend(turn.tool_calls.as_ref().map(|calls| calls.as_str().to_owned()));
            if let Some(id) = &turn.tool_call_id {
                assert!(called.iter().any(|call| call.contains(id.as_str())), "{id}");
            }
        }
    }
}

/// A request as upstream gets it, message by message.
fn rendered(messages: &[ClientMessage], fitted: &FittedHistory) -> Vec<String> {
    let mut sent: Vec<String> =
        fitted.handoff.iter().map(|text| text.as_str().to_owned()).collect();
    for at in &fitted.shown {
        let recalled = fitted.recalled.iter().filter(|(before, _)| before == at);
        sent.extend(recalled.map(|(_, text)| text.as_str().to_owned()));
        sent.push(String::from_utf8(messages[*at].recognised_by.clone()).unwrap());
    }
    sent
}

/// Some words of work, of about forty tokens.
fn work(n: usize) -> String {
    format!(
        "Step {n}: the probe at glacier {} reported {} metres of ice, and we agreed to drill hole \
         {n} on the eastern flank before the storm.",
        n % 7,
        n * 13 + 400
    )
}

const RULE: &str = "From now on, always answer in Dutch and never push to main.";

/// A conversation of so many exchanges.
async fn converse(client: &mut Client<'_>, exchanges: std::ops::Range<usize>) {
    for n in exchanges {
        let answer = reply(&format!("Done with step {n}: {}", work(n + 1_000)));
        client.say(user(&work(n)), answer).await;
    }
}

#[tokio::test]
async fn a_long_conversation_is_handed_over_and_its_prefix_stays() {
    let bench = Bench::with(windows(3_000)).await;
    let mut client = Client::new(&bench.memory, &bench.scope);
    client.fit.model = Some("model".to_owned());
    client.say(user(RULE), reply("Goed.")).await;
    let (mut reused, mut all) = (0, 0);
    for n in 1..120 {
        let (before, made) = (client.sent.clone(), client.compactions.len());
        client.messages.push(user(&work(n)));
        let (followed, fitted) = client.request().await;
        let place = (followed.session.as_str(), followed.following);
        assert_eq!(place, ("talk", Following::Continues), "{n}");
        if client.compactions.len() == made {
            assert_eq!(client.sent[..before.len()], before, "{n}");
            reused += before.len();
            all += client.sent.len();
        }
        // The places are those of the turns that the view has.
        let view = bench.memory.api_view(&bench.scope, "talk", None).await.unwrap();
        let turns: Vec<String> = view.turns.iter().map(crate::support::text).collect();
        let text = |at: &usize| client.messages[*at].turn.content.text().into_owned();
        assert_eq!(fitted.shown.iter().map(text).collect::<Vec<_>>(), turns, "{n}");
        assert_eq!(view.handoff.map(|one| one.text), fitted.handoff);
        assert_eq!(fitted.recalled, []);
        let answer = reply(&format!("Done with step {n}: {}", work(n + 1_000)));
        bench.memory.keep_reply(&bench.scope, &followed, answer.clone(), None).await.unwrap();
        client.messages.push(answer);
    }
    assert!(client.compactions.len() >= 3, "{}", client.compactions.len());
    let handoff = &client.sent[0];
    assert!(handoff.starts_with(HANDOFF_MARK) && handoff.contains(RULE), "{handoff}");
    assert!(reused * 100 >= all * 90, "{reused} of {all}");
    // People see all of it.
    assert_eq!(view(&bench, "talk", "main").await.len(), client.messages.len());
    assert_eq!(names(&bench).await, ["talk"]);
    bench.check().await;
}

#[tokio::test]
async fn calls_keep_their_results() {
    let bench = Bench::with(windows(2_400)).await;
    let mut client = Client::new(&bench.memory, &bench.scope);
    for n in 0..40 {
        let id = format!("call_{n}");
        client.say(user(&work(n)), call(&id)).await;
        client.say(result(&id, &work(n + 500)), reply(&format!("Step {n} is done."))).await;
    }
    assert!(client.compactions.len() >= 2, "{}", client.compactions.len());
    assert_eq!(names(&bench).await, ["talk"]);
    assert_eq!(view(&bench, "talk", "main").await.len(), client.messages.len());
    bench.check().await;
}

#[tokio::test]
async fn forks_before_and_behind_a_handoff() {
    let bench = Bench::with(windows(3_000)).await;
    let mut client = Client::new(&bench.memory, &bench.scope);
    converse(&mut client, 0..60).await;
    let main = bench.memory.api_view(&bench.scope, "talk", Some("main")).await.unwrap();
    let mark = main.handoff.clone().unwrap();
    // Behind it: the same handoff, and no compaction.
    let mut behind = Client::new(&bench.memory, &bench.scope);
    behind.messages = client.messages[..client.messages.len() - 2].to_vec();
    let fitted = behind.say(user("Something else, please."), reply("Yes.")).await;
    assert_eq!(fitted.handoff, Some(mark.text.clone()));
    assert_eq!(fitted.compactions, []);
    // Before it: it stands for what is not there, so another is made.
    let mut before = Client::new(&bench.memory, &bench.scope);
    before.messages = client.messages[..60].to_vec();
    let fitted = before.say(user("Where were we?"), reply("Here.")).await;
    assert_ne!(fitted.handoff.as_ref().map(|text| text.as_str()), Some(mark.text.as_str()));
    assert!(!fitted.handoff.as_ref().is_some_and(|text| text.contains("hole 59")));
    // The first branch is as it was, and all go on.
    let still = bench.memory.api_view(&bench.scope, "talk", Some("main")).await.unwrap();
    assert_eq!(still, main);
    for client in [&mut client, &mut behind, &mut before] {
        converse(client, 200..230).await;
    }
    assert_eq!(names(&bench).await, ["talk"]);
    let info = bench.memory.sessions(&bench.scope).await.unwrap().remove(0);
    assert_eq!(info.branches.len(), 3);
    bench.check().await;
}

#[tokio::test]
async fn an_earlier_request_once_more_fits_a_smaller_window() {
    let bench = Bench::with(windows(6_000)).await;
    let mut client = Client::new(&bench.memory, &bench.scope);
    converse(&mut client, 0..90).await;
    assert!(!client.compactions.is_empty());
    let main = bench.memory.api_view(&bench.scope, "talk", Some("main")).await.unwrap();
    let mut again = Client::new(&bench.memory, &bench.scope);
    again.messages = client.messages[..41].to_vec();
    again.fit.window = Some(window(1_200));
    let (followed, fitted) = again.request().await;
    assert_eq!((followed.following, followed.known), (Following::Forks, 41));
    assert_eq!(fitted.compactions.len(), 1);
    let handoff = fitted.handoff.unwrap();
    // Nothing of what came later is told.
    assert!(!handoff.contains("hole 30") && handoff.starts_with(HANDOFF_MARK), "{handoff}");
    let (_, twice) = again.request().await;
    assert_eq!((twice.handoff, twice.compactions), (Some(handoff), Vec::new()));
    let still = bench.memory.api_view(&bench.scope, "talk", Some("main")).await.unwrap();
    assert_eq!(still, main);
    bench.memory.keep_reply(&bench.scope, &followed, reply("Another."), None).await.unwrap();
    again.messages.push(reply("Another."));
    again.say(user("Go on."), reply("I do.")).await;
    assert_eq!(view(&bench, "talk", "fork-1").await.len(), 44);
    bench.check().await;
}

#[tokio::test]
async fn what_a_provider_refuses_is_compacted() {
    let bench = Bench::new().await;
    let mut client = Client::new(&bench.memory, &bench.scope);
    converse(&mut client, 0..60).await;
    client.messages.push(user("And now?"));
    let request = asking(&client.messages, "x");
    let mut followed = bench.memory.follow(&bench.scope, &request).await.unwrap();
    let mut fit = HistoryFit { model: Some("m".to_owned()), ..HistoryFit::default() };
    let messages = &client.messages;
    let first =
        bench.memory.fit_history(&bench.scope, &mut followed, messages, &fit).await.unwrap();
    assert_eq!((first.shown.len(), first.compactions.len()), (121, 0));
    // It names a window, which is kept in mind.
    (fit.overflowed, fit.attempts) = (Some(3_000), 0);
    let second =
        bench.memory.fit_history(&bench.scope, &mut followed, messages, &fit).await.unwrap();
    assert_eq!((second.compactions.len(), second.window.window), (1, 3_000));
    assert!(second.request_tokens <= second.window.trigger());
    assert_eq!(second.shown.last(), Some(&120));
    assert_eq!(followed.known, 121);
    // Once more, and then no more.
    (fit.overflowed, fit.attempts) = (Some(0), 1);
    let third =
        bench.memory.fit_history(&bench.scope, &mut followed, messages, &fit).await.unwrap();
    assert_eq!((third.compactions.len(), third.shown.as_slice()), (1, [120].as_slice()));
    fit.attempts = 2;
    let more = bench.memory.fit_history(&bench.scope, &mut followed, messages, &fit).await;
    assert!(matches!(more, Err(MemoryError::RequestExceedsWindow(_))), "{more:?}");
    // The next request knows the window.
    (fit.overflowed, fit.attempts) = (None, 0);
    let next = bench.memory.fit_history(&bench.scope, &mut followed, messages, &fit).await.unwrap();
    assert_eq!((next.window.window, next.handoff), (3_000, third.handoff));
}

#[tokio::test]
async fn a_request_larger_than_the_window_is_kept_and_refused() {
    let bench = Bench::with(windows(1_000)).await;
    let mut client = Client::new(&bench.memory, &bench.scope);
    converse(&mut client, 0..3).await;
    let large = user(&(0..100).map(work).collect::<String>());
    client.messages.push(large.clone());
    let request = asking(&client.messages, "x");
    let mut followed = bench.memory.follow(&bench.scope, &request).await.unwrap();
    let fit = HistoryFit::default();
    let refused =
        bench.memory.fit_history(&bench.scope, &mut followed, &client.messages, &fit).await;
    assert!(matches!(refused, Err(MemoryError::RequestExceedsWindow(_))), "{refused:?}");
    assert_eq!(bench.texts("talk").await.last().unwrap(), &large.turn.content.text());
    // The client goes another way.
    client.messages.pop();
    converse(&mut client, 3..5).await;
    assert_eq!(names(&bench).await, ["talk"]);
}

#[tokio::test]
async fn what_memory_forgot_is_sent_as_long_as_it_fits() {
    let bench = Bench::with(windows(3_000)).await;
    let mut client = Client::new(&bench.memory, &bench.scope);
    converse(&mut client, 0..10).await;
    client.say(by("Eve", "My code is 4711."), reply("Noted.")).await;
    converse(&mut client, 10..14).await;
    let forget = ForgetRequest::Subject("Eve".to_owned());
    bench.memory.forget(&me(), None, &forget, false).await.unwrap();
    let fitted = client.say(user("What is my code?"), reply("4711.")).await;
    assert!(fitted.shown.contains(&20), "its own words go on");
    let made = client.compactions.len();
    converse(&mut client, 14..60).await;
    assert!(client.compactions.len() > made + 1);
    assert!(!bench.texts("talk").await.contains(&"My code is 4711.".to_owned()));
    for compacted in &client.compactions {
        assert!(!compacted.handoff.text.contains("My code is"));
    }
    // With a session that was forgotten whole.
    let forget = ForgetRequest::Session("talk".to_owned());
    bench.memory.forget(&me(), None, &forget, false).await.unwrap();
    let request = asking(&client.messages, "new");
    let followed = bench.memory.follow(&bench.scope, &request).await.unwrap();
    assert_eq!((followed.session.as_str(), followed.known), ("new", client.messages.len()));
    let messages = client.messages.clone();
    let mut behind = Client::new(&bench.memory, &bench.scope);
    behind.messages = messages;
    behind.messages.push(user("Who are you?"));
    let request = asking(&behind.messages, "new");
    let mut followed = bench.memory.follow(&bench.scope, &request).await.unwrap();
    let fit = HistoryFit::default();
    let fitted = bench.memory.fit_history(&bench.scope, &mut followed, &behind.messages, &fit);
    // What is not in memory any more has no room, and nothing stands for it.
    let fitted = fitted.await.unwrap();
    assert_eq!(fitted.shown, [behind.messages.len() - 1]);
    assert_eq!(bench.texts("new").await, ["Who are you?"]);
    bench.check().await;
}

#[tokio::test]
async fn a_forgotten_request_is_sent_when_the_rest_is_compacted() {
    for (words, fits) in [("My code is 4711. What is it?".to_owned(), true), (work(7), false)] {
        let bench = Bench::with(windows(20_000)).await;
        let mut client = Client::new(&bench.memory, &bench.scope);
        converse(&mut client, 0..20).await;
        client.messages.push(by("Eve", &words.repeat(if fits { 1 } else { 40 })));
        client.request().await;
        let forget = ForgetRequest::Subject("Eve".to_owned());
        bench.memory.forget(&me(), None, &forget, false).await.unwrap();
        client.fit.window = Some(window(1_200));
        if fits {
            let (_, fitted) = client.request().await;
            assert_eq!(fitted.compactions.len(), 1);
            // Even where nothing but the floor has room.
            (client.fit.overflowed, client.fit.attempts) = (Some(0), 1);
            client.request().await;
            continue;
        }
        let request = asking(&client.messages, "x");
        let mut followed = bench.memory.follow(&bench.scope, &request).await.unwrap();
        let (messages, fit) = (&client.messages, &client.fit);
        let refused = bench.memory.fit_history(&bench.scope, &mut followed, messages, fit).await;
        assert!(matches!(refused, Err(MemoryError::RequestExceedsWindow(_))), "{refused:?}");
    }
}

#[tokio::test]
async fn a_request_that_fits_reads_no_turn() {
    let mut counts = Vec::new();
    for exchanges in [60, 240] {
        let counting = Counting::new();
        let store = Store::in_memory([1; 32]).hooked(counting.clone());
        let memory =
            MemoryBuilder::default().settings(windows(3_000)).over(store, Packs::in_memory(), None);
        let scope = memory.scope(&me(), "m").await.unwrap();
        let mut client = Client::new(&memory, &scope);
        client.fit.model = Some("model".to_owned());
        converse(&mut client, 0..exchanges).await;
        assert!(!client.compactions.is_empty());
        client.messages.push(user("And now?"));
        counting.take_reads();
        let request = asking(&client.messages, "x");
        let mut followed = memory.follow(&scope, &request).await.unwrap();
        let fit = client.fit.clone();
        let fitted = memory.fit_history(&scope, &mut followed, &client.messages, &fit).await;
        assert_eq!(fitted.unwrap().compactions, []);
        let reads = counting.take_reads();
        for bodies in ["turns", "turns_at", "turns_after", "turns_by_lookup", "bodies"] {
            assert!(!reads.contains_key(bodies), "{reads:?}");
        }
        let calls: u64 = reads.values().map(|read| read.calls).sum();
        assert!(calls <= 8, "{reads:?}");
        counts.push(reads);
    }
    assert_eq!(counts[0], counts[1]);
}

// What memory adds

#[tokio::test]
async fn nothing_comes_between_a_call_and_its_result() {
    let bench = Bench::new().await;
    let about = "The sledge of Ana is called Polar Star.";
    bench.add("other", vec![RawTurn::new("user", about)]).await;
    let parts = |role: &str, json: &str| {
        let content = Content::Parts(JsonText::parse(json).unwrap());
        message(RawTurn { content, ..RawTurn::new(role, "") })
    };
    let used = parts("assistant", r#"[{"type":"tool_use","id":"a","name":"ls","input":{}}]"#);
    let asked = r#"{"type":"text","text":"What is Ana's sledge called?"}"#;
    let result = r#"{"type":"tool_result","tool_use_id":"a","content":"ok"}"#;
    let mut client = Client::new(&bench.memory, &bench.scope);
    client.fit.recall_tokens = 120;
    client.say(user("Look."), used).await;
    let spoken = parts("user", &format!("[{result},{asked}]"));
    let fitted = client.say(spoken, reply("Polar Star.")).await;
    assert_eq!(fitted.recalled, []);
    // The same words without a result have it.
    let fitted = client.say(parts("user", &format!("[{asked}]")), reply("As I said.")).await;
    assert_eq!(fitted.recalled.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [4]);
}

#[tokio::test]
async fn memory_is_put_before_a_request_and_stays() {
    let bench = Bench::with(windows(2_000)).await;
    let about = "The sledge of Ana is called Polar Star.";
    bench.add("other", vec![RawTurn::new("user", about)]).await;
    let mut client = Client::new(&bench.memory, &bench.scope);
    client.fit.recall_tokens = 120;
    let first = client.say(user("What is Ana's sledge called?"), reply("Polar Star.")).await;
    let [(0, text)] = first.recalled.as_slice() else { panic!("{:?}", first.recalled) };
    assert!(text.starts_with("[icecore recall]") && text.contains("Polar Star"), "{text}");
    let text = text.clone();
    let told = client.sent.clone();
    // It stands there from now on, and what is said in the request itself is not repeated.
    let second = client.say(user("Is Polar Star what it is called?"), reply("Yes.")).await;
    assert_eq!(second.recalled[0], (0, text.clone()));
    assert_eq!(client.sent[..told.len()], told);
    assert!(second.recalled.iter().all(|(_, text)| !text.contains("Ana's sledge called?")));
    let none = client.say(user("Xyzzy plugh?"), reply("Nothing happens.")).await;
    assert!(none.recalled.iter().all(|(at, _)| *at != 4), "{:?}", none.recalled);
    // A restart changes nothing.
    let before = client.sent.clone();
    let messages = client.messages.clone();
    drop(client);
    let bench = bench.reopen().await;
    let mut client = Client::new(&bench.memory, &bench.scope);
    (client.messages, client.fit.recall_tokens) = (messages, 120);
    client.say(user("Fine."), reply("Good.")).await;
    assert_eq!(client.sent[..before.len()], before);
    // It is no turn, and goes with a compaction.
    assert!(bench.texts("talk").await.iter().all(|said| !said.contains("icecore recall")));
    let compactions = client.compactions.len();
    converse(&mut client, 0..30).await;
    assert!(client.compactions.len() > compactions);
    assert!(client.sent.iter().all(|said| *said != text.as_str()));
    bench.check().await;
}

#[tokio::test]
async fn what_was_recalled_goes_with_what_it_tells_of() {
    let bench = Bench::new().await;
    let about = "The sledge of Ana is called Polar Star.";
    bench.add("other", vec![RawTurn::new("user", about)]).await;
    let mut client = Client::new(&bench.memory, &bench.scope);
    client.fit.recall_tokens = 120;
    let first = client.say(user("What is Ana's sledge called?"), reply("I see.")).await;
    assert_eq!(first.recalled.len(), 1);
    let forget = ForgetRequest::Session("other".to_owned());
    bench.memory.forget(&me(), None, &forget, false).await.unwrap();
    let second = client.say(user("Thanks."), reply("Yes.")).await;
    assert_eq!(second.recalled, []);
    // Where it is off, nothing is put, and nothing is looked for.
    let mut other = Client::new(&bench.memory, &bench.scope);
    other.say(user("What is Ana's sledge called?"), reply("Dunno.")).await;
    assert!(other.sent.iter().all(|said| !said.contains("icecore recall")));
}
