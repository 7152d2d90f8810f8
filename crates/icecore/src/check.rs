//! Is everything whole? And mending what can be.

use std::collections::BTreeSet;
use std::time::Duration;

use icecore_domain::ids::{Ordinal, Principal, Scope, Tenant};
use icecore_store::{BodyPlace, PackRecord, StoreError, TurnState};

use crate::bodies::decode;
use crate::error::{MemoryError, Result};
use crate::history::PAGE;
use crate::memory::Memory;

/// What was looked at and what was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckReport {
    /// Turns whose body was read back.
    pub turns: u64,
    /// Bodies in text that were decoded.
    pub texts: u64,
    /// Packs that were opened and decoded.
    pub packs: u64,
    /// Packs that nothing points to: left by a crash, harmless.
    pub orphans: u64,
    /// Orphans that were removed.
    pub removed: u64,
    /// What is damaged, each with its place.
    pub problems: Vec<String>,
}

impl CheckReport {
    /// Whether nothing is damaged.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}

/// A pack as `archive list` and `archive verify` show it.
#[derive(Debug, Clone)]
pub struct PackReport {
    /// The record.
    pub pack: PackRecord,
    /// What is wrong with it, if anything was looked at and found.
    pub problem: Option<String>,
}

/// Files of writers that were killed are removed once they are this old.
const LEFTOVER_AGE: Duration = Duration::from_secs(3600);

impl Memory {
    /// Verifies every invariant of the store and every body in every tier.
    /// Derived work that is merely due is no failure. With `repair`, objects
    /// that nothing points to are removed.
    pub async fn check(&self, repair: bool, mut tell: impl FnMut(u64, u64)) -> Result<CheckReport> {
        let mut report =
            CheckReport { problems: self.inner.store.check().await?, ..CheckReport::default() };
        // Reading bodies over broken tables would only repeat what is known.
        if !report.is_ok() {
            return Ok(report);
        }
        let tenants = self.inner.store.tenants().await?;
        for (number, tenant) in tenants.iter().enumerate() {
            self.check_tenant(tenant, &mut report).await?;
            tell(number as u64 + 1, tenants.len() as u64);
        }
        self.check_orphans(repair, &mut report).await?;
        Ok(report)
    }

    async fn check_tenant(&self, tenant: &Tenant, report: &mut CheckReport) -> Result<()> {
        let principal = Principal::local_operator(tenant.clone());
        for memory in self.inner.store.memories(tenant).await? {
            let scope = self.scope(&principal, &memory)?;
            let mut after = None;
            loop {
                let page = self.inner.store.sessions(&scope, after, PAGE).await?;
                for record in &page {
                    for branch in &record.branches {
                        self.check_branch(&scope, record.no, branch, report).await?;
                    }
                }
                after = page.last().map(|record| record.no);
                if page.len() < PAGE {
                    break;
                }
            }
        }
        for pack in self.verify_packs(Some(tenant), |_, _| {}).await? {
            report.packs += 1;
            report.problems.extend(pack.problem);
        }
        Ok(())
    }

    /// Reads every text of a branch; packs are read by themselves.
    async fn check_branch(
        &self,
        scope: &Scope,
        session: icecore_domain::ids::SessionNo,
        branch: &icecore_store::BranchRecord,
        report: &mut CheckReport,
    ) -> Result<()> {
        report.turns += branch.tail.length;
        let mut from = branch.cold_through.0 + 1;
        while from <= branch.warm_through.0 {
            let through = Ordinal((from + PAGE as u64).min(branch.warm_through.0));
            let found = self
                .inner
                .store
                .bodies(scope, session, branch.branch, Ordinal(from), through)
                .await;
            let bodies = match found {
                Ok(bodies) => bodies,
                Err(error) => {
                    report.problems.push(error.to_string());
                    return Ok(());
                }
            };
            let Some(last) = bodies.last().map(|body| body.id.last) else { break };
            for body in &bodies {
                let problem = match &body.place {
                    BodyPlace::Text(text) => {
                        report.texts += 1;
                        match decode(&body.id, text) {
                            Ok(turns) => self.count_problem(scope, body, turns.len()).await?,
                            Err(error) => Some(error.to_string()),
                        }
                    }
                    BodyPlace::Gone => self.count_problem(scope, body, 0).await?,
                    BodyPlace::Rows | BodyPlace::Pack(_) => None,
                };
                report.problems.extend(problem);
            }
            from = last.0 + 1;
        }
        Ok(())
    }

