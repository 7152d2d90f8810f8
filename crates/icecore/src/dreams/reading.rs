//! Ways to read what is due, what each costs, and the sources that it gives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::dream::{Due, Part, Source, SourceFact, SourceKind};
use icecore_domain::fact::{self, Fact, FactKey, RedactedFact, Verdict};
use icecore_domain::ids::{Position, Scope, Seq, SessionNo, TurnId};
use icecore_domain::redact::Redactor;
use icecore_domain::summary::{Said, Summary, summarize_turns};
use icecore_domain::time::Millis;
use icecore_domain::tokens::TokenCounter;
use icecore_store::{
    ChunkQuery, ChunkRecord, EntryFilter, EntryRecord, TurnQuery, TurnRow, VerdictRecord,
};

use super::due::{DueItem, What};
use crate::error::{Result, off_thread};
use crate::memory::Memory;

/// An entry of more tokens can also be read by a summary.
const LONG_ENTRY_TOKENS: u32 = 512;

/// And that has at most so many.
const BRIEF_ENTRY_TOKENS: u32 = 256;

/// Things read at once.
const A_PAGE: usize = 500;

/// Sources that were made to be counted are kept at hand up to so many bytes.
const KEPT_BYTES: usize = 32 << 20;

/// What people confirmed is read with every dream, up to so many facts.
const MOST_CONFIRMED: usize = 200;

/// Turns of a chunk read at once.
const TURNS_A_READ: usize = 1_000;

/// A way to read something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// All of it.
    Whole,
    /// By what stands for it: an entry's summary, or those of chunks of this level.
    Brief(Level),
}

/// What it costs to read something, by each way, finest first.
#[derive(Debug, Clone)]
pub(super) struct Weighed {
    ways: Vec<(Way, u32)>,
    /// Bytes of it as it is stored, as near as is known.
    pub(super) bytes: u64,
    /// Sources that were made to be counted, by their places among the ways.
    kept: Vec<Option<Source>>,
    /// What names it where ids are wanted.
    pub(super) id: String,
    /// When it ends by itself.
    pub(super) expires_at: Option<Millis>,
}

impl Weighed {
    pub(super) fn due(&self) -> Due {
        Due { costs: self.ways.iter().map(|(_, cost)| *cost).collect(), is_carried: false }
    }

    fn coarsest(&self) -> u64 {
        self.ways.iter().map(|(_, cost)| u64::from(*cost)).min().unwrap_or(0)
    }

    /// The way at a place.
    fn way(&self, place: usize) -> Way {
        self.ways.get(place).map_or(Way::Whole, |(way, _)| *way)
    }
}

/// What is known when sources are made.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) redactor: Redactor,
    counter: Arc<dyn TokenCounter>,
    draws_facts: bool,
    confirmed: Arc<BTreeSet<FactKey>>,
    rejected: Arc<BTreeSet<FactKey>>,
    /// What people told or agreed to, as one source.
    pub(super) told: Option<Source>,
}

/// What is due, weighed as far as it can matter.
pub(super) struct Read {
    pub(super) weighed: Vec<Weighed>,
    /// Sources that were not looked at.
    pub(super) beyond: u64,
}

impl Memory {
    pub(super) async fn reader(&self, scope: &Scope, redactor: Redactor) -> Result<Reader> {
        let verdicts = self.inner.store.verdicts(scope).await?;
        let counter = Arc::clone(&self.inner.counter);
        let draws_facts = self.inner.settings.auto_extract_facts;
        off_thread(move || Reader::new(redactor, counter, draws_facts, &verdicts)).await
    }

