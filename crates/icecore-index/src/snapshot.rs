//! What a query may ask of a scope.

use icecore_domain::embed::{ModelId, Vector};
use icecore_domain::ids::{Branch, SessionNo};
use icecore_domain::time::Millis;

use crate::columns::Columns;
use crate::document::{Doc, Field, Role, Source, SpeakerNo};
use crate::error::IndexError;
use crate::payload::Payload;
use crate::rows::{Effort, Probe, Rows};
use crate::segments::Segments;
use crate::tail::Tail;
use crate::watermark::Watermark;

/// All documents of a scope as of one moment, committed or not.
///
/// Methods that take a [`Doc`] panic on one that is not below
/// [`doc_count`](Self::doc_count).
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) columns: Columns,
    pub(crate) rows: Option<Rows>,
    /// Which file the rows belong in.
    pub(crate) rows_file: u32,
    pub(crate) segments: Segments,
    pub(crate) tail: Tail,
    pub(crate) watermark: Watermark,
    pub(crate) committed: Option<Payload>,
    pub(crate) effort: Effort,
}

impl Snapshot {
    pub(crate) fn empty(watermark: Watermark, model: Option<ModelId>, effort: Effort) -> Self {
        Self {
            columns: Columns::default(),
            rows: model.map(Rows::new),
            rows_file: 0,
            segments: Segments::default(),
            tail: Tail::default(),
            watermark,
            committed: None,
            effort,
        }
    }

    pub fn watermark(&self) -> Watermark {
        self.watermark
    }

    /// What of it is on disk.
    pub fn committed_watermark(&self) -> Watermark {
        let start = Watermark::start(self.watermark.epoch);
        self.committed.as_ref().map_or(start, Payload::watermark)
    }

    /// How many documents there are; they are numbered from 0.
    pub fn doc_count(&self) -> u32 {
        self.columns.len() as u32
    }

    /// How many of them are turns.
    pub fn turn_count(&self) -> u64 {
        self.columns.turn_count()
    }

    /// Mean number of content terms of a turn; 0 where there is none.
    pub fn average_length(&self) -> f64 {
        self.columns.average_length()
    }

    /// What a document is.
    pub fn source(&self, doc: Doc) -> Source {
        self.columns.source(doc)
    }

    pub fn at(&self, doc: Doc) -> Millis {
        self.columns.at(doc)
    }

    /// The role of its speaker.
    pub fn role(&self, doc: Doc) -> Role {
        self.columns.role(doc)
    }

    /// Its speaker, as a place in [`speakers`](Self::speakers).
    pub fn speaker(&self, doc: Doc) -> Option<SpeakerNo> {
        self.columns.speaker(doc)
    }

    /// Every name of a speaker, as given, in the order of first use.
    pub fn speakers(&self) -> &[String] {
        self.columns.names()
    }

    /// The caller's bits.
    pub fn signs(&self, doc: Doc) -> u32 {
        self.columns.signs(doc)
    }

    /// The same for all documents, by number.
    pub fn all_signs(&self) -> &[u32] {
        self.columns.all_signs()
    }

    /// How many content terms it has.
    pub fn length(&self, doc: Doc) -> u32 {
        self.columns.length(doc)
    }

    /// The same for all documents, by number.
    pub fn lengths(&self) -> &[u32] {
        self.columns.lengths()
    }

    /// Whether its source was fed again, so that a newer document stands for it.
    /// Postings and statistics still count it.
    pub fn superseded(&self, doc: Doc) -> bool {
        self.columns.superseded(doc)
    }

    /// The newest document with that source.
    pub fn doc_of(&self, source: Source) -> Option<Doc> {
        self.columns.doc_of(source)
    }

    /// The turns of a session's branch, in order.
    pub fn turns_of(&self, session: SessionNo, branch: Branch) -> &[Doc] {
        self.columns.turns_of(session, branch)
    }

    /// The turn that stands `offset` places after this one, or before it, in the
    /// same session and branch.
    pub fn neighbour(&self, doc: Doc, offset: i32) -> Option<Doc> {
        self.columns.neighbour(doc, offset)
    }

