//! A new master key: whole at every instruction, whoever works beside it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::proxy::{Cut, Proxy};
use super::*;
use crate::contract::fixtures::*;
use crate::engine::rotation::reseal;
use crate::error::Result;
use crate::keys::MASTER_KEY_NEXT_FILE;
use crate::store::Store;
use crate::testing::postgres::own_server;
use crate::*;

const NEW_KEY: &str = "0202020202020202020202020202020202020202020202020202020202020202";

/// Tells of a failure instead of trying again.
fn impatient() -> PostgresOptions {
    PostgresOptions { retry_seconds: 0, ..PostgresOptions::default() }
}

fn open_with(url: &str, key: &str) -> Result<Store> {
    Store::connect(url, impatient(), key)
}

/// Rotates a key that is given, to one that is given.
fn rotate(url: &str, from: &str, to: &str) -> Result<Rotated> {
    let nowhere = Path::new("/nonexistent/icecore");
    Store::rotate_shared_master_key(url, impatient(), nowhere, Some(from), Some(to))
}

/// A store with tenants, two of them with turns and a secret, one of those with a pack.
async fn fill(store: &Store) {
    let session = add(store, "s", &say_many(9)).await;
    warm(store, session, 8).await;
    cool(store, session, ColdBody::Pack(new_pack("p"))).await;
    let put = secret("db", "q8Zk2Lm9Xw");
    store.put_secret(&tenant("acme"), put, false, NOW).await.unwrap();
    let put = secret("mail", "w7Hp4Rt1Vb");
    store.put_secret(&tenant("rival"), put, false, NOW).await.unwrap();
    let batch = AppendBatch { secrets_seen: 2, ..batch("r", &say_many(3)) };
    store.append(&scope_of("rival", "main"), batch).await.unwrap();
    store.identity_key(&tenant("third")).await.unwrap();
}

/// Everything that was sealed opens.
async fn holds(store: &Store) {
    for (name, value) in [("acme", "q8Zk2Lm9Xw"), ("rival", "w7Hp4Rt1Vb")] {
        let secrets = store.secrets(&tenant(name)).await.unwrap().secrets;
        assert_eq!(secrets.iter().map(|s| s.value()).collect::<Vec<_>>(), [value]);
    }
    let packs = store.packs(None).await.unwrap();
    assert_eq!(packs[0].key.as_bytes(), new_pack("p").key.as_bytes());
    assert!(store.session(&scope(), &session_name("s")).await.unwrap().is_some());
    let rival = scope_of("rival", "main");
    assert!(store.session(&rival, &session_name("r")).await.unwrap().is_some());
    store.identity_key(&tenant("third")).await.unwrap();
    clean(store).await;
}

/// The store at `url` is whole under `key`, and not to be opened with `other`.
fn is_sealed_with(url: &str, key: &str, other: &str) {
    let store = open_with(url, key).unwrap();
    wait(holds(&store));
    let refused = open_with(url, other).err().unwrap();
    assert!(matches!(refused, StoreError::WrongMasterKey { .. }), "{refused}");
    assert!(refused.to_string().contains(MASTER_KEY_VARIABLE) && refused.hint().is_some());
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(work)
}

/// A filled store over a database of its own.
fn filled() -> Option<TestDatabase> {
    let database = prepared_database()?;
    wait(fill(&connect(database.url())));
    Some(database)
}

#[test]
fn a_new_key_opens_everything_and_the_old_one_nothing() {
    let Some(database) = filled() else { return };
    let url = database.url();
    let sealed = || {
        database.rows("SET ROLE icecore_sweeper; SELECT sealed_key FROM icecore.tenants ORDER BY 1")
    };
    let before = sealed();
    assert_eq!(before.len(), 3);
    let wrong = rotate(url, NEW_KEY, MASTER_KEY).unwrap_err();
    assert!(matches!(wrong, StoreError::WrongMasterKey { .. }), "{wrong}");
    let bad = rotate(url, MASTER_KEY, "0g").unwrap_err();
    assert!(matches!(bad, StoreError::BadMasterKey { .. }), "{bad}");
    assert_eq!(sealed(), before);
    let rotated = rotate(url, MASTER_KEY, NEW_KEY).unwrap();
    assert_eq!((rotated.tenants, rotated.key_file), (3, None));
    assert!(sealed().iter().all(|row| !before.contains(row)));
    is_sealed_with(url, NEW_KEY, MASTER_KEY);
    // And back.
    rotate(url, NEW_KEY, MASTER_KEY).unwrap();
    is_sealed_with(url, MASTER_KEY, NEW_KEY);
}

