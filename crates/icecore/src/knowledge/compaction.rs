//! Compaction of long-term entries: the oldest pressed into one that stands for them.
//!
//! What is written was redacted three times: the sources when they were put, again
//! before sentences are cut out of them, and what was made of them after that. Text
//! that is not clean then is not written. The sources stay, out of sight, until what
//! stands for them expires or is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use icecore_domain::entries::compact::model::Pressing;
use icecore_domain::entries::compact::{self, Limits};
use icecore_domain::entries::{self, COMPACTED_FROM, Entry, EntryKind};
use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Position, Scope};
use icecore_domain::redact::{Hidden, NotClean, RedactedText, Redactor};
use icecore_domain::time::Millis;
use icecore_store::{
    Derivation, DerivationKind, Derived, DerivedEntry, EntryFilter, EntryRecord, Replaced,
    Successor,
};
use serde_json::json;

use crate::knowledge::entries::without_repeats;
pub use crate::settings::MAX_COMPACTED_ENTRIES;

use crate::base::Purpose;
use crate::error::{MemoryError, Result, not_redacted, off_thread};
use crate::knowledge::Knowledge;
use crate::models::About;
use crate::privacy::secrets::{TenantRedactor, swapped};
use crate::settings::CompactionSettings;

/// With more sources than this the event counts them and does not name them.
pub const MAX_TOLD_IDS: usize = 100;

/// Bytes of contents that a compaction, or a consolidation for one of its plans,
/// reads; it goes on with what is left the next time.
pub(crate) const MAX_READ_BYTES: usize = 64 << 20;

/// Entries read at once.
pub(crate) const ENTRIES_A_READ: usize = 500;

/// Memories compacted before it is asked again.
const SCOPES_A_ROUND: usize = 1_024;

/// A crowded memory of which nothing could be compacted is left alone for so long.
const REST_MILLIS: u64 = 10 * 60 * 1_000;

/// Bytes of the hash that names a compaction.
const RUN_BYTES: usize = 8;

/// What bounds one compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionRequest {
    /// Entries that become one, the oldest; no more than [`MAX_COMPACTED_ENTRIES`].
    pub max_input_entries: usize,
    /// Bytes of that one, as UTF-8; no more than `entry_bytes`.
    pub max_output_bytes: usize,
}

/// What came of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compaction {
    /// The entry that was written.
    pub entry: EntryRecord,
    /// What it stands for, oldest first.
    pub source_ids: Vec<String>,
    /// The payload of `memory.compacted`, without content.
    pub payload: String,
    /// Where in the log.
    pub position: Position,
}

impl Knowledge {
    /// When entries are compacted by themselves, and how.
    pub fn compaction_settings(&self) -> &CompactionSettings {
        &self.settings.compaction
    }

    /// Presses the oldest entries of a memory into one, and answers that; nothing if
    /// there are fewer than two. What stands for all of them ends with the first that
    /// does. Once this resolves it survives a crash.
    pub async fn compact_entries(
        &self,
        scope: &Scope,
        request: CompactionRequest,
    ) -> Result<Option<Compaction>> {
        self.compact(scope, request, Choice { keep: 0, apart: false }).await
    }

    /// Compacts every memory, of any tenant, that is crowded and has been quiet for a
    /// while; answers how many entries were written for that.
    pub async fn compact_due(&self) -> Result<u64> {
        self.compact_while(|| true).await
    }

    /// As [`Knowledge::compact_due`], while `goes_on` says so. Memories take turns, so
    /// that a large one does not keep the others waiting.
    pub(crate) async fn compact_while(&self, goes_on: impl Fn() -> bool) -> Result<u64> {
        let settings = self.compaction_settings();
        if settings.entries == 0 {
            return Ok(0);
        }
        let crowd = self.crowd();
        let mut crowded = self.crowded(crowd).await?;
        let mut written = 0;
        while !crowded.is_empty() {
            let mut left = Vec::new();
            for scope in crowded {
                if !goes_on() {
                    return Ok(written);
                }
                match self.thin_out(&scope, crowd).await {
                    Ok(Thinned::Once) => {
                        written += 1;
                        left.push(scope);
                    }
                    Ok(Thinned::Enough) => {}
                    Ok(Thinned::NotAtAll { head }) => self.let_rest(scope, Some(head)),
                    // One that fails must not keep the others from being compacted.
                    Err(error) => {
                        tracing::warn!(%scope, error = %error, "entries could not be compacted, will try again in some minutes");
                        self.let_rest(scope, None);
                    }
                }
            }
            crowded = left;
        }
        Ok(written)
    }

