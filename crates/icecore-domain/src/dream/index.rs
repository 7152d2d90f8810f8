//! `MEMORY-INDEX.json`: where the distilled memory of a tenant is, a section for each
//! of its memories. It holds no content beyond topics.

#[cfg(test)]
mod index_tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::{Checksum, Distillate, Section};
use crate::summary;
use crate::text::own_terms;
use crate::time::Millis;

/// What the index calls its format.
pub const INDEX_FORMAT: &str = "icecore-memory-index/1";

/// The path of the readable form, if there is one.
pub const INDEX_MARKDOWN_PATH: &str = "MEMORY-INDEX.md";

/// Topics of one memory.
pub const MAX_TOPICS: usize = 32;
/// Lines that a topic leads to.
const MAX_TOPIC_LINES: usize = 16;
/// Archives of one memory that are named.
pub const MAX_ARCHIVES: usize = 16;
/// Lines whose words are looked through for topics at once.
const LINES_A_LOOK: usize = 24;

/// Where it is, in the workspace of the tenant.
pub const INDEX_PATH: &str = "MEMORY-INDEX.json";

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryIndex {
    /// By the name of the memory.
    pub memories: Vec<MemorySection>,
}

/// The section of one memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemorySection {
    pub memory: String,
    /// The entry that holds the newest distillate, or its head.
    pub output: String,
    /// Its archives in force, newest first: the first answers.
    pub archives: Vec<IndexedArchive>,
    /// What the first of them is about.
    pub topics: Vec<Topic>,
}

/// An archive as the index names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedArchive {
    pub checksum: Checksum,
    /// How many sources it was made of.
    pub sources: u64,
    pub lines: u64,
    /// How many tokens its distillate has.
    pub tokens: u64,
    /// The earliest and the latest time of its lines.
    pub between: Option<(Millis, Millis)>,
}

/// A keyphrase, and the lines of the archive it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    pub name: String,
    pub lines: Vec<u32>,
}

impl MemoryIndex {
    /// Reads the file; one that is not ours counts as empty.
    pub fn parse(text: &str) -> Self {
        Self::read(text).unwrap_or_default()
    }

    /// Reads the file, if it is ours, whole and unchanged.
    pub fn read(text: &str) -> Option<Self> {
        let file: File = serde_json::from_str(text).ok()?;
        let checksum = file.checksum.clone()?;
        let file = File { checksum: None, ..file };
        if file.format != INDEX_FORMAT || checksum != Checksum::of(&canonical(&file)).to_string() {
            return None;
        }
        let section = |(memory, section): (String, SectionJson)| section.read(memory);
        let memories = file.memories.into_iter().map(section).collect::<Option<_>>()?;
        Some(Self { memories })
    }

    /// Puts a section in the place of the memory's, or takes it out.
    pub fn set(&mut self, memory: &str, section: Option<MemorySection>) {
        self.memories.retain(|known| known.memory != memory);
        if let Some(section) = section {
            let at = self.memories.partition_point(|known| known.memory.as_str() < memory);
            self.memories.insert(at, MemorySection { memory: memory.to_owned(), ..section });
        }
    }

    /// The file, in at most so many bytes: topics go first, then older archives, then
    /// whole sections, the last by name first.
    pub fn to_text(&self, max_bytes: usize) -> String {
        let fits = |file: &File| Some(file.to_text()).filter(|text| text.len() <= max_bytes);
        let mut file = File::of(self);
        if let Some(text) = fits(&file) {
            return text;
        }
        let topics = |most| move |section: &mut SectionJson| section.topics.truncate(most);
        let archives = |most| move |section: &mut SectionJson| section.archives.truncate(most);
        for most in [16, 8, 4, 2, 1, 0] {
            file.memories.values_mut().for_each(topics(most));
            if let Some(text) = fits(&file) {
                return text;
            }
        }
        for most in [8, 4, 2, 1] {
            file.memories.values_mut().for_each(archives(most));
            if let Some(text) = fits(&file) {
                return text;
            }
        }
        file.cut_to(max_bytes);
        // So little room that nothing can be said in it.
        fits(&file).unwrap_or_default()
    }

    /// The file for people, in at most so many bytes: whole sections, the last by name
    /// left out first.
    pub fn to_markdown(&self, max_bytes: usize) -> String {
        let mut text = String::from("# Memory index\n");
        for section in &self.memories {
            let told = section.to_markdown();
            if text.len() + told.len() > max_bytes {
                break;
            }
            text.push_str(&told);
        }
        if text.len() <= max_bytes { text } else { String::new() }
    }
}

impl MemorySection {
    /// It alone, as it stands in the file.
    pub fn to_json(&self) -> String {
        let json = canonical(&SectionJson::of(self));
        String::from_utf8(json).unwrap_or_default()
    }

    /// Reads what [`MemorySection::to_json`] gave.
    pub fn from_json(memory: &str, text: &str) -> Option<Self> {
        serde_json::from_str::<SectionJson>(text).ok()?.read(memory.to_owned())
    }

