//! Backups of random histories, restored elsewhere; and files that are not what they
//! should be.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use icecore_domain::ids::SessionNo;
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::page::Whose;
use super::row;
use super::*;
use crate::contract::fixtures::*;
use crate::engine::tx::Tx;
use crate::engine::{column, params, tuple};
use crate::error::Result;
use crate::histories_tests::{Step, histories, live};
use crate::keys::{MASTER_KEY_FILE, MasterKey};
use crate::store::Store;
use crate::tables::{Owner, TABLES};
use crate::*;

/// Which engine a store has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    Sqlite,
    #[cfg(feature = "postgres")]
    Postgres,
}

/// The engines that this machine has.
fn engines() -> Vec<On> {
    #[cfg(feature = "postgres")]
    if testing::postgres::fresh_database().is_some() {
        return vec![On::Sqlite, On::Postgres];
    }
    vec![On::Sqlite]
}

/// A store with its objects, in a directory of its own.
struct Place {
    dir: tempfile::TempDir,
    store: Store,
    objects: Objects,
    #[cfg(feature = "postgres")]
    _database: Option<testing::postgres::TestDatabase>,
}

impl Place {
    fn new() -> Self {
        Self::on(On::Sqlite)
    }

    fn on(engine: On) -> Self {
        Self::with_key(engine, &hex::encode(keys::random_bytes::<32>()))
    }

    /// One with the master key of another.
    fn like(other: &Place) -> Self {
        Self::like_on(On::Sqlite, other)
    }

    fn like_on(engine: On, other: &Place) -> Self {
        let key = std::fs::read_to_string(other.dir.path().join(MASTER_KEY_FILE)).unwrap();
        Self::with_key(engine, key.trim())
    }

