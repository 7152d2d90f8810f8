//! The one who writes alone, for a new master key.

use std::time::Duration;

use super::open::{Opened, classify_file};
use super::writer::commit_alone;
use crate::engine::rotation::Alone;
use crate::engine::tx::{Isolation, Tx};
use crate::error::{Result, StoreError};

impl Opened {
    fn file(&self) -> Result<&rusqlite::Connection> {
        self.connection.file().ok_or(StoreError::Closed)
    }

    /// How long a write waits for other processes.
    pub(super) fn wait_for_others(&self, most: Duration) -> Result<()> {
        let set = self.file()?.busy_timeout(most);
        set.map_err(|e| classify_file(e, &self.context.path))
    }
}

impl Alone for Opened {
    /// With the write lock of the file.
    fn alone<T>(&self, act: &impl Fn(&Tx<'_>) -> Result<T>) -> Result<T> {
        commit_alone(&self.connection, &self.context.path, |connection| {
            let tx = Tx::new(connection, &self.context, &Isolation::MasterKey);
            act(&tx).map_err(|error| self.context.classified(error))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::super::open;
    use super::*;
    use crate::contract::fixtures::*;
    use crate::engine::rotation::{reseal, settle_next};
    use crate::keys::{MASTER_KEY_FILE, MASTER_KEY_NEXT_FILE, MASTER_KEY_VARIABLE, MasterKey};
    use crate::store::Store;
    use crate::*;

    fn file(dir: &Path, name: &str) -> Option<String> {
        std::fs::read_to_string(dir.join(name)).ok()
    }

    fn keys(dir: &Path) -> (Option<String>, bool) {
        (file(dir, MASTER_KEY_FILE), dir.join(MASTER_KEY_NEXT_FILE).exists())
    }

    /// A store with tenants, one of them with a pack and a secret.
    async fn filled(dir: &Path, environment: Option<&str>) {
        let store = Store::open(dir, environment).unwrap();
        let session = add(&store, "s", &say_many(9)).await;
        warm(&store, session, 8).await;
        cool(&store, session, ColdBody::Pack(new_pack("p"))).await;
        let put = secret("db", "q8Zk2Lm9Xw");
        store.put_secret(&tenant("acme"), put, false, NOW).await.unwrap();
        store.identity_key(&tenant("rival")).await.unwrap();
    }

    /// Everything that was sealed opens.
    async fn is_whole(dir: &Path, environment: Option<&str>) {
        let store = Store::open(dir, environment).unwrap();
        holds(&store).await;
    }

    async fn holds(store: &Store) {
        assert_eq!(store.secrets(&tenant("acme")).await.unwrap().secrets.len(), 1);
        assert_eq!(
            store.packs(None).await.unwrap()[0].key.as_bytes(),
            new_pack("p").key.as_bytes()
        );
        assert!(store.session(&scope(), &session_name("s")).await.unwrap().is_some());
        store.identity_key(&tenant("rival")).await.unwrap();
        clean(store).await;
    }

    #[tokio::test]
    async fn a_new_key_takes_the_place_of_the_old() {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path(), None).await;
        let old = keys(dir.path()).0;
        let rotated = Store::rotate_master_key(dir.path(), None, None).unwrap();
        assert_eq!((rotated.tenants, rotated.key_file), (2, Some(dir.path().join("master.key"))));
        let (new, is_next) = keys(dir.path());
        assert!(new != old && !is_next);
        assert_eq!(dir.path().join("master.key").metadata().unwrap().mode() & 0o777, 0o600);
        is_whole(dir.path(), None).await;
        // The old one opens nothing any more.
        let old = old.unwrap();
        let refused = Store::open(dir.path(), Some(&old)).err().unwrap();
        assert!(matches!(&refused, StoreError::WrongMasterKey { .. }), "{refused}");
        // One can also be given; a bad one changes nothing.
        let bad = Store::rotate_master_key(dir.path(), None, Some("0g")).unwrap_err();
        assert!(matches!(bad, StoreError::BadMasterKey { .. }));
        assert_eq!(keys(dir.path()), (new, false));
        let given = "0a".repeat(32);
        Store::rotate_master_key(dir.path(), None, Some(&given)).unwrap();
        assert_eq!(keys(dir.path()).0.unwrap().trim(), given);
        is_whole(dir.path(), None).await;
        is_whole(dir.path(), Some(&given)).await;
    }

    #[tokio::test]
    async fn a_key_from_the_environment_stays_out_of_files() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = ("0a".repeat(32), "0b".repeat(32));
        filled(dir.path(), Some(&first)).await;
        let rotate = |present: &str, new| Store::rotate_master_key(dir.path(), Some(present), new);
        let wrong = rotate(&second, None).unwrap_err();
        assert!(wrong.to_string().contains(MASTER_KEY_VARIABLE) && wrong.hint().is_some());
        let rotated = rotate(&first, Some(&second)).unwrap();
        assert_eq!((rotated.tenants, rotated.key_file), (2, None));
        assert_eq!(keys(dir.path()), (None, false));
        is_whole(dir.path(), Some(&second)).await;
        assert!(Store::open(dir.path(), Some(&first)).is_err());
        // A key that lies there and is not the store's is not written over.
        std::fs::write(dir.path().join("master.key"), &first).unwrap();
        let refused = rotate(&second, None).unwrap_err();
        assert!(refused.to_string().contains("master.key"), "{refused}");
        assert_eq!(keys(dir.path()), (Some(first), false));
        is_whole(dir.path(), Some(&second)).await;
        // From the environment into a file.
        std::fs::remove_file(dir.path().join("master.key")).unwrap();
        assert!(rotate(&second, None).unwrap().key_file.is_some());
        is_whole(dir.path(), None).await;
    }

    #[tokio::test]
    async fn what_ended_on_the_way_is_finished_or_undone() {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path(), None).await;
        let old = keys(dir.path()).0;
        let opened = || open::open_existing(dir.path(), None).unwrap();
        let commit = |opened: &Opened, next: &MasterKey| {
            let sealed = opened.alone(&|tx| {
                next.write_next(dir.path())?;
                reseal(tx, &opened.master, next)
            });
            assert_eq!(sealed.unwrap(), 2);
        };
        // Killed with the next key written and nothing sealed with it.
        MasterKey::random().write_next(dir.path()).unwrap();
        assert!(keys(dir.path()).1);
        is_whole(dir.path(), None).await;
        assert_eq!(keys(dir.path()), (old.clone(), false));
        // Killed inside the transaction.
        let next = MasterKey::random();
        let (first, other) = (opened(), opened());
        first.connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        next.write_next(dir.path()).unwrap();
        reseal(
            &Tx::new(&first.connection, &first.context, &Isolation::MasterKey),
            &first.master,
            &next,
        )
        .unwrap();
        // Meanwhile others leave the next key alone.
        other.wait_for_others(Duration::ZERO).unwrap();
        let busy = settle_next(&other, dir.path());
        assert!(matches!(busy, Err(StoreError::Busy { .. })));
        assert!(keys(dir.path()).1);
        drop((first, other));
        is_whole(dir.path(), None).await;
        assert_eq!(keys(dir.path()), (old.clone(), false));
        // Killed after the commit.
        commit(&opened(), &next);
        assert_eq!(keys(dir.path()), (old.clone(), true));
        is_whole(dir.path(), None).await;
        let (new, is_next) = keys(dir.path());
        assert!(new != old && !is_next);
        is_whole(dir.path(), None).await;
        // So too when the old file was lost, or when it is rotated again at once.
        for is_lost in [true, false] {
            commit(&opened(), &MasterKey::random());
            match is_lost {
                true => std::fs::remove_file(dir.path().join("master.key")).unwrap(),
                false => drop(Store::rotate_master_key(dir.path(), None, None).unwrap()),
            }
            is_whole(dir.path(), None).await;
        }
        // Nothing but what belongs there is left.
        let names = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name());
        let names: Vec<_> = names.collect();
        assert!(names.iter().all(|name| !name.to_string_lossy().contains("tmp")), "{names:?}");
    }

