//! What a refused caller is told: one flat envelope, one table of codes.
//!
//! ```json
//! {"error":"not_found","message":"there is no such session"}
//! ```

use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use icecore::MemoryError;
use icecore::formats::turn_jsonl::LineError;
use icecore::ingest::{MAX_CONTENT_BYTES, TurnError};
use icecore::knowledge::EntryError;
use icecore::store::StoreError;
use icecore_host::commitments::CommitmentError;
use icecore_host::runs::RunsError;
use icecore_host::schedules::{ScheduleError, SchedulingError};
use serde_json::{Value, json};

use crate::request_id;

/// An answer that is not a success.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    code: &'static str,
    message: String,
    details: Option<Box<Value>>,
    advice: Option<Advice>,
}

/// What a header adds to a refusal.
#[derive(Debug, Clone, Copy)]
enum Advice {
    /// Ask again in so many seconds.
    Retry(u64),
    /// Show a key.
    Authenticate,
}

impl Advice {
    fn header(self) -> (HeaderName, HeaderValue) {
        match self {
            Advice::Retry(seconds) => (header::RETRY_AFTER, HeaderValue::from(seconds)),
            Advice::Authenticate => (header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
        }
    }
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), details: None, advice: None }
    }

    /// The request is malformed; `message` names the field.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "validation_error", message)
    }

    /// What was asked for is not there, or not the caller's.
    pub(crate) fn missing(message: &'static str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// Something is larger than a limit of that name.
    pub(crate) fn too_large(
        code: &'static str,
        limit: &'static str,
        most: usize,
        message: impl Into<String>,
    ) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, code, message)
            .with(json!({ "limit": limit, "limitBytes": most }))
    }

    /// Not now; the caller may try again soon.
    pub(crate) fn later(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message).retry(1)
    }

    /// The caller asks more often than a limit of that name allows.
    pub(crate) fn too_often(
        scope: &'static str,
        limit: &'static str,
        wait: Duration,
        message: impl Into<String>,
    ) -> Self {
        let millis = wait.as_millis().max(1) as u64;
        Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message)
            .with(json!({ "retryAfterMs": millis, "scope": scope, "limit": limit }))
            .retry(millis.div_ceil(1_000))
    }

    /// The same, with the advice to come back in so many seconds.
    pub(crate) fn retry(mut self, seconds: u64) -> Self {
        self.advice = Some(Advice::Retry(seconds));
        self
    }

    pub(crate) fn unauthenticated(message: &'static str) -> Self {
        Self::ended_key("unauthenticated", message)
    }

    /// A key that was good for something once.
    pub(crate) fn ended_key(code: &'static str, message: &'static str) -> Self {
        let mut error = Self::new(StatusCode::UNAUTHORIZED, code, message);
        error.advice = Some(Advice::Authenticate);
        error
    }

    /// Our fault. The log says what it was; the caller gets a number to name it by.
    pub(crate) fn internal(cause: &dyn std::fmt::Display) -> Self {
        let correlation = request_id::current();
        tracing::error!(correlation, cause = %cause, "a request failed");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal_error",
            "the host failed; its log says why under this correlation id",
        )
        .with(json!({ "correlationId": correlation }))
    }

    /// The code for programs.
    pub(crate) fn code(&self) -> &'static str {
        self.code
    }

    pub(crate) fn with(mut self, details: Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// The same, about one turn of a request.
    pub(crate) fn of_turn(mut self, index: usize) -> Self {
        self.message = format!("turns[{index}]: {}", self.message);
        let mut details = self.details.take().unwrap_or_else(|| Box::new(json!({})));
        details["index"] = json!(index);
        self.details = Some(details);
        self
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        // `refusal.rs` hides what is secret in it on its way out.
        let mut body = json!({ "error": self.code, "message": self.message });
        if let Some(details) = self.details {
            body["details"] = *details;
        }
        let mut response = crate::wire::json(self.status, body.to_string());
        if let Some((name, value)) = self.advice.map(Advice::header) {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl From<MemoryError> for ApiError {
    fn from(error: MemoryError) -> Self {
        let message = error.to_string();
        match error {
            // Without the names: they are the caller's own, and whoever compares two
            // tenants' answers must not find one's names in the other's.
            MemoryError::NoSession { .. } => Self::missing("there is no such session"),
            MemoryError::NoBranch { .. } => Self::missing("the session has no such branch"),
            MemoryError::NotFound { .. } => Self::missing("nothing in this memory has that id"),
            MemoryError::Expired { .. } => Self::new(StatusCode::GONE, "expired", message),
            MemoryError::TooMuch { bytes } => Self::too_large(
                "answer_too_large",
                "answer_bytes",
                bytes,
                format!(
                    "the answer would have more than {bytes} bytes (`answer_bytes`); \
                     read the session page by page: `GET /sessions/{{session}}/turns`"
                ),
            ),
            MemoryError::Turn { index, source } => Self::from(source).of_turn(index),
            MemoryError::Entry(error) => error.into(),
            MemoryError::Name(_)
            | MemoryError::NoTurns
            | MemoryError::FactLength { .. }
            | MemoryError::EmptyQuery
            | MemoryError::HitLimit { .. }
            | MemoryError::Line { .. }
            | MemoryError::File { .. } => Self::invalid(message),
            MemoryError::DayBoundReached {
                setting,
                most,
                used,
                more,
                ends_at,
                wait_millis,
                ..
            } => {
                let details = json!({
                    "limit": setting,
                    "most": most,
                    "used": used,
                    "asked": more,
                    "endsAt": ends_at.to_string(),
                    "retryAfterMs": wait_millis,
                    "scope": "tenant",
                });
                Self::new(StatusCode::TOO_MANY_REQUESTS, "bound_reached", message)
                    .with(details)
                    .retry(wait_millis.div_ceil(1_000))
            }
            MemoryError::EmbedderUnavailable { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "embedder_unavailable", message)
            }
            MemoryError::Secret(_) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_secret", message)
            }
            MemoryError::NoSecret { .. } => Self::new(StatusCode::NOT_FOUND, "not_found", message),
            MemoryError::CompactionRedactionFailed { reason } => {
                let failed = Self::internal(&reason);
                Self {
                    code: "compaction_redaction_failed",
                    message: "derived text could not be redacted, and nothing was written; \
                              the host's log says why under this correlation id"
                        .to_owned(),
                    ..failed
                }
            }
            MemoryError::TokenBudgetExceeded { budget, minimum, .. } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "token_budget_exceeded", message)
                    .with(json!({ "budget": budget, "minimumRequired": minimum }))
            }
            MemoryError::NoBudget { .. } | MemoryError::NoWindow { .. } => Self::invalid(message),
            MemoryError::RequestExceedsWindow(told) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "request_exceeds_window", message).with(
                    json!({
                        "floorTokens": told.floor, "window": told.window, "reserve": told.reserve,
                    }),
                )
            }
            MemoryError::NothingToCompact { .. } => Self::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "nothing_to_compact",
                "the session has nothing to compact: all of it is what must stay",
            ),
            MemoryError::SessionChanged { .. } => Self::new(
                StatusCode::CONFLICT,
                "session_changed",
                "the session changed meanwhile and nothing was written; read it again",
            )
            .retry(1),
            MemoryError::NoHandoff { .. } => Self::missing("the session has no handoff"),
            MemoryError::HandoffElsewhere { branch, .. } => Self::new(
                StatusCode::CONFLICT,
                "handoff_of_another_branch",
                "the handoff was made on another branch, which has it too; correct it there",
            )
            .with(json!({ "branch": branch })),
            MemoryError::HandoffTooLong { tokens, most } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "handoff_too_long", message)
                    .with(json!({ "tokens": tokens, "most": most }))
            }
            MemoryError::Chat(_) => Self::new(StatusCode::BAD_GATEWAY, "model_failed", message),
            MemoryError::ModelBudget { .. } => Self::later("model_budget_spent", message),
            MemoryError::NothingToDream { .. } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "nothing_to_distill", message)
            }
            MemoryError::DreamUnderWay { .. } => {
                Self::new(StatusCode::CONFLICT, "dream_under_way", message).retry(1)
            }
            MemoryError::DreamInForce { .. } => {
                Self::new(StatusCode::CONFLICT, "dream_in_force", message)
            }
            MemoryError::OwnOutput { .. } => Self::invalid(message),
            // The name is the caller's own, and may be anything.
            MemoryError::NoDream { .. } => Self::missing("there is no such dream"),
            MemoryError::NotUndone { .. } => {
                Self::new(StatusCode::CONFLICT, "dream_not_undone", message)
            }
            MemoryError::NoArchive { .. } => Self::missing("there is no such archive"),
            MemoryError::ArchiveGone { .. } => Self::new(StatusCode::GONE, "archive_gone", message),
            MemoryError::ArchiveDamaged { .. } => {
                tracing::error!(cause = message, "stored data is damaged");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "archive_damaged", message)
            }
            MemoryError::ArchiveTells { .. } => {
                Self::new(StatusCode::CONFLICT, "archive_holds_secret", message)
            }
            MemoryError::EntriesChanged => Self::later("entries_changed", message),
            MemoryError::Store(error) => error.into(),
            // The enum may grow; what we do not know is ours to explain.
            _ => Self::internal(&message),
        }
    }
}

