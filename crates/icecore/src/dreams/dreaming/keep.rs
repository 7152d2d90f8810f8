//! Keeping a dream: its archive sealed and written first, then all else in one step.

use std::sync::Arc;

use icecore_domain::dream::index::MAX_ARCHIVES;
use icecore_domain::dream::{self, IndexedArchive, MemorySection};
use icecore_domain::entries::DISTILLATE_TAG;
use icecore_domain::ids::{Position, Scope};
use icecore_domain::json::JsonText;
use icecore_domain::redact::{Hidden, Redactor};
use icecore_domain::workspace::Workspace;
use icecore_store::{
    DerivedEntry, DreamFigures, DreamRecord, DreamRun, Kept, KeptDream, NewArchive, NewDream,
    NewRun, NewRunEvent, PackKey, Packs, RunRecord, RunStatus, RunStep, RunValue, RunVariable,
    StoreError, seal_archive,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::draft::Draft;
use super::{DREAM_WORKFLOW, Dream, DreamPhase, DreamProgress, DreamRequest, Tell};
use crate::dreams::Dreams;
use crate::dreams::archives::pointer;
use crate::error::{MemoryError, Result, off_thread};
use crate::knowledge::compaction::{MAX_TOLD_IDS, looked_at, run_tag};
use crate::privacy::secrets::TenantRedactor;

/// The one node of a dream's workflow.
const NODE: &str = "dream";

/// The variable in which a run tells of its dream.
const VARIABLE: &str = "dream";

/// Other memories may write the index so often while a dream is kept.
const INDEX_TRIES: usize = 64;

/// How far an attempt got.
pub(super) enum Step {
    /// What was read is not so any more.
    Changed,
    /// Somebody else may dream now.
    LeaseLost,
    Done(Box<Dream>),
}

impl Dreams {
    /// Keeps a draft, all of it or nothing.
    pub(super) async fn keep_draft(
        &self,
        scope: &Scope,
        request: &DreamRequest,
        draft: &Draft,
        holder: &str,
        has_index: bool,
        tell: &mut Tell<'_>,
    ) -> Result<Step> {
        let tokens = draft.input_tokens + draft.output_tokens;
        let budget = draft.archive.budget;
        let mut tell = |phase| tell(DreamProgress { phase, tokens, budget });
        tell(DreamPhase::Sealing);
        let run = request.run.clone().unwrap_or_else(new_run);
        let known = self.store.run(scope.tenant(), &run).await?;
        if known.as_ref().is_some_and(|run| run.status.is_terminal()) {
            return Err(StoreError::RunExists { id: run }.into());
        }
        let dream = self.to_keep(scope, request, draft, (run, known), holder, has_index).await?;
        tell(DreamPhase::Keeping);
        if !self.lease(scope, holder).await? {
            return Ok(Step::LeaseLost);
        }
        let name = dream.archive.name.clone();
        let kept = self.put_and_keep(scope, draft, dream).await;
        match &kept {
            Ok(Step::Done(dream)) => self.after_keeping(scope, draft, dream, &name).await,
            // Nothing refers to it; it is swept later where this fails.
            Ok(Step::Changed | Step::LeaseLost)
            | Err(MemoryError::Store(
                StoreError::SecretsChanged
                | StoreError::FileConflict { .. }
                | StoreError::TooManyFiles { .. },
            )) => drop(self.archives.delete(&name).await),
            // It may have been kept all the same, and the answer lost.
            Err(_) => {}
        }
        kept
    }

    /// Writes the body, and then everything else.
    async fn put_and_keep(&self, scope: &Scope, draft: &Draft, dream: NewDream) -> Result<Step> {
        let (plain, checksum) = (draft.bytes.clone(), draft.checksum);
        let key = dream.archive.key.clone();
        let sealed = off_thread(move || seal_archive(&plain, checksum, &key)).await?;
        let body = sealed.map_err(MemoryError::Internal)?;
        let mut dream = dream;
        dream.archive.stored_bytes = body.len() as u64;
        dream.archive.sha256 = Sha256::digest(&body).into();
        let (name, sha256) = (&dream.archive.name, &dream.archive.sha256);
        self.archives.put(name, body.into()).await?;
        self.archives.get_lying(name, sha256).await?;
        Ok(match self.keep_with_index(scope, draft, dream).await? {
            Kept::Changed => Step::Changed,
            Kept::LeaseLost => Step::LeaseLost,
            Kept::Done(kept) => {
                let KeptDream { dream: record, payload, .. } = *kept;
                Step::Done(Box::new(Dream { record, unchanged: false, payload }))
            }
        })
    }

    /// Keeps a dream. Where only the index changed meanwhile, which all memories of a
    /// tenant share, only that is made again.
    async fn keep_with_index(
        &self,
        scope: &Scope,
        draft: &Draft,
        mut dream: NewDream,
    ) -> Result<Kept> {
        let mut conflicts = 0;
        loop {
            match self.store.keep_dream(scope, dream.clone()).await {
                Err(StoreError::FileConflict { .. })
                    if dream.index.is_some() && conflicts < INDEX_TRIES =>
                {
                    conflicts += 1;
                    let Draft { redactor, secrets_seen, now, .. } = draft;
                    let section = MemorySection::from_json(scope.memory(), dream.section.as_str());
                    let index =
                        self.index_with(scope, section, redactor, *secrets_seen, *now).await?;
                    dream.index = Some(index);
                }
                kept => return Ok(kept?),
            }
        }
    }

    /// What is done beside: none of it decides whether the dream was kept.
    async fn after_keeping(&self, scope: &Scope, draft: &Draft, dream: &Dream, name: &str) {
        let tenant = scope.tenant();
        let archives = self.store.archives_at(tenant, draft.checksum).await;
        // An archive of the same address was there: this body is not used.
        let is_used = |archives: &Vec<icecore_store::ArchiveRecord>| {
            archives.iter().any(|archive| archive.name == name)
        };
        if archives.is_ok_and(|archives| !is_used(&archives)) {
            drop(self.archives.delete(name).await);
        }
        if let Err(error) = self.note_distilled(scope, &draft.archive, draft.checksum).await {
            tracing::warn!(%scope, %error, "a model's distillate could not be noted");
        }
        if dream.record.index_updated {
            self.write_markdown(scope.tenant()).await;
        }
    }

    async fn to_keep(
        &self,
        scope: &Scope,
        request: &DreamRequest,
        draft: &Draft,
        (run, known): (String, Option<RunRecord>),
        holder: &str,
        has_index: bool,
    ) -> Result<NewDream> {
        let Draft { redactor, now, previous, .. } = draft;
        let output = output(redactor, draft, &run, self.entry_settings().bytes)?;
        let output_id = output.id.clone().unwrap_or_default();
        let section = self.section(scope, draft, &output_id).await?;
        let index = match has_index {
            true => {
                let section = Some(section.clone());
                Some(self.index_with(scope, section, redactor, draft.secrets_seen, *now).await?)
            }
            false => None,
        };
        let payload = payload(scope, draft, &output_id, output.content.as_str().len(), has_index);
        let told = Told { scope, request, draft, payload: &payload, output_id: &output_id };
        let run = match known {
            Some(known) => DreamRun::Step(told.step(&known)?),
            None => DreamRun::New(told.new_run(run)?),
        };
        let mut entries = draft.entries.clone();
        entries.extend(previous.as_ref().map(|dream| dream.output.clone()));
        let source_ids = json!(draft.source_ids).to_string();
        Ok(NewDream {
            holder: holder.to_owned(),
            previous: previous.as_ref().map(|dream| dream.run.clone()),
            epoch: draft.epoch,
            run,
            trigger: request.trigger,
            distiller: draft.archive.distiller.clone(),
            figures: figures(draft, output.content.as_str().len()),
            output,
            entries,
            spans: draft.spans.clone(),
            archive: NewArchive {
                checksum: draft.checksum,
                name: Packs::new_name(),
                key: PackKey::random(),
                bytes: draft.bytes.len() as u64,
                stored_bytes: 0,
                sha256: [0; 32],
            },
            section: redactor.text(&section.to_json()),
            source_ids: redactor.text(&source_ids),
            index,
            payload: Arc::new(move |_| payload.clone()),
            now: self.now(),
            secrets_seen: draft.secrets_seen,
        })
    }

    /// What the index says of the memory from now on, its secrets hidden.
    async fn section(&self, scope: &Scope, draft: &Draft, output: &str) -> Result<MemorySection> {
        let memory = scope.memory();
        let newest = IndexedArchive {
            checksum: draft.checksum,
            sources: draft.archive.sources.len() as u64,
            lines: draft.archive.distillate.lines.len() as u64,
            tokens: draft.output_tokens,
            between: draft.archive.between(),
        };
        let mut archives = vec![newest];
        if let Some(previous) = &draft.previous {
            let section = MemorySection::from_json(memory, previous.section.as_str());
            let older = section.map(|section| section.archives).unwrap_or_default();
            for archive in older {
                if archives.len() == MAX_ARCHIVES {
                    break;
                }
                let checksum = archive.checksum;
                let kept = self.store.archives_at(scope.tenant(), checksum).await?;
                let is_there = kept.iter().any(|kept| kept.key.is_some() && kept.scope == *scope);
                if checksum != draft.checksum && is_there {
                    archives.push(archive);
                }
            }
        }
        let mut section = MemorySection {
            memory: memory.to_owned(),
            output: output.to_owned(),
            archives,
            topics: Vec::new(),
        };
        let (distillate, redactor) = (draft.archive.distillate.clone(), draft.redactor.clone());
        section.topics = off_thread(move || {
            let mut topics = dream::index::topics(&distillate);
            topics.retain(|topic| redactor.text(&topic.name).as_str() == topic.name);
            topics
        })
        .await?;
        Ok(section)
    }

    /// Takes back the dream in force; nothing is answered where it is not any more.
    pub(super) async fn take_back(&self, record: &DreamRecord) -> Result<Option<DreamRecord>> {
        let scope = &record.scope;
        let TenantRedactor { redactor, version } = self.deriving_redactor(scope).await?;
        let index = match record.index_updated && self.index_file.is_some() {
            true => {
                let previous = match &record.previous {
                    Some(run) => self.store.dream(scope.tenant(), run).await?,
                    None => None,
                };
                let section = previous.and_then(|previous| {
                    MemorySection::from_json(scope.memory(), previous.section.as_str())
                });
                let now = self.now();
                Some(self.index_with(scope, section, &redactor, version, now).await?)
            }
            false => None,
        };
        let now = self.now();
        let undone = self.store.undo_dream(scope, &record.run, index, now).await?;
        if undone.is_some() {
            self.wake.notify_one();
            self.write_markdown(scope.tenant()).await;
        }
        Ok(undone)
    }

    /// The payload of a dream's `memory.compacted`.
    pub(super) async fn payload_of(&self, record: &DreamRecord) -> Result<String> {
        let before = Position(record.position.0.saturating_sub(1));
        let (tenant, memory) = (record.scope.tenant(), Some(record.scope.memory()));
        let events = self.store.events(tenant, memory, before, 1).await?;
        let told = events.into_iter().find(|event| event.position == record.position);
        Ok(told.map_or_else(|| payload_anew(record).to_string(), |event| event.payload))
    }
}

/// What tells of a dream.
struct Told<'a> {
    scope: &'a Scope,
    request: &'a DreamRequest,
    draft: &'a Draft,
    payload: &'a Value,
    output_id: &'a str,
}

