//! What memory put before messages.

use super::engine::{self, Connection, Value, params};
use icecore_domain::identity::Link;
use icecore_domain::ids::{Scope, SessionNo};
use icecore_domain::redact::RedactedText;

use super::rows::{self, ScopeNo};
use super::{Shared, secrets};
use crate::store::*;

pub(super) fn put(c: &Connection, s: &Shared, scope: &Scope, new: &NewRecalled) -> Result<bool> {
    secrets::refuse_changed(c, s, scope.tenant(), new.secrets_seen)?;
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(false) };
    if rows::scope_head(c, s, scope)?.epoch != new.epoch {
        return Ok(false);
    }
    c.prepare_cached(
        "INSERT INTO recalled (tenant, scope, link, session, epoch, text)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE EXISTS (SELECT 1 FROM links
           WHERE tenant = ?1 AND scope = ?2 AND link = ?3 AND session = ?4)
         ON CONFLICT (tenant, scope, link, session) DO UPDATE SET epoch = ?5, text = ?6
           WHERE recalled.epoch != ?5",
    )
    .and_then(|mut q| {
        q.execute(params![
            no.tenant,
            no.scope,
            new.link.as_bytes().as_slice(),
            rows::number(new.session.0),
            rows::number(new.epoch),
            new.text.as_str(),
        ])
    })
    .map(|rows| rows > 0)
    .map_err(|e| s.failed(e))
}

pub(super) fn get(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    session: SessionNo,
    links: &[Link],
) -> Result<Vec<(Link, RedactedText)>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let epoch = rows::number(rows::scope_head(c, s, scope)?.epoch);
    let read = || {
        let mut query = c.prepare_cached(
            "SELECT text FROM recalled
             WHERE tenant = ?1 AND scope = ?2 AND link = ?3 AND session = ?4 AND epoch = ?5",
        )?;
        let numbers = [no.tenant, no.scope, rows::number(session.0), epoch].map(Value::Integer);
        let [tenant, scope, session, epoch] = numbers;
        let keys: Vec<_> = links
            .iter()
            .map(|link| vec![tenant, scope, Value::Blob(link.as_bytes()), session, epoch])
            .collect();
        let found = query.query_each(&keys, |row| row.get::<_, String>(0))?;
        let told = links.iter().zip(found).filter_map(|(link, found)| {
            found.into_iter().next().map(|text| (*link, read_back(text)))
        });
        Ok(told.collect())
    };
    read().map_err(|e: engine::Error| s.failed(e))
}

#[expect(clippy::disallowed_methods, reason = "it comes from our own rows")]
fn read_back(text: String) -> RedactedText {
    RedactedText::read_back(text)
}

/// Lets go of all of a tenant: what was hidden anew may stand in them in pieces.
pub(super) fn lose_all(c: &Connection, tenant: i64) -> engine::Result<()> {
    c.execute("DELETE FROM recalled WHERE tenant = ?1", [tenant]).map(|_| ())
}

/// Lets go of all of a memory, because something of that went.
pub(super) fn lose(c: &Connection, no: ScopeNo) -> engine::Result<()> {
    c.prepare_cached("DELETE FROM recalled WHERE tenant = ?1 AND scope = ?2")?
        .execute([no.tenant, no.scope])?;
    Ok(())
}
