//! Conversations in: Turn JSONL, plain or compressed, and the older archives.
//!
//! A file is read twice. The first reading checks every line, against the rules
//! and against what is stored, so that a bad line is refused before anything is
//! written. The second appends in batches; killed at any point, running it again
//! goes on where it stopped, for every turn is recognised. A pipe, which gives its
//! lines only once, is taken into memory first.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use icecore_domain::identity::IdentityKey;
use icecore_domain::ids::{Scope, Seq, SessionName, SessionNo, TurnId};
use icecore_domain::json::{JsonText, brief};
use icecore_domain::redact::Redactor;
use icecore_domain::turn::{RawTurn, Timestamp};
use icecore_domain::turn_jsonl::{self, TurnLine};
use icecore_store::{StoreError, TurnQuery};

use crate::error::{MemoryError, Result, off_thread};
use crate::ingest::Append;
use crate::ingest::Ingest;
use crate::ingest::Remembered;
use crate::ingest::TurnInput;
use crate::privacy::session_name;

/// Turns without an id that are already there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// The nth with its body is the nth stored: a second import adds nothing.
    Recognise,
    /// Each is new: how an agent adds what it just heard.
    Add,
}

/// What to import and how.
#[derive(Debug, Clone)]
pub struct ImportPlan {
    /// The session of lines that name none.
    pub session: String,
    /// Adds turns even if they were forgotten.
    pub insist: bool,
    /// What to do with repeated turns.
    pub repeat: Repeat,
}

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportReport {
    /// Lines read.
    pub lines: u64,
    /// Turns added.
    pub added: u64,
    /// Turns that were there.
    pub known: u64,
    /// Turns that were forgotten earlier and stay so.
    pub forgotten: u64,
    /// Whether it was asked to stop before the end.
    pub stopped: bool,
    /// Under [`Repeat::Add`], the turns' ids in order; an import of a large file
    /// would hold too many.
    pub turn_ids: Vec<String>,
    /// The smallest and the largest `seq` among them.
    pub seqs: Option<(Seq, Seq)>,
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// So many lines were checked.
    Checked(u64),
    /// So many of so many lines were taken in.
    Stored(u64, u64),
}

/// Turns appended in one step.
const BATCH_TURNS: usize = 1000;

/// Bytes appended in one step, about.
const BATCH_BYTES: usize = 4 << 20;

/// A line longer than this is refused unread.
const MAX_LINE_BYTES: usize = 8 << 20;

/// What comes through a pipe is held in memory, up to this.
const MAX_PIPE_BYTES: u64 = 1 << 30;

impl Ingest {
    /// Imports a file. `tell` hears how far it is and answers whether to go on.
    pub async fn import(
        &self,
        scope: &Scope,
        path: &Path,
        plan: &ImportPlan,
        mut tell: impl FnMut(Progress) -> bool,
    ) -> Result<ImportReport> {
        let path = path.to_owned();
        let source = off_thread(move || Source::of_path(path)).await??;
        self.import_source(scope, source, plan, &mut tell).await
    }

    /// Imports JSONL that is already in memory, such as standard input.
    pub async fn import_text(
        &self,
        scope: &Scope,
        name: &str,
        text: Vec<u8>,
        plan: &ImportPlan,
        mut tell: impl FnMut(Progress) -> bool,
    ) -> Result<ImportReport> {
        let source = Source::Text(name.to_owned(), SharedBytes(Arc::new(text)));
        self.import_source(scope, source, plan, &mut tell).await
    }

    #[tracing::instrument(name = "import", skip_all)]
    async fn import_source(
        &self,
        scope: &Scope,
        source: Source,
        plan: &ImportPlan,
        tell: &mut impl FnMut(Progress) -> bool,
    ) -> Result<ImportReport> {
        let imported = self.check_and_store(scope, source, plan, tell).await;
        imported.map_err(|error| self.without_secrets(scope, error))
    }

