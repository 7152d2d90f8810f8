//! A dream before it is kept: planned, read, distilled, and its secrets hidden.

use std::collections::BTreeSet;

use icecore_domain::dream::archive::place_of;
use icecore_domain::dream::{
    self, Archive, ArchiveSource, Checksum, Distillate, Due, Limits, Line, Plan, Refusal, Source,
    SourceKind, distil,
};
use icecore_domain::ids::{Position, Scope};
use icecore_domain::redact::Redactor;
use icecore_domain::time::Millis;
use icecore_domain::tokens::TokenCounter;
use icecore_store::{DreamRecord, DreamSpan};

use super::due::What;
use super::reading::{Bounds, Reader};
use super::{DreamPhase, DreamPreview, DreamProgress, DreamRequest, Tell};
use crate::dreams::Dreams;
use crate::dreams::distiller::{Distilled, Task};
use crate::error::{MemoryError, Result, off_thread};
use crate::knowledge::compaction::looked_at;
use crate::privacy::secrets::TenantRedactor;

/// Where everything else is read at its coarsest, what is carried is cut to so many
/// tokens.
const CARRIED_TOKENS: u64 = 1_024;

/// At this place among the ways to read something everything is at its coarsest.
const COARSEST: usize = 3;

/// Tokens that a dream may write of a small budget where nobody asked for fewer.
const OUTPUT_TOKENS: u64 = 8_000;

/// Of a large budget it may write one token in so many.
const OUTPUT_SHARE: u64 = 8;

/// What a dream may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) budget: u64,
    pub(super) output: u64,
    /// The most that any dream may have.
    pub(super) most: u64,
}

impl Asked {
    /// What may be written, as an archive has it.
    fn output_limit(&self) -> u64 {
        self.output.min(self.budget)
    }
}

/// What there is to keep.
pub(super) enum Drafted {
    /// Nothing is due, and this dream stands.
    Unchanged(Box<DreamRecord>),
    New(Box<Draft>),
}

/// A dream to keep.
pub(super) struct Draft {
    pub(super) archive: Archive,
    pub(super) bytes: Vec<u8>,
    pub(super) checksum: Checksum,
    /// The distillate as text.
    pub(super) text: String,
    pub(super) plan: Plan,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    /// What was read beside what is carried, oldest first.
    pub(super) read_ids: Vec<String>,
    /// What the archive's sources are, in its order; empty for what has no id.
    pub(super) source_ids: Vec<String>,
    /// The entries that were read.
    pub(super) entries: Vec<String>,
    pub(super) spans: Vec<DreamSpan>,
    pub(super) bytes_before: u64,
    /// When the first entry ends that was read.
    pub(super) expires_at: Option<Millis>,
    pub(super) previous: Option<DreamRecord>,
    /// What the last dream came to.
    pub(super) before: Option<Distillate>,
    pub(super) epoch: u64,
    /// Where people last said something about a fact.
    pub(super) verdicts: Position,
    pub(super) redactor: Redactor,
    pub(super) secrets_seen: u64,
    pub(super) now: Millis,
}

impl Draft {
    pub(super) fn preview(self, asked: Asked) -> DreamPreview {
        DreamPreview {
            unchanged: false,
            archive: self.archive,
            checksum: self.checksum,
            before: self.before,
            budget: asked.budget,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            source_count: self.read_ids.len() as u64,
            remaining: self.plan.remaining,
            minimum: self.plan.minimum,
        }
    }
}

/// What the last dream came to, by each way to read it.
struct Carried {
    checksum: Checksum,
    whole: Distillate,
    /// Its best lines, where it has many.
    cut: Option<Distillate>,
}

impl Dreams {
    /// What a dream may use, as far as it may.
    pub(super) fn asked(&self, request: &DreamRequest) -> Result<Asked> {
        let settings = &self.settings.dreams;
        if request.budget == Some(0) {
            return Err(MemoryError::NoBudget { budget: 0 });
        }
        let most = settings.max_token_budget;
        let budget = request.budget.unwrap_or(most).min(most);
        let output = request.output_tokens.unwrap_or(OUTPUT_TOKENS.max(budget / OUTPUT_SHARE));
        Ok(Asked { budget, output: output.min(settings.output_tokens), most })
    }

