//! Is everything whole? And mending what can be.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use icecore_domain::chunk::ChunkId;
use icecore_domain::ids::{Ordinal, Scope, Seq, SessionNo, Tenant};
use icecore_domain::time::Clock;
use icecore_store::{
    BodyPlace, BranchRecord, MicroBody, PackObject, PackRecord, Packs, StoreError, StoreTimings,
    TurnQuery, TurnRow, TurnState,
};

use crate::base::SystemClock;
use crate::error::{MemoryError, Result};
use crate::layers::bodies::{decode, with_packs};
use crate::layers::history::PAGE;
use crate::maintenance::Upkeep;

/// What was looked at and what was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckReport {
    /// Turns whose body was read back.
    pub turns: u64,
    /// Bodies in text that were decoded.
    pub texts: u64,
    /// Packs that were opened and decoded.
    pub packs: u64,
    /// Archives that were opened and have their address.
    pub archives: u64,
    /// Indexes that were opened and compared with the store.
    pub indexes: u64,
    /// Packs that nothing points to: left by a crash, harmless.
    pub orphans: u64,
    /// Packs of these that were removed.
    pub removed: u64,
    /// Bodies of archives that nothing points to: left by a crash, harmless.
    pub orphan_archives: u64,
    /// Bodies of these that were removed.
    pub removed_archives: u64,
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
    /// Turns that were read from it.
    pub turns: u64,
    /// What is wrong with it, if anything was looked at and found.
    pub problem: Option<String>,
}

/// What looks left behind is removed once it is this old: a younger pack may be
/// one that a worker has written and not yet recorded.
const LEFTOVER_AGE: Duration = Duration::from_secs(3600);

/// Note under which the store has the id that it marks its objects' place with.
const STORE_NOTE: &str = "objects-of";

/// Rows of hot turns read at once.
const HOT_PAGE: usize = 100;

/// Names of packs read at once by a sweep.
const NAMES_A_PAGE: usize = 10_000;

/// Turns whose texts are read at once.
const TEXT_PAGE: u64 = 2_000;

/// Note that is written to find out whether the store takes writes.
const PROBE: &str = "probe";

impl Upkeep {
    /// Whether the store takes writes and answers reads, by doing both. Returns how many
    /// branches have derived work to do.
    pub async fn probe(&self) -> Result<u64> {
        self.store.put_note(PROBE, &self.now().0.to_string()).await?;
        self.pending().await
    }

    /// How many branches have derived work to do.
    pub async fn pending(&self) -> Result<u64> {
        Ok(self.store.unsettled_count(None, None).await?)
    }

    /// How long the store's work took so far, in this process.
    pub fn store_timings(&self) -> StoreTimings {
        self.store.timings()
    }

    /// Leaves nothing in the store's files that was deleted.
    pub async fn scrub(&self) -> Result<()> {
        Ok(self.store.scrub().await?)
    }

    /// Verifies every invariant of the store and every body in every tier.
    /// Derived work that is merely due is no failure. With `repair`, objects
    /// that nothing points to are removed, and what tenants keep is counted anew.
    pub async fn check(&self, repair: bool, mut tell: impl FnMut(u64, u64)) -> Result<CheckReport> {
        if repair {
            self.store.recount_usage().await?;
        }
        let mut report =
            CheckReport { problems: self.store.check().await?, ..CheckReport::default() };
        // Reading bodies over broken tables would only repeat what is known.
        if !report.is_ok() {
            return Ok(report);
        }
        let tenants = self.store.tenants().await?;
        for (number, tenant) in tenants.iter().enumerate() {
            self.check_tenant(tenant, &mut report).await?;
            tell(number as u64 + 1, tenants.len() as u64);
        }
        let archives = self.verify_archives(None, |_, _| {}).await?;
        report.archives = archives.sound;
        let told = |(checksum, problem)| format!("archive `{checksum}` is damaged: {problem}");
        report.problems.extend(archives.damaged.into_iter().map(told));
        self.check_orphans(repair, &mut report).await?;
        Ok(report)
    }

