//! Finding what matters: turns, summaries, entries and facts, ranked, with why.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use icecore_domain::embed::{ModelId, Vector};
use icecore_domain::ids::{Position, Scope, Seq, SessionNo, TurnId};
use icecore_domain::time::Millis;
use icecore_index::{
    DocKind, Mode, Plan, Ranked, Role, ScopeIndex, Signal, Snapshot, Source, Wanted,
};
use icecore_store::{EntryFilter, SessionRecord};
use tokio::sync::SemaphorePermit;

use crate::base::pieces::in_pieces;
use crate::error::{MemoryError, Result, off_thread};
use crate::recall::Recall;
use crate::recall::indexing::{CaughtUp, Item};

/// Hits that are asked for at most.
pub const MAX_HITS: usize = 500;

/// Hits without a limit given.
pub const DEFAULT_HITS: usize = 10;

/// What was erased since it was indexed and what repeats another hit drops out,
/// so a few more are looked at than were asked for.
const SPARE_HITS: usize = 10;

/// An index that is begun anew while it is ranked is ranked again so often.
const RANKINGS: usize = 8;

/// What is looked for.
#[derive(Debug, Clone)]
pub struct SearchRequest {
    /// In words.
    pub query: String,
    /// At most so many hits.
    pub limit: usize,
    /// By words, by meaning, or both.
    pub mode: Mode,
    /// Only these kinds; empty: all.
    pub kinds: Vec<DocKind>,
    /// Only of this session.
    pub session: Option<String>,
    /// Only turns of this role.
    pub role: Option<String>,
    /// Only from this moment on.
    pub after: Option<Millis>,
    /// Only before this moment.
    pub before: Option<Millis>,
}

impl SearchRequest {
    /// The ten best of everything.
    pub fn new(query: &str) -> Self {
        Self {
            query: query.to_owned(),
            limit: DEFAULT_HITS,
            mode: Mode::Hybrid,
            kinds: Vec::new(),
            session: None,
            role: None,
            after: None,
            before: None,
        }
    }
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// Turn, summary, entry or fact.
    pub kind: DocKind,
    /// Its id, as `show` takes it.
    pub id: String,
    /// The session that it is from.
    pub session: Option<String>,
    /// A turn's place in it, or that of a summary's first turn.
    pub seq: Option<Seq>,
    /// A turn's role.
    pub role: Option<String>,
    /// Who spoke.
    pub name: Option<String>,
    /// When.
    pub at: Millis,
    /// What it says.
    pub text: String,
    /// Worth beside the other hits.
    pub score: f32,
    /// Why, in a line.
    pub reason: String,
    /// What speaks for it, by name.
    pub signals: Vec<(&'static str, f32)>,
}

/// The answer to a search.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Hits {
    /// Best first.
    pub hits: Vec<Hit>,
    /// What a person should know about the answer, such as missing vectors.
    pub notices: Vec<String>,
}

impl Recall {
    /// Ranks what is there against a query. What was acknowledged is found, what
    /// was erased is not.
    #[tracing::instrument(skip_all, fields(limit = request.limit))]
    pub async fn search(&self, scope: &Scope, request: &SearchRequest) -> Result<Hits> {
        if request.query.trim().is_empty() {
            return Err(MemoryError::EmptyQuery);
        }
        if request.limit == 0 || request.limit > MAX_HITS {
            return Err(MemoryError::HitLimit { limit: request.limit, most: MAX_HITS });
        }
        // What is new is read while it is asked what must be hidden.
        let (sight, index) =
            tokio::try_join!(self.sight_of(scope.tenant()), self.caught_up(scope))?;
        let mut seeing = self.clone();
        seeing.sight = sight;
        seeing.seen_hits(scope, request, &index).await
    }

