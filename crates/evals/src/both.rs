//! SQLite and PostgreSQL side by side: the same answers, and how long they take.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use icecore::recall::Mode;
use icecore::{Memory, Principal, RawTurn, Scope, Tenant};
use icecore_store::PostgresOptions;
use icecore_store::testing::postgres::{TestDatabase, TestServer, own_server};
use indicatif::ProgressBar;
use tokio::task::JoinSet;

use crate::Result;
use crate::cost::{self, Used};
use crate::data::Dataset;
use crate::engine::Engine;
use crate::report::{strings, table};

/// All that opens the databases of a run.
const MASTER_KEY: &str = "6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d6d";

#[derive(clap::Args)]
pub struct Args {
    /// Conversations with questions (JSON lines, gzip).
    #[arg(long, required = true, num_args = 1.., value_name = "FILE")]
    data: Vec<PathBuf>,
    /// Tokens that contexts may have.
    #[arg(long, value_delimiter = ',', default_values_t = [500, 2000])]
    budgets: Vec<u32>,
    /// Turns of the ingest; 0: none.
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    ingest: usize,
    /// Turns of one append of the ingest.
    #[arg(long, default_value_t = 100, value_name = "N")]
    batch: usize,
    /// Appends under way at once.
    #[arg(long, default_value_t = 4, value_name = "N")]
    writers: usize,
}

/// Whether both answered the same throughout.
pub async fn run(args: &Args) -> Result<bool> {
    let server = own_server().ok_or("there is no PostgreSQL to start")?;
    let mut is_same = true;
    for path in &args.data {
        is_same &= compare(&server, &Dataset::load(path)?, args).await?;
    }
    if args.ingest > 0 {
        let (mut rates, mut costs) = (Vec::new(), Vec::new());
        let (engines, database) = both(&server).await?;
        for (name, engine) in engines {
            let database = (name != SQLITE).then_some(&database);
            let used = async || Used::now(engine.dir(), database).await;
            let before = used().await?;
            let took = ingest(&engine.memory, args).await?;
            let taken = used().await?;
            engine.settle().await?;
            let settled = used().await?;
            let rate = args.ingest as f64 / took.as_secs_f64();
            rates.push(vec![name.to_owned(), format!("{rate:.0}")]);
            for (what, now, then) in [("taken in", taken, before), ("settled", settled, taken)] {
                let cells = now.each(&then, args.ingest);
                costs.push([vec![format!("{name}, {what}")], cells].concat());
            }
        }
        let name = format!("{} turns, {} at once by {}", args.ingest, args.batch, args.writers);
        eprint!("{}", table(&name, &strings(&["ingest", "turns/s"]), &rates));
        let heads = [&[""][..], &cost::HEADS].concat();
        eprint!("{}", table("each turn costs", &strings(&heads), &costs));
    }
    Ok(is_same)
}

const SQLITE: &str = "SQLite";

/// A memory in each.
async fn both(server: &Arc<TestServer>) -> Result<([(&'static str, Engine); 2], TestDatabase)> {
    let database = server.fresh_database();
    let dir = tempfile::tempdir()?;
    let builder = Memory::builder().master_key(Some(MASTER_KEY.to_owned()));
    let builder = builder.postgres(database.url(), PostgresOptions::default());
    let memory = builder.open(dir.path()).await?;
    let postgres = Engine::over(memory, dir)?;
    Ok(([(SQLITE, Engine::new().await?), ("PostgreSQL", postgres)], database))
}

async fn compare(server: &Arc<TestServer>, dataset: &Dataset, args: &Args) -> Result<bool> {
    let (engines, _database) = both(server).await?;
    let mut scopes: [Vec<Scope>; 2] = [Vec::new(), Vec::new()];
    for (at, (_, engine)) in engines.iter().enumerate() {
        for conversation in &dataset.conversations {
            let told = engine.remember(&conversation.memory_ref, &conversation.sessions);
            scopes[at].push(told.await?);
        }
        engine.settle().await?;
    }
    let asked: usize = dataset.conversations.iter().map(|c| c.asked(None).len()).sum();
    let bar = ProgressBar::new(asked as u64);
    let (mut different, mut times) = (0, [const { Vec::new() }; 4]);
    for (number, conversation) in dataset.conversations.iter().enumerate() {
        for question in conversation.asked(None) {
            let mut said = [String::new(), String::new()];
            for (at, (_, engine)) in engines.iter().enumerate() {
                let (scope, asked) = (&scopes[at][number], question.question.as_str());
                let (hits, took) = engine.search(scope, asked, Mode::Hybrid, 10).await?;
                said[at] += &format!("{hits:?}");
                times[at].push(took);
                for budget in &args.budgets {
                    let (context, took) = engine.context(scope, asked, *budget).await?;
                    said[at] += &format!("{:?}{:?}", context.text, context.items);
                    times[2 + at].push(took);
                }
            }
            different += u64::from(said[0] != said[1]);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let rows: Vec<Vec<String>> = ["search", "context"]
        .iter()
        .enumerate()
        .flat_map(|(kind, what)| {
            let times = &times;
            engines.iter().enumerate().map(move |(at, (name, _))| {
                let times = &times[kind * 2 + at];
                vec![format!("{what}, {name}"), at_share(times, 0.5), at_share(times, 0.95)]
            })
        })
        .collect();
    let heads = strings(&["", "p50 ms", "p95 ms"]);
    eprint!("{}", table(&dataset.name, &heads, &rows));
    eprintln!("  {asked} questions, {different} answered otherwise\n");
    Ok(different == 0)
}

/// The time that so many of them stay within.
fn at_share(times: &[Duration], share: f64) -> String {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
    times.get(at).map_or_else(String::new, |time| format!("{:.2}", time.as_secs_f64() * 1e3))
}

/// Appends by several writers, each in a session of its own.
async fn ingest(memory: &Memory, args: &Args) -> Result<Duration> {
    let person = Principal::local_operator(Tenant::new("ingest")?);
    let mut writers = JoinSet::new();
    let each = args.ingest / args.batch / args.writers;
    let begun = Instant::now();
    for writer in 0..args.writers {
        let scope = memory.scope(&person, &format!("memory-{writer}")).await?;
        let (memory, batch) = (memory.clone(), args.batch);
        writers.spawn(async move {
            for number in 0..each {
                let turn = |at: usize| {
                    let words = "a sentence of ordinary length, as people write them to agents";
                    RawTurn::new("user", format!("{number} {at}: {words}"))
                };
                memory.remember(&scope, "talk", (0..batch).map(turn).collect()).await?;
            }
            Ok::<_, icecore::MemoryError>(())
        });
    }
    while let Some(done) = writers.join_next().await {
        done??;
    }
    Ok(begun.elapsed())
}
