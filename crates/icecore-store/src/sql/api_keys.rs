//! API keys: the one table that is looked up before the tenant is known.

use super::engine::{self, Connection, OptionalExtension, Row, params};
use icecore_domain::ids::Tenant;
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;

use super::{Shared, log, rows};
use crate::store::*;

/// What a record is read from.
const COLUMNS: &str = "id, tenant, role, name, created_at, expires_at, revoked_at";

pub(super) fn put(
    c: &Connection,
    s: &Shared,
    key: &ApiKeyRecord,
    hash: &[u8; 32],
    by: &KeyActor,
) -> Result<()> {
    let (tenant, _) = rows::ensure_tenant(c, s, &key.tenant)?;
    let put = || {
        insert(c, key, hash)?;
        log::record(c, tenant, None, "key.created", &key.created(by), key.created_at)
    };
    put().map(|_| ()).map_err(|e| s.failed(e))
}

fn insert(c: &Connection, key: &ApiKeyRecord, hash: &[u8; 32]) -> engine::Result<usize> {
    c.execute(
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

pub(super) fn by_hash(c: &Connection, s: &Shared, hash: &[u8; 32]) -> Result<Option<ApiKeyRecord>> {
    c.prepare_cached(&format!("SELECT {COLUMNS} FROM api_keys WHERE hash = ?1"))
        .and_then(|mut q| q.query_row([hash.as_slice()], read).optional())
        .map(Option::flatten)
        .map_err(|e| s.failed(e))
}

fn by_id(
    c: &Connection,
    s: &Shared,
    id: &str,
    tenant: Option<&Tenant>,
) -> Result<Option<ApiKeyRecord>> {
    let found = c
        .prepare_cached(&format!("SELECT {COLUMNS} FROM api_keys WHERE id = ?1"))
        .and_then(|mut q| q.query_row([id], read).optional())
        .map_err(|e| s.failed(e))?;
    Ok(found.flatten().filter(|key| tenant.is_none_or(|tenant| *tenant == key.tenant)))
}

pub(super) fn list(
    c: &Connection,
    s: &Shared,
    tenant: Option<&Tenant>,
) -> Result<Vec<ApiKeyRecord>> {
    let keys = c
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM api_keys WHERE ?1 IS NULL OR tenant = ?1
             ORDER BY tenant, created_at, id"
        ))
        .and_then(|mut q| q.query_map([tenant.map(Tenant::as_str)], read)?.collect())
        .map_err(|e| s.failed(e))?;
    let keys: Vec<Option<ApiKeyRecord>> = keys;
    Ok(keys.into_iter().flatten().collect())
}

/// None where the tenant's name is none that we would have written.
#[expect(clippy::disallowed_methods, reason = "the name was redacted before it was put")]
fn read(row: &Row<'_>) -> engine::Result<Option<ApiKeyRecord>> {
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

pub(super) fn revoke(
    c: &Connection,
    s: &Shared,
    revocation: &KeyRevocation,
) -> Result<Option<ApiKeyRecord>> {
    let Some(key) = by_id(c, s, &revocation.id, revocation.tenant.as_ref())? else {
        return Ok(None);
    };
    let keys = list(c, s, Some(&key.tenant))?;
    let Some(revoked) = revocation.of(&key, &keys)? else { return Ok(Some(key)) };
    let (tenant, _) = rows::ensure_tenant(c, s, &revoked.tenant)?;
    let write = || {
        end(c, &revoked)?;
        log::record(c, tenant, None, "key.revoked", &revoked.revoked(&revocation.by), revocation.at)
    };
    write().map_err(|e| s.failed(e))?;
    Ok(Some(revoked))
}

pub(super) fn rotate(
    c: &Connection,
    s: &Shared,
    rotation: &KeyRotation,
) -> Result<Option<RotatedKey>> {
    let Some(key) = by_id(c, s, &rotation.id, rotation.tenant.as_ref())? else { return Ok(None) };
    let rotated = rotation.of(&key, &list(c, s, Some(&key.tenant))?)?;
    let (tenant, _) = rows::ensure_tenant(c, s, &key.tenant)?;
    let write = || {
        end(c, &rotated.old)?;
        insert(c, &rotated.new, &rotation.new_hash)?;
        log::record(c, tenant, None, "key.rotated", &rotated.rotated(&rotation.by), rotation.at)
    };
    write().map_err(|e| s.failed(e))?;
    Ok(Some(rotated))
}

/// Writes when a key ends.
fn end(c: &Connection, key: &ApiKeyRecord) -> engine::Result<usize> {
    c.execute(
        "UPDATE api_keys SET expires_at = ?2, revoked_at = ?3 WHERE id = ?1",
        params![key.id, key.expires_at.map(|at| at.0), key.revoked_at.map(|at| at.0)],
    )
}

pub(super) fn rename(c: &Connection, s: &Shared, id: &str, name: &RedactedText) -> Result<()> {
    c.execute("UPDATE api_keys SET name = ?2 WHERE id = ?1", params![id, name.as_str()])
        .map(|_| ())
        .map_err(|e| s.failed(e))
}
