//! A model in the loop of a dream.
//!
//! What is read is asked about in parts, each within the model's window, and what comes
//! back is checked against the sources and put together here. A part that the model does
//! not answer, or not usably, is distilled without it, and the archive says so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use icecore_domain::dream::{
    Archive, ArchiveSource, Checksum, DistilPrompt, Distillate, EXTRACTIVE, Line, Section, Source,
    SourceKind, distil, merge, read_reply,
};
use icecore_domain::fact::FactKind;
use icecore_domain::ids::{Scope, Tenant};
use icecore_domain::redact::Redactor;
use icecore_domain::tokens::TokenCounter;

use crate::dreams::Dreams;
use crate::error::{Result, off_thread};
use crate::models::Distiller;

/// What is to be distilled.
pub(crate) struct Task {
    /// Whose it is.
    pub(crate) scope: Scope,
    /// The memory's epoch as it was before anything was read.
    pub(crate) epoch: u64,
    /// In the order of the archive's list.
    pub(crate) sources: Vec<Source>,
    /// The addresses of what they are in that list.
    pub(crate) named: Vec<ArchiveSource>,
    /// What the last dream came to, if it is among the sources.
    pub(crate) carried: Option<Distillate>,
    /// Tokens that may be used in all.
    pub(crate) budget: u64,
    /// Tokens that may be written beside what is read.
    pub(crate) output_tokens: u64,
    /// Tokens that might be written of that budget, as the archive has it.
    pub(crate) output_limit: u64,
    /// What hides secrets in what a model wrote.
    pub(crate) redactor: Redactor,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Distilled {
    /// The distillate.
    pub(crate) distillate: Distillate,
    /// What made it.
    pub(crate) distiller: String,
    /// Tokens that were read beside the sources: what a model was told to do with them.
    pub(crate) told_tokens: u64,
}

/// Distillates that models made last, by what they were made of.
#[derive(Default)]
pub(crate) struct DistilledCache(Mutex<VecDeque<([u8; 32], Distilled)>>);

/// Distillates that are kept at hand.
const CACHED: usize = 8;

/// A part is not worth asking about if its reply may have fewer tokens.
const SMALLEST_REPLY: u64 = 24;

/// What a provider's count may be above the budget, in percent.
const PROVIDER_SLACK_PERCENT: u64 = 10;

impl DistilledCache {
    fn get(&self, key: &[u8; 32]) -> Option<Distilled> {
        let cached = self.0.lock().ok()?;
        cached.iter().find(|(known, _)| known == key).map(|(_, made)| made.clone())
    }

    fn put(&self, key: [u8; 32], made: Distilled) {
        if let Ok(mut cached) = self.0.lock() {
            cached.retain(|(known, _)| *known != key);
            cached.push_front((key, made));
            cached.truncate(CACHED);
        }
    }

    /// Forgets all: something in it may have been forgotten, or be a secret now.
    pub(crate) fn clear(&self) {
        if let Ok(mut cached) = self.0.lock() {
            cached.clear();
        }
    }
}

impl Dreams {
    /// Distils, with the first model that answers, if there is one. What one made of the
    /// same sources under the same budget before is taken as it was, from this process or
    /// from the archive that it went into.
    pub(crate) async fn distilled(&self, task: Task) -> Result<Distilled> {
        let (mut in_vain, mut used_tokens) = (None, 0);
        for model in self.distillers(&task) {
            let model = model.as_ref();
            let key = self.memo_key(&task, model).await?;
            if let Some(made) = self.distilled.get(&key) {
                return Ok(made);
            }
            if let Some(made) = self.kept_distillate(&task, &key, model).await? {
                return Ok(made);
            }
            let asked = Asking::new(self, &task, model, used_tokens).distilled().await?;
            if asked.is_final {
                self.distilled.put(key, asked.made.clone());
            }
            if asked.is_of_model {
                return Ok(asked.made);
            }
            // What one was asked in vain the next cannot be asked with.
            used_tokens = asked.used_tokens;
            in_vain = Some(asked.made);
        }
        if let Some(made) = in_vain {
            return Ok(made);
        }
        let counter = Arc::clone(&self.counter);
        off_thread(move || {
            let Task { sources, carried, output_tokens, .. } = task;
            let distillate = distil(&sources, carried.as_ref(), output_tokens, counter.as_ref());
            Distilled { distillate, distiller: EXTRACTIVE.to_owned(), told_tokens: 0 }
        })
        .await
    }

