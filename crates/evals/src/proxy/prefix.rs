//! What of each request that reaches the provider begins as the one before did.

use std::sync::Arc;

use icecore::models::Protocol;
use icecore_models::testing::{Behaviour, Upstream, UpstreamConfig, UpstreamRequest};
use serde_json::{Value, json};

use super::door::Place;
use super::history::History;
use super::line::Line;
use super::provider::{LOOK, Said, Wire};
use super::{Args, Found};
use crate::Result;
use crate::host::talk::Talk;
use crate::plot::grouped;

/// Tokens of the model's window.
const WINDOW: u64 = 16_000;

/// Turns of each conversation.
const TURNS: usize = 1_000;

/// What is promised between compactions, in percent.
const PROMISED: f64 = 90.0;

/// Tokens sent, and of these such as the request before began with.
#[derive(Default)]
struct Sent {
    requests: u64,
    tokens: u64,
    cached: u64,
}

impl Sent {
    fn add(&mut self, request: &UpstreamRequest) {
        self.requests += 1;
        self.tokens += request.tokens;
        self.cached += request.cached_tokens;
    }

    fn percent(&self) -> f64 {
        self.cached as f64 * 100.0 / self.tokens.max(1) as f64
    }
}

pub async fn run(args: &Args) -> Result<Found> {
    let mut found = Found {
        heads: &["", "requests", "compactions", "tokens sent", "as the request before"],
        rows: Vec::new(),
        notes: vec![format!(
            "{TURNS} turns with tools in a window of {} (to hold between compactions: {PROMISED}%)",
            grouped(WINDOW as f64)
        )],
        document: json!({}),
        is_sound: true,
    };
    for (name, wire) in [("openai", Wire::OpenAi), ("anthropic", Wire::Anthropic)] {
        let (between, all, compactions) = converse(args, wire).await?;
        for (part, sent) in [("between compactions", &between), ("all", &all)] {
            found.rows.push(vec![
                format!("{name}, {part}"),
                grouped(sent.requests as f64),
                compactions.to_string(),
                grouped(sent.tokens as f64),
                format!("{:.1}%", sent.percent()),
            ]);
        }
        found.is_sound &= between.percent() >= PROMISED && compactions > 2;
        found.document[name] = json!({ "compactions": compactions, "tokens": all.tokens,
            "betweenPercent": between.percent(), "allPercent": all.percent() });
    }
    Ok(found)
}

/// Answers, and calls where something is to be looked up.
fn model(request: &UpstreamRequest) -> Behaviour {
    let last = request.messages().last().cloned().unwrap_or_default();
    let mut talk = Talk::new(request.tokens);
    match last["content"].as_str().is_some_and(|text| text.contains(LOOK)) {
        true => Behaviour::CallTools(vec![(
            format!("call_{}", talk.below(u64::MAX)),
            "lookup".to_owned(),
            "{\"stage\":1}".to_owned(),
        )]),
        false => Behaviour::Answer(talk.turn() + &talk.turn()),
    }
}

async fn converse(args: &Args, wire: Wire) -> Result<(Sent, Sent, usize)> {
    let protocol = match wire {
        Wire::OpenAi => Protocol::OpenAi,
        Wire::Anthropic => Protocol::Anthropic,
    };
    let upstream = Upstream::start(UpstreamConfig {
        protocol,
        window: WINDOW,
        otherwise: Some(Arc::new(model)),
        ..UpstreamConfig::default()
    })
    .await;
    let place = Place::new(&args.bin)?;
    let door = place.alone(&upstream.url(), WINDOW)?;
    let mut line = Line::connect(door.address).await?;
    let (mut talk, mut history) = (Talk::new(3), History::new(wire));
    let (mut between, mut all, mut compactions) = (Sent::default(), Sent::default(), 0);
    let mut call: Option<String> = None;
    while history.messages.len() < TURNS {
        match call.take() {
            Some(id) => history.result(&id, &(talk.turn() + &talk.turn() + &talk.turn())),
            None if talk.below(3) == 0 => history.ask(&format!("{LOOK}: {}", talk.question())),
            None => history.ask(&talk.turn()),
        }
        let reply = line.post(wire.proxy_path(), "k", &history.body(false)).await?;
        if reply.status != 200 {
            let told = String::from_utf8_lossy(&reply.body).into_owned();
            return Err(format!("answered with {}: {told}", reply.status).into());
        }
        let said = heard(wire, &reply.json());
        call.clone_from(&said.call);
        history.hear(&said);
        let compacted = reply.header("x-icecore-compaction").is_some();
        compactions += usize::from(compacted);
        let requests = upstream.requests();
        upstream.forget_requests();
        requests.iter().for_each(|request| all.add(request));
        if let Some(request) = requests.last().filter(|_| !compacted && all.requests > 1) {
            between.add(request);
        }
    }
    if !door.stop()? {
        return Err("the proxy did not end well".into());
    }
    Ok((between, all, compactions))
}

/// What an answer says.
pub fn heard(wire: Wire, answer: &Value) -> Said {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match wire {
        Wire::OpenAi => {
            let message = &answer["choices"][0]["message"];
            let call = message["tool_calls"][0]["id"].as_str().map(str::to_owned);
            Said { text: text(&message["content"]), call }
        }
        Wire::Anthropic => {
            let block = &answer["content"][0];
            Said { text: text(&block["text"]), call: block["id"].as_str().map(str::to_owned) }
        }
    }
}
