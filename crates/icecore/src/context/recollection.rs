//! What the last dream of a memory came to, for a context: lines of the archive that the
//! index names.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use icecore_domain::dream::{Archive, Line, Section};
use icecore_domain::ids::Scope;
use icecore_domain::time::Millis;
use icecore_domain::window::{Candidate, WindowKind};
use icecore_store::ArchiveRecord;

use crate::context::Contexts;
use crate::error::{MemoryError, Result, off_thread};

/// Lines that are offered at most.
const MAX_LINES: usize = 256;

/// What is offered, and what a person should know about it.
#[derive(Default)]
pub(crate) struct Recollection {
    /// Whether there is anything distilled, be it to the point or not.
    pub(crate) is_there: bool,
    pub(crate) lines: Vec<Candidate>,
    pub(crate) notice: Option<String>,
}

impl Contexts {
    /// Lines of the memory's distillate, best first: those that answer the query, or
    /// without one instructions and what is true now before the rest. They come from the
    /// archive that the index names first, and from nowhere else.
    pub(crate) async fn recollection(
        &self,
        scope: &Scope,
        query: Option<&str>,
    ) -> Result<Recollection> {
        if self.settings.dreams.context_percent == 0 {
            return Ok(Recollection::default());
        }
        let Some(section) = self.index_section(scope).await? else {
            return Ok(Recollection::default());
        };
        let Some(named) = section.archives.first() else { return Ok(Recollection::default()) };
        let found = self.find_archive(scope.tenant(), Some(scope.memory()), named.checksum).await;
        let (record, archive) = match found {
            Ok(found) => found,
            // It costs its own lines, and nothing else.
            Err(
                error @ (MemoryError::NoArchive { .. }
                | MemoryError::ArchiveGone { .. }
                | MemoryError::ArchiveDamaged { .. }
                | MemoryError::ArchiveTells { .. }),
            ) => {
                let notice = format!("what was distilled is left out: {error}");
                return Ok(Recollection { notice: Some(notice), ..Recollection::default() });
            }
            Err(error) => return Err(error),
        };
        let dream = self.store.dream(scope.tenant(), &record.run).await?;
        let ids = dream.map(|dream| source_ids(dream.source_ids.as_str())).unwrap_or_default();
        let query = query.map(str::to_owned);
        let lines = off_thread(move || {
            let order = match &query {
                Some(query) => answering(&archive, query),
                None => (0..archive.distillate.lines.len()).map(|at| (at, 0.0)).collect(),
            };
            offered(&record, &archive, order, &ids, query.is_some())
        })
        .await?;
        Ok(Recollection { is_there: true, lines, notice: None })
    }
}

/// The ids of an archive's sources, in the order of its list.
fn source_ids(json: &str) -> Vec<String> {
    let Ok(serde_json::Value::Array(ids)) = serde_json::from_str(json) else { return Vec::new() };
    let text = |id: serde_json::Value| match id {
        serde_json::Value::String(id) => id,
        other => other.get("id").and_then(|id| id.as_str()).unwrap_or_default().to_owned(),
    };
    ids.into_iter().map(text).collect()
}

fn offered(
    record: &ArchiveRecord,
    archive: &Arc<Archive>,
    mut order: Vec<(usize, f64)>,
    ids: &[String],
    is_asked: bool,
) -> Vec<Candidate> {
    let lines = &archive.distillate.lines;
    if !is_asked {
        // Of each section the newest first.
        order.sort_by_key(|(at, _)| (rank(lines[*at].section), Reverse(lines[*at].at), *at));
    }
    order.truncate(MAX_LINES);
    let reason = match is_asked {
        true => "distilled, and answers",
        false => "distilled from all that was said before",
    };
    order
        .into_iter()
        .map(|(at, score)| candidate(record, archive, at, score, ids, reason))
        .collect()
}

fn candidate(
    record: &ArchiveRecord,
    archive: &Archive,
    at: usize,
    score: f64,
    ids: &[String],
    reason: &str,
) -> Candidate {
    let line = &archive.distillate.lines[at];
    let id = |place: &u32| match ids.get(*place as usize).filter(|id| !id.is_empty()) {
        Some(id) => Some(id.clone()),
        // An id that is not known any more: the source's own hash.
        None => archive.sources.get(*place as usize).map(|source| hex::encode(source.hash)),
    };
    Candidate {
        kind: WindowKind::Distillate,
        id: format!("{}#{}", record.checksum, at + 1),
        tier: "cold",
        role: None,
        label: label(line.section).to_owned(),
        text: told(line),
        focus: 0,
        known_tokens: 0,
        at: line.at.unwrap_or(Millis(record.created_at.0)),
        group: u64::MAX,
        span: (at as u64, at as u64),
        sources: line.sources.iter().filter_map(id).collect(),
        score,
        reason: reason.to_owned(),
    }
}

fn told(line: &Line) -> String {
    match &line.before {
        Some(before) => format!("{} (before: {before})", line.text),
        None => line.text.clone(),
    }
}

/// What a line begins with in a window.
fn label(section: Section) -> &'static str {
    match section {
        Section::Now | Section::People => "Known",
        Section::Decisions => "Decided",
        Section::Preferences => "Wanted",
        Section::Threads => "Open",
        Section::Timeline => "Happened",
    }
}

/// Which lines come first where nothing is asked.
fn rank(section: Section) -> u8 {
    match section {
        Section::Preferences => 0,
        Section::Now => 1,
        Section::Decisions => 2,
        Section::Threads => 3,
        Section::People => 4,
        Section::Timeline => 5,
    }
}

/// The lines that share words with a query, best first: rare words count more, and long
/// lines less.
fn answering(archive: &Archive, query: &str) -> Vec<(usize, f64)> {
    let wanted = words(query);
    let lines: Vec<BTreeSet<String>> =
        archive.distillate.lines.iter().map(|line| words(&told(line))).collect();
    let mut in_lines: BTreeMap<&str, usize> = BTreeMap::new();
    for word in lines.iter().flatten().filter(|word| wanted.contains(*word)) {
        *in_lines.entry(word).or_default() += 1;
    }
    let weight = |word: &str| {
        let count = in_lines.get(word).copied().unwrap_or(0) as f64;
        ((lines.len() as f64 + 1.0) / (count + 0.5)).ln()
    };
    let score = |line: &BTreeSet<String>| {
        let shared: f64 = line.intersection(&wanted).map(|word| weight(word)).sum();
        shared / (1.0 + line.len() as f64).ln()
    };
    let scored = lines.iter().enumerate().map(|(at, line)| (at, score(line)));
    let mut order: Vec<(usize, f64)> = scored.filter(|(_, score)| *score > 0.0).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    order
}

/// Words as they are looked up, without those that carry nothing.
fn words(text: &str) -> BTreeSet<String> {
    icecore_index::analysis::terms(text).into_iter().collect()
}