    fn with_key(engine: On, key: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(MASTER_KEY_FILE), key).unwrap();
        let local = |name: &str| Packs::local(&dir.path().join(name)).unwrap();
        let objects = Objects { packs: local("packs"), archives: local("archives").archives() };
        match engine {
            On::Sqlite => {
                let store = Store::open(dir.path(), None).unwrap();
                #[cfg(feature = "postgres")]
                let _database = None;
                Self {
                    dir,
                    store,
                    objects,
                    #[cfg(feature = "postgres")]
                    _database,
                }
            }
            #[cfg(feature = "postgres")]
            On::Postgres => {
                let database = testing::postgres::fresh_database().unwrap();
                let options = PostgresOptions::default();
                let (url, key) = (database.url().to_owned(), key.to_owned());
                // It blocks, which async threads must not.
                let connected =
                    std::thread::spawn(move || Store::connect(&url, options, &key).unwrap());
                let store = connected.join().unwrap();
                Self { dir, store, objects, _database: Some(database) }
            }
        }
    }

    /// One with a history.
    async fn lived(engine: On, plain: usize, steps: &[Step]) -> Self {
        let place = Self::on(On::Sqlite);
        live(&place.store, plain, steps).await;
        place.give_objects().await;
        if engine == On::Sqlite {
            return place;
        }
        let other = Self::like_on(engine, &place);
        place.migrate_to(&other).await.unwrap();
        other
    }

    fn moving(&self) -> Moving {
        Moving { store: self.store.clone(), objects: self.objects.clone() }
    }

    async fn migrate_to(&self, to: &Place) -> Result<MigrationReport> {
        migrate(&self.moving(), &to.moving(), "here", NOW, &quiet()).await
    }

    async fn back_up(&self, of: &BackupOf, name: &str) -> Result<PathBuf> {
        let path = self.dir.path().join(name);
        back_up(&self.store, &self.objects, of, &path, NOW, &quiet()).await.map(|_| path)
    }

    fn keys(&self) -> Vec<MasterKey> {
        MasterKey::at_hand(self.dir.path(), None, None).unwrap()
    }

    async fn restore(&self, path: &Path) -> Result<Restored> {
        self.restore_with(path, self.keys()).await
    }

    async fn restore_with(&self, path: &Path, keys: Vec<MasterKey>) -> Result<Restored> {
        let backup = Backup::open(path, keys, &quiet()).await?;
        restore(&self.store, &self.objects, &backup, NOW, &quiet()).await
    }

    /// Puts what the rows name where they say, for the fixtures only name it.
    async fn give_objects(&self) {
        let named = self.store.write(Isolation::Global, "test", |tx| {
            let mut named = Vec::new();
            for (table, size) in [("packs", "bytes"), ("archives", "stored_bytes")] {
                let names: Vec<String> =
                    tx.all(&format!("SELECT DISTINCT name FROM {table}"), [], column)?;
                let update = format!("UPDATE {table} SET sha256 = ?2, {size} = ?3 WHERE name = ?1");
                for name in names {
                    let body = body_of(&name);
                    let sha256: [u8; 32] = Sha256::digest(&body).into();
                    tx.run(&update, params![name, sha256, body.len() as i64])?;
                    named.push((table == "archives", name));
                }
            }
            let tenants = migrate::tenants(tx)?;
            for whose in tenants {
                restore::count_kept(tx, whose.tenant)?;
            }
            Ok(named)
        });
        for (is_archive, name) in named.await.unwrap() {
            let _ = self.objects.of(is_archive).put(&name, body_of(&name)).await;
        }
    }

    /// Every row of every table as bytes, by table.
    async fn rows(&self, whose: Option<Whose>) -> Vec<(&'static str, Vec<Vec<u8>>)> {
        let dump = self.store.read(Isolation::Global, "test", move |tx| {
            let tenants: Vec<(i64, String)> =
                tx.all("SELECT tenant, name FROM tenants ORDER BY name", [], tuple)?;
            let all =
                tenants.into_iter().map(|(tenant, name)| Whose { tenant, name, memory: None });
            let all: Vec<_> = whose.clone().map_or_else(|| all.collect(), |one| vec![one]);
            let mut dumped = Vec::new();
            for table in TABLES.iter().filter(|table| table.owner != Owner::Everyone) {
                let mut rows = Vec::new();
                for whose in &all {
                    whose.each_page(tx, table, |page| {
                        rows.extend(page.iter().map(|values| {
                            let mut bytes = Vec::new();
                            row::encode(&plain(table, values.clone()), &mut bytes);
                            bytes
                        }));
                        Ok(())
                    })?;
                }
                dumped.push((table.name, rows));
            }
            Ok(dumped)
        });
        dump.await.unwrap()
    }

    /// How many objects there are, each with its own body.
    async fn bodies(&self) -> usize {
        let mut count = 0;
        for packs in [&self.objects.packs, &self.objects.archives] {
            for object in packs.list().await.unwrap() {
                let sha256: [u8; 32] = Sha256::digest(body_of(&object.name)).into();
                packs.get_lying(&object.name, &sha256).await.unwrap();
                count += 1;
            }
        }
        count
    }

    async fn execute(&self, sql: &'static str) {
        let run = move |tx: &Tx<'_>| tx.run(sql, []);
        self.store.write(Isolation::Global, "test", run).await.unwrap();
    }

    fn files(&self) -> usize {
        self.dir.path().read_dir().unwrap().count()
    }
}

/// A row without what differs by the restore itself.
fn plain(table: &Table, mut values: Vec<Owned>) -> Vec<Owned> {
    let mut blank = |column: &str| {
        if let Some(at) = table.at(column) {
            values[at] = Owned::Integer(0);
        }
    };
    if table.name == "tenants" {
        blank("position");
    }
    values
}

fn body_of(name: &str) -> Bytes {
    // Some are more than a block.
    let times = if name.ends_with('1') { 300_000 } else { 3 };
    Bytes::from(format!("body of {name}").repeat(times))
}

fn quiet() -> Tell {
    Arc::new(|_| true)
}

