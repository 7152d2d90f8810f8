//! What the proxy costs and bears: the real binary, and this process as its clients and as
//! the provider behind it.
//!
//! | scenario | question |
//! |---|---|
//! | `overhead` | what it adds until the first byte, beside the same request sent directly |
//! | `streams` | whether many streams at once are all served, byte for byte |
//! | `memory` | whether its memory stays flat over many requests |
//! | `prefix` | what of each request a provider has cached |
//! | `matching` | whether histories come to their own sessions |

mod door;
mod history;
mod line;
mod matching;
mod memory;
mod overhead;
mod prefix;
mod provider;
mod streams;

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::Result;
use crate::host::picture;
use crate::report::{strings, table};

/// A window in which nothing is compacted.
const WIDE: u64 = 1_000_000;

#[derive(clap::Args)]
pub struct Args {
    /// The proxy's binary.
    #[arg(long, value_name = "FILE")]
    bin: PathBuf,
    /// What it adds until the first byte.
    #[arg(long)]
    overhead: bool,
    /// Many streams at once.
    #[arg(long)]
    streams_at_once: bool,
    /// Its memory over many requests.
    #[arg(long)]
    memory: bool,
    /// What of each request a provider has cached.
    #[arg(long)]
    prefix: bool,
    /// Whether histories come to their own sessions.
    #[arg(long)]
    matching: bool,
    /// Requests of `overhead` to a provider that answers at once.
    #[arg(long, default_value_t = 400, value_name = "N")]
    requests: usize,
    /// Streams at once.
    #[arg(long, default_value_t = 200, value_name = "N")]
    streams: usize,
    /// Requests of `memory`.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    memory_requests: usize,
    /// Histories that begin in `matching`; branches come on top.
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    histories: usize,
    /// Another number makes other histories.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// One JSON document on stdout, tables on stderr.
    #[arg(long)]
    json: bool,
    /// Draws memory over requests, as proxy-memory.svg.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// What a scenario found.
struct Found {
    heads: &'static [&'static str],
    rows: Vec<Vec<String>>,
    /// Lines beneath the table.
    notes: Vec<String>,
    document: Value,
    /// Whether what was promised was kept.
    is_sound: bool,
}

/// Whether every promise that was tried was kept.
pub async fn run(args: &Args) -> Result<bool> {
    let wanted = [args.overhead, args.streams_at_once, args.memory, args.prefix, args.matching];
    if wanted.iter().all(|wanted| !wanted) {
        return Err(
            "name a scenario: --overhead, --streams-at-once, --memory, --prefix, --matching".into(),
        );
    }
    let mut documents = Map::new();
    let mut is_sound = true;
    let mut told = |name: &str, found: Found| {
        let text = table(name, &strings(found.heads), &found.rows);
        let notes: String = found.notes.iter().map(|note| format!("  {note}\n")).collect();
        eprint!("{text}{notes}");
        is_sound &= found.is_sound;
        documents.insert(name.to_owned(), found.document);
    };
    if args.overhead {
        told("overhead", overhead::run(args).await?);
    }
    if args.streams_at_once {
        told("streams at once", streams::run(args).await?);
    }
    if args.memory {
        told("memory", memory::run(args).await?);
    }
    if args.prefix {
        told("prefix", prefix::run(args).await?);
    }
    if args.matching {
        told("matching", matching::run(args).await?);
    }
    let document = Value::Object(documents);
    if let Some(folder) = &args.out
        && let Some(svg) = picture::requests(&document["memory"])
    {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("proxy-memory.svg"), svg)?;
    }
    if args.json {
        println!("{document}");
    }
    Ok(is_sound)
}
