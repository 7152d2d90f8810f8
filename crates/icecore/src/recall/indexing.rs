//! Keeping the index at the store's heels.
//!
//! The index says how far it has read, the store is asked for what came after,
//! page by page, and each page becomes documents. Nothing is queued: a crash, a
//! dropped index or another process that committed first only changes where the
//! reading begins. A search reads what is missing before it answers, so a turn
//! is found as soon as it is acknowledged; the worker commits what has gathered.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use icecore_domain::embed::{EmbedError, Embedder, ModelId, Vector};
use icecore_domain::fact::Verdict;
use icecore_domain::ids::{Position, Scope, TurnId};
use icecore_domain::time::Millis;
use icecore_index::{
    Batch, Document, Index, Push, Role, ScopeIndex, Shrunk, Snapshot, Source, Watermark, passages,
    signs,
};
use icecore_store::{
    ChunkRecord, EntryFilter, EntryRecord, FactRecord, ScopeHead, TurnRow, TurnState, VerdictRecord,
};
use tokio::sync::Mutex;

use crate::base::pieces::in_pieces;
use crate::error::{Result, off_thread};
use crate::privacy::veil::{Veil, entry_bytes, fact_bytes, summary_bytes};
use crate::recall::Recall;

/// Turns read at once.
const PAGE: usize = 1_000;

/// Marks the number of a document for what a person told, by its place in the
/// log: such facts have no number of their own.
const TOLD: u64 = 1 << 63;

/// Scopes that are fed at the same time wait for each other only by accident.
const LANES: usize = 64;

/// The index and what keeps two tasks from feeding one scope at once.
pub(crate) struct Indexing {
    pub(crate) index: Index,
    lanes: Vec<Mutex<()>>,
    /// The same for those who make vectors, for whom nobody else waits.
    vector_lanes: Vec<Mutex<()>>,
}

impl Indexing {
    pub(crate) fn new(index: Index) -> Self {
        let lanes = || (0..LANES).map(|_| Mutex::new(())).collect();
        Self { index, lanes: lanes(), vector_lanes: lanes() }
    }

    fn lane(&self, scope: &Scope) -> &Mutex<()> {
        &self.lanes[lane_number(scope)]
    }

    fn vector_lane(&self, scope: &Scope) -> &Mutex<()> {
        &self.vector_lanes[lane_number(scope)]
    }
}

fn lane_number(scope: &Scope) -> usize {
    let mut hasher = DefaultHasher::new();
    scope.to_string().hash(&mut hasher);
    hasher.finish() as usize % LANES
}

/// Looks at an index, whose locks may block, off the async threads.
pub(crate) async fn look_at<T: Send + 'static>(
    index: &Arc<ScopeIndex>,
    look: impl FnOnce(&ScopeIndex) -> T + Send + 'static,
) -> Result<T> {
    let index = Arc::clone(index);
    off_thread(move || look(&index)).await
}

/// An index, and how far it had read at least when it was looked at.
#[derive(Clone)]
pub(crate) struct CaughtUp {
    pub(crate) scope: Scope,
    pub(crate) index: Arc<ScopeIndex>,
    head: ScopeHead,
}

impl CaughtUp {
    /// Whether a snapshot of it still has what it had. Somebody who learns that something
    /// was erased begins the index anew, and it is nearly empty for a moment.
    pub(crate) fn is_kept_by(&self, snapshot: &Snapshot) -> bool {
        reflects(&snapshot.watermark(), &self.head)
    }
}

impl Recall {
    /// Hides what is secret in whatever was read but turns, which are veiled as
    /// they are read.
    pub(crate) async fn veil_items(
        &self,
        scope: &Scope,
        items: impl Iterator<Item = &mut Item>,
    ) -> Result<()> {
        let Some(veil) = self.veil(scope).await? else { return Ok(()) };
        let items = items.filter(|item| !matches!(item, Item::Turn(_)));
        in_pieces(items, item_bytes, move |item| veil_item(&veil, item)).await
    }

