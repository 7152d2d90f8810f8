//! Many streams at once, each compared with what the provider sent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::door::Place;
use super::history::History;
use super::line::Line;
use super::provider::{Manner, Provider, Wire, events, said};
use super::{Args, Found, WIDE};
use crate::Result;
use crate::host::talk::Talk;
use crate::host::tally::{HEADS, Tally};

/// Requests of each client, one after the other.
const REQUESTS_EACH: usize = 5;

/// A stream goes on for about three seconds.
const PIECES: usize = 60;
const PAUSE: Duration = Duration::from_millis(50);

pub async fn run(args: &Args) -> Result<Found> {
    let manner = Manner { think: Duration::ZERO, pieces: PIECES, pause: PAUSE };
    let provider = Provider::start(manner).await?;
    let place = Place::new(&args.bin)?;
    let door = place.alone(&provider.url(), WIDE)?;
    let all_here = Arc::new(Barrier::new(args.streams));
    let begun = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..args.streams {
        let (address, all_here) = (door.address, Arc::clone(&all_here));
        clients.spawn(async move {
            let mut tally = Tally::default();
            let connected = Line::connect(address).await;
            all_here.wait().await;
            match connected {
                Ok(mut line) => converse(&mut line, number, &mut tally).await,
                Err(error) => tally.fail(format!("connect: {error}")),
            }
            tally
        });
    }
    let mut tally = Tally::default();
    clients.join_all().await.into_iter().for_each(|one| tally.merge(one));
    let took = begun.elapsed().as_secs_f64();
    let resident = door.resident_mib().unwrap_or_default();
    let ended = door.stop()?;
    let mut notes = vec![
        format!(
            "{} streams at a time, {PIECES} pieces each, {REQUESTS_EACH} after one another: {took:.1} s in all, {resident:.0} MiB resident",
            args.streams
        ),
        "times until the first byte; every stream was compared with what the provider sent"
            .to_owned(),
    ];
    notes.extend(tally.failures().iter().map(|(what, count)| format!("{count} × {what}")));
    Ok(Found {
        heads: &HEADS,
        rows: tally.rows("streams"),
        notes,
        document: json!({ "streams": args.streams, "seconds": took, "residentMib": resident,
            "tally": tally.to_json() }),
        is_sound: tally.failed() == 0 && ended && place.is_whole()?,
    })
}

async fn converse(line: &mut Line, number: usize, tally: &mut Tally) {
    let wire = if number.is_multiple_of(2) { Wire::OpenAi } else { Wire::Anthropic };
    let (mut talk, mut history) = (Talk::new(number as u64), History::new(wire));
    for _ in 0..REQUESTS_EACH {
        history.ask(&talk.turn());
        let body = history.body(true);
        let said = said(&body);
        match line.post(wire.proxy_path(), "k", &body).await {
            Ok(reply) if reply.status != 200 => tally.fail(format!("answered {}", reply.status)),
            Ok(reply) if reply.body != events(wire, &said, PIECES).concat().as_bytes() => {
                tally.fail("a stream that is not the provider's".to_owned());
            }
            Ok(reply) => tally.add("first byte", reply.first),
            Err(error) => return tally.fail(error.to_string()),
        }
        history.hear(&said);
    }
}
