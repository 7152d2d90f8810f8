//! Ways to read what is due, what each costs, and the sources that it gives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use icecore_domain::chunk::{ChunkId, Level};
use icecore_domain::dream::{Distillate, Due, Part, Source, SourceFact, SourceKind};
use icecore_domain::fact::{self, Fact, FactKey, RedactedFact, Verdict};
use icecore_domain::ids::{Position, Scope, Seq, SessionNo, TurnId};
use icecore_domain::redact::Redactor;
use icecore_domain::summary::{Summary, summarize_turns};
use icecore_domain::text::{Said, normalise};
use icecore_domain::time::Millis;
use icecore_domain::tokens::TokenCounter;
use icecore_store::{EntryFilter, EntryRecord, TurnRow, TurnState, VerdictRecord};

use super::due::{AllDue, DueItem, What};
use super::layers::{Layer, is_damage};
use crate::dreams::Dreams;
use crate::error::{Result, off_thread};

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

/// A chunk of more tokens is read by its summaries.
const WHOLE_CHUNK_TOKENS: u64 = 16_000;

/// A chunk of so many times the tokens of its summaries, at most, is always weighed
/// whole: that may be cheaper.
const SMALL_CHUNK: u64 = 2;

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

    fn finest(&self) -> u64 {
        self.ways.first().map_or(0, |(_, cost)| u64::from(*cost))
    }

    /// Adds the way of a chunk's own turns.
    fn add_whole(&mut self, WholeChunk { source, cost, bytes }: WholeChunk) {
        if source.parts.is_empty() && !self.ways.is_empty() {
            // Its turns were let go: what stands for it is all there is.
            return;
        }
        self.bytes = bytes;
        self.ways.insert(0, (Way::Whole, cost));
        self.kept.insert(0, Some(source));
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
    /// What people said something about, and where in the log.
    judged: Arc<Vec<(Position, FactKey)>>,
    /// What people do not want to read, normalised.
    rejected_texts: Arc<BTreeSet<String>>,
}

/// What is due, weighed as far as it can matter.
pub(super) struct Read {
    pub(super) weighed: Vec<Weighed>,
    /// Sources that were not looked at.
    pub(super) beyond: u64,
}

impl Dreams {
    pub(super) async fn reader(&self, scope: &Scope, redactor: Redactor) -> Result<Reader> {
        let verdicts = self.store.verdicts(scope).await?;
        let counter = Arc::clone(&self.counter);
        let draws_facts = self.settings.auto_extract_facts;
        off_thread(move || Reader::new(redactor, counter, draws_facts, &verdicts)).await
    }

    /// Weighs what is due, oldest first, until no more can be read within a budget and
    /// enough is weighed to say what would do. What cannot be read is passed over.
    pub(super) async fn weigh(
        &self,
        scope: &Scope,
        reader: &Reader,
        due: &mut AllDue,
        bounds: Bounds,
        now: Millis,
    ) -> Result<Read> {
        let mut weighing = Weighing::default();
        loop {
            let begin = weighing.weighed.len();
            let total = due.items.len() as u64 + due.beyond;
            let is_enough =
                weighing.input > bounds.budget && begin as u64 >= bounds.must_cover(total);
            if begin == due.items.len() || is_enough {
                break;
            }
            let end = due.items.len().min(begin + A_PAGE);
            let page = self.weigh_page(scope, reader, &due.items[begin..end], now).await?;
            if page.iter().all(Option::is_some) {
                page.into_iter().flatten().for_each(|one| weighing.add(one));
                continue;
            }
            let unreadable = page.iter().map(Option::is_none);
            let unreadable: Vec<bool> =
                std::iter::repeat_n(false, begin).chain(unreadable).collect();
            let stays = due.pass_over(&unreadable);
            let stay = page.into_iter().zip(&stays[begin..]).filter(|(_, stays)| **stays);
            stay.filter_map(|(one, _)| one).for_each(|one| weighing.add(one));
        }
        self.weigh_finest(scope, reader, &due.items, bounds.budget, &mut weighing).await?;
        let beyond = due.items.len() as u64 + due.beyond - weighing.weighed.len() as u64;
        Ok(Read { weighed: weighing.weighed, beyond })
    }

