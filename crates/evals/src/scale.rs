//! What more turns cost: latency, memory, disk, taking in and opening.
//!
//! Each size is filled by one process and asked by another, so that memory is
//! that of a host which opens what is there, not what filling it left behind.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use clap::ValueEnum;
use icecore::RawTurn;
use icecore::ingest::Timestamp;
use icecore::recall::Mode;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::Result;
use crate::data::{Dataset, Turn};
use crate::engine::{Engine, bytes_under};
use crate::measures::percentile;
use crate::plot::{Chart, Line, Scale, grouped};
use crate::report::table;

const SESSION_TURNS: usize = 500;
const HITS: usize = 10;
const BUDGETS: [u32; 2] = [1_000, 4_000];
const SCOPE: &str = "scale";

#[derive(clap::Args)]
pub struct Args {
    /// Conversations whose words the turns are made of.
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    data: Vec<PathBuf>,
    /// How many turns, in turn.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000, 1_000_000])]
    turns: Vec<usize>,
    /// Questions asked of each size.
    #[arg(long, default_value_t = 200)]
    questions: usize,
    /// Draws latency against turns, as scale.svg.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// What a process of ours does.
    #[arg(long, hide = true, requires = "dir")]
    part: Option<Part>,
    #[arg(long, hide = true)]
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    Fill,
    Ask,
}

pub async fn run(args: &Args) -> Result<()> {
    if let (Some(part), Some(dir)) = (args.part, &args.dir) {
        let told = match part {
            Part::Fill => fill(args, dir).await?,
            Part::Ask => ask(args, dir).await?,
        };
        println!("{told}");
        return Ok(());
    }
    let mut found = Vec::new();
    for turns in &args.turns {
        found.push(measure(args, *turns)?);
    }
    print!("{}", report(&found));
    if let Some(folder) = &args.out {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("scale.svg"), chart(&found).svg())?;
    }
    Ok(())
}

/// One size, by two processes of our own.
fn measure(args: &Args, turns: usize) -> Result<Value> {
    let dir = tempfile::tempdir()?;
    let filled = part(args, turns, "fill", dir.path())?;
    let bytes = bytes_under(dir.path())?;
    let asked = part(args, turns, "ask", dir.path())?;
    let per_thousand = bytes * 1_000 / turns.max(1) as u64;
    Ok(json!({ "turns": turns, "fill": filled, "ask": asked, "bytes": per_thousand }))
}

fn part(args: &Args, turns: usize, part: &str, dir: &Path) -> Result<Value> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["scale", "--part", part, "--turns", &turns.to_string()]);
    command.args(["--questions", &args.questions.to_string()]).arg("--dir").arg(dir);
    command.arg("--data").args(&args.data).stderr(std::process::Stdio::inherit());
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{part} of {turns} turns: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

async fn fill(args: &Args, dir: &Path) -> Result<Value> {
    let turns = args.turns.first().copied().unwrap_or_default();
    let mut maker = Maker::new(load(args)?, turns as u64);
    let engine = Engine::open(dir).await?;
    let scope = engine.scope(SCOPE).await?;
    let bar = ProgressBar::new(turns as u64);
    bar.set_style(ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} turns {msg}")?);
    let mut took = std::time::Duration::ZERO;
    for first in (0..turns).step_by(SESSION_TURNS) {
        let count = SESSION_TURNS.min(turns - first);
        let batch = (first..first + count).map(|n| maker.turn(n)).collect::<Result<Vec<_>>>()?;
        let begun = Instant::now();
        engine.memory.remember(&scope, &format!("s{}", first / SESSION_TURNS), batch).await?;
        took += begun.elapsed();
        bar.inc(count as u64);
    }
    bar.set_message("settling");
    let begun = Instant::now();
    engine.settle().await?;
    let settling = begun.elapsed();
    bar.finish_and_clear();
    Ok(json!({
        "durable": turns as f64 / took.as_secs_f64(),
        "settled": turns as f64 / (took + settling).as_secs_f64(),
        "peak_mib": memory_mib("VmHWM"),
    }))
}

async fn ask(args: &Args, dir: &Path) -> Result<Value> {
    let questions = questions(&load(args)?, args.questions);
    let before = memory_mib("VmRSS");
    let begun = Instant::now();
    let engine = Engine::open(dir).await?;
    let scope = engine.scope(SCOPE).await?;
    let first = questions.first().ok_or("no question in the data")?;
    engine.search(&scope, first, Mode::Hybrid, HITS).await?;
    let opening = begun.elapsed();
    let mut search = Vec::new();
    let mut contexts = vec![Vec::new(); BUDGETS.len()];
    for question in &questions {
        search.push(engine.search(&scope, question, Mode::Hybrid, HITS).await?.1);
        for (times, budget) in contexts.iter_mut().zip(BUDGETS) {
            times.push(engine.context(&scope, question, budget).await?.1);
        }
    }
    let mut told = json!({
        "opening_ms": opening.as_secs_f64() * 1e3,
        "own_mib": before,
        "resident_mib": memory_mib("VmRSS"),
        "peak_mib": memory_mib("VmHWM"),
        "search": spread(search),
    });
    for (times, budget) in contexts.into_iter().zip(BUDGETS) {
        told[format!("context_{budget}")] = spread(times);
    }
    Ok(told)
}

