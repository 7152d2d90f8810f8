//! Whether the proxy's memory stays flat over many requests.

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

/// What the last quarter may have more than the second, in percent.
const MOST_PERCENT: f64 = 10.0;

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
    let quarter = samples.len() / 4;
    let mean = |of: &[(f64, f64)]| of.iter().map(|one| one.1).sum::<f64>() / of.len().max(1) as f64;
    let (second, last) =
        (mean(&samples[quarter..2 * quarter]), mean(&samples[samples.len() - quarter..]));
    let percent = (last / second - 1.0) * 100.0;
    let mut notes = vec![format!(
        "resident memory: mean {second:.1} MiB in the second quarter, {last:.1} MiB in the last: {percent:+.1}% (to hold: {MOST_PERCENT:+}%)"
    )];
    notes.extend(tally.failures().iter().map(|(what, count)| format!("{count} × {what}")));
    Ok(Found {
        heads: &HEADS,
        rows: tally.rows("memory"),
        notes,
        document: json!({ "residentMib": samples, "secondQuarterMib": second,
            "lastQuarterMib": last, "morePercent": percent, "tally": tally.to_json() }),
        is_sound: tally.failed() == 0 && percent < MOST_PERCENT && ended,
    })
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
    for request in 0..requests {
        if request.is_multiple_of(CONVERSATION) {
            let wire = if talk.below(2) == 0 { Wire::OpenAi } else { Wire::Anthropic };
            history = History::new(wire);
        }
        history.ask(&talk.turn());
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
