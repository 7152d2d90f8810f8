//! The tables are those of SQLite, and are made once.

use std::collections::BTreeMap;

use super::*;
use crate::contract::fixtures::{batch, clean, say_many};
use crate::store::Store;

/// Tables that only PostgreSQL needs.
const OURS: [&str; 2] = ["commits", "migrations"];

/// Columns by table: name, kind, whether it may be empty, place in the primary key.
type Tables = BTreeMap<String, Vec<(String, String, bool, i64)>>;

/// A new store as SQLite has it. What is open outlasts its directory.
fn sqlite_file() -> rusqlite::Connection {
    let dir = tempfile::tempdir().unwrap();
    drop(crate::Store::open(dir.path(), None).unwrap());
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let file = rusqlite::Connection::open_with_flags(dir.path().join("icecore.db"), flags).unwrap();
    // The file is opened when it is first read.
    file.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).unwrap();
    file
}

fn of_sqlite() -> Tables {
    let file = sqlite_file();
    let mut tables = Tables::new();
    let mut query = file
        .prepare(
            "SELECT m.name, p.name, p.type, p.\"notnull\" OR p.pk > 0, p.pk
             FROM sqlite_schema m JOIN pragma_table_info(m.name) p
             WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' ORDER BY m.name, p.cid",
        )
        .unwrap();
    let mut rows = query.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let kind: String = row.get(2).unwrap();
        let column =
            (row.get(1).unwrap(), kind, !row.get::<_, bool>(3).unwrap(), row.get(4).unwrap());
        tables.entry(row.get(0).unwrap()).or_default().push(column);
    }
    tables
}

fn of_postgres(database: &TestDatabase) -> Tables {
    let mut tables = Tables::new();
    let rows = database.rows(
        "SELECT c.relname, a.attname, format_type(a.atttypid, NULL), NOT a.attnotnull,
                coalesce(array_position(i.indkey::int2[], a.attnum) + 1, 0)
         FROM pg_class c
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
         JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
         WHERE c.relnamespace = 'icecore'::regnamespace AND c.relkind = 'r'
         ORDER BY c.relname, a.attnum",
    );
    for row in rows {
        let cell = |at: usize| row[at].clone().unwrap();
        let kind = match cell(2).as_str() {
            "bigint" => "INTEGER".to_owned(),
            "text" => "TEXT".to_owned(),
            "bytea" => "BLOB".to_owned(),
            other => other.to_owned(),
        };
        let column = (cell(1), kind, cell(3) == "t", cell(4).parse().unwrap());
        tables.entry(cell(0)).or_default().push(column);
    }
    tables
}

#[test]
fn tables_and_columns_are_those_of_sqlite() {
    let Some((_store, database)) = fresh_store() else { return };
    let mut found = of_postgres(&database);
    assert!(OURS.iter().all(|table| found.remove(*table).is_some()));
    let expected = of_sqlite();
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (table, columns) in &expected {
        assert_eq!(found[table], *columns, "{table}");
    }
}

/// But for those that are read across tenants.
#[test]
fn the_tenant_leads_every_key_and_index() {
    let Some((_store, database)) = fresh_store() else { return };
    let others = database.rows(
        "SELECT x.relname FROM pg_index i
         JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_class c ON c.oid = i.indrelid
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
         WHERE c.relnamespace = 'icecore'::regnamespace AND a.attname <> 'tenant'
           AND EXISTS (SELECT FROM pg_attribute t WHERE t.attrelid = c.oid AND t.attname = 'tenant')
         ORDER BY 1",
    );
    let others: Vec<String> = others.into_iter().flatten().flatten().collect();
    assert_eq!(
        others,
        [
            "api_keys_id_key", "api_keys_pkey", "commitments_due", "commitments_settled",
            "entries_ended", "entries_expiring", "schedules_due", "schedules_handled",
            "schedules_over", "tenants_name_key", "ticks_ended", "ticks_running",
            "workflow_runs_ended", "workflow_runs_expired",
        ]
    );
    let foreign = database.rows(
        "SELECT o.conname FROM pg_constraint o
         JOIN pg_attribute a ON a.attrelid = o.conrelid AND a.attnum = o.conkey[1]
         JOIN pg_attribute b ON b.attrelid = o.confrelid AND b.attnum = o.confkey[1]
         WHERE o.contype = 'f' AND NOT (a.attname = 'tenant' AND b.attname = 'tenant')",
    );
    assert!(foreign.is_empty(), "{foreign:?}");
    let sequences = database.rows("SELECT relname FROM pg_class WHERE relkind = 'S'");
    assert!(sequences.is_empty(), "{sequences:?}");
    let extensions = database.rows("SELECT extname FROM pg_extension WHERE extname <> 'plpgsql'");
    assert!(extensions.is_empty(), "{extensions:?}");
}

