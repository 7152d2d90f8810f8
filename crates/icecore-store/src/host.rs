//! What the host keeps besides memories: API keys, workspace files, workflow runs, schedules.

use crate::error::{Result, StoreError};

pub(crate) mod api_keys;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod workspace;

/// What was read from a row, or `None` if the row is damaged.
fn unless_damaged<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(StoreError::Damaged { .. }) => Ok(None),
        Err(StoreError::Database(error)) if error.is_broken_row() => Ok(None),
        Err(error) => Err(error),
    }
}
