//! Links: by what a message of a client's history is known as a turn.

use icecore_domain::identity::Link;
use icecore_domain::ids::{Branch, Ordinal, Scope, Seq, SessionNo, TurnId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::Shared;
use super::rows::{self, ScopeNo};
use crate::store::*;

/// The turn of a session that has this link, and whether it is answered.
pub(super) fn in_session(
    c: &Connection,
    no: ScopeNo,
    session: SessionNo,
    link: Link,
) -> rusqlite::Result<Option<(TurnPlace, bool)>> {
    c.prepare_cached(
        "SELECT t.session, t.seq, t.branch, t.ordinal, t.flags, l.answered FROM links l
         JOIN turns t ON t.tenant = l.tenant AND t.session = l.session AND t.seq = l.seq
         WHERE l.tenant = ?1 AND l.scope = ?2 AND l.link = ?3 AND l.session = ?4",
    )?
    .query_row(
        params![no.tenant, no.scope, link.as_bytes().as_slice(), rows::number(session.0)],
        |row| Ok((read_place(row)?, row.get(5)?)),
    )
    .optional()
}

/// Keeps the link of a turn, and tells whether it is answered. The same link is the same
/// history: what was answered in another session is answered.
pub(super) fn put(
    c: &Connection,
    no: ScopeNo,
    turn: TurnId,
    link: Link,
    (is_answered, is_hollow): (bool, bool),
) -> rusqlite::Result<bool> {
    c.prepare_cached(
        "INSERT INTO links (tenant, scope, link, session, seq, answered, hollow)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6 OR EXISTS (SELECT 1 FROM links
           WHERE tenant = ?1 AND scope = ?2 AND link = ?3 AND answered), ?7)
         RETURNING answered",
    )?
    .query_row(
        params![
            no.tenant,
            no.scope,
            link.as_bytes().as_slice(),
            rows::number(turn.session.0),
            rows::number(turn.seq.0),
            is_answered,
            is_hollow,
        ],
        |row| row.get(0),
    )
}

/// Notes that an answer which a client had sent went through us as well.
pub(super) fn note_answered(
    c: &Connection,
    no: ScopeNo,
    session: SessionNo,
    link: Link,
) -> rusqlite::Result<()> {
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
        let mut found = Vec::new();
        for link in links {
            let bytes = link.as_bytes().as_slice();
            let key = params![no.tenant, no.scope, bytes, first, last, MOST_LINKED as i64];
            let mut rows = query.query(key)?;
            while let Some(row) = rows.next()? {
                let place = read_place(row)?;
                let length = row.get::<_, i64>(5)? as u64;
                let is_head = place.ordinal.0 == length;
                found.push(LinkedTurn {
                    link: *link,
                    place,
                    is_head,
                    is_answered: row.get(6)?,
                    is_hollow: row.get(7)?,
                });
            }
        }
        Ok(found)
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
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            let key = [no.tenant, rows::number(id.session.0), rows::number(id.seq.0), no.scope];
            found.extend(query.query_row(key, read_place).optional()?);
        }
        Ok(found)
    };
    read().map_err(|e| s.failed(e))
}

fn read_place(row: &Row<'_>) -> rusqlite::Result<TurnPlace> {
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
            store.write(move |c, s| c.execute_batch(sql).map_err(|e| s.failed(e))).await.unwrap();
            assert_eq!(store.check().await.unwrap(), [finding], "{sql}");
        }
    }

    async fn add_to_diary(store: &SqliteStore) {
        let diary = scope_of("acme", "diary");
        store.append(&diary, batch("s", &say_many(1))).await.unwrap();
    }
}
