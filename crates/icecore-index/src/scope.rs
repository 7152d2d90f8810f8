//! One scope: feeding it, committing it, starting it anew.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use icecore_domain::embed::{ModelId, Vector};

use crate::codec::{self, Cursor};
use crate::columns::Record;
use crate::disk::{Files, Loaded};
use crate::document::{Doc, Document, keys};
use crate::error::IndexError;
use crate::payload::{FORMAT, Payload, Prefix, RowsPayload};
use crate::rows::{Effort, Rows};
use crate::segments::{Claim, Segments, Unusable, Writer};
use crate::settings::IndexSettings;
use crate::snapshot::{Snapshot, check_dims};
use crate::tail::Tail;
use crate::watermark::Watermark;

/// Documents that follow what an index reflects.
#[derive(Debug, Clone)]
pub struct Batch {
    /// What the index reflected when the documents were gathered.
    pub from: Watermark,
    pub to: Watermark,
    /// Who made the vectors; `None` where the documents have none, so that they
    /// wait for [`ScopeIndex::push_vectors`].
    pub model: Option<ModelId>,
    /// What to add, in order.
    pub documents: Vec<Document>,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Push {
    /// Its documents can be found.
    Done,
    /// The index does not stand at the batch's `from` any more: somebody else
    /// fed or committed. Nothing was added; gather again from the watermark.
    Stale,
}

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// What was fed before is on disk.
    Done,
    /// Somebody else is writing; what was fed stays in memory and is found.
    Busy,
    /// Not worth files yet.
    TooSmall,
    /// Somebody else committed first. What was fed and not committed is
    /// forgotten here; feed again from the watermark.
    Overtaken,
}

/// The index of one scope.
///
/// All methods block; none may be called by a thread that holds what
/// [`read`](Self::read) gave.
#[derive(Debug)]
pub struct ScopeIndex {
    settings: IndexSettings,
    state: RwLock<Snapshot>,
    /// Locked while what is committed changes; before `state`.
    disk: Mutex<Disk>,
}

/// What writing to disk needs to know.
#[derive(Debug)]
struct Disk {
    /// None where everything stays in memory.
    files: Option<Files>,
    /// What the columns' next bytes follow.
    cursor: Cursor,
}

/// More than this many terms a document are counted as several documents, so
/// that long texts do not fill the memory.
const TERMS_PER_DOC: usize = 100;

/// Documents are handed to the writer in parts, so that feeding waits little.
const WRITE_DOCS: usize = 256;

impl ScopeIndex {
    /// Opens what is committed, if it can be trusted; else begins anew.
    pub(crate) fn open(files: Option<Files>, settings: IndexSettings) -> Self {
        let effort = Effort { exact_rows: settings.exact_rows, rescore: settings.rescore };
        let empty = Snapshot::empty(Watermark::default(), None, effort);
        let disk = Disk { files, cursor: Cursor::default() };
        let index = Self { settings, state: RwLock::new(empty), disk: Mutex::new(disk) };
        index.load(&mut index.lock());
        index
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces everything by what is committed.
    fn load(&self, disk: &mut Disk) {
        let Some(files) = &disk.files else { return };
        match files.load(self.settings.memory_rows) {
            Ok(loaded) => self.adopt(disk, loaded),
            Err(unusable) => {
                if let Unusable::Damaged(reason) = unusable {
                    let path = files.text();
                    tracing::warn!(%reason, path = %path.display(), "an index is built anew");
                    Writer::discard(&path, || files.clear());
                }
                let mut state = self.write();
                *state = Snapshot::empty(Watermark::default(), None, state.effort);
                disk.cursor = Cursor::default();
            }
        }
    }

    fn adopt(&self, disk: &mut Disk, loaded: Loaded) {
        let Loaded { payload, segments, columns, cursor, rows } = loaded;
        let mut state = self.write();
        *state = Snapshot {
            columns,
            rows,
            rows_file: payload.rows_file,
            segments,
            tail: Tail::default(),
            watermark: payload.watermark(),
            committed: Some(payload),
            effort: state.effort,
        };
        disk.cursor = cursor;
    }

    /// What can be found now. Feeding waits while the guard lives.
    pub fn read(&self) -> RwLockReadGuard<'_, Snapshot> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Snapshot> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn watermark(&self) -> Watermark {
        self.read().watermark
    }

