//! Keys: a master key seals each tenant's key, which seals everything else.
//!
//! A sealed value is a version byte, a random nonce, and the ciphertext of
//! XChaCha20-Poly1305 with its tag. The version and a label that says what the value is for
//! are authenticated with it, so that a sealed value moved to another place does not open
//! there.

use std::fs::{File, OpenOptions};
use std::io;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use hmac::{Hmac, Mac};
use icecore_domain::identity::IdentityKey;
use icecore_domain::redact::TagKey;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::error::{Result, StoreError};
use crate::files::{link_new, make_dir, sync_dir, write_error};

/// The master key's file in the data directory.
pub const MASTER_KEY_FILE: &str = "master.key";

pub const MASTER_KEY_NEXT_FILE: &str = "master.key.next";

pub const MASTER_KEY_VARIABLE: &str = "ICECORE_MASTER_KEY";

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
const SEALED_VERSION: u8 = 1;

const CHECK_LABEL: &[u8] = b"icecore master key check v1";
const TENANT_KEY_LABEL: &str = "icecore tenant key";
const IDENTITY_LABEL: &[u8] = b"icecore identity key v1";
const TAG_LABEL: &[u8] = b"icecore tag key v1";

/// The key that seals tenants' keys. Wiped from memory when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct MasterKey([u8; KEY_BYTES]);

/// A tenant's data key. Wiped from memory when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct TenantKey([u8; KEY_BYTES]);

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey(…)")
    }
}

impl std::fmt::Debug for TenantKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TenantKey(…)")
    }
}

impl MasterKey {
    pub fn random() -> Self {
        Self(random_bytes())
    }

    /// From `environment` (64 hex digits) if given, else from `dir/master.key`, which is
    /// made with mode 0600 if `may_create`.
    ///
    /// Processes that make it at the same moment end with the same key, and once this
    /// returns a key made here survives a crash.
    pub fn load(dir: &Path, environment: Option<&str>, may_create: bool) -> Result<Self> {
        if let Some(digits) = environment {
            return Self::from_environment(digits);
        }
        let path = dir.join(MASTER_KEY_FILE);
        if let Some(key) = Self::read(&path)? {
            return Ok(key);
        }
        if !may_create {
            return Err(StoreError::NoMasterKey { path });
        }
        make_dir(dir)?;
        Self::random().publish(&path)?;
        // Ours, or that of the process that was faster.
        Self::read(&path)?.ok_or(StoreError::NoMasterKey { path })
    }

    /// The available keys: the one given, or else those in the files of `dir`; and the one in
    /// `file`, which must exist.
    pub fn at_hand(dir: &Path, given: Option<&str>, file: Option<&Path>) -> Result<Vec<Self>> {
        let mut keys = Vec::new();
        match given {
            Some(digits) => keys.push(Self::from_environment(digits)?),
            None => {
                for name in [MASTER_KEY_FILE, MASTER_KEY_NEXT_FILE] {
                    keys.extend(Self::read(&dir.join(name))?);
                }
            }
        }
        if let Some(path) = file {
            let missing = || StoreError::NoMasterKey { path: path.to_owned() };
            keys.push(Self::read(path)?.ok_or_else(missing)?);
        }
        Ok(keys)
    }

    pub(crate) fn given(digits: &str) -> Result<Self> {
        Self::parse(digits, || "the new key".to_owned())
    }

    /// From the value of [`MASTER_KEY_VARIABLE`].
    pub(crate) fn from_environment(digits: &str) -> Result<Self> {
        Self::parse(digits, || MASTER_KEY_VARIABLE.to_owned())
    }

    pub(crate) fn from_bytes(key: [u8; KEY_BYTES]) -> Self {
        Self(key)
    }

    fn parse(digits: &str, origin: impl Fn() -> String) -> Result<Self> {
        let mut key = Self([0; KEY_BYTES]);
        hex::decode_to_slice(digits.trim(), &mut key.0)
            .map_err(|_| StoreError::BadMasterKey { origin: origin() })?;
        Ok(key)
    }

