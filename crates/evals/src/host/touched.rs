//! Many memories, each touched once: whether what a host keeps at hand levels off.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use super::client::{Ask, Client, Door};
use super::server::Server;
use super::talk::Talk;
use super::tally::Tally;
use super::{Args, Found, fresh};
use crate::Result;

/// Turns of each memory.
const TURNS: usize = 10;

/// Memories touched at once.
const CLIENTS: usize = 8;

/// How often memory is read.
const SAMPLES: usize = 10;

/// The promise: beyond the first half, memory grows by no more than this share of what it
/// was there.
const MOST_GROWTH: f64 = 0.10;

pub async fn run(args: &Args) -> Result<Found> {
    let server = fresh(args)?;
    let (mut tally, mut samples) = (Tally::default(), vec![(0, resident(&server)?)]);
    for part in 0..SAMPLES {
        let all = |part: usize| args.touched_memories * part / SAMPLES;
        touch(&server.door, all(part)..all(part + 1), &mut tally).await?;
        // What a burst needed is given back when it is over.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let found = (all(part + 1), resident(&server)?);
        eprintln!("  {} memories: {:.1} MiB", found.0, found.1);
        samples.push(found);
    }
    let (half, end) = (samples[SAMPLES / 2].1, samples[SAMPLES].1);
    let growth = (end - half) / half;
    let mut notes: Vec<String> =
        samples.iter().map(|(touched, mib)| format!("{touched} memories: {mib:.1} MiB")).collect();
    notes.push(format!(
        "the second half adds {:+.1}% (to hold: {:.0}%)",
        growth * 100.0,
        MOST_GROWTH * 100.0
    ));
    notes.extend(tally.failures().iter().map(|(what, count)| format!("{count} × {what}")));
    let ended = server.stop()?;
    Ok(Found {
        rows: tally.rows("touched"),
        notes,
        document: json!({
            "touched": tally.to_json(),
            "residentMib": samples,
            "growthPercent": growth * 100.0,
        }),
        is_sound: ended && tally.failed() == 0 && growth <= MOST_GROWTH,
    })
}

fn resident(server: &Server) -> Result<f64> {
    Ok(server.resident_mib().ok_or("the host's memory cannot be read")?)
}

/// Gives each memory some turns and asks it something.
async fn touch(door: &Door, memories: std::ops::Range<usize>, tally: &mut Tally) -> Result<()> {
    let next = Arc::new(AtomicUsize::new(memories.start));
    let mut clients: JoinSet<Result<Tally>> = JoinSet::new();
    for _ in 0..CLIENTS {
        let (next, door, end) = (Arc::clone(&next), door.clone(), memories.end);
        clients.spawn(async move {
            let mut tally = Tally::default();
            let mut client = Client::connect(&door).await?;
            loop {
                let memory = next.fetch_add(1, Ordering::Relaxed);
                if memory >= end {
                    return Ok(tally);
                }
                let (name, mut talk) = (format!("memory-{memory}"), Talk::new(memory as u64));
                let turns: Vec<String> = (0..TURNS).map(|_| talk.turn()).collect();
                tally.count("add", &client.ask(&Ask::add(&name, "s", &turns)).await);
                tally.count("search", &client.ask(&Ask::search(&name, &talk.question())).await);
            }
        });
    }
    for done in clients.join_all().await {
        tally.merge(done?);
    }
    Ok(())
}