    fn to_markdown(&self) -> String {
        let mut text = format!("\n## {}\n\n", self.memory.replace(['\n', '\r'], " "));
        for archive in &self.archives {
            let IndexedArchive { checksum, sources, lines, tokens, between } = archive;
            let _ = write!(
                text,
                "- archive `{checksum}`: {lines} lines of {sources} sources, {tokens} tokens"
            );
            if let Some((from, through)) = between {
                let _ = write!(text, ", {} to {}", from.to_date(), through.to_date());
            }
            text.push('\n');
        }
        let topics: Vec<&str> = self.topics.iter().map(|topic| topic.name.as_str()).collect();
        if !topics.is_empty() {
            let _ = writeln!(text, "- topics: {}", topics.join(", "));
        }
        text
    }
}

/// The index as JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    memories: BTreeMap<String, SectionJson>,
    /// SHA-256 of the canonical JSON of the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checksum: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SectionJson {
    output: String,
    archives: Vec<ArchiveJson>,
    topics: Vec<TopicJson>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArchiveJson {
    checksum: String,
    sources: u64,
    lines: u64,
    tokens: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    through: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopicJson {
    topic: String,
    lines: Vec<u32>,
}

impl File {
    fn of(index: &MemoryIndex) -> Self {
        let section = |section: &MemorySection| (section.memory.clone(), SectionJson::of(section));
        Self {
            format: INDEX_FORMAT.to_owned(),
            memories: index.memories.iter().map(section).collect(),
            checksum: None,
        }
    }

    fn to_text(&self) -> String {
        let rest = canonical(self);
        let checksum = Checksum::of(&rest);
        // `checksum` sorts before the other two.
        let rest = String::from_utf8(rest).unwrap_or_default();
        format!("{{\"checksum\":\"{checksum}\",{}", rest.get(1..).unwrap_or("}"))
    }

    /// Leaves out sections, the last first, until the rest fits, or none is left.
    fn cut_to(&mut self, max_bytes: usize) {
        let mut over = self.to_text().len().saturating_sub(max_bytes);
        while over > 0
            && let Some((memory, section)) = self.memories.pop_last()
        {
            // With its name in quotes and a colon; the comma is not counted, so that
            // never too little goes.
            let name = crate::json::quote(&memory).len();
            over = over.saturating_sub(name + 1 + canonical(&section).len());
            if over == 0 {
                over = self.to_text().len().saturating_sub(max_bytes);
            }
        }
    }
}

impl SectionJson {
    fn of(section: &MemorySection) -> Self {
        let archive = |archive: &IndexedArchive| ArchiveJson {
            checksum: archive.checksum.to_string(),
            sources: archive.sources,
            lines: archive.lines,
            tokens: archive.tokens,
            from: archive.between.map(|(from, _)| from.to_rfc3339()),
            through: archive.between.map(|(_, through)| through.to_rfc3339()),
        };
        let topic =
            |topic: &Topic| TopicJson { topic: topic.name.clone(), lines: topic.lines.clone() };
        Self {
            output: section.output.clone(),
            archives: section.archives.iter().map(archive).collect(),
            topics: section.topics.iter().map(topic).collect(),
        }
    }

    fn read(self, memory: String) -> Option<MemorySection> {
        let archive = |archive: ArchiveJson| {
            let time = |text: Option<String>| match text {
                Some(text) => Millis::parse_rfc3339(&text).ok().map(Some),
                None => Some(None),
            };
            Some(IndexedArchive {
                checksum: Checksum::parse(&archive.checksum)?,
                sources: archive.sources,
                lines: archive.lines,
                tokens: archive.tokens,
                between: time(archive.from)?.zip(time(archive.through)?),
            })
        };
        let topic = |topic: TopicJson| Topic { name: topic.topic, lines: topic.lines };
        Some(MemorySection {
            memory,
            output: self.output,
            archives: self.archives.into_iter().map(archive).collect::<Option<_>>()?,
            topics: self.topics.into_iter().map(topic).collect(),
        })
    }
}

fn canonical(value: &impl Serialize) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(value).expect("strings and whole numbers are JSON")
}

/// What a distillate is about: keyphrases of its lines, each with the lines that hold
/// its words. The places of lines count by section, as in an archive.
pub fn topics(distillate: &Distillate) -> Vec<Topic> {
    let in_order = Section::ALL
        .iter()
        .flat_map(|section| distillate.lines.iter().filter(|l| l.section == *section));
    let lines: Vec<&str> = in_order.map(|line| line.text.as_str()).collect();
    let looks: Vec<Vec<String>> =
        lines.chunks(LINES_A_LOOK).map(summary::themes_of_lines).collect();
    let terms: Vec<Vec<u64>> = lines.iter().map(|line| own_terms(line)).collect();
    let mut topics: Vec<(Vec<u64>, Topic)> = Vec::new();
    // The best of every look, then the second best, so that each part has its say.
    for rank in 0..summary::MAX_THEMES {
        for name in looks.iter().filter_map(|themes| themes.get(rank)) {
            let words = own_terms(name);
            let is_known = topics.iter().any(|(known, _)| words.iter().all(|w| known.contains(w)));
            if topics.len() >= MAX_TOPICS || words.is_empty() || is_known {
                continue;
            }
            let holds =
                |at: &usize| words.iter().all(|word| terms[*at].binary_search(word).is_ok());
            let found = (0..lines.len()).filter(holds).take(MAX_TOPIC_LINES);
            let found: Vec<u32> = found.filter_map(|at| u32::try_from(at).ok()).collect();
            if !found.is_empty() {
                topics.push((words, Topic { name: name.clone(), lines: found }));
            }
        }
    }
    topics.into_iter().map(|(_, topic)| topic).collect()
}
