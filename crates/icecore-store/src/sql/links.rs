//! Links: by what a message of a client's history is known as a turn.

use std::collections::BTreeSet;

use super::engine::{self, Connection, OptionalExtension, Row, Value, params};
use icecore_domain::identity::Link;
use icecore_domain::ids::{Branch, Ordinal, Scope, Seq, SessionNo, TurnId};

use super::Shared;
use super::rows::{self, ScopeNo};
use crate::store::*;

const IN_SESSION: &str =
    "SELECT t.session, t.seq, t.branch, t.ordinal, t.flags, l.answered FROM links l
     JOIN turns t ON t.tenant = l.tenant AND t.session = l.session AND t.seq = l.seq
     WHERE l.tenant = ?1 AND l.scope = ?2 AND l.link = ?3 AND l.session = ?4";

/// The turn of a session that has this link, and whether it is answered.
pub(super) fn in_session(
    c: &Connection,
    no: ScopeNo,
    session: SessionNo,
    link: Link,
) -> engine::Result<Option<(TurnPlace, bool)>> {
    c.prepare_cached(IN_SESSION)?
        .query_row(
            params![no.tenant, no.scope, link.as_bytes().as_slice(), rows::number(session.0)],
            |row| Ok((read_place(row)?, row.get(5)?)),
        )
        .optional()
}

/// What is known of a link: the turn of the session that has it, with whether it is
/// answered, and whether one of any session of the memory is.
pub(super) type Known = (Link, Option<(TurnPlace, bool)>, bool);

/// What is known of the links of a batch.
pub(super) fn before(
    c: &Connection,
    no: ScopeNo,
    session: SessionNo,
    batch: &AppendBatch,
) -> engine::Result<Vec<Known>> {
    let links: BTreeSet<Link> = batch.turns.iter().filter_map(|turn| turn.link).collect();
    if links.is_empty() {
        return Ok(Vec::new());
    }
    let (tenant, scope) = (Value::Integer(no.tenant), Value::Integer(no.scope));
    let session = Value::Integer(rows::number(session.0));
    let keys: Vec<_> =
        links.iter().map(|link| vec![tenant, scope, Value::Blob(link.as_bytes())]).collect();
    let is_answered = c
        .prepare_cached(
            "SELECT 1 FROM links
             WHERE tenant = ?1 AND scope = ?2 AND link = ?3 AND answered != 0 LIMIT 1",
        )?
        .query_each(&keys, |_| Ok(()))?;
    let here: Vec<_> = keys
        .into_iter()
        .map(|mut key| {
            key.push(session);
            key
        })
        .collect();
    let here = c
        .prepare_cached(IN_SESSION)?
        .query_each(&here, |row| Ok((read_place(row)?, row.get(5)?)))?;
    let found = links.iter().zip(here).zip(is_answered);
    Ok(found
        .map(|((link, here), told)| (*link, here.into_iter().next(), !told.is_empty()))
        .collect())
}

/// Notes that an answer which a client had sent went through us as well.
pub(super) fn note_answered(
    c: &Connection,
    no: ScopeNo,
    session: SessionNo,
    link: Link,
) -> engine::Result<()> {
    c.prepare_cached(
        "UPDATE links SET answered = 1
         WHERE tenant = ?1 AND scope = ?2 AND link = ?3 AND session = ?4",
    )?
    .execute(params![
        no.tenant,
        no.scope,
        link.as_bytes().as_slice(),
        rows::number(session.0)
    ])?;
    Ok(())
}

pub(super) fn find(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    links: &[Link],
    session: Option<SessionNo>,
) -> Result<Vec<LinkedTurn>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let (first, last) = match session {
        Some(session) => (rows::number(session.0), rows::number(session.0)),
        None => (0, i64::MAX),
    };
    let read = || {
        let mut query = c.prepare_cached(
            "SELECT t.session, t.seq, t.branch, t.ordinal, t.flags, b.length, l.answered, l.hollow FROM links l
             JOIN turns t ON t.tenant = l.tenant AND t.session = l.session AND t.seq = l.seq
             JOIN branches b ON b.tenant = t.tenant AND b.session = t.session
               AND b.branch = t.branch
             WHERE l.tenant = ?1 AND l.scope = ?2 AND l.link = ?3 AND l.session BETWEEN ?4 AND ?5
             ORDER BY l.session DESC LIMIT ?6",
        )?;
        let numbers = [no.tenant, no.scope, first, last, MOST_LINKED as i64].map(Value::Integer);
        let [tenant, scope, first, last, most] = numbers;
        let keys: Vec<_> = links
            .iter()
            .map(|link| vec![tenant, scope, Value::Blob(link.as_bytes()), first, last, most])
            .collect();
        let found = query.query_each(&keys, |row| {
            let place = read_place(row)?;
            let is_head = place.ordinal.0 == row.get::<_, i64>(5)? as u64;
            Ok((place, is_head, row.get(6)?, row.get(7)?))
        })?;
        let each = links.iter().zip(found).flat_map(|(link, found)| {
            found.into_iter().map(|(place, is_head, is_answered, is_hollow)| LinkedTurn {
                link: *link,
                place,
                is_head,
                is_answered,
                is_hollow,
            })
        });
        Ok(each.collect())
    };
    read().map_err(|e| s.failed(e))
}

pub(super) fn places(
    c: &Connection,
    s: &Shared,
    scope: &Scope,
    ids: &[TurnId],
) -> Result<Vec<TurnPlace>> {
    let Some(no) = rows::scope_no(c, s, scope)? else { return Ok(Vec::new()) };
    let read = || {
        let mut query = c.prepare_cached(
            "SELECT t.session, t.seq, t.branch, t.ordinal, t.flags FROM turns t
             JOIN sessions o ON o.tenant = t.tenant AND o.session = t.session AND o.scope = ?4
             WHERE t.tenant = ?1 AND t.session = ?2 AND t.seq = ?3",
        )?;
        let key = |id: &TurnId| {
            vec![no.tenant, rows::number(id.session.0), rows::number(id.seq.0), no.scope]
        };
        let keys: Vec<_> = ids.iter().map(key).map(engine::integers).collect();
        Ok(query.query_each(&keys, read_place)?.into_iter().flatten().collect())
    };
    read().map_err(|e| s.failed(e))
}

fn read_place(row: &Row<'_>) -> engine::Result<TurnPlace> {
    Ok(TurnPlace {
        id: TurnId {
            session: SessionNo(row.get::<_, i64>(0)? as u64),
            seq: Seq(row.get::<_, i64>(1)? as u64),
        },
        branch: Branch(row.get(2)?),
        ordinal: Ordinal(row.get::<_, i64>(3)? as u64),
        state: rows::turn_state(row.get(4)?),
    })
}

#[cfg(test)]
mod tests {
    use crate::SqliteStore;
    use crate::contract::fixtures::*;
    use crate::contract::links::following;
    use crate::sql::Wall;
    use crate::store::*;

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
            let store = SqliteStore::open(dir.path(), None).unwrap();
            store.append(&scope(), following("s", &["a", "b"], 0)).await.unwrap();
            add_to_diary(&store).await;
            clean(&store).await;
            store
                .write(Wall::Everyone, move |c, s| c.execute_batch(sql).map_err(|e| s.failed(e)))
                .await
                .unwrap();
            assert_eq!(store.check().await.unwrap(), [finding], "{sql}");
        }
    }

    async fn add_to_diary(store: &SqliteStore) {
        let diary = scope_of("acme", "diary");
        store.append(&diary, batch("s", &say_many(1))).await.unwrap();
    }
}