    async fn seen_hits(
        &self,
        scope: &Scope,
        request: &SearchRequest,
        index: &CaughtUp,
    ) -> Result<Hits> {
        let session = match &request.session {
            Some(name) => Some(self.session_record(scope, name).await?.no),
            None => None,
        };
        // A query may go to a model, which no secret may reach.
        let query = self.redactor(scope.tenant()).await?.redactor.text(&request.query);
        let mut filter = Filter::new(request, session);
        let count = request.limit + request.limit / 2 + SPARE_HITS;
        let (query, mode) = (query.as_str(), request.mode);
        let mut ranking = self.rank(index, query, mode, count, filter.clone()).await?;
        let (mut hits, has_ended) = self.hits(scope, &mut ranking).await?;
        if has_ended && hits.len() < request.limit {
            // Entries that the index still has took the places of what is there.
            let all = EntryFilter::default();
            let places = self.store.entry_places(scope, &all, self.now()).await?;
            filter.entries = Some(places.into_iter().collect());
            ranking = self.rank(index, query, mode, count, filter).await?;
            (hits, _) = self.hits(scope, &mut ranking).await?;
        }
        let notices = ranking.notices;
        // The index knows uncommon roles as one.
        hits.retain(|hit| request.role.is_none() || hit.role == request.role);
        hits.truncate(request.limit);
        self.counters.search();
        Ok(Hits { hits, notices })
    }

    /// A place to rank or pack at: as many as there are cores. More at once would only
    /// take turns, each with its memory, and hold up those who write.
    pub(crate) async fn ranking_place(&self) -> Option<SemaphorePermit<'_>> {
        self.ranking.acquire().await.ok()
    }

    /// Ranks documents by a query, off the async threads.
    pub(crate) async fn rank(
        &self,
        index: &CaughtUp,
        query: &str,
        mode: Mode,
        limit: usize,
        filter: Filter,
    ) -> Result<Ranking> {
        let (mut index, mut tries) = (index.clone(), 0);
        loop {
            tries += 1;
            // Whoever always erases something shall not keep others from any answer.
            let will_do = tries == RANKINGS;
            let ranked = self.rank_once(&index, query, mode, limit, &filter, will_do).await?;
            match ranked {
                Some(ranking) => return Ok(ranking),
                // It was begun anew meanwhile.
                None => index = self.caught_up(&index.scope).await?,
            }
        }
    }

    /// As [`Recall::rank`], or nothing where the index does not have any more what it had,
    /// unless that will do.
    async fn rank_once(
        &self,
        index: &CaughtUp,
        query: &str,
        mode: Mode,
        limit: usize,
        filter: &Filter,
        will_do: bool,
    ) -> Result<Option<Ranking>> {
        let (index, query, inner) = (index.clone(), query.to_owned(), self.clone());
        let filter = filter.clone();
        let (asked, of) = (query.clone(), Arc::clone(&index.index));
        let (mut vector, mut notices, mut planned) = (None, Vec::new(), None);
        if mode != Mode::Lexical {
            // A model may be asked over the network: no place is held meanwhile.
            let (plan, made) = off_thread(move || inner.query_vector(&of, &asked)).await?;
            planned = Some(plan);
            match made {
                Ok(made) => (vector, notices) = made,
                Err(reason) if mode == Mode::Semantic => {
                    return Err(MemoryError::EmbedderUnavailable { reason });
                }
                Err(reason) => notices.push(format!("searched by words alone: {reason}")),
            }
        }
        let _place = self.ranking_place().await;
        off_thread(move || {
            let snapshot = index.index.read();
            if !will_do && !index.is_kept_by(&snapshot) {
                return Ok(None);
            }
            let plan = match planned {
                Some(planned) if planned.speakers == Speakers::of(&snapshot) => planned.plan,
                _ => Plan::read(&snapshot, &query),
            };
            let keep = |doc| filter.keeps(&snapshot, doc);
            let wanted = Wanted { limit, mode, keep: &keep };
            let ranked = icecore_index::rank(&snapshot, &plan, vector.as_ref(), &wanted)?;
            Ok(Some(Ranking { plan, ranked, notices }))
        })
        .await?
    }

    /// Ranked documents with what the store has of them now, and whether there were
    /// entries among them that it has not.
    async fn hits(&self, scope: &Scope, ranking: &mut Ranking) -> Result<(Vec<Hit>, bool)> {
        let Ranking { plan, ranked, .. } = ranking;
        let sources: Vec<Source> = ranked.iter().map(|ranked| ranked.source).collect();
        let (mut items, sessions) =
            tokio::try_join!(self.fetch(scope, &sources), self.sessions_of(scope, &sources))?;
        let is_ended =
            |source: &Source| source.kind() == DocKind::Entry && !items.contains_key(source);
        let has_ended = sources.iter().any(is_ended);
        self.drop_outdated(scope, &mut items).await?;
        self.veil_items(scope, items.values_mut()).await?;
        let texts = ranked.iter().map(|ranked| items.get(&ranked.source));
        let texts = texts.map(|item| item.map(|item| item.text().into_owned())).collect();
        read_all(plan, ranked, texts).await?;
        icecore_index::sort(ranked);
        let mut said = BTreeSet::new();
        let mut hits = Vec::with_capacity(ranked.len());
        for ranked in ranked.drain(..) {
            let Some(item) = items.get(&ranked.source) else { continue };
            let hit = hit(item, &sessions, ranked);
            // Ten times the same line tells no more than once.
            if said.insert((hit.kind, hit.name.clone(), hit.text.clone())) {
                hits.push(hit);
            }
        }
        Ok((hits, has_ended))
    }

    /// Leaves out facts that were rejected, or that a newer one took the place of.
    async fn drop_outdated(&self, scope: &Scope, items: &mut BTreeMap<Source, Item>) -> Result<()> {
        if !items.keys().any(|source| source.kind() == DocKind::Fact) {
            return Ok(());
        }
        let learned = self.learned(scope).await?;
        items.retain(|_, item| match item {
            Item::Fact(fact) => learned.holds(fact.number),
            Item::Told(told) => learned.holds_told(told.fact.key()),
            _ => true,
        });
        Ok(())
    }

    pub(crate) async fn sessions_of(
        &self,
        scope: &Scope,
        sources: &[Source],
    ) -> Result<BTreeMap<SessionNo, SessionRecord>> {
        let numbers: BTreeSet<SessionNo> = sources.iter().filter_map(session_of).collect();
        let numbers: Vec<SessionNo> = numbers.into_iter().collect();
        let mut found = self.store.sessions_at(scope, &numbers).await?;
        if let Some(veil) = self.veil(scope).await? {
            found.iter_mut().try_for_each(|record| veil.session(record))?;
        }
        Ok(found.into_iter().map(|record| (record.no, record)).collect())
    }
}

