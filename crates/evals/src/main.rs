//! Measures the memory: what it finds, what that costs, and beside whom.
//!
//! | module | idea |
//! |---|---|
//! | `data` | conversations with questions |
//! | `engine` | the memory under test |
//! | `recall` | asks every question of every system |
//! | `measures` | what counts as found |
//! | `baselines`, `words` | what there is to beat |
//! | `signals` | what each signal of the ranking is worth |
//! | `stretches` | what two fifths of the tokens keep |
//! | `scale` | latency and memory of made-up conversations of any length |
//! | `peers` | other memories on the same questions |
//! | `host` | what a host bears, with this process as its clients |
//! | `kills` | a writer that is killed at any moment |
//! | `proxy` | what the proxy costs and bears, with this process around it |
//! | `redact` | what is hidden of secrets and of what only looks like them |
//! | `distillates`, `lexrank` | what dreams keep of what questions need |
//! | `dreams` | what a dream over many entries costs |
//! | `evidence` | what a compacted session keeps of what questions need |
//! | `prefixes` | what of a request a provider has cached |
//! | `simulate` | several hosts over a store that fails, from seeds (debug builds alone) |
//! | `fuzz`, `trials` | sessions of every kind against a scripted model |
//! | `report`, `plot` | tables and pictures |
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "printing figures is what it is for")]

mod baselines;
mod both;
mod cost;
mod data;
mod distillates;
mod dreams;
mod engine;
mod evidence;
mod fuzz;
mod host;
mod hosts;
mod kills;
mod lexrank;
mod measures;
mod peers;
mod plot;
mod prefixes;
mod proxy;
mod recall;
mod redact;
mod report;
mod scale;
mod signals;
#[cfg(debug_assertions)]
mod simulate;
mod stretches;
#[path = "../../icecore/tests/it/trials.rs"]
mod trials;
mod words;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use data::Dataset;
use icecore::recall::Signal;
use recall::{Loaded, Options};
use serde_json::json;

/// An opaque report: whoever runs this reads it.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Parser)]
#[command(about = "Measures what a memory finds, and what that costs")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// How much of what questions need is found, beside baselines.
    Recall(RecallArgs),
    /// The signals of every question's candidates, for training/rank.py.
    Dump(DumpArgs),
    /// Latency, memory and disk with more and more turns.
    Scale(scale::Args),
    /// mem0, txtai and chroma on the same questions.
    Peers(peers::Args),
    /// What a host bears: connections, writers, slow clients, tenants.
    Host(host::Args),
    /// SQLite and PostgreSQL side by side: the same answers, and how long they take.
    Both(both::Args),
    /// Several hosts over one PostgreSQL, while one after the other is killed.
    Hosts(hosts::Args),
    /// A writer that is killed at any moment: what was acknowledged is there once, in order.
    Kills(kills::Args),
    /// What the proxy costs and bears: overhead, streams, memory, prefixes, matching.
    Proxy(proxy::Args),
    /// What is hidden of secrets, and of what only looks like them.
    Redact(redact::Args),
    /// What distillates keep of what questions need, beside the newest turns and LexRank.
    DreamEvidence(distillates::Args),
    /// Time and memory of a dream over many entries.
    DreamScale(dreams::Args),
    /// What a compacted session keeps of what questions need, beside the newest turns and
    /// the handoff alone.
    SessionEvidence(evidence::Args),
    /// What of each request of a growing session begins as the one before did.
    SessionPrefix(prefixes::Args),
    /// Sessions of every kind, made from a seed, against a scripted model.
    SessionFuzz(fuzz::Args),
    /// Several hosts over a store that fails: one seed is one history.
    #[cfg(debug_assertions)]
    Simulate(simulate::Args),
}

