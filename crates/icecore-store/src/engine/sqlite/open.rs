//! Opening: the directory, the file, its version, its key, and what the
//! database's own errors mean.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior,
};

use crate::bounds::HeldBounds;
use crate::engine;
use crate::engine::column;
use crate::engine::keyring::Keyring;
use crate::engine::notes::KEY_CHECK;
use crate::engine::rotation::settle_next;
use crate::engine::tx::{Context, Tx};
use crate::error::{Result, StoreError};
use crate::files::{link_new, make_dir, write_error};
use crate::keys::{MASTER_KEY_FILE, MASTER_KEY_VARIABLE, MasterKey, Temporary};
use crate::tables::{SCHEMA, SCHEMA_SQL};

/// `ICEC`, so that a stray database is not taken for ours.
const APPLICATION_ID: i64 = 0x4943_4543;

/// What brings a store of version 1 to version 2, and so on. Added, never edited.
const UPGRADES: [&str; SCHEMA as usize - 1] = [
    include_str!("../../../migrations/history/0002_recall.sql"),
    include_str!("../../../migrations/history/0003_secrets.sql"),
    include_str!("../../../migrations/history/0004_keys.sql"),
    include_str!("../../../migrations/history/0005_entries.sql"),
    include_str!("../../../migrations/history/0006_workspace.sql"),
    include_str!("../../../migrations/history/0007_log.sql"),
    include_str!("../../../migrations/history/0008_openwop.sql"),
    include_str!("../../../migrations/history/0009_dreams.sql"),
    include_str!("../../../migrations/history/0010_schedules.sql"),
    include_str!("../../../migrations/history/0011_sessions.sql"),
    include_str!("../../../migrations/history/0012_links.sql"),
    include_str!("../../../migrations/history/0013_leases.sql"),
    include_str!("../../../migrations/history/0014_bounds.sql"),
    include_str!("../../../migrations/history/0015_planner.sql"),
];

pub(crate) const FILE_NAME: &str = "icecore.db";

pub(super) struct Opened {
    pub(super) connection: engine::Connection,
    pub(super) context: Context,
    pub(super) master: MasterKey,
}

/// As [`open`], but makes nothing.
pub(super) fn open_existing(dir: &Path, master_key: Option<&str>) -> Result<Opened> {
    let path = dir.join(FILE_NAME);
    if path.exists() { open(dir, master_key) } else { Err(StoreError::NotAStore { path }) }
}

#[expect(clippy::disallowed_methods, reason = "this is the one door")]
pub(super) fn open(dir: &Path, master_key: Option<&str>) -> Result<Opened> {
    prepare_directory(dir)?;
    let path = dir.join(FILE_NAME);
    create_private(&path)?;
    let connection = Connection::open(&path).map_err(|error| classify_file(error, &path))?;
    let failed = |error| classify_file(error, &path);
    pragmas(&connection).map_err(failed)?;
    let sealed = migrate(&connection, &path)?;
    let origin = match master_key {
        Some(_) => MASTER_KEY_VARIABLE.to_owned(),
        None => format!("`{}`", dir.join(MASTER_KEY_FILE).display()),
    };
    let check = match sealed {
        Some(check) => check,
        // Only a store that has sealed nothing may have a new key made for it.
        None => record_key(&connection, &path, &MasterKey::load(dir, master_key, true)?)?,
    };
    let master = find_key(dir, master_key, &check, &origin)?;
    let context = Context {
        keys: Keyring::new(Some(dir.to_owned()), origin, master.clone()),
        path: path.clone(),
        classify,
        bounds: HeldBounds::default(),
    };
    let connection = engine::Connection::Sqlite(connection);
    let opened = Opened { connection, context, master };
    // It can wait for the next time, and nothing depends on it.
    opened.wait_for_others(Duration::ZERO)?;
    if let Err(error) = settle_next(&opened, dir) {
        tracing::warn!(%error, "the next master key's file was left as it is");
    }
    opened.wait_for_others(Duration::from_secs(super::BUSY_SECONDS))?;
    Ok(opened)
}

