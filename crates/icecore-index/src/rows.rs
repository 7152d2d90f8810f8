//! Vectors of one model: a row for each passage, in the order of documents.
//!
//! Rows of a small scope are in memory and compared exactly. Of a large one
//! only signs, norms and document numbers are: signs choose candidates, whose
//! rows are read from the file.

use std::fs::File;
use std::os::unix::fs::FileExt;

use icecore_domain::embed::{ModelId, Vector};

use crate::document::Doc;
use crate::kernels;

/// Rows are compared in blocks whose results stay in the nearest cache.
const BLOCK_ROWS: usize = 1_024;

/// A row in the file is led by its document's number.
pub(crate) const DOC_BYTES: usize = size_of::<Doc>();

#[derive(Debug)]
pub(crate) struct Rows {
    model: ModelId,
    /// First row of each document, and the end.
    starts: Vec<u32>,
    docs: Vec<Doc>,
    inverse_norms: Vec<f32>,
    codes: Vec<u64>,
    /// Where the first rows are when they are not in memory, and how many.
    stored: Option<(File, usize)>,
    memory: Vec<i8>,
}

/// When a scope counts as large, and how much work it is then allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    pub exact_rows: usize,
    pub rescore: usize,
}

impl Rows {
    pub fn new(model: ModelId) -> Self {
        Self {
            model,
            starts: vec![0],
            docs: Vec::new(),
            inverse_norms: Vec::new(),
            codes: Vec::new(),
            stored: None,
            memory: Vec::new(),
        }
    }

    pub fn model(&self) -> &ModelId {
        &self.model
    }

    /// How many documents have had their vectors, of which there may be none.
    pub fn doc_count(&self) -> usize {
        self.starts.len() - 1
    }

    pub fn row_count(&self) -> usize {
        self.docs.len()
    }

    fn stored_count(&self) -> usize {
        self.stored.as_ref().map_or(0, |(_, count)| *count)
    }

    /// Bytes that it takes in memory.
    pub fn memory_bytes(&self) -> usize {
        self.memory.len()
            + size_of_val(&self.codes[..])
            + size_of_val(&self.docs[..])
            + size_of_val(&self.inverse_norms[..])
            + size_of_val(&self.starts[..])
    }

    /// Bytes of a row in the file.
    pub fn stride(&self) -> usize {
        self.model.dims + DOC_BYTES
    }

    /// The vectors of the next document.
    pub fn push(&mut self, vectors: &[Vector]) {
        let doc = self.doc_count() as Doc;
        for vector in vectors.iter().filter(|vector| !vector.is_zero()) {
            self.push_row(doc, vector.components(), true);
        }
        self.starts.push(self.docs.len() as u32);
    }

    /// One row; `keep` its components in memory, or trust that they are stored.
    pub fn push_row(&mut self, doc: Doc, components: &[i8], keep: bool) {
        self.docs.push(doc);
        self.inverse_norms.push(inverse_norm(components));
        self.codes.extend(kernels::code(components));
        if keep {
            self.memory.extend_from_slice(components);
        }
    }

    /// Ends every document before `docs`, after their rows were pushed.
    pub fn end_docs(&mut self, docs: usize) {
        let mut row = self.starts.last().map_or(0, |start| *start as usize);
        while self.doc_count() < docs {
            let doc = self.doc_count() as Doc;
            while self.docs.get(row).is_some_and(|of| *of == doc) {
                row += 1;
            }
            self.starts.push(row as u32);
        }
    }

    /// Whether every row belongs to a document that has had its vectors: not
    /// so when their numbers are out of order.
    pub fn are_whole(&self) -> bool {
        self.starts.last().map(|end| *end as usize) == Some(self.docs.len())
    }

    /// Leaves the first `count` rows to `file`, which holds them.
    pub fn store(&mut self, file: File, count: usize) {
        let in_memory = self.docs.len() - self.stored_count();
        let drop = (count - self.stored_count()).min(in_memory) * self.model.dims;
        self.memory.drain(..drop);
        self.memory.shrink_to_fit();
        self.stored = Some((file, count));
    }

