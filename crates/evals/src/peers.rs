//! Other memories on the same questions, in an environment made for them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use icecore::models::Vector;
use icecore::recall::Mode;
use icecore_models::StaticEmbedder;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Result;
use crate::data::Dataset;
use crate::measures::{ALL, Means, Record, SEARCH, Scores, Task, search_scores};
use crate::recall::Loaded;
use crate::report::{figure, table};

/// The names that `peers.py` knows, and the packages they are in.
const PEERS: [(&str, &str); 3] = [("mem0", "mem0ai"), ("txtai", "txtai"), ("chroma", "chromadb")];

const SCRIPT: &str = include_str!("../peers/peers.py");

/// Hits that are ranked, of ours as of theirs.
const HITS: usize = 20;

#[derive(clap::Args)]
pub struct Args {
    /// Conversations with questions (JSON lines, gzip).
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    data: Vec<PathBuf>,
    /// Which peers.
    #[arg(long, value_delimiter = ',', default_values_t = PEERS.map(|(name, _)| name.to_owned()))]
    peers: Vec<String>,
    /// At most so many questions of each conversation.
    #[arg(long, default_value_t = 30)]
    sample: usize,
    /// Where their packages are installed; kept, so that a second run is quick.
    #[arg(long, default_value = "target/peers", value_name = "DIR")]
    environment: PathBuf,
    /// Seconds that installing a peer, and asking it, may take.
    #[arg(long, default_value_t = 600)]
    patience: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answered {
    found: Vec<Vec<Vec<String>>>,
    turns_per_second: f64,
    search_ms: Option<f64>,
}

pub async fn run(args: &Args) -> Result<()> {
    let python = environment(&args.environment, args.patience)?;
    let mut installed = Vec::new();
    for (name, package) in PEERS.iter().filter(|(name, _)| args.peers.iter().any(|p| p == name)) {
        match install(&python, package, args.patience) {
            Ok(_) => installed.push(*name),
            Err(error) => println!("{name} is skipped: {package} cannot be installed: {error}"),
        }
    }
    for path in &args.data {
        let dataset = Dataset::load(path)?;
        let mut rows = vec![ours(&dataset, args.sample).await?];
        let folder = tempfile::tempdir()?;
        let work = folder.path().join("work.json");
        std::fs::write(&work, work_of(&dataset, args.sample).to_string())?;
        for name in &installed {
            match ask(&python, name, &work, args.patience) {
                Ok(answered) => rows.push(theirs(&dataset, args.sample, name, &answered)),
                Err(error) => println!("{name} is skipped on {}: {error}", dataset.name),
            }
        }
        let heads = ["", "n"].into_iter().chain(SEARCH).chain(["turns/s", "search ms"]);
        let heads: Vec<String> = heads.map(str::to_owned).collect();
        print!("{}", table(&format!("{}, peers, ALL", dataset.name), &heads, &rows));
    }
    Ok(())
}

/// Python of the environment, which is made if it is not there.
pub fn environment(folder: &Path, patience: u64) -> Result<PathBuf> {
    let python = folder.join("bin").join("python");
    if !python.exists() {
        let mut command = Command::new("python3");
        command.args(["-m", "venv"]).arg(folder);
        bounded(command, patience).map_err(|error| format!("no Python environment: {error}"))?;
    }
    Ok(std::path::absolute(python)?)
}

/// Puts `package` into the environment of `python`.
pub fn install(python: &Path, package: &str, patience: u64) -> Result<Output> {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", package]);
    bounded(pip, patience)
}

/// Runs a command to its end, or until patience is. What it prints goes to files,
/// for a full pipe would hold it up.
pub fn bounded(mut command: Command, seconds: u64) -> Result<Output> {
    let folder = tempfile::tempdir()?;
    let (out, err) = (folder.path().join("out"), folder.path().join("err"));
    command.stdin(Stdio::null());
    command.stdout(std::fs::File::create(&out)?).stderr(std::fs::File::create(&err)?);
    let mut child = command.spawn()?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > Duration::from_secs(seconds) {
            child.kill()?;
            child.wait()?;
            return Err(format!("it took more than {seconds} s").into());
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let output = Output { status, stdout: std::fs::read(out)?, stderr: std::fs::read(err)? };
    if !status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(told.trim().lines().last().unwrap_or("it failed").to_owned().into());
    }
    Ok(output)
}

fn ask(python: &Path, peer: &str, work: &Path, seconds: u64) -> Result<Answered> {
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT, peer]).arg(work);
    let output = bounded(command, seconds)?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(serde_json::from_str(text.trim().lines().last().unwrap_or_default())?)
}