    /// Weighs what is due, oldest first, until no more can be read within a budget and
    /// enough is weighed to say what would do.
    pub(super) async fn weigh(
        &self,
        scope: &Scope,
        reader: &Reader,
        items: &[DueItem],
        beyond: u64,
        bounds: Bounds,
        now: Millis,
    ) -> Result<Read> {
        let total = items.len() as u64 + beyond;
        let must_cover = (u128::from(total) * u128::from(bounds.min_percent)).div_ceil(100);
        let must_cover = u64::try_from(must_cover).unwrap_or(total).max(1);
        let mut weighing = Weighing::default();
        for page in items.chunks(A_PAGE) {
            if weighing.input > bounds.budget && weighing.weighed.len() as u64 >= must_cover {
                break;
            }
            let page = self.weigh_page(scope, reader, page, now).await?;
            page.into_iter().for_each(|one| weighing.add(one));
        }
        let looked_at = weighing.weighed.len();
        // Reading chunks whole is only worth a thought where it could fit, or where
        // nothing else stands for them.
        let could_fit = weighing.whole <= bounds.budget.saturating_mul(2);
        for (at, item) in items[..looked_at].iter().enumerate() {
            if let What::Chunk { id, first_seq, .. } = item.what
                && (could_fit || weighing.weighed[at].way(0) == Way::Whole)
            {
                let whole = self.whole_chunk(scope, reader, id, first_seq).await?;
                weighing.add_whole(at, whole);
            }
        }
        Ok(Read { weighed: weighing.weighed, beyond: total - looked_at as u64 })
    }

    async fn weigh_page(
        &self,
        scope: &Scope,
        reader: &Reader,
        page: &[DueItem],
        now: Millis,
    ) -> Result<Vec<(Weighed, u64)>> {
        let mut entries = self.entries_of(scope, page, now).await?.into_iter().peekable();
        let mut turns = self.turns_of(scope, page).await?.into_iter().peekable();
        let mut waiting = Vec::with_capacity(page.len());
        for item in page {
            match item.what {
                // Somebody may have deleted it just now: then nothing is read of it.
                What::Entry(began) => {
                    waiting.push(Raw::Entry(entries.next_if(|entry| entry.began == began)));
                }
                What::Turn { id, .. } => {
                    let row = turns.next_if(|(row, _)| row.id == id);
                    waiting.push(Raw::Turn(id, Box::new(row)));
                }
                What::Chunk { id, first_seq, tokens } => {
                    let levels = self.levels(scope, id).await?;
                    let session = self.session_of(scope, id.session).await?;
                    waiting.push(Raw::Chunk { id, first_seq, tokens, session, levels });
                }
            }
        }
        let reader = reader.clone();
        off_thread(move || waiting.iter().map(|raw| reader.weigh(raw)).collect()).await
    }

    /// The sources of what was weighed, each read by the way that was planned.
    pub(super) async fn sources(
        &self,
        scope: &Scope,
        reader: &Reader,
        items: &[DueItem],
        weighed: &mut [Weighed],
        readings: &[usize],
        now: Millis,
    ) -> Result<Vec<(Source, String)>> {
        let mut sources = Vec::with_capacity(readings.len());
        for ((item, one), place) in items.iter().zip(weighed).zip(readings) {
            let kept = one.kept.get_mut(*place).and_then(Option::take);
            let source = match kept {
                Some(source) => source,
                None => self.source(scope, reader, item, one.way(*place), now).await?,
            };
            sources.push((source, one.id.clone()));
        }
        Ok(sources)
    }

    /// One source, read anew.
    async fn source(
        &self,
        scope: &Scope,
        reader: &Reader,
        item: &DueItem,
        way: Way,
        now: Millis,
    ) -> Result<Source> {
        let page = std::slice::from_ref(item);
        let raw = match item.what {
            What::Entry(_) => Raw::Entry(self.entries_of(scope, page, now).await?.pop()),
            What::Turn { id, .. } => {
                Raw::Turn(id, Box::new(self.turns_of(scope, page).await?.pop()))
            }
            What::Chunk { id, first_seq, tokens } => {
                if way == Way::Whole {
                    return Ok(self.whole_chunk(scope, reader, id, first_seq).await?.source);
                }
                let levels = self.levels(scope, id).await?;
                let session = self.session_of(scope, id.session).await?;
                Raw::Chunk { id, first_seq, tokens, session, levels }
            }
        };
        let reader = reader.clone();
        off_thread(move || reader.source(&raw, way)).await
    }

