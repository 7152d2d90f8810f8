//! Counts of what redaction hid in the text of an event, by position in the log.

use icecore_domain::redact::Hidden;

use crate::engine::prelude::*;

pub(crate) fn put_hidden(
    tx: &Tx<'_>,
    no: ScopeNo,
    position: impl ToSql,
    hidden: &Hidden,
) -> Result<()> {
    for (kind, count) in hidden {
        tx.change(
            "INSERT INTO hidden (tenant, position, scope, kind, count) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (tenant, position, kind) DO UPDATE SET count = hidden.count + ?5",
            params![no.tenant, position, no.scope, kind, count],
        )?;
    }
    Ok(())
}

/// Deletes the counts at the positions that a query selects; its first parameter is the
/// tenant.
pub(crate) fn forget_hidden(tx: &Tx<'_>, positions: &str, values: impl Params) -> Result<()> {
    let delete = format!("DELETE FROM hidden WHERE tenant = ?1 AND position IN ({positions})");
    tx.change(&delete, values)
}

pub(crate) fn read_hidden(row: &Row<'_>, column: usize) -> Result<Hidden> {
    let json: String = row.get(column)?;
    Ok(serde_json::from_str(&json).unwrap_or_default())
}