#[expect(clippy::expect_used, reason = "nothing outside the process is needed")]
pub(super) fn in_memory(master_key: [u8; 32]) -> Opened {
    let connection = Connection::open_in_memory().expect("SQLite opens without a file");
    let master = MasterKey::from_bytes(master_key);
    let path = Path::new(":memory:");
    let make = || {
        pragmas(&connection)?;
        create_or_upgrade(&connection)
    };
    make().expect("the tables of an empty database");
    record_key(&connection, path, &master).expect("a note in an empty table");
    let context = Context {
        keys: Keyring::new(None, "memory".to_owned(), master.clone()),
        path: path.to_owned(),
        classify,
        bounds: HeldBounds::default(),
    };
    Opened { connection: engine::Connection::Sqlite(connection), context, master }
}

/// The master key that fits a check value.
fn find_key(dir: &Path, given: Option<&str>, check: &[u8], origin: &str) -> Result<MasterKey> {
    let wrong = || StoreError::WrongMasterKey { origin: origin.to_owned() };
    if let Some(digits) = given {
        let key = MasterKey::from_environment(digits)?;
        return if key.matches(check) { Ok(key) } else { Err(wrong()) };
    }
    // A rotation may have ended before the new key was in its place.
    if let Some(key) = MasterKey::in_files(dir, check) {
        return Ok(key);
    }
    let key = MasterKey::load(dir, None, false)?;
    // It may have been put there this moment.
    if key.matches(check) { Ok(key) } else { Err(wrong()) }
}

/// Makes the file, for the owner alone, if it is not there. Side files take their mode from it.
fn create_private(path: &Path) -> Result<()> {
    let failed = |source| write_error("create", path, source);
    if path.exists() {
        return keep_private(path);
    }
    // Not opened under its own name: to close it again would drop the locks of
    // a connection that another thread has opened meanwhile.
    let temporary = Temporary::beside(path);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(&temporary.0).map_err(failed)?;
    link_new(&temporary.0, path)
}

/// Takes rights from others that an earlier version left them, where it is ours.
fn keep_private(path: &Path) -> Result<()> {
    let user = rustix::process::geteuid().as_raw();
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        let Ok(metadata) = std::fs::metadata(&file) else { continue };
        if metadata.uid() == user && metadata.mode() & 0o077 != 0 {
            let mode = Permissions::from_mode(metadata.mode() & 0o700);
            std::fs::set_permissions(&file, mode)
                .map_err(|source| write_error("protect", Path::new(&file), source))?;
        }
    }
    Ok(())
}

pub(super) fn reader(path: &Path) -> Result<engine::Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(Duration::from_secs(super::BUSY_SECONDS))?;
        connection.set_prepared_statement_cache_capacity(64);
        keep_plans(&connection)?;
        connection.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA query_only = ON;")?;
        Ok(engine::Connection::Sqlite(connection))
    };
    open().map_err(|error| classify_file(error, path))
}

/// Without this SQLite plans a statement again whenever a value bound to it might
/// change the plan, which costs more than most of our statements.
fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ())
}

fn pragmas(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(super::BUSY_SECONDS))?;
    connection.set_prepared_statement_cache_capacity(128);
    keep_plans(connection)?;
    // The first must come before anything is written, the second before the third.
    connection.execute_batch(
        "PRAGMA auto_vacuum = INCREMENTAL;
         PRAGMA secure_delete = ON;
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA temp_store = MEMORY;
         PRAGMA cell_size_check = ON;
         PRAGMA wal_autocheckpoint = 4000;
         PRAGMA journal_size_limit = 33554432;",
    )
}

/// Brings the schema up to date under the write lock, and answers the check
/// value of the master key if the store has one.
fn migrate(connection: &Connection, path: &Path) -> Result<Option<Vec<u8>>> {
    let failed = |error| classify_file(error, path);
    let number = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0));
    let version: i64 = number("user_version").map_err(failed)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(failed)?;
    let is_new = version == 0 && tables == 0;
    if !is_new && number("application_id").map_err(failed)? != APPLICATION_ID {
        return Err(StoreError::NotAStore { path: path.to_owned() });
    }
    if version > SCHEMA {
        return Err(StoreError::FromTheFuture { found: version, known: SCHEMA });
    }
    if version < SCHEMA {
        create_or_upgrade(connection).map_err(failed)?;
    }
    read_check(connection, path)
}

