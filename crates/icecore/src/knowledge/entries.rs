//! Long-term entries: what is put to be kept, until it expires or is deleted.
//!
//! An entry that has ended is not shown from that moment on. Whoever reads as of an
//! earlier position of the log still sees it, for a while: `entry_snapshot_seconds`.
//! An entry that has expired is shown to nobody, whatever position they read at.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::ids::{Position, Scope, check_name};
use icecore_domain::redact::{Hidden, RedactedText, Redactor};
use icecore_domain::time::Millis;
use icecore_index::{DocKind, Mode, Ranked, Source};
use icecore_store::{Claim, EntryFilter, EntryRecord, NewEntry, StoreError};

pub use crate::error::{EntryError, MAX_ENTRY_QUERY_CHARS};

use crate::base::INLINE_BYTES;
use crate::error::{MemoryError, Result, off_thread};
use crate::knowledge::Knowledge;
use crate::privacy::secrets::{TenantRedactor, swapped, write_redacted};
use crate::recall::search::{Filter, Ranking, read_all};
use crate::settings::{BudgetCounter, EntrySettings};

/// Entries that a list answers with at most.
pub const MAX_ENTRIES: usize = 500;

/// Entries purged in one transaction, so that no other write waits long for it.
const PURGED_A_STEP: usize = 500;

/// Memories whose entries are purged before it is asked again.
const SCOPES_A_ROUND: usize = 64;

/// An entry to put. Its time is given by the memory.
#[derive(Debug, Clone, Default)]
pub struct NewEntryRequest {
    /// Its id, where the caller chooses one; else the memory gives one.
    pub id: Option<String>,
    /// What it says, which may be nothing.
    pub content: String,
    /// Its tags; empty ones are left out, and so is what is there twice.
    pub tags: Vec<String>,
    /// When it ends by itself, to the millisecond. Never put off.
    pub expires_at: Option<Millis>,
    /// What else the transaction stores, so that the request can be repeated safely.
    pub claim: Option<Claim>,
}

/// In which order entries are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EntryRank {
    /// Newest first.
    #[default]
    Recency,
    /// What answers the query first; then the rest, newest first.
    Relevance,
}

impl EntryRank {
    /// Both, by name.
    pub const ALL: [EntryRank; 2] = [EntryRank::Recency, EntryRank::Relevance];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            EntryRank::Recency => "recency",
            EntryRank::Relevance => "relevance",
        }
    }

    /// Reads the word.
    pub fn parse(word: &str) -> Option<EntryRank> {
        EntryRank::ALL.into_iter().find(|rank| rank.as_str() == word)
    }
}

/// Which entries to list. The default is the newest [`MAX_ENTRIES`].
#[derive(Debug, Clone, Default)]
pub struct EntryQuery {
    /// At most so many, and never more than [`MAX_ENTRIES`]; 0 asks for no limit.
    pub limit: usize,
    /// Only those with this tag.
    pub tag: Option<String>,
    /// Only the first whose contents together are no larger than this, in the unit
    /// of [`Knowledge::entry_budget_counter`]. One that alone is larger is passed over,
    /// and the first other one that does not fit any more ends the list. None is cut.
    pub token_budget: Option<u64>,
    /// In which order.
    pub rank: EntryRank,
    /// What they are ranked by; needed for [`EntryRank::Relevance`], ignored otherwise.
    pub query: Option<String>,
    /// Only what was in force at this position of the log.
    pub at: Option<Position>,
    /// Ids of entries that are seen although they began after `at`: what a run wrote.
    pub own: Vec<String>,
}

/// Entries in the order asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntryList {
    /// The entries.
    pub entries: Vec<EntryRecord>,
    /// What a person should know about the answer, such as missing vectors.
    pub notices: Vec<String>,
}

impl Knowledge {
    /// What bounds entries.
    pub fn entry_settings(&self) -> &EntrySettings {
        &self.settings.entries
    }

    /// What the budget of a list of entries is counted in.
    pub fn entry_budget_counter(&self) -> BudgetCounter {
        self.entry_settings().budget_counter
    }

    /// Puts an entry, its secrets hidden in content and tags. Once this resolves it
    /// survives a crash.
    pub async fn put_entry(&self, scope: &Scope, request: NewEntryRequest) -> Result<EntryRecord> {
        write_redacted(|| self.put_entry_once(scope, &request)).await
    }

