//! Registered secrets, sealed, and how much was hidden in what.

use icecore_domain::ids::Tenant;
use icecore_domain::redact::{MAX_SECRETS, Secret, SecretName, TagKey};
use icecore_domain::time::Millis;
use zeroize::Zeroizing;

use crate::engine::tx::{Isolation, Tx};
use crate::engine::{OptionalExtension, params};
use crate::error::{Result, StoreError};
use crate::keys::TenantKey;
use crate::store::Store;
use crate::{log, scopes};

/// A tenant's registered secrets, opened. Wiped when dropped, never shown.
#[derive(Debug, Clone)]
pub struct TenantSecrets {
    /// Of which version they are; see [`Store::secrets_version`].
    pub version: u64,
    /// The tenant's key for tags.
    pub tag_key: TagKey,
    /// All values by name, older ones first.
    pub secrets: Vec<Secret>,
}

/// A registered secret without its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRecord {
    /// Its name.
    pub name: SecretName,
    /// How many values it has had that are still hidden.
    pub values: u32,
    /// When the first of them was added.
    pub created_at: Millis,
    /// When the last of them was added.
    pub updated_at: Millis,
}

/// Whether what is called `name` would tell `value` by its marker.
pub(crate) fn tells(name: &SecretName, value: &str) -> bool {
    format!("[REDACTED:{name}]").contains(value)
}

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
fn read_sealed(tx: &Tx<'_>, tenant: i64) -> Result<Vec<Sealed>> {
    tx.prepare_cached(
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

pub(crate) fn version(tx: &Tx<'_>, tenant: &Tenant) -> Result<u64> {
    read_version(tx, tenant).map(Option::unwrap_or_default)
}

fn read_version(tx: &Tx<'_>, tenant: &Tenant) -> Result<Option<u64>> {
    tx.prepare_cached("SELECT secrets_version FROM tenants WHERE name = ?1")
        .and_then(|mut q| q.query_row([tenant.as_str()], |row| row.get::<_, i64>(0)).optional())
        .map(|found| found.map(|version| version as u64))
}

/// Refuses what was redacted with other secrets than those of now.
pub(crate) fn refuse_changed(tx: &Tx<'_>, tenant: &Tenant, seen: u64) -> Result<()> {
    let is_same = match read_version(tx, tenant)? {
        Some(version) => version == seen,
        // It is about to be made, and has no secrets yet.
        None => seen <= 1,
    };
    if is_same { Ok(()) } else { Err(StoreError::SecretsChanged) }
}

pub(crate) fn open_all(tx: &Tx<'_>, tenant: &Tenant) -> Result<TenantSecrets> {
    let (Some(no), Some(key)) = (scopes::tenant_no(tx, tenant)?, scopes::tenant_key(tx, tenant)?)
    else {
        return Ok(TenantSecrets { version: 0, tag_key: TagKey::default(), secrets: Vec::new() });
    };
    let sealed = read_sealed(tx, no)?;
    Ok(TenantSecrets {
        version: version(tx, tenant)?,
        tag_key: key.tag_key(),
        secrets: sealed.iter().map(|sealed| sealed.open(tenant, &key)).collect::<Result<_>>()?,
    })
}

pub(crate) fn records(tx: &Tx<'_>, tenant: &Tenant) -> Result<Vec<SecretRecord>> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(Vec::new()) };
    let sealed = read_sealed(tx, no)?;
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

pub(crate) fn put(
    tx: &Tx<'_>,
    tenant: &Tenant,
    secret: &Secret,
    rotate: bool,
    now: Millis,
) -> Result<SecretRecord> {
    let (no, key) = scopes::ensure_tenant(tx, tenant)?;
    let known = read_sealed(tx, no)?;
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
        insert(tx, no, tenant, &key, secret, now)?;
    }
    let mut values = read_sealed(tx, no)?;
    values.retain(|value| value.name == secret.name().as_str());
    record_of(&values)
}

fn insert(
    tx: &Tx<'_>,
    no: i64,
    tenant: &Tenant,
    key: &TenantKey,
    secret: &Secret,
    now: Millis,
) -> Result<()> {
    let number = raise_version(tx, no)?;
    let name = secret.name().as_str();
    let sealed = key.seal(&label(tenant, name, number), secret.value().as_bytes());
    tx.execute(
        "INSERT INTO secrets (tenant, name, number, sealed, added_at) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![no, name, number, sealed, now.0],
    )?;
    record(tx, no, "secret.added", name, now)
}

pub(crate) fn remove(tx: &Tx<'_>, tenant: &Tenant, name: &SecretName, now: Millis) -> Result<bool> {
    let Some(no) = scopes::tenant_no(tx, tenant)? else { return Ok(false) };
    let remove = || -> Result<_> {
        let delete = "DELETE FROM secrets WHERE tenant = ?1 AND name = ?2";
        let gone = tx.execute(delete, params![no, name.as_str()])?;
        if gone > 0 {
            raise_version(tx, no)?;
            record(tx, no, "secret.removed", name.as_str(), now)?;
        }
        Ok(gone > 0)
    };
    remove()
}

fn raise_version(tx: &Tx<'_>, tenant: i64) -> Result<i64> {
    tx.query_row(
        "UPDATE tenants SET secrets_version = secrets_version + 1 WHERE tenant = ?1
         RETURNING secrets_version",
        [tenant],
        |row| row.get(0),
    )
}

fn record(tx: &Tx<'_>, no: i64, kind: &str, name: &str, now: Millis) -> Result<()> {
    let payload = serde_json::json!({ "name": name });
    log::record(tx, no, None, kind, &payload.to_string(), now).map(|_| ())
}

/// Sealed values that do not open.
pub(crate) fn check(tx: &Tx<'_>) -> Result<Vec<String>> {
    let tenants: Vec<(i64, String)> = tx
        .prepare("SELECT tenant, name FROM tenants ORDER BY tenant")
        .and_then(|mut q| q.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())?;
    let mut findings = Vec::new();
    for (no, name) in tenants {
        let Ok(tenant) = Tenant::new(name) else { continue };
        let key = match scopes::tenant_key(tx, &tenant) {
            Ok(Some(key)) => key,
            Ok(None) => continue,
            Err(error) => {
                findings.push(error.to_string());
                continue;
            }
        };
        let sealed = read_sealed(tx, no)?;
        let broken = sealed.iter().filter_map(|sealed| sealed.open(&tenant, &key).err());
        findings.extend(broken.map(|error| format!("tenant {tenant}: {error}")));
    }
    Ok(findings)
}

// What was hidden

impl Store {
    /// Registers a secret of a tenant, which is made if it is not there, seals its
    /// value and logs `secret.added`. A name that is taken is
    /// [`StoreError::SecretExists`] unless `rotate`: then the value is added to the
    /// older ones of that name, which stay, for old text may still hold them. A
    /// value that the name has already changes nothing. A name that tells the value
    /// of another secret, whichever came first, is [`StoreError::NameTells`], and a
    /// value beyond [`MAX_SECRETS`] is [`StoreError::TooManySecrets`].
    ///
    /// [`MAX_SECRETS`]: icecore_domain::redact::MAX_SECRETS
    pub async fn put_secret(
        &self,
        tenant: &Tenant,
        secret: Secret,
        rotate: bool,
        now: Millis,
    ) -> Result<SecretRecord> {
        let tenant = tenant.clone();
        self.write(Isolation::from(&tenant), "put_secret", move |tx| {
            put(tx, &tenant, &secret, rotate, now)
        })
        .await
    }

    /// Deletes the sealed values of a name and logs `secret.removed`; false if there
    /// are none.
    pub async fn remove_secret(
        &self,
        tenant: &Tenant,
        name: &SecretName,
        now: Millis,
    ) -> Result<bool> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.write(Isolation::from(&tenant), "remove_secret", move |tx| {
            remove(tx, &tenant, &name, now)
        })
        .await
    }

    /// The tenant's secrets, opened, with the version that says whether they are
    /// still the same. A value that does not open is
    /// [`StoreError::SecretUnreadable`]: to hide less than was asked is no answer. A
    /// tenant that is not there has version 0, and is not made.
    pub async fn secrets(&self, tenant: &Tenant) -> Result<TenantSecrets> {
        let tenant = tenant.clone();
        self.read(Isolation::from(&tenant), "secrets", move |tx| open_all(tx, &tenant)).await
    }

    /// The tenant's secrets without their values, by name.
    pub async fn secret_records(&self, tenant: &Tenant) -> Result<Vec<SecretRecord>> {
        let tenant = tenant.clone();
        self.read(Isolation::from(&tenant), "secret_records", move |tx| records(tx, &tenant)).await
    }

    /// 0 for a tenant that is not there, 1 for one that never had a secret; rises
    /// whenever a value is added or a name is removed.
    pub async fn secrets_version(&self, tenant: &Tenant) -> Result<u64> {
        let tenant = tenant.clone();
        self.read(Isolation::from(&tenant), "secrets_version", move |tx| version(tx, &tenant)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::contract::fixtures::*;
    use crate::engine::tx::Isolation;

    async fn damaged(change: &str) -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), None).unwrap();
        let values = [("db", "first-value-1"), ("mail", "other-value-2")];
        for (name, value) in values {
            store.put_secret(&tenant("acme"), secret(name, value), false, NOW).await.unwrap();
        }
        let change = change.to_owned();
        store.write(Isolation::Global, "test", move |tx| tx.execute_batch(&change)).await.unwrap();
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
        let store = Store::open(dir.path(), None).unwrap();
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
        let store = Store::open(dir.path(), None).unwrap();
        let acme = tenant("acme");
        let fill = |tx: &Tx<'_>| {
            let (no, key) = scopes::ensure_tenant(tx, &tenant("acme"))?;
            for n in 1..MAX_SECRETS {
                let secret = secret(&format!("n{n}"), &format!("value number {n}"));
                insert(tx, no, &tenant("acme"), &key, &secret, NOW)?;
            }
            Ok(())
        };
        store.write(Isolation::Global, "test", fill).await.unwrap();
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