    /// Calls `f` once for each document that holds `term`, with how often. The
    /// order is none in particular, and may change with a commit.
    pub fn visit(
        &self,
        term: &str,
        field: Field,
        mut f: impl FnMut(Doc, u32),
    ) -> Result<(), IndexError> {
        let key = field.key(term);
        self.segments.visit(&key, &mut f)?;
        self.tail.postings(&key).iter().for_each(|(doc, count)| f(*doc, *count));
        Ok(())
    }

    /// How many documents hold `term`.
    pub fn document_frequency(&self, term: &str, field: Field) -> Result<u32, IndexError> {
        let key = field.key(term);
        let committed = self.segments.document_frequency(&key)?;
        Ok(committed + self.tail.postings(&key).len() as u32)
    }

    /// Whose vectors there are.
    pub fn model(&self) -> Option<&ModelId> {
        self.rows.as_ref().map(Rows::model)
    }

    /// Documents below this number have their vectors; the others wait for
    /// [`push_vectors`](crate::ScopeIndex::push_vectors).
    pub fn docs_with_vectors(&self) -> u32 {
        self.rows.as_ref().map_or(0, |rows| rows.doc_count() as u32)
    }

    /// How many vectors there are; a document may have several, or none.
    pub fn row_count(&self) -> usize {
        self.rows.as_ref().map_or(0, Rows::row_count)
    }

    /// The `n` documents with the passage of the largest cosine to `query`, best
    /// first, the smaller number first among equals. `within` says which may be
    /// among them.
    ///
    /// Exact up to the setting `exact_rows`; above it, exact among the rows whose
    /// signs agree most with the query's.
    pub fn nearest(
        &self,
        query: &Vector,
        n: usize,
        within: Option<&dyn Fn(Doc) -> bool>,
    ) -> Result<Vec<(Doc, f32)>, IndexError> {
        let Some((rows, probe)) = self.probe(query)? else { return Ok(Vec::new()) };
        rows.nearest(&probe, n, within, self.effort).map_err(unreadable)
    }

    /// Cosine of the document's nearest passage; `None` where it has no vector.
    pub fn similarity(&self, query: &Vector, doc: Doc) -> Result<Option<f32>, IndexError> {
        let Some((rows, probe)) = self.probe(query)? else { return Ok(None) };
        rows.similarity(&probe, doc).map_err(unreadable)
    }

    /// The document's vectors, one for each passage.
    pub fn vectors(&self, doc: Doc) -> Result<Vec<Vector>, IndexError> {
        let Some(rows) = &self.rows else { return Ok(Vec::new()) };
        let mut buffer = Vec::new();
        let one = |row| Ok(Vector::new(rows.row(row, &mut buffer).map_err(unreadable)?));
        rows.rows_of(doc).map(one).collect()
    }

    /// Adds the document's vectors, each of length 1, to `sum`; says how many.
    pub fn add_directions(&self, doc: Doc, sum: &mut [f32]) -> Result<usize, IndexError> {
        let Some(rows) = &self.rows else { return Ok(0) };
        let mut buffer = Vec::new();
        for row in rows.rows_of(doc) {
            let scale = rows.inverse_norm_of(row);
            let components = rows.row(row, &mut buffer).map_err(unreadable)?;
            for (sum, component) in sum.iter_mut().zip(components) {
                *sum += f32::from(*component) * scale;
            }
        }
        Ok(rows.rows_of(doc).len())
    }

    /// The query as the rows want it; nothing where it, or they, have no
    /// direction.
    fn probe(&self, query: &Vector) -> Result<Option<(&Rows, Probe)>, IndexError> {
        let Some(rows) = &self.rows else { return Ok(None) };
        check_dims(rows.model(), query)?;
        Ok((!query.is_zero()).then(|| (rows, Probe::new(query))))
    }
}

/// Refuses a vector that `model` cannot have made.
pub(crate) fn check_dims(model: &ModelId, vector: &Vector) -> Result<(), IndexError> {
    let (expected, found) = (model.dims, vector.components().len());
    if expected == found { Ok(()) } else { Err(IndexError::Dimensions { expected, found }) }
}

fn unreadable(source: std::io::Error) -> IndexError {
    IndexError::File { action: "read", path: "rows".into(), source }
}
