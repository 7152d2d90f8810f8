//! The steps of a branch: summaries of its chunks, and bodies that move down a tier.

use std::collections::BTreeMap;
use std::sync::Arc;

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::ids::{Ordinal, Scope, Seq, SessionNo};
use icecore_domain::redact::{RedactedTurn, Redactor};
use icecore_domain::summary::{self, Summary};
use icecore_domain::summary::{RedactedSummary, model::SummaryTask};
use icecore_domain::text::Said;
use icecore_domain::tier::micros_kept_hot;
use icecore_domain::time::Millis;
use icecore_store::{
    BodyPlace, BranchRecord, ChunkQuery, ChunkRecord, ColdBody, ColdDemotion, DueBranch, MicroBody,
    NewPack, PackKey, PackMember, Packs, StoreError, SummaryBatch, TextFormat, TurnQuery,
    TurnState, WarmDemotion, build_pack,
};
use sha2::{Digest, Sha256};

use crate::base::Purpose;
use crate::error::{MemoryError, Result, not_redacted, off_thread};
use crate::layers::Layers;
use crate::layers::bodies::{damaged, decode_text, encode, with_packs};
use crate::models::{About, Made};
use crate::privacy::secrets::TenantRedactor;
use crate::settings::{ColdFormat, WarmFormat};

/// Micros worked on in one step.
const MICROS_A_STEP: usize = 64;

/// A step reads at most about this many tokens of turns.
const TOKENS_A_STEP: u64 = 1_000_000;

/// Minis or macros summarized in one step.
const CHUNKS_A_STEP: usize = 32;

/// Macros packed in one step.
const MACROS_A_STEP: usize = 8;

/// One branch as it was read, and what to do about it.
pub(crate) struct Work<'a> {
    memory: &'a Layers,
    scope: &'a Scope,
    session: SessionNo,
    branch: &'a BranchRecord,
}

