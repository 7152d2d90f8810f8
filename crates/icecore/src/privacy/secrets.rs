//! Who hides what: a redactor for each tenant, made anew when its secrets change.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, RwLock};

use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::redact::{RedactedText, Redactor, Secret, SecretName};
use icecore_store::{SecretRecord, StoreError};
use lru::LruCache;
use zeroize::Zeroizing;

use crate::error::{MemoryError, Result, not_redacted};
use crate::privacy::Privacy;

/// How often something is read, derived and written before giving up.
pub(crate) const ATTEMPTS: usize = 8;

/// Compare-and-swap: runs a future anew until nothing changed between its reads and its write.
///
/// The future answers `Ok(None)` if what it had read is not so any more. If it fails with
/// `SecretsChanged` it runs again too: a secret was registered meanwhile, and what it was
/// about to write may hold it. The answer is `Ok(None)` if something changes every time.
///
/// A macro, because an async closure that lends what it captures is not `Send`.
macro_rules! swapped {
    ($attempt:expr) => {{
        let mut left = $crate::privacy::secrets::ATTEMPTS;
        loop {
            left -= 1;
            match $attempt.await {
                Ok(None)
                | Err($crate::MemoryError::Store(icecore_store::StoreError::SecretsChanged))
                    if left > 0 => {}
                Err($crate::MemoryError::Store(icecore_store::StoreError::SecretsChanged)) => {
                    break Ok(None);
                }
                done => break done,
            }
        }
    }};
}
pub(crate) use swapped;

/// Redacts and writes, again if a secret was registered meanwhile.
pub async fn write_redacted<T, E, Written>(write: impl Fn() -> Written) -> std::result::Result<T, E>
where
    E: SecretsChanged,
    Written: Future<Output = std::result::Result<T, E>>,
{
    for _ in 1..ATTEMPTS {
        match write().await {
            Err(error) if error.secrets_changed() => {}
            done => return done,
        }
    }
    write().await
}

/// Errors that may say that a secret was registered between redacting and writing.
pub trait SecretsChanged {
    /// Whether this one does.
    fn secrets_changed(&self) -> bool;
}

impl SecretsChanged for MemoryError {
    fn secrets_changed(&self) -> bool {
        matches!(self, MemoryError::Store(StoreError::SecretsChanged))
    }
}

/// What hides a tenant's secrets, and the version of them that it knows.
#[derive(Debug, Clone)]
pub struct TenantRedactor {
    /// Hides them.
    pub redactor: Redactor,
    /// Rises when a secret is added or removed.
    pub version: u64,
}

/// Of how many tenants, those used last, keys and redactors are at hand.
pub(crate) const TENANTS_AT_HAND: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// The redactors of the tenants that were used last.
pub(crate) struct Redactors {
    base: Redactor,
    tenants: Mutex<LruCache<Tenant, TenantRedactor>>,
    /// With which version all that is stored was looked through, where it was the
    /// present one. Another process may rescan, so the rest is read each time.
    rescanned: Mutex<LruCache<Tenant, u64>>,
    logs: LogRedactor,
}

impl Redactors {
    pub(crate) fn new(base: Redactor, logs: LogRedactor) -> Self {
        Self {
            base,
            tenants: Mutex::new(LruCache::new(TENANTS_AT_HAND)),
            rescanned: Mutex::new(LruCache::new(TENANTS_AT_HAND)),
            logs,
        }
    }

    fn known(&self, tenant: &Tenant) -> Option<TenantRedactor> {
        self.tenants.lock().ok()?.get(tenant).cloned()
    }

    pub(crate) fn rescanned_with(&self, tenant: &Tenant) -> Option<u64> {
        let version = self.rescanned.lock().ok()?.get(tenant).copied()?;
        self.known(tenant).filter(|known| known.version == version).map(|_| version)
    }

    pub(crate) fn note_rescanned(&self, tenant: &Tenant, version: u64) {
        if let Ok(mut rescanned) = self.rescanned.lock() {
            rescanned.put(tenant.clone(), version);
        }
    }
}

/// Hides secrets in what is told about the work: log lines, errors, panics. It
/// knows the table, and what tenants registered once their memory was used.
///
/// Clones share what they know.
#[derive(Clone, Default)]
pub struct LogRedactor(Arc<RwLock<BTreeMap<Tenant, Redactor>>>);

impl LogRedactor {
    /// `line` without what is secret.
    pub fn text(&self, line: &str) -> RedactedText {
        let mut text = Redactor::standard().text(line);
        if let Ok(tenants) = self.0.read() {
            for redactor in tenants.values() {
                text = redactor.besides(text);
            }
        }
        text
    }

    fn learn(&self, tenant: &Tenant, redactor: Option<&Redactor>) {
        let Ok(mut tenants) = self.0.write() else { return };
        match redactor {
            Some(redactor) => tenants.insert(tenant.clone(), redactor.clone()),
            None => tenants.remove(tenant),
        };
    }
}

impl std::fmt::Debug for LogRedactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogRedactor(…)")
    }
}

