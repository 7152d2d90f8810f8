//! Clients that hold a connection and do little with it, beside good ones.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::client::{Ask, Door};
use super::load::{joined, sides};
use super::tally::Tally;
use super::{Args, Found, filled};
use crate::Result;

/// Writers, and as many readers, that behave.
const GOOD_SIDES: u64 = 10;

/// Between requests of good clients, so that the host is not simply full.
const PAUSE: Duration = Duration::from_millis(20);

/// How long slow ones have to connect before they are looked past.
const ARRIVING: Duration = Duration::from_secs(3);

/// Between the bytes of a slow sender.
const DRIP: Duration = Duration::from_millis(500);

/// How long one that reads nothing stays.
const HOLDING: Duration = Duration::from_secs(30);

/// The promise: with slow clients, good ones wait at most so many times as long.
const TIMES_SLOWER: f64 = 2.0;

/// Times this short are noise.
const FLOOR_MS: f64 = 20.0;

pub async fn run(args: &Args) -> Result<Found> {
    let server = filled(args).await?;
    let good = async || {
        let until = Instant::now() + Duration::from_secs(args.seconds);
        joined(sides(&server.door, GOOD_SIDES, until, PAUSE)).await
    };
    let without = good().await;
    let mut slow = JoinSet::new();
    for number in 0..args.slow_clients {
        slow.spawn(hang(server.door.clone(), number));
    }
    tokio::time::sleep(ARRIVING).await;
    let with = good().await;
    slow.abort_all();
    let mut told = compared(args, &without, &with);
    told.document["residentMib"] = json!(server.resident_mib());
    told.is_sound &= server.stop()?;
    Ok(told)
}

fn compared(args: &Args, without: &Tally, with: &Tally) -> Found {
    let (before, after) = (without.at(None, 0.99), with.at(None, 0.99));
    let mut rows = without.rows("without slow");
    rows.extend(with.rows("with slow"));
    let mut notes = vec![format!(
        "{} slow clients: p99 of {} good ones {before:.2} ms without, {after:.2} ms with them",
        args.slow_clients,
        2 * GOOD_SIDES
    )];
    let failures = without.failures().iter().chain(with.failures());
    notes.extend(failures.map(|(what, count)| format!("{count} × {what}")));
    Found {
        rows,
        notes,
        document: json!({ "slowClients": args.slow_clients, "without": without.to_json(),
            "with": with.to_json() }),
        is_sound: without.failed() + with.failed() == 0
            && after < (before * TIMES_SLOWER).max(FLOOR_MS),
    }
}

/// Connects again and again, and each time does one of what wears a host out.
async fn hang(door: Door, number: usize) {
    loop {
        // Refused or ended: whoever means ill comes back.
        let _ = match number % 3 {
            0 => half_a_head(&door).await,
            1 => half_a_body(&door).await,
            _ => no_reading(&door).await,
        };
        tokio::time::sleep(DRIP).await;
    }
}

/// Sends a head byte by byte, and never the end of it.
async fn half_a_head(door: &Door) -> Result<()> {
    let mut stream = TcpStream::connect(door.address).await?;
    stream
        .write_all(
            format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nX-Slow: ", door.address).as_bytes(),
        )
        .await?;
    loop {
        tokio::time::sleep(DRIP).await;
        stream.write_all(b"x").await?;
    }
}

/// Announces a body and sends half of it.
async fn half_a_body(door: &Door) -> Result<()> {
    let mut stream = TcpStream::connect(door.address).await?;
    let bytes = Ask::search("default", "a question that is never asked").bytes(door);
    stream.write_all(&bytes[..bytes.len() - 20]).await?;
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await?;
    Ok(())
}

/// Asks for much, and reads nothing of it.
async fn no_reading(door: &Door) -> Result<()> {
    let mut stream = TcpStream::connect(door.address).await?;
    stream.write_all(&Ask::page("default", "filled-0").bytes(door)).await?;
    tokio::time::sleep(HOLDING).await;
    Ok(())
}
