//! Getting turns back, from whatever tier they are in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use icecore_domain::chunk::ChunkId;
use icecore_domain::ctf;
use icecore_domain::ids::{Branch, Ordinal, Scope, SessionNo, TurnId};
use icecore_domain::redact::RedactedTurn;
use icecore_domain::turn_jsonl;
use icecore_store::{
    BodyPlace, MicroBody, PackMember, PackReader, PackRecord, StoreError, TextBody, TextFormat,
    TurnRow, TurnState,
};

use crate::base::pieces::in_pieces;
use crate::error::{MemoryError, Result, off_thread};
use crate::layers::Layers;

/// Opened packs are kept up to this many bytes of text: those of about 200,000
/// short turns, so that hits scattered over a long history cost no file each.
const PACK_CACHE_BYTES: usize = 32 << 20;

/// The texts of an opened pack.
#[derive(Default)]
pub(crate) struct PackTexts(BTreeMap<ChunkId, PackMember>);

impl PackTexts {
    fn get(&self, id: &ChunkId) -> Option<&PackMember> {
        self.0.get(id)
    }

    fn byte_count(&self) -> usize {
        self.0.values().map(|member| member.text.len()).sum()
    }
}

/// Packs that were opened lately. A pack never changes, and a body that was
/// erased leads to another pack; [`PackCache::clear`] is for those who want the
/// old text out of memory too.
#[derive(Default)]
pub(crate) struct PackCache(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    packs: BTreeMap<String, (u64, Arc<PackTexts>)>,
    /// Names by when they were last used.
    by_use: BTreeMap<u64, String>,
    uses: u64,
    bytes: usize,
}

impl PackCache {
    fn get(&self, name: &str) -> Option<Arc<PackTexts>> {
        let mut kept = self.0.lock().ok()?;
        let (used, texts) = kept.packs.get(name).cloned()?;
        kept.by_use.remove(&used);
        kept.note(name, texts.clone());
        Some(texts)
    }

    fn put(&self, name: &str, texts: &Arc<PackTexts>) {
        let Ok(mut kept) = self.0.lock() else { return };
        kept.remove(name);
        kept.bytes += texts.byte_count();
        kept.note(name, texts.clone());
        while kept.bytes > PACK_CACHE_BYTES {
            let Some((_, oldest)) = kept.by_use.first_key_value() else { break };
            let oldest = oldest.clone();
            kept.remove(&oldest);
        }
    }

    /// Lets all of it go.
    pub(crate) fn clear(&self) {
        if let Ok(mut kept) = self.0.lock() {
            *kept = Kept::default();
        }
    }
}

impl Kept {
    fn note(&mut self, name: &str, texts: Arc<PackTexts>) {
        self.uses += 1;
        self.by_use.insert(self.uses, name.to_owned());
        self.packs.insert(name.to_owned(), (self.uses, texts));
    }

    fn remove(&mut self, name: &str) {
        if let Some((used, texts)) = self.packs.remove(name) {
            self.by_use.remove(&used);
            self.bytes -= texts.byte_count();
        }
    }
}

/// The text of a micro, and the turns in it once it is decoded.
#[derive(Clone)]
struct Decoding {
    id: ChunkId,
    text: HeldText,
    turns: Vec<RedactedTurn>,
}

#[derive(Clone)]
enum HeldText {
    Warm(Arc<TextBody>),
    Packed(Arc<PackTexts>),
    /// Its turns are in rows, or gone.
    None,
}

impl Decoding {
    fn new(body: &MicroBody, packs: &BTreeMap<String, Arc<PackTexts>>) -> Self {
        let text = match &body.place {
            BodyPlace::Text(text) => HeldText::Warm(Arc::new(text.clone())),
            BodyPlace::Pack(pack) => {
                packs.get(&pack.name).cloned().map_or(HeldText::None, HeldText::Packed)
            }
            BodyPlace::Rows | BodyPlace::Gone => HeldText::None,
        };
        Self { id: body.id, text, turns: Vec::new() }
    }

