//! `icecore schedule`: what comes by itself, and when.

use icecore_host::schedules::{
    CatchUp, ScheduleRecord, ScheduleRequest, ScheduleTask, ScheduleTiming, SchedulingError,
    TickOutcome, TickRecord, TimingRequest,
};
use icecore_server::wire;
use serde_json::json;

use crate::app::App;
use crate::args::{ScheduleAction, ScheduleAddArgs, ScheduleArgs, ScheduleCatchUp, ScheduleWhat};
use crate::draw::{harmless, table};
use crate::failure::{Failure, Outcome, Status};
use crate::printer::Tone;

/// The next instants that are shown.
const NEXT: usize = 10;

/// Lists, makes, removes, pauses or resumes schedules, or shows what comes next.
pub async fn run(args: ScheduleArgs, app: &App) -> Outcome<Status> {
    match args.action {
        ScheduleAction::List => list(app).await,
        ScheduleAction::Add(args) => add(args, app).await,
        ScheduleAction::Remove { id } => remove(&id, app).await,
        ScheduleAction::Next { id } => next(&id, app).await,
        ScheduleAction::Pause { id } => {
            let changed = app.host.schedules.pause(app.scope.tenant(), &id).await?;
            tell(changed, &id, "rests", app)
        }
        ScheduleAction::Resume { id } => {
            let changed = app.host.schedules.resume(app.scope.tenant(), &id).await?;
            tell(changed, &id, "goes on", app)
        }
    }
}

fn none(id: &str) -> Failure {
    Failure::refused(
        format!("there is no schedule `{}`", harmless(id)),
        "`icecore schedule list` shows what there is",
    )
}

