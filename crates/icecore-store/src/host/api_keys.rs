//! API keys: the one table that is looked up before the tenant is known.

use icecore_domain::ids::Tenant;
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;
use serde_json::{Value, json};

use crate::engine::tx::{Isolation, Tx};
use crate::engine::{OptionalExtension, Row, params};
use crate::error::{Result, StoreError};
use crate::store::Store;
use crate::{log, scopes};

/// The role of a key that may do everything.
const ADMIN: &str = "admin";

/// An API key without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyRecord {
    /// Its public id.
    pub id: String,
    /// Whom it acts for.
    pub tenant: Tenant,
    /// `reader`, `writer` or `admin`.
    pub role: String,
    /// What people call it.
    pub name: Option<RedactedText>,
    /// When it was made.
    pub created_at: Millis,
    /// The first moment at which it is good for nothing.
    pub expires_at: Option<Millis>,
    /// When it was taken back.
    pub revoked_at: Option<Millis>,
}

/// What a key is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// What its role allows.
    Valid,
    /// Nothing any more.
    Expired,
    /// Nothing, for it was taken back.
    Revoked,
}

impl KeyState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            KeyState::Valid => "valid",
            KeyState::Expired => "expired",
            KeyState::Revoked => "revoked",
        }
    }
}

/// Who makes, ends or replaces a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyActor {
    /// Whoever runs the host, at its own machine.
    Operator,
    /// The holder of the key with this public id.
    Key(String),
}

impl KeyActor {
    /// The word for it in the log.
    pub fn as_str(&self) -> &str {
        match self {
            KeyActor::Operator => "operator",
            KeyActor::Key(id) => id,
        }
    }
}

/// A key to take back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRevocation {
    /// Its public id.
    pub id: String,
    /// Whose it must be; anybody's where none is named.
    pub tenant: Option<Tenant>,
    /// Refuses to take back the last valid admin key of its tenant.
    pub keeps_an_admin: bool,
    /// Who takes it back.
    pub by: KeyActor,
    /// Now.
    pub at: Millis,
}

/// A key to put another in the place of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRotation {
    /// Its public id.
    pub id: String,
    /// Whose it must be; anybody's where none is named.
    pub tenant: Option<Tenant>,
    /// The id of the new key.
    pub new_id: String,
    /// The hash of the new key.
    pub new_hash: [u8; 32],
    /// How long the old one still works; with 0 it is revoked at once.
    pub overlap_millis: i64,
    /// The least overlap where it is the last valid admin key of its tenant: who
    /// does not get to see the new one must not be shut out.
    pub last_admin_overlap_millis: i64,
    /// Who rotates it.
    pub by: KeyActor,
    /// Now.
    pub at: Millis,
}

/// What a rotation left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotatedKey {
    /// The key that ends.
    pub old: ApiKeyRecord,
    /// The key in its place.
    pub new: ApiKeyRecord,
}

impl ApiKeyRecord {
    /// What it is good for at a moment. A revoked key is revoked whenever that was.
    pub fn state(&self, at: Millis) -> KeyState {
        match (self.revoked_at, self.expires_at) {
            (Some(_), _) => KeyState::Revoked,
            (None, Some(end)) if end <= at => KeyState::Expired,
            _ => KeyState::Valid,
        }
    }

    /// Whether no other of `keys` is a valid admin key, but this one is.
    fn is_last_admin(&self, keys: &[ApiKeyRecord], at: Millis) -> bool {
        let mut others = keys.iter().filter(|other| other.id != self.id);
        self.is_valid_admin(at) && !others.any(|other| other.is_valid_admin(at))
    }

    fn is_valid_admin(&self, at: Millis) -> bool {
        self.role == ADMIN && self.state(at) == KeyState::Valid
    }

    /// What the log says of it.
    pub(crate) fn created(&self, by: &KeyActor) -> String {
        json!({
            "keyId": self.id,
            "role": self.role,
            "expiresAt": time(self.expires_at),
            "by": by.as_str(),
        })
        .to_string()
    }

    /// What the log says when it is taken back.
    pub(crate) fn revoked(&self, by: &KeyActor) -> String {
        json!({ "keyId": self.id, "role": self.role, "by": by.as_str() }).to_string()
    }
}

impl KeyRevocation {
    /// The key as it will be; none if it is revoked already. `keys` are all of its
    /// tenant.
    pub(crate) fn of(
        &self,
        key: &ApiKeyRecord,
        keys: &[ApiKeyRecord],
    ) -> Result<Option<ApiKeyRecord>> {
        if key.revoked_at.is_some() {
            return Ok(None);
        }
        match self.keeps_an_admin && key.is_last_admin(keys, self.at) {
            true => Err(StoreError::LastAdminKey { id: key.id.clone() }),
            false => Ok(Some(ApiKeyRecord { revoked_at: Some(self.at), ..key.clone() })),
        }
    }
}