    /// The rows from `first` on, as the file has them.
    pub fn encode(&self, first: usize, end: usize) -> Vec<u8> {
        let stored = self.stored_count();
        debug_assert!(first >= stored);
        let mut bytes = Vec::with_capacity((end - first) * self.stride());
        for row in first..end {
            bytes.extend(self.docs[row].to_le_bytes());
            let at = (row - stored) * self.model.dims;
            bytes.extend(self.memory[at..at + self.model.dims].iter().map(|b| b.to_le_bytes()[0]));
        }
        bytes
    }

    pub fn rows_of(&self, doc: Doc) -> std::ops::Range<usize> {
        match self.starts.get(doc as usize..doc as usize + 2) {
            Some(ends) => ends[0] as usize..ends[1] as usize,
            None => 0..0,
        }
    }

    /// The components of a row, from memory or read into `buffer`.
    pub fn row<'a>(&'a self, row: usize, buffer: &'a mut Vec<i8>) -> std::io::Result<&'a [i8]> {
        let dims = self.model.dims;
        match &self.stored {
            Some((file, count)) if row < *count => {
                let mut bytes = vec![0; dims];
                let at = row * self.stride() + DOC_BYTES;
                file.read_exact_at(&mut bytes, at as u64)?;
                buffer.clear();
                buffer.extend(bytes.iter().map(|byte| i8::from_le_bytes([*byte])));
                Ok(buffer)
            }
            _ => {
                let at = (row - self.stored_count()) * dims;
                Ok(&self.memory[at..at + dims])
            }
        }
    }

    pub fn inverse_norm_of(&self, row: usize) -> f32 {
        self.inverse_norms[row]
    }

    /// Cosine of the best passage of `doc`.
    pub fn similarity(&self, probe: &Probe, doc: Doc) -> std::io::Result<Option<f32>> {
        let mut buffer = Vec::new();
        let mut best: Option<f32> = None;
        for row in self.rows_of(doc) {
            let mut dot = [0];
            kernels::dots(&probe.wide, self.row(row, &mut buffer)?, &mut dot);
            let cosine = probe.cosine(dot[0], self.inverse_norms[row]);
            best = Some(best.map_or(cosine, |best| best.max(cosine)));
        }
        Ok(best)
    }

    /// The documents nearest to the probe, best first.
    pub fn nearest(
        &self,
        probe: &Probe,
        n: usize,
        within: Option<&dyn Fn(Doc) -> bool>,
        effort: Effort,
    ) -> std::io::Result<Vec<(Doc, f32)>> {
        if n == 0 {
            return Ok(Vec::new());
        }
        if self.stored.is_none() && self.row_count() <= effort.exact_rows {
            return Ok(self.exact(probe, n, within));
        }
        let mut best = Best::new(n);
        for doc in self.candidates(probe, effort.rescore.max(n.saturating_mul(2)), within) {
            if let Some(cosine) = self.similarity(probe, doc)? {
                best.offer(doc, cosine);
            }
        }
        Ok(best.finish())
    }

    fn exact(
        &self,
        probe: &Probe,
        n: usize,
        within: Option<&dyn Fn(Doc) -> bool>,
    ) -> Vec<(Doc, f32)> {
        let mut best = Best::new(n);
        let mut open: Option<(Doc, f32)> = None;
        let mut dots = [0; BLOCK_ROWS];
        for (block, rows) in self.memory.chunks(BLOCK_ROWS * self.model.dims).enumerate() {
            let first = block * BLOCK_ROWS;
            let dots = &mut dots[..rows.len() / self.model.dims];
            kernels::dots(&probe.wide, rows, dots);
            for (row, dot) in (first..).zip(dots) {
                let doc = self.docs[row];
                let cosine = probe.cosine(*dot, self.inverse_norms[row]);
                open = match open {
                    Some((of, most)) if of == doc => Some((doc, most.max(cosine))),
                    ended => {
                        best.offer_within(ended, within);
                        Some((doc, cosine))
                    }
                };
            }
        }
        best.offer_within(open, within);
        best.finish()
    }