impl Told<'_> {
    fn new_run(&self, id: String) -> Result<NewRun> {
        let Draft { redactor, now, secrets_seen, archive, .. } = self.draft;
        let inputs = json!({ "memoryRef": self.scope.memory(), "tokenBudget": archive.budget });
        let inputs = json_text(&inputs)?;
        Ok(NewRun {
            id,
            workflow: DREAM_WORKFLOW.to_owned(),
            principal: redactor.name(&self.request.principal).into_string(),
            inputs: redactor.redacted_json(&inputs),
            events: self.events(true),
            most_unfinished: u64::MAX,
            now: *now,
            secrets_seen: *secrets_seen,
            claim: None,
        })
    }

    fn step(&self, run: &RunRecord) -> Result<RunStep> {
        let Draft { redactor, now, secrets_seen, checksum, .. } = self.draft;
        let told = json!({
            "runId": run.id,
            "archiveChecksum": checksum.to_string(),
            "outputId": self.output_id,
            "unchanged": false,
        });
        let value = RunValue::Json(redactor.redacted_json(&json_text(&told)?));
        Ok(RunStep {
            run: run.id.clone(),
            seen: run.events,
            writes: Vec::new(),
            events: self.events(run.events == 0),
            variables: vec![RunVariable { name: VARIABLE.to_owned(), value }],
            status: RunStatus::Completed,
            error: None,
            now: *now,
            secrets_seen: *secrets_seen,
        })
    }

    /// What happens in the run.
    fn events(&self, begins: bool) -> Vec<NewRunEvent> {
        let at_node = Some(NODE.to_owned());
        let event = |kind, node: &Option<String>, payload: Value| NewRunEvent {
            kind,
            node: node.clone(),
            payload: payload.to_string(),
        };
        let mut events = Vec::new();
        if begins {
            let owner = json!({
                "tenant": self.scope.tenant().as_str(),
                "workspace": Workspace::DEFAULT,
                "principal": self.request.principal,
            });
            let payload = json!({ "workflowId": DREAM_WORKFLOW, "owner": owner });
            events.push(event("run.started", &None, payload));
            events.push(event("node.started", &at_node, json!({ "typeId": DREAM_WORKFLOW })));
        }
        let written = json!({
            "memoryRef": self.scope.memory(),
            "memoryId": self.output_id,
            "nodeId": NODE,
        });
        events.push(event("memory.written", &at_node, written));
        events.push(event("memory.compacted", &at_node, self.payload.clone()));
        events.push(event("node.completed", &at_node, json!({})));
        events.push(event("run.completed", &None, json!({})));
        let redactor = &self.draft.redactor;
        events.iter().map(|event| redacted_event(redactor, event)).collect()
    }
}