    /// What is wrong with a line may quote it: ids, keys, a timestamp. All such
    /// errors leave an import through here.
    fn without_secrets(&self, scope: &Scope, error: MemoryError) -> MemoryError {
        match error {
            MemoryError::Line { file, line, reason } => {
                let reason = self.shown(scope.tenant(), &reason).into_string();
                MemoryError::Line { file, line, reason }
            }
            other => other,
        }
    }

    async fn check_and_store(
        &self,
        scope: &Scope,
        source: Source,
        plan: &ImportPlan,
        tell: &mut impl FnMut(Progress) -> bool,
    ) -> Result<ImportReport> {
        let Some(lines) = self.check_source(scope, &source, plan, tell).await? else {
            return Ok(ImportReport { stopped: true, ..ImportReport::default() });
        };
        let mut report = ImportReport { lines, ..ImportReport::default() };
        let mut counts = Occurrences::new(self.identity_key(scope.tenant()).await?, plan.repeat);
        let mut reader = source.open()?;
        let mut done = 0;
        loop {
            let default_session = plan.session.clone();
            let (read, batch);
            (reader, counts, read, batch) = off_thread(move || {
                let mut counts = counts;
                let (read, batch) = next_batch(&mut reader, &default_session, &mut counts);
                (reader, counts, read, batch)
            })
            .await?;
            let read = read?;
            if read == 0 {
                break;
            }
            for Run { session, turns, lines } in batch {
                let append = Append { session, turns, insist: plan.insist, claim: None };
                let remembered =
                    self.append(scope, append).await.map_err(|error| source.at(&lines, error))?;
                report.added += remembered.added as u64;
                report.known += remembered.known as u64;
                report.forgotten += remembered.forgotten as u64;
                if plan.repeat == Repeat::Add {
                    report.note(remembered);
                }
            }
            done += read;
            if !tell(Progress::Stored(done, lines)) {
                report.stopped = done < lines;
                break;
            }
        }
        if !report.stopped && done != lines {
            return Err(source.failed(format!(
                "it changed while it was read: {lines} turns were checked and {done} taken in; import it again"
            )));
        }
        Ok(report)
    }

    /// Checks every line; answers how many there are, or nothing if it was asked
    /// to stop.
    async fn check_source(
        &self,
        scope: &Scope,
        source: &Source,
        plan: &ImportPlan,
        tell: &mut impl FnMut(Progress) -> bool,
    ) -> Result<Option<u64>> {
        let key = self.identity_key(scope.tenant()).await?;
        let redactor = self.redactor(scope.tenant()).await?.redactor;
        let mut checker =
            Checker { key, redactor, sessions: BTreeMap::new(), ids: BTreeMap::new() };
        let mut reader = source.open()?;
        let mut lines = 0;
        loop {
            let (returned, page);
            (returned, page) = off_thread(move || {
                let page = read_page(&mut reader);
                (reader, page)
            })
            .await?;
            reader = returned;
            let page = page?;
            if page.is_empty() {
                return Ok(Some(lines));
            }
            for line in &page {
                self.check_line(scope, source, plan, &mut checker, line).await?;
            }
            lines += page.len() as u64;
            if !tell(Progress::Checked(lines)) {
                return Ok(None);
            }
        }
    }

