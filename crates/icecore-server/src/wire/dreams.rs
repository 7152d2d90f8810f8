//! Dreams and their archives.

use std::collections::BTreeSet;

use icecore::dreams::dream::Line;
use icecore::dreams::{ArchiveRecord, Distillate, Dream, DreamPreview, DreamRecord};
use serde::Serialize;
use utoipa::ToSchema;

/// A dream that stands, or what would come of one.
#[derive(ToSchema)]
#[schema(as = DreamOutcome)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes what `POST /dreams` answers")]
pub(crate) enum DreamOutcome {
    /// One that stands.
    Stands(DreamRow),
    /// What would come of one.
    Would(Previewed),
}

/// Dreams, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Dreams {
    dreams: Vec<DreamRow>,
}

impl Dreams {
    /// These.
    pub fn of(dreams: &[DreamRecord]) -> Self {
        Self { dreams: dreams.iter().map(DreamRow::from).collect() }
    }
}

/// A dream as it is kept.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Dream)]
pub struct DreamRow {
    /// The run that it is.
    run_id: String,
    memory_ref: String,
    /// Tokens that it might read and write together.
    token_budget: u64,
    /// Tokens that it did read and write.
    tokens_used: u64,
    /// Those of what it read.
    input_tokens: u64,
    /// Those of what it wrote.
    output_tokens: u64,
    /// The smallest budget that would not have been refused.
    minimum_required: u64,
    /// Sources that it read.
    source_count: u64,
    /// Sources that stayed due.
    remaining: u64,
    /// The entry that it wrote.
    output_id: String,
    /// The address of its archive.
    archive_checksum: String,
    /// Whether it changed `MEMORY-INDEX.json`.
    index_updated: bool,
    /// Whether nothing was due when it was asked for, so that it stands and nothing was
    /// written.
    unchanged: bool,
    /// Which of the memory's dreams it is, from 1.
    number: u64,
    /// `in-force`, `superseded`, `undone` or `erased`.
    state: &'static str,
    /// `manual`, `scheduled`, or `anew` where something that an earlier one had read
    /// was forgotten.
    trigger: &'static str,
    /// What made the distillate.
    distiller: String,
    /// The dream that it was made on top of.
    #[serde(skip_serializing_if = "Option::is_none")]
    previous_run_id: Option<String>,
    /// Lines of the distillate.
    lines: u64,
    /// Bytes of the sources that it stands for.
    bytes_before: u64,
    /// Bytes of what stands for them.
    bytes_after: u64,
    #[schema(format = DateTime)]
    created_at: String,
}

impl From<&DreamRecord> for DreamRow {
    fn from(dream: &DreamRecord) -> Self {
        let figures = dream.figures;
        Self {
            run_id: dream.run.clone(),
            memory_ref: dream.scope.memory().to_owned(),
            token_budget: figures.budget,
            tokens_used: figures.input_tokens + figures.output_tokens,
            input_tokens: figures.input_tokens,
            output_tokens: figures.output_tokens,
            minimum_required: figures.minimum,
            source_count: figures.source_count,
            remaining: figures.remaining,
            output_id: dream.output.clone(),
            archive_checksum: dream.archive.to_string(),
            index_updated: dream.index_updated,
            unchanged: false,
            number: dream.number,
            state: dream.state.as_str(),
            trigger: dream.trigger.as_str(),
            distiller: dream.distiller.clone(),
            previous_run_id: dream.previous.clone(),
            lines: figures.lines,
            bytes_before: figures.bytes_before,
            bytes_after: figures.bytes_after,
            created_at: dream.created_at.to_rfc3339(),
        }
    }
}

impl From<&Dream> for DreamRow {
    fn from(dream: &Dream) -> Self {
        Self { unchanged: dream.unchanged, ..Self::from(&dream.record) }
    }
}

/// What would come of a dream. Nothing was written.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DreamPreview)]
pub struct Previewed {
    memory_ref: String,
    /// Always true.
    dry_run: bool,
    /// Whether nothing is due, so that this is what the last dream came to.
    unchanged: bool,
    token_budget: u64,
    tokens_used: u64,
    input_tokens: u64,
    output_tokens: u64,
    /// The smallest budget that would not be refused.
    minimum_required: u64,
    source_count: u64,
    remaining: u64,
    /// The address that the archive would have.
    archive_checksum: String,
    /// What made the distillate.
    distiller: String,
    /// The distillate, for people.
    text: String,
    /// The same, line by line.
    sections: Vec<DistilledSection>,
    /// Lines that the last dream did not have.
    added: Vec<String>,
    /// Lines that only the last dream had.
    removed: Vec<String>,
}