    /// Closes a scope's index and deletes its files, after whoever feeds it.
    pub(crate) async fn drop_index(&self, scope: &Scope) -> Result<()> {
        let _lane = self.indexing.lane(scope).lock().await;
        self.forget_learned();
        let (inner, scope) = (self.clone(), scope.clone());
        Ok(off_thread(move || inner.indexing.index.drop_scope(&scope)).await??)
    }

    pub(crate) async fn open_index(&self, scope: &Scope) -> Result<Arc<ScopeIndex>> {
        if let Some(open) = self.indexing.index.opened(scope) {
            return Ok(open);
        }
        let (inner, scope) = (self.clone(), scope.clone());
        Ok(off_thread(move || inner.indexing.index.scope(&scope)).await??)
    }

    /// The scope's index, with everything that was acknowledged before this call.
    pub(crate) async fn caught_up(&self, scope: &Scope) -> Result<CaughtUp> {
        let index = self.open_index(scope).await?;
        let head = self.store.scope_head(scope).await?;
        if !reflects(&look_at(&index, ScopeIndex::watermark).await?, &head) {
            let _lane = self.indexing.lane(scope).lock().await;
            self.feed(scope, &index, &head).await?;
        }
        Ok(CaughtUp { scope: scope.clone(), index, head })
    }

    /// Lets the files of indexes go that are too much and used least.
    pub(crate) async fn shrink_indexes(&self) -> Result<()> {
        let memory = self.clone();
        let shrunk = off_thread(move || memory.indexing.index.shrink()).await??;
        if shrunk.dropped > 0 {
            let Shrunk { bytes, dropped } = shrunk;
            tracing::info!(dropped, bytes, "indexes beyond `index.cache_bytes` were let go");
        }
        Ok(())
    }

    /// Feeds until the index reflects `head`. What is fed at once and is much is committed
    /// at once: where another host does the work behind this memory, nobody else would.
    async fn feed(&self, scope: &Scope, index: &Arc<ScopeIndex>, head: &ScopeHead) -> Result<()> {
        let (mut fed_pages, least) = (0, self.indexing.index.settings().tail_docs);
        loop {
            let from = look_at(index, ScopeIndex::watermark).await?;
            if from.epoch != head.epoch {
                let epoch = head.epoch;
                look_at(index, move |index| index.reset(epoch, None)).await??;
                continue;
            }
            if reflects(&from, head) {
                let commit = move |index: &ScopeIndex| match index.uncommitted() >= least {
                    true => index.commit().map(drop),
                    false => Ok(()),
                };
                return match fed_pages > 1 {
                    true => Ok(look_at(index, commit).await??),
                    false => Ok(()),
                };
            }
            let (to, items) = self.page(scope, from, head).await?;
            fed_pages += 1;
            let (inner, fed) = (self.clone(), Arc::clone(index));
            off_thread(move || {
                let (indexed_by, is_empty) = {
                    let snapshot = fed.read();
                    (snapshot.model().cloned(), snapshot.doc_count() == 0)
                };
                let (model, documents) = inner.documents(items, indexed_by, is_empty);
                let pushed = fed.push(Batch { from, to, model, documents })?;
                if pushed == Push::Done && fed.tail_is_full() {
                    fed.commit()?;
                }
                Ok::<_, crate::MemoryError>(())
            })
            .await??;
        }
    }

    /// What is wrong with a scope's index, if anything: it must not have read more
    /// than the store has. That it has read less is merely due.
    pub(crate) async fn check_index(&self, scope: &Scope) -> Result<Option<String>> {
        let index = match self.open_index(scope).await {
            Ok(index) => index,
            Err(error) => return Ok(Some(format!("the index of {scope}: {error}"))),
        };
        // Read before the head: a turn may be fed meanwhile.
        let mark = look_at(&index, ScopeIndex::watermark).await?;
        let head = self.store.scope_head(scope).await?;
        let beyond = mark.epoch > head.epoch
            || mark.epoch == head.epoch
                && (mark.position > end(&head)
                    || mark.summaries > head.summaries
                    || mark.facts > head.facts);
        if beyond {
            return Ok(Some(format!(
                "the index of {scope} is ahead of the store; `icecore reindex` makes it anew"
            )));
        }
        let has_too_many = |index: &ScopeIndex| {
            let snapshot = index.read();
            snapshot.docs_with_vectors() > snapshot.doc_count()
        };
        if look_at(&index, has_too_many).await? {
            return Ok(Some(format!(
                "the index of {scope} has vectors of nothing; `icecore reindex` makes it anew"
            )));
        }
        Ok(None)
    }

