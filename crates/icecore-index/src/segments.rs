//! Committed postings: the text index on disk, read without its ranking.

use std::path::Path;
use std::sync::Arc;

use tantivy::directory::error::LockError;
use tantivy::directory::{Directory, INDEX_WRITER_LOCK, META_LOCK, MmapDirectory};
use tantivy::indexer::IndexWriterOptions;
use tantivy::schema::{FAST, Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::tokenizer::{TokenizerManager, WhitespaceTokenizer};
use tantivy::{
    Index, IndexSettings, IndexWriter, InvertedIndexReader, SegmentReader, TantivyDocument,
    TantivyError, Term,
};

use crate::document::Doc;
use crate::error::IndexError;
use crate::payload::Payload;

const DOC: &str = "doc";
const KEYS: &str = "keys";
const TOKENIZER: &str = "keys";

/// Numbers and keys: nothing is stored, no positions, no lengths.
fn schema() -> (Schema, Field, Field) {
    let mut schema = Schema::builder();
    let doc = schema.add_u64_field(DOC, FAST);
    let keys = TextFieldIndexing::default()
        .set_tokenizer(TOKENIZER)
        .set_fieldnorms(false)
        .set_index_option(IndexRecordOption::WithFreqs);
    let keys = schema.add_text_field(KEYS, TextOptions::default().set_indexing_options(keys));
    (schema.build(), doc, keys)
}

fn tokenizers() -> TokenizerManager {
    // The writer wants the default one too, for fields that use none.
    let tokenizers = TokenizerManager::default();
    tokenizers.register(TOKENIZER, WhitespaceTokenizer::default());
    tokenizers
}

/// Why there is nothing to read.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// Nothing was ever committed.
    Absent,
    /// It cannot be trusted.
    Damaged(String),
}

impl<E: std::error::Error> From<E> for Unusable {
    fn from(error: E) -> Self {
        Unusable::Damaged(error.to_string())
    }
}

/// Postings of the committed documents; none where nothing is committed.
#[derive(Default)]
pub(crate) struct Segments(Vec<Segment>);

struct Segment {
    keys: Arc<InvertedIndexReader>,
    /// Our number of each of its documents.
    docs: Vec<Doc>,
}

impl std::fmt::Debug for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|segment| segment.docs.len())).finish()
    }
}

impl Segments {
    /// Opens what the directory's last commit says; also checks the text
    /// index's own checksums if asked.
    pub fn open(path: &Path, verify: bool) -> Result<(Segments, Payload), Unusable> {
        if !path.join("meta.json").exists() {
            return Err(Unusable::Absent);
        }
        let index = Index::open(MmapDirectory::open(path)?)?;
        if index.schema() != schema().0 {
            return Err(Unusable::Damaged("another schema".to_owned()));
        }
        // This lock keeps others from deleting segments.
        let _lock = index.directory().acquire_lock(&META_LOCK)?;
        let metas = index.load_metas()?;
        let payload = match &metas.payload {
            Some(payload) => Payload::parse(payload).map_err(Unusable::Damaged)?,
            None => return Err(Unusable::Absent),
        };
        if verify && !index.validate_checksum()?.is_empty() {
            return Err(Unusable::Damaged("a segment's checksum is wrong".to_owned()));
        }
        let open = |meta| Segment::open(&index, meta);
        let segments = metas.segments.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let docs: usize = segments.iter().map(|segment| segment.docs.len()).sum();
        let known = |doc: &Doc| (*doc as usize) < payload.docs;
        if docs != payload.docs || !segments.iter().all(|segment| segment.docs.iter().all(known)) {
            return Err(Unusable::Damaged("documents are missing".to_owned()));
        }
        Ok((Segments(segments), payload))
    }

    /// What the directory's last commit says, without opening it.
    pub fn payload(path: &Path) -> Result<Option<Payload>, Unusable> {
        #[derive(serde::Deserialize)]
        struct Meta {
            payload: Option<String>,
        }
        let text = match std::fs::read_to_string(path.join("meta.json")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let meta: Meta = serde_json::from_str(&text)?;
        meta.payload.map(|text| Payload::parse(&text).map_err(Unusable::Damaged)).transpose()
    }

    pub fn visit(&self, key: &str, f: &mut impl FnMut(Doc, u32)) -> Result<(), IndexError> {
        if self.0.is_empty() {
            return Ok(());
        }
        let term = Term::from_field_text(schema_keys(), key);
        for segment in &self.0 {
            segment.visit(&term, f).map_err(TantivyError::from)?;
        }
        Ok(())
    }

    pub fn document_frequency(&self, key: &str) -> Result<u32, IndexError> {
        if self.0.is_empty() {
            return Ok(0);
        }
        let term = Term::from_field_text(schema_keys(), key);
        let counts = self.0.iter().map(|segment| segment.keys.doc_freq(&term));
        Ok(counts.sum::<std::io::Result<u32>>().map_err(TantivyError::from)?)
    }
}

/// The field of keys: the second of the schema.
fn schema_keys() -> Field {
    Field::from_field_id(1)
}

impl Segment {
    fn open(index: &Index, meta: tantivy::SegmentMeta) -> Result<Self, Unusable> {
        let reader = SegmentReader::open(&index.segment(meta))?;
        let numbers = reader.fast_fields().u64(DOC)?;
        let docs = (0..reader.max_doc())
            .map(|doc| numbers.first(doc).and_then(|number| Doc::try_from(number).ok()))
            .collect::<Option<Vec<Doc>>>();
        let docs = docs.ok_or_else(|| Unusable::Damaged("a document has no number".to_owned()))?;
        Ok(Segment { keys: reader.inverted_index(schema_keys())?, docs })
    }