    /// Whether there is anything for [`Knowledge::compact_while`] to do.
    pub(crate) async fn has_crowded_memories(&self) -> Result<bool> {
        match self.compaction_settings().entries {
            0 => Ok(false),
            _ => Ok(!self.crowded(self.crowd()).await?.is_empty()),
        }
    }

    /// So many entries are too many. What stays as it is leaves at least two to compact.
    fn crowd(&self) -> u64 {
        let settings = self.compaction_settings();
        settings.entries.max(settings.keep_entries as u64 + 2)
    }

    /// Memories that are crowded and quiet, but for those where it is known that
    /// nothing would come of it.
    async fn crowded(&self, crowd: u64) -> Result<Vec<Scope>> {
        let now = self.now();
        let idle = (self.compaction_settings().idle_seconds as i64).saturating_mul(1_000);
        let quiet_since = Millis(now.0.saturating_sub(idle));
        let store = &self.store;
        let limit = SCOPES_A_ROUND + self.resting.lock().len();
        let found = store.crowded_memories(crowd, quiet_since, now, limit).await?;
        let resting = {
            let mut resting = self.resting.lock();
            let crowded: BTreeSet<&Scope> = found.iter().collect();
            resting.retain(|scope, _| crowded.contains(scope));
            resting.clone()
        };
        let mut crowded = Vec::new();
        for scope in found {
            let is_resting = match resting.get(&scope) {
                None => false,
                Some(rest) if now.0.abs_diff(rest.since.0) < REST_MILLIS => true,
                Some(Rest { head: None, .. }) => false,
                Some(Rest { head, .. }) => *head == Some(store.head(scope.tenant()).await?),
            };
            if !is_resting {
                crowded.push(scope);
            }
        }
        Ok(crowded)
    }

    fn let_rest(&self, scope: Scope, head: Option<Position>) {
        let rest = Rest { since: self.now(), head };
        self.resting.lock().insert(scope, rest);
    }

    /// Compacts once, if a memory is crowded.
    async fn thin_out(&self, scope: &Scope, crowd: u64) -> Result<Thinned> {
        let store = &self.store;
        let most = usize::try_from(crowd).unwrap_or(usize::MAX);
        if store.oldest_places(scope, None, self.now(), most).await?.len() < most {
            return Ok(Thinned::Enough);
        }
        let head = store.head(scope.tenant()).await?;
        let settings = self.compaction_settings();
        let request = CompactionRequest {
            max_input_entries: settings.input_entries,
            max_output_bytes: settings.output_bytes,
        };
        let choice = Choice { keep: settings.keep_entries, apart: true };
        Ok(match self.compact(scope, request, choice).await? {
            Some(_) => Thinned::Once,
            None => Thinned::NotAtAll { head },
        })
    }

    async fn compact(
        &self,
        scope: &Scope,
        request: CompactionRequest,
        choice: Choice,
    ) -> Result<Option<Compaction>> {
        let done = swapped!(self.compact_once(scope, request, choice))?;
        let done = done.ok_or(MemoryError::EntriesChanged)?;
        if let Some(done) = &done {
            self.tell_compaction(scope, done);
        }
        Ok(done)
    }

