//! What a memory's next dream would read, and the lease to dream it.

use icecore_domain::entries::COMMITMENT_TAG;
use icecore_domain::ids::{Branch, Scope, SessionNo};
use icecore_domain::time::Millis;

use super::DreamSpan;
use crate::engine::prelude::*;
use crate::entries::derivation::{self, EntryPlace};
use crate::store::Store;
use crate::store::leases::MAX_LEASE_MILLIS;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// A name that no other holder has.
    pub holder: String,
    pub until: Millis,
}

/// The turns of a branch that no dream has read.
pub type Undreamt = DreamSpan;

impl Store {
    /// Takes or renews the lease to dream in a memory. Returns `false` while another
    /// holder's lease runs. For a memory without rows nothing is stored.
    pub async fn lease_dream(&self, scope: &Scope, lease: Lease, now: Millis) -> Result<bool> {
        self.write_with(scope, "lease_dream", lease, move |tx, lease| {
            let Some(no) = tx.scope_no()? else { return Ok(true) };
            // A lease that runs longer than any may was taken by a wrong clock.
            let latest = Millis(now.0.saturating_add(MAX_LEASE_MILLIS));
            let taken = tx.run(
                "UPDATE scopes SET dreamer = ?3, dreamer_until = ?4
                 WHERE tenant = ?1 AND scope = ?2 AND (dreamer IS NULL OR dreamer = ?3
                   OR dreamer_until <= ?5 OR dreamer_until > ?6)",
                params![no.tenant, no.scope, lease.holder, lease.until, now, latest],
            )?;
            Ok(taken > 0)
        })
        .await
    }

    /// Gives the lease back, if the holder has it.
    pub async fn release_dream(&self, scope: &Scope, holder: &str) -> Result<()> {
        let holder = holder.to_owned();
        self.write(scope, "release_dream", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(()) };
            tx.change(
                "UPDATE scopes SET dreamer = NULL, dreamer_until = NULL
                 WHERE tenant = ?1 AND scope = ?2 AND dreamer = ?3",
                params![no.tenant, no.scope, holder],
            )
        })
        .await
    }

    /// Where the first `limit` entries are that a dream would read, oldest first, after a
    /// place in that order: those in force that do not expire, are no commitments and were
    /// not written by the dream in force.
    pub async fn undreamt_entries(
        &self,
        scope: &Scope,
        after: Option<EntryPlace>,
        now: Millis,
        limit: usize,
    ) -> Result<Vec<EntryPlace>> {
        self.read(scope, "undreamt_entries", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            derivation::oldest(tx, no, &undreamt(), after, now, limit)
        })
        .await
    }

    /// Branches of a memory with turns that no dream has read, by session and branch,
    /// after one of them.
    pub async fn undreamt_branches(
        &self,
        scope: &Scope,
        after: Option<(SessionNo, Branch)>,
        limit: usize,
    ) -> Result<Vec<Undreamt>> {
        self.read(scope, "undreamt_branches", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            // Sessions are numbered from 1.
            let (session, branch) = after.unwrap_or((SessionNo(0), Branch::MAIN));
            let values = params![no.tenant, no.scope, session, branch, limit];
            tx.all(UNDREAMT_BRANCHES, values, tuple)
        })
        .await
    }
}

/// Condition: no dream has read the entry, and one would.
fn undreamt() -> String {
    format!(
        "expires_at IS NULL
           AND NOT EXISTS (SELECT 1 FROM dreams d INDEXED BY dreams_in_force
             WHERE d.tenant = ?1 AND d.scope = ?2 AND d.state = 'in-force'
               AND d.output = entries.id)
           AND NOT EXISTS (SELECT 1 FROM commitments k INDEXED BY commitments_by_entry
             WHERE k.tenant = ?1 AND k.scope = ?2 AND k.entry = entries.id)
           AND NOT EXISTS (SELECT 1 FROM json_each(tags) WHERE value = '{COMMITMENT_TAG}')"
    )
}

const UNDREAMT_BRANCHES: &str = "SELECT b.session, b.branch, b.dreamed_through, b.length
     FROM sessions o INDEXED BY sessions_by_scope
     CROSS JOIN branches b INDEXED BY branches_undreamt
       ON b.tenant = o.tenant AND b.session = o.session AND b.dreamed_through < b.length
     WHERE o.tenant = ?1 AND o.scope = ?2 AND o.session >= ?3
       AND (b.session, b.branch) > (?3, ?4)
     ORDER BY o.session, b.branch LIMIT ?5";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tx::Isolation;

    /// What a look for what is due does must not grow with what is not due.
    #[tokio::test]
    async fn what_is_due_is_found_without_a_scan() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), None).unwrap();
        for (sql, index) in [
            (derivation::oldest_sql(&undreamt()), "SEARCH entries USING INDEX entries_shown"),
            (UNDREAMT_BRANCHES.to_owned(), "SEARCH b USING INDEX branches_undreamt"),
        ] {
            let steps = store.read(Isolation::Global, "test", move |tx| tx.plan(&sql));
            let steps = steps.await.unwrap();
            assert!(steps.iter().any(|step| step.starts_with(index)), "{steps:?}");
            let is_scan = |step: &&String| step.starts_with("SCAN") && !step.contains("json_each");
            assert_eq!(steps.iter().find(is_scan), None, "{steps:?}");
        }
    }
}
