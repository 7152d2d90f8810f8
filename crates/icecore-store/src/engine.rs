//! What the statements run on, whichever engine it is.
//!
//! Statements are written once, in the spelling that SQLite and PostgreSQL share.
//! The names follow rusqlite, so that a statement reads as it would there.

mod columns;
pub(crate) mod keyring;
pub(crate) mod notes;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod postgres_options;
pub(crate) mod rotation;
pub(crate) mod sqlite;
pub(crate) mod tx;

/// What every operation is written with.
pub(crate) mod prelude {
    pub(crate) use super::{
        Columns, Error, FromColumns, FromSql, Isolation, Owned, Params, Result, Row, ScopeNo,
        StoreError, ToSql, Tx, Value, column, fields, number, params, params_from_iter, record,
        tuple, values, words,
    };
}

use rusqlite::types::ToSqlOutput;

#[cfg(feature = "postgres")]
use crate::engine::postgres::{PgConnection, PgRow};
pub(crate) use crate::error::{Result, StoreError};

pub(crate) use crate::tables::Kind;
pub(crate) use columns::{
    Columns, FromColumns, column, fields, number, record, tuple, values, words,
};
pub(crate) use tx::{Isolation, ScopeNo, Tx};

/// A value on its way in or out. On its way in nothing, too, is of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Null(Kind),
    Integer(i64),
    Text(&'a str),
    Blob(&'a [u8]),
}

impl<'a> Value<'a> {
    /// What the column holds that it is meant for.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Value::Null(kind) => kind,
            Value::Integer(_) => Kind::Integer,
            Value::Text(_) => Kind::Text,
            Value::Blob(_) => Kind::Blob,
        }
    }

    pub(crate) fn as_str(self) -> Result<&'a str> {
        match self {
            Value::Text(text) => Ok(text),
            other => Err(misfit("a text", other)),
        }
    }

    pub(crate) fn as_blob(self) -> Result<&'a [u8]> {
        match self {
            Value::Blob(bytes) => Ok(bytes),
            other => Err(misfit("bytes", other)),
        }
    }

    fn as_integer(self) -> Result<i64> {
        match self {
            Value::Integer(number) => Ok(number),
            other => Err(misfit("a number", other)),
        }
    }
}

impl<'a> From<Value<'a>> for ToSqlOutput<'a> {
    fn from(value: Value<'a>) -> Self {
        use rusqlite::types::ValueRef;
        ToSqlOutput::Borrowed(match value {
            Value::Null(_) => ValueRef::Null,
            Value::Integer(number) => ValueRef::Integer(number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Blob(bytes) => ValueRef::Blob(bytes),
        })
    }
}

impl rusqlite::ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok((*self).into())
    }
}

/// A value that is kept for later. Values of one kind have the order that both engines give them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owned {
    Null(Kind),
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

impl Owned {
    pub(crate) fn borrowed(&self) -> Value<'_> {
        match self {
            Owned::Null(kind) => Value::Null(*kind),
            Owned::Integer(number) => Value::Integer(*number),
            Owned::Text(text) => Value::Text(text),
            Owned::Blob(bytes) => Value::Blob(bytes),
        }
    }
}

impl From<i64> for Owned {
    fn from(number: i64) -> Self {
        Owned::Integer(number)
    }
}

impl From<String> for Owned {
    fn from(text: String) -> Self {
        Owned::Text(text)
    }
}

impl From<Vec<u8>> for Owned {
    fn from(bytes: Vec<u8>) -> Self {
        Owned::Blob(bytes)
    }
}

pub(crate) trait ToSql {
    fn value(&self) -> Value<'_>;

    /// What the column holds that it is meant for.
    fn kind() -> Kind
    where
        Self: Sized;
}

macro_rules! texts_and_bytes_go_in {
    ($($kind:ty => $variant:ident),*) => {$(
        impl ToSql for $kind {
            fn value(&self) -> Value<'_> {
                Value::$variant(self.as_ref())
            }

            fn kind() -> Kind {
                Kind::$variant
            }
        }
    )*};
}

texts_and_bytes_go_in!(&str => Text, String => Text, &[u8] => Blob, Vec<u8> => Blob);

impl<const N: usize> ToSql for [u8; N] {
    fn value(&self) -> Value<'_> {
        Value::Blob(self)
    }

    fn kind() -> Kind {
        Kind::Blob
    }
}

impl<T: ToSql> ToSql for Option<T> {
    fn value(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Null(T::kind()), T::value)
    }

    fn kind() -> Kind {
        T::kind()
    }
}

impl<T: ToSql> ToSql for &T {
    fn value(&self) -> Value<'_> {
        T::value(self)
    }

    fn kind() -> Kind {
        T::kind()
    }
}