    /// What of it is on disk.
    pub fn committed_watermark(&self) -> Watermark {
        self.read().committed_watermark()
    }

    /// About how many bytes of memory it takes. One that is being changed right now tells
    /// none: it is in use, and to wait for it would hold up others.
    pub fn memory_bytes(&self) -> usize {
        self.state.try_read().map_or(0, |state| {
            let rows = state.rows.as_ref().map_or(0, Rows::memory_bytes);
            rows + state.columns.memory_bytes() + state.tail.memory_bytes()
        })
    }

    /// How many documents are not committed.
    pub fn uncommitted(&self) -> usize {
        self.read().tail.len()
    }

    /// Whether so much is not committed that a search should commit first.
    pub fn tail_is_full(&self) -> bool {
        let (tail, most) = (&self.read().tail, self.settings.tail_most);
        tail.len() > most || tail.posting_count() > most.saturating_mul(TERMS_PER_DOC)
    }

    /// Adds documents; once this returns they are found.
    ///
    /// Fails on another epoch or model than the index's and on vectors that the
    /// model cannot have made; then nothing was added. An empty index takes any
    /// model. While documents before these wait for vectors, theirs wait too.
    pub fn push(&self, batch: Batch) -> Result<Push, IndexError> {
        let Batch { from, to, model, documents } = batch;
        check_vectors(model.as_ref(), documents.iter().flat_map(|document| &document.vectors))?;
        if from.epoch == to.epoch && !to.covers(&from) {
            return Err(IndexError::Backwards);
        }
        // The costly part comes before the lock.
        let prepared: Vec<Prepared> = documents.into_iter().map(Prepared::new).collect();

        let mut state = self.write();
        if to.epoch != state.watermark.epoch {
            return Err(IndexError::Epoch { have: state.watermark.epoch, given: to.epoch });
        }
        if from != state.watermark {
            return Ok(Push::Stale);
        }
        if state.columns.len() + prepared.len() > u32::MAX as usize {
            return Err(IndexError::Full);
        }
        let with_vectors = accept_model(&mut state, model)?;
        for document in prepared {
            document.add_to(&mut state, with_vectors);
        }
        state.watermark = to;
        Ok(Push::Done)
    }

    /// Begins the vectors anew, by `model` or not at all; words and columns stay.
    /// Those on disk stay until the next commit.
    pub fn rows_reset(&self, model: Option<ModelId>) -> Result<(), IndexError> {
        let _disk = self.lock();
        let mut state = self.write();
        state.rows = model.map(Rows::new);
        state.rows_file = state.rows_file.wrapping_add(1);
        Ok(())
    }

    /// The vectors of the documents from `first` on, which must be the first
    /// without: [`Snapshot::docs_with_vectors`]. Those beyond the last document
    /// are left out.
    pub fn push_vectors(
        &self,
        first: Doc,
        model: &ModelId,
        vectors: &[Vec<Vector>],
    ) -> Result<(), IndexError> {
        check_vectors(Some(model), vectors.iter().flatten())?;
        let mut state = self.write();
        let doc_count = state.columns.len();
        let rows = match &mut state.rows {
            Some(rows) if rows.model() == model => rows,
            other => return Err(other_model(other.as_ref().map(Rows::model), Some(model))),
        };
        let due = rows.doc_count() as Doc;
        if due != first {
            return Err(IndexError::VectorOrder { due, given: first });
        }
        vectors.iter().take(doc_count - due as usize).for_each(|vectors| rows.push(vectors));
        Ok(())
    }

    /// Forgets everything, deletes its files, and begins `epoch`.
    pub fn reset(&self, epoch: u64, model: Option<ModelId>) -> Result<(), IndexError> {
        let mut disk = self.lock();
        let mut state = self.write();
        *state = Snapshot::empty(Watermark::start(epoch), model, state.effort);
        disk.cursor = Cursor::default();
        match &disk.files {
            Some(files) => files.delete(),
            None => Ok(()),
        }
    }

