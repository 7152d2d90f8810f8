//! Long-term entries: put, listed, read, deleted.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use icecore::ids::Position;
use icecore::knowledge::{EntryQuery, EntryRank, EntryRecord, NewEntryRequest};
use icecore::store::StoreError;
use icecore::{MemoryError, Millis, Scope};
use icecore_host::outcomes::StoredOutcome;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::app::{App, Shared};
use crate::auth::{Reader, Writer};
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::{Attempt, replay};
use crate::params::{Params, Segment};
use crate::wire;

const OPERATION: &str = "POST /entries";

/// An entry to put.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `request` reads")]
pub(crate) struct EntryBody {
    /// Which memory; `default` where none is named.
    memory_ref: Option<String>,
    /// What to keep, which may be empty; at most `entry_bytes` as UTF-8.
    content: String,
    /// At most `entry_tags`, each of at most `entry_tag_chars` characters. Empty
    /// ones and repeats are left out.
    tags: Option<Vec<String>>,
    /// When it ends by itself, in the future, kept to the millisecond.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

/// An entry.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EntryAnswer {
    /// Given by the host, unique in the tenant.
    id: String,
    memory_ref: String,
    /// Its secrets replaced by markers.
    content: String,
    tags: Vec<String>,
    #[schema(format = DateTime)]
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    /// Whether it was made of other entries; `/entries/{id}/sources` has them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    derived: bool,
    /// The entry that stands for it. Then it is in no list, and can be read by its id.
    #[serde(skip_serializing_if = "Option::is_none")]
    superseded_by: Option<String>,
}

/// Entries in the order asked.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EntriesAnswer {
    entries: Vec<EntryAnswer>,
    /// What a person should know about this answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notices: Vec<String>,
}

/// That an entry is gone.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EntryRemoved {
    id: String,
    memory_ref: String,
    removed: bool,
}

/// What is kept of an answer for retries: nothing that was said.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    id: String,
    created_at: i64,
    expires_at: Option<i64>,
}

fn answer(scope: &Scope, entry: EntryRecord) -> EntryAnswer {
    EntryAnswer {
        id: entry.id,
        memory_ref: scope.memory().to_owned(),
        content: entry.content.into_string(),
        tags: entry.tags.into_iter().map(|tag| tag.into_string()).collect(),
        created_at: entry.created_at.to_rfc3339(),
        expires_at: entry.expires_at.map(Millis::to_rfc3339),
        derived: entry.derived,
        superseded_by: entry.successor,
    }
}

/// Puts an entry, its secrets hidden in content and tags; once answered it survives
/// a crash.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/entries",
    operation_id = "addEntry",
    tag = "entries",
    request_body(
        content = EntryBody,
        example = json!({"content": "Ana is allergic to nuts.", "tags": ["subject:Ana"]})
    ),
    responses((status = 201, description = "The entry as it is kept", body = EntryAnswer))
)]
pub(crate) async fn add(
    State(app): State<Shared>,
    Writer(caller): Writer,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let memory = fields.memory(params.memory()?)?;
    let scope = caller.scope(&app, memory.as_deref()).await?;
    let mut request = request(&fields)?;

    let attempt = Attempt::begin(&app, &caller, OPERATION, &posted).await?;
    if let Some(attempt) = &attempt {
        if let Some(outcome) = attempt.earlier(&app).await? {
            return replay_put(&app, &scope, &request, outcome);
        }
        request.claim = Some(attempt.claim());
    }
    match (app.memory.put_entry(&scope, request.clone()).await, attempt) {
        (Ok(entry), _) => {
            Ok(wire::json(StatusCode::CREATED, json!(answer(&scope, entry)).to_string()))
        }
        // Another process was faster under the same key.
        (Err(MemoryError::Store(StoreError::ClaimTaken)), Some(attempt)) => {
            replay_put(&app, &scope, &request, attempt.of_another(&app).await?)
        }
        (Err(error), _) => Err(error.into()),
    }
}

fn request(fields: &Fields<'_>) -> Result<NewEntryRequest, ApiError> {
    let content = fields.text("content")?;
    Ok(NewEntryRequest {
        id: None,
        content: content.ok_or_else(|| ApiError::invalid("field `content` is missing"))?,
        tags: fields.words("tags")?,
        expires_at: fields.time("expiresAt")?,
        claim: None,
    })
}

/// A kept answer, with what was said put back from the request.
fn replay_put(
    app: &App,
    scope: &Scope,
    request: &NewEntryRequest,
    outcome: StoredOutcome,
) -> Result<Response, ApiError> {
    let kept: Kept = serde_json::from_str(&outcome.body)
        .map_err(|_| ApiError::internal(&"a kept outcome cannot be read"))?;
    let (content, tags) = app.memory.shown_entry(scope, request);
    let body = EntryAnswer {
        id: kept.id,
        memory_ref: scope.memory().to_owned(),
        content: content.into_string(),
        tags: tags.into_iter().map(|tag| tag.into_string()).collect(),
        created_at: Millis(kept.created_at).to_rfc3339(),
        expires_at: kept.expires_at.map(|at| Millis(at).to_rfc3339()),
        derived: false,
        superseded_by: None,
    };
    Ok(replay(outcome.code, json!(body).to_string()))
}

