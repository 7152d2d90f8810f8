//! Consolidation of long-term entries: what was said twice is said once, and what was
//! overtaken gives way. A second pass over the same entries changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use icecore_domain::entries::consolidate::model::{self, NearPair, Verdict};
use icecore_domain::entries::consolidate::{self, ConsolidationPlan, Stands};
use icecore_domain::ids::{Position, Scope};
use icecore_domain::redact::Redactor;
use icecore_domain::time::Millis;
use icecore_store::{
    Derivation, DerivationKind, DerivedEntry, EntryFilter, EntryPlace, EntryRecord, Replaced,
    StoreError, Successor,
};
use serde_json::json;
use tokio::sync::OwnedMutexGuard;

use crate::base::Purpose;
use crate::error::{MemoryError, Result, off_thread};
use crate::knowledge::Knowledge;
use crate::knowledge::compaction::{
    Clean, ENTRIES_A_READ, MAX_READ_BYTES, MAX_TOLD_IDS, looked_at,
};
use crate::knowledge::entries::without_repeats;
use crate::models::{About, MAX_JUDGED_PAIRS, Pair};
use crate::privacy::secrets::{TenantRedactor, swapped};

/// Entries that one consolidation looks at, those twice that it looks at twice. Of a
/// memory that has more the next one goes on from there.
pub const MAX_CONSOLIDATED_ENTRIES: usize = 200_000;

/// Entries that are compared with one another: so many that come one after the other.
/// Half of them are compared with those that come next as well.
pub const CONSOLIDATION_WINDOW: usize = 20_000;

/// Pairs of near entries that are looked at of those that are compared at once.
const MAX_NEAR_PAIRS: usize = 1_000;

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
    /// Entries that others stand for now, the first [`MAX_TOLD_IDS`] of them.
    pub merged_ids: Vec<String>,
    /// How many there are.
    pub merged_count: usize,
    /// The entries that were written.
    pub outputs: Vec<EntryRecord>,
    /// The payload of `agent.memory.consolidated`, without content, whether or not it
    /// was logged. Of a large memory several are logged, and this sums them up.
    pub payload: String,
    /// Where in the log, the last time; nothing if all stays as it was, and nothing was
    /// logged.
    pub position: Option<Position>,
    /// Whether the whole memory was gone through and nothing is left to do. Otherwise
    /// the next consolidation goes on.
    pub is_complete: bool,
}

impl Knowledge {
    /// Says once what the entries of a memory say. Goes through it, oldest first, until
    /// nothing changes any more or [`MAX_CONSOLIDATED_ENTRIES`] were looked at; entries
    /// are compared that are within [`CONSOLIDATION_WINDOW`] of each other. Once this
    /// resolves it survives a crash; until then each step of it was done or was not.
    ///
    /// A memory is consolidated once at a time: who comes second waits.
    pub async fn consolidate(
        &self,
        scope: &Scope,
        trigger: ConsolidationTrigger,
    ) -> Result<Consolidation> {
        let bounds = Bounds {
            window: CONSOLIDATION_WINDOW,
            most: MAX_CONSOLIDATED_ENTRIES,
            judged: MAX_JUDGED_PAIRS,
        };
        self.consolidate_within(scope, trigger, bounds).await
    }

    async fn consolidate_within(
        &self,
        scope: &Scope,
        trigger: ConsolidationTrigger,
        bounds: Bounds,
    ) -> Result<Consolidation> {
        let mut pass = self.consolidating.of(scope).lock_owned().await;
        let mut sum = Sum::default();
        let mut looked_at = 0;
        let mut left = bounds.judged;
        let mut is_complete = false;
        while !is_complete && looked_at < bounds.most {
            let (window, held) =
                self.consolidate_window(scope, trigger, bounds, &mut left, pass).await?;
            pass = held;
            pass.is_changed |= window.position.is_some();
            looked_at += window.began.len();
            match window.next {
                Some(next) => pass.at = Some(next),
                None => {
                    is_complete = !pass.is_changed;
                    *pass = Pass::default();
                }
            }
            sum.add(window);
        }
        Ok(sum.told(scope, trigger, is_complete))
    }