impl Previewed {
    /// What would come of a dream of a memory.
    pub fn of(memory: &str, preview: &DreamPreview) -> Self {
        let (after, before) = (&preview.archive.distillate, preview.before.as_ref());
        let (added, removed) = difference(before, after);
        Self {
            memory_ref: memory.to_owned(),
            dry_run: true,
            unchanged: preview.unchanged,
            token_budget: preview.budget,
            tokens_used: preview.input_tokens + preview.output_tokens,
            input_tokens: preview.input_tokens,
            output_tokens: preview.output_tokens,
            minimum_required: preview.minimum,
            source_count: preview.source_count,
            remaining: preview.remaining,
            archive_checksum: preview.checksum.to_string(),
            distiller: preview.archive.distiller.clone(),
            text: after.text(),
            sections: sections(after),
            added,
            removed,
        }
    }

    /// Lines that the last dream did not have, and lines that only it had.
    pub fn difference(&self) -> (&[String], &[String]) {
        (&self.added, &self.removed)
    }
}

/// The lines of two distillates that the other does not have, in order.
fn difference(before: Option<&Distillate>, after: &Distillate) -> (Vec<String>, Vec<String>) {
    let lines = |of: &Distillate| of.lines.iter().map(said).collect::<Vec<_>>();
    let (before, after) = (before.map(lines).unwrap_or_default(), lines(after));
    let less = |these: &[String], others: &[String]| {
        let others: BTreeSet<&String> = others.iter().collect();
        these.iter().filter(|line| !others.contains(line)).cloned().collect()
    };
    (less(&after, &before), less(&before, &after))
}

/// What a line says, with what it overtook.
fn said(line: &Line) -> String {
    match &line.before {
        None => line.text.clone(),
        Some(before) => format!("{} (before: {before})", line.text),
    }
}

fn sections(distillate: &Distillate) -> Vec<DistilledSection> {
    let mut sections: Vec<DistilledSection> = Vec::new();
    for line in &distillate.lines {
        let section = line.section.as_str();
        if sections.last().is_none_or(|last| last.section != section) {
            let heading = line.section.heading();
            sections.push(DistilledSection { section, heading, lines: Vec::new() });
        }
        if let Some(last) = sections.last_mut() {
            last.lines.push(DistilledLine {
                text: line.text.clone(),
                at: line.at.map(|at| at.to_rfc3339()),
                before: line.before.clone(),
                sources: line.sources.clone(),
            });
        }
    }
    sections
}

/// A part of a distillate.
#[derive(Debug, Serialize, ToSchema)]
struct DistilledSection {
    /// `now`, `decisions`, `preferences`, `people`, `threads` or `timeline`.
    section: &'static str,
    /// For people.
    heading: &'static str,
    lines: Vec<DistilledLine>,
}

/// A line of a distillate.
#[derive(Debug, Serialize, ToSchema)]
struct DistilledLine {
    text: String,
    /// When, by the messages' own time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    at: Option<String>,
    /// What was true before.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    /// Its sources, by their places in the archive's list.
    sources: Vec<u32>,
}

/// Archives that can be read, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Archives {
    archives: Vec<ArchiveRow>,
}

impl Archives {
    /// Those of them that can be read.
    pub fn of(archives: &[ArchiveRecord]) -> Self {
        let readable = archives.iter().filter(|archive| archive.key.is_some());
        Self { archives: readable.map(ArchiveRow::from).collect() }
    }
}

/// A sealed archive.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Archive)]
struct ArchiveRow {
    /// SHA-256 of its bytes, in hex.
    checksum: String,
    /// The last dream that came to it.
    run_id: String,
    memory_ref: String,
    #[schema(format = DateTime)]
    created_at: String,
    bytes: u64,
}

impl From<&ArchiveRecord> for ArchiveRow {
    fn from(archive: &ArchiveRecord) -> Self {
        Self {
            checksum: archive.checksum.to_string(),
            run_id: archive.run.clone(),
            memory_ref: archive.scope.memory().to_owned(),
            created_at: archive.created_at.to_rfc3339(),
            bytes: archive.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use icecore::dreams::dream::Section;

    use super::*;

    fn distillate(lines: &[(Section, &str)]) -> Distillate {
        let line = |(section, text): &(Section, &str)| Line {
            section: *section,
            text: (*text).to_owned(),
            at: None,
            before: None,
            sources: vec![0],
        };
        Distillate { lines: lines.iter().map(line).collect() }
    }

    #[test]
    fn a_difference_has_what_the_other_lacks() {
        let before = distillate(&[(Section::Now, "a"), (Section::Now, "b")]);
        let mut after = distillate(&[(Section::Now, "b"), (Section::People, "c")]);
        let (added, removed) = difference(Some(&before), &after);
        assert_eq!((added, removed), (vec!["c".to_owned()], vec!["a".to_owned()]));
        assert_eq!(difference(None, &after).0, ["b", "c"]);
        after.lines[0].before = Some("a".to_owned());
        assert_eq!(difference(Some(&before), &after).0, ["b (before: a)", "c"]);
        let shown: Vec<usize> = sections(&after).iter().map(|part| part.lines.len()).collect();
        assert_eq!(shown, [1, 1]);
    }
}