impl KeyRotation {
    /// The old key as it will be, and the one in its place: for the same tenant,
    /// with the same role and name, and for as long as the old one was made for.
    /// `keys` are all of its tenant.
    pub(crate) fn of(&self, old: &ApiKeyRecord, keys: &[ApiKeyRecord]) -> Result<RotatedKey> {
        if old.state(self.at) != KeyState::Valid {
            return Err(StoreError::KeyEnded { id: old.id.clone() });
        }
        let lifetime = old.expires_at.map(|end| end.0.saturating_sub(old.created_at.0));
        let new = ApiKeyRecord {
            id: self.new_id.clone(),
            created_at: self.at,
            expires_at: lifetime.map(|millis| Millis(self.at.0.saturating_add(millis))),
            ..old.clone()
        };
        let least = match old.is_last_admin(keys, self.at) {
            true => self.last_admin_overlap_millis,
            false => 0,
        };
        let mut old = old.clone();
        match self.overlap_millis.max(least) {
            ..=0 => old.revoked_at = Some(self.at),
            overlap => {
                let end = Millis(self.at.0.saturating_add(overlap));
                old.expires_at = Some(old.expires_at.map_or(end, |before| before.min(end)));
            }
        }
        Ok(RotatedKey { old, new })
    }
}

impl RotatedKey {
    /// What the log says of it.
    pub(crate) fn rotated(&self, by: &KeyActor) -> String {
        json!({
            "keyId": self.old.id,
            "newKeyId": self.new.id,
            "role": self.new.role,
            "expiresAt": time(self.new.expires_at),
            "oldEndsAt": time(self.old.revoked_at.or(self.old.expires_at)),
            "by": by.as_str(),
        })
        .to_string()
    }
}

fn time(at: Option<Millis>) -> Value {
    at.map_or(Value::Null, |at| Value::String(at.to_rfc3339()))
}

/// What a record is read from.
const COLUMNS: &str = "id, tenant, role, name, created_at, expires_at, revoked_at";

pub(crate) fn put(tx: &Tx<'_>, key: &ApiKeyRecord, hash: &[u8; 32], by: &KeyActor) -> Result<()> {
    let (tenant, _) = scopes::ensure_tenant(tx, &key.tenant)?;
    let put = || {
        insert(tx, key, hash)?;
        log::record(tx, tenant, None, "key.created", &key.created(by), key.created_at)
    };
    put().map(|_| ())
}

fn insert(tx: &Tx<'_>, key: &ApiKeyRecord, hash: &[u8; 32]) -> Result<usize> {
    tx.execute(
        "INSERT INTO api_keys (hash, id, tenant, role, name, created_at, expires_at, revoked_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![
            hash.as_slice(),
            key.id,
            key.tenant.as_str(),
            key.role,
            key.name.as_ref().map(RedactedText::as_str),
            key.created_at.0,
            key.expires_at.map(|at| at.0),
            key.revoked_at.map(|at| at.0),
        ],
    )
}

pub(crate) fn by_hash(tx: &Tx<'_>, hash: &[u8; 32]) -> Result<Option<ApiKeyRecord>> {
    tx.prepare_cached(&format!("SELECT {COLUMNS} FROM api_keys WHERE hash = ?1"))
        .and_then(|mut q| q.query_row([hash.as_slice()], read).optional())
        .map(Option::flatten)
}

fn by_id(tx: &Tx<'_>, id: &str, tenant: Option<&Tenant>) -> Result<Option<ApiKeyRecord>> {
    let found = tx
        .prepare_cached(&format!("SELECT {COLUMNS} FROM api_keys WHERE id = ?1"))
        .and_then(|mut q| q.query_row([id], read).optional())?;
    Ok(found.flatten().filter(|key| tenant.is_none_or(|tenant| *tenant == key.tenant)))
}

pub(crate) fn list(tx: &Tx<'_>, tenant: Option<&Tenant>) -> Result<Vec<ApiKeyRecord>> {
    let keys = tx
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM api_keys WHERE ?1 IS NULL OR tenant = ?1
             ORDER BY tenant, created_at, id"
        ))
        .and_then(|mut q| q.query_map([tenant.map(Tenant::as_str)], read)?.collect())?;
    let keys: Vec<Option<ApiKeyRecord>> = keys;
    Ok(keys.into_iter().flatten().collect())
}