impl ToSql for Owned {
    fn value(&self) -> Value<'_> {
        self.borrowed()
    }

    fn kind() -> Kind {
        Kind::Text
    }
}

pub(crate) trait Params {
    fn values(&self) -> Vec<Value<'_>>;
}

impl Params for &[&dyn ToSql] {
    fn values(&self) -> Vec<Value<'_>> {
        self.iter().map(|one| one.value()).collect()
    }
}

impl<const N: usize> Params for &[&dyn ToSql; N] {
    fn values(&self) -> Vec<Value<'_>> {
        self.iter().map(|one| one.value()).collect()
    }
}

/// A row to insert: the names of columns, and their values.
impl Params for &[(&str, &dyn ToSql)] {
    fn values(&self) -> Vec<Value<'_>> {
        self.iter().map(|(_, value)| value.value()).collect()
    }
}

impl Params for [&dyn ToSql; 0] {
    fn values(&self) -> Vec<Value<'_>> {
        Vec::new()
    }
}

macro_rules! arrays_are_params {
    ($($length:literal),*) => {$(
        impl<T: ToSql> Params for [T; $length] {
            fn values(&self) -> Vec<Value<'_>> {
                self.iter().map(T::value).collect()
            }
        }
    )*};
}

arrays_are_params!(1, 2, 3, 4, 5, 6, 7, 8);

impl<T: ToSql> Params for Vec<T> {
    fn values(&self) -> Vec<Value<'_>> {
        self.iter().map(T::value).collect()
    }
}

impl Params for &[Value<'_>] {
    fn values(&self) -> Vec<Value<'_>> {
        self.to_vec()
    }
}

pub(crate) fn params_from_iter<T: ToSql>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    values.into_iter().collect()
}

macro_rules! params {
    ($($value:expr),* $(,)?) => {
        &[$(&$value as &dyn $crate::engine::ToSql),*]
    };
}
pub(crate) use params;

pub(crate) use crate::error::DatabaseError as Error;

pub(crate) trait FromSql: Sized {
    fn from_value(value: Value<'_>) -> Result<Self>;
}

impl FromSql for String {
    fn from_value(value: Value<'_>) -> Result<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl FromSql for Vec<u8> {
    fn from_value(value: Value<'_>) -> Result<Self> {
        value.as_blob().map(<[u8]>::to_vec)
    }
}

impl<const N: usize> FromSql for [u8; N] {
    fn from_value(value: Value<'_>) -> Result<Self> {
        let bytes = value.as_blob()?;
        bytes.try_into().map_err(|_| Error::broken(0, format!("{} bytes, not {N}", bytes.len())))
    }
}

impl<T: FromSql> FromSql for Option<T> {
    fn from_value(value: Value<'_>) -> Result<Self> {
        match value {
            Value::Null(_) => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }
}

/// Which column: its number.
pub(crate) trait Column {
    fn number(self) -> usize;
}

impl Column for usize {
    fn number(self) -> usize {
        self
    }
}

pub(crate) enum Row<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    #[cfg(feature = "postgres")]
    Postgres(&'r PgRow),
}

impl Row<'_> {
    pub(crate) fn get<C: Column, T: FromSql>(&self, column: C) -> Result<T> {
        let column = column.number();
        T::from_value(self.get_ref(column)?).map_err(|error| match error {
            StoreError::Database(Error::Broken { reason, .. }) => Error::broken(column, reason),
            other => other,
        })
    }

    pub(crate) fn get_ref(&self, column: usize) -> Result<Value<'_>> {
        match self {
            Row::Sqlite(row) => sqlite_value(row, column),
            #[cfg(feature = "postgres")]
            Row::Postgres(row) => row.value(column),
        }
    }
}

impl Row<'_> {
    /// The text of a column, also of one that is damaged.
    pub(crate) fn get_lossy(&self, column: usize) -> Result<String> {
        use rusqlite::types::ValueRef;
        match self {
            Row::Sqlite(row) => match row.get_ref(column)? {
                ValueRef::Text(text) => Ok(String::from_utf8_lossy(text).into_owned()),
                _ => self.get(column),
            },
            #[cfg(feature = "postgres")]
            Row::Postgres(_) => self.get(column),
        }
    }
}

fn sqlite_value<'r>(row: &'r rusqlite::Row<'r>, column: usize) -> Result<Value<'r>> {
    use rusqlite::types::ValueRef;
    Ok(match row.get_ref(column)? {
        ValueRef::Null => Value::Null(Kind::Text),
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Text(text) => {
            Value::Text(str::from_utf8(text).map_err(|error| Error::broken(column, error))?)
        }
        ValueRef::Blob(bytes) => Value::Blob(bytes),
        ValueRef::Real(_) => return Err(Error::broken(column, "a fraction")),
    })
}

