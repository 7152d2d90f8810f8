//! A new master key for a store.
//!
//! The new key lies beside the old one, synced, before anything is sealed with it,
//! and takes its place after. Which of the two is the store's is said by the check
//! value, which changes with what is sealed in one transaction. So at whatever
//! instruction this ends, the key that fits is in one of the two files. Whoever
//! touches the file of the next key holds the store's write lock.

use std::path::Path;

use rusqlite::{Connection, params};

use super::open::{self, Opened, classify_file as classify, read_check};
use crate::error::StoreError;
use crate::keys::{MASTER_KEY_FILE, MASTER_KEY_NEXT_FILE, MasterKey};
use crate::sql::KEY_CHECK;
use crate::store::{Result, Rotated};

pub(super) fn rotate(dir: &Path, environment: Option<&str>, new: Option<&str>) -> Result<Rotated> {
    let given = new.map(MasterKey::given).transpose()?;
    let opened = open::open_existing(dir, environment)?;
    let to_file = environment.is_none() || given.is_none();
    if to_file {
        refuse_to_lose_a_key(&opened)?;
    }
    let next = given.unwrap_or_else(MasterKey::random);
    let resealed = in_transaction(&opened, || {
        if to_file {
            next.write_next(dir)?;
        }
        reseal(&opened, &next)
    });
    if to_file {
        // Also where it failed: then the next key is taken away.
        settle_next(&opened.connection, &opened.path, dir)?;
    }
    let key_file = to_file.then(|| dir.join(MASTER_KEY_FILE));
    Ok(Rotated { tenants: resealed?, key_file })
}

/// The file's key goes; one that is not this store's might be needed elsewhere.
fn refuse_to_lose_a_key(opened: &Opened) -> Result<()> {
    let path = opened.dir.join(MASTER_KEY_FILE);
    match MasterKey::read(&path)? {
        Some(key) if !key.same_as(&opened.master) => {
            Err(StoreError::WrongMasterKey { origin: format!("`{}`", path.display()) })
        }
        _ => Ok(()),
    }
}

fn in_transaction<T>(opened: &Opened, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let run = |sql| opened.connection.execute_batch(sql).map_err(|e| classify(e, &opened.path));
    run("BEGIN IMMEDIATE")?;
    let result = settle_locked(&opened.connection, &opened.path, &opened.dir)
        .and_then(|()| act())
        .and_then(|answer| run("COMMIT").map(|()| answer));
    if result.is_err() && !opened.connection.is_autocommit() {
        run("ROLLBACK")?;
    }
    result
}

/// Seals every tenant's key with the next master key; answers how many.
fn reseal(opened: &Opened, next: &MasterKey) -> Result<u64> {
    let (c, failed) = (&opened.connection, |e| classify(e, &opened.path));
    // Another process may have been faster.
    let check = read_check(c, &opened.path)?.unwrap_or_default();
    if !opened.master.matches(&check) {
        return Err(StoreError::WrongMasterKey { origin: opened.origin.clone() });
    }
    let tenants: Vec<(i64, String, Vec<u8>)> = c
        .prepare("SELECT tenant, name, sealed_key FROM tenants")
        .and_then(|mut q| {
            q.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
        })
        .map_err(failed)?;
    for (tenant, name, sealed) in &tenants {
        let key = opened.master.open(sealed).ok_or_else(|| StoreError::Damaged {
            path: opened.path.clone(),
            reason: format!("the sealed key of tenant `{name}` does not open"),
        })?;
        c.execute(
            "UPDATE tenants SET sealed_key = ?2 WHERE tenant = ?1",
            params![tenant, next.seal(&key)],
        )
        .map_err(failed)?;
    }
    let check = hex::encode(next.check_value());
    c.execute("UPDATE notes SET value = ?2 WHERE name = ?1", [KEY_CHECK, &check])
        .map_err(failed)?;
    Ok(tenants.len() as u64)
}