/// Turns and questions with their vectors.
fn work_of(dataset: &Dataset, sample: usize) -> Value {
    let embedder = StaticEmbedder::bundled();
    let floats = |text: &str| unit(&embedder.embed_one(text));
    let one = |conversation: &crate::data::Conversation| {
        let turns: Vec<Value> = conversation
            .turns()
            .map(|turn| {
                let who = turn.name.as_deref().unwrap_or(&turn.role);
                let text = format!("{who}: {}", turn.content);
                json!({ "id": turn.id, "vector": floats(&text), "text": text })
            })
            .collect();
        let questions: Vec<Value> = conversation
            .asked(Some(sample))
            .iter()
            .map(|question| json!({ "text": question.question, "vector": floats(&question.question) }))
            .collect();
        json!({ "turns": turns, "questions": questions })
    };
    Value::Array(dataset.conversations.iter().map(one).collect())
}

fn unit(vector: &Vector) -> Vec<f32> {
    let floats: Vec<f32> = vector.components().iter().map(|c| f32::from(*c)).collect();
    let norm = floats.iter().map(|c| c * c).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    floats.iter().map(|c| c / norm).collect()
}

async fn ours(dataset: &Dataset, sample: usize) -> Result<Vec<String>> {
    let loaded = Loaded::new(dataset).await?;
    let (mut records, mut times) = (Vec::new(), Vec::new());
    for (number, conversation) in dataset.conversations.iter().enumerate() {
        for question in conversation.asked(Some(sample)) {
            let scope = &loaded.scopes[number];
            let (hits, took) =
                loaded.engine.search(scope, &question.question, Mode::Hybrid, HITS).await?;
            let ids: Vec<&str> = hits.iter().map(|hit| hit.id.as_str()).collect();
            records.push(record(
                "Icecore",
                number,
                &question.category,
                search_scores(&ids, question),
            ));
            times.push(took.as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    let rate = loaded.ingest.turns as f64 / loaded.ingest.took.as_secs_f64();
    Ok(row("Icecore", &records, rate, Some(crate::measures::percentile(&times, 0.5))))
}

fn theirs(
    dataset: &Dataset,
    sample: usize,
    peer: &'static str,
    answered: &Answered,
) -> Vec<String> {
    let mut records = Vec::new();
    for (number, conversation) in dataset.conversations.iter().enumerate() {
        for (question, found) in
            conversation.asked(Some(sample)).iter().zip(&answered.found[number])
        {
            let ids: Vec<&str> = found.iter().map(String::as_str).collect();
            records.push(record(peer, number, &question.category, search_scores(&ids, question)));
        }
    }
    row(peer, &records, answered.turns_per_second, answered.search_ms)
}

fn record(system: &'static str, conversation: usize, category: &str, scores: Scores) -> Record {
    let (task, took) = (Task::Search, Duration::ZERO);
    Record { system, task, conversation, category: category.to_owned(), scores, took }
}

fn row(name: &str, records: &[Record], rate: f64, search_ms: Option<f64>) -> Vec<String> {
    let means = Means::of(records.iter());
    let mut row = vec![name.to_owned(), means.count(ALL).to_string()];
    row.extend(SEARCH.map(|measure| figure(means.get(ALL, measure))));
    row.extend([format!("{rate:.0}"), search_ms.map_or("-".to_owned(), |ms| format!("{ms:.1}"))]);
    row
}