    /// Refuses a line that the store would refuse later.
    async fn check_line(
        &self,
        scope: &Scope,
        source: &Source,
        plan: &ImportPlan,
        checker: &mut Checker,
        line: &Line,
    ) -> Result<()> {
        let refuse = |reason: String| source.line(line.number, reason);
        let name = line.turn.session.as_deref().unwrap_or(&plan.session);
        let name =
            session_name(&checker.redactor, name).map_err(|error| refuse(error.to_string()))?;
        let session = self.checked_session(scope, checker, &name).await?;
        let stored = session.stored;
        let turn = &line.turn.turn;
        // Hidden before it is shortened: half a credential is not known as one.
        let redactor = checker.redactor.clone();
        let shown = |id: &str| brief(redactor.text(id).as_str());
        for parent in turn.parent_ids.iter().flatten() {
            if turn.id.as_ref() == Some(parent) {
                return Err(refuse(format!("turn `{}` is its own parent: a cycle", shown(parent))));
            }
            let lookup = checker.key.lookup_of_id(parent);
            let known = checker.ids.contains_key(&(session.number, lookup))
                || self.is_stored(scope, stored, parent, lookup).await?;
            if !known {
                let reason = match checker.is_later(source, plan, &name, line.number, lookup)? {
                    true => format!(
                        "parent `{}` comes after its child, or their parents form a cycle; put parents first",
                        shown(parent)
                    ),
                    false => {
                        format!("parent `{}` does not exist in session `{name}`", shown(parent))
                    }
                };
                return Err(refuse(reason));
            }
        }
        let Some(id) = &turn.id else { return Ok(()) };
        let identity = checker.key.identify(turn);
        let conflict =
            || refuse(format!("turn `{}` stands in session `{name}` with another body", shown(id)));
        match checker.ids.insert((session.number, identity.lookup), identity.body) {
            Some(body) if body != identity.body => return Err(conflict()),
            Some(_) => {}
            None => {
                if let Some(session) = stored {
                    let rows = self.store.turns_by_lookup(scope, session, identity.lookup).await?;
                    let other = |row: &icecore_store::TurnRow| {
                        row.has_client_id
                            && row.state != icecore_store::TurnState::Erased
                            && row.identity.body != identity.body
                    };
                    if rows.iter().any(other) {
                        return Err(conflict());
                    }
                }
            }
        }
        Ok(())
    }

    async fn checked_session(
        &self,
        scope: &Scope,
        checker: &mut Checker,
        name: &SessionName,
    ) -> Result<CheckedSession> {
        if let Some(known) = checker.sessions.get(name) {
            return Ok(*known);
        }
        let stored = self.store.session(scope, name).await?.map(|record| record.no);
        let session = CheckedSession { number: checker.sessions.len(), stored };
        checker.sessions.insert(name.clone(), session);
        Ok(session)
    }

    /// Whether the store would find this parent.
    async fn is_stored(
        &self,
        scope: &Scope,
        session: Option<SessionNo>,
        id: &str,
        lookup: i64,
    ) -> Result<bool> {
        let Some(session) = session else { return Ok(false) };
        let named = self.store.turns_by_lookup(scope, session, lookup).await?;
        if named.iter().any(|row| row.has_client_id) {
            return Ok(true);
        }
        let Some(ours) = TurnId::parse(id).filter(|ours| ours.session == session) else {
            return Ok(false);
        };
        let after = Seq(ours.seq.0.saturating_sub(1));
        let query = TurnQuery { after, through: ours.seq, ..TurnQuery::all(session, 1) };
        Ok(!self.store.turns(scope, &query).await?.is_empty())
    }
}

impl ImportReport {
    fn note(&mut self, remembered: Remembered) {
        let (first, last) = (remembered.first_seq, remembered.last_seq);
        self.seqs = Some(match self.seqs {
            Some((least, most)) => (least.min(first), most.max(last)),
            None => (first, last),
        });
        self.turn_ids.extend(remembered.turn_ids);
    }
}

/// What the first reading remembers.
struct Checker {
    key: IdentityKey,
    redactor: Redactor,
    sessions: BTreeMap<SessionName, CheckedSession>,
    /// Ids seen, by their session's number among those seen, with their bodies'
    /// hashes. There is one for each turn of the file, so they are small.
    ids: BTreeMap<(usize, i64), [u8; 16]>,
}

/// A session of the file.
#[derive(Debug, Clone, Copy)]
struct CheckedSession {
    /// Which one in the order they were seen.
    number: usize,
    /// Its number in the store, where it is there.
    stored: Option<SessionNo>,
}