    /// Compacts, if there is anything to; nothing is answered if a source has gone meanwhile.
    async fn compact_once(
        &self,
        scope: &Scope,
        request: CompactionRequest,
        choice: Choice,
    ) -> Result<Option<Option<Compaction>>> {
        let now = self.now();
        let TenantRedactor { redactor, version } = self.deriving_redactor(scope).await?;
        let head = self.store.head(scope.tenant()).await?;
        let epoch = self.store.scope_head(scope).await?.epoch;
        let most = request.max_input_entries.min(MAX_COMPACTED_ENTRIES);
        let oldest = Arc::new(self.oldest(scope, most, choice, now).await?);
        if oldest.len() < 2 {
            return Ok(Some(None));
        }
        let key = self.identity_key(scope.tenant()).await?;
        let bounds = self.entry_settings();
        let limits = Limits {
            max_input_entries: most,
            max_output_bytes: request.max_output_bytes.min(bounds.bytes),
            apart: choice.apart,
        };
        let (most_tags, named) = (bounds.tags.max(1), scope.clone());
        let about = About { scope, session: None, epoch, purpose: Purpose::Consolidation };
        let pressed = self.pressed(about, &redactor, &oldest, limits).await?;
        let drafted = off_thread(move || {
            let name = |ids: &[String]| run_name(&key, &named, head, ids);
            draft(&redactor, &oldest, limits, name, most_tags, pressed)
        });
        let Some(Draft { ids, entry }) = drafted.await?? else { return Ok(Some(None)) };
        let derivation = Derivation {
            payload: payload_of(scope, &ids, entry.content.as_str().len()),
            outputs: vec![entry],
            replaced: ids
                .iter()
                .map(|id| Replaced {
                    id: id.clone(),
                    by: Successor::Output(0),
                    is_overtaken: false,
                })
                .collect(),
            kind: DerivationKind::Compacted,
            now,
            secrets_seen: version,
        };
        let Some(derived) = self.store.derive_entries(scope, derivation).await? else {
            return Ok(None);
        };
        let Derived { outputs, payload, position } = derived;
        let entry = outputs.into_iter().next();
        let entry = entry.ok_or_else(|| MemoryError::Internal("no entry was made".to_owned()))?;
        Ok(Some(Some(Compaction { entry, source_ids: ids, payload, position })))
    }

    /// What models make of the entries that a compaction takes, where they do not stay
    /// whole.
    async fn pressed(
        &self,
        about: About<'_>,
        redactor: &Redactor,
        entries: &Arc<Vec<EntryRecord>>,
        limits: Limits,
    ) -> Result<Option<String>> {
        if !self.has_consolidation_models() {
            return Ok(None);
        }
        let (by, read) = (redactor.clone(), Arc::clone(entries));
        let pressing = off_thread(move || {
            let clean = Clean::of(&by, &read);
            let tags = clean.tags();
            let entries = clean.entries(&tags);
            let plan = compact::plan(&entries, &limits)?;
            Pressing::of(&entries, &plan, limits.max_output_bytes)
        })
        .await?;
        match pressing {
            Some(pressing) => self.pressed_by_models(about, pressing).await,
            None => Ok(None),
        }
    }