impl Work<'_> {
    fn query(&self, level: Level, from: Ordinal, through: Ordinal, limit: usize) -> ChunkQuery {
        ChunkQuery {
            from,
            through,
            ..ChunkQuery::all(self.session, self.branch.branch, level, limit)
        }
    }

    /// What models are asked about.
    fn about(&self, epoch: u64) -> About<'_> {
        let (scope, session) = (self.scope, Some(self.session));
        About { scope, session, epoch, purpose: Purpose::Summary }
    }

    /// The memory's epoch, where models are asked.
    async fn epoch(&self) -> Result<u64> {
        match self.memory.has_summary_models() {
            true => Ok(self.memory.store.scope_head(self.scope).await?.epoch),
            false => Ok(0),
        }
    }

    /// The last ordinal that is to leave the hot tier.
    async fn warm_through(&self) -> Result<Ordinal> {
        let settings = &self.memory.settings;
        let last_closed = Ordinal(self.branch.tail.micro_first - 1);
        let mut query =
            self.query(Level::Micro, Ordinal(0), last_closed, settings.hot_chunks as usize);
        query.newest = true;
        let young = self.memory.store.chunks(self.scope, &query).await?;
        let tokens = young.iter().rev().map(|chunk| chunk.tokens);
        let kept = micros_kept_hot(
            tokens, self.branch.tail.micro_tokens, settings.hot_chunks, settings.hot_max_tokens,
        );
        Ok(match kept {
            0 => last_closed,
            kept => Ordinal(young[young.len() - kept].id.first.0 - 1),
        })
    }

    /// Summarizes and demotes the oldest micros that are due.
    #[tracing::instrument(level = "debug", skip_all)]
    async fn micros(&self, done: &mut Settled) -> Result<bool> {
        let settings = &self.memory.settings;
        let warm_through = self.warm_through().await?.max(self.branch.warm_through);
        let sum_through = match (settings.auto_summarize, settings.defer_summarization) {
            (false, _) => Ordinal(0),
            (true, true) => warm_through,
            (true, false) => Ordinal(self.branch.tail.micro_first - 1),
        };
        let summarized = self.branch.summarized_through[0];
        let from = match (sum_through > summarized, warm_through > self.branch.warm_through) {
            (false, false) => return Ok(false),
            (true, false) => summarized,
            (false, true) => self.branch.warm_through,
            (true, true) => summarized.min(self.branch.warm_through),
        };
        let through = sum_through.max(warm_through);
        let query = self.query(Level::Micro, Ordinal(from.0 + 1), through, MICROS_A_STEP);
        let chunks = bounded(self.memory.store.chunks(self.scope, &query).await?);
        let Some(last) = chunks.last() else { return Ok(false) };
        // What has its summary and its place already need not be read: after an
        // erasure that is nearly all.
        let lacks_summary = |chunk: &ChunkRecord| {
            chunk.summary.is_none() && chunk.id.last > summarized && chunk.id.last <= sum_through
        };
        let needed: Vec<ChunkRecord> = chunks
            .iter()
            .filter(|chunk| lacks_summary(chunk) || chunk.id.last > self.branch.warm_through)
            .cloned()
            .collect();
        let epoch = self.epoch().await?;
        let micros = Arc::new(self.read(&needed).await?);

        let layers = self.memory.clone();
        let TenantRedactor { redactor, version } =
            self.memory.deriving_redactor(self.scope).await?;
        let warm_from = self.branch.warm_through;
        let (pressed, by) = (Arc::clone(&micros), redactor.clone());
        let (summaries, texts) = off_thread(move || {
            press(&layers, &by, &pressed, summarized, sum_through, warm_from, warm_through)
        })
        .await??;
        if let Some((id, _, _)) = texts.last() {
            let last = id.last;
            let count = texts.len() as u64;
            let demotion = WarmDemotion {
                session: self.session,
                branch: self.branch.branch,
                seen_through: self.branch.warm_through,
                micros: texts,
            };
            if !self.memory.store.demote_to_warm(self.scope, demotion).await? {
                return Ok(true);
            }
            tracing::debug!(scope = %self.scope, through = last.0, "demoted to warm");
            done.warmed += count;
        }
        let reached = last.id.last.min(sum_through);
        if reached > summarized {
            let summaries = self.micros_by_models(&redactor, summaries, &micros, epoch).await?;
            done.summaries += self.put(Level::Micro, reached, summaries, version).await?;
        }
        Ok(true)
    }

    /// Summaries of micros by models, where there are any.
    async fn micros_by_models(
        &self,
        redactor: &Redactor,
        made: Vec<Made>,
        micros: &[Micro],
        epoch: u64,
    ) -> Result<Vec<Made>> {
        if !self.memory.has_summary_models() || made.is_empty() {
            return Ok(made);
        }
        let wants_facts = self.memory.settings.auto_extract_facts;
        let task = |(id, _, _): &Made| {
            let micro = micros.iter().find(|micro| micro.id == *id)?;
            let turns: Vec<_> = micro.turns.iter().map(|(at, turn)| (*at, turn)).collect();
            let budget = summary::summary_budget(Level::Micro, micro.tokens);
            Some(with_said(&turns, |said| SummaryTask::of_turns(said, budget, wants_facts)))
        };
        let tasks: Vec<SummaryTask> = made.iter().filter_map(task).collect();
        self.memory.by_models(self.about(epoch), redactor, made, tasks).await
    }

    /// Micros with their turns, from rows, text or packs.
    async fn read(&self, chunks: &[ChunkRecord]) -> Result<Vec<Micro>> {
        with_packs(|| self.read_found(chunks)).await
    }

    async fn read_found(&self, chunks: &[ChunkRecord]) -> Result<Vec<Micro>> {
        let (Some(first), Some(last)) = (chunks.first(), chunks.last()) else {
            return Ok(Vec::new());
        };
        let (session, branch) = (self.session, self.branch.branch);
        let (from, through) = (first.id.first, last.id.last);
        let query = TurnQuery {
            branch: Some(branch),
            after: Seq(first.first_seq.0 - 1),
            through: last.last_seq,
            ..TurnQuery::all(session, usize::MAX >> 1)
        };
        let read = self.memory.store.read(self.scope, "micros", move |tx| {
            Ok((tx.bodies(session, branch, from, through)?, tx.turns(&query)?))
        });
        let (mut bodies, rows) = read.await?;
        let is_needed = |body: &MicroBody| {
            chunks.binary_search_by_key(&body.id.first, |chunk| chunk.id.first).is_ok()
        };
        bodies.retain(is_needed);
        let mut turns = self.memory.read_micros(&bodies).await?;
        let mut times = BTreeMap::new();
        for row in rows {
            if row.state == TurnState::Present {
                times.insert(row.ordinal, row.at);
                if let Some(body) = row.body {
                    turns.entry(row.ordinal).or_insert(body);
                }
            }
        }
        let mut micros = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let range = chunk.id.first..=chunk.id.last;
            if !turns
                .range(range.clone())
                .map(|(at, _)| at)
                .eq(times.range(range.clone()).map(|(at, _)| at))
            {
                let reason = "its rows and its body do not agree";
                return Err(damaged(&chunk.id.to_string(), reason));
            }
            let turns = turns.range(range.clone()).map(|(_, turn)| turn.clone());
            let times = times.range(range).map(|(_, at)| *at);
            micros.push(Micro {
                id: chunk.id,
                revision: chunk.revision,
                tokens: chunk.tokens,
                has_summary: chunk.summary.is_some(),
                turns: times.zip(turns).collect(),
            });
        }
        Ok(micros)
    }

    async fn put(
        &self,
        level: Level,
        through: Ordinal,
        summaries: Vec<(ChunkId, u32, RedactedSummary)>,
        secrets_seen: u64,
    ) -> Result<u64> {
        let count = summaries.len() as u64;
        let batch = SummaryBatch {
            session: self.session,
            branch: self.branch.branch,
            level,
            seen_through: self.branch.summarized_through[level_index(level)],
            through,
            summaries,
            secrets_seen,
        };
        match self.memory.store.put_summaries(self.scope, batch).await {
            // They are made again, with what was registered meanwhile.
            Err(StoreError::SecretsChanged) => Ok(0),
            done => Ok(done.map(|()| count)?),
        }
    }

    /// Summarizes minis or macros whose children all have been.
    #[tracing::instrument(level = "debug", skip_all)]
    async fn upper_summaries(&self, level: Level, done: &mut Settled) -> Result<bool> {
        let below = match level {
            Level::Macro => Level::Mini,
            _ => Level::Micro,
        };
        let summarized = self.branch.summarized_through[level_index(level)];
        let ready = self.branch.summarized_through[level_index(below)];
        if ready <= summarized {
            return Ok(false);
        }
        let epoch = self.epoch().await?;
        let query = self.query(level, Ordinal(summarized.0 + 1), ready, CHUNKS_A_STEP);
        let chunks = self.memory.store.chunks(self.scope, &query).await?;
        let Some(last) = chunks.last().map(|chunk| chunk.id.last) else { return Ok(false) };
        let query = self.query(below, chunks[0].id.first, last, usize::MAX >> 1);
        let children = self.memory.store.chunks(self.scope, &query).await?;
        let layers = self.memory.clone();
        let TenantRedactor { redactor, version } =
            self.memory.deriving_redactor(self.scope).await?;
        let has_models = self.memory.has_summary_models();
        let by = redactor.clone();
        let summaries = off_thread(move || {
            let of = |chunk: &ChunkRecord| {
                if chunk.summary.is_some() {
                    return None;
                }
                let inside = |child: &&ChunkRecord| {
                    chunk.id.first <= child.id.first && child.id.last <= chunk.id.last
                };
                let parts: Vec<&Summary> = children
                    .iter()
                    .filter(inside)
                    .filter_map(|child| Some(child.summary.as_ref()?.parts()))
                    .collect();
                if parts.is_empty() {
                    return None;
                }
                let made = summarize_above(&layers, &by, level, chunk.tokens, &parts);
                let budget = summary::summary_budget(level, chunk.tokens);
                let wants_facts = layers.settings.auto_extract_facts;
                let task = has_models
                    .then(|| SummaryTask::of_children(level, &parts, budget, wants_facts));
                Some(made.map(|summary| ((chunk.id, chunk.revision, summary), task)))
            };
            chunks.iter().filter_map(of).collect::<Result<Vec<_>>>()
        })
        .await??;
        let (made, tasks): (Vec<Made>, Vec<_>) = summaries.into_iter().unzip();
        let tasks = tasks.into_iter().flatten().collect();
        let summaries = self.memory.by_models(self.about(epoch), &redactor, made, tasks).await?;
        done.summaries += self.put(level, last, summaries, version).await?;
        Ok(true)
    }

    /// Packs the oldest macros whose micros are all warm.
    #[tracing::instrument(level = "debug", skip_all)]
    async fn cool(&self, done: &mut Settled) -> Result<bool> {
        let from = Ordinal(self.branch.cold_through.0 + 1);
        let query = self.query(Level::Macro, from, self.branch.warm_through, MACROS_A_STEP);
        let macros = bounded(self.memory.store.chunks(self.scope, &query).await?);
        // Packs are written side by side, and then swapped in one by one.
        let mut writing = Vec::new();
        for chunk in &macros {
            writing.push(self.begin_cooling(chunk).await?);
        }
        let mut seen_through = self.branch.cold_through;
        let mut is_stale = false;
        for (chunk, cooling) in macros.iter().zip(writing) {
            let pack = match cooling.writing {
                Some(task) => {
                    Some(task.await.map_err(|error| MemoryError::Internal(error.to_string()))??)
                }
                None => None,
            };
            if is_stale || !self.swap(chunk, cooling.micros, seen_through, pack.clone()).await? {
                // Somebody was faster; ours are orphans.
                is_stale = true;
                if let Some(pack) = pack {
                    let_go(&self.memory.packs, &pack.name).await?;
                }
                continue;
            }
            seen_through = chunk.id.last;
            done.cooled += 1;
        }
        Ok(!macros.is_empty())
    }

    /// Reads a macro's texts and begins to write them as a pack, if it is to
    /// have one.
    async fn begin_cooling(&self, chunk: &ChunkRecord) -> Result<Cooling> {
        let (first, last) = (chunk.id.first, chunk.id.last);
        let store = &self.memory.store;
        let bodies =
            store.bodies(self.scope, self.session, self.branch.branch, first, last).await?;
        let members: Vec<PackMember> = bodies.iter().filter_map(member).collect();
        let settings = &self.memory.settings;
        let is_packed = settings.archive_cold_content
            && settings.cold_format == ColdFormat::SummaryOnly
            && !members.is_empty();
        let packs = self.memory.packs.clone();
        let writing =
            is_packed.then(|| tokio::spawn(async move { write_pack(&packs, members).await }));
        let micros = bodies.iter().map(|body| (body.id, body.revision)).collect();
        Ok(Cooling { micros, writing })
    }

    /// Lets a macro's texts go for its pack, if nothing has changed meanwhile.
    async fn swap(
        &self,
        chunk: &ChunkRecord,
        micros: Vec<(ChunkId, u32)>,
        seen_through: Ordinal,
        pack: Option<NewPack>,
    ) -> Result<bool> {
        let demotion = ColdDemotion {
            id: chunk.id,
            seen_through,
            micros,
            body: match pack {
                Some(pack) => ColdBody::Pack(pack),
                None if self.memory.settings.archive_cold_content => ColdBody::StaysText,
                None => ColdBody::Dropped,
            },
            now: self.memory.clock.now(),
        };
        Ok(self.memory.store.demote_to_cold(self.scope, demotion).await?)
    }
}