/// Puts the next key in its place if it is the store's, else takes it away.
pub(super) fn settle_next(c: &Connection, path: &Path, dir: &Path) -> Result<()> {
    if !dir.join(MASTER_KEY_NEXT_FILE).exists() {
        return Ok(());
    }
    // Whoever rotates holds this lock from before the next key is written until
    // the check value has changed.
    let failed = |e| classify(e, path);
    c.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
    let result = settle_locked(c, path, dir);
    c.execute_batch("ROLLBACK").map_err(failed)?;
    result
}

fn settle_locked(c: &Connection, path: &Path, dir: &Path) -> Result<()> {
    let next = dir.join(MASTER_KEY_NEXT_FILE);
    let Some(key) = MasterKey::read(&next)? else { return Ok(()) };
    let check = read_check(c, path)?.unwrap_or_default();
    match key.matches(&check) {
        true => MasterKey::promote_next(dir),
        false => MasterKey::remove_next(dir),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqliteStore;
    use crate::contract::fixtures::*;
    use crate::keys::MASTER_KEY_VARIABLE;
    use crate::store::*;
    use std::os::unix::fs::MetadataExt;

    fn file(dir: &Path, name: &str) -> Option<String> {
        std::fs::read_to_string(dir.join(name)).ok()
    }

    fn keys(dir: &Path) -> (Option<String>, bool) {
        (file(dir, MASTER_KEY_FILE), dir.join(MASTER_KEY_NEXT_FILE).exists())
    }

    /// A store with tenants, one of them with a pack and a secret.
    async fn filled(dir: &Path, environment: Option<&str>) {
        let store = SqliteStore::open(dir, environment).unwrap();
        let session = add(&store, "s", &say_many(9)).await;
        warm(&store, session, 8).await;
        cool(&store, session, ColdBody::Pack(new_pack("p"))).await;
        let put = secret("db", "q8Zk2Lm9Xw");
        store.put_secret(&tenant("acme"), put, false, NOW).await.unwrap();
        store.identity_key(&tenant("rival")).await.unwrap();
    }

    /// Everything that was sealed opens.
    async fn is_whole(dir: &Path, environment: Option<&str>) {
        let store = SqliteStore::open(dir, environment).unwrap();
        holds(&store).await;
    }

    async fn holds(store: &SqliteStore) {
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
        let rotated = SqliteStore::rotate_master_key(dir.path(), None, None).unwrap();
        assert_eq!((rotated.tenants, rotated.key_file), (2, Some(dir.path().join("master.key"))));
        let (new, is_next) = keys(dir.path());
        assert!(new != old && !is_next);
        assert_eq!(dir.path().join("master.key").metadata().unwrap().mode() & 0o777, 0o600);
        is_whole(dir.path(), None).await;
        // The old one opens nothing any more.
        let old = old.unwrap();
        let refused = SqliteStore::open(dir.path(), Some(&old)).err().unwrap();
        assert!(matches!(&refused, StoreError::WrongMasterKey { .. }), "{refused}");
        // One can also be given; a bad one changes nothing.
        let bad = SqliteStore::rotate_master_key(dir.path(), None, Some("0g")).unwrap_err();
        assert!(matches!(bad, StoreError::BadMasterKey { .. }));
        assert_eq!(keys(dir.path()), (new, false));
        let given = "0a".repeat(32);
        SqliteStore::rotate_master_key(dir.path(), None, Some(&given)).unwrap();
        assert_eq!(keys(dir.path()).0.unwrap().trim(), given);
        is_whole(dir.path(), None).await;
        is_whole(dir.path(), Some(&given)).await;
    }

    #[tokio::test]
    async fn a_key_from_the_environment_stays_out_of_files() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = ("0a".repeat(32), "0b".repeat(32));
        filled(dir.path(), Some(&first)).await;
        let rotate =
            |present: &str, new| SqliteStore::rotate_master_key(dir.path(), Some(present), new);
        let wrong = rotate(&second, None).unwrap_err();
        assert!(wrong.to_string().contains(MASTER_KEY_VARIABLE) && wrong.hint().is_some());
        let rotated = rotate(&first, Some(&second)).unwrap();
        assert_eq!((rotated.tenants, rotated.key_file), (2, None));
        assert_eq!(keys(dir.path()), (None, false));
        is_whole(dir.path(), Some(&second)).await;
        assert!(SqliteStore::open(dir.path(), Some(&first)).is_err());
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
        reseal(&first, &next).unwrap();
        // Meanwhile others leave the next key alone.
        other.connection.busy_timeout(std::time::Duration::ZERO).unwrap();
        let busy = settle_next(&other.connection, &other.path, dir.path());
        assert!(matches!(busy, Err(StoreError::Busy { .. })));
        assert!(keys(dir.path()).1);
        drop((first, other));
        is_whole(dir.path(), None).await;
        assert_eq!(keys(dir.path()), (old.clone(), false));
        // Killed after the commit.
        let first = opened();
        in_transaction(&first, || {
            next.write_next(dir.path())?;
            reseal(&first, &next)
        })
        .unwrap();
        drop(first);
        assert_eq!(keys(dir.path()), (old.clone(), true));
        is_whole(dir.path(), None).await;
        let (new, is_next) = keys(dir.path());
        assert!(new != old && !is_next);
        is_whole(dir.path(), None).await;
        // So too when the old file was lost, or when it is rotated again at once.
        for is_lost in [true, false] {
            let (first, next) = (opened(), MasterKey::random());
            in_transaction(&first, || {
                next.write_next(dir.path())?;
                reseal(&first, &next)
            })
            .unwrap();
            match is_lost {
                true => std::fs::remove_file(dir.path().join("master.key")).unwrap(),
                false => drop(SqliteStore::rotate_master_key(dir.path(), None, None).unwrap()),
            }
            is_whole(dir.path(), None).await;
        }
        // Nothing but what belongs there is left.
        let names = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name());
        let names: Vec<_> = names.collect();
        assert!(names.iter().all(|name| !name.to_string_lossy().contains("tmp")), "{names:?}");
    }

    async fn say_more(store: &SqliteStore) {
        let batch = AppendBatch { secrets_seen: 2, ..batch("s", &say_many(1)) };
        store.append(&scope(), batch).await.unwrap();
    }

    #[tokio::test]
    async fn a_running_host_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path(), None).await;
        let host = SqliteStore::open(dir.path(), None).unwrap();
        let rotate = || SqliteStore::rotate_master_key(dir.path(), None, None).unwrap();
        rotate();
        holds(&host).await;
        say_more(&host).await;
        rotate();
        // A tenant that it makes is sealed with the key of now.
        host.identity_key(&tenant("new")).await.unwrap();
        rotate();
        holds(&host).await;
        is_whole(dir.path(), None).await;
        let again = SqliteStore::open(dir.path(), None).unwrap();
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
        let host = SqliteStore::open(dir.path(), Some(&first)).unwrap();
        assert!(host.session(&scope(), &session_name("s")).await.unwrap().is_some());
        SqliteStore::rotate_master_key(dir.path(), Some(&first), Some(&second)).unwrap();
        say_more(&host).await;
        assert_eq!(host.secrets(&tenant("acme")).await.unwrap().secrets.len(), 1);
        // What it had not opened it cannot, and it seals nothing with the old key.
        for name in ["rival", "new"] {
            let refused = host.identity_key(&tenant(name)).await.err().unwrap();
            assert!(matches!(refused, StoreError::WrongMasterKey { .. }), "{refused:?}");
        }
        is_whole(dir.path(), Some(&second)).await;
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_resealed_is_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("nowhere");
        assert!(SqliteStore::rotate_master_key(&missing, None, None).is_err());
        assert!(!missing.exists());
        filled(dir.path(), None).await;
        let old = keys(dir.path());
        let opened = open::open_existing(dir.path(), None).unwrap();
        let change = "UPDATE tenants SET sealed_key = x'00' WHERE name = 'rival'";
        opened.connection.execute(change, []).unwrap();
        drop(opened);
        let refused = SqliteStore::rotate_master_key(dir.path(), None, None).unwrap_err();
        assert!(matches!(refused, StoreError::Damaged { .. }), "{refused:?}");
        assert_eq!(keys(dir.path()), old);
        let store = SqliteStore::open(dir.path(), None).unwrap();
        assert_eq!(store.secrets(&tenant("acme")).await.unwrap().secrets.len(), 1);
    }
}