impl From<CommitmentError> for ApiError {
    fn from(error: CommitmentError) -> Self {
        match error {
            CommitmentError::Memory(error) => error.into(),
            error => Self::invalid(error.to_string()),
        }
    }
}

impl From<SchedulingError> for ApiError {
    fn from(error: SchedulingError) -> Self {
        let message = error.to_string();
        match error {
            SchedulingError::Memory(error) => error.into(),
            SchedulingError::Horizon { horizon, .. } => {
                Self::new(StatusCode::BAD_REQUEST, "schedule_horizon_exceeded", message)
                    .with(json!({ "maxFutureHorizon": horizon }))
            }
            // What was sent may be anything: its place is told, and not what stands there.
            SchedulingError::Timing(wrong) => match (&wrong, wrong.field(), wrong.place()) {
                (_, Some(field), Some(place)) => {
                    let field_name = field.as_str();
                    let allowed = field.allowed();
                    let why = match &wrong {
                        ScheduleError::Never { .. } => {
                            "no month that the line names has such a day".to_owned()
                        }
                        ScheduleError::Backwards { .. } => {
                            format!("a range goes up; allowed are {allowed}")
                        }
                        _ => format!("allowed are {allowed}"),
                    };
                    let message = format!(
                        "the {field_name} field of `cron`, at character {}, is wrong: {why}",
                        place.start + 1
                    );
                    let details = json!({
                        "field": field_name, "start": place.start, "end": place.end,
                    });
                    Self::invalid(message).with(details)
                }
                (ScheduleError::Zone { nearest, .. }, ..) => match nearest {
                    Some(nearest) => Self::invalid(format!(
                        "field `timezone` is no IANA time zone; did you mean `{nearest}`?"
                    )),
                    None => Self::invalid(
                        "field `timezone` must be an IANA name like `Europe/Berlin` or `UTC`",
                    ),
                },
                (ScheduleError::Fields { count, .. }, ..) => Self::invalid(format!(
                    "field `cron` has five fields (minute, hour, day of month, month, day of week) or six with the second first, not {count}"
                )),
                (ScheduleError::Nickname { .. }, ..) => Self::invalid(
                    "field `cron` is no cron line: @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually are",
                ),
                _ => Self::invalid(message),
            },
            _ => Self::invalid(message),
        }
    }
}