/// A macro on its way into a pack.
struct Cooling {
    /// Its micros with the revisions that were read.
    micros: Vec<(ChunkId, u32)>,
    writing: Option<tokio::task::JoinHandle<Result<NewPack>>>,
}

/// A micro in hand.
struct Micro {
    id: ChunkId,
    revision: u32,
    tokens: u64,
    has_summary: bool,
    turns: Vec<(Millis, RedactedTurn)>,
}

type Pressed =
    (Vec<(ChunkId, u32, RedactedSummary)>, Vec<(ChunkId, u32, Option<icecore_store::TextBody>)>);

/// Makes summaries of the micros in `sum_from..=sum_through` and text of those
/// in `warm_from..=warm_through`.
fn press(
    layers: &Layers,
    redactor: &Redactor,
    micros: &[Micro],
    sum_from: Ordinal,
    sum_through: Ordinal,
    warm_from: Ordinal,
    warm_through: Ordinal,
) -> Result<Pressed> {
    let format = match layers.settings.warm_format {
        WarmFormat::Ctf => TextFormat::Ctf,
        WarmFormat::Json => TextFormat::Jsonl,
    };
    let (mut summaries, mut texts) = (Vec::new(), Vec::new());
    for micro in micros {
        let last = micro.id.last;
        let is_due = last > sum_from && last <= sum_through && !micro.has_summary;
        if is_due && !micro.turns.is_empty() {
            let turns: Vec<_> = micro.turns.iter().map(|(at, turn)| (*at, turn)).collect();
            let summary = summarize_micro(layers, redactor, micro.tokens, &turns)?;
            summaries.push((micro.id, micro.revision, summary));
        }
        if last > warm_from && last <= warm_through {
            let turns: Vec<RedactedTurn> =
                micro.turns.iter().map(|(_, turn)| turn.clone()).collect();
            let text = match turns.is_empty() {
                true => None,
                false => Some(encode(&micro.id, format, &turns)?),
            };
            texts.push((micro.id, micro.revision, text));
        }
    }
    Ok((summaries, texts))
}

