//! Dreams: runs that distil a memory's new entries and turns into one entry.
//!
//! [`due`] finds what a dream has yet to read and keeps two from running at once, [`keep`]
//! stores a dream and takes it back, [`lost`] notes what has to be dreamt again, and
//! [`archives`] holds the keys of what dreams read.

pub(crate) mod archives;
mod due;
mod keep;
mod lost;
pub(crate) mod seal;

use icecore_domain::dream::Checksum;
use icecore_domain::ids::{Position, Scope, Tenant};
use icecore_domain::redact::RedactedText;
use icecore_domain::time::Millis;

pub use self::archives::{ArchiveRecord, NewArchive};
pub use self::due::{Lease, Undreamt};
pub use self::keep::{DreamRun, DreamSpan, Kept, KeptDream, NewDream};
pub(crate) use self::keep::{set_state, take_back, unread};
pub use self::lost::DreamDue;
pub(crate) use self::lost::note as note_lost;
use crate::engine::prelude::*;
use crate::store::Store;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DreamRecord {
    pub run: String,
    pub scope: Scope,
    /// Counts the memory's dreams, from 1.
    pub number: u64,
    pub state: DreamState,
    /// The dream that it was made on top of, by its run.
    pub previous: Option<String>,
    pub trigger: DreamTrigger,
    /// The program or model that wrote the distillate.
    pub distiller: String,
    pub output: String,
    pub archive: Checksum,
    pub figures: DreamFigures,
    /// Its section of the index; empty once it is undone or erased.
    pub section: RedactedText,
    /// The ids of its sources, as JSON; empty once it is undone or erased.
    pub source_ids: RedactedText,
    pub index_updated: bool,
    /// The position of its `memory.compacted` in the log.
    pub position: Position,
    pub created_at: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DreamState {
    /// The memory's newest, whose entry is in force.
    InForce,
    /// A newer dream was made on top of it.
    Superseded,
    Undone,
    /// Something that it had read was forgotten, and so was it.
    Erased,
}

words! {
    DreamState {
        InForce = "in-force",
        Superseded = "superseded",
        Undone = "undone",
        Erased = "erased",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DreamTrigger {
    /// A person or program asked for it.
    Manual,
    Scheduled,
    /// The host repeats a dream because something that it had read was forgotten.
    Anew,
}

words! { DreamTrigger { Manual = "manual", Scheduled = "scheduled", Anew = "anew" } }

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DreamFigures {
    pub budget: u64,
    /// The smallest budget that would not have been refused.
    pub minimum: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub source_count: u64,
    /// Sources that are left for the next dream.
    pub remaining: u64,
    /// Bytes of the sources that the output replaces, as they are stored.
    pub bytes_before: u64,
    pub bytes_after: u64,
    pub lines: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DreamQuery {
    /// The dreams of one memory; of the whole tenant without.
    pub memory: Option<String>,
    pub in_force: bool,
    pub before: Option<Position>,
    pub limit: usize,
}

impl Store {
    pub async fn dream(&self, tenant: &Tenant, run: &str) -> Result<Option<DreamRecord>> {
        let run = run.to_owned();
        self.read(tenant, "dream", move |tx| get(tx, &run)).await
    }

    pub async fn dreams(&self, tenant: &Tenant, query: &DreamQuery) -> Result<Vec<DreamRecord>> {
        let query = query.clone();
        self.read(tenant, "dreams", move |tx| {
            let Some(no) = tx.tenant_no()? else { return Ok(Vec::new()) };
            // The positions of one memory's dreams rise with their numbers.
            let (source, order) = match (&query.memory, query.in_force) {
                (_, true) => ("dreams INDEXED BY dreams_in_force", "position"),
                (Some(_), false) => ("dreams", "number"),
                (None, false) => ("dreams INDEXED BY dreams_by_position", "position"),
            };
            let of_memory = match query.memory {
                Some(_) => "scope = (SELECT scope FROM scopes WHERE tenant = ?1 AND memory = ?2)",
                None => "?2 IS NULL",
            };
            let in_force = if query.in_force { "state = 'in-force'" } else { "1 = 1" };
            let sql = format!(
                "SELECT {COLUMNS} FROM {source} WHERE tenant = ?1 AND {of_memory} AND {in_force}
                   AND position < ?3 ORDER BY {order} DESC LIMIT ?4"
            );
            let before = query.before.unwrap_or(Position(u64::MAX));
            tx.all(&sql, params![no, query.memory, before, query.limit], tuple)
        })
        .await
    }

    /// Tokens that a tenant's dreams have read and written since a moment.
    pub async fn dreamt_tokens(&self, tenant: &Tenant, since: Millis) -> Result<u64> {
        self.read(tenant, "dreamt_tokens", move |tx| {
            let Some(no) = tx.tenant_no()? else { return Ok(0) };
            let sql = "SELECT coalesce(sum(input_tokens + output_tokens), 0)
                 FROM dreams INDEXED BY dreams_by_time WHERE tenant = ?1 AND created_at >= ?2";
            tx.one(sql, params![no, since], column)
        })
        .await
    }
}

fn get(tx: &Tx<'_>, run: &str) -> Result<Option<DreamRecord>> {
    let Some(no) = tx.tenant_no()? else { return Ok(None) };
    let sql = format!("SELECT {COLUMNS} FROM dreams WHERE tenant = ?1 AND run = ?2");
    tx.first(&sql, params![no, run], tuple)
}

const COLUMNS: &str = "run, number, state, previous, trigger, distiller, output, archive,
    budget, minimum, input_tokens, output_tokens, source_count, remaining, bytes_before,
    bytes_after, lines, section, source_ids, index_updated, position, created_at,
    (SELECT name FROM tenants t WHERE t.tenant = dreams.tenant),
    (SELECT memory FROM scopes s WHERE s.tenant = dreams.tenant AND s.scope = dreams.scope)";

record! {
    DreamRecord {
        run, number, state, previous, trigger, distiller, output, archive, figures, section,
        source_ids, index_updated, position, created_at, scope
    }
    DreamFigures {
        budget, minimum, input_tokens, output_tokens, source_count, remaining, bytes_before,
        bytes_after, lines
    }
}

/// Condition: the dream is in force, or below the one that is.
pub(crate) const COUNTS: &str = "state IN ('in-force', 'superseded')";

pub(crate) fn texts(tx: &Tx<'_>, no: ScopeNo) -> Result<Vec<(i64, [String; 2])>> {
    let sql = "SELECT number, section, source_ids FROM dreams
         WHERE tenant = ?1 AND scope = ?2 AND (section != '' OR source_ids != '')
         ORDER BY number";
    tx.all(sql, [no.tenant, no.scope], |row| Ok((row.get(0)?, [row.get(1)?, row.get(2)?])))
}

#[cfg(test)]
mod tests {
    use icecore_domain::ids::{Branch, Ordinal};

    use super::*;
    use crate::Store;
    use crate::contract::dreams::new_dream;
    use crate::contract::fixtures::*;
    use crate::engine::tx::Isolation;

    /// A store with two dreams, one on top of the other.
    async fn dreamt(dir: &std::path::Path) -> Store {
        let store = Store::open(dir, None).unwrap();
        let session = add(&store, "s", &say_many(4)).await;
        let mut previous = None;
        for number in 1..3 {
            let lease = Lease { holder: "me".to_owned(), until: Millis(NOW.0 + 1) };
            assert!(store.lease_dream(&scope(), lease, NOW).await.unwrap());
            let (after, through) = (Ordinal(u64::from(number) - 1), Ordinal(u64::from(number)));
            let span = DreamSpan { session, branch: Branch::MAIN, after, through };
            let new = NewDream { spans: vec![span], ..new_dream(number, previous.as_deref()) };
            let Kept::Done(kept) = store.keep_dream(&scope(), new).await.unwrap() else {
                panic!("nothing is in its way")
            };
            previous = Some(kept.dream.run);
        }
        clean(&store).await;
        store
    }

    #[tokio::test]
    async fn damaged_dreams_are_found() {
        let checksum = "01".repeat(32);
        for (change, finding) in [
            (
                "UPDATE dreams SET state = 'in-force'",
                "dreams of a memory are no chain: run dream-1".to_owned(),
            ),
            (
                "UPDATE dreams SET previous = NULL",
                "dreams of a memory are no chain: run dream-2".to_owned(),
            ),
            (
                "UPDATE branches SET dreamed_through = 1",
                "a branch's turns count as read that no dream read: session 1 branch 0".to_owned(),
            ),
            (
                "DELETE FROM dreams WHERE number = 2",
                "what a dream read is of no dream: run dream-2".to_owned(),
            ),
            (
                "DELETE FROM entries WHERE began > 5",
                "what a dream wrote is not there: run dream-2".to_owned(),
            ),
            (
                "UPDATE dreams SET state = 'erased' WHERE number = 2",
                "a dream that was lost or taken back tells of its sources: run dream-2".to_owned(),
            ),
            (
                "UPDATE archives SET sealed_key = NULL WHERE checksum < x'02'",
                format!("an archive's key does not fit its state: archive {checksum}"),
            ),
            (
                "DELETE FROM archives WHERE run = 'dream-2'",
                "an archive's key does not fit its state: run dream-2".to_owned(),
            ),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let store = dreamt(dir.path()).await;
            store
                .write(Isolation::Global, "test", move |tx| tx.execute_batch(change))
                .await
                .unwrap();
            let findings = store.check().await.unwrap();
            assert!(findings.contains(&finding), "{finding}: {findings:?}");
        }
    }

    #[tokio::test]
    async fn a_damaged_row_is_told() {
        for (change, is_dream) in [
            ("UPDATE dreams SET state = 'asleep'", true),
            ("UPDATE dreams SET archive = x'00'", true),
            ("UPDATE archives SET sealed_key = x'00'", false),
            ("UPDATE archives SET checksum = x'00' WHERE run = 'dream-2'", false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let store = dreamt(dir.path()).await;
            store
                .write(Isolation::Global, "test", move |tx| tx.execute_batch(change))
                .await
                .unwrap();
            let dream = store.dream(&tenant("acme"), "dream-2").await;
            let archives = store.archives(None).await;
            assert_eq!((dream.is_err(), archives.is_err()), (is_dream, !is_dream), "{change}");
        }
    }
}
