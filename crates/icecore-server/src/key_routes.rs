//! The keys of a tenant, for its admins.
//!
//! A key is shown once, in the answer that made it. So an `Idempotency-Key` keeps
//! only the id of what was made: the same request again is refused, and names it.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use icecore::Millis;
use icecore::privacy::Redactor;
use icecore_host::keys::{ApiKeyRecord, KeyActor, KeyRevocation};
use icecore_host::outcomes::OutcomeBody;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::app::{App, Shared};
use crate::auth::{Admin, Caller, Role};
use crate::body::{Fields, Posted};
use crate::error::ApiError;
use crate::idempotency::Attempt;
use crate::keys::{KeyTerms, MAX_OVERLAP_SECONDS, NewKey, create_key_by, rotate_key_by};
use crate::openapi::ErrorBody;
use crate::params::{Params, Segment};
use crate::wire;

/// How long the last valid admin key of a tenant works beside the one that replaces
/// it, at least: enough to rotate once more if the answer was lost.
const LAST_ADMIN_OVERLAP: Duration = Duration::from_secs(60);

/// A key, without what its holder presents.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Key)]
pub(crate) struct KeyAnswer {
    id: String,
    /// What people call it.
    name: Option<String>,
    role: KeyRole,
    created_at: String,
    /// The first moment at which it is good for nothing.
    expires_at: Option<String>,
    /// When it was taken back.
    revoked_at: Option<String>,
}

/// What a key allows: to read; to write and forget too; to look after keys too.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeyRole {
    Reader,
    Writer,
    Admin,
}

/// The keys of a tenant, oldest first, also those that have ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Keys)]
pub(crate) struct KeysAnswer {
    keys: Vec<KeyAnswer>,
}

/// A key that was just made.
#[derive(Serialize, ToSchema)]
#[schema(as = NewKey)]
pub(crate) struct NewKeyAnswer {
    #[serde(flatten)]
    record: KeyAnswer,
    /// What its holder presents. It is shown this once and kept nowhere.
    key: String,
}

/// A key that was just made in the place of another.
#[derive(Serialize, ToSchema)]
#[schema(as = RotatedKey)]
pub(crate) struct RotatedKeyAnswer {
    #[serde(flatten)]
    new: NewKeyAnswer,
    replaces: KeyAnswer,
}

/// What key is wanted.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `terms` reads")]
pub(crate) struct KeyBody {
    role: KeyRole,
    /// What people call it; secrets in it are hidden.
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// In the future; without it the key lasts until it is revoked.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

/// How a key is rotated.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes what `overlap` reads")]
pub(crate) struct RotateBody {
    /// How long the old key still works; without it the old key is revoked at once,
    /// or after 60 seconds where it is the last valid admin key.
    #[schema(minimum = 0, maximum = 2_592_000)]
    overlap_seconds: Option<u64>,
}

impl From<&ApiKeyRecord> for KeyAnswer {
    fn from(key: &ApiKeyRecord) -> Self {
        Self {
            id: key.id.clone(),
            name: key.name.as_ref().map(|name| name.as_str().to_owned()),
            role: match Role::parse(&key.role) {
                Some(Role::Admin) => KeyRole::Admin,
                Some(Role::Writer) => KeyRole::Writer,
                // What we do not know allows nothing.
                Some(Role::Reader) | None => KeyRole::Reader,
            },
            created_at: key.created_at.to_rfc3339(),
            expires_at: key.expires_at.map(Millis::to_rfc3339),
            revoked_at: key.revoked_at.map(Millis::to_rfc3339),
        }
    }
}

impl KeyAnswer {
    /// As it may be shown today: its name may hold what was no secret when it was made.
    fn seen_through(mut self, redactor: &Redactor) -> Self {
        self.name = self.name.map(|name| redactor.text(&name).into_string());
        self
    }
}

impl From<&NewKey> for NewKeyAnswer {
    fn from(made: &NewKey) -> Self {
        Self { record: (&made.record).into(), key: made.key.clone() }
    }
}

/// Lists the keys of the caller's tenant.
#[utoipa::path(
    get,
    path = "/v1/host/icecore/keys",
    operation_id = "listKeys",
    tag = "keys",
    params(
        ("after" = Option<String>, Query, description = "The id of the last key of the page before"),
        ("limit" = Option<u32>, Query, description = "The most keys to answer")
    ),
    responses((status = 200, description = "The keys", body = KeysAnswer))
)]
pub(crate) async fn list(
    State(app): State<Shared>,
    Admin(caller): Admin,
    params: Params,
) -> Result<Response, ApiError> {
    let limit = params.limit(&app)?.unwrap_or(app.limits.page);
    let keys = app.host.keys.list(Some(caller.tenant())).await?;
    let first = match params.text("after")? {
        None => 0,
        Some(id) => keys.iter().position(|key| key.id == id).map_or(keys.len(), |at| at + 1),
    };
    let redactor = app.memory.redactor(caller.tenant()).await?.redactor;
    let keys = keys[first..].iter().take(limit);
    let keys = keys.map(|key| KeyAnswer::from(key).seen_through(&redactor)).collect();
    Ok(wire::ok(json!(KeysAnswer { keys }).to_string()))
}

