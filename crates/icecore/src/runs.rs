//! Runs of workflows, as a memory keeps them: what they are given and leave behind
//! goes through the redactor as everything does.
//!
//! What a run does is for others to say. Here it is written, one step after the
//! other, each of them whole or not at all.

use icecore_domain::ids::{Principal, Scope, Tenant};
use icecore_domain::json::JsonText;
use icecore_domain::redact::{RedactedJson, Redactor};
use icecore_domain::time::Millis;
use icecore_store::{
    Claim, EntryRef, NewEntry, NewFork, NewRun, NewRunEvent, RunError, RunEventRecord, RunRecord,
    RunStatus, RunStep, RunValue, RunVariable, RunWrite, StoreError,
};

use crate::bounds::Taking;
use crate::entries::{self, EntryError, NewEntryRequest};
use crate::error::{Result, off_thread};
use crate::memory::{INLINE_BYTES, Memory};
use crate::pieces::in_pieces;
use crate::secrets::TenantRedactor;
use crate::secrets::write_redacted;
use crate::veil::Veil;

/// A run to make.
#[derive(Debug, Clone)]
pub struct NewRunRequest {
    /// Its id.
    pub id: String,
    /// Of which workflow.
    pub workflow: String,
    /// Who asked for it, by an opaque id.
    pub principal: String,
    /// What it is given.
    pub inputs: JsonText,
    /// How many runs of the tenant, with this one, may be unfinished.
    pub most_unfinished: u64,
    /// The caller's idempotency key.
    pub claim: Option<Claim>,
}

/// A run that repeats another.
#[derive(Debug, Clone)]
pub struct NewForkRequest {
    /// Its id.
    pub id: String,
    /// Which run it repeats.
    pub source: String,
    /// From which event on.
    pub from_seq: u64,
    /// The caller's idempotency key.
    pub claim: Option<Claim>,
}

/// What a run does next.
#[derive(Debug, Clone)]
pub struct RunStepRequest {
    /// Which run.
    pub run: String,
    /// How many events it has so far.
    pub seen: u64,
    /// What it puts; told in the run before `events`.
    pub puts: Vec<RunPut>,
    /// What happens besides.
    pub events: Vec<NewRunEvent>,
    /// Variables that it sets.
    pub variables: Vec<(String, NewRunValue)>,
    /// How it stands afterwards.
    pub status: RunStatus,
    /// Why it failed.
    pub error: Option<RunError>,
}

/// An entry that a node of a run puts.
#[derive(Debug, Clone)]
pub struct RunPut {
    /// Into which memory.
    pub scope: Scope,
    /// Under which id.
    pub id: String,
    /// What it says.
    pub content: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// How long after the step it ends by itself.
    pub lives_millis: Option<u64>,
    /// By which node.
    pub node: String,
    /// For which agent.
    pub agent: Option<String>,
}

/// What a variable is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewRunValue {
    /// A value of its own.
    Json(JsonText),
    /// An entry.
    Entry(EntryRef),
    /// Entries, in order.
    Entries(Vec<EntryRef>),
    /// What an entry says.
    Content(EntryRef),
}

impl Memory {
    /// Makes a run, which sees memory as it is now. The secrets in what it is given
    /// are hidden.
    pub async fn create_run(
        &self,
        principal: &Principal,
        request: NewRunRequest,
    ) -> Result<RunRecord> {
        write_redacted(|| self.create_run_once(principal, &request)).await
    }

    async fn create_run_once(
        &self,
        principal: &Principal,
        request: &NewRunRequest,
    ) -> Result<RunRecord> {
        let TenantRedactor { redactor, version } = self.redactor(principal.tenant()).await?;
        let name = |name: &str| redactor.name(name).into_string();
        let run = NewRun {
            id: name(&request.id),
            workflow: name(&request.workflow),
            principal: name(&request.principal),
            inputs: redacted(&redactor, &request.inputs).await?,
            events: Vec::new(),
            most_unfinished: request.most_unfinished,
            now: self.now(),
            secrets_seen: version,
            claim: request.claim.clone(),
        };
        Ok(self.inner.store.create_run(&principal.workspace(), run).await?)
    }

    /// Makes a run that repeats one that has ended, for the same owner and for as long
    /// as that one is kept; nothing if there is none such. It puts nothing and reads
    /// nothing.
    pub async fn fork_run(
        &self,
        principal: &Principal,
        request: NewForkRequest,
    ) -> Result<Option<RunRecord>> {
        let redactor = self.redactor(principal.tenant()).await?.redactor;
        let name = |name: &str| redactor.name(name).into_string();
        let fork = NewFork {
            id: name(&request.id),
            source: name(&request.source),
            from_seq: request.from_seq,
            now: self.now(),
            claim: request.claim,
        };
        let mut made = self.inner.store.fork_run(principal.tenant(), fork).await?;
        self.veil_runs(principal.tenant(), made.iter_mut()).await?;
        Ok(made)
    }

