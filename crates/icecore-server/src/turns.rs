//! Adding turns to a session, and reading them back.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use icecore::formats::turn_jsonl;
use icecore::store::StoreError;
use icecore::{Append, MemoryError, Scope, Seq, Tenant, TurnInput};
use icecore_host::outcomes::StoredOutcome;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::app::{App, Shared};
use crate::auth::{Reader, Writer};
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::{Attempt, replay};
use crate::params::{InMemory, PageBySeq, Params, Segment};
use crate::wire::{self, Added};
use crate::work::beside;

const OPERATION: &str = "POST /sessions/{session}/turns";

/// Turns to add.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
struct TurnsBody<'a> {
    /// Which memory; `default` where none is named.
    memory_ref: Option<String>,
    // In their own spelling, which is read later.
    #[schema(value_type = Vec<wire::NewTurn>)]
    turns: Vec<&'a RawValue>,
    /// Adds also what was forgotten once.
    #[schema(value_type = Option<bool>)]
    insist: bool,
}

impl<'a> TurnsBody<'a> {
    fn read(fields: &Fields<'a>, params: &Params) -> Result<Self, ApiError> {
        Ok(Self {
            memory_ref: fields.memory(params.memory()?)?,
            insist: fields.flag("insist")?,
            turns: fields.list("turns")?,
        })
    }
}

/// Adds turns, all or none; once answered they survive a crash.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/sessions/{session}/turns",
    operation_id = "addTurns",
    tag = "sessions",
    params(("session" = String, Path, description = "The session; a new name begins one.", example = "trip"), InMemory),
    request_body(
        content = TurnsBody,
        example = json!({"turns": [
            {"role": "user", "name": "Ana", "content": "We leave for Lisbon on 4 May."},
            {"role": "assistant", "content": "Noted: Lisbon, 4 May."},
        ]})
    ),
    responses((status = 201, description = "They are kept", body = Added))
)]
pub(crate) async fn add(
    State(app): State<Shared>,
    Writer(caller): Writer,
    Segment(session): Segment,
    params: Params,
    posted: Posted,
) -> Result<Response, ApiError> {
    let (reader, bytes, of) = (Arc::clone(&app), posted.bytes.clone(), session.clone());
    let (memory_ref, insist, turns) = beside(bytes.len(), move || {
        let body = TurnsBody::read(&Fields::parse(&bytes)?, &params)?;
        Ok::<_, ApiError>((body.memory_ref, body.insist, read_turns(&reader, &of, body.turns)))
    })
    .await??;
    let scope = caller.scope(&app, memory_ref.as_deref()).await?;
    let turns = turns?;

    let attempt = Attempt::begin(&app, &caller, OPERATION, &posted).await?;
    let (reader, tenant) = (Arc::clone(&app), scope.tenant().clone());
    let (turns, ids) = beside(posted.bytes.len(), move || {
        let ids = client_ids(&reader, &tenant, &turns);
        (turns, ids)
    })
    .await?;
    if let Some(attempt) = &attempt
        && let Some(outcome) = attempt.earlier(&app).await?
    {
        return replay_added(outcome, ids);
    }
    let append = Append { session, insist, claim: attempt.as_ref().map(Attempt::claim), turns };
    answer(&app, &scope, append, attempt, ids).await
}

async fn answer(
    app: &App,
    scope: &Scope,
    append: Append,
    attempt: Option<Attempt>,
    ids: Vec<Option<String>>,
) -> Result<Response, ApiError> {
    match (app.memory.append(scope, append).await, attempt) {
        (Ok(remembered), _) => {
            Ok(wire::json(StatusCode::CREATED, Added::from(remembered).to_json()))
        }
        // Another process was faster under the same key.
        (Err(MemoryError::Store(StoreError::ClaimTaken)), Some(attempt)) => {
            replay_added(attempt.of_another(app).await?, ids)
        }
        (Err(error), _) => Err(error.into()),
    }
}

fn read_turns(app: &App, session: &str, given: Vec<&RawValue>) -> Result<Vec<TurnInput>, ApiError> {
    let most = app.limits.turns_per_request;
    if given.len() > most {
        return Err(ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_many_turns",
            format!("a request adds at most {most} turns (`turns_per_request`)"),
        )
        .with(serde_json::json!({ "limit": "turns_per_request", "most": most })));
    }
    if given.is_empty() {
        return Err(ApiError::invalid("field `turns` is empty; give at least one turn"));
    }
    let read = |(index, turn): (usize, &RawValue)| {
        read_turn(session, turn.get()).map_err(|error| error.of_turn(index))
    };
    given.into_iter().enumerate().map(read).collect()
}

fn read_turn(session: &str, text: &str) -> Result<TurnInput, ApiError> {
    let line = turn_jsonl::parse_line(text)?;
    match line.session {
        Some(named) if named != session => {
            Err(ApiError::invalid("field `session` is not the session of the path"))
        }
        named => Ok(TurnInput { turn: line.turn, occurrence: 0, session_given: named.is_some() }),
    }
}

/// The ids that the caller chose, as they are stored.
fn client_ids(app: &App, tenant: &Tenant, turns: &[TurnInput]) -> Vec<Option<String>> {
    let id = |input: &TurnInput| {
        let id = input.turn.id.as_ref()?;
        Some(app.memory.shown_name(tenant, id).into_string())
    };
    turns.iter().map(id).collect()
}

fn replay_added(outcome: StoredOutcome, ids: Vec<Option<String>>) -> Result<Response, ApiError> {
    let added = Added::from_kept(&outcome.body, ids)
        .ok_or_else(|| ApiError::internal(&"a kept outcome cannot be read"))?;
    Ok(replay(outcome.code, added.to_json()))
}

/// A page of a session's turns.
///
/// It ends at `limit` turns, or before that when the turns get large (`page_bytes`):
/// only an empty page says that there are no more. Go on with `after` the last `seq`.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/sessions/{session}/turns",
    operation_id = "listTurns",
    tag = "sessions",
    params(("session" = String, Path, description = "The session.", example = "trip"), InMemory, PageBySeq),
    responses((status = 200, description = "The turns", body = wire::Turns))
)]
pub(crate) async fn list(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(session): Segment,
    params: Params,
) -> Result<Response, ApiError> {
    let scope = caller.scope(&app, params.memory()?).await?;
    let after = Seq(params.number("after")?.unwrap_or_default());
    let limit = params.page(&app)?;
    let bytes = app.limits.page_bytes;
    let turns = app.memory.turns_within(&scope, &session, after, limit, bytes).await?;
    let body = beside(wire::turn_bytes(&turns), move || wire::turns(&turns)).await?;
    Ok(wire::ok(body))
}