    /// Plans a dream, reads its sources and distils them. Nothing is written.
    pub(super) async fn draft(
        &self,
        scope: &Scope,
        request: &DreamRequest,
        asked: Asked,
        tell: &mut Tell<'_>,
    ) -> Result<Drafted> {
        let mut tell = |phase, tokens| tell(DreamProgress { phase, tokens, budget: asked.budget });
        tell(DreamPhase::Looking, 0);
        let now = self.now();
        let TenantRedactor { redactor, version } = self.deriving_redactor(scope).await?;
        let head = self.store.scope_head(scope).await?;
        let previous = self.dream_in_force(scope).await?;
        let only = request.only.as_deref();
        if let (Some(ids), Some(dream)) = (only, &previous) {
            refuse_own_output(scope, dream, ids)?;
            let ids: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
            let held = self.held(scope, dream, &ids, now).await?;
            let is_all = held == ids.len() && dream.figures.source_count == held as u64;
            if held > 0 && is_all && dream.previous.is_none() {
                return stands(scope, asked, dream.clone());
            }
            if held > 0 {
                return Err(in_force(scope, dream));
            }
        }
        let mut due = self.all_due(scope, only, now).await?;
        let mut reader = self.reader(scope, redactor.clone()).await?;
        let dreamt_at = previous.as_ref().map_or(Position(0), |dream| dream.position);
        // What people said about facts since is due as well.
        let is_told_due = match &previous {
            _ if only.is_some() => false,
            Some(_) => head.verdicts > dreamt_at,
            None => reader.told.is_some(),
        };
        let nothing = |previous: Option<DreamRecord>| match previous {
            Some(dream) if only.is_none() => stands(scope, asked, dream),
            _ => Err(MemoryError::NothingToDream { memory: scope.memory().to_owned() }),
        };
        if due.is_empty() && !is_told_due {
            return nothing(previous);
        }
        let before = self.before(scope, previous.as_ref()).await?;
        let carried = match (&before, &previous) {
            (Some(whole), Some(dream)) if only.is_none() => {
                let whole = reader.without_rejected(whole.clone());
                Some(self.carried(dream.archive, whole, &redactor).await?)
            }
            _ => None,
        };
        if only.is_some() {
            reader.told = None;
        }
        let mut ahead = ahead(carried.as_ref(), &reader);
        let fixed: u64 = ahead.iter().map(|due| u64::from(*due.costs.last().unwrap_or(&0))).sum();
        let min_percent = self.settings.dreams.min_coverage_percent;
        let bounds = Bounds { budget: asked.budget.saturating_sub(fixed), min_percent };
        let mut read = self.weigh(scope, &reader, &mut due, bounds, now).await?;
        // Where all else cannot be read.
        if due.is_empty() && !is_told_due {
            return nothing(previous);
        }
        let judged = match due.is_empty() {
            true => reader.judged_after(dreamt_at),
            false => Vec::new(),
        };
        if due.is_empty() {
            // That is the source then, though nothing may be left to tell.
            let cost = reader.told.as_ref().map(|_| ahead.pop()).and_then(|told| told?.costs.pop());
            ahead.push(Due { costs: vec![cost.unwrap_or(0)], is_carried: false });
        }

        let all: Vec<Due> =
            ahead.iter().cloned().chain(read.weighed.iter().map(|one| one.due())).collect();
        let limits = Limits {
            budget: asked.budget,
            output: asked.output,
            min_coverage_percent: min_percent,
        };
        let plan = dream::plan(&all, read.beyond, &limits).map_err(|refusal| match refusal {
            Refusal::Nothing => MemoryError::NothingToDream { memory: scope.memory().to_owned() },
            Refusal::TooSmall { budget, minimum } => too_small(scope, budget, minimum, asked.most),
        })?;
        if let (Some(_), Some(dream)) = (only, &previous) {
            return Err(in_force(scope, dream));
        }
        tell(DreamPhase::Reading, 0);
        let (first, readings) = plan.readings.split_at(ahead.len());
        let count = readings.len();
        let weighed = &mut read.weighed[..count];
        let items = &due.items[..count];
        let sources = self.sources(scope, &reader, items, weighed, readings, now).await?;
        let expires_at = weighed.iter().filter_map(|one| one.expires_at).min();
        // What the last dream wrote is stood for as well.
        let carried_bytes = previous.as_ref().map_or(0, |dream| dream.figures.bytes_after);
        let bytes_before = carried_bytes + weighed.iter().map(|one| one.bytes).sum::<u64>();
        let read_ids = weighed.iter().map(|one| one.id.clone()).filter(|id| !id.is_empty());
        let read_ids: Vec<String> = read_ids.chain(judged).collect();
        let entry = |(item, id): (&super::due::DueItem, &String)| {
            (matches!(item.what, What::Entry(_)) && !id.is_empty()).then(|| id.clone())
        };
        let ids: Vec<String> = weighed.iter().map(|one| one.id.clone()).collect();
        let entries: Vec<String> = items.iter().zip(&ids).filter_map(entry).collect();

        let sources = in_place(sources, carried.as_ref(), first, reader.told.take());
        let Placed { task, source_ids } = {
            let (of, asked, limit) = ((scope.clone(), head.epoch), asked, plan.output);
            let redactor = redactor.clone();
            off_thread(move || sources.placed(of, asked, limit, redactor)).await?
        };
        tell(DreamPhase::Distilling, plan.input);
        let named = task.named.clone();
        let Distilled { distillate, distiller, told_tokens } = self.distilled(task).await?;
        let limit = plan.output.min(asked.budget.saturating_sub(plan.input + told_tokens));
        let counter = std::sync::Arc::clone(&self.counter);
        let hides = redactor.clone();
        let (budget, output) = (asked.budget, asked.output_limit());
        let (archive, bytes, text) = off_thread(move || {
            let distillate = clean(&hides, distillate, limit, counter.as_ref())?;
            let tokenizer = counter.name().to_owned();
            let sources = named;
            let archive = Archive { budget, output, distiller, tokenizer, sources, distillate };
            let bytes = archive.to_bytes();
            let archive = Archive::parse(&bytes)
                .map_err(|error| MemoryError::Internal(format!("a dream went wrong: {error}")))?;
            let text = archive.distillate.text();
            Ok::<_, MemoryError>((archive, bytes, text))
        })
        .await??;
        let input_tokens = plan.input + told_tokens;
        let output_tokens = u64::from(self.counter.count(&text));
        tell(DreamPhase::Distilling, input_tokens + output_tokens);
        Ok(Drafted::New(Box::new(Draft {
            checksum: Checksum::of(&bytes),
            archive,
            bytes,
            text,
            spans: due.spans(count),
            plan,
            input_tokens,
            output_tokens,
            read_ids,
            source_ids,
            entries,
            bytes_before,
            expires_at,
            previous,
            before,
            epoch: head.epoch,
            verdicts: head.verdicts,
            redactor,
            secrets_seen: version,
            now,
        })))
    }

