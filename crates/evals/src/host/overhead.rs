//! What HTTP costs: the same requests in-process and over one connection, in turn.

use std::time::Instant;

use icecore::{ContextRequest, Memory, Principal, RawTurn, Scope, SearchRequest, Tenant};
use serde_json::{Value, json};

use super::client::{Ask, Client};
use super::talk::Talk;
use super::tally::Tally;
use super::{Args, Found, filled};
use crate::Result;

const KINDS: [&str; 3] = ["context", "search", "add"];

const BUDGET: u32 = 1_000;

/// The promise: milliseconds more, at the median.
const MORE_MS: f64 = 0.3;

pub async fn run(args: &Args) -> Result<Found> {
    let server = filled(args).await?;
    let dir = tempfile::tempdir()?;
    let memory = Memory::open(dir.path()).await?;
    let scope = fill(&memory, args.turns).await?;
    // The host's worker runs beside its requests, and so does ours.
    let worker = tokio::spawn({
        let memory = memory.clone();
        async move { memory.work_until(std::future::pending()).await }
    });
    let mut client = Client::connect(&server.door).await?;
    let (mut inside, mut http) = (Tally::default(), Tally::default());
    let mut talk = Talk::new(1);
    for number in 0..args.requests {
        for kind in KINDS {
            let text = if kind == "add" { talk.turn() } else { talk.question() };
            let ask = asked(kind, &text);
            // Each goes first as often as the other.
            if number % 2 == 0 {
                within(&memory, &scope, kind, &text, &mut inside).await?;
                http.count(kind, &client.ask(&ask).await);
            } else {
                http.count(kind, &client.ask(&ask).await);
                within(&memory, &scope, kind, &text, &mut inside).await?;
            }
        }
    }
    worker.abort();
    let mut told = compared(&inside, &http);
    told.is_sound &= server.stop()?;
    Ok(told)
}

fn compared(inside: &Tally, http: &Tally) -> Found {
    let more = |kind: &str| http.at(Some(kind), 0.5) - inside.at(Some(kind), 0.5);
    let note = |kind: &str| {
        format!(
            "{kind}: HTTP costs {:.3} ms more at the median (to hold: {MORE_MS} ms)",
            more(kind)
        )
    };
    let mut rows = inside.rows("in-process");
    rows.extend(http.rows("http"));
    let all: Vec<(String, Value)> =
        KINDS.iter().map(|kind| ((*kind).to_owned(), json!(more(kind)))).collect();
    Found {
        rows,
        notes: KINDS.iter().map(|kind| note(kind)).collect(),
        document: json!({ "inProcess": inside.to_json(), "http": http.to_json(),
            "moreMs": Value::Object(all.into_iter().collect()) }),
        is_sound: http.failed() == 0 && KINDS.iter().all(|kind| more(kind) < MORE_MS),
    }
}

/// The same turns that the host got.
async fn fill(memory: &Memory, turns: usize) -> Result<Scope> {
    let tenant = Principal::local_operator(Tenant::new("default")?);
    let scope = memory.scope(&tenant, "default").await?;
    let mut talk = Talk::new(turns as u64);
    let all: Vec<String> = (0..turns).map(|_| talk.turn()).collect();
    for (number, batch) in all.chunks(500).enumerate() {
        let turns = batch.iter().map(|content| RawTurn::new("user", content.as_str())).collect();
        memory.remember(&scope, &format!("filled-{number}"), turns).await?;
    }
    memory.settle(|_, _| {}).await?;
    Ok(scope)
}

fn asked(kind: &str, text: &str) -> Ask {
    match kind {
        "add" => Ask::add("default", "added", &[text.to_owned()]),
        "search" => Ask::search("default", text),
        _ => Ask::context("default", text, BUDGET),
    }
}

async fn within(
    memory: &Memory,
    scope: &Scope,
    kind: &'static str,
    text: &str,
    tally: &mut Tally,
) -> Result<()> {
    let begun = Instant::now();
    match kind {
        "add" => drop(memory.remember(scope, "added", vec![RawTurn::new("user", text)]).await?),
        "search" => drop(memory.search(scope, &SearchRequest::new(text)).await?),
        _ => {
            let query = Some(text.to_owned());
            let request = ContextRequest { query, budget: BUDGET, ..ContextRequest::default() };
            drop(memory.context(scope, request).await?);
        }
    }
    tally.add(kind, begun.elapsed());
    Ok(())
}
