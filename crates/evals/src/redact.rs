//! What the redactor hides: secrets of every kind, and text that only looks so.
//!
//! The corpus is made from a seed; nothing of it is on a disk but for the moment
//! that another scanner reads the same texts.

mod found;
mod hostile;
mod peer;
mod picture;
mod speed;
mod told;

use std::path::PathBuf;

use icecore_domain::redact::Redactor;
use icecore_domain::testing::corpus;

use crate::Result;
use found::Found;
use peer::Peer;

/// What is promised, as shares.
const MIN_RECALL: f64 = 0.99;
const MIN_RECALL_OF_WORST: f64 = 0.95;
const MAX_FALSE: f64 = 0.001;

#[derive(clap::Args)]
pub struct Args {
    /// What the corpus is drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Texts that hold no secret.
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    negatives: usize,
    /// Credentials of each kind, each of them in every setting and place.
    #[arg(long, default_value_t = 2, value_name = "N")]
    per_kind: usize,
    /// One JSON document on stdout, tables on stderr.
    #[arg(long)]
    json: bool,
    /// Draws recall by kind and false positives by family.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Without detect-secrets beside it.
    #[arg(long)]
    alone: bool,
    /// Where detect-secrets is installed; kept, so that a second run is quick.
    #[arg(long, default_value = "target/peers", value_name = "DIR")]
    environment: PathBuf,
    /// Seconds that installing it, and asking it, may take.
    #[arg(long, default_value_t = 900)]
    patience: u64,
}

/// Everything that was measured.
struct Measured {
    found: Found,
    peer: Option<Peer>,
    speed: Vec<speed::Speed>,
    hostile: Vec<hostile::Hostile>,
    data: Vec<found::Data>,
}

/// Whether every promise was kept that does not hang on the machine's speed.
pub fn run(args: &Args) -> Result<bool> {
    let say = |text: String| if args.json { eprint!("{text}") } else { print!("{text}") };
    let redactor = Redactor::standard();
    let cases: Vec<corpus::Case> = corpus::positives(args.seed, args.per_kind)
        .chain(corpus::negatives(args.seed, args.negatives))
        .collect();
    let found = Found::of(&redactor, &cases);
    say(told::corpus(&cases, args.seed));
    let peer = if args.alone { None } else { asked(args, &cases) };
    let measured = Measured {
        speed: speed::measure(&redactor, &cases)?,
        hostile: hostile::measure(&redactor),
        data: found::data(&redactor)?,
        found,
        peer,
    };
    say(told::tables(&measured));
    let broken = told::broken(&measured);
    say(told::promises(&broken));
    if let Some(path) = &args.plot {
        std::fs::write(path, picture::svg(&measured))?;
        say(format!("  drawn in {}\n", path.display()));
    }
    if args.json {
        println!("{}", told::to_json(args.seed, &measured, &broken));
    }
    Ok(broken.is_empty())
}

/// What detect-secrets finds, unless it cannot be had.
fn asked(args: &Args, cases: &[corpus::Case]) -> Option<Peer> {
    match peer::ask(&args.environment, args.patience, cases) {
        Ok(peer) => Some(peer),
        Err(error) => {
            eprintln!("detect-secrets is skipped: {error}");
            None
        }
    }
}