    async fn entries_of(
        &self,
        scope: &Scope,
        page: &[DueItem],
        now: Millis,
    ) -> Result<Vec<EntryRecord>> {
        let began: Vec<Position> = page
            .iter()
            .filter_map(|item| match item.what {
                What::Entry(began) => Some(began),
                _ => None,
            })
            .collect();
        Ok(self.inner.store.entries_at(scope, &began, &EntryFilter::default(), now).await?)
    }

    /// The turns of a page, each with the name of its session.
    async fn turns_of(&self, scope: &Scope, page: &[DueItem]) -> Result<Vec<(TurnRow, String)>> {
        let ids: Vec<TurnId> = page
            .iter()
            .filter_map(|item| match item.what {
                What::Turn { id, .. } => Some(id),
                _ => None,
            })
            .collect();
        let rows = self.inner.store.turns_at(scope, &ids).await?;
        let rows = self.hydrate(scope, rows).await?;
        let mut named = Vec::with_capacity(rows.len());
        let mut last: Option<(SessionNo, String)> = None;
        for row in rows {
            let name = match &last {
                Some((no, name)) if *no == row.id.session => name.clone(),
                _ => self.session_of(scope, row.id.session).await?,
            };
            last = Some((row.id.session, name.clone()));
            named.push((row, name));
        }
        Ok(named)
    }

    async fn session_of(&self, scope: &Scope, no: SessionNo) -> Result<String> {
        let session = self.inner.store.session_by_number(scope, no).await?;
        let name = session.and_then(|session| session.name);
        Ok(name.map(|name| name.as_str().to_owned()).unwrap_or_default())
    }

    /// The summaries of a chunk and of those below it, finest first.
    async fn levels(&self, scope: &Scope, id: ChunkId) -> Result<Vec<(Level, Vec<Summary>)>> {
        let mut levels = Vec::new();
        for level in Level::ALL.into_iter().filter(|level| *level <= id.level) {
            let query = ChunkQuery {
                from: id.first,
                through: id.last,
                ..ChunkQuery::all(id.session, id.branch, level, usize::MAX >> 1)
            };
            let chunks = self.inner.store.chunks(scope, &query).await?;
            let held: Vec<&ChunkRecord> = chunks.iter().filter(|chunk| chunk.turns > 0).collect();
            let summaries: Vec<Summary> = held
                .iter()
                .filter_map(|chunk| Some(chunk.summary.as_ref()?.parts().clone()))
                .collect();
            if !summaries.is_empty() && summaries.len() == held.len() {
                levels.push((level, summaries));
            }
        }
        Ok(levels)
    }

    /// A chunk by its turns.
    async fn whole_chunk(
        &self,
        scope: &Scope,
        reader: &Reader,
        id: ChunkId,
        first_seq: Seq,
    ) -> Result<WholeChunk> {
        let mut rows = Vec::new();
        let mut after = Seq(first_seq.0.saturating_sub(1));
        loop {
            let query = TurnQuery {
                branch: Some(id.branch),
                after,
                ..TurnQuery::all(id.session, TURNS_A_READ)
            };
            let page = self.inner.store.turns(scope, &query).await?;
            let is_last =
                page.len() < TURNS_A_READ || page.last().is_none_or(|row| row.ordinal >= id.last);
            after = page.last().map_or(after, |row| row.id.seq);
            rows.extend(
                page.into_iter().filter(|row| id.first <= row.ordinal && row.ordinal <= id.last),
            );
            if is_last {
                break;
            }
        }
        let rows = self.hydrate(scope, rows).await?;
        let session = self.session_of(scope, id.session).await?;
        let reader = reader.clone();
        off_thread(move || {
            let bytes = rows.iter().map(|row| row.byte_count() as u64).sum();
            let source = reader.turns(kind_of(id.level), &session, first_seq, &rows);
            WholeChunk { cost: reader.count(&source), source, bytes }
        })
        .await
    }
}

