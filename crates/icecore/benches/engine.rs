//! Speed and size of the engine. Prints a table; compares with the disk itself.
//!
//! `cargo bench -p icecore --bench engine` runs all; a name after `--` runs one:
//! `ingest`, `disk`, `context`, `million`.
#![expect(clippy::print_stdout, reason = "a benchmark's figures are its output")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run should stop")]

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use icecore::formats::turn_jsonl;
use icecore::ingest::Timestamp;
use icecore::{ContextRequest, Memory, Principal, RawTurn, Scope, Tenant};
use icecore_store::{Packs, Store};

#[tokio::main]
async fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let runs = |name: &str| wanted.is_empty() || wanted.iter().any(|arg| arg == name);
    if runs("ingest") {
        ingest().await;
    }
    if runs("disk") {
        disk().await;
    }
    if runs("context") {
        context().await;
    }
    if runs("million") {
        million().await;
    }
}

async fn scope(memory: &Memory) -> Scope {
    memory.scope(&Principal::local_operator(Tenant::new("bench").unwrap()), "bench").await.unwrap()
}

/// Short chatty turns: those of `ICECORE_EVAL_DATA/locomo-dev.jsonl.gz`, else
/// made-up ones of the same size.
fn conversation() -> Vec<RawTurn> {
    match std::env::var("ICECORE_EVAL_DATA") {
        Ok(dir) => locomo(&Path::new(&dir).join("locomo-dev.jsonl.gz")),
        Err(_) => {
            println!("  (made-up turns; set ICECORE_EVAL_DATA for real ones)");
            (0..2_760).map(made_up).collect()
        }
    }
}

fn locomo(path: &Path) -> Vec<RawTurn> {
    let file = std::fs::File::open(path).unwrap();
    let lines = std::io::read_to_string(flate2::read::GzDecoder::new(file)).unwrap();
    let mut turns = Vec::new();
    for line in lines.lines() {
        let conversation: serde_json::Value = serde_json::from_str(line).unwrap();
        for session in conversation["sessions"].as_array().unwrap() {
            for turn in session["turns"].as_array().unwrap() {
                turns.push(turn_jsonl::parse_line(&turn.to_string()).unwrap().turn);
            }
        }
    }
    turns
}

fn made_up(number: usize) -> RawTurn {
    const WORDS: [&str; 16] = [
        "glacier", "the", "walk", "a", "we", "morning", "camp", "of", "snow", "and", "river", "to",
        "found", "with", "old", "map",
    ];
    let mut state = number as u64 * 2_654_435_761 + 1;
    let mut word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        WORDS[(state >> 60) as usize]
    };
    let text: Vec<&str> = (0..22).map(|_| word()).collect();
    let mut turn =
        RawTurn::new(if number.is_multiple_of(2) { "user" } else { "assistant" }, text.join(" "));
    turn.name = Some(if number.is_multiple_of(2) { "Caroline" } else { "Melanie" }.to_owned());
    turn.timestamp = Some(
        Timestamp::parse(format!(
            "2024-{:02}-{:02}T{:02}:{:02}:00Z",
            number / 40_320 % 12 + 1,
            number / 1440 % 28 + 1,
            number / 60 % 24,
            number % 60
        ))
        .unwrap(),
    );
    turn
}

/// `count` turns, the conversation repeated under other ids.
fn repeated(count: usize) -> Vec<RawTurn> {
    let base = conversation();
    let turn = |n: usize| RawTurn { id: Some(format!("r{n}")), ..base[n % base.len()].clone() };
    (0..count).map(turn).collect()
}

fn raw_bytes(turns: &[RawTurn]) -> u64 {
    turns.iter().map(|turn| turn_jsonl::write_fields(&[], turn).len() as u64 + 1).sum()
}

/// Appends of 4 KiB that the disk can sync in a second.
fn syncs_a_second(dir: &Path) -> f64 {
    let mut file = std::fs::File::create(dir.join("probe")).unwrap();
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < Duration::from_millis(700) {
        file.write_all(&[7; 4096]).unwrap();
        file.sync_data().unwrap();
        count += 1;
    }
    f64::from(count) / began.elapsed().as_secs_f64()
}

