//! A tenant's registered secrets, each value sealed with the tenant's key.

use icecore_domain::ids::Tenant;
use icecore_domain::redact::{MAX_SECRETS, Secret, SecretName, TagKey};
use icecore_domain::time::Millis;
use zeroize::Zeroizing;

use crate::engine::prelude::*;
use crate::keys::TenantKey;
use crate::store::Store;
use crate::{log, scopes};

/// A tenant's registered secrets, opened. Wiped when dropped, never shown.
#[derive(Debug, Clone, Default)]
pub struct TenantSecrets {
    pub version: u64,
    pub tag_key: TagKey,
    /// All values by name, older ones first.
    pub secrets: Vec<Secret>,
}

/// A registered secret without its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRecord {
    pub name: SecretName,
    pub values: u32,
    pub created_at: Millis,
    pub updated_at: Millis,
}

impl Store {
    /// Registers a secret of a tenant, which is made if it does not exist, seals its value
    /// and logs `secret.added`. A name that is taken is [`StoreError::SecretExists`] unless
    /// `rotate`: then the value is added to the older ones of that name, which stay because
    /// old text may still contain them. A value that the name has already changes nothing.
    /// If the marker of one secret's name would contain the value of another, whichever
    /// came first, it is [`StoreError::NameTells`]; a value beyond [`MAX_SECRETS`] is
    /// [`StoreError::TooManySecrets`].
    pub async fn put_secret(
        &self,
        tenant: &Tenant,
        secret: Secret,
        rotate: bool,
        now: Millis,
    ) -> Result<SecretRecord> {
        self.write(tenant, "put_secret", move |tx| put(tx, &secret, rotate, now)).await
    }

    /// Deletes the sealed values of a name and logs `secret.removed`; false if there
    /// are none.
    pub async fn remove_secret(
        &self,
        tenant: &Tenant,
        name: &SecretName,
        now: Millis,
    ) -> Result<bool> {
        let name = name.clone();
        self.write(tenant, "remove_secret", move |tx| {
            let Some(no) = tx.tenant_no()? else { return Ok(false) };
            let delete = "DELETE FROM secrets WHERE tenant = ?1 AND name = ?2";
            if tx.run(delete, params![no, name.as_str()])? == 0 {
                return Ok(false);
            }
            raise_version(tx, no)?;
            record(tx, no, "secret.removed", &name, now)?;
            Ok(true)
        })
        .await
    }

    /// The tenant's secrets, opened, with the version that says whether they are still the
    /// same. A value that does not open is [`StoreError::SecretUnreadable`], since leaving
    /// it out would hide less than was asked. A tenant that does not exist has version 0,
    /// and is not made.
    pub async fn secrets(&self, tenant: &Tenant) -> Result<TenantSecrets> {
        self.read(tenant, "secrets", |tx| {
            let tenant = tx.tenant()?;
            let Some((no, key)) = scopes::find_tenant(tx, tenant)? else {
                return Ok(TenantSecrets::default());
            };
            Ok(TenantSecrets {
                version: version(tx, tenant)?.unwrap_or_default(),
                tag_key: key.tag_key(),
                secrets: open_all(tx, no, tenant, &key)?,
            })
        })
        .await
    }

    /// The tenant's secrets without their values, by name.
    pub async fn secret_records(&self, tenant: &Tenant) -> Result<Vec<SecretRecord>> {
        self.read(tenant, "secret_records", |tx| {
            let Some(no) = tx.tenant_no()? else { return Ok(Vec::new()) };
            sealed(tx, no)?.chunk_by(|a, b| a.name == b.name).map(record_of).collect()
        })
        .await
    }

    /// The tenants that have secrets and whose version of them, as text, is not in the note
    /// that is named after the tenant, behind a prefix; each with that version.
    pub async fn tenants_with_new_secrets(
        &self,
        note_prefix: &'static str,
    ) -> Result<Vec<(Tenant, u64)>> {
        self.read(Isolation::Global, "tenants_with_new_secrets", move |tx| {
            let found: Vec<(String, u64)> = tx.all(
                "SELECT t.name, t.secrets_version FROM tenants t
                 WHERE EXISTS (SELECT 1 FROM secrets s WHERE s.tenant = t.tenant)
                   AND NOT EXISTS (SELECT 1 FROM notes n WHERE n.name = ?1 || t.name
                     AND n.value = CAST(t.secrets_version AS TEXT))
                 ORDER BY t.name",
                [note_prefix],
                tuple,
            )?;
            let known = |(name, version)| Some((Tenant::new(name).ok()?, version));
            Ok(found.into_iter().filter_map(known).collect())
        })
        .await
    }

    /// 0 for a tenant that does not exist, 1 for one that never had a secret; rises
    /// whenever a value is added or a name is removed.
    pub async fn secrets_version(&self, tenant: &Tenant) -> Result<u64> {
        let current = |tx: &Tx<'_>| Ok(version(tx, tx.tenant()?)?.unwrap_or_default());
        self.read(tenant, "secrets_version", current).await
    }
}