    /// What comes after `from`, and how far that reaches.
    async fn page(
        &self,
        scope: &Scope,
        from: Watermark,
        head: &ScopeHead,
    ) -> Result<(Watermark, Vec<Item>)> {
        let store = &self.store;
        let rows = store.turns_after(scope, from.position, PAGE).await?;
        let is_last = rows.len() < PAGE;
        let position = match rows.last() {
            Some(row) if !is_last => row.position,
            _ => end(head).max(rows.last().map_or(Position(0), |row| row.position)),
        };
        let mut items: Vec<Item> = Vec::with_capacity(rows.len());
        for row in self.hydrate_what_can_be(scope, rows).await? {
            if row.state == TurnState::Present {
                items.push(Item::Turn(row));
            }
        }
        let entries = store.entries_after(scope, from.position, self.now(), PAGE).await?;
        // More entries than a page holds the turns back with them.
        let position = match entries.last() {
            Some(entry) if entries.len() == PAGE && entry.began < position => {
                items.retain(|item| matches!(item, Item::Turn(row) if row.position <= entry.began));
                entry.began
            }
            _ => position,
        };
        items.extend(entries.into_iter().filter(|entry| entry.began <= position).map(Item::Entry));
        if head.verdicts > from.position {
            let told = store.verdicts(scope).await?.into_iter().filter(is_told);
            let new =
                told.filter(|told| from.position < told.position && told.position <= position);
            items.extend(new.map(Item::Told));
        }
        let mut to = Watermark { position, ..from };
        let summaries = store.summaries_after(scope, from.summaries, PAGE).await?;
        to.summaries = end_of(
            summaries.last().map(|(number, _)| *number),
            summaries.len(),
            from.summaries,
            head.summaries,
        );
        items.extend(summaries.into_iter().map(|(_, chunk)| Item::Summary(chunk)));
        let facts = store.facts_after(scope, from.facts, PAGE).await?;
        to.facts =
            end_of(facts.last().map(|fact| fact.number), facts.len(), from.facts, head.facts);
        items.extend(facts.into_iter().map(Item::Fact));
        self.veil_items(scope, items.iter_mut()).await?;
        Ok((to, items))
    }

    /// Brings facts and indexes of scopes forward. One that fails is tried again
    /// when it is searched or changes next: nothing of it is lost.
    /// Answers those whose facts could not be drawn and are still due.
    pub(crate) async fn index_scopes(&self, scopes: &BTreeSet<Scope>) -> BTreeSet<Scope> {
        let mut undrawn = BTreeSet::new();
        for scope in scopes {
            if !self.has_drawn_facts(scope).await {
                undrawn.insert(scope.clone());
            }
            if let Err(error) = self.index_scope(scope).await {
                tracing::warn!(%scope, %error, "the index could not be brought forward");
            }
        }
        undrawn
    }

    /// Commits what has gathered in a scope, and makes the vectors that are due.
    /// What is too little for files waits in the store for a search.
    #[tracing::instrument(level = "debug", skip_all)]
    async fn index_scope(&self, scope: &Scope) -> Result<()> {
        let index = self.open_index(scope).await?;
        let head = self.store.scope_head(scope).await?;
        let embedder = self.embedder.clone();
        let (from, uncommitted, is_of_another_model) = look_at(&index, move |index| {
            let ours = embedder.as_ref().map(|embedder| embedder.model());
            (index.watermark(), index.uncommitted(), is_of_another_model(index, ours))
        })
        .await?;
        let least = self.indexing.index.settings().tail_docs as u64;
        let behind = end(&head).0.saturating_sub(from.position.0);
        let is_small = behind + (uncommitted as u64) < least;
        if from.epoch == head.epoch && is_small && !is_of_another_model {
            return Ok(());
        }
        let CaughtUp { index, .. } = self.caught_up(scope).await?;
        self.embed_due(scope, &index).await?;
        look_at(&index, ScopeIndex::commit).await??;
        Ok(())
    }

