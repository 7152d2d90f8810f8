//! A memory that is distilled under a budget.

use axum::extract::State;
use axum::response::Response;
use icecore::dreams::dream::INDEX_PATH;
use icecore::dreams::{Dream, DreamRequest};
use icecore::knowledge::NewEntryRequest;
use icecore::{MemoryError, Scope};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::app::{App, Shared};
use crate::auth::{Caller, Writer};
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::request_id;
use crate::seams::memory::{MAX_PLANTED, scope, told};
use crate::wire;

/// The memory that the suite distils without having put anything into it.
const UNSEEDED: &str = "conformance-distill";

/// What it is asked to distil then.
const CORPUS: [&str; 8] = [
    "Teodora moved the pottery class to Thursday evenings at seven.",
    "The kiln is serviced every April; last time the thermostat was replaced.",
    "Decision: glazes are ordered from the shop in Faenza from now on.",
    "Always label unfinished bowls with the name of who made them.",
    "Radu prefers to be called in the morning, never after six.",
    "The spare key of the studio hangs behind the blue cupboard.",
    "Still open: who takes the exhibits to the fair in September?",
    "On 2024-03-14 the roof over the drying room was repaired.",
];

/// Distils a memory now. Where sources are given they are put there first, the dreams
/// before are undone, and nothing else is read: whoever calls twice gets the same
/// archive.
pub(super) async fn distil(
    State(app): State<Shared>,
    Writer(caller): Writer,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let scope = scope(&app, &caller, &fields).await?;
    let budget = fields.positive("tokenBudget")?;
    let wants_index = fields.choice("indexEmitted")?;
    let mut sources = sources(&fields)?;
    if sources.is_empty() && scope.memory() == UNSEEDED {
        sources.extend(CORPUS.map(str::to_owned));
    }
    let canary = match fields.flag("includeSecretCanary")? {
        true => Some(format!("sk-{0}{0}{0}", request_id::made())),
        false => None,
    };
    sources.extend(canary.iter().map(|canary| format!("The gate opens with {canary}.")));

    let only = plant(&app, &scope, sources).await?;
    let request = DreamRequest {
        principal: caller.key_id().to_owned(),
        only: (!only.is_empty()).then(|| only.clone()),
        index: wants_index.unwrap_or(true),
        ..DreamRequest::manual(budget)
    };
    let dream = match begin_anew(&app, &scope, request).await {
        Ok(dream) => dream,
        Err(error) => {
            // What is refused leaves nothing.
            for id in &only {
                app.memory.delete_entry(&scope, id).await?;
            }
            return Err(error.into());
        }
    };
    let mut body = json!({
        "event": event(&dream)?,
        "archiveChecksum": dream.record.archive.to_string(),
        "indexUpdated": dream.record.index_updated,
    });
    if wants_index != Some(false) && dream.record.index_updated {
        body["indexFile"] = index_file(&app, &caller).await?;
    }
    if let Some(canary) = &canary {
        let archive =
            app.memory.archive(scope.tenant(), Some(scope.memory()), dream.record.archive);
        let archive = archive.await?;
        let is_leaked = String::from_utf8_lossy(&archive).contains(canary.as_str())
            || body.to_string().contains(canary.as_str());
        body["secretLeaked"] = json!(is_leaked);
    }
    Ok(wire::ok(body.to_string()))
}

/// Dreams, over chosen entries as if nothing had been dreamt before. A budget that is
/// too small is refused before anything is undone.
async fn begin_anew(app: &App, scope: &Scope, request: DreamRequest) -> Result<Dream, MemoryError> {
    loop {
        match app.memory.dream(scope, request.clone(), |_| {}).await {
            Err(MemoryError::DreamInForce { run, .. }) => {
                app.memory.undo_dream(scope.tenant(), &run).await?;
            }
            done => return done,
        }
    }
}

/// The sources that a request gives, as text or as objects that have some.
fn sources(fields: &Fields<'_>) -> Result<Vec<String>, ApiError> {
    let sources = fields.items("sources")?;
    if sources.len() > MAX_PLANTED {
        let message = format!("field `sources` has more than {MAX_PLANTED} sources");
        return Err(ApiError::invalid(message));
    }
    let text = |(index, raw): (usize, &RawValue)| {
        let wrong = || {
            ApiError::invalid(format!(
                "field `sources[{index}]` must be a string or an object with a `content`"
            ))
        };
        match raw.get().starts_with('{') {
            true => Fields::parse(raw.get().as_bytes())?.text("content")?.ok_or_else(wrong),
            false => serde_json::from_str(raw.get()).map_err(|_| wrong()),
        }
    };
    sources.into_iter().enumerate().map(text).collect()
}

/// Puts the sources into the memory; answers their ids.
async fn plant(app: &App, scope: &Scope, sources: Vec<String>) -> Result<Vec<String>, ApiError> {
    let mut planted = Vec::with_capacity(sources.len());
    for content in sources {
        let request = NewEntryRequest { content, ..NewEntryRequest::default() };
        planted.push(app.memory.put_entry(scope, request).await?.id);
    }
    Ok(planted)
}

/// What the log says of a dream.
fn event(dream: &Dream) -> Result<Value, ApiError> {
    let mut event = told(&dream.payload)?;
    event["type"] = json!("memory.compacted");
    Ok(event)
}

/// The index as it lies in the workspace.
async fn index_file(app: &App, caller: &Caller) -> Result<Value, ApiError> {
    let file = app.host.files.get(caller.principal(), INDEX_PATH, None).await?;
    Ok(json!({
        "path": file.info.path,
        "version": file.info.version,
        "content": file.content,
    }))
}