    /// Documents of the `count` rows whose signs agree most, the earlier row
    /// first among equals; each document once, in order.
    fn candidates(
        &self,
        probe: &Probe,
        count: usize,
        within: Option<&dyn Fn(Doc) -> bool>,
    ) -> Vec<Doc> {
        let mut distances = vec![0; self.row_count()];
        kernels::distances(&probe.code, &self.codes, &mut distances);
        if let Some(within) = within {
            for (distance, doc) in distances.iter_mut().zip(&self.docs) {
                if !within(*doc) {
                    *distance = u16::MAX;
                }
            }
        }
        let (limit, mut at_limit) = cut(&distances, self.model.dims, count);
        let mut chosen: Vec<Doc> = Vec::new();
        for (distance, doc) in distances.iter().zip(&self.docs) {
            if *distance > limit {
                continue;
            }
            if *distance == limit {
                if at_limit == 0 {
                    continue;
                }
                at_limit -= 1;
            }
            if chosen.last() != Some(doc) {
                chosen.push(*doc);
            }
        }
        chosen
    }
}

/// The distance up to which rows are taken, and how many at that distance, so
/// that `count` are in all.
fn cut(distances: &[u16], largest: usize, count: usize) -> (u16, usize) {
    let mut histogram = vec![0_usize; largest + 1];
    for distance in distances.iter().filter(|distance| **distance != u16::MAX) {
        histogram[*distance as usize] += 1;
    }
    let mut left = count;
    for (distance, rows) in histogram.iter().enumerate() {
        if *rows >= left {
            return (distance as u16, left);
        }
        left -= rows;
    }
    (largest as u16, usize::MAX)
}

fn inverse_norm(components: &[i8]) -> f32 {
    let square: i32 = components.iter().map(|c| i32::from(*c) * i32::from(*c)).sum();
    if square == 0 { 0.0 } else { 1.0 / (square as f32).sqrt() }
}

/// A query's vector in the forms that the loops want.
#[derive(Debug)]
pub(crate) struct Probe {
    wide: Vec<i16>,
    code: Vec<u64>,
    inverse_norm: f32,
}

impl Probe {
    pub fn new(query: &Vector) -> Self {
        let components = query.components();
        Self {
            wide: components.iter().map(|component| i16::from(*component)).collect(),
            code: kernels::code(components).collect(),
            inverse_norm: inverse_norm(components),
        }
    }

    fn cosine(&self, dot: i32, inverse_norm: f32) -> f32 {
        dot as f32 * inverse_norm * self.inverse_norm
    }
}

/// The `n` best of what is offered; the smaller number wins among equals.
struct Best {
    n: usize,
    kept: Vec<(Doc, f32)>,
    /// Nothing below this can be among the best any more.
    floor: f32,
}

impl Best {
    fn new(n: usize) -> Self {
        Self { n, kept: Vec::new(), floor: f32::NEG_INFINITY }
    }

    fn offer_within(&mut self, found: Option<(Doc, f32)>, within: Option<&dyn Fn(Doc) -> bool>) {
        if let Some((doc, cosine)) = found
            && cosine >= self.floor
            && within.is_none_or(|within| within(doc))
        {
            self.offer(doc, cosine);
        }
    }

    fn offer(&mut self, doc: Doc, cosine: f32) {
        if cosine < self.floor {
            return;
        }
        self.kept.push((doc, cosine));
        if self.kept.len() >= self.n.saturating_mul(2).saturating_add(BLOCK_ROWS) {
            self.kept.select_nth_unstable_by(self.n - 1, order);
            self.kept.truncate(self.n);
            self.floor = self.kept[self.n - 1].1;
        }
    }

    fn finish(mut self) -> Vec<(Doc, f32)> {
        self.kept.sort_unstable_by(order);
        self.kept.truncate(self.n);
        self.kept
    }
}

fn order(a: &(Doc, f32), b: &(Doc, f32)) -> std::cmp::Ordering {
    b.1.total_cmp(&a.1).then(a.0.cmp(&b.0))
}
