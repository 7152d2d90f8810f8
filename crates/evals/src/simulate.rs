//! Many short histories of several hosts over one store that fails, each from a seed, in a
//! time that passes by itself.
//!
//! Hosts are real: each is a [`icecore::Memory`] with its worker, its leases, its scheduler
//! and its caches. Between each and the store is a line on which calls and answers are
//! slow or lost, and which ends when the host dies. Clients write and read with retries and
//! write down what was acknowledged. At the end nothing goes wrong any more, everything
//! must settle, and what is there is compared with what was acknowledged.
//!
//! Everything runs on one thread and draws from the seed: one seed is one history.

mod client;
mod dice;
mod ledger;
mod line;
mod plant;
mod referee;
mod story;
mod verdict;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use icecore_host::schedules::{ScheduleRequest, ScheduleTask};
use icecore_store::testing::{OneThread, SeededNames};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;

use crate::Result;
use client::{Client, follow};
use plant::Bug;
use verdict::Follower;
use world::{MEMORY, World};

/// Seeds with broken promises that are printed.
const SHOWN: usize = 10;

/// A storm ends after so long, whoever is still at work.
const STORM: Duration = Duration::from_secs(90);

#[derive(clap::Args)]
pub struct Args {
    /// How many histories.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// One history alone, told line by line.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Threads; each history runs on one.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// A bug to plant, which must be found.
    #[arg(long, value_enum)]
    plant: Option<Bug>,
}

/// What one history came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// Which.
    pub seed: u64,
    /// Of everything that happened, in order.
    pub hash: u64,
    /// How much happened.
    pub events: u64,
    /// Promises that were broken.
    pub broken: Vec<String>,
    /// What happened, where somebody reads it.
    pub lines: Vec<String>,
}

/// Whether every promise was kept; or, where a bug is planted, whether it was found.
pub fn run(args: &Args) -> Result<bool> {
    if let Some(seed) = args.seed {
        let history = simulate(seed, args.plant, true)?;
        for line in &history.lines {
            println!("{line}");
        }
        println!("seed {seed}: {} things happened, hash {:016x}", history.events, history.hash);
        tell(&history);
        return Ok(history.broken.is_empty() != args.plant.is_some());
    }
    let begun = Instant::now();
    let bar = ProgressBar::new(args.seeds).with_style(
        ProgressStyle::with_template("{bar:30} {pos}/{len} histories, {per_sec}, {eta} left {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let found =
        simulate_all(args.from..args.from + args.seeds, args.threads, args.plant, |count| {
            bar.inc(1);
            if count > 0 {
                bar.set_message(format!("({count} broken)"));
            }
        })?;
    bar.finish_and_clear();
    println!(
        "{} histories, {} things happened, {} broken, {:.1} s",
        args.seeds,
        found.events,
        found.broken.len(),
        begun.elapsed().as_secs_f64()
    );
    found.broken.iter().take(SHOWN).for_each(tell);
    Ok(found.broken.is_empty() != args.plant.is_some())
}

fn tell(history: &History) {
    for broken in &history.broken {
        println!("seed {}: {broken}", history.seed);
    }
}

/// What many histories came to.
#[derive(Debug, Default)]
pub struct Found {
    /// How much happened.
    pub events: u64,
    /// Those in which a promise was broken, by seed.
    pub broken: Vec<History>,
}

/// Simulates all seeds, on several threads; `tell` hears after each how many were broken.
pub fn simulate_all(
    seeds: std::ops::Range<u64>,
    threads: usize,
    bug: Option<Bug>,
    tell: impl Fn(usize) + Sync,
) -> Result<Found> {
    let (next, found) = (AtomicU64::new(seeds.start), Mutex::new(Found::default()));
    let work = || -> Result<()> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return Ok(());
            }
            let history = simulate(seed, bug, false)?;
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.events += history.events;
            if !history.broken.is_empty() {
                found.broken.push(history);
            }
            let count = found.broken.len();
            drop(found);
            tell(count);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(done) => done,
            Err(_) => Err("a history panicked; the lines above say where".into()),
        })
    })?;
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.broken.sort_by_key(|history| history.seed);
    Ok(found)
}

