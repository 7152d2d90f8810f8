//! Transcripts made from a seed, each exchanged with a server that counts.

use std::sync::Arc;

use icecore::models::{ChatError, ChatModel, TokenCounter};
use icecore::sessions::{ApiView, ExchangeRequest};
use icecore::{Memory, MemoryError, RawTurn, Scope};
use icecore_domain::handoff::transcripts::{Transcript, TranscriptKind, transcript};
use icecore_domain::handoff::{Message, floor, request_tokens, unpaired};
use icecore_models::ChatClient;
use icecore_models::testing::{Upstream, UpstreamConfig};

use crate::support::Bench;

/// Transcripts that are tried: `ICECORE_TRANSCRIPTS` says how many where it is set.
const TRANSCRIPTS: u64 = 48;

const SEED: u64 = 8;

fn body(turns: &[icecore::StoredTurn]) -> Vec<RawTurn> {
    turns.iter().filter_map(|turn| turn.turn.clone()).map(|turn| turn.into_fields()).collect()
}

/// What must stay of a view, and the tokens of that as a request.
fn floor_of(turns: &[RawTurn], counter: &dyn TokenCounter) -> (Vec<RawTurn>, u64) {
    let redactor = icecore::privacy::Redactor::standard();
    let messages: Vec<Message> =
        turns.iter().map(|turn| Message::new(redactor.turn(turn.clone()), counter)).collect();
    let floor = floor(&messages);
    let places: Vec<usize> = floor.system.iter().chain(&floor.kept).copied().collect();
    let tokens = places.iter().map(|at| messages[*at].tokens).sum();
    let stays = places.iter().map(|at| messages[*at].turn.fields().clone()).collect();
    (stays, request_tokens(places.len() as u64, tokens))
}

async fn view(memory: &Memory, scope: &Scope) -> Option<ApiView> {
    memory.api_view(scope, "s", None).await.ok()
}

struct Trial<'a> {
    number: u64,
    made: &'a Transcript,
    bench: &'a Bench,
    upstream: &'a Upstream,
    model: Arc<dyn ChatModel>,
}

impl Trial<'_> {
    /// One exchange, and all that must hold of it.
    async fn exchange(&self, turns: &[RawTurn]) -> bool {
        let (memory, scope) = (&self.bench.memory, &self.bench.scope);
        let told = format!("{} {:?}", self.number, self.made.kind);
        let before = memory.view(scope, "s", None).await.map(|view| view.messages);
        let before = before.unwrap_or_default();
        self.upstream.forget_requests();
        let request = ExchangeRequest {
            session: "s".to_owned(),
            branch: None,
            turns: turns.to_vec(),
            tools: None,
            reminder: None,
            model: Arc::clone(&self.model),
        };
        let done = memory.exchange(scope, &request, &|_| ()).await;
        let after = memory.view(scope, "s", None).await.map(|view| view.messages);
        let after = after.unwrap_or_default();
        let view = view(memory, scope).await;
        let window = self.made.window;
        match done {
            Ok(done) => {
                assert!(done.compactions.len() <= 2, "{told}");
                assert!(self.upstream.request_count() <= 3, "{told}");
                let view = view.unwrap();
                // What was sent last is the view without the answer.
                let mut sent = body(&view.system);
                sent.extend(body(&view.turns));
                sent.pop();
                let mut all = body(&after);
                all.pop();
                // No turn was lost, and the floor of all that was said is in what was sent.
                let (stays, _) = floor_of(&all, memory.counter());
                for turn in &stays {
                    assert!(sent.contains(turn), "{told}: {turn:?} is not in what was sent");
                }
                let messages: Vec<Message> =
                    view.messages().into_iter().map(|turn| Message { turn, tokens: 0 }).collect();
                assert!(unpaired(&messages).is_empty(), "{told}");
                let last = self.upstream.requests().pop().unwrap();
                assert!(last.tokens + last.max_tokens() <= window.window, "{told}");
                true
            }
            Err(MemoryError::RequestExceedsWindow(_)) => {
                assert_eq!(after, before, "{told}: nothing is written");
                assert_eq!(self.upstream.request_count(), 0, "{told}: nothing is sent");
                let mut all = view
                    .map_or_else(Vec::new, |view| [body(&view.system), body(&view.turns)].concat());
                all.extend(turns.iter().cloned());
                let (_, tokens) = floor_of(&all, memory.counter());
                assert!(tokens + window.reserve > window.window, "{told}: {tokens} would fit");
                false
            }
            // What we count and what the provider counts is not the same.
            Err(MemoryError::Chat(ChatError::Overflow { .. })) if self.made.count_percent > 100 => {
                false
            }
            Err(error) => panic!("{told}: {error}"),
        }
    }
}

#[tokio::test]
async fn any_transcript_goes_on_within_its_window() {
    let count = std::env::var("ICECORE_TRANSCRIPTS").ok().and_then(|count| count.parse().ok());
    let mut refused = 0;
    for number in 0..count.unwrap_or(TRANSCRIPTS) {
        let bench = Bench::new().await;
        let made = transcript(SEED, number, bench.memory.counter());
        // Large windows take long to fill.
        if made.window.window > 24_000 && count.is_none() {
            continue;
        }
        let upstream = Upstream::start(UpstreamConfig {
            protocol: made.protocol,
            window: made.window.window,
            count_percent: made.count_percent,
            ..UpstreamConfig::default()
        })
        .await;
        let mut config = upstream.client_config();
        config.reserve = made.window.reserve;
        let model = Arc::new(ChatClient::new(config).unwrap());
        let trial = Trial { number, made: &made, bench: &bench, upstream: &upstream, model };
        for turns in made.history.iter().filter(|turns| !turns.is_empty()) {
            bench.add("s", turns.clone()).await;
        }
        for turns in &made.asked {
            let is_done = trial.exchange(turns).await;
            refused += u32::from(!is_done && made.kind == TranscriptKind::FloorBeyond);
        }
    }
    assert!(refused > 0, "floors beyond the window were among them");
}
