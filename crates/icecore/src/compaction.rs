//! Compaction of long-term entries: the oldest pressed into one that stands for them.
//!
//! What is written was redacted three times: the sources when they were put, again
//! before sentences are cut out of them, and what was made of them after that. Text
//! that is not clean then is not written. The sources stay, out of sight, until what
//! stands for them expires or is forgotten.

use std::sync::Arc;

use icecore_domain::compaction::{self, COMPACTED_FROM, Entry, Limits};
use icecore_domain::ids::{Position, Scope};
use icecore_domain::redact::{Hidden, NotClean, RedactedText, Redactor};
use icecore_domain::time::Millis;
use icecore_store::{
    Derivation, DerivationKind, Derived, DerivedEntry, EntryFilter, EntryRecord, Replaced,
    StoreError, Successor,
};
use serde_json::json;

use crate::entries::without_repeats;
use crate::error::{MemoryError, Result, not_redacted, off_thread};
use crate::memory::{Memory, TRIES};
use crate::secrets::TenantRedactor;
use crate::settings::CompactionSettings;

/// Entries that one compaction reads, whatever it is asked for.
pub const MAX_COMPACTED_ENTRIES: usize = 10_000;

/// With more sources than this the event counts them and does not name them.
pub const MAX_TOLD_IDS: usize = 100;

/// Bytes of contents that a compaction or consolidation reads; it goes on with what
/// is left the next time.
const MAX_READ_BYTES: usize = 64 << 20;

/// Entries read at once.
const ENTRIES_A_READ: usize = 500;

/// Memories compacted before it is asked again.
const SCOPES_A_ROUND: usize = 1_024;

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

impl Memory {
    /// When entries are compacted by themselves, and how.
    pub fn compaction_settings(&self) -> &CompactionSettings {
        &self.inner.settings.compaction
    }

    /// Presses the oldest entries of a memory into one, and answers that; nothing if
    /// there are fewer than two. Once this resolves it survives a crash.
    pub async fn compact_entries(
        &self,
        scope: &Scope,
        request: CompactionRequest,
    ) -> Result<Option<Compaction>> {
        self.compact(scope, request, 0).await
    }

    /// Compacts every memory, of any tenant, that is crowded and has been quiet for a
    /// while; answers how many entries were written for that.
    pub async fn compact_due(&self) -> Result<u64> {
        let settings = self.compaction_settings();
        if settings.entries == 0 {
            return Ok(0);
        }
        // What stays as it is leaves at least two to compact.
        let crowd = settings.entries.max(settings.keep_entries as u64 + 2);
        let now = self.now();
        let idle = (settings.idle_seconds as i64).saturating_mul(1_000);
        let quiet_since = Millis(now.0.saturating_sub(idle));
        let store = &self.inner.store;
        let mut written = 0;
        for scope in store.crowded_memories(crowd, quiet_since, now, SCOPES_A_ROUND).await? {
            // One that fails must not keep the others from being compacted.
            match self.thin_out(&scope, crowd).await {
                Ok(count) => written += count,
                Err(error) => {
                    tracing::warn!(%scope, error = %error, "entries could not be compacted, will try again");
                }
            }
        }
        Ok(written)
    }

    /// Compacts until a memory is crowded no more.
    async fn thin_out(&self, scope: &Scope, crowd: u64) -> Result<u64> {
        let settings = self.compaction_settings();
        let request = CompactionRequest {
            max_input_entries: settings.input_entries,
            max_output_bytes: settings.output_bytes,
        };
        let mut written = 0;
        loop {
            let places = self.places(scope, self.now()).await?;
            if (places.len() as u64) < crowd
                || self.compact(scope, request, settings.keep_entries).await?.is_none()
            {
                return Ok(written);
            }
            written += 1;
        }
    }

    /// As [`Memory::compact_entries`], leaving the newest as they are.
    async fn compact(
        &self,
        scope: &Scope,
        request: CompactionRequest,
        keep: usize,
    ) -> Result<Option<Compaction>> {
        for _ in 0..TRIES {
            match self.compact_once(scope, request, keep).await {
                // A secret was registered, or a source has gone: all is read again.
                Err(MemoryError::Store(StoreError::SecretsChanged)) | Ok(Step::Changed) => {}
                Ok(Step::Nothing) => return Ok(None),
                Ok(Step::Done(done)) => {
                    self.tell_compaction(scope, &done);
                    return Ok(Some(*done));
                }
                Err(error) => return Err(error),
            }
        }
        Err(MemoryError::EntriesChanged)
    }