async fn list(app: &App) -> Outcome<Status> {
    let tenant = app.scope.tenant();
    let mut found = Vec::new();
    for schedule in app.host.schedules.list(tenant, app.named_memory()).await? {
        let last = app.host.schedules.ticks(tenant, &schedule.id, 1).await?.pop();
        found.push((schedule, last));
    }
    if app.printer.is_json() {
        app.printer.line(&wire::text(&wire::Schedules::of(&found)))?;
        return Ok(Status::Done);
    }
    if found.is_empty() {
        app.printer.talk("No schedules yet: `icecore schedule add \"30 3 * * *\"` makes one.");
        return Ok(Status::Done);
    }
    let head = ["schedule", "when", "task", "memory", "next", "last"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> =
        [head].into_iter().chain(found.iter().map(|(one, last)| row(one, last.as_ref()))).collect();
    for (at, line) in table(&rows, &[]).iter().enumerate() {
        let line = if at == 0 { app.printer.paint(Tone::Dim, line) } else { line.clone() };
        app.printer.line(&line)?;
    }
    Ok(Status::Done)
}

fn row(schedule: &ScheduleRecord, last: Option<&TickRecord>) -> Vec<String> {
    let next = match (wire::state_of(schedule), schedule.next) {
        ("active", Some(next)) => shown(next.fires_at),
        (state, _) => state.to_owned(),
    };
    let last = last.map_or_else(
        || "-".to_owned(),
        |tick| {
            let outcome = tick.outcome.map_or("running", TickOutcome::as_str);
            format!("{outcome} {}", shown(tick.at))
        },
    );
    vec![
        schedule.id.clone(),
        when(schedule),
        schedule.task.as_str().to_owned(),
        harmless(schedule.scope.memory()),
        next,
        last,
    ]
}

/// `2024-05-01 10:00:00`, in UTC.
fn shown(at: icecore::Millis) -> String {
    at.to_rfc3339().chars().take(19).map(|c| if c == 'T' { ' ' } else { c }).collect()
}

fn when(schedule: &ScheduleRecord) -> String {
    match &schedule.timing {
        ScheduleTiming::Cron { line, timezone } if timezone == "UTC" => line.clone(),
        ScheduleTiming::Cron { line, timezone } => format!("{line} {timezone}"),
        ScheduleTiming::Once(at) => format!("once {}", shown(*at)),
    }
}

async fn add(args: ScheduleAddArgs, app: &App) -> Outcome<Status> {
    let line = args.cron.clone();
    let timing = match (args.cron, args.delay) {
        (Some(line), _) => TimingRequest::Cron { line, timezone: args.timezone },
        (None, Some(delay)) => TimingRequest::DelayMillis(delay),
        // The command line demands one of them.
        (None, None) => {
            let hint = "such as `icecore schedule add \"30 3 * * *\"`";
            return Err(Failure::refused("a cron line or --delay is needed", hint));
        }
    };
    let request = ScheduleRequest {
        task: match args.task {
            ScheduleWhat::Dream => ScheduleTask::Dream,
            ScheduleWhat::Consolidate => ScheduleTask::Consolidate,
            ScheduleWhat::Commitments => ScheduleTask::Commitments,
        },
        timing,
        budget: args.budget,
        catch_up: match args.catch_up {
            ScheduleCatchUp::Once => CatchUp::Once,
            ScheduleCatchUp::Skip => CatchUp::Skip,
        },
        jitter_millis: args.jitter,
        claim: None,
    };
    let made = app.host.schedules.add(&app.scope, request).await;
    let made = made.map_err(|error| pointed(error, line.as_deref()))?;
    if app.printer.is_json() {
        app.printer.line(&wire::text(&wire::ScheduleRow::of(&made, None)))?;
        return Ok(Status::Done);
    }
    let first = made.next.map(|next| shown(next.fires_at)).unwrap_or_default();
    app.printer.line(&format!("{}  {}  first at {first} UTC", made.id, when(&made)))?;
    app.printer.talk("It fires while `icecore serve` runs on this data directory.");
    Ok(Status::Done)
}

/// An error about a field, with the line and a mark under the field.
fn pointed(error: SchedulingError, line: Option<&str>) -> Failure {
    let place = match &error {
        SchedulingError::Timing(wrong) => wrong.place(),
        _ => None,
    };
    let (Some(line), Some(place)) = (line, place) else { return error.into() };
    let mark = format!("{}{}", " ".repeat(place.start), "^".repeat(place.len().max(1)));
    let line = line.replace(['\n', '\r', '\t'], " ");
    Failure::Refused(format!("{error}\n  {}\n  {mark}", harmless(&line)), None)
}

async fn remove(id: &str, app: &App) -> Outcome<Status> {
    if !app.host.schedules.remove(app.scope.tenant(), id).await? {
        return Err(none(id));
    }
    match app.printer.is_json() {
        true => app.printer.json(&json!({ "id": id, "removed": true }))?,
        false => app.printer.line(&format!("Removed {}.", harmless(id)))?,
    }
    Ok(Status::Done)
}

async fn next(id: &str, app: &App) -> Outcome<Status> {
    let tenant = app.scope.tenant();
    let schedule = app.host.schedules.get(tenant, id).await?.ok_or_else(|| none(id))?;
    let next = app.host.schedules.next_ticks(tenant, id, NEXT).await?.unwrap_or_default();
    if app.printer.is_json() {
        let next: Vec<String> = next.iter().map(|at| at.to_rfc3339()).collect();
        app.printer.json(&json!({ "id": id, "next": next }))?;
        return Ok(Status::Done);
    }
    if next.is_empty() {
        app.printer.talk(&format!("Nothing comes: it is {}.", wire::state_of(&schedule)));
    }
    for at in next {
        app.printer.line(&at.to_rfc3339())?;
    }
    Ok(Status::Done)
}

fn tell(changed: Option<ScheduleRecord>, id: &str, does: &str, app: &App) -> Outcome<Status> {
    let schedule = changed.ok_or_else(|| none(id))?;
    if app.printer.is_json() {
        app.printer.line(&wire::text(&wire::ScheduleRow::of(&schedule, None)))?;
        return Ok(Status::Done);
    }
    app.printer.line(&format!("{} {does}.", schedule.id))?;
    Ok(Status::Done)
}