    /// Consolidates the next entries of a pass. The pass is held even while a plan is
    /// made whose caller has left, so that plans do not pile up.
    async fn consolidate_window(
        &self,
        scope: &Scope,
        trigger: ConsolidationTrigger,
        bounds: Bounds,
        left: &mut usize,
        pass: Held,
    ) -> Result<(Window, Held)> {
        let mut held = Some(pass);
        let window = swapped!(async {
            let Some(mut pass) = held.take() else { return Ok(None) };
            let now = self.now();
            let TenantRedactor { redactor, version } = self.deriving_redactor(scope).await?;
            let epoch = match self.has_consolidation_models() {
                true => self.store.scope_head(scope).await?.epoch,
                false => 0,
            };
            let (entries, next) = self.window(scope, pass.at, bounds.window, now).await?;
            let max_bytes = self.entry_settings().bytes;
            let began: Vec<Position> = entries.iter().map(|entry| entry.began).collect();
            let entries = Arc::new(entries);
            let judged;
            (judged, pass) =
                self.judged(scope, epoch, (&redactor, version), &entries, left, pass).await?;
            let drafted;
            (drafted, pass) =
                off_thread(move || (draft(&redactor, &entries, &judged, max_bytes), pass)).await?;
            let (outputs, replaced) = drafted?;
            let merged_ids: Vec<String> = replaced.iter().map(|one| one.id.clone()).collect();
            let mut window =
                Window { began, next, merged_ids, outputs: Vec::new(), position: None };
            if replaced.is_empty() {
                return Ok(Some((window, pass)));
            }
            let input_count = window.began.len();
            let output_count = input_count - window.merged_ids.len() + outputs.len();
            let payload = payload(scope, trigger, (input_count, output_count), &window.merged_ids);
            let derivation = Derivation {
                outputs,
                replaced,
                kind: DerivationKind::Consolidated,
                payload: Arc::new(move |_| payload.clone()),
                now,
                secrets_seen: version,
            };
            let derived = match self.store.derive_entries(scope, derivation).await {
                Ok(Some(derived)) => derived,
                // A secret was registered, or an entry has gone: all is read again.
                Err(StoreError::SecretsChanged) | Ok(None) => {
                    held = Some(pass);
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            };
            tracing::info!(
                target: "openwop.agent.memory.consolidated",
                %scope,
                input_count,
                output_count,
                position = derived.position.0,
                trigger = trigger.as_str(),
                "entries were consolidated"
            );
            self.wake.notify_one();
            window.outputs = derived.outputs;
            window.position = Some(derived.position);
            Ok(Some((window, pass)))
        });
        window?.ok_or(MemoryError::EntriesChanged)
    }

    /// What models say of entries that are near and that the rules leave as they are.
    async fn judged(
        &self,
        scope: &Scope,
        epoch: u64,
        (redactor, version): (&Redactor, u64),
        entries: &Arc<Vec<EntryRecord>>,
        left: &mut usize,
        pass: Held,
    ) -> Result<(Vec<(NearPair, Verdict)>, Held)> {
        if !self.has_consolidation_models() {
            return Ok((Vec::new(), pass));
        }
        let (by, read, max_bytes) =
            (redactor.clone(), Arc::clone(entries), self.entry_settings().bytes);
        let (near, pass) = off_thread(move || (near(&by, &read, max_bytes), pass)).await?;
        let (places, mut pairs): (Vec<NearPair>, Vec<Pair>) = near.into_iter().unzip();
        let about = About { scope, session: None, epoch, purpose: Purpose::Consolidation };
        self.judge_pairs(about, (redactor, version), &mut pairs, left).await?;
        let told = places.into_iter().zip(pairs);
        Ok((told.filter_map(|(place, pair)| Some((place, pair.verdict?))).collect(), pass))
    }

    /// The next entries, up to `most`, oldest first, and after which of them the window
    /// behind them begins; nothing, if these are the last.
    async fn window(
        &self,
        scope: &Scope,
        after: Option<EntryPlace>,
        most: usize,
        now: Millis,
    ) -> Result<(Vec<EntryRecord>, Option<EntryPlace>)> {
        let (store, filter) = (&self.store, EntryFilter::default());
        let places = store.oldest_places(scope, after, now, most).await?;
        let mut entries: Vec<EntryRecord> = Vec::with_capacity(places.len());
        let (mut bytes, mut read) = (0, 0);
        for places in places.chunks(ENTRIES_A_READ) {
            if bytes > MAX_READ_BYTES {
                break;
            }
            let began: Vec<Position> = places.iter().map(|place| place.began).collect();
            let found = store.entries_at(scope, &began, &filter, now).await?;
            bytes += found.iter().map(|entry| entry.content.as_str().len()).sum::<usize>();
            read += places.len();
            entries.extend(found);
        }
        let is_last = read == places.len() && places.len() < most;
        let middle = (read / 2).max(1) - 1;
        Ok((entries, places.get(middle).copied().filter(|_| !is_last)))
    }
}

/// How much is done at once.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    window: usize,
    most: usize,
    /// Pairs that models are asked about.
    judged: usize,
}

/// How far a memory has been gone through.
#[derive(Debug, Default)]
struct Pass {
    /// What comes after is next; without, it begins.
    at: Option<EntryPlace>,
    /// Whether anything was changed.
    is_changed: bool,
}

type Held = OwnedMutexGuard<Pass>;