async fn ingest() {
    println!("durable ingest");
    let dir = tempfile::tempdir().unwrap();
    let turns = Arc::new(repeated(200_000));
    let store = Store::open(&dir.path().join("single"), None).unwrap();
    let memory = Memory::builder().over(store.clone(), Packs::in_memory(), None);
    // The disk's own rate changes from second to second here, so both take turns.
    let (mut syncs, mut commits, mut added) = (0.0, 0.0, 0.0);
    const ROUNDS: usize = 6;
    for round in 0..ROUNDS {
        syncs += syncs_a_second(dir.path());
        let (began, before) = (Instant::now(), store.timings().commits.count());
        let count = single_turns(&memory, &turns, round, began).await;
        let seconds = began.elapsed().as_secs_f64();
        commits += (store.timings().commits.count() - before) as f64 / seconds;
        added += count as f64 / seconds;
    }
    let rounds = ROUNDS as f64;
    println!(
        "  single turns, {WRITERS} writers: {:.0} turns/s in {:.0} commits/s ({:.1} turns a commit); the disk alone syncs {:.0} times/s, {:.2} x the commits",
        added / rounds,
        commits / rounds,
        added / commits,
        syncs / rounds,
        syncs / commits
    );

    for batch in [10, 100, 1000] {
        let memory = Memory::open(&dir.path().join(format!("batch-{batch}"))).await.unwrap();
        let scope = scope(&memory).await;
        let began = Instant::now();
        let mut added = 0;
        for chunk in turns.chunks(batch) {
            memory.remember(&scope, "s", chunk.to_vec()).await.unwrap();
            added += chunk.len();
            if began.elapsed() > Duration::from_secs(5) {
                break;
            }
        }
        println!(
            "  batches of {batch}, one writer: {:.0} turns/s",
            added as f64 / began.elapsed().as_secs_f64()
        );
    }
    let memory = Memory::open(&dir.path().join("batches-4")).await.unwrap();
    let began = Instant::now();
    let mut tasks = Vec::new();
    for writer in 0..4 {
        let (memory, turns) = (memory.clone(), Arc::clone(&turns));
        tasks.push(tokio::spawn(async move {
            let scope = scope(&memory).await;
            let mut added = 0;
            for chunk in turns.chunks(100).skip(writer * 500) {
                memory.remember(&scope, &format!("w{writer}"), chunk.to_vec()).await.unwrap();
                added += chunk.len();
                if began.elapsed() > Duration::from_secs(5) {
                    break;
                }
            }
            added
        }));
    }
    let mut added = 0;
    for task in tasks {
        added += task.await.unwrap();
    }
    println!(
        "  batches of 100, 4 writers: {:.0} turns/s",
        added as f64 / began.elapsed().as_secs_f64()
    );
}

const WRITERS: usize = 8;

/// Adds single turns from several writers for a second and a half.
async fn single_turns(
    memory: &Memory,
    turns: &Arc<Vec<RawTurn>>,
    round: usize,
    began: Instant,
) -> usize {
    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        let (memory, turns) = (memory.clone(), Arc::clone(turns));
        tasks.push(tokio::spawn(async move {
            let scope = scope(&memory).await;
            let mut added = 0;
            while began.elapsed() < Duration::from_millis(1500) {
                let number = (writer + WRITERS * added) % turns.len();
                let turn =
                    RawTurn { id: Some(format!("{round}-{number}")), ..turns[number].clone() };
                memory.remember(&scope, &format!("w{writer}"), vec![turn]).await.unwrap();
                added += 1;
            }
            added
        }));
    }
    let mut added = 0;
    for task in tasks {
        added += task.await.unwrap();
    }
    added
}

