//! `Idempotency-Key`: the same request again gets the same answer, once done.
//!
//! A key belongs to its tenant and to the operation, as routed; path, query, conditions
//! and body are the request, and another request under the same key is refused. Outcomes of
//! requests that write are kept in the store for a day, in a table that holds callers'
//! keys and nothing else: what the host itself does once (schedules, locks) must never
//! go there, or a caller could suppress it by guessing its name.
//!
//! The outcome of a request that adds turns, an entry or a version of a file is
//! committed together with them, so there is no moment at which one exists without
//! the other. What is kept holds no content: neither the caller's key nor the path
//! stands in it, only a hash under the tenant's own key, from which nothing can be
//! guessed, and ids that a caller chose are put back from the request itself; facts are kept
//! by their ids and read again. So nothing is left here when a session is forgotten.
//!
//! Only successes are kept. A refused request (4xx) did nothing, and is judged
//! afresh; so is one that failed (5xx) or came too often (429).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use icecore::Tenant;
use icecore::ids::Position;
use icecore::ingest::Claim;
use icecore::store::StoreError;
use icecore_host::outcomes::{Erasures, NewOutcome, OutcomeBody, StoredOutcome};
use serde_json::json;
use tokio::sync::OwnedMutexGuard;

use crate::app::App;
use crate::auth::Caller;
use crate::body::Posted;
use crate::error::ApiError;
use crate::wire;
use crate::work::Work;

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
    /// Keyed hash of operation and key.
    pub(crate) key: String,
    /// Keyed hash of path, query, conditions and body.
    pub(crate) request: [u8; 32],
    /// What an answer is made from, for those that are kept here.
    ground: OnceLock<Ground>,
    /// Why it may not go on: told where the earlier outcome is asked for.
    refused: Mutex<Option<ApiError>>,
    // In this order: the gate opens before the ticket is handed back.
    _open: Option<OwnedMutexGuard<()>>,
    _ticket: Ticket,
}

impl Attempt {
    /// Begins an attempt, after any other under the same key has ended. If that takes
    /// too long, asking for the earlier outcome says so.
    pub(crate) async fn begin(
        app: &App,
        caller: &Caller,
        operation: &'static str,
        posted: &Posted,
    ) -> Result<Option<Attempt>, ApiError> {
        let Some(key) = &posted.key else { return Ok(None) };
        let (memory, tenant) = (&app.memory, caller.tenant());
        let parts: [&[u8]; 2] = [operation.as_bytes(), key.as_bytes()];
        let key = hex::encode(memory.keyed_hash(tenant, "idempotency key", &parts).await?);
        let Posted { path, query, conditions, bytes, .. } = posted;
        let parts: [&[u8]; 4] = [path.as_bytes(), query.as_bytes(), conditions, bytes];
        let request = memory.keyed_hash(tenant, "request", &parts).await?;
        let ticket = app.gates.ticket(key.clone());
        let (open, refused) = match enter(app, &ticket, &posted.work).await {
            Ok(open) => (Some(open), None),
            Err(error) => (None, Some(error)),
        };
        Ok(Some(Attempt {
            tenant: tenant.clone(),
            operation,
            key,
            request,
            ground: OnceLock::new(),
            refused: Mutex::new(refused),
            _open: open,
            _ticket: ticket,
        }))
    }

    /// The key to commit together with the effect, of which the store remembers the ids.
    pub(crate) fn claim(&self) -> Claim {
        Claim {
            operation: self.operation.to_owned(),
            key: self.key.clone(),
            request: self.request,
            code: StatusCode::CREATED.as_u16(),
        }
    }

    /// What the same request was answered earlier. Another request under the
    /// same key is refused.
    pub(crate) async fn earlier(&self, app: &App) -> Result<Option<StoredOutcome>, ApiError> {
        self.check()?;
        let found = app.host.outcomes.find(&self.tenant, self.operation, &self.key).await?;
        match found {
            Some(outcome) if outcome.request != self.request => Err(mismatch()),
            found => Ok(found),
        }
    }