/// The passes that are being made or have not come to their end.
#[derive(Default)]
pub(crate) struct Consolidating(Mutex<BTreeMap<Scope, Arc<tokio::sync::Mutex<Pass>>>>);

impl Consolidating {
    fn of(&self, scope: &Scope) -> Arc<tokio::sync::Mutex<Pass>> {
        let mut passes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        passes.retain(|_, pass| {
            let has_begun = pass.try_lock().map_or(true, |pass| pass.at.is_some());
            Arc::strong_count(pass) > 1 || has_begun
        });
        Arc::clone(passes.entry(scope.clone()).or_default())
    }
}

/// What became of some entries that come one after the other.
struct Window {
    /// Where they began.
    began: Vec<Position>,
    /// After which of them the next window begins, if there is one.
    next: Option<EntryPlace>,
    merged_ids: Vec<String>,
    outputs: Vec<EntryRecord>,
    position: Option<Position>,
}

/// What became of all windows.
#[derive(Default)]
struct Sum {
    inputs: BTreeSet<Position>,
    written: BTreeSet<Position>,
    merged_ids: Vec<String>,
    outputs: Vec<EntryRecord>,
    position: Option<Position>,
}

impl Sum {
    fn add(&mut self, window: Window) {
        let new = window.began.into_iter().filter(|began| !self.written.contains(began));
        self.inputs.extend(new);
        // What was written here and replaced here never was.
        let replaced: BTreeSet<&String> = window.merged_ids.iter().collect();
        let brief: BTreeSet<String> = self
            .outputs
            .extract_if(.., |output| replaced.contains(&output.id))
            .map(|output| output.id)
            .collect();
        self.merged_ids.extend(window.merged_ids.into_iter().filter(|id| !brief.contains(id)));
        self.written.extend(window.outputs.iter().map(|output| output.began));
        self.outputs.extend(window.outputs);
        self.position = window.position.or(self.position);
    }

    fn told(
        mut self,
        scope: &Scope,
        trigger: ConsolidationTrigger,
        is_complete: bool,
    ) -> Consolidation {
        let (input_count, merged_count) = (self.inputs.len(), self.merged_ids.len());
        let output_count = input_count - merged_count + self.outputs.len();
        let payload = payload(scope, trigger, (input_count, output_count), &self.merged_ids);
        self.merged_ids.truncate(MAX_TOLD_IDS);
        Consolidation {
            input_count,
            output_count,
            merged_ids: self.merged_ids,
            merged_count,
            outputs: self.outputs,
            payload: payload.to_string(),
            position: self.position,
            is_complete,
        }
    }
}

fn payload(
    scope: &Scope,
    trigger: ConsolidationTrigger,
    (input_count, output_count): (usize, usize),
    merged_ids: &[String],
) -> serde_json::Value {
    json!({
        "memoryRef": scope.memory(),
        "inputCount": input_count,
        "outputCount": output_count,
        "mergedCount": merged_ids.len(),
        "mergedIds": merged_ids[..merged_ids.len().min(MAX_TOLD_IDS)],
        "trigger": trigger.as_str(),
    })
}

/// Entries that are near and that the rules leave as they are, with what they say.
fn near(redactor: &Redactor, records: &[EntryRecord], max_bytes: usize) -> Vec<(NearPair, Pair)> {
    let clean = Clean::of(redactor, records);
    let tags = clean.tags();
    let entries = clean.entries(&tags);
    let plan = consolidate::plan(&entries, max_bytes);
    let text = |at: usize| entries[at].content.to_owned();
    let pair = |pair: NearPair| {
        let (older, newer) = (text(pair.older), text(pair.newer));
        (pair, Pair { older, newer, verdict: None })
    };
    model::near_pairs(&entries, &plan, MAX_NEAR_PAIRS).into_iter().map(pair).collect()
}

