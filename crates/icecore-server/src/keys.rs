//! Making keys, and the first one of a data directory.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use icecore::privacy::RedactedText;
use icecore::{Memory, MemoryError, Millis, Tenant};
use icecore_host::keys::{ApiKeyRecord, KeyActor, KeyRotation, KeyState, Keys};

use crate::auth::{Role, hash_key};
use crate::error::ApiError;
use crate::serve::ServeError;

/// The file in a data directory that holds its admin key, alone.
pub const ADMIN_KEY_FILE: &str = "admin.key";

/// The tenant of the first key, which is the operator's.
pub(crate) const ADMIN_TENANT: &str = "default";

/// What every key begins with; the table of secrets knows it too (`icecore-key`).
pub(crate) const KEY_PREFIX: &str = "ice_";

/// The longest that an old key works beside the one that replaces it: 30 days.
pub const MAX_OVERLAP_SECONDS: u64 = 30 * 24 * 3600;

/// The longest name of a key, in characters.
const MAX_NAME_CHARS: usize = 100;

fn keys_of(memory: &Memory) -> Keys {
    Keys::new(memory.clone())
}

/// Where the admin key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminKey {
    /// Its file.
    pub path: PathBuf,
    /// Whether it was made just now.
    pub created: bool,
}

/// What a key is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTerms {
    /// What it allows.
    pub role: Role,
    /// What people call it; secrets in it are hidden before it is stored.
    pub name: Option<String>,
    /// The first moment at which it is good for nothing.
    pub expires_at: Option<Millis>,
}

/// A key that was just made. The key itself is kept nowhere.
#[derive(Clone)]
pub struct NewKey {
    /// What its holder presents.
    pub key: String,
    /// What is stored of it, but for its hash.
    pub record: ApiKeyRecord,
}

/// Makes a key that has no name and does not expire, and stores its hash.
pub async fn create_key(
    memory: &Memory,
    tenant: &Tenant,
    role: Role,
) -> Result<NewKey, ServeError> {
    create_key_with(memory, tenant, KeyTerms { role, name: None, expires_at: None }).await
}

/// Makes a key and stores its hash, for whoever runs the host.
pub async fn create_key_with(
    memory: &Memory,
    tenant: &Tenant,
    terms: KeyTerms,
) -> Result<NewKey, ServeError> {
    create_key_by(KeyActor::Operator, memory, tenant, terms).await
}

/// As [`create_key_with`], for somebody.
pub(crate) async fn create_key_by(
    by: KeyActor,
    memory: &Memory,
    tenant: &Tenant,
    terms: KeyTerms,
) -> Result<NewKey, ServeError> {
    let now = memory.now();
    if terms.expires_at.is_some_and(|end| end <= now) {
        return Err(ServeError::KeyExpiry);
    }
    let name = match terms.name {
        Some(name) => Some(redacted_name(memory, tenant, &name).await?),
        None => None,
    };
    let (id, key) = random_key()?;
    let record = ApiKeyRecord {
        id,
        tenant: tenant.clone(),
        role: terms.role.as_str().to_owned(),
        name,
        created_at: now,
        expires_at: terms.expires_at,
        revoked_at: None,
    };
    keys_of(memory).add(record.clone(), hash_key(&key), by).await?;
    Ok(NewKey { key, record })
}

async fn redacted_name(
    memory: &Memory,
    tenant: &Tenant,
    name: &str,
) -> Result<RedactedText, ServeError> {
    let fits = (1..=MAX_NAME_CHARS).contains(&name.chars().count());
    if !fits || name.chars().any(char::is_control) {
        return Err(ServeError::KeyName { most: MAX_NAME_CHARS });
    }
    Ok(memory.redactor(tenant).await?.redactor.text(name))
}

/// Puts a new key in the place of a valid one, which is revoked, or ends after
/// `overlap`. Answers the new key and the old one; nothing if there is no key of that
/// id, or none of the tenant where one is named.
pub async fn rotate_key(
    memory: &Memory,
    id: &str,
    tenant: Option<&Tenant>,
    overlap: Duration,
) -> Result<Option<(NewKey, ApiKeyRecord)>, ServeError> {
    let by = (KeyActor::Operator, Duration::ZERO);
    rotate_key_by(by, memory, id, tenant, overlap).await
}

/// As [`rotate_key`], for somebody, and with the least overlap that they need where
/// it is the last valid admin key of its tenant.
pub(crate) async fn rotate_key_by(
    (by, least): (KeyActor, Duration),
    memory: &Memory,
    id: &str,
    tenant: Option<&Tenant>,
    overlap: Duration,
) -> Result<Option<(NewKey, ApiKeyRecord)>, ServeError> {
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    let (new_id, key) = random_key()?;
    let rotation = KeyRotation {
        id: id.to_owned(),
        tenant: tenant.cloned(),
        new_id,
        new_hash: hash_key(&key),
        overlap_millis: millis(overlap),
        last_admin_overlap_millis: millis(least),
        by,
        at: memory.now(),
    };
    let rotated = keys_of(memory).rotate(rotation).await?;
    Ok(rotated.map(|rotated| (NewKey { key, record: rotated.new }, rotated.old)))
}

