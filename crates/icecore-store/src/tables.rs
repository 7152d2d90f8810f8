//! Every table: its columns, its key, and whose its rows are.
//!
//! What is moved, backed up and restored goes by this list. A test compares it with
//! what the engines' own catalogues say, so that no table is forgotten.

use std::sync::LazyLock;

use crate::engine::Kind;

/// The schema that the list describes: how many migrations SQLite has.
pub(crate) const SCHEMA: i64 = 15;

/// What stays where it is: what the store says of itself, and who works on it now.
#[cfg(test)]
pub(crate) const LOCAL: [&str; 2] = ["notes", "leases"];

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    /// What it is called.
    pub(crate) name: &'static str,
    /// The columns of its primary key, in order.
    pub(crate) key: Vec<&'static str>,
    /// Whose its rows are.
    pub(crate) owner: Owner,
    /// Which of them are one memory's.
    pub(crate) within: Within,
    /// All columns.
    pub(crate) columns: Vec<Column>,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    /// What it is called.
    pub(crate) name: &'static str,
    /// What it holds.
    pub(crate) kind: Kind,
}

/// Whose rows they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The tenant's whose number is in `tenant`.
    Number,
    /// The tenant's whose name is in `tenant`.
    Name,
    /// Everybody's.
    Everyone,
}

/// Which rows of a tenant are one memory's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Within {
    /// Every one: what the memory's own rows rest on.
    Every,
    /// Those of its sessions.
    Session,
    /// Those for which this holds; `?1` is the tenant, `?2` the memory, as numbers.
    Where(&'static str),
    /// None.
    None,
}

impl Table {
    /// The place of a column among the columns.
    pub(crate) fn at(&self, column: &str) -> Option<usize> {
        self.columns.iter().position(|known| known.name == column)
    }
}

/// The table of that name.
pub(crate) fn table(name: &str) -> Option<&'static Table> {
    TABLES.iter().find(|table| table.name == name)
}

/// All tables whose rows move, each after those that it refers to.
pub(crate) static TABLES: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let listed = LISTED.iter().map(|(name, key, owner, within, columns)| Table {
        name,
        key: key.split_whitespace().collect(),
        owner: *owner,
        within: *within,
        columns: columns.split_whitespace().map(column).collect(),
    });
    listed.collect()
});

/// A column from `name`, `name:text` or `name:blob`.
fn column(listed: &'static str) -> Column {
    let (name, kind) = listed.split_once(':').unwrap_or((listed, ""));
    let kind = match kind {
        "text" => Kind::Text,
        "blob" => Kind::Blob,
        _ => Kind::Integer,
    };
    Column { name, kind }
}

const SCOPE: Within = Within::Where("scope = ?2");
const OF_SCHEDULE: &str = "schedule IN (SELECT id FROM schedules WHERE tenant = ?1 AND scope = ?2)";

