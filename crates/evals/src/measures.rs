//! What counts as found, and means of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::data::{Question, squeeze};
use crate::words::words;

/// The categories that no mean over all counts: their questions have no answer.
const LEFT_OUT: [&str; 1] = ["adversarial"];

/// The mean over all categories.
pub const ALL: &str = "ALL";

const KS: [(&str, usize); 4] = [("R@1", 1), ("R@5", 5), ("R@10", 10), ("R@20", 20)];

/// Measures of a search, in the order of a report.
pub const SEARCH: [&str; 7] = ["R@1", "R@5", "R@10", "R@20", "any@5", "all@5", "MRR"];

/// Measures of a context.
pub const CONTEXT: [&str; 5] = ["evid", "all", "sent", "answer", "tokens"];

/// Figures by the name of their measure.
pub type Scores = Vec<(&'static str, f64)>;

/// How a system did on one question.
#[derive(Debug, Clone)]
pub struct Record {
    pub system: &'static str,
    pub task: Task,
    /// The number of its conversation in the file.
    pub conversation: usize,
    pub category: String,
    pub scores: Scores,
    pub took: Duration,
}

/// What was asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    Search,
    /// Of so many tokens.
    Context(u32),
}

/// How much of the evidence stands how high.
pub fn search_scores(ranked: &[&str], question: &Question) -> Scores {
    let gold: BTreeSet<&str> = question.evidence.iter().map(String::as_str).collect();
    let found = |k: usize| {
        let first: BTreeSet<&str> = ranked.iter().take(k).copied().collect();
        gold.intersection(&first).count()
    };
    let share = |k: usize| found(k) as f64 / gold.len() as f64;
    let place = ranked.iter().position(|turn| gold.contains(turn));
    let mut scores: Scores = KS.iter().map(|(name, k)| (*name, share(*k))).collect();
    scores.push(("any@5", yes(found(5) > 0)));
    scores.push(("all@5", yes(found(5) == gold.len())));
    scores.push(("MRR", place.map_or(0.0, |place| 1.0 / (place + 1) as f64)));
    scores
}

/// How much of the evidence stands in a context. `content` maps a turn's id to
/// its squeezed text.
pub fn context_scores(
    text: &str,
    tokens: u32,
    question: &Question,
    content: &BTreeMap<&str, String>,
) -> Scores {
    let text = squeeze(text);
    let evidence: Vec<&str> =
        question.evidence.iter().filter_map(|id| content.get(id.as_str())).map(|c| &**c).collect();
    let whole = evidence.iter().filter(|turn| text.contains(**turn)).count();
    let sentences: Vec<&str> = evidence.iter().flat_map(|turn| sentences(turn)).collect();
    let kept = sentences.iter().filter(|sentence| text.contains(**sentence)).count();
    let mut scores = vec![
        ("evid", whole as f64 / question.evidence.len() as f64),
        ("all", yes(whole == question.evidence.len())),
        ("sent", kept as f64 / sentences.len().max(1) as f64),
        ("tokens", f64::from(tokens)),
    ];
    let wanted: BTreeSet<String> = words(&question.answer).into_iter().collect();
    if !wanted.is_empty() {
        let held: BTreeSet<String> = words(&text).into_iter().collect();
        scores.push(("answer", wanted.intersection(&held).count() as f64 / wanted.len() as f64));
    }
    scores
}

/// The sentences of a squeezed text that have three words or more; the text
/// itself if it has none.
pub fn sentences(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (space, _) in text.match_indices(' ') {
        if text[..space].ends_with(['.', '!', '?']) {
            parts.push(&text[start..space]);
            start = space + 1;
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| part.split(' ').count() >= 3);
    if parts.is_empty() { vec![text] } else { parts }
}

fn yes(condition: bool) -> f64 {
    if condition { 1.0 } else { 0.0 }
}

/// Means by category, the headline first.
#[derive(Debug, Clone, Default)]
pub struct Means(Vec<(String, Figures)>);

/// Means over the questions of a category.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    pub n: usize,
    sums: BTreeMap<&'static str, (f64, usize)>,
}

