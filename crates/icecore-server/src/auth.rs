//! Who is calling: a bearer key, found by its hash, bound to a tenant and a role.
//!
//! What was presented is hashed at once and goes nowhere else: no error, log line
//! or panic can repeat it.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use icecore::models::Protocol;
use icecore::{MemoryError, Millis, Principal, Scope, Tenant};
use icecore_host::keys::KeyState;
use sha2::{Digest, Sha256};

use crate::app::{App, Shared};
use crate::audit::{self, Reason};
use crate::error::ApiError;
use crate::keyring::{self, KnownKey};
use crate::keys::ADMIN_TENANT;
use crate::proxy::{self, API_KEY};
use crate::refusal::CalledBy;
use crate::work::Work;

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// To read.
    Reader,
    /// To write too, and to forget.
    Writer,
    /// Everything, the keys of its tenant among it.
    Admin,
}

impl Role {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Reader => "reader",
            Role::Writer => "writer",
            Role::Admin => "admin",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<Role> {
        [Role::Reader, Role::Writer, Role::Admin].into_iter().find(|role| role.as_str() == word)
    }
}

/// The holder of a key.
#[derive(Clone)]
pub(crate) struct Caller {
    principal: Principal,
    key: Arc<KnownKey>,
    hash: [u8; 32],
    /// Whether the request changes nothing.
    only_reads: bool,
}

/// Proof that the caller may read.
pub(crate) struct Reader(pub(crate) Caller);

/// Proof that the caller may write, and that anybody may.
pub(crate) struct Writer(pub(crate) Caller);

/// Proof that the caller may look after the keys of its tenant.
pub(crate) struct Admin(pub(crate) Caller);

/// Proof that the caller looks after the host: an admin of the first key's tenant.
pub(crate) struct Operator;

impl Caller {
    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    pub(crate) fn tenant(&self) -> &Tenant {
        self.principal.tenant()
    }

    /// The public id of the key that was shown.
    pub(crate) fn key_id(&self) -> &str {
        &self.key.record.id
    }

    /// Whether the key is still good, for answers that go on for long.
    pub(crate) async fn is_still_valid(&self, app: &App) -> bool {
        let found = keyring::find(app, &self.hash).await;
        let now = app.memory.now();
        found.is_ok_and(|key| key.is_some_and(|key| key.record.state(now) == KeyState::Valid))
    }

    /// One memory of the caller's tenant. Who only reads finds nothing in one that
    /// cannot be, as in one that is not; who writes is told what is wrong.
    pub(crate) async fn scope(&self, app: &App, memory: Option<&str>) -> Result<Scope, ApiError> {
        match app.memory.scope(&self.principal, memory.unwrap_or(DEFAULT_MEMORY)).await {
            Err(MemoryError::Name(_)) if self.only_reads => Ok(self.principal.nowhere()),
            Err(MemoryError::Name(error)) => {
                Err(ApiError::invalid(format!("`memoryRef`: {error}")))
            }
            found => Ok(found?),
        }
    }

    /// The memory to narrow a list to; the whole tenant where none is given.
    pub(crate) async fn filter(
        &self,
        app: &App,
        memory: Option<&str>,
    ) -> Result<Option<String>, ApiError> {
        match memory {
            Some(name) => Ok(Some(self.scope(app, Some(name)).await?.memory().to_owned())),
            None => Ok(None),
        }
    }
}

/// The memory that a request means when it names none.
const DEFAULT_MEMORY: &str = "default";

impl FromRequestParts<Shared> for Reader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let caller = authenticate(parts, app, Role::Reader).await?;
        Ok(Reader(Caller { only_reads: true, ..caller }))
    }
}

impl FromRequestParts<Shared> for Writer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let caller = authenticate(parts, app, Role::Writer).await?;
        match app.host.settings().read_only {
            true => Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "forbidden",
                "nobody writes here: the host runs with `openwop.read_only`",
            )),
            false => Ok(Writer(caller)),
        }
    }
}

