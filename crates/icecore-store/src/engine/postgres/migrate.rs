//! Bringing the tables up to date, once however many hosts start.

use super::address::Address;
use super::connection::{PgConnection, quoted};
use super::pool::Pool;
use super::walls::{Role, lock_key};
use crate::engine::postgres_options::PostgresOptions;
use crate::engine::tx::Tx;
use crate::engine::{Value, column};
use crate::error::postgres::{Fault, PgError};
use crate::error::{Result, StoreError};
use crate::tables::{SCHEMA, SCHEMA_SQL};

/// What only PostgreSQL needs beyond the tables.
const EXTRAS: &str = include_str!("../../../migrations/postgres/extras.sql");

/// Statistics for the planner of tables that have no rows yet.
const PLANNER: &str = include_str!("../../../migrations/postgres/planner.sql");

/// Row-level security of all tables; runs again after every change of them.
const WALLS: &str = include_str!("../../../migrations/postgres/walls.sql");

/// What brings an older store to a version. The first was 12. Added, never edited.
const UPGRADES: [(i64, &str); 3] = [
    (13, include_str!("../../../migrations/history/postgres/0013_leases.sql")),
    (14, include_str!("../../../migrations/history/postgres/0014_bounds.sql")),
    (15, PLANNER),
];

/// Words of [`SCHEMA_SQL`] that PostgreSQL spells in another way.
const SPELLINGS: [(&str, &str); 5] = [
    (" INTEGER", " BIGINT"),
    // Compared by its bytes, as in SQLite.
    (" TEXT", " TEXT COLLATE \"C\""),
    (" BLOB", " BYTEA"),
    (" STRICT, WITHOUT ROWID", ""),
    (" STRICT", ""),
];

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
    if version(&connection, address)? == Some(SCHEMA) {
        return Ok(());
    }
    make_roles(&connection, address)?;
    let key = lock_key(&["migrate", &address.schema]);
    let batch = |sql: &str| connection.batch(sql).map_err(PgError::into_store);
    batch(&format!("BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({key})"))?;
    // Another host may have been faster.
    let begun = version(&connection, address)?;
    if begun != Some(SCHEMA) {
        let all = create_all();
        let steps = match begun {
            Some(begun) => UPGRADES.into_iter().filter(|(to, _)| *to > begun).collect(),
            None => vec![(SCHEMA, all.as_str())],
        };
        batch(&script(&address.schema, &steps))?;
    }
    batch("COMMIT")
}

/// Whether there are tables of ours.
pub(super) fn is_there(pool: &Pool) -> Result<bool> {
    Ok(version(&open(pool)?, &pool.address)?.is_some())
}

/// As the user of the URL, who owns the tables.
fn open(pool: &Pool) -> Result<PgConnection> {
    let options = PostgresOptions { statement_seconds: CHANGE_SECONDS, ..pool.options };
    PgConnection::open_raw(&pool.address, &pool.tls, &options).map_err(PgError::into_store)
}

fn check_age(c: &PgConnection) -> Result<()> {
    let asked = "SELECT current_setting('server_version_num')::bigint / 10000";
    let found = number(c, asked, &[])?.unwrap_or_default() as u32;
    if found < OLDEST {
        let server = c.server().name.clone();
        return Err(StoreError::OldDatabase { server, found, needed: OLDEST });
    }
    Ok(())
}

/// The version of the tables that are there, or an error if it is not known.
fn version(c: &PgConnection, address: &Address) -> Result<Option<i64>> {
    let schema = quoted(&address.schema);
    let table = format!("{schema}.migrations");
    let is_there =
        number(c, "SELECT (to_regclass(?1) IS NOT NULL)::int::bigint", &[Value::Text(&table)])?;
    if is_there != Some(1) {
        return Ok(None);
    }
    let found = number(c, &format!("SELECT max(version) FROM {table}"), &[])?;
    match found {
        Some(found) if found > SCHEMA => Err(StoreError::FromTheFuture { found, known: SCHEMA }),
        found => Ok(found),
    }
}

/// Makes all tables in an empty schema.
fn create_all() -> String {
    let mut sql = String::new();
    for line in SCHEMA_SQL.lines().filter(|line| !line.starts_with("--")) {
        let respelled = |line: String, (from, to): (&str, &str)| line.replace(from, to);
        sql.push_str(&SPELLINGS.into_iter().fold(line.to_owned(), respelled));
        sql.push('\n');
    }
    [&sql, EXTRAS, PLANNER].concat()
}

