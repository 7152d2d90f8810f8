//! Bringing the tables up to date, once however many hosts start.

use super::address::Address;
use super::connection::{PgConnection, quoted};
use super::pool::Pool;
use super::walls::{Role, lock_key};
use crate::engine::Value;
use crate::engine::postgres_options::PostgresOptions;
use crate::engine::tx::Tx;
use crate::error::postgres::{Fault, PgError};
use crate::error::{Result, StoreError};

/// Each with the version that it leads to, which is SQLite's. Added, never edited.
const MIGRATIONS: [(i64, &str); 4] = [
    (12, include_str!("../../../migrations/postgres/0001_ground.sql")),
    (13, include_str!("../../../migrations/postgres/0013_leases.sql")),
    (14, include_str!("../../../migrations/postgres/0014_bounds.sql")),
    (15, include_str!("../../../migrations/postgres/0015_planner.sql")),
];

/// Who sees what, for all tables alike.
const WALLS: &str = include_str!("../../../migrations/postgres/walls.sql");

/// The oldest server that has all we use.
const OLDEST: u32 = 14;

/// Tries to make the roles, which all databases of a server share: another one may be
/// making them at this moment.
const ROLE_TRIES: usize = 10;

/// How long a change of all tables may take, or another host's that is waited for.
const CHANGE_SECONDS: u64 = 24 * 3600;

/// Brings the tables up to date.
pub(super) fn migrate(pool: &Pool) -> Result<()> {
    let address = &pool.address;
    let connection = open(pool)?;
    check_age(&connection)?;
    let known = MIGRATIONS[MIGRATIONS.len() - 1].0;
    if version(&connection, address)? == Some(known) {
        return Ok(());
    }
    let key = lock_key(&["migrate", &address.schema]);
    connection.batch(&format!("SELECT pg_advisory_lock({key})")).map_err(PgError::into_store)?;
    // The lock ends with the connection, too.
    let migrated = migrate_alone(&connection, address, known);
    let _ = connection.batch(&format!("SELECT pg_advisory_unlock({key})"));
    migrated
}

/// Whether there are tables of ours.
pub(super) fn is_there(pool: &Pool) -> Result<bool> {
    Ok(version(&open(pool)?, &pool.address)?.is_some())
}

/// As the user of the URL, who owns the tables.
fn open(pool: &Pool) -> Result<PgConnection> {
    let options = PostgresOptions { statement_seconds: CHANGE_SECONDS, ..pool.options };
    PgConnection::open_raw(&pool.address, &pool.tls, &options, 0).map_err(PgError::into_store)
}

fn check_age(c: &PgConnection) -> Result<()> {
    let asked = "SELECT current_setting('server_version_num')::bigint / 10000";
    let found = number(c, asked, &[])?.unwrap_or_default() as u32;
    match found < OLDEST {
        true => {
            let server = c.server().name.clone();
            Err(StoreError::OldDatabase { server, found, needed: OLDEST })
        }
        false => Ok(()),
    }
}

/// The version of the tables that are there, or an error if it is not known.
fn version(c: &PgConnection, address: &Address) -> Result<Option<i64>> {
    let known = MIGRATIONS[MIGRATIONS.len() - 1].0;
    let schema = quoted(&address.schema);
    let table = format!("{schema}.migrations");
    let is_there =
        number(c, "SELECT (to_regclass(?1) IS NOT NULL)::int::bigint", &[Value::Text(&table)])?;
    if is_there != Some(1) {
        return Ok(None);
    }
    let found = number(c, &format!("SELECT max(version) FROM {table}"), &[])?;
    match found {
        Some(found) if found > known => Err(StoreError::FromTheFuture { found, known }),
        found => Ok(found),
    }
}

fn migrate_alone(c: &PgConnection, address: &Address, known: i64) -> Result<()> {
    let begun = version(c, address)?.unwrap_or_default();
    if begun == known {
        return Ok(());
    }
    make_roles(c, address)?;
    let schema = quoted(&address.schema);
    let mut script = format!(
        "BEGIN;
         CREATE SCHEMA IF NOT EXISTS {schema};
         SET LOCAL search_path = {schema};
         CREATE TABLE IF NOT EXISTS migrations (
             version    BIGINT PRIMARY KEY,
             applied_at TIMESTAMPTZ NOT NULL DEFAULT now()
         );\n"
    );
    for (version, sql) in MIGRATIONS.iter().filter(|(version, _)| *version > begun) {
        script.push_str(sql);
        script.push_str(&format!("\nINSERT INTO migrations (version) VALUES ({version});\n"));
    }
    script.push_str(WALLS);
    script.push_str("\nCOMMIT;");
    c.batch(&script).map_err(PgError::into_store)
}