/// Sets the scores of documents right by their texts, as far as they are at hand.
pub(crate) async fn read_all(
    plan: &Plan,
    ranked: &mut [Ranked],
    texts: Vec<Option<String>>,
) -> Result<()> {
    let plan = plan.clone();
    let mut read: Vec<(Ranked, Option<String>)> = ranked.iter().cloned().zip(texts).collect();
    let size = |(_, text): &(Ranked, Option<String>)| text.as_ref().map_or(0, String::len);
    in_pieces(&mut read, size, move |(ranked, text)| {
        if let Some(text) = text {
            ranked.read(&plan, text);
        }
        Ok(())
    })
    .await?;
    for (ranked, (read, _)) in ranked.iter_mut().zip(read) {
        *ranked = read;
    }
    Ok(())
}

/// The places in `text` of words that `query` has too, in whatever form, in order.
pub fn matched_words(query: &str, text: &str) -> Vec<Range<usize>> {
    let wanted: BTreeSet<String> = icecore_index::analysis::terms(query).into_iter().collect();
    let words = icecore_index::analysis::words(text).into_iter();
    words.filter(|word| wanted.contains(&word.term)).map(|word| word.range).collect()
}

/// The vector of a query, with what a person should know about it, or why there is none.
type QueryVector = std::result::Result<(Option<Vector>, Vec<String>), String>;

/// A query as it was understood with the speakers of a snapshot.
struct Planned {
    plan: Plan,
    speakers: Speakers,
}

/// What tells whether the speakers of two snapshots are the same: within an epoch they are
/// only added to.
#[derive(PartialEq, Eq)]
struct Speakers {
    epoch: u64,
    count: usize,
}

impl Speakers {
    fn of(snapshot: &Snapshot) -> Self {
        Self { epoch: snapshot.watermark().epoch, count: snapshot.speakers().len() }
    }
}

/// Ranked documents, with how the query was understood.
pub(crate) struct Ranking {
    pub(crate) plan: Plan,
    pub(crate) ranked: Vec<Ranked>,
    pub(crate) notices: Vec<String>,
}

impl Recall {
    /// How the query is understood, and its vector by the model of the index, or why there
    /// is none. A query without a word that the model knows has none either, and an empty
    /// index needs none.
    fn query_vector(&self, index: &ScopeIndex, query: &str) -> (Planned, QueryVector) {
        // A model may take its time, and nothing can be fed while a snapshot is
        // held.
        let (planned, have, all, model) = {
            let snapshot = index.read();
            let plan = Plan::read(&snapshot, query);
            let (have, all) = (snapshot.docs_with_vectors(), snapshot.doc_count());
            let planned = Planned { plan, speakers: Speakers::of(&snapshot) };
            (planned, have, all, snapshot.model().cloned())
        };
        let made = self.vector_of(planned.plan.meaning(), have, all, model);
        (planned, made)
    }