fn read_check(connection: &Connection, path: &Path) -> Result<Option<Vec<u8>>> {
    let check: Option<String> = connection
        .query_row("SELECT value FROM notes WHERE name = ?1", [KEY_CHECK], |row| row.get(0))
        .optional()
        .map_err(|error| classify_file(error, path))?;
    let damaged = |_| StoreError::Damaged {
        path: path.to_owned(),
        reason: "the check value of the master key is not hexadecimal".to_owned(),
    };
    check.map(|text| hex::decode(text).map_err(damaged)).transpose()
}

fn create_or_upgrade(connection: &Connection) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    match transaction.query_row("PRAGMA user_version", [], |row| row.get(0))? {
        0 => transaction.execute_batch(SCHEMA_SQL)?,
        version @ 1..SCHEMA => {
            transaction.execute_batch(&UPGRADES[version as usize - 1..].concat())?;
        }
        // Another process was faster.
        _ => return Ok(()),
    }
    transaction.execute_batch(&format!(
        "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA};"
    ))?;
    transaction.commit()
}

/// Writes the key's check value, unless another process was faster, and answers
/// the one that holds.
fn record_key(connection: &Connection, path: &Path, master: &MasterKey) -> Result<Vec<u8>> {
    connection
        .execute(
            "INSERT INTO notes (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            [KEY_CHECK, &hex::encode(master.check_value())],
        )
        .map_err(|error| classify_file(error, path))?;
    Ok(read_check(connection, path)?.unwrap_or_default())
}

fn prepare_directory(dir: &Path) -> Result<()> {
    make_dir(dir)?;
    let metadata = std::fs::metadata(dir);
    let owner = metadata.map_err(|error| write_error("look at", dir, error))?.uid();
    let user = rustix::process::geteuid().as_raw();
    if owner != user {
        return Err(StoreError::ForeignOwner { path: dir.to_owned(), owner, user });
    }
    match network_file_system(dir) {
        Some(kind) => Err(StoreError::NetworkFileSystem { path: dir.to_owned(), kind }),
        None => Ok(()),
    }
}

/// File systems whose locks do not reach other machines reliably.
fn network_file_system(dir: &Path) -> Option<&'static str> {
    #[cfg(target_os = "linux")]
    {
        network_kind(rustix::fs::statfs(dir).ok()?.f_type as u32)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = dir;
        None
    }
}

/// The network file system that a number of statfs(2) stands for.
#[cfg(target_os = "linux")]
fn network_kind(magic: u32) -> Option<&'static str> {
    match magic {
        0x6969 => Some("NFS"),
        0x517b => Some("SMB"),
        0xff53_4d42 => Some("CIFS"),
        0xfe53_4d42 => Some("SMB2"),
        0x0102_1997 => Some("9p"),
        _ => None,
    }
}

pub(super) fn classify(error: engine::Error, path: &Path) -> StoreError {
    match error {
        engine::Error::Sqlite(error) => classify_file(error, path),
        other => StoreError::Database(other),
    }
}

pub(super) fn classify_file(error: rusqlite::Error, path: &Path) -> StoreError {
    let path = path.to_owned();
    let Some(code) = error.sqlite_error_code() else {
        return StoreError::Database(error.into());
    };
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            StoreError::Busy { seconds: super::BUSY_SECONDS }
        }
        ErrorCode::DiskFull => StoreError::DiskFull,
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen => {
            StoreError::ReadOnly { path }
        }
        ErrorCode::DatabaseCorrupt => StoreError::Damaged { path, reason: error.to_string() },
        ErrorCode::NotADatabase => StoreError::NotAStore { path },
        _ => StoreError::Database(error.into()),
    }
}

/// Begins a snapshot, which ends when the answer is dropped.
pub(super) fn snapshot<'c>(
    connection: &'c engine::Connection,
    path: &Path,
) -> Result<Transaction<'c>> {
    let Some(file) = connection.file() else { return Err(StoreError::Closed) };
    file.unchecked_transaction().map_err(|error| classify_file(error, path))
}

