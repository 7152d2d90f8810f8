//! A commitment that is made, waits, and fires.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use icecore::ids::Position;
use icecore::knowledge::NewEntryRequest;
use icecore::{Millis, Scope};
use icecore_host::commitments::{
    CommitmentRecord, CommitmentRequest, ConditionRequest, IntentionRequest,
};
use serde_json::{Value, json};

use crate::app::{App, Shared};
use crate::auth::Writer;
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::request_id;
use crate::wire;

/// How far ahead the moment of a timed commitment is.
const SOON_MILLIS: i64 = 50;

/// How long it is waited for before this is an error.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked whether the moment has come.
const LOOK: Duration = Duration::from_millis(10);

/// Events read at once.
const PAGE: usize = 500;

/// Makes a commitment, lets its condition hold, and answers what the log says of it.
pub(super) async fn fire(
    State(app): State<Shared>,
    Writer(caller): Writer,
    posted: Posted,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(&posted.bytes)?;
    let memory = fields.text("memoryRef")?;
    let memory = memory.ok_or_else(|| ApiError::invalid("field `memoryRef` is missing"))?;
    let scope = caller.scope(&app, Some(&memory)).await?;
    let with_canary = fields.flag("includeIntentionCanary")?;

    let nonce = request_id::made();
    let intention = format!("intend to water the ferns of {nonce}");
    let tag = format!("watered-{nonce}");
    let condition = match fields.text("condition")?.as_deref().unwrap_or("time") {
        "time" => ConditionRequest::Time(Millis(app.memory.now().0 + SOON_MILLIS)),
        "predicate" => ConditionRequest::Predicate { tag: Some(tag.clone()), mentions: None },
        _ => return Err(ApiError::invalid("field `condition` must be `time` or `predicate`")),
    };
    let is_waiting = matches!(condition, ConditionRequest::Predicate { .. });
    let intended = IntentionRequest::Text(intention.clone());
    let request = CommitmentRequest { intention: intended, condition, claim: None };
    let made = app.host.commitments.add(&scope, request).await?;
    if is_waiting {
        let tags = vec![tag];
        let request =
            NewEntryRequest { content: "It was done.".to_owned(), tags, ..Default::default() };
        app.memory.put_entry(&scope, request).await?;
    }
    let event = fired(&app, &scope, &made).await?;
    // Once more, and the count is what the log says.
    app.host.commitments.fire_due().await?;
    let count = events_of(&app, &scope, &made).await?.len();
    let mut body = json!({ "event": event, "fireCount": count });
    if with_canary {
        body["intentionCanary"] = json!(intention);
    }
    Ok(wire::ok(body.to_string()))
}

/// Drives the engine until the commitment fired, and reads that from the log. The
/// worker may have been faster.
async fn fired(app: &App, scope: &Scope, made: &CommitmentRecord) -> Result<Value, ApiError> {
    let wait = async {
        loop {
            app.host.commitments.fire_due().await?;
            if let Some(event) = events_of(app, scope, made).await?.into_iter().next() {
                return Ok(event);
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    match tokio::time::timeout(PATIENCE, wait).await {
        Ok(found) => found,
        Err(_) => Err(ApiError::internal(&"a commitment did not fire")),
    }
}

/// What the log has of a commitment that fired.
async fn events_of(
    app: &App,
    scope: &Scope,
    made: &CommitmentRecord,
) -> Result<Vec<Value>, ApiError> {
    let (mut after, mut found) = (made.made, Vec::new());
    loop {
        let page = app.memory.events(scope.tenant(), Some(scope.memory()), after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Position(last.position.0);
        let fired = page.iter().filter(|event| event.kind == "commitment.fired");
        let payloads = fired.filter_map(|event| serde_json::from_str(&event.payload).ok());
        found
            .extend(payloads.filter(|payload: &Value| payload["commitmentId"] == made.id.as_str()));
    }
}