    /// How many of these entries a dream stands for.
    async fn held(
        &self,
        scope: &Scope,
        dream: &DreamRecord,
        ids: &BTreeSet<&str>,
        now: Millis,
    ) -> Result<usize> {
        let mut held = 0;
        for id in ids {
            let entry = self.store.entry(scope, id, None, now).await?;
            let successor = entry.and_then(|entry| entry.successor);
            held += usize::from(successor.as_deref() == Some(dream.output.as_str()));
        }
        Ok(held)
    }

    /// What the last dream came to.
    async fn before(
        &self,
        scope: &Scope,
        previous: Option<&DreamRecord>,
    ) -> Result<Option<Distillate>> {
        let Some(dream) = previous else { return Ok(None) };
        match self.distillate_of(scope, dream).await {
            Err(gone @ MemoryError::ArchiveGone { .. }) => {
                let now = self.dream_in_force(scope).await?;
                // It was lost with something that was forgotten meanwhile.
                match now.is_some_and(|now| now.run == dream.run) {
                    true => Err(gone),
                    false => Err(MemoryError::EntriesChanged),
                }
            }
            read => read.map(Some),
        }
    }

    async fn carried(
        &self,
        checksum: Checksum,
        whole: Distillate,
        redactor: &Redactor,
    ) -> Result<Carried> {
        let counter = std::sync::Arc::clone(&self.counter);
        let redactor = redactor.clone();
        off_thread(move || {
            let limit = u64::from(u32::MAX);
            let whole = clean(&redactor, whole, limit, counter.as_ref())?;
            let is_long = u64::from(counter.count(&whole.text())) > CARRIED_TOKENS;
            let cut = is_long.then(|| {
                let source = carried_source(&whole);
                distil(&[source], Some(&whole), CARRIED_TOKENS, counter.as_ref())
            });
            Ok(Carried { checksum, whole, cut })
        })
        .await?
    }
}

/// The dream before, if its budget would do again.
fn stands(scope: &Scope, asked: Asked, dream: DreamRecord) -> Result<Drafted> {
    match asked.budget < dream.figures.minimum {
        true => Err(too_small(scope, asked.budget, dream.figures.minimum, asked.most)),
        false => Ok(Drafted::Unchanged(Box::new(dream))),
    }
}

/// A dream does not read what it came to itself.
fn refuse_own_output(scope: &Scope, dream: &DreamRecord, ids: &[String]) -> Result<()> {
    match ids.contains(&dream.output) {
        true => Err(MemoryError::OwnOutput {
            id: dream.output.clone(),
            memory: scope.memory().to_owned(),
        }),
        false => Ok(()),
    }
}

