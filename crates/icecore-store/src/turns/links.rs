//! Links: keyed hashes by which the messages of a client's history are found as turns.

use std::collections::{BTreeMap, BTreeSet};

use icecore_domain::identity::Link;
use icecore_domain::ids::{Scope, SessionNo, TurnId};

use crate::engine::prelude::*;
use crate::log::Outcome;
use crate::store::Store;
use crate::turns::{
    AppendBatch, AppendedTurn, LinkedTurn, MOST_LINKED, TurnPlace, TurnState, rows,
};

impl Store {
    /// The turns that have these links, of one session or of all sessions of the scope.
    /// They come in the order of the links, and for each link from the newest session
    /// first, at most [`MOST_LINKED`]. Tombstones are among them.
    pub async fn linked(
        &self,
        scope: &Scope,
        links: &[Link],
        session: Option<SessionNo>,
    ) -> Result<Vec<LinkedTurn>> {
        let links = links.to_vec();
        self.read(scope, "linked", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            let (first, last) = session.map_or((0, i64::MAX), |one| (number(one.0), number(one.0)));
            let key = |link| values![no.tenant, no.scope, link, first, last, MOST_LINKED];
            let sql = "SELECT l.link, t.session, t.seq, t.branch, t.ordinal, t.flags,
                   t.ordinal = b.length, l.answered, l.hollow
                 FROM links l
                 JOIN turns t ON t.tenant = l.tenant AND t.session = l.session AND t.seq = l.seq
                 JOIN branches b ON b.tenant = t.tenant AND b.session = t.session
                   AND b.branch = t.branch
                 WHERE l.tenant = ?1 AND l.scope = ?2 AND l.link = ?3
                   AND l.session BETWEEN ?4 AND ?5
                 ORDER BY l.session DESC LIMIT ?6";
            tx.all_of(sql, links.iter().map(key), tuple)
        })
        .await
    }

    /// Where these turns are, in the order asked. Turns of other scopes are left out.
    pub async fn places(&self, scope: &Scope, ids: &[TurnId]) -> Result<Vec<TurnPlace>> {
        let ids = ids.to_vec();
        self.read(scope, "places", move |tx| {
            let Some(no) = tx.scope_no()? else { return Ok(Vec::new()) };
            let sql = "SELECT t.session, t.seq, t.branch, t.ordinal, t.flags FROM turns t
                 JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session AND o.scope = ?4
                 WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq = ?3";
            let keys = ids.iter().map(|id| values![no.tenant, id.session, id.seq, no.scope]);
            tx.all_of(sql, keys, tuple)
        })
        .await
    }
}

/// What is stored of a link before a batch adds its turn.
#[derive(Default)]
pub(crate) struct LinkedBefore {
    /// The turn of this session that has it, and whether that is answered.
    pub(crate) here: Option<(AppendedTurn, bool)>,
    /// Whether it is answered in any session of the memory: the same link is the same
    /// history.
    pub(crate) is_answered: bool,
}

/// What is stored of the links of a batch.
pub(crate) fn before(
    tx: &Tx<'_>,
    no: ScopeNo,
    session: SessionNo,
    batch: &AppendBatch,
) -> Result<BTreeMap<Link, LinkedBefore>> {
    let links: BTreeSet<Link> = batch.turns.iter().filter_map(|turn| turn.link).collect();
    let keys: Vec<_> = links.iter().map(|link| values![no.tenant, no.scope, link]).collect();
    let answered = tx.each(
        "SELECT 1 FROM links
         WHERE tenant = ?1 AND scope = ?2 AND link = ?3 AND answered != 0 LIMIT 1",
        keys.clone(),
        |_| Ok(()),
    )?;
    let keys = keys.into_iter().map(|key| [key, values![session]].concat());
    let here = tx.each(IN_SESSION, keys, read_known)?;
    let before = here.into_iter().zip(answered).map(|(here, answered)| LinkedBefore {
        here: here.into_iter().next(),
        is_answered: !answered.is_empty(),
    });
    Ok(links.iter().copied().zip(before).collect())
}

/// The turn of a session that has this link, and whether it is answered.
pub(crate) fn in_session(
    tx: &Tx<'_>,
    no: ScopeNo,
    session: SessionNo,
    link: Link,
) -> Result<Option<(AppendedTurn, bool)>> {
    tx.first(IN_SESSION, params![no.tenant, no.scope, link, session], read_known)
}

/// Records that an answer which a client had sent went through us as well.
pub(crate) fn note_answered(
    tx: &Tx<'_>,
    no: ScopeNo,
    session: SessionNo,
    link: Link,
) -> Result<()> {
    tx.change(
        "UPDATE links SET answered = 1
         WHERE tenant = ?1 AND scope = ?2 AND link = ?3 AND session = ?4",
        params![no.tenant, no.scope, link, session],
    )
}

const IN_SESSION: &str =
    "SELECT t.session, t.seq, t.branch, t.ordinal, t.flags, l.answered FROM links l
     JOIN turns t ON t.tenant = l.tenant AND t.session = l.session AND t.seq = l.seq
     WHERE l.tenant = ?1 AND l.scope = ?2 AND l.link = ?3 AND l.session = ?4";

fn read_known(row: &Row<'_>) -> Result<(AppendedTurn, bool)> {
    let (TurnPlace { id, branch, ordinal, state }, is_answered) = tuple(row)?;
    let outcome = match state {
        TurnState::Erased => Outcome::Forgotten,
        TurnState::Present | TurnState::Expired => Outcome::Known,
    };
    Ok((AppendedTurn { outcome, seq: id.seq, branch, ordinal }, is_answered))
}

record! {
    TurnPlace { id, branch, ordinal, state }
    LinkedTurn { link, place, is_head, is_answered, is_hollow }
}

/// The flags of a turn.
impl FromSql for TurnState {
    fn from_value(value: Value<'_>) -> Result<Self> {
        i64::from_value(value).map(rows::turn_state)
    }
}

#[cfg(test)]
mod tests {
    use crate::contract::fixtures::*;
    use crate::contract::links::following;
    use crate::engine::tx::Isolation;
    use crate::store::Store;

    #[tokio::test]
    async fn damaged_links_are_found() {
        for (sql, finding) in [
            (
                "UPDATE links SET scope = 2 WHERE seq = 2",
                "a link is of no turn of its memory: session 1, turn 2",
            ),
            (
                "UPDATE links SET link = x'01' WHERE seq = 1",
                "a link is no hash, or a turn has two: session 1, turn 1",
            ),
            ("UPDATE links SET seq = 1", "a link is no hash, or a turn has two: session 1, turn 1"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let store = Store::open(dir.path(), None).unwrap();
            store.append(&scope(), following("s", &["a", "b"], 0)).await.unwrap();
            add_to_diary(&store).await;
            clean(&store).await;
            store.write(Isolation::Global, "test", move |tx| tx.execute_batch(sql)).await.unwrap();
            assert_eq!(store.check().await.unwrap(), [finding], "{sql}");
        }
    }

    async fn add_to_diary(store: &Store) {
        let diary = scope_of("acme", "diary");
        store.append(&diary, batch("s", &say_many(1))).await.unwrap();
    }
}