impl FromRequestParts<Shared> for Admin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        authenticate(parts, app, Role::Admin).await.map(Admin)
    }
}

impl FromRequestParts<Shared> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let caller = authenticate(parts, app, Role::Admin).await?;
        if caller.tenant().as_str() == ADMIN_TENANT {
            return Ok(Operator);
        }
        audit::deny(app, parts, Reason::Role, Some(&caller.key.record));
        Err(ApiError::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            format!("only an admin of the tenant `{ADMIN_TENANT}` may read this here"),
        ))
    }
}

async fn authenticate(parts: &Parts, app: &App, needed: Role) -> Result<Caller, ApiError> {
    let deny = |reason, key: Option<&KnownKey>| {
        audit::deny(app, parts, reason, key.map(|key| &key.record));
        match reason {
            Reason::Role => refusal(reason, needed),
            // Guessing keys is slow.
            reason => app.rates.denied(parts, refusal(reason, needed)),
        }
    };
    let hash = match presented(parts) {
        Ok(key) => hash_key(key),
        Err(reason) => return Err(deny(reason, None)),
    };
    let Some(key) = keyring::find(app, &hash).await? else {
        return Err(deny(Reason::Unknown, None));
    };
    let verdict = judge(&key, needed, app.memory.now());
    // A key that ended still tells whose secrets a refusal must hide.
    if let Some(by) = parts.extensions.get::<CalledBy>() {
        by.is(&key.record.tenant);
        by.id.settle(app, &key.record.tenant).await;
    }
    // Whatever a good key asks for counts, also what its role does not allow.
    if matches!(verdict, Ok(()) | Err(Reason::Role)) {
        app.rates.admit(hash)?;
        app.host.bounds.admit_request(&key.record.tenant).await?;
    }
    match verdict {
        Ok(()) => {
            if let Some(work) = parts.extensions.get::<Work>() {
                work.charge(&key.record.tenant).await?;
            }
            let principal = Principal::key_holder(key.record.tenant.clone());
            Ok(Caller { principal, key, hash, only_reads: false })
        }
        Err(reason) => Err(deny(reason, Some(&key))),
    }
}

/// The key that a request shows. Anthropic's clients have a header of their own for it.
fn presented(parts: &Parts) -> Result<&str, Reason> {
    let headers = &parts.headers;
    let is_theirs = proxy::protocol_of(parts.uri.path()) == Some(Protocol::Anthropic);
    let mut values = headers.get_all(API_KEY).iter().filter(|_| is_theirs);
    let (own, bearer) = (values.next(), shown(headers));
    match (own, values.next(), bearer) {
        (None, _, bearer) => bearer,
        (Some(own), None, Err(Reason::NoKey)) => {
            own.to_str().ok().filter(|key| is_one_word(key)).ok_or(Reason::Malformed)
        }
        (Some(own), None, Ok(bearer)) if own == bearer => Ok(bearer),
        // Which of two counts would depend on who reads them.
        _ => Err(Reason::Malformed),
    }
}

/// A key alone in the one header for it.
fn shown(headers: &HeaderMap) -> Result<&str, Reason> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().ok_or(Reason::NoKey)?;
    match values.next() {
        None => value.to_str().ok().and_then(bearer).ok_or(Reason::Malformed),
        // Which of two counts would depend on who reads them.
        Some(_) => Err(Reason::Malformed),
    }
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, key) = header.split_once(' ')?;
    let key = key.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && is_one_word(key)).then_some(key)
}

fn is_one_word(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic())
}

fn judge(key: &KnownKey, needed: Role, now: Millis) -> Result<(), Reason> {
    match key.record.state(now) {
        KeyState::Revoked => Err(Reason::Revoked),
        KeyState::Expired => Err(Reason::Expired),
        KeyState::Valid if key.role < needed => Err(Reason::Role),
        KeyState::Valid => Ok(()),
    }
}

