//! Keys that were found lately, so that a request need not ask the store.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use icecore::MemoryError;
use icecore_host::keys::ApiKeyRecord;
use subtle::ConstantTimeEq;

use crate::app::App;
use crate::auth::Role;

/// A change of keys made elsewhere is to be seen within five seconds.
const HELD: Duration = Duration::from_secs(2);

/// Enough for every key in use at once; beyond it the oldest goes.
const MOST_HELD: usize = 4_096;

/// A key as the store has it, with its role understood.
#[derive(Debug)]
pub(crate) struct KnownKey {
    pub(crate) record: ApiKeyRecord,
    pub(crate) role: Role,
}

/// Keys by the hash of what their holders present.
///
/// Short-lived, so that a key that is taken back stops working within seconds.
/// When it expires is judged anew for each request. A hash of 256 random bits
/// cannot be steered, so looking it up in a map tells nothing by its time; what is
/// found is compared once more, in constant time.
#[derive(Default)]
pub(crate) struct KeyRing(RwLock<HashMap<[u8; 32], Held>>);

struct Held {
    key: Arc<KnownKey>,
    until: Instant,
}

/// The key with that hash, whatever has become of it.
pub(crate) async fn find(app: &App, hash: &[u8; 32]) -> Result<Option<Arc<KnownKey>>, MemoryError> {
    if let Some(key) = app.keys.held(hash, Instant::now()) {
        return Ok(Some(key));
    }
    // Taken before the store is asked: what changes meanwhile is seen in time.
    let began = Instant::now();
    let record = app.host.keys.find(hash).await?;
    let known = |record: ApiKeyRecord| Some(KnownKey { role: Role::parse(&record.role)?, record });
    let key = record.and_then(known).map(Arc::new);
    if let Some(key) = &key {
        app.keys.keep(*hash, Arc::clone(key), began);
    }
    Ok(key)
}

impl KeyRing {
    fn held(&self, hash: &[u8; 32], now: Instant) -> Option<Arc<KnownKey>> {
        let ring = self.0.read().ok()?;
        let (found, held) = ring.get_key_value(hash)?;
        (bool::from(found.ct_eq(hash)) && now < held.until).then(|| Arc::clone(&held.key))
    }

    fn keep(&self, hash: [u8; 32], key: Arc<KnownKey>, now: Instant) {
        let Ok(mut ring) = self.0.write() else { return };
        if ring.len() >= MOST_HELD && !ring.contains_key(&hash) {
            ring.retain(|_, held| now < held.until);
        }
        if ring.len() >= MOST_HELD && !ring.contains_key(&hash) {
            let oldest = ring.iter().min_by_key(|(_, held)| held.until).map(|(hash, _)| *hash);
            oldest.map(|oldest| ring.remove(&oldest));
        }
        ring.insert(hash, Held { key, until: now + HELD });
    }

    /// Lets go of a key that was changed here.
    pub(crate) fn forget(&self, id: &str) {
        let mut ring = self.0.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        ring.retain(|_, held| held.key.record.id != id);
    }
}

#[cfg(test)]
mod tests {
    use icecore::{Millis, Tenant};

    use super::*;

    fn key(id: usize) -> Arc<KnownKey> {
        let record = ApiKeyRecord {
            id: format!("key-{id}"),
            tenant: Tenant::new("t").unwrap(),
            role: "reader".to_owned(),
            name: None,
            created_at: Millis(0),
            expires_at: None,
            revoked_at: None,
        };
        Arc::new(KnownKey { record, role: Role::Reader })
    }

    fn hash(number: usize) -> [u8; 32] {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.to_be_bytes());
        hash
    }

    #[test]
    fn a_key_is_held_for_seconds() {
        let (ring, now) = (KeyRing::default(), Instant::now());
        ring.keep(hash(1), key(1), now);
        let held = |at: Instant| ring.held(&hash(1), at).map(|key| key.record.id.clone());
        assert_eq!(held(now).as_deref(), Some("key-1"));
        assert_eq!(held(now + HELD - Duration::from_nanos(1)).as_deref(), Some("key-1"));
        assert_eq!(held(now + HELD), None);
        assert!(ring.held(&hash(2), now).is_none());
        assert!(HELD <= Duration::from_secs(2));
        ring.keep(hash(2), key(2), now);
        ring.forget("key-1");
        assert!(ring.held(&hash(1), now).is_none() && ring.held(&hash(2), now).is_some());
    }

    #[test]
    fn it_holds_all_keys_in_use_and_no_more_than_it_should() {
        let (ring, began) = (KeyRing::default(), Instant::now());
        let at = |number: usize| began + Duration::from_nanos(number as u64);
        for number in 0..MOST_HELD {
            ring.keep(hash(number), key(number), at(number));
        }
        let now = at(MOST_HELD);
        assert!((0..MOST_HELD).all(|number| ring.held(&hash(number), now).is_some()));
        ring.keep(hash(0), key(0), now);
        assert!(ring.held(&hash(1), now).is_some(), "one that is there takes no new place");
        ring.keep(hash(MOST_HELD), key(MOST_HELD), now);
        assert_eq!(ring.0.read().unwrap().len(), MOST_HELD);
        assert!(ring.held(&hash(1), now).is_none(), "the oldest makes way");
        assert!(ring.held(&hash(0), now).is_some());
        // What nobody has used lately goes first.
        ring.keep(hash(MOST_HELD + 1), key(0), now + HELD);
        assert_eq!(ring.0.read().unwrap().len(), 1);
    }
}