    fn text(&self) -> Option<(TextFormat, &str)> {
        match &self.text {
            HeldText::Warm(body) => Some((body.format, body.text.as_str())),
            // A pack without it: every turn of this micro was erased.
            HeldText::Packed(texts) => {
                texts.get(&self.id).map(|member| (member.format, member.text.as_str()))
            }
            HeldText::None => None,
        }
    }

    fn byte_count(&self) -> usize {
        self.text().map_or(0, |(_, text)| text.len())
    }

    fn decode(&mut self) -> Result<()> {
        if let Some((format, text)) = self.text() {
            self.turns = decode_text(&self.id, format, text)?;
        }
        Ok(())
    }
}

fn branch_of(body: &MicroBody) -> (SessionNo, Branch) {
    (body.id.session, body.id.branch)
}

/// Turns of one moment, and where the bodies are that they lack.
type Whole = (Vec<TurnRow>, Vec<MicroBody>);

/// Reads, and reads again if a pack has gone, until that same pack is missing twice. Packs are
/// objects and no part of the transaction that finds them: an erasure may write one anew, and
/// delete the old one before it was read. Then the next read finds the new one.
pub(crate) async fn with_packs<T, Read>(read: impl Fn() -> Read) -> Result<T>
where
    Read: Future<Output = Result<T>>,
{
    let mut missing = String::new();
    loop {
        match read().await {
            Err(MemoryError::Store(StoreError::PackMissing { name })) if name != missing => {
                missing = name;
            }
            done => return done,
        }
    }
}

impl Layers {
    /// Fills in the bodies that are not in their rows, and leaves out rows that
    /// are erased. Rows that have expired stay without a body.
    pub(crate) async fn hydrate(&self, scope: &Scope, rows: Vec<TurnRow>) -> Result<Vec<TurnRow>> {
        let mut rows = self.hydrate_as_stored(scope, rows).await?;
        self.veil_turns(scope, &mut rows).await?;
        Ok(rows)
    }

    /// As [`Layers::hydrate`], with whatever has been found to be secret since.
    pub(crate) async fn hydrate_as_stored(
        &self,
        scope: &Scope,
        mut rows: Vec<TurnRow>,
    ) -> Result<Vec<TurnRow>> {
        rows.retain(|row| row.state != TurnState::Erased);
        let lacking = rows.iter().filter(|row| row.lacks_body());
        let ids: Vec<TurnId> = lacking.map(|row| row.id).collect();
        if ids.is_empty() {
            return Ok(rows);
        }
        let read = self.stored_turns(scope, &ids).await?;
        let mut now: BTreeMap<TurnId, TurnRow> =
            read.into_iter().map(|row| (row.id, row)).collect();
        rows.retain_mut(|row| {
            if !row.lacks_body() {
                return true;
            }
            // Erased meanwhile, where it is not among them. A turn may be asked for twice.
            let found = now.get_mut(&row.id);
            found.map(|found| *row = found.clone()).is_some()
        });
        Ok(rows)
    }

    /// As [`Layers::hydrate`], but a damaged body costs its own turns alone, which
    /// are left out: one bad file must not hide the rest.
    pub(crate) async fn hydrate_what_can_be(
        &self,
        scope: &Scope,
        rows: Vec<TurnRow>,
    ) -> Result<Vec<TurnRow>> {
        match self.hydrate(scope, rows.clone()).await {
            Err(MemoryError::Store(error)) if error.is_damage() => {
                self.hydrate_each(scope, rows, &error).await
            }
            done => done,
        }
    }

    /// The turns with these ids, whole, in the order asked, but those that are damaged.
    pub(crate) async fn whole_turns(&self, scope: &Scope, ids: &[TurnId]) -> Result<Vec<TurnRow>> {
        match self.stored_turns(scope, ids).await {
            Ok(mut rows) => {
                self.veil_turns(scope, &mut rows).await?;
                Ok(rows)
            }
            Err(MemoryError::Store(error)) if error.is_damage() => {
                let rows = self.store.turns_at(scope, ids).await?;
                self.hydrate_each(scope, rows, &error).await
            }
            Err(error) => Err(error),
        }
    }