fn refusal(reason: Reason, needed: Role) -> ApiError {
    match reason {
        Reason::NoKey => ApiError::unauthenticated("send a key as `Authorization: Bearer KEY`"),
        Reason::Malformed => {
            ApiError::unauthenticated("send one header `Authorization`, of the form `Bearer KEY`")
        }
        Reason::Unknown => ApiError::unauthenticated("this key is not known"),
        Reason::Expired => ApiError::ended_key("key_expired", "this key has expired"),
        Reason::Revoked => ApiError::ended_key("key_revoked", "this key was revoked"),
        Reason::Role | Reason::Elsewhere => ApiError::new(
            StatusCode::FORBIDDEN,
            "forbidden",
            match needed {
                Role::Admin => "only a key with the role admin may do this",
                _ => "this key may read only; use one with the role writer or admin",
            },
        ),
    }
}

/// What is stored of a key. Keys are 256 random bits, so a plain hash suffices.
pub(crate) fn hash_key(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn reads_the_bearer_form() {
        let check = |header, key| assert_eq!(bearer(header), key, "{header}");
        check("Bearer abc", Some("abc"));
        check("bearer  abc ", Some("abc"));
        check("Basic abc", None);
        check("Bearer ", None);
        check("Bearer", None);
        check("Bearer a b", None);
        check("Bearer a\tb", None);
        check("Bearer\tab", None);
        check("Bearer abc, Bearer def", None);
        check("", None);
    }

    #[test]
    fn one_header_shows_one_key() {
        let check = |values: &[&[u8]], expected: Result<&str, Reason>| {
            let mut headers = HeaderMap::new();
            for value in values {
                let value = HeaderValue::from_bytes(value).unwrap();
                headers.append(header::AUTHORIZATION, value);
            }
            assert_eq!(shown(&headers), expected, "{values:?}");
        };
        check(&[], Err(Reason::NoKey));
        check(&[b"Bearer abc"], Ok("abc"));
        check(&[b"Bearer abc", b"Bearer abc"], Err(Reason::Malformed));
        check(&[b"Bearer abc", b""], Err(Reason::Malformed));
        check(&[b"Bearer \xff\xfe"], Err(Reason::Malformed));
        check(&["Bearer \u{fc}".as_bytes()], Err(Reason::Malformed));
    }

    #[test]
    fn anthropics_clients_have_a_header_of_their_own() {
        let check = |path: &str, headers: &[(&str, &str)], expected: Result<&str, Reason>| {
            let mut request = axum::http::Request::builder().uri(path);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(presented(&parts), expected, "{path} {headers:?}");
        };
        let theirs = "/anthropic/v1/messages";
        check(theirs, &[("x-api-key", "abc")], Ok("abc"));
        check(theirs, &[("authorization", "Bearer abc")], Ok("abc"));
        check(theirs, &[("x-api-key", "abc"), ("authorization", "Bearer abc")], Ok("abc"));
        check(
            theirs,
            &[("x-api-key", "abc"), ("authorization", "Bearer def")],
            Err(Reason::Malformed),
        );
        check(theirs, &[("x-api-key", "abc"), ("x-api-key", "abc")], Err(Reason::Malformed));
        check(theirs, &[("x-api-key", "a b")], Err(Reason::Malformed));
        check(theirs, &[], Err(Reason::NoKey));
        for other in ["/openai/v1/chat/completions", "/v1/runs"] {
            check(other, &[("x-api-key", "abc")], Err(Reason::NoKey));
        }
    }

    #[test]
    fn roles_include_the_smaller_ones() {
        assert!(Role::Reader < Role::Writer && Role::Writer < Role::Admin);
        for role in [Role::Reader, Role::Writer, Role::Admin] {
            assert_eq!(Role::parse(role.as_str()), Some(role));
        }
        assert_eq!(Role::parse("root"), None);
    }
}
