//! No tenant sees, changes or adds another's rows, in any table.

use super::*;
use crate::testing::postgres::own_server;

/// Tables that hold nothing of a tenant.
const SHARED: [&str; 5] = ["commits", "leases", "migrations", "notes", "policies"];

struct Table {
    name: String,
    columns: Vec<(String, String)>,
}

/// Every table that there is, whoever added it.
fn tables(database: &TestDatabase) -> Vec<Table> {
    let columns = database.rows(
        "SELECT c.relname, a.attname, format_type(a.atttypid, NULL)
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
         WHERE c.relnamespace = 'icecore'::regnamespace AND c.relkind IN ('r', 'p')
           AND a.attnum > 0 AND NOT a.attisdropped ORDER BY c.relname, a.attnum",
    );
    let mut tables: Vec<Table> = Vec::new();
    for row in columns {
        let [table, column, kind] = row.map_all();
        if tables.last().is_none_or(|last| last.name != table) {
            tables.push(Table { name: table, columns: Vec::new() });
        }
        tables.last_mut().unwrap().columns.push((column, kind));
    }
    tables
}

trait MapAll {
    fn map_all<const N: usize>(self) -> [String; N];
}

impl MapAll for Vec<Option<String>> {
    fn map_all<const N: usize>(self) -> [String; N] {
        let cells: Vec<String> = self.into_iter().map(Option::unwrap_or_default).collect();
        cells.try_into().unwrap()
    }
}

impl Table {
    fn is_tenants(&self) -> bool {
        self.columns.iter().any(|(name, _)| name == "tenant")
    }

    /// A row of a tenant, whose keys are alike but for the tenant.
    fn row_of(&self, number: i64, name: &str) -> String {
        let names: Vec<&str> = self.columns.iter().map(|(name, _)| name.as_str()).collect();
        let values: Vec<String> =
            self.columns.iter().map(|column| self.value_of(column, number, name)).collect();
        format!(
            "INSERT INTO icecore.{} ({}) VALUES ({})",
            self.name,
            names.join(", "),
            values.join(", ")
        )
    }

    fn value_of(&self, (column, kind): &(String, String), number: i64, name: &str) -> String {
        let is_found_by_all = ["tenants", "api_keys"].contains(&self.name.as_str());
        match (column.as_str(), kind.as_str()) {
            ("tenant", "bigint") => number.to_string(),
            ("tenant", "text") => format!("'{name}'"),
            (_, "bigint") => "1".to_owned(),
            (_, "text") if is_found_by_all => format!("'{name}'"),
            (_, "text") => "'x'".to_owned(),
            (_, "bytea") if is_found_by_all => format!("'{name}'::bytea"),
            (_, "bytea") => "'x'::bytea".to_owned(),
            other => panic!("no value for {other:?} of {}", self.name),
        }
    }
}

/// Puts a row of each of two tenants into each table, keys before those who name them.
fn fill(store: &Store, tables: &[Table]) {
    write(store, &Isolation::Global, |tx| {
        let mut due: Vec<&Table> = tables.iter().filter(|table| table.is_tenants()).collect();
        let run = |sql: &str| tx.execute_batch(sql);
        run("SET CONSTRAINTS ALL DEFERRED")?;
        while !due.is_empty() {
            let before = due.len();
            due.retain(|table| {
                let rows = [table.row_of(1, "one"), table.row_of(2, "two")].join(";");
                let tried = format!(
                    "DO $$ BEGIN {rows}; EXCEPTION WHEN foreign_key_violation THEN
                         RAISE EXCEPTION 'later' USING ERRCODE = 'P0001'; END $$"
                );
                run("SAVEPOINT one").unwrap();
                let is_done = run(&tried).is_ok();
                run(if is_done { "RELEASE one" } else { "ROLLBACK TO one" }).unwrap();
                !is_done
            });
            let left: Vec<&str> = due.iter().map(|table| table.name.as_str()).collect();
            assert!(due.len() < before, "these cannot be filled: {left:?}");
        }
        // What failed on the way is no failure.
        if let Connection::Postgres(c) = &**tx {
            c.take_failure();
        }
        Ok(())
    })
    .unwrap();
}

/// What a statement answers as a tenant, in a transaction that is rolled back.
fn try_as(store: &Store, number: &str, name: &str, sql: &str) -> Result<u64> {
    let pool = &store.postgres().unwrap().database.transactions.pool;
    let connection = pool.take().map_err(PgError::into_store)?;
    let begin = format!(
        "BEGIN READ WRITE; SELECT set_config('role', 'icecore_tenant', true),
             set_config('icecore.tenant', '{number}', true),
             set_config('icecore.tenant_name', '{name}', true)"
    );
    connection.batch(&begin).unwrap();
    let answer = connection.execute(sql, &[]);
    connection.batch("ROLLBACK").unwrap();
    connection.take_failure();
    pool.give_back(connection);
    answer.map_err(PgError::into_store)
}

fn is_refused<T>(answer: Result<T>) -> bool {
    matches!(answer, Err(StoreError::DatabaseRefused { .. }))
}