    /// The models to ask, in order.
    fn distillers(&self, task: &Task) -> Vec<Arc<dyn Distiller>> {
        match &self.distiller {
            Some(model) => vec![Arc::clone(model)],
            None => self.dream_models(&task.scope, task.epoch),
        }
    }

    /// Notes which archive holds what a model made of sources, so that it is not asked
    /// again. The note holds no content: a keyed hash and an address.
    pub(crate) async fn note_distilled(
        &self,
        scope: &Scope,
        archive: &Archive,
        checksum: Checksum,
    ) -> Result<()> {
        let models = match &self.distiller {
            Some(model) => vec![Arc::clone(model)],
            None => self.dream_models(scope, 0),
        };
        let is_maker = |model: &&Arc<dyn Distiller>| is_made_by(&archive.distiller, model.name());
        let Some(model) = models.iter().find(is_maker) else { return Ok(()) };
        let limits = (archive.budget, archive.output);
        let key = self.key_of(scope.tenant(), &archive.sources, limits, model.as_ref()).await?;
        Ok(self.store.put_note(&note_of(&key), &checksum.to_string()).await?)
    }

    async fn memo_key(&self, task: &Task, model: &dyn Distiller) -> Result<[u8; 32]> {
        let limits = (task.budget, task.output_limit);
        self.key_of(task.scope.tenant(), &task.named, limits, model).await
    }

    async fn key_of(
        &self,
        tenant: &Tenant,
        sources: &[ArchiveSource],
        (budget, output): (u64, u64),
        model: &dyn Distiller,
    ) -> Result<[u8; 32]> {
        let mut bytes = Vec::with_capacity(sources.len() * 33);
        for source in sources {
            bytes.push(
                SourceKind::ALL.iter().position(|kind| *kind == source.kind).unwrap_or(0) as u8
            );
            bytes.extend(source.hash);
        }
        let (budget, output) = (budget.to_be_bytes(), output.to_be_bytes());
        let model = model.identity();
        let parts = [&bytes[..], &budget, &output, model.as_bytes()];
        self.keyed_hash(tenant, "distilled", &parts).await
    }

    /// What an archive holds that was made of the same, if it is still to be had.
    async fn kept_distillate(
        &self,
        task: &Task,
        key: &[u8; 32],
        model: &dyn Distiller,
    ) -> Result<Option<Distilled>> {
        let note = self.store.note(&note_of(key)).await?;
        let Some(checksum) = note.as_deref().and_then(Checksum::parse) else { return Ok(None) };
        let Ok((_, archive)) = self.find_archive(task.scope.tenant(), None, checksum).await else {
            return Ok(None);
        };
        let is_same = archive.sources == task.named
            && (archive.budget, archive.output) == (task.budget, task.output_limit)
            && is_made_by(&archive.distiller, model.name());
        let tokens = u64::from(self.counter.count(&archive.distillate.text()));
        Ok((is_same && tokens <= task.output_tokens).then(|| Distilled {
            distillate: archive.distillate.clone(),
            distiller: archive.distiller.clone(),
            told_tokens: 0,
        }))
    }
}

fn note_of(key: &[u8; 32]) -> String {
    format!("distilled {}", hex::encode(key))
}

/// What an archive says of a model that made all of it.
fn made_by(model: &str) -> String {
    format!("model:{model}")
}

/// Whether the model made it, or some of it.
fn is_made_by(distiller: &str, model: &str) -> bool {
    let whole = made_by(model);
    distiller == whole || distiller == format!("{whole}+{EXTRACTIVE}")
}

/// A model being asked, part by part.
struct Asking<'a> {
    memory: &'a Dreams,
    task: &'a Task,
    model: &'a dyn Distiller,
    counter: &'a dyn TokenCounter,
    /// Tokens as the provider counts them, of all that was asked and may be answered.
    provider_tokens: u64,
    /// Whether it failed to answer: then it is not asked again.
    is_silent: bool,
    answered: usize,
    fell_back: usize,
    told_tokens: u64,
    /// Tokens that answers of no use took, of this model and those before.
    used_tokens: u64,
}