    /// Makes the vectors of documents that wait for them: the model was away, or
    /// is another now. Words find them meanwhile.
    #[tracing::instrument(level = "debug", skip_all)]
    async fn embed_due(&self, scope: &Scope, index: &Arc<ScopeIndex>) -> Result<()> {
        let Some(embedder) = self.embedder.clone() else { return Ok(()) };
        let _turn = self.indexing.vector_lane(scope).lock().await;
        let model = embedder.model().clone();
        {
            let _lane = self.indexing.lane(scope).lock().await;
            look_at(index, move |index| {
                // The guard of the read ends before the write.
                let is_same = index.read().model() == Some(&model);
                if is_same { Ok(()) } else { index.rows_reset(Some(model)) }
            })
            .await??;
        }
        loop {
            let (first, sources) = look_at(index, waiting).await?;
            if sources.is_empty() {
                return Ok(());
            }
            let texts = self.texts(scope, &sources).await?;
            // A model may take its time: whoever feeds or searches does not wait for it.
            let asked = Arc::clone(&embedder);
            let made = match off_thread(move || embed_all(asked.as_ref(), &texts)).await? {
                Ok(made) => made,
                Err(error) => {
                    tracing::warn!(%error, "vectors are due and cannot be made now");
                    return Ok(());
                }
            };
            let model = embedder.model().clone();
            let _lane = self.indexing.lane(scope).lock().await;
            look_at(index, move |index| {
                // It may have been begun anew meanwhile.
                let (due, waiting) = waiting(index);
                match due == first && waiting.starts_with(&sources) {
                    true => index.push_vectors(first, &model, &made),
                    false => Ok(()),
                }
            })
            .await??;
        }
    }

    /// The text of each source as it is now; empty where it is gone.
    async fn texts(&self, scope: &Scope, sources: &[Source]) -> Result<Vec<String>> {
        let mut found = self.fetch(scope, sources).await?;
        self.veil_items(scope, found.values_mut()).await?;
        let of = |source: &Source| found.get(source).map(|item| item.text().into_owned());
        Ok(sources.iter().map(|source| of(source).unwrap_or_default()).collect())
    }

    /// What sources stand for, as the store has it now: what was erased, expired
    /// or ended is not among it.
    pub(crate) async fn fetch(
        &self,
        scope: &Scope,
        sources: &[Source],
    ) -> Result<BTreeMap<Source, Item>> {
        let store = &self.store;
        let (mut turns, mut chunks, mut entries) = (vec![], vec![], vec![]);
        let (mut facts, mut told_at) = (vec![], vec![]);
        for source in sources {
            match *source {
                Source::Turn { session, seq, .. } => turns.push(TurnId { session, seq }),
                Source::Summary { session, branch, level, first } => {
                    chunks.push((session, branch, level, first));
                }
                Source::Entry { began } => entries.push(began),
                Source::Fact { number } if number & TOLD != 0 => {
                    told_at.push(Position(number ^ TOLD))
                }
                Source::Fact { number } => facts.push(number),
            }
        }
        // None of them waits for another.
        let all = EntryFilter::default();
        let (turns, chunks, entries, facts, told) = tokio::try_join!(
            if_any(&turns, self.whole_turns(scope, &turns)),
            if_any(&chunks, async { Ok(store.chunks_at(scope, &chunks).await?) }),
            if_any(&entries, async {
                Ok(store.entries_at(scope, &entries, &all, self.now()).await?)
            }),
            if_any(&facts, async { Ok(store.facts_at(scope, &facts).await?) }),
            if_any(&told_at, async { Ok(store.verdicts(scope).await?) }),
        )?;
        let is_wanted = |found: &VerdictRecord| is_told(found) && told_at.contains(&found.position);
        let items = (turns.into_iter().filter(is_present).map(Item::Turn))
            .chain(chunks.into_iter().filter(|chunk| chunk.summary.is_some()).map(Item::Summary))
            .chain(entries.into_iter().map(Item::Entry))
            .chain(facts.into_iter().map(Item::Fact))
            .chain(told.into_iter().filter(is_wanted).map(Item::Told));
        Ok(items.map(|item| (item.source(), item)).collect())
    }
}