/// Name, key, owner, what is one memory's, and columns: numbers, unless said otherwise.
///
/// The plus keeps SQLite from an index that would have every page sorted anew.
const LISTED: &[(&str, &str, Owner, Within, &str)] = &[
    ("policies", "policy", Owner::Everyone, Within::Every, "policy micro mini macro max_tokens"),
    (
        "tenants",
        "tenant",
        Owner::Number,
        Within::Every,
        "tenant name:text sealed_key:blob position sessions secrets_version index_lost \
         dream_losses kept_turns kept_bytes used_day used_requests used_tokens",
    ),
    (
        "scopes",
        "tenant scope",
        Owner::Number,
        SCOPE,
        "tenant scope memory:text epoch summaries facts facts_through entries_from \
         looked_through dreamer:text dreamer_until dreams_lost",
    ),
    (
        "sessions",
        "tenant session",
        Owner::Number,
        SCOPE,
        "tenant session scope name:text name_hash:blob turns tokens last_seq updated_at \
         current",
    ),
    (
        "branches",
        "tenant session branch",
        Owner::Number,
        Within::Session,
        "tenant session branch fork_branch fork_ordinal policy length head_seq micro_first \
         mini_first macro_first micro_first_seq mini_first_seq macro_first_seq micro_tokens \
         mini_tokens macro_tokens warm_through cold_through micro_through mini_through \
         macro_through version unsettled dreamed_through",
    ),
    (
        "speakers",
        "tenant session speaker",
        Owner::Number,
        Within::Session,
        "tenant session speaker name_hash:blob",
    ),
    (
        "turns",
        "tenant session seq",
        Owner::Number,
        Within::Session,
        "tenant session seq position branch ordinal speaker tokens flags at lookup \
         identity:blob",
    ),
    ("runs", "tenant first", Owner::Number, SCOPE, "tenant first session first_seq count at scope"),
    (
        "bodies",
        "tenant session seq",
        Owner::Number,
        Within::Session,
        "tenant session seq body:blob",
    ),
    (
        "chunks",
        "tenant session branch level first",
        Owner::Number,
        Within::Session,
        "tenant session branch level first last first_seq last_seq turns tokens revision \
         policy",
    ),
    (
        "texts",
        "tenant session branch first",
        Owner::Number,
        Within::Session,
        "tenant session branch first format packed text:blob",
    ),
    (
        "packs",
        "tenant session branch first",
        Owner::Number,
        Within::Session,
        "tenant session branch first last name:text sealed_key:blob bytes sha256:blob \
         created_at",
    ),
    (
        "summaries",
        "tenant session branch level first",
        Owner::Number,
        Within::Session,
        "tenant session branch level first packed summary:blob scope number",
    ),
    (
        "facts",
        "tenant scope number",
        Owner::Number,
        SCOPE,
        "tenant scope number key:blob kind:text subject:text fact:blob valid_from session seq \
         at recorded_at",
    ),
    (
        "verdicts",
        "tenant scope key",
        Owner::Number,
        SCOPE,
        "tenant scope key:blob verdict:text kind:text subject:text fact:blob valid_from \
         session seq at position",
    ),
    (
        "entries",
        "tenant scope id",
        Owner::Number,
        SCOPE,
        "tenant scope id:text content:blob tags:text created_at expires_at began ended \
         ended_at derived successor:text superseded_until overtaken",
    ),
    (
        "entry_quotes",
        "tenant scope source output",
        Owner::Number,
        SCOPE,
        "tenant scope source:text output:text",
    ),
    (
        "log",
        "tenant position",
        Owner::Number,
        SCOPE,
        "tenant position scope at kind:text payload:text",
    ),
    (
        "hidden",
        "tenant position kind",
        Owner::Number,
        Within::Where("+scope = ?2"),
        "tenant position scope kind:text count",
    ),
    (
        "commitments",
        "tenant id",
        Owner::Number,
        SCOPE,
        "tenant scope id:text entry:text state created_at settled_at due_at tag:text \
         mentions:text position",
    ),
    (
        "dreams",
        "tenant run",
        Owner::Number,
        SCOPE,
        "tenant run:text scope number state:text previous:text trigger:text distiller:text \
         output:text archive:blob budget minimum input_tokens output_tokens source_count \
         remaining bytes_before bytes_after lines index_updated position created_at \
         section:text source_ids:text",
    ),
    (
        "dream_spans",
        "tenant session branch run",
        Owner::Number,
        Within::Session,
        "tenant session branch run:text after through",
    ),
    (
        "archives",
        "tenant scope checksum",
        Owner::Number,
        SCOPE,
        "tenant scope checksum:blob run:text name:text sealed_key:blob bytes stored_bytes \
         sha256:blob created_at erased_at expired_at",
    ),
    (
        "schedules",
        "tenant id",
        Owner::Number,
        SCOPE,
        "tenant scope id:text task:text cron:text timezone:text once_at budget catch_up:text \
         jitter created_at paused handled_through next_at fires_at failures not_before missed",
    ),
    (
        "ticks",
        "tenant schedule at",
        Owner::Number,
        Within::Where(OF_SCHEDULE),
        "tenant schedule:text at outcome:text run:text error:text holder:text heartbeat \
         attempts started_at ended_at missed",
    ),
    (
        "handoffs",
        "tenant session branch position",
        Owner::Number,
        Within::Session,
        "tenant session branch position id:text number through kept:text text:text tokens \
         tokens_before tokens_after made_by:text trigger:text previous:text version \
         created_at",
    ),
    (
        "view_usage",
        "tenant session branch model",
        Owner::Number,
        Within::Session,
        "tenant session branch model:text through handoff:text tokens counted",
    ),
    (
        "answers",
        "tenant scope key",
        Owner::Number,
        SCOPE,
        "tenant scope key:blob session text:text created_at",
    ),
    (
        "spending",
        "tenant scope day purpose model",
        Owner::Number,
        SCOPE,
        "tenant scope day purpose:text model:text calls failed reused input cached_input \
         output cost saved",
    ),
    (
        "links",
        "tenant scope link session",
        Owner::Number,
        SCOPE,
        "tenant scope link:blob session seq answered hollow",
    ),
    (
        "recalled",
        "tenant scope link session",
        Owner::Number,
        SCOPE,
        "tenant scope link:blob session epoch text:text",
    ),
    (
        "secrets",
        "tenant name number",
        Owner::Number,
        Within::None,
        "tenant name:text number sealed:blob added_at",
    ),
    (
        "files",
        "tenant workspace path version",
        Owner::Number,
        Within::None,
        "tenant workspace:text path:text version position updated_at content_type:text \
         digest:blob hidden:text content:blob",
    ),
    (
        "outcomes",
        "tenant operation key",
        Owner::Number,
        Within::None,
        "tenant operation:text key:text request:blob status body:blob at",
    ),
    (
        "workflow_runs",
        "tenant run",
        Owner::Number,
        Within::None,
        "tenant run:text workspace:text principal:text workflow:text status:text position \
         created_at ended_at expired_at events source:text from_seq error:text inputs:text \
         files:text variables:text",
    ),
    (
        "run_events",
        "tenant run sequence",
        Owner::Number,
        Within::None,
        "tenant run:text sequence at kind:text node:text cause:text payload:text",
    ),
    (
        "api_keys",
        "hash",
        Owner::Name,
        Within::None,
        "hash:blob id:text tenant:text role:text created_at name:text expires_at revoked_at",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use crate::engine::tx::Isolation;
    use crate::engine::{Connection, Result};

    /// A table as the catalogue has it: its name, its key, its columns by name.
    type Found = (String, Vec<String>, Vec<(String, Kind)>);

    fn in_sqlite(c: &Connection) -> Result<Vec<Found>> {
        let names: Vec<String> = c
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_>>()?;
        let describe = |name: String| {
            let columns: Vec<(String, String, i64)> = c
                .prepare("SELECT name, type, pk FROM pragma_table_info(?1) ORDER BY name")?
                .query_map([&name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect::<Result<_>>()?;
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

    #[test]
    fn the_schema_is_the_newest() {
        assert_eq!(SCHEMA, crate::engine::sqlite::schema());
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