    /// A run of the principal's tenant, in whichever workspace, also one past its
    /// retention.
    pub async fn run(&self, principal: &Principal, id: &str) -> Result<Option<RunRecord>> {
        let tenant = principal.tenant();
        let id = self.redactor(tenant).await?.redactor.name(id);
        let mut found = self.inner.store.run(tenant, id.as_str()).await?;
        self.veil_runs(tenant, found.iter_mut()).await?;
        Ok(found)
    }

    /// Does the next thing in a run, all of it or nothing: the secrets in what it puts
    /// and in its variables are hidden. Nothing is answered, and nothing done, when
    /// the run has other than the `seen` number of events, has ended or is not there.
    pub async fn step_run(
        &self,
        principal: &Principal,
        request: RunStepRequest,
    ) -> Result<Option<RunRecord>> {
        write_redacted(|| self.step_run_once(principal.tenant(), &request)).await
    }

    async fn step_run_once(
        &self,
        tenant: &Tenant,
        request: &RunStepRequest,
    ) -> Result<Option<RunRecord>> {
        let now = self.now();
        let TenantRedactor { redactor, version } = self.redactor(tenant).await?;
        let mut writes = Vec::with_capacity(request.puts.len());
        for put in &request.puts {
            writes.push(self.run_write(put, &redactor, version, now).await?);
        }
        let mut variables = Vec::with_capacity(request.variables.len());
        for (name, value) in &request.variables {
            let name = redactor.text(name).into_string();
            variables.push(RunVariable { name, value: run_value(&redactor, value).await? });
        }
        let events = request.events.iter().map(|event| told(&redactor, event)).collect();
        let error = request.error.as_ref().map(|error| RunError {
            code: redactor.text(&error.code).into_string(),
            message: redactor.text(&error.message).into_string(),
        });
        let step = RunStep {
            run: redactor.name(&request.run).into_string(),
            seen: request.seen,
            writes,
            events,
            variables,
            status: request.status,
            error,
            now,
            secrets_seen: version,
        };
        let mut taking = Vec::with_capacity(step.writes.len());
        for write in &step.writes {
            taking.push(self.take_text(tenant, write.entry.content.as_str()).await?);
        }
        let stepped = self.inner.store.step_run(tenant, step).await;
        let mut stepped = self.within_bounds(stepped)?;
        if stepped.is_some() {
            taking.into_iter().for_each(Taking::keep_all);
        }
        if !request.puts.is_empty() {
            self.inner.wake.notify_one();
        }
        self.veil_runs(tenant, stepped.iter_mut()).await?;
        Ok(stepped)
    }

    async fn run_write(
        &self,
        put: &RunPut,
        redactor: &Redactor,
        version: u64,
        now: Millis,
    ) -> Result<RunWrite> {
        let lives = put.lives_millis.map(|millis| i64::try_from(millis).unwrap_or(i64::MAX));
        let expires_at = lives.map(|millis| Millis(now.0.saturating_add(millis)));
        if expires_at.is_some_and(|at| at <= now) {
            return Err(EntryError::Expired.into());
        }
        let request = NewEntryRequest {
            id: None,
            content: put.content.clone(),
            tags: put.tags.clone(),
            expires_at,
            claim: None,
        };
        let tags = entries::checked(&request, self.entry_settings())?;
        let name = |name: &String| redactor.name(name).into_string();
        let (id, node, agent) = (name(&put.id), name(&put.node), put.agent.as_ref().map(name));
        let (content, redactor) = (request.content, redactor.clone());
        let (content, tags, hidden) = match content.len() <= INLINE_BYTES {
            true => entries::hide(&redactor, &content, &tags),
            false => off_thread(move || entries::hide(&redactor, &content, &tags)).await?,
        };
        let entry = NewEntry {
            id: Some(id),
            content,
            tags,
            expires_at,
            now,
            secrets_seen: version,
            hidden,
            claim: None,
        };
        Ok(RunWrite { scope: put.scope.clone(), entry, node, agent })
    }