    /// Weighs chunks whole, too, where all that can be read could be read so. That does
    /// not change what the least budget is.
    async fn weigh_finest(
        &self,
        scope: &Scope,
        reader: &Reader,
        items: &[DueItem],
        budget: u64,
        weighing: &mut Weighing,
    ) -> Result<()> {
        let mut input = 0_u64;
        let fits = |one: &&Weighed| {
            input = input.saturating_add(one.coarsest());
            input <= budget
        };
        let read = weighing.weighed.iter().take_while(fits).count();
        let could_be_whole = |at: usize| match items[at].what {
            What::Chunk { id, first_seq, tokens }
                if tokens <= WHOLE_CHUNK_TOKENS && weighing.weighed[at].way(0) != Way::Whole =>
            {
                Some((at, id, first_seq, tokens))
            }
            _ => None,
        };
        let wholes: Vec<_> = (0..read).map(could_be_whole).collect();
        let finest = wholes.iter().zip(&weighing.weighed).fold(0_u64, |sum, (whole, one)| {
            sum.saturating_add(whole.map_or(one.finest(), |(.., tokens)| tokens))
        });
        if finest > budget.saturating_mul(2) {
            return Ok(());
        }
        for (at, id, first_seq, _) in wholes.into_iter().flatten() {
            if let Some(whole) = self.whole_if_whole(scope, reader, id, first_seq).await?
                && u64::from(whole.cost) > weighing.weighed[at].coarsest()
            {
                weighing.add_whole(at, whole);
            }
        }
        Ok(())
    }

