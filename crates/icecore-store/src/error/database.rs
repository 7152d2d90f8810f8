//! What an engine answers to a statement that did not work.

use super::StoreError;
#[cfg(feature = "postgres")]
use super::postgres::PgError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(#[from] PgError),
    #[error("there is no such row")]
    NoRows,
    /// A column does not hold what was written into it.
    #[error("column {column}: {reason}")]
    Broken { column: usize, reason: String },
}

impl Error {
    /// A column that does not hold what was written into it.
    pub(crate) fn broken(column: usize, reason: impl ToString) -> StoreError {
        StoreError::Database(Error::Broken { column, reason: reason.to_string() })
    }

    /// Whether the engine answered, and what is in a row is wrong.
    pub(crate) fn is_broken_row(&self) -> bool {
        match self {
            Error::Sqlite(error) => error.sqlite_error_code().is_none(),
            #[cfg(feature = "postgres")]
            Error::Postgres(_) => false,
            Error::NoRows | Error::Broken { .. } => true,
        }
    }
}