/// What is asked about keys, if there are any.
async fn if_any<K, T>(keys: &[K], ask: impl Future<Output = Result<Vec<T>>>) -> Result<Vec<T>> {
    match keys.is_empty() {
        true => Ok(Vec::new()),
        false => ask.await,
    }
}

fn is_present(row: &TurnRow) -> bool {
    row.state == TurnState::Present
}

/// Whether a person told it, so that no turn gives it.
fn is_told(verdict: &VerdictRecord) -> bool {
    verdict.source.is_none() && verdict.verdict != Verdict::Rejected
}

/// Where the last turn, entry or word of a person stands.
fn end(head: &ScopeHead) -> Position {
    head.position.max(head.verdicts)
}

/// Whether an index has read all that was there.
fn reflects(mark: &Watermark, head: &ScopeHead) -> bool {
    mark.covers(&Watermark {
        epoch: head.epoch,
        position: end(head),
        summaries: head.summaries,
        facts: head.facts,
    })
}

/// Where a page of numbered things ends: at its last, or with the head if it was
/// not full, for numbers may be missing.
fn end_of(last: Option<u64>, count: usize, from: u64, head: u64) -> u64 {
    match last {
        Some(last) if count == PAGE => last,
        last => head.max(last.unwrap_or(from)),
    }
}

/// Whether an index has documents that wait for vectors of our model.
fn is_of_another_model(index: &ScopeIndex, ours: Option<&ModelId>) -> bool {
    let snapshot = index.read();
    snapshot.doc_count() > 0
        && ours.is_some()
        && (snapshot.model() != ours || snapshot.docs_with_vectors() < snapshot.doc_count())
}

/// The first documents without vectors, and what they stand for.
fn waiting(index: &ScopeIndex) -> (u32, Vec<Source>) {
    let snapshot = index.read();
    let first = snapshot.docs_with_vectors();
    let end = snapshot.doc_count().min(first + PAGE as u32);
    (first, (first..end).map(|doc| snapshot.source(doc)).collect())
}

/// Vectors of the passages of texts.
fn embed_all(
    embedder: &dyn Embedder,
    texts: &[String],
) -> std::result::Result<Vec<Vec<Vector>>, EmbedError> {
    let parts: Vec<Vec<&str>> = texts.iter().map(|text| passages(text)).collect();
    let flat: Vec<&str> = parts.iter().flatten().copied().collect();
    let mut vectors = embedder.embed(&flat)?.into_iter();
    Ok(parts.iter().map(|parts| vectors.by_ref().take(parts.len()).collect()).collect())
}

/// Hides what is secret in something that was read.
fn veil_item(veil: &Veil, item: &mut Item) -> Result<()> {
    match item {
        Item::Turn(_) => {}
        Item::Summary(chunk) => {
            chunk.summary =
                chunk.summary.as_ref().map(|summary| veil.summary(summary)).transpose()?;
        }
        Item::Entry(entry) => veil.entry(entry),
        Item::Fact(record) => record.fact = veil.fact(&record.fact)?,
        Item::Told(record) => record.fact = veil.fact(&record.fact)?,
    }
    Ok(())
}

fn item_bytes(item: &Item) -> usize {
    match item {
        Item::Turn(_) => 0,
        Item::Summary(chunk) => chunk.summary.as_ref().map_or(0, summary_bytes),
        Item::Entry(entry) => entry_bytes(entry),
        Item::Fact(record) => fact_bytes(&record.fact),
        Item::Told(record) => fact_bytes(&record.fact),
    }
}