/// Sees that the data directory has an admin key of tenant `default`: the one in
/// `admin.key`, or a new one, written there with mode 0600.
///
/// The hash is stored first. A crash in between leaves a hash whose key nobody
/// knows, and the next start makes another.
pub async fn ensure_admin_key(memory: &Memory, data_dir: &Path) -> Result<AdminKey, ServeError> {
    let path = data_dir.join(ADMIN_KEY_FILE);
    if let Some(key) = read_key(&path)? {
        let found = keys_of(memory).find(&hash_key(key.trim())).await?;
        if let Some(fault) = fault(found.as_ref(), memory.now()) {
            tracing::warn!("the key in `admin.key` {fault}; remove the file to get a new one");
        }
        return Ok(AdminKey { path, created: false });
    }
    let tenant = Tenant::new(ADMIN_TENANT).map_err(MemoryError::from)?;
    let key = create_key(memory, &tenant, Role::Admin).await?;
    let created = write_key(data_dir, &path, &key.key)
        .map_err(|source| ServeError::KeyFile { path: path.clone(), source })?;
    Ok(AdminKey { path, created })
}

/// Why the key in the file is of no use as an admin key.
fn fault(found: Option<&ApiKeyRecord>, now: Millis) -> Option<&'static str> {
    let Some(key) = found else { return Some("is not one of this store") };
    match key.state(now) {
        KeyState::Revoked => Some("was revoked"),
        KeyState::Expired => Some("has expired"),
        KeyState::Valid if key.role != Role::Admin.as_str() => Some("is not of an admin"),
        KeyState::Valid => None,
    }
}

/// The id of the key in `admin.key`, if there is one and the store knows it.
pub async fn admin_key_id(memory: &Memory, data_dir: &Path) -> Result<Option<String>, ServeError> {
    let Some(key) = read_key(&data_dir.join(ADMIN_KEY_FILE))? else { return Ok(None) };
    Ok(keys_of(memory).find(&hash_key(key.trim())).await?.map(|key| key.id))
}

impl From<ServeError> for ApiError {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::KeyName { .. } => ApiError::invalid(format!("field `name`: {error}")),
            ServeError::KeyExpiry => ApiError::invalid("field `expiresAt` must be in the future"),
            ServeError::Memory(error) => error.into(),
            other => ApiError::internal(&other),
        }
    }
}

/// An id to name a key by, and the key.
fn random_key() -> Result<(String, String), ServeError> {
    let key = format!("{KEY_PREFIX}{}", random_hex::<32>()?);
    Ok((format!("key-{}", random_hex::<8>()?), key))
}

fn random_hex<const BYTES: usize>() -> Result<String, ServeError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| ServeError::NoRandomness(error.to_string()))?;
    Ok(hex::encode(bytes))
}

fn read_key(path: &Path) -> Result<Option<String>, ServeError> {
    match std::fs::read_to_string(path) {
        Ok(key) => Ok(Some(key)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ServeError::KeyFile { path: path.to_owned(), source }),
    }
}

/// Writes the key whole or not at all; false if another process was first.
fn write_key(dir: &Path, path: &Path, key: &str) -> std::io::Result<bool> {
    let draft = dir.join(format!("{ADMIN_KEY_FILE}.{}", std::process::id()));
    let _ = std::fs::remove_file(&draft);
    let mut file = private_file(&draft)?;
    let written = writeln!(file, "{key}").and_then(|()| file.sync_all());
    // A link, unlike a rename, never replaces a key that somebody already uses.
    let linked = written.and_then(|()| std::fs::hard_link(&draft, path));
    let removed = std::fs::remove_file(&draft);
    match linked {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => return Err(error),
    }
    removed?;
    std::fs::File::open(dir)?.sync_all()?;
    Ok(true)
}

#[cfg(unix)]
fn private_file(path: &Path) -> std::io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(not(unix))]
fn private_file(path: &Path) -> std::io::Result<std::fs::File> {
    std::fs::OpenOptions::new().write(true).create_new(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_secret_of_a_known_kind() {
        let redactor = icecore::privacy::Redactor::standard();
        let (id, key) = random_key().unwrap();
        for text in [&key, &key[..24], &key[..60], &key.to_uppercase()] {
            let hidden = redactor.text(&format!("use {text}, please")).into_string();
            assert_eq!(hidden, "use [REDACTED:icecore-key], please");
        }
        assert_eq!(redactor.text(&id).into_string(), id);
    }

    #[test]
    fn a_key_that_is_of_no_use_is_told_why() {
        let key = |role: &str, expires_at, revoked_at| ApiKeyRecord {
            id: "key-1".to_owned(),
            tenant: Tenant::new("default").unwrap(),
            role: role.to_owned(),
            name: None,
            created_at: Millis(0),
            expires_at,
            revoked_at,
        };
        let check = |key: Option<ApiKeyRecord>, expected: Option<&str>| {
            assert_eq!(fault(key.as_ref(), Millis(9)), expected, "{key:?}");
        };
        check(None, Some("is not one of this store"));
        check(Some(key("admin", None, None)), None);
        check(Some(key("admin", Some(Millis(9)), None)), Some("has expired"));
        check(Some(key("admin", None, Some(Millis(3)))), Some("was revoked"));
        check(Some(key("writer", None, None)), Some("is not of an admin"));
    }
}