impl Means {
    pub fn of<'a>(records: impl Iterator<Item = &'a Record>) -> Self {
        let mut found: BTreeMap<(bool, bool, &str), Figures> = BTreeMap::new();
        for record in records {
            let category = record.category.as_str();
            let is_left_out = LEFT_OUT.contains(&category);
            found.entry((true, is_left_out, category)).or_default().add(&record.scores);
            if !is_left_out {
                found.entry((false, false, ALL)).or_default().add(&record.scores);
            }
        }
        let named =
            |((_, _, name), figures): ((bool, bool, &str), Figures)| (name.to_owned(), figures);
        Self(found.into_iter().map(named).collect())
    }

    pub fn categories(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub fn count(&self, category: &str) -> usize {
        self.0.iter().find(|(name, _)| name == category).map_or(0, |(_, figures)| figures.n)
    }

    /// A mean, to four digits.
    pub fn get(&self, category: &str, measure: &str) -> Option<f64> {
        let (_, figures) = self.0.iter().find(|(name, _)| name == category)?;
        figures.mean(measure)
    }

    pub fn to_json(&self) -> Value {
        let one = |figures: &Figures| {
            let means =
                figures.sums.keys().map(|name| ((*name).to_owned(), json!(figures.mean(name))));
            let mut object: serde_json::Map<String, Value> = means.collect();
            object.insert("n".to_owned(), json!(figures.n));
            Value::Object(object)
        };
        Value::Object(self.0.iter().map(|(name, figures)| (name.clone(), one(figures))).collect())
    }
}

impl Figures {
    fn add(&mut self, scores: &Scores) {
        self.n += 1;
        for (measure, value) in scores {
            let sum = self.sums.entry(measure).or_default();
            *sum = (sum.0 + value, sum.1 + 1);
        }
    }

    fn mean(&self, measure: &str) -> Option<f64> {
        let (sum, count) = self.sums.get(measure)?;
        Some((sum / *count as f64 * 1e4).round() / 1e4)
    }
}

/// The value that `share` of all are not above.
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let place = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(place.saturating_sub(1).min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(evidence: &[&str]) -> Question {
        Question {
            id: "q".to_owned(),
            question: "Where?".to_owned(),
            answer: "In Oslo".to_owned(),
            category: "single".to_owned(),
            evidence: evidence.iter().map(|id| (*id).to_owned()).collect(),
        }
    }

    fn get(scores: &Scores, measure: &str) -> f64 {
        scores.iter().find(|(name, _)| *name == measure).unwrap().1
    }

    #[test]
    fn a_search_is_scored_by_place() {
        let scores = search_scores(&["a", "b", "c"], &question(&["b", "x"]));
        assert_eq!(get(&scores, "R@1"), 0.0);
        assert_eq!(get(&scores, "R@5"), 0.5);
        assert_eq!(get(&scores, "any@5"), 1.0);
        assert_eq!(get(&scores, "all@5"), 0.0);
        assert_eq!(get(&scores, "MRR"), 0.5);
    }

    #[test]
    fn a_context_is_scored_by_what_stands_in_it() {
        let texts = [("a", "We moved to Oslo. It is cold."), ("b", "Bread was dear there.")];
        let content = texts.map(|(id, text)| (id, text.to_owned())).into_iter().collect();
        let text = "Ann: We moved  to Oslo.\nBo: Bread was dear there.";
        let scores = context_scores(text, 12, &question(&["a", "b"]), &content);
        assert_eq!(get(&scores, "evid"), 0.5);
        assert_eq!(get(&scores, "all"), 0.0);
        assert_eq!(get(&scores, "sent"), 2.0 / 3.0);
        assert_eq!(get(&scores, "answer"), 1.0);
    }

    #[test]
    fn sentences_that_say_little_are_no_measure() {
        assert_eq!(sentences("Yes! We went home. Ok."), ["We went home."]);
        assert_eq!(sentences("Yes! Ok."), ["Yes! Ok."]);
    }

    #[test]
    fn the_headline_leaves_out_what_has_no_answer() {
        let record = |category: &str, value: f64| Record {
            system: "ours",
            task: Task::Search,
            conversation: 0,
            category: category.to_owned(),
            scores: vec![("R@5", value)],
            took: Duration::ZERO,
        };
        let records = [record("single", 1.0), record("adversarial", 0.0), record("multi", 0.5)];
        let means = Means::of(records.iter());
        assert_eq!(means.get(ALL, "R@5"), Some(0.75));
        assert_eq!(means.categories().collect::<Vec<_>>(), [ALL, "multi", "single", "adversarial"]);
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let sorted = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(percentile(&sorted, 0.5), 2.0);
        assert_eq!(percentile(&sorted, 0.95), 4.0);
        assert!(percentile(&[], 0.5).is_nan());
    }
}