impl From<RunsError> for ApiError {
    fn from(error: RunsError) -> Self {
        let message = error.to_string();
        match error {
            RunsError::UnknownWorkflow | RunsError::NotFound => {
                Self::new(StatusCode::NOT_FOUND, "not_found", message)
            }
            RunsError::BadId | RunsError::BadInputs | RunsError::BadOption { .. } => {
                Self::invalid(message)
            }
            RunsError::InputsTooLarge { most, .. } => {
                Self::too_large("inputs_too_large", "run_input_bytes", most, message)
            }
            RunsError::Forbidden => Self::new(StatusCode::FORBIDDEN, "run_forbidden", message),
            RunsError::ReadOnly => Self::new(StatusCode::FORBIDDEN, "forbidden", message),
            RunsError::Expired { run, boundary, from_seq } => {
                let mut details = json!({
                    "sourceRunId": run,
                    "reason": "retention_expired",
                    "retentionBoundary": boundary.to_string(),
                });
                if let Some(from_seq) = from_seq {
                    details["fromSeq"] = json!(from_seq);
                }
                Self::new(StatusCode::GONE, "run_expired", message).with(details)
            }
            RunsError::Changing => Self::later("run_changing", message),
            RunsError::Ended { .. } => Self::new(StatusCode::CONFLICT, "run_ended", message),
            RunsError::Active => Self::new(StatusCode::CONFLICT, "run_already_active", message),
            RunsError::InvalidFromSeq { from_seq, max } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_from_seq", message)
                    .with(json!({ "fromSeq": from_seq, "maxFromSeq": max }))
            }
            RunsError::Memory(error) => error.into(),
            // The enum may grow; what we do not know is ours to explain.
            _ => Self::internal(&message),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        match error {
            StoreError::Conflict { index, id, session } => {
                Self::new(StatusCode::CONFLICT, "turn_conflict", message)
                    .with(json!({ "turnId": id, "session": session }))
                    .of_turn(index)
            }
            StoreError::NoParent { index, .. }
            | StoreError::Cycle { index, .. }
            | StoreError::ParentLater { index, .. } => Self::invalid(message).of_turn(index),
            StoreError::SnapshotGone { oldest } => {
                Self::new(StatusCode::GONE, "snapshot_expired", message)
                    .with(json!({ "oldest": oldest.0 }))
            }
            // The id is the caller's own, and may be anything.
            StoreError::EntryExists { .. } => {
                Self::new(StatusCode::CONFLICT, "entry_exists", "an entry of that id is there")
            }
            // The id is the caller's own, and may be anything.
            StoreError::NoIntention { .. } => {
                Self::missing("nothing in this memory has the id `memoryId`")
            }
            StoreError::TooManyRuns { most } => {
                let details = json!({
                    "limit": "runs_unfinished",
                    "most": most,
                    "retryAfterMs": 1_000,
                    "scope": "tenant",
                });
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_runs", message)
                    .with(details)
                    .retry(1)
            }
            // Not a failure of the host, and no use to try again: a client library
            // repeats what ends in a 5xx.
            StoreError::BoundReached { bound, most, used, more, .. } => {
                let details = json!({
                    "limit": format!("bounds.{bound}"),
                    "most": most,
                    "used": used,
                    "asked": more,
                    "scope": "tenant",
                });
                Self::new(StatusCode::FORBIDDEN, "bound_reached", message).with(details)
            }
            StoreError::TooManyCommitments { most } => {
                Self::new(StatusCode::CONFLICT, "too_many_commitments", message)
                    .with(json!({ "limit": "commitments_pending", "most": most }))
            }
            StoreError::TooManyTenantCommitments { most } => {
                Self::new(StatusCode::CONFLICT, "too_many_commitments", message)
                    .with(json!({ "limit": "commitments_pending_tenant", "most": most }))
            }
            StoreError::TooManySchedules { most } => {
                Self::new(StatusCode::CONFLICT, "too_many_schedules", message)
                    .with(json!({ "limit": "schedules.per_tenant", "most": most }))
            }
            StoreError::LastAdminKey { .. } => {
                Self::new(StatusCode::CONFLICT, "last_admin_key", message)
            }
            StoreError::KeyEnded { .. } => Self::new(StatusCode::CONFLICT, "key_ended", message),
            StoreError::ClaimTaken => {
                Self::new(StatusCode::CONFLICT, "idempotency_in_flight", message).retry(1)
            }
            StoreError::SecretExists { .. } => {
                Self::new(StatusCode::CONFLICT, "secret_exists", message)
            }
            StoreError::NameTells | StoreError::TooManySecrets => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_secret", message)
            }
            StoreError::SecretsChanged => Self::later("secrets_changed", message),
            StoreError::Busy { .. } => Self::later("store_busy", message),
            StoreError::DiskFull => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "disk_full", message)
            }
            StoreError::DatabaseFull { .. } => {
                tracing::error!(cause = message, "the database is full");
                let told = "the disk of the database is full; nothing of this was stored, and it can be sent again once there is room";
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "disk_full", told)
            }
            StoreError::PackMissing { .. }
            | StoreError::PackDamaged { .. }
            | StoreError::BodyDamaged { .. } => {
                tracing::error!(cause = message, "stored data is damaged");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "data_damaged", message)
            }
            // Where it is, is no business of who asks.
            error if error.is_out_of_reach() => {
                tracing::error!(cause = chain(&error), "the object storage is out of reach");
                Self::later("objects_unavailable", "what lies in object storage cannot be had now")
            }
            error if error.is_database_away() => {
                tracing::error!(cause = chain(&error), "the database is out of reach");
                Self::later(
                    "store_unavailable",
                    "the database cannot be had now, or is too slow; ask again, with the same ids, and nothing is added twice",
                )
            }
            other => Self::internal(&chain(&other)),
        }
    }
}