/// An event as it is stored. It has nothing to hide, since events quote nothing.
fn redacted_event(redactor: &Redactor, event: &NewRunEvent) -> NewRunEvent {
    let payload = match JsonText::parse(&event.payload) {
        Ok(json) => redactor.json(&json).as_str().to_owned(),
        Err(_) => redactor.text(&event.payload).into_string(),
    };
    let node = event.node.as_ref().map(|node| redactor.name(node).into_string());
    NewRunEvent { kind: event.kind, node, payload }
}

fn json_text(value: &Value) -> Result<JsonText> {
    JsonText::parse(&value.to_string()).map_err(|error| MemoryError::Internal(error.to_string()))
}

/// The id of a run that nobody named.
fn new_run() -> String {
    let name = Packs::new_name();
    format!("dream-{}", name.get(..16).unwrap_or(&name))
}

/// The distillate as an entry, or its head with a pointer to the archive.
fn output(redactor: &Redactor, draft: &Draft, run: &str, most: usize) -> Result<DerivedEntry> {
    let pointer = pointer(draft.checksum);
    let (content, hidden) = match draft.text.is_empty() {
        true => (redactor.text(&pointer), Hidden::default()),
        false => looked_at(&draft.text, |text| redactor.derived_text(text))?,
    };
    let content = match content.as_str().len() <= most {
        true => content,
        false => redactor.text(&cut(content.as_str(), &pointer, most)),
    };
    let tags = run_tag(redactor, run).into_iter().chain([redactor.text(DISTILLATE_TAG)]).collect();
    let id = Some(format!("mem-{run}-distillate"));
    Ok(DerivedEntry { id, content, tags, expires_at: draft.expires_at, hidden })
}

