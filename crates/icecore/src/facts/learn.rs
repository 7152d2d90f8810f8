//! Facts: drawn from turns, listed with what supports them, judged by people.
//!
//! What a turn states is drawn once, page by page, behind a watermark in the
//! store. What is known follows from all that was drawn and all that people said
//! of it; it is worked out anew when either changed, and kept for the next who
//! asks.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use icecore_domain::fact::{
    self, Fact, FactKey, FactKind, FactStatus, FoundFact, Judged, KnownFact, KnownTexts, Verdict,
};
use icecore_domain::ids::{Branch, Position, Scope, Seq, SessionNo, TurnId};
use icecore_domain::redact::Hidden;
use icecore_domain::text::{self, Said, normalise};
use icecore_domain::time::Millis;
use icecore_store::{
    FactBatch, FactRecord, NewFact, NewVerdict, ScopeHead, StoreError, TurnQuery, TurnRow,
    TurnState, VerdictRecord,
};
use lru::LruCache;

use crate::base::pieces::in_pieces;
use crate::error::{MemoryError, Result, not_redacted, off_thread};
use crate::facts::Facts;
use crate::layers::{is_handoff, own_words};
use crate::privacy::secrets::TenantRedactor;
use crate::privacy::secrets::write_redacted;

/// Turns read at once.
const PAGE: usize = 1_000;

/// What is known of this many scopes is kept at hand.
const KEPT_SCOPES: usize = 8;

/// The texts of the facts of this many scopes are at hand, to know a repetition by.
const SCOPES_WITH_TEXTS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// More facts than these are looked through off the async threads.
const INLINE_FACTS: usize = 500;

/// A fact that a person tells is a sentence or two.
pub const MAX_FACT_CHARS: usize = 1_000;

/// From here on a sentence is more likely an order or a preference than not.
const LIKELY: u8 = 50;

/// Which facts to list.
#[derive(Debug, Clone, Default)]
pub struct FactQuery {
    /// Only of this status.
    pub status: Option<FactStatus>,
    /// Only of this kind.
    pub kind: Option<FactKind>,
    /// Only about this subject.
    pub subject: Option<String>,
    /// Only those that have all of these words.
    pub query: Option<String>,
    /// Also the superseded and the rejected.
    pub all: bool,
    /// Only those after the one of this id.
    pub after: Option<String>,
    /// At most so many.
    pub limit: Option<usize>,
}

/// A fact, what it is worth and what supports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactInfo {
    /// Its id, the same after a rebuild.
    pub id: String,
    /// The fact as a sentence.
    pub text: String,
    /// What kind.
    pub kind: FactKind,
    /// Whom or what it is about.
    pub subject: String,
    /// What it is worth now.
    pub status: FactStatus,
    /// Since when it holds.
    pub valid_from: Millis,
    /// Until when it held.
    pub valid_to: Option<Millis>,
    /// The turns that say so, oldest first; none if only a person told it.
    pub sources: Vec<FactSource>,
}

impl FactInfo {
    /// What came from a turn or a person.
    fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let quotes = self.sources.iter_mut().map(|source| &mut source.quote);
        [&mut self.text, &mut self.subject].into_iter().chain(quotes)
    }

    fn byte_count(&self) -> usize {
        let quotes: usize = self.sources.iter().map(|source| source.quote.len()).sum();
        self.text.len() + self.subject.len() + quotes
    }
}

/// The words of a turn that support a fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactSource {
    /// The turn, by the client's id where it gave one.
    pub turn_id: String,
    /// Its words.
    pub quote: String,
}

/// What is known in a scope.
pub(crate) struct Learned {
    head: Head,
    known: Vec<KnownFact>,
    /// Numbers of recorded facts that no longer hold, in order.
    outdated: Vec<u64>,
    /// Which known fact a recorded key became, where it is another's.
    merged: BTreeMap<FactKey, FactKey>,
}