impl From<TurnError> for ApiError {
    fn from(error: TurnError) -> Self {
        let message = error.to_string();
        match error {
            TurnError::ContentTooLarge { bytes } | TurnError::FieldsTooLarge { bytes } => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "turn_too_large", message)
                    .with(json!({ "limitBytes": MAX_CONTENT_BYTES, "bytes": bytes }))
            }
            _ => Self::invalid(message),
        }
    }
}

impl From<EntryError> for ApiError {
    fn from(error: EntryError) -> Self {
        let refusal = Self::invalid(error.to_string());
        match error {
            EntryError::ContentTooLarge { bytes, most } => {
                refusal.with(json!({ "limit": "entry_bytes", "limitBytes": most, "bytes": bytes }))
            }
            EntryError::TooManyTags { most, .. } => {
                refusal.with(json!({ "limit": "entry_tags", "most": most }))
            }
            EntryError::TagTooLong { most, .. } | EntryError::BadTag { most } => {
                refusal.with(json!({ "limit": "entry_tag_chars", "most": most }))
            }
            _ => refusal,
        }
    }
}

impl From<LineError> for ApiError {
    fn from(error: LineError) -> Self {
        match error {
            LineError::Turn(error) => error.into(),
            // Its reason would repeat what was sent.
            LineError::NotAnObject(_) => Self::invalid("not a JSON object with usable keys"),
            other => Self::invalid(other.to_string()),
        }
    }
}