    async fn put_entry_once(
        &self,
        scope: &Scope,
        request: &NewEntryRequest,
    ) -> Result<EntryRecord> {
        let known = self.redactor(scope.tenant()).await?;
        let entry = self.redacted_entry(&known, request, self.now()).await?;
        let admitted = self.admit_text(scope.tenant(), entry.content.as_str()).await?;
        let put = self.written(self.store.put_entry(scope, entry).await)?;
        admitted.store_all();
        self.wake.notify_one();
        Ok(put)
    }

    /// An entry as it is stored: checked, its secrets hidden.
    pub(crate) async fn redacted_entry(
        &self,
        known: &TenantRedactor,
        request: &NewEntryRequest,
        now: Millis,
    ) -> Result<NewEntry> {
        let tags = checked(request, self.entry_settings())?;
        if request.expires_at.is_some_and(|at| at <= now) {
            return Err(EntryError::Expired.into());
        }
        let redactor = known.redactor.clone();
        let id = request.id.as_deref().map(|id| entry_id(&redactor, id)).transpose()?;
        let content = request.content.clone();
        let (content, tags, hidden) = match content.len() <= INLINE_BYTES {
            true => hide(&redactor, &content, &tags),
            false => off_thread(move || hide(&redactor, &content, &tags)).await?,
        };
        let (expires_at, secrets_seen) = (request.expires_at, known.version);
        let claim = request.claim.clone();
        Ok(NewEntry { id, content, tags, expires_at, now, secrets_seen, hidden, claim })
    }

    /// What an entry says and is tagged with once it is stored: its secrets hidden,
    /// by what is known of the tenant's secrets here and now.
    pub fn shown_entry(
        &self,
        scope: &Scope,
        request: &NewEntryRequest,
    ) -> (RedactedText, Vec<RedactedText>) {
        let shown = |text: &str| self.shown(scope.tenant(), text);
        let tags = distinct(&request.tags).map(|(_, tag)| shown(tag));
        (shown(&request.content), without_repeats(tags))
    }

    /// An entry in force, now or at a position of the log. Now, one that another
    /// stands for is answered as well, and names that other.
    pub async fn entry(
        &self,
        scope: &Scope,
        id: &str,
        at: Option<Position>,
    ) -> Result<EntryRecord> {
        self.refuse_ahead(scope, at).await?;
        let mut found = self.store.entry(scope, id, at, self.now()).await?;
        self.veil_entries(scope, found.iter_mut()).await?;
        found.ok_or_else(|| self.not_found(scope, id))
    }

    /// The entries that one stands for, oldest first.
    pub async fn entry_sources(&self, scope: &Scope, id: &str) -> Result<Vec<EntryRecord>> {
        let (store, now) = (&self.store, self.now());
        if store.entry(scope, id, None, now).await?.is_none() {
            return Err(self.not_found(scope, id));
        }
        let mut found = store.sources_of(scope, id, now).await?;
        self.veil_entries(scope, found.iter_mut()).await?;
        Ok(found)
    }

    /// Entries in force, as of one moment: the newest, or what answers a query.
    pub async fn entries(&self, scope: &Scope, query: &EntryQuery) -> Result<EntryList> {
        let text = checked_query(query, self.entry_settings())?;
        self.refuse_ahead(scope, query.at).await?;
        let now = self.now();
        let redactor = self.redactor(scope.tenant()).await?.redactor;
        let tag = query.tag.as_deref().map(|tag| redactor.text(tag));
        let filter = EntryFilter { at: query.at, tag, own: query.own.clone() };
        let most = match query.limit {
            0 => MAX_ENTRIES,
            limit => limit.min(MAX_ENTRIES),
        };
        // A budget passes over what is too large for it.
        let looked_at = if query.token_budget.is_some() { MAX_ENTRIES } else { most };
        let mut list = match text {
            None => {
                let entries = self.store.entries(scope, &filter, now, looked_at).await?;
                EntryList { entries, notices: Vec::new() }
            }
            // A query may go to a model, which no secret may reach.
            Some(text) => {
                let text = redactor.text(text);
                self.relevant_entries(scope, filter, text.as_str(), now, looked_at).await?
            }
        };
        self.veil_entries(scope, list.entries.iter_mut()).await?;
        if let Some(budget) = query.token_budget {
            list.entries = self.within_budget(list.entries, budget).await?;
        }
        list.entries.truncate(most);
        Ok(list)
    }