impl Learned {
    /// Whether a recorded fact still holds.
    pub(crate) fn holds(&self, number: u64) -> bool {
        self.outdated.binary_search(&number).is_err()
    }

    /// Whether what a person told still holds.
    pub(crate) fn holds_told(&self, key: FactKey) -> bool {
        self.find(key).is_some_and(|known| is_in_force(known.status))
    }

    /// Facts that hold and that turns say, but no other turns than these: the newest so
    /// many, oldest first.
    pub(crate) fn said_only_by(
        &self,
        is_source: impl Fn(&TurnId) -> bool,
        most: usize,
    ) -> Vec<Fact> {
        let is_wanted = |known: &&KnownFact| {
            let mut turns = known.sources.iter().map(|(turn, _)| turn);
            is_in_force(known.status) && !known.sources.is_empty() && turns.all(&is_source)
        };
        let newest = self.known.iter().rev().filter(is_wanted).take(most);
        let mut facts: Vec<Fact> = newest.map(|known| known.fact.clone().into_fact()).collect();
        facts.reverse();
        facts
    }

    fn find(&self, key: FactKey) -> Option<&KnownFact> {
        let key = self.merged.get(&key).copied().unwrap_or(key);
        self.known.iter().find(|known| known.key == key)
    }
}

fn is_in_force(status: FactStatus) -> bool {
    matches!(status, FactStatus::Auto | FactStatus::Confirmed)
}

/// The epoch of a scope, its last fact and its last verdict.
type Head = (u64, u64, Position);

/// What is known of the scopes that were asked for lately, latest last.
pub(crate) struct LearnedCache {
    kept: Mutex<Vec<(Scope, Arc<Learned>)>>,
    texts: Mutex<LruCache<Scope, (Head, Arc<KnownTexts>)>>,
}

impl Default for LearnedCache {
    fn default() -> Self {
        Self { kept: Mutex::default(), texts: Mutex::new(LruCache::new(SCOPES_WITH_TEXTS)) }
    }
}

impl LearnedCache {
    fn get(&self, scope: &Scope, head: Head) -> Option<Arc<Learned>> {
        let kept = self.kept.lock().ok()?;
        let (_, learned) = kept.iter().find(|(of, _)| of == scope)?;
        (learned.head == head).then(|| Arc::clone(learned))
    }

    fn put(&self, scope: &Scope, learned: &Arc<Learned>) {
        let Ok(mut kept) = self.kept.lock() else { return };
        kept.retain(|(of, _)| of != scope);
        kept.push((scope.clone(), Arc::clone(learned)));
        if kept.len() > KEPT_SCOPES {
            kept.remove(0);
        }
    }

    /// The texts of a scope's facts up to a head. They are taken out, so that they can be
    /// added to in place.
    fn texts(&self, scope: &Scope) -> Option<(Head, Arc<KnownTexts>)> {
        self.texts.lock().ok()?.pop(scope)
    }

    fn put_texts(&self, scope: &Scope, head: Head, texts: &Arc<KnownTexts>) {
        if let Ok(mut kept) = self.texts.lock() {
            kept.put(scope.clone(), (head, Arc::clone(texts)));
        }
    }

    /// Lets all of it go.
    pub(crate) fn clear(&self) {
        if let Ok(mut kept) = self.kept.lock() {
            kept.clear();
        }
        if let Ok(mut kept) = self.texts.lock() {
            kept.clear();
        }
    }
}

fn head_of(head: &ScopeHead) -> Head {
    (head.epoch, head.facts, head.verdicts)
}

// Drawing

/// The turn before another, as far as an answer needs it.
type Before = BTreeMap<(SessionNo, Branch), TurnRow>;

impl Facts {
    /// Draws facts, and says so in the log if that fails.
    pub(crate) async fn has_drawn_facts(&self, scope: &Scope) -> bool {
        let drawn = self.draw_facts(scope).await;
        drawn
            .inspect_err(|error| tracing::warn!(%scope, %error, "facts could not be drawn"))
            .is_ok()
    }

