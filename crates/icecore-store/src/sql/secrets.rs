//! Registered secrets, sealed, and how much was hidden in what.

use super::engine::{self, Connection, OptionalExtension, Params, Row, params};
use icecore_domain::ids::Tenant;
use icecore_domain::redact::{Hidden, MAX_SECRETS, Secret, SecretName, TagKey};
use icecore_domain::time::Millis;
use zeroize::Zeroizing;

use super::rows::ScopeNo;
use super::{Shared, log, rows};
use crate::error::StoreError;
use crate::keys::TenantKey;
use crate::store::*;

/// A value as its row has it.
struct Sealed {
    name: String,
    number: i64,
    bytes: Vec<u8>,
    added_at: Millis,
}

/// Binds a sealed value to its place.
fn label(tenant: &Tenant, name: &str, number: i64) -> String {
    // A secret's name has no slash, so that no two places share a label.
    format!("secret {tenant}/{name}/{number}")
}

impl Sealed {
    fn open(&self, tenant: &Tenant, key: &TenantKey) -> Result<Secret> {
        let open = || {
            let bytes = key.open(&label(tenant, &self.name, self.number), &self.bytes)?;
            let bytes = Zeroizing::new(bytes);
            let value = Zeroizing::new(std::str::from_utf8(&bytes).ok()?.to_owned());
            Secret::new(SecretName::new(&self.name).ok()?, value).ok()
        };
        open().ok_or_else(|| StoreError::SecretUnreadable { name: self.name.clone() })
    }
}

/// All values of a tenant by name, older ones first.
fn read_sealed(c: &Connection, tenant: i64) -> engine::Result<Vec<Sealed>> {
    c.prepare_cached(
        "SELECT name, number, sealed, added_at FROM secrets WHERE tenant = ?1 ORDER BY name, number",
    )?
    .query_map([tenant], |row| {
        Ok(Sealed {
            name: row.get(0)?,
            number: row.get(1)?,
            bytes: row.get(2)?,
            added_at: Millis(row.get(3)?),
        })
    })?
    .collect()
}

pub(super) fn version(c: &Connection, s: &Shared, tenant: &Tenant) -> Result<u64> {
    read_version(c, s, tenant).map(Option::unwrap_or_default)
}

fn read_version(c: &Connection, s: &Shared, tenant: &Tenant) -> Result<Option<u64>> {
    c.prepare_cached("SELECT secrets_version FROM tenants WHERE name = ?1")
        .and_then(|mut q| q.query_row([tenant.as_str()], |row| row.get::<_, i64>(0)).optional())
        .map(|found| found.map(|version| version as u64))
        .map_err(|e| s.failed(e))
}

/// Refuses what was redacted with other secrets than those of now.
pub(super) fn refuse_changed(c: &Connection, s: &Shared, tenant: &Tenant, seen: u64) -> Result<()> {
    let is_same = match read_version(c, s, tenant)? {
        Some(version) => version == seen,
        // It is about to be made, and has no secrets yet.
        None => seen <= 1,
    };
    if is_same { Ok(()) } else { Err(StoreError::SecretsChanged) }
}

pub(super) fn open_all(c: &Connection, s: &Shared, tenant: &Tenant) -> Result<TenantSecrets> {
    let (Some(no), Some(key)) = (rows::tenant_no(c, s, tenant)?, rows::tenant_key(c, s, tenant)?)
    else {
        return Ok(TenantSecrets { version: 0, tag_key: TagKey::default(), secrets: Vec::new() });
    };
    let sealed = read_sealed(c, no).map_err(|e| s.failed(e))?;
    Ok(TenantSecrets {
        version: version(c, s, tenant)?,
        tag_key: key.tag_key(),
        secrets: sealed.iter().map(|sealed| sealed.open(tenant, &key)).collect::<Result<_>>()?,
    })
}

pub(super) fn records(c: &Connection, s: &Shared, tenant: &Tenant) -> Result<Vec<SecretRecord>> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(Vec::new()) };
    let sealed = read_sealed(c, no).map_err(|e| s.failed(e))?;
    sealed.chunk_by(|a, b| a.name == b.name).map(record_of).collect()
}

/// What the values of one name are told as.
fn record_of(values: &[Sealed]) -> Result<SecretRecord> {
    let (first, last) = (&values[0], &values[values.len() - 1]);
    let name = SecretName::new(&first.name)
        .map_err(|_| StoreError::SecretUnreadable { name: first.name.clone() })?;
    let (created_at, updated_at) = (first.added_at, last.added_at);
    Ok(SecretRecord { name, values: values.len() as u32, created_at, updated_at })
}

