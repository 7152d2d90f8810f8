//! What was found, and what was hidden that is no secret.

use std::collections::BTreeMap;
use std::path::PathBuf;

use icecore_domain::redact::Redactor;
use icecore_domain::testing::corpus::Case;

use crate::Result;
use crate::data::Dataset;

const MAX_EXAMPLES: usize = 3;
const MARKER: &str = "[REDACTED:";

/// How many of how many texts were marked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Count {
    pub marked: usize,
    pub all: usize,
}

impl Count {
    pub fn add(&mut self, is_marked: bool) {
        self.marked += usize::from(is_marked);
        self.all += 1;
    }

    pub fn share(self) -> f64 {
        self.marked as f64 / self.all.max(1) as f64
    }
}

/// Counts by some name.
pub type Counts = BTreeMap<&'static str, Count>;

/// What a scanner made of the corpus.
#[derive(Debug, Default)]
pub struct Found {
    /// Credentials that are gone.
    pub recall: Count,
    pub by_kind: Counts,
    pub by_setting: Counts,
    pub by_place: Counts,
    /// Negatives in which something was hidden.
    pub false_positives: Count,
    pub by_family: Counts,
    /// A few secrets of each kind that were seen, masked.
    pub missed: BTreeMap<&'static str, Vec<String>>,
    /// A few negatives of each family that were changed, and what they became.
    pub hidden: BTreeMap<&'static str, Vec<String>>,
}

impl Found {
    /// What the redactor makes of `cases`.
    pub fn of(redactor: &Redactor, cases: &[Case]) -> Self {
        let mut found = Self::default();
        for case in cases {
            let redacted = redactor.text(&case.text);
            let is_right = case.is_right(redacted.as_str());
            found.add(case, is_right == case.secret.is_some());
            if is_right {
                continue;
            }
            let (examples, shown) = match case.secret {
                Some(_) => (found.missed.entry(case.kind).or_default(), case.masked()),
                None => (
                    found.hidden.entry(case.kind).or_default(),
                    format!("{} -> {redacted}", case.text),
                ),
            };
            if examples.len() < MAX_EXAMPLES {
                let place = case.place.name();
                examples.push(format!("[{} {place}] {}", case.setting, shown.escape_debug()));
            }
        }
        found
    }

    /// Counts `case`, in which a secret was found or not.
    pub fn add(&mut self, case: &Case, is_marked: bool) {
        if case.secret.is_none() {
            self.false_positives.add(is_marked);
            self.by_family.entry(case.kind).or_default().add(is_marked);
            return;
        }
        self.recall.add(is_marked);
        self.by_kind.entry(case.kind).or_default().add(is_marked);
        self.by_setting.entry(case.setting).or_default().add(is_marked);
        self.by_place.entry(case.place.name()).or_default().add(is_marked);
    }

    /// Kinds from the least found to the most.
    pub fn worst_kinds(&self) -> Vec<(&'static str, Count)> {
        let mut kinds: Vec<_> = self.by_kind.iter().map(|(kind, count)| (*kind, *count)).collect();
        kinds.sort_by(|a, b| a.1.share().total_cmp(&b.1.share()).then(a.0.cmp(b.0)));
        kinds
    }

    /// Families from the most hidden to the least.
    pub fn worst_families(&self) -> Vec<(&'static str, Count)> {
        let mut families: Vec<_> = self.by_family.iter().map(|(kind, n)| (*kind, *n)).collect();
        families.sort_by(|a, b| b.1.share().total_cmp(&a.1.share()).then(a.0.cmp(b.0)));
        families
    }
}

/// What was hidden in conversations that people had.
pub struct Data {
    pub name: String,
    pub turns: usize,
    pub bytes: usize,
    pub changed: usize,
    pub by_kind: BTreeMap<String, usize>,
}

/// The conversations of the folder `ICECORE_EVAL_DATA`.
pub fn data(redactor: &Redactor) -> Result<Vec<Data>> {
    files()?.iter().map(|path| Ok(hidden_in(redactor, &Dataset::load(path)?))).collect()
}

/// The files of that folder, if there is one.
pub fn files() -> Result<Vec<PathBuf>> {
    let Some(folder) = std::env::var_os("ICECORE_EVAL_DATA") else { return Ok(Vec::new()) };
    let paths: std::io::Result<Vec<PathBuf>> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths?;
    paths.retain(|path| path.to_string_lossy().ends_with("-dev.jsonl.gz"));
    paths.sort();
    Ok(paths)
}

fn hidden_in(redactor: &Redactor, dataset: &Dataset) -> Data {
    let name = dataset.name.clone();
    let mut data = Data { name, turns: 0, bytes: 0, changed: 0, by_kind: BTreeMap::new() };
    for turn in dataset.conversations.iter().flat_map(|conversation| conversation.turns()) {
        let redacted = redactor.text(&turn.content);
        data.turns += 1;
        data.bytes += turn.content.len();
        data.changed += usize::from(redacted.as_str() != turn.content);
        for piece in redacted.as_str().split(MARKER).skip(1) {
            let kind = piece.split(']').next().unwrap_or_default();
            *data.by_kind.entry(kind.to_owned()).or_default() += 1;
        }
    }
    data
}
