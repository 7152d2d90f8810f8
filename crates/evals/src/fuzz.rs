//! Sessions of every kind, made from a seed, against a scripted model.

use std::time::Instant;

use tokio::task::JoinSet;

use crate::Result;
use crate::plot::grouped;
use crate::report::{strings, table};
use crate::trials::{Seen, trial};

/// Problems that are printed.
const SHOWN: usize = 20;

#[derive(clap::Args)]
pub struct Args {
    /// How many.
    #[arg(long, default_value_t = 10_000)]
    transcripts: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// What they are made from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many at once.
    #[arg(long, default_value_t = 4)]
    at_once: usize,
}

/// Whether nothing went wrong.
pub async fn run(args: &Args) -> Result<bool> {
    let begun = Instant::now();
    let mut seen = Seen::default();
    let mut running = JoinSet::new();
    for number in args.from..args.from + args.transcripts {
        if running.len() >= args.at_once.max(1)
            && let Some(done) = running.join_next().await
        {
            seen.add(told(done));
        }
        let seed = args.seed;
        running.spawn(trial(seed, number));
        if number % 500 == 499 {
            eprintln!("{} of {}, {} problems", number + 1, args.transcripts, seen.problems.len());
        }
    }
    while let Some(done) = running.join_next().await {
        seen.add(told(done));
    }
    let count = |number: u64| grouped(number as f64);
    let rows = [
        ("transcripts", count(args.transcripts)),
        ("requests", count(seen.requests)),
        ("of these compacted", count(seen.compacted)),
        ("compactions", count(seen.compactions)),
        ("refused by the provider first", count(seen.refused)),
        ("floors beyond the window, refused", count(seen.exceeding)),
        ("bytes of floors, all kept", count(seen.floor_bytes)),
        ("pairs of calls and results, none torn", count(seen.pairs)),
        ("problems", count(seen.problems.len() as u64)),
        ("seconds", format!("{:.0}", begun.elapsed().as_secs_f64())),
    ];
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(name, figure)| vec![name.to_owned(), figure]).collect();
    let title = format!("Made-up sessions of seed {}", args.seed);
    print!("{}", table(&title, &strings(&["", "count"]), &rows));
    for problem in seen.problems.iter().take(SHOWN) {
        println!("  {problem}");
    }
    Ok(seen.problems.is_empty())
}

/// What a trial saw; one that broke off is a problem.
fn told(done: std::result::Result<Seen, tokio::task::JoinError>) -> Seen {
    done.unwrap_or_else(|error| Seen { problems: vec![error.to_string()], ..Seen::default() })
}