pub(super) fn put(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    secret: &Secret,
    rotate: bool,
    now: Millis,
) -> Result<SecretRecord> {
    let (no, key) = rows::ensure_tenant(c, s, tenant)?;
    let known = read_sealed(c, no).map_err(|e| s.failed(e))?;
    let opened: Vec<Secret> =
        known.iter().map(|sealed| sealed.open(tenant, &key)).collect::<Result<_>>()?;
    let named = || opened.iter().filter(|other| other.name() == secret.name());
    if !named().any(|other| other.value() == secret.value()) {
        if named().next().is_some() && !rotate {
            return Err(StoreError::SecretExists { name: secret.name().clone() });
        }
        let is_told = |other: &Secret| {
            tells(secret.name(), other.value()) || tells(other.name(), secret.value())
        };
        if opened.iter().any(is_told) {
            return Err(StoreError::NameTells);
        }
        if opened.len() >= MAX_SECRETS {
            return Err(StoreError::TooManySecrets);
        }
        insert(c, no, tenant, &key, secret, now).map_err(|e| s.failed(e))?;
    }
    let mut values = read_sealed(c, no).map_err(|e| s.failed(e))?;
    values.retain(|value| value.name == secret.name().as_str());
    record_of(&values)
}

fn insert(
    c: &Connection,
    no: i64,
    tenant: &Tenant,
    key: &TenantKey,
    secret: &Secret,
    now: Millis,
) -> engine::Result<()> {
    let number = raise_version(c, no)?;
    let name = secret.name().as_str();
    let sealed = key.seal(&label(tenant, name, number), secret.value().as_bytes());
    c.execute(
        "INSERT INTO secrets (tenant, name, number, sealed, added_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![no, name, number, sealed, now.0],
    )?;
    record(c, no, "secret.added", name, now)
}

pub(super) fn remove(
    c: &Connection,
    s: &Shared,
    tenant: &Tenant,
    name: &SecretName,
    now: Millis,
) -> Result<bool> {
    let Some(no) = rows::tenant_no(c, s, tenant)? else { return Ok(false) };
    let remove = || {
        let delete = "DELETE FROM secrets WHERE tenant = ?1 AND name = ?2";
        let gone = c.execute(delete, params![no, name.as_str()])?;
        if gone > 0 {
            raise_version(c, no)?;
            record(c, no, "secret.removed", name.as_str(), now)?;
        }
        Ok(gone > 0)
    };
    remove().map_err(|e: engine::Error| s.failed(e))
}

fn raise_version(c: &Connection, tenant: i64) -> engine::Result<i64> {
    c.query_row(
        "UPDATE tenants SET secrets_version = secrets_version + 1 WHERE tenant = ?1
         RETURNING secrets_version",
        [tenant],
        |row| row.get(0),
    )
}

fn record(c: &Connection, no: i64, kind: &str, name: &str, now: Millis) -> engine::Result<()> {
    let payload = serde_json::json!({ "name": name });
    log::record(c, no, None, kind, &payload.to_string(), now).map(|_| ())
}

