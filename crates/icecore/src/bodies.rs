//! Getting turns back, from whatever tier they are in.

use std::collections::BTreeMap;

use icecore_domain::chunk::ChunkId;
use icecore_domain::ctf;
use icecore_domain::ids::{Ordinal, Scope, Seq};
use icecore_domain::redact::RedactedTurn;
use icecore_domain::turn_jsonl;
use icecore_store::{
    BodyPlace, MicroBody, PackReader, PackRecord, StoreError, TextBody, TextFormat, TurnQuery,
    TurnRow, TurnState,
};

use crate::error::{MemoryError, Result, off_thread};
use crate::memory::Memory;

/// A pack can be rewritten by an erasure between finding and reading it.
const READ_TRIES: usize = 3;

impl Memory {
    /// Fills in the bodies that are not in their rows, and leaves out rows that
    /// are erased. Rows that have expired stay without a body.
    ///
    /// Rows and bodies are read one after the other, and an erasure may come
    /// between: then the rows are read again.
    pub(crate) async fn hydrate(
        &self,
        scope: &Scope,
        mut rows: Vec<TurnRow>,
    ) -> Result<Vec<TurnRow>> {
        let mut failure = None;
        for _ in 0..READ_TRIES {
            rows.retain(|row| row.state != TurnState::Erased);
            match self.fill(scope, &mut rows).await {
                Ok(()) => return Ok(rows),
                Err(MemoryError::Store(
                    error @ (StoreError::PackMissing { .. } | StoreError::BodyDamaged { .. }),
                )) => failure = Some(error),
                Err(error) => return Err(error),
            }
            self.refresh(scope, &mut rows).await?;
        }
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(rows),
        }
    }

    /// Fills in the missing bodies, branch by branch.
    async fn fill(&self, scope: &Scope, rows: &mut [TurnRow]) -> Result<()> {
        let missing = |row: &TurnRow| row.body.is_none() && row.state == TurnState::Present;
        while let Some(first) = rows.iter().find(|row| missing(row)) {
            let (session, branch) = (first.id.session, first.branch);
            let mine = |row: &&TurnRow| missing(row) && row.branch == branch;
            let ordinals: Vec<Ordinal> = rows.iter().filter(mine).map(|row| row.ordinal).collect();
            let (Some(low), Some(high)) = (ordinals.iter().min(), ordinals.iter().max()) else {
                return Ok(());
            };
            let mut bodies = self.inner.store.bodies(scope, session, branch, *low, *high).await?;
            bodies.retain(|body| {
                ordinals.iter().any(|ordinal| body.id.first <= *ordinal && *ordinal <= body.id.last)
            });
            let mut found = self.read_micros(scope, &bodies).await?;
            for row in rows.iter_mut().filter(|row| missing(row) && row.branch == branch) {
                row.body = found.remove(&row.ordinal);
                if row.body.is_none() {
                    return Err(damaged(&row.id.to_string(), "its body is in no tier"));
                }
            }
        }
        Ok(())
    }

    /// Reads again how the rows without a body stand.
    async fn refresh(&self, scope: &Scope, rows: &mut [TurnRow]) -> Result<()> {
        for row in rows.iter_mut().filter(|row| row.body.is_none()) {
            let query = TurnQuery {
                after: Seq(row.id.seq.0 - 1),
                through: row.id.seq,
                ..TurnQuery::all(row.id.session, 1)
            };
            if let Some(now) = self.inner.store.turns(scope, &query).await?.into_iter().next() {
                *row = now;
            }
        }
        Ok(())
    }

    /// The turns of micros by ordinal, from text or packs. Those still in rows
    /// are read from there.
    pub(crate) async fn read_micros(
        &self,
        scope: &Scope,
        bodies: &[MicroBody],
    ) -> Result<BTreeMap<Ordinal, RedactedTurn>> {
        let mut found = BTreeMap::new();
        let mut open: Option<(String, PackReader)> = None;
        for body in bodies {
            let turns = match &body.place {
                BodyPlace::Gone => continue,
                BodyPlace::Rows => {
                    for row in self.micro_rows(scope, body).await? {
                        if let Some(turn) = row.body {
                            found.insert(row.ordinal, turn);
                        }
                    }
                    continue;
                }
                BodyPlace::Text(text) => decode(&body.id, text)?,
                BodyPlace::Pack(pack) => {
                    if open.as_ref().is_none_or(|(name, _)| *name != pack.name) {
                        open = Some((pack.name.clone(), self.open_pack(pack).await?));
                    }
                    match &open {
                        Some((_, reader)) if reader.ids().contains(&body.id) => {
                            let member = reader.member(body.id)?;
                            decode_text(&body.id, member.format, &member.text)?
                        }
                        // Every turn of this micro was erased.
                        _ => Vec::new(),
                    }
                }
            };
            for (ordinal, turn) in self.place(scope, body, turns).await? {
                found.insert(ordinal, turn);
            }
        }
        Ok(found)
    }

    /// Which ordinals the surviving turns of a micro have.
    async fn place(
        &self,
        scope: &Scope,
        body: &MicroBody,
        turns: Vec<RedactedTurn>,
    ) -> Result<Vec<(Ordinal, RedactedTurn)>> {
        if turns.len() as u64 == body.id.turn_count() {
            return Ok((body.id.first.0..).map(Ordinal).zip(turns).collect());
        }
        let mut rows = self.micro_rows(scope, body).await?;
        rows.retain(|row| row.state == TurnState::Present);
        if rows.len() != turns.len() {
            let reason = format!("it holds {} turns and should hold {}", turns.len(), rows.len());
            return Err(damaged(&body.id.to_string(), &reason));
        }
        Ok(rows.into_iter().map(|row| row.ordinal).zip(turns).collect())
    }

    /// The rows of a micro's own turns.
    pub(crate) async fn micro_rows(&self, scope: &Scope, body: &MicroBody) -> Result<Vec<TurnRow>> {
        let query = TurnQuery {
            branch: Some(body.id.branch),
            after: Seq(body.first_seq.0.saturating_sub(1)),
            through: body.last_seq,
            ..TurnQuery::all(body.id.session, usize::MAX >> 1)
        };
        let mut rows = self.inner.store.turns(scope, &query).await?;
        rows.retain(|row| body.id.first <= row.ordinal && row.ordinal <= body.id.last);
        Ok(rows)
    }

    /// Reads a pack and checks that it is the one that was written.
    pub(crate) async fn open_pack(&self, pack: &PackRecord) -> Result<PackReader> {
        let bytes = self.inner.packs.get(&pack.name).await?;
        let pack = pack.clone();
        off_thread(move || {
            use sha2::{Digest, Sha256};
            if <[u8; 32]>::from(Sha256::digest(&bytes)) != pack.sha256 {
                let reason = "its bytes are not those that were written".to_owned();
                return Err(StoreError::PackDamaged { name: pack.name, reason }.into());
            }
            Ok(PackReader::open(&pack.name, &bytes, &pack.key)?)
        })
        .await?
    }
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