impl Checker {
    /// Whether a later line of the same session has the id.
    fn is_later(
        &self,
        source: &Source,
        plan: &ImportPlan,
        session: &SessionName,
        after: u64,
        lookup: i64,
    ) -> Result<bool> {
        let mut reader = source.open()?;
        loop {
            let page = read_page(&mut reader)?;
            if page.is_empty() {
                return Ok(false);
            }
            let bears = |line: &&Line| {
                let name = line.turn.session.as_deref().unwrap_or(&plan.session);
                line.number > after
                    && session_name(&self.redactor, name).as_ref().ok() == Some(session)
                    && line
                        .turn
                        .turn
                        .id
                        .as_ref()
                        .is_some_and(|id| self.key.lookup_of_id(id) == lookup)
            };
            if page.iter().any(|line| bears(&line)) {
                return Ok(true);
            }
        }
    }
}

/// Counts turns without id that have the same body, by session.
struct Occurrences {
    key: IdentityKey,
    repeat: Repeat,
    /// Sessions seen, numbered.
    sessions: BTreeMap<String, usize>,
    seen: BTreeMap<(usize, [u8; 16]), u32>,
}

impl Occurrences {
    fn new(key: IdentityKey, repeat: Repeat) -> Self {
        Self { key, repeat, sessions: BTreeMap::new(), seen: BTreeMap::new() }
    }

    fn next(&mut self, session: &str, turn: &RawTurn) -> u32 {
        if turn.id.is_some() || self.repeat == Repeat::Add {
            return 0;
        }
        let body = self.key.identify(turn).body;
        let number = match self.sessions.get(session) {
            Some(number) => *number,
            None => {
                let number = self.sessions.len();
                self.sessions.insert(session.to_owned(), number);
                number
            }
        };
        let count = self.seen.entry((number, body)).or_default();
        *count += 1;
        *count
    }
}

/// Consecutive lines of one session.
struct Run {
    session: String,
    turns: Vec<TurnInput>,
    /// Their line numbers.
    lines: Vec<u64>,
}

/// Lines up to a batch's size, and how many they are.
fn next_batch(
    reader: &mut Lines,
    default_session: &str,
    counts: &mut Occurrences,
) -> (Result<u64>, Vec<Run>) {
    let mut batch: Vec<Run> = Vec::new();
    let (mut read, mut bytes) = (0, 0);
    while read < BATCH_TURNS as u64 && bytes < BATCH_BYTES {
        let line = match reader.next_line() {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(error) => return (Err(error), batch),
        };
        read += 1;
        bytes += line.turn.turn.byte_count();
        let session_given = line.turn.session.is_some();
        let session = line.turn.session.unwrap_or_else(|| default_session.to_owned());
        let occurrence = counts.next(&session, &line.turn.turn);
        let input = TurnInput { turn: line.turn.turn, occurrence, session_given };
        match batch.last_mut().filter(|run| run.session == session) {
            Some(run) => {
                run.turns.push(input);
                run.lines.push(line.number);
            }
            None => batch.push(Run { session, turns: vec![input], lines: vec![line.number] }),
        }
    }
    (Ok(read), batch)
}

/// Lines up to a batch's size.
fn read_page(reader: &mut Lines) -> Result<Vec<Line>> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    while page.len() < BATCH_TURNS && bytes < BATCH_BYTES {
        let Some(line) = reader.next_line()? else { break };
        bytes += line.turn.turn.byte_count();
        page.push(line);
    }
    Ok(page)
}

/// Where lines come from; can be read more than once.
#[derive(Debug, Clone)]
enum Source {
    File(PathBuf),
    Text(String, SharedBytes),
}

