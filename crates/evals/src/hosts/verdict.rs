//! What is there in the end, beside what was told.

use std::collections::BTreeSet;

use serde_json::Value;

use super::crowd::Told;
use super::place::{Place, tenant_name};
use crate::Result;
use crate::host::client::{Ask, Client};

#[derive(Default)]
pub struct Verdict {
    pub lost: u64,
    pub doubled: u64,
    pub disordered: u64,
    pub foreign: u64,
    pub events: u64,
    pub events_missing: u64,
    pub events_twice: u64,
    pub findings: Vec<String>,
}

impl Verdict {
    pub fn wrong(&self) -> u64 {
        let counts = [self.lost, self.doubled, self.disordered, self.foreign];
        counts.iter().sum::<u64>()
            + self.events_missing
            + self.events_twice
            + self.findings.len() as u64
    }
}

pub async fn of(place: &Place, told: &Told) -> Result<Verdict> {
    let mut verdict = Verdict::default();
    for (tenant, key) in place.keys.iter().enumerate() {
        let mut client = Client::connect(&place.doors.at(tenant, key)).await?;
        let mut stored = 0;
        let written = told.written.iter().filter(|((of, _), _)| *of == tenant);
        for ((_, memory), acknowledged) in written {
            let turns = turns_of(&mut client, memory).await?;
            stored += turns.len() as u64;
            let ids: Vec<&str> = turns.iter().filter_map(|turn| turn["id"].as_str()).collect();
            let distinct: BTreeSet<&str> = ids.iter().copied().collect();
            verdict.doubled += (ids.len() - distinct.len()) as u64;
            let expected = (0..*acknowledged).map(|number| format!("turn-{number}"));
            verdict.lost += expected.filter(|id| !distinct.contains(id.as_str())).count() as u64;
            let is_next = |(number, id): &(usize, &&str)| ***id == *format!("turn-{number}");
            verdict.disordered += ids.iter().enumerate().filter(|one| !is_next(one)).count() as u64;
            let own = format!(" {} ", tenant_name(tenant));
            let foreign = |turn: &&Value| {
                !turn["content"].as_str().is_some_and(|content| content.contains(&own))
            };
            verdict.foreign += turns.iter().filter(foreign).count() as u64;
        }
        let followed = told.followed.get(&tenant).map_or(&[][..], Vec::as_slice);
        let distinct: BTreeSet<&str> = followed.iter().map(|(_, turn)| turn.as_str()).collect();
        verdict.events += followed.len() as u64;
        verdict.events_twice += (followed.len() - distinct.len()) as u64;
        verdict.events_missing += stored.saturating_sub(distinct.len() as u64);
        let falls = followed.windows(2).filter(|pair| pair[0].0 >= pair[1].0).count();
        verdict.disordered += falls as u64;
    }
    verdict.findings = place.check()?;
    Ok(verdict)
}

async fn turns_of(client: &mut Client, memory: &str) -> Result<Vec<Value>> {
    let mut turns: Vec<Value> = Vec::new();
    loop {
        let after = turns.last().and_then(|turn| turn["seq"].as_u64()).unwrap_or(0);
        let path = format!("/sessions/talk/turns?memoryRef={memory}&after={after}&limit=200");
        let answer = client.ask(&Ask::get("page", &path)).await?;
        let page: Value = serde_json::from_slice(&answer.body)?;
        let page = page["turns"].as_array().ok_or("no list of turns")?;
        if page.is_empty() {
            return Ok(turns);
        }
        turns.extend(page.iter().cloned());
    }
}
