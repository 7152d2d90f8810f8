//! The worker: derives what is due, moves what has aged.
//!
//! What is due is computed from the store, never queued: a crash at any
//! instruction costs a delay and nothing else. Every step is one transaction
//! that checks whether the branch is still as it was read; two workers at once
//! waste some work and break nothing. So that they need not, hosts share tenants
//! and the rest out among them by leases; what a person asks for waits for none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::time::Millis;
use icecore_store::{DueBranch, Fence, StoreError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::dreams::redream::Waits;
use crate::error::{MemoryError, Result};
use crate::layers::let_go;
use crate::layers::steps::{Reached, Settled};
use crate::maintenance::Upkeep;
use crate::maintenance::leases::{COMPACTION, REDREAMING, SWEEPING};

/// Branches asked for at once.
const BRANCHES_A_ROUND: usize = 64;

/// Tenants whose branches are settled side by side.
pub const TENANTS_AT_ONCE: usize = 8;

/// Branches that a tenant has settled in one turn, one step of each, where models are
/// asked.
const BRANCHES_A_TURN: usize = 4;

/// Without a wake the worker looks this often: another process may have written.
const POLL: Duration = Duration::from_secs(1);

/// After a failure it waits this long.
const RETRY: Duration = Duration::from_secs(5);

/// What is due by time alone is looked for this often, however much else is due.
const UPKEEP: Duration = Duration::from_secs(1);

/// How often packs that a crash left behind are looked for.
const SWEEP: Duration = Duration::from_secs(3600);

/// How often memories are looked for that have many entries.
const COMPACTIONS: Duration = Duration::from_secs(10);

/// How often archives are looked for that are past their retention.
const ARCHIVE_RETENTION: Duration = Duration::from_secs(600);

/// How often memories are looked for whose dreams were lost and not dreamt anew.
const REDREAMS: Duration = Duration::from_secs(10);

/// How often indexes are let go that are more than `index.cache_bytes`.
const INDEX_SHRINKS: Duration = Duration::from_secs(60);

/// How often it is looked whether another process has registered a secret.
const RESCANS: Duration = Duration::from_secs(30);

/// Packs that retention lets go in one round.
const EXPIRED_A_ROUND: usize = 64;

const DAY_MILLIS: i64 = 24 * 3600 * 1000;

/// The turns of tenants.
#[derive(Default)]
struct Turns {
    under_way: JoinSet<Result<Turn>>,
    /// Those that have one.
    busy: BTreeSet<Tenant>,
    /// Those that had one since all had.
    served: BTreeSet<Tenant>,
    /// What failed and is not tried again now.
    failed: Vec<DueBranch>,
    /// Whether other hosts may settle tenants too.
    is_shared: bool,
}

/// A turn that a tenant had.
struct Turn {
    tenant: Tenant,
    done: Settled,
    failed: Vec<DueBranch>,
}

impl Upkeep {
    /// Does all that is due, of every tenant, and returns when nothing is.
    /// `tell` hears after each branch how many are done and how many are left.
    pub async fn settle(&self, tell: impl FnMut(u64, u64)) -> Result<Settled> {
        let mut done = self.settle_branches(tell, |_| true, false).await?;
        done.expired = self.expire().await? + self.expire_archives().await?;
        done.purged = self.purge_entries().await?;
        if done.did_something() {
            self.store.tidy().await?;
        }
        Ok(done)
    }

    /// Settles branches until none is due, which with writers that never stop is
    /// never, or until `goes_on` says so of what was done. Tenants have their turns side
    /// by side: whoever waits for a model holds up nobody else. `keeps_looking`: what
    /// becomes due meanwhile is found before those under way are done, and tenants that
    /// another host settles are left to it.
    async fn settle_branches(
        &self,
        mut tell: impl FnMut(u64, u64),
        goes_on: impl Fn(&Settled) -> bool,
        keeps_looking: bool,
    ) -> Result<Settled> {
        self.notice_settings().await?;
        let mut done = Settled::default();
        let mut turns = Turns { is_shared: keeps_looking, ..Turns::default() };
        let (telling, mut told) = mpsc::unbounded_channel();
        // Counted once there is anything: an idle host asks as little as it can.
        let mut left = None;
        let mut tried = Instant::now();
        let (mut looks, mut is_going) = (true, true);
        loop {
            if looks && is_going {
                self.begin_turns(&mut turns, &telling).await?;
            }
            if left.is_none() && !turns.under_way.is_empty() {
                left = Some(self.store.unsettled_count(None, None).await?);
            }
            looks = true;
            tokio::select! {
                biased;
                Some(()) = told.recv() => {
                    looks = false;
                    done.branches += 1;
                    let rest = left.unwrap_or_default().saturating_sub(1);
                    left = Some(rest);
                    tell(done.branches, rest);
                }
                ended = turns.under_way.join_next() => {
                    let Some(ended) = ended else { break };
                    let ended = ended.map_err(|error| MemoryError::Internal(error.to_string()))??;
                    turns.busy.remove(&ended.tenant);
                    turns.failed.extend(ended.failed);
                    done.add(&ended.done);
                    is_going = goes_on(&done);
                    left = Some(self.store.unsettled_count(None, None).await?);
                    self.write_spending().await;
                }
                () = self.wake.notified(), if keeps_looking => {}
                () = tokio::time::sleep(POLL), if keeps_looking => {
                    is_going = goes_on(&done);
                    if tried.elapsed() >= RETRY {
                        turns.failed.clear();
                        tried = Instant::now();
                    }
                }
            }
        }
        self.write_spending().await;
        done.failed = turns.failed.len() as u64;
        Ok(done)
    }

    /// Gives tenants that have something due and no turn theirs, as many as may have one
    /// at once; those first that had none yet.
    async fn begin_turns(
        &self,
        turns: &mut Turns,
        telling: &mpsc::UnboundedSender<()>,
    ) -> Result<()> {
        // Where models are asked a turn is small, so that others have theirs soon.
        let most = match self.has_summary_models() {
            true => BRANCHES_A_TURN,
            false => BRANCHES_A_ROUND,
        };
        let mut empty: Vec<Tenant> = Vec::new();
        while turns.busy.len() < TENANTS_AT_ONCE {
            let passed: Vec<Tenant> =
                turns.busy.iter().chain(&turns.served).chain(&empty).cloned().collect();
            let limit = most + turns.failed.len();
            let mut due = self.store.unsettled_beside(&passed, limit).await?;
            let Some(tenant) = due.first().map(|branch| branch.scope.tenant().clone()) else {
                if turns.served.is_empty() {
                    break;
                }
                turns.served.clear();
                continue;
            };
            due.retain(|branch| !turns.failed.contains(branch));
            due.truncate(most);
            if due.is_empty() {
                empty.push(tenant);
                continue;
            }
            let fence = match turns.is_shared {
                true => match self.take_tenant(&tenant, TENANTS_AT_ONCE).await? {
                    Some(fence) => Some(fence),
                    None => {
                        empty.push(tenant);
                        continue;
                    }
                },
                false => None,
            };
            turns.served.insert(tenant.clone());
            turns.busy.insert(tenant.clone());
            let (memory, telling) = (self.clone(), telling.clone());
            turns.under_way.spawn(async move {
                memory.settling_turn_under(fence, tenant, due, telling).await
            });
        }
        Ok(())
    }

    /// Some branches of one tenant, under its lease where there is one.
    async fn settling_turn_under(
        &self,
        fence: Option<Fence>,
        tenant: Tenant,
        due: Vec<DueBranch>,
        telling: mpsc::UnboundedSender<()>,
    ) -> Result<Turn> {
        let Some(fence) = fence else { return self.settling_turn(tenant, due, telling).await };
        let of = tenant.clone();
        let turn = self
            .while_held(fence, async |memory| memory.settling_turn(tenant, due, telling).await)
            .await?;
        // What was not done is left to the host that has the tenant now.
        Ok(turn.unwrap_or(Turn { tenant: of, done: Settled::default(), failed: Vec::new() }))
    }

    /// Some branches of one tenant.
    async fn settling_turn(
        &self,
        tenant: Tenant,
        due: Vec<DueBranch>,
        telling: mpsc::UnboundedSender<()>,
    ) -> Result<Turn> {
        let mut turn = Turn { tenant, done: Settled::default(), failed: Vec::new() };
        let scopes: BTreeSet<Scope> = due.iter().map(|branch| branch.scope.clone()).collect();
        let pressing = async {
            let mut settled = Vec::new();
            for branch in due {
                // A damaged branch must not keep the others from being settled.
                match self.settle_branch(&branch, &mut turn.done).await {
                    Ok(Reached::Unfinished) => continue,
                    Ok(Reached::Gone) => {}
                    Ok(Reached::Version(version)) => settled.push((branch, version)),
                    Err(error @ MemoryError::Store(StoreError::LeaseLost { .. })) => {
                        return Err(error);
                    }
                    Err(error) => {
                        tracing::warn!(scope = %branch.scope, session = branch.session.0, error = %error,
                            "derived work of a branch failed and will be tried again");
                        turn.failed.push(branch);
                    }
                }
                // Nobody may listen any more.
                telling.send(()).ok();
            }
            Ok(settled)
        };
        // Words and vectors are made beside the layers, from the same turns.
        let (settled, mut undrawn) = tokio::join!(pressing, self.index_scopes(&scopes));
        let settled = settled?;
        // Turns came while that went on, and their branches count them already.
        for scope in &scopes {
            if !undrawn.contains(scope) && !self.has_drawn_facts(scope).await {
                undrawn.insert(scope.clone());
            }
        }
        // Only what can also be found counts as settled.
        for (due, version) in settled {
            if undrawn.contains(&due.scope) {
                turn.failed.push(due);
                continue;
            }
            self.store.settle(&due.scope, due.session, due.branch, version).await?;
        }
        // Summaries and facts that were made meanwhile.
        self.index_scopes(&scopes).await;
        Ok(turn)
    }

    /// Works in the background until `stop` resolves.
    pub async fn work_until(&self, stop: impl Future<Output = ()>) {
        self.work(stop, true).await;
    }

    /// As [`Upkeep::work_until`], where nobody may write: nothing is compacted.
    pub async fn keep_until(&self, stop: impl Future<Output = ()>) {
        self.work(stop, false).await;
    }

    async fn work(&self, stop: impl Future<Output = ()>, writes: bool) {
        let (closing, closed) = watch::channel(false);
        let is_untidy = AtomicBool::new(false);
        let stopping = async {
            stop.await;
            closing.send_replace(true);
        };
        // Side by side: writers may never let all be settled.
        tokio::join!(
            stopping,
            self.settle_until(closed.clone(), &is_untidy),
            self.keep_up_until(closed.clone(), &is_untidy),
            async {
                if writes {
                    tokio::join!(self.compact_until(closed.clone()), self.redream_until(closed));
                }
            },
        );
        self.give_back_all().await;
    }

    /// Settles branches as they come.
    async fn settle_until(&self, mut closed: watch::Receiver<bool>, is_untidy: &AtomicBool) {
        loop {
            let goes_on = |done: &Settled| {
                is_untidy.fetch_or(done.did_something(), Ordering::Relaxed);
                !*closed.borrow()
            };
            let pause = match self.settle_branches(|_, _| {}, goes_on, true).await {
                Ok(done) if done.failed == 0 => POLL,
                Ok(_) => RETRY,
                Err(error) => {
                    tracing::warn!(error = %error, "derived work failed, will try again");
                    RETRY
                }
            };
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => return,
                () = self.wake.notified(), if pause == POLL => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Does what is due by time alone.
    async fn keep_up_until(&self, mut closed: watch::Receiver<bool>, is_untidy: &AtomicBool) {
        let (mut sweep, mut rescans) = (Every::new(SWEEP), Every::new(RESCANS));
        let mut retention = Every::new(ARCHIVE_RETENTION);
        let mut shrinks = Every::new(INDEX_SHRINKS);
        let mut told = BTreeMap::new();
        loop {
            if sweep.is_due()
                && let Err(error) =
                    self.on_duty(SWEEPING, async |memory| memory.sweep_all().await).await
            {
                tracing::warn!(error = %error, "whether anything is to be removed could not be told");
            }
            if retention.is_due()
                && let Err(error) =
                    self.on_duty(SWEEPING, async |memory| memory.expire_archives().await).await
            {
                tracing::warn!(error = %error, "archives past their retention could not be let go");
            }
            if shrinks.is_due()
                && let Err(error) = self.shrink_indexes().await
            {
                tracing::warn!(error = %error, "indexes that are too much could not be let go");
            }
            if rescans.is_due() {
                self.tell_of_rescans(&mut told).await;
            }
            let pause = match self.keep_up(is_untidy).await {
                Ok(()) => UPKEEP,
                Err(error) => {
                    tracing::warn!(error = %error, "what is past its time could not be removed, will try again");
                    RETRY
                }
            };
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Removes what crashes left, and outcomes that nobody asks for any more.
    async fn sweep_all(&self) -> Result<()> {
        if let Err(error) = self.sweep().await {
            tracing::warn!(error = %error, "packs that a crash left could not be removed");
        }
        if let Err(error) = self.store.purge_outcomes(self.now()).await {
            tracing::warn!(error = %error, "old outcomes could not be removed");
        }
        Ok(())
    }

    /// Lets go of what is past its time, where no other host does, and gives its space
    /// back.
    async fn keep_up(&self, is_untidy: &AtomicBool) -> Result<()> {
        let mut gone = 0;
        if self.has_past_packs().await? || self.has_past_entries().await? {
            let letting_go =
                async |memory: Upkeep| Ok(memory.expire().await? + memory.purge_entries().await?);
            gone = self.on_duty(SWEEPING, letting_go).await?.unwrap_or_default();
        }
        if is_untidy.swap(false, Ordering::Relaxed) || gone > 0 {
            self.store.tidy().await?;
        }
        Ok(())
    }

    /// Compacts crowded memories, however long that takes, beside all else.
    async fn compact_until(&self, mut closed: watch::Receiver<bool>) {
        loop {
            if let Err(error) = self.compact_in_turn(&closed).await {
                tracing::warn!(error = %error, "crowded memories could not be found, will look again");
            }
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => return,
                () = tokio::time::sleep(COMPACTIONS) => {}
            }
        }
    }

    async fn compact_in_turn(&self, closed: &watch::Receiver<bool>) -> Result<()> {
        if self.has_crowded_memories().await? {
            let goes_on = || !*closed.borrow();
            self.on_duty(COMPACTION, async |memory| memory.compact_while(goes_on).await).await?;
        }
        Ok(())
    }

    /// Dreams anew what was lost with something that was forgotten, where whoever forgot
    /// it could not.
    async fn redream_until(&self, mut closed: watch::Receiver<bool>) {
        let mut waiting = Waits::default();
        loop {
            if let Err(error) = self.redream_in_turn(&mut waiting).await {
                tracing::warn!(error = %error, "what was lost with something forgotten could not be distilled anew, will try again");
            }
            tokio::select! {
                biased;
                _ = closed.wait_for(|closed| *closed) => return,
                () = tokio::time::sleep(REDREAMS) => {}
            }
        }
    }

    async fn redream_in_turn(&self, waiting: &mut Waits) -> Result<()> {
        if self.has_lost_dreams().await? {
            self.on_duty(REDREAMING, async |memory| memory.redream(None, waiting).await).await?;
        }
        Ok(())
    }

    /// Says which tenants should be rescanned; see `Privacy::new_rescans`.
    async fn tell_of_rescans(&self, told: &mut BTreeMap<Tenant, u64>) {
        match self.new_rescans(told).await {
            Ok(found) => {
                for (tenant, texts) in found {
                    tracing::warn!(
                        tenant = tenant.as_str(),
                        texts,
                        "secrets were registered after texts were stored: these are redacted whenever they are read, until `icecore redact --rescan`"
                    );
                }
            }
            Err(error) => {
                tracing::warn!(error = %error, "whether a rescan is due could not be read");
            }
        }
    }

    /// Packs that were written before this are past `cold_retention_days`.
    fn packs_kept_since(&self) -> Option<Millis> {
        let days = i64::from(self.settings.cold_retention_days);
        (days > 0).then(|| Millis(self.now().0 - days * DAY_MILLIS))
    }

    async fn has_past_packs(&self) -> Result<bool> {
        let Some(before) = self.packs_kept_since() else { return Ok(false) };
        Ok(!self.store.packs_older_than(before, 1).await?.is_empty())
    }

    /// Lets go of cold bodies that are past `cold_retention_days`.
    async fn expire(&self) -> Result<u64> {
        let Some(before) = self.packs_kept_since() else { return Ok(0) };
        let now = self.clock.now();
        let mut expired = 0;
        loop {
            let packs = self.store.packs_older_than(before, EXPIRED_A_ROUND).await?;
            if packs.is_empty() {
                return Ok(expired);
            }
            for pack in packs {
                self.store.expire_pack(&pack, now).await?;
                let_go(&self.packs, &pack.name).await?;
                expired += 1;
            }
        }
    }

    /// Drops all that is derived of a memory and derives it again.
    #[tracing::instrument(skip_all)]
    pub async fn reindex(&self, scope: &Scope, tell: impl FnMut(u64, u64)) -> Result<Settled> {
        self.store.drop_derived(scope).await?;
        self.drop_index(scope).await?;
        let settled = self.settle(tell).await?;
        // What is too little for files is read now all the same, so that a
        // failure shows here and not at the next search.
        self.caught_up(scope).await?;
        Ok(settled)
    }
}

/// Something to do now and then.
struct Every {
    pause: Duration,
    done: Option<Instant>,
}

impl Every {
    fn new(pause: Duration) -> Self {
        Self { pause, done: None }
    }

    /// Whether it is time again; the first time at once.
    fn is_due(&mut self) -> bool {
        let is_due = self.done.is_none_or(|at| at.elapsed() >= self.pause);
        if is_due {
            self.done = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;
    use icecore_domain::ids::Principal;
    use icecore_domain::turn::RawTurn;
    use icecore_store::hooks::{Call, Hook};
    use icecore_store::{Packs, Store};

    use super::*;
    use crate::memory::{Memory, MemoryBuilder};

    /// Counts the calls of a store by their operation.
    #[derive(Default)]
    struct Calls(Mutex<BTreeMap<&'static str, u64>>);

    impl Calls {
        fn take(&self) -> BTreeMap<&'static str, u64> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    #[async_trait]
    impl Hook for Calls {
        async fn before(
            &self,
            call: Call<'_>,
            _: &mut (dyn Any + Send),
        ) -> icecore_store::Result<()> {
            *self.0.lock().unwrap().entry(call.op).or_default() += 1;
            Ok(())
        }
    }

    async fn memory_of(calls: &Arc<Calls>, tenants: usize) -> (Memory, Vec<Scope>) {
        let store = Store::in_memory([1; 32]).hooked(Arc::clone(calls) as Arc<dyn Hook>);
        let memory = MemoryBuilder::default().over(store, Packs::in_memory(), None);
        let mut scopes = Vec::new();
        for number in 0..tenants {
            let me = Principal::local_operator(Tenant::new(format!("t{number}")).unwrap());
            let scope = memory.scope(&me, "m").await.unwrap();
            memory.remember(&scope, "s", vec![RawTurn::new("user", "hello")]).await.unwrap();
            scopes.push(scope);
        }
        memory.settle(|_, _| {}).await.unwrap();
        (memory, scopes)
    }

    /// What upkeep asks of the store in a minute in which nothing happens.
    async fn idle(tenants: usize) -> BTreeMap<&'static str, u64> {
        let calls = Arc::new(Calls::default());
        let (memory, _) = memory_of(&calls, tenants).await;
        calls.take();
        memory.work_until(tokio::time::sleep(Duration::from_millis(59_500))).await;
        calls.take()
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_host_asks_little_of_its_store_however_many_tenants_it_has() {
        let (few, many) = (idle(2).await, idle(20).await);
        let sum = |calls: &BTreeMap<_, u64>| calls.values().sum::<u64>();
        // Some are asked at the edge of the minute.
        assert!(sum(&many) < sum(&few) + 20, "{few:?} {many:?}");
        assert!(sum(&many) < 3 * 60, "{many:?}");
    }

    #[tokio::test]
    async fn settling_a_turn_reads_only_the_facts_that_came_since() {
        let calls = Arc::new(Calls::default());
        let (memory, scopes) = memory_of(&calls, 1).await;
        let say = async |text: String| {
            memory.remember(&scopes[0], "s", vec![RawTurn::new("user", &text)]).await.unwrap();
            memory.settle(|_, _| {}).await.unwrap();
        };
        let mut reads = Vec::new();
        for number in 0..6 {
            say(format!("My sister's name is Mara{number}. I live in Lisbon{number}.")).await;
            let read: u64 = ["facts_after", "verdicts"]
                .iter()
                .map(|op| calls.take().remove(op).unwrap_or(0))
                .sum();
            reads.push(read);
        }
        assert_eq!(reads[5], reads[1], "{reads:?}");
    }

    #[tokio::test]
    async fn an_append_asks_for_no_secrets_that_are_at_hand() {
        let calls = Arc::new(Calls::default());
        let (memory, scopes) = memory_of(&calls, 1).await;
        calls.take();
        memory.remember(&scopes[0], "s", vec![RawTurn::new("user", "hi")]).await.unwrap();
        assert_eq!(calls.take(), BTreeMap::from([("append", 1)]));
    }
}
