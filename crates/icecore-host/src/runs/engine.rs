//! The engine: works on runs until they end.
//!
//! What a run does next follows from what has happened in it, and each step is written
//! whole or not at all, if nobody else has written one meanwhile. So a crash costs a
//! delay and nothing else, and two engines over one store waste some work and do
//! nothing twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use icecore::knowledge::{EntryQuery, EntryRank, EntryRecord, NewEntryRequest};
use icecore::store::StoreError;
use icecore::{MemoryError, Millis, Principal, Tenant};
use icecore_store::{EntryRef, RunError, RunEventRecord, RunRecord, RunStatus};
use serde_json::json;
use tokio::task::{self, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use zeroize::Zeroizing;

use super::plan::{self, Next, Progress, event};
use super::step::{NewValue, Put, Step};
use super::workflow::{MemoryAction, Node, Workflow};
use super::{RunKey, Runs, RunsError, dream, fixtures};

/// Runs that are worked on at once.
const RUNS_AT_ONCE: usize = 8;

/// Events read at once.
const EVENTS_A_READ: usize = 500;

/// Entries of a list that a variable names.
const LISTED: usize = 50;

/// Without a wake the engine looks this often: another process may have made a run.
const POLL: Duration = Duration::from_secs(1);

/// A run whose step failed is left alone this long.
const RETRY: Duration = Duration::from_secs(5);

/// How often runs past their retention are looked for.
const EXPIRY: Duration = Duration::from_secs(60);

/// A run that waits is looked at again after this long at most: its clock is not ours.
const WAIT: Duration = Duration::from_secs(10);

/// A run whose workflow is not here is left alone this long: another host may have it.
const UNKNOWN: Duration = Duration::from_secs(60);

/// And fails when it is as old as this.
const ORPHANED_MILLIS: i64 = 24 * 3_600 * 1_000;

/// Runs let go in one transaction, so that no other write waits long for it.
const RUNS_A_STEP: usize = 200;

/// Somebody may write between two reads, but not whenever we read.
const READS: usize = 4;

/// What came of looking after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// It went on, by us or by somebody else.
    On,
    /// It waits for a moment.
    Waits(Millis),
    /// Its workflow is not here. A host over the same store may have it, and else it
    /// fails in a day.
    Unknown,
    /// It has ended, or is not there.
    Ended,
}

impl Runs {
    /// Works on runs until `stop` resolves, those that a crash left unfinished among them,
    /// and lets go of those past their retention. A host that is read-only does the second
    /// alone.
    pub(crate) async fn run_until(&self, stop: impl Future<Output = ()>) {
        tokio::select! {
            biased;
            () = stop => {}
            () = self.work() => {}
            () = self.expire_until_dropped() => {}
        }
    }

    /// Works on all runs that have not ended, and whose workflow is here, until they
    /// have.
    pub async fn settle(&self) -> Result<(), RunsError> {
        if self.settings.read_only {
            return Ok(());
        }
        let mut unknown: BTreeSet<RunKey> = BTreeSet::new();
        loop {
            let mut due = self.store().unfinished_runs(RUNS_AT_ONCE + unknown.len()).await?;
            due.retain(|key| !unknown.contains(key));
            if due.is_empty() {
                return Ok(());
            }
            for key in due {
                match self.go_on(&key).await? {
                    Stepped::Waits(until) => sleep(self.time_until(until)).await,
                    Stepped::Unknown => drop(unknown.insert(key)),
                    Stepped::On | Stepped::Ended => {}
                }
            }
        }
    }

    /// Lets go of what runs held that are past their retention; answers of how many.
    /// Those of which it was let go long ago are not even named any more.
    pub async fn expire(&self) -> Result<u64, RunsError> {
        let (named, kept) = (self.named_since(), self.kept_since());
        self.in_steps(|| self.store().purge_runs(named, RUNS_A_STEP)).await?;
        let now = self.memory.now();
        self.in_steps(|| self.store().expire_runs(kept, now, RUNS_A_STEP)).await
    }