    /// What it costs to read each; none of what is damaged.
    async fn weigh_page(
        &self,
        scope: &Scope,
        reader: &Reader,
        page: &[DueItem],
        now: Millis,
    ) -> Result<Vec<Option<Weighed>>> {
        let mut entries = self.entries_of(scope, page, now).await?.into_iter().peekable();
        let (turns, damaged) = self.turns_of(scope, page).await?;
        let mut turns = turns.into_iter().peekable();
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
                    let levels = self.levels(scope, &reader.redactor, id, first_seq).await?;
                    let session = self.session_of(scope, id.session).await?;
                    waiting.push(Raw::Chunk { id, first_seq, tokens, session, levels });
                }
            }
        }
        let weigher = reader.clone();
        let weighed: Vec<Weighed> =
            off_thread(move || waiting.iter().map(|raw| weigher.weigh(raw)).collect()).await?;
        let mut page_of = Vec::with_capacity(page.len());
        for (item, mut one) in page.iter().zip(weighed) {
            let is_readable = match item.what {
                What::Entry(_) => true,
                What::Turn { id, .. } => !damaged.contains(&id),
                What::Chunk { id, first_seq, tokens } => {
                    if one.ways.is_empty() || tokens <= one.coarsest().saturating_mul(SMALL_CHUNK) {
                        let whole = self.whole_if_whole(scope, reader, id, first_seq).await?;
                        whole.into_iter().for_each(|whole| one.add_whole(whole));
                    }
                    !one.ways.is_empty()
                }
            };
            page_of.push(is_readable.then_some(one));
        }
        Ok(page_of)
    }

    /// A chunk by its turns, unless some are damaged.
    async fn whole_if_whole(
        &self,
        scope: &Scope,
        reader: &Reader,
        id: ChunkId,
        first_seq: Seq,
    ) -> Result<Option<WholeChunk>> {
        match self.whole_chunk(scope, reader, id, first_seq).await {
            Err(error) if is_damage(&error) => {
                tracing::warn!(%scope, chunk = %id, %error, "a dream cannot read a chunk whole; `icecore check` tells more");
                Ok(None)
            }
            whole => whole.map(Some),
        }
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
                Raw::Turn(id, Box::new(self.turns_of(scope, page).await?.0.pop()))
            }
            What::Chunk { id, first_seq, tokens } => {
                if way == Way::Whole {
                    return Ok(self.whole_chunk(scope, reader, id, first_seq).await?.source);
                }
                let levels = self.levels(scope, &reader.redactor, id, first_seq).await?;
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
        Ok(self.store.entries_at(scope, &began, &EntryFilter::default(), now).await?)
    }

    /// The turns of a page, each with the name of its session, and those that are
    /// damaged.
    async fn turns_of(
        &self,
        scope: &Scope,
        page: &[DueItem],
    ) -> Result<(Vec<(TurnRow, String)>, BTreeSet<TurnId>)> {
        let ids: Vec<TurnId> = page
            .iter()
            .filter_map(|item| match item.what {
                What::Turn { id, .. } => Some(id),
                _ => None,
            })
            .collect();
        let rows = self.store.turns_at(scope, &ids).await?;
        let present = rows.iter().filter(|row| row.state == TurnState::Present);
        let mut damaged: BTreeSet<TurnId> = present.map(|row| row.id).collect();
        let rows = self.hydrate_what_can_be(scope, rows).await?;
        for row in &rows {
            damaged.remove(&row.id);
        }
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
        Ok((named, damaged))
    }

    async fn session_of(&self, scope: &Scope, no: SessionNo) -> Result<String> {
        let session = self.store.session_by_number(scope, no).await?;
        let name = session.and_then(|session| session.name);
        Ok(name.map(|name| name.as_str().to_owned()).unwrap_or_default())
    }

    /// A chunk by its turns.
    async fn whole_chunk(
        &self,
        scope: &Scope,
        reader: &Reader,
        id: ChunkId,
        first_seq: Seq,
    ) -> Result<WholeChunk> {
        let rows = self.chunk_rows(scope, id, first_seq).await?;
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

impl Bounds {
    /// How many sources have to be covered, of so many.
    fn must_cover(&self, total: u64) -> u64 {
        let share = (u128::from(total) * u128::from(self.min_percent)).div_ceil(100);
        u64::try_from(share).unwrap_or(total).max(1)
    }
}

#[derive(Default)]
struct Weighing {
    weighed: Vec<Weighed>,
    /// Tokens of all at their coarsest.
    input: u64,
    kept_bytes: usize,
}

impl Weighing {
    fn add(&mut self, mut one: Weighed) {
        self.input = self.input.saturating_add(one.coarsest());
        for kept in &mut one.kept {
            self.keep(kept);
        }
        self.weighed.push(one);
    }

    fn add_whole(&mut self, at: usize, whole: WholeChunk) {
        let has_room = self.has_room(&whole.source);
        let one = &mut self.weighed[at];
        one.add_whole(whole);
        if !has_room && one.way(0) == Way::Whole {
            one.kept[0] = None;
        }
    }

    /// Lets a source go where much is kept already: it can be read again.
    fn keep(&mut self, source: &mut Option<Source>) {
        if !source.as_ref().is_some_and(|source| self.has_room(source)) {
            *source = None;
        }
    }

    fn has_room(&mut self, source: &Source) -> bool {
        let bytes = source.text().len();
        let fits = self.kept_bytes + bytes <= KEPT_BYTES;
        self.kept_bytes += if fits { bytes } else { 0 };
        fits
    }
}

/// Something that is due, as it was read.
enum Raw {
    Entry(Option<EntryRecord>),
    Turn(TurnId, Box<Option<(TurnRow, String)>>),
    Chunk { id: ChunkId, first_seq: Seq, tokens: u64, session: String, levels: Vec<Layer> },
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
        let mut rejected = BTreeMap::new();
        for record in verdicts {
            let key = record.fact.key();
            match record.verdict {
                Verdict::Rejected => {
                    confirmed.remove(&key);
                    rejected.insert(key, normalise(record.fact.text.as_str()));
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
        let judged = verdicts.iter().map(|record| (record.position, record.fact.key())).collect();
        Self {
            redactor,
            counter,
            draws_facts,
            confirmed: Arc::new(confirmed.into_keys().collect()),
            rejected_texts: Arc::new(rejected.values().cloned().collect()),
            rejected: Arc::new(rejected.into_keys().collect()),
            told,
            judged: Arc::new(judged),
        }
    }

    /// The ids of facts that people said something about after a place in the log.
    pub(super) fn judged_after(&self, position: Position) -> Vec<String> {
        let later = self.judged.iter().filter(|(at, _)| *at > position);
        let keys: BTreeSet<String> = later.map(|(_, key)| key.to_string()).collect();
        keys.into_iter().collect()
    }

    /// What was kept, without the facts that people reject.
    pub(super) fn without_rejected(&self, distillate: Distillate) -> Distillate {
        distillate.without(&self.rejected, &self.rejected_texts)
    }

    /// Tokens of a source as it is given.
    pub(super) fn count(&self, source: &Source) -> u32 {
        self.counter.count(&source.text())
    }

    /// What it costs; a chunk by what stands for it alone.
    fn weigh(&self, raw: &Raw) -> Weighed {
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
        weighed
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