    pub(crate) fn same_as(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// A value by which a store recognises its key; it does not reveal the key.
    pub fn check_value(&self) -> [u8; 32] {
        self.hmac(&[CHECK_LABEL])
    }

    /// Whether a stored [`MasterKey::check_value`] came from this key.
    pub fn matches(&self, check_value: &[u8]) -> bool {
        self.check_value().ct_eq(check_value).into()
    }

    /// An authentication tag of a message; the label says what it is for.
    pub(crate) fn tag(&self, label: &[u8], message: &[u8]) -> [u8; 32] {
        // With its length before it, no label is the beginning of another.
        self.hmac(&[&(label.len() as u64).to_le_bytes(), label, message])
    }

    fn hmac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.0)
            .expect("HMAC takes keys of any length");
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    pub fn seal(&self, key: &TenantKey) -> Vec<u8> {
        seal(&self.0, TENANT_KEY_LABEL, &key.0)
    }

    pub fn open(&self, sealed: &[u8]) -> Option<TenantKey> {
        let opened = Zeroizing::new(open(&self.0, TENANT_KEY_LABEL, sealed)?);
        Some(TenantKey(opened.as_slice().try_into().ok()?))
    }

    /// The key in the file at `path`, if that exists.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        // More than a key file has, so that a longer file is recognised as not a key.
        const ENOUGH_BYTES: u64 = 256;
        let failed = |source| StoreError::Io { action: "read", path: path.into(), source };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        keep_private(&file, path).map_err(failed)?;
        let mut text = Zeroizing::new(Vec::with_capacity(ENOUGH_BYTES as usize));
        file.take(ENOUGH_BYTES).read_to_end(&mut text).map_err(failed)?;
        let origin = || format!("`{}`", path.display());
        let digits = std::str::from_utf8(&text)
            .map_err(|_| StoreError::BadMasterKey { origin: origin() })?;
        Self::parse(digits, origin).map(Some)
    }

    /// The key in one of the two files of a directory that fits a check value.
    pub(crate) fn in_files(dir: &Path, check: &[u8]) -> Option<Self> {
        // Another process may rename the next key over the present one between two reads.
        [MASTER_KEY_FILE, MASTER_KEY_NEXT_FILE, MASTER_KEY_FILE].iter().find_map(|name| {
            let key = Self::read(&dir.join(name)).ok().flatten()?;
            key.matches(check).then_some(key)
        })
    }

    /// Makes this the key at `path`, unless a key is there already.
    fn publish(&self, path: &Path) -> Result<()> {
        let temporary = Temporary::beside(path);
        self.write_new(&temporary.0)
            .map_err(|source| write_error("write the master key", path, source))?;
        link_new(&temporary.0, path)
    }

    /// Writes this as the next key, whole or not at all, durably.
    pub(crate) fn write_next(&self, dir: &Path) -> Result<()> {
        let path = dir.join(MASTER_KEY_NEXT_FILE);
        let temporary = Temporary::beside(&path);
        self.write_new(&temporary.0)
            .and_then(|()| std::fs::rename(&temporary.0, &path))
            .map_err(|source| write_error("write the next master key", &path, source))?;
        sync_dir(dir)
    }

    /// Replaces the present key by the next one.
    pub(crate) fn promote_next(dir: &Path) -> Result<()> {
        let path = dir.join(MASTER_KEY_FILE);
        std::fs::rename(dir.join(MASTER_KEY_NEXT_FILE), &path)
            .map_err(|source| write_error("put the next master key in place of", &path, source))?;
        sync_dir(dir)
    }

    /// Deletes a next key that sealed nothing.
    pub(crate) fn remove_next(dir: &Path) -> Result<()> {
        let path = dir.join(MASTER_KEY_NEXT_FILE);
        std::fs::remove_file(&path).map_err(|source| write_error("remove", &path, source))?;
        sync_dir(dir)
    }

    fn write_new(&self, path: &Path) -> io::Result<()> {
        let mut line = Zeroizing::new([b'\n'; 2 * KEY_BYTES + 1]);
        hex::encode_to_slice(self.0, &mut line[..2 * KEY_BYTES]).expect("two digits a byte");
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(line.as_slice())?;
        file.sync_all()
    }
}