    /// Takes a step after the other until one has less to do than it may.
    async fn in_steps<F>(&self, step: impl Fn() -> F) -> Result<u64, RunsError>
    where
        F: Future<Output = Result<u64, StoreError>>,
    {
        let mut gone = 0;
        loop {
            let step = step().await?;
            gone += step;
            if step < RUNS_A_STEP as u64 {
                break;
            }
        }
        if gone > 0 {
            self.store().tidy().await?;
        }
        Ok(gone)
    }

    /// Does the next thing in a run.
    pub async fn step(&self, tenant: &Tenant, id: &str) -> Result<Stepped, RunsError> {
        let principal = Principal::local_operator(tenant.clone());
        for _ in 0..READS {
            let Some(run) = self.find(tenant, id).await? else { return Ok(Stepped::Ended) };
            if run.status.is_terminal() {
                return Ok(Stepped::Ended);
            }
            let Some(workflow) = self.shared.workflows.get(&run.workflow) else {
                return self.leave_alone(&principal, &run).await;
            };
            let events = self.all_events(tenant, &run).await?;
            // They were read one after the other, and somebody may have come between.
            if events.len() as u64 == run.events {
                let progress = Progress::of(&events);
                let work =
                    Work { runs: self, principal: &principal, workflow, run: &run, progress };
                return self.take_step(&work).await;
            }
        }
        self.give_up(&principal, id).await
    }

    /// A run whose workflow is not here fails once nobody can be expected to have it.
    async fn leave_alone(
        &self,
        principal: &Principal,
        run: &RunRecord,
    ) -> Result<Stepped, RunsError> {
        let age = self.memory.now().0.saturating_sub(run.created_at.0);
        if age < ORPHANED_MILLIS {
            return Ok(Stepped::Unknown);
        }
        self.write_step(principal, failed(run, None, unavailable())).await?;
        Ok(Stepped::On)
    }

    /// A run of which events are missing cannot go on, and fails when it is late.
    async fn give_up(&self, principal: &Principal, id: &str) -> Result<Stepped, RunsError> {
        if let Some(run) = self.find(principal.tenant(), id).await?
            && let Some(workflow) = self.shared.workflows.get(&run.workflow)
            && !run.status.is_terminal()
            && plan::is_late(workflow, run.created_at.max(self.shared.since), self.memory.now())
        {
            self.write_step(principal, failed(&run, None, timed_out())).await?;
            return Ok(Stepped::On);
        }
        let damage = "a run has other events than it counts; `icecore check` says more";
        Err(MemoryError::Internal(damage.to_owned()).into())
    }

    async fn take_step(&self, work: &Work<'_>) -> Result<Stepped, RunsError> {
        let (since, now) = (self.shared.since, self.memory.now());
        let next = &plan::next(work.workflow, work.run, &work.progress, since, now);
        match next {
            Next::Nothing => return Ok(Stepped::Ended),
            Next::Wait(until) => return Ok(Stepped::Waits(*until)),
            Next::Dream(node) => return self.dream(work, node).await,
            _ => {}
        }
        let written = match work.step(next).await {
            Ok(step) => self.write_step(work.principal, step).await,
            Err(trouble) => Err(trouble),
        };
        match written {
            Ok(()) => Ok(Stepped::On),
            Err(Trouble::Fails(error)) => {
                let step = failed(work.run, node_of(next), error);
                self.write_step(work.principal, step).await?;
                Ok(Stepped::On)
            }
            Err(Trouble::Memory(error)) => Err(error.into()),
        }
    }

    /// Dreams for a run, which ends with it in one.
    async fn dream(&self, work: &Work<'_>, node: &Node) -> Result<Stepped, RunsError> {
        let done = match dream::dream(&self.memory, work.principal, work.run).await {
            Ok(done) => done,
            Err(MemoryError::DreamUnderWay { .. }) => {
                let again = self.memory.now().0.saturating_add(dream::AGAIN_MILLIS);
                return Ok(Stepped::Waits(Millis(again)));
            }
            Err(error) => match Trouble::from(error) {
                Trouble::Fails(error) => {
                    self.write_step(work.principal, failed(work.run, Some(node), error)).await?;
                    return Ok(Stepped::On);
                }
                Trouble::Memory(error) => return Err(error.into()),
            },
        };
        match done.unchanged {
            // There was nothing to do, and so nothing that it could have ended with.
            true => {
                let step = work.leaving(node, vec![dream::told(&done)]);
                let mut events = step.events;
                events.push(event("run.completed", None, json!({})));
                let step = Step { events, status: RunStatus::Completed, ..step };
                self.write_step(work.principal, step).await?;
            }
            false => self.tell(work.principal.tenant(), &work.run.id),
        }
        Ok(Stepped::On)
    }