async fn disk() {
    println!("disk after demotion, 10,000 short turns");
    for (label, sessions) in
        [("one session", 1), ("20 sessions of 500", 20), ("100 sessions of 100", 100)]
    {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::open(dir.path()).await.unwrap();
        let scope = scope(&memory).await;
        let turns = repeated(10_000);
        let raw = raw_bytes(&turns);
        for (number, chunk) in turns.chunks(10_000 / sessions).enumerate() {
            for batch in chunk.chunks(100) {
                memory.remember(&scope, &format!("s{number}"), batch.to_vec()).await.unwrap();
            }
        }
        let began = Instant::now();
        memory.settle(|_, _| {}).await.unwrap();
        let seconds = began.elapsed().as_secs_f64();
        let stats = memory.stats(scope.tenant(), None).await.unwrap();
        println!(
            "  {label}: {} bytes on disk, {} raw ({} a turn): {:.2} x; packs {}, warm {}, hot {}, summaries {}; settled at {:.0} turns/s",
            stats.disk_bytes,
            raw,
            raw / 10_000,
            stats.disk_bytes as f64 / raw as f64,
            stats.store.tier_bytes[2],
            stats.store.tier_bytes[1],
            stats.store.tier_bytes[0],
            stats.store.summary_bytes,
            10_000.0 / seconds
        );
    }
}

async fn fill(memory: &Memory, scope: &Scope, count: usize) {
    let turns = repeated(count.min(100_000));
    let began = Instant::now();
    let mut added = 0;
    while added < count {
        for chunk in turns.chunks(1000) {
            let batch = chunk
                .iter()
                .enumerate()
                .map(|(n, turn)| RawTurn { id: Some(format!("x{}", added + n)), ..turn.clone() });
            memory.remember(scope, "s", batch.collect()).await.unwrap();
            added += chunk.len();
            if added >= count {
                break;
            }
        }
    }
    let ingest = began.elapsed().as_secs_f64();
    memory.settle(|_, _| {}).await.unwrap();
    println!(
        "  filled with {count} turns in {ingest:.1} s, settled after {:.1} s",
        began.elapsed().as_secs_f64()
    );
}

async fn context() {
    println!("context of a session of 100,000 turns");
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::open(dir.path()).await.unwrap();
    let scope = scope(&memory).await;
    fill(&memory, &scope, 100_000).await;
    for budget in [500, 1_000, 2_000, 4_000, 8_000] {
        let mut times = Vec::new();
        for _ in 0..200 {
            let began = Instant::now();
            let context =
                memory.context(&scope, ContextRequest::of_session("s", budget)).await.unwrap();
            times.push(began.elapsed());
            assert!(context.tokens <= budget);
        }
        times.sort();
        println!(
            "  budget {budget}: p50 {:.2} ms, p95 {:.2} ms",
            times[99].as_secs_f64() * 1e3,
            times[189].as_secs_f64() * 1e3
        );
    }
}

async fn million() {
    println!("a store of a million turns");
    let dir = tempfile::tempdir().unwrap();
    {
        let memory = Memory::open(dir.path()).await.unwrap();
        let scope = scope(&memory).await;
        fill(&memory, &scope, 1_000_000).await;
        let stats = memory.stats(scope.tenant(), None).await.unwrap();
        println!("  {:.0} MB on disk", stats.disk_bytes as f64 / 1e6);
    }
    let before = resident();
    let began = Instant::now();
    let memory = Memory::open(dir.path()).await.unwrap();
    let opened = began.elapsed();
    let scope = scope(&memory).await;
    let context = memory.context(&scope, ContextRequest::of_session("s", 2_000)).await.unwrap();
    let first = began.elapsed();
    println!(
        "  opened in {:.1} ms; first context ({} tokens) after {:.1} ms; resident {} MiB, {} MiB before",
        opened.as_secs_f64() * 1e3,
        context.tokens,
        first.as_secs_f64() * 1e3,
        resident() >> 20,
        before >> 20,
    );
}

/// Resident bytes of this process, where the system tells.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib: u64 = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0);
    kib * 1024
}