    fn visit(&self, term: &Term, f: &mut impl FnMut(Doc, u32)) -> std::io::Result<()> {
        let postings = self.keys.read_block_postings(term, IndexRecordOption::WithFreqs)?;
        let Some(mut block) = postings else { return Ok(()) };
        while block.block_len() > 0 {
            for (doc, count) in block.docs().iter().zip(block.freqs()) {
                f(self.docs[*doc as usize], *count);
            }
            block.advance();
        }
        Ok(())
    }
}

/// The right to write, if it could be had.
pub(crate) enum Claim {
    Writer(Box<Writer>),
    /// Somebody else has it.
    Busy,
    /// The last commit is not the one expected.
    Overtaken,
}

pub(crate) struct Writer {
    writer: IndexWriter,
    doc: Field,
    keys: Field,
}

impl Writer {
    /// Claims the right to write after the commit `expected`. Where none is
    /// expected and none of any use is there, `clear` is called first.
    pub fn claim(
        path: &Path,
        expected: Option<&Payload>,
        bytes: usize,
        clear: impl Fn() -> Result<(), IndexError>,
    ) -> Result<Claim, IndexError> {
        let directory = MmapDirectory::open(path).map_err(TantivyError::from)?;
        let mut index = match Index::open(directory.clone()) {
            Ok(index) if index.schema() == schema().0 => index,
            _ if expected.is_some() => return Ok(Claim::Overtaken),
            _ => match directory.acquire_lock(&INDEX_WRITER_LOCK) {
                Err(LockError::LockBusy) => return Ok(Claim::Busy),
                lock => {
                    let _lock = lock.map_err(TantivyError::from)?;
                    clear()?;
                    Index::create(directory, schema().0, IndexSettings::default())?
                }
            },
        };
        index.set_tokenizers(tokenizers());
        let options = IndexWriterOptions::builder()
            .num_worker_threads(1)
            .num_merge_threads(1)
            .memory_budget_per_thread(bytes)
            .build();
        let writer = match index.writer_with_options(options) {
            Err(TantivyError::LockFailure(LockError::LockBusy, _)) => return Ok(Claim::Busy),
            writer => writer?,
        };
        let (_, doc, keys) = schema();
        let found = index.load_metas()?.payload.map(|payload| Payload::parse(&payload));
        match found {
            None if expected.is_none() => {}
            Some(Ok(found)) if Some(&found) == expected => {}
            _ => return Ok(Claim::Overtaken),
        }
        Ok(Claim::Writer(Box::new(Writer { writer, doc, keys })))
    }

    /// Calls `clear` unless somebody is writing there, who will see to it.
    pub fn discard(path: &Path, clear: impl FnOnce() -> Result<(), IndexError>) {
        let Ok(directory) = MmapDirectory::open(path) else { return };
        if let Ok(_lock) = directory.acquire_lock(&INDEX_WRITER_LOCK)
            && let Err(error) = clear()
        {
            tracing::warn!(%error, "files of a useless index stay");
        }
    }

    /// Adds a document by its keys, which have blanks between them.
    pub fn add(&self, doc: Doc, keys: String) -> Result<(), IndexError> {
        let mut document = TantivyDocument::default();
        document.add_u64(self.doc, u64::from(doc));
        document.add_text(self.keys, keys);
        self.writer.add_document(document)?;
        Ok(())
    }

    /// Makes everything so, in one step, and merges what should be merged.
    pub fn finish(mut self, payload: &Payload) -> Result<(), IndexError> {
        let mut commit = self.writer.prepare_commit()?;
        commit.set_payload(&payload.to_text());
        commit.commit()?;
        if let Err(error) = self.writer.wait_merging_threads() {
            tracing::warn!(%error, "segments of the text index were not merged");
        }
        Ok(())
    }
}
