//! How much was hidden in what an event put there.

use icecore_domain::redact::Hidden;

use crate::engine;
use crate::engine::tx::{ScopeNo, Tx};
use crate::engine::{Params, Row, params};
use crate::error::Result;

/// Counts what was hidden in what got this position.
pub(crate) fn put_hidden(tx: &Tx<'_>, no: ScopeNo, position: i64, hidden: &Hidden) -> Result<()> {
    for (kind, count) in hidden {
        tx.prepare_cached(
            "INSERT INTO hidden (tenant, position, scope, kind, count) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (tenant, position, kind) DO UPDATE SET count = hidden.count + ?5",
        )?
        .execute(params![no.tenant, position, no.scope, kind, engine::number(*count)])?;
    }
    Ok(())
}

/// Lets go of the counts of what is at the positions of a query, whose first
/// parameter is the tenant.
pub(crate) fn forget_hidden(tx: &Tx<'_>, positions: &str, values: impl Params) -> Result<()> {
    let delete = format!("DELETE FROM hidden WHERE tenant = ?1 AND position IN ({positions})");
    tx.prepare_cached(&delete)?.execute(values)?;
    Ok(())
}

/// Counts from a column that has them as a JSON object.
pub(crate) fn read_hidden(row: &Row<'_>, column: usize) -> Result<Hidden> {
    let json: String = row.get(column)?;
    Ok(serde_json::from_str(&json).unwrap_or_default())
}
