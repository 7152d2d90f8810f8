//! API keys: the one table that is looked up before the tenant is known.

use icecore_domain::ids::Tenant;
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;
use serde_json::{Value as Json, json};

use crate::engine::tx::{Isolation, Tx};
use crate::engine::{Row, fields, params};
use crate::error::{Result, StoreError};
use crate::store::Store;
use crate::words::words;
use crate::{log, scopes};

/// The role of a key that may do everything.
const ADMIN: &str = "admin";

/// An API key without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyRecord {
    pub id: String,
    pub tenant: Tenant,
    /// `reader`, `writer` or `admin`.
    pub role: String,
    /// A label for people.
    pub name: Option<RedactedText>,
    pub created_at: Millis,
    /// The first moment at which it no longer works.
    pub expires_at: Option<Millis>,
    pub revoked_at: Option<Millis>,
}

words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum KeyState {
        Valid = "valid",
        Expired = "expired",
        Revoked = "revoked",
    }
}

/// Who makes, revokes or rotates a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyActor {
    Operator,
    /// The holder of the key with this public id.
    Key(String),
}

impl KeyActor {
    /// How the log names the actor.
    pub fn as_str(&self) -> &str {
        match self {
            KeyActor::Operator => "operator",
            KeyActor::Key(id) => id,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRevocation {
    pub id: String,
    /// The tenant that the key must belong to; any tenant if `None`.
    pub tenant: Option<Tenant>,
    /// Refuses to revoke the last valid admin key of its tenant.
    pub keeps_an_admin: bool,
    pub by: KeyActor,
    pub at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRotation {
    pub id: String,
    /// The tenant that the key must belong to; any tenant if `None`.
    pub tenant: Option<Tenant>,
    pub new_id: String,
    pub new_hash: [u8; 32],
    /// How long the old key still works; with 0 it is revoked at once.
    pub overlap_millis: i64,
    /// The least overlap for the last valid admin key of a tenant: a caller who never
    /// receives the new key must not be locked out.
    pub last_admin_overlap_millis: i64,
    pub by: KeyActor,
    pub at: Millis,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotatedKey {
    pub old: ApiKeyRecord,
    pub new: ApiKeyRecord,
}

impl ApiKeyRecord {
    /// What the key is good for at a moment. A revoked key is revoked at every moment.
    pub fn state(&self, at: Millis) -> KeyState {
        match (self.revoked_at, self.expires_at) {
            (Some(_), _) => KeyState::Revoked,
            (None, Some(end)) if end <= at => KeyState::Expired,
            _ => KeyState::Valid,
        }
    }

    fn is_valid_admin(&self, at: Millis) -> bool {
        self.role == ADMIN && self.state(at) == KeyState::Valid
    }
}

impl Store {
    /// Stores the hash of a key and logs `key.created`; an id or a hash that exists is an error.
    pub async fn put_api_key(&self, key: ApiKeyRecord, hash: [u8; 32], by: KeyActor) -> Result<()> {
        self.write(Isolation::Global, "put_api_key", move |tx| {
            insert(tx, &key, &hash)?;
            let created = json!({
                "keyId": key.id,
                "role": key.role,
                "expiresAt": rfc3339(key.expires_at),
                "by": by.as_str(),
            });
            record(tx, &key.tenant, "key.created", created, key.created_at)
        })
        .await
    }

    /// The key with this hash, even if it expired or was revoked.
    pub async fn api_key(&self, hash: &[u8; 32]) -> Result<Option<ApiKeyRecord>> {
        let hash = *hash;
        self.read(Isolation::Global, "api_key", move |tx| {
            let sql = format!("SELECT {COLUMNS} FROM api_keys WHERE hash = ?1");
            Ok(tx.first(&sql, [hash], read)?.flatten())
        })
        .await
    }

    /// The keys of a tenant or of all, by tenant and oldest first, also ended ones.
    pub async fn api_keys(&self, tenant: Option<&Tenant>) -> Result<Vec<ApiKeyRecord>> {
        self.read(tenant, "api_keys", |tx| list(tx, tx.of().tenant())).await
    }

    /// Revokes a key and logs `key.revoked`; `None` if the key does not exist or belongs to
    /// another tenant. A revoked key stays as it is. The last valid admin key of a tenant is
    /// [`StoreError::LastAdminKey`] if the revocation keeps an admin.
    pub async fn revoke_api_key(&self, revocation: KeyRevocation) -> Result<Option<ApiKeyRecord>> {
        self.write(Isolation::Global, "revoke_api_key", move |tx| revoke(tx, &revocation)).await
    }

    /// Replaces a valid key by one with the same tenant, role, name and lifetime, and revokes
    /// the old one, or lets it expire after the overlap. Logs `key.rotated`. A key that is not
    /// valid is [`StoreError::KeyEnded`]; `None` as for a revocation.
    pub async fn rotate_api_key(&self, rotation: KeyRotation) -> Result<Option<RotatedKey>> {
        self.write(Isolation::Global, "rotate_api_key", move |tx| rotate(tx, &rotation)).await
    }
}

fn revoke(tx: &Tx<'_>, revocation: &KeyRevocation) -> Result<Option<ApiKeyRecord>> {
    let KeyRevocation { id, tenant, keeps_an_admin, by, at } = revocation;
    let Some(key) = by_id(tx, id, tenant.as_ref())? else { return Ok(None) };
    if key.revoked_at.is_some() {
        return Ok(Some(key));
    }
    if *keeps_an_admin && is_last_admin(tx, &key, *at)? {
        return Err(StoreError::LastAdminKey { id: key.id });
    }
    let key = ApiKeyRecord { revoked_at: Some(*at), ..key };
    update_end(tx, &key)?;
    let revoked = json!({ "keyId": key.id, "role": key.role, "by": by.as_str() });
    record(tx, &key.tenant, "key.revoked", revoked, *at)?;
    Ok(Some(key))
}

fn rotate(tx: &Tx<'_>, rotation: &KeyRotation) -> Result<Option<RotatedKey>> {
    let now = rotation.at;
    let Some(mut old) = by_id(tx, &rotation.id, rotation.tenant.as_ref())? else {
        return Ok(None);
    };
    if old.state(now) != KeyState::Valid {
        return Err(StoreError::KeyEnded { id: old.id });
    }
    let lifetime = old.expires_at.map(|end| end.0.saturating_sub(old.created_at.0));
    let new = ApiKeyRecord {
        id: rotation.new_id.clone(),
        created_at: now,
        expires_at: lifetime.map(|millis| Millis(now.0.saturating_add(millis))),
        ..old.clone()
    };
    let mut overlap = rotation.overlap_millis;
    if is_last_admin(tx, &old, now)? {
        overlap = overlap.max(rotation.last_admin_overlap_millis);
    }
    if overlap > 0 {
        let end = Millis(now.0.saturating_add(overlap));
        old.expires_at = Some(old.expires_at.map_or(end, |before| before.min(end)));
    } else {
        old.revoked_at = Some(now);
    }
    update_end(tx, &old)?;
    insert(tx, &new, &rotation.new_hash)?;
    let rotated = json!({
        "keyId": old.id,
        "newKeyId": new.id,
        "role": new.role,
        "expiresAt": rfc3339(new.expires_at),
        "oldEndsAt": rfc3339(old.revoked_at.or(old.expires_at)),
        "by": rotation.by.as_str(),
    });
    record(tx, &new.tenant, "key.rotated", rotated, now)?;
    Ok(Some(RotatedKey { old, new }))
}

/// Whether a key is the only valid admin key of its tenant.
fn is_last_admin(tx: &Tx<'_>, key: &ApiKeyRecord, at: Millis) -> Result<bool> {
    let keys = list(tx, Some(&key.tenant))?;
    let mut others = keys.iter().filter(|other| other.id != key.id);
    Ok(key.is_valid_admin(at) && !others.any(|other| other.is_valid_admin(at)))
}

fn record(tx: &Tx<'_>, tenant: &Tenant, kind: &str, payload: Json, at: Millis) -> Result<()> {
    let (tenant, _) = scopes::ensure_tenant(tx, tenant)?;
    log::record(tx, tenant, None, kind, &payload.to_string(), at)?;
    Ok(())
}

fn rfc3339(at: Option<Millis>) -> Option<String> {
    at.map(|at| at.to_rfc3339())
}

// Rows

const COLUMNS: &str = "id, tenant, role, name, created_at, expires_at, revoked_at";

fn insert(tx: &Tx<'_>, key: &ApiKeyRecord, hash: &[u8; 32]) -> Result<()> {
    let ApiKeyRecord { id, tenant, role, name, created_at, expires_at, revoked_at } = key;
    tx.insert(
        "api_keys",
        fields! {
            hash, id, tenant: tenant.as_str(), role, name, created_at, expires_at, revoked_at,
        },
    )
}

fn update_end(tx: &Tx<'_>, key: &ApiKeyRecord) -> Result<()> {
    tx.run(
        "UPDATE api_keys SET expires_at = ?2, revoked_at = ?3 WHERE id = ?1",
        params![key.id, key.expires_at, key.revoked_at],
    )?;
    Ok(())
}

pub(crate) fn rename(tx: &Tx<'_>, id: &str, name: &RedactedText) -> Result<()> {
    tx.run("UPDATE api_keys SET name = ?2 WHERE id = ?1", [id, name.as_str()])?;
    Ok(())
}

fn by_id(tx: &Tx<'_>, id: &str, tenant: Option<&Tenant>) -> Result<Option<ApiKeyRecord>> {
    let sql = format!("SELECT {COLUMNS} FROM api_keys WHERE id = ?1");
    let key = tx.first(&sql, [id], read)?.flatten();
    Ok(key.filter(|key| tenant.is_none_or(|tenant| *tenant == key.tenant)))
}

pub(crate) fn list(tx: &Tx<'_>, tenant: Option<&Tenant>) -> Result<Vec<ApiKeyRecord>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM api_keys WHERE ?1 IS NULL OR tenant = ?1
         ORDER BY tenant, created_at, id"
    );
    let keys = tx.all(&sql, [tenant.map(Tenant::as_str)], read)?;
    Ok(keys.into_iter().flatten().collect())
}

/// `None` if the name of the tenant is not valid.
#[expect(clippy::disallowed_methods, reason = "the name was redacted before it was stored")]
fn read(row: &Row<'_>) -> Result<Option<ApiKeyRecord>> {
    let Ok(tenant) = Tenant::new(row.get::<_, String>(1)?) else { return Ok(None) };
    Ok(Some(ApiKeyRecord {
        id: row.get(0)?,
        tenant,
        role: row.get(2)?,
        name: row.get::<_, Option<String>>(3)?.map(RedactedText::read_back),
        created_at: row.get(4)?,
        expires_at: row.get(5)?,
        revoked_at: row.get(6)?,
    }))
}