#[test]
fn hosts_that_start_at_once_migrate_once() {
    let Some(database) = fresh_database() else { return };
    let stores: Vec<Store> = std::thread::scope(|scope| {
        let hosts: Vec<_> = (0..8).map(|_| scope.spawn(|| connect(database.url()))).collect();
        hosts.into_iter().map(|host| host.join().unwrap()).collect()
    });
    assert_eq!(stores.len(), 8);
    let versions = database.rows("SELECT version FROM icecore.migrations ORDER BY version");
    let known = sqlite_file().query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0));
    assert_eq!(versions.last().unwrap()[0], Some(known.unwrap().to_string()));
    let first = database.rows("SELECT applied_at FROM icecore.migrations ORDER BY version");
    drop(connect(database.url()));
    let again = database.rows("SELECT applied_at FROM icecore.migrations ORDER BY version");
    assert_eq!(first, again);
}

/// All databases of a server share its roles.
#[test]
fn databases_of_one_server_are_made_at_once() {
    let Some(server) = crate::testing::postgres::own_server() else { return };
    let databases: Vec<TestDatabase> = (0..4).map(|_| server.fresh_database()).collect();
    std::thread::scope(|scope| {
        for database in &databases {
            scope.spawn(|| connect(database.url()));
        }
    });
}

#[test]
fn a_store_from_the_future_is_left_alone() {
    let Some((store, database)) = fresh_store() else { return };
    drop(store);
    database.run("INSERT INTO icecore.migrations (version) VALUES (1000)");
    let error = connect_with(database.url(), PostgresOptions::default()).err().unwrap();
    assert!(matches!(error, StoreError::FromTheFuture { found: 1000, .. }), "{error}");
}

#[test]
fn another_schema_is_another_store() {
    let Some((store, database)) = fresh_store() else { return };
    let other = connect(&format!("{}?schema=second%20one", database.url()));
    write(&store, &Isolation::Global, |tx| put_note(tx, "where", "first")).unwrap();
    assert_eq!((count_notes(&store, "where"), count_notes(&other, "where")), (1, 0));
}

#[test]
fn all_hosts_have_one_master_key() {
    let Some((_store, database)) = fresh_store() else { return };
    let connect = |key| Store::connect(database.url(), PostgresOptions::default(), key);
    let other = "02".repeat(32);
    let error = connect(other.as_str()).err().unwrap();
    assert!(matches!(error, StoreError::WrongMasterKey { .. }), "{error}");
    assert!(connect(MASTER_KEY).is_ok());
    let (dir, options) = (tempfile::tempdir().unwrap(), PostgresOptions::default());
    let error = Store::connect_from(database.url(), options, dir.path()).err().unwrap();
    assert!(matches!(error, StoreError::MasterKeyNeeded { .. }) && error.hint().is_some());
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "no key of no use is left");
    std::fs::write(dir.path().join("master.key"), MASTER_KEY).unwrap();
    assert!(Store::connect_from(database.url(), options, dir.path()).is_ok());
}

#[test]
fn the_first_host_makes_the_master_key() {
    let Some(database) = fresh_database() else { return };
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let options = PostgresOptions::default();
        assert!(Store::connect_from(database.url(), options, dir.path()).is_ok());
    }
}

