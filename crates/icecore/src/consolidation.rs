//! Consolidation of long-term entries: what was said twice is said once, and what was
//! overtaken gives way. A second pass over the same entries changes nothing.

use std::sync::Arc;

use icecore_domain::consolidation::{self, ConsolidationPlan, Stands};
use icecore_domain::ids::{Position, Scope};
use icecore_domain::redact::Redactor;
use icecore_store::{
    Derivation, DerivationKind, DerivedEntry, EntryRecord, Replaced, StoreError, Successor,
};
use serde_json::json;

use crate::compaction::{Clean, MAX_TOLD_IDS, looked_at};
use crate::entries::without_repeats;
use crate::error::{MemoryError, Result, off_thread};
use crate::memory::{Memory, TRIES};
use crate::secrets::TenantRedactor;

/// Entries that one consolidation looks at, the newest.
pub const MAX_CONSOLIDATED_ENTRIES: usize = 20_000;

/// Who asked for a consolidation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsolidationTrigger {
    /// The host, when it saw fit.
    HostManaged,
    /// A schedule.
    Scheduled,
    /// A caller.
    OnDemand,
}

impl ConsolidationTrigger {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            ConsolidationTrigger::HostManaged => "host-managed",
            ConsolidationTrigger::Scheduled => "scheduled",
            ConsolidationTrigger::OnDemand => "on-demand",
        }
    }
}

/// What came of a consolidation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consolidation {
    /// Entries that were looked at.
    pub input_count: usize,
    /// Entries that are in force of them and instead of them.
    pub output_count: usize,
    /// Entries that others stand for now, oldest first.
    pub merged_ids: Vec<String>,
    /// The entries that were written.
    pub outputs: Vec<EntryRecord>,
    /// The payload of `agent.memory.consolidated`, without content, whether or not it
    /// was logged.
    pub payload: String,
    /// Where in the log; nothing if all stays as it was, and nothing was logged.
    pub position: Option<Position>,
}

impl Memory {
    /// Says once what the entries of a memory say. Once this resolves it survives a
    /// crash; until then all is as it was.
    pub async fn consolidate(
        &self,
        scope: &Scope,
        trigger: ConsolidationTrigger,
    ) -> Result<Consolidation> {
        for _ in 0..TRIES {
            match self.consolidate_once(scope, trigger).await {
                // A secret was registered, or an entry has gone: all is read again.
                Err(MemoryError::Store(StoreError::SecretsChanged)) | Ok(None) => {}
                Ok(Some(done)) => return Ok(done),
                Err(error) => return Err(error),
            }
        }
        Err(MemoryError::EntriesChanged)
    }

    async fn consolidate_once(
        &self,
        scope: &Scope,
        trigger: ConsolidationTrigger,
    ) -> Result<Option<Consolidation>> {
        let now = self.now();
        let TenantRedactor { redactor, version } = self.deriving_redactor(scope).await?;
        let places = self.places(scope, now).await?;
        let most = MAX_CONSOLIDATED_ENTRIES;
        let mut entries = self.entries_of(scope, &places, most, now, |_| true).await?;
        entries.reverse();
        let input_count = entries.len();
        let max_bytes = self.entry_settings().bytes;
        let drafted = off_thread(move || draft(&redactor, &entries, max_bytes)).await?;
        let (outputs, replaced) = drafted?;

        let merged_ids: Vec<String> = replaced.iter().map(|one| one.id.clone()).collect();
        let output_count = input_count - merged_ids.len() + outputs.len();
        let mut payload = json!({
            "memoryRef": scope.memory(),
            "inputCount": input_count,
            "outputCount": output_count,
            "trigger": trigger.as_str(),
        });
        if merged_ids.len() <= MAX_TOLD_IDS {
            payload["mergedIds"] = json!(merged_ids);
        }
        let mut done = Consolidation {
            input_count,
            output_count,
            merged_ids,
            outputs: Vec::new(),
            payload: payload.to_string(),
            position: None,
        };
        if replaced.is_empty() {
            return Ok(Some(done));
        }
        let derivation = Derivation {
            outputs,
            replaced,
            kind: DerivationKind::Consolidated,
            payload: Arc::new(move |_| payload.clone()),
            now,
            secrets_seen: version,
        };
        let Some(derived) = self.inner.store.derive_entries(scope, derivation).await? else {
            return Ok(None);
        };
        done.outputs = derived.outputs;
        done.payload = derived.payload;
        done.position = Some(derived.position);
        tracing::info!(
            target: "openwop.agent.memory.consolidated",
            %scope,
            input_count,
            output_count,
            position = derived.position.0,
            trigger = trigger.as_str(),
            "entries were consolidated"
        );
        self.inner.wake.notify_one();
        Ok(Some(done))
    }
}

/// What to write, its secrets hidden, and what it replaces. A text that hiding them
/// makes too long is not written, and what it was to replace stays.
fn draft(
    redactor: &Redactor,
    records: &[EntryRecord],
    max_bytes: usize,
) -> Result<(Vec<DerivedEntry>, Vec<Replaced>)> {
    let clean = Clean::of(redactor, records);
    let tags = clean.tags();
    let ConsolidationPlan { outputs: planned, replaced, overtaken } =
        consolidation::plan(&clean.entries(&tags), max_bytes);
    let mut outputs = Vec::with_capacity(planned.len());
    let mut places: Vec<Option<usize>> = Vec::with_capacity(planned.len());
    for merged in planned {
        let (content, hidden) = looked_at(&merged.text, |text| redactor.derived_text(text))?;
        if content.as_str().len() > max_bytes {
            places.push(None);
            continue;
        }
        places.push(Some(outputs.len()));
        let tags = without_repeats(merged.tags.iter().map(|tag| redactor.text(tag)));
        outputs.push(DerivedEntry { content, tags, expires_at: merged.expires_at, hidden });
    }
    let replaced = replaced.into_iter().filter_map(|(at, stands)| {
        let by = match stands {
            Stands::Output(place) => Successor::Output(places[place]?),
            Stands::Kept(kept) => Successor::Kept(records[kept].id.clone()),
        };
        Some(Replaced { id: records[at].id.clone(), by, is_overtaken: overtaken.contains(&at) })
    });
    Ok((outputs, replaced.collect()))
}