pub(crate) fn check_file(tx: &Tx<'_>) -> Result<Vec<String>> {
    let mut findings: Vec<String> = tx.all("PRAGMA integrity_check(20)", [], column)?;
    findings.retain(|line| line != "ok");
    Ok(findings.into_iter().map(|line| format!("the database file: {line}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables of version 1.
    const FIRST: &str = include_str!("../../../migrations/history/0001_ground.sql");

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn files_are_for_the_owner_alone() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("open to all");
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        let files = ["icecore.db", "icecore.db-wal", "icecore.db-shm"].map(|name| dir.join(name));
        let opened = open(&dir, None).unwrap();
        files.iter().for_each(|file| assert_eq!(mode(file), 0o600, "{}", file.display()));
        // As an earlier version made them.
        for file in &files {
            std::fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap();
        }
        let again = open(&dir, None).unwrap();
        files.iter().for_each(|file| assert_eq!(mode(file), 0o600, "{}", file.display()));
        drop((opened, again));
        let names = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["icecore.db", "master.key"]);
    }

    #[test]
    fn an_earlier_store_is_brought_up_to_date() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("icecore.db");
        let scopes = [(1, "notes"), (2, "diary")];
        {
            create_private(&store).unwrap();
            #[expect(clippy::disallowed_methods, reason = "it stands for an earlier version")]
            let earlier = Connection::open(&store).unwrap();
            earlier.execute_batch(FIRST).unwrap();
            earlier
                .execute_batch(&format!(
                    "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1;
                     INSERT INTO tenants (tenant, name, sealed_key) VALUES (1, 'acme', x'00');"
                ))
                .unwrap();
            for (scope, memory) in scopes {
                // Sessions 1 and 2 are of the first scope, 3 and 4 of the second.
                let sessions = [scope * 2 - 1, scope * 2];
                let add = "INSERT INTO scopes (tenant, scope, memory) VALUES (1, ?1, ?2)";
                earlier.execute(add, (scope, memory)).unwrap();
                for session in sessions {
                    earlier
                        .execute_batch(&format!(
                            "INSERT INTO sessions VALUES (1, {session}, {scope}, 's', x'0{session}', 0, 0, 0, 0, 0);
                             INSERT INTO runs VALUES (1, {session}0, {session}, 1, 1, 0);
                             INSERT INTO summaries VALUES (1, {session}, 0, 0, 1, 0, x'00');
                             INSERT INTO summaries VALUES (1, {session}, 0, 0, 3, 0, x'00');
                             INSERT INTO turns VALUES (1, {session}, 1, {session}0, 0, 1, 0, 5, 0, 0, 0, x'00');
                             INSERT INTO turns VALUES (1, {session}, 2, 9{session}, 0, 2, 0, 5, 8, 0, 0, x'00');
                             INSERT INTO bodies VALUES (1, {session}, 1, x'0102');
                             INSERT INTO texts VALUES (1, {session}, 0, 1, 0, 0, x'010203');
                             INSERT INTO packs VALUES (1, {session}, 0, 1, 1, 'p', x'', 100, x'', 0);
                             INSERT INTO entries VALUES (1, {scope}, 'e{session}', x'01', '[\"ö\"]', 0, NULL, 1, NULL);"
                        ))
                        .unwrap();
                }
            }
        }
        let opened = open(dir.path(), None).unwrap();
        let list = |sql: &str| -> Vec<String> { opened.connection.all(sql, [], column).unwrap() };
        assert_eq!(
            list("SELECT first || ' ' || scope FROM runs ORDER BY first"),
            ["10 1", "20 1", "30 2", "40 2"]
        );
        assert_eq!(
            list(
                "SELECT scope || ' ' || number || ' ' || session || ' ' || first FROM summaries ORDER BY 1"
            ),
            [
                "1 1 1 1", "1 2 1 3", "1 3 2 1", "1 4 2 3", "2 1 3 1", "2 2 3 3", "2 3 4 1",
                "2 4 4 3"
            ]
        );
        assert_eq!(list("SELECT scope || ' ' || summaries FROM scopes ORDER BY 1"), ["1 4", "2 4"]);
        // Four turns that are there, with 2, 3 and 100 bytes, and four entries with 1 and 6.
        assert_eq!(list("SELECT kept_turns || ' ' || kept_bytes FROM tenants"), ["4 448"]);
    }

    /// The statements that made a store, without comments and with spaces alike.
    fn schema_of(scripts: &[&str]) -> Vec<(String, String, String)> {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(&scripts.concat()).unwrap();
        let listed = "SELECT type, name, coalesce(sql, '') FROM sqlite_schema ORDER BY type, name";
        let mut query = connection.prepare(listed).unwrap();
        let read = |row: &rusqlite::Row<'_>| {
            let sql: String = row.get(2)?;
            let mut sql = sql.split_whitespace().collect::<Vec<_>>().join(" ");
            for (spaced, close) in [("( ", "("), (" )", ")"), (" ,", ",")] {
                sql = sql.replace(spaced, close);
            }
            Ok((row.get(0)?, row.get(1)?, sql))
        };
        query.query_map([], read).unwrap().collect::<rusqlite::Result<_>>().unwrap()
    }

    #[test]
    fn a_new_store_and_an_upgraded_one_have_the_same_schema() {
        let upgraded = schema_of(&[&[FIRST], UPGRADES.as_slice()].concat());
        assert_eq!(schema_of(&[SCHEMA_SQL]), upgraded);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn network_file_systems_are_refused_and_local_ones_are_not() {
        for (magic, kind) in [(0x6969, "NFS"), (0xfe53_4d42, "SMB2"), (0x0102_1997, "9p")] {
            assert_eq!(network_kind(magic), Some(kind));
        }
        // ext4, btrfs, tmpfs.
        for magic in [0xef53, 0x9123_683e, 0x0102_1994] {
            assert_eq!(network_kind(magic), None, "{magic:x}");
        }
        let refused = StoreError::NetworkFileSystem { path: "/mnt/x".into(), kind: "NFS" };
        assert!(refused.is_refusal() && refused.to_string().contains("/mnt/x"), "{refused}");
    }

    #[tokio::test]
    async fn a_file_that_was_cut_off_is_damage() {
        use crate::contract::fixtures::{add, say_many};
        let dir = tempfile::tempdir().unwrap();
        let store = crate::Store::open(dir.path(), None).unwrap();
        add(&store, "s", &say_many(200)).await;
        store.tidy().await.unwrap();
        drop(store);
        let path = dir.path().join(FILE_NAME);
        let whole = std::fs::read(&path).unwrap();
        for length in [whole.len() / 2, whole.len() / 4, 5_000, 4_096, 100] {
            std::fs::write(&path, &whole[..length]).unwrap();
            let found = match crate::Store::open(dir.path(), None) {
                Ok(store) => store.check().await,
                Err(error) => Err(error),
            };
            match found {
                Ok(findings) => assert!(!findings.is_empty(), "{length}"),
                Err(error) => assert!(error.hint().is_some(), "{length}: {error:?}"),
            }
            assert_eq!(std::fs::read(&path).unwrap(), whole[..length], "{length}: left as it was");
        }
    }

    #[test]
    fn the_first_key_that_is_recorded_holds() {
        let dir = tempfile::tempdir().unwrap();
        let opened = open(dir.path(), None).unwrap();
        let other = MasterKey::random();
        let check =
            record_key(opened.connection.file().unwrap(), &opened.context.path, &other).unwrap();
        assert!(opened.master.matches(&check) && !other.matches(&check));
    }

    #[test]
    fn a_check_value_that_cannot_be_read_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let opened = open(dir.path(), None).unwrap();
        let change = "UPDATE notes SET value = 'no number' WHERE name = ?1";
        opened.connection.run(change, [KEY_CHECK]).unwrap();
        drop(opened);
        assert!(matches!(open(dir.path(), None), Err(StoreError::Damaged { .. })));
    }
}
