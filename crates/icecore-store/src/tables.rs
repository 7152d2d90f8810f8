//! The tables, as `migrations/schema.sql` declares them.
//!
//! New stores on both engines are created from that file; backup, restore and migration copy
//! the columns that it names.

use std::sync::LazyLock;

/// The version of [`SCHEMA_SQL`], and of every store that is open.
pub(crate) const SCHEMA: i64 = 15;

pub(crate) const SCHEMA_SQL: &str = include_str!("../migrations/schema.sql");

/// All tables whose rows move, each after those that it refers to.
pub(crate) static TABLES: LazyLock<Vec<Table>> =
    LazyLock::new(|| parse(SCHEMA_SQL).expect("a test has parsed the same text"));

#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) key: Vec<&'static str>,
    pub(crate) owner: Owner,
    pub(crate) within: Within,
    pub(crate) columns: Vec<Column>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Integer,
    Text,
    Blob,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The tenant's whose number is in `tenant`.
    Number,
    /// The tenant's whose name is in `tenant`.
    Name,
    Everyone,
}

/// Which rows of a tenant the backup of one memory takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Within {
    Every,
    /// The rows of the memory's sessions.
    Session,
    /// Those that meet this condition; `?1` is the tenant, `?2` the memory, as numbers.
    Where(&'static str),
    None,
}

impl Table {
    /// The place of a column among the columns.
    pub(crate) fn at(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|known| known.name == column)
    }

    pub(crate) fn column_names(&self) -> Vec<&'static str> {
        self.columns.iter().map(|column| column.name).collect()
    }
}

pub(crate) fn table(name: &str) -> Option<&'static Table> {
    TABLES.iter().find(|table| table.name == name)
}

/// The tables of a schema whose rows move. The error is a line that does not fit.
fn parse(schema: &'static str) -> Result<Vec<Table>, String> {
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with("--");
    let mut lines =
        schema.lines().map(str::trim).filter(|line| is_code(line) || line.starts_with("-- @"));
    let mut tables = Vec::new();
    let mut annotation = None;
    while let Some(line) = lines.next() {
        let created = line.strip_prefix("CREATE TABLE ");
        if let Some(found) = line.strip_prefix("-- @") {
            annotation = Some(found);
        } else if let Some(name) = created.and_then(|rest| rest.strip_suffix(" (")) {
            let body = lines.by_ref().take_while(|line| !line.starts_with(") STRICT"));
            let table = parse_table(name, body)?;
            match annotation.take() {
                Some("moves never") => {}
                Some(found) => {
                    let within = parse_within(found).ok_or(line)?;
                    tables.push(Table { within, ..table });
                }
                None => return Err(line.to_owned()),
            }
        } else if line.starts_with("CREATE INDEX ") || line.starts_with("CREATE UNIQUE INDEX ") {
            if !line.ends_with(';') {
                lines.by_ref().take_while(|line| !line.ends_with(';')).for_each(drop);
            }
        } else {
            return Err(line.to_owned());
        }
    }
    Ok(tables)
}

fn parse_within(annotation: &'static str) -> Option<Within> {
    match annotation.strip_prefix("memory ")? {
        "every row" => Some(Within::Every),
        "by session" => Some(Within::Session),
        "nothing" => Some(Within::None),
        condition => Some(Within::Where(condition)),
    }
}

