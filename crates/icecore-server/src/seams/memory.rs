//! Entries that are planted, compacted and consolidated.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use icecore::Scope;
use icecore::knowledge::{
    CompactionRequest, ConsolidationTrigger, EntryQuery, MAX_ENTRIES, NewEntryRequest,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::app::{App, Shared};
use crate::auth::{Caller, Writer};
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::request_id;
use crate::wire;

/// Entries that are planted at once.
pub(super) const MAX_PLANTED: usize = 1_000;

/// The memory that the suite consolidates without having put anything into it.
const UNSEEDED: &str = "mem://conformance/consolidation";

/// What stands there then: some of it twice, some of it overtaken.
const CORPUS: [&str; 6] = [
    "The quarterly review is on the last Friday of March.",
    "the quarterly review is on the last friday of march",
    "The office printer stands on the second floor.",
    "The office printer stands on the second floor, beside the kitchen.",
    "Ines prefers to be called in the morning.",
    "Deliveries are left at the back door.",
];

pub(super) async fn scope(
    app: &App,
    caller: &Caller,
    fields: &Fields<'_>,
) -> Result<Scope, ApiError> {
    let memory = fields.text("memoryRef")?;
    let memory = memory.ok_or_else(|| ApiError::invalid("field `memoryRef` is missing"))?;
    caller.scope(app, Some(&memory)).await
}

/// Puts entries under the caller's own ids.
pub(super) async fn seed(
    State(app): State<Shared>,
    Writer(caller): Writer,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let scope = scope(&app, &caller, &fields).await?;
    // All of it is read before any of it is put.
    let drafts = drafts(&fields)?;
    let mut planted = Vec::with_capacity(drafts.len());
    for request in drafts {
        planted.push(app.memory.put_entry(&scope, request).await?.id);
    }
    Ok(wire::json(StatusCode::CREATED, json!({ "plantedIds": planted }).to_string()))
}

/// The entries that a request wants planted.
fn drafts(fields: &Fields<'_>) -> Result<Vec<NewEntryRequest>, ApiError> {
    let entries = fields.list("entries")?;
    if entries.len() > MAX_PLANTED {
        let message = format!("field `entries` has more than {MAX_PLANTED} entries");
        return Err(ApiError::invalid(message));
    }
    let draft = |(index, raw): (usize, &RawValue)| {
        let wrong = |reason| ApiError::invalid(format!("field `entries[{index}]{reason}"));
        if !raw.get().starts_with('{') {
            return Err(wrong("` must be an object"));
        }
        let entry = Fields::parse(raw.get().as_bytes())?;
        Ok(NewEntryRequest {
            id: Some(entry.text("id")?.ok_or_else(|| wrong(".id` is missing"))?),
            content: entry.text("content")?.ok_or_else(|| wrong(".content` is missing"))?,
            tags: entry.words("tags")?,
            expires_at: entry.time("expiresAt")?,
            claim: None,
        })
    };
    entries.into_iter().enumerate().map(draft).collect()
}

/// Compacts a memory now, as the worker would, and shows what was written.
pub(super) async fn compact(
    State(app): State<Shared>,
    Writer(caller): Writer,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let scope = scope(&app, &caller, &fields).await?;
    let bounds = app.memory.compaction_settings();
    let input = fields.limit("maxInputEntries", bounds.input_entries, "compact_input_entries")?;
    let output = fields.limit("maxOutputBytes", bounds.output_bytes, "compact_output_bytes")?;
    let request = CompactionRequest {
        max_input_entries: input.unwrap_or(bounds.input_entries),
        max_output_bytes: output.unwrap_or(bounds.output_bytes),
    };
    let Some(done) = app.memory.compact_entries(&scope, request).await? else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let body = json!({
        "type": "memory.compacted",
        "payload": told(&done.payload)?,
        "outputContent": done.entry.content.as_str(),
    });
    Ok(wire::ok(body.to_string()))
}

/// Consolidates a memory now.
pub(super) async fn consolidate(
    State(app): State<Shared>,
    Writer(caller): Writer,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let scope = scope(&app, &caller, &fields).await?;
    let canary = match fields.flag("includeSecretCanary")? {
        true => Some(format!("sk-{0}{0}{0}", request_id::made())),
        false => None,
    };
    if scope.memory() == UNSEEDED && listed(&app, &scope).await?.is_empty() {
        for content in CORPUS {
            put(&app, &scope, content.to_owned()).await?;
        }
    }
    if let Some(canary) = &canary {
        // Twice, so that it is among what is put together.
        for sentence in ["The gate opens with", "the gate opens with"] {
            put(&app, &scope, format!("{sentence} {canary}.")).await?;
        }
    }
    let done = app.memory.consolidate(&scope, ConsolidationTrigger::OnDemand).await?;
    let mut body = json!({ "event": told(&done.payload)? });
    if let Some(canary) = &canary {
        let is_leaked = listed(&app, &scope).await?.iter().any(|text| text.contains(canary));
        body["secretLeaked"] = json!(is_leaked);
    }
    Ok(wire::ok(body.to_string()))
}

/// The payload of an event.
pub(super) fn told(payload: &str) -> Result<Value, ApiError> {
    serde_json::from_str(payload).map_err(|error| ApiError::internal(&error))
}

async fn put(app: &App, scope: &Scope, content: String) -> Result<(), ApiError> {
    let request = NewEntryRequest { content, ..NewEntryRequest::default() };
    app.memory.put_entry(scope, request).await?;
    Ok(())
}

/// What the entries in force say.
async fn listed(app: &App, scope: &Scope) -> Result<Vec<String>, ApiError> {
    let query = EntryQuery { limit: MAX_ENTRIES, ..EntryQuery::default() };
    let found = app.memory.entries(scope, &query).await?.entries;
    Ok(found.into_iter().map(|entry| entry.content.into_string()).collect())
}