    async fn write_step(&self, principal: &Principal, step: Step) -> Result<(), Trouble> {
        // Nothing is answered where somebody else was first: then it is looked again.
        if self.write(principal.tenant(), &step).await?.is_some() {
            self.tell(principal.tenant(), &step.run);
        }
        Ok(())
    }

    async fn all_events(
        &self,
        tenant: &Tenant,
        run: &RunRecord,
    ) -> Result<Vec<RunEventRecord>, MemoryError> {
        let mut events: Vec<RunEventRecord> = Vec::new();
        loop {
            let after = events.last().map(|event| event.sequence);
            let more = self.events_after(tenant, &run.id, after, EVENTS_A_READ).await?;
            let is_all = more.len() < EVENTS_A_READ;
            events.extend(more);
            if is_all {
                return Ok(events);
            }
        }
    }

    /// Works on a run for as long as it goes on.
    async fn go_on(&self, (tenant, id): &RunKey) -> Result<Stepped, RunsError> {
        loop {
            match self.step(tenant, id).await? {
                Stepped::On => {}
                other => return Ok(other),
            }
        }
    }

    /// How long it is until a moment, or until it is looked again.
    fn time_until(&self, at: Millis) -> Duration {
        let left = at.0.saturating_sub(self.memory.now().0).max(1);
        Duration::from_millis(left.unsigned_abs()).min(WAIT)
    }

    /// Works on runs as they come, a few at once. Those that cannot go on hold up no
    /// others: they are looked at again when it is time.
    async fn work(&self) {
        if self.settings.read_only {
            return std::future::pending().await;
        }
        let mut tasks = Tasks::default();
        let mut resting: BTreeMap<RunKey, Instant> = BTreeMap::new();
        loop {
            let now = Instant::now();
            resting.retain(|_, until| *until > now);
            if let Err(error) = self.take_up(&mut tasks, &resting).await {
                tracing::warn!(error = %error, "runs cannot be looked for, will try again");
            }
            let due = resting.values().min().copied().unwrap_or(now + POLL);
            tokio::select! {
                biased;
                Some((key, done)) = tasks.ended() => {
                    if let Some(rest) = self.rest_after(&key, done) {
                        resting.insert(key, Instant::now() + rest);
                    }
                }
                () = self.shared.wake.notified() => {}
                () = sleep_until(due.min(now + POLL)) => {}
            }
        }
    }

    /// How long a run is left alone after it was worked on, if it has not ended.
    fn rest_after(
        &self,
        (tenant, run): &RunKey,
        done: Result<Stepped, String>,
    ) -> Option<Duration> {
        match done {
            Ok(Stepped::On | Stepped::Ended) => None,
            Ok(Stepped::Waits(until)) => Some(self.time_until(until)),
            Ok(Stepped::Unknown) => Some(UNKNOWN),
            Err(error) => {
                tracing::warn!(
                    tenant = tenant.as_str(),
                    run,
                    error,
                    "a run cannot go on, will try again"
                );
                Some(RETRY)
            }
        }
    }

    async fn take_up(
        &self,
        tasks: &mut Tasks,
        resting: &BTreeMap<RunKey, Instant>,
    ) -> Result<(), RunsError> {
        if tasks.is_full() {
            return Ok(());
        }
        // Those that are known already may all come first.
        let limit = RUNS_AT_ONCE + tasks.busy.len() + resting.len();
        for key in self.store().unfinished_runs(limit).await? {
            if tasks.is_full() {
                break;
            }
            if !resting.contains_key(&key) {
                tasks.begin(self, key);
            }
        }
        Ok(())
    }

