//! What has to be done again after dreams were lost with something that was forgotten.

use icecore_domain::ids::{Scope, Tenant};

use crate::engine::prelude::*;
use crate::host::workspace;
use crate::store::Store;

/// A memory to dream again because its dreams were lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DreamDue {
    pub scope: Scope,
    pub budget: u64,
    /// The memory's epoch, which rises when more is lost.
    pub epoch: u64,
}

record! {
    DreamDue { scope, budget, epoch }
}

impl Store {
    /// Memories of any tenant whose dreams were lost with something that was forgotten,
    /// deleted or rewritten.
    ///
    /// A dream is touched by the loss of a turn that it read or of a fact from one, of an
    /// entry that it was made of or wrote, of a verdict that was there when it was stored,
    /// and by a secret that is found in its own texts. With the first that is touched all
    /// later dreams of the memory are lost: their entries, so that what these superseded
    /// is in force again; the keys of their archives, unless a remaining dream has the
    /// same; and the tenant's index file with all its versions. The turns that they read
    /// count as unread, the dream before them is in force, and `dream.lost` is logged.
    pub async fn lost_dreams(&self, limit: usize) -> Result<Vec<DreamDue>> {
        self.read(Isolation::Global, "lost_dreams", move |tx| {
            let sql = "SELECT t.name, p.memory, p.dreams_lost, p.epoch
                 FROM scopes p INDEXED BY scopes_dreams_lost
                 JOIN tenants t ON t.tenant = p.tenant
                 WHERE p.dreams_lost IS NOT NULL ORDER BY p.tenant, p.scope LIMIT ?1";
            tx.all(sql, [limit], tuple)
        })
        .await
    }

    /// Notes that a memory was dreamt again, or has nothing to dream of; not if its epoch
    /// has risen, for then more may have been lost.
    pub async fn settle_lost_dreams(&self, due: &DreamDue) -> Result<()> {
        let epoch = due.epoch;
        self.write(&due.scope, "settle_lost_dreams", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(()) };
            tx.change(
                "UPDATE scopes SET dreams_lost = NULL
                 WHERE tenant = ?1 AND scope = ?2 AND epoch = ?3",
                params![no.tenant, no.scope, epoch],
            )
        })
        .await
    }

    /// Notes that a memory is to be dreamt again with this budget, or a larger one that
    /// was noted before.
    pub async fn note_lost_dreams(&self, scope: &Scope, budget: u64) -> Result<()> {
        self.write(scope, "note_lost_dreams", move |tx| {
            tx.scope_no()?.map_or(Ok(()), |no| note(tx, no, budget))
        })
        .await
    }

    /// How often dreams of a tenant were lost or redacted again. A caller that writes what
    /// it reads of dreams asks for this first, and has the store compare it:
    /// [`Expect::Unlost`](crate::Expect::Unlost).
    pub async fn dream_losses(&self, tenant: &Tenant) -> Result<u64> {
        self.read(tenant, "dream_losses", |tx| {
            tx.tenant_no()?.map_or(Ok(0), |no| workspace::losses(tx, no))
        })
        .await
    }

    /// Tenants whose index file was lost and not written again.
    pub async fn lost_indexes(&self, limit: usize) -> Result<Vec<Tenant>> {
        self.read(Isolation::Global, "lost_indexes", move |tx| {
            let sql = "SELECT name FROM tenants INDEXED BY tenants_index_lost
                 WHERE index_lost = 1 ORDER BY tenant LIMIT ?1";
            tx.all(sql, [limit], column)
        })
        .await
    }

    /// Notes that a tenant's index file need not be written again; not if dreams were lost
    /// since there were `losses`.
    pub async fn settle_lost_index(&self, tenant: &Tenant, losses: u64) -> Result<()> {
        self.write(tenant, "settle_lost_index", move |tx| {
            let Some(no) = tx.tenant_no()? else { return Ok(()) };
            tx.change(
                "UPDATE tenants SET index_lost = 0 WHERE tenant = ?1 AND dream_losses = ?2",
                params![no, losses],
            )
        })
        .await
    }
}

pub(crate) fn note(tx: &Tx<'_>, no: ScopeNo, budget: u64) -> Result<()> {
    tx.change(
        "UPDATE scopes SET dreams_lost = max(coalesce(dreams_lost, 0), ?3)
         WHERE tenant = ?1 AND scope = ?2",
        params![no.tenant, no.scope, budget],
    )
}