#[test]
fn a_host_with_the_old_key_keeps_what_it_opened_and_is_told_about_the_rest() {
    let Some(database) = filled() else { return };
    let host = open_with(database.url(), MASTER_KEY).unwrap();
    assert!(wait(host.session(&scope(), &session_name("s"))).unwrap().is_some());
    rotate(database.url(), MASTER_KEY, NEW_KEY).unwrap();
    let more = AppendBatch { secrets_seen: 2, ..batch("s", &say_many(1)) };
    wait(host.append(&scope(), more)).unwrap();
    for name in ["rival", "new"] {
        let refused = wait(host.identity_key(&tenant(name))).err().unwrap();
        assert!(matches!(refused, StoreError::MasterKeyReplaced { .. }), "{refused:?}");
        assert!(refused.to_string().contains("ICECORE_MASTER_KEY"), "{refused}");
        assert!(refused.hint().is_some_and(|hint| hint.contains("ICECORE_MASTER_KEY")));
    }
    let refused = wait(host.append(&scope_of("new", "main"), batch("s", &say_many(1))));
    assert!(matches!(refused, Err(StoreError::MasterKeyReplaced { .. })), "{refused:?}");
    is_sealed_with(database.url(), NEW_KEY, MASTER_KEY);
    let count = "SET ROLE icecore_sweeper; SELECT count(*) FROM icecore.tenants";
    assert_eq!(database.rows(count), [[Some("3".to_owned())]]);
}

#[test]
fn what_ends_inside_the_transaction_changes_nothing() {
    let Some(database) = filled() else { return };
    let store = open_with(database.url(), MASTER_KEY).unwrap();
    let key = |digits| MasterKey::given(digits).unwrap();
    let hang_up = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let cut = store.postgres().unwrap().database.alone(&|tx| {
        assert_eq!(reseal(tx, &key(MASTER_KEY), &key(NEW_KEY))?, 3);
        database.run(hang_up);
        put_note(tx, "after", "the end")
    });
    assert!(matches!(cut, Err(StoreError::Unavailable { .. })), "{cut:?}");
    is_sealed_with(database.url(), MASTER_KEY, NEW_KEY);
    // A key that does not open stops it, and says whose.
    database.run(
        "SET ROLE icecore_sweeper;
         UPDATE icecore.tenants SET sealed_key = '\\x00' WHERE name = 'third'",
    );
    let refused = rotate(database.url(), MASTER_KEY, NEW_KEY).unwrap_err();
    assert!(matches!(&refused, StoreError::Damaged { reason, .. } if reason.contains("third")));
    let store = open_with(database.url(), MASTER_KEY).unwrap();
    assert_eq!(wait(store.secrets(&tenant("acme"))).unwrap().secrets.len(), 1);
}

#[test]
fn a_commit_that_was_cut_off_leaves_one_key_in_force() {
    let Some(server) = own_server() else { return };
    let database = server.fresh_database();
    let store = connect(database.url());
    wait(fill(&store));
    let port = server.port().unwrap();
    let key = |digits| MasterKey::given(digits).unwrap();
    let proxy = Proxy::to(port);
    let far = connect_with(&proxy.url(database.url(), port), impatient()).unwrap();
    let change = || {
        let runs = AtomicU32::new(0);
        let database = &far.postgres().unwrap().database;
        database.alone(&|tx| match runs.fetch_add(1, Ordering::SeqCst) {
            0 => reseal(tx, &key(MASTER_KEY), &key(NEW_KEY)),
            // It is not tried again.
            _ => Err(StoreError::Closed),
        })
    };
    proxy.cut_next(Cut::Before);
    assert!(matches!(change(), Err(StoreError::Closed)) && proxy.was_cut());
    is_sealed_with(database.url(), MASTER_KEY, NEW_KEY);
    proxy.cut_next(Cut::After);
    assert_eq!(change().unwrap(), 3);
    assert!(proxy.was_cut());
    is_sealed_with(database.url(), NEW_KEY, MASTER_KEY);
}