fn bind(statement: &mut rusqlite::Statement<'_>, values: &[Value<'_>]) -> rusqlite::Result<()> {
    let expected = statement.parameter_count();
    if expected != values.len() {
        return Err(rusqlite::Error::InvalidParameterCount(values.len(), expected));
    }
    let mut numbered = values.iter().enumerate();
    numbered.try_for_each(|(at, value)| statement.raw_bind_parameter(at + 1, value))
}

#[cfg(feature = "postgres")]
fn visit_all(
    rows: Vec<tokio_postgres::Row>,
    mut visit: impl FnMut(&Row<'_>) -> Result<bool>,
) -> Result<()> {
    for row in rows {
        if !visit(&Row::Postgres(&PgRow::new(row)?))? {
            break;
        }
    }
    Ok(())
}

fn insert_sql(table: &str, row: &[(&str, &dyn ToSql)]) -> String {
    let names: Vec<&str> = row.iter().map(|(name, _)| *name).collect();
    let places: Vec<String> = (1..=row.len()).map(|at| format!("?{at}")).collect();
    format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), places.join(", "))
}

/// What statements run on, inside a transaction. It keeps the statements ready that it has run.
pub enum Connection {
    Sqlite(rusqlite::Connection),
    #[cfg(feature = "postgres")]
    Postgres(Box<PgConnection>),
}

impl Connection {
    /// The connection to the file, where SQLite keeps the tables.
    pub(crate) fn file(&self) -> Option<&rusqlite::Connection> {
        match self {
            Connection::Sqlite(connection) => Some(connection),
            #[cfg(feature = "postgres")]
            Connection::Postgres(_) => None,
        }
    }

    /// Calls `visit` with each row that a statement finds, until it returns false.
    pub(crate) fn visit(
        &self,
        sql: &str,
        params: impl Params,
        mut visit: impl FnMut(&Row<'_>) -> Result<bool>,
    ) -> Result<()> {
        match self {
            Connection::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(sql)?;
                bind(&mut statement, &params.values())?;
                let mut rows = statement.raw_query();
                while let Some(row) = rows.next()? {
                    if !visit(&Row::Sqlite(row))? {
                        break;
                    }
                }
                Ok(())
            }
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => {
                visit_all(connection.query(sql, &params.values())?, visit)
            }
        }
    }