    /// Draws facts from the turns that came since it was last done. Several may
    /// do so at once: whoever comes second reads again from where the first left.
    async fn draw_facts(&self, scope: &Scope) -> Result<()> {
        if !self.settings.auto_extract_facts {
            return Ok(());
        }
        let store = &self.store;
        let mut before = Before::new();
        loop {
            let seen_through = store.facts_through(scope).await?;
            let rows = store.turns_after(scope, seen_through, PAGE).await?;
            let Some(through) = rows.last().map(|row| row.position) else { return Ok(()) };
            let is_last = rows.len() < PAGE;
            let mut rows = self.hydrate_what_can_be(scope, rows).await?;
            rows.retain(|row| row.state == TurnState::Present && row.body.is_some());
            self.find_before(scope, &rows, &mut before).await?;
            let (found, carried) = off_thread(move || stated(rows, before)).await?;
            before = carried;
            let known = match found.is_empty() {
                true => Arc::default(),
                false => self.known_texts(scope).await?,
            };
            let now = self.now();
            let TenantRedactor { redactor, version } = self.deriving_redactor(scope).await?;
            let facts = found
                .into_iter()
                .filter(|(_, _, fact)| !known.is_echo(fact))
                .map(|(source, at, fact)| {
                    let fact = redactor.fact(fact).map_err(not_redacted)?;
                    Ok(NewFact { fact, source, at, recorded_at: now })
                })
                .collect::<Result<Vec<_>>>()?;
            let batch = FactBatch { seen_through, through, facts, secrets_seen: version };
            let is_put = match store.put_facts(scope, batch).await {
                // They are drawn again, with what was registered meanwhile.
                Err(StoreError::SecretsChanged) => false,
                done => done?,
            };
            if is_put && is_last {
                return Ok(());
            }
        }
    }

    /// Finds the turn before the first of each branch, where none was carried over.
    async fn find_before(
        &self,
        scope: &Scope,
        rows: &[TurnRow],
        before: &mut Before,
    ) -> Result<()> {
        let mut begun = BTreeSet::new();
        for row in rows {
            let place = (row.id.session, row.branch);
            if !begun.insert(place) || before.contains_key(&place) || row.ordinal.0 <= 1 {
                continue;
            }
            let query = TurnQuery {
                branch: Some(row.branch),
                through: Seq(row.id.seq.0 - 1),
                newest: true,
                ..TurnQuery::all(row.id.session, 1)
            };
            let found = self.store.turns(scope, &query).await?;
            let found = self.hydrate_what_can_be(scope, found).await?;
            before.extend(found.into_iter().map(|row| (place, row)));
        }
        Ok(())
    }

    /// The texts of all facts, which a turn that repeats one only echoes. Only those are
    /// read that came since it was asked last, or all if something was erased.
    async fn known_texts(&self, scope: &Scope) -> Result<Arc<KnownTexts>> {
        let head = head_of(&self.store.scope_head(scope).await?);
        let (epoch, facts, verdicts) = head;
        let cached = self.learned.texts(scope).filter(|(seen, _)| seen.0 == epoch);
        let (seen, mut known) = cached.unwrap_or_default();
        if seen == head {
            self.learned.put_texts(scope, head, &known);
            return Ok(known);
        }
        // Copied only where somebody else reads it at the same time.
        let texts = Arc::make_mut(&mut known);
        if seen.1 < facts {
            for record in self.store.facts_after(scope, seen.1, usize::MAX).await? {
                texts.insert(record.fact.text.as_str());
            }
        }
        if seen.2 < verdicts {
            for record in self.store.verdicts(scope).await? {
                texts.insert(record.fact.text.as_str());
            }
        }
        self.learned.put_texts(scope, head, &known);
        Ok(known)
    }
}