    /// Looks whether somebody else committed. If so, takes what they committed,
    /// forgets what was fed here and not committed, and says `true`: feed again
    /// from the watermark.
    pub fn refresh(&self) -> Result<bool, IndexError> {
        let mut disk = self.lock();
        let Some(files) = &disk.files else { return Ok(false) };
        let found = Segments::payload(&files.text());
        // Files that cannot be read now are looked into when they are written.
        let Ok(found) = found else { return Ok(false) };
        if self.read().committed == found {
            return Ok(false);
        }
        self.load(&mut disk);
        Ok(true)
    }

    /// Puts what was fed on disk. Searches go on meanwhile, and so does feeding;
    /// what is fed now waits for the next commit.
    pub fn commit(&self) -> Result<Commit, IndexError> {
        let mut disk = self.lock();
        let Some(files) = disk.files.clone() else { return Ok(Commit::TooSmall) };
        let Some(plan) = Plan::new(&self.read(), disk.cursor, self.settings.tail_docs) else {
            return Ok(Commit::TooSmall);
        };
        files.create()?;
        let claim =
            Writer::claim(&files.text(), plan.before.as_ref(), self.settings.writer_bytes, || {
                files.clear()
            })?;
        let writer = match claim {
            Claim::Writer(writer) => writer,
            Claim::Busy => return Ok(Commit::Busy),
            Claim::Overtaken => {
                self.load(&mut disk);
                return Ok(Commit::Overtaken);
            }
        };
        let payload = plan.append(&files)?;
        self.write_texts(&writer, plan.docs - plan.first)?;
        writer.finish(&payload)?;
        match Segments::open(&files.text(), false) {
            Ok((segments, found)) if found == payload => {
                disk.cursor = plan.cursor;
                self.take_over(&files, segments, payload)?;
                Ok(Commit::Done)
            }
            // Somebody else committed already after us.
            _ => {
                self.load(&mut disk);
                Ok(Commit::Overtaken)
            }
        }
    }

    fn write_texts(&self, writer: &Writer, count: usize) -> Result<(), IndexError> {
        for start in (0..count).step_by(WRITE_DOCS) {
            let texts = self.read().tail.texts(start..count.min(start + WRITE_DOCS));
            texts.into_iter().try_for_each(|(doc, text)| writer.add(doc, text))?;
        }
        Ok(())
    }

    /// From now on the committed documents are read from disk.
    fn take_over(
        &self,
        files: &Files,
        segments: Segments,
        payload: Payload,
    ) -> Result<(), IndexError> {
        files.keep_rows(payload.rows.as_ref().map(|_| payload.rows_file));
        let stored = match &payload.rows {
            Some(told) if told.count > self.settings.memory_rows => {
                Some((files.open_rows(payload.rows_file)?, told.count))
            }
            _ => None,
        };
        let mut state = self.write();
        let rest = state.tail.from(payload.docs as Doc);
        let done = std::mem::replace(&mut state.tail, rest);
        state.segments = segments;
        if let (Some(rows), Some((file, count))) = (&mut state.rows, stored) {
            rows.store(file, count);
        }
        state.committed = Some(payload);
        // Freeing many small parts takes time that no reader should wait for.
        drop(state);
        drop(done);
        Ok(())
    }
}

/// What a commit will add, as of the moment it began.
struct Plan {
    before: Option<Payload>,
    /// Documents from here to before `docs` are added.
    first: usize,
    docs: usize,
    watermark: Watermark,
    columns: Vec<u8>,
    cursor: Cursor,
    rows_file: u32,
    rows: Option<PlannedRows>,
}

struct PlannedRows {
    model: ModelId,
    docs: usize,
    count: usize,
    after: Prefix,
    bytes: Vec<u8>,
}