/// What came of asking a model.
struct Asked {
    made: Distilled,
    /// Whether asking again would be for nothing.
    is_final: bool,
    /// Whether it answered anything of use.
    is_of_model: bool,
    /// Tokens that answers of no use took so far.
    used_tokens: u64,
}

/// Sources that are asked about together: the first, and how many.
struct AskedPart {
    first: usize,
    count: usize,
    tokens: u64,
}

impl<'a> Asking<'a> {
    fn new(memory: &'a Dreams, task: &'a Task, model: &'a dyn Distiller, used_tokens: u64) -> Self {
        Self {
            memory,
            task,
            model,
            counter: memory.counter.as_ref(),
            provider_tokens: 0,
            is_silent: false,
            answered: 0,
            fell_back: 0,
            told_tokens: 0,
            used_tokens,
        }
    }

    /// What comes of it.
    async fn distilled(mut self) -> Result<Asked> {
        let parts = self.parts();
        let input: u64 = parts.iter().map(|part| part.tokens).sum();
        let overhead = self.overhead(&parts);
        // What the model is told comes out of what may be written.
        let left = self.task.budget.saturating_sub(self.used_tokens);
        let room = self.task.output_tokens.min(left.saturating_sub(input).saturating_sub(overhead));
        let mut lines = Vec::new();
        for part in &parts {
            let share = room * part.tokens / input.max(1);
            match self.ask(part, share).await {
                Some(found) => lines.extend(found),
                None => {
                    self.fell_back += 1;
                    let share = self.task.output_tokens * part.tokens / input.max(1);
                    lines.extend(self.without_model(part, share).await?);
                }
            }
        }
        let counter = Arc::clone(&self.memory.counter);
        // What the model was told has been used up.
        let limit = if self.told_tokens == 0 { self.task.output_tokens } else { room };
        let (sources, carried) = (self.task.sources.clone(), self.task.carried.clone());
        let is_of_model = self.answered > 0;
        let distillate = off_thread(move || match is_of_model {
            true => merge(verbatim(&sources), lines, limit, counter.as_ref()),
            false => distil(&sources, carried.as_ref(), limit, counter.as_ref()),
        })
        .await?;
        let model = made_by(self.model.name());
        let distiller = match (is_of_model, self.fell_back) {
            // It was not asked, or in vain: as if there were none.
            (false, _) => EXTRACTIVE.to_owned(),
            (true, 0) => model,
            _ => format!("{model}+{EXTRACTIVE}"),
        };
        // A model that gave no answer now may give one the next time.
        let is_final = !self.is_silent && is_of_model;
        let made = Distilled { distillate, distiller, told_tokens: self.told_tokens };
        Ok(Asked { made, is_final, is_of_model, used_tokens: self.used_tokens })
    }

    /// Sources in their order, as many together as fit the model's window.
    fn parts(&self) -> Vec<AskedPart> {
        let window = self.model.window_tokens();
        let mut parts: Vec<AskedPart> = Vec::new();
        for (place, source) in self.task.sources.iter().enumerate() {
            let text = source.text();
            let tokens = u64::from(self.counter.count(&text));
            // Half the window is for the reply and for what it is told.
            match parts.last_mut() {
                Some(part) if part.tokens + tokens <= window / 2 => {
                    part.count += 1;
                    part.tokens += tokens;
                }
                _ => parts.push(AskedPart { first: place, count: 1, tokens }),
            }
        }
        parts
    }