    /// The outcome of another process, which was faster under the same key.
    pub(crate) async fn of_another(&self, app: &App) -> Result<StoredOutcome, ApiError> {
        self.earlier(app).await?.ok_or_else(|| StoreError::ClaimTaken.into())
    }

    fn check(&self) -> Result<(), ApiError> {
        let mut refused = self.refused.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match (refused.take(), &self._open) {
            (Some(error), _) => Err(error),
            (None, None) => Err(in_flight()),
            (None, Some(_)) => Ok(()),
        }
    }

    /// Stores the answer to a request that wrote nothing else.
    pub(crate) async fn keep(
        self,
        app: &App,
        status: StatusCode,
        body: OutcomeBody,
    ) -> Result<(), ApiError> {
        let claim = Claim { code: status.as_u16(), ..self.claim() };
        let outcome = NewOutcome { claim, body };
        Ok(app.host.outcomes.put(&self.tenant, outcome).await?)
    }
}

/// Waits at a gate, and holds no place meanwhile.
async fn enter(app: &App, ticket: &Ticket, work: &Work) -> Result<OwnedMutexGuard<()>, ApiError> {
    if let Ok(open) = Arc::clone(&ticket.gate).try_lock_owned() {
        return Ok(open);
    }
    let wait = tokio::time::timeout(app.limits.retry_time(), Arc::clone(&ticket.gate).lock_owned());
    work.aside(wait).await?.map_err(|_| in_flight())
}

fn in_flight() -> ApiError {
    ApiError::new(
        StatusCode::CONFLICT,
        "idempotency_in_flight",
        "the same request is still being worked on; ask again for its answer",
    )
    .retry(1)
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

type Gate = Arc<tokio::sync::Mutex<()>>;

/// One gate for each key in use, and so no more than there are requests.
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

/// Answers of requests that only read, kept in this process: they hold content, and
/// a copy on disk would outlive a forgotten session. If one is gone, for want of room
/// or after a restart, asking again does no harm. None is given again after anything
/// of its tenant was erased, ended or expired, whichever process did it.
#[derive(Default)]
pub(crate) struct Answers(Mutex<Kept>);

/// What an answer was made from. Where this is another, the answer may quote what is
/// gone, or what is secret by now.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ground {
    /// The tenant's head before it was made, from which erasures are told.
    after: Position,
    erasures: Erasures,
    /// The version of the secrets that it is redacted with.
    secrets: u64,
}

impl Ground {
    /// The ground as it is now, told from a head that was there.
    async fn read(app: &App, tenant: &Tenant, after: Position) -> Result<Ground, ApiError> {
        let (erasures, secrets) = app.host.outcomes.grounds(tenant, after).await?;
        Ok(Ground { after, erasures, secrets })
    }
}

#[derive(Default)]
struct Kept {
    /// By the hash of operation and key, which is each tenant's own.
    answers: BTreeMap<String, Answer>,
    /// The same, oldest first.
    order: BTreeMap<u64, String>,
    /// What each tenant takes up.
    shares: BTreeMap<Tenant, Share>,
    next: u64,
    bytes: usize,
}

#[derive(Default)]
struct Share {
    bytes: usize,
    /// Numbers of its answers, oldest first.
    order: BTreeSet<u64>,
}

struct Answer {
    tenant: Tenant,
    number: u64,
    request: [u8; 32],
    ground: Ground,
    body: Arc<str>,
    until: Instant,
}

const ANSWER_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

const MOST_ANSWER_BYTES: usize = 64 << 20;

/// A larger answer is not kept.
const LARGEST_ANSWER: usize = 1 << 20;

/// One tenant has at most this part of the bytes.
const TENANTS_PART: usize = 4;

/// What an answer takes up beside its body.
const ANSWER_COST: usize = 512;

impl Kept {
    fn remove(&mut self, key: &str) {
        let Some(answer) = self.answers.remove(key) else { return };
        self.order.remove(&answer.number);
        self.bytes -= answer.cost();
        if let Some(share) = self.shares.get_mut(&answer.tenant) {
            share.bytes -= answer.cost();
            share.order.remove(&answer.number);
            if share.order.is_empty() {
                self.shares.remove(&answer.tenant);
            }
        }
    }