    /// What was in force at a position that is yet to come, nobody knows.
    async fn refuse_ahead(&self, scope: &Scope, at: Option<Position>) -> Result<()> {
        let Some(at) = at else { return Ok(()) };
        let head = self.store.head(scope.tenant()).await?;
        if at > head { Err(EntryError::Ahead { at, head }.into()) } else { Ok(()) }
    }

    /// Entries by what they have to say to a query, the others behind them. All are
    /// read as of one position, so that no other writer comes between.
    async fn relevant_entries(
        &self,
        scope: &Scope,
        filter: EntryFilter,
        query: &str,
        now: Millis,
        limit: usize,
    ) -> Result<EntryList> {
        if filter.at.is_some() {
            return self.relevant_entries_at(scope, &filter, query, now, limit).await;
        }
        let mut at = Position(0);
        let found = swapped!(async {
            at = at.max(self.store.head(scope.tenant()).await?);
            let filter = EntryFilter { at: Some(at), ..filter.clone() };
            match self.relevant_entries_at(scope, &filter, query, now, limit).await {
                // Entries were erased meanwhile: now is later than it was.
                Err(MemoryError::Store(StoreError::SnapshotGone { oldest })) => {
                    at = oldest;
                    Ok(None)
                }
                done => done.map(Some),
            }
        });
        found?.ok_or_else(|| StoreError::SnapshotGone { oldest: at }.into())
    }

    async fn relevant_entries_at(
        &self,
        scope: &Scope,
        filter: &EntryFilter,
        query: &str,
        now: Millis,
        limit: usize,
    ) -> Result<EntryList> {
        let store = &self.store;
        let index = self.caught_up(scope).await?;
        let places = store.entry_places(scope, filter, now).await?;
        let allowed = Filter {
            kinds: vec![DocKind::Entry],
            entries: Some(places.iter().copied().collect()),
            ..Filter::default()
        };
        let Ranking { plan, mut ranked, notices } =
            self.rank(&index, query, Mode::Hybrid, limit, allowed).await?;

        let began = |source: &Source| match source {
            Source::Entry { began } => Some(*began),
            _ => None,
        };
        let first: Vec<Position> = ranked.iter().filter_map(|one| began(&one.source)).collect();
        let known: BTreeSet<Position> = first.iter().copied().collect();
        let rest = places.into_iter().filter(|place| !known.contains(place));
        let wanted: Vec<Position> = first.into_iter().chain(rest).take(limit).collect();
        let read = store.entries_at(scope, &wanted, filter, now).await?;

        // Their words are known now, and set the order right.
        let texts: BTreeMap<Position, &EntryRecord> =
            read.iter().map(|entry| (entry.began, entry)).collect();
        let entry = |one: &Ranked| began(&one.source).and_then(|place| texts.get(&place));
        let texts = ranked.iter().map(|one| Some(entry(one)?.content.as_str().to_owned()));
        let texts = texts.collect();
        read_all(&plan, &mut ranked, texts).await?;
        icecore_index::sort(&mut ranked);
        let order = ranked.iter().filter_map(|one| began(&one.source)).chain(wanted);
        let mut left: BTreeMap<Position, EntryRecord> =
            read.iter().map(|entry| (entry.began, entry.clone())).collect();
        let entries = order.filter_map(|place| left.remove(&place)).collect();
        Ok(EntryList { entries, notices })
    }

    /// How large a text is, in the unit of budgets for entries.
    pub fn budget_size(&self, text: &str) -> u64 {
        match self.entry_budget_counter() {
            BudgetCounter::Chars => text.chars().count() as u64,
            BudgetCounter::O200kBase => u64::from(self.counter().count(text)),
        }
    }

    /// The first entries that fit a budget.
    async fn within_budget(
        &self,
        entries: Vec<EntryRecord>,
        budget: u64,
    ) -> Result<Vec<EntryRecord>> {
        let memory = self.clone();
        let size = move |text: &str| memory.budget_size(text);
        let bytes: usize = entries.iter().map(|entry| entry.content.as_str().len()).sum();
        match bytes <= INLINE_BYTES {
            true => Ok(fitting(entries, budget, size)),
            false => off_thread(move || fitting(entries, budget, size)).await,
        }
    }