/// An error with its causes, for the log.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use icecore::Tenant;
    use icecore::store::KeptBound;

    use super::*;

    #[test]
    fn secrets_have_codes_of_their_own() {
        let check = |error: MemoryError, expected: &str| {
            let error = ApiError::from(error);
            assert_eq!(format!("{} {}", error.status.as_u16(), error.code), expected);
        };
        let reason = "the sealed value does not open".to_owned();
        let failed = MemoryError::CompactionRedactionFailed { reason };
        check(failed, "500 compaction_redaction_failed");
        let short = icecore::privacy::SecretError::TooShort { chars: 3 };
        check(short.into(), "422 invalid_secret");
        check(StoreError::TooManySecrets.into(), "422 invalid_secret");
        check(StoreError::SecretsChanged.into(), "503 secrets_changed");
    }

    #[test]
    fn what_ticks_record_is_what_callers_are_told() {
        let text = || "x".to_owned();
        for error in [
            MemoryError::TokenBudgetExceeded { memory: text(), budget: 1, minimum: 2, most: 9 },
            MemoryError::CompactionRedactionFailed { reason: text() },
            MemoryError::EntriesChanged,
            MemoryError::NothingToDream { memory: text() },
            MemoryError::DreamUnderWay { memory: text() },
            MemoryError::NotUndone { run: text(), reason: text() },
            MemoryError::ArchiveGone { checksum: text(), reason: "erased" },
            MemoryError::ArchiveDamaged { checksum: text(), reason: text() },
            MemoryError::ArchiveTells { checksum: text() },
            MemoryError::EmbedderUnavailable { reason: text() },
            MemoryError::Internal(text()),
            StoreError::DiskFull.into(),
            StoreError::DatabaseFull { server: text(), reason: text() }.into(),
            StoreError::Unavailable { server: text(), reason: text() }.into(),
            StoreError::NoConnection { connections: 1, seconds: 1 }.into(),
            StoreError::StatementTooSlow { server: text(), seconds: 1 }.into(),
            StoreError::Busy { seconds: 5 }.into(),
            StoreError::SecretsChanged.into(),
            StoreError::TooManyRuns { most: 5 }.into(),
            StoreError::BoundReached {
                tenant: acme(),
                bound: KeptBound::Turns,
                most: 3,
                used: 3,
                more: 1,
            }
            .into(),
            day_bound_reached(),
        ] {
            let code = error.code();
            assert_eq!(ApiError::from(error).code, code);
        }
    }

    fn acme() -> Tenant {
        Tenant::new("acme").unwrap()
    }

    fn day_bound_reached() -> MemoryError {
        MemoryError::DayBoundReached {
            tenant: acme(),
            unit: "tokens",
            setting: "bounds.tokens_a_day",
            most: 9,
            used: 8,
            more: 2,
            ends_at: icecore::Millis(86_400_000),
            wait_millis: 3_599_001,
        }
    }

    #[test]
    fn a_bound_of_a_day_tells_when_it_ends() {
        let error = ApiError::from(day_bound_reached());
        let details = error.details.as_ref().unwrap();
        assert_eq!(details["limit"], "bounds.tokens_a_day");
        assert_eq!(
            (&details["most"], &details["used"], &details["asked"]),
            (&json!(9), &json!(8), &json!(2))
        );
        assert_eq!(error.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(details["endsAt"], "1970-01-02T00:00:00Z");
        assert_eq!(details["retryAfterMs"], 3_599_001);
        assert_eq!(error.into_response().headers()[header::RETRY_AFTER], "3600");
    }

    #[test]
    fn who_was_overtaken_is_asked_to_come_back() {
        let overtaken = [MemoryError::EntriesChanged, StoreError::SecretsChanged.into()];
        for (error, code) in overtaken.into_iter().zip(["entries_changed", "secrets_changed"]) {
            let error = ApiError::from(error);
            assert_eq!((error.status.as_u16(), error.code), (503, code));
            assert_eq!(error.into_response().headers()[header::RETRY_AFTER], "1");
        }
    }
}