/// Median, 95th percentile and most, in milliseconds.
fn spread(times: Vec<std::time::Duration>) -> Value {
    let mut ms: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    ms.sort_by(f64::total_cmp);
    json!([percentile(&ms, 0.5), percentile(&ms, 0.95), percentile(&ms, 1.0)])
}

fn load(args: &Args) -> Result<Vec<Dataset>> {
    args.data.iter().map(|path| Dataset::load(path)).collect()
}

/// Questions of all conversations, at even distances.
fn questions(data: &[Dataset], count: usize) -> Vec<String> {
    let all: Vec<&String> = data
        .iter()
        .flat_map(|dataset| &dataset.conversations)
        .flat_map(|conversation| &conversation.questions)
        .map(|question| &question.question)
        .collect();
    let step = (all.len() / count.max(1)).max(1);
    all.into_iter().step_by(step).take(count).cloned().collect()
}

/// Makes turns from the beginning of one that was said and the end of another.
struct Maker {
    said: Vec<Turn>,
    state: u64,
}

impl Maker {
    fn new(data: Vec<Dataset>, seed: u64) -> Self {
        let conversations = data.into_iter().flat_map(|dataset| dataset.conversations);
        let sessions = conversations.flat_map(|conversation| conversation.sessions);
        Self { said: sessions.flat_map(|session| session.turns).collect(), state: seed }
    }

    fn turn(&mut self, number: usize) -> Result<RawTurn> {
        let (a, b) = (self.pick(), self.pick());
        let (head, tail) = (&self.said[a], &self.said[b]);
        let head_words: Vec<&str> = head.content.split_whitespace().collect();
        let tail_words: Vec<&str> = tail.content.split_whitespace().collect();
        let begin = &head_words[..head_words.len().div_ceil(2)];
        let end = &tail_words[tail_words.len() / 2..];
        let mut turn = RawTurn::new(&head.role, [begin, end].concat().join(" "));
        turn.name = head.name.clone();
        let at = jiff::Timestamp::from_second(FIRST_SECOND + 60 * number as i64)?;
        turn.timestamp = Some(Timestamp::parse(at.to_string())?);
        Ok(turn)
    }

    /// One of what was said (splitmix64).
    fn pick(&mut self) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % self.said.len().max(1) as u64) as usize
    }
}

/// The first turn's moment, in 2022.
const FIRST_SECOND: i64 = 1_650_000_000;

/// A figure of this process, where the system tells.
pub fn memory_mib(figure: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(figure))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? / 1024)
}

fn report(found: &[Value]) -> String {
    let heads = [
        "turns", "search p50", "p95", "max", "context 1k p50", "p95", "max", "context 4k p50",
        "p95", "max", "opening ms", "MiB", "peak", "turns/s settled", "durable",
        "bytes/1,000 turns",
    ];
    let row = |size: &Value| {
        let mut row = vec![grouped(number(&size["turns"]))];
        for name in ["search", "context_1000", "context_4000"] {
            row.extend((0..3).map(|at| format!("{:.2}", number(&size["ask"][name][at]))));
        }
        row.push(format!("{:.0}", number(&size["ask"]["opening_ms"])));
        row.extend(["resident_mib", "peak_mib"].map(|name| grouped(number(&size["ask"][name]))));
        row.extend(["settled", "durable"].map(|name| grouped(number(&size["fill"][name]))));
        row.push(grouped(number(&size["bytes"])));
        row
    };
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    table("scale, ms", &heads, &found.iter().map(row).collect::<Vec<_>>())
}

fn chart(found: &[Value]) -> Chart {
    let line = |(key, name): (&str, &str)| Line {
        name: name.to_owned(),
        points: found
            .iter()
            .map(|size| (number(&size["turns"]), number(&size["ask"][key][1])))
            .collect(),
    };
    let lines = [
        ("search", "search, 10 hits"),
        ("context_1000", "context, 1,000"),
        ("context_4000", "context, 4,000"),
    ];
    Chart {
        title: "Latency by turns remembered".to_owned(),
        x_label: "turns in the memory".to_owned(),
        y_label: "95th percentile, milliseconds".to_owned(),
        y_scale: Scale::Log,
        lines: lines.into_iter().map(line).collect(),
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_turns_are_spliced_and_the_same_every_time() {
        let data = || {
            let turn = |content: &str| Turn {
                id: content.to_owned(),
                role: "user".to_owned(),
                name: None,
                content: content.to_owned(),
                timestamp: None,
            };
            let session = crate::data::Session {
                session: "s".to_owned(),
                turns: vec![turn("one two three four"), turn("five six seven eight")],
            };
            let conversation = crate::data::Conversation {
                memory_ref: "c".to_owned(),
                sessions: vec![session],
                questions: Vec::new(),
            };
            vec![Dataset { name: "d".to_owned(), conversations: vec![conversation] }]
        };
        let made = || -> Vec<String> {
            let mut maker = Maker::new(data(), 7);
            (0..8).map(|n| maker.turn(n).unwrap().content.text().into_owned()).collect()
        };
        assert_eq!(made(), made());
        assert!(made().contains(&"one two seven eight".to_owned()), "{:?}", made());
    }
}