    /// Deletes an entry: nobody sees it from now on, but for who reads as of an
    /// earlier position. What it stands for goes with it, unless it overtook that, and
    /// so does what was made of any of these; what that stood for besides is in force
    /// again, and then no earlier position can be read. Answers false if there is none.
    pub async fn delete_entry(&self, scope: &Scope, id: &str) -> Result<bool> {
        let is_ended = self.store.end_entry(scope, id, self.now()).await?;
        self.wake.notify_one();
        Ok(is_ended)
    }

    /// Lets go of entries that nobody can read any more; answers how many.
    ///
    /// A purge takes the index of its memory along, which is then made anew. So a
    /// memory waits until its oldest is overdue, and then loses all that is due: it
    /// is disturbed once in `entry_snapshot_seconds`, however many expire.
    pub(crate) async fn purge_entries(&self) -> Result<u64> {
        let now = self.now();
        let (due, overdue) = self.entries_kept_since(now);
        let mut purged = 0;
        loop {
            let scopes = self.store.due_entries(due, overdue, SCOPES_A_ROUND).await?;
            if scopes.is_empty() {
                return Ok(purged);
            }
            for scope in &scopes {
                purged += self.purge_scope(scope, now, due).await?;
            }
        }
    }

    /// Whether there is anything for [`Knowledge::purge_entries`] to do.
    pub(crate) async fn has_past_entries(&self) -> Result<bool> {
        let (due, overdue) = self.entries_kept_since(self.now());
        Ok(!self.store.due_entries(due, overdue, 1).await?.is_empty())
    }

    /// What ended before the first of these goes with its memory's next purge, and what
    /// ended before the second makes it due.
    fn entries_kept_since(&self, now: Millis) -> (Millis, Millis) {
        let kept = (self.entry_settings().snapshot_seconds as i64).saturating_mul(1_000);
        let ago = |millis: i64| Millis(now.0.saturating_sub(millis));
        (ago(kept), ago(kept.saturating_mul(2)))
    }

    async fn purge_scope(&self, scope: &Scope, now: Millis, ended_by: Millis) -> Result<u64> {
        // Before and after, as with an erasure: a crash between leaves no index of
        // what is gone, and nobody has made one of it meanwhile.
        self.drop_index(scope).await?;
        let mut purged = 0;
        loop {
            let step = self.store.purge_entries(scope, now, ended_by, PURGED_A_STEP).await?;
            purged += step;
            if step < PURGED_A_STEP as u64 {
                break;
            }
        }
        self.drop_index(scope).await?;
        tracing::debug!(%scope, purged, "entries that ended are gone");
        Ok(purged)
    }
}

/// A caller's own id, which is a name like others and may hold no secret.
fn entry_id(redactor: &Redactor, id: &str) -> Result<String> {
    check_name("entry", id)?;
    Ok(redactor.name(id).into_string())
}

/// Tags that say something, each once, with their places.
fn distinct(tags: &[String]) -> impl Iterator<Item = (usize, &String)> {
    let mut seen = BTreeSet::new();
    let said = tags.iter().enumerate().filter(|(_, tag)| !tag.trim().is_empty());
    said.filter(move |(_, tag)| seen.insert(tag.as_str()))
}

/// Different tags may be the same once their secrets are hidden.
pub(crate) fn without_repeats(tags: impl Iterator<Item = RedactedText>) -> Vec<RedactedText> {
    let mut kept: Vec<RedactedText> = Vec::new();
    for tag in tags {
        if !kept.contains(&tag) {
            kept.push(tag);
        }
    }
    kept
}

/// The tags to keep of an entry that may be put.
pub(crate) fn checked(request: &NewEntryRequest, bounds: &EntrySettings) -> Result<Vec<String>> {
    let bytes = request.content.len();
    if bytes > bounds.bytes {
        return Err(EntryError::ContentTooLarge { bytes, most: bounds.bytes }.into());
    }
    let tags: Vec<(usize, &String)> = distinct(&request.tags).collect();
    if tags.len() > bounds.tags {
        let (count, most) = (tags.len(), bounds.tags);
        return Err(EntryError::TooManyTags { count, most }.into());
    }
    for (index, tag) in &tags {
        let (chars, most) = (tag.chars().count(), bounds.tag_chars);
        if chars > most {
            return Err(EntryError::TagTooLong { index: *index, chars, most }.into());
        }
    }
    Ok(tags.into_iter().map(|(_, tag)| tag.clone()).collect())
}