/// Every text comes back, also inside of JSON and in order.
#[test]
fn text_that_postgres_cannot_hold_is_kept() {
    let Some((store, _database)) = fresh_store() else { return };
    let texts = ["a\0b", "\u{1}", "\u{1}\u{1}", "\0", "", "\\u0000", "\u{2}", "ü\0\u{1f600}"];
    let json = serde_json::to_string(&texts).unwrap();
    let mut sorted = texts;
    sorted.sort_unstable();
    write(&store, &Isolation::Global, |tx| {
        let work = || -> Result<()> {
            for (at, text) in texts.iter().enumerate() {
                let (name, value) = (format!("{at} {text}"), text);
                tx.run("INSERT INTO notes (name, value) VALUES (?1, ?2)", params![name, value])?;
                let found: String =
                    tx.one("SELECT value FROM notes WHERE name = ?1", [name.as_str()], column)?;
                assert_eq!(found, *text);
                let is_in = "SELECT EXISTS (SELECT 1 FROM json_each(?1) WHERE value = ?2)";
                let is_in: bool = tx.one(is_in, params![json, text], column)?;
                assert!(is_in, "{text:?}");
            }
            let members: Vec<String> =
                tx.all("SELECT value FROM json_each(?1) ORDER BY key", [json.as_str()], column)?;
            assert_eq!(members, texts);
            let ordered: Vec<String> = tx.all(
                "SELECT value FROM notes WHERE name <> ?1 ORDER BY value",
                [KEY_CHECK],
                column,
            )?;
            assert_eq!(ordered, sorted);
            let object = serde_json::json!({"a": {"b": "x\0y"}, "n": 7}).to_string();
            let inner: String =
                tx.one("SELECT json_extract(?1, '$.a.b')", [object.as_str()], column)?;
            assert_eq!(inner, "x\0y");
            Ok(())
        };
        work()
    })
    .unwrap();
}

/// What stands for SQLite's own functions gives what they give.
#[test]
fn numbers_come_as_they_are() {
    let Some((store, _database)) = fresh_store() else { return };
    let ask = |sql: &str| -> Option<i64> {
        read(&store, &Isolation::Global, |tx| tx.one(sql, [], column)).unwrap()
    };
    assert_eq!(ask("SELECT max(3, 5)"), Some(5));
    assert_eq!(ask("SELECT min(3, 5)"), Some(3));
    assert_eq!(ask("SELECT max(3, NULL)"), None);
    assert_eq!(ask("SELECT sum(n) FROM (VALUES (1::bigint), (2)) AS of(n)"), Some(3));
    assert_eq!(ask("SELECT EXISTS (SELECT 1)"), Some(1));
    assert_eq!(ask("SELECT 1 = 2"), Some(0));
    assert_eq!(ask("SELECT count(*) FROM tenants"), Some(0));
    assert_eq!(ask("SELECT NULL::bigint"), None);
}

/// As a store of an earlier schema gets them, with tenants of whatever names.
#[test]
fn statistics_are_there_before_rows_are_and_touch_none() {
    let Some((store, database)) = fresh_store() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        for name in ["0", "7", "acme"] {
            store.append(&scope_of(name, "main"), batch("s", &say_many(3))).await.unwrap();
        }
    });
    drop(store);
    database.run("UPDATE icecore.migrations SET version = 14");
    let rows = "SELECT count(*), sum(kept_turns) FROM icecore.tenants";
    let before = database.rows(rows);
    assert_eq!(before, [[Some("3".to_owned()), Some("9".to_owned())]]);
    let store = connect(database.url());
    assert_eq!(database.rows(rows), before);
    runtime.block_on(clean(&store));
    // Every table of tenants has them, and all say the same of its tenants.
    let without = database.rows(
        "SELECT c.relname FROM pg_class c
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
             AND a.atttypid = 'bigint'::regtype
         LEFT JOIN pg_stats s ON s.schemaname = 'icecore' AND s.tablename = c.relname
             AND s.attname = 'tenant'
         WHERE c.relnamespace = 'icecore'::regnamespace AND c.relkind = 'r'
             AND s.n_distinct IS DISTINCT FROM 1",
    );
    assert_eq!(without, Vec::<Vec<Option<String>>>::new());
}
