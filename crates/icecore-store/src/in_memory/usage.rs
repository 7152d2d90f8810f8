//! What tenants keep and used, counted when asked.

use icecore_domain::ids::Tenant;
use icecore_domain::turn_jsonl;

use super::state::{BranchState, SessionState, State, TenantState};
use crate::bounds::{Change, entry_bytes, goes_on, refuse_beyond};
use crate::sql::pyramid::squeeze;
use crate::store::*;

impl State {
    /// Refuses what a client gives beyond a bound.
    pub(super) fn refuse_beyond(
        &self,
        tenant: &Tenant,
        change: impl FnOnce() -> Change,
    ) -> Result<()> {
        let bounds = self.bounds.of(tenant);
        if bounds == KeptBounds::default() {
            return Ok(());
        }
        let change = change();
        let mut after = self.tenant(tenant).map(TenantState::kept).unwrap_or_default();
        after.add(change);
        refuse_beyond(bounds, tenant, change, after)
    }
}

impl TenantState {
    /// What is kept.
    pub(super) fn kept(&self) -> Change {
        let mut kept = Change::default();
        self.sessions.iter().for_each(|session| kept.add(session.kept()));
        for entry in &self.entries {
            kept.bytes += entry_bytes(&entry.record.content, &entry.record.tags);
        }
        kept.bytes += self.files.iter().map(|file| file.bytes()).sum::<i64>();
        kept
    }

    pub(super) fn usage(&self, day: i64) -> Usage {
        let (kept, (counted, used)) = (self.kept(), self.used);
        let day = if goes_on(counted, day) { used } else { DayUse::default() };
        Usage { turns: kept.turns as u64, bytes: kept.bytes as u64, day }
    }

    pub(super) fn count_day(&mut self, day: i64, more: DayUse) -> DayUse {
        if !goes_on(self.used.0, day) {
            self.used = (day, DayUse::default());
        }
        self.used.1.add(more);
        self.used.1
    }
}

impl SessionState {
    /// What of it is kept.
    pub(super) fn kept(&self) -> Change {
        let rows = || self.turns.iter().map(|turn| &turn.row);
        let bodies = rows().filter_map(|row| row.body.as_ref());
        let bodies = bodies.map(|body| turn_jsonl::write_fields(&[], body.fields()).len() as i64);
        let lower = self.branches.values().map(BranchState::kept_bytes);
        Change {
            turns: rows().filter(|row| row.state == TurnState::Present).count() as i64,
            bytes: bodies.sum::<i64>() + lower.sum::<i64>(),
        }
    }
}

impl BranchState {
    /// Bytes below the hot tier, as a store on disk would keep them.
    fn kept_bytes(&self) -> i64 {
        let texts = self.texts.values().map(|text| squeeze(text.text.as_str().as_bytes()).0.len());
        let packs = self.packs.values().map(|pack| pack.pack.bytes as i64);
        texts.sum::<usize>() as i64 + packs.sum::<i64>()
    }
}
