//! Making keys, and the first one of a data directory.

use std::io::Write;
use std::path::{Path, PathBuf};

use icecore::{ApiKeyRecord, Memory, Tenant};

use crate::auth::{Role, hash_key};
use crate::serve::ServeError;

/// The file in a data directory that holds its admin key, alone.
pub const ADMIN_KEY_FILE: &str = "admin.key";

/// The tenant of the first key.
const ADMIN_TENANT: &str = "default";

/// Where the admin key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminKey {
    /// Its file.
    pub path: PathBuf,
    /// Whether it was made just now.
    pub created: bool,
}

/// A key that was just made. The key itself is kept nowhere.
#[derive(Clone)]
pub struct NewKey {
    /// Names it for listing and revoking.
    pub id: String,
    /// What its holder presents.
    pub key: String,
    /// Whom it acts for.
    pub tenant: Tenant,
    /// What it allows.
    pub role: Role,
}

/// Makes a key and stores its hash.
pub async fn create_key(
    memory: &Memory,
    tenant: &Tenant,
    role: Role,
) -> Result<NewKey, ServeError> {
    let id = format!("key-{}", random_hex::<8>()?);
    let key = format!("ice_{}", random_hex::<32>()?);
    let record = ApiKeyRecord {
        id: id.clone(),
        tenant: tenant.clone(),
        role: role.as_str().to_owned(),
        created_at: memory.now(),
    };
    memory.store().put_api_key(record, hash_key(&key)).await?;
    Ok(NewKey { id, key, tenant: tenant.clone(), role })
}

/// Sees that the data directory has an admin key of tenant `default`: the one in
/// `admin.key`, or a new one, written there with mode 0600.
///
/// The hash is stored first. A crash in between leaves a hash whose key nobody
/// knows, and the next start makes another.
pub async fn ensure_admin_key(memory: &Memory, data_dir: &Path) -> Result<AdminKey, ServeError> {
    let path = data_dir.join(ADMIN_KEY_FILE);
    if let Some(key) = read_key(&path)? {
        if memory.store().api_key(&hash_key(key.trim())).await?.is_none() {
            tracing::warn!(
                "the key in `admin.key` is not one of this store; remove the file to get a new one"
            );
        }
        return Ok(AdminKey { path, created: false });
    }
    let tenant = Tenant::new(ADMIN_TENANT).map_err(icecore::MemoryError::from)?;
    let key = create_key(memory, &tenant, Role::Admin).await?;
    let created = write_key(data_dir, &path, &key.key)
        .map_err(|source| ServeError::KeyFile { path: path.clone(), source })?;
    Ok(AdminKey { path, created })
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
