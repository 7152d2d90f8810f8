//! Schedules: made, listed, read, paused, removed. They fire by themselves.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use icecore::store::StoreError;
use icecore::{MemoryError, Millis, Scope};
use icecore_host::outcomes::{OutcomeBody, StoredOutcome};
use icecore_host::schedules::{
    CatchUp, NextTick, ScheduleRecord, ScheduleRequest, ScheduleTask, ScheduleTiming,
    SchedulingError, TimingRequest,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::{App, Shared};
use crate::auth::{Caller, Reader, Writer};
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::{Attempt, replay};
use crate::params::{InTenant, Params, Segment};
use crate::wire;

const ADD: &str = "POST /schedules";
const PAUSE: &str = "POST /schedules/pause";
const RESUME: &str = "POST /schedules/resume";

/// The next instants that are told.
const NEXT: usize = 10;

/// A schedule to make: `cron` or `delayMs`.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `request` reads")]
pub(crate) struct ScheduleBody {
    /// Which memory; `default` where none is named.
    memory_ref: Option<String>,
    /// A cron line: minute, hour, day of month, month, day of week; with a sixth field,
    /// the second, first. `@daily` and the like too.
    cron: Option<String>,
    /// The IANA time zone of the line; `UTC` where none is named.
    timezone: Option<String>,
    /// Once, so many milliseconds from now.
    #[schema(minimum = 1)]
    delay_ms: Option<u64>,
    /// Tokens that a dream may read and write together.
    #[schema(minimum = 1)]
    budget: Option<u64>,
    /// `dream`, which is the default, `consolidate` or `commitments`.
    task: Option<String>,
    /// What is done about missed instants: `once`, which is the default, or `skip`.
    catch_up: Option<String>,
    /// An instant fires up to so much later.
    jitter_ms: Option<u64>,
}

/// What is kept of an answer for retries: an id, times and numbers. What the caller
/// named is put back from the request.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    id: String,
    created: i64,
    at: i64,
    fires: i64,
    /// The line and its zone, which are times and nothing else.
    cron: Option<(String, String)>,
}

impl Kept {
    /// The schedule as it was made.
    fn made(self, scope: &Scope, request: &ScheduleRequest) -> ScheduleRecord {
        let Self { id, created, at, fires, cron } = self;
        let timing = match cron {
            Some((line, timezone)) => ScheduleTiming::Cron { line, timezone },
            None => ScheduleTiming::Once(Millis(at)),
        };
        ScheduleRecord {
            id,
            scope: scope.clone(),
            task: request.task,
            timing,
            budget: request.budget,
            catch_up: request.catch_up,
            jitter_millis: request.jitter_millis,
            created_at: Millis(created),
            paused: false,
            handled_through: Millis(created),
            next: Some(NextTick { at: Millis(at), fires_at: Millis(fires) }),
            failures: 0,
            not_before: None,
            missed: 0,
        }
    }
}

/// Makes a schedule. Each of its instants is handled once, however many hosts share the
/// store; what came of it can be read with the schedule.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/schedules",
    operation_id = "addSchedule",
    tag = "schedules",
    request_body(
        content = ScheduleBody,
        example = json!({"cron": "30 3 * * *", "timezone": "Europe/Berlin", "budget": 8000})
    ),
    responses(
        (status = 201, description = "The schedule as it is kept", body = wire::ScheduleRow),
        (status = 409, description = "The tenant has too many, or the key is in use.", body = crate::openapi::ErrorBody),
    )
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

    let attempt = Attempt::begin(&app, &caller, ADD, &posted).await?;
    if let Some(attempt) = &attempt {
        if let Some(outcome) = attempt.earlier(&app).await? {
            return replay_made(&scope, &request, outcome);
        }
        request.claim = Some(attempt.claim());
    }
    match (app.host.schedules.add(&scope, request.clone()).await, attempt) {
        (Ok(made), _) => {
            let body = wire::text(&wire::ScheduleRow::of(&made, None));
            Ok(wire::json(StatusCode::CREATED, body))
        }
        // Another process was faster under the same key.
        (
            Err(SchedulingError::Memory(MemoryError::Store(StoreError::ClaimTaken))),
            Some(attempt),
        ) => replay_made(&scope, &request, attempt.of_another(&app).await?),
        (Err(error), _) => Err(error.into()),
    }
}

fn request(fields: &Fields<'_>) -> Result<ScheduleRequest, ApiError> {
    let timezone = fields.text("timezone")?;
    let timing = match (fields.text("cron")?, fields.whole("delayMs")?) {
        (Some(line), None) => TimingRequest::Cron { line, timezone },
        (None, Some(_)) if timezone.is_some() => {
            return Err(ApiError::invalid("field `timezone` is for `cron` alone"));
        }
        (None, Some(delay)) => TimingRequest::DelayMillis(delay),
        _ => return Err(ApiError::invalid("give either `cron` or `delayMs`")),
    };
    let task = match fields.text("task")? {
        None => ScheduleTask::Dream,
        Some(word) => ScheduleTask::named(&word).ok_or_else(|| {
            ApiError::invalid("field `task` must be `dream`, `consolidate` or `commitments`")
        })?,
    };
    let catch_up = match fields.text("catchUp")? {
        None => CatchUp::Once,
        Some(word) => CatchUp::named(&word)
            .ok_or_else(|| ApiError::invalid("field `catchUp` must be `once` or `skip`"))?,
    };
    let (budget, jitter) = (fields.positive("budget")?, fields.whole("jitterMs")?);
    let jitter_millis = jitter.unwrap_or_default();
    Ok(ScheduleRequest { task, timing, budget, catch_up, jitter_millis, claim: None })
}