#[test]
fn of_two_rotations_at_once_one_wins() {
    let Some(database) = filled() else { return };
    let url = database.url();
    let other = "03".repeat(32);
    let stores = [NEW_KEY, &other].map(|key| (key, open_with(url, MASTER_KEY).unwrap()));
    let results: Vec<(&str, Result<u64>)> = std::thread::scope(|scope| {
        let rotations: Vec<_> = stores
            .iter()
            .map(|(key, store)| {
                let change = move || {
                    let present = MasterKey::given(MASTER_KEY)?;
                    let next = MasterKey::given(key)?;
                    let database = &store.postgres().unwrap().database;
                    database.alone(&|tx| {
                        let sealed = reseal(tx, &present, &next)?;
                        std::thread::sleep(Duration::from_millis(100));
                        Ok(sealed)
                    })
                };
                scope.spawn(move || (*key, change()))
            })
            .collect();
        rotations.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let won: Vec<&str> = results.iter().filter(|(_, r)| r.is_ok()).map(|(key, _)| *key).collect();
    assert_eq!(won.len(), 1, "{results:?}");
    let lost = results.iter().find_map(|(_, result)| result.as_ref().err()).unwrap();
    assert!(matches!(lost, StoreError::MasterKeyReplaced { .. }), "{lost:?}");
    assert!(lost.hint().is_some_and(|hint| hint.contains("nothing was changed")));
    is_sealed_with(url, won[0], MASTER_KEY);
}

/// Whether somebody waits for an advisory lock.
fn wait_for_a_waiter(database: &TestDatabase) {
    let asked = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while database.rows(asked) == [[Some("0".to_owned())]] {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_tenant_that_is_made_meanwhile_is_sealed_anew_too() {
    let Some(database) = filled() else { return };
    let host = open_with(database.url(), MASTER_KEY).unwrap();
    let rotated = std::thread::scope(|scope| {
        let (begin, begun) = mpsc::channel();
        let url = database.url();
        let rotation = scope.spawn(move || {
            begun.recv().unwrap();
            rotate(url, MASTER_KEY, NEW_KEY)
        });
        write(&host, &of_tenant("late"), |tx| {
            scopes::ensure_tenant(tx, &tenant("late"))?;
            begin.send(()).unwrap();
            wait_for_a_waiter(&database);
            Ok(())
        })
        .unwrap();
        rotation.join().unwrap()
    });
    assert_eq!(rotated.unwrap().tenants, 4);
    is_sealed_with(database.url(), NEW_KEY, MASTER_KEY);
    let store = open_with(database.url(), NEW_KEY).unwrap();
    wait(store.identity_key(&tenant("late"))).unwrap();
}

/// Both a tenant's own transaction and one that sweeps, which has its snapshot from before.
#[test]
fn whoever_waited_for_a_rotation_does_not_seal_with_the_old_key() {
    for wall in [of_tenant("late"), Isolation::Global] {
        let Some(database) = filled() else { return };
        let patient = connect(database.url());
        let rotator = open_with(database.url(), MASTER_KEY).unwrap();
        let tries = AtomicU32::new(0);
        let made = std::thread::scope(|scope| {
            let (begin, begun) = mpsc::channel();
            let late = scope.spawn({
                let (wall, tries, patient) = (&wall, &tries, &patient);
                move || {
                    begun.recv().unwrap();
                    write(patient, wall, |tx| {
                        tries.fetch_add(1, Ordering::SeqCst);
                        scopes::ensure_tenant(tx, &tenant("late"))
                    })
                }
            });
            let present = MasterKey::given(MASTER_KEY).unwrap();
            let next = MasterKey::given(NEW_KEY).unwrap();
            let sealed = rotator.postgres().unwrap().database.alone(&|tx| {
                let sealed = reseal(tx, &present, &next)?;
                begin.send(()).unwrap();
                wait_for_a_waiter(&database);
                Ok(sealed)
            });
            assert_eq!(sealed.unwrap(), 3);
            late.join().unwrap()
        });
        assert!(matches!(made, Err(StoreError::MasterKeyReplaced { .. })), "{wall:?} {made:?}");
        is_sealed_with(database.url(), NEW_KEY, MASTER_KEY);
    }
}

#[test]
fn a_key_in_a_file_is_replaced_there_or_left_whole() {
    let Some(database) = prepared_database() else { return };
    let (url, options) = (database.url(), impatient());
    let dir = tempfile::tempdir().unwrap();
    let rotate = |new| Store::rotate_shared_master_key(url, options, dir.path(), None, new);
    let read = || std::fs::read_to_string(dir.path().join(MASTER_KEY_FILE)).unwrap();
    let next = dir.path().join(MASTER_KEY_NEXT_FILE);
    let open = || Store::connect_from(url, options, dir.path()).unwrap();
    let host = open();
    wait(fill(&host));
    let old = read();
    let rotated = rotate(None).unwrap();
    assert_eq!((rotated.tenants, rotated.key_file), (3, Some(dir.path().join(MASTER_KEY_FILE))));
    assert!(read() != old && !next.exists());
    wait(holds(&open()));
    // A host with that file goes on, also with tenants that are new.
    wait(host.identity_key(&tenant("late"))).unwrap();
    wait(holds(&host));
    rotate(Some(NEW_KEY)).unwrap();
    assert_eq!(read().trim(), NEW_KEY);
    // Killed before anything was sealed with the next one, and after everything was.
    let key = |digits: &str| MasterKey::given(digits).unwrap();
    MasterKey::random().write_next(dir.path()).unwrap();
    wait(holds(&open()));
    assert!(read().trim() == NEW_KEY && !next.exists());
    key(MASTER_KEY).write_next(dir.path()).unwrap();
    let resealed =
        host.postgres().unwrap().database.alone(&|tx| reseal(tx, &key(NEW_KEY), &key(MASTER_KEY)));
    assert_eq!(resealed.unwrap(), 4);
    wait(holds(&open()));
    assert!(read().trim() == MASTER_KEY && !next.exists());
    // A store in SQLite may need the same file.
    std::fs::write(dir.path().join("icecore.db"), "").unwrap();
    let refused = rotate(None).unwrap_err();
    assert!(matches!(refused, StoreError::SharedMasterKey { .. }) && refused.hint().is_some());
    assert_eq!(read().trim(), MASTER_KEY);
}

#[test]
fn a_database_without_a_store_is_left_alone() {
    let Some(database) = fresh_database() else { return };
    let refused = rotate(database.url(), MASTER_KEY, NEW_KEY).unwrap_err();
    assert!(matches!(refused, StoreError::NotAStore { .. }), "{refused}");
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'icecore'";
    assert_eq!(database.rows(schemas), [[Some("0".to_owned())]]);
}