    /// Events of a run after a number, in order; from the first without one.
    pub async fn run_events(
        &self,
        principal: &Principal,
        id: &str,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<RunEventRecord>> {
        let tenant = principal.tenant();
        let id = self.redactor(tenant).await?.redactor.name(id);
        let mut events = self.inner.store.run_events(tenant, id.as_str(), after, limit).await?;
        if let Some(veil) = self.veil_of(tenant).await? {
            let size = |event: &RunEventRecord| event.payload.len();
            in_pieces(&mut events, size, move |event| {
                veil.payload(&mut event.payload);
                Ok(())
            })
            .await?;
        }
        Ok(events)
    }

    /// Runs, of any tenant, that have not ended, oldest first and in turns between
    /// tenants.
    pub async fn unfinished_runs(&self, limit: usize) -> Result<Vec<(Tenant, String)>> {
        Ok(self.inner.store.unfinished_runs(limit).await?)
    }

    /// Lets go of what runs, of any tenant, held that ended at or before a moment;
    /// answers of how many.
    pub async fn expire_runs(&self, ended_by: Millis) -> Result<u64> {
        let store = &self.inner.store;
        self.in_steps(|| store.expire_runs(ended_by, self.now(), RUNS_A_STEP)).await
    }

    /// Lets go of runs, of any tenant, that were let go of at or before a moment, name
    /// and all; answers how many. Nobody can tell then that they were there.
    pub async fn purge_runs(&self, expired_by: Millis) -> Result<u64> {
        self.in_steps(|| self.inner.store.purge_runs(expired_by, RUNS_A_STEP)).await
    }

    /// Takes a step after the other until one has less to do than it may.
    async fn in_steps<F>(&self, step: impl Fn() -> F) -> Result<u64>
    where
        F: Future<Output = std::result::Result<u64, StoreError>>,
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
            self.inner.store.tidy().await?;
        }
        Ok(gone)
    }

    /// Hides what is secret in runs that were read.
    async fn veil_runs(
        &self,
        tenant: &Tenant,
        runs: impl Iterator<Item = &mut RunRecord>,
    ) -> Result<()> {
        let Some(veil) = self.veil_of(tenant).await? else { return Ok(()) };
        in_pieces(runs, run_bytes, move |run| {
            veil.run(run);
            Ok(())
        })
        .await
    }
}

impl Veil {
    fn run(&self, run: &mut RunRecord) {
        run.inputs = self.json(&run.inputs);
        // As in a list of files, one whose path holds a secret is not named.
        run.files.retain(|file| self.text_of(file.path.as_str()).as_str() == file.path.as_str());
        for variable in &mut run.variables {
            variable.name = self.text_of(&variable.name).into_string();
            if let RunValue::Json(json) = &mut variable.value {
                *json = self.json(json);
            }
        }
    }
}

/// Runs let go in one transaction, so that no other write waits long for it.
const RUNS_A_STEP: usize = 200;

async fn run_value(redactor: &Redactor, value: &NewRunValue) -> Result<RunValue> {
    let named = |entry: &EntryRef| EntryRef {
        memory_ref: redactor.name(&entry.memory_ref).into_string(),
        memory_id: redactor.name(&entry.memory_id).into_string(),
    };
    Ok(match value {
        NewRunValue::Json(json) => RunValue::Json(redacted(redactor, json).await?),
        NewRunValue::Entry(entry) => RunValue::Entry(named(entry)),
        NewRunValue::Entries(entries) => RunValue::Entries(entries.iter().map(named).collect()),
        NewRunValue::Content(entry) => RunValue::Content(named(entry)),
    })
}

/// An event without what is secret. None has any: who tells it quotes nothing.
pub(crate) fn told(redactor: &Redactor, event: &NewRunEvent) -> NewRunEvent {
    let payload = match JsonText::parse(&event.payload) {
        Ok(json) => redactor.json(&json).as_str().to_owned(),
        Err(_) => redactor.text(&event.payload).into_string(),
    };
    let node = event.node.as_ref().map(|node| redactor.name(node).into_string());
    NewRunEvent { kind: event.kind, node, payload }
}

fn run_bytes(run: &RunRecord) -> usize {
    let bytes = |variable: &RunVariable| match &variable.value {
        RunValue::Json(json) => json.json().as_str().len(),
        _ => 0,
    };
    let files: usize = run.files.iter().map(|file| file.path.as_str().len()).sum();
    run.inputs.json().as_str().len() + files + run.variables.iter().map(bytes).sum::<usize>()
}

async fn redacted(redactor: &Redactor, json: &JsonText) -> Result<RedactedJson> {
    if json.as_str().len() <= INLINE_BYTES {
        return Ok(redactor.redacted_json(json));
    }
    let (redactor, json) = (redactor.clone(), json.clone());
    off_thread(move || redactor.redacted_json(&json)).await
}