/// Bytes that several readers may read without a copy of their own.
#[derive(Debug, Clone)]
struct SharedBytes(Arc<Vec<u8>>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Source {
    /// The file at `path`; what is no file on a disk gives its bytes only once,
    /// so they are taken now.
    fn of_path(path: PathBuf) -> Result<Self> {
        let is_pipe = std::fs::metadata(&path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir());
        let source = Source::File(path);
        if !is_pipe {
            return Ok(source);
        }
        let bytes = read_once(source.reader()?, MAX_PIPE_BYTES)
            .map_err(|error| source.failed(error.to_string()))?;
        Ok(Source::Text(source.name(), SharedBytes(Arc::new(bytes))))
    }

    fn failed(&self, reason: String) -> MemoryError {
        MemoryError::File { file: self.name(), reason }
    }

    fn name(&self) -> String {
        match self {
            Source::File(path) => path.display().to_string(),
            Source::Text(name, _) => name.clone(),
        }
    }

    fn line(&self, line: u64, reason: String) -> MemoryError {
        MemoryError::Line { file: self.name(), line, reason }
    }

    /// Names the line of an error that a run gave.
    fn at(&self, lines: &[u64], error: MemoryError) -> MemoryError {
        let index = match &error {
            MemoryError::Turn { index, .. } => *index,
            MemoryError::Store(
                StoreError::Conflict { index, .. }
                | StoreError::NoParent { index, .. }
                | StoreError::Cycle { index, .. }
                | StoreError::ParentLater { index, .. },
            ) => *index,
            _ => return error,
        };
        self.line(lines.get(index).copied().unwrap_or_default(), error.to_string())
    }

    fn open(&self) -> Result<Lines> {
        Ok(Lines {
            reader: BufReader::new(self.reader()?),
            name: self.name(),
            number: 0,
            waiting: Vec::new(),
        })
    }

    fn reader(&self) -> Result<Box<dyn Read + Send>> {
        let path = match self {
            Source::Text(_, bytes) => return Ok(Box::new(std::io::Cursor::new(bytes.clone()))),
            Source::File(path) => path,
        };
        let file = std::fs::File::open(path).map_err(|error| self.failed(error.to_string()))?;
        if file.metadata().is_ok_and(|meta| meta.is_dir()) {
            return Err(self.failed("it is a directory; name the files in it".to_owned()));
        }
        decompress(path, file).map_err(|error| self.failed(error.to_string()))
    }
}

/// All that `reader` gives, if it is at most `most` bytes.
fn read_once(reader: impl Read, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(std::io::Error::other(format!(
            "it is a pipe and gives more than {most} bytes, which are held in memory; write it to a file and import that"
        )));
    }
    Ok(bytes)
}

fn decompress(path: &Path, file: std::fs::File) -> std::io::Result<Box<dyn Read + Send>> {
    Ok(match path.extension().and_then(|extension| extension.to_str()) {
        Some("gz") => Box::new(flate2::read::MultiGzDecoder::new(file)),
        Some("zst") => Box::new(zstd::stream::read::Decoder::new(file)?),
        _ => Box::new(file),
    })
}

/// A line with its number.
#[derive(Debug)]
struct Line {
    number: u64,
    turn: TurnLine,
}

/// Reads lines of any of the forms we know.
struct Lines {
    reader: BufReader<Box<dyn Read + Send>>,
    name: String,
    number: u64,
    /// Turns of an archive's document that are still to be given.
    waiting: Vec<TurnLine>,
}

impl Lines {
    fn refuse(&self, reason: impl Into<String>) -> MemoryError {
        MemoryError::Line { file: self.name.clone(), line: self.number, reason: reason.into() }
    }