#[derive(Args)]
struct RecallArgs {
    /// Conversations with questions (JSON lines, gzip).
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    data: Vec<PathBuf>,
    /// Tokens that contexts may have.
    #[arg(long, value_delimiter = ',', default_values_t = [500, 1000, 2000, 4000])]
    budgets: Vec<u32>,
    /// At most so many questions of each conversation.
    #[arg(long, value_name = "N")]
    sample: Option<usize>,
    /// Also what leaving out each signal of the ranking costs.
    #[arg(long)]
    ablate: bool,
    /// Also the figures on each half of the conversations.
    #[arg(long)]
    folds: bool,
    /// One JSON document on stdout, tables on stderr.
    #[arg(long)]
    json: bool,
    /// Draws evidence found against tokens spent, an SVG for each file.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Args)]
struct DumpArgs {
    /// Conversations with questions (JSON lines, gzip).
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    data: Vec<PathBuf>,
    /// The file to write, a JSON line for each question.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

impl RecallArgs {
    /// The budgets that are reported, and those that a plot needs.
    fn measured_budgets(&self) -> Vec<u32> {
        let mut budgets = self.budgets.clone();
        if self.out.is_some() {
            budgets.extend(recall::PLOTTED_BUDGETS);
        }
        budgets.sort_unstable();
        budgets.dedup();
        budgets
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Recall(args) => recall(&args).await,
        Command::Dump(args) => dump(&args).await,
        Command::Scale(args) => scale::run(&args).await.map(|()| true),
        Command::Peers(args) => peers::run(&args).await.map(|()| true),
        Command::Host(args) => host::run(&args).await,
        Command::Both(args) => both::run(&args).await,
        Command::Hosts(args) => hosts::run(&args).await,
        Command::Kills(args) => kills::run(&args).await,
        Command::Proxy(args) => proxy::run(&args).await,
        Command::Redact(args) => redact::run(&args),
        Command::DreamEvidence(args) => distillates::run(&args),
        Command::DreamScale(args) => dreams::run(&args).await.map(|()| true),
        Command::SessionEvidence(args) => evidence::run(&args).await,
        Command::SessionPrefix(args) => prefixes::run(&args).await,
        Command::SessionFuzz(args) => fuzz::run(&args).await,
        // It has runtimes of its own.
        #[cfg(debug_assertions)]
        Command::Simulate(args) => tokio::task::block_in_place(|| simulate::run(&args)),
    };
    match done {
        Ok(is_sound) if is_sound => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("evals: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether every promise was kept.
async fn recall(args: &RecallArgs) -> Result<bool> {
    let say = |text: String| if args.json { eprint!("{text}") } else { print!("{text}") };
    let mut documents = Vec::new();
    let mut is_sound = true;
    for path in &args.data {
        let dataset = Dataset::load(path)?;
        let loaded = Loaded::new(&dataset).await?;
        let options = Options { budgets: args.measured_budgets(), sample: args.sample };
        let mut measured = recall::measure(&dataset, &loaded, &options).await?;
        let kept = stretches::kept(&dataset, &mut measured).await?;
        say(report::recall(&dataset, &measured, &args.budgets));
        say(report::kept(&kept));
        say(report::closing(&loaded.ingest, &measured));
        if args.folds {
            say(report::folds(&measured.records, &args.budgets));
        }
        if args.ablate {
            let rankings = signals::rankings(&dataset, &loaded, args.sample).await?;
            let without = Signal::ALL.map(|signal| signals::without(&rankings, Some(signal)));
            say(report::ablation(&signals::without(&rankings, None), &without));
        }
        if let Some(folder) = &args.out {
            let path = folder.join(format!("recall-{}.svg", dataset.name));
            std::fs::create_dir_all(folder)?;
            std::fs::write(&path, report::recall_chart(&dataset, &measured.records).svg())?;
            say(format!("  drawn in {}\n", path.display()));
        }
        is_sound &= measured.problems.is_empty();
        documents.push(report::to_json(&dataset, &measured, &args.budgets));
    }
    if args.json {
        println!("{}", json!({ "datasets": documents }));
    }
    Ok(is_sound)
}

async fn dump(args: &DumpArgs) -> Result<bool> {
    let mut out = BufWriter::new(File::create(&args.out)?);
    for path in &args.data {
        let dataset = Dataset::load(path)?;
        let loaded = Loaded::new(&dataset).await?;
        let rankings = signals::rankings(&dataset, &loaded, None).await?;
        signals::dump(&dataset, &rankings, &mut out)?;
        eprintln!("{}: {} questions", dataset.name, rankings.len());
    }
    out.flush()?;
    Ok(true)
}