    async fn check_tenant(&self, tenant: &Tenant, report: &mut CheckReport) -> Result<()> {
        for scope in self.store.scopes(tenant).await? {
            report.indexes += 1;
            report.problems.extend(self.check_index(&scope).await?);
            let mut after = None;
            loop {
                let page = self.store.sessions(&scope, after, PAGE).await?;
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
            report.turns += pack.turns;
            report.problems.extend(pack.problem);
        }
        Ok(())
    }

    /// Reads every body of a branch but those in packs, which are read by
    /// themselves.
    async fn check_branch(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: &BranchRecord,
        report: &mut CheckReport,
    ) -> Result<()> {
        self.check_hot(scope, session, branch, report).await?;
        let mut from = 1;
        while from <= branch.warm_through.0 {
            let through = Ordinal((from + TEXT_PAGE).min(branch.warm_through.0));
            let store = &self.store;
            let bodies =
                match store.bodies(scope, session, branch.branch, Ordinal(from), through).await {
                    Ok(bodies) => bodies,
                    Err(error) => {
                        report.problems.push(error.to_string());
                        return Ok(());
                    }
                };
            let Some(last) = bodies.last().map(|body| body.id.last) else { break };
            for body in bodies {
                check_text(&body, report);
            }
            from = last.0 + 1;
        }
        Ok(())
    }

    /// Reads the bodies that are in their rows, newest first, until the first
    /// that is not hot; counts the turns that are there.
    async fn check_hot(
        &self,
        scope: &Scope,
        session: SessionNo,
        branch: &BranchRecord,
        report: &mut CheckReport,
    ) -> Result<()> {
        let mut through = Seq(u64::MAX >> 1);
        loop {
            let query = TurnQuery {
                branch: Some(branch.branch),
                through,
                newest: true,
                ..TurnQuery::all(session, HOT_PAGE)
            };
            let rows = match self.store.turns(scope, &query).await {
                Ok(rows) => rows,
                Err(error) => {
                    report.problems.push(format!("session {session}: {error}"));
                    return Ok(());
                }
            };
            let Some(first) = rows.first() else { return Ok(()) };
            through = Seq(first.id.seq.0 - 1);
            let reached_warm = first.ordinal <= branch.warm_through;
            let is_hot = |row: &&TurnRow| row.ordinal > branch.warm_through;
            let present = rows.iter().filter(is_hot).filter(|row| row.state == TurnState::Present);
            report.turns += present.count() as u64;
            if reached_warm {
                return Ok(());
            }
        }
    }

    /// Packs of a tenant, unread.
    pub async fn packs(&self, tenant: Option<&Tenant>) -> Result<Vec<PackReport>> {
        let packs = self.store.packs(tenant).await?;
        Ok(packs.into_iter().map(|pack| PackReport { pack, turns: 0, problem: None }).collect())
    }

    /// Packs of a tenant, or of all, each re-hashed, opened and decoded.
    pub async fn verify_packs(
        &self,
        tenant: Option<&Tenant>,
        mut tell: impl FnMut(u64, u64),
    ) -> Result<Vec<PackReport>> {
        let packs = self.store.packs(tenant).await?;
        let total = packs.len() as u64;
        let mut reports = Vec::with_capacity(packs.len());
        for (number, pack) in packs.into_iter().enumerate() {
            let (turns, problem) = match self.read_pack(&pack).await? {
                Ok(turns) => (turns, None),
                Err(problem) => (0, Some(problem)),
            };
            reports.push(PackReport { pack, turns, problem });
            tell(number as u64 + 1, total);
        }
        Ok(reports)
    }

    /// Reads a pack whole: how many turns it holds, or what is wrong with it.
    async fn read_pack(&self, pack: &PackRecord) -> Result<std::result::Result<u64, String>> {
        let problem = match with_packs(|| self.read_pack_found(pack)).await {
            Ok((turns, present)) if turns == present => return Ok(Ok(present)),
            Ok((turns, present)) => {
                format!("pack `{}` holds {turns} turns and should hold {present}", pack.name)
            }
            Err(MemoryError::Store(
                error @ (StoreError::PackMissing { .. }
                | StoreError::PackDamaged { .. }
                | StoreError::BodyDamaged { .. }),
            )) => error.to_string(),
            Err(error) => return Err(error),
        };
        let ChunkId { session, first, last, .. } = pack.id;
        Ok(Err(format!("{problem} (turns {first} to {last} of session {session})")))
    }

    /// How many turns a pack holds, and how many it should; none if it is not in use any more.
    async fn read_pack_found(&self, pack: &PackRecord) -> Result<(u64, u64)> {
        let place = &pack.id;
        let bodies = self
            .store
            .bodies(&pack.scope, place.session, place.branch, place.first, place.last)
            .await?;
        // The pack may have been replaced since it was listed.
        let holds =
            |body: &MicroBody| matches!(&body.place, BodyPlace::Pack(now) if now.name == pack.name);
        let mine: Vec<_> = bodies.into_iter().filter(holds).collect();
        if mine.is_empty() {
            return Ok((0, 0));
        }
        let turns = self.read_lying(&mine, pack).await?;
        let present: usize = mine.iter().map(|body| body.present.len()).sum();
        Ok((turns.len() as u64, present as u64))
    }

    /// Objects without a record, left by a crash between writing and recording.
    async fn check_orphans(&self, repair: bool, report: &mut CheckReport) -> Result<()> {
        self.claim_objects().await?;
        let objects = self.unrecorded_packs().await?;
        let now_secs = SystemClock.now().0 / 1000;
        report.orphans += objects.len() as u64;
        let is_old =
            |object: &PackObject| now_secs - object.modified_secs >= LEFTOVER_AGE.as_secs() as i64;
        let old: BTreeSet<String> =
            objects.into_iter().filter(is_old).map(|object| object.name).collect();
        if repair && !old.is_empty() {
            // One that was recorded since it was listed stays.
            for name in self.without_recorded(old).await? {
                self.packs.delete(&name).await?;
                report.removed += 1;
            }
        }
        for object in self.orphan_archives().await? {
            report.orphan_archives += 1;
            // Nothing old is still to be recorded: a dream is kept as soon as its body is.
            if repair && is_old(&object) {
                self.archives.delete(&object.name).await?;
                report.removed_archives += 1;
            }
        }
        if repair {
            self.packs.remove_leftovers(LEFTOVER_AGE).await?;
            self.archives.remove_leftovers(LEFTOVER_AGE).await?;
        }
        Ok(())
    }

    /// Makes sure that the objects are those of this store, before what it does not know
    /// of is taken for left behind.
    async fn claim_objects(&self) -> Result<()> {
        let (packs, archives) = (&self.packs, &self.archives);
        if packs.is_shared() || archives.is_shared() {
            let id = self.store.note_once(STORE_NOTE, &Packs::new_name()).await?;
            packs.claim(&id).await?;
            archives.claim(&id).await?;
        }
        Ok(())
    }

    /// Removes what crashes left behind, once it is old enough to be sure.
    pub(crate) async fn sweep(&self) -> Result<()> {
        self.check_orphans(true, &mut CheckReport::default()).await
    }

    /// Packs without a record. There may be very many with one, of which only hashes are
    /// kept: where two have the same, an object that is of no use stays.
    async fn unrecorded_packs(&self) -> Result<Vec<PackObject>> {
        // Listed first: a pack is written before it is recorded.
        let mut objects = self.packs.list().await?;
        if !objects.is_empty() {
            let mut recorded = Vec::new();
            self.each_page_of_packs(|name| recorded.push(hash(name))).await?;
            recorded.sort_unstable();
            objects.retain(|object| recorded.binary_search(&hash(&object.name)).is_err());
        }
        Ok(objects)
    }

    /// Names of packs without those that have a record.
    async fn without_recorded(&self, mut names: BTreeSet<String>) -> Result<BTreeSet<String>> {
        self.each_page_of_packs(|name| {
            names.remove(name);
        })
        .await?;
        Ok(names)
    }

    /// Reads the names of all recorded packs, a page at a time.
    async fn each_page_of_packs(&self, mut read: impl FnMut(&str)) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.store.pack_names(after, NAMES_A_PAGE).await?;
            page.iter().for_each(|(_, name)| read(name));
            after = page.last().map(|(at, _)| *at);
            if page.len() < NAMES_A_PAGE {
                return Ok(());
            }
        }
    }
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Whether a text decodes and holds as many turns as the rows say.
fn check_text(body: &MicroBody, report: &mut CheckReport) {
    let (id, present) = (body.id, body.present.len());
    let held = match &body.place {
        BodyPlace::Text(text) => decode(&id, text).map(|turns| turns.len()),
        BodyPlace::Gone => Ok(0),
        BodyPlace::Rows | BodyPlace::Pack(_) => return,
    };
    match held {
        Ok(held) if held == present => {
            report.texts += 1;
            report.turns += held as u64;
        }
        Ok(held) => report
            .problems
            .push(format!("the body of {id} holds {held} turns and should hold {present}")),
        Err(error) => report.problems.push(error.to_string()),
    }
}