    fn vector_of(&self, meaning: &str, have: u32, all: u32, model: Option<ModelId>) -> QueryVector {
        if all == 0 {
            return Ok((None, Vec::new()));
        }
        let Some(embedder) = &self.embedder else {
            return Err("no embedding model is at hand".to_owned());
        };
        if model.as_ref() != Some(embedder.model()) || have == 0 {
            return Err(format!("vectors of `{}` are not made yet", embedder.model().name));
        }
        let vectors = embedder.embed(&[meaning]).map_err(|error| error.to_string())?;
        let notice = || format!("{} of {all} documents have no vector yet", all - have);
        let notices = (have < all).then(notice).into_iter().collect();
        Ok((vectors.into_iter().next().filter(|vector| !vector.is_zero()), notices))
    }
}

/// What may be among the hits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    pub(crate) kinds: Vec<DocKind>,
    pub(crate) session: Option<SessionNo>,
    pub(crate) role: Option<Role>,
    pub(crate) after: Option<Millis>,
    pub(crate) before: Option<Millis>,
    /// Only the entries that began here.
    pub(crate) entries: Option<BTreeSet<Position>>,
}

impl Filter {
    fn new(request: &SearchRequest, session: Option<SessionNo>) -> Self {
        Self {
            kinds: request.kinds.clone(),
            session,
            role: request.role.as_deref().map(crate::recall::indexing::role_of),
            after: request.after,
            before: request.before,
            entries: None,
        }
    }

    fn keeps(&self, snapshot: &Snapshot, doc: u32) -> bool {
        let source = snapshot.source(doc);
        let at = snapshot.at(doc);
        (self.kinds.is_empty() || self.kinds.contains(&source.kind()))
            && self.session.is_none_or(|session| session_of(&source) == Some(session))
            && self.role.is_none_or(|role| snapshot.role(doc) == role)
            && self.after.is_none_or(|after| at >= after)
            && self.before.is_none_or(|before| at < before)
            && match (&self.entries, source) {
                (Some(entries), Source::Entry { began }) => entries.contains(&began),
                _ => true,
            }
    }
}

pub(crate) fn session_of(source: &Source) -> Option<SessionNo> {
    match source {
        Source::Turn { session, .. } | Source::Summary { session, .. } => Some(*session),
        Source::Entry { .. } | Source::Fact { .. } => None,
    }
}

fn hit(item: &Item, sessions: &BTreeMap<SessionNo, SessionRecord>, ranked: Ranked) -> Hit {
    let session = |number: SessionNo| {
        let name = sessions.get(&number)?.name.as_ref()?;
        Some(name.as_str().to_owned())
    };
    let base = Hit {
        kind: ranked.source.kind(),
        id: String::new(),
        session: None,
        seq: None,
        role: None,
        name: None,
        at: item.at(),
        text: item.text().into_owned(),
        score: ranked.score,
        reason: ranked.reason(),
        signals: Signal::ALL
            .into_iter()
            .map(|signal| (signal.as_str(), ranked.signal(signal)))
            .filter(|(_, value)| *value != 0.0)
            .collect(),
    };
    match item {
        Item::Turn(row) => {
            let fields = row.body.as_ref().map(|turn| turn.fields());
            let client = fields.and_then(|fields| fields.id.clone());
            Hit {
                id: client.unwrap_or_else(|| TurnId::to_string(&row.id)),
                session: session(row.id.session),
                seq: Some(row.id.seq),
                role: fields.map(|fields| fields.role.clone()),
                name: fields.and_then(|fields| fields.name.clone()),
                ..base
            }
        }
        Item::Summary(chunk) => Hit {
            id: chunk.id.to_string(),
            session: session(chunk.id.session),
            seq: Some(chunk.first_seq),
            ..base
        },
        Item::Entry(entry) => Hit { id: entry.id.clone(), ..base },
        Item::Fact(fact) => Hit {
            id: fact.fact.key().to_string(),
            session: session(fact.source.session),
            seq: Some(fact.source.seq),
            ..base
        },
        Item::Told(told) => Hit { id: told.fact.key().to_string(), ..base },
    }
}
