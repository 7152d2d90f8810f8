//! What a host bears: the real binary, and this process as its clients.
//!
//! | scenario | question |
//! |---|---|
//! | `overhead` | what HTTP costs beside the engine in-process |
//! | `connections` | whether a thousand connections at once are all served |
//! | `mixed` | how long writers and readers wait for each other |
//! | `soak` | whether memory stays flat |
//! | `slow` | whether slow and half-open clients harm good ones |
//! | `tenants` | whether many tenants make each one slower |
//! | `touched` | whether many memories, each touched once, leave memory flat |

pub mod client;
mod load;
mod overhead;
pub mod picture;
mod server;
mod slow;
pub mod talk;
pub mod tally;
mod tenants;
mod touched;

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::Result;
use crate::report::{strings, table};
use server::{Place, Server};
use tally::{HEADS, Tally};

#[derive(clap::Args)]
pub struct Args {
    /// The host's binary.
    #[arg(long, value_name = "FILE")]
    bin: PathBuf,
    /// A settings file for it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What HTTP costs beside the engine in-process.
    #[arg(long)]
    overhead: bool,
    /// Many connections at once.
    #[arg(long)]
    connections: bool,
    /// Writers and readers at once.
    #[arg(long)]
    mixed: bool,
    /// Moderate load for long, and memory over time.
    #[arg(long)]
    soak: bool,
    /// Slow and half-open clients beside good ones.
    #[arg(long)]
    slow: bool,
    /// Many tenants beside one.
    #[arg(long)]
    tenants: bool,
    /// Many memories, each touched once, and the host's memory meanwhile.
    #[arg(long)]
    touched: bool,
    /// How long `mixed` and each half of `slow` go on.
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u64,
    /// How long `soak` goes on.
    #[arg(long, default_value_t = 10.0, value_name = "N")]
    minutes: f64,
    /// Requests of each kind in `overhead` and `tenants`.
    #[arg(long, default_value_t = 500, value_name = "N")]
    requests: usize,
    /// Turns that are there before `overhead`, `mixed`, `soak` and `slow` begin.
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    turns: usize,
    /// Connections of `connections`.
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    clients: usize,
    /// Milliseconds that each client of `mixed` waits between requests; 0: none, so
    /// that every client always has a request under way.
    #[arg(long, default_value_t = 0, value_name = "MS")]
    pause: u64,
    /// Slow clients of `slow`.
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    slow_clients: usize,
    /// Tenants of `tenants`.
    #[arg(long, default_value_t = 100, value_name = "N")]
    tenant_count: usize,
    /// Memories of each tenant of `tenants`.
    #[arg(long, default_value_t = 100, value_name = "N")]
    memories: usize,
    /// Memories of `touched`.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    touched_memories: usize,
    /// One JSON document on stdout, tables on stderr.
    #[arg(long)]
    json: bool,
    /// Draws memory over time, as soak.svg, over memories, as touched.svg, and times, as
    /// host.svg.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// What a scenario found.
struct Found {
    /// Rows as of [`HEADS`].
    rows: Vec<Vec<String>>,
    /// Lines beneath the table.
    notes: Vec<String>,
    document: Value,
    /// Whether what was promised was kept.
    is_sound: bool,
}

/// Whether every promise that was tried was kept.
pub async fn run(args: &Args) -> Result<bool> {
    let wanted = [
        args.overhead, args.connections, args.mixed, args.soak, args.slow, args.tenants,
        args.touched,
    ];
    if wanted.iter().all(|wanted| !wanted) {
        return Err(
            "name a scenario: --overhead, --connections, --mixed, --soak, --slow, --tenants, --touched"
                .into(),
        );
    }
    let mut documents = Map::new();
    let mut is_sound = true;
    let mut told = |name: &str, found: Found| {
        let text = table(name, &strings(&HEADS), &found.rows);
        let notes: String = found.notes.iter().map(|note| format!("  {note}\n")).collect();
        eprint!("{text}{notes}");
        is_sound &= found.is_sound;
        documents.insert(name.to_owned(), found.document);
    };
    if args.overhead {
        told("overhead", overhead::run(args).await?);
    }
    if args.connections {
        told("connections", load::connections(args).await?);
    }
    if args.mixed {
        told("mixed", load::mixed(args).await?);
    }
    if args.soak {
        told("soak", load::soak(args).await?);
    }
    if args.slow {
        told("slow", slow::run(args).await?);
    }
    if args.tenants {
        told("tenants", tenants::run(args).await?);
    }
    if args.touched {
        told("touched", touched::run(args).await?);
    }
    let document = Value::Object(documents);
    if let Some(folder) = &args.out {
        draw(folder, &document)?;
    }
    if args.json {
        println!("{document}");
    }
    Ok(is_sound)
}

fn draw(folder: &Path, document: &Value) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    if let Some(svg) = picture::soak(&document["soak"]) {
        std::fs::write(folder.join("soak.svg"), svg)?;
    }
    if let Some(svg) = picture::touched(&document["touched"]) {
        std::fs::write(folder.join("touched.svg"), svg)?;
    }
    if let Some(svg) = picture::times(document) {
        std::fs::write(folder.join("host.svg"), svg)?;
    }
    Ok(())
}

/// A host with nothing in it.
fn fresh(args: &Args) -> Result<Server> {
    Place::new(&args.bin, args.config.as_deref())?.start()
}

/// A host with the usual turns in memory `default`, and nothing due.
async fn filled(args: &Args) -> Result<Server> {
    let server = fresh(args)?;
    load::fill(&server.door, "default", args.turns).await?;
    server.settled().await?;
    Ok(server)
}

/// What most scenarios tell: one tally, and whether nothing failed.
fn found(name: &str, tally: &Tally, notes: Vec<String>) -> Found {
    let failures = tally.failures().iter().map(|(what, count)| format!("{count} × {what}"));
    Found {
        rows: tally.rows(name),
        notes: notes.into_iter().chain(failures).collect(),
        document: json!({ name: tally.to_json() }),
        is_sound: tally.failed() == 0,
    }
}