/// What to write, its secrets hidden, and what it replaces. A text that hiding them
/// makes too long is not written, and what it was to replace stays.
fn draft(
    redactor: &Redactor,
    records: &[EntryRecord],
    judged: &[(NearPair, Verdict)],
    max_bytes: usize,
) -> Result<(Vec<DerivedEntry>, Vec<Replaced>)> {
    let clean = Clean::of(redactor, records);
    let tags = clean.tags();
    let entries = clean.entries(&tags);
    let mut plan = consolidate::plan(&entries, max_bytes);
    model::carry_out(&mut plan, &entries, judged);
    let ConsolidationPlan { outputs: planned, replaced, overtaken } = plan;
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
        outputs.push(DerivedEntry {
            id: None,
            content,
            tags,
            expires_at: merged.expires_at,
            hidden,
        });
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

#[cfg(test)]
mod tests {
    use icecore_domain::ids::{Principal, Tenant};

    use super::*;
    use crate::knowledge::entries::{EntryQuery, NewEntryRequest};
    use crate::memory::Memory;

    const BY_HAND: ConsolidationTrigger = ConsolidationTrigger::OnDemand;

    async fn with(contents: impl Iterator<Item = String>) -> (Memory, Scope) {
        let memory = Memory::in_memory();
        let me = Principal::local_operator(Tenant::new("me").unwrap());
        let scope = memory.scope(&me, "m").await.unwrap();
        for content in contents {
            let request = NewEntryRequest { content, ..NewEntryRequest::default() };
            memory.put_entry(&scope, request).await.unwrap();
        }
        (memory, scope)
    }

    async fn left(memory: &Memory, scope: &Scope) -> Vec<String> {
        let found = memory.entries(scope, &EntryQuery::default()).await.unwrap().entries;
        let mut left: Vec<String> =
            found.into_iter().map(|entry| entry.content.into_string()).collect();
        left.sort();
        left
    }

    #[tokio::test]
    async fn a_memory_is_gone_through_window_by_window_until_nothing_changes() {
        let said = |n: usize| format!("Ship {} calls at Kvalsund.", n % 4);
        let (memory, scope) = with((0..40).map(said)).await;
        let bounds = Bounds { window: 8, most: 10_000, judged: 0 };
        let done = memory.consolidate_within(&scope, BY_HAND, bounds).await.unwrap();
        assert_eq!((done.input_count, done.output_count, done.merged_count), (40, 4, 36));
        assert!(done.is_complete);
        assert_eq!(left(&memory, &scope).await, (0..4).map(said).collect::<Vec<_>>());
        let again = memory.consolidate_within(&scope, BY_HAND, bounds).await.unwrap();
        assert_eq!((again.input_count, again.output_count, again.position), (4, 4, None));
    }

    #[tokio::test]
    async fn what_is_written_and_merged_again_counts_once() {
        let said = |n: usize| {
            format!(
                "Ana plans the harbour works in Porto with great care. Ship {} is in.",
                ["a", "b", "c", "d"][n % 4]
            )
        };
        let (memory, scope) = with((0..4).map(said)).await;
        let bounds = Bounds { window: 3, most: 10_000, judged: 0 };
        let done = memory.consolidate_within(&scope, BY_HAND, bounds).await.unwrap();
        let now = left(&memory, &scope).await;
        assert!(done.is_complete && now.len() < 4, "{now:?}");
        assert_eq!((done.input_count, done.output_count), (4, now.len()));
        assert_eq!(done.merged_count, 4 + done.outputs.len() - now.len());
        assert!(done.outputs.iter().all(|one| now.iter().any(|c| c == one.content.as_str())));
    }

    #[tokio::test]
    async fn the_next_call_goes_on_where_one_had_enough() {
        // Those that say the same are the last.
        let said = |n: usize| format!("Ship {} calls at Kvalsund.", n.min(38));
        let (memory, scope) = with((0..40).map(said)).await;
        let bounds = Bounds { window: 8, most: 24, judged: 0 };
        let mut calls = 0;
        loop {
            let done = memory.consolidate_within(&scope, BY_HAND, bounds).await.unwrap();
            calls += 1;
            if done.is_complete {
                break;
            }
            assert!(done.input_count <= 24 + 8 && calls < 20);
        }
        assert!(calls > 2);
        assert_eq!(left(&memory, &scope).await.len(), 39);
        assert!(memory.consolidating.0.lock().unwrap().len() <= 1);
    }

    #[tokio::test]
    async fn one_at_a_time() {
        let (memory, scope) = with((0..2).map(|_| "Plums are ripe.".to_owned())).await;
        let held = memory.consolidating.of(&scope).lock_owned().await;
        let mut second = Box::pin(memory.consolidate(&scope, BY_HAND));
        assert!(futures_now(&mut second).await.is_none(), "it waits");
        assert_eq!(left(&memory, &scope).await.len(), 2);
        drop(held);
        assert_eq!(second.await.unwrap().merged_count, 1);
    }

    /// What a future answers if it can at once.
    async fn futures_now<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::select! {
            biased;
            done = future => Some(done),
            () = std::future::ready(()) => None,
        }
    }

    #[tokio::test]
    async fn of_many_that_are_merged_some_are_named() {
        let (memory, scope) = with((0..150).map(|_| "Plums are ripe.".to_owned())).await;
        let done = memory.consolidate(&scope, BY_HAND).await.unwrap();
        assert_eq!((done.merged_ids.len(), done.merged_count), (MAX_TOLD_IDS, 149));
        let told: serde_json::Value = serde_json::from_str(&done.payload).unwrap();
        assert_eq!(told["mergedIds"], json!(done.merged_ids));
        assert_eq!(told["mergedCount"], 149);
    }
}