/// A secret that was registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedSecret {
    /// As it is listed.
    pub record: SecretRecord,
    /// Whether it looks like an ordinary word, and may hide too much.
    pub is_common: bool,
    /// Whether the tenant has stored anything before, which
    /// `Upkeep::rescan` looks through.
    pub has_earlier: bool,
}

impl Privacy {
    /// What hides a tenant's secrets, those it registered included. An error
    /// when they cannot be read: then nothing may be written.
    pub async fn redactor(&self, tenant: &Tenant) -> Result<TenantRedactor> {
        if let Some((_, seen)) = self.sight.as_ref().filter(|(of, _)| of == tenant) {
            return Ok(seen.clone());
        }
        let redactors = &self.redactors;
        let version = self.store.secrets_version(tenant).await?;
        if let Some(known) = redactors.known(tenant).filter(|known| known.version == version) {
            return Ok(known);
        }
        let secrets = self.store.secrets(tenant).await?;
        let redactor = redactors.base.for_tenant(&secrets.secrets, secrets.tag_key);
        let learned = (!secrets.secrets.is_empty()).then_some(&redactor);
        redactors.logs.learn(tenant, learned);
        let made = TenantRedactor { redactor, version: secrets.version };
        if let Ok(mut tenants) = redactors.tenants.lock() {
            let gone = tenants.push(tenant.clone(), made.clone());
            if let Some((gone, _)) = gone.filter(|(gone, _)| gone != tenant) {
                redactors.logs.learn(&gone, None);
            }
        }
        Ok(made)
    }

    /// What hid a tenant's secrets when that was last looked up, without asking the store.
    /// Only for what the store refuses if the secrets have changed since.
    pub(crate) fn redactor_at_hand(&self, tenant: &Tenant) -> Option<TenantRedactor> {
        self.redactors.known(tenant)
    }

    /// As [`Privacy::redactor`], for text that we derive. Without it nothing is
    /// derived.
    pub(crate) async fn deriving_redactor(&self, scope: &Scope) -> Result<TenantRedactor> {
        self.redactor(scope.tenant()).await.map_err(not_redacted)
    }

    /// `text` as its tenant may be shown it, in an error or a reply, by what is
    /// known of the tenant's secrets here and now.
    pub fn shown(&self, tenant: &Tenant, text: &str) -> RedactedText {
        match self.redactors.known(tenant) {
            Some(known) => known.redactor.text(text),
            None => self.redactors.base.text(text),
        }
    }

    /// A name as it is stored: of a session, a memory, a turn.
    pub fn shown_name(&self, tenant: &Tenant, name: &str) -> RedactedText {
        match self.redactors.known(tenant) {
            Some(known) => known.redactor.name(name),
            None => self.redactors.base.name(name),
        }
    }

    /// Registers a secret: from when this resolves nothing that
    /// holds it is written by anybody. `rotate` adds a newer value to a name that
    /// is there; the older ones go on being hidden.
    pub async fn add_secret(
        &self,
        tenant: &Tenant,
        name: &str,
        value: Zeroizing<String>,
        rotate: bool,
    ) -> Result<AddedSecret> {
        let secret = Secret::new(SecretName::new(name)?, value)?;
        let is_common = secret.is_common();
        let record = self.store.put_secret(tenant, secret, rotate, self.now()).await?;
        // The logs of this process shall know it at once.
        let known = self.redactor(tenant).await?;
        let stats = self.store.stats(tenant, None, self.now()).await?;
        let has_earlier = stats.turns + stats.entries + stats.verdicts + stats.files > 0;
        if !has_earlier {
            // What comes from now on is redacted with it.
            self.note_rescanned(tenant, known.version).await?;
        }
        Ok(AddedSecret { record, is_common, has_earlier })
    }

    /// The newest value of a secret that a tenant registered, for whoever has to show it to
    /// somebody, such as a provider.
    pub async fn secret(&self, tenant: &Tenant, name: &str) -> Result<Option<Zeroizing<String>>> {
        let secrets = self.store.secrets(tenant).await?;
        let newest = secrets.secrets.iter().rev().find(|secret| secret.name().as_str() == name);
        Ok(newest.map(|secret| Zeroizing::new(secret.value().to_owned())))
    }

    /// The secrets that a tenant registered, without their values.
    pub async fn secrets(&self, tenant: &Tenant) -> Result<Vec<SecretRecord>> {
        Ok(self.store.secret_records(tenant).await?)
    }

    /// Forgets a registered secret, with all its values. What was hidden stays so.
    pub async fn remove_secret(&self, tenant: &Tenant, name: &str) -> Result<()> {
        let secret = SecretName::new(name)?;
        // Where a value cannot be read, giving it up is the way out.
        let clean_with = match self.redactor(tenant).await {
            Ok(known) if self.is_rescanned(tenant, &known).await? => Some(known.version),
            _ => None,
        };
        let is_removed = self.store.remove_secret(tenant, &secret, self.now()).await?;
        let known = self.redactor(tenant).await?;
        // Unless somebody else added one meanwhile.
        if clean_with.is_some_and(|version| version + 1 == known.version) {
            self.note_rescanned(tenant, known.version).await?;
        }
        match is_removed {
            true => Ok(()),
            false => Err(MemoryError::NoSecret { name: self.shown(tenant, name).into_string() }),
        }
    }
}
