//! Finding what matters.

use axum::extract::State;
use axum::response::Response;
use icecore::recall::{DEFAULT_HITS, DocKind, MAX_HITS, Mode};
use icecore::{Millis, SearchRequest};
use utoipa::ToSchema;

use crate::app::Shared;
use crate::auth::Reader;
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::{Attempt, replay};
use crate::limits::Limits;
use crate::params::{InMemory, Params};
use crate::wire;

const OPERATION: &str = "POST /search";

/// What is looked for.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
struct SearchBody {
    /// Which memory; `default` where none is named.
    memory_ref: Option<String>,
    /// Words or a question.
    #[schema(example = "When do we leave for Lisbon?")]
    query: String,
    /// The most hits.
    #[schema(example = 5)]
    limit: Option<usize>,
    /// How hits are ranked; `hybrid` where nothing is said.
    #[schema(value_type = Option<String>)]
    mode: Mode,
    /// Only these kinds; all where none is named.
    #[schema(value_type = Option<Vec<String>>)]
    kinds: Vec<DocKind>,
    /// Only what is from this session.
    session: Option<String>,
    /// Only turns of this role.
    role: Option<String>,
    /// Only what is not before this time.
    #[schema(value_type = Option<String>, format = DateTime)]
    after: Option<Millis>,
    /// Only what is before this time.
    #[schema(value_type = Option<String>, format = DateTime)]
    before: Option<Millis>,
}

/// The most hits that a search may ask for.
pub(crate) fn most_hits(limits: &Limits) -> usize {
    limits.page.min(MAX_HITS)
}

/// Hits of a search that asks for no number of them.
pub(crate) fn usual_hits(limits: &Limits) -> usize {
    DEFAULT_HITS.min(most_hits(limits))
}

impl SearchBody {
    fn read(fields: &Fields<'_>, params: &Params, limits: &Limits) -> Result<Self, ApiError> {
        let query = fields.text("query")?;
        let query = query.ok_or_else(|| ApiError::invalid("field `query` is missing"))?;
        if query.trim().is_empty() {
            return Err(ApiError::invalid("field `query` is empty; say what is looked for"));
        }
        let kinds = fields.words("kinds")?;
        Ok(Self {
            memory_ref: fields.memory(params.memory()?)?,
            query,
            limit: fields.limit("limit", most_hits(limits), "page")?,
            mode: mode(fields)?,
            kinds: kinds.iter().map(|word| kind(word)).collect::<Result<_, _>>()?,
            session: fields.text("session")?,
            role: fields.text("role")?,
            after: fields.time("after")?,
            before: fields.time("before")?,
        })
    }

    fn request(self, limits: &Limits) -> SearchRequest {
        SearchRequest {
            query: self.query,
            limit: self.limit.unwrap_or(usual_hits(limits)),
            mode: self.mode,
            kinds: self.kinds,
            session: self.session,
            role: self.role,
            after: self.after,
            before: self.before,
        }
    }
}

/// Ranks what a memory holds against a query. Though posted, it only reads.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/search",
    operation_id = "search",
    tag = "recall",
    params(InMemory),
    request_body(
        content = SearchBody,
        example = json!({"query": "When do we leave for Lisbon?", "limit": 5})
    ),
    responses((status = 200, description = "What was found", body = wire::Hits))
)]
pub(crate) async fn search(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    let body = SearchBody::read(&Fields::parse(&posted.bytes)?, &params, &app.limits)?;
    let scope = caller.scope(&app, body.memory_ref.as_deref()).await?;
    let request = body.request(&app.limits);

    let attempt = Attempt::begin(&app, &caller, OPERATION, &posted).await?;
    if let Some(attempt) = &attempt
        && let Some(body) = app.answers.find(&app, attempt).await?
    {
        return Ok(replay(200, body));
    }
    let body = wire::text(&wire::Hits::from(&app.memory.search(&scope, &request).await?));
    if let Some(attempt) = attempt {
        app.answers.keep(attempt, &body);
    }
    Ok(wire::ok(body))
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
