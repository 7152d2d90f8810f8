//! Many tenants beside one: the same requests to two hosts, in turn.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::client::{Ask, Client, Door};
use super::server::{Place, Server};
use super::talk::Talk;
use super::tally::Tally;
use super::{Args, Found};
use crate::Result;

/// Turns of each memory.
const TURNS: usize = 10;

/// Memories filled at once.
const FILLERS: usize = 16;

/// Memories that are asked of each host: as many of the many as of the few.
const ASKED: usize = 50;

const BUDGET: u32 = 500;

/// The promise: p95 grows by no more than measuring twice would make it.
const MOST_RATIO: f64 = 1.25;

/// A host with the doors of its tenants.
struct Crowd {
    server: Server,
    doors: Vec<Door>,
    memories: usize,
}

pub async fn run(args: &Args) -> Result<Found> {
    let few = Crowd::gather(args, 1).await?;
    let many = Crowd::gather(args, args.tenant_count).await?;
    let (mut one, mut all) = (Tally::default(), Tally::default());
    let (mut few_clients, mut many_clients) = (few.clients().await?, many.clients().await?);
    let mut talk = Talk::new(11);
    for number in 0..args.requests {
        for kind in ["search", "context", "add"] {
            let (question, turn) = (talk.question(), talk.turn());
            let ask = |memory: &str| match kind {
                "search" => Ask::search(memory, &question),
                "context" => Ask::context(memory, &question, BUDGET),
                _ => Ask::add(memory, "s", std::slice::from_ref(&turn)),
            };
            let place = number % ASKED;
            for (crowd, clients, tally) in
                [(&few, &mut few_clients, &mut one), (&many, &mut many_clients, &mut all)]
            {
                let (tenant, memory) = crowd.place(place);
                tally.count(kind, &clients[tenant].ask(&ask(&memory)).await);
            }
        }
    }
    let told = compared(args, &one, &all);
    let ended = few.server.stop()? & many.server.stop()?;
    Ok(Found { is_sound: told.is_sound && ended, ..told })
}

impl Crowd {
    async fn gather(args: &Args, tenants: usize) -> Result<Self> {
        let place = Place::new(&args.bin, args.config.as_deref())?;
        let keys: Vec<String> =
            (0..tenants).map(|n| place.key(&format!("tenant-{n}"))).collect::<Result<_>>()?;
        let server = place.start()?;
        let door = |key| Door { address: server.door.address, key };
        let doors: Vec<Door> = keys.into_iter().map(door).collect();
        fill(&doors, args.memories).await?;
        server.settled().await?;
        Ok(Self { doors, memories: args.memories, server })
    }

    async fn clients(&self) -> Result<Vec<Client>> {
        let mut clients = Vec::new();
        for door in &self.doors {
            clients.push(Client::connect(door).await?);
        }
        Ok(clients)
    }

    /// One of the memories that are asked, spread over all tenants.
    fn place(&self, number: usize) -> (usize, String) {
        let spread = number * (self.doors.len() * self.memories) / ASKED;
        (spread % self.doors.len(), name(spread / self.doors.len()))
    }
}

fn name(memory: usize) -> String {
    format!("memory-{memory}")
}

async fn fill(doors: &[Door], memories: usize) -> Result<()> {
    let doors: Arc<[Door]> = doors.into();
    let mut fillers = JoinSet::new();
    for filler in 0..FILLERS {
        let doors = Arc::clone(&doors);
        fillers.spawn(async move {
            for place in (filler..doors.len() * memories).step_by(FILLERS) {
                let (door, memory) = (&doors[place / memories], place % memories);
                let mut talk = Talk::new(place as u64);
                let turns: Vec<String> = (0..TURNS).map(|_| talk.turn()).collect();
                let mut client = Client::connect(door).await?;
                let answer = client.ask(&Ask::add(&name(memory), "s", &turns)).await?;
                if answer.status != 201 {
                    return Err(format!("filling: the host answers {}", answer.status).into());
                }
            }
            Ok(())
        });
    }
    fillers.join_all().await.into_iter().collect()
}

fn compared(args: &Args, one: &Tally, all: &Tally) -> Found {
    let ratio = |kind: &str| all.at(Some(kind), 0.95) / one.at(Some(kind), 0.95);
    let mut rows = one.rows("1 tenant");
    rows.extend(all.rows(&format!("{} tenants", args.tenant_count)));
    let kinds = one.kinds();
    let note = |kind: &&str| format!("{kind}: p95 × {:.2} (to hold: × {MOST_RATIO})", ratio(kind));
    let mut notes = vec![format!(
        "{} memories of 1 tenant beside {} of {}",
        args.memories,
        args.memories * args.tenant_count,
        args.tenant_count
    )];
    notes.extend(kinds.iter().map(note));
    let failures = one.failures().iter().chain(all.failures());
    notes.extend(failures.map(|(what, count)| format!("{count} × {what}")));
    let ratios: serde_json::Map<String, Value> =
        kinds.iter().map(|kind| ((*kind).to_owned(), json!(ratio(kind)))).collect();
    Found {
        rows,
        notes,
        document: json!({ "one": one.to_json(), "many": all.to_json(), "p95Ratio": ratios }),
        is_sound: one.failed() + all.failed() == 0
            && kinds.iter().all(|kind| ratio(kind) < MOST_RATIO),
    }
}
