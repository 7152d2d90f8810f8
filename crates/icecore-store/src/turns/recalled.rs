//! The text that memory put before messages, so that it can be put there again.

use icecore_domain::identity::Link;
use icecore_domain::ids::{Scope, SessionNo};
use icecore_domain::redact::RedactedText;

use crate::engine::prelude::*;
use crate::secrets;
use crate::store::Store;
use crate::turns::{NewRecalled, rows};

impl Store {
    /// Records what memory puts before a message that is a turn of a session, unless a
    /// record of the present epoch exists; answers whether it did. It does not if the
    /// memory's epoch has risen since: the text may tell of what was erased. As with an
    /// append, it may be [`StoreError::SecretsChanged`](crate::StoreError::SecretsChanged).
    ///
    /// The record is valid until the epoch rises. It is deleted with anything that is
    /// erased, rewritten or let go in its memory, with an entry that ends and with a fact
    /// that is rejected.
    pub async fn put_recalled(&self, scope: &Scope, recalled: NewRecalled) -> Result<bool> {
        self.write(scope, "put_recalled", move |tx| {
            secrets::refuse_changed(tx, tx.tenant()?, recalled.secrets_seen)?;
            let Some(no) = tx.scope_no()? else { return Ok(false) };
            if rows::scope_head(tx, tx.scope()?)?.epoch != recalled.epoch {
                return Ok(false);
            }
            let NewRecalled { session, link, epoch, ref text, .. } = recalled;
            let put = tx.run(
                "INSERT INTO recalled (tenant, scope, link, session, epoch, text)
                 SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE EXISTS (SELECT 1 FROM links
                   WHERE tenant = ?1 AND scope = ?2 AND link = ?3 AND session = ?4)
                 ON CONFLICT (tenant, scope, link, session) DO UPDATE SET epoch = ?5, text = ?6
                   WHERE recalled.epoch != ?5",
                params![no.tenant, no.scope, link, session, epoch, text],
            )?;
            Ok(put > 0)
        })
        .await
    }

    /// What memory put before messages of a session, in the order asked.
    pub async fn recalled(
        &self,
        scope: &Scope,
        session: SessionNo,
        links: &[Link],
    ) -> Result<Vec<(Link, RedactedText)>> {
        let links = links.to_vec();
        self.read(scope, "recalled", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            let epoch = rows::scope_head(tx, tx.scope()?)?.epoch;
            let key = |link| values![no.tenant, no.scope, link, session, epoch];
            let sql = "SELECT link, text FROM recalled
                 WHERE tenant = ?1 AND scope = ?2 AND link = ?3 AND session = ?4 AND epoch = ?5";
            tx.all_of(sql, links.iter().map(key), tuple)
        })
        .await
    }
}

/// Deletes the records of a tenant. Their texts may hold parts of a new secret, which no
/// redactor finds.
pub(crate) fn lose_all(tx: &Tx<'_>, tenant: i64) -> Result<()> {
    tx.change("DELETE FROM recalled WHERE tenant = ?1", [tenant])
}

/// Deletes the records of a memory from which something was erased.
pub(crate) fn lose(tx: &Tx<'_>, no: ScopeNo) -> Result<()> {
    tx.change("DELETE FROM recalled WHERE tenant = ?1 AND scope = ?2", [no.tenant, no.scope])
}