    async fn expire_until_dropped(&self) {
        loop {
            if let Err(error) = self.expire().await {
                tracing::warn!(error = %error, "runs past their retention cannot be let go");
            }
            sleep(EXPIRY).await;
        }
    }
}

/// The runs that are being worked on.
#[derive(Default)]
struct Tasks {
    set: JoinSet<Result<Stepped, RunsError>>,
    busy: HashMap<task::Id, RunKey>,
}

impl Tasks {
    fn is_full(&self) -> bool {
        self.busy.len() >= RUNS_AT_ONCE
    }

    /// Begins to work on a run, unless that is being done.
    fn begin(&mut self, runs: &Runs, key: RunKey) {
        if self.busy.values().any(|busy| *busy == key) {
            return;
        }
        let (runs, run) = (runs.clone(), key.clone());
        let task = self.set.spawn(async move { runs.go_on(&run).await });
        self.busy.insert(task.id(), key);
    }

    /// The next that is done with for now, and what came of it or went wrong. Nothing if
    /// there is none.
    async fn ended(&mut self) -> Option<(RunKey, Result<Stepped, String>)> {
        let (task, done) = match self.set.join_next_with_id().await? {
            Ok((task, done)) => (task, done.map_err(|error| error.to_string())),
            Err(error) => (error.id(), Err("its task broke off".to_owned())),
        };
        self.busy.remove(&task).map(|key| (key, done))
    }
}

/// Why a step was not made.
enum Trouble {
    /// The run cannot go on, now or later.
    Fails(RunError),
    /// It may be otherwise another time.
    Memory(MemoryError),
}

impl From<MemoryError> for Trouble {
    fn from(error: MemoryError) -> Self {
        match failure_of(&error) {
            Some(failure) => Trouble::Fails(failure),
            None => Trouble::Memory(error),
        }
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        MemoryError::from(error).into()
    }
}

impl From<Trouble> for RunsError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Memory(error) => error.into(),
            Trouble::Fails(error) => MemoryError::Internal(error.message).into(),
        }
    }
}

/// What a run fails by, and would again. The rest passes: a disk that is full, a store
/// that is busy.
fn failure_of(error: &MemoryError) -> Option<RunError> {
    let (code, message) = match error {
        MemoryError::Entry(refused) => ("memory_refused", refused.to_string()),
        MemoryError::Name(_) => ("memory_ref_invalid", "its memory cannot be named so".to_owned()),
        MemoryError::Secret(_)
        | MemoryError::Store(StoreError::TooManySecrets | StoreError::NameTells) => {
            ("secret_refused", "the secret that it needs cannot be registered".to_owned())
        }
        MemoryError::Store(StoreError::EntryExists { .. }) => {
            ("memory_conflict", "an entry with an id of this run's is there already".to_owned())
        }
        MemoryError::DayBoundReached { .. }
        | MemoryError::Store(StoreError::BoundReached { .. }) => {
            ("bound_reached", error.to_string())
        }
        MemoryError::Store(StoreError::SnapshotGone { .. }) => (
            "memory_snapshot_unavailable",
            "memory cannot be read any more as it was when the run began".to_owned(),
        ),
        MemoryError::TokenBudgetExceeded { budget, minimum, most, .. } => (
            "token_budget_exceeded",
            format!(
                "a budget of {budget} tokens covers too little of what is due: it takes at least {minimum}{}",
                match minimum > most {
                    true => ", more than the host's `dreams.max_token_budget`",
                    false => "",
                }
            ),
        ),
        MemoryError::NoBudget { .. } => ("validation_error", error.to_string()),
        MemoryError::NothingToDream { .. } => {
            ("nothing_to_distill", "its memory holds nothing to distil".to_owned())
        }
        _ => return None,
    };
    Some(RunError { code: code.to_owned(), message })
}

fn unavailable() -> RunError {
    RunError {
        code: "workflow_unavailable".to_owned(),
        message: "its workflow is not on this host any more".to_owned(),
    }
}

fn timed_out() -> RunError {
    RunError {
        code: "run_timeout".to_owned(),
        message: "it took longer than its workflow allows".to_owned(),
    }
}

