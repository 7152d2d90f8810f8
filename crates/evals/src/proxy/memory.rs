//! Whether the proxy's memory stays flat over many requests.
//!
//! What it takes at first it keeps, so as many requests go before those that count. New
//! turns have vectors, which the index of a memory holds up to `index.memory_rows`; so
//! requests that add nothing are counted apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use super::door::Place;
use super::history::History;
use super::line::Line;
use super::provider::{Manner, Provider, Wire, said};
use super::{Args, Found, WIDE};
use crate::Result;
use crate::host::talk::Talk;
use crate::host::tally::{HEADS, Tally};

/// Clients at once.
const CLIENTS: usize = 8;

/// Requests of a conversation; then the client begins another.
const CONVERSATION: usize = 12;

/// Requests between two looks at the memory.
const EVERY: usize = 100;

/// How often it is seen whether as many have been.
const LOOK: Duration = Duration::from_millis(20);

/// What the last quarter of requests that add nothing may have more than the first, in
/// percent.
const MOST_PERCENT: f64 = 5.0;

/// What a turn that is kept may take, in KiB.
const MOST_KIB: f64 = 4.0;

pub async fn run(args: &Args) -> Result<Found> {
    let provider = Provider::start(Manner { pieces: 4, ..Manner::default() }).await?;
    let place = Place::new(&args.bin)?;
    let door = place.alone(&provider.url(), WIDE)?;
    let done = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let (address, done) = (door.address, Arc::clone(&done));
        let requests = args.memory_requests / CLIENTS;
        clients.spawn(async move {
            let mut tally = Tally::default();
            match Line::connect(address).await {
                Ok(line) => converse(line, number, requests, &done, &mut tally).await,
                Err(error) => tally.fail(format!("connect: {error}")),
            }
            tally
        });
    }
    let mut samples: Vec<(f64, f64)> = Vec::new();
    let mut tally = Tally::default();
    while !clients.is_empty() {
        let count = done.load(Ordering::Relaxed);
        if count >= samples.len() * EVERY
            && let Some(mib) = door.resident_mib()
        {
            samples.push((count as f64, mib));
        }
        tokio::time::sleep(LOOK).await;
        while let Some(one) = clients.try_join_next() {
            tally.merge(one?);
        }
    }
    let ended = door.stop()?;
    // The first third is not looked at, the second adds turns, the last adds nothing.
    let third = samples.len() / 3;
    let adding = Ends::of(&samples[third..2 * third]);
    let again = Ends::of(&samples[2 * third..]);
    // A request adds two turns, and three quarters of them lie between the two means.
    let kib = (adding.last - adding.first) * 1024.0 / (1.5 * args.memory_requests as f64);
    let mut notes = vec![
        format!(
            "{} requests that add turns, after as many: {}; {kib:.2} KiB a turn (to hold: {MOST_KIB})",
            args.memory_requests,
            adding.told()
        ),
        format!(
            "{} that add nothing: {} (to hold: {MOST_PERCENT:+}%)",
            args.memory_requests,
            again.told()
        ),
    ];
    notes.extend(tally.failures().iter().map(|(what, count)| format!("{count} × {what}")));
    Ok(Found {
        heads: &HEADS,
        rows: tally.rows("memory"),
        notes,
        document: json!({ "residentMib": samples, "addingPercent": adding.percent(),
            "kibATurn": kib, "morePercent": again.percent(), "tally": tally.to_json() }),
        is_sound: tally.failed() == 0 && kib < MOST_KIB && again.percent() < MOST_PERCENT && ended,
    })
}

/// Means of the first and of the last quarter, in MiB.
struct Ends {
    first: f64,
    last: f64,
}

impl Ends {
    fn of(samples: &[(f64, f64)]) -> Self {
        let quarter = samples.len() / 4;
        let mean =
            |of: &[(f64, f64)]| of.iter().map(|one| one.1).sum::<f64>() / of.len().max(1) as f64;
        Self { first: mean(&samples[..quarter]), last: mean(&samples[samples.len() - quarter..]) }
    }

    fn percent(&self) -> f64 {
        (self.last / self.first - 1.0) * 100.0
    }

    fn told(&self) -> String {
        let Self { first, last } = self;
        format!(
            "resident {first:.1} MiB in the first quarter, {last:.1} in the last, {:+.1}%",
            self.percent()
        )
    }
}

async fn converse(
    mut line: Line,
    number: usize,
    requests: usize,
    done: &AtomicUsize,
    tally: &mut Tally,
) {
    let mut talk = Talk::new(number as u64 + 77);
    let mut history = History::new(Wire::OpenAi);
    for request in 0..3 * requests {
        let is_new = request < 2 * requests;
        if is_new && request.is_multiple_of(CONVERSATION) {
            let wire = if talk.below(2) == 0 { Wire::OpenAi } else { Wire::Anthropic };
            history = History::new(wire);
        }
        match is_new {
            true => history.ask(&talk.turn()),
            // The last request once more.
            false => drop(history.messages.pop()),
        }
        let body = history.body(talk.below(2) == 0);
        match line.post(history.wire.proxy_path(), "k", &body).await {
            Ok(reply) if reply.status == 200 => tally.add("first byte", reply.first),
            Ok(reply) => tally.fail(format!("answered {}", reply.status)),
            Err(error) => return tally.fail(error.to_string()),
        }
        history.hear(&said(&body));
        done.fetch_add(1, Ordering::Relaxed);
    }
}