    async fn say_more(store: &Store) {
        let batch = AppendBatch { secrets_seen: 2, ..batch("s", &say_many(1)) };
        store.append(&scope(), batch).await.unwrap();
    }

    #[tokio::test]
    async fn a_running_host_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path(), None).await;
        let host = Store::open(dir.path(), None).unwrap();
        let rotate = || Store::rotate_master_key(dir.path(), None, None).unwrap();
        rotate();
        holds(&host).await;
        say_more(&host).await;
        rotate();
        // A tenant that it makes is sealed with the key of now.
        host.identity_key(&tenant("new")).await.unwrap();
        rotate();
        holds(&host).await;
        is_whole(dir.path(), None).await;
        let again = Store::open(dir.path(), None).unwrap();
        let key = |key: icecore_domain::identity::IdentityKey| key.hash_name("x", "y");
        assert_eq!(
            key(again.identity_key(&tenant("new")).await.unwrap()),
            key(host.identity_key(&tenant("new")).await.unwrap())
        );
    }

    #[tokio::test]
    async fn a_host_without_the_new_key_keeps_what_it_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = ("0a".repeat(32), "0b".repeat(32));
        filled(dir.path(), Some(&first)).await;
        let host = Store::open(dir.path(), Some(&first)).unwrap();
        assert!(host.session(&scope(), &session_name("s")).await.unwrap().is_some());
        Store::rotate_master_key(dir.path(), Some(&first), Some(&second)).unwrap();
        say_more(&host).await;
        assert_eq!(host.secrets(&tenant("acme")).await.unwrap().secrets.len(), 1);
        // What it had not opened it cannot, and it seals nothing with the old key.
        for name in ["rival", "new"] {
            let refused = host.identity_key(&tenant(name)).await.err().unwrap();
            assert!(matches!(refused, StoreError::MasterKeyReplaced { .. }), "{refused:?}");
        }
        is_whole(dir.path(), Some(&second)).await;
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_resealed_is_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("nowhere");
        assert!(Store::rotate_master_key(&missing, None, None).is_err());
        assert!(!missing.exists());
        filled(dir.path(), None).await;
        let old = keys(dir.path());
        let opened = open::open_existing(dir.path(), None).unwrap();
        let change = "UPDATE tenants SET sealed_key = x'00' WHERE name = 'rival'";
        opened.connection.run(change, []).unwrap();
        drop(opened);
        let refused = Store::rotate_master_key(dir.path(), None, None).unwrap_err();
        assert!(matches!(refused, StoreError::Damaged { .. }), "{refused:?}");
        assert_eq!(keys(dir.path()), old);
        let store = Store::open(dir.path(), None).unwrap();
        assert_eq!(store.secrets(&tenant("acme")).await.unwrap().secrets.len(), 1);
    }
}
