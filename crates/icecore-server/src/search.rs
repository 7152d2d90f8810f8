//! Finding what matters.

use axum::extract::State;
use axum::response::Response;
use icecore::{DEFAULT_HITS, DocKind, MAX_HITS, Mode, SearchRequest};

use crate::app::Shared;
use crate::auth::Reader;
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::{Attempt, replay};
use crate::params::Params;
use crate::wire;

const OPERATION: &str = "POST /search";

/// Ranks what a memory holds against a query. Though posted, it only reads.
pub(crate) async fn search(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let memory = fields.memory(params.memory()?)?;
    let scope = caller.scope(&app, memory.as_deref()).await?;
    let request = request(&fields, app.limits.page.min(MAX_HITS))?;

    let attempt = Attempt::begin(&app, &caller, OPERATION, &posted).await;
    if let Some(attempt) = &attempt
        && let Some(body) = app.answers.find(attempt)?
    {
        return Ok(replay(200, body));
    }
    let body = wire::hits(&app.memory.search(&scope, &request).await?);
    if let Some(attempt) = attempt {
        app.answers.keep(attempt, &body);
    }
    Ok(wire::ok(body))
}

fn request(fields: &Fields<'_>, most: usize) -> Result<SearchRequest, ApiError> {
    let query = fields.text("query")?;
    let query = query.ok_or_else(|| ApiError::invalid("field `query` is missing"))?;
    if query.trim().is_empty() {
        return Err(ApiError::invalid("field `query` is empty; say what is looked for"));
    }
    Ok(SearchRequest {
        query,
        limit: fields.limit("limit", most, "page")?.unwrap_or(DEFAULT_HITS.min(most)),
        mode: mode(fields)?,
        kinds: fields.words("kinds")?.iter().map(|word| kind(word)).collect::<Result<_, _>>()?,
        session: fields.text("session")?,
        role: fields.text("role")?,
        after: fields.time("after")?,
        before: fields.time("before")?,
    })
}

fn mode(fields: &Fields<'_>) -> Result<Mode, ApiError> {
    let Some(word) = fields.text("mode")? else { return Ok(Mode::default()) };
    Mode::parse(&word).ok_or_else(|| {
        let choices = Mode::ALL.map(Mode::as_str).join("`, `");
        ApiError::invalid(format!("field `mode` must be one of `{choices}`"))
    })
}

fn kind(word: &str) -> Result<DocKind, ApiError> {
    DocKind::parse(word).ok_or_else(|| {
        let choices = DocKind::ALL.map(DocKind::as_str).join("`, `");
        ApiError::invalid(format!("field `kinds` may hold `{choices}`"))
    })
}
