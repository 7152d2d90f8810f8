//! What a memory has to beat: words alone, vectors alone, the newest turns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use icecore::models::{TokenCounter, Vector};
use icecore_models::{O200k, StaticEmbedder};

use crate::data::Turn;
use crate::words::words;

/// As many turns as a baseline ranks.
const RANKED: usize = 200;

const K1: f64 = 1.2;
const B: f64 = 0.75;

/// Stemmed BM25 over day, speaker and text.
pub struct Bm25 {
    postings: BTreeMap<String, Vec<(usize, f64)>>,
    norms: Vec<f64>,
}

impl Bm25 {
    pub fn new(lines: &[String]) -> Self {
        let mut postings: BTreeMap<String, Vec<(usize, f64)>> = BTreeMap::new();
        let mut lengths = Vec::with_capacity(lines.len());
        for (number, line) in lines.iter().enumerate() {
            let words = words(line);
            lengths.push(words.len() as f64);
            let mut counts: BTreeMap<String, f64> = BTreeMap::new();
            for word in words {
                *counts.entry(word).or_default() += 1.0;
            }
            for (word, count) in counts {
                postings.entry(word).or_default().push((number, count));
            }
        }
        let mean = lengths.iter().sum::<f64>() / lengths.len().max(1) as f64;
        let mean = if mean > 0.0 { mean } else { 1.0 };
        let norms = lengths.iter().map(|length| K1 * (1.0 - B + B * length / mean)).collect();
        Self { postings, norms }
    }

    /// The best turns; ties go to the earlier.
    pub fn rank(&self, query: &str) -> Vec<usize> {
        let mut scores: BTreeMap<usize, f64> = BTreeMap::new();
        let size = self.norms.len() as f64;
        for word in words(query).into_iter().collect::<BTreeSet<_>>() {
            let Some(found) = self.postings.get(&word) else { continue };
            let held = found.len() as f64;
            let weight = (1.0 + (size - held + 0.5) / (held + 0.5)).ln() * (K1 + 1.0);
            for (number, count) in found {
                *scores.entry(*number).or_default() +=
                    weight * count / (count + self.norms[*number]);
            }
        }
        best(scores.into_iter().collect())
    }
}

/// The cosine of a turn's vector with the question's, by the bundled model.
pub struct Dense {
    embedder: Arc<StaticEmbedder>,
    vectors: Vec<Vector>,
}

impl Dense {
    pub fn new(turns: &[&Turn]) -> Self {
        let embedder = StaticEmbedder::bundled();
        let vectors = turns.iter().map(|turn| embedder.embed_one(&turn.content)).collect();
        Self { embedder, vectors }
    }

    pub fn rank(&self, query: &str) -> Vec<usize> {
        let query = self.embedder.embed_one(query);
        best(self.vectors.iter().map(|vector| cosine(vector, &query)).enumerate().collect())
    }
}

fn cosine(a: &Vector, b: &Vector) -> f64 {
    let dot = |a: &Vector, b: &Vector| -> f64 {
        let products = a.components().iter().zip(b.components());
        products.map(|(a, b)| f64::from(i32::from(*a) * i32::from(*b))).sum()
    };
    let norms = (dot(a, a) * dot(b, b)).sqrt();
    if norms > 0.0 { dot(a, b) / norms } else { 0.0 }
}

fn best(mut scored: Vec<(usize, f64)>) -> Vec<usize> {
    scored.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    scored.into_iter().take(RANKED).map(|(number, _)| number).collect()
}

/// Lines with their tokens, to be packed into a budget.
pub struct Lines {
    pub lines: Vec<String>,
    tokens: Vec<u32>,
}

impl Lines {
    pub fn new(turns: &[&Turn], counter: &O200k) -> Self {
        let lines: Vec<String> = turns.iter().map(|turn| turn.line()).collect();
        let tokens = lines.iter().map(|line| counter.count(line) + 1).collect();
        Self { lines, tokens }
    }

    /// Takes lines in an order while they fit.
    pub fn pack(&self, order: &[usize], budget: u32) -> (String, u32) {
        let (mut text, mut used) = (String::new(), 0);
        for number in order {
            if used + self.tokens[*number] <= budget {
                text.push_str(&self.lines[*number]);
                text.push('\n');
                used += self.tokens[*number];
            }
        }
        (text, used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(content: &str) -> Turn {
        Turn {
            id: content.to_owned(),
            role: "user".to_owned(),
            name: None,
            content: content.to_owned(),
            timestamp: Some("2024-05-01T10:00:00Z".to_owned()),
        }
    }

    #[test]
    fn words_and_vectors_put_the_right_turn_first() {
        let turns = [turn("The dog barks at night"), turn("We baked bread"), turn("It rains")];
        let turns: Vec<&Turn> = turns.iter().collect();
        let lines = Lines::new(&turns, &O200k::default());
        assert_eq!(lines.lines[1], "1 May 2024 user: We baked bread");
        assert_eq!(Bm25::new(&lines.lines).rank("Who bakes bread?").first(), Some(&1));
        assert_eq!(Dense::new(&turns).rank("Which loaf did you bake?").first(), Some(&1));
    }

    #[test]
    fn a_line_that_does_not_fit_is_passed_over() {
        let turns = [turn(&"word ".repeat(50)), turn("short")];
        let turns: Vec<&Turn> = turns.iter().collect();
        let lines = Lines::new(&turns, &O200k::default());
        let (text, used) = lines.pack(&[0, 1], 20);
        assert_eq!(text, "1 May 2024 user: short\n");
        assert!(used <= 20);
    }
}