/// The same, but that a restore is in the log.
fn assert_restored(
    is: Vec<(&'static str, Vec<Vec<u8>>)>,
    was: Vec<(&'static str, Vec<Vec<u8>>)>,
    tenants: usize,
) {
    for ((table, mut is), (_, was)) in is.into_iter().zip(was) {
        if table == "log" {
            let before = is.len();
            is.retain(|row| !String::from_utf8_lossy(row).contains("memory.restored"));
            assert_eq!(before - is.len(), tenants);
        }
        assert_eq!(is, was, "{table}");
    }
}

async fn check_everything(from: On, to: On, plain: usize, steps: &[Step]) {
    let place = Place::lived(from, plain, steps).await;
    let path = place.back_up(&BackupOf::Everything, "all").await.unwrap();
    let other = Place::like_on(to, &place);
    let restored = other.restore(&path).await.unwrap();
    let tenants = place.store.tenants().await.unwrap();
    assert_eq!(restored.backup.tenants.len(), tenants.len());
    assert_restored(other.rows(None).await, place.rows(None).await, tenants.len());
    clean(&other.store).await;
    assert_eq!(other.bodies().await as u64, restored.backup.objects);
    // It is in the way of itself.
    let refused = other.restore(&path).await.unwrap_err();
    assert!(matches!(&refused, StoreError::NotEmpty { .. }), "{refused}");
}

/// Each memory by itself, into stores of their own and all into one.
async fn check_memories(from: On, to: On, plain: usize, steps: &[Step]) {
    let place = Place::lived(from, plain, steps).await;
    let together = Place::like_on(to, &place);
    for tenant in place.store.tenants().await.unwrap() {
        for scope in place.store.scopes(&tenant).await.unwrap() {
            let name = format!("{tenant} {}", scope.memory());
            let path = place.back_up(&BackupOf::Memory(scope.clone()), &name).await.unwrap();
            let alone = Place::like_on(to, &place);
            for target in [&alone, &together] {
                let restored = target.restore(&path).await.unwrap();
                assert_eq!(restored.scopes, std::slice::from_ref(&scope));
                clean(&target.store).await;
            }
            let seen = place.store.sessions(&scope, None, 99).await.unwrap();
            assert_eq!(alone.store.sessions(&scope, None, 99).await.unwrap(), seen);
        }
    }
    // What is tenants' alone does not come with their memories.
    let own = ["secrets", "files", "outcomes", "workflow_runs", "run_events", "api_keys"];
    let (is, was) = (together.rows(None).await, place.rows(None).await);
    for ((table, is), (_, was)) in is.into_iter().zip(was) {
        match table {
            _ if own.contains(&table) => assert!(is.is_empty(), "{table}"),
            // Counters of tenants, what is nobody's, and what was unsettled.
            "tenants" | "log" => {}
            _ => assert_eq!(is, was, "{table}"),
        }
    }
}

/// All of it, to an empty store, from whatever engine to whatever other.
async fn check_migration(from: On, to: On, plain: usize, steps: &[Step]) {
    let place = Place::lived(from, plain, steps).await;
    let before = place.rows(None).await;
    // Sealed with another key there.
    let other = Place::on(to);
    let report = place.migrate_to(&other).await.unwrap();
    assert_eq!(report.rounds, 1);
    assert!(!report.was_resumed);
    assert_eq!(without_keys(other.rows(None).await), without_keys(before.clone()));
    assert_eq!(place.rows(None).await, before);
    assert_eq!(other.bodies().await as u64, report.objects);
    clean(&other.store).await;
    for tenant in place.store.tenants().await.unwrap() {
        let secrets = async |place: &Place| {
            let found = place.store.secrets(&tenant).await.unwrap().secrets;
            found.iter().map(|secret| secret.value().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(secrets(&other).await, secrets(&place).await);
    }
}

/// Rows without tenants, whose keys are sealed anew.
fn without_keys(mut rows: Vec<(&'static str, Vec<Vec<u8>>)>) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    rows.retain(|(table, _)| *table != "tenants");
    rows
}

/// Tries it on every pair of engines, less often where a server takes part.
fn on_all_engines<F: Future<Output = ()>>(check: impl Fn(On, On, usize, Vec<Step>) -> F) {
    let engines = engines();
    for from in &engines {
        for to in &engines {
            let is_local = *from == On::Sqlite && *to == On::Sqlite;
            let config = ProptestConfig {
                cases: if is_local { 16 } else { 2 },
                max_shrink_iters: if is_local { 60 } else { 0 },
                failure_persistence: None,
                ..ProptestConfig::default()
            };
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            let mut runner = proptest::test_runner::TestRunner::new(config);
            let ran = runner.run(&histories(), |(plain, steps)| {
                runtime.block_on(check(*from, *to, plain, steps));
                Ok(())
            });
            ran.unwrap();
        }
    }
}

#[test]
fn what_was_backed_up_comes_back() {
    on_all_engines(async |from, to, plain, steps| check_everything(from, to, plain, &steps).await);
}

#[test]
fn memories_come_back_one_by_one() {
    on_all_engines(async |from, to, plain, steps| check_memories(from, to, plain, &steps).await);
}

#[test]
fn a_store_goes_over_to_another() {
    on_all_engines(async |from, to, plain, steps| check_migration(from, to, plain, &steps).await);
}

async fn add_to(store: &Store, scope: &Scope, session: &str, turns: &[Say]) -> SessionNo {
    let secrets_seen = store.secrets_version(scope.tenant()).await.unwrap();
    let batch = AppendBatch { secrets_seen, ..batch(session, turns) };
    store.append(scope, batch).await.unwrap().session
}

/// A store with two memories, a pack and a secret.
async fn filled() -> Place {
    let place = Place::new();
    let session = add(&place.store, "s", &say_many(9)).await;
    warm(&place.store, session, 8).await;
    cool(&place.store, session, ColdBody::Pack(new_pack("p1"))).await;
    let put = secret("db", "q8Zk2Lm9Xw");
    place.store.put_secret(&tenant("acme"), put, false, NOW).await.unwrap();
    add_to(&place.store, &scope_of("acme", "diary"), "t", &say_many(3)).await;
    add_to(&place.store, &scope_of("rival", "notes"), "s", &say_many(2)).await;
    place.give_objects().await;
    place
}

#[tokio::test]
async fn a_tenant_finds_its_place_beside_others() {
    let place = filled().await;
    let acme = place.back_up(&BackupOf::Tenant(tenant("acme")), "acme").await.unwrap();
    let rival = place.back_up(&BackupOf::Tenant(tenant("rival")), "rival").await.unwrap();
    let other = Place::like(&place);
    // The numbers are others', and the tenant is known by name already.
    add_to(&other.store, &scope_of("first", "notes"), "s", &say_many(4)).await;
    other.store.identity_key(&tenant("rival")).await.unwrap();
    for path in [&rival, &acme] {
        other.restore(path).await.unwrap();
    }
    clean(&other.store).await;
    assert_eq!(other.store.secrets(&tenant("acme")).await.unwrap().secrets.len(), 1);
    let key = async |place: &Place| format!("{:?}", place.store.packs(None).await.unwrap());
    assert_eq!(key(&other).await, key(&place).await);
    let turns = async |place: &Place, scope: &Scope| {
        let query = TurnQuery::all(SessionNo(1), 99);
        place.store.turns(scope, &query).await.unwrap()
    };
    for scope in [scope(), scope_of("rival", "notes")] {
        assert_eq!(turns(&other, &scope).await, turns(&place, &scope).await);
    }
    // Turns go on from there.
    let more = add_to(&other.store, &scope(), "s", &say_many(12)).await;
    assert_eq!(more, SessionNo(1));
    clean(&other.store).await;
}

#[tokio::test]
async fn what_is_there_is_not_overwritten() {
    let place = filled().await;
    let notes = place.back_up(&BackupOf::Memory(scope()), "notes").await.unwrap();
    let acme = place.back_up(&BackupOf::Tenant(tenant("acme")), "acme").await.unwrap();
    let check = async |other: &Place, path: &Path, expected: &str| {
        let before = other.rows(None).await;
        let refused = other.restore(path).await.unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
        assert!(refused.hint().is_some() && refused.is_refusal());
        assert_eq!(other.rows(None).await, before);
        assert!(other.objects.packs.list().await.unwrap().len() <= 1);
    };
    check(&place, &acme, "tenant `acme` is not empty").await;
    check(&place, &notes, "memory `notes` of tenant `acme` is not empty").await;
    // A tenant of that name with a key of its own.
    let other = Place::like(&place);
    add_to(&other.store, &scope_of("acme", "other"), "s", &say_many(2)).await;
    check(&other, &notes, "tenant `acme` has another key").await;
    // The same tenant has gone on here and elsewhere.
    let diary = place.back_up(&BackupOf::Memory(scope_of("acme", "diary")), "diary").await.unwrap();
    let third = Place::like(&place);
    third.restore(&diary).await.unwrap();
    add_to(&place.store, &scope(), "s", &[say("and then")]).await;
    let later = place.back_up(&BackupOf::Memory(scope()), "later").await.unwrap();
    check(&third, &later, "has used positions").await;
    add_to(&third.store, &scope_of("acme", "diary"), "u", &say_many(1)).await;
    add_to(&place.store, &scope(), "v", &say_many(1)).await;
    let last = place.back_up(&BackupOf::Memory(scope()), "last").await.unwrap();
    check(&third, &last, "rows of `sessions`").await;
    // What went on in one place alone is no matter.
    third.restore(&notes).await.unwrap();
    clean(&third.store).await;
}

#[tokio::test]
async fn what_was_looked_through_for_secrets_is_not_taken_for_granted() {
    let place = filled().await;
    for (name, value) in [("rescanned acme", "2"), ("rescanned rival", "1"), ("objects-of", "x")] {
        place.store.put_note(name, value).await.unwrap();
    }
    let notes = async |place: &Place| {
        let mut found = Vec::new();
        for name in ["rescanned acme", "rescanned rival", "objects-of"] {
            found.extend(place.store.note(name).await.unwrap());
        }
        found
    };
    let acme = place.back_up(&BackupOf::Tenant(tenant("acme")), "acme").await.unwrap();
    let diary = place.back_up(&BackupOf::Memory(scope_of("acme", "diary")), "diary").await.unwrap();
    let rows = place.back_up(&BackupOf::Memory(scope()), "notes").await.unwrap();
    let other = Place::like(&place);
    other.store.put_note("rescanned acme", "9").await.unwrap();
    other.restore(&acme).await.unwrap();
    assert_eq!(notes(&other).await, ["2"]);
    // A memory may hold what its tenant has hidden since.
    let third = Place::like(&place);
    third.restore(&diary).await.unwrap();
    third.store.put_note("rescanned acme", "2").await.unwrap();
    let version = third.store.secrets_version(&tenant("acme")).await.unwrap();
    third.restore(&rows).await.unwrap();
    assert!(notes(&third).await.is_empty());
    assert_eq!(third.store.secrets_version(&tenant("acme")).await.unwrap(), version + 1);
    let fourth = Place::new();
    place.migrate_to(&fourth).await.unwrap();
    assert_eq!(notes(&fourth).await, ["2", "1"]);
}

#[tokio::test]
async fn another_master_key_is_told_and_seals_anew() {
    let place = filled().await;
    let path = place.back_up(&BackupOf::Everything, "all").await.unwrap();
    let other = Place::new();
    let refused = other.restore(&path).await.unwrap_err();
    assert!(matches!(&refused, StoreError::WrongBackupKey { .. }), "{refused}");
    assert!(other.store.tenants().await.unwrap().is_empty());
    let file = place.dir.path().join(MASTER_KEY_FILE);
    let keys = MasterKey::at_hand(other.dir.path(), None, Some(&file)).unwrap();
    other.restore_with(&path, keys).await.unwrap();
    clean(&other.store).await;
    assert_eq!(other.store.secrets(&tenant("acme")).await.unwrap().secrets.len(), 1);
    // Neither key is in the file.
    let bytes = std::fs::read(&path).unwrap();
    for dir in [&place.dir, &other.dir] {
        let key = std::fs::read_to_string(dir.path().join(MASTER_KEY_FILE)).unwrap();
        let raw = hex::decode(key.trim()).unwrap();
        assert!(!bytes.windows(32).any(|window| window == raw));
        assert!(!bytes.windows(64).any(|window| window == key.trim().as_bytes()));
    }
}

#[tokio::test]
async fn a_file_that_was_changed_or_cut_is_refused() {
    let place = filled().await;
    // Small, so that every byte is tried.
    place.execute("DELETE FROM packs").await;
    let path = place.back_up(&BackupOf::Tenant(tenant("rival")), "rival").await.unwrap();
    let whole = std::fs::read(&path).unwrap();
    let bad = place.dir.path().join("bad");
    let check = async |bytes: &[u8], what: &str| {
        std::fs::write(&bad, bytes).unwrap();
        let opened = Backup::open(&bad, place.keys(), &quiet()).await;
        let refused = opened.err().unwrap_or_else(|| panic!("{what} was not noticed"));
        assert!(refused.is_refusal(), "{what}: {refused}");
    };
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1 << (at % 8);
        check(&changed, &format!("a change at {at}")).await;
    }
    for length in (0..whole.len()).step_by(7) {
        check(&whole[..length], &format!("a cut at {length}")).await;
    }
    check(&[whole.as_slice(), b"\n"].concat(), "what follows").await;
    check(&[&whole[..], &whole[..]].concat(), "itself again").await;
    check(b"This is a shopping list.\n".repeat(99).as_slice(), "a list").await;
    assert!(Backup::open(&path, place.keys(), &quiet()).await.is_ok());
}

#[tokio::test]
async fn a_block_that_was_taken_out_is_noticed_by_its_seal() {
    let place = filled().await;
    let path = place.back_up(&BackupOf::Everything, "all").await.unwrap();
    let whole = std::fs::read(&path).unwrap();
    // Sealed by another, with the checksums that fit.
    let forged = file::forged(&whole, &MasterKey::random());
    let bad = place.dir.path().join("bad");
    std::fs::write(&bad, &forged).unwrap();
    let refused = Backup::open(&bad, place.keys(), &quiet()).await.err().unwrap();
    assert!(refused.to_string().contains("seal"), "{refused}");
}

#[tokio::test]
async fn a_file_that_lacks_columns_is_read() {
    let place = filled().await;
    let (path, of) = (place.dir.path().join("old"), BackupOf::Everything);
    let header = move |tx: &Tx<'_>| backup::header(tx, &of, NOW);
    let mut header = place.store.read(Isolation::Global, "test", header).await.unwrap();
    let whole = tables::table("packs").unwrap();
    let columns = whole.columns.iter().copied().filter(|c| whole.key.contains(&c.name)).collect();
    let packs = Table { columns, ..whole.clone() };
    let names = packs.column_names().into_iter().map(str::to_owned).collect();
    header.tables.insert("packs".to_owned(), names);
    let mut writer = file::Writer::create(&path, &header).unwrap();
    writer.row(&packs, &vec![Owned::Integer(1); packs.columns.len()]).unwrap();
    writer.end_rows(&packs).unwrap();
    writer.finish(&place.keys()[0]).unwrap();
    let report = Backup::open(&path, place.keys(), &quiet()).await.unwrap().report();
    assert_eq!((report.rows_of("packs"), report.objects), (1, 0));
}

#[tokio::test]
async fn an_object_that_goes_meanwhile_has_the_snapshot_taken_anew() {
    let place = filled().await;
    let path = place.dir.path().join("all");
    let packs = place.dir.path().join("packs");
    let dir = place.dir.path().to_owned();
    let taken = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    // As an erasure would, when the rows of the first snapshot have been read.
    let tell: Tell = Arc::new(move |moved| {
        if moved.doing == Doing::Rows
            && moved.done == moved.total
            && count.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0
        {
            let run = |sql: &str| {
                #[expect(clippy::disallowed_methods, reason = "another process does it")]
                let db = rusqlite::Connection::open(dir.join("icecore.db")).unwrap();
                db.execute_batch(sql).unwrap();
            };
            run("DELETE FROM packs");
            std::fs::remove_dir_all(&packs).unwrap();
            std::fs::create_dir(&packs).unwrap();
        }
        true
    });
    let report = back_up(&place.store, &place.objects, &BackupOf::Everything, &path, NOW, &tell);
    let report = report.await.unwrap();
    assert_eq!((report.objects, report.rows_of("packs")), (0, 0));
    assert!(taken.load(std::sync::atomic::Ordering::SeqCst) >= 2);
    assert!(Backup::open(&path, place.keys(), &quiet()).await.is_ok());
}

#[tokio::test]
async fn an_object_that_is_not_there_is_told_and_nothing_is_left() {
    let place = filled().await;
    let files = place.files();
    place.objects.packs.delete("p1").await.unwrap();
    let error = place.back_up(&BackupOf::Everything, "all").await.unwrap_err();
    assert!(matches!(&error, StoreError::PackMissing { name } if name == "p1"), "{error}");
    place.objects.packs.put("p1", Bytes::from_static(b"other")).await.unwrap();
    let error = place.back_up(&BackupOf::Everything, "all").await.unwrap_err();
    assert!(matches!(&error, StoreError::PackDamaged { .. }), "{error}");
    assert_eq!(place.files(), files);
}

#[tokio::test]
async fn what_is_interrupted_leaves_nothing() {
    let place = filled().await;
    let (path, files) = (place.dir.path().join("all"), place.files());
    for doing in [Doing::Rows, Doing::Objects] {
        let tell: Tell = Arc::new(move |moved| moved.doing != doing);
        let of = BackupOf::Everything;
        let cut = back_up(&place.store, &place.objects, &of, &path, NOW, &tell).await;
        assert!(matches!(cut, Err(StoreError::Interrupted)));
        assert_eq!(place.files(), files);
    }
    let path = place.back_up(&BackupOf::Everything, "all").await.unwrap();
    let other = Place::like(&place);
    let backup = Backup::open(&path, place.keys(), &quiet()).await.unwrap();
    let tell: Tell = Arc::new(|moved| moved.done < moved.total);
    let cut = restore(&other.store, &other.objects, &backup, NOW, &tell).await;
    assert!(matches!(cut, Err(StoreError::Interrupted)));
    assert!(other.store.tenants().await.unwrap().is_empty());
    other.restore(&path).await.unwrap();
}

#[tokio::test]
async fn a_backup_takes_no_files_place() {
    let place = filled().await;
    let path = place.dir.path().join("mine");
    std::fs::write(&path, "mine").unwrap();
    let refused = place.back_up(&BackupOf::Everything, "mine").await.unwrap_err();
    assert!(matches!(&refused, StoreError::BackupExists { .. }), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    let nobody = place.back_up(&BackupOf::Tenant(tenant("nobody")), "n").await.unwrap_err();
    assert_eq!(nobody.to_string(), "there is no tenant `nobody` in this store");
    let nothing = BackupOf::Memory(scope_of("acme", "nothing"));
    let nothing = place.back_up(&nothing, "n").await.unwrap_err();
    assert_eq!(nothing.to_string(), "there is no memory `nothing` in this store");
}

// Migrations that do not go straight

/// Fails the migration after so many steps of it, as a kill would.
fn until(steps: usize) -> Tell {
    let left = std::sync::atomic::AtomicUsize::new(steps);
    Arc::new(move |_| {
        if left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) == 0 {
            std::panic::resume_unwind(Box::new("killed"));
        }
        true
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_was_cut_off_goes_on() {
    let place = filled().await;
    for steps in [0, 3, 9, 14, 20, 26, 30, 40] {
        let other = Place::new();
        let (from, to) = (place.moving(), other.moving());
        let cut =
            tokio::spawn(async move { migrate(&from, &to, "here", NOW, &until(steps)).await });
        let was_cut = !matches!(cut.await, Ok(Ok(_)));
        if was_cut {
            let note = other.store.note(MOVING).await.unwrap().unwrap();
            assert_eq!(half_moved_from(&note), "here");
        }
        // What was begun may have changed since.
        if steps % 2 == 0 {
            add_to(&place.store, &scope(), "s", &[say(&format!("at {steps}"))]).await;
        }
        if !was_cut {
            continue;
        }
        // Nobody else goes on with it.
        let elsewhere = migrate(&place.moving(), &other.moving(), "there", NOW, &quiet()).await;
        assert!(matches!(elsewhere, Err(StoreError::OtherMigration { from }) if from == "here"));
        let report = place.migrate_to(&other).await.unwrap();
        assert!(report.was_resumed);
        assert_eq!(other.store.note(MOVING).await.unwrap(), None);
        let (is, was) = (other.rows(None).await, place.rows(None).await);
        assert_eq!(without_keys(is), without_keys(was));
        clean(&other.store).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_changes_meanwhile_is_caught_up_with() {
    let place = Arc::new(filled().await);
    let other = Place::new();
    let times = Arc::new(std::sync::atomic::AtomicUsize::new(1));
    let writing = {
        let (place, times) = (Arc::clone(&place), Arc::clone(&times));
        let handle = tokio::runtime::Handle::current();
        // When the rows of a snapshot have been read.
        Arc::new(move |moved: Moved| {
            let is_last = moved.doing == Doing::Rows && moved.done == moved.total;
            let once = |left: usize| left.checked_sub(1);
            let order = std::sync::atomic::Ordering::SeqCst;
            if is_last && times.fetch_update(order, order, once).is_ok() {
                let turns = [say("meanwhile")];
                handle.block_on(add_to(&place.store, &scope(), "s", &turns));
            }
            true
        })
    };
    let tell: Tell = writing.clone();
    let report = migrate(&place.moving(), &other.moving(), "here", NOW, &tell).await.unwrap();
    assert_eq!(report.rounds, 2);
    let (is, was) = (other.rows(None).await, place.rows(None).await);
    assert_eq!(without_keys(is), without_keys(was));
    // One that never rests is not waited for.
    times.store(99, std::sync::atomic::Ordering::SeqCst);
    let third = Place::new();
    let restless = migrate(&place.moving(), &third.moving(), "here", NOW, &tell).await.unwrap_err();
    assert!(matches!(&restless, StoreError::StillChanging { times: 3 }), "{restless}");
    assert!(restless.is_refusal());
    assert!(third.store.note(MOVING).await.unwrap().is_some());
    place.migrate_to(&third).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_has_something_is_left_alone() {
    let place = filled().await;
    let other = Place::new();
    add_to(&other.store, &scope_of("mine", "notes"), "s", &say_many(2)).await;
    let before = other.rows(None).await;
    let refused = place.migrate_to(&other).await.unwrap_err();
    assert_eq!(refused.to_string(), "the target is not empty");
    assert_eq!(other.rows(None).await, before);
    assert_eq!(other.store.note(MOVING).await.unwrap(), None);
    // Names alone are nothing.
    let named = Place::new();
    named.store.identity_key(&tenant("acme")).await.unwrap();
    place.migrate_to(&named).await.unwrap();
    clean(&named.store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_that_fill_one_store_the_later_does() {
    let place = Arc::new(filled().await);
    let other = Arc::new(Place::new());
    let (from, to) = (place.moving(), other.moving());
    let handle = tokio::runtime::Handle::current();
    let begun = std::sync::atomic::AtomicBool::new(false);
    let (second, third) = (Arc::clone(&place), Arc::clone(&other));
    let tell: Tell = Arc::new(move |moved| {
        let is_mid = moved.doing == Doing::Rows && moved.done > 3;
        if is_mid && !begun.swap(true, std::sync::atomic::Ordering::SeqCst) {
            handle.block_on(second.migrate_to(&third)).unwrap();
        }
        true
    });
    let overtaken = migrate(&from, &to, "here", NOW, &tell).await.unwrap_err();
    assert!(matches!(&overtaken, StoreError::TakenOver), "{overtaken}");
    clean(&other.store).await;
    let (is, was) = (other.rows(None).await, place.rows(None).await);
    assert_eq!(without_keys(is), without_keys(was));
}