    fn remove_number(&mut self, number: u64) {
        if let Some(key) = self.order.get(&number).cloned() {
            self.remove(&key);
        }
    }

    fn put(&mut self, key: String, mut answer: Answer, now: Instant, most: usize) {
        self.remove(&key);
        if answer.body.len() > LARGEST_ANSWER {
            return;
        }
        self.next += 1;
        answer.number = self.next;
        self.bytes += answer.cost();
        let tenant = answer.tenant.clone();
        let share = self.shares.entry(tenant.clone()).or_default();
        share.bytes += answer.cost();
        share.order.insert(self.next);
        self.order.insert(self.next, key.clone());
        self.answers.insert(key, answer);
        // Whoever asks for much makes room among its own.
        while let Some(share) = self.shares.get(&tenant).filter(|s| s.bytes > most / TENANTS_PART) {
            let Some(oldest) = share.order.first().copied() else { break };
            self.remove_number(oldest);
        }
        while let Some((number, oldest)) = self.order.first_key_value() {
            let is_over = self.answers.get(oldest).is_none_or(|answer| answer.until <= now);
            if self.bytes <= most && !is_over {
                break;
            }
            self.remove_number(*number);
        }
    }
}

impl Answer {
    fn cost(&self) -> usize {
        self.body.len() + ANSWER_COST
    }
}

impl Answers {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the same question was answered lately. If it has to be answered now, what
    /// the answer will be made from is noted before anything is read for it.
    pub(crate) async fn find(
        &self,
        app: &App,
        attempt: &Attempt,
    ) -> Result<Option<String>, ApiError> {
        attempt.check()?;
        let look = |answer: &Answer| {
            let Answer { request, ground, body, .. } = answer;
            (*request, ground.clone(), Arc::clone(body))
        };
        let is_now = |answer: &&Answer| Instant::now() < answer.until;
        let known = self.kept().answers.get(&attempt.key).filter(is_now).map(look);
        if let Some((request, ground, body)) = known
            && Ground::read(app, &attempt.tenant, ground.after).await? == ground
        {
            return match request == attempt.request {
                true => Ok(Some(body.to_string())),
                false => Err(mismatch()),
            };
        }
        self.kept().remove(&attempt.key);
        let head = app.memory.head(&attempt.tenant).await?;
        let _ = attempt.ground.set(Ground::read(app, &attempt.tenant, head).await?);
        Ok(None)
    }

    pub(crate) fn keep(&self, attempt: Attempt, body: &str) {
        // Of an answer that was not asked for first nobody knows what it is made from.
        let Some(ground) = attempt.ground.get().cloned() else { return };
        let now = Instant::now();
        let answer = Answer {
            tenant: attempt.tenant.clone(),
            number: 0,
            request: attempt.request,
            ground,
            body: body.into(),
            until: now + ANSWER_KEPT,
        };
        self.kept().put(attempt.key.clone(), answer, now, MOST_ANSWER_BYTES);
    }