    /// Turns one by one, without those that are damaged.
    async fn hydrate_each(
        &self,
        scope: &Scope,
        rows: Vec<TurnRow>,
        error: &StoreError,
    ) -> Result<Vec<TurnRow>> {
        tracing::warn!(%scope, %error, "turns are passed over; `icecore check` tells which");
        let mut whole = Vec::with_capacity(rows.len());
        for row in rows {
            match self.hydrate(scope, vec![row]).await {
                Ok(rows) => whole.extend(rows),
                Err(MemoryError::Store(error)) if error.is_damage() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(whole)
    }

    /// The turns with these ids as they are stored, with their bodies, without the erased:
    /// rows and bodies are of one moment.
    async fn stored_turns(&self, scope: &Scope, ids: &[TurnId]) -> Result<Vec<TurnRow>> {
        with_packs(|| async {
            let ids = ids.to_vec();
            let read = self.store.read(scope, "whole_turns", move |tx| {
                let mut rows = tx.turns_at(&ids)?;
                rows.retain(|row| row.state != TurnState::Erased);
                let lacking = rows.iter().filter(|row| row.lacks_body());
                let bodies = tx.bodies_at(&lacking.map(TurnRow::place).collect::<Vec<_>>())?;
                Ok((rows, bodies))
            });
            self.fill(read.await?).await
        })
        .await
    }

    /// Fills in the missing bodies, branch by branch.
    async fn fill(&self, (mut rows, bodies): Whole) -> Result<Vec<TurnRow>> {
        let packs = self.open_packs(&bodies).await?;
        for of_branch in bodies.chunk_by(|a, b| branch_of(a) == branch_of(b)) {
            let at = branch_of(&of_branch[0]);
            let found = read_from(of_branch, &packs).await?;
            let mine = |row: &&mut TurnRow| row.lacks_body() && (row.id.session, row.branch) == at;
            for row in rows.iter_mut().filter(mine) {
                // A turn may be asked for twice.
                row.body = found.get(&row.ordinal).cloned();
            }
        }
        match rows.iter().find(|row| row.lacks_body()) {
            Some(row) => Err(damaged(&row.id.to_string(), "its body is in no tier")),
            None => Ok(rows),
        }
    }

    /// The turns of micros by ordinal, from text or packs, not from rows.
    pub(crate) async fn read_micros(
        &self,
        bodies: &[MicroBody],
    ) -> Result<BTreeMap<Ordinal, RedactedTurn>> {
        let packs = self.open_packs(bodies).await?;
        read_from(bodies, &packs).await
    }

    /// The texts of all packs that bodies lie in, side by side, from the cache
    /// where it has them.
    async fn open_packs(&self, bodies: &[MicroBody]) -> Result<BTreeMap<String, Arc<PackTexts>>> {
        let mut open = BTreeMap::new();
        let mut reading = Vec::new();
        for body in bodies {
            let BodyPlace::Pack(pack) = &body.place else { continue };
            if open.contains_key(&pack.name) {
                continue;
            }
            let cached = self.pack_texts.get(&pack.name);
            if cached.is_none() {
                let (memory, pack) = (self.clone(), pack.clone());
                reading.push(tokio::spawn(async move { memory.pack_texts(&pack).await }));
            }
            open.insert(pack.name.clone(), cached.unwrap_or_default());
        }
        for task in reading {
            let (name, texts) =
                task.await.map_err(|error| MemoryError::Internal(error.to_string()))??;
            open.insert(name, texts);
        }
        Ok(open)
    }

    async fn pack_texts(&self, pack: &PackRecord) -> Result<(String, Arc<PackTexts>)> {
        let reader = self.open_pack(pack).await?;
        let (inner, name) = (self.clone(), pack.name.clone());
        off_thread(move || {
            let texts = texts(&reader)?;
            inner.pack_texts.put(&name, &texts);
            Ok((name, texts))
        })
        .await?
    }

    /// Reads a pack, which is the one that was written.
    pub(crate) async fn open_pack(&self, pack: &PackRecord) -> Result<PackReader> {
        opened(self.packs.get(&pack.name, &pack.sha256).await?, pack).await
    }

    /// The turns of micros that are in one pack, read from where it lies and not from
    /// whatever is kept of it.
    pub(crate) async fn read_lying(
        &self,
        bodies: &[MicroBody],
        pack: &PackRecord,
    ) -> Result<BTreeMap<Ordinal, RedactedTurn>> {
        let bytes = self.packs.get_lying(&pack.name, &pack.sha256).await?;
        let reader = opened(bytes, pack).await?;
        let texts = off_thread(move || texts(&reader)).await??;
        read_from(bodies, &BTreeMap::from([(pack.name.clone(), texts)])).await
    }
}

/// The turns of micros of one branch by ordinal, from text or open packs.
async fn read_from(
    bodies: &[MicroBody],
    packs: &BTreeMap<String, Arc<PackTexts>>,
) -> Result<BTreeMap<Ordinal, RedactedTurn>> {
    let mut micros: Vec<Decoding> = bodies.iter().map(|body| Decoding::new(body, packs)).collect();
    in_pieces(&mut micros, Decoding::byte_count, Decoding::decode).await?;
    let mut found = BTreeMap::new();
    for (body, micro) in bodies.iter().zip(micros) {
        if matches!(body.place, BodyPlace::Rows | BodyPlace::Gone) {
            continue;
        }
        if micro.turns.len() != body.present.len() {
            let (held, present) = (micro.turns.len(), body.present.len());
            let reason = format!("it holds {held} turns and should hold {present}");
            return Err(damaged(&body.id.to_string(), &reason));
        }
        found.extend(body.present.iter().copied().zip(micro.turns));
    }
    Ok(found)
}

async fn opened(bytes: impl AsRef<[u8]> + Send + 'static, pack: &PackRecord) -> Result<PackReader> {
    let pack = pack.clone();
    off_thread(move || Ok(PackReader::open(&pack.name, bytes.as_ref(), &pack.key)?)).await?
}

fn texts(pack: &PackReader) -> Result<Arc<PackTexts>> {
    let members = pack.members()?.into_iter();
    Ok(Arc::new(PackTexts(members.map(|member| (member.id, member)).collect())))
}

pub(crate) fn damaged(chunk: &str, reason: &str) -> MemoryError {
    StoreError::BodyDamaged { chunk: chunk.to_owned(), reason: reason.to_owned() }.into()
}

/// The turns of a text that the store gave.
pub(crate) fn decode(id: &ChunkId, body: &TextBody) -> Result<Vec<RedactedTurn>> {
    decode_text(id, body.format, body.text.as_str())
}

#[expect(clippy::disallowed_methods, reason = "the text comes from our own store or pack")]
pub(crate) fn decode_text(
    id: &ChunkId,
    format: TextFormat,
    text: &str,
) -> Result<Vec<RedactedTurn>> {
    let refuse = |reason: String| damaged(&id.to_string(), &reason);
    let turns = match format {
        TextFormat::Ctf => ctf::decode(text).map_err(|error| refuse(error.to_string()))?,
        TextFormat::Jsonl => text
            .lines()
            .map(|line| turn_jsonl::parse_stored(line).map(|line| line.turn))
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| refuse(error.to_string()))?,
    };
    Ok(turns.into_iter().map(RedactedTurn::read_back).collect())
}

/// The text of turns that the store gave, decoded again and compared, so that
/// nothing is let go that the text does not hold.
#[expect(clippy::disallowed_methods, reason = "the text is made of redacted turns alone")]
pub(crate) fn encode(id: &ChunkId, format: TextFormat, turns: &[RedactedTurn]) -> Result<TextBody> {
    let fields: Vec<_> = turns.iter().map(|turn| turn.fields().clone()).collect();
    let text = match format {
        TextFormat::Ctf => ctf::encode(&fields),
        TextFormat::Jsonl => fields
            .iter()
            .map(|turn| turn_jsonl::write_fields(&[], turn))
            .collect::<Vec<_>>()
            .join("\n"),
    };
    if decode_text(id, format, &text)? != turns {
        return Err(damaged(&id.to_string(), "its text does not read back as it was written"));
    }
    Ok(TextBody { format, text: icecore_domain::redact::RedactedText::read_back(text) })
}