fn in_force(scope: &Scope, dream: &DreamRecord) -> MemoryError {
    MemoryError::DreamInForce { memory: scope.memory().to_owned(), run: dream.run.clone() }
}

fn too_small(scope: &Scope, budget: u64, minimum: u64, most: u64) -> MemoryError {
    let memory = scope.memory().to_owned();
    MemoryError::TokenBudgetExceeded { memory, budget, minimum, most }
}

/// What is read in any case, first.
fn ahead(carried: Option<&Carried>, reader: &Reader) -> Vec<Due> {
    let mut ahead = Vec::new();
    if let Some(carried) = carried {
        let whole = reader.count(&carried_source(&carried.whole));
        let mut costs = vec![whole; COARSEST];
        if let Some(cut) = &carried.cut {
            costs.push(reader.count(&carried_source(cut)));
        }
        ahead.push(Due { costs, is_carried: true });
    }
    if let Some(told) = &reader.told {
        ahead.push(Due { costs: vec![reader.count(told)], is_carried: true });
    }
    ahead
}

fn carried_source(distillate: &Distillate) -> Source {
    let part = dream::Part { role: String::new(), name: None, text: distillate.text(), at: None };
    Source {
        kind: SourceKind::Archive,
        session: String::new(),
        seq: 0,
        parts: vec![part],
        facts: Vec::new(),
    }
}

/// Sources with their ids, not yet in the archive's order.
struct Unplaced {
    sources: Vec<(Source, String)>,
    carried: Option<(Checksum, Distillate)>,
}

/// Sources as they stand in the archive's list.
struct Placed {
    task: Task,
    source_ids: Vec<String>,
}

/// Puts what is read in any case to the rest, by the ways that were planned.
fn in_place(
    mut sources: Vec<(Source, String)>,
    carried: Option<&Carried>,
    ways: &[usize],
    told: Option<Source>,
) -> Unplaced {
    let carried = carried.map(|carried| {
        let is_cut = ways.first().is_some_and(|way| *way >= COARSEST);
        let read = carried.cut.as_ref().filter(|_| is_cut).unwrap_or(&carried.whole);
        sources.push((carried_source(read), carried.checksum.to_string()));
        (carried.checksum, read.clone())
    });
    sources.extend(told.map(|told| (told, String::new())));
    // What is not there any more, or says nothing.
    sources.retain(|(source, _)| !source.parts.is_empty() || !source.facts.is_empty());
    Unplaced { sources, carried }
}

impl Unplaced {
    fn placed(
        mut self,
        (scope, epoch): (Scope, u64),
        asked: Asked,
        output_tokens: u64,
        redactor: Redactor,
    ) -> Placed {
        self.sources.sort_by_cached_key(|(source, _)| place_of(source));
        let checksum = self.carried.as_ref().map(|(checksum, _)| checksum.0);
        let named = |(source, _): &(Source, String)| ArchiveSource {
            kind: source.kind,
            hash: match source.kind {
                SourceKind::Archive => checksum.unwrap_or_default(),
                _ => source.hash(),
            },
        };
        let named = self.sources.iter().map(named).collect();
        let (sources, source_ids) = self.sources.into_iter().unzip();
        let carried = self.carried.map(|(_, distillate)| distillate);
        let (budget, output_limit) = (asked.budget, asked.output_limit());
        let task = Task {
            scope,
            epoch,
            sources,
            named,
            carried,
            budget,
            output_tokens,
            output_limit,
            redactor,
        };
        Placed { task, source_ids }
    }
}

/// A distillate whose secrets are hidden, and that still fits. Text that is not clean
/// then is not kept.
fn clean(
    redactor: &Redactor,
    distillate: Distillate,
    limit: u64,
    counter: &dyn TokenCounter,
) -> Result<Distillate> {
    let hide = |text: &str| -> Result<String> {
        let (text, _) = looked_at(text, |text| redactor.derived_text(text))?;
        Ok(text.into_string())
    };
    let line = |line: Line| -> Result<Line> {
        let before = line.before.as_deref().map(hide).transpose()?;
        Ok(Line { text: hide(&line.text)?, before, ..line })
    };
    let lines = distillate.lines.into_iter().map(line).collect::<Result<Vec<_>>>()?;
    let mut clean = Distillate { lines };
    // What stands in a secret's place may be longer than it.
    while u64::from(counter.count(&clean.text())) > limit && clean.lines.pop().is_some() {}
    Ok(clean)
}