/// Makes the two roles, and makes us a member of both.
fn make_roles(c: &PgConnection, address: &Address) -> Result<()> {
    let mut made = Ok(());
    for _ in 0..ROLE_TRIES {
        made = Role::ALL.iter().try_for_each(|role| c.batch(&making(role.name())));
        match &made {
            // Another database of the server was faster with the same row.
            Err(error)
                if matches!(error.fault(), Fault::Other | Fault::Taken | Fault::Conflict) => {}
            _ => break,
        }
    }
    made.map_err(|error| match error.fault() {
        Fault::Permission => no_roles(c, address),
        _ => error.into_store(),
    })
}

fn making(role: &str) -> String {
    format!(
        "DO $$ BEGIN
             IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN
                 CREATE ROLE {role} NOLOGIN;
             END IF;
             IF NOT pg_has_role(current_user, '{role}', 'MEMBER') THEN
                 EXECUTE format('GRANT {role} TO %I', current_user);
             END IF;
         EXCEPTION WHEN duplicate_object OR unique_violation THEN
             RAISE EXCEPTION 'role {role} is being made' USING ERRCODE = 'serialization_failure';
         END $$"
    )
}

/// What an administrator does in our place.
fn no_roles(c: &PgConnection, address: &Address) -> StoreError {
    let [tenant, sweeper] = Role::ALL.map(Role::name);
    let user = quoted(address.user());
    StoreError::NoRoles {
        server: c.server().name.clone(),
        user: address.user().to_owned(),
        sql: format!(
            "CREATE ROLE {tenant} NOLOGIN; CREATE ROLE {sweeper} NOLOGIN; GRANT {tenant}, {sweeper} TO {user};"
        ),
    }
}

fn number(c: &PgConnection, sql: &str, values: &[Value<'_>]) -> Result<Option<i64>> {
    let rows = c.query(sql, values).map_err(PgError::into_store)?;
    Ok(rows.first().and_then(|row| row.try_get(0).ok()).flatten())
}

/// Writes every table anew, so that nothing that was deleted is left in their files.
pub(super) fn rewrite(pool: &Pool) -> Result<()> {
    let connection = open(pool)?;
    let rewrite = || {
        let asked = "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                     WHERE n.nspname = ?1 AND c.relkind = 'r' ORDER BY 1";
        let schema = Value::Text(&pool.address.schema);
        for row in connection.query(asked, &[schema])? {
            let table: &str = row.try_get(0).unwrap_or_default();
            let name = format!("{}.{}", quoted(&pool.address.schema), quoted(table));
            connection.batch(&format!("VACUUM (FULL) {name}"))?;
        }
        Ok(())
    };
    rewrite().map_err(PgError::into_store)
}

/// Writes one table anew, unless others need it for too long.
pub(super) fn rewrite_one(pool: &Pool, table: &str) -> Result<()> {
    let connection = open(pool)?;
    let name = format!("{}.{}", quoted(&pool.address.schema), quoted(table));
    let rewrite = || {
        connection.batch(&format!("SET lock_timeout = '{}s'", pool.options.lock_seconds))?;
        connection.batch(&format!("VACUUM (FULL) {name}"))
    };
    rewrite().map_err(PgError::into_store)
}

/// Tables that show a tenant what is another's, or would if their owner changed.
pub(crate) fn check_row_security(tx: &Tx<'_>) -> Result<Vec<String>> {
    let tables: Vec<String> = tx
        .prepare(
            "SELECT c.relname::text FROM pg_class c
             WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
               AND c.relkind IN ('r', 'p')
               AND NOT (c.relrowsecurity AND c.relforcerowsecurity
                   AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid))
             ORDER BY 1",
        )?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_>>()?;
    let open = |table| format!("table `{table}` does not keep tenants apart");
    Ok(tables.into_iter().map(open).collect())
}
