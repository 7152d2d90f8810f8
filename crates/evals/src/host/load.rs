//! Clients in numbers: many at once, writers and readers, for long.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use super::client::{Ask, Client, Door};
use super::talk::Talk;
use super::tally::Tally;
use super::{Args, Found, filled, found};
use crate::Result;

/// Turns of one request while filling.
const FILL_BATCH: usize = 100;

/// Turns of one session while filling.
const SESSION_TURNS: usize = 500;

/// Tokens of a context.
const BUDGET: u32 = 1_000;

/// Writers, and as many readers, of `mixed`.
const SIDES: u64 = 50;

/// Writers, and as many readers, of `soak`, each with a pause between requests.
const SOAK_SIDES: u64 = 10;
const SOAK_PAUSE: Duration = Duration::from_millis(100);

/// How often the host's memory is looked at.
const SAMPLE: Duration = Duration::from_secs(5);

/// Requests of each connection of `connections`.
const REQUESTS_EACH: u64 = 5;

/// The promise about `mixed`.
const MIXED_P99_MS: f64 = 100.0;

/// Puts made-up turns into a memory.
pub async fn fill(door: &Door, memory: &str, turns: usize) -> Result<()> {
    let mut client = Client::connect(door).await?;
    let mut talk = Talk::new(turns as u64);
    for first in (0..turns).step_by(FILL_BATCH) {
        let count = FILL_BATCH.min(turns - first);
        let batch: Vec<String> = (0..count).map(|_| talk.turn()).collect();
        let session = format!("filled-{}", first / SESSION_TURNS);
        let answer = client.ask(&Ask::add(memory, &session, &batch)).await?;
        if answer.status != 201 {
            return Err(format!("filling: the host answers {}", answer.status).into());
        }
    }
    Ok(())
}

/// What a client does.
#[derive(Clone, Copy)]
pub enum Side {
    Writes,
    Reads,
}

impl Side {
    fn next(self, number: u64, talk: &mut Talk) -> Ask {
        match self {
            Side::Writes => Ask::add("default", &format!("writer-{number}"), &[talk.turn()]),
            Side::Reads => match talk.below(2) {
                0 => Ask::search("default", &talk.question()),
                _ => Ask::context("default", &talk.question(), BUDGET),
            },
        }
    }
}

/// One client until a moment. Its connection is made anew where it was lost.
pub async fn client(door: Door, side: Side, number: u64, until: Instant, pause: Duration) -> Tally {
    let mut talk = Talk::new(number);
    let mut tally = Tally::default();
    let mut connection = None;
    while Instant::now() < until {
        if connection.is_none() {
            match Client::connect(&door).await {
                Ok(made) => connection = Some(made),
                Err(error) => {
                    tally.fail(format!("connect: {error}"));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        let Some(client) = &mut connection else { continue };
        let ask = side.next(number, &mut talk);
        let answer = client.ask(&ask).await;
        tally.count(ask.kind, &answer);
        if answer.is_err() {
            connection = None;
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    tally
}

/// Writers and readers until a moment.
pub fn sides(door: &Door, each: u64, until: Instant, pause: Duration) -> JoinSet<Tally> {
    let mut clients = JoinSet::new();
    for number in 0..each {
        clients.spawn(client(door.clone(), Side::Writes, 2 * number, until, pause));
        clients.spawn(client(door.clone(), Side::Reads, 2 * number + 1, until, pause));
    }
    clients
}

pub async fn joined(clients: JoinSet<Tally>) -> Tally {
    let mut all = Tally::default();
    clients.join_all().await.into_iter().for_each(|tally| all.merge(tally));
    all
}

pub async fn mixed(args: &Args) -> Result<Found> {
    let server = filled(args).await?;
    let until = Instant::now() + Duration::from_secs(args.seconds);
    let pause = Duration::from_millis(args.pause);
    let tally = joined(sides(&server.door, SIDES, until, pause)).await;
    let p99 = tally.at(None, 0.99);
    let rate = tally.requests() as f64 / args.seconds.max(1) as f64;
    let notes = vec![
        format!(
            "{SIDES} writers and {SIDES} readers for {} s, pausing {} ms: {rate:.0} requests a second",
            args.seconds, args.pause
        ),
        format!("p99 {p99:.1} ms (to hold: {MIXED_P99_MS} ms)"),
    ];
    let mut told = found("mixed", &tally, notes);
    told.document["requestsPerSecond"] = json!(rate);
    told.is_sound &= p99 < MIXED_P99_MS && server.stop()?;
    Ok(told)
}

pub async fn connections(args: &Args) -> Result<Found> {
    let server = filled(args).await?;
    let mut clients = JoinSet::new();
    let all_here = std::sync::Arc::new(tokio::sync::Barrier::new(args.clients));
    for number in 0..args.clients as u64 {
        let (door, all_here) = (server.door.clone(), std::sync::Arc::clone(&all_here));
        clients.spawn(async move {
            let mut tally = Tally::default();
            let mut connected = Client::connect(&door).await;
            all_here.wait().await;
            match &mut connected {
                Ok(client) => ask_all(client, number, &mut tally).await,
                Err(error) => tally.fail(format!("connect: {error}")),
            }
            // Nobody leaves before all are served.
            all_here.wait().await;
            tally
        });
    }
    let tally = joined(clients).await;
    let notes = vec![format!("{} connections, open all the while", args.clients)];
    let mut told = found("connections", &tally, notes);
    told.is_sound &= server.stop()?;
    Ok(told)
}

async fn ask_all(client: &mut Client, number: u64, tally: &mut Tally) {
    let mut talk = Talk::new(number);
    for _ in 0..REQUESTS_EACH {
        let ask = Side::Reads.next(number, &mut talk);
        tally.count(ask.kind, &client.ask(&ask).await);
    }
}

pub async fn soak(args: &Args) -> Result<Found> {
    let server = filled(args).await?;
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(args.minutes * 60.0);
    let clients = sides(&server.door, SOAK_SIDES, until, SOAK_PAUSE);
    let mut samples: Vec<(f64, f64)> = Vec::new();
    while Instant::now() < until {
        if let Some(mib) = server.resident_mib() {
            samples.push((begun.elapsed().as_secs_f64(), mib));
        }
        tokio::time::sleep(SAMPLE.min(until.saturating_duration_since(Instant::now()))).await;
    }
    let tally = joined(clients).await;
    // What a host takes at first it keeps; what matters is whether it goes on.
    let second_half = &samples[samples.len() / 2..];
    let slope = slope(second_half) * 60.0;
    let ends = (samples.first().map_or(0.0, |s| s.1), samples.last().map_or(0.0, |s| s.1));
    let notes = vec![format!(
        "resident memory {:.0} MiB at first, {:.0} MiB at last; {slope:+.2} MiB a minute in the second half",
        ends.0, ends.1
    )];
    let mut told = found("soak", &tally, notes);
    told.document["residentMib"] = json!(samples);
    told.document["mibPerMinute"] = json!(slope);
    told.is_sound &= server.stop()?;
    Ok(told)
}

/// The slope of the line that fits best, in y for each x.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let together: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    if spread > 0.0 { together / spread } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_that_of_the_best_line() {
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), 2.0);
        assert_eq!(slope(&[(0.0, 5.0), (1.0, 5.0)]), 0.0);
        assert_eq!(slope(&[(3.0, 5.0)]), 0.0);
    }
}