/// What turns state, in order, and the last turn of each branch.
fn stated(rows: Vec<TurnRow>, mut before: Before) -> (Vec<(TurnId, Millis, Fact)>, Before) {
    let mut found = Vec::new();
    for row in rows {
        let place = (row.id.session, row.branch);
        // What a handoff says was said before: it is nobody's word.
        let is_handoff = row.body.as_ref().is_some_and(|turn| is_handoff(turn.fields()));
        if is_handoff {
            before.remove(&place);
            continue;
        }
        let previous = before.get(&place);
        let facts = with_said(&row, |said| match previous {
            Some(previous) => with_said(previous, |asked| fact::extract(said, Some(asked))),
            None => Some(fact::extract(said, None)),
        });
        let facts = facts.flatten().unwrap_or_default();
        found.extend(facts.into_iter().map(|fact| (row.id, row.at, fact)));
        before.insert(place, row);
    }
    (found, before)
}

fn with_said<T>(row: &TurnRow, read: impl FnOnce(&Said<'_>) -> T) -> Option<T> {
    let fields = row.body.as_ref()?.fields();
    // What a tool gave back is not the word of whoever's message brought it.
    let (role, text) = own_words(fields);
    let name = fields.name.as_deref().filter(|_| role == fields.role);
    Some(read(&Said { role, name, text: &text, at: row.at }))
}

// Knowing

impl Facts {
    /// What is known in a scope now.
    pub(crate) async fn learned(&self, scope: &Scope) -> Result<Arc<Learned>> {
        let head = head_of(&self.store.scope_head(scope).await?);
        if let Some(learned) = self.learned.get(scope, head) {
            return Ok(learned);
        }
        let records = self.store.facts(scope).await?;
        let verdicts = self.store.verdicts(scope).await?;
        let learned = Arc::new(off_thread(move || learn_from(head, &records, &verdicts)).await?);
        self.learned.put(scope, &learned);
        Ok(learned)
    }

    /// The facts of a memory, in the order in which they began to hold.
    pub async fn facts(&self, scope: &Scope, query: &FactQuery) -> Result<Vec<FactInfo>> {
        let learned = self.learned(scope).await?;
        let chosen = chosen(&learned, query).await?;
        let mut chosen: Vec<&KnownFact> =
            chosen.iter().filter_map(|place| learned.known.get(*place)).collect();
        if let Some(after) = &query.after {
            let place = chosen.iter().position(|known| known.key.to_string() == *after);
            let place = place.ok_or_else(|| not_found(scope, after))?;
            chosen.drain(..=place);
        }
        chosen.truncate(query.limit.unwrap_or(usize::MAX));
        self.fact_infos(scope, &chosen).await
    }

    async fn fact_infos(&self, scope: &Scope, facts: &[&KnownFact]) -> Result<Vec<FactInfo>> {
        let turns: BTreeSet<TurnId> =
            facts.iter().flat_map(|known| &known.sources).map(|(turn, _)| *turn).collect();
        let ids = self.client_ids(scope, turns.into_iter().collect()).await?;
        let info = |known: &&KnownFact| FactInfo {
            id: known.key.to_string(),
            text: known.fact.text.as_str().to_owned(),
            kind: known.fact.kind,
            subject: known.fact.subject.as_str().to_owned(),
            status: known.status,
            valid_from: known.fact.valid_from,
            valid_to: known.valid_to,
            sources: known
                .sources
                .iter()
                .map(|(turn, quote)| FactSource {
                    turn_id: ids.get(turn).cloned().unwrap_or_else(|| turn.to_string()),
                    quote: quote.as_str().to_owned(),
                })
                .collect(),
        };
        let mut infos: Vec<FactInfo> = facts.iter().map(info).collect();
        if let Some(veil) = self.veil(scope).await? {
            in_pieces(&mut infos, FactInfo::byte_count, move |info| {
                info.texts_mut().for_each(|text| *text = veil.text_of(text).into_string());
                Ok(())
            })
            .await?;
        }
        Ok(infos)
    }

    /// The ids that clients gave to turns. A damaged body keeps our own.
    async fn client_ids(
        &self,
        scope: &Scope,
        turns: Vec<TurnId>,
    ) -> Result<BTreeMap<TurnId, String>> {
        let mut rows = self.store.turns_at(scope, &turns).await?;
        rows.retain(|row| row.has_client_id);
        let rows = self.hydrate_what_can_be(scope, rows).await?;
        let id = |row: TurnRow| Some((row.id, row.body?.into_fields().id?));
        Ok(rows.into_iter().filter_map(id).collect())
    }

    /// Takes in what a person tells: the facts in it, or else the whole of it.
    #[tracing::instrument(skip_all)]
    pub async fn learn(
        &self,
        scope: &Scope,
        text: &str,
        kind: Option<FactKind>,
        subject: Option<&str>,
    ) -> Result<Vec<FactInfo>> {
        let text = text.trim();
        let chars = text.chars().count();
        if chars == 0 || chars > MAX_FACT_CHARS {
            return Err(MemoryError::FactLength { chars, most: MAX_FACT_CHARS });
        }
        let now = self.now();
        let mut keys = BTreeSet::new();
        for fact in told(text, kind, subject, now) {
            keys.insert(self.tell(scope, &fact).await?);
        }
        let learned = self.learned(scope).await?;
        let known: Vec<&KnownFact> = keys.into_iter().filter_map(|key| learned.find(key)).collect();
        self.fact_infos(scope, &known).await
    }

    /// Keeps what a person tells; answers what says the same.
    async fn tell(&self, scope: &Scope, fact: &Fact) -> Result<FactKey> {
        write_redacted(|| async {
            let TenantRedactor { redactor, version } = self.redactor(scope.tenant()).await?;
            let (fact, hidden) = redactor.fact_counted(fact.clone()).map_err(not_redacted)?;
            let (key, now, verdict) = (fact.key(), self.now(), Verdict::Added);
            let told = NewVerdict {
                fact,
                verdict,
                source: None,
                now,
                hidden: hidden.clone(),
                secrets_seen: version,
            };
            self.store.put_verdict(scope, told).await?;
            self.counters.hidden(&hidden);
            Ok(key)
        })
        .await
    }

    /// Notes that a person agrees with a fact.
    pub async fn confirm(&self, scope: &Scope, id: &str) -> Result<FactInfo> {
        self.judge(scope, id, Verdict::Confirmed).await
    }

    /// Notes that a person disagrees with a fact: it does not come back.
    pub async fn reject(&self, scope: &Scope, id: &str) -> Result<FactInfo> {
        self.judge(scope, id, Verdict::Rejected).await
    }

    #[tracing::instrument(skip_all)]
    async fn judge(&self, scope: &Scope, id: &str, verdict: Verdict) -> Result<FactInfo> {
        let missing = || not_found(scope, id);
        let key = FactKey::parse(id).ok_or_else(missing)?;
        let learned = self.learned(scope).await?;
        let known = learned.find(key).ok_or_else(missing)?;
        // As it is stored: a rescan rewrites fact and verdict alike.
        let fact = known.fact.clone();
        let judged = fact.key();
        let source = known.sources.first().map(|(turn, _)| *turn);
        let (now, secrets_seen) = (self.now(), self.redactor(scope.tenant()).await?.version);
        let new = NewVerdict { fact, verdict, source, now, hidden: Hidden::new(), secrets_seen };
        match self.store.put_verdict(scope, new).await {
            // Its turn was erased this moment, and the fact with it.
            Err(StoreError::SourceGone { .. }) => return Err(missing()),
            done => done?,
        };
        let learned = self.learned(scope).await?;
        let known = learned.find(judged).ok_or_else(missing)?;
        self.fact_infos(scope, &[known]).await?.pop().ok_or_else(missing)
    }
}

fn not_found(scope: &Scope, id: &str) -> MemoryError {
    MemoryError::NotFound { id: id.to_owned(), memory: scope.memory().to_owned() }
}

/// The places of the facts that are asked for.
async fn chosen(learned: &Arc<Learned>, query: &FactQuery) -> Result<Vec<usize>> {
    let choose = |learned: &Learned, query: &FactQuery| {
        let all = learned.known.iter().enumerate();
        all.filter(|(_, known)| query.wants(known)).map(|(place, _)| place).collect()
    };
    if learned.known.len() <= INLINE_FACTS {
        return Ok(choose(learned, query));
    }
    let (learned, query) = (Arc::clone(learned), query.clone());
    off_thread(move || choose(&learned, &query)).await
}

impl FactQuery {
    fn wants(&self, known: &KnownFact) -> bool {
        let shown = match self.status {
            Some(status) => known.status == status,
            None => self.all || is_in_force(known.status),
        };
        let same = |subject: &String| normalise(subject) == normalise(known.fact.subject.as_str());
        shown
            && self.kind.is_none_or(|kind| known.fact.kind == kind)
            && self.subject.as_ref().is_none_or(same)
            && self.query.as_ref().is_none_or(|query| has_words(known, query))
    }
}

fn has_words(known: &KnownFact, query: &str) -> bool {
    let text = format!(" {} ", normalise(known.fact.text.as_str()));
    normalise(query).split_whitespace().all(|word| text.contains(&format!(" {word} ")))
}

/// The facts in what a person tells, or it as a whole.
fn told(text: &str, kind: Option<FactKind>, subject: Option<&str>, now: Millis) -> Vec<Fact> {
    let said = Said { role: "user", name: subject, text, at: now };
    let mut facts = fact::extract(&said, None);
    if facts.is_empty() {
        let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let standing = text::standing(text);
        let by_form = match (standing.instruction, standing.preference) {
            (LIKELY.., _) => FactKind::Instruction,
            (_, LIKELY..) => FactKind::Preference,
            _ => FactKind::Identity,
        };
        facts.push(Fact {
            kind: by_form,
            subject: subject.unwrap_or("user").to_owned(),
            attribute: String::new(),
            value: one_line.clone(),
            quote: one_line.clone(),
            text: one_line,
            valid_from: now,
        });
    }
    for fact in &mut facts {
        fact.kind = kind.unwrap_or(fact.kind);
    }
    facts
}

/// What is known from what was drawn and what people said.
fn learn_from(head: Head, records: &[FactRecord], verdicts: &[VerdictRecord]) -> Learned {
    let found = records
        .iter()
        .map(|record| FoundFact { fact: record.fact.clone(), source: record.source })
        .collect();
    let judged: Vec<Judged> = verdicts.iter().map(judged).collect();
    let known = fact::resolve(found, &judged);
    let mut places: BTreeMap<(TurnId, String, &str), usize> = BTreeMap::new();
    for (at, known) in known.iter().enumerate() {
        let attribute = normalise(known.fact.attribute.as_str());
        for (turn, quote) in &known.sources {
            places.insert((*turn, attribute.clone(), quote.as_str()), at);
        }
    }
    let mut outdated = Vec::new();
    let mut merged = BTreeMap::new();
    for record in records {
        let attribute = normalise(record.fact.attribute.as_str());
        let place = places.get(&(record.source, attribute, record.fact.quote.as_str()));
        let Some(known) = place.map(|at| &known[*at]) else { continue };
        if !is_in_force(known.status) {
            outdated.push(record.number);
        }
        let key = record.fact.key();
        if key != known.key {
            merged.insert(key, known.key);
        }
    }
    outdated.sort_unstable();
    Learned { head, known, outdated, merged }
}

fn judged(record: &VerdictRecord) -> Judged {
    Judged {
        key: record.fact.key(),
        verdict: record.verdict,
        fact: Some(record.fact.clone()),
        at: record.at,
    }
}

impl Facts {
    /// Lets go of what was worked out: something of it was erased.
    pub(crate) fn forget_learned(&self) {
        self.learned.clear();
    }
}
