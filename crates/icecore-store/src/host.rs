//! What the host keeps besides memories: API keys, workspace files, workflow runs, schedules.

use crate::error::{Result, StoreError};

pub(crate) mod api_keys;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod workspace;

/// Whether a row was found and does not contain what was written.
fn is_damaged(error: &StoreError) -> bool {
    match error {
        StoreError::Damaged { .. } => true,
        StoreError::Database(error) => error.is_broken_row(),
        _ => false,
    }
}

/// What was read from a row, or `None` if the row is damaged.
fn unless_damaged<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if is_damaged(&error) => Ok(None),
        read => read.map(Some),
    }
}