/// One history.
pub fn simulate(seed: u64, bug: Option<Bug>, is_read: bool) -> Result<History> {
    let (_names, _thread) = (SeededNames::new(seed), OneThread::begin());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let world = runtime.block_on(async {
        let world = World::new(seed, bug, is_read);
        live(&world).await;
        world
    });
    // What still hangs on a dead host goes with it.
    drop(runtime);
    let (hash, events, broken, lines) = world.story.end();
    Ok(History { seed, hash, events, broken, lines })
}

/// A storm, the calm after it, and the verdict.
async fn live(world: &Arc<World>) {
    begin(world).await;
    let keepers: Vec<_> =
        (0..world.plan.hosts).map(|number| tokio::spawn(Arc::clone(world).keep(number))).collect();
    let followers: Vec<Follower> =
        (0..world.plan.tenants).map(|tenant| (tenant, Arc::default())).collect();
    for (tenant, seen) in &followers {
        tokio::spawn(follow(Arc::clone(world), *tenant, Arc::clone(seen)));
    }
    let trouble = tokio::spawn(Arc::clone(world).trouble());
    let clients: Vec<_> = (0..world.plan.clients)
        .map(|number| tokio::spawn(Client::new(world, number).live()))
        .collect();
    let all = async {
        for client in clients {
            if let Err(error) = client.await {
                world.story.break_promise(format_args!("a client broke off: {error}"));
            }
        }
    };
    let _ = tokio::time::timeout(STORM, all).await;
    trouble.abort();
    world.calm_down();
    let is_settled = verdict::settles(world, &followers).await;
    keepers.iter().for_each(JoinHandle::abort);
    world.close();
    if is_settled && !world.story.is_broken() {
        verdict::judge(world, &followers).await;
    }
}

/// What is there before anything goes wrong: a schedule or two.
async fn begin(world: &Arc<World>) {
    let memory = world.bystander();
    for tenant in 0..world.plan.tenants {
        let made = async {
            let scope = memory.scope(&world.principal(tenant), MEMORY).await?;
            let schedules = world::hosting(&memory).schedules;
            schedules.add(&scope, ScheduleRequest::cron("*/7 * * * * *")).await?;
            let consolidation = ScheduleRequest {
                task: ScheduleTask::Consolidate,
                ..ScheduleRequest::cron("*/5 * * * * *")
            };
            schedules.add(&scope, consolidation).await
        };
        if let Err(error) = made.await {
            world.story.break_promise(format_args!("no schedule can be made: {error:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn one_seed_is_one_history() {
        for seed in 0..12 {
            let once = simulate(seed, None, true).unwrap();
            let again = simulate(seed, None, true).unwrap();
            let differs = once.lines.iter().zip(&again.lines).position(|(one, other)| one != other);
            assert_eq!(differs, None, "of seed {seed}");
            assert_eq!((once.hash, once.events), (again.hash, again.events));
            assert_ne!(once.hash, simulate(seed + 1, None, false).unwrap().hash);
        }
    }

    #[test]
    fn every_promise_is_kept_in_a_thousand_histories() {
        let found = simulate_all(0..1_000, 2, None, |_| {}).unwrap();
        assert!(found.broken.is_empty(), "{:#?}", found.broken);
    }

    #[test]
    fn what_is_planted_is_found() {
        for bug in Bug::value_variants() {
            let is_found =
                |seed: &u64| !simulate(*seed, Some(*bug), false).unwrap().broken.is_empty();
            let found = (0..200).find(is_found);
            assert!(found.is_some(), "{bug:?} is not found in 200 histories");
        }
    }
}