/// As many lines as fit, then one that says where the rest is.
fn cut(text: &str, pointer: &str, most: usize) -> String {
    let room = most.saturating_sub(pointer.len() + 1);
    let mut kept = String::new();
    for line in text.split_inclusive('\n') {
        if kept.len() + line.len() > room {
            break;
        }
        kept.push_str(line);
    }
    if !kept.is_empty() && !kept.ends_with('\n') {
        kept.push('\n');
    }
    kept.push_str(pointer);
    match kept.len() <= most {
        true => kept,
        false => kept.chars().take(most / 4).collect(),
    }
}

fn figures(draft: &Draft, content_bytes: usize) -> DreamFigures {
    DreamFigures {
        budget: draft.archive.budget,
        minimum: draft.plan.minimum,
        input_tokens: draft.input_tokens,
        output_tokens: draft.output_tokens,
        source_count: draft.read_ids.len() as u64,
        remaining: draft.plan.remaining,
        bytes_before: draft.bytes_before,
        bytes_after: content_bytes as u64,
        lines: draft.archive.distillate.lines.len() as u64,
    }
}

fn payload(
    scope: &Scope,
    draft: &Draft,
    output_id: &str,
    bytes: usize,
    index_updated: bool,
) -> Value {
    let mut payload = json!({
        "memoryRef": scope.memory(),
        "sourceCount": draft.read_ids.len(),
        "trigger": "host-managed",
        "byteSize": bytes,
        "outputId": output_id,
        "distillation": {
            "tokenBudget": draft.archive.budget,
            "tokensUsed": draft.input_tokens + draft.output_tokens,
            "indexUpdated": index_updated,
        },
    });
    if draft.read_ids.len() <= MAX_TOLD_IDS {
        payload["sourceIds"] = json!(draft.read_ids);
    }
    payload
}

/// The payload of a dream whose event is not to be had any more.
fn payload_anew(record: &DreamRecord) -> Value {
    let DreamFigures { budget, input_tokens, output_tokens, source_count, bytes_after, .. } =
        record.figures;
    json!({
        "memoryRef": record.scope.memory(),
        "sourceCount": source_count,
        "trigger": "host-managed",
        "byteSize": bytes_after,
        "outputId": record.output,
        "distillation": {
            "tokenBudget": budget,
            "tokensUsed": input_tokens + output_tokens,
            "indexUpdated": record.index_updated,
        },
    })
}
