//! A schedule whose instants come, or came while nobody was there.

use axum::extract::State;
use axum::response::Response;
use icecore::Millis;
use icecore_host::schedules::{CatchUp, ScheduleRequest, ScheduleTask, TickOutcome, TimingRequest};
use serde_json::json;

use crate::app::Shared;
use crate::auth::Writer;
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::wire;

/// The memory that the schedules are of.
const MEMORY: &str = "conformance-scheduling";

/// Instants that may have been missed.
const MOST: u64 = 1_000;

/// So far ahead that nothing of it is due while it is looked at.
const AHEAD_MILLIS: i64 = 2 * 24 * 3_600_000;

const HOUR_MILLIS: i64 = 3_600_000;

/// Makes a schedule of one instant a second, does what is due of it after one or more of
/// them, counts the ticks that ran and removes it again.
pub(super) async fn tick(
    State(app): State<Shared>,
    Writer(caller): Writer,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let instants = match fields.text("scenario")?.as_deref() {
        Some("single-tick") => 1,
        Some("missed-window") => fields.whole("missedTicks")?.unwrap_or(5).clamp(1, MOST),
        _ => {
            let wrong = "field `scenario` must be `single-tick` or `missed-window`";
            return Err(ApiError::invalid(wrong));
        }
    };
    let scope = caller.scope(&app, Some(MEMORY)).await?;
    let first = app.memory.now().0 + AHEAD_MILLIS;
    let first = Millis(first - first.rem_euclid(HOUR_MILLIS));
    let request = ScheduleRequest {
        task: ScheduleTask::Consolidate,
        timing: TimingRequest::Cron { line: seconds_of(first), timezone: None },
        catch_up: CatchUp::Once,
        ..ScheduleRequest::cron("")
    };
    let made = app.host.schedules.add(&scope, request).await?;
    let tenant = caller.tenant();
    let now = Millis(first.0 + (instants as i64 - 1) * 1_000);
    let fired = app.host.schedules.fire(tenant, &made.id, now).await;
    // Once more: what was handled is not handled again.
    let again = app.host.schedules.fire(tenant, &made.id, now).await;
    let ticks = app.host.schedules.ticks(tenant, &made.id, MOST as usize).await;
    app.host.schedules.remove(tenant, &made.id).await?;
    fired?;
    again?;
    let ran = |tick: &&icecore_host::schedules::TickRecord| {
        matches!(tick.outcome, Some(TickOutcome::Ran | TickOutcome::Unchanged))
    };
    let ticks = ticks?;
    let body = json!({
        "runsFired": ticks.iter().filter(ran).count(),
        "ticksRecorded": ticks.len(),
    });
    Ok(wire::ok(body.to_string()))
}

/// The line of every second of an hour.
fn seconds_of(hour: Millis) -> String {
    let text = hour.to_rfc3339();
    let number = |from: usize| text.get(from..from + 2).unwrap_or("0").trim_start_matches('0');
    let some = |text: &str| if text.is_empty() { "0".to_owned() } else { text.to_owned() };
    format!("* * {} {} {} *", some(number(11)), some(number(8)), some(number(5)))
}