/// Takes a schema through steps to their versions; all or none, for it is one transaction.
fn script(schema: &str, steps: &[(i64, &str)]) -> String {
    let mut script = format!(
        "CREATE SCHEMA IF NOT EXISTS {schema};
         SET LOCAL search_path = {schema};
         CREATE TABLE IF NOT EXISTS migrations (
             version    BIGINT PRIMARY KEY,
             applied_at TIMESTAMPTZ NOT NULL DEFAULT now()
         );\n",
        schema = quoted(schema)
    );
    for (version, sql) in steps {
        script.push_str(sql);
        script.push_str(&format!("\nINSERT INTO migrations (version) VALUES ({version});\n"));
    }
    script.push_str(WALLS);
    script
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

/// Writes one table anew, unless others need it for too long. `VACUUM` would do it outside
/// transactions alone, where a pooler lets no setting hold.
pub(super) fn rewrite_one(pool: &Pool, table: &str) -> Result<()> {
    let sql = format!(
        "BEGIN; SET LOCAL search_path = {}; SET LOCAL lock_timeout = '{}s';
         CLUSTER {table} USING {table}_pkey; COMMIT",
        quoted(&pool.address.schema),
        pool.options.lock_seconds,
    );
    open(pool)?.batch(&sql).map_err(PgError::into_store)
}

/// Tables that show a tenant what is another's, or would if their owner changed.
pub(crate) fn check_row_security(tx: &Tx<'_>) -> Result<Vec<String>> {
    let tables: Vec<String> = tx.all(
        "SELECT c.relname::text FROM pg_class c
         WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
           AND c.relkind IN ('r', 'p')
           AND NOT (c.relrowsecurity AND c.relforcerowsecurity
               AND EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid))
         ORDER BY 1",
        [],
        column,
    )?;
    let open = |table| format!("table `{table}` does not keep tenants apart");
    Ok(tables.into_iter().map(open).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::postgres::fresh_database;

    /// The tables of the first version.
    const FIRST: &str = include_str!("../../../migrations/history/postgres/0001_ground.sql");

    /// What the catalogue says of a schema; each query names what it lists first.
    const CATALOGUE: [&str; 8] = [
        "SELECT 'table', c.relname, c.relkind::text, c.reloptions::text, c.relacl::text,
                c.relrowsecurity, c.relforcerowsecurity
         FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace
           AND c.relkind <> 'i' ORDER BY 2",
        "SELECT 'column', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod),
                a.attcollation::regcollation::text, a.attnotnull, a.attstorage::text,
                a.attoptions::text, pg_get_expr(d.adbin, d.adrelid)
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
         LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
         WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' ORDER BY 2, 3",
        "SELECT 'index', tablename, indexname, indexdef FROM pg_indexes
         WHERE schemaname = current_schema() ORDER BY 2, 3",
        "SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
         FROM pg_constraint WHERE connamespace = current_schema()::regnamespace ORDER BY 2, 3",
        "SELECT 'policy', tablename, policyname, roles::text, cmd, qual, with_check
         FROM pg_policies WHERE schemaname = current_schema() ORDER BY 2, 3",
        "SELECT 'function', p.oid::regprocedure::text, p.prokind::text, p.provolatile::text,
                p.proparallel::text, p.prosrc, pg_get_function_sqlbody(p.oid),
                pg_get_function_result(p.oid)
         FROM pg_proc p WHERE p.pronamespace = current_schema()::regnamespace ORDER BY 2",
        "SELECT 'aggregate', a.aggfnoid::regprocedure::text, a.aggtransfn::text, a.agginitval,
                a.aggfinalfn::text
         FROM pg_aggregate a JOIN pg_proc p ON p.oid = a.aggfnoid
         WHERE p.pronamespace = current_schema()::regnamespace ORDER BY 2",
        "SELECT 'statistics', tablename, attname, n_distinct FROM pg_stats
         WHERE schemaname = current_schema() ORDER BY 2, 3",
    ];

    /// A schema that was made by these steps, with its rights as they are given.
    fn catalogue_of(steps: &[&[(i64, &str)]]) -> Option<Vec<String>> {
        let database = fresh_database()?;
        for role in Role::ALL {
            database.run(&making(role.name()));
        }
        for step in steps {
            database.run(&script("icecore", step));
        }
        let listed = CATALOGUE.iter().flat_map(|query| {
            let rows = database.rows(&format!("SET search_path = icecore; {query}"));
            assert!(!rows.is_empty(), "{query}");
            rows.into_iter().map(|row| format!("{row:?}"))
        });
        Some(listed.collect())
    }

    #[test]
    fn a_new_store_and_an_upgraded_one_have_the_same_schema() {
        let Some(made) = catalogue_of(&[&[(SCHEMA, &create_all())]]) else { return };
        // Each version at once, and all one after the other.
        let (first, [second, third, last]) = ((12, FIRST), UPGRADES);
        let slowly = catalogue_of(&[&[first], &[second], &[third], &[last]]).unwrap();
        let at_once = catalogue_of(&[&[first, second, third, last]]).unwrap();
        for upgraded in [slowly, at_once] {
            assert_eq!(made.len(), upgraded.len());
            for (made, upgraded) in made.iter().zip(&upgraded) {
                assert_eq!(made, upgraded);
            }
        }
    }
}