/// Sealed values that do not open.
pub(super) fn check(c: &Connection, s: &Shared) -> Result<Vec<String>> {
    let tenants: Vec<(i64, String)> = c
        .prepare("SELECT tenant, name FROM tenants ORDER BY tenant")
        .and_then(|mut q| q.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
        .map_err(|e| s.failed(e))?;
    let mut findings = Vec::new();
    for (no, name) in tenants {
        let Ok(tenant) = Tenant::new(name) else { continue };
        let key = match rows::tenant_key(c, s, &tenant) {
            Ok(Some(key)) => key,
            Ok(None) => continue,
            Err(error) => {
                findings.push(error.to_string());
                continue;
            }
        };
        let sealed = read_sealed(c, no).map_err(|e| s.failed(e))?;
        let broken = sealed.iter().filter_map(|sealed| sealed.open(&tenant, &key).err());
        findings.extend(broken.map(|error| format!("tenant {tenant}: {error}")));
    }
    Ok(findings)
}

// What was hidden

/// Counts what was hidden in what got this position.
pub(super) fn put_hidden(
    c: &Connection,
    no: ScopeNo,
    position: i64,
    hidden: &Hidden,
) -> engine::Result<()> {
    for (kind, count) in hidden {
        c.prepare_cached(
            "INSERT INTO hidden (tenant, position, scope, kind, count) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (tenant, position, kind) DO UPDATE SET count = hidden.count + ?5",
        )?
        .execute(params![no.tenant, position, no.scope, kind, rows::number(*count)])?;
    }
    Ok(())
}

/// Lets go of the counts of what is at the positions of a query, whose first
/// parameter is the tenant.
pub(super) fn forget_hidden(
    c: &Connection,
    positions: &str,
    values: impl Params,
) -> engine::Result<()> {
    let delete = format!("DELETE FROM hidden WHERE tenant = ?1 AND position IN ({positions})");
    c.prepare_cached(&delete)?.execute(values)?;
    Ok(())
}

/// Counts from a column that has them as a JSON object.
pub(super) fn read_hidden(row: &Row<'_>, column: usize) -> engine::Result<Hidden> {
    let json: String = row.get(column)?;
    Ok(serde_json::from_str(&json).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqliteStore;
    use crate::contract::fixtures::*;
    use crate::sql::Wall;

    async fn damaged(change: &str) -> (tempfile::TempDir, SqliteStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path(), None).unwrap();
        let values = [("db", "first-value-1"), ("mail", "other-value-2")];
        for (name, value) in values {
            store.put_secret(&tenant("acme"), secret(name, value), false, NOW).await.unwrap();
        }
        let change = change.to_owned();
        store
            .write(Wall::Everyone, move |c, s| c.execute_batch(&change).map_err(|e| s.failed(e)))
            .await
            .unwrap();
        (dir, store)
    }

    #[tokio::test]
    async fn a_value_that_does_not_open_is_not_skipped() {
        for change in [
            "UPDATE secrets SET sealed = zeroblob(60) WHERE name = 'db'",
            // Sealed for another place.
            "UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE name = 'mail') WHERE name = 'db'",
            "UPDATE secrets SET number = 9 WHERE name = 'db'",
        ] {
            let (_dir, store) = damaged(change).await;
            let is_unreadable = |error: StoreError| {
                assert!(matches!(&error, StoreError::SecretUnreadable { name } if name == "db"));
                assert!(error.hint().is_some());
            };
            is_unreadable(store.secrets(&tenant("acme")).await.unwrap_err());
            let new = secret("new", "third-value-3");
            is_unreadable(store.put_secret(&tenant("acme"), new, false, NOW).await.unwrap_err());
            let findings = store.check().await.unwrap();
            assert_eq!(
                findings,
                ["tenant acme: the sealed value of secret `db` does not open"],
                "{change}"
            );
            // It can still be removed.
            assert_eq!(store.secret_records(&tenant("acme")).await.unwrap().len(), 2);
            let name = SecretName::new("db").unwrap();
            assert!(store.remove_secret(&tenant("acme"), &name, NOW).await.unwrap());
            assert_eq!(store.secrets(&tenant("acme")).await.unwrap().secrets.len(), 1);
            clean(&store).await;
        }
    }

    #[tokio::test]
    async fn no_value_is_in_any_file() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path(), None).unwrap();
        let put = secret("db", "first-value-1");
        store.put_secret(&tenant("acme"), put, false, NOW).await.unwrap();
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            assert!(!bytes.windows(13).any(|window| window == b"first-value-1"));
        }
    }

    #[tokio::test]
    async fn a_tenant_has_so_many_values_and_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path(), None).unwrap();
        let acme = tenant("acme");
        let fill = |c: &Connection, s: &Shared| {
            let (no, key) = rows::ensure_tenant(c, s, &tenant("acme"))?;
            for n in 1..MAX_SECRETS {
                let secret = secret(&format!("n{n}"), &format!("value number {n}"));
                insert(c, no, &tenant("acme"), &key, &secret, NOW).map_err(|e| s.failed(e))?;
            }
            Ok(())
        };
        store.write(Wall::Everyone, fill).await.unwrap();
        let put = async |name: &str, value: &str| {
            store.put_secret(&acme, secret(name, value), true, NOW).await
        };
        put("n1", "one more for n1").await.unwrap();
        let refused = put("n1", "one too many for n1").await.unwrap_err();
        assert!(matches!(refused, StoreError::TooManySecrets) && refused.hint().is_some());
        // One that is there is still no news.
        assert_eq!(put("n1", "one more for n1").await.unwrap().values, 2);
        assert!(store.remove_secret(&acme, &SecretName::new("n2").unwrap(), NOW).await.unwrap());
        put("new", "a value in its place").await.unwrap();
        assert_eq!(store.secrets(&acme).await.unwrap().secrets.len(), MAX_SECRETS);
    }
}