/// What to rank entries by, if by anything.
fn checked_query<'a>(query: &'a EntryQuery, bounds: &EntrySettings) -> Result<Option<&'a str>> {
    let most = bounds.tag_chars;
    let is_tag = |tag: &String| (1..=most).contains(&tag.chars().count());
    if query.tag.as_ref().is_some_and(|tag| !is_tag(tag)) {
        return Err(EntryError::BadTag { most }.into());
    }
    if query.token_budget == Some(0) {
        return Err(EntryError::NoBudget.into());
    }
    let text = query.query.as_deref().unwrap_or_default();
    let is_text = !text.trim().is_empty() && text.chars().count() <= MAX_ENTRY_QUERY_CHARS;
    match query.rank {
        EntryRank::Recency => Ok(None),
        EntryRank::Relevance if is_text => Ok(Some(text)),
        EntryRank::Relevance => Err(EntryError::BadQuery.into()),
    }
}

/// Content and tags without what is secret, and how much was hidden in them.
pub(crate) fn hide(
    redactor: &Redactor,
    content: &str,
    tags: &[String],
) -> (RedactedText, Vec<RedactedText>, Hidden) {
    let (content, mut hidden) = redactor.text_counted(content);
    let mut clean = Vec::with_capacity(tags.len());
    for tag in tags {
        let (tag, counts) = redactor.text_counted(tag);
        for (kind, count) in counts {
            *hidden.entry(kind).or_default() += count;
        }
        clean.push(tag);
    }
    (content, without_repeats(clean.into_iter()), hidden)
}

/// Entries in order until one does not fit what is left of a budget; those larger
/// than all of it are passed over.
fn fitting(entries: Vec<EntryRecord>, budget: u64, size: impl Fn(&str) -> u64) -> Vec<EntryRecord> {
    let mut left = budget;
    let mut kept = Vec::new();
    for entry in entries {
        let size = size(entry.content.as_str());
        if size > budget {
            continue;
        }
        match left.checked_sub(size) {
            Some(rest) => left = rest,
            None => break,
        }
        kept.push(entry);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(size: usize) -> EntryRecord {
        EntryRecord {
            id: size.to_string(),
            content: Redactor::standard().text(&"é".repeat(size)),
            tags: Vec::new(),
            created_at: Millis(0),
            expires_at: None,
            began: Position(1),
            derived: false,
            successor: None,
        }
    }

    #[test]
    fn a_budget_takes_a_prefix_and_cuts_nothing() {
        let check = |sizes: &[usize], budget: u64, expected: &str| {
            let entries = sizes.iter().map(|size| entry(*size)).collect();
            let kept = fitting(entries, budget, |text| text.chars().count() as u64);
            let kept: Vec<String> = kept.into_iter().map(|entry| entry.id).collect();
            assert_eq!(kept.join(" "), expected, "{sizes:?} in {budget}");
        };
        check(&[40, 500, 40], 100, "40 40");
        check(&[40, 70, 20], 100, "40");
        check(&[60, 40, 1], 100, "60 40");
        check(&[500, 600], 100, "");
        check(&[100], 100, "100");
        check(&[101], 100, "");
        check(&[0, 1, 0], 1, "0 1 0");
        check(&[], 1, "");
    }

    #[test]
    fn tags_that_say_nothing_or_the_same_are_left_out() {
        let request = NewEntryRequest {
            tags: ["b", "", "a", " ", "b", "a "].map(str::to_owned).to_vec(),
            ..NewEntryRequest::default()
        };
        let bounds = EntrySettings { tags: 3, ..EntrySettings::default() };
        assert_eq!(checked(&request, &bounds).unwrap(), ["b", "a", "a "]);
        let bounds = EntrySettings { tags: 2, ..bounds };
        assert!(checked(&request, &bounds).is_err());
    }
}