/// Warns if other users can read the key, and makes its file private if it is ours.
fn keep_private(file: &File, path: &Path) -> io::Result<()> {
    let metadata = file.metadata()?;
    if metadata.mode() & 0o077 == 0 {
        return Ok(());
    }
    let path = path.display();
    if metadata.uid() == rustix::process::geteuid().as_raw() {
        tracing::warn!(%path, "other users could read the master key; its mode is 0600 now");
        return file.set_permissions(PermissionsExt::from_mode(0o600));
    }
    tracing::warn!(%path, "other users can read the master key; set its mode to 0600");
    Ok(())
}

/// The path of a temporary file, which is deleted on drop.
pub(crate) struct Temporary(pub(crate) PathBuf);

impl Temporary {
    pub(crate) fn beside(path: &Path) -> Self {
        Self(path.with_extension(format!("tmp-{}", hex::encode(random_bytes::<8>()))))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl TenantKey {
    pub fn random() -> Self {
        Self(random_bytes())
    }

    /// Derives the key for identities of turns and names.
    pub fn identity_key(&self) -> IdentityKey {
        IdentityKey::new(*self.derive(IDENTITY_LABEL))
    }

    /// Derives the key for tags of redaction markers.
    pub fn tag_key(&self) -> TagKey {
        TagKey::new(*self.derive(TAG_LABEL))
    }

    fn derive(&self, label: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut derived = Zeroizing::new([0; KEY_BYTES]);
        hkdf::Hkdf::<Sha256>::new(None, &self.0)
            .expand(label, derived.as_mut_slice())
            .expect("32 bytes are within what HKDF gives");
        derived
    }

    pub(crate) fn same_as(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    /// Seals a small secret, which opens under the same label only.
    pub fn seal(&self, label: &str, secret: &[u8]) -> Vec<u8> {
        seal(&self.0, label, secret)
    }

    pub fn open(&self, label: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        open(&self.0, label, sealed)
    }
}

/// Cryptographically random bytes; tests may replace them.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[cfg(all(debug_assertions, any(test, feature = "testing")))]
    if crate::testing::draw(&mut bytes) {
        return bytes;
    }
    // Without randomness no key is safe, so there is no fallback.
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

fn seal(key: &[u8; KEY_BYTES], label: &str, secret: &[u8]) -> Vec<u8> {
    let nonce = random_bytes::<NONCE_BYTES>();
    let sealed = XChaCha20Poly1305::new(key.into())
        .encrypt(&nonce.into(), Payload { msg: secret, aad: &bound_to(label) })
        .expect("a small secret is within the cipher's limit");
    [&[SEALED_VERSION], nonce.as_slice(), &sealed].concat()
}

fn open(key: &[u8; KEY_BYTES], label: &str, sealed: &[u8]) -> Option<Vec<u8>> {
    let (&version, rest) = sealed.split_first()?;
    let (&nonce, sealed) = rest.split_first_chunk::<NONCE_BYTES>()?;
    if version != SEALED_VERSION {
        return None;
    }
    XChaCha20Poly1305::new(key.into())
        .decrypt(&nonce.into(), Payload { msg: sealed, aad: &bound_to(label) })
        .ok()
}

fn bound_to(label: &str) -> Vec<u8> {
    [&[SEALED_VERSION], label.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use icecore_domain::turn::RawTurn;

    fn digits(key: &MasterKey) -> String {
        hex::encode(key.0)
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn the_environment_wins_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = MasterKey::load(dir.path(), None, true).unwrap();
        let given = "0a".repeat(32);
        let environment = MasterKey::load(dir.path(), Some(&given), false).unwrap();
        assert_eq!(environment.0, [10; 32]);
        assert_ne!(environment.0, file.0);
        let upper = MasterKey::load(dir.path(), Some(&given.to_uppercase()), false).unwrap();
        assert_eq!(upper.0, [10; 32]);
    }

    #[test]
    fn a_bad_key_is_refused_and_its_digits_are_not_told() {
        let dir = tempfile::tempdir().unwrap();
        for bad in ["", "0a", &"0g".repeat(32), &"0a".repeat(33)] {
            let error = MasterKey::load(dir.path(), Some(bad), true).unwrap_err();
            assert!(matches!(&error, StoreError::BadMasterKey { .. }), "{bad}");
            assert!(bad.len() < 4 || !error.to_string().contains(bad));
        }
        let path = dir.path().join(MASTER_KEY_FILE);
        for bad in [&b""[..], b"\xff\xfe", "0a".repeat(500).as_bytes()] {
            std::fs::write(&path, bad).unwrap();
            let error = MasterKey::load(dir.path(), None, true).unwrap_err();
            assert!(matches!(error, StoreError::BadMasterKey { .. }), "{bad:?}");
            assert_eq!(std::fs::read(&path).unwrap(), bad, "left as it was");
        }
    }

    #[test]
    fn a_key_is_made_once_with_mode_0600_and_only_when_allowed() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("data");
        let missing = MasterKey::load(&dir, None, false).unwrap_err();
        assert!(matches!(missing, StoreError::NoMasterKey { path } if path.starts_with(&dir)));
        assert!(!dir.exists());

        let made = MasterKey::load(&dir, None, true).unwrap();
        let path = dir.join(MASTER_KEY_FILE);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", digits(&made)));
        assert_eq!(mode(&path), 0o600);
        assert_eq!(MasterKey::load(&dir, None, true).unwrap().0, made.0);
        assert_eq!(MasterKey::load(&dir, None, false).unwrap().0, made.0);
        assert_eq!(dir.read_dir().unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn racing_makers_end_with_one_key() {
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let start = std::sync::Barrier::new(8);
            let keys: Vec<_> = std::thread::scope(|scope| {
                let make = || {
                    start.wait();
                    MasterKey::load(dir.path(), None, true).unwrap().0
                };
                let makers: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
                makers.into_iter().map(|maker| maker.join().unwrap()).collect()
            });
            assert!(keys.iter().all(|key| *key == keys[0]));
            assert_eq!(dir.path().read_dir().unwrap().count(), 1);
        }
    }

    #[test]
    fn a_key_that_others_could_read_becomes_private() {
        let dir = tempfile::tempdir().unwrap();
        let made = MasterKey::load(dir.path(), None, true).unwrap();
        let path = dir.path().join(MASTER_KEY_FILE);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(MasterKey::load(dir.path(), None, false).unwrap().0, made.0);
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn check_values_tell_keys_apart() {
        let (a, b) = (MasterKey::random(), MasterKey::random());
        assert!(a.matches(&a.check_value()));
        assert!(!a.matches(&b.check_value()));
        assert!(!a.matches(&a.check_value()[..31]));
        assert!(!a.matches(b""));
        assert_ne!(a.check_value(), a.0, "the key is not given away");
    }

    #[test]
    fn sealed_keys_open_with_their_master_only() {
        let (master, tenant) = (MasterKey::random(), TenantKey::random());
        let sealed = master.seal(&tenant);
        assert_eq!(master.open(&sealed).unwrap().0, tenant.0);
        assert!(MasterKey::random().open(&sealed).is_none());
        assert_ne!(master.seal(&tenant), sealed, "each sealing has its own nonce");
    }

    #[test]
    fn sealed_secrets_open_under_their_label_only() {
        let key = TenantKey::random();
        for secret in [&b""[..], b"s", &[7; 1000]] {
            let sealed = key.seal("pack 1", secret);
            assert_eq!(key.open("pack 1", &sealed).unwrap(), secret);
            assert!(key.open("pack 2", &sealed).is_none());
            assert!(TenantKey::random().open("pack 1", &sealed).is_none());
        }
    }

    #[test]
    fn a_sealed_secret_with_any_byte_changed_or_cut_does_not_open() {
        let key = TenantKey::random();
        let sealed = key.seal("label", b"secret");
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(key.open("label", &changed).is_none(), "byte {at}");
            assert!(key.open("label", &sealed[..at]).is_none(), "cut at {at}");
        }
    }

    #[test]
    fn identity_keys_follow_from_the_tenants_key() {
        let (key, turn) = (TenantKey([1; 32]), RawTurn::new("user", "hi"));
        let identity = key.identity_key().identify(&turn);
        assert_eq!(identity, TenantKey([1; 32]).identity_key().identify(&turn));
        assert_ne!(identity, TenantKey([2; 32]).identity_key().identify(&turn));
        assert_ne!(identity, IdentityKey::new(key.0).identify(&turn));
    }

    #[test]
    fn keys_do_not_show_themselves() {
        let shown = format!("{:?} {:?}", MasterKey([7; 32]), TenantKey([7; 32]));
        assert_eq!(shown, "MasterKey(…) TenantKey(…)");
    }
}
