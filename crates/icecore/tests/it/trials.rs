//! One made-up transcript against a scripted model: what held, and what did not.
//!
//! Also a part of `evals`, which runs ten thousand of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use icecore::models::ChatModel;
use icecore::sessions::{ApiView, ExchangeRequest};
use icecore::{Memory, MemoryError, Principal, Scope, StoredTurn, Tenant};
use icecore_domain::handoff::transcripts::{Transcript, TranscriptKind, transcript};
use icecore_domain::handoff::{Message, floor, request_tokens, unpaired};
use icecore_models::ChatClient;
use icecore_models::O200k;
use icecore_models::testing::{Upstream, UpstreamConfig};

/// The session of every trial.
const SESSION: &str = "s";

/// More compactions than this for one request are a loop.
const MOST_COMPACTIONS: usize = 2;

/// What was seen in one trial, or in many.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Requests that were made of the memory.
    pub(crate) requests: u64,
    /// Of these, how many were compacted.
    pub(crate) compacted: u64,
    /// Compactions.
    pub(crate) compactions: u64,
    /// Requests that the provider refused before one fit.
    pub(crate) refused: u64,
    /// Requests that had to be refused, and were.
    pub(crate) exceeding: u64,
    /// Bytes that had to stay, and did.
    pub(crate) floor_bytes: u64,
    /// Pairs of calls and results that were looked at.
    pub(crate) pairs: u64,
    /// What went wrong.
    pub(crate) problems: Vec<String>,
}

impl Seen {
    pub(crate) fn add(&mut self, other: Seen) {
        self.requests += other.requests;
        self.compacted += other.compacted;
        self.compactions += other.compactions;
        self.refused += other.refused;
        self.exceeding += other.exceeding;
        self.floor_bytes += other.floor_bytes;
        self.pairs += other.pairs;
        self.problems.extend(other.problems);
    }
}

/// Runs transcript `number` of a seed.
pub(crate) async fn trial(seed: u64, number: u64) -> Seen {
    let made = transcript(seed, number, &O200k::default());
    let upstream = Upstream::start(UpstreamConfig {
        protocol: made.protocol,
        window: made.window.window,
        count_percent: made.count_percent,
        ..UpstreamConfig::default()
    })
    .await;
    let mut config = upstream.client_config();
    config.reserve = made.window.reserve;
    let model: Arc<dyn ChatModel> = Arc::new(ChatClient::new(config).expect("an address"));
    let memory = Memory::in_memory();
    let person = Principal::local_operator(Tenant::new("me").expect("a name"));
    let scope = memory.scope(&person, "m").await.expect("a scope");
    let mut trial = Trial { made: &made, memory, scope, upstream, model, seen: Seen::default() };
    if let Err(error) = trial.run().await {
        trial.seen.problems.push(format!("failed: {error}"));
    }
    let label = format!("{number} ({:?}, {:?})", made.kind, made.window);
    trial.seen.problems.iter_mut().for_each(|problem| *problem = format!("{label}: {problem}"));
    trial.seen
}

struct Trial<'a> {
    made: &'a Transcript,
    memory: Memory,
    scope: Scope,
    upstream: Upstream,
    model: Arc<dyn ChatModel>,
    seen: Seen,
}