    async fn compact_once(
        &self,
        scope: &Scope,
        request: CompactionRequest,
        keep: usize,
    ) -> Result<Step> {
        let now = self.now();
        let TenantRedactor { redactor, version } = self.deriving_redactor(scope).await?;
        let head = self.inner.store.head(scope.tenant()).await?;
        let most = request.max_input_entries.min(MAX_COMPACTED_ENTRIES);
        let sources = self.oldest(scope, most, keep, now).await?;
        if sources.len() < 2 {
            return Ok(Step::Nothing);
        }
        let ids: Vec<String> = sources.iter().map(|entry| entry.id.clone()).collect();
        let run = self.run_name(scope, head, &ids).await?;
        let bounds = self.entry_settings();
        let limits = Limits {
            max_input_entries: most,
            max_output_bytes: request.max_output_bytes.min(bounds.bytes),
        };
        let most_tags = bounds.tags.max(1);
        let drafted = off_thread(move || draft(&redactor, &sources, limits, &run, most_tags));
        let Some(entry) = drafted.await?? else { return Ok(Step::Nothing) };
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
        let Some(derived) = self.inner.store.derive_entries(scope, derivation).await? else {
            return Ok(Step::Changed);
        };
        let Derived { outputs, payload, position } = derived;
        let entry = outputs.into_iter().next();
        let entry = entry.ok_or_else(|| MemoryError::Internal("no entry was made".to_owned()))?;
        let done = Compaction { entry, source_ids: ids, payload, position };
        Ok(Step::Done(Box::new(done)))
    }

    /// Names a compaction: whoever does the same again gives it the same name, and it
    /// tells nothing.
    async fn run_name(&self, scope: &Scope, head: Position, ids: &[String]) -> Result<String> {
        let key = self.identity_key(scope.tenant()).await?;
        let head = head.0.to_be_bytes();
        let mut parts: Vec<&[u8]> = vec![scope.memory().as_bytes(), &head];
        parts.extend(ids.iter().map(|id| id.as_bytes()));
        let hash = key.hash_parts("compaction", &parts);
        Ok(hash[..RUN_BYTES].iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Where the entries in force began, newest first.
    pub(crate) async fn places(&self, scope: &Scope, now: Millis) -> Result<Vec<Position>> {
        Ok(self.inner.store.entry_places(scope, &EntryFilter::default(), now).await?)
    }

    /// The oldest entries that may be compacted, but for the `keep` newest of all.
    async fn oldest(
        &self,
        scope: &Scope,
        most: usize,
        keep: usize,
        now: Millis,
    ) -> Result<Vec<EntryRecord>> {
        let places = self.places(scope, now).await?;
        let old = places.into_iter().skip(keep).rev().collect::<Vec<_>>();
        self.entries_of(scope, &old, most, now, |entry| !is_left_alone(entry)).await
    }

    /// Entries that began at `places`, up to `most`, of which `is_wanted` is true.
    pub(crate) async fn entries_of(
        &self,
        scope: &Scope,
        places: &[Position],
        most: usize,
        now: Millis,
        is_wanted: impl Fn(&EntryRecord) -> bool,
    ) -> Result<Vec<EntryRecord>> {
        let filter = EntryFilter::default();
        let mut found: Vec<EntryRecord> = Vec::new();
        let mut bytes = 0;
        for places in places.chunks(ENTRIES_A_READ) {
            let read = self.inner.store.entries_at(scope, places, &filter, now);
            for entry in read.await? {
                bytes += entry.content.as_str().len();
                if found.len() == most || (found.len() > 1 && bytes > MAX_READ_BYTES) {
                    return Ok(found);
                }
                if is_wanted(&entry) {
                    found.push(entry);
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
        self.inner.wake.notify_one();
    }
}

/// How far an attempt got.
enum Step {
    /// There is nothing to do.
    Nothing,
    /// What was read is not so any more.
    Changed,
    Done(Box<Compaction>),
}

/// The entry that is to stand for the sources, its secrets hidden. Where hiding them
/// makes it too long, less is said.
fn draft(
    redactor: &Redactor,
    sources: &[EntryRecord],
    mut limits: Limits,
    run: &str,
    most_tags: usize,
) -> Result<Option<DerivedEntry>> {
    let most = limits.max_output_bytes;
    let clean = Clean::of(redactor, sources);
    let tags = clean.tags();
    let entries = clean.entries(&tags);
    for _ in 0..TRIES {
        let Some(plan) = compaction::plan(&entries, &limits) else { return Ok(None) };
        let (content, hidden) = looked_at(&plan.text, |text| redactor.derived_text(text))?;
        let excess = content.as_str().len().saturating_sub(most);
        if excess > 0 {
            limits.max_output_bytes = limits.max_output_bytes.saturating_sub(excess);
            continue;
        }
        let shared = plan.tags.iter().take(most_tags.saturating_sub(1));
        let shared = shared.map(|tag| redactor.text(tag));
        let tags = without_repeats(run_tag(redactor, run).into_iter().chain(shared));
        return Ok(Some(DerivedEntry { content, tags, expires_at: plan.expires_at, hidden }));
    }
    Err(not_redacted("derived text is too long once its secrets are hidden"))
}

/// The tag that names the compaction. It is left out where a secret of the tenant
/// looks like it: then it would name nothing.
fn run_tag(redactor: &Redactor, run: &str) -> Option<RedactedText> {
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
    entry.tags.iter().any(|tag| tag.as_str() == compaction::COMMITMENT_TAG)
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
    fn intentions_are_known_by_their_tag() {
        assert_eq!(crate::commitments::COMMITMENT_TAG, compaction::COMMITMENT_TAG);
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
            let limits = Limits { max_input_entries: 9, max_output_bytes };
            let made = draft(&redactor, &records, limits, "0a", 64).unwrap().unwrap();
            assert!(!made.content.as_str().contains("Alcobaca"));
            assert!(made.content.as_str().len() <= max_output_bytes);
        }
    }
}
