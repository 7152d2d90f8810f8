//! LexRank as its paper has it: a sentence is central if central sentences resemble it.

use std::collections::BTreeMap;

use crate::words::words;

/// The chance to go on along the graph.
const DAMPING: f64 = 0.85;
/// Sentences nearer than this are joined, by how near they are.
const THRESHOLD: f64 = 0.1;
const ROUNDS: usize = 50;

/// The sentences, most central first.
pub fn rank(sentences: &[&str]) -> Vec<usize> {
    let vectors = vectors(sentences);
    let edges = edges(&vectors);
    let count = sentences.len() as f64;
    let out: Vec<f64> = edges.iter().map(|edges| edges.iter().map(|edge| edge.1).sum()).collect();
    let mut scores = vec![1.0 / count; sentences.len()];
    for _ in 0..ROUNDS {
        let mut next = vec![(1.0 - DAMPING) / count; sentences.len()];
        for (from, edges) in edges.iter().enumerate() {
            for (to, weight) in edges {
                next[*to] += DAMPING * scores[from] * weight / out[from].max(f64::MIN_POSITIVE);
            }
        }
        scores = next;
    }
    let mut order: Vec<usize> = (0..sentences.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    order
}

/// Words with tf-idf, of length 1.
fn vectors(sentences: &[&str]) -> Vec<BTreeMap<String, f64>> {
    let mut vectors = Vec::new();
    let mut held: BTreeMap<String, f64> = BTreeMap::new();
    for sentence in sentences {
        let mut vector: BTreeMap<String, f64> = BTreeMap::new();
        words(sentence).into_iter().for_each(|word| *vector.entry(word).or_default() += 1.0);
        vector.keys().for_each(|word| *held.entry(word.clone()).or_default() += 1.0);
        vectors.push(vector);
    }
    let count = sentences.len() as f64;
    for vector in &mut vectors {
        for (word, weight) in vector.iter_mut() {
            *weight *= (count / held[word]).ln();
        }
        let norm = vector.values().map(|weight| weight * weight).sum::<f64>().sqrt();
        vector.values_mut().for_each(|weight| *weight /= norm.max(f64::MIN_POSITIVE));
    }
    vectors
}

/// For each sentence, those that it resembles, itself among them, and how much.
fn edges(vectors: &[BTreeMap<String, f64>]) -> Vec<Vec<(usize, f64)>> {
    let mut postings: BTreeMap<&str, Vec<(usize, f64)>> = BTreeMap::new();
    for (at, vector) in vectors.iter().enumerate() {
        for (word, weight) in vector {
            postings.entry(word).or_default().push((at, *weight));
        }
    }
    let mut edges = Vec::new();
    for vector in vectors {
        let mut near = vec![0.0; vectors.len()];
        for (word, weight) in vector {
            for (other, its) in &postings[word.as_str()] {
                near[*other] += weight * its;
            }
        }
        let joined = near.into_iter().enumerate().filter(|(_, near)| *near > THRESHOLD);
        edges.push(joined.collect());
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_resemble_is_central() {
        let sentences = [
            "Bread is baked.", "The kiln smokes.", "The kiln broke the cellar.",
            "Our cellar floods.",
        ];
        assert_eq!(rank(&sentences).first(), Some(&2));
    }
}