/// The node that a step is about.
fn node_of<'w>(next: &Next<'w>) -> Option<&'w Node> {
    match next {
        Next::Pass(node) | Next::PassOn(node) | Next::Dream(node) => Some(node),
        Next::Write(node, _) | Next::Read(node, _) => Some(node),
        Next::TimeOut(node) => *node,
        Next::Nothing | Next::Begin | Next::Wait(_) | Next::Finish => None,
    }
}

/// A run fails, at a node if at one.
fn failed(run: &RunRecord, node: Option<&Node>, error: RunError) -> Step {
    let payload = json!({"error": {"code": error.code, "message": error.message}});
    let at_node = node.map(|node| event("node.failed", Some(&node.id), payload.clone()));
    let events = at_node.into_iter().chain([event("run.failed", None, payload)]).collect();
    let step = Step::of(run, events);
    Step { status: RunStatus::Failed, error: Some(error), ..step }
}

/// A step of a run, in the making.
struct Work<'a> {
    runs: &'a Runs,
    principal: &'a Principal,
    workflow: &'a Workflow,
    run: &'a RunRecord,
    progress: Progress,
}

impl Work<'_> {
    async fn step(&self, next: &Next<'_>) -> Result<Step, Trouble> {
        match next {
            Next::Nothing | Next::Wait(_) | Next::Dream(_) => Ok(Step::of(self.run, Vec::new())),
            Next::Begin => {
                Ok(Step::of(self.run, plan::begun(self.workflow, self.principal, self.run)))
            }
            Next::Pass(node) => Ok(Step::of(self.run, plan::completed(self.workflow, node))),
            Next::PassOn(node) => Ok(self.leaving(node, fixtures::fields(self.run.inputs.json()))),
            Next::Write(node, action) => self.write(node, action).await,
            Next::Read(node, action) => Ok(self.leaving(node, self.read(node, action).await?)),
            Next::TimeOut(_) => Err(Trouble::Fails(timed_out())),
            Next::Finish => self.finish().await,
        }
    }

    /// A node is done and leaves variables behind.
    fn leaving(&self, node: &Node, variables: Vec<(String, NewValue)>) -> Step {
        let names = variables.iter().map(|(name, _)| name.as_str());
        let mut events = plan::changed(self.workflow, node, names);
        events.extend(plan::completed(self.workflow, node));
        Step { variables, ..Step::of(self.run, events) }
    }

    async fn write(&self, node: &Node, action: &MemoryAction) -> Result<Step, Trouble> {
        let scope = self.runs.memory.scope(self.principal, &node.memory_ref).await?;
        let secret = match fixtures::secret_of(action) {
            Some(name) => self.secret(name).await?,
            None => Zeroizing::default(),
        };
        let ends_at = |lives: u64| Millis(self.runs.memory.now().0.saturating_add(lives as i64));
        let put = |(number, draft): (usize, fixtures::Draft)| Put {
            scope: scope.clone(),
            id: format!("mem-{}-{}-{number}", self.run.id, node.id),
            entry: NewEntryRequest {
                content: draft.content,
                tags: vec!["source:run".to_owned(), self.run_tag()],
                expires_at: draft.lives_millis.map(ends_at),
                ..NewEntryRequest::default()
            },
            node: node.id.clone(),
            agent: node.agent.clone(),
        };
        let puts = (1..).zip(fixtures::drafts(action, &secret)).map(put).collect();
        Ok(Step { puts, ..Step::of(self.run, Vec::new()) })
    }

    /// The value of a tenant's secret. One that is not registered is made up here, so
    /// that there is something to hide.
    async fn secret(&self, name: &str) -> Result<Zeroizing<String>, Trouble> {
        let tenant = self.principal.tenant();
        for _ in 0..2 {
            if let Some(value) = self.runs.memory.secret(tenant, name).await? {
                return Ok(value);
            }
            match self.runs.memory.add_secret(tenant, name, random_value()?, false).await {
                // Somebody else was first.
                Ok(_) | Err(MemoryError::Store(StoreError::SecretExists { .. })) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(MemoryError::NoSecret { name: name.to_owned() }.into())
    }

    async fn read(
        &self,
        node: &Node,
        action: &MemoryAction,
    ) -> Result<Vec<(String, NewValue)>, Trouble> {
        let variables = match action {
            MemoryAction::WriteThenRead | MemoryAction::RedactionProbe { .. } => {
                vec![("memoryReadback", self.readback(node).await?)]
            }
            MemoryAction::TtlProbe => self.left_over(node).await?,
            MemoryAction::CrossTenantProbe { probe_ref } => {
                self.beyond_the_fence(node, probe_ref).await?
            }
            MemoryAction::InjectionBudget { token_budget, query, .. } => {
                self.budgeted(node, *token_budget, query).await?
            }
        };
        Ok(variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// The entry that a node put, as its memory lists it.
    async fn readback(&self, node: &Node) -> Result<NewValue, Trouble> {
        let put = self.put(node, 0)?;
        let listed = self.list(&node.memory_ref, EntryQuery::default()).await?;
        match listed.iter().any(|entry| entry.id == put.memory_id) {
            true => Ok(NewValue::Entry(put)),
            false => Err(gone()),
        }
    }

    async fn left_over(&self, node: &Node) -> Result<Variables, Trouble> {
        let (fresh, expired) = (self.put(node, 0)?, self.put(node, 1)?);
        let query = EntryQuery { limit: LISTED, ..EntryQuery::default() };
        let listed = self.list(&node.memory_ref, query).await?;
        Ok(vec![
            ("memoryList", fixtures::entries(&node.memory_ref, &listed)),
            ("freshId", fixtures::value(json!(fresh.memory_id))),
            ("expiredId", fixtures::value(json!(expired.memory_id))),
        ])
    }

    async fn beyond_the_fence(&self, node: &Node, probe_ref: &str) -> Result<Variables, Trouble> {
        let put = self.put(node, 0)?;
        let query = || EntryQuery { limit: LISTED, ..EntryQuery::default() };
        let owned = self.list(&node.memory_ref, query()).await?;
        // Neither sees the other's: not this tenant in a memory that is said to be
        // another's, and not another in this one.
        let mut foreign = fixtures::named(probe_ref, &self.list(probe_ref, query()).await?);
        let leaked = self.found_by_another(&node.memory_ref, query()).await?;
        foreign.extend(fixtures::named(&node.memory_ref, &leaked));
        Ok(vec![
            ("ownerEntryId", fixtures::value(json!(put.memory_id))),
            ("ownerProbe", fixtures::entries(&node.memory_ref, &owned)),
            ("crossTenantProbe", NewValue::Entries(foreign)),
        ])
    }

    async fn budgeted(&self, node: &Node, budget: u64, query: &str) -> Result<Variables, Trouble> {
        let memory_ref = &node.memory_ref;
        let (large, secret) = (self.put(node, fixtures::LARGE)?, self.put(node, fixtures::SECRET)?);
        // Runs of other times put the same; the orders are those of this one's entries.
        let mine = || EntryQuery { tag: Some(self.run_tag()), ..EntryQuery::default() };
        let within = || EntryQuery { token_budget: Some(budget), ..mine() };
        let by_query =
            EntryQuery { rank: EntryRank::Relevance, query: Some(query.to_owned()), ..mine() };
        let fitting = self.list(memory_ref, within()).await?;
        let newest = self.list(memory_ref, mine()).await?;
        let relevant = self.list(memory_ref, by_query).await?;
        let foreign = self.found_by_another(memory_ref, within()).await?;
        let total: u64 =
            fitting.iter().map(|entry| self.runs.memory.budget_size(entry.content.as_str())).sum();
        let is_omitted = fitting.iter().all(|entry| entry.id != large.memory_id);
        Ok(vec![
            ("tokenBudget", fixtures::value(json!(budget))),
            ("budgetedTokenTotal", fixtures::value(json!(total))),
            ("overBudgetEntryOmitted", fixtures::value(json!(is_omitted))),
            ("overBudgetEntryId", fixtures::value(json!(large.memory_id))),
            ("budgetedEntries", fixtures::entries(memory_ref, &fitting)),
            ("redactedContentSample", NewValue::Content(secret)),
            ("crossTenantBudgetedProbe", fixtures::entries(memory_ref, &foreign)),
            ("recencyOrder", fixtures::ids(&newest)),
            ("relevanceOrder", fixtures::ids(&relevant)),
        ])
    }

    /// Which of the run's own entries another tenant finds in a memory of this name: none.
    /// Whoever looks there writes nothing, and of what is not the run's nothing is named.
    async fn found_by_another(
        &self,
        memory_ref: &str,
        query: EntryQuery,
    ) -> Result<Vec<EntryRecord>, Trouble> {
        let mut other = Tenant::new(OTHER_TENANT).map_err(MemoryError::from)?;
        if other == *self.principal.tenant() {
            other = Tenant::new(ANOTHER_TENANT).map_err(MemoryError::from)?;
        }
        let (memory, other) = (&self.runs.memory, Principal::local_operator(other));
        let scope = memory.scope(&other, memory_ref).await?;
        let own = self.progress.own();
        let mut found = memory.entries(&scope, &EntryQuery { own: own.clone(), ..query }).await?;
        found.entries.retain(|entry| own.contains(&entry.id));
        Ok(found.entries)
    }

    /// Entries as the run sees them: what was there when it began, and what it put.
    async fn list(
        &self,
        memory_ref: &str,
        mut query: EntryQuery,
    ) -> Result<Vec<EntryRecord>, Trouble> {
        let scope = self.runs.memory.scope(self.principal, memory_ref).await?;
        query.at = Some(self.run.position);
        query.own.extend(self.progress.own());
        Ok(self.runs.memory.entries(&scope, &query).await?.entries)
    }

    /// What a node put as its nth, from 0.
    fn put(&self, node: &Node, nth: usize) -> Result<EntryRef, Trouble> {
        let put = self.progress.written_by(node).nth(nth);
        put.map(|written| written.entry.clone()).ok_or_else(gone)
    }

    /// The run sums itself up and ends, in one.
    async fn finish(&self) -> Result<Step, Trouble> {
        let scope = self.runs.memory.scope(self.principal, &self.workflow.memory_ref()).await?;
        let nodes: Vec<&str> = self.workflow.nodes.iter().map(|node| node.id.as_str()).collect();
        let content = format!(
            "Workflow {} ran to its end. Nodes: {}. Entries put: {}. Variables set: {}.",
            self.workflow.id,
            nodes.join(", "),
            self.progress.writes(),
            self.run.variables.len(),
        );
        let workflow_tag = format!("workflow:{}", self.workflow.id);
        let last = self.workflow.nodes.last();
        let summary = Put {
            scope,
            id: format!("mem-{}-summary", self.run.id),
            entry: NewEntryRequest {
                content,
                tags: vec!["run-summary".to_owned(), self.run_tag(), workflow_tag],
                ..NewEntryRequest::default()
            },
            node: last.map(|node| node.id.clone()).unwrap_or_default(),
            agent: last.and_then(|node| node.agent.clone()),
        };
        let events = vec![event("run.completed", None, json!({}))];
        let step = Step::of(self.run, events);
        Ok(Step { puts: vec![summary], status: RunStatus::Completed, ..step })
    }

    fn run_tag(&self) -> String {
        format!("run-id:{}", self.run.id)
    }
}

type Variables = Vec<(&'static str, NewValue)>;

/// Who must not see the entries of a run.
const OTHER_TENANT: &str = "icecore-conformance-other";

/// The same where that is the run's own tenant.
const ANOTHER_TENANT: &str = "icecore-conformance-another";

/// What a node put was deleted before it looked.
fn gone() -> Trouble {
    Trouble::Fails(RunError {
        code: "memory_entry_gone".to_owned(),
        message: "an entry that the run put is not there any more".to_owned(),
    })
}

/// A value that nobody can guess.
fn random_value() -> Result<Zeroizing<String>, MemoryError> {
    let mut bytes = Zeroizing::new([0_u8; 16]);
    getrandom::fill(bytes.as_mut()).map_err(|error| MemoryError::Internal(error.to_string()))?;
    Ok(Zeroizing::new(hex::encode(bytes.as_ref())))
}