    /// Every row that a statement finds, as `read` returns it.
    pub(crate) fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.visit(sql, params, |row| {
            found.push(read(row)?);
            Ok(true)
        })?;
        Ok(found)
    }

    pub(crate) fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        mut read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut found = None;
        self.visit(sql, params, |row| {
            found = Some(read(row)?);
            Ok(false)
        })?;
        Ok(found)
    }

    /// As [`Connection::first`]; no row is [`Error::NoRows`].
    pub(crate) fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        self.first(sql, params, read)?.ok_or(StoreError::Database(Error::NoRows))
    }

    pub(crate) fn finds(&self, sql: &str, params: impl Params) -> Result<bool> {
        Ok(self.first(sql, params, |_| Ok(()))?.is_some())
    }

    /// Runs a statement that changes rows; answers how many.
    pub(crate) fn run(&self, sql: &str, params: impl Params) -> Result<usize> {
        match self {
            Connection::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(sql)?;
                bind(&mut statement, &params.values())?;
                Ok(statement.raw_execute()?)
            }
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => {
                Ok(connection.execute(sql, &params.values())? as usize)
            }
        }
    }

    /// As [`Connection::all`], once for each of several keys. Where there is a server, it is
    /// sent all of them before it answers the first.
    pub(crate) fn each<'v, T>(
        &self,
        sql: &str,
        keys: impl IntoIterator<Item = Vec<Value<'v>>>,
        mut read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<Vec<T>>> {
        let keys: Vec<_> = keys.into_iter().collect();
        match self {
            Connection::Sqlite(_) => {
                keys.iter().map(|key| self.all(sql, key.as_slice(), &mut read)).collect()
            }
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => {
                let mut found = Vec::with_capacity(keys.len());
                for rows in connection.query_each(sql, &keys)? {
                    let mut read_rows = Vec::with_capacity(rows.len());
                    visit_all(rows, |row| {
                        read_rows.push(read(row)?);
                        Ok(true)
                    })?;
                    found.push(read_rows);
                }
                Ok(found)
            }
        }
    }

    /// As [`Connection::each`], all that is found one after the other.
    pub(crate) fn all_of<'v, T>(
        &self,
        sql: &str,
        keys: impl IntoIterator<Item = Vec<Value<'v>>>,
        read: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        Ok(self.each(sql, keys, read)?.into_iter().flatten().collect())
    }

    /// As [`Connection::run`], whatever the number of rows.
    pub(crate) fn change(&self, sql: &str, params: impl Params) -> Result<()> {
        self.run(sql, params).map(drop)
    }

    /// Adds a row to a table.
    pub(crate) fn insert(&self, table: &str, row: &[(&str, &dyn ToSql)]) -> Result<()> {
        self.change(&insert_sql(table, row), row)
    }

    /// Adds a row to a table, or replaces the values of the one that has this key, which
    /// are the first columns.
    pub(crate) fn upsert(&self, table: &str, key: usize, row: &[(&str, &dyn ToSql)]) -> Result<()> {
        let names: Vec<&str> = row.iter().map(|(name, _)| *name).collect();
        let (key, rest) = names.split_at(key);
        let rest: Vec<String> =
            rest.iter().map(|name| format!("{name} = excluded.{name}")).collect();
        let sql = format!(
            "{} ON CONFLICT ({}) DO UPDATE SET {}",
            insert_sql(table, row),
            key.join(", "),
            rest.join(", ")
        );
        self.change(&sql, row)
    }

    /// As [`Connection::run`], once for each of several rows.
    pub(crate) fn run_each(&self, sql: &str, rows: &[Vec<Value<'_>>]) -> Result<()> {
        match self {
            Connection::Sqlite(_) => {
                rows.iter().try_for_each(|row| self.run(sql, row.as_slice()).map(drop))
            }
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => Ok(connection.execute_each(sql, rows)?),
        }
    }

    pub(crate) fn insert_all<const N: usize>(
        &self,
        table: &str,
        columns: [&str; N],
        rows: &[[Value<'_>; N]],
    ) -> Result<()> {
        match self {
            Connection::Sqlite(_) => {
                let places: Vec<String> = (1..=N).map(|at| format!("?{at}")).collect();
                let (columns, places) = (columns.join(", "), places.join(", "));
                let sql = format!("INSERT INTO {table} ({columns}) VALUES ({places})");
                rows.iter().try_for_each(|row| self.run(&sql, row.as_slice()).map(drop))
            }
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => Ok(connection.insert_all(table, &columns, rows)?),
        }
    }

    pub(crate) fn new_tenant_number(&self) -> Result<i64> {
        match self {
            Connection::Sqlite(_) => {
                let next = "SELECT coalesce(max(tenant), 0) + 1 FROM tenants";
                self.one(next, [], column)
            }
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => Ok(connection.new_tenant_number()),
        }
    }

    /// Lets nobody else number a memory of this tenant until the transaction ends: those
    /// who number at once would all but one have to begin again.
    pub(crate) fn hold_scopes(&self, tenant: i64) -> Result<()> {
        match self {
            // One writes at a time.
            Connection::Sqlite(_) => Ok(()),
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => Ok(connection.hold_scopes(tenant)?),
        }
    }

    /// Keeps the store's master key what it is until the transaction ends, which writes:
    /// who reads afterwards which one it is may seal with it.
    pub(crate) fn hold_master_key(&self) -> Result<()> {
        match self {
            // Nobody else writes.
            Connection::Sqlite(_) => Ok(()),
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => Ok(connection.hold_master_key()?),
        }
    }

    /// Statements without values, one after the other.
    #[cfg(test)]
    pub(crate) fn execute_batch(&self, sql: &str) -> Result<()> {
        match self {
            Connection::Sqlite(connection) => Ok(connection.execute_batch(sql)?),
            #[cfg(feature = "postgres")]
            Connection::Postgres(connection) => Ok(connection.batch(sql)?),
        }
    }

    /// How SQLite goes about a statement, step by step.
    #[cfg(test)]
    pub(crate) fn plan(&self, sql: &str) -> Result<Vec<String>> {
        #[cfg_attr(
            not(feature = "postgres"),
            expect(irrefutable_let_patterns, reason = "there is one engine")
        )]
        let Connection::Sqlite(connection) = self else { return Ok(Vec::new()) };
        let mut query = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
        for at in 1..=query.parameter_count() {
            query.raw_bind_parameter(at, 1)?;
        }
        let mut steps = query.raw_query();
        let mut found = Vec::new();
        while let Some(step) = steps.next()? {
            found.push(step.get(3)?);
        }
        Ok(found)
    }
}

/// A column that does not hold what was expected of it.
fn misfit(expected: &str, found: Value<'_>) -> StoreError {
    let found = match found {
        Value::Null(_) => "nothing",
        Value::Integer(_) => "a number",
        Value::Text(_) => "a text",
        Value::Blob(_) => "bytes",
    };
    Error::broken(0, format!("{expected} was expected, and there is {found}"))
}
