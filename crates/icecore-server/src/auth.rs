//! Who is calling: a bearer key, found by its hash, bound to a tenant and a role.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use icecore::{Principal, Scope, Tenant};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::app::{App, Shared};
use crate::error::ApiError;
use crate::refusal::CalledBy;

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// To read.
    Reader,
    /// To write too, and to forget.
    Writer,
    /// Everything.
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
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    principal: Principal,
    role: Role,
}

/// Proof that the caller may read.
pub(crate) struct Reader(pub(crate) Caller);

/// Proof that the caller may write.
pub(crate) struct Writer(pub(crate) Caller);

impl Caller {
    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    pub(crate) fn tenant(&self) -> &Tenant {
        self.principal.tenant()
    }

    /// One memory of the caller's tenant.
    pub(crate) async fn scope(&self, app: &App, memory: Option<&str>) -> Result<Scope, ApiError> {
        Ok(app.memory.scope(&self.principal, memory.unwrap_or(DEFAULT_MEMORY)).await?)
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
        Ok(Reader(authenticate(parts, app).await?))
    }
}

impl FromRequestParts<Shared> for Writer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Shared) -> Result<Self, ApiError> {
        let caller = authenticate(parts, app).await?;
        match caller.role >= Role::Writer {
            true => Ok(Writer(caller)),
            false => Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "forbidden",
                "this key may read only; use one with the role writer or admin",
            )),
        }
    }
}

async fn authenticate(parts: &Parts, app: &App) -> Result<Caller, ApiError> {
    let known = known(parts, app).await;
    let caller = known.map_err(|refusal| app.rates.denied(parts, refusal))?;
    if let Some(by) = parts.extensions.get::<CalledBy>() {
        by.is(caller.tenant());
        by.id.settle(app, caller.tenant()).await;
    }
    app.rates.admit(parts)?;
    Ok(caller)
}

async fn known(parts: &Parts, app: &App) -> Result<Caller, ApiError> {
    let header = parts.headers.get(header::AUTHORIZATION);
    let header = header
        .ok_or_else(|| ApiError::unauthenticated("send a key as `Authorization: Bearer KEY`"))?;
    let key = header.to_str().ok().and_then(bearer).ok_or_else(|| {
        ApiError::unauthenticated("the header `Authorization` is not of the form `Bearer KEY`")
    })?;
    let hash = hash_key(key);
    if let Some(caller) = app.keys.find(&hash) {
        return Ok(caller);
    }
    let record = app.memory.store().api_key(&hash).await?;
    let caller = record.and_then(|record| {
        Some(Caller {
            role: Role::parse(&record.role)?,
            principal: Principal::key_holder(record.tenant),
        })
    });
    let caller = caller.ok_or_else(|| ApiError::unauthenticated("this key is not known"))?;
    app.keys.keep(hash, &caller);
    Ok(caller)
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, key) = header.split_once(' ')?;
    let key = key.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then_some(key)
}

/// What is stored of a key. Keys are 256 random bits, so a plain hash suffices.
pub(crate) fn hash_key(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

/// Keys that were found lately.
///
/// Short-lived, so that a key that is taken back stops working within seconds;
/// small, so that every search can look at all of it and tell nothing by its time.
#[derive(Default)]
pub(crate) struct KeyRing(Mutex<Vec<Held>>);

struct Held {
    hash: [u8; 32],
    caller: Caller,
    until: Instant,
}

/// A change of keys made elsewhere is to be seen within five seconds.
const HELD: Duration = Duration::from_secs(2);

const MOST_HELD: usize = 64;

impl KeyRing {
    fn find(&self, hash: &[u8; 32]) -> Option<Caller> {
        let held = self.0.lock().ok()?;
        let now = Instant::now();
        let mut found = None;
        for key in held.iter() {
            if bool::from(key.hash.ct_eq(hash)) && now < key.until {
                found = Some(key.caller.clone());
            }
        }
        found
    }

    fn keep(&self, hash: [u8; 32], caller: &Caller) {
        let Ok(mut held) = self.0.lock() else { return };
        let now = Instant::now();
        held.retain(|key| now < key.until && key.hash != hash);
        if held.len() == MOST_HELD {
            held.remove(0);
        }
        held.push(Held { hash, caller: caller.clone(), until: now + HELD });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_bearer_form() {
        let check = |header, key| assert_eq!(bearer(header), key, "{header}");
        check("Bearer abc", Some("abc"));
        check("bearer  abc ", Some("abc"));
        check("Basic abc", None);
        check("Bearer ", None);
        check("Bearer", None);
        check("", None);
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