/// Makes a key for the caller's tenant. The answer shows it this once: with the
/// same `Idempotency-Key` again it is 409 `idempotency_key_used` with the id of the
/// key that was made.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/keys",
    operation_id = "createKey",
    tag = "keys",
    request_body(content = KeyBody, example = json!({"role": "reader", "name": "dashboard"})),
    responses((status = 201, description = "The key, shown this once", body = NewKeyAnswer))
)]
pub(crate) async fn create(
    State(app): State<Shared>,
    Admin(caller): Admin,
    posted: Posted,
) -> Result<Response, ApiError> {
    let terms = terms(&Fields::parse(&posted.bytes)?)?;
    let attempt = begin(&app, &caller, "POST /keys", &posted).await?;
    let made = create_key_by(actor(&caller), &app.memory, caller.tenant(), terms).await?;
    tell(&caller, &made.record.id, "a key was made");
    keep(&app, attempt, &made).await;
    Ok(wire::json(StatusCode::CREATED, json!(NewKeyAnswer::from(&made)).to_string()))
}

fn terms(fields: &Fields<'_>) -> Result<KeyTerms, ApiError> {
    fields.only(&["role", "name", "expiresAt"])?;
    let role = fields.text("role")?;
    let role = role.ok_or_else(|| ApiError::invalid("field `role` is missing"))?;
    let role = Role::parse(&role)
        .ok_or_else(|| ApiError::invalid("field `role` must be `reader`, `writer` or `admin`"))?;
    Ok(KeyTerms { role, name: fields.text("name")?, expires_at: fields.time("expiresAt")? })
}

/// Takes a key back. The last valid admin key of a tenant is 409 `last_admin_key`:
/// nobody could make another over HTTP.
#[utoipa::path(
    delete,
    path = "/v1/host/icecore/keys/{id}",
    operation_id = "revokeKey",
    tag = "keys",
    params(("id" = String, Path, description = "The id of a key")),
    responses(
        (status = 200, description = "The key as it is now", body = KeyAnswer),
        (status = 409, description = "It is the last valid admin key of the tenant", body = ErrorBody)
    )
)]
pub(crate) async fn revoke(
    State(app): State<Shared>,
    Admin(caller): Admin,
    Segment(id): Segment,
) -> Result<Response, ApiError> {
    let revocation = KeyRevocation {
        id,
        tenant: Some(caller.tenant().clone()),
        keeps_an_admin: true,
        by: actor(&caller),
        at: app.memory.now(),
    };
    let revoked = app.host.keys.revoke(revocation).await?.ok_or_else(no_key)?;
    app.keys.forget(&revoked.id);
    tell(&caller, &revoked.id, "a key was revoked");
    let redactor = app.memory.redactor(caller.tenant()).await?.redactor;
    let answer = KeyAnswer::from(&revoked).seen_through(&redactor);
    Ok(wire::ok(json!(answer).to_string()))
}