    /// Whether a body holds as many turns as the rows say.
    async fn count_problem(
        &self,
        scope: &Scope,
        body: &icecore_store::MicroBody,
        held: usize,
    ) -> Result<Option<String>> {
        let rows = self.micro_rows(scope, body).await?;
        let present = rows.iter().filter(|row| row.state == TurnState::Present).count();
        Ok((present != held).then(|| {
            format!("the body of {} holds {held} turns and should hold {present}", body.id)
        }))
    }

    /// Packs of a tenant, unread.
    pub async fn packs(&self, tenant: Option<&Tenant>) -> Result<Vec<PackReport>> {
        let packs = self.inner.store.packs(tenant).await?;
        Ok(packs.into_iter().map(|pack| PackReport { pack, problem: None }).collect())
    }

    /// Packs of a tenant, or of all, each re-hashed, opened and decoded.
    pub async fn verify_packs(
        &self,
        tenant: Option<&Tenant>,
        mut tell: impl FnMut(u64, u64),
    ) -> Result<Vec<PackReport>> {
        let packs = self.inner.store.packs(tenant).await?;
        let total = packs.len() as u64;
        let mut reports = Vec::with_capacity(packs.len());
        for (number, pack) in packs.into_iter().enumerate() {
            let problem = self.pack_problem(&pack).await?;
            reports.push(PackReport { pack, problem });
            tell(number as u64 + 1, total);
        }
        Ok(reports)
    }

    /// What is wrong with a pack: missing, changed, or not what the rows say.
    async fn pack_problem(&self, pack: &PackRecord) -> Result<Option<String>> {
        let bodies = self
            .inner
            .store
            .bodies(&pack.scope, pack.id.session, pack.id.branch, pack.id.first, pack.id.last)
            .await?;
        // The pack may have been replaced since it was listed.
        let mine: Vec<_> = bodies
            .into_iter()
            .filter(|body| matches!(&body.place, BodyPlace::Pack(now) if now.name == pack.name))
            .collect();
        let shown = |error: MemoryError| {
            format!(
                "{error} (turns {} to {} of session {})",
                pack.id.first, pack.id.last, pack.id.session
            )
        };
        match self.read_micros(&pack.scope, &mine).await {
            Err(
                error @ MemoryError::Store(
                    StoreError::PackMissing { .. }
                    | StoreError::PackDamaged { .. }
                    | StoreError::BodyDamaged { .. },
                ),
            ) => Ok(Some(shown(error))),
            Err(error) => Err(error),
            Ok(turns) => {
                let mut present = 0;
                for body in &mine {
                    let rows = self.micro_rows(&pack.scope, body).await?;
                    present += rows.iter().filter(|row| row.state == TurnState::Present).count();
                }
                let held = turns.len();
                Ok((held != present).then(|| {
                    format!("pack `{}` holds {held} turns and should hold {present}", pack.name)
                }))
            }
        }
    }

    /// Objects without a record, left by a crash between writing and recording.
    async fn check_orphans(&self, repair: bool, report: &mut CheckReport) -> Result<()> {
        // Listed first: a pack recorded after that is not mistaken for an orphan.
        let objects = self.inner.packs.list().await?;
        let recorded: BTreeSet<String> =
            self.inner.store.packs(None).await?.into_iter().map(|pack| pack.name).collect();
        for object in objects.iter().filter(|object| !recorded.contains(&object.name)) {
            report.orphans += 1;
            if repair {
                self.inner.packs.delete(&object.name).await?;
                report.removed += 1;
            }
        }
        if repair {
            self.inner.packs.remove_leftovers(LEFTOVER_AGE).await?;
        }
        Ok(())
    }
}