/// A table from the lines between its parentheses.
fn parse_table(
    name: &'static str,
    lines: impl Iterator<Item = &'static str>,
) -> Result<Table, String> {
    let (mut key, mut columns) = (Vec::new(), Vec::<Column>::new());
    for line in lines {
        let mut words = line.trim_end_matches(',').split_whitespace();
        match (words.next(), words.next()) {
            (Some("UNIQUE" | "FOREIGN" | "DEFERRABLE"), _) => {}
            (Some("PRIMARY"), _) => {
                let listed = line.split(['(', ')']).nth(1).ok_or(line)?;
                key = listed.split(", ").collect();
            }
            (Some(name), Some(kind)) => {
                let kind = match kind {
                    "INTEGER" => Kind::Integer,
                    "TEXT" => Kind::Text,
                    "BLOB" => Kind::Blob,
                    _ => return Err(line.to_owned()),
                };
                columns.push(Column { name, kind });
                if line.contains(" PRIMARY KEY") {
                    key.push(name);
                }
            }
            _ => return Err(line.to_owned()),
        }
    }
    if key.is_empty() {
        return Err(name.to_owned());
    }
    let tenant = columns.iter().find(|column| column.name == "tenant");
    let owner = match tenant.map(|column| column.kind) {
        Some(Kind::Integer) => Owner::Number,
        Some(_) => Owner::Name,
        None => Owner::Everyone,
    };
    Ok(Table { name, key, owner, within: Within::None, columns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::engine::tx::{Isolation, Tx};
    use crate::engine::{Connection, Result, column, tuple};

    /// What stays with a store: its notes about itself, and who works on it now.
    const LOCAL: [&str; 2] = ["notes", "leases"];

    /// A table as the catalogue has it: its name, its key, its columns by name.
    type Found = (String, Vec<String>, Vec<(String, Kind)>);

    fn in_sqlite(c: &Connection) -> Result<Vec<Found>> {
        let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
        let names: Vec<String> = c.all(tables, [], column)?;
        let describe = |name: String| {
            let columns = "SELECT name, type, pk FROM pragma_table_info(?1) ORDER BY name";
            let columns: Vec<(String, String, i64)> = c.all(columns, [&name], tuple)?;
            let mut key: Vec<_> = columns.iter().filter(|(_, _, place)| *place > 0).collect();
            key.sort_by_key(|(_, _, place)| *place);
            let key = key.into_iter().map(|(name, ..)| name.clone()).collect();
            Ok((
                name,
                key,
                columns.into_iter().map(|(name, kind, _)| (name, as_kind(&kind))).collect(),
            ))
        };
        names.into_iter().map(describe).collect()
    }

    fn as_kind(declared: &str) -> Kind {
        match declared.to_lowercase().as_str() {
            "integer" | "bigint" => Kind::Integer,
            "text" => Kind::Text,
            "blob" | "bytea" => Kind::Blob,
            other => panic!("a column of the type {other}"),
        }
    }

    fn listed() -> Vec<Found> {
        let describe = |table: &Table| {
            let key = table.key.iter().map(|name| (*name).to_owned()).collect();
            let columns = table.columns.iter().map(|c| (c.name.to_owned(), c.kind));
            let mut columns: Vec<_> = columns.collect();
            columns.sort();
            (table.name.to_owned(), key, columns)
        };
        let mut found: Vec<Found> = TABLES.iter().map(describe).collect();
        found.sort();
        found
    }

    #[tokio::test]
    async fn the_list_is_what_sqlite_has() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), None).unwrap();
        let found = store.read(Isolation::Global, "test", |tx| in_sqlite(tx)).await;
        let mut found = found.unwrap();
        found.retain(|(name, ..)| !LOCAL.contains(&name.as_str()));
        assert_eq!(found, listed());
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn the_list_is_what_postgresql_has() {
        let Some(database) = crate::testing::postgres::fresh_database() else { return };
        let (options, key) = (crate::PostgresOptions::default(), "0a".repeat(32));
        Store::connect(database.url(), options, &key).unwrap();
        // The witnesses of its commits are the engine's own.
        let columns = database.rows(
            "SELECT c.relname, a.attname, format_type(a.atttypid, NULL),
                    coalesce(array_position(i.indkey::int2[], a.attnum), -1)::text
             FROM pg_class c
             JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
             LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
             WHERE c.relnamespace = 'icecore'::regnamespace AND c.relkind = 'r'
               AND c.relname NOT IN ('commits', 'migrations')
             ORDER BY c.relname, a.attname",
        );
        type Columns = (Vec<(i64, String)>, Vec<(String, Kind)>);
        let mut found = std::collections::BTreeMap::<String, Columns>::new();
        for row in columns {
            let mut row = row.into_iter().flatten();
            let mut next = || row.next().unwrap();
            let (table, column, kind, place) = (next(), next(), next(), next());
            let (key, columns) = found.entry(table).or_default();
            columns.push((column.clone(), as_kind(&kind)));
            let place: i64 = place.parse().unwrap();
            key.extend((place >= 0).then_some((place, column)));
        }
        found.retain(|name, _| !LOCAL.contains(&name.as_str()));
        let describe = |(name, (mut key, columns)): (String, (Vec<(i64, String)>, _))| {
            key.sort();
            (name, key.into_iter().map(|(_, column)| column).collect(), columns)
        };
        assert_eq!(found.into_iter().map(describe).collect::<Vec<Found>>(), listed());
    }

    #[tokio::test]
    async fn the_schema_is_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), None).unwrap();
        let version = |tx: &Tx<'_>| tx.one("PRAGMA user_version", [], column);
        let found: i64 = store.read(Isolation::Global, "test", version).await.unwrap();
        assert_eq!(SCHEMA, found);
    }

    #[test]
    fn a_schema_that_breaks_the_form_is_refused_with_its_line() {
        let check = |schema: &'static str, line: &str| {
            assert_eq!(parse(schema).unwrap_err(), line, "{schema}");
        };
        check("CREATE TABLE a (\n  b INTEGER PRIMARY KEY\n) STRICT;", "CREATE TABLE a (");
        check(
            "-- @memoir b\nCREATE TABLE a (\n b INTEGER PRIMARY KEY\n) STRICT;",
            "CREATE TABLE a (",
        );
        check(
            "-- @memory nothing\nCREATE TABLE a (\n b BIGINT PRIMARY KEY\n) STRICT;",
            "b BIGINT PRIMARY KEY",
        );
        check("-- @memory nothing\nCREATE TABLE a (\n b INTEGER NOT NULL\n) STRICT;", "a");
        check("-- @memory nothing\nCREATE TABLE a (\n b\n) STRICT;", "b");
        check("DROP TABLE a;", "DROP TABLE a;");
        assert!(parse("-- A comment.\n\nCREATE INDEX a\n  ON b (c);\n").unwrap().is_empty());
    }

    #[test]
    fn every_key_is_of_columns_and_led_by_its_tenant() {
        for table in TABLES.iter() {
            assert!(table.key.iter().all(|name| table.at(name).is_some()), "{}", table.name);
            let is_led = table.key[0] == "tenant";
            assert_eq!(is_led, table.owner == Owner::Number, "{}", table.name);
            if table.within == Within::Session {
                assert_eq!(table.key[1], "session", "{}", table.name);
            }
        }
    }
}