/// None where the tenant's name is none that we would have written.
#[expect(clippy::disallowed_methods, reason = "the name was redacted before it was put")]
fn read(row: &Row<'_>) -> Result<Option<ApiKeyRecord>> {
    let Ok(tenant) = Tenant::new(row.get::<_, String>(1)?) else { return Ok(None) };
    Ok(Some(ApiKeyRecord {
        id: row.get(0)?,
        tenant,
        role: row.get(2)?,
        name: row.get::<_, Option<String>>(3)?.map(RedactedText::read_back),
        created_at: Millis(row.get(4)?),
        expires_at: row.get::<_, Option<i64>>(5)?.map(Millis),
        revoked_at: row.get::<_, Option<i64>>(6)?.map(Millis),
    }))
}

pub(crate) fn revoke(tx: &Tx<'_>, revocation: &KeyRevocation) -> Result<Option<ApiKeyRecord>> {
    let Some(key) = by_id(tx, &revocation.id, revocation.tenant.as_ref())? else {
        return Ok(None);
    };
    let keys = list(tx, Some(&key.tenant))?;
    let Some(revoked) = revocation.of(&key, &keys)? else { return Ok(Some(key)) };
    let (tenant, _) = scopes::ensure_tenant(tx, &revoked.tenant)?;
    let write = || -> Result<_> {
        end(tx, &revoked)?;
        log::record(
            tx,
            tenant,
            None,
            "key.revoked",
            &revoked.revoked(&revocation.by),
            revocation.at,
        )
    };
    write()?;
    Ok(Some(revoked))
}

pub(crate) fn rotate(tx: &Tx<'_>, rotation: &KeyRotation) -> Result<Option<RotatedKey>> {
    let Some(key) = by_id(tx, &rotation.id, rotation.tenant.as_ref())? else { return Ok(None) };
    let rotated = rotation.of(&key, &list(tx, Some(&key.tenant))?)?;
    let (tenant, _) = scopes::ensure_tenant(tx, &key.tenant)?;
    let write = || -> Result<_> {
        end(tx, &rotated.old)?;
        insert(tx, &rotated.new, &rotation.new_hash)?;
        log::record(tx, tenant, None, "key.rotated", &rotated.rotated(&rotation.by), rotation.at)
    };
    write()?;
    Ok(Some(rotated))
}

/// Writes when a key ends.
fn end(tx: &Tx<'_>, key: &ApiKeyRecord) -> Result<usize> {
    tx.execute(
        "UPDATE api_keys SET expires_at = ?2, revoked_at = ?3 WHERE id = ?1",
        params![key.id, key.expires_at.map(|at| at.0), key.revoked_at.map(|at| at.0)],
    )
}

pub(crate) fn rename(tx: &Tx<'_>, id: &str, name: &RedactedText) -> Result<()> {
    tx.execute("UPDATE api_keys SET name = ?2 WHERE id = ?1", params![id, name.as_str()])
        .map(|_| ())
}

impl Store {
    /// Stores the hash of an API key, and says so in its tenant's log
    /// (`key.created`). An id or a hash that is there already is an error.
    pub async fn put_api_key(&self, key: ApiKeyRecord, hash: [u8; 32], by: KeyActor) -> Result<()> {
        self.write(Isolation::Global, "put_api_key", move |tx| put(tx, &key, &hash, &by)).await
    }

    /// The key with that hash, also one that expired or was revoked.
    pub async fn api_key(&self, hash: &[u8; 32]) -> Result<Option<ApiKeyRecord>> {
        let hash = *hash;
        self.read(Isolation::Global, "api_key", move |tx| by_hash(tx, &hash)).await
    }

    /// The keys of a tenant or of all, by tenant and oldest first; also those that
    /// expired or were revoked.
    pub async fn api_keys(&self, tenant: Option<&Tenant>) -> Result<Vec<ApiKeyRecord>> {
        let tenant = tenant.cloned();
        self.read(Isolation::from(tenant.as_ref()), "api_keys", move |tx| list(tx, tenant.as_ref()))
            .await
    }

    /// Takes a key back (`key.revoked`) and answers it as it is then; nothing if
    /// there is none of that id, or none of the tenant that was named. A key that
    /// is revoked stays as it was, and nothing is logged again. The last valid
    /// admin key of a tenant is [`StoreError::LastAdminKey`], where that is asked.
    pub async fn revoke_api_key(&self, revocation: KeyRevocation) -> Result<Option<ApiKeyRecord>> {
        self.write(Isolation::Global, "revoke_api_key", move |tx| revoke(tx, &revocation)).await
    }

    /// Puts a new key in the place of one that is valid (`key.rotated`): same
    /// tenant, role and name, made for as long. The old one ends at once or after
    /// the overlap, in the same step. One that ended is [`StoreError::KeyEnded`];
    /// nothing is answered for one that is not there, as with a revocation.
    pub async fn rotate_api_key(&self, rotation: KeyRotation) -> Result<Option<RotatedKey>> {
        self.write(Isolation::Global, "rotate_api_key", move |tx| rotate(tx, &rotation)).await
    }
}