/// The summary of a micro of so many tokens, from its turns.
pub(crate) fn summarize_micro(
    layers: &Layers,
    redactor: &Redactor,
    tokens: u64,
    turns: &[(Millis, &RedactedTurn)],
) -> Result<RedactedSummary> {
    let budget = summary::summary_budget(Level::Micro, tokens);
    let made =
        with_said(turns, |said| summary::summarize_turns(said, budget, layers.counter.as_ref()));
    finish_summary(layers, redactor, made)
}

/// Turns as a summarizer reads them.
fn with_said<T>(turns: &[(Millis, &RedactedTurn)], read: impl FnOnce(&[Said<'_>]) -> T) -> T {
    let texts: Vec<_> = turns.iter().map(|(_, turn)| turn.fields().content.text()).collect();
    let said: Vec<Said<'_>> = turns
        .iter()
        .zip(&texts)
        .map(|((at, turn), text)| Said {
            role: &turn.fields().role,
            name: turn.fields().name.as_deref(),
            text,
            at: *at,
        })
        .collect();
    read(&said)
}

/// The summary of a mini or macro of so many tokens, from those of its children.
pub(crate) fn summarize_above(
    layers: &Layers,
    redactor: &Redactor,
    level: Level,
    tokens: u64,
    children: &[&Summary],
) -> Result<RedactedSummary> {
    let budget = summary::summary_budget(level, tokens);
    let made = summary::summarize_children(children, budget, layers.counter.as_ref());
    finish_summary(layers, redactor, made)
}

/// Derived text is looked at again before it is kept.
fn finish_summary(
    layers: &Layers,
    redactor: &Redactor,
    mut summary: Summary,
) -> Result<RedactedSummary> {
    if !layers.settings.auto_extract_facts {
        summary.key_facts.clear();
    }
    redactor.summary(summary).map_err(not_redacted)
}

fn member(body: &MicroBody) -> Option<PackMember> {
    match &body.place {
        BodyPlace::Text(text) => Some(PackMember {
            id: body.id,
            format: text.format,
            text: text.text.as_str().to_owned(),
        }),
        _ => None,
    }
}

/// Writes a pack, reads it back from where it lies and compares, so that a
/// pointer to it can be trusted.
pub(crate) async fn write_pack(packs: &Packs, members: Vec<PackMember>) -> Result<NewPack> {
    let (bytes, sha256, key, members) = off_thread(move || {
        let key = PackKey::random();
        let bytes = build_pack(&members, &key);
        let sha256 = Sha256::digest(&bytes).into();
        (bytes, sha256, key, members)
    })
    .await?;
    let name = Packs::new_name();
    let size = bytes.len() as u64;
    packs.put(&name, bytes.into()).await?;
    let read = packs.get_lying(&name, &sha256).await?;
    let (check_name, check_key) = (name.clone(), key.clone());
    off_thread(move || {
        let reader = icecore_store::PackReader::open(&check_name, &read, &check_key)?;
        if reader.members()? != members {
            let reason = "it does not read back as it was written".to_owned();
            return Err(MemoryError::Store(StoreError::PackDamaged { name: check_name, reason }));
        }
        for member in &members {
            decode_text(&member.id, member.format, &member.text)?;
        }
        Ok(())
    })
    .await??;
    Ok(NewPack { name, key, bytes: size, sha256 })
}

/// Deletes an object that no row names any more. What is out of reach is left to the
/// sweep: its key is destroyed, or nobody ever had it.
pub(crate) async fn let_go(objects: &Packs, name: &str) -> Result<()> {
    match objects.delete(name).await {
        Err(error) if error.is_out_of_reach() => {
            tracing::warn!(name, %error, "an object that is of no use is left to the sweep");
            Ok(())
        }
        done => Ok(done?),
    }
}

/// As many chunks as a step may read, at least one.
fn bounded(mut chunks: Vec<ChunkRecord>) -> Vec<ChunkRecord> {
    let mut tokens = 0;
    let fits = |chunk: &&ChunkRecord| {
        tokens += chunk.tokens;
        tokens <= TOKENS_A_STEP
    };
    let count = chunks.iter().take_while(fits).count();
    chunks.truncate(count.max(1));
    chunks
}

fn level_index(level: Level) -> usize {
    match level {
        Level::Micro => 0,
        Level::Mini => 1,
        Level::Macro => 2,
    }
}

/// How far a branch was brought.
pub(crate) enum Reached {
    /// It is up to date in this version.
    Version(u64),
    /// It is not there any more.
    Gone,
    /// It stays due.
    Unfinished,
}

/// What a round of work did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settled {
    /// Branches that were brought up to date.
    pub branches: u64,
    /// Micros that became warm.
    pub warmed: u64,
    /// Macros that became cold.
    pub cooled: u64,
    /// Summaries made.
    pub summaries: u64,
    /// Packs and archives that retention let go.
    pub expired: u64,
    /// Entries that had expired or ended, and are gone.
    pub purged: u64,
    /// Branches whose work failed and stays due.
    pub failed: u64,
}

impl Settled {
    pub(crate) fn did_something(&self) -> bool {
        self.warmed + self.cooled + self.summaries + self.expired + self.purged > 0
    }

    /// Adds what a turn did to the layers.
    pub(crate) fn add(&mut self, turn: &Settled) {
        self.warmed += turn.warmed;
        self.cooled += turn.cooled;
        self.summaries += turn.summaries;
    }
}

impl Layers {
    /// Brings one branch up to date, step by step; by one step, where models are asked.
    #[tracing::instrument(level = "debug", skip_all, fields(session = due.session.0))]
    pub(crate) async fn settle_branch(
        &self,
        due: &DueBranch,
        done: &mut Settled,
    ) -> Result<Reached> {
        loop {
            let Some(branch) = self.store.branch(&due.scope, due.session, due.branch).await? else {
                return Ok(Reached::Gone);
            };
            let work =
                Work { memory: self, scope: &due.scope, session: due.session, branch: &branch };
            let stepped = work.micros(done).await?
                || work.upper_summaries(Level::Mini, done).await?
                || work.upper_summaries(Level::Macro, done).await?
                || work.cool(done).await?;
            match stepped {
                false => return Ok(Reached::Version(branch.version)),
                true if self.has_summary_models() => return Ok(Reached::Unfinished),
                true => {}
            }
        }
    }
}