/// Puts a new key in the place of one: same role and name, made for as long. The
/// old one is revoked, or ends after `overlapSeconds`. The last valid admin key of a
/// tenant goes on for at least 60 seconds, so that a lost answer shuts nobody out;
/// `replaces` says when it ends. A repeat under the same
/// `Idempotency-Key` is answered as for a new key.
#[utoipa::path(
    post,
    path = "/v1/host/icecore/keys/{id}/rotate",
    operation_id = "rotateKey",
    tag = "keys",
    params(("id" = String, Path, description = "The id of a valid key")),
    request_body = Option<RotateBody>,
    responses(
        (status = 201, description = "The new key, shown this once", body = RotatedKeyAnswer)
    )
)]
pub(crate) async fn rotate(
    State(app): State<Shared>,
    Admin(caller): Admin,
    Segment(id): Segment,
    posted: Posted,
) -> Result<Response, ApiError> {
    let overlap = overlap(&posted)?;
    let attempt = begin(&app, &caller, "POST /keys/rotate", &posted).await?;
    let by = (actor(&caller), LAST_ADMIN_OVERLAP);
    let rotated = rotate_key_by(by, &app.memory, &id, Some(caller.tenant()), overlap).await?;
    let (made, old) = rotated.ok_or_else(no_key)?;
    app.keys.forget(&old.id);
    tell(&caller, &old.id, "a key was rotated");
    keep(&app, attempt, &made).await;
    // The key is made and must be shown, if need be without its name.
    let redactor = app.memory.redactor(caller.tenant()).await.ok().map(|known| known.redactor);
    let seen = |key: &ApiKeyRecord| match &redactor {
        Some(redactor) => KeyAnswer::from(key).seen_through(redactor),
        None => KeyAnswer { name: None, ..key.into() },
    };
    let new = NewKeyAnswer { record: seen(&made.record), key: made.key.clone() };
    let answer = RotatedKeyAnswer { new, replaces: seen(&old) };
    Ok(wire::json(StatusCode::CREATED, json!(answer).to_string()))
}

fn overlap(posted: &Posted) -> Result<Duration, ApiError> {
    if posted.bytes.is_empty() {
        return Ok(Duration::ZERO);
    }
    let fields = Fields::parse(&posted.bytes)?;
    fields.only(&["overlapSeconds"])?;
    fields.seconds("overlapSeconds", MAX_OVERLAP_SECONDS).map(Duration::from_secs)
}

/// Who the tenant's log says did it.
fn actor(caller: &Caller) -> KeyActor {
    KeyActor::Key(caller.key_id().to_owned())
}

/// Says so in our own log too.
fn tell(caller: &Caller, key_id: &str, what: &'static str) {
    tracing::info!(target: "icecore::audit", by = caller.key_id(), key_id, "{what}");
}

fn no_key() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "not_found", "this tenant has no key of that id")
}

/// Begins an attempt under the caller's `Idempotency-Key`, unless it made a key
/// before: that key cannot be shown again.
async fn begin(
    app: &App,
    caller: &Caller,
    operation: &'static str,
    posted: &Posted,
) -> Result<Option<Attempt>, ApiError> {
    let Some(attempt) = Attempt::begin(app, caller, operation, posted).await? else {
        return Ok(None);
    };
    let Some(earlier) = attempt.earlier(app).await? else { return Ok(Some(attempt)) };
    let made: Value = serde_json::from_str(&earlier.body).unwrap_or_default();
    Err(ApiError::new(
        StatusCode::CONFLICT,
        "idempotency_key_used",
        "this request was answered before, and a key is shown only once; \
         rotate or revoke the key that was made if its answer was lost",
    )
    .with(json!({ "keyId": made["keyId"] })))
}

/// Keeps which key was made, and not the key.
async fn keep(app: &App, attempt: Option<Attempt>, made: &NewKey) {
    let Some(attempt) = attempt else { return };
    let outcome = json!({ "keyId": made.record.id }).to_string();
    // The key is made and must be shown; a repeat would make another, which is listed.
    if attempt.keep(app, StatusCode::OK, OutcomeBody::Ids(outcome)).await.is_err() {
        tracing::warn!("the outcome of a request for a key could not be kept");
    }
}
