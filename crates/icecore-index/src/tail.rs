//! Postings of the documents that are not committed, in memory.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::document::Doc;

#[derive(Debug, Default)]
pub(crate) struct Tail {
    numbers: HashMap<Arc<str>, u32>,
    keys: Vec<Arc<str>>,
    postings: Vec<Vec<(Doc, u32)>>,
    /// For each document, in order, its terms and their counts.
    documents: Vec<(Doc, Vec<(u32, u32)>)>,
    posting_count: usize,
}

impl Tail {
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// About how many bytes it takes: each pair stands with its term and its document, each
    /// term once as text, and lists are up to twice as long as what is in them.
    pub fn memory_bytes(&self) -> usize {
        const PAIR: usize = 2 * 2 * size_of::<(Doc, u32)>();
        const TERM: usize = 128;
        const DOCUMENT: usize = 64;
        self.posting_count * PAIR + self.keys.len() * TERM + self.documents.len() * DOCUMENT
    }

    /// How much it holds, in pairs of a document and a term.
    pub fn posting_count(&self) -> usize {
        self.posting_count
    }

    pub fn push(&mut self, doc: Doc, keys: &[String]) {
        let mut numbers: Vec<u32> = keys.iter().map(|key| self.number(key)).collect();
        numbers.sort_unstable();
        let counts: Vec<(u32, u32)> =
            numbers.chunk_by(u32::eq).map(|same| (same[0], same.len() as u32)).collect();
        self.add(doc, counts);
    }

    fn number(&mut self, key: &str) -> u32 {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        let number = self.postings.len() as u32;
        let key: Arc<str> = key.into();
        self.keys.push(Arc::clone(&key));
        self.numbers.insert(key, number);
        self.postings.push(Vec::new());
        number
    }

    fn add(&mut self, doc: Doc, counts: Vec<(u32, u32)>) {
        for (number, count) in &counts {
            self.postings[*number as usize].push((doc, *count));
        }
        self.posting_count += counts.len();
        self.documents.push((doc, counts));
    }

    pub fn postings(&self, key: &str) -> &[(Doc, u32)] {
        self.numbers.get(key).map_or(&[], |number| &self.postings[*number as usize])
    }

    /// The documents at some places, oldest first, as texts of keys with blanks
    /// between them, each as often as it occurs.
    pub fn texts(&self, places: Range<usize>) -> Vec<(Doc, String)> {
        let text = |counts: &[(u32, u32)]| {
            let mut text = String::new();
            for (number, count) in counts {
                for _ in 0..*count {
                    text.push_str(&self.keys[*number as usize]);
                    text.push(' ');
                }
            }
            text
        };
        self.documents[places].iter().map(|(doc, counts)| (*doc, text(counts))).collect()
    }

    /// What is left when the documents before `first` are committed.
    pub fn from(&self, first: Doc) -> Tail {
        let mut rest = Tail::default();
        for (doc, counts) in self.documents.iter().filter(|(doc, _)| *doc >= first) {
            let count =
                |(number, count): &(u32, u32)| (rest.number(&self.keys[*number as usize]), *count);
            let counts = counts.iter().map(count).collect();
            rest.add(*doc, counts);
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_rest_of_a_tail_is_the_tail_of_the_rest() {
        let mut all = Tail::default();
        let mut late = Tail::default();
        for (doc, text) in ["a b a", "b c", "c a", "d"].iter().enumerate() {
            all.push(doc as Doc, &keys(text));
            if doc >= 2 {
                late.push(doc as Doc, &keys(text));
            }
        }
        assert_eq!(all.postings("a"), [(0, 2), (2, 1)]);
        let rest = all.from(2);
        assert_eq!(rest.len(), 2);
        for key in ["a", "b", "c", "d", "e"] {
            assert_eq!(rest.postings(key), late.postings(key), "{key}");
        }
    }
}