/// A chunk that was read by its turns.
struct WholeChunk {
    source: Source,
    cost: u32,
    /// Bytes of its turns.
    bytes: u64,
}

/// What bounds the weighing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) budget: u64,
    pub(super) min_percent: u8,
}

#[derive(Default)]
struct Weighing {
    weighed: Vec<Weighed>,
    /// Tokens of all at their coarsest.
    input: u64,
    /// Tokens of all at their finest, as near as is known.
    whole: u64,
    kept_bytes: usize,
}

impl Weighing {
    fn add(&mut self, (mut one, whole): (Weighed, u64)) {
        self.input = self.input.saturating_add(one.coarsest());
        self.whole = self.whole.saturating_add(whole);
        for kept in &mut one.kept {
            self.keep(kept);
        }
        self.weighed.push(one);
    }

    fn add_whole(&mut self, at: usize, WholeChunk { source, cost, bytes }: WholeChunk) {
        let has_summary = self.weighed[at].way(0) != Way::Whole;
        if source.parts.is_empty() && has_summary {
            // Its turns were let go: what stands for it is all there is.
            return;
        }
        let mut kept = Some(source);
        self.keep(&mut kept);
        let one = &mut self.weighed[at];
        one.bytes = bytes;
        if !has_summary {
            // That was a guess.
            one.ways.clear();
            one.kept.clear();
        }
        one.ways.insert(0, (Way::Whole, cost));
        one.kept.insert(0, kept);
    }

    /// Lets a source go where much is kept already: it can be read again.
    fn keep(&mut self, source: &mut Option<Source>) {
        let bytes = source.as_ref().map_or(0, |source| source.text().len());
        match self.kept_bytes + bytes <= KEPT_BYTES {
            true => self.kept_bytes += bytes,
            false => *source = None,
        }
    }
}

/// Something that is due, as it was read.
enum Raw {
    Entry(Option<EntryRecord>),
    Turn(TurnId, Box<Option<(TurnRow, String)>>),
    Chunk {
        id: ChunkId,
        first_seq: Seq,
        tokens: u64,
        session: String,
        levels: Vec<(Level, Vec<Summary>)>,
    },
}

impl Reader {
    fn new(
        redactor: Redactor,
        counter: Arc<dyn TokenCounter>,
        draws_facts: bool,
        verdicts: &[VerdictRecord],
    ) -> Self {
        // The last word on each.
        let mut confirmed = BTreeMap::new();
        let mut rejected = BTreeSet::new();
        for record in verdicts {
            let key = record.fact.key();
            match record.verdict {
                Verdict::Rejected => {
                    confirmed.remove(&key);
                    rejected.insert(key);
                }
                Verdict::Added | Verdict::Confirmed => {
                    rejected.remove(&key);
                    confirmed.insert(key, &record.fact);
                }
            }
        }
        let text = |text: &str| redactor.text(text).into_string();
        let fact = |fact: &&RedactedFact| SourceFact {
            kind: fact.kind,
            subject: text(fact.subject.as_str()),
            attribute: text(fact.attribute.as_str()),
            value: text(fact.value.as_str()),
            text: text(fact.text.as_str()),
            at: None,
            confirmed: true,
        };
        let told: Vec<SourceFact> = confirmed.values().take(MOST_CONFIRMED).map(fact).collect();
        let told = (!told.is_empty()).then(|| Source {
            kind: SourceKind::Entry,
            session: String::new(),
            seq: 0,
            parts: Vec::new(),
            facts: told,
        });
        let confirmed = Arc::new(confirmed.into_keys().collect());
        Self { redactor, counter, draws_facts, confirmed, rejected: Arc::new(rejected), told }
    }

