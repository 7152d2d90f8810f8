//! What the proxy adds until the first byte, beside the same request sent directly.

use std::time::Duration;

use serde_json::json;

use super::door::Place;
use super::history::History;
use super::line::Line;
use super::provider::{Manner, Provider, Said, Wire, said};
use super::{Args, Found, WIDE};
use crate::Result;
use crate::host::talk::Talk;
use crate::measures::percentile;

/// Requests of a short conversation; its first is not counted.
const SHORT_REQUESTS: usize = 6;

/// Tokens of a long history, at four and a half letters each.
const LONG_TOKENS: usize = 100_000;

/// Letters of a turn: of an agent with its files and tools, and of talk.
const LONG_TURN: usize = 1_600;
const SHORT_TURN: usize = 1;

/// The promise, at p50.
const MOST_MS: f64 = 3.0;

/// How long a quick model thinks.
const THINK: Duration = Duration::from_millis(50);

/// Milliseconds until the first byte, by each way.
#[derive(Default)]
struct Ways {
    direct: Vec<f64>,
    proxied: Vec<f64>,
}

impl Ways {
    /// What the same request took more.
    fn more(&self) -> Vec<f64> {
        self.proxied.iter().zip(&self.direct).map(|(proxied, direct)| proxied - direct).collect()
    }
}

fn at(times: &[f64], share: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    percentile(&times, share)
}

pub async fn run(args: &Args) -> Result<Found> {
    let mut rows = Vec::new();
    let mut documents = Vec::new();
    let mut is_sound = true;
    for think in [Duration::ZERO, THINK] {
        let manner = Manner { think, pieces: 4, pause: Duration::ZERO };
        let provider = Provider::start(manner).await?;
        let place = Place::new(&args.bin)?;
        let door = place.alone(&provider.url(), WIDE)?;
        let mut pair = Pair {
            direct: Line::connect(provider.address).await?,
            proxied: Line::connect(door.address).await?,
            asked: 0,
        };
        // A first one that nobody counts: connections are made, files are opened.
        pair.ask(&mut talk_of(0, Wire::OpenAi)).await?;
        let requests = if think.is_zero() { args.requests } else { args.requests / 4 };
        let cases = [
            ("10 turns", short(&mut pair, requests).await?),
            ("100k tokens in long turns", long(&mut pair, requests / 2, LONG_TURN).await?),
            ("100k tokens in short turns", long(&mut pair, requests / 2, SHORT_TURN).await?),
        ];
        for (name, ways) in cases {
            let more = ways.more();
            let (p50, p95) = (at(&more, 0.5), at(&more, 0.95));
            let name = match think.is_zero() {
                true => format!("{name}, answered at once"),
                false => format!("{name}, after {} ms", think.as_millis()),
            };
            let figures = [
                at(&ways.direct, 0.5),
                at(&ways.direct, 0.95),
                at(&ways.proxied, 0.5),
                at(&ways.proxied, 0.95),
                p50,
                p95,
            ];
            let mut row = vec![name.clone(), more.len().to_string()];
            row.extend(figures.map(|ms| format!("{ms:.2}")));
            rows.push(row);
            is_sound &= p50 < MOST_MS;
            documents.push(json!({ "case": name, "requests": more.len(), "directP50": figures[0],
                "proxiedP50": figures[2], "moreP50": p50, "moreP95": p95 }));
        }
        is_sound &= door.stop()?;
    }
    Ok(Found {
        heads: &["", "requests", "direct p50 ms", "p95", "proxied p50", "p95", "more p50", "p95"],
        rows,
        notes: vec![format!("more: the same request by both ways (to hold at p50: {MOST_MS} ms)")],
        document: json!(documents),
        is_sound,
    })
}

/// The same request by both ways.
struct Pair {
    direct: Line,
    proxied: Line,
    asked: usize,
}

impl Pair {
    /// Asks both ways, whoever is first, and takes the answer into the history.
    async fn ask(&mut self, history: &mut History) -> Result<(f64, f64)> {
        let body = history.body(true);
        self.asked += 1;
        let (mut direct, mut proxied) = (0.0, 0.0);
        for turn in 0..2 {
            let is_direct = (turn + self.asked).is_multiple_of(2);
            let reply = match is_direct {
                true => self.direct.post(history.wire.path(), "k", &body).await?,
                false => self.proxied.post(history.wire.proxy_path(), "k", &body).await?,
            };
            if reply.status != 200 {
                return Err(format!("answered with {}", reply.status).into());
            }
            let ms = reply.first.as_secs_f64() * 1e3;
            *(if is_direct { &mut direct } else { &mut proxied }) = ms;
        }
        history.hear(&said(&body));
        Ok((direct, proxied))
    }
}

/// A history with a first request in it.
fn talk_of(seed: usize, wire: Wire) -> History {
    let mut history = History::new(wire);
    history.ask(&Talk::new(seed as u64).turn());
    history
}

/// Conversations of about ten turns.
async fn short(pair: &mut Pair, requests: usize) -> Result<Ways> {
    let mut ways = Ways::default();
    let mut seed = 1_000;
    while ways.direct.len() < requests {
        seed += 1;
        let wire = if seed % 2 == 0 { Wire::OpenAi } else { Wire::Anthropic };
        let (mut talk, mut history) = (Talk::new(seed as u64 * 7), talk_of(seed, wire));
        for number in 0..SHORT_REQUESTS {
            let (direct, proxied) = pair.ask(&mut history).await?;
            if number > 2 {
                ways.direct.push(direct);
                ways.proxied.push(proxied);
            }
            history.ask(&talk.turn());
        }
    }
    Ok(ways)
}

/// One conversation that is long already, in turns of at least so many letters.
async fn long(pair: &mut Pair, requests: usize, least: usize) -> Result<Ways> {
    let mut ways = Ways::default();
    let (mut talk, mut history) = (Talk::new(least as u64), History::new(Wire::OpenAi));
    let mut letters = 0;
    while letters < LONG_TOKENS * 9 / 2 {
        let mut say = || {
            let mut text = talk.turn();
            while text.len() < least {
                text = text + " " + &talk.turn();
            }
            letters += text.len();
            text
        };
        history.ask(&say());
        history.hear(&Said { text: say(), call: None });
    }
    history.ask("And now?");
    // Its whole history is new to the proxy once.
    pair.ask(&mut history).await?;
    for number in 0..requests {
        history.ask(&format!("{} {number}", talk.question()));
        let (direct, proxied) = pair.ask(&mut history).await?;
        ways.direct.push(direct);
        ways.proxied.push(proxied);
    }
    Ok(ways)
}
