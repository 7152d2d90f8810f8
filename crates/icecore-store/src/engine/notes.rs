//! Notes: what a store knows about itself, by name.

use super::column;
use super::tx::Tx;
use crate::error::Result;

/// Note under which the master key's check value is kept.
pub(crate) const KEY_CHECK: &str = "master-key-check";

pub(crate) fn put_note(tx: &Tx<'_>, name: &str, value: &str) -> Result<()> {
    let put = "INSERT INTO notes (name, value) VALUES (?1, ?2)
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    tx.run(put, [name, value]).map(drop)
}

/// Puts a note unless there is one of that name; answers the one that is there afterwards.
pub(crate) fn note_once(tx: &Tx<'_>, name: &str, value: &str) -> Result<String> {
    tx.run(
        "INSERT INTO notes (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING",
        [name, value],
    )?;
    tx.one("SELECT value FROM notes WHERE name = ?1", [name], column)
}

pub(crate) fn note(tx: &Tx<'_>, name: &str) -> Result<Option<String>> {
    tx.first("SELECT value FROM notes WHERE name = ?1", [name], column)
}