    fn next_line(&mut self) -> Result<Option<Line>> {
        loop {
            if let Some(turn) = self.waiting.pop() {
                return Ok(Some(Line { number: self.number, turn }));
            }
            let mut bytes = Vec::new();
            self.number += 1;
            let mut limited = (&mut self.reader).take(MAX_LINE_BYTES as u64 + 1);
            limited
                .read_until(b'\n', &mut bytes)
                .map_err(|error| self.refuse(error.to_string()))?;
            if bytes.is_empty() {
                return Ok(None);
            }
            if bytes.len() > MAX_LINE_BYTES {
                return Err(self.refuse(
                    "the line is longer than 8 MiB, and a turn's content is at most 1 MiB",
                ));
            }
            let text = std::str::from_utf8(&bytes).map_err(|error| {
                self.refuse(format!("not valid UTF-8 at byte {}", error.valid_up_to() + 1))
            })?;
            if text.trim().is_empty() {
                continue;
            }
            match read_archive(text) {
                Some(turns) => {
                    self.waiting = turns.map_err(|reason| self.refuse(reason))?;
                    self.waiting.reverse();
                }
                None => {
                    // The parser sees one line only; which one it is, we say.
                    let turn =
                        turn_jsonl::parse_line(text.trim_end_matches('\n')).map_err(|error| {
                            self.refuse(error.to_string().replace(" at line 1 ", " at "))
                        })?;
                    return Ok(Some(Line { number: self.number, turn }));
                }
            }
        }
    }
}

/// The turns of an archived chunk of the older form, a document with
/// `chunk_id` and `turns`; `None` if the line is something else.
fn read_archive(text: &str) -> Option<std::result::Result<Vec<TurnLine>, String>> {
    if !text.contains("\"chunk_id\"") {
        return None;
    }
    let document: serde_json::Value = serde_json::from_str(text).ok()?;
    let turns = document.get("turns")?.as_array()?;
    let chunk = document.get("chunk_id")?.as_str()?;
    Some(turns.iter().enumerate().map(|(at, turn)| archived_turn(chunk, at, turn)).collect())
}

fn archived_turn(
    chunk: &str,
    at: usize,
    turn: &serde_json::Value,
) -> std::result::Result<TurnLine, String> {
    let refuse =
        |reason: &str| format!("turn {} of archived chunk `{}`: {reason}", at + 1, brief(chunk));
    let text = |key: &str| turn.get(key).and_then(serde_json::Value::as_str);
    let mut raw = RawTurn::new(
        text("turn_type").ok_or_else(|| refuse("`turn_type` is missing"))?,
        text("content").ok_or_else(|| refuse("`content` is missing"))?,
    );
    // The older form has local times without an offset; they are taken as UTC.
    if let Some(time) = text("timestamp").filter(|time| !time.is_empty()) {
        let parsed = Timestamp::parse(time).or_else(|_| Timestamp::parse(format!("{time}Z")));
        raw.timestamp = Some(parsed.map_err(|error| refuse(&error.to_string()))?);
    }
    raw.model = text("model").map(str::to_owned);
    for (key, value) in turn.as_object().into_iter().flatten() {
        let is_taken = match key.as_str() {
            "turn_type" | "content" => true,
            // A null says no more than that there is none.
            "timestamp" | "model" => value.is_string() || value.is_null(),
            _ => false,
        };
        if !is_taken {
            let json =
                JsonText::parse(&value.to_string()).map_err(|error| refuse(&error.to_string()))?;
            raw.extra.push((archived_name(key, turn), json));
        }
    }
    if turn.get("chunk_id").is_none() {
        raw.extra.push(("chunk_id".to_owned(), JsonText::string(chunk)));
    }
    raw.check().map_err(|error| refuse(&error.to_string()))?;
    let line = TurnLine { session: None, turn: raw };
    // Whatever an archive holds, no row may come of it that cannot be read.
    match turn_jsonl::parse_stored(&turn_jsonl::write_fields(&[], &line.turn)) {
        Ok(read) if read == line => Ok(line),
        _ => Err(refuse("its fields cannot be kept as turn JSONL")),
    }
}

/// The name for an archived turn's field. One that means something else in turn
/// JSONL (`role`, `id`) is told apart by a prefix that no other field has.
fn archived_name(key: &str, turn: &serde_json::Value) -> String {
    let mut name = key.to_owned();
    while turn_jsonl::KNOWN_FIELDS.contains(&name.as_str())
        || (name != key && turn.get(&name).is_some())
    {
        name.insert_str(0, "archived_");
    }
    name
}
