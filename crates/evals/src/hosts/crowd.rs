//! Those who write, look and follow.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::Args;
use super::place::{Doors, Place, tenant_name};
use crate::Result;
use crate::host::client::{Answer, Ask, Client};
use crate::host::tally::Tally;

/// Between two tries while a host is away.
const PAUSE: Duration = Duration::from_millis(20);

/// What was told to the crowd.
#[derive(Default)]
pub struct Told {
    /// By tenant and memory: how many turns were acknowledged.
    pub written: BTreeMap<(usize, String), u64>,
    /// By tenant: positions and turn ids of the events that were followed, in order.
    pub followed: BTreeMap<usize, Vec<(u64, String)>>,
    pub retries: u64,
    pub searches: u64,
    /// Acknowledged turns that another host did not find.
    pub missed: u64,
    /// Answers that held words of another tenant.
    pub foreign: u64,
    /// Every try: how long those took that were answered well, and why others were not.
    pub tally: Tally,
}

impl Told {
    pub fn acknowledged(&self) -> u64 {
        self.written.values().sum()
    }
}

pub struct Crowd {
    members: JoinSet<Result<()>>,
    followers: JoinSet<Result<()>>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    told: Mutex<Told>,
    retries: AtomicU64,
    is_over: std::sync::atomic::AtomicBool,
}

/// One who asks hosts in turn.
struct Member {
    tenant: usize,
    key: String,
    doors: Doors,
    host: usize,
    open: Option<Client>,
    seen: Arc<Seen>,
}

impl Crowd {
    pub fn gather(place: &Place, args: &Args, until: Instant) -> Self {
        let seen = Arc::new(Seen::default());
        let (mut members, mut followers) = (JoinSet::new(), JoinSet::new());
        for (tenant, key) in place.keys.iter().enumerate() {
            let member = |host| Member {
                tenant,
                key: key.clone(),
                doors: place.doors.clone(),
                host,
                open: None,
                seen: Arc::clone(&seen),
            };
            for writer in 0..args.writers {
                let memory = format!("memory-{writer}");
                members.spawn(member(tenant + writer).write(memory, args.batch, until));
            }
            followers.spawn(member(tenant).follow());
        }
        Self { members, followers, seen }
    }

    /// Waits until all are done, and followers have seen all.
    pub async fn end(mut self) -> Result<Told> {
        while let Some(done) = self.members.join_next().await {
            done??;
        }
        self.seen.is_over.store(true, Ordering::Relaxed);
        while let Some(done) = self.followers.join_next().await {
            done??;
        }
        let mut told = self.seen.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retries = self.seen.retries.load(Ordering::Relaxed);
        Ok(std::mem::take(&mut *told))
    }
}

impl Member {
    /// Asks until somebody answers with success, each time the next host.
    async fn ask(&mut self, request: &Ask) -> Result<Value> {
        let begun = Instant::now();
        loop {
            let answer = self.try_once(request).await;
            self.told(|told| told.tally.count(request.kind, &answer));
            match answer {
                Ok(answer) if (200..300).contains(&answer.status) => {
                    return Ok(serde_json::from_slice(&answer.body)?);
                }
                // What is refused for good would be refused for ever.
                Ok(answer) if answer.status < 500 && answer.status != 429 => {
                    let said = String::from_utf8_lossy(&answer.body).into_owned();
                    return Err(format!("{} {}: {said}", request.kind, answer.status).into());
                }
                Ok(_) => {}
                Err(_) => self.open = None,
            }
            self.seen.retries.fetch_add(1, Ordering::Relaxed);
            if begun.elapsed() > Duration::from_secs(120) {
                return Err(format!("nobody answered {} for two minutes", request.kind).into());
            }
            tokio::time::sleep(PAUSE).await;
            self.turn();
        }
    }

    async fn try_once(&mut self, request: &Ask) -> Result<Answer> {
        let client = match &mut self.open {
            Some(client) => client,
            none => none.insert(Client::connect(&self.doors.at(self.host, &self.key)).await?),
        };
        client.ask(request).await
    }

    /// The next host.
    fn turn(&mut self) {
        self.host += 1;
        self.open = None;
    }

    async fn write(mut self, memory: String, batch: u64, until: Instant) -> Result<()> {
        let (tenant, mut next) = (tenant_name(self.tenant), 0);
        while Instant::now() < until {
            let turns: Vec<Value> = (next..next + batch)
                .map(|number| {
                    let word = word(&tenant, &memory, number);
                    let content = format!("{word} is what {tenant} said to {memory}");
                    json!({ "id": format!("turn-{number}"), "role": "user", "content": content })
                })
                .collect();
            let body = json!({ "memoryRef": memory, "turns": turns });
            self.ask(&Ask::post("add", "/sessions/talk/turns".to_owned(), &body)).await?;
            next += batch;
            self.told(|told| told.written.insert((self.tenant, memory.clone()), next));
            // The one that was acknowledged last, through another host.
            self.turn();
            if next % (batch * 4) == 0 {
                self.look(&tenant, &memory, next - 1).await?;
            }
        }
        Ok(())
    }

    async fn look(&mut self, tenant: &str, memory: &str, number: u64) -> Result<()> {
        let word = word(tenant, memory, number);
        let found = self.ask(&Ask::search(memory, &word)).await?.to_string();
        let context = self.ask(&Ask::context(memory, &word, 500)).await?.to_string();
        let is_missed = !found.contains(&word) || !context.contains(&word);
        let others = format!("{found}{context}");
        // A text may be cut after the hyphen.
        let names_other = |at: usize| {
            let number = others[at + "tenant-".len()..].starts_with(|c: char| c.is_ascii_digit());
            number && !others[at..].starts_with(tenant)
        };
        let is_foreign = others.match_indices("tenant-").any(|(at, _)| names_other(at));
        self.told(|told| {
            told.searches += 2;
            told.missed += u64::from(is_missed);
            told.foreign += u64::from(is_foreign);
        });
        Ok(())
    }

    /// Reads the events of the tenant page by page, from host to host, until all is over
    /// and nothing more comes.
    async fn follow(mut self) -> Result<()> {
        let mut after = 0;
        loop {
            let is_over = self.seen.is_over.load(Ordering::Relaxed);
            let page = self.ask(&Ask::get("events", &format!("/events?after={after}"))).await?;
            let events = page["events"].as_array().ok_or("no list of events")?.clone();
            for event in &events {
                after = event["seq"].as_u64().ok_or("an event without a number")?;
                if event["type"] == "turn.appended" {
                    let turn = event["payload"]["turnId"].as_str().unwrap_or_default().to_owned();
                    self.told(|told| {
                        told.followed.entry(self.tenant).or_default().push((after, turn));
                    });
                }
            }
            if is_over && events.is_empty() {
                return Ok(());
            }
            if events.is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            self.turn();
        }
    }

    fn told<T>(&self, note: impl FnOnce(&mut Told) -> T) {
        note(&mut self.seen.told.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A word that no other turn has.
fn word(tenant: &str, memory: &str, number: u64) -> String {
    format!("w{number}x{}", format!("{tenant}{memory}").replace('-', ""))
}