/// Something that can be found, as the store has it.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    Turn(TurnRow),
    Summary(ChunkRecord),
    Entry(EntryRecord),
    Fact(FactRecord),
    Told(VerdictRecord),
}

impl Item {
    pub(crate) fn source(&self) -> Source {
        match self {
            Item::Turn(row) => {
                Source::Turn { session: row.id.session, seq: row.id.seq, branch: row.branch }
            }
            Item::Summary(chunk) => Source::Summary {
                session: chunk.id.session,
                branch: chunk.id.branch,
                level: chunk.id.level,
                first: chunk.id.first,
            },
            Item::Entry(entry) => Source::Entry { began: entry.began },
            Item::Fact(fact) => Source::Fact { number: fact.number },
            Item::Told(told) => Source::Fact { number: TOLD | told.position.0 },
        }
    }

    pub(crate) fn at(&self) -> Millis {
        match self {
            Item::Turn(row) => row.at,
            Item::Summary(chunk) => chunk.last_at,
            Item::Entry(entry) => entry.created_at,
            Item::Fact(fact) => fact.at,
            Item::Told(told) => told.at,
        }
    }

    pub(crate) fn text(&self) -> Cow<'_, str> {
        match self {
            Item::Turn(row) => match &row.body {
                Some(turn) => turn.fields().content.text(),
                None => Cow::Borrowed(""),
            },
            Item::Summary(chunk) => {
                Cow::Borrowed(chunk.summary.as_ref().map_or("", |summary| &summary.parts().text))
            }
            Item::Entry(entry) => Cow::Borrowed(entry.content.as_str()),
            Item::Fact(FactRecord { fact, .. }) | Item::Told(VerdictRecord { fact, .. }) => {
                Cow::Borrowed(fact.text.as_str())
            }
        }
    }

    fn role(&self) -> Role {
        match self {
            Item::Turn(TurnRow { body: Some(turn), .. }) => role_of(&turn.fields().role),
            _ => Role::None,
        }
    }

    fn speaker(&self) -> Option<String> {
        match self {
            Item::Turn(row) => row.body.as_ref().and_then(|turn| turn.fields().name.clone()),
            _ => None,
        }
    }
}

/// A role as far as ranking tells them apart.
pub(crate) fn role_of(role: &str) -> Role {
    match role {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => Role::System,
        "tool" => Role::Tool,
        _ => Role::Other,
    }
}

impl Recall {
    /// Items as documents, with vectors by the model named, if that is ours: while
    /// older documents wait for vectors of another model, these wait with them.
    fn documents(
        &self,
        items: Vec<Item>,
        indexed_by: Option<ModelId>,
        is_empty: bool,
    ) -> (Option<ModelId>, Vec<Document>) {
        let texts: Vec<Cow<'_, str>> = items.iter().map(Item::text).collect();
        let mut documents = Vec::with_capacity(items.len());
        let embedder = self
            .embedder
            .as_deref()
            .filter(|embedder| !embedder.is_remote())
            .filter(|embedder| is_empty || indexed_by.as_ref() == Some(embedder.model()));
        let parts: Vec<Vec<&str>> = texts.iter().map(|text| passages(text)).collect();
        let vectors = embedder.and_then(|embedder| {
            let flat: Vec<&str> = parts.iter().flatten().copied().collect();
            let made = embedder.embed(&flat);
            made.inspect_err(
                |error| tracing::warn!(%error, "vectors are due and cannot be made now"),
            )
            .ok()
        });
        let model = vectors.as_ref().and(embedder.map(|embedder| embedder.model().clone()));
        let mut vectors = vectors.into_iter().flatten();
        for ((item, text), parts) in items.iter().zip(&texts).zip(&parts) {
            let role = item.role();
            documents.push(Document {
                source: item.source(),
                at: item.at(),
                role,
                speaker: item.speaker(),
                signs: signs(text, role),
                text: text.to_string(),
                vectors: vectors.by_ref().take(parts.len()).collect(),
            });
        }
        (model, documents)
    }
}
