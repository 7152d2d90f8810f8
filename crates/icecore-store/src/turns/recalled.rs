//! What memory put before messages.

use icecore_domain::identity::Link;
use icecore_domain::ids::{Scope, SessionNo};
use icecore_domain::redact::RedactedText;

use crate::engine::tx::{Isolation, ScopeNo, Tx};
use crate::engine::{Value, params};
use crate::error::Result;
use crate::store::Store;
use crate::turns::{NewRecalled, rows};
use crate::{engine, scopes, secrets};

pub(crate) fn put(tx: &Tx<'_>, scope: &Scope, new: &NewRecalled) -> Result<bool> {
    secrets::refuse_changed(tx, scope.tenant(), new.secrets_seen)?;
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(false) };
    if rows::scope_head(tx, scope)?.epoch != new.epoch {
        return Ok(false);
    }
    tx.prepare_cached(
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
            engine::number(new.session.0),
            engine::number(new.epoch),
            new.text.as_str(),
        ])
    })
    .map(|rows| rows > 0)
}

pub(crate) fn get(
    tx: &Tx<'_>,
    scope: &Scope,
    session: SessionNo,
    links: &[Link],
) -> Result<Vec<(Link, RedactedText)>> {
    let Some(no) = scopes::scope_no(tx, scope)? else { return Ok(Vec::new()) };
    let epoch = engine::number(rows::scope_head(tx, scope)?.epoch);
    let read = || -> Result<_> {
        let mut query = tx.prepare_cached(
            "SELECT text FROM recalled
             WHERE tenant = ?1 AND scope = ?2 AND link = ?3 AND session = ?4 AND epoch = ?5",
        )?;
        let numbers = [no.tenant, no.scope, engine::number(session.0), epoch].map(Value::Integer);
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
    read()
}

#[expect(clippy::disallowed_methods, reason = "it comes from our own rows")]
fn read_back(text: String) -> RedactedText {
    RedactedText::read_back(text)
}

/// Lets go of all of a tenant: what was hidden anew may stand in them in pieces.
pub(crate) fn lose_all(tx: &Tx<'_>, tenant: i64) -> Result<()> {
    tx.execute("DELETE FROM recalled WHERE tenant = ?1", [tenant]).map(|_| ())
}

/// Lets go of all of a memory, because something of that went.
pub(crate) fn lose(tx: &Tx<'_>, no: ScopeNo) -> Result<()> {
    tx.prepare_cached("DELETE FROM recalled WHERE tenant = ?1 AND scope = ?2")?
        .execute([no.tenant, no.scope])?;
    Ok(())
}

impl Store {
    /// Keeps what memory puts before a message that is a turn of a session, unless there
    /// is something that still holds; answers whether it did. Not if the memory's epoch is
    /// another by now: it may tell of what is gone. As with an append, it may be
    /// [`StoreError::SecretsChanged`].
    ///
    /// It holds as long as the epoch stays, and goes with whatever is erased, rewritten or
    /// let go in its memory, with an entry that ends and with a fact that is rejected.
    pub async fn put_recalled(&self, scope: &Scope, recalled: NewRecalled) -> Result<bool> {
        let scope = scope.clone();
        self.write(Isolation::from(&scope), "put_recalled", move |tx| put(tx, &scope, &recalled))
            .await
    }

    /// What memory put before messages of a session, in the order asked.
    pub async fn recalled(
        &self,
        scope: &Scope,
        session: SessionNo,
        links: &[Link],
    ) -> Result<Vec<(Link, RedactedText)>> {
        let (scope, links) = (scope.clone(), links.to_vec());
        self.read(Isolation::from(&scope), "recalled", move |tx| get(tx, &scope, session, &links))
            .await
    }
}