    /// Tokens of a source as it is given.
    pub(super) fn count(&self, source: &Source) -> u32 {
        self.counter.count(&source.text())
    }

    /// What it costs, and about how many tokens it has whole.
    fn weigh(&self, raw: &Raw) -> (Weighed, u64) {
        let (ways, bytes, id) = match raw {
            Raw::Entry(entry) => {
                let bytes = entry.as_ref().map_or(0, |entry| entry.content.as_str().len());
                let id = entry.as_ref().map(|entry| entry.id.clone()).unwrap_or_default();
                (vec![Way::Whole, Way::Brief(Level::Micro)], bytes as u64, id)
            }
            Raw::Turn(id, row) => {
                let bytes = row.as_ref().as_ref().map_or(0, |(row, _)| row.byte_count());
                (vec![Way::Whole], bytes as u64, id.to_string())
            }
            // About four bytes a token: its turns are not at hand.
            Raw::Chunk { id, tokens, levels, .. } => {
                let ways = levels.iter().map(|(level, _)| Way::Brief(*level)).collect();
                (ways, tokens.saturating_mul(4), id.to_string())
            }
        };
        let expires_at = match raw {
            Raw::Entry(Some(entry)) => entry.expires_at,
            _ => None,
        };
        let mut weighed = Weighed { ways: Vec::new(), bytes, kept: Vec::new(), id, expires_at };
        for way in ways {
            if way != Way::Whole
                && matches!(raw, Raw::Entry(_))
                && weighed.ways.first().is_some_and(|(_, whole)| *whole <= LONG_ENTRY_TOKENS)
            {
                break;
            }
            let source = self.source(raw, way);
            weighed.ways.push((way, self.count(&source)));
            weighed.kept.push(Some(source));
        }
        let whole = match raw {
            Raw::Chunk { tokens, .. } => *tokens,
            _ => weighed.ways.first().map_or(0, |(_, cost)| u64::from(*cost)),
        };
        if weighed.ways.is_empty() {
            // Nothing stands for it yet: it is read whole or not at all.
            weighed.ways.push((Way::Whole, u32::try_from(whole).unwrap_or(u32::MAX)));
            weighed.kept.push(None);
        }
        (weighed, whole)
    }

    fn source(&self, raw: &Raw, way: Way) -> Source {
        match raw {
            Raw::Entry(entry) => {
                let content = entry.as_ref().map_or("", |entry| entry.content.as_str());
                let text = self.redactor.text(content).into_string();
                let text = match way {
                    Way::Whole => text,
                    Way::Brief(_) => self.brief(&text),
                };
                nobody(SourceKind::Entry, String::new(), 0, vec![text])
            }
            Raw::Turn(id, row) => match row.as_ref() {
                Some((row, session)) => {
                    let rows = std::slice::from_ref(row);
                    self.turns(SourceKind::Turn, session, id.seq, rows)
                }
                None => nobody(SourceKind::Turn, String::new(), id.seq.0, Vec::new()),
            },
            Raw::Chunk { id, first_seq, session, levels, .. } => {
                let wanted = levels.iter().find(|(level, _)| way == Way::Brief(*level));
                let summaries = wanted.map_or(&[][..], |(_, summaries)| summaries);
                let texts = summaries.iter().map(|summary| self.told_by(summary)).collect();
                nobody(kind_of(id.level), session.clone(), first_seq.0, texts)
            }
        }
    }

    /// A long text by some of its sentences.
    fn brief(&self, text: &str) -> String {
        let said = Said { role: "", name: None, text, at: Millis(0) };
        let summary = summarize_turns(&[said], BRIEF_ENTRY_TOKENS, self.counter.as_ref());
        match summary.text.is_empty() {
            // No sentence of it is short enough.
            true => self.counter.prefix(text, BRIEF_ENTRY_TOKENS).to_owned(),
            false => summary.text,
        }
    }