impl Plan {
    /// None where there is too little to write.
    fn new(state: &Snapshot, mut cursor: Cursor, least: usize) -> Option<Plan> {
        let before = state.committed.clone();
        let first = before.as_ref().map_or(0, |before| before.docs);
        let docs = state.columns.len();
        let anew = before.as_ref().is_some_and(|before| before.rows_file != state.rows_file);
        let told = before.as_ref().filter(|_| !anew).and_then(|before| before.rows.as_ref());
        let vectors = state.docs_with_vectors() as usize - told.map_or(0, |told| told.docs);
        // The last vectors of a new model are worth a commit, however few.
        let completed = vectors > docs - first && state.docs_with_vectors() as usize == docs;
        if (docs - first).max(vectors) < least && !(before.is_some() && (anew || completed)) {
            return None;
        }
        let columns = codec::encode(&state.columns, first as Doc, docs as Doc, &mut cursor);
        let rows = state.rows.as_ref().map(|rows| PlannedRows::new(rows, told));
        let (watermark, rows_file) = (state.watermark, state.rows_file);
        Some(Plan { before, first, docs, watermark, columns, cursor, rows_file, rows })
    }

    /// Writes columns and vectors; returns what makes them count.
    fn append(&self, files: &Files) -> Result<Payload, IndexError> {
        let before = self.before.as_ref();
        let after = before.map(|before| before.columns).unwrap_or_default();
        let columns = files.append_columns(after, &self.columns)?;
        let rows = match &self.rows {
            Some(rows) => Some(rows.append(files, self.rows_file)?),
            None => None,
        };
        Ok(Payload {
            format: FORMAT,
            epoch: self.watermark.epoch,
            position: self.watermark.position.0,
            summaries: self.watermark.summaries,
            facts: self.watermark.facts,
            generation: before.map_or(1, |before| before.generation + 1),
            docs: self.docs,
            columns,
            rows_file: self.rows_file,
            rows,
        })
    }
}

impl PlannedRows {
    fn new(rows: &Rows, told: Option<&RowsPayload>) -> Self {
        let (docs, count) = (rows.doc_count(), rows.row_count());
        let after = told.map(|told| told.prefix(rows.stride())).unwrap_or_default();
        let bytes = rows.encode(told.map_or(0, |told| told.count), count);
        Self { model: rows.model().clone(), docs, count, after, bytes }
    }

    fn append(&self, files: &Files, number: u32) -> Result<RowsPayload, IndexError> {
        let written = files.append_rows(number, self.after, &self.bytes)?;
        Ok(RowsPayload::new(&self.model, self.docs, self.count, written.crc))
    }
}

/// A document after analysis.
struct Prepared {
    record: Record,
    keys: Vec<String>,
    vectors: Vec<Vector>,
}

impl Prepared {
    fn new(document: Document) -> Self {
        let (keys, length) = keys(&document);
        let Document { source, at, role, speaker, signs, vectors, .. } = document;
        Self { record: Record { source, at, role, speaker, signs, length }, keys, vectors }
    }

    fn add_to(self, state: &mut Snapshot, with_vectors: bool) {
        let doc = state.columns.push(self.record);
        state.tail.push(doc, &self.keys);
        if let Some(rows) = &mut state.rows
            && with_vectors
        {
            rows.push(&self.vectors);
        }
    }
}

fn check_vectors<'a>(
    model: Option<&ModelId>,
    vectors: impl Iterator<Item = &'a Vector>,
) -> Result<(), IndexError> {
    let mut vectors = vectors.peekable();
    match model {
        Some(model) => vectors.try_for_each(|vector| check_dims(model, vector)),
        None if vectors.peek().is_some() => Err(IndexError::NoModel),
        None => Ok(()),
    }
}

/// Whether the next documents bring their vectors; not when those before them
/// still wait for theirs.
fn accept_model(state: &mut Snapshot, model: Option<ModelId>) -> Result<bool, IndexError> {
    let Some(model) = model else { return Ok(false) };
    if state.doc_count() == 0 && state.model() != Some(&model) {
        state.rows = Some(Rows::new(model));
    } else if state.model() != Some(&model) {
        return Err(other_model(state.model(), Some(&model)));
    }
    Ok(state.docs_with_vectors() == state.doc_count())
}

fn other_model(have: Option<&ModelId>, given: Option<&ModelId>) -> IndexError {
    let boxed = |model: Option<&ModelId>| model.cloned().map(Box::new);
    IndexError::OtherModel { have: boxed(have), given: boxed(given) }
}
