//! `Idempotency-Key`: the same request again gets the same answer, once done.
//!
//! The outcome of a request that adds turns is committed together with them, so
//! there is no moment at which one exists without the other. What is kept holds
//! no content: neither the caller's key nor the path stands in it, only a hash,
//! and ids that a caller chose are put back from the request itself. So nothing
//! is left here when a session is forgotten.
//!
//! Only successes are kept. A refused request did nothing, and is judged afresh.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use icecore::{NewOutcome, StoredOutcome, Tenant};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::OwnedMutexGuard;

use crate::app::App;
use crate::auth::Caller;
use crate::body::Posted;
use crate::error::ApiError;
use crate::wire;

/// Marks an answer that was given before.
const REPLAY: HeaderName = HeaderName::from_static("openwop-idempotent-replay");

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The caller's key, if there is one.
pub(crate) fn key(headers: &HeaderMap, app: &App) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(KEY) else { return Ok(None) };
    let most = app.limits.idempotency_key_bytes;
    let key = value.to_str().ok().filter(|key| is_key(key, most));
    match key {
        Some(key) => Ok(Some(key.to_owned())),
        None => Err(ApiError::invalid(format!(
            "the header `Idempotency-Key` must have 1 to {most} visible ASCII characters (`idempotency_key_bytes`)"
        ))
        .with(json!({ "limit": "idempotency_key_bytes", "most": most }))),
    }
}

fn is_key(key: &str, most: usize) -> bool {
    (1..=most).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A request under a caller's key, while no other under the same key runs here.
pub(crate) struct Attempt {
    tenant: Tenant,
    pub(crate) operation: &'static str,
    /// Hash of path and key.
    pub(crate) key: String,
    /// Hash of query and body.
    pub(crate) request: [u8; 32],
    /// The version of the tenant's secrets that an answer is redacted with.
    secrets: u64,
    // In this order: the gate opens before the ticket is handed back.
    _open: OwnedMutexGuard<()>,
    _ticket: Ticket,
}

impl Attempt {
    /// Begins an attempt, after any other under the same key has ended.
    pub(crate) async fn begin(
        app: &App,
        caller: &Caller,
        operation: &'static str,
        posted: &Posted,
    ) -> Option<Attempt> {
        let key = posted.key.as_ref()?;
        let key = hex::encode(hash(&[posted.path.as_bytes(), key.as_bytes()]));
        let ticket = app.gates.ticket(format!("{}\n{operation}\n{key}", caller.tenant()));
        let open = Arc::clone(&ticket.gate).lock_owned().await;
        // An answer that cannot be told from an older one is not given again.
        let secrets = app.memory.store().secrets_version(caller.tenant()).await;
        Some(Attempt {
            secrets: secrets.unwrap_or(u64::MAX),
            tenant: caller.tenant().clone(),
            operation,
            key,
            request: hash(&[posted.query.as_bytes(), &posted.bytes]),
            _open: open,
            _ticket: ticket,
        })
    }

    /// What the same request was answered earlier. Another request under the
    /// same key is refused.
    pub(crate) async fn earlier(&self, app: &App) -> Result<Option<StoredOutcome>, ApiError> {
        let (store, now) = (app.memory.store(), app.memory.now());
        let found = store.outcome(&self.tenant, self.operation, &self.key, now).await?;
        match found {
            Some(outcome) if outcome.request != self.request => Err(mismatch()),
            found => Ok(found),
        }
    }

    /// Keeps a success.
    pub(crate) async fn keep(self, app: &App, body: &str) -> Result<(), ApiError> {
        let outcome = NewOutcome {
            operation: self.operation.to_owned(),
            key: self.key.clone(),
            request: self.request,
            status: StatusCode::OK.as_u16(),
            body: body.to_owned(),
        };
        Ok(app.memory.store().put_outcome(&self.tenant, outcome, app.memory.now()).await?)
    }
}

fn mismatch() -> ApiError {
    ApiError::new(
        StatusCode::CONFLICT,
        "idempotency_key_mismatch",
        "this `Idempotency-Key` was used for another request; use a new one",
    )
}

/// The answer that was given before.
pub(crate) fn replay(status: u16, body: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let mut response = wire::json(status, body);
    response.headers_mut().insert(REPLAY, HeaderValue::from_static("true"));
    response
}

/// Hash of several texts, each with its length so that none runs into the next.
fn hash(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

type Gate = Arc<tokio::sync::Mutex<()>>;

/// One gate for each key in use.
#[derive(Default)]
pub(crate) struct Gates(Arc<Mutex<BTreeMap<String, Gate>>>);

/// A place at a gate; the last to leave takes the gate away.
struct Ticket {
    name: String,
    gate: Gate,
    gates: Arc<Mutex<BTreeMap<String, Gate>>>,
}

impl Gates {
    fn ticket(&self, name: String) -> Ticket {
        let mut gates = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let gate = Arc::clone(gates.entry(name.clone()).or_default());
        Ticket { name, gate, gates: Arc::clone(&self.0) }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut gates = self.gates.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // The map's and ours: places are only given out under the lock.
        if Arc::strong_count(&self.gate) == 2 {
            gates.remove(&self.name);
        }
    }
}

/// Answers of requests that only read, kept in this process and not for long:
/// they hold content, and a copy on disk would outlive a forgotten session. If
/// one is gone, asking again does no harm.
#[derive(Default)]
pub(crate) struct Answers(Mutex<VecDeque<Answer>>);

struct Answer {
    tenant: Tenant,
    key: String,
    request: [u8; 32],
    secrets: u64,
    body: String,
    until: Instant,
}

const ANSWER_KEPT: Duration = Duration::from_secs(300);

const MOST_ANSWERS: usize = 256;

const MOST_ANSWER_BYTES: usize = 64 << 20;

impl Answers {
    /// What the same question was answered lately.
    pub(crate) fn find(&self, attempt: &Attempt) -> Result<Option<String>, ApiError> {
        let Ok(mut answers) = self.0.lock() else { return Ok(None) };
        let now = Instant::now();
        // What was answered before a secret was registered may hold it.
        let is_stale =
            |answer: &Answer| answer.tenant == attempt.tenant && answer.secrets != attempt.secrets;
        answers.retain(|answer| now < answer.until && !is_stale(answer));
        let same = |answer: &&Answer| answer.tenant == attempt.tenant && answer.key == attempt.key;
        match answers.iter().find(same) {
            Some(answer) if answer.request != attempt.request => Err(mismatch()),
            found => Ok(found.map(|answer| answer.body.clone())),
        }
    }

    pub(crate) fn keep(&self, attempt: Attempt, body: &str) {
        let Ok(mut answers) = self.0.lock() else { return };
        answers.push_back(Answer {
            tenant: attempt.tenant.clone(),
            key: attempt.key.clone(),
            request: attempt.request,
            secrets: attempt.secrets,
            body: body.to_owned(),
            until: Instant::now() + ANSWER_KEPT,
        });
        let mut bytes: usize = answers.iter().map(|answer| answer.body.len()).sum();
        while answers.len() > MOST_ANSWERS || bytes > MOST_ANSWER_BYTES {
            let Some(oldest) = answers.pop_front() else { break };
            bytes -= oldest.body.len();
        }
    }

    /// Lets go of a tenant's answers: something they hold was forgotten.
    pub(crate) fn forget(&self, tenant: &Tenant) {
        let mut answers = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        answers.retain(|answer| answer.tenant != *tenant);
    }
}