fn version(tx: &Tx<'_>, tenant: &Tenant) -> Result<Option<u64>> {
    tx.first("SELECT secrets_version FROM tenants WHERE name = ?1", [tenant.as_str()], column)
}

/// Refuses text that was redacted with another version of the secrets than the current.
pub(crate) fn refuse_changed(tx: &Tx<'_>, tenant: &Tenant, seen: u64) -> Result<()> {
    let is_same = match version(tx, tenant)? {
        Some(version) => version == seen,
        // The tenant is about to be made, and has no secrets yet.
        None => seen <= 1,
    };
    if is_same { Ok(()) } else { Err(StoreError::SecretsChanged) }
}

struct Sealed {
    name: String,
    number: i64,
    bytes: Vec<u8>,
    added_at: Millis,
}

record! {
    Sealed { name, number, bytes, added_at }
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

/// Binds a sealed value to its place.
fn label(tenant: &Tenant, name: &str, number: i64) -> String {
    // A secret's name has no slash, so that no two places share a label.
    format!("secret {tenant}/{name}/{number}")
}

/// All values of a tenant by name, older ones first.
fn sealed(tx: &Tx<'_>, tenant: i64) -> Result<Vec<Sealed>> {
    tx.all(
        "SELECT name, number, sealed, added_at FROM secrets WHERE tenant = ?1 ORDER BY name, number",
        [tenant],
        tuple,
    )
}

fn open_all(tx: &Tx<'_>, no: i64, tenant: &Tenant, key: &TenantKey) -> Result<Vec<Secret>> {
    sealed(tx, no)?.iter().map(|sealed| sealed.open(tenant, key)).collect()
}

/// The record of a name that has these values, which are at least one.
fn record_of(values: &[Sealed]) -> Result<SecretRecord> {
    let (first, last) = (&values[0], &values[values.len() - 1]);
    let name = SecretName::new(&first.name)
        .map_err(|_| StoreError::SecretUnreadable { name: first.name.clone() })?;
    let (created_at, updated_at) = (first.added_at, last.added_at);
    Ok(SecretRecord { name, values: values.len() as u32, created_at, updated_at })
}

fn put(tx: &Tx<'_>, secret: &Secret, rotate: bool, now: Millis) -> Result<SecretRecord> {
    let (tenant, (no, key)) = (tx.tenant()?, tx.ensure_tenant()?);
    let known = open_all(tx, no, tenant, &key)?;
    let named: Vec<_> = known.iter().filter(|other| other.name() == secret.name()).collect();
    if !named.iter().any(|other| other.value() == secret.value()) {
        if !named.is_empty() && !rotate {
            return Err(StoreError::SecretExists { name: secret.name().clone() });
        }
        if known.iter().any(|other| reveals(secret, other) || reveals(other, secret)) {
            return Err(StoreError::NameTells);
        }
        if known.len() >= MAX_SECRETS {
            return Err(StoreError::TooManySecrets);
        }
        insert(tx, no, tenant, &key, secret, now)?;
    }
    let mut values = sealed(tx, no)?;
    values.retain(|value| value.name == secret.name().as_str());
    record_of(&values)
}

/// Whether the marker that replaces `secret` in text contains the value of `other`.
fn reveals(secret: &Secret, other: &Secret) -> bool {
    format!("[REDACTED:{}]", secret.name()).contains(other.value())
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
    tx.insert("secrets", fields! { tenant: no, name, number, sealed, added_at: now })?;
    record(tx, no, "secret.added", secret.name(), now)
}

fn raise_version(tx: &Tx<'_>, tenant: i64) -> Result<i64> {
    tx.one(
        "UPDATE tenants SET secrets_version = secrets_version + 1 WHERE tenant = ?1
         RETURNING secrets_version",
        [tenant],
        column,
    )
}

fn record(tx: &Tx<'_>, no: i64, kind: &str, name: &SecretName, now: Millis) -> Result<()> {
    let payload = serde_json::json!({ "name": name.as_str() }).to_string();
    log::record(tx, no, None, kind, &payload, now)?;
    Ok(())
}

/// Finds sealed values that do not open.
pub(crate) fn check(tx: &Tx<'_>) -> Result<Vec<String>> {
    let names = tx.all("SELECT name FROM tenants ORDER BY tenant", [], column::<String>)?;
    let mut findings = Vec::new();
    for tenant in names.into_iter().filter_map(|name| Tenant::new(name).ok()) {
        match scopes::find_tenant(tx, &tenant) {
            Ok(Some((no, key))) => {
                let sealed = sealed(tx, no)?;
                let broken = sealed.iter().filter_map(|sealed| sealed.open(&tenant, &key).err());
                findings.extend(broken.map(|error| format!("tenant {tenant}: {error}")));
            }
            Ok(None) => {}
            Err(error) => findings.push(error.to_string()),
        }
    }
    Ok(findings)
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