/// Entries in force, newest first or by what they have to say to a query, as of one
/// moment.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/entries",
    operation_id = "listEntries",
    tag = "entries",
    params(
        ("memoryRef" = Option<String>, Query, description = "Which memory; `default` where none is named. One that is not, or cannot be, has no entries."),
        ("limit" = Option<u64>, Query, minimum = 0, description = "At most so many; 0 asks for no limit. Never more than `page`."),
        ("tag" = Option<String>, Query, min_length = 1, max_length = 256, description = "Only entries with this tag."),
        ("tokenBudget" = Option<u64>, Query, minimum = 1, description = "Only the first entries whose contents together are no larger, in the unit of `entry_budget_counter`. One that alone is larger is passed over; the first other one that does not fit ends the list. None is cut."),
        ("rank" = Option<String>, Query, description = "`recency`, or `relevance`, which needs a `query`. Without vectors relevance goes by words alone, and a notice says so."),
        ("query" = Option<String>, Query, description = "What to rank by; ignored without `rank=relevance`."),
        ("at" = Option<u64>, Query, minimum = 0, description = "Only entries that were in force at this position of the log, the `seq` of an event."),
    ),
    responses(
        (status = 200, description = "The entries", body = EntriesAnswer),
        (status = 410, description = "Entries of that position have been purged; `oldest` says how far back one can read.", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn list(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    let query = EntryQuery {
        limit: limit(&app, &params)?,
        tag: params.text("tag")?.map(str::to_owned),
        token_budget: params.number("tokenBudget")?,
        rank: params.text("rank")?.map(rank).transpose()?.unwrap_or_default(),
        query: params.text("query")?.map(str::to_owned),
        at: params.number("at")?.map(Position),
        own: Vec::new(),
    };
    let found = app.memory.entries(&scope, &query).await?;
    let body = EntriesAnswer {
        entries: found.entries.into_iter().map(|entry| answer(&scope, entry)).collect(),
        notices: found.notices,
    };
    Ok(wire::ok(json!(body).to_string()))
}

/// A number of entries: 0 asks for all, and more than a page is a page.
fn limit(app: &App, params: &Params) -> Result<usize, ApiError> {
    let most = app.limits.page;
    Ok(match params.number("limit")? {
        None => app.limits.page_default,
        Some(0) => most,
        Some(limit) => most.min(limit as usize),
    })
}

fn rank(word: &str) -> Result<EntryRank, ApiError> {
    let choices = EntryRank::ALL.map(EntryRank::as_str).join("` or `");
    EntryRank::parse(word)
        .ok_or_else(|| ApiError::invalid(format!("parameter `rank` must be `{choices}`")))
}

/// One entry, in force or stood for by another, which `supersededBy` names.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/entries/{id}",
    operation_id = "readEntry",
    tag = "entries",
    params(
        ("id" = String, Path, description = "The entry's id."),
        ("memoryRef" = Option<String>, Query, description = "Which memory; `default` where none is named."),
        ("at" = Option<u64>, Query, minimum = 0, description = "Only if it was in force at this position of the log."),
    ),
    responses(
        (status = 200, description = "The entry", body = EntryAnswer),
        (status = 410, description = "Entries of that position have been purged.", body = crate::openapi::ErrorBody),
    )
)]
pub(crate) async fn get(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(id): Segment,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    let at = params.number("at")?.map(Position);
    let entry = app.memory.entry(&scope, &id, at).await?;
    Ok(wire::ok(json!(answer(&scope, entry)).to_string()))
}

/// What an entry stands for, oldest first: the entries that it was made of, or that
/// said the same.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/entries/{id}/sources",
    operation_id = "listEntrySources",
    tag = "entries",
    params(
        ("id" = String, Path, description = "The entry's id."),
        ("memoryRef" = Option<String>, Query, description = "Which memory; `default` where none is named."),
    ),
    responses((status = 200, description = "The entries", body = EntriesAnswer))
)]
pub(crate) async fn sources(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(id): Segment,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    let found = app.memory.entry_sources(&scope, &id).await?;
    let entries = found.into_iter().map(|entry| answer(&scope, entry)).collect();
    Ok(wire::ok(json!(EntriesAnswer { entries, notices: Vec::new() }).to_string()))
}

/// Deletes an entry: nobody sees it from now on, but for who reads as of an earlier
/// position.
#[utoipa::path(
    delete,
    path = "/v1/host/icecore/entries/{id}",
    operation_id = "deleteEntry",
    tag = "entries",
    params(
        ("id" = String, Path, description = "The entry's id."),
        ("memoryRef" = Option<String>, Query, description = "Which memory; `default` where none is named."),
    ),
    responses((status = 200, description = "It is gone", body = EntryRemoved))
)]
pub(crate) async fn remove(
    State(app): State<Shared>,
    Writer(caller): Writer,
    Segment(id): Segment,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    let is_removed = app.memory.delete_entry(&scope, &id).await?;
    // Answers to searches may still quote it.
    app.answers.forget(caller.tenant());
    if !is_removed {
        return Err(ApiError::missing("nothing in this memory has that id"));
    }
    let body = EntryRemoved { id, memory_ref: scope.memory().to_owned(), removed: true };
    Ok(wire::ok(json!(body).to_string()))
}