    /// A summary, and the sentences worth keeping that it does not hold.
    fn told_by(&self, summary: &Summary) -> String {
        let mut lines: Vec<&str> = vec![&summary.text];
        lines.extend(
            summary
                .key_facts
                .iter()
                .map(String::as_str)
                .filter(|fact| !summary.text.contains(*fact)),
        );
        self.redactor.text(&lines.join("\n")).into_string()
    }

    /// What was said in turns, with what follows from it.
    fn turns(&self, kind: SourceKind, session: &str, seq: Seq, rows: &[TurnRow]) -> Source {
        let mut parts: Vec<Part> = Vec::new();
        let mut facts: Vec<SourceFact> = Vec::new();
        for fields in rows.iter().filter_map(|row| Some(row.body.as_ref()?.fields())) {
            let text = self.redactor.text(&fields.content.text()).into_string();
            if text.trim().is_empty() {
                continue;
            }
            let part = Part {
                role: fields.role.clone(),
                name: fields.name.as_ref().map(|name| self.redactor.name(name).into_string()),
                text,
                at: fields.timestamp.as_ref().map(|timestamp| timestamp.at()),
            };
            if self.draws_facts {
                self.add_facts(&part, parts.last(), &mut facts);
            }
            parts.push(part);
        }
        Source { kind, session: session.to_owned(), seq: seq.0, parts, facts }
    }

    /// Adds what a part states, unless a person rejected it or it is there.
    fn add_facts(&self, part: &Part, before: Option<&Part>, facts: &mut Vec<SourceFact>) {
        for fact in stated(part, before) {
            let key = FactKey::new(&fact.subject, &fact.attribute, &fact.value);
            let is_known = facts.iter().any(|known| known.text == fact.text);
            if is_known || self.rejected.contains(&key) {
                continue;
            }
            facts.push(SourceFact {
                kind: fact.kind,
                subject: fact.subject,
                attribute: fact.attribute,
                value: fact.value,
                text: fact.text,
                at: part.at,
                confirmed: self.confirmed.contains(&key),
            });
        }
    }
}

/// Two moments of different years, months, days and hours.
const MOMENTS: [Millis; 2] = [Millis(1_000_000_000_000), Millis(1_611_234_567_890)];

/// What a part states. Of one without a time of its own only what does not depend on
/// when it was said: the host's clock must not show.
fn stated(part: &Part, before: Option<&Part>) -> Vec<Fact> {
    let at = |at: Millis| {
        let asked = before.map(|part| said(part, at));
        fact::extract(&said(part, at), asked.as_ref())
    };
    match part.at {
        Some(own) => at(own),
        None => {
            let (mut found, others) = (at(MOMENTS[0]), at(MOMENTS[1]));
            let is_same = |a: &Fact, b: &Fact| (&a.text, &a.value) == (&b.text, &b.value);
            found.retain(|fact| others.iter().any(|other| is_same(fact, other)));
            found
        }
    }
}

fn said(part: &Part, at: Millis) -> Said<'_> {
    Said {
        role: &part.role,
        name: part.name.as_deref(),
        text: &part.text,
        at: part.at.unwrap_or(at),
    }
}

/// Texts that nobody said.
fn nobody(kind: SourceKind, session: String, seq: u64, texts: Vec<String>) -> Source {
    let part = |text: String| Part { role: String::new(), name: None, text, at: None };
    let parts = texts.into_iter().filter(|text| !text.is_empty()).map(part).collect();
    Source { kind, session, seq, parts, facts: Vec::new() }
}

fn kind_of(level: Level) -> SourceKind {
    match level {
        Level::Micro => SourceKind::Micro,
        Level::Mini => SourceKind::Mini,
        Level::Macro => SourceKind::Macro,
    }
}