    fn sources(&self, part: &AskedPart) -> &'a [Source] {
        &self.task.sources[part.first..part.first + part.count]
    }

    /// Tokens of all prompts beside their sources' texts.
    fn overhead(&self, parts: &[AskedPart]) -> u64 {
        parts.iter().map(|part| self.told(part, u64::MAX)).sum()
    }

    /// Tokens of one prompt beside its sources' texts.
    fn told(&self, part: &AskedPart, max_tokens: u64) -> u64 {
        let prompt = DistilPrompt::new(self.sources(part), max_tokens);
        u64::from(self.counter.count(&prompt.text())).saturating_sub(part.tokens)
    }

    /// What the model makes of a part; nothing if that cannot be used.
    async fn ask(&mut self, part: &AskedPart, share: u64) -> Option<Vec<Line>> {
        // Prompt and reply share the window.
        let room = self.model.window_tokens().saturating_sub(part.tokens);
        let share = share.min(room.saturating_sub(self.told(part, u64::MAX)));
        if self.is_silent || share < SMALLEST_REPLY {
            return None;
        }
        let sources = self.sources(part);
        let prompt = DistilPrompt::new(sources, share);
        let text = prompt.text();
        let tokens = u64::from(self.counter.count(&text));
        if let Some(counted) = self.model.count(&text) {
            let most = self.task.budget * (100 + PROVIDER_SLACK_PERCENT) / 100;
            if self.provider_tokens + counted + share > most {
                return None;
            }
            self.provider_tokens += counted + share;
        }
        self.told_tokens += tokens.saturating_sub(part.tokens);
        let deadline = Duration::from_secs(self.memory.settings.dreams.model_seconds.max(1));
        let reply = match tokio::time::timeout(deadline, self.model.reply(&prompt)).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => return self.silent(&error.0),
            Err(_) => {
                self.used_tokens += tokens;
                return self.silent("it took longer than `DreamSettings::model_seconds`");
            }
        };
        let reply_tokens = u64::from(self.counter.count(&reply));
        let (first, sources) = (part.first as u32, sources.to_vec());
        let redactor = self.task.redactor.clone();
        // A model may know a secret from elsewhere, or put one together.
        let read = off_thread(move || read_reply(redactor.text(&reply).as_str(), &sources)).await;
        let read = read.ok()?;
        if read.dropped > 0 {
            tracing::info!(
                model = self.model.name(),
                lines = read.dropped,
                "lines of a model's reply were dropped: no source bears them out"
            );
        }
        if read.lines.is_empty() {
            self.used_tokens += tokens + reply_tokens;
            return None;
        }
        self.answered += 1;
        let placed = read.lines.into_iter().map(|line| placed(line, first));
        Some(placed.collect())
    }

    fn silent(&mut self, reason: &str) -> Option<Vec<Line>> {
        tracing::warn!(model = self.model.name(), reason, "a dream goes on without its model");
        self.is_silent = true;
        None
    }

    async fn without_model(&self, part: &AskedPart, share: u64) -> Result<Vec<Line>> {
        let sources = self.sources(part).to_vec();
        let carried = self.task.carried.clone();
        let carried = carried.filter(|_| sources.iter().any(|s| s.kind == SourceKind::Archive));
        let (counter, first) = (Arc::clone(&self.memory.counter), part.first as u32);
        off_thread(move || {
            let made = distil(&sources, carried.as_ref(), share, counter.as_ref());
            made.lines.into_iter().map(|line| placed(line, first)).collect()
        })
        .await
    }
}

/// What stands word for word whatever the model writes: instructions, and what a person
/// confirmed.
fn verbatim(sources: &[Source]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (place, source) in (0..).zip(sources) {
        for fact in &source.facts {
            let section = match fact.kind {
                FactKind::Instruction | FactKind::Preference => Section::Preferences,
                FactKind::Decision => Section::Decisions,
                _ => Section::Now,
            };
            if fact.confirmed || fact.kind == FactKind::Instruction {
                let (text, at, sources) = (fact.text.clone(), fact.at, vec![place]);
                lines.push(Line { section, text, at, before: None, sources });
            }
        }
    }
    lines
}

/// A line whose sources are places in the whole list.
fn placed(line: Line, first: u32) -> Line {
    let sources = line.sources.iter().map(|place| place + first).collect();
    Line { sources, ..line }
}