#[test]
fn a_tenant_has_its_own_rows_alone_in_every_table() {
    let Some((store, database)) = fresh_store() else { return };
    let tables = tables(&database);
    fill(&store, &tables);
    let (mine, others): (Vec<&Table>, Vec<&Table>) =
        tables.iter().partition(|table| table.is_tenants());
    let others: Vec<&str> = others.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(others, SHARED);
    assert!(mine.len() >= 30);
    for table in mine {
        let name = &table.name;
        let is_key = table.columns.iter().any(|c| *c == ("tenant".to_owned(), "text".to_owned()));
        let (one, two) = if is_key { ("'one'", "'two'") } else { ("1", "2") };
        let as_one = |sql: &str| try_as(&store, "1", "one", sql);
        let rows = |which: &str| as_one(&format!("SELECT FROM icecore.{name} {which}")).unwrap();
        assert_eq!(rows(""), 1, "{name}");
        assert_eq!(rows(&format!("WHERE tenant = {two}")), 0, "{name}");
        // Nobody set, or nobody who is there.
        for (number, who) in [("", ""), ("3", "three")] {
            let nobody = try_as(&store, number, who, &format!("SELECT FROM icecore.{name}"));
            assert_eq!(nobody.unwrap(), 0, "{name}");
        }
        let changed = as_one(&format!("UPDATE icecore.{name} SET tenant = tenant"));
        assert_eq!(changed.unwrap(), 1, "{name}");
        let stolen = as_one(&format!("DELETE FROM icecore.{name} WHERE tenant = {two}"));
        assert_eq!(stolen.unwrap(), 0, "{name}");
        let moved =
            as_one(&format!("UPDATE icecore.{name} SET tenant = {two} WHERE tenant = {one}"));
        // Its own name, with another's number, is its own row still.
        assert!(name == "tenants" || is_refused(moved), "{name}");
        assert!(is_refused(as_one(&table.row_of(2, "two"))), "{name}");
        assert!(is_refused(as_one(&table.row_of(3, "three"))), "{name}");
        let ended = as_one(&format!("TRUNCATE icecore.{name}"));
        assert!(is_refused(ended), "{name}");
    }
}

#[test]
fn every_table_is_walled_in_also_for_its_owner() {
    let Some((store, database)) = fresh_store() else { return };
    let open = database.rows(
        "SELECT relname FROM pg_class WHERE relnamespace = 'icecore'::regnamespace
         AND relkind IN ('r', 'p') AND NOT (relrowsecurity AND relforcerowsecurity)",
    );
    assert!(open.is_empty(), "{open:?}");
    let owned = database.rows(
        "SELECT relname FROM pg_class WHERE pg_get_userbyid(relowner) LIKE 'icecore\\_%er'
         AND pg_get_userbyid(relowner) IN ('icecore_tenant', 'icecore_sweeper')",
    );
    assert!(owned.is_empty(), "{owned:?}");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    assert_eq!(runtime.block_on(store.check()).unwrap(), [""; 0]);
    database.run("CREATE TABLE icecore.forgotten (tenant BIGINT)");
    let found = runtime.block_on(store.check()).unwrap();
    assert!(found.len() == 1 && found[0].contains("forgotten"), "{found:?}");
}

#[test]
fn outside_of_a_transaction_there_is_nothing_to_see_or_change() {
    let Some((store, database)) = fresh_store() else { return };
    fill(&store, &tables(&database));
    let connection = store.postgres().unwrap().database.transactions.pool.take().unwrap();
    assert_eq!(connection.query("SELECT FROM tenants", &[]).unwrap().len(), 0);
    let insert = "INSERT INTO tenants (tenant, name, sealed_key) VALUES (9, 'nine', x'')";
    assert!(connection.execute(insert, &[]).is_err());
    let other = "INSERT INTO policies VALUES (9, 9, 9, 9, 9)";
    assert!(connection.execute(other, &[]).is_err());
}

#[test]
fn a_read_can_change_nothing() {
    let Some((store, _database)) = fresh_store() else { return };
    let answer = read(&store, &Isolation::Global, |tx| put_note(tx, "a", "b"));
    assert!(answer.is_err());
    assert_eq!(count_notes(&store, "a"), 0);
}

/// A user who may do nothing but own its own database.
#[test]
fn a_plain_user_asks_an_administrator_for_the_roles() {
    let Some(server) = own_server() else { return };
    server.run("CREATE ROLE plain LOGIN");
    let database = server.fresh_database();
    server.run(&format!("ALTER DATABASE {} OWNER TO plain", database.name()));
    let url = database.url().replace("icecore_test@", "plain@");
    let Err(error) = connect_with(&url, PostgresOptions::default()) else {
        panic!("there are no roles")
    };
    let StoreError::NoRoles { sql, user, .. } = &error else { panic!("{error}") };
    assert_eq!(user, "plain");
    assert!(error.hint().unwrap().contains(sql));
    server.run(sql);
    let store = connect(&url);
    fill(&store, &tables(&database));
    assert_eq!(try_as(&store, "1", "one", "SELECT FROM scopes").unwrap(), 1);
    // The owner is walled in like everybody else.
    let raw = PgConnection::open_raw(
        &store.postgres().unwrap().database.transactions.pool.address,
        &store.postgres().unwrap().database.transactions.pool.tls,
        &PostgresOptions::default(),
    );
    assert_eq!(raw.unwrap().query("SELECT FROM icecore.scopes", &[]).unwrap().len(), 0);
}

#[test]
fn a_user_who_may_make_roles_makes_them() {
    let Some(server) = own_server() else { return };
    server.run("CREATE ROLE maker LOGIN CREATEROLE");
    let database = server.fresh_database();
    server.run(&format!("ALTER DATABASE {} OWNER TO maker", database.name()));
    let store = connect(&database.url().replace("icecore_test@", "maker@"));
    write(&store, &of_memory("one", "notes"), |_| Ok(())).unwrap();
}