    /// Lets go of a tenant's answers: something they hold was forgotten.
    pub(crate) fn forget(&self, tenant: &Tenant) {
        let mut kept = self.kept();
        let theirs: Vec<u64> =
            kept.shares.get(tenant).iter().flat_map(|share| &share.order).copied().collect();
        theirs.into_iter().for_each(|number| kept.remove_number(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_same_key_in_flight_waits_and_then_is_told() {
        let (_, closing) = tokio::sync::watch::channel(false);
        let limits = crate::limits::Limits { idempotency_wait_seconds: 0, ..Default::default() };
        let address = ([127, 0, 0, 1], 0).into();
        let app = App::new(icecore::Memory::in_memory(), limits, address, closing);
        let work = Work::new(&app);
        let (first, second) = (app.gates.ticket("k".to_owned()), app.gates.ticket("k".to_owned()));
        let open = enter(&app, &first, &work).await.unwrap();
        let refused = enter(&app, &second, &work).await.unwrap_err();
        assert!(format!("{refused:?}").contains("idempotency_in_flight"), "{refused:?}");
        drop(open);
        drop(enter(&app, &second, &work).await.unwrap());
        drop((first, second));
        assert!(app.gates.0.lock().unwrap().is_empty(), "nothing is left of them");
    }

    #[tokio::test]
    async fn what_goes_while_an_answer_is_made_is_not_given_again() {
        let (_, closing) = tokio::sync::watch::channel(false);
        let address = ([127, 0, 0, 1], 0).into();
        let app = App::new(icecore::Memory::in_memory(), Default::default(), address, closing);
        let tenant = Tenant::new("t").unwrap();
        let me = icecore::Principal::local_operator(tenant.clone());
        let scope = app.memory.scope(&me, "m").await.unwrap();
        let entry = icecore::knowledge::NewEntryRequest {
            content: "ferry".to_owned(),
            ..Default::default()
        };
        let id = app.memory.put_entry(&scope, entry).await.unwrap().id;
        let attempt = || {
            let ticket = app.gates.ticket("k".to_owned());
            Attempt {
                tenant: tenant.clone(),
                operation: "POST /search",
                key: "k".to_owned(),
                request: [1; 32],
                ground: OnceLock::new(),
                refused: Mutex::new(None),
                _open: Some(Arc::clone(&ticket.gate).try_lock_owned().unwrap()),
                _ticket: ticket,
            }
        };
        let asked = attempt();
        assert_eq!(app.answers.find(&app, &asked).await.unwrap(), None);
        app.memory.delete_entry(&scope, &id).await.unwrap();
        app.answers.keep(asked, "ferry");
        let again = attempt();
        assert_eq!(app.answers.find(&app, &again).await.unwrap(), None);
        app.answers.keep(again, "nothing");
        let found = app.answers.find(&app, &attempt()).await.unwrap();
        assert_eq!(found.as_deref(), Some("nothing"));
    }

    fn answer(tenant: &str, bytes: usize, until: Instant) -> Answer {
        Answer {
            tenant: Tenant::new(tenant).unwrap(),
            number: 0,
            request: [0; 32],
            ground: Ground { after: Position(0), erasures: Erasures::default(), secrets: 0 },
            body: "x".repeat(bytes).into(),
            until,
        }
    }

    #[test]
    fn kept_answers_are_bounded_in_bytes_and_time() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        let most = 4 * (ANSWER_COST + 100);
        for n in 0..100 {
            kept.put(n.to_string(), answer(&n.to_string(), 100, later), now, most);
            assert!(kept.bytes <= most && kept.answers.len() == kept.order.len());
        }
        assert_eq!(kept.answers.keys().collect::<Vec<_>>(), ["96", "97", "98", "99"]);
        kept.put("99".to_owned(), answer("99", 10, later), now, most);
        assert_eq!((kept.answers.len(), kept.bytes), (4, most - 90));
        kept.put("new".to_owned(), answer("t", 1, later + ANSWER_KEPT), later, most);
        assert_eq!(kept.answers.keys().collect::<Vec<_>>(), ["new"]);
        assert_eq!((kept.order.len(), kept.shares.len()), (1, 1));
    }

    #[test]
    fn one_tenant_leaves_room_for_the_others() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        let later = now + ANSWER_KEPT;
        let most = 8 * (ANSWER_COST + 100);
        kept.put("theirs".to_owned(), answer("rival", 100, later), now, most);
        for n in 0..100 {
            kept.put(n.to_string(), answer("acme", 100, later), now, most);
        }
        assert_eq!(kept.answers.keys().collect::<Vec<_>>(), ["98", "99", "theirs"]);
        // One that is too large is not kept, and nor is what it would replace.
        let put = |kept: &mut Kept, bytes| {
            kept.put("99".to_owned(), answer("acme", bytes, later), now, MOST_ANSWER_BYTES);
            kept.answers.contains_key("99")
        };
        assert!(put(&mut kept, LARGEST_ANSWER));
        assert!(!put(&mut kept, LARGEST_ANSWER + 1));
        assert_eq!(kept.bytes, 2 * (ANSWER_COST + 100));
    }
}
