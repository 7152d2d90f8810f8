//! Where the words of a query stand.

use crate::document::{Doc, Field};
use crate::error::IndexError;
use crate::plan::{MAX_TERMS, Plan};
use crate::snapshot::Snapshot;

/// How soon a repeated word stops to count.
const K1: f32 = 1.2;

/// How much the length of a text counts against it.
const B: f32 = 0.75;

/// A query's terms with all their postings.
pub(crate) struct Matches {
    /// The terms that are somewhere, rarest first if there were too many.
    pub(crate) terms: Vec<String>,
    pub(crate) idf: Vec<f32>,
    postings: Vec<Posting>,
}

#[derive(Clone, Copy)]
struct Posting {
    doc: Doc,
    term: u32,
    count: u32,
}

impl Matches {
    pub(crate) fn find(snapshot: &Snapshot, plan: &Plan) -> Result<Self, IndexError> {
        let mut known = Vec::new();
        for (place, term) in plan.terms.iter().enumerate() {
            let frequency = snapshot.document_frequency(term, Field::Content)?;
            if frequency > 0 {
                known.push((frequency, place));
            }
        }
        if known.len() > MAX_TERMS {
            known.sort_unstable();
            known.truncate(MAX_TERMS);
        }
        known.sort_unstable_by_key(|(_, place)| *place);
        let total = snapshot.doc_count() as f32;
        let mut found = Self { terms: Vec::new(), idf: Vec::new(), postings: Vec::new() };
        for (frequency, place) in known {
            let term = found.terms.len() as u32;
            let postings = &mut found.postings;
            snapshot.visit(&plan.terms[place], Field::Content, |doc, count| {
                postings.push(Posting { doc, term, count });
            })?;
            let frequency = frequency as f32;
            found.idf.push(libm::logf(1.0 + (total - frequency + 0.5) / (frequency + 0.5)));
            found.terms.push(plan.terms[place].clone());
        }
        Ok(found)
    }

    /// The `n` documents with the highest score, best first.
    pub(crate) fn best(&self, snapshot: &Snapshot, n: usize) -> Vec<Doc> {
        let mut scores = vec![0.0_f32; snapshot.doc_count() as usize];
        let (mean, lengths) = (snapshot.average_length() as f32, snapshot.lengths());
        let mut touched = Vec::new();
        for posting in &self.postings {
            let doc = posting.doc as usize;
            if scores[doc] == 0.0 {
                touched.push(posting.doc);
            }
            let share = saturate(posting.count as f32, lengths[doc] as f32, mean);
            scores[doc] += self.idf[posting.term as usize] * share;
        }
        let better =
            |a: &Doc, b: &Doc| scores[*b as usize].total_cmp(&scores[*a as usize]).then(a.cmp(b));
        if touched.len() > n {
            touched.select_nth_unstable_by(n, better);
            touched.truncate(n);
        }
        touched.sort_unstable_by(better);
        touched
    }

    /// Calls `f` with document, term and count of each posting.
    pub(crate) fn each(&self, mut f: impl FnMut(Doc, usize, f32)) {
        for posting in &self.postings {
            f(posting.doc, posting.term as usize, posting.count as f32);
        }
    }
}

/// BM25's share of a term that stands `count` times in a text of that length.
pub(crate) fn saturate(count: f32, length: f32, mean: f32) -> f32 {
    let norm = 1.0 - B + B * length / mean.max(1.0);
    count * (K1 + 1.0) / (count + K1 * norm)
}
