//! What a dream over many entries costs: time and memory.
//!
//! One process fills a memory and another dreams, so that memory is the dream's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::ValueEnum;
use icecore::dreams::DreamRequest;
use icecore::knowledge::NewEntryRequest;
use serde_json::{Value, json};

use crate::Result;
use crate::data::Dataset;
use crate::engine::Engine;
use crate::plot::grouped;
use crate::report::{strings, table};
use crate::scale::memory_mib;

const SCOPE: &str = "dreams";

#[derive(clap::Args)]
pub struct Args {
    /// Conversations whose words the entries are made of.
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// How many entries, in turn.
    #[arg(long, value_delimiter = ',', default_values_t = [412, 10_000])]
    entries: Vec<usize>,
    /// Tokens that a dream may read and write.
    #[arg(long, default_value_t = 64_000)]
    budget: u64,
    /// Words of an entry, at most.
    #[arg(long, default_value_t = 12)]
    words: usize,
    /// What a process of ours does.
    #[arg(long, hide = true, requires = "dir")]
    part: Option<Part>,
    #[arg(long, hide = true)]
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    Fill,
    Dream,
}

pub async fn run(args: &Args) -> Result<()> {
    if let (Some(part), Some(dir)) = (args.part, &args.dir) {
        match part {
            Part::Fill => fill(args, dir).await?,
            Part::Dream => println!("{}", dream(args, dir).await?),
        }
        return Ok(());
    }
    let mut rows = Vec::new();
    for count in &args.entries {
        let dir = tempfile::tempdir()?;
        part(args, *count, "fill", dir.path())?;
        let told: Value = serde_json::from_slice(&part(args, *count, "dream", dir.path())?)?;
        let figure = |name: &str| grouped(told[name].as_f64().unwrap_or(f64::NAN));
        let mut row = vec![grouped(*count as f64)];
        row.extend(["covered", "input", "output", "ms", "peak_mib"].map(figure));
        rows.push(row);
    }
    let heads = strings(&["entries", "covered", "read", "written", "ms", "peak MiB"]);
    let title = format!("A dream within {} tokens", grouped(args.budget as f64));
    print!("{}", table(&title, &heads, &rows));
    Ok(())
}

fn part(args: &Args, count: usize, part: &str, dir: &Path) -> Result<Vec<u8>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["dream-scale", "--part", part, "--entries", &count.to_string()]);
    command.args(["--budget", &args.budget.to_string(), "--words", &args.words.to_string()]);
    command.arg("--dir").arg(dir).arg("--data").arg(&args.data);
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{part} of {count} entries: {}", output.status).into());
    }
    Ok(output.stdout)
}

/// Puts entries, each a few words that somebody said and its own number.
async fn fill(args: &Args, dir: &Path) -> Result<()> {
    let dataset = Dataset::load(&args.data)?;
    let engine = Engine::open(dir).await?;
    let scope = engine.scope(SCOPE).await?;
    let turns: Vec<&str> = dataset
        .conversations
        .iter()
        .flat_map(|conversation| conversation.turns())
        .map(|turn| turn.content.as_str())
        .collect();
    let said = turns.iter().cycle().take(args.entries.first().copied().unwrap_or_default());
    for (number, text) in said.enumerate() {
        let words: Vec<&str> = text.split_whitespace().take(args.words).collect();
        let content = format!("{} ({number})", words.join(" "));
        engine.memory.put_entry(&scope, NewEntryRequest { content, ..Default::default() }).await?;
    }
    Ok(())
}

async fn dream(args: &Args, dir: &Path) -> Result<Value> {
    let engine = Engine::open(dir).await?;
    let scope = engine.scope(SCOPE).await?;
    let begun = Instant::now();
    let request = DreamRequest::manual(Some(args.budget));
    let dream = engine.memory.dream(&scope, request, |_| ()).await?;
    let took = begun.elapsed();
    let figures = dream.record.figures;
    Ok(json!({
        "covered": figures.source_count,
        "input": figures.input_tokens,
        "output": figures.output_tokens,
        "ms": took.as_secs_f64() * 1_000.0,
        "peak_mib": memory_mib("VmHWM"),
    }))
}