    /// The oldest entries that may be compacted, until `most` may be together. However
    /// many there are, no more than [`MAX_COMPACTED_ENTRIES`] are looked at.
    async fn oldest(
        &self,
        scope: &Scope,
        most: usize,
        choice: Choice,
        now: Millis,
    ) -> Result<Vec<EntryRecord>> {
        let mut found: Vec<EntryRecord> = Vec::new();
        let mut together: BTreeMap<Option<EntryKind>, usize> = BTreeMap::new();
        let (mut after, mut looked_at, mut bytes) = (None, 0, 0);
        let (store, filter) = (&self.store, EntryFilter::default());
        let most_tags = self.entry_settings().tags.max(1);
        while most > 1 && looked_at < MAX_COMPACTED_ENTRIES {
            // Those behind which there are not as many are the newest.
            let limit = ENTRIES_A_READ + choice.keep;
            let mut places = store.oldest_places(scope, after, now, limit).await?;
            places.truncate(places.len().saturating_sub(choice.keep));
            let Some(last) = places.last() else { break };
            (after, looked_at) = (Some(*last), looked_at + places.len());
            let began: Vec<Position> = places.iter().map(|place| place.began).collect();
            for entry in store.entries_at(scope, &began, &filter, now).await? {
                bytes += entry.content.as_str().len();
                if bytes > MAX_READ_BYTES {
                    return Ok(found);
                }
                if is_left_alone(&entry) {
                    continue;
                }
                let kind = choice.apart.then(|| kind(&entry));
                // What stands for such has a tag more: one of theirs would be lost.
                if kind.as_ref().is_some_and(|kind| kind.tag_count() >= most_tags) {
                    continue;
                }
                let count = together.entry(kind).or_default();
                *count += 1;
                let is_full = *count == most;
                found.push(entry);
                if is_full {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    fn tell_compaction(&self, scope: &Scope, done: &Compaction) {
        tracing::info!(
            target: "openwop.memory.compacted",
            %scope,
            output_id = done.entry.id,
            source_count = done.source_ids.len(),
            byte_size = done.entry.content.as_str().len(),
            position = done.position.0,
            trigger = "host-managed",
            "entries were compacted"
        );
        self.wake.notify_one();
    }
}

/// Which entries a compaction takes.
#[derive(Debug, Clone, Copy)]
struct Choice {
    /// The newest, which stay as they are.
    keep: usize,
    /// See [`Limits::apart`].
    apart: bool,
}

/// What became of a crowded memory.
enum Thinned {
    /// It is not crowded any more.
    Enough,
    /// There is an entry instead of some.
    Once,
    /// Nothing in it can be compacted; so it was when the log stood there.
    NotAtAll { head: Position },
}

/// A memory that is crowded and could not be compacted.
#[derive(Debug, Clone, Copy)]
struct Rest {
    since: Millis,
    /// While the log stands there nothing will come of it; without, it failed.
    head: Option<Position>,
}

/// The crowded memories that are not tried again yet.
#[derive(Default)]
pub(crate) struct Resting(Mutex<BTreeMap<Scope, Rest>>);

impl Resting {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Scope, Rest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often less is said where hiding secrets made a text too long.
const SHORTENINGS: usize = 8;

/// An entry that is to stand for others, and these.
struct Draft {
    ids: Vec<String>,
    entry: DerivedEntry,
}

/// The entry that is to stand for some of the records, its secrets hidden: what a model
/// made of them, if one did. Where hiding them makes it too long, less is said.
fn draft(
    redactor: &Redactor,
    records: &[EntryRecord],
    mut limits: Limits,
    name: impl Fn(&[String]) -> String,
    most_tags: usize,
    mut pressed: Option<String>,
) -> Result<Option<Draft>> {
    let most = limits.max_output_bytes;
    let clean = Clean::of(redactor, records);
    let tags = clean.tags();
    let entries = clean.entries(&tags);
    for _ in 0..SHORTENINGS {
        let Some(plan) = compact::plan(&entries, &limits) else { return Ok(None) };
        let by_model = pressed.take();
        let text = by_model.as_ref().unwrap_or(&plan.text);
        let (content, hidden) = looked_at(text, |text| redactor.derived_text(text))?;
        let excess = content.as_str().len().saturating_sub(most);
        if excess > 0 && by_model.is_some() {
            continue;
        }
        if excess > 0 {
            limits.max_output_bytes = limits.max_output_bytes.saturating_sub(excess);
            continue;
        }
        let ids: Vec<String> = plan.sources.iter().map(|at| records[*at].id.clone()).collect();
        let shared = plan.tags.iter().take(most_tags.saturating_sub(1));
        let shared = shared.map(|tag| redactor.text(tag));
        let run = run_tag(redactor, &name(&ids));
        let tags = without_repeats(run.into_iter().chain(shared));
        let entry = DerivedEntry { id: None, content, tags, expires_at: plan.expires_at, hidden };
        return Ok(Some(Draft { ids, entry }));
    }
    Err(not_redacted("derived text is too long once its secrets are hidden"))
}

/// Names a compaction: whoever does the same again gives it the same name, and it
/// tells nothing.
fn run_name(key: &IdentityKey, scope: &Scope, head: Position, ids: &[String]) -> String {
    let head = head.0.to_be_bytes();
    let mut parts: Vec<&[u8]> = vec![scope.memory().as_bytes(), &head];
    parts.extend(ids.iter().map(|id| id.as_bytes()));
    let hash = key.hash_parts("compaction", &parts);
    hash[..RUN_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The tag that names the compaction. It is left out where a secret of the tenant
/// looks like it: then it would name nothing.
pub(crate) fn run_tag(redactor: &Redactor, run: &str) -> Option<RedactedText> {
    let tag = redactor.text(&format!("{COMPACTED_FROM}{run}"));
    let name = tag.as_str().strip_prefix(COMPACTED_FROM)?;
    let is_name = !name.is_empty() && !name.starts_with(':') && !name.contains(char::is_whitespace);
    is_name.then_some(tag)
}

/// Derived text as it may be written. Nothing is said of what was wrong with it.
pub(crate) fn looked_at(
    text: &str,
    look: impl Fn(&str) -> std::result::Result<(RedactedText, Hidden), NotClean>,
) -> Result<(RedactedText, Hidden)> {
    look(text).map_err(not_redacted)
}

fn is_left_alone(entry: &EntryRecord) -> bool {
    let kept = [entries::COMMITMENT_TAG, entries::DISTILLATE_TAG];
    entry.tags.iter().any(|tag| kept.contains(&tag.as_str()))
}

fn kind(entry: &EntryRecord) -> EntryKind {
    EntryKind::new(entry.expires_at, entry.tags.iter().map(RedactedText::as_str))
}

/// Entries as plans read them: with what is known of secrets now, so that no secret
/// is cut in two and half of it kept.
pub(crate) struct Clean<'a> {
    records: &'a [EntryRecord],
    contents: Vec<RedactedText>,
    tags: Vec<Vec<RedactedText>>,
}

impl<'a> Clean<'a> {
    pub(crate) fn of(redactor: &Redactor, records: &'a [EntryRecord]) -> Self {
        let hide = |text: &RedactedText| redactor.text(text.as_str());
        Self {
            records,
            contents: records.iter().map(|record| hide(&record.content)).collect(),
            tags: records.iter().map(|record| record.tags.iter().map(hide).collect()).collect(),
        }
    }

    pub(crate) fn tags(&self) -> Vec<Vec<&str>> {
        self.tags.iter().map(|tags| tags.iter().map(RedactedText::as_str).collect()).collect()
    }

    pub(crate) fn entries<'b>(&'b self, tags: &'b [Vec<&'b str>]) -> Vec<Entry<'b>> {
        let entry = |at: usize| Entry {
            id: &self.records[at].id,
            content: self.contents[at].as_str(),
            tags: &tags[at],
            created_at: self.records[at].created_at,
            expires_at: self.records[at].expires_at,
        };
        (0..self.records.len()).map(entry).collect()
    }
}

type Payload = Arc<dyn Fn(&[String]) -> serde_json::Value + Send + Sync>;

fn payload_of(scope: &Scope, sources: &[String], bytes: usize) -> Payload {
    let mut payload = json!({
        "memoryRef": scope.memory(),
        "sourceCount": sources.len(),
        "trigger": "host-managed",
        "byteSize": bytes,
    });
    if sources.len() <= MAX_TOLD_IDS {
        payload["sourceIds"] = json!(sources);
    }
    Arc::new(move |outputs| {
        let mut payload = payload.clone();
        payload["outputId"] = json!(outputs.first());
        payload
    })
}

#[cfg(test)]
mod tests {
    use icecore_domain::redact::{Secret, SecretName, TagKey};

    use super::*;

    #[test]
    fn text_that_is_not_clean_is_not_written_and_not_told() {
        let failed = looked_at("the key is hunter2", |_| Err(NotClean)).unwrap_err();
        let told = format!("{failed} {failed:?}");
        assert!(told.contains("compaction_redaction_failed"), "{told}");
        assert!(told.contains("nothing was written") && !told.contains("hunter2"), "{told}");
    }

    #[test]
    fn the_name_of_a_run_is_a_tag_that_no_pattern_hides() {
        let redactor = Redactor::standard();
        for run in ["0123456789abcdef", "ffffffffffffffff", "8d3f0a9b1c2e4d5f"] {
            let tag = run_tag(&redactor, run).unwrap();
            assert_eq!(tag.as_str(), format!("compacted-from:{run}"));
        }
    }

    #[test]
    fn what_is_secret_now_is_hidden_and_still_fits() {
        let record = |n: usize, content: &str| EntryRecord {
            id: format!("e{n}"),
            content: Redactor::standard().text(content),
            tags: Vec::new(),
            created_at: Millis(0),
            expires_at: None,
            began: Position(n as u64),
            derived: false,
            successor: None,
        };
        let records = [record(1, "Plums of Alcobaca are ripe."), record(2, "Figs are not.")];
        // What stands for it is longer than the secret.
        let name = SecretName::new("the-town-where-the-plums-are").unwrap();
        let secret = Secret::new(name, "Alcobaca".to_owned().into()).unwrap();
        let redactor = Redactor::standard().for_tenant(&[secret], TagKey::default());
        for max_output_bytes in 0..120 {
            let limits = Limits { max_input_entries: 9, max_output_bytes, apart: false };
            let name = |_: &[String]| "0a".to_owned();
            let made = draft(&redactor, &records, limits, name, 64, None).unwrap().unwrap().entry;
            assert!(!made.content.as_str().contains("Alcobaca"));
            assert!(made.content.as_str().len() <= max_output_bytes);
        }
    }
}