/// The schedule as it was made, whatever has become of it since.
fn replay_made(
    scope: &Scope,
    request: &ScheduleRequest,
    outcome: StoredOutcome,
) -> Result<Response, ApiError> {
    let kept: Kept = serde_json::from_str(&outcome.body)
        .map_err(|_| ApiError::internal(&"a kept outcome cannot be read"))?;
    let made = kept.made(scope, request);
    Ok(replay(outcome.code, wire::text(&wire::ScheduleRow::of(&made, None))))
}

fn missing() -> ApiError {
    ApiError::missing("there is no such schedule")
}

async fn find(app: &App, caller: &Caller, id: &str) -> Result<ScheduleRecord, ApiError> {
    let found = app.host.schedules.get(caller.tenant(), id).await?;
    found.ok_or_else(missing)
}

/// Schedules of the caller's tenant, oldest first.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/schedules",
    operation_id = "listSchedules",
    tag = "schedules",
    params(InTenant),
    responses((status = 200, description = "The schedules", body = wire::Schedules))
)]
pub(crate) async fn list(
    State(app): State<Shared>,
    Reader(caller): Reader,
    params: Params,
) -> Result<Response, ApiError> {
    let memory = caller.filter(&app, params.memory()?).await?;
    let mut found = Vec::new();
    for schedule in app.host.schedules.list(caller.tenant(), memory.as_deref()).await? {
        let last = app.host.schedules.ticks(caller.tenant(), &schedule.id, 1).await?.pop();
        found.push((schedule, last));
    }
    Ok(wire::ok(wire::text(&wire::Schedules::of(&found))))
}

/// One schedule, with its next ten instants and its last ticks.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/schedules/{id}",
    operation_id = "readSchedule",
    tag = "schedules",
    params(
        ("id" = String, Path, description = "The schedule's id."),
        ("limit" = Option<u64>, Query, description = "The most ticks."),
    ),
    responses((status = 200, description = "The schedule", body = wire::ScheduleDetail))
)]
pub(crate) async fn get(
    State(app): State<Shared>,
    Reader(caller): Reader,
    Segment(id): Segment,
    params: Params,
) -> Result<Response, ApiError> {
    let limit = params.page(&app)?;
    let found = find(&app, &caller, &id).await?;
    let next = app.host.schedules.next_ticks(caller.tenant(), &id, NEXT).await?.unwrap_or_default();
    let ticks = app.host.schedules.ticks(caller.tenant(), &id, limit).await?;
    Ok(wire::ok(wire::text(&wire::ScheduleDetail::of(&found, &next, &ticks))))
}

/// Removes a schedule with its ticks.
#[utoipa::path(
    delete,
    path = "/v1/host/icecore/schedules/{id}",
    operation_id = "removeSchedule",
    tag = "schedules",
    params(("id" = String, Path, description = "The schedule's id.")),
    responses((status = 200, description = "It is gone", body = wire::ScheduleRemoved))
)]
pub(crate) async fn remove(
    State(app): State<Shared>,
    Writer(caller): Writer,
    Segment(id): Segment,
) -> Result<Response, ApiError> {
    match app.host.schedules.remove(caller.tenant(), &id).await? {
        true => Ok(wire::ok(wire::text(&wire::ScheduleRemoved { id, removed: true }))),
        false => Err(missing()),
    }
}

/// Lets a schedule rest. Instants that come meanwhile are not ticks.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/schedules/{id}/pause",
    operation_id = "pauseSchedule",
    tag = "schedules",
    params(("id" = String, Path, description = "The schedule's id.")),
    responses((status = 200, description = "The schedule, which rests", body = wire::ScheduleRow))
)]
pub(crate) async fn pause(
    State(app): State<Shared>,
    Writer(caller): Writer,
    Segment(id): Segment,
    posted: Posted,
) -> Result<Response, ApiError> {
    change(&app, &caller, PAUSE, &posted, app.host.schedules.pause(caller.tenant(), &id)).await
}

/// Lets a schedule go on with the first instant from now.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/schedules/{id}/resume",
    operation_id = "resumeSchedule",
    tag = "schedules",
    params(("id" = String, Path, description = "The schedule's id.")),
    responses((status = 200, description = "The schedule, which goes on", body = wire::ScheduleRow))
)]
pub(crate) async fn resume(
    State(app): State<Shared>,
    Writer(caller): Writer,
    Segment(id): Segment,
    posted: Posted,
) -> Result<Response, ApiError> {
    change(&app, &caller, RESUME, &posted, app.host.schedules.resume(caller.tenant(), &id)).await
}

async fn change(
    app: &App,
    caller: &Caller,
    operation: &'static str,
    posted: &Posted,
    changing: impl Future<Output = Result<Option<ScheduleRecord>, SchedulingError>>,
) -> Result<Response, ApiError> {
    let attempt = Attempt::begin(app, caller, operation, posted).await?;
    if let Some(attempt) = &attempt
        && let Some(outcome) = attempt.earlier(app).await?
    {
        return Ok(replay(outcome.code, outcome.body));
    }
    let changed = changing.await?.ok_or_else(missing)?;
    let body = wire::text(&wire::ScheduleRow::of(&changed, None));
    if let Some(attempt) = attempt {
        attempt.keep(app, StatusCode::OK, OutcomeBody::Ids(body.clone())).await?;
    }
    Ok(wire::ok(body))
}