impl Trial<'_> {
    async fn run(&mut self) -> Result<(), MemoryError> {
        for turns in self.made.history.iter().filter(|turns| !turns.is_empty()) {
            self.memory.remember(&self.scope, SESSION, turns.clone()).await?;
        }
        for turns in &self.made.asked {
            self.seen.requests += 1;
            self.upstream.forget_requests();
            let before = self.shown().await;
            let api_before = self.memory.api_view(&self.scope, SESSION, None).await.ok();
            let request = ExchangeRequest {
                session: SESSION.to_owned(),
                branch: None,
                turns: turns.clone(),
                tools: None,
                reminder: None,
                model: Arc::clone(&self.model),
            };
            match self.memory.exchange(&self.scope, &request, &|_| ()).await {
                Ok(done) => {
                    let count = done.compactions.len();
                    self.seen.compacted += u64::from(count > 0);
                    self.seen.compactions += count as u64;
                    self.check(count <= MOST_COMPACTIONS, "a loop");
                    self.answered(&before, turns.len()).await?;
                }
                Err(MemoryError::RequestExceedsWindow(_)) => {
                    self.seen.exceeding += 1;
                    self.refused(&before, api_before).await;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn check(&mut self, holds: bool, problem: &str) {
        if !holds {
            self.seen.problems.push(problem.to_owned());
        }
    }

    /// Every turn of the branch; none where there is no session yet.
    async fn shown(&self) -> Vec<StoredTurn> {
        let view = self.memory.view(&self.scope, SESSION, None).await;
        view.map(|view| view.messages).unwrap_or_default()
    }

    /// Whether what must stay has more tokens than the window has room for.
    fn exceeds(&self, messages: &[Message]) -> bool {
        let floor = floor(messages);
        let places: Vec<usize> = floor.system.iter().chain(&floor.kept).copied().collect();
        let tokens = places.iter().map(|at| messages[*at].tokens).sum();
        let window = self.made.window;
        request_tokens(places.len() as u64, tokens) + window.reserve > window.window
    }

    /// A request that was refused: rightly, with nothing sent and nothing changed.
    async fn refused(&mut self, before: &[StoredTurn], api_before: Option<ApiView>) {
        let asked = self.made.asked.iter().flatten().take(self.made.asked[0].len());
        let redactor = icecore_domain::redact::Redactor::standard();
        let raw = asked.map(|turn| redactor.turn(turn.clone()));
        let all: Vec<Message> = before
            .iter()
            .filter_map(|turn| turn.turn.clone())
            .chain(raw)
            .map(|turn| Message::new(turn, &O200k::default()))
            .collect();
        let is_right = self.exceeds(&all) || self.made.count_percent > 100;
        self.check(is_right, "refused what fits");
        let sent = self.upstream.request_count();
        self.check(sent == 0 || self.made.count_percent > 100, "sent what can not fit");
        let after = self.shown().await;
        self.check(sent > 0 || after == before, "a refused request changed the display view");
        let api = self.memory.api_view(&self.scope, SESSION, None).await.ok();
        self.check(sent > 0 || api == api_before, "a refused request changed the API view");
    }

    /// A request that was answered: what must stay was sent, and nothing else is lost.
    async fn answered(&mut self, before: &[StoredTurn], asked: usize) -> Result<(), MemoryError> {
        let after = self.shown().await;
        let is_whole = after.len() == before.len() + asked + 1 && after.starts_with(before);
        self.check(is_whole, "the display view is not what was said");
        let said = &after[..after.len().saturating_sub(1)];
        let api = self.memory.api_view(&self.scope, SESSION, None).await?;
        self.sent_fits(said.last());
        self.check_floor(said, &api);
        self.check_pairs(said, &api);
        Ok(())
    }

    /// What the provider took was within its window, and held the last turn.
    fn sent_fits(&mut self, last: Option<&StoredTurn>) {
        let requests = self.upstream.requests();
        let Some(sent) = requests.last() else { return self.check(false, "nothing was sent") };
        self.seen.refused += requests.len() as u64 - 1;
        let window = self.made.window;
        self.check(sent.tokens + window.reserve <= window.window, "the window was exceeded");
        let text =
            last.and_then(|turn| turn.turn.as_ref()).map(|turn| turn.fields().content.text());
        // A system prompt may stand beside the messages.
        let beside = sent.json.get("system").map(ToString::to_string).unwrap_or_default();
        let read = format!("{}\n{beside}", sent.text());
        let is_sent = text.as_deref().is_none_or(|text| {
            let is_lone = self.made.kind == TranscriptKind::OnlyResults;
            is_lone || text.lines().all(|line| read.contains(line.trim()))
        });
        self.check(is_sent, "the last turn was not sent");
    }

    fn check_floor(&mut self, said: &[StoredTurn], api: &ApiView) {
        let (messages, places) = messages(said);
        let floor = floor(&messages);
        let system: BTreeMap<_, _> = api.system.iter().map(|turn| (turn.seq, turn)).collect();
        let standing: BTreeMap<_, _> = api.turns.iter().map(|turn| (turn.seq, turn)).collect();
        for (wanted, held) in [(&floor.system, &system), (&floor.kept, &standing)] {
            for turn in wanted.iter().map(|at| &said[places[*at]]) {
                let is_held = held.get(&turn.seq).is_some_and(|held| held.turn == turn.turn);
                self.check(is_held, "a turn that must stay is gone");
                let bytes = turn.turn.as_ref().map_or(0, |turn| turn.fields().byte_count());
                self.seen.floor_bytes += bytes as u64;
            }
        }
    }

    /// No call without its result, no result without its call.
    fn check_pairs(&mut self, said: &[StoredTurn], api: &ApiView) {
        let sent: Vec<Message> =
            api.messages().into_iter().map(|turn| Message { turn, tokens: 0 }).collect();
        self.check(unpaired(&sent).is_empty(), "a result was sent without its call");
        if self.made.kind == TranscriptKind::Hostile {
            return;
        }
        let (messages, places) = messages(said);
        let held: BTreeSet<_> = api.system.iter().chain(&api.turns).map(|turn| turn.seq).collect();
        let mut callers: BTreeMap<String, usize> = BTreeMap::new();
        for (at, message) in messages.iter().enumerate() {
            for id in message.answers() {
                let Some(caller) = callers.get(&id) else { continue };
                let is_held = |at: usize| held.contains(&said[places[at]].seq);
                self.seen.pairs += 1;
                self.check(is_held(*caller) == is_held(at), "a pair was torn apart");
            }
            callers.extend(message.calls().into_iter().map(|id| (id, at)));
        }
    }
}

/// The turns as messages, and the place of each.
fn messages(turns: &[StoredTurn]) -> (Vec<Message>, Vec<usize>) {
    let with_body =
        turns.iter().enumerate().filter_map(|(at, turn)| Some((at, turn.turn.clone()?)));
    let as_message = |(at, turn)| (Message { turn, tokens: 0 }, at);
    with_body.map(as_message).unzip()
}
