//! Several hosts over one PostgreSQL, behind clients that go from one to the next.
//!
//! Writers append numbered turns and ask again, elsewhere, whenever they are not answered.
//! Readers look for what was acknowledged, through a host that did not acknowledge it.
//! Followers read the events of a tenant from wherever they can. Meanwhile one host after
//! the other is killed and started anew. At the end everything that was acknowledged must
//! be there once and in order, nothing of another tenant anywhere, and every event once.

mod crowd;
mod place;
mod verdict;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Result;
use crate::host::tally::HEADS;
use crate::report::{strings, table};
use crowd::Crowd;
use place::Place;

#[derive(clap::Args)]
pub struct Args {
    /// The host's binary.
    #[arg(long, value_name = "FILE")]
    bin: PathBuf,
    /// The database; without, a server is started from the machine's binaries.
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Hosts.
    #[arg(long, default_value_t = 3, value_name = "N")]
    hosts: usize,
    /// Tenants, each with a writer of its own.
    #[arg(long, default_value_t = 4, value_name = "N")]
    tenants: usize,
    /// Writers of each tenant, each with a memory of its own.
    #[arg(long, default_value_t = 2, value_name = "N")]
    writers: usize,
    /// Turns of one request.
    #[arg(long, default_value_t = 3, value_name = "N")]
    batch: u64,
    /// How long it goes on.
    #[arg(long, default_value_t = 300, value_name = "N")]
    seconds: u64,
    /// A host is killed so often; 0: never.
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    kill_every: u64,
    /// What each host may have of the cores, such as 0.25, so that more hosts have more of
    /// them on one machine too; for root, by a control group. Without: whatever there is.
    #[arg(long, value_name = "SHARE")]
    cores_each: Option<f64>,
    /// One JSON document on stdout.
    #[arg(long)]
    json: bool,
}

/// Whether every promise was kept.
pub async fn run(args: &Args) -> Result<bool> {
    let mut place = Place::new(args)?;
    let until = Instant::now() + Duration::from_secs(args.seconds);
    let crowd = Crowd::gather(&place, args, until);
    let mut killed = 0;
    while args.kill_every > 0 && Instant::now() + Duration::from_secs(args.kill_every) < until {
        tokio::time::sleep(Duration::from_secs(args.kill_every)).await;
        place.replace(killed % args.hosts)?;
        killed += 1;
    }
    let told = crowd.end().await?;
    let verdict = verdict::of(&place, &told).await?;
    let seconds = args.seconds as f64;
    let wrong = verdict.wrong();
    eprintln!(
        "{} hosts, {killed} killed, {} s: {} turns acknowledged ({:.0}/s), {} asked again, \
         {} searches, {} events followed",
        args.hosts,
        args.seconds,
        told.acknowledged(),
        told.acknowledged() as f64 / seconds,
        told.retries,
        told.searches,
        verdict.events,
    );
    eprintln!(
        "lost {}, doubled {}, out of order {}, not found elsewhere {}, of other tenants {}, \
         events missing {}, events twice {}, findings of check {}",
        verdict.lost,
        verdict.doubled,
        verdict.disordered,
        told.missed,
        told.foreign + verdict.foreign,
        verdict.events_missing,
        verdict.events_twice,
        verdict.findings.len(),
    );
    eprint!("{}", table("tries", &strings(&HEADS), &told.tally.rows("")));
    told.tally.failures().iter().for_each(|(what, count)| eprintln!("  {count} × {what}"));
    verdict.findings.iter().for_each(|finding| eprintln!("  {finding}"));
    if args.json {
        let document = json!({
            "hosts": args.hosts, "killed": killed, "seconds": args.seconds,
            "acknowledged": told.acknowledged(), "retries": told.retries,
            "searches": told.searches, "events": verdict.events, "lost": verdict.lost,
            "doubled": verdict.doubled, "disordered": verdict.disordered,
            "missed": told.missed, "foreign": told.foreign + verdict.foreign,
            "eventsMissing": verdict.events_missing, "eventsTwice": verdict.events_twice,
            "findings": verdict.findings, "tries": told.tally.to_json(),
        });
        println!("{document}");
    }
    Ok(wrong + told.missed + told.foreign == 0)
}
